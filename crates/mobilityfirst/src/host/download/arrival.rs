//! Chunks from their arrival until programs have them.

use whimbrel_content::{ChunkSize, Offer, Proof, Refusal};
use whimbrel_core::Time;
use whimbrel_link::Room;

use super::super::effects::{Effects, Located};
use super::super::{App, Timer};
use super::Downloads;
use super::hand_over::Held;
use super::one::Download;
use crate::local::{LocalChunk, TransferState};
use crate::wire::{
    ChunkRanges, Data, DropReason, NetworkHeader, Notice, Reliability, Request, ServiceId,
    Transport,
};

/// An arrived chunk.
struct Arrived<'a> {
    header: &'a NetworkHeader,
    data: &'a Data,
    room: Room,
    // It carries the id of a request of this host: its sender has seen one.
    is_asked_for: bool,
}

/// What became of an arrived chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Its download has it now.
    New,
    /// Its download had it before.
    Before,
    /// It is false, or there is no room for it.
    Not,
}

impl Download {
    /// Counts a false chunk. Only who has seen a request of this host is named for it.
    fn note_unproven(&mut self, arrived: &Arrived<'_>, effects: &mut Effects) {
        effects.counters.unproven += 1;
        if arrived.is_asked_for {
            self.note_false(arrived.header.source);
        }
    }
}

impl Downloads {
    /// Handles an arrived chunk. Its room in the buffer is released when its programs have it;
    /// `is_ready` returns true for a program that takes an event at once.
    pub(in crate::host) fn handle_data(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        data: Data,
        room: Room,
        is_ready: impl Fn(App) -> bool,
        effects: &mut Effects,
    ) {
        let ids = self.ids_of(&data.content);
        if ids.is_empty() {
            return self.stop_source(now, header, &data, effects);
        }
        let arrived = Arrived {
            header,
            data: &data,
            room,
            is_asked_for: self.has_asked(&data.content, header.extensions.request),
        };
        let mut is_known = false;
        for id in ids {
            let taken = self.take_chunk(now, id, &arrived, &is_ready, effects);
            is_known |= taken != Taken::Not;
            let taken = taken == Taken::New;
            self.hand_over(id, effects);
            // After the chunk: a program that was found ready takes only one event at once.
            if taken {
                self.set_state(id, TransferState::Flowing, effects);
            }
        }
        if is_known && data.reliability == Reliability::Ack {
            self.acknowledge(header, &data, effects);
        }
    }

    /// Passes the chunk and its room to a download. Nothing of the download changes before the chunk
    /// is verified: whoever sends garbage would else be its source, or put off its requests.
    fn take_chunk(
        &mut self,
        now: Time,
        id: u64,
        arrived: &Arrived<'_>,
        is_ready: impl Fn(App) -> bool,
        effects: &mut Effects,
    ) -> Taken {
        let Arrived { data, room, .. } = arrived;
        let Some(download) = self.by_id.get_mut(&id) else {
            return Taken::Not;
        };
        let (Some(chunk_size), Ok((proof, []))) = (
            ChunkSize::from_code(data.chunk_log2),
            Proof::decode(&data.proof),
        ) else {
            download.note_unproven(arrived, effects);
            return Taken::Not;
        };
        let offer = Offer {
            chunk_size,
            index: data.index.into(),
            claimed_len: data.content_len,
            data: &data.payload,
            proof: &proof,
        };
        let verified = match download.assembly.check(&offer) {
            Ok(verified) => verified,
            Err(Refusal::Duplicate) => {
                effects.counters.duplicates += 1;
                download.window.note_chunk(data.index);
                self.note_alive(now, id, arrived, effects);
                return Taken::Before;
            }
            Err(fault) => {
                tracing::debug!(content = %data.content, index = data.index, %fault, "chunk refused");
                download.note_unproven(arrived, effects);
                return Taken::Not;
            }
        };
        self.note_alive(now, id, arrived, effects);
        let Some(download) = self.by_id.get_mut(&id) else {
            return Taken::Not;
        };
        let asked = download.window.note_chunk(data.index);
        download.chunk_packets = download.chunk_packets.max(room.packets().into());
        let app = download.app;
        // A chunk that its program takes at once is never refused: all others may wait for it.
        let offset = u64::from(data.index) << data.chunk_log2;
        let passes = download.hand_over.takes(offset) && is_ready(app);
        // The sender of what nobody has asked for may have ended, and is held back: what was on its way before finds room.
        let has_room = match download.is_unrequested() {
            true => self.shares.has_room(room.packets().into()),
            false => self.shares.admits(app, &download.share, room.packets()),
        };
        if !passes && !has_room {
            effects.counters.drop("program-too-slow");
            if download.is_unrequested() {
                // Its source sends it again later: a request to stop would empty the storage of routers.
                self.give_back(arrived.header, data, effects);
            }
            self.review_window(now, id, false, asked, effects);
            return Taken::Not;
        }
        let range = verified.range();
        download.assembly.commit(verified.clone());
        download.follow_size(chunk_size, data.index);
        download.note_order(now, data.index);
        let chunk = LocalChunk {
            request: download.request,
            index: data.index,
            chunk_log2: data.chunk_log2,
            content_len: download.assembly.expected_len().unwrap_or(data.content_len),
            len_proven: download.assembly.confirmed_len().is_some(),
            kind: data.kind,
            file_name: data.file_name.clone(),
            proof: data.proof.clone(),
            verified: Some(verified),
            data: data.payload.clone(),
        };
        let load = download.share.hold_with(room.clone());
        download.hand_over.hold(range, Held { chunk, load });
        if download.is_sent_once() && arrived.is_asked_for {
            // It may have been the last one.
            effects.set(Timer::Download(id), now + download.patience());
        }
        self.review_window(now, id, true, asked, effects);
        Taken::New
    }

    /// Notes that a source has sent a chunk that is true. One that carries no id of this host's
    /// requests is taken for what it is, and nothing follows from it.
    fn note_alive(&mut self, now: Time, id: u64, arrived: &Arrived<'_>, effects: &mut Effects) {
        let header = arrived.header;
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        if !arrived.is_asked_for {
            return effects.drop("wrong-request-id");
        }
        let sends = download.source.map(|source| source.name);
        let is_second = sends.is_some_and(|source| source != header.source);
        if is_second && download.asking.hedges > 0 && download.asking.attempts == 0 {
            // Several were asked, and another one was faster.
            return self.tell_to_stop(now, header, arrived.data, effects);
        }
        download.source = Some(Located::source_of(header));
        download.follow_source(arrived.data.reliability, &header.extensions);
        download.note_arrival(now);
        let pause = download.quiet_time().unwrap_or(download.patience());
        effects.set(Timer::Download(id), now + pause);
    }

    /// Hands over the chunks that may be handed over, and ends the download after its last one.
    pub(super) fn hand_over(&mut self, id: u64, effects: &mut Effects) {
        while let Some(download) = self.by_id.get_mut(&id) {
            let Some(Held { chunk, load }) = download.hand_over.take_next() else {
                break;
            };
            let app = download.app;
            effects.counters.chunks_handed_over += 1;
            effects.hand_over(app, chunk, load);
        }
        self.finish_if_done(id, effects);
    }

    pub(in crate::host) fn note_consumed(&mut self, app: App, request: u32, effects: &mut Effects) {
        let Some(id) = self.find(app, request) else {
            return;
        };
        if let Some(download) = self.by_id.get_mut(&id) {
            download.hand_over.note_consumed();
        }
        self.hand_over(id, effects);
        self.refill(app, effects);
    }

    /// There is no room for a chunk that was not requested: its source is told as by a full storage.
    fn give_back(&self, header: &NetworkHeader, data: &Data, effects: &mut Effects) {
        let notice = Notice {
            content: data.content,
            source: header.source,
            destination: header.receiver(),
            chunks: ChunkRanges::from(data.index..data.index.saturating_add(1)),
            stored: 0,
            limit: 0,
        };
        let (service, at) = (ServiceId::DELAY_TOLERANT, Located::source_of(header));
        let dropped = Transport::Drop(notice, DropReason::FlowLimit);
        effects.send_about(header.extensions.request, service, at, dropped);
    }

    fn acknowledge(&mut self, header: &NetworkHeader, data: &Data, effects: &mut Effects) {
        let chunks = ChunkRanges::from(data.index..data.index.saturating_add(1));
        let (content, chunk_log2) = (data.content, data.chunk_log2);
        let ack = Request::new(content, chunk_log2, Reliability::Ack, chunks);
        let at = Located::source_of(header);
        let (service, ack) = (ServiceId::DELAY_TOLERANT, Transport::Ack(ack));
        effects.send_about(header.extensions.request, service, at, ack);
    }
}
