//! What a proxy counts.

use crate::message::MessageError;
use crate::seal::OpenError;
use crate::segment::SegmentError;

/// Counters of a [`crate::Proxy`] since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets from the device.
    pub device_packets: u64,
    /// Packets to the device.
    pub delivered_packets: u64,
    /// Interests sent.
    pub out_interests: u64,
    /// Data sent.
    pub out_data: u64,
    /// Segments in these Data.
    pub out_segments: u64,
    /// Interests received.
    pub in_interests: u64,
    /// Data received that answer a pending Interest.
    pub in_data: u64,
    /// Nacks received.
    pub in_nacks: u64,
    /// Segments sent once more after an outage.
    pub revived: u64,
    /// Probes and checks of paths sent.
    pub probes: u64,
    /// Paths left because they failed.
    pub failed_paths: u64,
    /// Connections since the start.
    pub connections: u64,
    /// Packets dropped: not whole IP packets with TCP.
    pub malformed: u64,
    /// Packets dropped: fragments.
    pub fragments: u64,
    /// Packets dropped: another protocol.
    pub not_tcp: u64,
    /// Packets dropped: wrong checksum.
    pub wrong_checksum: u64,
    /// Segments dropped: the configuration does not allow them.
    pub denied: u64,
    /// Segments and messages dropped: of no known connection.
    pub unknown_connection: u64,
    /// Segments dropped: the table of connections is full.
    pub table_full: u64,
    /// Segments and messages dropped: too many connections that nobody answered were opened.
    pub not_admitted: u64,
    /// Connections forgotten because too many were opening.
    pub opening_forgotten: u64,
    /// Segments dropped: a queue is full.
    pub queue_full: u64,
    /// Messages and Data dropped: wrong authentication.
    pub forged: u64,
    /// Messages and Data dropped: received before.
    pub replayed: u64,
    /// Messages and Data dropped: their time is too far from this host's.
    pub untimely: u64,
    /// Messages and Data dropped: another version.
    pub other_version: u64,
    /// Messages and Data dropped: their form is wrong.
    pub bad_messages: u64,
    /// Data and Nacks that no pending Interest expects.
    pub unexpected: u64,
    /// ICMP errors sent to the device.
    pub icmp_errors: u64,
}

impl Counters {
    pub(crate) const fn count_segment(&mut self, error: SegmentError) {
        let counter = match error {
            SegmentError::Malformed => &mut self.malformed,
            SegmentError::Fragment => &mut self.fragments,
            SegmentError::NotTcp(_) => &mut self.not_tcp,
            SegmentError::Checksum => &mut self.wrong_checksum,
        };
        *counter += 1;
    }

    pub(crate) const fn count_open(&mut self, error: OpenError) {
        let counter = match error {
            OpenError::Malformed => &mut self.bad_messages,
            OpenError::Forged => &mut self.forged,
            OpenError::Replayed => &mut self.replayed,
            OpenError::Untimely => &mut self.untimely,
        };
        *counter += 1;
    }

    pub(crate) const fn count_message(&mut self, error: MessageError) {
        let counter = match error {
            MessageError::Version(_) => &mut self.other_version,
            MessageError::Malformed | MessageError::Kind(_) => &mut self.bad_messages,
        };
        *counter += 1;
    }
}
