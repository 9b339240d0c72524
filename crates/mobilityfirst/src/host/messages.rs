//! Small messages from GUID to GUID, without a content name.
//!
//! A message is delivered at most once while the receiving host runs and remembers it, in no order,
//! and its sender hears nothing of it (`docs/protocols/mobilityfirst.md`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::Guid;

use super::App;
use super::effects::Effects;
use crate::local::LocalEvent;
use crate::wire::{MAX_MESSAGE, Message, ServiceId, Transport};

/// Messages that are remembered, so that a copy of one is not delivered again.
const MAX_SEEN: usize = 4096;
/// Channels that programs listen on, of all programs together.
const MAX_LISTENED: usize = 4096;

/// Who listens for messages, and which have come.
#[derive(Debug)]
pub(super) struct Messages {
    listeners: BTreeMap<u32, BTreeSet<App>>,
    seen: BTreeSet<(Guid, u64)>,
    // Oldest first.
    seen_order: VecDeque<(Guid, u64)>,
    next_id: u64,
}

impl Messages {
    /// `first_id` is random: the numbers of an earlier run of this host are others.
    pub(super) fn new(first_id: u64) -> Messages {
        Messages {
            listeners: BTreeMap::new(),
            seen: BTreeSet::new(),
            seen_order: VecDeque::new(),
            next_id: first_id,
        }
    }

    /// A program wants the messages of a channel.
    pub(super) fn listen(&mut self, app: App, channel: u32, effects: &mut Effects) {
        let listened: usize = self.listeners.values().map(BTreeSet::len).sum();
        if listened >= MAX_LISTENED {
            return effects.drop("too-many-listeners");
        }
        self.listeners.entry(channel).or_default().insert(app);
    }

    pub(super) fn forget(&mut self, app: App) {
        self.listeners.retain(|_, apps| {
            apps.remove(&app);
            !apps.is_empty()
        });
    }

    /// Sends a program's message.
    pub(super) fn send(
        &mut self,
        to: Guid,
        channel: u32,
        payload: bytes::Bytes,
        effects: &mut Effects,
    ) {
        if payload.len() > MAX_MESSAGE {
            return effects.drop("message-too-long");
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let message = Message {
            id,
            channel,
            payload,
        };
        let message = Transport::Message(message);
        effects.send(ServiceId::DELAY_TOLERANT, to, Guid::NONE, message);
    }

    /// A message has come; those who listen on its channel get it.
    pub(super) fn handle(&mut self, from: Guid, message: Message, effects: &mut Effects) {
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
        let Some(apps) = self.listeners.get(&message.channel) else {
            return effects.drop("message-nobody-listens-for");
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
    use super::super::effects::Action;
    use super::*;

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
            messages.handle(Guid([1; 32]), message(id), &mut effects);
        }
        assert_eq!(told(&mut effects), 4);
        // The same number from somebody else is another message.
        messages.handle(Guid([2; 32]), message(1), &mut effects);
        messages.forget(App::Inner(2));
        messages.handle(Guid([2; 32]), message(2), &mut effects);
        assert_eq!(told(&mut effects), 3);
    }

    #[test]
    fn memory_is_bounded_whoever_sends() {
        let (mut messages, mut effects) = (Messages::new(0), Effects::default());
        for id in 0..2 * MAX_SEEN as u64 {
            messages.handle(Guid([1; 32]), message(id), &mut effects);
            messages.listen(App::Inner(1), id as u32, &mut effects);
        }
        assert_eq!(messages.seen.len(), MAX_SEEN);
        assert_eq!(messages.seen_order.len(), MAX_SEEN);
        assert_eq!(messages.listeners.len(), MAX_LISTENED);
    }
}
