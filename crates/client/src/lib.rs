//! The interface for programs: everything that a program can ask of the host on its machine
//! (`docs/protocols/local.md`).
//!
//! | module | holds |
//! |---|---|
//! | [`frames`] | requests and events as bytes, without a socket |
//! | [`connection`], `socket` | a blocking connection that passes requests and events one by one |
//! | [`place`] | the default places of sockets and files, and whether another user could have prepared them |
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "code that drives a machine over a real socket owns a clock"
)]

pub mod connection;
mod error;
pub mod frames;
pub mod place;
mod socket;

pub use connection::{Attachment, HostWay, LocalClient, requested_size};
pub use error::LocalError;
pub use socket::{WRITE_PATIENCE, connect_socket};
