use core::time::Duration;

use whimbrel_core::RttEstimator;

/// The times and bounds of a [`super::Resolver`]. With them it takes at most, in bytes of memory:
/// `max_names` x (1 + `max_providers`) x 700 + `max_pending` x 1,500 + `max_watches` x 300 +
/// servers x `max_pending` x 600.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResolverConfig {
    /// How long an answer is used without asking again, in milliseconds. The prototype
    /// [MF-PROTO, router] uses 3 s; a push replaces it at once.
    pub ttl_ms: u64,
    /// How long "no such name" is believed, in milliseconds.
    pub negative_ttl_ms: u64,
    /// Most names in the cache.
    pub max_names: usize,
    /// Most providers kept of one content.
    pub max_providers: usize,
    /// Most requests under way at a time.
    pub max_pending: usize,
    /// Most names watched.
    pub max_watches: usize,
    /// Lease that is asked for, in seconds; renewed when half of it is over.
    pub lease_secs: u32,
    /// After this long without an answer a look-up or a registration fails, in milliseconds.
    pub give_up_ms: u64,
    /// How often a request goes to one server before another one is tried.
    pub tries_per_server: u32,
    /// Time-out before a round trip was measured, in milliseconds.
    pub initial_timeout_ms: u64,
    /// How often a server that does not answer is tried again, and how long a server that holds
    /// watches may be silent before it is asked whether it still knows of them, in milliseconds.
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
        RttEstimator::new(initial, Duration::from_millis(20), Duration::from_secs(3))
    }
}

/// What has happened at a resolver since it started.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct ResolverCounters {
    /// Look-ups asked of it.
    pub lookups: u64,
    /// Of them: answered from the cache.
    pub cache_hits: u64,
    /// Of them: joined one that was under way.
    pub coalesced: u64,
    /// Of them: refused, too many under way.
    pub busy: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Of them: repetitions.
    pub frames_repeated: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Of them: damaged, not well-formed, or not for a client.
    pub bad_frames: u64,
    /// Of them: nobody waits for them, or a push without our cookie.
    pub unexpected_frames: u64,
    /// Of them: with a record that its subject did not sign; ignored altogether.
    pub forged_answers: u64,
    /// Records left out because they had expired or come from the future.
    pub untimely_records: u64,
    /// Pushes received, repetitions too.
    pub pushes: u64,
    /// How often a server was given up for another, or for the time being.
    pub failovers: u64,
    /// How often a server had forgotten us.
    pub server_restarts: u64,
    /// Watches that a server refused.
    pub watches_refused: u64,
}
