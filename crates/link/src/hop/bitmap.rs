//! A set of packet numbers of one chunk.

/// Bits `0..len` in 64-bit words; bits at and above `len` are always zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bitmap {
    words: Vec<u64>,
    len: usize,
    ones: usize,
}

impl Bitmap {
    /// Returns a set of `len` zeros.
    pub(super) fn new(len: usize) -> Bitmap {
        Bitmap {
            words: vec![0; len.div_ceil(64)],
            len,
            ones: 0,
        }
    }

    pub(super) fn count_ones(&self) -> usize {
        self.ones
    }

    pub(super) fn is_full(&self) -> bool {
        self.ones == self.len
    }

    pub(super) fn get(&self, index: usize) -> bool {
        self.words
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Sets a bit. Returns true if it was clear; false if it is out of range.
    pub(super) fn set(&mut self, index: usize) -> bool {
        if index >= self.len || self.get(index) {
            return false;
        }
        self.words[index / 64] |= 1 << (index % 64);
        self.ones += 1;
        true
    }

    /// Clears a bit. Returns true if it was set.
    pub(super) fn clear(&mut self, index: usize) -> bool {
        if !self.get(index) {
            return false;
        }
        self.words[index / 64] &= !(1 << (index % 64));
        self.ones -= 1;
        true
    }

    /// Sets all bits to zero.
    pub(super) fn reset(&mut self) {
        self.words.fill(0);
        self.ones = 0;
    }

    /// Returns the lowest set bit.
    pub(super) fn first(&self) -> Option<usize> {
        if self.ones == 0 {
            return None;
        }
        let word = self.words.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// Returns the number of set bits from 0 on without a gap, rounded down to a multiple of 8.
    pub(super) fn leading_bytes(&self) -> usize {
        let full = self
            .words
            .iter()
            .take_while(|word| **word == u64::MAX)
            .count();
        let rest = self
            .words
            .get(full)
            .map_or(0, |word| word.trailing_ones() as usize / 8);
        full * 8 + rest
    }

    /// Returns word `index`: bits `64 * index..64 * index + 64`.
    pub(super) fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// Replaces word `index`; bits at and above the length are ignored.
    pub(super) fn set_word(&mut self, index: usize, value: u64) {
        let valid = low_bits(self.len.saturating_sub(index * 64));
        if let Some(word) = self.words.get_mut(index) {
            let value = value & valid;
            self.ones = self.ones - word.count_ones() as usize + value.count_ones() as usize;
            *word = value;
        }
    }

    pub(super) fn word_count(&self) -> usize {
        self.words.len()
    }

    /// Returns byte `index` as on the wire: bit `i` of the set is bit `i % 8` of byte `i / 8`.
    pub(super) fn byte(&self, index: usize) -> u8 {
        (self.word(index / 8) >> (index % 8 * 8)) as u8
    }

    /// Returns the index after the last byte that is not zero.
    pub(super) fn used_bytes(&self) -> usize {
        match self.words.iter().rposition(|word| *word != 0) {
            Some(word) => word * 8 + (64 - self.words[word].leading_zeros() as usize).div_ceil(8),
            None => 0,
        }
    }
}

/// Returns a word whose lowest `count` bits are set (all of them from 64 on).
pub(super) fn low_bits(count: usize) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(len in 1usize..300, steps in prop::collection::vec((0u8..3, 0usize..320, any::<u64>()), 0..200)) {
            let mut bitmap = Bitmap::new(len);
            let mut model: BTreeSet<usize> = BTreeSet::new();
            for (step, index, word) in steps {
                match step {
                    0 => prop_assert_eq!(bitmap.set(index), index < len && model.insert(index)),
                    1 => prop_assert_eq!(bitmap.clear(index), model.remove(&index)),
                    _ => {
                        let at = index / 64;
                        bitmap.set_word(at, word);
                        for bit in 0..64 {
                            let index = at * 64 + bit;
                            if word >> bit & 1 == 1 && index < len { model.insert(index); } else { model.remove(&index); }
                        }
                    }
                }
                prop_assert_eq!(bitmap.count_ones(), model.len());
                prop_assert_eq!(bitmap.first(), model.first().copied());
                prop_assert_eq!(bitmap.is_full(), model.len() == len);
                prop_assert_eq!(bitmap.used_bytes(), model.last().map_or(0, |last| last / 8 + 1));
                let leading = (0..).take_while(|i| model.contains(i)).count();
                prop_assert_eq!(bitmap.leading_bytes(), leading / 8);
                for byte in 0..len.div_ceil(8) {
                    let expected = (0..8).filter(|bit| model.contains(&(byte * 8 + bit))).fold(0, |sum, bit| sum | 1u8 << bit);
                    prop_assert_eq!(bitmap.byte(byte), expected);
                }
            }
        }
    }
}
