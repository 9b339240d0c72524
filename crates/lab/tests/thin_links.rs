//! What crosses a thin link for a file: the rows of `docs/scenarios/thin-links.toml`, as
//! `whimbrel lab run` has them. The table in `docs/thin-links.md` is printed by
//! `cargo test -p whimbrel-lab --test thin_links -- --nocapture --test-threads 1`.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::collections::BTreeMap;
use std::path::Path;

use whimbrel_lab::scenario::run::Run;
use whimbrel_lab::scenario::{Overrides, Scenario, sim};

const TEXT: &str = include_str!("../../../docs/scenarios/thin-links.toml");

/// The bytes that came over the thin link in the file's direction, and those that came back, over
/// the bytes of the file.
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

/// Runs and prints the rows of one rate: two ways, two round trips, three losses. None takes more
/// than `most` times the file's bytes in its direction; where one packet in twenty is lost, a little
/// more may cross twice.
fn assert_rows(rate: &str, most: f64) {
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
            "| {rate} | {} | {} | {} | {there:.3} | {back:.3} | {:.0} s |",
            at["way"], at["links.thin.delay"], at["links.thin.loss"], run.values["film.completion"]
        );
        println!("{row}");
        let lossy = if at["links.thin.loss"] == "5 %" {
            0.01
        } else {
            0.0
        };
        assert!(there > 1.0 && there <= most + lossy, "{row}");
    }
    assert_eq!(rows, 12);
}

#[test]
fn a_file_over_256_kbit_s_takes_6_percent_more_at_most() {
    assert_rows("k256", 1.06);
}

#[test]
fn a_file_over_64_kbit_s_takes_8_percent_more_at_most() {
    assert_rows("k64", 1.08);
}

#[test]
fn a_file_over_9600_bit_s_takes_8_percent_more_at_most() {
    assert_rows("k9_6", 1.08);
}
