//! Contents that others offer to this host, until a program accepts or refuses them.
//!
//! Their first chunks may come before a program has decided, or while none takes offers. They hold
//! their room in the back-pressure buffer, within a bound; beyond it chunks go back to their source.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use core::time::Duration;
use whimbrel_core::{Distrust, Guid, Recent, Time};
use whimbrel_link::Room;

use super::App;
use super::effects::{Action, Effects, Located};
use super::status::InboxStatus;
use crate::local::{ContentOffer, LocalEvent, OfferId, OfferVerdict, Publish};
use crate::wire::{
    ChunkRanges, Data, DropReason, NetworkHeader, Notice, OfferTerms, Reliability, Request,
    ServiceId, SignedOffer, Transport,
};

/// Bound of the offers that wait for a decision.
const MAX_OFFERS: usize = 2048;
/// A sender has at most this part of those that are left, and one in any case.
const PART_OF_SENDER: usize = 8;
/// The chunks that wait for a decision hold at most this part of the buffer, those of one sender half of
/// what is left of it.
const PART_OF_BUFFER: usize = 2;
/// Bound of the offers that are remembered as settled: copies of their chunks may still come.
const MAX_SETTLED: usize = 4096;
/// A router is told to hold a flow back again after this long.
pub(super) const HOLD_AGAIN: Duration = Duration::from_secs(1);

/// A chunk that came before a decision.
pub(super) struct EarlyChunk {
    pub(super) header: NetworkHeader,
    pub(super) data: Data,
    pub(super) room: Room,
}

/// An offer, and where its sender is.
#[derive(Clone, Copy)]
struct OfferSource {
    id: OfferId,
    address: Guid,
}

impl OfferSource {
    fn at(&self) -> Located {
        Located {
            name: self.id.sender,
            address: self.address,
        }
    }

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
        let message = Transport::Drop(notice, dropped.reason);
        let service = ServiceId::DELAY_TOLERANT;
        effects.send_about(Some(self.id.number), service, self.at(), message);
    }

    /// Tells the sender what became of its content, and the routers that no further chunk of it is wanted.
    fn tell_verdict(self, here: Guid, content: Guid, verdict: OfferVerdict, effects: &mut Effects) {
        let request_id = Some(self.id.number);
        let (to, service) = (self.at(), ServiceId::DELAY_TOLERANT);
        let request = |chunks| {
            Request::new(
                content,
                whimbrel_content::ChunkSize::DEFAULT.code(),
                Reliability::Ack,
                chunks,
            )
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

struct UndecidedOffer {
    offer: ContentOffer,
    // Where its sender is.
    address: Guid,
    chunks: VecDeque<EarlyChunk>,
}

/// The offers of others.
pub(super) struct OfferedContents {
    // The host's GUID.
    here: Guid,
    // Packets that early chunks may hold together.
    capacity: usize,
    listeners: BTreeSet<App>,
    waiting: BTreeMap<OfferId, UndecidedOffer>,
    settled: Recent<OfferId, OfferVerdict>,
    // Senders whose flows routers hold back, and when they were told to.
    held: BTreeMap<Guid, Time>,
    // Senders whose signatures were false.
    distrust: Distrust<Guid>,
}

impl OfferedContents {
    pub(super) fn new(here: Guid, buffer_packets: usize) -> OfferedContents {
        OfferedContents {
            here,
            capacity: buffer_packets / PART_OF_BUFFER,
            listeners: BTreeSet::new(),
            waiting: BTreeMap::new(),
            settled: Recent::new(MAX_SETTLED),
            held: BTreeMap::new(),
            distrust: Distrust::default(),
        }
    }

    pub(super) fn status(&self) -> InboxStatus {
        InboxStatus {
            programs: self.listeners.len(),
            waiting: self.waiting.len(),
            chunks: self.waiting.values().map(|it| it.chunks.len()).sum(),
        }
    }

    /// Adds a program, which is told of all offers that wait.
    pub(super) fn listen(&mut self, app: App, effects: &mut Effects) {
        self.listeners.insert(app);
        for waiting in self.waiting.values() {
            effects.tell(app, LocalEvent::Offered(waiting.offer.clone()));
        }
    }

    pub(super) fn forget(&mut self, app: App) {
        self.listeners.remove(&app);
    }

    /// Receives a chunk of an offered content: it is kept for a program that will accept it. Its source is told if
    /// there is no room, so that it sends the chunk again later, and what was decided. Returns false if the offer
    /// is settled.
    pub(super) fn receive(&mut self, now: Time, chunk: EarlyChunk, effects: &mut Effects) -> bool {
        let (header, data) = (&chunk.header, &chunk.data);
        let (Some(number), Some(signed)) = (
            header.extensions.request,
            header.extensions.offer.as_deref().copied(),
        ) else {
            return false;
        };
        let id = OfferId {
            sender: header.source,
            number,
        };
        let from = OfferSource {
            id,
            address: header.source_address,
        };
        let (content, index) = (data.content, data.index);
        if let Some(verdict) = self.settled.get(&id) {
            from.tell_verdict(self.here, content, *verdict, effects);
            return false;
        }
        if !self.keep(now, id, &signed, chunk, effects) {
            let dropped = DroppedChunks {
                content,
                chunks: ChunkRanges::from(index..index.saturating_add(1)),
                reason: DropReason::FlowLimit,
            };
            from.drop(self.here, dropped, effects);
        }
        true
    }

    /// Keeps a chunk of an offered content. Returns false if there is no room.
    fn keep(
        &mut self,
        now: Time,
        id: OfferId,
        signed: &SignedOffer,
        chunk: EarlyChunk,
        effects: &mut Effects,
    ) -> bool {
        let (header, data) = (&chunk.header, &chunk.data);
        if !self.waiting.contains_key(&id) {
            // What is for a group is signed for the group.
            let receiver = header.extensions.group.as_deref().copied();
            let receiver = receiver.unwrap_or(header.destination);
            if !self.check(now, &id, receiver, data, signed) {
                effects.drop("false-offer");
                return true;
            }
            if !self.has_place(&id.sender) {
                effects.drop("too-many-offers");
                return false;
            }
            self.open(id, signed, &chunk, effects);
        }
        let has_room = self.has_room(&id.sender, chunk.room.packets());
        let Some(waiting) = self.waiting.get_mut(&id) else {
            return true;
        };
        if waiting.offer.content.content != chunk.data.content {
            effects.drop("false-offer");
            return true;
        }
        if !has_room {
            effects.drop("early-chunk");
            return false;
        }
        let place = |it: &EarlyChunk| (it.data.index, it.data.chunk_log2);
        if waiting.chunks.iter().any(|it| place(it) == place(&chunk)) {
            effects.counters.duplicates += 1;
            return true;
        }
        waiting.chunks.push_back(chunk);
        true
    }

    /// Adds an offer, of which the programs that listen are told.
    fn open(
        &mut self,
        id: OfferId,
        signed: &SignedOffer,
        first: &EarlyChunk,
        effects: &mut Effects,
    ) {
        let data = &first.data;
        let offer = ContentOffer {
            id,
            issued_ms: signed.issued_ms,
            proposed: signed.proposed,
            content: Publish {
                content: data.content,
                content_len: data.content_len,
                kind: data.kind,
                file_name: data.file_name.clone(),
            },
        };
        effects.counters.offers += 1;
        for app in &self.listeners {
            effects.tell(*app, LocalEvent::Offered(offer.clone()));
        }
        let waiting = UndecidedOffer {
            offer,
            address: first.header.source_address,
            chunks: VecDeque::new(),
        };
        self.waiting.insert(id, waiting);
    }

    /// Returns true if the sender has signed the offer.
    fn check(
        &mut self,
        now: Time,
        id: &OfferId,
        destination: Guid,
        data: &Data,
        signed: &SignedOffer,
    ) -> bool {
        let terms = OfferTerms {
            destination,
            id: id.number,
            content: data.content,
            content_len: data.content_len,
            kind: data.kind,
            file_name: &data.file_name,
        };
        if !self.distrust.may_check(now, id.sender) {
            return false;
        }
        let is_true = signed.is_by(&id.sender, &terms);
        if !is_true {
            self.distrust.note_bad(now, id.sender);
        }
        is_true
    }

    fn has_place(&self, sender: &Guid) -> bool {
        let first = OfferId {
            sender: *sender,
            number: 0,
        };
        let last = OfferId {
            number: u64::MAX,
            ..first
        };
        let of_sender = self.waiting.range(first..=last).count();
        let left = MAX_OFFERS.saturating_sub(self.waiting.len());
        left > 0 && of_sender <= left / PART_OF_SENDER
    }

    /// Returns the packets that chunks of one sender hold, and what they may hold.
    fn use_by(&self, sender: &Guid) -> (usize, usize) {
        let mut all = 0;
        let mut of_sender = 0;
        for (id, waiting) in &self.waiting {
            let held: usize = (waiting.chunks.iter())
                .map(|chunk| chunk.room.packets() as usize)
                .sum();
            all += held;
            of_sender += if id.sender == *sender { held } else { 0 };
        }
        let left = self.capacity.saturating_sub(all - of_sender);
        (of_sender, left / 2)
    }

    fn has_room(&self, sender: &Guid, packets: u32) -> bool {
        let (used, most) = self.use_by(sender);
        used + packets as usize <= most
    }

    /// Returns true if the chunks of a sender have filled a good part of what they may hold.
    pub(super) fn is_filled_by(&self, sender: &Guid) -> bool {
        let (used, most) = self.use_by(sender);
        used * 4 >= most
    }

    /// Has routers hold back what a sender offers. They are told again after `pause`.
    pub(super) fn hold(&mut self, now: Time, sender: Guid, pause: Duration, effects: &mut Effects) {
        let is_due = |told: &Time| now.since(*told) >= pause;
        if !self.held.get(&sender).is_none_or(is_due) {
            return;
        }
        if self.held.len() < MAX_OFFERS || self.held.contains_key(&sender) {
            self.held.insert(sender, now);
        }
        effects.push(Action::HoldBack(sender, HOLD_AGAIN * 3));
    }

    pub(super) fn is_held(&self, sender: &Guid) -> bool {
        self.held.contains_key(sender)
    }

    /// The flow of a sender may continue.
    pub(super) fn release(&mut self, sender: &Guid, effects: &mut Effects) {
        if self.held.remove(sender).is_some() {
            effects.push(Action::HoldBack(*sender, Duration::ZERO));
        }
    }

    /// Returns the senders whose flows are held back.
    pub(super) fn held(&self) -> Vec<Guid> {
        self.held.keys().copied().collect()
    }

    /// An offer is accepted. Returns the chunks that are here.
    pub(super) fn take(&mut self, id: &OfferId, content: &Guid) -> VecDeque<EarlyChunk> {
        self.settled.remove(id);
        match self.waiting.get(id) {
            Some(waiting) if waiting.offer.content.content == *content => {}
            _ => return VecDeque::new(),
        }
        self.waiting
            .remove(id)
            .map_or(VecDeque::new(), |waiting| waiting.chunks)
    }

    /// A program has received an offered content, or refuses it: the sender is told.
    pub(super) fn settle(
        &mut self,
        id: OfferId,
        content: Guid,
        verdict: OfferVerdict,
        effects: &mut Effects,
    ) {
        let address = self.waiting.get(&id).map(|waiting| waiting.address);
        self.take(&id, &content);
        self.settled.insert(id, verdict);
        self.release(&id.sender, effects);
        if verdict != OfferVerdict::Received {
            effects.counters.offers_refused += 1;
        }
        let address = address.unwrap_or(Guid::NONE);
        OfferSource { id, address }.tell_verdict(self.here, content, verdict, effects);
    }
}
