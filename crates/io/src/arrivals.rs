//! Connections that listeners accept, and outgoing connections that are established.

use core::time::Duration;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use socket2::{SockAddr, Socket};
use whimbrel_core::{Machine, Medium, PortInfo, PortOrigin, Time};

use crate::attach::UnixEnds;
use crate::listener::{Accepts, Listener};
use crate::sockets::Sockets;
use crate::stream::{Framing, Origin, StreamConnection};
use crate::tcp::{Arrival, Becomes, Connecting, canonical_of};
use crate::transport::{Progress, Transport};
use crate::websocket::{Ends, OriginGate, WebSocketConnection, WebSocketLimits};
use crate::{IoError, StreamLimits, TransportId};

/// A connection that has been silent for less gives way to no other.
const SILENCE: Duration = Duration::from_secs(1);
/// Connections accepted per round and listener.
const ACCEPTS_PER_ROUND: usize = 16;

impl<M: Machine + 'static> Sockets<M> {
    pub(crate) fn accept(&mut self, slot: usize, token: u64) {
        for _ in 0..ACCEPTS_PER_ROUND {
            let now = self.clock.now();
            let Some((Transport::Listener(listener), poller)) = self.transports.polled(slot) else {
                return;
            };
            let Some((stream, address)) = listener.accept(poller, now) else {
                return;
            };
            let wanted = Wanted::of(listener);
            let has_room = match (listener.has_room(), listener.idle_frames) {
                (false, Some(idle)) => self.make_room(slot, token, idle),
                (has_room, _) => has_room,
            };
            let taken = has_room && self.take(wanted, stream, &address, token).is_ok();
            if let Some(Transport::Listener(listener)) = self.transports.get(slot) {
                listener.count(taken);
            }
        }
    }

    /// Closes the connection of this listener that is silent for longest of those that have sent at
    /// most `idle` frames. Returns false if there is none.
    fn make_room(&mut self, listener: usize, token: u64, idle: u64) -> bool {
        let now = self.clock.now();
        let mut longest: Option<(Time, usize)> = None;
        for (id, transport) in self.transports.iter() {
            let Transport::Stream(connection) = transport else {
                continue;
            };
            let place = id.slot as usize;
            let port = connection.port().and_then(|port| self.side.get(port));
            let is_idle = connection.origin.listener == Some(token)
                && now.since(connection.last_active()) >= SILENCE
                && port.is_some_and(|port| port.counters.received_frames <= idle);
            let since = (connection.last_active(), place);
            if is_idle && longest.is_none_or(|longest| since < longest) {
                longest = Some(since);
            }
        }
        let Some((_, place)) = longest else {
            return false;
        };
        self.close_slot(place, now, None);
        if let Some(Transport::Listener(listener)) = self.transports.get(listener) {
            listener.count_evicted();
        }
        true
    }

    fn take(
        &mut self,
        wanted: Wanted,
        stream: Socket,
        address: &SockAddr,
        listener: u64,
    ) -> Result<(), IoError> {
        let taken = match wanted {
            Wanted::Unix {
                label,
                path,
                limits,
            } => {
                let peer = program_on(&stream);
                let attached = UnixEnds {
                    label,
                    origin: PortOrigin::Local,
                    peer,
                    path: Some(path),
                    listener: Some(listener),
                };
                self.add_unix(attached, stream.into(), limits).map(|_| ())
            }
            Wanted::Tcp {
                label,
                number,
                limits,
            } => ends_of(&stream, address, (label, number), listener).and_then(|ends| {
                let _ = stream.set_tcp_nodelay(true);
                let _ = stream.set_keepalive(true);
                self.add_tcp(ends, stream.into(), limits)
            }),
            Wanted::WebSocket {
                label,
                number,
                limits,
                gate,
            } => ends_of(&stream, address, (label, number), listener).and_then(|ends| {
                let _ = stream.set_tcp_nodelay(true);
                let _ = stream.set_keepalive(true);
                self.add_websocket(ends, stream.into(), gate, limits)
            }),
        };
        taken.inspect_err(|error| tracing::warn!(%error, "cannot take a connection"))
    }

    fn add_tcp(
        &mut self,
        ends: Ends,
        stream: OwnedFd,
        limits: StreamLimits,
    ) -> Result<(), IoError> {
        let (label, address) = (ends.label.clone(), ends.remote);
        let (origin, info) = tcp_port(ends, limits);
        match self.add_stream(origin, info, stream, limits) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.unwrap_or_else(|source| IoError::TcpSocket {
                label,
                address,
                action: "watch",
                source,
            })),
        }
    }

    fn add_websocket(
        &mut self,
        ends: Ends,
        stream: OwnedFd,
        gate: Rc<OriginGate>,
        limits: WebSocketLimits,
    ) -> Result<(), IoError> {
        let (label, address) = (ends.label.clone(), ends.remote);
        let id = self.transports.reserve();
        let now = self.clock.now();
        let (slot, token) = (id.slot as usize, id.token());
        let connection = WebSocketConnection::serve(stream, ends, slot, token, (gate, limits), now);
        self.transports
            .install(id, Transport::WebSocket(Box::new(connection)))
            .map_err(|source| IoError::TcpSocket {
                label,
                address,
                action: "watch",
                source,
            })
    }

    /// Handles readiness of the socket of a connection that is being opened.
    pub(crate) fn arrive(&mut self, slot: usize, now: Time) {
        let Some(Transport::Connecting(connecting)) = self.transports.get(slot) else {
            return;
        };
        let local = match connecting.arrival() {
            Arrival::NotYet => return,
            Arrival::Connected { local } => local,
            Arrival::Failed(failure) => return self.close_slot(slot, now, Some(failure)),
        };
        let Some((id, Transport::Connecting(connecting))) = self.transports.lift(slot) else {
            return;
        };
        self.transports
            .poller
            .set_interest(connecting.socket.as_fd(), id.token(), true, false);
        let Connecting {
            socket,
            label,
            address,
            becomes,
            origin,
            ..
        } = *connecting;
        let ends = Ends {
            label,
            origin,
            local,
            remote: address,
            listener: None,
        };
        let made = match becomes {
            Becomes::Stream(limits) => self.stream_of(id, ends, socket, limits, now),
            Becomes::WebSocket { uri, limits } => WebSocketConnection::call(
                socket.into(),
                ends,
                slot,
                id.token(),
                (&uri, limits),
                now,
            )
            .map(|connection| Transport::WebSocket(Box::new(connection))),
        };
        match made {
            Ok(transport) => {
                self.transports.replace(id, transport);
                let progress = match self.transports.polled(slot) {
                    Some((Transport::WebSocket(connection), poller)) => {
                        connection.begin(&mut self.side, poller, now)
                    }
                    _ => Progress::Open,
                };
                self.follow_up(slot, now, progress);
            }
            // The socket is closed, so the poller has forgotten it.
            Err(failure) => {
                self.transports.release(id);
                if let Some(outcome) = self.outcomes.remove(&slot) {
                    self.side.count_report();
                    outcome(&mut self.side.machine, now, Err(failure));
                }
            }
        }
    }

    fn stream_of(
        &mut self,
        id: TransportId,
        ends: Ends,
        socket: Socket,
        limits: StreamLimits,
        now: Time,
    ) -> Result<Transport, IoError> {
        let label = ends.label.clone();
        let (origin, info) = tcp_port(ends, limits);
        let port = self
            .side
            .open(now, id.slot as usize, info)
            .ok_or(IoError::OutOfPorts { label })?;
        if let Some(port) = self.side.get_mut(port) {
            port.concatenates = matches!(limits.framing, Framing::Tlv(_));
        }
        Ok(Transport::Stream(Box::new(StreamConnection::new(
            socket.into(),
            origin,
            id.token(),
            (port, now),
            limits,
        ))))
    }

    /// Serves a transport whose deadline may be due.
    pub(crate) fn expire(&mut self, slot: usize, now: Time) {
        let Some((transport, poller)) = self.transports.polled(slot) else {
            return;
        };
        if transport.next_deadline().is_none_or(|at| at > now) {
            return self.transports.arm(slot);
        }
        let progress = transport.expire(&mut self.side, poller, now, &mut self.receive_buffers);
        if let (Progress::Ended, Transport::Connecting(connecting)) = (progress, transport) {
            let failure = connecting.timed_out();
            self.close_slot(slot, now, Some(failure));
        } else {
            self.follow_up(slot, now, progress);
        }
    }

    /// Acts on the outcome of an operation on a transport.
    pub(crate) fn follow_up(&mut self, slot: usize, now: Time, progress: Progress) {
        if !self.outcomes.is_empty() {
            self.report_outcome(slot, now);
        }
        match progress {
            Progress::Open => self.transports.arm(slot),
            Progress::Ended => self.close_slot(slot, now, None),
        }
    }

    /// Reports to the requester of the connection in `slot` that its port is up.
    pub(crate) fn report_outcome(&mut self, slot: usize, now: Time) {
        if !self.outcomes.contains_key(&slot) {
            return;
        }
        let port = self
            .transports
            .get(slot)
            .and_then(|transport| transport.ports().first().copied());
        if let (Some(port), Some(outcome)) = (port, port.and_then(|_| self.outcomes.remove(&slot)))
        {
            self.side.count_report();
            outcome(&mut self.side.machine, now, Ok(port));
        }
    }
}

/// The kind of port that a listener makes of an accepted connection.
enum Wanted {
    Unix {
        label: String,
        path: std::path::PathBuf,
        limits: StreamLimits,
    },
    Tcp {
        label: String,
        number: u32,
        limits: StreamLimits,
    },
    WebSocket {
        label: String,
        number: u32,
        limits: WebSocketLimits,
        gate: Rc<OriginGate>,
    },
}

impl Wanted {
    fn of(listener: &Listener) -> Wanted {
        let label = listener.label.clone();
        match &listener.accepts {
            Accepts::Unix { file, limits } => Wanted::Unix {
                label,
                path: file.path.clone(),
                limits: *limits,
            },
            Accepts::Tcp { limits, .. } => Wanted::Tcp {
                label,
                number: listener.number,
                limits: *limits,
            },
            Accepts::WebSocket { limits, gate, .. } => Wanted::WebSocket {
                label,
                number: listener.number,
                limits: *limits,
                gate: Rc::clone(gate),
            },
        }
    }
}

fn tcp_port(ends: Ends, limits: StreamLimits) -> (Origin, PortInfo) {
    let Ends {
        label,
        origin: port_origin,
        local,
        remote,
        listener,
    } = ends;
    let peer = remote.to_string();
    let origin = Origin {
        kind: "tcp",
        label: label.clone(),
        peer: peer.clone(),
        listener,
    };
    (
        origin,
        PortInfo {
            label,
            origin: port_origin,
            mtu: limits.max_frame,
            peer,
            medium: Medium::Tcp {
                local,
                remote,
                interface: crate::interface::of_address(remote),
            },
        },
    )
}

fn ends_of(
    stream: &Socket,
    address: &SockAddr,
    (label, number): (String, u32),
    listener: u64,
) -> Result<Ends, IoError> {
    let local = stream.local_addr().ok().as_ref().and_then(canonical_of);
    match (local, canonical_of(address)) {
        (Some(local), Some(remote)) => Ok(Ends {
            label,
            origin: PortOrigin::Accepted(number),
            local,
            remote,
            listener: Some(listener),
        }),
        _ => Err(IoError::ConnectAbandoned { label }),
    }
}

/// Describes the connected program by what the kernel knows of it.
fn program_on(stream: &Socket) -> String {
    match rustix::net::sockopt::socket_peercred(stream) {
        Ok(credentials) => format!("process {}", credentials.pid.as_raw_nonzero()),
        Err(_) => "local program".to_owned(),
    }
}
