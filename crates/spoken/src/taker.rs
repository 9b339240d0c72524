//! The side that was told the code. It makes one guess: another guess is another exchange.

use core::fmt;

use rand_core::CryptoRng;

use crate::code::Code;
use crate::keys::{Half, Keys, taker_half};
use crate::message::{Body, Message, Refusal, Session};

/// The reason why the taker has no secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TakerError {
    /// The giver refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The node that answered does not know the code.
    #[error(
        "the answer came from a node without the code: another sender uses this number, or an attacker interferes; \
         ask the sender for a new code"
    )]
    Impostor,
}

enum Progress {
    /// The share was sent. `None` only while the key is computed.
    Begun(Option<Half>),
    /// The proof was sent.
    Confirmed(Box<Keys>),
}

/// Takes the secret that a code opens.
pub struct Taker {
    session: Session,
    progress: Progress,
    message: Body,
}

impl Taker {
    /// Begins an exchange.
    pub fn new(code: &Code, session: Session, rng: &mut impl CryptoRng) -> Taker {
        let (half, share) = taker_half(code, rng);
        let number = code.number();
        Taker {
            session,
            progress: Progress::Begun(Some(half)),
            message: Body::Hello { number, share },
        }
    }

    /// Returns the message to send to the giver, repeatedly until the exchange is over.
    pub fn message(&self) -> Message {
        Message {
            session: self.session,
            body: self.message.clone(),
        }
    }

    /// Handles a message: `None` if the exchange goes on, possibly with another
    /// [`message`](Self::message).
    pub fn handle(&mut self, bytes: &[u8]) -> Option<Result<Vec<u8>, TakerError>> {
        let message = Message::decode(bytes).ok()?;
        if message.session != self.session {
            return None;
        }
        match (message.body, &mut self.progress) {
            (Body::Refusal(refusal), _) => Some(Err(refusal.into())),
            (Body::Answer(share), Progress::Begun(half)) => {
                let agreed = half
                    .take()
                    .and_then(|half| Keys::agree(half, &share, self.session));
                // A giver that keeps to the protocol does not send an invalid share.
                let Some((tag, keys)) = agreed.and_then(|keys| Some((keys.confirm()?, keys)))
                else {
                    return Some(Err(TakerError::Impostor));
                };
                self.message = Body::Confirmation(tag);
                self.progress = Progress::Confirmed(Box::new(keys));
                None
            }
            (Body::Sealed(sealed), Progress::Confirmed(keys)) => {
                Some(keys.open(&sealed).ok_or(TakerError::Impostor))
            }
            // Duplicates, and messages for the giver.
            _ => None,
        }
    }
}

impl fmt::Debug for Taker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taker").finish_non_exhaustive()
    }
}
