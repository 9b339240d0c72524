//! What management wants done with sockets, which the forwarder has none of. (Shape given by the founder, who builds
//! `node` on it: keep these names; add fields where the protocol needs them.)

use core::time::Duration;

use crate::face::{FaceFlags, FaceId, Persistency};
use crate::face_uri::FaceUri;

/// Names one request in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What management wants of whoever owns the sockets. Each `Create` is answered by
/// [`crate::Forwarder::face_created`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaceRequest {
    /// Open a socket and add the face.
    Create(Box<FaceWish>),
    /// The face's flags, persistency or MTU have been changed in its [`crate::FaceSpec`]: the link is to follow.
    Update(FaceId),
    /// Close its socket and remove it.
    Destroy(FaceId),
}

/// A face to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceWish {
    /// To be given back.
    pub request: RequestId,
    /// The other end, canonical.
    pub remote: FaceUri,
    /// This end, where it matters.
    pub local: Option<FaceUri>,
    /// How long it lives.
    pub persistency: Persistency,
    /// What is switched on.
    pub flags: FaceFlags,
    /// Largest frame, if less than the path's is wanted.
    pub mtu: Option<usize>,
    /// See [`crate::FaceSpec`].
    pub base_congestion_interval: Option<Duration>,
    /// See [`crate::FaceSpec`].
    pub default_congestion_threshold: Option<u64>,
}

/// Why a face was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaceFailure {
    /// This transport, or this combination of ends, is not there (NFD: 406).
    Unsupported(String),
    /// The other end cannot be reached (NFD: 504).
    Unreachable(String),
    /// The system refuses (NFD: 500 or 504).
    Refused(String),
}
