//! Fig. 8: a large file at several round-trip times, with and without loss on the last hop.

mod findings;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_core::units::ByteSize;
use whimbrel_sim::link::{LinkSpec, Loss};

use super::jobs::run_all;
use super::trial::{Approach, Trial};
use super::{Backend, Progress, StudyInput, StudyResult, Transfer};
use crate::{LabError, TransferRecord};

/// Longer than TCP takes for the paper's file at 100 ms and 1 % loss.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    /// Of the file, in the simulator and in namespaces.
    file: ByteSize,
    file_netns: ByteSize,
    rtts_ms: Vec<u64>,
    losses_percent: Vec<f64>,
    runs: u32,
    last_hop: LinkSpec,
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
        profiles.extend(scenario.rtts_ms.iter().map(|rtt_ms| Profile {
            rtt_ms: *rtt_ms,
            loss_percent: *loss_percent,
        }));
    }
    let mut trials = Vec::new();
    for profile in &profiles {
        for approach in [Approach::Proactive, Approach::Tcp] {
            trials.extend(
                (0..scenario.runs).map(|run| trial(input, &scenario, *profile, approach, run)),
            );
        }
    }
    let outcomes = run_all(&trials, input, progress)?;
    let records: Vec<TransferRecord> = outcomes.into_iter().map(|outcome| outcome.record).collect();
    let runs = scenario.runs as usize;
    let mut each = records.chunks(runs.max(1)).map(<[TransferRecord]>::to_vec);
    let cells: Vec<Cell> = profiles
        .into_iter()
        .map(|profile| {
            let mut next = || each.next().unwrap_or_default();
            Cell {
                profile,
                mftp: next(),
                tcp: next(),
            }
        })
        .collect();
    let transfers = trials.into_iter().zip(records);
    let transfers = transfers.map(|(trial, record)| Transfer {
        label: trial.label,
        title: trial.title,
        record,
    });
    findings::result(input, &scenario, &cells, transfers.collect())
}

fn trial(
    input: &StudyInput<'_>,
    scenario: &Scenario,
    profile: Profile,
    approach: Approach,
    run: u32,
) -> Trial {
    let Profile {
        rtt_ms,
        loss_percent,
    } = profile;
    let loss = if loss_percent > 0.0 {
        Loss::Independent(loss_percent / 100.0)
    } else {
        Loss::None
    };
    let name = if approach == Approach::Tcp {
        "TCP"
    } else {
        "MFTP"
    };
    let run_label = format!("run-{}", run + 1);
    Trial {
        label: format!(
            "rtt-{rtt_ms}ms-loss-{loss_percent}-{}-{run_label}",
            name.to_lowercase()
        )
        .replace('.', "_"),
        title: format!("{name}, RTT {rtt_ms} ms, loss {loss_percent} %"),
        approach,
        file_len: match input.options.backend {
            Backend::Sim => scenario.file.0,
            Backend::Netns => scenario.file_netns.0,
        },
        rtt: Duration::from_millis(rtt_ms),
        last_hop: scenario.last_hop.clone().with_loss(loss),
        off: None,
        asked: Duration::ZERO,
        seed: input.options.seed.wrapping_add(u64::from(run)),
        patience: PATIENCE,
    }
}
