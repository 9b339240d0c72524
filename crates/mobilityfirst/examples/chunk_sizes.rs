//! The time of a file by the size of its chunks, over chains of equal links in virtual time: ours, and
//! the best fixed size from 16 KiB to 4 MiB. Prints the table of `docs/performance.md`, the worst cells
//! first; arguments choose cells: `1 3` hops, `20M 1000M` rates, `200k 50000k` files, `1ms` delays.
//! `situations` prints other ones instead: a thin link among fast ones, loss, two files at once.
#![allow(clippy::unwrap_used, reason = "a command for measurements")]

#[path = "../tests/chain/mod.rs"]
mod chain;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/support/mod.rs"]
mod support;

use core::time::Duration;

use chain::{Compared, Wire, times_of};
use whimbrel_content::ChunkSize;

/// Paths of unequal links, loss, and two files at once: seconds of each file by our sizes and by each
/// fixed one.
fn situations() {
    let wire = |kbit: u64, ms: u64| Wire {
        rate: kbit * 1000,
        ..Wire::new(1, Duration::from_millis(ms))
    };
    let lossy = Wire {
        loss: 0.03,
        ..wire(20_000, 5)
    };
    let fast = wire(100_000, 5);
    let even = wire(20_000, 5);
    let thin = |kbit| vec![fast, fast, wire(kbit, 20), fast, fast];
    let loses = vec![even, even, lossy, even, even];
    let rows: [(&str, Vec<Wire>, &[usize]); 8] = [
        (
            "thin: 256 kbit/s among 100 Mbit/s, 1 MB",
            thin(256),
            &[1_000_000],
        ),
        (
            "thin: 1 Mbit/s among 100 Mbit/s, 5 MB",
            thin(1000),
            &[5_000_000],
        ),
        (
            "thin: 5 Mbit/s among 100 Mbit/s, 50 MB",
            thin(5000),
            &[50_000_000],
        ),
        (
            "loss: 3 % on one of five, 1 MB",
            loses.clone(),
            &[1_000_000],
        ),
        (
            "loss: 3 % on one of five, 5 MB",
            loses.clone(),
            &[5_000_000],
        ),
        ("loss: 3 % on one of five, 50 MB", loses, &[50_000_000]),
        (
            "two files: 5 MB and 200 kB, three links",
            vec![even; 3],
            &[5_000_000, 200_000],
        ),
        (
            "two files: 5 MB each, three links",
            vec![even; 3],
            &[5_000_000, 5_000_000],
        ),
    ];
    for (what, path, lens) in rows {
        println!("{what}");
        let sizes = std::iter::once(None).chain(ChunkSize::all().map(Some));
        for size in sizes {
            let (times, chunks) = times_of(&path, lens, size);
            let used = (14..=22).filter(|log2| chunks[*log2] > 0);
            let used: Vec<String> = used
                .map(|log2| format!("{} KiB", 1 << (log2 - 10)))
                .collect();
            let label = size.map_or("ours".to_owned(), |size| {
                format!("{} KiB", size.bytes() >> 10)
            });
            println!("  {label}: {times:.3?} s, chunks of {}", used.join(", "));
        }
    }
}

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    if chosen.iter().any(|word| word == "situations") {
        return situations();
    }
    let of = |all: &[u64], unit: &str| -> Vec<u64> {
        let named: Vec<u64> = all
            .iter()
            .copied()
            .filter(|one| chosen.contains(&format!("{one}{unit}")))
            .collect();
        match named.is_empty() {
            true => all.to_vec(),
            false => named,
        }
    };
    let mut rows = Vec::new();
    for hops in of(&[1, 3, 5, 11], "") {
        for mbit in of(&[1, 20, 200, 1000], "M") {
            for delay in of(&[1, 10], "ms") {
                for kilobytes in of(&[200, 1000, 5000, 50_000], "k") {
                    let wire = Wire::new(mbit, Duration::from_millis(delay));
                    let path = vec![wire; hops as usize];
                    let it = Compared::new(&path, &[kilobytes as usize * 1000]);
                    let row = format!(
                        "| {:.3} | {hops} | {mbit} Mbit/s | {delay} ms | {:.1} MB | {:.3} s | {} KiB | {:.3} s | {} KiB |",
                        it.ratio(),
                        kilobytes as f64 / 1000.0,
                        it.ours,
                        it.size.bytes() >> 10,
                        it.best,
                        it.best_size.bytes() >> 10,
                    );
                    eprintln!("{row}");
                    rows.push((it.ratio(), row));
                }
            }
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!(
        "| ours / best | hops | rate | delay of a link | file | ours | chunks | best | its chunks |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    rows.iter().for_each(|(_, row)| println!("{row}"));
}
