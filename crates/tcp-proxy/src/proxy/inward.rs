//! From the peer to the device.

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_packet::{DataRef, InterestRef, Name};

use super::uplink::{InterestTerms, Pending};
use super::{Attempt, Proxy, ProxyEvent, context_of, decoded};
use crate::admission::Opener;
use crate::connection::Carrier;
use crate::icmp::Unreachable;
use crate::message::{Carried, Message, Opening, Queue, Refusal, Stock};
use crate::naming::{self, Asked};
use crate::paths::BY_NAME;
use crate::refusals::Refused;
use crate::seal::{NONCE, OpenError, Protection};
use crate::segment::{Ends, Flow, Segment};
use crate::table::Slot;

impl Proxy {
    pub(super) fn handle_interest(&mut self, now: Time, interest: &InterestRef<'_>) {
        self.counters.in_interests += 1;
        let prefix = self.options.prefix.clone();
        match naming::parse(&prefix, interest.name) {
            Some(Asked::Message { sealed, nonce }) => {
                let opened = self
                    .uplink
                    .sealer
                    .open(now, prefix.as_ref().value(), nonce, sealed);
                if let Some(message) = self.checked(opened) {
                    match Message::decode(&message.into()) {
                        Ok(message) => self.handle_message(now, interest, message),
                        Err(error) => self.counters.count_message(error),
                    }
                }
            }
            Some(Asked::Noted { label, number }) => {
                self.answer_noted(now, label, number, interest.name);
            }
            Some(Asked::Numbered { label, number }) => match self.table.labelled(label) {
                Some(slot) => {
                    self.answer_number(now, slot, number, &interest.name.to_name());
                    self.settle(now, slot);
                }
                None => self.counters.unknown_connection += 1,
            },
            None => self.counters.bad_messages += 1,
        }
    }

    fn checked(&mut self, opened: Result<Vec<u8>, OpenError>) -> Option<Vec<u8>> {
        match opened {
            Ok(message) => {
                self.complaints.note_accepted();
                Some(message)
            }
            Err(error) => {
                self.counters.count_open(error);
                match error {
                    OpenError::Untimely => self.complaints.complain(ProxyEvent::Untimely),
                    OpenError::Forged => self.complaints.complain(ProxyEvent::Forged),
                    OpenError::Malformed | OpenError::Replayed => {}
                }
                None
            }
        }
    }

    fn handle_message(&mut self, now: Time, interest: &InterestRef<'_>, message: Message) {
        let slot = match message {
            Message::Segment { opening, packet } => {
                self.handle_carried(now, interest, opening, packet)
            }
            Message::Notify {
                opening,
                flow,
                sequence,
                number,
            } => {
                let slot = self.noticed(now, &flow, opening);
                self.fetch_noted(now, slot, sequence, number);
                slot
            }
            Message::Credit { flow } => {
                let slot = self.table.find(&Ends::of_inward(&flow));
                self.credit(now, slot, interest);
                slot
            }
            Message::Wake {
                opening,
                flow,
                credits,
            } => {
                let slot = self.noticed(now, &flow, opening);
                if let Some(slot) = slot {
                    self.send_credits(now, slot, credits.min(crate::message::MAX_WAKE));
                }
                slot
            }
            Message::Advertise {
                opening,
                flow,
                queue,
            } => {
                let slot = self.noticed(now, &flow, opening);
                let connection = slot.and_then(|slot| self.table.get_mut(slot));
                if let Some(Carrier::Reliable(_, demand)) =
                    connection.map(|connection| &mut connection.carrier)
                {
                    demand.advertised(now, &queue);
                }
                slot
            }
            Message::Refuse { flow, refusal } => {
                let slot = self.table.find(&Ends::of_inward(&flow));
                self.handle_refusal(now, slot, refusal);
                slot
            }
            Message::Probe => {
                self.answer_probe(now, interest.name);
                return;
            }
            Message::Renew { flow } => {
                let slot = self.table.find(&Ends::of_inward(&flow));
                self.renew(now, slot, interest);
                slot
            }
        };
        match slot {
            Some(slot) => {
                self.heard(now, slot);
                self.settle(now, slot);
            }
            None => self.counters.unknown_connection += 1,
        }
    }

    /// A segment in an Interest: "the proxy immediately decapsulates the TCP segment from the
    /// Interest and transmits it to the TCP endpoint" ([TCP/ICN §3.5.1], step 3).
    fn handle_carried(
        &mut self,
        now: Time,
        interest: &InterestRef<'_>,
        opening: Option<Opening>,
        packet: Bytes,
    ) -> Option<Slot> {
        let segment = decoded(&mut self.counters, &packet)?;
        let begins = segment.flags.syn && !segment.flags.ack;
        let slot =
            self.inward_connection(now, &segment.flow, opening, (begins, segment.sequence))?;
        self.pass(now, slot, &segment, packet.slice_ref(segment.packet));
        self.credit(now, Some(slot), interest);
        Some(slot)
    }

    fn pass(&mut self, now: Time, slot: Slot, segment: &Segment<'_>, packet: Bytes) {
        if let Some(connection) = self.table.get_mut(slot) {
            connection.note_inward(now, segment);
        }
        self.device.deliver(packet, &mut self.counters);
    }

    /// The connection that a notice is about.
    fn noticed(&mut self, now: Time, flow: &Flow, opening: Opening) -> Option<Slot> {
        // A segment with a SYN and payload comes as a notice too.
        self.inward_connection(now, flow, Some(opening), (true, 0))
    }

    /// The connection of a message from a peer: known, or opened by it if the policy allows.
    fn inward_connection(
        &mut self,
        now: Time,
        flow: &Flow,
        opening: Option<Opening>,
        (begins, sequence): (bool, u32),
    ) -> Option<Slot> {
        let ends = Ends::of_inward(flow);
        let known = self.table.find(&ends);
        let Some(opening) = opening else {
            return known;
        };
        let policy = &self.options.policy;
        let speaks_for = policy.allows_peer(&opening.prefix, ends.remote.ip());
        let is_server = policy.allows_destination(ends.local);
        let is_client =
            policy.route(ends.remote.ip()).is_some() && policy.allows_source(ends.local.ip());
        if !speaks_for || !(is_server || is_client) {
            self.counters.denied += 1;
            let refusal = match speaks_for {
                true => Refusal::Destination,
                false => Refusal::Source,
            };
            self.refuse(now, &opening.prefix, ends, refusal);
            return None;
        }
        let names = naming::connection(&opening.prefix, flow, opening.label, &self.uplink.sealer);
        // With the same label, it is a late message of the connection that is over.
        let is_another = |slot: Slot| {
            self.table.get(slot).is_some_and(|it| {
                let over = it.tracker.phase().is_over() || it.protocol != opening.protocol;
                over && it.peer_names.as_ref() != Some(&names)
            })
        };
        let slot = match known {
            Some(slot) if begins && is_another(slot) => {
                self.close(slot);
                None
            }
            known => known,
        };
        let slot = match slot {
            Some(slot) => slot,
            None => {
                let peer = (opening.protocol, opening.prefix.clone());
                let attempt = Attempt {
                    side: Opener::Peer,
                    sequence,
                    adopted: !begins,
                };
                self.open(now, ends, peer, attempt)?
            }
        };
        if let Some(connection) = self.table.get_mut(slot) {
            if connection
                .peer_names
                .as_ref()
                .is_some_and(|known| *known != names)
                && let Carrier::Reliable(supply, demand) = &mut connection.carrier
            {
                supply.peer_restarted();
                // The peer has restarted: its numbers begin again.
                **demand = crate::reliable::Demand::new(self.options.interest_lifetime);
                demand.open(now);
            }
            connection.peer = opening.prefix;
            connection.peer_names = Some(names);
        }
        Some(slot)
    }

    /// Tells the peer at `prefix` that a connection is not carried, so that its program need not wait
    /// until TCP gives up.
    fn refuse(&mut self, now: Time, prefix: &Name, ends: Ends, refusal: Refusal) {
        self.complaints
            .note_refused(Refused::Peer(prefix.clone(), ends, refusal));
        // Without protection anybody may have sent it, with any prefix: to have others called.
        let is_known = self.uplink.sealer.protection() != Protection::None
            || self.options.policy.allows_peer(prefix, ends.remote.ip());
        if is_known
            && self.complaints.refusals.admit_answer(now)
            && self.uplink.claim_room(&mut self.counters)
        {
            let flow = ends.outward();
            let message = Message::Refuse { flow, refusal };
            let name = self.uplink.sealed_name(now, prefix, &message);
            let sending = InterestTerms {
                path: BY_NAME,
                lifetime: self.options.message_lifetime,
                header: None,
            };
            self.uplink.tell(name, sending, &mut self.counters);
        }
    }

    /// The peer does not carry a connection. Only one that waits for its first answer is given up: a
    /// late refusal must not end another with the same ends.
    fn handle_refusal(&mut self, now: Time, slot: Option<Slot>, refusal: Refusal) {
        let Some(connection) = slot.and_then(|slot| self.table.get(slot)) else {
            return;
        };
        if !connection.waits_for_peer() {
            return;
        }
        let (peer, ends) = (connection.peer.clone(), connection.ends);
        let syn = connection.first_packet.clone();
        let (counters, why) = (&mut self.counters, Unreachable::Prohibited);
        self.device.report(now, &syn, why, counters);
        self.complaints
            .note_refused(Refused::ByPeer(peer, ends, refusal));
    }

    /// Keeps an Interest for the next segments.
    pub(super) fn credit(&mut self, now: Time, slot: Option<Slot>, interest: &InterestRef<'_>) {
        let Some(connection) = slot.and_then(|slot| self.table.get_mut(slot)) else {
            return;
        };
        if let Carrier::Unreliable(queue) = &mut connection.carrier {
            let lifetime = interest.lifetime.saturating_sub(self.options.expiry_margin);
            let name = Bytes::copy_from_slice(interest.name.value());
            queue.credit(name, now + lifetime, &self.options.limits.queue);
        }
    }

    /// "The reverse proxy transmits a 'reflexive' Interest packet" ([TCP/ICN §3.3.1], step 4).
    fn fetch_noted(&mut self, now: Time, slot: Option<Slot>, sequence: u64, number: u64) {
        let Some(slot) = slot else {
            return;
        };
        let connection = self.table.get(slot);
        if let Some(names) = connection.and_then(|it| it.peer_names.as_ref()) {
            let name = naming::noted(names, sequence, number);
            self.send_interest(now, slot, name, true, None);
        }
    }

    /// Sends the Interests that reliable prefetching wants.
    pub(super) fn request(&mut self, now: Time, slot: Slot) {
        loop {
            let Some(connection) = self.table.get_mut(slot) else {
                return;
            };
            let (Carrier::Reliable(_, demand), Some(names)) =
                (&mut connection.carrier, &connection.peer_names)
            else {
                return;
            };
            let Some(number) = demand.poll(now) else {
                return;
            };
            let name = naming::numbered(names, number);
            self.send_interest(now, slot, name, true, Some(number));
        }
    }

    pub(super) fn handle_data(&mut self, now: Time, data: &DataRef<'_>, tag: Option<&[u8]>) {
        let Some(entry) = self.uplink.pending.take(data.name.value()) else {
            self.counters.unexpected += 1;
            return;
        };
        self.counters.in_data += 1;
        if let Pending::Connection {
            slot, generation, ..
        } = entry.data
            && self.table.same(slot, generation).is_none()
        {
            self.counters.unknown_connection += 1;
            return;
        }
        let Some((nonce, sealed)) = data.content.split_at_checked(NONCE) else {
            self.counters.bad_messages += 1;
            return;
        };
        let opened = self
            .uplink
            .sealer
            .open(now, context_of(data.name), nonce, sealed);
        let Some(content) = self.checked(opened) else {
            return;
        };
        match (Carried::decode(&content.into()), entry.data) {
            (Ok(carried), Pending::Connection { slot, number, .. }) => {
                self.heard(now, slot);
                self.handle_packets(now, slot, number, carried);
            }
            (Ok(_), Pending::Probe(peer)) => self.probe_answered(now, peer, &entry.sent, tag),
            (Err(error), _) => self.counters.count_message(error),
        }
    }

    /// Passes the segments of a Data, each checked: nothing but segments of its connection goes to
    /// the device.
    fn handle_packets(&mut self, now: Time, slot: Slot, number: Option<u64>, carried: Carried) {
        let Some(ends) = self.table.get(slot).map(|it| it.ends) else {
            return;
        };
        let mut numbered = match (number, carried.stock) {
            (Some(number), Stock::Queue(queue)) => Some((number, queue, Vec::new())),
            (_, stock) => {
                self.note_stock(slot, stock);
                None
            }
        };
        let mut rest: &[u8] = &carried.packets;
        while !rest.is_empty() {
            let Some(segment) = decoded(&mut self.counters, rest) else {
                break;
            };
            if Ends::of_inward(&segment.flow) != ends {
                self.counters.denied += 1;
                break;
            }
            let packet = carried.packets.slice_ref(segment.packet);
            match &mut numbered {
                Some((.., packets)) => packets.push(packet),
                None => self.pass(now, slot, &segment, packet),
            }
            rest = segment.rest_of(rest);
        }
        if let Some((number, queue, packets)) = numbered {
            let packets = self.in_order(now, slot, number, &queue, packets);
            self.pass_all(now, slot, packets);
        }
        self.settle(now, slot);
    }

    fn note_stock(&mut self, slot: Slot, stock: Stock) {
        if let Some(connection) = self.table.get_mut(slot)
            && let (Carrier::Unreliable(queue), Stock::Interests(held)) =
                (&mut connection.carrier, stock)
        {
            queue.peer_holds(held);
        }
    }

    fn in_order(
        &mut self,
        now: Time,
        slot: Slot,
        number: u64,
        queue: &Queue,
        packets: Vec<Bytes>,
    ) -> Vec<Bytes> {
        let mut out = Vec::new();
        if let Some(connection) = self.table.get_mut(slot)
            && let Carrier::Reliable(_, demand) = &mut connection.carrier
        {
            demand.arrived(now, number, queue, packets, &mut out);
        }
        out
    }

    fn pass_all(&mut self, now: Time, slot: Slot, packets: Vec<Bytes>) {
        for packet in packets {
            if let Ok(segment) = Segment::decode(&packet) {
                self.pass(now, slot, &segment, packet.clone());
            }
        }
    }

    /// A connection's timer is due: it may be over.
    pub(super) fn handle_due(&mut self, now: Time, slot: Slot) {
        let Some(connection) = self.table.get_mut(slot) else {
            return;
        };
        if connection.is_expired(now, &self.options) {
            self.close(slot);
            return;
        }
        let mut out = Vec::new();
        if let Carrier::Reliable(_, demand) = &mut connection.carrier {
            demand.handle_timeout(now, &mut out);
        }
        self.pass_all(now, slot, out);
        self.settle(now, slot);
    }
}
