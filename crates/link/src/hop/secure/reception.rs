//! What a node keeps for those who call it: its key, the secrets of its cookies, and which calls it
//! has accepted. One for all hops and gates of the node.

use core::fmt;
use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use whimbrel_core::identity::KeyPair;
use whimbrel_core::{Guid, Limit, Meter, Shares, Time, network_of};
use zeroize::Zeroizing;

use super::callers::Callers;
use super::channel::{Secret, Suite};
use super::handshake::{Call, Cookie, FAST_AES, address_bytes};

/// Cookies are made with a secret for so long, and taken for as long again: three round trips over
/// two satellites. After that nothing here can tell what the calls of that time agreed on.
const PERIOD_SECS: u64 = 16;
/// Calls accepted in one period, shared by network. They are remembered, so that none is accepted
/// twice.
const ACCEPTED: Shares = Shares {
    max: 16_384,
    parts: 16,
    few: 8,
};
/// Answers to calls from addresses that are not proven: a tenth of a millisecond each ...
const UNPROVEN: Limit = of_a_second(128);
/// ... and the work for one proven address; those whose hashes fall together share it.
const PROVEN: Limit = of_a_second(64);
const SOURCES: usize = 1024;
/// Notices and cookies for one sender (address and port) that is not proven: one of them is enough
/// to continue, others may be lost. The main cost of a flood of calls is the system call per answer.
const TOLD: Limit = Limit {
    at_once: 4,
    per_second: 4,
};
/// Places of senders by a hash; who falls into one shares it. All of them give 65,536 a second, so
/// that a flood of very many forged senders at less than that takes no answer from a newcomer that it
/// would get without a limit.
const SENDERS: usize = 16_384;

/// Half a second's worth can be saved up.
const fn of_a_second(per_second: u32) -> Limit {
    Limit {
        at_once: per_second / 2,
        per_second,
    }
}

const RANDOM_CONTEXT: &str = "whimbrel 2026 hop random bytes";
const RATCHET_CONTEXT: &str = "whimbrel 2026 hop next random state";
const PERIOD_CONTEXT: &str = "whimbrel 2026 hop next cookie secret";
const COOKIE_CONTEXT: &str = "whimbrel 2026 hop cookie";
const EPHEMERAL_CONTEXT: &str = "whimbrel 2026 hop ephemeral key of who answers";
const SESSION_CONTEXT: &str = "whimbrel 2026 hop session of who answers";
const KEM_CONTEXT: &str = "whimbrel 2026 hop ml-kem secret of who answers";
const KEM_MASK_CONTEXT: &str = "whimbrel 2026 hop ml-kem mask of who answers";
const SOURCE_CONTEXT: &str = "whimbrel 2026 hop source of calls";

/// Counters of what was asked of a node by those who are no neighbours yet, and of what was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReceptionCounters {
    /// Calls answered, of whomever.
    pub answered: u64,
    /// Calls answered with a mere cookie, because there were many.
    pub cookies: u64,
    /// Calls and frames of unknown sessions that were not answered at all, because their source had
    /// used up its share.
    pub limited: u64,
    /// Callers that proved their address and got a port.
    pub admitted: u64,
    /// Proofs of an address that are wrong or too old.
    pub bad_cookies: u64,
    /// Callers that proved a name which may not call.
    pub not_admitted: u64,
    /// Proofs of a name that are wrong.
    pub bad_proofs: u64,
    /// Proofs that were accepted before.
    pub repeated: u64,
    /// Frames of sessions that are not known here.
    pub unknown_sessions: u64,
    /// Calls in the wrong mode: plain where encryption is required, or encrypted where the link is
    /// plain.
    pub wrong_mode: u64,
    /// Calls without a hybrid exchange where one is required.
    pub classical: u64,
    /// Anything else from who has no port.
    pub strangers: u64,
}

/// The secret of one period, and the calls that were accepted under it.
struct Period {
    secret: Secret,
    accepted: BTreeSet<Cookie>,
    // Of those, how many came from each network.
    by_network: BTreeMap<u128, usize>,
}

impl Period {
    fn new(secret: Secret) -> Period {
        Period {
            secret,
            accepted: BTreeSet::new(),
            by_network: BTreeMap::new(),
        }
    }

    /// Returns true if a network may have one more call accepted.
    fn has_room_for(&self, network: u128) -> bool {
        let own = self.by_network.get(&network).copied().unwrap_or(0);
        ACCEPTED.admit(own, self.accepted.len())
    }

    fn hash(&self, context: &str, address: Option<SocketAddr>, call: &Call) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        hasher.update(self.secret.as_ref());
        hasher.update(&address_bytes(address));
        hasher.update(&[call.flags]);
        hasher.update(&call.index.to_be_bytes());
        hasher.update(&call.ephemeral);
        if call.is_hybrid() {
            hasher.update(&call.kem);
        }
        hasher
    }

    fn cookie(&self, address: Option<SocketAddr>, call: &Call) -> Cookie {
        let mut cookie = [0; 16];
        let hasher = self.hash(COOKIE_CONTEXT, address, call);
        hasher.finalize_xof().fill(&mut cookie);
        cookie
    }
}

struct State {
    random: Secret,
    number: u64,
    // Of this period and the one before.
    periods: [Period; 2],
    unproven: Meter,
    sources: Box<[Meter]>,
    // Empty until the first one is told something.
    senders: Vec<Meter>,
    counters: ReceptionCounters,
}

impl State {
    /// Goes to the period of `now`. What secrets were before the last cannot be computed any more.
    fn turn(&mut self, now: Time) {
        let number = now.as_nanos() / (PERIOD_SECS * 1_000_000_000);
        while self.number < number {
            self.number += 1;
            let secret = blake3::derive_key(PERIOD_CONTEXT, self.periods[0].secret.as_ref());
            self.periods.swap(0, 1);
            self.periods[0] = Period::new(Zeroizing::new(secret));
        }
    }

    fn draw(&mut self) -> Secret {
        let drawn = blake3::derive_key(RANDOM_CONTEXT, self.random.as_ref());
        *self.random = blake3::derive_key(RATCHET_CONTEXT, self.random.as_ref());
        Zeroizing::new(drawn)
    }

    /// The period whose cookie a call has.
    fn period_of(&self, address: Option<SocketAddr>, call: &Call) -> Option<usize> {
        // A comparison of hashes: its time says nothing of the secret.
        (0..2).find(|at| {
            blake3::hash(&self.periods[*at].cookie(address, call)) == blake3::hash(&call.cookie)
        })
    }
}

/// The answerer's side of a call: nothing of it is kept, all of it follows from the call and a
/// secret of the node.
pub(super) struct Seat {
    pub(super) cookie: Cookie,
    pub(super) ephemeral: Secret,
    pub(super) index: u32,
    pub(super) run: u64,
    pub(super) first_hop_id: u32,
    /// For a hybrid call.
    pub(super) kem: Option<KemSeat>,
}

/// What the ML-KEM secret is drawn from, and what masks that in an ANSWER: the same for the same call.
pub(super) struct KemSeat {
    pub(super) random: Secret,
    pub(super) mask: Secret,
}

/// See the module. Shared by the node's hops and its [`Gate`](super::Gate)s.
pub struct Reception {
    keys: KeyPair,
    guid: Guid,
    fast_aes: bool,
    state: Mutex<State>,
    callers: Mutex<Callers>,
}

impl fmt::Debug for Reception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reception({})", self.guid.short())
    }
}

impl Reception {
    /// `seed` is drawn from the operating system by the program around the machines, or from a
    /// scenario's generator: all secrets follow from it. `fast_aes`: the processor has instructions
    /// for AES.
    pub fn new(keys: KeyPair, seed: [u8; 32], fast_aes: bool) -> Reception {
        let secret = |purpose: &str| Zeroizing::new(blake3::derive_key(purpose, &seed));
        let period = |purpose| Period::new(secret(purpose));
        Reception {
            guid: keys.guid(),
            keys,
            fast_aes,
            state: Mutex::new(State {
                random: secret(RATCHET_CONTEXT),
                number: 0,
                periods: [period(PERIOD_CONTEXT), period(SESSION_CONTEXT)],
                unproven: Meter::default(),
                sources: vec![Meter::default(); SOURCES].into(),
                senders: Vec::new(),
                counters: ReceptionCounters::default(),
            }),
            callers: Mutex::new(Callers::default()),
        }
    }

    /// Returns the node's name.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Returns the node's keys.
    pub fn keys(&self) -> &KeyPair {
        &self.keys
    }

    /// What it has counted.
    pub fn counters(&self) -> ReceptionCounters {
        self.lock().counters
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut ReceptionCounters)) {
        count(&mut self.lock().counters);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // All that is done under the lock leaves a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns which names may call this node's listeners, and who was refused.
    pub fn callers(&self) -> Callers {
        self.with_callers(|callers| callers.clone())
    }

    /// Looks at that in place, or changes it: those that are connected stay so. `look` must not ask
    /// this reception for anything.
    pub fn with_callers<R>(&self, look: impl FnOnce(&mut Callers) -> R) -> R {
        // Each change leaves a valid list.
        look(&mut self.callers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if a caller that has proven this name gets a port; counts it if not.
    pub(super) fn admits(&self, now: Time, name: Guid, from: Option<SocketAddr>) -> bool {
        let admitted = self.with_callers(|callers| callers.admit(now, name, from));
        if !admitted {
            self.count(|counters| counters.not_admitted += 1);
        }
        admitted
    }

    /// 32 fresh secret bytes.
    pub(super) fn draw(&self) -> Secret {
        self.lock().draw()
    }

    pub(super) fn draw_word(&self) -> u64 {
        let bytes = self.draw();
        bytes[..8]
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    }

    pub(super) fn flags(&self) -> u8 {
        u8::from(self.fast_aes) * FAST_AES
    }

    /// Returns the suite for a session with who calls so.
    pub(super) fn suite(&self, call: &Call) -> Suite {
        if call.is_plain() {
            Suite::Plain
        } else if self.fast_aes && call.flags & FAST_AES != 0 {
            Suite::Aes128Gcm
        } else {
            Suite::ChaCha20Poly1305
        }
    }

    /// Returns true if one more call from an address that is not proven may be answered in full.
    pub(super) fn may_answer_unproven(&self, now: Time) -> bool {
        self.lock().unproven.admits(now, UNPROVEN)
    }

    /// Returns true if one more call from a proven address may be answered.
    pub(super) fn may_answer(&self, now: Time, address: Option<SocketAddr>) -> bool {
        let Some(address) = address else {
            return true;
        };
        let network = network_of(address.ip());
        let mut state = self.lock();
        let mut hasher = blake3::Hasher::new_derive_key(SOURCE_CONTEXT);
        hasher.update(state.periods[0].secret.as_ref());
        hasher.update(&network.to_be_bytes());
        let hash = hasher.finalize();
        let at = usize::from(u16::from_be_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]));
        state.sources[at % SOURCES].admits(now, PROVEN)
    }

    /// Returns true if one more notice or cookie may go to this sender.
    pub(super) fn may_tell(&self, now: Time, sender: SocketAddr) -> bool {
        let mut state = self.lock();
        let hash = blake3::keyed_hash(&state.periods[0].secret, &address_bytes(Some(sender)));
        let at = usize::from(u16::from_be_bytes([hash.as_bytes()[0], hash.as_bytes()[1]]));
        state.senders.resize(SENDERS, Meter::default());
        state.senders[at % SENDERS].admits(now, TOLD)
    }

    /// Returns the cookie of a new call.
    pub(super) fn cookie(&self, now: Time, address: Option<SocketAddr>, call: &Call) -> Cookie {
        let mut state = self.lock();
        state.turn(now);
        state.periods[0].cookie(address, call)
    }

    /// Returns the answerer's side of a new call.
    pub(super) fn seat(&self, now: Time, address: Option<SocketAddr>, call: &Call) -> Seat {
        let mut state = self.lock();
        state.turn(now);
        seat(&state.periods[0], address, call)
    }

    /// Returns the same of a call that has its cookie; `None` if that is wrong or too old.
    pub(super) fn seat_of_proven(
        &self,
        now: Time,
        address: Option<SocketAddr>,
        call: &Call,
    ) -> Option<Seat> {
        let mut state = self.lock();
        state.turn(now);
        let at = state.period_of(address, call)?;
        Some(seat(&state.periods[at], address, call))
    }

    /// Returns true if one more call from this address may be accepted.
    pub(super) fn may_accept(&self, address: SocketAddr) -> bool {
        let state = self.lock();
        state.periods[0].has_room_for(network_of(address.ip()))
    }

    /// Notes that a call from this address is accepted. False if it was before (the same call would
    /// agree on the same keys), or if the address has used up its share.
    pub(super) fn accept(&self, call: &Call, address: Option<SocketAddr>) -> bool {
        let mut state = self.lock();
        let accepted = |period: &Period| period.accepted.contains(&call.cookie);
        if state.periods.iter().any(accepted) {
            state.counters.repeated += 1;
            return false;
        }
        // Those of carriers without addresses share one.
        let network = address.map_or(u128::MAX, |address| network_of(address.ip()));
        // The cookie may be of the period before, whose set goes first: then its cookies do, too.
        let period = &mut state.periods[0];
        if !period.has_room_for(network) {
            state.counters.limited += 1;
            return false;
        }
        *period.by_network.entry(network).or_default() += 1;
        period.accepted.insert(call.cookie)
    }
}

fn seat(period: &Period, address: Option<SocketAddr>, call: &Call) -> Seat {
    let secret = |context: &str| {
        let hash = period.hash(context, address, call).finalize();
        Zeroizing::new(*hash.as_bytes())
    };
    let mut session = [0; 16];
    let hasher = period.hash(SESSION_CONTEXT, address, call);
    hasher.finalize_xof().fill(&mut session);
    let word = |at: usize| {
        u32::from_be_bytes([
            session[at],
            session[at + 1],
            session[at + 2],
            session[at + 3],
        ])
    };
    Seat {
        cookie: period.cookie(address, call),
        ephemeral: secret(EPHEMERAL_CONTEXT),
        index: word(0),
        run: u64::from(word(4)) << 32 | u64::from(word(8)) | 1,
        first_hop_id: word(12),
        kem: call.is_hybrid().then(|| KemSeat {
            random: secret(KEM_CONTEXT),
            mask: secret(KEM_MASK_CONTEXT),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has a network call until it is refused, `most` times at most. Returns how many were accepted.
    fn accepted(reception: &Reception, network: u32, most: u32) -> usize {
        let address = SocketAddr::from((network.to_be_bytes(), 4711));
        let call = |number: u32| {
            let mut cookie = [0; 16];
            cookie[..4].copy_from_slice(&network.to_be_bytes());
            cookie[4..8].copy_from_slice(&number.to_be_bytes());
            Call {
                flags: 0,
                index: number,
                ephemeral: [0; 32],
                cookie,
                kem: [0; 32],
            }
        };
        let calls = (0..most).map(call);
        let calls = calls.take_while(|call| reception.accept(call, Some(address)));
        calls.count()
    }

    #[test]
    fn calls_of_many_addresses_leave_room_for_those_of_another() {
        let reception = Reception::new(KeyPair::from_secret(&[1; 32]), [2; 32], true);
        assert_eq!(accepted(&reception, 1, 100_000), 482);
        for network in 2..500 {
            accepted(&reception, network, 100_000);
        }
        assert!(reception.lock().periods[0].accepted.len() < ACCEPTED.max);
        assert!(reception.may_accept(([0, 0, 1, 244], 1).into()));
        assert!(!reception.may_accept(([0, 0, 0, 1], 1).into()));
        assert_eq!(accepted(&reception, 500, 100_000), 8);
        // What has been accepted is accepted no second time, and counts no further.
        let before = reception.counters();
        assert_eq!(accepted(&reception, 1, 1), 0);
        assert_eq!(reception.counters().repeated, before.repeated + 1);
        // In the next period but one, all of it is over.
        reception.lock().turn(Time::from_secs(2 * PERIOD_SECS));
        assert_eq!(accepted(&reception, 1, 10), 10);
    }
}
