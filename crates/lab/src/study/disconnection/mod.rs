//! Figs. 9 and 10: response times of a file that is asked for shortly before its client
//! disconnects.

mod findings;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_core::SeededRng;
use whimbrel_core::units::ByteSize;
use whimbrel_sim::link::LinkSpec;

use super::jobs::run_all;
use super::trial::{Approach, Outcome, Trial};
use super::{Backend, Progress, StudyInput, StudyResult, Transfer};
use crate::LabError;

const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    file: ByteSize,
    rtt_ms: u64,
    /// The link is on for so long, and the file is asked for at a random time in it ...
    on_s: u64,
    /// ... then it is off for so long, once for each of these; then it is on again.
    off_s: Vec<u64>,
    /// In the simulator and in namespaces.
    runs: u32,
    runs_netns: u32,
    /// Who fetches, in the order of the legend.
    rivals: Vec<Rival>,
    /// The receiver-driven client's NACK timer; one such client for each.
    nack_timers_ms: Vec<u64>,
    /// The last hop, once for each assumption about it.
    wifi: Vec<Wifi>,
}

/// An assumption about the last hop.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wifi {
    /// A few words, for tables and legends.
    name: String,
    link: LinkSpec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rival {
    NetworkProactive,
    ReceiverDriven,
    Tcp,
}

/// Who fetches: a rival, with its timer if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    NetworkProactive,
    ReceiverDriven { nack_timer_ms: u64 },
    Tcp,
}

impl Client {
    fn title(self) -> String {
        match self {
            Client::NetworkProactive => String::from("MFTP"),
            Client::ReceiverDriven { nack_timer_ms } => {
                format!("MFTP, receiver-driven, {} s", nack_timer_ms as f64 / 1e3)
            }
            Client::Tcp => String::from("TCP"),
        }
    }

    fn label(self) -> String {
        match self {
            Client::NetworkProactive => String::from("mftp"),
            Client::ReceiverDriven { nack_timer_ms } => {
                format!("receiver-driven-{nack_timer_ms}ms")
            }
            Client::Tcp => String::from("tcp"),
        }
    }

    fn approach(self) -> Approach {
        match self {
            Client::NetworkProactive => Approach::Proactive,
            Client::ReceiverDriven { nack_timer_ms } => Approach::ReceiverDriven {
                nack_timeout: Duration::from_millis(nack_timer_ms),
            },
            Client::Tcp => Approach::Tcp,
        }
    }
}

impl Scenario {
    fn clients(&self) -> Vec<Client> {
        let mut clients = Vec::new();
        for rival in &self.rivals {
            match rival {
                Rival::NetworkProactive => clients.push(Client::NetworkProactive),
                Rival::Tcp => clients.push(Client::Tcp),
                Rival::ReceiverDriven => {
                    let timers = self.nack_timers_ms.iter();
                    clients.extend(timers.map(|ms| Client::ReceiverDriven { nack_timer_ms: *ms }));
                }
            }
        }
        clients
    }
}

/// The transfers of one client that meet the same disconnection, in order of their runs.
struct Group {
    off_s: u64,
    /// Index of the assumption about the WiFi.
    wifi: usize,
    client: Client,
    outcomes: Vec<Outcome>,
}

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let scenario: Scenario = input.scenario()?;
    let runs = match input.options.backend {
        Backend::Sim => scenario.runs,
        Backend::Netns => scenario.runs_netns,
    };
    let mut groups = Vec::new();
    for wifi in 0..scenario.wifi.len() {
        for off_s in &scenario.off_s {
            groups.extend(scenario.clients().into_iter().map(|client| Group {
                off_s: *off_s,
                wifi,
                client,
                outcomes: Vec::new(),
            }));
        }
    }
    let trials: Vec<Trial> = groups
        .iter()
        .flat_map(|group| (0..runs).map(|run| trial(input, &scenario, group, run)))
        .collect();
    let outcomes = run_all(&trials, input, progress)?;
    for (group, outcomes) in groups.iter_mut().zip(outcomes.chunks(runs.max(1) as usize)) {
        group.outcomes = outcomes.to_vec();
    }
    let transfers = trials
        .into_iter()
        .zip(outcomes)
        .map(|(trial, outcome)| Transfer {
            label: trial.label,
            title: trial.title,
            record: outcome.record,
        });
    findings::result(input, &scenario, &groups, transfers.collect())
}

fn trial(input: &StudyInput<'_>, scenario: &Scenario, group: &Group, run: u32) -> Trial {
    let seed = input.options.seed.wrapping_add(u64::from(run));
    // The same moments for every rival and back end, so that they meet the same schedule.
    let mut rng = SeededRng::stream(seed, "time of the request");
    let on = Duration::from_secs(scenario.on_s);
    let wifi = &scenario.wifi[group.wifi];
    let (client, off_s) = (group.client, group.off_s);
    Trial {
        label: format!(
            "wifi-{}-off-{off_s}s-{}-run-{:02}",
            group.wifi + 1,
            client.label(),
            run + 1
        ),
        title: format!("{} over {off_s} s, {}", client.title(), wifi.name),
        approach: client.approach(),
        file_len: scenario.file.0,
        rtt: Duration::from_millis(scenario.rtt_ms),
        last_hop: wifi.link.clone(),
        off: Some((on, Duration::from_secs(off_s))),
        asked: on.mul_f64(rng.unit()),
        seed,
        patience: PATIENCE,
    }
}
