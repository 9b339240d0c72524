//! Publishing a folder: its entries, and small files gathered in packs.

use std::collections::BTreeMap;
use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::OFlags;
use whimbrel_content::folder::{MAX_ENTRIES, MAX_PACKED_LEN, MODE_BITS, check_target, ends_pack};
use whimbrel_content::{
    ChunkSize, ChunkTree, Entry, Folder, FolderError, Kind, Modified, Pack, RelativePath, Spot, Top,
};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::wire::ContentKind;

use super::{
    FileStamp, HashProgress, Item, Shelf, ShelfError, Shelved, Skipped, Source, read_error,
    suggested_name,
};

/// Bound of the depth of folders.
const MAX_DEPTH: usize = 128;
/// Bytes of packs that are held in memory: their files are served as they were published, whatever
/// happens to them later. Further packs are read from the files.
const MAX_HELD: usize = 64 << 20;

/// The entries met in a walk through a folder.
#[derive(Default)]
struct Walk {
    found: Vec<(RelativePath, PathBuf, Metadata)>,
    skipped: Vec<Skipped>,
}

impl Walk {
    fn skip(&mut self, path: &Path, why: impl ToString) {
        self.skipped.push(Skipped {
            path: path.to_owned(),
            why: why.to_string(),
        });
    }

    /// Visits the entries of `folder`, which lies at `below` in the published folder. An entry that
    /// cannot be published is left out alone.
    fn visit(&mut self, folder: &Path, below: &[u8], depth: usize) -> io::Result<()> {
        for item in fs::read_dir(folder)? {
            let item = item?;
            let path = item.path();
            let mut relative = below.to_vec();
            if !below.is_empty() {
                relative.push(b'/');
            }
            relative.extend_from_slice(item.file_name().as_bytes());
            let relative = match RelativePath::new(relative) {
                Ok(relative) => relative,
                Err(error) => {
                    self.skip(&path, error);
                    continue;
                }
            };
            let metadata = match item.metadata() {
                Ok(metadata) => metadata,
                Err(error) => {
                    self.skip(&path, error);
                    continue;
                }
            };
            if metadata.is_dir() {
                if depth == MAX_DEPTH {
                    self.skip(&path, format!("it lies {MAX_DEPTH} folders deep"));
                    continue;
                }
                if let Err(error) = self.visit(&path, relative.as_bytes(), depth + 1) {
                    self.skip(&path, error);
                    continue;
                }
            }
            self.found.push((relative, path, metadata));
        }
        Ok(())
    }
}

/// Small files on their way into packs.
#[derive(Default)]
struct Packing {
    packs: Vec<Pack>,
    /// Bytes of the pack that is being filled.
    bytes: Vec<u8>,
    files: Vec<(u64, PathBuf, FileStamp)>,
    /// The place of each content's bytes, which are sent once.
    spots: BTreeMap<Guid, Spot>,
}

impl Shelf {
    pub(super) fn add_folder(
        &mut self,
        path: &Path,
        progress: HashProgress<'_>,
    ) -> Result<Shelved, ShelfError> {
        let failed = |source| read_error(path, source);
        let whole = fs::canonicalize(path).map_err(failed)?;
        let own = fs::metadata(&whole).map_err(failed)?;
        let mut walk = Walk::default();
        walk.visit(&whole, b"", 0).map_err(failed)?;
        let refused = |source| ShelfError::Folder {
            path: path.to_owned(),
            source,
        };
        let mut found = core::mem::take(&mut walk.found);
        if found.len() > MAX_ENTRIES {
            return Err(refused(FolderError::TooLarge));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let mut packing = Packing::default();
        let mut entries = Vec::with_capacity(found.len());
        for (relative, file, metadata) in found {
            match self.kind_of(&relative, &file, &metadata, &mut packing, progress) {
                Ok(kind) => entries.push(Entry {
                    path: relative,
                    mode: mode_of(&metadata),
                    modified: modified_of(&metadata),
                    kind,
                }),
                Err(why) => walk.skip(&file, why),
            }
        }
        self.end_pack(&mut packing);
        let top = Top {
            mode: mode_of(&own),
            modified: modified_of(&own),
        };
        let folder = Folder::new(packing.packs, entries)
            .and_then(|folder| folder.with_top(top))
            .map_err(refused)?;
        let (files, length) = (folder.files(), folder.total_len());
        let listing = Bytes::from(folder.encode());
        let tree = tree_of(&listing);
        let name = self.put_item(Item {
            tree,
            source: Source::Memory(listing),
            kind: ContentKind::Folder,
            file_name: suggested_name(path, &whole),
            is_named: true,
        });
        Ok(Shelved {
            name,
            path: path.to_owned(),
            length,
            files,
            skipped: walk.skipped,
            key: None,
        })
    }

    /// Returns the kind of an entry once its bytes are on the shelf, or the reason why it is left
    /// out.
    fn kind_of(
        &mut self,
        relative: &RelativePath,
        path: &Path,
        metadata: &Metadata,
        packing: &mut Packing,
        progress: HashProgress<'_>,
    ) -> Result<Kind, String> {
        if metadata.is_dir() {
            return Ok(Kind::Folder);
        }
        if metadata.is_symlink() {
            let target = fs::read_link(path).map_err(|error| error.to_string())?;
            let target = target.as_os_str().as_bytes();
            check_target(relative, target).map_err(|error| error.to_string())?;
            return Ok(Kind::Link {
                target: target.into(),
            });
        }
        if !metadata.is_file() {
            return Err(format!("it is {}", special(metadata.file_type())));
        }
        if metadata.len() <= MAX_PACKED_LEN {
            let read = read_small(path).map_err(|error| error.to_string())?;
            if let Some((stamp, bytes)) = read {
                progress(path, bytes.len() as u64);
                return Ok(self.pack(path, stamp, &bytes, packing));
            }
            return Err("it changed while it was read".to_owned());
        }
        let (content, length) = self
            .add_file(path.to_owned(), None, progress)
            .map_err(|error| error.to_string())?;
        Ok(Kind::File {
            length,
            content,
            packed: None,
        })
    }

    fn pack(&mut self, path: &Path, stamp: FileStamp, bytes: &[u8], packing: &mut Packing) -> Kind {
        let content = Guid(*blake3::hash(bytes).as_bytes());
        let length = bytes.len() as u64;
        let file = |packed| Kind::File {
            length,
            content,
            packed,
        };
        // An empty file needs no bytes.
        if bytes.is_empty() {
            return file(None);
        }
        if let Some(spot) = packing.spots.get(&content) {
            return file(Some(*spot));
        }
        if ends_pack(packing.bytes.len() as u64, &content, length) {
            self.end_pack(packing);
        }
        let spot = Spot {
            pack: packing.packs.len() as u32,
            offset: packing.bytes.len() as u32,
        };
        packing.spots.insert(content, spot);
        let at = packing.bytes.len() as u64;
        packing.files.push((at, path.to_owned(), stamp));
        packing.bytes.extend_from_slice(bytes);
        file(Some(spot))
    }

    /// Puts the pack that was being filled on the shelf.
    fn end_pack(&mut self, packing: &mut Packing) {
        if packing.bytes.is_empty() {
            return;
        }
        let bytes = core::mem::take(&mut packing.bytes);
        let files = core::mem::take(&mut packing.files);
        let tree = tree_of(&bytes);
        let length = bytes.len();
        let source = if self.held + length <= MAX_HELD {
            self.held += length;
            Source::Memory(bytes.into())
        } else {
            Source::Packed(files)
        };
        let content = self.put_item(Item {
            tree,
            source,
            kind: ContentKind::File,
            file_name: String::new(),
            is_named: false,
        });
        packing.packs.push(Pack {
            content,
            length: length as u32,
        });
    }
}

fn mode_of(metadata: &Metadata) -> u16 {
    metadata.mode() as u16 & MODE_BITS
}

fn modified_of(metadata: &Metadata) -> Modified {
    Modified {
        seconds: metadata.mtime(),
        nanoseconds: metadata.mtime_nsec() as u32,
    }
}

pub(super) fn tree_of(bytes: &[u8]) -> ChunkTree {
    ChunkTree::from_reader(bytes, ChunkSize::GROUP, &mut |_| {}).expect("memory can be read")
}

/// Reads a small file. Returns `None` if it changes meanwhile.
fn read_small(path: &Path) -> io::Result<Option<(FileStamp, Vec<u8>)>> {
    // It was neither a link nor a FIFO a moment ago.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file: File = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    let found = file.metadata()?;
    let stamp = FileStamp::of(&found);
    if !found.is_file() || stamp.length > MAX_PACKED_LEN {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(stamp.length as usize + 1);
    Read::by_ref(&mut file)
        .take(MAX_PACKED_LEN + 1)
        .read_to_end(&mut bytes)?;
    let same = FileStamp::of(&file.metadata()?) == stamp && bytes.len() as u64 == stamp.length;
    Ok(same.then_some((stamp, bytes)))
}

fn special(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}
