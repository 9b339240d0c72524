//! The receiver's side of the end-to-end window [MFTP §3.4.2].
//!
//! "For each window's worth of data chunks, the receiver then sends one window flow control message, to advise
//! the sender to maintain, increase, or reduce the sending window to certain value based on the receiver's
//! buffer occupancy." The message is a NACK. It goes when half of a window has come, so that a source need not
//! stop, and never for a rest that fits into the window. A program that keeps up has its window doubled each
//! time, whatever its share of the buffer: the network may hold far more than that.
//!
//! A program that falls behind has its window reduced at once to what there is room for, and the next message
//! waits until it has taken a part. If chunks find no room all the same, the window is closed (routers drop what
//! is on its way), and what is missing is requested by name, as much as there is room for.

use core::time::Duration;
use whimbrel_core::{Guid, Time};

use super::super::App;
use super::super::effects::{Effects, Located};
use super::super::upload::Presence;
use super::Downloads;
use crate::wire::{
    ChunkRanges, Reliability, Request, ServiceId, Transport, WindowAdvice, WindowVerdict,
};

/// The first window, as a multiple of what the program may hold. The host's initial window bounds it.
const FIRST_SHARES: u64 = 4;
/// Least chunks of a window that is not reduced.
const LEAST: u64 = 4;
/// Content in a packet, in bytes, about.
const PACKET: u64 = 1_200;
/// Upper bound of a window that opens again: a multiple of the share, as a power of two.
const MAX_FALLS: u32 = 5;
/// Least time without a chunk before the window is advised again.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// The window of a source that is told to stop.
const CLOSED: WindowAdvice = WindowAdvice {
    verdict: WindowVerdict::Reduce,
    chunks: 0,
};

/// What a message says.
struct Advice {
    verdict: WindowVerdict,
    missing: ChunkRanges,
    // What this host knows of the missing chunks.
    presence: Presence,
}

impl Advice {
    /// The window, and chunks that seem to be lost.
    fn new(verdict: WindowVerdict, missing: ChunkRanges) -> Advice {
        let presence = Presence::MayBeUnderWay;
        Advice {
            verdict,
            missing,
            presence,
        }
    }

    /// The window alone.
    fn bare(verdict: WindowVerdict) -> Advice {
        Advice::new(verdict, ChunkRanges::default())
    }

    /// Chunks that are not under way, because they came too soon or were dropped on the way.
    fn named(verdict: WindowVerdict, missing: ChunkRanges) -> Advice {
        let presence = Presence::Lost;
        Advice {
            verdict,
            missing,
            presence,
        }
    }
}

/// A window whose chunks are requested by name.
#[derive(Clone, Debug)]
pub(super) struct Metered {
    // Bound of the chunks here and under way.
    pub(super) most: u64,
    // Of those, the requested chunks that are not here.
    pub(super) under_way: ChunkRanges,
}

/// The window that a download advises to its source.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceiveWindow {
    // In chunks.
    pub(super) chunks: u64,
    // Chunks that came since the last advice.
    pub(super) came: u64,
    // The next advice waits for the program.
    is_withheld: bool,
    // While nothing has come since, the window was advised again.
    pub(super) is_repeated: bool,
    // Times that the window was closed.
    falls: u32,
    pub(super) metered: Option<Metered>,
}

impl ReceiveWindow {
    /// Returns the first window, for a program that may hold `packets`.
    pub(super) fn new(packets: u64, initial: u64, chunk_bytes: u64) -> ReceiveWindow {
        let most = (packets * PACKET * FIRST_SHARES).min(initial) / chunk_bytes.max(1);
        ReceiveWindow {
            chunks: most.max(LEAST),
            ..ReceiveWindow::default()
        }
    }

    pub(super) fn advice(&self, verdict: WindowVerdict) -> WindowAdvice {
        // What is requested by name is all that the source is to send.
        let named = self.metered.as_ref().map(|it| it.under_way.count().max(1));
        let chunks = named.unwrap_or(self.chunks).min(u16::MAX.into()) as u16;
        WindowAdvice { verdict, chunks }
    }

    /// Returns true if the source of this content need not stop for this download.
    pub(super) fn is_open(&self) -> bool {
        self.metered.is_none() && !self.is_withheld
    }

    /// Returns true if a download with this number of waiting chunks is slowed by its program, not by the network.
    pub(super) fn waits_for_program(&self, waiting: u64) -> bool {
        let metered = self.metered.as_ref();
        self.is_withheld || metered.is_some_and(|it| waiting >= it.most)
    }

    /// A chunk has come. Returns true if it was requested by name.
    pub(super) fn note_chunk(&mut self, index: u32) -> bool {
        self.came += 1;
        self.is_repeated = false;
        let Some(metered) = &mut self.metered else {
            return false;
        };
        let is_named = metered.under_way.contains(index);
        let range = index..index.saturating_add(1);
        metered.under_way.remove_range(range);
        is_named
    }

    /// The source sends smaller chunks, of which `index` has come.
    pub(super) fn divide(&mut self, log2: u8, index: u32) {
        self.chunks = (self.chunks << log2).min(u16::MAX.into());
        self.came <<= log2;
        if let Some(metered) = &mut self.metered {
            metered.most <<= log2;
            metered.under_way = metered.under_way.divided(log2);
            let range = index..index.saturating_add(1);
            metered.under_way.remove_range(range);
        }
    }

    /// Nothing is under way.
    pub(super) fn forget_under_way(&mut self) {
        self.came = 0;
        if let Some(metered) = &mut self.metered {
            metered.under_way = ChunkRanges::default();
        }
    }
}

/// Sends a request for no chunk, which takes back an earlier one.
pub(super) fn send_stop(
    request_id: Option<u64>,
    content: Guid,
    chunk_log2: u8,
    source: Located,
    effects: &mut Effects,
) {
    let nothing = ChunkRanges::default();
    let stop = Request {
        window: Some(CLOSED),
        ..Request::new(content, chunk_log2, Reliability::DontCare, nothing)
    };
    let (service, stop) = (ServiceId::DELAY_TOLERANT, Transport::Request(stop));
    effects.send_about(request_id, service, source, stop);
}

impl Downloads {
    /// Advises the source of a download after a chunk, if that is due. `has_room` is false for a chunk that was
    /// refused, `is_named` is true for one that was requested by name.
    pub(super) fn review_window(
        &mut self,
        now: Time,
        id: u64,
        has_room: bool,
        is_named: bool,
        effects: &mut Effects,
    ) {
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        if download.is_unrequested() || download.is_sent_once() {
            return;
        }
        let limit = self.shares.limit(download.app);
        let held = download.share.packets();
        // While chunks under way still find room.
        if !has_room || held > limit / 4 * 3 {
            return self.close_window(id, is_named && !has_room, effects);
        }
        if !download.window.is_open() || !download.needs_advice() {
            return;
        }
        if download.has_backlog() && held * 2 > limit {
            return self.hold_window(id, effects);
        }
        let window = &mut download.window;
        if window.came * 2 < window.chunks {
            return;
        }
        let verdict = match held * 4 <= limit {
            true => WindowVerdict::Increase,
            false => WindowVerdict::Maintain,
        };
        if verdict == WindowVerdict::Increase {
            window.chunks = (window.chunks * 2).min(u16::MAX.into());
        }
        let missing = download.assembly.missing_ranges(download.chunk_size);
        let lost = download.arrivals.order.take_lost(now, missing);
        self.advise(id, Advice::new(verdict, lost), effects);
    }

    /// The program of a download has fallen behind: its source may send what there is room for, and the next
    /// advice waits for the program.
    fn hold_window(&mut self, id: u64, effects: &mut Effects) {
        let is_needed = self.is_needed_by_another(id);
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let limit = self.shares.limit(download.app);
        let free = limit.saturating_sub(download.share.packets()) / 2 / download.chunk_packets;
        let (app, window) = (download.app, &mut download.window);
        window.is_withheld = true;
        let left = window.chunks.saturating_sub(window.came);
        self.withheld.insert((app, id));
        if free < left && !is_needed {
            window.chunks = free.max(1);
            self.advise(id, Advice::bare(WindowVerdict::Reduce), effects);
        }
    }

    /// Notes that a program holds, or soon will hold, more than it may. `asked` is true if the
    /// chunk was requested as one that there would be room for.
    fn close_window(&mut self, id: u64, asked: bool, effects: &mut Effects) {
        let is_needed = self.is_needed_by_another(id);
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let half = (self.shares.limit(download.app) / 2 / download.chunk_packets).max(1);
        let window = &mut download.window;
        if let Some(metered) = &mut window.metered
            && metered.under_way.count() <= half
        {
            if asked {
                metered.most = (metered.most / 2).max(1);
            }
            return;
        }
        window.falls += u32::from(window.metered.is_none());
        window.is_withheld = false;
        window.metered = Some(Metered {
            most: half,
            under_way: ChunkRanges::default(),
        });
        self.withheld.insert((download.app, id));
        if let Some(source) = download.source.filter(|_| !is_needed) {
            effects.counters.windows_sent += 1;
            let (request_id, size) = (Some(download.request_id), download.chunk_size.code());
            send_stop(request_id, download.content, size, source, effects);
        }
    }

    /// Returns true if another download of the same content takes all that comes.
    fn is_needed_by_another(&self, id: u64) -> bool {
        let content = self.by_id.get(&id).map(|download| download.content);
        let same = content.and_then(|content| self.by_content.get(&content));
        let mut others = same.into_iter().flatten().filter(|other| **other != id);
        others.any(|other| self.by_id.get(other).is_some_and(|it| it.window.is_open()))
    }

    /// Advises the sources of a program's downloads that waited for it: it has used a chunk, or reads again.
    pub(in crate::host) fn refill(&mut self, app: App, effects: &mut Effects) {
        let of_app = (app, u64::MIN)..=(app, u64::MAX);
        let ids: Vec<u64> = self.withheld.range(of_app).map(|(_, id)| *id).collect();
        for id in ids {
            match self.by_id.get(&id).map(|it| it.window.metered.is_some()) {
                Some(true) => self.request_named(id, effects),
                Some(false) => self.go_on_with_window(id, effects),
                None => {}
            }
        }
    }

    /// The program of a download has taken a part of what waited for it.
    fn go_on_with_window(&mut self, id: u64, effects: &mut Effects) {
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let limit = self.shares.limit(download.app);
        if download.has_backlog() && download.share.packets() * 4 > limit {
            return;
        }
        self.withheld.remove(&(download.app, id));
        let window = &mut download.window;
        window.is_withheld = false;
        let half = limit / 2 / download.chunk_packets;
        if window.chunks < half.max(LEAST) {
            window.chunks = half.max(LEAST);
            return self.advise(id, Advice::bare(WindowVerdict::Increase), effects);
        }
        if download.needs_advice() {
            self.advise(id, Advice::bare(WindowVerdict::Maintain), effects);
        }
    }

    /// Requests by name what a closed window has room for.
    fn request_named(&mut self, id: u64, effects: &mut Effects) {
        let is_alone = (self.by_id.get(&id))
            .is_some_and(|it| self.by_content.get(&it.content).map(|ids| ids.len()) == Some(1));
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let limit = (self.shares.limit(download.app) / download.chunk_packets).max(1);
        let waiting = download.hand_over.waiting();
        // Its program has nothing left to do: it is no longer slow, or waits for a chunk that comes
        // before those that are here.
        let starved = download.hand_over.is_idle();
        let Some(metered) = &mut download.window.metered else {
            return;
        };
        let taken = waiting + metered.under_way.count();
        // Each message asks for a few chunks.
        if taken * 4 > metered.most * 3 && !(starved && metered.under_way.is_empty()) {
            return;
        }
        let growth = if starved {
            (metered.most / 8).max(1)
        } else {
            0
        };
        metered.most = metered.most.saturating_add(growth);
        let most = metered.most;
        if starved && is_alone && most > limit << download.window.falls.min(MAX_FALLS) {
            return self.open_window(id, effects);
        }
        let chunks = download.first_missing(most.saturating_sub(taken).max(1));
        if chunks.is_empty() {
            return;
        }
        if let Some(metered) = &mut download.window.metered {
            metered.under_way.union(&chunks);
        }
        let verdict = match growth > 0 {
            true => WindowVerdict::Increase,
            false => WindowVerdict::Maintain,
        };
        self.advise(id, Advice::named(verdict, chunks), effects);
    }

    /// The program has kept up for long enough: its source is to send everything that is missing again.
    fn open_window(&mut self, id: u64, effects: &mut Effects) {
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let mut missing = download.missing();
        // One message must be able to name all of it: the source knows of nothing else.
        let is_all = missing.count() >= download.missing_count();
        let Some(metered) = download.window.metered.take_if(|_| is_all) else {
            return;
        };
        missing.subtract(&metered.under_way);
        download.arrivals.order.forget();
        download.window.chunks = (metered.most * 2).max(LEAST);
        self.withheld.remove(&(download.app, id));
        self.advise(id, Advice::named(WindowVerdict::Increase, missing), effects);
    }

    /// Advises the source again of a download to which nothing comes.
    pub(super) fn repeat_window(&mut self, id: u64, effects: &mut Effects) {
        if let Some(download) = self.by_id.get_mut(&id) {
            download.window.is_repeated = true;
            self.advise(id, Advice::bare(WindowVerdict::Maintain), effects);
        }
    }

    /// Sends the message of a window.
    fn advise(&mut self, id: u64, advice: Advice, effects: &mut Effects) {
        let Some(download) = self.by_id.get(&id) else {
            return;
        };
        // Of all downloads of the same content, that with the largest window rules.
        let same = self.by_content.get(&download.content).into_iter().flatten();
        let others = same.filter_map(|other| self.by_id.get(other));
        let others = others.filter(|it| it.window.is_open());
        let bytes = others.map(|it| it.window.chunks << it.chunk_size.code());
        let most = bytes.max().unwrap_or_default() >> download.chunk_size.code();
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let Some(at) = download.source else {
            return;
        };
        download.window.came = 0;
        let mut window = download.window.advice(advice.verdict);
        window.chunks = window.chunks.max(most.min(u16::MAX.into()) as u16);
        let request = Request {
            window: Some(window),
            ..download.request_for(advice.missing)
        };
        effects.counters.windows_sent += 1;
        let message = match advice.presence {
            Presence::Lost => Transport::Resend(request),
            Presence::MayBeUnderWay => Transport::Nack(request),
        };
        let treatment = download.treatment(ServiceId::UNICAST);
        let request_id = Some(download.request_id);
        effects.send_about(request_id, treatment, at, message);
    }
}
