//! Sending published content: the source's side of a flow [MFTP §3.1 to 3.3].

mod confirming;
mod delegation;
mod group;
mod one;
mod reading;
mod refusing;
mod sending;
#[cfg(test)]
mod tests;
mod turns;
mod window;

use std::collections::BTreeMap;

use core::time::Duration;
use whimbrel_content::ChunkSize;
use whimbrel_core::{Guid, KeyedState, SeededRng, Time};

use delegation::Delegations;
use group::Recipients;
use one::Upload;
pub(super) use sending::Pushed;
use turns::{Client, Turns};

use super::catalogue::{Catalogue, Offer};
use super::effects::Effects;
use super::{App, Timer, Way};
use crate::local::{Delivery, LocalEvent, Service, TransferOptions};
use crate::wire::{
    ChunkRanges, Data, DropReason, NetworkHeader, Notice, Reliability, Request, ServiceId,
    SignedOffer, Transport,
};

/// Bound of the chunks that one program is asked to read ahead of the link.
const MAX_READS: usize = 4;
/// A program that leaves a chunk unread for this long is asked for no further one until it has
/// read; another one that offers the same content is asked instead.
const READ_PATIENCE: Duration = Duration::from_secs(10);
/// An upload without messages for this long is forgotten; a NACK brings it back.
const IDLE: Duration = Duration::from_secs(300);
/// Bound of the proxies whose stored chunks an upload remembers; they all are on its path.
const MAX_PROXIES: usize = 16;
/// Longest pause after a proxy's notice that it is full or has dropped chunks.
const MAX_PAUSE: Duration = Duration::from_secs(30);
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A chunk that is ready to be sent.
pub(super) struct Ready {
    pub(super) key: Key,
    pub(super) index: u32,
    pub(super) way: Way,
    pub(super) to: Guid,
    pub(super) address: Guid,
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
        (self.way, self.client)
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
    // The chunks of the whole content.
    count: u32,
}

struct Read {
    app: App,
    key: Key,
    index: u32,
    asked_at: Time,
}

/// The reads that a program has not done yet.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    // Chunks that the program was asked for.
    asked: usize,
    // True if the program has left one of them unread for too long.
    is_silent: bool,
}

/// The contents on offer, and the uploads.
pub(super) struct Uploads {
    // The host's GUID.
    guid: Guid,
    // Draws the ids of what is sent without a request, and their number.
    draw: KeyedState,
    pushes: u64,
    // Bound of the contents that are sent to others at one time.
    max_transfers: usize,
    // The routers with copies that a request of a group's member may pass.
    nack_routers: Option<u8>,
    catalogue: Catalogue,
    by_key: BTreeMap<Key, Upload>,
    // The turns of the uploads with something pending.
    turns: Turns,
    // Uploads that take no turns because a router holds them back, in the order in which they had
    // them: often there is a turn for one of them only before the next hold.
    held: Turns,
    // By number, hence in the order in which they were requested.
    reads: BTreeMap<u64, Read>,
    // Programs that were asked to read.
    readers: BTreeMap<App, Reader>,
    next_read: u64,
    delegations: Delegations,
}

impl Uploads {
    pub(super) fn new(guid: Guid, max_transfers: usize, rng: &mut SeededRng) -> Uploads {
        Uploads {
            guid,
            draw: KeyedState::new(rng),
            pushes: 0,
            max_transfers,
            nack_routers: None,
            catalogue: Catalogue::default(),
            by_key: BTreeMap::new(),
            turns: Turns::default(),
            held: Turns::default(),
            reads: BTreeMap::new(),
            readers: BTreeMap::new(),
            next_read: 0,
            delegations: Delegations::default(),
        }
    }

    /// Requests of members of groups pass this many routers with copies at most.
    pub(super) fn with_nack_routers(self, most: Option<u8>) -> Uploads {
        Uploads {
            nack_routers: most,
            ..self
        }
    }

    pub(super) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }
}

impl Uploads {
    pub(super) fn publish(&mut self, now: Time, offer: Offer, effects: &mut Effects) {
        let (app, content) = (offer.app, offer.publish.content);
        if !self.catalogue.add(offer) {
            return effects.tell(
                app,
                LocalEvent::Published {
                    content,
                    code: crate::wire::ControlCode::Full,
                },
            );
        }
        effects.set_earlier(Timer::Uploads, now + CHECK_INTERVAL);
        effects.announce(content);
    }

    pub(super) fn withdraw(&mut self, app: App, content: Guid, effects: &mut Effects) {
        if self.catalogue.remove(app, &content) {
            effects.withdraw(vec![content]);
        }
    }

    pub(super) fn forget_contents_of(&mut self, app: App, effects: &mut Effects) {
        let contents = self.catalogue.remove_all_of(app);
        effects.withdraw(contents);
        let unread: Vec<Read> = self
            .reads
            .extract_if(.., |_, read| read.app == app)
            .map(|(_, read)| read)
            .collect();
        self.readers.remove(&app);
        self.delegations.forget(app);
        self.forget_pushes_of(app);
        self.redistribute(app);
        unread
            .into_iter()
            .for_each(|read| self.read_again(read.key, read.index));
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
        let key = self.key_of(request.content, header.source, way, id);
        if let Some(sent) = self.sent_to_group(&key, id) {
            let member = key.client;
            return self.note_group_request(now, sent, member, request, presence, effects);
        }
        self.note_wanted(now, key, header, request, presence, effects);
    }

    /// Returns the upload that this request, or a message with its id, is about: a content that is sent
    /// without a request has an id of its own.
    fn key_of(&self, content: Guid, client: Guid, way: Way, request_id: Option<u64>) -> Key {
        let sent = Key {
            content,
            client,
            way,
            is_sent: true,
        };
        let upload = self.by_key.get(&sent);
        Key {
            is_sent: upload.is_some_and(|it| it.is_about(request_id)),
            ..sent
        }
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
        let Some(offer) = self.catalogue.get(&key.content) else {
            return self.refuse(key, header, &request, DropReason::NotServed, effects);
        };
        if request.is_stop() {
            return self.stop(now, &key);
        }
        if request.chunks.is_empty() {
            return self.follow_window(now, key, header, &request);
        }
        let options = offer.options;
        let content_len = offer.publish.content_len;
        // An upload that goes on in smaller chunks keeps their size; a source sends none above its own.
        let under_way = self.by_key.get(&key).map(|upload| upload.chunk_size.code());
        let most = under_way.unwrap_or(options.largest_log2());
        let request = request.in_chunks_of(most);
        let Some(chunk_size) = ChunkSize::from_code(request.chunk_log2) else {
            return;
        };
        let count = chunk_size.count(content_len).min(u32::MAX.into()) as u32;
        let mut wanted = request.chunks.intersection(&ChunkRanges::from(0..count));
        let asked = Asked {
            header,
            reliability: options.reliability.unwrap_or(request.reliability),
            options,
            chunk_size,
            count,
        };
        let Some(is_new) = self.open(now, key, &asked, &wanted, effects) else {
            return;
        };
        let Some(upload) = self.by_key.get_mut(&key) else {
            return;
        };
        // What is not sent again is sent at once.
        let window = (request.window).filter(|_| upload.reliability != Reliability::DontCare);
        upload.window.advise(window, request.chunk_log2);
        let stored = core::mem::take(&mut upload.stored);
        if presence == Presence::MayBeUnderWay {
            wanted.subtract(&upload.sent[0]);
            wanted.subtract(&upload.sent[1]);
        }
        // Programs are reading these.
        for read in self.reads.values().filter(|read| read.key == key) {
            wanted.remove_range(read.index..read.index + 1);
        }
        for (proxy, mut chunks) in stored {
            let held = wanted.intersection(&chunks);
            wanted.subtract(&held);
            chunks.subtract(&held);
            if let Some(upload) = self.by_key.get_mut(&key).filter(|_| !chunks.is_empty()) {
                // A router on the way may have taken them from this request, to send them itself.
                upload.stored.insert(proxy, chunks);
            }
            self.push(key, proxy, held, effects);
        }
        let Some(upload) = self.by_key.get_mut(&key) else {
            return;
        };
        if is_new && wanted.contains(count - 1) {
            upload.first = Some(count - 1);
        }
        upload.pending.union(&wanted);
        self.take_turn(key);
        effects.set_earlier(Timer::Uploads, now + CHECK_INTERVAL);
    }

    /// A receiver wants no further chunk. Whether it has a content that it was sent, or refuses it, is said in
    /// a message of its own, which this one may overtake.
    fn stop(&mut self, now: Time, key: &Key) {
        match self.by_key.get_mut(key) {
            Some(upload) if upload.push.is_some() => upload.stop(now),
            _ => {
                self.by_key.remove(key);
            }
        }
    }

    /// Finds the upload that a request is about, or begins it. Returns whether it is a new one; `None` if
    /// nothing is to be sent.
    fn open(
        &mut self,
        now: Time,
        key: Key,
        asked: &Asked<'_>,
        wanted: &ChunkRanges,
        effects: &mut Effects,
    ) -> Option<bool> {
        let request_id = asked.header.extensions.request;
        if let Some(upload) = self.by_key.get(&key)
            && upload.reliability == Reliability::DontCare
            && upload.request_id() == request_id
        {
            // "Sends and forgets" [MFTP §3.2.2].
            effects.counters.drop("not-sent-again");
            return None;
        }
        let resized = |_: &Key, upload: &mut Upload| upload.chunk_size != asked.chunk_size;
        let before = self.by_key.extract_if(key..=key, resized).next();
        let push = before.and_then(|(_, upload)| upload.push);
        let is_new = !self.by_key.contains_key(&key);
        if is_new && push.is_none() && !self.make_room(now, key.receiver()) {
            effects.counters.drop("too-many-uploads");
            return None;
        }
        let upload = self
            .by_key
            .entry(key)
            .or_insert_with(|| Upload::new(asked, now));
        if let Some(mut push) = push {
            push.note_new_size(asked.count, wanted);
            upload.push = Some(push);
        }
        if let Some(push) = &mut upload.push {
            push.note_asked();
        }
        upload.client_address = asked.header.source_address;
        upload.note_request(request_id);
        upload.note_options(asked);
        upload.last_use = now;
        upload.go_on();
        upload.rotate_sent(now);
        Some(is_new)
    }

    /// Asks a proxy to send what it stores: "It utilizes this in-network copy and initiates the
    /// retransmission from inside the network."
    fn push(&mut self, key: Key, proxy: Guid, chunks: ChunkRanges, effects: &mut Effects) {
        if chunks.is_empty() {
            return;
        }
        effects.counters.pushes_sent += 1;
        let notice = Notice {
            content: key.content,
            source: self.guid,
            destination: key.client,
            chunks,
            stored: 0,
            limit: 0,
        };
        let request_id = self.by_key.get(&key).and_then(Upload::request_id);
        let (service, push) = (ServiceId::DELAY_TOLERANT, Transport::Push(notice));
        effects.send_about(request_id, service, (proxy, proxy), push);
    }

    /// Returns true if there is room for one more upload to this client: it has at most as many as are
    /// left for others.
    fn make_room(&mut self, now: Time, client: Client) -> bool {
        if self.len() < self.max_transfers / 2 {
            return true;
        }
        let of_client = self
            .by_key
            .iter()
            .filter(|(key, _)| key.receiver() == client);
        let busy = of_client.filter(|(_, upload)| upload.is_busy()).count();
        if busy > 0 && busy >= self.max_transfers.saturating_sub(self.len()) {
            return false;
        }
        if self.len() < self.max_transfers {
            return true;
        }
        self.forget_idle(now);
        // Sent chunks that were not requested again may be forgotten at any time: a NACK brings
        // them back.
        let sent = self.by_key.iter().filter(|(_, upload)| !upload.is_busy());
        let oldest = sent.min_by_key(|(_, upload)| upload.last_use);
        if let Some(key) = oldest
            .map(|(key, _)| *key)
            .filter(|_| self.len() >= self.max_transfers)
        {
            self.by_key.remove(&key);
        }
        self.len() < self.max_transfers
    }

    fn forget_idle(&mut self, now: Time) {
        self.by_key.retain(|_, upload| {
            upload.push.is_some()
                || now.since(upload.last_use) < if upload.is_busy() { IDLE * 12 } else { IDLE }
        });
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
        let key = self.key_of(data.content, header.destination, way, id);
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
        let key = self.key_of(data.content, header.destination, way, id);
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
        let moved = |key: Key| Key {
            way: if key.way == from { to } else { key.way },
            ..key
        };
        let leaving = self.by_key.extract_if(.., |key, _| key.way == from);
        for (key, upload) in leaving.collect::<Vec<_>>() {
            self.by_key.entry(moved(key)).or_insert(upload);
        }
        for read in self.reads.values_mut() {
            read.key = moved(read.key);
        }
        self.held.rename(|key| Some(moved(key)));
        self.turns.rename(|key| Some(moved(key)));
    }

    /// Forgets the uploads to an inbound peer that has gone.
    pub(super) fn forget_uploads_to(&mut self, way: Way) {
        self.by_key.retain(|key, _| key.way != way);
        self.held.rename(|key| (key.way != way).then_some(key));
        self.turns.rename(|key| (key.way != way).then_some(key));
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
        let key = self.key_of(ack.content, header.source, way, id);
        if let Some(sent) = self.sent_to_group(&key, header.extensions.request) {
            return self.note_member_confirmed(&sent, key.client, &ack.chunks, effects);
        }
        let key = self.sent_by(key, header.extensions.request);
        if let Some(upload) = self.by_key.get_mut(&key) {
            upload.note_confirmed(now, &ack.chunks);
            if upload.is_about(header.extensions.request) {
                self.note_confirmed(&key, &ack.chunks, effects);
            }
        }
    }

    /// Returns the upload that a receiver speaks of: that to the receiver, or that to a name by which it is
    /// attached, which carries the same id.
    fn sent_by(&self, key: Key, request_id: Option<u64>) -> Key {
        let sent = self.shared_by(&key, request_id, Service::Anycast);
        sent.unwrap_or(key)
    }

    /// Returns the upload of the same content, with this id, to a name that several hosts have.
    fn shared_by(&self, key: &Key, request_id: Option<u64>, service: Service) -> Option<Key> {
        let first = Key {
            client: Guid::NONE,
            ..*key
        };
        let of_content = self.by_key.range(first..);
        let mut of_content = of_content.take_while(|(it, _)| it.content == key.content);
        let is_meant = |upload: &Upload| {
            let is_shared = upload.delivery.service == service;
            is_shared && upload.push.is_some() && upload.is_about(request_id)
        };
        let sent = of_content.find(|(_, upload)| is_meant(upload));
        sent.map(|(sent, _)| *sent)
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
        let key = self.key_of(notice.content, notice.destination, Way::Uplink, id);
        if notice.source != self.guid {
            return effects.counters.drop("notice-for-another");
        }
        if let Some(sent) = self.sent_to_group(&key, header.extensions.request) {
            return self.note_member_stored(&sent, key.client);
        }
        let offer = self.catalogue.get(&key.content);
        let content_len = offer.map_or(0, |offer| offer.publish.content_len);
        let Some(upload) = self.by_key.get_mut(&key) else {
            return;
        };
        if !upload.is_about(header.extensions.request) {
            return effects.counters.drop("wrong-request-id");
        }
        let count = upload.chunk_size.count(content_len).min(u32::MAX.into()) as u32;
        let chunks = notice.chunks.intersection(&ChunkRanges::from(0..count));
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
        let key = self.key_of(notice.content, notice.destination, Way::Uplink, id);
        let sent = self.sent_to_group(&key, header.extensions.request);
        if let Some(sent) = sent.filter(|_| reason != DropReason::TooLarge) {
            return self.note_member_dropped(now, &sent, &notice, reason, effects);
        }
        let key = sent.unwrap_or_else(|| self.sent_by(key, header.extensions.request));
        let Some(offer) = self.catalogue.get(&key.content) else {
            return;
        };
        let content_len = offer.publish.content_len;
        let Some(upload) = self.by_key.get_mut(&key) else {
            return;
        };
        if !upload.is_about(header.extensions.request) {
            return effects.counters.drop("wrong-request-id");
        }
        if reason == DropReason::TooLarge {
            return self.tell_too_large(now, key, effects);
        }
        if self.end_refused(&key, reason, effects) || self.end_lost(&key, effects) {
            return;
        }
        let Some(upload) = self.by_key.get_mut(&key) else {
            return;
        };
        let count = upload.chunk_size.count(content_len).min(u32::MAX.into()) as u32;
        let chunks = notice.chunks.intersection(&ChunkRanges::from(0..count));
        for stored in upload.stored.values_mut() {
            stored.subtract(&chunks);
        }
        if let Some((_, kept)) = &mut upload.kept {
            kept.subtract(&chunks);
        }
        upload.window.give_back(upload.bytes_of(&chunks));
        upload.pending.union(&chunks);
        if let Some(group) = upload.group_mut() {
            group.take_back(&chunks);
        }
        if let Some(push) = &mut upload.push {
            push.note_dropped(&chunks);
        }
        upload.pause(now);
        let again = upload.paused_until;
        self.take_turn(key);
        effects.set_earlier(Timer::Uploads, again);
    }

    /// Ends pauses, repeats what is unconfirmed in ACK mode, forgets idle uploads.
    pub(super) fn check_uploads(&mut self, now: Time, effects: &mut Effects) {
        self.forget_idle(now);
        self.check_reads(now, effects);
        self.report_pushes(now, effects);
        let mut next = None;
        let mut due = Vec::new();
        for key in self.groups() {
            let repairs = self.check_group(now, &key, effects);
            next = [next, repairs].into_iter().flatten().min();
        }
        for (key, upload) in &mut self.by_key {
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
