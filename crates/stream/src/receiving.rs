//! The receiver of one direction.

use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::packet::{MAX_RANGES, StreamSegment};

/// Bound of the separate pieces that wait for a gap to close.
const MAX_PIECES: usize = 1024;

/// Bytes that have arrived, and what may arrive.
#[derive(Debug, Default)]
pub(crate) struct ReceivingEnd {
    /// All bytes below this have arrived.
    received: u64,
    /// Bytes beyond a gap, by position; they do not overlap.
    pieces: BTreeMap<u64, Bytes>,
    /// Bytes in order that the program has not read.
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    /// Position of the end, once known.
    end: Option<u64>,
    /// The limit that this end grants.
    granted: u64,
    /// The limit in the newest packet sent.
    told: u64,
}

/// What a segment brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentArrival {
    /// The program can read more.
    Readable,
    /// Bytes beyond a gap, or nothing new.
    Nothing,
    /// It contradicts what was said before, or exceeds the limit.
    False,
}

impl ReceivingEnd {
    pub(crate) fn new(window: u64) -> ReceivingEnd {
        ReceivingEnd {
            granted: window,
            told: window,
            ..ReceivingEnd::default()
        }
    }

    /// Takes the content of a segment.
    pub(crate) fn handle(&mut self, segment: &StreamSegment) -> SegmentArrival {
        let end = segment.position + segment.data.len() as u64;
        let is_beyond = self.end.is_some_and(|known| end > known);
        let contradicts = segment.ends && self.end.is_some_and(|known| known != end);
        if end > self.granted || is_beyond || contradicts {
            return SegmentArrival::False;
        }
        if segment.ends {
            let last = self.pieces.last_key_value();
            let last = last.map_or(self.received, |(at, piece)| at + piece.len() as u64);
            if end < last.max(self.received) {
                return SegmentArrival::False;
            }
            self.end = Some(end);
        }
        let before = (self.received, self.has_all());
        self.insert(segment.position, &segment.data);
        self.join();
        match before == (self.received, self.has_all()) && !segment.ends {
            true => SegmentArrival::Nothing,
            false => SegmentArrival::Readable,
        }
    }

    /// Adds the parts of `data` that are new.
    fn insert(&mut self, mut position: u64, data: &Bytes) {
        let mut data = data.clone();
        let whole = data.len();
        if position < self.received {
            let known = (self.received - position).min(data.len() as u64);
            data = data.slice(known as usize..);
            position += known;
        }
        while !data.is_empty() {
            let before = self.pieces.range(..=position).next_back();
            let covered = before.map_or(position, |(at, piece)| at + piece.len() as u64);
            if covered > position {
                let known = (covered - position).min(data.len() as u64);
                data = data.slice(known as usize..);
                position += known;
                continue;
            }
            let next = self.pieces.range(position..).next().map(|(at, _)| *at);
            let room = next.map_or(data.len() as u64, |next| next - position);
            let part = data.split_to(room.min(data.len() as u64) as usize);
            if self.pieces.len() >= MAX_PIECES && position != self.received {
                return;
            }
            let length = part.len() as u64;
            // A small part must not hold the memory of a large message.
            let part = match part.len() * 2 < whole {
                true => Bytes::copy_from_slice(&part),
                false => part,
            };
            self.pieces.insert(position, part);
            position += length;
        }
    }

    /// Moves what is in order to the bytes that can be read.
    fn join(&mut self) {
        while let Some(piece) = self.pieces.remove(&self.received) {
            self.received += piece.len() as u64;
            self.ready_bytes += piece.len();
            self.ready.push_back(piece);
        }
    }

    /// Takes bytes in order, at most `max`.
    pub(crate) fn read(&mut self, max: usize) -> Option<Bytes> {
        let first = self.ready.front_mut()?;
        let part = match first.len() > max {
            true => first.split_to(max),
            false => self.ready.pop_front()?,
        };
        self.ready_bytes -= part.len();
        Some(part)
    }

    /// Returns the position below which everything has arrived.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Returns true once all bytes and the end have arrived.
    pub(crate) fn has_all(&self) -> bool {
        self.end == Some(self.received)
    }

    /// Returns true once the program has read everything.
    pub(crate) fn is_read(&self) -> bool {
        self.has_all() && self.ready.is_empty()
    }

    /// Forgets what the program will not read; what arrives later is taken and dropped.
    pub(crate) fn discard(&mut self) {
        self.ready.clear();
        self.ready_bytes = 0;
    }

    /// Grants `window` bytes beyond what was read. Returns true if the sender should hear of it.
    pub(crate) fn grant(&mut self, window: u64) -> bool {
        let read = self.received - self.ready_bytes as u64;
        self.granted = self.granted.max(read + window);
        self.end.is_none() && self.granted - self.told >= (window / 4).max(1)
    }

    /// Bytes that may be held: granted and not read.
    pub(crate) fn claim(&self) -> u64 {
        match self.has_all() {
            true => self.ready_bytes as u64,
            false => self.granted - (self.received - self.ready_bytes as u64),
        }
    }

    /// Fills in what the other end must know.
    pub(crate) fn tell(&mut self, segment: &mut StreamSegment) {
        segment.received = self.received;
        segment.has_all = self.has_all();
        segment.limit = self.granted;
        segment.ranges = self.ranges();
        self.told = self.granted;
    }

    fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (at, piece) in &self.pieces {
            let end = at + piece.len() as u64;
            if let Some(last) = ranges.last_mut()
                && last.end == *at
            {
                last.end = end;
            } else if ranges.len() < MAX_RANGES {
                ranges.push(*at..end);
            } else {
                break;
            }
        }
        ranges
    }
}
