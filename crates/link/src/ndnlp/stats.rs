//! Counters and estimates of a face.

use core::time::Duration;

use serde::Serialize;

use super::piece::Piece;

/// Counters and estimates of one face since its creation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkStats {
    /// Frames of all kinds passed to the driver.
    pub frames_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Bytes of network-layer packets in them, retransmissions included.
    pub payload_bytes_sent: u64,
    /// Frames received, bad ones included.
    pub frames_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Network-layer packets accepted for sending.
    pub packets_queued: u64,
    /// Network-layer packets of which the last (or only) frame was sent for the first time.
    pub packets_sent: u64,
    /// Network-layer packets delivered to the forwarder.
    pub packets_delivered: u64,
    /// Frames retransmitted.
    pub retransmissions: u64,
    /// Their bytes.
    pub retransmitted_bytes: u64,
    /// Retransmissions that the sender recognised as spurious: the original frame had arrived.
    pub spurious: u64,
    /// Duplicate frames: spurious retransmissions, and duplicates made by the network.
    pub duplicates: u64,
    /// Frames declared lost by acknowledgements of later ones.
    pub losses: u64,
    /// Frames declared lost, or probed, because an acknowledgement was overdue.
    pub timeouts: u64,
    /// Acknowledged frames that had been retransmitted.
    pub recovered: u64,
    /// Frames acknowledged.
    pub acknowledged: u64,
    /// Bytes of network-layer packets in them.
    pub acknowledged_bytes: u64,
    /// Packets not sent, because the same packet is being retransmitted.
    pub spared: u64,
    /// Frames abandoned after all retransmissions, or because their packet is no longer useful.
    pub given_up: u64,
    /// Frames forgotten unacknowledged because too many were outstanding, or because the peer
    /// changed.
    pub abandoned: u64,
    /// Delays from the transmission of a frame to the detection of its loss.
    pub detection: Delays,
    /// Delays from the queueing of a frame to the detection of its loss.
    pub detection_from_queue: Delays,
    /// Single acknowledgements (or reports) piggybacked on packets.
    pub acks_carried: u64,
    /// Frames sent only to acknowledge.
    pub ack_frames: u64,
    /// Single acknowledgements (or reports) in those.
    pub acks_alone: u64,
    /// Single acknowledgements (or reports) received.
    pub acks_received: u64,
    /// Frames sent to request a report.
    pub asks_sent: u64,
    /// Announcements of the adaptive profile sent.
    pub hellos_sent: u64,
    /// Times that both ends agreed on the adaptive profile.
    pub sessions: u64,
    /// Frames with a malformed header field that was skipped, because it belongs to a feature that
    /// is off here.
    pub fields_skipped: u64,
    /// Times that large frames were found not to arrive, so that smaller ones are sent.
    pub mtu_falls: u64,
    /// Probes of the path MTU sent.
    pub mtu_probes: u64,
    /// Packets marked here because of congestion.
    pub marks: u64,
    /// Share of frames lost, 0 to 1, smoothed over some hundreds of frames.
    pub loss: f64,
    /// Smoothed round trip of the link.
    pub rtt: Option<Duration>,
    /// The minimum time between the transmissions of two frames for the arrival of the later to
    /// prove the loss of the earlier.
    pub reordering_window: Duration,
    /// Frames sent and not acknowledged.
    pub outstanding: usize,
    /// Maximum of outstanding frames so far.
    pub outstanding_high_water: usize,
    /// Maximum of outstanding or queued frames so far.
    pub buffer_high_water: usize,
    /// Bytes of packets that wait to be sent.
    pub queue_bytes: usize,
    /// Packets that wait to be sent.
    pub queue_packets: usize,
    /// Maximum of queued packets so far.
    pub queue_high_water: usize,
    /// The current profile.
    pub mode: Mode,
    /// Packets and frames dropped, by reason.
    pub drops: LinkDrops,
}

impl LinkStats {
    /// Bytes sent beyond those of packets: headers, and frames without a packet. Negative if the
    /// compact framing saves more than it adds.
    pub fn header_bytes(&self) -> i64 {
        self.bytes_sent as i64 - self.payload_bytes_sent as i64
    }

    /// Counts the first acknowledgement of a frame with this piece.
    pub(crate) fn arrived(&mut self, piece: &Piece) {
        self.acknowledged += 1;
        self.acknowledged_bytes += u64::from(piece.len);
        self.recovered += u64::from(piece.retransmissions > 0);
    }
}

/// The profile in use on a face.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// No profile: reliability is off, or the peer does not support it.
    #[default]
    None,
    /// The paper's protocol.
    Paper,
    /// NDNLPv2; the peer acknowledges.
    Ndnlpv2,
    /// The adaptive profile.
    Adaptive,
}

/// A distribution of delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Delays {
    /// The number of delays.
    pub count: u64,
    /// Their sum.
    pub total: Duration,
    /// The longest one.
    pub longest: Duration,
    /// The number of delays below 0.25 ms x 2^i and not below half of that; the last bucket
    /// includes all longer ones.
    pub buckets: [u64; 16],
}

impl Delays {
    pub(crate) fn record(&mut self, delay: Duration) {
        self.count += 1;
        self.total = self.total.saturating_add(delay);
        self.longest = self.longest.max(delay);
        let quarters = u64::try_from(delay.as_micros() / 250).unwrap_or(u64::MAX);
        let bucket = (64 - quarters.leading_zeros()) as usize;
        let last = self.buckets.len() - 1;
        if let Some(count) = self.buckets.get_mut(bucket.min(last)) {
            *count += 1;
        }
    }

    /// Returns the mean, or `None` without any delay.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.total.div_f64(self.count as f64))
    }
}

/// Drops by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkDrops {
    /// Frames that are not a packet of any known kind.
    pub malformed: u64,
    /// Packets for which the queue had no room.
    pub queue_full: u64,
    /// Packets that do not fit the MTU.
    pub too_big: u64,
    /// Fragments whose numbers contradict those of their siblings or exceed a bound.
    pub bad_fragment: u64,
    /// Duplicate fragments.
    pub duplicate_fragment: u64,
    /// Packets dropped because their fragments did not arrive in time.
    pub reassembly_timeout: u64,
    /// Packets dropped because there were too many incomplete ones.
    pub reassembly_full: u64,
    /// Fragments of a compact frame without an agreement on its numbers.
    pub no_session: u64,
    /// Acknowledgements of frames that were never sent, or were forgotten.
    pub false_acks: u64,
    /// Acknowledgements dropped because too many were queued.
    pub acks_overflow: u64,
}

impl LinkDrops {
    /// Returns the sum of all drops.
    pub fn total(&self) -> u64 {
        self.malformed
            + self.queue_full
            + self.too_big
            + self.bad_fragment
            + self.duplicate_fragment
            + self.reassembly_timeout
            + self.reassembly_full
            + self.no_session
            + self.false_acks
            + self.acks_overflow
    }
}

/// The loss rate of frames, smoothed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossMeter {
    share: f64,
}

impl LossMeter {
    /// The weight of the newest frame is one in this many.
    const FRAMES: f64 = 256.0;

    pub(crate) fn arrived(&mut self) {
        self.share -= self.share / Self::FRAMES;
    }

    pub(crate) fn lost(&mut self) {
        self.share += (1.0 - self.share) / Self::FRAMES;
    }

    /// Corrects the rate for a frame that was counted as lost but arrived.
    pub(crate) fn not_lost(&mut self) {
        self.share = (self.share - 1.0 / Self::FRAMES).max(0.0);
    }

    pub(crate) fn share(&self) -> f64 {
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_fall_into_buckets_that_double() {
        let mut delays = Delays::default();
        for micros in [0, 249, 250, 499, 500, 16_000, 10_000_000] {
            delays.record(Duration::from_micros(micros));
        }
        assert_eq!(delays.buckets[..8], [2, 2, 1, 0, 0, 0, 0, 1]);
        assert_eq!((delays.buckets[15], delays.count), (1, 7));
        assert_eq!(delays.longest, Duration::from_secs(10));
    }
}
