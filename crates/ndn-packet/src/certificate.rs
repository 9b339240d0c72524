//! Certificates: Data packets that bind a public key to an identity.
//!
//! The name of a certificate is `/<identity>/KEY/<key-id>/<issuer-id>/<version>`; its first part,
//! up to the key's id, is the name of the key.

use core::time::Duration;

use bytes::Bytes;

use crate::data::{ContentType, Data, DataRef};
use crate::key::{KeyError, PrivateKey, PublicKey};
use crate::name::{Component, ComponentRef, Name, NameRef};
use crate::signature::{KeyLocator, KeyLocatorRef, Signer, Verifier, VerifyError};
use crate::tlv::{self, DecodeError};
use crate::types;
use crate::validity::ValidityPeriod;

/// How long content stores may serve a certificate as fresh, as the specification recommends.
const FRESHNESS: Duration = Duration::from_secs(3600);
/// Components of a certificate's name from `KEY` on.
const FROM_KEY_ON: usize = 4;

/// Why a packet is not a certificate, or a certificate cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is not a Data packet.
    #[error("not a Data packet: {0}")]
    Packet(#[from] DecodeError),
    /// Its name does not have the form of a certificate's.
    #[error("its name is not /<identity>/KEY/<key-id>/<issuer-id>/<version>")]
    Name,
    /// Its ContentType is not KEY.
    #[error("its ContentType is not KEY")]
    ContentType,
    /// It has no FreshnessPeriod.
    #[error("it has no FreshnessPeriod")]
    Freshness,
    /// It has no ValidityPeriod.
    #[error("it has no ValidityPeriod")]
    Validity,
    /// Its public key cannot be used.
    #[error("its public key: {0}")]
    Key(#[from] KeyError),
    /// It certifies a different key.
    #[error("the certificate belongs to another key")]
    OtherKey,
}

/// A certificate, checked for its format only: whether to trust it is a separate question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    wire: Bytes,
    name: Name,
    key_name: Name,
    identity: Name,
    validity: ValidityPeriod,
    public_key: PublicKey,
    locator: Option<KeyLocator>,
}

impl Certificate {
    /// Decodes a whole Data packet, and keeps it.
    pub fn decode(wire: Bytes) -> Result<Certificate, CertificateError> {
        let data = DataRef::decode(&wire)?;
        let identity_len = data
            .name
            .len()
            .checked_sub(FROM_KEY_ON)
            .ok_or(CertificateError::Name)?;
        if !data.name.get(identity_len).is_some_and(is_key_component) {
            return Err(CertificateError::Name);
        }
        if data.content_type != ContentType::Key {
            return Err(CertificateError::ContentType);
        }
        if data.freshness.is_zero() {
            return Err(CertificateError::Freshness);
        }
        let period = data
            .signature_info
            .validity_period
            .ok_or(CertificateError::Validity)?;
        let validity = ValidityPeriod::decode(period)?;
        let public_key = PublicKey::from_spki(data.content)?;
        let locator = data.signature_info.key_locator.map(KeyLocator::from);
        let name = data.name.to_name();
        Ok(Certificate {
            key_name: name.prefix(identity_len + 2),
            identity: name.prefix(identity_len),
            name,
            validity,
            public_key,
            locator,
            wire,
        })
    }

    /// Returns the whole packet.
    pub const fn wire(&self) -> &Bytes {
        &self.wire
    }

    /// Returns its own name.
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the name of the key.
    pub const fn key_name(&self) -> &Name {
        &self.key_name
    }

    /// Returns the identity that owns the key.
    pub const fn identity(&self) -> &Name {
        &self.identity
    }

    /// Returns the issuer component of its name.
    pub fn issuer_id(&self) -> Option<ComponentRef<'_>> {
        self.name.as_ref().get(self.name.len().checked_sub(2)?)
    }

    /// Returns its version, in either form that the conventions have had.
    pub fn version(&self) -> Option<u64> {
        let last = self.name.as_ref().last()?;
        last.as_version().or_else(|| last.marked_version())
    }

    /// Returns its validity period.
    pub const fn validity(&self) -> &ValidityPeriod {
        &self.validity
    }

    /// Returns true if it is valid at this second of Unix time.
    pub const fn is_valid_at(&self, unix_seconds: u64) -> bool {
        self.validity.contains(unix_seconds)
    }

    /// Returns the key.
    pub const fn public_key(&self) -> &PublicKey {
        &self.public_key
    }

    /// Returns the key that signed it.
    pub const fn locator(&self) -> Option<&KeyLocator> {
        self.locator.as_ref()
    }

    /// Returns true if its key locator names its own key; [`Certificate::verify`] with
    /// [`Certificate::public_key`] proves it.
    pub fn is_self_signed(&self) -> bool {
        match &self.locator {
            Some(KeyLocator::Name(locator)) => {
                let locator = locator.as_ref();
                self.key_name.as_ref().is_prefix_of(locator)
                    && locator.is_prefix_of(self.name.as_ref())
            }
            Some(KeyLocator::Digest(digest)) => self
                .public_key
                .digest()
                .is_ok_and(|own| digest.as_ref() == own.as_slice()),
            None => false,
        }
    }

    /// Verifies its signature with the issuer's key.
    pub fn verify(&self, issuer: &dyn Verifier) -> Result<(), VerifyError> {
        DataRef::decode(&self.wire)
            .map_err(|_| VerifyError::Invalid)?
            .verify(issuer)
    }

    /// Returns the issuer's additional information: keys and values. Skips entries that are not
    /// UTF-8.
    pub fn description(&self) -> Vec<(String, String)> {
        let data = DataRef::decode(&self.wire).ok();
        let value = data
            .and_then(|data| data.signature_info.description)
            .unwrap_or_default();
        let mut entries = Vec::new();
        let mut reader = tlv::Reader::new(value);
        while let Ok(Some(element)) = reader.element() {
            if element.typ == types::DESCRIPTION_ENTRY {
                entries.extend(description_entry(element.value));
            }
        }
        entries
    }
}

fn description_entry(value: &[u8]) -> Option<(String, String)> {
    let (mut key, mut text) = (None, None);
    tlv::read_ordered(
        value,
        &[types::DESCRIPTION_KEY, types::DESCRIPTION_VALUE],
        |element| {
            let string = String::from_utf8(element.value.to_vec()).ok();
            if element.typ == types::DESCRIPTION_KEY {
                key = string
            } else {
                text = string
            }
            Ok(())
        },
    )
    .ok()?;
    key.zip(text)
}

fn is_key_component(component: ComponentRef<'_>) -> bool {
    component == ComponentRef::generic(b"KEY")
}

/// Returns the name of a new key: that of its identity, `KEY`, and a component derived from the
/// key.
pub fn key_name(identity: &Name, key: &PublicKey) -> Result<Name, KeyError> {
    Ok(identity.child_generic(b"KEY").child(key.key_id()?.as_ref()))
}

/// Returns the identity in a key's name; `None` if it is not `/<identity>/KEY/<key-id>`.
pub fn identity_of_key(key_name: NameRef<'_>) -> Option<NameRef<'_>> {
    let at = key_name.len().checked_sub(2)?;
    key_name
        .get(at)
        .is_some_and(is_key_component)
        .then(|| key_name.prefix(at))
}

/// A certificate to issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateDraft {
    /// The name of the key, as [`key_name`] makes it.
    pub key_name: Name,
    /// The issuer component of its name.
    pub issuer_id: Component,
    /// Version, by convention microseconds since the Unix epoch.
    pub version: u64,
    /// Its validity period.
    pub validity: ValidityPeriod,
    /// Additional keys and values.
    pub description: Vec<(String, String)>,
}

impl CertificateDraft {
    /// Returns a request without a description.
    pub fn new(
        key_name: Name,
        issuer_id: Component,
        version: u64,
        validity: ValidityPeriod,
    ) -> CertificateDraft {
        CertificateDraft {
            key_name,
            issuer_id,
            version,
            validity,
            description: Vec::new(),
        }
    }

    /// Issues the certificate of `key`, signed by the issuer.
    pub fn issue(
        &self,
        key: &PublicKey,
        issuer: &dyn Signer,
    ) -> Result<Certificate, CertificateError> {
        let name = self
            .key_name
            .child(self.issuer_id.as_ref())
            .with_version(self.version);
        let mut info = issuer.info();
        info.extensions = self.extensions();
        let data = Data {
            content_type: ContentType::Key,
            freshness: FRESHNESS,
            ..Data::new(name, key.to_spki()?)
        };
        // Decodes the result, so that a key name without KEY is an error.
        Certificate::decode(data.encode_with_info(issuer, &info).into())
    }

    /// Issues the self-signed certificate of a key.
    pub fn self_sign(&self, key: &PrivateKey) -> Result<Certificate, CertificateError> {
        self.issue(&key.public_key(), &key.signer(self.key_name.clone()))
    }

    fn extensions(&self) -> Bytes {
        let mut out = Vec::new();
        self.validity.encode(&mut out);
        if !self.description.is_empty() {
            tlv::write_nested(&mut out, types::ADDITIONAL_DESCRIPTION, |out| {
                for (key, value) in &self.description {
                    tlv::write_nested(out, types::DESCRIPTION_ENTRY, |out| {
                        tlv::write_element(out, types::DESCRIPTION_KEY, key.as_bytes());
                        tlv::write_element(out, types::DESCRIPTION_VALUE, value.as_bytes());
                    });
                }
            });
        }
        out.into()
    }
}

impl From<KeyLocatorRef<'_>> for KeyLocator {
    fn from(locator: KeyLocatorRef<'_>) -> KeyLocator {
        match locator {
            KeyLocatorRef::Name(name) => KeyLocator::Name(name.to_name()),
            KeyLocatorRef::Digest(digest) => KeyLocator::Digest(Bytes::copy_from_slice(digest)),
        }
    }
}
