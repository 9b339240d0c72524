//! Deterministic discrete events, and the link model that they share with the real-time emulator.
//!
//! | module | holds |
//! |---|---|
//! | [`link`] | [`link::LinkSpec`], what one direction of a link does, and [`link::LinkDirection`], which does it |
//! | [`units`] | "54 Mbit/s", "25 ms", "256 KiB", "1 %": how people write a link down |
//! | [`simulator`] | [`Simulator`]: machines on nodes, frames on links, virtual time, faults |
//! | [`tcp`] | TCP endpoints and a relay, as a baseline |
//! | [`trace`] | what happened, hashed or written down |
//! | [`any`] | [`AnyMachine`], for machines of different types in one simulation |
#![forbid(unsafe_code)]

pub mod any;
pub mod link;
pub mod simulator;
pub mod tcp;
pub mod trace;
pub mod units;

pub use any::AnyMachine;
pub use simulator::{Connection, Direction, DuplexLink, LinkId, NodeId, Occurrence, Simulator};
