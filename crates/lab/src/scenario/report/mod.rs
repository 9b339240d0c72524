//! The folder of results:
//!
//! ```text
//! DIR/index.html         a page with all of the following
//! DIR/result.json        every run, with its transfers over time
//! DIR/runs.csv           a row for each run
//! DIR/summary.csv        a row for each setting and metric: mean, least, most over the runs
//! DIR/topology.svg, .png the network
//! DIR/METRIC.svg, .png   a metric over the first swept key, or transfers over time
//! DIR/scenario.toml      the scenario as it was run
//! ```

mod charts;
mod page;
mod table;
mod topology;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::batch::Batch;
use super::judge::{Judged, judge};
use super::{Scenario, Setting};
use crate::LabError;

pub use table::{Row, summary};

/// The outcome of a batch, for a command's output.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The scenario's title.
    pub title: String,
    /// A row for each setting and metric.
    pub summary: Vec<Row>,
    /// The loads and receivers that had not all their files when a run ended, and in how many runs.
    pub unfinished: BTreeMap<String, usize>,
    /// The paper's statements beside ours.
    pub statements: Vec<Judged>,
    /// The page.
    pub page: PathBuf,
}

impl Setting {
    /// `links.wifi.loss = 1 %, ...`; empty if nothing is swept.
    pub fn title(&self) -> String {
        let values = self.values.iter();
        let texts: Vec<String> = values
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        texts.join(", ")
    }
}

/// The files that every folder of results has.
const ALWAYS: [&str; 5] = [
    "scenario.toml",
    "runs.csv",
    "summary.csv",
    "result.json",
    "index.html",
];

/// Refuses a folder with a file that results would replace, unless an earlier run has written it.
pub fn check_folder(folder: &Path) -> Result<(), LabError> {
    let taken = ALWAYS.iter().filter(|name| folder.join(name).exists());
    let taken: Vec<&str> = taken.copied().collect();
    match taken.first() {
        Some(name) if taken.len() < ALWAYS.len() => Err(LabError::NotResults {
            file: folder.join(name),
        }),
        _ => Ok(()),
    }
}

/// Writes everything to `folder`, in place of an earlier run's files. `command` repeats the run.
pub fn write(
    scenario: &Scenario,
    batch: &Batch,
    folder: &Path,
    command: &str,
) -> Result<Report, LabError> {
    std::fs::create_dir_all(folder)
        .map_err(LabError::system(format!("make {}", folder.display())))?;
    let put = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text)
            .map_err(LabError::system(format!("write {}", path.display())))
            .map(|()| path)
    };
    put("scenario.toml", scenario.text.clone())?;
    put("runs.csv", table::runs(scenario, batch))?;
    let summary = table::summary(scenario, batch);
    put("summary.csv", table::summary_csv(scenario, &summary))?;
    put(
        "result.json",
        serde_json::to_string_pretty(batch).unwrap_or_default(),
    )?;
    let network = &scenario.settings[0].plan.network;
    let picture = topology::Picture::of(network);
    picture.write(&folder.join("topology"))?;
    let charts = charts::all(scenario, batch);
    for (name, chart) in &charts {
        chart.write(&folder.join(name))?;
    }
    let statements = judge(scenario, batch);
    let page = page::page(
        scenario,
        batch,
        &statements,
        &summary,
        &picture,
        &charts,
        command,
    )?;
    Ok(Report {
        title: scenario.title.clone(),
        summary,
        unfinished: unfinished(batch),
        statements,
        page: put("index.html", page)?,
    })
}

fn unfinished(batch: &Batch) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for name in batch.outcomes.iter().flat_map(|it| &it.found.unfinished) {
        *runs.entry(name.clone()).or_default() += 1;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_files_of_an_earlier_run_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results");
        check_folder(&results).unwrap();
        std::fs::create_dir(&results).unwrap();
        std::fs::write(results.join("notes.txt"), "mine").unwrap();
        check_folder(&results).unwrap();
        std::fs::write(results.join("scenario.toml"), "mine").unwrap();
        let refused = check_folder(&results).unwrap_err().to_string();
        assert!(refused.contains("scenario.toml"), "{refused}");
        for name in ALWAYS {
            std::fs::write(results.join(name), "").unwrap();
        }
        check_folder(&results).unwrap();
    }
}
