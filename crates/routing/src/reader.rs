//! Reads the fields of messages.

use whimbrel_core::Guid;

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It ends too early.
    #[error("the message is too short")]
    Truncated,
    /// Octets follow it.
    #[error("octets follow the message")]
    TooLong,
    /// A type that this version does not know.
    #[error("no message has type {0}")]
    Type(u8),
    /// A value outside of its bounds.
    #[error("invalid {0}")]
    Invalid(&'static str),
}

/// The rest of a message.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], MessageError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(MessageError::Truncated)?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn u8(&mut self) -> Result<u8, MessageError> {
        self.array::<1>().map(|[byte]| *byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, MessageError> {
        self.array().map(|bytes| u16::from_be_bytes(*bytes))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MessageError> {
        self.array().map(|bytes| u32::from_be_bytes(*bytes))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, MessageError> {
        self.array().map(|bytes| u64::from_be_bytes(*bytes))
    }

    pub(crate) fn guid(&mut self) -> Result<Guid, MessageError> {
        self.array().map(|bytes| Guid(*bytes))
    }

    /// Reads pairs of names and values, in the strict order of the names, to the end.
    pub(crate) fn pairs<T>(
        &mut self,
        max: usize,
        mut value: impl FnMut(&mut Self) -> Result<T, MessageError>,
    ) -> Result<Vec<(Guid, T)>, MessageError> {
        let mut pairs: Vec<(Guid, T)> = Vec::new();
        while !self.0.is_empty() {
            if pairs.len() >= max {
                return Err(MessageError::Invalid("number of routers"));
            }
            let name = self.guid()?;
            if pairs.last().is_some_and(|(last, _)| *last >= name) {
                return Err(MessageError::Invalid("order of routers"));
            }
            pairs.push((name, value(self)?));
        }
        Ok(pairs)
    }
}
