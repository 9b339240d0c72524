//! A file under way: its bytes at their offsets, beside it the record by which it goes on after
//! `kill -9`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};
use serde::{Deserialize, Serialize};
use whimbrel_content::Assembly;
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::wire::ContentKind;

use super::FetchError;

/// Numbered names that are tried before a name counts as taken.
const MAX_NAMESAKES: u32 = 10_000;

/// What a content said of itself with its first chunk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Manner {
    pub(super) file_name: String,
    pub(super) is_folder: bool,
}

impl Manner {
    pub(super) fn new(file_name: &str, kind: ContentKind) -> Manner {
        Manner {
            file_name: file_name.to_owned(),
            is_folder: kind == ContentKind::Folder,
        }
    }
}

/// The hidden files of one content in the folder of its output. Only one process has them at a
/// time.
#[derive(Debug)]
pub(super) struct PartFile {
    file: File,
    path: PathBuf,
    record: PathBuf,
    reserved: bool,
}

/// A record to be kept, and the file whose bytes must be on disk before.
#[derive(Debug)]
pub(super) struct Snapshot {
    file: File,
    record: PathBuf,
    bytes: Vec<u8>,
}

impl PartFile {
    /// Opens what an earlier run has left in `folder`, or begins anew.
    pub(super) fn open(
        folder: &Path,
        content: Guid,
        limit: u64,
    ) -> Result<(PartFile, Assembly, Option<Manner>), FetchError> {
        let path = folder.join(format!(".{content}.part"));
        let record = folder.join(format!(".{content}.resume"));
        let failed = |source| FetchError::Disk {
            path: path.clone(),
            source,
        };
        // A link planted here would be written through.
        let no_links = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(no_links)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FetchError::InUse(path)),
            // A file system without locks: nobody can be kept out.
            Err(TryLockError::Error(_)) => {}
        }
        let length = file.metadata().map_err(failed)?.len();
        let resumed = read_record(&record).filter(|(assembly, _)| {
            let end = assembly.verified().iter().last().map_or(0, |run| run.end);
            assembly.root() == content && end <= length
        });
        let (assembly, manner) = match resumed {
            Some((assembly, manner)) => (assembly, Some(manner)),
            None => (Assembly::new(content, limit), None),
        };
        Ok((
            PartFile {
                file,
                path,
                record,
                reserved: false,
            },
            assembly,
            manner,
        ))
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), FetchError> {
        self.file
            .write_all_at(data, offset)
            .map_err(|source| FetchError::Disk {
                path: self.path.clone(),
                source,
            })
    }

    /// Claims disk space for the whole content, once its length is proven: a disk that is too small
    /// is reported before hours of transfer, not after.
    pub(super) fn reserve(&mut self, length: u64) -> Result<(), FetchError> {
        if core::mem::replace(&mut self.reserved, true) || length == 0 {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, length) {
            Err(rustix::io::Errno::NOSPC) => {
                let source = io::ErrorKind::StorageFull.into();
                Err(FetchError::Disk {
                    path: self.path.clone(),
                    source,
                })
            }
            // Not every file system can.
            _ => Ok(()),
        }
    }

    /// What is to be kept of the transfer as it stands.
    pub(super) fn snapshot(
        &self,
        assembly: &Assembly,
        manner: &Manner,
    ) -> Result<Snapshot, FetchError> {
        let file = self.file.try_clone().map_err(|source| FetchError::Disk {
            path: self.path.clone(),
            source,
        })?;
        let mut bytes = serde_json::to_vec(manner).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(&assembly.encode());
        Ok(Snapshot {
            file,
            record: self.record.clone(),
            bytes,
        })
    }

    /// All bytes, for a content that is small and complete.
    pub(super) fn read_all(&self, length: u64) -> Result<Vec<u8>, FetchError> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.file
            .read_exact_at(&mut bytes, 0)
            .map_err(|source| FetchError::Disk {
                path: self.path.clone(),
                source,
            })?;
        Ok(bytes)
    }

    /// Gives the finished file its name; `durable` waits until the disk has it.
    pub(super) fn finish(
        self,
        length: u64,
        executable: bool,
        place: &Place,
        durable: bool,
    ) -> Result<PathBuf, FetchError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FetchError::Disk { path, source }
        };
        self.file.set_len(length).map_err(failed(&self.path))?;
        set_execution(&self.file, executable).map_err(failed(&self.path))?;
        if durable {
            self.file.sync_all().map_err(failed(&self.path))?;
        }
        let path = match place {
            Place::Replacing(path) => {
                fs::rename(&self.path, path).map_err(failed(path))?;
                path.clone()
            }
            Place::Beside(wanted) => rename_beside(&self.path, wanted)?,
        };
        self.remove_record();
        Ok(path)
    }

    /// Removes everything: the content lies elsewhere now.
    pub(super) fn discard(self) {
        // What cannot be removed does no harm.
        let _ = fs::remove_file(&self.path);
        self.remove_record();
    }

    fn remove_record(&self) {
        let _ = fs::remove_file(&self.record);
        let _ = fs::remove_file(beside(&self.record));
    }
}

/// Where a finished file goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Here, in place of what is there: the user has named it.
    Replacing(PathBuf),
    /// Here, or under a numbered name if there is something: somebody else has named it.
    Beside(PathBuf),
}

impl Snapshot {
    /// Puts the bytes on disk, then the record, whole or not at all.
    pub(super) fn keep(self) -> io::Result<()> {
        self.file.sync_data()?;
        let new = beside(&self.record);
        let mut file = File::create(&new)?;
        file.write_all(&self.bytes)?;
        file.sync_data()?;
        fs::rename(&new, &self.record)
    }
}

fn beside(record: &Path) -> PathBuf {
    record.with_extension("resume-new")
}

fn read_record(path: &Path) -> Option<(Assembly, Manner)> {
    let bytes = fs::read(path).ok()?;
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let manner = serde_json::from_slice(&bytes[..end]).ok()?;
    Some((Assembly::decode(&bytes[end + 1..]).ok()?, manner))
}

/// Whoever may read it may run it, or nobody may.
pub(super) fn set_execution(file: &File, executable: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = file.metadata()?.permissions().mode();
    let wanted = if executable {
        mode | (mode & 0o444) >> 2
    } else {
        mode & !0o111
    };
    if wanted == mode {
        Ok(())
    } else {
        file.set_permissions(fs::Permissions::from_mode(wanted))
    }
}

/// Renames without replacing anything: `name`, `name-2`, `name-3`, ...
pub(super) fn rename_beside(from: &Path, wanted: &Path) -> Result<PathBuf, FetchError> {
    for number in 1..MAX_NAMESAKES {
        let to = namesake(wanted, number);
        match renameat_with(CWD, from, CWD, &to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(to),
            Err(rustix::io::Errno::EXIST) => {}
            // Not every file system can; then there is a moment in which somebody may be faster.
            Err(rustix::io::Errno::INVAL) if !to.exists() => {
                fs::rename(from, &to).map_err(|source| FetchError::Disk {
                    path: to.clone(),
                    source,
                })?;
                return Ok(to);
            }
            Err(rustix::io::Errno::INVAL) => {}
            Err(error) => {
                return Err(FetchError::Disk {
                    path: to,
                    source: error.into(),
                });
            }
        }
    }
    Err(FetchError::Disk {
        path: wanted.to_owned(),
        source: io::ErrorKind::AlreadyExists.into(),
    })
}

/// `dir/name.ext` as `dir/name-2.ext`; the name itself for 1.
pub(super) fn namesake(path: &Path, number: u32) -> PathBuf {
    if number <= 1 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}-{number}.{}", extension.to_string_lossy()),
        None => format!("{stem}-{number}"),
    };
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_content_is_fetched_by_one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let open = || PartFile::open(folder.path(), Guid([1; 32]), 1 << 20);
        let first = open().unwrap();
        assert!(matches!(open(), Err(FetchError::InUse(_))));
        drop(first);
        assert!(open().is_ok());
    }

    #[test]
    fn a_suggested_name_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = folder.path().join("a.txt");
        fs::write(&wanted, "mine").unwrap();
        for number in [2, 3] {
            let from = folder.path().join("part");
            fs::write(&from, number.to_string()).unwrap();
            let to = rename_beside(&from, &wanted).unwrap();
            assert_eq!(to, folder.path().join(format!("a-{number}.txt")));
        }
        assert_eq!(fs::read_to_string(&wanted).unwrap(), "mine");
    }

    #[test]
    fn a_record_that_vouches_for_bytes_that_are_not_there_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = vec![3; 3 << 20];
        let tree = whimbrel_content::ChunkTree::from_reader(
            &bytes[..],
            whimbrel_content::ChunkSize::MIN,
            &mut |_| {},
        )
        .unwrap();
        let size = whimbrel_content::ChunkSize::DEFAULT;
        let open = || PartFile::open(folder.path(), tree.root(), 1 << 40).unwrap();
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
            file_name: "x".into(),
            is_folder: false,
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
