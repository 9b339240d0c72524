//! Compares the PIT with a list that is searched from end to end.

use proptest::prelude::*;
use whimbrel_core::SeededRng;
use whimbrel_ndn_packet::{Component, Data, DigestSigner, Interest, InterestRef, Name};

use super::*;

fn name(components: &[u8]) -> Name {
    components
        .iter()
        .fold(Name::root(), |name, octet| name.child_generic(&[*octet]))
}

fn data(name: &Name, content: u8) -> Vec<u8> {
    Data::new(name.clone(), vec![content]).encode(&DigestSigner)
}

struct Table {
    pit: Pit,
    hasher: NameHasher,
}

impl Table {
    fn new() -> Table {
        let hasher = NameHasher::new(&mut SeededRng::new(1));
        Table {
            pit: Pit::new(hasher, 1000),
            hasher,
        }
    }

    /// The entry of an Interest, a new one if it has none.
    fn insert(&mut self, interest: &Interest) -> Option<u32> {
        let wire = interest.encode();
        let interest = InterestRef::decode(&wire).unwrap();
        let key = NameKey::of(&self.hasher, interest.name);
        let selectors = Selectors {
            can_be_prefix: interest.can_be_prefix,
            must_be_fresh: interest.must_be_fresh,
            hint: interest.forwarding_hint.unwrap_or_default(),
        };
        let onward = Onward {
            nonce: [0; 4],
            hop_limit: interest.hop_limit,
            arrived: false,
        };
        self.pit
            .find(&key, interest.name, selectors)
            .or_else(|| self.pit.insert(&key, &interest, onward, selectors))
    }

    fn matches(&self, packet: &[u8]) -> Vec<u32> {
        let data = DataRef::decode(packet).unwrap();
        let mut matches = self
            .pit
            .matches(&NameKey::of(&self.hasher, data.name), &data)
            .to_vec();
        matches.sort_unstable();
        matches
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        name: Vec<u8>,
        digest: Option<u8>,
        can_be_prefix: bool,
        must_be_fresh: bool,
        hint: Option<u8>,
    },
    Remove(usize),
    Match {
        name: Vec<u8>,
        content: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::collection::vec(0u8..2, 1..5);
    let digest = prop_oneof![3 => Just(None), 1 => (0u8..3).prop_map(Some)];
    let hint = prop_oneof![3 => Just(None), 1 => (0u8..3).prop_map(Some)];
    prop_oneof![
        4 => (name(), digest, any::<bool>(), any::<bool>(), hint).prop_map(
            |(name, digest, can_be_prefix, must_be_fresh, hint)| Step::Insert {
                name, digest, can_be_prefix, must_be_fresh, hint
            }),
        2 => (0usize..100).prop_map(Step::Remove),
        3 => (name(), 0u8..3).prop_map(|(name, content)| Step::Match { name, content }),
    ]
}

fn interest(components: &[u8], digest: Option<u8>) -> Interest {
    let mut full = name(components);
    if let Some(content) = digest {
        let packet = data(&full, content);
        let digest = DataRef::decode(&packet).unwrap().implicit_digest();
        full = full.child(Component::new(1, digest.to_vec()).as_ref());
    }
    let mut interest = Interest::new(full);
    interest.nonce = Some([0; 4]);
    interest
}

proptest! {
    #[test]
    fn a_data_matches_exactly_the_interests_that_it_satisfies(steps in prop::collection::vec(step(), 1..150)) {
        let mut table = Table::new();
        let mut model: Vec<(Interest, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert { name: components, digest, can_be_prefix, must_be_fresh, hint } => {
                    let mut interest = interest(&components, digest);
                    (interest.can_be_prefix, interest.must_be_fresh) = (can_be_prefix, must_be_fresh);
                    interest.forwarding_hint = hint.map(|hint| name(&[hint])).into_iter().collect();
                    let known = model.iter().find(|(known, _)| *known == interest).map(|(_, slot)| *slot);
                    let slot = table.insert(&interest);
                    match known {
                        Some(known) => prop_assert_eq!(slot, Some(known)),
                        None => match slot {
                            Some(slot) => model.push((interest, slot)),
                            None => {
                                // Only for a full chain: same name, or same name before the digest.
                                let before = |name: &Name| {
                                    name.prefix(name.len() - usize::from(implicit_digest(name.as_ref().value()).is_some()))
                                };
                                let same = |known: &Interest| before(&known.name) == before(&interest.name);
                                prop_assert!(model.iter().filter(|(known, _)| same(known)).count() >= MAX_VARIANTS);
                            }
                        },
                    }
                }
                Step::Remove(which) if !model.is_empty() => {
                    let (interest, slot) = model.swap_remove(which % model.len());
                    prop_assert_eq!(table.pit.get(slot).unwrap().name(), interest.name.as_ref());
                    table.pit.remove(slot);
                    prop_assert!(table.pit.get(slot).is_none());
                }
                Step::Remove(_) => {}
                Step::Match { name: components, content } => {
                    let packet = data(&name(&components), content);
                    let decoded = DataRef::decode(&packet).unwrap();
                    let digest = Component::new(1, decoded.implicit_digest().to_vec());
                    let full = decoded.name.to_name().child(digest.as_ref());
                    let satisfied = |interest: &Interest| {
                        interest.name == full
                            || interest.name.as_ref() == decoded.name
                            || (interest.can_be_prefix && interest.name.as_ref().is_prefix_of(decoded.name))
                    };
                    let expected = model.iter().filter(|(interest, _)| satisfied(interest)).map(|(_, slot)| *slot);
                    let mut expected: Vec<u32> = expected.collect();
                    expected.sort_unstable();
                    prop_assert_eq!(table.matches(&packet), expected);
                }
            }
            prop_assert_eq!(table.pit.len(), model.len());
        }
        for (_, slot) in model {
            table.pit.remove(slot);
        }
        prop_assert_eq!((table.pit.len(), table.pit.names.len(), table.pit.digests.len()), (0, 0, 0));
        prop_assert_eq!(table.pit.prefix_depths_taken, 0);
    }
}

#[test]
fn a_name_takes_only_so_many_forwarding_hints() {
    let mut table = Table::new();
    let mut interest = interest(&[1], None);
    for hint in 0..100 {
        interest.forwarding_hint = vec![name(&[hint])];
        assert_eq!(
            table.insert(&interest).is_some(),
            usize::from(hint) < MAX_VARIANTS
        );
    }
}

#[test]
fn names_beyond_the_depth_limit_are_found_in_full_and_not_by_prefix() {
    let mut table = Table::new();
    let long = name(&[1; MAX_DEPTH + 8]);
    let mut interest = Interest::new(long.clone());
    (interest.nonce, interest.can_be_prefix) = (Some([0; 4]), true);
    let slot = table.insert(&interest).unwrap();
    assert_eq!(table.matches(&data(&long, 0)), [slot]);
    assert!(
        table
            .matches(&data(&long.child_generic(b"x"), 0))
            .is_empty()
    );
    let mut short = Interest::new(long.prefix(MAX_DEPTH));
    (short.nonce, short.can_be_prefix) = (Some([0; 4]), true);
    let prefix = table.insert(&short).unwrap();
    let mut both = [slot, prefix];
    both.sort_unstable();
    assert_eq!(table.matches(&data(&long, 0)), both);
    table.pit.remove(slot);
    table.pit.remove(prefix);
    assert!(table.pit.is_empty());
}
