//! Execution of commands.

use whimbrel_core::Time;
use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse, Verb};
use whimbrel_ndn_packet::Name;

use super::config::ManagementConfig;
use super::face_requests::Creations;
use super::host::FaceHost;
use super::{content_store, faces, fib, routes, strategies};
use crate::face::FaceId;
use crate::forwarder::Forwarder;

/// The context of a command.
pub(crate) struct Context<'a> {
    pub(crate) now: Time,
    /// The face that the command arrived on.
    pub(crate) from: FaceId,
    /// It arrived under `/localhop/nfd`.
    pub(crate) remote: bool,
    /// Name of the command Interest.
    pub(crate) command: &'a Name,
    pub(crate) forwarder: &'a mut Forwarder,
    pub(crate) host: &'a mut dyn FaceHost,
    pub(crate) creations: &'a mut Creations,
    pub(crate) config: &'a ManagementConfig,
    /// The prefixes that management itself serves.
    pub(crate) own_prefixes: &'a [Name],
}

impl Context<'_> {
    /// Returns the face that the parameters denote: 0 or no number is the face that the command
    /// arrived on.
    pub(crate) fn face_meant(&self, parameters: &ControlParameters) -> FaceId {
        match parameters.face_id {
            None | Some(0) => self.from,
            Some(id) => FaceId(id),
        }
    }
}

/// The outcome of a command.
pub(crate) enum Outcome {
    /// The answer.
    Now(ControlResponse),
    /// Answered when a face has been created.
    Later,
}

impl From<ControlResponse> for Outcome {
    fn from(response: ControlResponse) -> Outcome {
        Outcome::Now(response)
    }
}

/// Executes a command.
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
            format!("the router itself serves {own} and all names under it"),
        )),
    }
}
