//! Decides whether the neighbour is responsive.

use core::time::Duration;

use whimbrel_core::{Deadline, Time};

use super::config::HopConfig;

/// The time for which a silent neighbour is probed at the shortest interval, ...
const OUTAGE_PATIENCE: Duration = Duration::from_secs(60);
/// ... and the same if something waits for its return: after a train's tunnel or a reboot, sending
/// should resume a round trip later, rather than a second. In an hour that is 45,000 frames of 24
/// bytes.
const WAITING_PATIENCE: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Responsive,
    Unresponsive {
        next_probe: Time,
        // A chunk from the neighbour was incomplete.
        broke_off: bool,
    },
}

/// After what carries the frames has failed, frames that were under way say nothing for so long.
const AFTERMATH: Duration = Duration::from_secs(1);

/// A pause in the middle of a chunk counts as that of a slow link up to this length, and one after
/// a whole chunk as that of an idle one from this length on.
const LONGEST_GAP: Duration = Duration::from_secs(2);
/// Time to wait for the first answer, while the round trip is unknown: over satellites it takes two
/// seconds.
const FIRST_PATIENCE: Duration = Duration::from_secs(3);

/// The state of the sending half.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    /// Timeouts in a row that have expired.
    pub(super) attempts: u32,
    /// The smoothed round trip.
    pub(super) rtt: Option<Duration>,
    /// The shortest interval of questions that the link's rate allows.
    pub(super) rarest: Duration,
    /// True if a chunk waits or is on its way.
    pub(super) waiting: bool,
    /// True if the neighbour has ever acknowledged anything.
    pub(super) acknowledged: bool,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Probe the neighbour.
    Probe,
    /// Declare the neighbour unresponsive, and probe it.
    Lost,
}

#[derive(Debug)]
pub(super) struct Liveness {
    state: State,
    heard_at: Time,
    // Before this time, frames are no sign of life.
    deaf_until: Time,
    // Since when what carries the frames works.
    carried_since: Time,
    // When the neighbour was last asked for a sign of life, or heard, whichever is later.
    quiet_since: Option<Time>,
    // When DATA came last, and the longest pause between two of them of late.
    data_at: Option<Time>,
    gap: Duration,
}

impl Liveness {
    pub(super) fn new(now: Time) -> Liveness {
        Liveness {
            state: State::Responsive,
            heard_at: now,
            deaf_until: now,
            carried_since: now,
            quiet_since: None,
            data_at: None,
            gap: Duration::ZERO,
        }
    }

    pub(super) fn is_responsive(&self) -> bool {
        self.state == State::Responsive
    }

    /// Returns the time of the last frame of the session; before the first one, of the hop's
    /// creation.
    pub(super) fn heard_at(&self) -> Time {
        self.heard_at
    }

    /// Notes a frame of the session. Returns true if the neighbour was unresponsive.
    pub(super) fn heard(&mut self, now: Time) -> bool {
        if now < self.deaf_until {
            return false;
        }
        let back = !self.is_responsive();
        self.state = State::Responsive;
        self.heard_at = now;
        self.quiet_since = Some(now);
        back
    }

    /// What carries the frames has failed. Returns true if the neighbour was responsive.
    pub(super) fn lose(&mut self, now: Time, config: &HopConfig, expecting: bool) -> bool {
        self.deaf_until = now + AFTERMATH;
        self.give_up(now, config, expecting)
    }

    /// Nothing is to be expected of the neighbour for now. Returns true if it was responsive.
    pub(super) fn give_up(&mut self, now: Time, config: &HopConfig, expecting: bool) -> bool {
        let was = self.is_responsive();
        if was {
            self.state = State::Unresponsive {
                next_probe: now + config.outage_probe_interval,
                broke_off: expecting,
            };
        }
        was
    }

    /// What carries the frames works again, and the neighbour is probed now: often from here on, as
    /// the silence before says nothing.
    pub(super) fn regain(&mut self, now: Time, config: &HopConfig) {
        (self.deaf_until, self.carried_since) = (now, now);
        if let State::Unresponsive { next_probe, .. } = &mut self.state {
            *next_probe = now + config.outage_probe_interval;
        }
    }

    /// Notes DATA; `within` is true if a part of its chunk had arrived before.
    pub(super) fn note_data(&mut self, now: Time, within: bool) {
        if let Some(before) = self.data_at.filter(|_| within) {
            let gap = now.since(before).min(LONGEST_GAP);
            self.gap = gap.max(self.gap - self.gap / 8);
        }
        self.data_at = Some(now);
    }

    /// Returns what is due. `expecting` is true if a chunk of the neighbour's is half received.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        config: &HopConfig,
        sending: &Sending,
        expecting: bool,
    ) -> Option<Due> {
        let Sending {
            attempts,
            rtt,
            rarest,
            waiting,
            acknowledged,
        } = *sending;
        let idle_probe = self.next_idle_probe(config, rarest, expecting);
        match &mut self.state {
            State::Responsive => {
                let patience = config
                    .unresponsive_silence
                    .max(rtt.map_or(FIRST_PATIENCE, |rtt| rtt.saturating_mul(4)));
                if attempts >= config.unresponsive_timeouts && now.since(self.heard_at) >= patience
                {
                    self.state = State::Unresponsive {
                        next_probe: now + config.outage_probe_interval.max(rarest),
                        broke_off: expecting,
                    };
                    return Some(Due::Lost);
                }
                if idle_probe.is_none_or(|at| now < at) {
                    return None;
                }
                self.quiet_since = Some(now);
                Some(Due::Probe)
            }
            State::Unresponsive {
                next_probe,
                broke_off,
            } => {
                if now < *next_probe {
                    return None;
                }
                let waiting = waiting || *broke_off;
                let patience = if waiting {
                    WAITING_PATIENCE
                } else {
                    OUTAGE_PATIENCE
                };
                let silence = now.since(self.heard_at.max(self.carried_since));
                // Who calls and then acknowledges nothing may be one of thousands of ports that
                // somebody has opened: it costs them a frame now and then.
                let interval = match acknowledged || config.calls {
                    true => probe_interval(config, silence, patience, waiting),
                    false => config.idle_probe_interval / 2,
                };
                *next_probe = now + interval.max(rarest);
                Some(Due::Probe)
            }
        }
    }

    /// Returns when an idle neighbour is probed. One that falls silent in the middle of a chunk is
    /// probed as often as in an outage: if the link has failed, the first frame over it from either
    /// side ends the outage, half a round trip earlier than an answer would. The pause after a whole
    /// chunk may be the same, or the end of all traffic: probes become less frequent the longer it has
    /// lasted.
    fn next_idle_probe(
        &self,
        config: &HopConfig,
        rarest: Duration,
        expecting: bool,
    ) -> Option<Time> {
        let since = self.quiet_since?;
        // A pause that is usual on this link says nothing.
        let soon = config.outage_probe_interval.max(rarest).max(self.gap * 3);
        let idle = config.idle_probe_interval.max(rarest);
        let interval = match self.data_at {
            _ if expecting => soon,
            // On a thin link these probes would take a part of it that is felt, and a link that is
            // to be quiet has none.
            Some(data)
                if since.since(data) < LONGEST_GAP
                    && rarest <= config.outage_probe_interval
                    && config.idle_probe_interval <= LONGEST_GAP =>
            {
                soon.max(since.since(data) * 2).min(idle)
            }
            _ => idle,
        };
        Some(since + interval)
    }

    pub(super) fn poll_timeout(
        &self,
        config: &HopConfig,
        rarest: Duration,
        expecting: bool,
    ) -> Option<Deadline> {
        match self.state {
            State::Responsive => {
                let reason = if expecting {
                    "silence in the middle of a chunk"
                } else {
                    "idle neighbour"
                };
                self.next_idle_probe(config, rarest, expecting)
                    .map(|at| Deadline::new(at, reason))
            }
            State::Unresponsive { next_probe, .. } => {
                Some(Deadline::new(next_probe, "unresponsive neighbour"))
            }
        }
    }
}

/// Returns the interval of probes to a neighbour that has been silent for `silence`: the shortest
/// interval for `patience`, then longer by a hundredth of the time beyond it. If nothing waits, it
/// may grow up to half of the interval of idle probes.
pub(super) fn probe_interval(
    config: &HopConfig,
    silence: Duration,
    patience: Duration,
    waiting: bool,
) -> Duration {
    let growth = silence.saturating_sub(patience) / 100;
    let quiet = config.idle_probe_interval / 2;
    let slowest = match waiting {
        true => config.slowest_probe_interval,
        false => config.slowest_probe_interval.max(quiet),
    };
    (config.outage_probe_interval + growth).min(slowest)
}
