//! Nonces of Interests that are no longer pending: they detect loops after the PIT has forgotten an
//! Interest.

use core::time::Duration;

use whimbrel_core::Time;

use crate::tables::prefetch;

/// Nonces whose hashes select the same bucket share one cache line.
const BUCKET: usize = 8;

/// Aligned: otherwise a bucket could span two cache lines, depending on the allocator, and half of
/// the prefetches would be wasted.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([u64; BUCKET]);

/// Time is kept in units of about 17 ms.
const UNIT_BITS: u32 = 24;
/// Bits of time in a cell: it wraps after three days.
const TIME_BITS: u32 = 24;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// The dead nonce list: hashes of names with nonces, each for a while. Its memory is fixed; in a
/// full bucket the oldest nonce is evicted. A nonce that was never added matches once in about
/// 10^11 lookups: its sender then retransmits with another nonce.
#[derive(Clone, Debug)]
pub(crate) struct DeadNonces {
    lifetime: Duration,
    /// A power of two of buckets, or none before the first nonce.
    buckets: Vec<Bucket>,
    capacity: usize,
    /// When the last one expires: after that there is nothing to find until the next is added.
    last_expiry: Time,
    now: Time,
}

impl DeadNonces {
    /// Returns a list that keeps nonces for `lifetime`, at most about `capacity` of them (the power
    /// of two below it).
    pub(crate) fn new(lifetime: Duration, capacity: usize) -> DeadNonces {
        let capacity = capacity.min(1 << 30);
        DeadNonces {
            lifetime,
            buckets: Vec::new(),
            capacity,
            last_expiry: Time::ZERO,
            now: Time::ZERO,
        }
    }

    /// Returns the number of unexpired nonces when the time was last set. Counts them.
    pub(crate) fn len(&self) -> usize {
        let alive = |cell: &&u64| **cell != 0 && is_alive(**cell, self.now);
        self.buckets
            .iter()
            .flat_map(|bucket| &bucket.0)
            .filter(alive)
            .count()
    }

    /// True without any nonce.
    pub(crate) fn is_empty(&self) -> bool {
        self.now >= self.last_expiry
    }

    pub(crate) const fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Adds the nonce of a name, given by its hash.
    pub(crate) fn add(&mut self, now: Time, name_hash: u64, nonce: u32) {
        if self.capacity < BUCKET {
            return;
        }
        if self.buckets.is_empty() {
            let buckets = self.capacity / BUCKET;
            let power = if buckets.is_power_of_two() {
                buckets
            } else {
                buckets.next_power_of_two() / 2
            };
            self.buckets = vec![Bucket([0; BUCKET]); power];
        }
        self.look(now);
        let expiry = now + self.lifetime;
        self.last_expiry = self.last_expiry.max(expiry);
        let hash = mix(name_hash, nonce);
        let cell = tag(hash) | (units(expiry) + 1) & TIME_MASK;
        let mask = self.buckets.len() - 1;
        let Some(Bucket(bucket)) = self.buckets.get_mut(hash as usize & mask) else {
            return;
        };
        let place = bucket
            .iter_mut()
            .min_by_key(|cell| (tag(**cell) != tag(hash), remaining(**cell, now)));
        if let Some(place) = place {
            *place = cell;
        }
    }

    /// True if the nonce is in the list.
    #[inline]
    pub(crate) fn has(&mut self, now: Time, name_hash: u64, nonce: u32) -> bool {
        self.look(now);
        if self.is_empty() {
            return false;
        }
        let hash = mix(name_hash, nonce);
        let bucket = self
            .buckets
            .get(hash as usize & self.buckets.len().wrapping_sub(1));
        bucket.is_some_and(|Bucket(bucket)| {
            bucket
                .iter()
                .any(|cell| *cell != 0 && tag(*cell) == tag(hash) && is_alive(*cell, now))
        })
    }

    /// Prefetches the bucket of a nonce.
    #[inline]
    pub(crate) fn prefetch(&self, name_hash: u64, nonce: u32) {
        let at = mix(name_hash, nonce) as usize & self.buckets.len().wrapping_sub(1);
        prefetch::element(&self.buckets, at);
    }

    /// Sets the time.
    pub(crate) fn look(&mut self, now: Time) {
        self.now = self.now.max(now);
    }
}

/// The name's hash is secret: mixing it with the nonce is enough.
fn mix(name_hash: u64, nonce: u32) -> u64 {
    let mut hash = name_hash ^ u64::from(nonce).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Returns the half of a cell that is not time; the other bits of the hash select the bucket.
const fn tag(hash: u64) -> u64 {
    hash & !TIME_MASK
}

const fn units(time: Time) -> u64 {
    (time.as_nanos() >> UNIT_BITS) & TIME_MASK
}

/// Units of time until a cell expires; zero if it has.
fn remaining(cell: u64, now: Time) -> u64 {
    let left = (cell & TIME_MASK).wrapping_sub(units(now)) & TIME_MASK;
    if cell == 0 || left > TIME_MASK / 2 {
        0
    } else {
        left
    }
}

fn is_alive(cell: u64, now: Time) -> bool {
    remaining(cell, now) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: u64 = 0x0123_4567_89ab_cdef;

    #[test]
    fn nonces_are_forgotten_after_their_lifetime() {
        let mut list = DeadNonces::new(Duration::from_secs(6), 1024);
        let start = Time::from_secs(1);
        assert!(list.is_empty() && !list.has(start, NAME, 0));
        for nonce in 0..4 {
            list.add(start + Duration::from_secs(u64::from(nonce)), NAME, nonce);
        }
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|nonce| list.has(at(4000), NAME, nonce)),
            [true, true, true, true, false]
        );
        assert!(!list.has(at(4000), NAME + 1, 3), "another name");
        assert_eq!(list.len(), 4);
        assert!(!list.has(at(7050), NAME, 1) && list.has(at(7050), NAME, 2));
        list.look(at(9050));
        assert!(list.is_empty());
        assert_eq!(list.len(), 0);
    }

    #[test]
    fn of_too_many_the_newest_are_known() {
        let mut list = DeadNonces::new(Duration::from_secs(6), 5000);
        for nonce in 0..100_000u32 {
            list.add(Time::from_nanos(u64::from(nonce) * 10_000), NAME, nonce);
        }
        assert!(list.len() <= 4096);
        let known = |list: &mut DeadNonces, from: u32, to| {
            (from..to)
                .filter(|nonce| list.has(Time::from_secs(1), NAME, *nonce))
                .count()
        };
        assert!(known(&mut list, 98_000, 100_000) > 1900);
        assert!(known(&mut list, 0, 80_000) < 10);
    }

    #[test]
    fn without_capacity_nothing_is_known() {
        let mut list = DeadNonces::new(Duration::from_secs(6), 0);
        list.add(Time::ZERO, NAME, 1);
        assert!(!list.has(Time::ZERO, NAME, 1));
    }
}
