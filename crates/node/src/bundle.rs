//! A folder as one content: its list, and then the contents of its files, each once. It can be sent to a
//! receiver that asks for nothing (`docs/protocols/content.md`).

use std::collections::BTreeSet;

use whimbrel_content::{Folder, Kind};
use whimbrel_core::Guid;

/// Bytes before the list: its length, big-endian.
pub(crate) const LIST_AT: u64 = 8;

/// A content in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BundlePart {
    pub(crate) content: Guid,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Returns the contents of a folder's files with their lengths, each once: first the packs, then the others in the order
/// of the list.
pub(crate) fn contents_of(folder: &Folder) -> Vec<(Guid, u64)> {
    let packs = folder.packs().iter();
    let packs = packs.map(|pack| (pack.content, u64::from(pack.length)));
    let files = folder
        .entries()
        .iter()
        .filter_map(|entry| match entry.kind {
            Kind::File {
                length,
                content,
                packed: None,
            } if length > 0 => Some((content, length)),
            _ => None,
        });
    let mut known = BTreeSet::new();
    let all = packs.chain(files);
    all.filter(|(content, _)| known.insert(*content)).collect()
}

/// Returns where the contents of a folder's files are in its bundle, and the bundle's length. `None` if it would be too
/// long.
pub(crate) fn parts_of(folder: &Folder, listing_len: u64) -> Option<(Vec<BundlePart>, u64)> {
    let mut parts = Vec::new();
    let mut offset = LIST_AT.checked_add(listing_len)?;
    for (content, length) in contents_of(folder) {
        parts.push(BundlePart {
            content,
            offset,
            length,
        });
        offset = offset.checked_add(length)?;
    }
    Some((parts, offset))
}
