//! Standard error and standard output, for every line that a program prints about its work.
//!
//! Such a line never ends, stops or slows the program: it waits in a bounded queue for a thread that
//! does nothing but write. A line that does not fit, or that the system refuses, is counted as lost
//! ([`Lines::lost`]), and `/metrics` shows the count. What a user asked for (a name, a table, the content
//! itself) is a result and not such a line: [`write_result`] waits, and returns the error.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

/// Bytes that may wait for one stream.
const MAX_WAITING: usize = 256 * 1024;
/// Bytes of waiting lines above which a progress bar is not redrawn.
const MAX_BEFORE_A_FRAME: usize = 16 * 1024;
/// Time for which [`Lines::flush`] waits for a stream that takes nothing.
const PATIENCE: Duration = Duration::from_millis(500);

static STDERR: Lines = Lines::new("standard error", write_stderr);
static STDOUT: Lines = Lines::new("standard output", write_stdout);

/// Returns the queue of standard error.
pub fn stderr() -> &'static Lines {
    &STDERR
}

/// Returns the queue of standard output, for a server that must outlive the reader of its lines.
pub fn stdout() -> &'static Lines {
    &STDOUT
}

/// Writes a result to standard output, and waits for that. Lines that were printed on standard error
/// before it come first.
pub fn write_result(bytes: &[u8]) -> io::Result<()> {
    STDERR.flush();
    STDOUT.flush();
    write_stdout(bytes)
}

/// Standard output as a writer of content; unbuffered.
#[derive(Clone, Copy, Debug)]
pub struct Content;

impl Write for Content {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_stdout(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_stderr(bytes: &[u8]) -> io::Result<()> {
    write_fully(io::stderr().as_fd(), bytes)
}

fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    write_fully(io::stdout().as_fd(), bytes)
}

/// Writes to the descriptor itself: the standard library locks its streams while it writes, so that a
/// thread that is stuck there would stop every other one that touches them.
fn write_fully(descriptor: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(descriptor, bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            // Another program on the same terminal or pipe has made it non-blocking.
            Err(rustix::io::Errno::AGAIN) => {
                let mut writable = [PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)];
                match poll(&mut writable, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The lines that wait for one stream, and the thread that writes them.
pub struct Lines {
    name: &'static str,
    write: fn(&[u8]) -> io::Result<()>,
    queue: Mutex<Queue>,
    /// Notified when a line was added, and when one was written or refused.
    changed: Condvar,
    lost: AtomicU64,
}

struct Queue {
    waiting: VecDeque<Vec<u8>>,
    /// Bytes of `waiting`.
    bytes: usize,
    has_thread: bool,
    /// The thread holds a line that is not written yet.
    is_writing: bool,
    /// Lines that were written or refused.
    handled: u64,
    /// A whole [`PATIENCE`] has passed without one of them.
    is_stuck: bool,
    /// Lost lines that no line on the stream has reported yet.
    unreported: u64,
    /// The first refusal of the system was reported.
    is_refusal_reported: bool,
}

impl Lines {
    const fn new(name: &'static str, write: fn(&[u8]) -> io::Result<()>) -> Lines {
        Lines {
            name,
            write,
            queue: Mutex::new(Queue {
                waiting: VecDeque::new(),
                bytes: 0,
                has_thread: false,
                is_writing: false,
                handled: 0,
                is_stuck: false,
                unreported: 0,
                is_refusal_reported: false,
            }),
            changed: Condvar::new(),
            lost: AtomicU64::new(0),
        }
    }

    /// Queues a line, or several that belong together. Never waits for the stream.
    pub fn push(&'static self, line: Vec<u8>) {
        let mut queue = self.lock();
        let fits = queue.bytes.saturating_add(line.len()) <= MAX_WAITING;
        if fits && self.has_thread(&mut queue) {
            queue.add(line);
            drop(queue);
            self.changed.notify_all();
        } else {
            self.lose(&mut queue);
        }
    }

    /// Queues one picture of a progress bar, unless others wait: the next one replaces it.
    pub fn push_frame(&'static self, frame: Vec<u8>) {
        let mut queue = self.lock();
        if queue.bytes < MAX_BEFORE_A_FRAME && self.has_thread(&mut queue) {
            queue.add(frame);
            drop(queue);
            self.changed.notify_all();
        }
    }

    /// Waits until the lines so far are written or refused, or until the stream takes nothing.
    pub fn flush(&self) {
        let mut queue = self.lock();
        let last = queue.handled + queue.pending();
        while queue.handled < last && !queue.is_stuck {
            let before = queue.handled;
            let waited = self.changed.wait_timeout(queue, PATIENCE);
            let timeout;
            (queue, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue.is_stuck = timeout.timed_out() && queue.handled == before;
        }
    }

    /// Returns the number of lines that were not written because the stream was full, closed or stuck.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, queue: &mut Queue) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        queue.unreported += 1;
    }

    /// Returns true if a thread writes. Starts it with the first line: a process may enter a user
    /// namespace only while it has a single thread.
    fn has_thread(&'static self, queue: &mut Queue) -> bool {
        if !queue.has_thread {
            let thread = std::thread::Builder::new().name("diagnostics".into());
            queue.has_thread = thread.spawn(move || self.write_lines()).is_ok();
        }
        queue.has_thread
    }

    fn write_lines(&'static self) {
        let mut queue = self.lock();
        loop {
            let Some(line) = queue.begin() else {
                queue = (self.changed.wait(queue)).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            let outcome = (self.write)(&line);
            queue = self.lock();
            queue.end();
            match outcome {
                Ok(()) => self.report_losses(&mut queue),
                Err(error) => {
                    self.lose(&mut queue);
                    if !core::mem::replace(&mut queue.is_refusal_reported, true) {
                        self.report_refusal(&error);
                    }
                }
            }
            self.changed.notify_all();
        }
    }

    /// Standard error takes lines again: says there how many are missing.
    fn report_losses(&self, queue: &mut Queue) {
        if self.is_stderr() && queue.unreported > 0 {
            let lost = core::mem::take(&mut queue.unreported);
            let text = format!("whimbrel: {lost} lines of diagnostics were lost here\n");
            queue.add(text.into_bytes());
        }
    }

    /// Says on standard error that another stream cannot be written. A reader that has closed it
    /// knows.
    fn report_refusal(&self, error: &io::Error) {
        if !self.is_stderr() && error.kind() != ErrorKind::BrokenPipe {
            let name = self.name;
            let text =
                format!("whimbrel: cannot write to {name}: {error}; continuing without it\n");
            STDERR.push(text.into_bytes());
        }
    }

    fn is_stderr(&self) -> bool {
        core::ptr::eq(self, &STDERR)
    }
}

impl Queue {
    fn add(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.waiting.push_back(line);
    }

    /// Takes the next line, which is pending until [`Queue::end`].
    fn begin(&mut self) -> Option<Vec<u8>> {
        let line = self.waiting.pop_front()?;
        self.bytes -= line.len();
        self.is_writing = true;
        Some(line)
    }

    fn end(&mut self) {
        self.is_writing = false;
        self.is_stuck = false;
        self.handled += 1;
    }

    /// Returns the number of lines that are neither written nor refused.
    fn pending(&self) -> u64 {
        self.waiting.len() as u64 + u64::from(self.is_writing)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_line_that_the_system_refuses_is_counted_and_not_waited_for() {
        static FULL: Lines = Lines::new("a full disk", |_| Err(ErrorKind::StorageFull.into()));
        for _ in 0..3 {
            FULL.push(b"line\n".to_vec());
        }
        FULL.flush();
        assert_eq!(FULL.lost(), 3);
    }

    #[test]
    fn a_stuck_stream_bounds_what_waits_and_later_lines_are_lost() {
        static OPEN: AtomicBool = AtomicBool::new(false);
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        static STUCK: Lines = Lines::new("a stuck reader", |_| {
            while !OPEN.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            WRITTEN.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let line = vec![b'x'; MAX_WAITING / 4];
        STUCK.push(line.clone());
        // Gives up, and the next one does not wait again.
        STUCK.flush();
        STUCK.flush();
        assert_eq!(WRITTEN.load(Ordering::Relaxed), 0);
        for _ in 0..10 {
            STUCK.push(line.clone());
        }
        STUCK.push_frame(b"bar".to_vec());
        assert!(STUCK.lost() >= 6, "{}", STUCK.lost());
        OPEN.store(true, Ordering::Relaxed);
        while WRITTEN.load(Ordering::Relaxed) + STUCK.lost() < 11 {
            std::thread::yield_now();
        }
        // What fits again is written again.
        STUCK.push(b"line\n".to_vec());
        STUCK.flush();
        assert_eq!(WRITTEN.load(Ordering::Relaxed) + STUCK.lost(), 12);
    }
}
