//! Lists of the Data under a prefix: kept only for lengths of prefixes that Interests have used.
//!
//! Nearly all Interests name their Data in full, and need no lists. The first Interest with
//! CanBePrefix and a name of `n` components enables length `n`; from then on every new Data is
//! listed under its prefix of that length, and a few older ones with each, until all are. A search
//! that finds nothing in the lists extends them at once.

use crate::tables::index::{Index, NONE, Slab};

/// One prefix: its Data from the newest to the oldest.
#[derive(Clone, Debug)]
struct Group {
    hash: u64,
    depth: u8,
    newest: u32,
    oldest: u32,
}

/// One Data under one prefix.
#[derive(Clone, Debug)]
struct Listing {
    entry: u32,
    group: u32,
    newer: u32,
    older: u32,
    /// The next listing of the same Data.
    next_of_entry: u32,
}

/// Octets that one listing counts against the store's capacity.
pub(super) const LISTING_BYTES: usize = 64;

/// The lists.
#[derive(Clone, Debug)]
pub(super) struct Prefixes {
    groups: Slab<Group>,
    index: Index,
    listings: Slab<Listing>,
    /// Bit `n`: prefixes of `n` components are listed.
    pub(super) depths: u64,
}

impl Prefixes {
    pub(super) const fn new() -> Prefixes {
        Prefixes {
            groups: Slab::new(),
            index: Index::new(),
            listings: Slab::new(),
            depths: 0,
        }
    }

    fn find(&self, hash: u64, depth: usize, is_prefix_of: impl Fn(u32) -> bool) -> Option<u32> {
        self.index.find(hash, |group| {
            let Some(group) = self.groups.get(group) else {
                return false;
            };
            group.hash == hash
                && usize::from(group.depth) == depth
                && self
                    .listings
                    .get(group.newest)
                    .is_some_and(|listing| is_prefix_of(listing.entry))
        })
    }

    /// Returns the Data under a prefix, newest first.
    pub(super) fn entries(
        &self,
        hash: u64,
        depth: usize,
        is_prefix_of: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = u32> {
        let group = self
            .find(hash, depth, is_prefix_of)
            .and_then(|group| self.groups.get(group));
        let mut at = group.map_or(NONE, |group| group.newest);
        core::iter::from_fn(move || {
            let listing = self.listings.get(at)?;
            at = listing.older;
            Some(listing.entry)
        })
    }

    /// Lists a Data under one of its prefixes. `first` is its first listing; returns the new first
    /// one.
    pub(super) fn add(
        &mut self,
        (entry, first): (u32, u32),
        (hash, depth): (u64, usize),
        as_newest: bool,
        is_prefix_of: impl Fn(u32) -> bool,
    ) -> u32 {
        let group = self.find(hash, depth, is_prefix_of).unwrap_or_else(|| {
            let group = self.groups.insert(Group {
                hash,
                depth: depth as u8,
                newest: NONE,
                oldest: NONE,
            });
            self.index.insert(hash, group);
            group
        });
        let listing = self.listings.insert(Listing {
            entry,
            group,
            newer: NONE,
            older: NONE,
            next_of_entry: first,
        });
        let Some(ends) = self.groups.get_mut(group) else {
            return listing;
        };
        let neighbour = if as_newest { ends.newest } else { ends.oldest };
        if as_newest || neighbour == NONE {
            ends.newest = listing;
        }
        if !as_newest || neighbour == NONE {
            ends.oldest = listing;
        }
        if let Some(neighbour) = self.listings.get_mut(neighbour) {
            *(if as_newest {
                &mut neighbour.newer
            } else {
                &mut neighbour.older
            }) = listing;
        }
        if let Some(listing) = self.listings.get_mut(listing) {
            *(if as_newest {
                &mut listing.older
            } else {
                &mut listing.newer
            }) = neighbour;
        }
        listing
    }

    /// Removes a Data from all lists.
    pub(super) fn remove(&mut self, mut first: u32) {
        while let Some(listing) = self.listings.remove(first) {
            first = listing.next_of_entry;
            if let Some(newer) = self.listings.get_mut(listing.newer) {
                newer.older = listing.older;
            }
            if let Some(older) = self.listings.get_mut(listing.older) {
                older.newer = listing.newer;
            }
            let Some(group) = self.groups.get_mut(listing.group) else {
                continue;
            };
            if listing.newer == NONE {
                group.newest = listing.older;
            }
            if listing.older == NONE {
                group.oldest = listing.newer;
            }
            if group.newest == NONE {
                let hash = group.hash;
                self.index.remove(hash, listing.group);
                self.groups.remove(listing.group);
            }
        }
    }

    /// Returns true if a Data with this first listing is listed for this length.
    pub(super) fn lists(&self, mut first: u32, depth: usize) -> bool {
        while let Some(listing) = self.listings.get(first) {
            if self
                .groups
                .get(listing.group)
                .is_some_and(|group| usize::from(group.depth) == depth)
            {
                return true;
            }
            first = listing.next_of_entry;
        }
        false
    }

    /// Returns the number of listings.
    pub(super) fn len(&self) -> usize {
        self.listings.len()
    }
}
