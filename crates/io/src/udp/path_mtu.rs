//! The size of datagrams on the path to a peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustix::net::sockopt;

use super::DatagramCarrier;

/// The largest payload of one UDP datagram, or one call of segmentation offload, over IPv4.
pub(crate) const LARGEST_PAYLOAD: usize = 65_507;

/// The port to look up the route to a peer that has none; nothing is sent there.
const DISCARD: u16 = 9;
/// Payloads to try when the kernel refuses a size without a better one: Ethernet, IPv6 on Ethernet,
/// common tunnels, the IPv6 minimum, the IPv4 minimum of hosts.
const PLATEAUS: [usize; 6] = [1472, 1452, 1400, 1352, 1232, 548];

/// What ICMP messages have told the kernel of a path counts down to here: anybody can forge them
/// ("an attacker that is not on the path", RFC 8899, section 8). A path that is narrower in truth is
/// found by the probes of links, and an interface that is by the kernel's refusal to send.
const LEAST_LEARNED: usize = 1280;

/// Asks the kernel for the path MTU to a peer. A connected socket knows it, including the effect of
/// ICMP messages.
#[derive(Debug, Default)]
pub(crate) struct RouteProbe {
    ipv4: Option<UdpSocket>,
    ipv6: Option<UdpSocket>,
}

impl RouteProbe {
    /// Looks up the kernel's route to `peer`, which must not be an IPv4-mapped IPv6 address.
    pub(crate) fn towards(&mut self, mut peer: SocketAddr) -> Route {
        // A peer on bare IP has none.
        if peer.port() == 0 {
            peer.set_port(DISCARD);
        }
        let ipv4 = peer.is_ipv4();
        let socket = match peer {
            SocketAddr::V4(_) => opened(&mut self.ipv4, (Ipv4Addr::UNSPECIFIED, 0).into()),
            SocketAddr::V6(_) => opened(&mut self.ipv6, (Ipv6Addr::UNSPECIFIED, 0).into()),
        };
        // A connected socket would keep the source address that the kernel chose for the last peer.
        let asked = |socket: &&UdpSocket| {
            rustix::net::connect_unspec(socket).is_ok() && socket.connect(peer).is_ok()
        };
        let Some(socket) = socket.filter(asked) else {
            return Route {
                ipv4,
                path_mtu: None,
                source: None,
            };
        };
        let mtu = if peer.is_ipv4() {
            sockopt::ip_mtu(socket)
        } else {
            sockopt::ipv6_mtu(socket)
        };
        let source = socket.local_addr().ok().map(|address| address.ip());
        Route {
            ipv4,
            path_mtu: mtu.ok().map(|mtu| mtu as usize),
            source,
        }
    }
}

/// The kernel's route to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    ipv4: bool,
    path_mtu: Option<usize>,
    /// The source address for it.
    pub(crate) source: Option<IpAddr>,
}

impl Route {
    /// Returns the largest payload to begin with on the route, within a path MTU of `assumed` bytes.
    pub(crate) fn largest_payload(&self, assumed: usize, carrier: DatagramCarrier) -> usize {
        let known = self.path_mtu.map(|known| known.max(LEAST_LEARNED));
        let mtu = known.map_or(assumed, |known| known.min(assumed));
        payload_within(mtu, carrier.headers(self.ipv4))
    }

    /// Returns the same where the kernel has just refused to send more.
    pub(super) fn payload_of_refusal(&self, assumed: usize, carrier: DatagramCarrier) -> usize {
        let mtu = self.path_mtu.map_or(assumed, |known| known.min(assumed));
        payload_within(mtu, carrier.headers(self.ipv4))
    }
}

/// Returns the largest payload of a datagram within a path MTU.
pub(super) fn payload_within(path_mtu: usize, headers: usize) -> usize {
    path_mtu.saturating_sub(headers).clamp(1, LARGEST_PAYLOAD)
}

fn opened(slot: &mut Option<UdpSocket>, address: SocketAddr) -> Option<&UdpSocket> {
    if slot.is_none() {
        *slot = UdpSocket::bind(address).ok();
    }
    slot.as_ref()
}

/// Returns the next payload to try below `refused` bytes.
pub(crate) fn next_lower(refused: usize) -> usize {
    let plateau = PLATEAUS.into_iter().find(|plateau| *plateau < refused);
    plateau
        .unwrap_or(refused.saturating_sub(refused / 8).saturating_sub(1))
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_wide_but_no_wider_than_assumed() {
        let mut probe = RouteProbe::default();
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let udp = DatagramCarrier::Udp;
        let ip = DatagramCarrier::Ip { protocol: 253 };
        assert_eq!(probe.towards(peer).largest_payload(1500, udp), 1472);
        assert_eq!(
            probe.towards(peer).largest_payload(usize::MAX, udp),
            LARGEST_PAYLOAD
        );
        let without_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        assert_eq!(probe.towards(without_port).largest_payload(1500, ip), 1480);
        let peer = SocketAddr::from((Ipv6Addr::LOCALHOST, 9));
        assert_eq!(probe.towards(peer).largest_payload(1500, udp), 1452);
    }

    #[test]
    fn what_anybody_can_forge_lowers_a_path_to_the_minimum_of_ipv6_only() {
        let told = |path_mtu| Route {
            ipv4: true,
            path_mtu: Some(path_mtu),
            source: None,
        };
        let udp = DatagramCarrier::Udp;
        for (told_mtu, begin, refused) in [(552, 1252, 524), (1280, 1252, 1252), (1400, 1372, 1372)]
        {
            let route = told(told_mtu);
            assert_eq!(route.largest_payload(1500, udp), begin);
            assert_eq!(route.payload_of_refusal(1500, udp), refused);
        }
        assert_eq!(told(552).largest_payload(600, udp), 572, "as configured");
    }

    #[test]
    fn lower_sizes_go_down_to_one_byte_and_never_up() {
        let mut size = 9000;
        while size > 1 {
            let lower = next_lower(size);
            assert!(lower < size, "{size} -> {lower}");
            size = lower;
        }
        assert_eq!(next_lower(1473), 1472);
        assert_eq!(next_lower(1472), 1452);
        assert_eq!(next_lower(1), 1);
    }
}
