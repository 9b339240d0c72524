//! Readings of the paper other than its literal text, where its numbers do not follow from the
//! text.
//!
//! A reading has runs of its own where the routers or the consumer differ: the labels
//! `VARIANT-READING` of a scenario's sweep `recovery`. All other cells are the text's, so that only
//! the assumption differs.

use std::rc::Rc;

use serde::Deserialize;

use super::super::result::ReadingResult;
use super::super::{Comparison, NamedChart, StudyInput, Table, Verdict};
use super::Variant;
use super::matrix::Matrix;
use super::network::Outcome;
use crate::figure::LineChart;

/// An entry of `[[study.readings]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reading {
    /// Its name in labels of the sweep and in file names.
    pub(super) name: String,
    /// Its assumption.
    pub(super) title: String,
    /// The reason for the assumption, and whether that is a fact or an inference.
    pub(super) evidence: String,
    /// Octets beyond a bare frame in the ideal retrieval time of the paper's protocol.
    #[serde(default)]
    pub(super) ideal_octets: u32,
    /// True if timeouts count as retransmissions of consumers over links that recover losses.
    #[serde(default)]
    pub(super) counts_timeouts: bool,
    /// True if its tables and charts stand beside the text's.
    #[serde(default)]
    pub(super) shown: bool,
}

impl Reading {
    /// Applies this reading's counts and divisors to the runs of a variant.
    pub(super) fn read(&self, variant: Variant, runs: &Rc<[Outcome]>) -> Rc<[Outcome]> {
        let octets = if variant.is_papers() {
            f64::from(self.ideal_octets)
        } else {
            0.0
        };
        let counts_timeouts = self.counts_timeouts && variant.recovers();
        if octets == 0.0 && !counts_timeouts {
            return runs.clone();
        }
        let mut runs = runs.to_vec();
        for flow in runs.iter_mut().flat_map(|run| &mut run.flows) {
            flow.ideal += octets * flow.octet;
            if counts_timeouts {
                flow.retransmissions = flow.stats.timeouts;
            }
        }
        runs.into()
    }

    /// Iterates over the tables, marked as this reading's.
    pub(super) fn tables(&self, tables: Vec<Table>) -> impl Iterator<Item = Table> {
        tables.into_iter().map(|table| Table {
            name: format!("{}-{}", table.name, self.name),
            title: format!("{} (reading \"{}\")", table.title, self.name),
            ..table
        })
    }

    /// Iterates over the charts, marked as this reading's.
    pub(super) fn charts(&self, charts: Vec<NamedChart>) -> impl Iterator<Item = NamedChart> {
        charts.into_iter().map(|named| NamedChart {
            name: format!("{}-{}", named.name, self.name),
            chart: LineChart {
                title: format!("{} (reading \"{}\")", named.chart.title, self.name),
                ..named.chart
            },
        })
    }

    /// Returns the statements under this reading, with reasons of their own for differences.
    pub(super) fn result(
        &self,
        input: &StudyInput<'_>,
        comparisons: Vec<Comparison>,
    ) -> ReadingResult {
        let explained = comparisons.into_iter().map(|row| {
            let note = input.note(&row.id, &self.name);
            Comparison {
                explanation: match row.verdict {
                    Verdict::Agrees => String::new(),
                    Verdict::Differs => note.unwrap_or_default().to_owned(),
                },
                ..row
            }
        });
        ReadingResult {
            name: self.name.clone(),
            title: self.title.clone(),
            evidence: self.evidence.clone(),
            shown: self.shown,
            comparisons: explained.collect(),
        }
    }
}

/// All runs of a study: under the paper's literal text, and under each reading.
pub(super) struct Runs<'a> {
    pub(super) text: Matrix,
    pub(super) readings: Vec<(&'a Reading, Matrix)>,
}
