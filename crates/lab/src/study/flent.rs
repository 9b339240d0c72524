//! Transfers in the result format of flent, the network tester, so that `flent` plots and compares
//! them.
//!
//! After flent's documentation, "The Data File Format", and version 4 of the format as flent 2
//! reads it: gzipped JSON of `version`, `x_values`, `results`, `metadata` and `raw_values`.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::{StudyResult, Transfer};
use whimbrel_node::exact_json;

use crate::LabError;
use crate::transfer::{SAMPLE_INTERVAL, TransferRecord};

const VERSION: u32 = 4;
/// flent draws a file by the plots of the test in `NAME`, and knows only its own tests: this is the
/// one of a single download, whatever carried it.
const TEST: &str = "tcp_download";
const SERIES: &str = "TCP download";
/// Seconds; as in [MFTP §5.1], Fig. 8 (b).
const STEP: f64 = 0.5;
/// The ending of a flent file's name.
pub(super) const ENDING: &str = ".flent.gz";

/// Writes one transfer of a study.
pub(super) fn write(
    result: &StudyResult,
    transfer: &Transfer,
    path: &Path,
) -> Result<(), LabError> {
    let failed = || LabError::system(format!("write {}", path.display()));
    // No time stamp in the header: the same run leaves the same file.
    let mut gzip = GzEncoder::new(
        File::create(path).map_err(failed())?,
        Compression::default(),
    );
    let text = exact_json::line(&document(result, transfer)).unwrap_or_default();
    gzip.write_all(text.as_bytes())
        .and_then(|()| gzip.finish())
        .map_err(failed())?
        .sync_data()
        .map_err(failed())
}

fn document(result: &StudyResult, transfer: &Transfer) -> Value {
    let record = &transfer.record;
    let (x_values, rates): (Vec<f64>, Vec<f64>) = record
        .goodput_series(STEP)
        .into_iter()
        .map(|(at, rate)| (at, rate / 1e6))
        .unzip();
    json!({
        "version": VERSION,
        "x_values": x_values,
        "results": { SERIES: rates },
        "raw_values": { SERIES: raw_values(record) },
        "metadata": metadata(result, transfer, x_values.last().copied()),
    })
}

/// Returns the points in Unix time that flent plots if it can.
fn raw_values(record: &TransferRecord) -> Vec<Value> {
    let begin = record.started_unix_ms as f64 / 1e3;
    let mut from = 0.0;
    let value = |(at, rate): (f64, f64)| {
        let value = json!({ "t": begin + at, "dur": at - from, "val": rate / 1e6 });
        from = at;
        value
    };
    record.goodput_series(STEP).into_iter().map(value).collect()
}

fn metadata(result: &StudyResult, transfer: &Transfer, last: Option<f64>) -> Value {
    let record = &transfer.record;
    let begin = UNIX_EPOCH + Duration::from_millis(record.started_unix_ms);
    let begin = humantime::format_rfc3339_micros(begin).to_string();
    let study = format!("{} ({})", result.study, result.backend.name());
    json!({
        "NAME": TEST,
        "TITLE": transfer.title,
        "NOTE": format!("{}: {}", study, result.command),
        "TIME": begin,
        "T0": begin,
        "LENGTH": record.finished,
        "TOTAL_LENGTH": last.unwrap_or(record.finished),
        "STEP_SIZE": STEP,
        "HOST": "N1",
        "HOSTS": ["N1"],
        "LOCAL_HOST": "N4",
        "IP_VERSION": 4,
        "BATCH_NAME": study,
        "BATCH_TITLE": study,
        "TEST_PARAMETERS": {},
        "DATA_FILENAME": format!("{}{ENDING}", transfer.label),
        "FLENT_VERSION": null,
        "SERIES_META": {
            SERIES: {
                "UNITS": "Mbits/s",
                "MEAN_VALUE": record.goodput() / 1e6,
                "COMPLETED": record.completed,
                "RETRANSMITTED_SEGMENTS": record.retransmitted_segments,
                "SAMPLED_EVERY": SAMPLE_INTERVAL.as_secs_f64(),
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Backend;

    fn example() -> (StudyResult, Transfer) {
        let result = StudyResult {
            study: "mftp-fig8".into(),
            backend: Backend::Sim,
            version: "1".into(),
            machine: None,
            command: "whimbrel study run mftp-fig8".into(),
            scenario: String::new(),
            comparisons: Vec::new(),
            readings: Vec::new(),
            tables: Vec::new(),
            charts: Vec::new(),
            has_transfers: true,
            transfers: Vec::new(),
        };
        let record = TransferRecord {
            started_unix_ms: 1_767_225_600_123,
            finished: 0.82,
            bytes: 300_000,
            samples: [0, 0, 0, 0, 100_000, 100_000, 200_000, 300_000]
                .into_iter()
                .enumerate()
                .map(|(index, bytes)| (index as f64 / 10.0, bytes))
                .chain([(0.82, 300_000)])
                .collect(),
            longest_stall: 0.4,
            longest_pause: 0.4,
            pauses: Vec::new(),
            retransmitted_segments: Some(2),
            retransmitted_bytes: None,
            completed: true,
            sender: Vec::new(),
        };
        (
            result,
            Transfer {
                label: "run-1".into(),
                title: "MFTP".into(),
                record,
            },
        )
    }

    /// The demands of `ResultSet.unserialise` of flent 2.3; real flent reads real files in
    /// `tests/flent.rs`.
    #[test]
    fn a_document_keeps_the_rules_of_the_format() {
        let (result, transfer) = example();
        let document = document(&result, &transfer);
        assert_eq!(document["version"], 4);
        let x_values = document["x_values"].as_array().unwrap();
        let rates = document["results"][SERIES].as_array().unwrap();
        assert_eq!((x_values.len(), rates.len()), (2, 2));
        assert_eq!(
            (x_values[0].as_f64(), x_values[1].as_f64()),
            (Some(0.5), Some(0.82))
        );
        assert!(
            (rates[0].as_f64().unwrap() - 1.6).abs() < 1e-9,
            "100 kB in half a second: {rates:?}"
        );
        let raw = &document["raw_values"][SERIES];
        assert!(
            (raw[0]["t"].as_f64().unwrap() - 1_767_225_600.623).abs() < 1e-3,
            "{raw}"
        );
        assert_eq!(document["metadata"]["T0"], "2026-01-01T00:00:00.123000Z");
    }

    #[test]
    fn the_same_transfer_leaves_the_same_file() {
        let (result, transfer) = example();
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a", "b"].map(|name| {
            let path = folder.path().join(name);
            write(&result, &transfer, &path).unwrap();
            std::fs::read(path).unwrap()
        });
        assert_eq!(first, second);
    }
}
