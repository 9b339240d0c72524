//! Figs. 9 and 10: response times of a file that is asked for shortly before its client disconnects.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use whimbrel_core::{SeededRng, Time};
use whimbrel_mobilityfirst::router::ProxyPolicy;
use whimbrel_node::config::ByteSize;
use whimbrel_sim::link::{LinkSpec, Outage};

use super::{Backend, Comparison, Progress, StudyInput, StudyResult, Table};
use crate::daemons::Fig7Daemons;
use crate::figure::{LineChart, Series};
use crate::simulated::{RepeatingContent, SimulatedFig7, SimulatedFig7Options, simulated_tcp};
use crate::{Fig7, LabError, TcpBaseline, Topology, TransferObserver};

/// Before a simulated request the hosts attach and the content is announced; the schedule counts from here.
const SETTLED: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    file: ByteSize,
    rtt_ms: u64,
    last_hop: LinkSpec,
    /// The link is on for so long, and the file is asked for at a random time in it ...
    on_s: u64,
    /// ... then it is off for so long, once for each of these; then it is on again.
    off_s: Vec<u64>,
    runs: u32,
    /// Who fetches, in the order of the legend.
    rivals: Vec<Rival>,
    /// The receiver-driven client's NACK timer.
    aggressive_nack_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rival {
    /// Proxies send what they store as soon as they can; the client's timer is conservative.
    NetworkProactive,
    /// Proxies wait for a Push; the client's timer is aggressive.
    ReceiverDriven,
    Tcp,
}

impl Rival {
    fn label(self) -> &'static str {
        match self {
            Rival::NetworkProactive => "MFTP",
            Rival::ReceiverDriven => "MFTP, receiver-driven",
            Rival::Tcp => "TCP",
        }
    }
}

/// Response times in seconds, sorted.
struct Distribution {
    off_s: u64,
    rival: Rival,
    times: Vec<f64>,
}

impl Distribution {
    /// Mean of the runs that met the disconnection: those that took as long as it.
    fn mean_of_hit(&self) -> f64 {
        let hit: Vec<f64> = self.times.iter().copied().filter(|time| *time >= self.off_s as f64).collect();
        hit.iter().sum::<f64>() / hit.len().max(1) as f64
    }

    /// The time within which this share of the runs ended.
    fn percentile(&self, percent: f64) -> f64 {
        let rank = (percent / 100.0 * self.times.len() as f64).ceil() as usize;
        self.times.get(rank.clamp(1, self.times.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
    }
}

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let scenario: Scenario = input.scenario()?;
    let all = scenario.off_s.len() * scenario.rivals.len() * scenario.runs as usize;
    let mut done = 0;
    let mut distributions = Vec::new();
    for off_s in &scenario.off_s {
        for rival in &scenario.rivals {
            let mut times = Vec::new();
            for run in 0..scenario.runs {
                progress(done, all, &format!("{} over {off_s} s", rival.label()));
                done += 1;
                let seed = input.options.seed.wrapping_add(u64::from(run));
                // The same moments for every rival, so that they meet the same schedule.
                let mut rng = SeededRng::stream(seed, "time of the request");
                let asked = Duration::from_secs(scenario.on_s).mul_f64(rng.unit());
                times.push(match input.options.backend {
                    Backend::Sim => simulate(&scenario, *off_s, *rival, asked, seed)?,
                    Backend::Netns => {
                        measure(&scenario, *off_s, *rival, asked, seed, &input.options.program)?
                    }
                });
            }
            times.sort_by(f64::total_cmp);
            distributions.push(Distribution { off_s: *off_s, rival: *rival, times });
        }
    }
    progress(all, all, "done");
    Ok(result(input, &scenario, &distributions))
}

fn testbed(scenario: &Scenario, off_s: u64, settled: Duration) -> Fig7 {
    let start = settled + Duration::from_secs(scenario.on_s);
    let outage = Outage::Once { start, duration: Duration::from_secs(off_s) };
    let last_hop = LinkSpec { outages: vec![outage], ..scenario.last_hop.clone() };
    Fig7::new(Duration::from_millis(scenario.rtt_ms), last_hop)
}

fn simulate(
    scenario: &Scenario,
    off_s: u64,
    rival: Rival,
    asked: Duration,
    seed: u64,
) -> Result<f64, LabError> {
    let fig7 = testbed(scenario, off_s, SETTLED);
    let request_at = Time::ZERO + SETTLED + asked;
    let limit = request_at + Duration::from_secs(600);
    if rival == Rival::Tcp {
        return Ok(simulated_tcp(&fig7, scenario.file.0, request_at, limit, seed).finished);
    }
    let mut options = SimulatedFig7Options::default();
    if rival == Rival::ReceiverDriven {
        options.proxy = ProxyPolicy { proactive: false, ..ProxyPolicy::default() };
        options.nack_timeout = Some(Duration::from_millis(scenario.aggressive_nack_ms));
    }
    let mut world = SimulatedFig7::new(&fig7, options, seed);
    let content = RepeatingContent::new(scenario.file.0, 1);
    let name = content.name();
    world.publish(content);
    world.run_until(request_at);
    let transfer = world.get(name);
    let record = world.finish(transfer, limit).map_err(|reason| LabError::BadScenario {
        study: String::from("mftp-fig9"),
        reason: format!("the simulated transfer failed: {reason:?}"),
    })?;
    Ok(record.finished)
}

/// Starts the link's schedule so that the request falls `asked` after its beginning.
struct Schedule<'a> {
    topology: &'a Topology,
    asked: Duration,
}

impl TransferObserver for Schedule<'_> {
    fn started(&mut self, at: Instant) {
        if let Some(fault) = at.checked_sub(self.asked).and_then(|begin| self.topology.arm(begin).err()) {
            tracing::warn!(%fault, "the outage will not come");
        }
    }
}

fn measure(
    scenario: &Scenario,
    off_s: u64,
    rival: Rival,
    asked: Duration,
    seed: u64,
    program: &Path,
) -> Result<f64, LabError> {
    const PATIENCE: Duration = Duration::from_secs(600);
    if rival == Rival::ReceiverDriven {
        return Err(LabError::BadScenario {
            study: String::from("mftp-fig10"),
            reason: String::from("the receiver-driven approach runs in the simulator only"),
        });
    }
    let folder = tempfile::tempdir().map_err(LabError::system("make a temporary folder"))?;
    let file = folder.path().join("file");
    crate::demo::make_file(&file, scenario.file.0, seed)?;
    let topology = testbed(scenario, off_s, Duration::ZERO).build(seed)?;
    let mut schedule = Schedule { topology: &topology, asked };
    let record = if rival == Rival::Tcp {
        let address = topology.address_of("N1", Fig7::SERVER_LINK)?;
        let baseline = TcpBaseline { patience: PATIENCE, ..TcpBaseline::default() };
        baseline.fetch(topology.host("N1")?, address, topology.host("N4")?, &file, &mut schedule)?.record
    } else {
        let mut daemons = Fig7Daemons::start(program, &topology, folder.path())?;
        let name = daemons.serve(&file)?;
        daemons.fetch(&name, &folder.path().join("arrived"), PATIENCE, &mut schedule)?
    };
    Ok(record.finished)
}

fn result(input: &StudyInput<'_>, scenario: &Scenario, distributions: &[Distribution]) -> StudyResult {
    let find = |off_s, rival| distributions.iter().find(|known| known.off_s == off_s && known.rival == rival);
    let mut comparisons: Vec<Comparison> = Vec::new();
    let mut saved = |id: &str, off_s, percent, at_least: f64, slow: Rival| {
        if let (Some(fast), Some(slow)) = (find(off_s, Rival::NetworkProactive), find(off_s, slow)) {
            let saves = slow.percentile(percent) - fast.percentile(percent);
            let ours = format!(
                "{saves:.1} s ({:.1} s and {:.1} s)",
                fast.percentile(percent),
                slow.percentile(percent)
            );
            comparisons.push(input.compare(id, ours, saves >= at_least));
        }
    };
    saved("saves-10s", 10, 60.0, 3.0, Rival::Tcp);
    saved("saves-30s", 30, 70.0, 12.0, Rival::Tcp);
    saved("receiver-driven-tail", 10, 100.0, 0.0, Rival::ReceiverDriven);
    for (id, off_s) in [("saves-when-hit-10s", 10), ("saves-when-hit-30s", 30)] {
        if let (Some(fast), Some(tcp)) = (find(off_s, Rival::NetworkProactive), find(off_s, Rival::Tcp)) {
            let (fast, tcp) = (fast.mean_of_hit(), tcp.mean_of_hit());
            comparisons.push(input.compare(id, format!("{fast:.1} s and {tcp:.1} s"), fast < tcp));
        }
    }
    if let Some(fast) = find(10, Rival::NetworkProactive) {
        let untouched = fast.times.iter().filter(|time| **time < 10.0).count();
        let share = 100.0 * untouched as f64 / fast.times.len().max(1) as f64;
        comparisons.push(input.compare("untouched", format!("{share:.0} %"), (30.0..=70.0).contains(&share)));
    }
    let charts = scenario.off_s.iter().map(|off_s| {
        let series = distributions.iter().filter(|known| known.off_s == *off_s).map(cumulative).collect();
        let chart = LineChart {
            title: format!("Response times, disconnected for {off_s} s"),
            x_label: String::from("response time, s"),
            y_label: String::from("share of the runs"),
            series,
            shaded: Vec::new(),
        };
        (format!("cdf-{off_s}s"), chart)
    });
    let rows = distributions.iter().flat_map(|known| {
        known
            .times
            .iter()
            .map(|time| vec![known.off_s.to_string(), known.rival.label().to_owned(), format!("{time:.4}")])
    });
    StudyResult {
        study: input.study.name.to_owned(),
        backend: input.options.backend,
        scenario: serde_json::to_value(scenario).unwrap_or_default(),
        tables: vec![Table {
            name: String::from("response-times"),
            columns: ["off_s", "rival", "response_time_s"].map(String::from).into(),
            rows: rows.collect(),
        }],
        charts: charts.collect(),
        comparisons,
    }
}

/// A cumulative distribution as steps.
fn cumulative(distribution: &Distribution) -> Series {
    let count = distribution.times.len() as f64;
    let mut points = vec![(0.0, 0.0)];
    for (index, time) in distribution.times.iter().enumerate() {
        points.push((*time, index as f64 / count));
        points.push((*time, (index + 1) as f64 / count));
    }
    Series { label: distribution.rival.label().to_owned(), points }
}
