//! Is a packet signed by a key that leads to a trust anchor?
//!
//! The model is hierarchical: an identity speaks for the names below it, and signs the certificates
//! of the identities below it. `/site` may vouch for `/site/alice`, who may sign
//! `/site/alice/notes`, and nobody else may. A certificate that is not at hand is asked for
//! ([`ValidationError::NeedsCertificate`]); who fetched it hands it in with
//! [`Validator::add_certificate`] and tries again.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use whimbrel_ndn_packet::{
    Certificate, CertificateError, DataRef, InterestRef, KeyLocator, Name, NameRef,
    SignatureInfoRef, SignatureType, ValidityPeriod, Verifier, VerifyError,
};

/// Certificates between a packet and an anchor.
const LONGEST_CHAIN: usize = 8;
/// Certificates tried for one key locator: it may name a key that has several.
const MOST_CANDIDATES: usize = 8;
/// Fetched certificates that are kept; the oldest are forgotten first.
const MOST_FETCHED: usize = 4096;

/// What the name of a packet has to do with the identity that signed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The identity begins the packet's name.
    Hierarchical,
    /// Nothing: every identity that leads to an anchor may sign it. For commands, whose names are
    /// all alike.
    AnyTrusted,
}

/// Why a packet is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidationError {
    /// A certificate is missing. It is asked for with this name as a prefix and MustBeFresh, and
    /// handed in.
    #[error("the certificate {0} is not at hand: fetch it, or install it as a trust anchor")]
    NeedsCertificate(Name),
    /// A certificate is missing that only its digest is known of.
    #[error(
        "the packet names its key by a digest that belongs to no certificate at hand: install the certificate"
    )]
    UnknownDigest,
    /// Nobody in particular signed it.
    #[error("the packet is not signed by a key: its signature is {0:?}")]
    NoKey(SignatureType),
    /// The signature does not say which key made it.
    #[error("the signature does not say which key made it")]
    NoLocator,
    /// The signature is wrong.
    #[error("{name}: {error}")]
    Signature {
        /// The packet or certificate.
        name: Name,
        /// What is wrong.
        error: VerifyError,
    },
    /// The signer may not speak for this name.
    #[error("{signer} may not sign {name}: its identity does not begin that name")]
    NotAllowed {
        /// The identity that signed.
        signer: Name,
        /// What it signed.
        name: Name,
    },
    /// A certificate is not valid now.
    #[error("the certificate {0} has expired or is not valid yet: renew it, or set the clock")]
    Expired(Name),
    /// A self-signed certificate that is no anchor.
    #[error("{0} vouches only for itself: install it as a trust anchor if you trust it")]
    NotAnchored(Name),
    /// The chain is too long or a circle.
    #[error("the chain of certificates from {0} does not end at a trust anchor within 8 steps")]
    TooLong(Name),
}

/// A certificate at hand.
#[derive(Clone, Debug)]
struct Known {
    certificate: Certificate,
    /// SHA-256 of its public key, by which key locators may name it.
    digest: Option<[u8; 32]>,
    is_anchor: bool,
    /// When it leads to an anchor: no certificate on the way is expired then. Set once the chain
    /// has been verified.
    trusted: Option<ValidityPeriod>,
}

/// Trust anchors and the certificates that lead to them.
#[derive(Clone, Debug, Default)]
pub struct Validator {
    known: BTreeMap<Name, Known>,
    /// Names of those that are no anchors, oldest first.
    fetched: VecDeque<Name>,
}

/// The signature of a packet, and who may have made it.
struct Signed<'a> {
    name: NameRef<'a>,
    info: SignatureInfoRef<'a>,
    rule: Rule,
}

impl Validator {
    /// Trusts these certificates without asking who signed them, within their validity.
    pub fn new(anchors: impl IntoIterator<Item = Certificate>) -> Validator {
        let mut validator = Validator::default();
        for anchor in anchors {
            validator.insert(anchor, true);
        }
        validator
    }

    /// The names of the trust anchors.
    pub fn anchors(&self) -> impl Iterator<Item = &Name> {
        self.known
            .iter()
            .filter(|(_, known)| known.is_anchor)
            .map(|(name, _)| name)
    }

    /// Takes a certificate that may be on the way to an anchor: from a keychain, or fetched. It is
    /// not trusted before its chain has been verified. Returns its name.
    pub fn add_certificate(&mut self, wire: Bytes) -> Result<Name, CertificateError> {
        let certificate = Certificate::decode(wire)?;
        let name = certificate.name().clone();
        // A certificate that has been verified is not replaced by what somebody else sent.
        if !self
            .known
            .get(&name)
            .is_some_and(|known| known.is_anchor || known.trusted.is_some())
        {
            self.insert(certificate, false);
        }
        Ok(name)
    }

    fn insert(&mut self, certificate: Certificate, is_anchor: bool) {
        let name = certificate.name().clone();
        let trusted = is_anchor.then_some(*certificate.validity());
        let digest = certificate.public_key().digest().ok();
        let known = Known {
            certificate,
            digest,
            is_anchor,
            trusted,
        };
        if self.known.insert(name.clone(), known).is_none() && !is_anchor {
            self.fetched.push_back(name);
        }
        while self.fetched.len() > MOST_FETCHED {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(name) = self.fetched.pop_front()
            && self.known.get(&name).is_some_and(|known| !known.is_anchor)
        {
            self.known.remove(&name);
        }
    }

    /// Accepts a Data if it is signed as `rule` has it, at this second of Unix time. Returns the
    /// name of the key.
    pub fn validate_data(
        &mut self,
        data: &DataRef<'_>,
        rule: Rule,
        unix_seconds: u64,
    ) -> Result<Name, ValidationError> {
        let signed = Signed {
            name: data.name,
            info: data.signature_info,
            rule,
        };
        self.validate(&signed, unix_seconds, 0, &|key| data.verify(key))
    }

    /// Accepts a signed Interest if it is signed as `rule` has it, at this second of Unix time.
    /// Returns the name of the key, with which a `ReplayGuard` then keeps replays out.
    pub fn validate_interest(
        &mut self,
        interest: &InterestRef<'_>,
        rule: Rule,
        unix_seconds: u64,
    ) -> Result<Name, ValidationError> {
        let info = interest
            .signature_info
            .ok_or_else(|| ValidationError::Signature {
                name: interest.name.to_name(),
                error: VerifyError::Unsigned,
            })?;
        let signed = Signed {
            name: interest.name,
            info,
            rule,
        };
        self.validate(&signed, unix_seconds, 0, &|key| interest.verify(key))
    }

    fn validate(
        &mut self,
        signed: &Signed<'_>,
        now: u64,
        depth: usize,
        verify: &dyn Fn(&dyn Verifier) -> Result<(), VerifyError>,
    ) -> Result<Name, ValidationError> {
        let issuer = self.issuer(signed, now, depth, verify)?;
        let known = self.known.get(&issuer);
        Ok(known
            .map(|known| known.certificate.key_name().clone())
            .unwrap_or_default())
    }

    /// The name of the certificate whose key signed, which is trusted now.
    fn issuer(
        &mut self,
        signed: &Signed<'_>,
        now: u64,
        depth: usize,
        verify: &dyn Fn(&dyn Verifier) -> Result<(), VerifyError>,
    ) -> Result<Name, ValidationError> {
        match signed.info.typ {
            SignatureType::Sha256WithRsa
            | SignatureType::Sha256WithEcdsa
            | SignatureType::Ed25519 => {}
            typ => return Err(ValidationError::NoKey(typ)),
        }
        let locator = signed
            .info
            .key_locator
            .map(KeyLocator::from)
            .ok_or(ValidationError::NoLocator)?;
        let mut refusal = match &locator {
            KeyLocator::Name(name) => ValidationError::NeedsCertificate(name.clone()),
            KeyLocator::Digest(_) => ValidationError::UnknownDigest,
        };
        for candidate in self.candidates(&locator) {
            match self.try_candidate(&candidate, signed, now, depth, verify) {
                Ok(()) => return Ok(candidate),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    /// The certificates that a key locator may mean, anchors first.
    fn candidates(&self, locator: &KeyLocator) -> Vec<Name> {
        let mut found: Vec<(bool, &Name)> = match locator {
            // In canonical order, what a name begins stands right behind it.
            KeyLocator::Name(prefix) => self
                .known
                .range(prefix..)
                .take_while(|(name, _)| prefix.as_ref().is_prefix_of(name.as_ref()))
                .take(MOST_CANDIDATES * 8)
                .map(|(name, known)| (!known.is_anchor, name))
                .collect(),
            KeyLocator::Digest(digest) => self
                .known
                .iter()
                .filter(|(_, known)| {
                    known
                        .digest
                        .is_some_and(|own| digest.as_ref() == own.as_slice())
                })
                .map(|(name, known)| (!known.is_anchor, name))
                .collect(),
        };
        found.sort();
        found
            .into_iter()
            .take(MOST_CANDIDATES)
            .map(|(_, name)| name.clone())
            .collect()
    }

    fn try_candidate(
        &mut self,
        candidate: &Name,
        signed: &Signed<'_>,
        now: u64,
        depth: usize,
        verify: &dyn Fn(&dyn Verifier) -> Result<(), VerifyError>,
    ) -> Result<(), ValidationError> {
        let missing = || ValidationError::NeedsCertificate(candidate.clone());
        let known = self.known.get(candidate).ok_or_else(missing)?;
        let identity = known.certificate.identity();
        if signed.rule == Rule::Hierarchical && !identity.as_ref().is_prefix_of(signed.name) {
            let (signer, name) = (identity.clone(), signed.name.to_name());
            return Err(ValidationError::NotAllowed { signer, name });
        }
        if !known.certificate.is_valid_at(now) {
            return Err(ValidationError::Expired(candidate.clone()));
        }
        // The signature before the chain: whoever sends rubbish is not worth fetching certificates
        // for.
        let wrong = |error| ValidationError::Signature {
            name: signed.name.to_name(),
            error,
        };
        verify(known.certificate.public_key()).map_err(wrong)?;
        if known.trusted.is_some_and(|trusted| trusted.contains(now)) {
            return Ok(());
        }
        self.verify_chain(candidate, now, depth)
    }

    /// Follows a certificate to an anchor, and notes down that it leads there.
    fn verify_chain(&mut self, name: &Name, now: u64, depth: usize) -> Result<(), ValidationError> {
        if depth >= LONGEST_CHAIN {
            return Err(ValidationError::TooLong(name.clone()));
        }
        let missing = || ValidationError::NeedsCertificate(name.clone());
        let certificate = self
            .known
            .get(name)
            .ok_or_else(missing)?
            .certificate
            .clone();
        if certificate.is_self_signed() {
            return Err(ValidationError::NotAnchored(name.clone()));
        }
        let wrong = |error| ValidationError::Signature {
            name: name.clone(),
            error,
        };
        let data = DataRef::decode(certificate.wire()).map_err(|_| wrong(VerifyError::Invalid))?;
        // The issuer speaks for the identity that it certifies.
        let signed = Signed {
            name: certificate.identity().as_ref(),
            info: data.signature_info,
            rule: Rule::Hierarchical,
        };
        let issuer = match self.issuer(&signed, now, depth + 1, &|key| certificate.verify(key)) {
            Err(ValidationError::Signature {
                name: failed,
                error,
            }) if failed == *certificate.identity() => {
                // Forgotten, so that the true one can be fetched.
                self.known.remove(name);
                self.fetched.retain(|fetched| fetched != name);
                return Err(wrong(error));
            }
            other => other?,
        };
        let trusted = self.known.get(&issuer).and_then(|issuer| issuer.trusted);
        if let (Some(known), Some(trusted)) = (self.known.get_mut(name), trusted) {
            known.trusted = Some(trusted.intersection(certificate.validity()));
        }
        Ok(())
    }
}
