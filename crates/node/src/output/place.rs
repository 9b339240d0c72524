//! The naming of finished files.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, RenameFlags, XattrFlags, fremovexattr, fsetxattr, lgetxattr, renameat, renameat_with,
};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::{OutputError, Target, check_writable, folder_of, set_mode};

/// Bound of the numbered names that are tried.
const MAX_NAMESAKES: u32 = 10_000;
/// The extended attribute that holds a POSIX access control list (`acl(5)`, `xattr(7)`).
const ACL: &str = "system.posix_acl_access";
/// The kernel's limit of an extended attribute, in bytes (`xattr(7)`).
const MAX_ACL_LEN: usize = 65_536;

/// A file that has its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// The path for the user.
    pub path: PathBuf,
    /// False if the file system did not let it have the permissions of the file that it replaced.
    pub keeps_mode: bool,
}

/// The place of a finished file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// This path, in place of a file that exists: the user has named it.
    Replacing(Target),
    /// This path, or a numbered one if it exists: the source has named it.
    Beside(PathBuf),
}

impl Place {
    /// Returns the folder of the file.
    pub fn folder(&self) -> &Path {
        match self {
            Place::Replacing(target) => target.folder(),
            Place::Beside(path) => folder_of(path),
        }
    }

    /// Returns the wanted path, as the user knows it.
    pub fn wanted(&self) -> &Path {
        match self {
            Place::Replacing(target) => target.named(),
            Place::Beside(path) => path,
        }
    }

    /// Returns the error for a hidden file that the folder does not take: it names what the user knows.
    pub fn refused(&self, source: io::Error) -> OutputError {
        OutputError::NotInFolder {
            path: self.wanted().to_owned(),
            folder: self.folder().to_owned(),
            source,
        }
    }

    /// Creates a hidden file with an unpredictable name in that folder. It is removed when it is
    /// dropped.
    pub fn temporary(&self) -> Result<NamedTempFile, OutputError> {
        let name = match self {
            Place::Replacing(target) => target.path.file_name(),
            Place::Beside(path) => path.file_name(),
        };
        let file = tempfile::Builder::new()
            .prefix(&format!(".{}.", name.unwrap_or_default().to_string_lossy()))
            .suffix(".part")
            // The errors of `tempfile_in` name the hidden file.
            .make_in(self.folder(), |path| {
                let mut options = OpenOptions::new();
                // The system applies the user's mask.
                options.read(true).write(true).create_new(true).mode(0o666);
                options.open(path)
            })
            .map_err(|error| self.refused(error))?;
        self.withhold(file.as_file())?;
        Ok(file)
    }

    /// Hides `file` on its way from all who may not read the file that it will replace.
    /// Where the file system keeps no permissions, it cannot be hidden.
    pub fn withhold(&self, file: &File) -> Result<(), OutputError> {
        let Place::Replacing(target) = self else {
            return Ok(());
        };
        let Ok(old) = fs::symlink_metadata(&target.path) else {
            return Ok(());
        };
        let failed = |source| OutputError::system(&target.path)(source);
        let mode = file.metadata().map_err(failed)?.mode() & old.mode() & 0o777;
        set_mode(file, mode | 0o600).map(drop).map_err(failed)
    }

    /// Gives `file`, which lies at `from`, its name.
    pub fn publish(&self, file: &File, from: &Path) -> Result<Published, OutputError> {
        let mut keeps_mode = true;
        match self {
            Place::Replacing(target) => {
                let failed = |source| OutputError::system(&target.path)(source);
                match fs::symlink_metadata(&target.path) {
                    Ok(old) if old.is_file() => {
                        check_writable(&target.path)?;
                        keeps_mode = adopt(file, &target.path, &old).map_err(failed)?;
                    }
                    Ok(_) => return Err(OutputError::NoLongerAFile(target.named.clone())),
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(failed(error)),
                }
                fs::rename(from, &target.path).map_err(failed)?;
                let path = target.named.clone();
                Ok(Published { path, keeps_mode })
            }
            Place::Beside(wanted) => {
                let path = rename_beside(from, wanted)?;
                Ok(Published { path, keeps_mode })
            }
        }
    }
}

/// Gives `file` the permissions and, where the system allows, the owner of the file it replaces.
/// Returns false if the file system does not keep the permissions.
fn adopt(file: &File, path: &Path, old: &Metadata) -> io::Result<bool> {
    let new = file.metadata()?;
    let mut mode = old.mode() & 0o777;
    let has_group = (new.uid(), new.gid()) == (old.uid(), old.gid())
        || fchown(file, Some(old.uid()), Some(old.gid())).is_ok()
        || fchown(file, None, Some(old.gid())).is_ok();
    if !has_group || !copy_acl(path, file) {
        // The group is another one, or its bits are the most that any entry of the list allows: the
        // group gets no more than all others.
        mode = mode & 0o707 | (mode & 0o007) << 3;
    }
    set_mode(file, mode)
}

/// Gives `to` the access control list of the file at `from`, or removes it if that has none.
/// Returns false if that fails.
fn copy_acl(from: &Path, to: &File) -> bool {
    let mut list = vec![0; MAX_ACL_LEN];
    match lgetxattr(from, ACL, &mut list[..]) {
        Ok(length) => fsetxattr(to, ACL, &list[..length], XattrFlags::empty()).is_ok(),
        Err(Errno::NODATA) => {
            // The folder may have given it a default list.
            matches!(fremovexattr(to, ACL), Ok(()) | Err(Errno::NODATA))
        }
        // This file system has no such lists.
        Err(Errno::OPNOTSUPP) => true,
        Err(_) => false,
    }
}

/// Renames without replacing anything: `name`, `name-2`, `name-3`, ...
fn rename_beside(from: &Path, wanted: &Path) -> Result<PathBuf, OutputError> {
    for number in 1..MAX_NAMESAKES {
        let to = namesake(wanted, number);
        match renameat_with(CWD, from, CWD, &to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(to),
            Err(Errno::EXIST) => {}
            // Not every file system can do this; another process may then be faster.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                if fs::symlink_metadata(&to).is_ok() {
                    continue;
                }
                let moved = renameat(CWD, from, CWD, &to).map_err(io::Error::from);
                match (moved, with_plain_name(wanted)) {
                    (Ok(()), _) => return Ok(to),
                    (Err(error), Some(plain)) if is_refused_name(&error) => {
                        return rename_beside(from, &plain);
                    }
                    (Err(error), _) => return Err(OutputError::system(&to)(error)),
                }
            }
            Err(error) => return Err(OutputError::system(&to)(error.into())),
        }
    }
    Err(OutputError::system(wanted)(ErrorKind::AlreadyExists.into()))
}

/// Returns true if an error may say that a file system does not take a name, as exFAT and FAT do with
/// some characters.
pub fn is_refused_name(error: &io::Error) -> bool {
    let codes = [Errno::INVAL, Errno::ILSEQ].map(|code| Some(code.raw_os_error()));
    codes.contains(&error.raw_os_error())
}

/// Returns a path in the same folder with a name that any file system takes (the exFAT specification,
/// section 7.7.3; spaces and dots at the end are lost on FAT); `None` if it has such a one.
pub fn with_plain_name(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy();
    let is_plain = |it: char| !it.is_control() && !"\"*/:<>?\\|\u{fffd}".contains(it);
    let plain = name.replace(|it| !is_plain(it), "_");
    let ends = plain.trim_end_matches([' ', '.']).len();
    let plain = plain[..ends].to_owned() + &"_".repeat(plain.len() - ends);
    (plain != name).then(|| path.with_file_name(plain))
}

/// Returns `dir/name-2.ext` for `dir/name.ext` and 2; the name itself for 1.
pub fn namesake(path: &Path, number: u32) -> PathBuf {
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
    fn a_plain_name_has_no_character_that_a_file_system_refuses() {
        for (name, expected) in [
            ("film.mkv", None),
            ("12:30 \"talk\"?.ogg", Some("12_30 _talk__.ogg")),
            ("back\\slash\n", Some("back_slash_")),
            ("end. .", Some("end___")),
            ("\u{e9}t\u{e9}", None),
        ] {
            let expected = expected.map(|name| Path::new("a:b").join(name));
            assert_eq!(with_plain_name(&Path::new("a:b").join(name)), expected);
        }
    }
}
