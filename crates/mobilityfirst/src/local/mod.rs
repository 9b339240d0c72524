//! The protocol between a local program and the host stack.
//!
//! The same requests and events serve a program behind a Unix socket (as frames,
//! `docs/protocols/local.md`) and one in the same process (as values).

mod programs;
mod version;

use bytes::Bytes;
use whimbrel_content::Verified;
use whimbrel_core::{Guid, GuidPrefix};

use crate::wire::{
    ContentKind, ControlCode, MAX_MESSAGE, Reader, Reliability, WireError, codes, put_short_text,
};
pub use programs::{Frame, Programs};
pub use version::{LOCAL_VERSION, VersionMismatch, check_greeting, greeting};

/// Maximum of names in one [`LocalEvent::Names`].
pub const MAX_NAMES: usize = 32;

/// From a program to its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalRequest {
    /// Fetch a content: `get(content_name)` of [MFTP §2].
    Get(Get),
    /// Stop fetching.
    Cancel {
        /// The request's number.
        request: u32,
    },
    /// A chunk has been used (for example written to disk); another one may follow.
    Consumed {
        /// The request's number.
        request: u32,
    },
    /// Offer a content to the network.
    Publish(Publish),
    /// Stop offering it.
    Withdraw {
        /// The content's name.
        content: Guid,
    },
    /// The answer to [`LocalEvent::Read`].
    ReadDone {
        /// The number in the event.
        read: u64,
        /// The chunk, or `None` if it cannot be read.
        chunk: Option<ReadChunk>,
    },
    /// Send an echo request to a name.
    Ping {
        /// Chosen by the program, returned in the answer.
        request: u32,
        /// The destination.
        destination: Guid,
        /// Chosen by the program, returned in the answer.
        sequence: u32,
        /// Extra bytes to carry, at most 32 KiB.
        padding: u16,
    },
    /// Send a few bytes to a GUID, without a content name and without guarantees: they arrive at
    /// most once, and the sender is not told.
    Message {
        /// Selects one of the receiver's programs, by their agreement.
        channel: u32,
        /// The receiver.
        destination: Guid,
        /// At most [`MAX_MESSAGE`] bytes.
        payload: Bytes,
    },
    /// Deliver the messages of a channel to this program.
    Listen {
        /// The channel.
        channel: u32,
    },
    /// Request the host's counters.
    Status {
        /// Chosen by the program, returned in the answer.
        request: u32,
    },
    /// Request the contents with such names that the host's programs offer or fetch.
    Names {
        /// Chosen by the program, returned in the answer.
        request: u32,
        /// How their names begin.
        prefix: GuidPrefix,
    },
}

/// A request for a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get {
    /// Chosen by the program; identifies the request.
    pub request: u32,
    /// The content's name.
    pub content: Guid,
    /// Chunk size as a power of two: 14 (16 KiB) to 22 (4 MiB).
    pub chunk_log2: u8,
    /// Deliver the chunks in order; otherwise as they arrive.
    pub in_order: bool,
    /// What to acknowledge to the source.
    pub reliability: Reliability,
    /// How long a chunk may be missing before the source is told, in milliseconds; 0 for the host's
    /// default.
    pub nack_timeout_ms: u32,
    /// Chunks that may be delivered before the first is reported as [`LocalRequest::Consumed`].
    pub credit: u16,
    /// The state of an earlier run: a resume record (`docs/protocols/content.md`), or empty.
    pub resume: Bytes,
}

/// An offered content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The content's name.
    pub content: Guid,
    /// Its length in bytes.
    pub content_len: u64,
    /// Its kind.
    pub kind: ContentKind,
    /// A name to store it under; may be empty.
    pub file_name: String,
}

/// A chunk that a program has read for its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadChunk {
    /// Its proof, encoded.
    pub proof: Bytes,
    /// Its bytes.
    pub data: Bytes,
}

/// From a host to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalEvent {
    /// A verified chunk.
    Chunk(LocalChunk),
    /// The state of a transfer has changed.
    State {
        /// The request's number.
        request: u32,
        /// The new state.
        state: TransferState,
    },
    /// All chunks have been delivered.
    Complete {
        /// The request's number.
        request: u32,
        /// The content's length in bytes, proven.
        content_len: u64,
    },
    /// The request has failed.
    Failed {
        /// The request's number.
        request: u32,
        /// The reason.
        reason: FailReason,
    },
    /// The outcome of a content's announcement.
    Published {
        /// The content's name.
        content: Guid,
        /// The answer of the name service or of the router on the path to it.
        code: ControlCode,
    },
    /// Read a chunk of a content that this program has published, and answer with
    /// [`LocalRequest::ReadDone`].
    Read {
        /// To be returned.
        read: u64,
        /// The content's name.
        content: Guid,
        /// The chunk's index.
        index: u32,
        /// Chunk size as a power of two.
        chunk_log2: u8,
    },
    /// An echo reply has arrived.
    Pong {
        /// The request's number.
        request: u32,
        /// The request's sequence number.
        sequence: u32,
        /// The sender of the reply.
        from: Guid,
    },
    /// A message has arrived.
    Message {
        /// Its channel.
        channel: u32,
        /// The sender's claim of its GUID, without proof.
        from: Guid,
        /// Its bytes.
        payload: Bytes,
    },
    /// The host's counters.
    Status {
        /// The request's number.
        request: u32,
        /// A JSON object.
        json: String,
    },
    /// The names that begin so.
    Names {
        /// The request's number.
        request: u32,
        /// In order; if there are [`MAX_NAMES`], there may be more.
        names: Vec<Guid>,
    },
}

/// A verified chunk for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalChunk {
    /// The request's number.
    pub request: u32,
    /// The chunk's index.
    pub index: u32,
    /// Chunk size as a power of two: it can change in the course of a transfer.
    pub chunk_log2: u8,
    /// The content's length in bytes.
    pub content_len: u64,
    /// True once the length is proven; before, it is the holder's claim.
    pub len_proven: bool,
    /// The kind of content, as its holder claims.
    pub kind: ContentKind,
    /// The name that its holder suggests; must not be used as a path.
    pub file_name: String,
    /// Its proof, encoded: the host has verified it, and a program may do so again.
    pub proof: Bytes,
    /// What the host has verified, for a program in its process: it need not hash the bytes again.
    /// Frames carry none of it, so that a program trusts no other process.
    pub verified: Option<Verified>,
    /// Its bytes.
    pub data: Bytes,
}

/// The state of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferState {
    /// Requested; no chunk has arrived yet.
    Requested,
    /// Chunks are arriving.
    Flowing,
    /// No chunk for a while; the missing ones have been requested again.
    Stalled,
    /// No router responds: paused until one does.
    Disconnected,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailReason {
    /// The name service has no record of a holder of this content.
    NoSuchName,
    /// Its holders do not serve it.
    NotServed,
    /// The chunks exceed the limit of a hop on their path.
    TooLarge,
    /// The host has reached its limit of requests.
    Busy,
    /// The request is invalid.
    Invalid,
}

codes!(TransferState, "transfer state", {
    Requested = 0,
    Flowing = 1,
    Stalled = 2,
    Disconnected = 3,
});
codes!(FailReason, "reason", {
    NoSuchName = 0,
    NotServed = 1,
    TooLarge = 2,
    Busy = 3,
    Invalid = 4,
});

fn flag(code: u8) -> Result<bool, WireError> {
    match code {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Invalid("flag")),
    }
}

impl LocalRequest {
    /// Appends the content of its frame, except for a chunk's bytes, which follow uncopied.
    pub fn encode_head(&self, out: &mut Vec<u8>) -> Bytes {
        match self {
            LocalRequest::Get(get) => {
                out.push(0);
                out.extend_from_slice(&get.request.to_be_bytes());
                out.extend_from_slice(get.content.as_bytes());
                out.extend_from_slice(&[get.chunk_log2, u8::from(get.in_order)]);
                out.push(get.reliability.code());
                out.extend_from_slice(&get.nack_timeout_ms.to_be_bytes());
                out.extend_from_slice(&get.credit.to_be_bytes());
                return get.resume.clone();
            }
            LocalRequest::Cancel { request } => put_number(out, 1, *request),
            LocalRequest::Consumed { request } => put_number(out, 2, *request),
            LocalRequest::Publish(publish) => {
                out.push(3);
                out.extend_from_slice(publish.content.as_bytes());
                out.extend_from_slice(&publish.content_len.to_be_bytes());
                out.push(publish.kind.code());
                put_short_text(out, &publish.file_name);
            }
            LocalRequest::Withdraw { content } => {
                out.push(4);
                out.extend_from_slice(content.as_bytes());
            }
            LocalRequest::ReadDone { read, chunk } => {
                out.push(5);
                out.extend_from_slice(&read.to_be_bytes());
                out.push(u8::from(chunk.is_some()));
                if let Some(chunk) = chunk {
                    out.extend_from_slice(&(chunk.proof.len() as u16).to_be_bytes());
                    out.extend_from_slice(&chunk.proof);
                    return chunk.data.clone();
                }
            }
            LocalRequest::Ping {
                request,
                destination,
                sequence,
                padding,
            } => {
                put_number(out, 6, *request);
                out.extend_from_slice(destination.as_bytes());
                out.extend_from_slice(&sequence.to_be_bytes());
                out.extend_from_slice(&padding.to_be_bytes());
            }
            LocalRequest::Status { request } => put_number(out, 7, *request),
            LocalRequest::Message {
                channel,
                destination,
                payload,
            } => {
                put_number(out, 8, *channel);
                out.extend_from_slice(destination.as_bytes());
                return payload.clone();
            }
            LocalRequest::Listen { channel } => put_number(out, 9, *channel),
            LocalRequest::Names { request, prefix } => {
                put_number(out, 10, *request);
                put_short_text(out, prefix.as_str());
            }
        }
        Bytes::new()
    }

    /// Decodes the content of a frame.
    pub fn decode(frame: &Bytes) -> Result<LocalRequest, WireError> {
        let mut reader = Reader(frame);
        let request = match reader.u8()? {
            0 => {
                return Ok(LocalRequest::Get(Get {
                    request: reader.u32()?,
                    content: reader.guid()?,
                    chunk_log2: reader.u8()?,
                    in_order: flag(reader.u8()?)?,
                    reliability: Reliability::from_code(reader.u8()?)?,
                    nack_timeout_ms: reader.u32()?,
                    credit: reader.u16()?,
                    resume: frame.slice_ref(reader.0),
                }));
            }
            1 => LocalRequest::Cancel {
                request: reader.u32()?,
            },
            2 => LocalRequest::Consumed {
                request: reader.u32()?,
            },
            3 => LocalRequest::Publish(Publish {
                content: reader.guid()?,
                content_len: reader.u64()?,
                kind: ContentKind::from_code(reader.u8()?)?,
                file_name: reader.short_text()?,
            }),
            4 => LocalRequest::Withdraw {
                content: reader.guid()?,
            },
            5 => {
                let read = reader.u64()?;
                if !flag(reader.u8()?)? {
                    LocalRequest::ReadDone { read, chunk: None }
                } else {
                    let proof_len = usize::from(reader.u16()?);
                    let proof = frame.slice_ref(reader.take(proof_len)?);
                    let data = frame.slice_ref(reader.0);
                    return Ok(LocalRequest::ReadDone {
                        read,
                        chunk: Some(ReadChunk { proof, data }),
                    });
                }
            }
            6 => LocalRequest::Ping {
                request: reader.u32()?,
                destination: reader.guid()?,
                sequence: reader.u32()?,
                padding: reader.u16()?,
            },
            7 => LocalRequest::Status {
                request: reader.u32()?,
            },
            8 => {
                return Ok(LocalRequest::Message {
                    channel: reader.u32()?,
                    destination: reader.guid()?,
                    payload: message_payload(frame, reader)?,
                });
            }
            9 => LocalRequest::Listen {
                channel: reader.u32()?,
            },
            10 => LocalRequest::Names {
                request: reader.u32()?,
                prefix: GuidPrefix::new(&reader.short_text()?)
                    .ok_or(WireError::Invalid("prefix of a name"))?,
            },
            other => return Err(WireError::MessageType(other)),
        };
        reader.finish()?;
        Ok(request)
    }
}

impl LocalEvent {
    /// True for an event that may be dropped for a program that does not read.
    pub fn is_report(&self) -> bool {
        matches!(
            self,
            LocalEvent::State { .. }
                | LocalEvent::Status { .. }
                | LocalEvent::Pong { .. }
                | LocalEvent::Message { .. }
                | LocalEvent::Names { .. }
        )
    }

    /// Appends the content of its frame, except for a chunk's bytes, which follow uncopied.
    pub fn encode_head(&self, out: &mut Vec<u8>) -> Bytes {
        match self {
            LocalEvent::Chunk(chunk) => {
                put_number(out, 0, chunk.request);
                out.extend_from_slice(&chunk.index.to_be_bytes());
                out.push(chunk.chunk_log2);
                out.extend_from_slice(&chunk.content_len.to_be_bytes());
                out.push(u8::from(chunk.len_proven));
                out.push(chunk.kind.code());
                put_short_text(out, &chunk.file_name);
                out.extend_from_slice(&(chunk.proof.len() as u16).to_be_bytes());
                out.extend_from_slice(&chunk.proof);
                return chunk.data.clone();
            }
            LocalEvent::State { request, state } => {
                put_number(out, 1, *request);
                out.push(state.code());
            }
            LocalEvent::Complete {
                request,
                content_len,
            } => {
                put_number(out, 2, *request);
                out.extend_from_slice(&content_len.to_be_bytes());
            }
            LocalEvent::Failed { request, reason } => {
                put_number(out, 3, *request);
                out.push(reason.code());
            }
            LocalEvent::Published { content, code } => {
                out.push(4);
                out.extend_from_slice(content.as_bytes());
                out.push(code.code());
            }
            LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            } => {
                out.push(5);
                out.extend_from_slice(&read.to_be_bytes());
                out.extend_from_slice(content.as_bytes());
                out.extend_from_slice(&index.to_be_bytes());
                out.push(*chunk_log2);
            }
            LocalEvent::Pong {
                request,
                sequence,
                from,
            } => {
                put_number(out, 6, *request);
                out.extend_from_slice(&sequence.to_be_bytes());
                out.extend_from_slice(from.as_bytes());
            }
            LocalEvent::Status { request, json } => {
                put_number(out, 7, *request);
                out.extend_from_slice(json.as_bytes());
            }
            LocalEvent::Message {
                channel,
                from,
                payload,
            } => {
                put_number(out, 8, *channel);
                out.extend_from_slice(from.as_bytes());
                return payload.clone();
            }
            LocalEvent::Names { request, names } => {
                put_number(out, 9, *request);
                out.push(names.len().min(MAX_NAMES) as u8);
                for name in names.iter().take(MAX_NAMES) {
                    out.extend_from_slice(name.as_bytes());
                }
            }
        }
        Bytes::new()
    }

    /// Decodes the content of a frame.
    pub fn decode(frame: &Bytes) -> Result<LocalEvent, WireError> {
        let mut reader = Reader(frame);
        let event = match reader.u8()? {
            0 => {
                return Ok(LocalEvent::Chunk(LocalChunk {
                    request: reader.u32()?,
                    index: reader.u32()?,
                    chunk_log2: reader.u8()?,
                    content_len: reader.u64()?,
                    len_proven: flag(reader.u8()?)?,
                    kind: ContentKind::from_code(reader.u8()?)?,
                    file_name: reader.short_text()?,
                    proof: {
                        let proof_len = usize::from(reader.u16()?);
                        frame.slice_ref(reader.take(proof_len)?)
                    },
                    verified: None,
                    data: frame.slice_ref(reader.0),
                }));
            }
            1 => LocalEvent::State {
                request: reader.u32()?,
                state: TransferState::from_code(reader.u8()?)?,
            },
            2 => LocalEvent::Complete {
                request: reader.u32()?,
                content_len: reader.u64()?,
            },
            3 => LocalEvent::Failed {
                request: reader.u32()?,
                reason: FailReason::from_code(reader.u8()?)?,
            },
            4 => LocalEvent::Published {
                content: reader.guid()?,
                code: ControlCode::from_code(reader.u8()?)?,
            },
            5 => LocalEvent::Read {
                read: reader.u64()?,
                content: reader.guid()?,
                index: reader.u32()?,
                chunk_log2: reader.u8()?,
            },
            6 => LocalEvent::Pong {
                request: reader.u32()?,
                sequence: reader.u32()?,
                from: reader.guid()?,
            },
            7 => {
                let request = reader.u32()?;
                let text =
                    core::str::from_utf8(reader.0).map_err(|_| WireError::Invalid("text"))?;
                return Ok(LocalEvent::Status {
                    request,
                    json: text.to_owned(),
                });
            }
            8 => {
                return Ok(LocalEvent::Message {
                    channel: reader.u32()?,
                    from: reader.guid()?,
                    payload: message_payload(frame, reader)?,
                });
            }
            9 => LocalEvent::Names {
                request: reader.u32()?,
                names: names(&mut reader)?,
            },
            other => return Err(WireError::MessageType(other)),
        };
        reader.finish()?;
        Ok(event)
    }
}

fn names(reader: &mut Reader<'_>) -> Result<Vec<Guid>, WireError> {
    let count = usize::from(reader.u8()?);
    if count > MAX_NAMES {
        return Err(WireError::Invalid("count of names"));
    }
    (0..count).map(|_| reader.guid()).collect()
}

/// The rest of a frame, if it does not exceed a message's limit.
fn message_payload(frame: &Bytes, reader: Reader<'_>) -> Result<Bytes, WireError> {
    if reader.0.len() > MAX_MESSAGE {
        return Err(WireError::Invalid("message length"));
    }
    Ok(frame.slice_ref(reader.0))
}

fn put_number(out: &mut Vec<u8>, kind: u8, number: u32) {
    out.push(kind);
    out.extend_from_slice(&number.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use whimbrel_content::{Assembly, ChunkSize, ChunkTree, Offer, Proof};

    fn bytes() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..60).prop_map(Bytes::from)
    }

    fn any_request() -> impl Strategy<Value = LocalRequest> {
        prop_oneof![
            (
                any::<u32>(),
                any::<[u8; 32]>(),
                any::<u8>(),
                any::<bool>(),
                0usize..3,
                any::<u32>(),
                bytes()
            )
                .prop_map(
                    |(
                        request,
                        content,
                        chunk_log2,
                        in_order,
                        reliability,
                        nack_timeout_ms,
                        resume,
                    )| {
                        LocalRequest::Get(Get {
                            request,
                            content: Guid(content),
                            chunk_log2,
                            in_order,
                            reliability: Reliability::ALL[reliability],
                            nack_timeout_ms,
                            credit: 8,
                            resume,
                        })
                    }
                ),
            any::<u32>().prop_map(|request| LocalRequest::Cancel { request }),
            any::<u32>().prop_map(|request| LocalRequest::Consumed { request }),
            (any::<[u8; 32]>(), any::<u64>(), 0usize..2, "[a-zäß]{0,20}").prop_map(
                |(content, content_len, kind, file_name)| LocalRequest::Publish(Publish {
                    content: Guid(content),
                    content_len,
                    kind: ContentKind::ALL[kind],
                    file_name
                })
            ),
            any::<[u8; 32]>().prop_map(|content| LocalRequest::Withdraw {
                content: Guid(content)
            }),
            (any::<u64>(), prop::option::of((bytes(), bytes()))).prop_map(|(read, chunk)| {
                let chunk = chunk.map(|(proof, data)| ReadChunk { proof, data });
                LocalRequest::ReadDone { read, chunk }
            }),
            (any::<u32>(), any::<[u8; 32]>(), any::<u32>(), any::<u16>()).prop_map(
                |(request, destination, sequence, padding)| LocalRequest::Ping {
                    request,
                    destination: Guid(destination),
                    sequence,
                    padding
                }
            ),
            any::<u32>().prop_map(|request| LocalRequest::Status { request }),
            any::<u32>().prop_map(|channel| LocalRequest::Listen { channel }),
            (any::<u32>(), "[0-9a-f]{4,63}").prop_map(|(request, text)| LocalRequest::Names {
                request,
                prefix: GuidPrefix::new(&text).unwrap(),
            }),
            (any::<u32>(), any::<[u8; 32]>(), bytes()).prop_map(
                |(channel, destination, payload)| LocalRequest::Message {
                    channel,
                    destination: Guid(destination),
                    payload
                }
            ),
        ]
    }

    fn any_event() -> impl Strategy<Value = LocalEvent> {
        prop_oneof![
            (
                any::<u32>(),
                any::<u32>(),
                any::<u64>(),
                any::<bool>(),
                0usize..2,
                "[a-zäß]{0,20}",
                bytes()
            )
                .prop_map(
                    |(request, index, content_len, len_proven, kind, file_name, data)| {
                        let kind = ContentKind::ALL[kind];
                        LocalEvent::Chunk(LocalChunk {
                            request,
                            index,
                            chunk_log2: 20,
                            content_len,
                            len_proven,
                            kind,
                            file_name,
                            proof: Bytes::from_static(b"proof"),
                            verified: None,
                            data,
                        })
                    }
                ),
            (any::<u32>(), 0usize..4).prop_map(|(request, at)| LocalEvent::State {
                request,
                state: TransferState::ALL[at]
            }),
            (any::<u32>(), any::<u64>()).prop_map(|(request, content_len)| LocalEvent::Complete {
                request,
                content_len
            }),
            (any::<u32>(), 0usize..5).prop_map(|(request, at)| LocalEvent::Failed {
                request,
                reason: FailReason::ALL[at]
            }),
            (any::<[u8; 32]>(), 0usize..6).prop_map(|(content, at)| LocalEvent::Published {
                content: Guid(content),
                code: ControlCode::ALL[at]
            }),
            (any::<u64>(), any::<[u8; 32]>(), any::<u32>(), any::<u8>()).prop_map(
                |(read, content, index, chunk_log2)| LocalEvent::Read {
                    read,
                    content: Guid(content),
                    index,
                    chunk_log2
                }
            ),
            (any::<u32>(), any::<u32>(), any::<[u8; 32]>()).prop_map(
                |(request, sequence, from)| {
                    LocalEvent::Pong {
                        request,
                        sequence,
                        from: Guid(from),
                    }
                }
            ),
            (any::<u32>(), "[a-z{}]{0,30}")
                .prop_map(|(request, json)| LocalEvent::Status { request, json }),
            (
                any::<u32>(),
                prop::collection::vec(any::<[u8; 32]>(), 0..=MAX_NAMES)
            )
                .prop_map(|(request, names)| LocalEvent::Names {
                    request,
                    names: names.into_iter().map(Guid).collect(),
                }),
            (any::<u32>(), any::<[u8; 32]>(), bytes()).prop_map(|(channel, from, payload)| {
                LocalEvent::Message {
                    channel,
                    from: Guid(from),
                    payload,
                }
            }),
        ]
    }

    #[test]
    fn no_frame_says_that_its_chunk_is_verified() {
        let data = Bytes::from_static(b"bytes");
        let tree = ChunkTree::from_reader(&data[..], ChunkSize::GROUP, &mut |_| {}).unwrap();
        let verified = Assembly::new(tree.root(), 5).check(&Offer {
            chunk_size: ChunkSize::GROUP,
            index: 0,
            claimed_len: 5,
            data: &data,
            proof: &Proof::default(),
        });
        let sent = LocalChunk {
            request: 1,
            index: 0,
            chunk_log2: 16,
            content_len: 5,
            len_proven: true,
            kind: ContentKind::File,
            file_name: String::new(),
            proof: Bytes::from_static(&[0]),
            verified: Some(verified.unwrap()),
            data,
        };
        let mut head = Vec::new();
        let tail = LocalEvent::Chunk(sent.clone()).encode_head(&mut head);
        let arrived = LocalEvent::decode(&whole(head, tail)).unwrap();
        let verified = None;
        let expected = LocalChunk { verified, ..sent };
        assert_eq!(arrived, LocalEvent::Chunk(expected));
    }

    fn whole(mut head: Vec<u8>, tail: Bytes) -> Bytes {
        head.extend_from_slice(&tail);
        head.into()
    }

    proptest! {
        #[test]
        fn requests_round_trip(request in any_request()) {
            let mut head = Vec::new();
            let tail = request.encode_head(&mut head);
            prop_assert_eq!(LocalRequest::decode(&whole(head, tail)), Ok(request));
        }

        #[test]
        fn events_round_trip(event in any_event()) {
            let mut head = Vec::new();
            let tail = event.encode_head(&mut head);
            prop_assert_eq!(LocalEvent::decode(&whole(head, tail)), Ok(event));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(kind in 0u8..12, bytes in prop::collection::vec(any::<u8>(), 0..150)) {
            let mut frame = vec![kind];
            frame.extend_from_slice(&bytes);
            let _ = LocalRequest::decode(&frame.clone().into());
            let _ = LocalEvent::decode(&frame.into());
        }
    }
}
