//! The kernel's Multipath TCP in the cells of the grid: the best of its configurations, beside its own
//! single links.

use super::super::statistics::Spread;
use super::super::{Comparison, StudyInput, Table};
use super::MultihomingGoodputs;
use super::grid::{Cell, GridRuns, Numbers};
use super::throughput::title;

/// Smaller parts of a goodput are no difference, whatever the spread of the runs says.
const TIE: f64 = 0.01;

/// The best Multipath TCP of a cell.
pub(super) struct Beside<'a> {
    system: &'a str,
    pub(super) got: MultihomingGoodputs,
    /// Mbit/s of each run.
    runs: Vec<f64>,
}

impl<'a> Beside<'a> {
    /// Returns the best of the configurations; none if the scenario has none. Alone, each link counts as
    /// its best TCP.
    pub(super) fn of(systems: &[Numbers<'a>], runs: &GridRuns) -> Option<Beside<'a>> {
        let all = systems.iter().filter(|it| it.system.starts_with("mptcp-"));
        let all = all.map(|it| (it.system, runs.of_all(it)));
        let mean = |values: &[f64]| Spread::of(values).mean;
        let (system, best) = all.max_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)))?;
        let mut alone: Vec<f64> = Vec::new();
        for tcp in systems.iter().filter(|it| it.system.starts_with("tcp-")) {
            let each = runs.of_each(tcp);
            alone.resize(each.len(), 0.0);
            for (best, of_link) in alone.iter_mut().zip(each) {
                *best = best.max(of_link);
            }
        }
        Some(Beside {
            system,
            got: MultihomingGoodputs {
                all: mean(&best),
                alone,
                bytes: 0.0,
            },
            runs: best,
        })
    }
}

/// Which of the two is ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ahead,
    Tie,
    Behind,
}

impl Place {
    const fn name(self) -> &'static str {
        match self {
            Place::Ahead => "ahead",
            Place::Tie => "tie",
            Place::Behind => "behind",
        }
    }
}

/// Returns the mean of the paired difference in Mbit/s, and what follows from it with a confidence of
/// 95 %. Runs of one number have one seed: the emulated links draw the same.
fn difference(ours: &[f64], theirs: &[f64]) -> (f64, Place) {
    let pairs = ours.iter().zip(theirs);
    let differences: Vec<f64> = pairs.map(|(ours, theirs)| ours - theirs).collect();
    let spread = Spread::of(&differences);
    let least = TIE * Spread::of(theirs).mean;
    let margin = (spread.mean - spread.lower_bound()).max(least);
    let place = match spread.mean {
        mean if mean > margin => Place::Ahead,
        mean if mean < -margin => Place::Behind,
        _ => Place::Tie,
    };
    (spread.mean, place)
}

pub(super) fn compared(input: &StudyInput<'_>, cells: &[Cell<'_>]) -> Vec<Comparison> {
    let beside = cells.iter().filter_map(|cell| {
        let rival = cell.beside.as_ref()?;
        let (_, place) = difference(&cell.runs, &rival.runs);
        Some((cell, rival, place))
    });
    let beside: Vec<_> = beside.collect();
    if beside.is_empty() {
        return Vec::new();
    }
    let count = |place: Place| beside.iter().filter(|it| it.2 == place).count() as f64;
    let numbers = [
        ("cells in which Whimbrel is ahead", count(Place::Ahead), 0),
        ("ties", count(Place::Tie), 0),
        ("behind", count(Place::Behind), 0),
    ];
    let is_ahead = count(Place::Behind) == 0.0;
    let harmed = |is: &dyn Fn(&(&Cell<'_>, &Beside<'_>, Place)) -> bool| {
        beside.iter().filter(|it| is(it)).count() as f64
    };
    let below = [
        (
            "Whimbrel, cells",
            harmed(&|it| it.0.got.harm() < 1.0 - TIE),
            0,
        ),
        (
            "Multipath TCP, cells",
            harmed(&|it| it.1.got.harm() < 1.0 - TIE),
            0,
        ),
        ("of", beside.len() as f64, 0),
    ];
    vec![
        input.compare_numbers("ahead", "", is_ahead, 0, &numbers),
        input.compare_numbers("below-best", "", below[0].1 <= below[1].1, 0, &below),
    ]
}

/// Returns both systems of each cell side by side.
pub(super) fn table(cells: &[Cell<'_>]) -> Option<Table> {
    let row = |cell: &Cell<'_>| {
        let rival = cell.beside.as_ref()?;
        let (mean, place) = difference(&cell.runs, &rival.runs);
        let alone = rival.got.alone.iter().map(|it| format!("{it:.2}"));
        Some(vec![
            cell.name(),
            format!("{:.2}", cell.got.all),
            format!("{:.3}", cell.got.utilization()),
            format!("{:.3}", cell.got.harm()),
            title(rival.system),
            format!("{:.2}", rival.got.all),
            alone.collect::<Vec<_>>().join(", "),
            format!("{:.3}", rival.got.utilization()),
            format!("{:.3}", rival.got.harm()),
            format!("{mean:+.2}"),
            place.name().to_owned(),
        ])
    };
    let rows: Vec<Vec<String>> = cells.iter().filter_map(row).collect();
    let columns = [
        "cell",
        "Whimbrel, all links, Mbit/s",
        "U",
        "H",
        "best Multipath TCP",
        "its all links, Mbit/s",
        "TCP over each alone, Mbit/s",
        "its U",
        "its H",
        "difference, Mbit/s",
        "Whimbrel is",
    ];
    (!rows.is_empty()).then(|| Table {
        name: String::from("beside"),
        title: String::from(
            "Whimbrel beside the best of four configurations of Multipath TCP, each relative to its own single links",
        ),
        columns: columns.map(String::from).into(),
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_runs_cannot_tell_apart_is_a_tie() {
        assert_eq!(difference(&[50.2], &[50.0]).1, Place::Tie);
        assert_eq!(difference(&[55.0], &[50.0]).1, Place::Ahead);
        let spread = difference(&[55.0, 49.0, 53.0], &[50.0, 51.0, 50.0]);
        assert_eq!(spread.1, Place::Tie, "{spread:?}");
        let worse = difference(&[40.0, 41.0], &[50.0, 51.0]);
        assert_eq!(worse, (-10.0, Place::Behind));
    }
}
