//! The cost of a link, and of a path: the expected time of a chunk.

use core::time::Duration;

use whimbrel_core::{LinkState, Time};

/// The chunk whose time is a link's cost, in bytes.
const CHUNK: u64 = 64 << 10;
/// Bytes per second of a link whose rate is not known yet, at a router without a measured link.
const UNMEASURED: u64 = 2 << 20;
/// Weight of a new sample in the smoothed cost: one in this number.
const SMOOTHING: u32 = 8;
/// A cost is announced anew when it differs by more than one in this number from the announced one, ...
const HYSTERESIS: u32 = 4;
/// ... in this number of samples in a row, ...
const STEADY_SAMPLES: u32 = 4;
/// ... and at most once in this time.
const COST_INTERVAL: Duration = Duration::from_secs(5);
/// A sample is another one than the smoothed ones if it differs from them by more than this factor, ...
const JUMP: f64 = 2.0;
/// ... in this number of samples in a row.
const JUMP_SAMPLES: u32 = 2;
/// Failures within a short time before a link is held down, ...
const FREE_FAILURES: u32 = 2;
/// ... the first time for so long, twice as long with each further failure, ...
const HOLD_DOWN: Duration = Duration::from_millis(500);
const MAX_HOLD_DOWN: Duration = Duration::from_secs(30);
/// ... until one failure is forgiven in this time.
const FORGIVEN_AFTER: Duration = Duration::from_secs(20);
/// The time over which the share of time up is averaged.
const MEMORY: Duration = Duration::from_secs(3600);
/// A link that is down is announced as usual while its share of time up is above this.
const LEAST_SHARE: f64 = 0.01;

/// The expected time of a chunk of 64 KiB, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(pub u32);

impl Cost {
    /// This router itself.
    pub const ZERO: Cost = Cost(0);
    /// No way.
    pub const NEVER: Cost = Cost(u32::MAX);
    /// The largest cost of a link: a minute. A path of 70 such links is below [`Cost::NEVER`].
    pub const MAX_LINK: Cost = Cost(60_000_000);

    /// Returns the cost of both one after the other.
    #[must_use]
    pub fn plus(self, other: Cost) -> Cost {
        Cost(self.0.saturating_add(other.0))
    }

    /// Returns true if it is the cost of a way.
    pub fn is_finite(self) -> bool {
        self != Cost::NEVER
    }

    /// Returns it as a time.
    pub fn time(self) -> Duration {
        Duration::from_micros(self.0.into())
    }

    /// Returns the cost of a link in this state: the time of a chunk at its rate, with the packets
    /// that are sent again, and half a round trip (expected transmission time).
    pub fn of_link(state: &LinkState) -> Cost {
        let rate = state.delivery_rate.unwrap_or(UNMEASURED).max(1) as f64;
        let delivered = 1.0 - state.loss.unwrap_or(0.0).clamp(0.0, 0.95);
        let transmission = CHUNK as f64 * 1e6 / rate / delivered;
        let way = state.rtt.unwrap_or_default().as_secs_f64() * 1e6 / 2.0;
        let cost = (transmission + way).clamp(1.0, f64::from(Cost::MAX_LINK.0));
        Cost(cost as u32)
    }
}

/// A measurement of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkSample {
    /// Its state. The round trip is that without a queue: what waits is not the link's cost.
    pub state: LinkState,
    /// Packets sent since the link's first start, and those of them that were sent again.
    pub sent: u64,
    /// See [`sent`](LinkSample::sent).
    pub resent: u64,
}

/// The cost of one link: what is measured, and what is announced.
#[derive(Debug)]
pub(crate) struct LinkCost {
    smoothed: Option<f64>,
    loss: f64,
    counted: (u64, u64),
    announced: Cost,
    announced_at: Time,
    // The mean of what was announced while the link was up, of measured rates.
    mean: Option<f64>,
    // Bytes per second, while the link is measured.
    rate: Option<u64>,
    // Samples in a row that differ from what is announced.
    differing: u32,
    // Samples in a row that are far from the smoothed ones.
    jumped: u32,
    failures: u32,
    failed_at: Time,
    held_until: Time,
    // The share of time up, and since when it is counted.
    share: f64,
    since: Time,
    sampled_at: Time,
    usual: Cost,
}

impl LinkCost {
    pub(crate) fn new(now: Time) -> LinkCost {
        let cost = Cost::of_link(&LinkState::default());
        LinkCost {
            smoothed: None,
            loss: 0.0,
            counted: (0, 0),
            announced: cost,
            announced_at: now,
            mean: None,
            rate: None,
            differing: 0,
            jumped: 0,
            failures: 0,
            failed_at: now,
            held_until: now,
            share: 1.0,
            since: now,
            sampled_at: now,
            usual: cost,
        }
    }

    /// The link has failed. One that fails again and again is held down for a while.
    pub(crate) fn note_failure(&mut self, now: Time) {
        self.forgive(now);
        self.failures = self.failures.saturating_add(1);
        self.failed_at = now;
        let beyond = self.failures.saturating_sub(FREE_FAILURES);
        if beyond > 0 {
            let hold = HOLD_DOWN * (1 << (beyond - 1).min(10));
            self.held_until = now + hold.min(MAX_HOLD_DOWN);
        }
    }

    fn forgive(&mut self, now: Time) {
        let forgiven = now.since(self.failed_at).as_secs() / FORGIVEN_AFTER.as_secs();
        if forgiven > 0 {
            let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
            self.failures = self.failures.saturating_sub(forgiven);
            self.failed_at = now;
        }
    }

    /// Returns until when the link is held down.
    pub(crate) fn held_until(&self) -> Time {
        self.held_until
    }

    /// Returns the rate of the newest measurement, in bytes per second.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Takes a measurement; returns true if another cost is to be announced. A link whose rate is not known counts
    /// as one of the rate `nearby`.
    pub(crate) fn note(&mut self, now: Time, sample: &LinkSample, nearby: Option<u64>) -> bool {
        let mut state = sample.state;
        let (sent, resent) = self.counted;
        self.counted = (sample.sent, sample.resent);
        let all = sample.sent.saturating_sub(sent) + sample.resent.saturating_sub(resent);
        if all > 0 {
            let lost = sample.resent.saturating_sub(resent) as f64 / all as f64;
            // Of few packets each counts less: a hundred are a sample.
            let weight = (all as f64 / 100.0).min(1.0) / f64::from(SMOOTHING);
            self.loss += (lost - self.loss) * weight;
        }
        let is_first_rate = self.rate.is_none() && state.delivery_rate.is_some();
        self.rate = state.delivery_rate;
        state.delivery_rate = state.delivery_rate.or(nearby);
        state.loss = Some(state.loss.unwrap_or(self.loss));
        let raw = f64::from(Cost::of_link(&state).0);
        let is_far = |known: f64| raw > known * JUMP || raw * JUMP < known;
        self.jumped = match self.smoothed.is_some_and(is_far) {
            true => self.jumped + 1,
            false => 0,
        };
        let has_jumped = self.jumped >= JUMP_SAMPLES;
        let smoothed = match self.smoothed {
            // What was assumed before is no sample, and a radio that has changed its code is another link.
            Some(_) if is_first_rate || has_jumped => raw,
            Some(before) => before + (raw - before) / f64::from(SMOOTHING),
            None => raw,
        };
        let is_first = self.smoothed.replace(smoothed).is_none();
        let differs = |announced: Cost| {
            let announced = f64::from(announced.0);
            (smoothed - announced).abs() > announced / f64::from(HYSTERESIS)
        };
        self.differing = match differs(self.announced) {
            true => self.differing + 1,
            false => 0,
        };
        let is_due = now.since(self.announced_at) >= COST_INTERVAL;
        let is_new = is_first && smoothed as u32 != self.announced.0;
        let is_steady = has_jumped || self.differing >= STEADY_SAMPLES;
        if is_new || (differs(self.announced) && is_steady && is_due) {
            self.announced = Cost(smoothed as u32);
            self.announced_at = now;
            self.differing = 0;
            return true;
        }
        false
    }

    /// Counts the time since the last call as up or down.
    pub(crate) fn note_time(&mut self, now: Time, is_up: bool) {
        let past = now.since(self.sampled_at).as_secs_f64();
        self.sampled_at = now;
        // At first an average of all that is known.
        let memory = now.since(self.since).min(MEMORY).as_secs_f64();
        if memory > 0.0 {
            let up = if is_up { 1.0 } else { 0.0 };
            let weight = (past / memory).min(1.0);
            self.share += (up - self.share) * weight;
            if is_up && self.rate.is_some() {
                let announced = f64::from(self.announced.0);
                let mean = self.mean.unwrap_or(announced);
                self.mean = Some(mean + (announced - mean) * weight);
            }
        }
    }

    /// Returns false for a link that has been down for hours.
    pub(crate) fn is_remembered(&self, now: Time) -> bool {
        now.since(self.failed_at) < MEMORY || self.share >= LEAST_SHARE
    }

    /// Returns the cost to announce.
    pub(crate) fn announced(&self) -> Cost {
        self.announced
    }

    /// Returns the usual cost to announce: the mean time of a chunk, divided by the share of time that
    /// the link is up; never if it is hardly ever up.
    pub(crate) fn usual(&mut self) -> Cost {
        if self.share < LEAST_SHARE {
            return Cost::NEVER;
        }
        let mean = self.mean.unwrap_or(f64::from(self.announced.0));
        let usual = mean / self.share;
        let announced = f64::from(self.usual.0);
        if (usual - announced).abs() > announced / f64::from(HYSTERESIS) {
            self.usual = Cost(usual.clamp(1.0, f64::from(Cost::MAX_LINK.0)) as u32);
        }
        self.usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: u64, rtt_ms: u64) -> LinkSample {
        LinkSample {
            state: LinkState {
                delivery_rate: Some(rate),
                rtt: Some(Duration::from_millis(rtt_ms)),
                ..LinkState::default()
            },
            ..LinkSample::default()
        }
    }

    #[test]
    fn a_cost_is_the_time_of_a_chunk() {
        // 65,536 bytes at 1 MB/s and half of 20 ms.
        assert_eq!(Cost::of_link(&sample(1_000_000, 20).state), Cost(75_536));
        let lossy = LinkState {
            loss: Some(0.5),
            ..sample(1_000_000, 20).state
        };
        assert_eq!(Cost::of_link(&lossy), Cost(141_072));
        assert_eq!(Cost::of_link(&sample(1, 0).state), Cost::MAX_LINK);
    }

    #[test]
    fn a_cost_that_wavers_is_announced_once() {
        let mut now = Time::from_secs(1);
        let mut link = LinkCost::new(now);
        assert!(link.note(now, &sample(1_000_000, 20), None));
        let mut announced = 0;
        for step in 0..600 {
            now += Duration::from_millis(500);
            let rate = if step % 2 == 0 { 700_000 } else { 1_400_000 };
            announced += u32::from(link.note(now, &sample(rate, 20), None));
        }
        assert_eq!(announced, 0);
        for _ in 0..100 {
            now += Duration::from_millis(500);
            announced += u32::from(link.note(now, &sample(100_000, 20), None));
        }
        assert!((1..=4).contains(&announced), "{announced}");
        assert!(link.announced() > Cost(500_000));
    }

    #[test]
    fn an_unmeasured_link_counts_as_those_nearby_until_it_is_measured() {
        let mut now = Time::from_secs(1);
        let mut link = LinkCost::new(now);
        let unmeasured = LinkSample::default();
        link.note(now, &unmeasured, Some(500_000));
        assert_eq!(link.announced(), Cost(131_072));
        for _ in 0..20 {
            now += Duration::from_millis(500);
            link.note(now, &sample(100_000, 0), Some(500_000));
        }
        // The first rate replaces what was assumed: nothing of it is in the mean.
        assert_eq!(link.announced(), Cost(655_360));
        assert_eq!(link.rate(), Some(100_000));
    }

    #[test]
    fn a_link_that_flaps_is_held_down_ever_longer_and_then_forgiven() {
        let mut now = Time::from_secs(100);
        let mut link = LinkCost::new(now);
        let mut holds = Vec::new();
        for _ in 0..6 {
            now += Duration::from_secs(1);
            link.note_failure(now);
            holds.push(link.held_until().since(now).as_millis());
        }
        assert_eq!(holds, [0, 0, 500, 1000, 2000, 4000]);
        now += Duration::from_secs(200);
        link.note_failure(now);
        assert!(link.held_until() <= now);
    }

    #[test]
    fn the_usual_cost_follows_the_share_of_time_up() {
        let mut now = Time::from_secs(0);
        let mut link = LinkCost::new(now);
        link.note(now, &sample(1_000_000, 0), None);
        let cost = link.announced();
        for step in 0..4000 {
            now += Duration::from_secs(1);
            link.note_time(now, step % 10 < 5);
        }
        assert!((0.45..0.55).contains(&link.share), "{}", link.share);
        let usual = link.usual();
        assert!(usual > Cost(cost.0 * 3 / 2) && usual < Cost(cost.0 * 5 / 2));
    }
}
