//! The receiving side: `get`. Verified chunks go to their places on disk as they arrive, a record
//! beside them says which; so a transfer goes on after `kill -9` of this program, of the host and
//! of any router.
//!
//! | module | holds |
//! |---|---|
//! | `session` | a fetch from its first request to its end |
//! | `finishing` | what becomes of what is complete |
//! | `transfer` | one content under way |
//! | `pace` | how fast it comes |
//! | `links` | by which links |
//! | `part`, `keeper` | its bytes on disk, and the record of them |
//! | `folder`, `wish` | which files of a folder are due, and where what was fetched goes |
//! | `tree` | the folder that is written to |

mod finishing;
mod folder;
mod keeper;
mod links;
mod pace;
mod part;
mod session;
mod transfer;
mod tree;
mod wish;

pub use links::LinkShare;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use whimbrel_content::{ChunkSize, FolderError};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::FailReason;

use crate::local_client::{Attachment, LocalError};
use crate::output::{Destination, OutputError};
use crate::wait::Wait;
use session::Fetch;

/// What to fetch, and where to.
pub struct FetchOptions {
    /// The content's name.
    pub content: Guid,
    /// Where it goes. Into a folder, a content that is a folder becomes one in it; to a path where
    /// nothing is, it becomes that path.
    pub output: Destination,
    /// The unit of transfer to ask for.
    pub chunk_size: ChunkSize,
    /// Give up when nothing new has come for so long.
    pub timeout: Option<Duration>,
    /// How long chunks may be missing before their source is told; `None` for the host's own.
    pub nack_timeout: Option<Duration>,
    /// Longest content that is taken, in bytes.
    pub limit: u64,
    /// A folder that is at the output is an older version of the one that comes: that takes its place
    /// once it is whole. What it does not have stays.
    pub update: bool,
}

/// How it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Progress {
    /// What it is doing, or waiting for.
    pub state: State,
    /// Why nothing comes, if nothing has come for a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// The name that its source suggests, once something has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    /// Bytes that are here, those of earlier runs too.
    pub bytes: u64,
    /// Bytes of it all, once known.
    pub length: Option<u64>,
    /// Of `bytes`: from earlier runs.
    pub resumed: u64,
    /// Of `bytes`: from this run.
    pub received: u64,
    /// Bits per second that came in the last seconds.
    pub rate: u64,
    /// Seconds left at that rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_s: Option<u64>,
    /// Files that are complete, and files of it all, if it is a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<(usize, usize)>,
}

/// What a fetch is doing, or waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Asked for; nothing has come yet.
    Requested,
    /// Chunks are coming.
    Flowing,
    /// Nothing has come for a while.
    Stalled,
    /// The host reaches no router.
    Disconnected,
    /// The host itself has gone.
    NoHost,
}

/// What was fetched.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fetched {
    /// Where it is; `None` for standard output.
    #[serde(serialize_with = "serialize_path")]
    pub path: Option<PathBuf>,
    /// Bytes.
    pub length: u64,
    /// Of them: fetched by this run.
    pub received: u64,
    /// Of them: there from earlier runs.
    pub resumed: u64,
    /// Files.
    pub files: usize,
    /// What of a folder could not be had, one by one.
    pub refused: Vec<RefusedEntry>,
    /// What each link has brought, if the host has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkShare>,
}

/// Something that a folder's list has and the folder that was made of it has not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RefusedEntry {
    /// Its path, quoted for a terminal.
    pub path: String,
    /// Why.
    pub why: String,
}

fn serialize_path<S: serde::Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => crate::place::serialize_path(path, serializer),
        None => serializer.serialize_none(),
    }
}

/// Why there is no content. All but the first three leave what has come, and the same command goes
/// on from there.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The host, or a router, gives up.
    #[error("{content}: {}", explain(*reason))]
    Failed {
        /// The content; of a folder's file if that is missing.
        content: Guid,
        /// Why.
        reason: FailReason,
    },
    /// Some of a folder's files cannot be had; the others are there.
    #[error("{count} of the folder's files, {first} among them, cannot be had: {}", explain(*reason))]
    FilesMissing {
        /// How many.
        count: usize,
        /// The path of one, quoted for a terminal.
        first: String,
        /// Why.
        reason: FailReason,
    },
    /// A folder has no order of bytes.
    #[error(
        "this is a folder, which cannot be written to a pipe or a device; name a folder for it with -o"
    )]
    FolderToStream,
    /// Its list is no list.
    #[error("the folder's list is not valid: {0}")]
    BadFolder(#[from] FolderError),
    /// It is longer than was allowed.
    #[error("it is {length} bytes long, the limit is {limit}")]
    TooLong {
        /// Its length, as its source says.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// Another process fetches the same to the same place.
    #[error("another process is fetching this to the same place ({} is locked)", .0.display())]
    InUse(PathBuf),
    /// Others have put files where this user's hidden files should be.
    #[error(
        "{} and others like it were put there by somebody else: remove them, or fetch to another folder",
        .0.display()
    )]
    PartsTaken(PathBuf),
    /// Nothing can be written there.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Something is where a folder should be.
    #[error("{} is in the way: it is not a folder", .0.display())]
    InTheWay(PathBuf),
    /// The disk is full, or a file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Whoever reads the pipe has gone, or a device is full.
    #[error("cannot write to {}: {source}", path.as_deref().unwrap_or(Path::new("standard output")).display())]
    Stream {
        /// The device or FIFO; `None` for standard output.
        path: Option<PathBuf>,
        /// The system's answer.
        source: io::Error,
    },
    /// The host cannot be reached.
    #[error(transparent)]
    Host(#[from] LocalError),
    /// Nothing new has come for as long as the user allowed.
    #[error("nothing has come for {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The user has had enough.
    #[error("interrupted")]
    Interrupted,
}

fn explain(reason: FailReason) -> &'static str {
    match reason {
        FailReason::NoSuchName => {
            "the name service knows nobody who has it; is the name right, is it still served?"
        }
        FailReason::NotServed => "those who announced it no longer serve it",
        FailReason::TooLarge => "even the smallest chunks are too large for a hop on their way",
        FailReason::Busy => {
            "the host has as many transfers as its configuration allows (max_transfers)"
        }
        FailReason::Invalid => "the host does not understand the request; is it another version?",
    }
}

/// The contents that earlier runs have left unfinished where `output` leads.
pub fn unfinished_at(output: &Destination) -> Vec<Guid> {
    let folders = match output {
        Destination::Stream(_) => [None, None],
        Destination::Named(target) => [Some(target.folder().to_owned()), None],
        Destination::Within(within) => {
            let target = within.as_target();
            let above = target.map(|target| target.folder().to_owned());
            [Some(within.folder().to_owned()), above]
        }
    };
    let folders = folders.iter().flatten();
    folders
        .flat_map(|folder| part::unfinished(folder))
        .collect()
}

/// Fetches a content. The first connection to the host must succeed; if the host goes later, its
/// return is waited for.
pub fn fetch(
    attachment: &mut Attachment,
    options: FetchOptions,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Progress),
) -> Result<Fetched, FetchError> {
    let mut fetch = Fetch::begin(options)?;
    let outcome = fetch.run(attachment, stop, observe);
    if outcome.is_err() {
        fetch.leave();
    }
    observe(&fetch.progress);
    outcome
}

#[cfg(test)]
mod tests;
