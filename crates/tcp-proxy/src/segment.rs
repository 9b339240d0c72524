//! IP packets that carry a TCP segment, as checked views.

use core::net::SocketAddr;

use etherparse::{IpNumber, IpSlice, TcpOptionElement, TcpSlice};

use crate::checksum;

/// IPv4 and TCP headers without options, bytes: [TCP/ICN §3.2.3] has segments of 1500 bytes with
/// their headers.
pub const IPV4_HEADERS: usize = 40;
/// IPv6 and TCP headers without options, bytes.
pub const IPV6_HEADERS: usize = 60;

/// The two ends of the packets of one direction of a connection: [TCP/ICN §3.3.1]'s 4-tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Where the packets come from.
    pub source: SocketAddr,
    /// Where they go.
    pub destination: SocketAddr,
}

impl Flow {
    /// Returns the other direction.
    pub const fn reversed(self) -> Flow {
        Flow {
            source: self.destination,
            destination: self.source,
        }
    }
}

impl core::fmt::Display for Flow {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} -> {}", self.source, self.destination)
    }
}

/// The ends of a connection as a proxy sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ends {
    /// The end on this side, behind the device.
    pub local: SocketAddr,
    /// The end behind the peer.
    pub remote: SocketAddr,
}

impl Ends {
    /// Of a packet from this side.
    pub const fn of_outward(flow: &Flow) -> Ends {
        Ends {
            local: flow.source,
            remote: flow.destination,
        }
    }

    /// Of a packet from the peer.
    pub const fn of_inward(flow: &Flow) -> Ends {
        Ends {
            local: flow.destination,
            remote: flow.source,
        }
    }

    /// Returns the 4-tuple of packets from this side.
    pub const fn outward(&self) -> Flow {
        Flow {
            source: self.local,
            destination: self.remote,
        }
    }
}

/// Why a packet is not carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Its headers are cut off, or contradict each other.
    #[error("not a whole IP packet with a TCP header")]
    Malformed,
    /// It is a fragment. The proxies clamp the maximum segment size, so that none is needed.
    #[error("an IP fragment")]
    Fragment,
    /// Another protocol: [TCP/ICN §3.2.1] carries TCP only.
    #[error("IP protocol {0}, not TCP")]
    NotTcp(u8),
    /// Its TCP checksum is wrong.
    #[error("wrong TCP checksum")]
    Checksum,
}

/// Flags of a segment that the proxies look at; all others pass unseen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// SYN.
    pub syn: bool,
    /// ACK.
    pub ack: bool,
    /// FIN.
    pub fin: bool,
    /// RST.
    pub rst: bool,
    /// PSH: the sender has nothing after it for now (RFC 9293 §3.9.1).
    pub psh: bool,
}

/// A checked IP packet with a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The packet, without bytes beyond its IP length.
    pub packet: &'a [u8],
    /// Its two ends.
    pub flow: Flow,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number; without meaning unless the ACK flag is set.
    pub acknowledgement: u32,
    /// Its flags.
    pub flags: Flags,
    /// Bytes of payload.
    pub payload: usize,
    /// Offset of the TCP header.
    tcp_at: usize,
}

impl<'a> Segment<'a> {
    /// Checks the first packet in `bytes`; what follows it is in [`Segment::rest_of`].
    pub fn decode(bytes: &'a [u8]) -> Result<Segment<'a>, SegmentError> {
        let ip = IpSlice::from_slice(bytes).map_err(|_| SegmentError::Malformed)?;
        if ip.is_fragmenting_payload() {
            return Err(SegmentError::Fragment);
        }
        let payload = ip.payload();
        if payload.ip_number != IpNumber::TCP {
            return Err(SegmentError::NotTcp(payload.ip_number.0));
        }
        let tcp = TcpSlice::from_slice(payload.payload).map_err(|_| SegmentError::Malformed)?;
        let (source, destination) = (ip.source_addr(), ip.destination_addr());
        let expected = checksum::of_segment(source, destination, payload.payload)
            .ok_or(SegmentError::Malformed)?;
        if expected != tcp.checksum() {
            return Err(SegmentError::Checksum);
        }
        let tcp_at = payload.payload.as_ptr() as usize - bytes.as_ptr() as usize;
        let end = tcp_at + payload.payload.len();
        Ok(Segment {
            packet: bytes.get(..end).unwrap_or_default(),
            flow: Flow {
                source: SocketAddr::new(source, tcp.source_port()),
                destination: SocketAddr::new(destination, tcp.destination_port()),
            },
            sequence: tcp.sequence_number(),
            acknowledgement: tcp.acknowledgment_number(),
            flags: Flags {
                syn: tcp.syn(),
                ack: tcp.ack(),
                fin: tcp.fin(),
                rst: tcp.rst(),
                psh: tcp.psh(),
            },
            payload: tcp.payload().len(),
            tcp_at,
        })
    }

    /// Returns the bytes after this packet in `bytes`, from which it was decoded.
    pub fn rest_of(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.packet.len()..).unwrap_or_default()
    }

    /// Returns the sequence number after everything that the segment occupies: payload, SYN and
    /// FIN.
    pub fn end(&self) -> u32 {
        self.sequence
            .wrapping_add(self.payload as u32)
            .wrapping_add(u32::from(self.flags.syn))
            .wrapping_add(u32::from(self.flags.fin))
    }

    /// Returns a copy of the packet. If it opens a connection, its MSS option is at most what fits
    /// in a packet of `largest` bytes: the only thing that a proxy changes.
    pub fn clamped(&self, largest: usize) -> Vec<u8> {
        let mut packet = self.packet.to_vec();
        if self.flags.syn {
            let headers = match self.flow.source {
                SocketAddr::V4(_) => IPV4_HEADERS,
                SocketAddr::V6(_) => IPV6_HEADERS,
            };
            let most = largest.saturating_sub(headers).min(usize::from(u16::MAX)) as u16;
            self.clamp(&mut packet, most);
        }
        packet
    }

    fn clamp(&self, packet: &mut [u8], most: u16) {
        let Some((at, mss)) = self.mss_option().filter(|(_, mss)| *mss > most) else {
            return;
        };
        let at = self.tcp_at + at;
        if let Some(place) = packet.get_mut(at..at + 2) {
            place.copy_from_slice(&most.to_be_bytes());
        }
        // RFC 1624: the checksum follows from the change of one word. A value at an odd offset
        // counts with its octets swapped.
        let swap = |word: u16| {
            if at % 2 == self.tcp_at % 2 {
                word
            } else {
                word.swap_bytes()
            }
        };
        let checksum_at = self.tcp_at + 16;
        if let Some(place) = packet.get_mut(checksum_at..checksum_at + 2) {
            let old = u16::from_be_bytes([place[0], place[1]]);
            let sum = u32::from(!old) + u32::from(!swap(mss)) + u32::from(swap(most));
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            place.copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
    }

    /// Returns the offset of the MSS value from the start of the TCP header, and the value.
    fn mss_option(&self) -> Option<(usize, u16)> {
        let tcp = TcpSlice::from_slice(self.packet.get(self.tcp_at..)?).ok()?;
        let mut options = tcp.options_iterator();
        while let Some(Ok(option)) = options.next() {
            if let TcpOptionElement::MaximumSegmentSize(mss) = option {
                return Some((tcp.header_len() - options.rest().len() - 2, mss));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, TcpOptionElement};

    fn syn(mss: u16, before: &[TcpOptionElement]) -> Vec<u8> {
        let options: Vec<_> = before
            .iter()
            .cloned()
            .chain([TcpOptionElement::MaximumSegmentSize(mss)])
            .collect();
        let mut packet = Vec::new();
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 37)
            .tcp(40_000, 80, u32::MAX, 65_535)
            .syn()
            .options(&options)
            .unwrap()
            .write(&mut packet, &[])
            .unwrap();
        packet
    }

    #[test]
    fn a_large_mss_is_clamped_and_the_checksum_stays_right() {
        for before in [&[][..], &[TcpOptionElement::Noop]] {
            let packet = syn(9000, before);
            let segment = Segment::decode(&packet).unwrap();
            let clamped = segment.clamped(1500);
            let again = Segment::decode(&clamped).unwrap();
            assert_eq!(again.mss_option().unwrap().1, 1460);
            assert_eq!(clamped.get(8), Some(&37), "the TTL is untouched");
        }
    }

    #[test]
    fn a_small_mss_stays() {
        let packet = syn(536, &[]);
        assert_eq!(Segment::decode(&packet).unwrap().clamped(1500), packet);
    }

    #[test]
    fn a_flipped_bit_is_a_wrong_checksum_and_a_cut_is_malformed() {
        let mut packet = syn(1460, &[]);
        let last = packet.len() - 1;
        for length in 0..packet.len() {
            let cut = Segment::decode(packet.get(..length).unwrap());
            assert_eq!(cut.unwrap_err(), SegmentError::Malformed, "{length}");
        }
        packet[last] ^= 1;
        assert_eq!(
            Segment::decode(&packet).unwrap_err(),
            SegmentError::Checksum
        );
    }

    #[test]
    fn fragments_and_other_protocols_are_told_apart() {
        let mut packet = syn(1460, &[]);
        packet[6] |= 0x20;
        assert_eq!(
            Segment::decode(&packet).unwrap_err(),
            SegmentError::Fragment
        );
        let mut packet = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 9)
            .udp(1, 2)
            .write(&mut packet, b"x")
            .unwrap();
        assert_eq!(
            Segment::decode(&packet).unwrap_err(),
            SegmentError::NotTcp(17)
        );
    }

    #[test]
    fn syn_and_fin_occupy_a_number_each() {
        let packet = syn(1460, &[]);
        assert_eq!(Segment::decode(&packet).unwrap().end(), 0, "u32::MAX + 1");
    }
}
