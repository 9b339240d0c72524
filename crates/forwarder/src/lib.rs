//! The NDN forwarding plane: tables, pipelines, strategies and NFD management.
//!
//! One [`Forwarder`] is one forwarder: packets that links delivered go in with the face they came by, packets to send
//! come out with the face they go to. It holds no socket, thread or clock.
//!
//! | module | holds |
//! |---|---|
//! | [`forwarder`] | [`Forwarder`]: faces, packets in and out, time |
//! | [`config`] | [`ForwarderConfig`]: sizes and policies |
//! | [`face`] | [`Face`], [`FaceSpec`]: what a face is and what it has counted |
//! | [`counters`] | what the whole forwarder has counted, drops by reason |
//! | [`congestion`] | when the forwarder itself marks packets |
//! | [`tables`] | FIB, PIT, content store, dead nonces, measurements |
//! | [`strategy`] | the forwarding strategies and which prefix has which |
//! | `pipeline` | what becomes of an Interest, a Data, a Nack |
//!
//! What a pipeline does follows NFD's developer guide; where this forwarder differs, the place says so.
#![forbid(unsafe_code)]

pub mod config;
pub mod congestion;
pub mod counters;
pub mod face;
pub mod forwarder;
mod pipeline;
pub mod strategy;
pub mod tables;

pub use config::{CsConfig, CsPolicy, ForwarderConfig, UnsolicitedPolicy};
pub use counters::{DropReason, ForwarderCounters};
pub use face::{Face, FaceCounters, FaceFlags, FaceId, FaceSpec, LinkType, Persistency, Scope};
pub use forwarder::{FaceEvent, Forwarder, ManagementInterest, Outgoing};
