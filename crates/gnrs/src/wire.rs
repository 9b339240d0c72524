//! The lookup protocol: one message per datagram, at most [`MAX_FRAME`] bytes.
//!
//! Layout and rules are in `docs/protocols/gnrs.md`, examples in `docs/protocols/vectors/gnrs.txt`,
//! which a test parses. Every frame ends with a CRC-32C, because the checksum of the datagram below
//! is optional (UDP over IPv4), absent (other carriers) or, at 16 bits, too short for bad links.

mod records;

use whimbrel_core::Guid;

use crate::record::{DecodeError, RecordKey, RecordView};

pub use records::{Page, RecordBuffer, RecordList};

/// Largest frame in bytes: fits every Internet path (IPv6's 1280 less headers).
pub const MAX_FRAME: usize = 1200;
/// Shortest frame in bytes: header and checksum.
pub const MIN_FRAME: usize = HEADER_LEN + CHECKSUM_LEN;
/// The only version.
pub const VERSION: u8 = 1;
/// Length in bytes to which a lookup without a cookie is padded: an answer that fits in it needs no
/// challenge.
pub const PADDED_LOOKUP: usize = 512;

const HEADER_LEN: usize = 20;
const CHECKSUM_LEN: usize = 4;
const FLAG_MORE: u8 = 1;
/// In the index of a LOOKUP: the server answers from its own records, without asking its peers.
pub const OWN_RECORDS: u16 = 0x8000;
/// Room for records in the longest header of an answer, that to a watch: name, lease, index and
/// count precede them.
const MAX_RECORDS_LEN: usize = MAX_FRAME - MIN_FRAME - Guid::LEN - 4 - 2 - 1;

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
pub enum Code {
    /// Done. Requests and pushes carry it too.
    Ok,
    /// The name has no record.
    NotFound,
    /// Repeat with the cookie of this answer: the source address of the request is not proven.
    NeedCookie,
    /// A newer version is stored.
    Stale,
    /// The same version is stored with other contents.
    Conflict,
    /// The signature or the public key is bad.
    BadSignature,
    /// The name is not the hash of the key.
    WrongKey,
    /// The record has expired.
    Expired,
    /// The record was issued in the future.
    FromTheFuture,
    /// The frame or the record is not well-formed.
    Malformed,
    /// The server speaks another version.
    UnknownVersion,
    /// The store is full.
    Full,
    /// The store cannot write now.
    StoreFailed,
    /// Too many watches, of this client or in total.
    TooManyWatches,
    /// The owner has revoked the name that signed.
    Revoked,
}

impl Code {
    const ALL: [Code; 15] = [
        Code::Ok,
        Code::NotFound,
        Code::NeedCookie,
        Code::Stale,
        Code::Conflict,
        Code::BadSignature,
        Code::WrongKey,
        Code::Expired,
        Code::FromTheFuture,
        Code::Malformed,
        Code::UnknownVersion,
        Code::Full,
        Code::StoreFailed,
        Code::TooManyWatches,
        Code::Revoked,
    ];

    fn from_byte(byte: u8) -> Option<Code> {
        Code::ALL.get(usize::from(byte)).copied()
    }
}

/// One frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Chosen at random by the requester; an answer repeats it.
    pub id: u64,
    /// The cookie that the server assigned to this client to prove that it receives at its address;
    /// 0 before that.
    pub cookie: u64,
    /// [`Code::Ok`] except in answers.
    pub code: Code,
    /// The message.
    pub message: Message<'a>,
}

/// The message of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// Client to server: the records of `guid`, from index `first` on.
    Lookup {
        /// The name.
        guid: Guid,
        /// Index of the first wanted record: 0, or the end of a truncated answer.
        first: u16,
        /// Number of padding bytes, so that the answer need not be longer than the request.
        padding: usize,
    },
    /// Client to server: store this record. An update is a newer version, a removal a record with
    /// the removal flag.
    Insert {
        /// The record.
        record: RecordView<'a>,
    },
    /// Client to server: push every change of `guid` for a while.
    Watch {
        /// The name.
        guid: Guid,
        /// For how long, in seconds.
        lease_secs: u32,
    },
    /// Client to server: stop pushing.
    Unwatch {
        /// The name.
        guid: Guid,
    },
    /// Client to server: acknowledges the push of this id.
    PushAck {
        /// The name.
        guid: Guid,
    },
    /// A program on the server's machine to the server: the records that follow a key.
    List {
        /// The key of the last record that is known; all zero at first.
        after: RecordKey,
    },
    /// Server to client.
    LookupAnswer {
        /// The name.
        guid: Guid,
        /// Its records.
        page: Page<'a>,
    },
    /// Server to client.
    InsertAnswer {
        /// The record's subject.
        guid: Guid,
        /// The stored version; 0 if none.
        version: u64,
    },
    /// Server to client: the watch is active, with the initial state.
    WatchAnswer {
        /// The name.
        guid: Guid,
        /// For how long, in seconds; never longer than requested.
        lease_secs: u32,
        /// Its records.
        page: Page<'a>,
    },
    /// Server to client: the watch is removed.
    UnwatchAnswer {
        /// The name.
        guid: Guid,
    },
    /// Server to client: these records have changed.
    Push {
        /// The name.
        guid: Guid,
        /// The records that changed.
        records: RecordList<'a>,
    },
    /// Server to client: some records, in the order of their keys.
    ListAnswer {
        /// The records; none if there are no further ones.
        records: RecordList<'a>,
    },
    /// Server to client: refused; the code gives the reason.
    Refused,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Shorter than [`MIN_FRAME`] or longer than [`MAX_FRAME`].
    #[error("a frame cannot have {0} bytes")]
    Length(usize),
    /// The checksum is wrong.
    #[error("the checksum does not match")]
    Checksum,
    /// Of another version.
    #[error("version {0} is unknown")]
    Version(u8),
    /// Type, code or flags unknown.
    #[error("message type, code or flags unknown")]
    Unknown,
    /// The body does not match the type.
    #[error("the body does not match the message type")]
    Body,
    /// A record in it is malformed.
    #[error("a record in it is malformed: {0}")]
    Record(#[from] DecodeError),
}

mod kind {
    pub(super) const LOOKUP: u8 = 0x01;
    pub(super) const INSERT: u8 = 0x02;
    pub(super) const WATCH: u8 = 0x03;
    pub(super) const UNWATCH: u8 = 0x04;
    pub(super) const PUSH_ACK: u8 = 0x05;
    pub(super) const LIST: u8 = 0x06;
    pub(super) const LOOKUP_ANSWER: u8 = 0x81;
    pub(super) const INSERT_ANSWER: u8 = 0x82;
    pub(super) const WATCH_ANSWER: u8 = 0x83;
    pub(super) const UNWATCH_ANSWER: u8 = 0x84;
    pub(super) const PUSH: u8 = 0x85;
    pub(super) const LIST_ANSWER: u8 = 0x86;
    pub(super) const REFUSED: u8 = 0xff;
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Returns the id of an undamaged request that cannot be decoded, so that it can be refused.
/// Answers have none: an answer is never answered.
pub fn refusable_id(bytes: &[u8]) -> Option<u64> {
    let (said, sum) = bytes.split_last_chunk::<CHECKSUM_LEN>()?;
    let asks =
        said.len() >= HEADER_LEN && *said.get(1)? < 0x80 && checksum(said).to_be_bytes() == *sum;
    asks.then(|| Body(&said[4..]).number::<8>().map(u64::from_be_bytes))?
        .ok()
}

impl<'a> Frame<'a> {
    /// Returns a request.
    pub fn request(id: u64, cookie: u64, message: Message<'a>) -> Frame<'a> {
        Frame {
            id,
            cookie,
            code: Code::Ok,
            message,
        }
    }

    /// Decodes one frame.
    pub fn decode(bytes: &'a [u8]) -> Result<Frame<'a>, WireError> {
        if !(MIN_FRAME..=MAX_FRAME).contains(&bytes.len()) {
            return Err(WireError::Length(bytes.len()));
        }
        let (said, sum) = bytes
            .split_last_chunk()
            .ok_or(WireError::Length(bytes.len()))?;
        if checksum(said) != u32::from_be_bytes(*sum) {
            return Err(WireError::Checksum);
        }
        let mut body = Body(said);
        let [version, kind, code, flags] = body.number::<4>()?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let code = Code::from_byte(code).ok_or(WireError::Unknown)?;
        let id = u64::from_be_bytes(body.number()?);
        let cookie = u64::from_be_bytes(body.number()?);
        let paged = matches!(kind, kind::LOOKUP_ANSWER | kind::WATCH_ANSWER);
        if flags & !FLAG_MORE != 0 || (flags != 0 && !paged) {
            return Err(WireError::Unknown);
        }
        let may_fail = matches!(
            kind,
            kind::LOOKUP_ANSWER..=kind::WATCH_ANSWER | kind::REFUSED
        );
        if code != Code::Ok && !may_fail {
            return Err(WireError::Unknown);
        }
        let message = body.message(kind, flags & FLAG_MORE != 0)?;
        if !body.0.is_empty() {
            return Err(WireError::Body);
        }
        Ok(Frame {
            id,
            cookie,
            code,
            message,
        })
    }

    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let (kind, more) = self.message.kind();
        out.reserve(MIN_FRAME + self.message.body_bound());
        out.extend([
            VERSION,
            kind,
            self.code as u8,
            if more { FLAG_MORE } else { 0 },
        ]);
        out.extend(self.id.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        self.message.encode_body(out);
        let sum = checksum(&out[start..]);
        out.extend(sum.to_be_bytes());
    }
}

impl Message<'_> {
    fn kind(&self) -> (u8, bool) {
        match self {
            Message::Lookup { .. } => (kind::LOOKUP, false),
            Message::Insert { .. } => (kind::INSERT, false),
            Message::Watch { .. } => (kind::WATCH, false),
            Message::Unwatch { .. } => (kind::UNWATCH, false),
            Message::PushAck { .. } => (kind::PUSH_ACK, false),
            Message::List { .. } => (kind::LIST, false),
            Message::LookupAnswer { page, .. } => (kind::LOOKUP_ANSWER, page.more),
            Message::InsertAnswer { .. } => (kind::INSERT_ANSWER, false),
            Message::WatchAnswer { page, .. } => (kind::WATCH_ANSWER, page.more),
            Message::UnwatchAnswer { .. } => (kind::UNWATCH_ANSWER, false),
            Message::Push { .. } => (kind::PUSH, false),
            Message::ListAnswer { .. } => (kind::LIST_ANSWER, false),
            Message::Refused => (kind::REFUSED, false),
        }
    }

    /// Returns an upper bound of the body's length, so that an answer is allocated once.
    fn body_bound(&self) -> usize {
        let variable = match self {
            Message::Lookup { padding, .. } => *padding,
            Message::Insert { record } => record.as_bytes().len(),
            Message::LookupAnswer { page, .. } | Message::WatchAnswer { page, .. } => {
                page.records.bytes.len()
            }
            Message::Push { records, .. } | Message::ListAnswer { records } => records.bytes.len(),
            Message::List { .. } => Guid::LEN,
            Message::Watch { .. }
            | Message::Unwatch { .. }
            | Message::PushAck { .. }
            | Message::InsertAnswer { .. }
            | Message::UnwatchAnswer { .. }
            | Message::Refused => 0,
        };
        Guid::LEN + 8 + variable
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Message::Lookup {
                guid,
                first,
                padding,
            } => {
                out.extend(guid.0);
                out.extend(first.to_be_bytes());
                out.resize(out.len() + padding, 0);
            }
            Message::Insert { record } => out.extend_from_slice(record.as_bytes()),
            Message::Watch { guid, lease_secs } => {
                out.extend(guid.0);
                out.extend(lease_secs.to_be_bytes());
            }
            Message::Unwatch { guid }
            | Message::PushAck { guid }
            | Message::UnwatchAnswer { guid } => {
                out.extend(guid.0);
            }
            Message::LookupAnswer { guid, page } => {
                out.extend(guid.0);
                page.encode(out);
            }
            Message::InsertAnswer { guid, version } => {
                out.extend(guid.0);
                out.extend(version.to_be_bytes());
            }
            Message::WatchAnswer {
                guid,
                lease_secs,
                page,
            } => {
                out.extend(guid.0);
                out.extend(lease_secs.to_be_bytes());
                page.encode(out);
            }
            Message::Push { guid, records } => {
                out.extend(guid.0);
                records.encode(out);
            }
            Message::List { after } => {
                out.extend(after.subject.0);
                out.extend(after.provider.0);
            }
            Message::ListAnswer { records } => records.encode(out),
            Message::Refused => {}
        }
    }
}

/// The unread part of a frame.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn number<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(WireError::Body)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn guid(&mut self) -> Result<Guid, WireError> {
        self.number().map(Guid)
    }

    fn records(&mut self) -> Result<RecordList<'a>, WireError> {
        let [count] = self.number()?;
        let bytes = self.0;
        for _ in 0..count {
            self.0 = RecordView::split(self.0)?.1;
        }
        Ok(RecordList {
            count,
            bytes: &bytes[..bytes.len() - self.0.len()],
        })
    }

    fn page(&mut self, more: bool) -> Result<Page<'a>, WireError> {
        Ok(Page {
            first: u16::from_be_bytes(self.number()?),
            more,
            records: self.records()?,
        })
    }

    fn message(&mut self, kind: u8, more: bool) -> Result<Message<'a>, WireError> {
        Ok(match kind {
            kind::LOOKUP => {
                let (guid, first) = (self.guid()?, u16::from_be_bytes(self.number()?));
                let padding = core::mem::take(&mut self.0);
                if padding.iter().any(|byte| *byte != 0) {
                    return Err(WireError::Body);
                }
                Message::Lookup {
                    guid,
                    first,
                    padding: padding.len(),
                }
            }
            kind::INSERT => {
                let (record, rest) = RecordView::split(self.0)?;
                self.0 = rest;
                Message::Insert { record }
            }
            kind::WATCH => Message::Watch {
                guid: self.guid()?,
                lease_secs: u32::from_be_bytes(self.number()?),
            },
            kind::UNWATCH => Message::Unwatch { guid: self.guid()? },
            kind::PUSH_ACK => Message::PushAck { guid: self.guid()? },
            kind::LOOKUP_ANSWER => Message::LookupAnswer {
                guid: self.guid()?,
                page: self.page(more)?,
            },
            kind::INSERT_ANSWER => Message::InsertAnswer {
                guid: self.guid()?,
                version: u64::from_be_bytes(self.number()?),
            },
            kind::WATCH_ANSWER => Message::WatchAnswer {
                guid: self.guid()?,
                lease_secs: u32::from_be_bytes(self.number()?),
                page: self.page(more)?,
            },
            kind::UNWATCH_ANSWER => Message::UnwatchAnswer { guid: self.guid()? },
            kind::PUSH => Message::Push {
                guid: self.guid()?,
                records: self.records()?,
            },
            kind::LIST => Message::List {
                after: RecordKey {
                    subject: self.guid()?,
                    provider: self.guid()?,
                },
            },
            kind::LIST_ANSWER => Message::ListAnswer {
                records: self.records()?,
            },
            kind::REFUSED => Message::Refused,
            _ => return Err(WireError::Unknown),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyPair, Record, Statement};
    use proptest::prelude::*;

    fn records(count: u8) -> RecordBuffer {
        let mut buffer = RecordBuffer::default();
        for seed in 0..count {
            let keys = KeyPair::from_secret(&[seed; 32]);
            buffer.push(&Record::binding(&keys, &Statement::new(1000, 1000, vec![])).unwrap());
        }
        buffer
    }

    fn message(choice: u8, guid: Guid, number: u32, list: RecordList<'_>) -> Message<'_> {
        let page = Page {
            first: number as u16,
            more: number & 1 == 1,
            records: list,
        };
        match choice {
            0 => Message::Lookup {
                guid,
                first: number as u16,
                padding: number as usize % 1000,
            },
            1 => Message::Watch {
                guid,
                lease_secs: number,
            },
            2 => Message::Unwatch { guid },
            3 => Message::PushAck { guid },
            4 => Message::LookupAnswer { guid, page },
            5 => Message::InsertAnswer {
                guid,
                version: u64::from(number) << 30,
            },
            6 => Message::WatchAnswer {
                guid,
                lease_secs: number,
                page,
            },
            7 => Message::UnwatchAnswer { guid },
            8 => Message::Push {
                guid,
                records: list,
            },
            9 => list
                .iter()
                .next()
                .map_or(Message::Refused, |record| Message::Insert { record }),
            10 => Message::List {
                after: RecordKey {
                    subject: guid,
                    provider: Guid([number as u8; 32]),
                },
            },
            11 => Message::ListAnswer { records: list },
            _ => Message::Refused,
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(choice in 0u8..13, guid: [u8; 32], id: u64, cookie: u64, number: u32, count in 0u8..9) {
            let buffer = records(count);
            let frame = Frame::request(id, cookie, message(choice, Guid(guid), number, buffer.list()));
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            prop_assert!((MIN_FRAME..=MAX_FRAME).contains(&bytes.len()));
            prop_assert_eq!(Frame::decode(&bytes), Ok(frame));
        }

        #[test]
        fn a_damaged_frame_is_never_read(choice in 0u8..13, at: prop::sample::Index, bit in 0u8..8) {
            let buffer = records(2);
            let mut bytes = Vec::new();
            Frame::request(1, 2, message(choice, Guid([3; 32]), 4, buffer.list())).encode(&mut bytes);
            *at.get_mut(&mut bytes[..]) ^= 1 << bit;
            prop_assert_eq!(Frame::decode(&bytes), Err(WireError::Checksum));
            prop_assert_eq!(refusable_id(&bytes), None);
        }

        /// With a correct checksum, so that the fields behind it are reached.
        #[test]
        fn any_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..1300), kind in 0u8..7, answer: bool) {
            if bytes.len() > 20 {
                bytes[0] = VERSION;
                bytes[1] = kind | if answer { 0x80 } else { 0 };
                (bytes[2], bytes[3]) = (0, 0);
            }
            let sum = checksum(&bytes);
            bytes.extend(sum.to_be_bytes());
            if let Ok(frame) = Frame::decode(&bytes) {
                let mut again = Vec::new();
                frame.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn an_answer_takes_records_until_it_is_full() {
        let buffer = records(200);
        assert_eq!(buffer.list().len(), MAX_RECORDS_LEN / 156);
        assert_eq!(buffer.list().iter().count(), buffer.list().len());
    }

    #[test]
    fn only_requests_can_be_refused() {
        let mut request = Vec::new();
        Frame::request(
            9,
            0,
            Message::Unwatch {
                guid: Guid([1; 32]),
            },
        )
        .encode(&mut request);
        assert_eq!(refusable_id(&request), Some(9));
        let mut answer = Vec::new();
        Frame::request(9, 0, Message::Refused).encode(&mut answer);
        assert_eq!(refusable_id(&answer), None);
    }
}
