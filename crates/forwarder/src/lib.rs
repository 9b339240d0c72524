//! The NDN forwarding plane: tables, pipelines, strategies and NFD management.
//!
//! One [`Forwarder`] is one forwarder: packets that links delivered go in with their incoming face,
//! packets to send come out with their outgoing face. It holds no socket, thread or clock.
//!
//! | module | holds |
//! |---|---|
//! | [`forwarder`] | [`Forwarder`]: faces, packets in and out, time |
//! | [`config`] | [`ForwarderConfig`]: sizes and policies |
//! | [`face`] | [`Face`], [`FaceSpec`]: a face's properties and counters |
//! | [`counters`] | the forwarder's counters, drops by reason |
//! | `congestion` | marking of packets by the forwarder itself |
//! | [`tables`] | FIB, PIT, content store, dead nonces, measurements |
//! | [`strategy`] | the forwarding strategies and their choice by prefix |
//! | `pipeline` | processing of Interests, Data and Nacks |
//! | [`mgmt`] | the router's side of NFD Management; formats and client are `whimbrel-ndn-mgmt` |
//! | [`rib`] | [`rib::Rib`]: registered routes, and the FIB entries derived from them |
//!
//! The pipelines follow NFD's developer guide; comments mark the differences.
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
pub use forwarder::{Forwarder, OutPacket};
// Part of this crate's interface.
pub use whimbrel_core::LinkState;
pub use whimbrel_ndn_mgmt::{FaceUri, LinkType, Persistency, Scope};
