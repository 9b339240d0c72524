//! A law by a model of the path: its delivery rate and its shortest round trip, after BBR's idea
//! (Cardwell et al. 2017) with the window update of FAST (Wei, Jin, Low, Hegde 2006) and the
//! coupling of weighted Vegas ([wVegas]). It is what [PTP §8] leaves as future work.
//!
//! All paths of a consumer aim at one queueing delay, `backlog` over the rate of all together. A
//! path that shares its bottleneck with others of the same consumer sees their queue as its own,
//! so together they keep no more there than one path would; one that crosses two
//! bottlenecks sees the sum of their queues and yields, down to less than one Interest in a round trip.
//! Losses change nothing unless they are more than the path loses at random. Every
//! [`EPOCH`] all paths of the consumer send less for two round trips, so that queues drain, the
//! shortest round trip is seen again, and so is what the path loses without a queue.

use core::time::Duration;

use whimbrel_core::Time;

use super::{Congestion, CongestionControl, Delivered, LawPhase, Siblings, WindowOptions};

/// Interval of drains, of which the last two tell the shortest round trip.
const EPOCH: Duration = Duration::from_secs(10);
/// Share of the path's capacity that a drain leaves in flight.
const DRAINED: f64 = 0.75;
/// Part of the queueing delay that is aimed at whatever the rate: below it, delay is noise.
const LEAST_DELAY: f64 = 1e-3;
/// Minimum of the window: an Interest each sixteen round trips still sees the path's delay.
const LEAST: f64 = 1.0 / 16.0;
/// Share of the distance to the aim that a round takes.
const GAIN: f64 = 0.5;
/// Rounds of start-up in which the delivery rate grows by less than a quarter: the path is full
/// (BBR's start-up).
const PLATEAU: u32 = 3;
/// Growth in start-up for each Data while other paths are in use: several that double at once would fill the
/// queues that they share.
const BESIDE_OTHERS: f64 = 0.5;
/// Losses beyond those at random that show congestion, as a share.
const EXCESS: f64 = 0.1;
/// Interests over which losses are averaged.
const LOSS_MEMORY: f64 = 64.0;

/// Options of [`super::WindowKind::Model`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelOptions {
    /// Segments that all paths of the consumer together keep in queues.
    pub backlog: f64,
    /// When drains begin, within their interval of 10 s: the same for all paths of a consumer, another
    /// one for each consumer.
    pub drains_at: Duration,
}

impl Default for ModelOptions {
    /// Enough for a path over several full links, of which each wants a segment or two; few beside the
    /// 100 and more that a queue holds.
    fn default() -> ModelOptions {
        ModelOptions {
            backlog: 16.0,
            drains_at: Duration::ZERO,
        }
    }
}

/// One round trip of the path, from a Data to that of an Interest sent after it.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// The segment whose Data ends it.
    ends_at: u64,
    began: Option<Time>,
    delivered: f64,
    /// Counter of losses when it began.
    lost: u64,
    shortest: Option<Duration>,
    /// The window was in use.
    filled: bool,
}

/// Start-up: the window doubles in each round until the path is full.
#[derive(Clone, Copy, Debug)]
struct StartUp {
    /// Highest delivery rate, segments per second.
    best: f64,
    /// Rounds since it has grown by a quarter.
    plateau: u32,
}

impl StartUp {
    const BEGIN: StartUp = StartUp {
        best: 0.0,
        plateau: 0,
    };
}

/// Returns true if the consumer has other paths that carry something.
fn has_others(siblings: &Siblings<'_>) -> bool {
    let mut paths = siblings.paths.iter();
    paths.any(|path| path.up && path.id != siblings.own && path.in_flight > 0)
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    options: ModelOptions,
    initial: f64,
    size: f64,
    start_up: Option<StartUp>,
    /// Shortest round trip of this epoch and of the last.
    shortest: [Option<Duration>; 2],
    epoch: Option<u64>,
    /// A drain: when it ends, and the window until then.
    drain: Option<(Time, f64)>,
    round: Round,
    /// Smoothed share of Interests lost, and what of it is lost without a queue.
    loss: f64,
    random_loss: f64,
    /// Data since the last timeout.
    since_timeout: f64,
    /// Segments per second in the latest round.
    rate: f64,
}

impl Model {
    pub(super) fn new(window: WindowOptions, options: ModelOptions) -> Model {
        Model {
            options,
            initial: window.initial.max(1.0),
            size: window.initial.max(1.0),
            start_up: Some(StartUp::BEGIN),
            shortest: [None; 2],
            epoch: None,
            drain: None,
            round: Round::default(),
            loss: 0.0,
            random_loss: 0.0,
            since_timeout: f64::INFINITY,
            rate: 0.0,
        }
    }

    /// Shortest round trip known, in seconds.
    fn base(&self) -> Option<f64> {
        let base = self.shortest.iter().flatten().min()?;
        Some(base.as_secs_f64().max(1e-6))
    }

    /// Returns the queueing delay that all paths of the consumer aim at, in seconds.
    fn aim(&self, siblings: &Siblings<'_>) -> f64 {
        let paths = siblings.paths.iter().filter(|path| path.up);
        let rates = paths.filter_map(|path| {
            let rtt = path.smoothed.filter(|rtt| !rtt.is_zero())?;
            Some(path.window / rtt.as_secs_f64())
        });
        // The measured rate of a path alone leaves out what is lost.
        let all = rates.sum::<f64>().max(self.rate);
        match all > 0.0 {
            true => LEAST_DELAY + self.options.backlog / all,
            false => f64::INFINITY,
        }
    }

    fn sees(&mut self, rtt: Duration) {
        let shortest = |known: Option<Duration>| Some(known.map_or(rtt, |known| known.min(rtt)));
        self.shortest[0] = shortest(self.shortest[0]);
        self.round.shortest = shortest(self.round.shortest);
    }

    /// Begins a drain when an epoch ends, and ends it.
    fn pass_epochs(&mut self, delivered: &Delivered) {
        let now = delivered.now;
        let at = now.since(Time::ZERO) + EPOCH - self.options.drains_at.min(EPOCH);
        let epoch = (at.as_nanos() / EPOCH.as_nanos()) as u64;
        if self
            .epoch
            .replace(epoch)
            .is_some_and(|known| known != epoch)
            && self.start_up.is_none()
        {
            self.shortest = [None, self.base().map(Duration::from_secs_f64)];
            let rtt = delivered.smoothed.unwrap_or_default();
            let base = self.base().unwrap_or(0.0);
            let unqueued = self.size * (base / rtt.as_secs_f64().max(1e-6)).min(1.0);
            self.drain = Some((now + rtt * 2, (DRAINED * unqueued).max(LEAST)));
        }
        if self.drain.is_some_and(|(until, _)| until <= now) {
            self.drain = None;
            self.round.began = None;
        }
    }

    fn begin_round(&mut self, delivered: &Delivered) {
        self.round = Round {
            ends_at: delivered.newest.max(delivered.segment.saturating_add(1)),
            began: Some(delivered.now),
            lost: delivered.lost,
            ..Round::default()
        };
    }

    fn end_round(&mut self, delivered: &Delivered, siblings: &Siblings<'_>) {
        let round = self.round;
        let lasted = round
            .began
            .map_or(0.0, |began| delivered.now.since(began).as_secs_f64());
        if lasted > 0.0 {
            self.rate = round.delivered / lasted;
        }
        let lost = delivered.lost.saturating_sub(round.lost) as f64;
        let sent = lost + round.delivered;
        let share = if sent > 0.0 { lost / sent } else { 0.0 };
        let weight = (sent / LOSS_MEMORY).min(1.0);
        self.loss += (share - self.loss) * weight;
        if self.drain.is_some() {
            self.random_loss += (self.loss - self.random_loss) * 0.5;
            return;
        }
        let (Some(base), Some(rtt)) = (self.base(), round.shortest) else {
            return;
        };
        let rtt = rtt.as_secs_f64().max(base);
        let queued = self.size * (1.0 - base / rtt);
        let aim = self.aim(siblings);
        let wanted = aim * self.size / rtt;
        if let Some(start_up) = &mut self.start_up {
            if self.rate > start_up.best * 1.25 {
                (start_up.best, start_up.plateau) = (self.rate, 0);
            } else if round.filled {
                start_up.plateau += 1;
            }
            // A queue alone may be jitter: while the rate grows with the window, the path is not full.
            let has_queue = queued > wanted.max(4.0) && start_up.plateau > 0;
            let is_full = has_queue || start_up.plateau >= PLATEAU;
            if is_full {
                self.start_up = None;
                self.size = self.size - queued + wanted.min(queued);
            }
        } else if self.loss > self.random_loss + EXCESS {
            // More is in flight than the path has room for.
            self.size *= 1.0 - (self.loss - self.random_loss).min(0.5);
            self.loss = self.random_loss + EXCESS / 2.0;
        } else if queued > wanted {
            self.size -= (GAIN * (queued - wanted)).min(self.size / 4.0);
        } else if round.filled {
            self.size += GAIN * (wanted - queued).min(self.size.max(1.0));
        }
        self.size = self.size.clamp(LEAST, delivered.limit.max(1.0));
    }
}

impl CongestionControl for Model {
    fn window(&self) -> f64 {
        self.drain
            .map_or(self.size, |(_, window)| window.min(self.size))
    }

    fn phase(&self) -> LawPhase {
        match (self.start_up, self.drain) {
            (Some(_), _) => LawPhase::SlowStart,
            (None, Some(_)) => LawPhase::Recovery,
            (None, None) => LawPhase::Avoidance,
        }
    }

    fn threshold(&self) -> f64 {
        match self.start_up {
            Some(_) => f64::INFINITY,
            None => self.size,
        }
    }

    fn counts_each_loss(&self) -> bool {
        true
    }

    fn on_delivered(&mut self, delivered: &Delivered, siblings: &Siblings<'_>) {
        self.since_timeout += 1.0;
        self.pass_epochs(delivered);
        // Data of caches say nothing about the path's delay.
        if let Some(rtt) = delivered.rtt.filter(|_| !delivered.intermediate) {
            self.sees(rtt);
        }
        self.round.delivered += 1.0;
        self.round.filled |= delivered.in_flight as f64 + 1.0 >= self.size;
        if self.start_up.is_some() && delivered.may_grow(self.size) {
            let growth = if has_others(siblings) {
                BESIDE_OTHERS
            } else {
                1.0
            };
            self.size = (self.size + growth).min(delivered.limit.max(1.0));
        }
        if self.round.began.is_none() {
            self.begin_round(delivered);
        } else if delivered.segment >= self.round.ends_at {
            self.end_round(delivered, siblings);
            self.begin_round(delivered);
        }
    }

    fn on_congestion(&mut self, _now: Time, sign: Congestion, _siblings: &Siblings<'_>) {
        match sign {
            // Counted, and weighed at the end of the round.
            Congestion::Loss => {}
            Congestion::Mark => {
                self.start_up = None;
                self.size = (self.size * 0.85).max(LEAST);
            }
            // One of many Interests is lost like any other; if nothing comes, less is sent.
            Congestion::Timeout if self.since_timeout < self.size / 2.0 => {
                self.size = (self.size / 2.0).max(1.0);
            }
            Congestion::Timeout => {}
        }
        if sign == Congestion::Timeout {
            self.since_timeout = 0.0;
        }
    }

    fn snapshot(&self) -> Option<Box<dyn CongestionControl>> {
        Some(Box::new(self.clone()))
    }

    fn restart(&mut self) {
        *self = Model::new(
            WindowOptions {
                initial: self.initial,
                ..WindowOptions::default()
            },
            self.options,
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::path::{PathId, PathState};

    const MS: Duration = Duration::from_millis(1);

    fn law() -> Model {
        Model::new(WindowOptions::default(), ModelOptions::default())
    }

    fn delivered(at: u64, rtt: u64, segment: u64, lost: u64) -> Delivered {
        Delivered {
            now: Time::from_millis(at),
            bytes: 1000,
            rtt: Some(MS * rtt as u32),
            smoothed: Some(MS * rtt as u32),
            segment,
            newest: segment + 10,
            in_flight: usize::MAX / 4,
            marked: false,
            route: None,
            intermediate: false,
            lost,
            limit: 1000.0,
        }
    }

    #[test]
    fn losses_alone_change_nothing_and_silence_halves_the_window() {
        let mut law = law();
        law.size = 20.0;
        for _ in 0..30 {
            law.on_congestion(Time::ZERO, Congestion::Loss, &Siblings::NONE);
        }
        law.on_congestion(Time::ZERO, Congestion::Timeout, &Siblings::NONE);
        assert_eq!(law.window(), 20.0, "one timeout among Data");
        law.on_congestion(Time::ZERO, Congestion::Timeout, &Siblings::NONE);
        assert_eq!(law.window(), 10.0);
        (0..5).for_each(|_| law.on_congestion(Time::ZERO, Congestion::Timeout, &Siblings::NONE));
        assert_eq!(law.window(), 1.0);
    }

    #[test]
    fn a_drain_leaves_three_quarters_of_what_is_not_queued_for_two_round_trips() {
        let mut law = law();
        (law.start_up, law.size) = (None, 40.0);
        law.on_delivered(&delivered(9_000, 50, 1, 0), &Siblings::NONE);
        // Half of what is in flight is queued.
        law.on_delivered(&delivered(9_900, 100, 2, 0), &Siblings::NONE);
        let before = law.window();
        law.on_delivered(&delivered(10_001, 100, 3, 0), &Siblings::NONE);
        assert_eq!(law.window(), before / 2.0 * DRAINED);
        law.on_delivered(&delivered(10_150, 50, 4, 0), &Siblings::NONE);
        assert!(law.window() < before);
        law.on_delivered(&delivered(10_202, 50, 5, 0), &Siblings::NONE);
        assert_eq!(law.window(), before);
    }

    proptest! {
        #[test]
        fn the_window_has_bounds_whatever_happens(
            acts in prop::collection::vec((0u8..8, 0u64..3000, 0u64..400), 0..300),
        ) {
            let mut law = law();
            let (mut now, mut lost) = (0, 0);
            for (act, rtt, other) in acts {
                now += rtt;
                let state = |id, window, smoothed| PathState {
                    id: PathId(id),
                    up: true,
                    window,
                    threshold: 0.0,
                    phase: LawPhase::Avoidance,
                    in_flight: 0,
                    smoothed: Some(smoothed),
                    least_rtt: None,
                    timeout: MS,
                };
                let paths = [
                    state(0, law.window(), MS * rtt as u32),
                    state(1, other as f64, MS * (3000 - rtt) as u32),
                ];
                let siblings = Siblings { own: PathId(0), paths: &paths };
                match act {
                    0 => law.on_congestion(Time::ZERO, Congestion::Loss, &siblings),
                    1 => law.on_congestion(Time::ZERO, Congestion::Timeout, &siblings),
                    2 => law.on_congestion(Time::ZERO, Congestion::Mark, &siblings),
                    3 if other > 390 => law.restart(),
                    3 => lost += other,
                    _ => law.on_delivered(&delivered(now, rtt, other, lost), &siblings),
                }
                prop_assert!((LEAST..=1000.0).contains(&law.window()), "{}", law.window());
            }
        }
    }
}
