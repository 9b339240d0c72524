//! BELRP as in the paper [BELRP §III]: no timer, every ACK three times.

mod recovery;
pub(crate) mod wire;

use std::collections::VecDeque;

use whimbrel_core::{RttEstimator, SeededRng, Time};

use super::config::{MIN_MTU, PaperOptions};
use super::number_set::NumberSet;
use super::outstanding::{Acknowledged, Outstanding};
use super::recent::RecentNumbers;
use super::recovery::Turn;
use super::stats::{LinkStats, LossMeter};
use wire::{MAX_ACKS, Numbers};

/// "BELRP lets the receiver send each ACK 3 times for every received frame."
const ACK_COPIES: u8 = 3;
/// "an ACK reports a gap to the sender if the receiver has not received one of the previous 3
/// frames"
const GAP_FRAMES: u64 = 3;
/// Maximum of queued ACKs: they must not accumulate for an unreachable peer.
const MAX_WAITING_ACKS: usize = 8192;
/// A packet number that arrives again within this time is a retransmission of a packet that
/// arrived. The paper's algorithm 1 delivers it to the network layer once more; its packet number
/// exists to avoid that. The time is long, because without a timer a retransmission may be late; a
/// sender that restarts begins with other numbers.
const PACKET_MEMORY: core::time::Duration = core::time::Duration::from_secs(60);
/// Internal numbers are 64 bits wide and begin above this, so that they never wrap.
const FIRST: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct Paper {
    options: PaperOptions,
    outstanding: Outstanding,
    next_packet: u64,
    rtt: RttEstimator,
    loss: LossMeter,
    frames: Option<NumberSet>,
    packets: RecentNumbers,
    // Frame numbers to acknowledge, with the number of copies left to send; the oldest first.
    acks: VecDeque<(u32, u8)>,
    // Frame numbers in `acks` that report a gap and have not been sent yet.
    gaps: VecDeque<u32>,
    // The ACKs of the frame that is being written.
    taken: Vec<u32>,
    // The element in the frame that is being written, if it is more than the packet.
    element: Vec<u8>,
    overtaken: Vec<u64>,
}

impl Paper {
    pub(crate) fn new(rng: &mut SeededRng, options: PaperOptions, max_outstanding: usize) -> Paper {
        // The first number is random, so that packets of a restarted sender are not mistaken for
        // earlier ones.
        let first = rng.next_word();
        Paper::starting((first >> 32) as u32, first as u32, options, max_outstanding)
    }

    /// Returns a profile with these first numbers.
    pub(crate) fn starting(
        frame: u32,
        packet: u32,
        options: PaperOptions,
        max_outstanding: usize,
    ) -> Paper {
        let zero = core::time::Duration::ZERO;
        Paper {
            options,
            outstanding: Outstanding::new(FIRST + u64::from(frame), max_outstanding),
            next_packet: u64::from(packet),
            // The estimate serves statistics only: there is no timer.
            rtt: RttEstimator::new(zero, zero, zero),
            loss: LossMeter::default(),
            frames: None,
            packets: RecentNumbers::default(),
            acks: VecDeque::new(),
            gaps: VecDeque::new(),
            taken: Vec::new(),
            element: Vec::new(),
            overtaken: Vec::new(),
        }
    }

    /// Handles an ACK.
    fn handle_ack(&mut self, ack: u32, turn: &mut Turn<'_>) {
        let Turn { now, stats, lost } = turn;
        let now = *now;
        stats.acks_received += 1;
        let next = self.outstanding.next();
        // The number nearest to the newest one that has these low bits and was sent.
        let number = (next - 1) - u64::from((next as u32).wrapping_sub(1).wrapping_sub(ack));
        match self.outstanding.acknowledge(number) {
            Acknowledged::Arrived { piece, sent_at } => {
                stats.arrived(&piece);
                self.loss.arrived();
                self.rtt.sample(now.since(sent_at));
            }
            Acknowledged::Spurious => {
                stats.spurious += 1;
                self.loss.not_lost();
            }
            Acknowledged::InTime => self.loss.not_lost(),
            Acknowledged::Known => return,
            Acknowledged::Unknown => {
                // Each ACK arrives three times; one for a recently acknowledged frame is not false.
                stats.drops.false_acks += u64::from(next - number > u64::from(u32::MAX / 2));
                return;
            }
        }
        self.outstanding
            .count_later(number, self.options.later_acks, &mut self.overtaken);
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

    /// Handles the numbers of a frame. Returns true if its packet is a duplicate.
    fn handle_numbers(&mut self, now: Time, numbers: Numbers, stats: &mut LinkStats) -> bool {
        let frames = self
            .frames
            .get_or_insert_with(|| NumberSet::new(FIRST + u64::from(numbers.frame)));
        let offset = i64::from(numbers.frame.wrapping_sub(frames.next() as u32) as i32);
        let mut number = frames.next().saturating_add_signed(offset);
        if offset.unsigned_abs() > 1 << 20 {
            // No link has that many frames in flight, so the sender has restarted.
            number = FIRST + u64::from(numbers.frame);
            *frames = NumberSet::new(number);
        }
        frames.insert(number);
        let lowest = number.saturating_sub(GAP_FRAMES).max(frames.floor());
        let reports_gap = (lowest..number).any(|before| !frames.contains(before));
        if self.acks.len() < MAX_WAITING_ACKS {
            self.acks.push_back((numbers.frame, ACK_COPIES));
            if reports_gap {
                self.gaps.push_back(numbers.frame);
            }
        } else {
            stats.drops.acks_overflow += 1;
        }
        let twice = self
            .packets
            .came_before(now, u64::from(numbers.packet), PACKET_MEMORY);
        stats.duplicates += u64::from(twice);
        twice
    }

    /// "it piggybacks min(queue size, 3) ACKs with the frames at the front of the queue and the
    /// remaining ... with future traffic": each of the next three frames, whenever they are sent,
    /// carries one copy of each ACK, as many as fit: those of this frame go to `self.taken`.
    fn take_acks(&mut self, room: usize) {
        self.taken.clear();
        let count = (room / wire::ACK_LEN).min(MAX_ACKS).min(self.acks.len());
        if count == self.acks.len() {
            self.gaps.clear();
        }
        for (number, copies) in self
            .acks
            .range_mut(..count)
            .filter(|(_, copies)| *copies > 0)
        {
            self.taken.push(*number);
            *copies -= 1;
        }
        self.drop_sent_acks();
    }

    /// "When the outgoing queue is empty, but an ACK needs to be sent back to the sender to report
    /// a gap in received frame sequence numbers ..., the receiver will transmit this ACK
    /// immediately." Must be called when there is nothing else to send. The ACKs to send go to
    /// `self.taken`: that one alone, or all that wait. Returns false if there is none.
    fn take_gap(&mut self) -> bool {
        let Some(gap) = self.gaps.pop_front() else {
            return false;
        };
        if self.options.acks_together {
            self.take_acks(MIN_MTU - wire::ACKS_HEADER_LEN);
            return true;
        }
        self.taken.clear();
        self.taken.push(gap);
        if let Some((_, copies)) = self
            .acks
            .iter_mut()
            .find(|(number, copies)| *number == gap && *copies > 0)
        {
            *copies -= 1;
        }
        self.drop_sent_acks();
        true
    }

    fn drop_sent_acks(&mut self) {
        while self.acks.front().is_some_and(|(_, copies)| *copies == 0) {
            self.acks.pop_front();
        }
    }
}
