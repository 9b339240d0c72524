//! One local program, attached by a stream.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use whimbrel_core::{Machine, PortId, Time};

use super::LocalLimits;
use super::reader::FrameReader;
use crate::IoError;
use crate::counters::{DropReason, TransportCounters, TransportSnapshot};
use crate::poller::Poller;
use crate::side::MachineSide;
use crate::transport::{Outgoing, PREFIX, Progress};

/// Reads per round, so that one busy program does not keep the others waiting.
const READS_PER_ROUND: usize = 8;
/// Frames per call of `writev`.
const FRAMES_PER_WRITE: usize = 64;
/// Kernel buffer asked for in each direction, bytes: a chunk of 1 MiB passes with few turns.
const KERNEL_BUFFER: usize = 1 << 20;
/// How long a listener may take to have room for one more.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long a closed port's last output may take.
const LINGER: Duration = Duration::from_secs(5);
/// Output buffer that a connection may keep for the next time, bytes.
const SPARE: usize = 64 << 10;
/// Memory of large frames is given back after this time without any.
const DEFLATE_AFTER: Duration = Duration::from_secs(1);

/// What a connection is called, and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) label: String,
    pub(crate) peer: String,
    /// Token of the listener that accepted it.
    pub(crate) listener: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LocalConnection {
    stream: UnixStream,
    pub(crate) origin: Origin,
    token: u64,
    /// Open port; `None` once it was closed and only output is left.
    port: Option<PortId>,
    linger_until: Option<Time>,
    limits: LocalLimits,
    reader: FrameReader,
    last_active: Time,
    unsent: Vec<u8>,
    unsent_start: usize,
    counters: TransportCounters,
}

/// Attaches to the program that listens on `path`.
pub(crate) fn connect(path: &Path) -> Result<UnixStream, IoError> {
    let connected = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
        // A listener that accepts nobody would otherwise keep us waiting for ever.
        socket.set_write_timeout(Some(CONNECT_PATIENCE))?;
        socket.connect(&SockAddr::unix(path)?)?;
        Ok(OwnedFd::from(socket).into())
    });
    connected.map_err(|source: io::Error| {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => IoError::NobodyListens { path },
            io::ErrorKind::PermissionDenied => IoError::SocketPathNotPermitted { path, action: "connect to" },
            _ => IoError::UnixSocket { path, action: "connect to", source },
        }
    })
}

impl LocalConnection {
    pub(crate) fn new(
        stream: UnixStream,
        origin: Origin,
        token: u64,
        port: PortId,
        limits: LocalLimits,
    ) -> io::Result<LocalConnection> {
        stream.set_nonblocking(true)?;
        // Smaller buffers only cost speed.
        let _ = SockRef::from(&stream).set_send_buffer_size(KERNEL_BUFFER);
        let _ = SockRef::from(&stream).set_recv_buffer_size(KERNEL_BUFFER);
        Ok(LocalConnection {
            stream,
            origin,
            token,
            port: Some(port),
            linger_until: None,
            limits,
            reader: FrameReader::new(limits.max_frame),
            last_active: Time::ZERO,
            unsent: Vec::new(),
            unsent_start: 0,
            counters: TransportCounters::default(),
        })
    }

    pub(crate) fn port(&self) -> Option<PortId> {
        self.port
    }

    /// Reads what is there, within bounds, and hands in the frames that are whole.
    pub(crate) fn receive<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) -> Progress {
        for _ in 0..READS_PER_ROUND {
            self.counters.receive_calls += 1;
            match rustix::io::read(&self.stream, self.reader.space()) {
                Ok(0) => {
                    self.counters.truncated += u64::from(self.reader.is_partial());
                    return Progress::Ended;
                }
                Ok(count) => self.reader.filled(count),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    self.counters.receive_errors += 1;
                    tracing::debug!(label = %self.origin.label, %error, "local connection failed");
                    return Progress::Ended;
                }
            }
            self.last_active = now;
            if self.hand_in(side, now) == Progress::Ended {
                return Progress::Ended;
            }
        }
        Progress::Open
    }

    fn hand_in<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) -> Progress {
        loop {
            match self.reader.next_frame() {
                // After its port was closed, what the program still says is read and dropped.
                Ok(Some(frame)) => {
                    if let Some(port) = self.port {
                        side.deliver(now, port, frame, frame.len());
                    }
                }
                Ok(None) => return Progress::Open,
                Err(oversize) => {
                    self.counters.oversize_closed += 1;
                    tracing::warn!(
                        label = %self.origin.label, announced = oversize.announced, limit = self.limits.max_frame,
                        "a local program announced a frame beyond the limit and was disconnected"
                    );
                    return Progress::Ended;
                }
            }
        }
    }

    /// Writes the frames of one transmit; what does not fit in the kernel's buffer waits, and the port is blocked.
    pub(crate) fn send<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        out: Outgoing<'_>,
    ) -> Progress {
        let Some(port) = self.port else { return Progress::Open };
        let (frames, bytes) = (out.frame_count(), out.frames().len());
        let was_blocked = self.has_unsent();
        let written = if was_blocked {
            self.keep_all(&out)
        } else if frames == 1 {
            self.write_one(out.buffer)
        } else {
            self.write_many(&out)
        };
        match written {
            Ok(()) => {}
            Err(Failure::Overflow) => {
                self.counters.overflow_closed += 1;
                side.count_drop(port, DropReason::Blocked, frames);
                return Progress::Ended;
            }
            Err(Failure::Gone(error)) => {
                tracing::debug!(label = %self.origin.label, %error, "local program is gone");
                return Progress::Ended;
            }
        }
        if let Some(port) = side.get_mut(port) {
            port.counters.sent_frames += frames;
            port.counters.sent_bytes += bytes as u64;
        }
        if self.has_unsent() && !was_blocked {
            self.counters.would_block += 1;
            poller.set_interest(&self.stream, self.token, true, true);
            side.set_blocked(now, port, true);
        }
        self.last_active = now;
        Progress::Open
    }

    /// Writes what waits; once it is gone the port is writable, or the connection ends if the port is closed.
    pub(crate) fn flush<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) -> Progress {
        if !self.has_unsent() {
            return Progress::Open;
        }
        if let Err(Failure::Gone(_) | Failure::Overflow) = self.write_unsent() {
            return Progress::Ended;
        }
        self.last_active = now;
        if self.has_unsent() {
            return Progress::Open;
        }
        let Some(port) = self.port else { return Progress::Ended };
        poller.set_interest(&self.stream, self.token, true, false);
        side.set_blocked(now, port, false);
        Progress::Open
    }

    /// The machine closed the port. The connection ends at once, or when its last output is written.
    pub(crate) fn close_port<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) -> Progress {
        if let Some(port) = self.port.take() {
            side.close(now, port);
        }
        self.linger_until = Some(now + LINGER);
        if self.has_unsent() { Progress::Open } else { Progress::Ended }
    }

    /// True while output waits for the program to read.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let inflated = self.reader.is_inflated() || self.has_spare_memory();
        let deflate = inflated.then(|| self.last_active + DEFLATE_AFTER);
        [self.linger_until, deflate].into_iter().flatten().min()
    }

    pub(crate) fn expire(&mut self, now: Time) -> Progress {
        if now >= self.last_active + DEFLATE_AFTER {
            self.reader.deflate();
            if self.has_spare_memory() {
                self.unsent = Vec::new();
            }
        }
        match self.linger_until {
            Some(until) if now >= until => Progress::Ended,
            _ => Progress::Open,
        }
    }

    fn has_spare_memory(&self) -> bool {
        self.unsent.is_empty() && self.unsent.capacity() > SPARE
    }

    pub(crate) fn snapshot(&self) -> TransportSnapshot {
        TransportSnapshot {
            label: self.origin.label.clone(),
            kind: "unix",
            local: self.origin.peer.clone(),
            kernel_buffers: (0, 0),
            counters: self.counters,
        }
    }

    /// One frame: its prefix goes in the room before it, and the buffer itself is kept if it does not go at once.
    fn write_one(&mut self, buffer: &mut Vec<u8>) -> Result<(), Failure> {
        let length = u32::try_from(buffer.len().saturating_sub(PREFIX)).map_err(|_| Failure::Overflow)?;
        if let Some(prefix) = buffer.first_chunk_mut::<PREFIX>() {
            *prefix = length.to_be_bytes();
        }
        std::mem::swap(buffer, &mut self.unsent);
        self.unsent_start = 0;
        let written = self.write_unsent();
        if !self.has_unsent() {
            std::mem::swap(buffer, &mut self.unsent);
            self.unsent.clear();
        }
        written
    }

    /// Several frames: prefixes and frames are gathered by the kernel.
    fn write_many(&mut self, out: &Outgoing<'_>) -> Result<(), Failure> {
        let segment = out.segment();
        let frames = out.frames();
        for group in frames.chunks(segment.saturating_mul(FRAMES_PER_WRITE)) {
            if self.has_unsent() {
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
                self.unsent_start = written;
            }
        }
        Ok(())
    }

    fn keep_all(&mut self, out: &Outgoing<'_>) -> Result<(), Failure> {
        let more = out.frames().len() + out.frame_count() as usize * PREFIX;
        if self.unsent.len() - self.unsent_start + more > self.limits.max_unsent {
            return Err(Failure::Overflow);
        }
        if out.frames().is_empty() {
            self.unsent.extend_from_slice(&[0; PREFIX]);
        }
        self.keep(out.frames(), out.segment());
        Ok(())
    }

    fn keep(&mut self, frames: &[u8], segment: usize) {
        for frame in frames.chunks(segment) {
            self.unsent.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            self.unsent.extend_from_slice(frame);
        }
    }

    fn write_unsent(&mut self) -> Result<(), Failure> {
        while let Some(rest) = self.unsent.get(self.unsent_start..).filter(|rest| !rest.is_empty()) {
            self.counters.send_calls += 1;
            match rustix::io::write(&self.stream, rest) {
                Ok(written) => self.unsent_start += written,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Failure::Gone(error)),
            }
        }
        self.unsent.clear();
        self.unsent_start = 0;
        Ok(())
    }
}

impl AsFd for LocalConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Why a connection takes no more output.
#[derive(Debug)]
enum Failure {
    /// Too much waits for the program to read.
    Overflow,
    /// The program is gone.
    Gone(Errno),
}
