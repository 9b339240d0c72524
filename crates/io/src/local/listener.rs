//! The socket file on which local programs attach.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket, Type};
use whimbrel_core::Time;

use super::UnixListenerConfig;
use crate::IoError;
use crate::counters::{TransportCounters, TransportSnapshot};
use crate::poller::Poller;

/// Programs that may wait to be accepted.
const BACKLOG: i32 = 128;
/// With no file descriptor left, accepting is tried again after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(crate) struct LocalListener {
    listener: UnixListener,
    pub(crate) config: UnixListenerConfig,
    token: u64,
    /// Device and inode of our socket file: another program's file is not ours to remove.
    file: Option<(u64, u64)>,
    paused_until: Option<Time>,
    counters: TransportCounters,
}

impl LocalListener {
    pub(crate) fn open(config: UnixListenerConfig, token: u64) -> Result<LocalListener, IoError> {
        clear_the_path(&config.path)?;
        let listener = listen(&config).map_err(|source| {
            let path = config.path.clone();
            match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    IoError::SocketPathNotPermitted { path, action: "create" }
                }
                io::ErrorKind::AddrInUse => IoError::SocketPathInUse { path },
                _ => IoError::UnixSocket { path, action: "listen on", source },
            }
        })?;
        Ok(LocalListener {
            listener,
            file: identity(&config.path),
            config,
            token,
            paused_until: None,
            counters: TransportCounters::default(),
        })
    }

    /// The next program that waits, or `None`. Where no more can be accepted for now, waiting for it pauses.
    pub(crate) fn accept(&mut self, poller: &mut Poller, now: Time) -> Option<UnixStream> {
        self.counters.receive_calls += 1;
        match self.listener.accept() {
            Ok((stream, _)) => Some(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => {
                self.counters.receive_errors += 1;
                tracing::warn!(path = %self.config.path.display(), %error, "cannot accept a local program");
                self.paused_until = Some(now + PAUSE);
                poller.set_interest(&self.listener, self.token, false, false);
                None
            }
        }
    }

    /// Counts what became of an accepted stream.
    pub(crate) fn count(&mut self, taken: bool) {
        *if taken { &mut self.counters.accepted } else { &mut self.counters.refused } += 1;
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.paused_until
    }

    pub(crate) fn expire(&mut self, poller: &mut Poller, now: Time) {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            poller.set_interest(&self.listener, self.token, true, false);
        }
    }

    pub(crate) fn snapshot(&self) -> TransportSnapshot {
        TransportSnapshot {
            label: self.config.label.clone(),
            kind: "unix-listener",
            local: self.config.path.display().to_string(),
            kernel_buffers: (0, 0),
            counters: self.counters,
        }
    }
}

impl AsFd for LocalListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        if self.file.is_some() && identity(&self.config.path) == self.file {
            // Left behind, it would only be found stale by the next start.
            let _ = std::fs::remove_file(&self.config.path);
        }
    }
}

/// Removes a socket file that nobody answers on; refuses whatever else is in the way.
fn clear_the_path(path: &Path) -> Result<(), IoError> {
    let owned = || -> PathBuf { path.to_owned() };
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(IoError::SocketPathNotPermitted { path: owned(), action: "look at" });
        }
        Err(source) => return Err(IoError::UnixSocket { path: owned(), action: "look at", source }),
    };
    if !metadata.file_type().is_socket() {
        return Err(IoError::SocketPathTaken { path: owned() });
    }
    match knock(path) {
        Ok(_) => Err(IoError::SocketPathInUse { path: owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "replacing the socket file of a program that is gone");
            std::fs::remove_file(path).map_err(|source| match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    IoError::SocketPathNotPermitted { path: owned(), action: "replace" }
                }
                _ => IoError::UnixSocket { path: owned(), action: "replace", source },
            })
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(IoError::SocketPathNotPermitted { path: owned(), action: "try" })
        }
        // A listener whose backlog is full is alive.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(IoError::SocketPathInUse { path: owned() })
        }
        Err(source) => Err(IoError::UnixSocket { path: owned(), action: "try", source }),
    }
}

/// Connects without waiting for a listener whose backlog is full.
fn knock(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

fn listen(config: &UnixListenerConfig) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Linux gives a socket file the mode of the socket, less the umask: so there is no moment at which more may
    // connect than the configuration says.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(config.mode))?;
    socket.bind(&SockAddr::unix(&config.path)?)?;
    // The umask may have taken bits that the configuration wants.
    std::fs::set_permissions(&config.path, std::fs::Permissions::from_mode(config.mode))?;
    socket.set_nonblocking(true)?;
    socket.listen(BACKLOG)?;
    Ok(OwnedFd::from(socket).into())
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
