//! Chunks that a router's storage takes to its disk, next to `dd` with a sync for each batch on the same
//! disk: that of the working folder.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use whimbrel_chunk_store::{DiskFolder, FolderLimits};
use whimbrel_core::{Disk, DiskAction, DiskEvent, DiskKey};

use crate::{Bench, BenchError, Part, Quantity, Row, Target};

const CHUNK: usize = 1 << 20;
/// Chunks in a batch: what the storage writes between two syncs at most.
const BATCH: usize = 16;
/// Chunks of a round, and rounds, of which the median is used.
const CHUNKS: usize = 512;
const QUICK_CHUNKS: usize = 32;
const ROUNDS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(60);
/// Target: the share of the rate of `dd`.
const WANTED: f64 = 0.7;

pub(crate) fn run(bench: &mut Bench<'_>) {
    bench.measure("chunks of 1 MiB", |options, progress| {
        let chunks = if options.quick { QUICK_CHUNKS } else { CHUNKS };
        let folder = tempfile::Builder::new()
            .prefix("whimbrel-bench-")
            .tempdir_in(".")
            .map_err(BenchError::system("make a folder here"))?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 1..=ROUNDS {
            progress(&format!("round {round} of {ROUNDS}"));
            // In turns: a disk's rate changes from minute to minute.
            theirs.push(dd(&folder.path().join("dd"), chunks)?);
            ours.push(store(&folder.path().join("chunks"), chunks)?);
        }
        let median = |rates: &[f64]| {
            let mut sorted = rates.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        };
        Ok(vec![Row {
            part: Part::Storage,
            backend: None,
            what: String::from("chunks of 1 MiB to the storage's disk"),
            ours: Quantity::BitPerS(median(&ours)),
            peer: Some((
                String::from("dd, a sync for 16 MiB"),
                Quantity::BitPerS(median(&theirs)),
            )),
            target: Some(Target::AtLeast(WANTED)),
            note: None,
            details: json!({
                "chunks": chunks,
                "rounds_bit_per_s": ours,
                "rounds_dd_bit_per_s": theirs,
            }),
        }])
    });
}

fn rate(chunks: usize, took: Duration) -> f64 {
    (chunks * CHUNK * 8) as f64 / took.as_secs_f64()
}

/// Returns the rate at which `dd` writes blocks of a batch, each of them synced.
fn dd(file: &Path, chunks: usize) -> Result<f64, BenchError> {
    let started = Instant::now();
    let status = Command::new("dd")
        .arg("if=/dev/zero")
        .arg(format!("of={}", file.display()))
        .arg(format!("bs={}", BATCH * CHUNK))
        .arg(format!("count={}", chunks / BATCH))
        .arg("oflag=dsync")
        .stderr(Stdio::null())
        .status()
        .map_err(BenchError::system("start dd"))?;
    let took = started.elapsed();
    let _ = std::fs::remove_file(file);
    match status.success() {
        true => Ok(rate(chunks, took)),
        false => Err(BenchError::Simulated(format!("dd ended with {status}"))),
    }
}

/// Returns the rate at which the storage's disk takes chunks, until the last one is synced.
fn store(path: &Path, chunks: usize) -> Result<f64, BenchError> {
    let failed = |why: String| BenchError::System {
        action: String::from("store chunks"),
        source: std::io::Error::other(why),
    };
    let limits = FolderLimits {
        bytes: 2 * (chunks * CHUNK) as u64,
    };
    let (wake, woken) = channel();
    let opened = DiskFolder::open(path, limits, move || {
        let _ = wake.send(());
    });
    let mut disk = opened.map_err(|fault| failed(fault.to_string()))?;
    let body = Bytes::from(vec![7; CHUNK]);
    let started = Instant::now();
    for key in 0..chunks {
        disk.submit(DiskAction::Write {
            key: DiskKey(key as u64),
            expires_ms: 0,
            label: Bytes::from_static(b"a chunk of the bench"),
            body: [body.clone(), Bytes::new()],
        });
    }
    let mut written = 0;
    while written < chunks {
        match disk.poll() {
            Some(DiskEvent::Written(_)) => written += 1,
            Some(other) => return Err(failed(format!("{other:?}"))),
            None => woken
                .recv_timeout(PATIENCE)
                .map_err(|_| failed(String::from("the disk has nothing to say")))?,
        }
    }
    let took = started.elapsed();
    drop(disk);
    let _ = std::fs::remove_dir_all(path);
    Ok(rate(chunks, took))
}
