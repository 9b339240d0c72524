//! The receiving half: incomplete chunks, their room, and answers to CSYNs.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use whimbrel_core::{Deadline, Ecn, Time};

use super::bitmap::Bitmap;
use super::config::HopConfig;
use super::ecn::EcnReport;
use super::finished::{FinishedWindow, Standing};
use super::stats::HopStats;
use super::wire::{About, Cack, Csyn, Data, Envelope, MARKS_LEN, Progress, Shape, encode_cack};
use crate::account::{Buffer, Room};

/// Bound of the answers that wait for the driver. The oldest is dropped; the sender asks again.
const MAX_ANSWERS: usize = 256;
/// Smallest payload of a packet other than a chunk's last: the state of smaller ones would exceed
/// their content.
const MIN_PACKET: u16 = 64;
/// A grant of which nothing comes ends when its neighbour has sent no DATA for this long. A chunk that
/// comes later is let in if there is room.
const EMPTY_PATIENCE: Duration = Duration::from_secs(5);
/// A window of fewer packets than this counts as closed, and its opening is announced.
const SHUT: usize = 32;

struct Arriving {
    // Has room for the whole chunk from the start, and grows as packets come: packets in order are
    // copied to memory that was not cleared.
    bytes: BytesMut,
    shape: Shape,
    present: Bitmap,
    room: Room,
    // When a new packet of it last came.
    heard_at: Time,
}

#[derive(Clone, Copy)]
struct Answer {
    number: u32,
    about: Option<u64>,
    received: u64,
    clock: Time,
}

/// A completely received chunk.
pub(super) struct Whole {
    pub(super) chunk: Bytes,
    pub(super) room: Room,
}

pub(super) struct Receiver {
    arriving: BTreeMap<u64, Arriving>,
    finished: FinishedWindow,
    // The finished transfers that were cancelled.
    cancelled: BTreeSet<u64>,
    // Refused chunks, which get room as soon as there is some.
    waiting: BTreeMap<u64, Shape>,
    answers: VecDeque<Answer>,
    // Packets reserved by `arriving`, free packets of the node, and whether the last reported
    // window was closed.
    reserved: u32,
    free: usize,
    shut_below: usize,
    told_shut: bool,
    received: u64,
    spurious: u32,
    marks: EcnReport,
    // When a new packet last came, and whether grants have ended since then of which nothing came.
    progress_at: Time,
    has_lapsed: bool,
    // The number of the last CSYN received.
    last_number: u32,
    // Payload of one of this node's packets: the unit of the buffer.
    unit: u32,
    max_chunks: usize,
    chunk_limit: u32,
    patience: Duration,
    next_sweep: Option<Time>,
    bitmap_bytes: Vec<u8>,
}

impl Receiver {
    pub(super) fn new(config: &HopConfig) -> Receiver {
        Receiver {
            arriving: BTreeMap::new(),
            finished: FinishedWindow::new(config.finished_memory, 0),
            cancelled: BTreeSet::new(),
            waiting: BTreeMap::new(),
            answers: VecDeque::new(),
            reserved: 0,
            free: 0,
            shut_below: SHUT,
            told_shut: false,
            received: 0,
            spurious: 0,
            marks: EcnReport::default(),
            progress_at: Time::ZERO,
            has_lapsed: false,
            last_number: 0,
            unit: (config.mtu - config.overhead()) as u32,
            max_chunks: usize::from(config.max_chunks_in_flight),
            chunk_limit: config.chunk_limit as u32,
            patience: config.reassembly_patience,
            next_sweep: None,
            bitmap_bytes: Vec::new(),
        }
    }

    /// Starts a new session: incomplete chunks of the former incarnation are dropped.
    pub(super) fn restart(&mut self, first_hop_id: u32) {
        self.clear();
        self.finished = FinishedWindow::new(self.finished.size() as u16, first_hop_id);
        self.received = 0;
        self.spurious = 0;
        self.marks = EcnReport::default();
        self.told_shut = false;
    }

    /// Drops all incomplete chunks and their room.
    fn clear(&mut self) {
        self.reserved = 0;
        self.arriving.clear();
        self.waiting.clear();
        self.cancelled.clear();
        self.answers.clear();
        self.next_sweep = None;
    }

    /// Notes that the next `frames` frames carry this codepoint.
    pub(super) fn note_ecn(&mut self, codepoint: Ecn, frames: u32) {
        self.marks.note(codepoint, frames);
    }

    pub(super) fn arriving(&self) -> usize {
        self.arriving.len()
    }

    /// Returns W_ad: the packets reserved for this neighbour and the free ones [MFTP §3.4.1].
    pub(super) fn window(&self) -> u32 {
        let free = if self.arriving.len() < self.max_chunks {
            self.free
        } else {
            0
        };
        self.reserved
            .saturating_add(u32::try_from(free).unwrap_or(u32::MAX))
    }

    /// Notes the free part of the buffer, for the windows reported until the next call.
    pub(super) fn look_at(&mut self, buffer: &Buffer) {
        self.free = buffer.free();
        self.shut_below = SHUT.min(buffer.capacity() / 4 + 1);
    }

    /// Handles a DATA frame of `frame_len` bytes. Returns the chunk if it is complete now.
    pub(super) fn handle_data(
        &mut self,
        now: Time,
        data: &Data<'_>,
        frame_len: usize,
        buffer: &mut Buffer,
        stats: &mut HopStats,
    ) -> Option<Whole> {
        self.received += frame_len as u64;
        let id = self.finished.unwrap(data.hop_id);
        match self.finished.standing(id) {
            Standing::Open => {}
            Standing::Finished => {
                self.spurious = self.spurious.wrapping_add(u32::from(data.resent));
                stats.drops.finished += 1;
                return None;
            }
            Standing::Stale => {
                stats.drops.stale += 1;
                return None;
            }
        }
        let Some(shape) = shape_of(data).filter(|shape| self.acceptable(*shape)) else {
            stats.drops.inconsistent += 1;
            return None;
        };
        if !self.arriving.contains_key(&id) && !self.let_in(now, id, shape, buffer) {
            stats.drops.no_room += 1;
            return None;
        }
        let chunk = self.arriving.get_mut(&id)?;
        // A chunk of one packet, or its last packet, does not show the size of the others.
        if chunk.shape != shape {
            stats.drops.inconsistent += 1;
            return None;
        }
        if !chunk.present.set(usize::from(data.seq)) {
            self.spurious = self.spurious.wrapping_add(u32::from(data.resent));
            stats.duplicates += 1;
            return None;
        }
        chunk.heard_at = now;
        self.progress_at = now;
        self.has_lapsed = false;
        let at = usize::from(data.seq) * usize::from(shape.packet_size);
        place(&mut chunk.bytes, at, data.payload);
        stats.data_received += 1;
        if !chunk.present.is_full() {
            return None;
        }
        let chunk = self.arriving.remove(&id)?;
        self.reserved -= chunk.room.packets();
        self.finished.finish(id);
        Some(Whole {
            chunk: chunk.bytes.freeze(),
            room: chunk.room,
        })
    }

    /// Handles a CSYN that a DATA frame carries and whose number ends in the byte `low`.
    pub(super) fn handle_question(
        &mut self,
        now: Time,
        data: &Data<'_>,
        low: u8,
        buffer: &mut Buffer,
        stats: &mut HopStats,
    ) {
        let Some(shape) = shape_of(data) else { return };
        let distance = low.wrapping_sub(self.last_number as u8) as i8;
        let number = self.last_number.wrapping_add_signed(distance.into());
        let about = About {
            hop_id: data.hop_id,
            shape,
            cancel: false,
        };
        if number != 0 {
            self.handle_csyn(
                now,
                &Csyn {
                    number,
                    about: Some(about),
                },
                buffer,
                stats,
            );
        }
    }

    pub(super) fn handle_csyn(
        &mut self,
        now: Time,
        csyn: &Csyn,
        buffer: &mut Buffer,
        stats: &mut HopStats,
    ) {
        self.last_number = csyn.number;
        let about = match csyn.about {
            None => None,
            Some(about) => match self.consider(now, about, buffer, stats) {
                Some(id) => Some(id),
                None => return,
            },
        };
        self.answer(Answer {
            number: csyn.number,
            about,
            received: self.received,
            clock: now,
        });
    }

    /// Looks for room for a transfer. Returns the id to answer for.
    fn consider(
        &mut self,
        now: Time,
        about: About,
        buffer: &mut Buffer,
        stats: &mut HopStats,
    ) -> Option<u64> {
        let id = self.finished.unwrap(about.hop_id);
        match self.finished.standing(id) {
            Standing::Finished => return Some(id),
            Standing::Stale => {
                stats.drops.stale += 1;
                return None;
            }
            Standing::Open => {}
        }
        if about.cancel {
            self.forget(id);
            self.admit(id);
            self.finished.finish(id);
            self.cancelled.insert(id);
            return Some(id);
        }
        if let Some(chunk) = self.arriving.get_mut(&id) {
            if chunk.shape != about.shape {
                stats.drops.inconsistent += 1;
                return None;
            }
            return Some(id);
        }
        if !self.acceptable(about.shape) {
            stats.drops.inconsistent += 1;
            return None;
        }
        if !self.grant(now, id, about.shape, buffer) {
            stats.refusals_sent += 1;
            self.admit(id);
            if self.waiting.len() < self.max_chunks {
                self.waiting.insert(id, about.shape);
            }
        }
        Some(id)
    }

    /// Returns true if a refused chunk waits here, or the neighbour was told that the window is
    /// closed.
    pub(super) fn is_waited_for(&self) -> bool {
        self.told_shut || !self.waiting.is_empty()
    }

    /// Handles released room: grants it to refused chunks in their order, and announces an opened
    /// window.
    pub(super) fn room_released(&mut self, now: Time, buffer: &mut Buffer) {
        while let Some((&id, &shape)) = self.waiting.first_key_value() {
            if !self.grant(now, id, shape, buffer) {
                break;
            }
            self.answer(Answer {
                number: 0,
                about: Some(id),
                received: self.received,
                clock: now,
            });
        }
        self.look_at(buffer);
        if self.told_shut && self.free >= self.shut_below && self.answers.is_empty() {
            self.answer(Answer {
                number: 0,
                about: None,
                received: self.received,
                clock: now,
            });
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.next_sweep.is_none_or(|at| now < at) {
            return;
        }
        // What the neighbour asks about makes no progress by that.
        let is_over = |chunk: &Arriving| {
            let progress_at = chunk.heard_at.max(self.progress_at);
            now.since(progress_at) >= self.patience_for(chunk)
        };
        let over = self.arriving.iter().filter(|(_, chunk)| is_over(chunk));
        let over: Vec<u64> = over.map(|(id, _)| *id).collect();
        for id in over {
            let chunk = self.arriving.get(&id);
            self.has_lapsed |= chunk.is_some_and(|chunk| chunk.present.used_bytes() == 0);
            self.forget(id);
        }
        let patience = self.arriving.values().map(|chunk| self.patience_for(chunk));
        self.next_sweep = patience.min().map(|least| now + least / 4);
    }

    fn patience_for(&self, chunk: &Arriving) -> Duration {
        match chunk.present.used_bytes() {
            0 => self.patience.min(EMPTY_PATIENCE),
            _ => self.patience,
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        self.next_sweep
            .map(|at| Deadline::new(at, "drop chunks that the neighbour does not continue"))
    }

    /// Writes the next answer, of at most `mtu` bytes; with the count of marks if `tells_marks`.
    pub(super) fn poll_answer(
        &mut self,
        envelope: Envelope,
        mtu: usize,
        tells_marks: bool,
        buffer: &mut Vec<u8>,
    ) -> bool {
        let mtu = if tells_marks { mtu - MARKS_LEN } else { mtu };
        let Some(answer) = self.answers.pop_front() else {
            return false;
        };
        self.bitmap_bytes.clear();
        let room = mtu - envelope.cack_len();
        let progress = answer.about.map(|id| (id as u32, self.progress(id, room)));
        let chunk = progress.map(|(id, progress)| match progress {
            Held::Part { start, cut } => (
                id,
                Progress::Held {
                    start,
                    bitmap: &self.bitmap_bytes,
                    cut,
                },
            ),
            Held::All => (id, Progress::Complete),
            Held::Cancelled => (id, Progress::Cancelled),
            Held::Nothing => (id, Progress::Refused),
        });
        self.told_shut = self.free < self.shut_below;
        let cack = Cack {
            number: answer.number,
            chunk,
            window: self.window(),
            received: answer.received,
            clock: answer.clock.as_nanos(),
            spurious: self.spurious,
            ecn: tells_marks.then_some(self.marks),
        };
        encode_cack(envelope, &cack, buffer);
        true
    }

    /// `room` bytes of bitmap fit.
    fn progress(&mut self, id: u64, room: usize) -> Held {
        let Some(chunk) = self.arriving.get(&id) else {
            return match self.finished.standing(id) {
                Standing::Finished if self.cancelled.contains(&id) => Held::Cancelled,
                Standing::Finished => Held::All,
                Standing::Open | Standing::Stale => Held::Nothing,
            };
        };
        let start = chunk.present.leading_bytes();
        let end = chunk.present.used_bytes().max(start);
        let fitting = end.min(start + room);
        self.bitmap_bytes
            .extend((start..fitting).map(|index| chunk.present.byte(index)));
        Held::Part {
            start: start as u16,
            cut: fitting < end,
        }
    }

    fn answer(&mut self, answer: Answer) {
        // The newest CSYN about a chunk replaces older ones that have not been answered.
        if let Some(pending) = self
            .answers
            .iter_mut()
            .find(|pending| pending.about == answer.about)
        {
            if answer.number != 0 {
                *pending = answer;
            }
            return;
        }
        if self.answers.len() == MAX_ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back(answer);
    }

    fn acceptable(&self, shape: Shape) -> bool {
        shape.chunk_len <= self.chunk_limit
            && shape.packets().is_some()
            && (shape.packet_size >= MIN_PACKET || shape.chunk_len <= u32::from(shape.packet_size))
    }

    /// Grants room that was asked for. A neighbour that has let grants lapse gets one at a time until
    /// it sends something: asking alone must not hold the buffer.
    fn grant(&mut self, now: Time, id: u64, shape: Shape, buffer: &mut Buffer) -> bool {
        let may = !self.has_lapsed || self.arriving.is_empty();
        may && self.let_in(now, id, shape, buffer)
    }

    fn let_in(&mut self, now: Time, id: u64, shape: Shape, buffer: &mut Buffer) -> bool {
        let packets = u32::from(shape.packets().unwrap_or(u16::MAX));
        let reserved = packets.max(shape.chunk_len.div_ceil(self.unit));
        if self.arriving.len() >= self.max_chunks {
            return false;
        }
        let Some(room) = buffer.take(reserved, shape.chunk_len.into()) else {
            return false;
        };
        self.waiting.remove(&id);
        self.admit(id);
        self.reserved += reserved;
        let chunk = Arriving {
            bytes: BytesMut::with_capacity(shape.chunk_len as usize),
            shape,
            present: Bitmap::new(packets as usize),
            room,
            heard_at: now,
        };
        self.arriving.insert(id, chunk);
        let sweep = now + self.patience.min(EMPTY_PATIENCE);
        self.next_sweep = Some(self.next_sweep.map_or(sweep, |at| at.min(sweep)));
        true
    }

    /// Slides the window of ids. Transfers below it can never be finished and are dropped.
    fn admit(&mut self, id: u64) {
        let oldest = self.finished.admit(id);
        while let Some((&old, _)) = self
            .arriving
            .first_key_value()
            .filter(|(old, _)| **old < oldest)
        {
            self.forget(old);
        }
        while let Some((&old, _)) = self
            .waiting
            .first_key_value()
            .filter(|(old, _)| **old < oldest)
        {
            self.waiting.remove(&old);
        }
        while self.cancelled.first().is_some_and(|old| *old < oldest) {
            self.cancelled.pop_first();
        }
    }

    fn forget(&mut self, id: u64) {
        self.waiting.remove(&id);
        if let Some(chunk) = self.arriving.remove(&id) {
            self.reserved -= chunk.room.packets();
        }
    }
}

/// Copies a packet to its place in a chunk. Only a gap before it is cleared.
fn place(chunk: &mut BytesMut, at: usize, payload: &[u8]) {
    if chunk.len() < at {
        chunk.resize(at, 0);
    }
    let end = at + payload.len();
    let known = end.min(chunk.len()) - at;
    chunk[at..at + known].copy_from_slice(&payload[..known]);
    chunk.extend_from_slice(&payload[known..]);
}

enum Held {
    Part { start: u16, cut: bool },
    All,
    Cancelled,
    Nothing,
}

/// Returns the shape of this packet's chunk, or `None` if the packet contradicts its own fields.
fn shape_of(data: &Data<'_>) -> Option<Shape> {
    let (len, seq) = (data.payload.len() as u32, u32::from(data.seq));
    let packet_size = match (data.last, seq) {
        (false, _) => len,
        (true, 0) => data.chunk_len,
        (true, _) => data.chunk_len.checked_sub(len)? / seq,
    };
    let shape = Shape {
        chunk_len: data.chunk_len,
        packet_size: u16::try_from(packet_size).ok().filter(|size| *size > 0)?,
    };
    let packets = u32::from(shape.packets()?);
    let start = seq * packet_size;
    let expected = data.chunk_len.checked_sub(start)?.min(packet_size);
    (seq < packets && (seq + 1 == packets) == data.last && expected == len).then_some(shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use whimbrel_core::identity::KeyPair;

    /// Room for chunks of 100 packets is asked for again and again, and nothing is sent.
    #[test]
    fn who_asks_and_sends_nothing_holds_next_to_nothing() {
        let keys = KeyPair::from_secret(&[1; 32]);
        let config = HopConfig::plain(&keys, [1; 32], 1472).bounded();
        let mut receiver = Receiver::new(&config);
        receiver.restart(0);
        let (mut buffer, mut stats) = (Buffer::new(4096), HopStats::default());
        let ask = |receiver: &mut Receiver, now, buffer: &mut Buffer, stats: &mut HopStats| {
            for hop_id in 0..40 {
                let shape = Shape {
                    chunk_len: 100_000,
                    packet_size: 1000,
                };
                let about = Some(About {
                    hop_id,
                    shape,
                    cancel: false,
                });
                receiver.handle_csyn(now, &Csyn { number: 1, about }, buffer, stats);
            }
        };
        let mut used = Vec::new();
        for second in 0..60 {
            let now = Time::from_secs(second);
            receiver.handle_timeout(now);
            ask(&mut receiver, now, &mut buffer, &mut stats);
            used.push(buffer.used());
        }
        assert!(used[0] > 3_500, "{used:?}");
        assert!(used[8..].iter().all(|used| *used <= 100), "{used:?}");
        // Who sends is granted as before.
        let payload = [0; 1000];
        let data = Data {
            hop_id: 0,
            seq: 0,
            chunk_len: 100_000,
            last: false,
            resent: false,
            question: None,
            payload: &payload,
        };
        let now = Time::from_secs(60);
        receiver.handle_data(now, &data, 1000, &mut buffer, &mut stats);
        ask(&mut receiver, now, &mut buffer, &mut stats);
        assert!(buffer.used() > 3_500);
    }

    proptest! {
        /// Packets may come in any order, and repeatedly.
        #[test]
        fn packets_in_any_order_are_the_chunk(
            len in 1usize..600, size in 1usize..70, order in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let whole: Vec<u8> = (0..len).map(|at| at as u8 ^ 0x5a).collect();
            let packets: Vec<&[u8]> = whole.chunks(size).collect();
            let mut chunk = BytesMut::with_capacity(len);
            let memory = chunk.as_ptr();
            let first = order.iter().map(|index| index.index(packets.len()));
            for seq in first.chain(0..packets.len()) {
                place(&mut chunk, seq * size, packets[seq]);
            }
            prop_assert_eq!(&chunk[..], &whole[..]);
            prop_assert_eq!(chunk.as_ptr(), memory);
        }
    }
}
