//! The destination of fetched content, for every command that fetches. An existing output is
//! examined once, before anything is fetched: a device or a FIFO is written into, a link is
//! followed, a file is replaced when the new one is whole, and a folder takes the content.

mod permissions;
mod place;
mod special;

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::diagnostics;

pub(crate) use permissions::set_mode;
pub use place::{Place, Published, is_refused_name, namesake, with_plain_name};

/// Links in a row that are followed, as many as the kernel does (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// The help text about `-o`.
pub const HELP: &str = "\
A file appears when it is whole. It replaces one that is there, whose permissions it keeps (not the set-user-ID and \
set-group-ID bits), for root also the owner. A write-protected file is refused before anything is fetched; root \
may replace it, as with cp. A link is followed: what it leads to is written, and the link stays. A device or a \
FIFO is written into as the content arrives, and is never replaced or removed.

Into an existing folder, or a path that ends in /, the content goes under its own name, be it a file or a folder. \
A folder is merged with one of its name. Nothing there is replaced: a file whose name is taken becomes name-2.";

/// The reason why an output cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// This user may not write to the file.
    #[error("{} is write-protected: it stays as it is", .0.display())]
    WriteProtected(PathBuf),
    /// A socket cannot be opened as a file.
    #[error("{} is a socket, which cannot be written to as a file", .0.display())]
    Socket(PathBuf),
    /// A link in a folder such as /tmp that belongs neither to this user nor to the folder's owner.
    #[error("{} is another user's link in a folder that all may write to: it is not followed", .0.display())]
    StrangersLink(PathBuf),
    /// The folder for it does not exist.
    #[error("cannot write {}: there is no folder {}", path.display(), folder.display())]
    NoFolder {
        /// The output.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// The folder does not let this user make a file, or is not of a kind that holds any.
    #[error("cannot write {}: the folder {} takes no new file: {source}", path.display(), folder.display())]
    NotInFolder {
        /// The output.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// During the fetch, something other than a file has come there.
    #[error("{} is no longer a file: it stays as it is", .0.display())]
    NoLongerAFile(PathBuf),
    /// The system refuses.
    #[error("cannot write {}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The program was told to stop before another one read the FIFO.
    #[error("interrupted")]
    Interrupted,
}

impl OutputError {
    fn system(path: &Path) -> impl FnOnce(io::Error) -> OutputError {
        let path = path.to_owned();
        move |source| OutputError::System { path, source }
    }
}

/// The destination of a content.
pub enum Destination {
    /// In order, as it arrives.
    Stream(Stream),
    /// A file that appears when it is whole, or a folder of this name if the content is a folder.
    Named(Target),
    /// A place in a folder, under a name that is known later. Replaces nothing.
    Within(Within),
}

/// An output that takes bytes in order and cannot leave room for missing ones.
pub struct Stream {
    /// Takes the bytes.
    pub writer: Box<dyn Write + Send>,
    /// The device or FIFO; `None` for standard output.
    pub path: Option<PathBuf>,
}

/// A path that holds a file, or nothing yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The path as the user named it.
    named: PathBuf,
    /// The path that it leads to, which is not a link.
    path: PathBuf,
}

/// A folder that takes the content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Within {
    folder: PathBuf,
    /// True if it does not exist yet.
    is_new: bool,
}

/// A folder that was made for an output. It is removed on drop if it is empty.
#[derive(Debug)]
pub struct MadeFolder(PathBuf);

impl Drop for MadeFolder {
    fn drop(&mut self) {
        // A folder that is not empty stays.
        let _ = fs::remove_dir(&self.0);
    }
}

impl Destination {
    /// Examines `path`; `-` is standard output. Opens a device. Opens a FIFO once a program reads
    /// it, and waits for that until `stop` is set.
    pub fn open(path: &Path, stop: &AtomicBool) -> Result<Destination, OutputError> {
        if path.as_os_str() == "-" {
            return Ok(Destination::Stream(Stream::stdout()));
        }
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Ok(Destination::Within(Within {
                folder: path.to_owned(),
                is_new: false,
            })),
            Ok(found) if is_stdout(&found) => Ok(Destination::Stream(Stream::stdout())),
            Ok(found) if found.is_file() => Target::existing(path, &found).map(Destination::Named),
            Ok(found) => special::open(path, &found, stop).map(Destination::Stream),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(OutputError::system(path)(error))
            }
            Err(_) if path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
                Ok(Destination::Within(Within {
                    folder: path.to_owned(),
                    is_new: true,
                }))
            }
            Err(_) => Target::missing(path).map(Destination::Named),
        }
    }

    /// Returns true for an output that takes bytes in order and cannot resume.
    pub fn is_stream(&self) -> bool {
        matches!(self, Destination::Stream(_))
    }

    /// Returns true for standard output: messages must not go there too.
    pub fn is_stdout(&self) -> bool {
        matches!(self, Destination::Stream(stream) if stream.path.is_none())
    }
}

impl Stream {
    /// Returns standard output.
    pub fn stdout() -> Stream {
        Stream {
            writer: Box::new(diagnostics::Content),
            path: None,
        }
    }
}

impl Target {
    fn existing(named: &Path, found: &Metadata) -> Result<Target, OutputError> {
        let path = followed(named)?;
        // The target of a name in /proc need not have a name of its own.
        let there = fs::symlink_metadata(&path).map_err(OutputError::system(named))?;
        if !is_same(&there, found) {
            return Err(OutputError::system(named)(ErrorKind::NotFound.into()));
        }
        check_writable(&path)?;
        Ok(Target {
            named: named.to_owned(),
            path,
        })
    }

    fn missing(named: &Path) -> Result<Target, OutputError> {
        let path = followed(named)?;
        if path.file_name().is_none() {
            return Err(OutputError::system(named)(ErrorKind::InvalidInput.into()));
        }
        let target = Target {
            named: named.to_owned(),
            path,
        };
        if !target.folder().is_dir() {
            return Err(OutputError::NoFolder {
                path: named.to_owned(),
                folder: target.folder().to_owned(),
            });
        }
        Ok(target)
    }

    /// Returns the path as the user named it.
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// Returns the path that it leads to, which is not a link.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its folder, where files on their way to it belong.
    pub fn folder(&self) -> &Path {
        folder_of(&self.path)
    }
}

impl Within {
    /// Returns the folder that takes the content.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the same path as a target, for a folder that an earlier run may have made; `None`
    /// for a path without a name, such as `.` and `/`.
    pub fn as_target(&self) -> Option<Target> {
        let path = followed(&self.folder).ok()?;
        path.file_name()?;
        Some(Target {
            named: self.folder.clone(),
            path,
        })
    }

    /// Makes the folder if it does not exist. The returned value lasts as long as the fetch.
    pub fn make(&self) -> Result<Option<MadeFolder>, OutputError> {
        if !self.is_new {
            return Ok(None);
        }
        fs::create_dir(&self.folder).map_err(OutputError::system(&self.folder))?;
        Ok(Some(MadeFolder(self.folder.clone())))
    }
}

/// Returns a suggested name in a form that is safe to create: one component, visible, no control
/// characters; `None` if nothing is left of it.
pub fn safe_name(suggested: &str) -> Option<String> {
    let mut name: String = suggested
        .chars()
        .filter(|c| !c.is_control() && *c != '/')
        .collect();
    if name.starts_with('.') {
        name.replace_range(..1, "_");
    }
    Some(name).filter(|name| !name.is_empty() && name.len() <= 255)
}

/// Returns the path to which the links at the end of `path` lead; it need not exist.
fn followed(path: &Path) -> Result<PathBuf, OutputError> {
    // Without a slash at the end, which would hide a link.
    let mut at: PathBuf = path.components().collect();
    for _ in 0..MAX_LINKS {
        match fs::symlink_metadata(&at) {
            Ok(found) if found.is_symlink() => {
                check_link(&at, &found)?;
                let to = fs::read_link(&at).map_err(OutputError::system(path))?;
                at = folder_of(&at).join(to);
            }
            Ok(_) => return Ok(at),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(at),
            Err(error) => return Err(OutputError::system(path)(error)),
        }
    }
    Err(OutputError::system(path)(rustix::io::Errno::LOOP.into()))
}

/// Applies the kernel's rule `fs.protected_symlinks` even where it is switched off: in a sticky
/// folder that all may write to, a link is followed only if it belongs to this user or to the
/// folder's owner.
fn check_link(link: &Path, found: &Metadata) -> Result<(), OutputError> {
    let folder = fs::metadata(folder_of(link)).map_err(OutputError::system(link))?;
    let is_shared = folder.mode() & 0o1002 == 0o1002;
    let caller = rustix::process::geteuid().as_raw();
    if is_shared && found.uid() != caller && found.uid() != folder.uid() {
        return Err(OutputError::StrangersLink(link.to_owned()));
    }
    Ok(())
}

/// Refuses a file without write permission, although a new one could be renamed over it.
fn check_writable(path: &Path) -> Result<(), OutputError> {
    use rustix::io::Errno;
    match accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) => Ok(()),
        Err(Errno::ACCESS | Errno::PERM) => Err(OutputError::WriteProtected(path.to_owned())),
        Err(error) => Err(OutputError::system(path)(error.into())),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Returns true for `/dev/stdout` and every other name of standard output: opened anew, a
/// redirected file would be replaced while the shell's redirection writes to the old one.
fn is_stdout(found: &Metadata) -> bool {
    rustix::fs::fstat(io::stdout())
        .is_ok_and(|stdout| (stdout.st_dev, stdout.st_ino) == (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests;
