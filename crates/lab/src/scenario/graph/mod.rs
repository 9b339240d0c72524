//! Graphs: generated or imported. To add a kind: a field of [`Shape`], an arm of [`Shape::build`].

mod edge_list;
mod graphml;
mod random;
mod regular;
mod vehicles;

use std::path::{Path, PathBuf};
use std::time::Duration;

use pathfinding::undirected::connected_components::components;
use serde::Deserialize;
use whimbrel_core::SeededRng;
use whimbrel_sim::link::{Change, Outage};

pub use random::{BarabasiAlbert, RandomRegular, Waxman};
pub use regular::{Branches, Dumbbell, Grid, Line, Ring, Star, Tree};
pub use vehicles::Vehicles;

/// Nodes and the links between them, with the rates, delays and costs that the source has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// The nodes' names; no two are the same.
    pub nodes: Vec<String>,
    /// The links, parallel ones included.
    pub edges: Vec<Edge>,
}

/// A link of a [`Graph`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edge {
    /// Indices of nodes.
    pub ends: (usize, usize),
    /// Bits per second, if known.
    pub rate: Option<u64>,
    /// The one-way delay, if known.
    pub delay: Option<Duration>,
    /// The cost, for routes by cost, if known.
    pub cost: Option<u64>,
    /// When it is out, ...
    pub outages: Vec<Outage>,
    /// ... and how it changes.
    pub changes: Vec<Change>,
}

impl Edge {
    /// Returns a link without further properties.
    pub fn new(a: usize, b: usize) -> Edge {
        Edge {
            ends: (a, b),
            ..Edge::default()
        }
    }
}

impl Graph {
    /// Returns nodes `PREFIX1` to `PREFIXn`, without links.
    fn numbered(prefix: &str, nodes: usize) -> Graph {
        Graph {
            nodes: (1..=nodes).map(|n| format!("{prefix}{n}")).collect(),
            edges: Vec::new(),
        }
    }

    fn join(&mut self, a: usize, b: usize) {
        self.edges.push(Edge::new(a, b));
    }

    /// Returns the nodes that each node has links to, once for each link.
    pub fn neighbours(&self) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            all[edge.ends.0].push(edge.ends.1);
            all[edge.ends.1].push(edge.ends.0);
        }
        all
    }

    /// Returns the parts between which there is no link, largest first, each in order of its nodes.
    pub fn parts(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = self
            .neighbours()
            .into_iter()
            .enumerate()
            .map(|(node, mut others)| {
                others.push(node);
                others
            })
            .collect();
        groups.sort_unstable();
        let parts = components(&groups);
        let mut parts: Vec<Vec<usize>> = parts
            .into_iter()
            .map(|part| {
                let mut part: Vec<usize> = part.into_iter().collect();
                part.sort_unstable();
                part
            })
            .collect();
        parts.sort_by_key(|part| (core::cmp::Reverse(part.len()), part.first().copied()));
        parts
    }

    /// Returns the graph of some of the nodes.
    fn restricted_to(&self, kept: &[usize]) -> Graph {
        let place = |node: usize| kept.iter().position(|known| *known == node);
        let edges = self.edges.iter().filter_map(|edge| {
            let ends = (place(edge.ends.0)?, place(edge.ends.1)?);
            Some(Edge {
                ends,
                ..edge.clone()
            })
        });
        Graph {
            nodes: kept.iter().map(|node| self.nodes[*node].clone()).collect(),
            edges: edges.collect(),
        }
    }
}

/// The shape of a graph: exactly one of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    /// A row.
    pub line: Option<Line>,
    /// A circle.
    pub ring: Option<Ring>,
    /// One in the middle.
    pub star: Option<Star>,
    /// A root, and the same number of branches at every node.
    pub tree: Option<Tree>,
    /// Two groups that share one link.
    pub dumbbell: Option<Dumbbell>,
    /// Rows and columns.
    pub grid: Option<Grid>,
    /// Random places on a square; near nodes are linked more often.
    pub waxman: Option<Waxman>,
    /// Growing by preferential attachment.
    pub barabasi_albert: Option<BarabasiAlbert>,
    /// Random, with as many links at every node.
    pub random_regular: Option<RandomRegular>,
    /// Nodes that drive, with links between those that are near each other.
    pub vehicles: Option<Vehicles>,
    /// A file in the format of the Internet Topology Zoo.
    pub graphml: Option<PathBuf>,
    /// A file with one link per line.
    pub edge_list: Option<PathBuf>,
    /// True to keep only the largest part of an imported graph that is in several.
    pub largest_part: bool,
}

impl Shape {
    /// The keys of which exactly one must be given.
    pub const KINDS: [&str; 12] = [
        "line",
        "ring",
        "star",
        "tree",
        "dumbbell",
        "grid",
        "waxman",
        "barabasi_albert",
        "random_regular",
        "vehicles",
        "graphml",
        "edge_list",
    ];

    /// Builds the graph: connected, and the same for the same seed. File names are relative to
    /// `folder`. The error is the faulty key, and the fault.
    pub fn build(
        &self,
        prefix: &str,
        folder: &Path,
        seed: u64,
    ) -> Result<Graph, (&'static str, String)> {
        let rng = || SeededRng::stream(seed, "graph");
        let imported = |key, file: &Path, read: fn(&str) -> Result<Graph, String>| {
            let path = folder.join(file);
            let text = std::fs::read_to_string(&path)
                .map_err(|error| (key, format!("cannot read {}: {error}", path.display())))?;
            let graph = read(&text).map_err(|why| (key, format!("{}:{why}", path.display())))?;
            self.whole(graph).map_err(|why| (key, why))
        };
        let mut built = Vec::new();
        let mut add = |key, graph: Option<Result<Graph, String>>| {
            built.extend(graph.map(|graph| graph.map_err(|why| (key, why))));
        };
        add("line", self.line.map(|line| line.build(prefix)));
        add("ring", self.ring.map(|ring| ring.build(prefix)));
        add("star", self.star.map(|star| star.build()));
        add("tree", self.tree.as_ref().map(|tree| tree.build(prefix)));
        add("dumbbell", self.dumbbell.map(|pairs| pairs.build()));
        add("grid", self.grid.map(|grid| grid.build(prefix)));
        add("waxman", self.waxman.map(|w| w.build(prefix, &mut rng())));
        add(
            "barabasi_albert",
            self.barabasi_albert.map(|b| b.build(prefix, &mut rng())),
        );
        add(
            "random_regular",
            self.random_regular.map(|r| r.build(prefix, &mut rng())),
        );
        add(
            "vehicles",
            self.vehicles.map(|it| it.build(prefix, &mut rng())),
        );
        let files = [
            ("graphml", &self.graphml, graphml::read as fn(&str) -> _),
            ("edge_list", &self.edge_list, edge_list::read),
        ];
        for (key, file, read) in files {
            built.extend(file.as_deref().map(|file| imported(key, file, read)));
        }
        let mut built = built.into_iter();
        match (built.next(), built.next()) {
            (Some(graph), None) => graph,
            (first, _) => Err((
                "",
                format!(
                    "a graph has {} of {}",
                    if first.is_some() { "only one" } else { "one" },
                    Shape::KINDS.join(", ")
                ),
            )),
        }
    }

    /// Returns an imported graph if it is in one part, or its largest part if that is wanted.
    fn whole(&self, graph: Graph) -> Result<Graph, String> {
        let parts = graph.parts();
        match parts.as_slice() {
            [] => Err("the file has no nodes".to_owned()),
            [_] => Ok(graph),
            [largest, ..] if self.largest_part => Ok(graph.restricted_to(largest)),
            _ => Err(format!(
                "the graph is in {} parts; largest_part = true keeps the largest",
                parts.len()
            )),
        }
    }
}

/// Refuses a number that is too small, or larger than links of a lab can be numbered.
fn at_least(least: usize, count: usize, what: &str) -> Result<(), String> {
    const MAX: usize = 10_000;
    match count {
        _ if count < least => Err(format!("{count} {what} are too few; write {least} or more")),
        _ if count > MAX => Err(format!("{count} {what} are too many; write at most {MAX}")),
        _ => Ok(()),
    }
}
