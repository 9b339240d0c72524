//! The frames of Hop, as laid out in `docs/protocols/hop.md`. All numbers are big-endian.

use bytes::BufMut;
use whimbrel_core::Guid;

use super::ecn::EcnReport;

/// The version, in the high half of the first byte of each frame.
pub(super) const VERSION: u8 = 1;
/// Bytes of a DATA frame beyond its payload: 16 before it, the CRC after it.
pub(super) const DATA_OVERHEAD: usize = 20;
/// Size of a HELLO, in bytes. Later versions may append bytes, which are ignored.
pub(super) const HELLO_LEN: usize = 84;
/// Size of a CSYN, in bytes.
pub(super) const CSYN_LEN: usize = 24;
/// Size of a CACK without its bitmap, in bytes.
pub(super) const CACK_LEN: usize = 44;
const CRC_LEN: usize = 4;

const HELLO: u8 = 0;
const DATA: u8 = 1;
const CSYN: u8 = 2;
const CACK: u8 = 3;

/// The reason why a frame is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("too short for its type")]
    Short,
    #[error("unsupported version {0}")]
    Version(u8),
    #[error("unknown frame type {0}")]
    Type(u8),
    #[error("the CRC-32C does not match")]
    Crc,
    #[error("a field has a value that no sender writes")]
    Field,
}

/// A frame. `session` is the tag returned by [`session_tag`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Hello(Hello),
    Data { session: u32, data: Data<'a> },
    Csyn { session: u32, csyn: Csyn },
    Cack { session: u32, cack: Cack<'a> },
}

/// A neighbour's description of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The sender has no session with the receiver and wants an answer.
    pub(super) wanted: bool,
    /// The sender reports marks, and understands reports of them.
    pub(super) reports_marks: bool,
    /// The receiver's token if the sender knows it, or 0.
    pub(super) receiver: u32,
    /// The sender's token, never 0.
    pub(super) token: u32,
    /// The nonce that the receiver echoes.
    pub(super) nonce: u32,
    /// The last received nonce, or 0.
    pub(super) echo: u32,
    pub(super) incarnation: u64,
    pub(super) guid: Guid,
    /// Largest frame that the sender accepts, in bytes.
    pub(super) mtu: u32,
    /// Largest chunk that the sender accepts, in bytes.
    pub(super) chunk_limit: u32,
    /// W_ad, in packets.
    pub(super) window: u32,
    /// No transfer of this session has an id before this one.
    pub(super) first_hop_id: u32,
    /// Bound of the incomplete chunks that the sender keeps.
    pub(super) max_chunks: u16,
    /// The number of ids for which the sender remembers finished transfers.
    pub(super) memory: u16,
}

/// A packet of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data<'a> {
    pub(super) hop_id: u32,
    pub(super) seq: u16,
    /// True for the chunk's last packet.
    pub(super) last: bool,
    /// True for a retransmission.
    pub(super) resent: bool,
    /// The low byte of a CSYN's number, if the packet carries a CSYN about its chunk.
    pub(super) question: Option<u8>,
    /// Length of the whole chunk, in bytes; below 2^24 in a packet that carries a CSYN.
    pub(super) chunk_len: u32,
    pub(super) payload: &'a [u8],
}

/// A CSYN: it asks for a chunk's progress and room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Csyn {
    /// The number, never 0; one more than that of the previous CSYN.
    pub(super) number: u32,
    /// The chunk that it asks about; `None` in a probe.
    pub(super) about: Option<About>,
}

/// The chunk that a CSYN asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct About {
    pub(super) hop_id: u32,
    pub(super) shape: Shape,
    /// The sender cancels the transfer.
    pub(super) cancel: bool,
}

/// The division of a chunk into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of the chunk, at least 1.
    pub(super) chunk_len: u32,
    /// Payload bytes of each packet but the last, at least 1.
    pub(super) packet_size: u16,
}

impl Shape {
    /// Returns the number of packets, or `None` if they cannot be numbered.
    pub(super) fn packets(self) -> Option<u16> {
        u16::try_from(self.chunk_len.div_ceil(u32::from(self.packet_size))).ok()
    }
}

/// An answer to a CSYN, or (with number 0) an unsolicited notice of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cack<'a> {
    /// The number of the CSYN, or 0.
    pub(super) number: u32,
    /// The chunk and its progress; `None` in the answer to a probe.
    pub(super) chunk: Option<(u32, Progress<'a>)>,
    /// W_ad, in packets.
    pub(super) window: u32,
    /// Bytes of all DATA frames accepted in this session when the CSYN arrived.
    pub(super) received: u64,
    /// The answerer's clock when the CSYN arrived, in nanoseconds.
    pub(super) clock: u64,
    /// The count of retransmitted DATA that were duplicates, over the session.
    pub(super) spurious: u32,
    /// The marks of the frames that arrived, if the receiver of this answer can use them.
    pub(super) ecn: Option<EcnReport>,
}

/// The progress of a chunk at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress<'a> {
    /// Room is reserved. All packets before 8 x `start` have arrived. From there on `bitmap`
    /// applies (bit `i` is bit `i % 8` of byte `i / 8`). After its end no packet has arrived, or,
    /// if `cut`, their state is not given.
    Held {
        start: u16,
        bitmap: &'a [u8],
        cut: bool,
    },
    /// All packets have arrived.
    Complete,
    /// It was cancelled before it was complete.
    Cancelled,
    /// There is no room, and nothing of the chunk is kept.
    Refused,
}

const HELLO_WANTED: u8 = 1;
const HELLO_MARKS: u8 = 2;
const DATA_LAST: u8 = 1;
const DATA_RESENT: u8 = 2;
const DATA_ASKS: u8 = 4;
/// Offset of the chunk's length in a DATA frame. Its high byte is the number of the carried CSYN,
/// if there is one.
const DATA_CHUNK_LEN: usize = 12;
const CSYN_CHUNK: u8 = 1;
const CSYN_CANCEL: u8 = 2;
const CACK_CHUNK: u8 = 1;
const CACK_HELD: u8 = 2;
const CACK_COMPLETE: u8 = 4;
const CACK_CUT: u8 = 8;
const CACK_CANCELLED: u8 = 16;
const CACK_MARKS: u8 = 32;
const CACK_CAPABLE: u8 = 64;
/// Bytes of the count of marks before the bitmap.
pub(super) const MARKS_LEN: usize = 4;

/// Returns the tag of frames other than HELLO. It combines the receiver's token and the sender's,
/// so that frames of a former incarnation are recognised.
pub(super) fn session_tag(receiver: u32, sender: u32) -> u32 {
    receiver ^ sender.rotate_left(16)
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// Decodes a frame. A valid CRC does not make its contents trustworthy.
pub(super) fn decode(frame: &[u8]) -> Result<Frame<'_>, DecodeError> {
    let (first, flags) = match frame {
        [first, flags, ..] => (*first, *flags),
        _ => return Err(DecodeError::Short),
    };
    if first >> 4 != VERSION {
        return Err(DecodeError::Version(first >> 4));
    }
    let shortest = match first & 15 {
        HELLO => HELLO_LEN,
        DATA => DATA_OVERHEAD + 1,
        CSYN => CSYN_LEN,
        CACK => CACK_LEN,
        other => return Err(DecodeError::Type(other)),
    };
    if frame.len() < shortest {
        return Err(DecodeError::Short);
    }
    let (body, trailer) = frame.split_at(frame.len() - CRC_LEN);
    if crc(body) != u32_at(trailer, 0) {
        return Err(DecodeError::Crc);
    }
    let session = u32_at(body, 4);
    match first & 15 {
        HELLO => decode_hello(flags, body).map(Frame::Hello),
        DATA => Ok(Frame::Data {
            session,
            data: decode_data(flags, body),
        }),
        CSYN => decode_csyn(flags, body).map(|csyn| Frame::Csyn { session, csyn }),
        _ => decode_cack(flags, body).map(|cack| Frame::Cack { session, cack }),
    }
}

fn decode_hello(flags: u8, body: &[u8]) -> Result<Hello, DecodeError> {
    let hello = Hello {
        wanted: flags & HELLO_WANTED != 0,
        reports_marks: flags & HELLO_MARKS != 0,
        receiver: u32_at(body, 4),
        token: u32_at(body, 8),
        nonce: u32_at(body, 12),
        echo: u32_at(body, 16),
        incarnation: u64_at(body, 20),
        guid: Guid::from_slice(&body[28..60]).ok_or(DecodeError::Short)?,
        mtu: u32_at(body, 60),
        chunk_limit: u32_at(body, 64),
        window: u32_at(body, 68),
        first_hop_id: u32_at(body, 72),
        max_chunks: u16_at(body, 76),
        memory: u16_at(body, 78),
    };
    if hello.token == 0 || hello.nonce == 0 || hello.max_chunks == 0 || hello.memory == 0 {
        return Err(DecodeError::Field);
    }
    Ok(hello)
}

fn decode_data(flags: u8, body: &[u8]) -> Data<'_> {
    let asks = flags & DATA_ASKS != 0;
    let len = u32_at(body, DATA_CHUNK_LEN);
    Data {
        hop_id: u32_at(body, 8),
        seq: u16_at(body, 2),
        last: flags & DATA_LAST != 0,
        resent: flags & DATA_RESENT != 0,
        question: asks.then_some(body[DATA_CHUNK_LEN]),
        chunk_len: if asks { len & 0xff_ffff } else { len },
        payload: &body[16..],
    }
}

fn decode_csyn(flags: u8, body: &[u8]) -> Result<Csyn, DecodeError> {
    let shape = Shape {
        chunk_len: u32_at(body, 12),
        packet_size: u16_at(body, 2),
    };
    let number = u32_at(body, 16);
    let about = (flags & CSYN_CHUNK != 0).then(|| About {
        hop_id: u32_at(body, 8),
        shape,
        cancel: flags & CSYN_CANCEL != 0,
    });
    if number == 0 || (about.is_some() && (shape.chunk_len == 0 || shape.packet_size == 0)) {
        return Err(DecodeError::Field);
    }
    Ok(Csyn { number, about })
}

fn decode_cack(flags: u8, body: &[u8]) -> Result<Cack<'_>, DecodeError> {
    let has_marks = flags & CACK_MARKS != 0;
    let bitmap_at = CACK_LEN - CRC_LEN + if has_marks { MARKS_LEN } else { 0 };
    let bitmap = body.get(bitmap_at..).ok_or(DecodeError::Short)?;
    let ecn = has_marks.then(|| EcnReport {
        capable: flags & CACK_CAPABLE != 0,
        marked: u32_at(body, CACK_LEN - CRC_LEN),
    });
    let progress = match flags & (CACK_HELD | CACK_COMPLETE | CACK_CANCELLED) {
        0 => Progress::Refused,
        CACK_HELD => Progress::Held {
            start: u16_at(body, 2),
            bitmap,
            cut: flags & CACK_CUT != 0,
        },
        CACK_COMPLETE => Progress::Complete,
        CACK_CANCELLED => Progress::Cancelled,
        _ => return Err(DecodeError::Field),
    };
    Ok(Cack {
        number: u32_at(body, 12),
        chunk: (flags & CACK_CHUNK != 0).then(|| (u32_at(body, 8), progress)),
        window: u32_at(body, 16),
        received: u64_at(body, 20),
        clock: u64_at(body, 28),
        spurious: u32_at(body, 36),
        ecn,
    })
}

/// Starts a frame at the end of `buffer`; [`seal`] finishes it.
fn open(buffer: &mut Vec<u8>, kind: u8, flags: u8, half: u16, session: u32) -> usize {
    let start = buffer.len();
    let mut head = [0; 8];
    head[0] = VERSION << 4 | kind;
    head[1] = flags;
    head[2..4].copy_from_slice(&half.to_be_bytes());
    head[4..8].copy_from_slice(&session.to_be_bytes());
    buffer.extend_from_slice(&head);
    start
}

fn seal(buffer: &mut Vec<u8>, start: usize) {
    let crc = crc(&buffer[start..]);
    buffer.put_u32(crc);
}

pub(super) fn encode_hello(hello: &Hello, buffer: &mut Vec<u8>) {
    let start = open(
        buffer,
        HELLO,
        if hello.wanted { HELLO_WANTED } else { 0 }
            | if hello.reports_marks { HELLO_MARKS } else { 0 },
        0,
        hello.receiver,
    );
    buffer.put_u32(hello.token);
    buffer.put_u32(hello.nonce);
    buffer.put_u32(hello.echo);
    buffer.put_u64(hello.incarnation);
    buffer.extend_from_slice(hello.guid.as_bytes());
    buffer.put_u32(hello.mtu);
    buffer.put_u32(hello.chunk_limit);
    buffer.put_u32(hello.window);
    buffer.put_u32(hello.first_hop_id);
    buffer.put_u16(hello.max_chunks);
    buffer.put_u16(hello.memory);
    seal(buffer, start);
}

/// Writes a DATA frame with the concatenated `parts` as its payload; `data.payload` is not used.
pub(super) fn encode_data(session: u32, data: &Data<'_>, parts: [&[u8]; 2], buffer: &mut Vec<u8>) {
    let flags = if data.last { DATA_LAST } else { 0 } | if data.resent { DATA_RESENT } else { 0 };
    let start = open(buffer, DATA, flags, data.seq, session);
    let mut rest = [0; 8];
    rest[..4].copy_from_slice(&data.hop_id.to_be_bytes());
    rest[4..].copy_from_slice(&data.chunk_len.to_be_bytes());
    buffer.extend_from_slice(&rest);
    parts.iter().for_each(|part| buffer.extend_from_slice(part));
    seal(buffer, start);
    if let Some(number) = data.question {
        carry_question(buffer, start, number);
    }
}

/// Adds the CSYN whose number ends in the byte `number` to the DATA frame that begins at `start`
/// and ends `buffer`. The length stays the same, as the kernel's segmentation requires.
pub(super) fn carry_question(buffer: &mut Vec<u8>, start: usize, number: u8) {
    buffer.truncate(buffer.len() - CRC_LEN);
    buffer[start + 1] |= DATA_ASKS;
    buffer[start + DATA_CHUNK_LEN] = number;
    seal(buffer, start);
}

pub(super) fn encode_csyn(session: u32, csyn: &Csyn, buffer: &mut Vec<u8>) {
    let (flags, size, id, len) = match csyn.about {
        None => (0, 0, 0, 0),
        Some(about) => (
            CSYN_CHUNK | if about.cancel { CSYN_CANCEL } else { 0 },
            about.shape.packet_size,
            about.hop_id,
            about.shape.chunk_len,
        ),
    };
    let start = open(buffer, CSYN, flags, size, session);
    buffer.put_u32(id);
    buffer.put_u32(len);
    buffer.put_u32(csyn.number);
    seal(buffer, start);
}

/// Writes a probe padded to `len` bytes. An older neighbour decodes it as a CSYN.
pub(super) fn encode_mtu_probe(session: u32, number: u32, len: usize, buffer: &mut Vec<u8>) {
    let start = open(buffer, CSYN, 0, 0, session);
    buffer.put_u64(0);
    buffer.put_u32(number);
    buffer.resize(start + len.max(CSYN_LEN) - CRC_LEN, 0);
    seal(buffer, start);
}

pub(super) fn encode_cack(session: u32, cack: &Cack<'_>, buffer: &mut Vec<u8>) {
    let (id, flags, start_byte, bitmap): (u32, u8, u16, &[u8]) = match cack.chunk {
        None => (0, 0, 0, &[]),
        Some((id, Progress::Complete)) => (id, CACK_CHUNK | CACK_COMPLETE, 0, &[]),
        Some((id, Progress::Cancelled)) => (id, CACK_CHUNK | CACK_CANCELLED, 0, &[]),
        Some((id, Progress::Refused)) => (id, CACK_CHUNK, 0, &[]),
        Some((id, Progress::Held { start, bitmap, cut })) => (
            id,
            CACK_CHUNK | CACK_HELD | if cut { CACK_CUT } else { 0 },
            start,
            bitmap,
        ),
    };
    let marks = match cack.ecn {
        None => 0,
        Some(report) => CACK_MARKS | if report.capable { CACK_CAPABLE } else { 0 },
    };
    let start = open(buffer, CACK, flags | marks, start_byte, session);
    buffer.put_u32(id);
    buffer.put_u32(cack.number);
    buffer.put_u32(cack.window);
    buffer.put_u64(cack.received);
    buffer.put_u64(cack.clock);
    buffer.put_u32(cack.spurious);
    if let Some(report) = cack.ecn {
        buffer.put_u32(report.marked);
    }
    buffer.extend_from_slice(bitmap);
    seal(buffer, start);
}
