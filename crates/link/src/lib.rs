//! One hop: what two neighbours do so that nothing above them meets a lost packet.
//!
//! | module | holds |
//! |---|---|
//! | [`hop`] | Hop: whole chunks to one neighbour, reliably, paced, under the neighbour's advertised window |
#![forbid(unsafe_code)]

pub mod hop;

pub use hop::{Hop, HopConfig, HopEvent, HopStats, Pacing, PacketBudget};
