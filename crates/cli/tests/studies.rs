//! `study run` and `study report` on the command line.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::path::Path;

use crate::support::interop::Interop;
use crate::support::{finished, whimbrel};
use whimbrel_lab::lab_available;
use whimbrel_lab::supervisor::is_installed;

/// Fig. 10 and TCP, at a size that takes seconds in real time, too.
const SCENARIO: &str = r#"
nodes = { N1 = "host", N2 = "router", N3 = "router", N4 = "host", GNRS = "name-server" }
[defaults.link]
rate = "1 Gbit/s"
[links]
N2-GNRS = { between = ["N2", "GNRS"] }
N3-GNRS = { between = ["N3", "GNRS"] }
N1-N2 = { between = ["N1", "N2"] }
N2-N3 = { between = ["N2", "N3"], delay = "5 ms" }
N3-N4 = { between = ["N3", "N4"], rate = "20 Mbit/s", delay = "1 ms", outages = [{ start = "1 s", duration = "1 s" }] }
[loads.film]
from = "N1"
to = "N4"
file = "200 kB"
within = "1 s"
[sweep.wifi]
WiFi = {}
[sweep.off]
"1 s" = {}
[sweep.by]
mftp = {}
[sweep.by.receiver-driven]
"loads.film.nack_timer" = "500 ms"
"nodes.N3" = { role = "router", proactive = false }
[sweep.by.tcp]
"loads.film.over" = "tcp"
"nodes.N1" = "tcp-host"
"nodes.N2" = "tcp-host"
"nodes.N3" = "tcp-host"
"nodes.N4" = "tcp-host"
"nodes.GNRS" = "tcp-host"
[netns."sweep.by.http-proxies"]
"loads.film.web" = { pages = 1 }
"#;

fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let scenario = folder.join("scenario.toml");
    fs::write(&scenario, SCENARIO).unwrap();
    let mut command = whimbrel();
    command
        .args(["study", "run", "mftp-fig10", "--scenario"])
        .arg(&scenario)
        .args(arguments);
    finished(command.arg("-o").arg(folder.join("results")))
}

#[test]
fn a_report_is_rebuilt_from_the_results_of_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text, err) = run(folder.path(), &["--runs", "2"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("another scenario than the paper's"), "{err}");
    let results = folder.path().join("results");
    let page = results.join("mftp-fig10.html");
    assert!(
        text.trim_end().ends_with(&page.display().to_string()),
        "{text}"
    );
    for written in [&page, &results.join("index.html")] {
        fs::remove_file(written).unwrap();
    }
    let (code, text, err) = finished(whimbrel().args(["study", "report", "-o"]).arg(&results));
    assert_eq!(code, 0, "{err}");
    assert_eq!(text.lines().count(), 2, "a page and the index: {text}");
    assert!(
        fs::read_to_string(&page)
            .unwrap()
            .contains("--seed 1 --runs 2 --scenario scenario.toml")
    );
    assert!(results.join("index.html").exists());
}

#[test]
fn a_scenario_that_sweeps_what_the_study_does_not_know_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weather.toml");
    fs::write(
        &file,
        format!("{SCENARIO}[sweep.weather]\nsun = {{}}\nrain = {{}}\n"),
    )
    .unwrap();
    let mut command = whimbrel();
    command
        .args(["study", "run", "mftp-fig10", "--scenario"])
        .arg(&file);
    let (code, text, err) = finished(command.arg("-o").arg(folder.path().join("results")));
    assert_ne!(code, 0, "{text}");
    assert!(err.contains("it sweeps weather"), "{err}");
}

#[test]
fn a_study_of_no_runs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, err) = run(folder.path(), &["--runs", "0"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("--runs"), "{err}");
}

#[test]
fn a_report_without_results_names_the_command_to_run() {
    let folder = tempfile::tempdir().unwrap();
    for place in [folder.path().to_owned(), folder.path().join("nowhere")] {
        let (code, _, err) = finished(whimbrel().args(["study", "report", "-o"]).arg(&place));
        assert_eq!(code, 2);
        assert!(err.contains("whimbrel study run"), "{err}");
    }
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing is left behind"
    );
}

#[test]
fn every_approach_runs_in_namespaces() {
    if !lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, _, err) = run(folder.path(), &["--backend", "netns", "--json"]);
    assert_eq!(code, 0, "{err}");
    let place = folder.path().join("results/mftp-fig10/netns");
    let times = fs::read_to_string(place.join("response-times.csv")).unwrap();
    assert_eq!(
        times.lines().filter(|line| line.ends_with(",yes")).count(),
        4,
        "{times}"
    );
    assert_eq!(fs::read_dir(place.join("flent")).unwrap().count(), 4);
}

#[test]
fn the_list_names_every_study_of_recovery_on_links() {
    let (code, text, err) = finished(whimbrel().args(["study", "list"]));
    assert_eq!(code, 0, "{err}");
    for name in ["belrp-linear", "belrp-hops", "belrp-abilene"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{text}");
    }
}

/// The line of the studies of TCP over NDN, with small files.
const PROXIES: &str = r#"
limit = "60 s"
[nodes]
client = "tcp-host"
a = ["ndn-router", "tcp-proxy"]
b = "ndn-router"
c = ["ndn-router", "tcp-proxy"]
server = "tcp-host"
[defaults.link]
rate = "20 Mbit/s"
delay = "2 ms"
[links]
client-a = { between = ["client", "a"] }
a-b = { between = ["a", "b"], mtu = 9000 }
b-c = { between = ["b", "c"], mtu = 9000 }
c-server = { between = ["c", "server"] }
"#;

const COMPLETION: &str = r#"
[loads.file]
from = "server"
to = "client"
over = "tcp"
file = "300 kB"
[sweep.loss]
"0 %" = {}
[sweep.by]
plain = {}
basic = { "loads.file.proxies" = { client = "a", server = "c", protocol = "basic" } }
reliable = { "loads.file.proxies" = { client = "a", server = "c", protocol = "reliable" } }
unreliable = { "loads.file.proxies" = { client = "a", server = "c" } }
"#;

const FAIRNESS: &str = r#"
[loads.flows]
from = "server"
to = "client"
over = "tcp"
page = { objects = 10, size = "50 kB", parallel = 10 }
[sweep.size]
"0.4 Mb" = {}
[sweep.by]
plain = {}
unreliable = { "loads.flows.proxies" = { client = "a", server = "c" } }
"#;

/// Runs a study of TCP over NDN with this scenario. Returns one of its tables.
fn proxied(study: &str, scenario: &str, backend: &str, table: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    fs::write(&file, scenario).unwrap();
    let results = folder.path().join("results");
    let mut command = whimbrel();
    command.args(["study", "run", study, "--backend", backend, "--scenario"]);
    let (code, _, err) = finished(command.arg(file).arg("-o").arg(&results));
    assert_eq!(code, 0, "{err}");
    fs::read_to_string(results.join(study).join(backend).join(table)).unwrap()
}

/// A run whose file did not arrive has no finite time.
fn all_complete(table: &str, rows: usize) {
    assert_eq!(table.lines().count(), 1 + rows, "{table}");
    assert!(!table.contains("inf") && !table.contains("NaN"), "{table}");
}

#[test]
fn tcp_over_ndn_is_simulated_and_run_by_the_same_scenario() {
    let completion = format!("{PROXIES}{COMPLETION}");
    let fairness = format!("{PROXIES}{FAIRNESS}");
    let backends: &[&str] = match lab_available() {
        true => &["sim", "netns"],
        false => &["sim"],
    };
    for backend in backends {
        let table = proxied("tcpicn-sim", &completion, backend, "transfers.csv");
        all_complete(&table, 4);
        // Each protocol sent Interests and Data of its own.
        let frames = |row: &str| row.split(',').nth(5).unwrap().parse::<u64>().unwrap();
        let rows: Vec<&str> = table.lines().skip(1).collect();
        assert!(
            frames(rows[1]) > frames(rows[3]),
            "basic takes more than unreliable: {table}"
        );
        all_complete(
            &proxied("tcpicn-fairness", &fairness, backend, "streams.csv"),
            2,
        );
    }
}

/// A page over plain IP and over proxies, as small as it can be.
const PAGE: &str = r#"
[loads.page]
from = "server"
to = "client"
over = "tcp"
browser = { hosts = 2, objects = 2, size = "2 kB" }
[sweep.http]
"HTTP/1.1" = { "loads.page.browser.http" = "1.1" }
"HTTP/2" = {}
[sweep.rtt]
"8 ms" = {}
[sweep.loss]
"0 %" = {}
[sweep.by]
plain = {}
unreliable = { "loads.page.proxies" = { client = "a", server = "c" } }
"#;

#[test]
fn a_browser_loads_a_page_in_namespaces_only() {
    let (code, _, err) =
        finished(whimbrel().args(["study", "run", "tcpicn-page", "--backend", "sim"]));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("`--backend netns` runs it"), "{err}");
    if !lab_available() || Interop::find().is_none() {
        return;
    }
    let page = format!("{PROXIES}{PAGE}");
    for table in ["http-1-1.csv", "http-2.csv"] {
        all_complete(&proxied("tcpicn-page", &page, "netns", table), 1);
    }
}

/// The study of the name service, as small as it can be.
const NAMES: &str = r#"
title = "Names"
[internet]
networks = 300
links = 1000
detour = 2.0
link_ms = 1.0
inside_ms = 4.0
region = [{ name = "Here", latitude = 50.0, longitude = 10.0, radius_km = 1000.0, share = 1.0 }]
[placement]
askers = 20
names = 20
copies = [1, 5]
[demand]
names = 20
lookups = 2000
lookups_per_s = 100.0
updates_per_lookup = 0.1
popularity = 0.9
locality = 0.75
neighbourhood = 3
copies = 3
followed = 64
known_copies = 3
[rates]
names = 50
versions = 2
window = 16
lookups = 500
single = 50
primaries = [2]
watched_updates = 20
watched_updates_per_s = 100.0
[failover]
primaries = 3
names = 200
updates_per_s = 200.0
before_s = 0.5
after_s = 1.0
count_after_s = 1.0
"#;

fn name_study(backend: &str, table: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scenario.toml");
    fs::write(&file, NAMES).unwrap();
    let results = folder.path().join("results");
    let mut command = whimbrel();
    command.args(["study", "run", "gnrs-scale", "--backend", backend]);
    command.arg("--scenario").arg(file);
    let (code, text, err) = finished(command.arg("-o").arg(&results));
    assert_eq!(code, 0, "{err}");
    let table = results.join("gnrs-scale").join(backend).join(table);
    (fs::read_to_string(table).unwrap(), text)
}

#[test]
fn names_are_placed_over_networks_and_more_copies_are_nearer() {
    let (table, text) = name_study("sim", "placement.csv");
    let of = |copies: &str| -> f64 {
        let is_it = |row: &&str| {
            let cells: Vec<&str> = row.rsplit(',').collect();
            row.contains("the nearest asked first") && cells[4] == copies
        };
        let row = table.lines().find(is_it).unwrap();
        row.rsplit(',').nth(3).unwrap().parse().unwrap()
    };
    assert!(of("5.0") < of("1.0"), "{table}");
    assert!(text.contains("five copies"), "{text}");
}

#[test]
fn name_servers_are_measured_with_stores_of_all_kinds() {
    let mut installed = std::process::Command::new("redis-server");
    if !lab_available() || installed.arg("--version").output().is_err() {
        return eprintln!("SKIPPED: it needs namespaces and redis-server");
    }
    let (table, text) = name_study("netns", "rates.csv");
    // Five kinds of requests, of which embedded stores have no cold ones.
    assert_eq!(table.lines().count(), 1 + 4 + 4 + 5, "{table}");
    let failed = table.lines().skip(1).map(|row| row.rsplit(',').next());
    assert!(failed.clone().all(|it| it == Some("0")), "{table}");
    assert!(
        text.contains("acknowledged update that is missing"),
        "{text}"
    );
}

#[test]
fn pages_load_through_the_proxies_and_over_every_http() {
    if !lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/mftp-web/scenario.toml");
    let own = fs::read_to_string(own).unwrap();
    // One page of 37 objects, with loss.
    let short = |line: &str| match line.split_once(" = ") {
        Some(("runs", _)) => String::from("runs = 1"),
        Some(("web", _)) => String::from("web = { pages = 1, set = 4 }"),
        _ => line.to_owned(),
    };
    let text: Vec<String> = own.lines().map(short).collect();
    let text = text.join("\n").replace("\"0 %\" = {}\n", "");
    let text = text.replace("web.pages\" = 10", "web.pages\" = 1");
    let text = text.replace("mftp-unpaced = { pacing = \"unpaced\" }\n", "");
    let text: String = text
        .split_inclusive("[sweep.by.")
        .filter(|part| {
            !["http1-bbr", "http2-bbr", "http3-cubic"]
                .iter()
                .any(|by| part.starts_with(by))
        })
        .collect();
    let scenario = folder.path().join("scenario.toml");
    fs::write(&scenario, text).unwrap();
    let mut command = whimbrel();
    command.args(["study", "run", "mftp-web", "--jobs", "3", "--scenario"]);
    command.arg(&scenario).arg("-o").arg(folder.path());
    let (code, _, err) = finished(&mut command);
    assert_eq!(code, 0, "{err}");
    let times = folder.path().join("mftp-web/netns/load-times.csv");
    let times = fs::read_to_string(times).unwrap();
    for by in ["6 at a time", "all at once", "HTTP/1.1", "HTTP/2", "HTTP/3"] {
        assert!(times.contains(by), "{by}: {times}");
    }
    assert!(!times.contains("inf") && !times.contains("NaN"), "{times}");
    let events = folder.path().join("mftp-web/netns/chromium.csv");
    let events = fs::read_to_string(events).unwrap();
    match is_installed("chromium") {
        true => {
            assert!(events.contains("Chromium, MFTP") && events.contains("Chromium, HTTP/1.1"));
            // The page and the mean.
            all_complete(&events, 2);
        }
        false => assert_eq!(events.lines().count(), 1, "{events}"),
    }
}
