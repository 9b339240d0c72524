//! Reading a listing as anybody may have published it.

use super::*;

impl Folder {
    /// Decodes a listing. Entries that could do harm are refused one by one; if none is, only the
    /// one encoding that [`Folder::encode`] produces decodes. Memory is proportional to `listing`.
    pub fn decode(listing: &[u8]) -> Result<Listing, FolderError> {
        if listing.len() > MAX_LISTING_LEN {
            return Err(FolderError::TooLarge);
        }
        let mut rest = listing
            .strip_prefix(&MAGIC)
            .ok_or(FolderError::NotAFolder)?;
        let [version] = take(&mut rest)?;
        if version != VERSION {
            return Err(FolderError::UnknownVersion(version));
        }
        let mut packs = take_packs(&mut rest)?;
        let mut refused = Vec::new();
        let top = take_top(&mut packs).and_then(|top| match top.check() {
            Ok(()) => Some(top),
            Err(why) => {
                let path = Box::from(*b".");
                refused.push(Refused { path, why });
                None
            }
        });
        let count = take_count(&mut rest)?;
        // Reserves no memory for a mere count: the entries must be present.
        let mut entries: Vec<Entry> = Vec::with_capacity(count.min(rest.len() / ENTRY_OVERHEAD));
        for _ in 0..count {
            let (path, entry) = take_entry(&mut rest)?;
            let checked = entry.and_then(|entry| {
                entry.check(entries.last(), &packs)?;
                Ok(entry)
            });
            match checked {
                Ok(entry) => entries.push(entry),
                Err(why) => refused.push(Refused {
                    path: path.into(),
                    why,
                }),
            }
        }
        if !rest.is_empty() {
            return Err(FolderError::TrailingBytes(rest.len()));
        }
        let folder = Folder {
            packs,
            entries,
            top,
        };
        folder.check()?;
        Ok(Listing { folder, refused })
    }
}

fn take_packs(rest: &mut &[u8]) -> Result<Vec<Pack>, FolderError> {
    let count = take_count(rest)?;
    let mut packs = Vec::with_capacity(count.min(rest.len() / PACK_LEN));
    for _ in 0..count {
        let content = Guid(take(rest)?);
        let length = u32::from_be_bytes(take(rest)?);
        packs.push(Pack { content, length });
    }
    Ok(packs)
}

/// Removes the record of the folder itself from the end of the packs, if it is there.
fn take_top(packs: &mut Vec<Pack>) -> Option<Top> {
    let last = packs.last().filter(|last| last.length == 0)?;
    let mut rest = last.content.as_bytes().strip_prefix(&TOP_MAGIC)?;
    let rest = &mut rest;
    let top = Top {
        mode: u16::from_be_bytes(take(rest).ok()?),
        modified: Modified {
            seconds: i64::from_be_bytes(take(rest).ok()?),
            nanoseconds: u32::from_be_bytes(take(rest).ok()?),
        },
    };
    if rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    packs.pop();
    Some(top)
}

fn take_count(rest: &mut &[u8]) -> Result<usize, FolderError> {
    let count = u32::from_be_bytes(take(rest)?) as usize;
    if count > MAX_ENTRIES {
        Err(FolderError::TooLarge)
    } else {
        Ok(count)
    }
}

/// Returns an entry's path, and the entry if its path is one that a file may have.
fn take_entry<'a>(
    rest: &mut &'a [u8],
) -> Result<(&'a [u8], Result<Entry, EntryError>), FolderError> {
    let [kind] = take(rest)?;
    let path = take_bytes(rest)?;
    let mode = u16::from_be_bytes(take(rest)?);
    let modified = Modified {
        seconds: i64::from_be_bytes(take(rest)?),
        nanoseconds: u32::from_be_bytes(take(rest)?),
    };
    let kind = match kind {
        FILE => Kind::File {
            length: u64::from_be_bytes(take(rest)?),
            content: Guid(take(rest)?),
            packed: None,
        },
        PACKED => {
            let spot = Spot {
                pack: u32::from_be_bytes(take(rest)?),
                offset: u32::from_be_bytes(take(rest)?),
            };
            Kind::File {
                length: u32::from_be_bytes(take(rest)?).into(),
                content: Guid(take(rest)?),
                packed: Some(spot),
            }
        }
        FOLDER => Kind::Folder,
        LINK => Kind::Link {
            target: take_bytes(rest)?.into(),
        },
        unknown => return Err(FolderError::UnknownKind(unknown)),
    };
    let entry = RelativePath::new(path).map(|path| Entry {
        path,
        mode,
        modified,
        kind,
    });
    Ok((path, entry.map_err(EntryError::from)))
}

/// Returns the bytes after their length.
fn take_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], FolderError> {
    let length = usize::from(u16::from_be_bytes(take(rest)?));
    rest.split_off(..length).ok_or(FolderError::Truncated)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], FolderError> {
    let (array, after) = rest.split_first_chunk().ok_or(FolderError::Truncated)?;
    *rest = after;
    Ok(*array)
}
