//! One upload: the chunks that a client still wants, those sent, and those that a proxy holds.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_content::ChunkSize;
use whimbrel_core::{Guid, Time};

use super::confirming::Unconfirmed;
use super::contents::NextChunk;
use super::group::GroupPush;
use super::push::SentContent;
use super::window::SendWindow;
use super::{Asked, Presence};
use crate::local::Delivery;
use crate::taken::MIN_GUARD;
use crate::wire::{ChunkRanges, NetworkHeader, Reliability, Request, ServiceId};

/// Bound of the proxies whose stored chunks an upload remembers; they all are on its path.
pub(super) const MAX_PROXIES: usize = 16;
/// Longest pause after a proxy's notice that it is full or has dropped chunks.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Pauses end at multiples of this, in milliseconds: each end costs a pass over all uploads.
const PAUSE_GRID_MS: u64 = 100;

pub(super) struct Upload {
    pub(super) client_address: Guid,
    // The ids of the client's latest request, and of one before it with another id: routers may still
    // hold chunks that answer that one.
    request_ids: [Option<u64>; 2],
    // The client may get chunks by several ways.
    pub(super) multihoming: bool,
    pub(super) chunk_size: ChunkSize,
    pub(super) reliability: Reliability,
    // How the network is to treat the chunks, and what the receiver is told of its timer.
    pub(super) delivery: Delivery,
    pub(super) nack_timeout_ms: Option<u32>,
    // Sent before `pending`: the last chunk, which proves the content's length.
    pub(super) first: Option<u32>,
    pub(super) pending: ChunkRanges,
    pub(super) sent: [ChunkRanges; 2],
    pub(super) sent_since: Time,
    // For how long, and up to twice that, chunks are not sent again for a repeated request.
    pub(super) repeat_guard: Duration,
    // The chunks of this upload that each proxy stores.
    pub(super) stored: BTreeMap<Guid, ChunkRanges>,
    // In ACK mode: chunks that the client has not confirmed.
    pub(super) unconfirmed: Unconfirmed,
    // The access router, and the chunks of which it keeps copies.
    pub(super) kept: Option<(Guid, ChunkRanges)>,
    pub(super) window: SendWindow,
    pub(super) paused_until: Time,
    pub(super) pauses: u32,
    pub(super) last_use: Time,
    // If the client has not requested it.
    pub(super) push: Option<SentContent>,
}

impl Upload {
    pub(super) fn new(asked: &Asked<'_>, now: Time) -> Upload {
        Upload {
            client_address: asked.header.source_address,
            request_ids: [None; 2],
            multihoming: false,
            chunk_size: asked.chunk_size,
            reliability: asked.reliability,
            delivery: asked.options.delivery,
            nack_timeout_ms: asked.options.nack_timeout(),
            first: None,
            pending: ChunkRanges::default(),
            sent: Default::default(),
            sent_since: now,
            repeat_guard: MIN_GUARD,
            stored: BTreeMap::new(),
            unconfirmed: Unconfirmed::default(),
            kept: None,
            window: SendWindow::default(),
            paused_until: Time::ZERO,
            pauses: 0,
            last_use: now,
            push: None,
        }
    }

    /// Follows a request of its client.
    pub(super) fn follow(&mut self, now: Time, asked: &Asked<'_>) {
        self.client_address = asked.header.source_address;
        self.note_request(asked.header.extensions.request);
        self.note_options(asked);
        self.last_use = now;
        self.go_on();
        self.rotate_sent(now);
        // What is not sent again is sent at once.
        let window = (asked.window).filter(|_| self.reliability != Reliability::DontCare);
        self.window.advise(window, asked.chunk_size.code());
    }

    /// Follows the advice of a client that misses nothing. Returns false if it is about another upload.
    pub(super) fn follow_advice(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        advice: &Request,
    ) -> bool {
        let is_about = self.is_about(header.extensions.request);
        if is_about {
            self.window.advise(advice.window, advice.chunk_log2);
            self.client_address = header.source_address;
            self.last_use = now;
        }
        is_about
    }

    /// Adds chunks that the client wants to those pending, but for those that are on their way and those of which
    /// proxies have copies. Returns what each proxy is to send.
    pub(super) fn want(
        &mut self,
        mut wanted: ChunkRanges,
        presence: Presence,
        being_read: &ChunkRanges,
    ) -> BTreeMap<Guid, ChunkRanges> {
        if presence == Presence::MayBeUnderWay {
            self.subtract_sent(&mut wanted);
        }
        wanted.subtract(being_read);
        let mut copies = BTreeMap::new();
        self.stored.retain(|proxy, stored| {
            let held = wanted.intersection(stored);
            wanted.subtract(&held);
            // A router on the way may have taken the others from this request, to send them itself.
            stored.subtract(&held);
            if !held.is_empty() {
                copies.insert(*proxy, held);
            }
            !stored.is_empty()
        });
        self.pending.union(&wanted);
        copies
    }

    /// Subtracts the chunks that were sent a moment ago.
    pub(super) fn subtract_sent(&self, wanted: &mut ChunkRanges) {
        wanted.subtract(&self.sent[0]);
        wanted.subtract(&self.sent[1]);
    }

    /// Notes how a request, and the source's own choice, have the chunks treated.
    fn note_options(&mut self, asked: &Asked<'_>) {
        if self.push.is_none() {
            self.delivery = asked.options.delivery.of_answer(asked.header);
        }
        let is_asked = asked.header.service.has(ServiceId::MULTIHOMING);
        self.multihoming = self.delivery.divides().unwrap_or(is_asked);
    }

    /// Notes the id of a request. If it is a new one, another download asks, or another run of the
    /// client after a crash, which has nothing of what was sent to the former one.
    pub(super) fn note_request(&mut self, id: Option<u64>) {
        if id.is_some() && !self.is_about(id) && self.request_ids[0].is_some() {
            self.sent = Default::default();
        }
        let [latest, before] = &mut self.request_ids;
        if *latest != id {
            *before = core::mem::replace(latest, id);
        }
    }

    /// Returns the id of the request that is answered.
    pub(super) fn request_id(&self) -> Option<u64> {
        self.request_ids[0]
    }

    /// Returns the state of an upload to a group.
    pub(super) fn group_mut(&mut self) -> Option<&mut GroupPush> {
        self.push.as_mut().and_then(|push| push.group.as_mut())
    }

    /// Returns true if a notice with this id is about this upload: who sends it has seen a request, or
    /// a chunk that answers it.
    pub(super) fn is_about(&self, id: Option<u64>) -> bool {
        id == self.request_ids[0] || id.is_some() && id == self.request_ids[1]
    }

    pub(super) fn note_sent(&mut self, now: Time, index: u32) {
        self.rotate_sent(now);
        self.sent[0].insert(index);
        self.last_use = now;
        if self.reliability == Reliability::Ack {
            self.unconfirmed.note_sent(index);
        }
    }

    pub(super) fn note_delivered(&mut self, now: Time, index: u32) {
        self.rotate_sent(now);
        self.sent[0].insert(index);
        self.last_use = now;
        self.unconfirmed.note_delivered(now, index);
    }

    pub(super) fn note_confirmed(&mut self, now: Time, chunks: &ChunkRanges) {
        self.unconfirmed.note_confirmed(now, chunks);
    }

    /// Returns when the first chunk that no proxy stores is to be sent again, unless it is confirmed.
    pub(super) fn next_confirmation(&self) -> Option<Time> {
        self.unconfirmed.next_due(&self.stored)
    }

    /// Sends again what is due.
    pub(super) fn repeat_unconfirmed(&mut self, now: Time) {
        let late = self.unconfirmed.take_late(now, &self.stored);
        self.pending.union(&late);
    }

    /// Returns the bytes of chunks, as a window counts them.
    pub(super) fn bytes_of(&self, chunks: &ChunkRanges) -> u64 {
        chunks.count() << self.chunk_size.code()
    }

    /// Returns the number of its chunks, if its content has this length in bytes.
    pub(super) fn count(&self, content_len: u64) -> u32 {
        count_of(self.chunk_size, content_len)
    }

    /// Notes that the access router keeps chunks; another router no longer does.
    pub(super) fn note_kept(&mut self, router: Guid, chunks: ChunkRanges) {
        match &mut self.kept {
            Some((by, kept)) if *by == router => kept.union(&chunks),
            kept => *kept = Some((router, chunks)),
        }
    }

    /// Notes that a router has dropped chunks: they are sent again, after a pause.
    pub(super) fn note_dropped(&mut self, now: Time, chunks: &ChunkRanges) {
        for stored in self.stored.values_mut() {
            stored.subtract(chunks);
        }
        if let Some((_, kept)) = &mut self.kept {
            kept.subtract(chunks);
        }
        self.window.give_back(self.bytes_of(chunks));
        self.pending.union(chunks);
        if let Some(group) = self.group_mut() {
            group.take_back(chunks);
        }
        if let Some(push) = &mut self.push {
            push.note_dropped(chunks);
        }
        self.pause(now);
    }

    /// Begins again in smaller chunks, of which there are `count`.
    pub(super) fn begin_again(&mut self, now: Time, size: ChunkSize, count: u32) {
        self.chunk_size = size;
        self.first = count.checked_sub(1);
        self.pending = ChunkRanges::from(0..count);
        self.sent = Default::default();
        self.sent_since = now;
        self.stored.clear();
        self.unconfirmed = Default::default();
        self.kept = None;
    }

    /// Notes that a proxy stores chunks. They are within the storage's limit, not within the window.
    pub(super) fn note_stored(&mut self, proxy: Guid, chunks: &ChunkRanges) {
        let is_known = self.stored.contains_key(&proxy);
        if !is_known && self.stored.len() >= MAX_PROXIES {
            return;
        }
        let stored = self.stored.entry(proxy).or_default();
        let before = stored.count();
        stored.union(chunks);
        let added = stored.count() - before;
        self.window.give_back(added << self.chunk_size.code());
    }

    /// Takes a chunk back that did not leave.
    pub(super) fn take_back(&mut self, index: u32) {
        self.window.give_back(self.chunk_size.bytes());
        self.pending.insert(index);
    }

    /// Sends nothing more of a content that nobody has requested, until its receiver asks.
    pub(super) fn stop(&mut self, now: Time) {
        self.first = None;
        self.pending = ChunkRanges::default();
        self.unconfirmed = Unconfirmed::default();
        if let Some(push) = &mut self.push {
            push.note_stop(now);
        }
    }

    pub(super) fn rotate_sent(&mut self, now: Time) {
        if now.since(self.sent_since) >= self.repeat_guard {
            let older = core::mem::take(&mut self.sent[0]);
            self.sent[1] = if now.since(self.sent_since) < self.repeat_guard * 2 {
                older
            } else {
                ChunkRanges::default()
            };
            self.sent_since = now;
        }
    }

    pub(super) fn pause(&mut self, now: Time) {
        let pause = Duration::from_secs(1)
            .saturating_mul(1 << self.pauses.min(5))
            .min(MAX_PAUSE);
        self.pauses += 1;
        let end = (now + pause).as_nanos() / 1_000_000;
        self.paused_until = Time::from_millis(end.next_multiple_of(PAUSE_GRID_MS));
    }

    /// Ends a pause.
    pub(super) fn go_on(&mut self) {
        self.paused_until = Time::ZERO;
        self.pauses = 0;
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.pending.is_empty() || !self.unconfirmed.is_empty() || self.push.is_some()
    }

    /// Returns what is sent next, and counts it as sent.
    pub(super) fn take_next(&mut self, now: Time) -> NextChunk {
        if self.paused_until > now {
            return NextChunk::PausedUntil(self.paused_until);
        }
        let size = self.chunk_size;
        self.next()
            .map_or(NextChunk::None, |index| NextChunk::Due { index, size })
    }

    /// Returns the next chunk to send, if the receiver's window is open.
    pub(super) fn next(&mut self) -> Option<u32> {
        let is_held = self.push.as_ref().is_some_and(SentContent::is_held);
        if is_held || !self.window.is_open() {
            return None;
        }
        let next = self.take_pending()?;
        self.window.take(self.chunk_size.bytes());
        Some(next)
    }

    fn take_pending(&mut self) -> Option<u32> {
        match self.first.take() {
            Some(first) => {
                self.pending.remove_range(first..first + 1);
                Some(first)
            }
            None => self.pending.pop_first(),
        }
    }
}

/// Returns the number of chunks of this size that a content of this length in bytes has.
pub(super) fn count_of(size: ChunkSize, content_len: u64) -> u32 {
    size.count(content_len).min(u32::MAX.into()) as u32
}
