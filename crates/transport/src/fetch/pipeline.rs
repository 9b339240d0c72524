//! Interests for segments over one path or several, until all segments have arrived.

mod nacks;
mod paths;
mod sending;

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{Deadline, Time};
use whimbrel_ndn_packet::{ContentType, DataRef, NackReason, Name, types};

use super::event::{FetchError, FetchEvent, FetchStats, SegmentFailure};
use super::options::{Delivery, FetchOptions, Verify};
use super::segments::Segments;
use crate::application::{FaceNumber, due};
use crate::congestion::Congestion;
use crate::ledger::{DenseLedger, Entry, Ledger, MAX_SPAN, Status};
use crate::no_route::NoRoute;
use crate::path::{Answer, Path, PathId, Paths};
use crate::rtt::RttSummary;
use crate::template::InterestTemplate;
use paths::{Chooser, Order};

/// Maximum of queued events of `log_window` and `log_rtt`; later ones are dropped.
const MAX_LOG_EVENTS: usize = 65_536;

/// The last segment, and the segment whose FinalBlockId names it; `u64::MAX` if it is the last wanted one.
#[derive(Clone, Copy)]
struct Last {
    number: u64,
    said_by: u64,
}

/// What a Data's link header says about its way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs<'a> {
    /// It has a congestion mark.
    pub(super) marked: bool,
    /// The label of its route.
    pub(super) route: Option<u64>,
    /// It came from a cache or an aggregated Interest, as routers say to Interests with a path tag.
    pub(super) intermediate: bool,
    /// The path that it took, if it answers a probe.
    pub(super) tag: Option<&'a [u8]>,
}

pub(super) struct Pipeline {
    template: InterestTemplate,
    lifetime: Duration,
    retries: Option<u32>,
    ignore_marks: bool,
    delivery: Delivery,
    max_segments: usize,
    max_bytes: usize,
    progress_interval: Duration,
    log_window: bool,
    log_rtt: bool,

    segments: Segments,
    /// Interests by their segment.
    pending: DenseLedger<()>,
    paths: Paths,
    /// The choice of paths, if there is one.
    chooser: Option<Chooser>,
    /// Losses by the order of Data.
    order: Order,
    rtt: RttSummary,
    highest_data: u64,
    last: Option<Last>,
    /// A segment that could not be fetched, while it is not known whether it exists.
    missing: Option<(u64, SegmentFailure)>,
    failure: Option<FetchError>,

    /// Received segments, in the order of arrival; only for delivery as they arrive.
    arrived: VecDeque<u64>,
    /// Size of all segments but the last, once segment 0 or another one that is not the last has
    /// arrived.
    segment_size: Option<usize>,
    /// Offset of the next segment in order.
    offset: u64,
    /// A Data's typical size, to bound the bytes in flight.
    typical_size: usize,

    started_at: Time,
    seen: Time,
    last_data_at: Time,
    next_progress: Time,
    paused_until: Time,
    congestion_nacks: u32,
    no_route: NoRoute,
    /// The reason of the last Nack, until a Data or a timeout.
    refusal: Option<NackReason>,
    stats: FetchStats,
}

impl Pipeline {
    pub(super) fn new(name: Name, options: &FetchOptions, now: Time) -> Pipeline {
        let fresh = options.must_be_fresh;
        let mut pipeline = Pipeline {
            template: InterestTemplate::new(
                &name,
                types::SEGMENT,
                fresh,
                options.lifetime,
                &options.forwarding_hint,
            ),
            lifetime: options.lifetime,
            retries: options.retries,
            ignore_marks: options.ignore_marks,
            delivery: options.delivery,
            max_segments: options.max_segments.clamp(1, MAX_SPAN as usize),
            max_bytes: options.max_bytes,
            progress_interval: options.progress_interval,
            log_window: options.log_window,
            log_rtt: options.log_rtt,
            segments: Segments::new(),
            pending: Ledger::dense(MAX_SPAN as usize),
            paths: Paths::new(
                &options.paths,
                options.window,
                options.rto,
                options.once_per_round_trip,
                now,
            ),
            chooser: None,
            order: Order::new(options.lost_after),
            rtt: RttSummary::default(),
            highest_data: 0,
            last: options.first_segments.map(|count| Last {
                number: count.get() - 1,
                said_by: u64::MAX,
            }),
            missing: None,
            failure: None,
            arrived: VecDeque::new(),
            segment_size: None,
            offset: 0,
            typical_size: 0,
            started_at: now,
            seen: now,
            last_data_at: now,
            next_progress: now + options.progress_interval,
            paused_until: now,
            congestion_nacks: 0,
            no_route: NoRoute::new(options.no_route_patience),
            refusal: None,
            stats: FetchStats::default(),
        };
        pipeline.chooser = options
            .multipath
            .map(|multipath| Chooser::new(multipath, options, &mut pipeline.paths, now));
        pipeline
    }

    pub(super) fn name(&self) -> &Name {
        self.template.prefix()
    }

    pub(super) fn stats(&self) -> FetchStats {
        FetchStats {
            elapsed: self.last_data_at.since(self.started_at),
            total_segments: self.last.map(|last| last.number.saturating_add(1)),
            window: self
                .paths
                .iter()
                .filter(|path| !path.is_resting() && !path.is_probing())
                .map(Path::window)
                .sum(),
            smoothed_rtt: self
                .paths
                .iter()
                .filter_map(|path| path.rtt().smoothed())
                .min(),
            rtt: self.rtt.range(),
            ..self.stats.clone()
        }
    }

    pub(super) const fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(super) fn take_failure(&mut self) -> Option<FetchError> {
        self.failure.take()
    }

    /// Uses the answer to discovery as segment 0.
    pub(super) fn adopt_first(&mut self, now: Time, data: &DataRef<'_>) {
        self.segments.ask_next();
        self.take_final_block(0, data);
        self.accept(now, 0, data);
    }

    /// Uses the answer to discovery as the whole content.
    pub(super) fn adopt_whole(&mut self, now: Time, data: &DataRef<'_>) {
        self.last = Some(Last {
            number: 0,
            said_by: 0,
        });
        self.segments.ask_next();
        self.accept(now, 0, data);
    }

    pub(super) fn handle_data(
        &mut self,
        now: Time,
        data: &DataRef<'_>,
        signs: Signs<'_>,
        verify: &mut Verify,
        events: &mut VecDeque<FetchEvent>,
    ) {
        let Some(number) = self.template.segment_in(data.name) else {
            self.stats.unexpected += 1;
            return;
        };
        if self.pending.get(&number).is_none() {
            self.stats.duplicates += 1;
            return;
        }
        if data.content_type == ContentType::Nack {
            self.failure = Some(FetchError::Refused {
                name: self.name().clone(),
                segment: number,
            });
            return;
        }
        if let Err(reason) = verify.check(data) {
            self.stats.rejected += 1;
            self.refuse(number, reason);
            return;
        }
        self.take_final_block(number, data);
        let Some(entry) = self.pending.take(&number) else {
            return;
        };
        self.highest_data = self.highest_data.max(number);
        self.congestion_nacks = 0;
        self.no_route.answered();
        self.refusal = None;
        self.govern(now, number, &entry, data.content.len(), signs, events);
        self.stats.skipped_retransmissions += u64::from(entry.status != Status::InFlight);
        self.accept(now, number, data);
        self.take_order(now, &entry, &signs, events);
        self.learn_path(now, &entry, &signs, events);
        self.report_progress(now, events);
    }

    /// Handles a Data that fails verification like a lost one.
    fn refuse(&mut self, number: u64, reason: String) {
        let retries = self
            .pending
            .get(&number)
            .map_or(0, |entry| entry.sent.retries);
        if self.retries.is_some_and(|limit| retries >= limit) {
            self.give_up(number, SegmentFailure::Refused(reason));
        } else {
            self.lose(number, true);
        }
    }

    fn take_final_block(&mut self, number: u64, data: &DataRef<'_>) {
        let Some(last) = data
            .final_block_id
            .and_then(|id| id.number_of(types::SEGMENT))
        else {
            return;
        };
        let is_final = |known: Last| match known.said_by {
            u64::MAX => last >= known.number,
            said_by => said_by > number,
        };
        if self.last.is_some_and(is_final) {
            return;
        }
        let highest = self.highest_data.max(number);
        if last < highest {
            let name = self.name().clone();
            self.failure = Some(FetchError::FinalBlock {
                name,
                said_by: number,
                last,
                segment: highest,
            });
            return;
        }
        self.last = Some(Last {
            number: last,
            said_by: number,
        });
        if let Some(after) = last.checked_add(1) {
            self.truncate(after);
        }
        if let Some((segment, failure)) = self.missing.take()
            && segment <= last
        {
            self.failure = Some(FetchError::Segment {
                name: self.name().clone(),
                segment,
                failure,
            });
        }
    }

    /// Informs the Interest's path of its answer.
    fn govern(
        &mut self,
        now: Time,
        number: u64,
        entry: &Entry<()>,
        bytes: usize,
        signs: Signs<'_>,
        events: &mut VecDeque<FetchEvent>,
    ) {
        let Entry { sent, status, .. } = entry;
        let rtt = (sent.transmissions == 1).then(|| now.since(sent.at));
        let path = self.paths.get(sent.path);
        let answer = Answer {
            now,
            segment: number,
            bytes,
            rtt,
            to_latest: path.is_some_and(|path| path.answers_latest(now, sent)),
            late: path.and_then(|path| path.late(now, sent, *status)),
            in_flight: *status == Status::InFlight,
            marked: signs.marked && !self.ignore_marks,
            route: signs.route,
            intermediate: signs.intermediate,
            limit: self.window_limit(path),
        };
        self.stats.marks += u64::from(signs.marked);
        self.stats.intermediate += u64::from(signs.intermediate);
        let undone = |paths: &Paths| {
            paths
                .get(sent.path)
                .map_or(0, |it| it.stats().undone_decreases)
        };
        let before = undone(&self.paths);
        let decreased = self.paths.on_answer(sent.path, &answer);
        self.stats.mark_decreases += u64::from(decreased);
        self.stats.undone_decreases += undone(&self.paths) - before;
        if let Some(rtt) = rtt {
            self.rtt.add(rtt);
            self.log_rtt(sent.path, number, rtt, events);
        }
        self.log_window_size(now, sent.path, events);
    }

    /// Returns the largest window of a path. It grows no further once a round trip takes half of an
    /// Interest's lifetime: after that time routers forget the Interest, and a recovered loss takes another
    /// round trip.
    fn window_limit(&self, path: Option<&Path>) -> f64 {
        let is_slow = |path: &&Path| path.rtt().smoothed() >= Some(self.lifetime / 2);
        match path.filter(is_slow) {
            Some(path) => path.window().min(self.max_segments as f64),
            None => self.max_segments as f64,
        }
    }

    fn log_rtt(
        &self,
        path: PathId,
        segment: u64,
        rtt: Duration,
        events: &mut VecDeque<FetchEvent>,
    ) {
        if self.log_rtt
            && events.len() < MAX_LOG_EVENTS
            && let Some(estimator) = self.paths.get(path).map(Path::rtt)
        {
            events.push_back(FetchEvent::Rtt {
                path,
                segment,
                rtt,
                smoothed: estimator.smoothed().unwrap_or(rtt),
                variation: estimator.variation(),
                timeout: estimator.timeout(),
            });
        }
    }

    fn log_window_size(&self, at: Time, path: PathId, events: &mut VecDeque<FetchEvent>) {
        if self.log_window
            && events.len() < MAX_LOG_EVENTS
            && let Some(size) = self.paths.get(path).map(Path::window)
        {
            events.push_back(FetchEvent::Window { path, at, size });
        }
    }

    /// Marks an Interest in flight as lost or void; `counted` if its retransmission counts as a
    /// retry. Returns true if it was in flight.
    fn lose(&mut self, number: u64, counted: bool) -> bool {
        let Some(path) = self.pending.get(&number).map(|entry| entry.sent.path) else {
            return false;
        };
        let was_in_flight = self.pending.lose(&number, counted);
        if was_in_flight {
            self.paths.on_removed(path, counted);
        }
        was_in_flight
    }

    /// Cancels the segments from `from` on.
    fn truncate(&mut self, from: u64) {
        for number in from.max(self.segments.base())..self.segments.next() {
            if let Some(entry) = self.pending.take(&number)
                && entry.status == Status::InFlight
            {
                self.paths.on_removed(entry.sent.path, false);
            }
        }
        self.segments.truncate(from);
    }

    fn accept(&mut self, now: Time, number: u64, data: &DataRef<'_>) {
        self.segments
            .receive(number, Bytes::copy_from_slice(data.content));
        self.typical_size = self.typical_size.max(data.content.len());
        self.last_data_at = now;
        self.stats.segments += 1;
        self.stats.bytes += data.content.len() as u64;
        if self.delivery == Delivery::AsTheyCome {
            self.arrived.push_back(number);
            let is_last = self.last.is_some_and(|last| last.number == number);
            if self.segment_size.is_none() && (number == 0 || !is_last) {
                self.segment_size = Some(data.content.len());
            }
        }
        if let Some((segment, failure)) = self.missing.take() {
            self.no_final_block(segment, failure);
        }
    }

    /// `segment` cannot be fetched, and may not exist: fatal as soon as no pending Interest can
    /// tell.
    fn no_final_block(&mut self, segment: u64, failure: SegmentFailure) {
        if self.pending.is_empty() {
            self.failure = Some(FetchError::NoFinalBlock {
                name: self.name().clone(),
                segment,
                failure,
            });
        } else {
            self.missing = Some((segment, failure));
        }
    }

    fn give_up(&mut self, number: u64, failure: SegmentFailure) {
        if self.failure.is_some() {
            return;
        }
        match self.last {
            Some(last) if number <= last.number => {
                let name = self.name().clone();
                self.failure = Some(FetchError::Segment {
                    name,
                    segment: number,
                    failure,
                });
            }
            Some(_) => {}
            None => {
                self.truncate(number);
                let earlier = self.missing.take().filter(|(segment, _)| *segment < number);
                let (segment, failure) = earlier.unwrap_or((number, failure));
                self.no_final_block(segment, failure);
            }
        }
    }

    fn record_loss(
        &mut self,
        now: Time,
        path: PathId,
        highest: u64,
        sign: Congestion,
        events: &mut VecDeque<FetchEvent>,
    ) {
        if self.paths.on_loss(path, now, highest, sign) {
            self.stats.loss_decreases += 1;
            self.log_window_size(now, path, events);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time, events: &mut VecDeque<FetchEvent>) {
        self.seen = now;
        for id in self.paths.ids() {
            self.expire(now, id, events);
        }
        self.review_paths(now, events);
        self.report_progress(now, events);
    }

    /// Times out the Interests of a path.
    fn expire(&mut self, now: Time, path: PathId, events: &mut VecDeque<FetchEvent>) {
        let Some(patience) = self.patience(path) else {
            return;
        };
        self.lose_overtaken(now, path, events);
        let mut highest = None;
        while let Some((number, sent)) = self.pending.oldest(path) {
            if sent.at + patience > now {
                break;
            }
            let number = *number;
            self.lose(number, true);
            self.stats.timeouts += 1;
            highest = highest.max(Some(number));
        }
        if let Some(highest) = highest {
            self.refusal = None;
            self.record_loss(now, path, highest, Congestion::Timeout, events);
        }
    }

    /// Returns the timeout of Interests on a path; `None` while it is down. A probe may take any
    /// path, also the slowest one.
    fn patience(&self, path: PathId) -> Option<Duration> {
        let path = self.paths.get(path).filter(|path| path.may_answer())?;
        let own = path.patience(self.lifetime);
        if !path.is_probing() {
            return Some(own);
        }
        let used = self.paths.iter().filter(|path| path.is_up());
        used.map(|path| path.patience(self.lifetime)).max()
    }

    fn report_progress(&mut self, now: Time, events: &mut VecDeque<FetchEvent>) {
        if self.progress_interval.is_zero() || now < self.next_progress {
            return;
        }
        self.next_progress = now + self.progress_interval;
        // One at a time: a program that does not poll events needs no second one.
        if !events
            .iter()
            .any(|event| matches!(event, FetchEvent::Progress(_)))
        {
            let elapsed = now.since(self.started_at);
            events.push_back(FetchEvent::Progress(FetchStats {
                elapsed,
                ..self.stats()
            }));
        }
    }

    /// Handles a face that came up or went down.
    pub(super) fn handle_face(&mut self, face: FaceNumber, up: bool) {
        for id in self.paths.ids() {
            if self.paths.get(id).is_none_or(|path| path.face() != face) {
                continue;
            }
            // Interests in flight are lost without congestion. While no path is up, they may stay
            // as they are.
            let another = self
                .paths
                .iter()
                .any(|path| path.is_up() && path.face() != face);
            while (up || another)
                && let Some(number) = self.pending.oldest(id).map(|(number, _)| *number)
            {
                self.lose(number, false);
            }
            self.paths.with(id, |path, _| path.set_up(up));
        }
    }

    /// The next segment for the program: number, offset and content.
    pub(super) fn poll_segment(&mut self) -> Result<Option<(u64, u64, Bytes)>, FetchError> {
        match self.delivery {
            Delivery::InOrder => {
                let Some((number, content)) = self.segments.take_first() else {
                    return Ok(None);
                };
                let offset = self.offset;
                self.offset += content.len() as u64;
                Ok(Some((number, offset, content)))
            }
            Delivery::AsTheyCome => self.poll_arrived(),
        }
    }

    fn poll_arrived(&mut self) -> Result<Option<(u64, u64, Bytes)>, FetchError> {
        // The only segment so far may be the last one, whose size may differ.
        let Some(expected) = self.segment_size else {
            return Ok(None);
        };
        while let Some(number) = self.arrived.pop_front() {
            let Some(content) = self.segments.take(number) else {
                continue;
            };
            let is_last = self.last.is_some_and(|last| last.number == number);
            let offset = number.checked_mul(expected as u64);
            match offset {
                Some(offset)
                    if content.len() == expected || (is_last && content.len() < expected) =>
                {
                    return Ok(Some((number, offset, content)));
                }
                _ => {
                    let (name, size) = (self.name().clone(), content.len());
                    return Err(FetchError::UnevenSegments {
                        name,
                        segment: number,
                        size,
                        expected,
                    });
                }
            }
        }
        Ok(None)
    }

    /// Returns true once the program has all segments.
    pub(super) fn is_done(&self) -> bool {
        self.failure.is_none()
            && self
                .last
                .is_some_and(|last| self.segments.base() > last.number)
            && self.pending.is_empty()
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        let overdue = |id: PathId| {
            let (_, sent) = self.pending.oldest(id)?;
            let at = sent.at + self.patience(id)?;
            let overtaken = self.overtaken_due(id, sent);
            let at = overtaken.map_or(at, |due| due.min(at));
            Some(Deadline::new(at, "a segment is overdue"))
        };
        let lost = self.paths.ids().map(overdue).fold(None, Deadline::earlier);
        let resume = if self.pending.len() == self.pending.in_flight() {
            None
        } else {
            due(self.paused_until, self.seen, "congestion is over")
        };
        let held = self.paths.held_until();
        let held = held.and_then(|at| due(at, self.seen, "a path may send again"));
        let lost = Deadline::earlier(lost, held);
        let review = self.poll_review();
        let lost = Deadline::earlier(lost, review);
        let progress = (!self.progress_interval.is_zero())
            .then(|| Deadline::new(self.next_progress, "progress is due"));
        Deadline::earlier(Deadline::earlier(lost, resume), progress)
    }
}
