//! Stored copies of chunks that an unresponsive neighbour's hop still carries, so that their delivered
//! packets are not sent again when it responds.

use std::collections::BTreeMap;

use whimbrel_core::PortId;

use crate::links::Carried;
use crate::router::store::StoreId;

/// Which stored chunk is a copy of which carried one.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    by_carried: BTreeMap<Carried, StoreId>,
    by_id: BTreeMap<StoreId, Carried>,
}

impl Lingering {
    pub(super) fn insert(&mut self, carried: Carried, id: StoreId) {
        self.by_carried.insert(carried, id);
        self.by_id.insert(id, carried);
    }

    pub(super) fn is_carried(&self, id: StoreId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn is_stored(&self, carried: &Carried) -> bool {
        self.by_carried.contains_key(carried)
    }

    /// Forgets the copy of a carried chunk, and returns it.
    pub(super) fn take(&mut self, carried: &Carried) -> Option<StoreId> {
        let id = self.by_carried.remove(carried)?;
        self.by_id.remove(&id);
        Some(id)
    }

    /// Forgets what carries a stored chunk, and returns it.
    pub(super) fn take_carried(&mut self, id: StoreId) -> Option<Carried> {
        let carried = self.by_id.remove(&id)?;
        self.by_carried.remove(&carried);
        Some(carried)
    }

    /// Forgets the copies of what the hop of a port carries, and returns them.
    pub(super) fn take_on(&mut self, port: PortId) -> Vec<StoreId> {
        let on_port = Carried { port, tag: 0 }..=Carried {
            port,
            tag: u64::MAX,
        };
        let taken = self.by_carried.extract_if(on_port, |_, _| true);
        let taken: Vec<StoreId> = taken.map(|(_, id)| id).collect();
        for id in &taken {
            self.by_id.remove(id);
        }
        taken
    }
}
