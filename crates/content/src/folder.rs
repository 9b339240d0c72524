//! A folder as one content object: the manifest that lists its files.
//!
//! The manifest is content like any other, so one name stands for a whole folder and each file in
//! it is verified on its own. Each folder has one encoding, and only that one decodes: the same
//! files have the same name wherever they are published.

use whimbrel_core::Guid;

use crate::path::MAX_PATH_LEN;
use crate::{MAX_CONTENT_LEN, PathError, RelativePath};

/// The first bytes of a manifest. The first one is not text, so that no text file begins like this.
pub const MAGIC: [u8; 8] = *b"\x89WHBDIR\x0a";
/// The version of the layout that this module writes and reads.
pub const VERSION: u8 = 1;
/// The maximum number of files in a folder.
pub const MAX_ENTRIES: usize = 1 << 20;
/// The longest manifest, in bytes. Receivers refuse to fetch a longer one.
pub const MAX_MANIFEST_LEN: usize = 256 << 20;

const HEADER_LEN: usize = MAGIC.len() + 1 + 4;
/// Bytes of an entry beside its path: path length, flags, length, name.
const ENTRY_OVERHEAD: usize = 2 + 1 + 8 + Guid::LEN;
const EXECUTABLE: u8 = 1;

/// One file of a folder.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Entry {
    /// The path in the folder.
    pub path: RelativePath,
    /// Its length in bytes, at most [`MAX_CONTENT_LEN`].
    pub length: u64,
    /// The name of its content.
    pub content: Guid,
    /// Whether the file is executable.
    pub executable: bool,
}

/// The files of a folder, in the order of their paths. Empty folders and links are not kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Folder {
    entries: Vec<Entry>,
}

/// Why files do not make a folder, or bytes are not a manifest.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FolderError {
    /// The magic differs.
    #[error("this content is not a folder")]
    NotAFolder,
    /// Written by a later version of this program.
    #[error("a folder of version {0}, which this program does not support")]
    UnknownVersion(u8),
    /// Ends in the middle of an entry.
    #[error("the folder's list is truncated")]
    Truncated,
    /// Bytes follow the last entry.
    #[error("the folder's list has {0} bytes after its end")]
    TrailingBytes(usize),
    /// Above [`MAX_ENTRIES`] or [`MAX_MANIFEST_LEN`].
    #[error(
        "a folder has at most {MAX_ENTRIES} files and a list of at most {MAX_MANIFEST_LEN} bytes"
    )]
    TooLarge,
    /// A path that could lead out of the folder, or that no file can have.
    #[error(transparent)]
    UnsafePath(#[from] PathError),
    /// A path occurs twice.
    #[error("the path {0:?} occurs twice")]
    DuplicatePath(RelativePath),
    /// A path names a file and a folder.
    #[error("the path {0:?} is both a file and a folder that contains {1:?}")]
    FileAndFolder(RelativePath, RelativePath),
    /// Entries out of order: a second encoding of the same folder.
    #[error("the path {0:?} is out of order")]
    OutOfOrder(RelativePath),
    /// A flag unknown to this version.
    #[error("flags {0:#04x}; this program knows only bit 0")]
    UnknownFlags(u8),
    /// The lengths together exceed [`MAX_CONTENT_LEN`].
    #[error("the folder's files together exceed {MAX_CONTENT_LEN} bytes")]
    TooLong,
}

impl Folder {
    /// A folder of `entries`, given in any order.
    pub fn new(mut entries: Vec<Entry>) -> Result<Folder, FolderError> {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let folder = Folder { entries };
        folder.check()?;
        Ok(folder)
    }

    fn check(&self) -> Result<(), FolderError> {
        if self.entries.len() > MAX_ENTRIES || self.encoded_len() > MAX_MANIFEST_LEN {
            return Err(FolderError::TooLarge);
        }
        for pair in self.entries.windows(2) {
            let (before, after) = (&pair[0].path, &pair[1].path);
            if before == after {
                return Err(FolderError::DuplicatePath(after.clone()));
            }
            if before > after {
                return Err(FolderError::OutOfOrder(after.clone()));
            }
            // A path's descendants follow it directly, so comparing adjacent paths suffices.
            if before.is_above(after) {
                return Err(FolderError::FileAndFolder(before.clone(), after.clone()));
            }
        }
        let lengths = self.entries.iter().map(|entry| entry.length);
        let total = lengths.fold(0u64, u64::saturating_add);
        if total > MAX_CONTENT_LEN {
            Err(FolderError::TooLong)
        } else {
            Ok(())
        }
    }

    /// The files, in the order of their paths.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The file at `path`. O(log n).
    pub fn get(&self, path: &RelativePath) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|entry| entry.path.cmp(path));
        found.ok().map(|index| &self.entries[index])
    }

    /// The lengths of all files together, in bytes.
    pub fn total_len(&self) -> u64 {
        self.entries.iter().map(|entry| entry.length).sum()
    }

    /// Whether a content that begins with `beginning` is read as a manifest.
    ///
    /// An ordinary file can be crafted to begin so; decoding it then either fails or yields the
    /// files that it lists.
    pub fn begins_like_manifest(beginning: &[u8]) -> bool {
        beginning.starts_with(&MAGIC)
    }

    /// The length of [`Folder::encode`]'s result in bytes.
    pub fn encoded_len(&self) -> usize {
        HEADER_LEN
            + self
                .entries
                .iter()
                .map(|entry| ENTRY_OVERHEAD + entry.path.as_str().len())
                .sum::<usize>()
    }

    /// The manifest (content.md section 3).
    pub fn encode(&self) -> Vec<u8> {
        let mut manifest = Vec::with_capacity(self.encoded_len());
        manifest.extend_from_slice(&MAGIC);
        manifest.push(VERSION);
        manifest.extend_from_slice(&(self.entries.len() as u32).to_be_bytes());
        for entry in &self.entries {
            let path = entry.path.as_str();
            manifest.extend_from_slice(&(path.len() as u16).to_be_bytes());
            manifest.extend_from_slice(path.as_bytes());
            manifest.push(if entry.executable { EXECUTABLE } else { 0 });
            manifest.extend_from_slice(&entry.length.to_be_bytes());
            manifest.extend_from_slice(entry.content.as_bytes());
        }
        manifest
    }

    /// Decodes a manifest, and only the one encoding that [`Folder::encode`] produces. Memory is
    /// proportional to `manifest`.
    pub fn decode(manifest: &[u8]) -> Result<Folder, FolderError> {
        if manifest.len() > MAX_MANIFEST_LEN {
            return Err(FolderError::TooLarge);
        }
        let mut rest = manifest
            .strip_prefix(&MAGIC)
            .ok_or(FolderError::NotAFolder)?;
        let [version] = take(&mut rest)?;
        if version != VERSION {
            return Err(FolderError::UnknownVersion(version));
        }
        let count = u32::from_be_bytes(take(&mut rest)?) as usize;
        if count > MAX_ENTRIES {
            return Err(FolderError::TooLarge);
        }
        // Reserves no memory for a mere count: the entries must be present.
        let mut entries = Vec::with_capacity(count.min(rest.len() / ENTRY_OVERHEAD));
        for _ in 0..count {
            entries.push(take_entry(&mut rest)?);
        }
        if !rest.is_empty() {
            return Err(FolderError::TrailingBytes(rest.len()));
        }
        let folder = Folder { entries };
        folder.check()?;
        Ok(folder)
    }
}

fn take_entry(rest: &mut &[u8]) -> Result<Entry, FolderError> {
    let path_len = usize::from(u16::from_be_bytes(take(rest)?));
    if path_len > MAX_PATH_LEN {
        return Err(PathError::TooLong(path_len).into());
    }
    let path = rest.split_off(..path_len).ok_or(FolderError::Truncated)?;
    let path = core::str::from_utf8(path).map_err(|_| PathError::NotUtf8)?;
    let path = RelativePath::new(path)?;
    let [flags] = take(rest)?;
    if flags & !EXECUTABLE != 0 {
        return Err(FolderError::UnknownFlags(flags));
    }
    let length = u64::from_be_bytes(take(rest)?);
    let content = Guid(take(rest)?);
    Ok(Entry {
        path,
        length,
        content,
        executable: flags & EXECUTABLE != 0,
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], FolderError> {
    let (array, after) = rest.split_first_chunk().ok_or(FolderError::Truncated)?;
    *rest = after;
    Ok(*array)
}
