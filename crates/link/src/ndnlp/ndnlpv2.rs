//! The reliability feature of NDNLPv2, as NFD speaks it, without burdening a peer that does not.
//!
//! A peer cannot be asked whether it has the feature (NFD #4958). So frames carry a TxSequence from
//! the start, but are kept and sent again only once the peer has acknowledged one; after 30 s
//! without an Ack they go without, until the peer itself sends a TxSequence or a single frame, one
//! in 30 s, is acknowledged after all.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{RttEstimator, SeededRng, Time};
use whimbrel_ndn_packet::lp::{self, Field, FieldSet, LinkFields, Numbers};
use whimbrel_ndn_packet::{LpHeader, LpPacket, tlv, types};

use super::framing::{self, LpFrame, MOST_FRAGMENTS, SEQUENCE, TX_SEQUENCE, WRAPPER};
use super::outstanding::{Acknowledged, Outstanding};
use super::piece::Piece;
use super::recent::RecentNumbers;
use super::recovery::{Heard, Recovery, Turn};
use super::stats::{LinkStats, LossMeter, Mode};

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
    // The Acks of the frame that is being written.
    taken: Vec<u64>,
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
            taken: Vec::new(),
            came: RecentNumbers::default(),
            overtaken: Vec::new(),
        }
    }

    /// Takes an Ack.
    fn handle_ack(&mut self, number: u64, turn: &mut Turn<'_>) {
        let Turn { now, stats, lost } = turn;
        let now = *now;
        stats.acks_received += 1;
        let age = self.outstanding.next().wrapping_sub(number).wrapping_sub(1);
        match self.outstanding.acknowledge(number) {
            Acknowledged::Unknown if age > u64::from(u32::MAX) => {
                stats.drops.false_acks += 1;
                return;
            }
            Acknowledged::Arrived { piece, sent_at } => {
                stats.arrived(&piece);
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

    /// A frame with a packet and this TxSequence came. True if it had come before, by its Sequence.
    fn handle_number(
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

    /// Takes the Acks that fit into `room` bytes, the oldest first, into `self.taken`; how many.
    fn take_acks(&mut self, room: usize) -> usize {
        // The length of the LpPacket may grow by two octets.
        let fit = room.saturating_sub(2) / ACK_LEN;
        let count = fit.min(self.acks.len());
        self.taken.clear();
        self.taken.extend(self.acks.drain(..count));
        if self.acks.is_empty() {
            self.ack_due = None;
        }
        count
    }
}

impl Recovery for Ndnlpv2 {
    fn takes_next(&mut self, now: Time, stats: &mut LinkStats) -> bool {
        let unanswered = self.unanswered_since.map(|since| now.since(since));
        if self.peer != Peer::Silent && unanswered.is_some_and(|time| time > PATIENCE) {
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

    fn whole_frame_len(&self, packet: &[u8], header: Option<&LpHeader>) -> usize {
        WRAPPER + SEQUENCE + TX_SEQUENCE + framing::header_len(header) + packet.len()
    }

    fn fragment_overhead(&self, header: Option<&LpHeader>) -> usize {
        framing::fragment_overhead(header) + TX_SEQUENCE
    }

    fn most_fragments(&self) -> usize {
        MOST_FRAGMENTS
    }

    fn transmission_number(&self) -> Option<u64> {
        Some(self.outstanding.next())
    }

    fn add_fields<'a>(
        &'a mut self,
        _now: Time,
        frame: &LpFrame<'_>,
        link: &mut LinkFields<'a>,
        stats: &mut LinkStats,
    ) {
        if !self.acks.is_empty() {
            stats.acks_carried += self.take_acks(frame.room(link)) as u64;
            link.acks = Numbers::Listed(&self.taken);
        }
    }

    fn sent(&mut self, now: Time, piece: Piece, replaces: Option<u64>, stats: &mut LinkStats) {
        self.unanswered_since.get_or_insert(now);
        if self.peer == Peer::Acknowledges {
            if self.outstanding.push(now, piece, 8, replaces).is_some() {
                stats.abandoned += 1;
            }
        } else {
            self.outstanding.skip();
        }
    }

    /// Acks that waited long enough for a frame to travel with.
    fn write_urgent(
        &mut self,
        now: Time,
        mtu: usize,
        _packets_wait: bool,
        stats: &mut LinkStats,
        out: &mut Vec<u8>,
    ) -> bool {
        if self.ack_due.is_none_or(|due| due > now) {
            return false;
        }
        let empty = tlv::element_len(types::LP_PACKET, 0);
        let count = self.take_acks(mtu.saturating_sub(empty));
        let link = LinkFields {
            acks: Numbers::Listed(&self.taken),
            ..LinkFields::default()
        };
        lp::encode(out, &link, &LpHeader::default(), None);
        stats.ack_frames += 1;
        stats.acks_alone += count as u64;
        true
    }

    fn control_due(&self) -> Option<Time> {
        self.ack_due
    }

    fn needs(&self, fields: FieldSet) -> bool {
        fields.contains(Field::Ack) || fields.contains(Field::TxSequence)
    }

    fn handle_header(&mut self, packet: &LpPacket<'_>, turn: &mut Turn<'_>) -> Heard {
        let link = &packet.link;
        for number in link.acks.iter() {
            self.handle_ack(number, turn);
        }
        // What carries no packet is not acknowledged.
        let number = link.tx_sequence.filter(|_| packet.fragment.is_some());
        let twice = number
            .is_some_and(|number| self.handle_number(turn.now, number, link.sequence, turn.stats));
        Heard {
            twice,
            restarted: false,
        }
    }

    /// Sends the frames again of which nothing was heard for a retransmission time-out.
    fn handle_timeout(&mut self, _idle: bool, turn: &mut Turn<'_>) {
        let Turn { now, stats, lost } = turn;
        while let Some((number, slot)) = self.outstanding.oldest() {
            // No back-off, and the same time for all: the oldest frame is always the first one due.
            if slot.sent_at + self.rtt.timeout() > *now {
                break;
            }
            stats.timeouts += 1;
            if let Some(piece) = self
                .outstanding
                .declare_lost(*now, number, stats, &mut self.loss)
            {
                lost.push((number, piece));
            }
        }
    }

    fn timer_due(&self) -> Option<Time> {
        let (_, slot) = self.outstanding.oldest()?;
        Some(slot.sent_at + self.rtt.timeout())
    }

    fn may_resend(&self, _now: Time, piece: &Piece) -> bool {
        piece.retransmissions < MOST_RETRANSMISSIONS
    }

    fn still_lost(&self, number: u64) -> bool {
        self.outstanding.is_resending(number)
    }

    fn give_up(&mut self, number: u64) {
        self.outstanding.give_up(number);
    }

    fn forget_packet(&mut self, packet_id: u64) {
        self.outstanding.forget_packet(packet_id);
    }

    fn report(&self, stats: &mut LinkStats) {
        stats.loss = self.loss.share();
        stats.rtt = self.rtt.smoothed();
        stats.outstanding += self.outstanding.waiting();
        if self.peer == Peer::Acknowledges {
            stats.mode = Mode::Ndnlpv2;
        }
    }
}
