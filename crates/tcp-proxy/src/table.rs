//! The connections of a proxy, by their ends and by their labels.

use std::collections::VecDeque;

use whimbrel_core::{KeyedMap, SeededRng, keyed_map};
use whimbrel_ndn_packet::Name;

use crate::connection::Connection;
use crate::paths::Way;
use crate::phase::Phase;
use crate::segment::Ends;

/// A connection's place in the table.
pub(crate) type Slot = u32;

pub(crate) struct Table {
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<Slot>,
    by_ends: KeyedMap<Ends, Slot>,
    by_label: KeyedMap<u64, Slot>,
    /// Connections in the order of their opening, with their generations; some have opened since.
    opening: VecDeque<(Slot, u32)>,
    next_generation: u32,
}

impl Table {
    pub(crate) fn new(rng: &mut SeededRng) -> Table {
        Table {
            slots: Vec::new(),
            free: Vec::new(),
            by_ends: keyed_map(rng),
            by_label: keyed_map(rng),
            opening: VecDeque::new(),
            next_generation: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_ends.len()
    }

    pub(crate) fn find(&self, ends: &Ends) -> Option<Slot> {
        self.by_ends.get(ends).copied()
    }

    pub(crate) fn labelled(&self, label: u64) -> Option<Slot> {
        self.by_label.get(&label).copied()
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&Connection> {
        self.slots.get(slot as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    /// The connection, unless another one has its place by now.
    pub(crate) fn same(&mut self, slot: Slot, generation: u32) -> Option<&mut Connection> {
        self.get_mut(slot).filter(|it| it.generation == generation)
    }

    pub(crate) fn generation(&mut self) -> u32 {
        self.next_generation = self.next_generation.wrapping_add(1);
        self.next_generation
    }

    pub(crate) fn insert(&mut self, connection: Connection) -> Slot {
        let slot = self.free.pop().unwrap_or(self.slots.len() as Slot);
        self.by_ends.insert(connection.ends, slot);
        self.by_label.insert(connection.label, slot);
        self.opening.push_back((slot, connection.generation));
        let connection = Some(Box::new(connection));
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = connection,
            None => self.slots.push(connection),
        }
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<Box<Connection>> {
        let connection = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.by_ends.remove(&connection.ends);
        self.by_label.remove(&connection.label);
        Some(connection)
    }

    /// The oldest connections that are still opening, as many as there are beyond `limit`. Looks
    /// only when there may be twice as many, so that its cost is spread over the openings.
    pub(crate) fn too_many_opening(&mut self, limit: usize) -> Vec<Slot> {
        if self.opening.len() <= 2 * limit {
            return Vec::new();
        }
        let slots = &self.slots;
        let is_opening = |(slot, generation): &(Slot, u32)| {
            let connection = slots.get(*slot as usize).and_then(Option::as_deref);
            connection.is_some_and(|it| {
                it.generation == *generation && it.tracker.phase() == Phase::Opening
            })
        };
        self.opening.retain(is_opening);
        let beyond = self.opening.len().saturating_sub(limit);
        self.opening.drain(..beyond).map(|(slot, _)| slot).collect()
    }

    /// Returns the places of the connections with this peer.
    pub(crate) fn slots_of(&self, peer: &Name) -> Vec<Slot> {
        self.slots_where(|it| it.peer == *peer)
    }

    /// Returns the places of the connections on this path.
    pub(crate) fn slots_on(&self, way: Way) -> Vec<Slot> {
        self.slots_where(|it| it.way == Some(way))
    }

    fn slots_where(&self, is_it: impl Fn(&Connection) -> bool) -> Vec<Slot> {
        let places = self.slots.iter().enumerate();
        let places = places.filter(|(_, it)| it.as_deref().is_some_and(&is_it));
        places.map(|(place, _)| place as Slot).collect()
    }

    /// Returns all connections, in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().flatten().map(|it| &**it)
    }
}
