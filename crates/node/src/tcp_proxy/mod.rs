//! A TCP/ICN proxy behind a network device and a forwarder's socket.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the TOML schema, and what a start takes of it |
//! | [`key`] | the secret that two proxies share |
//! | [`redirect`] | nftables rules in place of routes |
//! | [`run`](mod@run) | the proxy in its loop; addresses and routes of the device; its status |

pub mod config;
pub mod key;
pub mod redirect;
pub mod run;

pub use config::{Plan, PlanError, ProxyConfig, Role};
pub use run::{ProxyLoop, RunError, Told};
