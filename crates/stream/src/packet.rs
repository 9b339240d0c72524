//! The layout of a message (`docs/protocols/stream.md`).

use core::ops::Range;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Version of the layout, the first byte of each message.
pub const VERSION: u8 = 1;
/// Largest message, in bytes: that of the native plane.
pub const MAX_PACKET: usize = 32 << 10;
/// Most bytes of a stream in one packet: with the longest header they fit into a message.
pub const MAX_DATA: usize = MAX_PACKET - 512;
/// Most ranges that one packet acknowledges.
pub const MAX_RANGES: usize = 16;
/// Positions in a stream are below this, so that sums do not overflow.
pub const MAX_POSITION: u64 = 1 << 62;

const KIND_FROM_OPENER: u8 = 0;
const KIND_FROM_ACCEPTOR: u8 = 1;
const KIND_CUT_BY_OPENER: u8 = 2;
const KIND_CUT_BY_ACCEPTOR: u8 = 3;
const KIND_TOKEN: u8 = 4;

const FLAG_END: u8 = 1;
const FLAG_HAS_ALL: u8 = 2;
const FLAG_ASKS: u8 = 4;

/// A proof that its holder receives messages under its name.
pub type Token = [u8; 16];

/// Returns the token of a caller without one.
pub const NO_TOKEN: Token = [0; 16];

/// The end of a stream that a packet comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StreamSide {
    /// The end that opened the stream.
    Opener,
    /// The other end.
    Acceptor,
}

/// Why a stream ended before both directions did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CutOff {
    /// Its program ended it.
    #[error("the other side has ended the stream")]
    Ended,
    /// The peer does not know the stream, because its program has restarted.
    #[error("the other side was started again and no longer knows the stream")]
    Unknown,
    /// The other side has too many streams.
    #[error("the other side has no room for another stream")]
    Full,
    /// The other side's rule does not permit this caller.
    #[error("the other side does not permit this caller")]
    NotPermitted,
    /// The peer was silent for too long.
    #[error("the other side has not answered for too long")]
    Silent,
}

impl CutOff {
    fn code(self) -> u8 {
        match self {
            CutOff::Ended => 0,
            CutOff::Unknown => 1,
            CutOff::Full => 2,
            CutOff::NotPermitted => 3,
            CutOff::Silent => 4,
        }
    }

    fn from_code(code: u8) -> Option<CutOff> {
        Some(match code {
            0 => CutOff::Ended,
            1 => CutOff::Unknown,
            2 => CutOff::Full,
            3 => CutOff::NotPermitted,
            4 => CutOff::Silent,
            _ => return None,
        })
    }
}

/// Bytes, with acknowledgements for the other direction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamSegment {
    /// All bytes below this position were received.
    pub received: u64,
    /// Selective acknowledgements beyond `received`, ascending and disjoint.
    pub ranges: Vec<Range<u64>>,
    /// All bytes and the end were received.
    pub has_all: bool,
    /// Bytes below this position may be sent.
    pub limit: u64,
    /// An answer is requested although there is nothing new.
    pub asks: bool,
    /// Position of the first byte of `data`.
    pub position: u64,
    /// The stream ends after `data`.
    pub ends: bool,
    /// Bytes of the stream.
    pub data: Bytes,
}

impl StreamSegment {
    /// Returns true if it brings bytes or the end.
    pub fn has_content(&self) -> bool {
        self.ends || !self.data.is_empty()
    }
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamPacket {
    /// The number that the opener has drawn.
    pub stream: u64,
    /// What it says.
    pub body: PacketBody,
}

/// What a packet says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PacketBody {
    /// From the opener.
    FromOpener(Token, StreamSegment),
    /// From the acceptor.
    FromAcceptor(StreamSegment),
    /// This side has ended the stream.
    Cut(StreamSide, CutOff),
    /// To an opener without a valid token: the one to use.
    Token(Token),
}

/// Why a message is not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketFault {
    /// It ends too early.
    #[error("the message is cut short")]
    Short,
    /// Its version is not known.
    #[error("the message is of version {0}, and this is version {VERSION}")]
    Version(u8),
    /// A field has a value that has no meaning.
    #[error("the message has a field without meaning: {0}")]
    Field(&'static str),
}

impl StreamPacket {
    /// Encodes the packet.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64);
        out.put_u8(VERSION);
        let kind = match &self.body {
            PacketBody::FromOpener(..) => KIND_FROM_OPENER,
            PacketBody::FromAcceptor(_) => KIND_FROM_ACCEPTOR,
            PacketBody::Cut(StreamSide::Opener, _) => KIND_CUT_BY_OPENER,
            PacketBody::Cut(StreamSide::Acceptor, _) => KIND_CUT_BY_ACCEPTOR,
            PacketBody::Token(_) => KIND_TOKEN,
        };
        out.put_u8(kind);
        out.put_u64(self.stream);
        match &self.body {
            PacketBody::FromOpener(token, segment) => {
                out.put_slice(token);
                segment.encode(&mut out);
            }
            PacketBody::FromAcceptor(segment) => segment.encode(&mut out),
            PacketBody::Cut(_, why) => out.put_u8(why.code()),
            PacketBody::Token(token) => out.put_slice(token),
        }
        out.freeze()
    }

    /// Decodes a message.
    pub fn decode(message: &Bytes) -> Result<StreamPacket, PacketFault> {
        let mut rest = message.clone();
        let version = rest.try_get_u8()?;
        if version != VERSION {
            return Err(PacketFault::Version(version));
        }
        let kind = rest.try_get_u8()?;
        let stream = rest.try_get_u64()?;
        let body = match kind {
            KIND_FROM_OPENER => {
                PacketBody::FromOpener(token(&mut rest)?, StreamSegment::decode(rest)?)
            }
            KIND_FROM_ACCEPTOR => PacketBody::FromAcceptor(StreamSegment::decode(rest)?),
            KIND_CUT_BY_OPENER | KIND_CUT_BY_ACCEPTOR => {
                let side = match kind {
                    KIND_CUT_BY_OPENER => StreamSide::Opener,
                    _ => StreamSide::Acceptor,
                };
                let why = CutOff::from_code(rest.try_get_u8()?);
                PacketBody::Cut(side, why.ok_or(PacketFault::Field("reason"))?)
            }
            KIND_TOKEN => PacketBody::Token(token(&mut rest)?),
            _ => return Err(PacketFault::Field("kind")),
        };
        Ok(StreamPacket { stream, body })
    }
}

impl StreamSegment {
    fn encode(&self, out: &mut BytesMut) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.put_u8(
            flag(self.ends, FLAG_END)
                | flag(self.has_all, FLAG_HAS_ALL)
                | flag(self.asks, FLAG_ASKS),
        );
        out.put_u64(self.received);
        out.put_u64(self.limit);
        let ranges = &self.ranges[..self.ranges.len().min(MAX_RANGES)];
        out.put_u8(ranges.len() as u8);
        for range in ranges {
            out.put_u64(range.start);
            out.put_u64(range.end);
        }
        out.put_u64(self.position);
        out.put_slice(&self.data);
    }

    fn decode(mut rest: Bytes) -> Result<StreamSegment, PacketFault> {
        let flags = rest.try_get_u8()?;
        if flags & !(FLAG_END | FLAG_HAS_ALL | FLAG_ASKS) != 0 {
            return Err(PacketFault::Field("flags"));
        }
        let received = position(&mut rest)?;
        let limit = position(&mut rest)?;
        let count = usize::from(rest.try_get_u8()?);
        if count > MAX_RANGES {
            return Err(PacketFault::Field("number of ranges"));
        }
        let mut ranges = Vec::with_capacity(count);
        let mut last = received;
        for _ in 0..count {
            let range = position(&mut rest)?..position(&mut rest)?;
            if range.start <= last || range.end <= range.start {
                return Err(PacketFault::Field("ranges"));
            }
            last = range.end;
            ranges.push(range);
        }
        let start = position(&mut rest)?;
        if rest.len() > MAX_DATA || start + rest.len() as u64 >= MAX_POSITION {
            return Err(PacketFault::Field("data"));
        }
        Ok(StreamSegment {
            received,
            ranges,
            has_all: flags & FLAG_HAS_ALL != 0,
            limit,
            asks: flags & FLAG_ASKS != 0,
            position: start,
            ends: flags & FLAG_END != 0,
            data: rest,
        })
    }
}

fn token(rest: &mut Bytes) -> Result<Token, PacketFault> {
    let mut token = NO_TOKEN;
    rest.try_copy_to_slice(&mut token)?;
    Ok(token)
}

fn position(rest: &mut Bytes) -> Result<u64, PacketFault> {
    let position = rest.try_get_u64()?;
    match position < MAX_POSITION {
        true => Ok(position),
        false => Err(PacketFault::Field("position")),
    }
}

impl From<bytes::TryGetError> for PacketFault {
    fn from(_: bytes::TryGetError) -> PacketFault {
        PacketFault::Short
    }
}
