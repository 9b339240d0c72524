//! (topologies)
