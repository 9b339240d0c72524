//! The proxy: segments of a device on one side, Interests and Data on the other.

mod complaints;
mod device;
mod inward;
mod outward;
mod uplink;
mod ways;

use core::net::IpAddr;
use std::collections::VecDeque;

use whimbrel_core::{Deadline, SeededRng, Time, TimerQueue, WallClock};
use whimbrel_ndn_packet::{InterestRef, LpPacket, NackReason, Name, NameRef};
use whimbrel_transport::application::Arrival;
use whimbrel_transport::register::{Registrar, RegistrationEvent, RouteParameters};
use whimbrel_transport::{Application, FaceNumber, Outgoing};

use crate::admission::{Admission, Opener};
use crate::connection::{Beginning, Connection, ConnectionStatus, Packet};
use crate::counters::Counters;
use crate::icmp::Unreachable;
use crate::message::{Message, Protocol};
use crate::naming;
use crate::options::{Options, OptionsError};
use crate::paths::{BY_NAME, PathStatus, Paths, Way};
use crate::phase::Phase;
use crate::refusals::Refused;
use crate::seal::Sealer;
use crate::segment::{Ends, Segment};
use crate::silence::Peers;
use crate::table::{Slot, Table};
use complaints::Complaints;
use device::Device;
use uplink::{ForwarderSide, InterestTerms, Pending};

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
    table: Table,
    /// Connections opened on this side, and by peers.
    admissions: [Admission; 2],
    timers: TimerQueue<Slot>,
    peers: Peers,
    paths: Paths,
    uplink: ForwarderSide,
    device: Device,
    /// Connections with Interests and segments for a Data.
    ready: VecDeque<Slot>,
    queued_bytes: usize,
    registrar: Registrar,
    counters: Counters,
    complaints: Complaints,
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

impl Proxy {
    /// Returns a proxy without connections.
    pub fn new(options: Options, mut rng: SeededRng) -> Result<Proxy, OptionsError> {
        options.check()?;
        let route = RouteParameters::new(options.prefix.clone());
        let sealer = Sealer::new(options.seal.clone(), &mut rng);
        Ok(Proxy {
            clamp: options.clamp(),
            table: Table::new(&mut rng),
            admissions: [Opener::Program, Opener::Peer].map(|it| Admission::new(it, &mut rng)),
            timers: TimerQueue::new(),
            peers: Peers::default(),
            paths: Paths::new(options.paths),
            uplink: ForwarderSide::new(&options, sealer, rng),
            device: Device::new(options.limits.delivered),
            ready: VecDeque::new(),
            queued_bytes: 0,
            registrar: Registrar::new(options.register.clone(), [route]),
            counters: Counters::default(),
            complaints: Complaints::default(),
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
        self.uplink.pending.len()
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
        self.device.pop()
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
                self.complaints.push(ProxyEvent::NotAdmitted(client));
            }
            return None;
        };
        let label = self.uplink.rng.next_word();
        let names = naming::connection(
            &self.options.prefix,
            &ends.outward(),
            label,
            &self.uplink.sealer,
        );
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
        let name = self.uplink.sealed_name(now, &connection.peer, message);
        self.send_interest(now, slot, name, fetches, None);
    }

    fn send_interest(
        &mut self,
        now: Time,
        slot: Slot,
        name: Name,
        fetches: bool,
        number: Option<u64>,
    ) {
        if !self.uplink.claim_room(&mut self.counters) {
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
        let sending = InterestTerms {
            path: way.map_or(BY_NAME, |way| way.path),
            lifetime,
            header,
        };
        self.uplink
            .send(now, name, sending, pending, &mut self.counters);
    }

    /// A Nack: the network has no way to the peer. A program that waits for a connection is told.
    fn handle_nack(&mut self, now: Time, reason: NackReason, interest: &InterestRef<'_>) {
        self.counters.in_nacks += 1;
        if self.registrar.handle_nack(now, reason, interest) {
            return;
        }
        let Some(entry) = self.uplink.pending.take(interest.name.value()) else {
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
            let counters = &mut self.counters;
            self.device.report(now, &syn, Unreachable::Host, counters);
        }
    }
}

impl Application for Proxy {
    type Event = ProxyEvent;

    fn handle_face(&mut self, now: Time, _face: FaceNumber, up: bool) {
        self.uplink.set_up(up);
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
        while let Some(name) = self
            .uplink
            .pending
            .overdue(now)
            .map(|(name, _)| name.clone())
        {
            let entry = self.uplink.pending.take(&name[..]);
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
        self.uplink.sealer.set_wall_clock(wall);
    }

    fn poll_packet(&mut self, now: Time, _face: FaceNumber) -> Option<Outgoing> {
        if !self.uplink.is_up() {
            return None;
        }
        if let Some(command) = self.registrar.poll(now, &mut self.uplink.rng) {
            return Some((command, None));
        }
        if let Some(packet) = self.uplink.pop() {
            return Some(packet);
        }
        self.next_data(now).map(|data| (data, None))
    }

    fn poll_event(&mut self) -> Option<ProxyEvent> {
        let registration = self.registrar.poll_event();
        registration
            .map(ProxyEvent::Registration)
            .or_else(|| self.complaints.pop())
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let timer = self.timers.next();
        let timer = timer.map(|(at, _)| Deadline::new(at, "a connection's timer is due"));
        let pending = self.uplink.pending.next_deadline();
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
