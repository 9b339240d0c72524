//! The event loop.

use smallvec::SmallVec;
use whimbrel_core::{Deadline, Ecn, Machine, PortEvent, PortId, Time};

use super::agenda::Task;
use super::frame::SimFrame;
use super::{Node, NodeId, Occurrence, Port, Simulator};
use crate::link::{DropReason, LinkSpec};
use crate::trace::TraceKind;

/// The frames that the kernel's segmentation offload takes in one call.
const MAX_SEGMENTS: usize = 64;

/// Bound of the wakes at one moment. A machine beyond it never lets time advance.
const MAX_WAKES_AT_ONE_MOMENT: u32 = 100_000;

/// Bound of the transmits in one round. A machine beyond it transmits without end.
const MAX_TRANSMITS_IN_ONE_ROUND: u32 = 10_000_000;

/// Bound of the frames per call to a machine, as in the event loop over sockets.
const FRAMES_AT_ONCE: usize = 64;

/// Bytes of a buffer that may be mostly empty.
const SMALL_FRAME: usize = 2_048;

/// Bound of the unused frames that are kept for reuse.
const MAX_SPARE_FRAMES: usize = 65_536;

impl<M: Machine> Simulator<M> {
    /// Processes the next event at its time. Returns false if there is none.
    ///
    /// # Panics
    /// Panics if a machine asks without end to be woken at the same moment: a bug of the machine,
    /// which would otherwise hang the run.
    pub fn step(&mut self) -> bool {
        self.step_until(Time::MAX)
    }

    /// Processes all events up to `end`, inclusive. The time is then `end`.
    pub fn run_until(&mut self, end: Time) {
        while self.step_until(end) {}
        self.now = self.now.max(end);
    }

    /// Runs until no event is left, or to `limit`: machines with periodic timers are never idle.
    /// Returns true if no event is left.
    pub fn run_until_idle(&mut self, limit: Time) -> bool {
        self.run_until_condition(limit, |_| false);
        self.discard_void_entries();
        self.agenda.next_time().is_none()
    }

    /// Runs while `condition`, checked after each event, holds, or to `limit`. Returns true if the
    /// condition ended the run.
    pub fn run_while(
        &mut self,
        limit: Time,
        mut condition: impl FnMut(&Simulator<M>) -> bool,
    ) -> bool {
        self.run_until_condition(limit, |simulator| !condition(simulator))
    }

    fn run_until_condition(
        &mut self,
        limit: Time,
        mut done: impl FnMut(&Simulator<M>) -> bool,
    ) -> bool {
        loop {
            if done(self) {
                return true;
            }
            if !self.step_until(limit) {
                return false;
            }
        }
    }

    /// Processes the next event if it is not after `end`. Returns false if there is none.
    pub(crate) fn step_until(&mut self, end: Time) -> bool {
        self.discard_void_entries();
        if self.agenda.next_time().is_none_or(|at| at > end) {
            return false;
        }
        let Some(((at, _), task)) = self.agenda.take() else {
            return false;
        };
        self.now = self.now.max(at);
        self.stats.events += 1;
        self.perform(task);
        true
    }

    /// Removes entries that later decisions have replaced, so that the next entry is valid.
    fn discard_void_entries(&mut self) {
        while let Some((ticket, task)) = self.agenda.peek() {
            let valid = match task {
                Task::Link(lane) => self.lanes[lane as usize].scheduled == Some(ticket),
                Task::Wake(node) => self.nodes[node as usize].wake == Some(ticket),
                Task::Action(_) => true,
            };
            if valid {
                return;
            }
            self.agenda.take();
        }
    }

    fn perform(&mut self, task: Task) {
        match task {
            Task::Link(lane) => self.deliver(lane as usize),
            Task::Wake(node) => self.wake(NodeId(node)),
            Task::Action(slot) => {
                self.free_actions.push(slot);
                if let Some(action) = self.actions[slot as usize].take() {
                    action(self);
                }
            }
        }
    }

    fn wake(&mut self, node: NodeId) {
        let Node {
            machine,
            running,
            wake,
            wakes_now,
            woken_at,
            name,
            ..
        } = &mut self.nodes[node.index()];
        *wake = None;
        if !*running {
            return;
        }
        if let Some(Deadline { at, reason }) = machine.poll_timeout()
            && at <= self.now
        {
            *wakes_now = if *woken_at == self.now {
                *wakes_now + 1
            } else {
                0
            };
            *woken_at = self.now;
            assert!(
                *wakes_now < MAX_WAKES_AT_ONE_MOMENT,
                "'{name}' asks at {} without end to be woken because of: {reason}",
                self.now
            );
            machine.handle_timeout(self.now);
        }
        self.drain(node);
    }

    /// Delivers all frames that have arrived over one lane.
    fn deliver(&mut self, lane_number: usize) {
        let to = &self.ports[self.lanes[lane_number].to.0 as usize];
        if to.readmits && !to.open && self.nodes[to.node.index()].running {
            self.replace_inbound(lane_number ^ 1);
        }
        let lane = &mut self.lanes[lane_number];
        lane.scheduled = None;
        let (from, to) = (lane.from, lane.to);
        let (sender, sender_open) = (
            self.ports[from.0 as usize].node,
            self.ports[from.0 as usize].open,
        );
        let (node, open) = (
            self.ports[to.0 as usize].node,
            self.ports[to.0 as usize].open && sender_open,
        );
        let now = self.now;
        let Node {
            machine, running, ..
        } = &mut self.nodes[node.index()];
        let (trace, stats, spare) = (&mut self.trace, &mut self.stats, &mut self.spare_frames);
        let mut arrived = core::mem::take(&mut self.arrived);
        while let Some(frame) = lane
            .link
            .poll_reporting(now, &mut |at, reason, frame: SimFrame| {
                stats.dropped_by_links += 1;
                trace.record(at, sender, from, TraceKind::Drop(reason), &frame.bytes);
                recycle(spare, frame.bytes);
            })
        {
            let kind = match (open, *running) {
                (false, _) => TraceKind::PortClosed,
                (true, false) => TraceKind::NodeDown,
                (true, true) => TraceKind::Deliver,
            };
            trace.record(now, node, to, kind, &frame.bytes);
            match kind {
                TraceKind::Deliver => {
                    stats.delivered += 1;
                    arrived.push(frame);
                    continue;
                }
                TraceKind::NodeDown => stats.dropped_node_down += 1,
                _ => stats.dropped_port_closed += 1,
            }
            recycle(spare, frame.bytes);
        }
        note_ecn(machine, now, &mut self.ports[to.0 as usize], to, &arrived);
        match &arrived[..] {
            // Usually one frame arrives at a time.
            [frame] => machine.handle_frames(now, to, &[frame.bytes.as_slice()]),
            frames => hand_in(machine, now, to, frames),
        }
        let got_any = !arrived.is_empty();
        for frame in arrived.drain(..) {
            recycle(spare, frame.bytes);
        }
        self.arrived = arrived;
        self.schedule_lane(lane_number);
        if got_any {
            self.drain(node);
        }
    }

    /// Takes all output of a node and reads its deadline.
    pub(super) fn drain(&mut self, node: NodeId) {
        if !self.nodes[node.index()].running {
            return;
        }
        loop {
            self.drain_frames(node);
            let mut quiet = true;
            while let Some(request) = self.nodes[node.index()].machine.poll_port_request() {
                quiet = false;
                self.grant(node, request);
            }
            while let Some(event) = self.nodes[node.index()].machine.poll_event() {
                quiet = false;
                self.hand_event(node, event);
            }
            if quiet {
                break;
            }
        }
        self.schedule_wake(node);
    }

    fn drain_frames(&mut self, node: NodeId) {
        let mut buffer = core::mem::take(&mut self.transmit_buffer);
        for count in 0.. {
            buffer.clear();
            assert!(
                count < MAX_TRANSMITS_IN_ONE_ROUND,
                "'{}' transmits without end",
                self.nodes[node.index()].name
            );
            let machine = &mut self.nodes[node.index()].machine;
            let Some(transmit) = machine.poll_transmit(self.now, MAX_SEGMENTS, &mut buffer) else {
                break;
            };
            let written = buffer
                .get(buffer.len().saturating_sub(transmit.size)..)
                .unwrap_or_default();
            let port = self.ports.get(transmit.port.0 as usize);
            if port.is_some_and(|port| port.packets) {
                for packet in super::tlv::packets(written) {
                    let packet = self.frame_of(packet);
                    self.send(node, transmit.port, packet);
                }
                continue;
            }
            // A lone frame leaves in the buffer that it was written into, unless most of that is empty:
            // queues keep frames for long.
            let is_lone = written.len() == buffer.len()
                && transmit
                    .segment_size
                    .is_none_or(|size| size >= written.len());
            if is_lone && buffer.capacity() <= (2 * buffer.len()).max(SMALL_FRAME) {
                let next = self.spare_frames.pop().unwrap_or_default();
                let frame = core::mem::replace(&mut buffer, next);
                self.send(node, transmit.port, frame);
                continue;
            }
            for frame in transmit.frames(written) {
                let frame = self.frame_of(frame);
                self.send(node, transmit.port, frame);
            }
        }
        self.transmit_buffer = buffer;
    }

    fn frame_of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut frame = self.spare_frames.pop().unwrap_or_default();
        frame.extend_from_slice(bytes);
        frame
    }

    fn send(&mut self, node: NodeId, port: PortId, bytes: Vec<u8>) {
        self.stats.transmitted += 1;
        let now = self.now;
        self.trace
            .record(now, node, port, TraceKind::Transmit, &bytes);
        let Some(from) = self
            .ports
            .get(port.0 as usize)
            .filter(|from| from.open && from.node == node)
        else {
            self.stats.dropped_port_closed += 1;
            return self.discard(node, port, TraceKind::PortClosed, bytes);
        };
        if bytes.len() > from.info.mtu {
            self.stats.dropped_oversize += 1;
            return self.discard(node, port, TraceKind::Oversize, bytes);
        }
        assert!(
            !from.blocked,
            "'{}' sends by {port}, which is blocked",
            self.nodes[node.index()].name
        );
        let Some(lane_number) = from.lane.map(|lane| lane as usize) else {
            self.stats.dropped_by_links += 1;
            return self.discard(node, port, TraceKind::Drop(DropReason::Outage), bytes);
        };
        let codepoint = match from.sends_ecn {
            true => Ecn::Capable,
            false => Ecn::NotCapable,
        };
        let frame = SimFrame {
            bytes,
            codepoint,
            may_be_ip: from.ip,
        };
        if self.lanes[lane_number].tap.is_some() {
            return self.offer_through_tap(node, port, lane_number, frame);
        }
        self.offer(node, port, lane_number, frame);
    }

    fn discard(&mut self, node: NodeId, port: PortId, kind: TraceKind, bytes: Vec<u8>) {
        self.trace.record(self.now, node, port, kind, &bytes);
        recycle(&mut self.spare_frames, bytes);
    }

    fn offer_through_tap(
        &mut self,
        node: NodeId,
        port: PortId,
        lane_number: usize,
        frame: SimFrame,
    ) {
        let Some(mut tap) = self.lanes[lane_number].tap.take() else {
            return;
        };
        let (codepoint, may_be_ip) = (frame.codepoint, frame.may_be_ip);
        let frames = tap(self.now, frame.bytes);
        self.lanes[lane_number].tap = Some(tap);
        for bytes in frames {
            let frame = SimFrame {
                bytes,
                codepoint,
                may_be_ip,
            };
            self.offer(node, port, lane_number, frame);
        }
    }

    #[inline]
    fn offer(&mut self, node: NodeId, port: PortId, lane_number: usize, frame: SimFrame) {
        let now = self.now;
        let (trace, stats, spare) = (&mut self.trace, &mut self.stats, &mut self.spare_frames);
        self.lanes[lane_number]
            .link
            .enqueue_reporting(now, frame, &mut |at, reason, frame| {
                stats.dropped_by_links += 1;
                trace.record(at, node, port, TraceKind::Drop(reason), &frame.bytes);
                recycle(spare, frame.bytes);
            });
        self.schedule_lane(lane_number);
    }

    /// Advances a lane's transmissions to the present, so that its drops are counted and traced.
    pub(super) fn catch_up(&mut self, lane_number: usize) {
        let lane = &mut self.lanes[lane_number];
        let (port, node) = (lane.from, self.ports[lane.from.0 as usize].node);
        let (trace, stats, spare) = (&mut self.trace, &mut self.stats, &mut self.spare_frames);
        lane.link.catch_up(self.now, &mut |at, reason, frame| {
            stats.dropped_by_links += 1;
            trace.record(at, node, port, TraceKind::Drop(reason), &frame.bytes);
            recycle(spare, frame.bytes);
        });
    }

    /// Ensures an entry for a lane at its next time, with few superfluous entries.
    pub(super) fn schedule_lane(&mut self, lane_number: usize) {
        let lane = &mut self.lanes[lane_number];
        match (lane.link.next_time(), lane.scheduled) {
            (Some(at), Some((scheduled, _))) if scheduled <= at => {}
            (Some(at), _) => {
                lane.scheduled = Some(
                    self.agenda
                        .put(at.max(self.now), Task::Link(lane_number as u32)),
                );
            }
            (None, _) => lane.scheduled = None,
        }
    }

    /// Ensures that a node is woken at its deadline. An early wake stays and only schedules the
    /// next one, so deadlines that each frame moves back cost nothing.
    fn schedule_wake(&mut self, node: NodeId) {
        let Node { machine, wake, .. } = &mut self.nodes[node.index()];
        match (machine.poll_timeout(), *wake) {
            (Some(deadline), Some((set, _))) if set <= deadline.at => {}
            (Some(deadline), _) => {
                *wake = Some(
                    self.agenda
                        .put(deadline.at.max(self.now), Task::Wake(node.0)),
                );
            }
            (None, _) => *wake = None,
        }
    }

    fn hand_event(&mut self, node: NodeId, event: M::Event) {
        let Some(mut hook) = self.nodes[node.index()].hook.take() else {
            self.events.push_back(Occurrence {
                time: self.now,
                node,
                event,
            });
            return;
        };
        hook(self, node, event);
        // The hook may have set another one.
        self.nodes[node.index()].hook.get_or_insert(hook);
    }

    /// Closes a node's end of a link. Frames from and to it are dropped from now on. The peer is
    /// not told.
    pub fn close_port(&mut self, node: NodeId, port: PortId) {
        self.shut(node, port);
        self.drain(node);
    }

    /// Closes a port. The caller drains its node afterwards.
    pub(super) fn shut(&mut self, node: NodeId, port: PortId) {
        if let Some(closed) = self
            .ports
            .get_mut(port.0 as usize)
            .filter(|own| own.node == node && own.open)
        {
            closed.open = false;
            self.nodes[node.index()]
                .machine
                .handle_port(self.now, port, PortEvent::Down);
        }
    }
}

pub(super) fn encapsulated(spec: &LinkSpec, encapsulation: u32) -> LinkSpec {
    LinkSpec {
        overhead: spec.overhead.saturating_add(encapsulation),
        ..spec.clone()
    }
}

/// Passes frames to a machine in batches, as the event loop over sockets does.
#[inline(never)]
fn hand_in<M: Machine>(machine: &mut M, now: Time, port: PortId, frames: &[SimFrame]) {
    for batch in frames.chunks(FRAMES_AT_ONCE) {
        let batch: SmallVec<[&[u8]; FRAMES_AT_ONCE]> = batch.iter().map(SimFrame::as_ref).collect();
        machine.handle_frames(now, port, &batch);
    }
}

/// Tells a machine of marks in the frames that it is about to get, and whether marks can come.
#[inline]
fn note_ecn<M: Machine>(
    machine: &mut M,
    now: Time,
    port: &mut Port,
    id: PortId,
    frames: &[SimFrame],
) {
    let Some(last) = frames.last() else { return };
    let marks = frames
        .iter()
        .filter(|frame| frame.codepoint == Ecn::Marked)
        .count();
    let is_capable = last.codepoint != Ecn::NotCapable;
    let (codepoint, count) = match (marks, last.codepoint) {
        (0, codepoint) if is_capable != port.receives_ecn => (codepoint, frames.len()),
        (0, _) => return,
        (marks, _) => (Ecn::Marked, marks),
    };
    port.receives_ecn = is_capable;
    let event = PortEvent::Ecn {
        codepoint,
        frames: count as u32,
    };
    machine.handle_port(now, id, event);
}

fn recycle(spare: &mut Vec<Vec<u8>>, mut frame: Vec<u8>) {
    if spare.len() < MAX_SPARE_FRAMES {
        frame.clear();
        spare.push(frame);
    }
}
