//! Copies that this router keeps for the producers attached to it [MFTP §3.3].
//!
//! "Before forwarding the data chunk, the immobile access router (acting as a transport proxy) will save
//! a copy of the chunk in order to respond to potential future NACKs." The producer is told which chunks are
//! kept. A copy ends with the receiver's acknowledgement, or with its lifetime.

use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::{Record, Statement};
use whimbrel_link::Room;

use super::store::Purpose;
use super::store::copies::{CopyTerms, is_proven};
use super::{Router, Timer};
use crate::chunk::Chunk;
use crate::handed::HandedOver;
use crate::links::ChunkToSend;
use crate::wire::{Data, Transport, TransportKind, UpperProtocol};

impl Router {
    /// Keeps a copy of a chunk whose producer, which is attached here, delegates its reliability. The chunk
    /// goes on without the mark: one router keeps it.
    pub(super) fn keep_for_producer(
        &mut self,
        now: Time,
        from: PortId,
        chunk: &mut Chunk,
        data: &Data,
    ) {
        let header = &mut chunk.header;
        if !header.extensions.delegate || !self.attachments.is_on(&header.source, from) {
            return;
        }
        header.extensions.delegate = false;
        if !is_proven(data) {
            return self.effects.drop("unproven-copy");
        }
        let longest = self.proxy.store().limits().lifetime;
        let wanted = chunk.header.extensions.lifetime();
        let expires = now + wanted.map_or(longest, |wanted| wanted.min(longest));
        let keeping = CopyTerms {
            purpose: Purpose::Kept,
            expires: Some(expires),
        };
        if !self.proxy.keep_copy(chunk, data, keeping) {
            return self.effects.drop("no-room-to-keep");
        }
        self.effects.counters.chunks_kept += 1;
        self.proxy.note_kept(chunk, &mut self.effects);
        self.timers.set_earlier(Timer::Lifetime, expires);
        let is_offer = chunk.header.extensions.offer.is_some();
        if !is_offer && self.proxy.store().copies().is_whole(&data.content) {
            self.announce_kept(now, data.content, expires);
        }
    }

    /// Announces with the router's own key a content of which all chunks are kept here, for as long as they
    /// are: a request finds them when the producer is away.
    fn announce_kept(&mut self, now: Time, content: Guid, until: Time) {
        let unix_ms = self.config.wall.unix_millis(now);
        let lifetime_ms = until.since(now).as_millis() as u64;
        let statement = Statement::new(unix_ms, lifetime_ms, Vec::new());
        let keys = self.config.hop.reception.keys();
        if let Ok(record) = Record::provider(keys, content, &statement)
            && self.names.has_service()
        {
            self.effects.counters.kept_announced += 1;
            self.names.resolver.insert(now, record);
        }
    }

    /// A receiver acknowledges what a producer has sent to it: the copies have done their work.
    pub(super) fn free_kept(&mut self, chunk: &Chunk) {
        let is_ack = chunk.message.head.first() == Some(&(TransportKind::Ack as u8));
        if chunk.header.upper != UpperProtocol::Transport || !is_ack {
            return;
        }
        if let Ok(Transport::Ack(request)) = chunk.transport() {
            let freed = self.proxy.free_kept(&chunk.header, &request);
            self.effects.counters.kept_freed += freed;
        }
    }

    /// A neighbour has lost chunks that it had taken over: those that are kept here go to it once more, in
    /// place of their producer's. Returns what is not kept.
    pub(super) fn send_kept_again(&mut self, now: Time, mut handed: HandedOver) -> HandedOver {
        let copies = self.proxy.kept_of(&handed);
        for (chunk, index, room) in copies {
            handed.chunks.remove_range(index..index.saturating_add(1));
            self.effects.counters.copies_sent += 1;
            self.effects.counters.copy_bytes_sent += chunk.size() as u64;
            self.forward_copy(now, chunk, room);
        }
        handed
    }

    /// Sends a copy on its way anew, or stores it.
    fn forward_copy(&mut self, now: Time, mut chunk: Chunk, room: Room) {
        chunk.header.destination_address = Guid::NONE;
        chunk.header.extensions.via = None;
        chunk.header.extensions.addresses.clear();
        let outgoing = ChunkToSend {
            chunk,
            room,
            from: None,
            origin: None,
            order: None,
        };
        self.forward(now, outgoing);
    }
}
