//! Routes to network addresses: neighbours, static routes, learned ways, the default route.

use core::time::Duration;

use whimbrel_core::Guid;
use whimbrel_gnrs::Answer;
use whimbrel_routing::Way;

use super::config::{NextHop, Route};
use super::learning::Learning;
use crate::links::{ChunkToSend, Links};
use crate::next_hops::{Branch, NextHops};
use crate::wire::ServiceId;

/// A way costs at most this many times as much as the best one if a flow is divided among both.
const DIVIDED_UP_TO: u32 = 2;
/// A way costs about as much as the best one if the difference is at most one in this number: the announced cost of a
/// link may be as far from the measured one.
const ALIKE: u32 = 4;
/// The weight of the best way; that of others falls with their costs.
const BEST_WEIGHT: u64 = 100;

/// The routes of a router: the configured ones, and those that it learns.
#[derive(Debug)]
pub(super) struct Routes {
    // This router's GUID.
    own: Guid,
    routes: Vec<Route>,
    default: Option<NextHop>,
    pub(super) learning: Learning,
}

impl Routes {
    pub(super) fn new(own: Guid, routes: Vec<Route>, default: Option<NextHop>) -> Routes {
        Routes {
            own,
            routes,
            default,
            learning: Learning::default(),
        }
    }

    /// Returns the next hops of a network address. A configured route that responds wins; then learned
    /// ways count, which lead around a neighbour's link that is worse than another way. Towards an address that
    /// is out of reach, the neighbour counts that is usually closer to it.
    pub(super) fn towards(&self, address: &Guid, links: &Links) -> NextHops {
        let ways = self.learning.ways(address);
        if ways.is_empty() {
            let configured = self.configured(address, links);
            let carrier = self.learning.carrier(address);
            return match carrier {
                Some(way) if configured.best().is_none() => branches_of(&[*way], links),
                _ => configured,
            };
        }
        let is_configured = self.routes.iter().any(|route| route.to == *address);
        let configured = is_configured.then(|| self.configured(address, links));
        match configured.filter(|hops| hops.best().is_some()) {
            Some(configured) => configured,
            None => branches_of(ways, links),
        }
    }

    /// Returns the next hops without learned ways: the ports of the neighbour with this address, else
    /// those of its routes, else the default route's.
    fn configured(&self, address: &Guid, links: &Links) -> NextHops {
        let over = |port| links.branch(port);
        let neighbours: NextHops = links.neighbours.ports_of(address).map(over).collect();
        if !neighbours.is_empty() {
            return neighbours;
        }
        let branch = |via: &NextHop| {
            let port = match via {
                NextHop::Neighbour(guid) => links.neighbours.port_of(guid),
                NextHop::Link(link) => links.neighbours.port_of_link(*link),
            };
            port.map(over)
        };
        let mut routes = self
            .routes
            .iter()
            .filter(|route| route.to == *address)
            .peekable();
        if routes.peek().is_none() {
            return self.default.as_ref().and_then(branch).into_iter().collect();
        }
        routes
            .filter_map(|route| {
                Some(Branch {
                    preference: u32::from(route.preference),
                    weight: u32::from(route.weight),
                    ..branch(&route.via)?
                })
            })
            .collect()
    }

    /// Returns the next hops of the addresses of a binding, with their preferences and weights;
    /// `None` if it has no address. Skips this router's own address: the host would be attached.
    pub(super) fn towards_binding(&self, answer: &Answer, links: &Links) -> Option<NextHops> {
        let addresses = answer.binding.as_ref()?.addresses();
        let mut elsewhere = addresses.filter(|at| at.na != self.own).peekable();
        elsewhere.peek()?;
        let mut branches = Vec::new();
        for at in elsewhere {
            let towards = self.towards(&at.na, links);
            branches.extend(towards.iter().map(|branch| Branch {
                address: Some(at.na),
                preference: Branch::preference_of(at.preference, branch.preference),
                weight: u32::from(at.weight) * branch.weight,
                ..*branch
            }));
        }
        Some(branches.into_iter().collect())
    }

    /// Returns the next hops of several addresses, all of one preference.
    pub(super) fn towards_all(&self, addresses: &[Guid], links: &Links) -> NextHops {
        let elsewhere = addresses.iter().filter(|at| **at != self.own);
        let branches = elsewhere.flat_map(|at| {
            let towards = self.towards(at, links);
            let best = towards.best().copied();
            best.map(|branch| Branch {
                address: Some(*at),
                preference: 0,
                ..branch
            })
        });
        branches.collect()
    }

    /// Returns true if a chunk is stored although it has a way, which is much worse than the usual one.
    pub(super) fn waits_for_usual(&self, outgoing: &ChunkToSend, hops: &NextHops) -> bool {
        let header = &outgoing.chunk.header;
        let is_patient = header.service.has(ServiceId::DELAY_TOLERANT);
        let best = hops
            .best()
            .filter(|_| is_patient && outgoing.chunk.data().is_some());
        best.is_some_and(|best| {
            let address = best.address.unwrap_or(header.destination_address);
            self.learning.waits_for_usual(&address, Duration::ZERO)
        })
    }

    /// Returns true if what is stored for a destination, for this long already, waits still for the usual
    /// way.
    pub(super) fn stays_for_usual(&self, stored: Option<Duration>, hops: &NextHops) -> bool {
        let address = hops.best().and_then(|best| best.address);
        let waits = |(address, stored)| self.learning.waits_for_usual(&address, stored);
        address.zip(stored).is_some_and(waits)
    }

    /// Returns true if a name is that of a router in this router's configuration, or of a known one: such a name is
    /// its own address. An inbound peer may claim any name, so inbound peers do not count.
    pub(super) fn is_router(&self, name: &Guid, links: &Links) -> bool {
        let configured = |port| links.info(port).is_some_and(|info| info.origin.is_chosen());
        self.routes.iter().any(|route| route.to == *name)
            || self.learning.knows(name)
            || links.neighbours.port_of(name).is_some_and(configured)
    }
}

/// Returns the branches of learned ways. They are all free of loops, so that a flow may take any of those that cost
/// about as much as the best one, and be divided among more of them. Of several links to a neighbour the first one
/// that is up stands for it.
fn branches_of(ways: &[Way], links: &Links) -> NextHops {
    let best = ways.first().map_or(1, |way| way.cost.0.max(1));
    let branches = ways.iter().flat_map(|way| {
        let cost = way.cost.0.max(1);
        let weight = BEST_WEIGHT * u64::from(best) / u64::from(cost);
        let is_near = cost - best.min(cost) <= best / ALIKE;
        let ports = links.neighbours.ports_of(&way.neighbour);
        let first = links
            .neighbours
            .ports_of(&way.neighbour)
            .find(|port| links.is_up(*port));
        ports.map(move |port| Branch {
            is_alike: is_near && Some(port) == first,
            preference: u32::from(cost > best.saturating_mul(DIVIDED_UP_TO)),
            weight: u32::try_from(weight.max(1)).unwrap_or(1),
            ..links.branch(port)
        })
    });
    branches.collect()
}
