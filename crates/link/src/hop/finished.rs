//! The finished transfers of a neighbour: a window of ids that slides with the newest one.

/// The state of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not over, or never seen.
    Open,
    /// Received whole, or cancelled.
    Finished,
    /// From before the window or the session: its state is unknown, so it must not be delivered.
    Stale,
}

/// The finished ones among the last `size` ids, as an anti-replay window of one bit each.
///
/// Ids on the wire are 32 bits and wrap; here they are unwrapped to 64 bits around the newest one.
#[derive(Clone, Debug)]
pub(super) struct FinishedWindow {
    bits: Vec<u64>,
    // The first id of the session. Earlier ones were never received in it, so they must not count
    // as finished.
    first: u64,
    newest: u64,
}

/// Keeps unwrapped ids above 0.
const ORIGIN: u64 = 1 << 32;

impl FinishedWindow {
    /// Returns a window of `size` ids, a multiple of 64; no id before `first` is open.
    pub(super) fn new(size: u16, first: u32) -> FinishedWindow {
        let first = ORIGIN + u64::from(first);
        FinishedWindow {
            bits: vec![0; usize::from(size).div_ceil(64).max(1)],
            first,
            newest: first - 1,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.bits.len() as u64 * 64
    }

    /// Returns the id for `wire`: the one nearest to the newest id.
    pub(super) fn unwrap(&self, wire: u32) -> u64 {
        let distance = wire.wrapping_sub(self.newest as u32) as i32;
        self.newest.saturating_add_signed(i64::from(distance))
    }

    pub(super) fn standing(&self, id: u64) -> Standing {
        if id > self.newest {
            Standing::Open
        } else if id < self.first || id + self.size() <= self.newest {
            Standing::Stale
        } else if self.bits[self.place(id).0] >> self.place(id).1 & 1 == 1 {
            Standing::Finished
        } else {
            Standing::Open
        }
    }

    /// Moves the window so that it includes `id`. Returns the oldest id in the window.
    pub(super) fn admit(&mut self, id: u64) -> u64 {
        if id > self.newest {
            if id - self.newest >= self.size() {
                self.bits.fill(0);
            } else {
                for fresh in self.newest + 1..=id {
                    let (word, bit) = self.place(fresh);
                    self.bits[word] &= !(1 << bit);
                }
            }
            self.newest = id;
        }
        (self.newest + 1).saturating_sub(self.size())
    }

    /// Marks an admitted id.
    pub(super) fn finish(&mut self, id: u64) {
        if self.standing(id) == Standing::Open && id <= self.newest {
            let (word, bit) = self.place(id);
            self.bits[word] |= 1 << bit;
        }
    }

    fn place(&self, id: u64) -> (usize, u32) {
        let index = id % self.size();
        ((index / 64) as usize, (index % 64) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn remembers_exactly_the_last_ids(first: u32, steps in prop::collection::vec((0u32..300, any::<bool>()), 1..200)) {
            let mut window = FinishedWindow::new(128, first);
            let mut finished = BTreeSet::new();
            let origin = window.unwrap(first);
            let mut newest = origin - 1;
            let mut base = first;
            for (step, finish) in steps {
                // Ids increase, with steps back of up to 150.
                base = base.wrapping_add(step / 2);
                let wire = base.wrapping_sub(step / 2 % 150);
                let id = window.unwrap(wire);
                prop_assert_eq!(id as u32, wire);
                let expected = if id + 128 <= newest || id < origin { Standing::Stale }
                    else if finished.contains(&id) { Standing::Finished }
                    else { Standing::Open };
                prop_assert_eq!(window.standing(id), expected);
                if expected == Standing::Open {
                    window.admit(id);
                    newest = newest.max(id);
                    if finish { window.finish(id); finished.insert(id); }
                }
            }
        }
    }
}
