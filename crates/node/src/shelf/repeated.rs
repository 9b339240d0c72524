//! Contents without a file, for measurements.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use whimbrel_content::{ChunkSize, ChunkTree};
use whimbrel_core::{Guid, SeededRng};

/// Bytes of what is repeated: as many as the largest chunk has.
const BLOCK: usize = ChunkSize::MAX.bytes() as usize;

/// Makes contents that share their memory and have names that nobody has seen.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    /// The block twice, so that each chunk of each content is a slice of it.
    twice: Bytes,
    made: Arc<AtomicUsize>,
}

impl Blocks {
    /// Draws the block; `seed` must be another one for each process.
    pub(crate) fn new(seed: u64) -> Blocks {
        let mut rng = SeededRng::new(seed);
        let words = (0..BLOCK / 8).flat_map(|_| rng.next_word().to_le_bytes());
        let block: Vec<u8> = words.collect();
        Blocks {
            twice: block.repeat(2).into(),
            made: Arc::default(),
        }
    }

    /// Hashes the next content, of `length` bytes: the block from its next byte on, again and again.
    /// Names repeat after some four million of them.
    pub(crate) fn next(&self, length: u64) -> Repeated {
        let shift = self.made.fetch_add(1, Ordering::Relaxed) % BLOCK;
        let reader = RepeatedReader {
            twice: &self.twice,
            at: shift as u64,
            end: shift as u64 + length,
        };
        let tree = ChunkTree::from_reader(reader, ChunkSize::GROUP, &mut |_| {});
        Repeated {
            // Reading memory does not fail, and no measurement is as long as the longest content.
            tree: tree.expect("memory can be read"),
            bytes: Turned {
                twice: self.twice.clone(),
                shift,
            },
        }
    }
}

/// A content made by [`Blocks`].
pub(crate) struct Repeated {
    pub(super) tree: ChunkTree,
    pub(super) bytes: Turned,
}

impl Repeated {
    /// Returns its name.
    pub(crate) fn name(&self) -> Guid {
        self.tree.root()
    }
}

/// A block again and again, from one of its bytes on.
pub(super) struct Turned {
    twice: Bytes,
    shift: usize,
}

impl Turned {
    /// Returns at most [`BLOCK`] bytes of it.
    pub(super) fn slice(&self, at: u64, length: usize) -> Bytes {
        let start = (at as usize + self.shift) % BLOCK;
        self.twice.slice(start..start + length)
    }
}

struct RepeatedReader<'a> {
    twice: &'a [u8],
    at: u64,
    end: u64,
}

impl io::Read for RepeatedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.twice[self.at as usize % BLOCK..];
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let count = rest.len().min(buffer.len()).min(left);
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Shelf;
    use super::*;

    #[test]
    fn each_chunk_is_proven_and_the_last_one_may_be_short() {
        let blocks = Blocks::new(1);
        blocks.made.store(BLOCK - 70_001, Ordering::Relaxed);
        let length = 3 * BLOCK as u64 + 100_000;
        let content = blocks.next(length);
        let (name, mut shelf) = (content.name(), Shelf::new(None));
        assert_ne!(blocks.next(length).name(), name);
        shelf.put_repeated(content);
        for size in [ChunkSize::MIN, ChunkSize::DEFAULT, ChunkSize::MAX] {
            let mut at = BLOCK - 70_001;
            for index in 0..size.count(length) {
                let chunk = shelf.read(name, index as u32, size).unwrap();
                let (proof, _) = whimbrel_content::Proof::decode(&chunk.proof).unwrap();
                let verified =
                    whimbrel_content::verify_chunk(name, length, size, index, &chunk.data, &proof);
                assert!(verified.is_ok(), "{size:?} {index}");
                let expected = (at..at + chunk.data.len()).map(|at| blocks.twice[at % BLOCK]);
                assert!(expected.eq(chunk.data.iter().copied()));
                at += chunk.data.len();
            }
            assert_eq!(at as u64, length + BLOCK as u64 - 70_001);
        }
    }
}
