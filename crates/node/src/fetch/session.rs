//! A fetch from its first request to its end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use whimbrel_content::Assembly;
use whimbrel_content::folder::MAX_LISTING_LEN;
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{OfferId, TransferOptions};

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
use whimbrel_client::session::ChunkStep;
use whimbrel_client::{AttachedSession, Attachment, GetOptions, ProgramError, SessionStep};

/// Interval at which the stop flag is checked.
const LOOK: Duration = Duration::from_millis(200);
/// Interval at which records are kept.
const KEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest interval of progress reports.
const TELL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct Fetch<'a> {
    /// The contents under way at the host.
    pub(super) host: AttachedSession<'a>,
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
    /// By the number that the session gives them.
    pub(super) transfers: BTreeMap<u32, Transfer>,
    /// The number of the content that the user has named.
    root: u32,
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

impl<'a> Fetch<'a> {
    /// Returns the path that the user has named; `None` for a stream.
    pub(super) fn output(&self) -> Option<PathBuf> {
        let place = self.wanted.as_ref()?.place_of_file("");
        Some(place.wanted().to_owned())
    }

    pub(super) fn begin(
        attachment: &'a mut Attachment,
        options: FetchOptions,
    ) -> Result<Fetch<'a>, FetchError> {
        let FetchOptions {
            content,
            key,
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
                let opened = PartFile::open(
                    wanted.folder(),
                    content,
                    limit.unwrap_or(u64::MAX),
                    key.is_some(),
                );
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
            key,
            manner,
            purpose: Purpose::Whole,
            sink,
            bytes: resumed,
            unrecorded: false,
        };
        let now = Instant::now();
        let mut fetch = Fetch {
            host: AttachedSession::new(attachment),
            options: options.transfer,
            timeout: options.timeout,
            limit,
            loses_modes: false,
            update,
            unpacking: options.unpacking,
            wanted,
            _made: made,
            transfers: BTreeMap::new(),
            root: 0,
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
        fetch.root = fetch.start(root, assembly, options.offered);
        fetch.note_root();
        Ok(fetch)
    }

    /// Begins a content, or continues with what is here of it. Returns its number.
    pub(super) fn start(
        &mut self,
        transfer: Transfer,
        assembly: Assembly,
        offered: Option<OfferId>,
    ) -> u32 {
        let options = GetOptions {
            in_order: matches!(transfer.sink, Sink::Stream(_)),
            transfer: self.options,
            ..GetOptions::default()
        };
        let number = self.host.session().resume(assembly, options, offered);
        self.transfers.insert(number, transfer);
        number
    }

    /// Returns what has come of a content.
    pub(super) fn assembly(&mut self, number: u32) -> Option<&Assembly> {
        let received = self.host.session().requested(number)?;
        Some(received.assembly())
    }

    fn whole(&self) -> Option<&Transfer> {
        let whole = self.transfers.get(&self.root);
        whole.filter(|whole| whole.purpose == Purpose::Whole)
    }

    pub(super) fn run(
        &mut self,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Progress),
    ) -> Result<Fetched, FetchError> {
        self.host.connect()?;
        let mut shares = LinkShares::ask(self.host.session());
        // An earlier run may have left it complete, or may have left a folder's list: then files
        // are due at once.
        self.advance()?;
        loop {
            if self.is_done() {
                observe(&self.progress);
                return Ok(Fetched {
                    links: shares.since(&mut self.host),
                    ..self.fetched()
                });
            }
            if stop.load(Ordering::Relaxed) {
                return Err(FetchError::Interrupted);
            }
            let is_late = |timeout: &Duration| self.last_arrival.elapsed() >= *timeout;
            if let Some(timeout) = self.timeout.filter(is_late) {
                return Err(self.timed_out(timeout));
            }
            self.keep_records()?;
            self.tell_progress(observe);
            self.host.ask_aside(self.watch.question());
            if self.unannounced.as_mut().is_some_and(Unannounced::take_due) {
                self.host.session().ask_again(self.root);
            }
            match self.host.step(LOOK)? {
                SessionStep::Idle => {}
                SessionStep::Handled => {
                    shares.read(self.host.session());
                    while let Some(number) = self.host.session().poll_changed() {
                        self.note(number)?;
                    }
                }
                SessionStep::Aside(event) => {
                    let transfers = &self.transfers;
                    let is_ours = |it: &Guid| transfers.values().any(|one| one.content == *it);
                    self.watch.note(&event, &is_ours);
                }
                SessionStep::HostGone => {
                    self.progress.state = State::NoHost;
                    self.watch.host_gone(true);
                }
                SessionStep::HostBack => {
                    self.progress.state = State::Requested;
                    self.watch.host_gone(false);
                    if self.unannounced.take().is_some() {
                        self.host.session().ask_again(self.root);
                    }
                }
            }
        }
    }

    fn tell_progress(&mut self, observe: &mut dyn FnMut(&Progress)) {
        let is_due = |last: Instant| last.elapsed() >= TELL_INTERVAL;
        if self.last_told.is_none_or(is_due) {
            self.last_told = Some(Instant::now());
            self.note_pace();
            self.progress.wait = self.wait();
            observe(&self.progress);
            self.progress.pause_us = 0;
        }
    }

    fn timed_out(&self, after: Duration) -> FetchError {
        let content = self.transfers.get(&self.root).map(|root| root.content);
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

    /// Takes what has come of a content, or notes how it has ended.
    fn note(&mut self, number: u32) -> Result<(), FetchError> {
        loop {
            let session = self.host.session();
            let step = session.take_piece(number);
            let (Some(transfer), Some(received)) =
                (self.transfers.get_mut(&number), session.requested(number))
            else {
                return Ok(());
            };
            if let Some(state) = received.state() {
                self.progress.state = State::of(state);
            }
            match step {
                Ok(ChunkStep::Piece(piece)) => {
                    let manner = transfer.note_manner(received);
                    let bytes = received.assembly().verified_bytes();
                    if let Err(error) = manner.and_then(|()| transfer.write(&piece)) {
                        session.note_unstored(number);
                        return Err(error);
                    }
                    let new = bytes - core::mem::replace(&mut transfer.bytes, bytes);
                    let reserved = transfer.reserve(received.assembly());
                    self.note_arrival(new);
                    reserved?;
                    self.note_root();
                    self.refuse_early()?;
                }
                Ok(ChunkStep::Waiting | ChunkStep::Complete(_)) => return self.advance(),
                Err(ProgramError::Failed { reason, .. }) => {
                    return self.note_failure(number, reason);
                }
                Err(ProgramError::Incomplete { missing, .. }) => {
                    return self.note_incomplete(number, missing);
                }
                Err(ProgramError::TooLong { length, limit }) => {
                    let error = FetchError::TooLong { length, limit };
                    return match transfer.purpose {
                        Purpose::Whole => Err(error),
                        _ => self.refuse_member(number, &error),
                    };
                }
                Err(_) => return Ok(()),
            }
        }
    }

    fn note_arrival(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let last = core::mem::replace(&mut self.last_arrival, Instant::now());
        if self.progress.received > 0 {
            let pause = self.last_arrival.duration_since(last).as_micros() as u64;
            self.progress.pause_us = self.progress.pause_us.max(pause);
        }
        self.watch.progressed();
        self.unannounced = None;
        self.progress.bytes += bytes;
        self.progress.received += bytes;
    }

    /// Notes what the first chunk of the content states about the whole.
    pub(super) fn note_root(&mut self) {
        let Some(root) = self.whole() else {
            return;
        };
        let is_folder = root.manner.as_ref().is_some_and(|manner| manner.is_folder);
        if let Some(manner) = &root.manner {
            self.progress.file_name =
                Some(manner.file_name.clone()).filter(|name| !name.is_empty());
        }
        if !is_folder {
            self.progress.length = self.assembly(self.root).and_then(Assembly::expected_len);
        }
    }

    /// Refuses a folder that cannot be stored, with its first chunk.
    pub(super) fn refuse_early(&mut self) -> Result<(), FetchError> {
        let Some(root) = self.whole() else {
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
        match self.assembly(self.root).and_then(Assembly::expected_len) {
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
        let session = self.host.session();
        let changed = self.transfers.iter_mut();
        for (number, transfer) in changed.filter(|(_, transfer)| transfer.unrecorded) {
            let received = session.requested(*number);
            if let (Sink::Part(part), Some(manner), Some(received)) =
                (&transfer.sink, &transfer.manner, received)
            {
                snapshots.push(part.snapshot(received.assembly(), manner)?);
            }
            transfer.unrecorded = false;
        }
        Ok(snapshots)
    }

    /// Ends without the content; the received data is kept for the next run.
    pub(super) fn leave(&mut self) {
        for (number, transfer) in core::mem::take(&mut self.transfers) {
            self.leave_one(number, transfer);
        }
    }

    /// Forgets what has come of a content.
    pub(super) fn forget(&self, content: Guid) {
        let folder = self.wanted.as_ref().map(FileDestination::folder);
        let part = folder.and_then(|folder| PartFile::open(folder, content, u64::MAX, false).ok());
        if let Some((part, ..)) = part {
            part.discard();
        }
    }

    /// Keeps the received data of one content.
    pub(super) fn leave_one(&mut self, number: u32, transfer: Transfer) {
        self.keeper.wait();
        let (Sink::Part(part), Some(assembly)) =
            (transfer.sink, self.host.session().take_content(number))
        else {
            return;
        };
        if assembly.verified_bytes() == 0 {
            return part.discard();
        }
        let Some(manner) = transfer.manner.as_ref().filter(|_| transfer.unrecorded) else {
            return;
        };
        let kept = part.snapshot(&assembly, manner);
        let kept = kept.map(|snapshot| snapshot.keep());
        if let Ok(Err(error)) = kept {
            tracing::warn!(%error, "cannot keep the record of the download; an older one may exist");
        }
    }
}
