//! A host, router or name server made from one configuration, ready for a driver, and what local
//! programs need to use a host. It has no protocol of its own.
//!
//! | module | holds |
//! |---|---|
//! | [`machine`] | [`Node`], the three kinds of node as one machine |
//! | [`config`] | [`Config`](config::Config), the TOML schema, and its sample; [`Plan`](config::Plan), the input of a start |
//! | [`compose`] | a node's machine from its plan, without sockets |
//! | [`run`] | a node behind real sockets, from a plan |
//! | [`reload`] | changes of the configuration that a running node applies |
//! | [`keys`] | key files |
//! | [`known_peers`] | the names that were proven at the addresses of neighbours |
//! | [`directory`] | the aliases that this user's programs take in place of names |
//! | [`metrics`] | a node's counters, for Prometheus |
//! | [`diagnostics`] | standard error and standard output, which never hold up a program |
//! | [`name_server`] | a name server, and the local programs that ask for its state |
//! | [`name_store`] | a name server's records on disk or in memory |
//! | [`name_copy`] | all records of a name server on this machine, and a file of them |
//! | [`name_client`] | queries to name servers, for programs that are neither host nor router |
//! | [`pointers`] | pointers of keys: publishing one, and finding its newest version |
//! | [`ndn`] | a router's NDN plane: machine, sockets |
//! | [`tcp_proxy`] | a TCP/ICN proxy: its configuration, its device, its loop |
//! | `inner_client` | a program's connection to a host in the same process |
//! | [`shelf`], [`serve`] | the publishing side: files hashed once, read and proven chunk by chunk |
//! | [`fetch`] | the receiving side: verified chunks to disk, and the record by which a fetch resumes |
//! | [`push`], [`inbox`] | contents that their receiver has not requested: sent, and received by a rule |
//! | [`output`] | the places of fetched content, and the treatment of files that are there |
//! | [`perf`] | measuring what a network carries between two hosts |
//! | [`ticket`] | a content's name and where to ask for it, in one string |
//! | [`wait`] | the reason why a program waits, as its host reports it |
#![forbid(unsafe_code)]
// They panic where the stream cannot be written: `diagnostics` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(
    clippy::disallowed_methods,
    reason = "code that drives machines over real sockets and files owns a clock"
)]

mod bundle;
mod callers;
pub mod compose;
pub mod config;
pub mod diagnostics;
pub mod directory;
pub mod exact_json;
pub mod fetch;
pub mod inbox;
mod inner_client;
mod kept;
pub mod keys;
pub mod known_peers;
pub mod links;
pub mod machine;
pub mod metrics;
pub mod name_client;
pub mod name_copy;
pub mod name_server;
pub mod name_store;
pub mod ndn;
pub mod output;
pub mod perf;
pub mod pointers;
pub mod push;
mod quotas;
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
