//! A chunk's proof: its guarantees, and the rejection of everything else.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use blake3::hazmat::{
    HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use proptest::prelude::*;
use whimbrel_content::{
    ChunkSize, ChunkTree, Proof, RecordError, VerifyError, proven_length, verify_chunk,
};
use whimbrel_core::{Guid, SeededRng};

const KIB: u64 = 1024;

fn content(len: u64, seed: u64) -> Vec<u8> {
    let mut rng = SeededRng::new(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| rng.next_word().to_le_bytes())
        .collect();
    bytes.truncate(len as usize);
    bytes
}

fn tree(bytes: &[u8], group: ChunkSize) -> ChunkTree {
    ChunkTree::from_reader(bytes, group, &mut |_| {}).unwrap()
}

fn chunk(bytes: &[u8], size: ChunkSize, index: u64) -> &[u8] {
    let range = size.range(index, bytes.len() as u64).unwrap();
    &bytes[range.start as usize..range.end as usize]
}

/// The siblings beside a chunk, from the chunk up, by the recursion of the BLAKE3 paper; and the
/// node's hash.
fn reference_proof(
    bytes: &[u8],
    offset: u64,
    chunk: u64,
    size: u64,
    siblings: &mut Vec<[u8; 32]>,
) -> [u8; 32] {
    let hash = |bytes: &[u8], offset: u64| {
        *blake3::Hasher::new()
            .set_input_offset(offset)
            .update(bytes)
            .finalize_non_root()
            .first_chunk()
            .unwrap()
    };
    if bytes.len() as u64 <= size {
        return hash(bytes, offset);
    }
    let left_len = left_subtree_len(bytes.len() as u64);
    let (left, right) = bytes.split_at(left_len as usize);
    let in_left = chunk < offset + left_len;
    let (near, near_at, far, far_at) = if in_left {
        (left, offset, right, offset + left_len)
    } else {
        (right, offset + left_len, left, offset)
    };
    let node = reference_proof(near, near_at, chunk, size, siblings);
    let sibling = hash(far, far_at);
    siblings.push(sibling);
    if in_left {
        merge_subtrees_non_root(&node, &sibling, Mode::Hash)
    } else {
        merge_subtrees_non_root(&sibling, &node, Mode::Hash)
    }
}

fn edge_lengths() -> Vec<u64> {
    let mut lengths = vec![0, 1, 1023, 1024, 1025, 2048, 2049, 3 * KIB + 7];
    for group in [64 * KIB, 128 * KIB, 1024 * KIB] {
        for multiple in [1, 2, 3, 4, 5, 7, 8, 9] {
            lengths.extend([group * multiple - 1, group * multiple, group * multiple + 1]);
        }
    }
    lengths.retain(|len| *len <= 9 * 1024 * KIB);
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

#[test]
fn the_name_is_the_blake3_hash_at_every_edge_length_and_every_chunk_verifies() {
    let all = content(9 * 1024 * KIB + 1, 1);
    for len in edge_lengths() {
        let bytes = &all[..len as usize];
        let expected = Guid(*blake3::hash(bytes).as_bytes());
        for group in [ChunkSize::GROUP, ChunkSize::DEFAULT, ChunkSize::MAX] {
            let tree = tree(bytes, group);
            assert_eq!((tree.root(), tree.content_len()), (expected, len));
            for size in ChunkSize::all().filter(|size| *size >= group) {
                // Every chunk of the small contents; first, last and middle of the large ones.
                let count = size.count(len);
                for index in (0..count)
                    .filter(|index| count < 9 || [0, count / 2, count - 1].contains(index))
                {
                    let proof = tree.proof(index, size).unwrap();
                    let verdict = verify_chunk(
                        expected,
                        len,
                        size,
                        index,
                        chunk(bytes, size, index),
                        &proof,
                    );
                    assert_eq!(
                        verdict,
                        Ok(()),
                        "{len} bytes, chunk {index} of {}",
                        size.bytes()
                    );
                }
            }
        }
    }
}

#[test]
fn proofs_are_those_of_the_blake3_papers_recursion() {
    let all = content(1100 * KIB, 2);
    for len in [
        130 * KIB,
        192 * KIB,
        192 * KIB + 1,
        700 * KIB + 3,
        1024 * KIB,
        1100 * KIB,
    ] {
        let bytes = &all[..len as usize];
        let tree = tree(bytes, ChunkSize::GROUP);
        for size in [ChunkSize::GROUP, ChunkSize::from_bytes(128 * KIB).unwrap()] {
            for index in 0..size.count(len) {
                let mut siblings = Vec::new();
                reference_proof(bytes, 0, index * size.bytes(), size.bytes(), &mut siblings);
                let mut expected = vec![siblings.len() as u8];
                expected.extend(siblings.concat());
                let mut encoded = Vec::new();
                tree.proof(index, size).unwrap().encode(&mut encoded);
                assert_eq!(
                    encoded,
                    expected,
                    "{len} bytes, chunk {index} of {}",
                    size.bytes()
                );
            }
        }
    }
}

#[test]
fn two_groups_join_to_the_root() {
    let bytes = content(100 * KIB, 3);
    let (left, right) = bytes.split_at(64 * KIB as usize);
    let left = blake3::Hasher::new().update(left).finalize_non_root();
    let right = blake3::Hasher::new()
        .set_input_offset(64 * KIB)
        .update(right)
        .finalize_non_root();
    assert_eq!(
        tree(&bytes, ChunkSize::GROUP).root().as_bytes(),
        merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()
    );
}

#[test]
fn short_reads_and_failing_reads_are_handled() {
    struct Stuttering<'a>(&'a [u8], u32);
    impl std::io::Read for Stuttering<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(3) {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            let most = buffer.len().min(7001);
            self.0.read(&mut buffer[..most])
        }
    }
    let bytes = content(300 * KIB + 5, 4);
    let mut seen = Vec::new();
    let read = ChunkTree::from_reader(Stuttering(&bytes, 0), ChunkSize::GROUP, &mut |at| {
        seen.push(at)
    })
    .unwrap();
    assert_eq!(read, tree(&bytes, ChunkSize::GROUP));
    assert_eq!(
        seen,
        [64 * KIB, 128 * KIB, 192 * KIB, 256 * KIB, 300 * KIB + 5]
    );

    struct Failing;
    impl std::io::Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::PermissionDenied.into())
        }
    }
    assert!(ChunkTree::from_reader(Failing, ChunkSize::GROUP, &mut |_| {}).is_err());
}

#[test]
fn proofs_of_smaller_chunks_and_past_the_end_are_refused() {
    let tree = tree(&content(3 * 1024 * KIB, 5), ChunkSize::DEFAULT);
    assert!(tree.proof(0, ChunkSize::GROUP).is_err());
    assert!(tree.proof(3, ChunkSize::DEFAULT).is_err());
    assert!(tree.proof(u64::MAX, ChunkSize::MAX).is_err());
    assert!(tree.proof(0, ChunkSize::MAX).unwrap().is_empty());
}

#[test]
fn claims_beyond_the_limit_and_impossible_indices_are_refused_without_hashing() {
    let verdict = |len, index, data: &[u8]| {
        verify_chunk(
            Guid::NONE,
            len,
            ChunkSize::GROUP,
            index,
            data,
            &Proof::default(),
        )
    };
    assert_eq!(
        verdict(u64::MAX, 0, &[]),
        Err(VerifyError::ContentTooLong(u64::MAX))
    );
    assert_eq!(
        verdict(0, 1, &[]),
        Err(VerifyError::NoSuchChunk { index: 1, count: 1 })
    );
    assert_eq!(
        verdict(9, u64::MAX, &[]),
        Err(VerifyError::NoSuchChunk {
            index: u64::MAX,
            count: 1
        })
    );
    assert_eq!(
        verdict(9, 0, &[0; 8]),
        Err(VerifyError::WrongSize {
            expected: 9,
            actual: 8
        })
    );
    assert_eq!(
        verdict(65537, 1, &[0]),
        Err(VerifyError::WrongProofLength {
            expected: 1,
            actual: 0
        })
    );
}

/// A content of a few smallest chunks, a chunk size, and one of its chunks.
fn sample() -> impl Strategy<Value = (Vec<u8>, ChunkSize, u64)> {
    (1u64..700 * KIB, any::<u64>(), 16u8..=18, any::<u64>()).prop_map(
        |(len, seed, code, position)| {
            let size = ChunkSize::from_code(code).unwrap();
            (content(len, seed), size, position % size.count(len))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_flipped_bit_of_data_proof_or_name_is_found(
        (bytes, size, index) in sample(), place: u64, what in 0u8..3, bit in 0u8..8,
    ) {
        let len = bytes.len() as u64;
        let tree = tree(&bytes, ChunkSize::GROUP);
        let mut data = chunk(&bytes, size, index).to_vec();
        let mut root = tree.root();
        let mut encoded = Vec::new();
        tree.proof(index, size).unwrap().encode(&mut encoded);
        match what {
            0 => data[(place % size.range(index, len).map(|r| r.end - r.start).unwrap()) as usize] ^= 1 << bit,
            1 if encoded.len() > 1 => {
                let hashes = encoded.len() as u64 - 1;
                encoded[1 + (place % hashes) as usize] ^= 1 << bit;
            }
            _ => root.0[(place % 32) as usize] ^= 1 << bit,
        }
        let proof = Proof::decode(&encoded).unwrap().0;
        prop_assert_eq!(verify_chunk(root, len, size, index, &data, &proof), Err(VerifyError::RootMismatch));
    }

    #[test]
    fn a_chunk_passes_at_no_other_index((bytes, size, index) in sample(), other: u64) {
        let len = bytes.len() as u64;
        let tree = tree(&bytes, ChunkSize::GROUP);
        let other = other % (size.count(len) + 2);
        prop_assume!(other != index);
        for proof in [tree.proof(index, size).unwrap(), tree.proof(other, size).unwrap_or_default()] {
            prop_assert!(verify_chunk(tree.root(), len, size, other, chunk(&bytes, size, index), &proof).is_err());
        }
    }

    #[test]
    fn a_truncated_or_lengthened_proof_is_refused((bytes, size, index) in sample(), hashes in 0usize..12) {
        let tree = tree(&bytes, ChunkSize::GROUP);
        let true_proof = tree.proof(index, size).unwrap();
        prop_assume!(hashes != true_proof.len());
        let mut encoded = Vec::new();
        true_proof.encode(&mut encoded);
        encoded[0] = hashes as u8;
        encoded.resize(1 + hashes * 32, 7);
        let proof = Proof::decode(&encoded).unwrap().0;
        let verdict = verify_chunk(tree.root(), bytes.len() as u64, size, index, chunk(&bytes, size, index), &proof);
        prop_assert_eq!(verdict, Err(VerifyError::WrongProofLength { expected: true_proof.len(), actual: hashes }));
    }

    /// The liar has the whole content, so its proof is as good as possible: the true hashes, as
    /// many as fit.
    #[test]
    fn a_true_chunk_under_a_false_length_passes_only_where_the_proof_allows_that_length(
        (bytes, size, index) in sample(), claim in 0u64..1500 * KIB, near in -2i64..=2, how in 0u8..3,
    ) {
        let len = bytes.len() as u64;
        let tree = tree(&bytes, ChunkSize::GROUP);
        let range = size.range(index, len).unwrap();
        let claim = match how {
            0 => claim,
            1 => len.saturating_add_signed(near),
            _ => range.end,
        };
        let mut data = bytes[range.start as usize..].to_vec();
        data.resize(size.range(index, claim).map_or(0, |r| r.end - r.start) as usize, 0);
        let mut encoded = Vec::new();
        tree.proof(index, size).unwrap().encode(&mut encoded);
        if let Err(VerifyError::WrongProofLength { expected, .. }) =
            verify_chunk(tree.root(), claim, size, index, &data, &Proof::default())
        {
            encoded[0] = expected as u8;
            encoded.resize(1 + expected * 32, 0);
        }
        let proof = Proof::decode(&encoded).unwrap().0;
        let passed = verify_chunk(tree.root(), claim, size, index, &data, &proof).is_ok();
        let possible = proven_length(len, size, index).unwrap().contains(&claim);
        prop_assert_eq!(passed, possible, "{} of {} claimed {}", index, len, claim);
        if passed {
            prop_assert!(proven_length(claim, size, index).unwrap().contains(&len));
            prop_assert_eq!(&data[..], chunk(&bytes, size, index));
        }
    }

    #[test]
    fn random_chunks_and_proofs_are_refused_without_panic(
        len: u64, index: u64, shift in 0u32..64, code in 16u8..=22,
        data in prop::collection::vec(any::<u8>(), 0..200), hashes in 0u8..=46,
    ) {
        let mut encoded = vec![0xa5; 1 + usize::from(hashes) * 32];
        encoded[0] = hashes;
        let proof = Proof::decode(&encoded).unwrap().0;
        let size = ChunkSize::from_code(code).unwrap();
        for index in [index, index >> shift, 0, data.len() as u64] {
            for len in [len, len >> shift, data.len() as u64] {
                prop_assert!(verify_chunk(Guid([9; 32]), len, size, index, &data, &proof).is_err());
                let _ = proven_length(len, size, index);
            }
        }
    }

    #[test]
    fn a_tree_comes_back_from_its_cache_and_any_damage_is_found(
        len in 0u64..500 * KIB, seed: u64, code in 16u8..=20, place: u64, bit in 0u8..8,
    ) {
        let tree = tree(&content(len, seed), ChunkSize::from_code(code).unwrap());
        let record = tree.encode();
        prop_assert_eq!(ChunkTree::decode(&record), Ok(tree.clone()));
        let place = (place % record.len() as u64) as usize;
        let mut damaged = record.clone();
        damaged[place] ^= 1 << bit;
        prop_assert!(ChunkTree::decode(&damaged).is_err());
        prop_assert!(ChunkTree::decode(&record[..place]).is_err());
    }

    #[test]
    fn any_bytes_are_refused_as_a_cached_tree(body in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(ChunkTree::decode(&body), Err(RecordError::WrongKind("cache of a content's hashes")));
        // With a correct beginning and checksum, the body itself is decoded.
        let mut record = b"WHBTREE\x01".to_vec();
        record.extend(&body);
        let checksum = blake3::hash(&record);
        record.extend(checksum.as_bytes());
        if let Ok(tree) = ChunkTree::decode(&record) {
            prop_assert_eq!(tree.encode(), record);
        }
    }
}

#[test]
fn a_cached_tree_whose_hashes_do_not_lead_to_its_name_is_refused_even_with_a_right_checksum() {
    let mut record = tree(&content(200 * KIB, 6), ChunkSize::GROUP).encode();
    let body_end = record.len() - 32;
    record[body_end - 1] ^= 1;
    let checksum = blake3::hash(&record[..body_end]);
    record[body_end..].copy_from_slice(checksum.as_bytes());
    assert_eq!(
        ChunkTree::decode(&record),
        Err(RecordError::Contradiction(
            "the hashes do not lead to the name"
        ))
    );
}
