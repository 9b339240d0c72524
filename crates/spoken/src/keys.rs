//! The computations of both sides: the parameters of the key exchange, and the keys that are
//! derived from its result.

use chacha20poly1305::aead::{Aead, KeyInit as _, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Nonce};
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use rand_core::CryptoRng;
use sha2::{Digest, Sha256};
use spake2::{Ed25519Group, Identity, Password, Spake2};

use crate::code::Code;
use crate::message::{SHARE, Session};

/// One side's half of the key exchange, which is used with one share of the peer.
pub(crate) type Half = Spake2<Ed25519Group>;

/// Returns the secret key of the name under which a giver with this number is reached through
/// routers.
///
/// The key is not a secret: any node can compute it from the number. An attacker that takes the
/// name can keep the two sides from meeting, and learns nothing.
pub fn meeting_key(number: u16) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"whimbrel spoken code v1 meeting");
    hash.update(number.to_be_bytes());
    hash.finalize().into()
}

/// Returns the names of the two sides. Other numbers, and other uses of the words, give other keys.
fn sides(code: &Code) -> (Identity, Identity) {
    let side = |side: &str| {
        Identity::new(format!("whimbrel spoken code v1 {side} {}", code.number()).as_bytes())
    };
    (side("taker"), side("giver"))
}

pub(crate) fn taker_half(code: &Code, rng: &mut impl CryptoRng) -> (Half, [u8; SHARE]) {
    let (taker, giver) = sides(code);
    let (half, share) = Half::start_a_with_rng(&Password::new(code.words()), &taker, &giver, rng);
    (half, sized(&share))
}

pub(crate) fn giver_half(code: &Code, rng: &mut impl CryptoRng) -> (Half, [u8; SHARE]) {
    let (taker, giver) = sides(code);
    let (half, share) = Half::start_b_with_rng(&Password::new(code.words()), &taker, &giver, rng);
    (half, sized(&share))
}

/// Converts a share from the vector that the crate returns: a side octet and a compressed point.
fn sized(share: &[u8]) -> [u8; SHARE] {
    let mut sized = [0; SHARE];
    sized.copy_from_slice(share);
    sized
}

/// The keys of one exchange. A side with a wrong code has other keys.
pub(crate) struct Keys {
    /// Binds the keys to this exchange.
    session: Session,
    confirmation: [u8; 32],
    sealing: [u8; 32],
}

impl Keys {
    /// Derives the keys from the other side's share; returns `None` if the share is invalid. The
    /// result of SPAKE2 binds the words, the sides and both shares.
    pub(crate) fn agree(half: Half, share: &[u8; SHARE], session: Session) -> Option<Keys> {
        let shared = half.finish(share).ok()?;
        let derivation = Hkdf::<Sha256>::new(Some(&session), &shared);
        let key = |purpose: &str| {
            let mut key = [0; 32];
            let derived = derivation.expand(purpose.as_bytes(), &mut key);
            derived.ok().map(|()| key)
        };
        Some(Keys {
            session,
            confirmation: key("whimbrel spoken code v1 taker confirms")?,
            sealing: key("whimbrel spoken code v1 giver seals")?,
        })
    }

    fn authenticator(&self) -> Option<Hmac<Sha256>> {
        let keyed = Hmac::<Sha256>::new_from_slice(&self.confirmation).ok()?;
        Some(keyed.chain_update(self.session))
    }

    /// Returns the taker's proof that it has the key.
    pub(crate) fn confirm(&self) -> Option<[u8; 32]> {
        Some(self.authenticator()?.finalize().into_bytes().into())
    }

    /// Returns true if a proof is right; takes constant time.
    pub(crate) fn is_confirmed_by(&self, tag: &[u8; 32]) -> bool {
        self.authenticator()
            .is_some_and(|authenticator| authenticator.verify_slice(tag).is_ok())
    }

    /// Encrypts the only message for which the key is used, so a constant nonce is safe.
    pub(crate) fn seal(&self, secret: &[u8]) -> Option<Vec<u8>> {
        let (msg, aad) = (secret, &self.session[..]);
        let cipher = ChaCha20Poly1305::new(&self.sealing.into());
        cipher.encrypt(&Nonce::default(), Payload { msg, aad }).ok()
    }

    pub(crate) fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (msg, aad) = (sealed, &self.session[..]);
        let cipher = ChaCha20Poly1305::new(&self.sealing.into());
        cipher.decrypt(&Nonce::default(), Payload { msg, aad }).ok()
    }
}
