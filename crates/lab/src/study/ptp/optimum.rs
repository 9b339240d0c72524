//! The largest throughput of a network for its loads: a linear program over the flow of each
//! consumer's Data on each link. With one consumer it is the maximum flow.

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem, Variable};
use whimbrel_sim::link::Rate;

use crate::scenario::Plan;
use crate::scenario::node::Role;

/// Cost of a unit of flow on each link. It selects the largest flow with the fewest hops, and is too
/// small to outweigh throughput.
const HOP: f64 = 1e-4;
/// Share of the largest throughput that a fair division must reach.
const ALL: f64 = 1.0 - 1e-9;

/// The optimum; rates in Mbit/s.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Optimum {
    /// The rate of each receiver of each load, in their order.
    pub(super) rates: Vec<f64>,
    /// Data on each link, from its first end and from its second.
    pub(super) links: Vec<[f64; 2]>,
}

impl Optimum {
    /// Returns the sum over all receivers.
    pub(super) fn total(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Returns the optimum of a plan, whose loads follow its routes.
    pub(super) fn of(plan: &Plan) -> Result<Optimum, String> {
        let arcs = arcs(plan);
        let greatest = solve(plan, &arcs, None)?;
        match greatest.rates.len() {
            0 | 1 => Ok(greatest),
            // Several consumers divide the throughput as evenly as possible.
            _ => solve(plan, &arcs, Some(greatest.total() * ALL)),
        }
    }
}

/// A direction of a link that Data of a consumer may take.
struct Arc {
    consumer: usize,
    link: usize,
    /// 0 if Data leaves the link's first end.
    way: usize,
    from: usize,
    to: usize,
}

/// Returns the directions in which Data may flow: the reverse of the Interests' routes.
fn arcs(plan: &Plan) -> Vec<Arc> {
    let mut arcs = Vec::new();
    for (consumer, (load, _)) in consumers(plan).enumerate() {
        let hops = plan
            .routes
            .towards_any(&plan.network, load.sources(), Role::NdnRouter);
        for (node, hops) in hops.iter().enumerate() {
            for hop in hops {
                let from_first = plan.network.links[hop.link].ends.0 == hop.to;
                arcs.push(Arc {
                    consumer,
                    link: hop.link,
                    way: usize::from(!from_first),
                    from: hop.to,
                    to: node,
                });
            }
        }
    }
    arcs
}

fn consumers(plan: &Plan) -> impl Iterator<Item = (&crate::scenario::load::Load, usize)> {
    let loads = plan.loads.iter();
    loads.flat_map(|load| load.to.iter().map(move |receiver| (load, *receiver)))
}

fn megabits(plan: &Plan, link: usize, way: usize) -> f64 {
    let link = &plan.network.links[link];
    let spec = [&link.forward, &link.backward][way];
    match spec.rate {
        Rate::Fixed(rate) => rate as f64 / 1e6,
        _ => f64::INFINITY,
    }
}

/// Solves for the largest throughput, or with `at_least` for the most even division of that throughput.
fn solve(plan: &Plan, arcs: &[Arc], at_least: Option<f64>) -> Result<Optimum, String> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let worth = if at_least.is_some() { 0.0 } else { 1.0 };
    let flows: Vec<Variable> = arcs
        .iter()
        .map(|_| problem.add_var(-HOP, (0.0, f64::INFINITY)))
        .collect();
    let rates: Vec<Variable> = consumers(plan)
        .map(|_| problem.add_var(worth, (0.0, f64::INFINITY)))
        .collect();
    // Flow is conserved at every node except the sources and the consumer.
    for (consumer, (load, receiver)) in consumers(plan).enumerate() {
        for node in 0..plan.network.nodes.len() {
            if load.sources().any(|source| source == node) {
                continue;
            }
            let mut balance = LinearExpr::empty();
            for (arc, flow) in arcs
                .iter()
                .zip(&flows)
                .filter(|(arc, _)| arc.consumer == consumer)
            {
                if arc.to == node {
                    balance.add(*flow, 1.0);
                } else if arc.from == node {
                    balance.add(*flow, -1.0);
                }
            }
            if node == receiver {
                balance.add(rates[consumer], -1.0);
            }
            problem.add_constraint(balance, ComparisonOp::Eq, 0.0);
        }
    }
    for link in 0..plan.network.links.len() {
        for way in 0..2 {
            let capacity = megabits(plan, link, way);
            let mut used = LinearExpr::empty();
            let mut is_used = false;
            for (arc, flow) in arcs.iter().zip(&flows) {
                if (arc.link, arc.way) == (link, way) {
                    used.add(*flow, 1.0);
                    is_used = true;
                }
            }
            if is_used && capacity.is_finite() {
                problem.add_constraint(used, ComparisonOp::Le, capacity);
            }
        }
    }
    if let Some(total) = at_least {
        let least = problem.add_var(1.0, (0.0, f64::INFINITY));
        let mut all = LinearExpr::empty();
        for rate in &rates {
            all.add(*rate, 1.0);
            problem.add_constraint([(*rate, 1.0), (least, -1.0)], ComparisonOp::Ge, 0.0);
        }
        problem.add_constraint(all, ComparisonOp::Ge, total);
    }
    let solution = problem
        .solve()
        .map_err(|fault| format!("the network's optimum cannot be computed: {fault}"))?;
    let mut links = vec![[0.0; 2]; plan.network.links.len()];
    for (arc, flow) in arcs.iter().zip(&flows) {
        links[arc.link][arc.way] += solution.var_value(*flow);
    }
    Ok(Optimum {
        rates: rates.iter().map(|rate| solution.var_value(*rate)).collect(),
        links,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pathfinding::directed::edmonds_karp::{SparseCapacity, edmonds_karp};

    use super::*;
    use crate::scenario::{Overrides, Scenario};

    fn plans(text: &str) -> Vec<Plan> {
        let scenario = Scenario::parse(Path::new("o.toml"), text, Overrides::default());
        let scenario = scenario.unwrap_or_else(|faults| panic!("{faults}"));
        scenario.settings.into_iter().map(|it| it.plan).collect()
    }

    /// Returns the same by augmenting paths, in kbit/s.
    fn maximum_flow(plan: &Plan) -> f64 {
        let (source, sink) = (usize::MAX, plan.loads[0].to[0]);
        let mut capacities: Vec<((usize, usize), i64)> = arcs(plan)
            .iter()
            .map(|arc| {
                let capacity = megabits(plan, arc.link, arc.way);
                ((arc.from, arc.to), (capacity * 1e3) as i64)
            })
            .collect();
        let of_sources = plan.loads[0]
            .sources()
            .map(|node| ((source, node), 1 << 40));
        capacities.extend(of_sources);
        let mut vertices: Vec<usize> = (0..plan.network.nodes.len()).collect();
        vertices.push(source);
        let (_, total, _) =
            edmonds_karp::<_, _, _, SparseCapacity<_>>(&vertices, &source, &sink, capacities);
        total as f64 / 1e3
    }

    #[test]
    fn of_one_consumer_it_is_the_maximum_flow() {
        for seed in 0..20 {
            let text = format!(
                "seed = {seed}\n[graph]\nrole = \"ndn-router\"\n\
                 waxman = {{ nodes = 16, alpha = 0.6, beta = 0.5, side = \"20 ms\" }}\n\
                 link = {{ rate = \"1 Mbit/s\" }}\n\
                 [links.n1-extra]\nbetween = [\"n1\", \"extra\"]\nrate = \"2.5 Mbit/s\"\n\
                 [nodes]\nextra = \"ndn-router\"\n\
                 [routes]\nchoose = \"k-shortest\"\nk = 4\n\
                 [loads.film]\nfrom = \"n16\"\nmirrors = [\"n9\"]\nto = \"extra\"\nfile = \"1 MB\"\n"
            );
            let plan = &plans(&text)[0];
            let (ours, theirs) = (Optimum::of(plan).unwrap().total(), maximum_flow(plan));
            assert!((ours - theirs).abs() < 1e-6, "{seed}: {ours} and {theirs}");
        }
    }

    #[test]
    fn several_consumers_share_a_bottleneck_evenly() {
        let text = include_str!("../../../../../studies/ptp-fairness/scenario.toml");
        let optimum = Optimum::of(&plans(text)[0]).unwrap();
        for rate in optimum.rates {
            assert!((rate - 1.0).abs() < 1e-6, "{rate}");
        }
    }
}
