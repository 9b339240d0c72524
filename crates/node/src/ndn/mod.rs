//! A router's NDN plane: the forwarder with one link service for each face, as one machine; its
//! sockets; and what programs need to reach a forwarder.
//!
//! | module | holds |
//! |---|---|
//! | [`router`] | [`NdnRouter`], the machine |
//! | [`faces`] | what a port is as a face: its URIs, scope and link |
//! | [`client`] | [`client::Client`]: an application with a face to a forwarder, and how programs find it |
//! | [`control`] | [`control::Control`]: managing a forwarder, one question after the other |
//! | [`daemon`] | [`NdnThread`]: the router of a configuration, running |
//! | [`metrics`] | what it counts, for Prometheus |
//! | [`endpoint`] | the port that a FaceUri asks for |
//! | [`open`] | listening sockets from a configuration |

pub mod client;
pub mod control;
pub mod daemon;
pub mod endpoint;
pub mod faces;
pub mod metrics;
pub mod open;
mod program;
pub mod router;
mod uplink;

pub use daemon::NdnThread;
pub use router::{NdnRouter, NdnRouterConfig};
