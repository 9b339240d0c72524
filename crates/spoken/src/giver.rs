//! The side that has the secret. It only answers; messages may be lost, duplicated or reordered.

use core::fmt;
use std::collections::{BTreeMap, VecDeque};

use rand_core::CryptoRng;
use whimbrel_core::Guid;

use crate::code::Code;
use crate::keys::{Keys, giver_half};
use crate::message::{Body, MAX_SEALED, Message, Refusal, SHARE, Session};

/// Wrong guesses after which a code is used up. With words of 24 bits, an attacker that makes all
/// of these guesses succeeds with a probability of 3 in 16.8 million.
pub const MAX_WRONG: u32 = 3;
/// Bound of the exchanges at one time. The sender with the most of them gives its oldest one up for a
/// new one: whoever begins thousands pushes out its own.
const MAX_SESSIONS: usize = 64;
/// Bytes that the encryption adds.
const OVERHEAD: usize = 16;

/// A result of an exchange, for the person who gave the code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Given {
    /// A taker that knows the code has got the secret.
    Taken,
    /// A taker has tried a wrong code.
    Wrong {
        /// The number of further attempts that are accepted.
        left: u32,
    },
}

/// The state of an exchange.
enum Progress {
    /// Both shares are known. Boxed, because few exchanges get this far.
    Agreed(Box<Keys>),
    /// The exchange is over; the last message is repeated if the taker missed it.
    Over(Body),
}

struct Exchange {
    from: Guid,
    session: Session,
    share: [u8; SHARE],
    progress: Progress,
}

/// Gives a secret to takers that know a code.
pub struct Giver {
    code: Code,
    secret: Vec<u8>,
    wrong: u32,
    // Oldest first.
    exchanges: VecDeque<Exchange>,
}

impl Giver {
    /// Returns a giver, or `None` if the secret is too long to be sent.
    pub fn new(code: Code, secret: Vec<u8>) -> Option<Giver> {
        (secret.len() + OVERHEAD <= MAX_SEALED).then_some(Giver {
            code,
            secret,
            wrong: 0,
            exchanges: VecDeque::new(),
        })
    }

    /// Returns true once too many wrong codes were tried: no taker gets the secret any more.
    pub fn is_used_up(&self) -> bool {
        self.wrong >= MAX_WRONG
    }

    /// Handles a message from any sender, by its name. The answer goes to that sender.
    pub fn handle(
        &mut self,
        from: Guid,
        bytes: &[u8],
        rng: &mut impl CryptoRng,
    ) -> (Option<Message>, Option<Given>) {
        let Ok(Message { session, body }) = Message::decode(bytes) else {
            return (None, None);
        };
        let (answer, given) = match body {
            Body::Hello { number, share } => (self.begin(from, session, number, &share, rng), None),
            Body::Confirmation(tag) => self.end(session, &tag),
            Body::Answer(_) | Body::Sealed(_) | Body::Refusal(_) => (None, None),
        };
        (answer.map(|body| Message { session, body }), given)
    }

    fn position(&self, session: Session) -> Option<usize> {
        let mut all = self.exchanges.iter();
        all.position(|exchange| exchange.session == session)
    }

    /// Forgets an exchange to make room: the oldest one of the sender with the most.
    fn make_room(&mut self) {
        let mut held: BTreeMap<Guid, usize> = BTreeMap::new();
        for exchange in &self.exchanges {
            *held.entry(exchange.from).or_default() += 1;
        }
        let most = held.values().max().copied();
        let is_of_most = |it: &Exchange| held.get(&it.from).copied() == most;
        if let Some(oldest) = self.exchanges.iter().position(is_of_most) {
            self.exchanges.remove(oldest);
        }
    }

    fn begin(
        &mut self,
        from: Guid,
        session: Session,
        number: u16,
        share: &[u8; SHARE],
        rng: &mut impl CryptoRng,
    ) -> Option<Body> {
        if let Some(known) = self.position(session) {
            // The answer was lost. A taker that keeps to the protocol does not send another share.
            return Some(Body::Answer(self.exchanges[known].share));
        }
        if number != self.code.number() {
            return Some(Body::Refusal(Refusal::Number));
        }
        if self.is_used_up() {
            return Some(Body::Refusal(Refusal::UsedUp));
        }
        let (half, own) = giver_half(&self.code, rng);
        let keys = Keys::agree(half, share, session)?;
        if self.exchanges.len() >= MAX_SESSIONS {
            self.make_room();
        }
        self.exchanges.push_back(Exchange {
            from,
            session,
            share: own,
            progress: Progress::Agreed(Box::new(keys)),
        });
        Some(Body::Answer(own))
    }

    /// Handles the one guess of an exchange: its first confirmation decides it.
    fn end(&mut self, session: Session, tag: &[u8; 32]) -> (Option<Body>, Option<Given>) {
        let Some(known) = self.position(session) else {
            return (Some(Body::Refusal(Refusal::Forgotten)), None);
        };
        let keys = match &self.exchanges[known].progress {
            Progress::Over(body) => return (Some(body.clone()), None),
            // This precedes the check of the guess: several may be under way when the last one
            // fails.
            Progress::Agreed(_) if self.is_used_up() => {
                return (Some(Body::Refusal(Refusal::UsedUp)), None);
            }
            Progress::Agreed(keys) => keys,
        };
        let is_right = keys.is_confirmed_by(tag);
        let sealed = is_right.then(|| keys.seal(&self.secret)).flatten();
        let (body, given) = match sealed {
            Some(sealed) => (Body::Sealed(sealed), Given::Taken),
            None => {
                self.wrong += 1;
                let left = MAX_WRONG - self.wrong;
                (Body::Refusal(Refusal::Wrong), Given::Wrong { left })
            }
        };
        self.exchanges[known].progress = Progress::Over(body.clone());
        (Some(body), Some(given))
    }
}

impl fmt::Debug for Giver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Giver")
            .field("code", &self.code)
            .field("wrong", &self.wrong)
            .field("exchanges", &self.exchanges.len())
            .finish_non_exhaustive()
    }
}
