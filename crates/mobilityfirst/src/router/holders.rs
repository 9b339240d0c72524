//! Which addresses of a host's record are used: those whose router has confirmed that the host is there.
//!
//! A record is signed by its host, which may list any address: the signature proves the author, not the
//! content. Traffic to that name could be redirected to any listed victim. A router is therefore asked
//! before the first chunk of a divided flow goes there, and again while it is used.

use core::time::Duration;

use hashlink::LinkedHashMap;
use whimbrel_core::{Guid, KeyedState, SeededRng, Time};

use super::effects::{Action, Effects};
use crate::chunk::Chunk;
use crate::wire::{Control, NetworkHeader, Presence, PresenceCode, ServiceId, UpperProtocol};

/// Maximum of addresses of hosts that something is known of; beyond it, the least recently used one is
/// asked anew.
const MAX_KNOWN: usize = 8_192;
/// An answer counts for so long, and after so long a used address is asked again.
const COUNTS_FOR: Duration = Duration::from_secs(60);
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(20);
/// Time from an unanswered question, or one that was denied, to the next: doubled each time. The first is
/// short because a host may be about to attach.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What is known of one address of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its router has said that the host is there.
    Here,
    /// Its router has not answered.
    Unknown,
    /// Its router has said that the host is not there.
    Absent,
}

#[derive(Debug)]
struct Known {
    standing: Standing,
    // When its router said so.
    said: Time,
    // The nonce of a question that has not been answered.
    open: Option<u64>,
    next: Time,
    wait: Duration,
}

/// What routers have said about the hosts whose records name them.
#[derive(Debug)]
pub(super) struct Holders {
    // By host and address; least recently used first.
    known: LinkedHashMap<(Guid, Guid), Known, KeyedState>,
    rng: SeededRng,
}

impl Holders {
    pub(super) fn new(rng: &mut SeededRng) -> Holders {
        Holders {
            known: LinkedHashMap::with_hasher(KeyedState::new(rng)),
            rng: SeededRng::new(rng.next_word()),
        }
    }

    /// Returns what is known of a host's address that is about to be used, and asks if it is time to.
    pub(super) fn standing(
        &mut self,
        now: Time,
        (own, host, at): (Guid, Guid, Guid),
        effects: &mut Effects,
    ) -> Standing {
        let key = (host, at);
        if self.known.to_back(&key).is_none() {
            if self.known.len() >= MAX_KNOWN {
                self.known.pop_front();
            }
            let known = Known {
                standing: Standing::Unknown,
                said: now,
                open: None,
                next: now,
                wait: FIRST_WAIT,
            };
            self.known.insert(key, known);
        }
        let Some(known) = self.known.get_mut(&key) else {
            return Standing::Unknown;
        };
        if known.standing == Standing::Here && now.since(known.said) > COUNTS_FOR {
            known.standing = Standing::Unknown;
        }
        if now >= known.next {
            let nonce = self.rng.next_word();
            known.open = Some(nonce);
            known.next = now + known.wait;
            known.wait = (known.wait * 2).min(LONGEST_WAIT);
            let question = Presence {
                guid: host,
                nonce,
                code: PresenceCode::Asked,
            };
            effects.push(Action::Say(presence(own, (at, at), question)));
        }
        known.standing
    }

    /// Handles the answer of a router. Returns true if the host has turned out to be there.
    pub(super) fn note_answer(&mut self, now: Time, from: Guid, answer: &Presence) -> bool {
        let known = self.known.get_mut(&(answer.guid, from));
        let Some(known) = known.filter(|it| it.open == Some(answer.nonce)) else {
            return false;
        };
        let before = known.standing;
        known.open = None;
        known.said = now;
        known.standing = match answer.code {
            PresenceCode::Here => {
                known.wait = FIRST_WAIT;
                known.next = now + ASKED_AGAIN_AFTER;
                Standing::Here
            }
            _ => Standing::Absent,
        };
        known.standing == Standing::Here && before != Standing::Here
    }
}

/// Returns a question or an answer of this router to the one with this name and address.
pub(super) fn presence(own: Guid, (to, address): (Guid, Guid), presence: Presence) -> Chunk {
    let (service, upper) = (ServiceId::UNICAST, UpperProtocol::Control);
    let mut header = NetworkHeader::new(service, upper, own, to);
    header.source_address = own;
    header.destination_address = address;
    Chunk::of_control(header, &Control::Presence(presence))
}
