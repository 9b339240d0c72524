//! `whimbrel router run` with programs of other NDN libraries, unchanged: python-ndn, NDNts, and
//! Chromium with NDNts.
//!
//! `scripts/setup --check` installs them into target/interop; `scripts/test` names it in
//! `WHIMBREL_INTEROP`, and then these tests fail without it. `interop/README.md` describes each
//! program and its output.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::support::interop::Interop;
use crate::support::ndn::Router;
use crate::support::{self, Running, finished};
use serde_json::Value;

impl Interop {
    fn by(&self, library: Library, program: &str) -> Command {
        match library {
            Library::Python => self.python(program),
            Library::Ndnts => self.ndnts(program),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Python,
    Ndnts,
}

const LIBRARIES: [Library; 2] = [Library::Python, Library::Ndnts];

impl Router {
    fn unix(&self) -> String {
        format!("unix://{}", self.folder.path().join("nfd.sock").display())
    }

    fn address(&self, kind: &str) -> String {
        self.opened[kind][0].as_str().unwrap().to_owned()
    }

    /// Returns the command with the environment for this router.
    fn told(&self, mut command: Command, uplink: &str) -> Command {
        command
            .env("NDN_CLIENT_TRANSPORT", uplink)
            .env("NDNTS_UPLINK", uplink)
            .env("HOME", self.folder.path());
        command.env(
            "WHIMBREL_NDN_WS",
            format!("ws://{}", self.address("websocket")),
        );
        command.stdin(Stdio::null());
        command
    }

    fn start_program(&self, command: Command, arguments: &[&str]) -> (Running, Value) {
        let mut command = self.told(command, &self.unix());
        let process = Running::start(command.args(arguments));
        let ready = process.await_json(|value| value["event"] == "ready");
        (process, ready)
    }

    /// Returns the last line of a program that ends by itself, which must report success.
    fn outcome(&self, command: Command, arguments: &[&str]) -> Value {
        outcome(&mut self.told(command, &self.unix()), arguments)
    }
}

fn outcome(command: &mut Command, arguments: &[&str]) -> Value {
    let (code, out, errors) = finished(command.args(arguments));
    let last = out.lines().last().unwrap_or_default();
    let value: Value = serde_json::from_str(last).unwrap_or_default();
    assert!(
        code == 0 && value["ok"] == true,
        "{command:?}\nexit {code}\n{out}\n{errors}"
    );
    value
}

#[test]
fn consumers_of_either_library_reach_producers_of_either() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let router = Router::start();
    for producer in LIBRARIES {
        let prefix = format!("/pair/{producer:?}");
        let content = format!("from {producer:?}");
        let serve = [prefix.as_str(), "--content", &content];
        let (_serving, _) = router.start_program(interop.by(producer, "producer"), &serve);
        for consumer in LIBRARIES {
            let name = format!("{prefix}/for/{consumer:?}");
            let got = router.outcome(
                interop.by(consumer, "consumer"),
                &[&name, "--verify", "digest"],
            );
            assert_eq!(got["content"], content, "{producer:?} to {consumer:?}");
            let longer = format!("{prefix}/with/{consumer:?}");
            let arguments = [
                longer.as_str(),
                "--parameters",
                "question",
                "--lifetime",
                "2000",
            ];
            router.outcome(interop.by(consumer, "consumer"), &arguments);
        }
    }
}

#[test]
fn both_libraries_work_over_every_transport() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let router = Router::start();
    let (_serving, _) = router.start_program(
        interop.python("producer"),
        &["/everywhere", "--content", "here"],
    );
    let uplinks = [
        format!("tcp://{}", router.address("tcp")),
        format!("udp://{}", router.address("udp")),
        format!("ws://{}", router.address("websocket")),
    ];
    for uplink in &uplinks {
        for library in LIBRARIES {
            if library == Library::Python && uplink.starts_with("ws") {
                continue;
            }
            let mut consumer = router.told(interop.by(library, "consumer"), uplink);
            let name = format!("/everywhere/{library:?}/{}", &uplink[..3]);
            assert_eq!(
                outcome(&mut consumer, &[&name])["content"],
                "here",
                "{library:?} by {uplink}"
            );
        }
    }
    for uplink in &uplinks {
        for library in LIBRARIES {
            // UDP is not local, as in NFD: python-ndn registers under /localhost nevertheless,
            // NDNts under /localhop, where a neighbour's commands must be signed. By WebSocket it
            // may register, as browsers do.
            let refused = uplink.starts_with("udp")
                || (library == Library::Python && uplink.starts_with("ws"));
            if refused {
                continue;
            }
            let prefix = format!("/from/{library:?}/{}", &uplink[..3]);
            let mut producer = router.told(interop.by(library, "producer"), uplink);
            let process = Running::start(producer.args([prefix.as_str(), "--content", "there"]));
            process.await_json(|value| value["event"] == "ready");
            let got = router.outcome(interop.python("consumer"), &[&format!("{prefix}/x")]);
            assert_eq!(got["content"], "there", "{library:?} by {uplink}");
        }
    }
}

/// Relays datagrams of up to `largest` bytes between a caller and `to`, for as long as the test's
/// process lives. Returns its address.
fn narrow_relay(to: &str, largest: usize) -> String {
    let inside = UdpSocket::bind("127.0.0.1:0").unwrap();
    let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
    outside.connect(to).unwrap();
    let address = inside.local_addr().unwrap().to_string();
    let caller = Arc::new(OnceLock::new());
    let (back, forth) = (inside.try_clone().unwrap(), outside.try_clone().unwrap());
    let known = Arc::clone(&caller);
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok((length, from)) = inside.recv_from(&mut buffer) {
            let _ = known.set(from);
            if length <= largest {
                let _ = forth.send(&buffer[..length]);
            }
        }
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(length) = outside.recv(&mut buffer) {
            if let Some(caller) = caller.get().filter(|_| length <= largest) {
                let _ = back.send_to(&buffer[..length], caller);
            }
        }
    });
    address
}

#[test]
fn a_file_reaches_ndnts_through_a_path_that_drops_large_packets() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let router = Router::configured("mtu = 1500\n", &[]);
    let arguments = ["/narrow/file", "--size", "200000"];
    let (_serving, ready) = router.start_program(interop.ndnts("put"), &arguments);
    let sha256 = ready["sha256"].as_str().unwrap();
    let relay = narrow_relay(&router.address("udp"), 1_372);
    let started = Instant::now();
    let mut get = router.told(interop.ndnts("get"), &format!("udp://{relay}"));
    let got = outcome(&mut get, &["/narrow/file", "--sha256", sha256]);
    println!("200,000 bytes after {:.2?}", started.elapsed());
    assert_eq!(got["bytes"], 200_000);
}

#[test]
fn segmented_files_pass_between_the_libraries_both_ways() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let router = Router::start();
    for producer in LIBRARIES {
        let name = format!("/files/{producer:?}");
        let (_serving, ready) =
            router.start_program(interop.by(producer, "put"), &[&name, "--size", "1000000"]);
        let sha256 = ready["sha256"].as_str().unwrap();
        for consumer in LIBRARIES {
            let got = router.outcome(interop.by(consumer, "get"), &[&name, "--sha256", sha256]);
            assert_eq!(got["bytes"], 1_000_000, "{producer:?} to {consumer:?}");
        }
    }
}

/// The last router stands in for a producer that knows no path tags ([PTP §3-A]): its programs see
/// Interests as ever, and consumers get whole paths.
#[test]
fn producers_of_either_library_serve_consumers_that_specify_paths() {
    let Some(interop) = Interop::find() else {
        return;
    };
    for library in LIBRARIES {
        let last = Router::start();
        let content = support::noise(2_000_000, 7);
        let file = last.path("film");
        std::fs::write(&file, &content).unwrap();
        let serve = ["/film", "--file", file.to_str().unwrap()];
        let (_serving, _) = last.start_program(interop.by(library, "put"), &serve);
        let to = |router: &Router| format!("/film={}", router.tcp());
        let left = Router::with(&["--ndn-route", &to(&last)]);
        let right = Router::with(&["--ndn-route", &to(&last)]);
        let first = Router::with(&["--ndn-route", &to(&left), "--ndn-route", &to(&right)]);
        let got = first.path("got");
        let done = first.json(&[
            "ndn",
            "get",
            "/film",
            "-o",
            got.to_str().unwrap(),
            "--paths",
            "4",
            "--probe-interval",
            "5 ms",
        ]);
        assert!(std::fs::read(&got).unwrap() == content, "{library:?}");
        let rows = done["stats"]["paths"].as_array().unwrap();
        let used = rows.iter().filter(|row| row["use"] == "path");
        let hops: Vec<u64> = used.map(|row| row["hops"].as_u64().unwrap()).collect();
        assert_eq!(hops, [3, 3], "{library:?}: {done}");
    }
}

#[test]
fn commands_signed_in_every_way_register_and_are_obeyed() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let router = Router::start();
    let ways: [(Library, &[&str]); 5] = [
        (Library::Python, &["--command-sign", "digest"]),
        (Library::Python, &["--command-sign", "keychain"]),
        (Library::Python, &["--api", "v1"]),
        (Library::Ndnts, &["--command-sign", "digest"]),
        (Library::Ndnts, &["--command-sign", "keychain"]),
    ];
    for (at, (library, way)) in ways.into_iter().enumerate() {
        let prefix = format!("/way/{at}");
        let mut arguments = vec![prefix.as_str(), "--content", "served"];
        arguments.extend(way);
        let (_serving, _) = router.start_program(interop.by(library, "producer"), &arguments);
        let got = router.outcome(interop.python("consumer"), &[&format!("{prefix}/x")]);
        assert_eq!(got["content"], "served", "{library:?} {way:?}");
    }
}

#[test]
fn management_answers_both_libraries() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let router = Router::start();
    for library in LIBRARIES {
        router.outcome(interop.by(library, "manage"), &["status"]);
        router.outcome(interop.by(library, "manage"), &["walk"]);
        router.outcome(interop.by(library, "manage"), &["burst", "--count", "200"]);
    }
    router.outcome(interop.python("manage"), &["replay"]);
}

#[test]
fn the_programs_included_in_python_ndn_work() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let router = Router::start();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = router.told(interop.python_own(program), &router.unix());
        let (code, out, errors) = finished(command.args(arguments));
        assert!(
            code == 0 && !errors.contains("Traceback"),
            "{program} {arguments:?}: {code}\n{out}\n{errors}"
        );
        out
    };
    assert!(run("pynfdc", &["status"]).contains("General status"));
    assert!(run("pynfdc", &["face"]).contains("internal://"));
    run("pynfdc", &["nf", "udp4://127.0.0.1:7"]);
    assert!(run("pynfdc", &["face"]).contains("udp4://127.0.0.1:7"));
    assert!(run("pynfdc", &["route"]).contains("/localhost/nfd"));
    assert!(run("pynfdc", &["strategy"]).contains("/localhost/nfd/strategy/best-route"));
    run(
        "pynfdc",
        &["ss", "/group", "/localhost/nfd/strategy/multicast"],
    );
    assert!(run("pynfdc", &["strategy"]).contains("/localhost/nfd/strategy/multicast"));

    let file = router.folder.path().join("file");
    let content = support::noise(300_000, 7);
    std::fs::write(&file, &content).unwrap();
    let file = file.to_str().unwrap();
    let mut putchunks = router.told(interop.python_own("pyndntools"), &router.unix());
    let _serving = Running::start(putchunks.args(["putchunks", "/own/file", file]));
    let copy = router.folder.path().join("copy");
    let caught = (0..20).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(250));
        run(
            "pyndntools",
            &["catchunks", "-o", copy.to_str().unwrap(), "/own/file"],
        );
        std::fs::read(&copy).is_ok_and(|read| read == content)
    });
    assert!(caught, "catchunks never got the content of putchunks");
}

#[test]
fn unserved_names_are_refused_and_hints_are_followed() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let router = Router::start();
    for library in LIBRARIES {
        router.outcome(
            interop.by(library, "consumer"),
            &["/nobody/there", "--expect", "nack"],
        );
        let hinted = format!("/region/{library:?}");
        let (_serving, _) = router.start_program(
            interop.by(library, "producer"),
            &["/far/content", "--register", &hinted, "--content", "hinted"],
        );
        for consumer in LIBRARIES {
            let name = format!("/far/content/{library:?}/{consumer:?}");
            let arguments = [name.as_str(), "--forwarding-hint", hinted.as_str()];
            let got = router.outcome(interop.by(consumer, "consumer"), &arguments);
            assert_eq!(got["content"], "hinted", "{library:?} to {consumer:?}");
        }
    }
}

#[test]
fn pit_tokens_of_every_length_come_back() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let router = Router::start();
    let (_serving, _) =
        router.start_program(interop.ndnts("producer"), &["/tokens", "--content", "x"]);
    router.outcome(
        interop.python("pit_token"),
        &["/tokens/data", "--expect", "data"],
    );
    router.outcome(
        interop.python("pit_token"),
        &["/no/such", "--expect", "nack"],
    );
}

#[test]
fn groups_synchronise_over_multicast() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let router = Router::start();
    for library in LIBRARIES {
        let group = format!("/group/{library:?}");
        let node = |node: &str| {
            let mut command = router.told(interop.by(library, "svs"), &router.unix());
            command.args([group.as_str(), node, "--peers", "1", "--publish", "2"]);
            command
        };
        // Each stays until both have heard of the other.
        let nodes = ["/one", "/two"].map(|name| Running::start(&mut node(name)));
        for node in &nodes {
            node.await_json(|line| line["event"] == "heard");
        }
    }
}

#[test]
fn a_browser_serves_and_fetches() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let port = free_tcp_port().to_string();
    let origin = format!("http://127.0.0.1:{port}");
    let router = Router::with(&["--ndn-allow-origin", &origin]);
    let (_serving, ready) =
        router.start_program(interop.python("put"), &["/to/browser", "--size", "200000"]);
    let sha256 = ready["sha256"].as_str().unwrap();
    let page = ["--page-port", &port];
    let get = ["--get", "/to/browser", "--sha256", sha256];
    router.outcome(interop.ndnts("browser"), &[&page[..], &get].concat());
    let serve = ["--serve", "/from/browser", "--size", "200000"];
    let (mut browser, ready) =
        router.start_program(interop.ndnts("browser"), &[&page[..], &serve].concat());
    let sha256 = ready["sha256"].as_str().unwrap();
    router.outcome(
        interop.python("get"),
        &["/from/browser", "--sha256", sha256],
    );
    // Killed, it could not end the browser's processes, which would go on for as long as the machine.
    browser.signal("TERM");
    assert_eq!(browser.exit_code(), 0);
}

#[test]
fn a_browser_gets_no_face_for_a_page_that_is_not_allowed() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let other = ["--ndn-allow-origin", "https://app.example"];
    let router = Router::with(&[&other[..], &["--metrics", "127.0.0.1:0"]].concat());
    let (_serving, _) = router.start_program(interop.python("put"), &["/to/browser"]);
    let mut browser = router.told(interop.ndnts("browser"), &router.unix());
    let (code, out, errors) = finished(browser.args(["--get", "/to/browser"]));
    let last: Value = serde_json::from_str(out.lines().last().unwrap_or_default()).unwrap();
    assert!(code == 1 && last["ok"] == false, "{out}\n{errors}");
    let refused = router.metric("ndn_handshakes_refused_total", "origin");
    assert!(refused >= 1.0, "{out}\n{errors}");
    assert!(!router.prints(&["face", "list"]).contains("wsclient://"));
}

/// Returns a TCP port that was free a moment ago.
fn free_tcp_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Runs in a separate namespace, because the socket and ports of NFD belong to the machine.
#[test]
fn without_configuration_it_listens_where_programs_look_for_nfd() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let script = r#"
        set -e
        trap 'kill $(jobs -p) 2>/dev/null' EXIT
        mount -t tmpfs tmpfs /run
        ip link set lo up
        "$WHIMBREL" router run >"$HOME/router.out" & ROUTER=$!
        for _ in $(seq 100); do [ -S /run/nfd/nfd.sock ] && break; sleep 0.1; done
        "$PYTHON" "$SOURCES/python/producer.py" /default --content "from python" >"$HOME/producer.out" &
        for _ in $(seq 100); do grep -q ready "$HOME/producer.out" && break; sleep 0.1; done
        "$PYTHON" "$SOURCES/python/consumer.py" /default/one
        "$NODE" "$SOURCES/ndnts/consumer.mjs" /default/two
        NDN_CLIENT_TRANSPORT=tcp://127.0.0.1 "$PYTHON" "$SOURCES/python/consumer.py" /default/three
        kill $ROUTER
        wait $ROUTER
        cat "$HOME/router.out"
    "#;
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "--net", "bash", "-c", script]);
    command
        .env_remove("NDN_CLIENT_TRANSPORT")
        .env_remove("NDNTS_UPLINK")
        .env("HOME", home.path());
    command
        .env("WHIMBREL", env!("CARGO_BIN_EXE_whimbrel"))
        .env("SOURCES", &interop.sources);
    command.env("PYTHON", interop.installed.join("python/bin/python"));
    command.env("NODE", interop.installed.join("node"));
    let (code, out, errors) = finished(&mut command);
    assert_eq!(code, 0, "{out}\n{errors}");
    assert_eq!(out.matches("from python").count(), 3, "{out}\n{errors}");
    assert!(
        out.contains("/run/nfd/nfd.sock") && out.contains(":6363") && out.contains(":9696"),
        "{out}"
    );
}

#[test]
fn tshark_and_python_ndn_accept_the_packets_between_routers() {
    let Some(interop) = Interop::find() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    // The file may be larger than a datagram, so that there are fragments; numbered frames and Acks
    // of NDNLPv2.
    let script = r#"
        set -e
        trap 'kill $(jobs -p)' EXIT
        ip link set lo up mtu 1500
        printf '[ndn]\nmulticast = false\nreliability = "ndnlpv2"\n' >"$HOME/router.toml"
        for n in 1 2; do
            "$WHIMBREL" router run --quiet --config "$HOME/router.toml" --ndn-socket "$HOME/$n.sock" \
                --ndn-listen 127.0.0.$n:6363 --ndn-websocket 127.0.0.$n:0 >/dev/null &
        done
        for _ in $(seq 100); do [ -S "$HOME/1.sock" ] && [ -S "$HOME/2.sock" ] && break; sleep 0.1; done
        tshark -q -i lo -f 'udp port 6363' -w "$HOME/capture" 2>"$HOME/tshark.err" & TSHARK=$!
        for _ in $(seq 200); do [ -s "$HOME/capture" ] && break; sleep 0.1; done
        export NDN_CLIENT_TRANSPORT="unix://$HOME/1.sock"
        "$WHIMBREL" route add /far udp4://127.0.0.2:6363 >/dev/null
        head -c 60000 /dev/urandom >"$HOME/file"
        NDN_CLIENT_TRANSPORT="unix://$HOME/2.sock" "$WHIMBREL" ndn serve /far/file "$HOME/file" --signing digest --json >"$HOME/serve.out" &
        for _ in $(seq 100); do grep -q registered "$HOME/serve.out" && break; sleep 0.1; done
        "$WHIMBREL" ndn get /far/file --quiet -o "$HOME/got"
        cmp "$HOME/file" "$HOME/got"
        # A Nack: nobody serves this there.
        "$WHIMBREL" ndn peek /far/none --lifetime 500 >/dev/null 2>&1 || true
        sleep 0.3
        kill -TERM $TSHARK
        wait $TSHARK || true
        count() { tshark -r "$HOME/capture" -X lua_script:"$SOURCES/capture/ndn.lua" -Y "$1" 2>/dev/null | wc -l; }
        echo "packets $(count ndn) malformed $(count ndn.malformed) unknown $(count ndn.unknown) fragments $(count ndn.lp.frag_count)" \
            "acks $(count ndn.lp.ack) numbered $(count ndn.lp.tx_sequence) nacks $(count ndn.lp.nack)"
        "$PYTHON" "$SOURCES/python/dissect.py" "$HOME/capture"
    "#;
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "bash", "-c", script]);
    command
        .env_remove("NDN_CLIENT_TRANSPORT")
        .env("HOME", home.path());
    command
        .env("WHIMBREL", env!("CARGO_BIN_EXE_whimbrel"))
        .env("SOURCES", &interop.sources);
    command.env("PYTHON", interop.installed.join("python/bin/python"));
    let (code, out, errors) = finished(&mut command);
    assert_eq!(code, 0, "{out}\n{errors}");
    let counts = out
        .lines()
        .find(|line| line.starts_with("packets"))
        .unwrap_or_default();
    let count = |what: &str| -> u32 {
        let mut words = counts
            .split_whitespace()
            .skip_while(|word| *word != what)
            .skip(1);
        words
            .next()
            .and_then(|count| count.parse().ok())
            .unwrap_or_else(|| panic!("{what} in {counts:?}"))
    };
    assert_eq!((count("malformed"), count("unknown")), (0, 0), "{counts}");
    for seen in ["packets", "fragments", "acks", "numbered", "nacks"] {
        assert!(count(seen) > 0, "{seen}: {counts}");
    }
}
