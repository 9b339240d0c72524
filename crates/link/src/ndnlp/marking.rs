//! Marking of packets for congestion.

use core::time::Duration;

use whimbrel_core::Time;

/// After NFD, which took it from CoDel: a queue above the threshold for a whole interval marks one
/// packet, and further ones after interval / sqrt(n + 1) while it stays above.
#[derive(Clone, Debug)]
pub(crate) struct CongestionMarker {
    threshold: usize,
    interval: Duration,
    next: Option<Time>,
    marked: u32,
}

impl CongestionMarker {
    pub(crate) fn new(threshold: usize, interval: Duration) -> CongestionMarker {
        CongestionMarker {
            threshold,
            interval,
            next: None,
            marked: 0,
        }
    }

    /// Returns true if the packet that leaves the queue must be marked. Must be called for each
    /// packet, with the bytes that were in the queue.
    pub(crate) fn marks(&mut self, now: Time, queue_bytes: usize) -> bool {
        if queue_bytes <= self.threshold {
            self.next = None;
            self.marked = 0;
            return false;
        }
        let next = *self.next.get_or_insert(now + self.interval);
        if now < next {
            return false;
        }
        self.marked = self.marked.saturating_add(1);
        self.next = Some(
            next + self
                .interval
                .div_f64(f64::from(self.marked.saturating_add(1)).sqrt()),
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_above_the_threshold_for_an_interval_marks_and_then_ever_faster() {
        let mut marker = CongestionMarker::new(1000, Duration::from_millis(100));
        let mut marked_at = Vec::new();
        for millis in 0..400 {
            if marker.marks(Time::from_millis(millis), 1001) {
                marked_at.push(millis);
            }
        }
        // 100, + 100/sqrt(2), + 100/sqrt(3), + 100/2, + 100/sqrt(5).
        assert_eq!(marked_at, [100, 171, 229, 279, 324, 364]);
    }

    #[test]
    fn a_queue_that_falls_below_the_threshold_starts_anew() {
        let mut marker = CongestionMarker::new(1000, Duration::from_millis(100));
        assert!(!marker.marks(Time::from_millis(0), 2000));
        assert!(!marker.marks(Time::from_millis(99), 1000), "not above");
        assert!(!marker.marks(Time::from_millis(150), 2000));
        assert!(!marker.marks(Time::from_millis(249), 2000));
        assert!(marker.marks(Time::from_millis(250), 2000));
    }
}
