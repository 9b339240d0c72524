//! Every error in a scenario names its file, line and key, and says what would be right.

use std::path::Path;

use whimbrel_lab::scenario::{BatchOptions, Overrides, Scenario};
use whimbrel_lab::study::Backend;

const SOUND: &str = r#"title = "sound"
seed = 7
runs = 2
metrics = ["film.*", "links.wifi.bytes"]
[nodes]
server = "host"
router = { role = "router", storage = "10 MB" }
client = "host"
[defaults.link]
rate = "100 Mbit/s"
[links]
wire = { between = ["server", "router"], delay = "20 ms" }
wifi = { between = ["router", "client"], loss = "1 %", backward = { rate = "5 Mbit/s" } }
[loads]
film = { from = "server", to = "client", file = "5 MB" }
[[events]]
at = "1 s"
outage = "wifi"
duration = "2 s"
[[events]]
at = "4 s"
change = "wifi"
set = { loss = "5 %" }
[sweep]
"links.wifi.loss" = ["0 %", "1 %"]
"links.wire.delay" = ["10 ms", "50 ms", "100 ms"]
[[statements]]
source = "[MFTP §5.1]"
says = "loss costs little"
metric = "film.goodput"
at = { "links.wifi.loss" = "1 %" }
relative_to = { "links.wifi.loss" = "0 %" }
value = 0.9
tolerance = "5 %"
"#;

fn read(text: &str) -> Result<Scenario, String> {
    Scenario::parse(Path::new("a.toml"), text, Overrides::default())
        .map_err(|faults| faults.to_string())
}

/// Returns the errors of the valid scenario after a replacement, which must take place.
fn fault(old: &str, new: &str) -> String {
    assert!(SOUND.contains(old), "{old}");
    let read = read(&SOUND.replacen(old, new, 1));
    read.err()
        .unwrap_or_else(|| format!("no error was found after {old} -> {new}"))
}

#[test]
fn a_valid_scenario_has_all_settings_of_its_sweep() {
    let scenario = read(SOUND).unwrap();
    assert_eq!((scenario.runs, scenario.settings.len()), (2, 6));
    let shown = |at: usize| {
        let values = scenario.settings[at].values.iter();
        values.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(
        (shown(0), shown(5)),
        (vec!["0 %", "10 ms"], vec!["1 %", "100 ms"])
    );
    let plan = &scenario.settings[5].plan;
    assert_eq!(plan.seed, 7);
    let wifi = &plan.network.links[plan.network.link("wifi").unwrap()];
    let rate = |bits| whimbrel_sim::link::Rate::Fixed(bits);
    assert_eq!(
        (&wifi.forward.rate, &wifi.backward.rate),
        (&rate(100_000_000), &rate(5_000_000))
    );
    assert_eq!(
        wifi.forward.loss,
        whimbrel_sim::link::Loss::Independent(0.01)
    );
    assert_eq!(plan.timeline.len(), 3);
    assert_eq!(scenario.metrics.len(), 7);
}

/// What is replaced in the sound scenario, by what, and how the error begins.
const FAULTS: &[(&str, &str, &str)] = &[
    (
        "runs = 2",
        "ruins = 2",
        "a.toml:3: ruins: unknown key 'ruins'; did you mean 'runs'?",
    ),
    (
        "[loads]",
        "[laods]",
        "a.toml:14: laods: unknown key 'laods'; did you mean 'loads'?",
    ),
    ("runs = 2", "runs = 0", "a.toml:3: runs: at least one run"),
    (
        "server = \"host\"",
        "server = \"hots\"",
        "a.toml:6: nodes.server: unknown value 'hots'; did you mean 'host'?",
    ),
    (
        "storage",
        "sotrage",
        "a.toml:7: nodes.router.sotrage: unknown key 'sotrage'; did you mean 'storage'?",
    ),
    (
        "\"10 MB\"",
        "\"10 PB\"",
        "a.toml:7: nodes.router.storage: 'PB' is not a unit",
    ),
    (
        "\"100 Mbit/s\"",
        "\"0 Mbit/s\"",
        "a.toml:10: defaults.link.rate: a rate of 0",
    ),
    (
        "\"20 ms\"",
        "\"-20 ms\"",
        "a.toml:12: links.wire.delay: '-20 ms' is no duration: it does not begin with a number",
    ),
    (
        "\"1 %\", backward",
        "\"101 %\", backward",
        "a.toml:13: links.wifi.loss: '101 %' is not a probability",
    ),
    (
        "[\"0 %\", \"1 %\"]",
        "[\"0 %\", \"101 %\"]",
        "a.toml:25: sweep.\"links.wifi.loss\"[1]: '101 %' is not a probability",
    ),
    (
        "between = [\"server\", \"router\"]",
        "between = [\"server\", \"ruoter\"]",
        "a.toml:12: links.wire.between[1]: there is no node 'ruoter'; did you mean 'router'?",
    ),
    (
        "between = [\"server\", \"router\"]",
        "between = [\"server\", \"server\"]",
        "a.toml:12: links.wire.between: link 'wire' leads back",
    ),
    (
        "delay = \"20 ms\"",
        "dealy = \"20 ms\"",
        "a.toml:12: links.wire.dealy: unknown key 'dealy'; did you mean 'delay'?",
    ),
    ("wifi = {", "wire = {", "a.toml:13: "),
    (
        "backward = {",
        "preset = \"lt\", backward = {",
        "a.toml:13: links.wifi.preset: there is no preset 'lt'; did you mean 'lte'?",
    ),
    (
        "backward = {",
        "mtu = 3, backward = {",
        "a.toml:13: links.wifi.mtu: an MTU of 3",
    ),
    (
        "backward = {",
        "later_acks = 0, backward = {",
        "a.toml:13: links.wifi.later_acks: a frame is lost after at least 1",
    ),
    (
        "backward = {",
        "acks_together = true, backward = {",
        "a.toml:13: links.wifi.acks_together: this key is for recovery = \"paper\" only",
    ),
    (
        "file = \"5 MB\"",
        "multipath = { paths = 4 }, file = \"5 MB\"",
        "a.toml:15: loads.film.multipath: this is for loads over NDN",
    ),
    (
        "file = \"5 MB\"",
        "mirrors = [\"server\"], file = \"5 MB\"",
        "a.toml:15: loads.film.mirrors[0]: a mirror is neither",
    ),
    (
        "file = \"5 MB\"",
        "fiel = \"5 MB\"",
        "a.toml:15: loads.film.fiel: unknown key 'fiel'; did you mean 'file'?",
    ),
    (
        ", file = \"5 MB\"",
        "",
        "a.toml:15: loads.film: a load needs its request",
    ),
    (
        "file = \"5 MB\"",
        "file = \"5 MB\", bulk = true",
        "a.toml:15: loads.film: a load has only one",
    ),
    (
        "from = \"server\"",
        "from = \"sever\"",
        "a.toml:15: loads.film.from: there is no node 'sever'; did you mean 'server'?",
    ),
    (
        "from = \"server\"",
        "from = \"router\"",
        "a.toml:15: loads.film: router, client have no common role",
    ),
    (
        "to = \"client\"",
        "to = \"server\"",
        "a.toml:15: loads.film.to: 'server' must be requested by another",
    ),
    (
        "file = \"5 MB\"",
        "cbr = { rate = 1, count = 1 }",
        "a.toml:15: loads.film.cbr: Interests go over ndn",
    ),
    (
        "outage = \"wifi\"",
        "outage = \"wlan\"",
        "a.toml:18: events[0].outage: there is no link 'wlan'; there are wire, wifi",
    ),
    (
        "at = \"1 s\"",
        "at = \"1\"",
        "a.toml:17: events[0].at: '1' has no unit",
    ),
    (
        "outage = \"wifi\"\n",
        "outage = \"wifi\"\ncrash = \"router\"\n",
        "a.toml:16: events[0]: an event has exactly one of",
    ),
    (
        "duration = \"2 s\"",
        "gap = \"2 s\"",
        "a.toml:19: events[0].gap: gap goes with move, not with outage",
    ),
    (
        "set = { loss",
        "set = { lost",
        "a.toml:23: events[1].set.lost: unknown key 'lost'; did you mean 'loss'?",
    ),
    (
        "[\"0 %\", \"1 %\"]",
        "[]",
        "a.toml:25: sweep.\"links.wifi.loss\": a sweep is a list",
    ),
    (
        "\"links.wire.delay\"",
        "\"links.wire.daley\"",
        "a.toml:26: sweep.\"links.wire.daley\"[0]: unknown key 'daley'",
    ),
    (
        "film.*",
        "flim.*",
        "a.toml:4: metrics[0]: there is no metric 'flim.*'",
    ),
    (
        "\"film.goodput\"",
        "\"film.godput\"",
        "a.toml:30: statements[0].metric: there is no metric 'film.godput'; did you mean 'film.goodput'?",
    ),
    (
        "at = { \"links.wifi.loss\" = \"1 %\" }",
        "at = { \"links.wifi.loss\" = \"2 %\" }",
        "a.toml:31: statements[0].at.\"links.wifi.loss\": the sweep has no setting",
    ),
    (
        "tolerance = \"5 %\"",
        "tolerance = \"wide\"",
        "a.toml:34: statements[0].tolerance: a tolerance is",
    ),
    ("[nodes]", "[nodes", "a.toml:5: "),
];

#[test]
fn errors_name_line_and_key_and_say_what_would_be_right() {
    for (old, new, said) in FAULTS {
        let faults = fault(old, new);
        assert!(
            faults.starts_with(said),
            "{old} -> {new}\n  wanted {said}\n  got    {faults}"
        );
    }
}

#[test]
fn one_reading_finds_every_error() {
    let text = SOUND
        .replace("delay = \"20 ms\"", "dealy = \"20 ms\"")
        .replace("loss = \"1 %\", backward", "los = \"1 %\", backward");
    let faults = read(&text).unwrap_err();
    assert!(
        faults.contains("a.toml:12: ") && faults.contains("a.toml:13: "),
        "{faults}"
    );
}

#[test]
fn routers_without_a_name_server_are_refused_and_cut_off_receivers_too() {
    let two = "nodes = { a = \"host\", r = \"router\", s = \"router\", b = \"host\" }\nloads.f = { from = \"a\", to = \"b\", file = \"1 MB\" }\n\
        [links]\nx = { between = [\"a\", \"r\"] }\ny = { between = [\"r\", \"s\"] }\nz = { between = [\"s\", \"b\"] }\n";
    let faults = read(two).unwrap_err();
    assert!(
        faults.starts_with("a.toml:1: nodes: 2 routers find names by a name server only"),
        "{faults}"
    );
    let cut = two.replace("s = \"router\"", "s = \"host\"");
    let faults = read(&cut).unwrap_err();
    assert!(
        faults.starts_with(
            "a.toml:2: loads.f.to: no path of routers leads from 'b' to 'a'; hosts do not forward"
        ),
        "{faults}"
    );
}

#[test]
fn a_queue_without_room_for_a_packet_is_refused() {
    let text = |queue: &str| {
        format!(
            "nodes = {{ a = \"tcp-host\", b = \"tcp-host\" }}\nloads.f = {{ from = \"a\", to = \"b\", file = \"1 MB\" }}\n\
             [links]\nx = {{ between = [\"a\", \"b\"], mtu = 1400, queue = {queue} }}\n"
        )
    };
    for queue in ["50", "\"1399 B\""] {
        let faults = read(&text(queue)).err().unwrap_or_default();
        assert!(faults.contains("a.toml:4: links.x.queue: "), "{faults}");
        assert!(faults.contains("no room for a packet of 1400"), "{faults}");
    }
    for queue in ["1400", "\"50 packets\"", "\"unlimited\""] {
        assert!(read(&text(queue)).is_ok(), "{queue}");
    }
}

#[test]
fn a_move_removes_one_link_and_adds_another() {
    use whimbrel_lab::scenario::event::Action;
    let text = "nodes = { a = \"host\", r = \"router\", b = \"host\" }\n\
        loads.f = { from = \"a\", to = \"b\", file = \"1 MB\" }\n\
        events = [{ at = \"3 s\", move = \"b\", from = \"y\", to = \"z\", gap = \"1 s\" }]\n\
        [links]\nx = { between = [\"a\", \"r\"] }\ny = { between = [\"r\", \"b\"] }\nz = { between = [\"r\", \"b\"] }\n";
    let scenario = read(text).unwrap();
    let timeline = &scenario.settings[0].plan.timeline;
    // What the kernel tells the host that moves, the third node.
    let carrier = |link, works| Action::Carrier {
        node: 2,
        link,
        works,
    };
    let steps: Vec<_> = timeline
        .iter()
        .map(|timed| (timed.at.as_secs(), &timed.action))
        .collect();
    assert_eq!(
        steps,
        [
            (0, &Action::Cut(2)),
            (0, &carrier(2, false)),
            (3, &Action::Cut(1)),
            (3, &carrier(1, false)),
            (4, &Action::Restore(2)),
            (4, &carrier(2, true))
        ]
    );
    let wrong = text.replace("from = \"y\", to = \"z\"", "from = \"x\", to = \"z\"");
    assert!(
        read(&wrong)
            .unwrap_err()
            .contains("events[0].from: link 'x' is not at 'b'")
    );
}

proptest::proptest! {
    /// No text makes the loader panic: neither random text nor a valid scenario with a piece cut
    /// out.
    #[test]
    fn any_text_is_read_or_refused(noise in "\\PC{0,80}", from in 0usize..900, len in 0usize..60) {
        let _ = read(&noise);
        let from = from.min(SOUND.len());
        let to = (from + len).min(SOUND.len());
        if SOUND.is_char_boundary(from) && SOUND.is_char_boundary(to) {
            let _ = read(&format!("{}{}", &SOUND[..from], &SOUND[to..]));
        }
    }
}

#[test]
fn defaults_apply_to_nodes_without_settings_and_strategies_are_checked() {
    let text = "graph = { role = \"ndn-router\", line = { nodes = 3 } }\n\
        defaults.node = { strategy = \"asf\", content_store = \"1 MB\" }\n\
        nodes = { n2 = { role = \"ndn-router\", strategy = \"multicast\" } }\n\
        loads.f = { from = \"n1\", to = \"n3\", file = \"1 MB\" }\n";
    let scenario = read(text).unwrap();
    let nodes = &scenario.settings[0].plan.network.nodes;
    let strategy = |node: usize| {
        nodes[node]
            .settings
            .strategy
            .as_ref()
            .unwrap()
            .0
            .to_string()
    };
    assert!(strategy(0).contains("/asf") && strategy(1).contains("/multicast"));
    assert!(
        nodes
            .iter()
            .all(|node| node.settings.content_store == Some(1_000_000))
    );
    for (old, new, said) in [
        (
            "\"asf\"",
            "\"afs\"",
            "a.toml:2: defaults.node.strategy: there is no strategy 'afs'; did you mean 'asf'?",
        ),
        (
            "defaults.node",
            "defaults.nodes",
            "a.toml:2: defaults.nodes: there are no defaults of 'nodes'; did you mean 'node'?",
        ),
        (
            "role = \"ndn-router\", strategy",
            "strategy",
            "a.toml:3: nodes.n2: a node needs a role",
        ),
        (
            "n2 = {",
            "\"../n2\" = {",
            "a.toml:3: nodes.\"../n2\": '../n2' is not a name",
        ),
    ] {
        let fault = read(&text.replace(old, new)).err().unwrap_or_default();
        assert!(fault.starts_with(said), "wanted {said}\ngot    {fault}");
    }
}

const BARE: &str = r#"graph = { role = "ndn-router", line = { nodes = 3 } }
[defaults.link]
rate = "10 Mbit/s"
queue = "80 packets"
carrier = "bare"
device = true
[loads.asked]
from = "n3"
to = "n1"
poisson = { rate = 100, count = 10, timeout = { min = "10 ms" } }
[sweep.recovery]
off = { "defaults.link.recovery" = "off", "defaults.node.content_store" = "0 B" }
twice = { "defaults.link.recovery" = "paper-2" }
"#;

#[test]
fn a_sweep_names_sets_of_keys() {
    use whimbrel_lab::scenario::link::Recovery;
    let scenario = read(BARE).unwrap();
    let shown: Vec<_> = scenario
        .settings
        .iter()
        .map(|setting| {
            let network = &setting.plan.network;
            let store = network.nodes[0].settings.content_store;
            (
                setting.values[0].1.as_str(),
                network.links[1].recovery,
                store,
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("off", Recovery::Off, Some(0)),
            ("twice", Recovery::Paper2, None)
        ]
    );
}

#[test]
fn links_of_ndn_routers_alone_are_checked() {
    for (old, new, said) in [
        (
            "\"10 Mbit/s\"",
            "\"unlimited\"",
            "a.toml:6: defaults.link.device: a device has a constant rate",
        ),
        (
            "80 packets",
            "80 kB",
            "a.toml:6: defaults.link.device: a device's queue is counted in packets",
        ),
        (
            "[loads.asked]",
            "[nodes]\nn2 = [\"host\"]\n[loads.asked]",
            "a.toml:5: defaults.link.carrier: a bare link joins two NDN routers, and 'n2' is not one",
        ),
        (
            "\"bare\"",
            "\"bere\"",
            "a.toml:5: defaults.link.carrier: unknown value 'bere'; did you mean 'bare'?",
        ),
        (
            "\"defaults.link.recovery\" = \"paper-2\"",
            "\"sweep.x\" = 1",
            "sweep.recovery.twice.\"sweep.x\": 'sweep.x' is not a key",
        ),
        (
            "{ \"defaults.link.recovery\" = \"paper-2\" }",
            "\"paper-2\"",
            "a.toml:11: sweep.recovery: a sweep is a list of values",
        ),
        (
            "min = \"10 ms\"",
            "mins = \"10 ms\"",
            "loads.asked.poisson.timeout.mins: unknown key 'mins'; did you mean 'min'?",
        ),
    ] {
        assert!(BARE.contains(old), "{old}");
        let faults = read(&BARE.replacen(old, new, 1)).err().unwrap_or_default();
        assert!(faults.contains(said), "{said}\n{faults}");
    }
}

#[test]
fn a_back_end_may_have_keys_of_its_own() {
    let text = SOUND.replace(
        "[sweep]",
        "[netns]\nruns = 1\n\"loads.film.file\" = \"1 MB\"\n[sweep]",
    );
    let runs = |backend| {
        let overrides = Overrides {
            backend,
            ..Overrides::default()
        };
        Scenario::parse(Path::new("a.toml"), &text, overrides)
            .unwrap()
            .runs
    };
    let all = [None, Some(Backend::Sim), Some(Backend::Netns)];
    assert_eq!(all.map(runs), [2, 2, 1]);
    for (new, said) in [
        (
            "\"loads.film.file\" = \"1 mile\"",
            "a.toml:26: netns.\"loads.film.file\": ",
        ),
        (
            "\"events[7].at\" = \"1 s\"",
            "a.toml:26: netns.\"events[7].at\": there is no key",
        ),
    ] {
        let faults = read(&text.replace("\"loads.film.file\" = \"1 MB\"", new)).unwrap_err();
        assert!(faults.contains(said), "{said}\n{faults}");
    }
}

#[test]
fn settings_that_do_not_fit_a_load_are_refused() {
    for (new, said) in [
        (
            "file = \"5 MB\", over = \"tcp\", nack_timer = \"2 s\"",
            "a.toml:15: loads.film.nack_timer: tcp has no NACK timer",
        ),
        (
            "file = \"5 MB\", split = \"router\"",
            "loads.film.split: mobility-first has no connections to split",
        ),
        (
            "file = \"5 MB\", over = \"tcp\", split = \"N9\"",
            "loads.film.split: there is no node 'N9'",
        ),
        ("file = \"5 MB\", within = \"2\"", "loads.film.within"),
        (
            "file = \"5 MB\", duplex = true",
            "loads.film.duplex: mobility-first has no connections with two directions",
        ),
        (
            "bulk = true, duplex = true, over = \"tcp\"",
            "loads.film.duplex: a load in both directions has one connection",
        ),
        (
            "browser = { size = \"20 kB\" }",
            "loads.film.browser: a browser speaks over tcp, not over mobility-first",
        ),
        (
            "browser = { size = \"20 kB\", hosts = 0 }, over = \"tcp\"",
            "loads.film.browser: hosts = 0 is not above 0",
        ),
        (
            "browser = { size = \"20 MB\" }, over = \"tcp\"",
            "loads.film.browser: a page has at most 2000 objects, of at most 10 MB each",
        ),
        (
            "browser = { size = \"20 kB\", http = \"3\" }, over = \"tcp\"",
            "loads.film.browser: its server speaks HTTP/1.1 and HTTP/2",
        ),
        (
            "browser = { size = \"20 kB\" }, over = \"tcp\", congestion = \"bbr\"",
            "loads.film.congestion: a browser and its server use the kernel's defaults",
        ),
    ] {
        let faults = fault("file = \"5 MB\"", new);
        assert!(faults.contains(said), "{said}\n{faults}");
    }
}

#[test]
fn a_host_attaches_only_to_routers_and_a_link_without_emulation_has_no_properties() {
    for (old, new, said) in [
        (
            "client = \"host\"",
            "client = { role = \"host\", router = \"ruoter\" }",
            "a.toml:8: nodes.client.router: there is no node 'ruoter'; did you mean 'router'?",
        ),
        (
            "client = \"host\"",
            "client = { role = \"host\", router = [\"router\", \"server\"] }",
            "a.toml:8: nodes.client.router[1]: 'server' is not a router",
        ),
        (
            "client = \"host\"",
            "client = { role = \"host\", preference = [\"wier\"] }",
            "a.toml:8: nodes.client.preference[0]: there is no link 'wier'; did you mean 'wire'?",
        ),
        (
            "client = \"host\"",
            "client = { role = \"host\", preference = [\"wire\"] }",
            "a.toml:8: nodes.client.preference[0]: link 'wire' is not at 'client'",
        ),
        (
            "storage = \"10 MB\"",
            "preference = [\"wire\"]",
            "a.toml:7: nodes.router.preference: 'router' is not a host, so it prefers no link",
        ),
        (
            "storage = \"10 MB\"",
            "router = \"client\"",
            "a.toml:7: nodes.router.router: 'router' is not a host",
        ),
        (
            "delay = \"20 ms\"",
            "emulated = false",
            "a.toml:12: links.wire.emulated: a link that is not emulated has no rate",
        ),
        (
            "runs = 2",
            "warm_up = \"10 min\"",
            "a.toml:3: warm_up: the run is cut off before it has warmed up",
        ),
    ] {
        let faults = fault(old, new);
        assert!(faults.contains(said), "{said}\n{faults}");
    }
    // As a default it applies to hosts only.
    let all = SOUND.replace("[loads]", "[defaults.node]\nrouter = \"router\"\n[loads]");
    let network = &read(&all).unwrap().settings[0].plan.network;
    let client = network.node("client").unwrap();
    assert_eq!(
        network.access_routers(client),
        [network.node("router").unwrap()]
    );
    let clean = SOUND
        .replace("[defaults.link]\nrate = \"100 Mbit/s\"\n", "")
        .replace("delay = \"20 ms\"", "emulated = false")
        .replace(
            "\"links.wire.delay\" = [\"10 ms\", \"50 ms\", \"100 ms\"]\n",
            "",
        );
    read(&clean).unwrap();
    let faults = read(&clean.replace("outage = \"wifi\"", "outage = \"wire\"")).unwrap_err();
    let said = "events[0].outage: link 'wire' is not emulated, so it cannot change";
    assert!(faults.contains(said), "{faults}");
}

#[test]
fn features_that_a_back_end_lacks_are_refused_with_the_line() {
    let ndn = r#"
graph = { role = "ndn-router", line = { nodes = 3 } }
[defaults.link]
rate = "20 Mbit/s"
recovery = "paper-1"
[loads]
film = { from = "n1", to = "n3", file = "1 MB" }
"#;
    let crash = SOUND.replace("outage = \"wifi\"", "crash = \"client\"");
    let film = |more: &str| {
        let film = format!("over = \"tcp\", {more}");
        ndn.replace("file = \"1 MB\"", &film)
            .replace("recovery = \"paper-1\"\n", "")
    };
    for (backend, text, said) in [
        (
            Backend::Netns,
            ndn.to_owned(),
            "a.toml:5: defaults.link.recovery: the back end 'netns' does not bound the \
             retransmissions of the link 'n1-n2' yet",
        ),
        (
            Backend::Netns,
            ndn.replace("recovery = \"paper-1\"\n", "")
                .replace("file = \"1 MB\"", "bulk = true"),
            "a.toml:6: loads.film.bulk: the back end 'netns' does not run 'film', whose repeated \
             files caches would answer, yet",
        ),
        (
            Backend::Sim,
            film("browser = { size = \"20 kB\" }"),
            "a.toml:6: loads.film.browser: the back end 'sim' does not show 'film' in a browser yet",
        ),
        (
            Backend::Sim,
            crash,
            "a.toml:18: events[0].crash: the back end 'sim' does not crash 'client', which receives \
             'film' yet",
        ),
    ] {
        let options = BatchOptions {
            backend,
            jobs: Some(1),
            program: "whimbrel".into(),
            journal: None,
        };
        let ran = read(&text).unwrap().run(&options, &mut |_, _, _| {});
        assert_eq!(ran.map(|_| ()).unwrap_err().to_string(), said);
    }
}
