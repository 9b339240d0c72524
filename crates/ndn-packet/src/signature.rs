//! What a signature says of itself, and who makes one.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::name::{Name, NameRef};
use crate::tlv::{self, DecodeError};
use crate::types;

/// How a signature was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignatureType {
    /// A plain SHA-256 digest: integrity, no origin.
    DigestSha256,
    /// RSA PKCS#1 v1.5 with SHA-256.
    Sha256WithRsa,
    /// ECDSA with SHA-256; Whimbrel makes and checks those of curve P-256.
    Sha256WithEcdsa,
    /// HMAC with SHA-256.
    HmacWithSha256,
    /// Ed25519.
    Ed25519,
    /// No signature at all (NULL).
    Null,
    /// A type that this software does not know.
    Other(u64),
}

impl SignatureType {
    /// The number on the wire.
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

    /// From the number on the wire.
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

/// Which key made a signature, where it lies in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLocatorRef<'a> {
    /// The name of a key or certificate.
    Name(NameRef<'a>),
    /// The digest of a key.
    Digest(&'a [u8]),
}

/// The SignatureInfo or InterestSignatureInfo of a packet, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureInfoRef<'a> {
    /// How it was made.
    pub typ: SignatureType,
    /// Which key made it.
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
    /// From the TLV-VALUE of a SignatureInfo or InterestSignatureInfo.
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
    // An empty KeyLocator is what some libraries write where they have none.
    let Some(element) = tlv::Reader::new(value).element()? else { return Ok(None) };
    match element.typ {
        types::NAME => Ok(Some(KeyLocatorRef::Name(NameRef::from_value(element.value)?))),
        types::KEY_DIGEST => Ok(Some(KeyLocatorRef::Digest(element.value))),
        typ => Err(DecodeError::Critical(typ)),
    }
}

/// Which key made a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyLocator {
    /// The name of a key or certificate.
    Name(Name),
    /// The digest of a key.
    Digest(Bytes),
}

/// A SignatureInfo to be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureInfo {
    /// How it is made.
    pub typ: SignatureType,
    /// Which key makes it.
    pub key_locator: Option<KeyLocator>,
    /// SignatureNonce, of Interests.
    pub nonce: Option<Bytes>,
    /// SignatureTime in milliseconds since the Unix epoch, of Interests.
    pub time: Option<u64>,
    /// SignatureSeqNum, of Interests.
    pub sequence: Option<u64>,
    /// Elements that follow, encoded: ValidityPeriod and AdditionalDescription of certificates.
    pub extensions: Bytes,
}

impl SignatureInfo {
    /// Without anything but its type.
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

    /// By the key or certificate of this name.
    pub fn by(typ: SignatureType, key: Name) -> SignatureInfo {
        SignatureInfo { key_locator: Some(KeyLocator::Name(key)), ..SignatureInfo::new(typ) }
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
    /// What its signatures say of themselves.
    fn info(&self) -> SignatureInfo;

    /// The signature over `portions`, one after the other.
    fn sign(&self, portions: &[&[u8]]) -> Vec<u8>;
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

/// SHA-256 over `portions`, one after the other.
pub fn sha256(portions: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for portion in portions {
        hasher.update(portion);
    }
    hasher.finalize().into()
}
