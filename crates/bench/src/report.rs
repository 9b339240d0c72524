//! The results, as a table and as JSON.

use serde::Serialize;
use serde_json::{Map, Value, json};
use whimbrel_lab::study::Backend;

use crate::{Machine, Part};

/// A number with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// Payload bits per second.
    BitPerS(f64),
    /// Nanoseconds.
    Ns(f64),
    /// Packet events per second.
    EventsPerS(f64),
    /// Interests that were answered with Data, per second.
    ExchangesPerS(f64),
    /// Messages delivered per second.
    MessagesPerS(f64),
    /// A number of things.
    Count(f64),
    /// Bytes.
    Bytes(f64),
    /// Seconds of processor time, user and system, for 10^9 bytes of payload.
    CpuSPerGb(f64),
}

impl Quantity {
    /// Returns the number without its unit.
    pub fn value(self) -> f64 {
        match self {
            Quantity::BitPerS(value)
            | Quantity::Ns(value)
            | Quantity::EventsPerS(value)
            | Quantity::ExchangesPerS(value)
            | Quantity::MessagesPerS(value)
            | Quantity::Count(value)
            | Quantity::Bytes(value)
            | Quantity::CpuSPerGb(value) => value,
        }
    }

    /// Returns the end of its key in JSON.
    fn unit(self) -> &'static str {
        match self {
            Quantity::BitPerS(_) => "bit_per_s",
            Quantity::Ns(_) => "ns",
            Quantity::EventsPerS(_) => "events_per_s",
            Quantity::ExchangesPerS(_) => "exchanges_per_s",
            Quantity::MessagesPerS(_) => "messages_per_s",
            Quantity::Count(_) => "count",
            Quantity::Bytes(_) => "bytes",
            Quantity::CpuSPerGb(_) => "cpu_s_per_gb",
        }
    }

    fn text(self) -> String {
        match self {
            Quantity::BitPerS(value) if value >= 1e9 => format!("{:.2} Gbit/s", value / 1e9),
            Quantity::BitPerS(value) => format!("{:.2} Mbit/s", value / 1e6),
            Quantity::Ns(value) if value < 1e5 => format!("{value:.0} ns"),
            Quantity::Ns(value) => format!("{:.0} ms", value / 1e6),
            Quantity::EventsPerS(value) => format!("{:.2} M/s", value / 1e6),
            Quantity::ExchangesPerS(value) | Quantity::MessagesPerS(value) => {
                format!("{:.1} k/s", value / 1e3)
            }
            Quantity::Count(value) => format!("{value:.0}"),
            Quantity::Bytes(value) => format!("{:.1} MiB", value / f64::from(1 << 20)),
            Quantity::CpuSPerGb(value) => format!("{value:.2} CPU s/GB"),
        }
    }
}

/// The target of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Target {
    /// Returns whether `ratio` reaches it.
    pub fn met_by(self, ratio: f64) -> bool {
        match self {
            Target::AtLeast(bound) => ratio >= bound,
            Target::AtMost(bound) => ratio <= bound,
        }
    }

    fn text(self) -> String {
        match self {
            Target::AtLeast(bound) => format!(">= {bound:.2}"),
            Target::AtMost(bound) => format!("<= {bound:.2}"),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its part.
    pub part: Part,
    /// The back end; `None` if there is no choice.
    pub backend: Option<Backend>,
    /// The measurement and its conditions.
    pub what: String,
    /// Whimbrel's number.
    pub ours: Quantity,
    /// The reference and its number.
    pub peer: Option<(String, Quantity)>,
    /// The target of the ratio; `None` for a row that is for information.
    pub target: Option<Target>,
    /// A note for the reader.
    pub note: Option<String>,
    /// Further measurements, for JSON.
    pub details: Value,
}

impl Row {
    /// Ours over the peer's.
    pub fn ratio(&self) -> Option<f64> {
        let (_, peer) = self.peer.as_ref()?;
        Some(self.ours.value() / peer.value()).filter(|ratio| ratio.is_finite())
    }

    /// Returns whether the target is met; `None` without one. A ratio that is not a number never
    /// meets it.
    pub fn met(&self) -> Option<bool> {
        let target = self.target?;
        Some(self.ratio().is_some_and(|ratio| target.met_by(ratio)))
    }

    fn json(&self) -> Value {
        let mut row = Map::new();
        row.insert("part".into(), json!(self.part));
        row.insert("backend".into(), json!(self.backend));
        row.insert("what".into(), json!(self.what));
        row.insert(
            format!("ours_{}", self.ours.unit()),
            json!(self.ours.value()),
        );
        if let Some((name, quantity)) = &self.peer {
            row.insert("peer".into(), json!(name));
            row.insert(format!("peer_{}", quantity.unit()), json!(quantity.value()));
        }
        row.insert("ratio".into(), json!(self.ratio()));
        match self.target {
            Some(Target::AtLeast(bound)) => row.insert("target_at_least".into(), json!(bound)),
            Some(Target::AtMost(bound)) => row.insert("target_at_most".into(), json!(bound)),
            None => None,
        };
        row.insert("met".into(), json!(self.met()));
        row.insert("note".into(), json!(self.note));
        row.insert("details".into(), self.details.clone());
        Value::Object(row)
    }
}

/// A failed measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    /// Its part.
    pub part: Part,
    /// The measurement.
    pub what: String,
    /// The error, with advice.
    pub error: String,
}

/// The results of one run.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// The machine.
    pub machine: Machine,
    /// True if it was shorter than the full length: good for a quick look, not for the record.
    pub quick: bool,
    /// Seed of all randomness.
    pub seed: u64,
    /// The measurements.
    pub rows: Vec<Row>,
    /// Failed measurements.
    pub faults: Vec<Fault>,
}

impl BenchReport {
    /// Targets that were missed.
    pub fn missed(&self) -> usize {
        self.rows
            .iter()
            .filter(|row| row.met() == Some(false))
            .count()
    }

    /// As JSON; the keys of numbers name their units.
    pub fn json(&self) -> Value {
        json!({
            "machine": self.machine,
            "quick": self.quick,
            "seed": self.seed,
            "missed": self.missed(),
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "faults": self.faults,
        })
    }

    /// As a table for people.
    pub fn table(&self) -> String {
        let mut text = format!("{}\n", self.machine.line());
        if self.quick {
            text += "measured with --quick: shorter than for the record\n";
        }
        let cells: Vec<[String; 7]> = self.rows.iter().map(cells).collect();
        let heads = ["", "on", "ours", "peer", "ratio", "target", "met"].map(String::from);
        let width = |column: usize| {
            let lengths = cells
                .iter()
                .chain([&heads])
                .map(|row| row[column].chars().count());
            lengths.max().unwrap_or(0)
        };
        let widths: [usize; 7] = std::array::from_fn(width);
        let mut part = None;
        for (index, row) in [heads.clone()].iter().chain(&cells).enumerate() {
            if let Some(row) = index.checked_sub(1).and_then(|index| self.rows.get(index))
                && part != Some(row.part)
            {
                part = Some(row.part);
                text += &format!("\n{}: {}\n", row.part.name(), row.part.title());
            }
            text += &line(row, &widths);
            let note = index
                .checked_sub(1)
                .and_then(|index| self.rows.get(index)?.note.as_deref());
            if let Some(note) = note {
                text += &format!("      ({note})\n");
            }
        }
        for fault in &self.faults {
            text += &format!(
                "\nNOT MEASURED: {}, {}: {}\n",
                fault.part.name(),
                fault.what,
                fault.error
            );
        }
        text
    }
}

fn cells(row: &Row) -> [String; 7] {
    let peer = row
        .peer
        .as_ref()
        .map(|(name, quantity)| format!("{} {name}", quantity.text()));
    [
        format!("  {}", row.what),
        row.backend.map_or("", Backend::name).to_owned(),
        row.ours.text(),
        peer.unwrap_or_default(),
        row.ratio()
            .map_or_else(|| String::from("-"), |ratio| format!("{ratio:.3}")),
        row.target.map_or_else(String::new, Target::text),
        row.met()
            .map_or("", |met| if met { "yes" } else { "NO" })
            .to_owned(),
    ]
}

/// Text to the left, numbers to the right.
fn line(cells: &[String; 7], widths: &[usize; 7]) -> String {
    let mut text = String::new();
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
        let left = matches!(column, 0 | 1 | 3 | 6);
        let (before, after) = if left {
            ("", padding.as_str())
        } else {
            (padding.as_str(), "")
        };
        text += &format!("{before}{cell}{after}  ");
    }
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, peer: Option<f64>, target: Option<Target>) -> Row {
        Row {
            part: Part::Loss,
            backend: Some(Backend::Sim),
            what: String::from("RTT 10 ms"),
            ours: Quantity::BitPerS(ours),
            peer: peer.map(|peer| (String::from("lossless"), Quantity::BitPerS(peer))),
            target,
            note: None,
            details: Value::Null,
        }
    }

    #[test]
    fn a_target_is_met_at_its_bound_and_never_by_what_is_no_number() {
        assert_eq!(
            row(95.0, Some(100.0), Some(Target::AtLeast(0.95))).met(),
            Some(true)
        );
        assert_eq!(
            row(94.9, Some(100.0), Some(Target::AtLeast(0.95))).met(),
            Some(false)
        );
        assert_eq!(
            row(1.0, Some(1.0), Some(Target::AtMost(1.0))).met(),
            Some(true)
        );
        assert_eq!(
            row(0.0, Some(0.0), Some(Target::AtMost(1.0))).met(),
            Some(false)
        );
        assert_eq!(
            row(1.0, None, Some(Target::AtLeast(0.0))).met(),
            Some(false)
        );
        assert_eq!(row(1.0, Some(2.0), None).met(), None);
    }

    #[test]
    fn keys_say_the_unit_and_a_miss_is_counted() {
        let rows = vec![
            row(1e6, Some(4e6), Some(Target::AtLeast(0.95))),
            row(1.0, None, None),
        ];
        let report = BenchReport {
            machine: Machine::here(),
            quick: false,
            seed: 1,
            rows,
            faults: Vec::new(),
        };
        let json = report.json();
        assert_eq!(json["missed"], 1);
        assert_eq!(json["rows"][0]["ours_bit_per_s"], 1e6);
        assert_eq!(json["rows"][0]["peer_bit_per_s"], 4e6);
        assert_eq!(json["rows"][0]["ratio"], 0.25);
        assert_eq!(json["rows"][0]["backend"], "sim");
        let table = report.table();
        assert!(
            table.contains("0.250") && table.contains(">= 0.95") && table.contains("NO"),
            "{table}"
        );
    }
}
