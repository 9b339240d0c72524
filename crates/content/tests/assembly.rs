//! A download with honest providers, liars, failing disks and kills.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use proptest::prelude::*;
use whimbrel_content::{
    Assembly, ChunkSize, ChunkTree, Offer, Proof, RecordError, Refusal, VerifyError,
};
use whimbrel_core::{Guid, SeededRng};

const SMALL: u64 = 64 * 1024;

struct Provider {
    bytes: Vec<u8>,
    tree: ChunkTree,
}

impl Provider {
    /// It can prove the smallest chunks.
    fn of_small_chunks(len: u64) -> Provider {
        let Provider { bytes, .. } = Provider::new(len);
        let tree = ChunkTree::from_reader(&bytes[..], ChunkSize::MIN, &mut |_| {}).unwrap();
        Provider { bytes, tree }
    }

    fn new(len: u64) -> Provider {
        let mut rng = SeededRng::new(len);
        let bytes: Vec<u8> = (0..len).map(|_| rng.next_word() as u8).collect();
        let tree = ChunkTree::from_reader(&bytes[..], ChunkSize::GROUP, &mut |_| {}).unwrap();
        Provider { bytes, tree }
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Offers chunk `index` to `assembly` under the length `claimed_len`, after `spoil` has
    /// modified the offer.
    fn offer(
        &self,
        assembly: &Assembly,
        chunk_size: ChunkSize,
        index: u64,
        claimed_len: u64,
        spoil: impl FnOnce(&mut Vec<u8>),
    ) -> Result<whimbrel_content::Verified, Refusal> {
        let mut data = match chunk_size.range(index, self.len()) {
            Some(range) => self.bytes[range.start as usize..range.end as usize].to_vec(),
            None => Vec::new(),
        };
        spoil(&mut data);
        let proof = self.tree.proof(index, chunk_size).unwrap_or_default();
        assembly.check(&Offer {
            chunk_size,
            index,
            claimed_len,
            data: &data,
            proof: &proof,
        })
    }

    fn give(&self, assembly: &mut Assembly, chunk_size: ChunkSize, index: u64) {
        let verified = self
            .offer(assembly, chunk_size, index, self.len(), |_| {})
            .unwrap();
        assert!(assembly.commit(verified));
    }
}

#[test]
fn a_download_in_order_confirms_its_length_with_the_last_chunk() {
    let provider = Provider::new(3 * SMALL + 5);
    let mut assembly = Assembly::new(provider.tree.root(), 1 << 40);
    assert_eq!(
        (assembly.expected_len(), assembly.confirmed_len()),
        (None, None)
    );
    for index in 0..4 {
        assert_eq!(
            assembly.missing_chunks(ChunkSize::GROUP).next(),
            Some(index)
        );
        assert_eq!(assembly.confirmed_len(), None);
        provider.give(&mut assembly, ChunkSize::GROUP, index);
        assert_eq!(assembly.expected_len(), Some(provider.len()));
        assert_eq!(assembly.deliverable().end, assembly.verified_bytes());
    }
    assert_eq!(assembly.confirmed_len(), Some(provider.len()));
    assert!(assembly.is_complete());
    assert_eq!(assembly.missing_chunks(ChunkSize::GROUP).next(), None);
}

#[test]
fn what_another_state_has_verified_counts_where_it_belongs_and_fits() {
    let provider = Provider::new(3 * SMALL + 5);
    let (root, end) = (provider.tree.root(), provider.len());
    let host = Assembly::new(root, 1 << 40);
    let offer = |index, claimed| provider.offer(&host, ChunkSize::GROUP, index, claimed, |_| {});
    let last = offer(3, end).unwrap();

    let mut program = Assembly::new(root, 1 << 40);
    let again = program.check_again(&last).unwrap();
    assert!(program.commit(again));
    assert_eq!(program.confirmed_len(), Some(end));
    assert_eq!(program.check_again(&last), Err(Refusal::Duplicate));
    let false_length = program.check_again(&offer(0, end - 1).unwrap());
    assert!(matches!(false_length, Err(Refusal::FalseLength { .. })));

    let other = Assembly::new(Guid([7; 32]), 1 << 40);
    let foreign = other.check_again(&last);
    assert_eq!(foreign, Err(VerifyError::RootMismatch.into()));
    let small = Assembly::new(root, SMALL).check_again(&last);
    assert!(matches!(small, Err(Refusal::AboveLimit { .. })));
}

#[test]
fn empty_content_is_complete_from_its_name() {
    let provider = Provider::new(0);
    let mut assembly = Assembly::new(provider.tree.root(), 0);
    assert!(assembly.is_complete());
    assert_eq!(assembly.missing().count(), 0);
    let offer = provider.offer(&assembly, ChunkSize::GROUP, 0, 0, |_| {});
    assert_eq!(offer, Err(Refusal::Duplicate));
    assert_eq!(Assembly::decode(&assembly.encode()), Ok(assembly.clone()));
    assembly.note_delivered(9);
    assert_eq!(assembly.deliverable(), 0..0);
}

#[test]
fn true_chunks_under_a_false_length_are_kept() {
    let provider = Provider::new(5 * SMALL + 1);
    let mut assembly = Assembly::new(provider.tree.root(), 1 << 40);
    // The true content has six chunks. Chunk 0 has the same path in a tree of eight, but not in one
    // of sixteen.
    let lie = 8 * SMALL;
    let verified = provider
        .offer(&assembly, ChunkSize::GROUP, 0, lie, |_| {})
        .unwrap();
    assert!(assembly.commit(verified));
    assert_eq!(assembly.expected_len(), Some(lie));
    assert_eq!(assembly.proven_len(), 4 * SMALL + 1..=8 * SMALL);
    let wild = provider.offer(&assembly, ChunkSize::GROUP, 1, 16 * SMALL, |_| {});
    assert_eq!(
        wild,
        Err(Refusal::FalseLength {
            claimed: 16 * SMALL,
            proven: 4 * SMALL + 1..=8 * SMALL
        })
    );

    provider.give(&mut assembly, ChunkSize::GROUP, 1);
    provider.give(&mut assembly, ChunkSize::GROUP, 2);
    assert_eq!(
        assembly.expected_len(),
        Some(provider.len()),
        "the true chunks added more bytes"
    );
    assert_eq!(assembly.claimed_lens().count(), 2);

    provider.give(&mut assembly, ChunkSize::GROUP, 5);
    assert_eq!(assembly.confirmed_len(), Some(provider.len()));
    assert!(
        assembly.verified().contains(&(0..SMALL)),
        "chunks received under the false length stay"
    );
    assert_eq!(
        assembly.missing().collect::<Vec<_>>(),
        vec![3 * SMALL..5 * SMALL]
    );
    let again = provider.offer(&assembly, ChunkSize::GROUP, 3, lie, |_| {});
    assert!(matches!(again, Err(Refusal::FalseLength { .. })));
}

/// 230 kB were missing of 300 kB that came over a slow link, and all of it was requested again.
#[test]
fn the_rest_is_requested_without_much_of_what_is_there() {
    let provider = Provider::of_small_chunks(300_000);
    let mut assembly = Assembly::new(provider.tree.root(), 1 << 30);
    assert_eq!(
        assembly.chunk_size_of_rest(ChunkSize::DEFAULT),
        ChunkSize::DEFAULT
    );
    for index in [18, 0, 1, 2, 3] {
        provider.give(&mut assembly, ChunkSize::MIN, index);
    }
    let size = assembly.chunk_size_of_rest(ChunkSize::DEFAULT);
    assert_eq!(size, ChunkSize::GROUP);
    let requested: Vec<u64> = assembly.missing_chunks(size).collect();
    assert_eq!(requested, [1, 2, 3, 4]);
    assert_eq!(assembly.chunk_size_of_rest(ChunkSize::MIN), ChunkSize::MIN);
    // Of a long rest, a few bytes that come twice are no reason for small chunks.
    let provider = Provider::of_small_chunks(20 << 20);
    let mut assembly = Assembly::new(provider.tree.root(), 1 << 30);
    provider.give(&mut assembly, ChunkSize::MIN, 0);
    assert_eq!(
        assembly.chunk_size_of_rest(ChunkSize::DEFAULT),
        ChunkSize::DEFAULT
    );
}

#[test]
fn a_withdrawn_claim_leaves_chunks_to_request() {
    let provider = Provider::new(3 * SMALL);
    let mut assembly = Assembly::new(provider.tree.root(), 1 << 40);
    for index in 0..2 {
        let verified = provider.offer(&assembly, ChunkSize::GROUP, index, 4 * SMALL, |_| {});
        if let Ok(verified) = verified {
            assert!(assembly.commit(verified));
        }
    }
    assert_eq!(assembly.expected_len(), Some(4 * SMALL));
    assembly.withdraw_claim(4 * SMALL);
    assert_eq!(assembly.expected_len(), None);
    assert_eq!(
        assembly
            .missing_chunks(ChunkSize::GROUP)
            .collect::<Vec<_>>(),
        [2]
    );
}

#[test]
fn offers_above_the_limit_are_refused() {
    let provider = Provider::new(2 * SMALL);
    let assembly = Assembly::new(provider.tree.root(), 2 * SMALL - 1);
    let offer = provider.offer(&assembly, ChunkSize::GROUP, 0, provider.len(), |_| {});
    assert_eq!(
        offer,
        Err(Refusal::AboveLimit {
            claimed: 2 * SMALL,
            limit: 2 * SMALL - 1
        })
    );
    let unlimited = Assembly::new(provider.tree.root(), u64::MAX);
    let offer = provider.offer(&unlimited, ChunkSize::GROUP, 0, u64::MAX, |_| {});
    assert!(matches!(offer, Err(Refusal::AboveLimit { .. })));
}

#[test]
fn a_chunk_of_another_content_is_not_committed() {
    let (provider, other) = (Provider::new(SMALL + 1), Provider::new(SMALL + 2));
    let assembly = Assembly::new(provider.tree.root(), 1 << 40);
    let verified = provider
        .offer(&assembly, ChunkSize::GROUP, 0, provider.len(), |_| {})
        .unwrap();
    let mut of_other = Assembly::new(other.tree.root(), 1 << 40);
    assert!(!of_other.commit(verified));
    assert_eq!(of_other.verified_bytes(), 0);
}

#[test]
fn claims_are_bounded_in_number() {
    let provider = Provider::new(40 * SMALL);
    let mut assembly = Assembly::new(provider.tree.root(), 1 << 40);
    for index in 0..30 {
        let lie = provider.len() + 1 + index;
        if let Ok(verified) = provider.offer(&assembly, ChunkSize::GROUP, index, lie, |_| {}) {
            assert!(assembly.commit(verified));
        }
    }
    assert_eq!(
        assembly.claimed_lens().count(),
        whimbrel_content::progress::MAX_CLAIMS
    );
}

#[derive(Clone, Debug)]
enum Step {
    Honest {
        code: u8,
        position: u64,
        stored: bool,
    },
    Lie {
        code: u8,
        position: u64,
        claim: u64,
    },
    Spoilt {
        code: u8,
        position: u64,
        place: u64,
    },
    Deliver {
        offset: u64,
    },
    Withdraw {
        position: u64,
    },
    Record,
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let code = || 16u8..=18;
    let step = prop_oneof![
        4 => (code(), any::<u64>(), any::<bool>())
            .prop_map(|(code, position, stored)| Step::Honest { code, position, stored }),
        3 => (code(), any::<u64>(), 0..20 * SMALL)
            .prop_map(|(code, position, claim)| Step::Lie { code, position, claim }),
        2 => (code(), any::<u64>(), any::<u64>())
            .prop_map(|(code, position, place)| Step::Spoilt { code, position, place }),
        1 => (0..14 * SMALL).prop_map(|offset| Step::Deliver { offset }),
        1 => any::<u64>().prop_map(|position| Step::Withdraw { position }),
        1 => Just(Step::Record),
        1 => Just(Step::Kill),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_happens_only_the_truth_is_kept_and_the_download_can_be_finished(
        len in 1u64..12 * SMALL, steps in steps(),
    ) {
        let provider = Provider::new(len);
        let mut assembly = Assembly::new(provider.tree.root(), 1 << 30);
        // The bytes on disk. They are never removed: a kill leaves the written ones.
        let mut disk = vec![false; len as usize];
        let mut record = assembly.encode();
        for step in steps {
            let size = |code| ChunkSize::from_code(code).unwrap();
            match step {
                Step::Honest { code, position, stored } => {
                    let index = position % size(code).count(len);
                    match provider.offer(&assembly, size(code), index, len, |_| {}) {
                        Ok(verified) if stored => {
                            let range = verified.range();
                            disk[range.start as usize..range.end as usize].fill(true);
                            prop_assert!(assembly.commit(verified.clone()));
                            prop_assert!(!assembly.commit(verified));
                        }
                        Ok(verified) => {
                            let range = verified.range();
                            prop_assert!(assembly.commit(verified));
                            assembly.forget(range.clone());
                            prop_assert_eq!(assembly.verified().end_of_run(range.start), range.start);
                        }
                        Err(refusal) => prop_assert_eq!(refusal, Refusal::Duplicate),
                    }
                }
                Step::Lie { code, position, claim } => {
                    let index = position % size(code).count(len);
                    let result = provider.offer(&assembly, size(code), index, claim, |_| {});
                    if let Ok(verified) = result {
                        let range = verified.range();
                        prop_assert!(range.end <= len);
                        disk[range.start as usize..range.end as usize].fill(true);
                        prop_assert!(assembly.commit(verified));
                    }
                }
                Step::Spoilt { code, position, place } => {
                    let index = position % size(code).count(len);
                    let result = provider.offer(&assembly, size(code), index, len, |data| {
                        let place = (place % data.len() as u64) as usize;
                        data[place] ^= 1;
                    });
                    prop_assert!(matches!(
                        result,
                        Err(Refusal::Duplicate | Refusal::Unproven(VerifyError::RootMismatch))
                    ));
                }
                Step::Deliver { offset } => {
                    let before = assembly.deliverable();
                    assembly.note_delivered(offset);
                    let after = assembly.deliverable();
                    prop_assert!(before.start <= after.start && after.start <= after.end);
                    prop_assert_eq!(before.end, after.end);
                }
                Step::Withdraw { position } => {
                    let claims: Vec<_> = assembly.claimed_lens().collect();
                    if !claims.is_empty() {
                        assembly.withdraw_claim(claims[(position % claims.len() as u64) as usize]);
                    }
                }
                Step::Record => record = assembly.encode(),
                Step::Kill => {
                    assembly = Assembly::decode(&record).unwrap();
                    prop_assert_eq!(&assembly.encode(), &record);
                }
            }
            prop_assert!(assembly.confirmed_len().is_none_or(|confirmed| confirmed == len));
            prop_assert!(assembly.proven_len().contains(&len));
            let verified = assembly.verified().iter().flatten();
            prop_assert!(verified.into_iter().all(|at| disk[at as usize]));
            prop_assert!(assembly.deliverable().all(|at| disk[at as usize]));
            let ranges: Vec<_> = assembly.missing_ranges(ChunkSize::DEFAULT).collect();
            prop_assert!(ranges.iter().all(|it| !it.is_empty()));
            prop_assert!(ranges.windows(2).all(|it| it[0].end <= it[1].start));
            let chunks: Vec<u64> = assembly.missing_chunks(ChunkSize::DEFAULT).collect();
            prop_assert_eq!(ranges.into_iter().flatten().collect::<Vec<_>>(), chunks);
            prop_assert_eq!(assembly.is_complete(), assembly.missing().next().is_none());
            prop_assert_eq!(assembly.is_complete(), assembly.missing_chunks(ChunkSize::DEFAULT).next().is_none());
        }
        // An honest provider alone completes it, requested for the first missing chunk each time.
        // If planning follows a lie, that chunk may not exist: its claim is then withdrawn.
        let mut rounds = 0;
        let next = |assembly: &Assembly| assembly.missing_chunks(ChunkSize::GROUP).next();
        while let Some(index) = next(&assembly) {
            rounds += 1;
            prop_assert!(rounds < 40, "{:?}", assembly);
            if index < ChunkSize::GROUP.count(len) {
                provider.give(&mut assembly, ChunkSize::GROUP, index);
            } else {
                assembly.withdraw_claim(assembly.expected_len().unwrap());
            }
        }
        prop_assert!(assembly.is_complete());
        prop_assert_eq!((assembly.confirmed_len(), assembly.verified_bytes()), (Some(len), len));
    }

    #[test]
    fn missing_chunks_are_those_with_a_missing_byte(
        len in 1u64..12 * SMALL, have in prop::collection::vec(any::<bool>(), 12), code in 16u8..=19,
    ) {
        let provider = Provider::new(len);
        let mut assembly = Assembly::new(provider.tree.root(), 1 << 40);
        let last = ChunkSize::GROUP.last_index(len);
        let has = |index: u64| index == last || have[index as usize];
        for index in (0..=last).filter(|index| has(*index)) {
            provider.give(&mut assembly, ChunkSize::GROUP, index);
        }
        let size = ChunkSize::from_code(code).unwrap();
        let per_chunk = size.bytes() / SMALL;
        let expected = (0..size.count(len)).filter(|chunk| {
            (chunk * per_chunk..((chunk + 1) * per_chunk).min(last + 1)).any(|index| !has(index))
        });
        prop_assert_eq!(assembly.missing_chunks(size).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }

    #[test]
    fn any_body_of_a_record_is_refused_or_makes_sense(
        numbers in prop::collection::vec(prop_oneof![0u64..9, (0u64..9).prop_map(|n| n * SMALL), any::<u64>()], 5..12),
        root: [u8; 32], spare in prop::collection::vec(any::<u8>(), 0..2),
    ) {
        let mut record = b"WHBPART\x01".to_vec();
        record.extend(root);
        record.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        record.extend(&spare);
        prop_assert!(Assembly::decode(&record).is_err());
        let checksum = blake3::hash(&record);
        record.extend(checksum.as_bytes());
        if let Ok(assembly) = Assembly::decode(&record) {
            prop_assert_eq!(assembly.encode(), record);
            prop_assert!(assembly.deliverable().end <= *assembly.proven_len().end());
        }
    }
}

#[test]
fn records_that_contradict_themselves_are_refused() {
    let record = |numbers: &[u64]| {
        let mut record = b"WHBPART\x01".to_vec();
        record.extend([7; 32]);
        record.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        let checksum = blake3::hash(&record);
        record.extend(checksum.as_bytes());
        Assembly::decode(&record)
    };
    let good = record(&[1 << 40, SMALL + 1, 2 * SMALL, 0, 9, 0, SMALL]).unwrap();
    assert_eq!((good.root(), good.deliverable()), (Guid([7; 32]), 9..SMALL));
    for bad in [
        &[1 << 61, 1, 2, 0, 0][..],
        &[1 << 40, 0, 2, 0, 0],
        &[1 << 40, 0, 0, 0, 0],
        &[1 << 40, 1, 1 << 61, 0, 0],
        &[1 << 40, 2, 1, 0, 0],
        &[1 << 40, SMALL + 1, 2 * SMALL, 5, 0],
        &[1 << 40, SMALL + 1, 2 * SMALL, 0, SMALL + 1, 0, SMALL],
        &[1 << 40, SMALL + 1, 2 * SMALL, 0, 0, 0, 2 * SMALL],
        &[
            1 << 40,
            9 * SMALL,
            9 * SMALL,
            9 * SMALL,
            0,
            SMALL,
            2 * SMALL,
            0,
            SMALL,
        ],
        &[
            1 << 40,
            9 * SMALL,
            9 * SMALL,
            9 * SMALL,
            0,
            0,
            SMALL,
            SMALL,
            2 * SMALL,
        ],
        &[1 << 40, 9 * SMALL, 9 * SMALL, 9 * SMALL, 0, 1, SMALL],
    ] {
        assert!(
            matches!(record(bad), Err(RecordError::Contradiction(_))),
            "{bad:?}"
        );
    }
    assert_eq!(
        Assembly::decode(b"WHBPART\x02"),
        Err(RecordError::UnknownVersion(2))
    );
    assert_eq!(Assembly::decode(b"WHBPART"), Err(RecordError::Damaged));
}

#[test]
fn a_proof_for_the_wrong_chunk_size_is_refused() {
    let provider = Provider::new(4 * SMALL);
    let assembly = Assembly::new(provider.tree.root(), 1 << 40);
    let data = &provider.bytes[..2 * SMALL as usize];
    let chunk_size = ChunkSize::from_bytes(2 * SMALL).unwrap();
    let proof: Proof = provider.tree.proof(0, ChunkSize::GROUP).unwrap();
    let offer = Offer {
        chunk_size,
        index: 0,
        claimed_len: 4 * SMALL,
        data,
        proof: &proof,
    };
    assert!(matches!(
        assembly.check(&offer),
        Err(Refusal::Unproven(VerifyError::WrongProofLength {
            expected: 1,
            actual: 2
        }))
    ));
}
