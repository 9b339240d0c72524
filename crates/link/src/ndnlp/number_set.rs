//! The set of recently arrived consecutive numbers.

const FIRST_WORDS: usize = 64;
const MAX_WORDS: usize = 1024;

/// A window over numbers that slides upwards. It holds at least the latest 65,472 numbers once it
/// has grown. All operations except a long slide are O(1).
#[derive(Clone, Debug)]
pub(crate) struct NumberSet {
    // One bit for each number from `floor` to `next`, at number modulo capacity; bits outside are
    // zero.
    words: Vec<u64>,
    floor: u64,
    next: u64,
}

/// The state of a number before its insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insert {
    /// It is new.
    New,
    /// It is a duplicate.
    Twice,
    /// It is below the window.
    Forgotten,
}

impl NumberSet {
    /// Returns a set whose window begins at `first`.
    pub(crate) fn new(first: u64) -> NumberSet {
        NumberSet {
            words: Vec::new(),
            floor: first,
            next: first,
        }
    }

    /// Returns the largest number plus one, or the first number of an empty set.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the lowest number in the window.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    fn capacity(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    fn index(&self, number: u64) -> (usize, u64) {
        let bit = number & self.capacity().saturating_sub(1);
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        if number < self.floor || number >= self.next {
            return false;
        }
        let (word, bit) = self.index(number);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(crate) fn insert(&mut self, number: u64) -> Insert {
        if number < self.floor {
            return Insert::Forgotten;
        }
        if number >= self.next {
            self.reach(number);
        } else if self.contains(number) {
            return Insert::Twice;
        }
        let (word, bit) = self.index(number);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
        Insert::New
    }

    /// Slides or grows the window so that `number` is its last one.
    fn reach(&mut self, number: u64) {
        while number - self.floor >= self.capacity() && self.words.len() < MAX_WORDS {
            self.grow();
        }
        let lowest = (number + 1).saturating_sub(self.capacity());
        if lowest > self.floor {
            if lowest >= self.next {
                self.words.fill(0);
            } else {
                for gone in self.floor..lowest {
                    let (word, bit) = self.index(gone);
                    if let Some(word) = self.words.get_mut(word) {
                        *word &= !bit;
                    }
                }
            }
            self.floor = lowest;
        }
        self.next = number + 1;
    }

    fn grow(&mut self) {
        let words = (self.words.len() * 2).clamp(FIRST_WORDS, MAX_WORDS);
        let old = core::mem::replace(
            self,
            NumberSet {
                words: vec![0; words],
                ..NumberSet::new(self.floor)
            },
        );
        self.next = old.next;
        for number in old.floor..old.next {
            if old.contains(number) {
                let (word, bit) = self.index(number);
                if let Some(word) = self.words.get_mut(word) {
                    *word |= bit;
                }
            }
        }
    }

    /// Returns the length of the run from `top` downwards, at most to `bottom`, of numbers that are
    /// in the set (`present`) or not in it.
    pub(crate) fn run(&self, top: u64, bottom: u64, present: bool) -> u64 {
        let mut number = top;
        let mut run = 0;
        while number >= bottom.max(self.floor) && number < self.next {
            let (word, _) = self.index(number);
            let bits = self.words.get(word).copied().unwrap_or(0);
            let below = number % 64;
            // The bits from `number` downwards, `number` uppermost.
            let aligned = (if present { bits } else { !bits }) << (63 - below);
            let ones = u64::from(aligned.leading_ones()).min(below + 1);
            run += ones.min(number - bottom.max(self.floor) + 1);
            if ones <= below || number <= below {
                break;
            }
            number -= below + 1;
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The model is a set of numbers.
        #[test]
        fn behaves_like_a_set_of_numbers(
            first in prop_oneof![Just(0u64), 1u64..300, Just(1u64 << 32)],
            steps in prop::collection::vec(prop_oneof![4 => 0i64..8, 2 => -80i64..0, 1 => 0i64..90_000], 1..150),
        ) {
            let mut set = NumberSet::new(first);
            let mut model = BTreeSet::new();
            for step in steps {
                let number = (set.next() as i64 + step).max(0) as u64;
                let expected = if number < set.floor() {
                    Insert::Forgotten
                } else if model.contains(&number) {
                    Insert::Twice
                } else {
                    Insert::New
                };
                prop_assert_eq!(set.insert(number), expected);
                if expected == Insert::New {
                    model.insert(number);
                }
                prop_assert!(set.floor() == first || set.next() - set.floor() == 65_536);
                let bottom = set.floor().max(set.next().saturating_sub(70));
                for probe in bottom..set.next() + 2 {
                    prop_assert_eq!(set.contains(probe), model.contains(&probe));
                    for present in [true, false] {
                        let run = (bottom..=probe).rev()
                            .take_while(|n| *n < set.next() && model.contains(n) == present).count();
                        prop_assert_eq!(set.run(probe, bottom, present), run as u64);
                    }
                }
            }
        }
    }
}
