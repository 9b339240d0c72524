//! A file by `whimbrel ndn get` from `whimbrel ndn serve` through two routers over UDP on the
//! loopback.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_lab::{Program, Supervisor, scratch};

use super::process::RunningRouter;
use crate::usage::cpu_of_process;
use crate::{Bench, BenchError, BenchOptions, Part, Quantity, Row, Target};

const BYTES: u64 = 100_000_000;
const QUICK_BYTES: u64 = 10_000_000;
/// Fetches, each with routers of its own; the median is used.
const ROUNDS: usize = 5;
/// Target, payload bits per second.
const WANTED: f64 = 3e9;
/// Time limit of a fetch.
const PATIENCE: Duration = Duration::from_secs(120);

/// One fetch.
struct Fetch {
    bit_per_s: f64,
    timeouts: u64,
    details: Value,
}

pub(super) fn run(bench: &mut Bench<'_>) {
    for (ahead, what) in [
        (false, "get over two routers"),
        (true, "the same, signed ahead"),
    ] {
        bench.measure(what, |options, tell| {
            let (bytes, rounds) = if options.quick {
                (QUICK_BYTES, 1)
            } else {
                (BYTES, ROUNDS)
            };
            let mut fetches = Vec::new();
            for round in 1..=rounds {
                tell(&format!("{what}, round {round}"));
                fetches.push(fetch(options, bytes, ahead)?);
            }
            Ok(rows(what, bytes, ahead, fetches))
        });
    }
}

fn rows(what: &str, bytes: u64, ahead: bool, mut fetches: Vec<Fetch>) -> Vec<Row> {
    fetches.sort_by(|a, b| a.bit_per_s.total_cmp(&b.bit_per_s));
    let median = fetches
        .get(fetches.len() / 2)
        .map_or(0.0, |fetch| fetch.bit_per_s);
    let quiet = fetches.iter().filter(|fetch| fetch.timeouts == 0).count();
    let row = |what: String, ours, peer: &str, theirs, target| Row {
        part: Part::Ndn,
        backend: None,
        what,
        ours,
        peer: Some((peer.to_owned(), theirs)),
        target,
        note: None,
        details: Value::Null,
    };
    let target = (!ahead).then_some(Target::AtLeast(1.0));
    let speed = Row {
        details: json!({
            "bytes": bytes,
            "signed_ahead": ahead,
            "fetches": fetches.iter().map(|fetch| fetch.details.clone()).collect::<Vec<_>>(),
        }),
        ..row(
            format!("{what}, {} MB", bytes / 1_000_000),
            Quantity::BitPerS(median),
            "wanted",
            Quantity::BitPerS(WANTED),
            target,
        )
    };
    let (quiet, all) = (
        Quantity::Count(quiet as f64),
        Quantity::Count(fetches.len() as f64),
    );
    vec![
        speed,
        row(
            String::from("fetches without a timeout"),
            quiet,
            "made",
            all,
            target,
        ),
    ]
}

fn fetch(options: &BenchOptions, bytes: u64, ahead: bool) -> Result<Fetch, BenchError> {
    let folder = scratch::folder("whimbrel-bench-")?;
    let folder = folder.path();
    let (file, arrived) = (folder.join("file"), folder.join("arrived"));
    whimbrel_lab::demo::make_file(&file, bytes, options.seed)?;
    let far = RunningRouter::start(&options.program, folder, "far-router", None)?;
    let near = RunningRouter::start(&options.program, folder, "near-router", Some(far.udp))?;
    let mut serve = Command::new(&options.program);
    serve
        .args([
            "ndn",
            "serve",
            "--json",
            "--signing",
            "digest",
            "/bench/file",
        ])
        .arg(&file);
    serve.arg("--transport").arg(uri(&far.socket));
    if ahead {
        serve.arg("--sign-ahead");
    }
    let serve = Supervisor::new(folder).speaker("server", serve)?;
    serve.ready("\"registered\"")?;
    let mut get = Command::new(&options.program);
    get.args(["ndn", "get", "--json", "/bench/file", "-o"])
        .arg(&arrived);
    get.arg("--transport").arg(uri(&near.socket));
    let of = [
        ("far_router", &far.process),
        ("near_router", &near.process),
        ("serve", &serve),
    ];
    let cpu_seconds =
        |process: &Program| cpu_of_process(process.id()).map(|time| time.as_secs_f64());
    let before = of.map(|(_, process)| cpu_seconds(process));
    let get = Supervisor::new(folder).speaker("fetch", get)?;
    let line = get.await_word("\"done\"", PATIENCE)?;
    let get_cpu = cpu_seconds(&get).unwrap_or(0.0);
    let mut cpu = serde_json::Map::from_iter([(String::from("get"), json!(get_cpu))]);
    for ((name, process), before) in of.iter().zip(before) {
        cpu.insert((*name).to_owned(), json!(cpu_seconds(process)? - before?));
    }
    let done: Value = serde_json::from_str(&line).unwrap_or_default();
    let stats = &done["stats"];
    if !same(&file, &arrived)? {
        return Err(BenchError::Corrupted {
            side: String::from("whimbrel ndn get"),
        });
    }
    Ok(Fetch {
        bit_per_s: stats["bits_per_second"].as_f64().unwrap_or(0.0),
        timeouts: stats["timeouts"].as_u64().unwrap_or(u64::MAX),
        details: json!({ "stats": stats, "cpu_s": cpu }),
    })
}

fn uri(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

fn same(one: &Path, other: &Path) -> Result<bool, BenchError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(BenchError::system(format!("read {}", path.display())))
    };
    Ok(read(one)? == read(other)?)
}
