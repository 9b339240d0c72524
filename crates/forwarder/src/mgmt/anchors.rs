//! Trust anchors: certificates whose keys may command the router.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_ndn_packet::signature::{KeyLocatorRef, Verifier};
use whimbrel_ndn_packet::{Certificate, Name, PrefixAnnouncementRef, SignatureInfoRef};

use super::authority::{CommandRefusal, CommandVerifier, SignedCommand};

/// The privileges of an anchor's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// Everything.
    All,
    /// Commands of these modules (`faces`, `fib`, `rib`, `strategy-choice`, `cs`).
    Modules(BTreeSet<String>),
}

impl Privileges {
    fn allow(&self, module: &str) -> bool {
        match self {
            Privileges::All => true,
            Privileges::Modules(modules) => modules.contains(module),
        }
    }
}

/// Certificates whose keys may command the router, with their privileges. A command must be signed
/// by the key of an anchor itself (as in NFD's `authorizations`): chains of certificates are not
/// followed.
#[derive(Clone, Debug, Default)]
pub struct Anchors {
    by_key: BTreeMap<Name, (Certificate, Privileges)>,
}

impl Anchors {
    /// No anchors: no key has privileges.
    pub fn new() -> Anchors {
        Anchors::default()
    }

    /// Adds the key of a certificate that the operator trusts, or changes its privileges.
    pub fn add(&mut self, certificate: Certificate, privileges: Privileges) {
        self.by_key
            .insert(certificate.key_name().clone(), (certificate, privileges));
    }

    /// Returns the anchor whose key a signature names: by the name of the key or of its
    /// certificate.
    fn named_by(
        &self,
        info: &SignatureInfoRef<'_>,
    ) -> Result<&(Certificate, Privileges), CommandRefusal> {
        let Some(KeyLocatorRef::Name(locator)) = info.key_locator else {
            return Err(CommandRefusal::KeyNeeded);
        };
        let of_certificate = locator
            .len()
            .checked_sub(2)
            .map(|count| locator.prefix(count));
        core::iter::once(locator)
            .chain(of_certificate)
            .find_map(|key| self.by_key.get(&key.to_name()))
            .ok_or_else(|| CommandRefusal::UnknownKey(locator.to_name()))
    }

    fn check(
        &self,
        unix_millis: u64,
        module: &str,
        info: &SignatureInfoRef<'_>,
        is_signed_by: impl FnOnce(&dyn Verifier) -> bool,
    ) -> Result<Name, CommandRefusal> {
        let (certificate, privileges) = self.named_by(info)?;
        let key = certificate.key_name().clone();
        if !privileges.allow(module) {
            return Err(CommandRefusal::Module {
                key,
                module: module.to_owned(),
            });
        }
        if !certificate.is_valid_at(unix_millis / 1_000) {
            return Err(CommandRefusal::Expired(certificate.name().clone()));
        }
        let verifier = certificate.public_key();
        if verifier.check_type(info.typ).is_ok() && is_signed_by(verifier) {
            Ok(key)
        } else {
            Err(CommandRefusal::Signature(key))
        }
    }
}

impl CommandVerifier for Anchors {
    fn verify_command(
        &self,
        unix_millis: u64,
        module: &str,
        command: &SignedCommand<'_>,
    ) -> Result<Name, CommandRefusal> {
        self.check(unix_millis, module, &command.info, |key| {
            key.verify(&command.portions, command.value)
        })
    }

    fn verify_announcement(
        &self,
        unix_millis: u64,
        announcement: &PrefixAnnouncementRef<'_>,
    ) -> Result<Name, CommandRefusal> {
        let info = &announcement.data.signature_info;
        self.check(unix_millis, "rib", info, |key| {
            announcement.verify(key).is_ok()
        })
    }
}
