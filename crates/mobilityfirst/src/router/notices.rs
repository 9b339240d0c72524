//! What the proxy tells sources and receivers: stored, dropped, room again, lost [MFTP §3.3].

use std::collections::BTreeMap;

use whimbrel_core::{Guid, Time};

use super::Router;
use crate::chunk::{Chunk, Flow};
use crate::handed::HandedOver;
use crate::wire::{
    ChunkRanges, DropReason, NetworkHeader, Notice, ServiceId, Transport, UpperProtocol,
};

/// Notices that wait to be sent, one for each flow, content and reason; more are dropped and
/// counted.
const MAX_NOTICES: usize = 16_384;

/// What is to be told, and who waits for better news.
#[derive(Default)]
pub(super) struct Notices {
    pending: BTreeMap<NoticeKey, ChunkRanges>,
    // Sources that were told that the storage is nearly full for their flow, and of which content;
    // their addresses.
    warned: BTreeMap<(Flow, Guid), Guid>,
    // Of those, the ones whose flow has room again.
    relieved: BTreeMap<(Flow, Guid), Guid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NoticeKey {
    flow: Flow,
    source_address: Guid,
    content: Guid,
    // `None` for a Store message.
    dropped: Option<DropReason>,
}

impl Notices {
    /// Half of the storage of `flow` is free again: sources that were told to stop may go on. By
    /// its own timer a source would wait up to half a minute.
    pub(super) fn note_room(&mut self, flow: &Flow) {
        let of_flow = (*flow, Guid([0; 32]))..=(*flow, Guid([255; 32]));
        self.relieved
            .extend(self.warned.extract_if(of_flow, |_, _| true));
    }
}

impl Router {
    /// Counts a chunk as dropped and notes its source as to be told.
    pub(super) fn note_drop(&mut self, chunk: &Chunk, reason: DropReason) {
        self.counters.drop(reason.label());
        match notice_key(chunk, Some(reason)) {
            Some((key, index)) => self.note(key, index),
            None => self.note_lost_request(chunk, reason),
        }
    }

    /// Requests and the like have no number; who sent a request for content hears of its fate.
    fn note_lost_request(&mut self, chunk: &Chunk, reason: DropReason) {
        if let Ok(Transport::Request(request) | Transport::Nack(request)) = chunk.transport() {
            let key = NoticeKey {
                flow: chunk.flow(),
                source_address: chunk.header.source_address,
                content: request.content,
                dropped: Some(reason),
            };
            if self.proxy.notices.pending.len() < MAX_NOTICES {
                self.proxy.notices.pending.entry(key).or_default();
            }
        }
    }

    /// A neighbour has restarted that had taken over these chunks: their receivers know which of
    /// them have not come. The message takes the chunks' way, behind those that were passed on.
    pub(super) fn tell_receivers(&mut self, now: Time, handed: Vec<HandedOver>) {
        for notice in handed.into_iter().map(HandedOver::into_lost) {
            let mut header = NetworkHeader::new(
                ServiceId::DELAY_TOLERANT,
                UpperProtocol::Transport,
                self.config.guid,
                notice.destination,
            );
            header.source_address = self.config.guid;
            self.say(now, Chunk::of_transport(header, &Transport::Lost(notice)));
        }
    }

    pub(super) fn note(&mut self, key: NoticeKey, index: u32) {
        let pending = &mut self.proxy.notices.pending;
        if pending.len() >= MAX_NOTICES && !pending.contains_key(&key) {
            return self.counters.drop("notice");
        }
        pending.entry(key).or_default().insert(index);
    }

    /// "A transport layer message, either Store or Drop, is transmitted back to the original
    /// source." True if any was.
    pub(super) fn send_notices(&mut self, now: Time) -> bool {
        let mut sent = false;
        while let Some((key, chunks)) = self.proxy.notices.pending.pop_first() {
            self.send_notice(now, key, chunks);
            sent = true;
        }
        while let Some(((flow, content), source_address)) = self.proxy.notices.relieved.pop_first()
        {
            let key = NoticeKey {
                flow,
                source_address,
                content,
                dropped: None,
            };
            self.send_notice(now, key, ChunkRanges::default());
            sent = true;
        }
        sent
    }

    fn send_notice(&mut self, now: Time, key: NoticeKey, chunks: ChunkRanges) {
        let NoticeKey {
            flow,
            source_address,
            content,
            dropped,
        } = key;
        let (stored, limit) = (
            self.proxy.store().flow_bytes(&flow),
            self.proxy.store().limits().per_flow,
        );
        let notice = Notice {
            content,
            source: flow.source,
            destination: flow.destination,
            chunks,
            stored,
            limit,
        };
        if notice.is_nearly_full() && self.proxy.notices.warned.len() < MAX_NOTICES {
            self.proxy
                .notices
                .warned
                .insert((flow, content), source_address);
        }
        let transport = match dropped {
            Some(reason) => Transport::Drop(notice, reason),
            None => Transport::Store(notice),
        };
        let (service, upper) = (ServiceId::DELAY_TOLERANT, UpperProtocol::Transport);
        let mut header = NetworkHeader::new(service, upper, self.config.guid, flow.source);
        header.source_address = self.config.guid;
        header.destination_address = source_address;
        self.say(now, Chunk::of_transport(header, &transport));
    }
}

/// Under what a source hears of a data chunk, and its number.
pub(super) fn notice_key(chunk: &Chunk, dropped: Option<DropReason>) -> Option<(NoticeKey, u32)> {
    let data = chunk.data()?;
    let source_address = chunk.header.source_address;
    Some((
        NoticeKey {
            flow: chunk.flow(),
            source_address,
            content: data.content,
            dropped,
        },
        data.index,
    ))
}
