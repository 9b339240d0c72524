//! The sending half of the adaptive profile: tracks transmissions and evaluates the peer's reports.

use core::time::Duration;

use whimbrel_core::{RttEstimator, Time};

use super::wire::{HOLD_WIDE, MAX_REORDERING, MAX_RUNS, Report, ShortNumber, mask};
use crate::ndnlp::outstanding::{Acknowledged, Outstanding};
use crate::ndnlp::piece::Piece;
use crate::ndnlp::stats::{LinkStats, LossMeter};

/// Internal numbers are 64 bits wide and begin above this, so that no report reaches below zero.
const FIRST: u64 = 1 << 32;
/// A probe retransmits a frame of at most this size, rather than only requesting a report.
const SMALL_FRAME: u32 = 256;
/// Silence of the peer while it should report that ends the agreement; eight probes if that is
/// longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum of report requests about a frame before it is retransmitted.
const MAX_ASKS: u8 = 2;

/// In a slot's `later_acks`: the frame was reported missing, or retransmitted by a probe.
const MISSING: u8 = 1;
const PROBED: u8 = 2;

/// What to do about frames without a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// Nothing yet.
    No,
    /// A frame was declared lost: retransmit it, with a request for a report.
    Resend,
    /// Send a request for a report.
    Ask,
    /// The peer is unresponsive.
    Dead,
}

#[derive(Debug)]
pub(super) struct Sender {
    outstanding: Outstanding,
    largest_arrived: u64,
    rtt: RttEstimator,
    loss: LossMeter,
    /// Maximum delay of the peer's reports.
    report_delay: Duration,
    // See `LinkStats::reordering_window`; zero until reordering was seen.
    reordering: Duration,
    reordering_changed: Time,
    // The time at which a frame counts as lost that was reported missing soon after it was sent.
    reordering_due: Option<Time>,
    last_sent: Time,
    // The time of the first frame after the last report.
    unheard_since: Option<Time>,
    last_probe: Time,
    probes: u32,
    asked: Option<(u64, u8)>,
    pub(super) ask: Option<u64>,
    pub(super) resend_asks: bool,
    // The send times of the last 128 frames, and of every 256th one of the last 128 times 256.
    recent_sends: [Time; 128],
    sent_before: [Time; 128],
    // Numbers have at least two octets until this time.
    wide_until: Time,
    found: Vec<u64>,
}

impl Sender {
    /// Returns a sender whose first number ends in `first`.
    pub(super) fn new(first: u32, max_outstanding: usize) -> Sender {
        let first = FIRST + u64::from(first);
        let tick = Duration::from_micros(100);
        Sender {
            outstanding: Outstanding::new(first, max_outstanding),
            largest_arrived: first - 1,
            rtt: RttEstimator::new(Duration::from_millis(100), tick, Duration::from_secs(10)),
            loss: LossMeter::default(),
            report_delay: Duration::from_millis(10),
            reordering: Duration::ZERO,
            reordering_changed: Time::ZERO,
            reordering_due: None,
            last_sent: Time::ZERO,
            unheard_since: None,
            last_probe: Time::ZERO,
            probes: 0,
            asked: None,
            ask: None,
            resend_asks: false,
            recent_sends: [Time::ZERO; 128],
            sent_before: [Time::ZERO; 128],
            wide_until: Time::ZERO,
            found: Vec::new(),
        }
    }

    /// Returns the number of the next frame.
    pub(super) fn next_number(&self) -> u64 {
        self.outstanding.next()
    }

    /// Returns the octets of the next number. One is enough while the last 128 frames took
    /// [`MAX_REORDERING`], fewer than 64 of them are unacknowledged, and no longer number was
    /// needed for [`HOLD_WIDE`]: the receiver relies on all three.
    pub(super) fn next_width(&self, now: Time) -> u8 {
        let next = self.outstanding.next();
        let span = next - self.largest_arrived;
        let slow = |times: &[Time; 128], index: u64| {
            let then = times
                .get((index % 128) as usize)
                .copied()
                .unwrap_or_default();
            then == Time::ZERO || now.since(then) >= MAX_REORDERING
        };
        if span < 64 && now >= self.wide_until && slow(&self.recent_sends, next) {
            1
        } else if span < 1 << 14 && slow(&self.sent_before, next / 256) {
            2
        } else if span < 1 << 22 {
            3
        } else {
            4
        }
    }

    /// Records the transmission of the next frame.
    pub(super) fn sent(
        &mut self,
        now: Time,
        piece: Piece,
        width: u8,
        replaces: Option<u64>,
    ) -> Option<Piece> {
        let number = self.outstanding.next();
        if let Some(at) = self.recent_sends.get_mut((number % 128) as usize) {
            *at = now;
        }
        if number.is_multiple_of(256)
            && let Some(at) = self.sent_before.get_mut((number / 256 % 128) as usize)
        {
            *at = now;
        }
        if width > 1 {
            self.wide_until = now + HOLD_WIDE;
        }
        self.last_sent = now;
        self.unheard_since.get_or_insert(now);
        self.outstanding.push(now, piece, width, replaces)
    }

    /// Handles a report. Appends the frames that it proves lost to `lost`.
    pub(super) fn handle_report(
        &mut self,
        now: Time,
        report: &Report<'_>,
        stats: &mut LinkStats,
        lost: &mut Vec<(u64, Piece)>,
    ) {
        stats.acks_received += 1;
        self.unheard_since = None;
        self.probes = 0;
        let Some(top) = self.find_top(report.top, stats) else {
            return;
        };
        let Some(top_sent) = self.outstanding.slot(top).map(|slot| slot.sent_at) else {
            return;
        };
        // From the lowest to the highest: a spurious retransmission shows before its replacement.
        let mut ranges = [(0, 0, false); MAX_RUNS];
        let mut count = 0;
        let mut end = top;
        for (range, (run, arrived)) in ranges.iter_mut().zip(report.runs()) {
            let start = end.saturating_sub(run);
            *range = (start, end, arrived);
            (end, count) = (start, count + 1);
        }
        for (start, end, arrived) in ranges.iter().take(count).rev() {
            for number in (*start).max(self.outstanding.base())..*end {
                if *arrived {
                    self.arrived(now, number, None, stats);
                } else {
                    self.missing(now, number, top_sent, stats, lost);
                }
            }
        }
        let waited = self.report_delay * u32::from(report.waited) / 3;
        self.arrived(now, top, Some(waited), stats);
        self.shrink_reordering(now);
    }

    /// Returns the number that the top of a report denotes: the newest frame that was sent with a
    /// number of that width and these octets. An older frame is either settled, or was sent with a
    /// longer number.
    fn find_top(&self, top: ShortNumber, stats: &mut LinkStats) -> Option<u64> {
        let newest = self.outstanding.next() - 1;
        let window = mask(top.width) + 1;
        let mut number = newest - (newest.wrapping_sub(u64::from(top.low)) & (window - 1));
        if number < self.outstanding.base() {
            // It is usually settled. Only a full-width number can be distinguished from one that
            // was never sent.
            stats.drops.false_acks += u64::from(top.width == 4 && newest - number > window / 2);
            return None;
        }
        while number >= self.outstanding.base() {
            if self
                .outstanding
                .slot(number)
                .is_some_and(|slot| slot.width == top.width || top.width == 4)
            {
                return Some(number);
            }
            number = number.saturating_sub(window);
        }
        stats.drops.false_acks += 1;
        None
    }

    fn arrived(&mut self, now: Time, number: u64, waited: Option<Duration>, stats: &mut LinkStats) {
        let overtaken = self
            .outstanding
            .slot(number)
            .is_none_or(|slot| slot.later_acks != PROBED);
        match self.outstanding.acknowledge(number) {
            Acknowledged::Arrived { piece, sent_at } => {
                stats.arrived(&piece);
                self.loss.arrived();
                // A number denotes one transmission only, so each gives a valid RTT sample.
                if let Some(waited) = waited.filter(|_| number > self.largest_arrived) {
                    self.rtt.sample(now.since(sent_at).saturating_sub(waited));
                }
                self.largest_arrived = self.largest_arrived.max(number);
            }
            Acknowledged::Spurious => {
                stats.spurious += 1;
                self.loss.not_lost();
                if overtaken {
                    self.grow_reordering(now);
                }
            }
            Acknowledged::InTime => {
                self.loss.not_lost();
                if overtaken {
                    self.grow_reordering(now);
                }
            }
            Acknowledged::Known | Acknowledged::Unknown => {}
        }
    }

    fn missing(
        &mut self,
        now: Time,
        number: u64,
        top_sent: Time,
        stats: &mut LinkStats,
        lost: &mut Vec<(u64, Piece)>,
    ) {
        let due = self.srtt() + self.reordering;
        let Some(slot) = self.outstanding.slot_mut(number) else {
            return;
        };
        let overdue = top_sent.since(slot.sent_at) >= self.reordering || slot.sent_at + due <= now;
        if !overdue {
            slot.later_acks = MISSING;
            let due = slot.sent_at + due;
            if self.outstanding.is_waiting(number) {
                self.reordering_due = Some(self.reordering_due.map_or(due, |at| at.min(due)));
            }
            return;
        }
        if let Some(piece) = self
            .outstanding
            .declare_lost(now, number, stats, &mut self.loss)
        {
            stats.losses += 1;
            lost.push((number, piece));
        }
    }

    fn srtt(&self) -> Duration {
        self.rtt.smoothed().unwrap_or(Duration::from_millis(100))
    }

    /// Increases the reordering window, up to a round trip, after a frame that was declared lost
    /// arrived.
    fn grow_reordering(&mut self, now: Time) {
        let srtt = self.srtt();
        let least = (srtt / 8).max(Duration::from_micros(250));
        self.reordering = (self.reordering * 2).clamp(least, srtt.max(least));
        self.reordering_changed = now;
    }

    /// Halves the window after 32 round trips, at least a second, without such a frame. Clears a
    /// small one.
    fn shrink_reordering(&mut self, now: Time) {
        if self.reordering.is_zero() {
            return;
        }
        let patience = (self.srtt() * 32).max(Duration::from_secs(1));
        if now.since(self.reordering_changed) >= patience {
            self.reordering_changed = now;
            self.reordering /= 2;
            if self.reordering < self.srtt() / 16 {
                self.reordering = Duration::ZERO;
            }
        }
    }

    /// Declares reported frames lost when their reordering window is over.
    pub(super) fn handle_reordering(
        &mut self,
        now: Time,
        stats: &mut LinkStats,
        lost: &mut Vec<(u64, Piece)>,
    ) {
        if self.reordering_due.is_none_or(|due| due > now) {
            return;
        }
        let wait = self.srtt() + self.reordering;
        let next = self.outstanding.marked_before(now, wait, &mut self.found);
        self.reordering_due = next.map(|sent_at| sent_at + wait);
        while let Some(number) = self.found.pop() {
            if let Some(piece) = self
                .outstanding
                .declare_lost(now, number, stats, &mut self.loss)
            {
                stats.losses += 1;
                lost.push((number, piece));
            }
        }
    }

    /// Returns the maximum time of an answer: a round trip, and the maximum delay of a report.
    fn answer_wait(&self) -> Duration {
        self.rtt.timeout() + Duration::from_millis(1) + self.report_delay
    }

    /// Returns the time to act on the oldest frame: soon if no later frame could show a gap; else
    /// not before two more reports should have arrived, some of which may be lost.
    pub(super) fn probe_due(&self) -> Option<Time> {
        let (_, slot) = self.outstanding.oldest()?;
        let wait = self.answer_wait().saturating_mul(1 << self.probes.min(6));
        let first = slot.sent_at.max(self.last_probe) + wait;
        Some((self.last_sent + wait).clamp(first, first + self.report_delay * 2))
    }

    /// Returns the oldest frame if its acknowledgement is overdue.
    pub(super) fn overdue(&self, now: Time) -> Option<(u64, &Piece)> {
        let (number, slot) = self.outstanding.oldest()?;
        let piece = self.outstanding.piece(number)?;
        (slot.sent_at + self.answer_wait() <= now).then_some((number, piece))
    }

    /// Declares a frame lost because its acknowledgement is overdue.
    pub(super) fn declare_lost(
        &mut self,
        now: Time,
        number: u64,
        stats: &mut LinkStats,
        lost: &mut Vec<(u64, Piece)>,
    ) {
        stats.timeouts += 1;
        if let Some(slot) = self.outstanding.slot_mut(number) {
            slot.later_acks = PROBED;
        }
        if let Some(piece) = self
            .outstanding
            .declare_lost(now, number, stats, &mut self.loss)
        {
            lost.push((number, piece));
        }
    }

    /// Returns the earliest deadline.
    pub(super) fn due(&self) -> Option<Time> {
        match (self.probe_due(), self.reordering_due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Handles an overdue acknowledgement of the oldest frame. `idle`: the queue is empty.
    pub(super) fn handle_silence(
        &mut self,
        now: Time,
        idle: bool,
        stats: &mut LinkStats,
        lost: &mut Vec<(u64, Piece)>,
    ) -> Probe {
        if self.probe_due().is_none_or(|due| due > now) {
            return Probe::No;
        }
        let Some((number, _)) = self.outstanding.oldest() else {
            return Probe::No;
        };
        let wait = self.answer_wait();
        let patience = PATIENCE.max(wait * 8);
        if self
            .unheard_since
            .is_some_and(|since| now.since(since) > patience)
        {
            return Probe::Dead;
        }
        let quiet = idle && now.since(self.last_sent) >= wait / 2;
        self.unheard_since.get_or_insert(now);
        self.last_probe = now;
        self.probes = self.probes.saturating_add(1);
        let asked = self
            .asked
            .filter(|(about, _)| *about == number)
            .map_or(0, |(_, times)| times);
        let small = self
            .outstanding
            .piece(number)
            .is_some_and(|piece| piece.len <= SMALL_FRAME);
        if !small && !quiet && asked < MAX_ASKS {
            self.asked = Some((number, asked + 1));
            self.ask = Some(number);
            stats.timeouts += 1;
            return Probe::Ask;
        }
        self.declare_lost(now, number, stats, lost);
        self.resend_asks = true;
        Probe::Resend
    }

    /// Sets the maximum delay of the peer's reports.
    pub(super) fn set_report_delay(&mut self, delay: Duration) {
        self.report_delay = delay;
    }

    /// Returns true if a piece that was declared lost under this number should still be
    /// retransmitted.
    pub(super) fn still_lost(&self, number: u64) -> bool {
        self.outstanding.is_resending(number)
    }

    pub(super) fn give_up(&mut self, number: u64) {
        self.outstanding.give_up(number);
    }

    pub(super) fn forget_packet(&mut self, packet_id: u64) {
        self.outstanding.forget_packet(packet_id);
    }

    /// Forgets all outstanding frames. Returns their number.
    pub(super) fn abandon(&mut self) -> usize {
        self.unheard_since = None;
        self.reordering_due = None;
        self.probes = 0;
        self.ask = None;
        // Later arrivals are not evidence about the earlier numbers.
        self.largest_arrived = self.outstanding.next() - 1;
        self.outstanding.drain().count()
    }

    /// Returns the round trip, once measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    pub(super) fn loss(&self) -> f64 {
        self.loss.share()
    }

    pub(super) fn report(&self, stats: &mut LinkStats) {
        stats.loss = self.loss.share();
        stats.rtt = self.rtt.smoothed();
        stats.reordering_window = self.reordering;
        stats.outstanding += self.outstanding.waiting();
    }
}
