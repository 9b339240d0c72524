//! `whimbrel demo`, shortened: what it prints and draws, with one link and with two. The tests need
//! network namespaces, and that with two links a kernel with Multipath TCP; they are skipped without.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use whimbrel_lab::lab_available;

/// Runs the demonstration with a file of this length, and returns its report.
fn demo(folder: &Path, length: usize, arguments: &[&str]) -> Value {
    let file = folder.join("file");
    let bytes: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
    std::fs::write(&file, bytes).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_whimbrel"))
        .args([
            "demo",
            "--json",
            "--outage-after",
            "500 ms",
            "--outage",
            "2 s",
        ])
        .args(["--file", file.to_str().unwrap(), "-o"])
        .arg(folder.join("out"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let kept = std::fs::read_to_string(folder.join("out/report.json")).unwrap();
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), printed);
    let png = std::fs::read(folder.join("out/goodput.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG"));
    printed
}

/// Returns seconds and bytes that a link has brought.
fn branch<'a>(report: &'a Value, side: &str, link: &str) -> Vec<(f64, f64)> {
    let run = match side {
        "whimbrel" => &report[side],
        rival => {
            let mut runs = report["tcp"].as_array().unwrap().iter();
            runs.find(|run| run["side"]["tcp"] == rival).unwrap()
        }
    };
    let branches = run["branches"].as_array().unwrap();
    let branch: &'a Value = branches.iter().find(|it| it["link"] == link).unwrap();
    let samples = branch["samples"].as_array().unwrap();
    let pair = |it: &Value| (it[0].as_f64().unwrap(), it[1].as_f64().unwrap());
    samples.iter().map(pair).collect()
}

#[test]
fn two_links_bring_a_file_together_though_one_goes_out() {
    if !lab_available() || !Path::new("/proc/sys/net/mptcp/enabled").exists() {
        assert!(
            std::env::var_os("WHIMBREL_LAB").is_none(),
            "no lab or no Multipath TCP"
        );
        return eprintln!("SKIPPED: no network namespaces, or no Multipath TCP");
    }
    let folder = tempfile::tempdir().unwrap();
    let length = 16_000_000;
    let report = demo(
        folder.path(),
        length,
        &["--links", "2", "--rate", "20 Mbit/s", "--tcp", "cubic"],
    );
    assert_eq!(report["whimbrel"]["intact"], true);
    assert_eq!(report["tcp"][0]["intact"], true);
    let svg = std::fs::read_to_string(folder.path().join("out/goodput.svg")).unwrap();
    for words in [
        "Whimbrel: done after",
        "kernel MPTCP (cubic): ",
        "both links",
        "wifi out",
        "lte",
    ] {
        assert!(svg.contains(words), "{words} is not in the picture");
    }
    for side in ["whimbrel", "cubic"] {
        let [wifi, lte] = ["wifi", "lte"].map(|link| branch(&report, side, link));
        assert_eq!(wifi.len(), lte.len());
        let brought = |samples: &[(f64, f64)]| samples.last().unwrap().1;
        assert!(
            brought(&wifi) > 0.0 && brought(&lte) > length as f64 / 4.0,
            "{side}"
        );
        // Nothing comes by a link that is out.
        let during: Vec<f64> = wifi
            .iter()
            .filter(|(at, _)| (1.0..2.4).contains(at))
            .map(|(_, bytes)| *bytes)
            .collect();
        assert!(
            during.windows(2).all(|pair| pair[0] == pair[1]),
            "{side}: {during:?}"
        );
    }
}

#[test]
fn one_link_is_drawn_beside_tcp_up_to_its_own_rate() {
    if !lab_available() {
        return eprintln!("SKIPPED: no network namespaces");
    }
    let folder = tempfile::tempdir().unwrap();
    let report = demo(
        folder.path(),
        6_000_000,
        &["--rate", "20 Mbit/s", "--loss", "0 %"],
    );
    assert_eq!(report["whimbrel"]["intact"], true);
    for side in ["whimbrel", "cubic"] {
        let samples = branch(&report, side, "N3-N4");
        // Of a second and more: the counters are read a little later than the clock.
        for (index, (from, before)) in samples.iter().enumerate() {
            for (at, bytes) in samples.iter().skip(index).filter(|it| it.0 >= from + 1.0) {
                let most = (at - from) * 20e6 / 8.0 * 1.1;
                assert!(bytes - before <= most, "{side} at {at}: {}", bytes - before);
            }
        }
    }
    let svg = std::fs::read_to_string(folder.path().join("out/goodput.svg")).unwrap();
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let has_bbr = known.unwrap().split_whitespace().any(|it| it == "bbr");
    assert!(svg.contains("link out") && svg.contains("kernel TCP (cubic)"));
    assert_eq!(svg.contains("kernel TCP (bbr)"), has_bbr);
    assert_eq!(
        report["tcp"].as_array().unwrap().len(),
        1 + usize::from(has_bbr)
    );
}
