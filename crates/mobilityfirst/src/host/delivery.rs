//! Contents that nobody has requested: those that programs of this host send, and those that others send
//! to it ([MFTP §2]: `send(destination, content)`).

use core::time::Duration;

use whimbrel_core::{Guid, Time};
use whimbrel_link::Room;

use super::effects::Treatment;
use super::inbox::{EarlyChunk, HOLD_AGAIN};
use super::upload::{Pushed, Ready};
use super::{App, Host, Timer, Way};
use crate::chunk::Chunk;
use crate::local::{AcceptOffer, SendContent, Service};
use crate::wire::{
    ChunkRanges, Data, Flow, MemberList, NetworkHeader, OfferTerms, Reliability, Request,
    ServiceId, Transport, UpperProtocol,
};

/// Pause after which a program that fell behind is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Host {
    /// Sends a program's content to a receiver.
    pub(super) fn send_content(&mut self, now: Time, app: App, send: &SendContent) {
        let mut send = SendContent {
            destination: send.options.delivery.address(send.destination),
            ..send.clone()
        };
        let is_for_group = send.options.delivery.service == Service::Multicast;
        if is_for_group && send.options.reliability == Some(Reliability::Ack) {
            // A confirmation of each chunk by each member would bury the source.
            send.options.reliability = Some(Reliability::Nack);
        }
        let send = &send;
        let publish = &send.content;
        let id = self.uploads.push_ids.draw();
        let terms = OfferTerms {
            destination: send.destination,
            id,
            content: publish.content,
            content_len: publish.content_len,
            kind: publish.kind,
            file_name: &publish.file_name,
        };
        let offer = (self.registration).sign_offer(now, &terms, send.proposed);
        // As the receiver would request it; it has no address yet.
        let (options, upper) = (send.options, UpperProtocol::Transport);
        let service = options.delivery.service(ServiceId::UNICAST);
        let mut header = NetworkHeader::new(service, upper, send.destination, self.guid);
        header.extensions.request = Some(id);
        let chunk_log2 = options.asked_log2();
        let request = Request {
            content: publish.content,
            chunk_log2: chunk_log2 & !crate::wire::EXACT_SIZE,
            is_exact: chunk_log2 & crate::wire::EXACT_SIZE != 0,
            window: None,
            reliability: options.reliability.unwrap_or_default(),
            chunks: ChunkRanges::all(),
        };
        // The best size for one path is of no meaning for many.
        let length = Some(publish.content_len).filter(|_| !is_for_group);
        let path = self.access.path_to(Way::Uplink, &header, length);
        let request = request.fitted_to(&path);
        let pushed = Pushed {
            send,
            offer,
            header: &header,
            request,
        };
        (self.uploads).push_content(now, app, pushed, &mut self.effects);
    }

    /// Sends a chunk that a program has read. Returns false if no node answers on that way.
    pub(super) fn send_data(&mut self, ready: Ready) -> bool {
        let treatment = Treatment::new(ready.delivery, ServiceId::CONTENT_RESPONSE);
        let mut service = treatment.service;
        if ready.multihoming {
            service = service.with(ServiceId::MULTIHOMING);
        }
        let flow = Flow {
            source: self.guid,
            destination: ready.to.name,
            is_offered: ready.offer.is_some(),
        };
        self.access.links.division.note_more(&flow, ready.more);
        let upper = UpperProtocol::Transport;
        let mut header = self.access.header(ready.way, service, upper, ready.to);
        header.extensions.request = ready.request_id;
        header.extensions.offer = ready.offer.map(Box::new);
        header.extensions.lifetime_ms = treatment.lifetime_ms;
        header.extensions.nack_timeout_ms = ready.nack_timeout_ms;
        header.extensions.nack_routers = ready.nack_routers;
        header.extensions.group = ready.group.map(Box::new);
        header.extensions.members = MemberList::unplaced(ready.members);
        header.extensions.delegate =
            ready.way == Way::Uplink && self.uploads.delegations.has(&ready.data.content);
        let data = Transport::Data(ready.data);
        let chunk = Chunk::of_transport(header, &data);
        self.access.send(ready.way, chunk, treatment.divides)
    }

    /// Keeps a chunk of a content that nobody here has requested, if its sender offers it. Returns it if it
    /// does not, or if its offer is accepted already.
    pub(super) fn keep_offered(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        data: Data,
        room: Room,
    ) -> Option<(Data, Room)> {
        let number = header.extensions.request;
        let is_offered = header.extensions.offer.is_some() && number.is_some();
        if !is_offered || self.downloads.has_asked(&data.content, number) {
            return Some((data, room));
        }
        let chunk = EarlyChunk {
            header: header.clone(),
            data,
            room,
        };
        if self.inbox.receive(now, chunk, &mut self.effects) {
            // It came in spite of a hold: the router has lost its links, or its memory, since.
            self.hold_if_filled(now, header.source, LOOK_AGAIN);
        }
        None
    }

    /// Has routers keep what a sender sends, while no program decides about its offers. While an accepted
    /// content of a sender arrives, the sender is held back only if its program falls behind: a chunk without room
    /// would go back to a sender that may have ended.
    /// They are told again after `pause`.
    pub(super) fn hold_if_filled(&mut self, now: Time, sender: Guid, pause: Duration) {
        let quarters = if self.inbox.is_held(&sender) { 2 } else { 3 };
        let is_slow = self.downloads.is_filled_by(&sender, quarters);
        let is_receiving = self.downloads.receives_from(&sender);
        if !is_slow && (is_receiving || !self.inbox.is_filled_by(&sender)) {
            return self.inbox.release(&sender, &mut self.effects);
        }
        self.inbox.hold(now, sender, pause, &mut self.effects);
        let again = if is_slow { LOOK_AGAIN } else { HOLD_AGAIN };
        self.effects.set_earlier(Timer::Offers, now + again);
    }

    /// Begins to receive an offered content for a program.
    pub(super) fn accept_offer(&mut self, now: Time, app: App, accept: &AcceptOffer) {
        let (id, content) = (accept.id, accept.get.content);
        let uplink = self.access.uplink();
        let effects = &mut self.effects;
        (self.downloads).accept_download(now, app, accept, &uplink, effects);
        self.inbox.release(&accept.id.sender, effects);
        self.carry_out();
        for kept in self.inbox.take(&id, &content) {
            // An empty content is complete without a chunk. Its program will say so: the sender is not told
            // to stop before.
            if !self.downloads.has_asked(&content, Some(id.number)) {
                break;
            }
            self.receive_data(now, &kept.header, kept.data, kept.room);
            self.carry_out();
        }
    }

    /// Gives a chunk to the downloads of its content.
    pub(super) fn receive_data(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        data: Data,
        room: Room,
    ) {
        let is_ready = |app| self.programs.is_ready(app);
        let effects = &mut self.effects;
        (self.downloads).handle_data(now, header, data, room, is_ready, effects);
    }
}
