//! Forwarding strategies.

pub mod choice;

pub use choice::{StrategyChoice, StrategyError};
