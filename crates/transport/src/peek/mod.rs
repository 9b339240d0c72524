//! One Interest and its answer (`ndnpeek`); one Data for one Interest (`ndnpoke`).
//!
//! Facts: ndn-tools `tools/peek` (options and their defaults); the command defines exit codes.

mod poke;

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{Deadline, SeededRng, Time};
use whimbrel_ndn_packet::{Interest, InterestRef, LpPacket, NackReason, Name};

pub use poke::{Poke, PokeEvent, PokeOptions};

use crate::application::{Application, Arrival, FaceNumber, Outgoing};
use crate::exchange::answers;
use crate::ledger::Sent;
use crate::path::PathId;

/// The Interest of a [`Peek`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeekOptions {
    /// CanBePrefix.
    pub can_be_prefix: bool,
    /// MustBeFresh.
    pub must_be_fresh: bool,
    /// InterestLifetime.
    pub lifetime: Duration,
    /// HopLimit.
    pub hop_limit: Option<u8>,
    /// ForwardingHint.
    pub forwarding_hint: Vec<Name>,
    /// ApplicationParameters.
    pub parameters: Option<Bytes>,
    /// Gives up after this time, if it is shorter than the lifetime.
    pub timeout: Option<Duration>,
}

impl Default for PeekOptions {
    /// For exactly this name, with the usual lifetime of 4 s.
    fn default() -> PeekOptions {
        PeekOptions {
            can_be_prefix: false,
            must_be_fresh: false,
            lifetime: whimbrel_ndn_packet::interest::DEFAULT_LIFETIME,
            hop_limit: None,
            forwarding_hint: Vec::new(),
            parameters: None,
            timeout: None,
        }
    }
}

/// The outcome of a [`Peek`]. It is the only event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeekEvent {
    /// A Data: the whole packet.
    Data {
        /// The packet as received.
        packet: Bytes,
        /// Time since the Interest was sent.
        rtt: Duration,
    },
    /// A Nack.
    Nack {
        /// The reason.
        reason: NackReason,
        /// Time since the Interest was sent.
        rtt: Duration,
    },
    /// No answer in time.
    Timeout,
}

/// Sends one Interest, once.
pub struct Peek {
    interest: Interest,
    timeout: Option<Duration>,
    rng: SeededRng,
    created_at: Time,
    /// With the name on the wire: with parameters, it includes their digest.
    sent: Option<(Sent, Name)>,
    over: bool,
    events: VecDeque<PeekEvent>,
    up: bool,
}

impl Peek {
    /// Returns a peek for `name`, which starts as soon as the face is up.
    pub fn new(name: Name, options: PeekOptions, rng: SeededRng, now: Time) -> Peek {
        let interest = Interest {
            can_be_prefix: options.can_be_prefix,
            must_be_fresh: options.must_be_fresh,
            lifetime: Some(options.lifetime),
            hop_limit: options.hop_limit,
            forwarding_hint: options.forwarding_hint,
            parameters: options.parameters,
            ..Interest::new(name)
        };
        Peek {
            interest,
            timeout: options.timeout,
            rng,
            created_at: now,
            sent: None,
            over: false,
            events: VecDeque::new(),
            up: false,
        }
    }

    fn end(&mut self, event: PeekEvent) {
        self.over = true;
        self.events.push_back(event);
    }

    /// Returns the deadline. Before the Interest is sent only the timeout applies.
    fn until(&self) -> Option<Time> {
        let answered_by = self.sent.as_ref().and_then(|(sent, _)| sent.deadline);
        let over_at = self.timeout.map(|timeout| self.created_at + timeout);
        match (answered_by, over_at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl Application for Peek {
    type Event = PeekEvent;

    fn handle_face(&mut self, _now: Time, _face: FaceNumber, up: bool) {
        self.up = up;
        if up && !self.over {
            // A new forwarder does not know the Interest.
            self.sent = None;
        }
    }

    fn handle_packet(&mut self, now: Time, _face: FaceNumber, packet: &LpPacket<'_>) {
        let Some((sent, name)) = self.sent.clone().filter(|_| !self.over) else {
            return;
        };
        let rtt = now.since(sent.at);
        match Arrival::decode(packet) {
            Ok(Arrival::Data(data))
                if answers(name.as_ref(), self.interest.can_be_prefix, &data) =>
            {
                self.end(PeekEvent::Data {
                    packet: Bytes::copy_from_slice(data.wire),
                    rtt,
                });
            }
            Ok(Arrival::Nack(reason, interest))
                if interest.name.value() == name.as_ref().value() =>
            {
                self.end(PeekEvent::Nack { reason, rtt });
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if !self.over && self.until().is_some_and(|until| until <= now) {
            self.end(PeekEvent::Timeout);
        }
    }

    fn poll_packet(&mut self, now: Time, _face: FaceNumber) -> Option<Outgoing> {
        if !self.up || self.over || self.sent.is_some() {
            return None;
        }
        let nonce = self.rng.next_word() as u32;
        self.interest.nonce = Some(nonce.to_be_bytes());
        let wire = self.interest.encode();
        let name = InterestRef::decode(&wire).map(|interest| interest.name.to_name());
        let deadline = Some(now + self.interest.lifetime.unwrap_or_default());
        let sent = Sent::first(now, PathId::FIRST, nonce, deadline);
        self.sent = Some((sent, name.unwrap_or_default()));
        Some((wire.into(), None))
    }

    fn poll_event(&mut self) -> Option<PeekEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        if self.over {
            return None;
        }
        self.until()
            .map(|until| Deadline::new(until, "an Interest has timed out"))
    }
}
