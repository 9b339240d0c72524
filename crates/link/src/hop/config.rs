//! The configuration of a hop.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_core::Guid;
use whimbrel_core::identity::KeyPair;

use super::secure::{PostQuantum, Reception};
use super::wire::Envelope;

/// Largest chunk that any hop carries, in bytes (4 MiB).
pub const MAX_CHUNK: usize = 4 << 20;
/// Smallest MTU that a hop works with, in bytes: a CALL fits, and a chunk of [`MAX_CHUNK`] has
/// fewer than 2^16 packets.
pub const MIN_MTU: usize = 256;
/// Largest MTU, in bytes: the payload of a UDP datagram over IPv4.
pub const MAX_MTU: usize = 65_507;

/// The rule for the sending times of packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// From a model of the bottleneck that takes neither jitter nor random loss for congestion (after `[BBR]`).
    Bottleneck,
    /// As CUBIC does (RFC 9438), paced.
    Cubic,
    /// Unused bandwidth only: the hop yields to the queue of any other flow (after RFC 6817).
    Scavenger,
    /// Everything that the neighbour's window allows goes at once, as in the paper [MFTP §3.4.1].
    Unpaced,
    /// A fixed rate of frames in bit/s, however the path behaves.
    Fixed(u64),
}

impl Pacing {
    /// Returns true if this pacing sends less when a queue on the path reports that it is too long.
    pub(crate) fn answers_to_marks(self) -> bool {
        !matches!(self, Pacing::Unpaced | Pacing::Fixed(_))
    }
}

/// The settings of one [`Hop`](crate::Hop). The hop limits all of them to their bounds.
#[derive(Clone, Debug)]
pub struct HopConfig {
    /// This node's key and the secrets of its handshakes, the same for all of its hops and gates.
    pub reception: Arc<Reception>,
    /// Frames are neither encrypted nor authenticated: they have a checksum. Names are proven all the
    /// same. Both ends must agree.
    pub plain: bool,
    /// The only name that the neighbour may prove; any if none.
    pub neighbour: Option<Guid>,
    /// Whether sessions are to be safe from a quantum computer that reads a recording of them later. A
    /// plain hop has nothing to keep secret: it is off there.
    pub post_quantum: PostQuantum,
    /// True if this end greets a neighbour that has not greeted it; false for inbound peers.
    pub calls: bool,
    /// The neighbour's address, which it proves; none where the carrier has no addresses.
    pub remote: Option<SocketAddr>,
    /// The identity of this run of the node, sent to the neighbour; a new value for each start of
    /// the process.
    pub incarnation: u64,
    /// Largest frame, in bytes, within [`MIN_MTU`]`..=`[`MAX_MTU`].
    pub mtu: usize,
    /// Largest chunk, in bytes, at most [`MAX_CHUNK`]. The smaller of both neighbours' limits
    /// applies.
    pub chunk_limit: usize,
    /// A chunk of at most this many packets is sent without a grant (MFREL: 32).
    pub small_chunk_packets: u16,
    /// Bound of the chunks in flight in one direction. The smaller of both neighbours' limits
    /// applies.
    pub max_chunks_in_flight: u16,
    /// Bytes that the owner should keep queued here beyond those in flight; two chunks by default. On
    /// a slow link it is asked for what takes about a second.
    pub queue_target: usize,
    /// Bounds of the retransmission timeout that is computed from measured round trips.
    pub min_timeout: Duration,
    /// See [`min_timeout`](HopConfig::min_timeout).
    pub max_timeout: Duration,
    /// The retransmission timeout before the first measurement.
    pub initial_timeout: Duration,
    /// Silence after which the neighbour is probed.
    pub idle_probe_interval: Duration,
    /// The interval of probes to an unresponsive neighbour. After an hour (a minute, if nothing
    /// waits for it) it grows by a hundredth of the rest of the outage, up to
    /// [`slowest_probe_interval`](HopConfig::slowest_probe_interval).
    pub outage_probe_interval: Duration,
    /// See [`outage_probe_interval`](HopConfig::outage_probe_interval).
    pub slowest_probe_interval: Duration,
    /// This many unanswered timeouts in a row, and ...
    pub unresponsive_timeouts: u32,
    /// ... this much silence (or four round trips, if that is longer) make a neighbour
    /// unresponsive.
    pub unresponsive_silence: Duration,
    /// Incomplete chunks without progress for this long are dropped and their room is released.
    pub reassembly_patience: Duration,
    /// The number of finished transfers that are remembered so that a repeated CSYN is answered; at
    /// least [`max_chunks_in_flight`](HopConfig::max_chunks_in_flight), rounded up to a multiple of
    /// 64.
    pub finished_memory: u16,
    /// The rule for the sending times of packets.
    pub pacing: Pacing,
    /// Ask queues on the path for marks (ECN), and report marks to the neighbour. Frames are sent
    /// as ECN-capable only if `pacing` answers to marks.
    pub ecn: bool,
}

impl HopConfig {
    /// Returns the defaults for a node with these keys, on a port whose frames may have `mtu` bytes.
    /// All secrets of the hops follow from `seed`: 32 bytes from the operating system, or from a
    /// scenario's generator.
    pub fn sealed(keys: &KeyPair, seed: [u8; 32], mtu: usize) -> HopConfig {
        HopConfig {
            reception: Arc::new(Reception::new(keys.clone(), seed, true)),
            plain: false,
            neighbour: None,
            post_quantum: PostQuantum::Off,
            calls: true,
            remote: None,
            incarnation: 0,
            mtu,
            chunk_limit: MAX_CHUNK,
            small_chunk_packets: 32,
            max_chunks_in_flight: 256,
            queue_target: 2 << 20,
            min_timeout: Duration::from_millis(10),
            max_timeout: Duration::from_secs(2),
            initial_timeout: Duration::from_millis(250),
            idle_probe_interval: Duration::from_secs(2),
            outage_probe_interval: Duration::from_millis(80),
            slowest_probe_interval: Duration::from_secs(1),
            unresponsive_timeouts: 3,
            unresponsive_silence: Duration::from_millis(500),
            reassembly_patience: Duration::from_secs(60),
            finished_memory: 1024,
            pacing: Pacing::Bottleneck,
            ecn: true,
        }
    }

    /// Returns the same for hops that encrypt nothing.
    pub fn plain(keys: &KeyPair, seed: [u8; 32], mtu: usize) -> HopConfig {
        HopConfig {
            plain: true,
            ..HopConfig::sealed(keys, seed, mtu)
        }
    }

    /// Returns the bytes of a DATA frame beyond its payload.
    pub(crate) fn overhead(&self) -> usize {
        let envelope = match self.plain {
            true => Envelope::Plain,
            false => Envelope::Sealed,
        };
        envelope.data_overhead()
    }

    /// Returns the settings limited to the bounds that each field states.
    pub(crate) fn bounded(mut self) -> HopConfig {
        let tick = Duration::from_millis(1);
        self.mtu = self.mtu.clamp(MIN_MTU, MAX_MTU);
        self.chunk_limit = self.chunk_limit.clamp(1, MAX_CHUNK);
        self.max_chunks_in_flight = self.max_chunks_in_flight.clamp(1, 16_384);
        self.finished_memory = self
            .finished_memory
            .max(self.max_chunks_in_flight)
            .clamp(64, 32_768)
            .next_multiple_of(64);
        self.min_timeout = self.min_timeout.max(tick);
        self.max_timeout = self.max_timeout.max(self.min_timeout);
        self.idle_probe_interval = self.idle_probe_interval.max(tick);
        self.outage_probe_interval = self.outage_probe_interval.max(tick);
        self.slowest_probe_interval = self.slowest_probe_interval.max(self.outage_probe_interval);
        self.reassembly_patience = self.reassembly_patience.max(tick);
        if self.plain {
            self.post_quantum = PostQuantum::Off;
        }
        self
    }
}
