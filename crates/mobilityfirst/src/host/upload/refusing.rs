//! Requests that are not met, and clients that are told why.

use whimbrel_core::{Guid, Time};

use super::{Key, Uploads, Way};
use crate::chunk::Chunk;
use crate::host::effects::{Action, Effects, Located};
use crate::wire::{ChunkRanges, DropReason, Notice, ServiceId, Transport};

impl Key {
    /// Tells the client why its request cannot be met.
    pub(super) fn tell_client(
        self,
        address: Guid,
        request_id: Option<u64>,
        reason: DropReason,
        effects: &mut Effects,
    ) {
        let notice = Notice {
            content: self.content,
            source: self.client,
            destination: self.content,
            chunks: ChunkRanges::default(),
            stored: 0,
            limit: 0,
        };
        // A client that the notice does not reach asks again.
        effects.push(Action::Send {
            way: self.way,
            treatment: ServiceId::UNICAST.into(),
            to: Located {
                name: self.client,
                address,
            },
            request_id,
            message: Transport::Drop(notice, reason),
        });
    }
}

impl Uploads {
    pub(in crate::host) fn upload_too_large(
        &mut self,
        now: Time,
        way: Way,
        chunk: &Chunk,
        effects: &mut Effects,
    ) {
        if let Some(data) = chunk.data() {
            let (to, id) = (chunk.header.destination, chunk.header.extensions.request);
            let key = self.by_key.key_of(data.content, to, way, id);
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
            key.tell_client(address, request_id, DropReason::TooLarge, effects);
        }
    }
}
