//! The tables of a forwarder.
//!
//! | module | holds |
//! |---|---|
//! | `name_key` | the hashes of a name and of its prefixes |
//! | [`fib`] | which faces lead to a prefix |
//! | [`pit`] | Interests that wait for Data |
//! | [`cs`] | Data that may be asked for again |
//! | `dead_nonces` | nonces of Interests that no longer wait |
//! | `measurements` | what adaptive strategies know of faces |
//! | `expiry` | when PIT entries are due |
//! | `prefix_map` | longest prefix match |
//! | `prefetch` | loads that nobody waits for |
//! | `index` | slabs and the hash index under all of them |

pub mod cs;
pub(crate) mod dead_nonces;
pub(crate) mod expiry;
pub mod fib;
pub(crate) mod index;
pub(crate) mod measurements;
pub(crate) mod name_key;
pub mod pit;
pub(crate) mod prefetch;
pub(crate) mod prefix_map;

pub use cs::Cs;
pub use fib::{Fib, FibError, NextHop};
pub use name_key::MAX_DEPTH;
pub use pit::Pit;
