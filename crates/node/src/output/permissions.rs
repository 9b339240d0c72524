//! Permissions of outputs, on file systems that may keep none.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Mode, RawMode, fchmod, fstat};
use rustix::io::Errno;

/// Sets the permissions of a file or folder. Returns false if its file system does not keep them,
/// as FAT, exFAT and many network file systems: a file without its permissions is better than none.
pub(crate) fn set_mode(file: impl AsFd, mode: RawMode) -> io::Result<bool> {
    let file = file.as_fd();
    // Such a file system may refuse even those that a file has already.
    if RawMode::from(fstat(file)?.st_mode as u16 & 0o7777) == mode {
        return Ok(true);
    }
    match fchmod(file, Mode::from_raw_mode(mode)) {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
