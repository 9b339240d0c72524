//! Loads of contents that their receivers have not requested. With `service = "multicast"` the receivers are
//! the members of a group, and each content is sent once.

use whimbrel_core::Guid;
use whimbrel_gnrs::{GroupAdmission, KeyPair};
use whimbrel_mobilityfirst::local::{
    AcceptOffer, Get, LocalRequest, MembershipChange, OfferId, OfferVerdict, Publish, SendContent,
    Service,
};
use whimbrel_mobilityfirst::wire::OfferUse;

use super::build::keys;
use crate::scenario::load::{Kind, Load};

/// Returns true if a load is for a group.
pub(super) fn is_for_group(load: &Load) -> bool {
    matches!(load.kind, Kind::Push(_)) && load.delivery.service == Service::Multicast
}

/// Returns the keys of the group of a load's receivers.
fn group(load: &Load) -> KeyPair {
    KeyPair::from_secret(blake3::hash(load.name.as_bytes()).as_bytes())
}

/// Returns the request by which a receiver joins it.
pub(super) fn join(load: &Load) -> LocalRequest {
    LocalRequest::Join {
        admission: GroupAdmission::sign(&group(load), None, u64::MAX),
        change: MembershipChange::Join,
    }
}

/// Returns the request by which a source sends a content of `load` to the host `receiver`.
pub(super) fn send(load: &Load, receiver: usize, request: u32, content: Publish) -> SendContent {
    let is_message = matches!(&load.kind, Kind::Push(pushes) if pushes.message);
    SendContent {
        request,
        destination: match is_for_group(load) {
            true => group(load).guid(),
            false => keys(receiver).guid(),
        },
        options: load.options(),
        proposed: match is_message {
            true => OfferUse::Note,
            false => OfferUse::File,
        },
        content,
    }
}

/// Returns the request by which a receiver takes an offer.
pub(super) fn accept(id: OfferId, get: Get) -> LocalRequest {
    LocalRequest::Accept(AcceptOffer { id, get })
}

/// Returns the request by which it says that it has the content.
pub(super) fn received(id: OfferId, content: Guid) -> LocalRequest {
    LocalRequest::Settle {
        id,
        content,
        verdict: OfferVerdict::Received,
    }
}
