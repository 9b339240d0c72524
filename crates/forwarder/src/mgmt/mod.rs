//! The NFD Management protocol.
mod codes;
mod control;
mod face_status;
mod fields;
mod table_status;
pub mod types;

pub use codes::{
    FLAG_CONGESTION_MARKING, FLAG_CS_ADMIT, FLAG_CS_SERVE, FLAG_LOCAL_FIELDS, FLAG_LP_RELIABILITY,
    FaceEventKind, ROUTE_CAPTURE, ROUTE_CHILD_INHERIT, RouteOrigin,
};
pub use control::{ControlParameters, ControlResponse};
pub use face_status::{ChannelStatus, FaceEventNotification, FaceQueryFilter, FaceStatus, FaceTraffic};
pub use table_status::{
    CsInfo, FibEntry, ForwarderStatus, NextHopRecord, RibEntry, RouteStatus, StrategyChoice,
};
