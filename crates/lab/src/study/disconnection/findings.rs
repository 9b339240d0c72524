//! The transfers of Figs. 9 and 10 compared with the paper's statements.

use super::super::result::mean;
use super::super::trial::ProxyUse;
use super::super::{Comparison, NamedChart, StudyInput, StudyResult, Table, Transfer};
use super::{Client, Group, Setup};
use crate::LabError;
use crate::figure::{LineChart, Series};

/// The paper's statements about savings: their ids, the seconds off, and the percentile.
const SAVINGS: [(&str, u64, f64); 2] = [("saves-10s", 10, 60.0), ("saves-30s", 30, 70.0)];

/// Clients of MFTP that the paper's statements are about: a file by its name, and, as the paper has it, by HTTP.
const OURS: [Client; 2] = [Client::NetworkProactive, Client::HttpProxies];

impl Client {
    /// Returns a comparison's case for this client.
    fn case(self, case: &str) -> String {
        match (self, case) {
            (Client::HttpProxies, "") => String::from("HTTP proxies"),
            (Client::HttpProxies, case) => format!("{case}, HTTP proxies"),
            _ => case.to_owned(),
        }
    }
}

/// Response times of one rival.
struct Distribution<'a> {
    group: &'a Group,
    /// Seconds, sorted.
    times: Vec<f64>,
}

impl<'a> Distribution<'a> {
    fn of(group: &'a Group) -> Distribution<'a> {
        let mut times: Vec<f64> = group
            .outcomes
            .iter()
            .map(|outcome| outcome.record.finished)
            .collect();
        times.sort_by(f64::total_cmp);
        Distribution { group, times }
    }

    /// Returns the runs that ended before the disconnection and those that met it. Section 5.2
    /// distinguishes them so: "all the transfers having a response time of less than 10 seconds are
    /// completed before the disconnection".
    fn split(&self) -> (&[f64], &[f64]) {
        self.times.split_at(
            self.times
                .partition_point(|time| *time < self.group.off_s as f64),
        )
    }

    fn mean_of_hit(&self) -> f64 {
        mean(self.split().1.iter().copied())
    }

    /// Returns the time within which this share of the runs ended; `NaN` without runs.
    fn percentile(&self, percent: f64) -> f64 {
        let rank = (percent / 100.0 * self.times.len() as f64).ceil() as usize;
        self.times.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
    }
}

pub(super) fn result(
    input: &StudyInput<'_>,
    setup: &Setup,
    groups: &[Group],
    transfers: Vec<Transfer>,
) -> Result<StudyResult, LabError> {
    let distributions: Vec<Distribution<'_>> = groups.iter().map(Distribution::of).collect();
    let mut comparisons = Vec::new();
    let mut charts = Vec::new();
    for (index, wifi) in setup.wifi.iter().enumerate() {
        let of_wifi: Vec<&Distribution<'_>> = distributions
            .iter()
            .filter(|known| known.group.wifi == index)
            .collect();
        let case = if setup.wifi.len() > 1 {
            wifi.as_str()
        } else {
            ""
        };
        comparisons.extend(compare(input, setup, case, &of_wifi)?);
        charts.extend(setup.off_s.iter().map(|off_s| {
            let of_off: Vec<&Distribution<'_>> = of_wifi
                .iter()
                .copied()
                .filter(|known| known.group.off_s == *off_s)
                .collect();
            let name = format!("cdf-{off_s}s-wifi-{}", index + 1);
            NamedChart {
                name,
                chart: chart(input, *off_s, case, &of_off),
            }
        }));
        if setup.clients.contains(&Client::Tcp) {
            charts.push(NamedChart {
                name: format!("saved-wifi-{}", index + 1),
                chart: saved_chart(input, setup, case, &of_wifi),
            });
        }
    }
    let tables = vec![summary(setup, &distributions), all_times(setup, groups)];
    input.result(setup.text.clone(), comparisons, tables, charts, transfers)
}

/// Compares one assumption's distributions with the paper's statements.
fn compare(
    input: &StudyInput<'_>,
    setup: &Setup,
    case: &str,
    distributions: &[&Distribution<'_>],
) -> Result<Vec<Comparison>, LabError> {
    let find = |off_s, client| find(distributions, off_s, client);
    let mut comparisons = Vec::new();
    let mut saved = |id: &str,
                     case: &str,
                     percent: f64,
                     agrees: &dyn Fn(f64) -> bool,
                     rivals: [Option<&&Distribution<'_>>; 2]| {
        if let [Some(fast), Some(slow)] = rivals {
            let other = match slow.group.client {
                Client::Tcp => "TCP, s",
                _ => "receiver-driven, s",
            };
            let (fast, slow) = (fast.percentile(percent), slow.percentile(percent));
            let numbers = [
                ("saved, s", tenths(slow - fast), 1),
                ("network-proactive, s", fast, 1),
                (other, slow, 1),
            ];
            let agrees = agrees(slow - fast);
            comparisons.push(input.compare_numbers(id, case, agrees, 1, &numbers));
        }
    };
    if setup.clients.contains(&Client::Tcp) {
        for (id, off_s, percent) in SAVINGS {
            // Fig. 10 has no statement about TCP.
            if input.statement(id).is_none() {
                continue;
            }
            let range = input.range(id)?;
            for client in OURS {
                saved(
                    id,
                    &client.case(case),
                    percent,
                    &|ours| range.admits(ours),
                    [find(off_s, client), find(off_s, Client::Tcp)],
                );
            }
        }
    }
    let timers: Vec<u64> = setup
        .clients
        .iter()
        .filter_map(|client| client.timer())
        .collect();
    for nack_timer_ms in timers.iter().copied() {
        let timer = nack_timer_ms as f64 / 1e3;
        let case = format!("{case}, NACK timer {timer} s");
        let client = Client::ReceiverDriven { nack_timer_ms };
        // A tail shows in the slowest run. A wait of less than half the timer is not one for the
        // timer.
        saved(
            "receiver-driven-tail",
            case.trim_start_matches(", "),
            100.0,
            &|ours| ours >= timer / 2.0,
            [find(10, Client::NetworkProactive), find(10, client)],
        );
    }
    for nack_timer_ms in timers {
        let client = Client::ReceiverDriven { nack_timer_ms };
        let case = format!("{case}, NACK timer {} s", nack_timer_ms as f64 / 1e3);
        let case = case.trim_start_matches(", ");
        comparisons.extend(find(10, client).map(|slow| proxy_use(input, case, slow)));
    }
    for client in OURS {
        comparisons.extend(saved_when_hit(input, case, client, distributions));
    }
    if let Some(mftp) = find(10, Client::NetworkProactive) {
        comparisons.push(untouched(input, setup, case, mftp)?);
    }
    Ok(comparisons)
}

/// Returns the distribution of a client's times with outages of this many seconds.
fn find<'d, 's>(
    distributions: &'d [&'d Distribution<'s>],
    off_s: u64,
    client: Client,
) -> Option<&'d &'d Distribution<'s>> {
    let mut found = distributions.iter();
    found.find(|known| known.group.off_s == off_s && known.group.client == client)
}

/// Compares the savings of a client of MFTP in runs that met an outage.
fn saved_when_hit(
    input: &StudyInput<'_>,
    case: &str,
    client: Client,
    distributions: &[&Distribution<'_>],
) -> Vec<Comparison> {
    let find = |off_s, client| find(distributions, off_s, client);
    let mut comparisons = Vec::new();
    for (id, off_s) in [("saves-when-hit-10s", 10), ("saves-when-hit-30s", 30)] {
        if let (Some(fast), Some(tcp)) = (find(off_s, client), find(off_s, Client::Tcp)) {
            let runs = fast.split().1.len();
            let (fast, tcp) = (fast.mean_of_hit(), tcp.mean_of_hit());
            let numbers = [
                ("saved, s", tenths(tcp - fast), 1),
                ("MFTP, s", fast, 1),
                ("TCP, s", tcp, 1),
                ("runs", runs as f64, 0),
            ];
            let case = client.case(case);
            comparisons.push(input.compare_numbers(id, &case, fast < tcp, 1, &numbers));
        }
    }
    comparisons
}

/// Rounds to a tenth, without "-0.0".
fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0 + 0.0
}

/// Returns the comparison of the proxy's share in the receiver-driven runs.
fn proxy_use(input: &StudyInput<'_>, case: &str, receiver_driven: &Distribution<'_>) -> Comparison {
    let proxies = || {
        receiver_driven
            .group
            .outcomes
            .iter()
            .filter_map(|outcome| outcome.proxy)
    };
    let stored: u64 = proxies().map(|proxy| proxy.stored).sum();
    let pushed: u64 = proxies().map(|proxy| proxy.pushed).sum();
    let hit = receiver_driven.split().1.len();
    let numbers = [
        ("chunks stored", stored as f64, 0),
        ("chunks forwarded at a Push", pushed as f64, 0),
        ("runs that met the disconnection", hit as f64, 0),
    ];
    let agrees = stored > 0 && pushed > 0;
    input.compare_numbers("receiver-driven-proxy", case, agrees, 1, &numbers)
}

fn untouched(
    input: &StudyInput<'_>,
    setup: &Setup,
    case: &str,
    mftp: &Distribution<'_>,
) -> Result<Comparison, LabError> {
    let (before, all) = (mftp.split().0, mftp.times.len());
    let share = 100.0 * before.len() as f64 / all.max(1) as f64;
    let typical = before.get(before.len() / 2).copied().unwrap_or(f64::NAN);
    // A request at a uniformly random moment ends in time unless it comes within `typical` of the
    // end.
    let expected = 100.0 * (1.0 - typical / setup.on_s).max(0.0);
    let numbers = [
        ("share, %", share, 0),
        (
            "expected share, %",
            if typical.is_nan() { typical } else { expected },
            0,
        ),
        ("a transfer without a disconnection, s", typical, 1),
        ("runs", all as f64, 0),
    ];
    let agrees = input.range("untouched")?.admits(share);
    Ok(input.compare_numbers("untouched", case, agrees, 1, &numbers))
}

/// Returns the chart of MFTP's savings against TCP at each percentile of the response times; the
/// paper's text has two such numbers.
fn saved_chart(
    input: &StudyInput<'_>,
    setup: &Setup,
    case: &str,
    distributions: &[&Distribution<'_>],
) -> LineChart {
    let series = setup.off_s.iter().filter_map(|off_s| {
        let find = |client| {
            let mut known = distributions.iter();
            known.find(|known| known.group.off_s == *off_s && known.group.client == client)
        };
        let (mftp, tcp) = (find(Client::NetworkProactive)?, find(Client::Tcp)?);
        let percents = (1..=20).map(|step| f64::from(5 * step));
        let paper = SAVINGS
            .into_iter()
            .filter(|(_, known, _)| known == off_s)
            .filter_map(|(id, _, percent)| Some((percent, input.value(id)?)));
        Some(Series {
            label: format!("{off_s} s off"),
            points: percents
                .map(|percent| (percent, tcp.percentile(percent) - mftp.percentile(percent)))
                .collect(),
            paper: paper.collect(),
            ..Series::default()
        })
    });
    LineChart {
        title: titled("Response time that MFTP saves against TCP", case),
        x_label: String::from("percentile of the runs"),
        y_label: String::from("saved, s"),
        series: series.collect(),
        ..LineChart::default()
    }
}

/// Returns a chart's title, with the assumption that it holds for.
fn titled(title: &str, case: &str) -> String {
    match case {
        "" => title.to_owned(),
        case => format!("{title}, {case}"),
    }
}

fn chart(
    input: &StudyInput<'_>,
    off_s: u64,
    case: &str,
    distributions: &[&Distribution<'_>],
) -> LineChart {
    let slowest = distributions
        .iter()
        .filter_map(|known| known.times.last().copied())
        .fold(0.0, f64::max);
    // The paper's text has one point of the curves: where they meet the disconnection.
    let met = input.value("untouched").filter(|_| off_s == 10);
    let met = met.map(|percent| (10.0, percent / 100.0));
    LineChart {
        title: titled(&format!("Response times, disconnected for {off_s} s"), case),
        x_label: String::from("response time, s"),
        y_label: String::from("share of the runs"),
        series: distributions
            .iter()
            .map(|known| Series {
                paper: match known.group.client {
                    Client::NetworkProactive => Vec::from_iter(met),
                    _ => Vec::new(),
                },
                ..cumulative(known, slowest)
            })
            .collect(),
        ..LineChart::default()
    }
}

/// Returns a cumulative distribution as steps, up to `end`.
fn cumulative(distribution: &Distribution<'_>, end: f64) -> Series {
    let count = distribution.times.len() as f64;
    let mut points = vec![(0.0, 0.0)];
    for (index, time) in distribution.times.iter().enumerate() {
        points.push((*time, index as f64 / count));
        points.push((*time, (index + 1) as f64 / count));
    }
    points.push((end, points.last().map_or(0.0, |last| last.1)));
    Series {
        label: distribution.group.client.title(),
        points,
        ..Series::default()
    }
}

fn summary(setup: &Setup, distributions: &[Distribution<'_>]) -> Table {
    let columns = [
        "off, s",
        "WiFi",
        "who",
        "runs",
        "met it",
        "median, s",
        "60 %, s",
        "70 %, s",
        "slowest, s",
    ];
    let row = |known: &Distribution<'_>| {
        let mut cells = vec![
            known.group.off_s.to_string(),
            setup.wifi[known.group.wifi].clone(),
            known.group.client.title(),
            known.times.len().to_string(),
            known.split().1.len().to_string(),
        ];
        cells.extend(
            [50.0, 60.0, 70.0, 100.0].map(|percent| format!("{:.2}", known.percentile(percent))),
        );
        cells
    };
    Table {
        name: String::from("percentiles"),
        title: String::from("Response times: percentiles"),
        columns: columns.map(String::from).into(),
        rows: distributions.iter().map(row).collect(),
    }
}

fn all_times(setup: &Setup, groups: &[Group]) -> Table {
    let columns = [
        "off, s",
        "WiFi",
        "who",
        "run",
        "response time, s",
        "chunks stored at N3",
        "forwarded when possible",
        "forwarded at a Push",
        "complete",
    ];
    let rows = groups.iter().flat_map(|group| {
        group.outcomes.iter().enumerate().map(|(run, outcome)| {
            let record = &outcome.record;
            let proxy = |count: fn(&ProxyUse) -> u64| {
                outcome
                    .proxy
                    .as_ref()
                    .map_or(String::from("-"), |proxy| count(proxy).to_string())
            };
            vec![
                group.off_s.to_string(),
                setup.wifi[group.wifi].clone(),
                group.client.title(),
                (run + 1).to_string(),
                format!("{:.4}", record.finished),
                proxy(|proxy| proxy.stored),
                proxy(|proxy| proxy.released),
                proxy(|proxy| proxy.pushed),
                if record.completed { "yes" } else { "no" }.to_owned(),
            ]
        })
    });
    Table {
        name: String::from("response-times"),
        title: String::from("Response times of all runs"),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}
