//! The forwarding acceleration base: from names of flows to entries of the FIB.
//!
//! "The design principle of FAB is to create the low-complexity one-to-one mapping from the flow
//! name to the FIB entry to replace LPM" ([PTP §4-B]): a hash table, and a list in the order
//! of use whose last flow is evicted. The flow name is the Interest's name "without the packet's
//! postfix", its last component.

use crate::config::CsPolicy;
use crate::tables::cs::policy::{Linked, Links, Policy};
use crate::tables::fib::{Fib, NextHop};
use crate::tables::index::{Index, Slab};
use crate::tables::name_key::{MAX_DEPTH, NameHasher, NameKey};

#[derive(Clone, Debug)]
struct Flow {
    /// Of the flow's name. "FAB can compare the input flow name and the flow prefix (in the
    /// FIB-entry) without storing the key" ([PTP §4-B]).
    hash: u64,
    /// Its place in the FIB, as of this number of changes of the FIB.
    entry: u32,
    changes: u64,
    links: Links,
}

impl Linked for Flow {
    fn links(&self) -> &Links {
        &self.links
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
    fn hash(&self) -> u64 {
        self.hash
    }
}

/// Flows and their FIB entries. Never changes a decision: it gives what the longest prefix match
/// of the name would.
#[derive(Clone, Debug)]
pub(crate) struct Fab {
    capacity: usize,
    flows: Slab<Flow>,
    index: Index,
    /// In the order of use.
    order: Policy,
    /// Lookups answered without a longest prefix match.
    hits: u64,
}

impl Fab {
    /// Returns a base of at most this number of flows.
    pub(crate) fn new(capacity: usize) -> Fab {
        Fab {
            capacity,
            flows: Slab::new(),
            index: Index::new(),
            order: Policy::new(CsPolicy::Lru),
            hits: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.flows.len()
    }

    pub(crate) const fn hits(&self) -> u64 {
        self.hits
    }

    /// The next hops of a name, as [`Fib::lookup`] gives them. Of the key, the lengths of the FIB's prefixes
    /// must have been requested; with the parent, nothing is hashed here.
    pub(crate) fn next_hops<'a>(
        &mut self,
        fib: &'a Fib,
        hasher: &NameHasher,
        key: &NameKey,
        name: &[u8],
    ) -> &'a [NextHop] {
        let components = key.components();
        let depth = components.saturating_sub(1);
        if components == 0 || depth > MAX_DEPTH || self.capacity == 0 {
            return fib.lookup(key, name).unwrap_or_default().1;
        }
        // An entry for the whole name is one for this packet, not for its flow.
        if let Some(hops) = fib.whole(key, name) {
            return hops;
        }
        let hash_parent = || hasher.hash_value(name.get(..key.end(depth)).unwrap_or_default());
        let hash = key.parent().unwrap_or_else(hash_parent);
        let flows = &self.flows;
        let known = self.index.find(hash, |slot| {
            flows.get(slot).is_some_and(|flow| flow.hash == hash)
        });
        if let Some(slot) = known
            && let Some(flow) = self.flows.get(slot)
            && flow.changes == fib.changes()
            && let Some(hops) = fib.entry(flow.entry, name)
        {
            self.order.touch(&mut self.flows, slot);
            self.hits += 1;
            return hops;
        }
        let Some(entry) = fib.longest_entry(key, name) else {
            return &[];
        };
        self.insert(known, hash, entry, fib.changes());
        fib.entry(entry, name).unwrap_or_default()
    }

    /// Prefetches the index cell of a name's flow.
    #[inline]
    pub(crate) fn prefetch_cell(&self, key: &NameKey) {
        if let Some(hash) = key.parent() {
            self.index.prefetch(hash);
        }
    }

    /// Prefetches the flow likely found there.
    #[inline]
    pub(crate) fn prefetch_entry(&self, key: &NameKey) {
        if let Some(hash) = key.parent() {
            self.flows.prefetch(self.index.guess(hash));
        }
    }

    /// Prefetches the FIB entry of that flow.
    #[inline]
    pub(crate) fn prefetch_next_hops(&self, fib: &Fib, key: &NameKey) {
        let likely = key.parent().map(|hash| self.index.guess(hash));
        if let Some(flow) = likely.and_then(|slot| self.flows.get(slot)) {
            fib.prefetch_place(flow.entry);
        }
    }

    fn insert(&mut self, known: Option<u32>, hash: u64, entry: u32, changes: u64) {
        if let Some(slot) = known {
            if let Some(flow) = self.flows.get_mut(slot) {
                (flow.entry, flow.changes) = (entry, changes);
            }
            self.order.touch(&mut self.flows, slot);
            return;
        }
        if self.flows.len() >= self.capacity
            && let Some(slot) = self.order.evict(&mut self.flows)
            && let Some(flow) = self.flows.remove(slot)
        {
            self.index.remove(flow.hash, slot);
        }
        let slot = self.flows.insert(Flow {
            hash,
            entry,
            changes,
            links: Links::new(1),
        });
        self.index.insert(hash, slot);
        self.order.insert(&mut self.flows, slot);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whimbrel_core::SeededRng;
    use whimbrel_ndn_packet::{Name, NameRef};

    use super::*;
    use crate::face::FaceId;
    use crate::tables::name_key::PARENT;

    fn tables(capacity: usize) -> (Fab, Fib, NameHasher) {
        let hasher = NameHasher::new(&mut SeededRng::new(1));
        (Fab::new(capacity), Fib::new(hasher), hasher)
    }

    /// As the pipeline of an Interest asks.
    fn ask<'a>(
        fab: &mut Fab,
        fib: &'a Fib,
        hasher: &NameHasher,
        name: NameRef<'_>,
    ) -> &'a [NextHop] {
        let mut key = NameKey::default();
        key.read(hasher, name, fib.depths() | PARENT);
        fab.next_hops(fib, hasher, &key, name.value())
    }

    fn name(components: &[u8]) -> Name {
        components
            .iter()
            .fold(Name::root(), |name, octet| name.child_generic(&[*octet]))
    }

    #[test]
    fn a_match_counts_as_newly_inserted_and_the_earliest_tuple_is_deleted() {
        let (mut fab, mut fib, hasher) = tables(2);
        fib.add_next_hop(Name::root().as_ref(), FaceId(256), 0)
            .unwrap();
        let mut hits = |flow: u8, segment: u8| {
            let before = fab.hits();
            ask(&mut fab, &fib, &hasher, name(&[flow, segment]).as_ref());
            assert!(fab.len() <= 2);
            fab.hits() > before
        };
        assert!(
            !hits(1, 0) && !hits(2, 0),
            "the insertions of tuples are triggered by Interests"
        );
        assert!(
            hits(1, 1) && hits(2, 1),
            "another packet of the flow matches"
        );
        assert!(hits(1, 2), "shifted to the head of the list");
        assert!(!hits(3, 0), "evicts flow 2, the tail");
        assert!(hits(1, 3) && hits(3, 1));
        assert!(!hits(2, 2));
    }

    proptest! {
        #[test]
        fn it_gives_what_the_longest_prefix_match_gives_while_the_fib_changes(
            capacity in 0usize..4,
            steps in prop::collection::vec(
                (0u8..4, prop::collection::vec(0u8..2, 0..4), 256u64..259), 1..120),
        ) {
            let (mut fab, mut fib, hasher) = tables(capacity);
            for (what, components, face) in steps {
                let name = name(&components);
                match what {
                    0 => fib.add_next_hop(name.as_ref(), FaceId(face), 1).unwrap(),
                    1 => { fib.remove_next_hop(name.as_ref(), FaceId(face)); }
                    2 if components.len() == 3 => fib.remove_face(FaceId(face)),
                    _ => {}
                }
                for last in 0..3 {
                    let asked = name.child_generic(&[last]);
                    let expected = fib.longest_match(asked.as_ref()).unwrap_or_default().1;
                    prop_assert_eq!(ask(&mut fab, &fib, &hasher, asked.as_ref()), expected);
                }
                prop_assert!(fab.len() <= capacity);
            }
        }
    }
}
