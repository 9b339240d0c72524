//! A whole NDN router but its sockets: the forwarder with one link service for each face, as one
//! machine.
//!
//! | module | holds |
//! |---|---|
//! | [`router`] | [`NdnRouter`], the machine |
//! | [`faces`] | what a port is as a face: its URIs, scope and link |
//! | [`endpoint`] | the port that a FaceUri asks for |
//! | `attached` | the table of faces, their ports and links |
//! | `opening` | ports asked for, refused, asked for again |
//! | `idle` | callers that have been silent for too long |
#![forbid(unsafe_code)]

mod attached;
pub mod endpoint;
pub mod faces;
mod idle;
mod opening;
pub mod router;

pub use router::{NdnRouter, NdnRouterConfig};
