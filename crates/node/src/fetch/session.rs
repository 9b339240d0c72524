//! A fetch from its first request to its end: the host's events, and the requests to the host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use whimbrel_content::Assembly;
use whimbrel_content::folder::MAX_LISTING_LEN;
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest, TransferOptions, TransferState};

use super::file_destination::FileDestination;
use super::finishing::Missing;
use super::folder::FolderPlan;
use super::keeper::Keeper;
use super::links::LinkShares;
use super::pace::Pace;
use super::part::{self, PartFile};
use super::transfer::{Purpose, Sink, Transfer};
use super::unannounced::Unannounced;
use super::unpacking::Unpacking;
use super::{FetchError, FetchOptions, Fetched, Progress, State};
use crate::output::{Destination, MadeFolder};
use crate::wait::{Subject, Wait, Watch};
use whimbrel_client::{Attachment, LocalError};

/// Interval at which the stop flag is checked, and a daemon that has gone is called again.
const LOOK: Duration = Duration::from_millis(200);
/// Interval at which records are kept.
const KEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest interval of progress reports.
const TELL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct Fetch {
    pub(super) options: TransferOptions,
    pub(super) timeout: Option<Duration>,
    pub(super) limit: Option<u64>,
    /// True once the file system of the output has not kept permissions.
    pub(super) loses_modes: bool,
    /// True if a folder takes the place of an older version.
    pub(super) update: bool,
    /// The content is a folder as one.
    pub(super) unpacking: Option<Unpacking>,
    /// The destination; `None` for a stream.
    pub(super) wanted: Option<FileDestination>,
    pub(super) _made: Option<MadeFolder>,
    pub(super) transfers: BTreeMap<u32, Transfer>,
    pub(super) next_request: u32,
    pub(super) plan: Option<FolderPlan>,
    pub(super) missing: Missing,
    /// The list of a folder. It stays until all its files are there, so that a later run needs no
    /// network for it.
    pub(super) list: Option<PartFile>,
    pub(super) done: Option<PathBuf>,
    pub(super) keeper: Keeper,
    pub(super) progress: Progress,
    pub(super) last_arrival: Instant,
    pub(super) pace: Pace,
    pub(super) watch: Watch,
    /// While nobody has announced the content.
    pub(super) unannounced: Option<Unannounced>,
    pub(super) last_kept: Instant,
    pub(super) last_told: Option<Instant>,
}

impl Fetch {
    /// Returns the path that the user has named; `None` for a stream.
    pub(super) fn output(&self) -> Option<PathBuf> {
        let place = self.wanted.as_ref()?.place_of_file("");
        Some(place.wanted().to_owned())
    }

    pub(super) fn begin(options: FetchOptions) -> Result<Fetch, FetchError> {
        let FetchOptions {
            content,
            output,
            limit,
            update,
            ..
        } = options;
        let (wanted, made) = match output {
            Destination::Named(target) => (Ok(FileDestination::Named(target)), None),
            Destination::Within(within) => {
                let wanted = FileDestination::within(&within, content, update);
                (Ok(wanted), within.make()?)
            }
            Destination::Stream(stream) => (Err(stream), None),
        };
        let (wanted, sink, assembly, manner) = match wanted {
            Ok(wanted) => {
                let place = wanted.place_of_file("");
                let opened = PartFile::open(wanted.folder(), content, limit.unwrap_or(u64::MAX));
                let (part, assembly, manner) = opened.map_err(|error| match error {
                    FetchError::Disk { source, .. } => place.refused(source).into(),
                    other => other,
                })?;
                part.withhold(&place)?;
                (Some(wanted), Sink::Part(part), assembly, manner)
            }
            Err(stream) => {
                let assembly = Assembly::new(content, limit.unwrap_or(u64::MAX));
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
            offered: options.offered,
            unrecorded: false,
        };
        let now = Instant::now();
        let mut fetch = Fetch {
            options: options.transfer,
            timeout: options.timeout,
            limit,
            loses_modes: false,
            update,
            unpacking: options.unpacking,
            wanted,
            _made: made,
            transfers: BTreeMap::from([(0, root)]),
            next_request: 1,
            plan: None,
            missing: Missing::default(),
            list: None,
            done: None,
            keeper: Keeper::start(),
            progress: Progress {
                state: State::Requested,
                wait: None,
                file_name: None,
                bytes: resumed,
                length: None,
                resumed,
                received: 0,
                rate: 0,
                left_s: None,
                pause_us: 0,
                files: None,
            },
            last_arrival: now,
            pace: Pace::default(),
            watch: Watch::new(Subject::Answer),
            unannounced: None,
            last_kept: now,
            last_told: None,
        };
        fetch.note_root();
        Ok(fetch)
    }

    pub(super) fn run(
        &mut self,
        attachment: &mut Attachment,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Progress),
    ) -> Result<Fetched, FetchError> {
        let mut client = attachment.connect()?;
        // An earlier run may have left it complete, or may have left a folder's list: then files
        // are due at once.
        self.advance()?;
        let mut shares = LinkShares::default();
        let mut due = vec![LinkShares::question()];
        due.extend(self.all_requests());
        loop {
            due.extend(self.watch.question());
            if self.unannounced.as_mut().is_some_and(Unannounced::take_due) {
                due.extend(self.all_requests());
            }
            let step = match due.drain(..).try_for_each(|request| client.send(&request)) {
                // Events that the host sent before it left are still to be read, and its end is
                // noticed there.
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
                Ok(Some(event)) if shares.note_before(&event) => {}
                Ok(Some(event)) => due = self.handle(event)?,
                Ok(None) => {}
                Err(LocalError::Closed | LocalError::Io(_)) if attachment.can_return() => {
                    self.progress.state = State::NoHost;
                    self.watch.host_gone(true);
                    std::thread::sleep(LOOK);
                    if let Ok(new) = attachment.connect() {
                        client = new;
                        self.progress.state = State::Requested;
                        self.watch.host_gone(false);
                        self.unannounced = None;
                        due = self.all_requests();
                    }
                }
                Err(error) => return Err(error.into()),
            }
            if self.is_done() {
                observe(&self.progress);
                return Ok(Fetched {
                    links: shares.since(&mut client),
                    ..self.fetched()
                });
            }
            if stop.load(Ordering::Relaxed) {
                return Err(FetchError::Interrupted);
            }
            if let Some(timeout) = self
                .timeout
                .filter(|timeout| self.last_arrival.elapsed() >= *timeout)
            {
                return Err(self.timed_out(timeout));
            }
            self.keep_records()?;
            if self
                .last_told
                .is_none_or(|last| last.elapsed() >= TELL_INTERVAL)
            {
                self.last_told = Some(Instant::now());
                self.note_pace();
                self.progress.wait = self.wait();
                observe(&self.progress);
                self.progress.pause_us = 0;
            }
        }
    }

    fn timed_out(&self, after: Duration) -> FetchError {
        let content = self.transfers.get(&0).map(|root| root.content);
        match (&self.unannounced, content) {
            (Some(Unannounced { reason, .. }), Some(content)) => FetchError::Failed {
                content,
                reason: *reason,
            },
            _ => FetchError::TimedOut(after),
        }
    }

    fn wait(&self) -> Option<Wait> {
        let wait = self.watch.wait();
        match &self.unannounced {
            Some(unannounced) => Some(unannounced.wait(wait, self.watch.neighbours().to_vec())),
            None => wait.cloned(),
        }
    }

    fn note_pace(&mut self) {
        let rate = self.pace.note(Instant::now(), self.progress.received);
        let missing = self
            .progress
            .length
            .map(|length| length.saturating_sub(self.progress.bytes));
        self.progress.rate = rate;
        self.progress.left_s = missing.and_then(|bytes| (bytes * 8).checked_div(rate));
    }

    pub(super) fn is_done(&self) -> bool {
        self.transfers.is_empty() && self.plan.as_ref().is_none_or(|plan| plan.is_finished)
    }

    pub(super) fn fetched(&self) -> Fetched {
        Fetched {
            path: self.done.clone(),
            length: self.progress.bytes,
            received: self.progress.received,
            resumed: self.progress.resumed,
            files: self.progress.files.map_or(1, |(files, _)| files),
            refused: self
                .plan
                .as_ref()
                .map_or(Vec::new(), |plan| plan.refused.clone()),
            remarks: self.remarks(),
            links: Vec::new(),
        }
    }

    fn remarks(&self) -> Vec<String> {
        let loses_modes =
            self.loses_modes || self.plan.as_ref().is_some_and(FolderPlan::loses_modes);
        let path = self.done.as_ref().filter(|_| loses_modes);
        path.map(|path| {
            format!(
                "the file system of {} does not keep permissions: what arrived has those that it gives",
                path.display()
            )
        })
        .into_iter()
        .collect()
    }

    pub(super) fn all_requests(&self) -> Vec<LocalRequest> {
        let requests = self.transfers.iter();
        requests
            .map(|(number, one)| one.request(*number, self.options))
            .collect()
    }

    /// Handles an event of the host. Returns the requests to send to it.
    pub(super) fn handle(&mut self, event: LocalEvent) -> Result<Vec<LocalRequest>, FetchError> {
        let transfers = &self.transfers;
        let is_ours = |content: &Guid| transfers.values().any(|one| one.content == *content);
        if self.watch.note(&event, &is_ours) {
            return Ok(Vec::new());
        }
        match event {
            LocalEvent::Chunk(chunk) => {
                let request = chunk.request;
                let Some(transfer) = self.transfers.get_mut(&request) else {
                    return Ok(Vec::new());
                };
                let new = match transfer.take(&chunk) {
                    Err(error @ FetchError::TooLong { .. })
                        if transfer.purpose != Purpose::Whole =>
                    {
                        return self.refuse_member(request, &error);
                    }
                    taken => taken?,
                };
                if new > 0 {
                    let last = core::mem::replace(&mut self.last_arrival, Instant::now());
                    if self.progress.received > 0 {
                        let pause = self.last_arrival.duration_since(last).as_micros() as u64;
                        self.progress.pause_us = self.progress.pause_us.max(pause);
                    }
                    self.watch.progressed();
                    self.unannounced = None;
                    self.progress.bytes += new;
                    self.progress.received += new;
                }
                transfer.reserve()?;
                self.progress.state = State::Flowing;
                self.note_root();
                self.refuse_early()?;
                let mut due = vec![LocalRequest::Consumed { request }];
                due.extend(self.advance()?);
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
            LocalEvent::Incomplete { request, missing } => self.note_incomplete(request, missing),
            LocalEvent::Failed { request, reason } => self.note_failure(request, reason),
            _ => Ok(Vec::new()),
        }
    }

    /// Notes what the first chunk of the content states about the whole.
    pub(super) fn note_root(&mut self) {
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

    /// Refuses a folder that cannot be stored, with its first chunk.
    pub(super) fn refuse_early(&self) -> Result<(), FetchError> {
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
            Some(FileDestination::Named(target))
                if target.path().exists() && !target.path().is_dir() =>
            {
                return Err(FetchError::InTheWay(target.named().to_owned()));
            }
            Some(_) | None => {}
        }
        match root.assembly.expected_len() {
            Some(length) if length > MAX_LISTING_LEN as u64 => Err(FetchError::TooLong {
                length,
                limit: MAX_LISTING_LEN as u64,
            }),
            _ => Ok(()),
        }
    }

    /// Keeps changed records now and then, in the background.
    pub(super) fn keep_records(&mut self) -> Result<(), FetchError> {
        if self.last_kept.elapsed() < KEEP_INTERVAL || self.keeper.poll_busy() {
            return Ok(());
        }
        self.last_kept = Instant::now();
        let snapshots = self.snapshots()?;
        if !snapshots.is_empty() {
            self.keeper.keep(snapshots);
        }
        Ok(())
    }

    pub(super) fn snapshots(&mut self) -> Result<Vec<part::Snapshot>, FetchError> {
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

    /// Ends without the content; the received data is kept for the next run.
    pub(super) fn leave(&mut self) {
        for (_, transfer) in core::mem::take(&mut self.transfers) {
            self.leave_one(transfer);
        }
    }

    /// Forgets what has come of a content.
    pub(super) fn forget(&self, content: Guid) {
        let folder = self.wanted.as_ref().map(FileDestination::folder);
        let part = folder.and_then(|folder| PartFile::open(folder, content, u64::MAX).ok());
        if let Some((part, ..)) = part {
            part.discard();
        }
    }

    /// Keeps the received data of one content.
    pub(super) fn leave_one(&mut self, transfer: Transfer) {
        self.keeper.wait();
        let Sink::Part(part) = transfer.sink else {
            return;
        };
        if transfer.assembly.verified_bytes() == 0 {
            return part.discard();
        }
        let Some(manner) = transfer.manner.as_ref().filter(|_| transfer.unrecorded) else {
            return;
        };
        let kept = part.snapshot(&transfer.assembly, manner);
        let kept = kept.map(|snapshot| snapshot.keep());
        if let Ok(Err(error)) = kept {
            tracing::warn!(%error, "cannot keep the record of the download; an older one may exist");
        }
    }
}
