//! Metrics as pictures.

use super::super::batch::Batch;
use super::super::event::Action;
use super::super::judge::mean;
use super::super::metric;
use super::super::statement::shown;
use super::super::{Scenario, Setting};
use crate::figure::{LineChart, Series, number};

/// Bound of the lines in one picture, so that they can be distinguished.
const MAX_LINES: usize = 6;
/// Bound of the pictures of a page.
const MAX_CHARTS: usize = 12;

/// Returns file names and charts: a metric over the first swept key, or transfers over time.
pub(super) fn all(scenario: &Scenario, batch: &Batch) -> Vec<(String, LineChart)> {
    let swept = scenario
        .settings
        .first()
        .is_some_and(|setting| !setting.values.is_empty());
    if !swept {
        return transfers(scenario, batch).into_iter().collect();
    }
    let names = scenario.metrics.iter();
    let charts = names
        .filter_map(|name| Some((name.replace('.', "-"), swept_chart(scenario, batch, name)?)));
    charts.take(MAX_CHARTS).collect()
}

/// Returns the chart of a metric over the first swept key, with a line for each combination of the
/// others.
fn swept_chart(scenario: &Scenario, batch: &Batch, name: &str) -> Option<LineChart> {
    let (key, _) = scenario.settings.first()?.values.first()?;
    let mut series: Vec<Series> = Vec::new();
    for (index, setting) in scenario.settings.iter().enumerate() {
        let values = batch.values(name, |known| known == index);
        let label = others(setting);
        let known = series.iter().position(|known| known.label == label);
        let line = known.unwrap_or_else(|| {
            series.push(Series {
                label,
                ..Series::default()
            });
            series.len() - 1
        });
        let Some(y) = mean(&values) else { continue };
        let x = place(scenario, &setting.values[0].1);
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        series[line].points.push((x, y));
        series[line].bars.push((min, max));
    }
    series.truncate(MAX_LINES - 1);
    series.retain(|line| !line.points.is_empty());
    for line in &mut series {
        let mut both: Vec<_> = line.points.drain(..).zip(line.bars.drain(..)).collect();
        both.sort_by(|a, b| a.0.0.total_cmp(&b.0.0));
        (line.points, line.bars) = both.into_iter().unzip();
    }
    // A line has two points or more.
    let drawn = series.iter().any(|line| line.points.len() > 1);
    series.extend(published(scenario, name, key));
    drawn.then(|| LineChart {
        title: name.to_owned(),
        x_label: match split(&scenario.settings[0].values[0].1) {
            (_, "") => key.clone(),
            (_, unit) => format!("{key}, {unit}"),
        },
        y_label: with_unit(name),
        series,
        ..LineChart::default()
    })
}

/// Returns the paper's own numbers of a metric, as dots over ours.
fn published(scenario: &Scenario, name: &str, key: &str) -> Option<Series> {
    let statements = scenario.statements.iter();
    let about = statements.filter(|known| known.metric == name && known.relative_to.is_none());
    let points = about.filter_map(|known| {
        let at = known.at.get(key)?;
        Some((place(scenario, &shown(at)), known.value))
    });
    let points: Vec<(f64, f64)> = points.collect();
    (!points.is_empty()).then(|| Series {
        label: String::from("the paper"),
        points,
        dots: true,
        ..Series::default()
    })
}

fn with_unit(name: &str) -> String {
    match metric::unit(name) {
        "" => name.to_owned(),
        unit => format!("{name}, {unit}"),
    }
}

/// Returns the other swept values of a setting.
fn others(setting: &Setting) -> String {
    let others = setting.values.iter().skip(1);
    let texts: Vec<String> = others
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    match texts.is_empty() {
        true => String::from("mean, min and max"),
        false => texts.join(", "),
    }
}

/// Returns the place of a swept value on the axis: its number if all values have the same unit, or
/// else its place in the sweep.
fn place(scenario: &Scenario, value: &str) -> f64 {
    let swept = || {
        scenario
            .settings
            .iter()
            .map(|setting| split(&setting.values[0].1))
    };
    let (number, unit) = split(value);
    let alike = swept().all(|(number, known)| known == unit && number.parse::<f64>().is_ok());
    match number.parse() {
        Ok(number) if alike => number,
        _ => {
            let values = scenario.settings.iter().map(|setting| &setting.values[0].1);
            let mut known: Vec<&String> = Vec::new();
            for value in values {
                if !known.contains(&value) {
                    known.push(value);
                }
            }
            let place = known.iter().position(|known| *known == value);
            place.unwrap_or_default() as f64
        }
    }
}

/// Splits "12.5 ms" into "12.5" and "ms".
fn split(value: &str) -> (&str, &str) {
    let digit = |c: char| c.is_ascii_digit() || c == '.';
    let end = value.find(|c| !digit(c)).unwrap_or(value.len());
    (&value[..end], value[end..].trim())
}

/// Returns the progress of the first run's transfers over time, with the outages shaded.
fn transfers(scenario: &Scenario, batch: &Batch) -> Option<(String, LineChart)> {
    let first = batch.outcomes.first()?;
    let series: Vec<Series> = first
        .found
        .transfers
        .iter()
        .take(MAX_LINES)
        .map(|fetched| Series {
            label: fetched.name.clone(),
            points: fetched
                .record
                .samples
                .iter()
                .map(|(at, bytes)| (fetched.asked + at, *bytes as f64 / 1e6))
                .collect(),
            ..Series::default()
        })
        .collect();
    let plan = &scenario.settings.first()?.plan;
    let end = series
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.0)
        .fold(0.0, f64::max);
    let mut shaded = Vec::new();
    for (index, timed) in plan.timeline.iter().enumerate() {
        let Action::Cut(link) = &timed.action else {
            continue;
        };
        let restored = plan.timeline[index..].iter();
        let until = restored
            .filter(|later| later.action == Action::Restore(*link))
            .map(|later| later.at.as_secs_f64())
            .next();
        let name = plan.network.links[*link].name.clone();
        shaded.push((
            timed.at.as_secs_f64(),
            until.unwrap_or(end),
            format!("{name} out"),
        ));
    }
    (!series.is_empty()).then(|| {
        let chart = LineChart {
            title: format!(
                "Transfers of the first run, seed {}",
                number(first.seed as f64)
            ),
            x_label: String::from("s since the origin"),
            y_label: String::from("MB"),
            series,
            shaded,
            origin: (0.0, 0.0),
            ..LineChart::default()
        };
        (String::from("transfers"), chart)
    })
}
