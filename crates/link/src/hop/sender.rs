//! The sending half: the queue, the chunks under way, and what goes next.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_core::{Deadline, RttEstimator, Time, TimerQueue};

use super::config::{HopConfig, MIN_MTU, Pacing};
use super::event::HopEvent;
use super::feedback::{Answered, Disbelief, Feedback};
use super::outgoing::{Fate, Outgoing, Parcel, Room};
use super::pacing::Pacer;
use super::rate::RateModel;
use super::session::Peer;
use super::stats::HopStats;
use super::wire::{About, CSYN_LEN, Cack, Csyn, DATA_OVERHEAD, Progress, encode_csyn};

/// Packets that may be under way before the path is known: what a small chunk has.
const INITIAL_PACKETS: u64 = 32;
/// A CSYN comes after at most this many packets, ...
const MOST_PACKETS_PER_CSYN: u64 = 128;
/// ... and, where a quarter of a round trip is shorter, not before this many: feedback must stay below a percent.
const FEWEST_PACKETS_PER_CSYN: u64 = 8;
/// Bytes of chunks for which room is asked ahead, beyond what the path holds.
const ASK_AHEAD: usize = 256 << 10;
/// Most bytes of chunks that are asked for ahead.
const MOST_AHEAD: usize = 64 << 20;
/// Bounds of the wait before room is asked for again.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// What both neighbours can do.
#[derive(Clone, Copy, Debug)]
struct Limits {
    frame: usize,
    chunk: usize,
    chunks: usize,
    memory: u64,
}

pub(super) struct Sender {
    queue: VecDeque<Parcel>,
    queued_bytes: usize,
    active: BTreeMap<u64, Outgoing>,
    // Ids on the wire are the low halves of these.
    next_id: u64,
    session_first: u64,
    // Ids in `active`: to ask about, with packets to resend, with packets never sent.
    csyn_due: BTreeSet<u64>,
    resend: BTreeSet<u64>,
    fresh: BTreeSet<u64>,
    probe_due: bool,
    // W_ostd and W_ad, in packets, and the neighbour's clock when it told W_ad.
    outstanding: u32,
    window: u32,
    window_at: u64,
    unsent_bytes: usize,
    refused: usize,
    ask_again: Option<(Time, u32)>,
    tails: TimerQueue<u64>,
    feedback: Feedback,
    model: RateModel,
    rtt: RttEstimator,
    pacer: Pacer,
    limits: Limits,
    small: u16,
    pacing: Pacing,
    // The time-out runs from `timer_from`; so many have expired in a row.
    timer_from: Time,
    attempts: u32,
    longest_retry: Duration,
    suspended: bool,
    last_data: u64,
}

impl Sender {
    pub(super) fn new(config: &HopConfig, first_id: u32, now: Time) -> Sender {
        Sender {
            queue: VecDeque::new(),
            queued_bytes: 0,
            active: BTreeMap::new(),
            next_id: 1 << 32 | u64::from(first_id),
            session_first: 1 << 32 | u64::from(first_id),
            csyn_due: BTreeSet::new(),
            resend: BTreeSet::new(),
            fresh: BTreeSet::new(),
            probe_due: false,
            outstanding: 0,
            window: 0,
            window_at: 0,
            unsent_bytes: 0,
            refused: 0,
            ask_again: None,
            tails: TimerQueue::new(),
            feedback: Feedback::new(now),
            model: RateModel::new(now),
            rtt: RttEstimator::new(config.initial_timeout, config.min_timeout, config.max_timeout),
            pacer: Pacer::new(),
            limits: Limits {
                frame: config.mtu,
                chunk: config.chunk_limit,
                chunks: usize::from(config.max_chunks_in_flight),
                memory: u64::from(config.finished_memory),
            },
            small: config.small_chunk_packets,
            pacing: config.pacing,
            timer_from: now,
            attempts: 0,
            longest_retry: config.outage_probe_interval,
            suspended: false,
            last_data: 0,
        }
    }

    /// The first id of this session, and the first one that a session established from now on may see.
    pub(super) fn first_wire_ids(&self) -> (u32, u32) {
        (self.session_first as u32, self.next_id as u32)
    }

    pub(super) fn queue(&mut self, parcel: Parcel) {
        self.queued_bytes += parcel.len();
        self.queue.push_back(parcel);
    }

    /// A new session: what was under way goes back to the head of the queue, in its order.
    pub(super) fn restart(&mut self, now: Time, peer: &Peer, window: u32, config: &HopConfig) {
        let given_up: Vec<Outgoing> = core::mem::take(&mut self.active).into_values().collect();
        for chunk in given_up.into_iter().rev().filter(|chunk| chunk.fate != Fate::Withdrawn) {
            self.queued_bytes += chunk.parcel.len();
            self.queue.push_front(chunk.parcel);
        }
        self.csyn_due.clear();
        self.resend.clear();
        self.fresh.clear();
        self.tails = TimerQueue::new();
        (self.outstanding, self.unsent_bytes, self.refused) = (0, 0, 0);
        (self.ask_again, self.probe_due, self.attempts) = (None, false, 0);
        (self.window, self.window_at, self.timer_from) = (window, 0, now);
        self.session_first = self.next_id;
        self.feedback.restart(now);
        self.model.resume();
        self.limits.chunk = config.chunk_limit.min(peer.chunk_limit);
        self.limits.chunks = usize::from(config.max_chunks_in_flight).min(peer.max_chunks);
        self.limits.memory = u64::from(config.finished_memory).min(peer.memory);
        self.set_frame(config.mtu.min(peer.mtu));
    }

    /// Frames may have `frame` bytes from now on; chunks cut in larger packets are cut anew.
    pub(super) fn set_frame(&mut self, frame: usize) {
        self.limits.frame = frame.max(MIN_MTU);
        let payload = self.limits.frame - DATA_OVERHEAD;
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
        if let Some(index) = self.queue.iter().position(|parcel| parcel.tag == tag) {
            let parcel = self.queue.remove(index)?;
            self.queued_bytes -= parcel.len();
            return Some((parcel.head, parcel.body));
        }
        let live = |chunk: &Outgoing| chunk.parcel.tag == tag && chunk.fate != Fate::Withdrawn;
        let id = self.active.iter().find(|(_, chunk)| live(chunk)).map(|(id, _)| *id)?;
        let parcel = self.cancel(id, Fate::Withdrawn)?;
        Some((parcel.head, parcel.body))
    }

    pub(super) fn withdraw_all(&mut self) -> Vec<(u64, Bytes, Bytes)> {
        let live: Vec<u64> = self
            .active
            .iter()
            .filter(|(_, chunk)| chunk.fate != Fate::Withdrawn)
            .map(|(id, _)| *id)
            .collect();
        let mut all: Vec<Parcel> =
            live.into_iter().filter_map(|id| self.cancel(id, Fate::Withdrawn)).collect();
        all.extend(self.queue.drain(..));
        self.queued_bytes = 0;
        all.into_iter().map(|parcel| (parcel.tag, parcel.head, parcel.body)).collect()
    }

    /// See [`Hop::ready_for`](crate::Hop::ready_for); `target` bytes at least are kept waiting.
    pub(super) fn ready_for(&self, target: usize) -> usize {
        if self.suspended || self.refused > 0 {
            return 0;
        }
        // Room is asked for a round trip ahead, and a chunk is asked for as a whole.
        let flight = usize::try_from(self.inflight_cap().min(MOST_AHEAD as u64)).unwrap_or(MOST_AHEAD);
        target.max(flight + target / 2).saturating_sub(self.queued_bytes + self.unsent_bytes)
    }

    /// The neighbour was silent for too long: only probes go until [`Sender::resume`].
    pub(super) fn suspend(&mut self) {
        self.suspended = true;
        self.csyn_due.clear();
    }

    /// It is back: what was under way is taken for lost, and everything unanswered is asked at once.
    pub(super) fn resume(&mut self, now: Time) {
        self.suspended = false;
        self.attempts = 0;
        self.timer_from = now;
        self.model.resume();
        let active = &mut self.active;
        self.feedback.forget_flight(|number, about| forget_question(active, number, about));
        let ids: Vec<u64> = self.active.keys().copied().collect();
        ids.into_iter().for_each(|id| self.settle(id));
        self.update_pace();
    }

    /// Asks for a sign of life, about the oldest chunk if there is one.
    pub(super) fn probe(&mut self) {
        let oldest = self.active.iter().find(|(_, chunk)| chunk.room != Room::Refused).map(|(id, _)| *id);
        match oldest {
            Some(id) => _ = self.csyn_due.insert(id),
            None => self.probe_due = true,
        }
    }

    pub(super) fn measured(&mut self, now: Time, rtt: Duration) {
        self.rtt.sample(rtt);
        self.model.round_trip(now, rtt);
        self.update_pace();
    }

    /// Takes a CACK. What is not believed changes nothing.
    pub(super) fn handle_cack(
        &mut self,
        now: Time,
        cack: &Cack<'_>,
        stats: &mut HopStats,
        events: &mut VecDeque<HopEvent>,
    ) -> Result<(), Disbelief> {
        let about = cack.chunk.map(|(wire, progress)| (self.unwrap(wire), progress));
        let current = about.filter(|(id, progress)| {
            self.active.get(id).is_some_and(|chunk| {
                cack.clock >= chunk.reported_at
                    && !matches!(progress, Progress::Refused if chunk.room == Room::Refused)
            })
        });
        if current.is_some_and(|(id, progress)| !self.active[&id].is_plausible(&progress)) {
            return Err(Disbelief::False);
        }
        let mut late = None;
        let mut lost_before = None;
        if cack.number != 0 {
            match self.answered(now, cack, about.map(|(id, _)| id), stats) {
                Ok(answered) => lost_before = Some(answered.lost_before),
                Err(Disbelief::False) => return Err(Disbelief::False),
                Err(Disbelief::Late) => late = Some(Disbelief::Late),
            }
        }
        if cack.clock >= self.window_at {
            self.window = cack.window;
            self.window_at = cack.clock;
        }
        if let Some((id, progress)) = current {
            self.progress(now, id, &progress, cack.clock, lost_before, stats, events);
        }
        match late {
            Some(late) if current.is_none() => Err(late),
            _ => Ok(()),
        }
    }

    fn answered(
        &mut self,
        now: Time,
        cack: &Cack<'_>,
        about: Option<u64>,
        stats: &mut HopStats,
    ) -> Result<Answered, Disbelief> {
        let mut unheard = Vec::new();
        let active = &mut self.active;
        let is_about = |record: Option<u64>| record.map(|id| id as u32) == about.map(|id| id as u32);
        let lost = |number, about: Option<u64>| {
            forget_question(active, number, about);
            unheard.extend(about);
        };
        let mut answered =
            self.feedback.answer(now, cack.number, is_about, cack.received, cack.clock, lost)?;
        forget_question(&mut self.active, cack.number, answered.about);
        self.attempts = 0;
        self.timer_from = now;
        self.rtt.sample(answered.sample.rtt);
        let smooth = self.rtt.smoothed().unwrap_or_default();
        stats.spurious_resends +=
            u64::from(self.feedback.spurious(cack.spurious, smooth, answered.sample.round_over));
        if self.suspended {
            // The time of the outage says nothing about the path.
            answered.sample.delivery = None;
        }
        self.model.sample(now, &answered.sample);
        self.update_pace();
        unheard.into_iter().for_each(|id| self.settle(id));
        Ok(answered)
    }

    #[expect(clippy::too_many_arguments, reason = "one report, and everything that it may change")]
    fn progress(
        &mut self,
        now: Time,
        id: u64,
        progress: &Progress<'_>,
        clock: u64,
        lost_before: Option<u32>,
        stats: &mut HopStats,
        events: &mut VecDeque<HopEvent>,
    ) {
        let Some(chunk) = self.active.get_mut(&id) else { return };
        chunk.reported_at = clock;
        match *progress {
            Progress::Complete => {
                if let Some(chunk) = self.remove(id).filter(|chunk| chunk.fate != Fate::Withdrawn) {
                    stats.chunks_delivered += 1;
                    stats.chunk_bytes_delivered += chunk.parcel.len() as u64;
                    events.push_back(HopEvent::Delivered { tag: chunk.parcel.tag });
                }
            }
            Progress::Cancelled => {
                if let Some(chunk) = self.remove(id).filter(|chunk| chunk.fate == Fate::Recut) {
                    self.queued_bytes += chunk.parcel.len();
                    self.queue.push_front(chunk.parcel);
                }
            }
            Progress::Refused => {
                stats.refusals_received += 1;
                self.set_room(id, Room::Refused);
                let attempt = self.ask_again.map_or(0, |(_, attempt)| attempt);
                self.ask_again.get_or_insert((now + self.ask_again_after(attempt), attempt));
            }
            Progress::Held { start, bitmap, cut } => {
                if chunk.room != Room::Given {
                    self.set_room(id, Room::Given);
                    // The notice about another chunk may still be lost.
                    self.ask_again = (self.refused > 0).then(|| (now + self.ask_again_after(0), 0));
                }
                if let Some(chunk) = self.active.get_mut(&id) {
                    chunk.report(start, bitmap, cut, lost_before);
                }
                self.classify(id);
            }
        }
        self.settle(id);
    }

    pub(super) fn handle_timeout(&mut self, now: Time, stats: &mut HopStats) {
        while let Some((_, id)) = self.tails.pop_due(now) {
            if !self.suspended && self.active.get(&id).is_some_and(Outgoing::is_waiting) {
                self.csyn_due.insert(id);
            }
        }
        if self.suspended {
            return;
        }
        if let Some((at, attempt)) = self.ask_again
            && now >= at
        {
            let refused =
                self.active.iter().find(|(_, chunk)| chunk.room == Room::Refused).map(|(id, _)| *id);
            self.csyn_due.extend(refused);
            self.ask_again = refused.map(|_| (now + self.ask_again_after(attempt + 1), attempt + 1));
        }
        if self.feedback.unanswered() > 0 && now >= self.timer_from + self.retry_after() {
            self.attempts += 1;
            self.timer_from = now;
            stats.timeouts += 1;
            self.probe();
        }
    }

    /// Time-outs in a row without an answer.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(super) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        if self.suspended {
            return None;
        }
        let mut next =
            self.tails.next().map(|(at, _)| Deadline::new(at, "ask again after the reordering window"));
        if let Some((at, _)) = self.ask_again {
            next = Deadline::earlier(next, Some(Deadline::new(at, "ask for room again")));
        }
        if self.feedback.unanswered() > 0 {
            let at = self.timer_from + self.retry_after();
            next = Deadline::earlier(next, Some(Deadline::new(at, "no answer to a CSYN")));
        }
        if self.has_data() && self.feedback.inflight() < self.inflight_cap() {
            next = Deadline::earlier(next, Some(Deadline::new(self.pacer.ready_at(), "pacing")));
        }
        next
    }

    /// Writes the next frames: a CSYN that is due, or packets and perhaps a CSYN behind them.
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        session: u32,
        max_segments: usize,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
        events: &mut VecDeque<HopEvent>,
    ) -> Option<(usize, Option<usize>)> {
        if !self.suspended {
            self.start_chunks(events);
        }
        let start = buffer.len();
        if self.write_due_csyn(now, session, buffer, stats) {
            return Some((buffer.len() - start, None));
        }
        if self.suspended {
            return None;
        }
        self.write_burst(now, session, max_segments, buffer, stats)
    }

    fn write_burst(
        &mut self,
        now: Time,
        session: u32,
        max_segments: usize,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) -> Option<(usize, Option<usize>)> {
        let start = buffer.len();
        if !self.has_data() {
            if self.feedback.inflight() < self.inflight_cap() {
                self.feedback.note_limited();
            }
            return None;
        }
        let room = self.inflight_cap().saturating_sub(self.feedback.inflight());
        if room == 0 {
            // What is under way must be asked about, or no answer would ever make room.
            if self.feedback.since_csyn().0 > 0 {
                let about = Some(self.last_data).filter(|id| self.active.contains_key(id));
                self.write_csyn(now, session, about, buffer, stats);
                return Some((buffer.len() - start, None));
            }
            return None;
        }
        let allowance = self.pacer.allowance(now)?.min(room);
        let (mut segment, mut frames, mut aligned) = (0, 0, true);
        let per_csyn = self.packets_per_csyn();
        while aligned && frames < max_segments.max(1) && ((buffer.len() - start) as u64) < allowance {
            let Some(id) = self.next_with_data() else { break };
            let Some(chunk) = self.active.get_mut(&id) else { break };
            let Some(len) = chunk.next_frame_len().filter(|len| frames == 0 || *len <= segment) else {
                break;
            };
            segment = segment.max(len);
            aligned = len == segment;
            let unsent = chunk.unsent_bytes();
            let resent = chunk.write_next(session, id as u32, self.feedback.order(), buffer)?;
            self.unsent_bytes -= unsent - chunk.unsent_bytes();
            self.feedback.data_sent(len as u64);
            self.last_data = id;
            frames += 1;
            stats.data_sent += 1;
            stats.data_resent += u64::from(resent);
            self.classify(id);
            self.settle(id);
            if u64::from(self.feedback.since_csyn().0) >= per_csyn {
                self.csyn_due.insert(id);
                break;
            }
        }
        if frames == 0 {
            return None;
        }
        self.pacer.spend(now, (buffer.len() - start) as u64);
        if aligned
            && frames < max_segments
            && segment >= CSYN_LEN
            && self.write_due_csyn(now, session, buffer, stats)
        {
            frames += 1;
        }
        Some((buffer.len() - start, (frames > 1).then_some(segment)))
    }

    fn write_due_csyn(
        &mut self,
        now: Time,
        session: u32,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) -> bool {
        let about = self.csyn_due.first().copied();
        if about.is_none() && !self.probe_due {
            return false;
        }
        self.write_csyn(now, session, about, buffer, stats);
        true
    }

    fn write_csyn(
        &mut self,
        now: Time,
        session: u32,
        about: Option<u64>,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) {
        if self.feedback.unanswered() == 0 {
            self.timer_from = now;
        }
        let number = self.feedback.csyn_sent(now, about);
        self.probe_due = false;
        let chunk = about.and_then(|id| self.active.get_mut(&id).map(|chunk| (id, chunk)));
        let about = chunk.map(|(id, chunk)| {
            self.csyn_due.remove(&id);
            chunk.asked = Some(number);
            let window = self.feedback.reordering_window();
            if !window.is_zero() && !chunk.tailed && chunk.room == Room::Given && chunk.is_waiting() {
                chunk.tailed = true;
                self.tails.set(id, now + window);
            }
            About { hop_id: id as u32, shape: chunk.shape, cancel: chunk.fate != Fate::Deliver }
        });
        encode_csyn(session, &Csyn { number, about }, buffer);
        stats.csyn_sent += 1;
    }

    /// Cuts the next chunks and asks for room ahead, so that none is waited for when its turn comes.
    fn start_chunks(&mut self, events: &mut VecDeque<HopEvent>) {
        let ahead =
            ASK_AHEAD + usize::try_from(self.inflight_cap().min(MOST_AHEAD as u64)).unwrap_or(MOST_AHEAD);
        while self.refused == 0 && self.unsent_bytes < ahead && self.active.len() < self.limits.chunks {
            let oldest = self.active.first_key_value().map_or(self.next_id, |(id, _)| *id);
            if self.next_id - oldest >= self.limits.memory {
                return;
            }
            let Some(parcel) = self.queue.pop_front() else { return };
            self.queued_bytes -= parcel.len();
            if parcel.len() > self.limits.chunk {
                events.push_back(HopEvent::TooLarge {
                    tag: parcel.tag,
                    head: parcel.head,
                    body: parcel.body,
                });
                continue;
            }
            match Outgoing::new(parcel, self.limits.frame - DATA_OVERHEAD, Room::Asked) {
                Ok(chunk) => self.start(chunk),
                Err(parcel) => {
                    events.push_back(HopEvent::TooLarge {
                        tag: parcel.tag,
                        head: parcel.head,
                        body: parcel.body,
                    });
                }
            }
        }
    }

    fn start(&mut self, mut chunk: Outgoing) {
        let id = self.next_id;
        self.next_id += 1;
        let packets = u32::from(chunk.packets);
        if chunk.packets <= self.small && self.outstanding.saturating_add(packets) <= self.window {
            chunk.room = Room::Given;
            self.outstanding += packets;
        }
        self.unsent_bytes += chunk.unsent_bytes();
        self.active.insert(id, chunk);
        self.classify(id);
        self.settle(id);
    }

    /// Stops a transfer and arranges that the neighbour is told; returns its chunk if it is withdrawn.
    fn cancel(&mut self, id: u64, fate: Fate) -> Option<Parcel> {
        let chunk = self.active.get_mut(&id)?;
        self.unsent_bytes -= chunk.unsent_bytes();
        chunk.fate = fate;
        let empty = Parcel { tag: chunk.parcel.tag, head: Bytes::new(), body: Bytes::new() };
        let parcel = (fate == Fate::Withdrawn).then(|| core::mem::replace(&mut chunk.parcel, empty));
        if chunk.room == Room::Refused {
            chunk.room = Room::Asked;
            self.refused -= 1;
        }
        chunk.asked = None;
        self.classify(id);
        self.settle(id);
        parcel
    }

    fn set_room(&mut self, id: u64, room: Room) {
        let Some(chunk) = self.active.get_mut(&id) else { return };
        let packets = u32::from(chunk.packets);
        match chunk.room {
            Room::Given => self.outstanding -= packets,
            Room::Refused => self.refused -= 1,
            Room::Asked => {}
        }
        self.unsent_bytes -= chunk.unsent_bytes();
        chunk.start_over(room);
        self.unsent_bytes += chunk.unsent_bytes();
        match room {
            Room::Given => self.outstanding += packets,
            Room::Refused => self.refused += 1,
            Room::Asked => {}
        }
        self.classify(id);
    }

    fn remove(&mut self, id: u64) -> Option<Outgoing> {
        let chunk = self.active.remove(&id)?;
        match chunk.room {
            Room::Given => self.outstanding -= u32::from(chunk.packets),
            Room::Refused => self.refused -= 1,
            Room::Asked => {}
        }
        self.unsent_bytes -= chunk.unsent_bytes();
        for set in [&mut self.csyn_due, &mut self.resend, &mut self.fresh] {
            set.remove(&id);
        }
        self.tails.cancel(&id);
        Some(chunk)
    }

    /// Notes whether a chunk has packets to send.
    fn classify(&mut self, id: u64) {
        let Some(chunk) = self.active.get(&id) else { return };
        place(&mut self.resend, id, chunk.room == Room::Given && chunk.has_missing());
        place(&mut self.fresh, id, chunk.has_unsent());
    }

    /// Arranges a CSYN about a chunk that can go on only with an answer and has not asked.
    fn settle(&mut self, id: u64) {
        let Some(chunk) = self.active.get(&id) else { return };
        let stuck = match chunk.room {
            _ if chunk.fate != Fate::Deliver => true,
            Room::Asked => true,
            Room::Given => chunk.is_waiting(),
            Room::Refused => false,
        };
        if stuck && chunk.asked.is_none() {
            self.csyn_due.insert(id);
        }
    }

    fn next_with_data(&self) -> Option<u64> {
        self.resend.first().or(self.fresh.first()).copied()
    }

    fn has_data(&self) -> bool {
        !self.resend.is_empty() || !self.fresh.is_empty()
    }

    fn unwrap(&self, wire: u32) -> u64 {
        let distance = wire.wrapping_sub(self.next_id as u32) as i32;
        self.next_id.saturating_add_signed(i64::from(distance))
    }

    fn retry_after(&self) -> Duration {
        let first = self.rtt.timeout();
        self.rtt.timeout_after(self.attempts).min(first.max(self.longest_retry))
    }

    fn ask_again_after(&self, attempt: u32) -> Duration {
        let first = (self.rtt.smoothed().unwrap_or_default() * 4).max(ASK_AGAIN.0);
        first.saturating_mul(1 << attempt.min(10)).min(ASK_AGAIN.1)
    }

    /// A quarter of a round trip of packets, or a burst if that is more, within bounds.
    fn packets_per_csyn(&self) -> u64 {
        let frame = self.limits.frame as u64;
        let quarter = (self.model.bandwidth_delay() / 4).max(self.pacer.burst_bytes()) / frame;
        quarter.clamp(FEWEST_PACKETS_PER_CSYN, MOST_PACKETS_PER_CSYN)
    }

    fn inflight_cap(&self) -> u64 {
        if self.pacing != Pacing::Estimate {
            return u64::MAX;
        }
        let frame = self.limits.frame as u64;
        if self.model.bandwidth() <= 0.0 {
            return INITIAL_PACKETS * frame;
        }
        let feedback = self.packets_per_csyn() * frame + self.pacer.burst_bytes();
        self.model.inflight_cap(feedback).max(INITIAL_PACKETS * frame / 4)
    }

    fn update_pace(&mut self) {
        let frame = self.limits.frame;
        let rate = match (self.pacing, self.model.pace(), self.model.min_rtt()) {
            (Pacing::Unpaced, ..) => 0,
            (Pacing::Fixed(bits), ..) => (bits / 8).max(1),
            (Pacing::Estimate, Some(rate), _) => (rate as u64).max(2 * frame as u64),
            (Pacing::Estimate, None, Some(rtt)) => {
                // The first packets are spread over a round trip.
                let seconds = rtt.as_secs_f64().max(1e-5);
                ((INITIAL_PACKETS * frame as u64) as f64 / seconds) as u64
            }
            (Pacing::Estimate, None, None) => 0,
        };
        self.pacer.set_rate(rate, frame);
        self.model.set_burst(self.pacer.burst_bytes() + frame as u64);
    }

    /// Adds the estimates and states of this half to `stats`.
    pub(super) fn describe(&self, stats: &mut HopStats) {
        stats.rtt = self.rtt.smoothed();
        stats.min_rtt = self.model.min_rtt();
        stats.bandwidth = (self.model.bandwidth() * 8.0) as u64;
        stats.loss = self.model.loss();
        stats.window = self.window;
        stats.outstanding = self.outstanding;
        stats.inflight = self.feedback.inflight();
        stats.inflight_cap = self.inflight_cap();
        stats.chunks_queued = self.queue.len();
        stats.chunks_in_flight = self.active.len();
        stats.reordering_window = self.feedback.reordering_window();
    }
}

/// The CSYN `number` will not be answered any more; if it was the last one about its chunk, nothing is asked.
fn forget_question(active: &mut BTreeMap<u64, Outgoing>, number: u32, about: Option<u64>) {
    if let Some(chunk) = about.and_then(|id| active.get_mut(&id))
        && chunk.asked == Some(number)
    {
        chunk.asked = None;
    }
}

fn place(set: &mut BTreeSet<u64>, id: u64, member: bool) {
    if member {
        set.insert(id);
    } else {
        set.remove(&id);
    }
}
