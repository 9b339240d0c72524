//! The web through the proxies: curl against servers of the test, with the real daemons between.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::origin::{Origin, answer};
use crate::support::web::Web;
use crate::support::{Network, await_that, noise};

#[test]
fn requests_and_answers_pass_as_they_are() {
    let network = Network::start(None);
    let web = Web::start(&network);
    let large = noise(3 << 20, 1);
    let sent = large.clone();
    let origin = Origin::start(move |asked, stream| match asked.target.as_str() {
        "/large" => answer(
            stream,
            "200 OK",
            "Content-Type: application/x-noise\r\n",
            &large,
        ),
        "/missing" => answer(stream, "404 Not Found", "", b"nothing here"),
        "/echo" => answer(stream, "200 OK", "", &asked.body),
        "/chunked" => {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            for _ in 0..100 {
                stream.write_all(b"5\r\nhello\r\n").unwrap();
            }
            stream.write_all(b"0\r\n\r\n").unwrap();
        }
        "/empty" => answer(stream, "204 No Content", "", b""),
        _ => answer(
            stream,
            "200 OK",
            "X-One: 1\r\nX-One: 2\r\nKeep-Alive: 5\r\n",
            b"hello",
        ),
    });
    let url = |path: &str| origin.url(path);
    assert_eq!(web.text(&[&url("/")]), "hello");
    assert_eq!(web.fetch(&[&url("/large")]), sent);
    let head = web.text(&["-i", &url("/")]);
    assert!(head.contains("x-one: 1\r\nx-one: 2\r\n"), "{head}");
    assert!(!head.to_lowercase().contains("keep-alive: 5"), "{head}");
    let missing = web.text(&["-w", " %{http_code}", &url("/missing")]);
    assert_eq!(missing, "nothing here 404");
    assert_eq!(web.text(&[&url("/chunked")]), "hello".repeat(100));
    assert_eq!(web.text(&["-w", "%{http_code}", &url("/empty")]), "204");
    let head = web.text(&["-I", &url("/large")]);
    assert!(head.contains("content-length: 3145728"), "{head}");
    // Bodies of requests: of a known length, and of none.
    let file = network.path("upload");
    std::fs::write(&file, &sent).unwrap();
    let upload = format!("@{}", file.display());
    assert_eq!(web.fetch(&["--data-binary", &upload, &url("/echo")]), sent);
    let chunked = [
        "-H",
        "Transfer-Encoding: chunked",
        "--data-binary",
        &upload,
        &url("/echo"),
    ];
    assert_eq!(web.fetch(&chunked), sent);
    // What the server sees.
    let asked = origin.asked();
    let first = &asked[0];
    assert_eq!(first.headers["host"], origin.address.to_string());
    assert!(first.headers["via"].contains("whimbrel"));
    assert!(!first.headers.contains_key("proxy-connection"));
}

#[test]
fn the_first_octets_pass_before_the_last_are_known() {
    let network = Network::start(None);
    let web = Web::start(&network);
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfirst")
            .unwrap();
        wait.lock().unwrap().recv().unwrap();
        stream.write_all(b" last").unwrap();
    });
    let proxy = web.proxy.trim_start_matches("http://");
    let mut program = TcpStream::connect(proxy).unwrap();
    program
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        origin.url("/")
    );
    program.write_all(request.as_bytes()).unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains("first") {
        let count = program.read(&mut buffer).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..count]);
    }
    go.send(()).unwrap();
    program.read_to_end(&mut seen).unwrap();
    assert!(String::from_utf8_lossy(&seen).contains("last"));
}

#[test]
fn tunnels_carry_tls_both_ways() {
    let network = Network::start(None);
    let web = Web::start(&network);
    // Any bytes do: the proxies see only bytes.
    let echo = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = echo.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in echo.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                let _ = std::io::copy(&mut from, &mut to);
                // The other direction is closed: half-close passes.
                let _ = to.write_all(b"end");
            });
        }
    });
    let proxy = web.proxy.trim_start_matches("http://");
    let mut program = TcpStream::connect(proxy).unwrap();
    program
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    write!(
        program,
        "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"
    )
    .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        program.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(
        head.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&head)
    );
    let data = noise(2 << 20, 3);
    let (mut writer, sent) = (program.try_clone().unwrap(), data.clone());
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    program.read_to_end(&mut back).unwrap();
    writing.join().unwrap();
    assert_eq!(back, [&data[..], b"end"].concat());
}

#[test]
fn a_site_is_no_open_relay() {
    let network = Network::start(None);
    let origin = Origin::start(|_, stream| answer(stream, "200 OK", "", b"secret"));
    let code = ["-w", "%{http_code}", "-o", "/dev/null"];
    // Addresses of the site are refused, by whatever name.
    let web = Web::with(&network, &["--from", "anyone"], &[]);
    let port = origin.address.port();
    for host in [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "10.0.0.1",
    ] {
        let url = format!("http://{host}:{port}/");
        let got = web.text(&[&code[..], &["-g", &url]].concat());
        assert!(["403", "502"].contains(&got.as_str()), "{host}: {got}");
    }
    let tunnel = format!("https://127.0.0.1:{port}/");
    let refused = web.curl(&[&tunnel]).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("403"), "{text}");
    assert!(origin.asked().is_empty());
    drop(web);
    // A caller that is not on the list.
    let other = "ab".repeat(32);
    let web = Web::with(&network, &["--from", &other, "--allow", "127.0.0.1"], &[]);
    let url = origin.url("/");
    assert_eq!(web.text(&[&code[..], &[&url]].concat()), "403");
    assert!(origin.asked().is_empty());
    drop(web);
    // One that is.
    let client = network.guid_of("host-1");
    let web = Web::with(&network, &["--from", &client, "--allow", "127.0.0.1"], &[]);
    assert_eq!(web.text(&[&url]), "secret");
}

#[test]
fn a_named_server_of_another_site_is_reached_by_its_name() {
    let network = Network::start(None);
    let origin = Origin::start(|asked, stream| {
        answer(stream, "200 OK", "", asked.target.as_bytes());
    });
    let published = origin.address.to_string();
    let web = Web::with(
        &network,
        &["--from", "anyone", "--publish", &published],
        &[],
    );
    let (first, last) = web.names[1].split_at(32);
    let url = format!("http://{first}.{last}.whimbrel/a/b?c=d");
    assert_eq!(web.text(&[&url]), "/a/b?c=d");
    assert_eq!(origin.asked()[0].headers["host"], published);
    // Nothing else of that site.
    let other = Origin::start(|_, stream| answer(stream, "200 OK", "", b"no"));
    let got = web.text(&["-w", " %{http_code}", &other.url("/")]);
    assert!(got.ends_with("403"), "{got}");
    let unknown = web.text(&["-w", " %{http_code}", "http://nobody.whimbrel/"]);
    assert!(unknown.ends_with("404"), "{unknown}");
}

#[test]
fn a_download_and_a_tunnel_survive_an_outage_of_the_last_hop() {
    let network = Network::start(Some("20 Mbit/s"));
    let web = Web::start(&network);
    let body = noise(8 << 20, 5);
    let sent = body.clone();
    let origin = Origin::start(move |_, stream| answer(stream, "200 OK", "", &sent));
    let file = network.path("download");
    let tunnelled = network.path("tunnelled");
    let start = |file: &std::path::Path, tunnel: bool| {
        let mut curl = web.curl(&["-o", file.to_str().unwrap(), &origin.url("/")]);
        if tunnel {
            curl.arg("--proxytunnel");
        }
        curl.spawn().unwrap()
    };
    let mut programs = [start(&file, false), start(&tunnelled, true)];
    let length = |file| std::fs::metadata(file).map_or(0, |about| about.len());
    await_that("both have begun", || {
        length(&file) > 100_000 && length(&tunnelled) > 100_000
    });
    // The router of the client's host says nothing for a while.
    let router = network.routers[1].as_ref().unwrap();
    router.signal("STOP");
    std::thread::sleep(Duration::from_secs(4));
    let before = (length(&file), length(&tunnelled));
    assert!(
        before.0 < body.len() as u64 && before.1 < body.len() as u64,
        "too quick for this test"
    );
    router.signal("CONT");
    for program in &mut programs {
        assert!(program.wait().unwrap().success());
    }
    assert!(std::fs::read(&file).unwrap() == body && std::fs::read(&tunnelled).unwrap() == body);
    assert_eq!(origin.asked().len(), 2);
}

#[test]
fn a_thousand_connections_share_the_proxies() {
    const CONNECTIONS: usize = 1000;
    let network = Network::start(None);
    let web = Web::start(&network);
    // Nothing is answered before all have asked.
    let all = std::sync::Arc::new(std::sync::Barrier::new(CONNECTIONS));
    let origin = Origin::start(move |asked, stream| {
        all.wait();
        answer(stream, "200 OK", "", asked.target.as_bytes());
    });
    let proxy = web.proxy.trim_start_matches("http://");
    let programs = (0..CONNECTIONS).map(|number| {
        let mut program = TcpStream::connect(proxy).unwrap();
        let patience = Some(Duration::from_secs(120));
        program.set_read_timeout(patience).unwrap();
        let url = origin.url(&format!("/{number}"));
        let request = format!("GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        program.write_all(request.as_bytes()).unwrap();
        program
    });
    let programs: Vec<TcpStream> = programs.collect();
    for (number, mut program) in programs.into_iter().enumerate() {
        let mut text = String::new();
        program.read_to_string(&mut text).unwrap();
        let is_right = text.starts_with("HTTP/1.1 200") && text.ends_with(&format!("/{number}"));
        assert!(is_right, "{number}: {text}");
    }
}
