//! The results: a table with the worst cells first, JSON, pictures.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use whimbrel_lab::LabError;
use whimbrel_lab::figure::{HeatMap, LineChart, Series};
use whimbrel_lab::study::Backend;

use super::{Cell, GridLaw, Reached};
use crate::Machine;

/// The share of what random loss leaves of the rate that a law should bring.
const WANTED: f64 = 0.85;
/// A share below this is a collapse.
const COLLAPSED: f64 = 0.6;

/// What each law reached in each cell.
#[derive(Clone, Debug)]
pub struct GridReport {
    /// The machine.
    pub machine: Machine,
    /// The back end.
    pub backend: Backend,
    /// Seed of all randomness.
    pub seed: u64,
    /// True if the cells were drawn.
    pub is_random: bool,
    /// The laws; the first one orders the table.
    pub laws: Vec<GridLaw>,
    /// Each cell, with what each law reached there.
    pub rows: Vec<(Cell, Vec<Reached>)>,
}

/// The share of what random loss leaves of the rate.
fn share(cell: &Cell, reached: &Reached) -> f64 {
    reached.goodput / cell.capacity()
}

/// Milliseconds beyond what a ping may take; infinite if none was answered.
fn beyond(cell: &Cell, reached: &Reached) -> f64 {
    let bound = cell.ping_bound().as_secs_f64();
    let late = |ping: std::time::Duration| (ping.as_secs_f64() - bound) * 1e3;
    reached.ping.map_or(f64::INFINITY, late)
}

impl GridReport {
    /// Returns the shares of a law.
    fn shares(&self, law: usize) -> impl Iterator<Item = f64> {
        self.rows
            .iter()
            .map(move |(cell, reached)| share(cell, &reached[law]))
    }

    fn late_pings(&self, law: usize) -> usize {
        let late = |(cell, reached): &&(Cell, Vec<Reached>)| beyond(cell, &reached[law]) > 0.0;
        self.rows.iter().filter(late).count()
    }

    /// Cells in which the first law brings less than 0.85 of what random loss leaves.
    pub fn missed(&self) -> usize {
        self.shares(0).filter(|share| *share < WANTED).count()
    }

    /// As JSON; the keys of numbers name their units.
    pub fn json(&self) -> Value {
        let cells = self.rows.iter().map(|(cell, reached)| {
            let mut json = cell.json();
            let by_law = self.laws.iter().zip(reached).map(|(law, reached)| {
                let found = json!({
                    "goodput_bit_per_s": reached.goodput,
                    "share": share(cell, reached),
                    "ping_median_ns": reached.ping.map(|ping| ping.as_nanos() as u64),
                });
                (law.name().to_owned(), found)
            });
            json["laws"] = Value::Object(by_law.collect());
            json
        });
        let summary = self.laws.iter().enumerate().map(|(at, law)| {
            let below = |bound: f64| self.shares(at).filter(|it| *it < bound).count();
            let found = json!({
                "below_0.85": below(WANTED),
                "below_0.6": below(COLLAPSED),
                "mean_share": self.mean(at),
                "late_pings": self.late_pings(at),
            });
            (law.name().to_owned(), found)
        });
        json!({
            "machine": self.machine,
            "backend": self.backend.name(),
            "seed": self.seed,
            "random": self.is_random,
            "summary": summary.collect::<Map<String, Value>>(),
            "cells": cells.collect::<Vec<Value>>(),
        })
    }

    fn mean(&self, law: usize) -> f64 {
        self.shares(law).sum::<f64>() / self.rows.len().max(1) as f64
    }

    /// As a table for people: each law in one line, then the `worst` cells of the first law by goodput and by ping.
    pub fn table(&self, worst: usize) -> String {
        let kind = if self.is_random {
            "random links"
        } else {
            "links"
        };
        let count = self.rows.len();
        let mut text = format!(
            "{count} {kind}, {}, seed {}; goodput from the 20th round trip on, as a share of rate x (1 - loss)\n\n\
             {:<14} {:>10} {:>9} {:>10} {:>6}  {}\n",
            self.backend.name(),
            self.seed,
            "law",
            "below 0.85",
            "below 0.6",
            "least",
            "mean",
            "pings beyond idle + jitter + 20 ms"
        );
        for (at, law) in self.laws.iter().enumerate() {
            let below = |bound: f64| self.shares(at).filter(|it| *it < bound).count();
            text += &format!(
                "{:<14} {:>10} {:>9} {:>10.3} {:>6.3}  {}\n",
                law.name(),
                below(WANTED),
                below(COLLAPSED),
                self.shares(at).fold(f64::INFINITY, f64::min),
                self.mean(at),
                self.late_pings(at),
            );
        }
        let mut rows: Vec<&(Cell, Vec<Reached>)> = self.rows.iter().collect();
        rows.sort_by(|one, other| {
            share(&one.0, &one.1[0]).total_cmp(&share(&other.0, &other.1[0]))
        });
        text += "\nleast goodput: share (ping ms)\n";
        text += &self.lines(&rows[..worst.min(count)]);
        rows.sort_by(|one, other| {
            beyond(&other.0, &other.1[0]).total_cmp(&beyond(&one.0, &one.1[0]))
        });
        text += "\nlongest ping beyond its bound: share (ping ms)\n";
        text += &self.lines(&rows[..worst.min(count)]);
        text
    }

    fn lines(&self, rows: &[&(Cell, Vec<Reached>)]) -> String {
        let mut text = String::new();
        for law in &self.laws {
            text += &format!("{:>14}  ", law.name());
        }
        text += "link\n";
        for (cell, reached) in rows {
            for reached in reached {
                let ping = reached.ping.map_or_else(
                    || String::from("none"),
                    |ping| format!("{:.0}", ping.as_secs_f64() * 1e3),
                );
                let found = format!("{:.3} ({ping})", share(cell, reached));
                text += &format!("{found:>14}  ");
            }
            text += &format!("{}\n", cell.name());
        }
        text
    }

    /// Writes `grid-LAW.svg` and `.png`, heat maps of each law, or `grid.svg` and `.png` if the cells were drawn.
    pub fn write_pictures(&self, folder: &Path) -> Result<(), LabError> {
        if self.is_random {
            return self.distribution().write(&folder.join("grid"));
        }
        for (at, law) in self.laws.iter().enumerate() {
            let stem = folder.join(format!("grid-{}", law.name()));
            self.heat(at).write(&stem)?;
        }
        Ok(())
    }

    /// Each law's shares in their order.
    fn distribution(&self) -> LineChart {
        let series = self.laws.iter().enumerate().map(|(at, law)| {
            let mut shares: Vec<f64> = self.shares(at).collect();
            shares.sort_by(f64::total_cmp);
            let part = 100.0 / shares.len().max(1) as f64;
            let points = shares.iter().enumerate();
            Series {
                label: law.name().to_owned(),
                points: points.map(|(at, it)| (at as f64 * part, *it)).collect(),
                ..Series::default()
            }
        });
        LineChart {
            title: format!("{} random links", self.rows.len()),
            x_label: "links with less (%)".into(),
            y_label: "share of rate x (1 - loss)".into(),
            series: series.collect(),
            reach: (100.0, 1.0),
            ..LineChart::default()
        }
    }

    /// The worst share of a law by rate and loss, and by round trip and jitter; further troubles count.
    fn heat(&self, law: usize) -> LineChart {
        let mut worst: BTreeMap<_, BTreeMap<_, f64>> = BTreeMap::new();
        for (cell, reached) in &self.rows {
            let row = (cell.rate, (cell.loss * 1e4) as u64);
            let at = worst.entry(row).or_default();
            let least = at
                .entry((cell.round_trip, cell.jitter))
                .or_insert(f64::INFINITY);
            *least = least.min(share(cell, &reached[law]));
        }
        let mut columns: Vec<_> = worst.values().flat_map(BTreeMap::keys).copied().collect();
        columns.sort_unstable();
        columns.dedup();
        let values = worst.values().map(|row| {
            let values = columns.iter().map(|column| row.get(column).copied());
            let rounded = values.map(|it| it.map(|it| (it * 100.0).round() / 100.0));
            rounded.collect()
        });
        let heat = HeatMap {
            values: values.collect(),
            columns: columns
                .iter()
                .map(|(trip, jitter)| format!("{}/{}", trip.as_millis(), jitter.as_millis()))
                .collect(),
            rows: worst
                .keys()
                .map(|(rate, loss)| format!("{}, {} %", rate / 1_000_000, *loss as f64 / 100.0))
                .collect(),
            worst: 0.5,
            best: 1.0,
        };
        LineChart {
            title: format!(
                "{}: least share of rate x (1 - loss)",
                self.laws[law].name()
            ),
            x_label: "round trip / jitter (ms)".into(),
            y_label: "Mbit/s, loss".into(),
            heat: Some(heat),
            ..LineChart::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(is_random: bool) -> GridReport {
        let cells = Cell::quick();
        let reached = |cell: &Cell, share: f64, late_ms: i64| Reached {
            goodput: cell.capacity() * share,
            ping: Some(
                cell.ping_bound()
                    .saturating_add(Duration::from_millis(late_ms as u64)),
            ),
        };
        let rows = cells.iter().enumerate().map(|(at, cell)| {
            let share = 0.5 + 0.05 * at as f64;
            let by_law = vec![reached(cell, share, at as i64), reached(cell, 0.1, 0)];
            (*cell, by_law)
        });
        GridReport {
            machine: Machine::here(),
            backend: Backend::Sim,
            seed: 1,
            is_random,
            laws: vec![GridLaw::Bottleneck, GridLaw::Cubic],
            rows: rows.collect(),
        }
    }

    #[test]
    fn the_worst_cells_come_first_and_all_are_in_the_json() {
        let report = report(false);
        let table = report.table(2);
        let shown: Vec<&str> = table.lines().filter(|line| line.contains("BDP")).collect();
        assert_eq!(shown.len(), 4, "{table}");
        let name = |at: usize| report.rows[at].0.name();
        assert!(
            shown[0].contains("0.500") && shown[0].ends_with(&name(0)),
            "{table}"
        );
        assert!(
            shown[1].contains("0.550") && shown[1].contains("0.100"),
            "{table}"
        );
        assert!(
            shown[2].ends_with(&name(7)) && shown[3].ends_with(&name(6)),
            "{table}"
        );
        let json = report.json();
        assert_eq!(json["cells"].as_array().unwrap().len(), 8);
        assert_eq!(json["summary"]["bottleneck"]["below_0.85"], 7);
        assert_eq!(json["summary"]["bottleneck"]["below_0.6"], 2);
        assert_eq!(json["summary"]["bottleneck"]["late_pings"], 7);
        assert_eq!(
            json["cells"][0]["laws"]["cubic"]["share"].as_f64().unwrap(),
            0.1
        );
        assert_eq!(report.missed(), 7);
    }

    #[test]
    fn pictures_show_each_law() {
        let folder = tempfile::tempdir().unwrap();
        report(false).write_pictures(folder.path()).unwrap();
        let heat = std::fs::read_to_string(folder.path().join("grid-bottleneck.svg")).unwrap();
        for text in ["20/8", "20, 1 %", "0.5"] {
            assert!(heat.contains(text), "{text}");
        }
        assert!(folder.path().join("grid-cubic.png").exists());
        report(true).write_pictures(folder.path()).unwrap();
        let lines = std::fs::read_to_string(folder.path().join("grid.svg")).unwrap();
        assert!(lines.contains("bottleneck") && lines.contains("cubic"));
    }
}
