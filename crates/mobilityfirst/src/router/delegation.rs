//! Copies that this router keeps for the producers attached to it [MFTP §3.3].
//!
//! "Before forwarding the data chunk, the immobile access router (acting as a transport proxy) will save
//! a copy of the chunk in order to respond to potential future NACKs." The producer is told which chunks are
//! kept. A copy ends with the receiver's acknowledgement, or with its lifetime.

use whimbrel_core::{PortId, Time};
use whimbrel_link::Room;

use super::store::Purpose;
use super::store::copies::{Keeping, is_proven};
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
        let keeping = Keeping {
            purpose: Purpose::Kept,
            expires: Some(expires),
        };
        if !self.proxy.keep_copy(chunk, data, keeping) {
            return self.effects.drop("no-room-to-keep");
        }
        self.effects.counters.chunks_kept += 1;
        self.proxy.note_kept(chunk, &mut self.effects);
        self.timers.set_earlier(Timer::Lifetime, expires);
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
        chunk.header.destination_address = whimbrel_core::Guid::NONE;
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
