//! Content for simulated transfers, of any size in the memory of one block.

use std::io::Read;

use bytes::Bytes;
use whimbrel_content::{ChunkSize, ChunkTree};
use whimbrel_core::{Guid, SeededRng};
use whimbrel_mobilityfirst::local::ReadChunk;
use whimbrel_transport::serve::{SegmentSource, SourceError};

/// Content that repeats one block of random bytes. Its chunks are slices of the block, so that a
/// simulation of hundreds of megabytes hashes and moves real bytes without holding them.
#[derive(Clone, Debug)]
pub struct RepeatingContent {
    tree: ChunkTree,
    // Twice the largest chunk: any chunk is a slice of it.
    block: Bytes,
}

impl RepeatingContent {
    /// Returns `len` bytes, the same ones for the same seed.
    pub fn new(len: u64, seed: u64) -> RepeatingContent {
        let period = ChunkSize::MAX.bytes() as usize;
        let mut rng = SeededRng::stream(seed, "content");
        let mut block = Vec::with_capacity(2 * period);
        while block.len() < period {
            block.extend_from_slice(&rng.next_word().to_le_bytes());
        }
        block.extend_from_within(..);
        let block = Bytes::from(block);
        let mut reader = RepeatedContent {
            block: &block,
            period,
            at: 0,
        }
        .take(len);
        // Reading memory never fails.
        let tree = match ChunkTree::from_reader(&mut reader, ChunkSize::MIN, &mut |_| {}) {
            Ok(tree) => tree,
            Err(fault) => unreachable!("reading from memory: {fault}"),
        };
        // A short content holds only the bytes that it has.
        let shown = usize::try_from(len).map_or(block.len(), |len| block.len().min(len));
        let block = match shown < period {
            true => Bytes::copy_from_slice(&block[..shown]),
            false => block,
        };
        RepeatingContent { tree, block }
    }

    /// Returns its name.
    pub fn name(&self) -> Guid {
        self.tree.root()
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> u64 {
        self.tree.content_len()
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes from `start` to `end`, which are at most a chunk.
    pub fn bytes(&self, start: u64, end: u64) -> Bytes {
        let begin = (start % ChunkSize::MAX.bytes()) as usize;
        self.block.slice(begin..begin + (end - start) as usize)
    }

    /// Returns its segments of `segment` bytes each.
    pub(crate) fn segments(&self, segment: usize) -> Segments {
        Segments {
            content: self.clone(),
            segment: segment as u64,
        }
    }

    /// Returns a chunk and its proof; `None` if there is no such chunk.
    pub fn read(&self, index: u32, chunk_log2: u8) -> Option<ReadChunk> {
        let chunk_size = ChunkSize::from_code(chunk_log2)?;
        let range = chunk_size.range(index.into(), self.len())?;
        let mut proof = Vec::new();
        self.tree
            .proof(index.into(), chunk_size)
            .ok()?
            .encode(&mut proof);
        Some(ReadChunk {
            proof: proof.into(),
            data: self.bytes(range.start, range.end),
        })
    }
}

/// A content cut into segments, for an NDN producer.
pub(crate) struct Segments {
    content: RepeatingContent,
    // Bytes.
    segment: u64,
}

impl SegmentSource for Segments {
    fn segments(&self) -> u64 {
        self.content.len().div_ceil(self.segment).max(1)
    }

    fn read(&mut self, number: u64, out: &mut Vec<u8>) -> Result<(), SourceError> {
        let len = self.content.len();
        let start = number.saturating_mul(self.segment).min(len);
        let end = (start + self.segment).min(len);
        out.extend_from_slice(&self.content.bytes(start, end));
        Ok(())
    }
}

struct RepeatedContent<'a> {
    block: &'a [u8],
    period: usize,
    at: usize,
}

impl Read for RepeatedContent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.period);
        buffer[..count].copy_from_slice(&self.block[self.at..self.at + count]);
        self.at = (self.at + count) % self.period;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_hash_of_the_bytes() {
        for len in [0, 1, 5 << 20, (9 << 20) + 77] {
            let content = RepeatingContent::new(len, 3);
            let mut hasher = blake3::Hasher::new();
            let mut at = 0;
            while at < len {
                let end = (at + 1_000_000).min(len);
                hasher.update(&content.bytes(at, end));
                at = end;
            }
            assert_eq!(content.name().as_bytes(), hasher.finalize().as_bytes());
        }
    }
}
