//! Key files.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};
use whimbrel_gnrs::{KeyFileError, KeyPair};
use whimbrel_keychain::ownership::ForeignPath;

use whimbrel_client::place::{FolderError, check_own, make_folder_of};

/// An error of a key file.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file does not exist or cannot be read.
    #[error("cannot read the key {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a key file.
    #[error("{} is not a key file: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: KeyFileError,
    },
    /// The file exists; a key file is never overwritten.
    #[error("{} exists; a key is never overwritten: name another file, or move this one away", .0.display())]
    Exists(PathBuf),
    /// The file cannot be written.
    #[error("cannot write the key {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another user could have prepared the file.
    #[error("a node whose key another user may know can be impersonated: {0}")]
    Foreign(#[from] ForeignPath),
    /// A node of this name runs on this machine.
    #[error(
        "the key {} is in use by another program of this machine, and two nodes of one name take each other's traffic: give this one \
         another key with --key (or `key` in its configuration)", .0.display()
    )]
    InUse(PathBuf),
    /// The system provides no random bytes.
    #[error("the system provides no random bytes: {0}")]
    Random(io::Error),
}

/// Returns random bytes from the operating system.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// Makes a key that lives in memory only.
pub fn ephemeral() -> Result<KeyPair, KeyError> {
    let mut secret = random_bytes().map_err(KeyError::Random)?;
    Ok(KeyPair::generate(&mut secret))
}

/// Reads a key file. Refuses one that another user could have prepared.
pub fn load(path: &Path) -> Result<KeyPair, KeyError> {
    check_own(path)?;
    let text = whimbrel_keychain::small_file::read_text(path).map_err(|source| KeyError::Read {
        path: path.to_owned(),
        source,
    })?;
    if let Ok(metadata) = path.metadata()
        && metadata.permissions().mode() & 0o077 != 0
    {
        tracing::warn!(path = %path.display(), "other users can read this key; `chmod 600` it");
    }
    KeyPair::from_pem(&text).map_err(|source| KeyError::Format {
        path: path.to_owned(),
        source,
    })
}

/// Makes a key and writes it to a new file, for this user only.
pub fn create(path: &Path) -> Result<KeyPair, KeyError> {
    let write_error = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists(path.to_owned()),
        _ => KeyError::Write {
            path: path.to_owned(),
            source,
        },
    };
    let keys = ephemeral()?;
    let pem = keys.to_pem().map_err(|source| KeyError::Format {
        path: path.to_owned(),
        source,
    })?;
    make_folder_of(path).map_err(|error| match error {
        FolderError::Foreign(foreign) => foreign.into(),
        FolderError::Make { source, .. } => write_error(source),
    })?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(write_error)?;
    file.write_all(pem.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|error| {
            // A partial key would be in the way at the next start.
            let _ = std::fs::remove_file(path);
            write_error(error)
        })?;
    Ok(keys)
}

/// Returns the secret from which the keys of encrypted contents follow: it belongs to the key in this file, which is made
/// if there is none.
pub fn sender_secret(path: &Path) -> Result<[u8; 32], KeyError> {
    let keys = load_or_create(path)?;
    let secret = blake3::derive_key("whimbrel 2026 secret of a sender", &keys.secret());
    Ok(secret)
}

/// A key that no other node of this machine uses while this is kept.
#[derive(Debug)]
pub struct HeldKey {
    // `None` where the file system has no locks.
    _lock: Option<File>,
}

/// Reads a key file for a node, or makes one if there is none.
pub fn hold(path: &Path) -> Result<(KeyPair, HeldKey), KeyError> {
    let keys = load_or_create(path)?;
    let file = File::open(path).map_err(|source| KeyError::Read {
        path: path.to_owned(),
        source,
    })?;
    let lock = match file.try_lock() {
        Ok(()) => Some(file),
        Err(TryLockError::WouldBlock) => return Err(KeyError::InUse(path.to_owned())),
        Err(TryLockError::Error(_)) => None,
    };
    Ok((keys, HeldKey { _lock: lock }))
}

/// Reads a key file, or makes one if there is none.
fn load_or_create(path: &Path) -> Result<KeyPair, KeyError> {
    match load(path) {
        Err(KeyError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            match create(path) {
                // Another process was faster.
                Err(KeyError::Exists(path)) => load(&path),
                made => made,
            }
        }
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_user_only_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/host.pem");
        let made = load_or_create(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load_or_create(&path).unwrap().guid(), made.guid());
        assert!(matches!(create(&path), Err(KeyError::Exists(_))));
        assert_ne!(ephemeral().unwrap().guid(), ephemeral().unwrap().guid());
    }

    #[test]
    fn two_nodes_do_not_use_one_key_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.pem");
        let first = hold(&path).unwrap();
        let second = hold(&path).unwrap_err();
        assert!(second.to_string().contains("--key"), "{second}");
        // It can be shown meanwhile.
        assert_eq!(load(&path).unwrap().guid(), first.0.guid());
        drop(first);
        hold(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_no_key_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note");
        std::fs::write(&path, "milk, eggs").unwrap();
        assert!(matches!(
            load_or_create(&path),
            Err(KeyError::Format { .. })
        ));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "milk, eggs");
        assert!(matches!(
            load_or_create(folder.path()),
            Err(KeyError::Read { .. })
        ));
    }
}
