//! Handling of the chunks that the hops deliver.

use bytes::Bytes;
use whimbrel_core::{PortId, Time};
use whimbrel_link::Room;

use super::attach::RecordAnswer;
use super::inbox::HOLD_AGAIN;
use super::upload::Presence;
use super::{Host, Way};
use crate::chunk::Chunk;
use crate::links::AskedBy;
use crate::wire::{
    Control, Data, Echo, Flow, NetworkHeader, Notice, Request, ServiceId, Transport, UpperProtocol,
};

impl Host {
    pub(super) fn handle_chunk(&mut self, now: Time, from: PortId, bytes: &Bytes, room: Room) {
        self.effects.counters.chunks_received += 1;
        let Ok(chunk) = Chunk::decode(bytes) else {
            return self.effects.drop("bad-chunk");
        };
        if chunk.header.upper == UpperProtocol::Control {
            if !chunk.header.service.has(ServiceId::NEIGHBOUR) {
                return self.effects.drop("bad-control");
            }
            return match Control::decode(&chunk.message.head) {
                Ok(control) => self.handle_control(now, from, control),
                Err(_) => self.effects.drop("bad-control"),
            };
        }
        let asks_us = chunk.header.service.has(ServiceId::CONTENT_REQUEST);
        let is_member = chunk.header.service.has(ServiceId::ANYCAST)
            && self.registration.is_member_of(&chunk.header.destination);
        if chunk.header.receiver() != self.guid && !asks_us && !is_member {
            return self.effects.drop("not-for-this-host");
        }
        // An inbound peer speaks for nobody but itself.
        if !self.access.has(from) && self.access.links.neighbour(from) != Some(chunk.header.source)
        {
            return self.effects.drop("source-not-proven");
        }
        self.purge_unwanted(now, from, &chunk);
        let way = self.access.way_back(from);
        if chunk.header.upper == UpperProtocol::Echo {
            let effects = &mut self.effects;
            return match Echo::decode(&chunk.message.head) {
                Ok(echo) => self.pings.handle_echo(way, &chunk.header, echo, effects),
                Err(_) => effects.drop("bad-echo"),
            };
        }
        match chunk.transport() {
            Ok(Transport::Request(request) | Transport::Nack(request)) => {
                self.handle_request_of(now, way, &chunk.header, request)
            }
            Ok(message) => self.handle_transport(now, way, &chunk.header, message, room),
            Err(_) => self.effects.drop("bad-transport"),
        }
    }

    /// Handles a receiver's request for chunks, or for none any more. Chunks that are still on
    /// their way there are not sent again.
    fn handle_request_of(&mut self, now: Time, way: Way, header: &NetworkHeader, request: Request) {
        let mut request = self.fitted(way, header, request);
        let wants_none = request.is_stop();
        self.access
            .links
            .note_missing(now, &header.source, &request);
        // It asks by another router than before: what waits here goes there, too.
        if way == Way::Uplink && !header.service.has(ServiceId::MULTIHOMING) {
            for flow in Flow::both(self.guid, header.source) {
                self.access.links.readdress(&flow, &header.source_address);
            }
        }
        // Chunks stuck on a link that is down, or is no longer used, are not under way.
        if let Some(port) = self.access.port_by(way) {
            let asks = AskedBy {
                client: header.source,
                id: header.extensions.request,
            };
            self.access
                .links
                .subtract_under_way(port, &asks, &mut request);
        }
        if request.is_stop() && !wants_none {
            return;
        }
        let presence = Presence::MayBeUnderWay;
        self.uploads
            .handle_wanted(now, way, header, request, presence, &mut self.effects);
    }

    /// Returns a request in chunks of the size that the way to its receiver affords.
    fn fitted(&self, way: Way, header: &NetworkHeader, request: Request) -> Request {
        let bytes = self.uploads.contents.catalogue().len_of(&request.content);
        request.fitted_to(&self.access.path_to(way, header, bytes))
    }

    fn handle_control(&mut self, now: Time, port: PortId, control: Control) {
        match control {
            Control::Challenge { .. } if !self.access.has(port) => {
                self.effects.drop("challenge-of-a-caller")
            }
            Control::Challenge { nonce, unix_ms } => {
                if self.registration.note_challenge(now, port, nonce, unix_ms) {
                    self.renew(now);
                }
                // A router that keeps names itself knows no names after a restart.
                self.registration.announce_to_new_router(port);
            }
            Control::Outcome {
                guid,
                version,
                code,
            } => {
                let anew = self.registration.handle_outcome(
                    now,
                    RecordAnswer {
                        guid,
                        version,
                        code,
                    },
                    self.uploads.contents.catalogue(),
                    &mut self.effects,
                );
                if anew {
                    self.renew(now);
                }
            }
            Control::Credit(credit) => {
                if !self.access.links.note_credit(now, port, &credit) {
                    self.effects.drop("too-many-holds");
                }
            }
            Control::Pace(pace) => self.access.links.note_pace(now, port, &pace),
            Control::Members { group, members } if self.access.has(port) => {
                let (memberships, effects) = (self.registration.memberships(), &mut self.effects);
                memberships.note_members(&group, &members, effects);
                self.uploads.note_members(now, group, &members, effects);
            }
            Control::Attach { .. } | Control::Register { .. } => {
                self.effects.drop("attach-to-a-host")
            }
            Control::Ask { .. }
            | Control::Vouch { .. }
            | Control::Left { .. }
            | Control::Presence(_)
            | Control::AskMembers { .. }
            | Control::Members { .. }
            | Control::Routing(_) => self.effects.drop("bad-control"),
        }
    }

    fn handle_transport(
        &mut self,
        now: Time,
        way: Way,
        header: &NetworkHeader,
        message: Transport,
        room: Room,
    ) {
        let effects = &mut self.effects;
        let request_id = header.extensions.request;
        let answers = |content| self.downloads.answers(content, &header.source);
        match message {
            Transport::Data(Data { content, .. }) | Transport::Drop(Notice { content, .. }, _)
                if way != Way::Uplink && !answers(&content) =>
            {
                effects.drop("not-for-a-caller-to-say")
            }
            Transport::Store(_) | Transport::Kept(_) | Transport::Lost(_) if way != Way::Uplink => {
                effects.drop("not-for-a-caller-to-say")
            }
            // The chunk keeps its room in the buffer until a program has taken it.
            Transport::Data(data) => {
                let Some((data, room)) = self.keep_offered(now, header, data, room) else {
                    return;
                };
                self.receive_data(now, header, data, room);
                if header.extensions.offer.is_some() {
                    self.hold_if_filled(now, header.source, HOLD_AGAIN);
                }
            }
            // Handled above.
            Transport::Request(_) | Transport::Nack(_) => {}
            Transport::Resend(request) => {
                let request = self.fitted(way, header, request);
                let (presence, effects) = (Presence::Lost, &mut self.effects);
                self.uploads
                    .handle_wanted(now, way, header, request, presence, effects)
            }
            Transport::Lost(notice) => {
                match self.downloads.has_asked(&notice.content, request_id) {
                    true => self.downloads.handle_lost(now, &notice, effects),
                    false => effects.drop("wrong-request-id"),
                }
            }
            Transport::Ack(request) => {
                (self.uploads).handle_ack(now, way, header, &request, effects)
            }
            Transport::Store(notice) if notice.source == self.guid && notice.chunks.is_empty() => {
                let of_request = self.downloads.has_asked(&notice.content, request_id)
                    && self.downloads.note_stored(now, header.source, &notice);
                if !of_request {
                    self.uploads.handle_store(now, header, notice, effects)
                }
            }
            Transport::Store(notice) => self.uploads.handle_store(now, header, notice, effects),
            Transport::Kept(notice) => {
                let router = self.access.uplink().router;
                let effects = &mut self.effects;
                self.uploads.handle_kept(router, header, &notice, effects)
            }
            Transport::Drop(notice, _) if notice.source != self.guid => {
                effects.drop("notice-for-another")
            }
            Transport::Drop(notice, _)
                if self.downloads.sent(&notice)
                    && !self.downloads.has_asked(&notice.content, request_id) =>
            {
                effects.drop("wrong-request-id")
            }
            Transport::Drop(notice, reason) if self.downloads.sent(&notice) => {
                let uplink = self.access.uplink();
                let (from, content) = (header.source, &notice.content);
                self.downloads
                    .handle_drop(now, from, content, reason, &uplink, &mut self.effects)
            }
            Transport::Drop(notice, reason) => self
                .uploads
                .upload_dropped(now, header, notice, reason, effects),
            Transport::Push(_) => effects.drop("push-to-a-host"),
            Transport::Message(message) => {
                self.messages.handle(way, header.source, message, effects)
            }
            Transport::Messages(all) => {
                for message in all {
                    self.messages.handle(way, header.source, message, effects);
                }
            }
        }
    }
}
