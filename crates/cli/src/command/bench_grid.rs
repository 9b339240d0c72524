//! `bench grid`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use whimbrel_bench::grid::{self, GridLaw, GridOptions};
use whimbrel_lab::study::Backend;

use super::{Outcome, json_line, out};
use crate::exit::{Exit, Failure};
use crate::progress::spinner;

/// Shown below `--help`.
pub(super) const HELP: &str = "Example:\n  whimbrel bench grid --random 200 --seed 7\n\n\
    Exit codes:\n  \
    0    measured\n  \
    1    any other failure\n  \
    2    wrong arguments\n  \
    6    the output cannot be written\n  \
    9    a link could not be measured";

#[derive(Args, Debug)]
pub(super) struct GridArguments {
    /// Virtual time, or real daemons next to the kernel's TCP
    #[arg(long, value_enum, default_value = "sim")]
    backend: GridBackend,
    /// The laws to compare, of which the first one orders the table [default: bottleneck, unpaced
    /// and cubic; with netns bottleneck, kernel-cubic and kernel-bbr]
    #[arg(long, value_enum, value_name = "LAW", value_delimiter = ',')]
    law: Vec<LawName>,
    /// Measure N random links with all impairments combined, instead of the grid
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    random: Option<u32>,
    /// Measure eight links only
    #[arg(long, conflicts_with = "random")]
    quick: bool,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the N worst links
    #[arg(long, value_name = "N", default_value_t = 12)]
    worst: usize,
    /// Runs at a time [default: one on each processor; with netns 1]
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Folder for grid.json and the pictures
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON instead of a table; the keys of numbers name their units
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum GridBackend {
    Sim,
    Netns,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum LawName {
    Bottleneck,
    Unpaced,
    Cubic,
    KernelCubic,
    KernelBbr,
}

impl From<LawName> for GridLaw {
    fn from(name: LawName) -> GridLaw {
        match name {
            LawName::Bottleneck => GridLaw::Bottleneck,
            LawName::Unpaced => GridLaw::Unpaced,
            LawName::Cubic => GridLaw::Cubic,
            LawName::KernelCubic => GridLaw::KernelCubic,
            LawName::KernelBbr => GridLaw::KernelBbr,
        }
    }
}

pub(super) fn run(arguments: GridArguments) -> Outcome {
    let backend = match arguments.backend {
        GridBackend::Sim => Backend::Sim,
        GridBackend::Netns => Backend::Netns,
    };
    let mut laws: Vec<GridLaw> = arguments.law.into_iter().map(GridLaw::from).collect();
    if laws.is_empty() {
        laws = GridLaw::of(backend);
    }
    if let Some(law) = laws.iter().find(|law| !law.is_known_to(backend)) {
        let message = format!(
            "'{}' is the kernel's, which virtual time does not have; add --backend netns",
            law.name()
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    if backend == Backend::Netns {
        // Before any thread starts. A failure here is reported with its reason by the first run.
        let _ = whimbrel_lab::ensure_privileges();
    }
    if let Some(folder) = &arguments.output {
        std::fs::create_dir_all(folder).map_err(|error| {
            let message = format!("cannot write to {}: {error}", folder.display());
            Failure::new(Exit::Write, message)
        })?;
    }
    let options = GridOptions {
        backend,
        laws,
        quick: arguments.quick,
        random: arguments.random,
        seed: arguments.seed,
        jobs: arguments.jobs.map(NonZeroUsize::get),
        program: std::env::current_exe()?,
    };
    let spinner = spinner(arguments.json);
    let report = grid::run(&options, &mut |done, all, last| {
        spinner.set_prefix(format!("{done} of {all}"));
        spinner.set_message(last.to_owned());
    });
    spinner.finish_and_clear();
    let report = report.map_err(|error| Failure::new(Exit::NotMeasured, error))?;
    if let Some(folder) = &arguments.output {
        let text = serde_json::to_string_pretty(&report.json()).unwrap_or_default();
        let file = folder.join("grid.json");
        std::fs::write(&file, text).map_err(|error| {
            let message = format!("cannot write {}: {error}", file.display());
            Failure::new(Exit::Write, message)
        })?;
        report
            .write_pictures(folder)
            .map_err(|error| Failure::new(Exit::Write, error))?;
    }
    if arguments.json {
        json_line(&report.json());
    } else {
        out(&report.table(arguments.worst));
    }
    Ok(Exit::Done)
}
