//! One download: what has arrived, what is missing, and what may be handed over.

use std::collections::BTreeSet;

use core::ops::Range;
use core::time::Duration;
use whimbrel_content::{Assembly, ChunkSize};
use whimbrel_core::{Guid, Time};
use whimbrel_link::Pool;

use super::super::App;
use super::super::effects::{Located, Treatment, Uplink};
use super::super::status::DownloadStatus;
use super::Provenance;
use super::hand_over::HandOver;
use super::order::ArrivalOrder;
use super::window::{QUIET, ReceiveWindow};
use crate::local::{Delivery, Get, MAX_MISSING, MissingParts, TransferState};
use crate::wire::{
    ChunkRanges, EXACT_SIZE, Extensions, MAX_RANGES, Reliability, Request, ServiceId, WindowAdvice,
    WindowVerdict,
};

/// Pause before a request that nobody has answered also goes to the next provider, as the "Connection
/// Attempt Delay" of RFC 8305, section 5, of which the default is 250 ms and the most 2 s: a request
/// here crosses several hops, and an answer is a whole chunk.
const HEDGE_PAUSE: Duration = Duration::from_millis(500);
/// No such request goes out later than this after the first one, which bounds their number to three.
/// Sources take a request within this time for a repetition, and send nothing twice.
const HEDGE_UNTIL: Duration = Duration::from_millis(1500);
/// Requests that brought nothing but a repeated answer that a node does not serve the content, before
/// it is given up.
const MAX_UNSERVED: u32 = 2;
/// Nodes that do not serve a content are told apart up to this number: that of its providers.
const MAX_PROVIDERS: usize = 64;
/// A link with a shorter round trip is not so slow that a chunk takes seconds: the handshake alone
/// would take longer.
const SLOW_ROUND_TRIP: Duration = Duration::from_millis(150);
/// A first request waits at most so long for the rate of a new link.
const MAX_MEASURING: Duration = Duration::from_secs(5);
/// Longest pause between two NACKs or requests.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// What a source may ask a receiver to wait for a missing chunk.
const ASKED_TIMEOUT: Range<u32> = 100..3_600_000;
/// After the last chunk of a content that is not sent again, those that it may have overtaken are awaited
/// this long at least.
const OVERTAKEN: Duration = Duration::from_millis(250);

/// How long a chunk may be missing before its source is told, and how far that goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct NackTimer {
    timeout: Duration,
    is_chosen: bool,
    // The routers with copies that a request may pass, as the source says.
    routers: Option<u8>,
}

/// What was asked for a download, and when.
pub(super) struct Asking {
    started: Time,
    // Since when the first request waits for the rate of a new link.
    awaiting_since: Option<Time>,
    // When the first request left, or was to leave, over a link that responds.
    pub(super) asked_at: Option<Time>,
    // Requests since the last chunk, after a time without one.
    pub(super) attempts: u32,
    // Requests to further providers, sent while the first one had time to answer.
    pub(super) hedges: u32,
    // True if the source sent its latest chunks for another request, so that none is under way.
    pub(super) again: bool,
    pub(super) last_resend: Option<Time>,
}

/// The chunks that came for a download.
pub(super) struct Arrivals {
    pub(super) last: Option<Time>,
    pub(super) order: ArrivalOrder,
    // Smoothed time between two chunks: on a slow link, a pause is no reason to ask again.
    pub(super) interval: Duration,
}

/// What nodes have said, since the last chunk, of why none comes.
#[derive(Default)]
pub(super) struct SilenceReason {
    // The router that keeps a request because it reaches no source, and since when.
    pub(super) kept_by: Option<(Guid, Time)>,
    // Since when no holder is known, though a part has come.
    pub(super) absent_since: Option<Time>,
    // Who sent the latest false chunk that carried the id of a request, and how many came since the
    // last true one.
    false_chunks: Option<(Guid, u64)>,
}

/// Nodes that do not serve a content.
#[derive(Default)]
pub(super) struct Refusals {
    // Requests answered by nodes that had said before that they do not serve it; whether the latest
    // one was; and those nodes.
    count: u32,
    is_answered: bool,
    by: BTreeSet<Guid>,
}

impl Refusals {
    /// A request leaves.
    pub(super) fn note_asked(&mut self) {
        self.is_answered = false;
    }

    /// Notes a refusal. Returns true for that of a node that has not said so before.
    pub(super) fn note(&mut self, from: Guid) -> bool {
        let is_new = self.by.len() < MAX_PROVIDERS && self.by.insert(from);
        if !is_new {
            self.count += u32::from(!core::mem::replace(&mut self.is_answered, true));
        }
        is_new
    }

    /// Returns true if nodes have repeated often enough that they do not serve it.
    pub(super) fn are_final(&self) -> bool {
        self.count >= MAX_UNSERVED
    }
}

/// How chunks are asked for and repaired.
pub(super) struct TransferTerms {
    // Chunks are to have this size whatever the path affords.
    is_exact: bool,
    reliability: Reliability,
    delivery: Delivery,
    // With whether the program has set it: what the source asks for does not count then.
    nack_timer: NackTimer,
}

pub(super) struct Download {
    pub(super) app: App,
    pub(super) request: u32,
    // The id that its requests carry in the network.
    pub(super) request_id: u64,
    pub(super) content: Guid,
    pub(super) provenance: Provenance,
    pub(super) chunk_size: ChunkSize,
    pub(super) terms: TransferTerms,
    pub(super) assembly: Assembly,
    pub(super) hand_over: HandOver,
    // The room that its chunks hold until its program has them, and the room of one chunk, in
    // packets.
    pub(super) share: Pool,
    pub(super) chunk_packets: u64,
    // What its source may send.
    pub(super) window: ReceiveWindow,
    pub(super) source: Option<Located>,
    pub(super) state: TransferState,
    pub(super) asking: Asking,
    pub(super) arrivals: Arrivals,
    pub(super) silence: SilenceReason,
    pub(super) refusals: Refusals,
}

impl Download {
    pub(super) fn new(
        now: Time,
        app: App,
        get: &Get,
        assembly: Assembly,
        chunk_size: ChunkSize,
        nack_timeout: Duration,
        share: Pool,
    ) -> Download {
        let hand_over = HandOver::new(get, assembly.deliverable().end);
        let nack_timer = NackTimer {
            timeout: nack_timeout,
            is_chosen: get.options.nack_timeout_ms > 0,
            routers: None,
        };
        Download {
            app,
            request: get.request,
            request_id: 0,
            content: get.content,
            provenance: Provenance::Holder,
            chunk_size,
            terms: TransferTerms {
                is_exact: get.options.chunk_log2 & EXACT_SIZE != 0,
                reliability: get.options.reliability.unwrap_or_default(),
                delivery: get.options.delivery,
                nack_timer,
            },
            assembly,
            hand_over,
            share,
            chunk_packets: 1,
            window: ReceiveWindow::default(),
            source: None,
            state: TransferState::Requested,
            asking: Asking {
                started: now,
                awaiting_since: None,
                asked_at: None,
                attempts: 0,
                hedges: 0,
                again: false,
                last_resend: None,
            },
            arrivals: Arrivals {
                last: None,
                order: ArrivalOrder::new(nack_timeout),
                interval: Duration::ZERO,
            },
            silence: SilenceReason::default(),
            refusals: Refusals::default(),
        }
    }

    /// Returns the inbound peer that is asked, in place of the network.
    pub(super) fn caller(&self) -> Option<Guid> {
        match self.provenance {
            Provenance::Caller(caller) => Some(caller),
            _ => None,
        }
    }

    /// Returns true if its chunks are sent without a request.
    pub(super) fn is_unrequested(&self) -> bool {
        matches!(self.provenance, Provenance::Sender(_))
    }

    /// Returns a request for these chunks.
    pub(super) fn request_for(&self, chunks: ChunkRanges) -> Request {
        Request {
            content: self.content,
            chunk_log2: self.chunk_size.code(),
            is_exact: self.terms.is_exact,
            window: self.window_advice(),
            reliability: self.terms.reliability,
            chunks,
        }
    }

    /// Returns how its messages are to be treated. They go to one source, however many serve the content.
    pub(super) fn treatment(&self, service: ServiceId) -> Treatment {
        Treatment {
            nack_routers: self.terms.nack_timer.routers,
            ..Treatment::new(self.terms.delivery.to_one(), service)
        }
    }

    /// Follows what the source has chosen for a chunk that answers a request.
    pub(super) fn follow_source(&mut self, reliability: Reliability, extensions: &Extensions) {
        self.terms.reliability = reliability;
        self.terms.nack_timer.routers = extensions.nack_routers;
        if let Some(ms) = extensions
            .nack_timeout_ms
            .filter(|_| !self.terms.nack_timer.is_chosen)
        {
            let ms = ms.clamp(ASKED_TIMEOUT.start, ASKED_TIMEOUT.end);
            self.terms.nack_timer.timeout = Duration::from_millis(ms.into());
        }
    }

    /// Returns true if nothing that is missing is sent again.
    pub(super) fn is_sent_once(&self) -> bool {
        self.terms.reliability == Reliability::DontCare
    }

    /// Returns true once the chunk has come that its source sends last.
    pub(super) fn has_come_to_the_end(&self) -> bool {
        let Some(len) = self.assembly.expected_len() else {
            return false;
        };
        // The last one proves the length, and is sent first.
        let before_last = self.chunk_size.count(len).saturating_sub(2);
        let range = self.chunk_size.range(before_last, len);
        let is_missing = |range: Range<u64>| {
            let mut gaps = self.assembly.missing();
            gaps.any(|gap| gap.start < range.end && range.start < gap.end)
        };
        self.arrivals.last.is_some() && range.is_some_and(|range| !is_missing(range))
    }

    /// Returns what is missing, for its program.
    pub(super) fn missing_parts(&self) -> MissingParts {
        let content_len = self.assembly.confirmed_len();
        let gaps = || self.assembly.missing();
        let len = |gap: Range<u64>| gap.end.saturating_sub(gap.start);
        MissingParts {
            content_len,
            bytes: content_len.map_or(0, |_| gaps().map(len).sum()),
            ranges: gaps().take(MAX_MISSING).collect(),
        }
    }

    /// Returns the chunks to ask for: all that are missing, as far as one message can name them.
    pub(super) fn missing(&self) -> ChunkRanges {
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
        let mut last_end = None;
        for range in self.assembly.missing_ranges(self.chunk_size) {
            ranges += usize::from(last_end != Some(range.start));
            if ranges > MAX_RANGES {
                break;
            }
            missing.insert_range(range.start as u32..u32::try_from(range.end).unwrap_or(u32::MAX));
            last_end = Some(range.end);
        }
        missing
    }

    /// Returns true if the program, and not the network, holds the download up.
    pub(super) fn program_is_slow(&self) -> bool {
        let waits = self.window.waits_for_program(self.hand_over.waiting());
        self.hand_over.is_full() || waits && !self.hand_over.is_idle()
    }

    /// Returns the pause without a chunk after which missing chunks are requested again.
    pub(super) fn patience(&self) -> Duration {
        if self.is_sent_once() && self.has_come_to_the_end() {
            return OVERTAKEN
                .max(self.arrivals.interval * 4)
                .min(self.terms.nack_timer.timeout);
        }
        let slow = self
            .terms
            .nack_timer
            .timeout
            .max(self.arrivals.interval * 4);
        slow.saturating_mul(1 << self.asking.attempts.min(5))
            .min(MAX_PAUSE.max(slow))
    }

    /// Returns when to look again, while the first request should wait for the rate of a new link: who
    /// sends over it makes the chunks as small as the link asks for, if it knows the rate before the
    /// request. A first chunk of 1 MiB at 64 kbit/s else takes two minutes, and is lost whole if the
    /// program is killed.
    pub(super) fn awaits_rate(&mut self, now: Time, uplink: &Uplink) -> Option<Time> {
        let may_be_slow = uplink.round_trip.is_none_or(|it| it >= SLOW_ROUND_TRIP);
        if self.asking.asked_at.is_some() || !uplink.is_up || !uplink.is_measuring || !may_be_slow {
            return None;
        }
        let waited = now.since(*self.asking.awaiting_since.get_or_insert(now));
        let look = (waited / 4).clamp(Duration::from_millis(1), Duration::from_millis(50));
        (waited < MAX_MEASURING).then_some(now + look)
    }

    /// Returns when the request goes to one more provider beside those that were asked; `None` if it
    /// does not.
    pub(super) fn next_hedge(&self, now: Time, round_trip: Option<Duration>) -> Option<Time> {
        // A link that takes longer alone delays every provider.
        let pause = HEDGE_PAUSE.max(round_trip.unwrap_or_default() * 2);
        let at = now + pause;
        self.is_hedged_at(at).then_some(at)
    }

    /// Returns true if the timer that ends at `now` is that of such a request.
    pub(super) fn is_hedged_at(&self, now: Time) -> bool {
        let is_open =
            self.arrivals.last.is_none() && self.source.is_none() && self.asking.attempts == 0;
        // A repeated Resend would bring everything twice.
        let is_open = is_open && !self.asking.again && !self.is_sent_once();
        let asked_at = self.asking.asked_at.unwrap_or(self.asking.started);
        let is_in_time =
            now <= asked_at + HEDGE_UNTIL && HEDGE_PAUSE < self.terms.nack_timer.timeout;
        is_open && self.silence.kept_by.is_none() && is_in_time
    }

    /// Returns the window that a request repeats. What is not requested, or not sent again, has none.
    pub(super) fn window_advice(&self) -> Option<WindowAdvice> {
        let has_one = !self.is_unrequested() && !self.is_sent_once();
        has_one.then(|| self.window.advice(WindowVerdict::Maintain))
    }

    /// Returns the first missing chunks that are not under way, at most `count`.
    pub(super) fn first_missing(&self, count: u64) -> ChunkRanges {
        let under_way = self.window.metered.as_ref().map(|it| &it.under_way);
        let mut missing = ChunkRanges::default();
        let indices = self.assembly.missing_chunks(self.chunk_size);
        let indices = indices.map(|index| index as u32);
        let idle = indices.filter(|index| !under_way.is_some_and(|it| it.contains(*index)));
        idle.take(count as usize)
            .for_each(|index| missing.insert(index));
        missing
    }

    /// Returns the chunks to ask for when nothing comes: all that are missing, or as many as there
    /// is room for, which then are under way.
    pub(super) fn wanted(&mut self) -> ChunkRanges {
        self.window.forget_under_way();
        self.arrivals.order.forget();
        let Some(most) = self.window.metered.as_ref().map(|it| it.most) else {
            return self.missing();
        };
        let wanted = self.first_missing(most.saturating_sub(self.hand_over.waiting()).max(1));
        if let Some(metered) = &mut self.window.metered {
            metered.under_way = wanted.clone();
        }
        wanted
    }

    /// Returns the chunks that are to come: all that are missing, or those that there is room for.
    pub(super) fn awaited(&self) -> ChunkRanges {
        match &self.window.metered {
            Some(metered) => metered.under_way.clone(),
            None => self.missing(),
        }
    }

    /// Notes the place of a chunk that came, but for the last one, which is sent first.
    pub(super) fn note_order(&mut self, now: Time, index: u32) {
        let len = self.assembly.expected_len();
        let count = len.map_or(u64::MAX, |len| self.chunk_size.count(len));
        if u64::from(index) + 1 < count {
            self.arrivals.order.note(now, index);
        }
    }

    pub(super) fn missing_count(&self) -> u64 {
        if self.assembly.expected_len().is_none() {
            return u64::MAX >> 1;
        }
        let gaps = self.assembly.missing();
        let bytes: u64 = gaps.map(|gap| gap.end.saturating_sub(gap.start)).sum();
        bytes.div_ceil(self.chunk_size.bytes())
    }

    /// Returns true if the source may have to stop before it has sent everything.
    pub(super) fn needs_advice(&self) -> bool {
        let window = &self.window;
        window.metered.is_none() && self.missing_count().saturating_add(window.came) > window.chunks
    }

    /// Returns true if its program has as much as it takes at once, and leaves the rest waiting.
    pub(super) fn has_backlog(&self) -> bool {
        self.hand_over.is_full() && !self.hand_over.is_empty()
    }

    /// Returns how long nothing comes before the source is told of the window again: chunks that were lost on
    /// the way may have used it up. `None` if it was told, or need not be.
    pub(super) fn quiet_time(&self) -> Option<Duration> {
        let window = self.window_advice().filter(|_| self.source.is_some());
        let is_due = window.is_some() && !self.window.is_repeated && self.needs_advice();
        let quiet = QUIET.max(self.arrivals.interval * 4);
        (is_due && quiet < self.patience()).then_some(quiet)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.assembly.is_complete() && self.hand_over.is_empty()
    }

    /// Follows a source whose chunks are smaller than requested, because the path affords no larger
    /// ones: the rest is requested in the same size, and the program takes as many more at a time.
    pub(super) fn follow_size(&mut self, size: ChunkSize, index: u32) {
        if size >= self.chunk_size {
            return;
        }
        let parts = self.chunk_size.code() - size.code();
        self.window.divide(parts, index);
        self.arrivals.order.forget();
        self.hand_over.divide(parts);
        self.chunk_packets = (self.chunk_packets >> parts).max(1);
        self.arrivals.interval /= 1 << parts;
        self.chunk_size = size;
    }

    /// Notes that its source is alive.
    pub(super) fn note_arrival(&mut self, now: Time) {
        if let Some(last) = self.arrivals.last {
            // The length of an outage says nothing about the link.
            let gap = now
                .since(last)
                .min(MAX_PAUSE.max(self.arrivals.interval * 2));
            self.arrivals.interval = (self.arrivals.interval * 3 + gap) / 4;
        }
        self.arrivals.last = Some(now);
        self.asking.attempts = 0;
        self.asking.again = false;
        self.refusals.count = 0;
        self.silence = SilenceReason::default();
    }

    /// Notes that a node that knows of its request has sent a false chunk.
    pub(super) fn note_false(&mut self, source: Guid) {
        let before = self.silence.false_chunks.map_or(0, |(_, count)| count);
        self.silence.false_chunks = Some((source, before.saturating_add(1)));
    }

    pub(super) fn status(&self, now: Time) -> DownloadStatus {
        let seconds = |since: Time| now.since(since).as_secs_f64();
        DownloadStatus {
            content: self.content,
            state: self.state,
            idle_s: seconds(self.arrivals.last.unwrap_or(self.asking.started)),
            kept_by: self.silence.kept_by.map(|(router, _)| router),
            kept_s: self.silence.kept_by.map(|(_, since)| seconds(since)),
            absent_s: self.silence.absent_since.map(seconds),
            false_from: self.silence.false_chunks.map(|(source, _)| source),
            false_chunks: self.silence.false_chunks.map_or(0, |(_, count)| count),
        }
    }
}
