//! Several segments in one Data. Beyond the paper, whose Data have all of them with their headers: a
//! segment whose headers follow from those of the one before it has none, so "the negative impact of
//! the inter-proxy ICN protocol on TCP goodput" ([TCP/ICN §3.1.5]) is less.
//!
//! Every octet comes out as it went in: what does not follow is written whole.

use core::net::IpAddr;
use core::ops::Range;

use etherparse::{IpNumber, Ipv4HeaderSlice};
use smallvec::SmallVec;

use crate::checksum;

/// Marks of a segment after the first: 0 for a whole packet; otherwise [`FOLLOWS`], and of the TCP
/// flags and IPv4's identification what must be known.
const WHOLE: u8 = 0;
const FOLLOWS: u8 = 1;
const PUSH: u8 = 2;
const SAME_IDENTIFICATION: u8 = 4;

/// Bound of the packets of one Data, octets: a Data of garbage stays small.
const MOST: usize = 65_536;

/// Offsets in headers (RFC 791, RFC 8200, RFC 9293).
const IPV4_LENGTH: usize = 2;
const IPV4_IDENTIFICATION: usize = 4;
const IPV4_CHECKSUM: usize = 10;
const IPV4_SOURCE: usize = 12;
const IPV6_LENGTH: usize = 4;
const IPV6_NEXT_HEADER: usize = 6;
const IPV6_SOURCE: usize = 8;
const IPV6_HEADER: usize = 40;
const TCP_SEQUENCE: usize = 4;
const TCP_OFFSET: usize = 12;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const TCP_PUSH: u8 = 8;

/// The headers of a segment: IPv4's and TCP's have 60 octets at most.
type Headers = SmallVec<[u8; 120]>;

/// Where the headers of a packet end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    is_v4: bool,
    /// Octets of the IP header.
    ip: usize,
    /// Octets of both headers.
    all: usize,
}

impl Layout {
    /// Returns `None` for what never follows: other protocols, extension headers.
    fn of(packet: &[u8]) -> Option<Layout> {
        let first = *packet.first()?;
        let (is_v4, ip, protocol) = match first >> 4 {
            4 => (true, usize::from(first & 0xf) * 4, *packet.get(9)?),
            6 => (false, IPV6_HEADER, *packet.get(IPV6_NEXT_HEADER)?),
            _ => return None,
        };
        let all = ip + usize::from(packet.get(ip + TCP_OFFSET)? >> 4) * 4;
        let holds = protocol == IpNumber::TCP.0 && ip >= 20 && all >= ip + 20;
        (holds && packet.len() >= all).then_some(Layout { is_v4, ip, all })
    }

    /// Returns the addresses of a packet.
    fn ends(self, packet: &[u8]) -> Option<[IpAddr; 2]> {
        if self.is_v4 {
            let source: [u8; 4] = *packet.get(IPV4_SOURCE..)?.first_chunk()?;
            let destination: [u8; 4] = *packet.get(IPV4_SOURCE + 4..)?.first_chunk()?;
            Some([source.into(), destination.into()])
        } else {
            let source: [u8; 16] = *packet.get(IPV6_SOURCE..)?.first_chunk()?;
            let destination: [u8; 16] = *packet.get(IPV6_SOURCE + 16..)?.first_chunk()?;
            Some([source.into(), destination.into()])
        }
    }
}

fn word(octets: &[u8], at: usize) -> Option<u16> {
    let pair: &[u8; 2] = octets.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*pair))
}

fn put<const N: usize>(octets: &mut [u8], at: usize, value: [u8; N]) -> Option<()> {
    *octets.get_mut(at..)?.first_chunk_mut()? = value;
    Some(())
}

/// Returns the headers of the segment that follows `previous` with a payload of `length` octets; its
/// TCP checksum is 0.
fn headers_after(previous: &[u8], length: u16, marks: u8) -> Option<Headers> {
    let layout = Layout::of(previous)?;
    let mut headers = Headers::from_slice(previous.get(..layout.all)?);
    let whole = layout.all + usize::from(length);
    if layout.is_v4 {
        put(
            &mut headers,
            IPV4_LENGTH,
            u16::try_from(whole).ok()?.to_be_bytes(),
        )?;
        let step = u16::from(marks & SAME_IDENTIFICATION == 0);
        let identification = word(previous, IPV4_IDENTIFICATION)?.wrapping_add(step);
        put(
            &mut headers,
            IPV4_IDENTIFICATION,
            identification.to_be_bytes(),
        )?;
        let header = Ipv4HeaderSlice::from_slice(headers.get(..layout.ip)?).ok()?;
        let checksum = header.to_header().calc_header_checksum();
        put(&mut headers, IPV4_CHECKSUM, checksum.to_be_bytes())?;
    } else {
        let payload = u16::try_from(whole - layout.ip).ok()?;
        put(&mut headers, IPV6_LENGTH, payload.to_be_bytes())?;
    }
    let sequence_at = layout.ip + TCP_SEQUENCE;
    let sequence: &[u8; 4] = previous.get(sequence_at..)?.first_chunk()?;
    let payload = u32::try_from(previous.len() - layout.all).ok()?;
    let sequence = u32::from_be_bytes(*sequence).wrapping_add(payload);
    put(&mut headers, sequence_at, sequence.to_be_bytes())?;
    let flags = headers.get_mut(layout.ip + TCP_FLAGS)?;
    *flags = match marks & PUSH {
        0 => *flags & !TCP_PUSH,
        _ => *flags | TCP_PUSH,
    };
    put(&mut headers, layout.ip + TCP_CHECKSUM, [0, 0])?;
    Some(headers)
}

/// Returns the marks and the payload of a packet that follows `previous`. Its TCP checksum is right:
/// segments are checked when they come from the device.
fn following<'p>(previous: &[u8], packet: &'p [u8]) -> Option<(u8, &'p [u8])> {
    let layout = Layout::of(packet)?;
    let payload = packet.get(layout.all..).filter(|it| !it.is_empty())?;
    let mut marks = FOLLOWS;
    if packet.get(layout.ip + TCP_FLAGS)? & TCP_PUSH != 0 {
        marks |= PUSH;
    }
    let identification = |packet| word(packet, IPV4_IDENTIFICATION);
    if layout.is_v4 && identification(packet) == identification(previous) {
        marks |= SAME_IDENTIFICATION;
    }
    let expected = headers_after(previous, u16::try_from(payload.len()).ok()?, marks)?;
    let mut headers = Headers::from_slice(packet.get(..layout.all)?);
    put(&mut headers, layout.ip + TCP_CHECKSUM, [0, 0])?;
    (headers == expected).then_some((marks, payload))
}

/// Appends packets: the first one whole, the others with their marks before them.
pub(crate) fn write<P: AsRef<[u8]>>(out: &mut Vec<u8>, packets: &[P]) {
    let mut previous: Option<&[u8]> = None;
    for packet in packets.iter().map(AsRef::as_ref) {
        let follows = previous.and_then(|previous| following(previous, packet));
        match (follows, previous) {
            (Some((marks, payload)), _) => {
                out.push(marks);
                // Cannot be longer: `following` checked it.
                let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(payload);
            }
            (None, Some(_)) => {
                out.push(WHOLE);
                out.extend_from_slice(packet);
            }
            (None, None) => out.extend_from_slice(packet),
        }
        previous = Some(packet);
    }
}

/// Returns the packets, whole and one after the other; `None` if they are malformed.
pub(crate) fn read(mut octets: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(2 * octets.len());
    let mut last = 0..0;
    while !octets.is_empty() {
        let marks = match out.is_empty() {
            true => WHOLE,
            false => take(&mut octets, 1)?.first().copied().unwrap_or(WHOLE),
        };
        let begin = out.len();
        if marks == WHOLE {
            let length = whole_length(octets)?;
            out.extend_from_slice(take(&mut octets, length)?);
        } else {
            let length = word(take(&mut octets, 2)?, 0).unwrap_or(0);
            let payload = take(&mut octets, usize::from(length))?;
            rebuild(&mut out, last, payload, marks)?;
        }
        if out.len() > MOST {
            return None;
        }
        last = begin..out.len();
    }
    Some(out)
}

fn take<'o>(octets: &mut &'o [u8], count: usize) -> Option<&'o [u8]> {
    let (head, rest) = octets.split_at_checked(count)?;
    *octets = rest;
    Some(head)
}

/// Returns the length of the packet at the beginning, by its IP header.
fn whole_length(octets: &[u8]) -> Option<usize> {
    match octets.first()? >> 4 {
        4 => word(octets, IPV4_LENGTH).map(usize::from),
        6 => word(octets, IPV6_LENGTH).map(|length| IPV6_HEADER + usize::from(length)),
        _ => None,
    }
    .filter(|length| *length > 0)
}

/// Appends the segment that follows the one at `previous` with this payload.
fn rebuild(out: &mut Vec<u8>, previous: Range<usize>, payload: &[u8], marks: u8) -> Option<()> {
    let known = FOLLOWS | PUSH | SAME_IDENTIFICATION;
    if payload.is_empty() || marks & FOLLOWS == 0 || marks & !known != 0 {
        return None;
    }
    let previous = out.get(previous)?;
    let layout = Layout::of(previous)?;
    let headers = headers_after(previous, u16::try_from(payload.len()).ok()?, marks)?;
    let begin = out.len();
    out.extend_from_slice(&headers);
    out.extend_from_slice(payload);
    let packet = out.get_mut(begin..)?;
    let [source, destination] = layout.ends(packet)?;
    let checksum = checksum::of_segment(source, destination, packet.get(layout.ip..)?)?;
    put(packet, layout.ip + TCP_CHECKSUM, checksum.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, TcpOptionElement};
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    struct Sent {
        v6: bool,
        sequence: u32,
        identification: u16,
        push: bool,
        window: u16,
        timestamp: Option<u32>,
        length: usize,
    }

    fn packet(sent: &Sent) -> Vec<u8> {
        let builder = match sent.v6 {
            true => PacketBuilder::ipv6([1; 16], [2; 16], 64),
            false => PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 64),
        };
        let mut builder = builder.tcp(40_000, 80, sent.sequence, sent.window).ack(7);
        if sent.push {
            builder = builder.psh();
        }
        let options: Vec<TcpOptionElement> = sent
            .timestamp
            .map(|at| TcpOptionElement::Timestamp(at, 9))
            .into_iter()
            .collect();
        let payload: Vec<u8> = (0..sent.length).map(|at| at as u8).collect();
        let mut octets = Vec::new();
        builder
            .options(&options)
            .unwrap()
            .write(&mut octets, &payload)
            .unwrap();
        if !sent.v6 {
            put(
                &mut octets,
                IPV4_IDENTIFICATION,
                sent.identification.to_be_bytes(),
            )
            .unwrap();
            let header = Ipv4HeaderSlice::from_slice(&octets[..20]).unwrap();
            let checksum = header.to_header().calc_header_checksum();
            put(&mut octets, IPV4_CHECKSUM, checksum.to_be_bytes()).unwrap();
        }
        octets
    }

    fn written(packets: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, packets);
        out
    }

    #[test]
    fn segments_that_follow_each_other_cost_three_octets_each() {
        for (v6, timestamp, headers) in [(false, Some(3), 52), (true, None, 60)] {
            let packets: Vec<Vec<u8>> = (0..5u16)
                .map(|number| {
                    packet(&Sent {
                        v6,
                        // Across the wraparound.
                        sequence: u32::MAX
                            .wrapping_sub(2000)
                            .wrapping_add(1448 * u32::from(number)),
                        identification: (u16::MAX - 1).wrapping_add(number),
                        push: number == 4,
                        window: 500,
                        timestamp,
                        length: 1448,
                    })
                })
                .collect();
            let out = written(&packets);
            assert_eq!(out.len(), headers + 5 * 1448 + 4 * 3);
            assert_eq!(read(&out).unwrap(), packets.concat());
        }
    }

    #[test]
    fn garbage_that_would_grow_is_refused() {
        let first = packet(&Sent {
            v6: false,
            sequence: 1,
            identification: 1,
            push: false,
            window: 1,
            timestamp: Some(1),
            length: 10,
        });
        let mut octets = first.clone();
        for _ in 0..3000 {
            octets.extend_from_slice(&[FOLLOWS, 0, 1, 7]);
        }
        assert_eq!(read(&octets), None);
        for marks in [2, 8, 0x81] {
            let octets = [&first[..], &[marks, 0, 1, 7]].concat();
            assert_eq!(read(&octets), None, "{marks}");
        }
    }

    proptest! {
        #[test]
        fn every_octet_comes_out_as_it_went_in(
            v6 in any::<bool>(), start in any::<u32>(),
            sent in prop::collection::vec(
                (any::<bool>(), 0u16..3, 0u32..3, any::<bool>(), 0u16..2, prop::option::of(0u32..2), 0usize..40), 1..8),
        ) {
            let mut sequence = start;
            let mut identification = 65_530u16;
            let packets: Vec<Vec<u8>> = sent.iter().map(|(_, step, jump, push, window, timestamp, length)| {
                identification = identification.wrapping_add(*step);
                let octets = packet(&Sent {
                    v6, sequence, identification, push: *push, window: *window, timestamp: *timestamp, length: *length,
                });
                // Sometimes the next one does not follow.
                sequence = sequence.wrapping_add(*length as u32).wrapping_add(jump / 2);
                octets
            }).collect();
            prop_assert_eq!(read(&written(&packets)).unwrap(), packets.concat());
        }

        #[test]
        fn any_octets_are_read_or_refused(
            octets in prop::collection::vec(any::<u8>(), 0..200), start in any::<bool>(),
        ) {
            let first = packet(&Sent {
                v6: false, sequence: 1, identification: 1, push: false, window: 1, timestamp: None, length: 3,
            });
            let octets = if start { [first, octets].concat() } else { octets };
            if let Some(packets) = read(&octets) {
                prop_assert!(packets.len() <= MOST);
            }
        }
    }
}
