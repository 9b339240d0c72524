//! The results of one run, from either back end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use whimbrel_core::SeededRng;

use super::Plan;
use super::load::{Kind, Load};
use super::metric::prefix;
use super::network::Network;
use super::node::Role;
use crate::TransferRecord;

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Metrics by name. Those without a value (completion of an incomplete load) are left out.
    pub values: BTreeMap<String, f64>,
    /// Every file whose fetch began.
    pub transfers: Vec<Fetched>,
    /// The answers to echo requests, with the name of each load and receiver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinged: Vec<(String, Pinged)>,
    /// The names of loads and receivers that had not all their files when the run ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<String>,
}

/// The answers to a series of echo requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pinged {
    /// Round trips of those that were answered, in seconds, as they came.
    pub round_trips: Vec<f64>,
}

/// A file whose fetch began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fetched {
    /// The name of its load and receiver.
    pub name: String,
    /// The time of the request, in seconds from the run's origin.
    pub asked: f64,
    /// The receiver's measurements.
    pub record: TransferRecord,
}

impl Run {
    /// Returns the frames of contents that hosts and routers on the way of a load sent again, for
    /// any load: useful if a plan has one load.
    pub fn resent(&self, plan: &Plan, load: &Load) -> Option<u64> {
        let nodes = plan.network.nodes.iter().enumerate();
        let senders = nodes.filter(|(index, node)| {
            (node.is(Role::Host) || node.is(Role::Router)) && !load.to.contains(index)
        });
        senders
            .map(|(_, node)| {
                let resent = self.values.get(&format!("nodes.{}.resent", node.name));
                resent.map(|count| *count as u64)
            })
            .sum()
    }

    /// Adds a receiver's files, each with the time from the load's start to its request, in
    /// seconds.
    pub(super) fn add_files(
        &mut self,
        network: &Network,
        load: &Load,
        receiver: usize,
        files: Vec<(f64, TransferRecord)>,
        wanted: Option<usize>,
    ) {
        let prefix = prefix(network, load, receiver);
        let complete = files.iter().filter(|(_, record)| record.completed).count();
        let end = files
            .iter()
            .map(|(asked, record)| asked + record.finished)
            .fold(0.0, f64::max);
        let bytes: u64 = files.iter().map(|(_, record)| record.bytes).sum();
        let stall = files
            .iter()
            .map(|(_, record)| record.longest_stall)
            .fold(0.0, f64::max);
        let pause = files
            .iter()
            .map(|(_, record)| record.longest_pause)
            .fold(0.0, f64::max);
        let mut set = |name: &str, value: f64| {
            self.values.insert(format!("{prefix}.{name}"), value);
        };
        set("bytes", bytes as f64);
        set("files", complete as f64);
        set("stall", stall);
        set("pause", pause);
        if end > 0.0 {
            set("goodput", bytes as f64 * 8e-6 / end);
        }
        match wanted {
            Some(wanted) if wanted == complete => set("completion", end),
            Some(_) => self.unfinished.push(prefix.clone()),
            None => {}
        }
        let start = load.start.as_secs_f64();
        let fetched = files.into_iter().map(|(asked, record)| Fetched {
            name: prefix.clone(),
            asked: start + asked,
            record,
        });
        self.transfers.extend(fetched);
    }

    /// Adds a receiver's Interests.
    pub(super) fn add_exchanges(
        &mut self,
        network: &Network,
        load: &Load,
        receiver: usize,
        exchanges: &Exchanges,
    ) {
        let prefix = prefix(network, load, receiver);
        let mut set = |name: &str, value: f64| {
            self.values.insert(format!("{prefix}.{name}"), value);
        };
        set("answered", exchanges.answered as f64);
        set("retransmissions", exchanges.retransmissions as f64);
        if exchanges.answered > 0 {
            set("delay", exchanges.delay / exchanges.answered as f64 * 1e3);
        }
        if exchanges.finished {
            set("completion", exchanges.last);
        }
    }

    /// Adds the answers to a receiver's echo requests.
    pub(super) fn add_pings(
        &mut self,
        network: &Network,
        load: &Load,
        receiver: usize,
        pinged: &Pinged,
    ) {
        let prefix = prefix(network, load, receiver);
        let mut set = |name: &str, value: f64| {
            self.values.insert(format!("{prefix}.{name}"), value);
        };
        let mut sorted = pinged.round_trips.clone();
        sorted.sort_by(f64::total_cmp);
        set("answered", sorted.len() as f64);
        if let (Some(least), Some(most)) = (sorted.first(), sorted.last()) {
            let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
            set("median", (sorted[low] + sorted[high]) / 2.0 * 1e3);
            set("least", least * 1e3);
            set("most", most * 1e3);
        }
        self.pinged.push((prefix, pinged.clone()));
    }

    /// Adds the counters of a MobilityFirst node.
    pub(super) fn add_node(&mut self, name: &str, status: &Value) {
        let counters = &status["counters"];
        for (metric, count) in [
            ("resent", frames_resent(status)),
            ("overtaken", reordering(status, "most").max()),
            ("beyond", Some(reordering(status, "exceeded").sum())),
            ("stored", counters["chunks_stored"].as_u64()),
            ("released", counters["chunks_released"].as_u64()),
            ("pushed", counters["chunks_pushed"].as_u64()),
        ] {
            if let Some(count) = count {
                self.values
                    .insert(format!("nodes.{name}.{metric}"), count as f64);
            }
        }
    }

    /// Adds the counters of a TCP proxy: Interests and Data that it sent.
    pub(super) fn add_proxy(&mut self, name: &str, interests: u64, data: u64) {
        for (metric, count) in [("interests", interests), ("data", data)] {
            let metric = format!("nodes.{name}.{metric}");
            self.values.insert(metric, count as f64);
        }
    }

    /// Adds the counters of a link.
    pub(super) fn add_link(&mut self, name: &str, counts: LinkCounts) {
        let LinkCounts {
            bytes,
            delivered: [forward, backward],
            packets,
            lost,
            dropped,
            marked,
        } = counts;
        for (metric, count) in [
            ("bytes", bytes),
            ("forward", forward),
            ("backward", backward),
            ("packets", packets),
            ("lost", lost),
            ("dropped", dropped),
            ("marked", marked),
        ] {
            self.values
                .insert(format!("links.{name}.{metric}"), count as f64);
        }
    }
}

/// Returns the DATA frames that a node has sent again, from its status.
fn frames_resent(status: &Value) -> Option<u64> {
    let links = status["links"].as_array()?;
    links
        .iter()
        .map(|link| link["hop"]["data_resent"].as_u64())
        .sum()
}

/// Returns a number of the reordering of each flow that a node divides, from its status.
fn reordering<'a>(status: &'a Value, number: &'a str) -> impl Iterator<Item = u64> + 'a {
    let flows = status["divided"].as_array().into_iter().flatten();
    flows.filter_map(move |flow| flow["reordering"][number].as_u64())
}

/// The Interests of one receiver of a load. Durations are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exchanges {
    /// Interests that were answered.
    pub answered: u64,
    /// Interests that were sent again.
    pub retransmissions: u64,
    /// The sum of the times from an Interest's first transmission to its answer.
    pub delay: f64,
    /// From the start to the last answer.
    pub last: f64,
    /// True if all were answered.
    pub finished: bool,
}

/// Counters of a link, as `metric` names them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkCounts {
    /// Bytes on the wire.
    pub(super) bytes: u64,
    /// Bytes that arrived, forward and backward.
    pub(super) delivered: [u64; 2],
    /// Packets delivered.
    pub(super) packets: u64,
    /// Packets lost at random and in outages.
    pub(super) lost: u64,
    /// Packets dropped because a queue was full, or too long for its CoDel.
    pub(super) dropped: u64,
    /// Packets that CoDel marked instead.
    pub(super) marked: u64,
}

impl LinkCounts {
    /// Returns the counts since `before`.
    pub(super) fn since(self, before: LinkCounts) -> LinkCounts {
        let since = |at: usize| self.delivered[at] - before.delivered[at];
        LinkCounts {
            bytes: self.bytes - before.bytes,
            delivered: [since(0), since(1)],
            packets: self.packets - before.packets,
            lost: self.lost - before.lost,
            dropped: self.dropped - before.dropped,
            marked: self.marked - before.marked,
        }
    }
}

/// The times at which a load's files are requested.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// Bytes of each file.
    pub(super) size: u64,
    /// Seconds from the load's start, in order, of requests that do not wait for others.
    pub(super) at: Vec<f64>,
    /// The number of requests that wait for others to complete; `None` without end.
    pub(super) then: Option<usize>,
}

/// A file of a load that never ends.
const BULK_FILE: u64 = 16 << 20;

impl Schedule {
    /// Returns the schedule of a load, or `None` for a load without files.
    pub(super) fn of(load: &Load, seed: u64) -> Option<Schedule> {
        // The same moment for every load and setting, so that they meet the same events.
        let moment = SeededRng::stream(seed, "time of the request").unit();
        let first = load.within.mul_f64(moment).as_secs_f64();
        let files = |size, at: Vec<f64>, then| {
            let at = at.into_iter().map(|at| first + at).collect();
            Some(Schedule { size, at, then })
        };
        match &load.kind {
            Kind::Requests(_) | Kind::Pings(_) => None,
            Kind::File(size) => files(*size, vec![0.0], Some(0)),
            // Its objects are the browser's business.
            Kind::Browser(_) => files(0, vec![0.0], Some(0)),
            Kind::Web(web) => files(0, vec![0.0], Some(usize::from(web.pages) - 1)),
            Kind::Bulk => files(BULK_FILE, vec![0.0], None),
            Kind::Page(page) => {
                let first = page.parallel.min(page.objects) as usize;
                let rest = page.objects as usize - first;
                files(page.size, vec![0.0; first], Some(rest))
            }
            Kind::Push(pushes) => {
                let every = pushes.every.as_secs_f64();
                let at = (0..pushes.count).map(|number| f64::from(number) * every);
                files(pushes.size, at.collect(), Some(0))
            }
            Kind::Flows(flows) => {
                let mut rng = SeededRng::stream(seed, &format!("flows {}", load.name));
                let mut at = 0.0;
                let gaps = (0..flows.count).map(|_| {
                    at += -(1.0 - rng.unit()).ln() / flows.per_second;
                    at
                });
                files(flows.size, gaps.collect(), Some(0))
            }
        }
    }

    /// Returns true if files are requested until the run ends, which does not wait for them.
    pub(super) fn is_endless(&self) -> bool {
        self.then.is_none()
    }

    /// Returns the number of files; `None` without end.
    pub(super) fn total(&self) -> Option<usize> {
        self.then.map(|then| then + self.at.len())
    }
}
