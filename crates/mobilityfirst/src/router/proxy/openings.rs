//! Open destinations: they have a responsive next hop, so that their stored chunks are sent as their hops
//! have room.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, PortId};

use crate::links::Links;
use crate::next_hops::{Branch, NextHops};

/// The open destinations, and whose turn it is.
#[derive(Debug)]
pub(in crate::router) struct Openings {
    open: BTreeMap<Guid, NextHops>,
    // Those of them that leave by a port.
    by_port: BTreeSet<(PortId, Guid)>,
    // Those that may send although no port has gained room.
    eager: BTreeSet<Guid>,
    // Those whose chunks are read when others have been.
    unread: BTreeSet<Guid>,
    // The one that was served last.
    turn: Guid,
}

impl Default for Openings {
    fn default() -> Openings {
        Openings {
            open: BTreeMap::new(),
            by_port: BTreeSet::new(),
            eager: BTreeSet::new(),
            unread: BTreeSet::new(),
            turn: Guid::NONE,
        }
    }
}

impl Openings {
    /// Opens a destination if any of these next hops is responsive; returns true if so.
    pub(in crate::router) fn open(&mut self, destination: Guid, hops: NextHops) -> bool {
        let is_open = hops.best().is_some();
        if is_open {
            self.close(destination);
            let ports = hops.iter().map(|branch| (branch.port, destination));
            self.by_port.extend(ports);
            self.eager.insert(destination);
            self.open.insert(destination, hops);
        }
        is_open
    }

    pub(super) fn close(&mut self, destination: Guid) {
        for branch in self
            .open
            .remove(&destination)
            .iter()
            .flat_map(NextHops::iter)
        {
            self.by_port.remove(&(branch.port, destination));
        }
    }

    pub(super) fn is_open(&self, destination: &Guid) -> bool {
        self.open.contains_key(destination)
    }

    /// Returns the next hops of an open destination.
    pub(in crate::router) fn next_hops(&self, destination: &Guid) -> Option<&NextHops> {
        self.open.get(destination)
    }

    /// Returns true if what is stored for a host leaves for this router now.
    pub(in crate::router) fn leaves_for(&self, host: &Guid, router: Guid, links: &Links) -> bool {
        let leads = |it: &Branch| it.address == Some(router) && links.is_up(it.port);
        let open = self.next_hops(host);
        open.is_some_and(|hops| hops.iter().any(leads))
    }

    /// A chunk for a destination may leave: it was read, or another one was lost.
    pub(super) fn wake(&mut self, destination: Guid) {
        if self.is_open(&destination) {
            self.eager.insert(destination);
        }
    }

    /// The same of all open destinations.
    pub(super) fn wake_all(&mut self) {
        self.eager.extend(self.open.keys().copied());
    }

    /// The chunks of a destination are read when others have been.
    pub(super) fn read_later(&mut self, destination: Guid) {
        self.unread.insert(destination);
    }

    /// Memory is free again: chunks that wait for it are read.
    pub(in crate::router) fn read_unread(&mut self) {
        self.eager.append(&mut self.unread);
    }

    /// Takes the destinations that may send now that these ports have room, in turn.
    pub(super) fn take_ready(&mut self, gained: &BTreeSet<PortId>) -> Vec<Guid> {
        let mut may = core::mem::take(&mut self.eager);
        for port in gained {
            let of_port = (*port, Guid::NONE)..;
            let here = self.by_port.range(of_port).take_while(|(at, _)| at == port);
            may.extend(here.map(|(_, destination)| *destination));
        }
        // One of each, so that they take turns.
        let after = (Bound::Excluded(self.turn), Bound::Unbounded);
        let in_turn = may.range(after).chain(may.range(..=self.turn));
        in_turn.copied().collect()
    }

    /// A chunk for a destination has left.
    pub(super) fn note_served(&mut self, destination: Guid) {
        self.turn = destination;
        self.eager.insert(destination);
    }
}
