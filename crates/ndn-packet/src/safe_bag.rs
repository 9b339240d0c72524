//! Safe bags: a certificate and its private key under a passphrase, as `ndnsec export` writes them.

use bytes::Bytes;
use rand_core::CryptoRng;

use crate::certificate::{Certificate, CertificateError};
use crate::key::{KeyError, PrivateKey};
use crate::tlv::{self, DecodeError, Reader};
use crate::types;

/// Why a safe bag cannot be decoded or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SafeBagError {
    /// It is not a safe bag.
    #[error("not a safe bag: {0}")]
    Packet(#[from] DecodeError),
    /// Its certificate is invalid.
    #[error("the certificate in the safe bag: {0}")]
    Certificate(#[from] CertificateError),
    /// Its private key cannot be decrypted or encrypted.
    #[error("the private key in the safe bag: {0}")]
    Key(#[from] KeyError),
    /// The private key is not that of the certificate.
    #[error("the private key in the safe bag does not belong to its certificate")]
    OtherKey,
}

/// A certificate and its private key under a passphrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeBag {
    certificate: Certificate,
    /// DER EncryptedPrivateKeyInfo.
    encrypted_key: Bytes,
}

impl SafeBag {
    /// Encrypts a key with a passphrase.
    pub fn seal(
        certificate: Certificate,
        key: &PrivateKey,
        passphrase: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<SafeBag, SafeBagError> {
        if key.public_key() != *certificate.public_key() {
            return Err(SafeBagError::OtherKey);
        }
        let encrypted_key = key.to_encrypted_pkcs8(passphrase, rng)?.into();
        Ok(SafeBag {
            certificate,
            encrypted_key,
        })
    }

    /// Decodes a whole element. Only [`SafeBag::open`] checks the private key.
    pub fn decode(bytes: &[u8]) -> Result<SafeBag, SafeBagError> {
        let outer = tlv::outermost(bytes)?;
        if outer.typ != types::SAFE_BAG {
            return Err(DecodeError::WrongType(outer.typ).into());
        }
        let mut reader = Reader::new(outer.value);
        let certificate = reader.expect(types::DATA)?;
        let encrypted_key = reader.expect(types::ENCRYPTED_KEY)?;
        reader.skip_unknown()?;
        Ok(SafeBag {
            certificate: Certificate::decode(Bytes::copy_from_slice(certificate.whole))?,
            encrypted_key: Bytes::copy_from_slice(encrypted_key.value),
        })
    }

    /// Encodes the whole element.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        tlv::write_nested(&mut out, types::SAFE_BAG, |out| {
            out.extend_from_slice(self.certificate.wire());
            tlv::write_element(out, types::ENCRYPTED_KEY, &self.encrypted_key);
        });
        out
    }

    /// Returns the certificate.
    pub const fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Decrypts the private key. Takes as long as its encryption demands, about 50 ms for a bag of
    /// Whimbrel.
    pub fn open(&self, passphrase: &[u8]) -> Result<PrivateKey, SafeBagError> {
        let key = PrivateKey::from_encrypted_pkcs8(&self.encrypted_key, passphrase)?;
        if key.public_key() == *self.certificate.public_key() {
            Ok(key)
        } else {
            Err(SafeBagError::OtherKey)
        }
    }
}
