//! Copies that this router keeps for the producers attached to it [MFTP §3.3].
//!
//! "Before forwarding the data chunk, the immobile access router (acting as a transport proxy) will save
//! a copy of the chunk in order to respond to potential future NACKs." The producer is told which chunks are
//! kept. A copy ends with the receiver's acknowledgement, or with its lifetime.

use super::*;
use crate::router::store::Purpose;
use crate::router::store::copies::is_proven;
use crate::wire::{Transport, TransportKind, UpperProtocol};

impl Proxy {
    /// Keeps a copy of a chunk whose producer, which is attached here, delegates its reliability. The chunk
    /// goes on without the mark: one router keeps it.
    pub(in crate::router) fn keep_for_producer(
        &mut self,
        now: Time,
        chunk: &mut Chunk,
        data: &Data,
        effects: &mut Effects,
    ) {
        chunk.header.extensions.delegate = false;
        if !is_proven(data) {
            return effects.drop("unproven-copy");
        }
        let expires = now + self.store.lifetime_of(&chunk.header);
        let keeping = CopyTerms {
            purpose: Purpose::Kept,
            expires: Some(expires),
        };
        if !self.store.keep_copy(chunk, data, keeping) {
            return effects.drop("no-room-to-keep");
        }
        effects.counters.chunks_kept += 1;
        if let Some((key, index)) = notice_key(chunk, News::Kept) {
            self.notices.note(key, index, effects);
        }
        effects.push(Action::SetEarlier(Timer::Lifetime, expires));
        let is_offer = chunk.header.extensions.offer.is_some();
        if !is_offer && self.store.copies().is_whole(&data.content) {
            effects.push(Action::AnnounceKept(data.content, expires));
        }
    }

    /// A receiver acknowledges what a producer has sent to it: the copies have done their work.
    pub(in crate::router) fn free_kept(&mut self, chunk: &Chunk, effects: &mut Effects) {
        let is_ack = chunk.message.head.first() == Some(&(TransportKind::Ack as u8));
        if chunk.header.upper != UpperProtocol::Transport || !is_ack {
            return;
        }
        if let Ok(Transport::Ack(request)) = chunk.transport() {
            effects.counters.kept_freed += self.store.free_kept(&chunk.header, &request);
        }
    }

    /// A neighbour has lost chunks that it had taken over: those that are kept here go to it once more, in
    /// place of their producer's. Returns what is not kept.
    pub(in crate::router) fn send_kept_again(
        &self,
        mut handed: HandedOver,
        effects: &mut Effects,
    ) -> HandedOver {
        let copies: Vec<_> = self.store.copies().kept_of(&handed).collect();
        for (mut chunk, index, room) in copies {
            handed.chunks.remove_range(index..index.saturating_add(1));
            effects.counters.copies_sent += 1;
            effects.counters.copy_bytes_sent += chunk.size() as u64;
            chunk.header.destination_address = Guid::NONE;
            chunk.header.extensions.via = None;
            chunk.header.extensions.addresses.clear();
            let copy = ChunkToSend::originated(chunk, room);
            effects.push(Action::Forward(copy));
        }
        handed
    }
}
