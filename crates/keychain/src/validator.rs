//! Is a packet signed by a key that chains to a trust anchor?
//!
//! The model is hierarchical: an identity speaks for the names below it, and signs the certificates
//! of the identities below it. Only `/site` may vouch for `/site/alice`, and only these two may
//! sign `/site/alice/notes`. If a certificate is missing, the caller must fetch it
//! ([`ValidationError::NeedsCertificate`]), pass it in with [`Validator::add_certificate`] and try
//! again.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use whimbrel_ndn_packet::{
    Certificate, CertificateError, DataRef, InterestRef, KeyLocator, Name, NameRef,
    SignatureInfoRef, SignatureType, ValidityPeriod, Verifier, VerifyError,
};

/// Maximum number of certificates between a packet and an anchor.
const MAX_CHAIN_LEN: usize = 8;
/// Maximum number of certificates tried for one key locator: it may name a key that has several.
const MAX_CANDIDATES: usize = 8;
/// Maximum number of fetched certificates; the oldest are forgotten first.
const MAX_FETCHED: usize = 4096;

/// The relation between a packet's name and the signing identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The identity is a prefix of the packet's name.
    Hierarchical,
    /// Unrelated: every identity that chains to an anchor may sign it. For commands, whose names
    /// are all alike.
    AnyTrusted,
}

/// Why a packet is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidationError {
    /// A certificate is missing. Fetch it with this name as a prefix and MustBeFresh, and pass it
    /// in.
    #[error("the certificate {0} is missing: fetch it, or install it as a trust anchor")]
    NeedsCertificate(Name),
    /// A certificate is missing of which only the digest is known.
    #[error(
        "no known certificate has the key digest that the packet names: install the certificate"
    )]
    UnknownDigest,
    /// The signature identifies no signer.
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
    /// The signer may not sign this name.
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
    /// A self-signed certificate that is not an anchor.
    #[error("{0} vouches only for itself: install it as a trust anchor if you trust it")]
    NotAnchored(Name),
    /// The chain is too long or circular.
    #[error("the chain of certificates from {0} does not end at a trust anchor within 8 steps")]
    TooLong(Name),
}

/// A known certificate.
#[derive(Clone, Debug)]
struct Known {
    certificate: Certificate,
    /// SHA-256 of its public key, by which key locators may name it.
    digest: Option<[u8; 32]>,
    is_anchor: bool,
    /// When it chains to an anchor: no certificate of the chain is expired then. Set once the chain
    /// has been verified.
    trusted: Option<ValidityPeriod>,
}

/// Trust anchors and the certificates that chain to them.
#[derive(Clone, Debug, Default)]
pub struct Validator {
    known: BTreeMap<Name, Known>,
    /// Names of the certificates that are not anchors, oldest first.
    fetched: VecDeque<Name>,
}

/// The signature of a packet, and its possible signers.
struct Signed<'a> {
    name: NameRef<'a>,
    info: SignatureInfoRef<'a>,
    rule: Rule,
}

impl Validator {
    /// Trusts these certificates within their validity, whoever signed them.
    pub fn new(anchors: impl IntoIterator<Item = Certificate>) -> Validator {
        let mut validator = Validator::default();
        for anchor in anchors {
            validator.insert(anchor, true);
        }
        validator
    }

    /// Returns the names of the trust anchors.
    pub fn anchors(&self) -> impl Iterator<Item = &Name> {
        self.known
            .iter()
            .filter(|(_, known)| known.is_anchor)
            .map(|(name, _)| name)
    }

    /// Adds a certificate that may be an intermediate: from a keychain, or fetched. It is trusted
    /// only after its chain has been verified. Returns its name.
    pub fn add_certificate(&mut self, wire: Bytes) -> Result<Name, CertificateError> {
        let certificate = Certificate::decode(wire)?;
        let name = certificate.name().clone();
        // A fetched certificate never replaces a verified one.
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
        while self.fetched.len() > MAX_FETCHED {
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

    /// Accepts a Data if its signature satisfies `rule` at this second of Unix time. Returns the
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

    /// Accepts a signed Interest if its signature satisfies `rule` at this second of Unix time.
    /// Returns the name of the key, with which a `ReplayGuard` then rejects replays.
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

    /// The name of the certificate whose key signed and which is trusted at `now`.
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

    /// Returns the certificates that a key locator may refer to, anchors first.
    fn candidates(&self, locator: &KeyLocator) -> Vec<Name> {
        let mut found: Vec<(bool, &Name)> = match locator {
            // In canonical order, the names under a prefix directly follow it.
            KeyLocator::Name(prefix) => self
                .known
                .range(prefix..)
                .take_while(|(name, _)| prefix.as_ref().is_prefix_of(name.as_ref()))
                .take(MAX_CANDIDATES * 8)
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
            .take(MAX_CANDIDATES)
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
        // Checks the signature before the chain: a forgery must not cause certificates to be
        // fetched.
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

    /// Follows a certificate to an anchor, and records that it chains to it.
    fn verify_chain(&mut self, name: &Name, now: u64, depth: usize) -> Result<(), ValidationError> {
        if depth >= MAX_CHAIN_LEN {
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
                // Forget it, so that the true one can be fetched.
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
