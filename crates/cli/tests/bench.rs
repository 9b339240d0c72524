//! `whimbrel bench`: its help, its refusals and its JSON. What it measures is not asserted: speed belongs to a machine.
#![allow(clippy::disallowed_methods, reason = "a test of real programs in real time")]

mod support;

use serde_json::Value;
use support::{finished, whimbrel};

#[test]
fn help_has_an_example_all_parts_and_the_exit_codes() {
    let (code, out, _) = finished(whimbrel().args(["bench", "--help"]));
    assert_eq!(code, 0);
    let words =
        ["Example", "loss", "lossless", "outage", "peer", "fairness", "simulator", "memory", "--strict"];
    for word in words {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert!(out.contains("could not be measured") && !out.contains("peer-server"), "{out}");
}

#[test]
fn wrong_arguments_are_exit_code_2() {
    let cases: [&[&str]; 4] = [
        &["bench", "speed"],
        &["bench", "loss", "--backend", "moon"],
        &["bench", "--seed", "many"],
        &["bench", "peer-server", "--carrier", "pigeon"],
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
    let (code, _, err) =
        finished(command.args(["bench", "simulator", "--quick", "-o"]).arg(file.join("out")));
    assert_eq!(code, 6, "{err}");
}

#[test]
fn a_run_in_the_simulator_gives_json_with_units_machine_and_targets() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = whimbrel();
    command.args(["bench", "simulator", "outage", "--backend", "sim", "--quick", "--json", "-o"]);
    let (code, out, err) = finished(command.arg(folder.path()));
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let kept = std::fs::read_to_string(folder.path().join("bench.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), report);
    assert!(report["machine"]["cores"].as_u64().is_some_and(|cores| cores > 0));
    assert!(report["machine"]["kernel"].as_str().is_some_and(|kernel| kernel.starts_with("Linux")));
    assert_eq!(report["faults"].as_array().map(Vec::len), Some(0), "{out}");
    let rows = report["rows"].as_array().unwrap();
    let of = |part: &str| rows.iter().find(|row| row["part"] == part).unwrap();
    assert!(of("simulator")["ours_events_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
    assert_eq!(of("simulator")["target_at_least"], 1.0);
    assert!(of("outage")["ours_ns"].as_f64().is_some_and(|time| time > 0.0));
    assert_eq!(of("outage")["target_at_most"], 1.0);
}

#[test]
fn a_file_moves_between_the_ends_that_whimbrel_is_compared_with() {
    let folder = tempfile::tempdir().unwrap();
    let (file, certificate) = (folder.path().join("file"), folder.path().join("certificate"));
    let content: Vec<u8> = (0..3_000_000u32).map(|index| (index % 251) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let carriers: &[&str] = if cfg!(feature = "peers") { &["tcp", "quic"] } else { &["tcp"] };
    for carrier in carriers {
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let arrived = folder.path().join(carrier);
        let end = |end: &str, file: &std::path::Path| {
            let mut command = whimbrel();
            command.args(["bench", end, "--carrier", carrier, "--mtu", "1500", "--address"]);
            command.arg(port.to_string()).arg("--certificate").arg(&certificate).arg("--file").arg(file);
            command
        };
        let server = support::Running::start(&mut end("peer-server", &file));
        assert_eq!(server.lines.recv_timeout(support::PATIENCE).unwrap(), "listening");
        let (code, _, err) = finished(&mut end("peer-client", &arrived));
        assert_eq!(code, 0, "{carrier}: {err}");
        assert!(std::fs::read(&arrived).unwrap() == content, "{carrier}");
    }
}
