//! What protects the messages between proxies: nobody injects, alters or replays one.
//!
//! Every message has a nonce of 20 octets: the sender's session (random for each start), Unix
//! milliseconds, and a counter. From the shared secret and the session, HKDF-SHA256 derives the
//! session's keys; so two sessions never use a key twice, and the counter never repeats in one. The
//! seal covers the nonce, the message and its context (a Data's name; for Interests the addressed
//! prefix).
//!
//! A receiver opens a message once. It refuses one whose time differs from its own clock by more
//! than [`SealOptions::grace`], and remembers the last 65,536 counters of each session. A receiver
//! that restarts has forgotten them: within the grace period an attacker can replay to it what any
//! IP network may duplicate too, and TCP discards (RFC 9293 §3.5).

use core::time::Duration;

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use sha2::Sha256;
use whimbrel_core::{KeyedMap, SeededRng, Time, WallClock, keyed_map};

/// Octets of a message's nonce.
pub const NONCE: usize = 20;
/// Octets of an authentication tag.
pub const TAG: usize = 16;
/// Sessions of peers that are remembered; then the least recently used is forgotten.
const MAX_SESSIONS: usize = 1024;
/// Counters of a session that are remembered.
const WINDOW: u64 = 65_536;

type HmacSha256 = Hmac<Sha256>;

/// The protection of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// None: whoever can send Interests to a proxy can inject segments. For closed networks and
    /// measurements.
    None,
    /// HMAC-SHA256, shortened to 16 octets.
    Authenticated,
    /// ChaCha20-Poly1305 (RFC 8439).
    Encrypted,
}

/// Options of a [`Sealer`].
#[derive(Clone)]
pub struct SealOptions {
    /// The protection; both proxies must have the same.
    pub protection: Protection,
    /// The shared secret, 32 octets or more.
    pub secret: Vec<u8>,
    /// Random octets of the operating system, new for each start.
    pub session: [u8; 8],
    /// Largest difference of the two proxies' clocks plus the longest time on the way.
    pub grace: Duration,
    /// Unix time.
    pub clock: WallClock,
}

impl SealOptions {
    /// Without protection.
    pub const fn unprotected(session: [u8; 8], clock: WallClock) -> SealOptions {
        SealOptions {
            protection: Protection::None,
            secret: Vec::new(),
            session,
            grace: Duration::from_secs(60),
            clock,
        }
    }
}

/// Why a message is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Its form is wrong.
    #[error("not a sealed message")]
    Malformed,
    /// Not made with this secret, or altered.
    #[error("the authentication tag is wrong: another key, or a forgery")]
    Forged,
    /// It was received before, or is older than the window.
    #[error("a replay")]
    Replayed,
    /// Its time is too far from this host's clock.
    #[error("its time is outside of the grace period: a replay, or the clocks differ")]
    Untimely,
}

/// The keys of one session.
enum Keys {
    None,
    Authenticated(HmacSha256),
    /// `None` if the cipher refused a key of its own length: then nothing is sealed or opened.
    Encrypted(Option<Box<LessSafeKey>>),
}

impl Keys {
    fn derive(protection: Protection, secret: &[u8], session: &[u8; 8]) -> Keys {
        let key = |purpose: &str| {
            let mut key = [0; 32];
            // 32 octets are within what HKDF-SHA256 gives.
            let _ = Hkdf::<Sha256>::new(Some(session), secret).expand(purpose.as_bytes(), &mut key);
            key
        };
        match protection {
            Protection::None => Keys::None,
            Protection::Authenticated => Keys::Authenticated(HmacSha256::new(
                &extended(&key("whimbrel tcp/icn v1 authenticates")).into(),
            )),
            Protection::Encrypted => {
                let key = key("whimbrel tcp/icn v1 encrypts");
                let key = UnboundKey::new(&CHACHA20_POLY1305, &key).ok();
                Keys::Encrypted(key.map(|key| Box::new(LessSafeKey::new(key))))
            }
        }
    }

    /// Seals what follows the first `from` octets of `message` in place and appends the tag.
    fn seal(&self, nonce: &[u8; NONCE], context: &[u8], message: &mut Vec<u8>, from: usize) {
        let plain = message.get_mut(from..).unwrap_or_default();
        match self {
            Keys::None => {}
            Keys::Authenticated(mac) => {
                let tag = tag(mac, nonce, context, plain).finalize().into_bytes();
                message.extend_from_slice(tag.get(..TAG).unwrap_or_default());
            }
            Keys::Encrypted(cipher) => {
                let context = Aad::from(context);
                let tag = cipher.as_ref().and_then(|cipher| {
                    cipher
                        .seal_in_place_separate_tag(aead_nonce(nonce), context, plain)
                        .ok()
                });
                match tag {
                    Some(tag) => message.extend_from_slice(tag.as_ref()),
                    // Fails only for messages of 256 GiB, of which nothing may leave as it is.
                    None => message.clear(),
                }
            }
        }
    }

    fn open(&self, nonce: &[u8; NONCE], context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        match self {
            Keys::None => Some(sealed.to_vec()),
            Keys::Authenticated(mac) => {
                let (message, given) = sealed.split_at_checked(sealed.len().checked_sub(TAG)?)?;
                tag(mac, nonce, context, message)
                    .verify_truncated_left(given)
                    .ok()?;
                Some(message.to_vec())
            }
            Keys::Encrypted(cipher) => {
                let mut message = sealed.to_vec();
                let context = Aad::from(context);
                let plain =
                    (cipher.as_ref()?).open_in_place(aead_nonce(nonce), context, &mut message);
                let length = plain.ok()?.len();
                message.truncate(length);
                Some(message)
            }
        }
    }
}

/// HMAC's block for a key of 32 octets.
fn extended(key: &[u8; 32]) -> [u8; 64] {
    let mut block = [0; 64];
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    block
}

/// The context has its length before it, so that no octet can pass from it to the message.
fn tag(mac: &HmacSha256, nonce: &[u8; NONCE], context: &[u8], message: &[u8]) -> HmacSha256 {
    let mut mac = mac.clone();
    mac.update(nonce);
    mac.update(&(context.len() as u64).to_be_bytes());
    mac.update(context);
    mac.update(message);
    mac
}

/// Time and counter; the session is in the key.
fn aead_nonce(nonce: &[u8; NONCE]) -> Nonce {
    let mut short = [0; 12];
    short
        .iter_mut()
        .zip(nonce.iter().skip(8))
        .for_each(|(to, from)| *to = *from);
    Nonce::assume_unique_for_key(short)
}

/// The counters that were received in one session: a sliding window (RFC 6479).
struct Window {
    highest: u64,
    /// Bit n modulo the window's size: counter n was received.
    seen: Vec<u64>,
}

impl Window {
    fn new() -> Window {
        Window {
            highest: 0,
            seen: vec![0; (WINDOW / 64) as usize],
        }
    }

    fn place(counter: u64) -> (usize, u64) {
        let at = counter % WINDOW;
        ((at / 64) as usize, 1 << (at % 64))
    }

    /// Returns false if the counter was received before or is too old.
    fn accept(&mut self, counter: u64) -> bool {
        if counter > self.highest {
            let ahead = (counter - self.highest).min(WINDOW);
            for skipped in 0..ahead {
                let (word, bit) = Window::place(counter - skipped);
                if let Some(word) = self.seen.get_mut(word) {
                    *word &= !bit;
                }
            }
            self.highest = counter;
        } else if self.highest - counter >= WINDOW {
            return false;
        }
        let (word, bit) = Window::place(counter);
        let Some(word) = self.seen.get_mut(word) else {
            return false;
        };
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }
}

struct Session {
    keys: Keys,
    window: Window,
    used: u64,
}

/// Seals this proxy's messages and opens those of its peers.
pub struct Sealer {
    options: SealOptions,
    own: Keys,
    counter: u64,
    sessions: KeyedMap<[u8; 8], Session>,
    opened: u64,
}

impl Sealer {
    /// Returns a sealer of a new session.
    pub fn new(options: SealOptions, rng: &mut SeededRng) -> Sealer {
        Sealer {
            own: Keys::derive(options.protection, &options.secret, &options.session),
            counter: 0,
            sessions: keyed_map(rng),
            opened: 0,
            options,
        }
    }

    /// Unix time from now on.
    pub fn set_wall_clock(&mut self, clock: WallClock) {
        self.options.clock = clock;
    }

    /// Returns the protection of messages.
    pub const fn protection(&self) -> Protection {
        self.options.protection
    }

    /// Returns the bytes that sealing adds to a message, its nonce included.
    pub const fn overhead(&self) -> usize {
        match self.options.protection {
            Protection::None => NONCE,
            Protection::Authenticated | Protection::Encrypted => NONCE + TAG,
        }
    }

    /// Returns a pseudonym of `text` that only holders of the secret can compute.
    pub fn pseudonym(&self, text: &[u8]) -> [u8; 16] {
        let mut pseudonym = [0; 16];
        let hkdf = Hkdf::<Sha256>::new(Some(text), &self.options.secret);
        let _ = hkdf.expand(b"whimbrel tcp/icn v1 pseudonym", &mut pseudonym);
        pseudonym
    }

    /// Seals `message` in place for `context`; returns its nonce.
    pub fn seal(&mut self, now: Time, context: &[u8], message: &mut Vec<u8>) -> [u8; NONCE] {
        let nonce = self.next_nonce(now);
        self.own.seal(&nonce, context, message, 0);
        nonce
    }

    /// Seals in place what follows the first [`NONCE`] octets of `content`, and puts the nonce there.
    pub fn seal_content(&mut self, now: Time, context: &[u8], content: &mut Vec<u8>) {
        let nonce = self.next_nonce(now);
        if let Some(place) = content.first_chunk_mut() {
            *place = nonce;
        }
        self.own.seal(&nonce, context, content, NONCE);
    }

    fn next_nonce(&mut self, now: Time) -> [u8; NONCE] {
        self.counter += 1;
        let mut nonce = [0; NONCE];
        let millis = self.options.clock.unix_millis(now).to_be_bytes();
        let counter = self.counter.to_be_bytes();
        let octets = self.options.session.iter();
        let octets = octets
            .chain(millis.iter().skip(2))
            .chain(counter.iter().skip(2));
        nonce
            .iter_mut()
            .zip(octets)
            .for_each(|(to, from)| *to = *from);
        nonce
    }

    /// Opens a message, once.
    pub fn open(
        &mut self,
        now: Time,
        context: &[u8],
        nonce: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, OpenError> {
        let nonce: &[u8; NONCE] = nonce.try_into().map_err(|_| OpenError::Malformed)?;
        let [a, b, c, d, e, f, g, h, rest @ ..] = nonce;
        let id = [*a, *b, *c, *d, *e, *f, *g, *h];
        let number = |octets: &[u8]| {
            octets
                .iter()
                .fold(0, |sum, octet| sum << 8 | u64::from(*octet))
        };
        let (millis, counter) = rest.split_at(6);
        let (millis, counter) = (number(millis), number(counter));
        let clock = self.options.clock.unix_millis(now);
        if Duration::from_millis(clock.abs_diff(millis)) > self.options.grace {
            return Err(OpenError::Untimely);
        }
        let fresh = match self.sessions.get(&id) {
            Some(_) => None,
            None => Some(Keys::derive(
                self.options.protection,
                &self.options.secret,
                &id,
            )),
        };
        let keys = match (&fresh, self.sessions.get(&id)) {
            (Some(keys), _) => keys,
            (None, Some(session)) => &session.keys,
            (None, None) => return Err(OpenError::Malformed),
        };
        let message = keys.open(nonce, context, sealed).ok_or(OpenError::Forged)?;
        if let Some(keys) = fresh {
            self.remember(id, keys);
        }
        self.opened += 1;
        let used = self.opened;
        let session = self.sessions.get_mut(&id).ok_or(OpenError::Malformed)?;
        session.used = used;
        if session.window.accept(counter) {
            Ok(message)
        } else {
            Err(OpenError::Replayed)
        }
    }

    /// Remembers the session of a message that was opened: only holders of the secret can fill the
    /// memory.
    fn remember(&mut self, id: [u8; 8], keys: Keys) {
        if self.sessions.len() >= MAX_SESSIONS {
            let oldest = self.sessions.iter().min_by_key(|(_, session)| session.used);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.sessions.remove(&oldest);
            }
        }
        let window = Window::new();
        let session = Session {
            keys,
            window,
            used: 0,
        };
        self.sessions.insert(id, session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(5);

    fn sealer(protection: Protection, session: u8, secret: &[u8]) -> Sealer {
        let options = SealOptions {
            protection,
            secret: secret.to_vec(),
            ..SealOptions::unprotected([session; 8], WallClock::new(1_700_000_000_000))
        };
        Sealer::new(options, &mut SeededRng::new(1))
    }

    const ALL: [Protection; 3] = [
        Protection::None,
        Protection::Authenticated,
        Protection::Encrypted,
    ];

    #[test]
    fn a_message_is_opened_once() {
        for protection in ALL {
            let (mut a, mut b) = (
                sealer(protection, 1, &[7; 32]),
                sealer(protection, 2, &[7; 32]),
            );
            let mut message = b"segment".to_vec();
            let nonce = a.seal(NOW, b"/b", &mut message);
            assert_eq!(message.len() + NONCE, 7 + a.overhead());
            assert_eq!(b.open(NOW, b"/b", &nonce, &message).unwrap(), b"segment");
            let again = b.open(NOW, b"/b", &nonce, &message);
            assert_eq!(again, Err(OpenError::Replayed), "{protection:?}");
        }
    }

    #[test]
    fn with_a_key_nothing_can_be_altered() {
        for protection in [Protection::Authenticated, Protection::Encrypted] {
            let (mut a, mut b) = (
                sealer(protection, 1, &[7; 32]),
                sealer(protection, 2, &[7; 32]),
            );
            let mut message = b"segment".to_vec();
            let nonce = a.seal(NOW, b"/b", &mut message);
            for at in 0..message.len() {
                let mut forged = message.clone();
                forged[at] ^= 1;
                assert_eq!(b.open(NOW, b"/b", &nonce, &forged), Err(OpenError::Forged));
            }
            for at in 0..NONCE {
                let mut other = nonce;
                other[at] ^= 1;
                assert!(b.open(NOW, b"/b", &other, &message).is_err(), "{at}");
            }
            assert_eq!(b.open(NOW, b"/c", &nonce, &message), Err(OpenError::Forged));
            let mut stranger = sealer(protection, 2, &[8; 32]);
            assert_eq!(
                stranger.open(NOW, b"/b", &nonce, &message),
                Err(OpenError::Forged)
            );
            assert!(b.open(NOW, b"/b", &nonce, &message).is_ok());
        }
    }

    #[test]
    fn an_old_message_is_refused() {
        let (mut a, mut b) = (
            sealer(Protection::Encrypted, 1, &[7; 32]),
            sealer(Protection::Encrypted, 2, &[7; 32]),
        );
        let mut message = b"segment".to_vec();
        let nonce = a.seal(NOW, b"", &mut message);
        let late = NOW + Duration::from_secs(61);
        assert_eq!(
            b.open(late, b"", &nonce, &message),
            Err(OpenError::Untimely)
        );
    }

    #[test]
    fn the_window_slides() {
        let mut window = Window::new();
        assert!(window.accept(1) && window.accept(3) && window.accept(2));
        assert!(!window.accept(2));
        assert!(window.accept(WINDOW + 2));
        assert!(!window.accept(2), "too old");
        assert!(window.accept(4) && !window.accept(4));
        assert!(window.accept(10 * WINDOW) && !window.accept(WINDOW + 2));
        assert!(window.accept(10 * WINDOW - 1));
    }
}
