//! Opening the links of a node: one socket for all links with the same end on this machine.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use whimbrel_core::{CallerGate, PortOrigin};
use whimbrel_io::{
    DatagramCarrier, EthernetConfig, EthernetNeighbour, IP_PROTOCOL, InboundLimits, Interface,
    IoError, Neighbour, UdpConfig,
};
use whimbrel_link::HopConfig;
use whimbrel_link::hop::{Gate, MIN_MTU};

use crate::config::{Bind, LinkSection, Way};
use crate::run::{NodeLoop, StartError};

/// The EtherType of Hop's frames: that of the prototype, [MF-PROTO, router], which no standard
/// assigns to anything.
pub const ETHER_TYPE: u16 = 0x27c0;

/// A socket to open, and the links on it.
struct Shared<'a> {
    bind: Bind,
    /// Numbers and sections, in the order of the configuration.
    links: Vec<(u32, &'a LinkSection)>,
}

impl Shared<'_> {
    fn mtu(&self) -> usize {
        let all = self.links.iter().map(|(_, link)| link.mtu);
        all.min().unwrap_or(usize::MAX)
    }

    /// Returns the link whose inbound peers the socket admits.
    fn listener(&self) -> Option<(u32, &LinkSection)> {
        self.links.iter().rfind(|(_, link)| link.listen).copied()
    }

    /// Inbound peers get the label of the link that listens.
    fn label(&self) -> &str {
        let first = || self.links.first().copied();
        self.listener()
            .or_else(first)
            .map_or("", |(_, link)| link.label.as_str())
    }

    /// Returns the gate for the listener's inbound peers, whose frames have `headers` octets before
    /// them.
    fn gate(
        &self,
        hop: &HopConfig,
        buffer_packets: usize,
        headers: usize,
    ) -> Option<Box<dyn CallerGate>> {
        let (_, listener) = self.listener()?;
        let config = HopConfig {
            mtu: self.mtu().saturating_sub(headers).max(MIN_MTU),
            plain: listener.plain,
            calls: false,
            ..hop.clone()
        };
        // Before it has a port, a caller counts on a part of the buffer.
        let window = u32::try_from(buffer_packets / 8).unwrap_or(u32::MAX);
        Some(Box::new(Gate::new(config, window)))
    }
}

/// Opens all links.
pub(crate) fn open_links(
    event_loop: &mut NodeLoop,
    bound: &mut BTreeMap<String, Bind>,
    sections: &[LinkSection],
    (hop, buffer_packets): (&HopConfig, usize),
) -> Result<(), StartError> {
    let mut sockets: Vec<Shared<'_>> = Vec::new();
    for numbered in (0..).zip(sections) {
        let (_, link) = numbered;
        let towards = || Bind::towards(link.remote.as_ref()?.way());
        let bind = (link.bind.clone())
            .or_else(towards)
            .unwrap_or(Bind::Udp((Ipv4Addr::UNSPECIFIED, 0).into()));
        match sockets
            .iter_mut()
            .find(|socket| socket.bind == bind && bind.is_shared())
        {
            Some(socket) => socket.links.push(numbered),
            None => sockets.push(Shared {
                bind,
                links: vec![numbered],
            }),
        }
    }
    for socket in sockets {
        let local = match &socket.bind {
            Bind::Udp(_) | Bind::Ip(_) => open_datagrams(event_loop, &socket, hop, buffer_packets)?,
            Bind::Device(interface) => {
                open_ethernet(event_loop, &socket, interface, (hop, buffer_packets))?
            }
        };
        let labels = socket.links.iter().map(|(_, link)| link.label.clone());
        bound.extend(labels.map(|label| (label, local.clone())));
    }
    Ok(())
}

fn open_datagrams(
    event_loop: &mut NodeLoop,
    shared: &Shared<'_>,
    hop: &HopConfig,
    buffer_packets: usize,
) -> Result<Bind, StartError> {
    let (carrier, bind) = match &shared.bind {
        Bind::Ip(address) => (
            DatagramCarrier::Ip {
                protocol: IP_PROTOCOL,
            },
            (*address, 0).into(),
        ),
        bind => (
            DatagramCarrier::Udp,
            (bind.udp()).unwrap_or((IpAddr::from(Ipv4Addr::UNSPECIFIED), 0).into()),
        ),
    };
    let neighbour = |(number, link): &(u32, &LinkSection)| {
        let (Way::Udp(peer) | Way::Ip(peer)) = link.remote.as_ref()?.way() else {
            return None;
        };
        let origin = PortOrigin::Configured(*number);
        Some(Neighbour::new(link.label.as_str(), peer.clone(), origin))
    };
    let mut config = UdpConfig {
        carrier,
        path_mtu: shared.mtu(),
        neighbours: shared.links.iter().filter_map(neighbour).collect(),
        ..UdpConfig::new(shared.label(), bind)
    };
    if let Some((number, listener)) = shared.listener() {
        config.listener = number;
        config.inbound = Some(inbound_limits(listener.max_callers, hop));
    }
    // A listener for both families has the shorter headers of IPv4.
    let is_ipv4 = carrier == DatagramCarrier::Udp || bind.is_ipv4();
    let gate = shared.gate(hop, buffer_packets, carrier.headers(is_ipv4));
    let link = event_loop.sockets().add_udp_with_gate(config, gate)?;
    Ok(match &shared.bind {
        Bind::Udp(_) => Bind::Udp(link.local),
        other => other.clone(),
    })
}

fn open_ethernet(
    event_loop: &mut NodeLoop,
    shared: &Shared<'_>,
    name: &str,
    (hop, buffer_packets): (&HopConfig, usize),
) -> Result<Bind, StartError> {
    let interface = match Interface::find(name) {
        Err(IoError::NoSuchInterface { .. }) => Interface::awaited(name),
        found => found?,
    };
    // An address of the interface is not its name.
    if interface.name != name {
        return Err(IoError::NoSuchInterface {
            name: name.to_owned(),
        }
        .into());
    }
    let mut config =
        EthernetConfig::new(shared.label(), interface, ETHER_TYPE).for_whole_packets(shared.mtu());
    config.neighbours = (shared.links.iter())
        .filter_map(|(number, link)| match link.remote.as_ref()?.way() {
            Way::Ethernet { station, .. } => Some(EthernetNeighbour {
                label: link.label.clone(),
                address: *station,
                origin: PortOrigin::Configured(*number),
            }),
            Way::Udp(_) | Way::Ip(_) => None,
        })
        .collect();
    if let Some((number, listener)) = shared.listener() {
        config.listener = number;
        config.inbound = Some(inbound_limits(listener.max_callers, hop));
    }
    let gate = shared.gate(hop, buffer_packets, EthernetConfig::HEADERS);
    event_loop.sockets().add_ethernet_with_gate(config, gate)?;
    Ok(shared.bind.clone())
}

/// The share of one network in a listener's inbound peers: a site behind one address has that many
/// hosts at most.
pub(crate) const fn share_of_a_network(max: usize) -> usize {
    if max < 64 { max } else { max / 8 }
}

/// Limits of a listener's inbound peers. One that is configured to probe seldom must not be forgotten
/// between two probes, of which one may be lost.
fn inbound_limits(max: usize, hop: &HopConfig) -> InboundLimits {
    let usual = InboundLimits::default();
    InboundLimits {
        max,
        per_network: share_of_a_network(max),
        idle: usual.idle.map(|idle| idle.max(hop.idle_probe_interval * 3)),
        ..usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use whimbrel_core::identity::KeyPair;

    #[test]
    fn a_quiet_inbound_peer_is_not_forgotten_between_its_probes() {
        let of = |probe: u64| {
            let hop = HopConfig {
                idle_probe_interval: Duration::from_secs(probe),
                ..HopConfig::plain(&KeyPair::from_secret(&[1; 32]), [1; 32], 1_472)
            };
            inbound_limits(7, &hop)
        };
        assert_eq!(of(2).idle, Some(Duration::from_secs(60)));
        assert_eq!(of(300).idle, Some(Duration::from_secs(900)));
        assert_eq!(of(300).max, 7);
    }
}
