//! The order in which uploads are read for: by program, then by client, then by content.
//!
//! A client to which nothing can be sent now costs one check, however many contents it wants.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::Guid;

use super::{App, Key, Way};

/// A receiver, as the host reaches it, of what it has requested or of what it has not: each may be held back alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::host) struct Client {
    pub(in crate::host) way: Way,
    pub(in crate::host) name: Guid,
    pub(in crate::host) is_sent: bool,
}

/// The uploads of one program's contents.
///
/// Invariant: `order` names each client of `by_client` once, and no queue is empty.
#[derive(Debug, Default)]
struct Clients {
    order: VecDeque<Client>,
    by_client: BTreeMap<Client, VecDeque<Key>>,
}

/// Uploads with something pending. Each has one place.
#[derive(Debug, Default)]
pub(super) struct Turns {
    by_app: BTreeMap<App, Clients>,
    members: BTreeSet<Key>,
}

impl Turns {
    /// Adds an upload behind the others of its client, unless it has a place.
    pub(super) fn insert(&mut self, app: App, key: Key) {
        if !self.members.insert(key) {
            return;
        }
        let clients = self.by_app.entry(app).or_default();
        let client = key.receiver();
        let queue = clients.by_client.entry(client).or_default();
        if queue.is_empty() {
            clients.order.push_back(client);
        }
        queue.push_back(key);
    }

    /// Returns the programs that are to read chunks for a receiver.
    pub(super) fn apps(&self) -> Vec<App> {
        self.by_app.keys().copied().collect()
    }

    /// Returns the number of clients that a program is to read for.
    pub(super) fn clients(&self, app: App) -> usize {
        self.by_app.get(&app).map_or(0, |it| it.order.len())
    }

    /// Returns the client whose turn it is, and moves it behind the others.
    pub(super) fn next_client(&mut self, app: App) -> Option<Client> {
        let order = &mut self.by_app.get_mut(&app)?.order;
        order.rotate_left(1.min(order.len()));
        order.back().copied()
    }

    /// Removes and returns the first upload of a client.
    pub(super) fn pop(&mut self, app: App, client: Client) -> Option<Key> {
        self.take(app, client, 1, |_| true)
    }

    /// Removes and returns that of the first `most` uploads of a client which is meant.
    pub(super) fn take(
        &mut self,
        app: App,
        client: Client,
        most: usize,
        is_meant: impl Fn(&Key) -> bool,
    ) -> Option<Key> {
        let clients = self.by_app.get_mut(&app)?;
        let queue = clients.by_client.get_mut(&client)?;
        let place = queue.iter().take(most).position(is_meant)?;
        let key = queue.remove(place)?;
        self.members.remove(&key);
        if queue.is_empty() {
            clients.by_client.remove(&client);
            match clients.order.back() {
                // As a rule it has just had its turn.
                Some(last) if *last == client => drop(clients.order.pop_back()),
                _ => clients.order.retain(|it| *it != client),
            }
        }
        if clients.order.is_empty() {
            self.by_app.remove(&app);
        }
        Some(key)
    }

    /// Removes all uploads of a program, and returns them in the order of their turns.
    pub(super) fn remove_app(&mut self, app: App) -> Vec<Key> {
        let clients = self.by_app.remove(&app).unwrap_or_default();
        let keys: Vec<Key> = clients.keys().collect();
        for key in &keys {
            self.members.remove(key);
        }
        keys
    }

    /// Replaces each upload by another one, or by nothing. Those that become equal share a place.
    pub(super) fn rename(&mut self, name: impl Fn(Key) -> Option<Key>) {
        let before = core::mem::take(self);
        for (app, clients) in before.by_app {
            for key in clients.keys().filter_map(&name) {
                self.insert(app, key);
            }
        }
    }
}

impl Clients {
    fn keys(&self) -> impl Iterator<Item = Key> {
        let queues = self.order.iter().filter_map(|it| self.by_client.get(it));
        queues.flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(client: u8, content: u8) -> Key {
        Key {
            content: Guid([content; 32]),
            client: Guid([client; 32]),
            way: Way::Uplink,
            is_sent: false,
        }
    }

    proptest! {
        /// Compares with a list of places, of which the first client's first is next.
        #[test]
        fn clients_take_turns_and_each_upload_has_one_place(
            steps in prop::collection::vec((0u8..5, 0u8..2, 0u8..4, 0u8..4), 0..200),
        ) {
            let mut turns = Turns::default();
            let mut model: BTreeMap<App, Vec<(u8, Vec<Key>)>> = BTreeMap::new();
            for (step, program, client, content) in steps {
                let app = App::Inner(program.into());
                let key = key(client, content);
                let of_app = model.entry(app).or_default();
                match step {
                    0 | 1 => {
                        turns.insert(app, key);
                        if model.values().flatten().all(|(_, keys)| !keys.contains(&key)) {
                            let of_app = model.entry(app).or_default();
                            match of_app.iter_mut().find(|(it, _)| *it == client) {
                                Some((_, keys)) => keys.push(key),
                                None => of_app.push((client, vec![key])),
                            }
                        }
                    }
                    2 if !of_app.is_empty() => {
                        let mut first = of_app.remove(0);
                        prop_assert_eq!(turns.next_client(app), Some(first.1[0].receiver()));
                        let popped = turns.pop(app, first.1[0].receiver());
                        prop_assert_eq!(popped, Some(first.1.remove(0)));
                        if !first.1.is_empty() {
                            of_app.push(first);
                        }
                    }
                    2 => prop_assert_eq!(turns.next_client(app), None),
                    3 => {
                        let all: Vec<Key> = of_app.drain(..).flat_map(|(_, keys)| keys).collect();
                        prop_assert_eq!(turns.remove_app(app), all);
                    }
                    _ => {
                        turns.rename(|it| (it != key).then_some(it));
                        for (_, keys) in model.values_mut().flatten() {
                            keys.retain(|it| *it != key);
                        }
                        for of_app in model.values_mut() {
                            of_app.retain(|(_, keys)| !keys.is_empty());
                        }
                    }
                }
                for (app, of_app) in &model {
                    prop_assert_eq!(turns.clients(*app), of_app.len());
                }
                let places: usize = model.values().flatten().map(|(_, keys)| keys.len()).sum();
                prop_assert_eq!(turns.members.len(), places);
            }
        }
    }
}
