//! Fig. 8: a large file at several round-trip times, with and without loss on the last hop.

mod findings;

use serde::Deserialize;

use super::jobs::run_kept;
use super::trial::Trial;
use super::{Progress, StudyInput, StudyResult, Transfer};
use crate::scenario::{Scenario, Setting};
use crate::{LabError, TransferRecord};

/// The section `[study]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// The profile of Fig. 8 (b), by its values in the sweep.
    instantaneous: Option<Shown>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    loss: String,
    rtt: String,
}

/// The context of the findings beside the transfers.
struct ThroughputSetup {
    text: String,
    instantaneous: Option<Profile>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Profile {
    rtt_ms: u64,
    loss_percent: f64,
}

impl Profile {
    /// Parses names such as "50 ms" and "1 %".
    fn of(rtt: &str, loss: &str) -> Option<Profile> {
        Some(Profile {
            rtt_ms: rtt.strip_suffix(" ms")?.parse().ok()?,
            loss_percent: loss.strip_suffix(" %")?.parse().ok()?,
        })
    }
}

/// One profile's transfers, one of each kind per run.
struct Cell {
    profile: Profile,
    mftp: Vec<TransferRecord>,
    /// MFTP without a law of rate; empty if the scenario leaves it out.
    unpaced: Vec<TransferRecord>,
    tcp: Vec<TransferRecord>,
}

impl Cell {
    fn of(&mut self, by: By) -> &mut Vec<TransferRecord> {
        match by {
            By::Mftp => &mut self.mftp,
            By::Unpaced => &mut self.unpaced,
            By::Tcp => &mut self.tcp,
        }
    }
}

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let section: Section = scenario.study()?;
    let places: Vec<Place<'_>> = scenario
        .settings
        .iter()
        .map(|setting| Place::of(setting).ok_or_else(|| input.bad(EXPECTED.to_owned())))
        .collect::<Result<_, _>>()?;
    let trials: Vec<Trial<'_>> = places
        .iter()
        .flat_map(|place| (0..scenario.runs).map(|run| place.trial(run)))
        .collect();
    let outcomes = run_kept(&trials, input, progress)?;
    let records: Vec<TransferRecord> = outcomes.into_iter().map(|outcome| outcome.record).collect();
    let cells = cells(&scenario, &places, &records);
    let transfers = trials.into_iter().zip(records);
    let transfers = transfers.map(|(trial, record)| Transfer {
        label: trial.label,
        title: trial.title,
        record,
    });
    let shown = section.instantaneous;
    let setup = ThroughputSetup {
        text: scenario.text.clone(),
        instantaneous: shown.and_then(|shown| Profile::of(&shown.rtt, &shown.loss)),
    };
    findings::result(input, &setup, &cells, transfers.collect())
}

const EXPECTED: &str = "this study sweeps loss (\"1 %\", ...), rtt (\"50 ms\", ...) and by (mftp, unpaced, tcp), by these names";

/// What carries a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Mftp,
    /// As the paper has it: the neighbour's window alone bounds what a hop sends.
    Unpaced,
    Tcp,
}

/// A setting with its profile.
struct Place<'a> {
    setting: &'a Setting,
    profile: Profile,
    by: By,
}

impl<'a> Place<'a> {
    fn of(setting: &'a Setting) -> Option<Place<'a>> {
        Some(Place {
            setting,
            profile: Profile::of(setting.value("rtt")?, setting.value("loss")?)?,
            by: match setting.value("by")? {
                "mftp" => By::Mftp,
                "unpaced" => By::Unpaced,
                "tcp" => By::Tcp,
                _ => return None,
            },
        })
    }

    fn trial(&self, run: u32) -> Trial<'a> {
        let Profile {
            rtt_ms,
            loss_percent,
        } = self.profile;
        let name = match self.by {
            By::Mftp => "MFTP",
            By::Unpaced => "MFTP unpaced",
            By::Tcp => "TCP",
        };
        Trial {
            label: format!(
                "rtt-{rtt_ms}ms-loss-{loss_percent}-{}-run-{}",
                name.to_lowercase().replace(' ', "-"),
                run + 1
            )
            .replace('.', "_"),
            title: format!("{name}, RTT {rtt_ms} ms, loss {loss_percent} %"),
            plan: &self.setting.plan,
            seed: self.setting.plan.seed.wrapping_add(u64::from(run)),
        }
    }
}

/// Returns the records of each profile, in the order of the sweep.
fn cells(scenario: &Scenario, places: &[Place<'_>], records: &[TransferRecord]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for (place, records) in places.iter().zip(records.chunks(scenario.runs as usize)) {
        let known = cells.iter().position(|cell| cell.profile == place.profile);
        let known = known.unwrap_or_else(|| {
            cells.push(Cell {
                profile: place.profile,
                mftp: Vec::new(),
                unpaced: Vec::new(),
                tcp: Vec::new(),
            });
            cells.len() - 1
        });
        cells[known].of(place.by).extend_from_slice(records);
    }
    cells
}
