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
use whimbrel_node::exact_json;

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

/// The file that marks a folder of results: the first one that is written.
const MARK: &str = "result.json";

/// Refuses a folder with files that are not results of an earlier run: results could replace them.
pub fn check_folder(folder: &Path) -> Result<(), LabError> {
    let is_empty = std::fs::read_dir(folder).map_or(true, |mut files| files.next().is_none());
    let marked = || {
        let text = std::fs::read_to_string(folder.join(MARK)).unwrap_or_default();
        exact_json::read::<Batch>(&text).is_ok()
    };
    match is_empty || marked() {
        true => Ok(()),
        false => Err(LabError::NotResults {
            folder: folder.to_owned(),
        }),
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
    put(MARK, exact_json::pretty(batch).unwrap_or_default())?;
    put("scenario.toml", scenario.text.clone())?;
    put("runs.csv", table::runs(scenario, batch))?;
    let summary = table::summary(scenario, batch);
    put("summary.csv", table::summary_csv(scenario, &summary))?;
    let network = &scenario.settings[0].plan.network;
    let picture = topology::Picture::of(network);
    picture.write(&folder.join("topology"))?;
    let charts = charts::all(scenario, batch);
    for (name, chart) in &charts.drawn {
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
    fn only_results_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results");
        check_folder(&results).unwrap();
        std::fs::create_dir(&results).unwrap();
        check_folder(&results).unwrap();
        for (mark, is_taken) in [("", false), ("{}", false), (EARLIER, true)] {
            std::fs::write(results.join("topology.svg"), "").unwrap();
            std::fs::write(results.join(MARK), mark).unwrap();
            assert_eq!(check_folder(&results).is_ok(), is_taken, "{mark}");
        }
    }

    const EARLIER: &str = r#"{ "backend": "sim", "outcomes": [] }"#;
}
