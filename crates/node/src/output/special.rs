//! Devices and FIFOs as outputs.

use std::fs::{Metadata, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::{OutputError, Stream};

/// Interval of the attempts to open a FIFO until a program reads it.
const LOOK: Duration = Duration::from_millis(50);

/// Opens a file that is not regular for writing. Creates and truncates nothing.
pub(super) fn open(
    path: &Path,
    found: &Metadata,
    stop: &AtomicBool,
) -> Result<Stream, OutputError> {
    if found.file_type().is_socket() {
        return Err(OutputError::Socket(path.to_owned()));
    }
    let is_fifo = found.file_type().is_fifo();
    // Opening a FIFO without a reader fails at once, so that signals are noticed. A terminal does
    // not become the controlling terminal of this process.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut told = false;
    let file = loop {
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(flags.bits() as i32)
            .open(path);
        match opened {
            Ok(file) => break file,
            Err(error) if is_fifo && Errno::from_io_error(&error) == Some(Errno::NXIO) => {
                if stop.load(Ordering::Relaxed) {
                    return Err(OutputError::Interrupted);
                }
                if !core::mem::replace(&mut told, true) {
                    tracing::info!(fifo = %path.display(), "waiting for a reader of the output");
                }
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(OutputError::system(path)(error)),
        }
    };
    // A file that was put there in the meantime would be overwritten in place.
    let is_file = file.metadata().is_ok_and(|opened| opened.is_file());
    if is_file {
        return Err(OutputError::NoLongerAFile(path.to_owned()));
    }
    fcntl_getfl(&file)
        .and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK))
        .map_err(|error| OutputError::system(path)(error.into()))?;
    Ok(Stream {
        writer: Box::new(file),
        path: Some(path.to_owned()),
    })
}
