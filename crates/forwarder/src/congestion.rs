//! Marking of Data for congestion: the queue of a face's link has been slow for a while.
//!
//! Links mark by the length of their queues in bytes, which says little if rates differ. The
//! forwarder knows how long packets wait for each link; CoDel's control law selects the Data for
//! that face that carry a mark to their consumers.

use core::time::Duration;

use whimbrel_core::Time;

/// CoDel (RFC 8289) over reported delays, marking instead of dropping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CongestionMarker {
    /// When marking begins if the delay stays above the target.
    above_until: Option<Time>,
    /// When to mark next, while marking.
    next_mark: Option<Time>,
    /// Marks since marking began.
    count: u32,
}

impl CongestionMarker {
    /// Updates the state of the queue; returns true while packets are to be marked. A delay that
    /// stays above the target for `interval` is congestion; a dip below it resets that.
    pub(crate) fn told(&mut self, now: Time, is_above: bool, interval: Duration) -> bool {
        if !is_above {
            (self.above_until, self.next_mark) = (None, None);
            return false;
        }
        let begins = *self.above_until.get_or_insert(now + interval);
        if now >= begins && self.next_mark.is_none() {
            // If marking resumes soon, it continues at about its former rate.
            self.count = self.count.saturating_sub(2);
            self.next_mark = Some(now);
        }
        self.next_mark.is_some()
    }

    /// True if the next packet must be marked.
    #[inline]
    pub(crate) fn marks(&mut self, now: Time, interval: Duration) -> bool {
        let Some(at) = self.next_mark.filter(|at| *at <= now) else {
            return false;
        };
        self.count = self.count.saturating_add(1);
        self.next_mark = Some(at + interval.div_f64(f64::from(self.count).sqrt()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_delay_is_marked_ever_more_often_and_a_short_one_not_at_all() {
        let mut marker = CongestionMarker::default();
        let interval = Duration::from_millis(100);
        let run = |marker: &mut CongestionMarker, from: u64, to: u64, is_above: bool| {
            let marks = (from..to).filter(|millis| {
                let now = Time::from_millis(*millis);
                marker.told(now, is_above, interval);
                marker.marks(now, interval)
            });
            marks.count()
        };
        assert_eq!(run(&mut marker, 0, 99, true), 0, "shorter than an interval");
        assert_eq!(run(&mut marker, 99, 100, false), 0);
        assert_eq!(run(&mut marker, 100, 200, true), 0);
        let (first, second) = (
            run(&mut marker, 200, 700, true),
            run(&mut marker, 700, 1200, true),
        );
        assert!(first >= 5 && second > first, "{first} {second}");
        assert_eq!(run(&mut marker, 1200, 1201, false), 0);
        assert_eq!(run(&mut marker, 1201, 1300, true), 0);
    }
}
