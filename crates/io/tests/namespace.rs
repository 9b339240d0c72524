//! Tests that need their own interfaces: TUN devices, full send queues, links that become narrower.
//! Each test runs in a new network namespace; without the privilege for that it reports that it was
//! skipped.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the driver have threads and clocks"
)]

use crate::{namespaces, support};

use std::cell::RefCell;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::time::Duration;

use namespaces::{Wire, in_new_namespace, ip, skipped};
use support::{PATIENCE, Script, idle_rounds, pattern, script_loop, until};
use whimbrel_core::{Endpoint, Medium, PortEvent, PortOrigin, PortRequest, PortToken};
use whimbrel_io::{
    EventLoop, InboundLimits, Interface, IoError, Neighbour, StreamLimits, TcpClientConfig,
    TunDevice, UdpConfig,
};

fn tun(name: &str, mtu: u16) -> TunDevice {
    let tun = TunDevice::create(name).unwrap();
    tun.assign("10.77.0.1".parse().unwrap(), 24).unwrap();
    tun.set_mtu(mtu).unwrap();
    tun.bring_up().unwrap();
    assert_eq!((tun.mtu().unwrap(), tun.name()), (usize::from(mtu), name));
    tun
}

/// Returns the next IPv4 packet that carries UDP; the kernel also sends packets of its own over a
/// new interface.
fn next_udp(tun: &TunDevice) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 65_535];
    loop {
        match tun.read(&mut buffer) {
            Ok(length) if buffer[0] == 0x45 && buffer[9] == 17 => {
                return Some(buffer[..length].to_vec());
            }
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                return None;
            }
        }
    }
}

#[test]
fn packets_pass_between_the_kernel_and_a_machine_through_a_tun_device() {
    in_new_namespace(|| {
        let mut a = script_loop();
        let port = a
            .sockets()
            .add_tun("lab", PortOrigin::Configured(0), tun("whim0", 1400))
            .unwrap();
        assert_eq!(a.machine().ports[&port].mtu, 1400);
        let socket = UdpSocket::bind("10.77.0.1:4000").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(b"out", "10.77.0.2:5000").unwrap();
        let is_ours = |packet: &Vec<u8>| packet[0] == 0x45 && packet.ends_with(b"out");
        until(&mut a, "the packet", |a| {
            a.machine().frames_from(port).iter().any(is_ours)
        });
        let mut packet = a
            .machine()
            .frames_from(port)
            .into_iter()
            .find(is_ours)
            .unwrap();
        // With its addresses swapped, the packet is a reply; the checksums do not depend on the
        // order of addresses.
        packet[12..20].rotate_left(4);
        packet[20..24].rotate_left(2);
        a.machine_mut().send(port, vec![packet]);
        a.machine_mut()
            .send(port, vec![b"\xffno IP packet".to_vec()]);
        idle_rounds(&mut a);
        let mut buffer = [0; 10];
        assert_eq!(socket.recv(&mut buffer).unwrap(), 3);
        assert_eq!(&buffer[..3], b"out");
        let counters = a.snapshot().ports[0].counters;
        assert_eq!((counters.sent_frames, counters.drops.total()), (1, 1));
    });
}

#[test]
fn the_mtu_of_a_neighbour_follows_that_of_its_route_down() {
    in_new_namespace(|| {
        let tun = tun("whim1", 1400);
        let mut a = script_loop();
        let config = UdpConfig::new("wire", "10.77.0.1:0".parse().unwrap())
            .neighbour("far", "10.77.0.2:5000".parse().unwrap());
        let port = a.sockets().add_udp(config).unwrap().ports[0];
        assert_eq!(a.machine().ports[&port].mtu, 1372);
        tun.set_mtu(1300).unwrap();
        // In one call with offload, then alone: the kernel refuses both.
        a.machine_mut().send(port, vec![vec![1; 1372]; 3]);
        until(&mut a, "a lower MTU", |a| {
            a.machine().ports[&port].mtu < 1372
        });
        assert_eq!(a.machine().ports[&port].mtu, 1272);
        assert_eq!(a.snapshot().ports[0].counters.drops.path_too_narrow, 3);
        let before = a.snapshot().transports[0].counters.send_calls;
        a.machine_mut()
            .send(port, (0..30).map(|number| pattern(1272, number)).collect());
        idle_rounds(&mut a);
        let arrived: Vec<Vec<u8>> = std::iter::from_fn(|| next_udp(&tun))
            .map(|packet| packet[28..].to_vec())
            .collect();
        assert_eq!(
            arrived,
            (0..30)
                .map(|number| pattern(1272, number))
                .collect::<Vec<_>>()
        );
        let calls = a.snapshot().transports[0].counters.send_calls - before;
        assert_eq!(calls, 1, "segmentation offload is still in use");
    });
}

#[test]
fn an_icmp_packet_too_big_message_lowers_the_mtu() {
    in_new_namespace(|| {
        let tun = tun("whim2", 1500);
        let mut a = script_loop();
        let config = UdpConfig::new("wire", "10.77.0.1:4000".parse().unwrap())
            .neighbour("far", "10.77.0.2:5000".parse().unwrap());
        let port = a.sockets().add_udp(config).unwrap().ports[0];
        assert_eq!(a.machine().ports[&port].mtu, 1472);
        a.machine_mut().send(port, vec![vec![1; 1472]]);
        idle_rounds(&mut a);
        let packet = next_udp(&tun).expect("the large packet leaves this machine");
        tun.write(&fragmentation_needed(&packet, 1280)).unwrap();
        until(&mut a, "a lower MTU", |a| {
            a.machine().ports[&port].mtu == 1252
        });
        assert!(a.machine().reports.contains(&(port, PortEvent::Mtu(1252))));
    });
}

/// Returns ICMP type 3 code 4 from the packet's destination about the packet (RFC 1191).
fn fragmentation_needed(packet: &[u8], mtu: u16) -> Vec<u8> {
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend_from_slice(&mtu.to_be_bytes());
    icmp.extend_from_slice(&packet[..28]);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let length = (20 + icmp.len()) as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0];
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip.extend_from_slice(&packet[16..20]);
    ip.extend_from_slice(&packet[12..16]);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend_from_slice(&icmp);
    ip
}

fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn a_full_send_queue_blocks_the_ports_and_waiting_frames_are_sent_afterwards() {
    in_new_namespace(|| {
        let made = ip(&[
            "link add v0 type veth peer name v1",
            "address add 10.77.0.1/24 dev v0",
            "link set v0 up",
            "link set v1 up",
        ]);
        if !made {
            return skipped("this system makes no veth pairs");
        }
        let mut a = script_loop();
        let config = UdpConfig::new("wire", "10.77.0.1:0".parse().unwrap())
            .neighbour("far", "10.77.0.2:5000".parse().unwrap())
            .neighbour("other", "10.77.0.3:5000".parse().unwrap());
        let ports = a
            .sockets()
            .add_udp(UdpConfig {
                send_buffer: 1,
                ..config
            })
            .unwrap()
            .ports;
        // Nobody answers ARP for the peer, so the kernel holds packets until its buffer for this
        // socket is full.
        let frames: Vec<Vec<u8>> = (0..60).map(|number| pattern(1000, number)).collect();
        a.machine_mut().send(ports[0], frames.clone());
        until(&mut a, "the ports to be blocked", |a| {
            a.machine().blocked.len() == 2
        });
        assert!(a.snapshot().transports[0].counters.would_block > 0);
        let waiting = a.snapshot().ports[0].counters.sent_frames;
        assert!(waiting < 60);
        // The kernel sends the packets once it knows the peer's Ethernet address.
        assert!(ip(&[
            "neighbour replace 10.77.0.2 lladdr 02:00:00:00:00:02 dev v0"
        ]));
        until(&mut a, "the ports to be writable", |a| {
            a.machine().blocked.is_empty()
        });
        until(&mut a, "all frames to be taken", |a| {
            a.snapshot().ports[0].counters.sent_frames == 60
        });
        assert_eq!(a.snapshot().ports[0].counters.drops.total(), 0);
        for port in ports {
            assert!(a.machine().reports.contains(&(port, PortEvent::Blocked)));
            assert!(a.machine().reports.contains(&(port, PortEvent::Writable)));
        }
    });
}

/// An interface that is on and not connected keeps its address and routes.
#[test]
fn a_port_is_told_when_its_interface_goes_and_comes() {
    in_new_namespace(|| {
        let made = ip(&[
            "link add v0 type veth peer name v1",
            "address add 10.77.0.1/24 dev v0",
            "link set v0 up",
            "link set v1 up",
        ]);
        if !made {
            return skipped("this system makes no veth pairs");
        }
        for bind in ["10.77.0.1:0", "0.0.0.0:0"] {
            let mut a = script_loop();
            let config = UdpConfig::new("wire", bind.parse().unwrap())
                .neighbour("far", "10.77.0.2:5000".parse().unwrap());
            let port = a.sockets().add_udp(config).unwrap().ports[0];
            idle_rounds(&mut a);
            // Each change is the reverse of the one before it, so that the last word alone tells whether it
            // was noticed; a kernel that is slow to settle may say more.
            for (change, works) in [
                (&["link set v1 down"][..], false),
                (&["link set v1 up"], true),
                (&["link set v0 down"], false),
                (&["link set v0 up"], true),
                (&["address del 10.77.0.1/24 dev v0"], false),
                (&["address add 10.77.0.1/24 dev v0"], true),
            ] {
                assert!(ip(change));
                until(&mut a, "word of the interface", |a| {
                    let mut reports = a.machine().reports.iter().rev();
                    let last = reports.find_map(|(of, it)| match it {
                        PortEvent::Carrier(works) if *of == port => Some(*works),
                        _ => None,
                    });
                    last == Some(works)
                });
            }
        }
    });
}

#[test]
fn a_deleted_tun_device_takes_its_port_down() {
    in_new_namespace(|| {
        let mut a = script_loop();
        let port = a
            .sockets()
            .add_tun("lab", PortOrigin::Configured(0), tun("whim3", 1400))
            .unwrap();
        if !ip(&["link delete whim3"]) {
            return skipped("this system has no `ip` command");
        }
        until(&mut a, "the port to go down", |a| a.machine().down(port));
        assert!(a.snapshot().transports.is_empty());
    });
}

#[test]
fn a_tun_device_in_use_and_a_bad_name_are_told_apart() {
    in_new_namespace(|| {
        let _first = tun("whim4", 1400);
        let error = TunDevice::create("whim4").unwrap_err();
        assert!(matches!(&error, IoError::TunInUse { .. }), "{error}");
        let error = TunDevice::create("a/b").unwrap_err();
        assert!(matches!(&error, IoError::TunName { .. }), "{error}");
    });
}

#[test]
fn connecting_to_a_silent_tcp_peer_times_out() {
    in_new_namespace(|| {
        let _tun = tun("whim5", 1400);
        let mut a = script_loop();
        let outcome = Rc::new(RefCell::new(None));
        let seen = Rc::clone(&outcome);
        let config = TcpClientConfig {
            timeout: Duration::from_millis(50),
            ..TcpClientConfig::new(
                "uplink",
                "10.77.0.2:6363".parse().unwrap(),
                StreamLimits::tlv(8800),
            )
        };
        a.sockets()
            .add_tcp_client(config, move |_, _, result| {
                *seen.borrow_mut() = Some(result)
            })
            .unwrap();
        until(&mut a, "the timeout", |_| outcome.borrow().is_some());
        let error = outcome.borrow_mut().take().unwrap().unwrap_err();
        assert!(matches!(&error, IoError::ConnectTimedOut { .. }), "{error}");
        assert!(a.snapshot().transports.is_empty());
        assert_eq!(a.snapshot().closed_transports.timed_out, 1);
    });
}

/// Returns the addresses of a UDP port's two ends.
fn ends(info: &whimbrel_core::PortInfo) -> (SocketAddr, SocketAddr) {
    let Medium::Udp { local, remote, .. } = info.medium else {
        panic!("{info:?}")
    };
    (local, remote)
}

#[test]
fn one_udp_socket_serves_many_peers_and_knows_its_source_address_for_each() {
    in_new_namespace(|| {
        let Some(wire) = Wire::lay() else { return };
        let mut a = script_loop();
        let config =
            UdpConfig::new("wire", "[::]:6363".parse().unwrap()).listen(InboundLimits::default());
        let link = a.sockets().add_udp(config).unwrap();
        let add = |a: &mut whimbrel_io::EventLoop<support::Script>, address: &str| {
            let at: std::net::SocketAddr = address.parse().unwrap();
            let neighbour = Neighbour::new(address, at, PortOrigin::Configured(0));
            let added = a
                .sockets()
                .add_neighbour(link.transport, neighbour)
                .unwrap();
            added.expect("its address is known")
        };
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        let near = add(&mut a, &here.local_addr().unwrap().to_string());
        let far = add(&mut a, "10.77.0.2:6363");
        let six = add(&mut a, "[::1]:7000");
        let ports = a.machine().ports.clone();
        assert_eq!(ends(&ports[&near]).0, "127.0.0.1:6363".parse().unwrap());
        assert_eq!(
            ends(&ports[&far]),
            (
                "10.77.0.1:6363".parse().unwrap(),
                "10.77.0.2:6363".parse().unwrap()
            )
        );
        assert_eq!(ends(&ports[&six]).0, "[::1]:6363".parse().unwrap());

        wire.enter(1);
        let peer = UdpSocket::bind("10.77.0.2:6363").unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let inbound = UdpSocket::bind("10.77.0.2:0").unwrap();
        inbound.set_read_timeout(Some(PATIENCE)).unwrap();
        peer.send_to(b"neighbour", "10.77.0.1:6363").unwrap();
        until(&mut a, "the frame", |a| {
            a.machine().frames_from(far) == [b"neighbour".to_vec()]
        });
        inbound.send_to(b"inbound", "10.77.0.1:6363").unwrap();
        until(&mut a, "the call", |a| a.machine().inbox.len() == 2);
        let called = a.machine().inbox[1].0;
        let info = a.machine().ports[&called].clone();
        assert_eq!(info.origin, PortOrigin::Accepted(0));
        assert_eq!(
            ends(&info),
            (
                "10.77.0.1:6363".parse().unwrap(),
                inbound.local_addr().unwrap()
            )
        );
        for (port, socket) in [(far, &peer), (called, &inbound)] {
            a.machine_mut().send(port, vec![b"to you".to_vec()]);
            idle_rounds(&mut a);
            let mut buffer = [0; 10];
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!(
                (&buffer[..length], from),
                (&b"to you"[..], "10.77.0.1:6363".parse().unwrap())
            );
        }
    });
}

#[test]
fn a_tun_device_and_an_ethernet_station_are_ports_like_any_other() {
    in_new_namespace(|| {
        let mut event_loop = script_loop();
        let ask = |event_loop: &mut EventLoop<Script>, token, endpoint| {
            let token = PortToken(token);
            let label = "asked".into();
            let open = PortRequest::Open {
                token,
                label,
                endpoint,
            };
            event_loop.machine_mut().requests.push_back(open);
        };
        let device = Endpoint::Tun {
            name: "proxy0".into(),
            addresses: vec![(std::net::Ipv4Addr::new(10, 9, 8, 1).into(), 24)],
            mtu: 1400,
        };
        ask(&mut event_loop, 1, device);
        until(&mut event_loop, "a device", |it| {
            !it.machine().ports.is_empty()
        });
        let info = event_loop.machine().ports.values().next().unwrap();
        assert_eq!(info.origin, PortOrigin::Opened(PortToken(1)));
        assert_eq!((info.peer.as_str(), info.mtu), ("proxy0", 1400));
        assert!(Interface::find("proxy0").is_ok());
        let station = Endpoint::Ethernet {
            interface: "absent0".into(),
            remote: [2, 0, 0, 0, 0, 1],
            ether_type: 0x8624,
        };
        ask(&mut event_loop, 2, station);
        until(&mut event_loop, "a refusal", |it| {
            !it.machine().refusals.is_empty()
        });
        assert_eq!(event_loop.machine().refusals[0].0, PortToken(2));
    });
}
