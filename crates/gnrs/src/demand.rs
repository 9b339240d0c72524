//! Demand for names that are kept elsewhere: which of them are worth a copy here.
//!
//! After the placement by demand of [Auspice], decided by each server for itself: a name whose count, halved each
//! [`HALF_LIFE`], reaches [`ENOUGH`] gets a copy, and loses it once the count has fallen below [`TOO_LITTLE`].

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, Time};

/// Time in which a count halves.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// Look-ups of late that are worth a copy: it costs a watch, its renewals and a push for each update.
const ENOUGH: f64 = 3.0;
/// A copy with fewer look-ups of late is given up.
const TOO_LITTLE: f64 = 0.5;
/// Counts that are kept for each name that may have a copy.
const COUNTS_PER_COPY: usize = 4;
/// A name takes another one's copy if it is asked for this many times as often.
const MUCH_MORE: f64 = 2.0;

/// The logarithm (base 2) of a count as it would be at the beginning of time, in millionths: it stays the
/// same while the count decays, so that ranks of different times compare.
type DemandRank = i64;

/// Counts of look-ups that decay, and the names that deserve a copy. Bounded to four times `most` names.
#[derive(Debug)]
pub struct NameDemand {
    most: usize,
    ranks: BTreeMap<Guid, DemandRank>,
    /// Of names without a copy, and of those with one.
    others: BTreeSet<(DemandRank, Guid)>,
    followed: BTreeSet<(DemandRank, Guid)>,
}

/// What a look-up changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DemandChange {
    /// True if the name is to get a copy.
    pub follow: bool,
    /// The name that loses its copy to it.
    pub left: Option<Guid>,
}

impl NameDemand {
    /// Returns an empty account that chooses at most `most` names.
    pub fn new(most: usize) -> NameDemand {
        NameDemand {
            most,
            ranks: BTreeMap::new(),
            others: BTreeSet::new(),
            followed: BTreeSet::new(),
        }
    }

    /// Returns true if the name is to have a copy.
    pub fn is_followed(&self, name: &Guid) -> bool {
        let rank = self.ranks.get(name);
        rank.is_some_and(|rank| self.followed.contains(&(*rank, *name)))
    }

    /// Returns the number of names that are to have copies.
    pub fn followed(&self) -> usize {
        self.followed.len()
    }

    /// Counts a look-up.
    pub fn note(&mut self, now: Time, name: Guid) -> DemandChange {
        let known = self.ranks.get(&name).copied();
        let count = known.map_or(0.0, |rank| count_of(rank, now)) + 1.0;
        let rank = rank_of(count, now);
        self.ranks.insert(name, rank);
        if let Some(known) = known
            && self.followed.remove(&(known, name))
        {
            self.followed.insert((rank, name));
            return DemandChange::default();
        }
        if let Some(known) = known {
            self.others.remove(&(known, name));
        }
        self.others.insert((rank, name));
        let change = match count >= ENOUGH {
            true => self.promote(now, rank, name),
            false => DemandChange::default(),
        };
        if self.others.len() > self.most.saturating_mul(COUNTS_PER_COPY)
            && let Some((_, least)) = self.others.pop_first()
        {
            self.ranks.remove(&least);
        }
        change
    }

    fn promote(&mut self, now: Time, rank: DemandRank, name: Guid) -> DemandChange {
        let mut left = None;
        if self.followed.len() >= self.most {
            let Some(least) = self.followed.first().copied() else {
                return DemandChange::default();
            };
            if count_of(least.0, now) * MUCH_MORE > count_of(rank, now) {
                return DemandChange::default();
            }
            self.followed.remove(&least);
            self.others.insert(least);
            left = Some(least.1);
        }
        self.others.remove(&(rank, name));
        self.followed.insert((rank, name));
        DemandChange { follow: true, left }
    }

    /// Returns a name whose copy is not worth its cost any longer.
    pub fn fallen(&mut self, now: Time) -> Option<Guid> {
        let (rank, name) = *self.followed.first()?;
        if count_of(rank, now) >= TOO_LITTLE {
            return None;
        }
        self.forget(&name);
        Some(name)
    }

    /// Forgets a name, whose copy cannot be had.
    pub fn forget(&mut self, name: &Guid) {
        if let Some(rank) = self.ranks.remove(name) {
            self.followed.remove(&(rank, *name));
            self.others.remove(&(rank, *name));
        }
    }
}

fn half_lives(now: Time) -> f64 {
    now.as_secs_f64() / HALF_LIFE.as_secs_f64()
}

fn rank_of(count: f64, now: Time) -> DemandRank {
    ((count.log2() + half_lives(now)) * 1e6).round() as DemandRank
}

fn count_of(rank: DemandRank, now: Time) -> f64 {
    (rank as f64 / 1e6 - half_lives(now)).exp2()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(number: u8) -> Guid {
        Guid([number; 32])
    }

    #[test]
    fn a_name_that_is_often_asked_for_gets_a_copy_until_it_is_not() {
        let mut demand = NameDemand::new(2);
        assert!(!demand.note(Time::from_secs(0), name(1)).follow);
        assert!(!demand.note(Time::from_secs(60), name(1)).follow, "1.5");
        assert!(!demand.note(Time::from_secs(61), name(1)).follow, "2.5");
        assert!(demand.note(Time::from_secs(62), name(1)).follow);
        assert!(demand.is_followed(&name(1)));
        assert_eq!(demand.fallen(Time::from_secs(62 + 120)), None, "0.9");
        assert_eq!(demand.fallen(Time::from_secs(62 + 180)), Some(name(1)));
        assert!(!demand.is_followed(&name(1)));
    }

    #[test]
    fn a_name_takes_the_place_of_one_that_is_asked_for_half_as_often() {
        let mut demand = NameDemand::new(1);
        let now = Time::from_secs(1);
        let ask = |demand: &mut NameDemand, number: u8, times: usize| -> Vec<DemandChange> {
            (0..times).map(|_| demand.note(now, name(number))).collect()
        };
        ask(&mut demand, 1, 4);
        let changes = ask(&mut demand, 2, 9);
        assert!(changes[..7].iter().all(|it| *it == DemandChange::default()));
        let left = Some(name(1));
        assert!(changes[7..].contains(&DemandChange { follow: true, left }));
        assert_eq!(demand.followed(), 1);
    }

    proptest! {
        /// Against counts that are computed from all look-ups.
        #[test]
        fn counts_are_those_of_a_model_and_memory_is_bounded(
            asked in prop::collection::vec((0u8..30, 0u64..20), 1..200),
            most in 1usize..5,
        ) {
            let mut demand = NameDemand::new(most);
            let mut all: Vec<(Time, u8)> = Vec::new();
            let mut now = Time::ZERO;
            let mut copies = BTreeSet::new();
            for (number, wait) in asked {
                now += Duration::from_secs(wait);
                while let Some(gone) = demand.fallen(now) {
                    prop_assert!(copies.remove(&gone));
                }
                all.push((now, number));
                let change = demand.note(now, name(number));
                if let Some(left) = change.left {
                    prop_assert!(copies.remove(&left));
                }
                if change.follow {
                    prop_assert!(copies.insert(name(number)));
                    let count: f64 = all.iter().filter(|(_, it)| *it == number)
                        .map(|(at, _)| (-half_lives(now) + half_lives(*at)).exp2()).sum();
                    prop_assert!(count >= ENOUGH - 1e-3, "{count}");
                }
                prop_assert!(copies.len() <= most);
                prop_assert_eq!(copies.len(), demand.followed());
                prop_assert!(copies.iter().all(|it| demand.is_followed(it)));
                prop_assert!(demand.ranks.len() <= most * (1 + COUNTS_PER_COPY) + 1);
                prop_assert_eq!(demand.ranks.len(), demand.others.len() + demand.followed.len());
            }
        }
    }
}
