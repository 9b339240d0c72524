//! A host's access to the network: its links, those by which it sends, and what leaves by them.

use std::collections::BTreeSet;

use whimbrel_core::{Guid, PortId, PortOrigin, SeededRng};
use whimbrel_link::Room;

use super::effects::{Located, Treatment, Uplink};
use super::interfaces::{InterfaceChange, InterfaceReview, Interfaces, InterfacesStatus};
use super::{HostConfig, LinkPolicy, Way};
use crate::chunk::Chunk;
use crate::chunk_size::Path;
use crate::links::{ChunkToSend, Link, Links};
use crate::next_hops::{Branch, Divisions, NextHops, Spread};
use crate::outbox::flow_of;
use crate::split::{Scheduler, SplitConfig};
use crate::wire::{Control, NetworkHeader, ServiceId, Transport, UpperProtocol};

/// Returns how flows are divided under a policy.
fn split_of(policy: LinkPolicy, configured: SplitConfig) -> SplitConfig {
    match policy {
        LinkPolicy::Weights => SplitConfig {
            scheduler: Scheduler::Weights,
            ..configured
        },
        _ => configured,
    }
}

/// The links of a host, and the order of those that lead to routers.
pub(super) struct Access {
    guid: Guid,
    pub(super) links: Links,
    // Numbers of configured links, best first.
    preference: Vec<u32>,
    // Ports of inbound peers, which want something of this host. Whatever names they claim, they
    // neither bind this host nor carry what it sends to others.
    callers: BTreeSet<PortId>,
    policy: LinkPolicy,
    pub(super) interfaces: Interfaces,
    // As configured; a policy may ask for another division.
    split: SplitConfig,
    divisions: Divisions,
}

impl Access {
    pub(super) fn new(config: &HostConfig, rng: &mut SeededRng) -> Access {
        let (hop, words) = (config.hop.clone(), SeededRng::new(rng.next_word()));
        let mut links = Links::new(hop, config.buffer_packets, words);
        let split = split_of(config.policy, config.split);
        links.set_split(split);
        Access {
            guid: config.keys.guid(),
            links,
            preference: config.preference.clone(),
            callers: BTreeSet::new(),
            policy: config.policy,
            interfaces: Interfaces::new(config.terms.clone(), config.used.clone()),
            split: config.split,
            divisions: Divisions::new(split.scheduler, rng.next_word()),
        }
    }

    pub(super) fn guid(&self) -> Guid {
        self.guid
    }

    /// Returns the ports that may be used, whatever the policy.
    fn admitted(&self) -> impl Iterator<Item = PortId> {
        let own = self.links.ports().filter(|port| self.has(*port));
        own.filter(|port| self.interfaces.admits(*port))
    }

    pub(super) fn note_caller(&mut self, port: PortId) {
        self.callers.insert(port);
    }

    /// Forgets a port that is down. Returns true if it was an inbound peer's.
    pub(super) fn forget_caller(&mut self, port: PortId) -> bool {
        self.callers.remove(&port)
    }

    /// Returns true if this host opened the link of `port`.
    pub(super) fn has(&self, port: PortId) -> bool {
        !self.callers.contains(&port)
    }

    /// Returns the way of an answer to something that came in on a port.
    pub(super) fn way_back(&self, from: PortId) -> Way {
        if self.has(from) {
            Way::Uplink
        } else {
            Way::Caller(from)
        }
    }

    /// Returns the next hops of a way. Uplinks lead to routers, or to the host that this one was
    /// told to ask directly; those without a configured preference come last.
    pub(super) fn hops(&self, way: Way) -> NextHops {
        if let Way::Caller(port) = way {
            return NextHops::from_iter([self.links.branch(port)]);
        }
        let mut ranked: Vec<Branch> = self
            .admitted()
            .map(|port| Branch {
                preference: self.rank(port),
                weight: self.interfaces.weight_of(port, &self.links),
                ..self.links.branch(port)
            })
            .collect();
        // The preferred one goes first where one is enough.
        ranked.sort_by_key(|branch| branch.preference);
        let preferred = self.port_by(way);
        for branch in &mut ranked {
            if self.goes_with(preferred, branch.port) {
                branch.preference = 0;
            }
        }
        ranked.into_iter().collect()
    }

    /// Returns true if this host is to use several uplinks at once and has them.
    pub(super) fn are_several(&self) -> bool {
        let preferred = self.port_by(Way::Uplink);
        let up = self.admitted().filter(|port| self.links.is_up(*port));
        let together = up.filter(|port| self.goes_with(preferred, *port));
        together.take(2).count() == 2
    }

    /// Returns true if what this host fetches may come over several uplinks: now, or as soon as one that
    /// is silent answers. Who divides has to be asked before that, with the request.
    pub(super) fn may_be_several(&self) -> bool {
        let preferred = self.port_by(Way::Uplink);
        let own = self.admitted();
        let together = own.filter(|port| self.goes_with(preferred, *port));
        together.take(2).count() == 2
    }

    /// Returns true if the uplink on `port` is used together with the preferred one.
    fn goes_with(&self, preferred: Option<PortId>, port: PortId) -> bool {
        let Some(preferred) = preferred else {
            return false;
        };
        match self.policy {
            LinkPolicy::Everywhere | LinkPolicy::Weights => true,
            // Another router may reach other destinations.
            LinkPolicy::All => self.links.neighbour(port) == self.links.neighbour(preferred),
            LinkPolicy::Order => false,
        }
    }

    fn rank(&self, port: PortId) -> u32 {
        let origin = self.links.info(port).map(|info| info.origin);
        let mut preferred = self.preference.iter();
        preferred
            .position(|link| origin == Some(PortOrigin::Configured(*link)))
            .map_or(u32::MAX, |rank| rank as u32 + 1)
    }

    /// Returns the port of the best of these next hops, found without measuring them.
    pub(super) fn port_by(&self, way: Way) -> Option<PortId> {
        if let Way::Caller(port) = way {
            return Some(port).filter(|port| self.links.is_up(*port));
        }
        self.admitted()
            .filter(|port| self.links.is_up(*port))
            .min_by_key(|port| self.rank(*port))
    }

    /// Returns the port of an inbound peer that has proven this name.
    pub(super) fn port_of_caller(&self, name: &Guid) -> Option<PortId> {
        let mut ports = self.links.neighbours.ports_of(name);
        ports.find(|port| !self.has(*port) && self.links.is_up(*port))
    }

    /// Returns the state of the way to an inbound peer that a download asks, or else of the uplink.
    pub(super) fn uplink_to(&self, caller: Option<Guid>) -> Uplink {
        match caller {
            Some(caller) => self.way_by(self.port_of_caller(&caller), None),
            None => self.uplink(),
        }
    }

    /// Returns the state of the uplink.
    pub(super) fn uplink(&self) -> Uplink {
        let port = self.port_by(Way::Uplink);
        let router = port.and_then(|port| self.links.neighbour(port));
        self.way_by(port, router)
    }

    fn way_by(&self, port: Option<PortId>, router: Option<Guid>) -> Uplink {
        let link = port.and_then(|port| self.links.at(port));
        Uplink {
            is_up: port.is_some(),
            router,
            round_trip: link.and_then(Link::min_rtt),
            is_measuring: link.is_some_and(Link::is_measuring),
        }
    }

    /// Returns what is known of the path to the receiver of a content of this length.
    pub(super) fn path_to(&self, way: Way, header: &NetworkHeader, bytes: Option<u64>) -> Path {
        let port = self.port_by(way);
        let are_several = way == Way::Uplink && self.are_several();
        Path {
            bytes,
            hops: header.links_behind(),
            rate: port.and_then(|port| self.links.neighbours.rate_to(port)),
            is_divided: are_several || header.service.has(ServiceId::MULTIHOMING),
        }
    }

    /// Judges the links anew.
    pub(super) fn review(&mut self, unix_ms: u64) -> InterfaceReview {
        let callers = &self.callers;
        let is_own = |port| !callers.contains(&port);
        self.interfaces.review(unix_ms, &self.links, is_own)
    }

    /// Makes a change of the links, or of their use. The error says what is wrong.
    pub(super) fn change(&mut self, change: &InterfaceChange) -> Result<(), String> {
        let labels = change.preference.iter().flatten();
        let numbers = labels.map(|label| {
            let number = Interfaces::number_of_label(label, &self.links);
            number.ok_or_else(|| format!("no link has the label \"{label}\""))
        });
        let numbers: Vec<u32> = numbers.collect::<Result<_, _>>()?;
        if let Some(link) = &change.link {
            self.interfaces.change(link, &self.links)?;
        }
        if change.preference.is_some() {
            self.preference = numbers;
        }
        if let Some(policy) = change.policy {
            self.policy = policy;
            let split = split_of(policy, self.split);
            self.links.set_split(split);
            self.divisions.set_scheduler(split.scheduler);
        }
        Ok(())
    }

    /// Describes the links to routers, with the error of a change.
    pub(super) fn status(&self, error: Option<String>) -> InterfacesStatus {
        let preferred = self.port_by(Way::Uplink);
        let describe = |port| {
            let chosen = preferred == Some(port) || self.goes_with(preferred, port);
            self.interfaces.describe(port, chosen, &self.links)
        };
        let ports = self.links.ports().filter(|port| self.has(*port));
        InterfacesStatus {
            policy: self.policy,
            interfaces: ports.filter_map(describe).collect(),
            error,
        }
    }

    pub(super) fn header(
        &self,
        way: Way,
        service: ServiceId,
        upper: UpperProtocol,
        to: Located,
    ) -> NetworkHeader {
        let mut header = NetworkHeader::new(service, upper, self.guid, to.name);
        let router = self.port_by(way);
        let router = router.and_then(|port| self.links.neighbour(port));
        header.source_address = router.unwrap_or(Guid::NONE);
        header.destination_address = to.address;
        header
    }

    /// Sends a chunk of this host by as many next hops as its service asks for. Returns false if no
    /// node answers on that way. `divides` goes before the policy.
    pub(super) fn send(&mut self, way: Way, chunk: Chunk, divides: Option<bool>) -> bool {
        self.send_holding(way, chunk, divides, &Room::default())
    }

    /// The same for a chunk that holds room until it has left.
    pub(super) fn send_holding(
        &mut self,
        way: Way,
        chunk: Chunk,
        divides: Option<bool>,
        room: &Room,
    ) -> bool {
        let hops = match divides {
            Some(true) => self.hops(way).as_equals(),
            Some(false) | None => self.hops(way),
        };
        let mut spread = Spread::of_chunk(&chunk);
        // What this host sends is its own to divide.
        if way == Way::Uplink && flow_of(&chunk) == Some(chunk.flow()) {
            spread = match divides.unwrap_or_else(|| self.are_several()) {
                true => Spread::Divide,
                false if divides == Some(false) => Spread::Best,
                false => spread,
            };
        }
        if spread == Spread::Divide
            && hops.best().is_some()
            && self.links.division.may_divide(&chunk.flow(), &hops)
        {
            self.links
                .divide(ChunkToSend::originated(chunk, room.clone()), &hops);
            return true;
        }
        let chosen = hops.select(spread, chunk.flow(), chunk.size(), &mut self.divisions);
        let mut sent = false;
        for branch in chosen {
            let outgoing = ChunkToSend::originated(chunk.clone(), room.clone());
            sent |= self.links.enqueue(branch.port, outgoing).is_ok();
        }
        sent
    }

    /// Sends a transport message about a request.
    pub(super) fn send_transport(
        &mut self,
        way: Way,
        treatment: Treatment,
        to: Located,
        request_id: Option<u64>,
        message: &Transport,
    ) -> bool {
        let asks = matches!(
            message,
            Transport::Request(_) | Transport::Nack(_) | Transport::Resend(_)
        );
        let Treatment {
            service, divides, ..
        } = treatment;
        let asks = asks && way == Way::Uplink;
        let service = match asks && divides.unwrap_or_else(|| self.may_be_several()) {
            true => service.with(ServiceId::MULTIHOMING),
            false => service,
        };
        let mut header = self.header(way, service, UpperProtocol::Transport, to);
        header.extensions.request = request_id;
        header.extensions.lifetime_ms = treatment.lifetime_ms;
        header.extensions.nack_routers = treatment.nack_routers;
        self.send(way, Chunk::of_transport(header, message), divides)
    }

    /// Sends a control message to the router on a port, unless the port is gone.
    pub(super) fn send_control(&mut self, port: PortId, control: &Control) {
        let Some(router) = self.links.neighbour(port) else {
            return;
        };
        let chunk = Chunk::to_neighbour(self.guid, router, control);
        let outgoing = ChunkToSend::originated(chunk, Room::default());
        let _ = self.links.enqueue(port, outgoing);
    }
}
