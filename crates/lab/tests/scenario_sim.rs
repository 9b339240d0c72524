//! Scenarios in virtual time.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::path::Path;

use whimbrel_lab::scenario::run::Run;
use whimbrel_lab::scenario::{Overrides, Scenario, sim};

fn run(text: &str) -> Run {
    let scenario = Scenario::parse(Path::new("a.toml"), text, Overrides::default())
        .unwrap_or_else(|faults| panic!("{faults}"));
    let plan = &scenario.settings[0].plan;
    sim::run(plan, plan.seed).unwrap()
}

const LINE: &str = r#"
nodes = { server = "host", n2 = "router", n3 = "router", client = "host", names = "name-server" }
loads.film = { from = "server", to = "client", file = "10 MB" }
limit = "5 min"
[links]
wire = { between = ["server", "n2"], rate = "100 Mbit/s" }
core = { between = ["n2", "n3"], rate = "100 Mbit/s", delay = "20 ms" }
wifi = { between = ["n3", "client"], rate = "20 Mbit/s", delay = "1 ms", loss = "1 %" }
gnrs = { between = ["n2", "names"], rate = "100 Mbit/s" }
"#;

#[test]
fn a_file_crosses_routers_that_ask_a_distant_name_server() {
    let got = run(LINE);
    let value = |name: &str| got.values[name];
    assert_eq!((value("film.files"), value("film.bytes")), (1.0, 1e7));
    // 20 Mbit/s less headers, 1 % of loss and the start.
    assert!(
        (12.0..19.5).contains(&value("film.goodput")),
        "{:?}",
        got.values
    );
    assert!(value("links.wifi.lost") > 20.0 && value("links.wire.lost") == 0.0);
    assert_eq!(run(LINE), got);
}

/// One link at a time, in order: the one that is preferred carries the file.
#[test]
fn a_file_comes_over_the_link_that_its_receiver_prefers() {
    let two = LINE.replace(
        "[links]",
        "[links]\nlte = { between = [\"n3\", \"client\"], rate = \"20 Mbit/s\", delay = \"20 ms\" }",
    );
    for preferred in ["lte", "wifi"] {
        let client = format!(
            "client = {{ role = \"host\", policy = \"order\", preference = [\"{preferred}\"] }}"
        );
        let got = run(&two.replace("client = \"host\"", &client));
        assert_eq!(got.values["film.bytes"], 1e7);
        for link in ["lte", "wifi"] {
            let bytes = got.values[&format!("links.{link}.forward")];
            assert_eq!(
                bytes > 1e7,
                link == preferred,
                "{preferred}: {link} {bytes}"
            );
        }
    }
}

/// A transfer that is under way moves to the link that its host is told to prefer.
#[test]
fn a_file_moves_to_the_link_that_its_receiver_prefers_from_then_on() {
    let two = LINE
        .replace("n3 = \"router\"", "n3 = \"router\", n4 = \"router\"")
        .replace(
            "[links]",
            "[[events]]\nat = \"1 s\"\nprefer = \"lte\"\n[links]\n\
             lte = { between = [\"n4\", \"client\"], rate = \"20 Mbit/s\", delay = \"20 ms\" }\n\
             side = { between = [\"n2\", \"n4\"], rate = \"100 Mbit/s\" }",
        )
        .replace(
            "client = \"host\"",
            "client = { role = \"host\", policy = \"order\", preference = [\"wifi\"] }",
        );
    let got = run(&two);
    assert_eq!(got.values["film.bytes"], 1e7);
    let lte = got.values["links.lte.forward"];
    assert!((4e6..9e6).contains(&lte), "{lte}");
}

#[test]
fn only_the_link_of_a_host_to_its_router_is_preferred() {
    for (link, said) in [
        ("core", "joins no host to its router"),
        ("lte", "no link 'lte'"),
    ] {
        let text = format!("{LINE}[[events]]\nat = \"1 s\"\nprefer = \"{link}\"\n");
        let read = Scenario::parse(Path::new("a.toml"), &text, Overrides::default());
        let faults = read.unwrap_err().to_string();
        assert!(
            faults.contains("events[0].prefer") && faults.contains(said),
            "{faults}"
        );
    }
}

/// Of two links to one router, which are used together otherwise, the one that costs money carries
/// nothing, and the one with a quota carries no more than that.
#[test]
fn links_with_terms_carry_what_these_leave() {
    let two = |terms: &str| {
        let lte = "[links]\nlte = { between = [\"n3\", \"client\"], rate = \"20 Mbit/s\", delay = \"20 ms\"";
        run(&LINE.replace("[links]", &format!("{lte}{terms} }}")))
    };
    let crossed = |terms: &str| {
        let got = two(terms);
        assert_eq!(got.values["film.bytes"], 1e7, "{terms}");
        got.values["links.lte.bytes"]
    };
    assert!(crossed("") > 3e6);
    assert!(crossed(", metered = true") < 1e5);
    let bounded = crossed(", quota = \"1 MB\"");
    // It is looked at ten times a second (250 kB), and what the router has for that link then still comes.
    assert!((1e6..2.5e6).contains(&bounded), "{bounded}");
}

#[test]
fn only_links_of_hosts_have_terms() {
    for (key, value) in [("metered", "true"), ("quota", "\"1 MB\"")] {
        let text = LINE.replace("delay = \"20 ms\"", &format!("{key} = {value}"));
        let read = Scenario::parse(Path::new("a.toml"), &text, Overrides::default());
        let faults = read.unwrap_err().to_string();
        let said = format!("links.core.{key}: only the links of hosts have '{key}'");
        assert!(faults.contains(&said), "{faults}");
    }
}

#[test]
fn bare_ip_saves_the_header_of_udp_in_every_packet() {
    let forward = |text: &str| {
        let got = run(text);
        assert_eq!(
            (got.values["film.files"], got.values["film.bytes"]),
            (1.0, 1e7)
        );
        got.values["links.core.forward"]
    };
    let over_udp = forward(LINE);
    let over_ip =
        forward(&LINE.replace("delay = \"20 ms\"", "delay = \"20 ms\", carrier = \"ip\""));
    // 10 MB in packets of 1,500 bytes, 8 of which are UDP's.
    let saved = over_udp - over_ip;
    assert!(
        (45e3..75e3).contains(&saved),
        "{over_udp} - {over_ip} = {saved}"
    );
}

#[test]
fn bare_ip_is_refused_where_nothing_of_mobilityfirst_would_use_it() {
    for (nodes, said) in [
        ("a = \"ndn-router\", b = \"ndn-router\"", "not"),
        ("a = \"tcp-host\", b = \"tcp-host\"", "not"),
    ] {
        let text = format!(
            "nodes = {{ {nodes} }}\nlimit = \"1 s\"\n[links]\nwire = {{ between = [\"a\", \"b\"], carrier = \"ip\" }}\n"
        );
        let read = Scenario::parse(Path::new("a.toml"), &text, Overrides::default());
        let faults = read.unwrap_err().to_string();
        assert!(
            faults.contains("carrier") && faults.contains(said),
            "{faults}"
        );
    }
}

#[test]
fn an_outage_stalls_a_file_for_as_long_and_a_round_trip() {
    let text = format!("{LINE}[[events]]\nat = \"1 s\"\noutage = \"wifi\"\nduration = \"3 s\"\n");
    let got = run(&text);
    let stall = got.values["film.stall"];
    assert!((2.9..3.8).contains(&stall), "{stall}");
    assert_eq!(got.values["film.files"], 1.0);
}

#[test]
fn a_router_that_crashes_and_restarts_delays_a_file_and_nothing_more() {
    let text = format!("{LINE}[[events]]\nat = \"1 s\"\ncrash = \"n3\"\nduration = \"2 s\"\n");
    let got = run(&text);
    assert_eq!(
        (got.values["film.files"], got.values["film.bytes"]),
        (1.0, 1e7)
    );
    assert!(got.values["film.stall"] > 1.5, "{:?}", got.values);
}

#[test]
fn a_link_that_changes_slows_a_file_down() {
    let text = format!(
        "{LINE}[[events]]\nat = \"1 s\"\nchange = \"wifi\"\nset = {{ rate = \"5 Mbit/s\" }}\n"
    );
    assert!(run(&text).values["film.goodput"] < 8.0);
}

#[test]
fn tcp_shares_links_with_the_rest() {
    let text = LINE.replace(
        "limit =",
        "loads.web = { from = \"server\", to = \"client\", over = \"tcp\", page = { objects = 20, size = \"50 kB\" } }\nlimit =",
    );
    let got = run(&text);
    assert_eq!(
        (got.values["web.files"], got.values["web.bytes"]),
        (20.0, 1e6)
    );
    assert_eq!(got.values["film.files"], 1.0);
    assert!(got.values["film.completion"] > run(LINE).values["film.completion"]);
}

#[test]
fn flows_and_a_load_without_end_over_ndn() {
    let text = r#"
graph = { role = "ndn-router", ring = { nodes = 5 } }
defaults.link = { rate = "20 Mbit/s", delay = "5 ms" }
limit = "1 min"
[loads]
many = { from = "n1", to = ["n3", "n4"], flows = { size = "50 kB", per_second = 5, count = 10 } }
asked = { from = "n2", to = "n4", poisson = { rate = 100, count = 300, payload = 500 } }
endless = { from = "n5", to = "n3", bulk = true, start = "100 ms" }
"#;
    let got = run(text);
    for name in ["many.n3.files", "many.n4.files"] {
        assert_eq!(got.values[name], 10.0);
    }
    assert_eq!(got.values["asked.answered"], 300.0);
    assert!(
        got.values["asked.delay"] > 20.0,
        "two links of 5 ms there and back"
    );
    assert!(got.values["endless.bytes"] > 1e5 && !got.values.contains_key("endless.completion"));
}

#[test]
fn a_host_that_moves_from_one_link_to_another_gets_its_file() {
    let text = r#"
nodes = { server = "host", n2 = "router", client = "host" }
loads.film = { from = "server", to = "client", file = "10 MB" }
events = [{ at = "1 s", move = "client", from = "wifi", to = "lte", gap = "500 ms" }]
[links]
wire = { between = ["server", "n2"], rate = "100 Mbit/s" }
wifi = { between = ["n2", "client"], rate = "20 Mbit/s", delay = "5 ms" }
lte = { between = ["n2", "client"], rate = "10 Mbit/s", delay = "20 ms" }
"#;
    let got = run(text);
    assert_eq!(got.values["film.files"], 1.0);
    assert!(got.values["links.lte.bytes"] > 1e6 && got.values["links.wifi.bytes"] > 1e6);
}

#[test]
fn unsupported_events_are_refused_by_name() {
    let text = format!("{LINE}[[events]]\nat = \"1 s\"\ncrash = \"client\"\n");
    let scenario = Scenario::parse(Path::new("a.toml"), &text, Overrides::default()).unwrap();
    let error = sim::check(&scenario.settings[0].plan)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("'sim' does not crash 'client', which receives 'film'"),
        "{error}"
    );
}

/// A consumer with two paths to a file, the upper one four times as fast.
fn two_paths(strategy: &str, pipeline: &str) -> Run {
    run(&format!(
        r#"
limit = "5 min"
loads.film = {{ from = "d", to = "a", file = "5 MB", pipeline = "{pipeline}" }}
routes = {{ choose = "equal", by = "hops" }}
[nodes]
a = {{ role = "ndn-router", strategy = "{strategy}" }}
b = "ndn-router"
c = "ndn-router"
d = "ndn-router"
[links]
ab = {{ between = ["a", "b"], rate = "100 Mbit/s" }}
ac = {{ between = ["a", "c"], rate = "100 Mbit/s" }}
bd = {{ between = ["b", "d"], rate = "20 Mbit/s", delay = "5 ms" }}
cd = {{ between = ["c", "d"], rate = "5 Mbit/s", delay = "15 ms" }}
"#
    ))
}

#[test]
fn the_rivals_of_ptp_use_both_paths_and_best_route_uses_one() {
    let upper = |run: &Run| {
        assert_eq!(run.values["film.bytes"], 5e6, "{:?}", run.values);
        let [bd, cd] = ["bd", "cd"].map(|link| run.values[&format!("links.{link}.bytes")]);
        bd / (bd + cd)
    };
    let best = upper(&two_paths("best-route", "cubic"));
    assert!(!(0.1..0.9).contains(&best), "{best}");
    for (strategy, pipeline) in [
        ("rfa", "raaqm"),
        ("rfa", "aimd"),
        ("paf", "aimd"),
        ("chopcop", "aimd"),
    ] {
        let share = upper(&two_paths(strategy, pipeline));
        assert!((0.3..0.98).contains(&share), "{strategy}: {share}");
    }
}

#[test]
fn the_window_of_a_consumer_is_only_for_loads_that_have_one() {
    let text = LINE.replace("file = ", "pipeline = \"aimd\", file = ");
    let faults = Scenario::parse(Path::new("a.toml"), &text, Overrides::default()).unwrap_err();
    assert!(
        faults.to_string().contains("loads.film.pipeline"),
        "{faults}"
    );
}

#[test]
fn an_ndn_router_that_serves_restarts_and_serves_again() {
    let text = r#"
graph = { role = "ndn-router", line = { nodes = 3 } }
defaults.link = { rate = "20 Mbit/s", delay = "5 ms" }
events = [{ at = "500 ms", crash = "n1", duration = "1 s" }, { at = "400 ms", empty_cache = "n2" }]
[loads]
film = { from = "n1", to = "n3", file = "3 MB" }
asked = { from = "n1", to = "n2", cbr = { rate = 100, count = 300 } }
"#;
    let got = run(text);
    assert_eq!(got.values["film.files"], 1.0);
    assert_eq!(got.values["asked.answered"], 300.0);
    assert!(got.values["film.stall"] > 0.9, "{:?}", got.values);
}

#[test]
fn ndn_frames_over_bare_links_and_devices_have_the_same_delay() {
    let text = r#"
graph = { role = "ndn-router", line = { nodes = 3 } }
limit = "1 min"
linger = "1 s"
[defaults.link]
rate = "10 Mbit/s"
delay = "5 ms"
queue = "80 packets"
carrier = "bare"
device = true
recovery = "off"
[loads]
asked = { from = "n3", to = "n1", cbr = { rate = 100, count = 300, payload = 1000 } }
"#;
    let bare = run(text);
    assert_eq!(bare.values["asked.answered"], 300.0);
    // Four links of 5 ms, and twice a Data of some 1,050 bytes and an Interest of some 30.
    let delay = bare.values["asked.delay"];
    assert!((21.6..22.0).contains(&delay), "{delay}");
    let in_udp = run(&text.replace("\"bare\"", "\"udp\""));
    let headers = in_udp.values["links.n1-n2.bytes"] - bare.values["links.n1-n2.bytes"];
    assert_eq!(headers, 28.0 * bare.values["links.n1-n2.packets"]);
}

#[test]
fn proxies_that_wait_for_a_push_report_their_stored_chunks() {
    let text = format!("{LINE}[[events]]\nat = \"1 s\"\noutage = \"wifi\"\nduration = \"6 s\"\n")
        .replace(
            "n3 = \"router\"",
            "n3 = { role = \"router\", proactive = false }",
        )
        .replace("file = \"10 MB\"", "file = \"10 MB\", nack_timer = \"8 s\"");
    let waiting = run(&text);
    let proactive = run(&text.replace("proactive = false", "proactive = true"));
    let count = |run: &Run, metric: &str| run.values[&format!("nodes.n3.{metric}")];
    assert!(count(&waiting, "stored") > 0.0 && count(&waiting, "pushed") > 0.0);
    assert_eq!(count(&proactive, "pushed"), 0.0);
    assert!(
        waiting.values["film.completion"] > proactive.values["film.completion"],
        "{:?}",
        waiting.values
    );
}

/// A chunk of a megabyte takes half a minute here, which is longer than a receiver's timeout.
#[test]
fn a_slow_link_carries_a_file_once_in_either_direction() {
    let text = |from: &str, to: &str| {
        format!(
            r#"
limit = "20 min"
nodes = {{ a = "host", r = "router", s = "router", b = "host", names = "name-server" }}
loads.film = {{ from = "{from}", to = "{to}", file = "3 MB" }}
[links]
wire = {{ between = ["a", "r"], rate = "100 Mbit/s" }}
gnrs = {{ between = ["r", "names"], rate = "100 Mbit/s" }}
middle = {{ between = ["r", "s"], rate = "100 Mbit/s" }}
thin = {{ between = ["s", "b"], rate = "256 kbit/s", delay = "300 ms", queue = "16 kB", loss = "1 %" }}
"#
        )
    };
    let way = |from: &str, to: &str, direction: &str| {
        let got = run(&text(from, to)).values;
        assert_eq!(got["film.files"], 1.0, "{got:?}");
        for link in ["wire", "middle", "thin"] {
            let carried = got[&format!("links.{link}.{direction}")] / 3e6;
            assert!((1.0..1.09).contains(&carried), "{link}: {carried}");
        }
    };
    way("a", "b", "forward");
    way("b", "a", "backward");
}

/// "The source utilizes this in-network copy" [MFTP §3.3]: what a router has kept through an outage
/// crosses the links before it once.
#[test]
fn what_a_router_kept_through_an_outage_is_not_sent_again_by_its_source() {
    let text = r#"
limit = "3 min"
metrics = ["film.*", "links.*"]
nodes = { server = "host", a = "router", b = "router", c = "router", client = "host", names = "name-server" }
loads.film = { from = "server", to = "client", file = "40 MB" }
[links]
wire = { between = ["server", "a"], rate = "100 Mbit/s" }
ab = { between = ["a", "b"], rate = "50 Mbit/s", delay = "20 ms", loss = "2 %" }
bc = { between = ["b", "c"], rate = "50 Mbit/s", delay = "20 ms", loss = "2 %" }
n = { between = ["a", "names"], rate = "1 Gbit/s" }
last = { between = ["c", "client"], rate = "40 Mbit/s", delay = "5 ms", loss = "2 %" }
[[events]]
at = "2 s"
outage = "bc"
duration = "DURATION"
"#;
    // Receivers ask again after 5 s, and then ever later.
    for duration in ["15 s", "60 s"] {
        let got = run(&text.replace("DURATION", duration)).values;
        assert_eq!(got["film.files"], 1.0, "{got:?}");
        for link in ["wire", "ab"] {
            let carried = got[&format!("links.{link}.forward")] / 40e6;
            assert!(
                (1.0..1.1).contains(&carried),
                "{duration}: {link}: {carried}"
            );
        }
    }
}

#[test]
fn a_load_starts_at_one_random_moment_on_every_plane() {
    let at = |over: &str| {
        let text = LINE.replace(
            "file = \"10 MB\"",
            &format!("file = \"1 MB\", within = \"10 s\", over = \"{over}\""),
        );
        run(&text).transfers[0].asked
    };
    let moment = at("mobility-first");
    assert!(moment > 0.0 && moment < 10.0);
    assert_eq!(moment, at("tcp"));
}

/// Two hosts reach their router over a switch and a shared link; traffic of the start does not
/// count.
#[test]
fn a_host_attaches_to_a_distant_router_and_links_count_after_the_start() {
    let text = |warm_up: &str| {
        format!(
            r#"
limit = "20 s"
warm_up = "{warm_up}"
nodes = {{ server = {{ role = "host", router = "r" }}, near = "tcp-host", r = "router", client = "host" }}
loads.film = {{ from = "server", to = "client", file = "100 MB" }}
[links]
up = {{ between = ["server", "near"], rate = "1 Gbit/s" }}
shared = {{ between = ["near", "r"], rate = "20 Mbit/s", delay = "10 ms" }}
down = {{ between = ["r", "client"], rate = "1 Gbit/s" }}
"#
        )
    };
    let (all, late) = (run(&text("0 s")), run(&text("15 s")));
    let forward = |run: &Run| run.values["links.shared.forward"];
    assert!(all.values["film.bytes"] > 30e6, "{:?}", all.values);
    // Five seconds of 20 Mbit/s; only acknowledgements in the other direction.
    assert!(
        (11e6..12.6e6).contains(&forward(&late)),
        "{:?}",
        late.values
    );
    assert!(forward(&all) > 3.0 * forward(&late));
    assert!(late.values["links.shared.backward"] < 1e6);
}

#[test]
fn loads_without_end_alone_last_to_the_limit() {
    let text = LINE
        .replace("file = \"10 MB\"", "bulk = true")
        .replace("\"5 min\"", "\"10 s\"");
    let got = run(&text);
    assert!(got.values["film.bytes"] > 10e6, "{:?}", got.values);
}
