//! Fetching content for local programs: `get(content_name)` [MFTP §2, 3.1 and 3.2.2].

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;
use whimbrel_content::{Assembly, ChunkSize, Offer, Proof, Refusal};
use whimbrel_core::{Guid, Time};

use super::effects::{Effects, Uplink};
use super::{App, Timer};
use crate::local::{FailReason, Get, LocalChunk, LocalEvent, TransferState};
use crate::room::Room;
use crate::wire::{
    ChunkRanges, Data, DropReason, MAX_RANGES, NetworkHeader, Notice, Reliability, Request,
    ServiceId, Transport,
};

/// Chunks that may wait here for one program (for those before them, or for credit) while it has
/// other downloads beside it; what comes on top is dropped and asked for again.
const MAX_HELD: usize = 64;
/// Requests without any answer before a name is given up that is known but not served.
const MAX_UNSERVED: u32 = 3;
/// Longest pause between two NACKs or requests.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// After the first chunk that nobody here wants, its source is told; then not again for this long.
const STOP_INTERVAL: Duration = Duration::from_secs(1);
/// A router's restart is acted upon once in this time: anybody can say that one has restarted.
const RESEND_INTERVAL: Duration = Duration::from_secs(1);
/// Sources remembered as told to stop.
const MAX_STOPPED: usize = 1024;

struct Held {
    chunk: LocalChunk,
    // Held until a program has the chunk.
    _room: Room,
}

struct Download {
    app: App,
    request: u32,
    content: Guid,
    chunk_size: ChunkSize,
    in_order: bool,
    reliability: Reliability,
    nack_timeout: Duration,
    credit: u16,
    unconsumed: u16,
    assembly: Assembly,
    // By offset in the content, in bytes.
    held: BTreeMap<u64, Held>,
    next_offset: u64,
    source: Option<(Guid, Guid)>,
    state: TransferState,
    attempts: u32,
    unserved: u32,
    last_arrival: Option<Time>,
    last_resend: Option<Time>,
    // Smoothed time between two chunks: a slow link is no reason to complain.
    interval: Duration,
}

/// What bounds the downloads of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct DownloadLimits {
    /// Longest content, in bytes.
    pub(super) content: u64,
    /// Downloads at one time.
    pub(super) transfers: usize,
    /// How long chunks may be missing before their source is told, unless a request says otherwise.
    pub(super) nack_timeout: Duration,
}

/// All downloads of a host.
pub(super) struct Downloads {
    limits: DownloadLimits,
    by_id: BTreeMap<u64, Download>,
    by_content: BTreeMap<Guid, BTreeSet<u64>>,
    stopped: BTreeMap<(Guid, Guid), Time>,
    next_id: u64,
}

impl Downloads {
    pub(super) fn new(limits: DownloadLimits) -> Downloads {
        Downloads {
            limits,
            by_id: BTreeMap::new(),
            by_content: BTreeMap::new(),
            stopped: BTreeMap::new(),
            next_id: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    fn find(&self, app: App, request: u32) -> Option<u64> {
        let wanted = |download: &Download| download.app == app && download.request == request;
        self.by_id
            .iter()
            .find(|(_, download)| wanted(download))
            .map(|(id, _)| *id)
    }

    fn ids_of(&self, content: &Guid) -> Vec<u64> {
        self.by_content
            .get(content)
            .map_or(Vec::new(), |ids| ids.iter().copied().collect())
    }

    fn remove(&mut self, id: u64) -> Option<Download> {
        let download = self.by_id.remove(&id)?;
        if let Some(ids) = self.by_content.get_mut(&download.content) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_content.remove(&download.content);
            }
        }
        Some(download)
    }
}

impl Download {
    fn new(
        app: App,
        get: &Get,
        assembly: Assembly,
        chunk_size: ChunkSize,
        nack_timeout: Duration,
    ) -> Download {
        let next_offset = if get.in_order {
            assembly.deliverable().end
        } else {
            0
        };
        Download {
            app,
            request: get.request,
            content: get.content,
            chunk_size,
            in_order: get.in_order,
            reliability: get.reliability,
            nack_timeout,
            credit: get.credit.max(1),
            unconsumed: 0,
            assembly,
            held: BTreeMap::new(),
            next_offset,
            source: None,
            state: TransferState::Requested,
            attempts: 0,
            unserved: 0,
            last_arrival: None,
            last_resend: None,
            interval: Duration::ZERO,
        }
    }

    /// What to ask for: all that is missing, as far as one message can say it.
    fn missing(&self) -> ChunkRanges {
        let mut missing = ChunkRanges::default();
        if self.assembly.expected_len().is_none() {
            missing = ChunkRanges::all();
            for range in self.assembly.verified().iter() {
                let whole = range.start.div_ceil(self.chunk_size.bytes())
                    ..self.chunk_size.index_of(range.end);
                missing.remove_range(whole.start as u32..whole.end as u32);
            }
            return missing;
        }
        let mut ranges = 0;
        let mut last = None;
        for index in self.assembly.missing_chunks(self.chunk_size) {
            ranges += usize::from(last.is_none_or(|last| index > last + 1));
            if ranges > MAX_RANGES {
                break;
            }
            missing.insert(index as u32);
            last = Some(index);
        }
        missing
    }

    /// How long nothing may come before it is asked for again.
    fn patience(&self) -> Duration {
        let slow = self.nack_timeout.max(self.interval * 4);
        slow.saturating_mul(1 << self.attempts.min(5))
            .min(MAX_PAUSE.max(self.nack_timeout))
    }

    /// The next held chunk that may be handed over.
    fn next_deliverable(&mut self) -> Option<Held> {
        if self.unconsumed >= self.credit {
            return None;
        }
        if !self.in_order {
            return self.held.pop_first().map(|(_, held)| held);
        }
        let first = *self.held.keys().next()?;
        if first > self.next_offset {
            return None;
        }
        let held = self.held.remove(&first)?;
        self.next_offset = self.next_offset.max(first + held.chunk.data.len() as u64);
        Some(held)
    }

    fn is_finished(&self) -> bool {
        self.assembly.is_complete() && self.held.is_empty()
    }

    fn note_arrival(&mut self, now: Time) {
        if let Some(last) = self.last_arrival {
            self.interval = (self.interval * 3 + now.since(last)) / 4;
        }
        self.last_arrival = Some(now);
        self.attempts = 0;
    }
}

impl Downloads {
    pub(super) fn start_download(
        &mut self,
        now: Time,
        app: App,
        get: Get,
        uplink: &Uplink,
        effects: &mut Effects,
    ) {
        let request = get.request;
        let assembly = if get.resume.is_empty() {
            Some(Assembly::new(get.content, self.limits.content))
        } else {
            Assembly::decode(&get.resume)
                .ok()
                .filter(|assembly| assembly.root() == get.content)
        };
        let (Some(assembly), Some(chunk_size)) = (assembly, ChunkSize::from_code(get.chunk_log2))
        else {
            return effects.tell(
                app,
                LocalEvent::Failed {
                    request,
                    reason: FailReason::Invalid,
                },
            );
        };
        if self.find(app, request).is_some() {
            return effects.tell(
                app,
                LocalEvent::Failed {
                    request,
                    reason: FailReason::Invalid,
                },
            );
        }
        if self.len() >= self.limits.transfers {
            return effects.tell(
                app,
                LocalEvent::Failed {
                    request,
                    reason: FailReason::Busy,
                },
            );
        }
        let nack_timeout = match get.nack_timeout_ms {
            0 => self.limits.nack_timeout,
            ms => Duration::from_millis(ms.into()),
        };
        let id = self.next_id;
        self.next_id += 1;
        self.by_content.entry(get.content).or_default().insert(id);
        self.by_id.insert(
            id,
            Download::new(app, &get, assembly, chunk_size, nack_timeout),
        );
        if !self.finish_if_done(id, effects) {
            self.ask(now, id, uplink, effects);
        }
    }

    /// Sends a request (nobody has answered yet, or the source has gone silent) or a NACK to the
    /// source.
    fn ask(&mut self, now: Time, id: u64, uplink: &Uplink, effects: &mut Effects) {
        let Some(download) = self.by_id.get(&id) else {
            return;
        };
        let request = Request {
            content: download.content,
            chunk_log2: download.chunk_size.code(),
            reliability: download.reliability,
            chunks: download.missing(),
        };
        let (content, patience) = (download.content, download.patience());
        // A source that has not answered two NACKs may be gone; another holder may not be.
        let source = download.source.filter(|_| download.attempts <= 2);
        match source {
            Some((source, address)) => {
                effects.counters.nacks_sent += 1;
                effects.send(
                    ServiceId::DELAY_TOLERANT,
                    source,
                    address,
                    Transport::Nack(request),
                )
            }
            None => {
                effects.counters.requests_sent += 1;
                let service = ServiceId::CONTENT_REQUEST.with(ServiceId::DELAY_TOLERANT);
                effects.send(service, content, Guid::NONE, Transport::Request(request))
            }
        };
        if !uplink.is_up {
            self.set_state(id, TransferState::Disconnected, effects);
        }
        effects.set(Timer::Download(id), now + patience);
    }

    /// A router that had taken chunks over has restarted. This message came behind all that it had
    /// passed on, so what is still missing of them is lost.
    pub(super) fn handle_lost(&mut self, now: Time, notice: &Notice, effects: &mut Effects) {
        for id in self.ids_of(&notice.content) {
            let Some(download) = self.by_id.get_mut(&id) else {
                continue;
            };
            let chunks = download.missing().intersection(&notice.chunks);
            let recent = download
                .last_resend
                .is_some_and(|last| now.since(last) < RESEND_INTERVAL);
            let Some((source, address)) = download
                .source
                .filter(|(source, _)| *source == notice.source)
            else {
                continue;
            };
            if chunks.is_empty() || recent {
                continue;
            }
            download.last_resend = Some(now);
            let request = Request {
                content: download.content,
                chunk_log2: download.chunk_size.code(),
                reliability: download.reliability,
                chunks,
            };
            effects.counters.nacks_sent += 1;
            effects.send(
                ServiceId::DELAY_TOLERANT,
                source,
                address,
                Transport::Resend(request),
            );
        }
    }

    fn set_state(&mut self, id: u64, state: TransferState, effects: &mut Effects) {
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        if download.state != state {
            download.state = state;
            let (app, request) = (download.app, download.request);
            effects.tell(app, LocalEvent::State { request, state });
        }
    }

    /// "The receiver provides notification only when a chunk is not delivered over a conservatively
    /// long period of time."
    pub(super) fn check_download(
        &mut self,
        now: Time,
        id: u64,
        uplink: &Uplink,
        effects: &mut Effects,
    ) {
        let connected = uplink.is_up;
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let program_is_slow = download.unconsumed >= download.credit;
        if !connected || program_is_slow {
            let patience = download.patience();
            effects.set(Timer::Download(id), now + patience);
            if !connected {
                self.set_state(id, TransferState::Disconnected, effects);
            }
            return;
        }
        download.attempts += 1;
        self.set_state(id, TransferState::Stalled, effects);
        self.ask(now, id, uplink, effects);
    }

    /// A chunk has come. Its room in the buffer is free again when a program has it.
    pub(super) fn handle_data(
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
    fn hand_over(&mut self, id: u64, effects: &mut Effects) {
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

    fn finish_if_done(&mut self, id: u64, effects: &mut Effects) -> bool {
        if !self.by_id.get(&id).is_some_and(Download::is_finished) {
            return false;
        }
        if let Some(download) = self.remove(id) {
            effects.cancel(Timer::Download(id));
            let content_len = download.assembly.confirmed_len().unwrap_or_default();
            effects.tell(
                download.app,
                LocalEvent::Complete {
                    request: download.request,
                    content_len,
                },
            );
        }
        true
    }

    fn fail(&mut self, id: u64, reason: FailReason, effects: &mut Effects) {
        if let Some(download) = self.end_download(id, effects) {
            effects.tell(
                download.app,
                LocalEvent::Failed {
                    request: download.request,
                    reason,
                },
            );
        }
    }

    fn end_download(&mut self, id: u64, effects: &mut Effects) -> Option<Download> {
        let download = self.remove(id)?;
        effects.cancel(Timer::Download(id));
        Some(download)
    }

    pub(super) fn note_consumed(&mut self, app: App, request: u32, effects: &mut Effects) {
        let Some(id) = self.find(app, request) else {
            return;
        };
        if let Some(download) = self.by_id.get_mut(&id) {
            download.unconsumed = download.unconsumed.saturating_sub(1);
        }
        self.hand_over(id, effects);
    }

    pub(super) fn cancel_download(&mut self, app: App, request: u32, effects: &mut Effects) {
        let Some(id) = self.find(app, request) else {
            return;
        };
        let Some(download) = self.end_download(id, effects) else {
            return;
        };
        let wanted_by_others = self.by_content.contains_key(&download.content);
        if let Some((source, address)) = download.source.filter(|_| !wanted_by_others) {
            self.send_stop(
                download.content,
                download.chunk_size.code(),
                source,
                address,
                effects,
            );
        }
    }

    pub(super) fn forget_downloads_of(&mut self, app: App, effects: &mut Effects) {
        let requests = self.by_id.values().filter(|download| download.app == app);
        let requests: Vec<u32> = requests.map(|download| download.request).collect();
        for request in requests {
            self.cancel_download(app, request, effects);
        }
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

    /// Chunks come that nobody here wants: a program has gone, or this host has restarted.
    fn stop_source(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        data: &Data,
        effects: &mut Effects,
    ) {
        effects.counters.drop("unwanted-chunk");
        let key = (header.source, data.content);
        if self
            .stopped
            .get(&key)
            .is_some_and(|last| now.since(*last) < STOP_INTERVAL)
        {
            return;
        }
        if self.stopped.len() >= MAX_STOPPED {
            self.stopped
                .retain(|_, last| now.since(*last) < STOP_INTERVAL);
        }
        if self.stopped.len() < MAX_STOPPED {
            self.stopped.insert(key, now);
            self.send_stop(
                data.content,
                data.chunk_log2,
                header.source,
                header.source_address,
                effects,
            );
        }
    }

    /// A request for no chunk at all takes back an earlier one.
    fn send_stop(
        &mut self,
        content: Guid,
        chunk_log2: u8,
        source: Guid,
        address: Guid,
        effects: &mut Effects,
    ) {
        let chunks = ChunkRanges::default();
        let stop = Request {
            content,
            chunk_log2,
            reliability: Reliability::DontCare,
            chunks,
        };
        effects.send(
            ServiceId::DELAY_TOLERANT,
            source,
            address,
            Transport::Request(stop),
        );
    }

    /// True if what was dropped is a request for content, not content that this host sent.
    pub(super) fn sent(&self, dropped: &Notice) -> bool {
        let of_request = dropped.destination == dropped.content || dropped.chunks.is_empty();
        of_request && self.by_content.contains_key(&dropped.content)
    }

    /// The network has dropped a request.
    pub(super) fn handle_drop(
        &mut self,
        now: Time,
        from: Guid,
        content: &Guid,
        reason: DropReason,
        uplink: &Uplink,
        effects: &mut Effects,
    ) {
        for id in self.ids_of(content) {
            self.request_dropped(now, from, id, reason, uplink, effects);
        }
    }

    fn request_dropped(
        &mut self,
        now: Time,
        from: Guid,
        id: u64,
        reason: DropReason,
        uplink: &Uplink,
        effects: &mut Effects,
    ) {
        let asked_directly = uplink.router == Some(from);
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let begun = download.last_arrival.is_some() || download.assembly.verified_bytes() > 0;
        match reason {
            DropReason::NoSuchName if !begun => self.fail(id, FailReason::NoSuchName, effects),
            DropReason::NotServed => {
                download.source = None;
                download.unserved += 1;
                // A host that was asked directly is the only one to ask.
                if download.unserved >= MAX_UNSERVED || asked_directly {
                    self.fail(id, FailReason::NotServed, effects);
                }
            }
            DropReason::TooLarge => match ChunkSize::from_code(download.chunk_size.code() - 1) {
                Some(smaller) => {
                    download.chunk_size = smaller;
                    self.ask(now, id, uplink, effects);
                }
                None => self.fail(id, FailReason::TooLarge, effects),
            },
            // The timer asks again.
            _ => {}
        }
    }

    /// A router answers again. What was asked for is on its way or stored in the network, and "the
    /// client relies on the network to re-deliver" [MFTP §5.2.1]; only what never left this
    /// host is asked for at once.
    pub(super) fn resume_transfers(&mut self, now: Time, uplink: &Uplink, effects: &mut Effects) {
        let ids: Vec<u64> = self.by_id.keys().copied().collect();
        for id in ids {
            let Some(download) = self.by_id.get_mut(&id) else {
                continue;
            };
            download.attempts = 0;
            let patience = download.patience();
            if download.last_arrival.is_none() {
                self.set_state(id, TransferState::Requested, effects);
                self.ask(now, id, uplink, effects);
            } else {
                effects.set(Timer::Download(id), now + patience);
            }
        }
    }

    pub(super) fn note_connectivity(&mut self, uplink: &Uplink, effects: &mut Effects) {
        if uplink.is_up {
            return;
        }
        let ids: Vec<u64> = self.by_id.keys().copied().collect();
        for id in ids {
            self.set_state(id, TransferState::Disconnected, effects);
        }
    }
}
