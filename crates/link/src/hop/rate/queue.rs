//! What the round trips tell of a queue.

use core::time::Duration;

use super::{QUEUE_SLACK, RateModel};

impl RateModel {
    /// Returns true if even the fastest round trip of the round was much longer than the smallest
    /// known one.
    pub(super) fn has_queue(&self) -> bool {
        self.round_rtt != Duration::MAX && self.is_late(self.round_rtt)
    }

    /// Returns true if the fastest round trip of the round shows next to no queue.
    pub(super) fn is_drained(&self) -> bool {
        self.round_rtt == Duration::MAX || self.is_prompt(self.round_rtt)
    }

    /// Returns true if a round trip of `rtt` shows next to no queue.
    pub(super) fn is_prompt(&self, rtt: Duration) -> bool {
        self.min_rtt.is_none_or(|least| {
            let slack = (least / 32).max(QUEUE_SLACK / 2).max(self.grain);
            rtt <= least + slack.max(self.tolerated(least) / 2)
        })
    }

    /// Returns true if a round trip of `rtt` shows a queue: it exceeds the smallest one by more
    /// than the sender's own bursts, or jitter, explain.
    pub(super) fn is_late(&self, rtt: Duration) -> bool {
        self.min_rtt
            .is_some_and(|least| rtt > least + self.slack(least))
    }

    /// Returns the part of a round trip beyond the smallest one, `least`, that no competing flow
    /// need have caused.
    fn slack(&self, least: Duration) -> Duration {
        self.own_slack(least).max(self.tolerated(least))
    }

    /// Returns the part of a round trip beyond the smallest one, `least`, that is jitter. In start-up
    /// and beside competing flows a queue turns as well.
    fn tolerated(&self, least: Duration) -> Duration {
        match self.is_starting() || self.is_shared {
            true => Duration::ZERO,
            false => self.jitter.tolerated(least),
        }
    }

    /// Returns the part of a round trip beyond the smallest one, `least`, that this sender's bursts and
    /// timers explain.
    pub(super) fn own_slack(&self, least: Duration) -> Duration {
        (least / 8).max(QUEUE_SLACK).max(self.grain)
    }
}
