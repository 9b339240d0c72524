//! Streams of TLV packets, over Unix sockets and TCP.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the driver have threads and clocks"
)]

use std::cell::RefCell;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use crate::support::{Script, block, idle_rounds, pattern, script_loop, until, until_both};
use whimbrel_core::{Medium, PortEvent, PortId, PortOrigin, PortRequest};
use whimbrel_io::{
    EventLoop, IoError, StreamLimits, TcpClientConfig, TcpListenerConfig, UnixListenerConfig,
};

const LIMITS: usize = 8800;

/// Returns a loop that listens on TCP.
fn tcp_server(
    bind: &str,
    change: impl FnOnce(&mut TcpListenerConfig),
) -> (EventLoop<Script>, SocketAddr) {
    let mut server = script_loop();
    let mut config =
        TcpListenerConfig::new("tcp", bind.parse().unwrap(), StreamLimits::tlv(LIMITS));
    change(&mut config);
    let local = server.sockets().add_tcp_listener(config).unwrap().local;
    (server, local)
}

type Outcome = Rc<RefCell<Option<Result<PortId, IoError>>>>;

/// Starts to connect. The outcome appears in the returned value.
fn connect(client: &mut EventLoop<Script>, address: SocketAddr, timeout: Duration) -> Outcome {
    let outcome = Outcome::default();
    let seen = Rc::clone(&outcome);
    let config = TcpClientConfig {
        timeout,
        ..TcpClientConfig::new("uplink", address, StreamLimits::tlv(LIMITS))
    };
    client
        .sockets()
        .add_tcp_client(config, move |_, _, result| {
            assert!(seen.borrow().is_none(), "told twice");
            *seen.borrow_mut() = Some(result);
        })
        .unwrap();
    outcome
}

fn attach(server: &mut EventLoop<Script>, address: SocketAddr) -> (TcpStream, PortId) {
    let before = server.snapshot().ports.len();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nonblocking(true).unwrap();
    until(server, "a port for the peer", |server| {
        server.snapshot().ports.len() > before
    });
    (stream, PortId(server.snapshot().ports.last().unwrap().port))
}

fn until_disconnected(server: &mut EventLoop<Script>, stream: &mut TcpStream) {
    let mut bytes = [0; 4096];
    until(server, "the end of the connection", |_| {
        match stream.read(&mut bytes) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    });
}

fn a_thousand_packets() -> Vec<Vec<u8>> {
    (0..1000)
        .map(|number| block(5 + number as u64 % 300, &pattern(number * 7 % 8000, number)))
        .collect()
}

#[test]
fn many_packets_of_any_sizes_in_one_transmit_arrive_one_by_one_and_leave_in_few_calls() {
    let (here, there) = UnixStream::pair().unwrap();
    let (mut a, mut b) = (script_loop(), script_loop());
    let from = a
        .sockets()
        .add_unix_stream("a", "b", here, StreamLimits::tlv(LIMITS))
        .unwrap();
    let to = b
        .sockets()
        .add_unix_stream("b", "a", there, StreamLimits::tlv(LIMITS))
        .unwrap();
    let packets = a_thousand_packets();
    // One transmit of some megabytes, then each packet as a separate transmit.
    a.machine_mut().send(from, vec![packets.concat()]);
    packets
        .iter()
        .for_each(|packet| a.machine_mut().send(from, vec![packet.clone()]));
    until_both(&mut a, &mut b, "all packets", |_, b| {
        b.machine().inbox.len() == 2000
    });
    let received = b.machine().frames_from(to);
    assert!(
        received[..1000] == packets && received[1000..] == packets,
        "each whole and in order"
    );
    let snapshot = a.snapshot();
    assert_eq!(
        (
            snapshot.ports[0].counters.sent_frames,
            snapshot.ports[0].counters.drops.total()
        ),
        (2000, 0)
    );
    assert!(
        snapshot.transports[0].counters.send_calls < 500,
        "{:?}",
        snapshot.transports[0].counters
    );
}

#[test]
fn a_close_right_after_gathered_packets_still_sends_them() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut a = script_loop();
    let port = a
        .sockets()
        .add_unix_stream("a", "b", here, StreamLimits::tlv(LIMITS))
        .unwrap();
    a.machine_mut().send(port, vec![block(6, b"last words")]);
    a.machine_mut().requests.push_back(PortRequest::Close(port));
    until(&mut a, "the port to go down", |a| a.machine().down(port));
    let mut got = Vec::new();
    there.read_to_end(&mut got).unwrap();
    assert_eq!(got, block(6, b"last words"));
    assert!(a.snapshot().transports.is_empty());
}

#[test]
fn a_port_closed_from_outside_goes_down_and_its_peer_is_disconnected() {
    let (mut server, address) = tcp_server("127.0.0.1:0", |_| {});
    let (mut stream, port) = attach(&mut server, address);
    server.sockets().close_port(port);
    assert!(server.machine().down(port));
    until_disconnected(&mut server, &mut stream);
}

#[test]
fn tcp_carries_packets_both_ways_and_both_ends_know_their_addresses() {
    for bind in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
        let (mut server, local) = tcp_server(bind, |_| {});
        server.machine_mut().echo = true;
        // IPv4 reaches a listener on all addresses, too.
        let address = if bind == "[::]:0" {
            SocketAddr::from(([127, 0, 0, 1], local.port()))
        } else {
            local
        };
        let mut client = script_loop();
        let outcome = connect(&mut client, address, Duration::from_secs(10));
        until_both(&mut client, &mut server, "the connection", |_, _| {
            outcome.borrow().is_some()
        });
        let port = *outcome.borrow().as_ref().unwrap().as_ref().unwrap();
        let packets = a_thousand_packets();
        client.machine_mut().send(port, vec![packets.concat()]);
        until_both(&mut client, &mut server, "all answers", |client, _| {
            client.machine().inbox.len() == packets.len()
        });
        assert!(client.machine().frames_from(port) == packets);
        let ours = &client.machine().ports[&port];
        let theirs = server.machine().ports.values().next().unwrap();
        assert_eq!(
            (ours.origin, theirs.origin),
            (PortOrigin::Configured(0), PortOrigin::Accepted(0))
        );
        let (
            Medium::Tcp { local, remote, .. },
            Medium::Tcp {
                local: their_local,
                remote: their_remote,
                ..
            },
        ) = (&ours.medium, &theirs.medium)
        else {
            panic!("{ours:?} {theirs:?}");
        };
        assert_eq!(
            (*remote, *their_local),
            (address, address),
            "never an IPv4-mapped IPv6 address"
        );
        assert_eq!(local, their_remote);
        assert_eq!(
            (ours.mtu, ours.peer.as_str()),
            (LIMITS, address.to_string().as_str())
        );
    }
}

#[test]
fn a_peer_that_refuses_is_reported_once_and_leaves_nothing_behind() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut client = script_loop();
    let outcome = connect(&mut client, free, Duration::from_secs(10));
    until(&mut client, "the refusal", |_| outcome.borrow().is_some());
    let error = outcome.borrow_mut().take().unwrap().unwrap_err();
    assert!(matches!(&error, IoError::ConnectFailed { .. }), "{error}");
    assert!(error.to_string().contains(&free.to_string()), "{error}");
    idle_rounds(&mut client);
    assert!(client.snapshot().transports.is_empty() && client.machine().reports.is_empty());
}

#[test]
fn a_connection_closed_before_it_is_up_is_reported() {
    let (_server, address) = tcp_server("127.0.0.1:0", |_| {});
    let mut client = script_loop();
    let outcome = Outcome::default();
    let seen = Rc::clone(&outcome);
    let config = TcpClientConfig::new("uplink", address, StreamLimits::tlv(LIMITS));
    let id = client
        .sockets()
        .add_tcp_client(config, move |_, _, result| {
            *seen.borrow_mut() = Some(result)
        })
        .unwrap();
    client.sockets().close_transport(id);
    assert!(matches!(
        outcome.borrow().as_ref(),
        Some(Err(IoError::ConnectAbandoned { .. }))
    ));
}

#[test]
fn transports_are_opened_from_another_thread_while_the_loop_runs() {
    let (mut server, address) = tcp_server("127.0.0.1:0", |_| {});
    let handle = server.handle();
    let posting = std::thread::spawn(move || {
        let config = TcpClientConfig::new("uplink", address, StreamLimits::tlv(LIMITS));
        handle
            .post_to_loop(move |event_loop| {
                event_loop
                    .sockets()
                    .add_tcp_client(config, |machine, _, result| {
                        machine.events.push_back(result.unwrap().0);
                    })
                    .unwrap();
            })
            .unwrap();
    });
    let stop = server.handle();
    // The loop connects to itself.
    server.run(|_, _, _port| stop.stop()).unwrap();
    posting.join().unwrap();
    let kinds: Vec<PortOrigin> = server
        .machine()
        .ports
        .values()
        .map(|info| info.origin)
        .collect();
    assert!(kinds.contains(&PortOrigin::Configured(0)), "{kinds:?}");
}

#[test]
fn packets_that_arrive_octet_by_octet_are_delivered_whole() {
    let (mut server, address) = tcp_server("127.0.0.1:0", |_| {});
    let (mut stream, port) = attach(&mut server, address);
    stream.set_nodelay(true).unwrap();
    let packets = [
        block(0x8624_0000, b"long type"),
        block(5, &[7; 300]),
        block(252, b""),
    ];
    for octet in packets.concat() {
        stream.write_all(&[octet]).unwrap();
        server.step(Duration::from_millis(1), |_, _, _| {}).unwrap();
    }
    until(&mut server, "all packets", |server| {
        server.machine().frames_from(port) == packets
    });
}

#[test]
fn a_length_beyond_the_limit_or_a_bad_type_ends_only_that_connection() {
    let endless = [6, 255, 255, 255, 255, 255, 255, 255, 255, 255];
    let one_too_many = [6, 253, 0x22, 0x5d]; // 4 + 8797 = 8801
    let type_zero = [0, 1, 2];
    let type_too_large = [255, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2];
    for (bytes, oversize, malformed) in [
        (&endless[..], 1, 0),
        (&one_too_many, 1, 0),
        (&type_zero, 0, 1),
        (&type_too_large, 0, 1),
    ] {
        let (mut server, address) = tcp_server("127.0.0.1:0", |_| {});
        let (mut bad, bad_port) = attach(&mut server, address);
        let (mut good, good_port) = attach(&mut server, address);
        bad.write_all(&[&block(5, b"fine so far")[..], bytes].concat())
            .unwrap();
        until_disconnected(&mut server, &mut bad);
        assert_eq!(
            server.machine().frames_from(bad_port),
            [block(5, b"fine so far")]
        );
        assert!(server.machine().down(bad_port));
        let closed = server.snapshot().closed_transports;
        assert_eq!(
            (closed.oversize_closed, closed.malformed_closed),
            (oversize, malformed),
            "{bytes:?}"
        );
        good.write_all(&block(6, &[1; 8796])).unwrap();
        until(&mut server, "the packet of the other", |server| {
            server.machine().frames_from(good_port) == [block(6, &[1; 8796])]
        });
    }
}

#[test]
fn a_stream_of_named_types_ends_at_the_first_octet_of_another() {
    let carried = StreamLimits::tlv_of(&[5, 6, 0x64], LIMITS);
    for foreign in [&b"POST / HTTP/1.1\r\n\r\n"[..], b"G", b"\x16", &[7, 0]] {
        let (mut server, address) = tcp_server("127.0.0.1:0", |config| config.limits = carried);
        let (mut bad, bad_port) = attach(&mut server, address);
        let (mut good, good_port) = attach(&mut server, address);
        let fine = [block(5, b"fine"), block(0x64, b""), block(6, b"so far")];
        bad.write_all(&[&fine.concat(), foreign].concat()).unwrap();
        until_disconnected(&mut server, &mut bad);
        assert_eq!(server.machine().frames_from(bad_port), fine);
        assert!(server.machine().down(bad_port));
        let closed = server.snapshot().closed_transports;
        assert_eq!((closed.foreign_closed, closed.malformed_closed), (1, 0));
        good.write_all(&block(5, b"of another")).unwrap();
        until(&mut server, "the packet of the other", |server| {
            server.machine().frames_from(good_port) == [block(5, b"of another")]
        });
    }
}

#[test]
fn a_peer_that_never_reads_blocks_only_itself_and_loses_nothing() {
    let (mut server, address) = tcp_server("127.0.0.1:0", |_| {});
    let (mut slow, slow_port) = attach(&mut server, address);
    let (mut quick, quick_port) = attach(&mut server, address);
    let packets: Vec<Vec<u8>> = (0..4000)
        .map(|number| block(6, &pattern(8000, number)))
        .collect();
    packets
        .iter()
        .for_each(|packet| server.machine_mut().send(slow_port, vec![packet.clone()]));
    until(&mut server, "the slow one to be blocked", |server| {
        server.machine().blocked.contains(&slow_port)
    });
    idle_rounds(&mut server);
    assert!(
        server.machine().outbox.len() > 100,
        "unsent frames stay with the machine"
    );
    for number in 0..100 {
        quick.write_all(&block(5, &[number])).unwrap();
        server
            .machine_mut()
            .send(quick_port, vec![block(6, &[number])]);
    }
    let expected: Vec<u8> = (0..100).flat_map(|number| block(6, &[number])).collect();
    let mut got = Vec::new();
    until(&mut server, "service for the other", |server| {
        read_some(&mut quick, &mut got);
        got.len() == expected.len() && server.machine().frames_from(quick_port).len() == 100
    });
    assert_eq!(got, expected);
    assert!(server.machine().blocked.contains(&slow_port));

    let expected = packets.concat();
    let mut got = Vec::new();
    until(&mut server, "all packets", |_| {
        read_some(&mut slow, &mut got);
        got.len() >= expected.len()
    });
    assert!(got == expected, "every byte in order");
    until(&mut server, "the slow one to be writable", |server| {
        server.machine().blocked.is_empty()
    });
    assert!(
        server
            .machine()
            .reports
            .contains(&(slow_port, PortEvent::Writable))
    );
}

fn read_some(stream: &mut TcpStream, into: &mut Vec<u8>) {
    let mut buffer = vec![0; 50_000];
    match stream.read(&mut buffer) {
        Ok(count) => into.extend_from_slice(&buffer[..count]),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    }
}

#[test]
fn a_machine_that_writes_on_although_blocked_is_cut_off_at_the_bound() {
    let (mut server, address) =
        tcp_server("127.0.0.1:0", |config| config.limits.max_unsent = 100_000);
    let (_stream, port) = attach(&mut server, address);
    server.machine_mut().ignores_blocking = true;
    (0..4000).for_each(|number| {
        server
            .machine_mut()
            .send(port, vec![block(6, &pattern(8000, number))])
    });
    until(&mut server, "the port to go down", |server| {
        server.machine().down(port)
    });
    assert_eq!(server.snapshot().closed_transports.overflow_closed, 1);
}

#[test]
fn peers_beyond_the_maximum_are_refused_and_room_is_made_by_leaving() {
    let (mut server, address) = tcp_server("127.0.0.1:0", |config| config.max_connections = 2);
    let (first, port) = attach(&mut server, address);
    let (_second, _) = attach(&mut server, address);
    let mut third = TcpStream::connect(address).unwrap();
    third.set_nonblocking(true).unwrap();
    until_disconnected(&mut server, &mut third);
    assert_eq!(server.snapshot().transports[0].counters.refused, 1);
    drop(first);
    until(&mut server, "the first to be gone", |server| {
        server.machine().down(port)
    });
    attach(&mut server, address);
}

#[test]
fn the_error_for_a_tcp_port_in_use_names_the_command_that_shows_the_program() {
    let (_server, address) = tcp_server("127.0.0.1:0", |_| {});
    let config = TcpListenerConfig::new("second", address, StreamLimits::tlv(LIMITS));
    let error = script_loop()
        .sockets()
        .add_tcp_listener(config)
        .unwrap_err();
    assert!(
        matches!(
            &error,
            IoError::AddressInUse {
                protocol: "TCP",
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("ss -ltnp"), "{error}");
}

#[test]
fn a_listener_that_was_stopped_with_connections_open_can_be_started_again_at_once() {
    let (mut server, address) = tcp_server("127.0.0.1:0", |_| {});
    let (stream, _) = attach(&mut server, address);
    drop(server);
    let config = TcpListenerConfig::new("tcp", address, StreamLimits::tlv(LIMITS));
    script_loop().sockets().add_tcp_listener(config).unwrap();
    drop(stream);
}

#[test]
fn the_socket_s_folder_is_made_and_every_user_may_connect_if_so_configured() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run").join("nfd").join("nfd.sock");
    let mut server = script_loop();
    let config = UnixListenerConfig {
        mode: 0o666,
        folder_mode: Some(0o755),
        limits: StreamLimits::tlv(LIMITS),
        ..UnixListenerConfig::new("programs", &path)
    };
    server.sockets().add_unix_listener(config).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o666
    );
    let mut client = script_loop();
    let port = client
        .sockets()
        .add_unix_client("daemon", &path, StreamLimits::tlv(LIMITS))
        .unwrap();
    client.machine_mut().send(port, vec![block(5, b"hello")]);
    until_both(&mut client, &mut server, "the packet", |_, server| {
        !server.machine().inbox.is_empty()
    });
    let Medium::Unix {
        path: Some(named),
        descriptor,
        accepted: false,
    } = &client.machine().ports[&port].medium
    else {
        panic!("{:?}", client.machine().ports[&port]);
    };
    assert!(*named == path && *descriptor > 2);
    let info = server.machine().ports.values().next().unwrap();
    let Medium::Unix {
        path: Some(named),
        accepted: true,
        ..
    } = &info.medium
    else {
        panic!("{info:?}")
    };
    assert_eq!(*named, path);
}
