//! A chunk in transfer to the neighbour.

use bytes::Bytes;

use super::bitmap::{Bitmap, low_bits};
use super::lanes::Lane;
use super::wire::{Data, Envelope, Progress, Shape, encode_data};

/// A chunk as passed by the owner: `head` followed by `body`.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    pub(super) tag: u64,
    pub(super) lane: Lane,
    pub(super) head: Bytes,
    pub(super) body: Bytes,
}

impl Parcel {
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Returns the bytes `from..to`, in at most two pieces.
    fn slice(&self, from: usize, to: usize) -> [&[u8]; 2] {
        let border = self.head.len();
        let of_head = &self.head[from.min(border)..to.min(border)];
        let of_body = &self.body[from.max(border) - border..to.max(border) - border];
        [of_head, of_body]
    }
}

/// The state of room for a chunk at the neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Requested; no answer yet.
    Asked,
    /// Refused; the neighbour announces room.
    Refused,
    /// Granted, or the chunk is small and the window allows it.
    Given,
}

/// The intended outcome of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Deliver the chunk.
    Deliver,
    /// The owner has withdrawn the chunk; the neighbour must still be told.
    Withdrawn,
    /// Its packets no longer fit the path: the neighbour is asked to cancel it, then it is split
    /// anew.
    Recut,
}

/// The effect of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Packets newly found missing.
    pub(super) lost: usize,
    /// Packets of full size that have arrived since the last report.
    pub(super) full: usize,
}

pub(super) struct OutboundChunk {
    pub(super) parcel: Parcel,
    pub(super) shape: Shape,
    pub(super) packets: u16,
    pub(super) room: Room,
    pub(super) fate: Fate,
    /// The last CSYN about it, while that is unanswered.
    pub(super) asked: Option<u32>,
    /// The neighbour's clock in the newest report about it.
    pub(super) reported_at: u64,
    /// A second CSYN after the reordering window is scheduled for the last packets.
    pub(super) tailed: bool,
    overhead: usize,
    acked: Bitmap,
    missing: Bitmap,
    // Packets before this one have been sent at least once.
    sent: usize,
    // The maximum of `sent`: packets of a refused attempt may arrive after room is granted.
    ever_sent: usize,
    // Place of each packet's last transmission in the sending order.
    order: Vec<u32>,
}

impl OutboundChunk {
    /// Splits `parcel`, which must not be empty, into frames of at most `frame` bytes, of which
    /// `overhead` are no payload. Returns it if that gives too many.
    pub(super) fn new(
        parcel: Parcel,
        (frame, overhead): (usize, usize),
        room: Room,
    ) -> Result<OutboundChunk, Parcel> {
        let (len, payload) = (parcel.len(), frame - overhead);
        let shape = Shape {
            chunk_len: len as u32,
            packet_size: payload.min(len) as u16,
        };
        let Some(packets) = shape.packets() else {
            return Err(parcel);
        };
        let count = usize::from(packets);
        Ok(OutboundChunk {
            parcel,
            overhead,
            shape,
            packets,
            room,
            fate: Fate::Deliver,
            tailed: false,
            asked: None,
            reported_at: 0,
            acked: Bitmap::new(count),
            missing: Bitmap::new(count),
            sent: 0,
            ever_sent: 0,
            order: vec![0; count],
        })
    }

    /// Returns true if any of its packets was ever sent.
    pub(super) fn was_ever_sent(&self) -> bool {
        self.ever_sent > 0
    }

    /// Returns the bytes that have never been sent.
    pub(super) fn unsent_bytes(&self) -> usize {
        if self.fate == Fate::Deliver {
            self.parcel.len() - self.start_of(self.sent)
        } else {
            0
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < usize::from(self.packets)
            && self.room == Room::Given
            && self.fate == Fate::Deliver
    }

    pub(super) fn has_missing(&self) -> bool {
        self.missing.count_ones() > 0 && self.fate == Fate::Deliver
    }

    /// Returns true if there is nothing to send before the neighbour answers.
    pub(super) fn is_waiting(&self) -> bool {
        !self.has_unsent() && !self.has_missing()
    }

    /// Returns the size of the frame that [`OutboundChunk::write_next`] would write.
    pub(super) fn next_frame_len(&self) -> Option<usize> {
        let (seq, _) = self.next_packet()?;
        Some(self.start_of(seq + 1) - self.start_of(seq) + self.overhead)
    }

    /// Writes the next packet: a missing one, or else the first new one. Returns true for a
    /// retransmission.
    pub(super) fn write_next(
        &mut self,
        envelope: Envelope,
        hop_id: u32,
        order: u32,
        buffer: &mut Vec<u8>,
    ) -> Option<bool> {
        let (seq, resent) = self.next_packet()?;
        let parts = self
            .parcel
            .slice(self.start_of(seq), self.start_of(seq + 1));
        let data = Data {
            hop_id,
            seq: seq as u16,
            last: seq + 1 == usize::from(self.packets),
            resent,
            question: None,
            chunk_len: self.shape.chunk_len,
            payload: &[],
        };
        encode_data(envelope, &data, parts, buffer);
        if resent {
            self.missing.clear(seq);
        } else {
            self.sent = seq + 1;
            self.ever_sent = self.ever_sent.max(self.sent);
        }
        self.order[seq] = order;
        // An older CSYN does not cover this packet.
        self.asked = None;
        self.tailed = false;
        Some(resent)
    }

    /// Returns true if `progress` is consistent with the packets sent.
    pub(super) fn is_plausible(&self, progress: &Progress<'_>) -> bool {
        match *progress {
            Progress::Refused => true,
            Progress::Cancelled => self.fate != Fate::Deliver,
            Progress::Complete => {
                self.fate != Fate::Deliver || self.ever_sent == usize::from(self.packets)
            }
            Progress::Held { start, bitmap, .. } => {
                let (from, used) = (
                    usize::from(start) * 8,
                    bitmap.iter().rposition(|byte| *byte != 0),
                );
                let end = match used {
                    Some(at) => from + at * 8 + 8 - bitmap[at].leading_zeros() as usize,
                    None => from,
                };
                end <= self.ever_sent
                    && (end < usize::from(self.packets)
                        || !all_ones(bitmap, usize::from(self.packets) - from))
            }
        }
    }

    /// Handles the neighbour's bitmap. Packets that are not in it and were sent before place
    /// `lost_before` of the sending order are missing.
    pub(super) fn report(
        &mut self,
        start: u16,
        bitmap: &[u8],
        cut: bool,
        lost_before: Option<u32>,
    ) -> Change {
        let mut change = Change::default();
        let from = usize::from(start) * 8;
        let said = if cut {
            from + bitmap.len() * 8
        } else {
            usize::MAX
        };
        for word in 0..self.acked.word_count() {
            let base = word * 64;
            if base >= said {
                break;
            }
            let told = low_bits(said - base);
            let present = reported_word(base, from, bitmap);
            let fresh = present & told & !self.acked.word(word);
            change.full += (fresh & self.full_sized(base)).count_ones() as usize;
            self.acked
                .set_word(word, self.acked.word(word) & !told | present & told);
            self.missing
                .set_word(word, self.missing.word(word) & !present);
            let Some(lost_before) = lost_before else {
                continue;
            };
            let sent = low_bits(self.sent.saturating_sub(base));
            let mut absent = sent & told & !self.acked.word(word) & !self.missing.word(word);
            while absent != 0 {
                let seq = base + absent.trailing_zeros() as usize;
                absent &= absent - 1;
                if (self.order[seq].wrapping_sub(lost_before) as i32) < 0 && self.missing.set(seq) {
                    change.lost += 1;
                }
            }
        }
        change
    }

    /// Declares the last packets in flight lost, at most `most` of them.
    pub(super) fn presume_lost(&mut self, most: usize) {
        let under_way = |seq: &usize| !self.acked.get(*seq) && !self.missing.get(*seq);
        let last = (0..self.sent).rev().filter(under_way);
        let lost: Vec<usize> = last.take(most).collect();
        for seq in lost {
            self.missing.set(seq);
        }
    }

    /// Handles completion at the neighbour. Returns the number of full-size packets not reported
    /// before.
    pub(super) fn complete(&self) -> usize {
        let fresh = |word: usize| !self.acked.word(word) & self.full_sized(word * 64);
        (0..self.acked.word_count())
            .map(|word| fresh(word).count_ones() as usize)
            .sum()
    }

    /// Returns the bytes of the frame of each packet but the last.
    pub(super) fn frame_len(&self) -> usize {
        usize::from(self.shape.packet_size) + self.overhead
    }

    /// Returns the full-size packets among `base..base + 64`, as bits.
    fn full_sized(&self, base: usize) -> u64 {
        // The chunk itself may have been withdrawn.
        let full = self.shape.chunk_len as usize / usize::from(self.shape.packet_size);
        low_bits(full.saturating_sub(base))
    }

    /// Starts again after a refusal: the neighbour keeps nothing, so all packets must be sent once
    /// there is room.
    pub(super) fn start_over(&mut self, room: Room) {
        self.acked.reset();
        self.missing.reset();
        self.sent = 0;
        self.room = room;
    }

    fn next_packet(&self) -> Option<(usize, bool)> {
        if self.fate != Fate::Deliver || self.room != Room::Given {
            return None;
        }
        match self.missing.first() {
            Some(seq) => Some((seq, true)),
            None => (self.sent < usize::from(self.packets)).then_some((self.sent, false)),
        }
    }

    fn start_of(&self, seq: usize) -> usize {
        (seq * usize::from(self.shape.packet_size)).min(self.parcel.len())
    }
}

/// Returns bits `base..base + 64` of the set that contains everything below `from`, followed by
/// `bitmap`.
fn reported_word(base: usize, from: usize, bitmap: &[u8]) -> u64 {
    let below = low_bits(from.saturating_sub(base));
    (0..8).fold(below, |word, byte| {
        let at = base + byte * 8;
        let value = at
            .checked_sub(from)
            .and_then(|ahead| bitmap.get(ahead / 8))
            .copied()
            .unwrap_or(0);
        word | u64::from(value) << (byte * 8)
    })
}

/// Returns true if the first `count` bits are all set.
fn all_ones(bitmap: &[u8], count: usize) -> bool {
    (0..count).all(|bit| {
        bitmap
            .get(bit / 8)
            .is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chunk(len: usize, head: usize, payload: usize) -> OutboundChunk {
        let bytes = Bytes::from((0..len).map(|i| i as u8).collect::<Vec<_>>());
        let parcel = Parcel {
            lane: Lane::DEFAULT,
            tag: 1,
            head: bytes.slice(..head),
            body: bytes.slice(head..),
        };
        OutboundChunk::new(parcel, (payload + 24, 24), Room::Given)
            .unwrap_or_else(|_| panic!("too many packets"))
    }

    proptest! {
        #[test]
        fn packets_in_a_row_are_the_chunk(len in 1usize..5_000, head in 0usize..5_000, payload in 1usize..700) {
            let mut chunk = chunk(len, head.min(len), payload);
            let (mut buffer, mut whole) = (Vec::new(), Vec::new());
            while let Some(size) = chunk.next_frame_len() {
                buffer.clear();
                prop_assert_eq!(chunk.write_next(Envelope::Plain, 0, 0, &mut buffer), Some(false));
                prop_assert_eq!(buffer.len(), size);
                whole.extend_from_slice(&buffer[20..size - 4]);
            }
            prop_assert_eq!(whole, (0..len).map(|i| i as u8).collect::<Vec<_>>());
            prop_assert_eq!(chunk.unsent_bytes(), 0);
        }

        /// The model is the plain rule: a packet is newly missing if it was sent before the
        /// threshold, is not in the report, and is not known to be missing.
        #[test]
        fn a_packet_sent_in_time_and_not_reported_is_missing(
            sent in 1usize..200, present in prop::collection::btree_set(0usize..200, 0..200), threshold in 0u32..220,
        ) {
            let mut chunk = chunk(200, 0, 1);
            let mut buffer = Vec::new();
            for order in 0..sent {
                chunk.write_next(Envelope::Plain, 0, order as u32, &mut buffer);
            }
            let mut whole = Bitmap::new(200);
            present.iter().filter(|seq| **seq < sent).for_each(|seq| { whole.set(*seq); });
            let start = whole.leading_bytes();
            let bitmap: Vec<u8> = (start..whole.used_bytes().max(start)).map(|i| whole.byte(i)).collect();
            prop_assume!(!whole.is_full());
            let held = Progress::Held { start: start as u16, bitmap: &bitmap, cut: false };
            prop_assert!(chunk.is_plausible(&held));
            let change = chunk.report(start as u16, &bitmap, false, Some(threshold));
            let expected: Vec<usize> = (0..sent).filter(|seq| !whole.get(*seq) && (*seq as u32) < threshold).collect();
            prop_assert_eq!(change.lost, expected.len());
            for seq in expected {
                prop_assert_eq!(chunk.next_packet(), Some((seq, true)));
                chunk.write_next(Envelope::Plain, 0, 1_000, &mut buffer);
            }
            prop_assert!(!chunk.has_missing());
        }
    }

    #[test]
    fn reports_of_unsent_packets_are_not_plausible() {
        let mut chunk = chunk(100, 50, 10);
        chunk.write_next(Envelope::Plain, 0, 0, &mut Vec::new());
        let held = |start, bitmap| Progress::Held {
            start,
            bitmap,
            cut: false,
        };
        assert!(chunk.is_plausible(&held(0, &[1])));
        assert!(!chunk.is_plausible(&held(0, &[2])));
        assert!(!chunk.is_plausible(&held(1, &[])));
        assert!(!chunk.is_plausible(&held(0, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])));
        assert!(!chunk.is_plausible(&Progress::Complete));
    }
}
