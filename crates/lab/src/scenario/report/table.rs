//! Numbers as tables.

use serde::Serialize;

use super::super::batch::Batch;
use super::super::judge::mean;
use super::super::{Scenario, metric};

/// One metric at one setting, over its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The swept values, in the order of the sweep.
    pub values: Vec<String>,
    /// Its name.
    pub metric: String,
    /// Its unit; empty for a count.
    pub unit: &'static str,
    /// The number of runs that have it.
    pub runs: usize,
    /// The mean over these.
    pub mean: f64,
    /// The minimum over these.
    pub min: f64,
    /// The maximum over these.
    pub max: f64,
}

/// Returns a row for each setting and wanted metric that was measured.
pub fn summary(scenario: &Scenario, batch: &Batch) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, setting) in scenario.settings.iter().enumerate() {
        for name in &scenario.metrics {
            let values = batch.values(name, |known| known == index);
            let Some(mean) = mean(&values) else { continue };
            rows.push(Row {
                values: setting
                    .values
                    .iter()
                    .map(|(_, value)| value.clone())
                    .collect(),
                metric: name.clone(),
                unit: metric::unit(name),
                runs: values.len(),
                mean,
                min: values.iter().copied().fold(f64::INFINITY, f64::min),
                max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            });
        }
    }
    rows
}

pub(super) fn summary_csv(scenario: &Scenario, rows: &[Row]) -> String {
    let mut header = swept(scenario);
    header.extend(["metric", "unit", "runs", "mean", "min", "max"].map(str::to_owned));
    let mut text = line(&header);
    for row in rows {
        let mut cells = row.values.clone();
        cells.extend([
            row.metric.clone(),
            row.unit.to_owned(),
            row.runs.to_string(),
        ]);
        cells.extend([row.mean, row.min, row.max].map(|value| value.to_string()));
        text += &line(&cells);
    }
    text
}

/// Returns a row for each run, a column for each metric; cells without a measurement are empty.
pub(super) fn runs(scenario: &Scenario, batch: &Batch) -> String {
    let mut header = swept(scenario);
    header.extend(["run".to_owned(), "seed".to_owned()]);
    header.extend(scenario.metrics.iter().cloned());
    let mut text = line(&header);
    for outcome in &batch.outcomes {
        let setting = &scenario.settings[outcome.setting];
        let mut cells: Vec<String> = setting
            .values
            .iter()
            .map(|(_, value)| value.clone())
            .collect();
        cells.extend([(outcome.run + 1).to_string(), outcome.seed.to_string()]);
        cells.extend(scenario.metrics.iter().map(|name| {
            let value = outcome.found.values.get(name);
            value.map_or(String::new(), f64::to_string)
        }));
        text += &line(&cells);
    }
    text
}

fn swept(scenario: &Scenario) -> Vec<String> {
    let values = scenario.settings.first().map(|setting| &setting.values);
    values
        .into_iter()
        .flatten()
        .map(|(key, _)| key.clone())
        .collect()
}

/// Formats a line as in RFC 4180, except for the line's end.
fn line(cells: &[String]) -> String {
    let quoted = cells.iter().map(|cell| {
        if cell.contains([',', '"', '\n']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.clone()
        }
    });
    quoted.collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_are_quoted() {
        assert_eq!(
            line(&["a, b".into(), "c\"d".into(), "e".into()]),
            "\"a, b\",\"c\"\"d\",e\n"
        );
    }
}
