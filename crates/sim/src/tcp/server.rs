//! A server that sends.

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};

use super::content::{Outgoing, drain};
use super::stack::Stack;
use super::{SERVER_PORT, SenderSample, TcpConfig, TcpEvent};

/// Longest request line.
const LONGEST_REQUEST: usize = 1024;

/// Answers `GET n
/// ` with n bytes and closes, as in HTTP/1.0; and `SWAP n
/// ` likewise while it receives n bytes itself.
pub struct TcpServer {
    stack: Stack,
    connections: Vec<Connection>,
    stats: ServerStats,
}

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Valid requests.
    pub requests: u64,
    /// Connections with an invalid request.
    pub bad_requests: u64,
    /// Bytes passed to TCP.
    pub sent: u64,
    /// Bytes received beside requests, and how many of them differ from the client's at their
    /// position. Above 0, TCP is broken.
    pub received: u64,
    /// See `received`.
    pub wrong_bytes: u64,
    /// Segments whose payload had been sent before.
    pub retransmitted_segments: u64,
    /// Payload bytes of these.
    pub retransmitted_bytes: u64,
}

struct Connection {
    handle: SocketHandle,
    // `None` until the request has arrived.
    answer: Option<Answer>,
}

struct Answer {
    outgoing: Outgoing,
    /// Bytes that the client sends, and those that have arrived.
    expected: u64,
    received: u64,
}

impl TcpServer {
    /// Returns a server that listens on [`SERVER_PORT`] as soon as it has a port.
    pub fn new(config: TcpConfig) -> TcpServer {
        let mut server = TcpServer {
            stack: Stack::new(config),
            connections: Vec::new(),
            stats: ServerStats::default(),
        };
        server.listen();
        server
    }

    /// Returns the counters.
    pub fn stats(&self) -> ServerStats {
        let (retransmitted_segments, retransmitted_bytes) = self.stack.device.retransmitted();
        ServerStats {
            retransmitted_segments,
            retransmitted_bytes,
            ..self.stats
        }
    }

    /// Returns what was seen of it every half second while it sent.
    pub fn samples(&self) -> &[SenderSample] {
        self.stack.device.samples()
    }

    /// Keeps one socket listening while there is room for another connection.
    fn listen(&mut self) {
        let sockets = &self.stack.sockets;
        let listening = |connection: &Connection| {
            matches!(
                sockets.get::<tcp::Socket>(connection.handle).state(),
                tcp::State::Listen
            )
        };
        if self.connections.len() >= self.stack.config.max_connections
            || self.connections.iter().any(listening)
        {
            return;
        }
        let config = &self.stack.config;
        let mut socket = self.stack.socket(config.request_buffer, config.send_buffer);
        if socket.listen(SERVER_PORT).is_ok() {
            let handle = self.stack.sockets.add(socket);
            self.connections.push(Connection {
                handle,
                answer: None,
            });
        }
    }

    fn round(&mut self, now: Time) {
        if !self.stack.take_dirty() {
            return;
        }
        self.stack.poll(now);
        for connection in &mut self.connections {
            let socket = self.stack.sockets.get_mut::<tcp::Socket>(connection.handle);
            connection.serve(socket, &mut self.stats);
        }
        self.stack.poll(now);
        self.forget_closed();
        self.listen();
        self.stack.read_deadline(now);
    }

    fn forget_closed(&mut self) {
        let sockets = &mut self.stack.sockets;
        self.connections.retain(|connection| {
            let state = sockets.get::<tcp::Socket>(connection.handle).state();
            let closed = matches!(state, tcp::State::Closed | tcp::State::TimeWait);
            if closed {
                sockets.remove(connection.handle);
            }
            !closed
        });
    }
}

impl Connection {
    fn serve(&mut self, socket: &mut tcp::Socket<'_>, stats: &mut ServerStats) {
        if self.answer.is_none() && socket.can_recv() {
            self.read_request(socket, stats);
        }
        let Some(answer) = &mut self.answer else {
            if socket.state() == tcp::State::CloseWait {
                socket.close();
            }
            return;
        };
        stats.sent += answer.outgoing.pour(socket);
        if answer.received < answer.expected {
            let (count, wrong) = drain(socket, answer.received);
            answer.received += count;
            stats.received += count;
            stats.wrong_bytes += wrong;
        }
        // A client that has closed sends no more.
        let has_all = answer.received >= answer.expected || !socket.may_recv();
        let is_over = answer.outgoing.is_over() && has_all;
        if is_over && socket.may_send() {
            socket.close();
        }
    }

    fn read_request(&mut self, socket: &mut tcp::Socket<'_>, stats: &mut ServerStats) {
        let line = socket.peek(LONGEST_REQUEST).unwrap_or_default();
        let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
            if line.len() == LONGEST_REQUEST {
                stats.bad_requests += 1;
                socket.abort();
            }
            return;
        };
        let line = core::str::from_utf8(&line[..end]).unwrap_or_default();
        let parsed = line.split_once(' ').and_then(|(verb, number)| {
            let length: u64 = number.parse().ok()?;
            match verb {
                "GET" => Some((length, 0)),
                "SWAP" => Some((length, length)),
                _ => None,
            }
        });
        match parsed {
            Some((length, expected)) => {
                stats.requests += 1;
                self.answer = Some(Answer {
                    outgoing: Outgoing::new(length),
                    expected,
                    received: 0,
                });
                // The request is a whole line in the buffer; what follows it is the client's content.
                let _ = socket.recv(|_| (end + 1, ()));
            }
            None => {
                stats.bad_requests += 1;
                socket.abort();
            }
        }
    }
}

impl Machine for TcpServer {
    type Event = TcpEvent;

    fn handle_port(&mut self, _now: Time, port: PortId, event: PortEvent) {
        self.stack.handle_port(port, &event);
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, _now: Time, _port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            self.stack.handle_frame(frame);
        }
    }

    fn handle_timeout(&mut self, _now: Time) {
        self.stack.touch();
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        _max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.round(now);
        self.stack.transmit(buffer)
    }

    fn poll_event(&mut self) -> Option<TcpEvent> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.stack.deadline()
    }
}
