//! The reasons why programs wait: one type for all commands, made from a host's report, and its
//! text for people.

mod reason;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

pub use reason::{Shut, Tried, Wait};

/// Interval of the queries to a host while a program waits.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// The number of those queries; programs count their own from 0.
const QUESTION: u32 = u32::MAX;
/// Shorter waits are not reported: requests take a round trip, and chunks come one by one.
const PATIENCE: Duration = Duration::from_secs(1);
/// A transfer that has begun and then pauses for longer may wait for the name service.
const MOVED: Duration = Duration::from_secs(5);
/// A chunk that has been arriving for longer may be another transfer's.
const MAX_ARRIVAL: Duration = Duration::from_secs(30);

/// The part of a host's report that this module reads (`HostStatus` of `mobilityfirst`).
#[derive(Debug, Deserialize)]
struct Report {
    binding: Option<String>,
    clock: Option<Clock>,
    #[serde(default)]
    transfers: Vec<TransferReport>,
    links: Vec<LinkReport>,
    #[serde(default)]
    unresolved: Vec<Unresolved>,
    /// Links that carry nothing, by label.
    #[serde(default)]
    shut: BTreeMap<String, Shut>,
}

#[derive(Debug, Deserialize)]
struct Unresolved {
    host: String,
    error: String,
    again_in_s: f64,
}

#[derive(Debug, Deserialize)]
struct Clock {
    router_ahead_ms: i64,
}

#[derive(Debug, Deserialize)]
struct TransferReport {
    content: Guid,
    state: String,
    idle_s: f64,
    kept_by: Option<Guid>,
    kept_s: Option<f64>,
    absent_s: Option<f64>,
    /// Who sends chunks that do not fit, and how many came since the last that fits.
    false_from: Option<Guid>,
    #[serde(default)]
    false_chunks: u64,
}

#[derive(Debug, Deserialize)]
struct LinkReport {
    #[serde(default)]
    label: String,
    peer: String,
    neighbour: Option<Guid>,
    caller: bool,
    up: bool,
    silent_s: f64,
    refused: bool,
    #[serde(default = "works")]
    carrier: bool,
    unwilling: Option<String>,
    hop: HopReport,
}

fn works() -> bool {
    true
}

#[derive(Debug, Deserialize)]
struct HopReport {
    largest_frame: u64,
    mtu_falls: u64,
    /// Chunks of which a part has arrived.
    #[serde(default)]
    chunks_arriving: u64,
    /// Frames with new data so far.
    #[serde(default)]
    data_received: u64,
}

impl Report {
    fn uplinks(&self) -> impl Iterator<Item = &LinkReport> {
        self.links.iter().filter(|link| !link.caller)
    }

    /// Returns true if a chunk is arriving, which over a thin link takes seconds: a transfer that
    /// has been without a whole one for `idle` does not wait for anything else, unless what arrives
    /// for it is `false`.
    fn is_receiving(&self, idle: Duration, is_false: bool) -> bool {
        let brings = |link: &&LinkReport| {
            link.up && link.hop.chunks_arriving > 0 && link.silent_s < PATIENCE.as_secs_f64()
        };
        !is_false && idle < MAX_ARRIVAL && self.uplinks().any(|link| brings(&link))
    }

    /// Frames with new data so far.
    fn data_received(&self) -> u64 {
        self.uplinks().map(|link| link.hop.data_received).sum()
    }

    fn mtu_falls(&self) -> u64 {
        self.uplinks().map(|link| link.hop.mtu_falls).sum()
    }

    /// Returns true if a router or another host is configured.
    fn has_neighbours(&self) -> bool {
        self.uplinks().next().is_some() || !self.unresolved.is_empty()
    }

    /// Returns the reason why a host with these links cannot do anything, if there is one.
    fn of_host(&self) -> Option<Wait> {
        if self.uplinks().next().is_none()
            && let Some(unresolved) = self.unresolved.first()
        {
            return Some(Wait::NoAddress {
                host: unresolved.host.clone(),
                error: unresolved.error.clone(),
                again_in_s: unresolved.again_in_s.ceil() as u64,
            });
        }
        let shut = |link: &LinkReport| self.shut.get(&link.label).copied();
        if !self.uplinks().any(|link| link.up && shut(link).is_none()) {
            let silent = self.uplinks().map(|link| link.silent_s);
            let to = self.uplinks().map(|link| Tried {
                peer: link.peer.clone(),
                shut: shut(link),
                no_way: !link.carrier,
                refused: link.refused,
                unwilling: link.unwilling.clone(),
            });
            return Some(Wait::NotConnected {
                to: to.collect(),
                for_s: silent.reduce(f64::min).unwrap_or_default() as u64,
            });
        }
        match self.binding.as_deref() {
            Some("clock") => Some(Wait::ClockRefused {
                router_ahead_ms: self.clock.as_ref().map(|clock| clock.router_ahead_ms),
            }),
            Some("unreachable") => Some(Wait::NameServerSilent),
            _ => None,
        }
    }

    /// Returns the reason why a transfer waits, begun or not.
    fn of_transfer(&self, transfer: &TransferReport, mtu_falls: u64) -> Wait {
        if let Some(wait @ (Wait::NotConnected { .. } | Wait::NoAddress { .. })) = self.of_host() {
            return wait;
        }
        // A router also keeps a request while it looks up its holder.
        let kept_s = transfer.kept_s.unwrap_or_default();
        if let Some(kept_by) = transfer.kept_by
            && kept_s >= PATIENCE.as_secs_f64()
            && self.of_host().is_none()
        {
            let for_s = kept_s as u64;
            return Wait::ProviderAway { kept_by, for_s };
        }
        // A transfer that has begun needs no name server until one of its ends moves.
        let needs_names = transfer.state == "requested" || transfer.idle_s >= MOVED.as_secs_f64();
        if let Some(wait) = self.of_host().filter(|_| needs_names) {
            return wait;
        }
        if let Some(from) = transfer.false_from {
            return self.false_data(from, transfer.false_chunks);
        }
        if let Some(absent) = transfer.absent_s {
            return Wait::NoHolder {
                asked: self.neighbours_up(),
                for_s: absent as u64,
            };
        }
        let for_s = transfer.idle_s as u64;
        if self.mtu_falls() > mtu_falls
            && let Some(link) = self
                .uplinks()
                .filter(|link| link.up)
                .max_by_key(|link| link.hop.mtu_falls)
        {
            return Wait::Mtu {
                peer: link.peer.clone(),
                largest_frame: link.hop.largest_frame,
            };
        }
        if transfer.state == "requested" {
            return self.no_answer(for_s);
        }
        Wait::Stalled { for_s }
    }

    fn false_data(&self, from: Guid, refused: u64) -> Wait {
        let mut up = self.links.iter().filter(|link| link.up);
        let itself = up.find(|link| link.neighbour == Some(from));
        let mut uplinks = self.uplinks().filter(|link| link.up);
        let only = uplinks.next().filter(|_| uplinks.next().is_none());
        Wait::FalseData {
            from,
            at: itself.or(only).map(|link| link.peer.clone()),
            direct: itself.is_some(),
            refused,
        }
    }

    fn no_answer(&self, for_s: u64) -> Wait {
        Wait::NoAnswer {
            asked: self.neighbours_up(),
            for_s,
        }
    }

    fn neighbours_up(&self) -> Vec<String> {
        let up = self.uplinks().filter(|link| link.up);
        up.map(|link| link.peer.clone()).collect()
    }
}

/// Returns the reasons in a host's report: of the host itself, or of each transfer that waits.
pub fn waits_in(report: &str) -> Vec<(Option<Guid>, Wait)> {
    let Ok(report) = serde_json::from_str::<Report>(report) else {
        return Vec::new();
    };
    if report.transfers.is_empty() {
        let wait = report.of_host().filter(|_| report.has_neighbours());
        return wait.map(|wait| (None, wait)).into_iter().collect();
    }
    let waiting = report
        .transfers
        .iter()
        .filter(|transfer| transfer.idle_s >= PATIENCE.as_secs_f64())
        .filter(|transfer| {
            let idle = Duration::from_secs_f64(transfer.idle_s);
            !report.is_receiving(idle, transfer.false_from.is_some())
        });
    waiting
        .map(|transfer| {
            let wait = report.of_transfer(transfer, report.mtu_falls());
            (Some(transfer.content), wait)
        })
        .collect()
}

/// Finds the reason why a program waits, by queries to its host.
#[derive(Debug)]
pub struct Watch {
    subject: Subject,
    since: Instant,
    asked: Option<Instant>,
    // The number of black holes for large packets at the last progress.
    mtu_falls: Option<u64>,
    // The number of frames with data at the last answer.
    data_received: Option<u64>,
    wait: Option<Wait>,
    // Those that respond, at the last answer.
    neighbours: Vec<String>,
    inbound: usize,
    // Between two arrivals: a router passes chunks on whole, which over a thin link behind it takes
    // seconds.
    usual_pause: Duration,
    has_progressed: bool,
    // Since when somebody could answer: the last progress, or later if the host was not in order.
    host_ready: Option<Instant>,
}

/// The subject of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// An answer or a content from others.
    Answer,
    /// The answer of the sender with this number of a spoken code.
    Sender(u16),
    /// The host's own connection: others must find what it has.
    Host,
}

impl Watch {
    /// Begins a wait for `subject`.
    pub fn new(subject: Subject) -> Watch {
        Watch {
            subject,
            since: Instant::now(),
            asked: None,
            mtu_falls: None,
            data_received: None,
            wait: None,
            neighbours: Vec::new(),
            inbound: 0,
            usual_pause: Duration::ZERO,
            has_progressed: false,
            host_ready: Some(Instant::now()),
        }
    }

    /// Notes progress.
    pub fn progressed(&mut self) {
        if self.has_progressed {
            let pause = self.since.elapsed().min(MAX_ARRIVAL);
            self.usual_pause = pause.max(self.usual_pause * 3 / 4);
        }
        self.has_progressed = true;
        self.since = Instant::now();
        self.wait = None;
        self.mtu_falls = None;
        self.host_ready = Some(self.since);
    }

    /// Notes that the host daemon has ended, or is asked anew once it is back.
    pub fn host_gone(&mut self, gone: bool) {
        self.wait = gone.then_some(Wait::NoHost);
        self.asked = None;
    }

    /// Returns the query to send to the host now, if one is due.
    pub fn question(&mut self) -> Option<LocalRequest> {
        let is_due = self.asked.is_none_or(|at| at.elapsed() >= ASK_INTERVAL);
        if !is_due || self.subject != Subject::Host && self.since.elapsed() < PATIENCE {
            return None;
        }
        self.asked = Some(Instant::now());
        Some(LocalRequest::Status { request: QUESTION })
    }

    /// Reads the host's answer. Returns false if the event is not an answer to a query. `is_ours`
    /// returns true for the transfers of this program.
    pub fn note(&mut self, event: &LocalEvent, is_ours: &dyn Fn(&Guid) -> bool) -> bool {
        let LocalEvent::Status {
            request: QUESTION,
            json,
        } = event
        else {
            return false;
        };
        if let Ok(report) = serde_json::from_str::<Report>(json) {
            self.read(&report, is_ours);
        }
        true
    }

    fn read(&mut self, report: &Report, is_ours: &dyn Fn(&Guid) -> bool) {
        let inbound = report.links.iter().filter(|link| link.caller && link.up);
        self.inbound = inbound.count();
        self.neighbours = report.neighbours_up();
        if self.subject == Subject::Host {
            self.wait = report.of_host().filter(|_| report.has_neighbours());
            return;
        }
        let of_host = report.of_host();
        if of_host.is_some() {
            self.host_ready = None;
        }
        let ready = *self.host_ready.get_or_insert_with(Instant::now);
        let falls = *self.mtu_falls.get_or_insert(report.mtu_falls());
        // Files of a folder wait for the same thing; the newest transfer describes it best.
        let newest = report
            .transfers
            .iter()
            .filter(|transfer| is_ours(&transfer.content))
            .min_by(|a, b| a.idle_s.total_cmp(&b.idle_s));
        let idle = self.since.elapsed();
        let is_false = newest.is_some_and(|transfer| transfer.false_from.is_some());
        // Between two chunks none is arriving, on a link that brings one after the other.
        let received = report.data_received();
        let before = self.data_received.replace(received);
        let brings = before.is_none_or(|before| before < received) && received > 0;
        // It may be another program's: one that has begun is likely to be part of it.
        let has_begun = newest.is_some_and(|transfer| transfer.state != "requested");
        let goes_on = has_begun && brings && !is_false && idle < MAX_ARRIVAL;
        let waits = idle >= PATIENCE && !goes_on && !report.is_receiving(idle, is_false);
        self.wait = match newest {
            Some(transfer) if waits && transfer.idle_s >= PATIENCE.as_secs_f64() => {
                let wait = report.of_transfer(transfer, falls);
                let is_usual = idle < self.usual_pause * 2 && idle < MAX_ARRIVAL;
                Some(wait).filter(|wait| !is_usual || !matches!(wait, Wait::Stalled { .. }))
            }
            None if waits => of_host.or_else(|| {
                let for_s = ready.elapsed().as_secs();
                Some(match self.subject {
                    Subject::Sender(number) => Wait::NoSender {
                        number,
                        asked: report.neighbours_up(),
                        for_s,
                    },
                    Subject::Answer | Subject::Host => report.no_answer(for_s),
                })
            }),
            _ => None,
        };
    }

    /// Returns the reason why the program waits, as far as it is known.
    pub fn wait(&self) -> Option<&Wait> {
        self.wait.as_ref()
    }

    /// Returns the addresses of the neighbours that respond, at the last answer.
    pub fn neighbours(&self) -> &[String] {
        &self.neighbours
    }

    /// Returns the number of hosts connected to this one's listener, at the last answer.
    pub fn inbound(&self) -> usize {
        self.inbound
    }
}

#[cfg(test)]
mod tests;
