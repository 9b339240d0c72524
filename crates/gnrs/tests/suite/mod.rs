//! What every store must do, compared with a simple model: one suite for all of them.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a harness, of which each test uses a part"
)]

use std::cell::RefCell;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use whimbrel_core::Guid;
use whimbrel_gnrs::store::{
    Outcome, Put, PutResult, Refusal, Reply, Request, StoreEvent, StoreLimits,
};
use whimbrel_gnrs::{
    Address, KeyPair, MAX_ADDRESSES, MemoryStore, Pointer, Record, RecordKey, Statement, Store,
    StoreError,
};

/// Unix time at which the suite begins, in milliseconds. It is in the future, so that no engine drops
/// by its own clock what the suite's has not reached.
pub const EPOCH: u64 = 4_000_000_000_000;
pub const CONTENT: Guid = Guid([0xcc; 32]);
/// The bounds of stores under test.
pub const LIMITS: StoreLimits = StoreLimits {
    max_records: usize::MAX,
    max_bytes: usize::MAX,
    max_providers: 3,
};

/// A kind of store.
pub trait Bench {
    type Store: Store;

    /// True if the networks of records survive [`Bench::restart`].
    const KEEPS_NETWORKS: bool;

    /// Returns an empty store with [`LIMITS`].
    fn empty(&mut self) -> Self::Store;

    /// Ends a store and returns another one with the same records.
    fn restart(&mut self, store: Self::Store) -> Self::Store;
}

pub fn keys(seed: u8) -> KeyPair {
    KeyPair::from_secret(&[seed; 32])
}

pub fn said(version: u64, life_ms: u64, addresses: Vec<Address>) -> Statement {
    Statement {
        version,
        issued_ms: EPOCH,
        expires_ms: EPOCH + life_ms,
        addresses,
        removed: false,
    }
}

pub fn binding(seed: u8, version: u64, life_ms: u64) -> Record {
    Record::binding(&keys(seed), &said(version, life_ms, vec![])).unwrap()
}

pub fn provider(seed: u8, version: u64, life_ms: u64) -> Record {
    Record::provider(&keys(seed), CONTENT, &said(version, life_ms, vec![])).unwrap()
}

/// Returns what one owner calls `films-N`.
pub fn pointer(owner: u8, number: u8, statement: Statement) -> Record {
    let said = Pointer {
        alias: format!("films-{number}").parse().unwrap(),
        content: Guid([number + 1; 32]),
        size: statement.version,
    };
    Record::pointer(&keys(owner), &said, &statement).unwrap()
}

/// Asks a store and waits for the reply.
pub fn ask(store: &mut impl Store, now_ms: u64, request: Request) -> Reply {
    store.submit(now_ms, 7, request);
    loop {
        match next_event(store, now_ms) {
            StoreEvent::Reply(ticket, reply) => {
                assert_eq!(ticket, 7);
                return reply;
            }
            StoreEvent::Changed(_) => {}
        }
    }
}

pub fn next_event(store: &mut impl Store, now_ms: u64) -> StoreEvent {
    let since = Instant::now();
    loop {
        if let Some(event) = store.poll(now_ms) {
            return event;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "no reply");
        std::thread::sleep(Duration::from_micros(50));
    }
}

pub fn put(
    store: &mut impl Store,
    now_ms: u64,
    batch: &[Record],
) -> Result<Vec<PutResult>, StoreError> {
    put_from(
        store,
        now_ms,
        batch.iter().cloned().map(Put::from).collect(),
    )
}

pub fn put_from(
    store: &mut impl Store,
    now_ms: u64,
    batch: Vec<Put>,
) -> Result<Vec<PutResult>, StoreError> {
    match ask(store, now_ms, Request::Put(batch)) {
        Reply::Put(results) => results,
        other => panic!("{other:?}"),
    }
}

/// Returns the unexpired records of a name: those at hand, which are those that a read returns.
pub fn visible(store: &mut impl Store, now_ms: u64, subject: Guid) -> Vec<Record> {
    let mut read = match ask(store, now_ms, Request::Read(subject)) {
        Reply::Read(records) => records.unwrap(),
        other => panic!("{other:?}"),
    };
    read.retain(|record| !record.is_expired(now_ms));
    let mut at_hand = Vec::new();
    let is_at_hand = store.visit(&subject, now_ms, &mut |record| {
        at_hand.push(record.clone());
        true
    });
    assert!(!is_at_hand || at_hand == read, "{at_hand:?} {read:?}");
    read
}

/// The model: everything in one list, searched from end to end.
#[derive(Clone)]
pub struct Model {
    pub limits: StoreLimits,
    pub entries: Vec<Kept>,
}

#[derive(Clone)]
pub struct Kept {
    pub record: Record,
    pub until: u64,
    pub network: Option<u128>,
}

impl Model {
    pub fn new(limits: StoreLimits) -> Model {
        Model {
            limits,
            entries: Vec::new(),
        }
    }

    pub fn bytes(&self) -> usize {
        let bytes = self.entries.iter();
        bytes.map(|it| MemoryStore::bytes_of(&it.record)).sum()
    }

    /// Returns the provider that gives way to another one of this network.
    fn victim(&self, now_ms: u64, new: &Put) -> Result<RecordKey, Refusal> {
        let same = |it: &&Kept| {
            !it.record.filed_under().provider.is_none()
                && it.record.subject() == new.record.subject()
        };
        let all: Vec<&Kept> = self.entries.iter().filter(same).collect();
        let gone = |it: &&&Kept| it.record.is_removal() || it.until <= now_ms;
        let of = |network: Option<u128>| all.iter().filter(move |it| it.network == network);
        let soonest = |it: &&Kept| (it.until, it.record.filed_under());
        if let Some((_, key)) = all.iter().filter(gone).map(soonest).min() {
            return Ok(key);
        }
        let most = all.iter().map(|it| (of(it.network).count(), it.network));
        let (count, most) = most.max().ok_or(Refusal::Full)?;
        if count <= of(new.network).count() + 1 {
            return Err(Refusal::Full);
        }
        let (_, key) = of(most).map(soonest).min().ok_or(Refusal::Full)?;
        Ok(key)
    }

    pub fn put(&mut self, now_ms: u64, new: &Put) -> PutResult {
        let record = &new.record;
        let key = record.filed_under();
        let mut until = record.expires_ms();
        let old = self.entries.iter();
        let old = old.clone().find(|old| old.record.filed_under() == key);
        let known = old.filter(|old| old.until > now_ms);
        let mut victim = old.map(|_| key);
        let same = |it: &Kept| {
            !it.record.filed_under().provider.is_none() && it.record.subject() == record.subject()
        };
        let providers = self.entries.iter().filter(|it| same(it)).count();
        if let Some(known) = known {
            let stored = known.record.version();
            match record.version().cmp(&stored) {
                std::cmp::Ordering::Less => return Err(Refusal::Stale { stored }),
                std::cmp::Ordering::Equal if known.record == *record => {
                    return Ok(Outcome::Unchanged);
                }
                std::cmp::Ordering::Equal => return Err(Refusal::Conflict { stored }),
                std::cmp::Ordering::Greater => until = until.max(known.until),
            }
        } else if !new.may_create {
            return Err(Refusal::Full);
        } else if victim.is_none()
            && !key.provider.is_none()
            && providers >= self.limits.max_providers
        {
            victim = Some(self.victim(now_ms, new)?);
        }
        let is_new = known.is_none();
        let mut without = self.clone();
        without
            .entries
            .retain(|it| Some(it.record.filed_under()) != victim);
        without.entries.push(Kept {
            record: record.clone(),
            until,
            network: new.network,
        });
        let replaced = without.entries.len() == self.entries.len();
        for swept in [false, true] {
            let grown = without.entries.len() > self.limits.max_records && !replaced;
            let smaller = replaced && without.bytes() <= self.bytes();
            if !grown && (without.bytes() <= self.limits.max_bytes || smaller) {
                break;
            }
            if swept {
                return Err(Refusal::Full);
            }
            // All expired records are removed, except the one that the record replaces.
            let kept = |it: &Kept| {
                let other = it.record.filed_under();
                it.until > now_ms || Some(other) == victim || other == key
            };
            self.entries.retain(kept);
            without.entries.retain(kept);
        }
        *self = without;
        Ok(if is_new {
            Outcome::Created
        } else {
            Outcome::Stored
        })
    }

    pub fn visible(&self, now_ms: u64, subject: Guid) -> Vec<Record> {
        let all = self.entries.iter().map(|it| it.record.clone());
        let mut found: Vec<Record> = all
            .filter(|record| record.subject() == subject && !record.is_expired(now_ms))
            .collect();
        found.sort_by_key(Record::filed_under);
        found
    }
}

#[derive(Clone, Debug)]
pub enum Step {
    Put(Vec<Put>),
    Wait(u64),
    Expire(usize),
    Restart,
    Crash,
    FullDisk(bool),
}

pub fn record() -> impl Strategy<Value = Record> {
    let parts = (
        0u8..5,
        0u8..8,
        1u64..6,
        1u64..400,
        0..=MAX_ADDRESSES,
        any::<bool>(),
    );
    parts.prop_map(|(owner, kind, version, life, count, removed)| {
        let addresses = if removed {
            vec![]
        } else {
            vec![Address::new(Guid([1; 32])); count]
        };
        let statement = Statement {
            removed,
            ..said(version, life, addresses)
        };
        match kind {
            0..=2 => Record::provider(&keys(owner), CONTENT, &statement).unwrap(),
            3..=5 => Record::binding(&keys(owner), &statement).unwrap(),
            6 => pointer(
                0,
                owner,
                Statement {
                    addresses: vec![],
                    ..statement
                },
            ),
            _ => {
                let successor = (version > 2).then_some(Guid([version as u8; 32]));
                // It outlives the run.
                Record::revocation(&keys(owner), successor, EPOCH).unwrap()
            }
        }
    })
}

fn any_put() -> impl Strategy<Value = Put> {
    let network = prop::option::of(0u128..3);
    (record(), network, prop::bool::weighted(0.9)).prop_map(|(record, network, may_create)| Put {
        record,
        network,
        may_create,
    })
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => prop::collection::vec(any_put(), 1..4).prop_map(Step::Put),
        2 => (0u64..100).prop_map(Step::Wait),
        1 => (0usize..4).prop_map(Step::Expire),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
        1 => any::<bool>().prop_map(Step::FullDisk),
    ];
    prop::collection::vec(step, 1..40)
}

pub fn subjects() -> impl Iterator<Item = Guid> {
    let pointers = Pointer::subject_of(&keys(0).guid());
    let owners = (0..5).map(|owner| keys(owner).guid());
    owners.chain([CONTENT, pointers])
}

/// Runs all of the suite.
pub fn run<B: Bench>(bench: &mut B, cases: u32) {
    an_old_record_cannot_come_back_after_a_newer_one_has_expired(bench);
    full_contents_are_shared_by_network(bench);
    a_followed_name_is_at_hand(bench);
    pointers_only_rise_and_a_key_has_a_bounded_number(bench);
    a_revocation_stays_and_ends_the_name(bench);
    random_steps_have_the_outcome_of_the_model(bench, cases);
}

fn random_steps_have_the_outcome_of_the_model<B: Bench>(bench: &mut B, cases: u32) {
    let bench = RefCell::new(bench);
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    });
    let outcome = runner.run(&steps(), |steps| go(*bench.borrow_mut(), steps));
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}

fn go<B: Bench>(bench: &mut B, steps: Vec<Step>) -> TestCaseResult {
    let (mut store, mut model, mut now_ms) = (bench.empty(), Model::new(LIMITS), EPOCH);
    for step in steps {
        match step {
            Step::Put(batch) => {
                let expected: Vec<PutResult> =
                    batch.iter().map(|it| model.put(now_ms, it)).collect();
                prop_assert_eq!(put_from(&mut store, now_ms, batch), Ok(expected));
            }
            Step::Wait(millis) => now_ms += millis,
            // What is removed counts as absent already.
            Step::Expire(budget) => match ask(&mut store, now_ms, Request::RemoveExpired(budget)) {
                Reply::Removed(Ok(removed)) => prop_assert!(removed <= budget),
                other => prop_assert!(false, "{:?}", other),
            },
            Step::Restart | Step::Crash => {
                store = bench.restart(store);
                if !B::KEEPS_NETWORKS {
                    model.entries.iter_mut().for_each(|it| it.network = None);
                }
            }
            Step::FullDisk(_) => {}
        }
        for subject in subjects() {
            prop_assert_eq!(
                visible(&mut store, now_ms, subject),
                model.visible(now_ms, subject)
            );
        }
    }
    Ok(())
}

fn an_old_record_cannot_come_back_after_a_newer_one_has_expired<B: Bench>(bench: &mut B) {
    let mut store = bench.empty();
    let old = [binding(1, 1, 10_000)];
    assert_eq!(put(&mut store, EPOCH, &old), Ok(vec![Ok(Outcome::Created)]));
    let newer = [binding(1, 2, 1_000)];
    assert_eq!(
        put(&mut store, EPOCH, &newer),
        Ok(vec![Ok(Outcome::Stored)])
    );
    let mut store = bench.restart(store);
    let later = EPOCH + 5_000;
    assert_eq!(
        ask(&mut store, later, Request::RemoveExpired(100)),
        Reply::Removed(Ok(0))
    );
    assert_eq!(visible(&mut store, later, keys(1).guid()), []);
    let stale = Err(Refusal::Stale { stored: 2 });
    assert_eq!(put(&mut store, later, &old), Ok(vec![stale]));
    // Nothing that was accepted is valid any longer: the entry counts as absent.
    let end = EPOCH + 10_000;
    let again = [binding(1, 1, 60_000)];
    assert_eq!(put(&mut store, end, &again), Ok(vec![Ok(Outcome::Created)]));
}

/// One network has all places of a content; others get theirs, but not more than it has left.
fn full_contents_are_shared_by_network<B: Bench>(bench: &mut B) {
    let mut store = bench.empty();
    let mut announce = |seed: u8, network: u128| {
        let record = provider(seed, 1, 10_000 + u64::from(seed));
        let new = Put {
            network: Some(network),
            ..record.into()
        };
        put_from(&mut store, EPOCH, vec![new]).unwrap().remove(0)
    };
    for seed in 1..=3 {
        assert_eq!(announce(seed, 1), Ok(Outcome::Created));
    }
    assert_eq!(
        announce(4, 1),
        Err(Refusal::Full),
        "its own network is full"
    );
    assert_eq!(announce(5, 2), Ok(Outcome::Created));
    assert_eq!(announce(6, 2), Err(Refusal::Full), "two and one");
    assert_eq!(announce(7, 3), Ok(Outcome::Created));
    assert_eq!(announce(8, 4), Err(Refusal::Full), "one each");
    let left = visible(&mut store, EPOCH, CONTENT);
    let mut left: Vec<Guid> = left.iter().map(Record::signer).collect();
    left.sort();
    let mut expected = [3, 5, 7].map(|seed| keys(seed).guid());
    expected.sort();
    assert_eq!(left, expected);
}

fn a_followed_name_is_at_hand<B: Bench>(bench: &mut B) {
    let mut store = bench.empty();
    let (name, first) = (keys(1).guid(), binding(1, 1, 10_000));
    assert_eq!(
        put(&mut store, EPOCH, std::slice::from_ref(&first)),
        Ok(vec![Ok(Outcome::Created)])
    );
    store.follow(name);
    assert_eq!(visible(&mut store, EPOCH, name), [first]);
    let second = binding(1, 2, 10_000);
    assert_eq!(
        put(&mut store, EPOCH, std::slice::from_ref(&second)),
        Ok(vec![Ok(Outcome::Stored)])
    );
    assert_eq!(store.get(&RecordKey::binding(name)), Some(second.clone()));
    let is_at_hand = store.visit(&name, EPOCH, &mut |record| {
        assert_eq!(*record, second);
        true
    });
    assert!(is_at_hand);
    store.unfollow(&name);
    assert_eq!(visible(&mut store, EPOCH, name), [second]);
}

fn pointers_only_rise_and_a_key_has_a_bounded_number<B: Bench>(bench: &mut B) {
    let mut store = bench.empty();
    let films = |number, version| pointer(1, number, said(version, 10_000, vec![]));
    let created = Ok(vec![Ok(Outcome::Created)]);
    for number in 0..3 {
        assert_eq!(put(&mut store, EPOCH, &[films(number, 5)]), created);
    }
    let full = Ok(vec![Err(Refusal::Full)]);
    assert_eq!(put(&mut store, EPOCH, &[films(3, 5)]), full);
    let mut store = bench.restart(store);
    let stale = Ok(vec![Err(Refusal::Stale { stored: 5 })]);
    assert_eq!(put(&mut store, EPOCH, &[films(0, 4)]), stale);
    let newer = films(0, 6);
    let stored = Ok(vec![Ok(Outcome::Stored)]);
    assert_eq!(put(&mut store, EPOCH, std::slice::from_ref(&newer)), stored);
    let all = visible(&mut store, EPOCH, Pointer::subject_of(&keys(1).guid()));
    assert_eq!(all.len(), 3);
    assert!(all.contains(&newer));
    // A removed one gives way; another owner has places of their own.
    let removed = Statement {
        removed: true,
        ..said(7, 10_000, vec![])
    };
    assert_eq!(put(&mut store, EPOCH, &[pointer(1, 0, removed)]), stored);
    assert_eq!(put(&mut store, EPOCH, &[films(3, 5)]), created);
    let of_other = pointer(2, 0, said(1, 10_000, vec![]));
    assert_eq!(put(&mut store, EPOCH, &[of_other]), created);
}

fn a_revocation_stays_and_ends_the_name<B: Bench>(bench: &mut B) {
    let mut store = bench.empty();
    let name = keys(1).guid();
    put(&mut store, EPOCH, &[binding(1, 9, 10_000)]).unwrap();
    let revocation = Record::revocation(&keys(1), Some(keys(2).guid()), EPOCH).unwrap();
    let stored = Ok(vec![Ok(Outcome::Stored)]);
    assert_eq!(
        put(&mut store, EPOCH, std::slice::from_ref(&revocation)),
        stored
    );
    let mut store = bench.restart(store);
    let later = put(&mut store, EPOCH + 20_000, &[binding(1, 10, 30_000)]);
    let stale = |results: Result<Vec<PutResult>, StoreError>| {
        matches!(results.unwrap()[..], [Err(Refusal::Stale { .. })])
    };
    assert!(stale(later));
    assert_eq!(visible(&mut store, EPOCH + 20_000, name), [revocation]);
}
