//! Shared keys.

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::name::Name;
use crate::signature::{SignatureInfo, SignatureType, Signer, Verifier};

/// A secret shared by signer and verifier: HMAC with SHA-256. Keys shorter than 32 octets are
/// strongly discouraged (RFC 2104 section 3).
#[derive(Clone)]
pub struct HmacKey {
    /// The state after the key was absorbed.
    mac: Hmac<Sha256>,
    name: Name,
}

impl HmacKey {
    /// Returns a key from the secret and the name by which the other side finds it.
    pub fn new(secret: &[u8], name: Name) -> HmacKey {
        // Longer secrets than a block are hashed first, so that every length is accepted.
        let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret)
            .unwrap_or_else(|_| <Hmac<Sha256> as KeyInit>::new(&Default::default()));
        HmacKey { mac, name }
    }

    fn over(&self, portions: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        portions.iter().for_each(|portion| mac.update(portion));
        mac
    }
}

impl Signer for HmacKey {
    fn info(&self) -> SignatureInfo {
        SignatureInfo::by(SignatureType::HmacWithSha256, self.name.clone())
    }

    fn sign(&self, portions: &[&[u8]]) -> Vec<u8> {
        self.over(portions).finalize().into_bytes().to_vec()
    }
}

impl Verifier for HmacKey {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HmacWithSha256
    }

    /// Takes the same time wherever the first difference is.
    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> bool {
        self.over(portions).verify_slice(signature).is_ok()
    }
}

impl fmt::Debug for HmacKey {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HmacKey({})", self.name)
    }
}
