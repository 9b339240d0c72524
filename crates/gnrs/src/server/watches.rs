use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, PortId, Time};

use super::budgets::Source;

/// An address watches one of so many parts of all names that may be watched.
const PARTS: usize = 8;

/// The watchers of each name; bounded per client, per address and in total. When all are in use,
/// the address with the most gives one up for another.
#[derive(Debug)]
pub(super) struct Watches {
    max: usize,
    max_per_port: usize,
    by_name: BTreeMap<(Guid, PortId), Watch>,
    by_port: BTreeMap<PortId, Client>,
    by_source: BTreeMap<Source, Held>,
    /// The sources by the number of their watches.
    most: BTreeSet<(usize, Source)>,
}

/// A client with watches.
#[derive(Debug)]
struct Client {
    source: Source,
    names: BTreeSet<Guid>,
}

/// The watches of one source.
#[derive(Debug, Default)]
struct Held {
    count: usize,
    ports: BTreeSet<PortId>,
}

/// The outcome of adding a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Added {
    Watched,
    /// Another watch has ended for it.
    InPlaceOf(Guid, PortId),
    /// There are too many.
    Refused,
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
            by_source: BTreeMap::new(),
            most: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Adds a watch or keeps the existing one.
    pub(super) fn add(&mut self, guid: Guid, port: PortId, source: Source) -> Added {
        if self.by_name.contains_key(&(guid, port)) {
            return Added::Watched;
        }
        let of_port = self.by_port.get(&port).map_or(0, |it| it.names.len());
        let of_source = self.by_source.get(&source).map_or(0, |it| it.count);
        // One client may always have what a client may have.
        let share = (self.max / PARTS).max(self.max_per_port);
        if of_port >= self.max_per_port || of_source >= share {
            return Added::Refused;
        }
        let ended = if self.by_name.len() >= self.max {
            match self.of_who_has_more_than(of_source + 1) {
                Some(ended) => Some(ended),
                None => return Added::Refused,
            }
        } else {
            None
        };
        if let Some((guid, port)) = ended {
            self.remove(guid, port);
        }
        let client = self.by_port.entry(port).or_insert_with(|| Client {
            source,
            names: BTreeSet::new(),
        });
        client.names.insert(guid);
        self.by_name.insert((guid, port), Watch::default());
        self.count(source, port, of_source, of_source + 1);
        match ended {
            Some((guid, port)) => Added::InPlaceOf(guid, port),
            None => Added::Watched,
        }
    }

    /// Returns a watch of the source with the most, of its client with the most, if that source has
    /// more than `least`.
    fn of_who_has_more_than(&self, least: usize) -> Option<(Guid, PortId)> {
        let (_, source) = self.most.last().filter(|(count, _)| *count > least)?;
        let clients = self.by_source.get(source)?.ports.iter();
        let clients = clients.filter_map(|port| Some((port, &self.by_port.get(port)?.names)));
        let (port, names) = clients.max_by_key(|(_, names)| names.len())?;
        Some((*names.first()?, *port))
    }

    /// A source has another number of watches, of which those of `port` have changed.
    fn count(&mut self, source: Source, port: PortId, before: usize, count: usize) {
        self.most.remove(&(before, source));
        if count == 0 {
            self.by_source.remove(&source);
            return;
        }
        self.most.insert((count, source));
        let held = self.by_source.entry(source).or_default();
        held.count = count;
        if self.by_port.contains_key(&port) {
            held.ports.insert(port);
        } else {
            held.ports.remove(&port);
        }
    }

    pub(super) fn remove(&mut self, guid: Guid, port: PortId) {
        if self.by_name.remove(&(guid, port)).is_none() {
            return;
        }
        let Some(client) = self.by_port.get_mut(&port) else {
            return;
        };
        let source = client.source;
        client.names.remove(&guid);
        if client.names.is_empty() {
            self.by_port.remove(&port);
        }
        let before = self.by_source.get(&source).map_or(0, |it| it.count);
        self.count(source, port, before, before.saturating_sub(1));
    }

    /// Removes the watches of a client; returns their names.
    pub(super) fn remove_port(&mut self, port: PortId) -> BTreeSet<Guid> {
        let Some(client) = self.by_port.remove(&port) else {
            return BTreeSet::new();
        };
        for guid in &client.names {
            self.by_name.remove(&(*guid, port));
        }
        let before = self.by_source.get(&client.source).map_or(0, |it| it.count);
        let left = before.saturating_sub(client.names.len());
        self.count(client.source, port, before, left);
        client.names
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(port: u32) -> Source {
        Source::Network(u128::from(port / 4))
    }

    proptest! {
        /// Against what is there, counted from end to end.
        #[test]
        fn counts_are_right_and_who_has_most_gives(steps in prop::collection::vec((0u8..8, 0u8..5, 0u32..16), 0..300)) {
            let mut watches = Watches::new(8, 3);
            for (step, name, port) in steps {
                let (guid, at) = (Guid([name; 32]), PortId(port));
                let held = |watches: &Watches, of: Source| {
                    watches.by_name.keys().filter(|(_, port)| source(port.0) == of).count()
                };
                let before = held(&watches, source(port));
                match step {
                    0 => watches.remove(guid, at),
                    1 => drop(watches.remove_port(at)),
                    _ => {
                        if let Added::InPlaceOf(_, gave) = watches.add(guid, at, source(port)) {
                            prop_assert!(held(&watches, source(gave.0)) > before);
                            prop_assert_eq!(held(&watches, source(port)), before + 1);
                        }
                    }
                }
                prop_assert!(watches.len() <= 8);
                let sources: Vec<_> = (0..4).map(|it| source(4 * it)).collect();
                for of in &sources {
                    let count = watches.by_source.get(of).map_or(0, |it| it.count);
                    prop_assert_eq!(count, held(&watches, *of));
                    prop_assert!(count <= 3, "the share");
                    prop_assert_eq!(watches.most.contains(&(count, *of)), count > 0);
                }
                prop_assert!(watches.most.len() <= sources.len());
                let ports: usize = watches.by_source.values().map(|it| it.ports.len()).sum();
                prop_assert_eq!(ports, watches.by_port.len());
            }
        }
    }
}
