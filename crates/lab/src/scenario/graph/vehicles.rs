//! Vehicles: a link between each two that are near each other at some time, out at all others.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use whimbrel_core::{SeededRng, units};
use whimbrel_sim::link::{Change, Outage, Rate};

use super::{Edge, Graph};
use crate::mobility::{Drive, Encounter};

/// Nodes that drive, for the time of the run.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vehicles {
    /// Number of nodes.
    pub nodes: usize,
    /// Side of the square on which they drive, in metres.
    pub side: u32,
    /// Two within this distance have a link, in metres.
    pub range: u32,
    /// Mean speed, in metres per second.
    pub speed: u32,
    /// The time for which they drive.
    #[serde(with = "units::duration")]
    pub lasts: Duration,
    /// The rate of a link within half of the range; a third up to three quarters of it, and a ninth beyond.
    pub rate: units::Rate,
}

impl Vehicles {
    pub(super) fn build(self, prefix: &str, rng: &mut SeededRng) -> Result<Graph, String> {
        let drive = Drive {
            nodes: self.nodes,
            side: self.side,
            range: self.range,
            speed: self.speed,
            lasts: self.lasts,
        };
        let mut pairs: BTreeMap<(usize, usize), Vec<Encounter>> = BTreeMap::new();
        for encounter in drive.encounters(rng)? {
            pairs.entry(encounter.ends).or_default().push(encounter);
        }
        let mut graph = Graph::numbered(prefix, self.nodes);
        for (ends, encounters) in pairs {
            graph.edges.push(Edge {
                rate: Some(self.rate.0),
                outages: gaps(&encounters, self.lasts),
                changes: self.changes(&encounters),
                ..Edge::new(ends.0, ends.1)
            });
        }
        Ok(graph)
    }

    fn changes(&self, encounters: &[Encounter]) -> Vec<Change> {
        let all = encounters.iter().flat_map(|it| &it.nearness);
        let changes = all.map(|(at, nearness)| Change {
            at: *at,
            rate: Some(Rate::Fixed(self.rate.0 / nearness.divisor())),
            ..Change::default()
        });
        changes.collect()
    }
}

/// Returns the times between encounters of one pair.
fn gaps(encounters: &[Encounter], lasts: Duration) -> Vec<Outage> {
    let starts = encounters.iter().map(|it| it.start).chain([lasts]);
    let ends = core::iter::once(Duration::ZERO).chain(encounters.iter().map(|it| it.end));
    let gaps = ends.zip(starts).filter(|(from, to)| from < to);
    let gaps = gaps.map(|(from, to)| Outage::Once {
        start: from,
        duration: to - from,
    });
    gaps.collect()
}
