//! Round-trip times of consumers: `ndnget`'s estimate of the timeout, and summaries.

use core::time::Duration;

use whimbrel_core::{Gains, RttOptions};

/// The timeout of `ndnget` (ndn-tools `tools/get`): RFC 6298 with K = 8 and 200 ms to 60 s, gains
/// divided by the samples of a round trip (RFC 7323 appendix G), doubled once per loss event; the
/// rest is that of ndn-cxx' `util/rtt-estimator`.
pub const NDNGET: RttOptions = RttOptions {
    initial: Duration::from_secs(1),
    min: Duration::from_millis(200),
    max: Duration::from_secs(60),
    gains: Gains::Fractional {
        alpha: 0.125,
        beta: 0.25,
    },
    k: 8.0,
    // `ndnget` looks at its timeouts every 10 ms. Without this, a path whose round trips do not vary
    // would time out at the very moment at which its Data comes.
    granularity: Duration::from_millis(10),
    backoff: 2.0,
    // Beyond any bounds.
    max_backoff: 4_294_967_296.0,
};

/// Round-trip times and their spread, as the tools print them: minimum, mean, maximum, standard
/// deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RttSummary {
    count: u64,
    least: f64,
    greatest: f64,
    sum: f64,
    squares: f64,
}

impl Default for RttSummary {
    fn default() -> RttSummary {
        RttSummary {
            count: 0,
            least: f64::INFINITY,
            greatest: 0.0,
            sum: 0.0,
            squares: 0.0,
        }
    }
}

impl RttSummary {
    /// Adds one round trip.
    pub fn add(&mut self, rtt: Duration) {
        let millis = rtt.as_secs_f64() * 1e3;
        self.count += 1;
        self.least = self.least.min(millis);
        self.greatest = self.greatest.max(millis);
        self.sum += millis;
        self.squares += millis * millis;
    }

    /// Returns the number of round trips.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Milliseconds; `None` without any round trip, as the others.
    pub fn min_ms(&self) -> Option<f64> {
        (self.count > 0).then_some(self.least)
    }

    /// Milliseconds.
    pub fn max_ms(&self) -> Option<f64> {
        (self.count > 0).then_some(self.greatest)
    }

    /// Milliseconds.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// Milliseconds: the population standard deviation, as `ndnping` prints it.
    pub fn stddev_ms(&self) -> Option<f64> {
        let mean = self.mean_ms()?;
        Some(
            (self.squares / self.count as f64 - mean * mean)
                .max(0.0)
                .sqrt(),
        )
    }

    /// Returns the shortest, the mean and the longest.
    pub fn range(&self) -> Option<(Duration, Duration, Duration)> {
        let duration = |millis: f64| Duration::from_secs_f64(millis / 1e3);
        let mean = self.mean_ms()?;
        Some((
            duration(self.least),
            duration(mean),
            duration(self.greatest),
        ))
    }

    /// Milliseconds in total.
    pub const fn total_ms(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_core::RttEstimator;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_time_out_stays_within_its_bounds() {
        let mut rto = RttEstimator::with_options(NDNGET);
        rto.sample(MS / 10);
        assert_eq!(rto.timeout(), 200 * MS);
        (0..20).for_each(|_| rto.back_off());
        assert_eq!(rto.timeout(), Duration::from_secs(60));
        rto.sample(MS / 10);
        assert_eq!(rto.timeout(), 200 * MS);
    }

    #[test]
    fn the_summary_has_the_population_deviation() {
        let mut summary = RttSummary::default();
        assert_eq!(summary.mean_ms(), None);
        [2, 4, 4, 4, 5, 5, 7, 9]
            .into_iter()
            .for_each(|rtt| summary.add(rtt * MS));
        assert_eq!((summary.min_ms(), summary.max_ms()), (Some(2.0), Some(9.0)));
        assert_eq!(summary.range(), Some((2 * MS, 5 * MS, 9 * MS)));
        assert!((summary.mean_ms().unwrap() - 5.0).abs() < 1e-9);
        assert!((summary.stddev_ms().unwrap() - 2.0).abs() < 1e-9);
    }
}
