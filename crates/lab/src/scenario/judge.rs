//! Our measurements beside a paper's statements.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::statement::{Statement, shown};
use super::{Scenario, batch::Batch};
use crate::study::Verdict;

/// A statement and our measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The source of the statement.
    pub source: String,
    /// The statement in words.
    pub says: String,
    /// The paper's number.
    pub paper: f64,
    /// Our number: the mean over the runs; `None` if nothing was measured.
    pub ours: Option<f64>,
    /// The unit of both; empty for a ratio or a count.
    pub unit: String,
    /// The agreement within the tolerance.
    pub verdict: Verdict,
    /// The likely reason for a difference.
    pub note: String,
}

/// Judges every statement of a scenario.
pub fn judge(scenario: &Scenario, batch: &Batch) -> Vec<Judged> {
    let statements = scenario.statements.iter();
    statements
        .map(|statement| {
            let ours = ours(scenario, batch, statement);
            let agrees = ours.is_some_and(|ours| statement.tolerance.admits(statement.value, ours));
            let unit = match statement.relative_to {
                Some(_) => "",
                None => super::metric::unit(&statement.metric),
            };
            Judged {
                source: statement.source.clone(),
                says: statement.says.clone(),
                paper: statement.value,
                ours,
                unit: unit.to_owned(),
                verdict: if agrees {
                    Verdict::Agrees
                } else {
                    Verdict::Differs
                },
                note: statement.note.clone(),
            }
        })
        .collect()
}

fn ours(scenario: &Scenario, batch: &Batch, statement: &Statement) -> Option<f64> {
    let at = |place: &BTreeMap<String, toml::Value>| {
        let fits = |setting: usize| {
            let values = &scenario.settings[setting].values;
            place.iter().all(|(key, value)| {
                let value = shown(value);
                values
                    .iter()
                    .any(|(known, at)| known == key && *at == value)
            })
        };
        mean(&batch.values(&statement.metric, fits))
    };
    let here = at(&statement.at)?;
    match &statement.relative_to {
        None => Some(here),
        Some(place) => at(place)
            .filter(|there| *there != 0.0)
            .map(|there| here / there),
    }
}

/// Returns the arithmetic mean, or `None` without values.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
