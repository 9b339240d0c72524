//! A provider's hashes of one content: hashed once, then able to prove any chunk.

use std::io::{self, Read};

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use whimbrel_core::Guid;

use crate::proof::Path;
use crate::record::Kind;
use crate::{ChunkSize, MAX_CONTENT_LEN, Proof, RecordError};

const CACHE: Kind = Kind {
    magic: *b"WHBTREE",
    version: 1,
    name: "cache of a content's hashes",
};

/// The BLAKE3 tree of one content, cut off at groups of one chunk size.
///
/// Proves chunks of the group's size and of every larger one. Holds 64 bytes for each group: 64 KiB
/// of memory for each GiB of content at the default of 1 MiB.
#[derive(Clone, PartialEq, Eq)]
pub struct ChunkTree {
    root: Guid,
    content_len: u64,
    group: ChunkSize,
    /// From the groups up; the last level has two nodes. Empty if there is a single group.
    levels: Vec<Vec<ChainingValue>>,
}

impl core::fmt::Debug for ChunkTree {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "ChunkTree({}, {} bytes in groups of {})",
            self.root,
            self.content_len,
            self.group.bytes()
        )
    }
}

/// Why a content could not be hashed.
#[derive(Debug, thiserror::Error)]
pub enum HashError {
    /// The reader failed.
    #[error("the content could not be read: {0}")]
    Read(#[from] io::Error),
    /// More than [`MAX_CONTENT_LEN`] bytes.
    #[error("the content is longer than {MAX_CONTENT_LEN} bytes")]
    TooLong,
}

/// Why a chunk cannot be proven.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProofError {
    /// The requested chunks are smaller than the groups.
    #[error(
        "chunks of {asked} bytes were requested; the stored hashes prove chunks of {group} bytes or more"
    )]
    ChunkTooSmall {
        /// The requested chunk size in bytes.
        asked: u64,
        /// The smallest chunk size that can be proven, in bytes.
        group: u64,
    },
    /// The index is past the end of the content.
    #[error("chunk {index} was requested; the content has {count} chunks")]
    NoSuchChunk {
        /// The requested index.
        index: u64,
        /// Chunks of that size in the content.
        count: u64,
    },
}

impl ChunkTree {
    /// Reads `reader` to its end and keeps the hash of each group of `group` bytes.
    ///
    /// Calls `progress` with the number of bytes hashed so far, after each group. Memory: one
    /// group's bytes and the tree itself.
    pub fn from_reader(
        mut reader: impl Read,
        group: ChunkSize,
        progress: &mut dyn FnMut(u64),
    ) -> Result<ChunkTree, HashError> {
        let mut buffer = vec![0; group.bytes() as usize];
        let mut groups = Vec::new();
        let mut content_len = 0;
        // This is the root if there is only one group.
        let mut root = *blake3::hash(&[]).as_bytes();
        loop {
            let filled = fill(&mut reader, &mut buffer)?;
            if filled == 0 {
                break;
            }
            let mut hasher = Hasher::new();
            hasher
                .set_input_offset(content_len)
                .update(&buffer[..filled]);
            if content_len == 0 {
                root = *hasher.finalize().as_bytes();
            }
            groups.push(hasher.finalize_non_root());
            content_len += filled as u64;
            if content_len > MAX_CONTENT_LEN {
                return Err(HashError::TooLong);
            }
            progress(content_len);
            if filled < buffer.len() {
                break;
            }
        }
        let levels = levels_over(groups);
        let root = root_of(&levels).unwrap_or(root);
        Ok(ChunkTree {
            root: Guid(root),
            content_len,
            group,
            levels,
        })
    }

    /// Returns the content's name: what `b3sum` prints for the same bytes.
    pub fn root(&self) -> Guid {
        self.root
    }

    /// Returns the content's length in bytes.
    pub fn content_len(&self) -> u64 {
        self.content_len
    }

    /// Returns the smallest chunk size that this tree can prove.
    pub fn group(&self) -> ChunkSize {
        self.group
    }

    /// Returns the proof of chunk `index` in units of `chunk_size`, which is the group's size or larger.
    pub fn proof(&self, index: u64, chunk_size: ChunkSize) -> Result<Proof, ProofError> {
        if chunk_size < self.group {
            return Err(ProofError::ChunkTooSmall {
                asked: chunk_size.bytes(),
                group: self.group.bytes(),
            });
        }
        let count = chunk_size.count(self.content_len);
        if index >= count {
            return Err(ProofError::NoSuchChunk { index, count });
        }
        let base_level = chunk_size.code() - self.group.code();
        let sibling = |level: u32, index: u64| {
            let level = self.levels.get(usize::from(base_level) + level as usize)?;
            level.get(usize::try_from(index).ok()?).copied()
        };
        let siblings = Path::new(index, count).filter_map(|step| sibling(step.level, step.sibling));
        Ok(Proof::from_siblings(siblings.collect()))
    }

    /// As [`ChunkTree::proof`], for chunks smaller than the groups: hashes anew the bytes of the
    /// group that the chunk lies in. The proof is as good as they are.
    pub fn proof_within(
        &self,
        index: u64,
        chunk_size: ChunkSize,
        group: &[u8],
    ) -> Result<Proof, ProofError> {
        if chunk_size >= self.group {
            return self.proof(index, chunk_size);
        }
        let count = chunk_size.count(self.content_len);
        let inner = u32::from(self.group.code() - chunk_size.code());
        let at = index >> inner;
        let range = self.group.range(at, self.content_len);
        let Some(range) = range.filter(|range| range.end - range.start == group.len() as u64)
        else {
            return Err(ProofError::NoSuchChunk { index, count });
        };
        if index >= count {
            return Err(ProofError::NoSuchChunk { index, count });
        }
        let parts = group.chunks(chunk_size.bytes() as usize).enumerate();
        let hashed = parts.map(|(place, part)| {
            let mut hasher = Hasher::new();
            hasher.set_input_offset(range.start + ((place as u64) << chunk_size.code()));
            hasher.update(part).finalize_non_root()
        });
        let within = levels_over(hashed.collect());
        let sibling = |level: u32, index: u64| {
            let (levels, level, first) = match level.checked_sub(inner) {
                Some(above) => (&self.levels, above, 0),
                None => (&within, level, at << (inner - level)),
            };
            let index = usize::try_from(index - first).ok()?;
            levels.get(level as usize)?.get(index).copied()
        };
        let siblings = Path::new(index, count).filter_map(|step| sibling(step.level, step.sibling));
        Ok(Proof::from_siblings(siblings.collect()))
    }

    /// Encodes the tree for a cache on disk, 32 bytes for each group (content.md section 5).
    ///
    /// The record does not name its file: the caller must note that (path, length, modification
    /// time).
    pub fn encode(&self) -> Vec<u8> {
        CACHE.seal(|body| {
            body.push(self.group.code());
            body.extend_from_slice(&self.content_len.to_be_bytes());
            body.extend_from_slice(self.root.as_bytes());
            if let Some(groups) = self.levels.first() {
                body.extend_from_slice(groups.as_flattened());
            }
        })
    }

    /// Decodes a record of [`ChunkTree::encode`]. Memory is at most proportional to `record`.
    ///
    /// Rejects hashes that do not lead to the root, so that a decoded tree cannot give a false
    /// proof.
    pub fn decode(record: &[u8]) -> Result<ChunkTree, RecordError> {
        let mut body = CACHE.open(record)?;
        let group = ChunkSize::from_code(body.u8()?)
            .ok_or(RecordError::Contradiction("an invalid chunk size"))?;
        let content_len = body.u64()?;
        if content_len > MAX_CONTENT_LEN {
            return Err(RecordError::Contradiction("the content is too long"));
        }
        let root = body.array()?;
        let groups: &[ChainingValue] = body.arrays()?;
        let due = if group.count(content_len) == 1 {
            0
        } else {
            group.count(content_len)
        };
        if groups.len() as u64 != due {
            return Err(RecordError::Contradiction(
                "the number of hashes does not match the length",
            ));
        }
        let levels = levels_over(groups.to_vec());
        if root_of(&levels).is_some_and(|computed| computed != root) {
            return Err(RecordError::Contradiction(
                "the hashes do not lead to the name",
            ));
        }
        Ok(ChunkTree {
            root: Guid(root),
            content_len,
            group,
            levels,
        })
    }
}

/// Reads until `buffer` is full or the content ends; returns the number of bytes read.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Returns all levels from `groups` up to the two nodes below the root; empty for fewer than two groups.
fn levels_over(groups: Vec<ChainingValue>) -> Vec<Vec<ChainingValue>> {
    let mut levels = Vec::new();
    let mut level = groups;
    while level.len() > 2 {
        let parents = level.chunks(2).map(|pair| match pair {
            [left, right] => merge_subtrees_non_root(left, right, Mode::Hash),
            single => single[0],
        });
        let above = parents.collect();
        levels.push(core::mem::replace(&mut level, above));
    }
    if level.len() == 2 {
        levels.push(level);
    }
    levels
}

/// Returns the root over the topmost level; `None` if there is a single group.
fn root_of(levels: &[Vec<ChainingValue>]) -> Option<[u8; 32]> {
    match levels.last().map(Vec::as_slice) {
        Some([left, right]) => Some(*merge_subtrees_root(left, right, Mode::Hash).as_bytes()),
        _ => None,
    }
}
