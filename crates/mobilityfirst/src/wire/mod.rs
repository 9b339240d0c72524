//! The wire format above Hop: headers, extensions and messages (`docs/protocols/mobilityfirst.md`).
//!
//! A chunk is one string of bytes: network header, extension chain, then the message of the upper
//! protocol. Every decoder accepts any bytes and returns a value or a [`WireError`]; it never
//! panics, and never allocates more than the length of its input.

/// The codes of an enum without fields: one table for both directions, in which the compiler
/// detects a missing variant.
macro_rules! codes {
    ($name:ident, $what:literal, { $($variant:ident = $code:literal),+ $(,)? }) => {
        impl $name {
            #[cfg(test)]
            pub(crate) const ALL: &[$name] = &[$($name::$variant),+];

            pub(crate) const fn code(self) -> u8 {
                match self {
                    $($name::$variant => $code),+
                }
            }

            pub(crate) fn from_code(code: u8) -> Result<$name, $crate::wire::WireError> {
                match code {
                    $($code => Ok($name::$variant),)+
                    _ => Err($crate::wire::WireError::Invalid($what)),
                }
            }
        }
    };
}
pub(crate) use codes;

mod control;
mod echo;
mod members;
mod message;
mod network;
mod offer;
mod ranges;
mod transport;
mod window;

pub use crate::chunk_size::EXACT_SIZE;
pub use control::{
    ATTACH_CONTEXT, Control, ControlCode, Credit, Pace, Presence, PresenceCode, attach_statement,
};
pub use echo::Echo;
pub use members::{MAX_LISTED_MEMBERS, MAX_LISTED_NETWORKS, MemberList, MembersAt};
pub(crate) use message::TOGETHER_FIELDS_LEN;
pub use message::{MAX_MESSAGE, MAX_TOGETHER, Message};
pub use network::{
    Extensions, Flow, HOP_LIMIT, MAX_CARRIED_ADDRESSES, MAX_GROUPS_ABOVE, NETWORK_HEADER_LEN,
    NetworkHeader, ServiceId, UpperProtocol, VERSION,
};
pub use offer::{OfferTerms, OfferUse, SignedOffer};
pub use ranges::{ChunkRanges, MAX_RANGES};
pub use transport::{
    ContentKind, Data, DropReason, MAX_FILE_NAME, Notice, Reliability, Request, Transport,
    TransportKind,
};

pub use window::{WindowAdvice, WindowVerdict};

use bytes::Buf;
use whimbrel_core::Guid;

/// Why bytes are malformed. Each one is a drop reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Shorter than its headers say.
    #[error("truncated")]
    Truncated,
    /// Longer than its headers say.
    #[error("bytes after the end")]
    Trailing,
    /// An unknown version of the network header.
    #[error("unknown version {0}")]
    Version(u8),
    /// An unknown upper protocol.
    #[error("unknown upper protocol {0}")]
    UpperProtocol(u8),
    /// An unknown message type.
    #[error("unknown message type {0}")]
    MessageType(u8),
    /// An unknown critical extension.
    #[error("unknown critical extension {0:#06x}")]
    CriticalExtension(u16),
    /// A field with an invalid value.
    #[error("invalid {0}")]
    Invalid(&'static str),
}

/// Reads big-endian fields off the front of a slice.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.0.try_get_u8().map_err(|_| WireError::Truncated)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.0.try_get_u16().map_err(|_| WireError::Truncated)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.0.try_get_u32().map_err(|_| WireError::Truncated)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.0.try_get_u64().map_err(|_| WireError::Truncated)
    }

    pub(crate) fn guid(&mut self) -> Result<Guid, WireError> {
        Guid::from_slice(self.take(Guid::LEN)?).ok_or(WireError::Truncated)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(WireError::Truncated)?;
        self.0 = tail;
        Ok(head)
    }

    /// A UTF-8 text after its length in one byte.
    pub(crate) fn short_text(&mut self) -> Result<String, WireError> {
        let len = self.u8()?;
        let bytes = self.take(usize::from(len))?;
        core::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| WireError::Invalid("text"))
    }

    pub(crate) fn finish(self) -> Result<(), WireError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(WireError::Trailing)
        }
    }
}

/// Writes a text after its length in one byte, truncated at a character boundary if it is over 255
/// bytes.
pub(crate) fn put_short_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(255);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.push(end as u8);
    out.extend_from_slice(&text.as_bytes()[..end]);
}
