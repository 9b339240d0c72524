//! What a link tells of itself.

use core::time::Duration;

/// What a link service measures of its link, for those who choose between links.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkState {
    /// Delivery rate, bytes/s; `None` until it has been measured.
    pub rate: Option<u64>,
    /// Bytes that wait to be sent.
    pub queued_bytes: u64,
    /// Packets that wait to be sent.
    pub queued_packets: u32,
    /// How long the packet at the head of the queue has waited; zero if none waits.
    pub queue_delay: Duration,
    /// Share of frames that are lost, 0 to 1, smoothed; `None` where nobody can tell.
    pub loss: Option<f32>,
    /// Round-trip time to the peer, smoothed; `None` until it has been measured.
    pub rtt: Option<Duration>,
}
