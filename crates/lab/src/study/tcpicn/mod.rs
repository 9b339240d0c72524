//! Studies of [TCP/ICN]: TCP over proxies and NDN beside plain IP on the same links.

pub(super) mod completion;
pub(super) mod duplex;
pub(super) mod fairness;
pub(super) mod grid;
pub(super) mod page;

use super::result::mean;
use crate::scenario::run::Run;

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
