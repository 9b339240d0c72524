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
//! | [`congestion`] | when the forwarder itself marks packets |
//! | [`tables`] | FIB, PIT, content store, dead nonces, measurements |
//! | [`strategy`] | the forwarding strategies and which prefix has which |
//! | `pipeline` | what becomes of an Interest, a Data, a Nack |
//! | [`mgmt`] | the NFD Management protocol: its formats, the router's side, a client's side |
//! | [`rib`] | [`rib::Rib`]: who announced which prefix where, and what the FIB makes of it |
//! | [`face_uri`] | [`FaceUri`]: what is at one end of a face, as NFD writes it |
//!
//! What a pipeline does follows NFD's developer guide; where this forwarder differs, the place says
//! so.
#![forbid(unsafe_code)]

pub mod config;
pub mod congestion;
pub mod counters;
pub mod face;
pub mod face_uri;
pub mod forwarder;
pub mod mgmt;
mod pipeline;
pub mod rib;
pub mod strategy;
pub mod tables;

pub use config::{CsConfig, CsPolicy, ForwarderConfig, UnsolicitedPolicy};
pub use counters::{DropReason, ForwarderCounters};
pub use face::{Face, FaceCounters, FaceFlags, FaceId, FaceSpec, LinkType, Persistency, Scope};
pub use face_uri::FaceUri;
pub use forwarder::{FaceEvent, Forwarder, ManagementInterest, Outgoing};
