//! Chunks that come, until a program has them.

use whimbrel_content::{ChunkSize, Offer, Proof, Refusal};
use whimbrel_core::Time;

use super::super::effects::Effects;
use super::super::{App, Timer};
use super::Downloads;
use super::one::Held;
use crate::local::{LocalChunk, LocalEvent, TransferState};
use crate::room::Room;
use crate::wire::{ChunkRanges, Data, NetworkHeader, Reliability, Request, ServiceId, Transport};

/// Chunks that may wait here for one program (for those before them, or for credit) while it has
/// other downloads beside it; what comes on top is dropped and asked for again.
const MAX_HELD: usize = 64;

impl Downloads {
    /// A chunk has come. Its room in the buffer is free again when a program has it.
    pub(in crate::host) fn handle_data(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        data: Data,
        mut room: Room,
        effects: &mut Effects,
    ) {
        let ids = self.ids_of(&data.content);
        if ids.is_empty() {
            return self.stop_source(now, header, &data, effects);
        }
        if data.reliability == Reliability::Ack {
            self.acknowledge(header, &data, effects);
        }
        for id in ids {
            // Whoever takes it first carries its room; the others share the memory.
            self.take_chunk(now, id, header, &data, &mut room, effects);
            self.hand_over(id, effects);
        }
    }

    /// A download that takes the chunk takes its room with it.
    fn take_chunk(
        &mut self,
        now: Time,
        id: u64,
        header: &NetworkHeader,
        data: &Data,
        room: &mut Room,
        effects: &mut Effects,
    ) {
        let alone = self.len() == 1;
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        download.source = Some((header.source, header.source_address));
        download.note_arrival(now);
        let patience = download.patience();
        let (Some(chunk_size), Ok((proof, []))) = (
            ChunkSize::from_code(data.chunk_log2),
            Proof::decode(&data.proof),
        ) else {
            effects.counters.unproven += 1;
            return;
        };
        let offer = Offer {
            chunk_size,
            index: data.index.into(),
            claimed_len: data.content_len,
            data: &data.payload,
            proof: &proof,
        };
        effects.set(Timer::Download(id), now + patience);
        if download.held.len() >= MAX_HELD && !alone {
            return effects.counters.drop("program-too-slow");
        }
        let verified = match download.assembly.check(&offer) {
            Ok(verified) => verified,
            Err(Refusal::Duplicate) => {
                effects.counters.duplicates += 1;
                return;
            }
            Err(fault) => {
                tracing::debug!(content = %data.content, index = data.index, %fault, "chunk refused");
                effects.counters.unproven += 1;
                return;
            }
        };
        let offset = verified.range().start;
        download.assembly.commit(verified);
        let chunk = LocalChunk {
            request: download.request,
            index: data.index,
            chunk_log2: data.chunk_log2,
            content_len: download.assembly.expected_len().unwrap_or(data.content_len),
            len_proven: download.assembly.confirmed_len().is_some(),
            kind: data.kind,
            file_name: data.file_name.clone(),
            proof: data.proof.clone(),
            data: data.payload.clone(),
        };
        let _room = room.take();
        download.held.insert(offset, Held { chunk, _room });
        self.set_state(id, TransferState::Flowing, effects);
    }

    /// Hands over what may be handed over, and ends the download when that was all.
    pub(super) fn hand_over(&mut self, id: u64, effects: &mut Effects) {
        while let Some(download) = self.by_id.get_mut(&id) {
            let Some(Held { chunk, .. }) = download.next_deliverable() else {
                break;
            };
            download.unconsumed += 1;
            let app = download.app;
            effects.counters.chunks_handed_over += 1;
            effects.tell(app, LocalEvent::Chunk(chunk));
        }
        self.finish_if_done(id, effects);
    }

    pub(in crate::host) fn note_consumed(&mut self, app: App, request: u32, effects: &mut Effects) {
        let Some(id) = self.find(app, request) else {
            return;
        };
        if let Some(download) = self.by_id.get_mut(&id) {
            download.unconsumed = download.unconsumed.saturating_sub(1);
        }
        self.hand_over(id, effects);
    }

    fn acknowledge(&mut self, header: &NetworkHeader, data: &Data, effects: &mut Effects) {
        let chunks = ChunkRanges::from(data.index..data.index.saturating_add(1));
        let (content, chunk_log2) = (data.content, data.chunk_log2);
        let ack = Request {
            content,
            chunk_log2,
            reliability: Reliability::Ack,
            chunks,
        };
        effects.send(
            ServiceId::DELAY_TOLERANT,
            header.source,
            header.source_address,
            Transport::Ack(ack),
        );
    }
}
