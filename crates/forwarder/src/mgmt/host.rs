//! The interface between management and the program around the forwarder.

use super::face_requests::FaceRequest;
use crate::face::FaceId;

/// The program around the forwarder, which owns the sockets: a daemon, or a simulation.
pub trait FaceHost {
    /// Returns the counters of a face's link; all zero if it has no link.
    fn link_counters(&self, face: FaceId) -> LinkCounters;

    /// Accepts a request of management, to be carried out now or after the forwarder has returned.
    /// Answer a [`FaceRequest::Create`] with [`crate::Forwarder::face_created`].
    fn request(&mut self, request: FaceRequest);
}

/// The counters of one face's link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames received.
    pub in_packets: u64,
    /// Octets received.
    pub in_bytes: u64,
    /// Frames sent.
    pub out_packets: u64,
    /// Octets sent.
    pub out_bytes: u64,
    /// Further counters by name: retransmissions, recoveries, drops by reason.
    pub details: Vec<(&'static str, u64)>,
}
