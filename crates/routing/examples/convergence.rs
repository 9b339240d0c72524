//! Measures how soon routers agree, in virtual time: a grid starts, a link fails, returns, flaps.
//!
//! ```sh
//! cargo run --release -p whimbrel-routing --example convergence [ROWS COLUMNS]...
//! ```
//!
//! An end of a link notices its failure after 0 to 300 ms; messages take 0 to 20 ms each.

#![allow(clippy::print_stdout, reason = "it prints a table")]
#![allow(clippy::unwrap_used, reason = "an example may end with a panic")]

#[path = "../tests/network/mod.rs"]
mod network;

use core::time::Duration;

use network::{Pair, World};
use whimbrel_core::SeededRng;

/// Failures that are measured in each grid.
const TRIALS: usize = 10;
/// How exactly times are measured.
const STEP: Duration = Duration::from_millis(10);
const LIMIT: Duration = Duration::from_secs(120);

fn grid(rows: usize, columns: usize) -> Vec<(Pair, (u64, u64))> {
    let mut rng = SeededRng::new(1);
    let mut pairs = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let here = row * columns + column;
            if column + 1 < columns {
                pairs.push((here, here + 1));
            }
            if row + 1 < rows {
                pairs.push((here, here + columns));
            }
        }
    }
    // 4 to 40 Mbit/s each way.
    let mut rate = || 500_000 * (1 + rng.below(10));
    pairs
        .into_iter()
        .map(|ends| (ends, (rate(), rate())))
        .collect()
}

/// Runs until every router has the best way to every other one. Returns the time that it took, and for
/// how long any pair had no way at all.
fn settle(world: &mut World) -> (Duration, Duration) {
    let start = world.now;
    let mut dark = Duration::ZERO;
    while !world.faults().is_empty() {
        if world.blackouts().1 > 0 {
            dark += STEP;
        }
        world.run(STEP);
        assert!(world.now.since(start) < LIMIT, "{:?}", world.faults());
    }
    (world.now.since(start), dark)
}

fn median_and_most(mut times: Vec<Duration>) -> String {
    times.sort();
    let ms = |at: usize| times[at].as_millis();
    format!("{} / {}", ms(times.len() / 2), ms(times.len() - 1))
}

fn main() {
    let sizes: Vec<usize> = std::env::args()
        .skip(1)
        .map(|it| it.parse().unwrap())
        .collect();
    let sizes: Vec<(usize, usize)> = match sizes.is_empty() {
        true => vec![(1, 5), (5, 5), (7, 7), (10, 10), (10, 20)],
        false => sizes.chunks(2).map(|it| (it[0], it[1])).collect(),
    };
    println!(
        "| routers | links | start, s | failure: best ways again, ms (median / most of {TRIALS}) | of that, any pair without a way, ms | return, ms | octets per router and failure | announcements of a flapping end in 60 s | octets per router and second at rest |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (rows, columns) in sizes {
        let links = grid(rows, columns);
        let routers = rows * columns;
        let mut world = World::new(routers, &links, 7);
        // Loops are looked for in the property test; here in small grids only.
        world.watches = routers <= 50;
        // Links begin within 50 ms.
        world.run(Duration::from_millis(50));
        let (start, _) = settle(&mut world);
        world.run(Duration::from_secs(60));
        let before = world.octets;
        world.run(Duration::from_secs(60));
        let at_rest = (world.octets - before) as f64 / 60.0 / routers as f64;
        let (mut failures, mut darks, mut returns) = (Vec::new(), Vec::new(), Vec::new());
        let mut octets = 0;
        for _ in 0..TRIALS {
            let pairs = world.pairs();
            let ends = pairs[world.rng.below(pairs.len() as u64) as usize];
            let before = world.octets;
            world.fail(ends);
            let (took, dark) = settle(&mut world);
            octets += world.octets - before;
            failures.push(took);
            darks.push(dark);
            world.run(Duration::from_secs(30));
            world.restore(ends);
            returns.push(settle(&mut world).0);
            world.run(Duration::from_secs(60));
        }
        let ends = world.pairs()[0];
        let count = |world: &World| world.router(ends.0).unwrap().counters().originated;
        let before = count(&world);
        for _ in 0..30 {
            world.fail(ends);
            world.run(Duration::from_secs(1));
            world.restore(ends);
            world.run(Duration::from_secs(1));
        }
        let flapping = count(&world) - before;
        println!(
            "| {routers} | {} | {:.2} | {} | {} | {} | {:.0} | {flapping} | {at_rest:.0} |",
            links.len(),
            start.as_secs_f64(),
            median_and_most(failures),
            median_and_most(darks),
            median_and_most(returns),
            octets as f64 / TRIALS as f64 / routers as f64,
        );
    }
}
