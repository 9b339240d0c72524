//! The proxy's notices to sources and receivers: stored, dropped, room again, lost [MFTP §3.3].

use std::collections::BTreeMap;

use whimbrel_core::Guid;

use super::effects::Effects;
use super::store::ProxyStore;
use crate::chunk::Chunk;
use crate::handed::HandedOver;
use crate::wire::{
    ChunkRanges, DropReason, Flow, NetworkHeader, Notice, ServiceId, Transport, UpperProtocol,
};

/// Maximum of queued notices, one for each flow, content and reason; more are dropped and counted.
const MAX_NOTICES: usize = 16_384;

/// Notices to send, and sources that wait for room.
#[derive(Default)]
pub(super) struct Notices {
    pending: BTreeMap<NoticeKey, ChunkRanges>,
    // The sources that were told that the storage is nearly full for their flow, by flow and content.
    warned: BTreeMap<(Flow, Guid), Told>,
    // Those of them whose flow has room again.
    relieved: BTreeMap<(Flow, Guid), Told>,
}

/// What a notice says of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum News {
    Stored,
    Kept,
    Dropped(DropReason),
}

/// A source's address, and the id of the request that its chunks answer.
type Told = (Guid, Option<u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NoticeKey {
    flow: Flow,
    source_address: Guid,
    content: Guid,
    // The source, or the receiver, believes no notice without it.
    request_id: Option<u64>,
    what: News,
}

impl Notices {
    /// Half of the storage of `flow` is free again: sources that were told to pause may resume.
    /// With only its own timer a source would wait up to half a minute.
    pub(super) fn note_room(&mut self, flow: &Flow) {
        let of_flow = (*flow, Guid([0; 32]))..=(*flow, Guid([255; 32]));
        self.relieved
            .extend(self.warned.extract_if(of_flow, |_, _| true));
    }

    /// Counts a dropped chunk and queues the notice to its source.
    pub(super) fn note_drop(&mut self, chunk: &Chunk, reason: DropReason, effects: &mut Effects) {
        effects.drop(reason.label());
        match notice_key(chunk, News::Dropped(reason)) {
            Some((key, index)) => self.note(key, index, effects),
            None => {
                if let Some(key) = request_key(chunk, Some(reason)) {
                    self.note_request(key);
                }
            }
        }
    }

    /// Queues the notice about a request, which has no chunk index: its source is told of its loss,
    /// or of its storage, by content.
    pub(super) fn note_request(&mut self, key: NoticeKey) {
        if self.pending.len() < MAX_NOTICES {
            self.pending.entry(key).or_default();
        }
    }

    pub(super) fn note(&mut self, key: NoticeKey, index: u32, effects: &mut Effects) {
        if self.pending.len() >= MAX_NOTICES && !self.pending.contains_key(&key) {
            return effects.drop("notice");
        }
        self.pending.entry(key).or_default().insert(index);
    }

    /// The next message to a source, sent by the router `from`: "a transport layer message, either
    /// Store or Drop, is transmitted back to the original source."
    pub(super) fn next(&mut self, from: Guid, store: &ProxyStore) -> Option<Chunk> {
        if let Some((key, chunks)) = self.pending.pop_first() {
            return Some(self.message(from, key, chunks, store));
        }
        let ((flow, content), (source_address, request_id)) = self.relieved.pop_first()?;
        let key = NoticeKey {
            flow,
            source_address,
            content,
            request_id,
            what: News::Stored,
        };
        Some(self.message(from, key, ChunkRanges::default(), store))
    }

    fn message(
        &mut self,
        from: Guid,
        key: NoticeKey,
        chunks: ChunkRanges,
        store: &ProxyStore,
    ) -> Chunk {
        let NoticeKey {
            flow,
            source_address,
            content,
            request_id,
            what,
        } = key;
        let notice = Notice {
            content,
            source: flow.source,
            destination: flow.destination,
            chunks,
            stored: store.flow_bytes(&flow),
            limit: store.limits().per_flow,
        };
        if notice.is_nearly_full() && self.warned.len() < MAX_NOTICES {
            let told = (source_address, request_id);
            self.warned.insert((flow, content), told);
        }
        let transport = match what {
            News::Dropped(reason) => Transport::Drop(notice, reason),
            News::Stored => Transport::Store(notice),
            News::Kept => Transport::Kept(notice),
        };
        let (service, upper) = (ServiceId::DELAY_TOLERANT, UpperProtocol::Transport);
        let mut header = NetworkHeader::new(service, upper, from, flow.source);
        header.source_address = from;
        header.destination_address = source_address;
        header.extensions.request = request_id;
        Chunk::of_transport(header, &transport)
    }
}

/// Returns the message from the router `from` to the receiver of chunks after the restart of the
/// neighbour that had accepted them: the receiver knows which of them are missing. The message
/// follows the chunks' path, behind those that were forwarded.
pub(super) fn lost(from: Guid, handed: HandedOver) -> Chunk {
    let request_id = handed.request_id;
    let service = match handed.is_for_group {
        true => ServiceId::DELAY_TOLERANT.with(ServiceId::MULTICAST),
        false => ServiceId::DELAY_TOLERANT,
    };
    let (notice, upper) = (handed.into_lost(), UpperProtocol::Transport);
    let mut header = NetworkHeader::new(service, upper, from, notice.destination);
    header.source_address = from;
    header.extensions.request = request_id;
    Chunk::of_transport(header, &Transport::Lost(notice))
}

/// Returns the key of a notice about a request for content.
pub(super) fn request_key(chunk: &Chunk, dropped: Option<DropReason>) -> Option<NoticeKey> {
    if chunk.header.upper != UpperProtocol::Transport {
        return None;
    }
    match chunk.transport() {
        Ok(Transport::Request(request) | Transport::Nack(request) | Transport::Resend(request)) => {
            Some(NoticeKey {
                flow: chunk.flow(),
                source_address: chunk.header.source_address,
                content: request.content,
                request_id: chunk.header.extensions.request,
                what: dropped.map_or(News::Stored, News::Dropped),
            })
        }
        _ => None,
    }
}

/// Returns the key of a notice about a data chunk, and the chunk's index.
pub(super) fn notice_key(chunk: &Chunk, what: News) -> Option<(NoticeKey, u32)> {
    let data = chunk.data()?;
    let source_address = chunk.header.source_address;
    Some((
        NoticeKey {
            flow: chunk.flow(),
            source_address,
            content: data.content,
            request_id: chunk.header.extensions.request,
            what,
        },
        data.index,
    ))
}
