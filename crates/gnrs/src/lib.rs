//! Global name resolution (GNRS): maps permanent names to changing network addresses.
//!
//! The one invariant: **a record is as trustworthy as its signature**. Every node that carries,
//! stores or caches a [`Record`] can verify it; only the owner of the key can change it, and an old
//! one cannot be replayed. [MFTP §3.3] describes how a router uses the answers.
#![forbid(unsafe_code)]

pub mod alias;
pub mod client;
mod demand;
pub mod directory;
mod outbox;
mod quota;
pub mod record;
pub mod server;
pub mod store;
pub mod wire;

pub use client::{
    Answer, Failure, LoneResolver, Lookup, NameServerStatus, Rejection, Resolver, ResolverConfig,
    ResolverCounters, ResolverEvent,
};
pub use demand::{DemandChange, NameDemand};
pub use quota::Quotas;
pub use record::{
    Address, DecodeError, GroupAdmission, Kind, MAX_ADDRESSES, MAX_MEMBERS,
    MAX_PROVIDER_LIFETIME_MS, Pointer, Record, RecordKey, RecordView, Statement, StatementError,
    VERSION_BOUND, VerifyError,
};
pub use server::{
    PeerCounters, PeerStatus, Placement, Server, ServerConfig, ServerCounters, ServerEvent,
    ServerStatus,
};
pub use store::{DiskStore, InPlace, MemoryStore, Store, StoreError, StoreLimits};
pub use whimbrel_core::identity::{KeyFileError, KeyPair, PublicKey, Signature, SignatureError};
