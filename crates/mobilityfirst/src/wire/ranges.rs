//! Sets of chunk indices on the wire: wanted, missing, stored or dropped.

use core::ops::Range;

use super::{Reader, WireError};

/// Maximum of ranges in one message: 2 KiB, so that a list of losses fits a small chunk.
pub const MAX_RANGES: usize = 256;

/// A set of chunk numbers, kept as sorted ranges that neither touch nor overlap.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ChunkRanges(Vec<Range<u32>>);

impl ChunkRanges {
    /// Every chunk index: the request of a receiver that does not know the content's length.
    pub fn all() -> ChunkRanges {
        ChunkRanges::from(0..u32::MAX)
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.0.iter().cloned()
    }

    /// Returns the number of indices.
    pub fn count(&self) -> u64 {
        self.0
            .iter()
            .map(|range| u64::from(range.end - range.start))
            .sum()
    }

    /// Returns the smallest index.
    pub fn first(&self) -> Option<u32> {
        self.0.first().map(|range| range.start)
    }

    /// Returns true if the set has `index`.
    pub fn contains(&self, index: u32) -> bool {
        let after = self.0.partition_point(|range| range.end <= index);
        self.0
            .get(after)
            .is_some_and(|range| range.contains(&index))
    }

    /// Adds one index.
    pub fn insert(&mut self, index: u32) {
        self.insert_range(index..index.saturating_add(1));
    }

    /// Adds all indices of `range`.
    pub fn insert_range(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        let from = self.0.partition_point(|old| old.end < range.start);
        let to = self.0.partition_point(|old| old.start <= range.end);
        let start = self
            .0
            .get(from)
            .filter(|_| from < to)
            .map_or(range.start, |old| old.start.min(range.start));
        let end = self.0[from..to]
            .last()
            .map_or(range.end, |old| old.end.max(range.end));
        self.0.splice(from..to, core::iter::once(start..end));
    }

    /// Removes all indices of `range`.
    pub fn remove_range(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        let from = self.0.partition_point(|old| old.end <= range.start);
        let to = self.0.partition_point(|old| old.start < range.end);
        let mut kept = Vec::new();
        for old in &self.0[from..to] {
            if old.start < range.start {
                kept.push(old.start..range.start);
            }
            if old.end > range.end {
                kept.push(range.end..old.end);
            }
        }
        self.0.splice(from..to, kept);
    }

    /// Removes and returns the smallest index.
    pub fn pop_first(&mut self) -> Option<u32> {
        let first = self.first()?;
        self.remove_range(first..first + 1);
        Some(first)
    }

    /// Adds all indices of `other`.
    pub fn union(&mut self, other: &ChunkRanges) {
        other.iter().for_each(|range| self.insert_range(range));
    }

    /// Removes all indices of `other`. Takes a time that grows with the ranges of this set, and with the
    /// logarithm of those of the other one.
    pub fn subtract(&mut self, other: &ChunkRanges) {
        let mut kept = Vec::with_capacity(self.0.len());
        for range in &self.0 {
            let mut start = range.start;
            let first = other.0.partition_point(|gone| gone.end <= start);
            let overlaps = other.0[first..].iter();
            for gone in overlaps.take_while(|gone| gone.start < range.end) {
                if start < gone.start {
                    kept.push(start..gone.start);
                }
                start = gone.end;
            }
            if start < range.end {
                kept.push(start..range.end);
            }
        }
        self.0 = kept;
    }

    /// Returns the intersection of both.
    pub fn intersection(&self, other: &ChunkRanges) -> ChunkRanges {
        let mut both = self.clone();
        let mut outside = self.clone();
        outside.subtract(other);
        both.subtract(&outside);
        both
    }

    /// Returns the indices of the same bytes in chunks of a size `log2` powers of two smaller. The
    /// last index stands for all beyond it.
    pub fn divided(&self, log2: u8) -> ChunkRanges {
        let mut divided = ChunkRanges::default();
        for range in &self.0 {
            divided.insert_divided(range.clone(), log2);
        }
        divided
    }

    /// Adds the indices of the bytes of `range` in chunks of a size `log2` powers of two smaller, as
    /// [`ChunkRanges::divided`].
    pub(crate) fn insert_divided(&mut self, range: Range<u32>, log2: u8) {
        let part = |index: u32| {
            let part = u64::from(index) << log2;
            u32::try_from(part).unwrap_or(u32::MAX)
        };
        self.insert_range(part(range.start)..part(range.end));
    }

    /// Appends at most the first [`MAX_RANGES`] ranges: the rest follows in a later message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ranges = &self.0[..self.0.len().min(MAX_RANGES)];
        out.extend_from_slice(&(ranges.len() as u16).to_be_bytes());
        for range in ranges {
            out.extend_from_slice(&range.start.to_be_bytes());
            out.extend_from_slice(&range.end.to_be_bytes());
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<ChunkRanges, WireError> {
        let count = usize::from(reader.u16()?);
        if count > MAX_RANGES {
            return Err(WireError::Invalid("number of ranges"));
        }
        let mut ranges = Vec::with_capacity(count);
        let mut last_end = None;
        for _ in 0..count {
            let range = reader.u32()?..reader.u32()?;
            if range.is_empty() || last_end.is_some_and(|end| range.start <= end) {
                return Err(WireError::Invalid("order of ranges"));
            }
            last_end = Some(range.end);
            ranges.push(range);
        }
        Ok(ChunkRanges(ranges))
    }
}

impl FromIterator<u32> for ChunkRanges {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> ChunkRanges {
        let mut ranges = ChunkRanges::default();
        numbers.into_iter().for_each(|index| ranges.insert(index));
        ranges
    }
}

impl From<Range<u32>> for ChunkRanges {
    fn from(range: Range<u32>) -> ChunkRanges {
        let mut ranges = ChunkRanges::default();
        ranges.insert_range(range);
        ranges
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    pub(crate) fn any_ranges() -> impl Strategy<Value = ChunkRanges> {
        prop::collection::vec((0u32..60, 0u32..9), 0..12).prop_map(|list| {
            let mut ranges = ChunkRanges::default();
            list.into_iter()
                .for_each(|(start, len)| ranges.insert_range(start..start + len));
            ranges
        })
    }

    fn set(ranges: &ChunkRanges) -> BTreeSet<u32> {
        ranges.iter().flatten().collect()
    }

    proptest! {
        /// Compares with a set of single indices.
        #[test]
        fn behaves_like_a_set(a in any_ranges(), b in any_ranges(), index in 0u32..80) {
            let (model_a, model_b) = (set(&a), set(&b));
            let (mut union, mut difference) = (a.clone(), a.clone());
            union.union(&b);
            difference.subtract(&b);
            prop_assert_eq!(set(&union), &model_a | &model_b);
            prop_assert_eq!(set(&difference), &model_a - &model_b);
            prop_assert_eq!(set(&a.intersection(&b)), &model_a & &model_b);
            prop_assert_eq!(a.contains(index), model_a.contains(&index));
            prop_assert_eq!(a.count(), model_a.len() as u64);
            let mut popped = a.clone();
            prop_assert_eq!(popped.pop_first(), model_a.first().copied());
            for pair in union.0.windows(2) {
                prop_assert!(pair[0].end < pair[1].start, "ranges touch: {:?}", union);
            }
        }

        #[test]
        fn round_trips(ranges in any_ranges()) {
            let mut bytes = Vec::new();
            ranges.encode(&mut bytes);
            prop_assert_eq!(ChunkRanges::decode(&mut Reader(&bytes)), Ok(ranges));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = ChunkRanges::decode(&mut Reader(&bytes));
        }
    }
}
