//! The link service: combines the parts.

mod lost;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

use std::collections::VecDeque;

use whimbrel_core::{Deadline, LinkState, SeededRng, Time};
use whimbrel_ndn_packet::{LpHeader, LpPacket, SharedPacket};

use super::config::{FrameKind, LinkServiceConfig, MAX_MTU, MIN_MTU, Reliability};
use super::delivery::DeliveryMeter;
use super::marking::CongestionMarker;
use super::pacer::Pacer;
use super::path::PathSearch;
use super::piece::Piece;
use super::queue::{OutQueue, QueuedPacket};
use super::reassembly::Reassembler;
use super::recovery::{ProfileId, Profiles, Recovery, Turn};
use super::resent::ResentPackets;
use super::stats::{LinkStats, Mode};
use transmit::InFragments;

/// The frames that [`LinkService::poll_transmit`] appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes appended to the buffer.
    pub size: usize,
    /// If set, the bytes are several frames of this size, the last one possibly shorter. Otherwise
    /// they are one frame, or on a stream consecutive whole packets.
    pub segment_size: Option<usize>,
}

/// An event for the link's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// This Interest or Data was not acknowledged after all retransmissions.
    GaveUp(SharedPacket),
    /// The path was found to take frames of at most this many bytes, fewer or more than before.
    PathMtu(usize),
}

/// NDNLPv2 and reliability on one face. See the [module](super).
#[derive(Debug)]
pub struct LinkService {
    config: LinkServiceConfig,
    rng: SeededRng,
    // Largest frame of the driver, and of the path as far as it is known.
    limit: usize,
    mtu: usize,
    path: Option<Box<PathSearch>>,
    blocked: bool,
    queue: OutQueue,
    // A packet whose fragments have not all been sent yet.
    in_fragments: Option<InFragments>,
    // A written frame that the next call returns, because its size differs from that of the frame
    // before it.
    held_back: Vec<u8>,
    marker: CongestionMarker,
    pacer: Option<Pacer>,
    delivery: DeliveryMeter,
    reassembler: Reassembler,
    profiles: Profiles,
    resent: ResentPackets,
    next_sequence: u64,
    next_packet_id: u64,
    events: VecDeque<LinkEvent>,
    stats: LinkStats,
    // Empty between calls; kept for their memory.
    lost: Vec<(u64, Piece)>,
    scratch: Vec<u8>,
}

impl LinkService {
    /// Returns the service of a new face.
    pub fn new(config: LinkServiceConfig, mut rng: SeededRng) -> LinkService {
        let config = config.bounded();
        let mtu = match config.frames {
            FrameKind::Datagram { mtu } => mtu,
            FrameKind::Stream { .. } => usize::MAX,
        };
        // The first Sequence is random, so that a peer does not mistake the first packets of this
        // run for the last ones of another.
        let next_sequence = rng.next_word();
        let path = config
            .finds_path_mtu
            .then(|| Box::new(PathSearch::new(mtu, &mut rng)));
        LinkService {
            limit: mtu,
            mtu,
            path,
            blocked: false,
            queue: OutQueue::new(config.queue_packets, config.queue_bytes),
            in_fragments: None,
            held_back: Vec::new(),
            marker: CongestionMarker::new(config.marking_threshold, config.marking_interval),
            pacer: config
                .drain_rate
                .map(|rate| Pacer::new(rate, config.drain_overhead)),
            delivery: DeliveryMeter::default(),
            reassembler: Reassembler::new(
                config.reassembly_packets,
                config.reassembly_bytes,
                config.reassembly_timeout,
            ),
            profiles: Profiles::new(&config, &mut rng),
            resent: ResentPackets::default(),
            next_sequence,
            next_packet_id: 0,
            events: VecDeque::new(),
            stats: LinkStats::default(),
            lost: Vec::new(),
            scratch: Vec::new(),
            rng,
            config,
        }
    }

    /// Handles one received frame; on a stream, one TLV element. Calls `deliver` for each whole
    /// network-layer packet.
    pub fn handle_frame(
        &mut self,
        now: Time,
        frame: &[u8],
        deliver: &mut dyn FnMut(&LpPacket<'_>),
    ) {
        let acknowledged = self.stats.acknowledged_bytes;
        self.receive(now, frame, deliver);
        if self.stats.acknowledged_bytes > acknowledged {
            let (bytes, rtt) = (self.stats.acknowledged_bytes, self.stats.rtt);
            self.delivery.observe(now, bytes, rtt);
        }
        self.refresh();
    }

    /// Returns the packet in a frame without link fields, counted as received and delivered, or
    /// `None` if the frame needs [`LinkService::handle_frame`]. For owners that deliver several
    /// packets at once.
    pub fn handle_plain_frame<'a>(&mut self, frame: &'a [u8]) -> Option<LpPacket<'a>> {
        if !self.is_plain() {
            return None;
        }
        let packet = LpPacket::decode(frame, self.config.smallest_frame > 0).ok()?;
        if packet.fragment.is_none() || packet.is_fragment() {
            return None;
        }
        self.stats.frames_received += 1;
        self.stats.bytes_received += frame.len() as u64;
        self.stats.packets_delivered += 1;
        self.stats.fields_skipped += u64::from(!packet.skipped.is_empty());
        Some(packet)
    }

    /// Returns true if no profile recovers frames here, whatever the peer supports.
    fn is_plain(&self) -> bool {
        self.profiles.recovering.is_empty()
    }

    /// Returns a profile with the context of one call.
    fn turn(&mut self, now: Time, id: ProfileId) -> (&mut dyn Recovery, Turn<'_>) {
        let (stats, lost) = (&mut self.stats, &mut self.lost);
        (self.profiles.get_mut(id), Turn { now, stats, lost })
    }

    /// Queues a whole network-layer packet. Drops and counts it if there is no room.
    pub fn send(
        &mut self,
        now: Time,
        packet: impl Into<SharedPacket>,
        header: Option<Box<LpHeader>>,
    ) {
        self.enqueue(now, packet.into(), header);
    }

    /// The same within `room` octets of the queue, if that is less than its own bound.
    pub fn send_within(
        &mut self,
        now: Time,
        packet: impl Into<SharedPacket>,
        header: Option<Box<LpHeader>>,
        room: usize,
    ) {
        let packet = packet.into();
        if !self.queue.is_empty() && self.queue.bytes() + packet.len() > room {
            self.stats.drops.queue_full += 1;
            return;
        }
        self.enqueue(now, packet, header);
    }

    /// Returns the octets of packets and lost pieces that wait to be sent.
    pub fn queued_octets(&self) -> usize {
        self.queue.bytes()
    }

    fn enqueue(&mut self, now: Time, packet: SharedPacket, header: Option<Box<LpHeader>>) {
        if let Some(round_trip) = self.stats.rtt
            && self.resent.has(now, &packet, round_trip)
        {
            self.stats.spared += 1;
            return;
        }
        let header = header.filter(|header| !header.is_empty());
        if !self.queue.push(QueuedPacket {
            packet,
            header,
            queued_at: now,
        }) {
            self.stats.drops.queue_full += 1;
            return;
        }
        self.stats.packets_queued += 1;
        self.refresh_queue();
    }

    /// Appends the next frames to `buffer`. Returns `None` if there is nothing to send now. For
    /// datagrams, appends at most `max_segments` frames, all of one size but the last.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Written> {
        let idle_at = self.pacer.as_ref().map(Pacer::idle_at);
        if self.blocked || idle_at.is_some_and(|idle_at| now < idle_at) {
            return None;
        }
        let start = buffer.len();
        let written = match self.config.frames {
            FrameKind::Stream { batch } => self.write_stream(now, batch, buffer),
            FrameKind::Datagram { .. } => {
                let max_frames = if self.pacer.is_some() {
                    1
                } else {
                    max_segments.max(1)
                };
                self.write_datagrams(now, max_frames, buffer)
            }
        };
        if let (Some(pacer), Some(written)) = (&mut self.pacer, written) {
            pacer.transmit(now, written.size);
        }
        self.stats.bytes_sent += (buffer.len() - start) as u64;
        self.refresh();
        written
    }

    /// Returns the next event for the owner.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// Handles a deadline of [`LinkService::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        self.reassembler.expire(now, &mut self.stats.drops);
        // The preferred profile comes last: it probes only if the others have nothing to send.
        for id in self.profiles.ids().rev() {
            let idle = self.queue.is_empty() && self.in_fragments.is_none();
            let (profile, mut turn) = self.turn(now, id);
            profile.handle_timeout(idle, &mut turn);
            self.recover(now, id);
        }
        self.refresh();
    }

    /// Returns the time of the next call to [`LinkService::handle_timeout`] and then
    /// [`LinkService::poll_transmit`].
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let reassembly = self
            .reassembler
            .next_expiry()
            .map(|at| Deadline::new(at, "fragments did not come in time"));
        let recovering = self.profiles.recovering.iter();
        let unheard = recovering.filter_map(|profile| profile.timer_due());
        let unheard = unheard
            .min()
            .map(|at| Deadline::new(at, "nothing was heard of a frame"));
        Deadline::earlier(Deadline::earlier(reassembly, unheard), self.send_due())
    }

    /// Returns the time at which a frame can be sent that must wait now.
    fn send_due(&self) -> Option<Deadline> {
        if self.blocked {
            return None;
        }
        let recovering = self.profiles.recovering.iter();
        let control = recovering.filter_map(|profile| profile.control_due());
        let waits = !self.queue.is_empty() || self.in_fragments.is_some();
        let path = self.path.as_ref().and_then(|path| path.due(waits));
        let control = control.chain(path).min();
        match &self.pacer {
            None => control.map(|at| Deadline::new(at, "news for the peer waited long enough")),
            Some(pacer) => {
                let waiting = !self.queue.is_empty() || self.in_fragments.is_some();
                let at = if waiting { Some(Time::ZERO) } else { control };
                at.map(|at| Deadline::new(at.max(pacer.idle_at()), "the modelled device is idle"))
            }
        }
    }

    /// Sets the maximum size of a frame; ignored on streams. Queued packets are fragmented
    /// accordingly; a lost fragment that no longer fits is abandoned with its packet.
    pub fn set_mtu(&mut self, mtu: usize) {
        if let FrameKind::Datagram { .. } = self.config.frames {
            self.limit = mtu.clamp(MIN_MTU, MAX_MTU);
            if let Some(path) = &mut self.path {
                path.set_limit(self.limit);
            }
            self.fit_path();
            if self.held_back.len() > self.limit {
                self.held_back.clear();
                self.stats.drops.too_big += 1;
            }
        }
    }

    /// Returns the size of the largest frame with a packet: that of [`LinkService::set_mtu`], or
    /// less if the path takes less.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Sends the peer nothing about the path MTU until it shows that it understands more than plain
    /// packets, by a question of its own or [`LinkService::set_reliability`].
    pub fn wait_for_peer(&mut self) {
        if let Some(path) = &mut self.path {
            path.wait_for_peer();
        }
    }

    /// Uses frames of the size that the path takes.
    fn fit_path(&mut self) {
        let found = self.path.as_ref().map(|path| path.size());
        self.mtu = found.unwrap_or(self.limit).min(self.limit);
        self.restart_fragments(|_, mtu| mtu);
    }

    /// Follows a change of what the path takes.
    fn check_path(&mut self) {
        let changed = self.path.as_mut().is_some_and(|path| path.take_change());
        if !changed {
            return;
        }
        let before = self.mtu;
        self.fit_path();
        self.stats.mtu_falls += u64::from(self.mtu < before);
        self.events.push_back(LinkEvent::PathMtu(self.mtu));
    }

    /// Notes whether the driver can send frames.
    pub fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
    }

    /// Changes the recovery of lost frames; ignored on streams. Frames in flight are forgotten and
    /// not retransmitted.
    pub fn set_reliability(&mut self, reliability: Reliability) {
        if matches!(self.config.frames, FrameKind::Stream { .. })
            || self.config.reliability == reliability
        {
            return;
        }
        self.config.reliability = reliability;
        if let Some(path) = &mut self.path {
            path.allow_asking();
        }
        self.stats.abandoned += self.stats.outstanding as u64;
        self.stats.abandoned += self.queue.retain_resends(|_| false) as u64;
        self.restart_fragments(|_, _| 0);
        self.profiles = Profiles::new(&self.config, &mut self.rng);
        self.delivery = DeliveryMeter::default();
        self.refresh();
    }

    /// Returns the counters and estimates.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Returns the measured state of the link, for decisions among faces.
    pub fn state(&self, now: Time) -> LinkState {
        let stats = &self.stats;
        // Estimates of a profile that the peer has left no longer describe the link.
        let measured = stats.mode != Mode::None;
        let begun = self.in_fragments.as_ref();
        let head = begun.map(InFragments::queued_at);
        let head = head.or_else(|| self.queue.head_since());
        LinkState {
            delivery_rate: match self.config.drain_rate {
                Some(bits_per_second) => Some(bits_per_second / 8),
                None => self.delivery.rate().filter(|_| measured),
            },
            queue_bytes: self.queue.bytes() + begun.map_or(0, InFragments::bytes_left),
            queue_packets: self.queue.len() + usize::from(begun.is_some()),
            queue_age: head.map(|since| now.since(since)),
            loss: measured.then_some(stats.loss),
            rtt: stats.rtt.filter(|_| measured),
        }
    }

    /// Updates estimates and levels.
    fn refresh(&mut self) {
        let stats = &mut self.stats;
        (stats.outstanding, stats.mode) = (0, Mode::None);
        // The preferred profile's estimates override those of the others.
        for profile in self.profiles.recovering.iter().rev() {
            profile.report(stats);
        }
        stats.outstanding_high_water = stats.outstanding_high_water.max(stats.outstanding);
        self.refresh_queue();
    }

    /// Updates the levels of the queue, the only ones that a queued packet changes.
    fn refresh_queue(&mut self) {
        let stats = &mut self.stats;
        (stats.queue_packets, stats.queue_bytes) = (self.queue.len(), self.queue.bytes());
        stats.queue_high_water = stats.queue_high_water.max(stats.queue_packets);
        let buffered = stats.outstanding + stats.queue_packets;
        stats.buffer_high_water = stats.buffer_high_water.max(buffered);
    }
}
