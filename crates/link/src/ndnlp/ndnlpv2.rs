//! The reliability feature of NDNLPv2, as NFD speaks it, without burdening a peer that does not.
//!
//! A peer cannot be asked whether it has the feature (NFD #4958). So frames carry a TxSequence from
//! the start, but are kept and sent again only once the peer has acknowledged one; after 30 s
//! without an Ack they go without, until the peer itself sends a TxSequence or a single frame, one
//! in 30 s, is acknowledged after all.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{RttEstimator, SeededRng, Time};

use super::outstanding::{Acknowledged, Outstanding};
use super::piece::Piece;
use super::recent::RecentNumbers;
use super::stats::{LinkStats, LossMeter};

/// Acks of as many later frames declare a frame lost (NFD: seqNumLossThreshold).
const LATER_ACKS: u8 = 3;
/// A frame is sent again at most so often (NFD: maxRetx).
const MOST_RETRANSMISSIONS: u8 = 3;
/// An Ack waits at most so long for a frame to travel with (NFD: idleAckTimerPeriod).
const IDLE_ACK: Duration = Duration::from_millis(5);
/// NFD #4958: without an Ack for so long, the peer is taken not to have the feature.
const PATIENCE: Duration = Duration::from_secs(30);
/// Acks that wait, at most: a peer that is not heard cannot make them pile up.
const MOST_ACKS: usize = 4096;
/// A Sequence is remembered for so long at least: the initial time-out of a peer that has no
/// measurement, four times.
const LEAST_MEMORY: Duration = Duration::from_secs(4);
/// Bytes of an Ack field.
const ACK_LEN: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// It may acknowledge: frames carry a TxSequence and are not kept.
    Unknown,
    /// It acknowledges.
    Acknowledges,
    /// It does not.
    Silent,
}

#[derive(Debug)]
pub(crate) struct Ndnlpv2 {
    peer: Peer,
    // When the first frame with a TxSequence was sent after the last Ack.
    unanswered_since: Option<Time>,
    next_trial: Time,
    outstanding: Outstanding,
    rtt: RttEstimator,
    loss: LossMeter,
    acks: VecDeque<u64>,
    ack_due: Option<Time>,
    came: RecentNumbers,
    // Empty between calls.
    overtaken: Vec<u64>,
}

impl Ndnlpv2 {
    pub(crate) fn new(rng: &mut SeededRng, most_outstanding: usize) -> Ndnlpv2 {
        Ndnlpv2::starting(rng.next_word(), most_outstanding)
    }

    /// With this first TxSequence.
    pub(crate) fn starting(first: u64, most_outstanding: usize) -> Ndnlpv2 {
        Ndnlpv2 {
            peer: Peer::Unknown,
            unanswered_since: None,
            next_trial: Time::ZERO,
            outstanding: Outstanding::new(first, most_outstanding),
            // The defaults of ndn-cxx, whose estimator NFD uses.
            rtt: RttEstimator::new(
                Duration::from_secs(1),
                Duration::from_millis(200),
                Duration::from_secs(60),
            ),
            loss: LossMeter::default(),
            acks: VecDeque::new(),
            ack_due: None,
            came: RecentNumbers::default(),
            overtaken: Vec::new(),
        }
    }

    /// True if the peer acknowledges.
    pub(crate) fn is_active(&self) -> bool {
        self.peer == Peer::Acknowledges
    }

    /// True if the next frame with a packet should carry a TxSequence.
    pub(crate) fn wants_number(&mut self, now: Time, stats: &mut LinkStats) -> bool {
        if self.peer != Peer::Silent
            && self
                .unanswered_since
                .is_some_and(|since| now.since(since) > PATIENCE)
        {
            stats.abandoned += self.outstanding.drain().count() as u64;
            self.peer = Peer::Silent;
            self.unanswered_since = None;
            self.next_trial = now + PATIENCE;
        }
        if self.peer == Peer::Silent && now >= self.next_trial {
            self.next_trial = now + PATIENCE;
            return true;
        }
        self.peer != Peer::Silent
    }

    /// The TxSequence of the next frame.
    pub(crate) fn next_number(&self) -> u64 {
        self.outstanding.next()
    }

    /// The next frame, with that TxSequence, was written.
    pub(crate) fn sent(
        &mut self,
        now: Time,
        piece: Piece,
        replaces: Option<u64>,
        stats: &mut LinkStats,
    ) {
        self.unanswered_since.get_or_insert(now);
        if self.peer == Peer::Acknowledges {
            if self.outstanding.push(now, piece, 8, replaces).is_some() {
                stats.abandoned += 1;
            }
        } else {
            self.outstanding.skip();
        }
    }

    /// Takes an Ack; frames that it proves lost go to `lost`.
    pub(crate) fn handle_ack(
        &mut self,
        now: Time,
        number: u64,
        stats: &mut LinkStats,
        lost: &mut Vec<(u64, Piece)>,
    ) {
        stats.acks_received += 1;
        let age = self.outstanding.next().wrapping_sub(number).wrapping_sub(1);
        match self.outstanding.acknowledge(number) {
            Acknowledged::Unknown if age > u64::from(u32::MAX) => {
                stats.drops.false_acks += 1;
                return;
            }
            Acknowledged::Arrived { piece, sent_at } => {
                stats.acknowledged += 1;
                stats.recovered += u64::from(piece.retransmissions > 0);
                self.loss.arrived();
                // Karn: only frames that were sent once.
                if piece.retransmissions == 0 {
                    self.rtt.sample(now.since(sent_at));
                }
            }
            Acknowledged::Spurious => {
                stats.spurious += 1;
                self.loss.not_lost();
            }
            Acknowledged::InTime => self.loss.not_lost(),
            Acknowledged::Known | Acknowledged::Unknown => {
                // Same-round-trip ordering: an Ack for what is settled is normal.
                self.heard();
                return;
            }
        }
        self.heard();
        self.outstanding
            .count_later(number, LATER_ACKS, &mut self.overtaken);
        while let Some(earlier) = self.overtaken.pop() {
            stats.losses += 1;
            if let Some(piece) = self
                .outstanding
                .declare_lost(now, earlier, stats, &mut self.loss)
            {
                lost.push((earlier, piece));
            }
        }
    }

    fn heard(&mut self) {
        self.peer = Peer::Acknowledges;
        self.unanswered_since = None;
    }

    /// Sends the frames again of which nothing was heard for a retransmission time-out.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Time,
        stats: &mut LinkStats,
        lost: &mut Vec<(u64, Piece)>,
    ) {
        while let Some((number, slot)) = self.outstanding.oldest() {
            // No back-off, and the same time for all: the oldest frame is always the first one due.
            if slot.sent_at + self.rtt.timeout() > now {
                break;
            }
            stats.timeouts += 1;
            if let Some(piece) = self
                .outstanding
                .declare_lost(now, number, stats, &mut self.loss)
            {
                lost.push((number, piece));
            }
        }
    }

    /// True if a piece that was found lost under this number should still be sent again.
    pub(crate) fn still_lost(&self, number: u64) -> bool {
        self.outstanding.is_resending(number)
    }

    /// True if a frame that was sent so often before may be sent again.
    pub(crate) fn may_resend(piece: &Piece) -> bool {
        piece.retransmissions < MOST_RETRANSMISSIONS
    }

    /// A frame that was found lost will not be sent again.
    pub(crate) fn give_up(&mut self, number: u64) {
        self.outstanding.give_up(number);
    }

    /// A frame with a packet and this TxSequence came. True if it had come before, by its Sequence.
    pub(crate) fn handle_number(
        &mut self,
        now: Time,
        number: u64,
        sequence: Option<u64>,
        stats: &mut LinkStats,
    ) -> bool {
        if self.peer == Peer::Silent {
            // Who numbers frames may also acknowledge them.
            self.peer = Peer::Unknown;
            self.unanswered_since = None;
        }
        // What comes twice is acknowledged twice: the first Ack may be what was lost.
        if self.acks.len() < MOST_ACKS {
            self.acks.push_back(number);
            self.ack_due.get_or_insert(now + IDLE_ACK);
        } else {
            stats.drops.acks_overflow += 1;
        }
        // As long as the peer may take to send a frame three times more. A peer that restarts
        // begins with the same numbers again (NFD) and must not be taken for itself: its first
        // numbers are long forgotten, unless it restarts twice.
        let memory = LEAST_MEMORY.max(self.rtt.timeout() * (u32::from(MOST_RETRANSMISSIONS) + 1));
        let twice = sequence.is_some_and(|sequence| self.came.came_before(now, sequence, memory));
        stats.duplicates += u64::from(twice);
        twice
    }

    /// Acks that fit beside `used` bytes of a frame of at most `mtu`, oldest first.
    pub(crate) fn acks_that_fit(&self, used: usize, mtu: usize) -> usize {
        // The length of the LpPacket may grow by two octets.
        (mtu.saturating_sub(used + 2) / ACK_LEN).min(self.acks.len())
    }

    /// Takes so many Acks into `out`.
    pub(crate) fn take_acks(&mut self, count: usize, out: &mut Vec<u64>) {
        out.clear();
        out.extend(self.acks.drain(..count.min(self.acks.len())));
        if self.acks.is_empty() {
            self.ack_due = None;
        }
    }

    /// Acks that wait for a frame to travel with.
    pub(crate) fn acks_waiting(&self) -> usize {
        self.acks.len()
    }

    /// When Acks have to go in a frame of their own.
    pub(crate) fn ack_due(&self) -> Option<Time> {
        self.ack_due
    }

    /// When the oldest frame is taken for lost.
    pub(crate) fn retransmission_due(&self) -> Option<Time> {
        self.outstanding
            .oldest()
            .map(|(_, slot)| slot.sent_at + self.rtt.timeout())
    }

    /// No fragment of this packet is sent again.
    pub(crate) fn forget_packet(&mut self, packet_id: u64) {
        self.outstanding.forget_packet(packet_id);
    }

    /// Brings estimates in `stats` up to date.
    pub(crate) fn report(&self, stats: &mut LinkStats) {
        stats.loss = self.loss.share();
        stats.rtt = self.rtt.smoothed();
        stats.outstanding = self.outstanding.waiting();
    }
}
