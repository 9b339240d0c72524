//! From the device to the peer.

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_packet::{Name, NameRef};

use super::{Attempt, Proxy};
use crate::admission::Opener;
use crate::connection::{Carrier, Connection};
use crate::icmp::Unreachable;
use crate::message::{Carried, Message, Protocol, Stock};
use crate::naming;
use crate::options::DATA_OVERHEAD;
use crate::refusals::Refused;
use crate::reliable::Supplied;
use crate::segment::{Ends, Segment, SegmentError};
use crate::table::Slot;

impl Proxy {
    /// Handles a packet that the device has for the network.
    pub fn handle_segment(&mut self, now: Time, packet: &[u8]) {
        self.counters.device_packets += 1;
        let segment = match Segment::decode(packet) {
            Ok(segment) => segment,
            Err(error) => {
                self.counters.count_segment(error);
                if matches!(error, SegmentError::NotTcp(_)) {
                    let counters = &mut self.counters;
                    self.device
                        .report(now, packet, Unreachable::Protocol, counters);
                }
                return;
            }
        };
        let ends = Ends::of_outward(&segment.flow);
        let Some(slot) = self.outward_connection(now, ends, &segment) else {
            return;
        };
        let packet = Bytes::from(segment.clamped(self.clamp));
        if let Some(connection) = self.table.get_mut(slot) {
            connection.note_outward(now, &segment);
            if segment.flags.syn {
                connection.first_packet = packet.clone();
            }
            connection.hold(now, &segment, &packet);
            if !connection.tracker.phase().is_over() {
                self.peers.spoke(now, &connection.peer, slot);
                if self.paths.are_wanted() {
                    self.paths.spoke(now, &connection.peer);
                }
            }
        }
        self.carry(now, slot, &segment, packet);
        self.settle(now, slot);
    }

    /// The connection of a segment from the device: known, or opened by it.
    fn outward_connection(&mut self, now: Time, ends: Ends, segment: &Segment<'_>) -> Option<Slot> {
        let begins = segment.flags.syn && !segment.flags.ack;
        if let Some(slot) = self.table.find(&ends) {
            let is_over = |it: &Connection| it.tracker.phase().is_over();
            if !(begins && self.table.get(slot).is_some_and(is_over)) {
                return Some(slot);
            }
            self.close(slot);
        }
        let policy = &self.options.policy;
        let route = policy.route(ends.remote.ip());
        // A connection that this proxy finds in the middle may be one that it had before a restart.
        let allowed = policy.allows_source(ends.local.ip())
            || (!begins && policy.allows_destination(ends.local));
        let Some(route) = route.filter(|_| allowed) else {
            self.counters.denied += 1;
            let (counters, why) = (&mut self.counters, Unreachable::Prohibited);
            self.device.report(now, segment.packet, why, counters);
            self.complaints.note_refused(Refused::Program(ends));
            return None;
        };
        if segment.flags.rst {
            self.counters.unknown_connection += 1;
            return None;
        }
        let protocol = route.protocol.unwrap_or(self.options.protocol);
        let peer = route.target.prefix(ends.remote.ip());
        let attempt = Attempt {
            side: Opener::Program,
            sequence: segment.sequence,
            adopted: !begins,
        };
        self.open(now, ends, (protocol, peer), attempt)
    }

    /// Carries a segment by the connection's protocol. Segments without payload are Interests: "TCP
    /// segments that do not carry any payload (e.g. ACK, SYN, FIN packets, etc.) are transformed
    /// into Interest packets" ([TCP/ICN §3.4.1]). A FIN or RST that would overtake segments in the
    /// queue waits behind them.
    fn carry(&mut self, now: Time, slot: Slot, segment: &Segment<'_>, packet: Bytes) {
        let room = self.room();
        let Some(connection) = self.table.get_mut(slot) else {
            return;
        };
        let last = segment.flags.fin || segment.flags.rst;
        let acknowledges = connection.acknowledges(segment);
        if segment.payload > 0 || (last && connection.carrier.has_backlog()) {
            self.queue(now, slot, segment, packet);
        } else {
            let further = match &mut connection.carrier {
                // What an end invents brings no Interests.
                Carrier::Unreliable(queue) if acknowledges => {
                    queue.note_interest(segment.acknowledgement, room)
                }
                _ => 0,
            };
            let opening = segment
                .flags
                .syn
                .then(|| connection.opening(&self.options.prefix));
            let fetches = connection.protocol == Protocol::Unreliable;
            let message = Message::Segment { opening, packet };
            self.send_message(now, slot, &message, fetches);
            self.send_credits(now, slot, further);
        }
        self.open_up(now, slot, segment);
    }

    /// Returns about how many bytes of segments a Data carries.
    const fn room(&self) -> usize {
        self.options.icn_mtu.saturating_sub(DATA_OVERHEAD + 200)
    }

    /// Queues a segment that is fetched.
    fn queue(&mut self, now: Time, slot: Slot, segment: &Segment<'_>, packet: Bytes) {
        let (limits, room) = (self.options.limits, self.room());
        let Some(connection) = self.table.get_mut(slot) else {
            return;
        };
        if self.queued_bytes + packet.len() > limits.queued_bytes {
            self.counters.queue_full += 1;
            connection.counters.dropped += 1;
            return;
        }
        let sent = &connection.tracker.outward.sent;
        let (sequence, end) = (sent.extend(segment.sequence), sent.extend(segment.end()));
        let acknowledges = connection.acknowledges(segment);
        match &mut connection.carrier {
            Carrier::Basic(basic) => {
                let number = basic.push(end, packet, limits.queue.bytes);
                let message = Message::Notify {
                    opening: connection.opening(&self.options.prefix),
                    flow: connection.ends.outward(),
                    sequence,
                    number,
                };
                connection.counters.notices += 1;
                self.send_message(now, slot, &message, false);
            }
            Carrier::Reliable(supply, _) => {
                if let Some(number) = supply.push(now, end, packet, limits.queue.bytes) {
                    let name = naming::numbered(&connection.own_names, number);
                    self.answer_number(now, slot, number, &name);
                }
            }
            Carrier::Unreliable(queue) => {
                if !queue.push(sequence, end, packet, &limits.queue) {
                    self.counters.queue_full += 1;
                    connection.counters.dropped += 1;
                }
                if !(segment.flags.psh || segment.flags.fin || segment.flags.rst) {
                    queue.await_company(now);
                }
                let duplex = self.options.duplex;
                if acknowledges {
                    let number = segment.acknowledgement;
                    let wanted = queue.count_interests(number, duplex, room, &mut self.uplink.rng);
                    self.send_credits(now, slot, wanted);
                }
            }
        }
    }

    /// Sends the Interests of a connection that opens: "forward and reverse proxies must transmit a
    /// certain number of additional Interests towards each other during TCP connection setup phase"
    /// ([TCP/ICN §4.2]). Not with the first SYN, which may be one of a flood.
    fn open_up(&mut self, now: Time, slot: Slot, segment: &Segment<'_>) {
        let Some(connection) = self.table.get_mut(slot) else {
            return;
        };
        if connection.extra_sent || !connection.acknowledges(segment) || segment.flags.rst {
            return;
        }
        connection.extra_sent = true;
        match &mut connection.carrier {
            Carrier::Basic(_) => {}
            Carrier::Reliable(_, demand) => demand.open(now),
            Carrier::Unreliable(_) => {
                let extra = self.options.extra_interests;
                self.send_credits(now, slot, extra);
            }
        }
    }

    /// Sends Interests for whatever the peer has next.
    pub(super) fn send_credits(&mut self, now: Time, slot: Slot, count: u8) {
        let Some(connection) = self.table.get(slot) else {
            return;
        };
        let message = Message::Credit {
            flow: connection.ends.outward(),
        };
        for _ in 0..count {
            self.send_message(now, slot, &message, true);
        }
    }

    /// Sends the wake-up or advertisement that is due.
    pub(super) fn notify(&mut self, now: Time, slot: Slot) {
        let room = self.room();
        let Some(connection) = self.table.get_mut(slot) else {
            return;
        };
        let due = match &connection.carrier {
            Carrier::Unreliable(queue) => queue.wake_at(now, connection.wake_repeat(&self.options)),
            Carrier::Reliable(supply, _) => supply.advertise_at(now),
            Carrier::Basic(_) => None,
        };
        if due.is_none_or(|at| at > now) {
            return;
        }
        let opening = connection.opening(&self.options.prefix);
        let flow = connection.ends.outward();
        let message = match &mut connection.carrier {
            Carrier::Unreliable(queue) => Message::Wake {
                opening,
                flow,
                credits: queue.wake(now, room),
            },
            Carrier::Reliable(supply, _) => {
                supply.advertised(now);
                Message::Advertise {
                    opening,
                    flow,
                    queue: supply.queue(),
                }
            }
            Carrier::Basic(_) => return,
        };
        connection.counters.notices += 1;
        self.send_message(now, slot, &message, false);
    }

    /// The next Data of unreliable prefetching. Connections take turns.
    pub(super) fn next_data(&mut self, now: Time) -> Option<Bytes> {
        while let Some(slot) = self.ready.pop_front() {
            let Some(connection) = self.table.get_mut(slot) else {
                continue;
            };
            connection.is_ready = false;
            let Carrier::Unreliable(queue) = &mut connection.carrier else {
                continue;
            };
            let mut packets = Vec::new();
            // The Interest's name is about as long as that of the message that woke this side.
            let overhead = DATA_OVERHEAD + self.uplink.sealer.overhead() + Carried::HEADER;
            let names = connection.own_names.as_ref().value().len() + 160;
            let room = self.options.icn_mtu.saturating_sub(overhead + names);
            let name = queue.next_data(now, room, &mut packets);
            let stock = Stock::Interests(queue.holds());
            let data = name.map(|name| self.data(now, slot, &name, stock, &packets));
            self.settle(now, slot);
            if data.is_some() {
                return data;
            }
        }
        None
    }

    /// A Data with these packets; `name` is a checked name's TLV-VALUE.
    fn data(
        &mut self,
        now: Time,
        slot: Slot,
        name: &[u8],
        stock: Stock,
        packets: &[Bytes],
    ) -> Bytes {
        self.counters.out_segments += packets.len() as u64;
        if let Some(connection) = self.table.get_mut(slot) {
            connection.counters.data += 1;
        }
        let name = NameRef::from_value(name).unwrap_or_default();
        let counters = &mut self.counters;
        self.uplink.sealed_data(now, name, stock, packets, counters)
    }

    /// Answers an Interest of basic fetching.
    pub(super) fn answer_noted(&mut self, now: Time, label: u64, number: u64, name: NameRef<'_>) {
        let slot = self.table.labelled(label);
        let connection = slot.and_then(|slot| Some((slot, self.table.get(slot)?)));
        let found = connection.and_then(|(slot, connection)| match &connection.carrier {
            Carrier::Basic(basic) => Some((slot, basic.fetch(number)?)),
            _ => None,
        });
        match found {
            Some((slot, packet)) => {
                let data = self.data(now, slot, name.value(), Stock::Interests(0), &[packet]);
                self.uplink.push_data(data, &mut self.counters);
            }
            None => self.counters.unknown_connection += 1,
        }
    }

    /// Answers an Interest of reliable prefetching, or keeps it until the segment is there.
    pub(super) fn answer_number(&mut self, now: Time, slot: Slot, number: u64, name: &Name) {
        let until = now + self.options.interest_lifetime - self.options.expiry_margin;
        let Some(connection) = self.table.get_mut(slot) else {
            return;
        };
        let Carrier::Reliable(supply, _) = &mut connection.carrier else {
            self.counters.unknown_connection += 1;
            return;
        };
        let packets = match supply.fetch(number, until) {
            Supplied::Packet(packet) => vec![packet],
            Supplied::Nothing => Vec::new(),
            Supplied::Wait => return,
        };
        let stock = Stock::Queue(supply.queue());
        let data = self.data(now, slot, name.as_ref().value(), stock, &packets);
        self.uplink.push_data(data, &mut self.counters);
    }

    /// Probes the peers that are silent.
    pub(super) fn probe(&mut self, now: Time) {
        for (prefix, slot) in self.peers.due(now, self.options.wake_repeat) {
            let connection = self.table.get_mut(slot);
            let waits = |it: &&mut Connection| it.peer == prefix && !it.tracker.phase().is_over();
            let Some(connection) = connection.filter(waits) else {
                self.peers.abandon(&prefix);
                continue;
            };
            connection.counters.notices += 1;
            let message = Message::Wake {
                opening: connection.opening(&self.options.prefix),
                flow: connection.ends.outward(),
                credits: 1,
            };
            self.send_message(now, slot, &message, false);
        }
    }

    /// Something authentic has come from the peer of this connection. If the path was interrupted,
    /// what may have been lost is sent once more.
    pub(super) fn heard(&mut self, now: Time, slot: Slot) {
        let Some(prefix) = self.table.get(slot).map(|it| it.peer.clone()) else {
            return;
        };
        let Some(since) = self.peers.heard(now, &prefix) else {
            return;
        };
        for slot in self.table.slots_of(&prefix) {
            self.revive(now, slot, since);
        }
    }

    /// Sends once more what a connection may have lost on its path since `since`.
    pub(super) fn revive(&mut self, now: Time, slot: Slot, since: Time) {
        let connection = self.table.get(slot);
        let lost = connection.map(|it| it.lost_since(since).collect::<Vec<_>>());
        for packet in lost.unwrap_or_default() {
            if let Ok(segment) = Segment::decode(&packet) {
                self.counters.revived += 1;
                self.carry(now, slot, &segment, packet.clone());
            }
        }
        self.settle(now, slot);
    }
}
