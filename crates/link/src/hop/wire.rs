//! The frames of Hop, as laid out in `docs/protocols/hop.md`. All numbers are big-endian.

use bytes::BufMut;
use whimbrel_core::Guid;

use super::ecn::EcnReport;

/// The version, in the high half of the first byte of each frame.
pub(super) const VERSION: u8 = 1;
/// The same of a sealed frame, ...
pub(super) const SEALED: u8 = 2;
/// ... and of a message of the handshake.
pub(super) const HANDSHAKE: u8 = 3;
/// Bytes of a plain DATA frame beyond its payload: 16 before it, the CRC after it.
const DATA_OVERHEAD: usize = 20;
/// Size of a HELLO, in bytes. Later versions may append bytes, which are ignored.
pub(super) const HELLO_LEN: usize = 84;
/// Size of a plain CSYN, in bytes.
const CSYN_LEN: usize = 24;
/// Size of a plain CACK without its bitmap, in bytes.
const CACK_LEN: usize = 44;
/// Bytes before what a plain frame's type says, and of its CRC.
const PLAIN_HEAD: usize = 8;
const CRC_LEN: usize = 4;
/// Bytes of a sealed frame before the encrypted part, ...
pub(super) const SEALED_HEAD: usize = 9;
/// ... and of the tag after it.
pub(super) const TAG_LEN: usize = 16;
/// Bytes of the encrypted part before what its type says: flags, and two bytes by type.
pub(super) const INNER_HEAD: usize = 3;
/// Bytes of a sealed frame beyond those of a plain one.
const SEALED_EXTRA: usize = SEALED_HEAD + INNER_HEAD + TAG_LEN - PLAIN_HEAD - CRC_LEN;

pub(super) const HELLO: u8 = 0;
pub(super) const DATA: u8 = 1;
pub(super) const CSYN: u8 = 2;
pub(super) const CACK: u8 = 3;

/// What is around the content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Envelope {
    /// The session's tag before it, and a CRC behind it.
    Plain(u32),
    /// Encrypted: place is left for what the session writes when it seals the frame.
    Sealed,
}

impl Envelope {
    /// Returns the bytes of each frame beyond those of a plain one.
    fn extra(self) -> usize {
        match self {
            Envelope::Plain(_) => 0,
            Envelope::Sealed => SEALED_EXTRA,
        }
    }

    /// Returns the bytes of a DATA frame beyond its payload.
    pub(super) fn data_overhead(self) -> usize {
        DATA_OVERHEAD + self.extra()
    }

    /// Returns the bytes of a CSYN.
    pub(super) fn csyn_len(self) -> usize {
        CSYN_LEN + self.extra()
    }

    /// Returns the bytes of a CACK without its bitmap.
    pub(super) fn cack_len(self) -> usize {
        CACK_LEN + self.extra()
    }

    /// Bytes of a frame before what its type says.
    fn head_len(self) -> usize {
        match self {
            Envelope::Plain(_) => PLAIN_HEAD,
            Envelope::Sealed => SEALED_HEAD + INNER_HEAD,
        }
    }

    fn trailer_len(self) -> usize {
        match self {
            Envelope::Plain(_) => CRC_LEN,
            Envelope::Sealed => TAG_LEN,
        }
    }
}

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

/// A plain frame. `session` is the tag returned by [`session_tag`].
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
/// Offset of the chunk's length behind the head of a DATA frame. Its high byte is the number of the
/// carried CSYN, if there is one.
const DATA_CHUNK_LEN: usize = 4;
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

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
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
    if first & 15 == HELLO {
        return decode_hello(flags, body).map(Frame::Hello);
    }
    let content = decode_content(first & 15, flags, u16_at(body, 2), &body[PLAIN_HEAD..])?;
    Ok(match content {
        Content::Data(data) => Frame::Data { session, data },
        Content::Csyn(csyn) => Frame::Csyn { session, csyn },
        Content::Cack(cack) => Frame::Cack { session, cack },
    })
}

/// The content of a frame, whatever its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    Data(Data<'a>),
    Csyn(Csyn),
    Cack(Cack<'a>),
}

/// What a sealed frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened<'a> {
    /// The neighbour's description of itself, encoded.
    Parameters(&'a [u8]),
    Content(Content<'a>),
}

/// Returns the index of the session that a sealed frame is for; `None` if it is no sealed frame.
pub(super) fn sealed_index(frame: &[u8]) -> Option<u32> {
    let sealed = frame.len() > SEALED_HEAD + TAG_LEN && frame[0] >> 4 == SEALED;
    sealed.then(|| u32_at(frame, 1))
}

/// Returns true if a sealed frame that begins with the byte `first` has a piece of a chunk.
pub(super) fn is_data(first: u8) -> bool {
    first & 3 == DATA
}

/// Decodes the decrypted part of a frame that begins with the byte `first`.
pub(super) fn decode_opened(first: u8, inner: &[u8]) -> Result<Opened<'_>, DecodeError> {
    let rest = inner.get(INNER_HEAD..).ok_or(DecodeError::Short)?;
    if first & 3 == HELLO {
        return Ok(Opened::Parameters(rest));
    }
    decode_content(first & 3, inner[0], u16_at(inner, 1), rest).map(Opened::Content)
}

/// Writes a description of this end, to be sealed.
pub(super) fn encode_parameters(parameters: &[u8], buffer: &mut Vec<u8>) {
    let start = open(buffer, HELLO, 0, 0, Envelope::Sealed);
    buffer.extend_from_slice(parameters);
    close(buffer, start, Envelope::Sealed);
}

fn decode_content(kind: u8, flags: u8, half: u16, rest: &[u8]) -> Result<Content<'_>, DecodeError> {
    match kind {
        DATA => decode_data(flags, half, rest).map(Content::Data),
        CSYN => decode_csyn(flags, half, rest).map(Content::Csyn),
        _ => decode_cack(flags, half, rest).map(Content::Cack),
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

fn decode_data(flags: u8, half: u16, rest: &[u8]) -> Result<Data<'_>, DecodeError> {
    if rest.len() <= 8 {
        return Err(DecodeError::Short);
    }
    let asks = flags & DATA_ASKS != 0;
    let len = u32_at(rest, DATA_CHUNK_LEN);
    Ok(Data {
        hop_id: u32_at(rest, 0),
        seq: half,
        last: flags & DATA_LAST != 0,
        resent: flags & DATA_RESENT != 0,
        question: asks.then_some(rest[DATA_CHUNK_LEN]),
        chunk_len: if asks { len & 0xff_ffff } else { len },
        payload: &rest[8..],
    })
}

fn decode_csyn(flags: u8, half: u16, rest: &[u8]) -> Result<Csyn, DecodeError> {
    if rest.len() < CSYN_LEN - PLAIN_HEAD - CRC_LEN {
        return Err(DecodeError::Short);
    }
    let shape = Shape {
        chunk_len: u32_at(rest, 4),
        packet_size: half,
    };
    let number = u32_at(rest, 8);
    let about = (flags & CSYN_CHUNK != 0).then(|| About {
        hop_id: u32_at(rest, 0),
        shape,
        cancel: flags & CSYN_CANCEL != 0,
    });
    if number == 0 || (about.is_some() && (shape.chunk_len == 0 || shape.packet_size == 0)) {
        return Err(DecodeError::Field);
    }
    Ok(Csyn { number, about })
}

fn decode_cack(flags: u8, half: u16, rest: &[u8]) -> Result<Cack<'_>, DecodeError> {
    const MARKS_AT: usize = CACK_LEN - PLAIN_HEAD - CRC_LEN;
    let has_marks = flags & CACK_MARKS != 0;
    let bitmap_at = MARKS_AT + if has_marks { MARKS_LEN } else { 0 };
    let bitmap = rest.get(bitmap_at..).ok_or(DecodeError::Short)?;
    let ecn = has_marks.then(|| EcnReport {
        capable: flags & CACK_CAPABLE != 0,
        marked: u32_at(rest, MARKS_AT),
    });
    let progress = match flags & (CACK_HELD | CACK_COMPLETE | CACK_CANCELLED) {
        0 => Progress::Refused,
        CACK_HELD => Progress::Held {
            start: half,
            bitmap,
            cut: flags & CACK_CUT != 0,
        },
        CACK_COMPLETE => Progress::Complete,
        CACK_CANCELLED => Progress::Cancelled,
        _ => return Err(DecodeError::Field),
    };
    Ok(Cack {
        number: u32_at(rest, 4),
        chunk: (flags & CACK_CHUNK != 0).then(|| (u32_at(rest, 0), progress)),
        window: u32_at(rest, 8),
        received: u64_at(rest, 12),
        clock: u64_at(rest, 20),
        spurious: u32_at(rest, 28),
        ecn,
    })
}

/// Starts a frame at the end of `buffer`; [`close`] finishes it.
fn open(buffer: &mut Vec<u8>, kind: u8, flags: u8, half: u16, envelope: Envelope) -> usize {
    let start = buffer.len();
    let mut head = [0; SEALED_HEAD + INNER_HEAD];
    let len = envelope.head_len();
    match envelope {
        Envelope::Plain(session) => {
            head[0] = VERSION << 4 | kind;
            head[1] = flags;
            head[2..4].copy_from_slice(&half.to_be_bytes());
            head[4..8].copy_from_slice(&session.to_be_bytes());
        }
        Envelope::Sealed => {
            head[0] = SEALED << 4 | kind;
            head[SEALED_HEAD] = flags;
            head[SEALED_HEAD + 1..].copy_from_slice(&half.to_be_bytes());
        }
    }
    buffer.extend_from_slice(&head[..len]);
    start
}

fn close(buffer: &mut Vec<u8>, start: usize, envelope: Envelope) {
    match envelope {
        Envelope::Plain(_) => {
            let crc = crc(&buffer[start..]);
            buffer.put_u32(crc);
        }
        Envelope::Sealed => buffer.extend_from_slice(&[0; TAG_LEN]),
    }
}

pub(super) fn encode_hello(hello: &Hello, buffer: &mut Vec<u8>) {
    let start = open(
        buffer,
        HELLO,
        if hello.wanted { HELLO_WANTED } else { 0 }
            | if hello.reports_marks { HELLO_MARKS } else { 0 },
        0,
        Envelope::Plain(hello.receiver),
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
    close(buffer, start, Envelope::Plain(hello.receiver));
}

/// Writes a DATA frame with the concatenated `parts` as its payload; `data.payload` is not used.
pub(super) fn encode_data(
    envelope: Envelope,
    data: &Data<'_>,
    parts: [&[u8]; 2],
    buffer: &mut Vec<u8>,
) {
    let flags = if data.last { DATA_LAST } else { 0 } | if data.resent { DATA_RESENT } else { 0 };
    let start = open(buffer, DATA, flags, data.seq, envelope);
    let mut rest = [0; 8];
    rest[..4].copy_from_slice(&data.hop_id.to_be_bytes());
    rest[4..].copy_from_slice(&data.chunk_len.to_be_bytes());
    buffer.extend_from_slice(&rest);
    parts.iter().for_each(|part| buffer.extend_from_slice(part));
    close(buffer, start, envelope);
    if let Some(number) = data.question {
        carry_question(envelope, buffer, start, number);
    }
}

/// Adds the CSYN whose number ends in the byte `number` to the DATA frame that begins at `start`
/// and ends `buffer`. The length stays the same, as the kernel's segmentation requires.
pub(super) fn carry_question(envelope: Envelope, buffer: &mut Vec<u8>, start: usize, number: u8) {
    buffer.truncate(buffer.len() - envelope.trailer_len());
    let head = start + envelope.head_len();
    // The flags are before the two bytes by type; in a plain frame, the tag follows these.
    let flags = match envelope {
        Envelope::Plain(_) => start + 1,
        Envelope::Sealed => start + SEALED_HEAD,
    };
    buffer[flags] |= DATA_ASKS;
    buffer[head + DATA_CHUNK_LEN] = number;
    close(buffer, start, envelope);
}

pub(super) fn encode_csyn(envelope: Envelope, csyn: &Csyn, buffer: &mut Vec<u8>) {
    let (flags, size, id, len) = match csyn.about {
        None => (0, 0, 0, 0),
        Some(about) => (
            CSYN_CHUNK | if about.cancel { CSYN_CANCEL } else { 0 },
            about.shape.packet_size,
            about.hop_id,
            about.shape.chunk_len,
        ),
    };
    let start = open(buffer, CSYN, flags, size, envelope);
    buffer.put_u32(id);
    buffer.put_u32(len);
    buffer.put_u32(csyn.number);
    close(buffer, start, envelope);
}

/// Writes a probe padded to `len` bytes. An older neighbour decodes it as a CSYN.
pub(super) fn encode_mtu_probe(envelope: Envelope, number: u32, len: usize, buffer: &mut Vec<u8>) {
    let start = open(buffer, CSYN, 0, 0, envelope);
    buffer.put_u64(0);
    buffer.put_u32(number);
    let len = len.max(envelope.csyn_len());
    buffer.resize(start + len - envelope.trailer_len(), 0);
    close(buffer, start, envelope);
}

pub(super) fn encode_cack(envelope: Envelope, cack: &Cack<'_>, buffer: &mut Vec<u8>) {
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
    let start = open(buffer, CACK, flags | marks, start_byte, envelope);
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
    close(buffer, start, envelope);
}
