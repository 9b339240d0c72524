//! Direct control by a test: frames that it changes, ports that it blocks or gives another MTU,
//! requests that it answers itself.

use whimbrel_core::{Machine, PortEvent, PortId, PortRequest};

use super::{Direction, LinkId, NodeId, Simulator, Tap, lane_index};

impl<M: Machine> Simulator<M> {
    /// Passes all frames of one direction of a link to `tap` before the link gets them. A later tap
    /// replaces an earlier one. A tap must not return empty frames.
    pub fn set_tap(&mut self, link: LinkId, direction: Direction, tap: Option<Tap>) {
        self.lanes[lane_index(link, direction)].tap = tap;
    }

    /// From now on only the scenario answers port requests of the machine of `node`: see
    /// [`Self::poll_request`].
    pub fn answer_requests_by_hand(&mut self, node: NodeId) {
        self.nodes[node.index()].requests_by_hand = true;
    }

    /// Returns the oldest request of a node whose requests are answered by hand: by
    /// [`Self::connect`], [`Self::close_port`], or with [`Machine::handle_refusal`].
    pub fn poll_request(&mut self) -> Option<(NodeId, PortRequest)> {
        self.requests.pop_front()
    }

    /// Tells a machine that a port is blocked, or writable again. If the machine still writes to it, it breaks its
    /// contract and the run panics.
    pub fn set_blocked(&mut self, node: NodeId, port: PortId, blocked: bool) {
        let known = self.ports.get_mut(port.0 as usize);
        let Some(own) = known.filter(|own| own.node == node && own.open) else {
            return;
        };
        own.blocked = blocked;
        let event = if blocked {
            PortEvent::Blocked
        } else {
            PortEvent::Writable
        };
        self.with_node(node, |machine, now| machine.handle_port(now, port, event));
    }

    /// Changes the MTU of a node's end of a link and tells its machine.
    pub fn set_mtu(&mut self, node: NodeId, port: PortId, mtu: usize) {
        let known = self.ports.get_mut(port.0 as usize);
        if let Some(own) = known.filter(|own| own.node == node && own.open) {
            own.info.mtu = mtu;
            let event = PortEvent::Mtu(mtu);
            self.with_node(node, |machine, now| machine.handle_port(now, port, event));
        }
    }

    /// Tells a node whether what carries a port's frames works, as a kernel's link event does.
    pub fn set_carrier(&mut self, node: NodeId, port: PortId, works: bool) {
        let known = self.ports.get(port.0 as usize);
        if known.is_some_and(|own| own.node == node && own.open) {
            let event = PortEvent::Carrier(works);
            self.with_node(node, |machine, now| machine.handle_port(now, port, event));
        }
    }

    /// Returns true until the port is closed.
    pub fn is_open(&self, port: PortId) -> bool {
        let known = self.ports.get(port.0 as usize);
        known.is_some_and(|port| port.open)
    }
}
