//! The faces of a router, their ports and their links.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{Deadline, Endpoint, PortId, Time, TimerQueue, Transmit};
use whimbrel_forwarder::mgmt::{FaceHost, FaceRequest, LinkCounters};
use whimbrel_forwarder::{FaceId, Forwarder, OutPacket};
use whimbrel_link::ndnlp::{LinkEvent, LinkService, Reliability};
use whimbrel_ndn_packet::{LpPacket, types};

use crate::caller::Caller;
use crate::faces;

/// Minimum interval between reports of a link's state to the forwarder: its queues change within
/// some milliseconds, and a packet must not pay for it.
const LINK_STATE_INTERVAL: Duration = Duration::from_millis(1);

/// One face and its link.
pub(crate) struct Attached {
    /// `None` while a permanent face waits to be reopened.
    pub(crate) port: Option<PortId>,
    pub(crate) link: LinkService,
    /// In `ready`.
    waiting: bool,
    pub(crate) on_demand: bool,
    /// An inbound peer that has not shown yet whether it supports link reliability. Until then it
    /// gets plain frames, because many programs can read only those.
    answers_in_kind: bool,
    /// When the face came up.
    pub(crate) since: Time,
    pub(crate) last_heard: Time,
    /// The inbound peer that it was accepted for, if it was.
    pub(crate) caller: Option<Caller>,
    /// Octets of its queue that are counted in [`Table::queued`].
    queued: usize,
    /// The link's deadline in the timers.
    deadline: Option<Time>,
    /// A reliable stream, which ends when the program at its other end does.
    pub(crate) stream: bool,
    /// Largest frame of the port, bytes.
    pub(crate) port_mtu: usize,
    /// Largest wanted frame, bytes.
    pub(crate) wanted_mtu: Option<usize>,
    /// The endpoint that this router opened, if it did.
    pub(crate) endpoint: Option<Endpoint>,
    /// When the link's state was last reported to the forwarder.
    state_told: Time,
}

impl Attached {
    pub(crate) fn new(now: Time, port: PortId, port_mtu: usize, link: LinkService) -> Attached {
        Attached {
            port: Some(port),
            link,
            waiting: false,
            on_demand: false,
            answers_in_kind: false,
            since: now,
            last_heard: now,
            caller: None,
            queued: 0,
            deadline: None,
            stream: false,
            port_mtu,
            wanted_mtu: None,
            endpoint: None,
            state_told: now,
        }
    }

    /// Sends plain frames until the peer has shown that it supports link reliability.
    pub(crate) fn answer_in_kind(&mut self) {
        self.answers_in_kind = true;
        self.link.wait_for_peer();
    }

    /// Returns true if this frame is the first to show it.
    fn begins_reliability(&self, frame: &[u8]) -> bool {
        self.answers_in_kind && speaks_of_reliability(frame)
    }

    /// Brings the octets of this face's queue up to date in the sum of all.
    fn count_queued(&mut self, sum: &mut usize) {
        let octets = self.link.queued_octets();
        *sum = *sum - self.queued + octets;
        self.queued = octets;
    }

    /// The packet in a frame that needs no processing by its link.
    pub(crate) fn plain_packet<'a>(&mut self, now: Time, frame: &'a [u8]) -> Option<LpPacket<'a>> {
        if self.begins_reliability(frame) {
            return None;
        }
        let packet = self.link.handle_plain_frame(frame)?;
        self.last_heard = now;
        Some(packet)
    }
}

/// Returns true for a frame with a number to acknowledge, or with the announcement of the adaptive
/// profile.
fn speaks_of_reliability(frame: &[u8]) -> bool {
    frame.first() == Some(&(types::LP_PACKET as u8))
        && LpPacket::decode(frame, true).is_ok_and(|packet| {
            packet.link.tx_sequence.is_some() || packet.link.adaptive_hello.is_some()
        })
}

/// All faces but the forwarder's own, by number and by port.
pub(crate) struct Table {
    faces: BTreeMap<FaceId, Attached>,
    ports: BTreeMap<PortId, FaceId>,
    /// Faces whose links may have frames to send.
    ready: VecDeque<FaceId>,
    timers: TimerQueue<FaceId>,
    /// Octets that wait in the queues of all faces, and their bound.
    queued: usize,
    max_queued: usize,
}

impl Table {
    /// The queues of all faces together hold about `max_queued` octets.
    pub(crate) fn new(max_queued: usize) -> Table {
        Table {
            faces: BTreeMap::new(),
            ports: BTreeMap::new(),
            ready: VecDeque::new(),
            timers: TimerQueue::new(),
            queued: 0,
            max_queued,
        }
    }

    /// Returns the octets that wait in the queues of all faces.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    pub(crate) fn len(&self) -> usize {
        self.faces.len()
    }

    pub(crate) fn get(&self, face: FaceId) -> Option<&Attached> {
        self.faces.get(&face)
    }

    pub(crate) fn get_mut(&mut self, face: FaceId) -> Option<&mut Attached> {
        self.faces.get_mut(&face)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FaceId, &Attached)> {
        self.faces.iter().map(|(face, attached)| (*face, attached))
    }

    pub(crate) fn face_of(&self, port: PortId) -> Option<FaceId> {
        self.ports.get(&port).copied()
    }

    pub(crate) fn insert(&mut self, face: FaceId, attached: Attached) {
        self.ports.extend(attached.port.map(|port| (port, face)));
        self.faces.insert(face, attached);
    }

    /// Removes a face; returns its port.
    pub(crate) fn remove(&mut self, face: FaceId) -> Option<PortId> {
        self.timers.cancel(&face);
        let attached = self.faces.remove(&face)?;
        self.queued -= attached.queued;
        let port = attached.port?;
        self.ports.remove(&port);
        Some(port)
    }

    /// Gives another port to a face that lost its own.
    pub(crate) fn connect(&mut self, now: Time, face: FaceId, port: PortId, mtu: usize) {
        if let Some(attached) = self.faces.get_mut(&face) {
            attached.port = Some(port);
            attached.port_mtu = mtu;
            attached.last_heard = now;
            attached.link.set_blocked(false);
            self.ports.insert(port, face);
        }
    }

    /// Leaves a face without a port, to be reopened to `endpoint`.
    pub(crate) fn disconnect(&mut self, face: FaceId, endpoint: Endpoint) {
        if let Some(attached) = self.faces.get_mut(&face) {
            self.ports
                .extract_if(.., |_, it| *it == face)
                .for_each(drop);
            if let Some(port) = attached.port.take() {
                self.ports.remove(&port);
            }
            attached.endpoint = Some(endpoint);
            attached.link.set_blocked(true);
        }
    }

    /// Marks the link of a face as possibly having frames to send.
    pub(crate) fn wake(&mut self, face: FaceId) {
        if let Some(attached) = self.faces.get_mut(&face)
            && !attached.waiting
        {
            attached.waiting = true;
            self.ready.push_back(face);
        }
    }

    pub(crate) fn send(&mut self, now: Time, face: FaceId, out: OutPacket) {
        let Some(attached) = self.faces.get_mut(&face) else {
            return;
        };
        // A face may hold as much as is left: however many peers read slowly, there is some for
        // another.
        let room = self.max_queued.saturating_sub(self.queued);
        attached.link.send_within(now, out.packet, out.header, room);
        attached.count_queued(&mut self.queued);
        if !attached.waiting {
            attached.waiting = true;
            self.ready.push_back(face);
        }
    }

    /// Handles a frame that its link must process. An inbound peer that shows that it supports link
    /// reliability gets `reliability`.
    pub(crate) fn handle_frame(
        &mut self,
        now: Time,
        face: FaceId,
        frame: &[u8],
        reliability: Reliability,
        forwarder: &mut Forwarder,
    ) {
        let Some(attached) = self.faces.get_mut(&face) else {
            return;
        };
        attached.last_heard = now;
        if attached.begins_reliability(frame) {
            attached.answers_in_kind = false;
            attached.link.set_reliability(reliability);
        }
        attached.link.handle_frame(now, frame, &mut |packet| {
            forwarder.handle_packet(now, face, packet)
        });
        attached.count_queued(&mut self.queued);
        // An acknowledgement may be due at once.
        if !attached.stream {
            if !attached.waiting {
                attached.waiting = true;
                self.ready.push_back(face);
            }
            // Its deadline is read after it has transmitted.
            handle_events(now, face, attached, forwarder);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time, forwarder: &mut Forwarder) {
        let mut pass = self.timers.pass(now);
        while let Some((_, face)) = pass.next(&mut self.timers) {
            if let Some(attached) = self.faces.get_mut(&face) {
                attached.deadline = None;
                attached.link.handle_timeout(now);
                attached.count_queued(&mut self.queued);
                handle_events(now, face, attached, forwarder);
            }
            // A link may want to transmit now: its deadline is read after that, or else it would be
            // due again at once.
            self.wake(face);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next().map(|(at, _)| Deadline::new(at, "link"))
    }

    pub(crate) fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
        forwarder: &mut Forwarder,
    ) -> Option<Transmit> {
        while let Some(face) = self.ready.front().copied() {
            let sent = self.faces.get_mut(&face).and_then(|attached| {
                let port = attached.port?;
                let written = attached.link.poll_transmit(now, max_segments, buffer)?;
                Some(Transmit {
                    port,
                    size: written.size,
                    segment_size: written.segment_size,
                })
            });
            if let Some(attached) = self.faces.get_mut(&face) {
                attached.count_queued(&mut self.queued);
                handle_events(now, face, attached, forwarder);
            }
            self.note_deadline(face);
            self.note_link_state(now, face, forwarder);
            match sent {
                // The others get their turn first.
                Some(transmit) => {
                    self.ready.rotate_left(1);
                    return Some(transmit);
                }
                None => {
                    self.ready.pop_front();
                    if let Some(attached) = self.faces.get_mut(&face) {
                        attached.waiting = false;
                    }
                }
            }
        }
        None
    }

    /// Reports a face's rate, queue and loss to the forwarder at intervals.
    fn note_link_state(&mut self, now: Time, face: FaceId, forwarder: &mut Forwarder) {
        if let Some(attached) = self.faces.get_mut(&face)
            && now.since(attached.state_told) >= LINK_STATE_INTERVAL
        {
            attached.state_told = now;
            forwarder.set_link_state(now, face, attached.link.state(now));
        }
    }

    /// Updates the timer of a face's link.
    fn note_deadline(&mut self, face: FaceId) {
        let Some(attached) = self.faces.get_mut(&face) else {
            return;
        };
        let deadline = attached.link.poll_timeout().map(|deadline| deadline.at);
        if deadline == attached.deadline {
            return;
        }
        attached.deadline = deadline;
        match deadline {
            Some(at) => self.timers.set(face, at),
            None => {
                self.timers.cancel(&face);
            }
        }
    }
}

/// Handles the events of a face's link: what it abandoned, and what its path takes.
fn handle_events(now: Time, face: FaceId, attached: &mut Attached, forwarder: &mut Forwarder) {
    while let Some(event) = attached.link.poll_event() {
        match event {
            LinkEvent::GaveUp(packet) => forwarder.handle_dropped(now, face, &packet),
            LinkEvent::PathMtu(size) => {
                if let Some(found) = forwarder.face_mut(face) {
                    found.spec.mtu = Some(size);
                    let peer = &found.spec.remote_uri;
                    tracing::info!(face = face.0, %peer, size, "the path MTU has changed");
                }
            }
        }
    }
}

/// Management's view of the faces; its requests are carried out once the forwarder has returned.
pub(crate) struct Links<'a> {
    pub(crate) table: &'a Table,
    pub(crate) requests: Vec<FaceRequest>,
}

impl FaceHost for Links<'_> {
    fn link_counters(&self, face: FaceId) -> LinkCounters {
        let attached = self.table.get(face);
        attached.map_or_else(LinkCounters::default, |attached| {
            faces::counters(&attached.link)
        })
    }

    fn request(&mut self, request: FaceRequest) {
        self.requests.push(request);
    }
}
