//! The studies of multihoming ([MF-5G]): the router before a client's links divides its flows, beside the
//! kernel's Multipath TCP.
//!
//! | module | holds |
//! |---|---|
//! | [`throughput`] | Fig. 5: each link alone, both by Multipath TCP, both by the router's division |
//! | [`grid`] | beyond the paper: cells of unequal links, faults and traces |
//! | [`handoff`] | beyond the paper: a client that moves between access routers |
//! | [`ping`] | Fig. 3: echo requests by IP and by MobilityFirst |

pub(super) mod grid;
pub(super) mod handoff;
pub(super) mod ping;
pub(super) mod throughput;
