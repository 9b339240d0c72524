//! Measurements of `whimbrel tcp-proxy` under load, by hand:
//!
//! `cargo test --release -p whimbrel --test all tcp_proxy_load:: -- --ignored --nocapture --test-threads 1`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]
#![allow(clippy::print_stdout, reason = "measurements are printed")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::PATIENCE;
use crate::support::sites::{CURL, SERVER, Sites};
use crate::support::wireguard::Tunnel;
use serde_json::Value;
use whimbrel_lab::{Namespace, lab_available};

const PORT: u16 = 7;

/// Allows this process as many files as it may have: both ends of 10,000 connections, or as many as fit.
/// Returns how many files that are.
fn raise_file_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    maximum
        .and_then(|it| usize::try_from(it).ok())
        .unwrap_or(usize::MAX)
}

/// Files that a test has open beside its connections.
const OTHER_FILES: usize = 500;

/// Answers every connection with what it sends, from one thread.
fn echo(host: &Namespace) {
    let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
    let listener = host.enter(|| TcpListener::bind(address)).unwrap().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let mut streams: Vec<TcpStream> = Vec::new();
        let mut block = vec![0; 1 << 16];
        loop {
            let mut idle = true;
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).unwrap();
                stream.set_nodelay(true).unwrap();
                streams.push(stream);
                idle = false;
            }
            streams.retain_mut(|stream| match stream.read(&mut block) {
                Ok(0) => false,
                Ok(count) => {
                    idle = false;
                    let mut rest = &block[..count];
                    while !rest.is_empty() {
                        match stream.write(rest) {
                            Ok(written) => rest = &rest[written..],
                            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                                std::thread::yield_now();
                            }
                            Err(_) => return false,
                        }
                    }
                    true
                }
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            });
            if idle && streams.len() > 8 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
}

fn connect(host: &Namespace, server: Ipv4Addr) -> TcpStream {
    let address = SocketAddrV4::new(server, PORT).into();
    let stream = host
        .enter(|| TcpStream::connect_timeout(&address, PATIENCE))
        .unwrap()
        .unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn round_trip(stream: &mut TcpStream) -> Duration {
    let start = Instant::now();
    stream.write_all(&[7]).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    start.elapsed()
}

/// Median and 95th percentile of many round trips of one octet.
fn latency(host: &Namespace, server: Ipv4Addr) -> (Duration, Duration) {
    let mut stream = connect(host, server);
    for _ in 0..1000 {
        round_trip(&mut stream);
    }
    let mut times: Vec<Duration> = (0..10_000).map(|_| round_trip(&mut stream)).collect();
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 95 / 100])
}

#[test]
#[ignore = "a measurement"]
fn latency_of_a_segment() {
    if !lab_available() {
        return;
    }
    let sites = Sites::fast(&[]);
    let [a, b] = ["a", "b"].map(|name| sites.topology.host(name).unwrap());
    echo(b);
    let plain = sites.topology.address_of("b", "ab").unwrap();
    for (name, server) in [("plain veth", plain), ("proxies", SERVER)] {
        let (median, high) = latency(a, server);
        println!(
            "{name}: a round trip of one octet takes {median:.1?} (median), {high:.1?} (95 %)"
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn many_connections() {
    if !lab_available() {
        return;
    }
    let idle = 10_000.min((raise_file_limit() - OTHER_FILES) / 2);
    let sites = Sites::fast(&[]);
    let [a, b] = ["a", "b"].map(|name| sites.topology.host(name).unwrap());
    for host in [a, b] {
        host.set_sysctl("net.core.somaxconn", "4096").unwrap();
    }
    echo(b);
    let opened =
        |count: usize| -> Vec<TcpStream> { (0..count).map(|_| connect(a, SERVER)).collect() };
    let start = Instant::now();
    let mut busy = opened(1000);
    println!("1,000 connections open after {:.2?}", start.elapsed());
    let start = Instant::now();
    // All at once: 64 KiB there and back on each.
    let block: Vec<u8> = (0..1 << 16).map(|at| (at % 251) as u8).collect();
    for stream in &mut busy {
        stream.write_all(&block).unwrap();
    }
    for stream in &mut busy {
        let mut got = vec![0; block.len()];
        stream.read_exact(&mut got).unwrap();
        assert!(got == block, "the bytes differ");
    }
    let elapsed = start.elapsed();
    println!("1,000 connections, 64 KiB each way on each at once: {elapsed:.2?}");
    drop(busy);
    let start = Instant::now();
    let mut idle = opened(idle);
    let count = idle.len();
    println!("{count} connections open after {:.2?}", start.elapsed());
    std::thread::sleep(Duration::from_secs(60));
    let known = sites.status("a")["connections"]
        .as_array()
        .map_or(0, Vec::len);
    let start = Instant::now();
    for stream in &mut idle {
        round_trip(stream);
    }
    println!(
        "after 60 s of silence the proxy knows {known} connections; all {count} answer, one after the other in {:.2?}",
        start.elapsed()
    );
    for site in ["a", "b"] {
        let counters = &sites.status(site)["counters"];
        println!("{site}: {counters}");
    }
}

/// Connections that nobody answers, more than the proxies keep: another one goes on, and a new one opens.
#[test]
#[ignore = "a measurement; needs nftables"]
fn flood_of_half_open_connections() {
    const SILENT: u16 = 9;
    if !lab_available() {
        return;
    }
    let flood = 20_000.min(raise_file_limit() - OTHER_FILES);
    let sites = Sites::fast(&[]);
    let [a, b] = ["a", "b"].map(|name| sites.topology.host(name).unwrap());
    echo(b);
    let rules = format!(
        "add table inet silent\n\
         add chain inet silent input {{ type filter hook input priority 0; }}\n\
         add rule inet silent input tcp dport {SILENT} drop\n"
    );
    b.run_with_input("nft", &["-f", "-"], &rules).unwrap();
    let mut before = connect(a, SERVER);
    let start = Instant::now();
    let syns = || (0..flood).map(|_| half_open(SERVER, SILENT)).collect();
    let sockets: Vec<OwnedFd> = a.enter(syns).unwrap();
    println!("{flood} SYNs in {:.2?}", start.elapsed());
    println!(
        "an open connection answers in {:.2?}",
        round_trip(&mut before)
    );
    let start = Instant::now();
    let mut after = connect(a, SERVER);
    println!("a new one is open after {:.2?}", start.elapsed());
    println!("and answers in {:.2?}", round_trip(&mut after));
    for site in ["a", "b"] {
        let status = sites.status(site);
        let known = status["connections"].as_array().map_or(0, Vec::len);
        let forgotten = &status["counters"]["opening_forgotten"];
        println!("{site}: knows {known} connections, forgot {forgotten} half-open ones");
    }
    drop(sockets);
}

/// Sends a SYN and waits for nothing.
fn half_open(server: Ipv4Addr, port: u16) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    let begun = connect(&socket, &SocketAddrV4::new(server, port));
    assert!(
        matches!(begun, Err(rustix::io::Errno::INPROGRESS)),
        "{begun:?}"
    );
    socket
}

/// The time until curl has the first byte of an answer, and all of a small one, on a path with a round
/// trip of 10 ms.
#[test]
#[ignore = "a measurement; needs curl"]
fn first_byte() {
    const FETCHES: usize = 41;
    if !lab_available() {
        return;
    }
    let sites = Sites::new(0.0, "", &[]);
    let plain = sites.topology.address_of("b", "ab").unwrap();
    let file = sites.path("file");
    std::fs::write(&file, vec![7; 1000]).unwrap();
    let _servers = [SERVER, plain].map(|address| sites.serve_at(address, &file));
    let host = sites.topology.host("a").unwrap();
    let fetch = |server: Ipv4Addr| -> f64 {
        let url = format!("http://{server}/file");
        let output = ["--output", "/dev/null", "--write-out"];
        let wanted = ["%{time_starttransfer}", &url];
        let out = host
            .run("curl", &[&CURL[..], &output, &wanted].concat())
            .unwrap();
        out.parse::<f64>().unwrap() * 1e3
    };
    // Taking turns, so that what else the machine does affects both.
    let [mut proxies, mut plain]: [Vec<f64>; 2] = {
        let pairs = (0..FETCHES).map(|_| (fetch(SERVER), fetch(plain)));
        let (proxies, plain) = pairs.unzip();
        [proxies, plain]
    };
    for (name, times) in [("proxies", &mut proxies), ("plain", &mut plain)] {
        times.sort_unstable_by(f64::total_cmp);
        let (least, median) = (times[0], times[FETCHES / 2]);
        println!(
            "{name}: the first byte comes after {median:.2} ms (median), {least:.2} ms (least)"
        );
    }
}

fn iperf(host: &Namespace, server: Ipv4Addr, arguments: &[&str]) -> f64 {
    let server = server.to_string();
    let mut all = vec!["-c", &server, "--json", "-t", "8", "-O", "1"];
    all.extend(arguments);
    let output = host.run("iperf3", &all).expect("iperf3 is installed");
    let output: Value = serde_json::from_str(&output).unwrap();
    output["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .unwrap()
        / 1e6
}

/// One row of the table: a way, and its rate with one stream and with four.
fn row(name: &str, client: &Namespace, server: Ipv4Addr) {
    let rates = [&[][..], &["-P", "4"]].map(|streams| iperf(client, server, streams));
    println!("| {name} | {:.0} | {:.0} |", rates[0], rates[1]);
}

/// Through the proxies, beside a tunnel of userspace WireGuard and the bare link, in one run
/// (`scripts/throughput`).
#[test]
#[ignore = "a measurement; needs iperf3"]
fn throughput() {
    if !lab_available() {
        return;
    }
    println!("| Mbit/s | one stream | four streams |\n|---|---|---|");
    for (name, options) in [
        ("proxies, encrypted", &[][..]),
        ("proxies, authenticated", &["--protection", "authenticate"]),
        ("proxies, not protected", &["--protection", "none"]),
    ] {
        let sites = Sites::fast(options);
        let [a, b] = ["a", "b"].map(|name| sites.topology.host(name).unwrap());
        let mut command = Command::new("iperf3");
        command.arg("-s").stdout(Stdio::null()).stdin(Stdio::null());
        let _server = b.spawn(command).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        if options.is_empty() {
            let plain = sites.topology.address_of("b", "ab").unwrap();
            row("plain veth", a, plain);
            match Tunnel::start(&sites.topology) {
                Some(_tunnel) => row("WireGuard (boringtun), encrypted", a, Tunnel::SERVER),
                None => println!("SKIPPED: no boringtun; scripts/throughput installs it"),
            }
        }
        row(name, a, SERVER);
    }
}
