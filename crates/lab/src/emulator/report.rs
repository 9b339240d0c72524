//! Counters of an emulated link.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_sim::link::LinkStats;

/// The scheduling of the emulator's thread by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// Before all ordinary programs (SCHED_FIFO).
    RealTime,
    /// With a negative nice value.
    Raised,
    /// As any other: on a busy machine packets may leave late.
    #[default]
    Ordinary,
}

/// One link's counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The link's name.
    pub link: String,
    /// From its first end to its second.
    pub forward: DirectionReport,
    /// From its second end to its first.
    pub backward: DirectionReport,
    /// The scheduling of the thread that serves it.
    pub scheduling: Scheduling,
}

/// Counters of one direction. Packets are IP packets; bytes are theirs, headers included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Packets that the sending host gave to the link.
    pub offered: u64,
    /// Bytes of these.
    pub offered_bytes: u64,
    /// Packets handed to the receiving host.
    pub delivered: u64,
    /// Bytes of these.
    pub delivered_bytes: u64,
    /// Bytes that took time on the wire, the link's own overhead included.
    pub transmitted_bytes: u64,
    /// Packets dropped because the link's queue was full, or too long for its CoDel.
    pub dropped_queue: u64,
    /// Packets that CoDel marked instead of dropping them.
    pub marked: u64,
    /// Packets lost at random.
    pub dropped_loss: u64,
    /// Packets lost in an outage.
    pub dropped_outage: u64,
    /// Packets handed over that the receiving host's kernel refused (corrupted so that they are no
    /// IP packet); also counted as delivered.
    pub refused: u64,
    /// Copies in which a bit was flipped.
    pub corrupted: u64,
    /// Packets of which a second copy was made.
    pub duplicated: u64,
    /// Packets that overtook others.
    pub reordered: u64,
    /// Packets waiting or in flight now.
    pub under_way: u64,
    /// The most bytes that ever waited in the queue.
    pub max_queue_bytes: u64,
    /// The longest wait in the queue, in microseconds.
    pub max_queueing_micros: u64,
    /// Mean lateness of the emulation, in nanoseconds: from when the model says a packet arrives
    /// until it is handed over.
    pub mean_lateness_nanos: u64,
    /// The largest lateness, in nanoseconds.
    pub max_lateness_nanos: u64,
}

impl DirectionReport {
    /// Returns the packets that the link did not deliver.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue + self.dropped_loss + self.dropped_outage
    }

    pub(super) fn new(stats: &LinkStats, refused: u64, lateness: &Lateness) -> DirectionReport {
        DirectionReport {
            offered: stats.offered,
            offered_bytes: stats.offered_bytes,
            delivered: stats.delivered,
            delivered_bytes: stats.delivered_bytes,
            transmitted_bytes: stats.transmitted_bytes,
            dropped_queue: stats.dropped_queue,
            marked: stats.marked,
            dropped_loss: stats.dropped_loss + stats.dropped_too_large,
            dropped_outage: stats.dropped_outage,
            refused,
            corrupted: stats.corrupted,
            duplicated: stats.duplicated,
            reordered: stats.reordered,
            under_way: (stats.offered + stats.duplicated)
                .saturating_sub(stats.delivered + stats.dropped()),
            max_queue_bytes: stats.max_queue_bytes,
            max_queueing_micros: micros(stats.queueing_delay_max),
            mean_lateness_nanos: nanos(lateness.total)
                .checked_div(stats.delivered)
                .unwrap_or(0),
            max_lateness_nanos: nanos(lateness.max),
        }
    }
}

/// The delays of packets beyond the model's.
#[derive(Clone, Debug, Default)]
pub(super) struct Lateness {
    total: Duration,
    max: Duration,
}

impl Lateness {
    pub(super) fn add(&mut self, late: Duration) {
        self.total += late;
        self.max = self.max.max(late);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
