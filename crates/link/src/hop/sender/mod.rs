//! The sending half of a hop, in three parts: the chunks in transfer, the control of the path, and
//! the choice of the next frame.

mod control;
mod idle_rate;
mod report;
mod thin;
mod train;
mod transfers;
mod transmit;

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{Deadline, Time};

use super::config::{HopConfig, MIN_MTU};
use super::ecn::Marks;
use super::event::HopEvent;
use super::feedback::Feedback;
use super::lanes::Lane;
use super::outbound::Room;
use super::secure::Peer;
use super::stats::HopStats;
use crate::path_mtu::PathMtu;
use control::{Control, INITIAL_PACKETS};
use report::forget_question;
use transfers::Transfers;

pub(super) struct Sender {
    transfers: Transfers,
    control: Control,
    feedback: Feedback,
    marks: Marks,
    // The last state reported to the owner.
    sends_ecn: bool,
    // Bytes of a DATA frame beyond its payload.
    overhead: usize,
    path: PathMtu,
    // The newest probes of the path MTU: number and bytes.
    path_probes: VecDeque<(u32, usize)>,
    probe_due: bool,
    ask_again: Option<(Time, u32)>,
    // The start of the timeout, and the number of timeouts in a row.
    timer_from: Time,
    attempts: u32,
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
            transfers: Transfers::new(config, first_id),
            control: Control::new(config, now),
            feedback: Feedback::new(now),
            marks: Marks::new(),
            sends_ecn: false,
            overhead: config.overhead(),
            path: PathMtu::new(config.mtu),
            path_probes: VecDeque::new(),
            probe_due: false,
            ask_again: None,
            timer_from: now,
            attempts: 0,
            suspended: false,
            last_data: 0,
            is_acknowledged: false,
        }
    }

    /// The chunks, for their owner: those that wait and those in transfer.
    pub(super) fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// The same, to queue and withdraw chunks.
    pub(super) fn transfers_mut(&mut self) -> &mut Transfers {
        &mut self.transfers
    }

    /// What is known of the path.
    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    /// Starts a new session; `start` has the neighbour's window and the first id that it was told.
    pub(super) fn restart(
        &mut self,
        now: Time,
        peer: &Peer,
        start: (u32, Option<u32>),
        config: &HopConfig,
    ) {
        self.transfers.restart(peer, start, config);
        (self.ask_again, self.probe_due, self.attempts) = (None, false, 0);
        self.timer_from = now;
        self.feedback.restart(now);
        self.path.restart_count();
        self.control.law.on_outage_over(now);
        let usable = config.ecn && peer.reports_marks && config.pacing.answers_to_marks();
        self.marks.restart(now, usable);
        self.set_limit(now, config.mtu.min(peer.mtu));
        if self.control.law.estimate().bandwidth() <= 0.0 {
            self.control.first_rate.begin(self.control.frame);
        }
        self.control.begin_train();
    }

    /// Measures the rate of the path by trains of probes, unless chunks cross it.
    pub(super) fn measure_idle(&mut self) {
        if !self.suspended && self.is_acknowledged && !self.transfers.has_work() {
            self.control.idle_rate.begin(self.control.frame);
        }
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
        self.control.law.on_path_change(now);
        self.control.end_train();
        self.follow_path();
    }

    /// Follows the path MTU: chunks split into larger packets are split anew.
    fn follow_path(&mut self) {
        self.control.frame = self.path.size().max(MIN_MTU);
        let payload = self.control.frame - self.overhead;
        self.transfers.recut(payload);
        self.control.update_pace();
    }

    /// See [`Hop::ready_for`](crate::Hop::ready_for); keeps `most` bytes waiting, or what a slow link
    /// sends in about a second.
    pub(super) fn ready_for(&self, most: usize) -> usize {
        if self.suspended || self.transfers.refused > 0 {
            return 0;
        }
        let target = self.control.target(most);
        // Room is requested a round trip ahead, and for whole chunks.
        let flight = self.control.flight();
        target
            .max(flight + target / 2)
            .saturating_sub(self.transfers.backlog())
    }

    /// Returns true if `lane` has no chunk here and may have one although other lanes wait.
    pub(super) fn has_turn(&self, lane: Lane) -> bool {
        !self.suspended && self.transfers.has_turn(lane)
    }

    /// Notes a round trip that no CSYN measured.
    pub(super) fn measured(&mut self, now: Time, rtt: Duration) {
        self.control.measured(now, rtt);
    }

    /// Suspends sending, because the neighbour was silent for too long: only probes go until
    /// [`Sender::resume`].
    pub(super) fn suspend(&mut self) {
        self.suspended = true;
        self.transfers.csyn_due.clear();
        self.control.end_train();
    }

    /// Resumes: everything in flight counts as lost, and every unanswered CSYN is sent again at
    /// once.
    pub(super) fn resume(&mut self, now: Time) {
        self.suspended = false;
        self.attempts = 0;
        self.timer_from = now;
        self.control.law.on_outage_over(now);
        let in_flight = self.feedback.inflight().div_ceil(self.control.frame as u64);
        let active = &mut self.transfers.active;
        self.feedback
            .forget_flight(|number, about| forget_question(active, number, about));
        // The packets sent last are the likeliest to be lost; a CSYN first would cost them a round
        // trip.
        let id = self.last_data;
        if let Some(chunk) = self
            .transfers
            .active
            .get_mut(&id)
            .filter(|it| it.room == Room::Given)
        {
            chunk.presume_lost(in_flight.min(INITIAL_PACKETS) as usize);
            self.transfers.classify(id);
        }
        let ids: Vec<u64> = self.transfers.active.keys().copied().collect();
        ids.into_iter()
            .for_each(|id| self.transfers.arrange_query(id));
        self.control.update_pace();
    }

    /// Handles a change of the path MTU: splits chunks that do not fit anew, and reports the size.
    fn path_changed(&mut self, stats: &mut HopStats, events: &mut VecDeque<HopEvent>) {
        let size = self.path.size();
        stats.mtu_falls += u64::from(size < self.control.frame);
        self.follow_path();
        events.push_back(HopEvent::PathMtu { size });
    }

    /// Probes the neighbour, with a CSYN about the oldest chunk if there is one.
    pub(super) fn probe(&mut self) {
        match self.transfers.oldest(false) {
            Some(id) => _ = self.transfers.csyn_due.insert(id),
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

    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        stats: &mut HopStats,
        events: &mut VecDeque<HopEvent>,
    ) {
        self.transfers.ask_about_tails(now, self.suspended);
        if self.suspended {
            return;
        }
        if let Some((at, attempt)) = self.ask_again
            && now >= at
        {
            let refused = self.transfers.oldest(true);
            self.transfers.csyn_due.extend(refused);
            self.ask_again =
                refused.map(|_| (now + self.control.ask_again_after(attempt + 1), attempt + 1));
        }
        if self.feedback.unanswered() > 0 && now >= self.retry_at() {
            self.attempts += 1;
            self.timer_from = now;
            stats.timeouts += 1;
            self.marks.timed_out(self.attempts);
            self.follow_marks(events);
            self.probe();
        }
    }

    /// Returns the time at which an unanswered CSYN counts as lost.
    fn retry_at(&self) -> Time {
        let inflight = self.feedback.inflight();
        self.timer_from + self.control.retry_after(self.attempts, inflight)
    }

    /// Returns the number of timeouts in a row.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        if self.suspended {
            return None;
        }
        let mut next = self
            .transfers
            .tails
            .next()
            .map(|(at, _)| Deadline::new(at, "ask again after the reordering window"));
        if let Some((at, _)) = self.ask_again {
            next = Deadline::earlier(next, Some(Deadline::new(at, "ask for room again")));
        }
        if self.feedback.unanswered() > 0 {
            let answer = Deadline::new(self.retry_at(), "no answer to a CSYN");
            next = Deadline::earlier(next, Some(answer));
        }
        next = Deadline::earlier(next, self.path.poll_timeout());
        if self.transfers.has_data() && self.feedback.inflight() < self.cap_now() {
            next = Deadline::earlier(
                next,
                Some(Deadline::new(self.control.pacer.ready_at(), "pacing")),
            );
        }
        next
    }

    /// Adds the estimates and states of this half to `stats`.
    pub(super) fn describe(&self, stats: &mut HopStats) {
        stats.largest_frame = self.control.frame;
        stats.rtt = self.control.rtt.smoothed();
        stats.min_rtt = self.control.law.estimate().min_rtt();
        stats.bandwidth = self.control.rate().saturating_mul(8);
        stats.ecn = self.marks.works();
        stats.loss = self.control.law.estimate().loss();
        stats.window = self.transfers.window.advertised;
        stats.outstanding = self.transfers.window.outstanding;
        stats.inflight = self.feedback.inflight();
        stats.inflight_cap = self.control.inflight_cap();
        stats.chunks_queued = self.transfers.queue.len();
        stats.chunks_in_flight = self.transfers.active.len();
        stats.reordering_window = self.feedback.reordering_window();
    }
}
