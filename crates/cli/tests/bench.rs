//! `whimbrel bench`: its help, its refusals and its JSON. The tests do not assert measured values,
//! because speed depends on the machine.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]

use crate::support::{self, finished, whimbrel};
use serde_json::Value;

#[test]
fn help_has_an_example_all_parts_and_the_exit_codes() {
    let (code, out, _) = finished(whimbrel().args(["bench", "--help"]));
    assert_eq!(code, 0);
    let words = [
        "Example",
        "loss",
        "lossless",
        "outage",
        "peer",
        "fairness",
        "simulator",
        "messages",
        "memory",
        "ndn  ",
        "ndn-soak",
        "bench grid",
        "--strict",
    ];
    for word in words {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert!(
        out.contains("could not be measured") && !out.contains("peer-server"),
        "{out}"
    );
    assert!(
        !out.contains("ndn-relay") && !out.contains("ndn-producer"),
        "{out}"
    );
}

#[test]
fn wrong_arguments_are_exit_code_2() {
    let cases: [&[&str]; 9] = [
        &["bench", "speed"],
        &["bench", "loss", "--backend", "moon"],
        &["bench", "--seed", "many"],
        &["bench", "peer-server", "--carrier", "pigeon"],
        &["bench", "ndn-soak", "--minutes", "0"],
        &["bench", "grid", "--law", "vegas"],
        &["bench", "grid", "--law", "kernel-bbr"],
        &["bench", "grid", "--random", "0"],
        &["bench", "grid", "--jobs", "0"],
    ];
    for case in cases {
        let (code, _, err) = finished(whimbrel().args(case));
        assert_eq!(code, 2, "{case:?}: {err}");
    }
}

#[test]
fn an_output_folder_that_cannot_be_made_is_exit_code_6() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let mut command = whimbrel();
    let (code, _, err) = finished(
        command
            .args(["bench", "simulator", "--quick", "-o"])
            .arg(file.join("out")),
    );
    assert_eq!(code, 6, "{err}");
}

#[test]
fn a_run_in_the_simulator_gives_json_with_units_machine_and_targets() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = whimbrel();
    command.args([
        "bench",
        "simulator",
        "outage",
        "--backend",
        "sim",
        "--quick",
        "--json",
        "-o",
    ]);
    let (code, out, err) = finished(command.arg(folder.path()));
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let kept = std::fs::read_to_string(folder.path().join("bench.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), report);
    assert!(
        report["machine"]["cores"]
            .as_u64()
            .is_some_and(|cores| cores > 0)
    );
    assert!(
        report["machine"]["kernel"]
            .as_str()
            .is_some_and(|kernel| kernel.starts_with("Linux"))
    );
    assert_eq!(report["faults"].as_array().map(Vec::len), Some(0), "{out}");
    let rows = report["rows"].as_array().unwrap();
    let of = |part: &str| rows.iter().find(|row| row["part"] == part).unwrap();
    assert!(
        of("simulator")["ours_events_per_s"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0)
    );
    assert_eq!(of("simulator")["target_at_least"], 1.0);
    assert!(
        of("outage")["ours_ns"]
            .as_f64()
            .is_some_and(|time| time > 0.0)
    );
    assert_eq!(of("outage")["target_at_most"], 1.0);
}

#[test]
fn the_compared_programs_transfer_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, certificate) = (
        folder.path().join("file"),
        folder.path().join("certificate"),
    );
    let content: Vec<u8> = (0..3_000_000u32).map(|index| (index % 251) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let carriers: &[&str] = if cfg!(feature = "peers") {
        &["tcp", "quic"]
    } else {
        &["tcp"]
    };
    for carrier in carriers {
        let port = std::net::UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let arrived = folder.path().join(carrier);
        let end = |end: &str, file: &std::path::Path| {
            let mut command = whimbrel();
            command.args([
                "bench",
                end,
                "--carrier",
                carrier,
                "--mtu",
                "1500",
                "--address",
            ]);
            command
                .arg(port.to_string())
                .arg("--certificate")
                .arg(&certificate)
                .arg("--file")
                .arg(file);
            command
        };
        let server = support::Running::start(&mut end("peer-server", &file));
        assert_eq!(
            server.lines.recv_timeout(support::PATIENCE).unwrap(),
            "listening"
        );
        let (code, _, err) = finished(&mut end("peer-client", &arrived));
        assert_eq!(code, 0, "{carrier}: {err}");
        assert!(std::fs::read(&arrived).unwrap() == content, "{carrier}");
    }
}

#[test]
fn named_data_is_measured_over_a_router_and_over_a_relay_and_nothing_is_lost() {
    let (_, out, err) = finished(whimbrel().args(["bench", "ndn", "--quick", "--json"]));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        report["faults"].as_array().map(Vec::len),
        Some(0),
        "{out} {err}"
    );
    let rows = report["rows"].as_array().unwrap();
    let of = |what: &str| {
        rows.iter()
            .find(|row| row["what"].as_str().unwrap().contains(what))
            .unwrap()
    };
    for size in ["1000", "8000"] {
        let row = of(size);
        assert!(
            row["ours_exchanges_per_s"]
                .as_f64()
                .is_some_and(|rate| rate > 0.0),
            "{row}"
        );
        assert_eq!(row["target_at_least"], 0.5);
        for run in row["details"]["runs"].as_array().unwrap() {
            assert!(
                run["exchanges"].as_u64().is_some_and(|count| count > 0),
                "{run}"
            );
            assert_eq!(
                (run["lost"].as_u64(), run["nacks"].as_u64()),
                (Some(0), Some(0)),
                "{run}"
            );
        }
    }
    assert!(
        of("pipeline")["ours_exchanges_per_s"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0)
    );
    assert!(
        of("get over two routers")["ours_bit_per_s"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0)
    );
}

#[test]
fn a_short_soak_reports_its_observations_and_a_verdict() {
    let (code, out, err) =
        finished(whimbrel().args(["bench", "ndn-soak", "--minutes", "0.05", "--json"]));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert!(
        report["sent"].as_u64().is_some_and(|sent| sent > 0),
        "{out} {err}"
    );
    assert_eq!(report["lost"], 0);
    assert!(
        report["samples_bytes"]
            .as_array()
            .is_some_and(|samples| samples.len() >= 3),
        "{out}"
    );
    let passed = report["memory_holds"] == true && report["complete"] == true;
    assert_eq!(code, if passed { 0 } else { 10 });
}

#[test]
fn a_grid_prints_each_law_and_writes_its_numbers_and_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = whimbrel();
    command.args([
        "bench",
        "grid",
        "--random",
        "2",
        "--law",
        "cubic,bottleneck",
    ]);
    command.args(["--worst", "1", "--jobs", "1", "--output"]);
    let (code, out, err) = finished(command.arg(folder.path()));
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("2 random links, sim, seed 1"), "{out}");
    assert_eq!(out.lines().filter(|line| line.contains("BDP")).count(), 2);
    let text = std::fs::read_to_string(folder.path().join("grid.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    for law in ["cubic", "bottleneck"] {
        let reached = &json["cells"][1]["laws"][law];
        assert!(
            reached["goodput_bit_per_s"].as_f64().unwrap() > 0.0,
            "{json}"
        );
        assert!(reached["ping_median_ns"].as_u64().unwrap() > 0, "{json}");
    }
    assert!(folder.path().join("grid.svg").exists());
}
