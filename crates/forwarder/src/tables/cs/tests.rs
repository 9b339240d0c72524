//! Compares the content store with a list that is searched from end to end.

use core::time::Duration;

use proptest::prelude::*;
use whimbrel_core::SeededRng;
use whimbrel_ndn_packet::{Component, Data, DigestSigner, Interest, Name, SharedPacket};

use super::*;
use crate::config::CsPolicy;

fn name(components: &[u8]) -> Name {
    components
        .iter()
        .fold(Name::root(), |name, octet| name.child_generic(&[*octet]))
}

fn packet(name: &Name, freshness: u64, content: u8) -> SharedPacket {
    let mut data = Data::new(name.clone(), vec![content; 10]);
    data.freshness = Duration::from_millis(freshness);
    data.encode(&DigestSigner).into()
}

struct Store {
    cs: Cs,
    hasher: NameHasher,
}

impl Store {
    fn new(capacity: usize, max_packets: usize, policy: CsPolicy) -> Store {
        let hasher = NameHasher::new(&mut SeededRng::new(1));
        Store {
            cs: Cs::new(
                CsConfig {
                    capacity,
                    max_packets,
                    policy,
                    ..CsConfig::default()
                },
                hasher,
            ),
            hasher,
        }
    }

    fn insert(&mut self, now: Time, packet: &SharedPacket) {
        let data = DataRef::decode(packet).unwrap();
        self.cs
            .insert(now, packet, &data, &NameKey::of(&self.hasher, data.name));
    }

    fn find(&mut self, now: Time, interest: &Interest) -> Option<SharedPacket> {
        let wire = interest.encode();
        let interest = InterestRef::decode(&wire).unwrap();
        let key = NameKey::of(&self.hasher, interest.name);
        self.cs.find(now, &interest, &key).map(|hit| hit.data)
    }
}

fn exact(name: &Name) -> Interest {
    Interest::new(name.clone())
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        name: Vec<u8>,
        freshness: u64,
        content: u8,
    },
    Find {
        name: Vec<u8>,
        can_be_prefix: bool,
        must_be_fresh: bool,
    },
    FindDigest(usize),
    Erase {
        prefix: Vec<u8>,
        limit: usize,
    },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::collection::vec(0u8..3, 1..5);
    prop_oneof![
        4 => (name(), prop_oneof![Just(0u64), Just(50), Just(1000)], 0u8..2)
            .prop_map(|(name, freshness, content)| Step::Insert { name, freshness, content }),
        4 => (name(), any::<bool>(), any::<bool>())
            .prop_map(|(name, can_be_prefix, must_be_fresh)| Step::Find { name, can_be_prefix, must_be_fresh }),
        1 => (0usize..40).prop_map(Step::FindDigest),
        1 => (name(), 1usize..5).prop_map(|(prefix, limit)| Step::Erase { prefix, limit }),
        1 => (0u64..100).prop_map(Step::Wait),
    ]
}

/// The expected contents of the store: packets from the first inserted to the last.
struct Model {
    kept: Vec<(Name, SharedPacket, Time)>,
}

impl Model {
    fn newest(
        &self,
        now: Time,
        fresh: bool,
        matches: impl Fn(&Name, &SharedPacket) -> bool,
    ) -> bool {
        self.kept
            .iter()
            .any(|(name, packet, until)| matches(name, packet) && (!fresh || *until > now))
    }
}

proptest! {
    #[test]
    fn it_finds_a_data_exactly_when_a_search_through_all_of_them_does(
        steps in prop::collection::vec(step(), 1..120),
        lru in any::<bool>(),
    ) {
        let policy = if lru { CsPolicy::Lru } else { CsPolicy::S3Fifo };
        let (mut store, mut model) = (Store::new(1 << 20, usize::MAX, policy), Model { kept: Vec::new() });
        let mut now = Time::ZERO;
        let mut seen: Vec<(Name, [u8; 32])> = Vec::new();
        for step in steps {
            match step {
                Step::Insert { name: components, freshness, content } => {
                    let (name, packet) = (name(&components), packet(&name(&components), freshness, content));
                    seen.push((name.clone(), DataRef::decode(&packet).unwrap().implicit_digest()));
                    store.insert(now, &packet);
                    let until = now + Duration::from_millis(freshness);
                    match model.kept.iter_mut().find(|kept| kept.1 == packet) {
                        Some(kept) => kept.2 = until,
                        None => {
                            let mut same = (0..model.kept.len()).filter(|at| model.kept[*at].0 == name);
                            let (first, count) = (same.next(), same.count());
                            // The store chooses which one of too many it evicts: this model keeps
                            // to names of which there are few.
                            prop_assume!(count + 1 < MAX_VARIANTS || first.is_none());
                            model.kept.push((name, packet, until));
                        }
                    }
                }
                Step::Find { name: components, can_be_prefix, must_be_fresh } => {
                    let name = name(&components);
                    let mut interest = exact(&name);
                    (interest.can_be_prefix, interest.must_be_fresh) = (can_be_prefix, must_be_fresh);
                    let matches = |kept: &Name| {
                        *kept == name || (can_be_prefix && name.as_ref().is_prefix_of(kept.as_ref()))
                    };
                    let found = store.find(now, &interest);
                    prop_assert_eq!(found.is_some(), model.newest(now, must_be_fresh, |kept, _| matches(kept)));
                    if let Some(found) = found {
                        let fresh = |packet: &SharedPacket| *packet == found;
                        prop_assert!(model.newest(now, must_be_fresh, |kept, packet| matches(kept) && fresh(packet)));
                    }
                }
                Step::FindDigest(which) => {
                    let Some((name, digest)) = seen.get(which) else { continue };
                    let component = Component::new(1, digest.to_vec());
                    let found = store.find(now, &exact(&name.child(component.as_ref())));
                    let has_digest = |packet: &SharedPacket| DataRef::decode(packet).unwrap().implicit_digest() == *digest;
                    prop_assert_eq!(found.is_some(), model.newest(now, false, |_, packet| has_digest(packet)));
                    prop_assert!(found.is_none_or(|found| has_digest(&found)));
                }
                Step::Erase { prefix, limit } => {
                    let prefix = name(&prefix);
                    let under = model.kept.iter().filter(|kept| prefix.as_ref().is_prefix_of(kept.0.as_ref()));
                    let expected = under.count();
                    prop_assert_eq!(store.cs.erase(prefix.as_ref(), limit), expected.min(limit));
                    // The store chooses which ones to evict: ask it by digest.
                    model.kept.retain(|(name, packet, _)| {
                        let digest = DataRef::decode(packet).unwrap().implicit_digest();
                        let component = Component::new(1, digest.to_vec());
                        store.find(now, &exact(&name.child(component.as_ref()))).is_some()
                    });
                }
                Step::Wait(millis) => now += Duration::from_millis(millis),
            }
            prop_assert_eq!(store.cs.len(), model.kept.len());
        }
        store.cs.erase(Name::root().as_ref(), usize::MAX);
        prop_assert_eq!((store.cs.len(), store.cs.bytes()), (0, 0));
    }

    #[test]
    fn it_never_holds_more_than_its_capacity(
        steps in prop::collection::vec((prop::collection::vec(0u8..6, 1..4), any::<bool>()), 1..300),
        capacity in 0usize..6_000,
        max_packets in 0usize..30,
        lru in any::<bool>(),
    ) {
        let policy = if lru { CsPolicy::Lru } else { CsPolicy::S3Fifo };
        let mut store = Store::new(capacity, max_packets, policy);
        for (components, ask) in steps {
            let name = name(&components);
            if ask {
                let mut interest = exact(&name);
                interest.can_be_prefix = true;
                store.find(Time::ZERO, &interest);
            } else {
                store.insert(Time::ZERO, &packet(&name, 0, 0));
            }
            prop_assert!(store.cs.bytes() <= capacity && store.cs.len() <= max_packets);
        }
        store.cs.set_capacity(0, usize::MAX);
        prop_assert_eq!((store.cs.len(), store.cs.bytes()), (0, 0));
    }
}

#[test]
fn of_several_under_a_prefix_the_newest_fresh_one_answers() {
    let mut store = Store::new(1 << 20, usize::MAX, CsPolicy::S3Fifo);
    let mut interest = exact(&name(&[1]));
    interest.can_be_prefix = true;
    for (version, freshness) in [(1, 1000), (2, 1000), (3, 10)] {
        store.insert(Time::ZERO, &packet(&name(&[1, version]), freshness, 0));
        if version == 1 {
            assert!(
                store.find(Time::ZERO, &interest).is_some(),
                "lists what came before the first such Interest"
            );
        }
    }
    let answer = |store: &mut Store, interest: &Interest, at| {
        let packet = store.find(Time::from_millis(at), interest).unwrap();
        DataRef::decode(&packet).unwrap().name.to_name()
    };
    assert_eq!(answer(&mut store, &interest, 100), name(&[1, 3]));
    interest.must_be_fresh = true;
    assert_eq!(
        answer(&mut store, &interest, 100),
        name(&[1, 2]),
        "version 3 is no longer fresh"
    );
    assert!(store.find(Time::from_millis(1000), &interest).is_none());
}

#[test]
fn a_length_of_prefixes_that_nobody_asked_for_yet_finds_what_is_there() {
    let count = 10 * CATCH_UP;
    let named = |at: usize| {
        Name::root()
            .child_generic(&at.to_be_bytes())
            .child_generic(b"x")
    };
    let stored = || {
        let mut store = Store::new(64 << 20, usize::MAX, CsPolicy::S3Fifo);
        for at in 0..count {
            store.insert(Time::ZERO, &packet(&named(at), 0, 0));
        }
        store
    };
    let under = |at: usize| {
        let mut interest = exact(&named(at).prefix(1));
        interest.can_be_prefix = true;
        interest
    };
    for at in [0, CATCH_UP, count - 1] {
        let mut store = stored();
        assert!(store.find(Time::ZERO, &under(at)).is_some(), "{at}");
        // The lists contain no more than the search needed.
        let left = (count - 1 - at) / CATCH_UP;
        assert_eq!(store.cs.catching_up.is_empty(), left == 0, "{at}");
        for at in 0..count {
            assert!(store.find(Time::ZERO, &under(at)).is_some(), "{at}");
        }
    }
    let mut store = stored();
    assert!(store.find(Time::ZERO, &under(count)).is_none());
    assert!(store.cs.catching_up.is_empty(), "all were looked at");
}

#[test]
fn two_lengths_catch_up_each_for_itself() {
    let mut store = Store::new(64 << 20, usize::MAX, CsPolicy::S3Fifo);
    for at in 0..3 * CATCH_UP {
        let name = name(&[1, 2]).child_generic(&at.to_be_bytes());
        store.insert(Time::ZERO, &packet(&name, 0, 0));
    }
    for components in [&[1][..], &[1, 2], &[1], &[1, 3]] {
        let mut interest = exact(&name(components));
        interest.can_be_prefix = true;
        let is_there = store.find(Time::ZERO, &interest).is_some();
        assert_eq!(is_there, components != [1, 3], "{components:?}");
    }
    let caught_up = |depth| store.cs.catching_up.iter().all(|(of, _)| *of != depth);
    assert!(caught_up(2) && !caught_up(1));
}

#[test]
fn a_flood_of_data_of_one_name_keeps_only_a_few_of_them() {
    let mut store = Store::new(1 << 20, usize::MAX, CsPolicy::S3Fifo);
    for content in 0..100 {
        store.insert(Time::ZERO, &packet(&name(&[1]), 0, content));
    }
    assert_eq!(store.cs.len(), MAX_VARIANTS);
}

/// 1,000 popular names among a stream of names that are requested once.
fn hits_among_a_scan(policy: CsPolicy) -> usize {
    let mut store = Store::new(usize::MAX >> 8, 2_000, policy);
    let mut rng = SeededRng::new(1);
    let mut hits = 0;
    for scanned in 0..40_000u32 {
        let popular = Name::root().child_generic(&rng.below(1_000).to_be_bytes());
        for name in [
            popular,
            Name::root()
                .child_generic(b"scan")
                .child_generic(&scanned.to_be_bytes()),
        ] {
            match store.find(Time::ZERO, &exact(&name)) {
                Some(_) => hits += 1,
                None => store.insert(Time::ZERO, &packet(&name, 0, 0)),
            }
        }
    }
    hits
}

#[test]
fn a_scan_does_not_empty_the_store_under_s3_fifo_as_it_does_under_lru() {
    let (s3, lru) = (
        hits_among_a_scan(CsPolicy::S3Fifo),
        hits_among_a_scan(CsPolicy::Lru),
    );
    assert!(s3 > 36_000, "{s3}");
    assert!(s3 * 10 > lru * 11, "{s3} {lru}");
}

#[test]
fn a_share_of_the_names_is_admitted_and_always_the_same_ones() {
    let mut store = Store::new(10 << 20, usize::MAX, CsPolicy::Lru);
    store.cs.config.admitted_percent = 50;
    let names: Vec<Name> = (0..200).map(|n| name(&[n])).collect();
    let fill = |store: &mut Store| {
        for name in &names {
            store.insert(Time::ZERO, &packet(name, 0, 0));
        }
        store.cs.len()
    };
    let kept = fill(&mut store);
    assert!((70..=130).contains(&kept), "{kept}");
    assert_eq!(fill(&mut store), kept);
}

#[test]
fn switched_off_it_neither_takes_nor_gives() {
    let mut store = Store::new(1 << 20, usize::MAX, CsPolicy::Lru);
    store.cs.admit = false;
    store.insert(Time::ZERO, &packet(&name(&[1]), 0, 0));
    assert!(store.cs.is_empty());
    store.cs.admit = true;
    store.insert(Time::ZERO, &packet(&name(&[1]), 0, 0));
    store.cs.serve = false;
    assert!(store.find(Time::ZERO, &exact(&name(&[1]))).is_none());
    store.cs.serve = true;
    assert!(store.find(Time::ZERO, &exact(&name(&[1]))).is_some());
}

#[test]
fn octets_that_look_like_a_digest_within_a_component_are_none() {
    let mut value = vec![1u8, 32];
    value.extend_from_slice(&[7; 32]);
    let hidden = Name::root().child_generic(&value);
    assert_eq!(implicit_digest(hidden.as_ref().value()), None);
    let real = hidden.child(Component::new(1, vec![7; 32]).as_ref());
    assert_eq!(implicit_digest(real.as_ref().value()), Some(&[7u8; 32][..]));
}
