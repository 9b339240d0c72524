//! The ways to network addresses: neighbours, static routes, the default route.

use whimbrel_core::Guid;

use super::{NextHop, Route};
use crate::links::Links;
use crate::next_hops::{Branch, NextHops};

/// The configured routes of a router.
#[derive(Debug)]
pub(super) struct Routes {
    routes: Vec<Route>,
    default: Option<NextHop>,
}

impl Routes {
    pub(super) fn new(routes: Vec<Route>, default: Option<NextHop>) -> Routes {
        Routes { routes, default }
    }

    /// The next hops to a network address: the ports of the neighbour whose own it is, else those of
    /// its routes, else the default route's.
    pub(super) fn towards(&self, address: &Guid, links: &Links) -> NextHops {
        let over = |port| Branch::over(port, links);
        let neighbours: NextHops = links.ports_of(address).map(over).collect();
        if !neighbours.is_empty() {
            return neighbours;
        }
        let mut vias = self
            .routes
            .iter()
            .filter(|route| route.to == *address)
            .map(|route| &route.via)
            .peekable();
        let default = match vias.peek() {
            Some(_) => None,
            None => self.default.as_ref(),
        };
        // Ports that are named first are preferred.
        let ports = vias.chain(default).enumerate();
        ports
            .filter_map(|(preference, via)| {
                let port = match via {
                    NextHop::Neighbour(guid) => links.port_of(guid),
                    NextHop::Link(link) => links.port_of_link(*link),
                };
                let preference = preference as u32;
                port.map(|port| Branch {
                    preference,
                    ..over(port)
                })
            })
            .collect()
    }

    /// True if a name is that of a router in this one's configuration: such a name is its own
    /// address. A caller may give itself any name, so callers do not count.
    pub(super) fn is_router(&self, name: &Guid, links: &Links) -> bool {
        let configured = |port| links.info(port).is_some_and(|info| info.origin.is_chosen());
        self.routes.iter().any(|route| route.to == *name)
            || links.port_of(name).is_some_and(configured)
    }
}
