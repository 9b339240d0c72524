//! Frames to send.

use whimbrel_core::Time;
use whimbrel_ndn_packet::LpHeader;
use whimbrel_ndn_packet::lp::{self, LinkFields};

use super::{LinkService, Written};
use crate::ndnlp::framing::{LpFrame, cut, wrapped};
use crate::ndnlp::piece::Piece;
use crate::ndnlp::queue::{Entry, QueuedPacket, Resend};
use crate::ndnlp::recovery::{FramePlan, ProfileId};

/// Maximum of bytes that one call writes for datagrams: the kernel's limit for segmentation.
const MAX_BATCH: usize = 65_000;

/// A packet whose fragments have not all been sent yet.
#[derive(Debug)]
pub(super) struct InFragments {
    // The next fragment.
    next: Piece,
    /// The packet before it was encapsulated.
    original: QueuedPacket,
    /// Largest frame for it, in bytes.
    mtu: usize,
    fragment_len: u32,
    profile: ProfileId,
}

impl InFragments {
    pub(super) fn packet_id(&self) -> u64 {
        self.next.packet_id
    }

    /// Returns the time when the packet was queued.
    pub(super) fn queued_at(&self) -> Time {
        self.original.queued_at
    }

    /// Returns the bytes of the unsent fragments.
    pub(super) fn bytes_left(&self) -> usize {
        self.next.packet.len() - self.next.start as usize
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
        max_frames: usize,
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
        while frames < max_frames && buffer.len() - start + segment <= MAX_BATCH {
            let at = buffer.len();
            if !self.write_next(now, buffer) {
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

    /// Appends the next frame of any kind. Returns false if there is none.
    fn write_next(&mut self, now: Time, buffer: &mut Vec<u8>) -> bool {
        let waits = !self.queue.is_empty() || self.in_fragments.is_some();
        let stats = &mut self.stats;
        if let Some(path) = &mut self.path
            && path.write(now, waits, stats, buffer)
        {
            self.check_path();
            return true;
        }
        let start = buffer.len();
        let written = self.write_frame(now, buffer);
        if let Some(path) = self.path.as_mut().filter(|_| written) {
            path.frame_sent(now, buffer.len() - start);
        }
        written
    }

    /// Appends the next frame. Returns false if there is none.
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

    /// Appends a control frame that does not wait for packets.
    fn write_urgent_control(&mut self, now: Time, buffer: &mut Vec<u8>) -> bool {
        let packets_wait = !self.queue.is_empty();
        let (mtu, stats) = (self.mtu, &mut self.stats);
        let mut recovering = self.profiles.recovering.iter_mut();
        recovering.any(|profile| profile.write_urgent(now, mtu, packets_wait, stats, buffer))
    }

    /// Appends a control frame that is sent when there is nothing else to send.
    fn write_control(&mut self, now: Time, buffer: &mut Vec<u8>) -> bool {
        let stats = &mut self.stats;
        let mut recovering = self.profiles.recovering.iter_mut();
        recovering.any(|profile| profile.write_idle(now, stats, buffer))
    }

    /// Appends the packet, or its first fragment. Returns false if it had to be dropped. `waiting`
    /// is the number of bytes that were in the queue with it.
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
        let mtu = self.mtu_for(now, &queued.packet);
        if queued.header.is_none() && self.is_plain() && queued.packet.len() <= mtu {
            self.stats.payload_bytes_sent += queued.packet.len() as u64;
            self.stats.packets_sent += 1;
            buffer.extend_from_slice(&queued.packet);
            return true;
        }
        let id = self.profiles.taking_next(now, &mut self.stats);
        let packet_id = self.next_packet_id;
        self.next_packet_id += 1;
        let profile = self.profiles.get(id);
        let len = profile.whole_frame_len(&queued.packet, queued.header.as_deref());
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
        if len <= mtu {
            piece.identity = self.new_identity(id);
            self.write_piece(now, id, piece, None, mtu, buffer);
            return true;
        }
        if let Some(path) = &mut self.path {
            path.want_more();
        }
        let original = QueuedPacket {
            packet: piece.packet.clone(),
            header: piece.header.clone(),
            queued_at: piece.queued_at,
        };
        if profile.cuts_with_header() && piece.header.is_some() {
            piece.packet = wrapped(&piece.packet, piece.header.take());
        }
        let overhead = profile.fragment_overhead(piece.header.as_deref());
        let max_fragments = profile.max_fragments();
        let plan = cut(piece.packet.len(), overhead, mtu, max_fragments)
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
            mtu,
            fragment_len,
            profile: id,
        });
        self.write_next_fragment(now, buffer)
    }

    fn write_next_fragment(&mut self, now: Time, buffer: &mut Vec<u8>) -> bool {
        let Some(mut packet) = self.in_fragments.take() else {
            return false;
        };
        let id = packet.profile;
        let mut piece = packet.next.clone();
        piece.len = packet
            .fragment_len
            .min(piece.packet.len() as u32 - piece.start);
        piece.identity = self.new_identity(id);
        let mtu = packet.mtu.min(self.mtu);
        packet.next.header = None;
        packet.next.index += 1;
        packet.next.start += piece.len;
        if packet.next.index < packet.next.count {
            self.in_fragments = Some(packet);
        }
        self.write_piece(now, id, piece, None, mtu, buffer);
        true
    }

    /// Returns the largest frame for a packet that is sent now.
    fn mtu_for(&mut self, now: Time, packet: &[u8]) -> usize {
        let Some(path) = &mut self.path else {
            return self.mtu;
        };
        let size = path.size_for(now, packet);
        self.check_path();
        size.min(self.mtu)
    }

    fn new_identity(&mut self, id: ProfileId) -> u64 {
        if let Some(identity) = self.profiles.get_mut(id).identity() {
            return identity;
        }
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        sequence
    }

    /// Restarts the current packet from its first fragment if its fragments exceed the frame size
    /// that `limit` derives from the MTU.
    pub(super) fn restart_fragments(&mut self, limit: impl Fn(&InFragments, usize) -> usize) {
        let Some(packet) = self.in_fragments.take() else {
            return;
        };
        let header = packet.original.header.as_deref();
        let overhead = self.profiles.get(packet.profile).fragment_overhead(header);
        let needed = packet.fragment_len as usize + overhead;
        if needed <= limit(&packet, self.mtu) {
            self.in_fragments = Some(packet);
            return;
        }
        self.forget_fragments(packet.profile, packet.packet_id());
        self.queue.put_back(packet.original);
    }

    /// Appends a frame with a lost piece. Returns false if that is no longer needed or possible.
    fn write_resend(&mut self, now: Time, resend: Resend, buffer: &mut Vec<u8>) -> bool {
        let Resend {
            profile: id,
            number,
            piece,
        } = resend;
        let profile = self.profiles.get(id);
        if !profile.still_lost(number) {
            return false;
        }
        let header = piece.header.as_deref();
        let len = if piece.is_whole() {
            profile.whole_frame_len(&piece.packet, header)
        } else {
            piece.len as usize + profile.fragment_overhead(header)
        };
        if len > self.mtu {
            // The MTU has decreased meanwhile. A whole packet can be fragmented now; the fragments
            // of a packet are abandoned.
            if piece.is_whole() {
                self.stop_resending(id, number);
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
                self.give_up(id, number, piece);
            }
            return false;
        }
        let start = buffer.len();
        self.write_piece(now, id, piece, Some(number), self.mtu, buffer);
        self.stats.retransmissions += 1;
        self.stats.retransmitted_bytes += (buffer.len() - start) as u64;
        true
    }

    /// Appends a frame with the piece and remembers it. `replaces` is the number under which it was
    /// lost; `mtu` bounds the frame.
    fn write_piece(
        &mut self,
        now: Time,
        id: ProfileId,
        piece: Piece,
        replaces: Option<u64>,
        mtu: usize,
        buffer: &mut Vec<u8>,
    ) {
        let stats = &mut self.stats;
        stats.payload_bytes_sent += u64::from(piece.len);
        stats.packets_sent += u64::from(replaces.is_none() && piece.index + 1 == piece.count);
        let profile = self.profiles.get_mut(id);
        let plan = FramePlan {
            piece: &piece,
            replaces,
            mtu,
            smallest_frame: self.config.smallest_frame,
        };
        if !profile.write_frame(now, &plan, stats, buffer) {
            let number = profile.transmission_number();
            self.write_lp(now, &piece, number, mtu, buffer);
        }
        self.profiles
            .get_mut(id)
            .sent(now, piece, replaces, &mut self.stats);
    }

    /// Writes a bare packet if it needs no fields, else an LpPacket with the fields of the
    /// profiles.
    fn write_lp(
        &mut self,
        now: Time,
        piece: &Piece,
        number: Option<u64>,
        mtu: usize,
        buffer: &mut Vec<u8>,
    ) {
        let none = LpHeader::default();
        let header = piece.header.as_deref().unwrap_or(&none);
        let mut link = LinkFields {
            sequence: (number.is_some() || !piece.is_whole()).then_some(piece.identity),
            tx_sequence: number,
            ..piece.place_fields()
        };
        let frame = LpFrame {
            header,
            payload_len: piece.len as usize,
            mtu,
        };
        for profile in &mut self.profiles.recovering {
            profile.add_fields(now, &frame, &mut link, &mut self.stats);
        }
        if link.is_empty() && header.is_empty() {
            buffer.extend_from_slice(piece.bytes());
        } else {
            lp::encode(buffer, &link, header, Some(piece.bytes()));
        }
    }
}
