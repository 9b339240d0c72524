//! One packet socket and the ports behind it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use whimbrel_core::{
    Admission, CallerGate, Machine, Medium, PortId, PortInfo, PortOrigin, Time, address_of_station,
};

use super::send::{HEADER, Unsent};
use super::{EthernetConfig, EthernetNeighbour, LENGTH, socket, written};
use crate::IoError;
use crate::counters::{TransportCounters, TransportSnapshot};
use crate::interface::{current_mtu, exists};
use crate::poller::Poller;
use crate::side::MachineSide;
use crate::sole::Sole;
use crate::transport::Progress;
use crate::udp::InboundTable;

/// Frames read per round, one system call each.
const FRAMES_PER_ROUND: usize = 64;
/// Kernel buffers to ask for, bytes.
const BUFFER: usize = 4 << 20;

/// A packet socket with its ports.
#[derive(Debug)]
pub(crate) struct EthernetEndpoint {
    pub(super) config: EthernetConfig,
    pub(super) socket: OwnedFd,
    pub(super) local: [u8; 6],
    slot: usize,
    pub(super) token: u64,
    pub(super) peers: BTreeMap<PortId, [u8; 6]>,
    by_address: BTreeMap<[u8; 6], PortId>,
    inbound: Option<InboundTable>,
    pub(super) unsent: Option<Unsent>,
    /// Decides who becomes an inbound peer; without one, any station that sends a frame.
    gate: Option<Box<dyn CallerGate>>,
    /// What the gate replies.
    reply: Vec<u8>,
    /// True while the interface is gone.
    pub(super) is_away: bool,
    /// True while the interface is there, switched on and connected.
    pub(super) is_carried: bool,
    _sole: Option<Sole>,
    pub(super) counters: TransportCounters,
}

impl EthernetEndpoint {
    pub(crate) fn open(
        config: EthernetConfig,
        slot: usize,
        token: u64,
    ) -> Result<EthernetEndpoint, IoError> {
        let name = || config.interface.name.clone();
        let failed = |action| {
            move |source: io::Error| match source.kind() {
                io::ErrorKind::PermissionDenied => IoError::EthernetNotPermitted { name: name() },
                _ => IoError::Interface {
                    name: name(),
                    action,
                    source,
                },
            }
        };
        let is_away = config.outlives_interface && config.interface.is_awaited();
        let local = match config.interface.ethernet {
            Some(local) => local,
            None if is_away => [0; 6],
            None => return Err(IoError::NoEthernet { name: name() }),
        };
        let socket = socket::open().map_err(failed("open a packet socket on"))?;
        if is_away {
            tracing::warn!(label = %config.label, interface = name(), "this machine has no such interface yet; the link waits for it");
        } else {
            config
                .receive(&socket)
                .map_err(failed("bind a packet socket to"))?;
        }
        let sole = match config.is_sole {
            true => {
                let what = format!("Ethernet (type {:#06x}) on {}", config.ether_type, name());
                Some(Sole::claim(&config.label, &what, |_| false)?)
            }
            false => None,
        };
        let buffers = socket2::SockRef::from(&socket);
        // Smaller buffers lose frames under load; that is no reason to fail.
        let _ = buffers.set_recv_buffer_size(BUFFER);
        let _ = buffers.set_send_buffer_size(BUFFER);
        Ok(EthernetEndpoint {
            socket,
            local,
            slot,
            token,
            peers: BTreeMap::new(),
            by_address: BTreeMap::new(),
            inbound: config.inbound.map(InboundTable::new),
            unsent: None,
            gate: None,
            reply: Vec::new(),
            is_away,
            is_carried: true,
            _sole: sole,
            counters: TransportCounters::default(),
            config,
        })
    }

    pub(crate) fn set_gate(&mut self, gate: Option<Box<dyn CallerGate>>) {
        self.gate = gate;
    }

    pub(crate) fn local(&self) -> [u8; 6] {
        self.local
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = PortId> {
        self.peers.keys().copied()
    }

    /// Opens the group's port, if the configuration names a group.
    pub(crate) fn open_group<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
    ) -> Result<Option<PortId>, IoError> {
        let Some(address) = self.config.group else {
            return Ok(None);
        };
        let label = self.config.label.clone();
        let group = EthernetNeighbour {
            label,
            address,
            origin: PortOrigin::Configured(self.config.listener),
        };
        self.add_neighbour(side, now, group).map(Some)
    }

    pub(crate) fn add_neighbour<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        neighbour: EthernetNeighbour,
    ) -> Result<PortId, IoError> {
        let EthernetNeighbour {
            label,
            address,
            origin,
        } = neighbour;
        match self.by_address.get(&address).copied() {
            // The inbound peer that was configured now comes back as a neighbour.
            Some(port)
                if self
                    .inbound
                    .as_mut()
                    .is_some_and(|inbound| inbound.heard(now, port)) =>
            {
                self.close_port(side, now, port);
            }
            Some(_) => {
                return Err(IoError::DuplicateStation {
                    label,
                    address: written(address),
                });
            }
            None => {}
        }
        self.open_port(side, now, label.clone(), origin, address)
            .ok_or(IoError::OutOfPorts { label })
    }

    /// Makes an inbound peer permanent. Returns false if the port is not an inbound peer.
    pub(crate) fn keep_inbound(&mut self, port: PortId) -> bool {
        self.inbound
            .as_mut()
            .is_some_and(|inbound| inbound.remove(port))
    }

    fn open_port<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        label: String,
        origin: PortOrigin,
        address: [u8; 6],
    ) -> Option<PortId> {
        let interface = self.config.interface.name.clone();
        let mtu = current_mtu(&interface).unwrap_or(self.config.interface.mtu);
        let mtu = self.config.largest_frame(mtu);
        let medium = Medium::Ethernet {
            interface,
            local: self.local,
            remote: address,
        };
        let port = side.open(
            now,
            self.slot,
            PortInfo {
                label,
                origin,
                mtu,
                peer: written(address),
                medium,
            },
        )?;
        self.peers.insert(port, address);
        self.by_address.insert(address, port);
        if self.unsent.is_some() {
            side.set_blocked(now, port, true);
        }
        Some(port)
    }

    /// Closes a port of this socket and tells the machine.
    pub(crate) fn close_port<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        port: PortId,
    ) {
        if let Some(address) = self.peers.remove(&port) {
            self.by_address.remove(&address);
        }
        if let Some(inbound) = &mut self.inbound {
            inbound.remove(port);
        }
        side.close(now, port);
    }

    /// Reads frames, within bounds. May end when the interface is gone.
    pub(crate) fn receive<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        buffer: &mut [u8],
    ) -> Progress {
        for _ in 0..FRAMES_PER_ROUND {
            self.counters.receive_calls += 1;
            match rustix::io::read(&self.socket, &mut *buffer) {
                Ok(count) => self.hand_in(side, now, buffer.get(..count).unwrap_or_default()),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => {
                    self.counters.receive_errors += 1;
                    if !self.is_away && !exists(self.config.interface.index) {
                        return self.lose_interface(poller);
                    }
                    // The interface was switched off; it may come up again.
                    break;
                }
            }
        }
        Progress::Open
    }

    fn hand_in<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time, frame: &[u8]) {
        let Some((header, payload)) = frame.split_at_checked(HEADER) else {
            return;
        };
        let (Some(to), Some(from)) = (
            header.first_chunk::<6>(),
            header.get(6..).and_then(|rest| rest.first_chunk::<6>()),
        ) else {
            return;
        };
        let Some(packet) = self.packet(payload) else {
            self.counters.damaged += 1;
            return;
        };
        if let Some(port) = self.port_of(side, now, (*to, *from), packet) {
            side.deliver(now, port, packet, packet.len());
        }
    }

    /// Returns the packet in a frame's payload; `None` if it ends before the packet does.
    fn packet<'a>(&self, payload: &'a [u8]) -> Option<&'a [u8]> {
        if !self.config.has_lengths {
            return Some(payload);
        }
        let (length, rest) = payload.split_first_chunk::<LENGTH>()?;
        rest.get(..usize::from(u16::from_be_bytes(*length)))
    }

    /// Returns the port that a frame belongs to. Opens one for a new inbound peer if inbound peers
    /// are admitted.
    fn port_of<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        (to, from): ([u8; 6], [u8; 6]),
        packet: &[u8],
    ) -> Option<PortId> {
        let is_group = to.first().is_some_and(|first| first & 1 == 1);
        // A group address is never a sender; it would match the group's own port.
        if from == self.local || from.first().is_some_and(|first| first & 1 == 1) {
            self.counters.strangers += 1;
            return None;
        }
        let known = match is_group {
            true => self.by_address.get(&to).copied(),
            false if to == self.local => self.by_address.get(&from).copied(),
            // A frame for another station, seen because the interface is in promiscuous mode.
            false => {
                self.counters.strangers += 1;
                return None;
            }
        };
        let port = match known {
            Some(port) => port,
            None if is_group => {
                self.counters.strangers += 1;
                return None;
            }
            None => {
                self.ask_gate(now, from, packet)?;
                self.admit(side, now, from)?
            }
        };
        if let Some(inbound) = &mut self.inbound {
            inbound.heard(now, port);
        }
        Some(port)
    }

    /// Shows the gate a packet of who has no port. Returns `Some` if its sender is admitted.
    fn ask_gate(&mut self, now: Time, from: [u8; 6], packet: &[u8]) -> Option<()> {
        let Some(gate) = self.gate.as_mut().filter(|_| self.inbound.is_some()) else {
            return Some(());
        };
        let mut reply = std::mem::take(&mut self.reply);
        reply.clear();
        let admission = gate.consider(now, address_of_station(from), packet, &mut reply);
        if admission == Admission::Answered {
            // Who is not answered asks again.
            let _ = self.write(from, &reply);
        }
        self.reply = reply;
        if admission == Admission::Admitted {
            return Some(());
        }
        self.counters.strangers += 1;
        None
    }

    fn admit<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        from: [u8; 6],
    ) -> Option<PortId> {
        let Some(inbound) = &mut self.inbound else {
            self.counters.strangers += 1;
            return None;
        };
        if let Some(idle) = inbound.room(now, None).taken(&mut self.counters)? {
            self.close_port(side, now, idle);
        }
        let label = self.config.label.clone();
        let origin = PortOrigin::Accepted(self.config.listener);
        let opened = self.open_port(side, now, label, origin, from);
        if let Some(inbound) = &mut self.inbound {
            inbound.admit(now, opened, None, &mut self.counters);
        }
        opened
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.inbound.as_ref().and_then(InboundTable::next_expiry)
    }

    /// Closes inbound peers that exceed the idle time.
    pub(crate) fn expire<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) {
        while let Some(port) = self
            .inbound
            .as_mut()
            .and_then(|inbound| inbound.expired(now))
        {
            self.counters.expired += 1;
            self.close_port(side, now, port);
        }
    }

    pub(crate) fn snapshot(&self) -> TransportSnapshot {
        TransportSnapshot {
            label: self.config.label.clone(),
            kind: "ethernet",
            local: self.config.interface.name.clone(),
            kernel_buffers: (0, 0),
            counters: self.counters,
        }
    }
}

impl AsFd for EthernetEndpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
