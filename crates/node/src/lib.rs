//! One host, router or name server from one configuration, ready for a driver. No algorithm of its own.
#![forbid(unsafe_code)]

pub mod machine;

pub use machine::{Node, NodeEvent};
