//! Contents that nobody has requested: those that programs of this host send, and those that others send
//! to it ([MFTP §2]: `send(destination, content)`).

use core::time::Duration;

use whimbrel_core::{Guid, Time};
use whimbrel_link::Room;

use super::effects::{Effects, Treatment};
use super::inbox::HOLD_AGAIN;
use super::upload::{Pushed, Ready};
use super::{App, Host, Timer, Way};
use crate::chunk::{Chunk, Flow};
use crate::local::{AcceptOffer, OfferId, OfferVerdict, SendContent, Service};
use crate::wire::{
    ChunkRanges, Control, Credit, Data, DropReason, MemberList, NetworkHeader, Notice, OfferTerms,
    Reliability, Request, ServiceId, Transport, UpperProtocol,
};

/// Chunks for a group, where a program leaves it open: a copy names up to a thousand members, 32 bytes each.
const GROUP_CHUNK_LOG2: u8 = 18;

/// Pause after which a program that fell behind is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// An offer, and where its sender is.
#[derive(Clone, Copy)]
struct OfferSource {
    id: OfferId,
    address: Guid,
}

impl OfferSource {
    /// Tells the sender that the host `here` has dropped chunks of its content.
    fn drop(self, here: Guid, dropped: DroppedChunks, effects: &mut Effects) {
        let notice = Notice {
            content: dropped.content,
            source: self.id.sender,
            destination: here,
            chunks: dropped.chunks,
            stored: 0,
            limit: 0,
        };
        let at = (self.id.sender, self.address);
        let message = Transport::Drop(notice, dropped.reason);
        let service = ServiceId::DELAY_TOLERANT;
        effects.send_about(Some(self.id.number), service, at, message);
    }

    /// Tells the sender what became of its content, and the routers that no further chunk of it is wanted.
    fn tell_verdict(self, here: Guid, content: Guid, verdict: OfferVerdict, effects: &mut Effects) {
        let request_id = Some(self.id.number);
        let (to, service) = ((self.id.sender, self.address), ServiceId::DELAY_TOLERANT);
        let request = |chunks| Request {
            content,
            chunk_log2: whimbrel_content::ChunkSize::DEFAULT.code(),
            is_exact: false,
            window: None,
            reliability: Reliability::Ack,
            chunks,
        };
        match verdict.refusal() {
            Some(reason) => {
                let chunks = ChunkRanges::all();
                let dropped = DroppedChunks {
                    content,
                    chunks,
                    reason,
                };
                self.drop(here, dropped, effects);
            }
            None => {
                let ack = Transport::Ack(request(ChunkRanges::all()));
                effects.send_about(request_id, service, to, ack);
            }
        }
        let stop = Transport::Request(request(ChunkRanges::default()));
        effects.send_about(request_id, service, to, stop);
    }
}

/// Chunks that are dropped here.
struct DroppedChunks {
    content: Guid,
    chunks: ChunkRanges,
    reason: DropReason,
}

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
        let chunk_log2 = match options.chunk_log2 {
            0 if is_for_group => GROUP_CHUNK_LOG2,
            _ => options.asked_log2(),
        };
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
        let request = self.fitted(Way::Uplink, &header, request, length);
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
            destination: ready.to,
        };
        self.links.division.note_more(&flow, ready.more);
        let upper = UpperProtocol::Transport;
        let mut header = self.header(ready.way, service, upper, ready.to, ready.address);
        header.extensions.request = ready.request_id;
        header.extensions.offer = ready.offer;
        header.extensions.lifetime_ms = treatment.lifetime_ms;
        header.extensions.nack_timeout_ms = ready.nack_timeout_ms;
        header.extensions.group = ready.group.map(Box::new);
        header.extensions.members = MemberList::unplaced(ready.members);
        header.extensions.delegate =
            ready.way == Way::Uplink && self.uploads.delegations.has(&ready.data.content);
        let data = Transport::Data(ready.data);
        let chunk = Chunk::of_transport(header, &data);
        self.send(ready.way, chunk, treatment.divides)
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
        let (Some(_), Some(number)) = (&header.extensions.offer, header.extensions.request) else {
            return Some((data, room));
        };
        if self.downloads.has_asked(&data.content, Some(number)) {
            return Some((data, room));
        }
        let id = OfferId {
            sender: header.source,
            number,
        };
        let from = OfferSource {
            id,
            address: header.source_address,
        };
        if let Some(verdict) = self.inbox.settled(&id) {
            from.tell_verdict(self.guid, data.content, verdict, &mut self.effects);
            return None;
        }
        let (content, index) = (data.content, data.index);
        if !(self.inbox).keep(now, header, data, room, &mut self.effects) {
            // There is no room here: its source sends it again later.
            let chunk = ChunkRanges::from(index..index.saturating_add(1));
            let dropped = DroppedChunks {
                content,
                chunks: chunk,
                reason: DropReason::FlowLimit,
            };
            from.drop(self.guid, dropped, &mut self.effects);
        }
        self.hold_if_filled(now, header.source);
        None
    }

    /// Has routers keep what a sender sends, while no program decides about its offers. While an accepted
    /// content of a sender arrives, the sender is held back only if its program falls behind: a chunk without room
    /// would go back to a sender that may have ended.
    pub(super) fn hold_if_filled(&mut self, now: Time, sender: Guid) {
        let quarters = if self.inbox.is_held(&sender) { 2 } else { 3 };
        let is_slow = self.downloads.is_filled_by(&sender, quarters);
        let is_receiving = self.downloads.receives_from(&sender);
        if !is_slow && (is_receiving || !self.inbox.is_filled_by(&sender)) {
            return self.release(&sender);
        }
        if self.inbox.hold(now, sender) {
            self.tell_credit(sender, HOLD_AGAIN * 3);
        }
        let again = if is_slow { LOOK_AGAIN } else { HOLD_AGAIN };
        self.effects.set_earlier(Timer::Offers, now + again);
    }

    fn release(&mut self, sender: &Guid) {
        if self.inbox.release(sender) {
            self.tell_credit(*sender, Duration::ZERO);
        }
    }

    /// Nothing of the sender's flow is wanted for the time of `lease`; without one the flow is free.
    fn tell_credit(&mut self, sender: Guid, lease: Duration) {
        let credit = Credit {
            source: sender,
            destination: self.guid,
            octets: 0,
            spare: false,
            lease,
        };
        let hops = self.uplinks.hops(Way::Uplink, &self.links);
        for branch in hops.iter() {
            self.effects.control(branch.port, Control::Credit(credit));
        }
    }

    /// Begins to receive an offered content for a program.
    pub(super) fn accept_offer(&mut self, now: Time, app: App, accept: &AcceptOffer) {
        let (id, content) = (accept.id, accept.get.content);
        let uplink = self.uplink();
        let effects = &mut self.effects;
        (self.downloads).accept_download(now, app, accept, &uplink, effects);
        self.release(&accept.id.sender);
        self.carry_out();
        for kept in self.inbox.take(&id, &content) {
            // An empty content is complete without a chunk. Its program will say so: the sender is not told
            // to stop before.
            if !self.downloads.has_asked(&content, Some(id.number)) {
                break;
            }
            let is_ready = |app| self.programs.is_ready(app);
            self.downloads.handle_data(
                now,
                &kept.header,
                kept.data,
                kept.room,
                is_ready,
                &mut self.effects,
            );
            self.carry_out();
        }
    }

    /// A program has received an offered content, or refuses it.
    pub(super) fn settle_offer(&mut self, id: OfferId, content: Guid, verdict: OfferVerdict) {
        let address = self.inbox.settle(id, &content, verdict);
        self.release(&id.sender);
        if verdict != OfferVerdict::Received {
            self.effects.counters.offers_refused += 1;
        }
        let from = OfferSource { id, address };
        from.tell_verdict(self.guid, content, verdict, &mut self.effects);
    }
}
