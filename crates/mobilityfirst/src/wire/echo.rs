//! Echo: `whimbrel ping`.

use super::{Reader, WireError};

/// An echo request or reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// True in a reply.
    pub reply: bool,
    /// Chosen by the requester, returned unchanged: identifies its run.
    pub id: u64,
    /// Chosen by the requester, returned unchanged.
    pub sequence: u32,
    /// Returned unchanged.
    pub padding: Vec<u8>,
}

/// Maximum of padding that is answered, in bytes: an echo is one small chunk.
const MAX_PADDING: usize = 32 * 1024;

impl Echo {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.reply));
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.padding);
    }

    /// Decodes the message, all of `payload`.
    pub fn decode(payload: &[u8]) -> Result<Echo, WireError> {
        let mut reader = Reader(payload);
        let reply = match reader.u8()? {
            0 => false,
            1 => true,
            other => return Err(WireError::MessageType(other)),
        };
        let (id, sequence) = (reader.u64()?, reader.u32()?);
        if reader.0.len() > MAX_PADDING {
            return Err(WireError::Invalid("padding"));
        }
        Ok(Echo {
            reply,
            id,
            sequence,
            padding: reader.0.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips(reply: bool, id: u64, sequence: u32, padding in prop::collection::vec(any::<u8>(), 0..80)) {
            let echo = Echo { reply, id, sequence, padding };
            let mut bytes = Vec::new();
            echo.encode(&mut bytes);
            prop_assert_eq!(Echo::decode(&bytes), Ok(echo));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Echo::decode(&bytes);
        }
    }
}
