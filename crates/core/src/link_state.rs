//! What is known of the link behind a face or port.

use core::time::Duration;

/// A snapshot of one outgoing link, as its link service measured it. Cheap to make and to copy.
///
/// It is made for decisions about where to send: a value that nobody measures is `None` and says
/// nothing, in particular not that the link is good.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkState {
    /// The highest rate at which the neighbour acknowledged packets lately, in bytes of packets per
    /// second; where the link models a device of a configured rate, that rate. A link that was
    /// not kept busy can carry more than this.
    pub delivery_rate: Option<u64>,
    /// Bytes of packets that wait to be sent.
    pub queue_bytes: usize,
    /// Packets, or parts of them to be sent again, that wait to be sent.
    pub queue_packets: usize,
    /// How long the first of them has been waiting; zero if there is none.
    pub queue_age: Duration,
    /// Share of frames that were lost, 0 to 1, smoothed over some hundreds of frames. Losses that
    /// were recovered count.
    pub loss: Option<f64>,
    /// Smoothed round-trip time to the neighbour.
    pub rtt: Option<Duration>,
}
