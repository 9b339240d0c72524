//! Deadlines of slab slots: a timing wheel with one reference per slot rather than per entry.

use core::time::Duration;

use whimbrel_core::Time;

/// About a millisecond: the maximum delay of a due entry.
const TICK_NANOS: u64 = 1 << 20;
/// A little more than the usual lifetime of Interests, so that references rarely come up early.
const BUCKETS: u64 = 8192;
const IDLE: u64 = u64::MAX;

/// A wheel of ticks. A slot is checked when its reference comes up; if its deadline has moved to a
/// later time (an entry left, another one took its slot) it is armed again then. An entry that
/// comes and goes costs nothing here.
#[derive(Clone, Debug)]
pub(crate) struct Wheel {
    buckets: Vec<Vec<u32>>,
    /// One bit for each non-empty bucket.
    occupied: Vec<u64>,
    /// The next tick to process.
    tick: u64,
    /// For each slot: the tick of its valid reference.
    armed: Vec<u64>,
    references: usize,
    /// Slots that came up and have not been returned yet.
    due: Vec<u32>,
}

impl Wheel {
    pub(crate) fn new() -> Wheel {
        Wheel {
            buckets: vec![Vec::new(); BUCKETS as usize],
            occupied: vec![0; BUCKETS as usize / 64],
            tick: 0,
            armed: Vec::new(),
            references: 0,
            due: Vec::new(),
        }
    }

    /// Ensures that `slot` comes up not later than one tick after `at`; beyond the horizon earlier,
    /// to be armed again.
    #[inline]
    pub(crate) fn arm(&mut self, slot: u32, at: Time) {
        let tick = at
            .as_nanos()
            .div_ceil(TICK_NANOS)
            .clamp(self.tick, self.tick + BUCKETS - 1);
        match self.armed.get(slot as usize) {
            Some(armed) if *armed <= tick => {}
            _ => self.refer(slot, tick),
        }
    }

    fn refer(&mut self, slot: u32, tick: u64) {
        let place = slot as usize;
        if place >= self.armed.len() {
            self.armed.resize(place + 1, IDLE);
        }
        self.armed[place] = tick;
        // Void references stay until they come up: sweep them before they are the majority.
        if self.references > 4 * self.armed.len() + 4096 {
            self.sweep();
            return;
        }
        self.push(slot, tick);
    }

    fn push(&mut self, slot: u32, tick: u64) {
        let bucket = (tick % BUCKETS) as usize;
        self.buckets[bucket].push(slot);
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        self.references += 1;
    }

    fn sweep(&mut self) {
        self.buckets
            .iter_mut()
            .for_each(|bucket| *bucket = Vec::new());
        self.occupied.fill(0);
        self.references = 0;
        for slot in 0..self.armed.len() {
            if self.armed[slot] != IDLE {
                self.push(slot as u32, self.armed[slot]);
            }
        }
    }

    /// The next slot that has come up by `now`; the caller checks its entry, and arms it again if
    /// its deadline is later.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u32> {
        let end = now.as_nanos() / TICK_NANOS;
        loop {
            while let Some(slot) = self.due.pop() {
                // Comes from the bucket of the tick before `self.tick`.
                if self
                    .armed
                    .get(slot as usize)
                    .is_some_and(|armed| *armed < self.tick)
                {
                    self.armed[slot as usize] = IDLE;
                    return Some(slot);
                }
            }
            let next = self.next_occupied().filter(|tick| *tick <= end);
            let Some(tick) = next else {
                self.tick = self.tick.max(end + 1);
                return None;
            };
            self.tick = tick + 1;
            let bucket = (tick % BUCKETS) as usize;
            self.due = core::mem::take(&mut self.buckets[bucket]);
            self.occupied[bucket / 64] &= !(1 << (bucket % 64));
            self.references -= self.due.len();
        }
    }

    /// When the next slot comes up.
    pub(crate) fn next(&self) -> Option<Time> {
        self.next_occupied()
            .map(|tick| Time::ZERO + Duration::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }

    fn next_occupied(&self) -> Option<u64> {
        let start = self.tick % BUCKETS;
        let (word, bit) = ((start / 64) as usize, start % 64);
        let words = self.occupied.len();
        for step in 0..=words {
            let at = (word + step) % words;
            let mut bits = self.occupied[at];
            if step == 0 {
                bits &= u64::MAX << bit;
            } else if step == words {
                bits &= !(u64::MAX << bit);
            }
            if bits != 0 {
                let bucket = at as u64 * 64 + u64::from(bits.trailing_zeros());
                let ahead = (bucket + BUCKETS - start) % BUCKETS;
                return Some(self.tick + ahead);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every armed slot comes up after its time and not more than two ticks late, however time
        /// is divided into steps.
        #[test]
        fn what_is_armed_comes_up_in_time(
            steps in prop::collection::vec((0u32..8, 0u64..20_000, 0u64..3_000), 1..60),
        ) {
            let mut wheel = Wheel::new();
            let mut deadlines: [Option<Time>; 8] = [None; 8];
            let mut now = Time::ZERO;
            for (slot, after, wait) in steps {
                let at = now + Duration::from_millis(after);
                deadlines[slot as usize] = Some(at);
                wheel.arm(slot, at);
                now += Duration::from_millis(wait);
                while let Some(slot) = wheel.pop_due(now) {
                    match deadlines[slot as usize] {
                        Some(at) if at > now => wheel.arm(slot, at),
                        _ => deadlines[slot as usize] = None,
                    }
                }
                for at in deadlines.into_iter().flatten() {
                    prop_assert!(now < at + Duration::from_nanos(2 * TICK_NANOS));
                    let next = wheel.next();
                    prop_assert!(next.is_some_and(|next| next <= at + Duration::from_nanos(TICK_NANOS)));
                }
            }
        }
    }

    #[test]
    fn places_that_are_armed_ever_earlier_leave_no_growing_heap_of_references() {
        let mut wheel = Wheel::new();
        let mut now = Time::ZERO;
        for _ in 0..200_000u64 {
            wheel.arm(0, now + Duration::from_secs(3600));
            wheel.arm(0, now + Duration::from_millis(1));
            now += Duration::from_nanos(TICK_NANOS / 2);
            while wheel.pop_due(now).is_some() {}
        }
        assert!(
            wheel.references < 5_000 + BUCKETS as usize,
            "{}",
            wheel.references
        );
    }
}
