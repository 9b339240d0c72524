//! The links that both of their ends announce, and the shortest paths over them.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use whimbrel_core::Guid;

use crate::announcement::Link;
use crate::cost::Cost;
use crate::database::Database;

/// Distances to destinations; those that are not in it are out of reach.
pub(crate) type Reach = BTreeMap<Guid, Cost>;

/// Which of a link's costs counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// The cost now.
    Now,
    /// The usual cost.
    Usual,
}

impl Metric {
    fn of(self, link: &Link) -> Cost {
        match self {
            Metric::Now => link.cost,
            Metric::Usual => link.usual,
        }
    }
}

/// The links of a database by one of their costs.
#[derive(Debug)]
pub(crate) struct LinkGraph {
    names: Vec<Guid>,
    // The links from each router, in the order of `names`.
    links: Vec<Vec<(usize, Cost)>>,
}

impl LinkGraph {
    pub(crate) fn of(database: &Database, metric: Metric) -> LinkGraph {
        let names: Vec<Guid> = database.iter().map(|it| it.origin()).collect();
        // "A link counts if both say it": a router alone attracts nothing.
        let links = database.iter().map(|announcement| {
            let both = announcement.links().iter().filter_map(|link| {
                let back = database.get(&link.to)?.link_to(&announcement.origin())?;
                let (cost, back) = (metric.of(link), metric.of(back));
                let to = names.binary_search(&link.to).ok()?;
                (cost.is_finite() && back.is_finite()).then_some((to, cost))
            });
            both.collect()
        });
        let links = links.collect();
        LinkGraph { names, links }
    }

    /// Returns the distances of all routers within reach of one, itself among them.
    pub(crate) fn distances(&self, from: &Guid) -> Reach {
        let Ok(start) = self.names.binary_search(from) else {
            return Reach::new();
        };
        let mut distances = vec![Cost::NEVER; self.names.len()];
        distances[start] = Cost::ZERO;
        let mut next = BinaryHeap::from([Reverse((Cost::ZERO, start))]);
        while let Some(Reverse((cost, at))) = next.pop() {
            if cost > distances[at] {
                continue;
            }
            for (to, link) in &self.links[at] {
                let further = cost.plus(*link);
                if further < distances[*to] {
                    distances[*to] = further;
                    next.push(Reverse((further, *to)));
                }
            }
        }
        let all = self.names.iter().copied().zip(distances);
        all.filter(|(_, cost)| cost.is_finite()).collect()
    }
}
