//! Section VI: sites with wide-area delays between them, and clients with a link of each of two kinds. All
//! clients use both their links in one run, and those of one kind alone in two others.
//!
//! The section `[study]` names the two kinds by the beginnings of their links' names, and groups clients by
//! the beginning of the last part of their names.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::jobs::run_kept;
use super::super::result::mean;
use super::super::trial::PlanRun;
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use super::{MultihomingGoodputs, without};
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::Plan;
use crate::scenario::run::Run;

/// The section `[study]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// The links of each kind begin with its name and a hyphen.
    kinds: Vec<String>,
    /// Of each group of clients the beginning of the last part of their names, and its title.
    groups: BTreeMap<String, String>,
}

/// A client and what it got by both links, and by each kind alone.
struct Client<'a> {
    name: &'a str,
    /// The site that it fetched from.
    from: &'a str,
    group: &'a str,
    got: MultihomingGoodputs,
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let section: Section = scenario.study()?;
    let [setting] = scenario.settings.as_slice() else {
        return Err(input.bad(String::from("this study sweeps nothing")));
    };
    let plan = &setting.plan;
    let mut plans = vec![(String::from("both links"), plan.clone())];
    for kind in &section.kinds {
        plans.push((format!("{kind} alone"), only(plan, kind, &section)));
    }
    let jobs: Vec<PlanRun<'_>> = plans
        .iter()
        .map(|(title, plan)| PlanRun {
            title: title.clone(),
            plan,
            seed: plan.seed,
        })
        .collect();
    let runs = run_kept(&jobs, input, progress)?;
    let clients = clients(input, plan, &section, &runs)?;
    let groups: Vec<(&str, Vec<&Client<'_>>)> = section
        .groups
        .values()
        .map(|group| {
            let of_group = clients.iter().filter(|it| it.group == group);
            (group.as_str(), of_group.collect())
        })
        .collect();
    input.result(
        scenario.text.clone(),
        compared(input, &groups)?,
        vec![summary(&section, &groups), table(&section, &clients)],
        groups.iter().map(chart).collect(),
        Vec::new(),
    )
}

/// Returns the plan in which all clients have their links of one kind only.
fn only(plan: &Plan, kind: &str, section: &Section) -> Plan {
    let network = &plan.network;
    let is_of = |link: &str, kind: &str| {
        let rest = link.strip_prefix(kind);
        rest.is_some_and(|rest| rest.starts_with('-'))
    };
    let others: Vec<&String> = section.kinds.iter().filter(|it| *it != kind).collect();
    let receivers: Vec<usize> = plan
        .loads
        .iter()
        .flat_map(|load| load.to.iter().copied())
        .collect();
    let mut cut = Vec::new();
    for (number, link) in network.links.iter().enumerate() {
        let ends = [link.ends.0, link.ends.1];
        let client = ends.into_iter().find(|end| receivers.contains(end));
        if let Some(client) = client
            && others.iter().any(|other| is_of(&link.name, other))
        {
            cut.push((number, client));
        }
    }
    without(plan, &cut)
}

fn clients<'a>(
    input: &StudyInput<'_>,
    plan: &'a Plan,
    section: &'a Section,
    runs: &[Run],
) -> Result<Vec<Client<'a>>, LabError> {
    let mut clients = Vec::new();
    for load in &plan.loads {
        for to in &load.to {
            let name = &plan.network.nodes[*to].name;
            let last = name.rsplit('-').next().unwrap_or_default();
            let mut groups = section.groups.iter();
            let (_, group) = groups
                .find(|(begins, _)| last.starts_with(begins.as_str()))
                .ok_or_else(|| input.bad(format!("[study] groups has none for '{name}'")))?;
            let value = |run: &Run, metric: &str| {
                let whole = format!("{}.{name}.{metric}", load.name);
                let value = run.values.get(&whole);
                let alone = || run.values.get(&format!("{}.{metric}", load.name));
                value.or_else(alone).copied().unwrap_or(0.0)
            };
            clients.push(Client {
                name,
                from: &load.name,
                group,
                got: MultihomingGoodputs {
                    all: value(&runs[0], "goodput"),
                    alone: runs[1..].iter().map(|run| value(run, "goodput")).collect(),
                    bytes: value(&runs[0], "bytes"),
                },
            });
        }
    }
    clients.sort_by(|a, b| a.got.sum().total_cmp(&b.got.sum()));
    Ok(clients)
}

fn total(clients: &[&Client<'_>], of: impl Fn(&Client<'_>) -> f64) -> f64 {
    clients.iter().map(|client| of(client)).sum()
}

fn compared(
    input: &StudyInput<'_>,
    groups: &[(&str, Vec<&Client<'_>>)],
) -> Result<Vec<Comparison>, LabError> {
    let mut compared = Vec::new();
    for (group, clients) in groups {
        let reached = clients.iter().filter(|it| it.got.is_never_below()).count();
        let numbers = [
            ("clients that reach it", reached as f64, 0),
            ("of", clients.len() as f64, 0),
        ];
        let agrees = reached == clients.len();
        compared.push(input.compare_numbers("goal-never-below", group, agrees, 0, &numbers));
    }
    for (group, clients) in groups {
        let share = 100.0 * total(clients, |it| it.got.all) / total(clients, |it| it.got.sum());
        let agrees = input.range("goal-sum")?.admits(share);
        let numbers = [("of the sum, %", share, 1)];
        compared.push(input.compare_numbers("goal-sum", group, agrees, 0, &numbers));
    }
    Ok(compared)
}

fn summary(section: &Section, groups: &[(&str, Vec<&Client<'_>>)]) -> Table {
    let mut columns = vec![String::from("clients"), String::from("number")];
    columns.extend(section.kinds.iter().map(|it| format!("{it} alone, Mbit/s")));
    let rest = [
        "both, Mbit/s",
        "of the best alone, %",
        "of the sum, %",
        "least client's share of its sum, %",
        "least client's share of its best, %",
    ];
    columns.extend(rest.map(String::from));
    let row = |(group, clients): &(&str, Vec<&Client<'_>>)| {
        let average = |of: &dyn Fn(&Client<'_>) -> f64| mean(clients.iter().map(|it| of(it)));
        let least = |of: &dyn Fn(&Client<'_>) -> f64| {
            let all = clients.iter().map(|it| 100.0 * it.got.all / of(it));
            format!("{:.1}", all.fold(f64::INFINITY, f64::min))
        };
        let both = average(&|it| it.got.all);
        let share = |whole: f64| format!("{:.1}", 100.0 * both / whole);
        let mut row = vec![(*group).to_owned(), clients.len().to_string()];
        let kinds = 0..section.kinds.len();
        row.extend(kinds.map(|kind| format!("{:.2}", average(&|it| it.got.alone[kind]))));
        row.extend([
            format!("{both:.2}"),
            share(average(&|it| it.got.best())),
            share(average(&|it| it.got.sum())),
            least(&|it| it.got.sum()),
            least(&|it| it.got.best()),
        ]);
        row
    };
    Table {
        name: String::from("groups"),
        title: String::from("Goodput, the mean of the clients of each kind"),
        columns,
        rows: groups.iter().map(row).collect(),
    }
}

fn table(section: &Section, clients: &[Client<'_>]) -> Table {
    let mut columns = vec![String::from("client"), String::from("from")];
    columns.extend(section.kinds.iter().map(|it| format!("{it} alone, Mbit/s")));
    columns.extend(["both, Mbit/s", "of the best, %", "of the sum, %"].map(String::from));
    let row = |client: &Client<'_>| {
        let mut row = vec![client.name.to_owned(), client.from.to_owned()];
        row.extend(client.got.alone.iter().map(|it| format!("{it:.2}")));
        row.extend([
            format!("{:.2}", client.got.all),
            format!("{:.1}", 100.0 * client.got.all / client.got.best()),
            format!("{:.1}", 100.0 * client.got.all / client.got.sum()),
        ]);
        row
    };
    Table {
        name: String::from("clients"),
        title: String::from("Every client, by the sum of its links"),
        columns,
        rows: clients.iter().map(row).collect(),
    }
}

fn chart((group, clients): &(&str, Vec<&Client<'_>>)) -> NamedChart {
    let series = |label: &str, of: &dyn Fn(&Client<'_>) -> f64| Series {
        label: label.to_owned(),
        points: (1..)
            .map(f64::from)
            .zip(clients.iter().map(|it| of(it)))
            .collect(),
        ..Series::default()
    };
    NamedChart {
        name: group.replace(' ', "-").to_lowercase(),
        chart: LineChart {
            title: format!("{group}: goodput of each client"),
            x_label: String::from("client, by the sum of its links"),
            y_label: String::from("goodput, Mbit/s"),
            series: vec![
                series("sum of the links, each alone", &|it| it.got.sum()),
                series("both links", &|it| it.got.all),
                series("best link alone", &|it| it.got.best()),
            ],
            ..LineChart::default()
        },
    }
}
