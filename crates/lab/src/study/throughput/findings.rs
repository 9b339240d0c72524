//! Fig. 8's transfers compared with the paper's statements.

use super::super::result::mean;
use super::super::{Comparison, NamedChart, StudyInput, StudyResult, Table, Transfer};
use super::{Cell, Profile, ThroughputSetup};
use crate::figure::{LineChart, Series};
use crate::{LabError, TransferRecord};

/// Length of an interval in seconds, as in the paper's Fig. 8 (b).
const INTERVAL: f64 = 0.5;

/// Returns the mean goodput in Mbit/s.
fn goodput(records: &[TransferRecord]) -> f64 {
    mean(records.iter().map(TransferRecord::goodput)) / 1e6
}

pub(super) fn result(
    input: &StudyInput<'_>,
    setup: &ThroughputSetup,
    cells: &[Cell],
    transfers: Vec<Transfer>,
) -> Result<StudyResult, LabError> {
    let mut comparisons = averages(input, cells)?;
    let mut charts = vec![
        NamedChart {
            name: String::from("fig8a"),
            chart: average_chart(input, cells),
        },
        NamedChart {
            name: String::from("loss-share"),
            chart: share_chart(input, cells),
        },
    ];
    let shown = cells
        .iter()
        .find(|cell| Some(cell.profile) == setup.instantaneous);
    if let Some(cell) = shown
        && let (Some(mftp), Some(tcp)) = (cell.mftp.first(), cell.tcp.first())
    {
        let chart = instantaneous_chart(input, cell.profile, mftp, tcp);
        charts.push(NamedChart {
            name: String::from("fig8b"),
            chart,
        });
        comparisons.extend(instantaneous(input, mftp, tcp)?);
    }
    input.result(
        setup.text.clone(),
        comparisons,
        vec![table(cells)],
        charts,
        transfers,
    )
}

fn table(cells: &[Cell]) -> Table {
    let resent = |records: &[TransferRecord]| {
        let counts: Option<Vec<u64>> = records
            .iter()
            .map(|record| record.retransmitted_segments)
            .collect();
        counts.map_or(String::from("-"), |counts| {
            format!("{:.0}", mean(counts.into_iter().map(|count| count as f64)))
        })
    };
    fn unpaced(cell: &Cell, text: impl Fn(&[TransferRecord]) -> String) -> String {
        match cell.unpaced.as_slice() {
            [] => String::from("-"),
            records => text(records),
        }
    }
    let row = |cell: &Cell| {
        let (mftp, tcp) = (goodput(&cell.mftp), goodput(&cell.tcp));
        vec![
            cell.profile.rtt_ms.to_string(),
            cell.profile.loss_percent.to_string(),
            format!("{mftp:.2}"),
            unpaced(cell, |records| format!("{:.2}", goodput(records))),
            format!("{tcp:.2}"),
            format!("{:.2}", mftp / tcp),
            resent(&cell.mftp),
            unpaced(cell, resent),
            resent(&cell.tcp),
        ]
    };
    let columns = [
        "RTT, ms",
        "loss, %",
        "MFTP, Mbit/s",
        "MFTP unpaced, Mbit/s",
        "TCP, Mbit/s",
        "MFTP / TCP",
        "packets sent again by MFTP",
        "by MFTP unpaced",
        "segments sent again by TCP",
    ];
    Table {
        name: String::from("throughput"),
        title: String::from("Mean goodput"),
        columns: columns.map(String::from).into(),
        rows: cells.iter().map(row).collect(),
    }
}

/// Returns goodput with 1 % loss as a share of that without, by round-trip time.
fn shares(cells: &[Cell]) -> Vec<(u64, [f64; 2])> {
    let clean = cells.iter().filter(|cell| cell.profile.loss_percent == 0.0);
    clean
        .filter_map(|clean| {
            let profile = Profile {
                loss_percent: 1.0,
                ..clean.profile
            };
            let lossy = cells.iter().find(|cell| cell.profile == profile)?;
            let share =
                |of: fn(&Cell) -> &[TransferRecord]| goodput(of(lossy)) / goodput(of(clean));
            let shares = [share(|cell| &cell.mftp), share(|cell| &cell.tcp)];
            Some((clean.profile.rtt_ms, shares))
        })
        .collect()
}

fn averages(input: &StudyInput<'_>, cells: &[Cell]) -> Result<Vec<Comparison>, LabError> {
    let clean: Vec<&Cell> = cells
        .iter()
        .filter(|cell| cell.profile.loss_percent == 0.0)
        .collect();
    let above = clean
        .iter()
        .all(|cell| goodput(&cell.mftp) >= goodput(&cell.tcp));
    let goodputs = clean.iter().flat_map(|cell| {
        let at = |name: &str| format!("{} ms, {name}, Mbit/s", cell.profile.rtt_ms);
        [
            (at("MFTP"), goodput(&cell.mftp)),
            (at("TCP"), goodput(&cell.tcp)),
        ]
    });
    let goodputs: Vec<(String, f64)> = goodputs.collect();
    let goodputs: Vec<_> = goodputs
        .iter()
        .map(|(at, goodput)| (at.as_str(), *goodput, 2))
        .collect();
    let mut comparisons = vec![input.compare_numbers("lossless", "", above, 0, &goodputs)];
    let cheap = input.range("mftp-loss-cost")?;
    let about_a_quarter = input.range("tcp-loss-share")?;
    let shares = shares(cells);
    let costs: Vec<(String, f64)> = shares
        .iter()
        .map(|(rtt, [mftp, _])| (format!("{rtt} ms, %"), 100.0 * (1.0 - mftp)))
        .collect();
    let agrees = costs.iter().all(|(_, cost)| cheap.admits(*cost));
    let costs: Vec<_> = costs
        .iter()
        .map(|(at, cost)| (at.as_str(), *cost, 1))
        .collect();
    // The paper says the same of every round-trip time.
    let all = costs.len();
    comparisons.push(input.compare_numbers("mftp-loss-cost", "", agrees, all, &costs));
    // The paper has this number for 50 ms alone.
    for (rtt, [_, tcp]) in shares.iter().filter(|(rtt, _)| *rtt == 50) {
        let at = format!("{rtt} ms, share");
        let numbers = [(at.as_str(), *tcp, 2)];
        let agrees = about_a_quarter.admits(*tcp);
        comparisons.push(input.compare_numbers("tcp-loss-share", "", agrees, 1, &numbers));
    }
    Ok(comparisons)
}

fn instantaneous(
    input: &StudyInput<'_>,
    mftp: &TransferRecord,
    tcp: &TransferRecord,
) -> Result<Vec<Comparison>, LabError> {
    // The first second holds the first chunk's way over three hops, and the last interval is
    // incomplete.
    let series = mftp.goodput_series(INTERVAL);
    let inner = series
        .get(2..series.len().saturating_sub(1))
        .unwrap_or_default();
    let empty = inner.iter().filter(|(_, rate)| *rate == 0.0).count();
    let progress = [
        ("intervals of 500 ms without a chunk", empty as f64, 0),
        ("intervals", inner.len() as f64, 0),
    ];
    let average = tcp.goodput() / 1e6;
    let agrees = input.range("tcp-instantaneous")?.admits(average);
    let average = [("average, Mbit/s", average, 2)];
    Ok(vec![
        input.compare_numbers("a-chunk-every-500ms", "", empty == 0, 1, &progress),
        input.compare_numbers("tcp-instantaneous", "", agrees, 1, &average),
    ])
}

fn average_chart(input: &StudyInput<'_>, cells: &[Cell]) -> LineChart {
    let mut series = Vec::new();
    let mut losses: Vec<f64> = cells.iter().map(|cell| cell.profile.loss_percent).collect();
    losses.dedup();
    for loss in &losses {
        let of_loss: Vec<&Cell> = cells
            .iter()
            .filter(|cell| cell.profile.loss_percent == *loss)
            .collect();
        let line = |name: &str, goodput: &dyn Fn(&Cell) -> f64, paper| Series {
            label: format!("{name}, loss {loss} %"),
            points: of_loss
                .iter()
                .map(|cell| (cell.profile.rtt_ms as f64, goodput(cell)))
                // A scenario may leave out one of the two.
                .filter(|(_, goodput)| goodput.is_finite())
                .collect(),
            paper,
            ..Series::default()
        };
        // The paper's text has one number of the figure: TCP's at 50 ms and 1 %.
        let tcp = input
            .value("tcp-instantaneous")
            .filter(|_| *loss == 1.0)
            .map(|level| (50.0, level));
        series.push(line("MFTP", &|cell| goodput(&cell.mftp), Vec::new()));
        if of_loss.iter().any(|cell| !cell.unpaced.is_empty()) {
            let unpaced = |cell: &Cell| goodput(&cell.unpaced);
            series.push(line("MFTP unpaced", &unpaced, Vec::new()));
        }
        series.push(line("TCP", &|cell| goodput(&cell.tcp), Vec::from_iter(tcp)));
    }
    LineChart {
        title: String::from("Fig. 8 (a): average goodput"),
        x_label: String::from("round-trip time between the routers, ms"),
        y_label: String::from("goodput, Mbit/s"),
        series,
        ..LineChart::default()
    }
}

/// Returns the chart of the cost of loss, for which the paper's text has numbers.
fn share_chart(input: &StudyInput<'_>, cells: &[Cell]) -> LineChart {
    let shares = shares(cells);
    let line = |label: &str, which: usize, paper: Vec<(f64, f64)>| Series {
        label: label.to_owned(),
        points: shares
            .iter()
            .map(|(rtt, shares)| (*rtt as f64, 100.0 * shares[which]))
            .collect(),
        paper,
        ..Series::default()
    };
    let cost = input.value("mftp-loss-cost");
    let mftp = shares
        .iter()
        .filter_map(|(rtt, _)| Some((*rtt as f64, 100.0 - cost?)));
    let tcp = input.value("tcp-loss-share");
    let tcp = tcp.map(|share| (50.0, 100.0 * share));
    LineChart {
        title: String::from("Goodput with 1 % loss, of that without"),
        x_label: String::from("round-trip time between the routers, ms"),
        y_label: String::from("share, %"),
        series: vec![
            line("MFTP", 0, mftp.collect()),
            line("TCP", 1, Vec::from_iter(tcp)),
        ],
        ..LineChart::default()
    }
}

fn instantaneous_chart(
    input: &StudyInput<'_>,
    profile: Profile,
    mftp: &TransferRecord,
    tcp: &TransferRecord,
) -> LineChart {
    // TCP's run takes many times as long, and the paper's file takes minutes: the part beside
    // MFTP's, or half a minute of it, is enough.
    let end = (mftp.finished * 1.5).min(30.0);
    // The level that the paper's TCP keeps throughout.
    let level = input.value("tcp-instantaneous");
    let marks = 1..=5;
    let level = marks.filter_map(|mark| Some((end * f64::from(mark) / 6.0, level?)));
    let line = |label: &str, record: &TransferRecord, paper| Series {
        label: label.to_owned(),
        paper,
        points: record
            .goodput_series(INTERVAL)
            .into_iter()
            .filter(|(at, _)| *at <= end)
            .map(|(at, rate)| (at, rate / 1e6))
            .collect(),
        ..Series::default()
    };
    LineChart {
        title: format!(
            "Fig. 8 (b): goodput per 500 ms at RTT {} ms and {} % loss",
            profile.rtt_ms, profile.loss_percent
        ),
        x_label: String::from("seconds since the request"),
        y_label: String::from("goodput, Mbit/s"),
        series: vec![
            line("MFTP", mftp, Vec::new()),
            line("TCP", tcp, level.collect()),
        ],
        ..LineChart::default()
    }
}
