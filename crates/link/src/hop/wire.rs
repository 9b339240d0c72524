//! The frames of Hop, as laid out in `docs/protocols/hop.md`. All numbers are big-endian.

use bytes::BufMut;

use super::ecn::EcnReport;

/// The high half of the first byte of each frame of a session, ...
pub(super) const FRAME: u8 = 2;
/// ... and of each message of the handshake.
pub(super) const HANDSHAKE: u8 = 3;
/// Bytes before the content of a frame: its type, the index of the session, and a counter.
pub(super) const HEAD_LEN: usize = 9;
/// Bytes of the tag after the content of a sealed frame, ...
pub(super) const TAG_LEN: usize = 16;
/// ... and of the checksum after that of a plain one.
pub(super) const CRC_LEN: usize = 4;
/// Bytes of the content before what its type says: flags, and two bytes by type.
pub(super) const INNER_HEAD: usize = 3;
/// Bytes of what the type says: before the payload of DATA, of a CSYN, and of a CACK without its
/// bitmap.
const DATA_LEN: usize = 8;
const CSYN_LEN: usize = 12;
const CACK_LEN: usize = 32;

pub(super) const PARAMETERS: u8 = 0;
pub(super) const DATA: u8 = 1;
pub(super) const CSYN: u8 = 2;
pub(super) const CACK: u8 = 3;

/// What is around the content of a frame. The session writes it when it seals the frame; until then
/// its place is left free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Envelope {
    /// Nothing is encrypted, and a checksum follows.
    Plain,
    /// The content is encrypted, and a tag follows.
    Sealed,
}

impl Envelope {
    /// Returns the bytes of a DATA frame beyond its payload.
    pub(super) fn data_overhead(self) -> usize {
        self.around() + DATA_LEN
    }

    /// Returns the bytes of a CSYN.
    pub(super) fn csyn_len(self) -> usize {
        self.around() + CSYN_LEN
    }

    /// Returns the bytes of a CACK without its bitmap.
    pub(super) fn cack_len(self) -> usize {
        self.around() + CACK_LEN
    }

    /// Returns the bytes of a frame beyond what its type says.
    pub(super) fn around(self) -> usize {
        HEAD_LEN + INNER_HEAD + self.trailer_len()
    }

    fn trailer_len(self) -> usize {
        match self {
            Envelope::Plain => CRC_LEN,
            Envelope::Sealed => TAG_LEN,
        }
    }
}

/// The reason why the content of a frame is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("too short for its type")]
    Short,
    #[error("a field has a value that no sender writes")]
    Field,
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

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// The content of a frame, whatever its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'a> {
    Data(Data<'a>),
    Csyn(Csyn),
    Cack(Cack<'a>),
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened<'a> {
    /// The neighbour's description of itself, encoded.
    Parameters(&'a [u8]),
    Content(Content<'a>),
}

/// Returns the index of the session that a frame is for; `None` if it is no frame of a session.
pub(super) fn session_index(frame: &[u8]) -> Option<u32> {
    let fits = frame.len() > Envelope::Plain.around() && frame[0] >> 4 == FRAME;
    fits.then(|| u32_at(frame, 1))
}

/// Returns true if a frame that begins with the byte `first` has a piece of a chunk.
pub(super) fn is_data(first: u8) -> bool {
    first & 3 == DATA
}

/// Decodes the content of a frame that begins with the byte `first`.
pub(super) fn decode_opened(first: u8, inner: &[u8]) -> Result<Opened<'_>, DecodeError> {
    let rest = inner.get(INNER_HEAD..).ok_or(DecodeError::Short)?;
    if first & 3 == PARAMETERS {
        return Ok(Opened::Parameters(rest));
    }
    decode_content(first & 3, inner[0], u16_at(inner, 1), rest).map(Opened::Content)
}

/// Writes a description of this end.
pub(super) fn encode_parameters(envelope: Envelope, parameters: &[u8], buffer: &mut Vec<u8>) {
    open(buffer, PARAMETERS, 0, 0);
    buffer.extend_from_slice(parameters);
    close(buffer, envelope);
}

fn decode_content(kind: u8, flags: u8, half: u16, rest: &[u8]) -> Result<Content<'_>, DecodeError> {
    match kind {
        DATA => decode_data(flags, half, rest).map(Content::Data),
        CSYN => decode_csyn(flags, half, rest).map(Content::Csyn),
        _ => decode_cack(flags, half, rest).map(Content::Cack),
    }
}

fn decode_data(flags: u8, half: u16, rest: &[u8]) -> Result<Data<'_>, DecodeError> {
    if rest.len() <= DATA_LEN {
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
        payload: &rest[DATA_LEN..],
    })
}

fn decode_csyn(flags: u8, half: u16, rest: &[u8]) -> Result<Csyn, DecodeError> {
    if rest.len() < CSYN_LEN {
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
    let has_marks = flags & CACK_MARKS != 0;
    let bitmap_at = CACK_LEN + if has_marks { MARKS_LEN } else { 0 };
    let bitmap = rest.get(bitmap_at..).ok_or(DecodeError::Short)?;
    let ecn = has_marks.then(|| EcnReport {
        capable: flags & CACK_CAPABLE != 0,
        marked: u32_at(rest, CACK_LEN),
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

/// Starts a frame at the end of `buffer`; [`close`] finishes it. Returns its start.
fn open(buffer: &mut Vec<u8>, kind: u8, flags: u8, half: u16) -> usize {
    let start = buffer.len();
    let mut head = [0; HEAD_LEN + INNER_HEAD];
    head[0] = FRAME << 4 | kind;
    head[HEAD_LEN] = flags;
    head[HEAD_LEN + 1..].copy_from_slice(&half.to_be_bytes());
    buffer.extend_from_slice(&head);
    start
}

fn close(buffer: &mut Vec<u8>, envelope: Envelope) {
    buffer.extend_from_slice(&[0; TAG_LEN][..envelope.trailer_len()]);
}

/// Writes a DATA frame with the concatenated `parts` as its payload; `data.payload` is not used.
pub(super) fn encode_data(
    envelope: Envelope,
    data: &Data<'_>,
    parts: [&[u8]; 2],
    buffer: &mut Vec<u8>,
) {
    let flags = if data.last { DATA_LAST } else { 0 } | if data.resent { DATA_RESENT } else { 0 };
    let start = open(buffer, DATA, flags, data.seq);
    let mut rest = [0; DATA_LEN];
    rest[..4].copy_from_slice(&data.hop_id.to_be_bytes());
    rest[4..].copy_from_slice(&data.chunk_len.to_be_bytes());
    buffer.extend_from_slice(&rest);
    parts.iter().for_each(|part| buffer.extend_from_slice(part));
    close(buffer, envelope);
    if let Some(number) = data.question {
        carry_question(buffer, start, number);
    }
}

/// Adds the CSYN whose number ends in the byte `number` to the DATA frame that begins at `start`.
/// The length stays the same, as the kernel's segmentation requires.
pub(super) fn carry_question(buffer: &mut [u8], start: usize, number: u8) {
    buffer[start + HEAD_LEN] |= DATA_ASKS;
    buffer[start + HEAD_LEN + INNER_HEAD + DATA_CHUNK_LEN] = number;
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
    open(buffer, CSYN, flags, size);
    buffer.put_u32(id);
    buffer.put_u32(len);
    buffer.put_u32(csyn.number);
    close(buffer, envelope);
}

/// Writes a probe padded to `len` bytes. An older neighbour decodes it as a CSYN.
pub(super) fn encode_mtu_probe(envelope: Envelope, number: u32, len: usize, buffer: &mut Vec<u8>) {
    let start = open(buffer, CSYN, 0, 0);
    buffer.put_u64(0);
    buffer.put_u32(number);
    let len = len.max(envelope.csyn_len());
    buffer.resize(start + len - envelope.trailer_len(), 0);
    close(buffer, envelope);
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
    open(buffer, CACK, flags | marks, start_byte);
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
    close(buffer, envelope);
}
