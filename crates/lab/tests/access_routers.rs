//! Clients whose two links end at different routers, as WiFi and LTE do in [MF-5G §V, Fig. 4]: the
//! scenario `docs/scenarios/access-routers.toml`, as `whimbrel lab run` has it.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::collections::BTreeMap;
use std::path::Path;

use whimbrel_lab::scenario::run::Run;
use whimbrel_lab::scenario::{Overrides, Scenario, sim};

const TEXT: &str = include_str!("../../../docs/scenarios/access-routers.toml");

/// Returns the runs by the links that the clients use.
fn runs(text: &str) -> BTreeMap<String, Run> {
    let read = Scenario::parse(Path::new("access-routers.toml"), text, Overrides::default());
    let read = read.unwrap_or_else(|faults| panic!("{faults}"));
    let settings = read.settings.iter().map(|setting| {
        let (_, used) = &setting.values[0];
        let run = sim::run(&setting.plan, setting.plan.seed).unwrap();
        (used.clone(), run)
    });
    settings.collect()
}

/// Asserts that both links bring a client 98 % of what they bring alone at least.
fn assert_sum(runs: &BTreeMap<String, Run>, load: &str) {
    let by = |used: &str| {
        assert_eq!(runs[used].values[&format!("{load}.files")], 1.0);
        runs[used].values[&format!("{load}.goodput")]
    };
    let (both, wifi, lte) = (by("both"), by("wifi"), by("lte"));
    println!("{load}: {both:.2} Mbit/s by both, {wifi:.2} by WiFi, {lte:.2} by LTE");
    assert!(both > 0.98 * (wifi + lte));
    // The router at which WiFi ends leaves LTE to who prefers it.
    assert!(lte > 2.0 * wifi);
}

#[test]
fn one_client_gets_the_sum_of_its_links() {
    let runs = runs(&TEXT.replace(r#"to = ["one", "two"]"#, r#"to = "one""#));
    assert_sum(&runs, "film");
}

/// What waits for them exceeds the buffer of the router at the server, which stores chunks and
/// releases them: these go on to both links too.
#[test]
fn two_clients_get_the_sum_of_theirs_though_chunks_were_stored_on_the_way() {
    let runs = runs(TEXT);
    let stored = runs["both"].values["nodes.far.stored"];
    assert!(stored > 100.0, "{stored}");
    assert_sum(&runs, "film.one");
    assert_sum(&runs, "film.two");
}

/// The row of the study mobility-handoff in which the client uses both links while it has them. Chunks
/// that the former router divided too went back to where they came from, and were lost with its link.
#[test]
fn a_client_that_moves_with_both_links_in_use_hardly_notices() {
    const STUDY: &str = include_str!("../../../studies/mobility-handoff/scenario.toml");
    let read = Scenario::parse(Path::new("scenario.toml"), STUDY, Overrides::default());
    let read = read.unwrap_or_else(|faults| panic!("{faults}"));
    let row = [
        ("rtt", "10 ms"),
        ("handoff", "make before break, everywhere"),
    ];
    let is_row = |values: &[(String, String)]| {
        let has = |(key, value)| values.iter().any(|(k, v)| k == key && v == value);
        row.into_iter().all(has)
    };
    let mut settings = read.settings.iter().filter(|it| is_row(&it.values));
    let plan = &settings.next().unwrap().plan;
    for seed in 1..=3 {
        let run = sim::run(plan, seed).unwrap();
        let (files, pause) = (run.values["film.files"], run.values["film.pause"]);
        assert!(files == 1.0 && pause < 0.05, "{pause} s: {:?}", run.values);
    }
}
