//! MPCCP: the window of one of a consumer's paths, coupled to those of the others ([PTP §5]).
//!
//! Slow start, congestion avoidance and fast recovery are the states of [PTP figure 11]. A loss found by
//! order shrinks the window and begins recovery; another loss within the next window of Data sets the
//! window to the size that recovery began with, a later one shrinks it again; a window of Data
//! without a loss ends recovery. A timeout halves the threshold and begins slow start from one segment. What
//! a Data adds to the window beyond slow start is the [`Coupling`]'s.

use core::time::Duration;

use whimbrel_core::Time;

use super::slow_start::Ramp;
use super::{Congestion, CongestionControl, Delivered, LawPhase, Siblings, WindowOptions};
use crate::path::PathState;

/// Bound of the compensation of round trips.
const MAX_FACTOR: f64 = 16.0;

/// How the windows of a consumer's paths are coupled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coupling {
    /// Linked Increases: together as aggressive as a single flow on the best path (RFC 6356,
    /// [PTP §5.D.5]).
    Linked,
    /// Equally weighted: each path a share of one over the root of their number of a single
    /// flow's increase.
    Ewtcp,
    /// Fully coupled: all traffic goes to the least congested paths; a loss takes away a share of all
    /// windows together.
    Coupled,
    /// None: each path is a flow of its own.
    Uncoupled,
}

/// Options of [`super::WindowKind::Mpccp`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MpccpOptions {
    /// The coupling.
    pub coupling: Coupling,
    /// Factor of the window at a loss, the beta of [PTP eq. 4]; between 0 and 1.
    pub decrease: f64,
    /// The reference of round-trip compensation ([PTP eq. 2]).
    pub reference: Duration,
    /// The growth of a path with a round trip of r is multiplied by (r / reference) to this power, at
    /// least 1 and at most 16. 0: no compensation; 1: all windows grow alike in a second; 2: all
    /// rates do (TCP Hybla's).
    pub exponent: f64,
}

impl Default for MpccpOptions {
    /// Linked Increases with the paper's beta; the reference is Hybla's, whose term the paper uses.
    fn default() -> MpccpOptions {
        MpccpOptions {
            coupling: Coupling::Linked,
            decrease: 0.75,
            reference: Duration::from_millis(25),
            exponent: 2.0,
        }
    }
}

/// Fast recovery.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// The window that it began with.
    backup: f64,
    /// Data since it began.
    received: f64,
    /// Data since its last loss.
    unbroken: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Mpccp {
    options: MpccpOptions,
    ramp: Ramp,
    recovery: Option<Recovery>,
}

impl Mpccp {
    pub(super) fn new(window: WindowOptions, options: MpccpOptions) -> Mpccp {
        Mpccp {
            options,
            ramp: Ramp::new(window),
            recovery: None,
        }
    }

    /// What a Data adds in congestion avoidance, in segments.
    fn growth(&self, smoothed: Option<Duration>, siblings: &Siblings<'_>) -> f64 {
        let window = self.ramp.size();
        let alone = 1.0 / window;
        let coupled = match self.options.coupling {
            Coupling::Uncoupled => alone,
            Coupling::Linked => alpha(siblings)
                .zip(total(siblings))
                .map_or(alone, |(alpha, total)| (alpha / total).min(alone)),
            Coupling::Ewtcp => alone / (in_use(siblings).count().max(1) as f64).sqrt(),
            Coupling::Coupled => total(siblings).map_or(alone, |total| 1.0 / total),
        };
        (coupled * self.compensation(smoothed)).min(1.0)
    }

    fn compensation(&self, smoothed: Option<Duration>) -> f64 {
        let reference = self.options.reference.as_secs_f64();
        let Some(smoothed) = smoothed.filter(|_| reference > 0.0) else {
            return 1.0;
        };
        let ratio = smoothed.as_secs_f64() / reference;
        ratio.powf(self.options.exponent).clamp(1.0, MAX_FACTOR)
    }

    fn shrink(&mut self, siblings: &Siblings<'_>) {
        let (window, beta) = (self.ramp.size(), self.options.decrease);
        let least = match self.options.coupling {
            Coupling::Coupled => window - (1.0 - beta) * total(siblings).unwrap_or(window),
            _ => window * beta,
        };
        let window = least.max(1.0);
        self.ramp.fall(window, window);
        self.recovery = Some(Recovery {
            backup: window,
            received: 0.0,
            unbroken: 0.0,
        });
    }
}

/// Paths that are up, all of which share the consumer's windows.
fn in_use<'a>(siblings: &Siblings<'a>) -> impl Iterator<Item = &'a PathState> + use<'a> {
    siblings.paths.iter().filter(|path| path.up)
}

/// Returns the sum of all windows; `None` of a single path.
fn total(siblings: &Siblings<'_>) -> Option<f64> {
    let sum: f64 = in_use(siblings).map(|path| path.window).sum();
    (sum >= 1.0).then_some(sum)
}

/// [PTP eq. 3], as in RFC 6356: the sum of windows times the largest window / rtt^2, over the squared
/// sum of window / rtt. Paths without a round trip are left out. `None` if there is none with one.
fn alpha(siblings: &Siblings<'_>) -> Option<f64> {
    let (mut sum, mut best, mut rates) = (0.0, 0.0f64, 0.0);
    for path in in_use(siblings) {
        let Some(rtt) = path.smoothed.filter(|rtt| !rtt.is_zero()) else {
            continue;
        };
        let rtt = rtt.as_secs_f64();
        sum += path.window;
        best = best.max(path.window / (rtt * rtt));
        rates += path.window / rtt;
    }
    (rates > 0.0).then(|| sum * best / (rates * rates))
}

impl CongestionControl for Mpccp {
    fn window(&self) -> f64 {
        self.ramp.size()
    }

    fn phase(&self) -> LawPhase {
        if self.recovery.is_some() {
            LawPhase::Recovery
        } else {
            self.ramp.phase()
        }
    }

    fn threshold(&self) -> f64 {
        self.ramp.threshold()
    }

    fn counts_each_loss(&self) -> bool {
        true
    }

    fn on_delivered(&mut self, delivered: &Delivered, siblings: &Siblings<'_>) {
        if !delivered.intermediate {
            self.ramp.sample(delivered);
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.received += 1.0;
            recovery.unbroken += 1.0;
            if recovery.unbroken >= recovery.backup {
                self.recovery = None;
            }
        }
        if !delivered.may_grow(self.ramp.size()) {
            return;
        }
        // "Increased multiplicatively if a Data packet is returned from a producer", additively if
        // from an intermediate node, which may have more bandwidth than what comes next.
        let growth = match self.ramp.phase() {
            LawPhase::SlowStart if !delivered.intermediate => 1.0 / self.ramp.divisor(),
            _ => self.growth(delivered.smoothed, siblings),
        };
        self.ramp.grow(growth, delivered.limit);
    }

    fn on_congestion(&mut self, _now: Time, sign: Congestion, siblings: &Siblings<'_>) {
        if sign == Congestion::Timeout {
            let size = self.ramp.size();
            let threshold = self.ramp.threshold().min(size) / 2.0;
            self.ramp.fall(1.0, threshold.max(Ramp::MIN_THRESHOLD));
            self.recovery = None;
            return;
        }
        // "If any loss happens after the in-use path has received cwnd_bk Data packets, the congestion
        // window is further decreased": without this, a window that never gets through without a loss
        // would stay above what the path holds.
        match &mut self.recovery {
            Some(recovery) if recovery.received < recovery.backup => {
                recovery.unbroken = 0.0;
                let backup = recovery.backup;
                self.ramp.fall(backup, backup);
            }
            _ => self.shrink(siblings),
        }
    }

    fn snapshot(&self) -> Option<Box<dyn CongestionControl>> {
        Some(Box::new(self.clone()))
    }

    fn restart(&mut self) {
        self.recovery = None;
        self.ramp.restart();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::path::PathId;

    const MS: Duration = Duration::from_millis(1);

    fn law(coupling: Coupling, window: f64) -> Mpccp {
        let window = WindowOptions {
            initial: window,
            threshold: window,
            delay_exit: false,
            ..WindowOptions::default()
        };
        let options = MpccpOptions {
            coupling,
            exponent: 0.0,
            ..MpccpOptions::default()
        };
        Mpccp::new(window, options)
    }

    fn delivered(intermediate: bool) -> Delivered {
        Delivered {
            now: Time::ZERO,
            bytes: 1000,
            rtt: None,
            smoothed: Some(50 * MS),
            segment: 0,
            newest: 0,
            in_flight: usize::MAX,
            marked: false,
            route: None,
            intermediate,
            lost: 0,
            limit: 1000.0,
        }
    }

    /// Paths with these windows and round trips in ms; the law's is the first.
    fn paths(states: &[(f64, u64)]) -> Vec<PathState> {
        let state = |(id, (window, rtt)): (u16, &(f64, u64))| PathState {
            id: PathId(id),
            up: true,
            window: *window,
            threshold: 0.0,
            phase: LawPhase::Avoidance,
            in_flight: 0,
            smoothed: Some(MS * *rtt as u32),
            least_rtt: None,
            timeout: MS,
        };
        (0..).zip(states).map(state).collect()
    }

    /// Returns the growth of the first of these paths by one Data.
    fn growth(coupling: Coupling, states: &[(f64, u64)]) -> f64 {
        let mut law = law(coupling, states[0].0);
        let paths = paths(states);
        let siblings = Siblings {
            own: PathId(0),
            paths: &paths,
        };
        law.on_delivered(&delivered(false), &siblings);
        law.window() - states[0].0
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn the_increases_are_those_of_their_formulas() {
        let states = [(10.0, 100), (20.0, 50)];
        // alpha = 30 * max(10 / 0.01, 20 / 0.0025) / (10 / 0.1 + 20 / 0.05)^2 = 30 * 8000 / 250000
        assert!(close(growth(Coupling::Linked, &states), 0.96 / 30.0));
        assert!(close(growth(Coupling::Ewtcp, &states), 0.1 / 2f64.sqrt()));
        assert!(close(growth(Coupling::Coupled, &states), 1.0 / 30.0));
        assert!(close(growth(Coupling::Uncoupled, &states), 0.1));
        // Alone they are all TCP.
        for coupling in [Coupling::Linked, Coupling::Ewtcp, Coupling::Coupled] {
            assert!(close(growth(coupling, &[(10.0, 80)]), 0.1), "{coupling:?}");
        }
        // No more than a single flow: the cap of RFC 6356.
        assert!(close(
            growth(Coupling::Linked, &[(40.0, 100), (1.0, 1)]),
            1.0 / 40.0
        ));
    }

    #[test]
    fn a_longer_round_trip_is_compensated_within_bounds() {
        let grown = |exponent, rtt: u32| {
            let mut law = law(Coupling::Uncoupled, 100.0);
            law.options.exponent = exponent;
            let delivered = Delivered {
                smoothed: Some(MS * rtt),
                ..delivered(false)
            };
            law.on_delivered(&delivered, &Siblings::NONE);
            law.window() - 100.0
        };
        assert!(close(grown(0.0, 50), 0.01));
        assert!(close(grown(1.0, 50), 0.02));
        assert!(close(grown(2.0, 50), 0.04));
        assert!(close(grown(2.0, 5), 0.01), "no less than without");
        assert!(close(grown(2.0, 5000), 0.16), "no more than 16 times");
    }

    #[test]
    fn recovery_is_that_of_the_papers_figure_11() {
        let mut law = law(Coupling::Linked, 16.0);
        let lose =
            |law: &mut Mpccp| law.on_congestion(Time::ZERO, Congestion::Loss, &Siblings::NONE);
        lose(&mut law);
        assert_eq!((law.window(), law.phase()), (12.0, LawPhase::Recovery));
        // "The congestion window is increased additively, which is identical to that in the congestion
        // avoidance state"; "if a loss is detected again, the size ... is set to cwnd_bk".
        for _ in 0..6 {
            law.on_delivered(&delivered(false), &Siblings::NONE);
        }
        assert!(law.window() > 12.0);
        lose(&mut law);
        assert_eq!((law.window(), law.phase()), (12.0, LawPhase::Recovery));
        // "If a backup window size of Data packets is received continuously without losses": avoidance.
        for _ in 0..12 {
            assert_eq!(law.phase(), LawPhase::Recovery);
            law.on_delivered(&delivered(false), &Siblings::NONE);
        }
        assert_eq!(law.phase(), LawPhase::Avoidance);
        let before = law.window();
        lose(&mut law);
        assert_eq!(law.window(), before * 0.75, "further decreased");
    }

    #[test]
    fn losses_in_each_window_shrink_it_each_time() {
        let mut law = law(Coupling::Linked, 64.0);
        let mut windows = Vec::new();
        for _ in 0..200 {
            law.on_delivered(&delivered(false), &Siblings::NONE);
            law.on_congestion(Time::ZERO, Congestion::Loss, &Siblings::NONE);
            windows.push(law.window());
        }
        // A window of 48 Data is answered, then 36, then 27, and so on.
        windows.dedup();
        let rounded: Vec<f64> = windows.iter().map(|window| window.round()).collect();
        assert_eq!(rounded[..4], [48.0, 36.0, 27.0, 20.0]);
        assert!(*windows.last().unwrap() < 3.0, "{windows:?}");
    }

    #[test]
    fn a_timeout_halves_the_threshold_and_begins_slow_start_from_one_segment() {
        let mut law = law(Coupling::Linked, 16.0);
        law.on_congestion(Time::ZERO, Congestion::Timeout, &Siblings::NONE);
        let state = (law.window(), law.threshold(), law.phase());
        assert_eq!(state, (1.0, 8.0, LawPhase::SlowStart));
        law.on_delivered(&delivered(false), &Siblings::NONE);
        assert_eq!(law.window(), 2.0);
        // Data of an intermediate node adds what avoidance adds.
        law.on_delivered(&delivered(true), &Siblings::NONE);
        assert_eq!(law.window(), 2.5);
    }

    #[test]
    fn fully_coupled_windows_shrink_by_a_share_of_all() {
        let mut law = law(Coupling::Coupled, 20.0);
        let paths = paths(&[(20.0, 50), (40.0, 50)]);
        let siblings = Siblings {
            own: PathId(0),
            paths: &paths,
        };
        law.on_congestion(Time::ZERO, Congestion::Loss, &siblings);
        assert_eq!(law.window(), 5.0);
    }

    proptest! {
        #[test]
        fn the_window_has_bounds_whatever_happens(
            coupling in prop::sample::select(vec![
                Coupling::Linked, Coupling::Ewtcp, Coupling::Coupled, Coupling::Uncoupled,
            ]),
            acts in prop::collection::vec((0u8..6, 0u64..3000, 0u16..400), 0..300),
        ) {
            let mut law = law(coupling, 2.0);
            law.options.exponent = 2.0;
            for (act, rtt, other) in acts {
                let paths = paths(&[(law.window(), rtt), (f64::from(other).max(1.0), 3000 - rtt)]);
                let siblings = Siblings { own: PathId(0), paths: &paths };
                match act {
                    0 => law.on_congestion(Time::ZERO, Congestion::Loss, &siblings),
                    1 => law.on_congestion(Time::ZERO, Congestion::Timeout, &siblings),
                    _ => law.on_delivered(&delivered(act == 2), &siblings),
                }
                prop_assert!((1.0..=1000.0).contains(&law.window()), "{}", law.window());
                prop_assert!(law.threshold() >= 1.0);
            }
        }
    }
}
