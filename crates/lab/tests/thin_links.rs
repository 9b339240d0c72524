//! The bytes that a file costs on a thin link: the rows of `docs/scenarios/thin-links.toml`, as
//! `whimbrel lab run` has them. The table in `docs/thin-links.md` is printed by
//! `cargo test -p whimbrel-lab --test all thin_links:: -- --nocapture --test-threads 1`.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::collections::BTreeMap;
use std::path::Path;

use whimbrel_lab::scenario::run::Run;
use whimbrel_lab::scenario::{Overrides, Scenario, Setting, sim};

const TEXT: &str = include_str!("../../../docs/scenarios/thin-links.toml");

/// Returns the bytes over the thin link in the file's direction, and those in the other direction,
/// both divided by the bytes of the file.
fn ratios(way: &str, run: &Run) -> (f64, f64) {
    let value = |name: &str| run.values[name];
    assert_eq!(value("film.files"), 1.0, "{:?}", run.values);
    let over_file = |link: &str| value(link) / value("film.bytes");
    let (down, up) = ("links.thin.forward", "links.thin.backward");
    match way {
        "down" => (over_file(down), over_file(up)),
        _ => (over_file(up), over_file(down)),
    }
}

/// Runs and prints the rows of one rate: two ways, two round trips, three losses. No row takes more
/// than `most` times the file's bytes in the file's direction, besides less than half of what is lost.
fn assert_rows(rate: &str, label: &str, most: f64) {
    // Ends the line on which the test harness has printed the test's name.
    println!();
    let read = Scenario::parse(Path::new("thin-links.toml"), TEXT, Overrides::default());
    let read = read.unwrap_or_else(|faults| panic!("{faults}"));
    let mut rows = 0;
    for setting in read.settings {
        let at: BTreeMap<&str, &str> = setting
            .values
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        if at["rate"] != rate {
            continue;
        }
        rows += 1;
        let run = sim::run(&setting.plan, setting.plan.seed).unwrap();
        let (there, back) = ratios(at["way"], &run);
        let row = format!(
            "| {label} | {} | {} | {} | {there:.3} | {back:.3} | {:.0} s |",
            at["way"], at["links.thin.delay"], at["links.thin.loss"], run.values["film.completion"]
        );
        println!("{row}");
        let lossy = match at["links.thin.loss"] {
            "5 %" => 0.02,
            "1 %" => 0.004,
            _ => 0.0,
        };
        assert!(there > 1.0 && there <= most + lossy, "{row}");
    }
    assert_eq!(rows, 12);
}

#[test]
fn a_file_over_256_kbit_s_takes_7_percent_more_at_most() {
    assert_rows("k256", "256 kbit/s", 1.07);
}

#[test]
fn a_file_over_64_kbit_s_takes_9_percent_more_at_most() {
    assert_rows("k64", "64 kbit/s", 1.09);
}

#[test]
fn a_file_over_9600_bit_s_takes_10_percent_more_at_most() {
    assert_rows("k9_6", "9.6 kbit/s", 1.10);
}

/// Runs a scenario of this network for each value of a sweep: a film from `server` to `client`.
fn runs(network: &str, sweep: &str) -> Vec<(String, Run)> {
    let text = format!(
        "title = \"A film\"\nlimit = \"2 h\"\nmetrics = [\"film.completion\"]\n{network}\n[sweep]\n{sweep}"
    );
    let read = Scenario::parse(Path::new("film.toml"), &text, Overrides::default());
    let settings = read.unwrap_or_else(|faults| panic!("{faults}")).settings;
    let run = |setting: &Setting| {
        let values = setting.values.iter().map(|(_, value)| value.to_string());
        let run = sim::run(&setting.plan, setting.plan.seed).unwrap();
        assert_eq!(run.values["film.files"], 1.0, "{:?}", run.values);
        (values.collect::<Vec<_>>().join(" "), run)
    };
    settings.iter().map(run).collect()
}

/// A fast link, a long one and a slow one in a row.
const LONG_AND_SLOW: &str = r#"
nodes = { server = "host", first = "router", last = "router", client = "host", names = "name-server" }
loads.film = { from = "server", to = "client", file = "1 MB" }
[links]
asks = { between = ["first", "names"], rate = "1 Gbit/s", delay = "1 ms" }
wire = { between = ["server", "first"], rate = "100 Mbit/s", delay = "1 ms" }
long = { between = ["first", "last"], rate = "1 Gbit/s", delay = "1 ms" }
thin = { between = ["last", "client"], rate = "64 kbit/s", delay = "300 ms", queue = "64 kB" }
"#;

#[test]
fn what_may_wait_for_a_link_counts_its_round_trip() {
    let sweep = r#"
"links.thin.delay" = ["1 s"]
rate.k9_6 = { "links.thin.rate" = "9600 bit/s", "loads.film.file" = "200 kB" }
rate.k64 = { "links.thin.rate" = "64 kbit/s", "loads.film.file" = "1 MB" }
rate.k128 = { "links.thin.rate" = "128 kbit/s", "loads.film.file" = "2 MB" }
rate.m1 = { "links.thin.rate" = "1 Mbit/s", "loads.film.file" = "16 MB" }
rate.m10 = { "links.thin.rate" = "10 Mbit/s", "loads.film.file" = "160 MB", "links.thin.queue" = "2500 kB" }
"#;
    for (at, run) in runs(LONG_AND_SLOW, sweep) {
        let bits = 8.0 * run.values["film.bytes"];
        let rate = match at.rsplit(' ').next().unwrap() {
            "k9_6" => 9_600.0,
            "k64" => 64_000.0,
            "k128" => 128_000.0,
            "m1" => 1_000_000.0,
            _ => 10_000_000.0,
        };
        let took = run.values["film.completion"];
        // The headers, and some seventeen round trips to attach, ask and find the rate.
        let most = 1.06 * bits / rate + 35.0;
        assert!(took < most, "{at}: {took} s, not {most}");
    }
}

#[test]
fn what_comes_while_a_request_waits_for_an_answer_about_a_name_is_not_sent_again() {
    let sweep = r#"
"loads.film.file" = ["8 MB"]
"links.thin.rate" = ["300 kbit/s", "1 Mbit/s", "3 Mbit/s"]
"links.long.delay" = ["100 ms", "300 ms", "1 s"]
"#;
    for (at, run) in runs(LONG_AND_SLOW, sweep) {
        let there = run.values["links.thin.forward"] / run.values["film.bytes"];
        assert!(there > 1.0 && there < 1.08, "{at}: {there}");
    }
}

#[test]
fn a_flow_that_is_held_back_over_a_thin_link_costs_little_of_it() {
    let network = r#"
nodes = { server = "host", router = "router", client = "host" }
loads.film = { from = "server", to = "client", file = "600 kB" }
[links]
thin = { between = ["server", "router"], rate = "64 kbit/s", delay = "1 s", queue = "16 kB" }
slow = { between = ["router", "client"], rate = "64 kbit/s", delay = "1 s", queue = "16 kB" }
"#;
    // At 5 % loss one run of ten sends chunks of a 37th of the file twice, so the mean counts.
    for (loss, mean, most) in [("0 %", 1.09, 1.10), ("5 %", 1.11, 1.16)] {
        let sweep = format!(
            "seed = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]\n\"links.thin.loss\" = [\"{loss}\"]"
        );
        let runs = runs(network, &sweep);
        let over_file = |link: &str| {
            let of_run = |(_, run): &(String, Run)| run.values[link] / run.values["film.bytes"];
            runs.iter().map(of_run).collect::<Vec<f64>>()
        };
        let there = over_file("links.thin.forward");
        let back = over_file("links.thin.backward");
        println!("{loss}: there {there:.3?}, back {back:.3?}");
        assert!(there.iter().sum::<f64>() / 12.0 < mean);
        assert!(there.iter().all(|it| *it < most) && back.iter().all(|it| *it < 0.09));
    }
}

#[test]
fn links_of_200_to_600_kbit_s_carry_a_file_once() {
    let network = r#"
nodes = { server = "host", router = "router", client = "host" }
loads.film = { from = "server", to = "client", file = "6300 kB" }
[links]
wire = { between = ["server", "router"], rate = "100 Mbit/s", delay = "1 ms" }
thin = { between = ["router", "client"], rate = "200 kbit/s", delay = "50 ms", queue = "32 kB" }
"#;
    let sweep = r#"
"links.thin.rate" = ["200 kbit/s", "256 kbit/s", "300 kbit/s", "400 kbit/s", "600 kbit/s"]
"links.thin.delay" = ["50 ms", "300 ms"]
"links.thin.loss" = ["0 %", "5 %"]
"#;
    for (at, run) in runs(network, sweep) {
        let there = run.values["links.thin.forward"] / run.values["film.bytes"];
        assert!(there > 1.0 && there < 1.07, "{at}: {there}");
    }
}

#[test]
fn two_files_share_a_thin_link() {
    let network = r#"
nodes = { server = "host", router = "router", client = "host" }
loads.film = { from = "server", to = "client", file = "600 kB" }
loads.letter = { from = "server", to = "client", file = "100 kB", start = "10 s" }
[links]
wire = { between = ["server", "router"], rate = "100 Mbit/s", delay = "1 ms" }
thin = { between = ["router", "client"], rate = "64 kbit/s", delay = "300 ms", queue = "16 kB" }
"#;
    let sweep = r#"
way.down = { "loads.film.from" = "server", "loads.film.to" = "client" }
way.up = { "loads.film.from" = "client", "loads.film.to" = "server", "loads.letter.from" = "client", "loads.letter.to" = "server" }
"#;
    for (at, run) in runs(network, sweep) {
        let value = |name: &str| run.values[name];
        let took = [
            "letter.completion",
            "letter.stall",
            "film.completion",
            "film.stall",
        ]
        .map(value);
        let [letter, letter_stall, film, film_stall] = took;
        println!(
            "{at}: letter {letter:.0} s, stall {letter_stall:.0} s; film {film:.0} s, stall {film_stall:.0} s"
        );
        // Behind the whole film, the letter would come after 86 s. Its turns alternate with those of the film,
        // of which a chunk takes 7 s.
        assert!(letter < 50.0 && film < 110.0);
        assert!(letter_stall < 20.0 && film_stall < 10.0);
    }
}

/// A letter and a second film wait for what was let in of a film while the link was fast: about a second's
/// worth of the fast link, and its round trips. A source has let its hop have two chunks of 1 MiB.
#[test]
fn a_letter_waits_for_a_second_of_a_film_on_a_link_that_has_become_slow() {
    let network = |links: &str, rate: &str| {
        format!(
            r#"
nodes = {{ server = "host", near = "router", far = "router", names = "name-server", client = "host" }}
loads.film = {{ from = "server", to = "client", file = "8 MB" }}
loads.letter = {{ from = "server", to = "client", file = "20 kB", start = "10 s" }}
loads.second = {{ from = "server", to = "client", file = "500 kB", start = "20 s" }}
loads.note = {{ from = "server", to = "client", message = {{ size = "200 B", count = 1, every = "1 s" }}, start = "10 s" }}
events = [{{ at = "3 s", change = "thin", set = {{ rate = "{rate}" }} }}]
[links]
{links}
lan = {{ between = ["far", "client"], rate = "1 Gbit/s", delay = "1 ms" }}
names = {{ between = ["far", "names"], rate = "1 Gbit/s", delay = "1 ms" }}
"#
        )
    };
    let wire =
        |ends| format!(r#"wire = {{ between = {ends}, rate = "1 Gbit/s", delay = "1 ms" }}"#);
    let thin = |ends, delay| {
        format!(
            r#"thin = {{ between = {ends}, rate = "10 Mbit/s", delay = "{delay} ms", queue = "16 kB" }}"#
        )
    };
    let (first, next) = (r#"["server", "near"]"#, r#"["near", "far"]"#);
    let of_router = |delay| format!("{}\n{}", wire(first), thin(next, delay));
    let of_source = format!("{}\n{}", thin(first, 20), wire(next));
    // The most that the letter and the second film may take, in seconds.
    let cases = [
        ("router", of_router(20), "256 kbit/s", (60.0, 190.0)),
        ("source", of_source, "256 kbit/s", (40.0, 190.0)),
        (
            "router, RTT 0.6 s",
            of_router(300),
            "64 kbit/s",
            (800.0, 1100.0),
        ),
    ];
    for (place, links, rate, (most, second_most)) in cases {
        for (at, run) in runs(
            &network(&links, rate),
            "\"links.thin.loss\" = [\"0 %\", \"2 %\"]",
        ) {
            let value = |name: &str| run.values[name];
            let took = [
                "film.completion",
                "film.stall",
                "letter.completion",
                "second.completion",
                "note.completion",
            ];
            let [film, stall, letter, second, note] = took.map(value);
            println!(
                "{place}, {rate}, loss {at}: film {film:.0} s, stall {stall:.0} s; letter {letter:.1} s; second {second:.0} s; note {note:.1} s; {:.2} times the bytes",
                value("links.thin.forward") / 8_520_000.0
            );
            assert!(letter < most && second < second_most);
            // What the others send is what the film waits for, and nothing is sent twice.
            let forward = value("links.thin.forward");
            assert!(forward < 8_520_000.0 * 1.09, "{forward}");
        }
    }
}
