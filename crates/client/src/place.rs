//! Default places of files that the configuration does not place.

use std::io;
use std::path::{Path, PathBuf};

use whimbrel_keychain::ownership::{self, ForeignPath, Origin};

/// Folders for one user, or for the system if the user is root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// Sockets; lost when the system restarts.
    pub run: PathBuf,
    /// Keys and name stores.
    pub state: PathBuf,
    /// Files that can be made again.
    pub cache: PathBuf,
}

impl Places {
    /// Returns the folders of the system's daemons, and of root.
    pub fn of_the_system() -> Places {
        Places {
            run: "/run/whimbrel".into(),
            state: "/var/lib/whimbrel".into(),
            cache: "/var/cache/whimbrel".into(),
        }
    }

    /// Returns the folders of this process's user, by the XDG base directory specification.
    pub fn of_this_user() -> Places {
        let user = rustix::process::geteuid();
        if user.is_root() {
            return Places::of_the_system();
        }
        let named = |variable: &str| {
            let path = PathBuf::from(std::env::var_os(variable)?);
            path.is_absolute().then_some(path)
        };
        let of_user = std::env::temp_dir().join(format!("whimbrel-{}", user.as_raw()));
        let home = named("HOME").unwrap_or_else(|| of_user.clone());
        let within = |base: PathBuf| base.join("whimbrel");
        Places {
            run: named("XDG_RUNTIME_DIR").map_or(of_user, within),
            state: within(named("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state"))),
            cache: within(named("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache"))),
        }
    }

    /// Returns the socket of a host.
    pub fn host_socket(&self) -> PathBuf {
        self.run.join("host.sock")
    }

    /// Returns the socket of a name server.
    pub fn gnrs_socket(&self) -> PathBuf {
        self.run.join("gnrs.sock")
    }

    /// Returns the socket of a router.
    pub fn router_socket(&self) -> PathBuf {
        self.run.join("router.sock")
    }
}

/// Returns the socket of a program that names none: that of this user's daemon, or of the system's
/// if this user has none. `socket` is the kind of daemon, as [`Places::host_socket`].
pub fn daemon_socket(socket: fn(&Places) -> PathBuf) -> PathBuf {
    first_present(
        socket(&Places::of_this_user()),
        socket(&Places::of_the_system()),
    )
}

/// Names the host daemon's socket for this user's programs.
pub const HOST_SOCKET_VARIABLE: &str = "WHIMBREL_SOCKET";

/// Returns the socket of the host daemon for a program that is told none: that which
/// [`HOST_SOCKET_VARIABLE`] names, or else as [`daemon_socket`].
pub fn host_daemon_socket() -> PathBuf {
    match std::env::var_os(HOST_SOCKET_VARIABLE) {
        Some(path) if !path.is_empty() => path.into(),
        _ => daemon_socket(Places::host_socket),
    }
}

/// Names the file of [`known_peers_file`].
pub const KNOWN_PEERS_VARIABLE: &str = "WHIMBREL_KNOWN_PEERS";

/// Returns the file where this user's programs without a key of their own keep the names of neighbours, if
/// [`KNOWN_PEERS_VARIABLE`] names one. There is no default: a program that is run once and answered by a
/// router with a new key would wait for the old one, and laboratories make such routers all the time.
pub fn known_peers_file() -> Option<PathBuf> {
    let path = std::env::var_os(KNOWN_PEERS_VARIABLE)?;
    (!path.is_empty()).then(|| path.into())
}

/// Returns `own` if neither is there: it is the one to report.
fn first_present(own: PathBuf, other: PathBuf) -> PathBuf {
    if !own.exists() && other.exists() {
        other
    } else {
        own
    }
}

/// The reason why the folder of a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another user could have prepared it, or could change what is in it.
    #[error(transparent)]
    Foreign(#[from] ForeignPath),
    /// It cannot be made.
    #[error("cannot make the folder of {}: {source}", path.display())]
    Make {
        /// The file in it.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Makes the folder of `file`, for this user only, if it does not exist. Fails if another user could
/// have prepared it, or the file.
pub fn make_folder_of(file: &Path) -> Result<(), FolderError> {
    use std::os::unix::fs::DirBuilderExt;
    // Nothing is made in a folder of another user.
    check_own(file)?;
    let Some(folder) = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    else {
        return Ok(());
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| FolderError::Make {
            path: file.to_owned(),
            source,
        })?;
    // Another user may have been faster.
    Ok(check_own(file)?)
}

/// Checks that no other user can have prepared or changed what is at `path`.
pub fn check_own(path: &Path) -> Result<(), ForeignPath> {
    let own = Places::of_this_user();
    let is_default = own != Places::of_the_system()
        && [own.run, own.state, own.cache]
            .iter()
            .any(|folder| path.starts_with(folder));
    let origin = if is_default {
        Origin::Default
    } else {
        Origin::Named
    };
    ownership::check(path, origin)
}

/// Serializes a path as text for JSON; bytes that are not UTF-8 become U+FFFD.
pub fn serialize_path<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_daemon_serves_who_runs_none() {
        let folder = tempfile::tempdir().unwrap();
        let [own, other] = ["own.sock", "other.sock"].map(|name| folder.path().join(name));
        let first = || first_present(own.clone(), other.clone());
        assert_eq!(first(), own);
        std::fs::write(&other, "").unwrap();
        assert_eq!(first(), other);
        std::fs::write(&own, "").unwrap();
        assert_eq!(first(), own);
    }
}
