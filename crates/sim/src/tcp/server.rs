//! A server that sends.

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};

use super::stack::Stack;
use super::{SERVER_PORT, SenderSample, TcpConfig, TcpEvent, content_byte};

/// Room for a request line.
const REQUEST_BUFFER: usize = 1024;

/// Answers `GET n
/// ` with n bytes and closes, as in HTTP/1.0.
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
    length: u64,
    sent: u64,
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
        let mut socket = self
            .stack
            .socket(REQUEST_BUFFER, self.stack.config.send_buffer);
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
        while answer.sent < answer.length && socket.can_send() {
            let position = answer.sent;
            let left = usize::try_from(answer.length - position).unwrap_or(usize::MAX);
            let wrote = socket.send(|buffer| {
                let count = buffer.len().min(left);
                fill(&mut buffer[..count], position);
                (count, count)
            });
            match wrote {
                Ok(count) if count > 0 => {
                    answer.sent += count as u64;
                    stats.sent += count as u64;
                }
                _ => break,
            }
        }
        if answer.sent == answer.length && socket.may_send() {
            socket.close();
        }
    }

    fn read_request(&mut self, socket: &mut tcp::Socket<'_>, stats: &mut ServerStats) {
        let line = socket.peek(REQUEST_BUFFER).unwrap_or_default();
        let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
            if line.len() == REQUEST_BUFFER {
                stats.bad_requests += 1;
                socket.abort();
            }
            return;
        };
        let length = core::str::from_utf8(&line[..end])
            .ok()
            .and_then(|line| line.strip_prefix("GET "))
            .and_then(|number| number.parse().ok());
        match length {
            Some(length) => {
                stats.requests += 1;
                self.answer = Some(Answer { length, sent: 0 });
                // The request is a whole line in the buffer; bytes after it are discarded.
                let _ = socket.recv(|buffer| (buffer.len(), ()));
            }
            None => {
                stats.bad_requests += 1;
                socket.abort();
            }
        }
    }
}

fn fill(buffer: &mut [u8], position: u64) {
    let mut value = content_byte(position);
    for byte in buffer {
        *byte = value;
        value = if value == 250 { 0 } else { value + 1 };
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
