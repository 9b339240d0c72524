//! Sharing of a bottleneck queue with loss-based senders.
//!
//! The model of the path keeps the queue short by draining it. A loss-based sender fills the drained
//! queue at once, so a sender that always drains is left with the remaining bandwidth. [`Contest`]
//! detects a queue that stands although this hop drains its part of it, and from then on holds a
//! window as CUBIC does (RFC 9438): no more than one flow of a kernel's TCP. A trial, a few round
//! trips with little in flight, shows whether a competing flow is still there. It begins right after
//! a loss, because competing hops have detected that loss as well and drain at the same time.

use core::time::Duration;

use whimbrel_core::Time;

/// A trial begins after a queue has stood for this many rounds although this hop makes room.
const SUSPICIOUS_ROUNDS: u32 = 5;
/// A queue that is always full has round trips as flat as those of a longer path. It overflows: what
/// is lost exceeds the random loss by this factor and this share. ...
const OVERFLOW: (f64, f64) = (1.5, 0.01);
/// ... A longer path may also lose more than the one before, so this many flat trials in a row are
/// believed: if competing flows answer to losses, the queue is not full for so long.
const FLAT_TRIALS: u32 = 3;
/// Factor of the window after a loss, and its growth afterwards in packets per cubic second (RFC
/// 9438 §4.1 and §4.6).
const BETA: f64 = 0.7;
const CUBIC: f64 = 0.4;
/// Factor of the window after the first mark: the queue is short, and may be this hop's own (RFC
/// 8511 §3). Beside competing flows a mark counts as a loss, as RFC 3168 §5 requires.
const MARKED_BETA: f64 = 0.85;
/// Packets per round trip by which Reno with that `BETA` grows on average (RFC 9438 §4.3).
const RENO: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Growth of the window of a new contest, as a part of the acknowledged bytes.
const APPROACH: f64 = 0.25;
/// Bytes in flight during a trial, as a share of the bandwidth-delay product.
const TRIAL_SHARE: f64 = 0.75;
/// Time between two trials; each trial that finds a competing flow makes it longer.
const TRIAL_PAUSE: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(30));
/// After this many pauses a trial begins even without a loss.
const LONGEST_PAUSES: u32 = 3;
/// Time for which the window of a contest is remembered.
const MEMORY: Duration = Duration::from_secs(30);
/// All BBR flows of a queue empty it every 10 s for 200 ms, to measure the round trip without a
/// queue. Flows that react to losses never empty a queue of a round trip or more, and shorter ones
/// after every loss. So a queue that stood for a time between these bounds, or twice that if a hop with
/// few packets has missed it once, and is then empty for the second time below is BBR's. ...
const BBR_STANDS: (Duration, Duration) = (Duration::from_secs(8), Duration::from_secs(11));
/// ... Beside BBR that is known the first time is enough: this hop's own packets shorten it.
const BBR_EMPTY: (Duration, Duration) = (Duration::from_millis(120), Duration::from_millis(170));
/// After it has emptied the queue, BBR is taken to be present for two of its periods and a little:
/// one may pass unseen.
const BBR_TIME: Duration = Duration::from_millis(22_500);
/// Round trips that differ by less than this show no queue at all.
const FLAT: Duration = Duration::from_millis(1);
/// If the slowest round delivered at least this share of the fastest, there was no competing flow.
const STEADY: f64 = 0.85;
/// In a queue of more than this many bandwidth-delay products, a loss leaves less of the window, by
/// this much for each of two further products: a queue that deep delays all flows.
const DEEP: (f64, f64) = (2.0, 0.05);
/// Smallest window, in packets.
const MIN_WINDOW: f64 = 4.0;

/// Returns the time of a trial beyond the round trip in which its beginning shows.
fn trial_span(base: Duration) -> Duration {
    base * 5 / 4 + Duration::from_millis(10)
}

/// What the model of the path knows when an answer arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) now: Time,
    pub(super) rtt: Duration,
    /// Round trip without a queue.
    pub(super) base: Duration,
    /// Part of `rtt` beyond `base` that the hop's own bursts explain, at its present rate.
    pub(super) slack: Duration,
    pub(super) acked: u64,
    pub(super) delivery: Option<f64>,
    pub(super) loss: f64,
    /// Smoothed share of the sent bytes that is lost while no queue stands.
    pub(super) random_loss: f64,
    /// True if a queue on the path has marked frames (ECN).
    pub(super) marked: bool,
    pub(super) limited: bool,
    pub(super) round_over: bool,
    /// Rounds in a row with a standing queue.
    pub(super) queued_rounds: u32,
    /// Bytes per second.
    pub(super) bandwidth: f64,
}

/// What the model of the path should change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    None,
    /// The queue is gone: it was this hop's own, or the competing flows have ended.
    Alone,
    /// No queue, but a longer path with this round trip.
    Longer(Duration),
    /// A competing flow does not answer to losses.
    Beside,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The model of the path sets pace and window.
    Calm,
    /// Few bytes are in flight until `until`; `least` and `most` are the round trips seen.
    Trial {
        until: Time,
        least: Duration,
        most: Duration,
        contending: bool,
    },
    /// The contest's window applies.
    Contending,
    /// A competing flow does not react to losses: until `until` the model of the path sets the
    /// pace, and does not drain the queue.
    Blunt { until: Time },
}

#[derive(Clone, Debug)]
pub(super) struct Contest {
    state: State,
    packet: f64,
    // The windows of CUBIC and of Reno, in bytes.
    window: f64,
    reno: f64,
    top: f64,
    // The factor that the last loss applied to the top.
    left: f64,
    // When this growth of the window began; `None` while the window approaches the first loss.
    epoch: Option<Time>,
    cut_at: Time,
    marked_at: Option<Time>,
    deaf_until: Time,
    rtt: Duration,
    // Longest recent round trip.
    peak: Duration,
    // Smoothed over 32 rounds, and over 4.
    loss: f64,
    recent_loss: f64,
    next_trial: Time,
    // Trials in a row whose round trips did not vary, although the queue may be full.
    flat_trials: u32,
    // The smallest slack since the contest began: at a falling rate, the hop's own bursts seem to
    // explain more and more.
    slack: Duration,
    // When the queue was last empty for [`BBR_EMPTY`] or longer, and since when it has been empty now.
    stood_since: Time,
    empty_since: Option<Time>,
    // For how long it had stood when it became empty.
    stood: Duration,
    pause: Duration,
    ended: Option<Time>,
    // Delivery rates of the slowest and the fastest round since the last trial.
    deliveries: (f64, f64),
    trial_window: f64,
}

impl Contest {
    pub(super) fn new(now: Time) -> Contest {
        Contest {
            state: State::Calm,
            packet: 1_400.0,
            window: 0.0,
            reno: 0.0,
            top: 0.0,
            left: BETA,
            epoch: None,
            cut_at: now,
            marked_at: None,
            deaf_until: now,
            rtt: Duration::ZERO,
            peak: Duration::ZERO,
            loss: 0.0,
            recent_loss: 0.0,
            next_trial: now,
            flat_trials: 0,
            slack: Duration::MAX,
            stood_since: now,
            empty_since: None,
            stood: Duration::ZERO,
            pause: TRIAL_PAUSE.0,
            ended: None,
            deliveries: (f64::MAX, 0.0),
            trial_window: 0.0,
        }
    }

    pub(super) fn set_packet(&mut self, bytes: usize) {
        self.packet = bytes.max(1) as f64;
    }

    /// Returns true unless the model of the path rules alone.
    pub(super) fn is_on(&self) -> bool {
        self.state != State::Calm
    }

    /// Returns true if competing flows were there a short time ago.
    pub(super) fn is_remembered(&self, now: Time) -> bool {
        self.ended.is_some_and(|ended| now.since(ended) < MEMORY)
    }

    /// Returns the bytes in flight during a trial.
    pub(super) fn trial_window(&self) -> Option<u64> {
        matches!(self.state, State::Trial { .. }).then_some(self.trial_window as u64)
    }

    /// Returns true while the contest's window applies.
    pub(super) fn is_contending(&self) -> bool {
        self.state == State::Contending
    }

    /// Returns true while the model of the path rules, but makes no room.
    pub(super) fn is_blunt(&self) -> bool {
        matches!(self.state, State::Blunt { .. })
    }

    /// Returns the share of the sent bytes that is lost beside competing flows.
    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// Returns the bound of the bytes in flight, unless the model of the path sets it.
    pub(super) fn cap(&self) -> Option<u64> {
        match self.state {
            State::Calm | State::Blunt { .. } => None,
            State::Trial { .. } => Some(self.trial_window as u64),
            State::Contending => Some(self.window as u64),
        }
    }

    /// Returns the pace in bytes per second, unless the model of the path sets it. The window is
    /// the limit; the pace spreads its bytes evenly.
    pub(super) fn pace(&self) -> Option<f64> {
        let window = match self.state {
            State::Calm | State::Blunt { .. } => return None,
            State::Trial { .. } => self.trial_window,
            State::Contending => self.window,
        };
        Some(1.2 * window / self.rtt.as_secs_f64().max(1e-5))
    }

    /// Forgets all competing flows: the path has changed, or was out.
    pub(super) fn forget(&mut self) {
        self.state = State::Calm;
        self.ended = None;
        (self.loss, self.recent_loss) = (0.0, 0.0);
        self.flat_trials = 0;
    }

    pub(super) fn sample(&mut self, view: &View) -> Verdict {
        self.rtt = if self.rtt.is_zero() {
            view.rtt
        } else {
            (self.rtt * 7 + view.rtt) / 8
        };
        self.peak = self.peak.max(view.rtt);
        if view.marked {
            self.marked_at = Some(view.now);
        }
        if view.round_over {
            self.note_loss(view);
        }
        let is_bbr = self.is_emptied_by_bbr(view);
        match self.state {
            State::Calm | State::Blunt { .. } if view.marked => {
                // A queue that marks frames has been shown to be too long, so no trial is needed.
                self.begin(view);
                self.cut(view, MARKED_BETA);
                self.state = State::Contending;
                (self.pause, self.next_trial) = (TRIAL_PAUSE.0, view.now + TRIAL_PAUSE.0);
                self.deliveries = (f64::MAX, 0.0);
                Verdict::None
            }
            State::Calm => {
                if view.queued_rounds >= SUSPICIOUS_ROUNDS && view.round_over {
                    self.begin_trial(view, false);
                }
                Verdict::None
            }
            State::Trial { .. } => self.watch_trial(view),
            State::Contending | State::Blunt { .. } if is_bbr => {
                let until = view.now + BBR_TIME;
                let is_new = self.is_contending();
                self.state = State::Blunt { until };
                match is_new {
                    true => Verdict::Beside,
                    false => Verdict::None,
                }
            }
            State::Contending => {
                self.contend(view);
                Verdict::None
            }
            State::Blunt { until } => {
                if view.now >= until {
                    self.begin(view);
                    self.begin_trial(view, true);
                }
                Verdict::None
            }
        }
    }

    fn is_empty(&self, view: &View) -> bool {
        view.rtt <= view.base.saturating_add(self.slack)
    }

    /// Returns true if BBR has just emptied the queue.
    fn is_emptied_by_bbr(&mut self, view: &View) -> bool {
        self.slack = match self.state {
            State::Calm => view.slack,
            _ => self.slack.min(view.slack),
        };
        let least = FLAT.max(view.base / 16).min(self.slack);
        if self.state != State::Calm && view.rtt > view.base + least {
            self.empty_since = None;
            return false;
        }
        let stood = view.now.since(self.stood_since);
        let since = *self.empty_since.get_or_insert_with(|| {
            self.stood = stood;
            view.now
        });
        let long = match self.is_blunt() {
            true => BBR_EMPTY.0,
            false => BBR_EMPTY.1,
        };
        if view.now.since(since) < long {
            return false;
        }
        self.stood_since = view.now;
        // BBR ignores marks, and a queue that marks is kept short by others.
        let is_marked = self
            .marked_at
            .is_some_and(|at| view.now.since(at) < BBR_STANDS.1);
        if is_marked {
            return false;
        }
        let is_period = |time| time >= BBR_STANDS.0 && time < BBR_STANDS.1;
        let is_bbr = match self.state {
            _ if !is_period(self.stood) && !is_period(self.stood / 2) => false,
            State::Blunt { .. } => true,
            // Competing hops have heard the loss at which this one cut its window. Their trials empty
            // the queue too, but by then they are over.
            State::Contending => {
                view.now.since(self.cut_at) >= self.peak + trial_span(view.base) + view.base
            }
            State::Calm | State::Trial { .. } => false,
        };
        if is_bbr {
            // A queue that then stays empty shows nothing more.
            self.stood = Duration::ZERO;
        }
        is_bbr
    }

    fn note_loss(&mut self, view: &View) {
        let loss = view.loss.clamp(0.0, 1.0);
        self.loss += (loss - self.loss) / 32.0;
        self.recent_loss += (loss - self.recent_loss) / 4.0;
        self.peak = self
            .peak
            .saturating_sub(self.peak.saturating_sub(view.base) / 64);
        if let Some(delivery) = view.delivery.filter(|_| !view.limited) {
            let (slowest, fastest) = self.deliveries;
            self.deliveries = (slowest.min(delivery), fastest.max(delivery));
        }
    }

    fn begin_trial(&mut self, view: &View, contending: bool) {
        let base = view.base;
        self.state = State::Trial {
            until: view.now + view.rtt + trial_span(base),
            least: Duration::MAX,
            most: Duration::ZERO,
            contending,
        };
        let rate = view.delivery.unwrap_or(view.bandwidth).min(view.bandwidth);
        let held = TRIAL_SHARE * rate * base.as_secs_f64();
        self.trial_window = held.max(MIN_WINDOW * self.packet);
    }

    fn watch_trial(&mut self, view: &View) -> Verdict {
        let State::Trial {
            until,
            ref mut least,
            ref mut most,
            contending,
        } = self.state
        else {
            return Verdict::None;
        };
        *least = view.rtt.min(*least);
        *most = view.rtt.max(*most);
        let (least, most) = (*least, *most);
        if self.is_empty(view) {
            self.leave(view.now);
            self.pause = TRIAL_PAUSE.0;
            return Verdict::Alone;
        }
        if view.now < until {
            return Verdict::None;
        }
        let flat = most - least <= FLAT.max(least / 32);
        let (slowest, fastest) = self.deliveries;
        let steady = contending && fastest > 0.0 && slowest >= STEADY * fastest;
        let overflows = self.recent_loss > OVERFLOW.0 * view.random_loss + OVERFLOW.1;
        let is_quiet = flat || steady;
        self.flat_trials = match is_quiet {
            true => self.flat_trials + 1,
            false => 0,
        };
        if is_quiet && (!overflows || self.flat_trials >= FLAT_TRIALS) {
            self.leave(view.now);
            return Verdict::Longer(least);
        }
        self.pause = match contending {
            true => (self.pause * 2).min(TRIAL_PAUSE.1),
            false => TRIAL_PAUSE.0,
        };
        self.next_trial = view.now + self.pause;
        self.deliveries = (f64::MAX, 0.0);
        if !contending {
            self.begin(view);
        }
        self.state = State::Contending;
        Verdict::None
    }

    fn begin(&mut self, view: &View) {
        let flight = view.bandwidth * view.rtt.as_secs_f64();
        if !self.is_remembered(view.now) {
            self.window = 0.0;
            self.epoch = None;
        } else if self.epoch.is_some() {
            self.epoch = Some(view.now);
        }
        self.window = self.window.max(flight).max(MIN_WINDOW * self.packet);
        self.top = self.top.max(self.window);
        self.reno = self.window;
        self.loss = 0.0;
        self.deaf_until = view.now + view.rtt * 2;
    }

    fn leave(&mut self, now: Time) {
        if self.state == State::Contending
            || matches!(
                self.state,
                State::Trial {
                    contending: true,
                    ..
                }
            )
        {
            self.ended = Some(now);
        }
        self.state = State::Calm;
        self.deliveries = (f64::MAX, 0.0);
        self.flat_trials = 0;
    }

    fn contend(&mut self, view: &View) {
        let heard = view.now >= self.deaf_until;
        // A loss well below the top of the queue was not caused by the queue.
        let full = view.rtt >= view.base + self.peak.saturating_sub(view.base) / 2;
        let lost = full && view.loss * self.window >= self.packet / 2.0;
        if heard && (lost || view.marked) {
            self.cut(view, self.left_by_loss(view));
            if view.marked {
                // Senders that react to marks keep the queue short, so a trial would find no
                // competing flow.
                self.next_trial = view.now + self.pause;
            } else if view.now >= self.next_trial {
                self.begin_trial(view, true);
            }
            return;
        }
        if view.now >= self.next_trial + self.pause * LONGEST_PAUSES {
            self.begin_trial(view, true);
            return;
        }
        if !view.limited {
            self.grow(view);
        }
    }

    /// Returns the seconds in which the window grows back to the size before the cut.
    fn rise(&self) -> f64 {
        let gap = (1.0 - self.left) * self.top;
        (gap / (self.packet * CUBIC)).cbrt()
    }

    /// Returns the factor of the window after a loss: less in a deep queue.
    fn left_by_loss(&self, view: &View) -> f64 {
        let queue = view.rtt.saturating_sub(view.base).as_secs_f64();
        let depth = queue / view.base.as_secs_f64().max(1e-5) - DEEP.0;
        BETA - DEEP.1 * depth.clamp(0.0, 2.0)
    }

    fn cut(&mut self, view: &View, left: f64) {
        // A flow with less than before leaves more to those that have joined (RFC 9438 §4.7).
        self.top = if self.window < self.top && self.epoch.is_some() {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.left = left;
        self.window = (self.window * self.left).max(MIN_WINDOW * self.packet);
        self.reno = self.window;
        self.epoch = Some(view.now);
        self.cut_at = view.now;
        self.deaf_until = view.now + view.rtt * 2;
    }

    fn grow(&mut self, view: &View) {
        let acked = view.acked as f64;
        let Some(epoch) = self.epoch else {
            self.window += APPROACH * acked;
            return;
        };
        let units = self.packet * CUBIC;
        let ahead = (view.now.since(epoch) + view.rtt).as_secs_f64() - self.rise();
        let cubic = self.top + units * ahead.powi(3);
        self.reno += RENO * self.packet * acked / self.window;
        // At most 1.5 times as much in a round trip (RFC 9438 §4.4).
        let most = self.window + acked / 2.0;
        self.window = cubic.max(self.reno).clamp(self.window, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For any answers, a trial ends in time, window and pace stay within bounds, and an empty
        /// path ends every contest.
        #[test]
        fn no_answers_lock_it_or_drive_it_out_of_bounds(
            answers in proptest::collection::vec(
                (0u64..400, 0.0f64..1.0, any::<(bool, bool, bool)>(), 0u32..12, 0.0f64..1e10),
                1..400,
            ),
        ) {
            let mut contest = Contest::new(Time::ZERO);
            contest.set_packet(1_400);
            let base = Duration::from_millis(50);
            let mut now = Time::ZERO;
            let mut view = View {
                now,
                rtt: base,
                base,
                slack: base / 8,
                acked: 20_000,
                delivery: Some(1e6),
                loss: 0.0,
                random_loss: 0.0,
                marked: false,
                limited: false,
                round_over: true,
                queued_rounds: 0,
                bandwidth: 1e6,
            };
            for (late, loss, (limited, round_over, marked), queued_rounds, rate) in answers {
                let rtt = base + Duration::from_millis(late);
                now += rtt / 4;
                let (delivery, bandwidth) = (Some(rate), rate);
                view = View {
                    now, rtt, loss, limited, round_over, marked, queued_rounds, delivery,
                    bandwidth, random_loss: loss / 2.0, ..view
                };
                contest.sample(&view);
                if let State::Trial { until, .. } = contest.state {
                    prop_assert!(until.since(now) < Duration::from_secs(1));
                }
                if let Some(cap) = contest.cap() {
                    prop_assert!(cap as f64 >= MIN_WINDOW * 1_400.0 - 1.0);
                    // Acknowledged bytes bound the growth.
                    prop_assert!(cap < 1 << 36, "{}", cap);
                    prop_assert!(contest.pace().is_some_and(|pace| pace > 0.0 && pace.is_finite()));
                }
            }
            let empty = View { rtt: base, loss: 0.0, marked: false, queued_rounds: 0, ..view };
            for _ in 0..8_000 {
                now += base;
                contest.sample(&View { now, ..empty });
            }
            prop_assert!(!contest.is_on(), "{:?}", contest.state);
        }
    }
}
