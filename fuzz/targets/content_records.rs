//! What is read back from the local disk: the record of a download and the cache of a tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_content::{Assembly, ChunkSize, ChunkTree};

fuzz_target!(|data: &[u8]| {
    let _ = (Assembly::decode(data), ChunkTree::decode(data));
    // No fuzzer guesses a checksum, so the body is given a right one.
    let sealed = |magic: &[u8]| {
        let record = [magic, data].concat();
        [&record, blake3::hash(&record).as_bytes().as_slice()].concat()
    };
    let record = sealed(b"WHBPART\x01");
    if let Ok(mut assembly) = Assembly::decode(&record) {
        assert_eq!(assembly.encode(), record, "two encodings of one download");
        assert_eq!(assembly.is_complete(), assembly.missing().next().is_none());
        assert!(assembly.verified_bytes() <= *assembly.proven_len().end());
        let chunks: Vec<u64> = assembly
            .missing_chunks(ChunkSize::DEFAULT)
            .take(100)
            .collect();
        assert!(chunks.is_sorted());
        assembly.note_delivered(u64::MAX);
        assert!(assembly.deliverable().is_empty());
    }
    let record = sealed(b"WHBTREE\x01");
    if let Ok(tree) = ChunkTree::decode(&record) {
        assert_eq!(tree.encode(), record);
        let _ = tree.proof(0, tree.group());
        let _ = tree.proof(u64::MAX, ChunkSize::MAX);
    }
});
