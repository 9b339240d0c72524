//! What carries out each command.

use whimbrel_core::Time;
use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse, Verb};
use whimbrel_ndn_packet::Name;

use super::config::ManagementConfig;
use super::face_requests::Creations;
use super::host::FaceHost;
use super::{content_store, faces, fib, routes, strategies};
use crate::face::FaceId;
use crate::forwarder::Forwarder;

/// What a command works on.
pub(crate) struct Context<'a> {
    pub(crate) now: Time,
    /// The face that the command came from.
    pub(crate) from: FaceId,
    /// It came under `/localhop/nfd`.
    pub(crate) remote: bool,
    /// Name of the command Interest.
    pub(crate) command: &'a Name,
    pub(crate) forwarder: &'a mut Forwarder,
    pub(crate) host: &'a mut dyn FaceHost,
    pub(crate) creations: &'a mut Creations,
    pub(crate) config: &'a ManagementConfig,
    /// What management itself serves.
    pub(crate) own_prefixes: &'a [Name],
}

impl Context<'_> {
    /// The face that is meant: 0 and no number stand for the one that the command came from.
    pub(crate) fn face_meant(&self, parameters: &ControlParameters) -> FaceId {
        match parameters.face_id {
            None | Some(0) => self.from,
            Some(id) => FaceId(id),
        }
    }
}

/// What comes of a command.
pub(crate) enum Outcome {
    /// The answer.
    Now(ControlResponse),
    /// It is answered when a face has been created.
    Later,
}

impl From<ControlResponse> for Outcome {
    fn from(response: ControlResponse) -> Outcome {
        Outcome::Now(response)
    }
}

/// Carries a command out.
pub(crate) fn run(verb: Verb, context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    match verb {
        Verb::FacesCreate => faces::create(context, parameters),
        Verb::FacesUpdate => faces::update(context, parameters),
        Verb::FacesDestroy => faces::destroy(context, parameters),
        Verb::FibAddNextHop => fib::add_next_hop(context, parameters),
        Verb::FibRemoveNextHop => fib::remove_next_hop(context, parameters),
        Verb::RibRegister => routes::register(context, parameters),
        Verb::RibUnregister => routes::unregister(context, parameters),
        Verb::StrategyChoiceSet => strategies::set(context, parameters),
        Verb::StrategyChoiceUnset => strategies::unset(context, parameters),
        Verb::CsConfig => content_store::configure(context, parameters),
        Verb::CsErase => content_store::erase(context, parameters),
    }
}

/// Refuses changes to the prefixes that the router itself serves: a program that took them could
/// answer in its place.
pub(crate) fn refuse_own_prefix(
    context: &Context<'_>,
    prefix: &Name,
) -> Result<(), ControlResponse> {
    let is_own = |own: &Name| own.as_ref().is_prefix_of(prefix.as_ref());
    match context.own_prefixes.iter().find(|own| is_own(own)) {
        None => Ok(()),
        Some(own) => Err(ControlResponse::new(
            403,
            format!("{own} and what is under it is served by the router itself"),
        )),
    }
}
