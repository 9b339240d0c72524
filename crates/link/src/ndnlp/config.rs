//! What the owner of a face decides.

use core::time::Duration;

/// What a frame of the face is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Frames arrive whole or not at all: UDP, Ethernet, WebSocket messages.
    Datagram {
        /// Largest frame, in bytes; at least [`MIN_MTU`] is taken.
        mtu: usize,
    },
    /// An ordered, reliable stream of TLV elements: Unix, TCP. Nothing is cut, and reliability is
    /// off.
    Stream {
        /// Bytes that one call of `poll_transmit` may write, beyond the packet that it writes in
        /// any case.
        batch: usize,
    },
}

/// Smallest MTU that is used, in bytes: a fragment of a packet fits beside all link fields.
pub const MIN_MTU: usize = 128;
/// Largest MTU that is used, in bytes: what a UDP datagram over IPv4 holds.
pub const MAX_MTU: usize = 65_507;

/// How lost frames are recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reliability {
    /// Not at all.
    Off,
    /// As the paper describes it [BELRP §III]. Both ends must be set to it.
    Paper {
        /// A frame is sent again at most so often: 1, 2 or 3 in the paper.
        max_retransmissions: u8,
    },
    /// NDNLPv2's reliability feature, as NFD has it. A peer that never acknowledges is not burdened
    /// for long.
    Ndnlpv2,
    /// Between Whimbrel routers. A peer that does not answer in kind gets plain frames.
    Adaptive,
    /// [`Reliability::Adaptive`] if the peer answers in kind, else [`Reliability::Ndnlpv2`] if it
    /// acknowledges, else off.
    Auto,
}

/// The settings of one [`LinkService`](super::LinkService). All are brought within their bounds
/// when it is made.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkServiceConfig {
    /// What a frame is.
    pub frames: FrameKind,
    /// How lost frames are recovered; of no effect on streams.
    pub reliability: Reliability,
    /// Packets are cut to the MTU. If not, a packet that does not fit is dropped and counted.
    pub fragmentation: bool,
    /// The medium pads frames shorter than this many bytes with zeros (Ethernet: 46); 0 if it does
    /// not.
    pub smallest_frame: usize,
    /// Most packets that wait to be sent; a further one is dropped and counted.
    pub queue_packets: usize,
    /// Most bytes of packets that wait to be sent.
    pub queue_bytes: usize,
    /// Congestion is marked.
    pub marking: bool,
    /// More bytes than this in the queue for the whole [`marking_interval`](Self::marking_interval)
    /// are congestion (NFD: 65,536).
    pub marking_threshold: usize,
    /// See [`marking_threshold`](Self::marking_threshold) (NFD: 100 ms).
    pub marking_interval: Duration,
    /// Frames leave one at a time at this rate in bit/s, so that the queue here is the queue of a
    /// modelled device. `None`: as fast as the driver asks.
    pub drain_rate: Option<u64>,
    /// Bytes that the modelled device adds to each frame.
    pub drain_overhead: u32,
    /// Most frames that are kept until they are acknowledged; beyond that the oldest one is let go.
    pub most_outstanding: usize,
    /// Adaptive profile: a frame is sent again at most so often, ...
    pub max_retransmissions: u8,
    /// ... an Interest not beyond its lifetime, and anything else not so long after it was given to
    /// the link.
    pub data_patience: Duration,
    /// Adaptive profile: news of frames waits at most so long for a packet to travel with; told to
    /// the peer in whole ms.
    pub report_delay: Duration,
    /// Most packets of which some fragments are missing.
    pub reassembly_packets: usize,
    /// Most bytes of them.
    pub reassembly_bytes: usize,
    /// A packet of which no further fragment comes for so long is dropped (NFD: 500 ms).
    pub reassembly_timeout: Duration,
}

impl LinkServiceConfig {
    /// For a face whose frames are datagrams of at most `mtu` bytes.
    pub fn datagram(mtu: usize) -> LinkServiceConfig {
        LinkServiceConfig {
            frames: FrameKind::Datagram { mtu },
            reliability: Reliability::Off,
            fragmentation: true,
            smallest_frame: 0,
            queue_packets: 8192,
            queue_bytes: 4 << 20,
            marking: true,
            marking_threshold: 65_536,
            marking_interval: Duration::from_millis(100),
            drain_rate: None,
            drain_overhead: 0,
            most_outstanding: 16_384,
            max_retransmissions: 7,
            data_patience: Duration::from_secs(1),
            report_delay: Duration::from_millis(10),
            reassembly_packets: 64,
            reassembly_bytes: 1 << 20,
            reassembly_timeout: Duration::from_millis(500),
        }
    }

    /// For a face over an ordered, reliable stream.
    pub fn stream() -> LinkServiceConfig {
        LinkServiceConfig {
            frames: FrameKind::Stream { batch: 65_536 },
            ..LinkServiceConfig::datagram(MAX_MTU)
        }
    }

    /// The same settings within their bounds.
    pub(crate) fn bounded(mut self) -> LinkServiceConfig {
        match &mut self.frames {
            FrameKind::Datagram { mtu } => *mtu = (*mtu).clamp(MIN_MTU, MAX_MTU),
            FrameKind::Stream { batch } => {
                *batch = (*batch).min(16 << 20);
                self.reliability = Reliability::Off;
                self.fragmentation = false;
            }
        }
        self.queue_packets = self.queue_packets.max(1);
        self.queue_bytes = self.queue_bytes.max(1);
        self.marking_interval = self.marking_interval.max(Duration::from_millis(1));
        self.drain_rate = self.drain_rate.map(|rate| rate.max(1));
        self.most_outstanding = self.most_outstanding.clamp(16, 1 << 20);
        self.report_delay = self
            .report_delay
            .clamp(Duration::from_millis(1), Duration::from_millis(250));
        self.reassembly_packets = self.reassembly_packets.max(1);
        self
    }
}
