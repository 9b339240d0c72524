//! UDP multicast and Ethernet over a wire between two network namespaces, and the list of
//! interfaces.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the driver have threads and clocks"
)]

use crate::{namespaces, support};

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use namespaces::{Wire, in_new_namespace, ip};
use support::{Script, block, idle_rounds, pattern, script_loop, until, until_both};
use whimbrel_core::{Medium, PortId, PortOrigin};
use whimbrel_io::{
    EthernetConfig, EthernetLink, EthernetNeighbour, EventLoop, InboundLimits, Interface, IoError,
    UdpMulticastConfig,
};

const GROUP: &str = "224.0.23.170:56363";
const ETHER_TYPE: u16 = 0x8624;
const ETHER_GROUP: [u8; 6] = [0x01, 0x00, 0x5e, 0x00, 0x17, 0xaa];

fn join(interface: &str, group: &str) -> (EventLoop<Script>, PortId, SocketAddr) {
    let mut event_loop = script_loop();
    let interface = Interface::find(interface).unwrap();
    let config = UdpMulticastConfig::new("neighbourhood", group.parse().unwrap(), interface);
    let link = event_loop.sockets().add_udp_multicast(config).unwrap();
    (event_loop, link.port, link.local)
}

#[test]
fn interfaces_are_listed_with_their_properties() {
    in_new_namespace(|| {
        let Some(_wire) = Wire::lay() else { return };
        assert!(ip(&["link set e0 mtu 1400"]));
        let all = Interface::all().unwrap();
        let names: Vec<&str> = all
            .iter()
            .map(|interface| interface.name.as_str())
            .collect();
        assert!(names.contains(&"lo") && names.contains(&"e0"), "{names:?}");
        let wire = Interface::find("10.77.0.1").unwrap();
        assert_eq!((wire.name.as_str(), wire.mtu), ("e0", 1400));
        assert!(wire.is_up && wire.is_multicast && !wire.is_loopback && !wire.is_point_to_point);
        assert!(wire.suits_multicast() && wire.ethernet.is_some_and(|address| address != [0; 6]));
        assert!(ip(&["link set e0 down"]));
        assert!(!Interface::find("e0").unwrap().suits_multicast());
    });
}

#[test]
fn a_multicast_group_reaches_the_others_on_the_wire_and_never_comes_back() {
    in_new_namespace(|| {
        let Some(wire) = Wire::lay() else { return };
        let (mut a, port_a, local) = join("e0", GROUP);
        assert_eq!(local, "10.77.0.1:56363".parse().unwrap());
        wire.enter(1);
        // Two forwarders on one machine share the group.
        let (mut b, port_b, _) = join("10.77.0.2", GROUP);
        let (mut c, port_c, _) = join("e1", GROUP);
        let info = &a.machine().ports[&port_a];
        assert_eq!((info.origin, info.mtu), (PortOrigin::Configured(0), 1472));
        assert!(info.medium.is_shared());
        let Medium::UdpMulticast {
            interface, group, ..
        } = &info.medium
        else {
            panic!("{info:?}")
        };
        assert_eq!(
            (interface.as_str(), group.to_string().as_str()),
            ("e0", GROUP)
        );

        let frames: Vec<Vec<u8>> = (0..30).map(|number| pattern(1000, number)).collect();
        a.machine_mut().send(port_a, frames.clone());
        until_both(&mut a, &mut b, "the frames", |_, b| {
            b.machine().inbox.len() == 30
        });
        until(&mut c, "the frames of the other", |c| {
            c.machine().inbox.len() == 30
        });
        assert!(
            b.machine().frames_from(port_b) == frames && c.machine().frames_from(port_c) == frames
        );
        b.machine_mut().send(port_b, vec![b"answer".to_vec()]);
        until_both(&mut b, &mut a, "the answer", |_, a| {
            a.machine().inbox.len() == 1
        });
        idle_rounds(&mut a);
        idle_rounds(&mut b);
        assert_eq!(
            a.machine().inbox,
            [(port_a, b"answer".to_vec())],
            "own frames do not arrive"
        );
        assert_eq!(b.machine().inbox.len(), 30);
        assert_eq!(
            a.snapshot().ports.len(),
            1,
            "senders get no ports of their own"
        );
    });
}

#[test]
fn only_frames_to_the_group_on_that_interface_arrive() {
    in_new_namespace(|| {
        let Some(wire) = Wire::lay() else { return };
        assert!(ip(&[
            "link add e8 type veth peer name e9",
            "address add 10.78.0.1/24 dev e8",
            "link set e8 up",
            "link set e9 up"
        ]));
        let (mut a, port, _) = join("e0", GROUP);
        let (mut other, _, _) = join("e8", GROUP);
        wire.enter(1);
        let socket = UdpSocket::bind("10.77.0.2:0").unwrap();
        // One datagram to this machine alone, one to another group, and one to the group.
        socket.send_to(b"unicast", "10.77.0.1:56363").unwrap();
        socket
            .send_to(b"another group", "224.0.23.171:56363")
            .unwrap();
        socket.send_to(b"group", GROUP).unwrap();
        until(&mut a, "the frame", |a| !a.machine().inbox.is_empty());
        idle_rounds(&mut a);
        idle_rounds(&mut other);
        assert_eq!(a.machine().inbox, [(port, b"group".to_vec())]);
        assert!(
            other.machine().inbox.is_empty(),
            "the other interface receives nothing"
        );
    });
}

#[test]
fn multicast_works_over_ipv6_link_local_addresses() {
    in_new_namespace(|| {
        let Some(wire) = Wire::lay() else { return };
        // `nodad` skips the wait for duplicate address detection.
        let replace = |device: &str, address: &str| {
            ip(&[&format!(
                "address add {address}/64 dev {device} nodad scope link"
            )])
        };
        if !replace("e0", "fe80::1") {
            eprintln!("SKIPPED: this system has no IPv6");
            return;
        }
        let group = "[ff02::1234]:56363";
        let (mut a, port_a, _) = join("e0", group);
        wire.enter(1);
        assert!(replace("e1", "fe80::2"));
        let (mut b, port_b, _) = join("e1", group);
        a.machine_mut().send(port_a, vec![b"hello".to_vec()]);
        until_both(&mut a, &mut b, "the frame", |_, b| {
            !b.machine().inbox.is_empty()
        });
        assert_eq!(b.machine().inbox, [(port_b, b"hello".to_vec())]);
        assert_eq!(a.machine().ports[&port_a].mtu, 1452);
    });
}

#[test]
fn a_group_is_joined_when_its_interface_and_then_its_address_come() {
    in_new_namespace(|| {
        let Some(wire) = Wire::lay() else { return };
        let mut a = script_loop();
        let group = GROUP.parse().unwrap();
        let joined = |a: &mut EventLoop<Script>| a.snapshot().transports.len();
        assert!(
            a.sockets()
                .await_udp_multicast("late", group, "v0")
                .unwrap()
                .is_none()
        );
        assert!(ip(&[
            "link add v0 type veth peer name v1",
            "link set v0 up",
            "link set v1 up",
        ]));
        for _ in 0..3 {
            idle_rounds(&mut a);
        }
        assert_eq!(joined(&mut a), 0, "it has no address yet");
        assert!(ip(&["address add 10.88.0.1/24 dev v0"]));
        until(&mut a, "the group", |a| !a.machine().ports.is_empty());
        let port = a.machine().ports.values().next().unwrap();
        let on_it =
            matches!(&port.medium, Medium::UdpMulticast { interface, .. } if interface == "v0");
        assert!(on_it, "{port:?}");
        let no_group = "10.88.0.1:5".parse().unwrap();
        assert!(
            a.sockets()
                .await_udp_multicast("none", no_group, "v0")
                .is_err()
        );
        drop(wire);
    });
}

#[test]
fn a_group_too_long_for_its_interface_follows_the_mtu_down_and_closes_with_its_port() {
    in_new_namespace(|| {
        let Some(_wire) = Wire::lay() else { return };
        let (mut a, port, _) = join("e0", GROUP);
        assert!(ip(&["link set e0 mtu 1300"]));
        a.machine_mut().send(port, vec![vec![1; 1472]; 3]);
        until(&mut a, "a lower MTU", |a| {
            a.machine().ports[&port].mtu == 1272
        });
        assert_eq!(a.snapshot().ports[0].counters.drops.path_too_narrow, 3);
        a.sockets().close_port(port);
        assert!(a.machine().down(port) && a.snapshot().transports.is_empty());
    });
}

#[test]
fn joining_needs_a_group_address_and_an_interface_address() {
    in_new_namespace(|| {
        let Some(_wire) = Wire::lay() else { return };
        let refused = |group: &str, interface: &str| {
            let interface = Interface::find(interface).unwrap();
            let config = UdpMulticastConfig::new("x", group.parse().unwrap(), interface);
            let mut event_loop = script_loop();
            let error = event_loop.sockets().add_udp_multicast(config).unwrap_err();
            assert!(event_loop.snapshot().transports.is_empty());
            error
        };
        let error = refused("10.77.0.2:56363", "e0");
        assert!(
            matches!(&error, IoError::UnsuitedForMulticast { .. }),
            "{error}"
        );
        assert!(ip(&["address flush dev e0"]));
        let error = refused(GROUP, "e0");
        assert!(error.to_string().contains("'e0'"), "{error}");
    });
}

fn ethernet(
    interface: &str,
    change: impl FnOnce(EthernetConfig) -> EthernetConfig,
) -> (EventLoop<Script>, EthernetLink) {
    let mut event_loop = script_loop();
    let config = EthernetConfig::new("wire", Interface::find(interface).unwrap(), ETHER_TYPE);
    let link = event_loop.sockets().add_ethernet(change(config)).unwrap();
    (event_loop, link)
}

#[test]
fn ethernet_frames_pass_between_stations_and_inbound_peers_get_ports() {
    in_new_namespace(|| {
        let Some(wire) = Wire::lay() else { return };
        let (mut a, link_a) = ethernet("e0", |config| config.listen(InboundLimits::default()));
        assert_eq!(link_a.group, None);
        wire.enter(1);
        let (mut b, link_b) = ethernet("e1", |config| config.neighbour("a", link_a.local));
        let to_a = link_b.ports[0];
        let info = &b.machine().ports[&to_a];
        assert_eq!((info.mtu, info.origin), (1500, PortOrigin::Configured(0)));
        assert_eq!(
            info.medium,
            Medium::Ethernet {
                interface: "e1".into(),
                local: link_b.local,
                remote: link_a.local
            }
        );
        let frames: Vec<Vec<u8>> = (0..50).map(|number| pattern(1500, number)).collect();
        b.machine_mut().send(to_a, frames.clone());
        until_both(&mut b, &mut a, "the frames", |_, a| {
            a.machine().inbox.len() == 50
        });
        let inbound = a.machine().inbox[0].0;
        assert!(a.machine().frames_from(inbound) == frames);
        let info = &a.machine().ports[&inbound];
        assert_eq!(info.origin, PortOrigin::Accepted(0));
        assert_eq!(
            info.peer,
            link_b.local.map(|octet| format!("{octet:02x}")).join(":")
        );
        a.machine_mut().send(inbound, vec![b"answer".to_vec()]);
        until_both(&mut a, &mut b, "the answer", |_, b| {
            !b.machine().inbox.is_empty()
        });
        // Padding may follow a short frame.
        assert!(b.machine().inbox[0].1.starts_with(b"answer"));
        idle_rounds(&mut a);
        assert_eq!(a.machine().inbox.len(), 50, "own frames do not come back");

        // An inbound peer that is configured comes back as a neighbour. A second configuration is
        // refused.
        let neighbour = EthernetNeighbour {
            label: "b".into(),
            address: link_b.local,
            origin: PortOrigin::Configured(0),
        };
        wire.enter(0);
        let port = a
            .sockets()
            .add_ethernet_neighbour(link_a.transport, neighbour.clone())
            .unwrap();
        assert!(a.machine().down(inbound));
        let error = a
            .sockets()
            .add_ethernet_neighbour(link_a.transport, neighbour)
            .unwrap_err();
        assert!(
            matches!(&error, IoError::DuplicateStation { .. }),
            "{error}"
        );
        b.machine_mut().send(to_a, vec![block(5, b"again")]);
        until_both(&mut b, &mut a, "the frame", |_, a| {
            a.machine().inbox.len() == 51
        });
        assert_eq!(a.machine().inbox[50].0, port);
    });
}

#[test]
fn an_ethernet_group_has_a_port_of_its_own_beside_the_stations() {
    in_new_namespace(|| {
        let Some(wire) = Wire::lay() else { return };
        let (mut a, link_a) = ethernet("e0", |config| config.group(ETHER_GROUP));
        wire.enter(1);
        let (mut b, link_b) = ethernet("e1", |config| {
            config.group(ETHER_GROUP).neighbour("a", link_a.local)
        });
        let (group_a, group_b) = (link_a.group.unwrap(), link_b.group.unwrap());
        assert!(a.machine().ports[&group_a].medium.is_shared());
        a.machine_mut().send(group_a, vec![block(5, b"to all")]);
        until_both(&mut a, &mut b, "the frame", |_, b| {
            !b.machine().inbox.is_empty()
        });
        assert_eq!(b.machine().inbox[0].0, group_b);
        idle_rounds(&mut a);
        assert!(a.machine().inbox.is_empty(), "own frames do not arrive");
        // A station sends to one that does not have it as a neighbour.
        b.machine_mut()
            .send(link_b.ports[0], vec![block(5, b"who am I")]);
        until_both(&mut b, &mut a, "the frame to be refused", |_, a| {
            a.snapshot().transports[0].counters.strangers == 1
        });
        assert!(a.machine().inbox.is_empty());
    });
}

#[test]
fn frames_too_long_for_the_interface_lower_the_mtu_of_all_its_ports() {
    in_new_namespace(|| {
        let Some(_wire) = Wire::lay() else { return };
        let (mut a, link) = ethernet("e0", |config| {
            config.group(ETHER_GROUP).neighbour("b", [2, 0, 0, 0, 0, 9])
        });
        assert!(ip(&["link set e0 mtu 1300"]));
        let group = link.group.unwrap();
        a.machine_mut().send(group, vec![vec![1; 1500]]);
        until(&mut a, "a lower MTU", |a| {
            a.machine().ports[&group].mtu == 1300
        });
        assert_eq!(a.machine().ports[&link.ports[0]].mtu, 1300);
        assert!(!a.machine().down(group));
    });
}

#[test]
fn an_interface_switched_off_keeps_its_ports_and_a_deleted_one_takes_them_down() {
    in_new_namespace(|| {
        let Some(_wire) = Wire::lay() else { return };
        let (mut a, link) = ethernet("e0", |config| config.group(ETHER_GROUP));
        let group = link.group.unwrap();
        assert!(ip(&["link set e0 down"]));
        idle_rounds(&mut a);
        a.machine_mut().send(group, vec![b"nowhere".to_vec()]);
        until(&mut a, "the drop", |a| {
            a.snapshot().ports[0].counters.drops.total() == 1
        });
        assert!(ip(&["link set e0 up"]));
        a.machine_mut().send(group, vec![b"somewhere".to_vec()]);
        until(&mut a, "the frame to go", |a| {
            a.snapshot().ports[0].counters.sent_frames == 1
        });
        assert!(ip(&["link delete e0"]));
        until(&mut a, "the port to go down", |a| a.machine().down(group));
        assert!(a.snapshot().transports.is_empty());
        a.step(Duration::ZERO, |_, _, _| {}).unwrap();
    });
}

#[test]
fn an_interface_without_ethernet_is_refused() {
    in_new_namespace(|| {
        let tun = whimbrel_io::TunDevice::create("whim9").unwrap();
        tun.assign("10.79.0.1".parse().unwrap(), 24).unwrap();
        tun.bring_up().unwrap();
        let config = EthernetConfig::new("wire", Interface::find("whim9").unwrap(), ETHER_TYPE);
        let mut event_loop = script_loop();
        let error = event_loop.sockets().add_ethernet(config).unwrap_err();
        assert!(matches!(&error, IoError::NoEthernet { .. }), "{error}");
        assert!(event_loop.snapshot().transports.is_empty());
    });
}
