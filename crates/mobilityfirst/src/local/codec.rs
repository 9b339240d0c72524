//! Requests and events as frames (`docs/protocols/local.md`).

use bytes::Bytes;
use whimbrel_core::{Guid, GuidPrefix};
use whimbrel_gnrs::GroupAdmission;

use super::delivery::{put_accept, put_publish, read_publish};
use super::{
    AcceptOffer, ContentOffer, Delivery, FailReason, Get, LocalChunk, LocalEvent, LocalRequest,
    MAX_NAMES, MembershipChange, MissingParts, OfferId, OfferVerdict, ReadChunk, SendContent,
    SendState, ServiceKey, TransferOptions, TransferState,
};
use crate::wire::{ContentKind, ControlCode, MAX_MESSAGE, Reader, WireError, put_short_text};

fn flag(code: u8) -> Result<bool, WireError> {
    match code {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Invalid("flag")),
    }
}

/// Appends a request, but for the record at its end, which is returned.
fn put_get(out: &mut Vec<u8>, get: &Get) -> Bytes {
    out.extend_from_slice(&get.request.to_be_bytes());
    out.extend_from_slice(get.content.as_bytes());
    get.options.encode(out);
    out.push(u8::from(get.in_order));
    out.extend_from_slice(&get.credit.to_be_bytes());
    get.resume.clone()
}

/// Reads the same to the end of its frame.
fn read_get(frame: &Bytes, mut reader: Reader<'_>) -> Result<Get, WireError> {
    Ok(Get {
        request: reader.u32()?,
        content: reader.guid()?,
        options: TransferOptions::read(&mut reader)?,
        in_order: flag(reader.u8()?)?,
        credit: reader.u16()?,
        resume: frame.slice_ref(reader.0),
    })
}

impl LocalRequest {
    /// Appends the content of its frame, except for a chunk's bytes, which follow uncopied.
    pub fn encode_head(&self, out: &mut Vec<u8>) -> Bytes {
        match self {
            LocalRequest::Get(get) => {
                out.push(0);
                return put_get(out, get);
            }
            LocalRequest::GetFrom { caller, get } => {
                out.push(13);
                out.extend_from_slice(caller.as_bytes());
                return put_get(out, get);
            }
            LocalRequest::Cancel { request } => put_number(out, 1, *request),
            LocalRequest::Consumed { request } => put_number(out, 2, *request),
            LocalRequest::Publish(publish, options) => {
                out.push(3);
                put_publish(out, publish);
                options.encode(out);
            }
            LocalRequest::Send(send) => {
                out.push(14);
                send.encode(out);
            }
            LocalRequest::TakeOffers => out.push(15),
            LocalRequest::Attach { key } => put_name(out, 18, &Guid(key.0)),
            LocalRequest::Join { admission, change } => put_join(out, admission, *change),
            LocalRequest::Members { request, group } => {
                put_number(out, 21, *request);
                out.extend_from_slice(group.as_bytes());
            }
            LocalRequest::Accept(accept) => {
                out.push(16);
                return put_accept(out, accept, put_get);
            }
            LocalRequest::Settle {
                id,
                content,
                verdict,
            } => {
                out.push(17);
                id.encode(out);
                out.extend_from_slice(content.as_bytes());
                out.push(verdict.code());
            }
            LocalRequest::Delegate { content, is_on } => {
                out.push(19);
                out.extend_from_slice(content.as_bytes());
                out.push(u8::from(*is_on));
            }
            LocalRequest::Withdraw { content } => put_name(out, 4, content),
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
                delivery,
                payload,
            } => {
                put_number(out, 8, *channel);
                out.extend_from_slice(destination.as_bytes());
                out.extend_from_slice(&delivery.bytes());
                return payload.clone();
            }
            LocalRequest::Listen { channel } => put_number(out, 9, *channel),
            LocalRequest::Interfaces { request, change } => {
                put_number(out, 11, *request);
                out.extend_from_slice(change.as_bytes());
            }
            LocalRequest::Callers { request, change } => {
                put_number(out, 12, *request);
                out.extend_from_slice(change.as_bytes());
            }
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
            0 => return read_get(frame, reader).map(LocalRequest::Get),
            13 => {
                let caller = reader.guid()?;
                let get = read_get(frame, reader)?;
                return Ok(LocalRequest::GetFrom { caller, get });
            }
            1 => LocalRequest::Cancel {
                request: reader.u32()?,
            },
            2 => LocalRequest::Consumed {
                request: reader.u32()?,
            },
            3 => LocalRequest::Publish(
                read_publish(&mut reader)?,
                TransferOptions::read(&mut reader)?,
            ),
            14 => LocalRequest::Send(SendContent::read(&mut reader)?),
            15 => LocalRequest::TakeOffers,
            18 => LocalRequest::Attach {
                key: ServiceKey(reader.guid()?.0),
            },
            19 => LocalRequest::Delegate {
                content: reader.guid()?,
                is_on: flag(reader.u8()?)?,
            },
            20 => read_join(&mut reader)?,
            21 => LocalRequest::Members {
                request: reader.u32()?,
                group: reader.guid()?,
            },
            16 => {
                let id = OfferId::read(&mut reader)?;
                let get = read_get(frame, reader)?;
                return Ok(LocalRequest::Accept(AcceptOffer { id, get }));
            }
            17 => LocalRequest::Settle {
                id: OfferId::read(&mut reader)?,
                content: reader.guid()?,
                verdict: OfferVerdict::from_code(reader.u8()?)?,
            },
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
                    delivery: Delivery::read(&mut reader)?,
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
            kind @ (11 | 12) => {
                let request = reader.u32()?;
                let change = String::from_utf8(reader.0.to_vec())
                    .map_err(|_| WireError::Invalid("change that is no text"))?;
                return Ok(match kind {
                    11 => LocalRequest::Interfaces { request, change },
                    _ => LocalRequest::Callers { request, change },
                });
            }
            other => return Err(WireError::MessageType(other)),
        };
        reader.finish()?;
        Ok(request)
    }
}

impl LocalEvent {
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
            LocalEvent::Incomplete { request, missing } => {
                put_number(out, 12, *request);
                missing.encode(out);
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
            LocalEvent::Sending {
                request,
                state,
                taken,
                stored,
            } => {
                put_number(out, 10, *request);
                out.push(state.code());
                out.extend_from_slice(&taken.to_be_bytes());
                out.extend_from_slice(&stored.to_be_bytes());
            }
            LocalEvent::Offered(offer) => {
                out.push(11);
                offer.encode(out);
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
            10 => LocalEvent::Sending {
                request: reader.u32()?,
                state: SendState::from_code(reader.u8()?)?,
                taken: reader.u64()?,
                stored: reader.u64()?,
            },
            11 => LocalEvent::Offered(ContentOffer::read(&mut reader)?),
            12 => LocalEvent::Incomplete {
                request: reader.u32()?,
                missing: MissingParts::read(&mut reader)?,
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

/// Returns the rest of a frame, if it does not exceed a message's limit.
fn message_payload(frame: &Bytes, reader: Reader<'_>) -> Result<Bytes, WireError> {
    if reader.0.len() > MAX_MESSAGE {
        return Err(WireError::Invalid("message length"));
    }
    Ok(frame.slice_ref(reader.0))
}

fn put_name(out: &mut Vec<u8>, kind: u8, name: &Guid) {
    out.push(kind);
    out.extend_from_slice(name.as_bytes());
}

fn put_join(out: &mut Vec<u8>, admission: &GroupAdmission, change: MembershipChange) {
    out.extend_from_slice(&[20, change as u8]);
    out.extend_from_slice(&admission.to_bytes());
}

fn read_join(reader: &mut Reader<'_>) -> Result<LocalRequest, WireError> {
    let change = match reader.u8()? {
        0 => MembershipChange::Leave,
        1 => MembershipChange::Join,
        2 => MembershipChange::JoinAsGroup,
        _ => return Err(WireError::Invalid("membership")),
    };
    let admission = GroupAdmission::from_bytes(reader.take(GroupAdmission::LEN)?)
        .map_err(|_| WireError::Invalid("admission"))?;
    Ok(LocalRequest::Join { admission, change })
}

fn put_number(out: &mut Vec<u8>, kind: u8, number: u32) {
    out.push(kind);
    out.extend_from_slice(&number.to_be_bytes());
}

#[cfg(test)]
mod tests;
