//! The sending times of packets at a given rate.

use core::time::Duration;

use whimbrel_core::Time;

/// Largest burst, in bytes: eight kernel batches of 64 KiB.
const MAX_BURST: u64 = 512 << 10;
/// Length of a burst at ordinary rates: longer than the lateness of a timer, shorter than a harmful
/// queue.
const BURST_TIME: Duration = Duration::from_micros(500);

/// Accounts for sending time: sent frames are paid for until a moment that may be a burst ahead of
/// now.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    // Bytes per second; 0 means not paced.
    rate: u64,
    paid_until: Time,
    burst: Duration,
}

impl Pacer {
    pub(super) fn new() -> Pacer {
        Pacer {
            rate: 0,
            paid_until: Time::ZERO,
            burst: BURST_TIME,
        }
    }

    /// Paces at `rate` bytes per second from now on, or not at all if that is 0; frames have
    /// `frame` bytes.
    pub(super) fn set_rate(&mut self, rate: u64, frame: usize) {
        self.rate = rate;
        if rate > 0 {
            self.burst = BURST_TIME
                .min(span(MAX_BURST, rate))
                .max(span(frame as u64, rate));
        }
    }

    /// Returns the size of a burst now, in bytes, or `None` if less than half a burst is allowed:
    /// many small batches would cost more.
    pub(super) fn allowance(&self, now: Time) -> Option<u64> {
        if self.rate == 0 {
            return Some(MAX_BURST);
        }
        let paid = self.paid_until.max(now - self.burst);
        let ahead = (now + self.burst).since(paid);
        (ahead >= self.burst / 2).then(|| bytes_in(ahead, self.rate).max(1))
    }

    /// Notes that `bytes` were sent.
    pub(super) fn spend(&mut self, now: Time, bytes: u64) {
        if self.rate > 0 {
            self.paid_until = self.paid_until.max(now - self.burst) + span(bytes, self.rate);
        }
    }

    /// Returns the time at which half a burst is allowed, after [`Pacer::allowance`] returned
    /// `None`.
    pub(super) fn ready_at(&self) -> Time {
        self.paid_until - self.burst / 2
    }

    /// Returns the bytes of one burst.
    pub(super) fn burst_bytes(&self) -> u64 {
        if self.rate == 0 {
            MAX_BURST
        } else {
            bytes_in(self.burst, self.rate)
        }
    }
}

/// Returns the time of `bytes` at `rate` bytes per second.
pub(super) fn span(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Returns the bytes in `duration` at `rate` bytes per second.
pub(super) fn bytes_in(duration: Duration, rate: u64) -> u64 {
    u64::try_from(duration.as_nanos() * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_run_rate_is_the_set_rate_and_a_deadline_always_allows_something() {
        for rate in [1_000u64, 100_000, 3_125_000, 600_000_000] {
            let mut pacer = Pacer::new();
            pacer.set_rate(rate, 1_400);
            let (mut now, mut sent) = (Time::from_secs(1), 0u64);
            let end = now + Duration::from_secs(20);
            while now < end {
                match pacer.allowance(now) {
                    Some(_) => {
                        pacer.spend(now, 1_400);
                        sent += 1_400;
                    }
                    None => now = pacer.ready_at(),
                }
                assert!(pacer.allowance(pacer.ready_at().max(now)).is_some());
            }
            let expected = rate * 20;
            // Spans are rounded down to nanoseconds.
            let slack = 2 * pacer.burst_bytes() + 2_800 + expected / 1_000;
            assert!(
                sent.abs_diff(expected) <= slack,
                "{rate}: {sent} instead of {expected}"
            );
        }
    }
}
