//! The grid: cells of unequal links, faults and traces. Each runs with all links and with each of them
//! alone, on the same back end with the same seed.
//!
//! With C the goodput of each link alone and G that of all: U = G / sum of C, H = G / greatest C, and the
//! benefit is the part of what the further links could add.
//!
//! In namespaces the scenario also sweeps `system`: `whimbrel`, `mptcp-...` for each configuration of the
//! kernel's Multipath TCP, and `tcp-...` for each of its TCP, which runs over each link alone
//! ([`super::beside`]).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::jobs::run_kept;
use super::super::result::mean;
use super::super::trial::PlanRun;
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use super::beside::Beside;
use super::{MultihomingGoodputs, beside, without};
use crate::LabError;
use crate::figure::{HeatMap, LineChart};
use crate::scenario::Plan;
use crate::scenario::run::Run;

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
/// Bytes of a session and its probes, which cross a metered link that is not used.
const IDLE_BYTES: f64 = 65_536.0;
/// The system that is measured; all that there is if the scenario sweeps none.
const OWN: &str = "whimbrel";

/// A cell's place and results.
pub(super) struct Cell<'a> {
    pub(super) group: &'a str,
    row: &'a str,
    column: &'a str,
    pub(super) got: MultihomingGoodputs,
    /// Mbit/s of all links in each run.
    pub(super) runs: Vec<f64>,
    /// The most bytes that overtook a chunk, and the chunks beyond their bound.
    overtaken: f64,
    beyond: f64,
    /// Bytes over a metered link although another one works all the time.
    metered: Option<f64>,
    /// The kernel's Multipath TCP in the same cell.
    pub(super) beside: Option<Beside<'a>>,
}

impl Cell<'_> {
    /// U.
    fn utilization(&self) -> f64 {
        self.got.utilization()
    }

    fn benefit(&self) -> f64 {
        let got = &self.got;
        (got.all - got.best()) / (got.sum() - got.best())
    }

    pub(super) fn name(&self) -> String {
        format!("{}, {}, {}", self.group, self.row, self.column)
    }
}

/// The runs of one system in one cell, by the numbers of their plans.
pub(super) struct Numbers<'a> {
    pub(super) system: &'a str,
    all: Option<usize>,
    alone: Vec<usize>,
}

/// The runs of each plan.
pub(super) struct GridRuns {
    of_plans: Vec<Vec<Run>>,
    load: String,
}

impl GridRuns {
    fn values(&self, plan: usize, metric: &str) -> Vec<f64> {
        let metric = format!("{}.{metric}", self.load);
        let runs = self.of_plans[plan].iter();
        let values = runs.map(|run| run.values.get(&metric).copied().unwrap_or(0.0));
        values.collect()
    }

    fn goodput(&self, plan: usize) -> f64 {
        mean(self.values(plan, "goodput"))
    }

    /// Returns the Mbit/s of all links in each run; none for a system that only uses single ones.
    pub(super) fn of_all(&self, numbers: &Numbers<'_>) -> Vec<f64> {
        let all = numbers.all.map(|plan| self.values(plan, "goodput"));
        all.unwrap_or_default()
    }

    /// Returns the Mbit/s of each link alone.
    pub(super) fn of_each(&self, numbers: &Numbers<'_>) -> Vec<f64> {
        numbers
            .alone
            .iter()
            .map(|plan| self.goodput(*plan))
            .collect()
    }
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let section: Section = scenario.study()?;
    // Plans that several cells share (the fast link alone) run once.
    let mut plans: Vec<(String, Plan)> = Vec::new();
    // Of each cell its place, its plan, and its systems.
    let mut of_cells: Vec<(&str, &Plan, Vec<Numbers<'_>>)> = Vec::new();
    for setting in &scenario.settings {
        let expected = "cell, by names of the form GROUP/ROW/COLUMN";
        let name = input.swept(setting, "cell", expected)?;
        place(name).ok_or_else(|| input.bad(format!("'{name}' is no {expected}")))?;
        let system = setting.value("system").unwrap_or(OWN);
        let plan = &setting.plan;
        let numbers = numbers(&mut plans, &format!("{name}, {system}"), system, plan);
        match of_cells.last_mut() {
            Some((known, _, systems)) if *known == name => systems.push(numbers),
            _ => of_cells.push((name, plan, vec![numbers])),
        }
    }
    let mut trials = Vec::new();
    for (title, plan) in &plans {
        trials.extend((0..scenario.runs).map(|run| PlanRun {
            title: title.clone(),
            plan,
            seed: plan.seed.wrapping_add(u64::from(run)),
        }));
    }
    let found = run_kept(&trials, input, progress)?;
    let runs = GridRuns {
        of_plans: found
            .chunks(scenario.runs as usize)
            .map(<[Run]>::to_vec)
            .collect(),
        load: scenario.settings[0].plan.loads[0].name.clone(),
    };
    let mut cells = Vec::new();
    for (name, plan, systems) in &of_cells {
        let own = systems.iter().find(|it| it.system == OWN);
        let own = own.ok_or_else(|| input.bad(format!("'{name}' lacks the system '{OWN}'")))?;
        cells.extend(place(name).map(|at| Cell {
            beside: Beside::of(systems, &runs),
            ..cell(at, plan, own, &runs)
        }));
    }
    let mut compared = compared(input, &section, &cells);
    compared.extend(beside::compared(input, &cells));
    let mut tables = tables(&section, &cells);
    tables.extend(beside::table(&cells));
    input.result(
        scenario.text.clone(),
        compared,
        tables,
        charts(&cells),
        Vec::new(),
    )
}

/// Adds the plans of a system in a cell, those that are not there yet.
fn numbers<'a>(
    plans: &mut Vec<(String, Plan)>,
    title: &str,
    system: &'a str,
    plan: &Plan,
) -> Numbers<'a> {
    let mut number_of = |title: String, plan: Plan| {
        let known = plans.iter().position(|(_, it)| *it == plan);
        known.unwrap_or_else(|| {
            plans.push((title, plan));
            plans.len() - 1
        })
    };
    let is_single = system.starts_with("tcp-");
    let all = (!is_single).then(|| number_of(title.to_owned(), plan.clone()));
    let alone = match system.starts_with("mptcp-") {
        true => Vec::new(),
        false => alone(plan),
    };
    let alone = (1..).zip(alone);
    let alone = alone.map(|(at, plan)| number_of(format!("{title}, link {at} alone"), plan));
    Numbers {
        system,
        all,
        alone: alone.collect(),
    }
}

fn place(name: &str) -> Option<(&str, &str, &str)> {
    let mut parts = name.splitn(3, '/');
    Some((parts.next()?, parts.next()?, parts.next()?))
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
    own: &Numbers<'_>,
    runs: &GridRuns,
) -> Cell<'a> {
    let all = own.all.unwrap_or_default();
    // The greatest of all nodes that have this number, in any run.
    let of_nodes = |metric: &str| {
        let values = runs.of_plans[all].iter().flat_map(|run| &run.values);
        let nodes = values.filter(|(name, _)| {
            name.starts_with("nodes.") && name.rsplit('.').next() == Some(metric)
        });
        nodes.map(|(_, value)| *value).fold(0.0, f64::max)
    };
    Cell {
        group,
        row,
        column,
        got: MultihomingGoodputs {
            all: runs.goodput(all),
            alone: runs.of_each(own),
            bytes: mean(runs.values(all, "bytes")),
        },
        runs: runs.of_all(own),
        overtaken: of_nodes("overtaken"),
        beyond: of_nodes("beyond"),
        metered: metered(plan).map(|link| {
            let bytes = format!("links.{link}.bytes");
            let values = runs.of_plans[all]
                .iter()
                .filter_map(|run| run.values.get(&bytes));
            values.copied().fold(0.0, f64::max)
        }),
        beside: None,
    }
}

/// Returns the metered link that a host has no reason to use: another one has no outage.
fn metered(plan: &Plan) -> Option<&str> {
    let links = &plan.network.links;
    let is_steady = |spec: &whimbrel_sim::link::LinkSpec| spec.outages.is_empty();
    let receiver = plan.loads[0].to[0];
    let mut of_receiver = plan.network.at(receiver).map(|(link, _)| &links[link]);
    let metered = links.iter().find(|link| link.metered)?;
    of_receiver
        .any(|link| !link.metered && is_steady(&link.forward) && is_steady(&link.backward))
        .then_some(metered.name.as_str())
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
                "metered",
                cell.metered.is_some_and(|bytes| bytes > IDLE_BYTES),
            ),
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
            let all = reached == meant.len();
            // A back end may have no such cells.
            (!meant.is_empty()).then(|| input.compare_numbers(id, "", all, 0, &numbers))
        };
    let is_adversarial = |cell: &Cell<'_>| cell.group == section.adversarial;
    let reaches =
        |target: &'static str| move |cell: &Cell<'_>| !section.misses(cell).contains(&target);
    let counted = [
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
        count(
            "goal-metered",
            &|cell| cell.metered.is_some(),
            &reaches("metered"),
        ),
    ];
    counted.into_iter().flatten().collect()
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
type Quantity = (
    &'static str,
    &'static str,
    (f64, f64),
    fn(&Cell<'_>) -> Option<f64>,
);

fn rounded(value: f64) -> Option<f64> {
    Some((value * 1e3).round() / 1e3)
}

const QUANTITIES: [Quantity; 5] = [
    (
        "u",
        "U, the share of the sum of the links, each alone",
        (0.85, 1.0),
        |cell| rounded(cell.utilization()),
    ),
    (
        "h",
        "H, relative to the best link alone",
        (0.9, 1.1),
        |cell| rounded(cell.got.harm()),
    ),
    (
        "overtaken",
        "the most that overtook a chunk, KiB",
        (8192.0, 0.0),
        |cell| Some((cell.overtaken / 1024.0).round()),
    ),
    (
        "mptcp-u",
        "U of the best Multipath TCP, of what TCP gets of each link alone",
        (0.85, 1.0),
        |cell| rounded(cell.beside.as_ref()?.got.utilization()),
    ),
    (
        "mptcp",
        "Whimbrel relative to the best Multipath TCP",
        (0.8, 1.2),
        |cell| rounded(cell.got.all / cell.beside.as_ref()?.got.all),
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
            if cells.iter().all(|cell| of(cell).is_none()) {
                continue;
            }
            let value = |row: &String, column: &String| {
                let cell = cells.iter().find(|it| it.row == row && it.column == column);
                cell.and_then(|cell| of(cell))
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
