//! Interest-Data exchanges per second between two programs on Unix sockets, over a router and over
//! a bare relay.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_lab::{Program, Supervisor, ndnd, scratch};

use super::consumer::Consumed;
use super::process::RunningRouter;
use crate::usage::cpu_of_process;
use crate::{Bench, BenchError, BenchOptions, Part, Quantity, Row, Target};

/// Octets of a whole Data packet.
const SIZES: [usize; 2] = [1_000, 8_000];
/// Target at 1,000 octets, exchanges per second.
const WANTED: f64 = 150_000.0;
/// Pending Interests; the best is used, for each middle. More of 8,000 bytes than these would not
/// fit into a router's queue for a program that does not read.
const WINDOWS: [usize; 3] = [64, 256, 512];
const QUICK_WINDOWS: [usize; 1] = [256];
/// Runs of each window over each middle, alternating; the median is used.
const ROUNDS: usize = 3;
/// With a smaller share of a core than this, the busiest process mostly waited for a processor.
const CROWDED: f64 = 0.5;

/// The timing of one run.
#[derive(Clone, Copy)]
pub(super) struct Timing {
    pub(super) warm_up: Duration,
    pub(super) duration: Duration,
}

pub(super) const FULL: Timing = Timing {
    warm_up: Duration::from_millis(500),
    duration: Duration::from_secs(2),
};
pub(super) const QUICK: Timing = Timing {
    warm_up: Duration::from_millis(100),
    duration: Duration::from_millis(300),
};

/// The middle between the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Middle {
    Relay,
    Router,
    Ndnd,
}

impl Middle {
    const fn name(self) -> &'static str {
        match self {
            Middle::Relay => "relay",
            Middle::Router => "router",
            Middle::Ndnd => "NDNd",
        }
    }
}

/// One run.
struct Run {
    middle: Middle,
    window: usize,
    consumed: Consumed,
    /// Processor time per exchange in microseconds: of the middle, of the producer.
    middle_us: f64,
    producer_us: f64,
}

impl Run {
    fn consumer_us(&self) -> f64 {
        self.consumed.cpu_seconds * 1e6 / self.consumed.exchanges.max(1) as f64
    }

    /// Processor time per exchange in the busiest process.
    fn busiest_us(&self) -> f64 {
        self.middle_us.max(self.producer_us).max(self.consumer_us())
    }

    /// Returns the share of a core that the busiest process had: far below one, other programs
    /// occupied the processors.
    fn core_share(&self) -> f64 {
        self.busiest_us() * self.consumed.rate() / 1e6
    }

    fn json(&self) -> Value {
        json!({
            "middle": self.middle.name(),
            "window": self.window,
            "exchanges_per_s": self.consumed.rate(),
            "exchanges": self.consumed.exchanges,
            "lost": self.consumed.lost,
            "nacks": self.consumed.nacks,
            "middle_cpu_us_per_exchange": self.middle_us,
            "producer_cpu_us_per_exchange": self.producer_us,
            "consumer_cpu_us_per_exchange": self.consumer_us(),
            "exchanges_per_cpu_s_of_busiest": 1e6 / self.busiest_us(),
            "busiest_core_share": self.core_share(),
        })
    }
}

pub(super) fn run(bench: &mut Bench<'_>) {
    for size in SIZES {
        bench.measure(&format!("exchanges of {size} bytes"), |options, tell| {
            let runs = all_runs(options, size, tell)?;
            Ok(rows(size, &runs))
        });
    }
}

fn all_runs(
    options: &BenchOptions,
    size: usize,
    tell: &mut dyn FnMut(&str),
) -> Result<Vec<Run>, BenchError> {
    let (windows, rounds, timing) = if options.quick {
        (&QUICK_WINDOWS[..], 1, QUICK)
    } else {
        (&WINDOWS[..], ROUNDS, FULL)
    };
    let mut runs = Vec::new();
    for round in 1..=rounds {
        for window in windows {
            let peer = options.ndnd.as_ref().map(|_| Middle::Ndnd);
            for middle in [Middle::Relay, Middle::Router].into_iter().chain(peer) {
                tell(&format!(
                    "{size} bytes, {window} pending, {}, round {round}",
                    middle.name()
                ));
                runs.push(one_run(options, size, *window, middle, timing)?);
            }
        }
    }
    Ok(runs)
}

/// Returns the median rate of the best window, and that window.
fn best(runs: &[Run], middle: Middle) -> (f64, usize) {
    let rate = |window: usize| {
        let of = runs
            .iter()
            .filter(|run| run.middle == middle && run.window == window);
        let mut rates: Vec<f64> = of.map(|run| run.consumed.rate()).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    };
    WINDOWS
        .map(|window| (rate(window), window))
        .into_iter()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap_or_default()
}

fn rows(size: usize, runs: &[Run]) -> Vec<Row> {
    let (ours, window) = best(runs, Middle::Router);
    let (relay, relay_window) = best(runs, Middle::Relay);
    let lost: u64 = runs
        .iter()
        .filter(|run| run.middle != Middle::Ndnd)
        .map(|run| run.consumed.lost + run.consumed.nacks)
        .sum();
    let of_best = runs
        .iter()
        .filter(|run| run.middle == Middle::Router && run.window == window);
    let share = of_best.map(Run::core_share).fold(0.0, f64::max);
    let note = if lost > 0 {
        Some(format!("{lost} exchanges failed"))
    } else {
        let percent = share * 100.0;
        (share < CROWDED).then(|| {
            format!("its busiest process had at most {percent:.0} % of a core: the machine was busy with other work")
        })
    };
    let row = |peer: &str, rate: f64, target: f64| Row {
        part: Part::Ndn,
        backend: None,
        what: format!("router, Data of {size} bytes"),
        ours: Quantity::ExchangesPerS(ours),
        peer: Some((peer.to_owned(), Quantity::ExchangesPerS(rate))),
        target: Some(Target::AtLeast(target)),
        note: note.clone(),
        details: json!({
            "data_bytes": size,
            "window": window,
            "relay_window": relay_window,
            "runs": runs.iter().map(Run::json).collect::<Vec<_>>(),
        }),
    };
    let mut rows = vec![row("relay", relay, 0.5)];
    if runs.iter().any(|run| run.middle == Middle::Ndnd) {
        rows.push(row("NDNd", best(runs, Middle::Ndnd).0, 1.0));
    }
    if size == SIZES[0] {
        rows.push(row("wanted", WANTED, 1.0));
    }
    rows
}

fn one_run(
    options: &BenchOptions,
    size: usize,
    window: usize,
    middle: Middle,
    timing: Timing,
) -> Result<Run, BenchError> {
    let folder = scratch::folder("whimbrel-bench-")?;
    let folder = folder.path();
    let program = &options.program;
    let (running, socket) = start(options, folder, middle)?;
    let producer = start_producer(program, folder, &socket, size, middle != Middle::Relay)?;
    let consumer = start_consumer(program, folder, &socket, window, None, timing)?;
    consumer.ready("counting")?;
    let before = (
        cpu_of_process(running.id())?,
        cpu_of_process(producer.id())?,
    );
    consumer.await_word("counted", timing.duration + LATE)?;
    let after = (
        cpu_of_process(running.id())?,
        cpu_of_process(producer.id())?,
    );
    let consumed = finished(&consumer)?;
    let exchanges = consumed.exchanges.max(1) as f64;
    Ok(Run {
        middle,
        window,
        consumed,
        middle_us: (after.0 - before.0).as_secs_f64() * 1e6 / exchanges,
        producer_us: (after.1 - before.1).as_secs_f64() * 1e6 / exchanges,
    })
}

/// Margin for a busy machine.
const LATE: Duration = Duration::from_secs(30);

fn start(
    options: &BenchOptions,
    folder: &Path,
    middle: Middle,
) -> Result<(Program, PathBuf), BenchError> {
    let program = &options.program;
    match middle {
        Middle::Ndnd => {
            let socket = folder.join("ndnd.sock");
            let config = folder.join("ndnd.yml");
            std::fs::write(&config, ndnd::configuration(&socket, None))
                .map_err(BenchError::system(format!("write {}", config.display())))?;
            let mut command = Command::new(options.ndnd.as_deref().unwrap_or(Path::new("ndnd")));
            command.args(["fw", "run"]).arg(config);
            let running = Supervisor::new(folder).speaker("ndnd", command)?;
            running.ready(ndnd::READY)?;
            Ok((running, socket))
        }
        Middle::Router => {
            let router = RunningRouter::start(program, folder, "router", None)?;
            Ok((router.process, router.socket))
        }
        Middle::Relay => {
            let socket = folder.join("relay.sock");
            let mut command = Command::new(program);
            command
                .args(["bench", "ndn-relay", "--socket"])
                .arg(&socket);
            let relay = Supervisor::new(folder).speaker("relay", command)?;
            relay.ready("ready")?;
            Ok((relay, socket))
        }
    }
}

/// Starts a producer and waits until it answers.
pub(super) fn start_producer(
    program: &Path,
    folder: &Path,
    socket: &Path,
    size: usize,
    register: bool,
) -> Result<Program, BenchError> {
    let mut command = Command::new(program);
    command
        .args([
            "bench",
            "ndn-producer",
            "--data-size",
            &size.to_string(),
            "--socket",
        ])
        .arg(socket);
    if register {
        command.arg("--register");
    }
    let producer = Supervisor::new(folder).speaker("producer", command)?;
    producer.ready("ready")?;
    Ok(producer)
}

/// Starts a consumer.
pub(super) fn start_consumer(
    program: &Path,
    folder: &Path,
    socket: &Path,
    window: usize,
    rate: Option<u32>,
    timing: Timing,
) -> Result<Program, BenchError> {
    let mut command = Command::new(program);
    command.args(["bench", "ndn-consumer", "--window", &window.to_string()]);
    command.args(["--warm-up-ms", &timing.warm_up.as_millis().to_string()]);
    command.args(["--duration-ms", &timing.duration.as_millis().to_string()]);
    if let Some(rate) = rate {
        command.args(["--rate", &rate.to_string()]);
    }
    command.arg("--socket").arg(socket);
    Ok(Supervisor::new(folder).speaker("consumer", command)?)
}

/// Returns the final report of a consumer.
pub(super) fn finished(consumer: &Program) -> Result<Consumed, BenchError> {
    let line = consumer.await_word("exchanges", LATE)?;
    serde_json::from_str(&line).map_err(|error| BenchError::Side {
        what: format!("the consumer's report cannot be read: {error}"),
        said: line.clone(),
    })
}
