//! The studies of multihoming ([MF-5G]): the router before a client's links divides its flows, beside the
//! kernel's Multipath TCP.
//!
//! | module | holds |
//! |---|---|
//! | [`throughput`] | Fig. 5: each link alone, both by Multipath TCP, both by the router's division |
//! | [`wide`] | section VI: many clients at sites far from each other |
//! | [`grid`] | beyond the paper: cells of unequal links, faults and traces |
//! | [`beside`] | the same cells by Multipath TCP |
//! | [`handoff`] | beyond the paper: a client that moves between access routers |
//! | [`ping`] | Fig. 3: echo requests by IP and by MobilityFirst |

use crate::scenario::Plan;
use crate::scenario::node::{Node, Role, Roles};

mod beside;
pub(super) mod grid;
pub(super) mod handoff;
pub(super) mod ping;
pub(super) mod throughput;
pub(super) mod wide;

/// A chunk of a divided flow, in bytes: the range within which nothing may be lost by dividing.
const RANGE: f64 = 65_536.0;

/// What several links brought together and each of them alone, in Mbit/s.
struct MultihomingGoodputs {
    all: f64,
    alone: Vec<f64>,
    /// Bytes that all together brought.
    bytes: f64,
}

impl MultihomingGoodputs {
    fn best(&self) -> f64 {
        self.alone.iter().copied().fold(0.0, f64::max)
    }

    fn sum(&self) -> f64 {
        self.alone.iter().sum()
    }

    /// U: the goodput of all as a share of the sum of the links, each alone.
    fn utilization(&self) -> f64 {
        self.all / self.sum()
    }

    /// H: the goodput of all as a share of the best one's.
    fn harm(&self) -> f64 {
        self.all / self.best()
    }

    /// Returns true if all links bring no less than the best one, within one range.
    fn is_never_below(&self) -> bool {
        self.bytes > 0.0 && self.harm() >= 1.0 - RANGE / self.bytes
    }
}

/// Returns the plan without some links: each of them, given with one of its ends, ends at a node of its own
/// instead of there.
fn without(plan: &Plan, links: &[(usize, usize)]) -> Plan {
    let mut plan = plan.clone();
    let network = &mut plan.network;
    network.nodes.push(Node {
        name: String::from("unused"),
        roles: Roles(vec![Role::TcpHost]),
        settings: Default::default(),
        routers: Vec::new(),
        preference: Vec::new(),
    });
    let unused = network.nodes.len() - 1;
    for (link, node) in links {
        let known = &mut network.links[*link];
        let far = known.other_end(*node).unwrap_or(unused);
        known.ends = (far, unused);
        // Equal in all such plans, so that equal ones can share a run.
        (known.forward, known.backward) = Default::default();
        known.mtu = 1500;
    }
    plan
}
