//! A content that nobody has announced, or no longer: its source may not have begun yet, or its
//! announcement may have expired in an outage. It is asked for again and again.

use std::time::{Duration, Instant};

use whimbrel_mobilityfirst::local::FailReason;

use crate::wait::Wait;

/// The first pause; it doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(10);

/// The wait for an announcement.
#[derive(Debug)]
pub(super) struct Unannounced {
    /// What the host says of the content.
    pub(super) reason: FailReason,
    since: Instant,
    /// When to ask again; `None` while an answer is due.
    again: Option<Instant>,
    pause: Duration,
}

impl Unannounced {
    /// Returns true for a failure that an announcement would end.
    pub(super) fn is_meant_by(reason: FailReason) -> bool {
        matches!(reason, FailReason::NoSuchName | FailReason::NoNameService)
    }

    /// Begins the wait, or goes on with it, because the host has failed for this reason.
    pub(super) fn after(earlier: Option<Unannounced>, reason: FailReason) -> Unannounced {
        let now = Instant::now();
        let (since, pause) =
            earlier.map_or((now, FIRST), |it| (it.since, (it.pause * 2).min(LONGEST)));
        Unannounced {
            reason,
            since,
            again: Some(now + pause),
            pause,
        }
    }

    /// Returns true, once, when it is time to ask again.
    pub(super) fn take_due(&mut self) -> bool {
        self.again.take_if(|at| *at <= Instant::now()).is_some()
    }

    /// Returns why the fetch waits: what the host is known to wait for, or else an announcement.
    pub(super) fn wait(&self, of_host: Option<&Wait>, asked: Vec<String>) -> Wait {
        match of_host {
            Some(wait) if !matches!(wait, Wait::NoAnswer { .. } | Wait::Stalled { .. }) => {
                wait.clone()
            }
            _ => Wait::Unannounced {
                asked,
                without_name_service: self.reason == FailReason::NoNameService,
                for_s: self.since.elapsed().as_secs(),
            },
        }
    }
}
