//! The real flent reads and draws the results of a study.
//!
//! `scripts/setup --check` installs it into target/flent; `scripts/test` names it in
//! `WHIMBREL_FLENT`, and then the test fails without it.
#![allow(clippy::disallowed_methods, reason = "a test of a real program")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use whimbrel_lab::study::{Backend, Study, StudyOptions, write_result};

/// The study's testbed with one round-trip time and its own last hop.
fn scenario_text() -> String {
    let study = include_str!("../../../studies/mftp-fig8/scenario.toml");
    let mut text = study
        .replace("\"400 MB\"", "\"3 MB\"")
        .replace("\"40 MB\"", "\"3 MB\"")
        .replace(
            "rtt = \"50 ms\", loss = \"1 %\"",
            "rtt = \"10 ms\", loss = \"0 %\"",
        );
    for left_out in ["\"1 %\" = ", "\"50 ms\" = ", "\"100 ms\" = "] {
        let line = text.lines().find(|line| line.starts_with(left_out));
        let line = line.expect("a value of the sweep").to_owned();
        text = text.replace(&line, "");
    }
    format!("runs = 1\n{text}")
}

fn flent() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("WHIMBREL_FLENT") {
        return Some(named.into());
    }
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/flent/bin/flent");
    installed.exists().then_some(installed)
}

#[test]
fn flent_reads_and_draws_a_study() {
    let Some(flent) = flent() else {
        eprintln!("SKIPPED: there is no flent; scripts/setup --check installs it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("scenario.toml");
    fs::write(&scenario, scenario_text()).unwrap();
    let options = StudyOptions {
        backend: Backend::Sim,
        scenario: Some(scenario),
        runs: None,
        seed: 1,
        jobs: Some(1),
        program: "whimbrel".into(),
        journal: None,
    };
    let result = Study::find("mftp-fig8")
        .unwrap()
        .run(&options, &mut |_, _, _| {})
        .unwrap();
    let written = write_result(&result, folder.path()).unwrap();
    let files = ["mftp", "tcp"]
        .map(|name| written.join(format!("flent/rtt-10ms-loss-0-{name}-run-1.flent.gz")));
    let run = |arguments: &[&OsStr]| {
        // A separate settings folder keeps a user's settings out.
        let output = Command::new(&flent)
            .env("HOME", folder.path())
            .args(arguments)
            .args(&files)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && !said.contains("ERROR") && !said.contains("WARNING"),
            "{said}"
        );
        String::from_utf8(output.stdout).unwrap()
    };

    let summary = run(&["-f", "summary"].map(OsStr::new));
    assert!(
        summary.contains("Title: 'MFTP, RTT 10 ms, loss 0 %'"),
        "{summary}"
    );
    assert!(
        summary.contains("Title: 'TCP, RTT 10 ms, loss 0 %'"),
        "{summary}"
    );
    let series = summary.lines().filter(|line| line.contains("TCP download"));
    assert!(
        series.clone().count() == 2 && series.clone().all(|line| line.contains("Mbits/s")),
        "{summary}"
    );

    let picture = folder.path().join("goodput.png");
    run(&[
        "-p".as_ref(),
        "download".as_ref(),
        "-o".as_ref(),
        picture.as_os_str(),
    ]);
    assert!(fs::read(picture).unwrap().starts_with(b"\x89PNG"));
}
