//! Fig. 5: the goodput of each link alone, of both by the kernel's Multipath TCP, and of both as the
//! router divides them.
//!
//! A system is named by the scenario's sweep `system`: `whimbrel` over both links, `whimbrel-LINK` over
//! one; `mptcp-...` and `tcp-LINK-...` for each configuration of the kernel; other names are further
//! schedulers of the router.

use super::super::result::mean;
use super::super::statistics::Spread;
use super::super::trial::run_settings;
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::Setting;
use crate::scenario::run::Run;

/// All runs of a system.
struct System<'a> {
    name: &'a str,
    /// Mbit/s of each run.
    goodputs: Vec<f64>,
    /// Seconds of the longest stall of each run.
    stalls: Vec<f64>,
}

impl System<'_> {
    fn spread(&self) -> Spread {
        Spread::of(&self.goodputs)
    }

    fn mean(&self) -> f64 {
        mean(self.goodputs.iter().copied())
    }

    /// Returns the link that it uses alone.
    fn link(&self) -> Option<&str> {
        let rest = ["whimbrel-", "tcp-"]
            .iter()
            .find_map(|family| self.name.strip_prefix(family))?;
        rest.split('-').next()
    }

    fn is_of_kernel(&self) -> bool {
        self.name.starts_with("tcp-") || self.name.starts_with("mptcp-")
    }
}

/// Returns the name of a system for people.
pub(super) fn title(name: &str) -> String {
    match name {
        "whimbrel" => String::from("Whimbrel, both links"),
        "paper" => String::from("the prototype's scheduler"),
        "round-robin" => String::from("round-robin"),
        other => match other.split_once('-') {
            Some(("whimbrel", link)) => format!("Whimbrel, {link} alone"),
            Some(("tcp", rest)) => format!("TCP, {}", rest.replacen('-', " alone, ", 1)),
            Some(("mptcp", rest)) => format!("Multipath TCP, {}", rest.replacen('-', ", ", 1)),
            _ => other.to_owned(),
        },
    }
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let expected = "system (whimbrel, ...), by this name";
    let names = scenario.settings.iter();
    let names = names.map(|setting| input.swept(setting, "system", expected));
    let names: Vec<&str> = names.collect::<Result<_, _>>()?;
    let name = |setting: &Setting| title(setting.value("system").unwrap_or_default());
    let runs = run_settings(&scenario, input, progress, name)?;
    let systems = names.into_iter().zip(&runs);
    let systems: Vec<System<'_>> = systems.map(|(name, runs)| system(name, runs)).collect();
    let systems = Systems(systems);
    let divided = systems.find("whimbrel").ok_or_else(|| {
        input.bad("the sweep 'system' lacks 'whimbrel', both links divided".to_owned())
    })?;
    let comparisons = compared(input, &systems, divided)?;
    input.result(
        scenario.text.clone(),
        comparisons,
        vec![table(&systems)],
        vec![chart(&systems)],
        Vec::new(),
    )
}

fn system<'a>(name: &'a str, runs: &[Run]) -> System<'a> {
    let records = || runs.iter().filter_map(|run| run.transfers.first());
    System {
        name,
        goodputs: records().map(|it| it.record.goodput() / 1e6).collect(),
        stalls: records().map(|it| it.record.longest_stall).collect(),
    }
}

struct Systems<'a>(Vec<System<'a>>);

impl<'a> Systems<'a> {
    fn find(&self, name: &str) -> Option<&System<'a>> {
        self.0.iter().find(|system| system.name == name)
    }

    /// Returns the best system of a family over each link alone, in the order of the links.
    fn alone(&self, family: &str) -> Vec<&System<'a>> {
        let of_family = || {
            let all = self.0.iter();
            all.filter(|it| it.name.starts_with(family) && it.link().is_some())
        };
        let mut links: Vec<&str> = Vec::new();
        for link in of_family().filter_map(System::link) {
            if !links.contains(&link) {
                links.push(link);
            }
        }
        let best = |link| {
            let of_link = of_family().filter(move |it| it.link() == Some(link));
            of_link.max_by(|a, b| a.mean().total_cmp(&b.mean()))
        };
        links.into_iter().filter_map(best).collect()
    }

    /// Returns the best configuration of Multipath TCP.
    fn rival(&self) -> Option<&System<'a>> {
        let all = self.0.iter();
        let rivals = all.filter(|it| it.name.starts_with("mptcp-"));
        rivals.max_by(|a, b| a.mean().total_cmp(&b.mean()))
    }

    /// Returns the sum of a system's own links, each alone, and the best of them.
    fn own_links(&self, system: &System<'_>) -> (f64, f64) {
        let family = if system.is_of_kernel() {
            "tcp-"
        } else {
            "whimbrel-"
        };
        let alone = self.alone(family);
        let alone = alone.iter().map(|it| it.mean());
        (alone.clone().sum(), alone.fold(0.0, f64::max))
    }
}

fn compared(
    input: &StudyInput<'_>,
    systems: &Systems<'_>,
    divided: &System<'_>,
) -> Result<Vec<Comparison>, LabError> {
    let mut compared = Vec::new();
    for family in ["whimbrel-", "tcp-"] {
        let alone = systems.alone(family);
        let numbers: Vec<(String, f64)> = alone
            .iter()
            .map(|it| (format!("{}, Mbit/s", title(it.name)), it.mean()))
            .collect();
        let numbers: Vec<_> = numbers
            .iter()
            .map(|(at, value)| (at.as_str(), *value, 2))
            .collect();
        let (most, least) = numbers
            .iter()
            .fold((0.0f64, f64::INFINITY), |(most, least), it| {
                (most.max(it.1), least.min(it.1))
            });
        if numbers.len() > 1 {
            let agrees = input.range("comparable")?.admits(most / least);
            let case = family.trim_end_matches('-');
            compared.push(input.compare_numbers("comparable", case, agrees, 0, &numbers));
        }
    }
    if let Some(rival) = systems.rival() {
        let (_, best) = systems.own_links(rival);
        let gain = rival.mean() / best;
        let agrees = input.range("mptcp-barely")?.admits(gain);
        let at = format!("{} / best link alone", title(rival.name));
        let numbers = [(at.as_str(), gain, 3)];
        compared.push(input.compare_numbers("mptcp-barely", "", agrees, 0, &numbers));
        // Runs of one number have one seed: the emulated links draw the same.
        let pairs = divided.goodputs.iter().zip(&rival.goodputs);
        let ahead: Vec<f64> = pairs.map(|(ours, theirs)| ours - theirs).collect();
        let ahead = Spread::of(&ahead);
        let numbers = [
            ("mean of the paired difference, Mbit/s", ahead.mean, 2),
            ("at least (95 %), Mbit/s", ahead.lower_bound(), 2),
        ];
        let agrees = ahead.lower_bound() > 0.0;
        compared.push(input.compare_numbers("ahead", "", agrees, 0, &numbers));
    }
    let (sum, best) = systems.own_links(divided);
    let share = 100.0 * divided.mean() / sum;
    let agrees = input.range("goal-sum")?.admits(share);
    let numbers = [("of the sum, %", share, 1)];
    compared.push(input.compare_numbers("goal-sum", "", agrees, 0, &numbers));
    let numbers = [("Whimbrel / best link alone", divided.mean() / best, 3)];
    let agrees = input.range("gain")?.admits(divided.mean() / best);
    compared.push(input.compare_numbers("gain", "", agrees, 0, &numbers));
    Ok(compared)
}

fn table(systems: &Systems<'_>) -> Table {
    let row = |system: &System<'_>| {
        let spread = system.spread();
        let (sum, best) = systems.own_links(system);
        let share = |whole: f64| match whole > 0.0 {
            true => format!("{:.1}", 100.0 * spread.mean / whole),
            false => String::new(),
        };
        vec![
            title(system.name),
            format!("{:.2}", spread.mean),
            format!("{:.2}", spread.lower_bound()),
            share(best),
            share(sum),
            format!("{:.3}", mean(system.stalls.iter().copied())),
            spread.count.to_string(),
        ]
    };
    let columns = [
        "system",
        "goodput, Mbit/s",
        "at least (95 %), Mbit/s",
        "of its best link alone, %",
        "of the sum of its links, %",
        "longest stall, s",
        "runs",
    ];
    Table {
        name: String::from("goodput"),
        title: String::from(
            "Goodput at the client, and its share of what the same system gets of each link alone",
        ),
        columns: columns.map(String::from).into(),
        rows: systems.0.iter().map(row).collect(),
    }
}

/// Draws the paper's bars: each link alone by the best configuration, the best Multipath TCP, and ours.
fn chart(systems: &Systems<'_>) -> NamedChart {
    let mut shown = systems.alone("whimbrel-");
    shown.extend(systems.alone("tcp-"));
    shown.extend(systems.rival());
    let others = systems.0.iter();
    shown.extend(others.filter(|it| it.link().is_none() && !it.is_of_kernel()));
    let points = (0..).map(f64::from).zip(&shown);
    NamedChart {
        name: String::from("fig5"),
        chart: LineChart {
            title: String::from("Fig. 5: downlink goodput at the client"),
            x_label: String::from("system"),
            y_label: String::from("goodput, Mbit/s"),
            series: vec![Series {
                label: String::from("ours"),
                points: points.map(|(at, it)| (at, it.mean())).collect(),
                ..Series::default()
            }],
            categories: shown.iter().map(|it| short(it.name)).collect(),
            ..LineChart::default()
        },
    }
}

/// Returns a name that fits below a bar.
fn short(name: &str) -> String {
    let mut parts = name.split('-');
    match (parts.next(), parts.next()) {
        (Some("mptcp"), _) => String::from("MPTCP"),
        (Some("tcp"), Some(link)) => format!("TCP {link}"),
        (Some("whimbrel"), Some(link)) => link.to_owned(),
        _ => name.to_owned(),
    }
}
