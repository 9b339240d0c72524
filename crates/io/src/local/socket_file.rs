//! The socket file where local programs attach.

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket, Type};

use super::UnixListenerConfig;
use crate::IoError;
use crate::listener::BACKLOG;

/// A socket file that this process created. It is removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile {
    pub(crate) path: PathBuf,
    /// Device and inode of the created file: another program's file must not be removed.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// Creates the file, in place of one that a killed program has left, and a non-blocking socket
    /// that listens on it.
    pub fn listen(config: &UnixListenerConfig) -> Result<(Socket, SocketFile), IoError> {
        if let (Some(mode), Some(folder)) = (config.folder_mode, config.path.parent()) {
            make_folder(folder, mode)?;
        }
        remove_stale_file(&config.path)?;
        let socket = listen(config).map_err(|source| {
            let path = config.path.clone();
            match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    IoError::SocketPathNotPermitted {
                        path,
                        action: "create",
                    }
                }
                io::ErrorKind::AddrInUse => IoError::SocketPathInUse { path },
                _ => IoError::UnixSocket {
                    path,
                    action: "listen on",
                    source,
                },
            }
        })?;
        Ok((
            socket,
            SocketFile {
                path: config.path.clone(),
                identity: identity(&config.path),
            },
        ))
    }
}

impl SocketFile {
    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn make_folder(folder: &Path, mode: u32) -> Result<(), IoError> {
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(folder)
        .map_err(|source| {
            let path = folder.to_owned();
            match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    IoError::SocketPathNotPermitted {
                        path,
                        action: "create the folder of",
                    }
                }
                _ => IoError::UnixSocket {
                    path,
                    action: "create the folder of",
                    source,
                },
            }
        })
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // A file that cannot be removed is found stale by the next start.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes a stale socket file. Fails if a program answers or another kind of file is there.
fn remove_stale_file(path: &Path) -> Result<(), IoError> {
    let owned = || -> PathBuf { path.to_owned() };
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(IoError::SocketPathNotPermitted {
                path: owned(),
                action: "look at",
            });
        }
        Err(source) => {
            return Err(IoError::UnixSocket {
                path: owned(),
                action: "look at",
                source,
            });
        }
    };
    if !metadata.file_type().is_socket() {
        return Err(IoError::SocketPathTaken { path: owned() });
    }
    match probe(path) {
        Ok(_) => Err(IoError::SocketPathInUse { path: owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "replacing the socket file of a program that is gone");
            std::fs::remove_file(path).map_err(|source| match source.kind() {
                io::ErrorKind::PermissionDenied => IoError::SocketPathNotPermitted {
                    path: owned(),
                    action: "replace",
                },
                _ => IoError::UnixSocket {
                    path: owned(),
                    action: "replace",
                    source,
                },
            })
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(IoError::SocketPathNotPermitted {
                path: owned(),
                action: "try",
            })
        }
        // A listener with a full backlog is alive.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(IoError::SocketPathInUse { path: owned() })
        }
        Err(source) => Err(IoError::UnixSocket {
            path: owned(),
            action: "try",
            source,
        }),
    }
}

/// Connects without waiting for a listener whose backlog is full.
fn probe(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

fn listen(config: &UnixListenerConfig) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Linux gives the socket file the mode of the socket, less the umask. Setting it before bind
    // leaves no moment in which more users may connect than configured; until the file has its
    // group, its mode would admit another one.
    let first = if config.group.is_some() {
        config.mode & 0o700
    } else {
        config.mode
    };
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(first))?;
    socket.bind(&SockAddr::unix(&config.path)?)?;
    if config.group.is_some() {
        std::os::unix::fs::chown(&config.path, None, config.group)?;
    }
    // The umask may have removed configured bits.
    std::fs::set_permissions(&config.path, std::fs::Permissions::from_mode(config.mode))?;
    socket.set_nonblocking(true)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path)
        .ok()
        .map(|metadata| (metadata.dev(), metadata.ino()))
}
