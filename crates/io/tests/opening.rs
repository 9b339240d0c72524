//! Ports that a machine requests: over each medium they come up with the token of the request, or
//! the request is refused once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::support::{Script, idle_rounds, script_loop, until};
use whimbrel_core::{
    Endpoint, Family, Medium, OpenRefusal, Peer, PortInfo, PortOrigin, PortRequest, PortToken,
};
use whimbrel_io::{EventLoop, InboundLimits, Neighbour, UdpConfig};

fn ask(event_loop: &mut EventLoop<Script>, token: u64, endpoint: Endpoint) {
    event_loop
        .machine_mut()
        .requests
        .push_back(PortRequest::Open {
            token: PortToken(token),
            label: format!("asked {token}"),
            endpoint,
        });
}

fn opened(event_loop: &EventLoop<Script>, token: u64) -> Option<PortInfo> {
    let origin = PortOrigin::Opened(PortToken(token));
    let mut ports = event_loop.machine().ports.values();
    ports.find(|info| info.origin == origin).cloned()
}

fn until_opened(event_loop: &mut EventLoop<Script>, token: u64) -> PortInfo {
    until(event_loop, "a port", |it| opened(it, token).is_some());
    opened(event_loop, token).expect("a port")
}

fn until_refused(event_loop: &mut EventLoop<Script>, token: u64) -> OpenRefusal {
    let refusals = |it: &EventLoop<Script>| it.machine().refusals.clone();
    until(event_loop, "a refusal", |it| !refusals(it).is_empty());
    idle_rounds(event_loop);
    let refusals = refusals(event_loop);
    assert_eq!(refusals.len(), 1, "once, not {refusals:?}");
    assert_eq!(refusals[0].0, PortToken(token));
    assert!(opened(event_loop, token).is_none());
    refusals[0].1.clone()
}

fn udp(remote: impl Into<Peer>, shared: bool) -> Endpoint {
    let remote = remote.into();
    Endpoint::Udp { remote, shared }
}

#[test]
fn datagrams_streams_and_sockets_come_up_with_their_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forwarder.sock");
    let _unix = UnixListener::bind(&path).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut event_loop = script_loop();
    ask(&mut event_loop, 7, udp(peer.local_addr().unwrap(), false));
    let remote = Peer::Address(tcp.local_addr().unwrap());
    ask(&mut event_loop, 8, Endpoint::Tcp { remote });
    ask(&mut event_loop, 9, Endpoint::Unix { path });
    let ports = [7, 8, 9].map(|token| until_opened(&mut event_loop, token));
    assert!(
        matches!(ports[0].medium, Medium::Udp { remote, .. } if Ok(remote) == peer.local_addr().map_err(drop))
    );
    assert!(matches!(ports[1].medium, Medium::Tcp { .. }));
    assert!(matches!(
        ports[2].medium,
        Medium::Unix {
            accepted: false,
            ..
        }
    ));
    assert_eq!(ports[1].label, "asked 8");
    assert!(event_loop.machine().refusals.is_empty());
}

#[test]
fn endpoints_without_a_listener_are_refused() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let gone = std::path::PathBuf::from("/nowhere/at.sock");
    let remote = Peer::Address(free);
    for endpoint in [Endpoint::Tcp { remote }, Endpoint::Unix { path: gone }] {
        let mut event_loop = script_loop();
        ask(&mut event_loop, 1, endpoint);
        let refusal = until_refused(&mut event_loop, 1);
        assert!(matches!(refusal, OpenRefusal::Failed(_)), "{refusal}");
    }
}

#[test]
fn a_host_name_is_looked_up_and_an_unknown_one_refused() {
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let named = |host: &str| Peer::Named {
        host: host.into(),
        port: peer.local_addr().unwrap().port(),
        family: Some(Family::V4),
    };
    let mut event_loop = script_loop();
    ask(&mut event_loop, 1, udp(named("localhost"), false));
    let info = until_opened(&mut event_loop, 1);
    assert_eq!(info.peer, peer.local_addr().unwrap().to_string());

    ask(
        &mut event_loop,
        2,
        udp(named("no such host.invalid"), false),
    );
    let refusal = until_refused(&mut event_loop, 2).to_string();
    assert!(refusal.contains("no such host.invalid"), "{refusal}");
}

#[test]
fn a_configured_neighbour_with_an_unknown_name_delays_nothing() {
    let mut event_loop = script_loop();
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let any: SocketAddr = (Ipv4Addr::UNSPECIFIED, 0).into();
    let unknown = Peer::Named {
        host: "no such host.invalid".into(),
        port: 1,
        family: None,
    };
    let mut config = UdpConfig::new("links", any);
    config.neighbours = vec![
        Neighbour::new("away", unknown, PortOrigin::Configured(0)),
        Neighbour::new(
            "there",
            peer.local_addr().unwrap(),
            PortOrigin::Configured(1),
        ),
    ];
    let link = event_loop.sockets().add_udp(config).unwrap();
    assert_eq!(link.ports.len(), 1);
    let info = &event_loop.machine().ports[&link.ports[0]];
    assert_eq!(info.origin, PortOrigin::Configured(1));
    // The failed look-up is repeated later, and the loop sleeps until then.
    idle_rounds(&mut event_loop);
    let before = event_loop.snapshot().event_loop.rounds;
    event_loop
        .step(Duration::from_millis(50), |_, _, _| {})
        .unwrap();
    assert_eq!(event_loop.snapshot().event_loop.rounds, before + 1);
}

#[test]
fn a_shared_port_uses_the_socket_that_listens() {
    let mut event_loop = script_loop();
    let bind: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let config = UdpConfig::new("listener", bind).listen(InboundLimits::default());
    let link = event_loop.sockets().add_udp(config).unwrap();
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    ask(&mut event_loop, 1, udp(peer.local_addr().unwrap(), true));
    let info = until_opened(&mut event_loop, 1);
    assert!(matches!(info.medium, Medium::Udp { local, .. } if local == link.local));
    // A second port to the same peer on one socket is refused.
    ask(&mut event_loop, 2, udp(peer.local_addr().unwrap(), true));
    until_refused(&mut event_loop, 2);
}

#[test]
fn every_look_up_has_its_turn() {
    let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let remote = Peer::Named {
        host: "localhost".into(),
        port: peer.local_addr().unwrap().port(),
        family: Some(Family::V4),
    };
    let mut event_loop = script_loop();
    let requests = 60;
    for token in 0..requests {
        ask(&mut event_loop, token, udp(remote.clone(), false));
    }
    until(&mut event_loop, "all ports", |it| {
        it.machine().ports.len() as u64 == requests
    });
    assert!(event_loop.machine().refusals.is_empty());
}
