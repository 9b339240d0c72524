//! How much room a folder takes.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::Guid;

use super::{Folder, Kind};

/// Room that file systems usually give out at a time, in bytes. A folder, a link and an empty file
/// count as much.
const BLOCK: u64 = 4096;

/// How much room a folder takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FolderSize {
    /// Files, folders and links, with the folder itself and those that are on the way to others.
    pub entries: u64,
    /// Bytes on disk, each entry in blocks of its own.
    pub on_disk: u64,
    /// Bytes of all contents that hold its files, each of them once.
    pub fetched: u64,
}

impl Folder {
    /// Returns how much room it takes once it is fetched. O(n log n).
    pub fn size(&self) -> FolderSize {
        let (mut folders, mut on_disk) = (1, 0u64);
        let mut packs: BTreeSet<u32> = BTreeSet::new();
        let mut files: BTreeMap<Guid, u64> = BTreeMap::new();
        let mut before: Vec<&[u8]> = Vec::new();
        for entry in &self.entries {
            let path: Vec<&[u8]> = entry.path.components().collect();
            let above = &path[..path.len() - 1];
            // An entry's descendants follow it directly.
            let pairs = before.iter().zip(above);
            folders += (above.len() - pairs.take_while(|(a, b)| a == b).count()) as u64;
            before = path;
            on_disk = on_disk.saturating_add(entry.len().div_ceil(BLOCK).max(1) * BLOCK);
            if let Kind::File {
                length,
                content,
                packed,
            } = entry.kind
            {
                match packed {
                    Some(spot) => drop(packs.insert(spot.pack)),
                    None => {
                        let longest = files.entry(content).or_default();
                        *longest = length.max(*longest);
                    }
                }
            }
        }
        let packs = packs.iter().filter_map(|at| self.packs.get(*at as usize));
        let packed = packs.map(|pack| u64::from(pack.length)).sum();
        FolderSize {
            entries: self.entries.len() as u64 + folders,
            on_disk: on_disk.saturating_add(folders * BLOCK),
            fetched: files.values().copied().fold(packed, u64::saturating_add),
        }
    }
}
