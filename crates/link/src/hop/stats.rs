//! Counters of a hop.

use core::time::Duration;

use serde::Serialize;

/// Counters and estimates of one hop since its creation. Bytes are bytes of frames unless stated
/// otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HopStats {
    /// Frames of all kinds sent.
    pub frames_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// DATA frames sent, including retransmissions.
    pub data_sent: u64,
    /// DATA frames retransmitted because they were declared lost.
    pub data_resent: u64,
    /// CSYN frames sent, probes included.
    pub csyn_sent: u64,
    /// CSYNs carried by a DATA frame.
    pub csyn_carried: u64,
    /// Frames accepted.
    pub frames_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// DATA frames accepted with a new packet.
    pub data_received: u64,
    /// DATA frames accepted with a duplicate packet.
    pub duplicates: u64,
    /// Chunks that the neighbour acknowledged.
    pub chunks_delivered: u64,
    /// Bytes of those chunks.
    pub chunk_bytes_delivered: u64,
    /// Chunks passed to the owner.
    pub chunks_received: u64,
    /// Bytes of those chunks.
    pub chunk_bytes_received: u64,
    /// Times that a chunk was refused here because there was no room.
    pub refusals_sent: u64,
    /// Times that the neighbour refused a chunk because it had no room.
    pub refusals_received: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Spurious retransmissions, as counted by the neighbour.
    pub spurious_resends: u64,
    /// Sessions established.
    pub sessions: u64,
    /// Times that the neighbour became unresponsive.
    pub outages: u64,
    /// Frames dropped, by reason.
    pub drops: HopDrops,
    /// True if the session's keys come from a hybrid exchange: ML-KEM beside X25519.
    pub hybrid: bool,
    /// True if frames are sent as ECN-capable and arrive so.
    pub ecn: bool,
    /// Sent frames that queues on the path have marked, as reported by the neighbour.
    pub marks_reported: u64,
    /// Received frames that queues on the path have marked.
    pub marks_received: u64,
    /// Smoothed round trip.
    pub rtt: Option<Duration>,
    /// Smallest recent round trip.
    pub min_rtt: Option<Duration>,
    /// Estimated delivery rate of the path, bits of DATA frames per second; 0 before the first
    /// estimate.
    pub bandwidth: u64,
    /// Bytes of the largest frame that is sent; 0 before there is a session.
    pub largest_frame: usize,
    /// Probes of the path MTU sent.
    pub mtu_probes: u64,
    /// Times that a black hole for large frames was detected.
    pub mtu_falls: u64,
    /// Share of DATA bytes that do not arrive, 0 to 1, smoothed.
    pub loss: f64,
    /// W_ad: the packets that the neighbour accepts.
    pub window: u32,
    /// W_ostd: packets of begun chunks that are not yet acknowledged as whole chunks.
    pub outstanding: u32,
    /// Bytes sent since the newest CSYN that was answered.
    pub inflight: u64,
    /// Largest value that `inflight` may reach now.
    pub inflight_cap: u64,
    /// Chunks that wait to be begun.
    pub chunks_queued: usize,
    /// Chunks in transfer to the neighbour.
    pub chunks_in_flight: usize,
    /// Incomplete received chunks.
    pub chunks_arriving: usize,
    /// The minimum time between a packet and a later CSYN whose answer declares the packet lost.
    pub reordering_window: Duration,
}

/// Dropped frames, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HopDrops {
    /// Too short, of an unknown version or type, or with contradictory fields.
    pub malformed: u64,
    /// The CRC-32C is wrong: the frame was damaged.
    pub corrupt: u64,
    /// Of another session: from before a restart, or forged.
    pub wrong_session: u64,
    /// Sealed, and changed on the way or forged.
    pub forged: u64,
    /// Sealed, and accepted before or far behind the others.
    pub replayed: u64,
    /// A message of the handshake that proves nothing.
    pub bad_handshake: u64,
    /// Plain on a link that requires encryption, or encrypted on a plain one.
    pub wrong_mode: u64,
    /// A greeting that could not be answered because greetings are rate-limited.
    pub hello_limited: u64,
    /// DATA of a transfer that is finished or cancelled.
    pub finished: u64,
    /// DATA or CSYN of a transfer older than the remembered ones.
    pub stale: u64,
    /// DATA for which there is no room.
    pub no_room: u64,
    /// DATA or CSYN that contradicts the state of the transfer, or exceeds a negotiated limit.
    pub inconsistent: u64,
    /// A CACK for a frame that was never sent.
    pub false_ack: u64,
    /// A CACK of a finished transfer.
    pub late_ack: u64,
}

impl HopStats {
    /// Adds the counters of another hop. Estimates and levels stay as they are.
    pub fn add_counters(&mut self, other: &HopStats) {
        self.frames_sent += other.frames_sent;
        self.bytes_sent += other.bytes_sent;
        self.data_sent += other.data_sent;
        self.data_resent += other.data_resent;
        self.csyn_sent += other.csyn_sent;
        self.csyn_carried += other.csyn_carried;
        self.frames_received += other.frames_received;
        self.bytes_received += other.bytes_received;
        self.data_received += other.data_received;
        self.duplicates += other.duplicates;
        self.chunks_delivered += other.chunks_delivered;
        self.chunk_bytes_delivered += other.chunk_bytes_delivered;
        self.chunks_received += other.chunks_received;
        self.chunk_bytes_received += other.chunk_bytes_received;
        self.refusals_sent += other.refusals_sent;
        self.refusals_received += other.refusals_received;
        self.timeouts += other.timeouts;
        self.spurious_resends += other.spurious_resends;
        self.sessions += other.sessions;
        self.outages += other.outages;
        self.marks_reported += other.marks_reported;
        self.marks_received += other.marks_received;
        self.mtu_probes += other.mtu_probes;
        self.mtu_falls += other.mtu_falls;
        self.drops.add(&other.drops);
    }
}

impl HopDrops {
    fn add(&mut self, other: &HopDrops) {
        self.malformed += other.malformed;
        self.corrupt += other.corrupt;
        self.wrong_session += other.wrong_session;
        self.forged += other.forged;
        self.replayed += other.replayed;
        self.bad_handshake += other.bad_handshake;
        self.wrong_mode += other.wrong_mode;
        self.hello_limited += other.hello_limited;
        self.finished += other.finished;
        self.stale += other.stale;
        self.no_room += other.no_room;
        self.inconsistent += other.inconsistent;
        self.false_ack += other.false_ack;
        self.late_ack += other.late_ack;
    }

    /// Returns the sum of all drops.
    pub fn total(&self) -> u64 {
        self.malformed
            + self.corrupt
            + self.wrong_session
            + self.forged
            + self.replayed
            + self.bad_handshake
            + self.wrong_mode
            + self.hello_limited
            + self.finished
            + self.stale
            + self.no_room
            + self.inconsistent
            + self.false_ack
            + self.late_ack
    }
}
