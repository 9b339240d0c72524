//! Compares the replay guard with a model of unbounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use whimbrel_ndn_packet::signature::{SignatureInfoRef, SignatureType};
use whimbrel_ndn_packet::{Name, ReplayConfig, ReplayError, ReplayGuard};

const GRACE: u64 = 1000;

fn info(time: Option<u64>, nonce: Option<&[u8]>, sequence: Option<u64>) -> SignatureInfoRef<'_> {
    SignatureInfoRef {
        typ: SignatureType::Sha256WithEcdsa,
        key_locator: None,
        nonce,
        time,
        sequence,
        validity_period: None,
        description: None,
    }
}

fn guard(max_per_key: usize, max_keys: usize) -> ReplayGuard {
    ReplayGuard::new(ReplayConfig {
        grace: Duration::from_millis(GRACE),
        max_per_key,
        max_keys,
    })
}

fn key(number: u8) -> Name {
    Name::root().child_generic(&[number])
}

#[test]
fn a_burst_within_one_millisecond_is_accepted_once() {
    let (mut guard, key) = (ReplayGuard::default(), key(1));
    for round in 0..2 {
        for nonce in 0..1000u64 {
            let nonce = nonce.to_be_bytes();
            // Commands may arrive out of order, too.
            let time = 5_000_000 - u64::from(nonce[7]) % 3;
            let accepted = guard.accept(
                5_000_001,
                key.as_ref(),
                &info(Some(time), Some(&nonce), None),
            );
            assert_eq!(
                accepted,
                if round == 0 {
                    Ok(())
                } else {
                    Err(ReplayError::Replayed)
                }
            );
        }
    }
}

#[test]
fn a_time_outside_the_grace_period_is_refused() {
    let mut guard = guard(10, 10);
    let mut at =
        |now, time| guard.accept(now, key(1).as_ref(), &info(Some(time), Some(&[1]), None));
    assert_eq!(
        at(10_000, 8_999),
        Err(ReplayError::TooOld(Duration::from_millis(1001)))
    );
    assert_eq!(
        at(10_000, 11_001),
        Err(ReplayError::TooNew(Duration::from_millis(1001)))
    );
    assert_eq!(at(10_000, 11_000), Ok(()));
    assert_eq!(at(10_000, 9_000), Ok(()));
}

#[test]
fn an_interest_without_replay_protection_is_refused() {
    let mut guard = guard(10, 10);
    let refused = guard.accept(0, key(1).as_ref(), &info(None, Some(&[1; 8]), None));
    assert_eq!(refused, Err(ReplayError::Unprotected));
    assert_eq!(guard.remembered(), (0, 0));
}

#[test]
fn sequence_numbers_of_a_key_only_grow() {
    let mut guard = guard(10, 10);
    let mut send = |key_number, sequence| {
        guard.accept(
            0,
            key(key_number).as_ref(),
            &info(None, None, Some(sequence)),
        )
    };
    assert_eq!(send(1, 5), Ok(()));
    assert_eq!(send(1, 5), Err(ReplayError::Sequence(5)));
    assert_eq!(send(1, 4), Err(ReplayError::Sequence(5)));
    assert_eq!(send(2, 4), Ok(()));
    assert_eq!(send(1, 9), Ok(()));
}

#[test]
fn a_clock_that_is_set_back_brings_no_replay_back() {
    let mut guard = guard(100, 10);
    let first = info(Some(10_000), Some(&[1]), None);
    assert_eq!(guard.accept(10_000, key(1).as_ref(), &first), Ok(()));
    // Two minutes later the first one has been forgotten; then the clock is set back.
    assert_eq!(
        guard.accept(
            130_000,
            key(1).as_ref(),
            &info(Some(130_000), Some(&[2]), None)
        ),
        Ok(())
    );
    assert_eq!(guard.remembered(), (1, 1));
    assert_eq!(
        guard.accept(10_000, key(1).as_ref(), &first),
        Err(ReplayError::Forgotten)
    );
}

/// An Interest that reaches the guard.
#[derive(Clone, Debug)]
struct Arrival {
    key: u8,
    /// The time that has passed at the receiver, in milliseconds.
    later: u64,
    /// The difference of the Interest's time from that.
    offset: i64,
    has_time: bool,
    nonce: Option<u8>,
    sequence: Option<u64>,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let arrival = (
        0..4u8,
        prop_oneof![Just(0), 0..300u64],
        prop_oneof![Just(0), -1200..1200i64],
        prop::bool::weighted(0.9),
        prop::option::weighted(0.8, 0..4u8),
        prop::option::weighted(0.1, 0..50u64),
    );
    let arrival = arrival.prop_map(|(key, later, offset, has_time, nonce, sequence)| Arrival {
        key,
        later,
        offset,
        has_time,
        nonce,
        sequence,
    });
    prop::collection::vec(arrival, 0..200)
}

/// Remembers everything for ever.
#[derive(Default)]
struct Model {
    /// Key, time and nonce.
    accepted: BTreeSet<(u8, Option<u64>, Option<u8>)>,
    sequences: BTreeMap<u8, u64>,
}

impl Model {
    fn would_accept(
        &self,
        now: u64,
        key: u8,
        time: Option<u64>,
        nonce: Option<u8>,
        sequence: Option<u64>,
    ) -> bool {
        let protected = time.is_some() || sequence.is_some();
        let in_time = time.is_none_or(|time| now.abs_diff(time) <= GRACE);
        let is_new = time.is_none() || !self.accepted.contains(&(key, time, nonce));
        let grows = sequence
            .is_none_or(|sequence| self.sequences.get(&key).is_none_or(|last| sequence > *last));
        protected && in_time && is_new && grows
    }
}

proptest! {
    #[test]
    fn with_enough_room_the_guard_accepts_exactly_as_the_model(arrivals in arrivals()) {
        let (mut guard, mut model, mut now) = (guard(1000, 1000), Model::default(), 1_000_000);
        for Arrival { key: number, later, offset, has_time, nonce, sequence } in arrivals {
            now += later;
            let time = has_time.then(|| now.saturating_add_signed(offset));
            let nonce_octets = nonce.map(|nonce| [nonce; 8]);
            let signature = info(time, nonce_octets.as_ref().map(|nonce| &nonce[..]), sequence);
            let accepted = guard.accept(now, key(number).as_ref(), &signature);
            prop_assert_eq!(accepted.is_ok(), model.would_accept(now, number, time, nonce, sequence), "{:?}", accepted);
            if accepted.is_ok() {
                model.accepted.insert((number, time, nonce));
                if let Some(sequence) = sequence {
                    model.sequences.insert(number, sequence);
                }
            }
        }
    }

    #[test]
    fn with_little_room_and_any_clock_nothing_is_accepted_twice(
        arrivals in arrivals(),
        set_back in prop::collection::vec(any::<bool>(), 200),
        max_per_key in 0..4usize,
        max_keys in 0..3usize,
    ) {
        let (mut guard, mut accepted, mut now) = (guard(max_per_key, max_keys), BTreeSet::new(), 1_000_000u64);
        for (arrival, back) in arrivals.into_iter().zip(set_back) {
            now = if back { now - arrival.later } else { now + arrival.later };
            let time = arrival.has_time.then(|| now.saturating_add_signed(arrival.offset));
            let nonce = arrival.nonce.map(|nonce| [nonce; 8]);
            let signature = info(time, nonce.as_ref().map(|nonce| &nonce[..]), arrival.sequence);
            if guard.accept(now, key(arrival.key).as_ref(), &signature).is_ok() {
                prop_assert!(accepted.insert((arrival.key, time, nonce, arrival.sequence)), "a replay");
            }
            let (keys, remembered) = guard.remembered();
            prop_assert!(keys <= max_keys.max(1) && remembered <= keys * max_per_key);
        }
    }
}
