//! A code that two people can say aloud, and the exchange by which it opens a secret.
//!
//! The one invariant: **a message reveals whether a guess at the code is right only to the side
//! that
//! made this one guess.** An attacker that listens, carries the messages or answers in another's
//! name learns nothing by which it could test further guesses; the giver counts wrong ones and
//! stops.
//!
//! | module | holds | text it follows |
//! |---|---|---|
//! | [`code`] | [`Code`]: its words, and how people write them | docs/tickets.md |
//! | [`message`] | [`Message`], the exchange on the wire | docs/tickets.md |
//! | [`giver`], [`taker`] | the two sides | RFC 9382, for key confirmation its section 4 |
//!
//! The key exchange, the authentication codes and the encryption are those of the crates `spake2`, `hkdf`, `hmac` and
//! `chacha20poly1305`.
#![forbid(unsafe_code)]

pub mod code;
pub mod giver;
mod keys;
pub mod message;
pub mod taker;

pub use code::{Code, CodeError};
pub use giver::{Given, Giver, MAX_WRONG};
pub use keys::meeting_key;
pub use message::{CHANNEL, Message, MessageError, Refusal};
pub use taker::{Taker, TakerError};

#[cfg(test)]
mod tests;
