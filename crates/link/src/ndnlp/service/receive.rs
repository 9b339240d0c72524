//! Frames that come in.

use whimbrel_core::Time;
use whimbrel_ndn_packet::lp::Field;
use whimbrel_ndn_packet::{LpHeader, LpHeaderRef, LpPacket, tlv};

use super::LinkService;
use crate::ndnlp::adaptive::wire::{AdaptiveFrame, Payload};
use crate::ndnlp::adaptive::{Hello, Origin};
use crate::ndnlp::compact::{ADAPTIVE, PAPER, PROFILE_MASK};
use crate::ndnlp::paper::wire::PaperFrame;
use crate::ndnlp::piece::Profile;
use crate::ndnlp::reassembly::{PacketKey, Place};

impl LinkService {
    pub(super) fn receive(
        &mut self,
        now: Time,
        frame: &[u8],
        deliver: &mut dyn FnMut(&LpPacket<'_>),
    ) {
        self.stats.frames_received += 1;
        self.stats.bytes_received += frame.len() as u64;
        match frame.first().map(|first| first & PROFILE_MASK) {
            Some(ADAPTIVE) => self.receive_adaptive(now, frame, deliver),
            Some(PAPER) => self.receive_paper(now, frame, deliver),
            _ => self.receive_ndnlp(now, frame, deliver),
        }
    }

    fn padding_allowed(&self) -> bool {
        self.config.smallest_frame > 0
    }

    fn receive_ndnlp(&mut self, now: Time, frame: &[u8], deliver: &mut dyn FnMut(&LpPacket<'_>)) {
        let Ok(lp) = LpPacket::decode(frame, self.padding_allowed()) else {
            self.stats.drops.malformed += 1;
            return;
        };
        if !lp.skipped.is_empty() {
            let needed = [Field::Ack, Field::TxSequence];
            if self.ndnlpv2.is_some() && needed.into_iter().any(|field| lp.skipped.contains(field))
            {
                self.stats.drops.malformed += 1;
                return;
            }
            self.stats.fields_skipped += 1;
        }
        self.receive_link_fields(now, &lp);
        if lp.fragment.is_none() {
            return;
        }
        if let (Some(number), Some(ndnlpv2)) = (lp.link.tx_sequence, &mut self.ndnlpv2)
            && ndnlpv2.handle_number(now, number, lp.link.sequence, &mut self.stats)
        {
            return;
        }
        self.deliver_lp(now, &lp, deliver);
    }

    /// Acks and announcements.
    fn receive_link_fields(&mut self, now: Time, lp: &LpPacket<'_>) {
        if self.ndnlpv2.is_none() && self.adaptive.is_none() {
            return;
        }
        if let Some(ndnlpv2) = &mut self.ndnlpv2 {
            for ack in lp.link.acks.iter() {
                ndnlpv2.handle_ack(now, ack, &mut self.stats, &mut self.lost);
            }
        }
        if let Some(adaptive) = &mut self.adaptive {
            match lp.link.adaptive_hello.and_then(Hello::decode) {
                Some(hello) => {
                    if adaptive.handle_hello(now, hello, &mut self.stats) {
                        self.reassembler.forget_frames();
                        // What was lost under the old agreement belongs to it.
                        let gone = self
                            .queue
                            .retain_resends(|resend| resend.profile != Profile::Adaptive);
                        self.stats.abandoned += gone as u64;
                    }
                }
                None => adaptive.handle_foreign(now, &mut self.stats),
            }
        }
        self.recover(now, Profile::Ndnlpv2);
    }

    fn deliver_lp(&mut self, now: Time, lp: &LpPacket<'_>, deliver: &mut dyn FnMut(&LpPacket<'_>)) {
        let Some(fragment) = lp.fragment else { return };
        if !lp.is_fragment() {
            self.stats.packets_delivered += 1;
            deliver(lp);
            return;
        }
        let Some(sequence) = lp.link.sequence else {
            self.stats.drops.bad_fragment += 1;
            return;
        };
        let (index, count) = lp.place();
        let key = PacketKey::Sequence(sequence.wrapping_sub(index));
        let place = Place { key, index, count };
        let header = (!lp.header.is_empty()).then(|| lp.to_header());
        let delivered = &mut self.stats.packets_delivered;
        let drops = &mut self.stats.drops;
        self.reassembler.insert(
            now,
            place,
            fragment,
            header,
            drops,
            &mut |packet, header| {
                *delivered += 1;
                let header = header.map(LpHeader::as_ref).unwrap_or_default();
                deliver(&LpPacket::whole(packet, header));
            },
        );
    }

    fn receive_paper(&mut self, now: Time, frame: &[u8], deliver: &mut dyn FnMut(&LpPacket<'_>)) {
        let (Some(frame), Some(paper)) = (PaperFrame::decode(frame), &mut self.paper) else {
            self.stats.drops.malformed += 1;
            return;
        };
        for ack in frame.acks() {
            paper.handle_ack(now, ack, &mut self.stats, &mut self.lost);
        }
        let twice = frame
            .numbers
            .is_some_and(|numbers| paper.handle_numbers(now, numbers, &mut self.stats));
        self.recover(now, Profile::Paper);
        if twice {
            return;
        }
        let mut scratch = core::mem::take(&mut self.scratch);
        if let Some(packet) = frame.packet(&mut scratch) {
            match LpPacket::decode(packet, self.padding_allowed()) {
                Ok(lp) => self.deliver_lp(now, &lp, deliver),
                Err(_) => self.stats.drops.malformed += 1,
            }
        }
        self.scratch = scratch;
    }

    fn receive_adaptive(
        &mut self,
        now: Time,
        frame: &[u8],
        deliver: &mut dyn FnMut(&LpPacket<'_>),
    ) {
        let size = frame.len();
        let Some(frame) = AdaptiveFrame::decode(frame) else {
            self.stats.drops.malformed += 1;
            return;
        };
        let mut origin = Origin::Unknown;
        if let Some(adaptive) = &mut self.adaptive {
            origin = adaptive.handle_frame(now, &frame, size, &mut self.stats, &mut self.lost);
            self.recover(now, Profile::Adaptive);
        }
        let AdaptiveFrame::Packet { payload, .. } = frame else {
            return;
        };
        match (payload, origin) {
            (_, Origin::Twice) => {}
            (Payload::Value(kind, value), _) => {
                let Some(typ) = kind.typ() else { return };
                self.scratch.clear();
                tlv::write_header(&mut self.scratch, typ, value.len());
                self.scratch.extend_from_slice(value);
                self.stats.packets_delivered += 1;
                deliver(&LpPacket::whole(&self.scratch, LpHeaderRef::default()));
            }
            (Payload::Whole(packet), _) => match LpPacket::decode(packet, self.padding_allowed()) {
                Ok(lp) => self.deliver_lp(now, &lp, deliver),
                Err(_) => self.stats.drops.malformed += 1,
            },
            (
                Payload::Fragment {
                    index,
                    count,
                    bytes,
                },
                Origin::New(first),
            ) => {
                let (index, count) = (u64::from(index), u64::from(count));
                let place = Place {
                    key: PacketKey::Frame(first.wrapping_sub(index)),
                    index,
                    count,
                };
                let padding_allowed = self.padding_allowed();
                let (delivered, mut malformed) = (&mut self.stats.packets_delivered, 0);
                let drops = &mut self.stats.drops;
                self.reassembler
                    .insert(
                        now,
                        place,
                        bytes,
                        None,
                        drops,
                        &mut |packet, _| match LpPacket::decode(packet, padding_allowed) {
                            Ok(lp) if lp.fragment.is_some() && !lp.is_fragment() => {
                                *delivered += 1;
                                deliver(&lp);
                            }
                            _ => malformed += 1,
                        },
                    );
                self.stats.drops.malformed += malformed;
            }
            (Payload::Fragment { .. }, Origin::Unknown) => self.stats.drops.no_session += 1,
        }
    }
}
