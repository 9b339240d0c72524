//! The source address of frames to a peer.

use std::net::IpAddr;
use std::time::Duration;

use whimbrel_core::Time;

/// After this long a silence, frames to a neighbour leave by the routes' choice again, rather than
/// from the address that the neighbour sent to.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bound of the remembered addresses that routes chose before.
const MAX_FORMER: usize = 4;

/// The source of the frames to one peer, for a socket that is bound to all addresses.
///
/// A peer may know this machine by only one of its addresses, and ignore replies from another one,
/// so replies come from the address that it sent to. A neighbour of this node, however, usually
/// sends to the address that it heard from, which the routes chose. That choice changes when the
/// machine gets a new address or another interface takes over. Such an address is not the
/// neighbour's preference, and is never held on to.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Set for neighbours, to which frames are sent by the routes' choice.
    by_route: bool,
    /// The routes' choice, and earlier ones, newest first.
    routed: Option<IpAddr>,
    former: Vec<IpAddr>,
    /// As the kernel returned it, possibly an IPv4-mapped IPv6 address.
    held: Option<IpAddr>,
    heard_at: Time,
}

impl Source {
    /// Returns the source for a neighbour, at first `routed`.
    pub(super) fn of_neighbour(now: Time, routed: Option<IpAddr>) -> Source {
        Source {
            by_route: true,
            routed,
            former: Vec::new(),
            held: None,
            heard_at: now,
        }
    }

    /// Returns the source for an inbound peer, which is always answered from the address that it
    /// sent to.
    pub(super) fn of_inbound(now: Time) -> Source {
        Source {
            by_route: false,
            ..Source::of_neighbour(now, None)
        }
    }

    /// Returns the source to request from the kernel; `None` leaves it to the routes.
    pub(super) fn choose(&mut self, now: Time) -> Option<IpAddr> {
        if self.by_route && self.held.is_some() && now.since(self.heard_at) >= PATIENCE {
            self.held = None;
        }
        self.held
    }

    /// Notes that a frame of the peer arrived at this address.
    pub(super) fn heard(&mut self, now: Time, called: Option<IpAddr>) {
        self.heard_at = now;
        if called == self.held {
            return;
        }
        let plain = called.map(|ip| ip.to_canonical());
        let own_doing = self.by_route
            && plain.is_some_and(|ip| self.routed == Some(ip) || self.former.contains(&ip));
        if !own_doing {
            self.held = called;
        } else if plain == self.routed {
            self.held = None;
        }
    }

    /// Notes that the kernel refuses to send from the requested address.
    pub(super) fn refused(&mut self) {
        self.held = None;
    }

    /// Notes the routes' current choice, `None` while there is no route. Returns the earlier choice
    /// if that is another address of this machine.
    pub(super) fn rerouted(&mut self, routed: Option<IpAddr>) -> Option<IpAddr> {
        let new = routed?.to_canonical();
        if !self.by_route || self.routed == Some(new) {
            return None;
        }
        let old = self.routed.replace(new);
        self.held = None;
        self.former.retain(|ip| *ip != new);
        self.former.splice(..0, old);
        self.former.truncate(MAX_FORMER);
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn an_inbound_peer_is_answered_from_the_address_it_sent_to_until_the_kernel_refuses() {
        let now = Time::ZERO;
        let mut source = Source::of_inbound(now);
        source.heard(now, ip(2));
        assert_eq!(source.choose(now), ip(2));
        assert_eq!(
            source.rerouted(ip(3)),
            None,
            "routes do not matter to an inbound peer"
        );
        assert_eq!(source.choose(now + Duration::from_secs(60)), ip(2));
        source.refused();
        assert_eq!(source.choose(now), None);
    }

    #[test]
    fn a_neighbour_that_answers_to_the_routed_source_follows_the_routes() {
        let now = Time::ZERO;
        let mut source = Source::of_neighbour(now, ip(1));
        source.heard(now, ip(1));
        assert_eq!(source.choose(now), None);
        assert_eq!(source.rerouted(ip(2)), ip(1));
        // Frames on the way still arrive at the old address.
        source.heard(now, ip(1));
        assert_eq!(source.choose(now), None);
        source.heard(now, ip(2));
        assert_eq!(source.choose(now), None);
        assert_eq!(
            source.rerouted(None),
            None,
            "a lost route is not a new address"
        );
        assert_eq!(source.rerouted(ip(2)), None);
        assert_eq!(source.rerouted(ip(1)), ip(2), "and back");
    }

    #[test]
    fn a_neighbour_that_sends_to_another_address_is_answered_from_there_while_active() {
        let now = Time::ZERO;
        let mut source = Source::of_neighbour(now, ip(1));
        let mapped = Some(IpAddr::V6(
            std::net::Ipv4Addr::new(192, 0, 2, 9).to_ipv6_mapped(),
        ));
        source.heard(now, mapped);
        assert_eq!(
            source.choose(now),
            mapped,
            "in the form that the kernel gave"
        );
        assert_eq!(source.choose(now + PATIENCE), None);
        source.heard(now + PATIENCE, mapped);
        assert_eq!(source.choose(now + PATIENCE), mapped);
        source.heard(now + PATIENCE, ip(1));
        assert_eq!(source.choose(now + PATIENCE), None);
    }
}
