//! The files with the entries' bytes.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, fallocate};
use whimbrel_core::disk::size_on_disk;

/// The smallest size at which a segment is full.
const SEGMENT: u64 = 64 << 20;
/// Segments that a full folder has, which are open files.
const MAX_SEGMENTS: u64 = 256;

/// Where an entry's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    /// CRC-64/NVMe of the bytes.
    pub(crate) checksum: u64,
}

#[derive(Debug)]
struct Segment {
    file: File,
    /// Entries in it.
    entries: u64,
    /// Its end, where the next entry goes.
    end: u64,
    /// Blocks of forgotten entries that the file system did not take back.
    unreturned: u64,
}

impl Segment {
    /// Gives blocks back to the file system, where it takes them.
    fn give_back(&mut self, offset: u64, size: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&self.file, flags, offset, size).is_err() {
            self.unreturned += size;
        }
    }
}

/// The segment files of a folder.
#[derive(Debug)]
pub(crate) struct Segments {
    folder: PathBuf,
    full_at: u64,
    segments: BTreeMap<u32, Segment>,
    /// The one that is written; none before the first entry.
    current: Option<u32>,
    next: u32,
    /// Segments with bytes that are not synced.
    unsynced: Vec<u32>,
    has_new_file: bool,
}

impl Segments {
    /// Opens the segments of a folder. New entries go to new ones.
    pub(crate) fn open(folder: &Path, limit: u64) -> io::Result<Segments> {
        let mut segments = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Some(number) = number_of(&entry.path()) else {
                continue;
            };
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(entry.path())?;
            let end = file.metadata()?.len();
            let segment = Segment {
                file,
                entries: 0,
                end,
                unreturned: 0,
            };
            segments.insert(number, segment);
        }
        let next = segments.keys().last().map_or(0, |last| last + 1);
        Ok(Segments {
            folder: folder.to_owned(),
            full_at: SEGMENT.max(limit / MAX_SEGMENTS),
            segments,
            current: None,
            next,
            unsynced: Vec::new(),
            has_new_file: false,
        })
    }

    /// Counts an entry that the index names. Returns false if its bytes are not there.
    pub(crate) fn note_entry(&mut self, place: &Place) -> bool {
        let Some(segment) = self.segments.get_mut(&place.segment) else {
            return false;
        };
        let is_there = place.offset + u64::from(place.length) <= segment.end;
        segment.entries += u64::from(is_there);
        is_there
    }

    /// Gives back what no entry needs: segments without entries, and what a batch that did not become
    /// whole, or a crash, has left between and behind the entries.
    pub(crate) fn reclaim(&mut self, places: impl Iterator<Item = Place>) -> io::Result<()> {
        let mut needed: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for place in places {
            let end = place.offset + size_on_disk(place.length.into());
            let of_segment = needed.entry(place.segment).or_default();
            of_segment.push((place.offset, end));
        }
        let is_needed = |number: &u32, _: &mut Segment| !needed.contains_key(number);
        for (number, _) in self.segments.extract_if(.., is_needed) {
            fs::remove_file(path_of(&self.folder, number))?;
        }
        for (number, mut ranges) in needed {
            let Some(segment) = self.segments.get_mut(&number) else {
                continue;
            };
            ranges.sort_unstable();
            segment.end = ranges.last().map_or(0, |(_, end)| *end);
            segment.file.set_len(segment.end)?;
            let live: u64 = ranges.iter().map(|(from, to)| to - from).sum();
            if segment.file.metadata()?.blocks() * 512 <= live {
                continue;
            }
            let mut at = 0;
            for (from, to) in ranges {
                if at < from {
                    segment.give_back(at, from - at);
                }
                at = to;
            }
        }
        Ok(())
    }

    /// Appends an entry; it counts once it is synced.
    pub(crate) fn append(&mut self, body: &[Bytes; 2]) -> io::Result<Place> {
        let number = self.writable()?;
        let Some(segment) = self.segments.get_mut(&number) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let offset = segment.end;
        let mut at = offset;
        for piece in body.iter().filter(|piece| !piece.is_empty()) {
            segment.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        let length = at - offset;
        segment.end = offset + size_on_disk(length);
        segment.entries += 1;
        if self.unsynced.last() != Some(&number) {
            self.unsynced.push(number);
        }
        Ok(Place {
            segment: number,
            offset,
            length: u32::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?,
            checksum: checksum(body),
        })
    }

    /// Returns the segment for the next entry.
    fn writable(&mut self) -> io::Result<u32> {
        let current = self.current.and_then(|number| {
            let segment = self.segments.get(&number)?;
            (segment.end < self.full_at).then_some(number)
        });
        if let Some(number) = current {
            return Ok(number);
        }
        let number = self.next;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path_of(&self.folder, number))?;
        self.next += 1;
        self.has_new_file = true;
        self.current = Some(number);
        let segment = Segment {
            file,
            entries: 0,
            end: 0,
            unreturned: 0,
        };
        self.segments.insert(number, segment);
        Ok(number)
    }

    /// Syncs what was appended.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        for number in &self.unsynced {
            if let Some(segment) = self.segments.get(number) {
                // The length of a file is synced with its data.
                segment.file.sync_data()?;
            }
        }
        self.unsynced.clear();
        if self.has_new_file {
            File::open(&self.folder)?.sync_all()?;
            self.has_new_file = false;
        }
        Ok(())
    }

    /// Returns the bytes of an entry, unless they are not those that were written.
    pub(crate) fn read(&self, place: &Place) -> io::Result<Option<Bytes>> {
        let Some(segment) = self.segments.get(&place.segment) else {
            return Ok(None);
        };
        let mut bytes = vec![0; place.length as usize];
        match segment.file.read_exact_at(&mut bytes, place.offset) {
            Ok(()) => {}
            Err(fault) if fault.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(fault) => return Err(fault),
        }
        let bytes = Bytes::from(bytes);
        let is_intact = checksum(&[bytes.clone(), Bytes::new()]) == place.checksum;
        Ok(is_intact.then_some(bytes))
    }

    /// Gives the blocks of a forgotten entry back, and its segment, if it was the last one in there.
    pub(crate) fn forget(&mut self, place: &Place) {
        let Some(segment) = self.segments.get_mut(&place.segment) else {
            return;
        };
        segment.entries = segment.entries.saturating_sub(1);
        if segment.entries == 0 && self.current != Some(place.segment) {
            self.segments.remove(&place.segment);
            let _ = fs::remove_file(path_of(&self.folder, place.segment));
            return;
        }
        segment.give_back(place.offset, size_on_disk(place.length.into()));
    }

    /// Returns the bytes of forgotten entries that still take space.
    pub(crate) fn unreturned(&self) -> u64 {
        self.segments.values().map(|it| it.unreturned).sum()
    }
}

/// CRC-64/NVMe of an entry's bytes.
fn checksum(body: &[Bytes; 2]) -> u64 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    body.iter().for_each(|piece| digest.update(piece));
    digest.finalize()
}

fn path_of(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("segment-{number:010}"))
}

fn number_of(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("segment-")?.parse().ok()
}
