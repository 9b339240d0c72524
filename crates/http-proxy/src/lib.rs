//! The web through the native plane: both sides of an HTTP proxy.
//!
//! The one invariant: **a browser sees one ordinary proxy**, whatever becomes of the links between its two sides: an
//! answer is whole or visibly broken, never silently short.
//!
//! | module | holds | text it follows |
//! |---|---|---|
//! | [`host`] | a connection to the host: requests out, events in | docs/protocols/local.md |
//! | [`plane`] | streams to other programs, as tokio reads and writes them | docs/protocols/stream.md |
//! | [`wire`] | heads and bodies on a stream | docs/protocols/http.md |
//! | [`body`] | bodies between hyper and a stream | docs/protocols/http.md |
//! | [`headers`] | what a proxy passes on | RFC 9110 section 7.6 |
//! | [`cache`] | answers that are kept | RFC 9111, RFC 9211 |
//! | [`kept`] | requests that could not be answered at once | - |
//! | [`client`] | the side that programs set as their proxy | RFC 9110 section 7 |
//! | [`shared`] | bodies as contents of their own names | docs/protocols/http.md |
//! | [`resuming`] | answers whose server closes the connection in the middle | RFC 9110 section 14 |
//! | [`run`] | either side, with a runtime of its own | - |
//! | [`server`], [`origin`] | the side that asks the servers of the web | RFC 9110 section 7 |
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
