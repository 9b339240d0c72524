//! Frames at the rate of a modelled device: one in transmission, the others in the queue.

use whimbrel_core::Time;

#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    bits_per_second: u64,
    overhead: u32,
    idle_at: Time,
    // The fraction truncated from `idle_at`, in units of 1/rate nanoseconds, so that no rate
    // drifts.
    fraction: u64,
}

impl Pacer {
    pub(crate) fn new(bits_per_second: u64, overhead: u32) -> Pacer {
        Pacer {
            bits_per_second: bits_per_second.max(1),
            overhead,
            idle_at: Time::ZERO,
            fraction: 0,
        }
    }

    /// Returns the time at which the present transmission ends.
    pub(crate) fn idle_at(&self) -> Time {
        self.idle_at
    }

    pub(crate) fn transmit(&mut self, now: Time, frame_len: usize) {
        if now > self.idle_at {
            self.idle_at = now;
            self.fraction = 0;
        }
        let bits = (frame_len as u128 + u128::from(self.overhead)) * 8;
        let scaled = bits * 1_000_000_000 + u128::from(self.fraction);
        let rate = u128::from(self.bits_per_second);
        self.fraction = (scaled % rate) as u64;
        let nanos = u64::try_from(scaled / rate).unwrap_or(u64::MAX);
        self.idle_at += core::time::Duration::from_nanos(nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_with_fractional_nanoseconds_does_not_drift() {
        // 3 bit/s: each frame of a byte takes 2.666... s.
        let mut pacer = Pacer::new(3, 0);
        for _ in 0..300 {
            let now = pacer.idle_at();
            pacer.transmit(now, 1);
        }
        assert_eq!(pacer.idle_at(), Time::from_secs(800));
    }

    #[test]
    fn idle_time_is_not_saved_up_and_the_overhead_counts() {
        let mut pacer = Pacer::new(8_000, 2);
        pacer.transmit(Time::from_secs(5), 8);
        assert_eq!(pacer.idle_at(), Time::from_millis(5_010));
    }
}
