//! One hop: two neighbours hide lost packets from the layers above.
//!
//! | module | holds |
//! |---|---|
//! | [`account`] | one account of a node's memory for chunks: pools, and room in them |
//! | [`hop`] | Hop: whole chunks to one neighbour, reliably, paced, under the neighbour's advertised window |
//! | [`path_mtu`] | the largest frame that a path takes, found without the help of its routers |
//! | [`turns`] | fair queueing among the lanes of a link |
//! | [`ndnlp`] | NDN packets on one face: NDNLPv2 and hop-by-hop best-effort reliability (BELRP) |
#![forbid(unsafe_code)]

pub mod account;
pub mod hop;
pub mod ndnlp;
pub mod path_mtu;
pub mod turns;

pub use account::{Buffer, Pool, Room};
pub use hop::{Hop, HopConfig, HopEvent, HopStats, Lane, Pacing};
