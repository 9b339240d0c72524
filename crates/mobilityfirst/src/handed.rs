//! The chunks that a neighbour accepted: if it restarts, those that it had not forwarded are lost,
//! and only the node before it knows.
//!
//! Hops are reliable while both neighbours run [MFTP §3.2.1], so end-to-end recovery must detect
//! the loss of a router's memory ("a conservatively long period of time", section 3.2.2). With this
//! record the receivers are told at once instead.

use std::collections::VecDeque;

use whimbrel_core::Guid;

use crate::wire::{ChunkRanges, Data, Flow, MAX_RANGES, NetworkHeader, Notice};

/// Maximum of remembered entries (contents of flows) per neighbour; the least recently used is
/// forgotten.
const MAX_ENTRIES: usize = 64;

/// The chunks of one content of one flow that a neighbour accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOver {
    /// The flow.
    pub flow: Flow,
    /// The content.
    pub content: Guid,
    /// Whether its destination is a group.
    pub is_for_group: bool,
    /// The id of the request that they answer.
    pub request_id: Option<u64>,
    /// Its chunks. Most of them have long arrived; their receiver knows which.
    pub chunks: ChunkRanges,
}

impl HandedOver {
    /// Returns the notice to the receiver after the neighbour's restart.
    pub fn into_lost(self) -> Notice {
        let HandedOver {
            flow,
            content,
            chunks,
            ..
        } = self;
        Notice {
            content,
            source: flow.source,
            destination: flow.destination,
            chunks,
            stored: 0,
            limit: 0,
        }
    }
}

/// The chunks that one neighbour accepted since its start: at most 64 entries of about 100 bytes
/// and 256 ranges of 8 bytes; and 64 contents of its own, of 100 bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handovers {
    // Least recently used first.
    entries: VecDeque<HandedOver>,
    // Contents of flows that the neighbour itself is the source of, least recently used first.
    // With the ids of the requests for them.
    sent: VecDeque<HandedOver>,
}

impl Handovers {
    /// Records that the neighbour has a chunk.
    pub(crate) fn note(&mut self, header: &NetworkHeader, data: &Data) {
        let flow = Flow {
            destination: header.receiver(),
            ..header.flow()
        };
        let content = data.content;
        let known = self
            .entries
            .iter()
            .position(|entry| entry.flow == flow && entry.content == content);
        let mut entry = match known.and_then(|at| self.entries.remove(at)) {
            Some(entry) => entry,
            None => HandedOver {
                flow,
                content,
                is_for_group: header.is_for_group(),
                request_id: None,
                chunks: ChunkRanges::default(),
            },
        };
        entry.request_id = header.extensions.request;
        entry.chunks.insert(data.index);
        if entry.chunks.iter().nth(MAX_RANGES).is_some() {
            // The oldest of a content that is sent in order is the likeliest to have arrived.
            let oldest = entry.chunks.iter().next().unwrap_or_default();
            entry.chunks.remove_range(oldest);
        }
        if self.entries.len() == MAX_ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Records a chunk of a flow.
    #[cfg(test)]
    pub(crate) fn note_flow(&mut self, flow: Flow) {
        self.entries.push_back(HandedOver {
            flow,
            content: flow.source,
            is_for_group: false,
            request_id: None,
            chunks: ChunkRanges::default(),
        });
    }

    /// Returns true if chunks of a flow are remembered.
    pub(crate) fn has_flow(&self, flow: &Flow) -> bool {
        self.entries.iter().any(|entry| entry.flow == *flow)
    }

    /// Removes the chunks that their receiver asks for again. Returns how many of them the neighbour had accepted.
    pub(crate) fn take_missing(&mut self, flow: &Flow, content: &Guid, asked: &ChunkRanges) -> u64 {
        let is_it = |it: &&mut HandedOver| it.flow == *flow && it.content == *content;
        let Some(entry) = self.entries.iter_mut().find(is_it) else {
            return 0;
        };
        let before = entry.chunks.count();
        entry.chunks.subtract(asked);
        before - entry.chunks.count()
    }

    /// Records that the neighbour is sending a content of its own: what it has not sent when it
    /// restarts, it has forgotten to send.
    pub(crate) fn note_sent(&mut self, header: &NetworkHeader, content: Guid) {
        let flow = header.flow();
        let is_it = |it: &HandedOver| (it.flow, it.content) == (flow, content);
        let known = self.sent.iter().position(is_it);
        known.and_then(|at| self.sent.remove(at));
        if self.sent.len() == MAX_ENTRIES {
            self.sent.pop_front();
        }
        self.sent.push_back(HandedOver {
            flow,
            content,
            is_for_group: header.is_for_group(),
            request_id: header.extensions.request,
            chunks: ChunkRanges::all(),
        });
    }

    /// Removes and returns all entries, for a neighbour that has restarted.
    pub(crate) fn take(&mut self) -> Vec<HandedOver> {
        let sent = core::mem::take(&mut self.sent);
        let mut all: Vec<HandedOver> = core::mem::take(&mut self.entries).into();
        all.extend(sent);
        all
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::chunk::Chunk;
    use crate::wire::{ContentKind, Reliability, ServiceId, Transport, UpperProtocol};

    fn note(handovers: &mut Handovers, chunk: Chunk) {
        let data = chunk.data().expect("a data chunk");
        handovers.note(&chunk.header, &data);
    }

    fn chunk(content: u8, index: u32) -> Chunk {
        let service = ServiceId::DELAY_TOLERANT;
        let header = NetworkHeader::new(
            service,
            UpperProtocol::Transport,
            Guid([1; 32]),
            Guid([2; 32]),
        );
        let data = Data {
            content: Guid([content; 32]),
            index,
            chunk_log2: 16,
            content_len: 1 << 40,
            kind: ContentKind::File,
            reliability: Reliability::Nack,
            file_name: String::new(),
            proof: Bytes::new(),
            payload: Bytes::from_static(b"payload"),
        };
        Chunk::of_transport(header, &Transport::Data(data))
    }

    #[test]
    fn chunks_of_a_content_are_one_entry_until_they_are_taken() {
        let mut handovers = Handovers::default();
        for index in [9, 0, 1, 2] {
            note(&mut handovers, chunk(7, index));
        }
        note(&mut handovers, chunk(8, 5));
        let taken = handovers.take();
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0].chunks.iter().collect::<Vec<_>>(), [0..3, 9..10]);
        assert_eq!(taken[1].content, Guid([8; 32]));
        assert!(handovers.take().is_empty());
    }

    #[test]
    fn of_a_neighbours_own_contents_all_that_is_missing_is_lost() {
        let mut handovers = Handovers::default();
        let mut header = chunk(1, 0).header;
        for content in (0..=255).chain([7]) {
            header.extensions.request = Some(content.into());
            handovers.note_sent(&header, Guid([content; 32]));
        }
        assert!(!handovers.sent[0].is_for_group);
        let taken = handovers.take();
        assert_eq!(taken.len(), MAX_ENTRIES);
        let last = taken.last().expect("entries");
        assert_eq!((last.content, last.request_id), (Guid([7; 32]), Some(7)));
        assert!(last.chunks.contains(0) && last.chunks.contains(1 << 20));
        // What was for a group, its members are told.
        header.service = ServiceId::MULTICAST;
        handovers.note_sent(&header, Guid([1; 32]));
        assert!(handovers.take()[0].is_for_group);
        assert!(handovers.take().is_empty());
    }

    #[test]
    fn memory_is_bounded_whatever_is_handed_over() {
        let mut handovers = Handovers::default();
        for content in 0..=255 {
            note(&mut handovers, chunk(content, 0));
        }
        for index in 0..2_000 {
            note(&mut handovers, chunk(255, 2 * index));
        }
        let taken = handovers.take();
        assert_eq!(taken.len(), MAX_ENTRIES);
        assert!(
            taken
                .iter()
                .all(|entry| entry.chunks.iter().count() <= MAX_RANGES)
        );
        assert!(
            taken
                .last()
                .is_some_and(|entry| entry.chunks.contains(3_998))
        );
    }
}
