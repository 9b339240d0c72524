//! A window that never changes.

use whimbrel_core::Time;

use super::{Congestion, CongestionControl, Delivered, LawPhase, Siblings};

#[derive(Debug)]
pub(super) struct Fixed {
    size: f64,
}

impl Fixed {
    pub(super) fn new(size: u32) -> Fixed {
        Fixed {
            size: f64::from(size.max(1)),
        }
    }
}

impl CongestionControl for Fixed {
    fn window(&self) -> f64 {
        self.size
    }

    fn phase(&self) -> LawPhase {
        LawPhase::Fixed
    }

    fn threshold(&self) -> f64 {
        f64::INFINITY
    }

    fn on_delivered(&mut self, _delivered: &Delivered, _siblings: &Siblings<'_>) {}

    fn on_congestion(&mut self, _now: Time, _sign: Congestion, _siblings: &Siblings<'_>) {}

    fn restart(&mut self) {}
}
