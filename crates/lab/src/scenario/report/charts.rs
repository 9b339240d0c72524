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
const MAX_CHARTS: usize = 48;

/// The pictures of a page.
pub(super) struct Charts {
    /// File names and charts: a metric over the first swept key, or transfers over time.
    pub(super) drawn: Vec<(String, LineChart)>,
    /// How many more there would be.
    pub(super) left_out: usize,
}

/// Returns the pictures of a batch; one that would have too many lines is several.
pub(super) fn all(scenario: &Scenario, batch: &Batch) -> Charts {
    let swept = scenario
        .settings
        .first()
        .is_some_and(|setting| !setting.values.is_empty());
    let whole: Vec<(String, LineChart)> = match swept {
        false => transfers(scenario, batch).into_iter().collect(),
        true => {
            let names = scenario.metrics.iter();
            names
                .filter_map(|name| {
                    Some((name.replace('.', "-"), swept_chart(scenario, batch, name)?))
                })
                .collect()
        }
    };
    let mut drawn: Vec<(String, LineChart)> = whole
        .into_iter()
        .flat_map(|(name, chart)| divided(name, chart))
        .collect();
    let left_out = drawn.len().saturating_sub(MAX_CHARTS);
    drawn.truncate(MAX_CHARTS);
    Charts { drawn, left_out }
}

/// Returns a chart as several with at most [`MAX_LINES`] lines each. All have the same axes, and the
/// paper's own dots.
fn divided(name: String, chart: LineChart) -> Vec<(String, LineChart)> {
    let (dots, lines): (Vec<Series>, Vec<Series>) =
        chart.series.iter().cloned().partition(|line| line.dots);
    let room = MAX_LINES.saturating_sub(dots.len()).max(1);
    if lines.len() <= room {
        return vec![(name, chart)];
    }
    let reach = lines.iter().flat_map(|line| {
        let tops = line.bars.iter().zip(&line.points);
        let tops = tops.map(|(bar, point)| (point.0, bar.1));
        line.points.iter().copied().chain(tops)
    });
    let reach = reach.fold(chart.reach, |most, (x, y)| (most.0.max(x), most.1.max(y)));
    let parts = lines.chunks(room);
    let count = parts.len();
    let part = |(index, lines): (usize, &[Series])| {
        let number = index + 1;
        let part = LineChart {
            title: format!("{} ({number} of {count})", chart.title),
            series: [lines, &dots[..]].concat(),
            reach,
            ..chart.clone()
        };
        (format!("{name}-{number}"), part)
    };
    parts.enumerate().map(part).collect()
}

/// Returns the chart of a metric over the first swept key, with a line for each combination of the
/// others, or a bar if the key has names for values.
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
    series.retain(|line| !line.points.is_empty());
    for line in &mut series {
        let mut both: Vec<_> = line.points.drain(..).zip(line.bars.drain(..)).collect();
        both.sort_by(|a, b| a.0.0.total_cmp(&b.0.0));
        (line.points, line.bars) = both.into_iter().unzip();
    }
    let categories = categories(scenario);
    // A line has two points or more.
    let drawn = !categories.is_empty() || series.iter().any(|line| line.points.len() > 1);
    series.extend(published(scenario, name, key));
    drawn.then(|| LineChart {
        title: name.to_owned(),
        x_label: match split(&scenario.settings[0].values[0].1) {
            (_, unit) if categories.is_empty() && !unit.is_empty() => format!("{key}, {unit}"),
            _ => key.clone(),
        },
        categories,
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

/// Returns the values of the first swept key, each once, if they have no common scale: names, or
/// numbers of several units.
fn categories(scenario: &Scenario) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    for setting in &scenario.settings {
        let value = &setting.values[0].1;
        if !known.contains(value) {
            known.push(value.clone());
        }
    }
    let unit = known.first().map(|value| split(value).1.to_owned());
    let is_number = |value: &String| {
        let (number, of) = split(value);
        Some(of) == unit.as_deref() && number.parse::<f64>().is_ok()
    };
    match known.iter().all(is_number) {
        true => Vec::new(),
        false => known,
    }
}

/// Returns the place of a swept value on the axis: its number, or its place among the categories.
fn place(scenario: &Scenario, value: &str) -> f64 {
    let named = categories(scenario).iter().position(|known| known == value);
    let number = split(value).0.parse().unwrap_or_default();
    named.map_or(number, |place| place as f64)
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::{Overrides, SAMPLE};

    fn swept(sweep: &str) -> Scenario {
        let text = format!("{SAMPLE}\n{sweep}\n");
        Scenario::parse(Path::new("test.toml"), &text, Overrides::default()).unwrap()
    }

    #[test]
    fn values_without_a_common_scale_are_categories() {
        let names = swept("[sweep.by]\nslow = {}\nfast = { \"links.wifi.rate\" = \"40 Mbit/s\" }");
        let mut found = categories(&names);
        found.sort();
        assert_eq!(found, ["fast", "slow"]);
        let units = swept("[sweep]\n\"links.wifi.delay\" = [\"5 ms\", \"1 s\"]");
        assert_eq!(categories(&units).len(), 2);
        let numbers = swept("[sweep]\n\"links.wifi.delay\" = [\"5 ms\", \"10 ms\"]");
        assert!(categories(&numbers).is_empty());
        let places = ["10 ms", "5 ms"].map(|value| place(&numbers, value));
        assert_eq!(places, [10.0, 5.0]);
    }

    #[test]
    fn a_chart_with_too_many_lines_becomes_several_and_loses_none() {
        let line = |number: usize| Series {
            label: number.to_string(),
            points: vec![(0.0, 1.0), (number as f64, 2.0)],
            ..Series::default()
        };
        let paper = Series {
            dots: true,
            ..line(100)
        };
        let chart = LineChart {
            title: "goodput".to_owned(),
            series: (0..13).map(line).chain([paper]).collect(),
            ..LineChart::default()
        };
        let parts = divided("goodput".to_owned(), chart);
        let mut seen = Vec::new();
        for (index, (name, part)) in parts.iter().enumerate() {
            assert_eq!(*name, format!("goodput-{}", index + 1));
            assert!(part.series.len() <= MAX_LINES, "{name}");
            assert_eq!(part.reach, (12.0, 2.0), "all have the same axes");
            assert_eq!(part.series.iter().filter(|line| line.dots).count(), 1);
            let lines = part.series.iter().filter(|line| !line.dots);
            seen.extend(lines.map(|line| line.label.clone()));
        }
        let all: Vec<String> = (0..13).map(|number| number.to_string()).collect();
        assert_eq!(seen, all);
    }
}
