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
use std::collections::BTreeMap;

use whimbrel_core::{KeyedState, Meter, SeededRng, Time, network_of};

use crate::connection::Ends;
use crate::options::Limits;

/// Addresses that are told apart; beyond it, those that are idle are forgotten.
const MAX_CLIENTS: usize = 4096;
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
struct Client {
    unanswered: Meter,
    is_known: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Remembered {
    hash: u64,
    at: Time,
}

/// The connections of one kind of opener that are not answered.
pub(crate) struct Admission {
    opener: Opener,
    /// By network ([`network_of`]).
    clients: BTreeMap<u128, Client>,
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
            clients: BTreeMap::new(),
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
        let mut state = self.clients.get(&client).copied().unwrap_or_default();
        let share = match state.is_known {
            true => Share::Known,
            false => Share::Newcomer,
        };
        let has_room = state.unanswered.admits(now, limits.unanswered)
            && (state.is_known || self.newcomers.admits(now, limits.newcomers));
        if has_room {
            self.keep(now, client, state);
            return Some(charge(share));
        }
        let comes_again = self.comes_again(now, attempt);
        (comes_again && self.repeated.admits(now, limits.repeated)).then(|| charge(Share::Repeated))
    }

    /// A connection is answered.
    pub(crate) fn answered(&mut self, now: Time, client: IpAddr, charge: Charge, limits: &Limits) {
        let client = network_of(client);
        let mut state = self.clients.get(&client).copied().unwrap_or_default();
        match charge.share {
            Share::Repeated => self.repeated.give_back(limits.repeated),
            Share::Known => state.unanswered.give_back(limits.unanswered),
            Share::Newcomer => {
                state.unanswered.give_back(limits.unanswered);
                self.newcomers.give_back(limits.newcomers);
            }
        }
        state.is_known = true;
        self.keep(now, client, state);
    }

    fn keep(&mut self, now: Time, client: u128, state: Client) {
        if self.clients.len() >= MAX_CLIENTS && !self.clients.contains_key(&client) {
            self.clients
                .retain(|_, it| it.is_known || !it.unanswered.is_idle(now));
            if self.clients.len() >= MAX_CLIENTS {
                let idle = self
                    .clients
                    .iter()
                    .find(|(_, it)| it.unanswered.is_idle(now));
                let idle = idle.map(|(client, _)| *client);
                match idle {
                    Some(idle) => self.clients.remove(&idle),
                    None => self.clients.pop_first().map(|(_, it)| it),
                };
            }
        }
        self.clients.insert(client, state);
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
