//! TUN devices: whole IP packets to and from this machine's kernel.
//!
//! Devices are created through one `ioctl` of `rustix`, which the loop needs anyway. The crates for
//! TUN devices bring a dozen dependencies for the five calls here.

use std::fs::OpenOptions;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::io::Errno;
use whimbrel_core::{Machine, PortId, Time};

use crate::IoError;
use crate::counters::{DropReason, TransportCounters, TransportSnapshot};
use crate::interface::ioctl;
use crate::poller::Poller;
use crate::side::MachineSide;
use crate::transport::{FramesToSend, Progress};

/// Packets read per round, one system call each.
const PACKETS_PER_ROUND: usize = 64;
/// The largest IP packet.
const LARGEST_PACKET: usize = 65_535;

/// A TUN device (layer 3, no packet information header, non-blocking). It is removed when this is
/// dropped.
///
/// It belongs to the network namespace of the creating thread, and can be used from any other.
#[derive(Debug)]
pub struct TunDevice {
    fd: OwnedFd,
    name: String,
}

impl TunDevice {
    /// Creates the device. Needs the capability `CAP_NET_ADMIN` in the thread's network namespace.
    pub fn create(name: &str) -> Result<TunDevice, IoError> {
        let mut request = ioctl::Request::for_interface(name).ok_or_else(|| IoError::TunName {
            name: name.to_owned(),
        })?;
        let fd: OwnedFd = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open("/dev/net/tun")
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => IoError::TunMissing {
                    name: name.to_owned(),
                },
                _ => failed(name, "create", source),
            })?
            .into();
        request.set_flags(ioctl::IFF_TUN | ioctl::IFF_NO_PI);
        ioctl::create_tun(&fd, &mut request).map_err(|source| match source {
            Errno::BUSY => IoError::TunInUse {
                name: name.to_owned(),
            },
            _ => failed(name, "create", source.into()),
        })?;
        Ok(TunDevice {
            fd,
            name: name.to_owned(),
        })
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one packet that the kernel routed to the device; fails with `WouldBlock` if there is
    /// none. A packet larger than `buffer` is truncated.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::io::read(&self.fd, &mut *buffer)
        })?)
    }

    /// Passes one packet to the kernel, as if it had arrived on the device.
    pub fn write(&self, packet: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::io::write(&self.fd, packet)
        })?)
    }

    /// Gives the device an address and its subnet, as `ip address add` does. Must be called in a
    /// thread of the device's network namespace.
    pub fn assign(&self, address: Ipv4Addr, prefix_length: u8) -> Result<(), IoError> {
        let mask = u32::MAX
            .checked_shl(32 - u32::from(prefix_length.min(32)))
            .unwrap_or(0);
        self.configure("give an address to", |socket, request| {
            request.set_address(address);
            ioctl::set_address(socket, request)?;
            request.set_address(Ipv4Addr::from(mask));
            ioctl::set_netmask(socket, request)
        })
    }

    /// Sets the MTU, bytes. Must be called in a thread of the device's network namespace.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), IoError> {
        self.configure("set the MTU of", |socket, request| {
            request.set_mtu(mtu.into());
            ioctl::set_mtu(socket, request)
        })
    }

    /// Returns the MTU, bytes. Must be called in a thread of the device's network namespace.
    pub fn mtu(&self) -> Result<usize, IoError> {
        let mut mtu = 0;
        self.configure("read the MTU of", |socket, request| {
            ioctl::get_mtu(socket, request)?;
            mtu = usize::try_from(request.mtu()).unwrap_or(0);
            Ok(())
        })?;
        Ok(mtu)
    }

    /// Switches the device on. Must be called in a thread of the device's network namespace.
    pub fn bring_up(&self) -> Result<(), IoError> {
        self.configure("switch on", |socket, request| {
            ioctl::get_flags(socket, request)?;
            request.set_flags(request.flags() | ioctl::IFF_UP);
            ioctl::set_flags(socket, request)
        })
    }

    fn configure(
        &self,
        action: &'static str,
        work: impl FnOnce(&OwnedFd, &mut ioctl::Request) -> Result<(), Errno>,
    ) -> Result<(), IoError> {
        let mut request =
            ioctl::Request::for_interface(&self.name).ok_or_else(|| IoError::TunName {
                name: self.name.clone(),
            })?;
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)
            .map_err(|source| failed(&self.name, action, source))?;
        work(&socket.into(), &mut request)
            .map_err(|source| failed(&self.name, action, source.into()))
    }
}

fn failed(name: &str, action: &'static str, source: io::Error) -> IoError {
    let name = name.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => IoError::TunNotPermitted { name, action },
        _ => IoError::Tun {
            name,
            action,
            source,
        },
    }
}

impl AsFd for TunDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A TUN device as a port: each packet is a frame.
#[derive(Debug)]
pub(crate) struct TunPort {
    device: TunDevice,
    label: String,
    token: u64,
    port: PortId,
    buffer: Vec<u8>,
    /// Frames that wait for the device: bytes, offset of the first, bytes per frame.
    unsent: Option<(Vec<u8>, usize, usize)>,
    counters: TransportCounters,
}

impl TunPort {
    pub(crate) fn new(device: TunDevice, label: String, token: u64, port: PortId) -> TunPort {
        let buffer = vec![0; LARGEST_PACKET];
        TunPort {
            device,
            label,
            token,
            port,
            buffer,
            unsent: None,
            counters: TransportCounters::default(),
        }
    }

    pub(crate) fn port(&self) -> PortId {
        self.port
    }

    /// Reads packets, within bounds. Ends when the device was deleted.
    pub(crate) fn receive<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) -> Progress {
        for _ in 0..PACKETS_PER_ROUND {
            self.counters.receive_calls += 1;
            match self.device.read(&mut self.buffer) {
                Ok(count) => side.deliver(
                    now,
                    self.port,
                    self.buffer.get(..count).unwrap_or_default(),
                    count,
                ),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Progress::Open,
                Err(error) => {
                    self.counters.receive_errors += 1;
                    if error.raw_os_error() == Some(Errno::BADFD.raw_os_error()) {
                        tracing::warn!(label = %self.label, device = %self.device.name, "the TUN device was deleted");
                        return Progress::Ended;
                    }
                    return Progress::Open;
                }
            }
        }
        Progress::Open
    }

    pub(crate) fn send<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        out: FramesToSend<'_>,
    ) {
        if self.has_unsent() {
            side.count_drop(self.port, DropReason::Blocked, out.frame_count());
        } else if let Some(at) = self.write_frames(side, out.frames(), out.segment()) {
            let (start, segment) = (out.frames_start() + at, out.segment());
            self.unsent = Some((std::mem::take(out.buffer), start, segment));
            poller.set_interest(&self.device, self.token, true, true);
            side.set_blocked(now, self.port, true);
        }
    }

    pub(crate) fn flush<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) {
        let Some((bytes, start, segment)) = self.unsent.take() else {
            return;
        };
        match self.write_frames(side, bytes.get(start..).unwrap_or_default(), segment) {
            Some(at) => self.unsent = Some((bytes, start + at, segment)),
            None => {
                poller.set_interest(&self.device, self.token, true, false);
                side.set_blocked(now, self.port, false);
            }
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    /// Writes frames. Returns the offset at which the device took no more.
    fn write_frames<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        frames: &[u8],
        segment: usize,
    ) -> Option<usize> {
        let port = side.get_mut(self.port)?;
        for (index, frame) in frames.chunks(segment).enumerate() {
            self.counters.send_calls += 1;
            match self.device.write(frame) {
                Ok(_) => {
                    port.counters.sent_frames += 1;
                    port.counters.sent_bytes += frame.len() as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.counters.would_block += 1;
                    return Some(index * segment);
                }
                // EINVAL: not an IP packet; EIO: the device is switched off.
                Err(error) => port.counters.drops.count(DropReason::of(&error), 1),
            }
        }
        None
    }

    pub(crate) fn snapshot(&self) -> TransportSnapshot {
        TransportSnapshot {
            label: self.label.clone(),
            kind: "tun",
            local: self.device.name.clone(),
            kernel_buffers: (0, 0),
            counters: self.counters,
        }
    }
}

impl AsFd for TunPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
