//! Figs. 9 and 10: response times of a file that is requested shortly before its client
//! disconnects.

mod findings;

use super::jobs::run_kept;
use super::trial::{Outcome, Trial};
use super::{Progress, StudyInput, StudyResult, Transfer};
use crate::LabError;
use crate::scenario::Setting;

/// The client: a name of the sweep `by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    NetworkProactive,
    /// The same with the paper's hops, which have no law of rate.
    Unpaced,
    /// A client of HTTP, with a proxy at each end.
    HttpProxies,
    ReceiverDriven {
        nack_timer_ms: u64,
    },
    Tcp,
}

impl Client {
    /// Parses its name in the scenario.
    fn of(setting: &Setting) -> Option<Client> {
        match setting.value("by")? {
            "mftp" => Some(Client::NetworkProactive),
            "unpaced" => Some(Client::Unpaced),
            "http-proxies" => Some(Client::HttpProxies),
            "tcp" => Some(Client::Tcp),
            name if name.starts_with("receiver-driven") => {
                let timer = setting.plan.loads.first()?.nack_timer?;
                Some(Client::ReceiverDriven {
                    nack_timer_ms: u64::try_from(timer.as_millis()).ok()?,
                })
            }
            _ => None,
        }
    }

    /// Returns the receiver-driven client's NACK timer, in ms.
    const fn timer(self) -> Option<u64> {
        match self {
            Client::ReceiverDriven { nack_timer_ms } => Some(nack_timer_ms),
            _ => None,
        }
    }

    fn title(self) -> String {
        match self {
            Client::NetworkProactive => String::from("MFTP"),
            Client::Unpaced => String::from("MFTP, unpaced"),
            Client::HttpProxies => String::from("MFTP, HTTP proxies"),
            Client::ReceiverDriven { nack_timer_ms } => {
                format!("MFTP, receiver-driven, {} s", nack_timer_ms as f64 / 1e3)
            }
            Client::Tcp => String::from("TCP"),
        }
    }

    fn label(self) -> String {
        match self {
            Client::NetworkProactive => String::from("mftp"),
            Client::Unpaced => String::from("mftp-unpaced"),
            Client::HttpProxies => String::from("mftp-http-proxies"),
            Client::ReceiverDriven { nack_timer_ms } => {
                format!("receiver-driven-{nack_timer_ms}ms")
            }
            Client::Tcp => String::from("tcp"),
        }
    }
}

/// The context of the findings beside the transfers.
struct Setup {
    text: String,
    /// The names of the assumptions about the last hop.
    wifi: Vec<String>,
    /// The durations for which the last hop is off, in order.
    off_s: Vec<u64>,
    clients: Vec<Client>,
    /// Seconds in which the file is requested at a random moment; then the hop goes off.
    on_s: f64,
}

/// The transfers of one client that meet the same disconnection, in order of their runs.
struct Group {
    off_s: u64,
    /// Index of the assumption about the WiFi.
    wifi: usize,
    client: Client,
    outcomes: Vec<Outcome>,
}

const EXPECTED: &str = "this study sweeps wifi, off (\"10 s\", ...) and by (mftp, unpaced, http-proxies, tcp, receiver-driven-...), by \
                        these names; a receiver-driven client has a nack_timer";

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let mut setup = Setup {
        text: scenario.text.clone(),
        wifi: Vec::new(),
        off_s: Vec::new(),
        clients: Vec::new(),
        on_s: scenario.settings[0].plan.loads[0].within.as_secs_f64(),
    };
    let mut groups = Vec::new();
    for setting in &scenario.settings {
        let group = group(&mut setup, setting);
        groups.push(group.ok_or_else(|| input.bad(EXPECTED.to_owned()))?);
    }
    let trials: Vec<Trial<'_>> = groups
        .iter()
        .zip(&scenario.settings)
        .flat_map(|(group, setting)| {
            let setup = &setup;
            (0..scenario.runs).map(move |run| trial(setup, group, setting, run))
        })
        .collect();
    let outcomes = run_kept(&trials, input, progress)?;
    let each = outcomes.chunks(scenario.runs as usize);
    for (group, outcomes) in groups.iter_mut().zip(each) {
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
    findings::result(input, &setup, &groups, transfers.collect())
}

/// Returns the group of a setting, and notes its values.
fn group(setup: &mut Setup, setting: &Setting) -> Option<Group> {
    fn number<T: PartialEq>(known: &mut Vec<T>, one: T) -> usize {
        let found = known.iter().position(|known| *known == one);
        found.unwrap_or_else(|| {
            known.push(one);
            known.len() - 1
        })
    }
    let off_s = setting.value("off")?.strip_suffix(" s")?.parse().ok()?;
    let client = Client::of(setting)?;
    number(&mut setup.off_s, off_s);
    number(&mut setup.clients, client);
    Some(Group {
        off_s,
        wifi: number(&mut setup.wifi, setting.value("wifi")?.to_owned()),
        client,
        outcomes: Vec::new(),
    })
}

fn trial<'a>(setup: &Setup, group: &Group, setting: &'a Setting, run: u32) -> Trial<'a> {
    let (client, off_s) = (group.client, group.off_s);
    Trial {
        label: format!(
            "wifi-{}-off-{off_s}s-{}-run-{:02}",
            group.wifi + 1,
            client.label(),
            run + 1
        ),
        title: format!(
            "{} over {off_s} s, {}",
            client.title(),
            setup.wifi[group.wifi]
        ),
        plan: &setting.plan,
        seed: setting.plan.seed.wrapping_add(u64::from(run)),
    }
}
