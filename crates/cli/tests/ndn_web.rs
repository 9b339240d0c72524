//! Web pages and a router: requests that a page can make a browser send do not command it, and a
//! page that may connect takes no prefix from others.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::await_that;
use crate::support::ndn::{Router, read_to_end};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};
use whimbrel_ndn_mgmt::client::{self, Stamp, Target};
use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse, ROUTE_CAPTURE};
use whimbrel_ndn_packet::{Data, DataRef, DigestSigner, Interest, InterestRef, Name, tlv};

const PATIENCE: Duration = Duration::from_secs(20);

fn register(target: Target, prefix: &str, flags: Option<u64>, number: u64) -> Vec<u8> {
    let parameters = ControlParameters {
        name: Some(prefix.parse::<Name>().unwrap()),
        flags,
        ..ControlParameters::default()
    };
    let stamp = Stamp {
        time: 1_795_000_000_000 + number,
        nonce: number.to_be_bytes(),
    };
    client::command(target, "rib", "register", &parameters, &DigestSigner, stamp)
}

/// A form that a page posts. Decoded as TLV, its head is a sequence of blocks; the padding
/// completes the last of them, so that the packet is the next block.
fn posted(address: &str, packet: &[u8]) -> Vec<u8> {
    let length = 4_000;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {address}\r\nOrigin: https://evil.example\r\n\
         Content-Type: text/plain;charset=UTF-8\r\nContent-Length: {length}\r\n\r\n"
    );
    let mut body = head.into_bytes();
    let end_of_head = body.len();
    let mut at = 0;
    while at < end_of_head {
        // In ASCII, type and length are one octet each.
        let length = body.get(at + 1).copied().unwrap_or(b'A');
        at += 2 + usize::from(length);
    }
    body.resize(at, b'A');
    body.extend_from_slice(packet);
    body.resize(end_of_head + length, b'A');
    body
}

fn patient_tcp(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

impl Router {
    fn listens(&self, kind: &str) -> String {
        self.opened[kind][0].as_str().unwrap().to_owned()
    }

    fn routes(&self) -> String {
        self.prints(&["route", "list"])
    }

    /// Returns the status line of the response to a WebSocket handshake with these header lines.
    fn handshake(&self, origin: &str) -> String {
        let address = self.listens("websocket");
        let mut stream = patient_tcp(&address);
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{origin}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8(answer.to_vec()).unwrap()
    }

    fn page(&self, origin: &str) -> Page {
        let address = self.listens("websocket");
        let mut request = format!("ws://{address}/").into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("Origin", origin.parse().unwrap());
        let (socket, _) = tungstenite::client(request, patient_tcp(&address)).unwrap();
        Page { socket, asked: 0 }
    }
}

/// A script in a page that uses the router.
struct Page {
    socket: WebSocket<TcpStream>,
    asked: u64,
}

impl Page {
    fn receive(&mut self) -> Vec<u8> {
        loop {
            if let Message::Binary(frame) = self.socket.read().unwrap() {
                // A bare packet, or one in an LpPacket whose header fields do not matter here.
                return match whimbrel_ndn_packet::LpPacket::decode(&frame, true) {
                    Ok(packet) => packet.fragment.unwrap_or_default().to_vec(),
                    Err(_) => frame.to_vec(),
                };
            }
        }
    }

    fn register_with(&mut self, prefix: &str, flags: Option<u64>) -> ControlResponse {
        self.asked += 1;
        let command = register(Target::Neighbour, prefix, flags, self.asked);
        self.socket.send(Message::binary(command)).unwrap();
        loop {
            let packet = self.receive();
            if DataRef::decode(&packet).is_ok() {
                return client::response(&packet).unwrap();
            }
        }
    }

    fn register(&mut self, prefix: &str) -> u64 {
        self.register_with(prefix, None).status_code
    }
}

#[test]
fn a_form_that_a_page_posts_to_a_packet_stream_commands_nothing() {
    let router = Router::with(&["--metrics", "127.0.0.1:0"]);
    let command = register(Target::Local, "/evil", None, 1);
    let address = router.listens("tcp");
    let mut tcp = patient_tcp(&address);
    tcp.write_all(&posted(&address, &command)).unwrap();
    assert_eq!(
        read_to_end(&mut tcp),
        b"",
        "no answer, and the connection ended"
    );
    let mut unix = UnixStream::connect(router.path("nfd.sock")).unwrap();
    unix.set_read_timeout(Some(PATIENCE)).unwrap();
    // The connection may end before the whole request is written.
    let _ = unix.write_all(&posted("nfd.sock", &command));
    assert_eq!(
        read_to_end(&mut unix),
        b"",
        "no answer, and the connection ended"
    );
    assert!(!router.routes().contains("/evil"), "{}", router.routes());
    await_that("the reason is counted", || {
        router.metric("ndn_connections_ended_total", "foreign-type") >= 2.0
    });
}

#[test]
fn packets_idle_frames_and_unknown_fields_do_not_end_a_stream() {
    let router = Router::start();
    let _serve = router.serve("/served", b"still", &[]);
    let mut question = Interest {
        nonce: Some([7; 4]),
        ..Interest::new("/served".parse::<Name>().unwrap())
    };
    question.can_be_prefix = true;
    let mut unknown_field = Vec::new();
    // NDNLPv2 lets receivers ignore header fields such as this one.
    tlv::write_element(&mut unknown_field, 0x64, &[0xfd, 0x03, 0xd4, 0x01, 0x2a]);
    let idle = [0x64, 0x00];
    let data = Data::new("/unasked".parse::<Name>().unwrap(), vec![1]).encode(&DigestSigner);
    let all = [&idle[..], &unknown_field, &data, &idle, &question.encode()].concat();
    for kind in ["tcp", "unix"] {
        let mut answer = vec![0; 4096];
        let count = if kind == "tcp" {
            let mut stream = patient_tcp(&router.listens("tcp"));
            stream.write_all(&all).unwrap();
            stream.read(&mut answer).unwrap()
        } else {
            let mut stream = UnixStream::connect(router.path("nfd.sock")).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&all).unwrap();
            stream.read(&mut answer).unwrap()
        };
        let answered = answer[..count].windows(5).any(|part| part == b"still");
        assert!(answered, "{kind}");
    }
}

#[test]
fn only_pages_of_named_origins_get_a_websocket() {
    let closed = Router::with(&["--metrics", "127.0.0.1:0"]);
    for origin in ["https://evil.example", "null", "http://127.0.0.1"] {
        let answer = closed.handshake(&format!("Origin: {origin}\r\n"));
        assert_eq!(answer, "HTTP/1.1 403", "{origin}");
    }
    assert_eq!(
        closed.handshake(""),
        "HTTP/1.1 101",
        "a program has no origin"
    );
    await_that("refusals are counted", || {
        closed.metric("ndn_handshakes_refused_total", "origin") >= 3.0
    });

    let settings = "allowed_origins = [\"HTTPS://App.Example:443/\", \"http://localhost:8080\"]\n";
    let open = Router::configured(settings, &["--ndn-allow-origin", "http://[::1]:3000"]);
    for allowed in [
        "https://app.example",
        "http://localhost:8080",
        "http://[::1]:3000",
    ] {
        let answer = open.handshake(&format!("Origin: {allowed}\r\n"));
        assert_eq!(answer, "HTTP/1.1 101", "{allowed}");
    }
    for refused in [
        "http://app.example",
        "https://app.example:444",
        "https://app.example.evil.example",
        "https://evil.example/https://app.example",
        "http://localhost",
        "null",
        "",
    ] {
        let answer = open.handshake(&format!("Origin: {refused}\r\n"));
        assert_eq!(answer, "HTTP/1.1 403", "{refused}");
    }
    let two = "Origin: https://app.example\r\nOrigin: https://evil.example\r\n";
    assert_eq!(open.handshake(two), "HTTP/1.1 403");

    let anybody = Router::configured("allowed_origins = [\"*\"]\n", &[]);
    assert_eq!(anybody.handshake("Origin: null\r\n"), "HTTP/1.1 101");
}

#[test]
fn a_page_takes_no_prefix_from_others_and_yields_to_programs() {
    let router = Router::with(&["--ndn-allow-origin", "https://app.example"]);
    let _bank = router.serve("/bank/statement", b"from the bank", &[]);
    router.prints(&["route", "add", "/", "udp4://127.0.0.1:9"]);
    let mut page = router.page("https://app.example");
    assert_eq!(page.register("/"), 403, "everything");
    assert_eq!(page.register("/bank"), 409, "above");
    assert_eq!(page.register("/bank/statement"), 409, "equal");
    assert_eq!(page.register("/bank/statement/1"), 409, "below");
    assert_eq!(page.register("/localhop"), 409, "above management");
    let capture = page.register_with("/app", Some(ROUTE_CAPTURE));
    assert_eq!(capture.status_code, 200, "{capture}");
    let given = capture.parameters().unwrap().unwrap().flags;
    assert_eq!(given, Some(0), "the answer says that it captures nothing");

    // It answers under its registered prefix.
    let question = Interest {
        nonce: Some([9; 4]),
        ..Interest::new("/app/one".parse::<Name>().unwrap())
    };
    let mut neighbour = patient_tcp(&router.listens("tcp"));
    router.prints(&["route", "remove", "/", "udp4://127.0.0.1:9"]);
    neighbour.write_all(&question.encode()).unwrap();
    let asked = page.receive();
    let asked = InterestRef::decode(&asked).unwrap();
    let answer = Data::new(asked.name.to_name(), b"from the page".to_vec());
    let answer = Message::binary(answer.encode(&DigestSigner));
    page.socket.send(answer).unwrap();
    let mut got = vec![0; 4096];
    let count = neighbour.read(&mut got).unwrap();
    assert!(
        got[..count]
            .windows(13)
            .any(|part| part == b"from the page")
    );

    // A program that registers later gets its prefix exclusively.
    let _app = router.serve("/app", b"from a program", &[]);
    assert_eq!(page.register("/app"), 409);
    assert_eq!(page.register("/app/below"), 409);

    // A page must not be able to register thousands of prefixes per second.
    let statuses: Vec<u64> = (0..100)
        .map(|number| page.register(&format!("/many/{number}")))
        .collect();
    let taken = statuses.iter().filter(|status| **status == 200).count();
    assert!((1..=64).contains(&taken), "{taken}");
    assert_eq!(statuses.last(), Some(&503));
}
