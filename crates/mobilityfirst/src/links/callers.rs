//! Which names may call this node's listeners, at the request of a local program.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use whimbrel_core::{Guid, GuidPrefix, PortId, PortRequest, Time};
use whimbrel_link::hop::{CallerPolicy, Keeping};

use super::neighbours::Neighbours;

/// A change of the lists at run time. A name is 64 hexadecimal digits, or the first ones of one that
/// the node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallersChange {
    /// Names that may call.
    pub allow: Vec<String>,
    /// Names that may not; if they are connected, they are disconnected.
    pub deny: Vec<String>,
}

/// Who may call, and who did.
#[derive(Clone, Debug, Serialize)]
pub struct CallersStatus {
    /// Who gets a port.
    pub policy: CallerPolicy,
    /// How many names are allowed.
    pub listed: usize,
    /// Under "first-use", how many more are listed at their first use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<usize>,
    /// How often a name was not listed at its first use, because the list or its network's part of it was
    /// full.
    pub unlisted: u64,
    /// Callers that are connected, were refused recently, or were allowed or denied, by name.
    pub callers: Vec<CallerStatus>,
    /// True once what was decided outlives the node; absent where nothing keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<bool>,
    /// Why it cannot be kept: it is in force until the node ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_error: Option<String>,
    /// Why nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One caller, for reports.
#[derive(Clone, Debug, Serialize)]
pub struct CallerStatus {
    /// Its name.
    pub name: Guid,
    /// "allowed" or "denied", if that was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'static str>,
    /// True if it has a port now.
    pub connected: bool,
    /// Where it calls from, or did when it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Number of recent refusals.
    pub refused: u64,
    /// Seconds since the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_ago_s: Option<f64>,
}

impl CallersStatus {
    /// Makes a change, if there is one, and describes the callers.
    pub(crate) fn manage(neighbours: &mut Neighbours, now: Time, change: &str) -> CallersStatus {
        let outcome = match change {
            "" => Ok(()),
            json => serde_json::from_str(json)
                .map_err(|fault| format!("this change makes no sense: {fault}"))
                .and_then(|change| change_callers(neighbours, now, &change)),
        };
        let known = neighbours.template.reception.callers();
        let learns = known.policy == CallerPolicy::FirstUse;
        let keeping = known.keeping.clone();
        CallersStatus {
            policy: known.policy,
            listed: known.lists.allowed.len(),
            left: learns.then(|| known.left_to_learn()),
            unlisted: known.unlisted(),
            callers: known_callers(neighbours, now).into_values().collect(),
            kept: (keeping != Keeping::Never).then_some(keeping == Keeping::Kept),
            keep_error: match keeping {
                Keeping::Failed(reason) => Some(reason),
                Keeping::Never | Keeping::Pending | Keeping::Kept => None,
            },
            error: outcome.err(),
        }
    }
}

fn change_callers(
    neighbours: &mut Neighbours,
    now: Time,
    change: &CallersChange,
) -> Result<(), String> {
    let known = known_callers(neighbours, now);
    let mut decisions = Vec::new();
    for (names, allow) in [(&change.allow, true), (&change.deny, false)] {
        for text in names {
            decisions.push((resolve(text, &known)?, allow));
        }
    }
    for (name, allow) in decisions {
        let reception = &neighbours.template.reception;
        if !reception.with_callers(|callers| callers.decide(name, allow)) {
            return Err(String::from("the list is full"));
        }
        if !allow {
            let ports = caller_ports(neighbours, name);
            neighbours
                .requests
                .extend(ports.into_iter().map(PortRequest::Close));
        }
    }
    Ok(())
}

fn caller_ports(neighbours: &Neighbours, name: Guid) -> Vec<PortId> {
    let of_name = neighbours
        .links
        .iter()
        .filter(|(_, link)| link.info.origin.is_caller() && link.neighbour == Some(name));
    of_name.map(|(port, _)| *port).collect()
}

fn known_callers(neighbours: &Neighbours, now: Time) -> BTreeMap<Guid, CallerStatus> {
    let mut known: BTreeMap<Guid, CallerStatus> = BTreeMap::new();
    let mut of = |name: Guid, note: &dyn Fn(&mut CallerStatus)| {
        let status = known.entry(name).or_insert(CallerStatus {
            name,
            decision: None,
            connected: false,
            from: None,
            refused: 0,
            refused_ago_s: None,
        });
        note(status);
    };
    let callers = neighbours.template.reception.callers();
    for (names, decision) in [
        (&callers.lists.allowed, "allowed"),
        (&callers.lists.denied, "denied"),
    ] {
        for name in names {
            of(*name, &|status| status.decision = Some(decision));
        }
    }
    for refused in callers.refused() {
        of(refused.name, &|status| {
            status.from = refused.from.map(|from| from.to_string());
            status.refused = refused.times;
            status.refused_ago_s = Some(now.since(refused.at).as_secs_f64());
        });
    }
    let connected = neighbours
        .links
        .values()
        .filter(|link| link.info.origin.is_caller());
    for link in connected {
        if let Some(name) = link.neighbour {
            of(name, &|status| {
                // The port of one that was just denied is about to be closed.
                status.connected = status.decision != Some("denied");
                status.from = Some(link.info.peer.clone());
            });
        }
    }
    known
}

/// Returns the name that a text stands for.
fn resolve(text: &str, known: &BTreeMap<Guid, CallerStatus>) -> Result<Guid, String> {
    if let Ok(name) = text.parse() {
        return Ok(name);
    }
    let Some(prefix) = GuidPrefix::new(text) else {
        return Err(format!(
            "'{text}' is no name: 64 hexadecimal digits, or the first four or more of one that is known here"
        ));
    };
    let mut of_prefix = known.keys().filter(|name| prefix.is_of(name));
    match (of_prefix.next(), of_prefix.next()) {
        (Some(name), None) => Ok(*name),
        (Some(_), Some(_)) => Err(format!(
            "several callers' names begin with {prefix}; write more of it"
        )),
        (None, _) => Err(format!(
            "no caller is known here whose name begins with {prefix}; write the whole name"
        )),
    }
}
