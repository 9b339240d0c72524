//! Faults that a scenario injects: link failures and node crashes.

use whimbrel_core::{Machine, PortId};

use super::run::encapsulated;
use super::{Direction, LinkId, NodeId, Simulator, lane_index};
use crate::link::{LinkSpec, LinkSpecError};

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
        let open: Vec<PortId> = restarted
            .ports
            .iter()
            .copied()
            .filter(|port| self.ports[port.0 as usize].open)
            .collect();
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
