//! Sets of next hops, and the one place that selects among them.
//!
//! Static routes, attachments and bindings each yield a set. [`NextHops::select`] selects from it
//! according to the chunk's service: one branch, or a division of the flow among them [MF-5G §III].

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, LinkState, PortId, SeededRng};

use crate::chunk::Chunk;
use crate::outbox::flow_of;
use crate::outgoing::ChunkToSend;
use crate::split::Scheduler;
use crate::wire::{Flow, MAX_CARRIED_ADDRESSES, ServiceId};

/// Maximum of flows whose division is remembered; beyond it, the least recently used starts over.
const MAX_DIVIDED_FLOWS: usize = 1024;
/// A flow that keeps its branch is idle when this number of chunks of such flows has passed since its last one.
const IDLE_AFTER: u64 = 256;
/// Units of a branch's clock for one byte at share 1.
const SCALE: u128 = 1 << 32;

/// One next hop of a destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Branch {
    /// The outgoing port.
    pub port: PortId,
    /// The network address that a chunk gets on this branch; `None` leaves it unchanged.
    pub address: Option<Guid>,
    /// Lower is better.
    pub preference: u32,
    /// Share among branches of the same preference; at least 1.
    pub weight: u32,
    /// True for a learned way that costs about as much as the best one.
    pub is_alike: bool,
    /// True while the neighbour is responsive.
    pub up: bool,
    /// The measured state of the link.
    pub link: LinkState,
}

/// The next hops of one destination, best first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NextHops {
    branches: Vec<Branch>,
}

/// The number of next hops that a chunk takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Spread {
    /// The best responsive one.
    #[default]
    Best,
    /// One of those that are as good as the best: the one with the fewest flows, which the flow keeps.
    Keep,
    /// Multihoming: one, so that the flow's bytes are divided by weight and measured rate among the
    /// responsive ones of the best preference.
    Divide,
}

impl Spread {
    /// Returns the spread of a chunk's service.
    pub fn of(service: ServiceId) -> Spread {
        if service.has(ServiceId::MULTIHOMING) {
            Spread::Divide
        } else {
            Spread::Best
        }
    }
}

impl Spread {
    /// Returns the spread of a chunk. What goes before all others takes the best way: it is short, and
    /// a node waits for it.
    pub(crate) fn of_chunk(chunk: &Chunk) -> Spread {
        match Spread::of(chunk.header.service) {
            _ if flow_of(chunk) != Some(chunk.flow()) => Spread::Best,
            Spread::Best => Spread::Keep,
            spread => spread,
        }
    }
}

/// The preference of a record's address is above the sixteen bits of a route's.
const ADDRESS_PREFERENCE: u32 = 16;

impl Branch {
    /// Returns the preference of a branch of a record: its address's before its route's.
    pub(crate) fn preference_of(address: u8, route: u32) -> u32 {
        u32::from(address) << ADDRESS_PREFERENCE | route
    }

    /// Returns the preference of its address alone.
    pub(crate) fn rank(&self) -> u32 {
        self.preference >> ADDRESS_PREFERENCE
    }
}

impl ChunkToSend {
    /// Returns the chunk as it leaves over this branch of `hops`: bound to its address, and if it may be
    /// divided, to all that this port leads to. Their ways part further on.
    pub(crate) fn over(mut self, branch: &Branch, hops: &NextHops) -> ChunkToSend {
        if let Some(address) = branch.address {
            let header = &mut self.chunk.header;
            header.destination_address = address;
            if header.service.has(ServiceId::MULTIHOMING) {
                header.extensions.addresses = hops.addresses_by(branch);
            }
        }
        self
    }
}

impl FromIterator<Branch> for NextHops {
    fn from_iter<I: IntoIterator<Item = Branch>>(branches: I) -> NextHops {
        let mut branches: Vec<Branch> = branches.into_iter().collect();
        // Stable: among equals, the first one named is preferred.
        branches.sort_by_key(|branch| branch.preference);
        NextHops { branches }
    }
}

impl NextHops {
    /// Returns the same branches with one preference: a flow may be divided among all of them.
    #[must_use]
    pub fn as_equals(mut self) -> NextHops {
        self.branches.iter_mut().for_each(|it| it.preference = 0);
        self
    }

    /// Returns true if there are no branches.
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    /// Returns all branches, best first.
    pub fn iter(&self) -> impl Iterator<Item = &Branch> {
        self.branches.iter()
    }

    /// Returns the best responsive branch.
    pub fn best(&self) -> Option<&Branch> {
        self.branches.iter().find(|branch| branch.up)
    }

    /// Returns the ports of all branches, each once.
    pub fn ports(&self) -> Vec<PortId> {
        let ports: BTreeSet<PortId> = self.branches.iter().map(|branch| branch.port).collect();
        ports.into_iter().collect()
    }

    /// Removes the branches for which `fits` is false.
    pub fn retain(&mut self, fits: impl FnMut(&Branch) -> bool) {
        self.branches.retain(fits);
    }

    /// Returns the same next hops; a chunk gets this network address on every branch.
    pub fn at_address(&self, address: Guid) -> NextHops {
        self.at_addresses(&[address])
    }

    /// Returns the same next hops, each once for every one of these network addresses.
    pub fn at_addresses(&self, addresses: &[Guid]) -> NextHops {
        let at = |branch: &Branch, address: &Guid| Branch {
            address: Some(*address),
            ..*branch
        };
        let branches = self.iter();
        branches
            .flat_map(|branch| addresses.iter().map(move |address| at(branch, address)))
            .collect()
    }

    /// Returns the addresses that the port of `branch` leads to with its preference, that of `branch`
    /// first.
    pub(crate) fn addresses_by(&self, branch: &Branch) -> Vec<Guid> {
        let is_along = |it: &&Branch| it.port == branch.port && it.preference == branch.preference;
        let along = self.iter().filter(is_along).filter_map(|it| it.address);
        let mut addresses: Vec<Guid> = branch.address.into_iter().collect();
        for address in along {
            if addresses.len() < MAX_CARRIED_ADDRESSES && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }

    /// Updates the states of the links; `over` is the branch over a port.
    pub fn refresh(&mut self, over: impl Fn(PortId) -> Branch) {
        for branch in &mut self.branches {
            let Branch { up, link, .. } = over(branch.port);
            (branch.up, branch.link) = (up, link);
        }
    }

    /// Returns the branches for the next `bytes` bytes of `flow`; empty if none is responsive.
    pub fn select<'a>(
        &'a self,
        spread: Spread,
        flow: Flow,
        bytes: usize,
        divisions: &mut Divisions,
    ) -> impl Iterator<Item = &'a Branch> + use<'a> {
        let chosen = match spread {
            Spread::Best => self.one(|branch| branch.up),
            Spread::Keep => match self.best() {
                Some(best) if best.is_alike => {
                    let is_like = |it: &&Branch| it.is_alike && it.address == best.address;
                    let peers = self.iter().filter(|it| it.is_peer_of(best));
                    let kept = divisions.keep(flow, &peers.filter(is_like).collect::<Vec<_>>());
                    self.one(|branch| Some(branch.key()) == kept)
                }
                _ => self.one(|branch| branch.up),
            },
            Spread::Divide => {
                let peers: Vec<&Branch> = match self.best() {
                    Some(best) => self.iter().filter(|it| it.is_peer_of(best)).collect(),
                    None => Vec::new(),
                };
                match divisions.next(flow, &peers, bytes) {
                    Some(chosen) => self.one(|branch| branch.key() == chosen),
                    None => 0..0,
                }
            }
        };
        self.branches[chosen].iter().filter(|branch| branch.up)
    }

    /// Returns the index of the first branch that fits.
    fn one(&self, fits: impl Fn(&Branch) -> bool) -> core::ops::Range<usize> {
        match self.branches.iter().position(fits) {
            Some(at) => at..at + 1,
            None => 0..0,
        }
    }
}

/// Identifies a branch while its state changes.
type BranchKey = (PortId, Option<Guid>);

impl Branch {
    fn key(&self) -> BranchKey {
        (self.port, self.address)
    }

    fn is_peer_of(&self, best: &Branch) -> bool {
        self.up && self.preference == best.preference
    }
}

/// The progress of each divided flow on each of its branches, for the schedulers that bind a chunk
/// to a branch when it comes, and the branch of each flow that is not divided.
#[derive(Debug)]
pub struct Divisions {
    scheduler: Scheduler,
    by_flow: BTreeMap<Flow, Division>,
    // The branch of a flow, and when it was used last.
    kept: BTreeMap<Flow, (BranchKey, u64)>,
    uses: u64,
    rng: SeededRng,
}

/// Weighted fair queueing in reverse: the branch whose clock would show the least after the next
/// bytes gets them, and a larger share slows a branch's clock down.
#[derive(Debug, Default)]
struct Division {
    // The clock at which a new branch joins.
    now: u128,
    clocks: BTreeMap<BranchKey, u128>,
    last_use: u64,
}

impl Divisions {
    /// No flow is divided yet. What is drawn at random comes from `seed`.
    pub fn new(scheduler: Scheduler, seed: u64) -> Divisions {
        Divisions {
            scheduler,
            by_flow: BTreeMap::new(),
            kept: BTreeMap::new(),
            uses: 0,
            rng: SeededRng::new(seed),
        }
    }

    /// Divides by another rule from now on.
    pub fn set_scheduler(&mut self, scheduler: Scheduler) {
        self.scheduler = scheduler;
        self.by_flow.clear();
    }

    /// The prototype's choice [MF-PROTO]: a branch drawn with the measured rates as weights. It asks
    /// a branch's end for the rate; here one that is not measured yet counts as the mean of the
    /// others, or it would never be.
    fn draw(&mut self, peers: &[&Branch]) -> Option<BranchKey> {
        let known = peers.iter().filter_map(|branch| branch.link.delivery_rate);
        let (sum, count) = known.fold((0, 0), |(sum, count), rate| (sum + rate, count + 1));
        let mean = u64::checked_div(sum, count).unwrap_or(1);
        let rate = |branch: &&Branch| branch.link.delivery_rate.unwrap_or(mean).max(1);
        let mut drawn = self.rng.below(peers.iter().map(rate).sum::<u64>().max(1));
        for branch in peers {
            match drawn.checked_sub(rate(branch)) {
                None => return Some(branch.key()),
                Some(left) => drawn = left,
            }
        }
        None
    }

    /// Returns the branch of a flow that is not divided: the one that it has while that is among its peers, else
    /// the one with the fewest busy flows, the best one first.
    fn keep(&mut self, flow: Flow, peers: &[&Branch]) -> Option<BranchKey> {
        self.uses += 1;
        let kept = self.kept.remove(&flow).map(|(key, _)| key);
        let chosen = match kept.filter(|key| peers.iter().any(|it| it.key() == *key)) {
            Some(key) => key,
            None => {
                let idle_since = self.uses.saturating_sub(IDLE_AFTER);
                let busy = self.kept.values().filter(|(_, used)| *used > idle_since);
                let ports: Vec<PortId> = busy.map(|((port, _), _)| *port).collect();
                let flows = |it: &&&Branch| ports.iter().filter(|port| **port == it.port).count();
                peers.iter().min_by_key(flows)?.key()
            }
        };
        if self.kept.len() >= MAX_DIVIDED_FLOWS {
            let oldest = self.kept.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(flow, _)| *flow) {
                self.kept.remove(&oldest);
            }
        }
        self.kept.insert(flow, (chosen, self.uses));
        Some(chosen)
    }

    fn next(&mut self, flow: Flow, peers: &[&Branch], bytes: usize) -> Option<BranchKey> {
        if self.scheduler == Scheduler::Paper {
            return self.draw(peers);
        }
        self.uses += 1;
        if self.by_flow.len() >= MAX_DIVIDED_FLOWS && !self.by_flow.contains_key(&flow) {
            let oldest = self.by_flow.iter().min_by_key(|(_, it)| it.last_use);
            if let Some(oldest) = oldest.map(|(flow, _)| *flow) {
                self.by_flow.remove(&oldest);
            }
        }
        let division = self.by_flow.entry(flow).or_default();
        division.last_use = self.uses;
        match self.scheduler {
            Scheduler::RoundRobin => {
                let equal = |it: &&Branch| Branch { weight: 1, ..**it };
                let equal: Vec<Branch> = peers.iter().map(equal).collect();
                division.next(&equal.iter().collect::<Vec<_>>(), 1)
            }
            _ => division.next(peers, bytes),
        }
    }
}

impl Division {
    fn next(&mut self, peers: &[&Branch], bytes: usize) -> Option<BranchKey> {
        self.clocks
            .retain(|key, _| peers.iter().any(|it| it.key() == *key));
        for branch in peers {
            self.clocks.entry(branch.key()).or_insert(self.now);
        }
        let after = |branch: &Branch| {
            let share = u128::from(branch.weight.max(1));
            let clock = self.clocks.get(&branch.key()).copied().unwrap_or(self.now);
            // Above zero even for an empty chunk at the largest share, so that each chunk counts.
            clock + (bytes as u128 * SCALE / share).max(1)
        };
        let (clock, key) = peers
            .iter()
            .map(|branch| (after(branch), branch.key()))
            .min_by_key(|(clock, _)| *clock)?;
        self.clocks.insert(key, clock);
        self.now = self.clocks.values().copied().min().unwrap_or(clock);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: Flow = Flow::requested(Guid([1; 32]), Guid([2; 32]));

    fn branch(port: u32, preference: u32, weight: u32, rate: u64) -> Branch {
        Branch {
            port: PortId(port),
            address: None,
            preference,
            weight,
            is_alike: false,
            up: true,
            link: LinkState {
                delivery_rate: (rate > 0).then_some(rate),
                ..LinkState::default()
            },
        }
    }

    fn ports(hops: &NextHops, spread: Spread, divisions: &mut Divisions) -> Vec<u32> {
        hops.select(spread, FLOW, 1000, divisions)
            .map(|branch| branch.port.0)
            .collect()
    }

    fn divide(hops: &NextHops, chunks: usize) -> BTreeMap<u32, usize> {
        let mut divisions = Divisions::new(Scheduler::Weights, 1);
        let mut counts = BTreeMap::new();
        for _ in 0..chunks {
            for port in ports(hops, Spread::Divide, &mut divisions) {
                *counts.entry(port).or_default() += 1;
            }
        }
        counts
    }

    #[test]
    fn a_chunk_carries_the_addresses_that_its_port_leads_to() {
        let [near, far, other, dear] = [1, 2, 3, 4].map(|it| Guid([it; 32]));
        let at = |branch: Branch, address| Branch {
            address: Some(address),
            ..branch
        };
        let hops = NextHops::from_iter([
            at(branch(1, 0, 1, 0), near),
            at(branch(2, 0, 1, 0), other),
            at(branch(1, 0, 1, 0), far),
            at(branch(1, 1, 1, 0), dear),
        ]);
        let carried: Vec<Vec<Guid>> = hops.iter().map(|it| hops.addresses_by(it)).collect();
        assert_eq!(
            carried,
            [vec![near, far], vec![other], vec![far, near], vec![dear]]
        );
        // What waited in the storage without next hops of its own had several addresses.
        let stored = NextHops::from_iter([branch(1, 0, 1, 0)]).at_addresses(&[near, far]);
        let first = stored.best().unwrap();
        assert_eq!(stored.addresses_by(first), [near, far]);
    }

    #[test]
    fn one_takes_the_best_that_answers() {
        let mut best = branch(1, 0, 1, 0);
        let hops = |best| NextHops::from_iter([branch(2, 1, 1, 0), best, branch(3, 1, 1, 0)]);
        let mut divisions = Divisions::new(Scheduler::Weights, 1);
        assert_eq!(ports(&hops(best), Spread::Best, &mut divisions), [1]);
        best.up = false;
        assert_eq!(ports(&hops(best), Spread::Best, &mut divisions), [2]);
        let silent = NextHops::from_iter([best]);
        for spread in [Spread::Best, Spread::Divide] {
            assert!(ports(&silent, spread, &mut divisions).is_empty());
        }
    }

    #[test]
    fn a_flow_takes_the_alike_branch_with_the_fewest_flows_and_keeps_it() {
        let alike = |port, is_alike| Branch {
            is_alike,
            ..branch(port, 0, 1, 0)
        };
        let mut divisions = Divisions::new(Scheduler::Weights, 1);
        let mut taken = |ports: [bool; 3], flow: u8| {
            let branches = [1, 2, 3].into_iter().zip(ports);
            let hops: NextHops = branches.map(|(port, it)| alike(port, it)).collect();
            let flow = Flow::requested(Guid([flow; 32]), Guid([9; 32]));
            let mut chosen = hops.select(Spread::Keep, flow, 1000, &mut divisions);
            chosen.next().map(|it| it.port.0)
        };
        let [all, two, only] = [[true; 3], [true, true, false], [true, false, false]];
        assert_eq!([1, 2, 3].map(|flow| taken(two, flow)), [1, 2, 1].map(Some));
        // A way that comes later takes new flows alone, and one that has gone leaves its flows to others.
        assert_eq!([1, 2, 3].map(|flow| taken(all, flow)), [1, 2, 1].map(Some));
        assert_eq!(taken(all, 4), Some(3));
        assert_eq!(taken(only, 2), Some(1));
        assert_eq!(taken(all, 2), Some(1));
        // Flows that have ended no longer count.
        for _ in 0..IDLE_AFTER {
            taken(all, 4);
        }
        assert_eq!(taken(all, 5), Some(1));
        // What no learned way leads to takes the best branch.
        assert_eq!(taken([false; 3], 4), Some(1));
    }

    #[test]
    fn a_flow_is_divided_by_weight() {
        let hops = NextHops::from_iter([branch(1, 0, 3, 0), branch(2, 0, 1, 0)]);
        assert_eq!(divide(&hops, 400), BTreeMap::from([(1, 300), (2, 100)]));
    }

    #[test]
    fn a_worse_preference_takes_part_only_when_the_better_ones_are_silent() {
        let mut better = branch(1, 0, 1, 0);
        let hops = NextHops::from_iter([better, branch(2, 1, 1, 0)]);
        assert_eq!(divide(&hops, 10), BTreeMap::from([(1, 10)]));
        better.up = false;
        let hops = NextHops::from_iter([better, branch(2, 1, 1, 0)]);
        assert_eq!(divide(&hops, 10), BTreeMap::from([(2, 10)]));
    }

    #[test]
    fn a_branch_that_joins_late_gets_its_share_and_no_more() {
        let mut divisions = Divisions::new(Scheduler::Weights, 1);
        let alone = NextHops::from_iter([branch(1, 0, 1, 0)]);
        for _ in 0..1000 {
            ports(&alone, Spread::Divide, &mut divisions);
        }
        let both = NextHops::from_iter([branch(1, 0, 1, 0), branch(2, 0, 1, 0)]);
        let late = (0..100)
            .flat_map(|_| ports(&both, Spread::Divide, &mut divisions))
            .filter(|port| *port == 2)
            .count();
        assert!((49..=51).contains(&late), "{late} of 100");
    }

    #[test]
    fn the_number_of_flows_that_are_remembered_is_bounded() {
        let hops = NextHops::from_iter([branch(1, 0, 1, 0), branch(2, 0, 1, 0)]);
        let mut divisions = Divisions::new(Scheduler::Weights, 1);
        for number in 0..2 * MAX_DIVIDED_FLOWS as u32 {
            let mut source = [0; 32];
            source[..4].copy_from_slice(&number.to_be_bytes());
            let flow = Flow {
                source: Guid(source),
                ..FLOW
            };
            let _ = hops.select(Spread::Divide, flow, 1, &mut divisions).count();
        }
        assert_eq!(divisions.by_flow.len(), MAX_DIVIDED_FLOWS);
    }
}
