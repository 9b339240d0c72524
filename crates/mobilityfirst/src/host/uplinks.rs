//! The links by which a host sends.

use std::collections::BTreeSet;

use whimbrel_core::{PortId, PortOrigin};

use super::interfaces::Interfaces;
use super::{LinkPolicy, Way};
use crate::links::Links;
use crate::next_hops::{Branch, NextHops};

/// The links that lead to routers, and their order of preference.
#[derive(Debug)]
pub(super) struct Uplinks {
    // Numbers of configured links, best first.
    preference: Vec<u32>,
    // Ports of inbound peers, which want something of this host. Whatever names they claim, they
    // neither bind this host nor carry what it sends to others.
    callers: BTreeSet<PortId>,
    policy: LinkPolicy,
    pub(super) interfaces: Interfaces,
}

impl Uplinks {
    pub(super) fn new(preference: Vec<u32>, policy: LinkPolicy, interfaces: Interfaces) -> Uplinks {
        Uplinks {
            preference,
            policy,
            interfaces,
            callers: BTreeSet::new(),
        }
    }

    pub(super) fn policy(&self) -> LinkPolicy {
        self.policy
    }

    pub(super) fn set_policy(&mut self, policy: LinkPolicy) {
        self.policy = policy;
    }

    pub(super) fn set_preference(&mut self, preference: Vec<u32>) {
        self.preference = preference;
    }

    /// Returns the ports that may be used, whatever the policy.
    fn admitted(&self, links: &Links) -> impl Iterator<Item = PortId> {
        let own = links.ports().filter(|port| self.has(*port));
        own.filter(|port| self.interfaces.admits(*port))
    }

    /// Returns true if the policy uses the link of a port now.
    pub(super) fn is_chosen(&self, port: PortId, links: &Links) -> bool {
        let preferred = self.port_by(Way::Uplink, links);
        preferred == Some(port) || self.goes_with(preferred, port, links)
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
    pub(super) fn hops(&self, way: Way, links: &Links) -> NextHops {
        if let Way::Caller(port) = way {
            return NextHops::from_iter([Branch::over(port, links)]);
        }
        let mut ranked: Vec<Branch> = self
            .admitted(links)
            .map(|port| Branch {
                preference: self.rank(port, links),
                weight: self.interfaces.weight_of(port, links),
                ..Branch::over(port, links)
            })
            .collect();
        // The preferred one goes first where one is enough.
        ranked.sort_by_key(|branch| branch.preference);
        let preferred = self.port_by(way, links);
        for branch in &mut ranked {
            if self.goes_with(preferred, branch.port, links) {
                branch.preference = 0;
            }
        }
        ranked.into_iter().collect()
    }

    /// Returns true if this host is to use several uplinks at once and has them.
    pub(super) fn are_several(&self, links: &Links) -> bool {
        let preferred = self.port_by(Way::Uplink, links);
        let up = self.admitted(links).filter(|port| links.is_up(*port));
        let together = up.filter(|port| self.goes_with(preferred, *port, links));
        together.take(2).count() == 2
    }

    /// Returns true if what this host fetches may come over several uplinks: now, or as soon as one that
    /// is silent answers. Who divides has to be asked before that, with the request.
    pub(super) fn may_be_several(&self, links: &Links) -> bool {
        let preferred = self.port_by(Way::Uplink, links);
        let own = self.admitted(links);
        let together = own.filter(|port| self.goes_with(preferred, *port, links));
        together.take(2).count() == 2
    }

    /// Returns true if the uplink on `port` is used together with the preferred one.
    fn goes_with(&self, preferred: Option<PortId>, port: PortId, links: &Links) -> bool {
        let Some(preferred) = preferred else {
            return false;
        };
        match self.policy {
            LinkPolicy::Everywhere | LinkPolicy::Weights => true,
            // Another router may reach other destinations.
            LinkPolicy::All => links.neighbour(port) == links.neighbour(preferred),
            LinkPolicy::Order => false,
        }
    }

    fn rank(&self, port: PortId, links: &Links) -> u32 {
        let origin = links.info(port).map(|info| info.origin);
        let mut preferred = self.preference.iter();
        preferred
            .position(|link| origin == Some(PortOrigin::Configured(*link)))
            .map_or(u32::MAX, |rank| rank as u32 + 1)
    }

    /// Returns the port of the best of these next hops, found without measuring them.
    pub(super) fn port_by(&self, way: Way, links: &Links) -> Option<PortId> {
        if let Way::Caller(port) = way {
            return Some(port).filter(|port| links.is_up(*port));
        }
        self.admitted(links)
            .filter(|port| links.is_up(*port))
            .min_by_key(|port| self.rank(*port, links))
    }
}
