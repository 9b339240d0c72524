//! Round-trip times measured with ICMP echo requests, so that the lab depends on no `ping` program.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use crate::process::wait_readable;

const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
const ICMP_HEADER: usize = 8;

/// The replies to a series of echo requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PingReport {
    /// Requests sent.
    pub sent: u64,
    /// Round-trip times of those that were answered in time, in seconds, in the order sent.
    pub round_trips: Vec<f64>,
}

impl PingReport {
    /// Returns the number of requests that were answered in time.
    pub fn received(&self) -> u64 {
        self.round_trips.len() as u64
    }

    /// Returns the shortest round trip, in seconds.
    pub fn min(&self) -> Option<f64> {
        self.round_trips.iter().copied().reduce(f64::min)
    }

    /// Returns the longest round trip, in seconds.
    pub fn max(&self) -> Option<f64> {
        self.round_trips.iter().copied().reduce(f64::max)
    }

    /// Returns the mean round trip, in seconds.
    pub fn mean(&self) -> Option<f64> {
        let count = self.round_trips.len();
        (count > 0).then(|| self.round_trips.iter().sum::<f64>() / count as f64)
    }

    /// Returns the standard deviation of the round trips, in seconds.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares: f64 = self
            .round_trips
            .iter()
            .map(|rtt| (rtt - mean).powi(2))
            .sum();
        Some((squares / self.round_trips.len() as f64).sqrt())
    }
}

/// As [`crate::Namespace::ping`], from the host that the calling thread is in.
pub(crate) fn ping(
    target: Ipv4Addr,
    count: u16,
    interval: Duration,
    patience: Duration,
) -> io::Result<PingReport> {
    let mut socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
    socket.set_nonblocking(true)?;
    socket.connect(&SocketAddrV4::new(target, 0).into())?;
    // Distinguishes this series from another one in the same host.
    let identifier = (std::process::id() as u16) ^ (Instant::now().elapsed().subsec_nanos() as u16);
    let mut report = PingReport::default();
    for sequence in 0..count {
        let sent = Instant::now();
        report.sent += 1;
        match socket.send(&echo_request(identifier, sequence)) {
            Ok(_) => {}
            // The way is down: that request is lost, as on any other broken link.
            Err(error) if unreachable(&error) => {}
            Err(error) => return Err(error),
        }
        if let Some(arrived) = await_reply(&mut socket, identifier, sequence, sent + patience)? {
            report.round_trips.push((arrived - sent).as_secs_f64());
        }
        if sequence + 1 < count {
            std::thread::sleep(interval.saturating_sub(sent.elapsed()));
        }
    }
    Ok(report)
}

fn unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable};
    matches!(
        error.kind(),
        HostUnreachable | NetworkDown | NetworkUnreachable
    )
}

fn await_reply(
    socket: &mut Socket,
    identifier: u16,
    sequence: u16,
    deadline: Instant,
) -> io::Result<Option<Instant>> {
    let mut packet = [0; 1500];
    while wait_readable(socket, deadline)? {
        let length = match socket.read(&mut packet) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || unreachable(&error) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        if is_reply(&packet[..length], identifier, sequence) {
            return Ok(Some(Instant::now()));
        }
    }
    Ok(None)
}

fn echo_request(identifier: u16, sequence: u16) -> Vec<u8> {
    let mut message = vec![ECHO_REQUEST, 0, 0, 0];
    message.extend(identifier.to_be_bytes());
    message.extend(sequence.to_be_bytes());
    message.extend([0x57; 48]);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Returns true if an IPv4 packet is the answer to that request.
fn is_reply(packet: &[u8], identifier: u16, sequence: u16) -> bool {
    let header = packet
        .first()
        .map_or(0, |first| usize::from(first & 0x0f) * 4);
    let Some(message) = packet
        .get(header..)
        .filter(|message| message.len() >= ICMP_HEADER)
    else {
        return false;
    };
    message[0] == ECHO_REPLY
        && message[4..6] == identifier.to_be_bytes()
        && message[6..8] == sequence.to_be_bytes()
        && checksum(message) == 0
}

/// Returns the Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn only_the_answer_to_the_same_request_counts(identifier: u16, sequence: u16, other: u16) {
            let mut packet = vec![0x45; 20];
            let mut reply = echo_request(identifier, sequence);
            packet.extend(&reply);
            prop_assert!(!is_reply(&packet, identifier, sequence), "a request is not a reply");
            reply[0] = ECHO_REPLY;
            reply[2..4].fill(0);
            let sum = checksum(&reply);
            reply[2..4].copy_from_slice(&sum.to_be_bytes());
            packet.splice(20.., reply);
            prop_assert!(is_reply(&packet, identifier, sequence));
            prop_assert_eq!(is_reply(&packet, identifier, other), other == sequence);
            packet[40] ^= 1;
            prop_assert!(!is_reply(&packet, identifier, sequence), "a corrupted reply");
        }

        #[test]
        fn any_bytes_never_panic(packet in prop::collection::vec(any::<u8>(), 0..80)) {
            is_reply(&packet, 0, 0);
        }
    }
}
