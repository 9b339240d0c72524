//! `faces/events`: face events for subscribers.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use whimbrel_core::Time;
use whimbrel_ndn_packet::{Component, Data, DigestSigner, InterestRef, Name, types as ndn};

use super::snapshots::FRESHNESS;
use whimbrel_ndn_mgmt::FaceEventNotification;

/// Maximum of past events that can be requested.
const MAX_REMEMBERED: usize = 256;
/// Maximum of Interests that wait for the next event.
const MAX_WAITING: usize = 256;
/// Maximum time that an Interest waits.
const MAX_WAIT: Duration = Duration::from_secs(3_600);

/// The event that an Interest requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// The newest, or the next one.
    Any,
    /// This one, named by this type of component: SequenceNum as in current ndn-cxx, Segment in
    /// older clients.
    Number(u64, u64),
}

struct Waiting {
    wanted: Wanted,
    until: Time,
}

struct Event {
    number: u64,
    at: Time,
    notification: Vec<u8>,
}

/// The stream of events of all faces.
pub(crate) struct EventStream {
    prefix: Name,
    next: u64,
    remembered: VecDeque<Event>,
    waiting: VecDeque<Waiting>,
}

impl EventStream {
    pub(crate) fn new(prefix: Name) -> EventStream {
        EventStream {
            prefix,
            next: 0,
            remembered: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Returns the Data packets for the Interests that wait for this event.
    pub(crate) fn happened(&mut self, now: Time, event: &FaceEventNotification) -> Vec<Vec<u8>> {
        let number = self.next;
        self.next += 1;
        if self.remembered.len() >= MAX_REMEMBERED {
            self.remembered.pop_front();
        }
        let event = Event {
            number,
            at: now,
            notification: event.encode(),
        };
        let mut named_by = BTreeSet::new();
        self.waiting.retain(|waiting| {
            match waiting.wanted {
                _ if waiting.until <= now => return false,
                Wanted::Any => named_by.insert(ndn::SEQUENCE_NUM),
                Wanted::Number(typ, wanted) if wanted == number => named_by.insert(typ),
                Wanted::Number(..) => return true,
            };
            false
        });
        let answers = named_by
            .into_iter()
            .map(|typ| self.data(&event, typ))
            .collect();
        self.remembered.push_back(event);
        answers
    }

    /// Returns the Data packet that answers an Interest, or `None` if the Interest has to wait or
    /// requests a forgotten event.
    pub(crate) fn ask(&mut self, now: Time, interest: &InterestRef<'_>) -> Option<Vec<u8>> {
        let wanted = self.wanted(interest)?;
        let found = match wanted {
            // A request for fresh Data waits for the next event, unless one has just happened.
            Wanted::Any => self
                .remembered
                .back()
                .filter(|event| !interest.must_be_fresh || now.since(event.at) < FRESHNESS)
                .map(|event| self.data(event, ndn::SEQUENCE_NUM)),
            Wanted::Number(typ, number) => self
                .remembered
                .iter()
                .find(|event| event.number == number)
                .map(|event| self.data(event, typ)),
        };
        let can_come = !matches!(wanted, Wanted::Number(_, number) if number < self.next);
        if found.is_none() && can_come {
            if self.waiting.len() >= MAX_WAITING {
                self.waiting.retain(|waiting| waiting.until > now);
            }
            if self.waiting.len() >= MAX_WAITING {
                self.waiting.pop_front();
            }
            let until = now + interest.lifetime.min(MAX_WAIT);
            self.waiting.push_back(Waiting { wanted, until });
        }
        found
    }

    fn wanted(&self, interest: &InterestRef<'_>) -> Option<Wanted> {
        let rest = interest.name.suffix(self.prefix.len());
        match rest.get(0) {
            None => interest.can_be_prefix.then_some(Wanted::Any),
            Some(component) if rest.len() == 1 => [ndn::SEQUENCE_NUM, ndn::SEGMENT]
                .into_iter()
                .find_map(|typ| {
                    component
                        .number_of(typ)
                        .map(|number| Wanted::Number(typ, number))
                }),
            Some(_) => None,
        }
    }

    fn data(&self, event: &Event, typ: u64) -> Vec<u8> {
        let name = self
            .prefix
            .child(Component::number(typ, event.number).as_ref());
        let mut data = Data::new(name, event.notification.clone());
        data.freshness = FRESHNESS;
        data.encode(&DigestSigner)
    }
}
