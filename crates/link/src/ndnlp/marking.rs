//! When to mark a packet because of congestion.

use core::time::Duration;

use whimbrel_core::Time;

/// After NFD, which took it from CoDel: a queue above the threshold for a whole interval marks one packet, and further
/// ones after interval / sqrt(n + 1) while it stays above.
#[derive(Clone, Debug)]
pub(crate) struct CongestionMarker {
    threshold: usize,
    interval: Duration,
    next: Option<Time>,
    marked: u32,
}

impl CongestionMarker {
    pub(crate) fn new(threshold: usize, interval: Duration) -> CongestionMarker {
        CongestionMarker { threshold, interval, next: None, marked: 0 }
    }

    /// To be asked for each packet that leaves the queue, with the bytes that were in it.
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
        self.next = Some(next + self.interval.div_f64(f64::from(self.marked).sqrt().max(1.0) + 0.0));
        true
    }
}
