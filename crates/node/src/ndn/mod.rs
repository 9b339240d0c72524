//! A router's NDN plane behind sockets, and what programs need to reach a forwarder. The machine
//! itself is [`whimbrel_ndn_router::NdnRouter`].
//!
//! | module | holds |
//! |---|---|
//! | [`client`] | [`client::Client`]: an application with a face to a forwarder, and how programs find it |
//! | [`control`] | [`control::Control`]: managing a forwarder, one request after the other |
//! | [`daemon`] | [`NdnThread`]: the router of a plan, running |
//! | [`open`] | listening sockets of a plan |

pub mod client;
pub mod control;
pub mod daemon;
pub mod face;
pub mod open;
pub(crate) mod program;
mod uplink;

pub use daemon::NdnThread;
pub use whimbrel_ndn_router::{NdnRouter, NdnRouterConfig, faces};
