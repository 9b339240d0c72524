//! CoDel (RFC 8289): a queue that shortens itself.

use core::time::Duration;

use whimbrel_core::Time;

/// The time for which the delay must exceed the target before the queue acts (RFC 8289 §4.3).
const INTERVAL: Duration = Duration::from_millis(100);
/// Intervals after which a long queue is a new one (RFC 8289 §5.5).
const RECENT_INTERVALS: u32 = 16;

/// The state of RFC 8289 §5.1 for one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Codel {
    /// The time at which the delay will have exceeded the target for an interval.
    first_above: Option<Time>,
    /// The next time to act, while the queue is too long.
    next: Option<Time>,
    left_at: Time,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Returns true if the frame that leaves the queue at `now`, after `waited`, is to be marked or
    /// dropped. `is_last` is true if the queue is empty behind it.
    pub(super) fn acts(
        &mut self,
        now: Time,
        waited: Duration,
        target: Duration,
        is_last: bool,
    ) -> bool {
        let is_long = self.note_wait(now, waited, target, is_last);
        match self.next {
            Some(_) if !is_long => {
                self.left_at = now;
                self.next = None;
                false
            }
            Some(next) if now < next => false,
            Some(next) => {
                self.count += 1;
                self.next = Some(next + self.pause());
                true
            }
            None if is_long => {
                // If the queue was long a moment ago, the rate of acts goes on from there.
                let recent = now.since(self.left_at) < INTERVAL * RECENT_INTERVALS;
                let added = self.count.saturating_sub(self.last_count);
                self.count = if recent { added.max(1) } else { 1 };
                self.last_count = self.count;
                self.next = Some(now + self.pause());
                true
            }
            None => false,
        }
    }

    fn pause(&self) -> Duration {
        INTERVAL.div_f64(f64::from(self.count.max(1)).sqrt())
    }

    fn note_wait(&mut self, now: Time, waited: Duration, target: Duration, is_last: bool) -> bool {
        if waited < target || is_last {
            self.first_above = None;
            return false;
        }
        let first_above = *self.first_above.get_or_insert(now + INTERVAL);
        now >= first_above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(5);

    /// Returns the times, in ms, at which frames that leave every millisecond are acted upon.
    fn acts(waited: impl Fn(u64) -> u64, until: u64) -> Vec<u64> {
        let mut codel = Codel::default();
        let acts = |at: &u64| {
            let waited = Duration::from_millis(waited(*at));
            codel.acts(Time::from_millis(*at), waited, TARGET, false)
        };
        (0..until).filter(acts).collect()
    }

    #[test]
    fn a_short_queue_and_a_burst_are_left_alone() {
        assert!(acts(|_| 4, 10_000).is_empty());
        assert!(acts(|at| if at % 100 == 0 { 0 } else { 40 }, 10_000).is_empty());
    }

    /// RFC 8289 §3.3: the interval after the n-th act is 100 ms / sqrt(n).
    #[test]
    fn a_queue_that_stands_is_acted_upon_ever_more_often() {
        assert_eq!(acts(|_| 20, 400), [100, 200, 271, 329, 379]);
    }

    #[test]
    fn it_stops_when_the_queue_is_short_and_then_goes_on_as_before() {
        let long_but_for_a_moment = |at| if at == 380 { 0 } else { 20 };
        let at = acts(long_but_for_a_moment, 600);
        assert_eq!(at[..5], [100, 200, 271, 329, 379]);
        // Four more acts than when it began: 481 + 100 / sqrt(4).
        assert_eq!(at[5..], [481, 531, 576]);
    }
}
