//! The tables of a forwarder.
//!
//! | module | holds |
//! |---|---|
//! | `name_key` | the hashes of a name and of its prefixes |
//! | [`fib`] | the next hops of prefixes |
//! | `fab` | the FIB entries of flows, for Interests with a path tag |
//! | `labels` | the names of faces in path tags |
//! | [`pit`] | pending Interests |
//! | [`cs`] | Data kept to answer later Interests |
//! | `dead_nonces` | nonces of Interests that are no longer pending |
//! | [`measurements`] | measurements of faces by adaptive strategies |
//! | `expiry` | deadlines of PIT entries |
//! | `prefix_map` | longest prefix match |
//! | `prefetch` | prefetching of cache lines |
//! | `index` | slabs and the hash index below all of them |

pub mod cs;
pub(crate) mod dead_nonces;
pub(crate) mod expiry;
pub(crate) mod fab;
pub mod fib;
pub(crate) mod index;
pub(crate) mod labels;
pub mod measurements;
pub(crate) mod name_key;
pub mod pit;
pub(crate) mod prefetch;
pub(crate) mod prefix_map;

pub use cs::Cs;
pub use fib::{Fib, FibError, NextHop};
pub use name_key::MAX_DEPTH;
pub use pit::Pit;
