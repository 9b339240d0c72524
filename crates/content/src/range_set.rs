//! A set of byte offsets kept as ranges.

use core::ops::Range;
use std::collections::BTreeMap;

/// Disjoint ranges with gaps between them, in order.
///
/// Memory follows the number of ranges, not the offsets: a download in order is a single range.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeSet {
    /// Start to end, exclusive.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Returns the empty set.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// Adds `range`; an empty one changes nothing. O(log n), amortised.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // From the right: every range that begins at or before the end and touches the new one.
        while let Some((&near_start, &near_end)) = self.ranges.range(..=end).next_back() {
            if near_end < start {
                break;
            }
            self.ranges.remove(&near_start);
            start = start.min(near_start);
            end = end.max(near_end);
        }
        self.ranges.insert(start, end);
    }

    /// Takes `range` away. O(log n), amortised.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // From the right: what is left of every range that overlaps.
        while let Some((&start, &end)) = self.ranges.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.ranges.remove(&start);
            if range.end < end {
                self.ranges.insert(range.end, end);
            }
            if start < range.start {
                self.ranges.insert(start, range.start);
                break;
            }
        }
    }

    /// Returns whether every offset of `range` is in the set. True for an empty range.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.end_of_run(range.start) >= range.end
    }

    /// Returns the end of the run of offsets that begins at `start`; `start` itself if it is not in the set.
    pub fn end_of_run(&self, start: u64) -> u64 {
        self.ranges
            .range(..=start)
            .next_back()
            .map_or(start, |(_, &end)| end.max(start))
    }

    /// Returns the ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// Returns the missing ranges below `limit`, in order.
    pub fn gaps(&self, limit: u64) -> impl Iterator<Item = Range<u64>> {
        let starts = core::iter::once(0).chain(self.ranges.values().copied());
        let ends = self.ranges.keys().copied().chain(core::iter::once(limit));
        starts
            .zip(ends)
            .map(move |(start, end)| start..end.min(limit))
            .filter(|gap| !gap.is_empty())
    }

    /// Returns the number of ranges.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the number of offsets in the set. O(number of ranges).
    pub fn total(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_range_set_is_a_set_of_offsets(
            ranges in prop::collection::vec((0u64..60, 0u64..12, 0u8..4), 0..40), limit in 0u64..90, probe in 0u64..80,
        ) {
            let mut set = RangeSet::new();
            let mut model = BTreeSet::new();
            for (start, len, chance) in ranges {
                let range = start..start + len;
                if chance == 0 {
                    set.remove(range.clone());
                    model.retain(|at| !range.contains(at));
                } else {
                    set.insert(range.clone());
                    model.extend(range);
                }
                let listed: Vec<u64> = set.iter().flatten().collect();
                prop_assert_eq!(&listed, &model.iter().copied().collect::<Vec<_>>());
                let kept: Vec<_> = set.iter().collect();
                prop_assert!(kept.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert_eq!(set.total(), model.len() as u64);
                prop_assert_eq!(set.range_count(), kept.len());
            }
            let missing: Vec<u64> = set.gaps(limit).flatten().collect();
            prop_assert_eq!(missing, (0..limit).filter(|at| !model.contains(at)).collect::<Vec<_>>());
            let run_end = (probe..).find(|at| !model.contains(at)).unwrap();
            prop_assert_eq!(set.end_of_run(probe), run_end);
            prop_assert_eq!(set.contains(&(probe..probe + 3)), run_end >= probe + 3);
        }
    }
}
