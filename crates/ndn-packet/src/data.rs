//! Data packets.

use core::time::Duration;

use bytes::Bytes;

use crate::name::{Component, ComponentRef, Name, NameRef};
use crate::signature::{SignatureInfo, SignatureInfoRef, Signer, Verifier, VerifyError, sha256};
use crate::tlv::{self, DecodeError};
use crate::types;

/// The type of a Data's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ContentType {
    /// Payload.
    #[default]
    Blob,
    /// A list of delegations.
    Link,
    /// A public key: the Data is a certificate.
    Key,
    /// An application's negative answer.
    Nack,
    /// A manifest.
    Manifest,
    /// A prefix announcement.
    PrefixAnnouncement,
    /// Any other number.
    Other(u64),
}

impl ContentType {
    /// Returns the number on the wire.
    pub const fn code(self) -> u64 {
        match self {
            ContentType::Blob => 0,
            ContentType::Link => 1,
            ContentType::Key => 2,
            ContentType::Nack => 3,
            ContentType::Manifest => 4,
            ContentType::PrefixAnnouncement => 5,
            ContentType::Other(code) => code,
        }
    }

    /// Converts from the number on the wire.
    pub const fn from_code(code: u64) -> ContentType {
        match code {
            0 => ContentType::Blob,
            1 => ContentType::Link,
            2 => ContentType::Key,
            3 => ContentType::Nack,
            4 => ContentType::Manifest,
            5 => ContentType::PrefixAnnouncement,
            code => ContentType::Other(code),
        }
    }
}

/// A checked view of a Data.
#[derive(Clone, Copy, Debug)]
pub struct DataRef<'a> {
    /// The whole packet.
    pub wire: &'a [u8],
    /// Its name, without the implicit digest.
    pub name: NameRef<'a>,
    /// The type of its content.
    pub content_type: ContentType,
    /// How long content stores may serve it as fresh; zero if it has no FreshnessPeriod.
    pub freshness: Duration,
    /// The last component of the last segment's name.
    pub final_block_id: Option<ComponentRef<'a>>,
    /// Its content; empty if it has none.
    pub content: &'a [u8],
    /// The fields of its SignatureInfo.
    pub signature_info: SignatureInfoRef<'a>,
    /// Its signature.
    pub signature_value: &'a [u8],
    /// The octets that the signature covers.
    pub signed_portion: &'a [u8],
}

/// The elements that may follow the name, in their order.
const AFTER_NAME: &[u64] = &[
    types::META_INFO,
    types::CONTENT,
    types::SIGNATURE_INFO,
    types::SIGNATURE_VALUE,
];

impl<'a> DataRef<'a> {
    /// Decodes a whole packet.
    pub fn decode(wire: &'a [u8]) -> Result<DataRef<'a>, DecodeError> {
        DataRef::decode_named(wire, NameRef::default())
    }

    /// As [`DataRef::decode`]; the name is not decoded again if `checked` is the name at its place in
    /// `wire`.
    pub fn decode_named(wire: &'a [u8], checked: NameRef<'a>) -> Result<DataRef<'a>, DecodeError> {
        let outer = tlv::outermost(wire)?;
        if outer.typ != types::DATA {
            return Err(DecodeError::WrongType(outer.typ));
        }
        let (name, rest) = tlv::name_first(outer.value, checked)?;
        let (mut meta, mut content) = (Meta::default(), &[][..]);
        let (mut info, mut signature) = (None, None);
        let mut covered = 0;
        tlv::read_ordered(rest, AFTER_NAME, |element| {
            match element.typ {
                types::META_INFO => meta = Meta::decode(element.value)?,
                types::CONTENT => content = element.value,
                types::SIGNATURE_INFO => info = Some(SignatureInfoRef::decode(element.value)?),
                _ => {
                    signature = Some(element.value);
                    covered = element.whole.as_ptr() as usize - outer.value.as_ptr() as usize;
                }
            }
            Ok(())
        })?;
        Ok(DataRef {
            wire,
            name,
            content_type: meta.content_type,
            freshness: meta.freshness,
            final_block_id: meta.final_block_id,
            content,
            signature_info: info.ok_or(DecodeError::Missing(types::SIGNATURE_INFO))?,
            signature_value: signature.ok_or(DecodeError::Missing(types::SIGNATURE_VALUE))?,
            signed_portion: outer.value.get(..covered).unwrap_or_default(),
        })
    }

    /// Verifies its signature with a key that the caller trusts for its name.
    pub fn verify(&self, verifier: &dyn Verifier) -> Result<(), VerifyError> {
        verifier.check_type(self.signature_info.typ)?;
        if verifier.verify(&[self.signed_portion], self.signature_value) {
            Ok(())
        } else {
            Err(VerifyError::Invalid)
        }
    }

    /// Returns the name with the implicit digest at its end. Hashes the whole packet.
    pub fn full_name(&self) -> Name {
        self.name
            .to_name()
            .child(Component::implicit_digest(&self.implicit_digest()).as_ref())
    }

    /// Returns the SHA-256 of the whole packet: the implicit last component of its full name.
    pub fn implicit_digest(&self) -> [u8; 32] {
        sha256(&[self.wire])
    }
}

#[derive(Default)]
struct Meta<'a> {
    content_type: ContentType,
    freshness: Duration,
    final_block_id: Option<ComponentRef<'a>>,
}

impl<'a> Meta<'a> {
    fn decode(value: &'a [u8]) -> Result<Meta<'a>, DecodeError> {
        const ORDER: [u64; 3] = [
            types::CONTENT_TYPE,
            types::FRESHNESS_PERIOD,
            types::FINAL_BLOCK_ID,
        ];
        let mut meta = Meta::default();
        tlv::read_ordered(value, &ORDER, |element| {
            match element.typ {
                types::CONTENT_TYPE => {
                    meta.content_type = ContentType::from_code(element.integer()?)
                }
                types::FRESHNESS_PERIOD => {
                    meta.freshness = Duration::from_millis(element.integer()?)
                }
                _ => {
                    let name = NameRef::from_value(element.value)?;
                    meta.final_block_id = Some(
                        name.get(0)
                            .ok_or(DecodeError::Value(types::FINAL_BLOCK_ID))?,
                    );
                }
            }
            Ok(())
        })?;
        Ok(meta)
    }
}

/// A Data to encode and sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its name.
    pub name: Name,
    /// The type of its content.
    pub content_type: ContentType,
    /// How long it is fresh; zero is not written.
    pub freshness: Duration,
    /// The last component of the last segment's name.
    pub final_block_id: Option<Component>,
    /// Its content.
    pub content: Bytes,
}

impl Data {
    /// Returns a payload under a name.
    pub fn new(name: Name, content: impl Into<Bytes>) -> Data {
        Data {
            name,
            content_type: ContentType::Blob,
            freshness: Duration::ZERO,
            final_block_id: None,
            content: content.into(),
        }
    }

    /// Encodes the packet, signed.
    pub fn encode(&self, signer: &dyn Signer) -> Vec<u8> {
        self.encode_with_info(signer, &signer.info())
    }

    /// Encodes the packet, signed, with the caller's SignatureInfo.
    pub fn encode_with_info(&self, signer: &dyn Signer, info: &SignatureInfo) -> Vec<u8> {
        // The content is signed where it is and copied once: it is most of the packet.
        let mut head = Vec::with_capacity(self.name.as_ref().encoded_len() + 32);
        self.name.as_ref().encode(&mut head);
        self.encode_meta(&mut head);
        tlv::write_header(&mut head, types::CONTENT, self.content.len());
        let mut tail = Vec::with_capacity(128);
        info.encode(&mut tail, types::SIGNATURE_INFO);
        let signature = signer.sign(&[&head, &self.content, &tail]);
        tlv::write_element(&mut tail, types::SIGNATURE_VALUE, &signature);
        let length = head.len() + self.content.len() + tail.len();
        let mut wire = Vec::with_capacity(length + 10);
        tlv::write_header(&mut wire, types::DATA, length);
        wire.extend_from_slice(&head);
        wire.extend_from_slice(&self.content);
        wire.extend_from_slice(&tail);
        wire
    }

    fn encode_meta(&self, out: &mut Vec<u8>) {
        let mut meta = Vec::new();
        if self.content_type != ContentType::Blob {
            tlv::write_integer_element(&mut meta, types::CONTENT_TYPE, self.content_type.code());
        }
        if !self.freshness.is_zero() {
            let millis = u64::try_from(self.freshness.as_millis()).unwrap_or(u64::MAX);
            tlv::write_integer_element(&mut meta, types::FRESHNESS_PERIOD, millis);
        }
        if let Some(component) = &self.final_block_id {
            tlv::write_nested(&mut meta, types::FINAL_BLOCK_ID, |out| {
                component.as_ref().encode(out)
            });
        }
        if !meta.is_empty() {
            tlv::write_element(out, types::META_INFO, &meta);
        }
    }
}
