//! A whole NDN router but its sockets: the forwarder with one link service for each face, as one
//! machine.
//!
//! | module | holds |
//! |---|---|
//! | [`router`] | [`NdnRouter`], the machine |
//! | [`faces`] | what a port is as a face: its URIs, scope and link |
//! | [`endpoint`] | the port that a FaceUri asks for |
#![forbid(unsafe_code)]

pub mod endpoint;
pub mod faces;
pub mod router;

pub use router::{NdnRouter, NdnRouterConfig};
