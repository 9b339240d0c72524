//! A client that fetches and measures.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::VecDeque;

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use smoltcp::wire::IpAddress;
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};

use super::content::{Outgoing, drain};
use super::stack::Stack;
use super::{GoodputMeter, SERVER_PORT, TcpConfig};

/// The first local port of connections (RFC 6335: dynamic ports).
const FIRST_LOCAL_PORT: u16 = 49_152;

/// Fetches bytes from a [`super::TcpServer`], with any number of transfers at a time.
pub struct TcpClient {
    stack: Stack,
    server: Ipv4Addr,
    interval: Duration,
    fetches: Vec<Fetch>,
    active: Vec<Active>,
    events: VecDeque<TcpEvent>,
}

/// One transfer of a client, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(pub usize);

/// An event of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEvent {
    /// All bytes have arrived.
    Completed(FetchId),
    /// The connection ended early, or could not be made.
    Failed(FetchId),
}

/// The progress or outcome of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The time of the request.
    pub started: Time,
    /// Bytes asked for.
    pub length: u64,
    /// The arrival time of the last byte.
    pub completed: Option<Time>,
    /// True if the connection ended early.
    pub failed: bool,
    /// Bytes by arrival time, from `started` on.
    pub goodput: GoodputMeter,
    /// Bytes that differ from the server's at their position. Above 0, TCP is broken.
    pub wrong_bytes: u64,
}

impl Fetch {
    /// Returns the time from the request to the last byte.
    pub fn response_time(&self) -> Option<Duration> {
        self.completed
            .map(|completed| completed.since(self.started))
    }
}

struct Active {
    id: FetchId,
    handle: SocketHandle,
    asked: bool,
    /// What the client sends itself after the request, in an exchange.
    outgoing: Option<Outgoing>,
}

impl TcpClient {
    /// Returns a client of the server at `server` that measures goodput per `interval`.
    pub fn new(config: TcpConfig, server: Ipv4Addr, interval: Duration) -> TcpClient {
        TcpClient {
            stack: Stack::new(config),
            server,
            interval,
            fetches: Vec::new(),
            active: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Starts to fetch `length` bytes over a separate connection.
    pub fn fetch(&mut self, now: Time, length: u64) -> FetchId {
        self.start(now, length, None)
    }

    /// Starts to fetch `length` bytes over a separate connection, and sends as many to the server on it at
    /// the same time. It completes when both are done.
    pub fn exchange(&mut self, now: Time, length: u64) -> FetchId {
        self.start(now, length, Some(Outgoing::new(length)))
    }

    fn start(&mut self, now: Time, length: u64, outgoing: Option<Outgoing>) -> FetchId {
        let id = FetchId(self.fetches.len());
        self.fetches.push(Fetch {
            started: now,
            length,
            completed: None,
            failed: false,
            goodput: GoodputMeter::new(now, self.interval),
            wrong_bytes: 0,
        });
        let config = &self.stack.config;
        let mut socket = self
            .stack
            .socket(config.receive_buffer, config.request_buffer);
        let local_port =
            FIRST_LOCAL_PORT + (id.0 % usize::from(u16::MAX - FIRST_LOCAL_PORT)) as u16;
        let server = (IpAddress::from(self.server), SERVER_PORT);
        match socket.connect(self.stack.interface.context(), server, local_port) {
            Ok(()) => {
                let handle = self.stack.sockets.add(socket);
                self.active.push(Active {
                    id,
                    handle,
                    asked: false,
                    outgoing,
                });
            }
            Err(_) => self.fail(id),
        }
        self.stack.touch();
        id
    }

    /// Returns a transfer, or `None` for an id of another client.
    pub fn get(&self, id: FetchId) -> Option<&Fetch> {
        self.fetches.get(id.0)
    }

    /// Returns all transfers, in the order of their requests.
    pub fn fetches(&self) -> &[Fetch] {
        &self.fetches
    }

    fn fail(&mut self, id: FetchId) {
        self.fetches[id.0].failed = true;
        self.events.push_back(TcpEvent::Failed(id));
    }

    fn round(&mut self, now: Time) {
        if !self.stack.take_dirty() {
            return;
        }
        self.stack.poll(now);
        for active in &mut self.active {
            let socket = self.stack.sockets.get_mut::<tcp::Socket>(active.handle);
            let fetch = &mut self.fetches[active.id.0];
            active.ask(socket, fetch.length);
            let (count, wrong) = drain(socket, fetch.goodput.total());
            if count > 0 {
                fetch.goodput.record(now, count);
            }
            fetch.wrong_bytes += wrong;
        }
        self.report_finished(now);
        // Reading opens the window, and closes take effect.
        self.stack.poll(now);
        self.stack.read_deadline(now);
    }

    /// Reports finished transfers and removes their sockets.
    fn report_finished(&mut self, now: Time) {
        let mut index = 0;
        while let Some(active) = self.active.get(index) {
            let (id, handle) = (active.id, active.handle);
            let socket = self.stack.sockets.get_mut::<tcp::Socket>(handle);
            let is_sent = active.has_sent(socket);
            let fetch = &mut self.fetches[id.0];
            if fetch.completed.is_none() && !fetch.failed {
                let is_whole = fetch.goodput.total() >= fetch.length && is_sent;
                if is_whole && socket.state() != tcp::State::SynSent {
                    fetch.completed = Some(now);
                    self.events.push_back(TcpEvent::Completed(id));
                } else if !socket.may_recv() && !matches!(socket.state(), tcp::State::SynSent) {
                    fetch.failed = true;
                    self.events.push_back(TcpEvent::Failed(id));
                }
            }
            match socket.state() {
                tcp::State::CloseWait => socket.close(),
                tcp::State::Closed | tcp::State::TimeWait => {
                    self.stack.sockets.remove(handle);
                    self.active.swap_remove(index);
                    continue;
                }
                _ => {}
            }
            index += 1;
        }
    }
}

impl Active {
    fn ask(&mut self, socket: &mut tcp::Socket<'_>, length: u64) {
        if !self.asked && socket.can_send() {
            let verb = self.outgoing.map_or("GET", |_| "SWAP");
            // A request line fits in the empty send buffer.
            self.asked = socket
                .send_slice(format!("{verb} {length}\n").as_bytes())
                .is_ok();
        }
        if let Some(outgoing) = self.outgoing.as_mut().filter(|_| self.asked) {
            outgoing.pour(socket);
        }
    }

    /// True if the server has all that the client sends beside its request.
    fn has_sent(&self, socket: &tcp::Socket<'_>) -> bool {
        let outgoing = self.outgoing.as_ref();
        outgoing.is_none_or(|it| it.is_over() && socket.send_queue() == 0)
    }
}

impl Machine for TcpClient {
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
        self.events.pop_front()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.stack.deadline()
    }
}
