//! What proxies say to each other, before it is sealed. The formats are in
//! `docs/protocols/tcp-icn.md`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use whimbrel_ndn_packet::{Name, NameRef};

use crate::pack;
use crate::segment::Flow;

/// The version of these formats: the upper four bits of each message.
pub const VERSION: u8 = 1;
/// Most Interests that one [`Message::Wake`] asks for.
pub const MAX_WAKE: u8 = 64;

/// An inter-proxy protocol of [TCP/ICN §3].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Protocol {
    /// Basic fetching, [TCP/ICN §3.3]: a notification for each segment with payload.
    Basic,
    /// Reliable prefetching, [TCP/ICN §3.4]: a window of Interests, retransmitted by the proxies.
    Reliable,
    /// Unreliable prefetching, [TCP/ICN §3.5]: TCP's acknowledgements are the Interests that fetch.
    #[default]
    Unreliable,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Basic, Protocol::Reliable, Protocol::Unreliable];

    /// Returns the name in configurations and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Basic => "basic",
            Protocol::Reliable => "reliable",
            Protocol::Unreliable => "unreliable",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Protocol::Basic => 0,
            Protocol::Reliable => 1,
            Protocol::Unreliable => 2,
        }
    }

    const fn from_code(code: u8) -> Option<Protocol> {
        match code {
            0 => Some(Protocol::Basic),
            1 => Some(Protocol::Reliable),
            2 => Some(Protocol::Unreliable),
            _ => None,
        }
    }
}

impl core::fmt::Display for Protocol {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// What a proxy must know of a connection that it has not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The protocol, chosen by the proxy that saw the connection first.
    pub protocol: Protocol,
    /// The sender's random number for this connection, in the names of its Data.
    pub label: u64,
    /// The sender's prefix.
    pub prefix: Name,
}

/// A message in an Interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A whole segment, usually without payload.
    Segment {
        /// With the segments that open a connection.
        opening: Option<Opening>,
        /// The packet.
        packet: Bytes,
    },
    /// Basic fetching: a segment with payload can be fetched.
    Notify {
        /// The connection.
        opening: Opening,
        /// Its two ends.
        flow: Flow,
        /// The sequence number, extended to 64 bits by the wraparound number.
        sequence: u64,
        /// Distinguishes segments with the same sequence number.
        number: u64,
    },
    /// Unreliable prefetching: an Interest for whatever comes next.
    Credit {
        /// The two ends.
        flow: Flow,
    },
    /// Unreliable prefetching: segments wait, and there are no Interests for them.
    Wake {
        /// The connection.
        opening: Opening,
        /// Its two ends.
        flow: Flow,
        /// How many Interests are wanted.
        credits: u8,
    },
    /// Reliable prefetching: what there is to fetch.
    Advertise {
        /// The connection.
        opening: Opening,
        /// Its two ends.
        flow: Flow,
        /// The state of the sender's queue.
        queue: Queue,
    },
    /// A connection that the sender does not carry.
    Refuse {
        /// The two ends, as in packets from the sender.
        flow: Flow,
        /// Why.
        refusal: Refusal,
    },
    /// Finds or checks a path: answered at once, by a Data without packets. Beyond the paper.
    Probe,
    /// Unreliable prefetching: an Interest as [`Message::Credit`]; those that the receiver holds are
    /// not to be answered, because their path has failed. Beyond the paper.
    Renew {
        /// The two ends.
        flow: Flow,
    },
}

/// Why a proxy does not carry a connection that its peer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The peer may not connect to this address and port.
    Destination,
    /// The peer does not speak for the address that the connection comes from.
    Source,
}

impl Refusal {
    const fn code(self) -> u8 {
        match self {
            Refusal::Destination => 1,
            Refusal::Source => 2,
        }
    }

    const fn from_code(code: u8) -> Option<Refusal> {
        match code {
            1 => Some(Refusal::Destination),
            2 => Some(Refusal::Source),
            _ => None,
        }
    }
}

/// Reliable prefetching: the state of a proxy's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The number that the next segment will have.
    pub next: u64,
    /// The estimated congestion window of the TCP sender, segments.
    pub window: u16,
}

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It ends too early, or a field has no valid value.
    #[error("malformed")]
    Malformed,
    /// Another version.
    #[error("version {0}; this proxy speaks version {VERSION}")]
    Version(u8),
    /// A kind that this version does not have.
    #[error("unknown kind {0}")]
    Kind(u8),
}

const SEGMENT: u8 = 1;
const OPENING_SEGMENT: u8 = 2;
const NOTIFY: u8 = 3;
const CREDIT: u8 = 4;
const WAKE: u8 = 5;
const ADVERTISE: u8 = 6;
const REFUSE: u8 = 7;
const SEGMENTS: u8 = 8;
const NUMBERED: u8 = 9;
const PACKED: u8 = 10;
const PROBE: u8 = 11;
const RENEW: u8 = 12;

const fn first(kind: u8) -> u8 {
    VERSION << 4 | kind
}

impl Message {
    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        match self {
            Message::Segment { opening, packet } => {
                match opening {
                    Some(opening) => {
                        out.push(first(OPENING_SEGMENT));
                        write_opening(&mut out, opening);
                    }
                    None => out.push(first(SEGMENT)),
                }
                out.extend_from_slice(packet);
            }
            Message::Notify {
                opening,
                flow,
                sequence,
                number,
            } => {
                out.push(first(NOTIFY));
                write_opening(&mut out, opening);
                write_flow(&mut out, flow);
                out.extend_from_slice(&sequence.to_be_bytes());
                out.extend_from_slice(&number.to_be_bytes());
            }
            Message::Credit { flow } => {
                out.push(first(CREDIT));
                write_flow(&mut out, flow);
            }
            Message::Wake {
                opening,
                flow,
                credits,
            } => {
                out.push(first(WAKE));
                write_opening(&mut out, opening);
                write_flow(&mut out, flow);
                out.push(*credits);
            }
            Message::Advertise {
                opening,
                flow,
                queue,
            } => {
                out.push(first(ADVERTISE));
                write_opening(&mut out, opening);
                write_flow(&mut out, flow);
                write_queue(&mut out, queue);
            }
            Message::Refuse { flow, refusal } => {
                out.push(first(REFUSE));
                write_flow(&mut out, flow);
                out.push(refusal.code());
            }
            Message::Probe => out.push(first(PROBE)),
            Message::Renew { flow } => {
                out.push(first(RENEW));
                write_flow(&mut out, flow);
            }
        }
        out
    }

    /// Decodes a message.
    pub fn decode(message: &Bytes) -> Result<Message, MessageError> {
        let mut reader = Reader(message);
        match reader.kind()? {
            kind @ (SEGMENT | OPENING_SEGMENT) => {
                let opening = (kind == OPENING_SEGMENT).then(|| reader.opening());
                let opening = opening.transpose()?;
                let packet = message.slice_ref(reader.0);
                Ok(Message::Segment { opening, packet })
            }
            NOTIFY => reader.last(|reader| {
                Ok(Message::Notify {
                    opening: reader.opening()?,
                    flow: reader.flow()?,
                    sequence: reader.u64()?,
                    number: reader.u64()?,
                })
            }),
            CREDIT => reader.last(|reader| {
                let flow = reader.flow()?;
                Ok(Message::Credit { flow })
            }),
            WAKE => reader.last(|reader| {
                Ok(Message::Wake {
                    opening: reader.opening()?,
                    flow: reader.flow()?,
                    credits: reader.u8()?,
                })
            }),
            ADVERTISE => reader.last(|reader| {
                Ok(Message::Advertise {
                    opening: reader.opening()?,
                    flow: reader.flow()?,
                    queue: reader.queue()?,
                })
            }),
            REFUSE => reader.last(|reader| {
                Ok(Message::Refuse {
                    flow: reader.flow()?,
                    refusal: Refusal::from_code(reader.u8()?).ok_or(MessageError::Malformed)?,
                })
            }),
            PROBE => reader.last(|_| Ok(Message::Probe)),
            RENEW => reader.last(|reader| {
                let flow = reader.flow()?;
                Ok(Message::Renew { flow })
            }),
            kind => Err(MessageError::Kind(kind)),
        }
    }
}

/// What a Data says of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stock {
    /// Reliable prefetching: its queue.
    Queue(Queue),
    /// Unreliable prefetching: how many further Interests it holds, 255 if there are more. Of basic
    /// fetching 0.
    Interests(u8),
}

/// The content of a Data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The state of the sender.
    pub stock: Stock,
    /// The packets one after the other; their IP headers say where each ends.
    pub packets: Bytes,
}

impl Carried {
    /// Bytes before the packets.
    pub const HEADER: usize = 11;

    /// Encodes the content with these packets, whose TCP checksums are right. With a queue, there is
    /// at most one.
    pub fn encode<P: AsRef<[u8]>>(stock: Stock, packets: &[P]) -> Vec<u8> {
        let mut out = Vec::with_capacity(Carried::bound(packets));
        Carried::write(stock, packets, &mut out);
        out
    }

    /// Returns a bound of the length of the content with these packets.
    pub fn bound<P: AsRef<[u8]>>(packets: &[P]) -> usize {
        let octets = packets.iter().map(|packet| 1 + packet.as_ref().len());
        Carried::HEADER + octets.sum::<usize>()
    }

    /// Appends what [`Carried::encode`] returns.
    pub fn write<P: AsRef<[u8]>>(stock: Stock, packets: &[P], out: &mut Vec<u8>) {
        match (stock, packets) {
            (Stock::Interests(held), [_, _, ..]) => {
                out.extend_from_slice(&[first(PACKED), held]);
                pack::write(out, packets);
                return;
            }
            (Stock::Interests(held), _) => out.extend_from_slice(&[first(SEGMENTS), held]),
            (Stock::Queue(queue), _) => {
                out.push(first(NUMBERED));
                write_queue(out, &queue);
            }
        }
        packets
            .iter()
            .for_each(|packet| out.extend_from_slice(packet.as_ref()));
    }

    /// Decodes the content.
    pub fn decode(content: &Bytes) -> Result<Carried, MessageError> {
        let mut reader = Reader(content);
        let stock = match reader.kind()? {
            SEGMENTS => Stock::Interests(reader.u8()?),
            NUMBERED => Stock::Queue(reader.queue()?),
            PACKED => {
                let stock = Stock::Interests(reader.u8()?);
                let packets = pack::read(reader.0).ok_or(MessageError::Malformed)?;
                let packets = packets.into();
                return Ok(Carried { stock, packets });
            }
            kind => return Err(MessageError::Kind(kind)),
        };
        let packets = content.slice_ref(reader.0);
        Ok(Carried { stock, packets })
    }
}

fn write_opening(out: &mut Vec<u8>, opening: &Opening) {
    out.push(opening.protocol.code());
    out.extend_from_slice(&opening.label.to_be_bytes());
    let name = opening.prefix.as_ref().value();
    // Prefixes are checked when they are configured: see `Options`.
    let length = u16::try_from(name.len()).unwrap_or(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(name.get(..usize::from(length)).unwrap_or_default());
}

/// Appends the 4-tuple: 4 or 6, then address and port of the source and of the destination.
pub fn write_flow(out: &mut Vec<u8>, flow: &Flow) {
    let v4 = flow.source.is_ipv4();
    out.push(if v4 { 4 } else { 6 });
    for end in [flow.source, flow.destination] {
        match end.ip() {
            IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
        }
        out.extend_from_slice(&end.port().to_be_bytes());
    }
}

fn write_queue(out: &mut Vec<u8>, queue: &Queue) {
    out.extend_from_slice(&queue.next.to_be_bytes());
    out.extend_from_slice(&queue.window.to_be_bytes());
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(MessageError::Malformed)?;
        self.0 = rest;
        Ok(*head)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], MessageError> {
        let split = self.0.split_at_checked(count);
        let (head, rest) = split.ok_or(MessageError::Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    fn u8(&mut self) -> Result<u8, MessageError> {
        self.array().map(|[octet]| octet)
    }

    fn u16(&mut self) -> Result<u16, MessageError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, MessageError> {
        self.array().map(u64::from_be_bytes)
    }

    fn kind(&mut self) -> Result<u8, MessageError> {
        let first = self.u8()?;
        match first >> 4 {
            VERSION => Ok(first & 0xf),
            version => Err(MessageError::Version(version)),
        }
    }

    fn opening(&mut self) -> Result<Opening, MessageError> {
        let protocol = Protocol::from_code(self.u8()?).ok_or(MessageError::Malformed)?;
        let label = self.u64()?;
        let length = usize::from(self.u16()?);
        let name = NameRef::from_value(self.take(length)?).map_err(|_| MessageError::Malformed)?;
        if name.is_empty() {
            return Err(MessageError::Malformed);
        }
        Ok(Opening {
            protocol,
            label,
            prefix: name.to_name(),
        })
    }

    fn flow(&mut self) -> Result<Flow, MessageError> {
        let family = self.u8()?;
        let mut end = || -> Result<SocketAddr, MessageError> {
            let address = match family {
                4 => IpAddr::V4(Ipv4Addr::from(self.array::<4>()?)),
                6 => IpAddr::V6(Ipv6Addr::from(self.array::<16>()?)),
                _ => return Err(MessageError::Malformed),
            };
            Ok(SocketAddr::new(address, self.u16()?))
        };
        Ok(Flow {
            source: end()?,
            destination: end()?,
        })
    }

    fn queue(&mut self) -> Result<Queue, MessageError> {
        Ok(Queue {
            next: self.u64()?,
            window: self.u16()?,
        })
    }

    /// Reads a message that must end here.
    fn last(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<Message, MessageError>,
    ) -> Result<Message, MessageError> {
        let message = read(self)?;
        if self.0.is_empty() {
            Ok(message)
        } else {
            Err(MessageError::Malformed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow() -> impl Strategy<Value = Flow> {
        let v4 = any::<([u8; 4], u16)>().prop_map(|(ip, port)| SocketAddr::from((ip, port)));
        let v6 = any::<([u8; 16], u16)>().prop_map(|(ip, port)| SocketAddr::from((ip, port)));
        let pair = |(source, destination)| Flow {
            source,
            destination,
        };
        prop_oneof![
            (v4.clone(), v4).prop_map(pair),
            (v6.clone(), v6).prop_map(pair)
        ]
    }

    fn opening() -> impl Strategy<Value = Opening> {
        (0u8..3, any::<u64>(), "[a-z]{1,8}").prop_map(|(code, label, word)| Opening {
            protocol: Protocol::from_code(code).unwrap(),
            label,
            prefix: format!("/proxy/{word}").parse().unwrap(),
        })
    }

    fn message() -> impl Strategy<Value = Message> {
        let packet = prop::collection::vec(any::<u8>(), 0..80).prop_map(Bytes::from);
        let queue = any::<(u64, u16)>().prop_map(|(next, window)| Queue { next, window });
        prop_oneof![
            (prop::option::of(opening()), packet)
                .prop_map(|(opening, packet)| Message::Segment { opening, packet }),
            (opening(), flow(), any::<u64>(), any::<u64>()).prop_map(
                |(opening, flow, sequence, number)| Message::Notify {
                    opening,
                    flow,
                    sequence,
                    number
                }
            ),
            flow().prop_map(|flow| Message::Credit { flow }),
            flow().prop_map(|flow| Message::Renew { flow }),
            Just(Message::Probe),
            (opening(), flow(), any::<u8>()).prop_map(|(opening, flow, credits)| Message::Wake {
                opening,
                flow,
                credits
            }),
            (opening(), flow(), queue).prop_map(|(opening, flow, queue)| Message::Advertise {
                opening,
                flow,
                queue
            }),
            (flow(), 1u8..3).prop_map(|(flow, code)| Message::Refuse {
                flow,
                refusal: Refusal::from_code(code).unwrap(),
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(message in message()) {
            let wire = Bytes::from(message.encode());
            prop_assert_eq!(Message::decode(&wire).unwrap(), message);
        }

        #[test]
        fn a_message_cut_off_is_malformed_or_a_shorter_segment(message in message()) {
            let wire = Bytes::from(message.encode());
            for length in 0..wire.len() {
                let cut = Message::decode(&wire.slice(..length));
                let shorter = matches!(cut, Err(_) | Ok(Message::Segment { .. }));
                prop_assert!(shorter);
            }
        }

        #[test]
        fn any_octets_are_decoded_or_refused(octets in prop::collection::vec(any::<u8>(), 0..100)) {
            let octets = Bytes::from(octets);
            if let Ok(message) = Message::decode(&octets) {
                prop_assert_eq!(message.encode(), octets.to_vec());
            }
            let _ = Carried::decode(&octets);
        }
    }

    #[test]
    fn another_version_is_named() {
        let message = Bytes::from_static(&[0x21, 0]);
        assert_eq!(Message::decode(&message), Err(MessageError::Version(2)));
        assert_eq!(
            Message::decode(&Bytes::from_static(&[0x1f])),
            Err(MessageError::Kind(15))
        );
    }
}
