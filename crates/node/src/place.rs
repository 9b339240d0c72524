//! Default places of files that the configuration does not place.

use std::path::{Path, PathBuf};

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
    /// Returns the folders of this process's user, by the XDG base directory specification.
    pub fn of_this_user() -> Places {
        let user = rustix::process::geteuid();
        if user.is_root() {
            return Places {
                run: "/run/whimbrel".into(),
                state: "/var/lib/whimbrel".into(),
                cache: "/var/cache/whimbrel".into(),
            };
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

/// Makes the folder of `file`, for this user only, if it does not exist.
pub fn make_folder_of(file: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder),
        _ => Ok(()),
    }
}

/// Serializes a path as text for JSON; bytes that are not UTF-8 become U+FFFD.
pub(crate) fn serialize_path<S: serde::Serializer>(
    path: &Path,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}
