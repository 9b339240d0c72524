//! The paths of a consumer's Interests, each with a window and a timeout of its own.
//!
//! A [`Path`] is the unit that a congestion law controls: a face, and header fields that tell the
//! network how to forward an Interest from there (for example a NextHopFaceId towards a local
//! router). It owns the law, the estimator of round trips, the count of Interests in flight and the
//! recovery point: no Interest sent before a reaction to a loss causes another one. A Data that answers
//! an Interest after its loss was declared undoes the reaction (module `repair`). Losses of one
//! path do not affect the others. [`Paths`] are those of one connection; they schedule, and show
//! the state of all to a coupled law.

mod repair;
mod set;
mod tag;

use core::time::Duration;

use whimbrel_core::{RttEstimator, RttOptions, Time};
use whimbrel_ndn_packet::LpHeader;

use crate::application::FaceNumber;
use crate::congestion::{Congestion, CongestionControl, Delivered, LawPhase, Siblings};
use crate::ledger::Sent;
use repair::Queueing;
pub use repair::ReorderingWindow;
pub use set::Paths;
pub use tag::PathTag;

/// Consecutive timeouts after which a path is failing.
const FAILING: u32 = 2;
/// Bounds of the wait of a path with a window below 1.
const MIN_WINDOW: f64 = 1.0 / 64.0;
const MAX_HOLD: Duration = Duration::from_secs(10);

/// The number of a path within one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

impl PathId {
    /// The only path of a connection with one.
    pub const FIRST: PathId = PathId(0);

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The first hop of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// The application's face for its Interests.
    pub face: FaceNumber,
    /// Link header fields of each of its Interests.
    pub header: LpHeader,
}

/// The state of a path, for coupled laws and observers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathState {
    /// The path.
    pub id: PathId,
    /// Its face is up, and it is in use for more than probes.
    pub up: bool,
    /// Window in segments.
    pub window: f64,
    /// Slow-start threshold in segments.
    pub threshold: f64,
    /// The phase of its law.
    pub phase: LawPhase,
    /// Interests in flight.
    pub in_flight: usize,
    /// Smoothed round-trip time.
    pub smoothed: Option<Duration>,
    /// Shortest round trip.
    pub least_rtt: Option<Duration>,
    /// Retransmission timeout.
    pub timeout: Duration,
}

/// Counters of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathStats {
    /// Interests sent.
    pub sent: u64,
    /// Data received.
    pub delivered: u64,
    /// Octets of their content.
    pub bytes: u64,
    /// Interests declared lost.
    pub lost: u64,
    /// Decreases of the window because of losses.
    pub loss_decreases: u64,
    /// Of these, decreases that late Data have undone.
    pub undone_decreases: u64,
    /// Decreases of the window because of congestion marks.
    pub mark_decreases: u64,
}

/// A Data that answers an Interest of a path.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Time of arrival.
    pub now: Time,
    /// Its segment.
    pub segment: u64,
    /// Octets of its content.
    pub bytes: usize,
    /// Its round trip, unless the Interest was retransmitted (Karn's algorithm).
    pub rtt: Option<Duration>,
    /// It answers the latest transmission of its Interest; see [`Path::answers_latest`].
    pub to_latest: bool,
    /// Its Interest was declared lost on this path, and it answers an earlier transmission than a
    /// repetition: the time since that one, at most.
    pub late: Option<Duration>,
    /// The Interest was in flight, not declared lost before.
    pub in_flight: bool,
    /// It has a congestion mark, and marks are not ignored.
    pub marked: bool,
    /// The label of the route that it took, if the routers label routes.
    pub route: Option<u64>,
    /// It came from a cache or an aggregated Interest, not from the end of the path.
    pub intermediate: bool,
    /// Maximum of the window in segments.
    pub limit: f64,
}

/// A reaction to losses that may turn out to be none.
#[derive(Debug)]
struct Doubtful {
    /// The law before the reaction.
    law: Box<dyn CongestionControl>,
    /// The segments that it is for: those sent before it.
    until: u64,
}

/// One path to the content; see the module.
#[derive(Debug)]
pub struct Path {
    id: PathId,
    face: FaceNumber,
    header: Option<Box<LpHeader>>,
    law: Box<dyn CongestionControl>,
    fixed: bool,
    /// The law's window, as of the last event.
    window: f64,
    rtt: RttEstimator,
    /// One reaction per window of losses; else one for each loss.
    once_per_window: bool,
    up: bool,
    /// No Interests are sent on it for now.
    resting: bool,
    /// Its few Interests find other paths.
    probing: bool,
    in_flight: usize,
    /// With a window below 1: no Interest is sent before this time.
    held_until: Option<Time>,
    /// The highest segment whose first transmission was on this path.
    newest: Option<u64>,
    /// The highest segment received.
    highest_data: u64,
    /// `newest` at the last reaction: losses up to it do not cause another one.
    recovery_point: Option<u64>,
    doubtful: Option<Doubtful>,
    reordering: ReorderingWindow,
    queueing: Queueing,
    /// The latest transmission that was answered.
    latest_answered: Time,
    /// A back-off has ended without a sample since the last sample.
    is_timeout_doubtful: bool,
    timeouts_in_row: u32,
    stats: PathStats,
}

impl Path {
    /// Returns a path before its first Interest; its face is down. `once_per_window`: losses of one
    /// window cause one reaction, not one each.
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
            resting: false,
            probing: false,
            in_flight: 0,
            held_until: None,
            newest: None,
            highest_data: 0,
            recovery_point: None,
            doubtful: None,
            reordering: ReorderingWindow::default(),
            queueing: Queueing::default(),
            latest_answered: Time::ZERO,
            is_timeout_doubtful: false,
            timeouts_in_row: 0,
            stats: PathStats::default(),
        }
    }

    /// Returns its number within the connection.
    pub const fn id(&self) -> PathId {
        self.id
    }

    /// Returns the face for its Interests.
    pub const fn face(&self) -> FaceNumber {
        self.face
    }

    /// Header fields of each of its Interests.
    pub fn header(&self) -> Option<&LpHeader> {
        self.header.as_deref()
    }

    /// Changes the header fields of all further Interests.
    pub fn set_header(&mut self, header: LpHeader) {
        self.header = (!header.is_empty()).then(|| Box::new(header));
    }

    /// Window in segments.
    pub const fn window(&self) -> f64 {
        self.window
    }

    /// Segments per second to send; `None` if the window alone limits them.
    pub fn pacing_rate(&self) -> Option<f64> {
        self.law.pacing_rate()
    }

    /// Returns true if its window never changes: timeouts and losses do not affect it.
    pub const fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Returns its estimator of round trips.
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Interests in flight.
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns true while its face is up and it does not rest.
    pub const fn is_up(&self) -> bool {
        self.up && !self.resting
    }

    /// Whether no further Interests are sent on it. Those in flight are answered or time out.
    pub const fn set_resting(&mut self, resting: bool) {
        self.resting = resting;
    }

    /// Returns true if no further Interests are sent on it for now.
    pub const fn is_resting(&self) -> bool {
        self.resting
    }

    /// Returns true while answers may arrive: its face is up.
    pub const fn may_answer(&self) -> bool {
        self.up
    }

    /// Returns true if its Interests only find other paths.
    pub const fn is_probing(&self) -> bool {
        self.probing
    }

    /// Returns a path for probes: no other path's law takes it into account.
    pub const fn probing(mut self) -> Path {
        self.probing = true;
        self
    }

    /// Returns true if it is up and its window has room for one more Interest.
    pub fn has_room(&self) -> bool {
        self.is_up() && self.held_until.is_none() && self.in_flight < self.window.max(1.0) as usize
    }

    /// Returns true after two consecutive timeouts, or a refusal, until a Data arrives: its lost
    /// Interests are better sent on another path.
    pub const fn is_failing(&self) -> bool {
        self.timeouts_in_row >= FAILING
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &PathStats {
        &self.stats
    }

    /// Returns its state for coupled laws and observers.
    pub fn state(&self) -> PathState {
        PathState {
            id: self.id,
            up: self.is_up() && !self.probing,
            window: self.window,
            threshold: self.law.threshold(),
            phase: self.law.phase(),
            in_flight: self.in_flight,
            smoothed: self.rtt.smoothed(),
            least_rtt: self.rtt.least(),
            timeout: self.rtt.timeout(),
        }
    }

    /// How long to wait for an answer: at most the Interest's lifetime.
    pub fn patience(&self, lifetime: Duration) -> Duration {
        if self.fixed && !self.probing {
            lifetime
        } else {
            // With a window below 1, no later Data shows a loss, and samples are old: only silence counts.
            let times = if self.window < 1.0 { 2 } else { 1 };
            let timeout = self.rtt.timeout() * times;
            timeout.max(self.overtaken_patience()).min(lifetime)
        }
    }

    /// Records the transmission of an Interest for `segment`, the first one on any path or a
    /// further one.
    pub fn on_sent(&mut self, segment: u64, first: bool) {
        self.in_flight += 1;
        self.stats.sent += 1;
        if first {
            self.newest = self.newest.max(Some(segment));
        }
    }

    /// Handles a Data. Returns true if its mark shrank the window.
    pub fn on_answer(&mut self, answer: &Answer, states: &[PathState]) -> bool {
        self.highest_data = self.highest_data.max(answer.segment);
        self.timeouts_in_row = 0;
        self.stats.delivered += 1;
        self.stats.bytes += answer.bytes as u64;
        let others = self.in_flight.saturating_sub(usize::from(answer.in_flight));
        let siblings = Siblings {
            own: self.id,
            paths: states,
        };
        self.judge_losses(answer, &siblings);
        // "They are ignored for checking the arriving order and updating the RTO" [PTP §5.C.1].
        if let Some(rtt) = answer.rtt.filter(|_| !answer.intermediate) {
            self.rtt.sample_of(rtt, others.div_ceil(2).max(1) as u64);
            self.is_timeout_doubtful = false;
        } else if answer.to_latest && !answer.intermediate {
            self.end_back_off();
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
            route: answer.route,
            intermediate: answer.intermediate,
            lost: self.stats.lost,
            limit: answer.limit,
        };
        self.law.on_delivered(&delivered, &siblings);
        let reacts = answer.marked && self.reacts_to(self.highest_data);
        if reacts {
            self.recovery_point = self.newest;
            self.on_congested();
            self.law
                .on_congestion(answer.now, Congestion::Mark, &siblings);
            self.stats.mark_decreases += 1;
        }
        self.window = self.law.window();
        self.in_flight = others;
        self.hold(answer.now);
        reacts
    }

    /// Returns true if a Data that arrives now answers the latest transmission of its Interest and
    /// not an earlier one. Of a repetition it is assumed that its answer takes at least the path's
    /// shortest round trip (RFC 8985 section 6.2, step 2).
    pub fn answers_latest(&self, now: Time, sent: &Sent) -> bool {
        let least = self.rtt.least();
        let in_time = least.is_some_and(|least| now.since(sent.at) >= least);
        sent.transmissions == 1 || (in_time && !sent.moved)
    }

    /// After a timeout of many Interests only repetitions are answered for a while, and Karn's
    /// algorithm takes no sample of those; meanwhile a lost repetition would cost the timeout of a dead
    /// path. Once between samples an answered repetition ends the back-off: a second time would keep
    /// a path whose round trip has grown beyond its timeout from ever being measured.
    fn end_back_off(&mut self) {
        if self.rtt.is_backed_off() && !self.is_timeout_doubtful {
            self.rtt.end_back_off();
            self.is_timeout_doubtful = true;
        }
    }

    /// With a window below 1: waits before the next Interest, so that one is in flight that share
    /// of the time.
    fn hold(&mut self, now: Time) {
        if self.window >= 1.0 || self.in_flight > 0 {
            return;
        }
        let rtt = self.rtt.smoothed().unwrap_or_default();
        let idle = rtt.mul_f64(1.0 / self.window.max(MIN_WINDOW) - 1.0);
        self.held_until = Some(now + idle.min(MAX_HOLD));
    }

    /// When a path that waits may send again.
    pub const fn held_until(&self) -> Option<Time> {
        self.held_until
    }

    /// Ends its wait if that is over.
    pub fn release(&mut self, now: Time) {
        self.held_until = self.held_until.filter(|until| *until > now);
    }

    /// Handles an Interest in flight that was declared lost or abandoned.
    pub fn on_removed(&mut self, lost: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.stats.lost += u64::from(lost);
    }

    /// Handles the loss of segments up to `highest` at once. Returns true if that shrank the
    /// window.
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
        let each = sign == Congestion::Loss && self.law.counts_each_loss();
        if self.fixed || !(each || self.reacts_to(highest)) {
            return false;
        }
        self.recovery_point = self.newest;
        let siblings = Siblings {
            own: self.id,
            paths: states,
        };
        self.doubt(highest);
        self.law.on_congestion(now, sign, &siblings);
        self.window = self.law.window();
        if !each {
            self.rtt.back_off();
        }
        self.stats.loss_decreases += 1;
        true
    }

    fn reacts_to(&self, segment: u64) -> bool {
        !self.once_per_window || self.recovery_point.is_none_or(|point| segment > point)
    }

    /// Handles the network's refusal: this path does not lead to the content.
    pub fn on_refused(&mut self) {
        self.timeouts_in_row = FAILING;
    }

    /// Handles a face that came up or went down. The owner must remove the Interests in flight.
    pub fn set_up(&mut self, up: bool) {
        self.up = up;
        self.held_until = None;
        self.timeouts_in_row = 0;
        // A face that comes up may lead elsewhere than before.
        if up && self.stats.sent > 0 {
            self.law.restart();
            self.window = self.law.window();
            (self.recovery_point, self.doubtful) = (None, None);
            self.queueing = Queueing::default();
        }
    }
}
