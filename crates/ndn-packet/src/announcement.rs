//! Prefix announcements: Data packets in which an application or a router announces that it can
//! reach a prefix.

use core::time::Duration;

use crate::conventions::PREFIX_ANNOUNCEMENT;
use crate::data::{ContentType, Data, DataRef};
use crate::name::{Name, NameRef};
use crate::signature::{Signer, Verifier, VerifyError};
use crate::tlv::{self, DecodeError, Reader};
use crate::types;
use crate::validity::ValidityPeriod;

/// A checked view of a prefix announcement: name `/<prefix>/32=PA/<version>/<segment 0>`,
/// ContentType 5.
#[derive(Clone, Copy, Debug)]
pub struct PrefixAnnouncementRef<'a> {
    /// The whole packet.
    pub data: DataRef<'a>,
    /// The announced prefix.
    pub prefix: NameRef<'a>,
    /// Its version: a newer one replaces an older one.
    pub version: u64,
    /// How long it is valid after it was received.
    pub expiration: Duration,
    /// The period that bounds its validity.
    pub validity: Option<ValidityPeriod>,
}

impl<'a> PrefixAnnouncementRef<'a> {
    /// Decodes a whole Data packet, such as the value of the link header field.
    pub fn decode(wire: &'a [u8]) -> Result<PrefixAnnouncementRef<'a>, DecodeError> {
        let data = DataRef::decode(wire)?;
        if data.content_type != ContentType::PrefixAnnouncement {
            return Err(DecodeError::Value(types::CONTENT_TYPE));
        }
        let (prefix, version) = announced(data.name).ok_or(DecodeError::Value(types::NAME))?;
        let (expiration, validity) = content(data.content)?;
        Ok(PrefixAnnouncementRef {
            data,
            prefix,
            version,
            expiration,
            validity,
        })
    }

    /// Verifies its signature with a key that the caller trusts for the prefix.
    pub fn verify(&self, verifier: &dyn Verifier) -> Result<(), VerifyError> {
        self.data.verify(verifier)
    }

    /// How long it is valid if it was received at this moment; `None` if it is not valid. A caller
    /// without a calendar clock passes `None`.
    pub fn lifetime(&self, unix_seconds: Option<u64>) -> Option<Duration> {
        let left = match (unix_seconds, self.validity) {
            (Some(now), Some(validity)) if !validity.contains(now) => return None,
            (Some(now), Some(validity)) => {
                Duration::from_secs((validity.not_after - now).saturating_add(1))
            }
            _ => Duration::MAX,
        };
        Some(self.expiration.min(left)).filter(|lifetime| !lifetime.is_zero())
    }
}

/// Returns the prefix and version in the name of an announcement.
fn announced(name: NameRef<'_>) -> Option<(NameRef<'_>, u64)> {
    let at = name.len().checked_sub(3)?;
    let (version, segment) = (name.get(at + 1)?, name.get(at + 2)?);
    let version = version.as_version().or_else(|| version.marked_version())?;
    let segment = segment.as_segment().or_else(|| segment.marked_segment())?;
    // "In the current revision of this specification, the segment number MUST be zero."
    (name.get(at)?.is_keyword(PREFIX_ANNOUNCEMENT) && segment == 0)
        .then(|| (name.prefix(at), version))
}

/// "Ordering of these TLV elements is insignificant. Unrecognized non-critical TLV elements are
/// permitted and MUST be ignored."
fn content(value: &[u8]) -> Result<(Duration, Option<ValidityPeriod>), DecodeError> {
    let (mut expiration, mut validity) = (None, None);
    let mut reader = Reader::new(value);
    while let Some(element) = reader.element()? {
        match element.typ {
            types::EXPIRATION_PERIOD => {
                expiration = Some(Duration::from_millis(element.integer()?))
            }
            types::VALIDITY_PERIOD => validity = Some(ValidityPeriod::decode(element.value)?),
            typ if tlv::is_critical(typ) => return Err(DecodeError::Critical(typ)),
            _ => {}
        }
    }
    Ok((
        expiration.ok_or(DecodeError::Missing(types::EXPIRATION_PERIOD))?,
        validity,
    ))
}

/// A prefix announcement to encode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixAnnouncement {
    /// The prefix.
    pub prefix: Name,
    /// Its version, by convention microseconds since the Unix epoch.
    pub version: u64,
    /// How long it is valid after it was received; written in whole milliseconds.
    pub expiration: Duration,
    /// The period that bounds its validity.
    pub validity: Option<ValidityPeriod>,
}

impl PrefixAnnouncement {
    /// Encodes the Data packet, signed.
    pub fn encode(&self, signer: &dyn Signer) -> Vec<u8> {
        let mut content = Vec::new();
        let millis = u64::try_from(self.expiration.as_millis()).unwrap_or(u64::MAX);
        tlv::write_integer_element(&mut content, types::EXPIRATION_PERIOD, millis);
        if let Some(validity) = &self.validity {
            validity.encode(&mut content);
        }
        let name = self
            .prefix
            .with_keyword(PREFIX_ANNOUNCEMENT)
            .with_version(self.version)
            .with_segment(0);
        let data = Data {
            content_type: ContentType::PrefixAnnouncement,
            ..Data::new(name, content)
        };
        data.encode(signer)
    }
}
