//! A folder as one content object: the listing of its entries.
//!
//! The listing is content like any other, so one name stands for a whole folder, and each listed file is verified by
//! its own name. The bytes of small files are concatenated in packs, contents of some MiB. A listing is untrusted: an
//! entry that could do harm is refused, and the others are not.

use whimbrel_core::Guid;

use crate::{MAX_CONTENT_LEN, PathError, RelativePath};

mod decode;
mod size;

pub use size::FolderSize;

/// The first bytes of a listing. The first one is not text, so that no text file begins like this.
pub const MAGIC: [u8; 8] = *b"\x89WHBDIR\x0a";
/// The version of the layout that this module writes and reads.
pub const VERSION: u8 = 2;
/// The maximum number of entries in a folder.
pub const MAX_ENTRIES: usize = 1 << 20;
/// The longest listing, in bytes. Receivers refuse to fetch a longer one.
pub const MAX_LISTING_LEN: usize = 256 << 20;
/// The longest file that travels in a pack, in bytes.
pub const MAX_PACKED_LEN: u64 = (64 << 10) - 1;
/// The longest pack, in bytes.
pub const MAX_PACK_LEN: u64 = 4 << 20;
/// The longest target of a link, in bytes: Linux's limit, less the closing NUL.
pub const MAX_TARGET_LEN: usize = 4095;
/// A pack below this length is not full, in bytes.
const MIN_PACK_LEN: u64 = 1 << 20;
/// The permission bits that are kept: read, write, execute. A listing cannot make a file that runs as another user.
pub const MODE_BITS: u16 = 0o777;

const HEADER_LEN: usize = MAGIC.len() + 1 + 4 + 4;
/// Bytes of a pack: name, length.
const PACK_LEN: usize = Guid::LEN + 4;
/// Bytes of an entry of any kind beside its path: kind, path length, mode, seconds, nanoseconds.
const ENTRY_OVERHEAD: usize = 1 + 2 + 2 + 8 + 4;

/// Begins the record of the folder itself, which stands among the packs.
const TOP_MAGIC: [u8; 8] = *b"\x89WHBTOP\x0a";

const FILE: u8 = 0;
const PACKED: u8 = 1;
const FOLDER: u8 = 2;
const LINK: u8 = 3;

/// An entry of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The path in the folder.
    pub path: RelativePath,
    /// Its permissions, within [`MODE_BITS`].
    pub mode: u16,
    /// When it was modified.
    pub modified: Modified,
    /// What it is.
    pub kind: Kind,
}

/// A time since 1970, as file systems keep it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Modified {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after those, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// What an entry is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A file.
    File {
        /// Its length in bytes, at most [`MAX_CONTENT_LEN`].
        length: u64,
        /// The name of its bytes: what `b3sum` prints.
        content: Guid,
        /// Where its bytes are, unless they are a content of their own.
        packed: Option<Spot>,
    },
    /// A folder. Folders on the way to a file need not be listed.
    Folder,
    /// A symbolic link, to somewhere in the same folder.
    Link {
        /// Its target.
        target: Box<[u8]>,
    },
}

/// A place in a pack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Spot {
    /// The pack, by its place in the folder's list of packs.
    pub pack: u32,
    /// The first byte in it.
    pub offset: u32,
}

/// A content that holds the bytes of small files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pack {
    /// Its name.
    pub content: Guid,
    /// Its length in bytes, at most [`MAX_PACK_LEN`].
    pub length: u32,
}

/// The folder itself, which is no entry of its own listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Top {
    /// Its permissions, within [`MODE_BITS`].
    pub mode: u16,
    /// When it was modified.
    pub modified: Modified,
}

/// The entries of a folder, in the order of their paths.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Folder {
    packs: Vec<Pack>,
    entries: Vec<Entry>,
    top: Option<Top>,
}

/// A decoded listing: the folder, and the entries that were refused.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// The folder without refused entries.
    pub folder: Folder,
    /// What was refused, in the listing's order.
    pub refused: Vec<Refused>,
}

/// An entry that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Its path as listed.
    pub path: Box<[u8]>,
    /// Why.
    pub why: EntryError,
}

/// Why an entry is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EntryError {
    /// A path that could lead out of the folder, or that no file can have.
    #[error(transparent)]
    UnsafePath(#[from] PathError),
    /// A path occurs twice, or entries are out of order.
    #[error("its path is listed twice, or out of order")]
    OutOfOrder,
    /// Its path lies below one that is no folder.
    #[error("its path leads through {0:?}, which is not a folder")]
    BelowNoFolder(RelativePath),
    /// A link that leads out of the folder, or could.
    #[error("it is a link to {}, which may lead out of the folder", crate::path::quoted(.0))]
    UnsafeLink(Box<[u8]>),
    /// A link without a target, or one that no link can have.
    #[error("it is a link with a target that no link can have")]
    InvalidTarget,
    /// More than [`MODE_BITS`].
    #[error("its permissions are {0:#o}; only read, write and execute are taken")]
    UnknownMode(u16),
    /// Nanoseconds of a second and more.
    #[error("its time is not valid")]
    InvalidTime,
    /// Bytes outside of a pack.
    #[error("its bytes are said to be where no pack is")]
    NotInPack,
    /// Longer than any content.
    #[error("it is longer than any content can be")]
    TooLong,
}

/// Why entries do not make a folder, or bytes are not a listing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FolderError {
    /// The magic differs.
    #[error("this content is not a folder")]
    NotAFolder,
    /// Written by another version of this program.
    #[error(
        "it is a folder in format {0}, this program knows format {VERSION}: use the same release of Whimbrel on both sides"
    )]
    UnknownVersion(u8),
    /// Ends in the middle of an entry.
    #[error("the folder's list is truncated")]
    Truncated,
    /// Bytes follow the last entry.
    #[error("the folder's list has {0} bytes after its end")]
    TrailingBytes(usize),
    /// Above [`MAX_ENTRIES`] or [`MAX_LISTING_LEN`].
    #[error(
        "a folder has at most {MAX_ENTRIES} entries and a list of at most {MAX_LISTING_LEN} bytes"
    )]
    TooLarge,
    /// A kind of entry that this version does not have.
    #[error("the folder's list has an entry of unknown kind {0}")]
    UnknownKind(u8),
    /// A pack above [`MAX_PACK_LEN`].
    #[error("a pack of small files has {0} bytes; the maximum is {MAX_PACK_LEN}")]
    PackTooLong(u32),
    /// The lengths together exceed [`MAX_CONTENT_LEN`].
    #[error("the folder's files together exceed {MAX_CONTENT_LEN} bytes")]
    TooLong,
    /// The permissions or the time of the folder itself are not valid.
    #[error("the folder itself: {why}")]
    Top {
        /// Why.
        why: EntryError,
    },
    /// One of the entries to be listed is not valid.
    #[error("{path:?}: {why}")]
    Entry {
        /// Its path.
        path: RelativePath,
        /// Why.
        why: EntryError,
    },
}

impl Entry {
    /// Returns the length of its bytes; 0 for what has none.
    pub fn len(&self) -> u64 {
        match self.kind {
            Kind::File { length, .. } => length,
            Kind::Folder | Kind::Link { .. } => 0,
        }
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether it may follow `before` in a folder with these packs.
    fn check(&self, before: Option<&Entry>, packs: &[Pack]) -> Result<(), EntryError> {
        if let Some(before) = before {
            if before.path >= self.path {
                return Err(EntryError::OutOfOrder);
            }
            // A path's descendants follow it directly, so looking at one entry suffices.
            if before.path.is_above(&self.path) && before.kind != Kind::Folder {
                return Err(EntryError::BelowNoFolder(before.path.clone()));
            }
        }
        check_attributes(self.mode, &self.modified)?;
        match &self.kind {
            Kind::Folder => Ok(()),
            Kind::Link { target } => check_target(&self.path, target),
            Kind::File { length, .. } if *length > MAX_CONTENT_LEN => Err(EntryError::TooLong),
            Kind::File { packed: None, .. } => Ok(()),
            Kind::File {
                packed: Some(spot),
                length,
                ..
            } => {
                let end = u64::from(spot.offset) + length;
                let pack = packs.get(spot.pack as usize);
                if *length <= MAX_PACKED_LEN && pack.is_some_and(|pack| end <= pack.length.into()) {
                    Ok(())
                } else {
                    Err(EntryError::NotInPack)
                }
            }
        }
    }
}

fn check_attributes(mode: u16, modified: &Modified) -> Result<(), EntryError> {
    if mode & !MODE_BITS != 0 {
        return Err(EntryError::UnknownMode(mode));
    }
    if modified.nanoseconds >= 1_000_000_000 {
        return Err(EntryError::InvalidTime);
    }
    Ok(())
}

impl Top {
    fn check(&self) -> Result<(), EntryError> {
        check_attributes(self.mode, &self.modified)
    }

    /// Returns a pack without bytes, whose name is the record: receivers that do not know the record
    /// never fetch such a pack.
    fn to_record(self) -> Pack {
        let mut name = [0; Guid::LEN];
        let fields: [&[u8]; 4] = [
            &TOP_MAGIC,
            &self.mode.to_be_bytes(),
            &self.modified.seconds.to_be_bytes(),
            &self.modified.nanoseconds.to_be_bytes(),
        ];
        let bytes = fields.into_iter().flatten();
        name.iter_mut()
            .zip(bytes)
            .for_each(|(to, byte)| *to = *byte);
        Pack {
            content: Guid(name),
            length: 0,
        }
    }
}

/// Returns whether a link at `path` to `target` stays in the folder, whatever other links there are
/// in it.
///
/// `..` is allowed at the beginning only, and no further up than the folder: the link itself lies in
/// real folders, and each name after that leads to something in the folder, or through another link
/// that stays in it. A `..` behind a name could follow a link that leads upwards.
pub fn check_target(path: &RelativePath, target: &[u8]) -> Result<(), EntryError> {
    if target.is_empty() || target.len() > MAX_TARGET_LEN || target.contains(&0) {
        return Err(EntryError::InvalidTarget);
    }
    let mut up = 0;
    let mut has_name = false;
    for component in target.split(|byte| *byte == b'/') {
        match component {
            b".." => up += 1,
            b"" | b"." => continue,
            _ => {
                has_name = true;
                continue;
            }
        }
        if has_name {
            return Err(EntryError::UnsafeLink(target.into()));
        }
    }
    let depth = path.components().count() - 1;
    if target.starts_with(b"/") || up > depth {
        Err(EntryError::UnsafeLink(target.into()))
    } else {
        Ok(())
    }
}

/// Returns whether a pack that holds `filled` bytes ends before a file of `length` bytes named
/// `next`.
///
/// Where it ends depends on the files in it, not only on their number: after a file is changed,
/// added or removed, the packs further on are soon the same ones again.
pub fn ends_pack(filled: u64, next: &Guid, length: u64) -> bool {
    filled + length > MAX_PACK_LEN || (filled >= MIN_PACK_LEN && next.0[0] < 16)
}

impl Folder {
    /// Returns a folder of `entries`, given in any order, with the small files' bytes in `packs`.
    pub fn new(packs: Vec<Pack>, mut entries: Vec<Entry>) -> Result<Folder, FolderError> {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let mut before = None;
        for entry in &entries {
            entry
                .check(before, &packs)
                .map_err(|why| FolderError::Entry {
                    path: entry.path.clone(),
                    why,
                })?;
            before = Some(entry);
        }
        let folder = Folder {
            packs,
            entries,
            top: None,
        };
        folder.check()?;
        Ok(folder)
    }

    /// Returns the folder with its own permissions and time.
    pub fn with_top(self, top: Top) -> Result<Folder, FolderError> {
        top.check().map_err(|why| FolderError::Top { why })?;
        let folder = Folder {
            top: Some(top),
            ..self
        };
        folder.check()?;
        Ok(folder)
    }

    /// Returns its own permissions and time, if its listing has them.
    pub fn top(&self) -> Option<&Top> {
        self.top.as_ref()
    }

    /// The packs as the listing has them.
    fn listed_packs(&self) -> impl Iterator<Item = Pack> {
        let top = self.top.map(Top::to_record);
        self.packs.iter().copied().chain(top)
    }

    /// What holds for the whole.
    fn check(&self) -> Result<(), FolderError> {
        if self.entries.len() > MAX_ENTRIES
            || self.listed_packs().count() > MAX_ENTRIES
            || self.encoded_len() > MAX_LISTING_LEN
        {
            return Err(FolderError::TooLarge);
        }
        if let Some(pack) = self
            .packs
            .iter()
            .find(|pack| u64::from(pack.length) > MAX_PACK_LEN)
        {
            return Err(FolderError::PackTooLong(pack.length));
        }
        let lengths = self.entries.iter().map(Entry::len);
        if lengths.fold(0, u64::saturating_add) > MAX_CONTENT_LEN {
            return Err(FolderError::TooLong);
        }
        Ok(())
    }

    /// What is in it, in the order of the paths.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the contents that hold the bytes of small files.
    pub fn packs(&self) -> &[Pack] {
        &self.packs
    }

    /// Returns the number of files.
    pub fn files(&self) -> usize {
        let is_file = |entry: &&Entry| matches!(entry.kind, Kind::File { .. });
        self.entries.iter().filter(is_file).count()
    }

    /// Returns the place of `path` in [`Folder::entries`]. O(log n).
    pub fn find(&self, path: &RelativePath) -> Option<usize> {
        let found = self.entries.binary_search_by(|entry| entry.path.cmp(path));
        found.ok()
    }

    /// Returns true if something is listed below `path`. O(log n).
    pub fn has_below(&self, path: &RelativePath) -> bool {
        let at = self.entries.partition_point(|entry| entry.path <= *path);
        self.entries
            .get(at)
            .is_some_and(|next| path.is_above(&next.path))
    }

    /// Returns the lengths of all files together, in bytes.
    pub fn total_len(&self) -> u64 {
        self.entries.iter().map(Entry::len).sum()
    }

    /// Returns the length of [`Folder::encode`]'s result in bytes.
    pub fn encoded_len(&self) -> usize {
        let of = |entry: &Entry| {
            let own = match &entry.kind {
                Kind::File { packed: None, .. } => 8 + Guid::LEN,
                Kind::File { .. } => 4 + 4 + 4 + Guid::LEN,
                Kind::Folder => 0,
                Kind::Link { target } => 2 + target.len(),
            };
            ENTRY_OVERHEAD + entry.path.as_bytes().len() + own
        };
        HEADER_LEN
            + PACK_LEN * self.listed_packs().count()
            + self.entries.iter().map(of).sum::<usize>()
    }

    /// Returns the listing (content.md section 3).
    pub fn encode(&self) -> Vec<u8> {
        let mut listing = Vec::with_capacity(self.encoded_len());
        listing.extend_from_slice(&MAGIC);
        listing.push(VERSION);
        listing.extend_from_slice(&(self.listed_packs().count() as u32).to_be_bytes());
        for pack in self.listed_packs() {
            listing.extend_from_slice(pack.content.as_bytes());
            listing.extend_from_slice(&pack.length.to_be_bytes());
        }
        listing.extend_from_slice(&(self.entries.len() as u32).to_be_bytes());
        for entry in &self.entries {
            encode_entry(entry, &mut listing);
        }
        listing
    }
}

fn encode_entry(entry: &Entry, listing: &mut Vec<u8>) {
    listing.push(match entry.kind {
        Kind::File { packed: None, .. } => FILE,
        Kind::File { .. } => PACKED,
        Kind::Folder => FOLDER,
        Kind::Link { .. } => LINK,
    });
    let path = entry.path.as_bytes();
    listing.extend_from_slice(&(path.len() as u16).to_be_bytes());
    listing.extend_from_slice(path);
    listing.extend_from_slice(&entry.mode.to_be_bytes());
    listing.extend_from_slice(&entry.modified.seconds.to_be_bytes());
    listing.extend_from_slice(&entry.modified.nanoseconds.to_be_bytes());
    match &entry.kind {
        Kind::File {
            length,
            content,
            packed,
        } => {
            match packed {
                None => listing.extend_from_slice(&length.to_be_bytes()),
                Some(spot) => {
                    listing.extend_from_slice(&spot.pack.to_be_bytes());
                    listing.extend_from_slice(&spot.offset.to_be_bytes());
                    listing.extend_from_slice(&(*length as u32).to_be_bytes());
                }
            }
            listing.extend_from_slice(content.as_bytes());
        }
        Kind::Folder => {}
        Kind::Link { target } => {
            listing.extend_from_slice(&(target.len() as u16).to_be_bytes());
            listing.extend_from_slice(target);
        }
    }
}
