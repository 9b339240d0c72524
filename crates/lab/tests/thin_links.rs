//! What crosses a thin link for a file: `docs/scenarios/thin-links.toml`, as `whimbrel lab run` has it.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::path::Path;

use whimbrel_lab::scenario::run::Run;
use whimbrel_lab::scenario::{Overrides, Scenario, Setting, sim};

const TEXT: &str = include_str!("../../../docs/scenarios/thin-links.toml");

fn settings() -> Vec<Setting> {
    let read = Scenario::parse(Path::new("thin.toml"), TEXT, Overrides::default());
    read.unwrap_or_else(|faults| panic!("{faults}")).settings
}

/// The bytes that came over the thin link, and those that came back, over the bytes of the file.
fn ratios(way: &str, run: &Run) -> (f64, f64) {
    let value = |name: &str| run.values[name];
    assert_eq!(value("film.files"), 1.0, "{:?}", run.values);
    let (there, back) = match way {
        "down" => ("links.thin.forward", "links.thin.backward"),
        _ => ("links.thin.backward", "links.thin.forward"),
    };
    let of = |link: &str| value(link) / value("film.bytes");
    (of(there), of(back))
}

/// Runs the rows of one rate, both ways, and prints them.
fn rows(rate: &str, most: f64) {
    let mut worst: f64 = 0.0;
    for setting in settings() {
        let at = |key: &str| {
            setting
                .values
                .iter()
                .find(|(known, _)| known == key)
                .unwrap()
        };
        if !format!("{:?}", at("rate")).contains(rate) {
            continue;
        }
        let way = if format!("{:?}", at("way")).contains("down") {
            "down"
        } else {
            "up"
        };
        let run = sim::run(&setting.plan, setting.plan.seed).unwrap();
        let (there, back) = ratios(way, &run);
        println!(
            "{:?}: {there:.3} {back:.3} {:.0} s lost {} resent {:?}",
            setting.values,
            run.values["film.completion"],
            run.values["links.thin.lost"],
            run.values
                .iter()
                .filter(|(k, _)| k.contains("resent"))
                .map(|(_, v)| *v)
                .collect::<Vec<_>>()
        );
        worst = worst.max(there);
    }
    assert!(worst > 1.0 && worst <= most, "{worst}");
}

#[test]
fn at_256_kbit_s() {
    rows("256", 1.08);
}

#[test]
fn at_64_kbit_s() {
    rows("k64", 1.08);
}

#[test]
fn at_9600_bit_s() {
    rows("9_6", 1.08);
}
