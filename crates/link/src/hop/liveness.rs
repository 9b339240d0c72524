//! Whether the neighbour answers.

use core::time::Duration;

use whimbrel_core::{Deadline, Time};

use super::config::HopConfig;
use super::session::probe_interval;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Responsive,
    Unresponsive { next_probe: Time },
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// A sign of life is to be asked for.
    Probe,
    /// The neighbour counts as unresponsive from now on; it is to be asked, too.
    Lost,
}

#[derive(Debug)]
pub(super) struct Liveness {
    state: State,
    heard_at: Time,
    next_idle_probe: Time,
}

impl Liveness {
    pub(super) fn new(now: Time) -> Liveness {
        Liveness { state: State::Responsive, heard_at: now, next_idle_probe: Time::MAX }
    }

    pub(super) fn is_responsive(&self) -> bool {
        self.state == State::Responsive
    }

    /// A frame of the session arrived; true if the neighbour was unresponsive until now.
    pub(super) fn heard(&mut self, now: Time, config: &HopConfig) -> bool {
        let back = !self.is_responsive();
        self.state = State::Responsive;
        self.heard_at = now;
        self.next_idle_probe = now + config.idle_probe_interval;
        back
    }

    /// `attempts` time-outs in a row have expired; `rtt` is the smoothed round trip.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        config: &HopConfig,
        attempts: u32,
        rtt: Option<Duration>,
    ) -> Option<Due> {
        match &mut self.state {
            State::Responsive => {
                let patience = config.unresponsive_silence.max(rtt.unwrap_or_default().saturating_mul(4));
                if attempts >= config.unresponsive_timeouts && now.since(self.heard_at) >= patience {
                    self.state = State::Unresponsive { next_probe: now + config.outage_probe_interval };
                    return Some(Due::Lost);
                }
                if now >= self.next_idle_probe {
                    self.next_idle_probe = now + config.idle_probe_interval;
                    return Some(Due::Probe);
                }
                None
            }
            State::Unresponsive { next_probe } => {
                if now < *next_probe {
                    return None;
                }
                *next_probe = now + probe_interval(config, now.since(self.heard_at));
                Some(Due::Probe)
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        match self.state {
            State::Responsive if self.next_idle_probe == Time::MAX => None,
            State::Responsive => Some(Deadline::new(self.next_idle_probe, "idle neighbour")),
            State::Unresponsive { next_probe } => Some(Deadline::new(next_probe, "unresponsive neighbour")),
        }
    }
}
