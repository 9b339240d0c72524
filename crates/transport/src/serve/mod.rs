//! Answering Interests: the common part of all producers, and the producer of versioned, segmented
//! content.

mod echo;
mod producer;
mod source;
mod store;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use whimbrel_core::{Deadline, SeededRng, Time, WallClock};
use whimbrel_ndn_packet::{InterestRef, LpHeader, LpPacket, NackReason, Signer};

pub use echo::{Echo, EchoProducer};
pub use producer::{Producer, ProducerEvent, ProducerOptions, SegmentResponder};
pub use source::{BytesSource, SegmentSource, SourceError};

use crate::application::{Application, Arrival, FaceNumber, Outgoing, due};
use crate::register::{Registrar, RegistrationEvent};

/// Signs a producer's Data.
pub type SharedSigner = Arc<dyn Signer + Send + Sync>;

/// Maximum of queued answers; further Interests are dropped and counted.
const MAX_ANSWERS: usize = 16_384;

/// The answer to an Interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This whole Data packet.
    Data(Bytes),
    /// This Data packet, after a delay.
    Later(Bytes, Duration),
    /// A Nack.
    Nack(NackReason),
    /// No answer.
    Silence,
}

/// Answers Interests.
pub trait Responder {
    /// An event for the program.
    type Event;

    /// Answers one Interest.
    fn respond(&mut self, now: Time, interest: &InterestRef<'_>) -> Answer;

    /// Sets link header fields of the answer to the Interest received in `asked`: by default none.
    /// PIT token and Nack reason are already set.
    fn set_header(&mut self, asked: &LpPacket<'_>, header: &mut LpHeader) {
        let _ = (asked, header);
    }

    /// Does a little work in advance, some microseconds, for likely Interests: called repeatedly
    /// while no packets arrive, as long as it returns that there is more to do.
    fn prepare(&mut self) -> bool {
        false
    }

    /// See [`Application::handle_wall_clock`].
    fn handle_wall_clock(&mut self, wall: WallClock) {
        let _ = wall;
    }

    /// The next event.
    fn poll_event(&mut self) -> Option<Self::Event>;
}

/// An event of a [`Service`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceEvent<E> {
    /// The outcome of a registration.
    Registration(RegistrationEvent),
    /// From the producer itself.
    Producer(E),
}

/// Counters of a [`Service`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounters {
    /// Interests received.
    pub interests: u64,
    /// Data sent.
    pub data: u64,
    /// Nacks sent.
    pub nacks: u64,
    /// Interests left unanswered.
    pub silent: u64,
    /// Interests dropped because too many answers are queued.
    pub dropped: u64,
    /// Packets that are not a valid Interest, Data or Nack, or unexpected Data and Nacks.
    pub unexpected: u64,
}

/// A [`Responder`] as an [`Application`]: registers its prefixes, echoes PIT tokens, queues and
/// delays answers.
///
/// Holds at most 16,384 answers, which share memory with the responder's packets.
pub struct Service<R: Responder> {
    responder: R,
    registrar: Registrar,
    rng: SeededRng,
    outbox: VecDeque<Outgoing>,
    /// By due time, then in the order of arrival.
    later: BTreeMap<(Time, u64), Outgoing>,
    next_later: u64,
    counters: ServiceCounters,
    /// Since when the responder may have work to do in advance.
    preparing: Option<Time>,
    seen: Time,
    up: bool,
}

impl<R: Responder> Service<R> {
    /// Answers with `responder` under the prefixes of `registrar`.
    pub fn new(responder: R, registrar: Registrar, rng: SeededRng) -> Service<R> {
        Service {
            responder,
            registrar,
            rng,
            outbox: VecDeque::new(),
            later: BTreeMap::new(),
            next_later: 0,
            counters: ServiceCounters::default(),
            preparing: None,
            seen: Time::ZERO,
            up: false,
        }
    }

    /// Returns the responder.
    pub const fn responder(&self) -> &R {
        &self.responder
    }

    /// The responder, mutable.
    pub const fn responder_mut(&mut self) -> &mut R {
        &mut self.responder
    }

    /// The registrations, to add one or to withdraw them.
    pub const fn registrar_mut(&mut self) -> &mut Registrar {
        &mut self.registrar
    }

    /// Returns true once the forwarder has accepted all prefixes.
    pub fn is_registered(&self) -> bool {
        self.registrar.is_registered()
    }

    /// Counters since the start.
    pub const fn counters(&self) -> &ServiceCounters {
        &self.counters
    }

    fn answer(&mut self, now: Time, packet: &LpPacket<'_>, interest: &InterestRef<'_>) {
        self.counters.interests += 1;
        if self.outbox.len() + self.later.len() >= MAX_ANSWERS {
            self.counters.dropped += 1;
            return;
        }
        self.preparing = Some(now);
        match self.responder.respond(now, interest) {
            Answer::Data(data) => {
                self.counters.data += 1;
                let header = self.header(packet, None);
                self.outbox.push_back((data, header));
            }
            Answer::Later(data, wait) => {
                self.counters.data += 1;
                let header = self.header(packet, None);
                self.later
                    .insert((now + wait, self.next_later), (data, header));
                self.next_later += 1;
            }
            Answer::Nack(reason) => {
                self.counters.nacks += 1;
                let header = self.header(packet, Some(reason));
                self.outbox
                    .push_back((Bytes::copy_from_slice(interest.wire), header));
            }
            Answer::Silence => self.counters.silent += 1,
        }
    }

    /// The header of the answer to the packet `asked`.
    fn header(&mut self, asked: &LpPacket<'_>, nack: Option<NackReason>) -> Option<Box<LpHeader>> {
        let mut header = LpHeader {
            // A forwarder uses the token that it put on the Interest to find its state.
            pit_token: asked.pit_token.map(Bytes::copy_from_slice),
            nack,
            ..LpHeader::default()
        };
        self.responder.set_header(asked, &mut header);
        (!header.is_empty()).then(|| Box::new(header))
    }
}

impl<R: Responder> Application for Service<R> {
    type Event = ServiceEvent<R::Event>;

    fn handle_face(&mut self, now: Time, _face: FaceNumber, up: bool) {
        self.up = up;
        if !up {
            // A new forwarder does not know the Interests.
            self.outbox.clear();
            self.later.clear();
        }
        self.registrar.handle_face(now, up);
    }

    fn handle_packet(&mut self, now: Time, _face: FaceNumber, packet: &LpPacket<'_>) {
        let expected = match Arrival::decode(packet) {
            Ok(Arrival::Interest(interest)) => {
                self.answer(now, packet, &interest);
                true
            }
            Ok(Arrival::Data(data)) => self.registrar.handle_data(now, &data),
            Ok(Arrival::Nack(reason, interest)) => {
                self.registrar.handle_nack(now, reason, &interest)
            }
            Err(_) => false,
        };
        self.counters.unexpected += u64::from(!expected);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.seen = now;
        self.registrar.handle_timeout(now);
        if self.preparing.is_some_and(|since| since <= now) {
            self.preparing = self.responder.prepare().then_some(now);
        }
    }

    fn handle_wall_clock(&mut self, wall: WallClock) {
        self.registrar.set_wall_clock(wall);
        self.responder.handle_wall_clock(wall);
    }

    fn poll_packet(&mut self, now: Time, _face: FaceNumber) -> Option<Outgoing> {
        if !self.up {
            return None;
        }
        if let Some(command) = self.registrar.poll(now, &mut self.rng) {
            return Some((command, None));
        }
        if self
            .later
            .first_key_value()
            .is_some_and(|((at, _), _)| *at <= now)
        {
            return self.later.pop_first().map(|(_, outgoing)| outgoing);
        }
        self.outbox.pop_front()
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        match self.registrar.poll_event() {
            Some(event) => Some(ServiceEvent::Registration(event)),
            None => self.responder.poll_event().map(ServiceEvent::Producer),
        }
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let later = self
            .later
            .first_key_value()
            .and_then(|((at, _), _)| due(*at, self.seen, "an answer is due"));
        let prepare = self
            .preparing
            .map(|since| Deadline::new(since, "likely answers are prepared"));
        Deadline::earlier(
            Deadline::earlier(self.registrar.poll_timeout(), later),
            prepare,
        )
    }
}
