//! A new version of a folder takes the place of the older one: all of it, or nothing.

use std::io::{self, ErrorKind};

use rustix::fs::FileType;
use whimbrel_content::{Entry, Kind, RelativePath};

use super::tree::{Granted, Tree};

/// A change of the older version, for its undoing.
#[derive(Debug)]
enum Step {
    /// A folder was made.
    Made(RelativePath),
    /// An entry came to a free place.
    Moved(RelativePath),
    /// Two entries were exchanged.
    Exchanged(RelativePath),
    /// An entry that is no longer of its kind was put aside, under this number.
    Aside(RelativePath, usize),
    /// This user was given write permission.
    Granted(Granted),
}

/// The reason why the older version stays as it is.
#[derive(Debug)]
pub(super) struct Hindrance {
    /// The entry in question.
    pub(super) path: RelativePath,
    pub(super) error: io::Error,
}

/// The older version on its way to the newer one.
pub(super) struct Replacement<'a> {
    older: &'a mut Tree,
    /// Entries that leave the older version go here, at the same paths.
    newer: &'a mut Tree,
    steps: Vec<Step>,
    /// The folder that was looked at last, as neighbouring entries are in the same one.
    last: Option<Vec<u8>>,
    aside: usize,
}

impl<'a> Replacement<'a> {
    pub(super) fn new(older: &'a mut Tree, newer: &'a mut Tree) -> Replacement<'a> {
        Replacement {
            older,
            newer,
            steps: Vec::new(),
            last: None,
            aside: 0,
        }
    }

    /// Moves `entries`, all of which are in the newer version, to their places. If that fails, the
    /// older version is as it was. Returns the folders that were made writable for the moment.
    pub(super) fn run(mut self, entries: &[(&Entry, bool)]) -> Result<Vec<Granted>, Hindrance> {
        for (entry, stays) in entries {
            let moved = match entry.kind {
                Kind::Folder => self.folder(&entry.path),
                Kind::File { .. } | Kind::Link { .. } if *stays => Ok(()),
                Kind::File { .. } | Kind::Link { .. } => self.entry(&entry.path),
            };
            if let Err(error) = moved {
                self.undo();
                let path = entry.path.clone();
                return Err(Hindrance { path, error });
            }
        }
        let granted = self.steps.into_iter().filter_map(|step| match step {
            Step::Granted(granted) => Some(granted),
            _ => None,
        });
        Ok(granted.collect())
    }

    fn entry(&mut self, path: &RelativePath) -> io::Result<()> {
        let (parent, _) = path.split();
        if self.last.as_deref() != Some(parent) {
            for folder in folders_above(path) {
                self.folder(&folder)?;
            }
            self.last = Some(parent.to_owned());
        }
        if self.newer.stat(path)?.is_none() {
            // It was refused before, and the older version has nothing of this path.
            return Ok(());
        }
        self.with_access(path, |this| this.place(path))
    }

    fn place(&mut self, path: &RelativePath) -> io::Result<()> {
        match self.kind_in_older(path)? {
            None => {}
            Some(FileType::Directory) => {
                if !self.older.read_empty_folder(path)? {
                    return Err(io::Error::other(
                        "it is a folder with entries in the older version, and none in the new one: move it away",
                    ));
                }
                self.put_aside(path)?;
            }
            Some(_) => match self.older.exchange(self.newer, path) {
                Ok(()) => {
                    self.steps.push(Step::Exchanged(path.clone()));
                    return Ok(());
                }
                // Not every file system can do this. For a moment, nothing is in the place.
                Err(error) if is_unsupported(&error) => self.put_aside(path)?,
                Err(error) => return Err(error),
            },
        }
        self.older.take_over(self.newer, path)?;
        self.steps.push(Step::Moved(path.clone()));
        Ok(())
    }

    /// Makes a folder at `path` if none is there.
    fn folder(&mut self, path: &RelativePath) -> io::Result<()> {
        self.last = None;
        self.with_access(path, |this| {
            match this.kind_in_older(path)? {
                Some(FileType::Directory) => return Ok(()),
                Some(_) => this.put_aside(path)?,
                None => {}
            }
            this.older.make_folder(path, 0o777)?;
            this.steps.push(Step::Made(path.clone()));
            Ok(())
        })
    }

    fn kind_in_older(&mut self, path: &RelativePath) -> io::Result<Option<FileType>> {
        let found = self.older.stat(path)?;
        Ok(found.map(|found| FileType::from_raw_mode(found.st_mode)))
    }

    fn put_aside(&mut self, path: &RelativePath) -> io::Result<()> {
        loop {
            self.aside += 1;
            match self.older.put_aside(path, self.newer, self.aside) {
                // Of a run that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                put => {
                    put?;
                    self.steps.push(Step::Aside(path.clone(), self.aside));
                    return Ok(());
                }
            }
        }
    }

    /// Does something in the folder of `path`, after giving this user write permission there if it
    /// is missing.
    fn with_access(
        &mut self,
        path: &RelativePath,
        act: impl Fn(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        match act(self) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let granted = self.older.grant(path.split().0)?;
                if granted.is_empty() {
                    return Err(error);
                }
                self.steps.extend(granted.into_iter().map(Step::Granted));
                act(self)
            }
            done => done,
        }
    }

    fn undo(&mut self) {
        while let Some(step) = self.steps.pop() {
            let undone = match &step {
                Step::Made(path) => self.older.remove_folder(path),
                Step::Moved(path) => self.newer.take_over(self.older, path),
                Step::Exchanged(path) => self.older.exchange(self.newer, path),
                Step::Aside(path, number) => self.older.fetch_back(path, self.newer, *number),
                Step::Granted(granted) => self.older.take_back(granted),
            };
            if let Err(error) = undone {
                tracing::error!(folder = %self.older.top().display(), ?step, %error, "cannot undo a change of the older version");
            }
        }
    }
}

/// Returns the folders on the way to `path`, outermost first.
fn folders_above(path: &RelativePath) -> Vec<RelativePath> {
    let bytes = path.as_bytes();
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    ends.filter_map(|(end, _)| RelativePath::new(&bytes[..end]).ok())
        .collect()
}

fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let unsupported = [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP];
    Errno::from_io_error(error).is_some_and(|errno| unsupported.contains(&errno))
}
