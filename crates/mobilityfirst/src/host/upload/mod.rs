//! Sending published content: the source's side of a flow [MFTP §3.1 to 3.3].

mod confirming;
mod contents;
mod delegation;
mod group;
mod one;
mod push;
mod reading;
mod refusing;
mod sending;
mod table;
#[cfg(test)]
mod tests;
mod turns;
mod window;

use core::time::Duration;
use whimbrel_content::ChunkSize;
use whimbrel_core::{Guid, SeededRng, Time};

use contents::Contents;
use delegation::Delegations;
use group::Recipients;
use one::count_of;
use push::PushIds;
pub(super) use push::Pushed;
use table::UploadTable;
pub(in crate::host) use turns::Client;

use super::effects::{Effects, Located};
use super::{App, Timer, Way};
use crate::local::{Delivery, TransferOptions};
use crate::wire::{
    ChunkRanges, Data, DropReason, NetworkHeader, Notice, Reliability, Request, ServiceId,
    SignedOffer, Transport, WindowAdvice,
};

/// How often pauses and idle uploads are looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A chunk that is ready to be sent.
pub(super) struct Ready {
    pub(super) key: Key,
    pub(super) index: u32,
    pub(super) way: Way,
    pub(super) to: Located,
    pub(super) data: Data,
    /// The id of the client's request.
    pub(super) request_id: Option<u64>,
    /// The client may get it by several ways.
    pub(super) multihoming: bool,
    /// Bytes that are to follow.
    pub(super) more: u64,
    /// How the network is to treat it.
    pub(super) delivery: Delivery,
    /// What its receiver is told of the time for which a chunk may be missing.
    pub(super) nack_timeout_ms: Option<u32>,
    /// With a chunk that the client has not requested.
    pub(super) offer: Option<SignedOffer>,
    /// The group that a repair for one member belongs to.
    pub(super) group: Option<Guid>,
    /// The members of a group that it is for; all of them if empty.
    pub(super) members: Vec<Guid>,
    /// The routers with copies that a member's request may pass.
    pub(super) nack_routers: Option<u8>,
}

/// An upload: a content, its receiver, and the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    content: Guid,
    client: Guid,
    way: Way,
    // The receiver has not requested it. What it requests of the same content is another upload.
    is_sent: bool,
}

impl Key {
    fn receiver(&self) -> Client {
        Client {
            way: self.way,
            name: self.client,
            is_sent: self.is_sent,
        }
    }

    /// Returns the same upload by the way to which an inbound peer has moved.
    fn moved(self, from: Way, to: Way) -> Key {
        let way = if self.way == from { to } else { self.way };
        Key { way, ..self }
    }
}

/// A receiver's knowledge about the chunks that it misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// None: chunks that were sent lately are not sent again.
    MayBeUnderWay,
    /// A router that had them has restarted.
    Lost,
}

/// A request, and what its content's source has chosen.
struct Asked<'a> {
    header: &'a NetworkHeader,
    options: TransferOptions,
    reliability: Reliability,
    chunk_size: ChunkSize,
    window: Option<WindowAdvice>,
    // The chunks of the whole content.
    count: u32,
}

/// The contents on offer, and the uploads. Its parts own their state.
pub(super) struct Uploads {
    // The host's GUID.
    guid: Guid,
    /// What programs offer, and read for the uploads.
    pub(super) contents: Contents,
    by_key: UploadTable,
    // The routers with copies that a request of a group's member may pass.
    nack_routers: Option<u8>,
    /// What the access router is to keep.
    pub(super) delegations: Delegations,
    /// Draws the ids of what is sent without a request.
    pub(super) push_ids: PushIds,
}

impl Uploads {
    pub(super) fn new(guid: Guid, max_transfers: usize, rng: &mut SeededRng) -> Uploads {
        Uploads {
            guid,
            contents: Contents::default(),
            by_key: UploadTable::new(max_transfers),
            nack_routers: None,
            delegations: Delegations::default(),
            push_ids: PushIds::new(rng),
        }
    }

    /// Requests of members of groups pass this many routers with copies at most.
    pub(super) fn with_nack_routers(self, most: Option<u8>) -> Uploads {
        Uploads {
            nack_routers: most,
            ..self
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn forget_contents_of(&mut self, app: App, effects: &mut Effects) {
        let unread = self.contents.forget(app, effects);
        self.delegations.forget(app);
        self.by_key.forget_pushes_of(app);
        for read in unread {
            self.read_again(read.key, read.index);
        }
    }

    /// Handles a client's request for chunks: a first one, a repeated one, or (if it names none)
    /// its end.
    pub(super) fn handle_wanted(
        &mut self,
        now: Time,
        way: Way,
        header: &NetworkHeader,
        request: Request,
        presence: Presence,
        effects: &mut Effects,
    ) {
        let id = header.extensions.request;
        let key = self.by_key.key_of(request.content, header.source, way, id);
        if let Some(sent) = self.sent_to_group(&key, id) {
            let member = key.client;
            return self.note_group_request(now, sent, member, request, presence, effects);
        }
        self.note_wanted(now, key, header, request, presence, effects);
    }

    /// A receiver wants chunks, or its source sends them without being asked.
    fn note_wanted(
        &mut self,
        now: Time,
        key: Key,
        header: &NetworkHeader,
        request: Request,
        presence: Presence,
        effects: &mut Effects,
    ) {
        let request_id = header.extensions.request;
        let Some(offer) = self.contents.catalogue().get(&key.content) else {
            if !request.chunks.is_empty() {
                let (address, reason) = (header.source_address, DropReason::NotServed);
                key.tell_client(address, request_id, reason, effects);
            }
            return;
        };
        if request.is_stop() {
            return self.by_key.stop(now, &key);
        }
        let under_way = self.by_key.get_mut(&key);
        if request.chunks.is_empty() {
            // There is nothing left to send if the upload is over.
            if under_way.is_some_and(|upload| upload.follow_advice(now, header, &request)) {
                self.take_turn(key);
            }
            return;
        }
        let options = offer.options;
        // An upload that continues in smaller chunks keeps their size; a source sends none above its own.
        let most = under_way.map_or(options.largest_log2(), |upload| upload.chunk_size.code());
        let request = request.in_chunks_of(most);
        let Some(chunk_size) = ChunkSize::from_code(request.chunk_log2) else {
            return;
        };
        let count = count_of(chunk_size, offer.publish.content_len);
        let wanted = request.chunks.intersection(&ChunkRanges::from(0..count));
        let asked = Asked {
            header,
            reliability: options.reliability.unwrap_or(request.reliability),
            options,
            chunk_size,
            window: request.window,
            count,
        };
        if let Some(upload) = self.by_key.get(&key)
            && upload.reliability == Reliability::DontCare
            && upload.request_id() == request_id
        {
            // "Sends and forgets" [MFTP §3.2.2].
            return effects.drop("not-sent-again");
        }
        let Some((upload, is_new)) = self.by_key.open(now, key, &asked, &wanted) else {
            return effects.drop("too-many-uploads");
        };
        upload.follow(now, &asked);
        let copies = upload.want(wanted, presence, &self.contents.under_way(&key));
        if is_new && upload.pending.contains(count - 1) {
            upload.first = Some(count - 1);
        }
        for (proxy, chunks) in copies {
            effects.counters.pushes_sent += 1;
            let push = Transport::Push(notice_about(self.guid, &key, chunks));
            let (service, proxy) = (ServiceId::DELAY_TOLERANT, Located::router(proxy));
            effects.send_about(request_id, service, proxy, push);
        }
        self.take_turn(key);
        effects.set_earlier(Timer::Uploads, now + CHECK_INTERVAL);
    }

    /// Notes that the next router, or the client itself, has a chunk: only now it counts as sent,
    /// however long the hop took. It is not sent again for a repeated request for this long, and up
    /// to twice as long.
    pub(super) fn note_delivered(
        &mut self,
        now: Time,
        way: Way,
        header: &NetworkHeader,
        data: &Data,
        repeat_guard: Duration,
        effects: &mut Effects,
    ) {
        let id = header.extensions.request;
        let key = self
            .by_key
            .key_of(data.content, header.destination, way, id);
        if let Some(upload) = self.by_key.get_mut(&key)
            && upload.chunk_size.code() == data.chunk_log2
        {
            upload.note_delivered(now, data.index);
            if upload.reliability == Reliability::Ack {
                let due = upload.unconfirmed.due_after(now);
                effects.set_earlier(Timer::Uploads, due);
            }
            upload.repeat_guard = repeat_guard;
            if let Some(push) = &mut upload.push {
                push.note_taken(now, data.index);
            }
        }
    }

    /// Takes a chunk back whose link is gone, when there is no other link.
    pub(super) fn take_back(&mut self, way: Way, header: &NetworkHeader, data: &Data) {
        let id = header.extensions.request;
        let key = self
            .by_key
            .key_of(data.content, header.destination, way, id);
        let upload = self.by_key.get(&key);
        if upload.is_some_and(|upload| upload.chunk_size.code() == data.chunk_log2) {
            self.send_later(key, data.index);
        }
    }

    /// Keeps a chunk here because no router answers.
    pub(super) fn send_later(&mut self, key: Key, index: u32) {
        if let Some(upload) = self.by_key.get_mut(&key) {
            upload.take_back(index);
            if let Some(group) = upload.group_mut() {
                group.take_back(&ChunkRanges::from(index..index.saturating_add(1)));
            }
            self.take_turn(key);
        }
    }

    /// Moves a client's uploads to another way. Its requests by that way take precedence.
    pub(super) fn move_uploads(&mut self, from: Way, to: Way) {
        self.by_key.follow(from, to);
        self.contents.follow(from, to);
    }

    /// Forgets the uploads to an inbound peer that has gone.
    pub(super) fn forget_uploads_to(&mut self, way: Way) {
        self.by_key.forget_way(way);
        self.contents.forget_way(way);
    }

    pub(super) fn handle_ack(
        &mut self,
        now: Time,
        way: Way,
        header: &NetworkHeader,
        ack: &Request,
        effects: &mut Effects,
    ) {
        let id = header.extensions.request;
        let key = self.by_key.key_of(ack.content, header.source, way, id);
        if let Some(sent) = self.sent_to_group(&key, header.extensions.request) {
            return self.note_member_confirmed(&sent, key.client, &ack.chunks, effects);
        }
        let key = self.by_key.sent_by(key, header.extensions.request);
        if let Some(upload) = self.by_key.get_mut(&key) {
            upload.note_confirmed(now, &ack.chunks);
            if upload.is_about(header.extensions.request) {
                self.note_confirmed(&key, &ack.chunks, effects);
            }
        }
    }

    /// Handles a proxy's notice that it stores chunks of an upload: they need not be sent again. At
    /// 80 % of what the proxy may store for the flow, the source pauses.
    pub(super) fn handle_store(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        notice: Notice,
        effects: &mut Effects,
    ) {
        let id = header.extensions.request;
        let key = self
            .by_key
            .key_of(notice.content, notice.destination, Way::Uplink, id);
        if notice.source != self.guid {
            return effects.counters.drop("notice-for-another");
        }
        if let Some(sent) = self.sent_to_group(&key, header.extensions.request) {
            return self.note_member_stored(&sent, key.client, &notice.chunks);
        }
        let all = ChunkRanges::from(0..self.count_of(&key));
        let Some(upload) = self.by_key.get_mut(&key) else {
            return;
        };
        if !upload.is_about(header.extensions.request) {
            return effects.counters.drop("wrong-request-id");
        }
        let chunks = notice.chunks.intersection(&all);
        upload.note_stored(header.source, &chunks);
        if notice.is_nearly_full() {
            upload.pause(now);
        } else if notice.chunks.is_empty() {
            upload.go_on();
        }
        self.take_turn(key);
    }

    /// Handles a router's notice that it has dropped chunks of an upload: they are sent again,
    /// later.
    pub(super) fn upload_dropped(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        notice: Notice,
        reason: DropReason,
        effects: &mut Effects,
    ) {
        let id = header.extensions.request;
        let key = self
            .by_key
            .key_of(notice.content, notice.destination, Way::Uplink, id);
        let sent = self.sent_to_group(&key, header.extensions.request);
        if let Some(sent) = sent.filter(|_| reason != DropReason::TooLarge) {
            return self.note_member_dropped(now, &sent, &notice, reason, effects);
        }
        let key = sent.unwrap_or_else(|| self.by_key.sent_by(key, header.extensions.request));
        if !self.contents.catalogue().contains(&key.content) {
            return;
        }
        let Some(upload) = self.by_key.get(&key) else {
            return;
        };
        if !upload.is_about(header.extensions.request) {
            return effects.counters.drop("wrong-request-id");
        }
        if reason == DropReason::TooLarge {
            return self.tell_too_large(now, key, effects);
        }
        let uploads = &mut self.by_key;
        if uploads.end_refused(&key, reason, effects) || uploads.end_lost(&key, effects) {
            return;
        }
        let all = ChunkRanges::from(0..self.count_of(&key));
        let Some(upload) = self.by_key.get_mut(&key) else {
            return;
        };
        upload.note_dropped(now, &notice.chunks.intersection(&all));
        let again = upload.paused_until;
        self.take_turn(key);
        effects.set_earlier(Timer::Uploads, again);
    }

    /// Ends pauses, repeats what is unconfirmed in ACK mode, forgets idle uploads.
    pub(super) fn check_uploads(&mut self, now: Time, effects: &mut Effects) {
        self.by_key.forget_idle(now);
        self.check_reads(now, effects);
        self.report_pushes(now, effects);
        let mut next = None;
        let mut due = Vec::new();
        for key in self.by_key.groups() {
            let repairs = self.check_group(now, &key, effects);
            next = [next, repairs].into_iter().flatten().min();
        }
        for (key, upload) in self.by_key.iter_mut() {
            upload.repeat_unconfirmed(now);
            if !upload.pending.is_empty() {
                due.push(*key);
            }
            let at = now + CHECK_INTERVAL;
            let at = upload.next_confirmation().map_or(at, |due| due.min(at));
            next = Some(next.map_or(at, |next: Time| next.min(at)));
        }
        due.into_iter().for_each(|key| self.take_turn(key));
        if let Some(next) = next {
            effects.set(Timer::Uploads, next);
        }
    }
}

/// Returns a notice about chunks of an upload of `source`.
fn notice_about(source: Guid, key: &Key, chunks: ChunkRanges) -> Notice {
    Notice {
        content: key.content,
        source,
        destination: key.client,
        chunks,
        stored: 0,
        limit: 0,
    }
}
