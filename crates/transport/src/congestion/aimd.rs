//! Additive increase, multiplicative decrease, as `ndnget -p aimd`.

use whimbrel_core::Time;

use super::slow_start::Ramp;
use super::{Congestion, CongestionControl, Delivered, LawPhase, Siblings, WindowOptions};

#[derive(Clone, Debug)]
pub(super) struct Aimd {
    ramp: Ramp,
    step: f64,
    decrease: f64,
    reset_to_initial: bool,
}

impl Aimd {
    pub(super) fn new(
        options: WindowOptions,
        step: f64,
        decrease: f64,
        reset_to_initial: bool,
    ) -> Aimd {
        Aimd {
            ramp: Ramp::new(options),
            step,
            decrease,
            reset_to_initial,
        }
    }
}

impl CongestionControl for Aimd {
    fn window(&self) -> f64 {
        self.ramp.size()
    }

    fn phase(&self) -> LawPhase {
        self.ramp.phase()
    }

    fn threshold(&self) -> f64 {
        self.ramp.threshold()
    }

    fn on_delivered(&mut self, delivered: &Delivered, _siblings: &Siblings<'_>) {
        self.ramp.sample(delivered);
        let size = self.ramp.size();
        if !delivered.may_grow(size) {
            return;
        }
        let growth = match self.ramp.phase() {
            LawPhase::SlowStart => self.step / self.ramp.divisor(),
            _ => self.step / size.floor(),
        };
        self.ramp.grow(growth, delivered.limit);
    }

    fn on_congestion(&mut self, _now: Time, _sign: Congestion, _siblings: &Siblings<'_>) {
        let threshold = (self.ramp.size() * self.decrease).max(Ramp::MIN_THRESHOLD);
        let size = if self.reset_to_initial {
            self.ramp.initial()
        } else {
            threshold
        };
        self.ramp.fall(size, threshold);
    }

    fn snapshot(&self) -> Option<Box<dyn CongestionControl>> {
        Some(Box::new(self.clone()))
    }

    fn restart(&mut self) {
        self.ramp.restart();
    }
}
