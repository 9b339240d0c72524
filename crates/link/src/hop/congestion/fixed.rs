//! Laws that do not follow the path: the neighbour's window alone ([MFTP] section 3.4.1), and a fixed rate.

use whimbrel_core::Time;

use super::{Answer, Estimate, Law};

#[derive(Debug)]
pub(super) struct Fixed {
    estimate: Estimate,
    // Bytes per second.
    rate: Option<u64>,
}

impl Fixed {
    /// Sends at `rate` bytes per second, or everything at once.
    pub(super) fn new(now: Time, rate: Option<u64>) -> Fixed {
        Fixed {
            estimate: Estimate::new(now),
            rate,
        }
    }
}

impl Law for Fixed {
    fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    fn estimate_mut(&mut self) -> &mut Estimate {
        &mut self.estimate
    }

    fn on_answer(&mut self, now: Time, answer: &Answer) {
        self.estimate.note(now, answer, false);
        if answer.round_over {
            self.estimate.age_rate(1);
        }
    }

    fn on_outage_over(&mut self, now: Time) {
        self.estimate.forget_delays(now);
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
        self.estimate.bandwidth() <= 0.0
    }
}
