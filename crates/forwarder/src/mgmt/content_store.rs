//! `cs/...`: the content store.

use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse, CsInfo, FLAG_CS_ADMIT, FLAG_CS_SERVE};

use super::verb::{Context, Outcome};
use crate::forwarder::Forwarder;

/// Maximum of Data that one command erases (NFD's limit): clients repeat it until the count is 0.
const MAX_ERASED: u64 = 256;

pub(crate) fn configure(context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    let store = context.forwarder.cs_mut();
    if let Some(packets) = parameters.capacity {
        // The protocol counts packets; the configured bound in octets remains in force.
        store.set_capacity(
            store.capacity(),
            usize::try_from(packets).unwrap_or(usize::MAX),
        );
    }
    store.admit = parameters.flag(FLAG_CS_ADMIT).unwrap_or(store.admit);
    store.serve = parameters.flag(FLAG_CS_SERVE).unwrap_or(store.serve);
    let info = info(context.forwarder);
    ControlResponse::success(&ControlParameters {
        capacity: Some(info.capacity),
        flags: Some(info.flags),
        ..ControlParameters::default()
    })
    .into()
}

pub(crate) fn erase(context: &mut Context<'_>, parameters: ControlParameters) -> Outcome {
    let wanted = parameters.count.unwrap_or(u64::MAX);
    if wanted == 0 {
        return ControlResponse::new(400, "Count must be positive: leave it out to erase all")
            .into();
    }
    let prefix = parameters.name.clone().unwrap_or_default();
    let erased = context
        .forwarder
        .cs_mut()
        .erase(prefix.as_ref(), wanted.min(MAX_ERASED) as usize) as u64;
    let is_cut_short = erased == MAX_ERASED && wanted > MAX_ERASED;
    ControlResponse::success(&ControlParameters {
        name: Some(prefix),
        count: Some(erased),
        capacity: is_cut_short.then_some(MAX_ERASED),
        ..ControlParameters::default()
    })
    .into()
}

pub(crate) fn info(forwarder: &Forwarder) -> CsInfo {
    let store = forwarder.cs();
    let flag = |on: bool, bit: u64| if on { bit } else { 0 };
    CsInfo {
        capacity: store.max_packets() as u64,
        flags: flag(store.admit, FLAG_CS_ADMIT) | flag(store.serve, FLAG_CS_SERVE),
        entries: store.len() as u64,
        hits: forwarder.counters().cs_hits,
        misses: forwarder.counters().cs_misses,
    }
}
