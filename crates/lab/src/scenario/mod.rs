//! One language for networks, loads and events: a TOML file that both back ends run.
//!
//! ```
//! use std::path::Path;
//! use whimbrel_lab::scenario::{Overrides, Scenario};
//!
//! let text = r#"
//!     nodes = { server = "host", router = "router", client = "host" }
//!     [links]
//!     wire = { between = ["server", "router"], rate = "100 Mbit/s", delay = "20 ms" }
//!     wifi = { between = ["router", "client"], rate = "20 Mbit/s", loss = "1 %" }
//!     [loads]
//!     film = { from = "server", to = "client", file = "5 MB" }
//!     [[events]]
//!     at = "1 s"
//!     outage = "wifi"
//!     duration = "2 s"
//! "#;
//! let scenario = Scenario::parse(Path::new("film.toml"), text, Overrides::default())?;
//! assert_eq!(scenario.settings[0].plan.network.nodes.len(), 3);
//! let wrong = text.replace("client\", file", "cleint\", file");
//! let faults = Scenario::parse(Path::new("film.toml"), &wrong, Overrides::default()).unwrap_err();
//! assert_eq!(
//!     faults.to_string(),
//!     "film.toml:7: loads.film.to: there is no node 'cleint'; did you mean 'client'?"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | key | read by | says |
//! |---|---|---|
//! | `title`, `about`, `seed`, `runs`, `limit`, `linger`, `metrics`, `plain`, `pacing` | [`mod@file`] | the whole |
//! | `nodes` | [`node`], [`sections`] | names and roles, and the daemon's own sections |
//! | `links`, `defaults.link` | [`link`] | ends, and the `whimbrel_sim::link::LinkSpec` of each direction |
//! | `graph` | [`graph`], [`network`] | nodes and links that are generated or imported |
//! | `routes` | [`route`] | the choice of paths, and given paths |
//! | `loads` | [`load`], [`proxies`] | requests for content |
//! | `events` | [`event`] | changes during the run |
//! | `sweep` | [`mod@file`] | values of any other key, each with each |
//! | `statements` | [`statement`] | a paper's statements |
//! | `sim`, `netns` | [`mod@file`] | keys that apply to that back end only |
//! | `study` | a study's code | its figures |
//!
//! | module | does |
//! |---|---|
//! | [`sim`], [`netns`] | run one plan: virtual time, namespaces |
//! | [`batch`] | all settings and runs, in parallel |
//! | [`judge`], [`report`] | statements beside our measurements; tables, pictures, a page |
//!
//! Quantities have units, as everywhere (`whimbrel_core::units`). A fault names file, line and key
//! ([`Fault`]).

pub mod batch;
mod document;
pub mod event;
mod fault;
pub mod file;
pub mod graph;
pub mod judge;
pub mod link;
pub mod load;
pub mod metric;
pub mod multipath;
pub mod netns;
pub mod network;
pub mod node;
pub mod proxies;
pub mod report;
pub mod route;
pub mod run;
pub mod sections;
pub mod sim;
pub mod statement;

pub use batch::{Batch, BatchOptions};
pub use fault::{Fault, Faults};
pub use file::{Overrides, Plan, Scenario, Setting};

/// A minimal scenario with a comment, to begin with.
pub const SAMPLE: &str = include_str!("sample.toml");
