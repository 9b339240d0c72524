//! The choice of the next frame: due CSYNs, retransmissions, new packets; and the start of chunks.

use std::collections::VecDeque;

use whimbrel_core::Time;

use super::Sender;
use super::control::INITIAL_PACKETS;
use super::report::forget_question;
use crate::hop::event::HopEvent;
use crate::hop::outbound::{Fate, Room};
use crate::hop::stats::HopStats;
use crate::hop::wire::{About, Csyn, Envelope, carry_question, encode_csyn, encode_mtu_probe};

/// Bound of the probes of the path MTU whose answers are recognised.
const MAX_PATH_PROBES: usize = 32;

impl Sender {
    /// Writes the next frames: a due CSYN, or packets and possibly a CSYN after them.
    pub(in crate::hop) fn poll_transmit(
        &mut self,
        now: Time,
        envelope: Envelope,
        max_segments: usize,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
        events: &mut VecDeque<HopEvent>,
    ) -> Option<(usize, Option<usize>)> {
        if !self.suspended {
            self.transfers
                .begin_chunks(&self.control, self.overhead, events);
        }
        let start = buffer.len();
        if self.write_due_csyn(now, envelope, buffer, stats) {
            return Some((buffer.len() - start, None));
        }
        if self.suspended {
            return None;
        }
        if let Some(segment) = self.write_pair(now, envelope, max_segments, buffer, stats) {
            let len = buffer.len() - start;
            return Some((len, (len > segment).then_some(segment)));
        }
        if let Some(segment) = self.write_train(now, envelope, max_segments, buffer, stats) {
            let len = buffer.len() - start;
            return Some((len, (len > segment).then_some(segment)));
        }
        if self.write_mtu_probe(now, envelope, buffer, stats) {
            return Some((buffer.len() - start, None));
        }
        self.write_burst(now, envelope, max_segments, buffer, stats)
    }

    pub(super) fn write_burst(
        &mut self,
        now: Time,
        envelope: Envelope,
        max_segments: usize,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) -> Option<(usize, Option<usize>)> {
        let start = buffer.len();
        if !self.transfers.has_data() {
            self.control.pacer.note_idle(now);
            if self.feedback.inflight() < self.cap_now() {
                self.feedback.note_limited();
                self.control.interrupt_train();
            }
            return None;
        }
        let cap = self.cap_now();
        let room = cap.saturating_sub(self.feedback.inflight());
        if room == 0 {
            self.control.pacer.note_held_back();
            return self.write_question_of_flight(now, envelope, buffer, stats);
        }
        let allowance = self.control.pacer.take_allowance(now)?.min(room);
        let (mut segment, mut frames, mut aligned) = (0, 0, true);
        let per_csyn = self.control.packets_per_csyn();
        while aligned && frames < max_segments.max(1) && ((buffer.len() - start) as u64) < allowance
        {
            let Some(id) = self.transfers.sendable.next() else {
                break;
            };
            let Some(chunk) = self.transfers.active.get_mut(&id) else {
                break;
            };
            let Some(len) = chunk
                .next_frame_len()
                .filter(|len| frames == 0 || *len <= segment)
            else {
                break;
            };
            segment = segment.max(len);
            aligned = len == segment;
            let (unsent, frame) = (chunk.unsent_bytes(), buffer.len());
            let resent = chunk.write_next(envelope, id as u32, self.feedback.order(), buffer)?;
            self.transfers.unsent_bytes -= unsent - chunk.unsent_bytes();
            self.transfers
                .sendable
                .spend(chunk.parcel.lane, len as u64, resent);
            self.feedback.data_sent(len as u64);
            self.path.frame_sent(len);
            self.last_data = id;
            frames += 1;
            stats.data_sent += 1;
            stats.data_resent += u64::from(resent);
            self.transfers.classify(id);
            self.transfers.arrange_query(id);
            let in_turn = u64::from(self.feedback.since_csyn().0) >= per_csyn;
            let ends_train = self.control.train.frame_sent(len as u64);
            if in_turn || ends_train || self.feedback.inflight() >= cap {
                self.transfers.csyn_due.insert(id);
            }
            // A CSYN carried by a large frame is lost with it.
            let carries = self.feedback.is_next_near() && !self.path.is_suspicious();
            if self.transfers.csyn_due.contains(&id) && carries {
                let (number, _) = self.note_question(now, Some(id));
                carry_question(buffer, frame, number as u8);
                stats.csyn_carried += 1;
            } else if in_turn || ends_train {
                break;
            }
        }
        if frames == 0 {
            return None;
        }
        self.control.pacer.spend(now, (buffer.len() - start) as u64);
        if self.control.train.is_begun() {
            self.control.update_pace();
        }
        if aligned
            && frames < max_segments
            && segment >= envelope.csyn_len()
            && self.write_due_csyn(now, envelope, buffer, stats)
        {
            frames += 1;
        }
        Some((buffer.len() - start, (frames > 1).then_some(segment)))
    }

    /// Writes a CSYN about the packets in flight unless one has been sent: only answers make room.
    fn write_question_of_flight(
        &mut self,
        now: Time,
        envelope: Envelope,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) -> Option<(usize, Option<usize>)> {
        if self.feedback.since_csyn().0 == 0 {
            return None;
        }
        let start = buffer.len();
        let about = Some(self.last_data).filter(|id| self.transfers.active.contains_key(id));
        self.write_csyn(now, envelope, about, buffer, stats);
        Some((buffer.len() - start, None))
    }

    /// Writes a due probe of the path MTU.
    fn write_mtu_probe(
        &mut self,
        now: Time,
        envelope: Envelope,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) -> bool {
        let checks = self.path.is_suspicious();
        let Some(len) = self.path.poll_probe(now, self.control.rtt.timeout()) else {
            return false;
        };
        let number = self.number_probe(now);
        encode_mtu_probe(envelope, number, len, buffer);
        if self.path_probes.len() == MAX_PATH_PROBES {
            self.path_probes.pop_front();
        }
        self.path_probes.push_back((number, len));
        stats.mtu_probes += 1;
        // The answer to a small frame sent after it shows whether it was lost.
        self.probe_due |= checks;
        true
    }

    pub(super) fn write_due_csyn(
        &mut self,
        now: Time,
        envelope: Envelope,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) -> bool {
        let about = self.transfers.csyn_due.first().copied();
        if about.is_none() && !self.probe_due {
            return false;
        }
        self.write_csyn(now, envelope, about, buffer, stats);
        true
    }

    pub(super) fn write_csyn(
        &mut self,
        now: Time,
        envelope: Envelope,
        about: Option<u64>,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) {
        let (number, about) = self.note_question(now, about);
        encode_csyn(envelope, &Csyn { number, about }, buffer);
        stats.csyn_sent += 1;
    }

    /// Numbers a CSYN that is sent now and notes its consequences.
    fn note_question(&mut self, now: Time, about: Option<u64>) -> (u32, Option<About>) {
        if self.feedback.unanswered() == 0 {
            self.timer_from = now;
        }
        let (active, mut forgotten) = (&mut self.transfers.active, None);
        let lost = |number, about| {
            forget_question(active, number, about);
            forgotten = about;
        };
        let number = self.feedback.csyn_sent(now, about, self.path.mark(), lost);
        self.control.train.asked(now, number);
        self.ask_again_about(forgotten);
        self.probe_due = false;
        let chunk =
            about.and_then(|id| self.transfers.active.get_mut(&id).map(|chunk| (id, chunk)));
        let about = chunk.map(|(id, chunk)| {
            self.transfers.csyn_due.remove(&id);
            chunk.asked = Some(number);
            let window = self.feedback.reordering_window();
            if !window.is_zero() && !chunk.tailed && chunk.room == Room::Given && chunk.is_waiting()
            {
                chunk.tailed = true;
                self.transfers.tails.set(id, now + window);
            }
            About {
                hop_id: id as u32,
                shape: chunk.shape,
                cancel: chunk.fate != Fate::Deliver,
            }
        });
        (number, about)
    }

    /// Numbers a probe of the path that is sent now.
    pub(super) fn number_probe(&mut self, now: Time) -> u32 {
        let (active, mut forgotten) = (&mut self.transfers.active, None);
        let lost = |number, about| {
            forget_question(active, number, about);
            forgotten = about;
        };
        let number = self.feedback.mtu_probe_sent(now, self.path.mark(), lost);
        self.ask_again_about(forgotten);
        number
    }

    /// The last CSYN about a chunk may have been forgotten unanswered, for newer ones. In an outage
    /// there are enough probes; the chunk is asked about when that ends.
    fn ask_again_about(&mut self, forgotten: Option<u64>) {
        if let Some(id) = forgotten
            && !self.suspended
        {
            self.transfers.arrange_query(id);
        }
    }

    /// Writes the due probes of a pair. Returns the bytes of each, or `None` if none is due.
    pub(super) fn write_pair(
        &mut self,
        now: Time,
        envelope: Envelope,
        max_segments: usize,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) -> Option<usize> {
        let due = self.control.first_rate.due.min(max_segments.max(1));
        if due > 0 {
            // The driver's or the neighbour's limit may have fallen since the pair was planned.
            let rate = &mut self.control.first_rate;
            rate.large = rate.large.min(self.control.frame);
            rate.bytes = rate.bytes.min(self.control.frame);
        }
        for _ in 0..due {
            let bytes = self.control.first_rate.bytes;
            let number = self.write_probe(now, envelope, bytes, buffer, stats);
            self.control.first_rate.numbers[2 - self.control.first_rate.due] = number;
            self.control.first_rate.due -= 1;
        }
        (due > 0).then_some(self.control.first_rate.bytes)
    }

    /// Writes a probe of this length. Returns its number.
    fn write_probe(
        &mut self,
        now: Time,
        envelope: Envelope,
        bytes: usize,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) -> u32 {
        let number = self.number_probe(now);
        encode_mtu_probe(envelope, number, bytes, buffer);
        stats.csyn_sent += 1;
        number
    }

    /// Writes due probes of a train over an idle path. Returns the bytes of each, or `None` if none is due.
    fn write_train(
        &mut self,
        now: Time,
        envelope: Envelope,
        max_segments: usize,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) -> Option<usize> {
        let (due, bytes) = self.control.idle_rate.due(self.control.frame);
        for _ in 0..due.min(max_segments.max(1)) {
            let number = self.write_probe(now, envelope, bytes, buffer, stats);
            self.control.idle_rate.sent(number);
        }
        (due > 0).then_some(bytes)
    }

    /// Before anything is handled: while the window is closed, no timer of the pacer runs that could be late.
    pub(in crate::hop) fn note_turn(&mut self) {
        if self.feedback.inflight() >= self.cap_now() {
            self.control.pacer.note_held_back();
        }
    }

    /// Returns the bytes that may be in flight now; for urgent packets a little more.
    pub(super) fn cap_now(&self) -> u64 {
        let more = match self.transfers.sendable.is_urgent() {
            true => INITIAL_PACKETS / 4 * self.control.frame as u64,
            false => 0,
        };
        self.control.inflight_cap().saturating_add(more)
    }
}
