//! UDP links on loopback addresses.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::support::{PATIENCE, Script, idle_rounds, pattern, script_loop, until, until_both};
use whimbrel_core::{
    Admission, CallerGate, Deadline, Ecn, FrameShape, Machine, OpenRefusal, PortEvent, PortId,
    PortOrigin, PortRequest, PortToken, Time, Transmit,
};
use whimbrel_io::{
    Clock, EventLoop, InboundLimits, IoError, Neighbour, StreamLimits, TcpListenerConfig, UdpConfig,
};

const LOOPBACK: &str = "127.0.0.1:0";

fn any_port() -> SocketAddr {
    LOOPBACK.parse().unwrap()
}

fn test_socket() -> UdpSocket {
    let socket = UdpSocket::bind(LOOPBACK).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Two loops that are neighbours of each other, and the port of each.
fn pair(offload: bool) -> (EventLoop<Script>, PortId, EventLoop<Script>, PortId) {
    let (mut a, mut b) = (script_loop(), script_loop());
    let config = |bind| UdpConfig {
        segmentation_offload: offload,
        ..UdpConfig::new("wire", bind)
    };
    let link_a = a.sockets().add_udp(config(any_port())).unwrap();
    let link_b = b
        .sockets()
        .add_udp(config(any_port()).neighbour("a", link_a.local))
        .unwrap();
    let port_a = a
        .sockets()
        .add_neighbour(
            link_a.transport,
            Neighbour::new("b", link_b.local, PortOrigin::Configured(0)),
        )
        .unwrap()
        .expect("its address is known");
    (a, port_a, b, link_b.ports[0])
}

/// Sends numbers one after the other, each repeatedly until its reply arrives.
struct Pinger {
    port: PortId,
    next: u32,
    total: u32,
    send_at: Time,
    resent: u32,
}

impl Machine for Pinger {
    type Event = ();
    fn handle_port(&mut self, _: Time, _: PortId, _: PortEvent) {}
    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, _: PortId, frames: &[&[u8]]) {
        for frame in frames {
            if *frame == self.next.to_be_bytes() {
                self.next += 1;
                self.send_at = now;
            }
        }
    }
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_transmit(&mut self, now: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        if self.next == self.total || now < self.send_at {
            return None;
        }
        self.send_at = now + Duration::from_millis(2);
        self.resent += 1;
        buffer.extend_from_slice(&self.next.to_be_bytes());
        Some(Transmit {
            port: self.port,
            size: 4,
            segment_size: None,
        })
    }
    fn poll_event(&mut self) -> Option<()> {
        None
    }
    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        (self.next < self.total).then(|| Deadline::new(self.send_at, "send again"))
    }
}

/// Replies to two of three frames.
#[derive(Default)]
struct LossyEcho {
    seen: u32,
    answers: Vec<(PortId, Vec<u8>)>,
}

impl Machine for LossyEcho {
    type Event = ();
    fn handle_port(&mut self, _: Time, _: PortId, _: PortEvent) {}
    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, _: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            self.seen += 1;
            if !self.seen.is_multiple_of(3) {
                self.answers.push((port, frame.to_vec()));
            }
        }
    }
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (port, frame) = self.answers.pop()?;
        buffer.extend_from_slice(&frame);
        Some(Transmit {
            port,
            size: frame.len(),
            segment_size: None,
        })
    }
    fn poll_event(&mut self) -> Option<()> {
        None
    }
    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

#[test]
fn a_ping_pong_that_retransmits_lost_frames_completes() {
    let mut echo = EventLoop::new(Clock::start(), LossyEcho::default()).unwrap();
    let server = echo
        .sockets()
        .add_udp(UdpConfig::new("server", any_port()).listen(InboundLimits::default()))
        .unwrap();
    let pinger = Pinger {
        port: PortId(0),
        next: 0,
        total: 100,
        send_at: Time::ZERO,
        resent: 0,
    };
    let mut ping = EventLoop::new(Clock::start(), pinger).unwrap();
    let client = ping
        .sockets()
        .add_udp(UdpConfig::new("client", any_port()).neighbour("s", server.local))
        .unwrap();
    assert_eq!(client.ports, [PortId(0)]);
    until_both(&mut ping, &mut echo, "100 answers", |ping, _| {
        ping.machine().next == 100
    });
    assert!(ping.machine().resent > 100, "lost frames were sent again");
    assert_eq!(echo.snapshot().ports.len(), 1, "one inbound peer, one port");
    assert_eq!(echo.snapshot().ports[0].kind, "caller");
}

fn segments_arrive(offload: bool) -> whimbrel_io::Snapshot {
    let (mut a, port_a, mut b, port_b) = pair(offload);
    let sizes = [
        (1200, 100, 1200),
        (1472, 44, 7),
        (1, 20, 1),
        (700, 1, 700),
        (1472, 3, 1471),
    ];
    let mut sent = Vec::new();
    for (size, count, last) in sizes {
        let mut frames: Vec<Vec<u8>> = (0..count).map(|n| pattern(size, n + sent.len())).collect();
        frames.last_mut().unwrap().truncate(last);
        sent.extend(frames.clone());
        a.machine_mut().send(port_a, frames);
    }
    until_both(&mut a, &mut b, "all segments", |_, b| {
        b.machine().inbox.len() >= sent.len()
    });
    assert!(
        b.machine().frames_from(port_b) == sent,
        "every frame intact, in its size, in order"
    );
    let (from, to) = (a.snapshot(), b.snapshot());
    assert_eq!(from.ports[0].counters.sent_frames, sent.len() as u64);
    assert_eq!(
        from.ports[0].counters.sent_bytes,
        to.ports[0].counters.received_bytes
    );
    assert_eq!(to.ports[0].counters.received_frames, sent.len() as u64);
    from
}

#[test]
fn offloaded_segments_arrive_intact_and_in_their_sizes() {
    let snapshot = segments_arrive(true);
    assert!(
        snapshot.transports[0].counters.send_calls < 20,
        "many frames per call: {snapshot:?}"
    );
}

#[test]
fn frames_are_capable_of_ecn_only_when_the_machine_says_so_and_the_peer_hears_of_the_change() {
    let (mut a, port_a, mut b, port_b) = pair(true);
    let mut heard = Vec::new();
    for (round, capable) in [false, true, true, false].into_iter().enumerate() {
        let port = port_a;
        a.machine_mut()
            .requests
            .push_back(PortRequest::SetEcn { port, capable });
        a.step(Duration::ZERO, |_, _, _| {}).unwrap();
        a.machine_mut().send(port_a, vec![vec![1; 1000]; 5]);
        until_both(&mut a, &mut b, "five frames", |_, b| {
            b.machine().inbox.len() == 5 * (round + 1)
        });
        let reports = b.machine_mut().reports.drain(..);
        heard.extend(reports.filter_map(|report| match report {
            (port, PortEvent::Ecn { codepoint, .. }) if port == port_b => Some((round, codepoint)),
            _ => None,
        }));
    }
    assert_eq!(heard, [(1, Ecn::Capable), (3, Ecn::NotCapable)]);
}

#[test]
fn without_offload_the_same_frames_arrive_one_call_each() {
    let snapshot = segments_arrive(false);
    assert_eq!(
        snapshot.transports[0].counters.send_calls,
        snapshot.ports[0].counters.sent_frames
    );
}

/// Admits who says the word, and asks others for it.
#[derive(Debug)]
struct Porter;

impl CallerGate for Porter {
    fn consider(&mut self, _: Time, _: SocketAddr, frame: &[u8], reply: &mut Vec<u8>) -> Admission {
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

#[test]
fn strangers_get_no_port_and_no_more_than_they_sent() {
    let mut server = script_loop();
    let config = UdpConfig::new("server", any_port()).listen(InboundLimits::default());
    let link = server
        .sockets()
        .add_udp_with_gate(config, Some(Box::new(Porter)))
        .unwrap();
    let caller = test_socket();
    for datagram in [&b"x"[..], b"may I come in?", b"let me in"] {
        caller.send_to(datagram, link.local).unwrap();
    }
    let mut buffer = [0; 100];
    until(&mut server, "strangers", |server| {
        server.snapshot().transports[0].counters.strangers == 3
    });
    let (len, _) = caller.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"the word?");
    assert!(server.machine().ports.is_empty());
    caller.send_to(b"the word", link.local).unwrap();
    caller.send_to(b"hello", link.local).unwrap();
    until(&mut server, "both frames", |server| {
        server.machine().inbox.len() == 2
    });
    assert_eq!(server.machine().ports.len(), 1);
}

#[test]
fn a_full_table_closes_the_inbound_peer_idle_for_longest() {
    let mut server = script_loop();
    let limits = InboundLimits {
        max: 2,
        per_network: usize::MAX,
        idle: Some(PATIENCE * 2),
        evict_after: Duration::ZERO,
    };
    let link = server
        .sockets()
        .add_udp(UdpConfig::new("server", any_port()).listen(limits))
        .unwrap();
    let clients: Vec<UdpSocket> = (0..3).map(|_| test_socket()).collect();
    for (before, client) in [0, 1, 0, 2].into_iter().enumerate() {
        clients[client].send_to(b"hello", link.local).unwrap();
        until(&mut server, "a frame", |server| {
            server.machine().inbox.len() == before + 1
        });
    }
    let machine = server.machine();
    let peers: Vec<String> = machine
        .ports
        .values()
        .map(|info| info.peer.clone())
        .collect();
    let expected: Vec<String> = [0, 2]
        .iter()
        .map(|n: &usize| clients[*n].local_addr().unwrap().to_string())
        .collect();
    assert_eq!(peers, expected, "the second had been idle for longest");
    assert!(machine.down(PortId(1)));
    assert!(
        machine
            .ports
            .values()
            .all(|info| info.origin == PortOrigin::Accepted(0) && info.label == "server")
    );
    let counters = server.snapshot().transports[0].counters;
    assert_eq!(
        (counters.accepted, counters.evicted, counters.refused),
        (3, 1, 0)
    );
}

#[test]
fn a_full_table_of_active_inbound_peers_refuses_new_ones() {
    let mut server = script_loop();
    let limits = InboundLimits {
        max: 2,
        per_network: usize::MAX,
        idle: Some(PATIENCE * 2),
        evict_after: PATIENCE * 2,
    };
    let link = server
        .sockets()
        .add_udp(UdpConfig::new("server", any_port()).listen(limits))
        .unwrap();
    let clients: Vec<UdpSocket> = (0..3).map(|_| test_socket()).collect();
    for client in &clients {
        client.send_to(b"hello", link.local).unwrap();
    }
    until(&mut server, "a refusal", |server| {
        server.snapshot().transports[0].counters.refused == 1
    });
    assert_eq!(server.machine().inbox.len(), 2);
    assert_eq!(server.machine().ports.len(), 2);
}

#[test]
fn an_idle_inbound_peer_goes_down_and_may_come_back() {
    let mut server = script_loop();
    let limits = InboundLimits {
        idle: Some(Duration::from_millis(30)),
        ..InboundLimits::default()
    };
    let link = server
        .sockets()
        .add_udp(UdpConfig::new("server", any_port()).listen(limits))
        .unwrap();
    let client = test_socket();
    client.send_to(b"hello", link.local).unwrap();
    until(&mut server, "its port to go down", |server| {
        server.machine().down(PortId(0))
    });
    assert_eq!(server.machine().inbox.len(), 1);
    client.send_to(b"again", link.local).unwrap();
    until(&mut server, "another port", |server| {
        server.machine().inbox.len() == 2
    });
    assert_eq!(server.machine().inbox[1], (PortId(1), b"again".to_vec()));
    assert_eq!(server.snapshot().transports[0].counters.expired, 1);
}

#[test]
fn inbound_peers_that_never_expire_stay_until_the_machine_closes_them_and_kept_ones_make_no_room() {
    let mut server = script_loop();
    let limits = InboundLimits {
        max: 2,
        per_network: usize::MAX,
        idle: None,
        evict_after: Duration::ZERO,
    };
    let link = server
        .sockets()
        .add_udp(UdpConfig::new("server", any_port()).listen(limits))
        .unwrap();
    let clients: Vec<UdpSocket> = (0..4).map(|_| test_socket()).collect();
    for (number, client) in clients.iter().enumerate() {
        client.send_to(b"hello", link.local).unwrap();
        until(&mut server, "a frame", |server| {
            server.machine().inbox.len() == number + 1
        });
        if number == 0 {
            assert!(server.sockets().keep_inbound(PortId(0)));
            assert!(
                !server.sockets().keep_inbound(PortId(0)),
                "it is no longer an inbound peer"
            );
        }
    }
    // The first is kept and no longer in the table. Of the three others, the longest idle was
    // evicted.
    let ports: Vec<PortId> = server.machine().ports.keys().copied().collect();
    assert_eq!(ports, [PortId(0), PortId(2), PortId(3)]);
    clients[0].send_to(b"again", link.local).unwrap();
    until(&mut server, "a frame", |server| {
        server.machine().inbox.len() == 5
    });
    assert_eq!(
        server.machine().inbox[4].0,
        PortId(0),
        "its port is as it was"
    );
    server
        .machine_mut()
        .requests
        .push_back(PortRequest::Close(PortId(2)));
    until(&mut server, "its port to go down", |server| {
        server.machine().down(PortId(2))
    });
    assert_eq!(server.snapshot().transports[0].counters.expired, 0);
}

#[test]
fn unknown_senders_are_counted_without_a_listener_and_empty_datagrams_are_dropped() {
    let (mut a, port_a, mut b, _) = pair(true);
    let at = b.snapshot().transports[0]
        .local
        .parse::<SocketAddr>()
        .unwrap();
    test_socket().send_to(b"who am I", at).unwrap();
    a.machine_mut().send(port_a, vec![vec![]]);
    until_both(&mut a, &mut b, "both counted", |_, b| {
        let snapshot = b.snapshot();
        snapshot.transports[0].counters.strangers == 1
            && snapshot.ports[0].counters.drops.empty == 1
    });
    assert!(b.machine().inbox.is_empty());
}

#[test]
fn a_closed_inbound_peer_gets_a_new_port_number_when_it_comes_back() {
    let mut server = script_loop();
    let link = server
        .sockets()
        .add_udp(UdpConfig::new("server", any_port()).listen(InboundLimits::default()))
        .unwrap();
    let client = test_socket();
    client.send_to(b"1", link.local).unwrap();
    until(&mut server, "a frame", |server| {
        server.machine().inbox.len() == 1
    });
    server
        .machine_mut()
        .requests
        .push_back(PortRequest::Close(PortId(0)));
    until(&mut server, "the port to close", |server| {
        server.machine().down(PortId(0))
    });
    client.send_to(b"2", link.local).unwrap();
    until(&mut server, "a frame", |server| {
        server.machine().inbox.len() == 2
    });
    assert_eq!(server.machine().inbox[1].0, PortId(1));
    let total = server.snapshot().total();
    assert_eq!(total.received_frames, 2, "the closed port still counts");
}

#[test]
fn an_inbound_peer_that_is_configured_comes_back_as_a_neighbour_and_only_once() {
    let mut server = script_loop();
    let link = server
        .sockets()
        .add_udp(UdpConfig::new("server", any_port()).listen(InboundLimits::default()))
        .unwrap();
    let client = test_socket();
    client.send_to(b"1", link.local).unwrap();
    until(&mut server, "a frame", |server| {
        server.machine().inbox.len() == 1
    });
    let neighbour = Neighbour::new(
        "known",
        client.local_addr().unwrap(),
        PortOrigin::Configured(0),
    );
    let port = server
        .sockets()
        .add_neighbour(link.transport, neighbour.clone())
        .unwrap()
        .expect("its address is known");
    assert!(server.machine().down(PortId(0)));
    assert_eq!(
        server.machine().ports[&port].origin,
        PortOrigin::Configured(0)
    );
    client.send_to(b"2", link.local).unwrap();
    until(&mut server, "a frame", |server| {
        server.machine().frames_from(port).len() == 1
    });
    let twice = server
        .sockets()
        .add_neighbour(link.transport, neighbour)
        .unwrap_err();
    assert!(
        matches!(&twice, IoError::DuplicateNeighbour { .. }),
        "{twice}"
    );
}

#[test]
fn frames_to_an_absent_peer_are_not_an_error_of_the_loop() {
    // No other test uses this address, so the port stays free.
    let gone = UdpSocket::bind("127.9.8.7:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut a = script_loop();
    let link = a
        .sockets()
        .add_udp(UdpConfig::new("wire", any_port()).neighbour("gone", gone))
        .unwrap();
    for number in 0..50 {
        a.machine_mut()
            .send(link.ports[0], vec![pattern(100, number)]);
        a.step(Duration::ZERO, |_, _, _| {}).unwrap();
    }
    until(&mut a, "the ICMP answers", |a| {
        a.snapshot().transports[0].counters.receive_errors > 0
    });
    let socket = UdpSocket::bind(gone).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    a.machine_mut()
        .send(link.ports[0], vec![b"there now".to_vec()]);
    idle_rounds(&mut a);
    let mut buffer = [0; 100];
    let received = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..received], b"there now");
}

#[test]
fn frames_beyond_the_mtu_are_dropped_and_counted() {
    let (mut a, port_a, mut b, port_b) = pair(true);
    assert_eq!(
        a.machine().ports[&port_a].mtu,
        1472,
        "1500 less the headers of IPv4 and UDP"
    );
    a.machine_mut().send(port_a, vec![vec![1; 1473]]);
    a.machine_mut().send(port_a, vec![vec![2; 1472]]);
    until_both(&mut a, &mut b, "the frame that fits", |_, b| {
        !b.machine().inbox.is_empty()
    });
    assert_eq!(b.machine().inbox, [(port_b, vec![2; 1472])]);
    assert_eq!(a.snapshot().ports[0].counters.drops.too_large, 1);
}

#[test]
fn replies_come_from_the_address_that_the_peer_sent_to() {
    let mut server = script_loop();
    server.machine_mut().echo = true;
    let config =
        UdpConfig::new("all", "0.0.0.0:0".parse().unwrap()).listen(InboundLimits::default());
    let port = server.sockets().add_udp(config).unwrap().local.port();
    let client = test_socket();
    // A connected socket accepts datagrams only from the address that it sent to.
    client.connect(("127.0.0.2", port)).unwrap();
    client.send(b"hello").unwrap();
    until(&mut server, "an answer", |server| {
        server.snapshot().total().sent_frames == 1
    });
    let mut buffer = [0; 10];
    assert_eq!(client.recv(&mut buffer).unwrap(), 5);
}

#[test]
fn a_socket_bound_to_all_of_ipv6_accepts_ipv4_and_shows_the_peer_s_ipv4_address() {
    let mut server = script_loop();
    server.machine_mut().echo = true;
    let config = UdpConfig::new("all", "[::]:0".parse().unwrap()).listen(InboundLimits::default());
    let port = server.sockets().add_udp(config).unwrap().local.port();
    let client = test_socket();
    client.connect(("127.0.0.1", port)).unwrap();
    client.send(b"hello").unwrap();
    until(&mut server, "an answer", |server| {
        server.snapshot().total().sent_frames == 1
    });
    let mut buffer = [0; 10];
    assert_eq!(client.recv(&mut buffer).unwrap(), 5);
    assert_eq!(
        server.machine().ports[&PortId(0)].peer,
        client.local_addr().unwrap().to_string()
    );
    assert_eq!(
        server.machine().ports[&PortId(0)].mtu,
        1472,
        "an IPv4 path, an IPv4 header"
    );
}

#[test]
fn the_error_for_a_port_in_use_says_what_to_do() {
    let holder = test_socket();
    let taken = holder.local_addr().unwrap();
    let mut a = script_loop();
    let error = a
        .sockets()
        .add_udp(UdpConfig::new("uplink", taken))
        .unwrap_err();
    assert!(matches!(&error, IoError::AddressInUse { .. }), "{error}");
    let text = error.to_string();
    for part in [
        &format!("port {}", taken.port()),
        "uplink",
        "127.0.0.1",
        "ss -lunp",
    ] {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
    assert!(a.snapshot().transports.is_empty());
}

#[test]
fn a_socket_waits_for_an_address_that_this_machine_does_not_have_yet() {
    // RFC 5737 and RFC 3849: no machine has them.
    for late in ["192.0.2.1:0", "[2001:db8::1]:0"] {
        let late: SocketAddr = late.parse().unwrap();
        let mut a = script_loop();
        let link = a.sockets().add_udp(UdpConfig::new("uplink", late)).unwrap();
        assert_eq!(link.local.ip(), late.ip());
        let listening = a.sockets().add_tcp_listener(TcpListenerConfig::new(
            "tcp",
            late,
            StreamLimits::tlv(9_000),
        ));
        assert_eq!(listening.unwrap().local.ip(), late.ip());
    }
}

#[test]
fn an_ipv6_neighbour_of_an_ipv4_socket_is_refused_and_nothing_stays_behind() {
    let mut a = script_loop();
    let config = UdpConfig::new("wire", any_port())
        .neighbour("fine", "127.0.0.1:9".parse::<SocketAddr>().unwrap())
        .neighbour("odd", "[::1]:9".parse::<SocketAddr>().unwrap());
    let error = a.sockets().add_udp(config).unwrap_err();
    assert!(matches!(&error, IoError::FamilyMismatch { .. }), "{error}");
    assert!(a.snapshot().transports.is_empty() && a.machine().ports.is_empty());
    assert!(
        a.machine().down(PortId(0)),
        "the neighbour before it was up and went down"
    );
}
