//! The properties of a face in the protocol.

/// Whether the other end is on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// On this machine: `/localhost` may pass.
    Local,
    /// Remote or unknown.
    NonLocal,
}

/// The number of peers at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// One.
    PointToPoint,
    /// Several that hear each other: a packet from one reaches all others.
    MultiAccess,
    /// Several that may not hear each other: a packet may have to leave on the face it arrived on.
    AdHoc,
}

/// The lifetime of a face that is idle or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistency {
    /// Closed when it is idle or fails.
    OnDemand,
    /// Closed when it fails or is destroyed.
    Persistent,
    /// Closed only when it is destroyed.
    Permanent,
}
