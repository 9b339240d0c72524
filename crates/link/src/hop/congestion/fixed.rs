//! Laws that do not follow the path: the neighbour's window alone ([MFTP] section 3.4.1), and a fixed rate.

use core::time::Duration;

use whimbrel_core::Time;

use super::{Answer, Law};
use crate::hop::rate::RateModel;

#[derive(Debug)]
pub(super) struct Fixed {
    // Measures the path, and decides nothing.
    model: RateModel,
    // Bytes per second.
    rate: Option<u64>,
}

impl Fixed {
    /// Sends at `rate` bytes per second, or everything at once.
    pub(super) fn new(now: Time, window: u64, rate: Option<u64>) -> Fixed {
        Fixed {
            model: RateModel::new(now, window),
            rate,
        }
    }
}

impl Law for Fixed {
    fn bandwidth(&self) -> f64 {
        self.model.bandwidth()
    }

    fn min_rtt(&self) -> Option<Duration> {
        self.model.min_rtt()
    }

    fn loss(&self) -> f64 {
        self.model.loss()
    }

    fn bandwidth_delay(&self) -> u64 {
        self.model.bandwidth_delay()
    }

    fn on_round_trip(&mut self, now: Time, rtt: Duration) {
        self.model.round_trip(now, rtt);
    }

    fn on_answer(&mut self, now: Time, answer: &Answer) {
        self.model.sample(now, answer);
    }

    fn on_outage_over(&mut self, _: Time) {
        self.model.resume();
    }

    fn on_path_change(&mut self, _: Time) {
        self.model.forget_path();
    }

    fn set_burst(&mut self, bytes: u64, frame: usize) {
        self.model.set_burst(bytes, frame);
    }

    fn pace(&self) -> Option<f64> {
        self.rate.map(|rate| rate.max(1) as f64)
    }

    fn window(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn is_adaptive(&self) -> bool {
        false
    }

    fn is_starting(&self) -> bool {
        self.model.is_starting()
    }
}
