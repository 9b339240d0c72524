//! MFTP's messages [MFTP §3.1 to 3.3].

use bytes::{Buf, Bytes};
use whimbrel_content::ChunkSize;
use whimbrel_core::Guid;

use super::message::{Message, TOGETHER};
use super::{ChunkRanges, Reader, WindowAdvice, WireError, put_short_text};
use crate::chunk_size::{EXACT_SIZE, Path};

/// Longest file name that a sender offers, in bytes of UTF-8.
pub const MAX_FILE_NAME: usize = 255;
const FIXED_LEN: usize = 4;

/// What the receiver of a content must acknowledge ([MFTP §3.2.2]: "don't care, NACK, ACK").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reliability {
    /// The sender forgets what it has sent: for idempotent data.
    DontCare,
    /// The receiver reports only chunks that have been missing for a conservatively long time.
    #[default]
    Nack,
    /// The receiver acknowledges every chunk: for short and latency-sensitive exchanges.
    Ack,
}

codes!(Reliability, "reliability", { DontCare = 0, Nack = 1, Ack = 2 });

impl Reliability {
    /// Returns its name in options and configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Reliability::DontCare => "dont-care",
            Reliability::Nack => "nack",
            Reliability::Ack => "ack",
        }
    }
}

/// The kind of a content, as its holder claims; its bytes prove it when they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContentKind {
    /// The bytes of one file.
    File,
    /// A list of files and their names (`docs/protocols/content.md`).
    Folder,
}

codes!(ContentKind, "content kind", { File = 0, Folder = 1 });

/// The message types in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TransportKind {
    /// A chunk of a content.
    Data = 0,
    /// Chunks that have arrived.
    Ack = 1,
    /// Chunks that are missing.
    Nack = 2,
    /// To a proxy: forward the stored chunks.
    Push = 3,
    /// To a source: chunks are stored.
    Store = 4,
    /// To a source: chunks were dropped.
    Drop = 5,
    /// To any holder of a content: send it.
    Request = 6,
    /// To a receiver: chunks accepted by a router that has restarted.
    Lost = 7,
    /// To a source: chunks lost in a router's restart.
    Resend = 8,
    /// From GUID to GUID, without a content.
    Message = 9,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A chunk of a content.
    Data(Data),
    /// A request for content from any holder.
    Request(Request),
    /// Chunks missing at the receiver, to the source that sent the others.
    Nack(Request),
    /// Chunks that arrived, to the source.
    Ack(Request),
    /// From a source to the proxy that stores chunks: forward them now.
    Push(Notice),
    /// From a proxy to the source: these chunks are stored.
    Store(Notice),
    /// From the source's access router to it: copies of these chunks are kept, as it has asked for.
    Kept(Notice),
    /// From a router to the source: these chunks were dropped.
    Drop(Notice, DropReason),
    /// From a node to the receiver: the next router had accepted these chunks and has restarted;
    /// those that it had not forwarded are lost.
    Lost(Notice),
    /// Chunks missing at the receiver that are known to be lost: they cannot be in flight.
    Resend(Request),
    /// A few bytes from one GUID to another, without a content.
    Message(Message),
    /// Messages that waited for a link together: two and more.
    Messages(Vec<Message>),
}

/// A chunk of a content, with everything needed to verify it alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The content's name: the BLAKE3 hash of its bytes.
    pub content: Guid,
    /// The chunk's index, from 0. Sequence numbers are bound to the named content [MFTP §3.1].
    pub index: u32,
    /// Chunk size as a power of two, in bytes.
    pub chunk_log2: u8,
    /// The content's length in bytes, as the sender claims.
    pub content_len: u64,
    /// The kind of content, as the sender claims.
    pub kind: ContentKind,
    /// What the receiver must acknowledge.
    pub reliability: Reliability,
    /// A file name that the sender suggests; may be empty, must not be used as a path.
    pub file_name: String,
    /// The chunk's proof (`docs/protocols/content.md`), encoded.
    pub proof: Bytes,
    /// The chunk's bytes.
    pub payload: Bytes,
}

/// The wanted, missing or received chunks of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The content's name.
    pub content: Guid,
    /// Chunk size of the indices, as a power of two: the largest that the requester takes.
    pub chunk_log2: u8,
    /// Chunks are to have this size whatever the path affords.
    pub is_exact: bool,
    /// What the requester will acknowledge.
    pub reliability: Reliability,
    /// The window that the requester advises; `None` if it has none.
    pub window: Option<WindowAdvice>,
    /// The chunks.
    pub chunks: ChunkRanges,
}

impl Request {
    /// Chunks of this size, or smaller ones, and no window.
    pub fn new(
        content: Guid,
        chunk_log2: u8,
        reliability: Reliability,
        chunks: ChunkRanges,
    ) -> Request {
        Request {
            content,
            chunk_log2,
            is_exact: false,
            reliability,
            window: None,
            chunks,
        }
    }

    /// Returns true if it takes back an earlier request: nothing is asked for, and the window is closed.
    pub fn is_stop(&self) -> bool {
        self.chunks.is_empty() && self.window.is_none_or(|window| window.chunks == 0)
    }

    /// Returns the same bytes, in chunks no larger than this path affords.
    pub fn fitted_to(self, path: &Path) -> Request {
        match ChunkSize::from_code(self.chunk_log2) {
            Some(most) if !self.is_exact => self.in_chunks_of(path.affords(most).code()),
            _ => self,
        }
    }

    /// Returns the same bytes as smaller chunks; as it is if chunks are no larger than that.
    pub fn in_chunks_of(mut self, chunk_log2: u8) -> Request {
        if chunk_log2 < self.chunk_log2 {
            let parts = self.chunk_log2 - chunk_log2;
            self.chunks = self.chunks.divided(parts);
            self.window = self.window.map(|window| window.divided(parts));
            self.chunk_log2 = chunk_log2;
        }
        self
    }

    /// Takes chunks, of whatever sizes, from those that are asked for. The smallest of all sizes can
    /// say what is left.
    pub fn subtract(&mut self, chunks: Vec<(u8, u32)>) {
        let smallest = chunks.iter().map(|(log2, _)| *log2).min();
        let Some(smallest) = smallest.filter(|_| !self.chunks.is_empty()) else {
            return;
        };
        let unit = smallest.min(self.chunk_log2);
        let asked = core::mem::take(&mut self.chunks);
        let parts = self.chunk_log2 - unit;
        self.chunks = asked.divided(parts);
        self.window = self.window.map(|window| window.divided(parts));
        self.chunk_log2 = unit;
        let mut taken = ChunkRanges::default();
        // Chunks of a content mostly come one after the other.
        for run in chunks.chunk_by(|one, next| (one.0, one.1.saturating_add(1)) == *next) {
            if let [(log2, first), .., (_, last)] | [(log2, first @ last)] = run {
                taken.insert_divided(*first..last.saturating_add(1), log2 - unit);
            }
        }
        self.chunks.subtract(&taken);
    }
}

/// A proxy's or source's message about chunks of one flow in the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The content.
    pub content: Guid,
    /// The flow's source.
    pub source: Guid,
    /// The flow's destination.
    pub destination: Guid,
    /// The chunks.
    pub chunks: ChunkRanges,
    /// Bytes that the proxy now stores for the flow.
    pub stored: u64,
    /// Maximum of bytes that it stores for the flow (S).
    pub limit: u64,
}

/// Why a router dropped a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// Evicted from a proxy's storage to make room for another flow.
    Evicted,
    /// The flow has used up its storage.
    FlowLimit,
    /// Its storage time is over.
    Lifetime,
    /// Forwarded too often: a routing loop.
    HopLimit,
    /// The name service has no record of the destination.
    NoSuchName,
    /// The destination has no route, and the chunk may not be stored.
    Unreachable,
    /// The chunk exceeds the limit of a hop on its path.
    TooLarge,
    /// The host that was named as a holder does not serve this content.
    NotServed,
    /// The router uses no name service, and none of its hosts has announced the destination.
    NoNameService,
    /// The receiver takes nothing of this sender, or takes nothing at all that it has not requested.
    NotAccepted,
    /// The content is longer than the receiver takes.
    TooLong,
    /// The receiver has no room for what it has not requested.
    InboxFull,
    /// The receiver cannot use what is offered.
    Unusable,
}

codes!(DropReason, "drop reason", {
    Evicted = 0,
    FlowLimit = 1,
    Lifetime = 2,
    HopLimit = 3,
    NoSuchName = 4,
    Unreachable = 5,
    TooLarge = 6,
    NotServed = 7,
    NoNameService = 8,
    NotAccepted = 9,
    TooLong = 10,
    InboxFull = 11,
    Unusable = 12,
});

impl DropReason {
    /// Returns the reason's name in counters and reports.
    pub const fn label(self) -> &'static str {
        match self {
            DropReason::Evicted => "evicted",
            DropReason::FlowLimit => "flow-limit",
            DropReason::Lifetime => "lifetime",
            DropReason::HopLimit => "hop-limit",
            DropReason::NoSuchName => "no-such-name",
            DropReason::Unreachable => "unreachable",
            DropReason::TooLarge => "too-large",
            DropReason::NotServed => "not-served",
            DropReason::NoNameService => "no-name-service",
            DropReason::NotAccepted => "not-accepted",
            DropReason::TooLong => "too-long",
            DropReason::InboxFull => "inbox-full",
            DropReason::Unusable => "unusable",
        }
    }
}

/// The detail of a Store message about copies that are kept; 0 for chunks that are stored.
const KEPT: u8 = 1;

impl Transport {
    /// Returns the type in the header.
    pub fn kind(&self) -> TransportKind {
        match self {
            Transport::Data(_) => TransportKind::Data,
            Transport::Ack(_) => TransportKind::Ack,
            Transport::Nack(_) => TransportKind::Nack,
            Transport::Push(_) => TransportKind::Push,
            Transport::Store(_) | Transport::Kept(_) => TransportKind::Store,
            Transport::Drop(..) => TransportKind::Drop,
            Transport::Request(_) => TransportKind::Request,
            Transport::Lost(_) => TransportKind::Lost,
            Transport::Resend(_) => TransportKind::Resend,
            Transport::Message(_) | Transport::Messages(_) => TransportKind::Message,
        }
    }

    /// Appends the message without a data chunk's payload, which follows uncopied.
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(self.kind() as u8);
        match self {
            Transport::Data(data) => {
                out.push(data.reliability.code());
                out.extend_from_slice(&[0, 0]);
                data.encode_fields(out);
            }
            Transport::Request(request)
            | Transport::Nack(request)
            | Transport::Ack(request)
            | Transport::Resend(request) => {
                out.push(request.reliability.code());
                out.extend_from_slice(&[0, 0]);
                request.encode_fields(out);
            }
            Transport::Push(notice)
            | Transport::Store(notice)
            | Transport::Kept(notice)
            | Transport::Lost(notice) => {
                let detail = if matches!(self, Transport::Kept(_)) {
                    KEPT
                } else {
                    0
                };
                out.extend_from_slice(&[detail, 0, 0]);
                notice.encode_fields(out);
            }
            Transport::Drop(notice, reason) => {
                out.push(reason.code());
                out.extend_from_slice(&[0, 0]);
                notice.encode_fields(out);
            }
            Transport::Message(message) => {
                out.extend_from_slice(&[0, 0, 0]);
                out.extend_from_slice(&message.id.to_be_bytes());
                out.extend_from_slice(&message.channel.to_be_bytes());
            }
            Transport::Messages(all) => {
                out.extend_from_slice(&[TOGETHER, 0, 0]);
                all.iter().for_each(|message| message.encode_fields(out));
            }
        }
        let header_len = (out.len() - start) as u16;
        out[start + 2..start + 4].copy_from_slice(&header_len.to_be_bytes());
        match self {
            Transport::Message(message) => out.extend_from_slice(&message.payload),
            Transport::Messages(all) => {
                all.iter().for_each(|it| out.extend_from_slice(&it.payload));
            }
            _ => {}
        }
    }

    /// Decodes a message; a data chunk's proof and payload share the memory of `payload`.
    pub fn decode(payload: &Bytes) -> Result<Transport, WireError> {
        let mut reader = Reader(payload);
        let kind = reader.u8()?;
        let detail = reader.u8()?;
        let header_len = usize::from(reader.u16()?);
        if header_len < FIXED_LEN || header_len > payload.len() {
            return Err(WireError::Truncated);
        }
        let mut fields = payload.slice(FIXED_LEN..header_len);
        if kind == TransportKind::Data as u8 {
            let payload = payload.slice(header_len..);
            return Data::decode_fields(&mut fields, Reliability::from_code(detail)?, payload)
                .map(Transport::Data);
        }
        if kind == TransportKind::Message as u8 && detail == TOGETHER {
            let all = Message::decode_all(&fields, payload.slice(header_len..))?;
            return Ok(Transport::Messages(all));
        }
        if kind == TransportKind::Message as u8 {
            let message = Message::decode(&fields, payload.slice(header_len..))?;
            return Ok(Transport::Message(message));
        }
        if payload.len() != header_len {
            return Err(WireError::Trailing);
        }
        let mut reader = Reader(&fields);
        let request = |reader: &mut Reader<'_>| {
            Request::decode_fields(reader, Reliability::from_code(detail)?)
        };
        let message = match kind {
            1 => Transport::Ack(request(&mut reader)?),
            2 => Transport::Nack(request(&mut reader)?),
            3 => Transport::Push(Notice::decode_fields(&mut reader)?),
            4 if detail == KEPT => Transport::Kept(Notice::decode_fields(&mut reader)?),
            4 => Transport::Store(Notice::decode_fields(&mut reader)?),
            5 => Transport::Drop(
                Notice::decode_fields(&mut reader)?,
                DropReason::from_code(detail)?,
            ),
            6 => Transport::Request(request(&mut reader)?),
            7 => Transport::Lost(Notice::decode_fields(&mut reader)?),
            8 => Transport::Resend(request(&mut reader)?),
            other => return Err(WireError::MessageType(other)),
        };
        reader.finish()?;
        Ok(message)
    }
}

impl Data {
    fn encode_fields(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.content.as_bytes());
        out.extend_from_slice(&self.index.to_be_bytes());
        out.push(self.chunk_log2);
        out.push(self.kind.code());
        out.extend_from_slice(&(self.proof.len() as u16).to_be_bytes());
        out.extend_from_slice(&self.content_len.to_be_bytes());
        put_short_text(out, &self.file_name);
        out.extend_from_slice(&self.proof);
    }

    fn decode_fields(
        fields: &mut Bytes,
        reliability: Reliability,
        payload: Bytes,
    ) -> Result<Data, WireError> {
        let mut reader = Reader(fields);
        let content = reader.guid()?;
        let index = reader.u32()?;
        let chunk_log2 = checked_log2(reader.u8()?)?;
        let kind = ContentKind::from_code(reader.u8()?)?;
        let proof_len = usize::from(reader.u16()?);
        let content_len = reader.u64()?;
        let file_name = reader.short_text()?;
        if reader.0.len() != proof_len {
            return Err(WireError::Invalid("proof length"));
        }
        fields.advance(fields.len() - proof_len);
        let proof = fields.clone();
        Ok(Data {
            content,
            index,
            chunk_log2,
            content_len,
            kind,
            reliability,
            file_name,
            proof,
            payload,
        })
    }
}

impl Request {
    fn encode_fields(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.content.as_bytes());
        let exact = if self.is_exact { EXACT_SIZE } else { 0 };
        out.push(self.chunk_log2 | exact);
        WindowAdvice::encode(self.window, out);
        self.chunks.encode(out);
    }

    fn decode_fields(
        reader: &mut Reader<'_>,
        reliability: Reliability,
    ) -> Result<Request, WireError> {
        let content = reader.guid()?;
        let size = reader.u8()?;
        let chunk_log2 = checked_log2(size & !EXACT_SIZE)?;
        let window = WindowAdvice::read(reader)?;
        let chunks = ChunkRanges::decode(reader)?;
        Ok(Request {
            content,
            chunk_log2,
            is_exact: size & EXACT_SIZE != 0,
            window,
            reliability,
            chunks,
        })
    }
}

impl Notice {
    /// Returns true if the proxy stores 80 % of the flow's limit: its source should pause.
    pub fn is_nearly_full(&self) -> bool {
        self.limit > 0 && u128::from(self.stored) * 5 >= u128::from(self.limit) * 4
    }

    fn encode_fields(&self, out: &mut Vec<u8>) {
        for guid in [self.content, self.source, self.destination] {
            out.extend_from_slice(guid.as_bytes());
        }
        out.extend_from_slice(&self.stored.to_be_bytes());
        out.extend_from_slice(&self.limit.to_be_bytes());
        self.chunks.encode(out);
    }

    fn decode_fields(reader: &mut Reader<'_>) -> Result<Notice, WireError> {
        Ok(Notice {
            content: reader.guid()?,
            source: reader.guid()?,
            destination: reader.guid()?,
            stored: reader.u64()?,
            limit: reader.u64()?,
            chunks: ChunkRanges::decode(reader)?,
        })
    }
}

/// Chunks are 16 KiB to 4 MiB; other values are not a chunk size.
fn checked_log2(log2: u8) -> Result<u8, WireError> {
    if (14..=22).contains(&log2) {
        Ok(log2)
    } else {
        Err(WireError::Invalid("chunk size"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::network::tests::any_guid;
    use super::super::ranges::tests::any_ranges;
    use super::*;
    use proptest::prelude::*;

    fn any_reliability() -> impl Strategy<Value = Reliability> {
        prop::sample::select(vec![
            Reliability::DontCare,
            Reliability::Nack,
            Reliability::Ack,
        ])
    }

    prop_compose! {
        fn any_request()(window in 0u8..4, content in any_guid(), chunk_log2 in 14u8..=22, is_exact: bool,
                         reliability in any_reliability(), chunks in any_ranges()) -> Request {
            let window = super::super::WindowVerdict::ALL.get(usize::from(window)).copied();
            let window = window.map(|verdict| WindowAdvice { verdict, chunks: 300 });
            Request { window, content, chunk_log2, is_exact, reliability, chunks }
        }
    }

    prop_compose! {
        fn any_notice()(guids in prop::collection::vec(any_guid(), 3), chunks in any_ranges(), stored: u64,
                        limit: u64) -> Notice {
            Notice { content: guids[0], source: guids[1], destination: guids[2], chunks, stored, limit }
        }
    }

    prop_compose! {
        fn any_data()(content in any_guid(), index: u32, chunk_log2 in 14u8..=22, content_len: u64,
                      folder: bool, reliability in any_reliability(), file_name in "[a-zäß.]{0,40}",
                      proof in prop::collection::vec(any::<u8>(), 0..100),
                      payload in prop::collection::vec(any::<u8>(), 0..100)) -> Data {
            let kind = if folder { ContentKind::Folder } else { ContentKind::File };
            Data { content, index, chunk_log2, content_len, kind, reliability, file_name,
                   proof: proof.into(), payload: payload.into() }
        }
    }

    fn any_message() -> impl Strategy<Value = Transport> {
        prop_oneof![
            any_data().prop_map(Transport::Data),
            any_request().prop_map(Transport::Request),
            any_request().prop_map(Transport::Nack),
            any_request().prop_map(Transport::Ack),
            any_notice().prop_map(Transport::Push),
            any_notice().prop_map(Transport::Store),
            (any_notice(), prop::sample::select(DropReason::ALL.to_vec()))
                .prop_map(|(notice, reason)| Transport::Drop(notice, reason)),
            any_notice().prop_map(Transport::Lost),
            any_request().prop_map(Transport::Resend),
            (
                any::<u64>(),
                any::<u32>(),
                prop::collection::vec(any::<u8>(), 0..40)
            )
                .prop_map(|(id, channel, payload)| {
                    let payload = payload.into();
                    Transport::Message(Message {
                        id,
                        channel,
                        payload,
                    })
                }),
            prop::collection::vec(
                (
                    any::<u64>(),
                    any::<u32>(),
                    prop::collection::vec(any::<u8>(), 0..40)
                ),
                2..=crate::wire::MAX_TOGETHER,
            )
            .prop_map(|all| {
                let all = all.into_iter().map(|(id, channel, payload)| Message {
                    id,
                    channel,
                    payload: payload.into(),
                });
                Transport::Messages(all.collect())
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_message_round_trips(message in any_message()) {
            let mut bytes = Vec::new();
            message.encode_head(&mut bytes);
            if let Transport::Data(data) = &message {
                bytes.extend_from_slice(&data.payload);
            }
            prop_assert_eq!(Transport::decode(&bytes.into()), Ok(message));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(
            kind in 0u8..11, detail in 0u8..9, bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = Transport::decode(&bytes.clone().into());
            let mut framed = vec![kind, detail];
            framed.extend_from_slice(&((bytes.len() + 4) as u16).to_be_bytes());
            framed.extend_from_slice(&bytes);
            let _ = Transport::decode(&framed.into());
        }

        #[test]
        fn any_prefix_of_a_message_is_refused_or_shorter_data(message in any_message(), cut in 0usize..1000) {
            let mut bytes = Vec::new();
            message.encode_head(&mut bytes);
            // The length of a payload follows from its chunk.
            let payload = match &message {
                Transport::Message(message) => message.payload.len(),
                Transport::Messages(all) => all.last().map_or(0, |it| it.payload.len()),
                _ => 0,
            };
            let cut = cut % (bytes.len() - payload);
            prop_assert!(Transport::decode(&Bytes::copy_from_slice(&bytes[..cut])).is_err());
        }
    }
}
