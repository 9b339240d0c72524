//! The runs on a line compared with the paper's figures and tables.

use super::super::super::statistics::{percentile, share_within};
use super::super::super::{Comparison, NamedChart, StudyInput, StudyResult, Table};
use super::super::Variant;
use super::super::goals;
use super::super::matrix::{Matrix, Quantity};
use super::super::network::Outcome;
use super::super::reading::Runs;
use super::Axis;
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::Scenario;

const RETRANSMISSIONS: Quantity<'_> = Quantity {
    id: "consumer-retransmissions",
    title: "retransmissions of the consumer",
    digits: 1,
    of: &|run| run.retransmissions() as f64,
};
const SPURIOUS: Quantity<'_> = Quantity {
    id: "spurious-retransmissions",
    title: "spurious retransmissions of the consumer, % of all",
    digits: 1,
    of: &Outcome::spurious_percent,
};
const RETRIEVAL: Quantity<'_> = Quantity {
    id: "retrieval-mean",
    title: "mean data retrieval time, % of the ideal",
    digits: 2,
    of: &|run| run.percent().mean(),
};
const GIVEN_UP: Quantity<'_> = Quantity {
    id: "packets-given-up",
    title: "Interests and Data that links lost and did not recover",
    digits: 2,
    of: &|run| run.sum(|link| link.given_up) as f64,
};
const RECOVERED: Quantity<'_> = Quantity {
    id: "recovered",
    title: "Interests and Data recovered by links, % of those lost",
    digits: 3,
    of: &Outcome::recovered_percent,
};
const TRAFFIC: Quantity<'_> = Quantity {
    id: "traffic",
    title: "octets on all wires, MB",
    digits: 3,
    of: &|run| run.wire_bytes() as f64 / 1e6,
};

pub(super) fn result(
    axis: Axis,
    distribution: Option<&str>,
    input: &StudyInput<'_>,
    scenario: &Scenario,
    runs: &Runs<'_>,
) -> Result<StudyResult, LabError> {
    let line = Line::of(axis, distribution, input, &runs.text);
    let (mut tables, mut charts) = (line.tables(), line.charts());
    let mut readings = Vec::new();
    for (reading, matrix) in &runs.readings {
        let read = Line::of(axis, distribution, input, matrix);
        readings.push(reading.result(input, read.comparisons()?));
        if reading.shown {
            tables.extend(reading.tables(read.tables()));
            charts.extend(reading.charts(read.charts()));
        }
    }
    let text = scenario.text.clone();
    let comparisons = line.comparisons()?;
    let result = input.result(text, comparisons, tables, charts, Vec::new())?;
    Ok(StudyResult { readings, ..result })
}

/// All runs on the line under one reading of the paper.
struct Line<'a> {
    axis: Axis,
    /// The step of Fig. 3.
    distribution: Option<usize>,
    input: &'a StudyInput<'a>,
    matrix: &'a Matrix,
    retrieval: Retrieval,
}

impl<'a> Line<'a> {
    fn of(
        axis: Axis,
        distribution: Option<&str>,
        input: &'a StudyInput<'_>,
        matrix: &'a Matrix,
    ) -> Line<'a> {
        let is_drawn = |at| matrix.steps.iter().position(|step| step.label == at);
        Line {
            axis,
            distribution: distribution.and_then(is_drawn),
            input,
            matrix,
            retrieval: Retrieval::of(matrix),
        }
    }

    fn comparisons(&self) -> Result<Vec<Comparison>, LabError> {
        let (input, matrix) = (self.input, self.matrix);
        let mut comparisons = matrix.agreements(
            input,
            &[
                ("retrieval", &RETRIEVAL),
                ("retransmissions", &RETRANSMISSIONS),
                ("spurious", &SPURIOUS),
                ("given-up", &GIVEN_UP),
            ],
        )?;
        comparisons.extend(trends(self.axis, input, matrix)?);
        if let Some(at) = self.distribution {
            let retrieval = &self.retrieval;
            comparisons.extend(distribution_statements(input, matrix, retrieval, at)?);
        }
        comparisons.extend(goals::verdicts(input, matrix));
        Ok(comparisons)
    }

    fn tables(&self) -> Vec<Table> {
        let (input, matrix) = (self.input, self.matrix);
        vec![
            matrix.table(input, &RETRANSMISSIONS, |_| true),
            matrix.table(input, &SPURIOUS, Variant::recovers),
            self.retrieval.table(input, matrix),
            matrix.table(input, &GIVEN_UP, Variant::recovers),
            matrix.table(input, &RECOVERED, Variant::recovers),
            matrix.table(input, &TRAFFIC, |_| true),
            matrix.link_table(),
            bounds(matrix),
            matrix.hashes(),
        ]
    }

    fn charts(&self) -> Vec<NamedChart> {
        let (input, matrix) = (self.input, self.matrix);
        charts(self.axis, self.distribution, input, matrix, &self.retrieval)
    }
}

fn charts(
    axis: Axis,
    distribution: Option<usize>,
    input: &StudyInput<'_>,
    matrix: &Matrix,
    retrieval: &Retrieval,
) -> Vec<NamedChart> {
    let (a, c) = match axis {
        Axis::Loss => ("Fig. 2 (a)", "Fig. 2 (c)"),
        Axis::Hops => ("Fig. 2 (b)", "Fig. 2 (d)"),
    };
    let recovered = (0.0, matrix.floor(RECOVERED.of, Variant::recovers));
    let traffic = (0.0, matrix.floor(TRAFFIC.of, |_| true));
    let mut charts = vec![
        matrix.chart(
            input,
            &format!("{a}: retransmissions of the consumer"),
            &RETRANSMISSIONS,
            (0.0, 0.0),
            |_| true,
        ),
        matrix.chart(
            input,
            &format!("{c}: spurious retransmissions"),
            &SPURIOUS,
            (0.0, 0.0),
            Variant::recovers,
        ),
        matrix.chart(
            input,
            "Data retrieval time",
            &RETRIEVAL,
            (0.0, 100.0),
            |_| true,
        ),
        matrix.chart(
            input,
            "Fig. 6 (a): losses recovered",
            &RECOVERED,
            recovered,
            Variant::recovers,
        ),
        matrix.chart(
            input,
            "Traffic of the whole network",
            &TRAFFIC,
            traffic,
            |_| true,
        ),
    ];
    let mut inset = matrix.chart(
        input,
        &format!("{a}, inset: with recovery on links"),
        &RETRANSMISSIONS,
        (0.0, 0.0),
        Variant::recovers,
    );
    inset.name = String::from("consumer-retransmissions-recovered");
    charts.insert(1, inset);
    if let Some(step) = distribution {
        charts.push(retrieval.distribution(matrix, step));
    }
    charts
}

/// Returns the paper's words about the course of its figures.
fn trends(
    axis: Axis,
    input: &StudyInput<'_>,
    matrix: &Matrix,
) -> Result<Vec<Comparison>, LabError> {
    let line = |variant: Variant, of: &dyn Fn(&Outcome) -> f64| line(matrix, variant, of);
    let said = |values: &[f64]| {
        let parts = values
            .iter()
            .zip(&matrix.steps)
            .map(|(value, step)| format!("{}: {value:.1}", step.label));
        parts.collect::<Vec<_>>().join("; ")
    };
    let mut comparisons = Vec::new();
    let falling = |values: &[f64]| values.windows(2).all(|pair| pair[1] <= pair[0]);
    let rising = |values: &[f64]| values.windows(2).all(|pair| pair[1] >= pair[0]);
    let many = || {
        [Variant::Paper3, Variant::Paper2]
            .into_iter()
            .filter(|known| matrix.variants.contains(known))
    };
    for variant in many() {
        let values = line(variant, RETRANSMISSIONS.of);
        // "goes down as the packet loss probability goes up": the paper's own numbers rise once,
        // from 0.5 % to 1 %.
        let from = if axis == Axis::Loss {
            1.min(values.len())
        } else {
            0
        };
        comparisons.push(input.compare(
            "falls",
            variant.title(),
            said(&values),
            falling(&values[from..]),
        ));
    }
    if matrix.variants.contains(&Variant::None) {
        let values = line(Variant::None, RETRANSMISSIONS.of);
        comparisons.push(input.compare(
            "rises",
            Variant::None.title(),
            said(&values),
            rising(&values),
        ));
    }
    let mostly = input.range("mostly-spurious")?;
    for variant in many() {
        let values = line(variant, SPURIOUS.of);
        let most = values.iter().all(|percent| mostly.admits(*percent));
        comparisons.push(input.compare("mostly-spurious", variant.title(), said(&values), most));
    }
    if axis == Axis::Hops && matrix.variants.contains(&Variant::Paper3) {
        let values = line(Variant::Paper3, RETRIEVAL.of);
        let title = Variant::Paper3.title();
        comparisons.push(input.compare("ratio-falls", title, said(&values), falling(&values)));
    }
    comparisons.extend(powers(input, matrix)?);
    Ok(comparisons)
}

/// Returns the mean of a metric at each step of the matrix.
fn line(matrix: &Matrix, variant: Variant, of: &dyn Fn(&Outcome) -> f64) -> Vec<f64> {
    (0..matrix.steps.len())
        .map(|step| matrix.spread(step, variant, of).mean)
        .collect()
}

/// Loss that remains, compared with the link's loss to the power of the limit.
fn powers(input: &StudyInput<'_>, matrix: &Matrix) -> Result<Vec<Comparison>, LabError> {
    let mut comparisons = Vec::new();
    let power = input.tolerance("power")?;
    for (variant, most) in [
        (Variant::Paper1, 1),
        (Variant::Paper2, 2),
        (Variant::Paper3, 3),
    ] {
        if !matrix.variants.contains(&variant) {
            continue;
        }
        let unrecovered: Vec<f64> = line(matrix, variant, RECOVERED.of)
            .iter()
            .map(|percent| 100.0 - percent)
            .collect();
        let expected = matrix
            .steps
            .iter()
            .map(|step| 100.0 * (step.loss_percent / 100.0).powi(most));
        let near = unrecovered
            .iter()
            .zip(expected.clone())
            .all(|(found, expected)| power.admits(expected, *found));
        let parts = unrecovered.iter().zip(expected).zip(&matrix.steps);
        let parts: Vec<String> = parts
            .map(|((found, expected), step)| {
                format!("{}: {found:.4} % ({expected:.4} %)", step.label)
            })
            .collect();
        let ours = format!(
            "not recovered (loss to the power of the limit): {}",
            parts.join("; ")
        );
        comparisons.push(input.compare("power", variant.title(), ours, near));
    }
    Ok(comparisons)
}

/// Data retrieval times of all runs of each cell, ms, sorted; and the ideal of each step.
struct Retrieval {
    /// In the order of the matrix's cells.
    cells: Vec<(Vec<f32>, f64)>,
}

impl Retrieval {
    fn of(matrix: &Matrix) -> Retrieval {
        let cells = matrix.cells.iter().map(|runs| {
            let flows = || runs.iter().flat_map(|run| &run.flows);
            let mut delays: Vec<f32> = flows()
                .flat_map(|flow| flow.delays.iter().copied())
                .collect();
            delays.sort_by(f32::total_cmp);
            (delays, flows().next().map_or(f64::NAN, |flow| flow.ideal))
        });
        Retrieval {
            cells: cells.collect(),
        }
    }

    fn cell(&self, matrix: &Matrix, step: usize, variant: Variant) -> (&[f32], f64) {
        let at = matrix.variants.iter().position(|known| *known == variant);
        let found = at.and_then(|at| self.cells.get(step * matrix.variants.len() + at));
        found.map_or((&[], f64::NAN), |(delays, ideal)| (delays, *ideal))
    }

    /// Tables II and III. Their "90 % confidence interval" is no interval of a mean: it begins at
    /// the ideal value and is not symmetrical. It holds nine of ten retrieval times: the 5th and
    /// the 95th percentile.
    fn table(&self, input: &StudyInput<'_>, matrix: &Matrix) -> Table {
        let columns = [
            matrix.axis.as_str(),
            "recovery on links",
            "paper: mean",
            "ours: mean",
            "± (90 %)",
            "difference",
            "paper: 5 %",
            "ours: 5 %",
            "paper: 95 %",
            "ours: 95 %",
            "ours: 99 %",
            "ours: mean, ms",
        ];
        let rows = matrix
            .each(|_| true)
            .into_iter()
            .map(|(index, step, variant)| {
                let spread = matrix.spread(index, variant, RETRIEVAL.of);
                let (delays, ideal) = self.cell(matrix, index, variant);
                let published = |id: &str| input.published(id, variant.key(), step.x);
                let shown = |value: Option<f64>| {
                    value.map_or(String::from("-"), |value| format!("{value:.2}"))
                };
                let percentile =
                    |percent: f64| format!("{:.2}", 100.0 * percentile(delays, percent) / ideal);
                vec![
                    step.label.clone(),
                    variant.title().to_owned(),
                    shown(published(RETRIEVAL.id)),
                    format!("{:.2}", spread.mean),
                    format!("{:.2}", spread.half),
                    shown(published(RETRIEVAL.id).map(|paper| spread.mean - paper)),
                    shown(published("retrieval-low")),
                    percentile(5.0),
                    shown(published("retrieval-high")),
                    percentile(95.0),
                    percentile(99.0),
                    format!("{:.2}", spread.mean * ideal / 100.0),
                ]
            });
        Table {
            name: String::from("retrieval-times"),
            title: format!(
                "Data retrieval time, % of the ideal value; paper: {}",
                input.published_in(RETRIEVAL.id)
            ),
            columns: columns.map(String::from).into(),
            rows: rows.collect(),
        }
    }

    /// Fig. 3.
    fn distribution(&self, matrix: &Matrix, step: usize) -> NamedChart {
        let shown = [Variant::Paper3, Variant::None, Variant::Adaptive];
        let series = shown
            .into_iter()
            .filter(|known| matrix.variants.contains(known))
            .map(|variant| {
                let (delays, _) = self.cell(matrix, step, variant);
                let points = (0..=500)
                    .map(|part| f64::from(part) / 5.0)
                    .map(|percent| (percentile(delays, percent), percent));
                Series {
                    label: variant.title().to_owned(),
                    points: points.collect(),
                    ..Series::default()
                }
            });
        let series: Vec<Series> = series
            .map(|series| {
                let points = series
                    .points
                    .into_iter()
                    .filter(|(delay, _)| *delay <= DISTRIBUTION_END)
                    .collect();
                Series { points, ..series }
            })
            .collect();
        let start = series
            .iter()
            .filter_map(|series| series.points.first())
            .map(|point| point.0);
        let start = start.fold(DISTRIBUTION_END, f64::min);
        let chart = LineChart {
            title: format!(
                "Fig. 3: data retrieval times at {} loss",
                matrix.steps[step].label
            ),
            x_label: String::from("data retrieval time, ms"),
            y_label: String::from("exchanges, %"),
            series,
            shaded: Vec::new(),
            origin: ((start / 10.0).floor() * 10.0, 0.0),
            ..LineChart::default()
        };
        NamedChart {
            name: String::from("retrieval-distribution"),
            chart,
        }
    }
}

/// Ms; as far as it matters in the paper's Fig. 3.
const DISTRIBUTION_END: f64 = 400.0;

/// Returns the paper's statements about its Fig. 3.
fn distribution_statements(
    input: &StudyInput<'_>,
    matrix: &Matrix,
    retrieval: &Retrieval,
    step: usize,
) -> Result<Vec<Comparison>, LabError> {
    let (delays, ideal) = retrieval.cell(matrix, step, Variant::Paper3);
    let runs = matrix.cell(step, Variant::Paper3);
    if delays.is_empty() {
        return Ok(Vec::new());
    }
    let asked: u64 = runs
        .iter()
        .flat_map(|run| &run.flows)
        .map(|flow| flow.stats.requested)
        .sum();
    let hit = |index: usize| runs.iter().map(|run| run.exchanges_hit[index]).sum::<u64>() as f64;
    let [untouched, once] = [0, 1].map(|index| 100.0 - 100.0 * hit(index) / asked as f64);
    let mut comparisons = Vec::new();
    let mut compare = |id: &str, ours: String, value: f64| -> Result<(), LabError> {
        let agrees = input.range(id)?.admits(value);
        comparisons.push(input.compare(id, "", ours, agrees));
        Ok(())
    };
    let [first, second] = [6.0, 22.0].map(|extra| share_within(delays, ideal + extra));
    let ours = format!(
        "{untouched:.1} % of the exchanges lost no frame; {first:.1} % were satisfied within {:.0} ms, 6 ms above the ideal",
        ideal + 6.0
    );
    compare("first-arrow", ours, first)?;
    let ours = format!(
        "{once:.1} % lost one frame at most; {second:.1} % were satisfied within {:.0} ms, 16 ms later",
        ideal + 22.0
    );
    compare("second-arrow", ours, second)?;
    let median = percentile(delays, 25.0);
    let ours = format!("{median:.1} ms at the 25th percentile; ideal {ideal:.2} ms");
    compare("overall-rtt", ours, median)?;
    Ok(comparisons)
}

/// Spurious retransmissions as the consumer infers them from time alone.
fn bounds(matrix: &Matrix) -> Table {
    let columns = [
        matrix.axis.as_str(),
        "recovery on links",
        "of all, less what links gave up, %",
        "at least, by time, %",
        "at most, by time, %",
        "octets of an Interest",
        "octets of a Data",
    ];
    let rows = matrix
        .each(|_| true)
        .into_iter()
        .map(|(index, step, variant)| {
            let mean = |of: &dyn Fn(&Outcome) -> f64| matrix.spread(index, variant, of).mean;
            let flow = |of: fn(&super::super::network::FlowOutcome) -> f64| {
                mean(&move |run| run.flows.first().map_or(f64::NAN, of))
            };
            let share = |count: fn(&super::super::network::FlowOutcome) -> u64| {
                mean(&move |run| {
                    let counted: u64 = run.flows.iter().map(count).sum();
                    100.0 * counted as f64 / run.retransmissions() as f64
                })
            };
            vec![
                step.label.clone(),
                variant.title().to_owned(),
                if variant.recovers() {
                    format!("{:.1}", mean(&Outcome::spurious_percent))
                } else {
                    String::from("-")
                },
                format!("{:.1}", share(|flow| flow.stats.spurious_at_least)),
                format!("{:.1}", share(|flow| flow.stats.spurious_at_most)),
                format!("{:.2}", flow(|flow| flow.sizes[0])),
                format!("{:.2}", flow(|flow| flow.sizes[1])),
            ]
        });
    Table {
        name: String::from("spurious-bounds"),
        title: String::from(
            "Spurious retransmissions of the consumer, three ways; and what packets have",
        ),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}
