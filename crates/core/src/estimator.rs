//! Estimators of round-trip time and of extremes over a sliding window.

use core::time::Duration;

use crate::Time;

/// Smoothed round-trip time and retransmission time-out after RFC 6298, with bounds given by its
/// owner.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Duration,
    initial_timeout: Duration,
    bounds: (Duration, Duration),
}

impl RttEstimator {
    /// `initial_timeout` holds until the first sample; every time-out lies within `min..=max`.
    pub fn new(initial_timeout: Duration, min: Duration, max: Duration) -> Self {
        RttEstimator {
            smoothed: None,
            variation: Duration::ZERO,
            latest: Duration::ZERO,
            initial_timeout,
            bounds: (min, max.max(min)),
        }
    }

    /// Takes one measured round trip into account (RFC 6298 section 2.2 and 2.3).
    pub fn sample(&mut self, rtt: Duration) {
        self.latest = rtt;
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
            }
        }
    }

    /// The smoothed round-trip time, once there has been a sample.
    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The last sample; zero before the first.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// The retransmission time-out before any back-off: smoothed + 4 x variation, within the
    /// bounds.
    pub fn timeout(&self) -> Duration {
        let (min, max) = self.bounds;
        match self.smoothed {
            None => self.initial_timeout.clamp(min, max),
            Some(smoothed) => (smoothed + self.variation * 4).clamp(min, max),
        }
    }

    /// The time-out doubled `attempts` times, within the bounds.
    pub fn timeout_after(&self, attempts: u32) -> Duration {
        self.timeout()
            .saturating_mul(1 << attempts.min(16))
            .min(self.bounds.1)
    }
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

            /// Changes the window; what is outside it goes at the next sample.
            pub fn set_window(&mut self, window: Duration) {
                self.window = window;
            }

            /// The extreme of the samples in the window as of the last sample. The newest sample
            /// always counts.
            pub fn get(&self) -> Option<T> {
                self.candidates.front().map(|(_, value)| *value)
            }

            /// When the current extreme was sampled.
            pub fn sampled_at(&self) -> Option<Time> {
                self.candidates.front().map(|(at, _)| *at)
            }

            /// Forgets everything.
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
