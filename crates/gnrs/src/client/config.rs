use core::time::Duration;

use whimbrel_core::RttEstimator;

/// Bounds of the timeout of one transmission.
const MIN_TIMEOUT: Duration = Duration::from_millis(20);
const MAX_TIMEOUT: Duration = Duration::from_secs(3);

/// The times and bounds of a [`super::Resolver`], which bound its memory to (in bytes) `max_names`
/// x (1 + `max_providers`) x 700 + `max_pending` x 2,000 + `max_watches` x 300 + servers x
/// `max_pending` x 600.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResolverConfig {
    /// How long an answer is used without a new query, in milliseconds. The prototype [MF-PROTO,
    /// router] uses 3 s; a push replaces it at once.
    pub ttl_ms: u64,
    /// How long "no such name" is cached, in milliseconds.
    pub negative_ttl_ms: u64,
    /// Maximum of names in the cache.
    pub max_names: usize,
    /// Maximum of providers kept per content.
    pub max_providers: usize,
    /// Maximum of pending requests.
    pub max_pending: usize,
    /// Maximum of watched names.
    pub max_watches: usize,
    /// Requested lease, in seconds; renewed when half of it is over.
    pub lease_secs: u32,
    /// A lookup or a registration fails after this long without an answer, in milliseconds.
    pub give_up_ms: u64,
    /// Transmissions of a request to one server before another one is tried.
    pub tries_per_server: u32,
    /// Timeout before the first measured round trip, in milliseconds.
    pub initial_timeout_ms: u64,
    /// Interval of probes to a silent server, and maximum silence of a server that holds watches
    /// before it is asked whether it still has them, in milliseconds.
    pub probe_interval_ms: u64,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        ResolverConfig {
            ttl_ms: 3000,
            negative_ttl_ms: 500,
            max_names: 16_384,
            max_providers: 64,
            max_pending: 4096,
            max_watches: 4096,
            lease_secs: 30,
            give_up_ms: 10_000,
            tries_per_server: 3,
            initial_timeout_ms: 250,
            probe_interval_ms: 2000,
        }
    }
}

impl ResolverConfig {
    pub(super) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    pub(super) fn negative_ttl(&self) -> Duration {
        Duration::from_millis(self.negative_ttl_ms)
    }

    pub(super) fn give_up(&self) -> Duration {
        Duration::from_millis(self.give_up_ms)
    }

    pub(super) fn probe_interval(&self) -> Duration {
        Duration::from_millis(self.probe_interval_ms.max(10))
    }

    pub(super) fn rtt(&self) -> RttEstimator {
        let initial = Duration::from_millis(self.initial_timeout_ms);
        RttEstimator::new(initial, MIN_TIMEOUT, MAX_TIMEOUT)
    }
}

/// Counters of a resolver since its start.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct ResolverCounters {
    /// Lookups.
    pub lookups: u64,
    /// Of them: answered from the cache.
    pub cache_hits: u64,
    /// Of them: joined a pending one.
    pub coalesced: u64,
    /// Of them: refused, too many pending.
    pub busy: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Of them: retransmissions.
    pub frames_repeated: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Of them: damaged, not well-formed, or not for a client.
    pub bad_frames: u64,
    /// Of them: unsolicited, or a push without the right cookie.
    pub unexpected_frames: u64,
    /// Of them: with a record that its subject did not sign; ignored altogether.
    pub forged_answers: u64,
    /// Records ignored because they had expired or came from the future.
    pub untimely_records: u64,
    /// Pushes received, retransmissions included.
    pub pushes: u64,
    /// How often a silent or faulty server was abandoned for another.
    pub failovers: u64,
    /// How often all watches were looked through, to move them to another server.
    pub watch_moves: u64,
    /// How often a server had dropped this client.
    pub server_restarts: u64,
    /// Watches that a server refused.
    pub watches_refused: u64,
}
