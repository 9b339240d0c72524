//! Faults that a scenario injects: link failures and node crashes.

use core::time::Duration;

use whimbrel_core::{Machine, PortId};

use super::run::encapsulated;
use super::{Direction, LinkId, NodeId, Port, Simulator, lane_index};
use crate::link::{LinkSpec, LinkSpecError};

/// How long a port of an inbound peer stays open after its peer has moved, as over sockets.
const IDLE_INBOUND: Duration = Duration::from_secs(60);

impl<M: Machine> Simulator<M> {
    /// Cuts a link in both directions. Frames sent from now on are lost; frames that propagate
    /// already still arrive.
    pub fn partition(&mut self, link: LinkId) {
        for direction in Direction::BOTH {
            self.set_direction_up(link, direction, false);
        }
    }

    /// Undoes [`Self::partition`].
    pub fn repair(&mut self, link: LinkId) {
        for direction in Direction::BOTH {
            self.set_direction_up(link, direction, true);
        }
    }

    /// Cuts or repairs one direction of a link.
    pub fn set_direction_up(&mut self, link: LinkId, direction: Direction, up: bool) {
        let lane = lane_index(link, direction);
        self.catch_up(lane);
        self.lanes[lane].link.set_up(self.now, up);
        self.schedule_lane(lane);
    }

    /// Holds all arrivals over a link in both directions, in order, until [`Self::release`].
    pub fn hold(&mut self, link: LinkId) {
        for direction in Direction::BOTH {
            let lane = lane_index(link, direction);
            self.lanes[lane].link.hold();
            self.schedule_lane(lane);
        }
    }

    /// Undoes [`Self::hold`]. Held frames arrive now.
    pub fn release(&mut self, link: LinkId) {
        for direction in Direction::BOTH {
            let lane = lane_index(link, direction);
            self.lanes[lane].link.release();
            self.schedule_lane(lane);
        }
    }

    /// Changes the address of the inbound peer on this link, as a move or a NAT does: its
    /// frames come in on a new port of the listener. Frames to the old port are lost, and it closes
    /// after a minute of idleness, as over sockets. Returns the new port; `None` if no end of the
    /// link is a listener's.
    pub fn move_inbound(&mut self, link: LinkId) -> Option<PortId> {
        let lanes = Direction::BOTH.map(|direction| lane_index(link, direction));
        let listens = |lane: &usize| {
            let from = &self.ports[self.lanes[*lane].from.0 as usize];
            from.info.origin.is_caller() && self.nodes[from.node.index()].running
        };
        let outgoing = lanes.into_iter().find(listens)?;
        let old = self.lanes[outgoing].from;
        let (node, new) = self.replace_inbound(outgoing);
        self.schedule(self.now + IDLE_INBOUND, move |sim| {
            if sim.is_running(node) {
                sim.close_port(node, old);
            }
        });
        Some(new)
    }

    /// Frames of the inbound peer at the start of the lane `outgoing` come in on a new port from now
    /// on. Returns its node and the port.
    pub(super) fn replace_inbound(&mut self, outgoing: usize) -> (NodeId, PortId) {
        let old = self.lanes[outgoing].from;
        let new = PortId(self.ports.len() as u32);
        let deserted = &mut self.ports[old.0 as usize];
        let (node, lane) = (deserted.node, deserted.lane.take());
        let mut info = deserted.info.clone();
        info.peer = format!("{} as {new}", info.peer);
        let (packets, ip) = (deserted.packets, deserted.ip);
        self.ports.push(Port {
            node,
            lane,
            info,
            open: true,
            readmits: false,
            blocked: false,
            packets,
            ip,
            sends_ecn: false,
            receives_ecn: false,
        });
        self.nodes[node.index()].ports.push(new);
        self.lanes[outgoing].from = new;
        self.lanes[outgoing ^ 1].to = new;
        self.announce(node, new);
        (node, new)
    }

    /// Changes one direction of a link from now on. The link's encapsulation is added to the new
    /// specification.
    pub fn set_link_spec(
        &mut self,
        link: LinkId,
        direction: Direction,
        spec: &LinkSpec,
    ) -> Result<(), LinkSpecError> {
        let lane = lane_index(link, direction);
        let spec = encapsulated(spec, self.lanes[lane].encapsulation);
        self.catch_up(lane);
        self.lanes[lane].link.set_spec(self.now, &spec)?;
        self.schedule_lane(lane);
        Ok(())
    }

    /// Stops a node: its machine gets no more calls, and arriving frames are lost. Its peers are
    /// not told.
    pub fn crash(&mut self, node: NodeId) {
        let node = &mut self.nodes[node.index()];
        node.running = false;
        node.wake = None;
    }

    /// Starts a node with a fresh machine, which is told of the open ports; a node that runs is
    /// restarted. Returns the old machine.
    pub fn restart(&mut self, node: NodeId, machine: M) -> M {
        let restarted = &mut self.nodes[node.index()];
        let old = core::mem::replace(&mut restarted.machine, machine);
        restarted.running = true;
        restarted.wake = None;
        let ports = restarted.ports.clone();
        // A listener that starts has no inbound peers of its former life.
        for port in &ports {
            let port = &mut self.ports[port.0 as usize];
            port.open &= port.lane.is_some();
        }
        let is_open = |port: &PortId| self.ports[port.0 as usize].open;
        let open: Vec<PortId> = ports.into_iter().filter(is_open).collect();
        for port in open {
            self.ports[port.0 as usize].blocked = false;
            self.announce(node, port);
        }
        self.drain(node);
        old
    }

    /// Returns true unless the node has crashed.
    pub fn is_running(&self, node: NodeId) -> bool {
        self.nodes[node.index()].running
    }
}
