//! The common part of server and client: an IPv4 interface on one port, and its time.

use core::time::Duration;

use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr};
use whimbrel_core::{Deadline, PortEvent, PortId, Time, Transmit};

use super::device::QueueDevice;
use super::{Congestion, TcpConfig};

/// IPv4 and TCP headers without options.
const HEADERS: usize = 40;

/// One interface with its sockets.
pub(super) struct Stack {
    pub(super) config: TcpConfig,
    pub(super) sockets: SocketSet<'static>,
    pub(super) interface: Interface,
    pub(super) device: QueueDevice,
    port: Option<PortId>,
    // Set by input or by the program since the last round.
    dirty: bool,
    deadline: Option<Deadline>,
}

pub(super) fn instant(time: Time) -> Instant {
    Instant::from_micros(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}

impl Stack {
    pub(super) fn new(config: TcpConfig) -> Stack {
        let mut device = QueueDevice::new(config.segment_size + HEADERS);
        let mut interface_config = Config::new(HardwareAddress::Ip);
        interface_config.random_seed = config.seed;
        let mut interface = Interface::new(interface_config, &mut device, Instant::ZERO);
        // Every address is reached over the only link, so the whole address space is on it.
        interface.update_ip_addrs(|addresses| {
            let everything = IpCidr::new(config.address.into(), 0);
            // The list has room for the first address.
            let _ = addresses.push(everything);
        });
        Stack {
            config,
            sockets: SocketSet::new(Vec::new()),
            interface,
            device,
            port: None,
            dirty: false,
            deadline: None,
        }
    }

    /// Returns a socket with these buffers, in bytes.
    pub(super) fn socket(&self, receive: usize, send: usize) -> tcp::Socket<'static> {
        let mut socket = tcp::Socket::new(
            tcp::SocketBuffer::new(vec![0; receive]),
            tcp::SocketBuffer::new(vec![0; send]),
        );
        socket.set_congestion_control(match self.config.congestion {
            Congestion::Cubic => tcp::CongestionControl::Cubic,
            Congestion::Reno => tcp::CongestionControl::Reno,
            Congestion::None => tcp::CongestionControl::None,
        });
        // The last, short segment of a transfer must not wait for an ACK.
        socket.set_nagle_enabled(false);
        socket
    }

    pub(super) fn handle_port(&mut self, port: PortId, event: &PortEvent) {
        match event {
            PortEvent::Up(_) => self.port = Some(port),
            PortEvent::Down if self.port == Some(port) => self.port = None,
            _ => {}
        }
        self.dirty = true;
    }

    pub(super) fn handle_frame(&mut self, frame: &[u8]) {
        self.device.receive_frame(frame);
        self.dirty = true;
    }

    pub(super) fn touch(&mut self) {
        self.dirty = true;
    }

    /// Returns true once after anything that needs a round.
    pub(super) fn take_dirty(&mut self) -> bool {
        core::mem::take(&mut self.dirty)
    }

    /// Runs a round of smoltcp: input, then output.
    pub(super) fn poll(&mut self, now: Time) {
        loop {
            self.interface
                .poll(instant(now), &mut self.device, &mut self.sockets);
            if !self.device.has_incoming() {
                return;
            }
        }
    }

    /// Reads smoltcp's next deadline, after a round.
    pub(super) fn read_deadline(&mut self, now: Time) {
        self.deadline = self
            .interface
            .poll_at(instant(now), &self.sockets)
            .map(|at| {
                let at = Time::from_nanos(
                    u64::try_from(at.total_micros())
                        .unwrap_or(0)
                        .saturating_mul(1_000),
                );
                // smoltcp has just run, so an immediate deadline waits until its clock advances.
                Deadline::new(at.max(now + Duration::from_micros(1)), "TCP timer")
            });
    }

    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    pub(super) fn transmit(&mut self, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let Some(port) = self.port else {
            // Without a link, packets are discarded.
            let start = buffer.len();
            while self.device.take_outgoing(buffer).is_some() {
                buffer.truncate(start);
            }
            return None;
        };
        let size = self.device.take_outgoing(buffer)?;
        Some(Transmit {
            port,
            size,
            segment_size: None,
        })
    }
}
