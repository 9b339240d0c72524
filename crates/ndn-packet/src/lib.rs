//! The NDN packet format v0.3 and NDNLPv2, as zero-copy views and as owned forms.
//!
//! | module | holds |
//! |---|---|
//! | [`tlv`] | type-length-value elements, non-negative integers, which unknown types may be ignored |
//! | [`types`] | assigned TLV-TYPE numbers |
//! | [`name`] | [`Name`], [`NameRef`], [`Component`]: canonical order |
//! | [`uri`] | names as text |
//! | [`conventions`] | segment numbers, versions, keywords |
//! | [`interest`] | [`InterestRef`], a checked view; [`Interest`], to encode |
//! | [`data`] | [`DataRef`], a checked view; [`Data`], to encode and sign |
//! | [`signature`] | SignatureInfo, signers and verifiers |
//! | [`key`] | private and public keys, HMAC |
//! | [`certificate`], [`validity`] | public keys bound to identities, and their validity |
//! | [`safe_bag`] | private keys under a passphrase, for export |
//! | [`replay`] | protection of signed Interests from replay |
//! | [`announcement`] | prefix announcements |
//! | [`lp`] | [`LpPacket`] and [`LpHeader`]: the NDNLPv2 header of a packet or fragment, from one table of fields |
//!
//! A view is checked as far as the specification requires of a receiver: order of elements, sizes,
//! unknown critical types. It borrows from the packet.
#![forbid(unsafe_code)]

pub mod announcement;
pub mod certificate;
pub mod conventions;
pub mod data;
pub mod interest;
pub mod key;
pub mod lp;
pub mod name;
pub mod replay;
pub mod safe_bag;
pub mod shared;
pub mod signature;
pub mod tlv;
pub mod types;
pub mod uri;
pub mod validity;

pub use announcement::{PrefixAnnouncement, PrefixAnnouncementRef};
pub use certificate::{Certificate, CertificateDraft, CertificateError};
pub use data::{ContentType, Data, DataRef};
pub use interest::{Interest, InterestRef};
pub use key::{HmacKey, KeyError, KeySigner, KeyType, PrivateKey, PublicKey};
pub use lp::{CachePolicy, LpHeader, LpHeaderRef, LpPacket, NackReason};
pub use name::{Component, ComponentRef, Name, NameRef, ParseNameError};
pub use replay::{ReplayConfig, ReplayError, ReplayGuard};
pub use safe_bag::{SafeBag, SafeBagError};
pub use shared::SharedPacket;
pub use signature::{
    DigestSigner, KeyLocator, KeyLocatorRef, SignatureInfo, SignatureInfoRef, SignatureType,
    Signer, Verifier, VerifyError,
};
pub use tlv::DecodeError;
pub use validity::ValidityPeriod;

/// Largest network-layer packet that NDN forwarders accept, in bytes (NFD's `MAX_NDN_PACKET_SIZE`).
pub const MAX_PACKET: usize = 8800;

/// The kind of a packet, by its first octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// A bare Interest.
    Interest,
    /// A bare Data.
    Data,
    /// An NDNLPv2 packet.
    Lp,
}

impl PacketKind {
    /// Reads the outermost TLV-TYPE; `None` for any other.
    pub fn of(packet: &[u8]) -> Option<PacketKind> {
        match packet.first() {
            Some(0x05) => Some(PacketKind::Interest),
            Some(0x06) => Some(PacketKind::Data),
            Some(0x64) => Some(PacketKind::Lp),
            _ => None,
        }
    }
}
