//! What is on a node of the simulation.

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};
use whimbrel_node::ndn::NdnRouter;
use whimbrel_transport::application::AppFace;
use whimbrel_transport::cbr::{CbrConsumer, CbrEvent, EchoProducer};

/// A router with its links, or a program on one.
pub(super) enum Node {
    Router(Box<NdnRouter>),
    Consumer(Box<AppFace<CbrConsumer>>),
    Producer(Box<AppFace<EchoProducer>>),
}

/// Calls the same on whatever machine it is.
macro_rules! each {
    ($node:expr, $machine:ident => $call:expr) => {
        match $node {
            Node::Router($machine) => $call,
            Node::Consumer($machine) => $call,
            Node::Producer($machine) => $call,
        }
    };
}

impl Node {
    pub(super) fn router(&self) -> Option<&NdnRouter> {
        match self {
            Node::Router(router) => Some(router),
            _ => None,
        }
    }

    pub(super) fn router_mut(&mut self) -> Option<&mut NdnRouter> {
        match self {
            Node::Router(router) => Some(router),
            _ => None,
        }
    }

    pub(super) fn consumer(&self) -> Option<&AppFace<CbrConsumer>> {
        match self {
            Node::Consumer(consumer) => Some(consumer),
            _ => None,
        }
    }
}

impl Machine for Node {
    type Event = CbrEvent;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        each!(self, machine => machine.handle_port(now, port, event));
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        each!(self, machine => machine.handle_refusal(now, token, refusal));
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        each!(self, machine => machine.handle_frames(now, port, frames));
    }

    fn handle_timeout(&mut self, now: Time) {
        each!(self, machine => machine.handle_timeout(now));
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        each!(self, machine => machine.poll_transmit(now, max_segments, buffer))
    }

    /// Of routers and producers nothing is to be told: sockets are not opened here.
    fn poll_event(&mut self) -> Option<CbrEvent> {
        match self {
            Node::Consumer(consumer) => return consumer.poll_event(),
            Node::Router(router) => while router.poll_event().is_some() {},
            Node::Producer(producer) => while producer.poll_event().is_some() {},
        }
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        each!(self, machine => machine.poll_port_request())
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        each!(self, machine => machine.poll_timeout())
    }
}
