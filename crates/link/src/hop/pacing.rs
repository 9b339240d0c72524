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
    // When something was last to be sent and a burst was not allowed yet, or time was made up for.
    behind: Option<Time>,
    // Since when nothing is to be sent.
    idle: Option<Time>,
}

impl Pacer {
    pub(super) fn new() -> Pacer {
        Pacer {
            rate: 0,
            paid_until: Time::ZERO,
            burst: BURST_TIME,
            behind: None,
            idle: None,
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

    /// Returns the size of a burst now, in bytes, for what waits to be sent, or `None` if less than half a burst is allowed:
    /// many small batches would cost more.
    pub(super) fn take_allowance(&mut self, now: Time) -> Option<u64> {
        if self.rate == 0 {
            return Some(MAX_BURST);
        }
        let idle = self.idle.take();
        if idle.is_some_and(|since| now.since(since) > self.burst) {
            self.behind = None;
        }
        let ahead = (now + self.burst).since(self.paid(now));
        if ahead < self.burst / 2 {
            self.behind = Some(self.ready_at());
            return None;
        }
        Some(bytes_in(ahead, self.rate).clamp(1, MAX_BURST))
    }

    /// Returns the time until which sent frames are paid for. Past time in which nothing was sent is lost, but for a burst and
    /// what a late timer of a waiting burst has cost: the rest may follow as soon as the owner has it queued.
    fn paid(&self, now: Time) -> Time {
        // A busy processor runs a process again after some milliseconds. What the path misses meanwhile has left its queue.
        let most = (40 * BURST_TIME).min(span(MAX_BURST, self.rate));
        let late = self.behind.map_or(Duration::ZERO, |since| now.since(since));
        self.paid_until.max(now - late.min(most).max(self.burst))
    }

    /// Notes that the window holds back what is to be sent.
    pub(super) fn note_held_back(&mut self) {
        self.behind = None;
    }

    /// Notes that nothing is to be sent: an idle sender has nothing to make up for, unless more follows at once.
    pub(super) fn note_idle(&mut self, now: Time) {
        self.idle.get_or_insert(now);
    }

    /// Notes that `bytes` were sent.
    pub(super) fn spend(&mut self, now: Time, bytes: u64) {
        if self.rate > 0 {
            self.paid_until = self.paid(now) + span(bytes, self.rate);
            // It has made up for the time.
            self.behind = self.behind.filter(|_| self.paid_until < now - self.burst);
        }
    }

    /// Returns the time at which half a burst is allowed, after [`Pacer::take_allowance`] returned
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
    fn a_late_timer_costs_no_rate_and_an_idle_time_is_lost() {
        let mut pacer = Pacer::new();
        pacer.set_rate(1_000_000, 1_400);
        let send_all = |pacer: &mut Pacer, now| {
            let mut sent = 0;
            while let Some(allowance) = pacer.take_allowance(now) {
                pacer.spend(now, allowance);
                sent += allowance;
            }
            sent
        };
        let start = Time::from_secs(1);
        let ms = Duration::from_millis;
        let burst = send_all(&mut pacer, start);
        let late = send_all(&mut pacer, start + ms(10));
        assert!(late.abs_diff(10_000) < 10, "{late}");
        // A process that did not run for a second makes up for a part of it alone.
        assert!(send_all(&mut pacer, start + ms(1_000)) <= 20_000 + burst);
        // The sender has nothing left for a while.
        pacer.note_idle(start + ms(1_000));
        pacer.note_idle(start + ms(1_001));
        assert!(send_all(&mut pacer, start + ms(1_010)) <= burst);
        pacer.note_held_back();
        assert!(send_all(&mut pacer, start + ms(1_020)) <= burst);
    }

    #[test]
    fn long_run_rate_is_the_set_rate_and_a_deadline_always_allows_something() {
        for rate in [1_000u64, 100_000, 3_125_000, 600_000_000] {
            let mut pacer = Pacer::new();
            pacer.set_rate(rate, 1_400);
            let (mut now, mut sent) = (Time::from_secs(1), 0u64);
            let end = now + Duration::from_secs(20);
            while now < end {
                match pacer.take_allowance(now) {
                    Some(_) => {
                        pacer.spend(now, 1_400);
                        sent += 1_400;
                    }
                    None => now = pacer.ready_at(),
                }
                assert!(pacer.take_allowance(pacer.ready_at().max(now)).is_some());
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
