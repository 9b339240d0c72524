//! The configuration of a face's link service.

use core::time::Duration;

/// The kind of frames of the face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Frames arrive whole or not at all: UDP, Ethernet, WebSocket messages.
    Datagram {
        /// Largest frame, in bytes; at least [`MIN_MTU`] is used.
        mtu: usize,
    },
    /// An ordered, reliable stream of TLV elements: Unix, TCP. Packets are not fragmented, and
    /// reliability is off.
    Stream {
        /// Bytes that one call of `poll_transmit` may write, beyond the packet that it writes in
        /// any case.
        batch: usize,
    },
}

/// Minimum MTU, in bytes: a fragment of a packet fits beside all link fields.
pub const MIN_MTU: usize = 128;
/// Maximum MTU, in bytes: the payload of a UDP datagram over IPv4.
pub const MAX_MTU: usize = 65_507;

/// The method of recovering lost frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reliability {
    /// No recovery.
    Off,
    /// The paper's protocol [BELRP §III]. Both ends must be set to it.
    Paper(PaperOptions),
    /// NDNLPv2's reliability feature, as in NFD. A peer that never acknowledges is detected.
    Ndnlpv2,
    /// Between Whimbrel routers. A peer that does not support it gets plain frames.
    Adaptive,
    /// [`Reliability::Adaptive`] if the peer supports it, else [`Reliability::Ndnlpv2`] if the peer
    /// acknowledges, else off.
    Auto,
}

/// What the paper varies, and what its text leaves to the reader. The default is the text's letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperOptions {
    /// Maximum of retransmissions per frame: 1, 2 or 3 in the paper.
    pub max_retransmissions: u8,
    /// Distinct ACKs of later frames after which a frame is lost; at least 1. "only after receiving
    /// 3 distinct ACKs, each with a sequence number greater than m" [BELRP §III-D].
    pub later_acks: u8,
    /// A frame sent for an ACK that reports a gap carries one copy of all ACKs that wait. "the
    /// receiver will transmit this ACK immediately" [BELRP §III-D] is that one alone.
    pub acks_together: bool,
}

impl PaperOptions {
    /// Returns the paper's protocol with at most this many retransmissions per frame.
    pub const fn retransmitting(max_retransmissions: u8) -> PaperOptions {
        PaperOptions {
            max_retransmissions,
            later_acks: 3,
            acks_together: false,
        }
    }
}

impl Default for PaperOptions {
    /// At most 3 retransmissions: the most that the paper tried [BELRP §IV].
    fn default() -> PaperOptions {
        PaperOptions::retransmitting(3)
    }
}

/// The settings of one [`LinkService`](super::LinkService), which limits all of them to their
/// bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkServiceConfig {
    /// The kind of frames.
    pub frames: FrameKind,
    /// The recovery of lost frames; ignored on streams.
    pub reliability: Reliability,
    /// Finds the path MTU where the path drops large frames silently, and uses smaller ones; ignored
    /// on streams.
    pub finds_path_mtu: bool,
    /// Fragments packets to the MTU. If false, a packet that does not fit is dropped and counted.
    pub fragmentation: bool,
    /// The size in bytes to which the medium pads shorter frames with zeros (Ethernet: 46); 0
    /// without padding.
    pub smallest_frame: usize,
    /// Maximum of queued packets; further ones are dropped and counted.
    pub queue_packets: usize,
    /// Maximum of bytes of queued packets.
    pub queue_bytes: usize,
    /// Marks congestion.
    pub marking: bool,
    /// More queued bytes than this for the whole [`marking_interval`](Self::marking_interval) are
    /// congestion (NFD: 65,536).
    pub marking_threshold: usize,
    /// See [`marking_threshold`](Self::marking_threshold) (NFD: 100 ms).
    pub marking_interval: Duration,
    /// Frames leave one at a time at this rate in bit/s, so that the queue here is the queue of a
    /// modelled device. `None`: as fast as the driver polls.
    pub drain_rate: Option<u64>,
    /// Bytes that the modelled device adds to each frame.
    pub drain_overhead: u32,
    /// Maximum of unacknowledged frames; beyond it the oldest one is forgotten.
    pub max_outstanding: usize,
    /// Adaptive profile: maximum of retransmissions per frame, ...
    pub max_retransmissions: u8,
    /// ... an Interest not beyond its lifetime, and other packets not after this time in the link: as
    /// long as the Interest of a Data waits that states no lifetime ([NDN-PACKET, Interest]).
    pub data_patience: Duration,
    /// Adaptive profile: maximum time that a report waits for a packet to carry it; announced to
    /// the peer in whole ms.
    pub report_delay: Duration,
    /// Maximum of incomplete packets.
    pub reassembly_packets: usize,
    /// Maximum of bytes of incomplete packets.
    pub reassembly_bytes: usize,
    /// An incomplete packet without a new fragment for this long is dropped (NFD: 500 ms). Where lost
    /// frames are recovered, it waits for [`data_patience`](Self::data_patience) if that is longer.
    pub reassembly_timeout: Duration,
}

impl LinkServiceConfig {
    /// Returns settings of a face whose frames are datagrams of at most `mtu` bytes.
    pub fn datagram(mtu: usize) -> LinkServiceConfig {
        LinkServiceConfig {
            frames: FrameKind::Datagram { mtu },
            reliability: Reliability::Off,
            finds_path_mtu: false,
            fragmentation: true,
            smallest_frame: 0,
            queue_packets: 8192,
            queue_bytes: 4 << 20,
            marking: true,
            marking_threshold: 65_536,
            marking_interval: Duration::from_millis(100),
            drain_rate: None,
            drain_overhead: 0,
            max_outstanding: 16_384,
            max_retransmissions: 7,
            data_patience: Duration::from_secs(4),
            report_delay: Duration::from_millis(10),
            reassembly_packets: 256,
            reassembly_bytes: 1 << 20,
            reassembly_timeout: Duration::from_millis(500),
        }
    }

    /// Returns settings of a face over an ordered, reliable stream.
    pub fn stream() -> LinkServiceConfig {
        LinkServiceConfig {
            frames: FrameKind::Stream { batch: 65_536 },
            ..LinkServiceConfig::datagram(MAX_MTU)
        }
    }

    /// Returns the settings limited to their bounds.
    pub(crate) fn bounded(mut self) -> LinkServiceConfig {
        match &mut self.frames {
            FrameKind::Datagram { mtu } => *mtu = (*mtu).clamp(MIN_MTU, MAX_MTU),
            FrameKind::Stream { batch } => {
                *batch = (*batch).min(16 << 20);
                self.reliability = Reliability::Off;
                self.finds_path_mtu = false;
                self.fragmentation = false;
            }
        }
        self.queue_packets = self.queue_packets.max(1);
        self.queue_bytes = self.queue_bytes.max(1);
        self.marking_interval = self.marking_interval.max(Duration::from_millis(1));
        self.drain_rate = self.drain_rate.map(|rate| rate.max(1));
        self.max_outstanding = self.max_outstanding.clamp(16, 1 << 20);
        self.report_delay = self
            .report_delay
            .clamp(Duration::from_millis(1), Duration::from_millis(250));
        self.reassembly_packets = self.reassembly_packets.max(1);
        if self.reliability != Reliability::Off {
            // The last fragment may have been lost several times.
            self.reassembly_timeout = self.reassembly_timeout.max(self.data_patience);
        }
        if let Reliability::Paper(options) = &mut self.reliability {
            options.later_acks = options.later_acks.max(1);
        }
        self
    }
}
