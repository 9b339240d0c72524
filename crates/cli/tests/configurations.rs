//! `config check` and the start itself find every error that would stop or silently change a start,
//! with the same words.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::support::{finished, whimbrel};

const ROUTER: &[&str] = &["router", "run"];
const HOST: &[&str] = &["host", "run"];
const NAME_SERVER: &[&str] = &["gnrs", "serve"];

const LINK: &str = "[[link]]\nlabel = \"north\"\nremote = \"192.0.2.1:4711\"\n";

/// The command to start, the file, the key, the line, and a part of the message that says what
/// would be right.
type Row = (
    &'static [&'static str],
    &'static str,
    &'static str,
    usize,
    &'static str,
);

#[rustfmt::skip]
const BAD: &[Row] = &[
    // The schema.
    (ROUTER, "[router]\n[hop]\nbufer_packets = 9\n", "hop.bufer_packets", 3, "did you mean 'buffer_packets'?"),
    (ROUTER, "[storage]\ntotal = \"lots\"\n", "storage.total", 2, "64 MiB"),
    (ROUTER, "[storage]\nlifetime = \"5\"\n", "storage.lifetime", 2, "'5' has no unit; write one of ns, us, ms, s"),
    (ROUTER, "[storage]\nlifetime = 5\n", "storage.lifetime", 2, "expected a duration such as"),
    (ROUTER, "[ndn]\nudp = [\"[::]:6363\", \"everywhere\"]\n", "ndn.udp[1]", 2, "\"[::1]:4711\""),
    (ROUTER, "[ndn]\nreliability = \"adaptiv\"\n", "ndn.reliability", 2, "did you mean 'adaptive'?"),
    (ROUTER, "[[ndn_route]]\nprefix = \"/\"\nface = \"udp://192.0.2.1\"\ncost = -1\n", "ndn_route[0].cost", 4, "u64"),
    // [hop] and [storage].
    (HOST, "[hop]\nbuffer_packets = 0\n", "hop.buffer_packets", 2, "write 1 to 16777216 packets"),
    (HOST, "[hop]\nbuffer_packets = 9223372036854775807\n", "hop.buffer_packets", 2, "write 1 to 16777216 packets"),
    (HOST, "[hop]\nchunk_limit = \"5 MiB\"\n", "hop.chunk_limit", 2, "to 4194304 bytes"),
    (HOST, "[hop]\nchunk_limit = \"0 B\"\n", "hop.chunk_limit", 2, "write 16384"),
    (HOST, "[hop]\nmax_chunks_in_flight = 0\n", "hop.max_chunks_in_flight", 2, "write 1 to 16384"),
    (HOST, "[hop]\npacing = \"0 bit/s\"\n", "hop.pacing", 2, "100 Mbit/s"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"192.0.2.1:1\"\npacing = \"greedy\"\n", "link[0].pacing", 4, "100 Mbit/s"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"192.0.2.1:1\"\npacing = \"0 bit/s\"\n", "link[0].pacing", 4, "100 Mbit/s"),
    (HOST, "[hop]\nmin_timeout = \"0 s\"\n", "hop.min_timeout", 2, "write 1 ms or more"),
    (HOST, "[hop]\nmin_timeout = \"3 s\"\nmax_timeout = \"2 s\"\n", "hop.max_timeout", 3, "min_timeout, 3 s"),
    (HOST, "[hop]\nidle_probe_interval = \"0 s\"\n", "hop.idle_probe_interval", 2, "1 ms or more"),
    (HOST, "[hop]\noutage_probe_interval = \"0 ms\"\n", "hop.outage_probe_interval", 2, "1 ms or more"),
    (HOST, "[hop]\nunresponsive_silence = \"0 h\"\n", "hop.unresponsive_silence", 2, "1 ms or more"),
    (HOST, "[hop]\nreassembly_patience = \"100000 d\"\n", "hop.reassembly_patience", 2, "at most 3650 d"),
    (ROUTER, "[[link]]\nlabel = \"a\"\nremote = \"a.example:1\"\n[storage]\nlifetime = \"0 s\"\n", "storage.lifetime", 5, "1 ms or more"),
    (ROUTER, "[[link]]\nlabel = \"a\"\nremote = \"a.example:1\"\n[storage]\nstorage_timer = \"0 s\"\n", "storage.storage_timer", 5, "1 ms or more"),
    (ROUTER, "[[link]]\nlabel = \"a\"\nremote = \"a.example:1\"\n[storage]\nheld_back_patience = \"0 s\"\n", "storage.held_back_patience", 5, "more than 0 s"),
    // [[link]].
    (HOST, "[[link]]\nlabel = \"local\"\nremote = \"a.example:1\"\n", "link[0].label", 2, "begins with neither"),
    (HOST, "[[link]]\nlabel = \"a\"\n", "link[0]", 1, "write one of them"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"nowhere\"\n", "link[0].remote", 3, "host:port"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"tcp://192.0.2.1:1\"\n", "link[0].remote", 3, "ether://"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"ip://192.0.2.1:253\"\n", "link[0].remote", 3, "no ports"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"ether://[02:00:5e:10:00:07]\"\n", "link[0].remote", 3, "%eth0"),
    (HOST, "[[link]]\nlabel = \"a\"\nbind = \"ip://0.0.0.0\"\nremote = \"192.0.2.1:1\"\n", "link[0].remote", 4, "one carrier"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"ip://192.0.2.1\"\n[[link]]\nlabel = \"b\"\nremote = \"ip://192.0.2.1\"\n", "link[1].remote", 6, "already"),
    (ROUTER, "[[link]]\nlabel = \"a\"\nbind = \"ip://0.0.0.0\"\nlisten = true\n[[link]]\nlabel = \"b\"\nbind = \"ip://192.0.2.1\"\nlisten = true\n", "link[1].bind", 7, "same packets"),
    (ROUTER, "[router]\nname_servers = [\"ip://192.0.2.1\"]\n[[link]]\nlabel = \"a\"\nremote = \"192.0.2.1:1\"\n", "router.name_servers[0]", 2, "over UDP"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"a.example:1\"\nbind = \"0.0.0.0\"\n", "link[0].bind", 4, "0.0.0.0:4711"),
    (HOST, "[[link]]\nlabel = \"a\"\nlisten = true\n", "link[0].bind", 1, "0.0.0.0:4711"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"a.example:1\"\nmtu = 100\n", "link[0].mtu", 4, "write 304 to 65535 bytes"),
    (HOST, "[[link]]\nlabel = \"a\"\nlisten = true\nbind = \"0.0.0.0:1\"\nmax_callers = 0\n", "link[0].max_callers", 5, "write 1 to"),
    (HOST, "[[link]]\nlabel = \"a\"\nbind = \"0.0.0.0:1\"\nremote = \"[2001:db8::1]:1\"\n", "link[0].remote", 4, "bind [::]"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"a.example:1\"\n[[link]]\nlabel = \"a\"\nremote = \"a.example:2\"\n", "link[1].label", 5, "another label"),
    (HOST, "[[link]]\nlabel = \"a\"\nlisten = true\nbind = \"0.0.0.0:1\"\n[[link]]\nlabel = \"b\"\nlisten = true\nbind = \"0.0.0.0:1\"\n", "link[1].bind", 8, "another port"),
    (HOST, "[[link]]\nlabel = \"a\"\nlisten = true\nbind = \"0.0.0.0:1\"\n[[link]]\nlabel = \"b\"\nlisten = true\nbind = \"127.0.0.1:1\"\n", "link[1].bind", 8, "another port"),
    (HOST, "[[link]]\nlabel = \"a\"\nbind = \"0.0.0.0:1\"\nremote = \"a.example:1\"\n[[link]]\nlabel = \"b\"\nbind = \"0.0.0.0:1\"\nremote = \"a.example:1\"\n", "link[1].remote", 8, "one link to each neighbour"),
    // [host].
    (HOST, "[host]\npreference = [\"nroth\"]\n[[link]]\nlabel = \"north\"\nremote = \"a.example:1\"\n", "host.preference[0]", 2, "did you mean 'north'?"),
    (HOST, "[host]\nnack_timeout = \"0 s\"\n", "host.nack_timeout", 2, "1 ms or more"),
    (HOST, "[host]\nbinding_lifetime = \"0 s\"\n", "host.binding_lifetime", 2, "1 ms or more"),
    (HOST, "[host]\nannouncement_lifetime = \"0 s\"\n", "host.announcement_lifetime", 2, "1 ms or more"),
    (HOST, "[host]\nsocket_group = \"no-such-group\"\n", "host.socket_group", 2, "groupadd no-such-group"),
    (ROUTER, "[ndn]\nsocket_group = \"no-such-group\"\n", "ndn.socket_group", 2, "this machine has no group"),
    (HOST, "[host]\nmax_transfers = 0\n", "host.max_transfers", 2, "write 1 to"),
    (HOST, "[host]\ncontent_limit = \"0 B\"\n", "host.content_limit", 2, "write 1 to"),
    (HOST, "[host]\nkey = \"/etc/hosts\"\n", "host.key", 2, "whimbrel id new"),
    (HOST, "[host]\nsocket = \"/a/path/that/is/much/longer/than/the/hundred/and/seven/bytes/that/the/kernel/has/for/the/path/of/a/unix/socket\"\n", "host.socket", 2, "at most 107 bytes"),
    // [gnrs].
    (NAME_SERVER, "[gnrs]\nlisten = \"here\"\n", "gnrs.listen", 2, "is not an address to listen on"),
    (NAME_SERVER, "[gnrs]\nstore = \"redis://a,\"\n", "gnrs.store", 2, "is no HOST[:PORT] of a node"),
    (NAME_SERVER, "[gnrs]\nstore_password_file = \"x\"\n", "gnrs.store_password_file", 2, "store on a cluster only"),
    (NAME_SERVER, "[gnrs]\nstore = \"redis://a\"\nstore_password_file = \"/no/such\"\n", "gnrs.store_password_file", 3, "cannot read"),
    (NAME_SERVER, "[gnrs]\nmax_clients = 0\n", "gnrs.max_clients", 2, "write 1 to"),
    (NAME_SERVER, "[gnrs]\nmax_records = 0\n", "gnrs.max_records", 2, "write 1 to"),
    (NAME_SERVER, "[gnrs]\nmax_bytes = \"0 B\"\n", "gnrs.max_bytes", 2, "bytes"),
    // [router] and [[route]].
    (ROUTER, "[router]\ndefault_route = \"nort\"\n[[link]]\nlabel = \"north\"\nremote = \"a.example:1\"\n", "router.default_route", 2, "did you mean 'north'?"),
    (ROUTER, "[router]\nname_servers = [\"a.example\"]\n", "router.name_servers", 2, "host:port"),
    (ROUTER, "[[route]]\nto = \"6b\"\nvia = \"north\"\n", "route[0].to", 2, "64 hexadecimal digits"),
    (ROUTER, "[[route]]\nto = \"0000000000000000000000000000000000000000000000000000000000000009\"\nvia = \"0000000000000000000000000000000000000000000000000000000000000009\"\nweight = 0\n", "route[0].weight", 4, "nonzero"),
    (ROUTER, "[[link]]\nlabel = \"north\"\nremote = \"a.example:1\"\n[[route]]\nto = \"0000000000000000000000000000000000000000000000000000000000000009\"\nvia = \"north\"\n[[route]]\nto = \"0000000000000000000000000000000000000000000000000000000000000009\"\nvia = \"north\"\nweight = 2\n", "route[1].via", 9, "route[0] leads there by the same next hop"),
    // [ndn].
    (ROUTER, "[ndn]\nstrategy = \"/localhost/nfd/strategy/multicats\"\n", "ndn.strategy", 2, "did you mean 'multicast'?"),
    (ROUTER, "[ndn]\nstrategy = \"/localhost/nfd/strategy/asf/v=5/probing~1\"\n", "ndn.strategy", 2, "probing"),
    (ROUTER, "[ndn]\ncontent_store_policy = \"fifo\"\n", "ndn.content_store_policy", 2, "\"s3-fifo\", \"lru\""),
    (ROUTER, "[ndn]\nunsolicited_data = \"admit\"\n", "ndn.unsolicited_data", 2, "\"admit-local\""),
    (ROUTER, "[ndn]\nregions = [\"/a\", \"b\"]\n", "ndn.regions[1]", 2, "\"/b\""),
    (ROUTER, "[ndn]\nallowed_origins = [\"https://app.example/page\"]\n", "ndn.allowed_origins[0]", 2, "http://localhost:8080"),
    (ROUTER, "[ndn]\nmulticast_group = \"192.0.2.1:56363\"\n", "ndn.multicast_group", 2, "224.0.23.170:56363"),
    (ROUTER, "[ndn]\nmtu = 100\n", "ndn.mtu", 2, "write 176 to 65535 bytes"),
    (ROUTER, "[ndn]\npit_entries = 0\n", "ndn.pit_entries", 2, "write 1 to"),
    (ROUTER, "[ndn]\nmax_faces = 0\n", "ndn.max_faces", 2, "write 1 to"),
    (ROUTER, "[ndn]\nidle_timeout = \"0 s\"\n", "ndn.idle_timeout", 2, "1 ms or more"),
    (ROUTER, "[ndn]\ncommands = \"signed\"\n", "ndn.commands", 2, "write anchors"),
    (ROUTER, "[ndn]\nlocalhop = true\n", "ndn.localhop", 2, "write anchors"),
    (ROUTER, "[ndn]\nanchors = [\"/nowhere/operator.ndncert\"]\n", "ndn.anchors[0]", 2, "write the path of a certificate"),
    (ROUTER, "[ndn]\nanchors = [\"/etc/hosts\"]\n", "ndn.anchors[0]", 2, "is not an NDN certificate"),
    (ROUTER, "[ndn]\nudp = [\"0.0.0.0:6363\", \"127.0.0.1:6363\"]\n", "ndn.udp[1]", 2, "write another port"),
    (ROUTER, "[ndn]\ntcp = [\"[::]:6363\"]\nwebsocket = [\"127.0.0.1:6363\"]\n", "ndn.websocket[0]", 3, "write another port"),
    (ROUTER, "[ndn]\nmetrics = \"127.0.0.1:6363\"\n", "ndn.metrics", 2, "write another port"),
    (ROUTER, "[ndn]\nenabled = true\n[[link]]\nlabel = \"a\"\nlisten = true\nbind = \"0.0.0.0:6363\"\n", "ndn.udp[0]", 1, "write another port"),
    // The lists of [ndn].
    (ROUTER, "[[ndn_face]]\nuri = \"udp://0.0.0.0\"\n", "ndn_face[0].uri", 2, "all of a machine"),
    (ROUTER, "[[ndn_route]]\nprefix = \"/a\"\nface = \"tcp://192.0.2.1:0\"\n", "ndn_route[0].face", 3, "port 0"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"0.0.0.0:4711\"\n", "link[0].remote", 3, "all addresses"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"[fe80::1]:4711\"\n", "link[0].remote", 3, "%eth0"),
    (HOST, "[[link]]\nlabel = \"a\"\nremote = \"192.0.2.1:0\"\n", "link[0].remote", 3, "port 0"),
    (ROUTER, "[router]\nname_servers = [\"0.0.0.0:4720\"]\n", "router.name_servers", 2, "all addresses"),
    (ROUTER, "[router]\nmetrics = \"[fe80::1]:9\"\n", "router.metrics", 2, "%eth0"),
    (ROUTER, "[[ndn_face]]\nuri = \"udq://192.0.2.1\"\n", "ndn_face[0].uri", 2, "use udp, udp4"),
    (ROUTER, "[[ndn_face]]\nuri = \"ether://[02:00:00:00:00:01]\"\n", "ndn_face[0].uri", 2, "dev://NAME"),
    (ROUTER, "[[ndn_face]]\nuri = \"udp://192.0.2.1\"\nmtu = 10\n", "ndn_face[0].mtu", 3, "write 128 to"),
    (ROUTER, "[[ndn_face]]\nuri = \"udp://192.0.2.1\"\n[[ndn_face]]\nuri = \"udp4://192.0.2.1:6363\"\n", "ndn_face[1].uri", 4, "write it once"),
    (ROUTER, "[[ndn_route]]\nprefix = \"a\"\nface = \"udp://192.0.2.1\"\n", "ndn_route[0].prefix", 2, "\"/a\""),
    (ROUTER, "[[ndn_route]]\nprefix = \"/a\"\nface = \"192.0.2.1\"\n", "ndn_route[0].face", 3, "udp4://192.0.2.1:6363"),
    (ROUTER, "[[ndn_strategy]]\nprefix = \"/a\"\nstrategy = \"best-rout\"\n", "ndn_strategy[0].strategy", 3, "did you mean 'best-route'?"),
    (ROUTER, "[[ndn_strategy]]\nprefix = \"/a\"\nstrategy = \"asf\"\n[[ndn_strategy]]\nprefix = \"/a\"\nstrategy = \"asf\"\n", "ndn_strategy[1].prefix", 5, "write one for each prefix"),
    // Sections that the command would ignore.
    (HOST, "[host]\n[storage]\ntotal = \"1 GiB\"\n", "storage", 2, "host, link, hop"),
    (NAME_SERVER, "[gnrs]\n[[link]]\nlabel = \"a\"\nremote = \"a.example:1\"\n", "link", 2, "which reads gnrs"),
    (ROUTER, "[router]\n[host]\nnack_timeout = \"1 s\"\n", "host", 2, "router, link, route"),
    (ROUTER, "[[link]]\nlabel = \"a\"\nremote = \"a.example:1\"\n[[ndn_route]]\nprefix = \"/\"\nface = \"udp://192.0.2.1\"\n", "ndn_route", 4, "write enabled = true"),
    (ROUTER, "[router]\nname_servers = [\"a.example:1\"]\n", "router", 1, "write a [[link]]"),
];

fn said(command: &[&str], file: &Path) -> (i32, String) {
    let (code, _, err) = finished(whimbrel().args(command).arg(file));
    (code, err)
}

#[test]
fn a_start_refuses_the_errors_of_the_check_with_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (start, text, key, line, accepted)) in BAD.iter().enumerate() {
        let file = folder.path().join(format!("{number}.toml"));
        // A file with only a link is a router's unless its first section says otherwise.
        let own = match start[0] {
            "host" if !text.contains("[host]") => "\n[host]\n",
            _ => "",
        };
        fs::write(&file, format!("{text}{own}")).unwrap();
        let (code, checked) = said(&["config", "check"], &file);
        assert_eq!(code, 2, "{text}{checked}");
        let place = format!("{number}.toml:{line}:");
        let told = checked.lines().any(|fault| {
            fault.contains(&place)
                && fault.contains(&format!(": {key}: "))
                && fault.contains(accepted)
        });
        assert!(told, "{key} at {line}, {accepted}:\n{text}\n{checked}");
        let start: Vec<&str> = start.iter().copied().chain(["--config"]).collect();
        assert_eq!(said(&start, &file), (2, checked), "{text}");
    }
}

#[test]
fn all_errors_are_reported_at_once_in_the_order_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.toml");
    let text = "[ndn]\nmtu = 1\nstrategy = \"asff\"\n[[ndn_face]]\nuri = \"nowhere\"\n";
    fs::write(&file, text).unwrap();
    let (code, err) = said(&["config", "check"], &file);
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!((code, lines.len()), (2, 3), "{err}");
    for (line, key) in lines
        .iter()
        .zip(["ndn.mtu", "ndn.strategy", "ndn_face[0].uri"])
    {
        assert!(line.contains(key), "{err}");
    }
}

#[test]
fn a_value_of_the_wrong_kind_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.toml");
    let text = "[router]\nname_servers = \"10.9.0.1\"\nmetrics = 9363\n[hop]\nbufer_packets = 9\n\
                [storage]\ntotal = \"lots\"\n[[link]]\nlabel = \"a\"\nremote = 7\nmtu = \"big\"\n";
    fs::write(&file, text).unwrap();
    let (code, err) = said(&["config", "check"], &file);
    let expected = [
        (2, "router.name_servers", "write [\"10.9.0.1\"]"),
        (
            3,
            "router.metrics",
            "9363 is not an address; write an address and a port",
        ),
        (5, "hop.bufer_packets", "did you mean 'buffer_packets'?"),
        (7, "storage.total", "64 MiB"),
        (10, "link[0].remote", ""),
        (11, "link[0].mtu", ""),
    ];
    assert_eq!((code, err.lines().count()), (2, expected.len()), "{err}");
    for (line, (number, key, message)) in err.lines().zip(expected) {
        let place = format!("router.toml:{number}:");
        assert!(
            line.contains(&place) && line.contains(key) && line.contains(message),
            "{line}"
        );
    }
    fs::write(&file, "[[link]]\nlabel = north\n").unwrap();
    let (_, err) = said(&["config", "check"], &file);
    assert!(err.contains("text stands in quotes: \"north\""), "{err}");
}

#[test]
fn an_error_in_a_flag_names_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.toml");
    fs::write(&file, LINK).unwrap();
    for (arguments, flag, said) in [
        (
            &["--default-route", "nort"][..],
            "--default-route: ",
            "did you mean 'north'?",
        ),
        (
            &["--ndn", "--ndn-route", "/a=192.0.2.1"],
            "--ndn-route: ",
            "udp4://",
        ),
        (
            &["--ndn", "--ndn-allow-origin", "app.example"],
            "--ndn-allow-origin: ",
            "https://",
        ),
        (
            &["--listen", "127.0.0.1:9", "--listen", "127.0.0.1:9"],
            "--listen: ",
            "another port",
        ),
    ] {
        let mut command = whimbrel();
        command
            .args(["router", "run", "--config"])
            .arg(&file)
            .args(arguments);
        let (code, _, err) = finished(&mut command);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(flag) && err.contains(said), "{err}");
    }
}

#[test]
fn a_file_can_be_checked_for_a_kind_of_node() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    fs::write(&file, format!("{LINK}[router]\n")).unwrap();
    assert_eq!(said(&["config", "check"], &file).0, 0);
    let (code, err) = said(&["config", "check", "--for", "host"], &file);
    assert!(
        code == 2 && err.contains("node.toml:4:2: router: "),
        "{err}"
    );
}

#[test]
fn a_check_finds_what_only_this_machine_can_tell() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    let store = folder.path().join("names.redb");
    fs::write(&store, "milk, eggs").unwrap();
    let cases = [(
        format!("[gnrs]\nstore = \"{}\"\n", store.display()),
        "gnrs.store",
    )];
    for (text, key) in cases {
        fs::write(&file, &text).unwrap();
        let (code, err) = said(&["config", "check"], &file);
        assert_eq!(code, 2, "{text}");
        assert!(err.contains(&format!(": {key}: ")), "{text}{err}");
    }
    assert_eq!(
        fs::read(&store).unwrap(),
        b"milk, eggs",
        "a check changes nothing"
    );
}

#[test]
fn a_check_says_which_addresses_a_start_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.toml");
    // 192.0.2.0/24 is for documentation (RFC 5737).
    let here = "[[link]]\nlabel = \"a\"\nlisten = true\nbind = \"192.0.2.77:4711\"\n";
    let over_ip = here.replace("192.0.2.77:4711", "ip://192.0.2.77");
    let device = "[[link]]\nlabel = \"a\"\nlisten = true\nbind = \"dev://no-such-net0\"\n";
    let station =
        "[[link]]\nlabel = \"a\"\nremote = \"ether://[02:00:5e:10:00:07%no-such-net0]\"\n";
    for (text, key) in [
        (format!("{device}[router]\n"), "link[0].bind"),
        (format!("[host]\n{station}"), "link[0].remote"),
        (format!("[host]\n{over_ip}"), "link[0].bind"),
        (format!("{here}[router]\n"), "link[0].bind"),
        (format!("[host]\n{here}"), "link[0].bind"),
        ("[ndn]\ntcp = [\"192.0.2.77:6363\"]\n".into(), "ndn.tcp[0]"),
        (
            "[ndn]\ninterfaces = [\"no-such-net0\"]\n".into(),
            "ndn.interfaces[0]",
        ),
        (
            "[ndn]\nethernet = [\"no-such-net0\"]\n".into(),
            "ndn.ethernet[0]",
        ),
        (
            "[host]\nmetrics = \"192.0.2.77:9\"\n".into(),
            "host.metrics",
        ),
        ("[gnrs]\nlisten = \"192.0.2.77:9\"\n".into(), "gnrs.listen"),
    ] {
        fs::write(&file, &text).unwrap();
        let (code, err) = said(&["config", "check"], &file);
        assert_eq!(code, 0, "{text}{err}");
        let says = err.contains(&format!(": {key}: ")) && err.contains("a start waits for it");
        assert!(says, "{text}{err}");
    }
}

#[test]
fn a_file_without_an_end_is_no_configuration() {
    let (code, err) = said(&["config", "check"], Path::new("/dev/zero"));
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("longer than 1 MiB"), "{err}");
}

#[test]
fn the_file_of_a_tcp_proxy_is_checked_and_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("proxy.toml");
    let check = |text: &str, arguments: &[&str]| {
        fs::write(&file, text).unwrap();
        let mut command = whimbrel();
        finished(command.args(["config", "check"]).arg(&file).args(arguments))
    };
    let (code, sample, _) = finished(whimbrel().args(["config", "sample", "tcp-proxy"]));
    assert_eq!(code, 0);
    // The sample's key is a file of another machine.
    let (code, _, errors) = check(&sample, &[]);
    assert_eq!(code, 2);
    let remedy = "whimbrel tcp-proxy key > /etc/whimbrel/tcp-proxy.key";
    assert!(errors.contains(remedy), "{errors}");
    let open = "prefix = \"/a/tcp\"\nprotection = \"none\"\n[[route]]\nto = \"10.2.0.0/16\"\nproxy = \"/b/tcp\"\n";
    let (code, out, errors) = check(open, &[]);
    assert_eq!((code, out.contains("no errors")), (0, true), "{errors}");
    let (code, _, errors) = check(
        &open.replace("prefix =", "prefixes ="),
        &["--for", "tcp-proxy"],
    );
    assert_eq!(code, 2);
    assert!(errors.contains("prefixes"), "{errors}");
    let (code, _, errors) = check(&open.replace("/16", "/77"), &[]);
    assert_eq!(code, 2, "{errors}");
}

/// A pipe gives its text only once.
#[test]
fn a_file_that_comes_through_a_pipe_is_checked() {
    for (text, word) in [
        ("[router]\nbogus = 1\n", "bogus"),
        ("prefix = \"/a/tcp\"\nbogus = 1\n", "bogus"),
    ] {
        let mut checking = whimbrel()
            .args(["config", "check", "/dev/stdin"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = checking.stdin.take().unwrap();
        pipe.write_all(text.as_bytes()).unwrap();
        drop(pipe);
        let output = checking.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(word), "{errors}");
    }
}
