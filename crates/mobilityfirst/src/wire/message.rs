//! Small messages without a content, alone and several together.

use bytes::Bytes;

use super::{Reader, WireError};

/// Most messages of a [`Transport::Messages`](super::Transport::Messages).
pub const MAX_TOGETHER: usize = 32;
/// Bytes of the fields of one of them: id, channel and length.
pub(crate) const TOGETHER_FIELDS_LEN: usize = 14;
/// The detail of a message that says that several are together.
pub(super) const TOGETHER: u8 = 1;
/// Longest payload of a [`Message`], in bytes.
pub const MAX_MESSAGE: usize = 32 * 1024;

/// A small message from GUID to GUID, without a content name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Chosen by the sender and used for one message only: it identifies duplicates.
    pub id: u64,
    /// Selects one of the receiver's programs, by their agreement.
    pub channel: u32,
    /// At most [`MAX_MESSAGE`] bytes.
    pub payload: Bytes,
}

impl Message {
    /// Appends the fields of one of several messages: its length is among them.
    pub(super) fn encode_fields(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&self.channel.to_be_bytes());
        out.extend_from_slice(&(self.payload.len() as u16).to_be_bytes());
    }

    /// Decodes several messages; their payloads share the memory of `payload`.
    pub(super) fn decode_all(fields: &[u8], mut payload: Bytes) -> Result<Vec<Message>, WireError> {
        let count = fields.len() / TOGETHER_FIELDS_LEN;
        if !fields.len().is_multiple_of(TOGETHER_FIELDS_LEN) || !(2..=MAX_TOGETHER).contains(&count)
        {
            return Err(WireError::Invalid("number of messages"));
        }
        let mut reader = Reader(fields);
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            let (id, channel) = (reader.u64()?, reader.u32()?);
            let len = usize::from(reader.u16()?);
            if len > MAX_MESSAGE || len > payload.len() {
                return Err(WireError::Invalid("message length"));
            }
            all.push(Message {
                id,
                channel,
                payload: payload.split_to(len),
            });
        }
        match payload.is_empty() {
            true => Ok(all),
            false => Err(WireError::Trailing),
        }
    }

    pub(super) fn decode(fields: &[u8], payload: Bytes) -> Result<Message, WireError> {
        let mut reader = Reader(fields);
        let (id, channel) = (reader.u64()?, reader.u32()?);
        reader.finish()?;
        if payload.len() > MAX_MESSAGE {
            return Err(WireError::Invalid("message length"));
        }
        Ok(Message {
            id,
            channel,
            payload,
        })
    }
}
