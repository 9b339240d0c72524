//! `study`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use whimbrel_lab::LabError;
use whimbrel_lab::study::{
    Backend, Comparison, STUDIES, Study, StudyOptions, StudyResult, Verdict, write_pages,
    write_result,
};

use super::unfinished::Unfinished;
use super::{Outcome, json_line, out};
use crate::exit::{Exit, Failure};
use crate::logging::{note, path_line};
use crate::progress::Progress;

const DEFAULT_FOLDER: &str = "whimbrel-studies";

#[derive(Subcommand, Debug)]
pub(crate) enum StudyCommand {
    /// List the studies
    #[command(after_help = "Example:\n  whimbrel study list")]
    List(List),
    /// Run a study, and write its tables, plots and report
    #[command(after_help = "Example:\n  whimbrel study run mftp-fig8 --backend netns")]
    Run(Run),
    /// Rebuild the reports from the results of earlier runs: one per study, and an index
    #[command(after_help = "Example:\n  whimbrel study report -o whimbrel-studies")]
    Report(Report),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The study's name
    name: String,
    /// The back end: virtual time with smoltcp, or real daemons next to the kernel's TCP [default: sim, where a study
    /// runs on it]
    #[arg(long, value_enum)]
    backend: Option<BackendName>,
    /// A scenario file instead of the study's own (studies/NAME/scenario.toml)
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Number of runs, overrides the scenario
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Maximum of parallel transfers; by default what the processors support
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<NonZeroUsize>,
    /// The whimbrel whose daemons are run in namespaces, instead of this one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Folder for the results: tables, pictures, transfers in flent's format, and pages
    #[arg(short, long, value_name = "DIR", default_value = DEFAULT_FOLDER)]
    output: PathBuf,
    /// Take up an interrupted run: settings that it has finished are not repeated
    #[arg(long)]
    resume: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Report {
    /// Folder of the results
    #[arg(short, long, value_name = "DIR", default_value = DEFAULT_FOLDER)]
    output: PathBuf,
    /// Print the pages' paths as JSON
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum BackendName {
    Sim,
    Netns,
}

impl From<BackendName> for Backend {
    fn from(name: BackendName) -> Backend {
        match name {
            BackendName::Sim => Backend::Sim,
            BackendName::Netns => Backend::Netns,
        }
    }
}

pub(crate) fn run(command: StudyCommand) -> Outcome {
    match command {
        StudyCommand::List(list) => {
            for study in &STUDIES {
                if list.json {
                    json_line(&serde_json::json!({
                        "name": study.name, "title": study.title, "source": study.source
                    }));
                } else {
                    out(&format!(
                        "{:<14} {}\n{:<14} {}\n",
                        study.name, study.title, "", study.source
                    ));
                }
            }
            Ok(Exit::Done)
        }
        StudyCommand::Run(run) => run_study(run),
        StudyCommand::Report(report) => report_studies(&report),
    }
}

fn report_studies(arguments: &Report) -> Outcome {
    let folder = &arguments.output;
    let known = STUDIES.iter().any(|study| folder.join(study.name).is_dir());
    if !known {
        let message = format!(
            "{} has no study results; `whimbrel study run` creates them, -o names another folder",
            folder.display()
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    let pages = write_pages(folder).map_err(failure)?;
    if arguments.json {
        let studies: serde_json::Map<String, serde_json::Value> = pages
            .studies
            .iter()
            .map(|(name, path)| ((*name).to_owned(), path.display().to_string().into()))
            .collect();
        json_line(&serde_json::json!({ "index": pages.index, "studies": studies }));
    } else {
        pages
            .studies
            .iter()
            .for_each(|(_, path)| out(&format!("{}\n", path.display())));
        out(&format!("{}\n", pages.index.display()));
    }
    Ok(Exit::Done)
}

fn run_study(arguments: Run) -> Outcome {
    let known = || {
        STUDIES
            .iter()
            .map(|study| study.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let study = Study::find(&arguments.name).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            format!("unknown study '{}'; known are {}", arguments.name, known()),
        )
    })?;
    let named = arguments.backend.map(Backend::from);
    let backend = named.unwrap_or_else(|| study.default_backend());
    if backend == Backend::Netns {
        // Before any thread starts.
        whimbrel_lab::ensure_privileges().map_err(failure)?;
    }
    if let Some(scenario) = &arguments.scenario {
        note(&format!(
            "{} is another scenario than the paper's: what agrees or differs says little of the paper",
            path_line(scenario)
        ));
    }
    let mut options = StudyOptions {
        backend,
        scenario: arguments.scenario,
        runs: arguments.runs,
        seed: arguments.seed,
        jobs: arguments.jobs.map(usize::from),
        program: match arguments.program {
            Some(program) => program,
            None => std::env::current_exe()?,
        },
        journal: None,
    };
    let name = format!("{}-{}", study.name, backend.name());
    let journal = Unfinished {
        path: arguments.output.join(name),
        resume: arguments.resume,
    };
    let journal = journal.open(&study.terms(&options).map_err(failure)?)?;
    options.journal = Some(Arc::clone(&journal));
    let mut progress = Progress::new(study.name, arguments.json);
    let ran = study.run(&options, &mut |done, all, what| {
        progress.set(done as u64, Some(all as u64), what);
    });
    progress.end();
    let result = ran.map_err(failure)?;
    let folder = write_result(&result, &arguments.output).map_err(failure)?;
    journal.remove().map_err(failure)?;
    let pages = write_pages(&arguments.output).map_err(failure)?;
    if arguments.json {
        json_line(&result);
    } else {
        out(&summary(&result));
        out(&format!("\n{}\n", folder.display()));
        let page = pages.studies.iter().find(|(name, _)| *name == study.name);
        page.iter()
            .for_each(|(_, path)| out(&format!("{}\n", path.display())));
    }
    Ok(Exit::Done)
}

fn summary(result: &StudyResult) -> String {
    let mut text = String::new();
    for row in &result.comparisons {
        let case = if row.case.is_empty() {
            String::new()
        } else {
            format!(" ({})", row.case)
        };
        text.push_str(&format!(
            "{}{case}\n  paper  {}\n  ours   {}\n         {}\n",
            row.quantity,
            row.paper,
            row.ours,
            row.verdict.name()
        ));
        if row.verdict == Verdict::Differs && !row.explanation.is_empty() {
            text.push_str(&format!("         {}\n", row.explanation));
        }
    }
    let agreeing = |rows: &[Comparison]| {
        let agreeing = rows.iter().filter(|row| row.verdict == Verdict::Agrees);
        format!("{} of {} statements agree", agreeing.count(), rows.len())
    };
    text.push_str(&format!("\n{}\n", agreeing(&result.comparisons)));
    for reading in &result.readings {
        let agreeing = agreeing(&reading.comparisons);
        text.push_str(&format!(
            "  read as \"{}\" ({}): {agreeing}\n",
            reading.name, reading.title
        ));
    }
    text
}

fn failure(error: LabError) -> Failure {
    Failure::new(Exit::Other, error.to_string())
}
