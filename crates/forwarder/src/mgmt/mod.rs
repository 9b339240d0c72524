//! The NFD Management protocol: its formats, the router's side of it, and a client's.
//!
//! A program asks by an Interest under `/localhost/nfd/MODULE/VERB` and gets Data:
//!
//! | asks for | with | gets |
//! |---|---|---|
//! | a command | [`ControlParameters`] in the component after the verb, signed or not ([`CommandPolicy`]) | [`ControlResponse`] |
//! | a dataset | `CanBePrefix` | version and segments, unsigned but for a digest; refusals as Data of type Nack |
//! | an event | `faces/events`, then `faces/events/seq=N` | [`FaceEventNotification`] |
//!
//! Modules are `faces`, `fib`, `rib`, `strategy-choice`, `cs`, `status`, and `whimbrel` for what
//! NFD has no dataset for (JSON: `whimbrel/counters`, `whimbrel/links`, `whimbrel/strategies`).
//! Neighbours may register prefixes under `/localhop/nfd/rib` where [`RemoteRegistration`] says so.
//!
//! Where NFD leaves malformed commands unanswered, this router answers with status 400 and what is
//! wrong.
mod anchors;
mod attachment;
mod authority;
pub mod client;
mod codes;
mod config;
mod content_store;
mod control;
mod event_stream;
mod face_requests;
mod face_status;
mod faces;
mod fib;
mod fields;
mod management;
mod request;
mod routes;
mod snapshots;
mod status;
mod strategies;
mod table_status;
pub mod types;
mod verb;

pub use anchors::{Anchors, Privileges};
pub use authority::{
    CommandPolicy, CommandRefusal, CommandVerifier, LocalCommands, RemoteRegistration,
    SignedCommand,
};
pub use codes::{
    FLAG_CONGESTION_MARKING, FLAG_CS_ADMIT, FLAG_CS_SERVE, FLAG_LOCAL_FIELDS, FLAG_LP_RELIABILITY,
    FaceEventKind, ROUTE_CAPTURE, ROUTE_CHILD_INHERIT, RouteOrigin,
};
pub use config::ManagementConfig;
pub use control::{ControlParameters, ControlResponse};
pub use face_requests::{FaceFailure, FaceRequest, FaceSettings, RequestId};
pub use face_status::{
    ChannelStatus, FaceEventNotification, FaceQueryFilter, FaceStatus, FaceTraffic,
};
pub(crate) use management::Management;
pub use management::ManagementCounters;
pub use table_status::{
    CsInfo, FibEntry, ForwarderStatus, NextHopRecord, RibEntry, RouteStatus, StrategyChoice,
};

/// What the link of one face has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames that came in.
    pub in_packets: u64,
    /// Octets that came in.
    pub in_bytes: u64,
    /// Frames that went out.
    pub out_packets: u64,
    /// Octets that went out.
    pub out_bytes: u64,
    /// What else the link has counted, by name: retransmissions, recoveries, drops by reason.
    pub details: Vec<(&'static str, u64)>,
}
