//! The proof that a chunk belongs to a name, and its consequences.
//!
//! A content's name is the root of its BLAKE3 tree (BLAKE3 paper section 2.1): leaves of 1024
//! bytes, each of them hashed **together with its position**, joined by parents. A chunk of a
//! power-of-two size at a multiple of that size is a whole subtree, so the hashes of the subtrees
//! beside its path to the root prove it.
//!
//! With `L` the true length and `C` the chunk size, [`verify_chunk`] answering `Ok` proves, unless
//! BLAKE3 is broken:
//!
//! * **The bytes, at their offset, whatever length was claimed.** Each leaf's hash covers its
//!   position, and a path to the root exists only for the true leaves. So a chunk accepted under a
//!   wrong claim stays valid.
//! * **The length, if and only if it was the last chunk of the claimed length.** The last chunk
//!   lies to the right at every step of its path, and only the true end of the content does.
//! * **Bounds of the length, otherwise.** The highest step at which the path lies to the left has a
//!   full subtree of known size there and at least one byte, at most as much again, beside it:
//!   [`proven_length`].
//!
//! It does not prove the sender of the chunk, nor that the rest of the content is available.

use core::ops::RangeInclusive;

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use whimbrel_core::Guid;

use crate::{ChunkSize, MAX_CONTENT_LEN};

/// The maximum number of hashes in a proof: the height of the tree of [`MAX_CONTENT_LEN`] over the smallest chunks.
pub const MAX_SIBLINGS: usize = 46;

/// The hashes of the subtrees beside a chunk's path, from the chunk up to the root.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Proof {
    siblings: Vec<ChainingValue>,
}

/// Why bytes are not a [`Proof`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeProofError {
    /// Fewer hashes than the count says.
    #[error("the proof is truncated")]
    Truncated,
    /// More hashes than any content has levels.
    #[error("the proof has {0} hashes; the maximum is {MAX_SIBLINGS}")]
    TooManySiblings(u8),
}

impl Proof {
    /// The maximum of bytes that [`Proof::encode`] appends.
    pub const MAX_ENCODED_LEN: usize = 1 + MAX_SIBLINGS * 32;

    pub(crate) fn from_siblings(siblings: Vec<ChainingValue>) -> Proof {
        Proof { siblings }
    }

    /// Returns the number of hashes: at most [`MAX_SIBLINGS`], zero if the content is a single chunk.
    pub fn len(&self) -> usize {
        self.siblings.len()
    }

    /// Returns true for the proof of a content that is a single chunk.
    pub fn is_empty(&self) -> bool {
        self.siblings.is_empty()
    }

    /// Returns the number of bytes that [`Proof::encode`] appends.
    pub fn encoded_len(&self) -> usize {
        1 + self.siblings.len() * 32
    }

    /// Appends the wire form: the count in one byte, then the hashes (content.md section 2).
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        buffer.push(self.siblings.len() as u8);
        self.siblings
            .iter()
            .for_each(|sibling| buffer.extend_from_slice(sibling));
    }

    /// Decodes a proof from the beginning of `bytes`; returns it and the remaining bytes.
    pub fn decode(bytes: &[u8]) -> Result<(Proof, &[u8]), DecodeProofError> {
        let (&count, bytes) = bytes.split_first().ok_or(DecodeProofError::Truncated)?;
        if usize::from(count) > MAX_SIBLINGS {
            return Err(DecodeProofError::TooManySiblings(count));
        }
        let (hashes, rest) = bytes
            .split_at_checked(usize::from(count) * 32)
            .ok_or(DecodeProofError::Truncated)?;
        Ok((
            Proof {
                siblings: hashes.as_chunks::<32>().0.to_vec(),
            },
            rest,
        ))
    }
}

/// Why a chunk is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VerifyError {
    /// The claimed length is above [`MAX_CONTENT_LEN`].
    #[error("the claimed length of {0} bytes is above the limit of {MAX_CONTENT_LEN}")]
    ContentTooLong(u64),
    /// The index is beyond the claimed length.
    #[error("chunk {index} does not exist: the content has {count} chunks")]
    NoSuchChunk {
        /// The chunk's index.
        index: u64,
        /// Chunks in a content of the claimed length.
        count: u64,
    },
    /// The chunk's size differs from the one that follows from its index and the claimed length.
    #[error("the chunk has {actual} bytes; expected {expected}")]
    WrongSize {
        /// Bytes expected.
        expected: u64,
        /// Bytes given.
        actual: u64,
    },
    /// The proof's height differs from the one that follows from the index and the claimed length.
    #[error("the proof has {actual} hashes; expected {expected}")]
    WrongProofLength {
        /// Hashes expected.
        expected: usize,
        /// Hashes given.
        actual: usize,
    },
    /// The hashes do not lead to the name: bytes, index, proof or claimed length are wrong.
    #[error("the chunk does not belong to this name, or not at this index")]
    RootMismatch,
}

/// Verifies one chunk against a name.
///
/// `content_len` is a claim; the module's text says what `Ok` proves about it. Costs one pass over
/// `data` and at most [`MAX_SIBLINGS`] compressions; nothing is hashed if the sizes disagree.
pub fn verify_chunk(
    root: Guid,
    content_len: u64,
    chunk_size: ChunkSize,
    index: u64,
    data: &[u8],
    proof: &Proof,
) -> Result<(), VerifyError> {
    if content_len > MAX_CONTENT_LEN {
        return Err(VerifyError::ContentTooLong(content_len));
    }
    let count = chunk_size.count(content_len);
    let range = chunk_size
        .range(index, content_len)
        .ok_or(VerifyError::NoSuchChunk { index, count })?;
    let (expected, actual) = (range.end - range.start, data.len() as u64);
    if expected != actual {
        return Err(VerifyError::WrongSize { expected, actual });
    }
    let (expected, actual) = (Path::new(index, count).count(), proof.len());
    if expected != actual {
        return Err(VerifyError::WrongProofLength { expected, actual });
    }
    if root_over(range.start, data, Path::new(index, count), &proof.siblings) == *root.as_bytes() {
        Ok(())
    } else {
        Err(VerifyError::RootMismatch)
    }
}

/// Returns the true lengths that are consistent with a chunk `index` verified under `content_len`.
///
/// One value for the last chunk; for any other at most a doubling from its first value to its last.
/// `None` if a content of `content_len` has no such chunk, or if `content_len` is above
/// [`MAX_CONTENT_LEN`].
pub fn proven_length(
    content_len: u64,
    chunk_size: ChunkSize,
    index: u64,
) -> Option<RangeInclusive<u64>> {
    chunk_size
        .range(index, content_len)
        .filter(|_| content_len <= MAX_CONTENT_LEN)?;
    let topmost_left = Path::new(index, chunk_size.count(content_len))
        .filter(|step| step.node_is_left)
        .last();
    let Some(step) = topmost_left else {
        return Some(content_len..=content_len);
    };
    let full_subtree = chunk_size.bytes() << step.level;
    let base = (index >> step.level) * full_subtree;
    Some(base + full_subtree + 1..=base + 2 * full_subtree)
}

/// Returns the root that `data` at `offset` leads to. `path` and `siblings` are of one length.
fn root_over(offset: u64, data: &[u8], mut path: Path, siblings: &[ChainingValue]) -> [u8; 32] {
    let Some((topmost, lower)) = siblings.split_last() else {
        return *blake3::hash(data).as_bytes();
    };
    let mut node = Hasher::new()
        .set_input_offset(offset)
        .update(data)
        .finalize_non_root();
    // The siblings come first in this zip: it then stops without taking the topmost step.
    for (sibling, step) in lower.iter().zip(path.by_ref()) {
        let (left, right) = if step.node_is_left {
            (&node, sibling)
        } else {
            (sibling, &node)
        };
        node = merge_subtrees_non_root(left, right, Mode::Hash);
    }
    let node_is_left = path.next().is_some_and(|step| step.node_is_left);
    let (left, right) = if node_is_left {
        (&node, topmost)
    } else {
        (topmost, &node)
    };
    *merge_subtrees_root(left, right, Mode::Hash).as_bytes()
}

/// The steps from a chunk to the root at which a sibling joins. A node without a sibling rises as it is.
#[derive(Clone)]
pub(crate) struct Path {
    index: u64,
    width: u64,
    level: u32,
}

pub(crate) struct Step {
    /// Levels above the chunk, 0 for the chunk's own sibling.
    pub(crate) level: u32,
    /// The sibling's index among the nodes of its level.
    pub(crate) sibling: u64,
    /// Whether the path comes from the left.
    pub(crate) node_is_left: bool,
}

impl Path {
    /// Returns the path of chunk `index` among `count`; `index < count`.
    pub(crate) fn new(index: u64, count: u64) -> Path {
        Path {
            index,
            width: count,
            level: 0,
        }
    }
}

impl Iterator for Path {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        while self.width > 1 {
            let step = Step {
                level: self.level,
                sibling: self.index ^ 1,
                node_is_left: self.index.is_multiple_of(2),
            };
            let has_sibling = step.sibling < self.width;
            self.index /= 2;
            self.width = self.width.div_ceil(2);
            self.level += 1;
            if has_sibling {
                return Some(step);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sides of the path from the root down, computed from BLAKE3's rule that the left subtree is
    /// the largest power of two below the whole.
    fn sides_from_the_rule(offset: u64, len: u64, chunk: u64) -> Vec<bool> {
        if len <= chunk {
            return Vec::new();
        }
        let left = blake3::hazmat::left_subtree_len(len);
        let is_left = offset < left;
        let mut sides = if is_left {
            sides_from_the_rule(offset, left, chunk)
        } else {
            sides_from_the_rule(offset - left, len - left, chunk)
        };
        sides.push(is_left);
        sides
    }

    fn sides(index: u64, count: u64) -> Vec<bool> {
        Path::new(index, count)
            .map(|step| step.node_is_left)
            .collect()
    }

    #[test]
    fn the_tallest_tree_has_the_stated_height() {
        let count = ChunkSize::MIN.count(MAX_CONTENT_LEN);
        assert_eq!(Path::new(0, count).count(), MAX_SIBLINGS);
        assert_eq!(Path::new(count - 1, count).count(), MAX_SIBLINGS);
    }

    #[test]
    fn proven_bounds_are_exactly_the_lengths_with_the_same_path() {
        let size = ChunkSize::MIN;
        let lengths = |count: u64| [(count - 1) * size.bytes() + 1, count * size.bytes()];
        for count in 1..=40u64 {
            for index in 0..count {
                let claim = count * size.bytes() - 5;
                let bounds = proven_length(claim, size, index).unwrap();
                for other in 1..=90u64 {
                    // The same path to the same chunk, and the same answer to whether more follows.
                    let same = index < other && sides(index, count) == sides(index, other);
                    for len in lengths(other) {
                        let is_last = index == count - 1;
                        let expected = if is_last { len == claim } else { same };
                        assert_eq!(bounds.contains(&len), expected, "{index} of {count}, {len}");
                    }
                }
            }
        }
        assert_eq!(proven_length(5, size, 1), None);
        assert_eq!(proven_length(0, size, 0), Some(0..=0));
    }

    proptest! {
        #[test]
        fn paths_follow_the_rule_of_the_blake3_tree(
            len in 1u64..MAX_CONTENT_LEN, position: u64, shift in 0u32..44, code in 16u8..=22,
        ) {
            let len = (len >> shift).max(1);
            let size = ChunkSize::from_code(code).unwrap();
            let index = position % size.count(len);
            let expected = sides_from_the_rule(index * size.bytes(), len, size.bytes());
            prop_assert_eq!(sides(index, size.count(len)), expected);
        }

        #[test]
        fn any_bytes_decode_as_a_proof_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
            if let Ok((proof, rest)) = Proof::decode(&bytes) {
                let mut again = Vec::new();
                proof.encode(&mut again);
                prop_assert_eq!(again.len(), proof.encoded_len());
                again.extend_from_slice(rest);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn a_proof_taller_than_any_tree_is_refused() {
        let bytes = vec![47; 1 + 47 * 32];
        assert_eq!(
            Proof::decode(&bytes),
            Err(DecodeProofError::TooManySiblings(47))
        );
        assert_eq!(Proof::decode(&[1; 32]), Err(DecodeProofError::Truncated));
        assert_eq!(Proof::decode(&[]), Err(DecodeProofError::Truncated));
    }
}
