//! WebSocket: handshake, messages, pings, limits, malformed input.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the driver have threads and clocks"
)]

use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use crate::support::{Script, block, idle_rounds, pattern, script_loop, until, until_both};
use tungstenite::{HandshakeError, Message, WebSocket};
use whimbrel_core::{Medium, PortId, PortOrigin, PortRequest};
use whimbrel_io::{
    AllowedOrigins, EventLoop, IoError, WebSocketClientConfig, WebSocketLimits,
    WebSocketListenerConfig,
};

const MAX: usize = 8800;

fn server(change: impl FnOnce(&mut WebSocketLimits)) -> (EventLoop<Script>, SocketAddr) {
    let mut limits = WebSocketLimits::new(MAX);
    change(&mut limits);
    let mut server = script_loop();
    let config = WebSocketListenerConfig::new("browsers", "127.0.0.1:0".parse().unwrap(), limits);
    let local = server
        .sockets()
        .add_websocket_listener(config)
        .unwrap()
        .local;
    (server, local)
}

type Outcome = Rc<RefCell<Option<Result<PortId, IoError>>>>;

fn call(client: &mut EventLoop<Script>, address: SocketAddr) -> Outcome {
    let outcome = Outcome::default();
    let seen = Rc::clone(&outcome);
    let config = WebSocketClientConfig {
        label: "uplink".into(),
        origin: PortOrigin::Configured(0),
        address,
        uri: format!("ws://{address}/"),
        limits: WebSocketLimits::new(MAX),
    };
    client
        .sockets()
        .add_websocket_client(config, move |_, _, result| {
            *seen.borrow_mut() = Some(result)
        })
        .unwrap();
    outcome
}

/// Connects an independent client: `tungstenite` on a socket, as in its documentation.
fn attach(server: &mut EventLoop<Script>, address: SocketAddr) -> WebSocket<TcpStream> {
    let stream = raw(address);
    let mut attempt = tungstenite::client(format!("ws://{address}/"), stream);
    loop {
        match attempt {
            Ok((socket, response)) => {
                assert_eq!(response.status(), 101);
                return socket;
            }
            Err(HandshakeError::Interrupted(handshake)) => {
                server.step(Duration::from_millis(1), |_, _, _| {}).unwrap();
                attempt = handshake.handshake();
            }
            Err(HandshakeError::Failure(error)) => panic!("{error}"),
        }
    }
}

fn raw(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

fn only_port(server: &EventLoop<Script>) -> PortId {
    *server.machine().ports.keys().next().unwrap()
}

/// Returns the next message, if there is one.
fn next(socket: &mut WebSocket<TcpStream>) -> Option<Message> {
    match socket.read() {
        Ok(message) => Some(message),
        Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
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

#[test]
fn each_binary_message_is_one_frame_both_ways() {
    let (mut server, address) = server(|_| {});
    let mut program = attach(&mut server, address);
    until(&mut server, "a port", |server| {
        !server.machine().ports.is_empty()
    });
    let port = only_port(&server);
    let info = &server.machine().ports[&port];
    assert_eq!(
        (info.origin, info.mtu, info.label.as_str()),
        (PortOrigin::Accepted(0), MAX, "browsers")
    );
    let expected = Medium::WebSocket {
        local: address,
        remote: program.get_ref().local_addr().unwrap(),
        origin: None,
    };
    assert_eq!(info.medium, expected);

    let frames: Vec<Vec<u8>> = (1..200)
        .map(|number| pattern(number * 44, number))
        .collect();
    for frame in &frames {
        program.send(Message::binary(frame.clone())).unwrap();
    }
    until(&mut server, "all frames", |server| {
        server.machine().inbox.len() == frames.len()
    });
    assert!(server.machine().frames_from(port) == frames);
    frames
        .iter()
        .for_each(|frame| server.machine_mut().send(port, vec![frame.clone()]));
    // A transmit of several frames.
    server
        .machine_mut()
        .send(port, vec![vec![1; 50], vec![2; 50], vec![3; 20]]);
    let mut got = Vec::new();
    until(&mut server, "all answers", |_| {
        got.extend(next(&mut program).map(|message| message.into_data().to_vec()));
        got.len() == frames.len() + 3
    });
    assert!(got[..frames.len()] == frames);
    assert_eq!(got[frames.len()..], [vec![1; 50], vec![2; 50], vec![3; 20]]);
}

#[test]
fn two_loops_connect_and_exchange_frames() {
    let (mut server, address) = server(|_| {});
    server.machine_mut().echo = true;
    let mut client = script_loop();
    let outcome = call(&mut client, address);
    until_both(&mut client, &mut server, "the connection", |_, _| {
        outcome.borrow().is_some()
    });
    let port = *outcome.borrow().as_ref().unwrap().as_ref().unwrap();
    assert_eq!(
        client.machine().ports[&port].origin,
        PortOrigin::Configured(0)
    );
    let packets: Vec<Vec<u8>> = (0..300)
        .map(|number| block(6, &pattern(number * 29, number)))
        .collect();
    packets
        .iter()
        .for_each(|packet| client.machine_mut().send(port, vec![packet.clone()]));
    until_both(&mut client, &mut server, "all answers", |client, _| {
        client.machine().inbox.len() == packets.len()
    });
    assert!(client.machine().frames_from(port) == packets);
    client
        .machine_mut()
        .requests
        .push_back(PortRequest::Close(port));
    until_both(&mut client, &mut server, "the end", |client, server| {
        client.snapshot().transports.is_empty() && server.snapshot().ports.is_empty()
    });
    assert_eq!(
        server.snapshot().closed_transports.malformed_closed,
        0,
        "a close frame is not an error"
    );
}

#[test]
fn text_is_counted_and_ignored() {
    let (mut server, address) = server(|_| {});
    let mut program = attach(&mut server, address);
    program.send(Message::text("hello")).unwrap();
    program.send(Message::binary(&b"frame"[..])).unwrap();
    until(&mut server, "the frame", |server| {
        server.machine().inbox.len() == 1
    });
    assert_eq!(server.machine().inbox[0].1, b"frame");
    assert_eq!(server.snapshot().transports[1].counters.ignored, 1);
}

#[test]
fn a_ping_is_answered_and_a_silent_peer_is_pinged_and_then_disconnected() {
    let (mut server, address) = server(|limits| {
        limits.ping_after = Duration::from_millis(30);
        limits.pong_timeout = Duration::from_millis(60);
    });
    let mut program = attach(&mut server, address);
    program
        .send(Message::Ping(b"there?".to_vec().into()))
        .unwrap();
    let mut asked = false;
    let mut answered = false;
    until(&mut server, "the pong and the ping", |_| {
        match next(&mut program) {
            Some(Message::Pong(data)) => answered = data == "there?",
            Some(Message::Ping(_)) => asked = true,
            _ => {}
        }
        asked && answered
    });
    // `next` has answered the ping by itself; from now on nothing answers.
    let port = only_port(&server);
    until(&mut server, "the port to go down", |server| {
        server.machine().down(port)
    });
    assert_eq!(server.snapshot().closed_transports.timed_out, 1);
}

#[test]
fn a_handshake_that_never_ends_times_out_and_opens_no_port() {
    let (mut server, address) =
        server(|limits| limits.handshake_timeout = Duration::from_millis(50));
    let mut stream = raw(address);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
    until_disconnected(&mut server, &mut stream);
    assert!(server.machine().reports.is_empty());
    assert_eq!(server.snapshot().closed_transports.timed_out, 1);
}

fn handshake(address: SocketAddr, origin: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Origin: {origin}\r\n\r\n"
    )
}

/// Returns a server that admits pages of `https://app.example`.
fn server_of_pages() -> (EventLoop<Script>, SocketAddr) {
    let mut server = script_loop();
    let config = WebSocketListenerConfig {
        allowed_origins: AllowedOrigins::parse(["https://app.example"]).unwrap(),
        ..WebSocketListenerConfig::new(
            "browsers",
            "127.0.0.1:0".parse().unwrap(),
            WebSocketLimits::new(MAX),
        )
    };
    let local = server
        .sockets()
        .add_websocket_listener(config)
        .unwrap()
        .local;
    (server, local)
}

#[test]
fn a_page_of_another_origin_is_refused_and_opens_no_port() {
    let (mut server, address) = server_of_pages();
    for origin in ["https://evil.example", "null"] {
        let mut stream = raw(address);
        stream
            .write_all(handshake(address, origin).as_bytes())
            .unwrap();
        let mut answer = Vec::new();
        let mut buffer = [0; 1024];
        until(&mut server, "the end of the connection", |_| {
            match stream.read(&mut buffer) {
                Ok(count) => {
                    answer.extend_from_slice(&buffer[..count]);
                    count == 0
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    false
                }
            }
        });
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        let length = format!("content-length: {}", body.len());
        assert!(head.contains(&length) && !body.is_empty(), "{answer}");
    }
    assert!(server.machine().reports.is_empty());
    let closed = server.snapshot().closed_transports;
    assert_eq!((closed.origins_refused, closed.malformed_closed), (2, 0));
}

#[test]
fn a_port_names_the_page_of_its_peer() {
    let (mut server, address) = server_of_pages();
    let mut stream = raw(address);
    let request = handshake(address, "https://app.example");
    stream.write_all(request.as_bytes()).unwrap();
    until(&mut server, "a port", |server| {
        !server.machine().ports.is_empty()
    });
    let port = only_port(&server);
    let Medium::WebSocket { origin, .. } = &server.machine().ports[&port].medium else {
        panic!("{:?}", server.machine().ports)
    };
    assert_eq!(origin.as_deref(), Some("https://app.example"));
}

#[test]
fn rubbish_instead_of_a_handshake_ends_the_connection_and_no_other() {
    let (mut server, address) = server(|_| {});
    let mut good = attach(&mut server, address);
    for rubbish in [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec(),
        vec![0x05, 0x03, 0x07, 0x01, 0x08, 0xff, 0xff, 0xff, 0xff],
        b"A".repeat(200_000),
    ] {
        let before = server.snapshot().closed_transports.malformed_closed;
        let mut stream = raw(address);
        let _ = stream.write(&rubbish);
        until_disconnected(&mut server, &mut stream);
        let counters = server.snapshot().closed_transports;
        assert_eq!(counters.malformed_closed, before + 1, "{:?}", &rubbish[..4]);
    }
    assert_eq!(server.machine().ports.len(), 1);
    good.send(Message::binary(&b"still served"[..])).unwrap();
    until(&mut server, "the frame", |server| {
        server.machine().inbox.len() == 1
    });
}

#[test]
fn rubbish_after_the_handshake_ends_the_connection() {
    for rubbish in [
        &b"\xf2\x80\0\0\0\0"[..],
        b"\x82\x05hello",
        b"\x83\x80\0\0\0\0",
    ] {
        let (mut server, address) = server(|_| {});
        let mut program = attach(&mut server, address);
        until(&mut server, "a port", |server| {
            !server.machine().ports.is_empty()
        });
        let port = only_port(&server);
        program.get_mut().write_all(rubbish).unwrap();
        until_disconnected(&mut server, program.get_mut());
        assert!(server.machine().down(port) && server.machine().inbox.is_empty());
        assert_eq!(
            server.snapshot().closed_transports.malformed_closed,
            1,
            "{rubbish:?}"
        );
    }
}

#[test]
fn a_message_beyond_the_limit_ends_the_connection_before_it_is_read() {
    let (mut server, address) = server(|_| {});
    let mut program = attach(&mut server, address);
    program.send(Message::binary(vec![1; MAX])).unwrap();
    until(&mut server, "the largest", |server| {
        server.machine().inbox.len() == 1
    });
    // The length of a binary message of 2^40 bytes, masked, is beyond the limit.
    program
        .get_mut()
        .write_all(&[0x82, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 9, 9, 9, 9])
        .unwrap();
    until_disconnected(&mut server, program.get_mut());
    assert_eq!(server.snapshot().closed_transports.oversize_closed, 1);

    // The limit holds for fragments, too.
    let mut program = attach(&mut server, address);
    until(&mut server, "a port", |server| {
        !server.machine().ports.is_empty()
    });
    let fragment = |first: bool| {
        let mut bytes = vec![if first { 0x02 } else { 0x00 }, 0xfe, 0x20, 0, 0, 0, 0, 0];
        bytes.resize(8 + 0x2000, 7);
        bytes
    };
    program.get_mut().write_all(&fragment(true)).unwrap();
    program.get_mut().write_all(&fragment(false)).unwrap();
    until_disconnected(&mut server, program.get_mut());
    assert_eq!(server.snapshot().closed_transports.oversize_closed, 2);
}

#[test]
fn a_peer_that_never_reads_blocks_only_itself() {
    let (mut server, address) = server(|_| {});
    let mut slow = attach(&mut server, address);
    until(&mut server, "a port", |server| {
        !server.machine().ports.is_empty()
    });
    let slow_port = only_port(&server);
    let mut quick = attach(&mut server, address);
    until(&mut server, "a port", |server| {
        server.machine().ports.len() == 2
    });
    let quick_port = *server.machine().ports.keys().next_back().unwrap();
    let frames: Vec<Vec<u8>> = (0..4000).map(|number| pattern(8000, number)).collect();
    frames
        .iter()
        .for_each(|frame| server.machine_mut().send(slow_port, vec![frame.clone()]));
    until(&mut server, "the slow one to be blocked", |server| {
        server.machine().blocked.contains(&slow_port)
    });
    idle_rounds(&mut server);
    assert!(
        server.machine().outbox.len() > 100,
        "unsent frames stay with the machine"
    );
    server
        .machine_mut()
        .send(quick_port, vec![b"still served".to_vec()]);
    until(&mut server, "the other's frame", |_| {
        next(&mut quick).is_some_and(|message| message.into_data() == "still served")
    });
    let mut got = 0;
    until(&mut server, "all frames", |_| {
        while let Some(message) = next(&mut slow) {
            assert!(message.into_data() == frames[got]);
            got += 1;
        }
        got == frames.len()
    });
    until(&mut server, "the slow one to be writable", |server| {
        server.machine().blocked.is_empty()
    });
}

#[test]
fn a_flood_of_pings_without_reading_costs_bounded_memory() {
    let (mut server, address) = server(|limits| limits.max_unsent = 50_000);
    let mut program = attach(&mut server, address);
    until(&mut server, "a port", |server| {
        !server.machine().ports.is_empty()
    });
    let port = only_port(&server);
    let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[1; 125]]
        .concat()
        .repeat(500);
    until(&mut server, "the port to go down", |server| {
        let _ = program.get_mut().write(&ping);
        server.machine().down(port)
    });
    assert_eq!(server.snapshot().closed_transports.overflow_closed, 1);
}

#[test]
fn a_server_that_does_not_speak_websocket_is_reported() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = script_loop();
    let outcome = call(&mut client, listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"HTTP/1.1 404 Not Found\r\n\r\n").unwrap();
    until(&mut client, "the refusal", |_| outcome.borrow().is_some());
    let error = outcome.borrow_mut().take().unwrap().unwrap_err();
    assert!(
        matches!(&error, IoError::WebSocketRefused { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("404"), "{error}");
    idle_rounds(&mut client);
    assert!(client.snapshot().transports.is_empty() && client.machine().reports.is_empty());
}
