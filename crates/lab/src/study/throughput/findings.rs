//! What Fig. 8's transfers say about the paper's statements.

use super::super::result::mean;
use super::super::{Comparison, NamedChart, StudyInput, StudyResult, Table, Transfer};
use super::{Cell, Profile, Setup};
use crate::figure::{LineChart, Series};
use crate::{LabError, TransferRecord};

/// Seconds; as in the paper's Fig. 8 (b).
const INTERVAL: f64 = 0.5;

/// Mbit/s.
fn goodput(records: &[TransferRecord]) -> f64 {
    mean(records.iter().map(TransferRecord::goodput)) / 1e6
}

pub(super) fn result(
    input: &StudyInput<'_>,
    setup: &Setup,
    cells: &[Cell],
    transfers: Vec<Transfer>,
) -> Result<StudyResult, LabError> {
    let mut comparisons = averages(input, cells)?;
    let mut charts = vec![NamedChart {
        name: String::from("fig8a"),
        chart: average_chart(cells),
    }];
    let shown = cells
        .iter()
        .find(|cell| Some(cell.profile) == setup.instantaneous);
    if let Some(cell) = shown
        && let (Some(mftp), Some(tcp)) = (cell.mftp.first(), cell.tcp.first())
    {
        let chart = instantaneous_chart(cell.profile, mftp, tcp);
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
    let row = |cell: &Cell| {
        let (mftp, tcp) = (goodput(&cell.mftp), goodput(&cell.tcp));
        vec![
            cell.profile.rtt_ms.to_string(),
            cell.profile.loss_percent.to_string(),
            format!("{mftp:.2}"),
            format!("{tcp:.2}"),
            format!("{:.2}", mftp / tcp),
            resent(&cell.mftp),
            resent(&cell.tcp),
        ]
    };
    let columns = [
        "RTT, ms",
        "loss, %",
        "MFTP, Mbit/s",
        "TCP, Mbit/s",
        "MFTP / TCP",
        "packets that MFTP sent again",
        "segments that TCP sent again",
    ];
    Table {
        name: String::from("throughput"),
        title: String::from("Mean goodput"),
        columns: columns.map(String::from).into(),
        rows: cells.iter().map(row).collect(),
    }
}

fn averages(input: &StudyInput<'_>, cells: &[Cell]) -> Result<Vec<Comparison>, LabError> {
    let find = |rtt_ms, loss_percent| {
        cells.iter().find(|cell| {
            cell.profile
                == Profile {
                    rtt_ms,
                    loss_percent,
                }
        })
    };
    let clean: Vec<&Cell> = cells
        .iter()
        .filter(|cell| cell.profile.loss_percent == 0.0)
        .collect();
    let listed: Vec<String> = clean
        .iter()
        .map(|cell| {
            let (mftp, tcp) = (goodput(&cell.mftp), goodput(&cell.tcp));
            format!("{} ms: {mftp:.2} and {tcp:.2} Mbit/s", cell.profile.rtt_ms)
        })
        .collect();
    let above = clean
        .iter()
        .all(|cell| goodput(&cell.mftp) >= goodput(&cell.tcp));
    let lossless = format!("MFTP and TCP at {}", listed.join("; "));
    let mut comparisons = vec![input.compare("lossless", "", lossless, above)];

    let mut mftp_costs = Vec::new();
    let mut tcp_shares = Vec::new();
    for cell in clean {
        let rtt = cell.profile.rtt_ms;
        let Some(lossy) = find(rtt, 1.0) else {
            continue;
        };
        mftp_costs.push((
            rtt,
            100.0 * (1.0 - goodput(&lossy.mftp) / goodput(&cell.mftp)),
        ));
        tcp_shares.push((rtt, goodput(&lossy.tcp) / goodput(&cell.tcp)));
    }
    let said = |list: &[(u64, f64)], unit: &str| {
        let parts: Vec<String> = list
            .iter()
            .map(|(rtt, value)| format!("{rtt} ms: {value:.2}{unit}"))
            .collect();
        parts.join("; ")
    };
    let cheap = input.range("mftp-loss-cost")?;
    let cheap = mftp_costs.iter().all(|(_, cost)| cheap.admits(*cost));
    comparisons.push(input.compare("mftp-loss-cost", "", said(&mftp_costs, " %"), cheap));
    let about_a_quarter = input.range("tcp-loss-share")?;
    let quarter = tcp_shares
        .iter()
        .find(|(rtt, _)| *rtt == 50)
        .is_none_or(|(_, share)| about_a_quarter.admits(*share));
    let shares = said(&tcp_shares, " of the lossless");
    comparisons.push(input.compare("tcp-loss-share", "", shares, quarter));
    Ok(comparisons)
}

fn instantaneous(
    input: &StudyInput<'_>,
    mftp: &TransferRecord,
    tcp: &TransferRecord,
) -> Result<Vec<Comparison>, LabError> {
    // The first second holds the first chunk's way over three hops, the last interval is a part of
    // one.
    let series = mftp.goodput_series(INTERVAL);
    let inner = series
        .get(2..series.len().saturating_sub(1))
        .unwrap_or_default();
    let empty = inner.iter().filter(|(_, rate)| *rate == 0.0).count();
    let progress = format!(
        "{empty} of {} intervals of 500 ms without a chunk",
        inner.len()
    );
    let average = tcp.goodput() / 1e6;
    let agrees = input.range("tcp-instantaneous")?.admits(average);
    let average = format!("{average:.2} Mbit/s on average");
    Ok(vec![
        input.compare("a-chunk-every-500ms", "", progress, empty == 0),
        input.compare("tcp-instantaneous", "", average, agrees),
    ])
}

fn average_chart(cells: &[Cell]) -> LineChart {
    let mut series = Vec::new();
    let mut losses: Vec<f64> = cells.iter().map(|cell| cell.profile.loss_percent).collect();
    losses.dedup();
    for loss in &losses {
        let of_loss: Vec<&Cell> = cells
            .iter()
            .filter(|cell| cell.profile.loss_percent == *loss)
            .collect();
        let line = |name: &str, goodput: &dyn Fn(&Cell) -> f64| Series {
            label: format!("{name}, loss {loss} %"),
            points: of_loss
                .iter()
                .map(|cell| (cell.profile.rtt_ms as f64, goodput(cell)))
                // A scenario may leave out one of the two.
                .filter(|(_, goodput)| goodput.is_finite())
                .collect(),
            ..Series::default()
        };
        series.push(line("MFTP", &|cell| goodput(&cell.mftp)));
        series.push(line("TCP", &|cell| goodput(&cell.tcp)));
    }
    LineChart {
        title: String::from("Fig. 8 (a): average goodput"),
        x_label: String::from("round-trip time between the routers, ms"),
        y_label: String::from("goodput, Mbit/s"),
        series,
        ..LineChart::default()
    }
}

fn instantaneous_chart(profile: Profile, mftp: &TransferRecord, tcp: &TransferRecord) -> LineChart {
    // TCP's run is many times as long, and the paper's file takes minutes: the part beside MFTP's,
    // and half a minute of it, say enough.
    let end = (mftp.finished * 1.5).min(30.0);
    let line = |label: &str, record: &TransferRecord| Series {
        label: label.to_owned(),
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
        series: vec![line("MFTP", mftp), line("TCP", tcp)],
        ..LineChart::default()
    }
}
