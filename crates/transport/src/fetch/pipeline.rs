//! Interests for segments under a window, until all of them are there.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{Deadline, RttEstimator, SeededRng, Time};
use whimbrel_ndn_packet::{ContentType, DataRef, InterestRef, NackReason, Name, types};

use super::event::{FetchError, FetchEvent, FetchStats, SegmentFailure};
use super::options::{Delivery, FetchOptions, Verify};
use super::segments::{SegmentState, Segments};
use crate::application::due;
use crate::rtt::RttSummary;
use crate::template::InterestTemplate;
use crate::window::Window;

/// Events of `log_window` and `log_rtt` that wait at most; the program that does not take them
/// loses later ones.
const MOST_LOG_EVENTS: usize = 65_536;
/// Longest pause of repeated Interests after Nacks for congestion under a fixed window.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The last segment, and the segment whose FinalBlockId says so.
#[derive(Clone, Copy)]
struct Last {
    number: u64,
    said_by: u64,
}

pub(super) struct Pipeline {
    template: InterestTemplate,
    lifetime: Duration,
    retries: Option<u32>,
    ignore_marks: bool,
    once_per_round_trip: bool,
    delivery: Delivery,
    most_segments: usize,
    most_bytes: usize,
    progress_interval: Duration,
    log_window: bool,
    log_rtt: bool,

    segments: Segments,
    window: Window,
    rto: RttEstimator,
    rtt: RttSummary,
    /// To be sent again, in this order; those that have come meanwhile are skipped.
    again: VecDeque<u64>,
    /// Highest segment sent at the last decrease: nothing up to it decreases the window again.
    recovery_point: Option<u64>,
    highest_data: u64,
    last: Option<Last>,
    /// A segment that could not be had, while it is not known whether it exists.
    missing: Option<(u64, SegmentFailure)>,
    failure: Option<FetchError>,

    /// Received, in the order of arrival; only for delivery as they come.
    arrived: VecDeque<u64>,
    /// Size of all segments but the last, once segment 0 or another one that is not the last has
    /// come.
    segment_size: Option<usize>,
    /// Where the next segment in order begins.
    offset: u64,
    /// A Data's size, to keep the bytes under way within bounds.
    typical_size: usize,

    started_at: Time,
    seen: Time,
    last_data_at: Time,
    next_progress: Time,
    paused_until: Time,
    congestion_nacks: u32,
    stats: FetchStats,
}

impl Pipeline {
    pub(super) fn new(name: Name, options: &FetchOptions, now: Time) -> Pipeline {
        let fresh = options.must_be_fresh;
        Pipeline {
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
            once_per_round_trip: options.once_per_round_trip,
            delivery: options.delivery,
            most_segments: options.most_segments.max(1),
            most_bytes: options.most_bytes,
            progress_interval: options.progress_interval,
            log_window: options.log_window,
            log_rtt: options.log_rtt,
            segments: Segments::new(),
            window: Window::new(options.window, now),
            rto: RttEstimator::with_options(options.rto),
            rtt: RttSummary::default(),
            again: VecDeque::new(),
            recovery_point: None,
            highest_data: 0,
            last: None,
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
            stats: FetchStats::default(),
        }
    }

    pub(super) fn name(&self) -> &Name {
        self.template.prefix()
    }

    pub(super) fn stats(&self) -> FetchStats {
        FetchStats {
            elapsed: self.last_data_at.since(self.started_at),
            total_segments: self.last.map(|last| last.number.saturating_add(1)),
            window: self.window.size(),
            smoothed_rtt: self.rto.smoothed(),
            rtt: self.rtt.range(),
            ..self.stats.clone()
        }
    }

    pub(super) fn take_failure(&mut self) -> Option<FetchError> {
        self.failure.take()
    }

    /// The answer to discovery was segment 0.
    pub(super) fn adopt_first(&mut self, now: Time, data: &DataRef<'_>) {
        self.segments.send_next(now, 0);
        self.segments.enqueue(0, true);
        self.take_final_block(0, data);
        self.accept(now, 0, data);
    }

    /// The answer to discovery was all of the content.
    pub(super) fn adopt_whole(&mut self, now: Time, data: &DataRef<'_>) {
        self.last = Some(Last {
            number: 0,
            said_by: 0,
        });
        self.segments.send_next(now, 0);
        self.segments.enqueue(0, true);
        self.accept(now, 0, data);
    }

    pub(super) fn handle_data(
        &mut self,
        now: Time,
        data: &DataRef<'_>,
        marked: bool,
        verify: &mut Verify,
        events: &mut VecDeque<FetchEvent>,
    ) {
        let Some(number) = self.template.segment_in(data.name) else {
            self.stats.unexpected += 1;
            return;
        };
        if !self.segments.is_awaited(number) {
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
        if !self.segments.is_awaited(number) {
            return;
        }
        self.highest_data = self.highest_data.max(number);
        self.congestion_nacks = 0;
        self.measure(now, number, events);
        self.adjust(now, marked, events);
        self.accept(now, number, data);
        self.report_progress(now, events);
    }

    /// A Data that is not to be believed is as good as none.
    fn refuse(&mut self, number: u64, reason: String) {
        let retries = self
            .segments
            .get(number)
            .map_or(0, |segment| segment.retries);
        if self.retries.is_some_and(|limit| retries >= limit) {
            self.give_up(number, SegmentFailure::Refused(reason));
        } else if self.segments.enqueue(number, false) {
            self.again.push_back(number);
        }
    }

    fn take_final_block(&mut self, number: u64, data: &DataRef<'_>) {
        let Some(last) = data
            .final_block_id
            .and_then(|id| id.number_of(types::SEGMENT))
        else {
            return;
        };
        if self.last.is_some_and(|known| known.said_by > number) {
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
            self.segments.truncate(after);
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

    fn measure(&mut self, now: Time, number: u64, events: &mut VecDeque<FetchEvent>) {
        let Some(segment) = self
            .segments
            .get(number)
            .filter(|segment| !segment.sent_again)
        else {
            return;
        };
        let rtt = now.since(segment.sent_at);
        let under_way = self.segments.under_way();
        let others = under_way - usize::from(segment.state == SegmentState::UnderWay);
        self.rto.sample_of(rtt, others.div_ceil(2).max(1) as u64);
        self.rtt.add(rtt);
        self.window
            .sample(now, rtt, number, self.segments.next().saturating_sub(1));
        if self.log_rtt && events.len() < MOST_LOG_EVENTS {
            events.push_back(FetchEvent::Rtt {
                segment: number,
                rtt,
                smoothed: self.rto.smoothed().unwrap_or(rtt),
                variation: self.rto.variation(),
                timeout: self.rto.timeout(),
            });
        }
    }

    fn adjust(&mut self, now: Time, marked: bool, events: &mut VecDeque<FetchEvent>) {
        self.stats.marks += u64::from(marked);
        if marked && !self.ignore_marks {
            if !self.once_per_round_trip
                || self
                    .recovery_point
                    .is_none_or(|point| self.highest_data > point)
            {
                self.recovery_point = self.segments.next().checked_sub(1);
                self.window.decrease(now);
                self.stats.mark_decreases += 1;
            }
        } else if self.segments.under_way() as f64 * 2.0 >= self.window.size() {
            self.window
                .increase(now, self.rto.smoothed(), self.most_segments as f64);
        }
        // Else something other than the window holds the fetch back, and nothing tells whether more
        // would fit.
        self.log_window_size(now, events);
    }

    fn log_window_size(&self, now: Time, events: &mut VecDeque<FetchEvent>) {
        if self.log_window && events.len() < MOST_LOG_EVENTS {
            events.push_back(FetchEvent::Window {
                at: now,
                size: self.window.size(),
            });
        }
    }

    fn accept(&mut self, now: Time, number: u64, data: &DataRef<'_>) {
        if let Some(SegmentState::Queued { .. }) =
            self.segments.get(number).map(|segment| segment.state)
            && self.stats.interests > 0
        {
            self.stats.skipped_retransmissions += 1;
        }
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

    /// `segment` cannot be had, and nothing says whether it exists: fatal as soon as nothing else
    /// can tell.
    fn no_final_block(&mut self, segment: u64, failure: SegmentFailure) {
        if self.segments.outstanding() == 0 {
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
                self.segments.truncate(number);
                let earlier = self.missing.take().filter(|(segment, _)| *segment < number);
                let (segment, failure) = earlier.unwrap_or((number, failure));
                self.no_final_block(segment, failure);
            }
        }
    }

    pub(super) fn handle_nack(
        &mut self,
        now: Time,
        reason: NackReason,
        interest: &InterestRef<'_>,
        events: &mut VecDeque<FetchEvent>,
    ) {
        let number = self.template.segment_in(interest.name);
        // The nonce tells a Nack for the last transmission from one for an earlier one.
        let current = number
            .and_then(|number| self.segments.get(number))
            .is_some_and(|segment| {
                segment.state == SegmentState::UnderWay
                    && interest.nonce == Some(segment.nonce.to_be_bytes())
            });
        let Some(number) = number.filter(|_| current) else {
            self.stats.unexpected += 1;
            return;
        };
        self.stats.nacks += 1;
        match reason {
            // The other copy is under way; if it is not, the time-out will tell.
            NackReason::Duplicate => {}
            NackReason::Congestion => {
                self.segments.enqueue(number, false);
                self.again.push_back(number);
                if self.window.is_fixed() {
                    let pause = Duration::from_millis(1 << self.congestion_nacks.min(14))
                        .min(LONGEST_PAUSE);
                    self.congestion_nacks += 1;
                    self.paused_until = now + pause;
                }
                self.record_loss(now, number, events);
            }
            reason => self.give_up(number, SegmentFailure::Nack(reason)),
        }
    }

    fn record_loss(&mut self, now: Time, number: u64, events: &mut VecDeque<FetchEvent>) {
        if self.window.is_fixed()
            || (self.once_per_round_trip
                && self.recovery_point.is_some_and(|point| number <= point))
        {
            return;
        }
        self.recovery_point = self.segments.next().checked_sub(1);
        self.window.decrease(now);
        self.rto.back_off();
        self.stats.loss_decreases += 1;
        self.log_window_size(now, events);
    }

    /// How long an Interest is waited for: the Interest itself is gone after its lifetime.
    fn patience(&self) -> Duration {
        if self.window.is_fixed() {
            self.lifetime
        } else {
            self.rto.timeout().min(self.lifetime)
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time, events: &mut VecDeque<FetchEvent>) {
        self.seen = now;
        let patience = self.patience();
        let mut highest = None;
        while let Some((number, sent_at)) = self.segments.oldest_under_way() {
            if sent_at + patience > now {
                break;
            }
            self.segments.enqueue(number, false);
            self.again.push_back(number);
            self.stats.timeouts += 1;
            highest = highest.max(Some(number));
        }
        if let Some(highest) = highest {
            self.record_loss(now, highest, events);
        }
        self.report_progress(now, events);
    }

    fn report_progress(&mut self, now: Time, events: &mut VecDeque<FetchEvent>) {
        if self.progress_interval.is_zero() || now < self.next_progress {
            return;
        }
        self.next_progress = now + self.progress_interval;
        // One at a time: a program that does not take events needs no second one.
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

    /// What was under way is lost, which is nobody's fault.
    pub(super) fn face_came_up(&mut self) {
        if self.stats.interests == 0 {
            return;
        }
        while let Some((number, _)) = self.segments.oldest_under_way() {
            self.segments.enqueue(number, true);
            self.again.push_back(number);
        }
        self.window.restart();
        self.recovery_point = None;
    }

    pub(super) fn poll_interest(
        &mut self,
        now: Time,
        rng: &mut SeededRng,
        paused: bool,
    ) -> Option<Bytes> {
        if self.failure.is_some() || self.segments.under_way() >= self.window.size() as usize {
            return None;
        }
        let nonce = rng.next_word() as u32;
        while now >= self.paused_until
            && let Some(number) = self.again.pop_front()
        {
            let Some(segment) = self.segments.get(number) else {
                continue;
            };
            let SegmentState::Queued { free } = segment.state else {
                continue;
            };
            let retries = segment.retries;
            if !free && self.retries.is_some_and(|limit| retries >= limit) {
                self.give_up(number, SegmentFailure::NoAnswer(retries));
                if self.failure.is_some() {
                    return None;
                }
                continue;
            }
            self.segments.send_again(number, now, nonce);
            self.stats.retransmissions += 1;
            self.stats.interests += 1;
            return Some(self.template.interest(number, nonce));
        }
        if paused || !self.may_send_next() {
            return None;
        }
        if self.stats.interests == 0 {
            (self.started_at, self.last_data_at) = (now, now);
        }
        let number = self.segments.send_next(now, nonce);
        self.stats.interests += 1;
        Some(self.template.interest(number, nonce))
    }

    fn may_send_next(&self) -> bool {
        let next = self.segments.next();
        let bytes = self.segments.buffered_bytes()
            + (self.segments.outstanding() + 1).saturating_mul(self.typical_size);
        self.missing.is_none()
            && self.last.is_none_or(|last| next <= last.number)
            && next < u64::MAX
            && self.segments.len() < self.most_segments
            && (bytes <= self.most_bytes || self.segments.len() == 0)
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
        // The only segment so far may be the last one, whose size says nothing of the others'.
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

    /// True once the program has all segments.
    pub(super) fn is_done(&self) -> bool {
        self.failure.is_none()
            && self
                .last
                .is_some_and(|last| self.segments.base() > last.number)
            && self.segments.outstanding() == 0
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        let patience = self.patience();
        let lost = self
            .segments
            .oldest_under_way()
            .map(|(_, sent_at)| Deadline::new(sent_at + patience, "a segment is overdue"));
        let resume = if self.again.is_empty() {
            None
        } else {
            due(self.paused_until, self.seen, "congestion is over")
        };
        let progress = (!self.progress_interval.is_zero())
            .then(|| Deadline::new(self.next_progress, "progress is to be told"));
        Deadline::earlier(Deadline::earlier(lost, resume), progress)
    }
}
