//! PRoPHET.

use core::time::Duration;
use std::collections::BTreeMap;

use super::{CopyOrMove, DtnMessage, DtnProtocol, HeldMessage};

/// Values of A. Lindgren, A. Doria and O. Schelén, "Probabilistic Routing in Intermittently Connected Networks"
/// (SIGMOBILE MC2R 7(3), 2003), Table 1.
const INITIAL: f64 = 0.75;
const TRANSITIVE: f64 = 0.25;
const AGING: f64 = 0.98;
/// The unit of time of `AGING`, which the paper leaves to the network: that of the ONE simulator's examples.
const UNIT: Duration = Duration::from_secs(30);

/// Each node has a predictability of delivery to each other one: raised when they meet, lowered as time passes,
/// raised by the predictabilities of those that it meets. A message is copied to a node that is more likely to
/// deliver it (GRTR of RFC 6693).
#[derive(Debug)]
pub struct Prophet {
    nodes: Vec<Predictabilities>,
}

#[derive(Clone, Debug, Default)]
struct Predictabilities {
    of: BTreeMap<usize, f64>,
    aged: Duration,
}

impl Predictabilities {
    fn age(&mut self, now: Duration) {
        let units = now.saturating_sub(self.aged).as_secs_f64() / UNIT.as_secs_f64();
        self.aged = now;
        let factor = AGING.powf(units);
        self.of.values_mut().for_each(|it| *it *= factor);
    }

    fn get(&self, node: usize) -> f64 {
        self.of.get(&node).copied().unwrap_or(0.0)
    }

    fn raise(&mut self, node: usize, by: f64) {
        let known = self.of.entry(node).or_insert(0.0);
        *known += (1.0 - *known) * by;
    }
}

impl Prophet {
    /// Returns the protocol for this number of nodes.
    pub fn new(nodes: usize) -> Prophet {
        Prophet {
            nodes: vec![Predictabilities::default(); nodes],
        }
    }

    fn hear(&mut self, own: usize, peer: usize, told: &BTreeMap<usize, f64>) {
        let predictabilities = &mut self.nodes[own];
        predictabilities.raise(peer, INITIAL);
        let through = predictabilities.get(peer);
        for (to, theirs) in told.iter().filter(|it| *it.0 != own) {
            predictabilities.raise(*to, through * theirs * TRANSITIVE);
        }
    }
}

impl DtnProtocol for Prophet {
    fn meet(&mut self, now: Duration, a: usize, b: usize) {
        for node in [a, b] {
            self.nodes[node].age(now);
        }
        let [of_a, of_b] = [a, b].map(|node| self.nodes[node].of.clone());
        self.hear(a, b, &of_b);
        self.hear(b, a, &of_a);
    }

    fn part(&mut self, _: Duration, _: usize, _: usize) {}
    fn send(&mut self, _: usize, _: &DtnMessage) {}
    fn passed(&mut self, _: usize, _: usize, _: usize) {}

    fn choose(
        &mut self,
        now: Duration,
        from: usize,
        to: usize,
        held: &HeldMessage,
    ) -> Option<CopyOrMove> {
        for node in [from, to] {
            self.nodes[node].age(now);
        }
        let is_likelier = self.nodes[to].get(held.to) > self.nodes[from].get(held.to);
        is_likelier.then_some(CopyOrMove::Copy)
    }

    fn advance(&mut self, _: Duration) -> bool {
        false
    }
}
