use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::RttEstimator;

use super::{PeerCounters, PeerStatus};
use crate::store::EngineStatus;
use crate::wire::Code;

/// The bounds of a server, which bound its memory to (in bytes) the store's bound
/// + `max_watches` x (400 + 120 x the store's `max_providers`)
/// + ports x (200 + `max_queued_per_port` x 1,200)
/// + `max_waiting` x 1,600 (twice with a store that keeps its own queue).
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Maximum of watches of all clients together.
    pub max_watches: usize,
    /// Maximum of watches per client.
    pub max_watches_per_port: usize,
    /// Longest lease of a watch, in seconds.
    pub max_lease_secs: u32,
    /// Maximum of queued frames per client.
    pub max_queued_per_port: usize,
    /// Maximum of updates in one transaction.
    pub max_batch: usize,
    /// Maximum of clients' requests that wait for the store; one source may have an eighth of them.
    pub max_waiting: usize,
    /// First timeout of a push, before a round trip was measured, in milliseconds.
    pub push_timeout_ms: u64,
    /// Transmissions of one push, unless its lease ends before. A client that has acknowledged none of
    /// them gets no pushes until it is heard again.
    pub push_tries: u32,
    /// How often expired records are removed, in milliseconds.
    pub expiry_interval_ms: u64,
    /// Maximum of records removed at a time.
    pub expiry_budget: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            max_watches: 100_000,
            max_watches_per_port: 4096,
            max_lease_secs: 300,
            max_queued_per_port: 1024,
            max_batch: 1024,
            max_waiting: 16_384,
            push_timeout_ms: 250,
            push_tries: 8,
            expiry_interval_ms: 1000,
            expiry_budget: 1000,
        }
    }
}

impl ServerConfig {
    pub(super) fn expiry_interval(&self) -> Duration {
        Duration::from_millis(self.expiry_interval_ms.max(1))
    }

    pub(super) fn push_rtt(&self) -> RttEstimator {
        let initial = Duration::from_millis(self.push_timeout_ms);
        RttEstimator::new(initial, Duration::from_millis(10), Duration::from_secs(5))
    }
}

/// Counters of a server since its start.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct ServerCounters {
    /// Frames received.
    pub frames: u64,
    /// Of them: from a port that is not up.
    pub frames_from_unknown_ports: u64,
    /// Of them: with a wrong checksum.
    pub damaged_frames: u64,
    /// Of them: malformed, of another version, or not for a server.
    pub malformed_frames: u64,
    /// Lookups.
    pub lookups: u64,
    /// Of them: answered with "no such name".
    pub not_found: u64,
    /// Updates stored.
    pub updates_stored: u64,
    /// Updates that were stored already.
    pub updates_unchanged: u64,
    /// Requests refused, by reason.
    pub refused: BTreeMap<Code, u64>,
    /// Updates whose signature was not checked, because their source had used up its share of checks.
    pub checks_refused: u64,
    /// Updates that were refused because their record had changed too often of late.
    pub updates_limited: u64,
    /// Requests refused because too many waited for the store.
    pub busy: u64,
    /// Transactions.
    pub commits: u64,
    /// Records removed after every record of their subject had expired.
    pub records_forgotten: u64,
    /// Pushes sent, retransmissions included.
    pub pushes: u64,
    /// Of them: retransmissions.
    pub pushes_repeated: u64,
    /// Pushes abandoned after the last retransmission: their client gets none until it is heard again.
    pub pushes_given_up: u64,
    /// Watches whose lease expired.
    pub leases_ended: u64,
    /// Watches that ended so that another client could watch a name.
    pub watches_ended: u64,
    /// Answers dropped because the client's queue was full.
    pub answers_dropped: u64,
}

/// A server's state for a person or a program to read.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct ServerStatus {
    /// Seconds since its start.
    pub uptime_s: f64,
    /// Stored records.
    pub records: usize,
    /// Memory of the stored records, in bytes.
    pub record_bytes: usize,
    /// Clients, such as routers.
    pub clients: usize,
    /// Names that clients watch.
    pub watches: usize,
    /// Clients' requests that wait for the store.
    pub waiting: usize,
    /// True while the store works.
    pub store_works: bool,
    /// Other name servers that have copies of records.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerStatus>,
    /// What it has done for them, and they for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_peers: Option<PeerCounters>,
    /// The state of the store's engine, if that is on other machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineStatus>,
    /// Counters since the start.
    pub counters: ServerCounters,
}

impl ServerCounters {
    pub(super) fn count_refusal(&mut self, code: Code) {
        *self.refused.entry(code).or_default() += 1;
    }

    /// Returns the number of requests refused with `code`.
    pub fn refused_with(&self, code: Code) -> u64 {
        self.refused.get(&code).copied().unwrap_or(0)
    }
}
