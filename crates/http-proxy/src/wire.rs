//! Heads and bodies on a stream (`docs/protocols/http.md`).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use whimbrel_core::Guid;

/// Longest head, in bytes.
pub const MAX_HEAD: usize = 64 << 10;
/// Maximum number of header fields of a head.
pub const MAX_FIELDS: usize = 256;
/// Longest piece of a body in one frame, in bytes.
pub const MAX_PIECE: usize = 1 << 20;
/// Longest reason for a body that ends early, in bytes.
pub const MAX_REASON: usize = 255;

/// The purpose of a stream: its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamPurpose {
    /// One request and its response.
    Exchange,
    /// Bytes to and from a server.
    Tunnel,
}

impl StreamPurpose {
    /// Returns the byte.
    pub fn code(self) -> u8 {
        match self {
            StreamPurpose::Exchange => 1,
            StreamPurpose::Tunnel => 2,
        }
    }

    /// Reads the byte.
    pub fn from_code(code: u8) -> Option<StreamPurpose> {
        match code {
            1 => Some(StreamPurpose::Exchange),
            2 => Some(StreamPurpose::Tunnel),
            _ => None,
        }
    }
}

/// Why bytes are no head or frame.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireFault {
    /// It ends too early.
    #[error("the message is cut short")]
    Short,
    /// It exceeds a bound.
    #[error("{0} is longer than the bound")]
    TooLong(&'static str),
    /// HTTP does not permit it.
    #[error("{0} is not valid in HTTP")]
    Invalid(&'static str),
}

/// A frame of a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BodyFrame {
    /// Bytes of the body.
    Data(Bytes),
    /// The body ends here, with these trailers.
    End(HeaderMap),
    /// The body is cut off: the sender cannot get the rest.
    Failed(String),
    /// The whole body is a content of this name.
    Content {
        /// Its name.
        name: Guid,
        /// Its length in bytes.
        length: u64,
    },
}

const FRAME_DATA: u8 = 0;
const FRAME_END: u8 = 1;
const FRAME_FAILED: u8 = 2;
const FRAME_CONTENT: u8 = 3;
/// Length of a content's name and of its length.
const CONTENT_LEN: usize = Guid::LEN + 8;

/// Bytes before a frame's content: its type and its length.
pub const FRAME_HEAD: usize = 5;

impl BodyFrame {
    /// Returns the head of a frame of this many bytes of data, which follow it.
    pub fn data_head(length: usize) -> Bytes {
        head(FRAME_DATA, length)
    }

    /// Encodes the frame.
    pub fn encode(&self) -> Result<Bytes, WireFault> {
        let (kind, content) = match self {
            BodyFrame::Data(data) => (FRAME_DATA, data.clone()),
            BodyFrame::End(trailers) => {
                let mut content = BytesMut::new();
                put_fields(&mut content, trailers)?;
                (FRAME_END, content.freeze())
            }
            BodyFrame::Failed(reason) => {
                let end = reason.floor_char_boundary(MAX_REASON);
                (
                    FRAME_FAILED,
                    Bytes::copy_from_slice(&reason.as_bytes()[..end]),
                )
            }
            BodyFrame::Content { name, length } => {
                let content = [&name.0[..], &length.to_be_bytes()].concat();
                (FRAME_CONTENT, content.into())
            }
        };
        let mut out = BytesMut::from(head(kind, content.len()));
        out.put_slice(&content);
        Ok(out.freeze())
    }

    /// Returns the length of the content that follows a frame's head.
    pub fn length(head: [u8; FRAME_HEAD]) -> Result<usize, WireFault> {
        let [kind, length @ ..] = head;
        let length = u32::from_be_bytes(length) as usize;
        let most = match kind {
            FRAME_DATA => MAX_PIECE,
            FRAME_END => MAX_HEAD,
            FRAME_FAILED => MAX_REASON,
            FRAME_CONTENT => CONTENT_LEN,
            _ => return Err(WireFault::Invalid("the type of a frame")),
        };
        match length <= most {
            true => Ok(length),
            false => Err(WireFault::TooLong("a frame")),
        }
    }

    /// Decodes the content of a frame of this type.
    pub fn decode(kind: u8, mut content: Bytes) -> Result<BodyFrame, WireFault> {
        Ok(match kind {
            FRAME_DATA => BodyFrame::Data(content),
            FRAME_END => {
                let fields = take_fields(&mut content)?;
                ended(&content)?;
                BodyFrame::End(fields)
            }
            FRAME_FAILED => {
                let reason = String::from_utf8(content.into());
                BodyFrame::Failed(reason.map_err(|_| WireFault::Invalid("a reason"))?)
            }
            FRAME_CONTENT => {
                let mut name = [0; Guid::LEN];
                content.try_copy_to_slice(&mut name)?;
                let length = content.try_get_u64()?;
                ended(&content)?;
                BodyFrame::Content {
                    name: Guid(name),
                    length,
                }
            }
            _ => return Err(WireFault::Invalid("the type of a frame")),
        })
    }
}

fn head(kind: u8, length: usize) -> Bytes {
    let mut out = BytesMut::with_capacity(FRAME_HEAD);
    out.put_u8(kind);
    out.put_u32(length as u32);
    out.freeze()
}

/// Encodes the head of a request, after its length.
pub fn encode_request(request: &Request<()>) -> Result<Bytes, WireFault> {
    with_length(|out| {
        put_short(out, request.method().as_str(), "a method")?;
        put_long(out, request.uri().to_string().as_bytes(), "a target")?;
        put_fields(out, request.headers())
    })
}

/// Decodes the head of a request, without its length.
pub fn decode_request(mut head: Bytes) -> Result<Request<()>, WireFault> {
    let method = Method::from_bytes(&take_short(&mut head)?);
    let target = Uri::from_maybe_shared(take_long(&mut head)?);
    let mut request = Request::new(());
    *request.method_mut() = method.map_err(|_| WireFault::Invalid("a method"))?;
    *request.uri_mut() = target.map_err(|_| WireFault::Invalid("a target"))?;
    *request.headers_mut() = take_fields(&mut head)?;
    ended(&head)?;
    Ok(request)
}

/// Encodes the head of a response, after its length.
pub fn encode_response(response: &Response<()>) -> Result<Bytes, WireFault> {
    with_length(|out| {
        out.put_u16(response.status().as_u16());
        put_fields(out, response.headers())
    })
}

/// Decodes the head of a response, without its length.
pub fn decode_response(mut head: Bytes) -> Result<Response<()>, WireFault> {
    let status = StatusCode::from_u16(head.try_get_u16()?);
    let mut response = Response::new(());
    *response.status_mut() = status.map_err(|_| WireFault::Invalid("a status"))?;
    *response.headers_mut() = take_fields(&mut head)?;
    ended(&head)?;
    Ok(response)
}

/// Encodes what opens a tunnel: the server's `host:port`.
pub fn encode_tunnel(authority: &str) -> Result<Bytes, WireFault> {
    let mut out = BytesMut::new();
    put_short(&mut out, authority, "a server's name")?;
    Ok(out.freeze())
}

/// Encodes the answer to it: status 200 if the server is connected, otherwise the reason.
pub fn encode_tunnel_answer(status: StatusCode, reason: &str) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u16(status.as_u16());
    let end = reason.floor_char_boundary(MAX_REASON);
    out.put_u8(end as u8);
    out.put_slice(&reason.as_bytes()[..end]);
    out.freeze()
}

fn with_length(
    content: impl FnOnce(&mut BytesMut) -> Result<(), WireFault>,
) -> Result<Bytes, WireFault> {
    let mut out = BytesMut::new();
    out.put_u32(0);
    content(&mut out)?;
    let length = out.len() - 4;
    if length > MAX_HEAD {
        return Err(WireFault::TooLong("a head"));
    }
    out[..4].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(out.freeze())
}

fn put_short(out: &mut BytesMut, text: &str, what: &'static str) -> Result<(), WireFault> {
    let length = u8::try_from(text.len()).map_err(|_| WireFault::TooLong(what))?;
    out.put_u8(length);
    out.put_slice(text.as_bytes());
    Ok(())
}

fn put_long(out: &mut BytesMut, text: &[u8], what: &'static str) -> Result<(), WireFault> {
    let length = u16::try_from(text.len()).map_err(|_| WireFault::TooLong(what))?;
    out.put_u16(length);
    out.put_slice(text);
    Ok(())
}

fn put_fields(out: &mut BytesMut, fields: &HeaderMap) -> Result<(), WireFault> {
    if fields.len() > MAX_FIELDS {
        return Err(WireFault::TooLong("the list of header fields"));
    }
    out.put_u16(fields.len() as u16);
    for (name, value) in fields {
        put_short(out, name.as_str(), "a header field's name")?;
        put_long(out, value.as_bytes(), "a header field")?;
    }
    Ok(())
}

fn take_short(rest: &mut Bytes) -> Result<Bytes, WireFault> {
    let length = usize::from(rest.try_get_u8()?);
    take(rest, length)
}

fn take_long(rest: &mut Bytes) -> Result<Bytes, WireFault> {
    let length = usize::from(rest.try_get_u16()?);
    take(rest, length)
}

fn take(rest: &mut Bytes, length: usize) -> Result<Bytes, WireFault> {
    match rest.len() >= length {
        true => Ok(rest.split_to(length)),
        false => Err(WireFault::Short),
    }
}

fn take_fields(rest: &mut Bytes) -> Result<HeaderMap, WireFault> {
    let count = usize::from(rest.try_get_u16()?);
    if count > MAX_FIELDS {
        return Err(WireFault::TooLong("the list of header fields"));
    }
    let mut fields = HeaderMap::with_capacity(count);
    for _ in 0..count {
        let name = HeaderName::from_bytes(&take_short(rest)?);
        let value = HeaderValue::from_maybe_shared(take_long(rest)?);
        fields.append(
            name.map_err(|_| WireFault::Invalid("a header field's name"))?,
            value.map_err(|_| WireFault::Invalid("a header field"))?,
        );
    }
    Ok(fields)
}

fn ended(rest: &Bytes) -> Result<(), WireFault> {
    match rest.is_empty() {
        true => Ok(()),
        false => Err(WireFault::Invalid("what follows a message")),
    }
}

impl From<bytes::TryGetError> for WireFault {
    fn from(_: bytes::TryGetError) -> WireFault {
        WireFault::Short
    }
}
