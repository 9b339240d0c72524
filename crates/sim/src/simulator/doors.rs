//! Ports that machines ask for.

use whimbrel_core::{Endpoint, Machine, Medium, OpenRefusal, PortOrigin, PortRequest, PortToken};

use super::{Door, DuplexLink, NodeId, Simulator};

impl<M: Machine> Simulator<M> {
    /// Adds a door: a machine that asks for its endpoint is then connected to its node. A later
    /// door for the same endpoint replaces an earlier one.
    pub fn add_door(&mut self, door: Door) {
        self.doors
            .retain(|known| !leads_to(&known.endpoint, &door.endpoint));
        self.doors.push(door);
    }

    /// Carries out a machine's request about its ports.
    pub(super) fn grant(&mut self, node: NodeId, request: PortRequest) {
        if self.nodes[node.index()].requests_by_hand {
            return self.requests.push_back((node, request));
        }
        match request {
            PortRequest::Open {
                token,
                label,
                endpoint,
            } => {
                if let Err(refusal) = self.open(node, token, label, &endpoint) {
                    let now = self.now;
                    let machine = &mut self.nodes[node.index()].machine;
                    machine.handle_refusal(now, token, refusal);
                }
            }
            PortRequest::Close(port) => {
                self.shut(node, port);
                let own = self.ports.get_mut(port.0 as usize);
                if let Some(own) = own.filter(|own| own.node == node) {
                    let is_datagrams =
                        matches!(own.info.medium, Medium::Unaddressed | Medium::Udp { .. });
                    own.readmits = is_datagrams && own.info.origin.is_caller();
                }
            }
            PortRequest::SetEcn { port, capable } => {
                let own = self.ports.get_mut(port.0 as usize);
                if let Some(own) = own.filter(|own| own.node == node) {
                    own.sends_ecn = capable;
                }
            }
            // Simulated ports neither expire nor change their addresses.
            PortRequest::Keep(_) | PortRequest::LookUpAgain(_) => {}
        }
    }

    fn open(
        &mut self,
        node: NodeId,
        token: PortToken,
        label: String,
        endpoint: &Endpoint,
    ) -> Result<(), OpenRefusal> {
        let door = self
            .doors
            .iter()
            .find(|door| leads_to(&door.endpoint, endpoint))
            .cloned()
            .ok_or_else(|| OpenRefusal::Failed(format!("nothing listens on {endpoint}")))?;
        if needs_an_answer(endpoint) && !self.is_running(door.node) {
            return Err(OpenRefusal::Failed(format!(
                "no program answers on {endpoint}"
            )));
        }
        let link = DuplexLink {
            a_label: label,
            ..door
                .link
                .with_origins(PortOrigin::Opened(token), door.origin)
        };
        let connected = self.connect(node, door.node, &link);
        connected
            .map(|_| ())
            .map_err(|fault| OpenRefusal::Failed(fault.to_string()))
    }
}

/// Returns true for a connection, which comes up only if the other side accepts it. A datagram port
/// comes up regardless of its peer.
fn needs_an_answer(endpoint: &Endpoint) -> bool {
    matches!(
        endpoint,
        Endpoint::Tcp { .. } | Endpoint::Unix { .. } | Endpoint::WebSocket { .. }
    )
}

/// Returns true if both lead to the same peer. The local socket does not matter.
fn leads_to(door: &Endpoint, wanted: &Endpoint) -> bool {
    match (door, wanted) {
        (Endpoint::Udp { remote: a, .. }, Endpoint::Udp { remote: b, .. }) => a == b,
        (a, b) => a == b,
    }
}
