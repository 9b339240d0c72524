//! Global name resolution (GNRS): from a name that does not change to the network addresses that
//! do.
//!
//! The one invariant: **a record is worth what its signature is worth**. Whoever carries, stores or
//! caches a [`Record`] can check it; nobody but the owner of the key can change it, and an old one
//! cannot come back. What a router does with the answers: [MFTP §3.3].
#![forbid(unsafe_code)]

pub mod client;
pub mod identity;
mod outbox;
pub mod record;
pub mod server;
pub mod store;
pub mod wire;

pub use client::{
    Answer, Failure, Lookup, Rejection, Resolver, ResolverConfig, ResolverCounters, ResolverEvent,
};
pub use identity::{KeyFileError, KeyPair, PublicKey, Signature, SignatureError};
pub use record::{
    Address, DecodeError, Kind, MAX_ADDRESSES, Record, RecordKey, RecordView, Statement,
    StatementError, VerifyError,
};
pub use server::{Server, ServerConfig, ServerCounters, ServerEvent};
pub use store::{DiskStore, MemoryStore, Store, StoreError, StoreLimits};
