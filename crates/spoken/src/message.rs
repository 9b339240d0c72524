//! The exchange on the wire: each message fits into one small message from GUID to GUID.
//!
//! ```text
//! message  = version type session body      version: 1; type: one byte; session: 16 bytes
//! type 0   : hello, taker to giver           number (2), share (33)
//! type 1   : answer, giver to taker          share (33)
//! type 2   : confirmation, taker to giver    tag (32)
//! type 3   : sealed, giver to taker          ciphertext, at most 2,048 bytes
//! type 4   : refusal, giver to taker         reason (1)
//! ```

/// The channel of these messages: "spok".
pub const CHANNEL: u32 = 0x7370_6f6b;
const VERSION: u8 = 1;
/// Bytes of a share: a group element, and the side that it is from.
pub(crate) const SHARE: usize = 33;
const TAG: usize = 32;
/// Bound of a sealed secret, in bytes.
pub(crate) const MAX_SEALED: usize = 2048;

/// The identity of an exchange, drawn by the taker.
pub type Session = [u8; 16];

/// A message of the exchange.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The exchange.
    pub session: Session,
    /// Its content.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// The taker begins.
    Hello {
        /// The code's number.
        number: u16,
        /// Its share of the key.
        share: [u8; SHARE],
    },
    /// The giver sends its share of the key.
    Answer([u8; SHARE]),
    /// The taker proves that it has the key.
    Confirmation([u8; TAG]),
    /// The secret, encrypted for a taker that has the key.
    Sealed(Vec<u8>),
    /// The giver ends the exchange.
    Refusal(Refusal),
}

/// The reason why the giver ends the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The words are not those of the code.
    #[error("the code is wrong: its words are not those of the sender's code")]
    Wrong,
    /// Too many wrong codes were tried.
    #[error("the code is used up: too many wrong ones were tried; the sender must make a new one")]
    UsedUp,
    /// The giver's code has another number.
    #[error("the code is wrong: the sender's has another number")]
    Number,
    /// The giver has forgotten this exchange.
    #[error("the sender has forgotten this exchange, because too many were begun; try again")]
    Forgotten,
}

impl Refusal {
    const ALL: [Refusal; 4] = [
        Refusal::Wrong,
        Refusal::UsedUp,
        Refusal::Number,
        Refusal::Forgotten,
    ];
}

/// The reason why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// The version is unknown.
    #[error("version {0} of the exchange is unknown to this program")]
    Version(u8),
    /// The bytes contradict the format.
    #[error("not a message of the exchange")]
    Malformed,
}

impl Message {
    /// Returns the encoded message.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, 0];
        bytes.extend_from_slice(&self.session);
        bytes[1] = match &self.body {
            Body::Hello { number, share } => {
                bytes.extend_from_slice(&number.to_be_bytes());
                bytes.extend_from_slice(share);
                0
            }
            Body::Answer(share) => {
                bytes.extend_from_slice(share);
                1
            }
            Body::Confirmation(tag) => {
                bytes.extend_from_slice(tag);
                2
            }
            Body::Sealed(sealed) => {
                bytes.extend_from_slice(sealed);
                3
            }
            Body::Refusal(refusal) => {
                bytes.push(*refusal as u8);
                4
            }
        };
        bytes
    }

    /// Decodes a message.
    pub fn decode(bytes: &[u8]) -> Result<Message, MessageError> {
        let read = || {
            let (kind, rest) = bytes.get(1..)?.split_first()?;
            let (session, rest) = rest.split_first_chunk()?;
            let body = body(*kind, rest)?;
            let session = *session;
            Some(Message { session, body })
        };
        match bytes.first() {
            Some(&VERSION) => read().ok_or(MessageError::Malformed),
            Some(version) => Err(MessageError::Version(*version)),
            None => Err(MessageError::Malformed),
        }
    }
}

fn body(kind: u8, rest: &[u8]) -> Option<Body> {
    Some(match kind {
        0 => {
            let (number, share) = rest.split_first_chunk()?;
            Body::Hello {
                number: u16::from_be_bytes(*number),
                share: share.try_into().ok()?,
            }
        }
        1 => Body::Answer(rest.try_into().ok()?),
        2 => Body::Confirmation(rest.try_into().ok()?),
        3 if rest.len() <= MAX_SEALED => Body::Sealed(rest.to_vec()),
        4 => {
            let [reason] = rest else { return None };
            Body::Refusal(*Refusal::ALL.get(usize::from(*reason))?)
        }
        _ => return None,
    })
}
