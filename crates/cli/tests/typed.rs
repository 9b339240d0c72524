//! Typed arguments: durations and sizes without units, ports without hosts; and the exit of a
//! command that gets a signal.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Running, finished, noise, whimbrel};

/// A name server that receives lookups and answers none.
fn silent() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let port = socket.local_addr().expect("an address").port().to_string();
    (socket, port)
}

fn heard(socket: &UdpSocket) -> bool {
    socket.recv_from(&mut [0; 2048]).is_ok()
}

#[test]
fn a_port_is_this_machines_and_a_time_has_a_unit() {
    let name = "6b".repeat(32);
    for timeout in ["0.2s", "200 ms"] {
        let (socket, port) = silent();
        let (code, _, err) = finished(whimbrel().args([
            "gnrs",
            "lookup",
            "--server",
            &port,
            "--timeout",
            timeout,
            &name,
        ]));
        assert_eq!(code, 7, "{err}");
        assert!(heard(&socket), "the lookup went elsewhere");
    }
}

#[test]
fn errors_of_values_name_valid_ones() {
    let name = "6b".repeat(32);
    for (arguments, said) in [
        (["get", "--timeout", "soon"], "1.5 s"),
        (["get", "--timeout", "5"], "has no unit"),
        (["get", "--chunk-size", "1 XB"], "64 MiB"),
        (["get", "--from", "a.example"], "host:port"),
    ] {
        let (code, _, err) = finished(whimbrel().args(arguments).arg(&name));
        assert!(
            code == 2 && err.contains(arguments[2]) && err.contains(said),
            "{err}"
        );
    }
    let (code, _, err) = finished(whimbrel().args(["gnrs", "serve", "--listen", "a.example:1"]));
    assert!(code == 2 && err.contains("to listen on"), "{err}");
}

#[test]
fn refused_arguments_say_what_is_expected() {
    let name = "6b".repeat(32);
    for (arguments, said) in [
        (&["get", "abc"][..], "'abc' has 3 digits; a name has 64"),
        (&["get", "6b!"], "is not an alias"),
        (&["perf", "client", "-t", "0", &name], "at least 100 ms"),
        (
            &["http-proxy", "client", "--listen", "localhost"],
            "127.0.0.1:3128",
        ),
    ] {
        let (code, _, err) = finished(whimbrel().args(arguments));
        assert!(code == 2 && err.contains(said), "{arguments:?}: {err}");
    }
}

#[test]
fn a_command_ended_by_a_signal_names_it() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let (socket, port) = silent();
        let name = "6b".repeat(32);
        let mut lookup = Running::start(whimbrel().args([
            "gnrs",
            "lookup",
            "--server",
            &port,
            "--timeout",
            "1 h",
            &name,
        ]));
        // The lookup is sent after the message about signals.
        assert!(heard(&socket));
        lookup.signal(signal);
        assert_eq!(lookup.exit_code(), code);
    }
}

#[test]
fn a_quiet_server_is_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("film");
    std::fs::write(&file, noise(1000, 1)).unwrap();
    for (quiet, expected) in [(false, true), (true, false)] {
        let mut command = whimbrel();
        command
            .args(["serve", "--listen", "localhost:0"])
            .arg(&file);
        if quiet {
            command.arg("-q");
        }
        let said = folder.path().join("stderr");
        command.stderr(std::fs::File::create(&said).unwrap());
        let mut serving = Running::start(&mut command);
        // The program reports its address, or not, before it checks the flag that ends it.
        let name = serving.lines.recv_timeout(PATIENCE).unwrap();
        assert!(name.ends_with("film"), "{name}");
        serving.signal("TERM");
        assert_eq!(serving.exit_code(), 0);
        let said = std::fs::read_to_string(&said).unwrap();
        assert_eq!(said.contains("listening on 127.0.0.1:"), expected, "{said}");
        assert!(!quiet || said.is_empty(), "{said}");
    }
}

#[test]
fn a_router_applies_what_it_can_at_sighup_and_names_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let (file, socket, said) = (
        folder.path().join("router.toml"),
        folder.path().join("nfd.sock"),
        folder.path().join("stderr"),
    );
    let write = |settings: &str| {
        let text = format!(
            "[ndn]\nsocket = \"{}\"\nudp = [\"127.0.0.1:0\"]\ntcp = []\nwebsocket = []\nmulticast = false\n{settings}",
            socket.display()
        );
        std::fs::write(&file, text).unwrap();
    };
    write("");
    let mut command = whimbrel();
    command
        .args(["router", "run", "--json", "--config"])
        .arg(&file);
    command.stderr(std::fs::File::create(&said).unwrap());
    let mut router = Running::start(&mut command);
    router.await_json(|opened| opened["ndn"].is_object());
    let told = |what: &str| {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if std::fs::read_to_string(&said).unwrap().contains(what) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{}", std::fs::read_to_string(&said).unwrap());
    };
    let strategies = || {
        let transport = format!("unix://{}", socket.display());
        let (code, out, err) =
            finished(whimbrel().args(["strategy", "list", "--transport", &transport]));
        assert_eq!(code, 0, "{err}");
        out
    };

    write(
        "strategy = \"asf\"\nmtu = 1400\n[[ndn_strategy]]\nprefix = \"/a\"\nstrategy = \"multicast\"\n",
    );
    router.signal("HUP");
    told("reloaded: ndn.strategy, ndn_strategy");
    told("in force after a restart: ndn.mtu");
    let list = strategies();
    assert!(
        list.contains("/asf/") && list.contains("/multicast/"),
        "{list}"
    );

    write("strategy = \"asff\"\n");
    router.signal("HUP");
    told("did you mean 'asf'?");
    assert_eq!(strategies(), list);

    write("strategy = \"asf\"\nmtu = 1400\n");
    router.signal("HUP");
    told("reloaded: ndn_strategy");
    assert!(!strategies().contains("/multicast/"));
    router.signal("TERM");
    assert_eq!(router.exit_code(), 0);
}
