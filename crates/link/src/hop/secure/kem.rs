//! The half of a hybrid exchange that a quantum computer does not undo: ML-KEM-512 [FIPS 203].
//!
//! Of the three parameter sets only this one leaves CALL and ANSWER shorter than the 1,232 octets
//! that every path carries over IPv6, each in one frame, so that an answerer needs no memory for
//! halves of a call. Its category (1) is that of AES-128.

use ml_kem::array::Array;
use ml_kem::kem::{Decapsulate, KeyExport};
use ml_kem::ml_kem_512::{DecapsulationKey, EncapsulationKey};
use ml_kem::{Seed, SharedKey};
use zeroize::{Zeroize, Zeroizing};

use super::channel::Secret;

/// Octets of a caller's key.
pub(super) const KEM_KEY_LEN: usize = 800;
/// Octets that carry a secret to who has that key.
pub(super) const CIPHERTEXT_LEN: usize = 768;

const KEY_HASH_CONTEXT: &str = "whimbrel 2026 hop ml-kem key";

/// A caller's ephemeral ML-KEM key.
pub(super) struct KemPair {
    private: Box<DecapsulationKey>,
    public: Box<[u8; KEM_KEY_LEN]>,
}

impl KemPair {
    /// `seed` is d and z of [FIPS 203 §7.1], in this order.
    pub(super) fn new(seed: [Secret; 2]) -> KemPair {
        let mut both = Seed::default();
        both[..32].copy_from_slice(seed[0].as_ref());
        both[32..].copy_from_slice(seed[1].as_ref());
        let private = DecapsulationKey::from_seed(both);
        both.zeroize();
        KemPair {
            public: Box::new(private.encapsulation_key().to_bytes().into()),
            private: Box::new(private),
        }
    }

    pub(super) fn public(&self) -> &[u8; KEM_KEY_LEN] {
        &self.public
    }

    /// Returns the secret in a ciphertext. One that was not made for this key gives another secret,
    /// not an error [FIPS 203 §6.3].
    pub(super) fn open(&self, ciphertext: &[u8; CIPHERTEXT_LEN]) -> Secret {
        wiped(self.private.decapsulate(&Array(*ciphertext)))
    }
}

/// Draws a secret for the holder of a key from `random`. `None` if the key is none.
pub(super) fn encapsulate(
    key: &[u8; KEM_KEY_LEN],
    random: &Secret,
) -> Option<([u8; CIPHERTEXT_LEN], Secret)> {
    let key = EncapsulationKey::new(&Array(*key)).ok()?;
    let (ciphertext, secret) = key.encapsulate_deterministic(&Array(**random));
    Some((ciphertext.into(), wiped(secret)))
}

/// What stands for a key in a PROOF and in all hashes of a call.
pub(super) fn key_hash(key: &[u8; KEM_KEY_LEN]) -> [u8; 32] {
    blake3::derive_key(KEY_HASH_CONTEXT, key)
}

fn wiped(mut secret: SharedKey) -> Secret {
    let kept = Zeroizing::new(secret.into());
    secret.zeroize();
    kept
}
