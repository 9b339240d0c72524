//! Folders as one content each.

use std::io;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use whimbrel_content::Folder;
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::wire::ContentKind;

use super::{HashProgress, Item, ReadError, Shelf, ShelfError, Source, read_error};
use crate::bundle::{BundlePart, LIST_AT, parts_of};

/// The source of a bundle's bytes: the length of the list and the list, then contents of the shelf.
#[derive(Clone)]
pub(super) struct Bundled {
    head: Bytes,
    parts: Vec<BundlePart>,
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
        let source = Source::Bundled(Bundled {
            head: head.into(),
            parts,
        });
        let tree = self.hash_source(&source, length, path, progress)?;
        Ok(self.put_item(Item {
            tree,
            source,
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
