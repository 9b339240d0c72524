//! The unit in which content is transferred and proven.

use core::ops::Range;

/// A power of two from 16 KiB to 4 MiB.
///
/// Provider and receiver may choose a different one for each request: the name of the content does
/// not depend on it (it would in a plain list of chunk hashes).
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "u64", into = "u64")]
pub struct ChunkSize {
    log2: u8,
}

/// A chunk size that is not a power of two from 16 KiB to 4 MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a chunk has a power of two from 16384 to 4194304 bytes, not {0}")]
pub struct InvalidChunkSize(pub u64);

impl ChunkSize {
    /// 16 KiB: two seconds at 64 kbit/s.
    pub const MIN: ChunkSize = ChunkSize { log2: 14 };
    /// 64 KiB: the groups whose hashes a provider keeps.
    pub const GROUP: ChunkSize = ChunkSize { log2: 16 };
    /// 1 MiB.
    pub const DEFAULT: ChunkSize = ChunkSize { log2: 20 };
    /// 4 MiB.
    pub const MAX: ChunkSize = ChunkSize { log2: 22 };

    /// Returns the chunk size of `bytes` bytes.
    pub const fn from_bytes(bytes: u64) -> Result<ChunkSize, InvalidChunkSize> {
        if !bytes.is_power_of_two() || bytes < Self::MIN.bytes() || bytes > Self::MAX.bytes() {
            return Err(InvalidChunkSize(bytes));
        }
        Ok(ChunkSize {
            log2: bytes.trailing_zeros() as u8,
        })
    }

    /// The chunk size whose wire form is `code`; `None` outside 14..=22.
    pub const fn from_code(code: u8) -> Option<ChunkSize> {
        if code < Self::MIN.log2 || code > Self::MAX.log2 {
            None
        } else {
            Some(ChunkSize { log2: code })
        }
    }

    /// Returns the wire form: the base-two logarithm of the size, 14..=22.
    pub const fn code(self) -> u8 {
        self.log2
    }

    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.log2
    }

    /// Returns all chunk sizes, smallest first.
    pub fn all() -> impl Iterator<Item = ChunkSize> {
        (Self::MIN.log2..=Self::MAX.log2).map(|log2| ChunkSize { log2 })
    }

    /// Returns the number of chunks in a content of `content_len` bytes. At least 1: empty content
    /// is one empty chunk.
    pub const fn count(self, content_len: u64) -> u64 {
        if content_len == 0 {
            1
        } else {
            content_len.div_ceil(self.bytes())
        }
    }

    /// Returns the bytes of chunk `index` in a content of `content_len` bytes; `None` past the last chunk.
    pub fn range(self, index: u64, content_len: u64) -> Option<Range<u64>> {
        if index >= self.count(content_len) {
            return None;
        }
        let start = index << self.log2;
        Some(start..start.saturating_add(self.bytes()).min(content_len))
    }

    /// Returns the index of the last chunk in a content of `content_len` bytes.
    pub const fn last_index(self, content_len: u64) -> u64 {
        self.count(content_len) - 1
    }

    /// Returns the chunk that holds the byte at `offset`.
    pub const fn index_of(self, offset: u64) -> u64 {
        offset >> self.log2
    }
}

impl Default for ChunkSize {
    fn default() -> ChunkSize {
        ChunkSize::DEFAULT
    }
}

impl TryFrom<u64> for ChunkSize {
    type Error = InvalidChunkSize;

    fn try_from(bytes: u64) -> Result<ChunkSize, InvalidChunkSize> {
        ChunkSize::from_bytes(bytes)
    }
}

impl From<ChunkSize> for u64 {
    fn from(size: ChunkSize) -> u64 {
        size.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_within_the_bounds_are_chunk_sizes() {
        for bytes in [
            0,
            1,
            1 << 13,
            (1 << 14) + 1,
            3 << 14,
            1 << 23,
            1 << 63,
            u64::MAX,
        ] {
            assert_eq!(ChunkSize::from_bytes(bytes), Err(InvalidChunkSize(bytes)));
        }
        for size in ChunkSize::all() {
            assert_eq!(ChunkSize::from_bytes(size.bytes()), Ok(size));
            assert_eq!(ChunkSize::from_code(size.code()), Some(size));
        }
        assert_eq!(ChunkSize::all().count(), 9);
        assert_eq!(
            (ChunkSize::from_code(13), ChunkSize::from_code(23)),
            (None, None)
        );
    }

    #[test]
    fn chunks_cover_the_content_without_gap_or_overlap() {
        for size in ChunkSize::all() {
            for len in [
                0,
                1,
                size.bytes() - 1,
                size.bytes(),
                size.bytes() + 1,
                5 * size.bytes(),
                u64::MAX,
            ] {
                let last = size.last_index(len);
                assert_eq!(size.range(last + 1, len), None);
                assert_eq!(size.range(u64::MAX, len), None);
                assert_eq!(size.range(last, len).unwrap().end, len);
                assert_eq!(size.range(0, len).unwrap().start, 0);
                if last > 0 {
                    assert_eq!(
                        size.range(last - 1, len).unwrap().end,
                        size.range(last, len).unwrap().start
                    );
                }
            }
        }
    }
}
