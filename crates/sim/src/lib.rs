//! Deterministic discrete events, and the link model that they share with the real-time emulator.
//!
//! | module | holds |
//! |---|---|
//! | [`link`] | [`link::LinkSpec`], what one direction of a link does, and [`link::LinkDirection`], which does it |
//! | [`units`] | "54 Mbit/s", "25 ms", "256 KiB", "1 %": how people write a link down |
#![forbid(unsafe_code)]

pub mod link;
pub mod units;
