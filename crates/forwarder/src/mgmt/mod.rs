//! The router's side of NFD Management (formats and client: `whimbrel-ndn-mgmt`).
//!
//! Modules are `faces`, `fib`, `rib`, `strategy-choice`, `cs`, `status`, and `whimbrel` for
//! datasets that NFD lacks (JSON: `whimbrel/counters`, `whimbrel/links`, `whimbrel/strategies`).
//! Datasets carry only a digest. Neighbours may register prefixes under `/localhop/nfd/rib` if
//! [`RemoteRegistration`] allows it.
//!
//! NFD leaves malformed commands unanswered; this router answers with status 400 and the error.
mod anchors;
mod attachment;
mod authority;
mod config;
mod content_store;
mod event_stream;
mod face_requests;
mod faces;
mod fib;
mod host;
mod management;
mod request;
mod routes;
mod snapshots;
mod status;
mod strategies;
mod verb;

pub use anchors::{Anchors, Privileges};
pub use authority::{
    CommandPolicy, CommandRefusal, CommandVerifier, LocalCommands, RemoteRegistration,
    SignedCommand,
};
pub use config::ManagementConfig;
pub use face_requests::{FaceFailure, FaceRequest, FaceSettings, RequestId};
pub use faces::MIN_MTU;
pub use host::{FaceHost, LinkCounters};
pub(crate) use management::Management;
pub use management::ManagementCounters;
