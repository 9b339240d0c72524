//! A sensor and a receiver that are never awake together: the study `mftp-m2m`, in virtual time.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::path::Path;

use whimbrel_lab::scenario::{Overrides, Scenario, sim};

const TEXT: &str = include_str!("../../../studies/mftp-m2m/scenario.toml");

fn read(text: &str) -> Scenario {
    let read = Scenario::parse(Path::new("scenario.toml"), text, Overrides::default());
    read.unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn every_reading_arrives_once_although_sensor_and_receiver_never_meet() {
    let scenario = read(TEXT);
    assert_eq!(scenario.settings.len(), 4);
    for setting in &scenario.settings {
        // What comes twice is an error of the run.
        let run = sim::run(&setting.plan, setting.plan.seed).unwrap();
        let arrived = run.values["readings.files"];
        assert_eq!(arrived, 10.0, "{:?}: {:?}", setting.values, run.values);
        assert_eq!(run.values["readings.bytes"], 20_000.0);
        let stored = run.values["nodes.gateway.stored"] + run.values["nodes.site.stored"];
        // The last one may find the receiver awake.
        assert!(stored >= 9.0, "{stored}");
        if setting.value("storage") == Some("disk") {
            // The first time that the receiver is awake after the push.
            let last = run.transfers.iter().map(|it| it.record.finished);
            assert!(last.fold(0.0, f64::max) < 600.0, "{:?}", setting.values);
        }
    }
}

#[test]
fn messages_are_pushed_as_well() {
    let text = TEXT.replace("push = { size = \"2 kB\"", "message = { size = \"200 B\"");
    // Those of namespaces, too.
    let text = text.replace("loads.readings.push", "loads.readings.message");
    let scenario = read(&text);
    let plan = &scenario.settings[0].plan;
    let run = sim::run(plan, plan.seed).unwrap();
    assert_eq!(run.values["readings.files"], 10.0, "{:?}", run.values);
}

#[test]
fn sleeps_and_pushes_that_make_no_sense_are_refused() {
    let fault = |old: &str, new: &str| {
        let text = TEXT.replacen(old, new, 1);
        let is_message = new.starts_with("message");
        let text = match is_message {
            true => text.replace("loads.readings.push", "loads.readings.message"),
            false => text,
        };
        assert_ne!(text, TEXT);
        let read = Scenario::parse(Path::new("a.toml"), &text, Overrides::default());
        read.err()
            .map(|faults| faults.to_string())
            .unwrap_or_default()
    };
    for (old, new, expected) in [
        (
            "every = \"1 min\"\ntimes",
            "every = \"59 s\"\ntimes",
            "longer than the duration",
        ),
        ("duration = \"59 s\"\n", "", "a sleep needs its duration"),
        (
            "every = \"1 min\"\ntimes",
            "times",
            "several times need every",
        ),
        (
            "sleep = \"sensor\"",
            "sleep = \"censor\"",
            "did you mean 'sensor'",
        ),
        (
            "push = { size = \"2 kB\"",
            "message = { size = \"40 kB\"",
            "at most 32 KiB",
        ),
    ] {
        let fault = fault(old, new);
        assert!(fault.contains(expected), "{new}: {fault}");
    }
}
