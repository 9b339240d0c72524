//! The NDN forwarding plane: tables, pipelines, strategies and NFD management.
//!
//! One [`Forwarder`] is one forwarder: packets that links delivered go in with the face they came
//! by, packets to send come out with the face they go to. It holds no socket, thread or clock.
//!
//! | module | holds |
//! |---|---|
//! | [`forwarder`] | [`Forwarder`]: faces, packets in and out, time |
//! | [`config`] | [`ForwarderConfig`]: sizes and policies |
//! | [`face`] | [`Face`], [`FaceSpec`]: what a face is and what it has counted |
//! | [`counters`] | what the whole forwarder has counted, drops by reason |
//! | `congestion` | when the forwarder itself marks packets |
//! | [`tables`] | FIB, PIT, content store, dead nonces, measurements |
//! | [`strategy`] | the forwarding strategies and which prefix has which |
//! | `pipeline` | what becomes of an Interest, a Data, a Nack |
//! | [`mgmt`] | the router's side of NFD Management; formats and client are `whimbrel-ndn-mgmt` |
//! | [`rib`] | [`rib::Rib`]: who announced which prefix where, and what the FIB makes of it |
//!
//! What a pipeline does follows NFD's developer guide; where this forwarder differs, the place says
//! so.
#![forbid(unsafe_code)]

pub mod config;
mod congestion;
pub mod counters;
pub mod face;
pub mod forwarder;
pub mod mgmt;
mod pipeline;
pub mod rib;
pub mod strategy;
pub mod tables;

pub use config::{CsConfig, CsPolicy, ForwarderConfig, UnsolicitedPolicy};
pub use counters::{DropReason, ForwarderCounters};
pub use face::{Face, FaceCounters, FaceFlags, FaceId, FaceSpec};
pub use forwarder::{Forwarder, Outgoing};
// In the signatures of this crate.
pub use whimbrel_core::LinkState;
pub use whimbrel_ndn_mgmt::{FaceUri, LinkType, Persistency, Scope};
