//! Splits a stream of bytes into frames without copying them.

use super::Framing;
use super::tlv::{BadType, block_size};
use crate::side::{FRAMES_AT_ONCE, Frames};
use crate::transport::PREFIX;

/// Buffer for small frames. It grows for a larger frame, for as long as such frames arrive.
const SMALL: usize = 64 << 10;

/// The reason why no more frames can be read from a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The peer announced a frame of this many bytes, beyond the limit.
    Oversize(u64),
    /// The peer sent a block of an invalid type.
    BadType(u64),
    /// The peer sent a block of a type that this stream does not carry.
    ForeignType(u64),
}

/// The sizes that the first bytes of a frame give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Announced {
    /// Bytes before the part that is delivered.
    skip: usize,
    /// All bytes of the frame, including the skipped ones.
    whole: usize,
}

/// Collects bytes until a frame is complete.
#[derive(Debug)]
pub(super) struct FrameReader {
    framing: Framing,
    max_frame: usize,
    /// All of it is initialised; `start..end` holds bytes that were read and not yet taken.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl FrameReader {
    pub(super) fn new(framing: Framing, max_frame: usize) -> FrameReader {
        FrameReader {
            framing,
            max_frame,
            buffer: Vec::new(),
            start: 0,
            end: 0,
        }
    }

    /// Returns the space to read into, which is never empty. A large frame is read exactly to its
    /// end, so that the bytes after it need not be moved. The buffer at most doubles at a time: an
    /// announced frame costs no memory until its bytes arrive.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        match self.announced() {
            Ok(Some(Announced { whole, .. })) if whole > SMALL => {
                if self.start + whole > self.buffer.len() {
                    self.move_to_front();
                }
                let wanted = whole.min(self.buffer.len().max(self.end * 2)).max(SMALL);
                self.grow_to(wanted);
                let limit = self.buffer.len().min(self.start + whole);
                self.buffer.get_mut(self.end..limit).unwrap_or_default()
            }
            _ => {
                self.grow_to(SMALL);
                if self.start > 0 && self.buffer.len() - self.end < SMALL / 2 {
                    self.move_to_front();
                }
                // The small frame at the start is incomplete, so it ends within this limit.
                let limit = self.buffer.len().min(self.start + 2 * SMALL);
                self.buffer.get_mut(self.end..limit).unwrap_or_default()
            }
        }
    }

    /// Notes that `count` bytes were read into [`FrameReader::space`].
    pub(super) fn filled(&mut self, count: usize) {
        self.end = self.buffer.len().min(self.end + count);
    }

    /// Appends the next complete frames, without their length prefixes. Returns true if `frames` is
    /// full. An error concerns the bytes after the appended frames.
    pub(super) fn next_frames<'a>(&'a mut self, frames: &mut Frames<'a>) -> Result<bool, Refused> {
        let mut start = self.start;
        let outcome = loop {
            if frames.len() == FRAMES_AT_ONCE {
                break Ok(true);
            }
            let Announced { skip, whole } = match self.announced_at(start) {
                Ok(Some(announced)) => announced,
                Ok(None) => break Ok(false),
                Err(refused) => break Err(refused),
            };
            if start + whole > self.end {
                break Ok(false);
            }
            let frame = self
                .buffer
                .get(start + skip..start + whole)
                .unwrap_or_default();
            frames.push(frame);
            start += whole;
        };
        self.start = start;
        outcome
    }

    /// Returns true if the stream stopped in the middle of a frame.
    pub(super) fn is_partial(&self) -> bool {
        self.start != self.end
    }

    /// Returns true if it is empty and holds more memory than small frames need.
    pub(super) fn is_inflated(&self) -> bool {
        self.start == self.end && self.buffer.len() > SMALL
    }

    /// Releases memory, if no bytes wait.
    pub(super) fn deflate(&mut self) {
        if self.is_inflated() {
            (self.buffer, self.start, self.end) = (Vec::new(), 0, 0);
        }
    }

    fn announced(&self) -> Result<Option<Announced>, Refused> {
        self.announced_at(self.start)
    }

    fn announced_at(&self, start: usize) -> Result<Option<Announced>, Refused> {
        let read = self.buffer.get(start..self.end).unwrap_or_default();
        let (skip, size, limit) = match self.framing {
            Framing::LengthPrefix => {
                let Some(prefix) = read.first_chunk::<PREFIX>() else {
                    return Ok(None);
                };
                (
                    PREFIX,
                    u64::from(u32::from_be_bytes(*prefix)),
                    self.max_frame,
                )
            }
            Framing::Tlv(carried) => match block_size(read, carried) {
                Ok(Some(size)) => (0, size, self.max_frame),
                Ok(None) => return Ok(None),
                Err(BadType::Impossible(kind)) => return Err(Refused::BadType(kind)),
                Err(BadType::Foreign(kind)) => return Err(Refused::ForeignType(kind)),
            },
        };
        match usize::try_from(size) {
            Ok(size) if size <= limit => Ok(Some(Announced {
                skip,
                whole: skip + size,
            })),
            _ => Err(Refused::Oversize(size)),
        }
    }

    fn move_to_front(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
    }

    fn grow_to(&mut self, size: usize) {
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::BlockTypes;
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 300_000;

    /// Returns the complete frames, and the error of the bytes after them.
    fn frames_of(reader: &mut FrameReader) -> (Vec<Vec<u8>>, Option<Refused>) {
        let mut all = Vec::new();
        loop {
            let mut frames = Frames::new();
            let outcome = reader.next_frames(&mut frames);
            assert!(frames.len() <= FRAMES_AT_ONCE);
            assert_eq!(outcome == Ok(true), frames.len() == FRAMES_AT_ONCE);
            all.extend(frames.iter().map(|frame| frame.to_vec()));
            match outcome {
                Ok(true) => {}
                Ok(false) => return (all, None),
                Err(refused) => return (all, Some(refused)),
            }
        }
    }

    /// Feeds `stream` in pieces of the given sizes, which repeat.
    fn read_all(
        framing: Framing,
        stream: &[u8],
        pieces: &[usize],
    ) -> Result<Vec<Vec<u8>>, Refused> {
        let mut reader = FrameReader::new(framing, MAX);
        let (mut frames, mut at) = (Vec::new(), 0);
        for piece in pieces.iter().cycle() {
            let space = reader.space();
            assert!(!space.is_empty(), "there is always room to read");
            let count = space.len().min(*piece).min(stream.len() - at);
            space[..count].copy_from_slice(&stream[at..at + count]);
            reader.filled(count);
            at += count;
            let (whole, refused) = frames_of(&mut reader);
            frames.extend(whole);
            if let Some(refused) = refused {
                return Err(refused);
            }
            assert!(
                reader.buffer.len() <= PREFIX + MAX,
                "memory stays within one frame"
            );
            if at == stream.len() {
                break;
            }
        }
        assert!(!reader.is_partial());
        Ok(frames)
    }

    fn framed(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut stream = Vec::new();
        for frame in frames {
            stream.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            stream.extend_from_slice(frame);
        }
        stream
    }

    /// Appends a variable-size number in the shortest form, or in one up to `longer` steps longer.
    fn push_number(to: &mut Vec<u8>, number: u64, longer: usize) {
        let shortest = match number {
            0..=252 => 0,
            253..=0xffff => 1,
            0x1_0000..=0xffff_ffff => 2,
            _ => 3,
        };
        match (shortest + longer).min(3) {
            0 => to.push(number as u8),
            1 => to.extend([&[253][..], &(number as u16).to_be_bytes()].concat()),
            2 => to.extend([&[254][..], &(number as u32).to_be_bytes()].concat()),
            _ => to.extend([&[255][..], &number.to_be_bytes()].concat()),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn frames_survive_any_split_of_the_stream(
            lengths in prop::collection::vec(
                prop_oneof![0usize..40, 65_000usize..66_000, 200_000usize..MAX], 1..12),
            pieces in prop::collection::vec(1usize..100_000, 1..6),
        ) {
            let frames: Vec<Vec<u8>> = lengths.iter().enumerate()
                .map(|(n, length)| (0..*length).map(|i| (i * 31 + n) as u8).collect()).collect();
            // Pieces of one byte only would make the test slow.
            let pieces: Vec<usize> = pieces.iter().map(|piece| (*piece).max(37)).collect();
            prop_assert_eq!(read_all(Framing::LengthPrefix, &framed(&frames), &pieces), Ok(frames));
        }

        #[test]
        fn tlv_packets_survive_any_split_of_the_stream(
            shapes in prop::collection::vec(
                (1u64..0x1_0000_0000, 0usize..4, 0usize..4,
                 prop_oneof![0usize..300, 0usize..9_000, 65_000usize..66_000, 200_000usize..MAX - 18]), 1..16),
            pieces in prop::collection::vec(prop_oneof![1usize..12, 1usize..100_000], 1..6),
        ) {
            let packets: Vec<Vec<u8>> = shapes.iter().map(|(kind, kind_form, length_form, length)| {
                let mut packet = Vec::new();
                push_number(&mut packet, *kind, *kind_form);
                push_number(&mut packet, *length as u64, *length_form);
                packet.extend((0..*length).map(|i| (i * 31) as u8));
                packet
            }).collect();
            let stream = packets.concat();
            // Tiny pieces of a large stream would make the test slow.
            let pieces: Vec<usize> = pieces.iter().map(|piece| (*piece).max(stream.len() / 20_000 + 1)).collect();
            let framing = Framing::Tlv(BlockTypes::Any);
            prop_assert_eq!(read_all(framing, &stream, &pieces), Ok(packets));
        }

        #[test]
        fn any_bytes_are_frames_or_refused_and_memory_stays_bounded(
            framing in prop_oneof![
                Just(Framing::LengthPrefix),
                Just(Framing::Tlv(BlockTypes::Any)),
                Just(Framing::Tlv(BlockTypes::Only(&[1, 5]))),
            ],
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..8], 0..200),
            pieces in prop::collection::vec(1usize..50, 1..4),
        ) {
            let mut reader = FrameReader::new(framing, 64);
            let (mut at, mut turn) = (0, pieces.iter().cycle());
            'stream: while at < bytes.len() {
                let space = reader.space();
                let count = space.len().min(*turn.next().unwrap()).min(bytes.len() - at);
                space[..count].copy_from_slice(&bytes[at..at + count]);
                reader.filled(count);
                at += count;
                let (frames, refused) = frames_of(&mut reader);
                prop_assert!(frames.iter().all(|frame| frame.len() <= 64));
                match refused {
                    None => {}
                    Some(Refused::Oversize(size)) => {
                        prop_assert!(size > 64);
                        break 'stream;
                    }
                    Some(Refused::BadType(kind)) => {
                        prop_assert!(matches!(framing, Framing::Tlv(_)));
                        prop_assert!(!(1..=0xffff_ffff).contains(&kind));
                        break 'stream;
                    }
                    Some(Refused::ForeignType(kind)) => {
                        prop_assert_eq!(framing, Framing::Tlv(BlockTypes::Only(&[1, 5])));
                        prop_assert!((1..=0xffff_ffff).contains(&kind) && kind != 1 && kind != 5);
                        break 'stream;
                    }
                }
                prop_assert!(reader.buffer.len() <= SMALL);
            }
        }
    }

    #[test]
    fn announcing_a_large_frame_costs_no_memory() {
        let mut reader = FrameReader::new(Framing::LengthPrefix, usize::MAX / 4);
        let prefix = 1_000_000_000u32.to_be_bytes();
        reader.space()[..PREFIX].copy_from_slice(&prefix);
        reader.filled(PREFIX);
        assert_eq!(frames_of(&mut reader), (vec![], None));
        assert!(!reader.space().is_empty());
        assert!(reader.buffer.len() <= 2 * SMALL);
    }

    #[test]
    fn an_endless_tlv_length_is_refused_at_its_last_octet() {
        let mut reader = FrameReader::new(Framing::Tlv(BlockTypes::Any), 8800);
        let head = [6, 255, 255, 255, 255, 255, 255, 255, 255, 255];
        for (at, octet) in head.iter().enumerate() {
            reader.space()[0] = *octet;
            reader.filled(1);
            let expected = (at + 1 == head.len()).then_some(Refused::Oversize(u64::MAX));
            assert_eq!(frames_of(&mut reader), (vec![], expected));
        }
        assert!(reader.buffer.len() <= SMALL);
    }

    #[test]
    fn memory_of_large_frames_is_released_when_empty() {
        let frame = vec![7u8; 200_000];
        let stream = framed(std::slice::from_ref(&frame));
        let mut reader = FrameReader::new(Framing::LengthPrefix, MAX);
        let mut at = 0;
        while at < stream.len() {
            let space = reader.space();
            let count = space.len().min(stream.len() - at);
            space[..count].copy_from_slice(&stream[at..at + count]);
            reader.filled(count);
            at += count;
        }
        reader.deflate();
        assert!(
            reader.buffer.len() > SMALL,
            "a frame that was not taken yet is kept"
        );
        assert_eq!(frames_of(&mut reader), (vec![frame], None));
        assert!(reader.is_inflated());
        reader.deflate();
        assert!(reader.buffer.is_empty() && !reader.space().is_empty());
    }
}
