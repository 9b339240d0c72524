//! Contents on the shelf that are sent encrypted: those who have the key alone can read them.

use std::io::{self, Read};
use std::path::Path;

use whimbrel_content::encryption::encode_list;
use whimbrel_content::folder::MAX_LISTING_LEN;
use whimbrel_content::{ChunkSize, ChunkTree, ContentKey, Folder, FolderError, HashError};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::wire::ContentKind;

use super::{HashProgress, Item, Shelf, ShelfError, Shelved, Source, read_error};
use crate::bundle::contents_of;

/// Bytes that are read at once while a source is hashed.
const READ: u64 = 1 << 20;

impl Shelf {
    /// Puts an encrypted copy in the place of what was just put on the shelf, with its key. The same bytes and the same
    /// secret give the same name and the same key.
    pub fn encrypt(
        &mut self,
        shelved: &mut Shelved,
        secret: &[u8; 32],
        progress: HashProgress<'_>,
    ) -> Result<(), ShelfError> {
        let path = shelved.path.clone();
        let Some(item) = self.items.remove(&shelved.name) else {
            return Err(not_there(&path));
        };
        let (kind, file_name) = (item.kind, item.file_name.clone());
        let (key, source, length) = match (kind, &item.source) {
            (ContentKind::Folder, Source::Memory(list)) => {
                let key = ContentKey::of_folder(secret, &shelved.name, &file_name);
                let bytes = self.encrypt_members(list, &key, &path, progress)?;
                let length = bytes.len() as u64;
                (key, Source::Memory(bytes.into()), length)
            }
            _ => {
                let key = ContentKey::of_file(secret, &shelved.name, &file_name);
                (key, item.source, item.tree.content_len())
            }
        };
        let name = self.put_encrypted(source, length, key.clone(), &path, progress)?;
        if let Some(item) = self.items.get_mut(&name) {
            item.kind = kind;
            item.file_name = key.hide_name(&file_name);
            item.is_named = true;
        }
        (shelved.name, shelved.key) = (name, Some(key));
        Ok(())
    }

    /// Puts encrypted copies in the place of the contents of a folder. Returns its list with their names.
    fn encrypt_members(
        &mut self,
        list: &[u8],
        key: &ContentKey,
        path: &Path,
        progress: HashProgress<'_>,
    ) -> Result<Vec<u8>, ShelfError> {
        let refused = |source| ShelfError::Folder {
            path: path.to_owned(),
            source,
        };
        let listing = Folder::decode(list).map_err(refused)?;
        let mut names = Vec::new();
        for (content, _) in contents_of(&listing.folder) {
            let item = self.items.remove(&content);
            let Item { source, tree, .. } = item.ok_or_else(|| not_there(path))?;
            let length = tree.content_len();
            names.push(self.put_encrypted(
                source,
                length,
                key.of_member(&content),
                path,
                progress,
            )?);
        }
        let bytes = encode_list(list, &names);
        match bytes.len() > MAX_LISTING_LEN {
            true => Err(refused(FolderError::TooLarge)),
            false => Ok(bytes),
        }
    }

    /// Puts an encrypted content on the shelf. Returns its name.
    fn put_encrypted(
        &mut self,
        plain: Source,
        length: u64,
        key: ContentKey,
        path: &Path,
        progress: HashProgress<'_>,
    ) -> Result<Guid, ShelfError> {
        let file = match &plain {
            Source::File { path, stamp } => Some((path.clone(), *stamp)),
            _ => None,
        };
        let cached = file
            .as_ref()
            .and_then(|(path, stamp)| self.cached(path, stamp, Some(&key)));
        let source = Source::Encrypted(Box::new(plain), key.clone());
        let tree = match (cached, file) {
            (Some(tree), _) => tree,
            (None, None) => self.hash_source(&source, length, path, progress)?,
            (None, Some((path, stamp))) => {
                let tree = self.hash_source(&source, length, &path, progress)?;
                self.cache(&path, &stamp, Some(&key), &tree);
                tree
            }
        };
        Ok(self.put_item(Item {
            tree,
            source,
            kind: ContentKind::File,
            file_name: String::new(),
            is_named: false,
        }))
    }

    /// Hashes `length` bytes of a source.
    pub(super) fn hash_source(
        &self,
        source: &Source,
        length: u64,
        path: &Path,
        progress: HashProgress<'_>,
    ) -> Result<ChunkTree, ShelfError> {
        let reader = SourceReader {
            shelf: self,
            source,
            length,
            at: 0,
        };
        let mut told = |done| progress(path, done);
        let tree = ChunkTree::from_reader(reader, ChunkSize::GROUP, &mut told);
        tree.map_err(|error| match error {
            HashError::Read(source) => read_error(path, source),
            HashError::TooLong => read_error(path, io::ErrorKind::FileTooLarge.into()),
        })
    }
}

fn not_there(path: &Path) -> ShelfError {
    read_error(path, io::ErrorKind::NotFound.into())
}

/// Reads a source from its beginning.
struct SourceReader<'a> {
    shelf: &'a Shelf,
    source: &'a Source,
    length: u64,
    at: u64,
}

impl Read for SourceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = READ.min(buffer.len() as u64);
        let until = self.length.min(self.at + most);
        let data = self.shelf.bytes_of(self.source, self.at..until);
        let data = data.map_err(io::Error::other)?;
        buffer[..data.len()].copy_from_slice(&data);
        self.at += data.len() as u64;
        Ok(data.len())
    }
}
