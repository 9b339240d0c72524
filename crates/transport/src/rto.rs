//! Round-trip time and retransmission time-out, with the options that `ndnget` users know.
//!
//! Facts: research file `ndn-congestion-and-link.md` section 6 ("ndn-tools ndnget": RFC 6298 with
//! the scaling of RFC 7323 appendix G, k = 8, initial 1 s, 200 ms to 60 s, doubled once per loss
//! event); ndn-cxx `util/rtt-estimator`. `whimbrel_core::RttEstimator` has fixed gains and k = 4;
//! NDN consumers need both as options.

use core::time::Duration;

/// Gains and bounds of an [`Rto`].
#[derive(Clone, Debug, PartialEq)]
pub struct RtoOptions {
    /// Time-out before the first sample.
    pub initial: Duration,
    /// Smallest time-out.
    pub min: Duration,
    /// Largest time-out.
    pub max: Duration,
    /// Gain of the smoothed round-trip time.
    pub alpha: f64,
    /// Gain of the variation.
    pub beta: f64,
    /// How often the variation counts in the time-out.
    pub k: f64,
    /// What the time-out is multiplied by after a loss.
    pub backoff: f64,
}

impl Default for RtoOptions {
    /// As `ndnget`: k = 8, otherwise as ndn-cxx.
    fn default() -> RtoOptions {
        RtoOptions {
            initial: Duration::from_secs(1),
            min: Duration::from_millis(200),
            max: Duration::from_secs(60),
            alpha: 0.125,
            beta: 0.25,
            k: 8.0,
            backoff: 2.0,
        }
    }
}

/// Smoothed round-trip time, its variation, and the time-out that follows from them.
#[derive(Clone, Debug)]
pub struct Rto {
    options: RtoOptions,
    /// Seconds; `None` before the first sample.
    smoothed: Option<f64>,
    /// Seconds.
    variation: f64,
    /// Seconds, within the bounds, back-off included.
    timeout: f64,
    least: f64,
    greatest: f64,
    sum: f64,
    samples: u64,
}

impl Rto {
    /// Before any sample.
    pub fn new(options: RtoOptions) -> Rto {
        let mut rto = Rto {
            smoothed: None,
            variation: 0.0,
            timeout: options.initial.as_secs_f64(),
            least: f64::INFINITY,
            greatest: 0.0,
            sum: 0.0,
            samples: 0,
            options,
        };
        rto.set_timeout(rto.timeout);
        rto
    }

    /// Takes one round trip into account that was not a retransmission's (Karn). `expected` is how
    /// many samples one round trip gives: gains are divided by it (RFC 7323 appendix G), 1 keeps
    /// RFC 6298's gains.
    pub fn sample(&mut self, rtt: Duration, expected: u64) {
        let rtt = rtt.as_secs_f64();
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2.0;
            }
            Some(smoothed) => {
                let expected = expected.max(1) as f64;
                let (alpha, beta) = (self.options.alpha / expected, self.options.beta / expected);
                self.variation += beta * ((smoothed - rtt).abs() - self.variation);
                self.smoothed = Some(smoothed + alpha * (rtt - smoothed));
            }
        }
        self.set_timeout(self.smoothed.unwrap_or(rtt) + self.options.k * self.variation);
        self.least = self.least.min(rtt);
        self.greatest = self.greatest.max(rtt);
        self.sum += rtt;
        self.samples += 1;
    }

    /// Multiplies the time-out, within its bounds. Holds until the next sample.
    pub fn back_off(&mut self) {
        self.set_timeout(self.timeout * self.options.backoff);
    }

    fn set_timeout(&mut self, seconds: f64) {
        let (min, max) = (
            self.options.min.as_secs_f64(),
            self.options.max.as_secs_f64(),
        );
        self.timeout = seconds.max(min).min(max.max(min));
    }

    /// The time-out now.
    pub fn timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.timeout).unwrap_or(self.options.max)
    }

    /// The smoothed round-trip time, once there has been a sample.
    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(Duration::from_secs_f64)
    }

    /// The variation; zero before the first sample.
    pub fn variation(&self) -> Duration {
        Duration::from_secs_f64(self.variation)
    }

    /// The shortest round trip of all samples.
    pub fn least(&self) -> Option<Duration> {
        (self.samples > 0).then(|| Duration::from_secs_f64(self.least))
    }

    /// The longest round trip of all samples.
    pub fn greatest(&self) -> Option<Duration> {
        (self.samples > 0).then(|| Duration::from_secs_f64(self.greatest))
    }

    /// The mean of all samples.
    pub fn mean(&self) -> Option<Duration> {
        (self.samples > 0).then(|| Duration::from_secs_f64(self.sum / self.samples as f64))
    }
}

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
    /// Takes one round trip into account.
    pub fn add(&mut self, rtt: Duration) {
        let millis = rtt.as_secs_f64() * 1e3;
        self.count += 1;
        self.least = self.least.min(millis);
        self.greatest = self.greatest.max(millis);
        self.sum += millis;
        self.squares += millis * millis;
    }

    /// How many there were.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Milliseconds; `None` without any, as the others.
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

    /// Milliseconds: the standard deviation of all of them (divided by their number), as `ndnping`
    /// prints it.
    pub fn stddev_ms(&self) -> Option<f64> {
        let mean = self.mean_ms()?;
        Some(
            (self.squares / self.count as f64 - mean * mean)
                .max(0.0)
                .sqrt(),
        )
    }

    /// Milliseconds in total.
    pub const fn total_ms(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn close(a: Duration, b: Duration) -> bool {
        a.abs_diff(b) < Duration::from_nanos(10)
    }

    #[test]
    fn the_time_out_is_rfc_6298_with_the_factor_of_the_options() {
        let mut rto = Rto::new(RtoOptions {
            min: MS,
            ..RtoOptions::default()
        });
        assert_eq!(rto.timeout(), 1000 * MS);
        rto.sample(100 * MS, 1);
        // SRTT = R, RTTVAR = R / 2, RTO = SRTT + 8 RTTVAR.
        assert!(close(rto.timeout(), 500 * MS));
        rto.sample(180 * MS, 1);
        // RTTVAR = 3/4 50 + 1/4 |100 - 180| = 57.5, SRTT = 7/8 100 + 1/8 180 = 110.
        assert!(
            close(rto.variation(), Duration::from_micros(57_500)),
            "{:?}",
            rto.variation()
        );
        assert!(close(rto.smoothed().unwrap(), 110 * MS));
        assert!(close(rto.timeout(), 570 * MS));
        rto.back_off();
        assert!(close(rto.timeout(), 1140 * MS));
        assert_eq!(rto.least(), Some(100 * MS));
        assert!(close(rto.mean().unwrap(), 140 * MS));
    }

    #[test]
    fn gains_are_divided_by_the_samples_of_a_round_trip() {
        let mut rto = Rto::new(RtoOptions {
            k: 4.0,
            min: MS,
            ..RtoOptions::default()
        });
        rto.sample(100 * MS, 10);
        rto.sample(200 * MS, 10);
        // SRTT = 100 + 0.0125 x 100, RTTVAR = 50 + 0.025 x (100 - 50).
        assert!(close(
            rto.smoothed().unwrap(),
            Duration::from_micros(101_250)
        ));
        assert!(close(rto.variation(), Duration::from_micros(51_250)));
    }

    #[test]
    fn the_time_out_stays_within_its_bounds() {
        let mut rto = Rto::new(RtoOptions::default());
        rto.sample(MS / 10, 1);
        assert_eq!(rto.timeout(), 200 * MS);
        (0..20).for_each(|_| rto.back_off());
        assert_eq!(rto.timeout(), Duration::from_secs(60));
        rto.sample(MS / 10, 1);
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
        assert!((summary.mean_ms().unwrap() - 5.0).abs() < 1e-9);
        assert!((summary.stddev_ms().unwrap() - 2.0).abs() < 1e-9);
    }
}
