//! Writes fetched content to its destination. A thread of its own writes, so that a slow disk or a
//! slow reader does not hold up the network; the fetch pauses while too many bytes wait.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use tempfile::NamedTempFile;
use whimbrel_ndn_packet::{Name, types};
use whimbrel_node::output::{Destination, MadeFolder, Place, safe_name};

use crate::exit::{Exit, Failure};
use crate::logging::{note, path_line};

/// Bytes handed to the thread at a time.
const BATCH: usize = 256 * 1024;
/// With this many unwritten bytes the fetch pauses.
const MAX_WAITING: usize = 32 * 1024 * 1024;
/// Below this many unwritten bytes the fetch resumes.
const RESUME_BELOW: usize = 8 * 1024 * 1024;

enum Target {
    /// Standard output, a device or a pipe, written in place.
    Stream {
        /// Moves to the thread when it starts.
        writer: Option<Box<dyn Write + Send>>,
        /// `None` for standard output.
        path: Option<PathBuf>,
    },
    /// A file that gets its name when it is complete.
    File {
        temporary: NamedTempFile,
        place: Place,
        _made: Option<MadeFolder>,
    },
}

#[derive(Default)]
struct Shared {
    /// Bytes handed over and not written.
    waiting: AtomicUsize,
    /// The fetch waits: the thread wakes it when it has caught up.
    paused: AtomicBool,
    /// Writing failed: the thread returns the error.
    failed: AtomicBool,
}

/// Accepts content in order.
pub(super) struct Output {
    target: Target,
    batch: Vec<u8>,
    to_thread: Option<mpsc::Sender<Vec<u8>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
    shared: Arc<Shared>,
}

impl Output {
    /// Opens `destination`; in a folder, a file named after the last component of the content's
    /// name.
    pub(super) fn open(destination: Destination, content: &Name) -> Result<Output, Failure> {
        let target = match destination {
            Destination::Stream(stream) => Target::Stream {
                writer: Some(stream.writer),
                path: stream.path,
            },
            Destination::Named(target) => Target::file(Place::Replacing(target), None)?,
            Destination::Within(within) => {
                let made = within.make()?;
                let place = Place::Beside(within.folder().join(file_name(content)));
                Target::file(place, made)?
            }
        };
        Ok(Output {
            target,
            batch: Vec::with_capacity(BATCH),
            to_thread: None,
            thread: None,
            shared: Arc::default(),
        })
    }

    /// Starts the writing thread, which calls `wake` when a paused fetch may resume, or when
    /// writing has failed.
    pub(super) fn start(&mut self, wake: impl Fn() + Send + 'static) -> Result<(), Failure> {
        let writer: Box<dyn Write + Send> = match &mut self.target {
            Target::Stream { writer, .. } => writer.take().unwrap_or_else(|| Box::new(io::sink())),
            Target::File { temporary, .. } => Box::new(temporary.as_file().try_clone()?),
        };
        let (sender, receiver) = mpsc::channel();
        let shared = Arc::clone(&self.shared);
        let body = move || write_all(writer, &receiver, &shared, &wake);
        self.thread = Some(
            std::thread::Builder::new()
                .name("output".into())
                .spawn(body)?,
        );
        self.to_thread = Some(sender);
        Ok(())
    }

    /// Appends content. Returns true if the fetch must pause until `wake` is called.
    pub(super) fn take(&mut self, content: &[u8]) -> bool {
        self.batch.extend_from_slice(content);
        if self.batch.len() < BATCH {
            return false;
        }
        self.flush();
        if self.shared.waiting.load(Ordering::Acquire) < MAX_WAITING {
            return false;
        }
        self.shared.paused.store(true, Ordering::Release);
        // The thread may have caught up between the two lines above.
        if self.shared.waiting.load(Ordering::Acquire) < RESUME_BELOW {
            return !self.shared.paused.swap(false, Ordering::AcqRel);
        }
        true
    }

    /// Hands the buffered bytes to the thread.
    pub(super) fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        self.shared.waiting.fetch_add(batch.len(), Ordering::AcqRel);
        // A send fails only after a write error, which `finish` reports.
        if let Some(sender) = &self.to_thread {
            let _ = sender.send(batch);
        }
    }

    /// Returns true if writing has failed: [`Output::finish`] returns the error.
    pub(super) fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// Completes the output: writes the rest, and gives the file its name. Returns the path, unless
    /// it is standard output.
    pub(super) fn finish(mut self) -> Result<Option<PathBuf>, Failure> {
        self.flush();
        self.to_thread = None;
        let written = self.thread.take().map_or(Ok(()), |thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the writing thread has panicked")))
        });
        let name = match &self.target {
            Target::Stream { path, .. } => path
                .as_deref()
                .unwrap_or(Path::new("-"))
                .display()
                .to_string(),
            Target::File { place, .. } => place.wanted().display().to_string(),
        };
        let cannot = |error: io::Error| match &self.target {
            Target::Stream { path: None, .. } => Failure::unwritten_result(&error),
            _ => Failure::new(Exit::Write, format!("cannot write {name}: {error}")),
        };
        written.map_err(cannot)?;
        match self.target {
            Target::File {
                temporary, place, ..
            } => {
                let published = place.publish(temporary.as_file(), temporary.path())?;
                if !published.keeps_mode {
                    let path = path_line(&published.path);
                    note(&format!(
                        "the file system of {path} did not take the permissions of the file before it"
                    ));
                }
                Ok(Some(published.path))
            }
            Target::Stream { path, .. } => Ok(path),
        }
    }
}

impl Target {
    fn file(place: Place, made: Option<MadeFolder>) -> Result<Target, Failure> {
        Ok(Target::File {
            temporary: place.temporary()?,
            place,
            _made: made,
        })
    }
}

/// Returns the last component of a name, without a version and the like.
fn file_name(content: &Name) -> String {
    let components = content.as_ref().components();
    let words =
        components.filter(|component| u64::from(component.typ()) == types::GENERIC_COMPONENT);
    words
        .last()
        .and_then(|word| safe_name(&String::from_utf8_lossy(word.value())))
        .unwrap_or_else(|| String::from("content"))
}

fn write_all(
    mut writer: Box<dyn Write + Send>,
    batches: &mpsc::Receiver<Vec<u8>>,
    shared: &Shared,
    wake: &dyn Fn(),
) -> io::Result<()> {
    for batch in batches {
        if let Err(error) = writer.write_all(&batch).and_then(|()| writer.flush()) {
            shared.failed.store(true, Ordering::Release);
            wake();
            return Err(error);
        }
        let waiting = shared.waiting.fetch_sub(batch.len(), Ordering::AcqRel) - batch.len();
        if waiting < RESUME_BELOW && shared.paused.swap(false, Ordering::AcqRel) {
            wake();
        }
    }
    Ok(())
}

/// Creates a text file for `--log-cwnd` and `--log-rtt`.
pub(super) fn log_file(path: &Path, heading: &str) -> Result<io::BufWriter<File>, Failure> {
    let open = || -> io::Result<io::BufWriter<File>> {
        let mut file = io::BufWriter::new(File::create(path)?);
        writeln!(file, "{heading}")?;
        Ok(file)
    };
    open().map_err(|error| {
        Failure::new(
            Exit::Write,
            format!("cannot write {}: {error}", path.display()),
        )
    })
}
