//! Amounts that count as long as the chunk that they belong to is held.
//!
//! Chunks pass through queues, hops and tables; a count that ends when the last holder drops its
//! value cannot be forgotten on any of these paths.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A sum of charges, in the unit of its owner: bytes or packets.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Sum>);

#[derive(Debug, Default)]
struct Sum {
    amount: AtomicU64,
    // Charges to this pool also count in that one.
    whole: Option<Pool>,
}

/// A part of a [`Pool`]'s sum until its last clone is dropped; the default belongs to no pool.
#[derive(Clone, Debug, Default)]
pub struct Charge {
    part: Option<Arc<Part>>,
}

#[derive(Debug)]
struct Part {
    pool: Pool,
    amount: u64,
}

impl Pool {
    /// Returns a pool whose charges also count in this one.
    pub fn part(&self) -> Pool {
        Pool(Arc::new(Sum {
            amount: AtomicU64::new(0),
            whole: Some(self.clone()),
        }))
    }

    /// Adds `amount` for as long as the charge lives.
    pub fn charge(&self, amount: u64) -> Charge {
        for pool in self.and_wholes() {
            pool.0.amount.fetch_add(amount, Ordering::Relaxed);
        }
        Charge {
            part: Some(Arc::new(Part {
                pool: self.clone(),
                amount,
            })),
        }
    }

    /// Returns true if a part of this pool may take more, of which `most` is to be held in all: it
    /// has at most half of what is left, or `least`. So whatever parts there are, there is room for
    /// another.
    pub(crate) fn admits(&self, part: &Pool, most: u64, least: u64) -> bool {
        part.amount() < (most.saturating_sub(self.amount()) / 2).max(least)
    }

    /// Returns the sum.
    pub fn amount(&self) -> u64 {
        self.0.amount.load(Ordering::Relaxed)
    }

    fn and_wholes(&self) -> impl Iterator<Item = &Pool> {
        core::iter::successors(Some(self), |pool| pool.0.whole.as_ref())
    }
}

impl Charge {
    /// Returns true if it belongs to a pool.
    pub fn is_counted(&self) -> bool {
        self.part.is_some()
    }

    /// Returns its amount, if it counts in this pool itself and in none of its parts.
    pub(crate) fn in_pool(&self, pool: &Pool) -> Option<u64> {
        let part = self.part.as_ref()?;
        Arc::ptr_eq(&part.pool.0, &pool.0).then_some(part.amount)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        for pool in self.pool.and_wholes() {
            pool.0.amount.fetch_sub(self.amount, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_counts_once_until_its_last_clone_is_gone() {
        let pool = Pool::default();
        let (first, second) = (pool.charge(5), pool.charge(7));
        let copy = first.clone();
        assert_eq!(pool.amount(), 12);
        drop(first);
        assert_eq!(pool.amount(), 12);
        drop((copy, second, Charge::default()));
        assert_eq!(pool.amount(), 0);
    }

    #[test]
    fn a_part_takes_no_more_than_half_of_what_is_left() {
        let whole = Pool::default();
        let parts: Vec<Pool> = (0..4).map(|_| whole.part()).collect();
        let mut charges = Vec::new();
        for part in &parts {
            while whole.admits(part, 1000, 0) {
                charges.push(part.charge(1));
            }
        }
        let held: Vec<u64> = parts.iter().map(Pool::amount).collect();
        assert_eq!(held, [333, 222, 148, 99]);
        assert!(whole.admits(&whole.part(), 1000, 0));
        assert!(whole.admits(&parts[3], 0, 100) && !whole.admits(&parts[3], 0, 99));
    }

    #[test]
    fn what_is_charged_to_a_part_counts_to_the_whole() {
        let whole = Pool::default();
        let (one, other) = (whole.part(), whole.part());
        let charges = (one.charge(2), other.charge(3), other.part().charge(4));
        assert_eq!((one.amount(), other.amount(), whole.amount()), (2, 7, 9));
        drop(charges);
        assert_eq!((one.amount(), other.amount(), whole.amount()), (0, 0, 0));
    }
}
