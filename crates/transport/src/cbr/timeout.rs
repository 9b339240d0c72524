//! ndnSIM's retransmission time-out (see the parent module for the sources).

use core::time::Duration;

use crate::rto::{Rto, RtoOptions};

/// Parameters of a [`SimTimeout`].
#[derive(Clone, Debug, PartialEq)]
pub struct SimTimeoutOptions {
    /// SRTT before the first sample.
    pub initial: Duration,
    /// MinRTO.
    pub min: Duration,
    /// MaxRTO.
    pub max: Duration,
    /// How often the variation counts.
    pub factor: f64,
    /// Greatest multiplier.
    pub most: u32,
}

impl SimTimeoutOptions {
    /// As ndnSIM has them.
    pub const NDNSIM: SimTimeoutOptions = SimTimeoutOptions {
        initial: Duration::from_secs(1),
        min: Duration::from_millis(200),
        max: Duration::from_secs(200),
        factor: 4.0,
        most: 64,
    };
    /// As the paper's, as far as it can be told: factor 8, the predecessor's 20 ms.
    pub const BELRP: SimTimeoutOptions = SimTimeoutOptions {
        initial: Duration::from_millis(20),
        min: Duration::from_millis(20),
        factor: 8.0,
        ..SimTimeoutOptions::NDNSIM
    };
}

/// The time-out and its multiplier.
#[derive(Clone, Debug)]
pub struct SimTimeout {
    options: SimTimeoutOptions,
    rto: Rto,
    multiplier: u32,
}

impl SimTimeout {
    /// Before any sample.
    pub fn new(options: SimTimeoutOptions) -> SimTimeout {
        let rto = Rto::new(RtoOptions {
            min: Duration::ZERO,
            ..RtoOptions::default()
        });
        SimTimeout {
            options,
            rto,
            multiplier: 1,
        }
    }

    /// A round trip of a number that was asked for once.
    pub fn sample(&mut self, rtt: Duration) {
        self.rto.sample(rtt, 1);
        self.multiplier = 1;
    }

    /// A number was not answered in time.
    pub fn double(&mut self) {
        self.multiplier = self.multiplier.saturating_mul(2).min(self.options.most);
    }

    /// The time-out now.
    pub fn get(&self) -> Duration {
        let smoothed = self.rto.smoothed().unwrap_or(self.options.initial);
        let once = smoothed + self.rto.variation().mul_f64(self.options.factor);
        (once.max(self.options.min) * self.multiplier).min(self.options.max)
    }

    /// Shortest round trip of all samples.
    pub fn least(&self) -> Option<Duration> {
        self.rto.least()
    }

    /// Smoothed round-trip time.
    pub fn smoothed(&self) -> Option<Duration> {
        self.rto.smoothed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_time_out_is_ndnsims() {
        let mut timeout = SimTimeout::new(SimTimeoutOptions::NDNSIM);
        assert_eq!(timeout.get(), 1000 * MS);
        timeout.sample(100 * MS);
        // 100 + 4 x 50.
        assert_eq!(timeout.get(), 300 * MS);
        (0..3).for_each(|_| timeout.double());
        assert_eq!(timeout.get(), 2400 * MS);
        (0..9).for_each(|_| timeout.double());
        assert_eq!(timeout.get(), 64 * 300 * MS);
        timeout.sample(100 * MS);
        assert_eq!(timeout.get(), 250 * MS);
        (0..60).for_each(|_| timeout.sample(MS));
        assert_eq!(timeout.get(), 200 * MS, "MinRTO");
    }

    #[test]
    fn the_papers_counts_the_variation_eight_times() {
        let mut timeout = SimTimeout::new(SimTimeoutOptions::BELRP);
        assert_eq!(timeout.get(), 20 * MS);
        timeout.sample(56 * MS);
        assert_eq!(timeout.get(), 56 * MS + 8 * 28 * MS);
    }
}
