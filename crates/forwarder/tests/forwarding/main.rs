//! What a forwarder does with packets, seen from outside.

mod bounds;
mod data;
mod interests;
mod nacks;
mod node;
mod strategies;
mod topologies;
