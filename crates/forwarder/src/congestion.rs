//! When the forwarder itself marks packets: its own queue is the bottleneck.
//!
//! A link marks by its own queue. When this process cannot keep up, packets wait before they get
//! here, in the receive buffers of sockets, and no link's queue shows it. Whoever drives the
//! forwarder knows how long a packet waited and says so; CoDel's control law decides which Data
//! carries a mark to its consumer.

use core::time::Duration;

use whimbrel_core::Time;

/// CoDel (RFC 8289) over delays that are told, marking instead of dropping.
#[derive(Clone, Debug)]
pub struct CongestionMarker {
    target: Duration,
    interval: Duration,
    /// When marking begins if the delay stays above the target.
    above_until: Option<Time>,
    /// When to mark next, while marking.
    next_mark: Option<Time>,
    /// Marks since marking began.
    count: u32,
}

impl CongestionMarker {
    /// A delay below `target` is fine; one that stays above it for `interval` is congestion.
    pub fn new(target: Duration, interval: Duration) -> CongestionMarker {
        CongestionMarker {
            target,
            interval,
            above_until: None,
            next_mark: None,
            count: 0,
        }
    }

    /// A packet waited so long before it got here.
    pub fn waited(&mut self, now: Time, delay: Duration) {
        if delay < self.target {
            (self.above_until, self.next_mark) = (None, None);
            return;
        }
        let begins = *self.above_until.get_or_insert(now + self.interval);
        if now >= begins && self.next_mark.is_none() {
            // Marking that begins again soon goes on at about the rate that it had.
            self.count = self.count.saturating_sub(2);
            self.next_mark = Some(now);
        }
    }

    /// True if the packet that is about to be sent has to be marked.
    #[inline]
    pub fn marks(&mut self, now: Time) -> bool {
        let Some(at) = self.next_mark.filter(|at| *at <= now) else {
            return false;
        };
        self.count = self.count.saturating_add(1);
        self.next_mark = Some(at + self.interval.div_f64(f64::from(self.count).sqrt()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_delay_is_marked_ever_more_often_and_a_short_one_not_at_all() {
        let mut marker =
            CongestionMarker::new(Duration::from_millis(5), Duration::from_millis(100));
        let run = |marker: &mut CongestionMarker, from: u64, to: u64, delay: u64| {
            let marks = (from..to).filter(|millis| {
                let now = Time::from_millis(*millis);
                marker.waited(now, Duration::from_millis(delay));
                marker.marks(now)
            });
            marks.count()
        };
        assert_eq!(run(&mut marker, 0, 99, 50), 0, "shorter than an interval");
        assert_eq!(run(&mut marker, 99, 100, 1), 0);
        assert_eq!(run(&mut marker, 100, 200, 50), 0);
        let (first, second) = (
            run(&mut marker, 200, 700, 50),
            run(&mut marker, 700, 1200, 50),
        );
        assert!(first >= 5 && second > first, "{first} {second}");
        assert_eq!(run(&mut marker, 1200, 1201, 1), 0);
        assert_eq!(run(&mut marker, 1201, 1300, 50), 0);
    }
}
