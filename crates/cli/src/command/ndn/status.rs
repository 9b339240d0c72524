//! An NDN forwarder's part of `status`.

use clap::Args;
use serde_json::{Value, json};
use whimbrel_ndn_mgmt::{FaceQueryFilter, FaceStatus, ForwarderStatus};
use whimbrel_node::ndn::control::Control;

use super::face::links;
use super::face_text::face_json;
use super::manage::{Manage, is_whimbrel};
use crate::exit::{Exit, Failure};

/// Maximum of link properties shown per face, in the router's order.
const MAX_SHOWN: usize = 12;

/// How to ask an NDN forwarder for its status.
#[derive(Args, Debug, Default)]
pub(crate) struct NdnStatus {
    /// Also show each face's counters, and how its link recovers losses (the latter of Whimbrel
    /// routers)
    #[arg(long)]
    faces: bool,
    #[command(flatten)]
    manage: Manage,
}

/// A forwarder's answers.
pub(crate) struct Forwarder {
    general: ForwarderStatus,
    /// Those that other forwarders lack.
    counters: Option<Value>,
    faces: Option<Vec<FaceStatus>>,
    links: Option<Value>,
}

impl NdnStatus {
    /// Returns true if the arguments are about a forwarder and nothing else.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.faces || self.manage.names_a_forwarder()
    }

    pub(crate) fn json(&self) -> bool {
        self.manage.json
    }

    pub(crate) fn ask(&self) -> Result<Forwarder, Failure> {
        let mut control = self.manage.look()?;
        let content = control.content("status", "general")?;
        let general = ForwarderStatus::decode(&content).map_err(|error| {
            Failure::new(
                Exit::Other,
                format!("the forwarder's answer to status/general: {error}"),
            )
        })?;
        // Other forwarders lack this dataset, and some answer late to unknown datasets.
        let is_ours = is_whimbrel(&general);
        let ours = |control: &mut Control| -> Option<Value> {
            serde_json::from_slice(&control.content("whimbrel", "counters").ok()?).ok()
        };
        let counters = if is_ours { ours(&mut control) } else { None };
        let links = if is_ours && self.faces {
            links(&mut control)
        } else {
            None
        };
        let faces = if self.faces {
            Some(control.faces(&FaceQueryFilter::default())?)
        } else {
            None
        };
        Ok(Forwarder {
            general,
            counters,
            faces,
            links,
        })
    }
}

impl Forwarder {
    /// Returns true for a Whimbrel router.
    pub(crate) fn is_ours(&self) -> bool {
        is_whimbrel(&self.general)
    }

    pub(crate) fn json(&self) -> Value {
        let faces = self.faces.as_ref();
        json!({
            "general": general_json(&self.general),
            "counters": self.counters,
            "faces": faces.map(|faces| faces.iter().map(face_json).collect::<Vec<_>>()),
            "links": self.links,
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = describe(&self.general);
        if let Some(counters) = &self.counters {
            text += &drops(counters);
        }
        for face in self.faces.iter().flatten() {
            let c = &face.counters;
            text += &format!(
                "face {} {}: in {} bytes ({} Interests, {} Data, {} Nacks), out {} bytes ({} Interests, {} Data, {} Nacks)\n",
                face.face_id,
                face.uri,
                c.in_bytes,
                c.in_interests,
                c.in_data,
                c.in_nacks,
                c.out_bytes,
                c.out_interests,
                c.out_data,
                c.out_nacks
            );
            text += &link_text(self.links.as_ref(), face.face_id);
        }
        text
    }
}

fn describe(status: &ForwarderStatus) -> String {
    let up = status
        .current_timestamp
        .saturating_sub(status.start_timestamp)
        / 1000;
    let (days, hours, minutes, seconds) = (up / 86_400, up / 3600 % 24, up / 60 % 60, up % 60);
    let lines = [
        ("version", status.nfd_version.clone()),
        (
            "up for",
            format!("{days} d {hours:02}:{minutes:02}:{seconds:02}"),
        ),
        ("FIB entries", status.fib_entries.to_string()),
        ("PIT entries", status.pit_entries.to_string()),
        ("content store", format!("{} Data", status.cs_entries)),
        ("measurements", status.measurements_entries.to_string()),
        (
            "in",
            format!(
                "{} Interests, {} Data, {} Nacks",
                status.in_interests, status.in_data, status.in_nacks
            ),
        ),
        (
            "out",
            format!(
                "{} Interests, {} Data, {} Nacks",
                status.out_interests, status.out_data, status.out_nacks
            ),
        ),
        (
            "satisfied",
            format!("{} Interests", status.satisfied_interests),
        ),
        (
            "unsatisfied",
            format!("{} Interests", status.unsatisfied_interests),
        ),
    ];
    lines
        .iter()
        .map(|(key, value)| format!("{key:>13}: {value}\n"))
        .collect()
}

fn drops(counters: &Value) -> String {
    let drops = counters["drops"].as_object().into_iter().flatten();
    drops
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(reason, count)| {
            format!(
                "{:>13}: {count} ({})\n",
                "dropped",
                reason.replace('_', " ")
            )
        })
        .collect()
}

fn link_text(links: Option<&Value>, face: u64) -> String {
    let link = links
        .and_then(Value::as_array)
        .and_then(|links| links.iter().find(|link| link["face"] == face));
    let Some(details) = link.and_then(|link| link["link"].as_object()) else {
        return String::new();
    };
    let shown: Vec<String> = details
        .iter()
        .filter(|(_, count)| count.as_u64() != Some(0))
        .take(MAX_SHOWN)
        .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
        .collect();
    if shown.is_empty() {
        String::new()
    } else {
        format!("  link: {}\n", shown.join(", "))
    }
}

fn general_json(status: &ForwarderStatus) -> Value {
    json!({
        "version": status.nfd_version,
        "start": status.start_timestamp,
        "now": status.current_timestamp,
        "fib": status.fib_entries,
        "pit": status.pit_entries,
        "measurements": status.measurements_entries,
        "cs": status.cs_entries,
        "in": { "interests": status.in_interests, "data": status.in_data, "nacks": status.in_nacks },
        "out": { "interests": status.out_interests, "data": status.out_data, "nacks": status.out_nacks },
        "satisfied": status.satisfied_interests,
        "unsatisfied": status.unsatisfied_interests,
    })
}
