//! Weighted Vegas: windows by delay, coupled by the share of each path in the rate ([wVegas]).
//!
//! Each path keeps about `backlog` times its share of the total rate in queues, once in a round trip
//! it takes one segment more or less. Paths with longer queues lose, so traffic moves to the less
//! congested ones, without losses.

use core::time::Duration;

use whimbrel_core::Time;

use super::slow_start::Ramp;
use super::{Congestion, CongestionControl, Delivered, LawPhase, Siblings, WindowOptions};

/// Segments that all paths together keep in queues.
const BACKLOG: f64 = 10.0;
/// Least of a path.
const LEAST_BACKLOG: f64 = 2.0;
/// Queued segments that end slow start.
const SLOW_START_BACKLOG: f64 = 1.0;

#[derive(Clone, Debug)]
pub(super) struct WeightedVegas {
    ramp: Ramp,
    /// Shortest round trip: the path without queues.
    base: Option<Duration>,
    /// Shortest of this round.
    shortest: Option<Duration>,
    /// The segment that ends the round.
    round_ends_at: u64,
    /// Every other round of slow start grows, so that delays show.
    grows: bool,
}

impl WeightedVegas {
    pub(super) fn new(window: WindowOptions) -> WeightedVegas {
        let window = WindowOptions {
            delay_exit: false,
            ..window
        };
        WeightedVegas {
            ramp: Ramp::new(window),
            base: None,
            shortest: None,
            round_ends_at: 0,
            grows: true,
        }
    }

    /// Returns the share of this path in the rate of all: window over round trip.
    fn share(&self, siblings: &Siblings<'_>) -> f64 {
        let rate = |window: f64, rtt: Duration| window / rtt.as_secs_f64().max(1e-6);
        let (mut all, mut own) = (0.0, 0.0);
        for path in siblings.paths.iter().filter(|path| path.up) {
            let Some(rtt) = path.smoothed else { continue };
            all += rate(path.window, rtt);
            if path.id == siblings.own {
                own = rate(path.window, rtt);
            }
        }
        if all > 0.0 && own > 0.0 {
            own / all
        } else {
            1.0
        }
    }

    fn end_round(&mut self, limit: f64, may_grow: bool, siblings: &Siblings<'_>) {
        let (Some(base), Some(rtt)) = (self.base, self.shortest.take()) else {
            return;
        };
        let size = self.ramp.size();
        let queued = size * (1.0 - base.as_secs_f64() / rtt.as_secs_f64().max(1e-9));
        if self.ramp.phase() == LawPhase::SlowStart {
            self.grows = !self.grows;
            if queued > SLOW_START_BACKLOG {
                let fits = (size - queued + 1.0).min(size).max(Ramp::MIN_THRESHOLD);
                self.ramp.fall(fits, fits);
            }
            return;
        }
        let target = (BACKLOG * self.share(siblings)).max(LEAST_BACKLOG);
        if queued > target {
            let less = (size - 1.0).max(Ramp::MIN_THRESHOLD);
            self.ramp.fall(less, less);
        } else if queued < target && may_grow {
            self.ramp.grow(1.0, limit);
        }
    }
}

impl CongestionControl for WeightedVegas {
    fn window(&self) -> f64 {
        self.ramp.size()
    }

    fn phase(&self) -> LawPhase {
        self.ramp.phase()
    }

    fn threshold(&self) -> f64 {
        self.ramp.threshold()
    }

    fn on_delivered(&mut self, delivered: &Delivered, siblings: &Siblings<'_>) {
        // Data of caches say nothing about the path's delay.
        if let Some(rtt) = delivered.rtt.filter(|_| !delivered.intermediate) {
            self.base = Some(self.base.map_or(rtt, |base| base.min(rtt)));
            self.shortest = Some(self.shortest.map_or(rtt, |shortest| shortest.min(rtt)));
        }
        let may_grow = delivered.may_grow(self.ramp.size());
        if self.ramp.phase() == LawPhase::SlowStart && self.grows && may_grow {
            self.ramp.grow(1.0, delivered.limit);
        }
        if delivered.segment >= self.round_ends_at {
            self.round_ends_at = delivered.newest.max(delivered.segment.saturating_add(1));
            self.end_round(delivered.limit, may_grow, siblings);
        }
    }

    fn on_congestion(&mut self, _now: Time, sign: Congestion, _siblings: &Siblings<'_>) {
        let threshold = (self.ramp.size() / 2.0).max(Ramp::MIN_THRESHOLD);
        let size = match sign {
            Congestion::Timeout => 1.0,
            Congestion::Loss | Congestion::Mark => threshold,
        };
        self.ramp.fall(size, threshold);
        self.grows = true;
    }

    fn snapshot(&self) -> Option<Box<dyn CongestionControl>> {
        Some(Box::new(self.clone()))
    }

    fn restart(&mut self) {
        (self.base, self.shortest, self.grows) = (None, None, true);
        self.ramp.restart();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::path::{PathId, PathState};

    const MS: Duration = Duration::from_millis(1);

    fn law(window: f64, threshold: f64) -> WeightedVegas {
        WeightedVegas::new(WindowOptions {
            initial: window,
            threshold,
            ..WindowOptions::default()
        })
    }

    /// A path whose capacity is `fits` segments per 100 ms: more of them queue.
    fn round(law: &mut WeightedVegas, first: u64, fits: f64, siblings: &Siblings<'_>) -> u64 {
        let window = law.window() as u64;
        let rtt = MS.mul_f64(100.0 * (law.window() / fits).max(1.0));
        for segment in first..first + window {
            law.on_delivered(
                &Delivered {
                    now: Time::ZERO,
                    bytes: 1000,
                    rtt: Some(rtt),
                    smoothed: Some(rtt),
                    segment,
                    newest: segment + window,
                    in_flight: usize::MAX,
                    marked: false,
                    route: None,
                    intermediate: false,
                    lost: 0,
                    limit: 1000.0,
                },
                siblings,
            );
        }
        first + window
    }

    #[test]
    fn a_path_alone_settles_with_ten_segments_in_queues() {
        let mut law = law(2.0, f64::INFINITY);
        let mut next = 0;
        for _ in 0..200 {
            next = round(&mut law, next, 50.0, &Siblings::NONE);
        }
        assert!((57.0..=63.0).contains(&law.window()), "{}", law.window());
    }

    #[test]
    fn of_two_paths_each_keeps_its_share_of_the_backlog() {
        let mut laws = [law(2.0, f64::INFINITY), law(2.0, f64::INFINITY)];
        let fits = [30.0, 90.0];
        let mut next = [0, 0];
        for _ in 0..400 {
            for own in 0..2 {
                let state = |id: usize| {
                    let window = laws[id].window();
                    PathState {
                        id: PathId(id as u16),
                        up: true,
                        window,
                        threshold: 0.0,
                        phase: LawPhase::Avoidance,
                        in_flight: 0,
                        smoothed: Some(MS.mul_f64(100.0 * (window / fits[id]).max(1.0))),
                        least_rtt: None,
                        timeout: MS,
                    }
                };
                let paths = [state(0), state(1)];
                let siblings = Siblings {
                    own: PathId(own as u16),
                    paths: &paths,
                };
                next[own] = round(&mut laws[own], next[own], fits[own], &siblings);
            }
        }
        let queued = [0, 1].map(|id| laws[id].window() - fits[id]);
        assert!((1.0..=4.5).contains(&queued[0]), "{queued:?}");
        assert!((6.0..=10.0).contains(&queued[1]), "{queued:?}");
    }

    proptest! {
        #[test]
        fn the_window_has_bounds_whatever_happens(
            acts in prop::collection::vec((0u8..6, 0u64..3000, any::<u16>()), 0..300),
        ) {
            let mut law = law(2.0, f64::INFINITY);
            for (act, rtt, segment) in acts {
                match act {
                    0 => law.on_congestion(Time::ZERO, Congestion::Loss, &Siblings::NONE),
                    1 => law.on_congestion(Time::ZERO, Congestion::Timeout, &Siblings::NONE),
                    2 => law.restart(),
                    _ => law.on_delivered(
                        &Delivered {
                            now: Time::ZERO,
                            bytes: 1000,
                            rtt: Some(MS * rtt as u32),
                            smoothed: None,
                            segment: u64::from(segment),
                            newest: u64::from(segment) + 10,
                            in_flight: usize::MAX,
                            marked: act == 3,
                            route: None,
                            intermediate: act == 4,
                            lost: 0,
                            limit: 1000.0,
                        },
                        &Siblings::NONE,
                    ),
                }
                prop_assert!((1.0..=1000.0).contains(&law.window()), "{}", law.window());
            }
        }
    }
}
