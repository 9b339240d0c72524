use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, PortId, Source, Time};

/// The share of all watches that one address may hold: one in this many.
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
    /// It has acknowledged none of the repetitions of a push, and has not been heard since.
    rests: bool,
}

/// The watches of one source.
#[derive(Debug, Default)]
struct Held {
    count: usize,
    ports: BTreeSet<PortId>,
    window: Window,
}

/// Pushes to a source that may be under way at first, and after it has left one unanswered: a caller that
/// forges an address draws only these to it.
const FIRST_WINDOW: usize = 4;
/// The same of a source that answers: each acknowledgement allows one more.
const MAX_WINDOW: usize = 128;

/// The pushes of a source.
#[derive(Debug)]
struct Window {
    size: usize,
    under_way: BTreeSet<(Guid, PortId)>,
    /// By the order in which they began to wait.
    waiting: BTreeMap<u64, (Guid, PortId)>,
    next: u64,
}

impl Default for Window {
    fn default() -> Window {
        Window {
            size: FIRST_WINDOW,
            under_way: BTreeSet::new(),
            waiting: BTreeMap::new(),
            next: 0,
        }
    }
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
    /// Its place among the waiting pushes of its source.
    place: Option<u64>,
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
            rests: false,
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
        self.stop_push(guid, port);
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
        self.rest(port);
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

    fn window_of(&mut self, port: PortId) -> Option<&mut Window> {
        let source = self.by_port.get(&port)?.source;
        Some(&mut self.by_source.get_mut(&source)?.window)
    }

    /// Counts a push of this watch as under way, and returns true if it may go now. Otherwise it waits:
    /// for others of its source to be acknowledged, or for its client to be heard.
    pub(super) fn begin_push(&mut self, guid: Guid, port: PortId) -> bool {
        if self.by_port.get(&port).is_none_or(|client| client.rests) {
            return false;
        }
        let waits = self
            .get_mut(&guid, port)
            .is_some_and(|it| it.place.is_some());
        let Some(window) = self.window_of(port) else {
            return false;
        };
        if waits {
            return false;
        }
        if window.under_way.contains(&(guid, port)) {
            return true;
        }
        if window.under_way.len() < window.size && window.waiting.is_empty() {
            return window.under_way.insert((guid, port));
        }
        let place = window.next;
        window.next += 1;
        window.waiting.insert(place, (guid, port));
        if let Some(watch) = self.get_mut(&guid, port) {
            watch.place = Some(place);
        }
        false
    }

    /// Returns the watch of a source whose push may go next, which counts as under way.
    pub(super) fn next_waiting(&mut self, source: Source) -> Option<(Guid, PortId)> {
        let window = &mut self.by_source.get_mut(&source)?.window;
        if window.under_way.len() >= window.size {
            return None;
        }
        let (_, (guid, port)) = window.waiting.pop_first()?;
        window.under_way.insert((guid, port));
        self.get_mut(&guid, port)?.place = None;
        Some((guid, port))
    }

    /// A push is under way no longer. A source that answers may have one more under way.
    pub(super) fn end_push(&mut self, guid: Guid, port: PortId, is_answered: bool) {
        if let Some(window) = self.window_of(port) {
            window.under_way.remove(&(guid, port));
            window.size = (window.size + usize::from(is_answered)).min(MAX_WINDOW);
        }
    }

    /// A push is neither under way nor waiting any longer.
    fn stop_push(&mut self, guid: Guid, port: PortId) {
        self.end_push(guid, port, false);
        let watch = self.get_mut(&guid, port);
        let place = watch.and_then(|watch| {
            watch.outstanding = None;
            watch.place.take()
        });
        if let (Some(place), Some(window)) = (place, self.window_of(port)) {
            window.waiting.remove(&place);
        }
    }

    /// A client does not answer: no pushes go to it until it is heard, and its source is asked as at
    /// first. Returns its names.
    pub(super) fn rest(&mut self, port: PortId) -> Vec<Guid> {
        let Some(client) = self.by_port.get_mut(&port) else {
            return Vec::new();
        };
        client.rests = true;
        let names: Vec<Guid> = client.names.iter().copied().collect();
        for guid in &names {
            self.stop_push(*guid, port);
        }
        if let Some(window) = self.window_of(port) {
            window.size = FIRST_WINDOW;
        }
        names
    }

    /// A client is heard. Returns the names of which it has missed changes because it had not been.
    pub(super) fn wake(&mut self, port: PortId) -> Vec<Guid> {
        let Some(client) = self.by_port.get_mut(&port).filter(|client| client.rests) else {
            return Vec::new();
        };
        client.rests = false;
        let by_name = &self.by_name;
        let missed = client.names.iter().filter(|guid| {
            let watch = by_name.get(&(**guid, port));
            watch.is_some_and(|watch| !watch.unacknowledged.is_empty())
        });
        missed.copied().collect()
    }

    /// Returns true if a client watches `guid`.
    pub(super) fn has(&self, guid: &Guid) -> bool {
        let all = (*guid, PortId(0))..=(*guid, PortId(u32::MAX));
        self.by_name.range(all).next().is_some()
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
