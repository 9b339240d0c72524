//! Contents that a program publishes or sends: bytes in memory, or a file that is read when a chunk is due.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::io::Errno;
use whimbrel_content::{ChunkSize, ChunkTree, HashError};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{Publish, ReadChunk};
use whimbrel_mobilityfirst::wire::ContentKind;

/// Longest file name that is suggested to receivers, in bytes.
pub const MAX_SUGGESTED_NAME: usize = 255;

/// Why a content, or a part of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ContentSourceError {
    /// The file is not the one that was hashed.
    #[error("{} has changed since it was published and is no longer served", .0.display())]
    Changed(PathBuf),
    /// It changed while it was hashed.
    #[error("{} changed while it was read; publish it when no program writes to it", .0.display())]
    Changing(PathBuf),
    /// A device, a pipe, a socket or a folder.
    #[error("{} is not a file: publish a file, or its bytes", .0.display())]
    NoFile(PathBuf),
    /// The file was hashed, and the system can no longer read it.
    #[error("{} can no longer be read and is no longer served: {source}", path.display())]
    NotThere {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system cannot read it.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The content has no such chunk.
    #[error("chunk {index} of {content} does not exist")]
    NoSuchChunk {
        /// The content.
        content: Guid,
        /// The chunk.
        index: u32,
    },
}

/// The metadata of a file when it was hashed. While they are unchanged, its bytes are assumed to
/// be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStamp {
    /// Its length in bytes.
    pub length: u64,
    /// Time of the last change of its bytes: seconds and nanoseconds.
    pub modified: (i64, i64),
    /// Time of the last change of its metadata: seconds and nanoseconds.
    pub changed: (i64, i64),
    /// Device and number.
    pub inode: (u64, u64),
}

impl FileStamp {
    /// Returns the stamp of a file with these metadata.
    pub fn of(metadata: &Metadata) -> FileStamp {
        FileStamp {
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            inode: (metadata.dev(), metadata.ino()),
        }
    }
}

/// Appends the bytes `range` of a file to `data`, if the file is the one that was hashed.
pub fn read_stamped(
    path: &Path,
    stamp: &FileStamp,
    range: Range<u64>,
    data: &mut Vec<u8>,
) -> Result<(), ContentSourceError> {
    let failed = |source| ContentSourceError::NotThere {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let same = |file: &File| {
        file.metadata()
            .map(|metadata| FileStamp::of(&metadata) == *stamp)
            .map_err(failed)
    };
    if !same(&file)? {
        return Err(ContentSourceError::Changed(path.to_owned()));
    }
    append_exactly(&file, range, data).map_err(failed)?;
    // Another program may have written to it in the meantime.
    if same(&file)? {
        Ok(())
    } else {
        Err(ContentSourceError::Changed(path.to_owned()))
    }
}

/// Appends the bytes `range` of a file to `data`, whose memory is not cleared before.
fn append_exactly(file: &File, range: Range<u64>, data: &mut Vec<u8>) -> io::Result<()> {
    let end = data.len() + (range.end - range.start) as usize;
    data.reserve_exact(end - data.len());
    let mut at = range.start;
    while data.len() < end {
        match rustix::io::pread(file, rustix::buffer::spare_capacity(data), at) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => at += count as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // All spare memory is offered to the kernel.
    data.truncate(end);
    Ok(())
}

/// Reads a chunk of a content and proves it. `read` returns the bytes of a range of the content.
pub fn prove_chunk<E: From<ContentSourceError>>(
    tree: &ChunkTree,
    index: u32,
    chunk_size: ChunkSize,
    read: impl FnOnce(Range<u64>) -> Result<Bytes, E>,
) -> Result<ReadChunk, E> {
    let (content, length) = (tree.root(), tree.content_len());
    let no_such_chunk = || ContentSourceError::NoSuchChunk { content, index };
    let range = chunk_size
        .range(index.into(), length)
        .ok_or_else(no_such_chunk)?;
    // A chunk smaller than a group is proven with the group's bytes.
    let group = tree.group().max(chunk_size);
    let within = group
        .range(group.index_of(range.start), length)
        .ok_or_else(no_such_chunk)?;
    let data = read(within.clone())?;
    let proof = tree
        .proof_within(index.into(), chunk_size, &data)
        .map_err(|_| no_such_chunk())?;
    let mut encoded = Vec::with_capacity(proof.encoded_len());
    proof.encode(&mut encoded);
    let from = (range.start - within.start) as usize;
    let data = data.slice(from..from + (range.end - range.start) as usize);
    Ok(ReadChunk {
        proof: encoded.into(),
        data,
    })
}

/// A content, hashed, with the place of its bytes.
#[derive(Debug)]
pub struct ContentSource {
    tree: ChunkTree,
    place: SourcePlace,
    file_name: String,
}

#[derive(Debug)]
enum SourcePlace {
    Memory(Bytes),
    File { path: PathBuf, stamp: FileStamp },
}

impl ContentSource {
    /// Hashes bytes. `file_name` is suggested to receivers and may be empty.
    pub fn of_bytes(bytes: Bytes, file_name: &str) -> ContentSource {
        let hashed = ChunkTree::from_reader(&bytes[..], ChunkSize::GROUP, &mut |_| {});
        ContentSource {
            // Memory can always be read, and is never as long as a content may be.
            tree: hashed.unwrap_or_else(|_| unreachable!("memory is read without failure")),
            place: SourcePlace::Memory(bytes),
            file_name: suggested(file_name),
        }
    }

    /// Hashes a file, which must not change while it is published. Its own name is suggested to receivers.
    pub fn of_file(path: &Path) -> Result<ContentSource, ContentSourceError> {
        let failed = |source| ContentSourceError::Read {
            path: path.to_owned(),
            source,
        };
        // A pipe would block its opener.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(ContentSourceError::NoFile(path.to_owned()));
        }
        let path = std::path::absolute(path).map_err(failed)?;
        let file = File::open(&path).map_err(failed)?;
        let stamp = FileStamp::of(&file.metadata().map_err(failed)?);
        let tree =
            ChunkTree::from_reader(&file, ChunkSize::GROUP, &mut |_| {}).map_err(|error| {
                match error {
                    HashError::Read(source) => failed(source),
                    HashError::TooLong => failed(ErrorKind::FileTooLarge.into()),
                }
            })?;
        let after = FileStamp::of(&file.metadata().map_err(failed)?);
        if after != stamp || tree.content_len() != stamp.length {
            return Err(ContentSourceError::Changing(path));
        }
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(ContentSource {
            tree,
            file_name: suggested(&file_name),
            place: SourcePlace::File { path, stamp },
        })
    }

    /// Returns the same content, with another name to suggest to receivers.
    pub fn named(self, file_name: &str) -> ContentSource {
        ContentSource {
            file_name: suggested(file_name),
            ..self
        }
    }

    /// Returns the content's name.
    pub fn content(&self) -> Guid {
        self.tree.root()
    }

    /// Returns its description for a host.
    pub fn publish(&self) -> Publish {
        Publish {
            content: self.tree.root(),
            content_len: self.tree.content_len(),
            kind: ContentKind::File,
            file_name: self.file_name.clone(),
        }
    }

    /// Returns a chunk with its proof.
    pub fn read(&self, index: u32, chunk_size: ChunkSize) -> Result<ReadChunk, ContentSourceError> {
        prove_chunk(&self.tree, index, chunk_size, |range| match &self.place {
            SourcePlace::Memory(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            SourcePlace::File { path, stamp } => {
                let mut data = Vec::new();
                read_stamped(path, stamp, range, &mut data)?;
                Ok(data.into())
            }
        })
    }
}

fn suggested(file_name: &str) -> String {
    let end = file_name.floor_char_boundary(MAX_SUGGESTED_NAME);
    file_name[..end].to_owned()
}
