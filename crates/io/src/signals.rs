//! Ctrl-C and SIGTERM as a request to stop.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

/// Offset between the number of a fatal signal and the exit code, as in a shell: 130 for SIGINT,
/// 143 for SIGTERM.
const EXIT_BY_SIGNAL: i32 = 128;

/// The read end of a pipe that the signal handlers write to. The first signal asks to stop; a
/// second one ends the process at once.
#[derive(Debug)]
pub(crate) struct StopSignals {
    pipe: UnixStream,
    registered: Vec<signal_hook::SigId>,
}

impl StopSignals {
    pub(crate) fn register() -> io::Result<StopSignals> {
        let (pipe, write_end) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let mut signals = StopSignals {
            pipe,
            registered: Vec::new(),
        };
        let asked_before = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            let asked_before = Arc::clone(&asked_before);
            // The order matters: a first signal finds the flag unset, sets it, and wakes the loop.
            signals.registered.extend([
                signal_hook::flag::register_conditional_shutdown(
                    signal,
                    EXIT_BY_SIGNAL + signal,
                    Arc::clone(&asked_before),
                )?,
                signal_hook::flag::register(signal, asked_before)?,
                low_level::pipe::register(signal, write_end.try_clone()?)?,
            ]);
        }
        Ok(signals)
    }

    /// Returns true if a signal arrived since the last call.
    pub(crate) fn came(&mut self) -> bool {
        let mut bytes = [0; 16];
        matches!(self.pipe.read(&mut bytes), Ok(count) if count > 0)
    }
}

impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        for registered in self.registered.drain(..) {
            low_level::unregister(registered);
        }
    }
}
