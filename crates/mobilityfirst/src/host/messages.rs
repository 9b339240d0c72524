//! Small messages from GUID to GUID, without a content name.
//!
//! A message is delivered at most once while the receiving host runs and remembers it, in no order,
//! and without a confirmation to its sender (`docs/protocols/mobilityfirst.md`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::Guid;
use whimbrel_link::Pool;

use super::effects::{Action, Effects, Treatment};
use super::{App, Way};
use crate::local::{Delivery, LocalEvent};
use crate::wire::{MAX_MESSAGE, Message, ServiceId, Transport};

/// Bound of the remembered messages, copies of which are not delivered.
const MAX_SEEN: usize = 4096;
/// Bound of the channels that programs listen on, of all programs together.
const MAX_LISTENED: usize = 4096;
/// Bound of the remembered names of inbound peers, to which answers may go; the newest are kept.
const MAX_CALLERS: usize = 1024;

/// Bound of the bytes of messages that wait for the links, of all programs together.
const MAX_WAITING: u64 = 32 << 20;
/// Memory of a waiting message beside its bytes: its header and its place in a queue.
const MESSAGE_BYTES: u64 = 512;

/// A program's message.
pub(super) struct ProgramMessage {
    pub(super) to: Guid,
    pub(super) channel: u32,
    pub(super) delivery: Delivery,
    pub(super) payload: bytes::Bytes,
}

/// The listeners for messages, and the messages that have come.
#[derive(Debug)]
pub(super) struct Messages {
    listeners: BTreeMap<u32, BTreeSet<App>>,
    seen: BTreeSet<(Guid, u64)>,
    // Oldest first.
    seen_order: VecDeque<(Guid, u64)>,
    // The inbound peer that wrote last under a name on a channel. Oldest first.
    callers: VecDeque<((u32, Guid), Way)>,
    next_id: u64,
    // Messages that wait for the links, and those of each program that has sent any.
    waiting: Pool,
    waiting_of: BTreeMap<App, Pool>,
}

impl Messages {
    /// `first_id` must be random, so that ids differ from those of an earlier run of this host.
    pub(super) fn new(first_id: u64) -> Messages {
        Messages {
            listeners: BTreeMap::new(),
            seen: BTreeSet::new(),
            seen_order: VecDeque::new(),
            callers: VecDeque::new(),
            next_id: first_id,
            waiting: Pool::default(),
            waiting_of: BTreeMap::new(),
        }
    }

    /// Adds a program that listens on a channel.
    pub(super) fn listen(&mut self, app: App, channel: u32, effects: &mut Effects) {
        let listened: usize = self.listeners.values().map(BTreeSet::len).sum();
        if listened >= MAX_LISTENED {
            return effects.drop("too-many-listeners");
        }
        self.listeners.entry(channel).or_default().insert(app);
    }

    pub(super) fn forget(&mut self, app: App) {
        // What waits of it still counts for all together.
        self.waiting_of.remove(&app);
        self.listeners.retain(|_, apps| {
            apps.remove(&app);
            !apps.is_empty()
        });
    }

    /// Notes that an inbound peer has another port, or (`None`) no port any more.
    pub(super) fn note_caller_moved(&mut self, from: Way, to: Option<Way>) {
        self.callers.retain_mut(|(_, way)| match to {
            Some(to) if *way == from => {
                *way = to;
                true
            }
            _ => *way != from,
        });
    }

    /// Returns the way back to a name. No other node knows an inbound peer, so messages to it go to
    /// the port on which it wrote. Its name is not proven, so this holds only for the channel on
    /// which it wrote.
    fn way_to(&self, channel: u32, name: Guid) -> Way {
        let mut callers = self.callers.iter();
        callers
            .find(|(key, _)| *key == (channel, name))
            .map_or(Way::Uplink, |(_, way)| *way)
    }

    fn note_way(&mut self, channel: u32, name: Guid, way: Way) {
        let key = (channel, name);
        self.callers.retain(|(known, _)| *known != key);
        if way != Way::Uplink {
            self.callers.push_back((key, way));
        }
        if self.callers.len() > MAX_CALLERS {
            self.callers.pop_front();
        }
    }

    /// Sends a program's message. One for which there is no room is dropped: the messages of one program may
    /// take half of the room that is left.
    pub(super) fn send(&mut self, app: App, message: ProgramMessage, effects: &mut Effects) {
        let ProgramMessage {
            to,
            channel,
            delivery,
            payload,
        } = message;
        if payload.len() > MAX_MESSAGE {
            return effects.drop("message-too-long");
        }
        let waiting = &self.waiting;
        let own = (self.waiting_of.entry(app)).or_insert_with(|| waiting.part());
        if !waiting.admits(own, MAX_WAITING, 0) {
            return effects.drop("too-many-messages");
        }
        let room = own.hold(payload.len() as u64 + MESSAGE_BYTES);
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let message = Message {
            id,
            channel,
            payload,
        };
        let (way, message) = (self.way_to(channel, to), Transport::Message(message));
        let treatment = Treatment::new(delivery, ServiceId::UNICAST);
        effects.push(Action::SendMessage {
            way,
            treatment,
            to,
            message,
            room,
        });
    }

    /// Delivers a message to the programs that listen on its channel.
    pub(super) fn handle(&mut self, way: Way, from: Guid, message: Message, effects: &mut Effects) {
        let key = (from, message.id);
        if !self.seen.insert(key) {
            return effects.drop("message-again");
        }
        self.seen_order.push_back(key);
        if self.seen_order.len() > MAX_SEEN
            && let Some(oldest) = self.seen_order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        if !self.listeners.contains_key(&message.channel) {
            return effects.drop("message-nobody-listens-for");
        }
        self.note_way(message.channel, from, way);
        let Some(apps) = self.listeners.get(&message.channel) else {
            return;
        };
        for app in apps {
            let event = LocalEvent::Message {
                channel: message.channel,
                from,
                payload: message.payload.clone(),
            };
            effects.tell(*app, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_core::PortId;

    fn message(id: u64) -> Message {
        Message {
            id,
            channel: 7,
            payload: bytes::Bytes::from_static(b"hello"),
        }
    }

    fn told(effects: &mut Effects) -> usize {
        let mut told = 0;
        while let Some(action) = effects.next() {
            told += usize::from(matches!(action, Action::Tell(..)));
        }
        told
    }

    #[test]
    fn a_copy_of_a_message_is_not_delivered_again() {
        let (mut messages, mut effects) = (Messages::new(0), Effects::default());
        messages.listen(App::Inner(1), 7, &mut effects);
        messages.listen(App::Inner(2), 7, &mut effects);
        messages.listen(App::Inner(3), 8, &mut effects);
        for id in [1, 2, 1, 2] {
            messages.handle(Way::Uplink, Guid([1; 32]), message(id), &mut effects);
        }
        assert_eq!(told(&mut effects), 4);
        // The same id from another sender is another message.
        messages.handle(Way::Uplink, Guid([2; 32]), message(1), &mut effects);
        messages.forget(App::Inner(2));
        messages.handle(Way::Uplink, Guid([2; 32]), message(2), &mut effects);
        assert_eq!(told(&mut effects), 3);
    }

    /// Returns the way by which a message to a name goes.
    fn way_of(messages: &mut Messages, channel: u32, name: Guid) -> Way {
        let mut effects = Effects::default();
        let delivery = Delivery::default();
        let message = ProgramMessage {
            to: name,
            channel,
            delivery,
            payload: bytes::Bytes::new(),
        };
        messages.send(App::Inner(1), message, &mut effects);
        match effects.next() {
            Some(Action::SendMessage { way, .. }) => way,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_inbound_peer_is_answered_where_it_calls_from() {
        let (mut messages, mut effects) = (Messages::new(0), Effects::default());
        let (name, here, there) = (
            Guid([1; 32]),
            Way::Caller(PortId(3)),
            Way::Caller(PortId(4)),
        );
        // No program listens, so none will answer.
        messages.handle(here, name, message(1), &mut effects);
        assert_eq!(way_of(&mut messages, 7, name), Way::Uplink);
        messages.listen(App::Inner(1), 7, &mut effects);
        messages.handle(here, name, message(2), &mut effects);
        assert_eq!(way_of(&mut messages, 7, name), here);
        // Its name is a claim: it means nothing on other channels, and for other names.
        assert_eq!(way_of(&mut messages, 8, name), Way::Uplink);
        assert_eq!(way_of(&mut messages, 7, Guid([2; 32])), Way::Uplink);
        messages.note_caller_moved(here, Some(there));
        assert_eq!(way_of(&mut messages, 7, name), there);
        messages.handle(Way::Uplink, name, message(3), &mut effects);
        assert_eq!(way_of(&mut messages, 7, name), Way::Uplink);
        messages.handle(here, name, message(4), &mut effects);
        messages.note_caller_moved(here, None);
        assert_eq!(way_of(&mut messages, 7, name), Way::Uplink);
    }

    #[test]
    fn memory_is_bounded_whoever_sends() {
        let (mut messages, mut effects) = (Messages::new(0), Effects::default());
        messages.listen(App::Inner(1), 7, &mut effects);
        for id in 0..2 * MAX_SEEN as u64 {
            let mut name = [0; 32];
            name[..8].copy_from_slice(&id.to_be_bytes());
            let way = Way::Caller(PortId(id as u32));
            messages.handle(way, Guid(name), message(id), &mut effects);
            messages.listen(App::Inner(1), id as u32, &mut effects);
        }
        assert_eq!(messages.seen.len(), MAX_SEEN);
        assert_eq!(messages.seen_order.len(), MAX_SEEN);
        assert_eq!(messages.listeners.len(), MAX_LISTENED);
        assert_eq!(messages.callers.len(), MAX_CALLERS);
    }

    #[test]
    fn a_program_that_sends_without_end_leaves_room_to_others() {
        let (mut messages, mut effects) = (Messages::new(0), Effects::default());
        let payload = bytes::Bytes::from(vec![0; MAX_MESSAGE]);
        let mut sends = |effects: &mut Effects, app| {
            let before = effects.counters.drops.get("too-many-messages").copied();
            for _ in 0..1_000 {
                let message = ProgramMessage {
                    to: Guid([1; 32]),
                    channel: 7,
                    delivery: Delivery::default(),
                    payload: payload.clone(),
                };
                messages.send(App::Inner(app), message, effects);
            }
            let after = effects.counters.drops.get("too-many-messages").copied();
            1_000 - (after.unwrap_or(0) - before.unwrap_or(0))
        };
        let first = sends(&mut effects, 1);
        // A third of 32 MiB, and of what is left then.
        assert!((330..345).contains(&first), "{first}");
        assert!((220..230).contains(&sends(&mut effects, 2)));
        assert_eq!(sends(&mut effects, 1), 0);
        // What has left makes room.
        while effects.next().is_some() {}
        assert_eq!(sends(&mut effects, 1), first);
    }
}
