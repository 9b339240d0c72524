//! Routes to network addresses: neighbours, static routes, the default route.

use whimbrel_core::Guid;
use whimbrel_gnrs::Answer;

use super::{NextHop, Route};
use crate::links::Links;
use crate::next_hops::{Branch, NextHops};

/// The configured routes of a router.
#[derive(Debug)]
pub(super) struct Routes {
    // This router's GUID.
    own: Guid,
    routes: Vec<Route>,
    default: Option<NextHop>,
}

impl Routes {
    pub(super) fn new(own: Guid, routes: Vec<Route>, default: Option<NextHop>) -> Routes {
        Routes {
            own,
            routes,
            default,
        }
    }

    /// Returns the next hops of a network address: the ports of the neighbour with this address,
    /// else those of its routes, else the default route's.
    pub(super) fn towards(&self, address: &Guid, links: &Links) -> NextHops {
        let over = |port| Branch::over(port, links);
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

    /// Returns true if a name is that of a router in this router's configuration: such a name is
    /// its own address. An inbound peer may claim any name, so inbound peers do not count.
    pub(super) fn is_router(&self, name: &Guid, links: &Links) -> bool {
        let configured = |port| links.info(port).is_some_and(|info| info.origin.is_chosen());
        self.routes.iter().any(|route| route.to == *name)
            || links.neighbours.port_of(name).is_some_and(configured)
    }
}
