//! The folder that is written to, by handles: no link in it is ever followed, whoever made it.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawMode, RenameFlags, Stat, Timespec, Timestamps,
    UTIME_OMIT, chmodat, fstat, futimens, mkdirat, openat, readlinkat, renameat, renameat_with,
    statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use whimbrel_content::folder::MODE_BITS;
use whimbrel_content::{Entry, Modified, RelativePath, Top};
use whimbrel_core::Guid;

use super::part::check_space;
use crate::output::set_mode;

/// Permissions of a new folder that the list says nothing of, less the user's mask.
const ANY_MODE: RawMode = 0o777;
/// What its owner needs to work in a folder.
const OWNER: RawMode = 0o700;
const PERMISSIONS: RawMode = MODE_BITS as RawMode;
/// Permissions, and the bits of a folder that its parent may have given it.
const ALL_BITS: RawMode = 0o7777;

/// A folder and its contents.
#[derive(Debug)]
pub(super) struct Tree {
    top: PathBuf,
    root: OwnedFd,
    /// The folder that was used last, because neighbouring entries follow each other.
    last: Option<(Box<[u8]>, OwnedFd)>,
    /// The name of a file on its way to its place. A file that a killed run has left there is
    /// removed by the next run. No listing can contain this name, because it includes the listing's
    /// own name.
    hidden: Vec<u8>,
    /// True once the file system has not kept permissions.
    loses_modes: bool,
}

/// A folder in which this user was given write permission for the moment, and its permissions
/// before that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Granted {
    /// Its path; empty for the topmost folder.
    pub(super) path: Vec<u8>,
    mode: RawMode,
}

/// The way in which a new entry takes its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Landing {
    /// Nothing may exist there.
    Free,
    /// It replaces a file or a link.
    Replacing,
}

impl Tree {
    /// Makes the folder if it does not exist. It may be the target of a link, because the user has
    /// named it. It is as private as its own record says from the beginning.
    pub(super) fn make(top: &Path, listing: Guid, own: Option<&Top>) -> io::Result<Tree> {
        let mode = own.map_or(ANY_MODE, |own| RawMode::from(own.mode) | OWNER);
        Tree::make_with(top, listing, mode)
    }

    /// Makes a folder that only this user can look into, if it does not exist.
    pub(super) fn make_private(top: &Path, listing: Guid) -> io::Result<Tree> {
        Tree::make_with(top, listing, OWNER)
    }

    fn make_with(top: &Path, listing: Guid, mode: RawMode) -> io::Result<Tree> {
        DirBuilder::new().recursive(true).mode(mode).create(top)?;
        Tree::open(top, listing)
    }

    pub(super) fn open(top: &Path, listing: Guid) -> io::Result<Tree> {
        let root = openat(CWD, top, FOLDER, Mode::empty())?;
        Ok(Tree {
            top: top.to_owned(),
            root,
            last: None,
            hidden: format!(".{listing}.part").into_bytes(),
            loses_modes: false,
        })
    }

    pub(super) fn top(&self) -> &Path {
        &self.top
    }

    /// Returns an error if its file system says that it has less room than `needed` bytes.
    pub(super) fn check_space(&self, needed: u64) -> io::Result<()> {
        check_space(&self.root, needed)
    }

    /// Returns true once the file system has not kept permissions.
    pub(super) fn loses_modes(&self) -> bool {
        self.loses_modes
    }

    /// Returns the folder at `path`, the topmost one if that is empty; makes missing folders if
    /// `make`.
    fn folder(&mut self, path: &[u8], make: bool) -> io::Result<BorrowedFd<'_>> {
        if path.is_empty() {
            return Ok(self.root.as_fd());
        }
        if self.last.as_ref().is_none_or(|(last, _)| **last != *path) {
            let mut at: Option<OwnedFd> = None;
            for name in path.split(|byte| *byte == b'/') {
                let from = at.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
                let next = match openat(from, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
                    Err(Errno::NOENT) if make => {
                        match mkdirat(from, name, Mode::from_raw_mode(0o777)) {
                            Ok(()) | Err(Errno::EXIST) => {}
                            Err(error) => return Err(error.into()),
                        }
                        openat(from, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?
                    }
                    found => found?,
                };
                at = Some(next);
            }
            let Some(folder) = at else {
                return Ok(self.root.as_fd());
            };
            self.last = Some((path.into(), folder));
        }
        Ok(self
            .last
            .as_ref()
            .map_or(self.root.as_fd(), |(_, folder)| folder.as_fd()))
    }

    /// Makes a folder that is writable while it is filled. Accepts an existing one.
    pub(super) fn make_folder(&mut self, path: &RelativePath, mode: u16) -> io::Result<()> {
        let (parent, name) = path.split();
        let parent = self.folder(parent, true)?;
        match mkdirat(
            parent,
            name,
            Mode::from_raw_mode(RawMode::from(mode) | 0o700),
        ) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => match kind_at(parent, name)? {
                Some(FileType::Directory) => Ok(()),
                _ => Err(io::ErrorKind::AlreadyExists.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a folder its permissions, as far as the user's mask has left them, and its time. The
    /// topmost folder has an empty path.
    pub(super) fn finish_folder(
        &mut self,
        path: &[u8],
        mode: u16,
        modified: Modified,
    ) -> io::Result<()> {
        let folder = self.folder(path, false)?;
        let now = fstat(folder)?.st_mode as RawMode & ALL_BITS;
        let kept = now & (RawMode::from(mode) | !PERMISSIONS);
        let keeps = kept == now || set_mode(folder, kept)?;
        set_time(folder, modified);
        self.loses_modes |= !keeps;
        Ok(())
    }

    /// Gives this user write permission in the folder at `path` and in those on the way to it, where
    /// it has none and owns them.
    pub(super) fn grant(&mut self, path: &[u8]) -> io::Result<Vec<Granted>> {
        self.last = None;
        let mut granted = Vec::new();
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut ends: Vec<usize> = ends.map(|(at, _)| at).collect();
        ends.insert(0, 0);
        if !path.is_empty() {
            ends.push(path.len());
        }
        for end in ends {
            let path = &path[..end];
            let Some(mode) = self.mode_of(path)? else {
                break;
            };
            if mode & OWNER != OWNER {
                self.change_mode(path, mode | OWNER)?;
                let path = path.to_owned();
                granted.push(Granted { path, mode });
            }
        }
        Ok(granted)
    }

    /// Takes write permission back.
    pub(super) fn take_back(&mut self, granted: &Granted) -> io::Result<()> {
        self.last = None;
        self.change_mode(&granted.path, granted.mode)
    }

    /// Returns the permissions of the folder at `path`, or `None` if there is no folder.
    fn mode_of(&mut self, path: &[u8]) -> io::Result<Option<RawMode>> {
        let found = if path.is_empty() {
            Some(fstat(&self.root)?)
        } else {
            let (parent, name) = split(path);
            stat_at(self.folder(parent, false)?, name)?
        };
        let is_folder =
            |found: &Stat| FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        Ok(found
            .filter(is_folder)
            .map(|found| found.st_mode as RawMode & ALL_BITS))
    }

    /// Sets the permissions of a folder that may be unreadable, and so cannot be opened.
    fn change_mode(&mut self, path: &[u8], mode: RawMode) -> io::Result<()> {
        if path.is_empty() {
            set_mode(&self.root, mode)?;
            return Ok(());
        }
        let (parent, name) = split(path);
        let parent = self.folder(parent, false)?;
        Ok(chmodat(
            parent,
            name,
            Mode::from_raw_mode(mode),
            AtFlags::empty(),
        )?)
    }

    /// Removes an empty folder.
    pub(super) fn remove_folder(&mut self, path: &RelativePath) -> io::Result<()> {
        self.last = None;
        let (parent, name) = path.split();
        let parent = self.folder(parent, false)?;
        Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Returns true if the folder at `path` has no entries.
    pub(super) fn read_empty_folder(&mut self, path: &RelativePath) -> io::Result<bool> {
        let folder = self.folder(path.as_bytes(), false)?;
        for entry in rustix::fs::Dir::read_from(folder)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes a small file and gives it its place.
    pub(super) fn write(
        &mut self,
        entry: &Entry,
        bytes: &[u8],
        landing: Landing,
    ) -> io::Result<()> {
        self.put(entry, landing, |file| file.write_all(bytes))
    }

    /// Copies a file that is there already to another place.
    pub(super) fn copy(
        &mut self,
        from: &RelativePath,
        entry: &Entry,
        landing: Landing,
    ) -> io::Result<()> {
        let mut source = self.read(from)?;
        self.put(entry, landing, |file| {
            io::copy(&mut source, file).map(|_| ())
        })
    }

    /// Makes a file under a temporary name, lets `fill` write it, and moves it to its place.
    fn put(
        &mut self,
        entry: &Entry,
        landing: Landing,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let (parent, name) = entry.path.split();
        let temporary = self.hidden.clone();
        let folder = self.folder(parent, true)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(entry.mode.into());
        let file = afresh(folder, &temporary, || {
            openat(folder, &*temporary, flags | OFlags::CLOEXEC, mode)
        })?;
        let mut file = File::from(file);
        let placed = fill(&mut file).and_then(|()| {
            set_time(&file, entry.modified);
            move_to(folder, &temporary, folder, name, landing)
        });
        if placed.is_err() {
            let _ = unlinkat(folder, &*temporary, AtFlags::empty());
        }
        placed
    }

    /// Gives a finished file at `from`, outside of this folder, its permissions, time and place.
    pub(super) fn adopt(
        &mut self,
        file: &File,
        from: &Path,
        entry: &Entry,
        landing: Landing,
    ) -> io::Result<()> {
        self.set_mode_of(file, entry)?;
        set_time(file, entry.modified);
        let (parent, name) = entry.path.split();
        let folder = self.folder(parent, true)?;
        move_to(CWD, from.as_os_str().as_bytes(), folder, name, landing)
    }

    /// Makes a symbolic link.
    pub(super) fn link(
        &mut self,
        entry: &Entry,
        target: &[u8],
        landing: Landing,
    ) -> io::Result<()> {
        let (parent, name) = entry.path.split();
        let temporary = self.hidden.clone();
        let folder = self.folder(parent, true)?;
        afresh(folder, &temporary, || {
            symlinkat(target, folder, &*temporary)
        })?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        // Not every file system keeps times of links.
        let _ = utimensat(folder, &*temporary, &times(entry.modified), flags);
        let placed = move_to(folder, &temporary, folder, name, landing);
        if placed.is_err() {
            let _ = unlinkat(folder, &*temporary, AtFlags::empty());
        }
        placed
    }

    /// Moves the entry at `path` in `from` to the same path here, where nothing is.
    pub(super) fn take_over(&mut self, from: &mut Tree, path: &RelativePath) -> io::Result<()> {
        let (parent, name) = path.split();
        let there = from.folder(parent, false)?;
        let here = self.folder(parent, false)?;
        move_to(there, name, here, name, Landing::Free)
    }

    /// Exchanges the entries at `path` here and in `other`, in one step.
    pub(super) fn exchange(&mut self, other: &mut Tree, path: &RelativePath) -> io::Result<()> {
        let (parent, name) = path.split();
        let there = other.folder(parent, false)?;
        let here = self.folder(parent, false)?;
        Ok(renameat_with(
            there,
            name,
            here,
            name,
            RenameFlags::EXCHANGE,
        )?)
    }

    /// Moves the entry at `path` to a hidden name in `other`, which no listing contains.
    pub(super) fn put_aside(
        &mut self,
        path: &RelativePath,
        other: &Tree,
        number: usize,
    ) -> io::Result<()> {
        self.last = None;
        let (parent, name) = path.split();
        let here = self.folder(parent, false)?;
        let aside = other.aside(number);
        move_to(here, name, other.root.as_fd(), &aside, Landing::Free)
    }

    /// Moves an entry back from there.
    pub(super) fn fetch_back(
        &mut self,
        path: &RelativePath,
        other: &Tree,
        number: usize,
    ) -> io::Result<()> {
        self.last = None;
        let (parent, name) = path.split();
        let here = self.folder(parent, false)?;
        let aside = other.aside(number);
        move_to(other.root.as_fd(), &aside, here, name, Landing::Free)
    }

    fn aside(&self, number: usize) -> Vec<u8> {
        let mut name = self.hidden.clone();
        name.extend_from_slice(format!(".{number}").as_bytes());
        name
    }

    /// Gives a file with the right bytes its permissions and time.
    pub(super) fn touch(&mut self, entry: &Entry) -> io::Result<()> {
        let file = self.read(&entry.path)?;
        self.set_mode_of(&file, entry)?;
        set_time(&file, entry.modified);
        Ok(())
    }

    /// Gives a file the permissions of the entry, less those that the user's mask denies to a new
    /// file.
    fn set_mode_of(&mut self, file: &File, entry: &Entry) -> io::Result<()> {
        let mode = |stat: Stat| stat.st_mode as RawMode & PERMISSIONS;
        let now = mode(fstat(file)?);
        if now == RawMode::from(entry.mode) {
            return Ok(());
        }
        // The system does not reveal the mask without changing it.
        let probe = self.hidden.clone();
        let folder = self.folder(entry.path.split().0, true)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = afresh(folder, &probe, || {
            openat(
                folder,
                &*probe,
                flags,
                Mode::from_raw_mode(entry.mode.into()),
            )
        })?;
        let wanted = mode(fstat(made)?);
        unlinkat(folder, &*probe, AtFlags::empty())?;
        self.loses_modes |= !set_mode(file, wanted)?;
        Ok(())
    }

    /// Returns the metadata of the entry at `path`, or `None` if there is none.
    pub(super) fn stat(&mut self, path: &RelativePath) -> io::Result<Option<Stat>> {
        let (parent, name) = path.split();
        let folder = match self.folder(parent, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            folder => folder?,
        };
        stat_at(folder, name)
    }

    fn read(&mut self, path: &RelativePath) -> io::Result<File> {
        let (parent, name) = path.split();
        let folder = self.folder(parent, false)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(folder, name, flags, Mode::empty())?.into())
    }

    /// Returns true if the file at `path` has these bytes.
    pub(super) fn has(&mut self, path: &RelativePath, content: Guid, length: u64) -> bool {
        let is_file = |stat: Stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                && stat.st_size as u64 == length
        };
        if !self
            .stat(path)
            .is_ok_and(|found| found.is_some_and(is_file))
        {
            return false;
        }
        let Ok(mut file) = self.read(path) else {
            return false;
        };
        let mut hasher = blake3::Hasher::new();
        if length > 1 << 16 {
            return hasher.update_reader(file).is_ok() && hasher.finalize() == content.0;
        }
        let mut bytes = Vec::with_capacity(length as usize + 1);
        file.read_to_end(&mut bytes).is_ok() && blake3::hash(&bytes) == content.0
    }

    /// Returns true if the link at `path` leads to `target`.
    pub(super) fn read_same_link(&mut self, path: &RelativePath, target: &[u8]) -> bool {
        let (parent, name) = path.split();
        self.folder(parent, false).is_ok_and(|folder| {
            readlinkat(folder, name, Vec::new()).is_ok_and(|found| found.as_bytes() == target)
        })
    }
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

fn stat_at(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Stat>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn kind_at(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<FileType>> {
    Ok(stat_at(folder, name)?.map(|found| FileType::from_raw_mode(found.st_mode)))
}

/// Renames the entry at `from` in one step.
fn move_to(
    from_folder: BorrowedFd<'_>,
    from: &[u8],
    folder: BorrowedFd<'_>,
    name: &[u8],
    landing: Landing,
) -> io::Result<()> {
    if landing == Landing::Replacing {
        return Ok(renameat(from_folder, from, folder, name)?);
    }
    match renameat_with(from_folder, from, folder, name, RenameFlags::NOREPLACE) {
        // Not every file system can do this; another process may then be faster.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match stat_at(folder, name)? {
            None => Ok(renameat(from_folder, from, folder, name)?),
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
        },
        moved => Ok(moved?),
    }
}

/// Makes something under the hidden name, in place of what a killed run has left there.
fn afresh<T>(
    folder: BorrowedFd<'_>,
    name: &[u8],
    make: impl Fn() -> rustix::io::Result<T>,
) -> io::Result<T> {
    match make() {
        Err(Errno::EXIST) => {
            unlinkat(folder, name, AtFlags::empty())?;
            Ok(make()?)
        }
        made => Ok(made?),
    }
}

/// Sets the time of modification. Not every file system keeps it, or lets this user set it; a file
/// without its time is better than no file.
fn set_time(file: impl AsFd, modified: Modified) {
    let _ = futimens(file, &times(modified));
}

/// Returns the path of the folder that a path is in, empty for the topmost one, and the name there.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

fn times(modified: Modified) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    }
}
