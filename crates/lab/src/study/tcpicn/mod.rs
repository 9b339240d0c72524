//! Studies of [TCP/ICN]: TCP over proxies and NDN beside plain IP on the same links.

pub(super) mod completion;
pub(super) mod duplex;
pub(super) mod fairness;
pub(super) mod grid;
pub(super) mod page;

use super::result::mean;
use super::trial::run_settings;
use super::{Progress, StudyInput};
use crate::LabError;
use crate::scenario::run::Run;
use crate::scenario::{Scenario, Setting};

/// A setting's values of the swept keys, in their order, and its runs.
type Swept<'a, const N: usize> = ([&'a str; N], Vec<Run>);

/// Runs all settings of a scenario that sweeps these keys. `expected` says what a study sweeps, for errors;
/// `title` names a setting for people.
fn run_swept<'a, const N: usize>(
    input: &StudyInput<'_>,
    scenario: &'a Scenario,
    progress: Progress<'_>,
    keys: [&str; N],
    expected: &str,
    title: impl Fn([&str; N]) -> String,
) -> Result<Vec<Swept<'a, N>>, LabError> {
    let mut swept = Vec::new();
    for setting in &scenario.settings {
        let mut values = [""; N];
        for (value, key) in values.iter_mut().zip(keys) {
            *value = input.swept(setting, key, expected)?;
        }
        swept.push(values);
    }
    let name = |setting: &Setting| title(keys.map(|key| setting.value(key).unwrap_or_default()));
    let runs = run_settings(scenario, input, progress, name)?;
    Ok(swept.into_iter().zip(runs).collect())
}

/// Returns the mean completion time of the first file of each run, in seconds; infinite if a run did not
/// complete.
fn completion_time(runs: &[Run]) -> f64 {
    mean(completion_times(runs))
}

fn completion_times(runs: &[Run]) -> impl Iterator<Item = f64> {
    let records = runs
        .iter()
        .filter_map(|run| Some(&run.transfers.first()?.record));
    records.map(|record| match record.completed {
        true => record.finished,
        false => f64::INFINITY,
    })
}

/// Returns each value once, in the order of their first occurrence.
fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Returns the name of a way, from the sweep, for people.
fn title(by: &str) -> String {
    let mut words: Vec<&str> = by.split('-').collect();
    let first = match words.remove(0) {
        "plain" => "plain IP",
        "basic" => "basic fetching",
        "reliable" => "reliable prefetching",
        "unreliable" => "unreliable prefetching",
        other => other,
    };
    let more = words.into_iter().map(|word| match word {
        "belrp" => ", links that recover",
        "bbr" => ", BBR",
        "both" => ", both directions",
        "1500" => ", frames of 1500 bytes",
        other => other,
    });
    more.fold(first.to_owned(), |all, more| all + more)
}
