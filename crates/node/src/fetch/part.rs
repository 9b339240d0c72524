//! A file under way: its bytes at their offsets, and beside it the record by which it resumes after
//! `kill -9`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, StatVfs, fallocate, fstatvfs};
use serde::{Deserialize, Serialize};
use whimbrel_content::Assembly;
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::wire::ContentKind;

use super::FetchError;
use crate::output::{Place, Published, Target, set_mode};

/// Bound of the sets of hidden names that are tried while files of another program are in the way.
const MAX_SETS: u32 = 8;

/// What the first chunk of a content states about it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Manner {
    pub(super) file_name: String,
    pub(super) is_folder: bool,
    /// It came encrypted; the part holds what was decrypted.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub(super) is_encrypted: bool,
    /// The name of the folder that is being made from this list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) top: Option<String>,
}

impl Manner {
    pub(super) fn new(file_name: &str, kind: ContentKind) -> Manner {
        Manner {
            file_name: file_name.to_owned(),
            is_folder: kind == ContentKind::Folder,
            is_encrypted: false,
            top: None,
        }
    }
}

/// The paths of the hidden files of one content.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Hidden {
    part: PathBuf,
    record: PathBuf,
    /// The record that is about to replace the other one.
    next_record: PathBuf,
}

impl Hidden {
    /// Returns all sets of names in the order of trying, so that a later run finds the same one.
    fn sets(folder: &Path, content: Guid) -> impl Iterator<Item = Hidden> {
        (1..=MAX_SETS).map(move |number| {
            let stem = match number {
                1 => format!(".{content}"),
                number => format!(".{content}-{number}"),
            };
            let path = |kind: &str| folder.join(format!("{stem}.{kind}"));
            Hidden {
                part: path("part"),
                record: path("resume"),
                next_record: path("resume-new"),
            }
        })
    }

    /// Opens the part file, or makes it; `None` if any of the files belongs to another program.
    fn open(&self) -> io::Result<Option<File>> {
        let is_taken =
            |path: &Path| fs::symlink_metadata(path).is_ok() && open_own(path, false).is_none();
        if is_taken(&self.record) || is_taken(&self.next_record) {
            return Ok(None);
        }
        match create(&self.part, 0o666) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Ok(open_own(&self.part, true))
            }
            made => made.map(Some),
        }
    }
}

/// The hidden files of one content in the folder of its output. Only one process uses them at a
/// time.
#[derive(Debug)]
pub(super) struct PartFile {
    file: File,
    hidden: Hidden,
    reserved: bool,
}

/// A record to keep, and the file whose bytes must be on disk before it.
#[derive(Debug)]
pub(super) struct Snapshot {
    file: File,
    hidden: Hidden,
    bytes: Vec<u8>,
}

/// Returns an error if the file system of `file` says that it has less room than `needed` bytes.
pub(super) fn check_space(file: impl AsFd, needed: u64) -> io::Result<()> {
    let told = fstatvfs(file).ok().filter(|told| told.f_blocks > 0);
    match told {
        Some(told) if needed > told.f_bfree.saturating_mul(told.f_frsize) => {
            Err(no_space(needed, Some(&told)))
        }
        _ => Ok(()),
    }
}

fn no_space(needed: u64, told: Option<&StatVfs>) -> io::Error {
    let needed = needed.div_ceil(1_000_000);
    let mut text = format!("no storage space for {needed} MB");
    if let Some(told) = told {
        let free = told.f_bavail.saturating_mul(told.f_frsize) / 1_000_000;
        text += &format!("; {free} MB are free there");
    }
    io::Error::new(ErrorKind::StorageFull, text)
}

/// Claims storage for `range` of `file`, whose length stays. Fails only for a lack of storage: not
/// every file system can do this.
fn claim(file: &File, range: Range<u64>) -> io::Result<()> {
    let length = range.end - range.start;
    // Parts of the range may be there already.
    let found = file.metadata()?;
    let needed = length.saturating_sub(found.blocks().saturating_mul(512));
    let told = fstatvfs(file).ok().filter(|told| told.f_blocks > 0);
    let full = || no_space(needed, told.as_ref());
    // Not every file system can do this, and one that cannot may count its space otherwise.
    match fallocate(file, FallocateFlags::KEEP_SIZE, range.start, 1) {
        Err(rustix::io::Errno::NOSPC) => return Err(full()),
        Err(_) => return Ok(()),
        Ok(()) => {}
    }
    let give_back = || {
        file.set_len(found.len())?;
        Err(full())
    };
    // A claim that cannot succeed would take all that is free, before it fails.
    if check_space(file, needed).is_err() {
        return give_back();
    }
    match fallocate(file, FallocateFlags::KEEP_SIZE, range.start, length) {
        Err(rustix::io::Errno::NOSPC) => give_back(),
        _ => Ok(()),
    }
}

impl PartFile {
    /// Opens what an earlier run has left in `folder`, or begins anew. In a folder that others may
    /// write to, files of others are not used. What was written with a key is of no use without it.
    pub(super) fn open(
        folder: &Path,
        content: Guid,
        limit: u64,
        is_encrypted: bool,
    ) -> Result<(PartFile, Assembly, Option<Manner>), FetchError> {
        let mut last = folder.to_owned();
        for hidden in Hidden::sets(folder, content) {
            let failed = |source| FetchError::Disk {
                path: hidden.part.clone(),
                source,
            };
            if let Some(file) = hidden.open().map_err(failed)? {
                let (part, resumed) = PartFile::begin(file, hidden, content)?;
                let resumed = resumed.filter(|(_, it)| it.is_encrypted == is_encrypted);
                return Ok(match resumed {
                    Some((assembly, manner)) => (part, assembly, Some(manner)),
                    None => (part, Assembly::new(content, limit), None),
                });
            }
            last = hidden.part;
        }
        Err(FetchError::PartsTaken(last))
    }

    fn begin(
        file: File,
        hidden: Hidden,
        content: Guid,
    ) -> Result<(PartFile, Option<(Assembly, Manner)>), FetchError> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FetchError::InUse(hidden.part)),
            // Without locks in the file system, no other program can be kept out.
            Err(TryLockError::Error(_)) => {}
        }
        let failed = |source| FetchError::Disk {
            path: hidden.part.clone(),
            source,
        };
        let found = file.metadata().map_err(failed)?;
        // Another process may have given it its final name before the lock was free.
        let is_there = fs::symlink_metadata(&hidden.part)
            .is_ok_and(|there| (there.dev(), there.ino()) == (found.dev(), found.ino()));
        if !is_there {
            return Err(FetchError::InUse(hidden.part));
        }
        let resumed = read_record(&hidden.record).filter(|(assembly, _)| {
            let end = assembly.verified().iter().last().map_or(0, |run| run.end);
            assembly.root() == content && end <= found.len()
        });
        let part = PartFile {
            file,
            hidden,
            reserved: false,
        };
        Ok((part, resumed))
    }

    /// Hides the file from all who may not read the file that it will replace.
    pub(super) fn withhold(&self, place: &Place) -> Result<(), FetchError> {
        Ok(place.withhold(&self.file)?)
    }

    /// Makes the file readable by its owner alone while it is under way. Returns false if its file
    /// system keeps no permissions.
    pub(super) fn keep_private(&self) -> Result<bool, FetchError> {
        set_mode(&self.file, 0o600).map_err(|source| FetchError::Disk {
            path: self.hidden.part.clone(),
            source,
        })
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), FetchError> {
        self.file
            .write_all_at(data, offset)
            .map_err(|source| FetchError::Disk {
                path: self.hidden.part.clone(),
                source,
            })
    }

    /// Claims disk space from the first missing byte to the end of the content, once its length is
    /// proven: a disk that is too small is reported before hours of transfer, not after. Space that
    /// the file has already is not claimed again: some file systems then look at each of its pages.
    pub(super) fn reserve(&mut self, range: Range<u64>) -> Result<(), FetchError> {
        if core::mem::replace(&mut self.reserved, true) || range.is_empty() {
            return Ok(());
        }
        claim(&self.file, range).map_err(|source| FetchError::Disk {
            path: self.hidden.part.clone(),
            source,
        })
    }

    /// Returns the record of the transfer as it stands. Fails if somebody has removed the file: all that
    /// arrives would be lost at the end.
    pub(super) fn snapshot(
        &self,
        assembly: &Assembly,
        manner: &Manner,
    ) -> Result<Snapshot, FetchError> {
        let path = &self.hidden.part;
        let file = self.file.try_clone().map_err(|source| FetchError::Disk {
            path: path.clone(),
            source,
        })?;
        let is_linked = file.metadata().is_ok_and(|found| found.nlink() > 0);
        if !is_linked && path.symlink_metadata().is_err() {
            return Err(FetchError::PartRemoved(path.clone()));
        }
        let mut bytes = serde_json::to_vec(manner).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(&assembly.encode());
        Ok(Snapshot {
            file,
            hidden: self.hidden.clone(),
            bytes,
        })
    }

    /// Returns all bytes of a small and complete content.
    pub(super) fn read_all(&self, length: u64) -> Result<Vec<u8>, FetchError> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.file
            .read_exact_at(&mut bytes, 0)
            .map_err(|source| FetchError::Disk {
                path: self.hidden.part.clone(),
                source,
            })?;
        Ok(bytes)
    }

    /// Gives the finished file its name, on disk.
    pub(super) fn finish(self, length: u64, place: &Place) -> Result<Published, FetchError> {
        self.end(length, true)?;
        let published = place.publish(&self.file, &self.hidden.part)?;
        self.remove_record();
        Ok(published)
    }

    /// Returns the finished file and its path, for a place in a folder; `durable` waits until the
    /// disk has it. If it is not moved away, it is removed when the part is discarded.
    pub(super) fn end(&self, length: u64, durable: bool) -> Result<(&File, &Path), FetchError> {
        let prepare = || {
            self.file.set_len(length)?;
            if durable {
                self.file.sync_all()?;
            }
            Ok(())
        };
        prepare().map_err(|source| FetchError::Disk {
            path: self.hidden.part.clone(),
            source,
        })?;
        Ok((&self.file, &self.hidden.part))
    }

    /// Removes all hidden files, because the content lies elsewhere now.
    pub(super) fn discard(self) {
        // A file that cannot be removed does no harm.
        let _ = fs::remove_file(&self.hidden.part);
        self.remove_record();
    }

    fn remove_record(&self) {
        let _ = fs::remove_file(&self.hidden.record);
        let _ = fs::remove_file(&self.hidden.next_record);
    }
}

impl Snapshot {
    /// Writes the bytes to disk, then the record, whole or not at all.
    pub(super) fn keep(self) -> io::Result<()> {
        self.file.sync_data()?;
        let next = &self.hidden.next_record;
        let mut file = match create(next, 0o600) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                fs::remove_file(next)?;
                create(next, 0o600)?
            }
            made => made?,
        };
        file.write_all(&self.bytes)?;
        file.sync_data()?;
        fs::rename(next, &self.hidden.record)
    }
}

/// Returns true if an earlier run was making `target` from the folder `content`, and has not
/// finished.
pub(super) fn is_under_way(target: &Target, content: Guid) -> bool {
    let name = name_of(target);
    Hidden::sets(target.folder(), content)
        .filter_map(|hidden| read_record(&hidden.record))
        .any(|(assembly, manner)| assembly.root() == content && manner.top.as_ref() == Some(&name))
}

/// Returns the name of a target in a record.
pub(super) fn name_of(target: &Target) -> String {
    let name = target.path().file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Returns the contents of which `folder` holds a part.
pub(super) fn unfinished(folder: &Path) -> impl Iterator<Item = Guid> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| content_of(entry.file_name().to_str()?))
}

/// Returns true for the path of a part.
pub(super) fn is_part(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(content_of).is_some()
}

fn content_of(part: &str) -> Option<Guid> {
    let stem = part.strip_prefix('.')?.strip_suffix(".part")?;
    stem.get(..2 * Guid::LEN)?.parse().ok()
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
}

/// Opens a file that belongs to this user and has no other name; returns `None` for anything else.
/// A link would be written through, opening a FIFO would block, and the owner of a file can change
/// it after its verification.
fn open_own(path: &Path, write: bool) -> Option<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .ok()?;
    let found = file.metadata().ok()?;
    let is_own = || {
        found.uid() == rustix::process::geteuid().as_raw()
            || path.parent().and_then(uid_in) == Some(found.uid())
    };
    // Some network file systems count no names.
    (found.is_file() && found.nlink() <= 1 && is_own()).then_some(file)
}

/// Returns the owner that a new file in `folder` gets. It is not the user of this process where the
/// file system knows no owners (FAT), or where the server of a network file system maps them.
fn uid_in(folder: &Path) -> Option<u32> {
    let file = tempfile::NamedTempFile::new_in(folder).ok()?;
    Some(file.as_file().metadata().ok()?.uid())
}

fn read_record(path: &Path) -> Option<(Assembly, Manner)> {
    use std::io::Read;
    let mut bytes = Vec::new();
    open_own(path, false)?.read_to_end(&mut bytes).ok()?;
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let manner = serde_json::from_slice(&bytes[..end]).ok()?;
    Some((Assembly::decode(&bytes[end + 1..]).ok()?, manner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_content_is_fetched_by_one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let open = || PartFile::open(folder.path(), Guid([1; 32]), 1 << 20, false);
        let first = open().unwrap();
        assert!(matches!(open(), Err(FetchError::InUse(_))));
        drop(first);
        assert!(open().is_ok());
    }

    #[test]
    fn a_part_that_is_removed_ends_its_transfer() {
        let folder = tempfile::tempdir().unwrap();
        let content = Guid([1; 32]);
        let (mut part, ..) = PartFile::open(folder.path(), content, 1 << 20, false).unwrap();
        part.write(0, &[1; 1 << 10]).unwrap();
        let record =
            |part: &PartFile| part.snapshot(&Assembly::new(content, 1 << 20), &Manner::default());
        assert!(record(&part).unwrap().keep().is_ok());
        // A folder that is renamed takes the part along.
        let elsewhere = folder.path().with_extension("renamed");
        fs::rename(folder.path(), &elsewhere).unwrap();
        assert!(record(&part).is_ok());
        fs::remove_dir_all(&elsewhere).unwrap();
        let gone = record(&part).map(drop).unwrap_err();
        assert!(matches!(&gone, FetchError::PartRemoved(_)), "{gone}");
    }

    #[test]
    fn room_is_claimed_for_what_is_missing_and_the_length_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (mut part, ..) = PartFile::open(folder.path(), Guid([1; 32]), 1 << 30, false).unwrap();
        part.write(0, &[1; 1 << 20]).unwrap();
        part.reserve(1 << 20..3 << 20).unwrap();
        let found = part.file.metadata().unwrap();
        assert_eq!(found.len(), 1 << 20);
        assert!(found.blocks() * 512 >= 3 << 20, "{found:?}");
        // Far more than the disk has, but room is claimed only once.
        part.reserve(0..1 << 60).unwrap();
        drop(part);

        let (mut full, ..) = PartFile::open(folder.path(), Guid([2; 32]), 1 << 30, false).unwrap();
        full.reserve(5..5).unwrap();
        assert_eq!(full.file.metadata().unwrap().blocks(), 0);

        // Nothing of a claim that is too large stays claimed.
        let (mut full, ..) = PartFile::open(folder.path(), Guid([3; 32]), 1 << 30, false).unwrap();
        let told = fstatvfs(&full.file).unwrap();
        let beyond = told.f_bfree * told.f_frsize + (1 << 40);
        let refused = full.reserve(0..beyond).unwrap_err();
        assert!(
            matches!(&refused, FetchError::Disk { source, .. } if source.kind() == ErrorKind::StorageFull)
        );
        let text = refused.to_string();
        let needed = format!("no storage space for {} MB", beyond.div_ceil(1_000_000));
        assert!(
            text.contains(&needed) && text.contains("MB are free there"),
            "{text}"
        );
        assert_eq!(full.file.metadata().unwrap().blocks(), 0);
    }

    fn make_fifo(path: &Path) {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    }

    /// Opening a FIFO blocks, a link and a second name lead to another file, and a stranger can
    /// change its own file after the verification.
    #[test]
    fn what_is_not_this_users_is_passed_over_and_stays() {
        let content = Guid([1; 32]);
        let plants: [fn(&Path, &Hidden); 5] = [
            |_, hidden| make_fifo(&hidden.part),
            |_, hidden| make_fifo(&hidden.record),
            |mine, hidden| std::os::unix::fs::symlink(mine, &hidden.next_record).unwrap(),
            |mine, hidden| fs::hard_link(mine, &hidden.part).unwrap(),
            |_, hidden| {
                fs::write(&hidden.part, "planted").unwrap();
                if rustix::process::geteuid().is_root() {
                    std::os::unix::fs::chown(&hidden.part, Some(65_534), None).unwrap();
                } else {
                    fs::hard_link(&hidden.part, hidden.part.with_extension("twin")).unwrap();
                }
            },
        ];
        for plant in plants {
            let folder = tempfile::tempdir().unwrap();
            let mine = folder.path().join("mine");
            fs::write(&mine, "mine").unwrap();
            let sets: Vec<Hidden> = Hidden::sets(folder.path(), content).collect();
            plant(&mine, &sets[0]);
            let names = || fs::read_dir(folder.path()).unwrap().count();
            let before = names();
            let open = || PartFile::open(folder.path(), content, 1 << 20, false);
            let (mut part, ..) = open().unwrap();
            assert_eq!(part.hidden, sets[1]);
            part.write(0, b"bytes").unwrap();
            drop(part);
            // A later run finds it again.
            let (part, ..) = open().unwrap();
            assert_eq!(
                (&part.hidden, part.file.metadata().unwrap().len()),
                (&sets[1], 5)
            );
            part.discard();
            assert_eq!(
                (fs::read(&mine).unwrap(), names()),
                (b"mine".to_vec(), before)
            );
        }
    }

    #[test]
    fn parts_say_which_contents_are_unfinished() {
        let folder = tempfile::tempdir().unwrap();
        let names = [Guid([1; 32]), Guid([2; 32]), Guid([3; 32])];
        let hidden = |name: Guid| Hidden::sets(folder.path(), name);
        fs::write(hidden(names[0]).next().unwrap().part, b"a").unwrap();
        fs::write(hidden(names[1]).nth(3).unwrap().part, b"b").unwrap();
        // A record alone, and files of others.
        fs::write(hidden(names[2]).next().unwrap().record, b"c").unwrap();
        fs::write(folder.path().join(".somebody.part"), b"d").unwrap();
        fs::write(folder.path().join("film"), b"e").unwrap();
        let mut found: Vec<Guid> = unfinished(folder.path()).collect();
        found.sort();
        assert_eq!(found, names[..2]);
        assert_eq!(unfinished(&folder.path().join("none")).count(), 0);
    }

    #[test]
    fn when_all_names_are_taken_it_says_so() {
        let folder = tempfile::tempdir().unwrap();
        for hidden in Hidden::sets(folder.path(), Guid([1; 32])) {
            make_fifo(&hidden.part);
        }
        let refused = PartFile::open(folder.path(), Guid([1; 32]), 1 << 20, false);
        assert!(matches!(refused, Err(FetchError::PartsTaken(_))));
    }

    /// A run that was killed while it wrote a record may leave a partial one.
    #[test]
    fn a_record_left_half_written_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let content = Guid([1; 32]);
        let hidden = Hidden::sets(folder.path(), content).next().unwrap();
        fs::write(&hidden.next_record, "half").unwrap();
        let (part, assembly, _) = PartFile::open(folder.path(), content, 1 << 20, false).unwrap();
        part.snapshot(&assembly, &Manner::default())
            .unwrap()
            .keep()
            .unwrap();
        assert!(!hidden.next_record.exists());
        assert!(read_record(&hidden.record).is_some());
    }

    #[test]
    fn a_record_that_vouches_for_bytes_that_are_not_there_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = vec![3; 3 << 20];
        let tree = whimbrel_content::ChunkTree::from_reader(
            &bytes[..],
            whimbrel_content::ChunkSize::GROUP,
            &mut |_| {},
        )
        .unwrap();
        let size = whimbrel_content::ChunkSize::DEFAULT;
        let open = || PartFile::open(folder.path(), tree.root(), 1 << 40, false).unwrap();
        let (mut part, mut assembly, manner) = open();
        assert_eq!(manner, None);
        for index in 0..2u64 {
            let range = size.range(index, 3 << 20).unwrap();
            let data = &bytes[range.start as usize..range.end as usize];
            let proof = tree.proof(index, size).unwrap();
            let offer = whimbrel_content::Offer {
                chunk_size: size,
                index,
                claimed_len: 3 << 20,
                data,
                proof: &proof,
            };
            let verified = assembly.check(&offer).unwrap();
            part.write(range.start, data).unwrap();
            assembly.commit(verified);
        }
        let manner = Manner {
            is_encrypted: false,
            file_name: "x".into(),
            is_folder: false,
            top: None,
        };
        part.snapshot(&assembly, &manner).unwrap().keep().unwrap();
        drop(part);
        let (part, resumed, kept) = open();
        assert_eq!((resumed.verified_bytes(), kept), (2 << 20, Some(manner)));
        part.file.set_len(100).unwrap();
        drop(part);
        assert_eq!(open().1.verified_bytes(), 0);
    }
}
