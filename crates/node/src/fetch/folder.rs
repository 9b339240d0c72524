//! A folder under way: the contents still to be fetched, and the places of its entries.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use whimbrel_content::path::quoted;
use whimbrel_content::{ContentKey, Entry, Folder, Kind, Listing, RelativePath};
use whimbrel_core::Guid;

use super::replacing::Replacement;
use super::tree::{Granted, Landing, Tree};
use super::{FetchError, RefusedEntry};
use crate::bundle::contents_of;
use crate::output::is_refused_name;

/// A folder that takes less on disk is made however little is fetched for it, in bytes.
const BELIEVABLE: u64 = 64 << 20;
/// A larger folder may take this many times what is fetched for it, unless the user sets a limit:
/// copies of one file are fetched once.
const MAX_RATIO: u64 = 100;

/// A content to fetch, and the entries that it is for, by their place in the folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Job {
    pub(super) content: Guid,
    /// The key of its bytes, if they are encrypted.
    pub(super) key: Option<ContentKey>,
    /// As stated in the list; the largest, if it states several for one content.
    pub(super) length: u64,
    pub(super) entries: Vec<usize>,
    /// True for a pack: each entry has its own part of it.
    pub(super) is_pack: bool,
}

/// The target of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Goal {
    /// The list's own name.
    pub(super) listing: Guid,
    /// The folder that it becomes.
    pub(super) top: PathBuf,
    /// The place of a new version until it is whole, if it replaces an older one.
    pub(super) staging: Option<PathBuf>,
    /// The most that it may take on disk, in bytes; `None` if the user has set no limit.
    pub(super) limit: Option<u64>,
    /// The length of the list, in bytes.
    pub(super) listing_len: u64,
}

/// A folder under way.
#[derive(Debug)]
pub(super) struct FolderPlan {
    folder: Folder,
    /// The folder that is written to.
    tree: Tree,
    /// The older version, if one is to be replaced; untouched until the end.
    older: Option<Tree>,
    /// For each entry, true if it is in its place in the older version already.
    stays: Vec<bool>,
    pub(super) queue: VecDeque<Job>,
    pub(super) length: u64,
    pub(super) files: usize,
    /// Files and bytes that existed already.
    pub(super) present: (usize, u64),
    pub(super) refused: Vec<RefusedEntry>,
    /// The paths of those.
    missing: Vec<RelativePath>,
    pub(super) is_finished: bool,
}

impl FolderPlan {
    /// Makes all that needs no network, and examines what exists already.
    pub(super) fn begin(goal: &Goal, listing: Listing) -> Result<FolderPlan, FetchError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| FetchError::Disk { path, source }
        };
        let top = &goal.top;
        let Listing { folder, refused } = listing;
        check_size(&folder, goal)?;
        let (tree, older) = match &goal.staging {
            Some(staging) => {
                let newer = Tree::make_private(staging, goal.listing).map_err(failed(staging))?;
                let older = Tree::open(top, goal.listing).map_err(failed(top))?;
                (newer, Some(older))
            }
            None => {
                let own = folder.top();
                let tree = Tree::make(top, goal.listing, own).map_err(failed(top))?;
                (tree, None)
            }
        };
        let missing = refused
            .iter()
            .filter_map(|one| RelativePath::new(&*one.path).ok());
        let missing = missing.collect();
        let refused = refused.into_iter().map(|one| RefusedEntry {
            path: quoted(&one.path),
            why: one.why.to_string(),
        });
        let mut plan = FolderPlan {
            stays: vec![false; folder.entries().len()],
            queue: VecDeque::new(),
            length: folder.total_len(),
            files: folder.files(),
            present: (0, 0),
            refused: refused.collect(),
            missing,
            is_finished: false,
            folder,
            tree,
            older,
        };
        plan.survey()?;
        // A disk that is too small is reported before the transfer, not after it.
        let due = plan.queue.iter().flat_map(|job| &job.entries);
        let needed = due.map(|index| plan.folder.entries()[*index].len());
        let needed = needed.fold(0, u64::saturating_add);
        plan.tree.check_space(needed).map_err(failed(top))?;
        Ok(plan)
    }

    /// Makes folders and empty files, and queues the missing contents.
    fn survey(&mut self) -> Result<(), FetchError> {
        let empty = Guid(*blake3::hash(b"").as_bytes());
        let mut contents: BTreeMap<Guid, Job> = BTreeMap::new();
        let mut packs: BTreeMap<u32, Job> = BTreeMap::new();
        for index in 0..self.folder.entries().len() {
            let entry = self.folder.entries()[index].clone();
            let Kind::File {
                length,
                content,
                packed,
            } = entry.kind
            else {
                if entry.kind == Kind::Folder && self.older.is_none() {
                    let made = self.tree.make_folder(&entry.path, entry.mode);
                    self.note(index, made)?;
                }
                continue;
            };
            if self.keep_if_there(index, &entry, content) {
                self.present.0 += 1;
                self.present.1 += length;
                continue;
            }
            match packed {
                _ if self.stat_in_the_way(&entry.path) => {
                    self.note(index, Err(ErrorKind::AlreadyExists.into()))?;
                }
                None if content == empty => {
                    let written = is_as_listed(&entry, 0)
                        .and_then(|()| self.tree.write(&entry, b"", Landing::Free));
                    self.present.0 += usize::from(written.is_ok());
                    self.note(index, written)?;
                }
                None => {
                    let job = contents.entry(content).or_insert_with(|| Job {
                        content,
                        key: None,
                        length,
                        entries: Vec::new(),
                        is_pack: false,
                    });
                    job.length = job.length.max(length);
                    job.entries.push(index);
                }
                Some(spot) => {
                    let pack = self.folder.packs()[spot.pack as usize];
                    packs
                        .entry(spot.pack)
                        .or_insert_with(|| Job {
                            content: pack.content,
                            key: None,
                            length: pack.length.into(),
                            entries: Vec::new(),
                            is_pack: true,
                        })
                        .entries
                        .push(index);
                }
            }
        }
        let mut queue: Vec<Job> = packs.into_values().chain(contents.into_values()).collect();
        queue.sort_by_key(|job| job.entries.first().copied());
        self.queue = queue.into();
        Ok(())
    }

    /// Notes that the contents come encrypted, under these names: one for each content of the list, in its order.
    pub(super) fn encrypted(&mut self, key: &ContentKey, names: &[Guid]) -> Result<(), FetchError> {
        let plain = contents_of(&self.folder);
        if plain.len() != names.len() {
            return Err(FetchError::BadBundle);
        }
        let plain = plain.iter().map(|(content, _)| *content);
        let encrypted: BTreeMap<Guid, Guid> = plain.zip(names.iter().copied()).collect();
        for job in &mut self.queue {
            job.key = Some(key.of_member(&job.content));
            job.content = *encrypted.get(&job.content).ok_or(FetchError::BadBundle)?;
        }
        Ok(())
    }

    /// Returns true if an entry is in the fetched or in the older folder, where it then stays.
    fn keep_if_there(&mut self, index: usize, entry: &Entry, content: Guid) -> bool {
        let length = entry.len();
        if let Some(older) = &mut self.older
            && older.has(&entry.path, content, length)
        {
            self.stays[index] = true;
            return true;
        }
        self.tree.has(&entry.path, content, length)
    }

    /// Returns true if something else is in a file's place, or a link or a file on the way to it.
    fn stat_in_the_way(&mut self, path: &RelativePath) -> bool {
        self.tree.stat(path).map_or(true, |found| found.is_some())
    }

    /// Returns the path of an entry, quoted for a terminal.
    pub(super) fn path_of(&self, index: usize) -> String {
        format!("{:?}", self.folder.entries()[index].path)
    }

    /// Returns the folder that it becomes.
    pub(super) fn top(&self) -> &Path {
        self.older.as_ref().unwrap_or(&self.tree).top()
    }

    /// Notes the outcome of an entry: a disk that fails ends the fetch, any other error concerns
    /// the entry alone.
    fn note(&mut self, index: usize, outcome: io::Result<()>) -> Result<(), FetchError> {
        let Err(error) = outcome else {
            return Ok(());
        };
        let path = &self.folder.entries()[index].path;
        let is_fatal = matches!(
            error.kind(),
            ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::OutOfMemory
        ) || [rustix::io::Errno::IO, rustix::io::Errno::MFILE]
            .map(|errno| Some(errno.raw_os_error()))
            .contains(&error.raw_os_error());
        if is_fatal {
            return Err(FetchError::Disk {
                path: self.top().join(path),
                source: error,
            });
        }
        let why = match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::IsADirectory => {
                "something else is there".to_owned()
            }
            ErrorKind::NotADirectory => {
                "a file or a link is where a folder on its way should be".to_owned()
            }
            _ if is_refused_name(&error) => {
                "this file system does not take the name, or one on its way".to_owned()
            }
            _ => error.to_string(),
        };
        self.refused.push(RefusedEntry {
            path: format!("{path:?}"),
            why,
        });
        self.missing.push(path.clone());
        Ok(())
    }

    /// Returns true once the file system has not kept permissions.
    pub(super) fn loses_modes(&self) -> bool {
        self.tree.loses_modes() || self.older.as_ref().is_some_and(Tree::loses_modes)
    }

    /// Notes that these entries cannot be transferred.
    pub(super) fn refuse(&mut self, entries: &[usize], why: &FetchError) -> Result<(), FetchError> {
        entries.iter().try_for_each(|index| {
            let entry = &self.folder.entries()[*index];
            let error = match (why, &entry.kind) {
                (FetchError::TooLong { length, .. }, Kind::File { packed: None, .. }) => {
                    is_as_listed(entry, *length).err()
                }
                _ => None,
            };
            let error = error.unwrap_or_else(|| io::Error::other(why.to_string()));
            self.note(*index, Err(error))
        })
    }

    /// Moves a finished file of `length` bytes to its places. Returns the number of files and their
    /// bytes.
    pub(super) fn place_file(
        &mut self,
        length: u64,
        file: &File,
        from: &Path,
        entries: &[usize],
    ) -> Result<(usize, u64), FetchError> {
        let mut placed: Option<RelativePath> = None;
        let (mut files, mut bytes) = (0, 0);
        for index in entries.iter().copied() {
            let entry = self.folder.entries()[index].clone();
            let outcome = is_as_listed(&entry, length).and_then(|()| match &placed {
                None => self.tree.adopt(file, from, &entry, Landing::Free),
                Some(first) => self.tree.copy(first, &entry, Landing::Free),
            });
            if outcome.is_ok() {
                files += 1;
                bytes += entry.len();
                placed.get_or_insert(entry.path);
            }
            self.note(index, outcome)?;
        }
        Ok((files, bytes))
    }

    /// Writes the files of a pack. Returns their number and their bytes.
    pub(super) fn place_pack(
        &mut self,
        pack: &[u8],
        entries: &[usize],
    ) -> Result<(usize, u64), FetchError> {
        let (mut files, mut bytes) = (0, 0);
        for index in entries.iter().copied() {
            let entry = self.folder.entries()[index].clone();
            let Kind::File {
                length,
                content,
                packed: Some(spot),
            } = entry.kind
            else {
                continue;
            };
            let start = spot.offset as usize;
            let part = pack.get(start..start + length as usize);
            let outcome = match part.filter(|part| blake3::hash(part) == content.0) {
                Some(part) => self.tree.write(&entry, part, Landing::Free),
                None => Err(io::Error::other(
                    "the list gives it another name than its bytes have",
                )),
            };
            if outcome.is_ok() {
                files += 1;
                bytes += length;
            }
            self.note(index, outcome)?;
        }
        Ok((files, bytes))
    }

    /// Completes the folder when all files are there: a newer version takes the place of the older
    /// one, links are made, and folders get their permissions and times.
    pub(super) fn finish(&mut self) -> Result<(), FetchError> {
        let entries = self.folder.entries().to_vec();
        let granted = match self.older.take() {
            Some(older) => self.replace(older, &entries)?,
            None => {
                self.make_links(&entries, Landing::Free)?;
                Vec::new()
            }
        };
        self.is_finished = true;
        // From the inside out: a change inside a folder changes its time.
        for (index, entry) in entries.iter().enumerate().rev() {
            if entry.kind == Kind::Folder {
                let path = entry.path.as_bytes();
                match self.tree.finish_folder(path, entry.mode, entry.modified) {
                    // It was refused before.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) if error.kind() == ErrorKind::NotADirectory => {}
                    finished => self.note(index, finished)?,
                }
            }
        }
        for folder in granted.iter().rev() {
            let is_listed = match RelativePath::new(folder.path.clone()) {
                Ok(path) => self.folder.find(&path).is_some(),
                Err(_) => self.folder.top().is_some(),
            };
            if !is_listed && let Err(error) = self.tree.take_back(folder) {
                tracing::warn!(folder = %self.top().display(), %error, "cannot take back write permission");
            }
        }
        if let Some(top) = self.folder.top().copied()
            && let Err(source) = self.tree.finish_folder(b"", top.mode, top.modified)
        {
            let path = self.top().to_owned();
            return Err(FetchError::Disk { path, source });
        }
        Ok(())
    }

    /// Moves the new version, which is whole, to the place of the older one. If that is impossible,
    /// the older one stays as it is. Returns the folders there that were made writable.
    fn replace(&mut self, mut older: Tree, entries: &[Entry]) -> Result<Vec<Granted>, FetchError> {
        let blocked = |path: &RelativePath, why: String| FetchError::NotUpdated {
            path: format!("{path:?}"),
            why,
        };
        // An entry that did not come would stay as it is in the older version.
        let there = self.missing.iter().find(|path| {
            let found = older.stat(path);
            found.is_ok_and(|found| found.is_some())
        });
        if let Some(path) = there {
            let path_text = quoted(path.as_bytes());
            let refused = self.refused.iter().find(|one| one.path == path_text);
            let why = refused.map_or(String::new(), |one| one.why.clone());
            return Err(blocked(path, why));
        }
        for (index, entry) in entries.iter().enumerate() {
            if let Kind::Link { target } = &entry.kind {
                if older.read_same_link(&entry.path, target) {
                    self.stays[index] = true;
                    continue;
                }
                let made = self
                    .tree
                    .link(entry, target, Landing::Replacing)
                    .map_err(of_link);
                if let Err(error) = &made
                    && older.stat(&entry.path).is_ok_and(|found| found.is_some())
                {
                    return Err(blocked(&entry.path, error.to_string()));
                }
                self.note(index, made)?;
            }
        }
        let due: Vec<(&Entry, bool)> = entries.iter().zip(self.stays.iter().copied()).collect();
        let mut granted = Replacement::new(&mut older, &mut self.tree)
            .run(&due)
            .map_err(|hindrance| blocked(&hindrance.path, hindrance.error.to_string()))?;
        let staging = core::mem::replace(&mut self.tree, older);
        let _ = fs::remove_dir_all(staging.top());
        for (index, entry) in entries.iter().enumerate() {
            if self.stays[index] && matches!(entry.kind, Kind::File { .. }) {
                let mut touched = self.tree.touch(entry);
                if matches!(&touched, Err(error) if error.kind() == ErrorKind::PermissionDenied)
                    && let Ok(more) = self.tree.grant(entry.path.split().0)
                {
                    granted.extend(more);
                    touched = self.tree.touch(entry);
                }
                self.note(index, touched)?;
            }
        }
        Ok(granted)
    }

    fn make_links(&mut self, entries: &[Entry], landing: Landing) -> Result<(), FetchError> {
        for (index, entry) in entries.iter().enumerate() {
            if let Kind::Link { target } = &entry.kind
                && !self.tree.read_same_link(&entry.path, target)
            {
                let made = self.tree.link(entry, target, landing);
                self.note(index, made.map_err(of_link))?;
            }
        }
        Ok(())
    }
}

/// Says what it means that no link can be made.
fn of_link(error: io::Error) -> io::Error {
    use rustix::io::Errno;
    let none = [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS];
    match Errno::from_io_error(&error).filter(|errno| none.contains(errno)) {
        Some(_) => io::Error::other("this file system holds no symbolic links"),
        None => error,
    }
}

/// Refuses a folder that would take more room than the user allows, or unbelievably much more than
/// what would be fetched for it. Nothing of it has been written yet.
fn check_size(folder: &Folder, goal: &Goal) -> Result<(), FetchError> {
    let size = folder.size();
    let fetched = size.fetched.saturating_add(goal.listing_len);
    match goal.limit {
        Some(limit) if size.on_disk.max(fetched) > limit => Err(FetchError::FolderTooLarge {
            needed: size.on_disk.max(fetched),
            entries: size.entries,
            limit,
        }),
        None if size.on_disk > BELIEVABLE && size.on_disk / fetched.max(1) > MAX_RATIO => {
            Err(FetchError::Unbelievable {
                needed: size.on_disk,
                entries: size.entries,
                fetched,
            })
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns an error if the list gives `entry` another length than its content has: the sizes that
/// are reported would be wrong.
fn is_as_listed(entry: &Entry, length: u64) -> io::Result<()> {
    match entry.len() {
        listed if listed == length => Ok(()),
        listed => {
            let why = format!("it is {length} bytes long, the list says {listed}");
            Err(io::Error::other(why))
        }
    }
}

/// Returns true if everything in the folder at `top` is in `folder` too, byte for byte, so that it
/// is a part of the same version. Returns false if it cannot be read.
pub(super) fn is_part_of(top: &Path, folder: &Folder, listing: Guid) -> bool {
    let Ok(mut tree) = Tree::open(top, listing) else {
        return false;
    };
    let mut due = vec![(top.to_owned(), Vec::new())];
    while let Some((path, below)) = due.pop() {
        let Ok(items) = fs::read_dir(&path) else {
            return false;
        };
        for item in items {
            let Ok((kind, item)) = item.and_then(|item| Ok((item.file_type()?, item))) else {
                return false;
            };
            let mut relative: Vec<u8> = below.clone();
            if !relative.is_empty() {
                relative.push(b'/');
            }
            relative.extend_from_slice(item.file_name().as_bytes());
            let Ok(relative) = RelativePath::new(relative) else {
                return false;
            };
            let entry = folder.find(&relative).map(|at| &folder.entries()[at].kind);
            let is_same = match entry {
                Some(Kind::File {
                    length, content, ..
                }) => tree.has(&relative, *content, *length),
                Some(Kind::Link { target }) => tree.read_same_link(&relative, target),
                Some(Kind::Folder) => kind.is_dir(),
                None => kind.is_dir() && folder.has_below(&relative),
            };
            if !is_same {
                return false;
            }
            if kind.is_dir() {
                due.push((item.path(), relative.as_bytes().to_vec()));
            }
        }
    }
    true
}
