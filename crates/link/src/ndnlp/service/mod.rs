//! The link service: puts the parts together.

mod receive;
mod sizes;
#[cfg(test)]
mod tests;
mod transmit;

use std::collections::VecDeque;

use whimbrel_core::{Deadline, SeededRng, Time};
use whimbrel_ndn_packet::{LpHeader, LpPacket, SharedPacket};

use super::adaptive::Adaptive;
use super::compact::{ADAPTIVE, PAPER, PROFILE_MASK};
use super::config::{FrameKind, LinkServiceConfig, MAX_MTU, MIN_MTU, Reliability};
use super::marking::CongestionMarker;
use super::ndnlpv2::Ndnlpv2;
use super::pacer::Pacer;
use super::paper::Paper;
use super::piece::{Piece, Profile};
use super::queue::{OutQueue, QueuedPacket, Resend};
use super::reassembly::Reassembler;
use super::stats::{LinkStats, Mode};
use transmit::InFragments;

/// Events that wait for the owner, at most: who does not ask for them does not pay for them.
const MOST_EVENTS: usize = 1024;

/// What [`LinkService::poll_transmit`] appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes appended to the buffer.
    pub size: usize,
    /// If set, the bytes are several frames of this size, the last one possibly shorter. If not,
    /// they are one frame, or on a stream whole packets one after the other.
    pub segment_size: Option<usize>,
}

/// What the link tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// This Interest or Data was not acknowledged after all retransmissions.
    GaveUp(SharedPacket),
}

/// NDNLPv2 and reliability on one face. See the [module](super).
#[derive(Debug)]
pub struct LinkService {
    config: LinkServiceConfig,
    rng: SeededRng,
    mtu: usize,
    blocked: bool,
    queue: OutQueue,
    // A packet of which some fragments have not been sent for the first time.
    in_fragments: Option<InFragments>,
    // A frame that was written but belongs to the next call, because its size differs from the one
    // before it.
    held_back: Vec<u8>,
    marker: CongestionMarker,
    pacer: Option<Pacer>,
    reassembler: Reassembler,
    paper: Option<Box<Paper>>,
    ndnlpv2: Option<Box<Ndnlpv2>>,
    adaptive: Option<Box<Adaptive>>,
    next_sequence: u64,
    next_packet_id: u64,
    events: VecDeque<LinkEvent>,
    stats: LinkStats,
    // Empty between calls; kept for their memory.
    lost: Vec<(u64, Piece)>,
    acks: Vec<u64>,
    short_acks: Vec<u32>,
    scratch: Vec<u8>,
}

impl LinkService {
    /// The service of a new face.
    pub fn new(config: LinkServiceConfig, mut rng: SeededRng) -> LinkService {
        let config = config.bounded();
        let mtu = match config.frames {
            FrameKind::Datagram { mtu } => mtu,
            FrameKind::Stream { .. } => usize::MAX,
        };
        let mut service = LinkService {
            mtu,
            blocked: false,
            queue: OutQueue::new(config.queue_packets, config.queue_bytes),
            in_fragments: None,
            held_back: Vec::new(),
            marker: CongestionMarker::new(config.marking_threshold, config.marking_interval),
            pacer: config
                .drain_rate
                .map(|rate| Pacer::new(rate, config.drain_overhead)),
            reassembler: Reassembler::new(
                config.reassembly_packets,
                config.reassembly_bytes,
                config.reassembly_timeout,
            ),
            paper: None,
            ndnlpv2: None,
            adaptive: None,
            // Random, so that a peer does not take the first packets of this run for the last ones
            // of another.
            next_sequence: rng.next_word(),
            next_packet_id: 0,
            events: VecDeque::new(),
            stats: LinkStats::default(),
            lost: Vec::new(),
            acks: Vec::new(),
            short_acks: Vec::new(),
            scratch: Vec::new(),
            rng,
            config,
        };
        service.make_profiles();
        service
    }

    fn make_profiles(&mut self) {
        let most = self.config.most_outstanding;
        (self.paper, self.ndnlpv2, self.adaptive) = (None, None, None);
        match self.config.reliability {
            Reliability::Off => {}
            Reliability::Paper {
                max_retransmissions,
            } => {
                self.paper = Some(Box::new(Paper::new(
                    &mut self.rng,
                    max_retransmissions,
                    most,
                )));
            }
            Reliability::Ndnlpv2 => {
                self.ndnlpv2 = Some(Box::new(Ndnlpv2::new(&mut self.rng, most)));
            }
            Reliability::Adaptive => {
                self.adaptive = Some(Box::new(Adaptive::new(&self.config, &mut self.rng)));
            }
            Reliability::Auto => {
                self.ndnlpv2 = Some(Box::new(Ndnlpv2::new(&mut self.rng, most)));
                self.adaptive = Some(Box::new(Adaptive::new(&self.config, &mut self.rng)));
            }
        }
    }

    /// One frame came in; on a stream, one TLV element. `deliver` gets each whole network-layer
    /// packet.
    pub fn handle_frame(
        &mut self,
        now: Time,
        frame: &[u8],
        deliver: &mut dyn FnMut(&LpPacket<'_>),
    ) {
        self.receive(now, frame, deliver);
        self.refresh();
    }

    /// The packet in a frame that has nothing in it for the link: counted as received and
    /// delivered. `None` if [`LinkService::handle_frame`] has to look at the frame. For owners that
    /// hand on several packets at once.
    pub fn handle_plain_frame<'a>(&mut self, frame: &'a [u8]) -> Option<LpPacket<'a>> {
        if !self.is_plain() || matches!(frame.first()? & PROFILE_MASK, ADAPTIVE | PAPER) {
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

    /// True if nothing is recovered here, whatever the peer says.
    fn is_plain(&self) -> bool {
        self.paper.is_none() && self.ndnlpv2.is_none() && self.adaptive.is_none()
    }

    /// Queues a whole network-layer packet; dropped and counted if there is no room.
    pub fn send(
        &mut self,
        now: Time,
        packet: impl Into<SharedPacket>,
        header: Option<Box<LpHeader>>,
    ) {
        self.enqueue(now, packet.into(), header);
    }

    fn enqueue(&mut self, now: Time, packet: SharedPacket, header: Option<Box<LpHeader>>) {
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
        self.refresh();
    }

    /// Appends the next frames to `buffer`; `None` if there is nothing to send now. For datagrams
    /// at most `max_segments` frames, all of one size but the last.
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
                let most = if self.pacer.is_some() {
                    1
                } else {
                    max_segments.max(1)
                };
                self.write_datagrams(now, most, buffer)
            }
        };
        if let (Some(pacer), Some(written)) = (&mut self.pacer, written) {
            pacer.transmit(now, written.size);
        }
        self.stats.bytes_sent += (buffer.len() - start) as u64;
        self.refresh();
        written
    }

    /// The next thing to tell the owner.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// A deadline stated by [`LinkService::poll_timeout`] has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.reassembler.expire(now, &mut self.stats.drops);
        if let Some(ndnlpv2) = &mut self.ndnlpv2 {
            ndnlpv2.handle_timeout(now, &mut self.stats, &mut self.lost);
            self.recover(now, Profile::Ndnlpv2);
        }
        if let Some(adaptive) = &mut self.adaptive {
            let idle = self.queue.is_empty() && self.in_fragments.is_none();
            adaptive.handle_timeout(now, idle, &mut self.stats, &mut self.lost);
            self.recover(now, Profile::Adaptive);
        }
        self.refresh();
    }

    /// When [`LinkService::handle_timeout`] wants to be called and [`LinkService::poll_transmit`]
    /// asked again.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let reassembly = self
            .reassembler
            .next_expiry()
            .map(|at| Deadline::new(at, "fragments did not come in time"));
        let unheard = [
            self.ndnlpv2
                .as_ref()
                .and_then(|ndnlpv2| ndnlpv2.retransmission_due()),
            self.adaptive
                .as_ref()
                .and_then(|adaptive| adaptive.timer_due()),
        ];
        let unheard = unheard.into_iter().flatten().min();
        let unheard = unheard.map(|at| Deadline::new(at, "nothing was heard of a frame"));
        Deadline::earlier(Deadline::earlier(reassembly, unheard), self.send_due())
    }

    /// When there is something to send that cannot be sent at once.
    fn send_due(&self) -> Option<Deadline> {
        if self.blocked {
            return None;
        }
        let control = [
            self.ndnlpv2.as_ref().and_then(|ndnlpv2| ndnlpv2.ack_due()),
            self.adaptive
                .as_ref()
                .and_then(|adaptive| adaptive.control_due()),
            self.paper
                .as_ref()
                .filter(|paper| paper.has_gap())
                .map(|_| Time::ZERO),
        ];
        let control = control.into_iter().flatten().min();
        match &self.pacer {
            None => control.map(|at| Deadline::new(at, "news for the peer waited long enough")),
            Some(pacer) => {
                let waiting = !self.queue.is_empty() || self.in_fragments.is_some();
                let at = if waiting { Some(Time::ZERO) } else { control };
                at.map(|at| Deadline::new(at.max(pacer.idle_at()), "the modelled device is idle"))
            }
        }
    }

    /// Frames may have this many bytes from now on; of no effect on streams. What is queued is cut
    /// accordingly; a fragment that was sent and lost and does not fit any more is given up with
    /// its packet.
    pub fn set_mtu(&mut self, mtu: usize) {
        if let FrameKind::Datagram { .. } = self.config.frames {
            self.mtu = mtu.clamp(MIN_MTU, MAX_MTU);
            self.restart_fragments(|_, mtu| mtu);
            if self.held_back.len() > self.mtu {
                self.held_back.clear();
                self.stats.drops.too_big += 1;
            }
        }
    }

    /// The driver cannot take frames now, or can again.
    pub fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
    }

    /// Recovers lost frames in another way from now on; of no effect on streams. Frames on their
    /// way are let go: they are not sent again.
    pub fn set_reliability(&mut self, reliability: Reliability) {
        if matches!(self.config.frames, FrameKind::Stream { .. })
            || self.config.reliability == reliability
        {
            return;
        }
        self.config.reliability = reliability;
        self.stats.abandoned += self.stats.outstanding as u64;
        self.stats.abandoned += self.queue.retain_resends(|_| false) as u64;
        self.restart_fragments(|_, _| 0);
        self.make_profiles();
        self.refresh();
    }

    /// Counters and estimates.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    fn refresh(&mut self) {
        let stats = &mut self.stats;
        (stats.queue_packets, stats.queue_bytes) = (self.queue.len(), self.queue.bytes());
        stats.queue_high_water = stats.queue_high_water.max(stats.queue_packets);
        (stats.outstanding, stats.mode) = (0, Mode::None);
        if let Some(ndnlpv2) = &self.ndnlpv2 {
            ndnlpv2.report(stats);
            stats.mode = if ndnlpv2.is_active() {
                Mode::Ndnlpv2
            } else {
                Mode::None
            };
        }
        let before = stats.outstanding;
        if let Some(adaptive) = self
            .adaptive
            .as_ref()
            .filter(|adaptive| adaptive.is_agreed())
        {
            adaptive.report(stats);
            stats.mode = Mode::Adaptive;
            stats.outstanding += before;
        }
        if let Some(paper) = &self.paper {
            paper.report(stats);
            stats.mode = Mode::Paper;
        }
        stats.outstanding_high_water = stats.outstanding_high_water.max(stats.outstanding);
        stats.buffer_high_water = stats
            .buffer_high_water
            .max(stats.outstanding + stats.queue_packets);
    }

    /// Sends the frames in `lost` again, or gives them up.
    fn recover(&mut self, now: Time, profile: Profile) {
        let mut lost = core::mem::take(&mut self.lost);
        // Packets of which a fragment was given up in this call. Mostly none, and then it takes no
        // memory.
        let mut gone: Vec<u64> = Vec::new();
        for (number, mut piece) in lost.drain(..) {
            if gone.contains(&piece.packet_id) {
                self.settle(profile, number);
                continue;
            }
            let may_resend = match profile {
                Profile::Plain => false,
                Profile::Paper => self
                    .paper
                    .as_ref()
                    .is_some_and(|paper| paper.may_resend(&piece)),
                Profile::Ndnlpv2 => Ndnlpv2::may_resend(&piece),
                Profile::Adaptive => self
                    .adaptive
                    .as_ref()
                    .is_some_and(|it| it.may_resend(now, &piece)),
            };
            if may_resend {
                piece.queued_at = now;
                piece.retransmissions = piece.retransmissions.saturating_add(1);
                // The paper's retransmissions queue behind what waits already, as those of a device
                // driver do.
                self.queue.push_resend(
                    Resend {
                        profile,
                        number,
                        piece,
                    },
                    profile != Profile::Paper,
                );
            } else {
                gone.extend((!piece.is_whole()).then_some(piece.packet_id));
                self.give_up(profile, number, piece);
            }
        }
        self.lost = lost;
    }

    /// Ends the attempts for a piece, and those for all others of its packet.
    fn give_up(&mut self, profile: Profile, number: u64, piece: Piece) {
        self.stats.given_up += 1;
        let id = piece.packet_id;
        self.settle(profile, number);
        if !piece.is_whole() {
            self.forget_fragments(profile, id);
            self.in_fragments.take_if(|packet| packet.packet_id() == id);
        }
        if self.events.len() < MOST_EVENTS {
            self.events
                .push_back(LinkEvent::GaveUp(network_packet(piece.packet)));
        }
    }

    /// The piece that was found lost under this number is not sent again.
    fn settle(&mut self, profile: Profile, number: u64) {
        match profile {
            Profile::Plain => {}
            Profile::Paper => self.paper.as_mut().map_or((), |it| it.give_up(number)),
            Profile::Ndnlpv2 => self.ndnlpv2.as_mut().map_or((), |it| it.give_up(number)),
            Profile::Adaptive => self.adaptive.as_mut().map_or((), |it| it.give_up(number)),
        }
    }

    /// The fragments of this packet are not sent again.
    fn forget_fragments(&mut self, profile: Profile, packet_id: u64) {
        let mut gone = Vec::new();
        self.queue.retain_resends(|resend| {
            let keep = resend.piece.packet_id != packet_id;
            gone.extend((!keep).then_some(resend.number));
            keep
        });
        gone.into_iter()
            .for_each(|number| self.settle(profile, number));
        match profile {
            Profile::Plain => {}
            Profile::Paper => self
                .paper
                .as_mut()
                .map_or((), |it| it.forget_packet(packet_id)),
            Profile::Ndnlpv2 => self
                .ndnlpv2
                .as_mut()
                .map_or((), |it| it.forget_packet(packet_id)),
            Profile::Adaptive => self
                .adaptive
                .as_mut()
                .map_or((), |it| it.forget_packet(packet_id)),
        }
    }

    /// True if the piece that was lost under this number has not been heard of since.
    fn still_lost(&self, profile: Profile, number: u64) -> bool {
        match profile {
            Profile::Plain => false,
            Profile::Paper => self.paper.as_ref().is_some_and(|it| it.still_lost(number)),
            Profile::Ndnlpv2 => self
                .ndnlpv2
                .as_ref()
                .is_some_and(|it| it.still_lost(number)),
            Profile::Adaptive => self
                .adaptive
                .as_ref()
                .is_some_and(|it| it.still_lost(number)),
        }
    }
}

/// The Interest or Data itself, where it was wrapped with its header to be cut.
fn network_packet(packet: SharedPacket) -> SharedPacket {
    match LpPacket::decode(&packet, false) {
        Ok(LpPacket {
            fragment: Some(inner),
            ..
        }) => inner.into(),
        _ => packet,
    }
}
