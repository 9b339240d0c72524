//! A name server's records on a Redis or Valkey Cluster.
//!
//! Records are strings, or fields of a hash for the providers of a content; compare, set, expire and
//! publish are one function on the engine, and all keys of a name are in one slot. A [`ClusterStore`]
//! asks from a thread of its own: the machine that it serves never waits. It keeps the records of names
//! in use at hand, as long as the engine tells it of their changes, and verifies each record that it
//! reads. What a failover may lose, it writes again.
//!
//! Layout and rules: `docs/protocols/gnrs.md`, "On a cluster".
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "a driver: it waits for other machines on a thread of its own"
)]

mod cache;
mod config;
mod connections;
mod engine;
mod keys;
mod replay;
mod store;
mod topology;

pub use config::{ClusterAddress, ClusterAddressError, ClusterConfig};
pub use store::ClusterStore;
