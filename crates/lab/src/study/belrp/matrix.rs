//! All runs of a study by step and variant, and tables that show the paper's numbers beside ours.

use std::rc::Rc;

use whimbrel_sim::link::Loss;

use super::super::jobs::{Job, run_all};
use super::super::statistics::Spread;
use super::super::{Comparison, NamedChart, Point, Progress, StudyInput, Table};
use super::Variant;
use super::losses::is_watched;
use super::network::{Look, Outcome};
use super::reading::{Reading, Runs};
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::load::Kind;
use crate::scenario::statement::Tolerance;
use crate::scenario::{Plan, Scenario};

/// A run of a study.
struct Trial<'a> {
    title: String,
    plan: &'a Plan,
    look: Look,
}

impl Job for Trial<'_> {
    type Found = Outcome;

    fn title(&self) -> &str {
        &self.title
    }

    fn run(&self, _input: &StudyInput<'_>) -> Result<Outcome, LabError> {
        let failed = |reason: &dyn std::fmt::Display| LabError::TransferFailed {
            transfer: self.title.clone(),
            reason: reason.to_string(),
        };
        let outcome = super::network::run(self.plan, self.look).map_err(|fault| failed(&fault))?;
        if !outcome.complete {
            let limit = self.plan.limit.as_secs();
            return Err(failed(&format!(
                "a consumer lacked Data after {limit} s of virtual time"
            )));
        }
        Ok(outcome)
    }
}

/// The variable of a study.
#[derive(Clone)]
pub(super) struct Step {
    /// The value on the x axis.
    pub(super) x: f64,
    /// Its text in tables.
    pub(super) label: String,
    /// The loss of each direction of each link, in per cent.
    pub(super) loss_percent: f64,
}

/// All runs under one reading of the paper.
pub(super) struct Matrix {
    /// The quantity of `x`, with its unit.
    pub(super) axis: String,
    pub(super) steps: Vec<Step>,
    pub(super) variants: Vec<Variant>,
    /// By step, then variant; each cell has all runs.
    pub(super) cells: Vec<Rc<[Outcome]>>,
}

/// A quantity of a run.
pub(super) struct Quantity<'a> {
    /// Its name in `paper.toml` and in file names.
    pub(super) id: &'a str,
    /// Its title for people, with its unit.
    pub(super) title: &'a str,
    /// Digits after the point.
    pub(super) digits: usize,
    pub(super) of: &'a dyn Fn(&Outcome) -> f64,
}

impl Matrix {
    /// Runs every setting of a scenario. It has two sweeps: that of the x axis, and then
    /// `recovery`, whose labels are the keys of variants, followed by `-READING` where a reading
    /// has runs of its own.
    pub(super) fn run<'r>(
        axis: &str,
        scenario: &Scenario,
        readings: &'r [Reading],
        delays_kept: bool,
        input: &StudyInput<'_>,
        progress: Progress<'_>,
    ) -> Result<Runs<'r>, LabError> {
        let Sweeps { steps, columns } =
            sweeps(scenario, readings).map_err(|reason| input.bad(reason))?;
        let runs = scenario.runs;
        let each = steps
            .iter()
            .flat_map(|step| columns.iter().map(move |column| (step, column)));
        let mut trials = Vec::new();
        for ((step, column), setting) in each.zip(&scenario.settings) {
            let reading = column.reading.map_or(String::new(), |reading| {
                format!(" ({})", readings[reading].name)
            });
            trials.extend((0..runs).map(|run| Trial {
                title: format!(
                    "{} {}, {}{reading}, run {}",
                    step.label,
                    axis,
                    column.variant.title(),
                    run + 1
                ),
                plan: &setting.plan,
                look: Look {
                    seed: setting.plan.seed.wrapping_add(u64::from(run)),
                    hashed: run == 0,
                    delays_kept,
                },
            }));
        }
        let mut outcomes = run_all(&trials, input, progress)?.into_iter();
        let each = steps.len() * columns.len();
        let cells = (0..each).map(|_| outcomes.by_ref().take(runs as usize).collect());
        let cells: Vec<Rc<[Outcome]>> = cells.collect();
        let matrix = |reading: Option<usize>| {
            let text = columns.iter().filter(|column| column.reading.is_none());
            let variants: Vec<Variant> = text.map(|column| column.variant).collect();
            let column_of = |variant: Variant| {
                let at = |reading| {
                    let column = Column { variant, reading };
                    columns.iter().position(|known| *known == column)
                };
                at(reading).or_else(|| at(None)).unwrap_or_default()
            };
            let mut taken = Vec::new();
            for step in 0..steps.len() {
                taken.extend(variants.iter().map(|variant| {
                    let cell = &cells[step * columns.len() + column_of(*variant)];
                    reading.map_or_else(
                        || cell.clone(),
                        |reading| readings[reading].read(*variant, cell),
                    )
                }));
            }
            Matrix {
                axis: axis.to_owned(),
                steps: steps.clone(),
                variants,
                cells: taken,
            }
        };
        let others = readings.iter().enumerate();
        let others = others.map(|(index, reading)| (reading, matrix(Some(index))));
        Ok(Runs {
            text: matrix(None),
            readings: others.collect(),
        })
    }

    /// Returns the runs of a variant at a step.
    pub(super) fn cell(&self, step: usize, variant: Variant) -> &[Outcome] {
        let at = self.variants.iter().position(|known| *known == variant);
        at.and_then(|at| self.cells.get(step * self.variants.len() + at))
            .map_or(&[], |runs| runs)
    }

    pub(super) fn spread(
        &self,
        step: usize,
        variant: Variant,
        of: &dyn Fn(&Outcome) -> f64,
    ) -> Spread {
        let values: Vec<f64> = self
            .cell(step, variant)
            .iter()
            .map(of)
            .filter(|v| v.is_finite())
            .collect();
        Spread::of(&values)
    }

    /// Returns every step with every variant that `which` selects.
    pub(super) fn each(&self, which: impl Fn(Variant) -> bool) -> Vec<(usize, &Step, Variant)> {
        let mut each = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let picked = self
                .variants
                .iter()
                .copied()
                .filter(|variant| which(*variant));
            each.extend(picked.map(|variant| (index, step, variant)));
        }
        each
    }

    /// Returns a table of the quantity in every cell, beside the paper's if it has one.
    pub(super) fn table(
        &self,
        input: &StudyInput<'_>,
        quantity: &Quantity<'_>,
        which: impl Fn(Variant) -> bool,
    ) -> Table {
        let Quantity {
            id,
            title,
            digits,
            of,
        } = *quantity;
        let columns = [
            self.axis.as_str(),
            "recovery on links",
            "paper",
            "ours",
            "± (90 %)",
            "difference",
            "of the paper's",
        ];
        let number = |value: f64| {
            if value.is_finite() {
                format!("{value:.digits$}")
            } else {
                "-".to_owned()
            }
        };
        let row = |(index, step, variant): (usize, &Step, Variant)| {
            let ours = self.spread(index, variant, of);
            let paper = input.published(id, variant.key(), step.x);
            let shown = |value: Option<String>| value.unwrap_or_else(|| String::from("-"));
            vec![
                step.label.clone(),
                variant.title().to_owned(),
                shown(paper.map(number)),
                number(ours.mean),
                number(ours.half),
                shown(paper.map(|paper| number(ours.mean - paper))),
                shown(
                    paper
                        .filter(|paper| *paper != 0.0)
                        .map(|paper| format!("{:+.1} %", 100.0 * (ours.mean - paper) / paper)),
                ),
            ]
        };
        let source = input.published_in(id);
        Table {
            name: id.to_owned(),
            title: if source.is_empty() {
                title.to_owned()
            } else {
                format!("{title}; paper: {source}")
            },
            columns: columns.map(String::from).into(),
            rows: self.each(which).into_iter().map(row).collect(),
        }
    }

    /// Returns a value a little below the lowest error bar, at which a chart can begin.
    pub(super) fn floor(
        &self,
        of: &dyn Fn(&Outcome) -> f64,
        which: impl Fn(Variant) -> bool,
    ) -> f64 {
        let spreads = self
            .each(which)
            .into_iter()
            .map(|(index, _, variant)| self.spread(index, variant, of));
        let known = spreads.filter(|spread| spread.mean.is_finite());
        let (low, high) = known.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), spread| {
            (
                low.min(spread.mean - spread.half),
                high.max(spread.mean + spread.half),
            )
        });
        if low < high {
            (low - (high - low) * 0.1).max(0.0)
        } else {
            0.0
        }
    }

    /// Returns a chart of the quantity over the steps, with a line for each variant that `which`
    /// selects, and the paper's points of it.
    pub(super) fn chart(
        &self,
        input: &StudyInput<'_>,
        title: &str,
        quantity: &Quantity<'_>,
        origin: (f64, f64),
        which: impl Fn(Variant) -> bool,
    ) -> NamedChart {
        let picked = self
            .variants
            .iter()
            .copied()
            .filter(|variant| which(*variant));
        let series = picked.map(|variant| {
            let spreads = (0..self.steps.len()).map(|step| self.spread(step, variant, quantity.of));
            let spreads: Vec<Spread> = spreads.collect();
            Series {
                label: variant.title().to_owned(),
                points: self
                    .steps
                    .iter()
                    .zip(&spreads)
                    .map(|(step, spread)| (step.x, spread.mean))
                    .collect(),
                paper: self
                    .steps
                    .iter()
                    .filter_map(|step| {
                        let paper = input.published(quantity.id, variant.key(), step.x)?;
                        Some((step.x, paper))
                    })
                    .collect(),
                bars: spreads
                    .iter()
                    .map(|spread| (spread.mean - spread.half, spread.mean + spread.half))
                    .collect(),
                ..Series::default()
            }
        });
        let chart = LineChart {
            title: title.to_owned(),
            x_label: self.axis.clone(),
            y_label: quantity.title.to_owned(),
            series: series.collect(),
            shaded: Vec::new(),
            origin,
            ..LineChart::default()
        };
        NamedChart {
            name: quantity.id.to_owned(),
            chart,
        }
    }

    /// Compares our means with the paper's, for every variant with numbers in the paper. Each
    /// statement is about one quantity.
    pub(super) fn agreements(
        &self,
        input: &StudyInput<'_>,
        statements: &[(&str, &Quantity<'_>)],
    ) -> Result<Vec<Comparison>, LabError> {
        let mut comparisons = Vec::new();
        for (statement, quantity) in statements {
            let tolerance = input.tolerance(statement)?;
            for variant in &self.variants {
                comparisons.extend(self.agreement(input, statement, quantity, *variant, tolerance));
            }
        }
        Ok(comparisons)
    }

    fn agreement(
        &self,
        input: &StudyInput<'_>,
        statement: &str,
        quantity: &Quantity<'_>,
        variant: Variant,
        tolerance: Tolerance,
    ) -> Option<Comparison> {
        let digits = quantity.digits;
        let (mut parts, mut points) = (Vec::new(), Vec::new());
        let mut agrees = true;
        for (index, step) in self.steps.iter().enumerate() {
            let Some(paper) = input.published(quantity.id, variant.key(), step.x) else {
                continue;
            };
            let ours = self.spread(index, variant, quantity.of).mean;
            if !ours.is_finite() {
                continue;
            }
            agrees &= tolerance.admits(paper, ours);
            points.push(Point {
                at: step.label.clone(),
                paper: Some(paper),
                ours,
                digits,
            });
            parts.push(format!(
                "{}: {ours:.digits$} (paper {paper:.digits$})",
                step.label
            ));
        }
        (!parts.is_empty()).then(|| Comparison {
            points,
            ..input.compare(statement, variant.title(), parts.join("; "), agrees)
        })
    }

    /// Returns a table of the hash of each cell's first run: the same seed gives the same hash.
    pub(super) fn hashes(&self) -> Table {
        let rows = self
            .each(|_| true)
            .into_iter()
            .filter_map(|(index, step, variant)| {
                let hash = self.cell(index, variant).first()?.hash.clone()?;
                Some(vec![step.label.clone(), variant.title().to_owned(), hash])
            });
        Table {
            name: String::from("trace-hashes"),
            title: String::from("BLAKE3 over every frame of the first run of each kind"),
            columns: vec![self.axis.clone(), "recovery on links".into(), "hash".into()],
            rows: rows.collect(),
        }
    }

    /// Returns a table of the links' counters, and of the cost of recovery.
    pub(super) fn link_table(&self) -> Table {
        let columns = [
            self.axis.as_str(),
            "recovery on links",
            "MB on all wires",
            "frames sent",
            "header octets a frame",
            "frames without a packet",
            "acknowledgements a frame",
            "packets lost on links",
            "sent again by links",
            "of these in vain (sender)",
            "came twice (receiver)",
            "abandoned",
            "found lost after, ms",
            "dropped by full queues",
            "false timeouts of consumers, %",
        ];
        let row = |(index, step, variant): (usize, &Step, Variant)| {
            let mean = |of: &dyn Fn(&Outcome) -> f64| self.spread(index, variant, of).mean;
            let count =
                |of: fn(&whimbrel_link::ndnlp::LinkStats) -> u64| mean(&|run| run.sum(of) as f64);
            let frames = count(|link| link.frames_sent);
            let header = mean(&|run| {
                run.ends
                    .iter()
                    .map(|end| end.link.header_bytes() as f64)
                    .sum()
            });
            let detection = mean(&|run| detection(run.ends.iter().map(|end| &end.link)));
            vec![
                step.label.clone(),
                variant.title().to_owned(),
                format!("{:.3}", mean(&|run| run.wire_bytes() as f64 / 1e6)),
                format!("{frames:.0}"),
                format!("{:.2}", header / frames),
                format!("{:.0}", count(|link| link.ack_frames)),
                format!(
                    "{:.2}",
                    count(|link| link.acks_carried + link.acks_alone) / frames
                ),
                format!("{:.1}", mean(&|run| run.losses.packets as f64)),
                format!("{:.1}", count(|link| link.retransmissions)),
                format!("{:.2}", count(|link| link.spurious)),
                format!("{:.2}", count(|link| link.duplicates)),
                format!("{:.2}", count(|link| link.given_up)),
                format!("{detection:.2}"),
                format!("{:.2}", count(|link| link.drops.queue_full)),
                format!("{:.1}", mean(&Outcome::spurious_percent)),
            ]
        };
        Table {
            name: String::from("links"),
            title: String::from("What links and consumers did, means of all runs"),
            columns: columns.map(String::from).into(),
            rows: self.each(|_| true).into_iter().map(row).collect(),
        }
    }
}

/// The runs with one label of the sweep `recovery`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Column {
    variant: Variant,
    /// The reading that they belong to.
    reading: Option<usize>,
}

impl Column {
    /// Parses `VARIANT` or `VARIANT-READING`.
    fn of(label: &str, readings: &[Reading]) -> Option<Column> {
        let column = |variant, reading| Column { variant, reading };
        Variant::ALL.into_iter().find_map(|variant| {
            let rest = label.strip_prefix(variant.key())?;
            if rest.is_empty() {
                return Some(column(variant, None));
            }
            let name = rest.strip_prefix('-')?;
            let reading = readings.iter().position(|known| known.name == name)?;
            Some(column(variant, Some(reading)))
        })
    }
}

struct Sweeps {
    steps: Vec<Step>,
    columns: Vec<Column>,
}

/// Returns the steps and columns of a scenario's sweeps.
fn sweeps(scenario: &Scenario, readings: &[Reading]) -> Result<Sweeps, String> {
    let (mut steps, mut columns) = (Vec::<Step>::new(), Vec::new());
    for setting in &scenario.settings {
        let [(_, step), (key, label)] = setting.values.as_slice() else {
            return Err(String::from(
                "this study sweeps one key, and then recovery = { paper-3 = { ... }, ... }",
            ));
        };
        let column = Column::of(label, readings);
        let Some(column) = column.filter(|_| key == "recovery") else {
            let keys = Variant::ALL.map(Variant::key).join(", ");
            return Err(format!(
                "sweep.{key}.{label}: the second sweep is recovery, whose sets this study knows as {keys}, \
                 with the name of a reading behind it (paper-3-NAME) if [[study.readings]] has that reading"
            ));
        };
        if !columns.contains(&column) {
            columns.push(column);
        }
        if steps.iter().all(|known| known.label != *step) {
            let x = step.split(' ').next().unwrap_or_default().parse();
            steps.push(Step {
                x: x.map_err(|_| format!("sweep: '{step}' does not begin with a number"))?,
                label: step.clone(),
                loss_percent: loss_percent(&setting.plan),
            });
        }
        for load in &setting.plan.loads {
            let is_asked = matches!(load.kind, Kind::Requests(_)) && load.to.len() == 1;
            if !is_asked || !is_watched(&load.name) {
                return Err(format!(
                    "loads.{}: this study follows loads of Interests with one receiver each, named prefix-a to prefix-z",
                    load.name
                ));
            }
        }
    }
    for column in &columns {
        let text = Column {
            reading: None,
            ..*column
        };
        if !columns.contains(&text) {
            let key = column.variant.key();
            return Err(format!(
                "sweep.recovery.{key}: missing, while a reading has runs of it"
            ));
        }
    }
    Ok(Sweeps { steps, columns })
}

/// Returns the loss of the first link: all are alike.
fn loss_percent(plan: &Plan) -> f64 {
    match plan.network.links.first().map(|link| &link.forward.loss) {
        Some(Loss::Independent(probability)) => 100.0 * probability,
        _ => 0.0,
    }
}

/// Iterates over the times from a frame's transmission to the detection of its loss, in ms; `NaN`
/// if none was lost.
pub(super) fn detection<'a>(
    links: impl Iterator<Item = &'a whimbrel_link::ndnlp::LinkStats>,
) -> f64 {
    let (total, count) = links.fold((0.0, 0u64), |(total, count), link| {
        (
            total + link.detection.total.as_secs_f64() * 1e3,
            count + link.detection.count,
        )
    });
    total / count as f64
}
