//! `fib/...`: next hops set by commands, and the dataset.

use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse, FibEntry, NextHopRecord};

use super::verb::{Context, Outcome, refuse_own_prefix};
use crate::forwarder::Forwarder;

pub(crate) fn add_next_hop(context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    let face = context.face_meant(&parameters);
    let prefix = parameters.name.clone().unwrap_or_default();
    let cost = parameters.cost.unwrap_or(0);
    if let Err(refusal) = refuse_own_prefix(context, &prefix) {
        return refusal.into();
    }
    if context.forwarder.face(face).is_none() {
        return no_face(face.0).into();
    }
    let most = context.config.fib_entries;
    let is_new = context.forwarder.fib().next_hops(prefix.as_ref()).is_none();
    if is_new && context.forwarder.fib().len() >= most {
        return ControlResponse::new(503, format!("the FIB has {most} prefixes, its maximum"))
            .into();
    }
    if !context.forwarder.rib().is_page(face) {
        context.forwarder.displace_pages(&prefix);
    }
    match context
        .forwarder
        .fib_mut()
        .add_next_hop(prefix.as_ref(), face, cost)
    {
        Err(error) => ControlResponse::new(414, error.to_string()).into(),
        Ok(()) => ControlResponse::success(&ControlParameters {
            name: Some(prefix),
            face_id: Some(face.0),
            cost: Some(cost),
            ..ControlParameters::default()
        })
        .into(),
    }
}

pub(crate) fn remove_next_hop(context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    let face = context.face_meant(&parameters);
    let prefix = parameters.name.clone().unwrap_or_default();
    if let Err(refusal) = refuse_own_prefix(context, &prefix) {
        return refusal.into();
    }
    // Removing a next hop that does not exist succeeds, as the protocol requires.
    context
        .forwarder
        .fib_mut()
        .remove_next_hop(prefix.as_ref(), face);
    let face_id = Some(face.0);
    ControlResponse::success(&ControlParameters {
        name: Some(prefix),
        face_id,
        ..ControlParameters::default()
    })
    .into()
}

pub(crate) fn no_face(face: u64) -> ControlResponse {
    ControlResponse::new(410, format!("face {face} does not exist: see faces/list"))
}

pub(crate) fn list(forwarder: &Forwarder) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, hops) in forwarder.fib().entries() {
        let next_hops = hops
            .iter()
            .map(|hop| NextHopRecord {
                face_id: hop.face.0,
                cost: hop.cost,
            })
            .collect();
        FibEntry { name, next_hops }.encode(&mut out);
    }
    out
}
