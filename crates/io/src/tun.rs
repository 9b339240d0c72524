//! TUN devices: whole IP packets to and from this machine's kernel.
//!
//! A plain device is created through one `ioctl` of `rustix`, which the loop needs anyway. One with
//! segmentation offload is that of the crate `tun-rs`, which takes apart what the kernel hands over
//! as one packet, and puts together what goes back.

use std::fs::OpenOptions;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::io::Errno;
use tun_rs::{DeviceBuilder, GROTable, SyncDevice, VIRTIO_NET_HDR_LEN};
use whimbrel_core::{Machine, PortId, Time};

use crate::IoError;
use crate::counters::{DropReason, TransportCounters, TransportSnapshot};
use crate::interface::ioctl;
use crate::poller::Poller;
use crate::side::{FRAMES_AT_ONCE, Frames, MachineSide};
use crate::transport::{FramesToSend, Progress};

/// Packets read per round, one system call each.
const PACKETS_PER_ROUND: usize = 64;
/// The largest IP packet.
const LARGEST_PACKET: usize = 65_535;
/// Bound of the segments in what the kernel hands over at once: 64 KiB in segments of 536 bytes
/// (RFC 9293 §3.7.1).
const MOST_SEGMENTS: usize = 128;

/// A TUN device (layer 3, no packet information header, non-blocking). It is removed when this is
/// dropped.
///
/// It belongs to the network namespace of the creating thread, and can be used from any other.
#[derive(Debug)]
pub struct TunDevice {
    file: File,
    name: String,
}

enum File {
    Plain(OwnedFd),
    /// The kernel passes many segments of a TCP connection as one packet, both ways.
    Offload(Box<SyncDevice>),
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            File::Plain(_) => "Plain",
            File::Offload(_) => "Offload",
        })
    }
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
                io::ErrorKind::PermissionDenied => IoError::TunClosed {
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
            file: File::Plain(fd),
            name: name.to_owned(),
        })
    }

    /// Creates the device with segmentation offload, or without if the kernel has none. Only a loop
    /// reads and writes it.
    pub fn create_with_offload(name: &str) -> Result<TunDevice, IoError> {
        let usable = ioctl::Request::for_interface(name).is_some();
        if !usable || !std::path::Path::new("/dev/net/tun").exists() {
            // Its errors say what is wrong.
            return TunDevice::create(name);
        }
        let builder = DeviceBuilder::new().name(name).inherit_enable_state();
        let device = builder
            .with(|options| {
                options.offload(true);
            })
            .build_sync()
            .and_then(|device| device.set_nonblocking(true).map(|()| device));
        match device {
            Ok(device) => Ok(TunDevice {
                file: File::Offload(Box::new(device)),
                name: name.to_owned(),
            }),
            Err(error) => {
                tracing::debug!(device = name, %error, "no segmentation offload");
                TunDevice::create(name)
            }
        }
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one packet that the kernel routed to the device; fails with `WouldBlock` if there is
    /// none. A packet larger than `buffer` is truncated.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::io::read(self, &mut *buffer)
        })?)
    }

    /// Passes one packet to the kernel, as if it had arrived on the device.
    pub fn write(&self, packet: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::io::write(self, packet)
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
        match &self.file {
            File::Plain(fd) => fd.as_fd(),
            File::Offload(device) => device.as_fd(),
        }
    }
}

/// Buffers between a device with offload and the loop.
struct Segments {
    /// What one read returns: a header, and one packet or many segments.
    whole: Vec<u8>,
    parts: Vec<Vec<u8>>,
    sizes: Vec<usize>,
    /// Packets on their way to the device, each with room for a header and for others behind it.
    out: Vec<Vec<u8>>,
    table: GROTable,
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segments").finish_non_exhaustive()
    }
}

impl Segments {
    fn new(mtu: usize) -> Segments {
        // The MTU may be changed while the device is in use.
        const LEAST: usize = 2048;
        Segments {
            whole: vec![0; VIRTIO_NET_HDR_LEN + LARGEST_PACKET],
            parts: vec![vec![0; mtu.max(LEAST)]; MOST_SEGMENTS],
            sizes: vec![0; MOST_SEGMENTS],
            out: Vec::new(),
            table: GROTable::new(),
        }
    }

    /// Reads what the kernel has, as packets of their own.
    fn read(&mut self, device: &SyncDevice) -> io::Result<impl Iterator<Item = &[u8]>> {
        let count = device.recv_multiple(&mut self.whole, &mut self.parts, &mut self.sizes, 0)?;
        let parts = self.parts.iter().zip(&self.sizes).take(count);
        Ok(parts.map(|(part, size)| part.get(..*size).unwrap_or_default()))
    }

    /// Writes packets, as few as their connections allow.
    fn write<'f>(
        &mut self,
        device: &SyncDevice,
        frames: impl Iterator<Item = &'f [u8]>,
    ) -> io::Result<()> {
        let mut count = 0;
        for frame in frames {
            if self.out.len() == count {
                // Packets are put together where there is room without another allocation.
                let room = 2 * VIRTIO_NET_HDR_LEN + LARGEST_PACKET;
                self.out.push(Vec::with_capacity(room));
            }
            if let Some(packet) = self.out.get_mut(count) {
                packet.clear();
                packet.resize(VIRTIO_NET_HDR_LEN, 0);
                packet.extend_from_slice(frame);
            }
            count += 1;
        }
        let packets = self.out.get_mut(..count).unwrap_or_default();
        device
            .send_multiple(&mut self.table, packets, VIRTIO_NET_HDR_LEN)
            .map(drop)
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
    /// Of a device with offload.
    segments: Option<Box<Segments>>,
    /// Frames that wait for the device: bytes, offset of the first, bytes per frame.
    unsent: Option<(Vec<u8>, usize, usize)>,
    counters: TransportCounters,
}

impl TunPort {
    pub(crate) fn new(device: TunDevice, label: String, token: u64, port: PortId) -> TunPort {
        let (buffer, segments) = match &device.file {
            File::Plain(_) => (vec![0; LARGEST_PACKET], None),
            File::Offload(_) => {
                let mtu = device.mtu().unwrap_or(LARGEST_PACKET);
                (Vec::new(), Some(Box::new(Segments::new(mtu))))
            }
        };
        TunPort {
            device,
            label,
            token,
            port,
            buffer,
            segments,
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
            match self.receive_once(side, now) {
                Ok(()) => {}
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

    /// Reads once; what came together is delivered together.
    fn receive_once<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) -> io::Result<()> {
        let (File::Offload(device), Some(segments)) = (&self.device.file, &mut self.segments)
        else {
            let count = self.device.read(&mut self.buffer)?;
            let packet = self.buffer.get(..count).unwrap_or_default();
            side.deliver(now, self.port, packet, count);
            return Ok(());
        };
        let mut packets = segments.read(device)?;
        let Some(mut receiver) = side.receiver(self.port) else {
            return Ok(());
        };
        loop {
            let mut batch: Frames<'_> = packets.by_ref().take(FRAMES_AT_ONCE).collect();
            if batch.is_empty() {
                return Ok(());
            }
            receiver.deliver(now, &mut batch);
        }
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
        if let (File::Offload(device), Some(segments)) = (&self.device.file, &mut self.segments) {
            self.counters.send_calls += 1;
            let count = frames.len().div_ceil(segment.max(1)) as u64;
            match segments.write(device, frames.chunks(segment)) {
                Ok(()) => {
                    port.counters.sent_frames += count;
                    port.counters.sent_bytes += frames.len() as u64;
                }
                // How many of them were written is not known: at least one was not.
                Err(error) => port.counters.drops.count(DropReason::of(&error), 1),
            }
            return None;
        }
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
