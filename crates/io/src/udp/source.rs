//! Which address of ours the frames to a peer come from.

use std::net::IpAddr;
use std::time::Duration;

use whimbrel_core::Time;

/// A neighbour that was answered from where it had called, and is silent for so long, is called by
/// whatever way the routes choose.
const PATIENCE: Duration = Duration::from_secs(2);
/// Addresses remembered that the routes chose before.
const MAX_FORMER: usize = 4;

/// The source of the frames to one peer of a socket that is bound to all addresses.
///
/// A peer may know this machine by one of its addresses only, and takes an answer from another one
/// for a stranger's: it is answered from where it called. But where a neighbour of ours calls is
/// usually where it heard from us, and that is the routes' choice, which changes: a machine gets a
/// new address, or another interface takes over. Such an address is no wish of the neighbour's, and
/// is never held on to.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Set for peers that this node chose, which it calls by whatever way its routes choose.
    by_route: bool,
    /// The routes' choice, and those before it, newest first.
    routed: Option<IpAddr>,
    former: Vec<IpAddr>,
    /// As the kernel told it: an IPv4 address may be in IPv6 clothes.
    held: Option<IpAddr>,
    heard_at: Time,
}

impl Source {
    /// For a peer that this node calls, from `routed` at first.
    pub(super) fn of_neighbour(now: Time, routed: Option<IpAddr>) -> Source {
        Source {
            by_route: true,
            routed,
            former: Vec::new(),
            held: None,
            heard_at: now,
        }
    }

    /// For a peer that calls this node: it is always answered from where it called.
    pub(super) fn of_caller(now: Time) -> Source {
        Source {
            by_route: false,
            ..Source::of_neighbour(now, None)
        }
    }

    /// What the kernel is to be told; `None` leaves it to the routes.
    pub(super) fn to_send(&mut self, now: Time) -> Option<IpAddr> {
        if self.by_route && self.held.is_some() && now.since(self.heard_at) >= PATIENCE {
            self.held = None;
        }
        self.held
    }

    /// A frame of the peer came to this address of ours.
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

    /// The kernel sends nothing from the address that was asked for.
    pub(super) fn refused(&mut self) {
        self.held = None;
    }

    /// The routes choose this now; `None` while there is none. Answers what they chose before, if
    /// that is another address of this machine.
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
    fn a_caller_is_answered_from_where_it_called_until_the_kernel_refuses() {
        let now = Time::ZERO;
        let mut source = Source::of_caller(now);
        source.heard(now, ip(2));
        assert_eq!(source.to_send(now), ip(2));
        assert_eq!(source.rerouted(ip(3)), None, "routes are not its concern");
        assert_eq!(source.to_send(now + Duration::from_secs(60)), ip(2));
        source.refused();
        assert_eq!(source.to_send(now), None);
    }

    #[test]
    fn a_neighbour_is_called_by_the_routes_wherever_it_answers_to_what_they_chose() {
        let now = Time::ZERO;
        let mut source = Source::of_neighbour(now, ip(1));
        source.heard(now, ip(1));
        assert_eq!(source.to_send(now), None);
        assert_eq!(source.rerouted(ip(2)), ip(1));
        // What was on its way still comes to the old address.
        source.heard(now, ip(1));
        assert_eq!(source.to_send(now), None);
        source.heard(now, ip(2));
        assert_eq!(source.to_send(now), None);
        assert_eq!(source.rerouted(None), None, "no route is no other address");
        assert_eq!(source.rerouted(ip(2)), None);
        assert_eq!(source.rerouted(ip(1)), ip(2), "and back");
    }

    #[test]
    fn a_neighbour_that_calls_another_address_is_answered_from_there_while_it_is_heard() {
        let now = Time::ZERO;
        let mut source = Source::of_neighbour(now, ip(1));
        let mapped = Some(IpAddr::V6(
            std::net::Ipv4Addr::new(192, 0, 2, 9).to_ipv6_mapped(),
        ));
        source.heard(now, mapped);
        assert_eq!(
            source.to_send(now),
            mapped,
            "in the form that the kernel gave"
        );
        assert_eq!(source.to_send(now + PATIENCE), None);
        source.heard(now + PATIENCE, mapped);
        assert_eq!(source.to_send(now + PATIENCE), mapped);
        source.heard(now + PATIENCE, ip(1));
        assert_eq!(source.to_send(now + PATIENCE), None);
    }
}
