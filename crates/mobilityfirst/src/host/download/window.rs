//! The receiver's side of the end-to-end window [MFTP §3.4.2].
//!
//! "For each window's worth of data chunks, the receiver then sends one window flow control message, to advise
//! the sender to maintain, increase, or reduce the sending window to certain value based on the receiver's
//! buffer occupancy." The message is a NACK: it goes when half of a window has come, so that a source need not
//! stop, and never for a rest that is shorter than the window. Hops deliver it reliably; one that a node loses is
//! made up for by the NACK of the receiver's timer, which carries the window, too.

use super::super::App;
use super::super::effects::Effects;
use super::Downloads;
use super::one::Download;
use crate::wire::{ChunkRanges, ServiceId, Transport, Verdict, WindowAdvice};

/// The first window, in bytes, if the program may hold that much.
const INITIAL: u64 = 8 << 20;
/// It has this many chunks at least.
const LEAST: u64 = 2;
/// Bytes of content in a packet, about.
const PACKET: u64 = 1_200;
/// Gaps that one message names.
const MAX_GAPS: usize = 64;

/// The window that a download advises to its source.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceiveWindow {
    // In chunks.
    chunks: u64,
    // Chunks that came since the last advice.
    came: u64,
    // The advice that is due waits for the program.
    is_withheld: bool,
    // Chunks that came and found no room, and those of them that were requested again and are not here.
    refused: ChunkRanges,
    asked: ChunkRanges,
    // The highest index that came, but for the content's last one, which is sent first.
    highest: u32,
}

impl ReceiveWindow {
    /// Returns the first window, for a program that may hold `packets`.
    pub(super) fn new(packets: u64, chunk_bytes: u64) -> ReceiveWindow {
        let most = (packets * PACKET).min(INITIAL) / chunk_bytes.max(1);
        ReceiveWindow {
            chunks: most.max(LEAST),
            ..ReceiveWindow::default()
        }
    }

    fn advice(&self, verdict: Verdict) -> WindowAdvice {
        WindowAdvice {
            verdict,
            chunks: self.chunks.min(u16::MAX.into()) as u16,
        }
    }

    /// Returns true if nothing is advised because the program does not take what is here.
    pub(super) fn is_withheld(&self) -> bool {
        self.is_withheld
    }

    /// The source sends smaller chunks.
    pub(super) fn divide(&mut self, log2: u8) {
        self.chunks <<= log2;
        self.came <<= log2;
        self.highest = self.highest.checked_shl(log2.into()).unwrap_or(u32::MAX);
        self.refused = self.refused.divided(log2);
        self.asked = self.asked.divided(log2);
    }

    /// Notes a chunk of a content with `count` chunks.
    fn note_chunk(&mut self, index: u32, count: u64, has_room: bool) {
        self.came += 1;
        if u64::from(index) + 1 < count {
            self.highest = self.highest.max(index);
        }
        let range = index..index.saturating_add(1);
        self.asked.remove_range(range.clone());
        match has_room {
            true => self.refused.remove_range(range),
            false => self.refused.insert_range(range),
        }
    }
}

impl Download {
    /// Returns the window that a request repeats.
    pub(super) fn window_advice(&self) -> Option<WindowAdvice> {
        let window = self.window.as_ref().filter(|_| !self.is_sent_once())?;
        Some(window.advice(Verdict::Maintain))
    }

    /// Everything that is missing is requested again.
    pub(super) fn forget_asked(&mut self) {
        if let Some(window) = &mut self.window {
            (window.asked, window.refused) = Default::default();
            window.came = 0;
        }
    }

    /// Notes a chunk that came, and whether it found room.
    pub(super) fn note_window(&mut self, index: u32, has_room: bool) {
        let count = self.assembly.expected_len().unwrap_or(u64::MAX);
        let count = self.chunk_size.count(count);
        if let Some(window) = &mut self.window {
            window.note_chunk(index, count, has_room);
        }
    }

    fn missing_count(&self) -> u64 {
        let gaps = self.assembly.missing();
        let bytes: u64 = gaps.map(|gap| gap.end.saturating_sub(gap.start)).sum();
        bytes >> self.chunk_size.code()
    }

    /// Returns missing chunks that were sent more than a window ago: nothing overtakes them by so much.
    fn lost(&self, window: &ReceiveWindow) -> ChunkRanges {
        let end = u64::from(window.highest).saturating_sub(window.chunks);
        let mut lost = ChunkRanges::default();
        let gaps = self.assembly.missing_ranges(self.chunk_size);
        for gap in gaps.take_while(|gap| gap.start < end).take(MAX_GAPS) {
            lost.insert_range(gap.start as u32..gap.end.min(end) as u32);
        }
        lost
    }
}

impl Downloads {
    /// Advises the source of a download, if that is due.
    pub(super) fn review_window(&mut self, id: u64, effects: &mut Effects) {
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let limit = (self.shares.limit(download.app) / download.chunk_packets).max(1);
        // Beside the one that has just come.
        let held = (download.share.packets() / download.chunk_packets).saturating_sub(1);
        let left = download.missing_count();
        let is_moot = download.is_sent_once() || download.source.is_none();
        let Some(window) = download.window.as_mut().filter(|_| !is_moot) else {
            return;
        };
        if !window.refused.is_empty() {
            self.withheld.insert((download.app, id));
        }
        let is_due = window.came * 2 >= window.chunks && left + window.came > window.chunks;
        if !is_due {
            return;
        }
        if held * 2 > limit {
            window.is_withheld = true;
            self.withheld.insert((download.app, id));
            return;
        }
        let (verdict, chunks) = match held {
            held if held * 4 <= limit => {
                // More than the program may hold would be lost if it stopped.
                let most = limit.max(window.chunks);
                (Verdict::Increase, (window.chunks * 2).min(most))
            }
            held if held * 8 <= limit * 3 => (Verdict::Maintain, window.chunks),
            held => (
                Verdict::Reduce,
                ((limit - held) / 2).max(LEAST).min(window.chunks),
            ),
        };
        let verdict = match chunks == window.chunks {
            true => Verdict::Maintain,
            false => verdict,
        };
        window.chunks = chunks;
        let lost = window.clone();
        let lost = download.lost(&lost);
        self.advise(id, verdict, lost, effects);
    }

    /// Advises the sources of a program's downloads that waited for it: it has used a chunk, or reads again.
    pub(in crate::host) fn refill(&mut self, app: App, effects: &mut Effects) {
        let of_app = (app, u64::MIN)..=(app, u64::MAX);
        let ids: Vec<u64> = self.withheld.range(of_app).map(|(_, id)| *id).collect();
        ids.into_iter().for_each(|id| self.refill_one(id, effects));
    }

    fn refill_one(&mut self, id: u64, effects: &mut Effects) {
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let limit = (self.shares.limit(download.app) / download.chunk_packets).max(1);
        let held = download.share.packets() / download.chunk_packets;
        // It has nothing left to do: it is no longer slow, or waits for a chunk that comes before those that
        // are here.
        let is_starved = download.unconsumed == 0;
        let Some(window) = &mut download.window else {
            return;
        };
        let under_way = window.asked.count();
        let waits = match is_starved {
            true => under_way > 0,
            false => held * 4 > limit || under_way * 2 > limit,
        };
        if waits {
            return;
        }
        let room = limit.saturating_sub(held + under_way).max(1);
        let mut refused = core::mem::take(&mut window.refused);
        let mut again = ChunkRanges::default();
        while again.count() < room
            && let Some(index) = refused.pop_first()
        {
            again.insert(index);
        }
        window.chunks = (room / 2).max(limit / 4).max(again.count()).max(1);
        window.asked.union(&again);
        window.refused = refused;
        if window.refused.is_empty() {
            self.withheld.remove(&(download.app, id));
        }
        self.advise(id, Verdict::Reduce, again, effects);
    }

    /// Sends the message of a window: the advice, and the chunks that are missing.
    fn advise(&mut self, id: u64, verdict: Verdict, missing: ChunkRanges, effects: &mut Effects) {
        let Some(download) = self.by_id.get_mut(&id) else {
            return;
        };
        let mut request = download.request_for(missing);
        let (Some(window), Some(at)) = (&mut download.window, download.source) else {
            return;
        };
        window.came = 0;
        window.is_withheld = false;
        request.window = Some(window.advice(verdict));
        effects.counters.windows_sent += 1;
        // This host had those that found no room: they are not under way.
        let message = match verdict == Verdict::Reduce && !request.chunks.is_empty() {
            true => Transport::Resend(request),
            false => Transport::Nack(request),
        };
        let treatment = download.treatment(ServiceId::UNICAST);
        let request_id = Some(download.request_id);
        effects.send_about(request_id, treatment, at, message);
    }
}
