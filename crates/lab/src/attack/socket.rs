//! The attacker's sockets.

use core::time::Duration;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Instant;

use socket2::{Domain, Protocol, Socket, Type};

use super::{Assault, Plane, Sent};
use crate::LabError;

/// Octets of the headers of IP and UDP.
const HEADERS: usize = 28;
/// Packets between two pauses.
const BURST: u64 = 32;

impl Assault<'_> {
    pub(super) fn target(&self, plane: Plane) -> Result<SocketAddr, LabError> {
        match self.elsewhere {
            Some(address) => Ok(address),
            None => self.arena.listener(plane, false),
        }
    }

    /// Does something on the attacker's host.
    pub(super) fn there<R: Send>(
        &self,
        work: impl FnOnce() -> io::Result<R> + Send,
    ) -> Result<R, LabError> {
        let done = self.arena.attacker()?.enter(work)?;
        done.map_err(LabError::system("attack"))
    }

    /// Calls `send` with 0, 1, 2, ... until the attack is over, at its rate at most; `send` returns
    /// the octets that it has sent.
    pub(super) fn flood(
        &self,
        sent: &mut Sent,
        mut send: impl FnMut(u64) -> io::Result<usize>,
    ) -> io::Result<()> {
        let began = Instant::now();
        for number in 0.. {
            let now = Instant::now();
            if now >= self.end {
                break;
            }
            if number % BURST == 0 {
                let due = Duration::from_secs_f64(sent.octets as f64 * 8.0 / self.rate as f64);
                let early = due.saturating_sub(now - began);
                std::thread::sleep(early.min(self.end - now));
            }
            match send(number) {
                Ok(octets) => {
                    sent.packets += 1;
                    sent.octets += octets as u64;
                }
                // The wire is full.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The target has no port of that number any more.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Does nothing until the attack is over.
    pub(super) fn wait(&self) {
        std::thread::sleep(self.end.saturating_duration_since(Instant::now()));
    }
}

/// Returns a socket to the target that never blocks.
pub(super) fn udp(target: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(target)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Counts what has come.
pub(super) fn drawn(socket: &UdpSocket) -> u64 {
    let mut buffer = [0; 65_536];
    let mut octets = 0;
    while let Ok(len) = socket.recv(&mut buffer) {
        octets += len as u64;
    }
    octets
}

/// Sends datagrams with any source.
pub(super) struct Forger {
    socket: Socket,
    target: SocketAddrV4,
}

impl Forger {
    pub(super) fn new(target: SocketAddr) -> io::Result<Forger> {
        let SocketAddr::V4(target) = target else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // Of this protocol, packets have a header of the sender's making.
        let raw = Protocol::from(libc::IPPROTO_RAW);
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(raw))?;
        Ok(Forger { socket, target })
    }

    /// Returns the octets of the datagram.
    pub(super) fn send(&self, source: Ipv4Addr, port: u16, payload: &[u8]) -> io::Result<usize> {
        let total = (HEADERS + payload.len()) as u16;
        let mut packet = Vec::with_capacity(usize::from(total));
        // Length, identification and checksum are the kernel's to fill in (raw(7)).
        packet.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0]);
        packet.extend(source.octets());
        packet.extend(self.target.ip().octets());
        packet.extend(port.to_be_bytes());
        packet.extend(self.target.port().to_be_bytes());
        packet.extend((total - 20).to_be_bytes());
        // No checksum (RFC 768).
        packet.extend([0, 0]);
        packet.extend(payload);
        let target = SocketAddr::V4(SocketAddrV4::new(*self.target.ip(), 0));
        self.socket.send_to(&packet, &target.into())?;
        Ok(payload.len())
    }
}
