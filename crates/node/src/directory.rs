//! The directory of names of this user: the file, and what people type in place of a name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use whimbrel_core::{Guid, ParseGuidError, suggest};
use whimbrel_gnrs::alias::{Alias, AliasError};
use whimbrel_gnrs::directory::Directory;
use whimbrel_keychain::ownership::ForeignPath;
use whimbrel_keychain::small_file;

use whimbrel_client::place::{FolderError, Places, check_own, make_folder_of};

/// Names the file of the directory, in place of that of this user.
pub const NAMES_VARIABLE: &str = "WHIMBREL_NAMES";

/// The file of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryFile(PathBuf);

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryFileError {
    /// Another user could have prepared the file: they would choose what an alias stands for.
    #[error(transparent)]
    Foreign(#[from] ForeignPath),
    /// It cannot be read.
    #[error("cannot read the directory of names {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: io::Error,
    },
    /// It is damaged.
    #[error("the directory of names {} is damaged ({source}): move it away, or correct it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: serde_json::Error,
    },
    /// It cannot be written.
    #[error("cannot write the directory of names {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: io::Error,
    },
}

impl DirectoryFile {
    /// The file at this path.
    pub fn at(path: impl Into<PathBuf>) -> DirectoryFile {
        DirectoryFile(path.into())
    }

    /// The file of this user, or that which [`NAMES_VARIABLE`] names.
    pub fn of_this_user() -> DirectoryFile {
        match std::env::var_os(NAMES_VARIABLE) {
            Some(path) if !path.is_empty() => DirectoryFile(path.into()),
            _ => DirectoryFile(Places::of_this_user().state.join("names.json")),
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads it. A file that is absent is an empty directory.
    pub fn read(&self) -> Result<Directory, DirectoryFileError> {
        check_own(&self.0)?;
        let path = || self.0.clone();
        match small_file::read_text(&self.0) {
            Ok(text) => serde_json::from_str(&text).map_err(|source| DirectoryFileError::Damaged {
                path: path(),
                source,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Directory::default()),
            Err(source) => Err(DirectoryFileError::Read {
                path: path(),
                source,
            }),
        }
    }

    /// Changes it: two programs that do so at the same time do it one after the other. Nothing is
    /// written if `change` fails.
    pub fn change<T, E: From<DirectoryFileError>>(
        &self,
        change: impl FnOnce(&mut Directory) -> Result<T, E>,
    ) -> Result<T, E> {
        make_folder_of(&self.0).map_err(|error| match error {
            FolderError::Foreign(foreign) => DirectoryFileError::Foreign(foreign),
            FolderError::Make { source, .. } => self.unwritten(source),
        })?;
        let lock = self.lock().map_err(|source| self.unwritten(source))?;
        let mut directory = self.read()?;
        let before = directory.clone();
        let outcome = change(&mut directory)?;
        if directory != before {
            let written = serde_json::to_vec(&directory)
                .map_err(io::Error::from)
                .and_then(|text| small_file::write(&self.0, &text));
            written.map_err(|source| self.unwritten(source))?;
        }
        drop(lock);
        Ok(outcome)
    }

    fn unwritten(&self, source: io::Error) -> DirectoryFileError {
        let path = self.0.clone();
        DirectoryFileError::Write { path, source }
    }

    /// The directory is replaced by a new file at each change, so that another one is locked.
    fn lock(&self) -> io::Result<File> {
        let mut path = self.0.as_os_str().to_owned();
        path.push(".lock");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(PathBuf::from(path))?;
        match file.lock() {
            // Where the file system has no locks, the last change wins.
            Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
            _ => Ok(file),
        }
    }
}

/// Why a text stands for no name.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// It has neither the form of a name nor that of an alias.
    #[error("'{}' is neither a name ({name}) nor an alias ({alias}); `whimbrel names list` lists aliases", text.escape_debug())]
    Neither {
        /// The text.
        text: String,
        /// Why it is not a name.
        name: ParseGuidError,
        /// Why it is not an alias.
        alias: AliasError,
    },
    /// No name has this alias.
    #[error(
        "'{alias}' is not in the directory of names {}{hint}; `whimbrel names add {alias} NAME` adds it", path.display()
    )]
    Unknown {
        /// The alias.
        alias: Alias,
        /// The file of the directory.
        path: PathBuf,
        /// A suggestion, or an empty text.
        hint: String,
    },
    /// The directory cannot be read.
    #[error(transparent)]
    File(#[from] DirectoryFileError),
}

/// Returns the name that a person means: 64 hexadecimal digits, or an alias of this user's directory.
pub fn resolve(text: &str) -> Result<Guid, ResolveError> {
    resolve_in(&DirectoryFile::of_this_user(), text)
}

/// As [`resolve`], with another directory.
pub fn resolve_in(file: &DirectoryFile, text: &str) -> Result<Guid, ResolveError> {
    let fault = match text.parse::<Guid>() {
        Ok(name) => return Ok(name),
        Err(fault) => fault,
    };
    let alias = text.parse::<Alias>();
    let alias = alias.map_err(|alias| ResolveError::Neither {
        text: text.to_owned(),
        name: fault,
        alias,
    })?;
    let directory = file.read()?;
    directory.name_of(&alias).ok_or_else(|| {
        let known = directory.aliases().keys().map(Alias::as_str);
        let near = suggest::nearest(alias.as_str(), known);
        ResolveError::Unknown {
            path: file.path().to_owned(),
            hint: near.map_or(String::new(), |near| format!("; did you mean '{near}'?")),
            alias,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn add(file: &DirectoryFile, alias: &str, byte: u8) {
        let change = |directory: &mut Directory| {
            directory
                .add(alias.parse().unwrap(), Guid([byte; 32]))
                .unwrap();
            Ok::<_, DirectoryFileError>(())
        };
        file.change(change).unwrap();
    }

    #[test]
    fn an_alias_is_kept_for_this_user_only_and_stands_for_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = DirectoryFile::at(folder.path().join("below/names.json"));
        add(&file, "ship-7", 7);
        let mode = file.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(resolve_in(&file, "ship-7").unwrap(), Guid([7; 32]));
        let digits = Guid([9; 32]).to_string();
        assert_eq!(resolve_in(&file, &digits).unwrap(), Guid([9; 32]));
        let unknown = resolve_in(&file, "shp-7").unwrap_err().to_string();
        assert!(unknown.contains("did you mean 'ship-7'?"), "{unknown}");
        let neither = resolve_in(&file, "abc").unwrap_err().to_string();
        assert!(neither.contains("3 characters"), "{neither}");
    }

    #[test]
    fn a_directory_that_others_may_write_to_or_that_is_damaged_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = DirectoryFile::at(folder.path().join("names.json"));
        add(&file, "ship-7", 7);
        let set_mode = |mode| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap()
        };
        set_mode(0o666);
        let foreign = resolve_in(&file, "ship-7").unwrap_err().to_string();
        assert!(foreign.contains("chmod"), "{foreign}");
        set_mode(0o600);
        std::fs::write(file.path(), "{").unwrap();
        let damaged = resolve_in(&file, "ship-7").unwrap_err().to_string();
        assert!(damaged.contains("names.json"), "{damaged}");
        // It is not replaced by an empty one.
        let add = |_: &mut Directory| Ok::<_, DirectoryFileError>(());
        assert!(file.change(add).is_err());
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "{");
    }

    #[test]
    fn programs_that_change_the_directory_at_the_same_time_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = DirectoryFile::at(folder.path().join("names.json"));
        std::thread::scope(|scope| {
            for byte in 0..8 {
                let file = &file;
                scope.spawn(move || add(file, &format!("ship-x{byte}"), byte + 1));
            }
        });
        assert_eq!(file.read().unwrap().aliases().len(), 8);
    }
}
