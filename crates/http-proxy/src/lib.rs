//! HTTP through the native plane: both sides of an HTTP proxy.
//!
//! The one invariant: **a browser sees one ordinary proxy**, whatever happens to the links between its two sides: a
//! response is complete or visibly broken, never silently truncated.
//!
//! | module | holds | text it follows |
//! |---|---|---|
//! | [`host`] | a connection to the host: requests out, events in | docs/protocols/local.md |
//! | [`plane`] | streams to other programs, as tokio reads and writes them | docs/protocols/stream.md |
//! | [`wire`] | heads and bodies on a stream | docs/protocols/http.md |
//! | [`body`] | bodies between hyper and a stream | docs/protocols/http.md |
//! | [`headers`] | the fields that a proxy forwards | RFC 9110 section 7.6 |
//! | [`cache`] | stored responses | RFC 9111, RFC 9211 |
//! | [`kept`] | requests that wait for the link | - |
//! | [`client`] | the side that programs set as their proxy | RFC 9110 section 7 |
//! | [`shared`] | bodies as contents of their own names | docs/protocols/http.md |
//! | [`resuming`] | responses whose server closes the connection in the middle | RFC 9110 section 14 |
//! | [`run`] | either side, with its own runtime | - |
//! | [`server`], [`origin`] | the side that sends requests to web servers | RFC 9110 section 7 |
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(
    clippy::disallowed_methods,
    reason = "code that drives a machine over real sockets owns a clock"
)]

pub mod body;
pub mod cache;
pub mod client;
pub mod headers;
pub mod host;
pub mod kept;
pub mod origin;
pub mod plane;
pub mod resuming;
pub mod run;
pub mod server;
pub mod shared;
pub mod wire;

/// The channel of the streams' messages: the port of HTTP proxies.
pub const CHANNEL: u32 = 3128;
