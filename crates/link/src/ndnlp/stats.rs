//! What a face counts.

use serde::Serialize;

/// Counters of one face since it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkStats {
    /// Frames of all kinds handed to the driver.
    pub frames_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Frames that came in, bad ones included.
    pub frames_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Network-layer packets accepted for sending.
    pub packets_queued: u64,
    /// Network-layer packets handed to the forwarder.
    pub packets_delivered: u64,
    /// Packets marked here because of congestion.
    pub marks: u64,
    /// Bytes of packets that wait to be sent.
    pub queue_bytes: usize,
    /// Packets that wait to be sent.
    pub queue_packets: usize,
    /// Most packets that have ever waited.
    pub queue_high_water: usize,
    /// Packets and frames dropped, by reason.
    pub drops: LinkDrops,
}

/// What was dropped, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkDrops {
    /// Frames that are no packet of any known kind.
    pub malformed: u64,
    /// Packets for which the queue had no room.
    pub queue_full: u64,
    /// Packets that cannot be made to fit the MTU.
    pub too_big: u64,
    /// Fragments whose numbers contradict those of their siblings or exceed a bound.
    pub bad_fragment: u64,
    /// Fragments that came twice.
    pub duplicate_fragment: u64,
    /// Packets given up because fragments of them did not come in time.
    pub reassembly_timeout: u64,
    /// Packets given up because there were too many incomplete ones.
    pub reassembly_full: u64,
}
