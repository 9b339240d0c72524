//! The nodes and links of a scenario: those written out, and those of its graph.

use serde::Deserialize;
use whimbrel_core::units;
use whimbrel_node::config::key_path::KeyPath;

use super::document::{Document, empty_table, table_value};
use super::fault::{Fault, Faults, Found, hint};
use super::graph::{Edge, Graph, Shape};
use super::link::{Layers, Link};
use super::node::{Node, NodeSettings, Role, Roles, read, settings};
use super::sections::Or;

/// A network without faults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// In the order of the file; a graph's nodes come first.
    pub nodes: Vec<Node>,
    /// In the order of the file; a graph's links come first.
    pub links: Vec<Link>,
}

impl Network {
    /// Returns the node of that name.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Returns the link of that name.
    pub fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name)
    }

    /// Returns the links at a node, each with the node at its other end.
    pub fn at(&self, node: usize) -> impl Iterator<Item = (usize, usize)> {
        let links = self.links.iter().enumerate();
        links.filter_map(move |(index, link)| Some((index, link.other_end(node)?)))
    }

    /// Returns the routers that a host attaches to: the ones that it names, or those at its links.
    pub fn access_routers(&self, host: usize) -> Vec<usize> {
        match self.nodes[host].routers.as_slice() {
            [] => {
                let peers = self.at(host).map(|(_, peer)| peer);
                peers
                    .filter(|peer| self.nodes[*peer].is(Role::Router))
                    .collect()
            }
            named => named.to_vec(),
        }
    }

    /// Returns true if the link between two neighbours is one of MobilityFirst: between a host and
    /// its router, or between routers.
    pub fn attach(&self, a: usize, b: usize) -> bool {
        let [first, second] = [&self.nodes[a], &self.nodes[b]];
        let routed = |host: &Node| host.is(Role::Host) && host.routers.is_empty();
        match (first.is(Role::Router), second.is(Role::Router)) {
            (true, true) => true,
            (true, false) => routed(second),
            (false, true) => routed(first),
            (false, false) => false,
        }
    }

    /// Returns the largest IP packet that every link carries, in bytes.
    pub fn mtu(&self) -> usize {
        let mtus = self.links.iter().map(|link| link.mtu);
        mtus.min().unwrap_or(super::link::ETHERNET)
    }

    /// Returns the nodes with a role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = usize> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(move |(index, node)| node.is(role).then_some(index))
    }
}

/// `[graph]` beside its shape.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphSection {
    /// The role of every node.
    role: Roles,
    /// The role of nodes with one link, instead.
    #[serde(default)]
    leaf_role: Option<Roles>,
    /// The beginning of the names of nodes that have none.
    #[serde(default = "prefix")]
    prefix: String,
    /// The graph's own seed, so that the graph is the same in all runs; by default the scenario's.
    #[serde(default)]
    seed: Option<u64>,
}

fn prefix() -> String {
    "n".to_owned()
}

const GRAPH_OWN: [&str; 4] = ["role", "leaf_role", "prefix", "seed"];

/// Reads `nodes`, `graph`, `links` and `defaults`.
pub(super) fn network(document: &Document<'_>, seed: u64) -> Result<Network, Faults> {
    let mut found = Found::default();
    let mut network = Network::default();
    let graph = match document.get(&KeyPath::from(["graph"])) {
        Some(_) => found.keep(generated(document, seed)),
        None => None,
    };
    // A mistyped default is reported even if nothing uses it.
    let defaults = known_defaults(document).and_then(|()| {
        let at = KeyPath::from(["defaults", "node"]);
        settings(document, &at, empty_table())
    });
    let defaults: NodeSettings = found.keep(defaults).unwrap_or_default();
    if let Some((section, graph)) = &graph {
        let degrees = graph.neighbours();
        for (name, others) in graph.nodes.iter().zip(&degrees) {
            let leaf = section.leaf_role.as_ref().filter(|_| others.len() == 1);
            network.nodes.push(Node {
                name: name.clone(),
                roles: leaf.unwrap_or(&section.role).clone(),
                settings: defaults.clone(),
                routers: Vec::new(),
                preference: Vec::new(),
            });
        }
    }
    for name in document.keys(&KeyPath::from(["nodes"])) {
        let Some(node) = found.keep(read(document, &name)) else {
            continue;
        };
        // A node that a graph has made can be described further.
        match network.node(&name) {
            Some(known) => network.nodes[known] = node,
            None => network.nodes.push(node),
        }
    }
    let nodes = network.nodes.clone();
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let node = |name: &str| names.iter().position(|known| *known == name);
    let mut all = Found::default();
    let mut base = Layers::new();
    all.keep(base.lay(document, &KeyPath::from(["defaults", "link"])));
    let written = document.keys(&KeyPath::from(["links"]));
    let edges = graph.iter().flat_map(|(_, graph)| named_edges(graph));
    let edges: Vec<(String, Edge)> = edges.collect();
    for (name, edge) in &edges {
        let mut layers = base.clone();
        all.keep(layers.lay(document, &KeyPath::from(["graph", "link"])));
        if let Some(rate) = edge.rate {
            layers.set("rate", units::format_rate(rate));
        }
        if let Some(delay) = edge.delay {
            layers.set("delay", units::format_duration(delay));
        }
        all.keep(layers.lay(document, &KeyPath::from(["links", name])));
        let link = all.keep(layers.read(document, name, Some(edge.ends), &node, &names));
        network.links.extend(link.map(|mut link| {
            for way in [&mut link.forward, &mut link.backward] {
                way.outages.extend_from_slice(&edge.outages);
                way.changes.extend_from_slice(&edge.changes);
            }
            link.cost = link.cost.or(edge.cost);
            link
        }));
    }
    for name in written {
        if edges.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let mut layers = base.clone();
        all.keep(layers.lay(document, &KeyPath::from(["links", &name])));
        let link = all.keep(layers.read(document, &name, None, &node, &names));
        network.links.extend(link);
    }
    if network.nodes.is_empty() && graph.is_none() {
        let message = "a scenario needs nodes: [nodes] and [links], or [graph]";
        found.add(document.fault(&KeyPath::default(), message));
    }
    found.keep_all(attach_hosts(document, &mut network));
    // Otherwise links would be blamed for nodes that could not be read.
    found.or(Some(()))?;
    all.or(Some(network))
}

/// Finds the routers that hosts name.
fn attach_hosts(document: &Document<'_>, network: &mut Network) -> Result<(), Faults> {
    let mut found = Found::default();
    for index in 0..network.nodes.len() {
        let named = found.keep_all(named_routers(document, network, index));
        network.nodes[index].routers = named.unwrap_or_default();
        let preferred = found.keep_all(preferred_links(document, network, index));
        network.nodes[index].preference = preferred.unwrap_or_default();
    }
    found.or(Some(()))
}

/// Returns the routers that a node's key `router` names.
fn named_routers(
    document: &Document<'_>,
    network: &Network,
    node: usize,
) -> Result<Vec<usize>, Faults> {
    let known = &network.nodes[node];
    let Some(names) = known.settings.router.as_ref().and_then(Or::value) else {
        return Ok(Vec::new());
    };
    let own = KeyPath::from(["nodes", &known.name, "router"]);
    let is_own = document.get(&own).is_some();
    if !known.is(Role::Host) {
        // The default is for hosts.
        if !is_own {
            return Ok(Vec::new());
        }
        let message = format!(
            "'{}' is not a host, so it attaches to no router",
            known.name
        );
        return Err(document.fault(&own, message).into());
    }
    let at = match is_own {
        true => own,
        false => KeyPath::from(["defaults", "node", "router"]),
    };
    let mut found = Found::default();
    let mut routers = Vec::new();
    for (at, name) in names.at(&at) {
        let Some(router) = found.keep(node_at(document, network, &at, &name)) else {
            continue;
        };
        if !network.nodes[router].is(Role::Router) {
            found.add(document.fault(&at, format!("'{name}' is not a router")));
        } else if routers.contains(&router) {
            found.add(document.fault(&at, format!("'{name}' is named twice")));
        } else {
            routers.push(router);
        }
    }
    found.or(Some(routers))
}

/// Returns the links that a host's key `preference` names.
fn preferred_links(
    document: &Document<'_>,
    network: &Network,
    node: usize,
) -> Result<Vec<usize>, Faults> {
    let known = &network.nodes[node];
    let at = KeyPath::from(["nodes", &known.name, "preference"]);
    let mut found = Found::default();
    let mut links = Vec::new();
    if !known.settings.preference.is_empty() && !known.is(Role::Host) {
        let message = format!("'{}' is not a host, so it prefers no link", known.name);
        return Err(document.fault(&at, message).into());
    }
    for (index, name) in known.settings.preference.iter().enumerate() {
        let at = at.index(index);
        let Some(link) = found.keep(link_at(document, network, &at, name)) else {
            continue;
        };
        if network.links[link].other_end(node).is_none() {
            let message = format!("link '{name}' is not at '{}'", known.name);
            found.add(document.fault(&at, message));
        } else if links.contains(&link) {
            found.add(document.fault(&at, format!("'{name}' is named twice")));
        } else {
            links.push(link);
        }
    }
    found.or(Some(links))
}

/// Refuses defaults that no part of a scenario uses.
fn known_defaults(document: &Document<'_>) -> Result<(), Fault> {
    const KNOWN: [&str; 2] = ["link", "node"];
    let at = KeyPath::from(["defaults"]);
    let keys = document.keys(&at);
    let odd = keys.iter().find(|key| !KNOWN.contains(&key.as_str()));
    odd.map_or(Ok(()), |odd| {
        let message = format!("there are no defaults of '{odd}'{}", hint(odd, KNOWN));
        Err(document.fault(&at.key(odd), message))
    })
}

fn generated(document: &Document<'_>, seed: u64) -> Result<(GraphSection, Graph), Fault> {
    let path = KeyPath::from(["graph"]);
    let Some(table) = document.table(&path) else {
        return Err(document.fault(&path, "a graph is a table: [graph]"));
    };
    let (mut own, mut shape) = (empty_table(), empty_table());
    for (key, value) in table {
        match key.get_ref().as_ref() {
            known if GRAPH_OWN.contains(&known) => own.insert(key.clone(), value.clone()),
            "link" => None,
            _ => shape.insert(key.clone(), value.clone()),
        };
    }
    let span = document.get(&path).map_or(0..0, toml::Spanned::span);
    let also: Vec<&str> = GRAPH_OWN.into_iter().chain(["link"]).collect();
    let shape: Shape = document.decode(table_value(span.clone(), shape), &also)?;
    let section: GraphSection = document.decode(table_value(span, own), &[])?;
    let seed = section.seed.unwrap_or(seed);
    let graph = shape
        .build(&section.prefix, document.folder(), seed)
        .map_err(|(key, why)| match key {
            "" => document.fault(&path, why),
            key => document.fault(&path.key(key), why),
        })?;
    Ok((section, graph))
}

/// Returns links named after their ends, `a-b`; parallel ones `a-b-2` and so on.
fn named_edges(graph: &Graph) -> Vec<(String, Edge)> {
    let mut named: Vec<(String, Edge)> = Vec::with_capacity(graph.edges.len());
    let mut times = std::collections::BTreeMap::new();
    for edge in &graph.edges {
        let (a, b) = edge.ends;
        let name = format!("{}-{}", graph.nodes[a], graph.nodes[b]);
        let count = times.entry((a.min(b), a.max(b))).or_insert(0usize);
        *count += 1;
        let name = match count {
            1 => name,
            count => format!("{name}-{count}"),
        };
        named.push((name, edge.clone()));
    }
    named
}

/// Returns the node that `path` names, or a fault that lists the existing ones.
pub(super) fn node_at(
    document: &Document<'_>,
    network: &Network,
    path: &KeyPath,
    name: &str,
) -> Result<usize, Fault> {
    network.node(name).ok_or_else(|| {
        let known = network.nodes.iter().map(|node| node.name.as_str());
        document.fault(
            path,
            format!("there is no node '{name}'{}", hint(name, known)),
        )
    })
}

/// Returns the link that `path` names, or a fault that lists the existing ones.
pub(super) fn link_at(
    document: &Document<'_>,
    network: &Network,
    path: &KeyPath,
    name: &str,
) -> Result<usize, Fault> {
    network.link(name).ok_or_else(|| {
        let known = network.links.iter().map(|link| link.name.as_str());
        document.fault(
            path,
            format!("there is no link '{name}'{}", hint(name, known)),
        )
    })
}
