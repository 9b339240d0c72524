//! The measured state of the link behind a face or port.

use core::time::Duration;

/// A snapshot of one outgoing link, as its link service measured it. Cheap to make and to copy.
///
/// It serves decisions about where to send: a value that is not measured is `None`, which does not
/// mean that the link is good.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkState {
    /// The highest recent rate at which the neighbour acknowledged packets, in bytes of packets per
    /// second; on a link that models a device of a configured rate, that rate. An underused link
    /// can carry more than this.
    pub delivery_rate: Option<u64>,
    /// Bytes of packets, or of chunks where a hop carries chunks, that wait to be sent.
    pub queue_bytes: usize,
    /// Packets, parts of them to be retransmitted, or chunks that wait to be sent.
    pub queue_packets: usize,
    /// How long the first of them has been waiting; `None` also if the queue is empty.
    pub queue_age: Option<Duration>,
    /// Share of frames that were lost, 0 to 1, smoothed over some hundreds of frames. Losses that
    /// were recovered count.
    pub loss: Option<f64>,
    /// Smoothed round-trip time to the neighbour.
    pub rtt: Option<Duration>,
}
