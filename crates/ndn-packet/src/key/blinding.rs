//! RSA signatures with blinding, which keeps timing measurements from revealing the private key.

use core::convert::Infallible;

use hmac::{Hmac, KeyInit, Mac};
use pkcs8::EncodePrivateKey;
use rand_core::{TryCryptoRng, TryRng};
use rsa::pkcs1v15;
use rsa::signature::{RandomizedMultipartSigner, SignatureEncoding};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::signature::sha256;

/// A private RSA key that signs without a source of randomness.
#[derive(Clone)]
pub(super) struct RsaSigner {
    signer: pkcs1v15::SigningKey<Sha256>,
    /// Derived from the private key; seeds the blinding.
    blinding_key: Zeroizing<[u8; 32]>,
}

impl RsaSigner {
    pub(super) fn new(key: rsa::RsaPrivateKey) -> RsaSigner {
        let secret = key
            .to_pkcs8_der()
            .map(|document| document.to_bytes())
            .unwrap_or_default();
        let blinding_key = Zeroizing::new(sha256(&[b"whimbrel rsa blinding", &secret]));
        RsaSigner {
            signer: pkcs1v15::SigningKey::new(key),
            blinding_key,
        }
    }

    pub(super) const fn signer(&self) -> &pkcs1v15::SigningKey<Sha256> {
        &self.signer
    }

    pub(super) fn key(&self) -> &rsa::RsaPrivateKey {
        self.signer.as_ref()
    }

    /// Empty only for a key that is damaged in memory: the crate checks each signature before it
    /// returns it.
    pub(super) fn sign(&self, portions: &[&[u8]]) -> Vec<u8> {
        let mut rng = KeyedStream::new(&self.blinding_key, &sha256(portions));
        self.signer
            .try_multipart_sign_with_rng(&mut rng, portions)
            .map(|signature| signature.to_vec())
            .unwrap_or_default()
    }
}

/// Octets that look random to everyone without the key: HMAC-SHA-256 of the message's digest and a
/// counter. Each message has a stream of its own, always the same one, as in RFC 6979.
struct KeyedStream {
    mac: Hmac<Sha256>,
    counter: u64,
}

impl KeyedStream {
    fn new(key: &[u8; 32], message: &[u8; 32]) -> KeyedStream {
        // Padded with zeros to the block of SHA-256, as HMAC does with a short key.
        let mut block = Zeroizing::new([0; 64]);
        block
            .iter_mut()
            .zip(key)
            .for_each(|(place, octet)| *place = *octet);
        let mut mac = <Hmac<Sha256> as KeyInit>::new(&(*block).into());
        mac.update(message);
        KeyedStream { mac, counter: 0 }
    }
}

impl TryRng for KeyedStream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut octets = [0; 4];
        self.try_fill_bytes(&mut octets)?;
        Ok(u32::from_le_bytes(octets))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut octets = [0; 8];
        self.try_fill_bytes(&mut octets)?;
        Ok(u64::from_le_bytes(octets))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        for part in out.chunks_mut(32) {
            let mut mac = self.mac.clone();
            mac.update(&self.counter.to_le_bytes());
            self.counter += 1;
            let block = mac.finalize().into_bytes();
            part.iter_mut()
                .zip(block)
                .for_each(|(octet, random)| *octet = random);
        }
        Ok(())
    }
}

impl TryCryptoRng for KeyedStream {}
