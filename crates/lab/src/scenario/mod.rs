//! One language for networks and what happens in them.

pub mod graph;
