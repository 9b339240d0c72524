//! Who may command the router, and that nobody commands twice with one signature.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use whimbrel_ndn_packet::replay::{ReplayConfig, ReplayError, ReplayGuard};
use whimbrel_ndn_packet::signature::{KeyLocatorRef, sha256};
use whimbrel_ndn_packet::{
    ComponentRef, InterestRef, Name, PrefixAnnouncementRef, SignatureInfoRef, SignatureType, tlv,
    types as ndn,
};

use super::anchors::Anchors;

/// Whose commands are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CommandPolicy {
    /// Commands under `/localhost/nfd`, which only local faces can send.
    pub local: LocalCommands,
    /// Commands under `/localhop/nfd/rib`, by which a neighbour registers prefixes at its own face.
    pub remote: RemoteRegistration,
}

/// Which commands of programs on this machine are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LocalCommands {
    /// All: whoever may open the router's socket may command it (as NFD with `certfile any`).
    /// Signatures prove nothing then and are not looked at; a digest that does not fit is counted.
    #[default]
    AcceptAny,
    /// Those signed by a key that the [`CommandVerifier`] knows.
    RequireSignature,
}

/// Whether neighbours may register prefixes at this router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RemoteRegistration {
    /// No: under `/localhop/nfd/rib` only programs on this machine are heard, browsers among them.
    #[default]
    Off,
    /// Yes, with commands signed by a key that the [`CommandVerifier`] knows.
    RequireSignature,
    /// Any neighbour may: for demonstrations and closed networks.
    AcceptAny,
}

/// Why a command is not carried out. Clients see it as status 403 with this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    /// It has no signature, or one that names no key.
    #[error("this command must be signed with a key that the router's configuration names")]
    KeyNeeded,
    /// The digest in the name does not fit the parameters.
    #[error("the digest of this command's parameters does not fit them")]
    Digest,
    /// No configured anchor has signed with this key.
    #[error("the key {0} is not among those whose commands this router takes")]
    UnknownKey(Name),
    /// The signature is not one by the key that it names.
    #[error("the signature of this command is not one by the key {0}")]
    Signature(Name),
    /// The key may command, but not this module.
    #[error("the key {key} may not command the module '{module}'")]
    Module {
        /// The key.
        key: Name,
        /// The module.
        module: String,
    },
    /// The certificate of the key is not valid now.
    #[error("the certificate {0} is not valid at this time")]
    Expired(Name),
    /// It was carried out before, or nobody can tell that it was not.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A command without a key was carried out before.
    #[error("this command was already carried out: sign a new one")]
    Again,
}

/// What is remembered of signed commands: bursts of tens of thousands by one key, and 2 minutes
/// between clocks, as ndn-cxx allows.
const REPLAYS: ReplayConfig = ReplayConfig {
    grace: Duration::from_secs(120),
    most_per_key: 32_768,
    most_keys: 64,
};
/// Most commands without a key that are remembered.
const MOST_REMEMBERED_UNKEYED: usize = 8_192;

/// The signature of a command, in either of its forms.
#[derive(Clone, Debug)]
pub struct SignedCommand<'a> {
    /// What the signature says of itself.
    pub info: SignatureInfoRef<'a>,
    /// When it was made, in milliseconds since the Unix epoch.
    pub time: Option<u64>,
    /// What makes it unique.
    pub nonce: Option<&'a [u8]>,
    /// What it covers, one after the other.
    pub portions: Vec<&'a [u8]>,
    /// The signature itself.
    pub value: &'a [u8],
}

impl<'a> SignedCommand<'a> {
    /// The signature of a command Interest: of packet format v0.3, or else in its last name
    /// components.
    pub fn of(interest: &InterestRef<'a>) -> Option<SignedCommand<'a>> {
        let (Some(info), Some(value)) = (interest.signature_info, interest.signature_value) else {
            return SignedCommand::in_name(interest);
        };
        let portions = interest.signed_portions();
        Some(SignedCommand {
            info,
            time: info.time,
            nonce: info.nonce,
            portions,
            value,
        })
    }

    /// The older form: the last four components are timestamp, nonce, SignatureInfo,
    /// SignatureValue, and the signature covers all components but the last.
    fn in_name(interest: &InterestRef<'a>) -> Option<SignedCommand<'a>> {
        let before = interest.name.len().checked_sub(4)?;
        let is_generic = |part: ComponentRef<'_>| u64::from(part.typ()) == ndn::GENERIC_COMPONENT;
        let mut components = interest.name.suffix(before).components();
        if !components.clone().all(is_generic) {
            return None;
        }
        let (time, nonce) = (components.next()?, components.next()?);
        let info = nested(components.next()?, ndn::SIGNATURE_INFO)?;
        let covered = interest.name.prefix(before + 3).value();
        let value = nested(components.next()?, ndn::SIGNATURE_VALUE)?;
        Some(SignedCommand {
            info: SignatureInfoRef::decode(info).ok()?,
            time: tlv::read_integer(time.value()),
            nonce: Some(nonce.value()),
            portions: vec![covered],
            value,
        })
    }

    /// True if the digest fits: of signatures that are one, this is all there is to check.
    pub fn has_right_digest(&self) -> bool {
        sha256(&self.portions) == self.value
    }

    /// What the signature says of the key that made it.
    pub fn key(&self) -> Option<Name> {
        match self.info.key_locator {
            Some(KeyLocatorRef::Name(name)) => Some(name.to_name()),
            _ => None,
        }
    }

    fn is_digest(&self) -> bool {
        self.info.typ == SignatureType::DigestSha256
    }

    /// What the signature says of itself, with time and nonce wherever they were.
    fn stamped_info(&self) -> SignatureInfoRef<'a> {
        SignatureInfoRef {
            time: self.time,
            nonce: self.nonce,
            ..self.info
        }
    }

    /// The same for a copy, and for nothing else: what was signed, whatever was done to the
    /// signature.
    fn identity(&self) -> [u8; 32] {
        sha256(&self.portions)
    }
}

fn nested<'a>(component: ComponentRef<'a>, typ: u64) -> Option<&'a [u8]> {
    tlv::outermost(component.value())
        .ok()
        .filter(|element| element.typ == typ)
        .map(|element| element.value)
}

/// Checks signatures made by keys. `unix_millis` is the router's clock.
pub trait CommandVerifier: Send {
    /// The name of the key that signed a command to this module, if its signature is right and it
    /// may command the module. Whether the command is a copy is not its matter.
    fn verify_command(
        &self,
        unix_millis: u64,
        module: &str,
        command: &SignedCommand<'_>,
    ) -> Result<Name, CommandRefusal>;

    /// The name of the key that signed a prefix announcement, if its signature is right and it may
    /// announce the prefix.
    fn verify_announcement(
        &self,
        unix_millis: u64,
        announcement: &PrefixAnnouncementRef<'_>,
    ) -> Result<Name, CommandRefusal>;
}

/// What a command that is allowed has proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// That it comes from a key that may command.
    Key,
    /// Nothing, and nothing was needed.
    Unneeded,
    /// Nothing was needed, and its digest does not fit what it covers. NFD, NDNd and ndn-rs accept
    /// such commands too.
    WrongDigest,
}

/// Decides about commands.
pub(crate) struct Authority {
    policy: CommandPolicy,
    pub(crate) verifier: Box<dyn CommandVerifier>,
    keyed: ReplayGuard,
    unkeyed: UnkeyedMemory,
}

impl Authority {
    pub(crate) fn new(policy: CommandPolicy) -> Authority {
        Authority {
            policy,
            verifier: Box::new(Anchors::new()),
            keyed: ReplayGuard::new(REPLAYS),
            unkeyed: UnkeyedMemory::default(),
        }
    }

    pub(crate) const fn serves_remote(&self) -> bool {
        !matches!(self.policy.remote, RemoteRegistration::Off)
    }

    fn needs_key(&self, remote: bool) -> bool {
        if remote {
            self.policy.remote != RemoteRegistration::AcceptAny
        } else {
            self.policy.local == LocalCommands::RequireSignature
        }
    }

    /// Allows a command once. `now` is Unix time in milliseconds.
    pub(crate) fn allow(
        &mut self,
        now: u64,
        remote: bool,
        module: &str,
        interest: &InterestRef<'_>,
    ) -> Result<Proof, CommandRefusal> {
        if !interest.parameters_digest_is_valid() {
            return Err(CommandRefusal::Digest);
        }
        let signed = SignedCommand::of(interest);
        if self.needs_key(remote) {
            let signed = signed
                .filter(|signed| !signed.is_digest())
                .ok_or(CommandRefusal::KeyNeeded)?;
            let key = self.verifier.verify_command(now, module, &signed)?;
            self.keyed
                .accept(now, key.as_ref(), &signed.stamped_info())?;
            return Ok(Proof::Key);
        }
        let Some(signed) = signed else {
            return Ok(Proof::Unneeded);
        };
        // Without time and nonce, the same command again is the same Interest again, and meant.
        if signed.time.is_some() || signed.nonce.is_some() {
            self.unkeyed.admit(&signed)?;
        }
        if signed.is_digest() && !signed.has_right_digest() {
            return Ok(Proof::WrongDigest);
        }
        Ok(Proof::Unneeded)
    }

    /// Allows a prefix announcement.
    pub(crate) fn allow_announcement(
        &self,
        now: u64,
        remote: bool,
        announcement: &PrefixAnnouncementRef<'_>,
    ) -> Result<(), CommandRefusal> {
        if self.needs_key(remote) {
            self.verifier.verify_announcement(now, announcement)?;
        }
        Ok(())
    }
}

/// Commands that anyone on this machine could have made: copies are told, but not from clocks, and
/// the oldest are forgotten.
#[derive(Default)]
struct UnkeyedMemory {
    seen: BTreeSet<[u8; 32]>,
    order: VecDeque<[u8; 32]>,
}

impl UnkeyedMemory {
    fn admit(&mut self, signed: &SignedCommand<'_>) -> Result<(), CommandRefusal> {
        let identity = signed.identity();
        if !self.seen.insert(identity) {
            return Err(CommandRefusal::Again);
        }
        self.order.push_back(identity);
        if self.order.len() > MOST_REMEMBERED_UNKEYED
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        Ok(())
    }
}
