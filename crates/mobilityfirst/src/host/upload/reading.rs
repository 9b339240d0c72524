//! Turns of uploads at the programs that read for them, and what becomes of a chunk that a program has read.

use whimbrel_core::Time;

use super::contents::{NextChunk, PendingRead};
use super::push::SentContent;
use super::{Key, Ready, Recipients, Uploads};
use crate::host::App;
use crate::host::effects::{Effects, Located};
use crate::host::holds::ReadAhead;
use crate::local::{ReadChunk, Service};
use crate::wire::{Data, DropReason};

impl Uploads {
    /// Returns a chunk that a program did not read to those pending: another program may read it.
    pub(super) fn read_again(&mut self, key: Key, index: u32) {
        if !self.contents.catalogue().contains(&key.content) {
            return;
        }
        if let Some(upload) = self.by_key.get_mut(&key) {
            upload.take_back(index);
            self.contents.take_turn(key);
        }
    }

    pub(super) fn take_turn(&mut self, key: Key) {
        if self.by_key.get(&key).is_some() {
            self.contents.take_turn(key);
        }
    }

    /// Has programs read as many chunks as the links will take soon. Returns true if any was requested.
    pub(in crate::host) fn read_ahead(
        &mut self,
        now: Time,
        ahead: &ReadAhead<'_>,
        effects: &mut Effects,
    ) -> bool {
        let uploads = &mut self.by_key;
        let next = |key: &Key| {
            let upload = uploads.get_mut(key);
            upload.map_or(NextChunk::None, |upload| upload.take_next(now))
        };
        self.contents.read_ahead(now, ahead, next, effects)
    }

    /// Returns reads that were not done in time to those pending, for other programs.
    pub(super) fn check_reads(&mut self, now: Time, effects: &mut Effects) {
        for read in self.contents.take_late_reads(now, effects) {
            self.read_again(read.key, read.index);
        }
        self.contents.pass_over_silent();
    }

    /// Handles the end of a program's read. Returns the chunk to send now, unless the read failed.
    pub(in crate::host) fn finish_read(
        &mut self,
        now: Time,
        app: App,
        read: u64,
        chunk: Option<ReadChunk>,
        effects: &mut Effects,
    ) -> Option<Ready> {
        let PendingRead { key, index, .. } = self.contents.finish_read(app, read)?;
        let Some(chunk) = chunk else {
            effects.drop("unreadable-chunk");
            self.end_unreadable(app, key, index, effects);
            return None;
        };
        let catalogue = self.contents.catalogue();
        let offer = catalogue.get(&key.content)?;
        let upload = self.by_key.get_mut(&key)?;
        let recipients = match upload.group_mut() {
            Some(group) => group.recipients_of(index)?,
            None => Recipients::All,
        };
        let data = Data {
            content: key.content,
            index,
            chunk_log2: upload.chunk_size.code(),
            content_len: offer.publish.content_len,
            kind: offer.publish.kind,
            reliability: upload.reliability,
            file_name: catalogue.file_name(&key.content).to_owned(),
            proof: chunk.proof,
            payload: chunk.data,
        };
        if recipients == Recipients::All {
            upload.note_sent(now, index);
        }
        let (to, delivery) = match &recipients {
            Recipients::One(member) => (*member, upload.delivery.to_one()),
            _ => (key.client, upload.delivery),
        };
        Some(Ready {
            key,
            index,
            way: key.way,
            to: Located {
                name: to,
                address: upload.client_address,
            },
            data,
            request_id: upload.request_id(),
            multihoming: upload.multihoming,
            more: upload.pending.count() << upload.chunk_size.code(),
            delivery,
            nack_timeout_ms: upload.nack_timeout_ms,
            offer: upload.push.as_ref().map(SentContent::offer),
            group: matches!(recipients, Recipients::One(_)).then_some(key.client),
            nack_routers: self
                .nack_routers
                .filter(|_| upload.delivery.service == Service::Multicast),
            members: match recipients {
                Recipients::Some(members) => members,
                _ => Vec::new(),
            },
        })
    }

    /// Ends the offer of a program that cannot read its content any more. Without another offer,
    /// the client is told.
    fn end_unreadable(&mut self, app: App, key: Key, index: u32, effects: &mut Effects) {
        if !self.contents.withdraw(app, key.content, effects) {
            return self.read_again(key, index);
        }
        if let Some(upload) = self.by_key.remove(&key) {
            if upload.delivery.service == Service::Multicast {
                // A group has asked for nothing.
                return;
            }
            let (address, request_id) = (upload.client_address, upload.request_id());
            key.tell_client(address, request_id, DropReason::NotServed, effects);
        }
    }
}
