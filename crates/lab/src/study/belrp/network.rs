//! A run of a network of NDN routers: the counters of each consumer and each link.

use std::cell::RefCell;
use std::rc::Rc;

use whimbrel_core::{PortId, Time};
use whimbrel_link::ndnlp::LinkStats;
use whimbrel_sim::link::Rate;
use whimbrel_sim::trace::TraceSink;

use super::super::statistics::Moments;
use super::losses::{LossCounts, LossWatch};
use crate::LabError;
use crate::cbr::{CbrStats, Exchanged};
use crate::scenario::Plan;
use crate::scenario::load::{Kind, Load};
use crate::scenario::node::Role;
use crate::scenario::sim::observe::Observer;
use crate::scenario::sim::{self};

pub(super) use crate::scenario::sim::observe::LinkEnd;

/// The parts of a run to observe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The seed of everything random.
    pub(super) seed: u64,
    /// True to hash every frame, to prove that the run can be repeated.
    pub(super) hashed: bool,
    /// True to keep the delay of each exchange, beside their moments.
    pub(super) delays_kept: bool,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) flows: Vec<FlowOutcome>,
    /// Both ends of each link in order of the plan: the first node's and the second's.
    pub(super) ends: Vec<LinkEnd>,
    pub(super) losses: LossCounts,
    /// The number of exchanges that lost at least one frame, and at least two.
    pub(super) exchanges_hit: [u64; 2],
    /// True if every consumer got everything.
    pub(super) complete: bool,
    /// BLAKE3 over all frames, in hexadecimal.
    pub(super) hash: Option<String>,
}

/// The results of a consumer.
#[derive(Clone, Debug)]
pub(super) struct FlowOutcome {
    pub(super) stats: CbrStats,
    /// Data retrieval times in ms, in order of arrival; empty unless they are kept.
    pub(super) delays: Vec<f32>,
    /// The moments of the retrieval times, in ms.
    pub(super) retrieval: Moments,
    /// The ideal in ms: propagation and transmission of a bare Interest and its Data over all hops,
    /// without queues.
    pub(super) ideal: f64,
    /// The ms by which one more octet in every frame lengthens `ideal`.
    pub(super) octet: f64,
    /// The consumer's retransmissions, or what a reading counts as such.
    pub(super) retransmissions: u64,
    /// Mean octets of an Interest and of a Data at the consumer.
    pub(super) sizes: [f64; 2],
}

impl Outcome {
    /// Returns the sum of a counter over all ends of links.
    pub(super) fn sum(&self, count: impl Fn(&LinkStats) -> u64) -> u64 {
        self.ends.iter().map(|end| count(&end.link)).sum()
    }

    pub(super) fn wire_bytes(&self) -> u64 {
        self.ends.iter().map(|end| end.wire_bytes).sum()
    }

    pub(super) fn retransmissions(&self) -> u64 {
        self.flows.iter().map(|flow| flow.retransmissions).sum()
    }

    /// Returns the retrieval times of all exchanges, in per cent of the ideal.
    pub(super) fn percent(&self) -> Moments {
        self.flows.iter().fold(Moments::default(), |all, flow| {
            all.join(flow.retrieval.scaled(100.0 / flow.ideal))
        })
    }

    /// Returns the retrieval times of all exchanges, in ms.
    pub(super) fn retrieval(&self) -> Moments {
        let flows = self.flows.iter();
        flows.fold(Moments::default(), |all, flow| all.join(flow.retrieval))
    }

    /// Returns the retransmissions of consumers without a loss in the network, in per cent of all,
    /// by the paper's measure (the sources of its Fig. 2 (c)): all, less those that its links gave
    /// up.
    pub(super) fn spurious_percent(&self) -> f64 {
        let all = self.retransmissions() as f64;
        100.0 * (all - self.sum(|link| link.given_up) as f64).max(0.0) / all
    }

    /// Returns the Interests and Data that links lost and recovered, in per cent of those lost
    /// (Fig. 6).
    pub(super) fn recovered_percent(&self) -> f64 {
        let lost = self.losses.packets as f64;
        100.0 * (lost - self.sum(|link| link.given_up) as f64).max(0.0) / lost
    }
}

/// Collects the consumers' exchanges.
struct Watcher {
    look: Look,
    flows: Vec<FlowOutcome>,
    losses: Rc<RefCell<LossWatch>>,
}

impl Observer for Watcher {
    fn trace(&mut self, _origin: Time, links: &[(PortId, PortId)]) -> Option<Box<dyn TraceSink>> {
        for (a, b) in links {
            self.losses.borrow_mut().watch(*a, *b);
        }
        Some(Box::new(self.losses.clone()))
    }

    fn hashes(&self) -> bool {
        self.look.hashed
    }

    fn exchanged(&mut self, load: usize, _receiver: usize, exchanged: &Exchanged) {
        let delay = exchanged.answered.since(exchanged.first_sent).as_secs_f64() * 1e3;
        let flow = &mut self.flows[load];
        flow.retrieval.add(delay);
        if self.look.delays_kept {
            flow.delays.push(delay as f32);
        }
    }
}

/// Runs the plan.
pub(super) fn run(plan: &Plan, look: Look) -> Result<Outcome, LabError> {
    let flows = plan.loads.iter().map(|load| {
        let (ideal, octet) = ideal(plan, load);
        FlowOutcome {
            stats: CbrStats::default(),
            delays: Vec::new(),
            retrieval: Moments::default(),
            ideal,
            octet,
            retransmissions: 0,
            sizes: [0.0; 2],
        }
    });
    let mut watcher = Watcher {
        look,
        flows: flows.collect(),
        losses: Rc::default(),
    };
    let observed = sim::observe(plan, look.seed, &mut watcher)?;
    let Watcher {
        mut flows, losses, ..
    } = watcher;
    for consumer in &observed.consumers {
        let (flow, face) = (&mut flows[consumer.load], &consumer.face);
        flow.stats = consumer.stats;
        flow.retransmissions = consumer.stats.retransmissions;
        flow.sizes = [
            face.out_bytes as f64 / face.out_packets as f64,
            face.in_bytes as f64 / face.in_packets as f64,
        ];
    }
    let watch = losses.borrow();
    Ok(Outcome {
        complete: observed.consumers.iter().all(|consumer| consumer.finished),
        flows,
        ends: observed.ends,
        losses: watch.counts(),
        exchanges_hit: [watch.exchanges_with(1), watch.exchanges_with(2)],
        hash: observed
            .hash
            .map(|hash| blake3::Hash::from(hash).to_hex().to_string()),
    })
}

/// Returns the nodes of a load's path, from its consumer to its producer.
pub(super) fn path(plan: &Plan, load: &Load) -> Vec<usize> {
    let routes = plan
        .routes
        .towards(&plan.network, load.from, Role::NdnRouter);
    let mut path = load.to.get(..1).unwrap_or_default().to_vec();
    while let Some(hop) = path.last().and_then(|node| routes[*node].first()) {
        path.push(hop.to);
    }
    path
}

/// Returns the ms for an Interest of 28 octets and its Data over the path without queues, and for
/// one more octet in each of these frames.
fn ideal(plan: &Plan, load: &Load) -> (f64, f64) {
    const INTEREST: u32 = 28;
    /// Octets beside the content: names, signature, type and length (see
    /// [`crate::cbr::PlaceholderSigner`]).
    const DATA_HEADERS: u32 = 37;
    let Kind::Requests(requests) = &load.kind else {
        return (f64::NAN, f64::NAN);
    };
    let data = requests.payload as u32 + DATA_HEADERS;
    let (mut total, mut octet) = (0.0, 0.0);
    for hop in path(plan, load).windows(2) {
        let link = plan.network.at(hop[0]).find(|(_, peer)| *peer == hop[1]);
        let Some((link, _)) = link else {
            continue;
        };
        let spec = plan.network.links[link].from(hop[0]);
        total += 2.0 * spec.delay.as_secs_f64() * 1e3;
        if let Rate::Fixed(rate) = spec.rate {
            total += f64::from((INTEREST + data + 2 * spec.overhead) * 8) / rate as f64 * 1e3;
            octet += 2.0 * 8.0 / rate as f64 * 1e3;
        }
    }
    (total, octet)
}
