//! SignatureInfo, signers and verifiers.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::name::{Name, NameRef};
use crate::tlv::{self, DecodeError};
use crate::types;

/// The type of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignatureType {
    /// A plain SHA-256 digest: integrity, no origin.
    DigestSha256,
    /// RSA PKCS#1 v1.5 with SHA-256.
    Sha256WithRsa,
    /// ECDSA with SHA-256; Whimbrel makes and verifies only those of curve P-256.
    Sha256WithEcdsa,
    /// HMAC with SHA-256.
    HmacWithSha256,
    /// Ed25519.
    Ed25519,
    /// No signature at all (NULL).
    Null,
    /// An unknown type.
    Other(u64),
}

impl SignatureType {
    /// Returns the number on the wire.
    pub const fn code(self) -> u64 {
        match self {
            SignatureType::DigestSha256 => 0,
            SignatureType::Sha256WithRsa => 1,
            SignatureType::Sha256WithEcdsa => 3,
            SignatureType::HmacWithSha256 => 4,
            SignatureType::Ed25519 => 5,
            SignatureType::Null => 200,
            SignatureType::Other(code) => code,
        }
    }

    /// Converts from the number on the wire.
    pub const fn from_code(code: u64) -> SignatureType {
        match code {
            0 => SignatureType::DigestSha256,
            1 => SignatureType::Sha256WithRsa,
            3 => SignatureType::Sha256WithEcdsa,
            4 => SignatureType::HmacWithSha256,
            5 => SignatureType::Ed25519,
            200 => SignatureType::Null,
            code => SignatureType::Other(code),
        }
    }
}

/// The key of a signature, borrowed from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLocatorRef<'a> {
    /// The name of a key or certificate.
    Name(NameRef<'a>),
    /// The digest of a key.
    Digest(&'a [u8]),
}

/// A checked view of the SignatureInfo or InterestSignatureInfo of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureInfoRef<'a> {
    /// Its type.
    pub typ: SignatureType,
    /// The key that made it.
    pub key_locator: Option<KeyLocatorRef<'a>>,
    /// SignatureNonce, of Interests.
    pub nonce: Option<&'a [u8]>,
    /// SignatureTime in milliseconds since the Unix epoch, of Interests.
    pub time: Option<u64>,
    /// SignatureSeqNum, of Interests.
    pub sequence: Option<u64>,
    /// TLV-VALUE of the ValidityPeriod, of certificates.
    pub validity_period: Option<&'a [u8]>,
    /// TLV-VALUE of the AdditionalDescription, of certificates.
    pub description: Option<&'a [u8]>,
}

impl<'a> SignatureInfoRef<'a> {
    /// Decodes the TLV-VALUE of a SignatureInfo or InterestSignatureInfo.
    pub fn decode(value: &'a [u8]) -> Result<SignatureInfoRef<'a>, DecodeError> {
        const ORDER: [u64; 7] = [
            types::SIGNATURE_TYPE,
            types::KEY_LOCATOR,
            types::SIGNATURE_NONCE,
            types::SIGNATURE_TIME,
            types::SIGNATURE_SEQ_NUM,
            types::VALIDITY_PERIOD,
            types::ADDITIONAL_DESCRIPTION,
        ];
        let mut info = SignatureInfoRef {
            typ: SignatureType::Null,
            key_locator: None,
            nonce: None,
            time: None,
            sequence: None,
            validity_period: None,
            description: None,
        };
        let mut typ = None;
        tlv::read_ordered(value, &ORDER, |element| {
            match element.typ {
                types::SIGNATURE_TYPE => typ = Some(SignatureType::from_code(element.integer()?)),
                types::KEY_LOCATOR => info.key_locator = key_locator(element.value)?,
                types::SIGNATURE_NONCE => info.nonce = Some(element.value),
                types::SIGNATURE_TIME => info.time = Some(element.integer()?),
                types::SIGNATURE_SEQ_NUM => info.sequence = Some(element.integer()?),
                types::VALIDITY_PERIOD => info.validity_period = Some(element.value),
                _ => info.description = Some(element.value),
            }
            Ok(())
        })?;
        info.typ = typ.ok_or(DecodeError::Missing(types::SIGNATURE_TYPE))?;
        Ok(info)
    }
}

fn key_locator(value: &[u8]) -> Result<Option<KeyLocatorRef<'_>>, DecodeError> {
    // Some libraries write an empty KeyLocator in place of none.
    let mut reader = tlv::Reader::new(value);
    while let Some(element) = reader.element()? {
        match element.typ {
            types::NAME => {
                return Ok(Some(KeyLocatorRef::Name(NameRef::from_value(
                    element.value,
                )?)));
            }
            types::KEY_DIGEST => return Ok(Some(KeyLocatorRef::Digest(element.value))),
            typ if tlv::is_critical(typ) => return Err(DecodeError::Critical(typ)),
            _ => {}
        }
    }
    Ok(None)
}

/// The key of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyLocator {
    /// The name of a key or certificate.
    Name(Name),
    /// The digest of a key.
    Digest(Bytes),
}

/// A SignatureInfo to encode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureInfo {
    /// Its type.
    pub typ: SignatureType,
    /// The key that makes it.
    pub key_locator: Option<KeyLocator>,
    /// SignatureNonce, of Interests.
    pub nonce: Option<Bytes>,
    /// SignatureTime in milliseconds since the Unix epoch, of Interests.
    pub time: Option<u64>,
    /// SignatureSeqNum, of Interests.
    pub sequence: Option<u64>,
    /// Further encoded elements: ValidityPeriod and AdditionalDescription of certificates.
    pub extensions: Bytes,
}

impl SignatureInfo {
    /// Returns a SignatureInfo with only a type.
    pub const fn new(typ: SignatureType) -> SignatureInfo {
        SignatureInfo {
            typ,
            key_locator: None,
            nonce: None,
            time: None,
            sequence: None,
            extensions: Bytes::new(),
        }
    }

    /// Made by the key or certificate of this name.
    pub fn by(typ: SignatureType, key: Name) -> SignatureInfo {
        SignatureInfo {
            key_locator: Some(KeyLocator::Name(key)),
            ..SignatureInfo::new(typ)
        }
    }

    /// Adds a random nonce and the time in milliseconds since the Unix epoch, which make a signed
    /// Interest unique.
    pub fn stamped(self, nonce: [u8; 8], time: u64) -> SignatureInfo {
        SignatureInfo {
            nonce: Some(Bytes::copy_from_slice(&nonce)),
            time: Some(time),
            ..self
        }
    }

    /// Appends the element; `typ` is SignatureInfo or InterestSignatureInfo.
    pub fn encode(&self, out: &mut Vec<u8>, typ: u64) {
        tlv::write_nested(out, typ, |out| {
            tlv::write_integer_element(out, types::SIGNATURE_TYPE, self.typ.code());
            match &self.key_locator {
                Some(KeyLocator::Name(name)) => {
                    tlv::write_nested(out, types::KEY_LOCATOR, |out| name.as_ref().encode(out));
                }
                Some(KeyLocator::Digest(digest)) => {
                    tlv::write_nested(out, types::KEY_LOCATOR, |out| {
                        tlv::write_element(out, types::KEY_DIGEST, digest);
                    });
                }
                None => {}
            }
            if let Some(nonce) = &self.nonce {
                tlv::write_element(out, types::SIGNATURE_NONCE, nonce);
            }
            if let Some(time) = self.time {
                tlv::write_integer_element(out, types::SIGNATURE_TIME, time);
            }
            if let Some(sequence) = self.sequence {
                tlv::write_integer_element(out, types::SIGNATURE_SEQ_NUM, sequence);
            }
            out.extend_from_slice(&self.extensions);
        });
    }
}

/// Makes signatures.
pub trait Signer {
    /// Returns the SignatureInfo of its signatures.
    fn info(&self) -> SignatureInfo;

    /// Signs `portions`, one after the other.
    fn sign(&self, portions: &[&[u8]]) -> Vec<u8>;
}

/// Why a packet's signature is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The packet is not signed.
    #[error("the packet is not signed")]
    Unsigned,
    /// Its type is not that of the key.
    #[error("the packet is signed with {found:?}; the key is for {expected:?}")]
    Type {
        /// The key's type.
        expected: SignatureType,
        /// The packet's type.
        found: SignatureType,
    },
    /// It was not made over this packet with this key.
    #[error("the signature does not match the packet and the key")]
    Invalid,
    /// The digest of an Interest's parameters is wrong, missing or not at the end of the name.
    #[error("the name does not end with the digest of the parameters")]
    ParametersDigest,
}

/// Verifies signatures.
pub trait Verifier {
    /// Returns the type of signatures that it verifies.
    fn signature_type(&self) -> SignatureType;

    /// Returns true if `signature` is valid over `portions`, one after the other. A signature of a
    /// wrong length or encoding is invalid.
    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> bool;

    /// Fails unless it verifies signatures of this type.
    fn check_type(&self, found: SignatureType) -> Result<(), VerifyError> {
        let expected = self.signature_type();
        if expected == found {
            Ok(())
        } else {
            Err(VerifyError::Type { expected, found })
        }
    }
}

/// A plain SHA-256 digest in place of a signature.
#[derive(Clone, Copy, Debug, Default)]
pub struct DigestSigner;

impl Signer for DigestSigner {
    fn info(&self) -> SignatureInfo {
        SignatureInfo::new(SignatureType::DigestSha256)
    }

    fn sign(&self, portions: &[&[u8]]) -> Vec<u8> {
        sha256(portions).to_vec()
    }
}

impl Verifier for DigestSigner {
    fn signature_type(&self) -> SignatureType {
        SignatureType::DigestSha256
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> bool {
        sha256(portions) == signature
    }
}

/// SHA-256 over `portions`, one after the other.
pub fn sha256(portions: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for portion in portions {
        hasher.update(portion);
    }
    hasher.finalize().into()
}
