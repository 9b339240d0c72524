//! Interests.

use core::time::Duration;

use bytes::Bytes;

use crate::name::{Component, Name, NameRef};
use crate::signature::{SignatureInfo, SignatureInfoRef, Signer, Verifier, VerifyError, sha256};
use crate::tlv::{self, DecodeError};
use crate::types;

/// InterestLifetime if an Interest has none.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(4);

/// A checked view of an Interest.
#[derive(Clone, Copy, Debug)]
pub struct InterestRef<'a> {
    /// The whole packet.
    pub wire: &'a [u8],
    /// Its name.
    pub name: NameRef<'a>,
    /// Any Data under this prefix satisfies it.
    pub can_be_prefix: bool,
    /// Content stores may satisfy it only with fresh Data.
    pub must_be_fresh: bool,
    /// TLV-VALUE of the ForwardingHint: names of delegations, one after the other.
    pub forwarding_hint: Option<&'a [u8]>,
    /// Nonce; `None` only from a program to its forwarder.
    pub nonce: Option<[u8; 4]>,
    /// InterestLifetime.
    pub lifetime: Duration,
    /// HopLimit.
    pub hop_limit: Option<u8>,
    /// TLV-VALUE of the ApplicationParameters.
    pub parameters: Option<&'a [u8]>,
    /// The fields of its InterestSignatureInfo.
    pub signature_info: Option<SignatureInfoRef<'a>>,
    /// Its signature.
    pub signature_value: Option<&'a [u8]>,
    nonce_at: Option<usize>,
    hop_limit_at: Option<usize>,
    /// Offset of the ApplicationParameters element; signed up to the end of the packet.
    parameters_at: Option<usize>,
    /// Offset of the signature's value element.
    signature_value_at: Option<usize>,
}

/// The elements that may follow the name, in their order.
const AFTER_NAME: &[u64] = &[
    types::CAN_BE_PREFIX,
    types::MUST_BE_FRESH,
    types::FORWARDING_HINT,
    types::NONCE,
    types::INTEREST_LIFETIME,
    types::HOP_LIMIT,
    types::APPLICATION_PARAMETERS,
    types::INTEREST_SIGNATURE_INFO,
    types::INTEREST_SIGNATURE_VALUE,
];

/// Index in [`AFTER_NAME`] of the first element that follows the nonce.
const AFTER_NONCE: usize = 4;

impl<'a> InterestRef<'a> {
    /// Decodes a whole packet.
    pub fn decode(wire: &'a [u8]) -> Result<InterestRef<'a>, DecodeError> {
        InterestRef::decode_named(wire, NameRef::default())
    }

    /// As [`InterestRef::decode`]; the name is not decoded again if `checked` is the name at its place in
    /// `wire`.
    pub fn decode_named(
        wire: &'a [u8],
        checked: NameRef<'a>,
    ) -> Result<InterestRef<'a>, DecodeError> {
        let outer = tlv::outermost(wire)?;
        if outer.typ != types::INTEREST {
            return Err(DecodeError::WrongType(outer.typ));
        }
        let mut interest = InterestRef {
            wire,
            name: NameRef::default(),
            can_be_prefix: false,
            must_be_fresh: false,
            forwarding_hint: None,
            nonce: None,
            lifetime: DEFAULT_LIFETIME,
            hop_limit: None,
            parameters: None,
            signature_info: None,
            signature_value: None,
            nonce_at: None,
            hop_limit_at: None,
            parameters_at: None,
            signature_value_at: None,
        };
        let offset_of = |part: &[u8]| part.as_ptr() as usize - wire.as_ptr() as usize;
        let (name, rest) = tlv::name_first(outer.value, checked)?;
        interest.name = name;
        tlv::read_ordered(rest, AFTER_NAME, |element| {
            let value = element.value;
            match element.typ {
                types::CAN_BE_PREFIX => interest.can_be_prefix = element.flag()?,
                types::MUST_BE_FRESH => interest.must_be_fresh = element.flag()?,
                types::FORWARDING_HINT => {
                    check_delegations(value)?;
                    interest.forwarding_hint = Some(value);
                }
                types::NONCE => {
                    interest.nonce = Some(
                        value
                            .try_into()
                            .map_err(|_| DecodeError::Value(types::NONCE))?,
                    );
                    interest.nonce_at = Some(offset_of(value));
                }
                types::INTEREST_LIFETIME => {
                    interest.lifetime = Duration::from_millis(element.integer()?)
                }
                types::HOP_LIMIT => {
                    let [limit] = value else {
                        return Err(DecodeError::Value(types::HOP_LIMIT));
                    };
                    interest.hop_limit = Some(*limit);
                    interest.hop_limit_at = Some(offset_of(value));
                }
                types::APPLICATION_PARAMETERS => {
                    interest.parameters = Some(value);
                    interest.parameters_at = Some(offset_of(element.whole));
                }
                types::INTEREST_SIGNATURE_INFO => {
                    interest.signature_info = Some(SignatureInfoRef::decode(value)?)
                }
                _ => {
                    interest.signature_value = Some(value);
                    interest.signature_value_at = Some(offset_of(element.whole));
                }
            }
            Ok(())
        })?;
        interest.check()?;
        Ok(interest)
    }

    fn check(&self) -> Result<(), DecodeError> {
        // "Name: at least one name component" (packet format, Interest).
        if self.name.is_empty() {
            return Err(DecodeError::Value(types::NAME));
        }
        let digests = self
            .name
            .components()
            .filter(|component| component.is_parameters_digest())
            .count();
        // A digest without parameters is accepted: Interests for the further segments of a reply to
        // parameters have one.
        match (self.parameters.is_some(), digests) {
            (true, 1) | (false, 0 | 1) => {}
            _ => return Err(DecodeError::Value(types::PARAMETERS_SHA256_DIGEST)),
        }
        if self.signature_info.is_some() != self.signature_value.is_some() {
            return Err(DecodeError::Missing(types::INTEREST_SIGNATURE_VALUE));
        }
        if self.signature_info.is_some() && self.parameters.is_none() {
            return Err(DecodeError::Missing(types::APPLICATION_PARAMETERS));
        }
        Ok(())
    }

    /// Returns the names of its ForwardingHint, in the order of preference.
    pub fn delegations(&self) -> impl Iterator<Item = NameRef<'a>> {
        let mut reader = tlv::Reader::new(self.forwarding_hint.unwrap_or_default());
        core::iter::from_fn(move || {
            loop {
                let element = reader.element().ok()??;
                if element.typ == types::NAME {
                    return NameRef::from_value(element.value).ok();
                }
            }
        })
    }

    /// Offset of the nonce's four octets in [`InterestRef::wire`].
    pub const fn nonce_at(&self) -> Option<usize> {
        self.nonce_at
    }

    /// Offset of the hop limit's octet in [`InterestRef::wire`].
    pub const fn hop_limit_at(&self) -> Option<usize> {
        self.hop_limit_at
    }

    /// Returns true if its parameters match the digest in its name, or it has none.
    pub fn parameters_digest_is_valid(&self) -> bool {
        let Some(at) = self.parameters_at else {
            return true;
        };
        let covered = self.wire.get(at..).unwrap_or_default();
        self.name
            .components()
            .find(|component| component.is_parameters_digest())
            .is_some_and(|component| component.value() == sha256(&[covered]))
    }

    /// Returns the portions that its signature covers: all name components but the parameters
    /// digest, and from ApplicationParameters up to before the signature's value. Empty if it has
    /// no signature.
    pub fn signed_portions(&self) -> Vec<&'a [u8]> {
        let (Some(from), Some(to)) = (self.parameters_at, self.signature_value_at) else {
            return Vec::new();
        };
        let mut portions = Vec::with_capacity(3);
        let mut components = self.name.components();
        let value = self.name.value();
        loop {
            let start = value.len() - components.rest().len();
            let Some(component) = components.next() else {
                break;
            };
            if component.is_parameters_digest() {
                portions.push(value.get(..start).unwrap_or_default());
                portions.push(components.rest());
            }
        }
        portions.push(self.wire.get(from..to).unwrap_or_default());
        portions
    }

    /// Verifies its signature with a key that the caller trusts for its name;
    /// [`crate::ReplayGuard`] detects replays. Allocates once.
    pub fn verify(&self, verifier: &dyn Verifier) -> Result<(), VerifyError> {
        let (Some(info), Some(signature)) = (&self.signature_info, self.signature_value) else {
            return Err(VerifyError::Unsigned);
        };
        // "A signed Interest must be treated as invalid if the last name component is not
        // ParametersSha256DigestComponent, or its TLV-VALUE is incorrect" (packet format, Signed
        // Interest).
        let ends_with_digest = self
            .name
            .last()
            .is_some_and(|component| component.is_parameters_digest());
        if !ends_with_digest || !self.parameters_digest_is_valid() {
            return Err(VerifyError::ParametersDigest);
        }
        verifier.check_type(info.typ)?;
        if verifier.verify(&self.signed_portions(), signature) {
            Ok(())
        } else {
            Err(VerifyError::Invalid)
        }
    }

    /// Returns a copy with this nonce; adds one if it has none.
    pub fn with_nonce(&self, nonce: [u8; 4]) -> Vec<u8> {
        if let Some(at) = self.nonce_at {
            let mut wire = self.wire.to_vec();
            if let Some(place) = wire.get_mut(at..at + 4) {
                place.copy_from_slice(&nonce);
            }
            return wire;
        }
        let Ok(outer) = tlv::outermost(self.wire) else {
            return self.wire.to_vec();
        };
        // The nonce goes before the first element that the grammar places after it.
        let mut reader = tlv::Reader::new(outer.value);
        let mut at = outer.value.len();
        loop {
            let here = outer.value.len() - reader.rest().len();
            match reader.element() {
                Ok(Some(element)) => {
                    let place = AFTER_NAME.iter().position(|typ| *typ == element.typ);
                    if place.is_some_and(|place| place >= AFTER_NONCE) {
                        at = here;
                        break;
                    }
                }
                _ => break,
            }
        }
        let mut wire = Vec::with_capacity(self.wire.len() + 10);
        tlv::write_header(&mut wire, types::INTEREST, outer.value.len() + 6);
        wire.extend_from_slice(outer.value.get(..at).unwrap_or_default());
        tlv::write_element(&mut wire, types::NONCE, &nonce);
        wire.extend_from_slice(outer.value.get(at..).unwrap_or_default());
        wire
    }
}

/// "ForwardingHint = 1*Name"; other elements are ignored if they are not critical.
fn check_delegations(value: &[u8]) -> Result<(), DecodeError> {
    let mut reader = tlv::Reader::new(value);
    let mut names = 0;
    while let Some(element) = reader.element()? {
        if element.typ == types::NAME {
            NameRef::from_value(element.value)?;
            names += 1;
        } else if tlv::is_critical(element.typ) {
            return Err(DecodeError::Critical(element.typ));
        }
    }
    if names == 0 {
        Err(DecodeError::Value(types::FORWARDING_HINT))
    } else {
        Ok(())
    }
}

/// An Interest to encode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Its name; with parameters, the digest component is appended unless it is present.
    pub name: Name,
    /// Any Data under this prefix satisfies it.
    pub can_be_prefix: bool,
    /// Content stores may satisfy it only with fresh Data.
    pub must_be_fresh: bool,
    /// Names of delegations.
    pub forwarding_hint: Vec<Name>,
    /// Nonce: random for each transmission.
    pub nonce: Option<[u8; 4]>,
    /// InterestLifetime; `None` means 4 s.
    pub lifetime: Option<Duration>,
    /// HopLimit.
    pub hop_limit: Option<u8>,
    /// ApplicationParameters.
    pub parameters: Option<Bytes>,
}

impl Interest {
    /// Returns an Interest for exactly this name.
    pub fn new(name: Name) -> Interest {
        Interest {
            name,
            can_be_prefix: false,
            must_be_fresh: false,
            forwarding_hint: Vec::new(),
            nonce: None,
            lifetime: None,
            hop_limit: None,
            parameters: None,
        }
    }

    /// Encodes the packet, unsigned.
    pub fn encode(&self) -> Vec<u8> {
        let mut tail = Vec::new();
        if let Some(parameters) = &self.parameters {
            tlv::write_element(&mut tail, types::APPLICATION_PARAMETERS, parameters);
            return self.assemble(&name_with_digest(&self.name, &tail), &tail);
        }
        self.assemble(&self.name, &tail)
    }

    /// Encodes the packet, signed by `signer`, with the caller's `info` (nonce, time or sequence
    /// number): usually [`Signer::info`] with [`SignatureInfo::stamped`]. The parameters' digest
    /// becomes the last component of the name, as signed Interests require.
    pub fn encode_signed(&self, signer: &dyn Signer, info: &SignatureInfo) -> Vec<u8> {
        let mut tail = Vec::new();
        tlv::write_element(
            &mut tail,
            types::APPLICATION_PARAMETERS,
            self.parameters.as_deref().unwrap_or_default(),
        );
        info.encode(&mut tail, types::INTEREST_SIGNATURE_INFO);
        let named = without_parameters_digest(&self.name);
        let signature = signer.sign(&[named.as_ref().value(), &tail]);
        tlv::write_element(&mut tail, types::INTEREST_SIGNATURE_VALUE, &signature);
        self.assemble(&name_with_digest(&named, &tail), &tail)
    }

    fn assemble(&self, name: &Name, tail: &[u8]) -> Vec<u8> {
        let mut inner = Vec::with_capacity(name.as_ref().encoded_len() + tail.len() + 64);
        name.as_ref().encode(&mut inner);
        if self.can_be_prefix {
            tlv::write_element(&mut inner, types::CAN_BE_PREFIX, &[]);
        }
        if self.must_be_fresh {
            tlv::write_element(&mut inner, types::MUST_BE_FRESH, &[]);
        }
        if !self.forwarding_hint.is_empty() {
            tlv::write_nested(&mut inner, types::FORWARDING_HINT, |out| {
                self.forwarding_hint
                    .iter()
                    .for_each(|name| name.as_ref().encode(out));
            });
        }
        if let Some(nonce) = self.nonce {
            tlv::write_element(&mut inner, types::NONCE, &nonce);
        }
        if let Some(lifetime) = self.lifetime {
            let millis = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
            tlv::write_integer_element(&mut inner, types::INTEREST_LIFETIME, millis);
        }
        if let Some(limit) = self.hop_limit {
            tlv::write_element(&mut inner, types::HOP_LIMIT, &[limit]);
        }
        inner.extend_from_slice(tail);
        let mut wire = Vec::with_capacity(inner.len() + 4);
        tlv::write_element(&mut wire, types::INTEREST, &inner);
        wire
    }
}

fn without_parameters_digest(name: &Name) -> Name {
    let kept = name
        .as_ref()
        .components()
        .filter(|component| !component.is_parameters_digest());
    Name::of(kept.map(|component| component.to_owned()))
}

/// Returns the name with the digest of `covered` in its digest component, which is appended if it
/// is missing.
fn name_with_digest(name: &Name, covered: &[u8]) -> Name {
    let digest = Component::parameters_digest(&sha256(&[covered]));
    if !name
        .as_ref()
        .components()
        .any(|component| component.is_parameters_digest())
    {
        return name.child(digest.as_ref());
    }
    Name::of(name.as_ref().components().map(|component| {
        if component.is_parameters_digest() {
            digest.clone()
        } else {
            component.to_owned()
        }
    }))
}
