//! Fig. 8: a large file at several round-trip times, with and without loss on the last hop.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_node::config::ByteSize;
use whimbrel_sim::link::{LinkSpec, Loss};

use super::{Backend, Progress, StudyInput, StudyResult, Table};
use crate::figure::{LineChart, Series};
use crate::{CongestionControl, Fig7, LabError, TransferRecord, fetches};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    /// Of the file, in the simulator and in namespaces.
    file: ByteSize,
    file_netns: ByteSize,
    rtts_ms: Vec<u64>,
    losses_percent: Vec<f64>,
    last_hop: LinkSpec,
    runs: u32,
    /// The profile of Fig. 8 (b).
    instantaneous: Profile,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    rtt_ms: u64,
    loss_percent: f64,
}

/// One profile's transfers, one of each kind a run.
struct Cell {
    profile: Profile,
    mftp: Vec<TransferRecord>,
    tcp: Vec<TransferRecord>,
}

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let scenario: Scenario = input.scenario()?;
    let mut profiles = Vec::new();
    for loss_percent in &scenario.losses_percent {
        profiles.extend(
            scenario.rtts_ms.iter().map(|rtt_ms| Profile { rtt_ms: *rtt_ms, loss_percent: *loss_percent }),
        );
    }
    let all = profiles.len() * scenario.runs as usize;
    let mut cells = Vec::new();
    for profile in profiles {
        let mut cell = Cell { profile, mftp: Vec::new(), tcp: Vec::new() };
        for run in 0..scenario.runs {
            let what = format!("RTT {} ms, loss {} %", profile.rtt_ms, profile.loss_percent);
            progress(cells.len() * scenario.runs as usize + run as usize, all, &what);
            let seed = input.options.seed.wrapping_add(u64::from(run));
            let (mftp, tcp) = match input.options.backend {
                Backend::Sim => simulate(&scenario, profile, seed)?,
                Backend::Netns => measure(&scenario, profile, seed, &input.options.program)?,
            };
            cell.mftp.push(mftp);
            cell.tcp.push(tcp);
        }
        cells.push(cell);
    }
    progress(all, all, "done");
    Ok(result(input, &scenario, &cells))
}

fn testbed(scenario: &Scenario, profile: Profile) -> Fig7 {
    let loss = match profile.loss_percent {
        percent if percent > 0.0 => Loss::Independent(percent / 100.0),
        _ => Loss::None,
    };
    Fig7::new(Duration::from_millis(profile.rtt_ms), scenario.last_hop.clone().with_loss(loss))
}

fn simulate(
    scenario: &Scenario,
    profile: Profile,
    seed: u64,
) -> Result<(TransferRecord, TransferRecord), LabError> {
    let fig7 = testbed(scenario, profile);
    let mftp = fetches::whimbrel_in_simulator(&fig7, scenario.file.0, seed)?;
    Ok((mftp, fetches::tcp_in_simulator(&fig7, scenario.file.0, seed)))
}

fn measure(
    scenario: &Scenario,
    profile: Profile,
    seed: u64,
    program: &Path,
) -> Result<(TransferRecord, TransferRecord), LabError> {
    let folder = tempfile::tempdir().map_err(LabError::system("make a temporary folder"))?;
    let file = folder.path().join("file");
    crate::demo::make_file(&file, scenario.file_netns.0, seed)?;
    let fig7 = testbed(scenario, profile);
    let tcp = fetches::tcp_in_namespaces(CongestionControl::Cubic, &fig7, &file, seed)?;
    Ok((fetches::whimbrel_in_namespaces(program, &fig7, &file, seed)?, tcp))
}

fn mean(records: &[TransferRecord]) -> f64 {
    records.iter().map(TransferRecord::goodput).sum::<f64>() / 1e6 / records.len().max(1) as f64
}

fn result(input: &StudyInput<'_>, scenario: &Scenario, cells: &[Cell]) -> StudyResult {
    let find =
        |rtt_ms, loss_percent| cells.iter().find(|cell| cell.profile == Profile { rtt_ms, loss_percent });
    let table = Table {
        name: String::from("throughput"),
        columns: ["rtt_ms", "loss_percent", "mftp_mbit_s", "tcp_mbit_s", "mftp_over_tcp"]
            .map(String::from)
            .into(),
        rows: cells
            .iter()
            .map(|cell| {
                let (mftp, tcp) = (mean(&cell.mftp), mean(&cell.tcp));
                vec![
                    cell.profile.rtt_ms.to_string(),
                    cell.profile.loss_percent.to_string(),
                    format!("{mftp:.2}"),
                    format!("{tcp:.2}"),
                    format!("{:.2}", mftp / tcp),
                ]
            })
            .collect(),
    };
    let mut comparisons = Vec::new();
    let lossless: Vec<String> = scenario
        .rtts_ms
        .iter()
        .filter_map(|rtt| {
            let cell = find(*rtt, 0.0)?;
            Some(format!("{rtt} ms: {:.2} and {:.2} Mbit/s", mean(&cell.mftp), mean(&cell.tcp)))
        })
        .collect();
    let above = scenario
        .rtts_ms
        .iter()
        .filter_map(|rtt| find(*rtt, 0.0))
        .all(|cell| mean(&cell.mftp) >= mean(&cell.tcp));
    comparisons.push(input.compare("lossless", format!("MFTP and TCP at {}", lossless.join("; ")), above));
    let mut mftp_costs = Vec::new();
    let mut tcp_shares = Vec::new();
    for rtt in &scenario.rtts_ms {
        let (Some(clean), Some(lossy)) = (find(*rtt, 0.0), find(*rtt, 1.0)) else { continue };
        mftp_costs.push((*rtt, 100.0 * (1.0 - mean(&lossy.mftp) / mean(&clean.mftp))));
        tcp_shares.push((*rtt, mean(&lossy.tcp) / mean(&clean.tcp)));
    }
    let said = |list: &[(u64, f64)], unit: &str| {
        let parts: Vec<String> =
            list.iter().map(|(rtt, value)| format!("{rtt} ms: {value:.2}{unit}")).collect();
        parts.join("; ")
    };
    comparisons.push(input.compare(
        "mftp-loss-cost",
        said(&mftp_costs, " %"),
        mftp_costs.iter().all(|(_, cost)| *cost <= 10.0),
    ));
    let quarter =
        tcp_shares.iter().find(|(rtt, _)| *rtt == 50).is_none_or(|(_, share)| (0.15..0.35).contains(share));
    comparisons.push(input.compare("tcp-loss-share", said(&tcp_shares, " of the lossless"), quarter));
    let shown = find(scenario.instantaneous.rtt_ms, scenario.instantaneous.loss_percent);
    let mut charts = vec![(String::from("fig8a"), average_chart(scenario, cells))];
    if let Some(cell) = shown
        && let (Some(mftp), Some(tcp)) = (cell.mftp.first(), cell.tcp.first())
    {
        charts.push((String::from("fig8b"), instantaneous_chart(cell.profile, mftp, tcp)));
        // A chunk arrives in every half second in which the file is on its way, the first and last ones apart.
        let series = mftp.goodput_series(0.5);
        let inner = series.get(2..series.len().saturating_sub(1)).unwrap_or_default();
        let empty = inner.iter().filter(|(_, rate)| *rate == 0.0).count();
        comparisons.push(input.compare(
            "a-chunk-every-500ms",
            format!("{empty} of {} intervals of 500 ms without a chunk", inner.len()),
            empty == 0,
        ));
        comparisons.push(input.compare(
            "tcp-instantaneous",
            format!("{:.2} Mbit/s on average", tcp.goodput() / 1e6),
            (3e6..7e6).contains(&tcp.goodput()),
        ));
    }
    StudyResult {
        study: input.study.name.to_owned(),
        backend: input.options.backend,
        scenario: serde_json::to_value(scenario).unwrap_or_default(),
        comparisons,
        tables: vec![table],
        charts,
    }
}

fn average_chart(scenario: &Scenario, cells: &[Cell]) -> LineChart {
    let mut series = Vec::new();
    for loss in &scenario.losses_percent {
        let of_loss: Vec<&Cell> = cells.iter().filter(|cell| cell.profile.loss_percent == *loss).collect();
        let line = |name: &str, goodput: &dyn Fn(&Cell) -> f64| Series {
            label: format!("{name}, loss {loss} %"),
            points: of_loss.iter().map(|cell| (cell.profile.rtt_ms as f64, goodput(cell))).collect(),
        };
        series.push(line("MFTP", &|cell| mean(&cell.mftp)));
        series.push(line("TCP", &|cell| mean(&cell.tcp)));
    }
    LineChart {
        title: String::from("Fig. 8 (a): average goodput"),
        x_label: String::from("round-trip time between the routers, ms"),
        y_label: String::from("goodput, Mbit/s"),
        series,
        shaded: Vec::new(),
    }
}

fn instantaneous_chart(profile: Profile, mftp: &TransferRecord, tcp: &TransferRecord) -> LineChart {
    // TCP's run is many times as long; the part beside MFTP's says enough.
    let end = mftp.finished * 1.5;
    let line = |label: &str, record: &TransferRecord| Series {
        label: label.to_owned(),
        points: record
            .goodput_series(0.5)
            .into_iter()
            .filter(|(at, _)| *at <= end)
            .map(|(at, rate)| (at, rate / 1e6))
            .collect(),
    };
    LineChart {
        title: format!(
            "Fig. 8 (b): goodput per 500 ms at RTT {} ms and {} % loss",
            profile.rtt_ms, profile.loss_percent
        ),
        x_label: String::from("seconds since the request"),
        y_label: String::from("goodput, Mbit/s"),
        series: vec![line("MFTP", mftp), line("TCP", tcp)],
        shaded: Vec::new(),
    }
}
