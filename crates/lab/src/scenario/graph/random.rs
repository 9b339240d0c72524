//! Random graphs, each the same for the same generator.
//!
//! They are made here and not by a library, because a scenario's seed must give the same graph
//! with every version of every dependency.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use whimbrel_core::SeededRng;
use whimbrel_core::units;

use super::{Edge, Graph, at_least};

/// B. Waxman, "Routing of multipoint connections", IEEE JSAC 6(9), 1988: nodes at random places on
/// a square, linked with the probability `alpha * exp(-distance / (beta * diagonal))`. Unconnected
/// parts are joined by the shortest possible link.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waxman {
    /// Number of nodes.
    pub nodes: usize,
    /// Larger values give more links.
    #[serde(with = "units::probability", default = "often")]
    pub alpha: f64,
    /// Larger values give more long links.
    #[serde(with = "units::probability", default = "often")]
    pub beta: f64,
    /// One-way delay along a side of the square; without it, links have the delay that the graph's
    /// `link` says.
    #[serde(default, with = "units::optional_duration")]
    pub side: Option<Duration>,
}

fn often() -> f64 {
    0.4
}

impl Waxman {
    pub(super) fn build(self, prefix: &str, rng: &mut SeededRng) -> Result<Graph, String> {
        at_least(2, self.nodes, "nodes")?;
        if self.beta == 0.0 {
            return Err("beta must be above 0".to_owned());
        }
        let places: Vec<(f64, f64)> = (0..self.nodes).map(|_| (rng.unit(), rng.unit())).collect();
        let distance = |a: usize, b: usize| {
            let (x, y) = (places[a].0 - places[b].0, places[a].1 - places[b].1);
            x.hypot(y)
        };
        let edge = |a, b| Edge {
            delay: self.side.map(|side| side.mul_f64(distance(a, b))),
            ..Edge::new(a, b)
        };
        let mut graph = Graph::numbered(prefix, self.nodes);
        for b in 1..self.nodes {
            for a in 0..b {
                let reach = self.beta * core::f64::consts::SQRT_2;
                if rng.chance(self.alpha * (-distance(a, b) / reach).exp()) {
                    graph.edges.push(edge(a, b));
                }
            }
        }
        loop {
            let parts = graph.parts();
            let [first, others @ ..] = parts.as_slice() else {
                break;
            };
            let pairs = first
                .iter()
                .flat_map(|a| others.iter().flatten().map(move |b| (*a, *b)));
            let nearest = pairs.min_by(|x, y| distance(x.0, x.1).total_cmp(&distance(y.0, y.1)));
            let Some((a, b)) = nearest else { break };
            graph.edges.push(edge(a, b));
        }
        Ok(graph)
    }
}

/// A.-L. Barabási and R. Albert, "Emergence of scaling in random networks", Science 286, 1999: each
/// new node is linked with `links` others, each chosen as often as it has links already. It begins
/// with `links + 1` nodes that are all linked with each other.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BarabasiAlbert {
    /// Number of nodes.
    pub nodes: usize,
    /// Links that each new node brings.
    pub links: usize,
}

impl BarabasiAlbert {
    pub(super) fn build(self, prefix: &str, rng: &mut SeededRng) -> Result<Graph, String> {
        at_least(1, self.links, "links")?;
        at_least(self.links + 1, self.nodes, "nodes")?;
        let mut graph = Graph::numbered(prefix, self.nodes);
        // Every end of every link, so that a draw from it is a draw by degree.
        let mut ends = Vec::new();
        for node in 1..self.nodes {
            let mut chosen = BTreeSet::new();
            if node <= self.links {
                chosen.extend(0..node);
            }
            while chosen.len() < self.links.min(node) {
                chosen.insert(ends[rng.below(ends.len() as u64) as usize]);
            }
            for other in chosen {
                graph.join(other, node);
                ends.extend([other, node]);
            }
        }
        Ok(graph)
    }
}

/// As many links at every node: a random pairing of the nodes' link ends that makes no loop and no
/// parallel links (A. Steger and N. Wormald, "Generating random regular graphs quickly",
/// Combinatorics, Probability and Computing 8, 1999), drawn again until it is in one part.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomRegular {
    /// Number of nodes.
    pub nodes: usize,
    /// Links of each node.
    pub degree: usize,
}

impl RandomRegular {
    /// A ring of 10,000 nodes is one of about eighty pairings of degree 2.
    const ATTEMPTS: usize = 2_000;

    pub(super) fn build(self, prefix: &str, rng: &mut SeededRng) -> Result<Graph, String> {
        let RandomRegular { nodes, degree } = self;
        at_least(2, nodes, "nodes")?;
        if degree == 0 || degree >= nodes || !(nodes * degree).is_multiple_of(2) {
            return Err(format!(
                "{nodes} nodes cannot have {degree} links each: the degree is from 1 to {}, and nodes times \
                 degree is even",
                nodes - 1
            ));
        }
        if degree == 1 && nodes > 2 {
            return Err(String::from(
                "with one link each, more than two nodes are in parts",
            ));
        }
        for _ in 0..RandomRegular::ATTEMPTS {
            let Some(pairs) = self.pairing(rng) else {
                continue;
            };
            let mut graph = Graph::numbered(prefix, nodes);
            pairs.into_iter().for_each(|(a, b)| graph.join(a, b));
            if graph.parts().len() == 1 {
                return Ok(graph);
            }
        }
        Err(String::from(
            "no connected graph was found; try another seed",
        ))
    }

    /// Makes one attempt. Returns `None` if the remaining ends cannot be paired.
    fn pairing(self, rng: &mut SeededRng) -> Option<BTreeSet<(usize, usize)>> {
        let mut free: Vec<usize> = (0..self.nodes)
            .flat_map(|node| core::iter::repeat_n(node, self.degree))
            .collect();
        let mut pairs = BTreeSet::new();
        while !free.is_empty() {
            let before = free.len();
            // While there are many ends, a few draws find a fit; afterwards each pair is tried.
            for _ in 0..before.max(16) {
                let (i, j) = (rng.below(before as u64), rng.below(before as u64));
                let (i, j) = (i.min(j) as usize, i.max(j) as usize);
                let pair = (free[i].min(free[j]), free[i].max(free[j]));
                if pair.0 != pair.1 && !pairs.contains(&pair) {
                    pairs.insert(pair);
                    free.swap_remove(j);
                    free.swap_remove(i);
                    break;
                }
            }
            if free.len() == before {
                return None;
            }
        }
        Some(pairs)
    }
}
