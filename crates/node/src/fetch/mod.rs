//! The receiving side: `get`. Verified chunks go to their places on disk as they arrive, a record
//! beside them says which; so a transfer goes on after `kill -9` of this program, of the host and
//! of any router.

mod folder;
mod keeper;
mod part;
mod transfer;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use whimbrel_content::folder::MAX_MANIFEST_LEN;
use whimbrel_content::{Assembly, ChunkSize, Folder, FolderError};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{FailReason, LocalEvent, LocalRequest, TransferState};

use crate::local_client::{Attachment, LocalError};
use crate::output::{
    Destination, MadeFolder, OutputError, Place, Target, Within, namesake, safe_name,
};
use folder::{FolderPlan, Wanted, is_there, make_parents};
use keeper::Keeper;
use part::PartFile;
use transfer::{Purpose, Sink, Transfer, stream_failed};

/// How often the stop flag is looked at, and a daemon that has gone is tried again.
const LOOK: Duration = Duration::from_millis(200);
/// How often records are kept.
const KEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often progress is told, at most.
const TELL_INTERVAL: Duration = Duration::from_millis(100);
/// Files of a folder that are under way at the same time.
const MAX_AT_ONCE: usize = 8;
/// Names that are tried for a folder while something else has them.
const MAX_TOPS: u32 = 100;

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
}

/// How it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Progress {
    /// What it is doing, or waiting for.
    pub state: State,
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
    pub path: Option<PathBuf>,
    /// Bytes.
    pub length: u64,
    /// Of them: fetched by this run.
    pub received: u64,
    /// Of them: there from earlier runs.
    pub resumed: u64,
    /// Files.
    pub files: usize,
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

struct Fetch {
    chunk_size: ChunkSize,
    timeout: Option<Duration>,
    nack_timeout_ms: u32,
    limit: u64,
    /// Where the user wants it; `None` for a stream.
    wanted: Option<Wish>,
    _made: Option<MadeFolder>,
    transfers: BTreeMap<u32, Transfer>,
    next_request: u32,
    plan: Option<FolderPlan>,
    /// The list of a folder stays until all its files are there: a later run needs no network for
    /// it.
    list: Option<PartFile>,
    done: Option<PathBuf>,
    keeper: Keeper,
    progress: Progress,
    last_arrival: Instant,
    last_kept: Instant,
    last_told: Option<Instant>,
}

/// A destination that is no stream.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Wish {
    Named(Target),
    Within(PathBuf),
}

impl Wish {
    /// A folder that an earlier run of the same command has made, and not finished, is the one that
    /// the user has named, not one to put another folder into.
    fn within(within: &Within, content: Guid) -> Wish {
        within
            .as_target()
            .filter(|target| part::is_under_way(target, content))
            .map_or_else(|| Wish::Within(within.folder().to_owned()), Wish::Named)
    }

    /// The folder for the hidden files: on the same file system as the output.
    fn folder(&self) -> &Path {
        match self {
            Wish::Named(target) => target.folder(),
            Wish::Within(folder) => folder,
        }
    }

    fn place_of_file(&self, name: &str) -> Place {
        match self {
            Wish::Named(target) => Place::Replacing(target.clone()),
            Wish::Within(folder) => Place::Beside(folder.join(name)),
        }
    }

    /// The folder that a folder becomes. In a folder it is merged with one of its name; a link of
    /// that name could lead anywhere.
    fn top_of_folder(&self, name: &str) -> PathBuf {
        let is_usable =
            |path: &PathBuf| fs::symlink_metadata(path).map_or(true, |found| found.is_dir());
        match self {
            Wish::Named(target) => target.path().to_owned(),
            Wish::Within(folder) => {
                let name = folder.join(name);
                let mut names = (1..MAX_TOPS).map(|number| namesake(&name, number));
                names.find(is_usable).unwrap_or(name)
            }
        }
    }

    /// The name of the folder that a folder becomes, if the user has given it.
    fn given_name(&self) -> Option<String> {
        match self {
            Wish::Named(target) => Some(part::name_of(target)),
            Wish::Within(_) => None,
        }
    }
}

impl Fetch {
    fn begin(options: FetchOptions) -> Result<Fetch, FetchError> {
        let FetchOptions {
            content,
            output,
            limit,
            ..
        } = options;
        let (wish, made) = match output {
            Destination::Named(target) => (Ok(Wish::Named(target)), None),
            Destination::Within(within) => (Ok(Wish::within(&within, content)), within.make()?),
            Destination::Stream(stream) => (Err(stream), None),
        };
        let (wish, sink, assembly, manner) = match wish {
            Ok(wish) => {
                let (part, assembly, manner) = PartFile::open(wish.folder(), content, limit)?;
                part.withhold(&wish.place_of_file(""))?;
                (Some(wish), Sink::Part(part), assembly, manner)
            }
            Err(stream) => {
                let assembly = Assembly::new(content, limit);
                (None, Sink::Stream(stream), assembly, None)
            }
        };
        let resumed = assembly.verified_bytes();
        let root = Transfer {
            content,
            assembly,
            manner,
            purpose: Purpose::Whole,
            sink,
            unrecorded: false,
        };
        let now = Instant::now();
        let mut fetch = Fetch {
            chunk_size: options.chunk_size,
            timeout: options.timeout,
            nack_timeout_ms: options
                .nack_timeout
                .map_or(0, |time| time.as_millis().clamp(1, 1 << 31) as u32),
            limit,
            wanted: wish,
            _made: made,
            transfers: BTreeMap::from([(0, root)]),
            next_request: 1,
            plan: None,
            list: None,
            done: None,
            keeper: Keeper::start(),
            progress: Progress {
                state: State::Requested,
                file_name: None,
                bytes: resumed,
                length: None,
                resumed,
                received: 0,
                files: None,
            },
            last_arrival: now,
            last_kept: now,
            last_told: None,
        };
        fetch.note_root();
        Ok(fetch)
    }

    fn run(
        &mut self,
        attachment: &mut Attachment,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Progress),
    ) -> Result<Fetched, FetchError> {
        let mut client = attachment.connect()?;
        // An earlier run may have left it complete, or may have left a folder's list: then files
        // are due at once.
        self.settle()?;
        let mut due = self.all_requests();
        loop {
            let step = match due.drain(..).try_for_each(|request| client.send(&request)) {
                // What it has sent before it left is still to be read, and the end of it is noticed
                // there.
                Err(LocalError::Closed) => Ok(()),
                sent => sent,
            };
            match step.and_then(|()| {
                if self.is_done() {
                    Ok(None)
                } else {
                    client.receive(LOOK)
                }
            }) {
                Ok(Some(event)) => due = self.handle(event)?,
                Ok(None) => {}
                Err(LocalError::Closed | LocalError::Io(_)) if attachment.can_return() => {
                    self.progress.state = State::NoHost;
                    std::thread::sleep(LOOK);
                    if let Ok(new) = attachment.connect() {
                        client = new;
                        self.progress.state = State::Requested;
                        due = self.all_requests();
                    }
                }
                Err(error) => return Err(error.into()),
            }
            if self.is_done() {
                return Ok(self.fetched());
            }
            if stop.load(Ordering::Relaxed) {
                return Err(FetchError::Interrupted);
            }
            if let Some(timeout) = self
                .timeout
                .filter(|timeout| self.last_arrival.elapsed() >= *timeout)
            {
                return Err(FetchError::TimedOut(timeout));
            }
            self.keep_records()?;
            if self
                .last_told
                .is_none_or(|last| last.elapsed() >= TELL_INTERVAL)
            {
                self.last_told = Some(Instant::now());
                observe(&self.progress);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.transfers.is_empty() && self.plan.as_ref().is_none_or(|plan| plan.queue.is_empty())
    }

    fn fetched(&self) -> Fetched {
        Fetched {
            path: self.done.clone(),
            length: self.progress.bytes,
            received: self.progress.received,
            resumed: self.progress.resumed,
            files: self.progress.files.map_or(1, |(files, _)| files),
        }
    }

    fn all_requests(&self) -> Vec<LocalRequest> {
        let requests = self.transfers.iter();
        requests
            .map(|(number, one)| one.request(*number, self.chunk_size, self.nack_timeout_ms))
            .collect()
    }

    /// Works off an event of the host; answers with what to tell the host.
    fn handle(&mut self, event: LocalEvent) -> Result<Vec<LocalRequest>, FetchError> {
        match event {
            LocalEvent::Chunk(chunk) => {
                let request = chunk.request;
                let Some(transfer) = self.transfers.get_mut(&request) else {
                    return Ok(Vec::new());
                };
                let new = transfer.take(&chunk)?;
                if new > 0 {
                    self.last_arrival = Instant::now();
                    self.progress.bytes += new;
                    self.progress.received += new;
                }
                transfer.reserve()?;
                self.progress.state = State::Flowing;
                self.note_root();
                self.refuse_early()?;
                let mut due = vec![LocalRequest::Consumed { request }];
                due.extend(self.settle()?);
                Ok(due)
            }
            LocalEvent::State { request, state } if self.transfers.contains_key(&request) => {
                self.progress.state = match state {
                    TransferState::Requested => State::Requested,
                    TransferState::Flowing => State::Flowing,
                    TransferState::Stalled => State::Stalled,
                    TransferState::Disconnected => State::Disconnected,
                };
                Ok(Vec::new())
            }
            LocalEvent::Failed { request, reason } => match self.transfers.get(&request) {
                Some(transfer) => Err(FetchError::Failed {
                    content: transfer.content,
                    reason,
                }),
                None => Ok(Vec::new()),
            },
            _ => Ok(Vec::new()),
        }
    }

    /// What the content itself has told of the whole.
    fn note_root(&mut self) {
        let Some(root) = self
            .transfers
            .get(&0)
            .filter(|root| root.purpose == Purpose::Whole)
        else {
            return;
        };
        if let Some(manner) = &root.manner {
            self.progress.file_name =
                Some(manner.file_name.clone()).filter(|name| !name.is_empty());
        }
        if root.manner.as_ref().is_none_or(|manner| !manner.is_folder) {
            self.progress.length = root.assembly.expected_len();
        }
    }

    /// A folder that cannot be taken is refused with its first chunk.
    fn refuse_early(&self) -> Result<(), FetchError> {
        let Some(root) = self
            .transfers
            .get(&0)
            .filter(|root| root.purpose == Purpose::Whole)
        else {
            return Ok(());
        };
        if !root.manner.as_ref().is_some_and(|manner| manner.is_folder) {
            return Ok(());
        }
        match &self.wanted {
            None => return Err(FetchError::FolderToStream),
            Some(Wish::Named(target)) if target.path().exists() && !target.path().is_dir() => {
                return Err(FetchError::InTheWay(target.named().to_owned()));
            }
            Some(_) => {}
        }
        match root.assembly.expected_len() {
            Some(length) if length > MAX_MANIFEST_LEN as u64 => Err(FetchError::TooLong {
                length,
                limit: MAX_MANIFEST_LEN as u64,
            }),
            _ => Ok(()),
        }
    }

    /// Finishes what is complete and starts what there is room for; answers with the new requests.
    fn settle(&mut self) -> Result<Vec<LocalRequest>, FetchError> {
        let mut due = Vec::new();
        loop {
            let complete = self
                .transfers
                .iter()
                .find(|(_, one)| one.assembly.is_complete());
            if let Some(number) = complete.map(|(number, _)| *number) {
                self.finish(number)?;
                continue;
            }
            if self.transfers.len() >= MAX_AT_ONCE {
                break;
            }
            let Some(wanted) = self.plan.as_mut().and_then(|plan| plan.queue.pop_front()) else {
                break;
            };
            if let Some(transfer) = self.start_member(wanted)? {
                let number = self.next_request;
                self.next_request = self.next_request.wrapping_add(1).max(1);
                due.push(transfer.request(number, self.chunk_size, self.nack_timeout_ms));
                self.transfers.insert(number, transfer);
            }
        }
        // What was complete at once needs no request.
        due.retain(|request| match request {
            LocalRequest::Get(get) => self.transfers.contains_key(&get.request),
            _ => true,
        });
        if self.is_done()
            && let Some(list) = self.list.take()
        {
            list.discard();
        }
        Ok(due)
    }

    fn finish(&mut self, number: u32) -> Result<(), FetchError> {
        // A record that is written late would come back after it was removed.
        self.keeper.wait();
        let Some(transfer) = self.transfers.remove(&number) else {
            return Ok(());
        };
        let length = transfer.assembly.confirmed_len().unwrap_or_default();
        let mut manner = transfer.manner.clone().unwrap_or_default();
        let (part, wish) = match (transfer.sink, &self.wanted) {
            (Sink::Part(part), Some(wish)) => (part, wish.clone()),
            (Sink::Stream(mut stream), _) => {
                let flushed = stream.writer.flush();
                self.done = stream.path.clone();
                return flushed.map_err(|source| stream_failed(&stream, source));
            }
            (Sink::Part(_), None) => return Ok(()),
        };
        match transfer.purpose {
            Purpose::Whole if manner.is_folder => {
                manner.top = wish.given_name();
                if let Ok(snapshot) = part.snapshot(&transfer.assembly, &manner)
                    && let Err(error) = snapshot.keep()
                {
                    tracing::warn!(%error, "the folder's list could not be kept for a later run");
                }
                let folder = Folder::decode(&part.read_all(length)?)?;
                let top = wish.top_of_folder(&name_for(&manner.file_name, transfer.content));
                let plan = FolderPlan::new(top, &folder);
                // From here on the files count, not the list.
                self.progress.length = Some(plan.length);
                (
                    self.progress.bytes,
                    self.progress.received,
                    self.progress.resumed,
                ) = (0, 0, 0);
                self.progress.files = Some((0, plan.files));
                make_parents(&plan.top, &plan.top.join("file"))?;
                self.done = Some(match &wish {
                    Wish::Named(target) => target.named().to_owned(),
                    Wish::Within(_) => plan.top.clone(),
                });
                self.plan = Some(plan);
                self.list = Some(part);
            }
            Purpose::Whole => {
                let place = wish.place_of_file(&name_for(&manner.file_name, transfer.content));
                self.progress.bytes = length;
                self.progress.length = Some(length);
                self.done = Some(part.finish(length, false, &place, true)?);
            }
            Purpose::Member {
                place,
                copies,
                executable,
            } => {
                // A folder's small files are many: the disk is not waited for each time.
                let durable = length > ChunkSize::DEFAULT.bytes();
                let files = 1 + copies.len();
                let first = part.finish(length, executable, &place, durable)?;
                for (path, executable) in copies {
                    self.copy(&first, path, executable, length)?;
                }
                if let Some((complete, _)) = &mut self.progress.files {
                    *complete += files;
                }
            }
        }
        Ok(())
    }

    /// Another place of a content that is here already.
    fn copy(
        &mut self,
        from: &Path,
        to: PathBuf,
        executable: bool,
        length: u64,
    ) -> Result<(), FetchError> {
        let Some(plan) = &self.plan else {
            return Ok(());
        };
        make_parents(&plan.top, &to)?;
        let failed = |source| FetchError::Disk {
            path: to.clone(),
            source,
        };
        let place = Place::Beside(to.clone());
        let mut temporary = place.temporary()?;
        let mut source = fs::File::open(from).map_err(failed)?;
        io::copy(&mut source, temporary.as_file_mut()).map_err(failed)?;
        part::set_execution(temporary.as_file(), executable).map_err(failed)?;
        place.settle(temporary.as_file(), temporary.path())?;
        self.progress.bytes += length;
        self.progress.resumed += length;
        Ok(())
    }

    /// Begins with a file of a folder; `None` if nothing of it is missing.
    fn start_member(&mut self, wanted: Wanted) -> Result<Option<Transfer>, FetchError> {
        let Some(plan) = &self.plan else {
            return Ok(None);
        };
        let (content, length) = (wanted.content, wanted.length);
        let (there, mut missing): (Vec<_>, Vec<_>) = wanted
            .places
            .into_iter()
            .partition(|(path, _)| is_there(path, content, length));
        let present = there.len() as u64 * length;
        self.progress.bytes += present;
        self.progress.resumed += present;
        if let Some((complete, _)) = &mut self.progress.files {
            *complete += there.len();
        }
        if missing.is_empty() {
            return Ok(None);
        }
        let (path, executable) = missing.remove(0);
        let folder = make_parents(&plan.top, &path)?;
        let (part, assembly, manner) = PartFile::open(&folder, content, self.limit)?;
        self.progress.bytes += assembly.verified_bytes();
        self.progress.resumed += assembly.verified_bytes();
        let purpose = Purpose::Member {
            place: Place::Beside(path),
            copies: missing,
            executable,
        };
        Ok(Some(Transfer {
            content,
            assembly,
            manner,
            purpose,
            sink: Sink::Part(part),
            unrecorded: false,
        }))
    }

    /// Keeps what has changed, now and then, in the background.
    fn keep_records(&mut self) -> Result<(), FetchError> {
        if self.last_kept.elapsed() < KEEP_INTERVAL || self.keeper.is_busy() {
            return Ok(());
        }
        self.last_kept = Instant::now();
        let snapshots = self.snapshots()?;
        if !snapshots.is_empty() {
            self.keeper.keep(snapshots);
        }
        Ok(())
    }

    fn snapshots(&mut self) -> Result<Vec<part::Snapshot>, FetchError> {
        let mut snapshots = Vec::new();
        for transfer in self
            .transfers
            .values_mut()
            .filter(|transfer| transfer.unrecorded)
        {
            if let (Sink::Part(part), Some(manner)) = (&transfer.sink, &transfer.manner) {
                snapshots.push(part.snapshot(&transfer.assembly, manner)?);
            }
            transfer.unrecorded = false;
        }
        Ok(snapshots)
    }

    /// The end without the content: what has come is kept for the next run.
    fn leave(&mut self) {
        self.keeper.wait();
        for snapshot in self.snapshots().unwrap_or_default() {
            if let Err(error) = snapshot.keep() {
                tracing::warn!(%error, "the record of the download could not be kept; an older one may be there");
            }
        }
        for (_, transfer) in core::mem::take(&mut self.transfers) {
            if let (Sink::Part(part), 0) = (transfer.sink, transfer.assembly.verified_bytes()) {
                part.discard();
            }
        }
    }
}

/// The name that a content gets in a folder.
fn name_for(suggested: &str, content: Guid) -> String {
    safe_name(suggested).unwrap_or_else(|| content.to_string())
}

#[cfg(test)]
mod tests;
