//! The paper's profile as a [`Recovery`] of the link service.

use whimbrel_core::Time;
use whimbrel_ndn_packet::LpHeader;
use whimbrel_ndn_packet::lp::{self, LinkFields};

use super::Paper;
use super::wire::{self, NUMBERS_LEN, Numbers, PaperFrame};
use crate::ndnlp::compact::{Kind, PAPER, PROFILE_MASK};
use crate::ndnlp::framing::{self, MAX_FRAGMENTS};
use crate::ndnlp::piece::Piece;
use crate::ndnlp::recovery::{FramePlan, Opened, Recovery, Turn};
use crate::ndnlp::stats::{LinkStats, Mode};

impl Recovery for Paper {
    fn claim_next(&mut self, _now: Time, _stats: &mut LinkStats) -> bool {
        true
    }

    /// Returns a new packet number.
    fn identity(&mut self) -> Option<u64> {
        let number = self.next_packet;
        self.next_packet += 1;
        Some(number)
    }

    fn whole_frame_len(&self, packet: &[u8], header: Option<&LpHeader>) -> usize {
        match Kind::of(packet).filter(|_| header.is_none()) {
            Some(_) => NUMBERS_LEN + packet.len(),
            None => 2 + NUMBERS_LEN + framing::element_len(packet, header),
        }
    }

    fn fragment_overhead(&self, header: Option<&LpHeader>) -> usize {
        framing::fragment_overhead(header) + 2 + NUMBERS_LEN
    }

    fn max_fragments(&self) -> usize {
        MAX_FRAGMENTS
    }

    fn write_frame(
        &mut self,
        _now: Time,
        plan: &FramePlan<'_>,
        stats: &mut LinkStats,
        out: &mut Vec<u8>,
    ) -> bool {
        let piece = plan.piece;
        let numbers = Numbers {
            frame: self.outstanding.next() as u32,
            packet: piece.identity as u32,
        };
        let mut element = core::mem::take(&mut self.element);
        element.clear();
        if !piece.is_whole() || piece.header.is_some() {
            let none = LpHeader::default();
            let link = LinkFields {
                sequence: (!piece.is_whole()).then_some(piece.identity),
                ..piece.place_fields()
            };
            let header = piece.header.as_deref().unwrap_or(&none);
            lp::encode(&mut element, &link, header, Some(piece.bytes()));
        }
        let packet = if element.is_empty() {
            piece.bytes()
        } else {
            &element
        };
        let used = 2 + NUMBERS_LEN + packet.len();
        self.take_acks(plan.mtu.saturating_sub(used));
        stats.acks_carried += self.taken.len() as u64;
        wire::encode(out, numbers, &self.taken, packet, plan.smallest_frame);
        self.element = element;
        true
    }

    fn sent(&mut self, now: Time, piece: Piece, replaces: Option<u64>, stats: &mut LinkStats) {
        if self.outstanding.push(now, piece, 4, replaces).is_some() {
            stats.abandoned += 1;
        }
    }

    /// Writes an ACK that reports a gap and has no packet to carry it, perhaps with others that wait.
    fn write_idle(&mut self, _now: Time, stats: &mut LinkStats, out: &mut Vec<u8>) -> bool {
        if !self.take_gap() {
            return false;
        }
        wire::encode_acks(out, &self.taken);
        stats.ack_frames += 1;
        stats.acks_alone += self.taken.len() as u64;
        true
    }

    fn control_due(&self) -> Option<Time> {
        (!self.gaps.is_empty()).then_some(Time::ZERO)
    }

    fn has_format(&self, first_octet: u8) -> bool {
        first_octet & PROFILE_MASK == PAPER
    }

    fn open<'a>(
        &mut self,
        frame: &'a [u8],
        scratch: &'a mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Opened<'a> {
        let Some(frame) = PaperFrame::decode(frame) else {
            return Opened::Malformed;
        };
        for ack in frame.acks() {
            self.handle_ack(ack, turn);
        }
        let twice = frame
            .numbers
            .is_some_and(|numbers| self.handle_numbers(turn.now, numbers, turn.stats));
        if twice {
            return Opened::Nothing;
        }
        frame
            .packet(scratch)
            .map_or(Opened::Nothing, Opened::Element)
    }

    /// "If a frame is lost more than a pre-configured number of times across a link, BELRP stops
    /// trying" [BELRP §III].
    fn may_resend(&self, _now: Time, piece: &Piece) -> bool {
        piece.retransmissions < self.options.max_retransmissions
    }

    /// Lost pieces queue behind waiting packets, as in a device driver.
    fn resends_first(&self) -> bool {
        false
    }

    /// The paper's forwarders do not look into the links.
    fn spares_repetitions(&self) -> bool {
        false
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
        stats.mode = Mode::Paper;
    }
}
