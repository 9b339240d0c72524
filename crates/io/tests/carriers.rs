//! Packets that Ethernet and bare IP carry whole, between two network namespaces: what crosses the
//! wire, who gets a port, what becomes of damaged and foreign frames, and interfaces that vanish.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the driver have threads and clocks"
)]

use crate::{namespaces, support};

use std::net::{IpAddr, SocketAddr};

use namespaces::{Wire, in_new_namespace, ip};
use support::{Script, idle_rounds, pattern, script_loop, until, until_both};
use whimbrel_core::{
    Admission, CallerGate, FrameShape, Medium, PortEvent, PortOrigin, Time, address_of_station,
};
use whimbrel_io::{
    EthernetConfig, EthernetLink, EventLoop, IP_PROTOCOL, InboundLimits, Interface, IoError,
    UdpConfig, UdpLink,
};

const ETHER_TYPE: u16 = 0x27c0;
const IPV4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const IPV6: [&str; 2] = ["fd00:77::1", "fd00:77::2"];

/// Admits who says the word, and asks others for it; writes down who came.
#[derive(Debug, Default)]
struct Porter(std::sync::Arc<std::sync::Mutex<Vec<SocketAddr>>>);

impl CallerGate for Porter {
    fn consider(
        &mut self,
        _: Time,
        from: SocketAddr,
        frame: &[u8],
        reply: &mut Vec<u8>,
    ) -> Admission {
        self.0.lock().unwrap().push(from);
        match frame {
            b"the word" => Admission::Admitted,
            b"may I come in?" => {
                reply.extend_from_slice(b"the word?");
                Admission::Answered
            }
            _ => Admission::Refused,
        }
    }

    fn shapes(&self) -> Vec<FrameShape> {
        Vec::new()
    }
}

/// Returns the octets of a vector of `hop-carriers.txt`.
fn vector(name: &str) -> Vec<u8> {
    let text = include_str!("../../../docs/protocols/vectors/hop-carriers.txt");
    let mut lines = text.lines();
    lines
        .find(|line| line.strip_prefix("name: ") == Some(name))
        .unwrap();
    let hex = lines.next().unwrap().strip_prefix("frame: ").unwrap();
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn whole(interface: &str) -> EthernetConfig {
    let interface = Interface::find(interface).unwrap();
    EthernetConfig::new("wire", interface, ETHER_TYPE).for_whole_packets(1500)
}

fn ethernet(config: EthernetConfig) -> (EventLoop<Script>, EthernetLink) {
    let mut event_loop = script_loop();
    let link = event_loop.sockets().add_ethernet(config).unwrap();
    (event_loop, link)
}

/// A socket that sees and sends raw frames of an EtherType.
fn tap(
    interface: &str,
    ether_type: u16,
    other: [u8; 6],
) -> (EventLoop<Script>, whimbrel_core::PortId) {
    let config = EthernetConfig::new("tap", Interface::find(interface).unwrap(), ether_type);
    let (event_loop, link) = ethernet(config.neighbour("other", other));
    let port = link.ports[0];
    (event_loop, port)
}

fn bare(label: &str, address: &str, neighbours: &[&str]) -> (EventLoop<Script>, UdpLink) {
    let address: IpAddr = address.parse().unwrap();
    let mut config = UdpConfig::over_ip(label, address, IP_PROTOCOL);
    for neighbour in neighbours {
        let neighbour: IpAddr = neighbour.parse().unwrap();
        config = config.neighbour("peer", (neighbour, 0).into());
    }
    let mut event_loop = script_loop();
    let link = event_loop.sockets().add_udp(config).unwrap();
    (event_loop, link)
}

fn lay_with_ipv6() -> Option<Wire> {
    let wire = Wire::lay()?;
    for (which, address) in IPV6.into_iter().enumerate() {
        wire.enter(which);
        assert!(ip(&[&format!(
            "-6 address add {address}/64 dev e{which} nodad"
        )]));
    }
    wire.enter(0);
    Some(wire)
}

#[test]
fn the_header_of_the_ipv4_vector_has_its_checksum() {
    let sum: u32 = vector("ipv4")[..20]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
}

#[test]
fn packets_on_ethernet_end_where_they_ended_and_are_no_longer_than_the_interface_takes() {
    in_new_namespace(|| {
        let Some(wire) = Wire::lay() else { return };
        assert!(ip(&["link set e0 address 02:00:5e:10:00:01"]));
        wire.enter(1);
        assert!(ip(&["link set e1 address 02:00:5e:10:00:07"]));
        let (mut b, link_b) = ethernet(whole("e1").listen(InboundLimits::default()));
        let (mut tap, _) = tap("e1", ETHER_TYPE, [2, 0, 0x5e, 0x10, 0, 1]);
        wire.enter(0);
        let (mut a, link_a) = ethernet(whole("e0").neighbour("b", link_b.local));
        let to_b = link_a.ports[0];
        assert_eq!(a.machine().ports[&to_b].mtu, 1498);
        let mut frames = vec![vector("lost"), vec![7], vec![0; 46]];
        frames.extend((0..40).map(|number| pattern(1498, number)));
        for frame in &frames {
            a.machine_mut().send(to_b, vec![frame.clone()]);
        }
        until_both(&mut a, &mut b, "the frames", |_, b| {
            b.machine().inbox.len() == frames.len()
        });
        let inbound = b.machine().inbox[0].0;
        assert!(b.machine().frames_from(inbound) == frames);
        // veth does not pad as a card does, so the padding is left out of the comparison.
        until(&mut tap, "the frame on the wire", |tap| {
            !tap.machine().inbox.is_empty()
        });
        let on_wire = tap.machine().inbox[0].1.clone();
        assert!(vector("ethernet")[14..].starts_with(&on_wire[..14]));
        assert_eq!(vector("ethernet").len(), 60);
        // Longer ones are refused by the kernel, and the link learns the size.
        assert!(ip(&["link set e0 mtu 1300"]));
        a.machine_mut().send(to_b, vec![vec![1; 1498]]);
        until(&mut a, "a lower MTU", |a| {
            a.machine().ports[&to_b].mtu == 1298
        });
        assert!(ip(&["link set e0 mtu 1400"]));
        until(&mut a, "a higher MTU", |a| {
            a.machine().ports[&to_b].mtu == 1398
        });
    });
}

#[test]
fn damaged_and_foreign_frames_harm_nothing_and_are_counted() {
    in_new_namespace(|| {
        let Some(wire) = Wire::lay() else { return };
        let came = std::sync::Arc::default();
        let mut server = script_loop();
        let config = whole("e0").listen(InboundLimits::default());
        let porter = Porter(std::sync::Arc::clone(&came));
        let link = server
            .sockets()
            .add_ethernet_with_gate(config, Some(Box::new(porter)))
            .unwrap();
        wire.enter(1);
        let (mut raw, to_server) = tap("e1", ETHER_TYPE, link.local);
        // Length 300 with nothing behind it, half a length, nothing, a length beyond the frame.
        let cut = [&[1, 44][..], &[0], &[], &[0xff; 60]];
        let cut_count = 3;
        for payload in cut.into_iter().filter(|payload| !payload.is_empty()) {
            raw.machine_mut().send(to_server, vec![payload.to_vec()]);
        }
        let (mut ndn, to_server_as_ndn) = tap("e1", 0x8624, link.local);
        ndn.machine_mut()
            .send(to_server_as_ndn, vec![b"\0\x08the word".to_vec()]);
        idle_rounds(&mut ndn);
        until_both(&mut raw, &mut server, "damaged frames", |_, server| {
            server.snapshot().transports[0].counters.damaged == cut_count
        });
        assert!(came.lock().unwrap().is_empty(), "no gate sees them");
        // Whole ones are shown to the gate, which knows the station.
        raw.machine_mut()
            .send(to_server, vec![b"\0\x0emay I come in?".to_vec()]);
        until_both(&mut server, &mut raw, "the answer", |_, raw| {
            !raw.machine().inbox.is_empty()
        });
        assert!(raw.machine().inbox[0].1.starts_with(b"\0\x09the word?"));
        assert!(server.machine().ports.is_empty());
        raw.machine_mut()
            .send(to_server, vec![b"\0\x08the word".to_vec()]);
        until_both(&mut raw, &mut server, "the caller", |_, server| {
            server.machine().inbox.len() == 1
        });
        let (port, frame) = server.machine().inbox[0].clone();
        assert_eq!(frame, b"the word");
        let info = &server.machine().ports[&port];
        assert_eq!(info.origin, PortOrigin::Accepted(0));
        let Medium::Ethernet { remote, .. } = info.medium else {
            panic!("{info:?}")
        };
        let known = address_of_station(remote);
        assert!(came.lock().unwrap().iter().all(|from| *from == known));
        assert_eq!(info.medium.caller_address(), Some(known));
    });
}

#[test]
fn a_link_waits_for_an_interface_that_comes_after_it() {
    in_new_namespace(|| {
        let Some(wire) = Wire::lay() else { return };
        let at = [2, 0, 0, 0, 0, 9];
        let awaited = EthernetConfig::new("wire", Interface::awaited("v0"), ETHER_TYPE);
        let config = awaited.for_whole_packets(1500).neighbour("b", at);
        let (mut a, link) = ethernet(config);
        let port = link.ports[0];
        for _ in 0..3 {
            a.machine_mut().send(port, vec![b"into the void".to_vec()]);
            idle_rounds(&mut a);
        }
        assert!(!a.machine().down(port));
        assert!(ip(&[
            "link add v0 mtu 1400 type veth peer name v1",
            "link set v1 address 02:00:00:00:00:09",
            "link set v0 up",
            "link set v1 up",
        ]));
        until(&mut a, "the interface", |a| {
            let told = (port, PortEvent::Mtu(1398));
            a.machine().reports.contains(&told)
        });
        let (mut b, _) = ethernet(whole("v1").listen(InboundLimits::default()));
        until_both(&mut a, &mut b, "a frame", |a, b| {
            if a.machine().outbox.is_empty() {
                a.machine_mut().send(port, vec![b"here at last".to_vec()]);
            }
            !b.machine().inbox.is_empty()
        });
        drop(wire);
    });
}

#[test]
fn an_interface_that_vanishes_and_returns_keeps_its_ports() {
    in_new_namespace(|| {
        let Some(wire) = Wire::lay() else { return };
        assert!(ip(&[
            "link add v0 type veth peer name v1",
            "link set v0 up",
            "link set v1 up",
        ]));
        let at = Interface::find("v1").unwrap().ethernet.unwrap();
        let (mut a, link) = ethernet(whole("v0").neighbour("b", at));
        let port = link.ports[0];
        idle_rounds(&mut a);
        assert!(ip(&["link delete v0"]));
        for _ in 0..3 {
            a.machine_mut().send(port, vec![b"into the void".to_vec()]);
            idle_rounds(&mut a);
        }
        assert!(!a.machine().down(port));
        let drops = a.snapshot().ports[0].counters.drops;
        assert!(drops.total() >= 2, "{drops:?}");
        a.machine_mut().reports.clear();
        assert!(ip(&[
            "link add v0 type veth peer name v1",
            &format!(
                "link set v1 address {}",
                at.map(|octet| format!("{octet:02x}")).join(":")
            ),
            "link set v0 mtu 1400",
            "link set v0 up",
            "link set v1 up",
        ]));
        until(&mut a, "the interface", |a| {
            let told = (port, PortEvent::Mtu(1398));
            a.machine().reports.contains(&told)
        });
        let (mut b, _) = ethernet(whole("v1").listen(InboundLimits::default()));
        until_both(&mut a, &mut b, "a frame", |a, b| {
            if a.machine().outbox.is_empty() {
                a.machine_mut().send(port, vec![b"here again".to_vec()]);
            }
            !b.machine().inbox.is_empty()
        });
        drop(wire);
    });
}

#[test]
fn bare_ip_carries_frames_of_both_families_without_a_header_of_their_own() {
    in_new_namespace(|| {
        let Some(wire) = lay_with_ipv6() else { return };
        for (addresses, any, mtu, ether_type, name) in [
            (IPV4, "0.0.0.0", 1480, 0x0800, "ipv4"),
            (IPV6, "::", 1460, 0x86dd, "ipv6"),
        ] {
            wire.enter(0);
            let client_at = Interface::find("e0").unwrap().ethernet.unwrap();
            wire.enter(1);
            let mut server = script_loop();
            let config = UdpConfig::over_ip("server", any.parse().unwrap(), IP_PROTOCOL)
                .listen(InboundLimits::default());
            server
                .sockets()
                .add_udp_with_gate(config, Some(Box::new(Porter::default())))
                .unwrap();
            let (mut tap, _) = tap("e1", ether_type, client_at);
            wire.enter(0);
            let (mut client, link) = bare("client", any, &[addresses[1]]);
            let port = link.ports[0];
            let info = client.machine().ports[&port].clone();
            assert_eq!(info.mtu, mtu, "{info:?}");
            assert_eq!(
                info.medium,
                Medium::Ip {
                    local: addresses[0].parse().unwrap(),
                    remote: addresses[1].parse().unwrap()
                }
            );
            client.machine_mut().send(port, vec![vector("lost")]);
            until_both(&mut client, &mut tap, "the packet", |_, tap| {
                let packets = &tap.machine().inbox;
                packets.iter().any(|(_, it)| it.ends_with(&vector("lost")))
            });
            let packets = &tap.machine().inbox;
            let sent = packets.iter().find(|(_, it)| it.ends_with(&vector("lost")));
            let mut sent = sent.unwrap().1.clone();
            match name {
                // Identification and checksum are the kernel's.
                "ipv4" => sent[4..6].fill(0),
                // So is the flow label.
                _ => sent[1..4].fill(0),
            }
            let mut expected = vector(name);
            if name == "ipv4" {
                sent[10..12].copy_from_slice(&expected[10..12]);
            }
            expected[1] = sent[1];
            assert_eq!(sent, expected);

            client
                .machine_mut()
                .send(port, vec![b"may I come in?".to_vec()]);
            until_both(&mut server, &mut client, "the answer", |_, client| {
                !client.machine().inbox.is_empty()
            });
            assert_eq!(client.machine().frames_from(port), [b"the word?".to_vec()]);
            client.machine_mut().send(port, vec![b"the word".to_vec()]);
            until_both(&mut client, &mut server, "the caller", |_, server| {
                server.machine().inbox.len() == 1
            });
            let frames: Vec<Vec<u8>> = (0..200).map(|number| pattern(mtu, number)).collect();
            client.machine_mut().send(port, frames.clone());
            until_both(&mut client, &mut server, "the frames", |_, server| {
                server.machine().inbox.len() == 201
            });
            let inbound = server.machine().inbox[0].0;
            assert!(server.machine().frames_from(inbound)[1..] == frames);
            let info = &server.machine().ports[&inbound];
            assert_eq!(
                info.medium.caller_address().map(|it| (it.ip(), it.port())),
                Some((addresses[0].parse().unwrap(), 0))
            );
            server.machine_mut().send(inbound, vec![vec![5; 1]]);
            until_both(&mut server, &mut client, "a reply", |_, client| {
                client.machine().inbox.len() == 2
            });
            assert_eq!(server.snapshot().transports[0].kind, "ip");
        }
    });
}

#[test]
fn a_peer_without_a_program_refuses_on_bare_ip_too() {
    in_new_namespace(|| {
        let Some(_wire) = lay_with_ipv6() else {
            return;
        };
        for (any, addresses) in [("0.0.0.0", IPV4), ("::", IPV6)] {
            let (mut client, link) = bare("client", any, &[addresses[1]]);
            let port = link.ports[0];
            client.machine_mut().send(port, vec![vec![1; 100]]);
            until(&mut client, "the refusal", |client| {
                let told = (port, PortEvent::Refused);
                client.machine().reports.contains(&told)
            });
        }
    });
}

#[test]
fn a_carrier_without_ports_belongs_to_one_program_and_other_families_are_refused() {
    in_new_namespace(|| {
        let Some(_wire) = Wire::lay() else { return };
        let (first, _) = bare("north", "0.0.0.0", &[IPV4[1]]);
        let again = UdpConfig::over_ip("south", "0.0.0.0".parse().unwrap(), IP_PROTOCOL);
        let error = script_loop().sockets().add_udp(again).unwrap_err();
        assert!(matches!(error, IoError::CarrierInUse { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("'south'") && text.contains("bare IP"),
            "{text}"
        );
        // A packet to an address goes to the sockets of any address, too.
        let one = UdpConfig::over_ip("south", IPV4[0].parse().unwrap(), IP_PROTOCOL);
        let error = script_loop().sockets().add_udp(one).unwrap_err();
        assert!(matches!(error, IoError::CarrierInUse { .. }), "{error}");
        let (_wire, _) = ethernet(whole("e0"));
        let error = script_loop()
            .sockets()
            .add_ethernet(whole("e0"))
            .unwrap_err();
        assert!(error.to_string().contains("0x27c0"), "{error}");

        drop(first);
        let other = UdpConfig::over_ip("east", IPV4[0].parse().unwrap(), IP_PROTOCOL)
            .neighbour("far", ("2001:db8::1".parse::<IpAddr>().unwrap(), 0).into());
        let error = script_loop().sockets().add_udp(other).unwrap_err();
        assert!(matches!(error, IoError::FamilyMismatch { .. }), "{error}");
    });
}
