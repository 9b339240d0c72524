//! Where fetched content goes: a file that appears when it is whole, or standard output. A thread
//! of its own writes, so that a slow disk or a slow reader does not hold up the network; the fetch
//! pauses while too much waits.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use tempfile::NamedTempFile;

use crate::exit::{Exit, Failure};

/// Bytes that are handed to the thread at a time.
const BATCH: usize = 256 * 1024;
/// From so many bytes on that are not written, nothing more is asked for.
const MOST_WAITING: usize = 32 * 1024 * 1024;
/// Below so many it goes on.
const GO_ON: usize = 8 * 1024 * 1024;

enum Target {
    Stdout,
    /// A device or a pipe, which is written to as it is.
    Special {
        file: File,
        path: PathBuf,
    },
    File {
        temporary: NamedTempFile,
        path: PathBuf,
    },
}

#[derive(Default)]
struct Shared {
    /// Bytes handed over and not written.
    waiting: AtomicUsize,
    /// The thread is to wake the fetch when it has caught up.
    paused: AtomicBool,
    /// Writing failed: the thread's result says why.
    failed: AtomicBool,
}

/// Takes content in order.
pub(super) struct Output {
    target: Target,
    batch: Vec<u8>,
    to_thread: Option<mpsc::Sender<Vec<u8>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
    shared: Arc<Shared>,
}

impl Output {
    /// To `path`, which is replaced when all is there, or to standard output.
    pub(super) fn open(path: Option<&Path>) -> Result<Output, Failure> {
        let cannot = |path: &Path, error: io::Error| {
            Failure::new(
                Exit::Write,
                format!("cannot write {}: {error}", path.display()),
            )
        };
        let target = match path {
            None => Target::Stdout,
            Some(path) if path.is_dir() => {
                let text = format!(
                    "{} is a folder: name the file that is to be written",
                    path.display()
                );
                return Err(Failure::new(Exit::Usage, text));
            }
            Some(path) if path.exists() && !path.is_file() => {
                let file = File::options()
                    .write(true)
                    .open(path)
                    .map_err(|error| cannot(path, error))?;
                Target::Special {
                    file,
                    path: path.to_owned(),
                }
            }
            Some(path) => {
                // A link stays one: the file that it leads to is replaced.
                let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
                let temporary = temporary_beside(&path).map_err(|error| cannot(&path, error))?;
                Target::File { temporary, path }
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

    /// Starts to write. `wake` is called on the thread when a paused fetch may go on, or when
    /// writing has failed.
    pub(super) fn start(&mut self, wake: impl Fn() + Send + 'static) -> Result<(), Failure> {
        let writer: Box<dyn Write + Send> = match &self.target {
            Target::Stdout => Box::new(io::stdout()),
            Target::Special { file, .. } => Box::new(file.try_clone()?),
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

    /// Appends content. True if the fetch is to pause until `wake` is called.
    pub(super) fn take(&mut self, content: &[u8]) -> bool {
        self.batch.extend_from_slice(content);
        if self.batch.len() < BATCH {
            return false;
        }
        self.flush();
        if self.shared.waiting.load(Ordering::Acquire) < MOST_WAITING {
            return false;
        }
        self.shared.paused.store(true, Ordering::Release);
        // It may have caught up between the two lines above.
        if self.shared.waiting.load(Ordering::Acquire) < GO_ON {
            return !self.shared.paused.swap(false, Ordering::AcqRel);
        }
        true
    }

    /// Hands over what there is.
    pub(super) fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        self.shared.waiting.fetch_add(batch.len(), Ordering::AcqRel);
        // A thread that has ended has failed, which is noticed.
        if let Some(sender) = &self.to_thread {
            let _ = sender.send(batch);
        }
    }

    /// True if writing has failed: [`Output::finish`] says why.
    pub(super) fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// All of it is there: writes the rest, and gives the file its name.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.flush();
        self.to_thread = None;
        let written = self.thread.take().map_or(Ok(()), |thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the writing thread has panicked")))
        });
        let name = match &self.target {
            Target::Stdout => String::from("to standard output"),
            Target::Special { path, .. } | Target::File { path, .. } => path.display().to_string(),
        };
        let cannot = |error: io::Error| match (error.kind(), &self.target) {
            // Who reads along has had enough, as `head` has: that needs no words.
            (io::ErrorKind::BrokenPipe, Target::Stdout) => Failure::new(Exit::Write, ""),
            _ => Failure::new(Exit::Write, format!("cannot write {name}: {error}")),
        };
        written.map_err(cannot)?;
        match self.target {
            Target::File { temporary, path } => match temporary.persist(&path) {
                Ok(_) => Ok(()),
                Err(error) => {
                    let text = format!("cannot write {name}: {}", error.error);
                    Err(Failure::new(Exit::Write, text))
                }
            },
            Target::Stdout | Target::Special { .. } => Ok(()),
        }
    }
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
        if waiting < GO_ON && shared.paused.swap(false, Ordering::AcqRel) {
            wake();
        }
    }
    Ok(())
}

/// A file in the same folder, that takes the name of `path` in the end.
fn temporary_beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .suffix(".part")
        .permissions(permissions())
        .tempfile_in(folder.unwrap_or(Path::new(".")))
}

/// What a new file may have; the system takes away what the user's mask says.
fn permissions() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o666)
}

/// A text file for `--log-cwnd` and `--log-rtt`.
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
