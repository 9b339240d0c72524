//! Fetching content for local programs: `get(content_name)` [MFTP §2, 3.1 and 3.2.2].
//!
//! | module | holds |
//! |---|---|
//! | [`one`] | one download: what has arrived and what is missing |
//! | [`arrival`] | chunks from their arrival until a program has them |
//! | [`asking`] | requests: which chunks, when, and from which source |
//! | [`order`] | which missing chunks are lost, and not merely late |
//! | [`window`] | the end-to-end window: what the source may send |

mod arrival;
mod asking;
mod hand_over;
mod one;
mod order;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeMap, BTreeSet};

use core::time::Duration;
use whimbrel_content::{Assembly, ChunkSize};
use whimbrel_core::{Guid, GuidPrefix, KeyedState, Recent, SeededRng, Time};

use super::effects::{Effects, Located, Uplink};
use super::shares::Shares;
use super::status::DownloadStatus;
use super::{App, Timer};
use crate::chunk_size::Path;
use crate::local::{AcceptOffer, FailReason, Get, LocalEvent, OfferId, TransferState};
use crate::wire::EXACT_SIZE;
use one::Download;
use window::{ReceiveWindow, send_stop};

/// For this long after a content was fetched, its source takes the chunks that it sent for under
/// way; another request for the content must say that they are not.
const AGAIN: Duration = Duration::from_secs(3);
/// Bound of the downloads in a report.
const MAX_REPORTED: usize = 64;
/// Bound of the inbound peers that are known as asked.
const MAX_CALLERS: usize = 1024;
/// Bound of the contents remembered as fetched a moment ago.
const MAX_ENDED: usize = 1024;

/// Where the chunks of a download come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::host) enum Provenance {
    /// Any holder of the content, as the network chooses.
    Holder,
    /// The inbound peer of this name alone.
    Caller(Guid),
    /// The sender of this offer alone, which sends them without a request.
    Sender(OfferId),
}

/// Bounds of a host's downloads.
#[derive(Clone, Copy, Debug)]
pub(in crate::host) struct DownloadLimits {
    /// Longest content, in bytes.
    pub(in crate::host) content: u64,
    /// Downloads at one time.
    pub(in crate::host) transfers: usize,
    /// Time for which chunks may be missing before their source is told, unless a request says
    /// otherwise.
    pub(in crate::host) nack_timeout: Duration,
    /// The back-pressure buffer, in packets.
    pub(in crate::host) buffer_packets: usize,
    /// Initial end-to-end window (W_e), in bytes.
    pub(in crate::host) window: u64,
}

/// All downloads of a host.
pub(in crate::host) struct Downloads {
    limits: DownloadLimits,
    by_id: BTreeMap<u64, Download>,
    by_content: BTreeMap<Guid, BTreeSet<u64>>,
    stopped: BTreeMap<(Guid, Guid), Time>,
    shares: Shares,
    // Downloads whose program has fallen behind: what they advise next waits for it.
    withheld: BTreeSet<(App, u64)>,
    // Inbound peers that downloads have asked.
    callers: Recent<Guid>,
    // Contents that were fetched a moment ago, and the times of their last chunks.
    ended: BTreeMap<Guid, Time>,
    next_id: u64,
    // Draws the ids of requests: those that others have seen tell nothing about the next one.
    draw: KeyedState,
}

impl Downloads {
    pub(in crate::host) fn new(limits: DownloadLimits, rng: &mut SeededRng) -> Downloads {
        Downloads {
            limits,
            by_id: BTreeMap::new(),
            by_content: BTreeMap::new(),
            stopped: BTreeMap::new(),
            shares: Shares::new(limits.buffer_packets),
            withheld: BTreeSet::new(),
            callers: Recent::new(MAX_CALLERS),
            ended: BTreeMap::new(),
            next_id: 0,
            draw: KeyedState::new(rng),
        }
    }

    pub(in crate::host) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the oldest downloads, for reports.
    pub(in crate::host) fn status(&self, now: Time) -> Vec<DownloadStatus> {
        let first = self.by_id.values().take(MAX_REPORTED);
        first.map(|download| download.status(now)).collect()
    }

    /// Returns the contents whose names begin with `prefix`, in order.
    pub(in crate::host) fn beginning(&self, prefix: &GuidPrefix) -> impl Iterator<Item = Guid> {
        let names = self.by_content.range(prefix.first()..);
        names
            .map(|(name, _)| *name)
            .take_while(|name| prefix.is_of(name))
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

    /// Returns true if a message with this id answers, or speaks of, a request for this content.
    pub(in crate::host) fn has_asked(&self, content: &Guid, request_id: Option<u64>) -> bool {
        let mut ids = self.by_content.get(content).into_iter().flatten();
        ids.any(|id| self.request_id(*id) == request_id)
    }

    /// Returns true if an accepted content of this sender is on its way.
    pub(in crate::host) fn receives_from(&self, sender: &Guid) -> bool {
        let is_from =
            |it: &Download| matches!(it.provenance, Provenance::Sender(id) if id.sender == *sender);
        self.by_id.values().any(is_from)
    }

    /// Returns true if a program that accepted content of this sender holds more than this part of its share, in quarters.
    pub(in crate::host) fn is_filled_by(&self, sender: &Guid, quarters: u64) -> bool {
        let is_filled = |it: &Download| {
            matches!(it.provenance, Provenance::Sender(id) if id.sender == *sender)
                && it.share.packets() * 4 > self.shares.limit(it.app) * quarters
        };
        self.by_id.values().any(is_filled)
    }

    /// Returns the inbound peer that a download asks.
    pub(in crate::host) fn caller_of(&self, id: u64) -> Option<Guid> {
        self.by_id.get(&id).and_then(Download::caller)
    }

    /// Returns true for an inbound peer that a download asks, or has asked.
    pub(in crate::host) fn asks_caller(&self, name: &Guid) -> bool {
        self.callers.contains(name)
    }

    /// Returns true if a download asks this inbound peer for a content.
    pub(in crate::host) fn answers(&self, content: &Guid, name: &Guid) -> bool {
        let mut ids = self.by_content.get(content).into_iter().flatten();
        ids.any(|id| self.caller_of(*id) == Some(*name))
    }

    fn request_id(&self, id: u64) -> Option<u64> {
        self.by_id.get(&id).map(|download| download.request_id)
    }

    fn remove(&mut self, id: u64) -> Option<Download> {
        let download = self.by_id.remove(&id)?;
        if let Some(ids) = self.by_content.get_mut(&download.content) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_content.remove(&download.content);
            }
        }
        self.shares.close(download.app);
        self.withheld.remove(&(download.app, id));
        if let Some(last) = download.arrivals.last {
            self.note_end(download.content, last);
        }
        Some(download)
    }

    fn note_end(&mut self, content: Guid, at: Time) {
        if self.ended.len() >= MAX_ENDED {
            self.ended.retain(|_, ended| at.since(*ended) < AGAIN);
        }
        if self.ended.len() < MAX_ENDED {
            self.ended.insert(content, at);
        }
    }

    /// Returns true if a source may take chunks for under way that it sent for an earlier request.
    fn was_here(&self, now: Time, content: &Guid) -> bool {
        let ended = self.ended.get(content);
        self.by_content.contains_key(content) || ended.is_some_and(|at| now.since(*at) < AGAIN)
    }
}

/// Returns what is known of the path of what is missing of a content, at the start of a download.
fn rest_of(assembly: &Assembly) -> Path {
    let missing = assembly.missing().map(|gap| gap.end - gap.start).sum();
    Path {
        bytes: assembly.expected_len().map(|_| missing),
        hops: 1,
        ..Path::default()
    }
}

impl Downloads {
    pub(in crate::host) fn start_download(
        &mut self,
        now: Time,
        app: App,
        get: &Get,
        caller: Option<Guid>,
        uplink: &Uplink,
        effects: &mut Effects,
    ) {
        let Some(id) = self.open_download(now, app, get, effects) else {
            return;
        };
        if let (Some(caller), Some(download)) = (caller, self.by_id.get_mut(&id)) {
            self.callers.insert(caller, ());
            download.provenance = Provenance::Caller(caller);
        }
        if !self.finish_if_done(id, effects) {
            self.ask(now, id, uplink, effects);
        }
    }

    /// Begins the download of a content whose chunks come without a request. The source is asked for
    /// what an earlier run of the program has left out.
    pub(in crate::host) fn accept_download(
        &mut self,
        now: Time,
        app: App,
        AcceptOffer { id: from, get }: &AcceptOffer,
        uplink: &Uplink,
        effects: &mut Effects,
    ) {
        // A program that has come again takes the place of its earlier run.
        for id in self.ids_of(&get.content) {
            let earlier = self.by_id.get(&id);
            if earlier.is_some_and(|it| it.provenance == Provenance::Sender(*from))
                && let Some(earlier) = self.end_download(id, effects)
            {
                let (request, reason) = (earlier.request, FailReason::Busy);
                effects.tell(earlier.app, LocalEvent::Failed { request, reason });
            }
        }
        let Some(id) = self.open_download(now, app, get, effects) else {
            return;
        };
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        download.request_id = from.number;
        download.provenance = Provenance::Sender(*from);
        download.source = Some(Located::anywhere(from.sender));
        download.asking.asked_at = Some(now);
        let patience = download.patience();
        if self.finish_if_done(id, effects) {
            return;
        }
        match get.resume.is_empty() {
            true => effects.set(Timer::Download(id), now + patience),
            false => self.ask(now, id, uplink, effects),
        }
    }

    /// Adds a download for a request of a program. Returns `None` if it is refused.
    fn open_download(
        &mut self,
        now: Time,
        app: App,
        get: &Get,
        effects: &mut Effects,
    ) -> Option<u64> {
        let request = get.request;
        let assembly = if get.resume.is_empty() {
            Some(Assembly::new(get.content, self.limits.content))
        } else {
            Assembly::decode(&get.resume)
                .ok()
                .filter(|assembly| assembly.root() == get.content)
        };
        let chunk_log2 = get.options.asked_log2();
        let chunk_size = ChunkSize::from_code(chunk_log2 & !EXACT_SIZE);
        let is_new = self.find(app, request).is_none();
        let wanted = assembly.zip(chunk_size).filter(|_| is_new);
        let (reason, wanted) = match wanted {
            None => (FailReason::Invalid, None),
            Some(_) if self.len() >= self.limits.transfers => (FailReason::Busy, None),
            wanted => (FailReason::Invalid, wanted),
        };
        let Some((assembly, chunk_size)) = wanted else {
            effects.tell(app, LocalEvent::Failed { request, reason });
            return None;
        };
        let nack_timeout = match get.options.nack_timeout_ms {
            0 => self.limits.nack_timeout,
            ms => Duration::from_millis(ms.into()),
        };
        let id = self.next_id;
        self.next_id += 1;
        let mut chunk_size = assembly.chunk_size_of_rest(chunk_size);
        // Its source knows the length of the whole, not of the rest.
        if chunk_log2 & EXACT_SIZE == 0 && assembly.verified_bytes() > 0 {
            chunk_size = rest_of(&assembly).affords(chunk_size);
        }
        let share = self.shares.open(app);
        let mut download = Download::new(now, app, get, assembly, chunk_size, nack_timeout, share);
        let (most, initial) = (self.shares.limit(app), self.limits.window);
        download.window = ReceiveWindow::new(most, initial, chunk_size.bytes());
        download.request_id = core::hash::BuildHasher::hash_one(&self.draw, id);
        download.asking.again = self.was_here(now, &get.content);
        self.by_content.entry(get.content).or_default().insert(id);
        self.by_id.insert(id, download);
        Some(id)
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

    /// Ends a download of which nothing is sent again: its program is told what is missing.
    fn end_incomplete(&mut self, id: u64, effects: &mut Effects) {
        if let Some(download) = self.end_download(id, effects) {
            let (request, missing) = (download.request, download.missing_parts());
            effects.tell(download.app, LocalEvent::Incomplete { request, missing });
        }
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

    pub(in crate::host) fn cancel_download(
        &mut self,
        app: App,
        request: u32,
        effects: &mut Effects,
    ) {
        let Some(id) = self.find(app, request) else {
            return;
        };
        let Some(download) = self.end_download(id, effects) else {
            return;
        };
        // What was sent without a request waits for another run of the program.
        let wanted_by_others =
            self.by_content.contains_key(&download.content) || download.is_unrequested();
        if let Some(source) = download.source.filter(|_| !wanted_by_others) {
            let (request_id, size) = (Some(download.request_id), download.chunk_size.code());
            send_stop(request_id, download.content, size, source, effects);
        }
    }

    pub(in crate::host) fn forget_downloads_of(&mut self, app: App, effects: &mut Effects) {
        let requests = self.by_id.values().filter(|download| download.app == app);
        let requests: Vec<u32> = requests.map(|download| download.request).collect();
        for request in requests {
            self.cancel_download(app, request, effects);
        }
    }
}
