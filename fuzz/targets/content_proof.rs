//! A chunk, its proof and the claims that came with it: no panic, and nothing but the truth passes.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use whimbrel_content::{ChunkSize, ChunkTree, Proof, proven_length, verify_chunk};

/// Five chunks of the smallest size, the last one short.
static CONTENT: LazyLock<(Vec<u8>, ChunkTree)> = LazyLock::new(|| {
    let bytes: Vec<u8> = (0..5 * 65536 - 77)
        .map(|index| (index % 251) as u8)
        .collect();
    let tree = ChunkTree::from_reader(&bytes[..], ChunkSize::MIN, &mut |_| {})
        .expect("memory can be read");
    (bytes, tree)
});

fuzz_target!(|data: &[u8]| {
    let Some((numbers, rest)) = data.split_first_chunk::<17>() else {
        return;
    };
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let (claimed, index) = (number(&numbers[..8]), number(&numbers[8..16]));
    let size = ChunkSize::from_code(16 + numbers[16] % 7).expect("16 to 22");
    let _ = proven_length(claimed, size, index);
    let Ok((proof, after)) = Proof::decode(rest) else {
        return;
    };
    let mut again = Vec::new();
    proof.encode(&mut again);
    assert_eq!(again, rest[..rest.len() - after.len()]);

    let (content, tree) = &*CONTENT;
    let root = tree.root();
    assert!(
        verify_chunk(root, claimed, size, index, after, &proof).is_err(),
        "random bytes passed"
    );
    // True bytes and a true proof under a claim that may be false.
    let (claimed, index) = (claimed % (1 << 20), index % 6);
    let Some(range) = size.range(index, content.len() as u64) else {
        return;
    };
    let chunk = &content[range.start as usize..range.end as usize];
    let true_proof = tree.proof(index, size).expect("the chunk exists");
    let passed = verify_chunk(root, claimed, size, index, chunk, &true_proof).is_ok();
    let possible = proven_length(content.len() as u64, size, index).expect("the chunk exists");
    assert_eq!(passed, possible.contains(&claimed));
    if proof != true_proof {
        assert!(
            verify_chunk(root, claimed, size, index, chunk, &proof).is_err(),
            "a false proof passed"
        );
    }
});
