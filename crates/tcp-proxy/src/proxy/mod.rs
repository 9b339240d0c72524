//! The proxy: segments of a device on one side, Interests and Data on the other.

mod inward;
mod outward;
mod ways;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{Deadline, SeededRng, Time, TimerQueue, WallClock};
use whimbrel_ndn_packet::{
    Interest, InterestRef, LpHeader, LpPacket, NackReason, Name, NameRef, SignatureInfo,
    SignatureType, Signer,
};
use whimbrel_transport::application::Arrival;
use whimbrel_transport::ledger::{HashedLedger, Ledger, Sent};
use whimbrel_transport::path::PathId;
use whimbrel_transport::register::{Registrar, RegistrationEvent, RouteParameters};
use whimbrel_transport::{Application, FaceNumber, Outgoing};

use crate::admission::{Admission, Opener};
use crate::connection::{Beginning, Connection, ConnectionStatus, Ends, Packet};
use crate::counters::Counters;
use crate::icmp::{Reporter, Unreachable};
use crate::message::{Message, Protocol};
use crate::naming;
use crate::options::{Options, OptionsError};
use crate::paths::{BY_NAME, PathStatus, Paths, PeerIndex, Way};
use crate::phase::Phase;
use crate::refusals::{Refusals, Refused};
use crate::seal::Sealer;
use crate::segment::Segment;
use crate::silence::Peers;
use crate::table::{Slot, Table};

/// An event for the program around a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyEvent {
    /// The outcome of registering the prefix.
    Registration(RegistrationEvent),
    /// A peer's clock differs too much from this host's, or someone replays old messages; said once
    /// until a message is accepted.
    Untimely,
    /// A message was not made with this proxy's key; said once until a message is accepted.
    Forged,
    /// A connection is not carried; said once for a client, a server and its port.
    Refused(Refused),
    /// Connections are not opened for a while, the latest for this client; said once a minute.
    NotAdmitted(IpAddr),
}

/// A pending Interest; its path is in the ledger.
#[derive(Clone, Copy, Debug)]
enum Pending {
    /// Of a connection.
    Connection {
        slot: Slot,
        generation: u32,
        /// Of reliable prefetching: the number that it fetches.
        number: Option<u64>,
    },
    /// Finds or checks a path to this peer.
    Probe(PeerIndex),
}

/// A forward proxy, a reverse proxy or both: the policy decides ([TCP/ICN §3]: "the entry and exit
/// proxies perform complementary functions").
///
/// Segments go in by [`Proxy::handle_segment`] and come out of [`Proxy::poll_segment`]; the NDN side
/// is its [`Application`].
///
/// A connection that nobody answers is no connection: whoever opens many of them
/// ([`crate::Limits`]) has further ones dropped, which TCP repeats; the others and those that are
/// answered do not wait behind them.
pub struct Proxy {
    options: Options,
    /// Largest IP packet to which MSS options are clamped.
    clamp: usize,
    sealer: Sealer,
    table: Table,
    /// Connections opened on this side, and by peers.
    admissions: [Admission; 2],
    /// By name.
    pending: HashedLedger<Bytes, Pending>,
    timers: TimerQueue<Slot>,
    peers: Peers,
    paths: Paths,
    /// Interests to send, and Data that answer an Interest at hand.
    outbox: VecDeque<Outgoing>,
    /// Connections with Interests and segments for a Data.
    ready: VecDeque<Slot>,
    delivered: VecDeque<Packet>,
    queued_bytes: usize,
    registrar: Registrar,
    reporter: Reporter,
    refusals: Refusals,
    counters: Counters,
    events: VecDeque<ProxyEvent>,
    /// A complaint was reported, and no message accepted since.
    complained: bool,
    rng: SeededRng,
    up: bool,
}

/// Who opens a connection, and with which segment.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    side: Opener,
    /// The sequence number of the segment at hand; 0 if it is not known.
    sequence: u32,
    /// It is not a SYN: the proxy has found the connection in the middle.
    adopted: bool,
}

/// A Data is authenticated by the seal in its content; its signature is empty.
struct NoSignature;

impl Signer for NoSignature {
    fn info(&self) -> SignatureInfo {
        SignatureInfo::new(SignatureType::Null)
    }

    fn sign(&self, _: &[&[u8]]) -> Vec<u8> {
        Vec::new()
    }
}

impl Proxy {
    /// Returns a proxy without connections.
    pub fn new(options: Options, mut rng: SeededRng) -> Result<Proxy, OptionsError> {
        options.check()?;
        let route = RouteParameters::new(options.prefix.clone());
        Ok(Proxy {
            clamp: options.clamp(),
            sealer: Sealer::new(options.seal.clone(), &mut rng),
            table: Table::new(&mut rng),
            admissions: [Opener::Program, Opener::Peer].map(|it| Admission::new(it, &mut rng)),
            pending: Ledger::hashed(options.limits.pending, &mut rng),
            timers: TimerQueue::new(),
            peers: Peers::default(),
            paths: Paths::new(options.paths),
            outbox: VecDeque::new(),
            ready: VecDeque::new(),
            delivered: VecDeque::new(),
            queued_bytes: 0,
            registrar: Registrar::new(options.register.clone(), [route]),
            reporter: Reporter::default(),
            refusals: Refusals::default(),
            counters: Counters::default(),
            events: VecDeque::new(),
            complained: false,
            rng,
            up: false,
            options,
        })
    }

    /// Counters since the start.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of connections in the table.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Returns all connections, for tables.
    pub fn status(&self, now: Time) -> Vec<ConnectionStatus> {
        let status = |it: &Connection| ConnectionStatus {
            path: it.way.and_then(|way| self.paths.tag(way)).cloned(),
            ..it.status(now)
        };
        self.table.iter().map(status).collect()
    }

    /// Returns the known paths to all peers, for tables.
    pub fn paths(&self) -> Vec<PathStatus> {
        self.paths.status()
    }

    /// Returns the number of connections in each phase, in the order of [`Phase::ALL`].
    pub fn phases(&self) -> [u64; Phase::ALL.len()] {
        let mut counts = [0; Phase::ALL.len()];
        for connection in self.table.iter() {
            counts[connection.tracker.phase() as usize] += 1;
        }
        counts
    }

    /// Returns the bytes of segments that wait, of all connections.
    pub const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Pending Interests that are remembered.
    pub fn pending_interests(&self) -> usize {
        self.pending.len()
    }

    /// Returns true once the forwarder has accepted the prefix.
    pub fn is_registered(&self) -> bool {
        self.registrar.is_registered()
    }

    /// Withdraws the prefix from the forwarder: the program ends.
    pub fn withdraw(&mut self) {
        self.registrar.withdraw();
    }

    /// The next packet for the device.
    pub fn poll_segment(&mut self) -> Option<Packet> {
        self.delivered.pop_front()
    }

    fn deliver(&mut self, packet: Packet) {
        if self.delivered.len() >= self.options.limits.delivered {
            self.counters.queue_full += 1;
        } else {
            self.counters.delivered_packets += 1;
            self.delivered.push_back(packet);
        }
    }

    fn report(&mut self, now: Time, packet: &[u8], why: Unreachable) {
        if let Some(error) = self.reporter.report(now, packet, why) {
            self.counters.icmp_errors += 1;
            self.deliver(error.into());
        }
    }

    /// Adds a connection; `None` if the table is full, or if who opens it has opened too many that
    /// nobody has answered.
    fn open(
        &mut self,
        now: Time,
        ends: Ends,
        (protocol, peer): (Protocol, Name),
        attempt: Attempt,
    ) -> Option<Slot> {
        if self.table.len() >= self.options.limits.connections {
            self.counters.table_full += 1;
            return None;
        }
        let limits = &self.options.limits;
        let admission = &mut self.admissions[attempt.side as usize];
        let client = attempt.side.client(&ends);
        let Some(charge) = admission.admits(now, client, (ends, attempt.sequence), limits) else {
            self.counters.not_admitted += 1;
            if admission.tell_once(now) {
                self.events.push_back(ProxyEvent::NotAdmitted(client));
            }
            return None;
        };
        let label = self.rng.next_word();
        let names = naming::connection(&self.options.prefix, &ends.outward(), label, &self.sealer);
        let beginning = Beginning {
            ends,
            generation: self.table.generation(),
            protocol,
            peer,
            label,
            own_names: names,
            adopted: attempt.adopted,
            charge,
        };
        self.counters.connections += 1;
        let slot = self
            .table
            .insert(Connection::new(now, beginning, &self.options));
        for oldest in self.table.too_many_opening(self.options.limits.opening) {
            self.counters.opening_forgotten += 1;
            self.close(oldest);
        }
        Some(slot)
    }

    fn close(&mut self, slot: Slot) {
        if let Some(connection) = self.table.remove(slot) {
            self.queued_bytes -= connection.charged;
            if let Some(way) = connection.way {
                self.paths.release(way);
            }
        }
        self.timers.cancel(&slot);
    }

    /// After an input of a connection: its memory, its place among those that can send, its timer.
    fn settle(&mut self, now: Time, slot: Slot) {
        let Some(connection) = self.table.get_mut(slot) else {
            return;
        };
        if connection.charge.is_some()
            && connection.tracker.is_answered()
            && let Some(charge) = connection.charge.take()
        {
            let client = charge.opener.client(&connection.ends);
            let admission = &mut self.admissions[charge.opener as usize];
            admission.answered(client, charge, &self.options.limits);
        }
        let bytes = connection.carrier.bytes();
        self.queued_bytes = self.queued_bytes - connection.charged + bytes;
        connection.charged = bytes;
        if let crate::connection::Carrier::Unreliable(queue) = &mut connection.carrier
            && !connection.is_ready
            && queue.make_ready(now)
        {
            connection.is_ready = true;
            self.ready.push_back(slot);
        }
        self.request(now, slot);
        self.notify(now, slot);
        if let Some(connection) = self.table.get(slot) {
            let at = connection.deadline(now, &self.options);
            self.timers.set_earlier(slot, at);
        }
    }

    /// Sends a message to the connection's peer.
    fn send_message(&mut self, now: Time, slot: Slot, message: &Message, fetches: bool) {
        let Some(connection) = self.table.get(slot) else {
            return;
        };
        let name = self.sealed_name(now, &connection.peer.clone(), message);
        self.send_interest(now, slot, name, fetches, None);
    }

    /// Returns the name of an Interest that carries a message to the proxy at `peer`.
    fn sealed_name(&mut self, now: Time, peer: &Name, message: &Message) -> Name {
        let mut sealed = message.encode();
        let nonce = self.sealer.seal(now, peer.as_ref().value(), &mut sealed);
        naming::message(peer, &sealed, &nonce)
    }

    fn send_interest(
        &mut self,
        now: Time,
        slot: Slot,
        name: Name,
        fetches: bool,
        number: Option<u64>,
    ) {
        if !self.claim_room() {
            return;
        }
        let lifetime = if fetches {
            self.options.interest_lifetime
        } else {
            self.options.message_lifetime
        };
        let way = self.way_of(slot);
        let header = way.and_then(|way| self.paths.header(way));
        let Some(connection) = self.table.get_mut(slot) else {
            return;
        };
        connection.counters.interests += 1;
        let pending = Pending::Connection {
            slot,
            generation: connection.generation,
            number,
        };
        let path = way.map_or(BY_NAME, |way| way.path);
        self.pend(now, name, (path, lifetime), header, pending);
    }

    /// Sends an Interest over a path, whose header fields are `header`.
    fn pend(
        &mut self,
        now: Time,
        name: Name,
        (path, lifetime): (PathId, Duration),
        header: Option<Box<LpHeader>>,
        pending: Pending,
    ) {
        let nonce = self.rng.next_word() as u32;
        let key = Bytes::copy_from_slice(name.as_ref().value());
        let sent = Sent::first(now, path, nonce, Some(now + lifetime));
        // A retransmission of reliable prefetching has the same name.
        self.pending.take(&key[..]);
        self.pending.send(key, sent, pending);
        self.push_interest(name, nonce, lifetime, header);
    }

    /// Returns true if another packet for the forwarder may wait; counts those that may not.
    fn claim_room(&mut self) -> bool {
        let has_room = self.up && self.outbox.len() < self.options.limits.outgoing;
        self.counters.queue_full += u64::from(!has_room);
        has_room
    }

    fn push_interest(
        &mut self,
        name: Name,
        nonce: u32,
        lifetime: Duration,
        header: Option<Box<LpHeader>>,
    ) {
        let interest = Interest {
            nonce: Some(nonce.to_be_bytes()),
            lifetime: Some(lifetime),
            ..Interest::new(name)
        };
        self.counters.out_interests += 1;
        self.outbox.push_back((interest.encode().into(), header));
    }

    /// Tells the user of a connection that is not carried.
    fn refused(&mut self, refused: Refused) {
        if self.refusals.note_new(&refused) {
            self.events.push_back(ProxyEvent::Refused(refused));
        }
    }

    fn complain(&mut self, event: ProxyEvent) {
        if !self.complained {
            self.complained = true;
            self.events.push_back(event);
        }
    }

    /// A Nack: the network has no way to the peer. A program that waits for a connection is told.
    fn handle_nack(&mut self, now: Time, reason: NackReason, interest: &InterestRef<'_>) {
        self.counters.in_nacks += 1;
        if self.registrar.handle_nack(now, reason, interest) {
            return;
        }
        let Some(entry) = self.pending.take(interest.name.value()) else {
            self.counters.unexpected += 1;
            return;
        };
        let Pending::Connection {
            slot,
            generation,
            number,
        } = entry.data
        else {
            return;
        };
        let Some(connection) = self.table.same(slot, generation) else {
            return;
        };
        if reason != NackReason::NoRoute {
            return;
        }
        if entry.sent.path != BY_NAME {
            let way = connection.way.map(|way| Way {
                path: entry.sent.path,
                ..way
            });
            if let Some(way) = way {
                self.path_fails(now, way);
            }
            let fetches = interest.lifetime > self.options.message_lifetime;
            self.send_interest(now, slot, interest.name.to_name(), fetches, number);
            return;
        }
        let syn = connection.first_packet.clone();
        if connection.waits_for_peer() {
            self.report(now, &syn, Unreachable::Host);
        }
    }
}

impl Application for Proxy {
    type Event = ProxyEvent;

    fn handle_face(&mut self, now: Time, _face: FaceNumber, up: bool) {
        self.up = up;
        if !up {
            // A new forwarder does not know the Interests; TCP recovers what they carried.
            self.outbox.clear();
        }
        self.registrar.handle_face(now, up);
    }

    fn handle_packet(&mut self, now: Time, _face: FaceNumber, packet: &LpPacket<'_>) {
        match Arrival::decode(packet) {
            Ok(Arrival::Interest(interest)) => self.handle_interest(now, &interest),
            Ok(Arrival::Data(data)) => {
                if !self.registrar.handle_data(now, &data) {
                    self.handle_data(now, &data, packet.path_tag);
                }
            }
            Ok(Arrival::Nack(reason, interest)) => self.handle_nack(now, reason, &interest),
            Err(_) => self.counters.unexpected += 1,
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.registrar.handle_timeout(now);
        while let Some(name) = self.pending.overdue(now).map(|(name, _)| name.clone()) {
            let entry = self.pending.take(&name[..]);
            if let Some(entry) = entry
                && let Pending::Probe(peer) = entry.data
            {
                self.probe_expired(now, peer, entry.sent.path);
            }
        }
        self.probe_paths(now);
        self.probe(now);
        let mut pass = self.timers.pass(now);
        while let Some((_, slot)) = pass.next(&mut self.timers) {
            self.handle_due(now, slot);
        }
    }

    fn handle_wall_clock(&mut self, wall: WallClock) {
        self.registrar.set_wall_clock(wall);
        self.sealer.set_wall_clock(wall);
    }

    fn poll_packet(&mut self, now: Time, _face: FaceNumber) -> Option<Outgoing> {
        if !self.up {
            return None;
        }
        if let Some(command) = self.registrar.poll(now, &mut self.rng) {
            return Some((command, None));
        }
        if let Some(packet) = self.outbox.pop_front() {
            return Some(packet);
        }
        self.next_data(now).map(|data| (data, None))
    }

    fn poll_event(&mut self) -> Option<ProxyEvent> {
        let registration = self.registrar.poll_event();
        registration
            .map(ProxyEvent::Registration)
            .or_else(|| self.events.pop_front())
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let timer = self.timers.next();
        let timer = timer.map(|(at, _)| Deadline::new(at, "a connection's timer is due"));
        let pending = self.pending.next_deadline();
        let pending = pending.map(|at| Deadline::new(at, "an Interest expires"));
        let silence = self.peers.next();
        let silence = silence.map(|at| Deadline::new(at, "a peer may be silent"));
        let paths = self.paths.next();
        let paths = paths.map(|at| Deadline::new(at, "a probe of paths is due"));
        let own = Deadline::earlier(Deadline::earlier(timer, pending), silence);
        let own = Deadline::earlier(own, paths);
        Deadline::earlier(self.registrar.poll_timeout(), own)
    }
}

/// Returns the context of a sealed Data: its whole name.
fn context_of(name: NameRef<'_>) -> &[u8] {
    name.value()
}

/// Returns the segment that `packet` is, counted if it is none.
fn decoded<'a>(counters: &mut Counters, packet: &'a [u8]) -> Option<Segment<'a>> {
    Segment::decode(packet)
        .inspect_err(|error| counters.count_segment(*error))
        .ok()
}
