//! `proxies` of a load over TCP: the two TCP/ICN proxies that carry its connections over NDN
//! [TCP/ICN §4.1], Fig. 10b.

use std::collections::BTreeMap;

use serde::Deserialize;
use whimbrel_ndn_packet::Name;
use whimbrel_node::config::key_path::KeyPath;
use whimbrel_tcp_proxy::{DuplexPolicy, NotAPolicy, Protocol};

use super::document::Document;
use super::event::Action;
use super::fault::{Fault, Refusal, hint};
use super::file::Plan;
use super::load::{Load, Plane};
use super::network::{Network, node_at};
use super::node::Role;

/// `proxies = { client = "a", server = "b", protocol = "unreliable", duplex = "2920", paths = 2 }`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    client: String,
    server: String,
    protocol: Option<String>,
    duplex: Option<String>,
    paths: Option<usize>,
}

/// The proxies of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proxies {
    /// On the side of the receivers, which open the connections.
    pub client: usize,
    /// On the side of the node that has the content.
    pub server: usize,
    /// The protocol between them.
    pub protocol: Protocol,
    /// What the scenario says of both.
    pub tuning: Tuning,
}

/// Options of a proxy, which are the same for all its loads; `None` for the default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tuning {
    /// The policy where both ends send.
    pub duplex: Option<DuplexPolicy>,
    /// Paths to its peer that connections share, at most.
    pub paths: Option<usize>,
}

impl Section {
    pub(super) fn read(
        &self,
        document: &Document<'_>,
        network: &Network,
        at: &KeyPath,
    ) -> Result<Proxies, Fault> {
        let proxy = |key: &'static str, name: &str| {
            let node = node_at(document, network, &at.key(key), name)?;
            if network.nodes[node].is(Role::TcpProxy) {
                return Ok(node);
            }
            let message = format!("'{name}' lacks the role '{}'", Role::TcpProxy.name());
            Err(document.fault(&at.key(key), message))
        };
        let (client, server) = (
            proxy("client", &self.client)?,
            proxy("server", &self.server)?,
        );
        if client == server {
            let message = "the proxies are two nodes: between them there is NDN";
            return Err(document.fault(&at.key("server"), message));
        }
        let text = self.protocol.as_deref();
        let text = text.unwrap_or(Protocol::default().name());
        let found = Protocol::ALL.into_iter().find(|it| it.name() == text);
        let protocol = found.ok_or_else(|| {
            let near = hint(text, Protocol::ALL.map(Protocol::name));
            document.fault(
                &at.key("protocol"),
                format!("there is no protocol '{text}'{near}"),
            )
        })?;
        let duplex = self.duplex.as_deref().map(str::parse).transpose();
        let duplex = duplex.map_err(|fault: NotAPolicy| {
            document.fault(&at.key("duplex"), format!("expected {fault}"))
        })?;
        Ok(Proxies {
            client,
            server,
            protocol,
            tuning: Tuning {
                duplex,
                paths: self.paths,
            },
        })
    }
}

/// Refuses loads whose packets could not be told from each other: a proxy knows a load by the
/// addresses of its nodes.
pub(super) fn check(
    document: &Document<'_>,
    network: &Network,
    loads: &[Load],
) -> Result<(), Fault> {
    let mut pairs: BTreeMap<(usize, usize), bool> = BTreeMap::new();
    let mut parts: BTreeMap<(usize, usize), (usize, Protocol)> = BTreeMap::new();
    let mut tunings: BTreeMap<usize, Tuning> = BTreeMap::new();
    for load in loads.iter().filter(|load| load.plane == Plane::Tcp) {
        let proxies = load.proxies.iter();
        for (proxy, tuning) in
            proxies.flat_map(|it| [(it.client, it.tuning), (it.server, it.tuning)])
        {
            let known = *tunings.entry(proxy).or_insert(tuning);
            if known != tuning {
                let name = &network.nodes[proxy].name;
                let message = format!("the proxy on '{name}' has the same options for all loads");
                let at = KeyPath::from(["loads", &load.name, "proxies"]);
                let key = match known.duplex == tuning.duplex {
                    true => "paths",
                    false => "duplex",
                };
                return Err(document.fault(&at.key(key), message));
            }
        }
        for to in &load.to {
            let pair = (load.from.min(*to), load.from.max(*to));
            let carried = load.proxies.is_some();
            let mut same = *pairs.entry(pair).or_insert(carried) == carried;
            for (proxy, distant, peer, protocol) in
                load.proxies.iter().flat_map(|it| it.ways(load.from, *to))
            {
                same &=
                    *parts.entry((proxy, distant)).or_insert((peer, protocol)) == (peer, protocol);
            }
            if !same {
                let names = [load.from, *to].map(|node| network.nodes[node].name.as_str());
                let message = format!(
                    "all loads over TCP of '{}' and of '{}' go through the same proxies with the same protocol, or none does",
                    names[0], names[1]
                );
                return Err(document.fault(&KeyPath::from(["loads", &load.name]), message));
            }
        }
    }
    Ok(())
}

impl Proxies {
    /// Returns for each of the two proxies: the proxy, the node that is distant for it, the proxy of
    /// that node, and the protocol.
    const fn ways(self, from: usize, to: usize) -> [(usize, usize, usize, Protocol); 2] {
        [
            (self.client, from, self.server, self.protocol),
            (self.server, to, self.client, self.protocol),
        ]
    }
}

/// A distant node of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distant {
    /// Its proxy.
    pub(super) proxy: usize,
    /// A near node that talks to it.
    pub(super) near: usize,
    /// The protocol for it.
    pub(super) protocol: Protocol,
}

/// A proxy's part of a scenario, in nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Part {
    /// Near nodes whose programs open connections, each with a distant node.
    pub(super) clients: BTreeMap<usize, usize>,
    /// Near nodes that accept connections, each with a distant node.
    pub(super) servers: BTreeMap<usize, usize>,
    /// Distant nodes.
    pub(super) distant: BTreeMap<usize, Distant>,
    /// What the scenario says of it.
    pub(super) tuning: Tuning,
}

/// Returns the part of the proxy on `node`.
pub(super) fn part(loads: &[Load], node: usize) -> Part {
    let mut part = Part::default();
    let carried = loads.iter().filter_map(|load| Some((load, load.proxies?)));
    for (load, proxies) in carried {
        if proxies.client == node || proxies.server == node {
            part.tuning = proxies.tuning;
        }
        for to in &load.to {
            if proxies.client == node {
                part.clients.insert(*to, load.from);
            }
            if proxies.server == node {
                part.servers.insert(load.from, *to);
            }
            for (proxy, distant, peer, protocol) in proxies.ways(load.from, *to) {
                let near = if distant == *to { load.from } else { *to };
                let known = Distant {
                    proxy: peer,
                    near,
                    protocol,
                };
                if proxy == node {
                    part.distant.insert(distant, known);
                }
            }
        }
    }
    part
}

/// Returns true if packets from node `a` to node `b` pass proxies.
pub(super) fn carried(loads: &[Load], a: usize, b: usize) -> bool {
    let mut carried = loads.iter().filter(|load| load.proxies.is_some());
    carried.any(|load| {
        load.from == a && load.to.contains(&b) || load.from == b && load.to.contains(&a)
    })
}

/// Returns what no back end can do.
pub(super) fn refusal(plan: &Plan) -> Option<Refusal> {
    plan.timeline.iter().find_map(|timed| {
        let Action::Crash(node) = timed.action else {
            return None;
        };
        let known = &plan.network.nodes[node];
        let what = format!("crash '{}' with its proxy", known.name);
        known
            .is(Role::TcpProxy)
            .then(|| Refusal::event(timed.event, "crash", what))
    })
}

/// Returns the name of the proxy on the node of this name.
pub(super) fn prefix(node: &str) -> Name {
    let base = Name::root().child_generic(b"tcp-proxy");
    base.child_generic(node.as_bytes())
}
