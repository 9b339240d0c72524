//! Keys: they sign packets and verify signatures.
//!
//! Private keys are read and written as PKCS#8, plain or encrypted; public keys as
//! SubjectPublicKeyInfo, the content of a certificate. This module draws no randomness by itself:
//! the caller passes a generator to generate or encrypt a key.

mod blinding;
mod encrypted;
mod explicit_curve;
mod hmac;

use core::fmt;

use der::Decode;
use ed25519_dalek::ed25519;
use p256::ecdsa;
use p256::elliptic_curve::Generate;
use pkcs8::{EncodePrivateKey, EncodePublicKey, ObjectIdentifier};
use rand_core::CryptoRng;
use rsa::pkcs1v15;
use rsa::signature::{Keypair, MultipartSigner, MultipartVerifier};
use sha2::Sha256;
use zeroize::Zeroizing;

pub use self::hmac::HmacKey;
use crate::name::{Component, Name};
use crate::signature::{SignatureInfo, SignatureType, Signer, Verifier, sha256};

const ID_EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ID_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const ID_ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// RSA keys of fewer bits are refused: they can be factored.
pub const MIN_RSA_BITS: usize = 1024;
/// RSA keys of more bits are refused: verifying with them would take too long.
pub const MAX_RSA_BITS: usize = 4096;

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyType {
    /// ECDSA on the curve P-256: the default of NDN programs.
    EcdsaP256,
    /// RSA with this many bits, 1024 to 4096.
    Rsa(usize),
    /// Ed25519: fast and small, but not supported by older NDN programs.
    Ed25519,
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyType::EcdsaP256 => f.write_str("ECDSA P-256"),
            KeyType::Rsa(bits) => write!(f, "RSA {bits}"),
            KeyType::Ed25519 => f.write_str("Ed25519"),
        }
    }
}

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The octets are not a DER structure of the expected type.
    #[error(
        "the key is damaged, or not in the format PKCS#8 (private) or SubjectPublicKeyInfo (public)"
    )]
    Malformed,
    /// The type of key is not supported.
    #[error("the key is neither ECDSA P-256 nor RSA (1024 to 4096 bits) nor Ed25519")]
    Unsupported,
    /// The passphrase is wrong, or the encrypted key is damaged.
    #[error("the passphrase is wrong, or the encrypted key is damaged")]
    Passphrase,
    /// The encryption scheme is not supported.
    #[error(
        "the encryption of the key is not supported: use PBES2 with PBKDF2 or scrypt, and AES or 3DES"
    )]
    UnsupportedEncryption,
    /// Decrypting it would take too much time or memory.
    #[error(
        "decrypting the key would take unreasonable time or memory: export it again with usual parameters"
    )]
    TooCostly,
}

#[derive(Clone)]
enum Public {
    Ecdsa(ecdsa::VerifyingKey),
    Rsa(Box<pkcs1v15::VerifyingKey<Sha256>>),
    Ed25519(ed25519_dalek::VerifyingKey),
}

/// A public key: verifies signatures.
#[derive(Clone)]
pub struct PublicKey(Public);

impl PublicKey {
    /// Decodes a DER SubjectPublicKeyInfo. Curves given by their parameters, as in old NDN
    /// certificates, are accepted if they are P-256.
    pub fn from_spki(der: &[u8]) -> Result<PublicKey, KeyError> {
        let spki =
            pkcs8::SubjectPublicKeyInfoRef::from_der(der).map_err(|_| KeyError::Malformed)?;
        match spki.algorithm.oid {
            ID_EC_PUBLIC_KEY => {
                explicit_curve::check_p256(spki.algorithm.parameters)?;
                let point = spki
                    .subject_public_key
                    .as_bytes()
                    .ok_or(KeyError::Malformed)?;
                let key =
                    ecdsa::VerifyingKey::from_sec1_bytes(point).map_err(|_| KeyError::Malformed)?;
                Ok(PublicKey(Public::Ecdsa(key)))
            }
            ID_RSA => {
                let octets = spki
                    .subject_public_key
                    .as_bytes()
                    .ok_or(KeyError::Malformed)?;
                let numbers = rsa::pkcs1::RsaPublicKeyRef::from_der(octets)
                    .map_err(|_| KeyError::Malformed)?;
                check_modulus(numbers.modulus.as_bytes())?;
                PublicKey::of_rsa(
                    rsa::RsaPublicKey::try_from(numbers).map_err(|_| KeyError::Malformed)?,
                )
            }
            ID_ED25519 => {
                let octets = spki
                    .subject_public_key
                    .as_bytes()
                    .ok_or(KeyError::Malformed)?;
                let octets = octets.try_into().map_err(|_| KeyError::Malformed)?;
                let key = ed25519_dalek::VerifyingKey::from_bytes(octets)
                    .map_err(|_| KeyError::Malformed)?;
                Ok(PublicKey(Public::Ed25519(key)))
            }
            _ => Err(KeyError::Unsupported),
        }
    }

    fn of_rsa(key: rsa::RsaPublicKey) -> Result<PublicKey, KeyError> {
        let bits = rsa_bits(&key);
        if (MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits) {
            Ok(PublicKey(Public::Rsa(Box::new(
                pkcs1v15::VerifyingKey::new(key),
            ))))
        } else {
            Err(KeyError::Unsupported)
        }
    }

    /// Encodes as a DER SubjectPublicKeyInfo.
    pub fn to_spki(&self) -> Result<Vec<u8>, KeyError> {
        let document = match &self.0 {
            Public::Ecdsa(key) => key.to_public_key_der(),
            Public::Rsa(key) => key.to_public_key_der(),
            Public::Ed25519(key) => key.to_public_key_der(),
        };
        Ok(document.map_err(|_| KeyError::Malformed)?.into_vec())
    }

    /// Returns its type.
    pub fn key_type(&self) -> KeyType {
        match &self.0 {
            Public::Ecdsa(_) => KeyType::EcdsaP256,
            Public::Rsa(key) => KeyType::Rsa(rsa_bits(key.as_ref().as_ref())),
            Public::Ed25519(_) => KeyType::Ed25519,
        }
    }

    /// Returns the SHA-256 of its SubjectPublicKeyInfo: the value of a KeyDigest.
    pub fn digest(&self) -> Result<[u8; 32], KeyError> {
        Ok(sha256(&[&self.to_spki()?]))
    }

    /// Returns a name component that distinguishes it from other keys of its identity: the first 8
    /// octets of its digest.
    pub fn key_id(&self) -> Result<Component, KeyError> {
        let digest = self.digest()?;
        Ok(Component::generic(
            digest.get(..8).unwrap_or_default().to_vec(),
        ))
    }
}

impl Verifier for PublicKey {
    fn signature_type(&self) -> SignatureType {
        match &self.0 {
            Public::Ecdsa(_) => SignatureType::Sha256WithEcdsa,
            Public::Rsa(_) => SignatureType::Sha256WithRsa,
            Public::Ed25519(_) => SignatureType::Ed25519,
        }
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> bool {
        match &self.0 {
            Public::Ecdsa(key) => ecdsa::Signature::from_der(signature)
                .is_ok_and(|signature| key.multipart_verify(portions, &signature).is_ok()),
            Public::Rsa(key) => pkcs1v15::Signature::try_from(signature).is_ok_and(|signature| {
                use rsa::signature::hazmat::PrehashVerifier;
                key.verify_prehash(&sha256(portions), &signature).is_ok()
            }),
            Public::Ed25519(key) => ed25519::Signature::from_slice(signature)
                .is_ok_and(|signature| key.multipart_verify(portions, &signature).is_ok()),
        }
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        matches!((self.to_spki(), other.to_spki()), (Ok(own), Ok(others)) if own == others)
    }
}

impl Eq for PublicKey {}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.key_type())
    }
}

/// Checked before any calculation: the cost grows with the cube of the length.
fn check_modulus(octets: &[u8]) -> Result<(), KeyError> {
    if (MIN_RSA_BITS / 8..=MAX_RSA_BITS / 8).contains(&octets.len()) {
        Ok(())
    } else {
        Err(KeyError::Unsupported)
    }
}

fn rsa_bits(key: &impl rsa::traits::PublicKeyParts) -> usize {
    key.n().bits() as usize
}

#[derive(Clone)]
enum Private {
    Ecdsa(ecdsa::SigningKey),
    Rsa(Box<blinding::RsaSigner>),
    Ed25519(ed25519_dalek::SigningKey),
}

/// A private key: signs. Its memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct PrivateKey(Private);

impl PrivateKey {
    /// Generates a key. RSA takes seconds.
    pub fn generate(typ: KeyType, rng: &mut impl CryptoRng) -> Result<PrivateKey, KeyError> {
        match typ {
            KeyType::EcdsaP256 => Ok(PrivateKey(Private::Ecdsa(
                ecdsa::SigningKey::generate_from_rng(rng),
            ))),
            KeyType::Ed25519 => {
                let mut seed = Zeroizing::new([0; 32]);
                rng.fill_bytes(&mut *seed);
                Ok(PrivateKey(Private::Ed25519(
                    ed25519_dalek::SigningKey::from_bytes(&seed),
                )))
            }
            KeyType::Rsa(bits) if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits) => {
                Err(KeyError::Unsupported)
            }
            KeyType::Rsa(bits) => {
                let key = rsa::RsaPrivateKey::new(rng, bits).map_err(|_| KeyError::Unsupported)?;
                PrivateKey::of_rsa(key)
            }
        }
    }

    fn of_rsa(key: rsa::RsaPrivateKey) -> Result<PrivateKey, KeyError> {
        let bits = rsa_bits(&key);
        if (MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits) {
            Ok(PrivateKey(Private::Rsa(Box::new(
                blinding::RsaSigner::new(key),
            ))))
        } else {
            Err(KeyError::Unsupported)
        }
    }

    /// Decodes a DER PrivateKeyInfo (PKCS#8).
    pub fn from_pkcs8(der: &[u8]) -> Result<PrivateKey, KeyError> {
        let info = pkcs8::PrivateKeyInfoRef::from_der(der).map_err(|_| KeyError::Malformed)?;
        match info.algorithm.oid {
            ID_EC_PUBLIC_KEY => {
                explicit_curve::check_p256(info.algorithm.parameters)?;
                let scalar = explicit_curve::private_scalar(info.private_key.as_bytes())?;
                let key =
                    ecdsa::SigningKey::from_slice(&*scalar).map_err(|_| KeyError::Malformed)?;
                Ok(PrivateKey(Private::Ecdsa(key)))
            }
            ID_RSA => {
                let numbers = rsa::pkcs1::RsaPrivateKeyRef::from_der(info.private_key.as_bytes())
                    .map_err(|_| KeyError::Malformed)?;
                check_modulus(numbers.modulus.as_bytes())?;
                PrivateKey::of_rsa(
                    rsa::RsaPrivateKey::try_from(numbers).map_err(|_| KeyError::Malformed)?,
                )
            }
            ID_ED25519 => {
                let key =
                    ed25519_dalek::SigningKey::try_from(info).map_err(|_| KeyError::Malformed)?;
                Ok(PrivateKey(Private::Ed25519(key)))
            }
            _ => Err(KeyError::Unsupported),
        }
    }

    /// Encodes as a DER PrivateKeyInfo (PKCS#8).
    pub fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let document = match &self.0 {
            Private::Ecdsa(key) => key.to_pkcs8_der(),
            Private::Rsa(key) => key.key().to_pkcs8_der(),
            // Omits the public key: OpenSSL before 3 rejects the form that has it.
            Private::Ed25519(key) => ed25519::KeypairBytes {
                secret_key: key.to_bytes(),
                public_key: None,
            }
            .to_pkcs8_der(),
        };
        Ok(document.map_err(|_| KeyError::Malformed)?.to_bytes())
    }

    /// Decrypts a DER EncryptedPrivateKeyInfo (PKCS#8), as in safe bags.
    pub fn from_encrypted_pkcs8(der: &[u8], passphrase: &[u8]) -> Result<PrivateKey, KeyError> {
        PrivateKey::from_pkcs8(&encrypted::decrypt(der, passphrase)?)
    }

    /// Encrypts as a DER EncryptedPrivateKeyInfo (PKCS#8): PBES2 with PBKDF2-HMAC-SHA-256 and
    /// AES-256-CBC, which all NDN tools and OpenSSL read.
    pub fn to_encrypted_pkcs8(
        &self,
        passphrase: &[u8],
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<u8>, KeyError> {
        encrypted::encrypt(&self.to_pkcs8()?, passphrase, rng)
    }

    /// Returns its type.
    pub fn key_type(&self) -> KeyType {
        match &self.0 {
            Private::Ecdsa(_) => KeyType::EcdsaP256,
            Private::Rsa(key) => KeyType::Rsa(rsa_bits(key.key())),
            Private::Ed25519(_) => KeyType::Ed25519,
        }
    }

    /// Returns its public half.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(match &self.0 {
            Private::Ecdsa(key) => Public::Ecdsa(*key.verifying_key()),
            Private::Rsa(key) => Public::Rsa(Box::new(key.signer().verifying_key())),
            Private::Ed25519(key) => Public::Ed25519(key.verifying_key()),
        })
    }

    /// Signs `portions`, one after the other. The same portions give the same signature (ECDSA: RFC
    /// 6979).
    pub fn sign(&self, portions: &[&[u8]]) -> Vec<u8> {
        match &self.0 {
            Private::Ecdsa(key) => {
                let signature: ecdsa::Signature = key.multipart_sign(portions);
                signature.to_der().as_bytes().to_vec()
            }
            Private::Rsa(key) => key.sign(portions),
            Private::Ed25519(key) => {
                let signature: ed25519::Signature = key.multipart_sign(portions);
                signature.to_bytes().to_vec()
            }
        }
    }

    /// Returns a signer with this key, under the name of the key or of its certificate.
    pub fn signer(&self, locator: Name) -> KeySigner {
        let typ = self.public_key().signature_type();
        KeySigner {
            key: self.clone(),
            info: SignatureInfo::by(typ, locator),
        }
    }
}

impl fmt::Debug for PrivateKey {
    /// Hides the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.key_type())
    }
}

/// A private key with the SignatureInfo of its signatures.
#[derive(Clone, Debug)]
pub struct KeySigner {
    key: PrivateKey,
    info: SignatureInfo,
}

impl KeySigner {
    /// Returns the key.
    pub const fn key(&self) -> &PrivateKey {
        &self.key
    }
}

impl Signer for KeySigner {
    fn info(&self) -> SignatureInfo {
        self.info.clone()
    }

    fn sign(&self, portions: &[&[u8]]) -> Vec<u8> {
        self.key.sign(portions)
    }
}
