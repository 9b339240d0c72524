//! Bytes that are counted for as long as somebody holds the chunk that they belong to.
//!
//! Chunks that hold no room in the back-pressure buffer wander through queues, hops and tables; a
//! count that ends when the last holder lets go cannot be forgotten on any of those ways.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A sum of charges, in bytes.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<AtomicU64>);

/// A part of a [`Pool`]'s sum until its last clone is dropped; the default is a part of none.
#[derive(Clone, Debug, Default)]
pub struct Charge {
    part: Option<Arc<Part>>,
}

#[derive(Debug)]
struct Part {
    pool: Pool,
    bytes: u64,
}

impl Pool {
    /// Adds `bytes` for as long as the charge lives.
    pub fn charge(&self, bytes: u64) -> Charge {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Charge {
            part: Some(Arc::new(Part {
                pool: self.clone(),
                bytes,
            })),
        }
    }

    /// The sum, in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Charge {
    /// True if it is a part of a pool.
    pub fn is_counted(&self) -> bool {
        self.part.is_some()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.pool.0.fetch_sub(self.bytes, Ordering::Relaxed);
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
        assert_eq!(pool.bytes(), 12);
        drop(first);
        assert_eq!(pool.bytes(), 12);
        drop((copy, second, Charge::default()));
        assert_eq!(pool.bytes(), 0);
    }
}
