//! Observers of a run, and results beyond metrics, for studies with further questions.

use std::time::Duration;

use whimbrel_core::{PortId, Time};
use whimbrel_link::ndnlp;
use whimbrel_sim::Direction;
use whimbrel_sim::trace::TraceSink;
use whimbrel_transport::AppFace;
use whimbrel_transport::{AppFaceCounters, FetchStats};

use super::World;
use crate::cbr::{CbrConsumer, CbrStats, Exchanged};
use crate::scenario::run::Run;

/// Follows a run.
pub trait Observer {
    /// Returns a sink for the events of every frame. The run's time counts from `origin`; `links`
    /// are the ports of each link's ends, in the order of the plan.
    fn trace(&mut self, origin: Time, links: &[(PortId, PortId)]) -> Option<Box<dyn TraceSink>> {
        let _ = (origin, links);
        None
    }

    /// Returns true if every frame must be hashed, to prove that the run can be repeated.
    fn hashes(&self) -> bool {
        false
    }

    /// Called when bytes of a file of a load have arrived, `at` after the run's origin.
    fn arrived(&mut self, load: usize, receiver: usize, at: Duration, bytes: u64) {
        let _ = (load, receiver, at, bytes);
    }

    /// Interval at which consumers of files over NDN are sampled, while Data arrives; `None`: never.
    fn samples(&self) -> Option<Duration> {
        None
    }

    /// Called with the counters of a consumer of a load's file; `at` counts from the run's origin.
    fn sampled(&mut self, load: usize, receiver: usize, at: Duration, stats: &FetchStats) {
        let _ = (load, receiver, at, stats);
    }

    /// Called when an Interest of a load was answered, at one of its receivers.
    fn exchanged(&mut self, load: usize, receiver: usize, exchanged: &Exchanged) {
        let _ = (load, receiver, exchanged);
    }
}

/// Ignores everything.
impl Observer for () {}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Its metrics.
    pub run: Run,
    /// The consumers of loads of Interests, by load and receiver.
    pub consumers: Vec<Consumer>,
    /// Both ends of each link in the order of the plan: the first node's and the second's.
    pub ends: Vec<LinkEnd>,
    /// BLAKE3 over all frames, if the observer wanted it.
    pub hash: Option<[u8; 32]>,
}

/// A consumer of Interests at the end of the run.
#[derive(Clone, Copy, Debug)]
pub struct Consumer {
    /// Index of the load.
    pub load: usize,
    /// Index of the node.
    pub receiver: usize,
    /// The consumer's counters.
    pub stats: CbrStats,
    /// The counters of its face.
    pub face: AppFaceCounters,
    /// True if all its Interests were answered.
    pub finished: bool,
}

/// One end of a link at the end of the run.
#[derive(Clone, Debug)]
pub struct LinkEnd {
    /// The link service of the NDN router there; all zero at other nodes.
    pub link: ndnlp::LinkStats,
    /// Bytes that it put on the wire.
    pub wire_bytes: u64,
}

impl World<'_> {
    pub(super) fn consumers(&self) -> Vec<Consumer> {
        let exchanges = self.exchanges.iter();
        exchanges
            .map(|exchange| {
                let program = exchange.consumer.map(|node| self.sim.node(node));
                let face = program.and_then(|node| node.get::<AppFace<CbrConsumer>>());
                Consumer {
                    load: exchange.load,
                    receiver: exchange.receiver,
                    stats: face.map_or(CbrStats::default(), |face| *face.application().stats()),
                    face: face.map_or(AppFaceCounters::default(), |face| *face.counters()),
                    finished: exchange.finished,
                }
            })
            .collect()
    }

    pub(super) fn link_ends(&self) -> Vec<LinkEnd> {
        let links = self.plan.network.links.iter().enumerate();
        links
            .flat_map(|(index, link)| {
                let (a, b) = link.ends;
                [(a, Direction::AToB), (b, Direction::BToA)].map(|(node, direction)| {
                    let stack = self.sim.node(self.nodes[node]).get::<super::Stack>();
                    let router = stack.and_then(|stack| stack.planes.ndn.as_deref());
                    let link = self.faces.get(&(node, index)).and_then(|port| {
                        let router = router?;
                        router.link(router.face_of(*port)?)
                    });
                    LinkEnd {
                        link: link.map(|link| link.stats().clone()).unwrap_or_default(),
                        wire_bytes: self
                            .sim
                            .link_stats(self.links[index].link, direction)
                            .transmitted_bytes,
                    }
                })
            })
            .collect()
    }
}
