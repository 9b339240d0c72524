//! What a face is, as far as the protocol tells.

/// Whether the other end is on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// It is: `/localhost` may pass.
    Local,
    /// It is not, or nobody knows.
    NonLocal,
}

/// How many peers are at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// One.
    PointToPoint,
    /// Several who hear each other: what one sends reaches all others.
    MultiAccess,
    /// Several who may not hear each other: a packet may have to go out where it came in.
    AdHoc,
}

/// What becomes of a face that is idle or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistency {
    /// It goes when it is idle or fails.
    OnDemand,
    /// It stays until it fails or is destroyed.
    Persistent,
    /// It stays until it is destroyed.
    Permanent,
}
