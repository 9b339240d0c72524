//! Content objects named by their BLAKE3 root and verified chunk by chunk.
//!
//! The one invariant: **bytes are accepted only with a proof that leads to the name.** A provider
//! can refuse service, but cannot make a receiver accept a wrong byte, a byte at a wrong offset or
//! a wrong length.
//!
//! | module | holds | text it follows |
//! |---|---|---|
//! | [`chunk_size`] | [`ChunkSize`], the negotiable unit of transfer | [MFTP §3.1], "chunks"; docs/protocols/content.md section 1 |
//! | [`proof`] | [`Proof`], [`verify_chunk`], the bounds of the length that a verified chunk proves
//! | content.md section 2; BLAKE3 paper section 2.1 |
//! | [`tree`] | [`ChunkTree`], a provider's hashes of one content, and its cache record | content.md sections 2 and 5 |
//! | [`progress`] | [`Assembly`], a receiver's verified ranges, resumable | content.md section 4 |
//! | [`range_set`] | [`RangeSet`], disjoint byte ranges | |
//! | [`folder`] | [`Folder`], many files as one content object; packs of small ones | content.md section 3 |
//! | [`encryption`] | [`ContentKey`], contents that routers cannot read | content.md section 7 |
//! | [`path`] | [`RelativePath`], a path that cannot leave its folder | content.md section 3 |
//!
//! No module opens a file; [`ChunkTree::from_reader`] reads from its caller's reader.
#![forbid(unsafe_code)]

pub mod chunk_size;
pub mod encryption;
pub mod folder;
pub mod path;
pub mod progress;
pub mod proof;
pub mod range_set;
pub mod record;
mod resume;
pub mod tree;

pub use chunk_size::{ChunkSize, InvalidChunkSize};
pub use encryption::ContentKey;
pub use folder::{
    Entry, EntryError, Folder, FolderError, Kind, Listing, Modified, Pack, Refused, Spot, Top,
};
pub use path::{PathError, RelativePath};
pub use progress::{Assembly, Offer, Refusal, Verified};
pub use proof::{DecodeProofError, Proof, VerifyError, proven_length, verify_chunk};
pub use range_set::RangeSet;
pub use record::RecordError;
pub use tree::{ChunkTree, HashError, ProofError};

/// The longest content, in bytes: 1 EiB. Every offset and every sum of offsets in this crate then
/// fits a `u64`, and no proof has more than [`proof::MAX_SIBLINGS`] hashes.
pub const MAX_CONTENT_LEN: u64 = 1 << 60;
