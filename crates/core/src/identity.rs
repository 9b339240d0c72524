//! Keys and the names that they prove.
//!
//! A host, a router, a group or a service is named by the hash of its Ed25519 public key, so a name
//! needs no authority: the holder of the key is the bearer of the name.

use core::fmt;
use core::str::FromStr;

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey, KeypairBytes};
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use zeroize::{Zeroize, Zeroizing};

use crate::Guid;

/// BLAKE3 key-derivation context of a key's name. Content is named by plain BLAKE3, which never
/// gives the same 32 bytes for any input, so content cannot pass for a key or a key for content.
const GUID_CONTEXT: &str = "whimbrel 2026 guid of an ed25519 public key";

/// A secret key with its public half. Its memory is wiped when it is dropped, and [`fmt::Debug`]
/// shows the name only.
#[derive(Clone)]
pub struct KeyPair(SigningKey);

impl KeyPair {
    /// Returns the key pair of 32 secret bytes (the seed of RFC 8032). Every 32 bytes are a valid
    /// secret.
    pub fn from_secret(secret: &[u8; 32]) -> KeyPair {
        KeyPair(SigningKey::from_bytes(secret))
    }

    /// Returns a new key pair from 32 bytes that the caller has just drawn from the operating
    /// system; they are wiped.
    pub fn generate(fresh: &mut [u8; 32]) -> KeyPair {
        let pair = KeyPair::from_secret(fresh);
        fresh.zeroize();
        pair
    }

    /// Returns the secret, for a program of the same user that is to sign with it.
    pub fn secret(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// Returns the public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Returns the name of this key.
    pub fn guid(&self) -> Guid {
        self.public().guid()
    }

    /// Signs `message` for one purpose. `context` is a fixed text per purpose: a signature for one
    /// is invalid for every other.
    pub fn sign(&self, context: &str, message: &[u8]) -> Signature {
        Signature(
            self.0
                .sign(&blake3::derive_key(context, message))
                .to_bytes(),
        )
    }

    /// Returns the key file's text: PKCS#8 version 1 in PEM ("BEGIN PRIVATE KEY"), which `openssl
    /// pkey` reads too.
    pub fn to_pem(&self) -> Result<Zeroizing<String>, KeyFileError> {
        let bytes = KeypairBytes {
            secret_key: self.0.to_bytes(),
            public_key: None,
        };
        bytes
            .to_pkcs8_pem(LineEnding::LF)
            .map_err(|_| KeyFileError::NotPkcs8)
    }

    /// Parses a key file of [`KeyPair::to_pem`] or `openssl genpkey -algorithm ed25519`.
    pub fn from_pem(text: &str) -> Result<KeyPair, KeyFileError> {
        // A longer text cannot be one Ed25519 key; the bound avoids parsing a wrong file at length.
        if text.len() > MAX_PEM_LEN {
            return Err(KeyFileError::TooLong(text.len()));
        }
        SigningKey::from_pkcs8_pem(text)
            .map(KeyPair)
            .map_err(|_| KeyFileError::NotPkcs8)
    }
}

/// Bytes. An Ed25519 key in PEM has about 120; the rest is room for comments before it.
const MAX_PEM_LEN: usize = 4096;

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({})", self.guid().short())
    }
}

/// Why a text is not a key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// Longer than any key file.
    #[error("a key file is at most {MAX_PEM_LEN} bytes long; this one has {0}")]
    TooLong(usize),
    /// Not PEM, not PKCS#8, or a key of another type.
    #[error("not an Ed25519 private key in PKCS#8 PEM form (\"BEGIN PRIVATE KEY\")")]
    NotPkcs8,
}

/// An Ed25519 public key on the wire: 32 bytes, which need not be a valid point until
/// [`PublicKey::verify`] has succeeded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// Size on the wire, in bytes.
    pub const LEN: usize = 32;

    /// Returns the bytes in wire format.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the name of this key: its BLAKE3 hash in a domain of its own.
    pub fn guid(&self) -> Guid {
        Guid(blake3::derive_key(GUID_CONTEXT, &self.0))
    }

    /// Verifies that the holder of this key signed `message` for the purpose `context`. Refuses
    /// weak keys and non-canonical signatures, so that a second signature cannot be made from a
    /// first.
    pub fn verify(
        &self,
        context: &str,
        message: &[u8],
        signature: &Signature,
    ) -> Result<(), SignatureError> {
        let key = VerifyingKey::from_bytes(&self.0).map_err(|_| SignatureError::BadKey)?;
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        key.verify_strict(&blake3::derive_key(context, message), &signature)
            .map_err(|_| SignatureError::BadSignature)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Guid(self.0).fmt(f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", Guid(self.0).short())
    }
}

impl FromStr for PublicKey {
    type Err = crate::ParseGuidError;

    /// 64 hexadecimal digits, as [`fmt::Display`] writes them.
    fn from_str(text: &str) -> Result<PublicKey, Self::Err> {
        text.parse::<Guid>().map(|bytes| PublicKey(bytes.0))
    }
}

/// An Ed25519 signature: 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

impl Signature {
    /// Size on the wire, in bytes.
    pub const LEN: usize = 64;
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(..)")
    }
}

/// Why a signature is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The 32 bytes are not an Ed25519 public key.
    #[error("the public key is not a point of the curve")]
    BadKey,
    /// Another key, another purpose or another message.
    #[error("the signature does not match the key and the message")]
    BadSignature,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_signature_holds_for_its_key_purpose_and_message_only(
            secret: [u8; 32], other: [u8; 32], message in prop::collection::vec(any::<u8>(), 0..100), flip in 0usize..64,
        ) {
            prop_assume!(secret != other);
            let keys = KeyPair::from_secret(&secret);
            let signature = keys.sign("a", &message);
            prop_assert_eq!(keys.public().verify("a", &message, &signature), Ok(()));
            prop_assert!(keys.public().verify("b", &message, &signature).is_err());
            prop_assert!(KeyPair::from_secret(&other).public().verify("a", &message, &signature).is_err());
            let mut longer = message.clone();
            longer.push(0);
            prop_assert!(keys.public().verify("a", &longer, &signature).is_err());
            let mut forged = signature;
            forged.0[flip] ^= 1;
            prop_assert!(keys.public().verify("a", &message, &forged).is_err());
        }

        #[test]
        fn any_bytes_as_key_and_signature_are_refused_without_panic(key: [u8; 32], low: [u8; 32], high: [u8; 32]) {
            let mut signature = Signature([0; 64]);
            signature.0[..32].copy_from_slice(&low);
            signature.0[32..].copy_from_slice(&high);
            prop_assert!(PublicKey(key).verify("a", b"message", &signature).is_err());
        }

        #[test]
        fn any_text_is_a_key_file_or_refused_without_panic(text in ".{0,200}") {
            prop_assert!(KeyPair::from_pem(&text).is_err());
        }
    }

    #[test]
    fn a_key_file_round_trips() {
        let keys = KeyPair::generate(&mut [7; 32]);
        let pem = keys.to_pem().unwrap();
        assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----\n"));
        assert_eq!(KeyPair::from_pem(&pem).unwrap().guid(), keys.guid());
        assert_eq!(
            KeyPair::from_pem(&pem[1..]).unwrap_err(),
            KeyFileError::NotPkcs8
        );
        assert_eq!(
            KeyPair::from_pem(&" ".repeat(5000)).unwrap_err(),
            KeyFileError::TooLong(5000)
        );
    }

    #[test]
    fn a_key_file_of_openssl_is_read() {
        // RFC 8410 section 10.3, the example; openssl writes the same.
        let text = "-----BEGIN PRIVATE KEY-----\n\
                    MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                    -----END PRIVATE KEY-----\n";
        let keys = KeyPair::from_pem(text).unwrap();
        assert_eq!(*keys.to_pem().unwrap(), text);
    }

    #[test]
    fn generating_wipes_what_it_was_given_and_nothing_shows_the_secret() {
        let mut fresh = [0xab; 32];
        let keys = KeyPair::generate(&mut fresh);
        assert_eq!(fresh, [0; 32]);
        assert_eq!(
            format!("{keys:?}"),
            format!("KeyPair({})", keys.guid().short())
        );
    }

    #[test]
    fn a_key_and_content_of_the_same_bytes_have_different_names() {
        let key = KeyPair::from_secret(&[1; 32]).public();
        assert_ne!(key.guid().0, *blake3::hash(key.as_bytes()).as_bytes());
    }
}
