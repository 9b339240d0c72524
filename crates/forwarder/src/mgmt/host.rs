//! What management needs of the program around the forwarder.

use super::face_requests::FaceRequest;
use crate::face::FaceId;

/// The program around the forwarder, which has the sockets: a daemon, or a simulation.
pub trait FaceHost {
    /// What the link of a face has counted; nothing if there is no such link.
    fn link_counters(&self, face: FaceId) -> LinkCounters;

    /// Does what management wishes, now or once the forwarder has returned. A
    /// [`FaceRequest::Create`] is to be answered with [`crate::Forwarder::face_created`].
    fn request(&mut self, request: FaceRequest);
}

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
