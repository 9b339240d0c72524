//! Authorisation of commands, and their protection from replay.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use whimbrel_core::{Distrust, Limit, Meter, Time};
use whimbrel_ndn_packet::replay::{ReplayConfig, ReplayError, ReplayGuard};
use whimbrel_ndn_packet::signature::{KeyLocatorRef, sha256};
use whimbrel_ndn_packet::{
    ComponentRef, InterestRef, Name, PrefixAnnouncementRef, SignatureInfoRef, SignatureType, tlv,
    types as ndn,
};

use crate::face::FaceId;

/// The policy for commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CommandPolicy {
    /// Commands under `/localhost/nfd`, which only local faces can send.
    pub local: LocalCommands,
    /// Commands under `/localhop/nfd/rib`, by which a neighbour registers prefixes at its own face.
    pub remote: RemoteRegistration,
}

/// The policy for commands of programs on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LocalCommands {
    /// All: every program that may open the router's socket may command it (as NFD with `certfile
    /// any`). Signatures prove nothing then and are not verified; a digest that does not match is
    /// counted.
    #[default]
    AcceptAny,
    /// Those signed by a key that the [`CommandVerifier`] accepts.
    RequireSignature,
}

/// Whether neighbours may register prefixes at this router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RemoteRegistration {
    /// No: `/localhop/nfd/rib` serves only programs on this machine, including browsers.
    #[default]
    Off,
    /// Yes, with commands signed by a key that the [`CommandVerifier`] accepts.
    RequireSignature,
    /// Any neighbour may: for demonstrations and closed networks.
    AcceptAny,
}

/// Why a command is refused. Clients see status 403 with this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    /// It is unsigned, or its signature names no key.
    #[error("this command must be signed with a key that the router's configuration names")]
    KeyNeeded,
    /// The digest in the name does not match the parameters.
    #[error("the digest of this command's parameters is wrong")]
    Digest,
    /// The key is not that of a configured anchor.
    #[error("the key {0} is not one of those whose commands this router accepts")]
    UnknownKey(Name),
    /// The signature was not made by the key that it names.
    #[error("the signature of this command was not made by the key {0}")]
    Signature(Name),
    /// The key has no privilege for this module.
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
    /// It is a replay, or cannot be proven not to be one.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The face has sent so many wrong signatures, or all new faces so many, that this one is not
    /// verified.
    #[error("too many commands are signed wrongly: try again in a moment")]
    TooMany,
    /// A command without a key is a replay.
    #[error("this command was carried out before: sign a new one")]
    Again,
}

/// Bounds of the replay protection: bursts of tens of thousands by one key, and 2 minutes between
/// clocks, as ndn-cxx allows.
const REPLAYS: ReplayConfig = ReplayConfig {
    grace: Duration::from_secs(120),
    max_per_key: 32_768,
    max_keys: 64,
};
/// Maximum of remembered commands without a key.
const MAX_REMEMBERED_UNKEYED: usize = 8_192;

/// The signature of a command, in either of its forms.
#[derive(Clone, Debug)]
pub struct SignedCommand<'a> {
    /// The fields of its SignatureInfo.
    pub info: SignatureInfoRef<'a>,
    /// When it was made, in milliseconds since the Unix epoch.
    pub time: Option<u64>,
    /// Its nonce.
    pub nonce: Option<&'a [u8]>,
    /// The signed portions, one after the other.
    pub portions: Vec<&'a [u8]>,
    /// The signature itself.
    pub value: &'a [u8],
}

impl<'a> SignedCommand<'a> {
    /// Returns the signature of a command Interest: that of packet format v0.3, or else the one in
    /// its last name components. The digest of its parameters must be the last component: components
    /// after it would be read by no module, and be other names for the same command.
    pub fn of(interest: &InterestRef<'a>) -> Option<SignedCommand<'a>> {
        let last = interest.name.components().last();
        let ends_in_digest = last.is_some_and(|it| it.is_parameters_digest());
        let (Some(info), Some(value)) = (interest.signature_info, interest.signature_value) else {
            return SignedCommand::in_name(interest);
        };
        if !ends_in_digest {
            return None;
        }
        let portions = interest.signed_portions();
        Some(SignedCommand {
            info,
            time: info.time,
            nonce: info.nonce,
            portions,
            value,
        })
    }

    /// Returns the older form: the last four components are timestamp, nonce, SignatureInfo,
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

    /// Returns true if the digest matches; a signature of type digest needs no other check.
    pub fn has_right_digest(&self) -> bool {
        sha256(&self.portions) == self.value
    }

    /// Returns the key in the signature's key locator.
    pub fn key(&self) -> Option<Name> {
        match self.info.key_locator {
            Some(KeyLocatorRef::Name(name)) => Some(name.to_name()),
            _ => None,
        }
    }

    fn is_digest(&self) -> bool {
        self.info.typ == SignatureType::DigestSha256
    }

    /// Returns the fields of the SignatureInfo, with time and nonce wherever the command has them.
    fn stamped_info(&self) -> SignatureInfoRef<'a> {
        SignatureInfoRef {
            time: self.time,
            nonce: self.nonce,
            ..self.info
        }
    }

    /// Returns a digest that identifies copies of a command, and only those: it covers the signed
    /// portions, not the signature, which could be altered.
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

/// Verifies signatures by keys. `unix_millis` is the router's clock.
pub trait CommandVerifier: Send {
    /// Returns the name of the key that signed a command to this module, if the signature is right
    /// and the key may command the module. Does not detect replays.
    fn verify_command(
        &self,
        unix_millis: u64,
        module: &str,
        command: &SignedCommand<'_>,
    ) -> Result<Name, CommandRefusal>;

    /// Returns the name of the key that signed a prefix announcement, if the signature is right and
    /// the key may announce the prefix.
    fn verify_announcement(
        &self,
        unix_millis: u64,
        announcement: &PrefixAnnouncementRef<'_>,
    ) -> Result<Name, CommandRefusal>;
}

/// The proof that an allowed command carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// A signature by a key that may command.
    Key,
    /// None, and none was required.
    Unneeded,
    /// None was required, and its digest does not match the signed portion. NFD, NDNd and ndn-rs
    /// accept such commands too.
    WrongDigest,
}

/// Decides on commands.
pub(crate) struct Authority {
    policy: CommandPolicy,
    pub(crate) verifier: Box<dyn CommandVerifier>,
    keyed: ReplayGuard,
    unkeyed: UnkeyedMemory,
    distrust: Distrust<FaceId>,
    // Faces whose signatures have been right, and what those of all other neighbours may cost
    // together: a new face costs its peer a datagram.
    proven: BTreeSet<FaceId>,
    unproven: Meter,
}

/// Signatures that are verified for neighbours that have not sent a right one yet: each takes some 100
/// microseconds of the forwarding thread.
const UNPROVEN: Limit = Limit::per_second(256);

impl Authority {
    pub(crate) fn new(policy: CommandPolicy, verifier: Box<dyn CommandVerifier>) -> Authority {
        Authority {
            policy,
            verifier,
            keyed: ReplayGuard::new(REPLAYS),
            unkeyed: UnkeyedMemory::default(),
            distrust: Distrust::default(),
            proven: BTreeSet::new(),
            unproven: Meter::default(),
        }
    }

    /// Forgets a face that is gone.
    pub(crate) fn forget(&mut self, face: FaceId) {
        self.distrust.forget(face);
        self.proven.remove(&face);
    }

    /// Verifies, unless the face has sent many wrong signatures: each costs as much as a right one.
    /// Faces of neighbours (`remote`) that are new share a limit, too; a program of this machine is
    /// not kept out by them.
    fn verify<T>(
        &mut self,
        (now, from, remote): (Time, FaceId, bool),
        verify: impl FnOnce(&dyn CommandVerifier) -> Result<T, CommandRefusal>,
    ) -> Result<T, CommandRefusal> {
        let is_known = !remote || self.proven.contains(&from);
        if !self.distrust.may_check(now, from) || !(is_known || self.unproven.admits(now, UNPROVEN))
        {
            return Err(CommandRefusal::TooMany);
        }
        let outcome = verify(&*self.verifier);
        match outcome {
            Ok(_) => drop(self.proven.insert(from)),
            Err(CommandRefusal::Signature(_)) => self.distrust.note_bad(now, from),
            Err(_) => {}
        }
        outcome
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

    /// Allows a command once. `moment` is Unix time in milliseconds, and the router's; `from` is
    /// the face that it came from.
    pub(crate) fn allow(
        &mut self,
        (moment, from): ((u64, Time), FaceId),
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
            let (unix_millis, now) = moment;
            let key = self.verify((now, from, remote), |verifier| {
                verifier.verify_command(unix_millis, module, &signed)
            })?;
            self.keyed
                .accept(unix_millis, key.as_ref(), &signed.stamped_info())?;
            return Ok(Proof::Key);
        }
        let Some(signed) = signed else {
            return Ok(Proof::Unneeded);
        };
        // Without time and nonce, a repeated command is an identical Interest, and intended.
        if signed.time.is_some() || signed.nonce.is_some() {
            self.unkeyed.admit(&signed)?;
        }
        if signed.is_digest() && !signed.has_right_digest() {
            return Ok(Proof::WrongDigest);
        }
        Ok(Proof::Unneeded)
    }

    /// Allows a prefix announcement, in the same way.
    pub(crate) fn allow_announcement(
        &mut self,
        ((unix_millis, now), from): ((u64, Time), FaceId),
        remote: bool,
        announcement: &PrefixAnnouncementRef<'_>,
    ) -> Result<(), CommandRefusal> {
        if self.needs_key(remote) {
            self.verify((now, from, remote), |verifier| {
                verifier.verify_announcement(unix_millis, announcement)
            })?;
        }
        Ok(())
    }
}

/// Commands that any program on this machine could have made: copies are detected without regard to
/// clocks, and the oldest are forgotten.
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
        if self.order.len() > MAX_REMEMBERED_UNKEYED
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        Ok(())
    }
}
