//! Which connections are opened when more are asked for than anybody answers.
//!
//! A SYN costs its sender nothing and the network about twenty packets: Interests for it and its
//! answer, further Interests that the answer brings, a reset. So each address (of IPv6, each network of 64 bits) has a number of
//! connections that are not answered yet, and some more a second; an answer gives its part back, so
//! that who is answered may open as many as it likes. Addresses may be invented: those that have
//! never been answered have a bound together. What is refused is dropped, and TCP sends it again
//! after a second; a flood does not, or not for long. What comes again therefore has a share of its
//! own, by which a newcomer gets in beside a flood from its own address.

use core::hash::BuildHasher;
use core::net::IpAddr;
use core::time::Duration;

use whimbrel_core::{KeyedState, Meter, Recent, SeededRng, Time, network_of};

use crate::options::Limits;
use crate::segment::Ends;

/// Addresses that are told apart, of those that were answered and of newcomers: of each kind, the one
/// that was heard of the longest ago is forgotten. Invented addresses push out no others than such.
const MAX_CLIENTS: usize = 2048;
/// Refused attempts that are remembered, of 16 bytes each. A later one may take the place of an
/// earlier one: a flood of 10,000 a second leaves six of seven in place for a second.
const REMEMBERED: usize = 1 << 16;
/// An attempt is repeated after this time at the earliest (RFC 6298 §2: after a second; timers are
/// coarse), and at the latest (the pause before the sixth SYN).
const REPEATED: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(17));
/// The user is told so often at most.
const TOLD: Duration = Duration::from_secs(60);

/// Which side opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    /// A program behind this proxy's device.
    Program,
    /// One behind a peer.
    Peer,
}

impl Opener {
    /// Returns the address of the end that opened the connection.
    pub(crate) const fn client(self, ends: &Ends) -> IpAddr {
        match self {
            Opener::Program => ends.local.ip(),
            Opener::Peer => ends.remote.ip(),
        }
    }
}

/// What a connection that is not answered was charged to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) opener: Opener,
    share: Share,
}

#[derive(Clone, Copy, Debug)]
enum Share {
    /// An address that was never answered, and all of these.
    Newcomer,
    /// An address that was.
    Known,
    /// Attempts that come again.
    Repeated,
}

#[derive(Clone, Copy, Debug, Default)]
struct Remembered {
    hash: u64,
    at: Time,
}

/// The connections of one kind of opener that are not answered.
pub(crate) struct Admission {
    opener: Opener,
    /// The connections of those that were answered, by network ([`network_of`]).
    known: Recent<u128, Meter>,
    /// The same of those that were not.
    unknown: Recent<u128, Meter>,
    newcomers: Meter,
    repeated: Meter,
    /// By hash; empty until something is refused.
    refused: Vec<Remembered>,
    hashing: KeyedState,
    told: Option<Time>,
}

impl Admission {
    pub(crate) fn new(opener: Opener, rng: &mut SeededRng) -> Admission {
        Admission {
            opener,
            known: Recent::new(MAX_CLIENTS),
            unknown: Recent::new(MAX_CLIENTS),
            newcomers: Meter::default(),
            repeated: Meter::default(),
            refused: Vec::new(),
            hashing: KeyedState::new(rng),
            told: None,
        }
    }

    /// Returns what a connection that `client` opens is charged to; `None` if it is not to be
    /// opened. `attempt` is the same if it comes again.
    pub(crate) fn admits(
        &mut self,
        now: Time,
        client: IpAddr,
        attempt: (Ends, u32),
        limits: &Limits,
    ) -> Option<Charge> {
        let opener = self.opener;
        let charge = |share| Charge { opener, share };
        let client = network_of(client);
        let (share, mut unanswered) = self.of(client);
        let has_room = unanswered.admits(now, limits.unanswered)
            && (matches!(share, Share::Known) || self.newcomers.admits(now, limits.newcomers));
        if has_room {
            let clients = match share {
                Share::Known => &mut self.known,
                _ => &mut self.unknown,
            };
            clients.insert(client, unanswered);
            return Some(charge(share));
        }
        let comes_again = self.comes_again(now, attempt);
        (comes_again && self.repeated.admits(now, limits.repeated)).then(|| charge(Share::Repeated))
    }

    /// A connection is answered.
    pub(crate) fn answered(&mut self, client: IpAddr, charge: Charge, limits: &Limits) {
        let client = network_of(client);
        let (_, mut unanswered) = self.of(client);
        match charge.share {
            Share::Repeated => self.repeated.give_back(limits.repeated),
            Share::Known => unanswered.give_back(limits.unanswered),
            Share::Newcomer => {
                unanswered.give_back(limits.unanswered);
                self.newcomers.give_back(limits.newcomers);
            }
        }
        self.unknown.remove(&client);
        self.known.insert(client, unanswered);
    }

    /// Returns the share of a network, and the meter of its connections.
    fn of(&self, client: u128) -> (Share, Meter) {
        match (self.known.get(&client), self.unknown.get(&client)) {
            (Some(meter), _) => (Share::Known, *meter),
            (None, Some(meter)) => (Share::Newcomer, *meter),
            (None, None) => (Share::Newcomer, Meter::default()),
        }
    }

    /// Returns true if this attempt was refused a while ago; remembers it if not.
    fn comes_again(&mut self, now: Time, attempt: (Ends, u32)) -> bool {
        if self.refused.is_empty() {
            self.refused.resize(REMEMBERED, Remembered::default());
        }
        // 0 is an empty place.
        let hash = self.hashing.hash_one(attempt).max(1);
        let Some(place) = self.refused.get_mut(hash as usize % REMEMBERED) else {
            return false;
        };
        let since = now.since(place.at);
        if place.hash == hash && since < REPEATED.0 {
            return false;
        }
        let again = place.hash == hash && since <= REPEATED.1;
        *place = Remembered { hash, at: now };
        again
    }

    /// Notes that the user is told of a refusal; returns false if that was done a moment ago.
    pub(crate) fn tell_once(&mut self, now: Time) -> bool {
        let is_new = self.told.is_none_or(|told| now.since(told) >= TOLD);
        if is_new {
            self.told = Some(now);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    /// Opens a connection from an address; it is answered if `answered`. Returns whether the address
    /// was known.
    fn open(admission: &mut Admission, now: Time, number: u32, answered: bool) -> Option<bool> {
        let limits = Limits::default();
        let ends = Ends {
            local: (address(number), 1).into(),
            remote: (address(9), 2).into(),
        };
        let charge = admission.admits(now, address(number), (ends, 0), &limits)?;
        if answered {
            admission.answered(address(number), charge, &limits);
        }
        Some(matches!(charge.share, Share::Known))
    }

    #[test]
    fn the_address_that_was_heard_of_longest_ago_gives_way() {
        let mut admission = Admission::new(Opener::Program, &mut SeededRng::new(1));
        let most = MAX_CLIENTS as u32;
        for number in 0..most {
            open(&mut admission, Time::ZERO, number, true);
        }
        let mut now = Time::from_secs(5);
        assert_eq!(open(&mut admission, now, 0, false), Some(true));
        open(&mut admission, now, most, true);
        assert_eq!(open(&mut admission, now, 0, false), Some(true));
        assert_eq!(open(&mut admission, now, 1, false), Some(false));
        // Any number of addresses that nobody answers.
        for number in 0..10 * most {
            now += Duration::from_millis(2);
            open(&mut admission, now, (1 << 20) + number, false);
        }
        now += Duration::from_secs(5);
        assert_eq!(open(&mut admission, now, 0, false), Some(true));
        assert_eq!(admission.unknown.len(), MAX_CLIENTS);
    }
}
