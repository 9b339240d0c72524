//! The NFD Management protocol: its formats, FaceUris, and a client without sockets.
//!
//! A program sends an Interest under `/localhost/nfd/MODULE/VERB` and gets Data:
//!
//! | request | with | reply |
//! |---|---|---|
//! | a command | [`ControlParameters`] in the component after the verb, signed or not | [`ControlResponse`] |
//! | a dataset | `CanBePrefix` | version and segments; refusals as Data of type Nack |
//! | an event | `faces/events`, then `faces/events/seq=N` | [`FaceEventNotification`] |
//!
//! | module | holds |
//! |---|---|
//! | [`control`] | parameters and responses of commands |
//! | [`codes`] | flags, event kinds, route origins |
//! | [`face`] | scope, link type and persistency of a face |
//! | [`face_status`] | datasets and events about faces |
//! | [`table_status`] | datasets about the forwarder and its tables |
//! | [`face_uri`] | [`FaceUri`]: one end of a face, as NFD writes it |
//! | [`client`] | commands, dataset fetches and responses on the client side |
//! | [`verb`] | [`Verb`]: the commands and their parameters |
//! | [`types`] | TLV-TYPE numbers |
//!
//! The server side is `whimbrel-forwarder`'s.
#![forbid(unsafe_code)]

pub mod client;
pub mod codes;
pub mod control;
pub mod face;
pub mod face_status;
pub mod face_uri;
mod fields;
pub mod table_status;
pub mod types;
pub mod verb;

pub use codes::{
    FLAG_CONGESTION_MARKING, FLAG_CS_ADMIT, FLAG_CS_SERVE, FLAG_LOCAL_FIELDS, FLAG_LP_RELIABILITY,
    FaceEventKind, ROUTE_CAPTURE, ROUTE_CHILD_INHERIT, RouteOrigin,
};
pub use control::{ControlParameters, ControlResponse};
pub use face::{LinkType, Persistency, Scope};
pub use face_status::{
    ChannelStatus, FaceEventNotification, FaceQueryFilter, FaceStatus, FaceTraffic,
};
pub use face_uri::FaceUri;
pub use table_status::{
    CsInfo, FibEntry, ForwarderStatus, NextHopRecord, RibEntry, RouteStatus, StrategyChoice,
};
pub use verb::{ParameterError, Verb};
