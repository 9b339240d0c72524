//! The secret that two proxies share: a file with at least 32 characters of text or octets.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use whimbrel_keychain::ownership::ForeignPath;

use crate::keys::random_bytes;
use whimbrel_client::place::check_own;

/// Octets of a secret, at least.
const LEAST: usize = 32;

/// Why a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// There is none.
    #[error(
        "there is no key at {}: make one for all proxies that talk to each other with `whimbrel tcp-proxy key > {}`, \
         for the user that runs the proxy alone (chown, chmod 600)",
        path.display(), path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("cannot read the key {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another user could have prepared it.
    #[error(transparent)]
    Foreign(#[from] ForeignPath),
    /// Too short.
    #[error(
        "the key {} has {found} characters; it needs at least {LEAST}: `whimbrel tcp-proxy key > FILE` makes one",
        path.display()
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length without white space around it.
        found: usize,
    },
    /// Others can read it.
    #[error("the key {} can be read by other users; `chmod 600 {}`", path.display(), path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a secret. White space around it does not count.
pub fn read(path: &Path) -> Result<Vec<u8>, KeyFileError> {
    let failed = |source: io::Error| {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => KeyFileError::Missing { path },
            _ => KeyFileError::Read { path, source },
        }
    };
    let mode = std::fs::metadata(path)
        .map_err(failed)?
        .permissions()
        .mode();
    if mode & 0o004 != 0 {
        return Err(KeyFileError::Open {
            path: path.to_owned(),
        });
    }
    check_own(path)?;
    let octets = whimbrel_keychain::small_file::read(path).map_err(failed)?;
    let secret = octets.trim_ascii();
    if secret.len() < LEAST {
        return Err(KeyFileError::Short {
            path: path.to_owned(),
            found: secret.len(),
        });
    }
    Ok(secret.to_vec())
}

/// Returns a new secret: 64 hexadecimal digits.
pub fn generate() -> io::Result<String> {
    let octets: [u8; 32] = random_bytes()?;
    Ok(octets.iter().map(|octet| format!("{octet:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_secret_is_accepted_and_short_or_public_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        let secret = generate().unwrap();
        write(&format!("{secret}\n"), 0o600);
        assert_eq!(read(&path).unwrap(), secret.as_bytes());
        write("short", 0o600);
        assert!(matches!(
            read(&path),
            Err(KeyFileError::Short { found: 5, .. })
        ));
        write(&secret, 0o644);
        assert!(matches!(read(&path), Err(KeyFileError::Open { .. })));
    }
}
