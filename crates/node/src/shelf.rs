//! The publishing side: files on offer, hashed once, read and proven chunk by chunk.

mod bundled;
mod encrypted;
mod folder;
mod repeated;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use whimbrel_content::{ChunkSize, ChunkTree, ContentKey, FolderError, HashError};
use whimbrel_core::Guid;
use whimbrel_keychain::small_file;
use whimbrel_mobilityfirst::local::{Publish, ReadChunk};
use whimbrel_mobilityfirst::wire::ContentKind;

pub(crate) use repeated::{Blocks, Repeated};
use whimbrel_client::place::{check_own, make_folder_of};
use whimbrel_client::source::{ContentSourceError, FileStamp, prove_chunk, read_stamped};

/// Files below this size are hashed again rather than looked up, in bytes.
const WORTH_CACHING: u64 = 4 << 20;
/// Hashes that the cache keeps; the oldest go first.
const MAX_CACHED: usize = 4096;
/// Longest file name that is suggested to receivers, in bytes.
const MAX_FILE_NAME: usize = 255;

/// The reason why something cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// It does not exist or cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A device, a pipe or a socket.
    #[error("{} is neither a file nor a folder", .0.display())]
    NoFile(PathBuf),
    /// It changed while it was hashed.
    #[error("{} changed while it was read; publish it when no program writes to it", .0.display())]
    Changing(PathBuf),
    /// Too many files.
    #[error("{} cannot be published as a folder: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The fault.
        source: FolderError,
    },
}

/// The reason why a chunk cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The host requests a content that was never published.
    #[error("{0} is not published here")]
    Unknown(Guid),
    /// Its file has changed, or cannot be read.
    #[error(transparent)]
    Source(#[from] ContentSourceError),
}

/// Returns the name of a file's hashes in the cache; with a key, of those of its encrypted bytes.
fn cache_key(stamp: &FileStamp, path: &Path, key: Option<&ContentKey>) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut hasher = blake3::Hasher::new_derive_key("whimbrel 2026 cache of content trees");
    hasher.update(path.as_os_str().as_bytes());
    for number in [stamp.length, stamp.inode.0, stamp.inode.1] {
        hasher.update(&number.to_be_bytes());
    }
    for number in [
        stamp.modified.0,
        stamp.modified.1,
        stamp.changed.0,
        stamp.changed.1,
    ] {
        hasher.update(&number.to_be_bytes());
    }
    key.iter().for_each(|key| {
        hasher.update(key.as_bytes());
    });
    hasher.finalize().to_hex().to_string()
}

enum Source {
    File {
        path: PathBuf,
        stamp: FileStamp,
    },
    Memory(Bytes),
    Repeated(repeated::Turned),
    /// A folder's list, and its contents.
    Bundled(bundled::Bundled),
    /// Another source, encrypted.
    Encrypted(Box<Source>, ContentKey),
    /// Consecutive files: the offset of each one's first byte, its path and its stamp.
    Packed(Vec<(u64, PathBuf, FileStamp)>),
}

struct Item {
    tree: ChunkTree,
    source: Source,
    kind: ContentKind,
    file_name: String,
    /// True if the user has named it, and not only a folder that it is in.
    is_named: bool,
}

impl Item {
    fn publish(&self, content: Guid) -> Publish {
        Publish {
            content,
            content_len: self.tree.content_len(),
            kind: self.kind,
            file_name: self.file_name.clone(),
        }
    }
}

/// Something on the shelf.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Shelved {
    /// Its name, for `get`.
    pub name: Guid,
    /// Its path.
    #[serde(serialize_with = "whimbrel_client::place::serialize_path")]
    pub path: PathBuf,
    /// Its length in bytes; for a folder, that of all its files.
    pub length: u64,
    /// The number of its files; 1 unless it is a folder.
    pub files: usize,
    /// Entries that were left out of a folder.
    pub skipped: Vec<Skipped>,
    /// The key of its bytes, if they are encrypted.
    #[serde(skip)]
    pub key: Option<ContentKey>,
}

/// An entry that was left out of a folder.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Skipped {
    /// Its path.
    #[serde(serialize_with = "whimbrel_client::place::serialize_path")]
    pub path: PathBuf,
    /// The reason.
    pub why: String,
}

/// Everything that one program publishes.
#[derive(Default)]
pub struct Shelf {
    items: BTreeMap<Guid, Item>,
    cache: Option<PathBuf>,
    /// The bytes of packs held in memory.
    held: usize,
    /// The access router is to keep copies.
    delegates: bool,
}

/// Called with a file and the number of its bytes that have been hashed.
pub type HashProgress<'a> = &'a mut dyn FnMut(&Path, u64);

impl Shelf {
    /// Returns an empty shelf that keeps the hashes of large files in the folder `cache`, so that a
    /// restart is quick.
    pub fn new(cache: Option<PathBuf>) -> Shelf {
        let cache = cache.filter(|folder| match check_own(folder) {
            Ok(()) => true,
            Err(foreign) => {
                tracing::warn!(%foreign, "no hashes are kept for the next start");
                false
            }
        });
        if let Some(folder) = &cache {
            prune(folder);
        }
        Shelf {
            items: BTreeMap::new(),
            cache,
            held: 0,
            delegates: false,
        }
    }

    /// Puts a file, or a folder with all files below it, on the shelf.
    pub fn add(&mut self, path: &Path, progress: HashProgress<'_>) -> Result<Shelved, ShelfError> {
        let metadata = fs::metadata(path).map_err(|source| read_error(path, source))?;
        if metadata.is_file() {
            let whole = fs::canonicalize(path).map_err(|source| read_error(path, source))?;
            let file_name = suggested_name(path, &whole);
            let (name, length) = self.add_file(whole, Some(file_name), progress)?;
            return Ok(Shelved {
                name,
                path: path.to_owned(),
                length,
                files: 1,
                skipped: Vec::new(),
                key: None,
            });
        }
        if metadata.is_dir() {
            return self.add_folder(path, progress);
        }
        Err(ShelfError::NoFile(path.to_owned()))
    }

    /// Puts a file on the shelf, under the name that the user has given it, or for a folder.
    fn add_file(
        &mut self,
        path: PathBuf,
        named: Option<String>,
        progress: HashProgress<'_>,
    ) -> Result<(Guid, u64), ShelfError> {
        let (tree, stamp) = self.hash(&path, progress)?;
        let length = tree.content_len();
        let is_named = named.is_some();
        let file_name = named.unwrap_or_else(|| suggested_name(&path, &path));
        let source = Source::File { path, stamp };
        let name = self.put_item(Item {
            tree,
            source,
            kind: ContentKind::File,
            file_name,
            is_named,
        });
        Ok((name, length))
    }

    /// Puts an item on the shelf, where its content may be already: as a file that the user has
    /// named, a file of a folder or a pack of one. The name that the user gave first stays, and so
    /// do bytes in memory, which cannot change.
    fn put_item(&mut self, item: Item) -> Guid {
        let name = item.tree.root();
        match self.items.entry(name) {
            Entry::Vacant(free) => {
                free.insert(item);
            }
            Entry::Occupied(mut there) => {
                let there = there.get_mut();
                if !there.is_named && (item.is_named || !item.file_name.is_empty()) {
                    there.file_name = item.file_name;
                    there.kind = item.kind;
                    there.is_named = item.is_named;
                }
                if !matches!(there.source, Source::Memory(_)) {
                    there.source = item.source;
                    there.tree = item.tree;
                }
            }
        }
        name
    }

    fn hash(
        &self,
        path: &Path,
        progress: HashProgress<'_>,
    ) -> Result<(ChunkTree, FileStamp), ShelfError> {
        let failed = |source| read_error(path, source);
        let file = File::open(path).map_err(failed)?;
        let stamp = FileStamp::of(&file.metadata().map_err(failed)?);
        if let Some(tree) = self.cached(path, &stamp, None) {
            return Ok((tree, stamp));
        }
        // Small groups: chunks of up to 64 KiB are proven with what is read anyway.
        let tree =
            ChunkTree::from_reader(&file, ChunkSize::GROUP, &mut |done| progress(path, done))
                .map_err(|error| match error {
                    HashError::Read(source) => failed(source),
                    HashError::TooLong => failed(io::ErrorKind::FileTooLarge.into()),
                })?;
        let after = FileStamp::of(&file.metadata().map_err(failed)?);
        if after != stamp || tree.content_len() != stamp.length {
            return Err(ShelfError::Changing(path.to_owned()));
        }
        self.cache(path, &stamp, None, &tree);
        Ok((tree, stamp))
    }

    /// Returns where the hashes of a file are kept, if they are.
    fn cache_file(
        &self,
        path: &Path,
        stamp: &FileStamp,
        key: Option<&ContentKey>,
    ) -> Option<PathBuf> {
        let folder = self
            .cache
            .as_ref()
            .filter(|_| stamp.length >= WORTH_CACHING)?;
        Some(
            folder
                .join(cache_key(stamp, path, key))
                .with_extension("tree"),
        )
    }

    /// Returns the hashes of a file, or of its bytes encrypted with a key, from an earlier run.
    fn cached(
        &self,
        path: &Path,
        stamp: &FileStamp,
        key: Option<&ContentKey>,
    ) -> Option<ChunkTree> {
        let file = self.cache_file(path, stamp, key)?;
        let tree = ChunkTree::decode(&fs::read(file).ok()?).ok()?;
        (tree.content_len() == stamp.length).then_some(tree)
    }

    /// Keeps the hashes of a file, or of its bytes encrypted with a key, for the next run.
    fn cache(&self, path: &Path, stamp: &FileStamp, key: Option<&ContentKey>, tree: &ChunkTree) {
        let Some(file) = self.cache_file(path, stamp, key) else {
            return;
        };
        if let Err(error) = keep(&file, tree) {
            tracing::info!(path = %file.display(), %error, "cannot keep hashes for the next start");
        }
    }

    /// Has the access router keep copies of what it forwards of the shelf, and answer for them.
    pub fn delegate(&mut self) {
        self.delegates = true;
    }

    /// Returns true if the access router is to keep copies.
    pub fn is_delegated(&self) -> bool {
        self.delegates
    }

    /// Returns everything on the shelf, as it is published.
    pub fn published(&self) -> impl Iterator<Item = Publish> {
        self.items.iter().map(|(name, item)| item.publish(*name))
    }

    /// Returns a content as it is published or sent.
    pub fn publish(&self, content: &Guid) -> Option<Publish> {
        let item = self.items.get(content)?;
        Some(item.publish(*content))
    }

    /// Gives a content another name to suggest to receivers.
    pub fn rename(&mut self, content: &Guid, file_name: &str) {
        if let Some(item) = self.items.get_mut(content) {
            let end = file_name.floor_char_boundary(MAX_FILE_NAME);
            item.file_name = file_name[..end].to_owned();
            item.is_named = true;
        }
    }

    /// Puts bytes in memory on the shelf, under a name that they are to get. Returns the content's name.
    pub fn add_bytes(&mut self, bytes: Bytes, file_name: &str) -> Guid {
        self.put_item(Item {
            tree: folder::tree_of(&bytes),
            source: Source::Memory(bytes),
            kind: ContentKind::File,
            file_name: file_name.to_owned(),
            is_named: true,
        })
    }

    /// Publishes a content that [`Blocks`] has made.
    pub(crate) fn put_repeated(&mut self, content: Repeated) {
        self.put_item(Item {
            tree: content.tree,
            source: Source::Repeated(content.bytes),
            kind: ContentKind::File,
            file_name: String::new(),
            is_named: false,
        });
    }

    /// Publishes bytes that no honest program would.
    #[cfg(test)]
    pub(crate) fn put(&mut self, bytes: &[u8], kind: ContentKind, file_name: &str) -> Guid {
        let tree = ChunkTree::from_reader(bytes, ChunkSize::GROUP, &mut |_| {}).unwrap();
        self.put_item(Item {
            tree,
            source: Source::Memory(Bytes::copy_from_slice(bytes)),
            kind,
            file_name: file_name.to_owned(),
            is_named: true,
        })
    }

    /// Returns the number of contents; a folder counts with its packs and each of its larger files.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns true if nothing is on the shelf.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Removes a content from the shelf.
    pub fn remove(&mut self, content: &Guid) {
        self.items.remove(content);
    }

    /// Returns a chunk with its proof.
    pub fn read(
        &self,
        content: Guid,
        index: u32,
        chunk_size: ChunkSize,
    ) -> Result<ReadChunk, ReadError> {
        let item = self
            .items
            .get(&content)
            .ok_or(ReadError::Unknown(content))?;
        prove_chunk(&item.tree, index, chunk_size, |range| {
            self.bytes_of(&item.source, range)
        })
    }

    /// Returns bytes of a source.
    fn bytes_of(&self, source: &Source, range: Range<u64>) -> Result<Bytes, ReadError> {
        Ok(match source {
            Source::Memory(bytes) => bytes.slice(range.start as usize..range.end as usize),
            Source::Repeated(bytes) => bytes.slice(range.start, (range.end - range.start) as usize),
            Source::File { path, stamp } => {
                let mut data = Vec::new();
                read_stamped(path, stamp, range, &mut data)?;
                data.into()
            }
            Source::Packed(files) => read_packed(files, range.start, range.end)?.into(),
            Source::Bundled(bundled) => self.read_bundled(bundled, range)?.into(),
            Source::Encrypted(plain, key) => {
                let at = range.start;
                let mut data = Vec::from(self.bytes_of(plain, range)?);
                key.apply(at, &mut data);
                data.into()
            }
        })
    }
}

/// Reads the bytes from `start` to `end` of consecutive files.
fn read_packed(
    files: &[(u64, PathBuf, FileStamp)],
    start: u64,
    end: u64,
) -> Result<Vec<u8>, ReadError> {
    let mut data = Vec::with_capacity((end - start) as usize);
    let first = files.partition_point(|(at, _, stamp)| at + stamp.length <= start);
    for (at, path, stamp) in files[first..].iter().take_while(|(at, ..)| *at < end) {
        let (from, to) = (start.max(*at), end.min(at + stamp.length));
        data.resize((from - start) as usize, 0);
        read_stamped(path, stamp, from - at..to - at, &mut data)?;
    }
    data.resize((end - start) as usize, 0);
    Ok(data)
}

fn read_error(path: &Path, source: io::Error) -> ShelfError {
    ShelfError::Read {
        path: path.to_owned(),
        source,
    }
}

/// Returns the name that is suggested to receivers: the one by which the user has named `path`, or
/// else, as for `.`, that of the `whole` path. What is not UTF-8 becomes U+FFFD; empty for `/`.
fn suggested_name(path: &Path, whole: &Path) -> String {
    let name = path.file_name().or_else(|| whole.file_name());
    let name = name.unwrap_or_default().to_string_lossy();
    let end = name.floor_char_boundary(MAX_FILE_NAME);
    name[..end].to_owned()
}

/// Writes the hashes of a file to the cache.
fn keep(file: &Path, tree: &ChunkTree) -> io::Result<()> {
    make_folder_of(file).map_err(io::Error::other)?;
    small_file::write(file, &tree.encode())
}

/// Removes the oldest hashes beyond [`MAX_CACHED`]. A cache that cannot be pruned is still used.
fn prune(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let age = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
    let trees = |path: &Path| {
        path.extension()
            .is_some_and(|extension| extension == "tree")
    };
    let mut files: Vec<_> = entries
        .flatten()
        .filter_map(age)
        .filter(|(_, path)| trees(path))
        .collect();
    files.sort();
    let excess = files.len().saturating_sub(MAX_CACHED);
    for (_, path) in files.into_iter().take(excess) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests;
