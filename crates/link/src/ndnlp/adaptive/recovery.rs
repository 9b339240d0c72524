//! The adaptive profile as a [`Recovery`] of the link service.

use core::time::Duration;

use whimbrel_core::Time;
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{InterestRef, LpHeader, LpPacket, tlv, types};

use super::hello::{HELLO_LEN, Hello};
use super::receiver::Receiver;
use super::sender::Probe;
use super::wire::{self, AdaptiveFrame, MAX_HEADER_LEN, Payload};
use super::{Adaptive, Origin};
use crate::ndnlp::compact::{ADAPTIVE, Kind, PROFILE_MASK};
use crate::ndnlp::framing::{self, LpFrame};
use crate::ndnlp::piece::Piece;
use crate::ndnlp::reassembly::{PacketKey, Place};
use crate::ndnlp::recovery::{FramePlan, Heard, Opened, Recovery, Turn};
use crate::ndnlp::stats::{LinkStats, Mode};

/// Maximum of fragments of one packet in compact frames: their number has one octet.
const MAX_FRAGMENTS: usize = 255;
/// Octets of the announcement as a header field, and the growth of the LpPacket's length because of
/// it.
const HELLO_ROOM: usize = tlv::element_len(types::LP_ADAPTIVE_HELLO, HELLO_LEN) + 2;

/// Opens a compact frame from a peer without an agreement.
pub(crate) fn open_without_agreement<'a>(frame: &'a [u8], scratch: &'a mut Vec<u8>) -> Opened<'a> {
    AdaptiveFrame::decode(frame).map_or(Opened::Malformed, |frame| {
        opened(&frame, Origin::Unknown, scratch)
    })
}

/// Returns the packet or fragment of the frame.
fn opened<'a>(frame: &AdaptiveFrame<'a>, origin: Origin, scratch: &'a mut Vec<u8>) -> Opened<'a> {
    let AdaptiveFrame::Packet { payload, .. } = frame else {
        return Opened::Nothing;
    };
    match (*payload, origin) {
        (_, Origin::Twice) => Opened::Nothing,
        (Payload::Value(kind, value), _) => {
            let Some(typ) = kind.typ() else {
                return Opened::Nothing;
            };
            scratch.clear();
            tlv::write_header(scratch, typ, value.len());
            scratch.extend_from_slice(value);
            Opened::Packet(scratch)
        }
        (Payload::Whole(element), _) => Opened::Element(element),
        (
            Payload::Fragment {
                index,
                count,
                bytes,
            },
            Origin::New(first),
        ) => {
            let (index, count) = (u64::from(index), u64::from(count));
            let key = PacketKey::Frame(first.wrapping_sub(index));
            Opened::Fragment(Place { key, index, count }, bytes)
        }
        (Payload::Fragment { .. }, Origin::Unknown) => Opened::Unnumbered,
    }
}

impl Recovery for Adaptive {
    fn claim_next(&mut self, _now: Time, _stats: &mut LinkStats) -> bool {
        self.is_agreed()
    }

    fn identity(&mut self) -> Option<u64> {
        Some(self.sender.next_number())
    }

    /// The result includes room for the additional octets of a retransmission.
    fn whole_frame_len(&self, packet: &[u8], header: Option<&LpHeader>) -> usize {
        match Kind::of(packet).filter(|_| header.is_none()) {
            Some((_, left_out)) => MAX_HEADER_LEN + packet.len() - left_out,
            None => MAX_HEADER_LEN + 1 + framing::element_len(packet, header),
        }
    }

    fn fragment_overhead(&self, _header: Option<&LpHeader>) -> usize {
        MAX_HEADER_LEN + 2
    }

    fn max_fragments(&self) -> usize {
        MAX_FRAGMENTS
    }

    fn cuts_with_header(&self) -> bool {
        true
    }

    fn write_frame(
        &mut self,
        now: Time,
        plan: &FramePlan<'_>,
        stats: &mut LinkStats,
        out: &mut Vec<u8>,
    ) -> bool {
        let piece = plan.piece;
        let start = out.len();
        let short = Kind::of(&piece.packet).filter(|(_, left_out)| {
            let long_enough = piece.packet.len() - left_out + 2 >= plan.smallest_frame;
            piece.is_whole() && piece.header.is_none() && long_enough
        });
        let kind = short.map_or(Kind::Other, |(kind, _)| kind);
        let next = self.sender.next_number();
        let back = plan.replaces.map(|_| next.wrapping_sub(piece.identity));
        let len = match short {
            Some((_, left_out)) => MAX_HEADER_LEN + piece.packet.len() - left_out,
            None if piece.is_whole() => {
                self.whole_frame_len(&piece.packet, piece.header.as_deref())
            }
            None => piece.len as usize + self.fragment_overhead(None),
        };
        let room = plan.mtu.saturating_sub(len);
        self.width = self.write_start(now, kind, back, room, stats, out);
        match short {
            Some((_, left_out)) => {
                out.extend_from_slice(piece.bytes().get(left_out..).unwrap_or_default())
            }
            None if !piece.is_whole() => {
                out.extend_from_slice(&[piece.count as u8, piece.index as u8]);
                out.extend_from_slice(piece.bytes());
            }
            None => {
                out.push(0);
                match piece.header.as_deref() {
                    Some(header) => {
                        lp::encode(out, &LinkFields::default(), header, Some(piece.bytes()))
                    }
                    None => out.extend_from_slice(piece.bytes()),
                }
            }
        }
        debug_assert!(out.len() - start <= plan.mtu);
        true
    }

    fn add_fields<'a>(
        &'a mut self,
        now: Time,
        frame: &LpFrame<'_>,
        link: &mut LinkFields<'a>,
        stats: &mut LinkStats,
    ) {
        if self.handshake.wants_to_travel(now) && frame.room(link) >= HELLO_ROOM {
            self.announce(now, stats);
            link.adaptive_hello = Some(&self.hello);
        }
    }

    fn sent(&mut self, now: Time, piece: Piece, replaces: Option<u64>, stats: &mut LinkStats) {
        let width = self.width;
        if self.sender.sent(now, piece, width, replaces).is_some() {
            stats.abandoned += 1;
        }
    }

    /// Writes a request for a report, or an announcement that no packet can carry.
    fn write_urgent(
        &mut self,
        now: Time,
        _mtu: usize,
        packets_wait: bool,
        stats: &mut LinkStats,
        out: &mut Vec<u8>,
    ) -> bool {
        if let Some(lowest) = self.sender.ask.take() {
            let with_report = self.report_due(now) && self.prepare_report(now);
            wire::write_control_start(out, Some(lowest as u32), with_report);
            if with_report {
                out.extend_from_slice(&self.report);
                stats.acks_alone += 1;
            }
            stats.asks_sent += 1;
            return true;
        }
        let owed = self.handshake.answer_due().is_some_and(|due| due <= now);
        // Compact frames have no room for header fields.
        let carried = !self.is_agreed() && packets_wait;
        if !owed || carried {
            return false;
        }
        self.announce(now, stats);
        let link = LinkFields {
            adaptive_hello: Some(&self.hello),
            ..LinkFields::default()
        };
        lp::encode(out, &link, &LpHeader::default(), None);
        true
    }

    /// Writes a report without a packet to carry it.
    fn write_idle(&mut self, now: Time, stats: &mut LinkStats, out: &mut Vec<u8>) -> bool {
        if !self.is_agreed() || !self.report_due(now) || !self.prepare_report(now) {
            return false;
        }
        wire::write_control_start(out, None, true);
        out.extend_from_slice(&self.report);
        stats.ack_frames += 1;
        stats.acks_alone += 1;
        true
    }

    fn control_due(&self) -> Option<Time> {
        let receiver = self.receiver.as_ref().filter(|_| self.is_agreed());
        let report = receiver.and_then(Receiver::due);
        let ask = self.sender.ask.map(|_| Time::ZERO);
        let due = [report, ask, self.handshake.answer_due()];
        due.into_iter().flatten().min()
    }

    fn has_format(&self, first_octet: u8) -> bool {
        first_octet & PROFILE_MASK == ADAPTIVE
    }

    fn open<'a>(
        &mut self,
        frame: &'a [u8],
        scratch: &'a mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Opened<'a> {
        let size = frame.len();
        let Some(frame) = AdaptiveFrame::decode(frame) else {
            return Opened::Malformed;
        };
        let origin = self.handle_frame(&frame, size, turn);
        opened(&frame, origin, scratch)
    }

    fn handle_header(&mut self, packet: &LpPacket<'_>, turn: &mut Turn<'_>) -> Heard {
        let restarted = match packet.link.adaptive_hello.and_then(Hello::decode) {
            Some(hello) => self.handle_hello(turn.now, hello, turn.stats),
            None => {
                self.handle_foreign(turn.now, turn.stats);
                false
            }
        };
        Heard {
            twice: false,
            restarted,
        }
    }

    fn handle_timeout(&mut self, idle: bool, turn: &mut Turn<'_>) {
        let Turn { now, stats, lost } = turn;
        let now = *now;
        self.sender.handle_reordering(now, stats, lost);
        // A packet that is no longer useful is not probed.
        while let Some((number, piece)) = self.sender.overdue(now) {
            if self.may_resend(now, piece) {
                break;
            }
            self.sender.declare_lost(now, number, stats, lost);
        }
        if self.sender.handle_silence(now, idle, stats, lost) == Probe::Dead {
            self.end(now, stats);
        }
    }

    fn timer_due(&self) -> Option<Time> {
        self.sender.due()
    }

    /// A packet is retransmitted while it is still useful on the other side: while its Interest
    /// waits there, and not too often.
    fn may_resend(&self, now: Time, piece: &Piece) -> bool {
        if piece.retransmissions >= self.max_retransmissions {
            return false;
        }
        let patience = match InterestRef::decode(&piece.packet) {
            Ok(interest) => interest.lifetime,
            Err(_) => self.data_patience,
        };
        let elapsed = now.since(piece.accepted_at);
        let round_trip = self.sender.round_trip().unwrap_or(Duration::ZERO);
        elapsed + round_trip < patience
    }

    fn still_lost(&self, number: u64) -> bool {
        self.sender.still_lost(number)
    }

    fn give_up(&mut self, number: u64) {
        self.sender.give_up(number);
    }

    fn forget_packet(&mut self, packet_id: u64) {
        self.sender.forget_packet(packet_id);
    }

    fn report(&self, stats: &mut LinkStats) {
        if self.is_agreed() {
            self.sender.report(stats);
            stats.mode = Mode::Adaptive;
        }
    }
}
