//! The sending half: the queue, the chunks in transfer, and the next frame.

mod chunks;
mod limits;
mod report;
mod thin;
mod train;
mod transmit;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_core::{Deadline, RttEstimator, RttOptions, Time, TimerQueue};

use super::config::{HopConfig, MIN_MTU, Pacing};
use super::congestion::{Law, law};
use super::ecn::Marks;
use super::event::HopEvent;
use super::feedback::Feedback;
use super::lanes::{Lane, Sendable, Waiting};
use super::outbound::{Fate, OutboundChunk, Parcel, Room};
use super::pacing::Pacer;
use super::secure::Peer;
use super::stats::HopStats;
use crate::path_mtu::PathMtu;
use report::forget_question;
use thin::FirstRate;
use train::Train;

/// What both neighbours can do.
#[derive(Clone, Copy, Debug)]
struct Limits {
    frame: usize,
    chunk: usize,
    chunks: usize,
    memory: u64,
}

pub(super) struct Sender {
    queue: Waiting,
    active: BTreeMap<u64, OutboundChunk>,
    // Ids on the wire are the low halves of these.
    next_id: u64,
    session_first: u64,
    // Ids in `active` with a CSYN due, and with packets to send.
    csyn_due: BTreeSet<u64>,
    sendable: Sendable,
    probe_due: bool,
    // W_ostd and W_ad, in packets, and the neighbour's clock when it stated W_ad.
    outstanding: u32,
    // The packets of urgent chunks in W_ostd.
    outstanding_urgent: u32,
    window: u32,
    window_at: u64,
    unsent_bytes: usize,
    refused: usize,
    ask_again: Option<(Time, u32)>,
    tails: TimerQueue<u64>,
    feedback: Feedback,
    law: Box<dyn Law>,
    first_rate: FirstRate,
    train: Train,
    marks: Marks,
    // The last state reported to the owner.
    sends_ecn: bool,
    rtt: RttEstimator,
    pacer: Pacer,
    limits: Limits,
    // Bytes of a DATA frame beyond its payload.
    overhead: usize,
    path: PathMtu,
    // The newest probes of the path MTU: number and bytes.
    path_probes: VecDeque<(u32, usize)>,
    small: u16,
    // Every chunk that is not small waits for a grant, as in the paper ([MFTP] section 3.4.1).
    asks_for_room: bool,
    // The start of the timeout, and the number of timeouts in a row.
    timer_from: Time,
    attempts: u32,
    longest_retry: Duration,
    suspended: bool,
    last_data: u64,
    is_acknowledged: bool,
}

impl Sender {
    /// True if the neighbour has ever acknowledged anything.
    pub(super) const fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    pub(super) fn new(config: &HopConfig, first_id: u32, now: Time) -> Sender {
        Sender {
            queue: Waiting::new(),
            active: BTreeMap::new(),
            next_id: 1 << 32 | u64::from(first_id),
            session_first: 1 << 32 | u64::from(first_id),
            csyn_due: BTreeSet::new(),
            sendable: Sendable::new(),
            probe_due: false,
            outstanding: 0,
            outstanding_urgent: 0,
            window: 0,
            window_at: 0,
            unsent_bytes: 0,
            refused: 0,
            ask_again: None,
            tails: TimerQueue::new(),
            feedback: Feedback::new(now),
            law: law(
                config.pacing,
                now,
                limits::INITIAL_PACKETS * config.mtu as u64,
            ),
            first_rate: FirstRate::default(),
            train: Train::default(),
            marks: Marks::new(),
            sends_ecn: false,
            rtt: RttEstimator::with_options(RttOptions {
                granularity: limits::TIMEOUT_GRANULARITY,
                ..RttOptions::rfc6298(
                    config.initial_timeout,
                    config.min_timeout,
                    config.max_timeout,
                )
            }),
            pacer: Pacer::new(),
            limits: Limits {
                frame: config.mtu,
                chunk: config.chunk_limit,
                chunks: usize::from(config.max_chunks_in_flight),
                memory: u64::from(config.finished_memory),
            },
            overhead: config.overhead(),
            path: PathMtu::new(config.mtu),
            path_probes: VecDeque::new(),
            small: config.small_chunk_packets,
            asks_for_room: config.pacing == Pacing::Unpaced,
            timer_from: now,
            attempts: 0,
            longest_retry: config.outage_probe_interval,
            suspended: false,
            last_data: 0,
            is_acknowledged: false,
        }
    }

    /// Returns the first id of this session, and the first id of a session established from now on.
    pub(super) fn first_wire_ids(&self) -> (u32, u32) {
        (self.session_first as u32, self.next_id as u32)
    }

    pub(super) fn queue(&mut self, parcel: Parcel) {
        self.queue.push_back(parcel);
    }

    /// Starts a new session: unfinished chunks return to the head of the queue, in their order. Its
    /// ids begin with `first_id`, if the neighbour was told one.
    pub(super) fn restart(
        &mut self,
        now: Time,
        peer: &Peer,
        (window, first_id): (u32, Option<u32>),
        config: &HopConfig,
    ) {
        let given_up: Vec<OutboundChunk> =
            core::mem::take(&mut self.active).into_values().collect();
        for chunk in given_up
            .into_iter()
            .rev()
            .filter(|chunk| chunk.fate != Fate::Withdrawn)
        {
            self.queue.push_front(chunk.parcel);
        }
        self.csyn_due.clear();
        self.sendable = Sendable::new();
        self.queue.forget_begun();
        self.tails = TimerQueue::new();
        (self.outstanding, self.outstanding_urgent) = (0, 0);
        (self.unsent_bytes, self.refused) = (0, 0);
        (self.ask_again, self.probe_due, self.attempts) = (None, false, 0);
        (self.window, self.window_at, self.timer_from) = (window, 0, now);
        if let Some(first) = first_id {
            self.next_id = ((self.next_id >> 32) + 1) << 32 | u64::from(first);
        }
        self.session_first = self.next_id;
        self.feedback.restart(now);
        self.path.restart_count();
        self.law.on_outage_over(now);
        let usable = config.ecn && peer.reports_marks && config.pacing.answers_to_marks();
        self.marks.restart(now, usable);
        self.limits.chunk = config.chunk_limit.min(peer.chunk_limit);
        self.limits.chunks = usize::from(config.max_chunks_in_flight).min(peer.max_chunks);
        self.limits.memory = u64::from(config.finished_memory).min(peer.memory);
        self.set_limit(now, config.mtu.min(peer.mtu));
        if self.law.estimate().bandwidth() <= 0.0 {
            self.first_rate.begin(self.limits.frame);
        }
        self.begin_train();
    }

    /// Sets the frame size that the driver and the neighbour allow.
    pub(super) fn set_limit(&mut self, now: Time, limit: usize) {
        self.path.set_limit(now, limit);
        self.follow_path();
    }

    /// Starts the path MTU anew for another path with frames of up to `limit` bytes.
    pub(super) fn change_path(&mut self, now: Time, limit: usize) {
        self.path.forget(limit);
        self.path_probes.clear();
        self.law.on_path_change(now);
        self.end_train();
        self.follow_path();
    }

    /// Follows the path MTU: chunks split into larger packets are split anew.
    fn follow_path(&mut self) {
        self.limits.frame = self.path.size().max(MIN_MTU);
        let payload = self.limits.frame - self.overhead;
        let too_large: Vec<u64> = self
            .active
            .iter()
            .filter(|(_, chunk)| {
                usize::from(chunk.shape.packet_size) > payload && chunk.fate == Fate::Deliver
            })
            .map(|(id, _)| *id)
            .collect();
        for id in too_large {
            self.cancel(id, Fate::Recut);
        }
        self.update_pace();
    }

    pub(super) fn withdraw(&mut self, tag: u64) -> Option<(Bytes, Bytes)> {
        if let Some(parcel) = self.queue.remove(tag) {
            return Some((parcel.head, parcel.body));
        }
        let live = |chunk: &OutboundChunk| chunk.parcel.tag == tag && chunk.fate != Fate::Withdrawn;
        let id = self
            .active
            .iter()
            .find(|(_, chunk)| live(chunk))
            .map(|(id, _)| *id)?;
        let parcel = self.cancel(id, Fate::Withdrawn)?;
        Some((parcel.head, parcel.body))
    }

    /// Withdraws the chunks of a lane of which nothing was sent.
    pub(super) fn withdraw_unbegun(&mut self, lane: Lane) -> Vec<u64> {
        let unsent = |chunk: &OutboundChunk| {
            chunk.parcel.lane == lane && chunk.fate == Fate::Deliver && !chunk.was_ever_sent()
        };
        let begun = self.active.iter().filter(|(_, chunk)| unsent(chunk));
        let begun: Vec<u64> = begun.map(|(id, _)| *id).collect();
        let mut taken: Vec<Parcel> = begun
            .into_iter()
            .filter_map(|id| self.cancel(id, Fate::Withdrawn))
            .collect();
        taken.extend(self.queue.take_lane(lane));
        taken.iter().map(|parcel| parcel.tag).collect()
    }

    pub(super) fn withdraw_all(&mut self) -> Vec<(u64, Bytes, Bytes)> {
        let live: Vec<u64> = self
            .active
            .iter()
            .filter(|(_, chunk)| chunk.fate != Fate::Withdrawn)
            .map(|(id, _)| *id)
            .collect();
        let mut all: Vec<Parcel> = live
            .into_iter()
            .filter_map(|id| self.cancel(id, Fate::Withdrawn))
            .collect();
        all.extend(self.queue.take_all());
        all.into_iter()
            .map(|parcel| (parcel.tag, parcel.head, parcel.body))
            .collect()
    }

    /// See [`Hop::ready_for`](crate::Hop::ready_for); keeps `most` bytes waiting, or what a slow link
    /// sends in about a second.
    pub(super) fn ready_for(&self, most: usize) -> usize {
        if self.suspended || self.refused > 0 {
            return 0;
        }
        let target = self.target(most);
        // Room is requested a round trip ahead, and for whole chunks.
        let flight = self.flight();
        target
            .max(flight + target / 2)
            .saturating_sub(self.backlog())
    }

    /// Returns the bytes that have not been sent.
    pub(super) fn backlog(&self) -> usize {
        self.queue.bytes() + self.unsent_bytes
    }

    /// Returns true if `lane` has no chunk here and may have one although other lanes wait.
    pub(super) fn has_turn(&self, lane: Lane) -> bool {
        !self.suspended
            && self.refused == 0
            && !self.queue.has(lane)
            && self.queue.lanes_begun() < limits::MAX_LANES_BEGUN
            && self.queue.len() < limits::MAX_LANES_BEGUN
    }

    /// Suspends sending, because the neighbour was silent for too long: only probes go until
    /// [`Sender::resume`].
    pub(super) fn suspend(&mut self) {
        self.suspended = true;
        self.csyn_due.clear();
        self.end_train();
    }

    /// Resumes: everything in flight counts as lost, and every unanswered CSYN is sent again at
    /// once.
    pub(super) fn resume(&mut self, now: Time) {
        self.suspended = false;
        self.attempts = 0;
        self.timer_from = now;
        self.law.on_outage_over(now);
        let in_flight = self.feedback.inflight().div_ceil(self.limits.frame as u64);
        let active = &mut self.active;
        self.feedback
            .forget_flight(|number, about| forget_question(active, number, about));
        // The packets sent last are the likeliest to be lost; a CSYN first would cost them a round
        // trip.
        let id = self.last_data;
        if let Some(chunk) = self.active.get_mut(&id).filter(|it| it.room == Room::Given) {
            chunk.presume_lost(in_flight.min(limits::INITIAL_PACKETS) as usize);
            self.classify(id);
        }
        let ids: Vec<u64> = self.active.keys().copied().collect();
        ids.into_iter().for_each(|id| self.arrange_query(id));
        self.update_pace();
    }

    /// Handles a change of the path MTU: splits chunks that do not fit anew, and reports the size.
    fn path_changed(&mut self, stats: &mut HopStats, events: &mut VecDeque<HopEvent>) {
        let size = self.path.size();
        stats.mtu_falls += u64::from(size < self.limits.frame);
        self.follow_path();
        events.push_back(HopEvent::PathMtu { size });
    }

    /// Probes the neighbour, with a CSYN about the oldest chunk if there is one.
    pub(super) fn probe(&mut self) {
        let oldest = self
            .active
            .iter()
            .find(|(_, chunk)| chunk.room != Room::Refused)
            .map(|(id, _)| *id);
        match oldest {
            Some(id) => _ = self.csyn_due.insert(id),
            None => self.probe_due = true,
        }
    }

    /// Tells the owner whether frames should be sent as ECN-capable, if that has changed.
    pub(super) fn follow_marks(&mut self, events: &mut VecDeque<HopEvent>) {
        let capable = self.marks.is_wanted();
        if capable != self.sends_ecn {
            self.sends_ecn = capable;
            events.push_back(HopEvent::SetEcn { capable });
        }
    }

    pub(super) fn measured(&mut self, now: Time, rtt: Duration) {
        self.rtt.sample(rtt);
        self.law.estimate_mut().note_rtt(now, rtt);
        self.update_pace();
    }

    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        stats: &mut HopStats,
        events: &mut VecDeque<HopEvent>,
    ) {
        while let Some((_, id)) = self.tails.pop_due(now) {
            if !self.suspended && self.active.get(&id).is_some_and(OutboundChunk::is_waiting) {
                self.csyn_due.insert(id);
            }
        }
        if self.suspended {
            return;
        }
        if let Some((at, attempt)) = self.ask_again
            && now >= at
        {
            let refused = self
                .active
                .iter()
                .find(|(_, chunk)| chunk.room == Room::Refused)
                .map(|(id, _)| *id);
            self.csyn_due.extend(refused);
            self.ask_again =
                refused.map(|_| (now + self.ask_again_after(attempt + 1), attempt + 1));
        }
        if self.feedback.unanswered() > 0 && now >= self.timer_from + self.retry_after() {
            self.attempts += 1;
            self.timer_from = now;
            stats.timeouts += 1;
            self.marks.timed_out(self.attempts);
            self.follow_marks(events);
            self.probe();
        }
    }

    /// Returns true if a chunk waits or is in transfer.
    pub(super) fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.active.is_empty()
    }

    /// Returns the number of timeouts in a row.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(super) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.law.estimate().min_rtt()
    }

    pub(super) fn suspicion(&self) -> Option<Duration> {
        let smoothed = self.rtt.smoothed()?;
        Some(smoothed + smoothed / 4 + self.rtt.variation() * 4)
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        if self.suspended {
            return None;
        }
        let mut next = self
            .tails
            .next()
            .map(|(at, _)| Deadline::new(at, "ask again after the reordering window"));
        if let Some((at, _)) = self.ask_again {
            next = Deadline::earlier(next, Some(Deadline::new(at, "ask for room again")));
        }
        if self.feedback.unanswered() > 0 {
            let at = self.timer_from + self.retry_after();
            next = Deadline::earlier(next, Some(Deadline::new(at, "no answer to a CSYN")));
        }
        next = Deadline::earlier(next, self.path.poll_timeout());
        if self.has_data() && self.feedback.inflight() < self.cap_now() {
            next = Deadline::earlier(next, Some(Deadline::new(self.pacer.ready_at(), "pacing")));
        }
        next
    }

    /// Adds the estimates and states of this half to `stats`.
    pub(super) fn describe(&self, stats: &mut HopStats) {
        stats.largest_frame = self.limits.frame;
        stats.rtt = self.rtt.smoothed();
        stats.min_rtt = self.law.estimate().min_rtt();
        stats.bandwidth = self.rate().saturating_mul(8);
        stats.ecn = self.marks.works();
        stats.loss = self.law.estimate().loss();
        stats.window = self.window;
        stats.outstanding = self.outstanding;
        stats.inflight = self.feedback.inflight();
        stats.inflight_cap = self.inflight_cap();
        stats.chunks_queued = self.queue.len();
        stats.chunks_in_flight = self.active.len();
        stats.reordering_window = self.feedback.reordering_window();
    }
}
