//! Loads of contents that their receivers have not requested. With `service = "multicast"` the receivers are
//! the members of a group, and each content is sent once.

use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{
    AcceptOffer, Get, LocalRequest, MembershipChange, OfferId, OfferVerdict, Publish, SendContent,
};
use whimbrel_mobilityfirst::wire::OfferUse;

use super::build::keys;
use crate::scenario::load::{Kind, Load};

/// Returns the request by which a receiver of a load joins its group.
pub(super) fn join(load: &Load) -> LocalRequest {
    LocalRequest::Join {
        admission: load.admission(),
        change: MembershipChange::Join,
    }
}

/// Returns the request by which a source sends a content of `load` to the host `receiver`.
pub(super) fn send(load: &Load, receiver: usize, request: u32, content: Publish) -> SendContent {
    let is_message = matches!(&load.kind, Kind::Push(pushes) if pushes.message);
    SendContent {
        request,
        destination: match load.is_for_group() {
            true => load.group_keys().guid(),
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
