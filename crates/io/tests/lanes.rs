//! A flood of strangers on a UDP listener, and a peer at work there.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::support::{PATIENCE, Script, idle_rounds, pattern, script_loop, until};
use whimbrel_core::{Admission, CallerGate, Ecn, FrameShape, PortEvent, PortId, Time};
use whimbrel_io::{EventLoop, InboundLimits, IoError, UdpConfig, UdpLink};

/// Enough within a tenth of a second for a flood.
const FLOOD: usize = 3_000;

/// Admits who says the word.
#[derive(Debug)]
struct Porter;

impl CallerGate for Porter {
    fn consider(&mut self, _: Time, _: SocketAddr, frame: &[u8], _: &mut Vec<u8>) -> Admission {
        match frame {
            b"the word" => Admission::Admitted,
            _ => Admission::Refused,
        }
    }

    fn shapes(&self) -> Vec<FrameShape> {
        let begins = |word: &[u8; 4]| FrameShape {
            mask: u32::MAX,
            value: u32::from_be_bytes(*word),
            shortest: 5,
        };
        vec![begins(b"the "), begins(b"hell"), begins(b"are ")]
    }
}

struct Scene {
    server: EventLoop<Script>,
    link: UdpLink,
    peer: UdpSocket,
    stranger: UdpSocket,
    port: PortId,
}

impl Scene {
    fn on_loopback() -> Scene {
        Scene::new("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1")
    }

    /// A listener on `bind` with one peer, which a flood has given a socket of its own.
    fn new(bind: &str, peer: &str, called: &str) -> Scene {
        let mut server = script_loop();
        let config = UdpConfig::new("server", bind.parse().unwrap());
        let config = config.listen(InboundLimits::default());
        let link = server
            .sockets()
            .add_udp_with_gate(config, Some(Box::new(Porter)))
            .unwrap();
        let peer = UdpSocket::bind(peer).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let at = SocketAddr::new(called.parse().unwrap(), link.local.port());
        peer.connect(at).unwrap();
        peer.send(b"the word").unwrap();
        until(&mut server, "the peer's port", |server| {
            server.machine().inbox.len() == 1
        });
        let port = server.machine().inbox[0].0;
        let stranger = UdpSocket::bind(peer.local_addr().map(|it| (it.ip(), 0)).unwrap()).unwrap();
        until(&mut server, "its socket", |server| {
            flood(&stranger, at);
            work(server, &peer, at);
            lanes(server) > 0
        });
        idle_rounds(&mut server);
        server.machine_mut().inbox.clear();
        Scene {
            server,
            link,
            peer,
            stranger,
            port,
        }
    }
}

fn flood(stranger: &UdpSocket, at: SocketAddr) {
    for _ in 0..FLOOD {
        let _ = stranger.send_to(b"junk", at);
    }
}

/// Sends frames for a while: most of them may be lost in a flood.
fn work(server: &mut EventLoop<Script>, peer: &UdpSocket, at: SocketAddr) {
    for _ in 0..20 {
        peer.send_to(b"hello", at).unwrap();
        server.step(Duration::from_millis(1), |_, _, _| {}).unwrap();
    }
}

fn lanes(server: &EventLoop<Script>) -> u64 {
    server.snapshot().transports[0].counters.lanes_opened
}

#[test]
fn a_peer_at_work_in_a_flood_gets_a_socket_of_its_own_and_notices_nothing() {
    for (bind, peer, called) in [
        ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1"),
        ("0.0.0.0:0", "127.0.0.1:0", "127.0.0.1"),
        // Not the address that the routes choose towards this peer.
        ("0.0.0.0:0", "127.0.0.1:0", "127.0.0.2"),
        ("[::]:0", "127.0.0.1:0", "127.0.0.2"),
        ("[::]:0", "[::1]:0", "::1"),
    ] {
        let Scene {
            mut server,
            peer,
            stranger,
            port,
            ..
        } = Scene::new(bind, peer, called);
        // The listener's queue is full: nothing gets in by it.
        flood(&stranger, peer.peer_addr().unwrap());
        let sent: Vec<Vec<u8>> = (0..200).map(|number| pattern(100 + number, 7)).collect();
        for frame in &sent {
            peer.send(frame).unwrap();
        }
        until(&mut server, "all frames", |server| {
            server.machine().inbox.len() == sent.len()
        });
        assert_eq!(server.machine().frames_from(port), sent, "{bind}");
        server.machine_mut().send(port, vec![vec![9; 50]]);
        let mut buffer = [0; 100];
        until(&mut server, "nothing left to send", |server| {
            server.machine().outbox.is_empty()
        });
        assert_eq!(peer.recv(&mut buffer).unwrap(), 50);
        // Another peer comes in as before, and gets one too.
        let newcomer = UdpSocket::bind(peer.local_addr().map(|it| (it.ip(), 0)).unwrap()).unwrap();
        let to = peer.peer_addr().unwrap();
        until(&mut server, "the newcomer", |server| {
            newcomer.send_to(b"the word", to).unwrap();
            server.machine().ports.len() == 2
        });
        until(&mut server, "the socket of the newcomer", |server| {
            work(server, &newcomer, to);
            lanes(server) == 2
        });
    }
}

#[test]
fn the_port_stays_this_programs_alone() {
    let scene = Scene::new("0.0.0.0:0", "127.0.0.1:0", "127.0.0.1");
    let again = UdpConfig::new("again", scene.link.local);
    let refused = script_loop().sockets().add_udp(again).unwrap_err();
    assert!(matches!(refused, IoError::AddressInUse { .. }), "{refused}");
    let thief = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    thief.set_reuse_address(true).unwrap();
    thief.bind(&scene.link.local.into()).unwrap_err();
}

#[test]
fn a_peer_whose_program_has_ended_refuses_by_its_own_socket_too() {
    let mut scene = Scene::on_loopback();
    drop(scene.peer);
    let frames = vec![vec![1; 100]];
    scene.server.machine_mut().send(scene.port, frames);
    until(&mut scene.server, "the refusal", |server| {
        let told = (scene.port, PortEvent::Refused);
        server.machine().reports.contains(&told)
    });
}

#[test]
fn the_codepoint_of_a_frame_is_seen_there_too() {
    let mut scene = Scene::on_loopback();
    socket2::SockRef::from(&scene.peer).set_tos_v4(2).unwrap();
    scene.peer.send(b"capable").unwrap();
    until(&mut scene.server, "the frame", |server| {
        server.machine().inbox.len() == 1
    });
    let told = scene.server.machine().reports.iter().any(|(of, event)| {
        let PortEvent::Ecn { codepoint, .. } = event else {
            return false;
        };
        *of == scene.port && *codepoint == Ecn::Capable
    });
    assert!(told, "{:?}", scene.server.machine().reports);
}

#[test]
fn in_a_flood_the_kernel_drops_what_can_be_no_frame_and_nothing_afterwards() {
    let mut scene = Scene::on_loopback();
    let at = scene.peer.peer_addr().unwrap();
    let counters = |server: &EventLoop<Script>| server.snapshot().transports[0].counters;
    // All that came before the filter has been read.
    until(&mut scene.server, "an empty queue", |server| {
        let before = counters(server).strangers;
        idle_rounds(server);
        counters(server).strangers == before
    });
    let before = counters(&scene.server).filtered;
    // More noise than the queue holds, and a call behind it.
    for number in 0..10 {
        let newcomer = UdpSocket::bind("127.0.0.1:0").unwrap();
        flood(&scene.stranger, at);
        newcomer.send_to(b"the word", at).unwrap();
        until(&mut scene.server, "the newcomer", |server| {
            server.machine().ports.len() == 2 + number
        });
        // It has no socket of its own.
        newcomer.send_to(b"hello", at).unwrap();
        until(&mut scene.server, "its frame", |server| {
            let inbox = core::mem::take(&mut server.machine_mut().inbox);
            inbox.iter().any(|(_, frame)| frame == b"hello")
        });
    }
    let filtered = counters(&scene.server).filtered - before;
    assert!(filtered > FLOOD as u64, "{filtered} are known of");
    until(&mut scene.server, "the end of the flood", |server| {
        let before = counters(server).strangers;
        for _ in 0..8 {
            scene.stranger.send_to(b"junk", at).unwrap();
        }
        (0..10).for_each(|_| idle_rounds(server));
        counters(server).strangers == before + 8
    });
}

#[test]
fn after_the_flood_all_share_the_listeners_whole_queue_again() {
    let Scene {
        mut server,
        link,
        peer,
        port,
        ..
    } = Scene::on_loopback();
    if server.snapshot().transports[0].kernel_buffers.0 < 4 << 20 {
        // Without the privilege for large buffers no queue is long.
        return;
    }
    let number = format!(":{:04X}", link.local.port());
    let sockets = || {
        let table = std::fs::read_to_string("/proc/net/udp").unwrap();
        let local = |line: &str| line.split_whitespace().nth(1).unwrap().ends_with(&number);
        table.lines().filter(|line| local(line)).count()
    };
    assert!((0..20).any(|_| sockets() == 2));
    // One of them waits in the socket that is about to be closed.
    until(&mut server, "one socket", |_| {
        peer.send(b"hello").unwrap();
        // The kernel may leave out a line while other tests open and close sockets.
        (0..20).all(|_| sockets() == 1)
    });
    idle_rounds(&mut server);
    server.machine_mut().inbox.clear();
    // More than a short queue holds.
    let sent: Vec<Vec<u8>> = (0..600).map(|number| pattern(1_400, number)).collect();
    for frame in &sent {
        peer.send(frame).unwrap();
    }
    until(&mut server, "all frames", |server| {
        server.machine().inbox.len() == sent.len()
    });
    assert_eq!(server.machine().frames_from(port), sent);
}
