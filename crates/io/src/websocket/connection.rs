//! One WebSocket connection: handshake, messages, pings, the end.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use tungstenite::{Error, Message};
use whimbrel_core::{Machine, Medium, PortId, PortInfo, PortOrigin, Time};

use super::WebSocketLimits;
use super::origin::{OriginCheck, OriginGate};
use super::stage::Stage;
use crate::IoError;
use crate::counters::{DropReason, TransportCounters, TransportSnapshot};
use crate::poller::Poller;
use crate::side::MachineSide;
use crate::stream::Outbox;
use crate::transport::{FramesToSend, Progress};

/// Bytes per read, and reads per round.
const READ_SIZE: usize = 64 << 10;
const READS_PER_ROUND: usize = 4;
/// Small messages are gathered up to this many bytes, or until the end of the round.
const GATHER: usize = 64 << 10;
/// The time that the peer of a closed port gets for its close frame.
const LINGER: Duration = Duration::from_secs(2);

/// The name and origin of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) label: String,
    pub(crate) origin: PortOrigin,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Token of the listener that accepted it.
    pub(crate) listener: Option<u64>,
}

/// A WebSocket connection with its port.
#[derive(Debug)]
pub(crate) struct WebSocketConnection {
    stream: OwnedFd,
    pub(crate) ends: Ends,
    slot: usize,
    token: u64,
    limits: WebSocketLimits,
    stage: Stage,
    /// The origin of the web page that connected; empty if the client is not a page, or before the
    /// handshake.
    origin: Rc<OnceCell<String>>,
    port: Option<PortId>,
    /// The handshake's error, for the requester of the connection.
    failure: Option<IoError>,
    started: Time,
    last_heard: Time,
    pinged_at: Option<Time>,
    linger_until: Option<Time>,
    waiting: bool,
    counters: TransportCounters,
}

impl WebSocketConnection {
    /// Waits for the peer's handshake on an accepted, non-blocking stream.
    pub(crate) fn serve(
        stream: OwnedFd,
        ends: Ends,
        slot: usize,
        token: u64,
        (gate, limits): (Rc<OriginGate>, WebSocketLimits),
        now: Time,
    ) -> WebSocketConnection {
        let found = Rc::new(OnceCell::new());
        let check = OriginCheck {
            gate,
            found: Rc::clone(&found),
        };
        let stage = Stage::serve(&limits, check);
        WebSocketConnection {
            origin: found,
            ..WebSocketConnection::new(stream, ends, slot, token, limits, stage, now)
        }
    }

    /// Starts the handshake on a connected, non-blocking stream.
    pub(crate) fn call(
        stream: OwnedFd,
        ends: Ends,
        slot: usize,
        token: u64,
        (uri, limits): (&str, WebSocketLimits),
        now: Time,
    ) -> Result<WebSocketConnection, IoError> {
        let stage = Stage::call(uri, &limits).map_err(|error| IoError::WebSocketRefused {
            uri: uri.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(WebSocketConnection::new(
            stream, ends, slot, token, limits, stage, now,
        ))
    }

    fn new(
        stream: OwnedFd,
        ends: Ends,
        slot: usize,
        token: u64,
        limits: WebSocketLimits,
        stage: Stage,
        now: Time,
    ) -> WebSocketConnection {
        WebSocketConnection {
            stream,
            ends,
            slot,
            token,
            limits,
            stage,
            origin: Rc::default(),
            port: None,
            failure: None,
            started: now,
            last_heard: now,
            pinged_at: None,
            linger_until: None,
            waiting: false,
            counters: TransportCounters::default(),
        }
    }

    pub(crate) fn port(&self) -> Option<PortId> {
        self.port
    }

    pub(crate) fn take_failure(&mut self) -> Option<IoError> {
        self.failure.take()
    }

    /// Continues the handshake as far as possible without input: a client sends first.
    pub(crate) fn begin<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) -> Progress {
        match self.advance(side, now) {
            Progress::Open => self.push(side, poller, now),
            Progress::Ended => Progress::Ended,
        }
    }

    /// Reads input, within bounds, and delivers complete messages.
    pub(crate) fn receive<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        buffer: &mut [u8],
    ) -> Progress {
        let limit = buffer.len().min(READ_SIZE);
        let buffer = buffer.get_mut(..limit).unwrap_or_default();
        for _ in 0..READS_PER_ROUND {
            self.counters.receive_calls += 1;
            let count = match rustix::io::read(&self.stream, &mut *buffer) {
                Ok(count) => count,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    self.counters.receive_errors += 1;
                    tracing::debug!(label = %self.ends.label, %error, "WebSocket connection failed");
                    return Progress::Ended;
                }
            };
            let Some(pipe) = self.stage.pipe() else {
                return Progress::Ended;
            };
            match buffer.get(..count) {
                Some(read) if !read.is_empty() => pipe.feed(read),
                _ => pipe.end(),
            }
            self.last_heard = now;
            self.pinged_at = None;
            let progress = self.advance(side, now);
            // Pongs and close frames are written even if the connection ends.
            if self.push(side, poller, now) == Progress::Ended || progress == Progress::Ended {
                return Progress::Ended;
            }
            if self
                .outbox()
                .is_some_and(|outbox| outbox.len() > self.limits.max_unsent)
            {
                self.counters.overflow_closed += 1;
                return Progress::Ended;
            }
            if count < buffer.len() {
                break;
            }
        }
        Progress::Open
    }

    /// Processes the input until no more can be done.
    fn advance<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) -> Progress {
        if let Err(error) = self.stage.shake() {
            return self.refuse(&error);
        }
        if matches!(self.stage, Stage::Open(_))
            && self.port.is_none()
            && self.linger_until.is_none()
        {
            let remote = self.ends.remote;
            let info = PortInfo {
                label: self.ends.label.clone(),
                origin: self.ends.origin,
                mtu: self.limits.max_frame,
                peer: remote.to_string(),
                medium: Medium::WebSocket {
                    local: self.ends.local,
                    remote,
                    origin: self.origin.get().cloned(),
                },
            };
            self.port = side.open(now, self.slot, info);
            if self.port.is_none() {
                self.failure = Some(IoError::OutOfPorts {
                    label: self.ends.label.clone(),
                });
                return Progress::Ended;
            }
        }
        self.hand_in(side, now)
    }

    fn refuse(&mut self, error: &Error) -> Progress {
        tracing::debug!(label = %self.ends.label, peer = %self.ends.remote, %error, "WebSocket handshake failed");
        *match self.stage {
            Stage::Refused(_) => &mut self.counters.origins_refused,
            _ => &mut self.counters.malformed_closed,
        } += 1;
        self.failure = Some(IoError::WebSocketRefused {
            uri: self.ends.remote.to_string(),
            reason: error.to_string(),
        });
        Progress::Ended
    }

    fn hand_in<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) -> Progress {
        let Stage::Open(socket) = &mut self.stage else {
            return Progress::Open;
        };
        loop {
            match socket.read() {
                Ok(Message::Binary(frame)) => {
                    if let Some(port) = self.port {
                        side.deliver(now, port, &frame, frame.len());
                    }
                }
                Ok(Message::Text(_)) => self.counters.ignored += 1,
                // The library answers pings and close frames.
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Progress::Open;
                }
                Err(error) => {
                    match &error {
                        Error::Capacity(_) => self.counters.oversize_closed += 1,
                        Error::ConnectionClosed | Error::AlreadyClosed | Error::Io(_) => {}
                        Error::Protocol(
                            tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
                        ) => {}
                        _ => self.counters.malformed_closed += 1,
                    }
                    tracing::debug!(label = %self.ends.label, peer = %self.ends.remote, %error, "WebSocket ends");
                    return Progress::Ended;
                }
            }
        }
    }

    /// Turns the frames of one transmit into messages for [`WebSocketConnection::push`].
    pub(crate) fn send<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        out: &FramesToSend<'_>,
    ) -> Progress {
        let (Some(port), Stage::Open(socket)) = (self.port, &mut self.stage) else {
            return Progress::Open;
        };
        let (frames, bytes) = (out.frame_count(), out.frames().len());
        if self.waiting && socket.get_ref().outbox.len() + bytes > self.limits.max_unsent {
            self.counters.overflow_closed += 1;
            side.count_drop(port, DropReason::Blocked, frames);
            return Progress::Ended;
        }
        for frame in out.frames().chunks(out.segment()) {
            if let Err(error) = socket.write(Message::Binary(Bytes::copy_from_slice(frame))) {
                tracing::debug!(label = %self.ends.label, %error, "WebSocket takes no more");
                return Progress::Ended;
            }
        }
        let gathered = socket.get_ref().outbox.len();
        if let Some(port) = side.get_mut(port) {
            port.counters.sent_frames += frames;
            port.counters.sent_bytes += bytes as u64;
        }
        if gathered >= GATHER {
            self.push(side, poller, now)
        } else {
            Progress::Open
        }
    }

    /// Writes the output gathered in this round.
    pub(crate) fn push<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) -> Progress {
        if self.waiting || !self.has_unsent() {
            return Progress::Open;
        }
        match self.write_outbox() {
            Ok(true) => Progress::Open,
            Ok(false) => {
                self.waiting = true;
                self.counters.would_block += 1;
                poller.set_interest(&self.stream, self.token, true, true);
                if let Some(port) = self.port {
                    side.set_blocked(now, port, true);
                }
                Progress::Open
            }
            Err(_) => Progress::Ended,
        }
    }

    /// Writes waiting output. The port becomes writable when all of it is written.
    pub(crate) fn flush<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) -> Progress {
        if !self.waiting {
            return Progress::Open;
        }
        match self.write_outbox() {
            Ok(false) => {}
            Ok(true) => {
                self.waiting = false;
                poller.set_interest(&self.stream, self.token, true, false);
                if let Some(port) = self.port {
                    side.set_blocked(now, port, false);
                }
            }
            Err(_) => return Progress::Ended,
        }
        Progress::Open
    }

    /// Closes the port for the machine. The connection ends with the peer's close frame, or after
    /// `LINGER`.
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
        let farewell = match &mut self.stage {
            Stage::Open(socket) => socket.close(None).is_ok(),
            _ => false,
        };
        if farewell {
            self.push(side, poller, now)
        } else {
            Progress::Ended
        }
    }

    /// Returns true while output waits for the peer to read or for the end of the round.
    pub(crate) fn has_unsent(&self) -> bool {
        self.outbox().is_some_and(|outbox| !outbox.is_empty())
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        Some(match (self.linger_until, &self.stage, self.pinged_at) {
            (Some(until), ..) => until,
            (None, Stage::Open(_), None) => self.last_heard + self.limits.ping_after,
            (None, Stage::Open(_), Some(at)) => at + self.limits.pong_timeout,
            (None, ..) => self.started + self.limits.handshake_timeout,
        })
    }

    /// Handles the deadline: pings a silent peer, and disconnects an unresponsive one.
    pub(crate) fn expire<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) -> Progress {
        if self.linger_until.is_some() {
            return Progress::Ended;
        }
        match &mut self.stage {
            Stage::Open(socket) if self.pinged_at.is_none() => {
                self.pinged_at = Some(now);
                match socket.write(Message::Ping(Bytes::new())) {
                    Ok(()) => self.push(side, poller, now),
                    Err(_) => Progress::Ended,
                }
            }
            Stage::Open(_) => {
                self.counters.timed_out += 1;
                Progress::Ended
            }
            _ => {
                self.counters.timed_out += 1;
                let seconds = self.limits.handshake_timeout.as_secs_f64();
                let (label, address) = (self.ends.label.clone(), self.ends.remote);
                self.failure = Some(IoError::ConnectTimedOut {
                    label,
                    address,
                    seconds,
                });
                Progress::Ended
            }
        }
    }

    pub(crate) fn snapshot(&self) -> TransportSnapshot {
        TransportSnapshot {
            label: self.ends.label.clone(),
            kind: "websocket",
            local: self.ends.local.to_string(),
            kernel_buffers: (0, 0),
            counters: self.counters,
        }
    }

    fn write_outbox(&mut self) -> Result<bool, Errno> {
        match self.stage.pipe() {
            Some(pipe) => pipe
                .outbox
                .write_to(&self.stream, &mut self.counters.send_calls),
            None => Ok(true),
        }
    }

    fn outbox(&self) -> Option<&Outbox> {
        self.stage.outbox()
    }
}

impl AsFd for WebSocketConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
