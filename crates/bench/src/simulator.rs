//! Packet events per second of the simulator, on one core.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use whimbrel_sim::bounce::bounce;

use crate::{Bench, Part, Quantity, Row, Target};

/// Frames per round, and rounds, of which the median is used.
const FRAMES: u64 = 2_000_000;
const QUICK_FRAMES: u64 = 50_000;
const ROUNDS: usize = 5;
/// Target, in frames delivered per second.
const WANTED: f64 = 1e6;

pub(crate) fn run(bench: &mut Bench<'_>) {
    for (hash, what, target) in [
        (false, "frames of 1,400 bytes", Some(Target::AtLeast(1.0))),
        (true, "the same with a trace hash", None),
    ] {
        bench.measure(what, |options, _| {
            let frames = if options.quick { QUICK_FRAMES } else { FRAMES };
            let mut rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| round(frames, hash)).collect();
            rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
            Ok(vec![Row {
                part: Part::Simulator,
                backend: None,
                what: what.to_owned(),
                ours: Quantity::EventsPerS(rounds[ROUNDS / 2].0),
                peer: Some((String::from("wanted"), Quantity::EventsPerS(WANTED))),
                target,
                note: None,
                details: json!({
                    "frames": frames,
                    "rounds_events_per_cpu_s": rounds.iter().map(|round| round.0).collect::<Vec<_>>(),
                    "rounds_events_per_wall_s": rounds.iter().map(|round| round.1).collect::<Vec<_>>(),
                }),
            }])
        });
    }
}

/// Frames per second of one core's time, and per second of real time: a busy machine shares its
/// cores.
fn round(frames: u64, hash: bool) -> (f64, f64) {
    let (cpu, wall) = (thread_time(), Instant::now());
    let delivered = bounce(frames, hash) as f64;
    (
        delivered / (thread_time() - cpu).as_secs_f64(),
        delivered / wall.elapsed().as_secs_f64(),
    )
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
