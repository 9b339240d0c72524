//! Requests that are not met, and clients that are told why.

use whimbrel_core::{Guid, Time};

use super::{Key, Uploads, Way};
use crate::chunk::Chunk;
use crate::host::effects::{Action, Effects};
use crate::wire::{ChunkRanges, DropReason, NetworkHeader, Notice, Request, ServiceId, Transport};

impl Uploads {
    pub(super) fn refuse(
        &mut self,
        key: Key,
        header: &NetworkHeader,
        request: &Request,
        reason: DropReason,
        effects: &mut Effects,
    ) {
        if !request.chunks.is_empty() {
            let (address, request_id) = (header.source_address, header.extensions.request);
            self.tell_client(key, address, request_id, reason, effects);
        }
    }

    /// Tells a client why its request cannot be met.
    pub(super) fn tell_client(
        &mut self,
        key: Key,
        address: Guid,
        request_id: Option<u64>,
        reason: DropReason,
        effects: &mut Effects,
    ) {
        let notice = Notice {
            content: key.content,
            source: key.client,
            destination: key.content,
            chunks: ChunkRanges::default(),
            stored: 0,
            limit: 0,
        };
        // A client that the notice does not reach asks again.
        effects.push(Action::Send {
            way: key.way,
            treatment: ServiceId::UNICAST.into(),
            to: key.client,
            address,
            request_id,
            message: Transport::Drop(notice, reason),
        });
    }

    pub(in crate::host) fn upload_too_large(
        &mut self,
        now: Time,
        way: Way,
        chunk: &Chunk,
        effects: &mut Effects,
    ) {
        if let Some(data) = chunk.data() {
            let (to, id) = (chunk.header.destination, chunk.header.extensions.request);
            let key = self.key_of(data.content, to, way, id);
            self.tell_too_large(now, key, effects);
        }
    }

    /// Tells the client, which chooses the chunk size, that a hop does not carry it. The size of what it
    /// has not requested is the sender's choice.
    pub(super) fn tell_too_large(&mut self, now: Time, key: Key, effects: &mut Effects) {
        if self.shrink_push(now, &key) {
            return self.take_turn(key);
        }
        if let Some(upload) = self.by_key.remove(&key) {
            let (address, request_id) = (upload.client_address, upload.request_id());
            self.tell_client(key, address, request_id, DropReason::TooLarge, effects);
        }
    }
}
