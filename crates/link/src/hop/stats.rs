//! What a hop counts.

use core::time::Duration;

use serde::Serialize;

/// Counters and estimates of one hop since it was made. Bytes are bytes of frames unless said
/// otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HopStats {
    /// Frames of all kinds sent.
    pub frames_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// DATA frames sent, resent ones included.
    pub data_sent: u64,
    /// DATA frames sent again because they were found missing.
    pub data_resent: u64,
    /// CSYN frames sent, probes included.
    pub csyn_sent: u64,
    /// CSYNs that went along with a DATA frame.
    pub csyn_carried: u64,
    /// Frames accepted.
    pub frames_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// DATA frames accepted that brought something new.
    pub data_received: u64,
    /// DATA frames accepted of which the packet was there already.
    pub duplicates: u64,
    /// Chunks that the neighbour acknowledged.
    pub chunks_delivered: u64,
    /// Bytes of those chunks.
    pub chunk_bytes_delivered: u64,
    /// Chunks handed to the owner.
    pub chunks_received: u64,
    /// Bytes of those chunks.
    pub chunk_bytes_received: u64,
    /// Times that a chunk was refused here because there was no room.
    pub refusals_sent: u64,
    /// Times that the neighbour refused a chunk because it had no room.
    pub refusals_received: u64,
    /// Retransmission time-outs that expired.
    pub timeouts: u64,
    /// Resends that proved unnecessary, as the neighbour counted them.
    pub spurious_resends: u64,
    /// Sessions established.
    pub sessions: u64,
    /// Times that the neighbour became unresponsive.
    pub outages: u64,
    /// Frames dropped, by reason.
    pub drops: HopDrops,
    /// Smoothed round trip.
    pub rtt: Option<Duration>,
    /// Smallest recent round trip.
    pub min_rtt: Option<Duration>,
    /// Estimated rate at which the path delivers, bits of DATA frames per second; 0 before the
    /// first estimate.
    pub bandwidth: u64,
    /// Bytes of the largest frame that is sent; 0 before there is a session.
    pub largest_frame: usize,
    /// Probes of the path MTU sent.
    pub mtu_probes: u64,
    /// Times that large frames were found to vanish.
    pub mtu_falls: u64,
    /// Share of DATA bytes that do not arrive, 0 to 1, smoothed.
    pub loss: f64,
    /// W_ad: packets that the neighbour lets be outstanding.
    pub window: u32,
    /// W_ostd: packets of chunks under way that are not yet acknowledged as whole chunks.
    pub outstanding: u32,
    /// Bytes sent since the newest CSYN that was answered.
    pub inflight: u64,
    /// Largest value that `inflight` may reach now.
    pub inflight_cap: u64,
    /// Chunks that wait to be started.
    pub chunks_queued: usize,
    /// Chunks under way to the neighbour.
    pub chunks_in_flight: usize,
    /// Half-received chunks.
    pub chunks_arriving: usize,
    /// How much later than a packet a CSYN must have been sent to declare that packet lost.
    pub reordering_window: Duration,
}

/// Frames that were dropped, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HopDrops {
    /// Too short, of an unknown version or type, or with fields that contradict each other.
    pub malformed: u64,
    /// The CRC-32C is wrong: damaged on the way.
    pub corrupt: u64,
    /// Not of this session: from before a restart, or forged.
    pub wrong_session: u64,
    /// A HELLO that could not be answered because HELLOs are rate-limited.
    pub hello_limited: u64,
    /// DATA of a transfer that is finished or cancelled.
    pub finished: u64,
    /// DATA or CSYN of a transfer older than all that are remembered.
    pub stale: u64,
    /// DATA for which there is no room.
    pub no_room: u64,
    /// DATA or CSYN that contradicts what is known of the transfer, or exceeds a negotiated limit.
    pub inconsistent: u64,
    /// A CACK for something that was never sent.
    pub false_ack: u64,
    /// A CACK of a transfer that is over.
    pub late_ack: u64,
}

impl HopDrops {
    /// All drops together.
    pub fn total(&self) -> u64 {
        self.malformed
            + self.corrupt
            + self.wrong_session
            + self.hello_limited
            + self.finished
            + self.stale
            + self.no_room
            + self.inconsistent
            + self.false_ack
            + self.late_ack
    }
}
