//! One branch of a divided flow: what is measured of it, and reports.

use core::time::Duration;

use whimbrel_core::{Guid, PortId, Time};

use super::link::Link;
use super::neighbours::Neighbours;
use super::paces::{LOW_WATER, OnwardWay, Paces};
use crate::next_hops::Branch;
use crate::outbox::FlowTurn;
use crate::split::flow::{DividedFlow, Record, Reordering};
use crate::split::schedule::{Measured, time_of};
use crate::wire::Flow;

/// Added to the silence that makes a branch suspect, for a late wake-up of the driver; the time of eight
/// packets is added, too.
pub(super) const SILENCE_SLACK: Duration = Duration::from_millis(10);
const SILENCE_PACKETS: u64 = 8;

/// A report of a divided flow.
#[derive(Clone, Debug, serde::Serialize)]
pub struct DividedStatus {
    /// Its source.
    pub source: Guid,
    /// Its destination.
    pub destination: Guid,
    /// Bytes that wait for a branch.
    pub waiting_bytes: u64,
    /// Chunks that wait for a branch.
    pub waiting_chunks: usize,
    /// The measured reordering.
    pub reordering: Reordering,
    /// Its branches.
    pub branches: Vec<BranchStatus>,
}

/// A report of one branch of a divided flow.
#[derive(Clone, Debug, serde::Serialize)]
pub struct BranchStatus {
    /// The port's number.
    pub port: u32,
    /// The link's name in the configuration.
    pub label: String,
    /// Its state.
    pub state: BranchState,
    /// Bytes delivered.
    pub bytes: u64,
    /// Bytes of its chunks that were sent again over another branch.
    pub reissued_bytes: u64,
    /// The number of times it fell silent with chunks unanswered.
    pub suspicions: u32,
}

/// The state of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BranchState {
    /// It gets chunks.
    Used,
    /// It is silent although an answer is due.
    Suspect,
    /// It was suspect or useless lately, and gets no chunks for a while.
    Resting,
    /// Its neighbour holds the flow back.
    Held,
    /// Its neighbour does not respond.
    Down,
}

/// Returns a report of a branch.
fn status_of(
    link: Option<&Link>,
    now: Time,
    flow: &Flow,
    port: PortId,
    record: &Record,
) -> BranchStatus {
    let state = match link.filter(|link| link.is_up()) {
        None => BranchState::Down,
        _ if record.suspect_since().is_some() => BranchState::Suspect,
        Some(link) if link.outbox.turn_of(flow) != FlowTurn::Free => BranchState::Held,
        _ if !record.is_fit(now) => BranchState::Resting,
        _ => BranchState::Used,
    };
    BranchStatus {
        port: port.0,
        label: link.map_or(String::new(), |it| it.info.label.clone()),
        state,
        bytes: record.bytes,
        reissued_bytes: record.reissued,
        suspicions: record.suspicions,
    }
}

/// What is known of the branches of a divided flow.
#[derive(Clone, Copy)]
pub(super) struct BranchView<'a> {
    pub(super) neighbours: &'a Neighbours,
    pub(super) paces: &'a Paces,
    pub(super) now: Time,
    pub(super) flow: &'a Flow,
    pub(super) divided: &'a DividedFlow,
}

impl BranchView<'_> {
    /// Returns the usable branches with the best preference, and their measurements.
    pub(super) fn measured(&self, bytes: u64) -> Vec<(Branch, Measured)> {
        let fit = self
            .divided
            .hops
            .iter()
            .filter(|it| self.is_usable(it.port));
        let mut best = None;
        let mut all: Vec<(Branch, Measured)> = Vec::new();
        for branch in fit {
            let is_known = all.iter().any(|(it, _)| it.port == branch.port);
            if *best.get_or_insert(branch.preference) != branch.preference || is_known {
                continue;
            }
            let Some(link) = self.neighbours.at(branch.port) else {
                continue;
            };
            let record = self.divided.record(branch.port);
            let mut here = measure(link, self.flow, bytes);
            if let Some(idle) = self.divided.idle_since(branch.port)
                && link.outbox.flows() == 0
            {
                // Nothing measures the path, and its queue drains.
                here.let_drain(self.now.since(idle));
            }
            let carried = record.bytes + link.outbox.waiting(self.flow).0;
            let way = OnwardWay {
                link,
                flow: self.flow,
                port: branch.port,
                given: Some(record.bytes),
            };
            here.has_room &= branch.address.is_none()
                || !(self.paces).is_awaited(self.now, way, carried, record.first_given);
            let whole = self.paces.beyond(self.now, way, here);
            all.extend(whole.map(|it| (*branch, it)));
        }
        all
    }

    /// Returns true if the branch on `port` may get chunks.
    pub(super) fn is_usable(&self, port: PortId) -> bool {
        let free = |link: &Link| link.is_up() && link.outbox.turn_of(self.flow) == FlowTurn::Free;
        let is_fit = self.divided.record(port).is_fit(self.now);
        self.neighbours.at(port).is_some_and(free) && is_fit
    }

    /// Returns true if a branch other than the one on `port` may get chunks.
    pub(super) fn has_other(&self, port: PortId) -> bool {
        let mut others = self.divided.hops.iter().filter(|it| it.port != port);
        others.any(|it| self.is_usable(it.port))
    }
}

impl DividedStatus {
    /// Returns a report of a divided flow.
    pub(super) fn of(
        neighbours: &Neighbours,
        now: Time,
        flow: &Flow,
        divided: &DividedFlow,
    ) -> DividedStatus {
        let (waiting_bytes, waiting_chunks) = divided.waiting();
        let branches = divided.hops.ports().into_iter();
        let status = |port| status_of(neighbours.at(port), now, flow, port, &divided.record(port));
        DividedStatus {
            source: flow.source,
            destination: flow.destination,
            waiting_bytes,
            waiting_chunks,
            reordering: divided.reordering(),
            branches: branches.map(status).collect(),
        }
    }
}

/// Returns the time at which a silent branch becomes suspect, or `None` if it owes no answer.
pub(super) fn silent_at(link: &Link, flow: &Flow, busy_since: Option<Time>) -> Option<Time> {
    let busy_since = busy_since.filter(|_| link.is_up())?;
    let packets = SILENCE_PACKETS * link.info.mtu as u64;
    let rate = link.hop.delivery_rate()?;
    let sending = time_of(packets, rate);
    let limit = link.hop.suspicion()? + SILENCE_SLACK + sending;
    let carries = link.outbox.carries(flow) && link.outbox.turn_of(flow) == FlowTurn::Free;
    carries.then_some(link.hop.heard_at().max(busy_since) + limit)
}

pub(super) fn measure(link: &Link, flow: &Flow, bytes: u64) -> Measured {
    let stats = link.hop.stats();
    let flows = link.outbox.flows().max(1) as u64;
    let rate = link.hop.delivery_rate().map(|rate| (rate / flows).max(1));
    let round_trip = stats.rtt.unwrap_or_default();
    let (here, queued) = (link.outbox.waiting(flow).0, link.outbox.queued_of(flow));
    let unsent = link.hop.unsent_bytes() as u64;
    let share = |time: Duration| (rate.unwrap_or(0) as u128 * time.as_micros() / 1_000_000) as u64;
    // The hop also holds bytes of other flows, so this flow may have its share of a round trip in it.
    let has_room = queued == 0
        && (unsent < share(LOW_WATER).max(bytes)
            || flows > 1 && here < share(round_trip + LOW_WATER).max(2 * bytes));
    Measured {
        rate,
        round_trip,
        least_round_trip: stats.min_rtt.unwrap_or(round_trip).min(round_trip),
        loss: stats.loss,
        packet: link.info.mtu as u64,
        waiting: unsent.min(here.max(bytes) * flows) + queued,
        has_room,
    }
}
