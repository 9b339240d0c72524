//! The link service: puts the parts together.

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{Deadline, SeededRng, Time};
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{LpHeader, LpPacket};

use super::config::{FrameKind, LinkServiceConfig, MAX_MTU, MIN_MTU, Reliability};
use super::marking::CongestionMarker;
use super::pacer::Pacer;
use super::queue::{OutQueue, QueuedPacket};
use super::stats::LinkStats;

/// What [`LinkService::poll_transmit`] appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes appended to the buffer.
    pub size: usize,
    /// If set, the bytes are several frames of this size, the last one possibly shorter. If not, they are one frame,
    /// or on a stream whole packets one after the other.
    pub segment_size: Option<usize>,
}

/// What the link tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// This Interest or Data was not acknowledged after all retransmissions.
    GaveUp(Bytes),
}

/// NDNLPv2 and reliability on one face. See the [module](super).
#[derive(Debug)]
pub struct LinkService {
    config: LinkServiceConfig,
    mtu: usize,
    blocked: bool,
    queue: OutQueue,
    marker: CongestionMarker,
    pacer: Option<Pacer>,
    events: VecDeque<LinkEvent>,
    stats: LinkStats,
    _rng: SeededRng,
}

impl LinkService {
    /// The service of a new face.
    pub fn new(config: LinkServiceConfig, rng: SeededRng) -> LinkService {
        let config = config.bounded();
        let mtu = match config.frames {
            FrameKind::Datagram { mtu } => mtu,
            FrameKind::Stream { .. } => usize::MAX,
        };
        LinkService {
            mtu,
            blocked: false,
            queue: OutQueue::new(config.queue_packets, config.queue_bytes),
            marker: CongestionMarker::new(config.marking_threshold, config.marking_interval),
            pacer: config.drain_rate.map(|rate| Pacer::new(rate, config.drain_overhead)),
            events: VecDeque::new(),
            stats: LinkStats::default(),
            _rng: rng,
            config,
        }
    }

    /// One frame came in; on a stream, one TLV element. `deliver` gets each whole network-layer packet.
    pub fn handle_frame(&mut self, now: Time, frame: &[u8], deliver: &mut dyn FnMut(&LpPacket<'_>)) {
        let _ = now;
        self.stats.frames_received += 1;
        self.stats.bytes_received += frame.len() as u64;
        match LpPacket::decode(frame, self.config.smallest_frame > 0) {
            Ok(lp) if lp.fragment.is_some() && lp.frag_count == 1 => {
                self.stats.packets_delivered += 1;
                deliver(&lp);
            }
            Ok(lp) if lp.fragment.is_none() => {}
            Ok(_) => self.stats.drops.bad_fragment += 1,
            Err(_) => self.stats.drops.malformed += 1,
        }
    }

    /// Queues a whole network-layer packet; dropped and counted if there is no room.
    pub fn send(&mut self, now: Time, packet: Bytes, header: Option<Box<LpHeader>>) {
        let header = header.filter(|header| !header.is_empty());
        if !self.queue.push(QueuedPacket { packet, header, queued_at: now }) {
            self.stats.drops.queue_full += 1;
            return;
        }
        self.stats.packets_queued += 1;
        self.stats.queue_packets = self.queue.len();
        self.stats.queue_bytes = self.queue.bytes();
        self.stats.queue_high_water = self.stats.queue_high_water.max(self.queue.len());
    }

    /// Appends the next frames to `buffer`; `None` if there is nothing to send now. For datagrams at most
    /// `max_segments` frames, all of one size but the last.
    pub fn poll_transmit(&mut self, now: Time, max_segments: usize, buffer: &mut Vec<u8>) -> Option<Written> {
        let _ = max_segments;
        if self.blocked || self.pacer.as_ref().is_some_and(|pacer| now < pacer.idle_at()) {
            return None;
        }
        let start = buffer.len();
        let batch = match self.config.frames {
            FrameKind::Datagram { .. } => 0,
            FrameKind::Stream { batch } => batch,
        };
        while let Some(front) = self.queue.front() {
            let written = buffer.len() - start;
            if written > 0 && written + front.packet.len() > batch {
                break;
            }
            self.write_next(now, buffer);
        }
        let size = buffer.len() - start;
        if size == 0 {
            return None;
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.transmit(now, size);
        }
        self.stats.frames_sent += 1;
        self.stats.bytes_sent += size as u64;
        Some(Written { size, segment_size: None })
    }

    fn write_next(&mut self, now: Time, buffer: &mut Vec<u8>) {
        let waiting = self.queue.bytes();
        let Some(QueuedPacket { packet, mut header, .. }) = self.queue.pop() else { return };
        self.stats.queue_packets = self.queue.len();
        self.stats.queue_bytes = self.queue.bytes();
        if self.config.marking && self.marker.marks(now, waiting) {
            self.stats.marks += 1;
            header.get_or_insert_default().congestion_mark = Some(1);
        }
        let start = buffer.len();
        match header {
            None => buffer.extend_from_slice(&packet),
            Some(header) => lp::encode(buffer, &LinkFields::default(), &header, Some(&packet)),
        }
        if buffer.len() - start > self.mtu {
            buffer.truncate(start);
            self.stats.drops.too_big += 1;
        }
    }

    /// The next thing to tell the owner.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// A deadline stated by [`LinkService::poll_timeout`] has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// When [`LinkService::handle_timeout`] wants to be called and [`LinkService::poll_transmit`] asked again.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        match &self.pacer {
            Some(pacer) if !self.queue.is_empty() && !self.blocked => {
                Some(Deadline::new(pacer.idle_at(), "the modelled device is idle"))
            }
            _ => None,
        }
    }

    /// Frames may have this many bytes from now on; of no effect on streams.
    pub fn set_mtu(&mut self, mtu: usize) {
        if let FrameKind::Datagram { .. } = self.config.frames {
            self.mtu = mtu.clamp(MIN_MTU, MAX_MTU);
        }
    }

    /// The driver cannot take frames now, or can again.
    pub fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
    }

    /// Recovers lost frames in another way from now on; of no effect on streams.
    pub fn set_reliability(&mut self, reliability: Reliability) {
        if let FrameKind::Datagram { .. } = self.config.frames {
            self.config.reliability = reliability;
        }
    }

    /// Counters and estimates.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }
}
