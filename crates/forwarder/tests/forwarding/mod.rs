//! The packet processing of a forwarder, seen from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]

mod batches;
mod bounds;
mod contract;
mod data;
mod interests;
mod nacks;
mod node;
mod own_strategies;
mod path_tags;
mod repeat;
mod strategies;
mod topologies;
