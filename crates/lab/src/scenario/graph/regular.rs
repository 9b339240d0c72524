//! Graphs without chance: line, ring, star, tree, dumbbell, grid.

use serde::Deserialize;

use super::{Graph, at_least};

/// `n1 - n2 - ... - nN`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Number of nodes.
    pub nodes: usize,
}

impl Line {
    pub(super) fn build(self, prefix: &str) -> Result<Graph, String> {
        at_least(2, self.nodes, "nodes")?;
        let mut graph = Graph::numbered(prefix, self.nodes);
        (1..self.nodes).for_each(|node| graph.join(node - 1, node));
        Ok(graph)
    }
}

/// A [`Line`] whose ends are joined.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ring {
    /// Number of nodes.
    pub nodes: usize,
}

impl Ring {
    pub(super) fn build(self, prefix: &str) -> Result<Graph, String> {
        at_least(3, self.nodes, "nodes")?;
        let mut graph = Graph::numbered(prefix, self.nodes);
        (0..self.nodes).for_each(|node| graph.join(node, (node + 1) % self.nodes));
        Ok(graph)
    }
}

/// `hub`, and `leaf1` to `leafN` around it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Star {
    /// Number of nodes around the hub.
    pub leaves: usize,
}

impl Star {
    pub(super) fn build(self) -> Result<Graph, String> {
        at_least(1, self.leaves, "leaves")?;
        let mut graph = Graph::numbered("leaf", self.leaves);
        graph.nodes.insert(0, "hub".to_owned());
        (1..=self.leaves).for_each(|leaf| graph.join(0, leaf));
        Ok(graph)
    }
}

/// `n1` is the root; nodes are numbered level by level.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// Children of each node above the last level.
    pub branches: Branches,
    /// Levels below the root; not given if `branches` is a list.
    #[serde(default)]
    pub depth: Option<u32>,
}

/// Children of each node of a [`Tree`].
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a number, or one for each level: [10, 3]")]
pub enum Branches {
    /// On all levels.
    Equal(usize),
    /// On each level, from the root on.
    Levels(Vec<usize>),
}

impl Tree {
    pub(super) fn build(&self, prefix: &str) -> Result<Graph, String> {
        let levels = match (&self.branches, self.depth) {
            (Branches::Equal(branches), Some(depth)) => {
                at_least(1, depth as usize, "levels")?;
                vec![*branches; depth as usize]
            }
            (Branches::Levels(levels), None) => levels.clone(),
            (Branches::Equal(_), None) => return Err("depth = 2 is missing".to_owned()),
            (Branches::Levels(_), Some(_)) => {
                return Err("a list of branches has its depth by itself".to_owned());
            }
        };
        at_least(1, levels.len(), "levels")?;
        let mut parents: Vec<usize> = Vec::new();
        let mut level = 0..1usize;
        for branches in levels {
            at_least(1, branches, "branches")?;
            let next = level.end
                ..level
                    .end
                    .saturating_add(level.len().saturating_mul(branches));
            at_least(1, next.end, "nodes")?;
            parents.extend(
                next.clone()
                    .map(|node| level.start + (node - next.start) / branches),
            );
            level = next;
        }
        let mut graph = Graph::numbered(prefix, level.end);
        for (child, parent) in (1..).zip(parents) {
            graph.join(parent, child);
        }
        Ok(graph)
    }
}

/// `left1` ... - `near` - `far` - `right1` ...: all pairs share the link in the middle, which is
/// `near-far`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dumbbell {
    /// Number of nodes on each side.
    pub pairs: usize,
}

impl Dumbbell {
    pub(super) fn build(self) -> Result<Graph, String> {
        at_least(1, self.pairs, "pairs")?;
        let mut graph = Graph::default();
        graph.nodes.extend(["near".to_owned(), "far".to_owned()]);
        graph.join(0, 1);
        for (side, name) in ["left", "right"].into_iter().enumerate() {
            for pair in 1..=self.pairs {
                graph.nodes.push(format!("{name}{pair}"));
                graph.join(side, graph.nodes.len() - 1);
            }
        }
        Ok(graph)
    }
}

/// Row by row.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Nodes in a row.
    pub columns: usize,
    /// Nodes in a column.
    pub rows: usize,
    /// True if the ends of each row and of each column are joined too.
    #[serde(default)]
    pub torus: bool,
}

impl Grid {
    pub(super) fn build(self, prefix: &str) -> Result<Graph, String> {
        let least = if self.torus { 3 } else { 1 };
        at_least(least, self.columns, "columns")?;
        at_least(least, self.rows, "rows")?;
        at_least(2, self.columns * self.rows, "nodes")?;
        let mut graph = Graph::numbered(prefix, self.columns * self.rows);
        let at = |column: usize, row: usize| row * self.columns + column;
        for row in 0..self.rows {
            for column in 0..self.columns {
                if column + 1 < self.columns || self.torus {
                    graph.join(at(column, row), at((column + 1) % self.columns, row));
                }
                if row + 1 < self.rows || self.torus {
                    graph.join(at(column, row), at(column, (row + 1) % self.rows));
                }
            }
        }
        Ok(graph)
    }
}
