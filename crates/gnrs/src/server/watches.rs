use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, PortId, Time};

/// The watchers of each name; bounded per client and in total.
#[derive(Debug)]
pub(super) struct Watches {
    max: usize,
    max_per_port: usize,
    by_name: BTreeMap<(Guid, PortId), Watch>,
    by_port: BTreeMap<PortId, BTreeSet<Guid>>,
}

/// One client's watch of one name.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Providers ([`Guid::NONE`]: the binding) whose newest record the client has not acknowledged.
    /// At most as many as the store keeps per name: the next push removes those that the store has
    /// dropped.
    pub(super) unacknowledged: BTreeSet<Guid>,
    pub(super) outstanding: Option<Push>,
}

/// An unacknowledged push.
#[derive(Debug)]
pub(super) struct Push {
    pub(super) id: u64,
    pub(super) sent_at: Time,
    /// The number of its retransmissions.
    pub(super) repeated: u32,
    /// The versions that it carries, by provider.
    pub(super) versions: Vec<(Guid, u64)>,
}

impl Watches {
    pub(super) fn new(max: usize, max_per_port: usize) -> Watches {
        Watches {
            max,
            max_per_port,
            by_name: BTreeMap::new(),
            by_port: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Adds a watch or keeps the existing one; returns false if there are too many.
    pub(super) fn add(&mut self, guid: Guid, port: PortId) -> bool {
        if self.by_name.contains_key(&(guid, port)) {
            return true;
        }
        let of_port = self.by_port.get(&port).map_or(0, BTreeSet::len);
        if self.by_name.len() >= self.max || of_port >= self.max_per_port {
            return false;
        }
        self.by_port.entry(port).or_default().insert(guid);
        self.by_name.insert((guid, port), Watch::default());
        true
    }

    pub(super) fn remove(&mut self, guid: Guid, port: PortId) {
        self.by_name.remove(&(guid, port));
        if let Some(names) = self.by_port.get_mut(&port) {
            names.remove(&guid);
            if names.is_empty() {
                self.by_port.remove(&port);
            }
        }
    }

    /// Removes the watches of a client; returns their names.
    pub(super) fn remove_port(&mut self, port: PortId) -> BTreeSet<Guid> {
        let names = self.by_port.remove(&port).unwrap_or_default();
        for guid in &names {
            self.by_name.remove(&(*guid, port));
        }
        names
    }

    pub(super) fn get_mut(&mut self, guid: &Guid, port: PortId) -> Option<&mut Watch> {
        self.by_name.get_mut(&(*guid, port))
    }

    /// Returns the clients that watch `guid`.
    pub(super) fn of(&self, guid: &Guid) -> Vec<PortId> {
        let all = (*guid, PortId(0))..=(*guid, PortId(u32::MAX));
        self.by_name
            .range(all)
            .map(|((_, port), _)| *port)
            .collect()
    }
}
