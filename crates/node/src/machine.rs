//! The three kinds of node as one machine, so that one simulation or one event loop can hold any of
//! them.

use core::convert::Infallible;
use std::collections::BTreeMap;

use whimbrel_core::{
    Deadline, Guid, LookUpFailure, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken,
    Time, Transmit, WallClock,
};
use whimbrel_gnrs::{Server, ServerEvent, Store};
use whimbrel_mobilityfirst::host::interfaces::QuotaUse;
use whimbrel_mobilityfirst::host::{Host, HostEvent};
use whimbrel_mobilityfirst::router::Router;

use crate::name_server::NameServer;

/// A node. `S` is the store of a name server's records.
pub enum Node<S> {
    /// A router.
    Router(Box<Router>),
    /// A host.
    Host(Box<Host>),
    /// A name server.
    NameServer(Box<NameServer<S>>),
}

/// An event of a node for the program around it.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeEvent {
    /// From a host, for a program in this process.
    Host(HostEvent),
    /// From a name server.
    NameServer(ServerEvent),
}

impl<S: Store> From<Server<S>> for Node<S> {
    fn from(server: Server<S>) -> Node<S> {
        Node::NameServer(Box::new(NameServer::new(server)))
    }
}

impl<S: Store> Node<S> {
    /// Returns the router, if it is one.
    pub fn router(&mut self) -> Option<&mut Router> {
        match self {
            Node::Router(router) => Some(router),
            _ => None,
        }
    }

    /// Returns the host, if it is one.
    pub fn host(&mut self) -> Option<&mut Host> {
        match self {
            Node::Host(host) => Some(host),
            _ => None,
        }
    }

    /// Returns what a host has used of its links' quotas.
    pub fn quota_use(&self) -> BTreeMap<u32, QuotaUse> {
        match self {
            Node::Host(host) => host.quota_use(),
            Node::Router(_) | Node::NameServer(_) => BTreeMap::new(),
        }
    }

    /// Returns the names that neighbours of configured links have proven, by the links' numbers.
    pub fn proven_names(&self) -> BTreeMap<u32, Guid> {
        match self {
            Node::Router(router) => router.proven_names(),
            Node::Host(host) => host.proven_names(),
            Node::NameServer(_) => BTreeMap::new(),
        }
    }

    /// Replaces the wall clock after a step of the system's clock.
    pub fn set_wall_clock(&mut self, now: Time, wall: WallClock) {
        match self {
            Node::Router(router) => router.set_wall_clock(now, wall),
            Node::Host(host) => host.set_wall_clock(now, wall),
            Node::NameServer(node) => node.server_mut().set_wall_clock(wall),
        }
    }

    /// Notes that a configured neighbour's host name cannot be looked up, for status reports.
    pub fn note_look_up_failure(&mut self, _: Time, failure: LookUpFailure) {
        match self {
            Node::Router(router) => router.note_look_up_failure(failure),
            Node::Host(host) => host.note_look_up_failure(failure),
            // A name server has no configured neighbours.
            Node::NameServer(_) => {}
        }
    }

    /// Returns the name server, if it is one.
    pub fn name_server(&mut self) -> Option<&mut Server<S>> {
        match self {
            Node::NameServer(node) => Some(node.server_mut()),
            _ => None,
        }
    }
}

macro_rules! whichever {
    ($self:ident, $machine:ident => $call:expr) => {
        match $self {
            Node::Router($machine) => $call,
            Node::Host($machine) => $call,
            Node::NameServer($machine) => $call,
        }
    };
}

impl<S: Store> Machine for Node<S> {
    type Event = NodeEvent;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        whichever!(self, machine => machine.handle_port(now, port, event))
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        whichever!(self, machine => machine.handle_refusal(now, token, refusal))
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        whichever!(self, machine => machine.handle_frames(now, port, frames))
    }

    fn handle_timeout(&mut self, now: Time) {
        whichever!(self, machine => machine.handle_timeout(now))
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        whichever!(self, machine => machine.poll_transmit(now, max_segments, buffer))
    }

    fn poll_event(&mut self) -> Option<NodeEvent> {
        match self {
            Node::Router(router) => router.poll_event().map(|never: Infallible| match never {}),
            Node::Host(host) => host.poll_event().map(NodeEvent::Host),
            Node::NameServer(server) => server.poll_event().map(NodeEvent::NameServer),
        }
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        whichever!(self, machine => machine.poll_port_request())
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        whichever!(self, machine => machine.poll_timeout())
    }
}
