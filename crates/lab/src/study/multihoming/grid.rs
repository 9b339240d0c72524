//! The grid: cells of unequal links, faults and traces. Each runs with all links and with each of them
//! alone, on the same back end with the same seed.
//!
//! With C the goodput of each link alone and G that of all: U = G / sum of C, H = G / greatest C, and the
//! benefit is the part of what the further links could add.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::jobs::run_all;
use super::super::trial::PlanRun;
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use super::{Goodputs, without};
use crate::LabError;
use crate::figure::{HeatMap, LineChart};
use crate::scenario::run::Run;
use crate::scenario::{Plan, Setting};

/// The section `[study]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// Group, part of the column, least U.
    utilization: Vec<(String, String, f64)>,
    /// Least benefit by row.
    benefit: BTreeMap<String, f64>,
    /// The group whose cells are made to do harm.
    adversarial: String,
}

/// The least H in cells that are made to do harm.
const LEAST_HARM: f64 = 0.99;

/// A cell's place, plans and results.
struct Cell<'a> {
    group: &'a str,
    row: &'a str,
    column: &'a str,
    got: Goodputs,
    /// The most bytes that overtook a chunk, and the chunks beyond their bound.
    overtaken: f64,
    beyond: f64,
}

impl Cell<'_> {
    /// U.
    fn utilization(&self) -> f64 {
        self.got.all / self.got.sum()
    }

    fn benefit(&self) -> f64 {
        let got = &self.got;
        (got.all - got.best()) / (got.sum() - got.best())
    }

    fn name(&self) -> String {
        format!("{}, {}, {}", self.group, self.row, self.column)
    }
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let section: Section = scenario.study()?;
    // Plans that several cells share (the fast link alone) run once.
    let mut plans: Vec<Plan> = Vec::new();
    let mut of_cells = Vec::new();
    for setting in &scenario.settings {
        let alone = alone(&setting.plan);
        let whole = std::iter::once(setting.plan.clone()).chain(alone);
        let numbers: Vec<usize> = whole.map(|plan| number_of(&mut plans, plan)).collect();
        of_cells.push(numbers);
    }
    let trials: Vec<PlanRun<'_>> = plans
        .iter()
        .enumerate()
        .map(|(number, plan)| PlanRun {
            title: title(&scenario.settings, &of_cells, number),
            plan,
            seed: plan.seed,
        })
        .collect();
    let runs = run_all(&trials, input, progress)?;
    let mut cells = Vec::new();
    for (setting, numbers) in scenario.settings.iter().zip(&of_cells) {
        let expected = "cell, by names of the form GROUP/ROW/COLUMN";
        let name = input.swept(setting, "cell", expected)?;
        let name = place(name).ok_or_else(|| input.bad(format!("'{name}' is no {expected}")))?;
        cells.push(cell(name, &setting.plan, numbers, &runs));
    }
    input.result(
        scenario.text.clone(),
        compared(input, &section, &cells),
        tables(&section, &cells),
        charts(&cells),
        Vec::new(),
    )
}

fn place(name: &str) -> Option<(&str, &str, &str)> {
    let mut parts = name.splitn(3, '/');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

fn number_of(plans: &mut Vec<Plan>, plan: Plan) -> usize {
    plans.iter().position(|it| *it == plan).unwrap_or_else(|| {
        plans.push(plan);
        plans.len() - 1
    })
}

/// Returns the name of the first cell that a run belongs to.
fn title(settings: &[Setting], of_cells: &[Vec<usize>], number: usize) -> String {
    let mut cells = settings.iter().zip(of_cells);
    let found = cells.find_map(|(setting, numbers)| {
        let at = numbers.iter().position(|it| *it == number)?;
        let name = setting.value("cell").unwrap_or_default();
        Some(match at {
            0 => name.to_owned(),
            at => format!("{name}, link {at} alone"),
        })
    });
    found.unwrap_or_default()
}

/// Returns the plan with each of the links alone, of the end that has several; the others end at a node of
/// their own.
fn alone(plan: &Plan) -> Vec<Plan> {
    let load = &plan.loads[0];
    let ends = [load.from, load.to[0]];
    let links_of = |node: usize| -> Vec<usize> {
        let network = &plan.network;
        network.at(node).map(|(link, _)| link).collect()
    };
    let node = ends.into_iter().max_by_key(|node| links_of(*node).len());
    let node = node.unwrap_or(load.from);
    let links = links_of(node);
    let only = |link: usize| {
        let others = links.iter().filter(|it| **it != link);
        let others: Vec<(usize, usize)> = others.map(|other| (*other, node)).collect();
        without(plan, &others)
    };
    links.iter().map(|link| only(*link)).collect()
}

fn cell<'a>(
    (group, row, column): (&'a str, &'a str, &'a str),
    plan: &Plan,
    numbers: &[usize],
    runs: &[Run],
) -> Cell<'a> {
    let load = &plan.loads[0].name;
    let value = |number: usize, metric: &str| {
        let value = runs[number].values.get(metric);
        value.copied().unwrap_or(0.0)
    };
    let goodput = |number: &usize| value(*number, &format!("{load}.goodput"));
    let whole = &runs[numbers[0]].values;
    let of_nodes = |metric: &str| {
        let nodes = whole.iter().filter(|(name, _)| {
            name.starts_with("nodes.") && name.rsplit('.').next() == Some(metric)
        });
        nodes.map(|(_, value)| *value).fold(0.0, f64::max)
    };
    Cell {
        group,
        row,
        column,
        got: Goodputs {
            all: goodput(&numbers[0]),
            alone: numbers[1..].iter().map(goodput).collect(),
            bytes: value(numbers[0], &format!("{load}.bytes")),
        },
        overtaken: of_nodes("overtaken"),
        beyond: of_nodes("beyond"),
    }
}

impl Section {
    fn least_utilization(&self, cell: &Cell<'_>) -> Option<f64> {
        let mut rules = self.utilization.iter();
        let rule = rules
            .find(|(group, part, _)| group == cell.group && cell.column.contains(part.as_str()));
        rule.map(|(.., least)| *least)
    }

    fn least_benefit(&self, cell: &Cell<'_>) -> Option<f64> {
        let of_group = self.utilization.first().map(|(group, ..)| group.as_str());
        let least = self.benefit.get(cell.row)?;
        (of_group == Some(cell.group)).then_some(*least)
    }

    /// Returns the targets that a cell misses.
    fn misses(&self, cell: &Cell<'_>) -> Vec<&'static str> {
        let is_below = |least: Option<f64>, value: f64| least.is_some_and(|least| value < least);
        let is_harmed = match cell.group == self.adversarial {
            true => cell.got.harm() < LEAST_HARM,
            false => !cell.got.is_never_below(),
        };
        let misses = [
            ("H", is_harmed),
            (
                "U",
                is_below(self.least_utilization(cell), cell.utilization()),
            ),
            (
                "benefit",
                is_below(self.least_benefit(cell), cell.benefit()),
            ),
        ];
        let missed = misses.into_iter().filter(|(_, missed)| *missed);
        missed.map(|(name, _)| name).collect()
    }
}

fn compared(input: &StudyInput<'_>, section: &Section, cells: &[Cell<'_>]) -> Vec<Comparison> {
    let count =
        |id: &str, is_meant: &dyn Fn(&Cell<'_>) -> bool, has: &dyn Fn(&Cell<'_>) -> bool| {
            let meant: Vec<&Cell<'_>> = cells.iter().filter(|cell| is_meant(cell)).collect();
            let reached = meant.iter().filter(|cell| has(cell)).count();
            let numbers = [
                ("cells that reach it", reached as f64, 0),
                ("of", meant.len() as f64, 0),
            ];
            input.compare_numbers(id, "", reached == meant.len(), 0, &numbers)
        };
    let is_adversarial = |cell: &Cell<'_>| cell.group == section.adversarial;
    let reaches =
        |target: &'static str| move |cell: &Cell<'_>| !section.misses(cell).contains(&target);
    vec![
        count(
            "goal-never-below",
            &|cell| !is_adversarial(cell),
            &reaches("H"),
        ),
        count("goal-adversarial", &is_adversarial, &reaches("H")),
        count(
            "goal-utilization",
            &|cell| section.least_utilization(cell).is_some(),
            &reaches("U"),
        ),
        count(
            "goal-benefit",
            &|cell| section.least_benefit(cell).is_some(),
            &reaches("benefit"),
        ),
        count("goal-reordering", &|_| true, &|cell| cell.beyond == 0.0),
    ]
}

fn tables(section: &Section, cells: &[Cell<'_>]) -> Vec<Table> {
    let columns = [
        "cell",
        "all links, Mbit/s",
        "each alone, Mbit/s",
        "U",
        "H",
        "benefit",
        "most overtaken, KiB",
        "chunks beyond the bound",
        "misses",
    ];
    let row = |cell: &Cell<'_>| {
        let alone = cell.got.alone.iter().map(|it| format!("{it:.2}"));
        vec![
            cell.name(),
            format!("{:.2}", cell.got.all),
            alone.collect::<Vec<_>>().join(", "),
            format!("{:.3}", cell.utilization()),
            format!("{:.3}", cell.got.harm()),
            format!("{:.3}", cell.benefit()),
            format!("{:.0}", cell.overtaken / 1024.0),
            format!("{:.0}", cell.beyond),
            section.misses(cell).join(", "),
        ]
    };
    let table = |name: &str, title: &str, cells: Vec<&Cell<'_>>| Table {
        name: name.to_owned(),
        title: title.to_owned(),
        columns: columns.map(String::from).into(),
        rows: cells.into_iter().map(row).collect(),
    };
    let missing = cells.iter().filter(|cell| !section.misses(cell).is_empty());
    vec![
        table("misses", "Cells that miss a target", missing.collect()),
        table("cells", "All cells", cells.iter().collect()),
    ]
}

/// A quantity of a cell: the figure's name, its title, and the numbers at which its colours end.
type Quantity = (&'static str, &'static str, (f64, f64), fn(&Cell<'_>) -> f64);

const QUANTITIES: [Quantity; 3] = [
    (
        "u",
        "U, the share of the sum of the links, each alone",
        (0.85, 1.0),
        |cell| (cell.utilization() * 1e3).round() / 1e3,
    ),
    (
        "h",
        "H, relative to the best link alone",
        (0.9, 1.1),
        |cell| (cell.got.harm() * 1e3).round() / 1e3,
    ),
    (
        "overtaken",
        "the most that overtook a chunk, KiB",
        (8192.0, 0.0),
        |cell| (cell.overtaken / 1024.0).round(),
    ),
];

/// Draws a map of each group that has several rows and columns.
fn charts(cells: &[Cell<'_>]) -> Vec<NamedChart> {
    let mut groups: Vec<&str> = Vec::new();
    for cell in cells {
        if !groups.contains(&cell.group) {
            groups.push(cell.group);
        }
    }
    let mut charts = Vec::new();
    for group in groups {
        let cells: Vec<&Cell<'_>> = cells.iter().filter(|it| it.group == group).collect();
        let names = |of: fn(&Cell<'_>) -> String| {
            let mut names: Vec<String> = Vec::new();
            for name in cells.iter().map(|cell| of(cell)) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            names
        };
        let rows = names(|cell| cell.row.to_owned());
        let columns = names(|cell| cell.column.to_owned());
        if cells.len() < rows.len() * columns.len() {
            continue;
        }
        for (quantity, title, (worst, best), of) in QUANTITIES {
            let value = |row: &String, column: &String| {
                let cell = cells.iter().find(|it| it.row == row && it.column == column);
                cell.map(|cell| of(cell))
            };
            let line = |row| columns.iter().map(|column| value(row, column)).collect();
            let heat = HeatMap {
                values: rows.iter().map(line).collect(),
                rows: rows.clone(),
                columns: columns.clone(),
                worst,
                best,
            };
            charts.push(NamedChart {
                name: format!("{}-{quantity}", group.replace(' ', "-").to_lowercase()),
                chart: LineChart {
                    title: format!("{group}: {title}"),
                    heat: Some(heat),
                    ..LineChart::default()
                },
            });
        }
    }
    charts
}
