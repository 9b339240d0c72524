//! Folders as one content each.

use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use whimbrel_content::{ChunkSize, ChunkTree, Folder, HashError};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::wire::ContentKind;

use super::{HashProgress, Item, ReadError, Shelf, ShelfError, Source, read_error};
use crate::bundle::{BundlePart, LIST_AT, parts_of};

/// Bytes that are read at once while a bundle is hashed.
const READ: u64 = 1 << 20;

/// The source of a bundle's bytes: the length of the list and the list, then contents of the shelf.
#[derive(Clone)]
pub(super) struct Bundled {
    head: Bytes,
    parts: Vec<BundlePart>,
    length: u64,
}

impl Shelf {
    /// Puts a folder that is on the shelf there once more, as one content. Returns that one's name.
    pub fn bundle(
        &mut self,
        folder: &Guid,
        path: &Path,
        progress: HashProgress<'_>,
    ) -> Result<Guid, ShelfError> {
        let failed = |source| read_error(path, source);
        let item = self.items.get(folder);
        let (Some(item), Some(Source::Memory(listing))) = (item, item.map(|item| &item.source))
        else {
            return Err(failed(io::ErrorKind::NotFound.into()));
        };
        let file_name = item.file_name.clone();
        let decoded = Folder::decode(listing).map_err(|source| ShelfError::Folder {
            path: path.to_owned(),
            source,
        })?;
        let parts = parts_of(&decoded.folder, listing.len() as u64);
        let (parts, length) = parts.ok_or_else(|| failed(io::ErrorKind::FileTooLarge.into()))?;
        let mut head = (listing.len() as u64).to_be_bytes().to_vec();
        debug_assert_eq!(head.len() as u64, LIST_AT);
        head.extend_from_slice(listing);
        let bundled = Bundled {
            head: head.into(),
            parts,
            length,
        };
        let reader = BundleReader {
            shelf: self,
            bundled: &bundled,
            at: 0,
        };
        let mut told = |done| progress(path, done);
        let tree = ChunkTree::from_reader(reader, ChunkSize::GROUP, &mut told);
        let tree = tree.map_err(|error| match error {
            HashError::Read(source) => failed(source),
            HashError::TooLong => failed(io::ErrorKind::FileTooLarge.into()),
        })?;
        Ok(self.put_item(Item {
            tree,
            source: Source::Bundled(bundled),
            kind: ContentKind::File,
            file_name,
            is_named: true,
        }))
    }

    /// Returns bytes of a bundle.
    pub(super) fn read_bundled(
        &self,
        bundled: &Bundled,
        range: Range<u64>,
    ) -> Result<Vec<u8>, ReadError> {
        let mut data = Vec::with_capacity((range.end - range.start) as usize);
        let head = bundled.head.len() as u64;
        if range.start < head {
            let until = range.end.min(head) as usize;
            data.extend_from_slice(&bundled.head[range.start as usize..until]);
        }
        let first =
            (bundled.parts).partition_point(|part| part.offset + part.length <= range.start);
        let parts = bundled.parts[first..].iter();
        for part in parts.take_while(|part| part.offset < range.end) {
            let from = range.start.max(part.offset) - part.offset;
            let to = range.end.min(part.offset + part.length) - part.offset;
            let item = self.items.get(&part.content);
            let item = item.ok_or(ReadError::Unknown(part.content))?;
            data.extend_from_slice(&self.bytes_of(&item.source, from..to)?);
        }
        Ok(data)
    }
}

/// Reads a bundle from its beginning.
struct BundleReader<'a> {
    shelf: &'a Shelf,
    bundled: &'a Bundled,
    at: u64,
}

impl Read for BundleReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = READ.min(buffer.len() as u64);
        let until = self.bundled.length.min(self.at + most);
        let data = self.shelf.read_bundled(self.bundled, self.at..until);
        let data = data.map_err(io::Error::other)?;
        buffer[..data.len()].copy_from_slice(&data);
        self.at += data.len() as u64;
        Ok(data.len())
    }
}
