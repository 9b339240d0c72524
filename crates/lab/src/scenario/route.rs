//! Routes: derived from the links, or given.

use std::collections::BTreeMap;

use pathfinding::directed::dijkstra::{dijkstra, dijkstra_all};
use pathfinding::directed::yen::yen;
use serde::Deserialize;
use whimbrel_node::config::key_path::KeyPath;
use whimbrel_sim::link::Rate;

use super::document::Document;
use super::fault::{Faults, Found};
use super::load::{Load, Plane};
use super::network::{Network, node_at};
use super::node::Role;

/// The paths that become routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// One next hop: that of the shortest path; among equal ones the first named link.
    #[default]
    Shortest,
    /// Every next hop of a shortest path.
    Equal,
    /// The next hops of the `k` shortest paths.
    KShortest,
}

/// The length of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// The sum of one-way delays; among equal ones the fewest hops.
    #[default]
    Delay,
    /// The number of links.
    Hops,
    /// The sum of the times of a bit at each link's rate.
    Rate,
    /// The sum of the links' `cost`, by default 1.
    Cost,
}

/// `[routes]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Section {
    choose: Choice,
    by: Weight,
    k: Option<usize>,
    given: Vec<GivenRoute>,
}

/// `given = [{ path = ["a", "b", "c"] }]`: the route of `a` and `b` towards `c`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenRoute {
    path: Vec<String>,
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The link to it.
    pub link: usize,
    /// The node at its other end.
    pub to: usize,
    /// The cost of the whole path by it.
    pub cost: u64,
}

/// Returns each next node once, with its preference as in a static route: equal for equal costs,
/// lower for lower ones. `hops` are sorted, best first.
pub(super) fn preferences(hops: &[Hop]) -> Vec<(usize, u16)> {
    let mut nodes: Vec<(usize, u16)> = Vec::new();
    let mut costs: Vec<u64> = hops.iter().map(|hop| hop.cost).collect();
    costs.dedup();
    for hop in hops {
        let rank = costs.partition_point(|cost| *cost < hop.cost);
        if nodes.iter().all(|(node, _)| *node != hop.to) {
            nodes.push((hop.to, u16::try_from(rank).unwrap_or(u16::MAX)));
        }
    }
    nodes
}

/// A path through a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// From the first node to the last.
    pub nodes: Vec<usize>,
    /// The links between them.
    pub links: Vec<usize>,
    /// The sum of the links' weights.
    pub cost: u64,
}

/// The rule of deriving routes, and the given ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routes {
    choice: Choice,
    weight: Weight,
    k: usize,
    given: Vec<Path>,
}

impl Routes {
    /// Returns derived routes of one kind; `k` is for [`Choice::KShortest`].
    pub fn derived(choice: Choice, weight: Weight, k: usize) -> Routes {
        Routes {
            choice,
            weight,
            k,
            ..Routes::default()
        }
    }

    /// Returns for each node the next hops towards `destination`, best first; none at the
    /// destination itself and where no path leads. Paths pass only through nodes with the role
    /// `through`.
    pub fn towards(&self, network: &Network, destination: usize, through: Role) -> Vec<Vec<Hop>> {
        let net = View::new(network, self.weight, Some(through));
        let distances = net.distances(destination);
        let mut all: Vec<Vec<Hop>> = (0..network.nodes.len())
            .map(|node| match self.choice {
                _ if node == destination => Vec::new(),
                Choice::Shortest => net.next_hops(node, destination, &distances, 1),
                Choice::Equal => net.next_hops(node, destination, &distances, usize::MAX),
                Choice::KShortest => first_hops(&net.paths(node, destination, self.k)),
            })
            .collect();
        // Several given paths through a node are several next hops.
        let mut given_hops: Vec<Vec<Hop>> = vec![Vec::new(); all.len()];
        let given = self.given.iter();
        for path in given.filter(|path| path.nodes.last() == Some(&destination)) {
            for (hop, link) in path.nodes.windows(2).zip(&path.links) {
                given_hops[hop[0]].push(Hop {
                    link: *link,
                    to: hop[1],
                    cost: 0,
                });
            }
        }
        for (hops, mut given) in all.iter_mut().zip(given_hops) {
            given.sort_by_key(|hop| hop.link);
            given.dedup_by_key(|hop| hop.link);
            if !given.is_empty() {
                *hops = given;
            }
        }
        all
    }

    /// Returns for each node the next hops towards any of these, each at its lowest cost.
    pub fn towards_any(
        &self,
        network: &Network,
        destinations: impl Iterator<Item = usize>,
        through: Role,
    ) -> Vec<Vec<Hop>> {
        let mut all: Vec<Vec<Hop>> = vec![Vec::new(); network.nodes.len()];
        for destination in destinations {
            let hops = self.towards(network, destination, through);
            for (known, hops) in all.iter_mut().zip(hops) {
                known.extend(hops);
            }
        }
        for hops in &mut all {
            hops.sort_by_key(|hop| (hop.link, hop.cost));
            hops.dedup_by_key(|hop| hop.link);
            hops.sort_by_key(|hop| hop.cost);
        }
        all
    }

    /// Returns true if requests of a load's receiver can reach its source.
    pub(super) fn connect(&self, network: &Network, load: &Load, receiver: usize) -> bool {
        let Some(passes) = load.plane.passes() else {
            return true;
        };
        if load.plane != Plane::MobilityFirst {
            return !self.towards(network, load.from, passes)[receiver].is_empty();
        }
        let sources = network.access_routers(load.from);
        let reached = |first: usize| {
            let leads = |last: &usize| {
                first == *last || !self.towards(network, *last, passes)[first].is_empty()
            };
            sources.iter().any(leads)
        };
        network.access_routers(receiver).into_iter().any(reached)
    }
}

/// Returns up to `k` loopless paths, shortest first.
pub fn shortest_paths(
    network: &Network,
    weight: Weight,
    from: usize,
    to: usize,
    k: usize,
) -> Vec<Path> {
    View::new(network, weight, None).paths(from, to, k)
}

fn first_hops(paths: &[Path]) -> Vec<Hop> {
    let mut hops: Vec<Hop> = Vec::new();
    for path in paths {
        let (Some(to), Some(link)) = (path.nodes.get(1), path.links.first()) else {
            continue;
        };
        if hops.iter().all(|known| known.link != *link) {
            hops.push(Hop {
                link: *link,
                to: *to,
                cost: path.cost,
            });
        }
    }
    hops
}

/// A network as a search sees it. Its vertices are the nodes, and after them both directions of
/// each link, so that parallel links make different paths.
struct View<'a> {
    network: &'a Network,
    weight: Weight,
    /// The role that a path may pass through; `None` for any role that forwards.
    through: Option<Role>,
    links: Vec<Vec<(usize, usize)>>,
}

impl<'a> View<'a> {
    fn new(network: &'a Network, weight: Weight, through: Option<Role>) -> View<'a> {
        let mut links = vec![Vec::new(); network.nodes.len()];
        for (link, known) in network.links.iter().enumerate() {
            let (one, other) = known.ends;
            links[one].push((link, other));
            links[other].push((link, one));
        }
        View {
            network,
            weight,
            through,
            links,
        }
    }

    /// Returns the cost of leaving `node` by `link`; never 0, so that every loop has a cost.
    fn cost(&self, node: usize, link: usize) -> u64 {
        let known = &self.network.links[link];
        let spec = known.from(node);
        match self.weight {
            Weight::Delay => u64::try_from(spec.delay.as_nanos())
                .unwrap_or(u64::MAX / 1_000_000)
                .saturating_add(1),
            Weight::Hops => 1,
            Weight::Cost => known.cost.unwrap_or(1).max(1),
            Weight::Rate => match spec.rate {
                Rate::Fixed(rate) => (1_000_000_000_000 / rate.max(1)).max(1),
                _ => 1,
            },
        }
    }

    fn passes(&self, node: usize, end: usize) -> bool {
        let known = &self.network.nodes[node];
        node == end || self.through.map_or(known.forwards(), |role| known.is(role))
    }

    /// Returns the distance of every node from `destination`.
    fn distances(&self, destination: usize) -> BTreeMap<usize, u64> {
        let before = |node: &usize| {
            let node = *node;
            let open = self.passes(node, destination);
            let links = self.links[node].iter().filter(move |_| open);
            let back = links.map(move |(link, other)| (*other, self.cost(*other, *link)));
            back.collect::<Vec<_>>()
        };
        let reached = dijkstra_all(&destination, before);
        let mut distances: BTreeMap<usize, u64> = reached
            .into_iter()
            .map(|(node, (_, cost))| (node, cost))
            .collect();
        distances.insert(destination, 0);
        distances
    }

    fn next_hops(
        &self,
        node: usize,
        destination: usize,
        distances: &BTreeMap<usize, u64>,
        max: usize,
    ) -> Vec<Hop> {
        let Some(best) = distances.get(&node) else {
            return Vec::new();
        };
        let links = self.links[node].iter();
        links
            .filter(|(_, to)| self.passes(*to, destination))
            .filter_map(|(link, to)| {
                let cost = self.cost(node, *link) + distances.get(to)?;
                (cost == *best).then_some(Hop {
                    link: *link,
                    to: *to,
                    cost,
                })
            })
            .take(max)
            .collect()
    }

    fn paths(&self, from: usize, to: usize, k: usize) -> Vec<Path> {
        let nodes = self.network.nodes.len();
        let successors = |vertex: &usize| -> Vec<(usize, u64)> {
            match vertex.checked_sub(nodes) {
                None if *vertex == to || (*vertex != from && !self.passes(*vertex, to)) => {
                    Vec::new()
                }
                None => {
                    let links = self.links[*vertex].iter();
                    let way = |link: usize| usize::from(self.network.links[link].ends.0 != *vertex);
                    links
                        .map(|(link, _)| (nodes + 2 * link + way(*link), self.cost(*vertex, *link)))
                        .collect()
                }
                Some(way) => {
                    let ends = self.network.links[way / 2].ends;
                    vec![(if way % 2 == 0 { ends.1 } else { ends.0 }, 0)]
                }
            }
        };
        let found = match k {
            0 => Vec::new(),
            1 => dijkstra(&from, successors, |vertex| *vertex == to)
                .into_iter()
                .collect(),
            k => yen(&from, successors, |vertex| *vertex == to, k),
        };
        let path = |(vertices, cost): (Vec<usize>, u64)| Path {
            nodes: vertices
                .iter()
                .copied()
                .filter(|vertex| *vertex < nodes)
                .collect(),
            links: vertices
                .iter()
                .filter_map(|vertex| vertex.checked_sub(nodes))
                .map(|way| way / 2)
                .collect(),
            cost,
        };
        found.into_iter().map(path).collect()
    }
}

/// Reads `routes`.
pub(super) fn routes(document: &Document<'_>, network: &Network) -> Result<Routes, Faults> {
    let at = KeyPath::from(["routes"]);
    let section: Section = match document.get(&at) {
        Some(_) => document.read(&at)?,
        None => Section::default(),
    };
    let mut found = Found::default();
    if section.k.is_some() != (section.choose == Choice::KShortest) {
        let message = "k goes with choose = \"k-shortest\", and only with it";
        found.add(document.fault(&at.key("k"), message));
    }
    let mut routes = Routes::derived(section.choose, section.by, section.k.unwrap_or(1));
    for (index, given) in section.given.iter().enumerate() {
        let at = at.key("given").index(index).key("path");
        let path = given_path(document, network, &at, &given.path);
        routes.given.extend(found.keep(path));
    }
    found.or(Some(routes))
}

fn given_path(
    document: &Document<'_>,
    network: &Network,
    at: &KeyPath,
    names: &[String],
) -> Result<Path, super::fault::Fault> {
    let mut nodes = Vec::new();
    for (index, name) in names.iter().enumerate() {
        nodes.push(node_at(document, network, &at.index(index), name)?);
    }
    if nodes.len() < 2 {
        return Err(document.fault(at, "a path has two nodes or more"));
    }
    let mut links = Vec::new();
    for (index, hop) in nodes.windows(2).enumerate() {
        let link = network.at(hop[0]).find(|(_, to)| *to == hop[1]);
        let (link, _) = link.ok_or_else(|| {
            let message = format!(
                "no link joins '{}' and '{}'",
                names[index],
                names[index + 1]
            );
            document.fault(&at.index(index + 1), message)
        })?;
        links.push(link);
    }
    Ok(Path {
        nodes,
        links,
        cost: 0,
    })
}
