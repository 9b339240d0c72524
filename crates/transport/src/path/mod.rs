//! The ways that a consumer's Interests take, each with a window and a time-out of its own.
//!
//! A [`Path`] is what a congestion law governs: a face, and header fields that tell the network
//! which way an Interest goes from there (a NextHopFaceId towards a local router, say). It owns the
//! law, the estimator of round trips, the count of Interests in flight and the recovery point:
//! nothing that was sent before a reaction to a loss causes another one. Losses of one path leave
//! the others alone. [`Paths`] are those of one connection; they schedule, and show a coupled law
//! the state of all.

mod set;

use core::time::Duration;

use whimbrel_core::{RttEstimator, RttOptions, Time};
use whimbrel_ndn_packet::LpHeader;

use crate::application::FaceNumber;
use crate::congestion::{Congestion, CongestionControl, Delivered, LawPhase, Siblings};
pub use set::Paths;

/// Time-outs in a row after which a path counts as failing.
const FAILING: u32 = 2;

/// A path, within one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

impl PathId {
    /// The only one of a connection that has one.
    pub const FIRST: PathId = PathId(0);

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Where a path begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// The application's face that its Interests leave by.
    pub face: FaceNumber,
    /// Link header fields of each of its Interests.
    pub header: LpHeader,
}

/// What coupled laws and observers see of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathState {
    /// Which.
    pub id: PathId,
    /// Its face is up.
    pub up: bool,
    /// Window in segments.
    pub window: f64,
    /// Slow-start threshold in segments.
    pub threshold: f64,
    /// What its law is doing.
    pub phase: LawPhase,
    /// Interests in flight.
    pub in_flight: usize,
    /// Smoothed round-trip time.
    pub smoothed: Option<Duration>,
    /// Shortest round trip.
    pub least_rtt: Option<Duration>,
    /// Retransmission time-out.
    pub timeout: Duration,
}

/// Counters of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathStats {
    /// Interests sent.
    pub sent: u64,
    /// Data that came.
    pub delivered: u64,
    /// Octets of their content.
    pub bytes: u64,
    /// Interests found lost.
    pub lost: u64,
    /// Times that a loss shrank the window.
    pub loss_decreases: u64,
    /// Times that a congestion mark shrank the window.
    pub mark_decreases: u64,
}

/// A Data that answers an Interest of a path.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// When it came.
    pub now: Time,
    /// Its segment.
    pub segment: u64,
    /// Octets of its content.
    pub bytes: usize,
    /// Its round trip, unless the Interest was sent more than once (Karn's algorithm).
    pub rtt: Option<Duration>,
    /// The Interest was in flight, and not found lost before.
    pub in_flight: bool,
    /// It has a congestion mark that is not to be ignored.
    pub marked: bool,
    /// The window grows to at most this many segments.
    pub limit: f64,
}

/// One way to the content; see the module.
#[derive(Debug)]
pub struct Path {
    id: PathId,
    face: FaceNumber,
    header: Option<Box<LpHeader>>,
    law: Box<dyn CongestionControl>,
    fixed: bool,
    /// The law's, as of the last event.
    window: f64,
    rtt: RttEstimator,
    /// One reaction per window of losses; else one for each loss.
    once_per_window: bool,
    up: bool,
    in_flight: usize,
    /// The highest segment that was sent first on this path.
    newest: Option<u64>,
    /// The highest segment that came.
    highest_data: u64,
    /// `newest` at the last reaction: nothing up to it causes another one.
    recovery_point: Option<u64>,
    timeouts_in_row: u32,
    stats: PathStats,
}

impl Path {
    /// Before its first Interest; its face is down. `once_per_window`: losses of one window cause
    /// one reaction, not one each.
    pub fn new(
        id: PathId,
        options: PathOptions,
        law: Box<dyn CongestionControl>,
        rtt: RttOptions,
        once_per_window: bool,
    ) -> Path {
        Path {
            id,
            face: options.face,
            header: (!options.header.is_empty()).then(|| Box::new(options.header)),
            fixed: law.phase() == LawPhase::Fixed,
            window: law.window(),
            law,
            rtt: RttEstimator::with_options(rtt),
            once_per_window,
            up: false,
            in_flight: 0,
            newest: None,
            highest_data: 0,
            recovery_point: None,
            timeouts_in_row: 0,
            stats: PathStats::default(),
        }
    }

    /// Which of its connection's.
    pub const fn id(&self) -> PathId {
        self.id
    }

    /// The face that its Interests leave by.
    pub const fn face(&self) -> FaceNumber {
        self.face
    }

    /// Header fields of each of its Interests.
    pub fn header(&self) -> Option<&LpHeader> {
        self.header.as_deref()
    }

    /// Changes the header fields: what is sent from now on goes another way.
    pub fn set_header(&mut self, header: LpHeader) {
        self.header = (!header.is_empty()).then(|| Box::new(header));
    }

    /// Window in segments.
    pub const fn window(&self) -> f64 {
        self.window
    }

    /// Segments a second that may leave; `None` if the window alone decides.
    pub fn pacing_rate(&self) -> Option<f64> {
        self.law.pacing_rate()
    }

    /// True if its window never changes: time-outs and losses mean nothing to it.
    pub const fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Its estimator of round trips.
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Interests in flight.
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// True while its face is up.
    pub const fn is_up(&self) -> bool {
        self.up
    }

    /// True if it is up and one more Interest fits into its window.
    pub fn has_room(&self) -> bool {
        self.up && self.in_flight < self.window as usize
    }

    /// True after two time-outs in a row, or a refusal, until a Data comes: what was lost on it had
    /// better go another way.
    pub const fn is_failing(&self) -> bool {
        self.timeouts_in_row >= FAILING
    }

    /// Counters so far.
    pub const fn stats(&self) -> &PathStats {
        &self.stats
    }

    /// What coupled laws and observers see.
    pub fn state(&self) -> PathState {
        PathState {
            id: self.id,
            up: self.up,
            window: self.window,
            threshold: self.law.threshold(),
            phase: self.law.phase(),
            in_flight: self.in_flight,
            smoothed: self.rtt.smoothed(),
            least_rtt: self.rtt.least(),
            timeout: self.rtt.timeout(),
        }
    }

    /// How long an answer is waited for: the Interest itself is gone after its lifetime.
    pub fn patience(&self, lifetime: Duration) -> Duration {
        if self.fixed {
            lifetime
        } else {
            self.rtt.timeout().min(lifetime)
        }
    }

    /// An Interest for `segment` leaves, for the first time on any path or once more.
    pub fn on_sent(&mut self, segment: u64, first: bool) {
        self.in_flight += 1;
        self.stats.sent += 1;
        if first {
            self.newest = self.newest.max(Some(segment));
        }
    }

    /// A Data came. True if its mark shrank the window.
    pub fn on_answer(&mut self, answer: &Answer, states: &[PathState]) -> bool {
        self.highest_data = self.highest_data.max(answer.segment);
        self.timeouts_in_row = 0;
        self.stats.delivered += 1;
        self.stats.bytes += answer.bytes as u64;
        let others = self.in_flight.saturating_sub(usize::from(answer.in_flight));
        if let Some(rtt) = answer.rtt {
            self.rtt.sample_of(rtt, others.div_ceil(2).max(1) as u64);
        }
        let delivered = Delivered {
            now: answer.now,
            bytes: answer.bytes,
            rtt: answer.rtt,
            smoothed: self.rtt.smoothed(),
            segment: answer.segment,
            newest: self.newest.unwrap_or(0),
            in_flight: self.in_flight,
            marked: answer.marked,
            limit: answer.limit,
        };
        let siblings = Siblings {
            own: self.id,
            paths: states,
        };
        self.law.on_delivered(&delivered, &siblings);
        let reacts = answer.marked && self.reacts_to(self.highest_data);
        if reacts {
            self.recovery_point = self.newest;
            self.law
                .on_congestion(answer.now, Congestion::Mark, &siblings);
            self.stats.mark_decreases += 1;
        }
        self.window = self.law.window();
        self.in_flight = others;
        reacts
    }

    /// An Interest in flight was found lost, or is not waited for any longer.
    pub fn on_removed(&mut self, lost: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.stats.lost += u64::from(lost);
    }

    /// Segments up to `highest` were found lost together. True if that shrank the window.
    pub fn on_loss(
        &mut self,
        now: Time,
        highest: u64,
        sign: Congestion,
        states: &[PathState],
    ) -> bool {
        if sign == Congestion::Timeout {
            self.timeouts_in_row = self.timeouts_in_row.saturating_add(1);
        }
        if self.fixed || !self.reacts_to(highest) {
            return false;
        }
        self.recovery_point = self.newest;
        let siblings = Siblings {
            own: self.id,
            paths: states,
        };
        self.law.on_congestion(now, sign, &siblings);
        self.window = self.law.window();
        self.rtt.back_off();
        self.stats.loss_decreases += 1;
        true
    }

    fn reacts_to(&self, segment: u64) -> bool {
        !self.once_per_window || self.recovery_point.is_none_or(|point| segment > point)
    }

    /// The network says that this path does not lead to the content.
    pub fn on_refused(&mut self) {
        self.timeouts_in_row = FAILING;
    }

    /// Its face came up or went down. What was in flight is to be removed by the owner.
    pub fn set_up(&mut self, up: bool) {
        self.up = up;
        self.timeouts_in_row = 0;
        // A face that comes up may lead elsewhere than the one before.
        if up && self.stats.sent > 0 {
            self.law.restart();
            self.window = self.law.window();
            self.recovery_point = None;
        }
    }
}
