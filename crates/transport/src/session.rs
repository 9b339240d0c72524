//! Several operations of one program on one face: Interests, fetches, publications and served prefixes.
//!
//! [`NdnSession`] is itself an [`Application`]. An operation is an application as well; a program that has its own adds it
//! with [`NdnSession::add`]. A driver that waits and awaits is in the crate `node` (`ndn::face`).

use core::ops::Bound;
use std::collections::BTreeMap;

use whimbrel_core::{Deadline, SeededRng, Time, WallClock};
use whimbrel_ndn_packet::{InterestRef, LpPacket, Name};

use crate::application::{Application, Arrival, FaceNumber, Outgoing};
use crate::fetch::{FetchEvent, FetchOptions, Fetcher};
use crate::peek::{Peek, PeekEvent, PeekOptions};
use crate::register::{RegisterOptions, Registrar, RegistrationEvent, RouteParameters};
use crate::serve::{
    Answer, Producer, ProducerEvent, ProducerOptions, Responder, SegmentSource, Service,
    ServiceEvent, SharedSigner,
};

/// Bound of the operations at a time.
const MAX_OPERATIONS: usize = 1024;

/// The number of an operation.
pub type OperationNumber = u64;

/// What an operation tells its program.
#[derive(Clone, PartialEq, Debug)]
pub enum OperationEvent {
    /// The outcome of an Interest.
    Expressed(PeekEvent),
    /// Of a fetch.
    Fetched(FetchEvent),
    /// The outcome of a registration.
    Registration(RegistrationEvent),
    /// Of published content.
    Published(ProducerEvent),
}

impl OperationEvent {
    /// Returns true for the last event of an operation.
    pub fn is_last(&self) -> bool {
        matches!(
            self,
            OperationEvent::Expressed(_)
                | OperationEvent::Fetched(FetchEvent::Done(_) | FetchEvent::Failed { .. })
        )
    }
}

/// The bound of operations is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("1,024 operations are under way on this face")]
pub struct TooManyOperations;

/// ClosureResponder the Interests of a prefix.
pub type Answering = Box<dyn FnMut(&InterestRef<'_>) -> Answer + Send>;

type SessionPart = Box<dyn Application<Event = OperationEvent> + Send>;

struct SessionOperation {
    part: SessionPart,
    /// The Interests that it gets: those below this name, unless another one has a longer prefix.
    prefix: Option<Name>,
    /// Events that its program will take; others stay where they are bounded.
    wanted: u64,
}

/// Operations that share a face. At most 1,024.
pub struct NdnSession {
    operations: BTreeMap<OperationNumber, SessionOperation>,
    next: OperationNumber,
    /// The operation that has sent last: they take turns.
    turn: OperationNumber,
    rng: SeededRng,
    register: RegisterOptions,
    up: bool,
    /// Interests that no operation serves.
    unserved: u64,
}

impl NdnSession {
    /// Returns a session without operations. Prefixes are registered with these options.
    pub fn new(register: RegisterOptions, rng: SeededRng) -> NdnSession {
        NdnSession {
            operations: BTreeMap::new(),
            next: 1,
            turn: 0,
            rng,
            register,
            up: false,
            unserved: 0,
        }
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns true if there is no operation.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the number of Interests that no operation serves.
    pub const fn unserved(&self) -> u64 {
        self.unserved
    }

    /// Sends one Interest. Its outcome is wanted.
    pub fn express(
        &mut self,
        now: Time,
        name: Name,
        options: PeekOptions,
    ) -> Result<OperationNumber, TooManyOperations> {
        let peek = Peek::new(name, options, self.randomness(), now);
        let number = self.add(
            now,
            None,
            MappedApplication::new(peek, OperationEvent::Expressed),
        )?;
        self.want(number, 1);
        Ok(number)
    }

    /// Fetches a segmented object. Its events come as they are wanted ([`NdnSession::want`]): what the program has not
    /// taken is bounded by the fetch's options.
    pub fn fetch(
        &mut self,
        now: Time,
        name: Name,
        options: FetchOptions,
    ) -> Result<OperationNumber, TooManyOperations> {
        let fetcher = Fetcher::new(name, options, self.randomness(), now);
        self.add(
            now,
            None,
            MappedApplication::new(fetcher, OperationEvent::Fetched),
        )
    }

    /// Registers a prefix, and answers its Interests.
    pub fn serve(
        &mut self,
        now: Time,
        prefix: Name,
        answering: Answering,
    ) -> Result<OperationNumber, TooManyOperations> {
        let routes = [RouteParameters::new(prefix.clone())];
        let registrar = Registrar::new(self.register.clone(), routes);
        let service = Service::new(ClosureResponder(answering), registrar, self.randomness());
        let told = |event| match event {
            ServiceEvent::Registration(event) => OperationEvent::Registration(event),
            ServiceEvent::Producer(never) => match never {},
        };
        self.serving(now, prefix, MappedApplication::new(service, told))
    }

    /// Publishes a segmented object under a name, which is registered without the version at its end.
    pub fn publish(
        &mut self,
        now: Time,
        name: Name,
        source: impl SegmentSource + Send + 'static,
        signer: SharedSigner,
        options: ProducerOptions,
    ) -> Result<OperationNumber, TooManyOperations> {
        let (register, rng) = (self.register.clone(), self.randomness());
        let producer = Producer::segments(name, source, signer, options, register, rng);
        let prefix = producer.responder().name().clone();
        let told = |event| match event {
            ServiceEvent::Registration(event) => OperationEvent::Registration(event),
            ServiceEvent::Producer(event) => OperationEvent::Published(event),
        };
        self.serving(now, prefix, MappedApplication::new(producer, told))
    }

    fn serving(
        &mut self,
        now: Time,
        prefix: Name,
        part: impl Application<Event = OperationEvent> + Send + 'static,
    ) -> Result<OperationNumber, TooManyOperations> {
        let number = self.add(now, Some(prefix), part)?;
        self.want(number, u64::MAX);
        Ok(number)
    }

    /// Adds an operation of the program's own, which gets all Data and Nacks, and the Interests below `prefix`.
    pub fn add(
        &mut self,
        now: Time,
        prefix: Option<Name>,
        part: impl Application<Event = OperationEvent> + Send + 'static,
    ) -> Result<OperationNumber, TooManyOperations> {
        if self.operations.len() >= MAX_OPERATIONS {
            return Err(TooManyOperations);
        }
        let mut part: SessionPart = Box::new(part);
        if self.up {
            part.handle_face(now, FaceNumber::FIRST, true);
        }
        let number = self.next;
        self.next += 1;
        let operation = SessionOperation {
            part,
            prefix,
            wanted: 0,
        };
        self.operations.insert(number, operation);
        Ok(number)
    }

    /// Requests this many further events of an operation.
    pub fn want(&mut self, number: OperationNumber, events: u64) {
        if let Some(operation) = self.operations.get_mut(&number) {
            operation.wanted = operation.wanted.saturating_add(events);
        }
    }

    /// Ends an operation. A prefix stays registered with the forwarder until the face closes.
    pub fn end(&mut self, number: OperationNumber) {
        self.operations.remove(&number);
    }

    fn randomness(&mut self) -> SeededRng {
        SeededRng::new(self.rng.next_word())
    }

    /// Returns the operation with the longest prefix of an Interest's name.
    fn server_of(&mut self, interest: &InterestRef<'_>) -> Option<&mut SessionOperation> {
        let serves = |operation: &&mut SessionOperation| {
            let prefix = operation.prefix.as_ref();
            prefix.is_some_and(|prefix| prefix.as_ref().is_prefix_of(interest.name))
        };
        let operations = self.operations.values_mut().filter(serves);
        operations.max_by_key(|operation| operation.prefix.as_ref().map_or(0, Name::len))
    }
}

impl Application for NdnSession {
    type Event = (OperationNumber, OperationEvent);

    fn handle_face(&mut self, now: Time, face: FaceNumber, up: bool) {
        self.up = up;
        for operation in self.operations.values_mut() {
            operation.part.handle_face(now, face, up);
        }
    }

    fn handle_packet(&mut self, now: Time, face: FaceNumber, packet: &LpPacket<'_>) {
        if let Ok(Arrival::Interest(interest)) = Arrival::decode(packet) {
            match self.server_of(&interest) {
                Some(operation) => operation.part.handle_packet(now, face, packet),
                None => self.unserved += 1,
            }
            return;
        }
        for operation in self.operations.values_mut() {
            operation.part.handle_packet(now, face, packet);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        for operation in self.operations.values_mut() {
            operation.part.handle_timeout(now);
        }
    }

    fn handle_wall_clock(&mut self, wall: WallClock) {
        self.register.clock = wall;
        for operation in self.operations.values_mut() {
            operation.part.handle_wall_clock(wall);
        }
    }

    fn poll_packet(&mut self, now: Time, face: FaceNumber) -> Option<Outgoing> {
        let after = (Bound::Excluded(self.turn), Bound::Unbounded);
        let polled = first_packet(self.operations.range_mut(after), now, face);
        let before = || first_packet(self.operations.range_mut(..=self.turn), now, face);
        let (number, outgoing) = polled.or_else(before)?;
        self.turn = number;
        Some(outgoing)
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        let wanted = self.operations.iter_mut().filter(|(_, it)| it.wanted > 0);
        let (number, event) = wanted
            .filter_map(|(number, operation)| {
                let event = operation.part.poll_event()?;
                operation.wanted = match operation.wanted {
                    u64::MAX => u64::MAX,
                    wanted => wanted - 1,
                };
                Some((*number, event))
            })
            .next()?;
        if event.is_last() {
            self.operations.remove(&number);
        }
        Some((number, event))
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let deadlines = self.operations.values().map(|it| it.part.poll_timeout());
        deadlines.fold(None, Deadline::earlier)
    }
}

/// Returns the first packet that one of these operations sends.
fn first_packet<'a>(
    operations: impl Iterator<Item = (&'a OperationNumber, &'a mut SessionOperation)>,
    now: Time,
    face: FaceNumber,
) -> Option<(OperationNumber, Outgoing)> {
    let mut polled =
        operations.map(|(number, it)| Some((*number, it.part.poll_packet(now, face)?)));
    polled.find_map(|it| it)
}

/// A responder that is a closure.
struct ClosureResponder(Answering);

impl Responder for ClosureResponder {
    type Event = core::convert::Infallible;

    fn respond(&mut self, _: Time, interest: &InterestRef<'_>) -> Answer {
        (self.0)(interest)
    }

    fn poll_event(&mut self) -> Option<core::convert::Infallible> {
        None
    }
}

/// An application whose events are those of an operation.
struct MappedApplication<A: Application> {
    application: A,
    told: fn(A::Event) -> OperationEvent,
}

impl<A: Application> MappedApplication<A> {
    const fn new(application: A, told: fn(A::Event) -> OperationEvent) -> MappedApplication<A> {
        MappedApplication { application, told }
    }
}

impl<A: Application> Application for MappedApplication<A> {
    type Event = OperationEvent;

    fn handle_face(&mut self, now: Time, face: FaceNumber, up: bool) {
        self.application.handle_face(now, face, up);
    }

    fn handle_packet(&mut self, now: Time, face: FaceNumber, packet: &LpPacket<'_>) {
        self.application.handle_packet(now, face, packet);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.application.handle_timeout(now);
    }

    fn handle_wall_clock(&mut self, wall: WallClock) {
        self.application.handle_wall_clock(wall);
    }

    fn poll_packet(&mut self, now: Time, face: FaceNumber) -> Option<Outgoing> {
        self.application.poll_packet(now, face)
    }

    fn poll_event(&mut self) -> Option<OperationEvent> {
        self.application.poll_event().map(self.told)
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.application.poll_timeout()
    }
}
