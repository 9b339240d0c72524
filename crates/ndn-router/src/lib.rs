//! A whole NDN router without its sockets: the forwarder with one link service for each face, as
//! one machine.
//!
//! | module | holds |
//! |---|---|
//! | [`router`] | [`NdnRouter`], the machine |
//! | [`faces`] | the face of a port: its URIs, scope and link |
//! | [`endpoint`] | conversion of FaceUris to endpoints |
//! | [`NewcomerGate`] | the rate at which unknown senders of datagrams get faces |
//! | `admission` | shares of the faces, and which one gives way |
//! | `attached` | the table of faces, their ports and links |
//! | `opening` | ports requested, refused, requested again |
//! | `idle` | on-demand faces that have been silent for too long |
#![forbid(unsafe_code)]

mod admission;
mod attached;
mod caller;
pub mod endpoint;
pub mod faces;
mod gate;
mod idle;
mod opening;
pub mod router;

pub use gate::NewcomerGate;
pub use router::{NdnRouter, NdnRouterConfig};
