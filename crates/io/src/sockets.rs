//! What is attached to a loop: the machine's ports and the sockets under them.

use std::collections::BTreeMap;

use rustix::rand::{GetRandomFlags, getrandom};
use whimbrel_core::{LookUpFailure, Machine, PortId, PortInfo, SeededRng, Time};

use crate::interface::WorkingAddresses;
use crate::names::{Answers, Names};
use crate::poller::Poller;
use crate::routes::RouteWatch;
use crate::side::MachineSide;
use crate::transport::{Progress, Transport, TransportId};
use crate::transports::Transports;
use crate::udp::{AwaitedGroup, ReceiveBuffers};
use crate::{Clock, IoError, OpenedLimits};

pub(crate) const ROUTES_TOKEN: u64 = u64::MAX - 2;

/// Receives the outcome of connecting.
pub(crate) type Outcome<M> = Box<dyn FnOnce(&mut M, Time, Result<PortId, IoError>)>;

/// Tells the machine that a configured neighbour's host name cannot be looked up.
pub(crate) type OnLookUpFailure<M> = Box<dyn FnMut(&mut M, Time, LookUpFailure)>;

/// The sockets, listeners, connections and devices of a loop, and the machine whose ports they
/// carry.
pub struct Sockets<M: Machine> {
    pub(crate) clock: Clock,
    pub(crate) side: MachineSide<M>,
    pub(crate) transports: Transports,
    /// Connections that are being opened, by slot.
    pub(crate) outcomes: BTreeMap<usize, Outcome<M>>,
    /// Host names that are being looked up.
    pub(crate) names: Names,
    pub(crate) on_look_up_failure: Option<OnLookUpFailure<M>>,
    /// Present once there is a UDP socket, or something is awaited.
    pub(crate) routes: Option<RouteWatch>,
    /// Multicast groups to join once the machine has their interfaces.
    pub(crate) awaited_groups: Vec<AwaitedGroup>,
    pub(crate) opened_limits: OpenedLimits,
    pub(crate) receive_buffers: ReceiveBuffers,
    pub(crate) rng: SeededRng,
}

impl<M: Machine> Sockets<M> {
    pub(crate) fn new(
        clock: Clock,
        machine: M,
        poller: Poller,
        answers: Answers,
    ) -> Result<Sockets<M>, IoError> {
        let mut seed = [0; 8];
        getrandom(&mut seed, GetRandomFlags::empty()).map_err(|source| IoError::Loop {
            action: "get random bytes",
            source: source.into(),
        })?;
        Ok(Sockets {
            clock,
            side: MachineSide::new(machine),
            transports: Transports::new(poller),
            outcomes: BTreeMap::new(),
            names: Names::new(answers),
            on_look_up_failure: None,
            routes: None,
            awaited_groups: Vec::new(),
            opened_limits: OpenedLimits::default(),
            receive_buffers: ReceiveBuffers::new(),
            rng: SeededRng::new(u64::from_ne_bytes(seed)),
        })
    }

    /// Calls `on_failure` whenever the host name of a configured neighbour cannot be looked up. The
    /// end of that is the neighbour's port, which comes up.
    pub fn follow_look_ups(
        &mut self,
        on_failure: impl FnMut(&mut M, Time, LookUpFailure) + 'static,
    ) {
        self.on_look_up_failure = Some(Box::new(on_failure));
    }

    /// Closes one port as if the machine had asked for it.
    pub fn close_port(&mut self, port: PortId) {
        let now = self.clock.now();
        let Some(slot) = self.side.get(port).map(|port| port.transport) else {
            return;
        };
        let Some((transport, poller)) = self.transports.polled(slot) else {
            return;
        };
        self.names.forget(port);
        match transport.close_port(&mut self.side, poller, now, port) {
            Progress::Open => self.transports.arm(slot),
            Progress::Ended => self.close_slot(slot, now, None),
        }
    }

    /// Closes a transport and all its ports. Connections that a listener accepted stay open.
    pub fn close_transport(&mut self, id: TransportId) {
        if let Some(slot) = self.transports.slot_of(id) {
            self.close_slot(slot, self.clock.now(), None);
        }
    }

    /// Closes the transport in a slot with all its ports. `failure` is reported to the requester of
    /// a connection that is not established yet.
    pub(crate) fn close_slot(&mut self, slot: usize, now: Time, failure: Option<IoError>) {
        let Some(mut transport) = self.transports.remove(slot) else {
            return;
        };
        let listener = transport.listener().map(TransportId::from_token);
        let listener = listener.and_then(|id| self.transports.slot_of(id));
        if let Some(slot) = listener
            && let Some(Transport::Listener(listener)) = self.transports.get(slot)
        {
            listener.left();
        }
        let failure = failure.or_else(|| match &mut transport {
            Transport::WebSocket(connection) => connection.take_failure(),
            _ => None,
        });
        let (ports, label) = (transport.ports(), transport.snapshot().label);
        drop(transport);
        for port in ports {
            self.names.forget(port);
            self.side.close(now, port);
        }
        if let Some(outcome) = self.outcomes.remove(&slot) {
            let failure = failure.unwrap_or(IoError::ConnectAbandoned { label });
            self.side.count_report();
            outcome(&mut self.side.machine, now, Err(failure));
        }
    }

    /// Watches the routes of this thread's network namespace, unless an earlier socket started
    /// that.
    pub(crate) fn watch_routes(&mut self) {
        if self.routes.is_none() {
            let watch = RouteWatch::open(self.clock.now());
            if let Some(socket) = watch.socket()
                && let Err(error) = self.transports.poller.add(socket, ROUTES_TOKEN)
            {
                tracing::error!(%error, "cannot watch routes");
            }
            self.routes = Some(watch);
        }
    }

    pub(crate) fn open_port(&mut self, id: TransportId, info: PortInfo) -> Result<PortId, IoError> {
        let label = info.label.clone();
        self.side
            .open(self.clock.now(), id.slot as usize, info)
            .ok_or_else(|| {
                self.transports.release(id);
                IoError::OutOfPorts { label }
            })
    }

    pub(crate) fn keep_if_added<E>(
        &mut self,
        port: PortId,
        added: std::io::Result<()>,
        error: impl FnOnce(std::io::Error) -> E,
    ) -> Result<PortId, E> {
        added.map(|()| port).map_err(|source| {
            self.side.close(self.clock.now(), port);
            error(source)
        })
    }
}

impl<M: Machine + 'static> Sockets<M> {
    /// Looks up the routes to all neighbours if that is due.
    pub(crate) fn recheck_routes(&mut self, now: Time) {
        if !self
            .routes
            .as_mut()
            .is_some_and(|routes| routes.take_due(now))
        {
            return;
        }
        let working = WorkingAddresses::now();
        let mut ended = Vec::new();
        for place in self.transports.in_use() {
            match self.transports.polled(place) {
                Some((Transport::Udp(endpoint), _)) => {
                    endpoint.recheck_routes(&mut self.side, now, &working);
                }
                Some((Transport::Ethernet(endpoint), poller)) => {
                    let progress = endpoint.recheck(&mut self.side, poller, now);
                    if progress == Progress::Ended {
                        ended.push(place);
                    }
                }
                _ => {}
            }
        }
        for place in ended {
            self.close_slot(place, now, None);
        }
        self.join_awaited_groups();
    }
}
