//! Metrics by name: `film.goodput`, `film.client2.completion`, `links.wifi.bytes`.

use super::load::{Kind, Load};
use super::network::Network;
use super::node::Role;

/// Metrics of a load that fetches files.
const TRANSFER: [(&str, &str); 6] = [
    ("completion", "s"),
    ("goodput", "Mbit/s"),
    ("stall", "s"),
    ("pause", "s"),
    ("bytes", "B"),
    ("files", ""),
];
/// Metrics of a load of Interests.
const REQUESTS: [(&str, &str); 4] = [
    ("answered", ""),
    ("retransmissions", ""),
    ("delay", "ms"),
    ("completion", "s"),
];
/// Metrics of a load of echo requests; of the round trips.
const PINGS: [(&str, &str); 4] = [
    ("answered", ""),
    ("median", "ms"),
    ("least", "ms"),
    ("most", "ms"),
];
/// Metrics of a MobilityFirst host: the retransmitted frames of contents; of the flows that it divides the most
/// bytes that overtook a chunk, and the chunks that were overtaken by more than their bound.
const HOST: [&str; 3] = ["resent", "overtaken", "beyond"];
/// Metrics of a MobilityFirst router: the same, and the chunks of its proxy.
const ROUTER: [&str; 6] = [
    "resent",
    "overtaken",
    "beyond",
    "stored",
    "released",
    "pushed",
];
/// Metrics of a TCP proxy: the Interests and Data that it sent.
const PROXY: [&str; 2] = ["interests", "data"];
/// Metrics of a link, both directions together; and the bytes that arrived from its first end and
/// from its second.
const LINK: [(&str, &str); 7] = [
    ("bytes", "B"),
    ("forward", "B"),
    ("backward", "B"),
    ("packets", ""),
    ("lost", "packets"),
    ("dropped", "packets"),
    ("marked", "packets"),
];

/// Returns the name under which one receiver of a load is measured: the load's, followed by the
/// receiver's if there are several.
pub(super) fn prefix(network: &Network, load: &Load, receiver: usize) -> String {
    match load.to.len() {
        1 => load.name.clone(),
        _ => format!("{}.{}", load.name, network.nodes[receiver].name),
    }
}

/// Returns every metric of a run, with its unit.
pub(super) fn all(network: &Network, loads: &[Load]) -> Vec<(String, &'static str)> {
    let mut names = Vec::new();
    for load in loads {
        let metrics: &[_] = match load.kind {
            Kind::Requests(_) => &REQUESTS,
            Kind::Pings(_) => &PINGS,
            _ => &TRANSFER,
        };
        for receiver in &load.to {
            let prefix = prefix(network, load, *receiver);
            names.extend(
                metrics
                    .iter()
                    .map(|(name, unit)| (format!("{prefix}.{name}"), *unit)),
            );
        }
    }
    for node in &network.nodes {
        let metrics: &[&str] = if node.is(Role::Router) {
            &ROUTER
        } else if node.is(Role::Host) {
            &HOST
        } else if node.is(Role::TcpProxy) {
            &PROXY
        } else {
            &[]
        };
        names.extend(
            metrics
                .iter()
                .map(|metric| (format!("nodes.{}.{metric}", node.name), "")),
        );
    }
    for link in &network.links {
        names.extend(LINK.map(|(name, unit)| (format!("links.{}.{name}", link.name), unit)));
    }
    names
}

/// Returns the unit of a metric; empty for a count.
pub fn unit(name: &str) -> &'static str {
    let last = name.rsplit('.').next().unwrap_or(name);
    let table: &[_] = if name.starts_with("nodes.") {
        return "";
    } else if name.starts_with("links.") {
        &LINK
    } else {
        &TRANSFER
    };
    let known = table
        .iter()
        .chain(&REQUESTS)
        .chain(&PINGS)
        .find(|(known, _)| *known == last);
    known.map_or("", |(_, unit)| unit)
}

/// Returns true if a pattern, in which `*` stands for anything, matches a name.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|left| {
            (0..=left.len())
                .filter(|at| left.is_char_boundary(*at))
                .any(|at| matches(rest, &left[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, meant) in [
            ("film.goodput", "film.goodput", true),
            ("*.goodput", "film.goodput", true),
            ("links.*", "links.a-b.bytes", true),
            ("links.*.lost", "links.a-b.bytes", false),
            ("film", "film.goodput", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), meant, "{pattern} {name}");
        }
        assert_eq!(unit("links.a-b.lost"), "packets");
        assert_eq!(unit("film.goodput"), "Mbit/s");
    }
}
