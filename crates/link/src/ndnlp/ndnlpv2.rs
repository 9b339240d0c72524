//! The reliability feature of NDNLPv2, as in NFD, without burdening a peer that does not support
//! it.
//!
//! A peer cannot be asked whether it has the feature (NFD #4958). So frames carry a TxSequence from
//! the start, but are kept and retransmitted only once the peer has acknowledged one; after 30 s
//! without an Ack they are sent without, until the peer itself sends a TxSequence or acknowledges
//! one of the probes, one frame in 30 s.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{RttEstimator, SeededRng, Time};
use whimbrel_ndn_packet::lp::{self, Field, FieldSet, LinkFields, Numbers};
use whimbrel_ndn_packet::{LpHeader, LpPacket, tlv, types};

use super::framing::{self, LpFrame, MAX_FRAGMENTS, SEQUENCE, TX_SEQUENCE, WRAPPER};
use super::outstanding::{Acknowledged, Outstanding};
use super::piece::Piece;
use super::recent::RecentNumbers;
use super::recovery::{Heard, Recovery, Turn};
use super::stats::{LinkStats, LossMeter, Mode};

/// Acks of this many later frames declare a frame lost (NFD: seqNumLossThreshold).
const LATER_ACKS: u8 = 3;
/// Maximum of retransmissions per frame (NFD: maxRetx).
const MAX_RETRANSMISSIONS: u8 = 3;
/// Maximum time that an Ack waits for a frame to carry it (NFD: idleAckTimerPeriod).
const IDLE_ACK: Duration = Duration::from_millis(5);
/// NFD #4958: without an Ack for this long, the peer is assumed not to have the feature.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum of queued Acks: they must not accumulate for an unreachable peer.
const MAX_ACKS: usize = 4096;
/// Minimum time that a Sequence is remembered: four times the initial timeout of a peer without
/// measurements.
const MIN_MEMORY: Duration = Duration::from_secs(4);
/// Bytes of an Ack field.
const ACK_LEN: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// The peer may acknowledge: frames carry a TxSequence and are not kept.
    Unknown,
    /// The peer acknowledges.
    Acknowledges,
    /// The peer does not acknowledge.
    Silent,
}

#[derive(Debug)]
pub(crate) struct Ndnlpv2 {
    peer: Peer,
    // The time of the first frame with a TxSequence after the last Ack.
    unanswered_since: Option<Time>,
    next_trial: Time,
    outstanding: Outstanding,
    rtt: RttEstimator,
    loss: LossMeter,
    acks: VecDeque<u64>,
    ack_due: Option<Time>,
    // The Acks of the frame that is being written.
    taken: Vec<u64>,
    recent: RecentNumbers,
    // Empty between calls.
    overtaken: Vec<u64>,
}

impl Ndnlpv2 {
    pub(crate) fn new(rng: &mut SeededRng, max_outstanding: usize) -> Ndnlpv2 {
        Ndnlpv2::starting(rng.next_word(), max_outstanding)
    }

    /// Returns a profile with this first TxSequence.
    pub(crate) fn starting(first: u64, max_outstanding: usize) -> Ndnlpv2 {
        Ndnlpv2 {
            peer: Peer::Unknown,
            unanswered_since: None,
            next_trial: Time::ZERO,
            outstanding: Outstanding::new(first, max_outstanding),
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
            recent: RecentNumbers::default(),
            overtaken: Vec::new(),
        }
    }

    /// Handles an Ack.
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
                // Karn's algorithm: only frames that were sent once are measured.
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
                // Same-round-trip ordering: an Ack for a settled frame is normal.
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

    /// Handles a frame with a packet and this TxSequence. Returns true if its Sequence is a
    /// duplicate.
    fn handle_number(
        &mut self,
        now: Time,
        number: u64,
        sequence: Option<u64>,
        stats: &mut LinkStats,
    ) -> bool {
        if self.peer == Peer::Silent {
            // A peer that numbers frames may also acknowledge them.
            self.peer = Peer::Unknown;
            self.unanswered_since = None;
        }
        // A duplicate is acknowledged again: the first Ack may have been lost.
        if self.acks.len() < MAX_ACKS {
            self.acks.push_back(number);
            self.ack_due.get_or_insert(now + IDLE_ACK);
        } else {
            stats.drops.acks_overflow += 1;
        }
        // The memory covers the peer's time for three retransmissions. A peer that restarts reuses
        // its first numbers (NFD), which must not look like duplicates: they were forgotten long
        // ago, unless it restarts twice.
        let memory = MIN_MEMORY.max(self.rtt.timeout() * (u32::from(MAX_RETRANSMISSIONS) + 1));
        let twice = sequence.is_some_and(|sequence| self.recent.came_before(now, sequence, memory));
        stats.duplicates += u64::from(twice);
        twice
    }

    /// Moves the Acks that fit into `room` bytes, the oldest first, to `self.taken`. Returns their
    /// number.
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
    fn claim_next(&mut self, now: Time, stats: &mut LinkStats) -> bool {
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

    fn max_fragments(&self) -> usize {
        MAX_FRAGMENTS
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

    /// Writes Acks that have waited long enough for a frame to carry them.
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
        // A frame without a packet is not acknowledged.
        let number = link.tx_sequence.filter(|_| packet.fragment.is_some());
        let twice = number
            .is_some_and(|number| self.handle_number(turn.now, number, link.sequence, turn.stats));
        Heard {
            twice,
            restarted: false,
        }
    }

    /// Retransmits the frames without an Ack for a retransmission timeout.
    fn handle_timeout(&mut self, _idle: bool, turn: &mut Turn<'_>) {
        let Turn { now, stats, lost } = turn;
        while let Some((number, slot)) = self.outstanding.oldest() {
            // There is no back-off, and the timeout is the same for all, so the oldest frame is
            // always due first.
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
        piece.retransmissions < MAX_RETRANSMISSIONS
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
