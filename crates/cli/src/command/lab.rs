//! `lab run|check|torture|attack|sample`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::{Args, Subcommand};
use whimbrel_core::units::Span;
use whimbrel_lab::LabError;
use whimbrel_lab::figure::number;
use whimbrel_lab::scenario::netns;
use whimbrel_lab::scenario::report::{self, Report};
use whimbrel_lab::scenario::{BatchOptions, Faults, Overrides, SAMPLE, Scenario};
use whimbrel_lab::study::{Backend, Verdict};
use whimbrel_lab::torture;

use super::study::BackendName;
use super::unfinished::Unfinished;
use super::{Outcome, json_line, out, stop_flag};
use crate::exit::{Exit, Failure};
use crate::progress::Progress;

#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    /// Run a scenario: a network, loads and events in a file
    #[command(
        after_help = "Example:\n  whimbrel lab sample > film.toml\n  whimbrel lab run film.toml --runs 5\n  \
                      whimbrel lab run film.toml --backend netns\n\nWrites a page, figures, CSV and JSON."
    )]
    Run(Run),
    /// Check a scenario: prints the first errors that it finds, with file, line and key
    #[command(after_help = "Example:\n  whimbrel lab check film.toml")]
    Check(Check),
    /// Inject random faults into simulated networks of hosts and routers and into NDN sites, and
    /// check that every transfer survives
    #[command(
        after_help = "Example:\n  whimbrel lab torture --schedules 1000 --seed 7\n  whimbrel lab torture --for 1h\n\n\
                      Schedule N has the seed S + N; the same seed gives the same schedule, event by event. \
                      A schedule that loses, duplicates, corrupts or forgets data is shrunk to the acts \
                      that matter and printed."
    )]
    Torture(Torture),
    /// Attack real daemons in namespaces, and measure the effect on honest users
    #[command(
        after_help = "Example:\n  whimbrel lab attack\n  whimbrel lab attack reflector forged-sources --rate 10Mbit/s\n  whimbrel lab attack calls --wire 1Gbit/s\n\n\
                      Each attack is on fresh daemons, whose honest users are measured before it, during it and two \
                      seconds after it. The network is made of namespaces of this machine; nothing leaves it.\n\n\
                      Exit codes:\n  0    no attack did harm\n  1    any other failure\n  2    wrong arguments\n  \
                      10   an attack did harm: a rate fell below 80 %, a newcomer did not get in within 1.5 s, \
                      memory grew by more than 160 MiB, or more came back than was sent"
    )]
    Attack(super::attack::Attack),
    /// Send the Interests of a load; a run in namespaces starts it
    #[command(hide = true)]
    Consumer {
        /// The order, as JSON
        order: String,
    },
    /// Print a minimal scenario with a comment
    #[command(after_help = "Example:\n  whimbrel lab sample > film.toml")]
    Sample,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The scenario
    file: PathBuf,
    /// The back end: virtual time with the production state machines, or real daemons and the kernel's TCP
    #[arg(long, value_enum, default_value = "sim")]
    backend: BackendName,
    /// Runs of each setting, overrides the scenario; each has a seed of its own
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Seed of all randomness, overrides the scenario
    #[arg(long)]
    seed: Option<u64>,
    /// Maximum of parallel runs; by default one on each processor, in namespaces one
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<NonZeroUsize>,
    /// Folder for the results; by default whimbrel-lab/NAME/BACKEND of the scenario;
    /// earlier results there are replaced
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Take up an interrupted run: what it has finished is not repeated
    #[arg(long)]
    resume: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The scenario
    file: PathBuf,
}

/// Schedules of `torture` if nothing says how many.
const DEFAULT_SCHEDULES: u64 = 200;

#[derive(Args, Debug)]
pub(crate) struct Torture {
    /// Number of schedules; by default 200, or as many as the time of --for allows
    #[arg(long, value_name = "NUMBER")]
    schedules: Option<u64>,
    /// Begin no more schedules after this time, as 1h
    #[arg(long = "for", value_name = "DURATION", value_parser = Span::with_unit)]
    time: Option<Span>,
    /// Seed of the first schedule; each following one is one higher
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Maximum of parallel schedules; by default one on each processor
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<NonZeroUsize>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Schedules after which Ctrl-C and `--for` are looked at.
const TORTURE_BLOCK: u64 = 64;

fn torture(arguments: &Torture) -> Outcome {
    let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let asked = match (arguments.schedules, arguments.time) {
        (Some(schedules), _) => schedules,
        (None, Some(_)) => u64::MAX,
        (None, None) => DEFAULT_SCHEDULES,
    };
    let stop = stop_flag()?;
    let started = Instant::now();
    let is_over = || {
        let in_time = arguments.time.is_none_or(|time| started.elapsed() < time.0);
        stop.load(Ordering::Relaxed) || !in_time
    };
    let mut progress = Progress::new("torture", arguments.json);
    let all = (asked < u64::MAX).then_some(asked);
    let (mut done, mut report, mut broken) = (0, torture::Report::default(), Vec::new());
    while done < asked && !is_over() {
        let first = arguments.seed.saturating_add(done);
        let block = TORTURE_BLOCK.min(asked - done);
        let (did, broke) = torture::run_batch(
            first..first.saturating_add(block),
            arguments.jobs.unwrap_or(processors),
            &mut |within, _, what| progress.set(done + within as u64, all, what),
        )
        .map_err(failure)?;
        report.add(&did);
        broken.extend(broke);
        done += block;
    }
    progress.end();
    if arguments.json {
        let broken: Vec<_> = broken
            .iter()
            .map(|it| serde_json::json!({ "seed": it.seed, "fault": it.breach.to_string() }))
            .collect();
        json_line(&serde_json::json!({
            "schedules": done,
            "seed": arguments.seed,
            "report": report,
            "broken": broken,
        }));
    } else {
        for it in &broken {
            out(&format!(
                "seed {}: {}\n{}\n",
                it.seed, it.breach, it.smallest
            ));
        }
        out(&format!(
            "{} schedules from seed {}: {} requests, {} completed, {} repeated, {} abandoned; {} pushed, {} received; \
             {} broken\n",
            done,
            arguments.seed,
            report.requests,
            report.completed,
            report.repeated,
            report.abandoned,
            report.pushed,
            report.received,
            broken.len(),
        ));
    }
    Ok(if !broken.is_empty() {
        Exit::Other
    } else if stop.load(Ordering::Relaxed) {
        Exit::Interrupted
    } else {
        Exit::Done
    })
}

pub(crate) fn run(command: LabCommand) -> Outcome {
    match command {
        LabCommand::Torture(arguments) => torture(&arguments),
        LabCommand::Attack(arguments) => super::attack::run(&arguments),
        LabCommand::Run(run) => run_scenario(&run),
        LabCommand::Check(check) => {
            let scenario = load(&check.file, Overrides::default())?;
            let network = &scenario.settings[0].plan.network;
            out(&format!(
                "{}: no errors; {} nodes, {} links, {} settings\n",
                check.file.display(),
                network.nodes.len(),
                network.links.len(),
                scenario.settings.len()
            ));
            for backend in Backend::ALL {
                let overrides = Overrides {
                    backend: Some(backend),
                    ..Overrides::default()
                };
                match load(&check.file, overrides)?.check(backend) {
                    Ok(()) => out(&format!("runs with --backend {}\n", backend.name())),
                    Err(faults) => out(&format!("{faults}\n")),
                }
            }
            Ok(Exit::Done)
        }
        LabCommand::Consumer { order } => consumer(&order),
        LabCommand::Sample => {
            out(SAMPLE);
            Ok(Exit::Done)
        }
    }
}

fn load(file: &Path, overrides: Overrides) -> Result<Scenario, Failure> {
    Scenario::load(file, overrides).map_err(|faults: Faults| Failure::new(Exit::Usage, faults))
}

fn run_scenario(arguments: &Run) -> Outcome {
    let overrides = Overrides {
        seed: arguments.seed,
        runs: arguments.runs,
        backend: Some(Backend::from(arguments.backend)),
    };
    let scenario = load(&arguments.file, overrides)?;
    let backend = Backend::from(arguments.backend);
    if backend == Backend::Netns {
        // Before any thread starts.
        whimbrel_lab::ensure_privileges().map_err(failure)?;
    }
    let name = arguments.file.file_stem().unwrap_or_default();
    let default = || Path::new("whimbrel-lab").join(name).join(backend.name());
    let folder = arguments.output.clone().unwrap_or_else(default);
    report::check_folder(&folder).map_err(failure)?;
    let journal = Unfinished {
        path: folder.clone(),
        resume: arguments.resume,
    };
    let journal = journal.open(&scenario.terms(backend, overrides))?;
    let options = BatchOptions {
        backend,
        jobs: arguments.jobs.map(usize::from),
        program: std::env::current_exe()?,
        journal: Some(Arc::clone(&journal)),
    };
    let mut progress = Progress::new(&scenario.title, arguments.json);
    let ran = scenario.run(&options, &mut |done, all, what| {
        progress.set(done as u64, Some(all as u64), what);
    });
    progress.end();
    let batch = ran.map_err(failure)?;
    let report = report::write(&scenario, &batch, &folder, &command(arguments)).map_err(failure)?;
    journal.remove().map_err(failure)?;
    if arguments.json {
        json_line(&report);
    } else {
        out(&text(&scenario, &report));
    }
    Ok(Exit::Done)
}

fn consumer(order: &str) -> Outcome {
    let consumer: netns::Consumer = serde_json::from_str(order)
        .map_err(|error| Failure::new(Exit::Usage, format!("the order cannot be read: {error}")))?;
    consumer.run(json_line)?;
    Ok(Exit::Done)
}

/// Returns a bar on a terminal, none elsewhere. The command that repeats a run.
fn command(arguments: &Run) -> String {
    let mut command = format!(
        "whimbrel lab run {} --backend {}",
        arguments.file.display(),
        Backend::from(arguments.backend).name()
    );
    if let Some(runs) = arguments.runs {
        command += &format!(" --runs {runs}");
    }
    if let Some(seed) = arguments.seed {
        command += &format!(" --seed {seed}");
    }
    command
}

fn text(scenario: &Scenario, report: &Report) -> String {
    let mut text = format!("{}\n", report.title);
    for judged in &report.statements {
        let ours = judged.ours.map_or("not measured".to_owned(), number);
        text += &format!(
            "{} {}\n  paper {} {unit}, ours {ours} {unit}: {}\n",
            judged.says,
            judged.source,
            number(judged.paper),
            judged.verdict.name(),
            unit = judged.unit,
        );
        if judged.verdict == Verdict::Differs && !judged.note.is_empty() {
            text += &format!("  {}\n", judged.note);
        }
    }
    let mut before = None;
    for row in &report.summary {
        if before != Some(&row.values) && !row.values.is_empty() {
            let swept = scenario.settings[0].values.iter().map(|(key, _)| key);
            let values = swept
                .zip(&row.values)
                .map(|(key, value)| format!("{key} = {value}"));
            text += &format!("{}\n", values.collect::<Vec<_>>().join(", "));
        }
        before = Some(&row.values);
        let spread = if row.runs > 1 {
            format!("  ({} to {})", number(row.min), number(row.max))
        } else {
            String::new()
        };
        text += &format!(
            "  {:<28} {:>12} {}{spread}\n",
            row.metric,
            number(row.mean),
            row.unit
        );
    }
    for (load, runs) in &report.unfinished {
        let all = scenario.settings.len() * scenario.runs as usize;
        text += &format!("{load}: not all files within the limit, in {runs} of {all} runs\n");
    }
    text + &format!("{}\n", report.page.display())
}

fn failure(error: LabError) -> Failure {
    let exit = match error {
        LabError::Scenario(_) | LabError::NotResults { .. } => Exit::Usage,
        _ => Exit::Other,
    };
    Failure::new(exit, error.to_string())
}
