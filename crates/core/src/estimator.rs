//! Estimators of round-trip time and of extremes over a sliding window.

use core::time::Duration;

use crate::Time;

/// How far one sample moves the smoothed round-trip time and its variation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gains {
    /// 1/8 and 1/4 (RFC 6298 section 2.3), in whole nanoseconds, rounded down.
    Rfc6298,
    /// Any gains between 0 and 1; fractions of nanoseconds are kept.
    Fractional {
        /// Gain of the smoothed round-trip time.
        alpha: f64,
        /// Gain of the variation.
        beta: f64,
    },
}

/// Constants of an [`RttEstimator`]. Its timeout is smoothed + max(granularity, k x variation), at
/// least `min`, times the back-off, at most `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RttOptions {
    /// The smoothed round-trip time, without variation, before the first sample.
    pub initial: Duration,
    /// Smallest timeout, before any back-off.
    pub min: Duration,
    /// Largest timeout, back-off included; `min` if that is larger.
    pub max: Duration,
    /// Gains of a sample.
    pub gains: Gains,
    /// Multiplier of the variation (K).
    pub k: f64,
    /// Clock granularity (G): the variation counts at least this much.
    pub granularity: Duration,
    /// Factor of one [`RttEstimator::back_off`]; at least 1.
    pub backoff: f64,
    /// Largest product of back-offs.
    pub max_backoff: f64,
}

impl RttOptions {
    /// RFC 6298 without a clock granularity: K is 4, each back-off doubles.
    pub const fn rfc6298(initial: Duration, min: Duration, max: Duration) -> RttOptions {
        RttOptions {
            initial,
            min,
            max,
            gains: Gains::Rfc6298,
            k: 4.0,
            granularity: Duration::ZERO,
            backoff: 2.0,
            max_backoff: 65_536.0,
        }
    }
}

/// Smoothed round-trip time and retransmission timeout after RFC 6298, with the constants of its
/// owner.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    options: RttOptions,
    /// Nanoseconds; `None` before the first sample.
    smoothed: Option<f64>,
    /// Nanoseconds.
    variation: f64,
    latest: Duration,
    least: Option<Duration>,
    /// Product of the back-offs since the last sample.
    backoff: f64,
}

impl RttEstimator {
    /// `initial_timeout` applies until the first sample; every timeout lies within `min..=max`.
    pub fn new(initial_timeout: Duration, min: Duration, max: Duration) -> Self {
        RttEstimator::with_options(RttOptions::rfc6298(initial_timeout, min, max))
    }

    /// Returns an estimator without samples.
    pub fn with_options(options: RttOptions) -> Self {
        RttEstimator {
            options: RttOptions {
                max: options.max.max(options.min),
                ..options
            },
            smoothed: None,
            variation: 0.0,
            latest: Duration::ZERO,
            least: None,
            backoff: 1.0,
        }
    }

    /// Takes one measured round trip into account (RFC 6298 section 2.2 and 2.3) and ends a
    /// back-off. Round trips of retransmissions must not be given (Karn's algorithm).
    pub fn sample(&mut self, rtt: Duration) {
        self.sample_of(rtt, 1);
    }

    /// As [`RttEstimator::sample`], for an owner that takes `expected` samples in one round trip:
    /// the gains are divided by that (RFC 7323 appendix G).
    pub fn sample_of(&mut self, rtt: Duration, expected: u64) {
        let nanos = as_nanos(rtt);
        let (alpha, beta) = match self.options.gains {
            Gains::Rfc6298 => (0.125, 0.25),
            Gains::Fractional { alpha, beta } => (alpha, beta),
        };
        let (smoothed, variation) = match self.smoothed {
            None => (nanos, nanos / 2.0),
            Some(smoothed) => {
                let expected = expected.max(1) as f64;
                let deviation = (smoothed - nanos).abs() - self.variation;
                (
                    smoothed + alpha / expected * (nanos - smoothed),
                    self.variation + beta / expected * deviation,
                )
            }
        };
        (self.smoothed, self.variation) = match self.options.gains {
            Gains::Rfc6298 => (Some(smoothed.floor()), variation.floor()),
            Gains::Fractional { .. } => (Some(smoothed), variation),
        };
        self.latest = rtt;
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        self.backoff = 1.0;
    }

    /// Returns the smoothed round-trip time, once there has been a sample.
    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(from_nanos)
    }

    /// Returns the variation of the round-trip time; zero before the first sample.
    pub fn variation(&self) -> Duration {
        from_nanos(self.variation)
    }

    /// Returns the last sample; zero before the first.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// Returns the shortest of all samples.
    pub fn least(&self) -> Option<Duration> {
        self.least
    }

    /// Multiplies the timeout, within its bounds, until the next sample (RFC 6298 section 5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff * self.options.backoff).min(self.options.max_backoff);
    }

    /// Ends a back-off without a sample. Its owner must know that the path answers in time.
    pub fn end_back_off(&mut self) {
        self.backoff = 1.0;
    }

    /// Returns true between a [`RttEstimator::back_off`] and the next sample.
    pub fn is_backed_off(&self) -> bool {
        self.backoff > 1.0
    }

    /// Returns the retransmission timeout.
    pub fn timeout(&self) -> Duration {
        let options = &self.options;
        let expected = match self.smoothed {
            None => as_nanos(options.initial),
            Some(smoothed) => {
                let margin = options.k * self.variation;
                smoothed + margin.max(as_nanos(options.granularity))
            }
        };
        let nanos = expected.max(as_nanos(options.min)) * self.backoff;
        from_nanos(nanos.min(as_nanos(options.max)))
    }

    /// Returns the timeout doubled `attempts` times, within the bounds.
    pub fn timeout_after(&self, attempts: u32) -> Duration {
        self.timeout()
            .saturating_mul(1 << attempts.min(16))
            .min(self.options.max)
    }
}

/// Exact up to 104 days.
fn as_nanos(duration: Duration) -> f64 {
    duration.as_secs() as f64 * 1e9 + f64::from(duration.subsec_nanos())
}

fn from_nanos(nanos: f64) -> Duration {
    Duration::from_nanos((nanos + 0.5) as u64)
}

macro_rules! windowed_extreme {
    ($(#[$doc:meta])* $name:ident, $beaten_by:tt) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name<T> {
            window: Duration,
            // From the current extreme to the newest sample; each one is beaten by all before it.
            candidates: std::collections::VecDeque<(Time, T)>,
        }

        impl<T: Copy + PartialOrd> $name<T> {
            /// Samples older than `window` no longer count.
            pub fn new(window: Duration) -> Self {
                Self { window, candidates: Default::default() }
            }

            /// Takes a sample into account. Amortised O(1).
            pub fn sample(&mut self, now: Time, value: T) {
                while self.candidates.back().is_some_and(|(_, last)| *last $beaten_by value) {
                    self.candidates.pop_back();
                }
                self.candidates.push_back((now, value));
                self.expire(now);
            }

            /// Changes the window; the next sample drops the values outside it.
            pub fn set_window(&mut self, window: Duration) {
                self.window = window;
            }

            /// Returns the extreme of the samples in the window as of the last sample. The newest
            /// sample always counts.
            pub fn get(&self) -> Option<T> {
                self.candidates.front().map(|(_, value)| *value)
            }

            /// When the current extreme was sampled.
            pub fn sampled_at(&self) -> Option<Time> {
                self.candidates.front().map(|(at, _)| *at)
            }

            /// Removes all samples.
            pub fn clear(&mut self) {
                self.candidates.clear();
            }

            fn expire(&mut self, now: Time) {
                while self.candidates.len() > 1
                    && self.candidates.front().is_some_and(|(at, _)| now.since(*at) > self.window)
                {
                    self.candidates.pop_front();
                }
            }
        }
    };
}

windowed_extreme!(
    /// The largest sample of a sliding window of time.
    WindowedMax, <=
);
windowed_extreme!(
    /// The smallest sample of a sliding window of time.
    WindowedMin, >=
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timeout_follows_rfc_6298() {
        let mut rtt = RttEstimator::new(
            Duration::from_secs(1),
            Duration::from_millis(1),
            Duration::from_secs(60),
        );
        assert_eq!(rtt.timeout(), Duration::from_secs(1));
        rtt.sample(Duration::from_millis(100));
        assert_eq!(rtt.timeout(), Duration::from_millis(300));
        rtt.sample(Duration::from_millis(100));
        assert_eq!(rtt.timeout(), Duration::from_millis(250));
        assert_eq!(rtt.timeout_after(2), Duration::from_secs(1));
        assert_eq!(rtt.timeout_after(200), Duration::from_secs(60));
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_variation_counts_as_often_as_the_options_say_and_back_off_ends_with_a_sample() {
        let mut rtt = RttEstimator::with_options(RttOptions {
            k: 8.0,
            gains: Gains::Fractional {
                alpha: 0.125,
                beta: 0.25,
            },
            ..RttOptions::rfc6298(1000 * MS, MS, 60_000 * MS)
        });
        rtt.sample(100 * MS);
        assert_eq!(rtt.timeout(), 500 * MS);
        rtt.sample(180 * MS);
        // RTTVAR = 3/4 50 + 1/4 |100 - 180| = 57.5, SRTT = 7/8 100 + 1/8 180 = 110.
        assert_eq!(rtt.variation(), Duration::from_micros(57_500));
        assert_eq!(rtt.smoothed(), Some(110 * MS));
        assert_eq!(rtt.timeout(), 570 * MS);
        rtt.back_off();
        assert_eq!(rtt.timeout(), 1140 * MS);
        (0..20).for_each(|_| rtt.back_off());
        assert_eq!(rtt.timeout(), 60_000 * MS);
        let mut ended = rtt.clone();
        ended.end_back_off();
        assert_eq!((ended.timeout(), ended.is_backed_off()), (570 * MS, false));
        rtt.sample(110 * MS);
        assert!(rtt.timeout() < 570 * MS);
        assert_eq!((rtt.least(), rtt.latest()), (Some(100 * MS), 110 * MS));
    }

    #[test]
    fn gains_are_divided_by_the_samples_of_a_round_trip() {
        let mut rtt = RttEstimator::with_options(RttOptions {
            gains: Gains::Fractional {
                alpha: 0.125,
                beta: 0.25,
            },
            ..RttOptions::rfc6298(1000 * MS, MS, 60_000 * MS)
        });
        rtt.sample_of(100 * MS, 10);
        rtt.sample_of(200 * MS, 10);
        // SRTT = 100 + 0.0125 x 100, RTTVAR = 50 + 0.025 x (100 - 50).
        assert_eq!(rtt.smoothed(), Some(Duration::from_micros(101_250)));
        assert_eq!(rtt.variation(), Duration::from_micros(51_250));
    }

    #[test]
    fn the_granularity_is_the_least_that_the_variation_adds() {
        let mut rtt = RttEstimator::with_options(RttOptions {
            granularity: 10 * MS,
            ..RttOptions::rfc6298(1000 * MS, MS, 60_000 * MS)
        });
        (0..100).for_each(|_| rtt.sample(100 * MS));
        assert_eq!(rtt.timeout(), 110 * MS);
    }

    proptest! {
        /// Kernels and this workspace's link protocols compute with integers.
        #[test]
        fn the_gains_of_rfc_6298_are_those_of_integer_arithmetic(
            samples in prop::collection::vec(0u64..100_000_000_000, 1..100),
        ) {
            let mut rtt = RttEstimator::new(MS, Duration::ZERO, Duration::MAX);
            let mut model: Option<(u64, u64)> = None;
            for sample in samples {
                rtt.sample(Duration::from_nanos(sample));
                model = Some(match model {
                    None => (sample, sample / 2),
                    Some((smoothed, variation)) => (
                        (smoothed * 7 + sample) / 8,
                        (variation * 3 + smoothed.abs_diff(sample)) / 4,
                    ),
                });
                let (smoothed, variation) = model.unwrap();
                prop_assert_eq!(rtt.smoothed(), Some(Duration::from_nanos(smoothed)));
                prop_assert_eq!(rtt.variation(), Duration::from_nanos(variation));
                prop_assert_eq!(rtt.timeout(), Duration::from_nanos(smoothed + 4 * variation));
            }
        }
    }

    proptest! {
        #[test]
        fn windowed_maximum_is_the_maximum_of_the_window(
            samples in prop::collection::vec((0u64..50, 0u32..100), 1..100), window in 0u64..200,
        ) {
            let window = Duration::from_nanos(window);
            let mut max = WindowedMax::new(window);
            let mut min = WindowedMin::new(window);
            let mut history: Vec<(Time, u32)> = Vec::new();
            let mut now = Time::ZERO;
            for (step, value) in samples {
                now += Duration::from_nanos(step);
                max.sample(now, value);
                min.sample(now, value);
                history.push((now, value));
                let recent = || history.iter().filter(|(at, _)| now.since(*at) <= window).map(|(_, v)| *v);
                prop_assert_eq!(max.get(), recent().max());
                prop_assert_eq!(min.get(), recent().min());
            }
        }
    }
}
