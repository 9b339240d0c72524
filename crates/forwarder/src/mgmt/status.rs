//! `status/general`, and datasets that NFD lacks: `whimbrel/counters`, `whimbrel/links`,
//! `whimbrel/strategies`.

use serde_json::{Map, Value, json};
use whimbrel_core::Time;
use whimbrel_ndn_mgmt::ForwarderStatus;

use super::{LinkCounters, ManagementCounters};
use crate::face::FaceId;
use crate::forwarder::Forwarder;
use crate::strategy::StrategyKinds;

pub(crate) fn general(forwarder: &Forwarder, now: Time, version: &str) -> ForwarderStatus {
    let counters = forwarder.counters();
    let (fib, pit) = (forwarder.fib().len() as u64, forwarder.pit().len() as u64);
    ForwarderStatus {
        nfd_version: version.to_owned(),
        start_timestamp: forwarder.wall().unix_millis(Time::ZERO),
        current_timestamp: forwarder.wall().unix_millis(now),
        // There is no name tree: NFD's would hold the entries of these tables.
        name_tree_entries: fib + pit,
        fib_entries: fib,
        pit_entries: pit,
        measurements_entries: forwarder.strategies().measurements() as u64,
        cs_entries: forwarder.cs().len() as u64,
        in_interests: counters.in_interests,
        in_data: counters.in_data,
        in_nacks: counters.in_nacks,
        out_interests: counters.out_interests,
        out_data: counters.out_data,
        out_nacks: counters.out_nacks,
        satisfied_interests: counters.satisfied,
        unsatisfied_interests: counters.unsatisfied,
    }
}

/// Sizes of tables, drops by reason and other counters, as one JSON object.
pub(crate) fn counters(
    forwarder: &Forwarder,
    now: Time,
    version: &str,
    management: &ManagementCounters,
) -> Value {
    let status = general(forwarder, now, version);
    let counters = forwarder.counters();
    let drops: Map<String, Value> = counters
        .drops()
        .map(|(reason, count)| (reason.to_owned(), count.into()))
        .collect();
    json!({
        "version": status.nfd_version,
        "start": status.start_timestamp,
        "now": status.current_timestamp,
        "faces": forwarder.faces().count(),
        "fib": status.fib_entries,
        "rib": forwarder.rib().len(),
        "pages": {
            "routes": forwarder.rib().page_routes(),
            "displaced": forwarder.rib().displaced_page_routes(),
        },
        "pit": status.pit_entries,
        "measurements": status.measurements_entries,
        "in": { "interests": counters.in_interests, "data": counters.in_data, "nacks": counters.in_nacks },
        "out": { "interests": counters.out_interests, "data": counters.out_data, "nacks": counters.out_nacks },
        "satisfied": counters.satisfied,
        "unsatisfied": counters.unsatisfied,
        "marked": counters.marked,
        "cs": {
            "entries": status.cs_entries,
            "bytes": forwarder.cs().bytes(),
            "capacity_bytes": forwarder.cs().capacity(),
            "hits": counters.cs_hits,
            "misses": counters.cs_misses,
        },
        "management": {
            "commands": management.commands,
            "failures": management.failures,
            "refusals": management.refusals,
            "wrong_digests": management.wrong_digests,
            "datasets": management.datasets,
            "ignored": management.ignored,
        },
        "drops": drops,
    })
}

/// Returns the counters of each face's link, as one JSON array.
pub(crate) fn links(forwarder: &Forwarder, link: &dyn Fn(FaceId) -> LinkCounters) -> Value {
    forwarder
        .faces()
        .map(|face| {
            let counters = link(face.id());
            let details: Map<String, Value> = counters
                .details
                .iter()
                .map(|(name, count)| ((*name).to_owned(), (*count).into()))
                .collect();
            json!({
                "face": face.id().0,
                "remote": face.spec.remote_uri,
                "local": face.spec.local_uri,
                "up": face.up,
                "origin": face.spec.web_origin,
                "in": { "packets": counters.in_packets, "bytes": counters.in_bytes },
                "out": { "packets": counters.out_packets, "bytes": counters.out_bytes },
                "link": details,
            })
        })
        .collect()
}

/// Returns the available strategies, as one JSON array of names.
pub(crate) fn strategies(kinds: StrategyKinds) -> Value {
    kinds
        .names()
        .iter()
        .map(|name| Value::from(name.to_string()))
        .collect()
}
