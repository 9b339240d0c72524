//! The machine and its ports, as transports access them.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use whimbrel_core::{Ecn, Machine, PortEvent, PortId, PortInfo, PortOrigin, Time};

use crate::counters::{DropReason, PortCounters, PortSnapshot};

/// Bound of the frames of one port that are delivered in one call.
pub(crate) const FRAMES_AT_ONCE: usize = 64;

/// Frames of one port that arrived together.
pub(crate) type Frames<'a> = SmallVec<[&'a [u8]; FRAMES_AT_ONCE]>;

/// The driver's state of one port.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) info: PortInfo,
    /// Slot of its transport.
    pub(crate) transport: usize,
    pub(crate) blocked: bool,
    /// True if the last frame that arrived could have been marked.
    receives_ecn: bool,
    /// True if one transmit may carry several whole frames of any sizes, so that its size says
    /// nothing about theirs.
    pub(crate) concatenates: bool,
    pub(crate) counters: PortCounters,
}

/// A machine with the table of its ports. All reports to the machine pass through here, so that the
/// machine's view of a port and the driver's cannot differ.
#[derive(Debug)]
pub(crate) struct MachineSide<M> {
    pub(crate) machine: M,
    ports: BTreeMap<PortId, Port>,
    next_port: Option<u32>,
    closed: PortCounters,
    /// The number of reports to the machine, frames not included.
    reports: u64,
    /// The machine may have output that was not fetched yet, so the loop must not sleep.
    undrained: bool,
}

/// A machine and the port on which frames arrive.
pub(crate) struct Receiver<'a, M> {
    machine: &'a mut M,
    id: PortId,
    counters: &'a mut PortCounters,
}

impl<M: Machine> Receiver<'_, M> {
    /// Delivers frames that arrived together. Empty ones are counted and dropped.
    pub(crate) fn deliver(&mut self, now: Time, frames: &mut Frames<'_>) {
        let before = frames.len();
        frames.retain(|frame| !frame.is_empty());
        self.counters
            .drops
            .count(DropReason::Empty, (before - frames.len()) as u64);
        self.counters.received_frames += frames.len() as u64;
        self.counters.received_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        self.machine.handle_frames(now, self.id, frames);
    }
}

impl<M: Machine> MachineSide<M> {
    pub(crate) fn new(machine: M) -> Self {
        MachineSide {
            machine,
            ports: BTreeMap::new(),
            next_port: Some(0),
            closed: PortCounters::default(),
            reports: 0,
            undrained: true,
        }
    }

    /// Opens a port. Returns `None` when the numbers are used up: a number is never reused in a
    /// run.
    pub(crate) fn open(&mut self, now: Time, transport: usize, info: PortInfo) -> Option<PortId> {
        let number = self.next_port?;
        self.next_port = number.checked_add(1);
        let id = PortId(number);
        tracing::debug!(port = number, label = %info.label, peer = %info.peer, origin = ?info.origin, "port up");
        let port = Port {
            info: info.clone(),
            transport,
            blocked: false,
            receives_ecn: false,
            concatenates: false,
            counters: PortCounters::default(),
        };
        self.ports.insert(id, port);
        self.count_report();
        self.machine.handle_port(now, id, PortEvent::Up(info));
        Some(id)
    }

    /// Closes a port and tells the machine, unless it is closed already.
    pub(crate) fn close(&mut self, now: Time, id: PortId) {
        if let Some(port) = self.ports.remove(&id) {
            tracing::debug!(port = id.0, label = %port.info.label, peer = %port.info.peer, "port down");
            self.closed.add(&port.counters);
            self.count_report();
            self.machine.handle_port(now, id, PortEvent::Down);
        }
    }

    /// Returns a number that changes with each report to the machine other than frames, since a
    /// report may cause output.
    pub(crate) fn reports(&self) -> u64 {
        self.reports
    }

    /// Counts a report that reached the machine by another way.
    pub(crate) fn count_report(&mut self) {
        self.reports += 1;
        self.undrained = true;
    }

    /// Returns true if the machine may have output that was not fetched.
    pub(crate) fn may_have_output(&self) -> bool {
        self.undrained
    }

    /// Notes whether the machine may have output after a round.
    pub(crate) fn expect_output(&mut self, expected: bool) {
        self.undrained = expected;
    }

    pub(crate) fn get(&self, id: PortId) -> Option<&Port> {
        self.ports.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: PortId) -> Option<&mut Port> {
        self.ports.get_mut(&id)
    }

    /// Counts dropped frames of a port.
    pub(crate) fn count_drop(&mut self, id: PortId, reason: DropReason, frames: u64) {
        if let Some(port) = self.ports.get_mut(&id) {
            port.counters.drops.count(reason, frames);
        }
    }

    /// Returns a receiver to deliver many frames of one port, one by one.
    pub(crate) fn receiver(&mut self, id: PortId) -> Option<Receiver<'_, M>> {
        let counters = &mut self.ports.get_mut(&id)?.counters;
        Some(Receiver {
            machine: &mut self.machine,
            id,
            counters,
        })
    }

    /// Delivers consecutive frames, each of `stride` bytes but the last.
    pub(crate) fn deliver(&mut self, now: Time, id: PortId, frames: &[u8], stride: usize) {
        let Some(port) = self.ports.get_mut(&id) else {
            return;
        };
        if frames.is_empty() {
            port.counters.drops.count(DropReason::Empty, 1);
            return;
        }
        let stride = stride.clamp(1, frames.len());
        port.counters.received_frames += frames.len().div_ceil(stride) as u64;
        port.counters.received_bytes += frames.len() as u64;
        let mut frames = frames.chunks(stride);
        loop {
            let batch: Frames<'_> = frames.by_ref().take(FRAMES_AT_ONCE).collect();
            if batch.is_empty() {
                return;
            }
            self.machine.handle_frames(now, id, &batch);
        }
    }

    /// Notes the codepoint of `frames` frames that are delivered next, and reports marks and
    /// changes of whether marks can come.
    #[inline]
    pub(crate) fn note_ecn(&mut self, now: Time, id: PortId, codepoint: Ecn, frames: usize) {
        let Some(port) = self.ports.get_mut(&id) else {
            return;
        };
        let is_capable = codepoint != Ecn::NotCapable;
        if codepoint != Ecn::Marked && is_capable == port.receives_ecn {
            return;
        }
        port.receives_ecn = is_capable;
        self.count_report();
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        let event = PortEvent::Ecn { codepoint, frames };
        self.machine.handle_port(now, id, event);
    }

    /// Reports a change between blocked and writable. Repetitions are not reported.
    pub(crate) fn set_blocked(&mut self, now: Time, id: PortId, blocked: bool) {
        let Some(port) = self.ports.get_mut(&id) else {
            return;
        };
        if port.blocked != blocked {
            port.blocked = blocked;
            port.counters.blocked_times += u64::from(blocked);
            let event = if blocked {
                PortEvent::Blocked
            } else {
                PortEvent::Writable
            };
            self.count_report();
            self.machine.handle_port(now, id, event);
        }
    }

    /// Reports that the path to the peer of a port has changed. The MTU is reported even if it is
    /// the same, because measurements of the old path may not hold any more.
    pub(crate) fn move_path(&mut self, now: Time, id: PortId, mtu: usize) {
        let Some(port) = self.ports.get_mut(&id) else {
            return;
        };
        if mtu != port.info.mtu {
            tracing::info!(port = id.0, peer = %port.info.peer, from = port.info.mtu, to = mtu, "the route to a peer has changed");
        }
        port.info.mtu = mtu;
        self.count_report();
        self.machine.handle_port(now, id, PortEvent::Mtu(mtu));
    }

    /// Reports that no program receives at the peer's end of a port.
    pub(crate) fn refused(&mut self, now: Time, id: PortId) {
        if self.ports.contains_key(&id) {
            self.count_report();
            self.machine.handle_port(now, id, PortEvent::Refused);
        }
    }

    /// Reports whether what carries a port's frames works.
    pub(crate) fn note_carrier(&mut self, now: Time, id: PortId, works: bool) {
        if self.ports.contains_key(&id) {
            self.count_report();
            self.machine.handle_port(now, id, PortEvent::Carrier(works));
        }
    }

    /// Lowers the MTU of a port and reports it. Ignores a larger value.
    pub(crate) fn lower_mtu(&mut self, now: Time, id: PortId, mtu: usize) {
        let Some(port) = self.ports.get_mut(&id) else {
            return;
        };
        if mtu < port.info.mtu {
            tracing::info!(port = id.0, peer = %port.info.peer, from = port.info.mtu, to = mtu, "path MTU lowered");
            port.info.mtu = mtu;
            self.count_report();
            self.machine.handle_port(now, id, PortEvent::Mtu(mtu));
        }
    }

    pub(crate) fn snapshot(&self) -> (Vec<PortSnapshot>, PortCounters) {
        let ports = self.ports.iter().map(|(id, port)| PortSnapshot {
            port: id.0,
            label: port.info.label.clone(),
            kind: match port.info.origin {
                PortOrigin::Configured(_) | PortOrigin::Opened(_) => "neighbour",
                PortOrigin::Accepted(_) => "caller",
                PortOrigin::Local => "local",
            },
            peer: port.info.peer.clone(),
            mtu: port.info.mtu,
            blocked: port.blocked,
            counters: port.counters,
        });
        (ports.collect(), self.closed)
    }
}
