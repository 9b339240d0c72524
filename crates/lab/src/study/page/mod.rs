//! Pages: one for each study, with both back ends beside the paper, and an index. They need no
//! external resources.

mod figures;
mod sections;

use std::path::{Path, PathBuf};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Backend, Comparison, STUDIES, Study, StudyResult, Verdict, read_results};
use crate::LabError;

const STYLE: &str = include_str!("style.css");

/// The written files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The page of all studies.
    pub index: PathBuf,
    /// One page of each study that has results, with the study's name.
    pub studies: Vec<(&'static str, PathBuf)>,
}

/// Writes every page anew from the results below `root`.
pub fn write_pages(root: &Path) -> Result<Pages, LabError> {
    let write = |name: &str, page: Markup| -> Result<PathBuf, LabError> {
        let path = root.join(name).with_extension("html");
        let failed = LabError::system(format!("write {}", path.display()));
        std::fs::write(&path, page.into_string()).map_err(failed)?;
        Ok(path)
    };
    let mut rows = Vec::new();
    let mut studies = Vec::new();
    for study in &STUDIES {
        let results = read_results(root, study.name)?;
        if !results.is_empty() {
            studies.push((study.name, write(study.name, study_page(study, &results)?)?));
        }
        rows.push((study, results));
    }
    Ok(Pages {
        index: write("index", index_page(&rows))?,
        studies,
    })
}

/// Returns a page in the style of all pages.
pub(crate) fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (body) } }
        }
    }
}

fn study_page(study: &Study, results: &[StudyResult]) -> Result<Markup, LabError> {
    let title = format!("{}: {}", study.name, study.title);
    let body = html! {
        nav { a href="index.html" { "All studies" } }
        header {
            h1 { (study.name) }
            p.lead { (study.title) }
            p.quiet { "Source: " (study.source) }
        }
        (sections::verdict(study, results)?)
        (sections::comparison(study, results)?)
        (sections::readings(results))
        (sections::beside(results))
        (figures::section(results)?)
        (sections::assumptions(study))
        (sections::repeat(results))
        (sections::numbers(results))
        (sections::scenario(results))
    };
    Ok(document(&title, &body))
}

fn index_page(rows: &[(&Study, Vec<StudyResult>)]) -> Markup {
    let body = html! {
        header {
            h1 { "Studies" }
            p.lead { "Published figures, drawn again by the code that ships." }
        }
        table.cards role="table" {
            caption { "Statements of each paper that our measurements agree with, of those compared" }
            thead role="rowgroup" {
                tr role="row" {
                    th scope="col" role="columnheader" { "Study" }
                    th scope="col" role="columnheader" { "What it shows" }
                    @for backend in Backend::ALL {
                        th scope="col" role="columnheader" { (backend.title()) }
                    }
                }
            }
            tbody role="rowgroup" {
                @for (study, results) in rows { (index_row(study, results)) }
            }
        }
        p.quiet {
            "Simulator: virtual time, smoltcp as TCP. Namespaces: real daemons and the kernel's TCP over emulated links."
        }
    };
    document("Whimbrel: studies", &body)
}

fn index_row(study: &Study, results: &[StudyResult]) -> Markup {
    html! {
        tr role="row" {
            th scope="row" role="rowheader" {
                @if results.is_empty() { (study.name) } @else {
                    a href=(format!("{}.html", study.name)) { (study.name) }
                }
            }
            td role="cell" data-label="What it shows" { (study.title) br; span.quiet { (study.source) } }
            @for backend in Backend::ALL {
                td role="cell" data-label=(backend.title()) {
                    @match of(results, backend) {
                        Some(result) => (agreement(&result.comparisons)),
                        None if !study.runs_on(backend) => span.quiet { (study.only()) },
                        None => span.quiet { "not run yet: " code { (run_command(study.name, backend)) } },
                    }
                }
            }
        }
    }
}

/// Returns a count as "4 of 5".
fn agreement(comparisons: &[Comparison]) -> String {
    let agreed = comparisons
        .iter()
        .filter(|row| row.verdict == Verdict::Agrees)
        .count();
    format!("{agreed} of {}", comparisons.len())
}

fn of(results: &[StudyResult], backend: Backend) -> Option<&StudyResult> {
    results.iter().find(|result| result.backend == backend)
}

fn run_command(study: &str, backend: Backend) -> String {
    format!("whimbrel study run {study} --backend {}", backend.name())
}
