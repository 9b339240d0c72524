//! Frames that go out.

use whimbrel_core::Time;
use whimbrel_ndn_packet::lp::{self, LinkFields, Numbers};
use whimbrel_ndn_packet::{LpHeader, SharedPacket, tlv, types};

use super::sizes::{cut, fragment_overhead, whole_frame_len};
use super::{LinkService, Written};
use crate::ndnlp::adaptive::HELLO_LEN;
use crate::ndnlp::compact::Kind;
use crate::ndnlp::paper::wire as paper_wire;
use crate::ndnlp::piece::{Piece, Profile};
use crate::ndnlp::queue::{Entry, QueuedPacket, Resend};

/// Most bytes that one call writes for datagrams: what a kernel takes for segmentation.
const LARGEST_BATCH: usize = 65_000;
/// Octets of the announcement as a header field.
const HELLO_FIELD_LEN: usize = tlv::element_len(types::LP_ADAPTIVE_HELLO, HELLO_LEN);

/// A packet of which some fragments have not been sent for the first time.
#[derive(Debug)]
pub(super) struct InFragments {
    // Of the fragment that is next.
    next: Piece,
    /// What the packet was before it was put in this form.
    original: QueuedPacket,
    fragment_len: u32,
    profile: Profile,
}

impl InFragments {
    pub(super) fn packet_id(&self) -> u64 {
        self.next.packet_id
    }
}

impl LinkService {
    pub(super) fn write_stream(
        &mut self,
        now: Time,
        batch: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Written> {
        let start = buffer.len();
        while let Some(len) = self.queue.next_len() {
            let written = buffer.len() - start;
            if written > 0 && written + len > batch {
                break;
            }
            if self.write_frame(now, buffer) {
                self.stats.frames_sent += 1;
            }
        }
        let size = buffer.len() - start;
        (size > 0).then_some(Written {
            size,
            segment_size: None,
        })
    }

    pub(super) fn write_datagrams(
        &mut self,
        now: Time,
        most: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Written> {
        let start = buffer.len();
        let mut frames = 0;
        let mut segment = 0;
        if !self.held_back.is_empty() {
            buffer.append(&mut self.held_back);
            segment = buffer.len() - start;
            frames = 1;
        }
        while frames < most && buffer.len() - start + segment <= LARGEST_BATCH {
            let at = buffer.len();
            if !self.write_frame(now, buffer) {
                break;
            }
            let len = buffer.len() - at;
            if frames > 0 && len > segment {
                self.held_back
                    .extend_from_slice(buffer.get(at..).unwrap_or_default());
                buffer.truncate(at);
                break;
            }
            frames += 1;
            if frames == 1 {
                segment = len;
            } else if len < segment {
                break;
            }
        }
        self.stats.frames_sent += frames as u64;
        let size = buffer.len() - start;
        (frames > 0).then_some(Written {
            size,
            segment_size: (frames > 1).then_some(segment),
        })
    }

    /// Appends the next frame; false if there is none.
    fn write_frame(&mut self, now: Time, buffer: &mut Vec<u8>) -> bool {
        if self.write_urgent_control(now, buffer) {
            return true;
        }
        if self.write_next_fragment(now, buffer) {
            return true;
        }
        loop {
            let waiting = self.queue.bytes();
            let written = match self.queue.pop() {
                Some(Entry::Packet(packet)) => self.write_packet(now, packet, waiting, buffer),
                Some(Entry::Resend(resend)) => self.write_resend(now, *resend, buffer),
                None => return self.write_control(now, buffer),
            };
            if written {
                return true;
            }
        }
    }

    /// What does not wait for packets: questions, announcements that no packet can carry, Acks that
    /// waited long enough.
    fn write_urgent_control(&mut self, now: Time, buffer: &mut Vec<u8>) -> bool {
        if let Some(adaptive) = &mut self.adaptive {
            if adaptive.write_ask(now, &mut self.stats, buffer) {
                return true;
            }
            let carried = !adaptive.is_agreed() && !self.queue.is_empty();
            if adaptive.owes_announcement(now) && !carried {
                let hello = adaptive.announce(now, &mut self.stats);
                let link = LinkFields {
                    adaptive_hello: Some(&hello),
                    ..LinkFields::default()
                };
                lp::encode(buffer, &link, &LpHeader::default(), None);
                return true;
            }
        }
        if let Some(ndnlpv2) = &mut self.ndnlpv2
            && ndnlpv2.ack_due().is_some_and(|due| due <= now)
        {
            let count = ndnlpv2.acks_that_fit(tlv::element_len(types::LP_PACKET, 0), self.mtu);
            ndnlpv2.take_acks(count, &mut self.acks);
            let link = LinkFields {
                acks: Numbers::Listed(&self.acks),
                ..LinkFields::default()
            };
            lp::encode(buffer, &link, &LpHeader::default(), None);
            self.stats.ack_frames += 1;
            self.stats.acks_alone += count as u64;
            return true;
        }
        false
    }

    /// What goes when there is nothing else to send.
    fn write_control(&mut self, now: Time, buffer: &mut Vec<u8>) -> bool {
        if let Some(gap) = self.paper.as_mut().and_then(|paper| paper.take_gap()) {
            paper_wire::encode_acks(buffer, &[gap]);
            self.stats.ack_frames += 1;
            self.stats.acks_alone += 1;
            return true;
        }
        match &mut self.adaptive {
            Some(adaptive) => adaptive.write_report(now, &mut self.stats, buffer),
            None => false,
        }
    }

    /// Whose numbers the next packet gets.
    fn profile(&mut self, now: Time) -> Profile {
        if self.paper.is_some() {
            return Profile::Paper;
        }
        if self
            .adaptive
            .as_ref()
            .is_some_and(|adaptive| adaptive.is_agreed())
        {
            return Profile::Adaptive;
        }
        let stats = &mut self.stats;
        let numbered = self
            .ndnlpv2
            .as_mut()
            .is_some_and(|ndnlpv2| ndnlpv2.wants_number(now, stats));
        if numbered {
            Profile::Ndnlpv2
        } else {
            Profile::Plain
        }
    }

    /// Appends the packet, or its first fragment; false if it had to be dropped. `waiting` is how
    /// many bytes were in the queue with it.
    fn write_packet(
        &mut self,
        now: Time,
        mut queued: QueuedPacket,
        waiting: usize,
        buffer: &mut Vec<u8>,
    ) -> bool {
        if self.config.marking && self.marker.marks(now, waiting) {
            self.stats.marks += 1;
            queued.header.get_or_insert_default().congestion_mark = Some(1);
        }
        if queued.header.is_none() && self.is_plain() && queued.packet.len() <= self.mtu {
            self.stats.payload_bytes_sent += queued.packet.len() as u64;
            self.stats.packets_sent += 1;
            buffer.extend_from_slice(&queued.packet);
            return true;
        }
        let profile = self.profile(now);
        let packet_id = self.next_packet_id;
        self.next_packet_id += 1;
        let len = whole_frame_len(profile, &queued.packet, queued.header.as_deref());
        let mut piece = Piece {
            len: queued.packet.len() as u32,
            packet: queued.packet,
            header: queued.header,
            start: 0,
            index: 0,
            count: 1,
            packet_id,
            identity: 0,
            retransmissions: 0,
            accepted_at: queued.queued_at,
            queued_at: queued.queued_at,
        };
        if len <= self.mtu {
            piece.identity = self.new_identity(profile);
            self.write_piece(now, profile, piece, None, buffer);
            return true;
        }
        let original = QueuedPacket {
            packet: piece.packet.clone(),
            header: piece.header.clone(),
            queued_at: piece.queued_at,
        };
        if profile == Profile::Adaptive && piece.header.is_some() {
            piece.packet = wrapped(&piece.packet, piece.header.take());
        }
        let overhead = fragment_overhead(profile, piece.header.as_deref());
        let plan = cut(profile, piece.packet.len(), overhead, self.mtu)
            .filter(|_| self.config.fragmentation);
        let Some((fragment_len, count)) = plan else {
            self.stats.drops.too_big += 1;
            return false;
        };
        piece.count = count as u16;
        let fragment_len = fragment_len as u32;
        self.in_fragments = Some(InFragments {
            next: piece,
            original,
            fragment_len,
            profile,
        });
        self.write_next_fragment(now, buffer)
    }

    fn write_next_fragment(&mut self, now: Time, buffer: &mut Vec<u8>) -> bool {
        let Some(mut packet) = self.in_fragments.take() else {
            return false;
        };
        let profile = packet.profile;
        let mut piece = packet.next.clone();
        piece.len = packet
            .fragment_len
            .min(piece.packet.len() as u32 - piece.start);
        piece.identity = self.new_identity(profile);
        packet.next.header = None;
        packet.next.index += 1;
        packet.next.start += piece.len;
        if packet.next.index < packet.next.count {
            self.in_fragments = Some(packet);
        }
        self.write_piece(now, profile, piece, None, buffer);
        true
    }

    fn new_identity(&mut self, profile: Profile) -> u64 {
        match profile {
            Profile::Paper => self
                .paper
                .as_mut()
                .map_or(0, |paper| paper.take_packet_number()),
            Profile::Adaptive => self
                .adaptive
                .as_ref()
                .map_or(0, |adaptive| adaptive.next_number()),
            Profile::Plain | Profile::Ndnlpv2 => {
                let sequence = self.next_sequence;
                self.next_sequence = sequence.wrapping_add(1);
                sequence
            }
        }
    }

    /// A packet that was begun is sent from its start again if its fragments do not fit into frames
    /// of the size that `limit` makes of the MTU.
    pub(super) fn restart_fragments(&mut self, limit: impl Fn(&InFragments, usize) -> usize) {
        let Some(packet) = self.in_fragments.take() else {
            return;
        };
        let header = packet.original.header.as_deref();
        let needed = packet.fragment_len as usize + fragment_overhead(packet.profile, header);
        if needed <= limit(&packet, self.mtu) {
            self.in_fragments = Some(packet);
            return;
        }
        self.forget_fragments(packet.profile, packet.packet_id());
        self.queue.put_back(packet.original);
    }

    /// Appends a frame that carries a lost piece again; false if that is not needed or not possible
    /// any more.
    fn write_resend(&mut self, now: Time, resend: Resend, buffer: &mut Vec<u8>) -> bool {
        let Resend {
            profile,
            number,
            piece,
        } = resend;
        if !self.still_lost(profile, number) {
            return false;
        }
        let len = if piece.is_whole() {
            whole_frame_len(profile, &piece.packet, piece.header.as_deref())
        } else {
            piece.len as usize + fragment_overhead(profile, piece.header.as_deref())
        };
        if len > self.mtu {
            // The MTU has shrunk since. A whole packet can be cut now; the fragments of one that
            // was cut are given up.
            if piece.is_whole() {
                self.settle(profile, number);
                let Piece {
                    packet,
                    header,
                    accepted_at: queued_at,
                    ..
                } = piece;
                self.queue.put_back(QueuedPacket {
                    packet,
                    header,
                    queued_at,
                });
            } else {
                self.stats.drops.too_big += 1;
                self.give_up(profile, number, piece);
            }
            return false;
        }
        let start = buffer.len();
        self.write_piece(now, profile, piece, Some(number), buffer);
        self.stats.retransmissions += 1;
        self.stats.retransmitted_bytes += (buffer.len() - start) as u64;
        true
    }

    /// Appends a frame with the piece and remembers it. `replaces` is the number under which it was
    /// lost.
    fn write_piece(
        &mut self,
        now: Time,
        profile: Profile,
        piece: Piece,
        replaces: Option<u64>,
        buffer: &mut Vec<u8>,
    ) {
        self.stats.payload_bytes_sent += u64::from(piece.len);
        self.stats.packets_sent += u64::from(replaces.is_none() && piece.index + 1 == piece.count);
        match profile {
            Profile::Plain => self.write_lp(now, &piece, None, buffer),
            Profile::Ndnlpv2 => {
                let number = self.ndnlpv2.as_ref().map(|ndnlpv2| ndnlpv2.next_number());
                self.write_lp(now, &piece, number, buffer);
                if let Some(ndnlpv2) = &mut self.ndnlpv2 {
                    ndnlpv2.sent(now, piece, replaces, &mut self.stats);
                }
            }
            Profile::Paper => self.write_paper(now, piece, replaces, buffer),
            Profile::Adaptive => self.write_adaptive(now, piece, replaces, buffer),
        }
    }

    /// As a bare packet if nothing has to be said of it, else as an LpPacket with as many Acks as
    /// fit.
    fn write_lp(&mut self, now: Time, piece: &Piece, number: Option<u64>, buffer: &mut Vec<u8>) {
        let none = LpHeader::default();
        let header = piece.header.as_deref().unwrap_or(&none);
        let mut link = LinkFields {
            sequence: (number.is_some() || !piece.is_whole()).then_some(piece.identity),
            tx_sequence: number,
            ..piece.place_fields()
        };
        let len = |link: &LinkFields<'_>| {
            let fragment = tlv::element_len(types::LP_FRAGMENT, piece.len as usize);
            tlv::element_len(types::LP_PACKET, lp::fields_len(link, header) + fragment)
        };
        let hello = self.adaptive.as_mut().filter(|adaptive| {
            // Two more octets if the length of the LpPacket grows by them.
            adaptive.wants_to_announce(now) && len(&link) + HELLO_FIELD_LEN + 2 <= self.mtu
        });
        let hello = hello.map(|adaptive| adaptive.announce(now, &mut self.stats));
        link.adaptive_hello = hello.as_ref().map(|hello| &hello[..]);
        if let Some(ndnlpv2) = self
            .ndnlpv2
            .as_mut()
            .filter(|ndnlpv2| ndnlpv2.acks_waiting() > 0)
        {
            let count = ndnlpv2.acks_that_fit(len(&link), self.mtu);
            ndnlpv2.take_acks(count, &mut self.acks);
            self.stats.acks_carried += count as u64;
            link.acks = Numbers::Listed(&self.acks);
        }
        let bare = link.is_empty() && header.is_empty();
        if bare {
            buffer.extend_from_slice(piece.bytes());
        } else {
            lp::encode(buffer, &link, header, Some(piece.bytes()));
        }
    }

    fn write_paper(
        &mut self,
        now: Time,
        piece: Piece,
        replaces: Option<u64>,
        buffer: &mut Vec<u8>,
    ) {
        let Some(paper) = &mut self.paper else { return };
        let numbers = paper.numbers(piece.identity);
        let smallest = self.config.smallest_frame;
        let mut element = core::mem::take(&mut self.scratch);
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
        let used = 2 + paper_wire::NUMBERS_LEN + packet.len();
        paper.take_acks(self.mtu.saturating_sub(used), &mut self.short_acks);
        self.stats.acks_carried += self.short_acks.len() as u64;
        paper_wire::encode(buffer, numbers, &self.short_acks, packet, smallest);
        self.scratch = element;
        paper.sent(now, piece, replaces, &mut self.stats);
    }

    fn write_adaptive(
        &mut self,
        now: Time,
        piece: Piece,
        replaces: Option<u64>,
        buffer: &mut Vec<u8>,
    ) {
        let Some(adaptive) = &mut self.adaptive else {
            return;
        };
        let start = buffer.len();
        let short = Kind::of(&piece.packet).filter(|(_, left_out)| {
            let long_enough = piece.packet.len() - left_out + 2 >= self.config.smallest_frame;
            piece.is_whole() && piece.header.is_none() && long_enough
        });
        let kind = short.map_or(Kind::Other, |(kind, _)| kind);
        let back = replaces.map(|_| adaptive.next_number().wrapping_sub(piece.identity));
        let len = if piece.is_whole() {
            whole_frame_len(Profile::Adaptive, &piece.packet, piece.header.as_deref())
        } else {
            piece.len as usize + fragment_overhead(Profile::Adaptive, None)
        };
        let room = self.mtu.saturating_sub(len);
        let width = adaptive.write_start(now, kind, back, room, &mut self.stats, buffer);
        match short {
            Some((_, left_out)) => {
                buffer.extend_from_slice(piece.bytes().get(left_out..).unwrap_or_default())
            }
            None if !piece.is_whole() => {
                buffer.extend_from_slice(&[piece.count as u8, piece.index as u8]);
                buffer.extend_from_slice(piece.bytes());
            }
            None => {
                buffer.push(0);
                match piece.header.as_deref() {
                    Some(header) => {
                        lp::encode(buffer, &LinkFields::default(), header, Some(piece.bytes()))
                    }
                    None => buffer.extend_from_slice(piece.bytes()),
                }
            }
        }
        debug_assert!(buffer.len() - start <= self.mtu);
        adaptive.sent(now, piece, width, replaces, &mut self.stats);
    }
}

/// The packet with its header, as one element.
fn wrapped(packet: &SharedPacket, header: Option<Box<LpHeader>>) -> SharedPacket {
    let mut element = Vec::with_capacity(packet.len() + 64);
    lp::encode(
        &mut element,
        &LinkFields::default(),
        &header.unwrap_or_default(),
        Some(packet),
    );
    element.into()
}
