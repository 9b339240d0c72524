//! Losses that were none: how long to wait for a Data that a link recovers, and what a path holds
//! without a queue.

use core::time::Duration;

use whimbrel_core::Time;

use super::{Answer, Doubtful, Path, PathState};
use crate::congestion::{Congestion, Siblings};
use crate::ledger::{Sent, Status};

/// Recoveries in a row in which no late Data disproves a loss, after which the window is closed again
/// (RFC 8985 section 6.2, step 4: `RACK.reo_wnd_persist`).
const PERSISTENCE: u32 = 16;
/// Parts of the shortest round trip in which the window grows (RFC 8985 section 6.2, step 4).
const STEPS: u32 = 4;

/// The reordering window of RFC 8985: how much longer than a round trip the answer to an Interest may
/// take before the Interest counts as lost.
///
/// Where links recover what they lose, a repetition that is sent at once is answered at about the time at
/// which the recovered Data comes, so that nothing tells one from the other. Therefore one recovery in
/// sixteen is a test: repetitions wait for another round trip. A Data that comes meanwhile opens
/// the window as far as that Data needs; otherwise the window is closed until the next test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReorderingWindow {
    size: Duration,
    /// Recoveries since a test, or since a loss was disproved.
    recoveries: u32,
    /// The segment that ends the latest of them: it was sent after that began.
    ends_at: u64,
}

impl ReorderingWindow {
    /// Returns the wait beyond a round trip; `None` during a test.
    pub fn size(&self) -> Option<Duration> {
        (self.recoveries > 0 || !self.size.is_zero()).then_some(self.size)
    }

    /// A Data came by `late` after a smoothed round trip, although later ones had overtaken it, or its
    /// Interest was declared lost; the path's shortest round trip is `least`.
    pub fn disproved(&mut self, late: Duration, least: Duration) {
        self.recoveries = 0;
        if late > self.size {
            let step = (least / STEPS).max(Duration::from_millis(1));
            let steps = late.as_nanos().div_ceil(step.as_nanos());
            self.size = step.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX));
        }
    }

    /// The repetition for `segment` was answered, so its Interest or the Data was lost; `newest` has been
    /// sent.
    pub fn confirmed(&mut self, segment: u64, newest: u64) {
        if segment < self.ends_at {
            return;
        }
        self.ends_at = newest.max(segment) + 1;
        self.recoveries += 1;
        if self.recoveries >= PERSISTENCE {
            (self.size, self.recoveries) = (Duration::ZERO, 0);
        }
    }
}

/// The smallest sample of the latest one to two periods.
#[derive(Clone, Copy, Debug, Default)]
struct RecentLeast {
    since: Time,
    current: Option<Duration>,
    before: Option<Duration>,
}

impl RecentLeast {
    fn sample(&mut self, now: Time, value: Duration, period: Duration) {
        if now.since(self.since) >= period {
            (self.before, self.since) = (self.current.take(), now);
        }
        self.current = Some(self.current.map_or(value, |least| least.min(value)));
    }

    fn get(&self) -> Option<Duration> {
        self.current.into_iter().chain(self.before).min()
    }
}

/// The round trips of a path that show its length and its queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queueing {
    shortest: RecentLeast,
    standing: RecentLeast,
}

impl Queueing {
    /// How long a shortest round trip is remembered at least ([BBR, MinRTTFilterLen]).
    const MEMORY: Duration = Duration::from_secs(10);

    /// Takes in a round trip. The standing queue is what the shortest one of the last half of a round
    /// trip has ([Copa, RTTstanding]), so that jitter does not count.
    pub(super) fn sample(&mut self, now: Time, rtt: Duration, smoothed: Duration) {
        self.shortest.sample(now, rtt, Queueing::MEMORY);
        self.standing.sample(now, rtt, smoothed / 2);
    }

    /// Returns the share of the Interests in flight that the path holds without a queue, 0 to 1.
    pub(super) fn unqueued(&self) -> f64 {
        match (self.shortest.get(), self.standing.get()) {
            (Some(shortest), Some(standing)) if !standing.is_zero() => {
                (shortest.as_secs_f64() / standing.as_secs_f64()).min(1.0)
            }
            _ => 1.0,
        }
    }
}

impl Path {
    /// Returns how late a Data is that comes now, if it shows that its Interest was declared lost too
    /// early: no repetition was sent, or the last one so lately that its answer cannot be there yet
    /// (RFC 8985 section 6.2, step 2). It is the time since the transmission that it answers, or more
    /// if there were several.
    pub fn late(&self, now: Time, sent: &Sent, status: Status) -> Option<Duration> {
        if sent.moved {
            return None;
        }
        if matches!(status, Status::Lost { .. }) {
            return Some(now.since(sent.at));
        }
        let least = self.rtt.least()?;
        let is_early = sent.transmissions > 1 && now.since(sent.at) < least;
        is_early.then(|| now.since(sent.first_at))
    }

    /// Keeps the law as it is before it reacts to losses up to `highest`. A further reaction to losses
    /// of the same window is undone with the first.
    pub(super) fn doubt(&mut self, highest: u64) {
        let known = self.doubtful.as_ref();
        if known.is_none_or(|doubtful| highest > doubtful.until) {
            let until = self.newest.unwrap_or(0);
            let law = self.law.snapshot();
            self.doubtful = law.map(|law| Doubtful { law, until });
        }
    }

    /// The network says that there is congestion: no reaction so far is undone (RFC 4015 section 3.2, as
    /// with ECN).
    pub fn on_congested(&mut self) {
        self.doubtful = None;
    }

    /// What a Data says about losses: that one was none, that one was one, or that a link has recovered
    /// what was lost.
    pub(super) fn judge_losses(&mut self, answer: &Answer, siblings: &Siblings<'_>) {
        if answer.intermediate || self.fixed {
            return;
        }
        let smoothed = self.rtt.smoothed().unwrap_or_default();
        let least = self.rtt.least().unwrap_or_default();
        if let Some(late) = answer.late {
            let mut late = late.saturating_sub(smoothed);
            if answer.rtt.is_none() {
                // It may come from a cache that is nearer than any before: no more than the bound of RFC
                // 8985, a round trip.
                late = late.min(smoothed);
            }
            self.reordering.disproved(late, least);
            self.undo(answer.segment);
        } else if answer.rtt.is_none() && answer.to_latest {
            let newest = self.newest.unwrap_or(0);
            self.reordering.confirmed(answer.segment, newest);
        }
        let Some(rtt) = answer.rtt else { return };
        self.queueing.sample(answer.now, rtt, smoothed);
        let sent = answer.now - rtt;
        let is_overtaken = self.latest_answered.since(sent) > least / STEPS;
        self.latest_answered = self.latest_answered.max(sent);
        if is_overtaken && answer.late.is_none() {
            self.reordering
                .disproved(rtt.saturating_sub(smoothed), least);
            self.settle(answer.now, answer.segment, siblings);
        }
    }

    /// How long to wait at least for an answer that is overdue or that later ones have overtaken (RFC 8985
    /// section 6.2, step 5; during a test its probe timeout, section 7.2).
    pub fn overtaken_patience(&self) -> Duration {
        let smoothed = self.rtt.smoothed().unwrap_or_default();
        match self.reordering.size() {
            Some(Duration::ZERO) => Duration::ZERO,
            Some(window) => smoothed + window,
            None => smoothed * 2,
        }
    }

    /// Later answers have overtaken that for `segment`, which a link may still recover.
    pub fn on_overtaken(&mut self, now: Time, segment: u64, states: &[PathState]) {
        let siblings = Siblings {
            own: self.id,
            paths: states,
        };
        if !self.fixed {
            self.settle(now, segment, &siblings);
            self.window = self.law.window();
        }
    }

    /// Undoes the reaction to the loss of a segment, which was none (RFC 4015 section 3.2, RFC 9438
    /// section 4.9). It stands if what is left still fills the path: links hide the losses of a full
    /// queue.
    fn undo(&mut self, segment: u64) {
        let covers = |doubtful: &mut Doubtful| segment <= doubtful.until;
        if let Some(doubtful) = self.doubtful.take_if(covers)
            && self.law.window() < doubtful.law.window() * self.queueing.unqueued()
        {
            self.law = doubtful.law;
            self.stats.undone_decreases += 1;
        }
    }

    /// What was sent is late, and a link recovers it. If a full queue has lost it, less must be in
    /// flight: the law reacts as to a loss, if what it leaves still fills the path.
    fn settle(&mut self, now: Time, segment: u64, siblings: &Siblings<'_>) {
        if !self.reacts_to(segment) {
            return;
        }
        let Some(before) = self.law.snapshot() else {
            return;
        };
        self.law.on_congestion(now, Congestion::Loss, siblings);
        if self.law.window() < before.window() * self.queueing.unqueued() {
            self.law = before;
        } else {
            self.recovery_point = self.newest;
            self.stats.loss_decreases += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_window_grows_to_what_was_late_and_closes_after_sixteen_recoveries() {
        let mut window = ReorderingWindow::default();
        window.disproved(41 * MS, 40 * MS);
        assert_eq!(window.size(), Some(50 * MS), "in quarters of a round trip");
        window.disproved(20 * MS, 40 * MS);
        for recovery in 0..15 {
            // Ten losses of one window.
            (0..10).for_each(|n| window.confirmed(recovery * 100 + n, recovery * 100 + 99));
            assert_eq!(window.size(), Some(50 * MS));
        }
        window.confirmed(1500, 1599);
        assert_eq!(window.size(), None, "the next recovery is a test");
        window.confirmed(1600, 1699);
        assert_eq!(window.size(), Some(Duration::ZERO));
    }

    #[test]
    fn a_standing_queue_shows_and_jitter_does_not() {
        let mut queueing = Queueing::default();
        let mut now = Time::from_secs(1);
        let mut sample = |queueing: &mut Queueing, rtt: Duration| {
            now += MS;
            queueing.sample(now, rtt, 100 * MS);
        };
        // Each other one is late by half of a round trip.
        for number in 0..400 {
            let rtt = 100 * MS + 50 * MS * (number % 2);
            sample(&mut queueing, rtt);
        }
        assert_eq!(queueing.unqueued(), 1.0);
        for _ in 0..100 {
            sample(&mut queueing, 200 * MS);
        }
        assert_eq!(queueing.unqueued(), 0.5);
    }
}
