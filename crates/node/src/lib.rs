//! One host, router or name server from one configuration, ready for a driver, and what local
//! programs need to use a host. No protocol of its own.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | [`Node`], the three kinds of node as one machine |
//! | [`config`] | [`Config`](config::Config), the TOML schema, and its sample; [`Plan`](config::Plan), what a start takes of it |
//! | [`run`] | a node behind real sockets, from a plan |
//! | [`reload`] | what a node takes over from its configuration while it runs |
//! | [`keys`], [`place`] | key files, and where things lie by default |
//! | [`metrics`] | what a node counts, for Prometheus |
//! | [`name_server`] | a name server with the local programs that ask for its state |
//! | [`name_store`] | a name server's records on disk or in memory |
//! | [`name_client`] | asking name servers, for programs that are neither host nor router |
//! | [`ndn`] | a router's NDN plane: machine, sockets |
//! | [`tcp_proxy`] | a TCP/ICN proxy: its configuration, its device, its loop |
//! | [`local_client`] | a program's way to its host, by a socket or in the same process |
//! | [`shelf`], [`serve`] | the publishing side: files hashed once, read and proven chunk by chunk |
//! | [`fetch`] | the receiving side: verified chunks to disk, and the record to go on from |
//! | [`output`] | where fetched content goes, and what becomes of what is there |
//! | [`ticket`] | a content's name and where to ask for it, in one string |
//! | [`wait`] | why a program waits, as its host knows |
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "what drives machines over real sockets and files owns a clock"
)]

pub mod config;
pub mod fetch;
pub mod keys;
pub mod local_client;
pub mod machine;
pub mod metrics;
pub mod name_client;
pub mod name_server;
pub mod name_store;
pub mod ndn;
pub mod output;
pub mod place;
pub mod reload;
pub mod run;
pub mod serve;
pub mod shelf;
pub mod tcp_proxy;
pub mod ticket;
pub mod wait;

pub use machine::{Node, NodeEvent};
pub use name_server::NameServer;
pub use name_store::NameStore;
