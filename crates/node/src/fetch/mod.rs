//! The receiving side: `get`. Verified chunks go to their places on disk as they arrive, and a
//! record beside them says which ones, so a transfer resumes after `kill -9` of this program, of
//! the host and of any router.
//!
//! | module | holds |
//! |---|---|
//! | `session` | a fetch from its first request to its end |
//! | `finishing` | the end of transfers |
//! | `transfer` | one content under way |
//! | `pace` | the rate |
//! | `links` | what each link has brought |
//! | `part`, `keeper` | its bytes on disk, and the record of them |
//! | `folder`, `file_destination` | the files of a folder that are due, and the places of fetched content |
//! | `unpacking` | a folder that has come as one content |
//! | `tree`, `replacing` | the folder that is written to, and how a new version takes the place of an older one |

mod file_destination;
mod finishing;
mod folder;
mod keeper;
mod links;
mod pace;
mod part;
mod replacing;
mod session;
mod transfer;
mod tree;
mod unannounced;
mod unpacking;

pub use links::{LinkBytes, LinkShare, link_bytes};
pub use unpacking::Unpacking;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use whimbrel_content::{ContentKey, FolderError};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{
    FailReason, MissingParts, OfferId, TransferOptions, TransferState,
};

use crate::output::{Destination, OutputError};
use crate::wait::Wait;
use session::Fetch;
use whimbrel_client::{Attachment, LocalError, explain};

/// Gaps that a message names.
const MAX_NAMED_GAPS: usize = 8;

/// The content to fetch, and its destination.
pub struct FetchOptions {
    /// The content's name.
    pub content: Guid,
    /// The key of its bytes, if they are encrypted.
    pub key: Option<ContentKey>,
    /// The destination. If that is a folder, a fetched folder becomes one in it; if nothing exists
    /// there, the content gets that path.
    pub output: Destination,
    /// What the user has chosen.
    pub transfer: TransferOptions,
    /// Give up after this long without new data.
    pub timeout: Option<Duration>,
    /// The longest accepted content, and the most that a folder may take on disk, in bytes; `None`
    /// for any that is believable.
    pub limit: Option<u64>,
    /// A folder at the output is an older version of the fetched one, which takes its place once it
    /// is whole. Entries that only the older one has stay.
    pub update: bool,
    /// The offer by which the content comes, if it is not to be requested.
    pub offered: Option<OfferId>,
    /// The content is a folder as one: its files are written from it.
    pub unpacking: Option<Unpacking>,
}

/// The progress of a fetch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Progress {
    /// Its state.
    pub state: State,
    /// The reason why nothing arrives, if nothing has arrived for a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// The name that its source suggests, once something has arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    /// The bytes that are here, those of earlier runs too.
    pub bytes: u64,
    /// The length of the whole in bytes, once known.
    pub length: Option<u64>,
    /// The part of `bytes` that is from earlier runs.
    pub resumed: u64,
    /// The part of `bytes` that is from this run.
    pub received: u64,
    /// Bits per second over the last seconds.
    pub rate: u64,
    /// Seconds left at that rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_s: Option<u64>,
    /// The longest time between two arrivals since the last report, in microseconds.
    pub pause_us: u64,
    /// Complete files and all files, if it is a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<(usize, usize)>,
}

/// The state of a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Requested; nothing has arrived yet.
    Requested,
    /// Chunks arrive.
    Flowing,
    /// Nothing has arrived for a while.
    Stalled,
    /// The host reaches no router.
    Disconnected,
    /// The host has gone.
    NoHost,
}

impl State {
    fn of(state: TransferState) -> State {
        match state {
            TransferState::Requested => State::Requested,
            TransferState::Flowing => State::Flowing,
            TransferState::Stalled => State::Stalled,
            TransferState::Disconnected => State::Disconnected,
        }
    }
}

/// The result of a fetch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fetched {
    /// Its path; `None` for standard output.
    #[serde(serialize_with = "serialize_path")]
    pub path: Option<PathBuf>,
    /// Its length in bytes.
    pub length: u64,
    /// The part that this run has fetched.
    pub received: u64,
    /// The part from earlier runs.
    pub resumed: u64,
    /// The number of files.
    pub files: usize,
    /// Entries of a folder that could not be fetched or made.
    pub refused: Vec<RefusedEntry>,
    /// What the output could not keep, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// What each link has brought, if the host has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkShare>,
}

/// An entry of a folder's list that is missing from the folder made of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RefusedEntry {
    /// Its path, quoted for a terminal.
    pub path: String,
    /// The reason.
    pub why: String,
}

fn serialize_path<S: serde::Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => whimbrel_client::place::serialize_path(path, serializer),
        None => serializer.serialize_none(),
    }
}

/// The reason why a fetch ends without the content. All but the first three keep the received data,
/// and the same command resumes from there.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The host, or a router, has given up.
    #[error("{content}: {}", explain(*reason))]
    Failed {
        /// The content; if a folder's file is missing, that file.
        content: Guid,
        /// The reason.
        reason: FailReason,
    },
    /// Some of a folder's files are unavailable; the others are there.
    #[error("{count} of the folder's files, {first} among them, cannot be fetched: {}", explain(*reason))]
    FilesMissing {
        /// The number of files.
        count: usize,
        /// The path of one, quoted for a terminal.
        first: String,
        /// The reason.
        reason: FailReason,
    },
    /// Some of a folder's files are not sent again, and parts of them are missing; the others are there.
    #[error(
        "{count} of the folder's files, {first} among them, are not whole: {}",
        incomplete(missing)
    )]
    FilesIncomplete {
        /// The number of files.
        count: usize,
        /// The path of one, quoted for a terminal.
        first: String,
        /// What is missing of the content with that one.
        missing: MissingParts,
    },
    /// A folder cannot be written as a stream.
    #[error(
        "this is a folder, which cannot be written to a pipe or a device; name a folder for it with -o"
    )]
    FolderToStream,
    /// The folder's list is invalid.
    #[error("the folder's list is not valid: {0}")]
    BadFolder(#[from] FolderError),
    /// A folder's contents do not fit its list.
    #[error("the folder's contents are not those that its list names")]
    BadBundle,
    /// The content exceeds the limit.
    #[error("it is {length} bytes long, the limit is {limit}")]
    TooLong {
        /// Its length, as its source states it.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// A folder exceeds the limit.
    #[error(
        "the folder would take {needed} bytes on disk, for {entries} files, folders and links; the limit is {limit}"
    )]
    FolderTooLarge {
        /// The bytes that it would take.
        needed: u64,
        /// The number of its entries.
        entries: u64,
        /// The limit.
        limit: u64,
    },
    /// A folder would take much more on disk than is fetched.
    #[error(
        "the folder would take {needed} bytes on disk, for {entries} files, folders and links, and only {fetched} bytes would \
         be fetched for that: if you expect it, allow that much with --max-size"
    )]
    Unbelievable {
        /// The bytes that it would take.
        needed: u64,
        /// The number of its entries.
        entries: u64,
        /// The bytes that would be fetched.
        fetched: u64,
    },
    /// A new version cannot take the place of the older one.
    #[error("the older version stays as it is: {path}: {why}")]
    NotUpdated {
        /// The path of an entry that is in the way, quoted for a terminal.
        path: String,
        /// The reason.
        why: String,
    },
    /// Another process fetches the same content into the same folder, where both would keep what has
    /// arrived in one hidden file.
    #[error(
        "another process is fetching this content into the same folder ({} is locked): wait for it, or fetch to another folder",
        .0.display()
    )]
    InUse(PathBuf),
    /// Files of others are in the place of this user's hidden files.
    #[error(
        "{} and others like it were put there by somebody else: remove them, or fetch to another folder",
        .0.display()
    )]
    PartsTaken(PathBuf),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// Something else is in the place of a folder.
    #[error("{} is in the way: it is not a folder", .0.display())]
    InTheWay(PathBuf),
    /// The disk is full, or a file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Somebody has removed the hidden file with what had arrived, or its folder.
    #[error("{} was removed during the transfer, and what had arrived is lost", .0.display())]
    PartRemoved(PathBuf),
    /// The reader of the pipe has gone, or a device is full.
    #[error("cannot write to {}: {source}", path.as_deref().unwrap_or(Path::new("standard output")).display())]
    Stream {
        /// The device or FIFO; `None` for standard output.
        path: Option<PathBuf>,
        /// The system's error.
        source: io::Error,
    },
    /// The host cannot be reached.
    #[error(transparent)]
    Host(#[from] LocalError),
    /// Nothing new has arrived for as long as the user allowed.
    #[error("nothing has come for {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// Its source sends nothing again, and parts are missing.
    #[error("{}", incomplete(.0))]
    Incomplete(MissingParts),
    /// Parts of a file did not come.
    #[error("parts of it are missing and not sent again (reliability dont-care)")]
    NotSentAgain,
    /// The user has interrupted the fetch.
    #[error("interrupted")]
    Interrupted,
}

impl FetchError {
    /// Returns true for a failure that a later attempt may not meet.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            FetchError::Disk { .. }
                | FetchError::PartRemoved(_)
                | FetchError::Output(_)
                | FetchError::Host(_)
                | FetchError::InUse(_)
                | FetchError::Failed { .. }
                | FetchError::Interrupted
        )
    }
}

/// Names what is missing of a content that is not sent again.
fn incomplete(missing: &MissingParts) -> String {
    let Some(length) = missing.content_len else {
        return "nothing has come, and nothing is sent again (reliability dont-care)".to_owned();
    };
    let first = missing.ranges.iter().take(MAX_NAMED_GAPS);
    let first: Vec<String> = first
        .map(|gap| format!("{}-{}", gap.start, gap.end))
        .collect();
    let more = match missing.ranges.len() > first.len() {
        true => " and more",
        false => "",
    };
    format!(
        "{} of {length} bytes are missing and not sent again (reliability dont-care): bytes {}{more}",
        missing.bytes,
        first.join(", ")
    )
}

/// Returns the contents that earlier runs have left unfinished at `output`.
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

/// Fetches a content. The first connection to the host must succeed; if the host goes later, the
/// fetch waits for its return.
pub fn fetch(
    attachment: &mut Attachment,
    options: FetchOptions,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(&Progress),
) -> Result<Fetched, FetchError> {
    let (content, is_offered) = (options.content, options.offered.is_some());
    let mut fetch = Fetch::begin(attachment, options)?;
    let outcome = fetch.run(stop, observe);
    if let Err(error) = &outcome {
        fetch.leave();
        // An offer that is refused does not come again.
        if is_offered && !error.may_pass() {
            fetch.forget(content);
        }
    }
    observe(&fetch.progress);
    // The user knows the output, not the hidden file beside it.
    outcome.map_err(|error| match (error, fetch.output()) {
        (FetchError::Disk { path, source }, Some(output)) if part::is_part(&path) => {
            FetchError::Disk {
                path: output,
                source,
            }
        }
        (error, _) => error,
    })
}

#[cfg(test)]
mod tests;
