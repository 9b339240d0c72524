//! Contents without a file, for measurements.

use std::io;

use bytes::Bytes;
use whimbrel_content::{ChunkSize, ChunkTree};
use whimbrel_core::Guid;

/// Bytes of what is repeated: as many as the largest chunk has, so that each chunk lies in one.
pub(crate) const BLOCK: usize = ChunkSize::MAX.bytes() as usize;

/// A content made of a block of [`BLOCK`] bytes again and again.
pub(crate) struct Repeated {
    pub(super) tree: ChunkTree,
    pub(super) block: Bytes,
}

impl Repeated {
    /// Hashes `length` bytes of it. `block` is [`BLOCK`] bytes long.
    pub(crate) fn of(block: Bytes, length: u64) -> Repeated {
        let reader = RepeatedReader {
            block: &block,
            at: 0,
            length,
        };
        let tree = ChunkTree::from_reader(reader, ChunkSize::GROUP, &mut |_| {});
        // Reading memory does not fail, and no measurement is as long as the longest content.
        let tree = tree.expect("memory can be read");
        Repeated { tree, block }
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> Guid {
        self.tree.root()
    }
}

struct RepeatedReader<'a> {
    block: &'a [u8],
    at: u64,
    length: u64,
}

impl io::Read for RepeatedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.block[(self.at % self.block.len() as u64) as usize..];
        let left = usize::try_from(self.length - self.at).unwrap_or(usize::MAX);
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
        let block: Vec<u8> = (0..BLOCK).map(|at| (at / 7) as u8).collect();
        let length = 3 * BLOCK as u64 + 100_000;
        let content = Repeated::of(block.clone().into(), length);
        let (name, mut shelf) = (content.name(), Shelf::new(None));
        assert_eq!(content.tree.content_len(), length);
        shelf.put_repeated(content);
        for size in [ChunkSize::MIN, ChunkSize::DEFAULT, ChunkSize::MAX] {
            let mut at = 0;
            for index in 0..size.count(length) {
                let chunk = shelf.read(name, index as u32, size).unwrap();
                let (proof, _) = whimbrel_content::Proof::decode(&chunk.proof).unwrap();
                let verified =
                    whimbrel_content::verify_chunk(name, length, size, index, &chunk.data, &proof);
                assert!(verified.is_ok(), "{size:?} {index}");
                let expected = (at..at + chunk.data.len()).map(|at| block[at % BLOCK]);
                assert!(expected.eq(chunk.data.iter().copied()));
                at += chunk.data.len();
            }
            assert_eq!(at as u64, length);
        }
    }
}
