//! One stream connection and its port: a local program, or a peer over TCP.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use whimbrel_core::{Machine, PortId, Time};

use super::outbox::{Outbox, write_once};
use super::reader::{FrameReader, Refused};
use super::tlv::count_blocks;
use super::{Framing, StreamLimits};
use crate::counters::{DropReason, TransportCounters, TransportSnapshot};
use crate::poller::Poller;
use crate::side::{Frames, MachineSide};
use crate::transport::{FramesToSend, PREFIX, Progress};

/// Reads per round, so that one busy peer does not delay the others. A low bound also lets
/// receivers work while the peer still sends: if a whole window came in one round, peer and
/// receivers would take turns.
const READS_PER_ROUND: usize = 2;
/// Frames per call of `writev`.
const FRAMES_PER_WRITE: usize = 64;
/// Small transmits of packets are gathered up to this many bytes, or until the end of the round.
const GATHER: usize = 64 << 10;
/// The time that a closed port gets for its last output.
const LINGER: Duration = Duration::from_secs(5);
/// Memory of large frames is released after this time without any.
const DEFLATE_AFTER: Duration = Duration::from_secs(1);

/// The name and origin of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// `unix` or `tcp`.
    pub(crate) kind: &'static str,
    pub(crate) label: String,
    pub(crate) peer: String,
    /// Token of the listener that accepted it.
    pub(crate) listener: Option<u64>,
}

/// A stream connection with its port.
#[derive(Debug)]
pub(crate) struct StreamConnection {
    stream: OwnedFd,
    pub(crate) origin: Origin,
    token: u64,
    /// The open port; `None` once it is closed and only output is left.
    port: Option<PortId>,
    linger_until: Option<Time>,
    limits: StreamLimits,
    reader: FrameReader,
    last_active: Time,
    outbox: Outbox,
    /// The kernel's buffer is full: the poller waits for room, and the port is blocked.
    waiting: bool,
    counters: TransportCounters,
}

impl StreamConnection {
    /// Takes over a non-blocking stream.
    pub(crate) fn new(
        stream: OwnedFd,
        origin: Origin,
        token: u64,
        (port, now): (PortId, Time),
        limits: StreamLimits,
    ) -> StreamConnection {
        StreamConnection {
            stream,
            origin,
            token,
            port: Some(port),
            linger_until: None,
            limits,
            reader: FrameReader::new(limits.framing, limits.max_frame),
            last_active: now,
            outbox: Outbox::default(),
            waiting: false,
            counters: TransportCounters::default(),
        }
    }

    /// When something last came, or it was opened.
    pub(crate) fn last_active(&self) -> Time {
        self.last_active
    }

    pub(crate) fn port(&self) -> Option<PortId> {
        self.port
    }

    /// Reads input, within bounds, and delivers complete frames.
    pub(crate) fn receive<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) -> Progress {
        for _ in 0..READS_PER_ROUND {
            self.counters.receive_calls += 1;
            let space = self.reader.space();
            let wanted = space.len();
            let count = match rustix::io::read(&self.stream, space) {
                Ok(0) => {
                    self.counters.truncated += u64::from(self.reader.is_partial());
                    return Progress::Ended;
                }
                Ok(count) => count,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    self.counters.receive_errors += 1;
                    tracing::debug!(label = %self.origin.label, %error, "connection failed");
                    return Progress::Ended;
                }
            };
            self.reader.filled(count);
            self.last_active = now;
            if self.hand_in(side, now) == Progress::Ended {
                return Progress::Ended;
            }
            // The stream is drained; new input makes the socket ready again.
            if count < wanted {
                break;
            }
        }
        Progress::Open
    }

    fn hand_in<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) -> Progress {
        // Input after the port was closed is read and dropped.
        let mut receiver = self.port.and_then(|port| side.receiver(port));
        loop {
            let mut frames = Frames::new();
            let outcome = self.reader.next_frames(&mut frames);
            if let Some(receiver) = receiver.as_mut().filter(|_| !frames.is_empty()) {
                receiver.deliver(now, &mut frames);
            }
            match outcome {
                Ok(true) => {}
                Ok(false) => return Progress::Open,
                Err(refused) => {
                    let (counter, reason) = match refused {
                        Refused::Oversize(_) => (
                            &mut self.counters.oversize_closed,
                            "a frame beyond the limit",
                        ),
                        Refused::BadType(_) => {
                            (&mut self.counters.malformed_closed, "an invalid block")
                        }
                        Refused::ForeignType(_) => (
                            &mut self.counters.foreign_closed,
                            "a block of a type that this stream does not carry",
                        ),
                    };
                    *counter += 1;
                    tracing::warn!(
                        label = %self.origin.label, peer = %self.origin.peer, ?refused,
                        limit = self.limits.max_frame, "disconnected a peer that announced {reason}"
                    );
                    return Progress::Ended;
                }
            }
        }
    }

    /// Writes the frames of one transmit, or gathers them for [`StreamConnection::push`]. Bytes
    /// that do not fit in the kernel's buffer wait, and the port is blocked.
    pub(crate) fn send<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        out: FramesToSend<'_>,
    ) -> Progress {
        let Some(port) = self.port else {
            return Progress::Open;
        };
        let bytes = out.frames().len();
        let (frames, written) = match self.limits.framing {
            Framing::Tlv(_) => (count_blocks(out.frames()), self.send_packets(out)),
            Framing::LengthPrefix => (out.frame_count(), self.send_prefixed(out)),
        };
        let room = match written {
            Ok(room) => room,
            Err(Failure::Overflow) => {
                self.counters.overflow_closed += 1;
                side.count_drop(port, DropReason::Blocked, frames);
                return Progress::Ended;
            }
            Err(Failure::Gone(error)) => {
                tracing::debug!(label = %self.origin.label, %error, "the peer is gone");
                return Progress::Ended;
            }
        };
        if let Some(port) = side.get_mut(port) {
            port.counters.sent_frames += frames;
            port.counters.sent_bytes += bytes as u64;
        }
        self.last_active = now;
        if !room {
            self.wait_for_room(side, poller, now);
        }
        Progress::Open
    }

    /// Writes the output gathered in this round.
    pub(crate) fn push<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) -> Progress {
        if self.waiting || self.outbox.is_empty() {
            return Progress::Open;
        }
        match self.write_outbox() {
            Ok(true) => Progress::Open,
            Ok(false) => {
                self.wait_for_room(side, poller, now);
                Progress::Open
            }
            Err(_) => Progress::Ended,
        }
    }

    /// Writes waiting output. When all of it is written, the port becomes writable, or the
    /// connection ends if the port is closed.
    pub(crate) fn flush<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) -> Progress {
        if !self.waiting {
            return Progress::Open;
        }
        let gone = match self.write_outbox() {
            Ok(gone) => gone,
            Err(_) => return Progress::Ended,
        };
        self.last_active = now;
        if !gone {
            return Progress::Open;
        }
        let Some(port) = self.port else {
            return Progress::Ended;
        };
        self.waiting = false;
        poller.set_interest(&self.stream, self.token, true, false);
        side.set_blocked(now, port, false);
        Progress::Open
    }

    /// Closes the port for the machine. The connection ends at once, or when its last output is
    /// written.
    pub(crate) fn close_port<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) -> Progress {
        if let Some(port) = self.port.take() {
            side.close(now, port);
        }
        self.linger_until = Some(now + LINGER);
        let progress = self.push(side, poller, now);
        if self.has_unsent() {
            progress
        } else {
            Progress::Ended
        }
    }

    fn wait_for_room<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) {
        if std::mem::replace(&mut self.waiting, true) {
            return;
        }
        self.counters.would_block += 1;
        poller.set_interest(&self.stream, self.token, true, true);
        if let Some(port) = self.port {
            side.set_blocked(now, port, true);
        }
    }

    /// Returns true while output waits for the peer to read or for the end of the round.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let inflated = self.reader.is_inflated() || self.outbox.is_inflated();
        let deflate = inflated.then(|| self.last_active + DEFLATE_AFTER);
        [self.linger_until, deflate].into_iter().flatten().min()
    }

    pub(crate) fn expire(&mut self, now: Time) -> Progress {
        if now >= self.last_active + DEFLATE_AFTER {
            let inflated = self.reader.is_inflated() || self.outbox.is_inflated();
            self.counters.memory_returns += u64::from(inflated);
            self.reader.deflate();
            self.outbox.deflate();
        }
        match self.linger_until {
            Some(until) if now >= until => Progress::Ended,
            _ => Progress::Open,
        }
    }

    pub(crate) fn snapshot(&self) -> TransportSnapshot {
        TransportSnapshot {
            label: self.origin.label.clone(),
            kind: self.origin.kind,
            local: self.origin.peer.clone(),
            kernel_buffers: (0, 0),
            counters: self.counters,
        }
    }

    /// Writes whole packets unchanged. Returns true if the kernel took everything that was written.
    fn send_packets(&mut self, out: FramesToSend<'_>) -> Result<bool, Failure> {
        let packets = out.frames();
        if self.waiting {
            if self.outbox.len() + packets.len() > self.limits.max_unsent {
                return Err(Failure::Overflow);
            }
            self.outbox.bytes().extend_from_slice(packets);
            return Ok(false);
        }
        if self.outbox.is_empty() && packets.len() >= GATHER {
            self.counters.send_calls += 1;
            let written = write_once(&self.stream, packets).map_err(Failure::Gone)?;
            let rest = packets.get(written..).unwrap_or_default();
            self.outbox.bytes().extend_from_slice(rest);
            return Ok(rest.is_empty());
        }
        if self.outbox.is_empty() {
            let start = out.frames_start();
            self.outbox.exchange(out.buffer);
            self.outbox.skip(start);
        } else {
            self.outbox.bytes().extend_from_slice(packets);
        }
        if self.outbox.len() >= GATHER {
            self.write_outbox()
        } else {
            Ok(true)
        }
    }

    fn send_prefixed(&mut self, out: FramesToSend<'_>) -> Result<bool, Failure> {
        if self.waiting {
            self.keep_all(&out)?;
            Ok(false)
        } else if out.frame_count() == 1 {
            self.write_one(out.buffer)
        } else {
            self.write_many(&out)
        }
    }

    /// Writes one frame. Its prefix fills the room before it. If the frame cannot be written at
    /// once, the buffer itself is kept rather than a copy.
    fn write_one(&mut self, buffer: &mut Vec<u8>) -> Result<bool, Failure> {
        let length =
            u32::try_from(buffer.len().saturating_sub(PREFIX)).map_err(|_| Failure::Overflow)?;
        if let Some(prefix) = buffer.first_chunk_mut::<PREFIX>() {
            *prefix = length.to_be_bytes();
        }
        self.outbox.exchange(buffer);
        let gone = self.write_outbox()?;
        if gone {
            self.outbox.exchange(buffer);
        }
        Ok(gone)
    }

    /// Writes several frames: the kernel gathers prefixes and frames.
    fn write_many(&mut self, out: &FramesToSend<'_>) -> Result<bool, Failure> {
        let segment = out.segment();
        for group in out
            .frames()
            .chunks(segment.saturating_mul(FRAMES_PER_WRITE))
        {
            if !self.outbox.is_empty() {
                self.keep(group, segment);
                continue;
            }
            let mut prefixes = [[0; PREFIX]; FRAMES_PER_WRITE];
            for (prefix, frame) in prefixes.iter_mut().zip(group.chunks(segment)) {
                *prefix = (frame.len() as u32).to_be_bytes();
            }
            let mut slices = [IoSlice::new(&[]); 2 * FRAMES_PER_WRITE];
            let mut count = 0;
            let pairs = prefixes.iter().zip(group.chunks(segment));
            for (pair, (prefix, frame)) in slices.chunks_exact_mut(2).zip(pairs) {
                pair.copy_from_slice(&[IoSlice::new(prefix), IoSlice::new(frame)]);
                count += 2;
            }
            self.counters.send_calls += 1;
            let gathered = slices.get(..count).unwrap_or_default();
            let written = match rustix::io::writev(&self.stream, gathered) {
                Ok(written) => written,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(error) => return Err(Failure::Gone(error)),
            };
            if written < group.len() + count / 2 * PREFIX {
                self.keep(group, segment);
                self.outbox.skip(written);
            }
        }
        Ok(self.outbox.is_empty())
    }

    fn keep_all(&mut self, out: &FramesToSend<'_>) -> Result<(), Failure> {
        let more = out.frames().len() + out.frame_count() as usize * PREFIX;
        if self.outbox.len() + more > self.limits.max_unsent {
            return Err(Failure::Overflow);
        }
        if out.frames().is_empty() {
            self.outbox.bytes().extend_from_slice(&[0; PREFIX]);
        }
        self.keep(out.frames(), out.segment());
        Ok(())
    }

    fn keep(&mut self, frames: &[u8], segment: usize) {
        let bytes = self.outbox.bytes();
        for frame in frames.chunks(segment) {
            bytes.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            bytes.extend_from_slice(frame);
        }
    }

    fn write_outbox(&mut self) -> Result<bool, Failure> {
        self.outbox
            .write_to(&self.stream, &mut self.counters.send_calls)
            .map_err(Failure::Gone)
    }
}

impl AsFd for StreamConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The reason why a connection accepts no more output.
#[derive(Debug)]
enum Failure {
    /// Too much output waits for the peer to read.
    Overflow,
    /// The peer is gone.
    Gone(Errno),
}
