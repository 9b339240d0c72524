//! The end of transfers: a complete content gets its place, and the files of a folder follow.

use whimbrel_content::encryption::decode_list;
use whimbrel_content::{Assembly, ChunkSize, ContentKey, Folder};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{FailReason, MissingParts};

use super::FetchError;
use super::file_destination::FileDestination;
use super::folder::{FolderPlan, Goal, Job, is_part_of};
use super::part::{Manner, PartFile};
use super::session::Fetch;
use super::transfer::{Purpose, Sink, Transfer, stream_failed};
use super::unannounced::Unannounced;
use crate::output::safe_name;

/// Bound of the files and packs of a folder that are under way at the same time.
const MAX_AT_ONCE: usize = 8;

/// Failures in a row after which the source counts as gone.
const MAX_FAILURES: usize = 2 * MAX_AT_ONCE;

/// The files of a folder that its source does not give.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Their number, the path of the first one, and the reason.
    files: Option<(usize, String, FailReason)>,
    /// Failures since the last completed file.
    in_a_row: usize,
    /// The same of those that are not sent again.
    incomplete: Option<(usize, String, MissingParts)>,
}

impl Fetch<'_> {
    /// Notes that the host gives up a request. Other files of a folder may still be available: a
    /// file that has changed at its source must not keep them back, in this run and in every later
    /// one.
    pub(super) fn note_failure(
        &mut self,
        request: u32,
        reason: FailReason,
    ) -> Result<(), FetchError> {
        let Some(transfer) = self.transfers.get(&request) else {
            return Ok(());
        };
        let failed = FetchError::Failed {
            content: transfer.content,
            reason,
        };
        if transfer.purpose == Purpose::Whole && Unannounced::is_meant_by(reason) {
            let earlier = self.unannounced.take();
            self.unannounced = Some(Unannounced::after(earlier, reason));
            return Ok(());
        }
        let is_gone = reason == FailReason::NotServed || Unannounced::is_meant_by(reason);
        self.missing.in_a_row += 1;
        let (Some(plan), Purpose::Member(entries) | Purpose::Pack(entries), true) =
            (&self.plan, &transfer.purpose, is_gone)
        else {
            return Err(failed);
        };
        if self.missing.in_a_row >= MAX_FAILURES {
            return Err(failed);
        }
        let first = entries
            .first()
            .map_or(String::new(), |at| plan.path_of(*at));
        let (files, ..) = self.missing.files.get_or_insert((0, first, reason));
        *files += entries.len();
        if let Some(transfer) = self.transfers.remove(&request) {
            self.leave_one(request, transfer);
        }
        self.advance()
    }

    /// Notes that parts of a content did not come, and are not sent again. Other files of a folder may come
    /// whole.
    pub(super) fn note_incomplete(
        &mut self,
        request: u32,
        missing: MissingParts,
    ) -> Result<(), FetchError> {
        let Some(transfer) = self.transfers.get(&request) else {
            return Ok(());
        };
        let (Some(plan), Purpose::Member(entries) | Purpose::Pack(entries)) =
            (&self.plan, &transfer.purpose)
        else {
            return match self.unpack_incomplete(request)? {
                true => Ok(()),
                false => Err(FetchError::Incomplete(missing)),
            };
        };
        let first = entries.first().map(|at| plan.path_of(*at));
        let first = first.unwrap_or_default();
        let (files, ..) = self.missing.incomplete.get_or_insert((0, first, missing));
        *files += entries.len();
        if let Some(transfer) = self.transfers.remove(&request) {
            self.leave_one(request, transfer);
        }
        self.advance()
    }

    /// A content of a folder is longer than the list says: its files are refused, the others go on.
    pub(super) fn refuse_member(
        &mut self,
        request: u32,
        why: &FetchError,
    ) -> Result<(), FetchError> {
        let Some(transfer) = self.transfers.remove(&request) else {
            return Ok(());
        };
        // A record that is written late would come back after its removal.
        self.keeper.wait();
        let assembly = self.host.session().take_content(request);
        let length = assembly.map_or(0, |it| it.verified_bytes());
        let (Purpose::Member(entries) | Purpose::Pack(entries)) = transfer.purpose else {
            return Ok(());
        };
        if let Sink::Part(part) = transfer.sink {
            part.discard();
        }
        if let Some(plan) = &mut self.plan {
            plan.refuse(&entries, why)?;
        }
        self.count(length, (0, 0));
        self.advance()
    }

    /// Finishes what is complete and starts what there is room for.
    pub(super) fn advance(&mut self) -> Result<(), FetchError> {
        loop {
            let session = self.host.session();
            let is_whole = |number: &&u32| {
                let received = session.requested(**number);
                received.is_some_and(|it| it.assembly().is_complete())
            };
            if let Some(number) = self.transfers.keys().find(is_whole).copied() {
                self.finish(number)?;
                continue;
            }
            if self.transfers.len() >= MAX_AT_ONCE {
                break;
            }
            let Some(job) = self.plan.as_mut().and_then(|plan| plan.queue.pop_front()) else {
                break;
            };
            self.start_job(job)?;
        }
        if self.transfers.is_empty()
            && let Some(plan) = self.plan.as_mut().filter(|plan| !plan.is_finished)
        {
            if let Some((count, first, reason)) = self.missing.files.take() {
                return Err(FetchError::FilesMissing {
                    count,
                    first,
                    reason,
                });
            }
            if let Some((count, first, missing)) = self.missing.incomplete.take() {
                return Err(FetchError::FilesIncomplete {
                    count,
                    first,
                    missing,
                });
            }
            plan.finish()?;
        }
        if self.is_done()
            && let Some(list) = self.list.take()
        {
            list.discard();
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, number: u32) -> Result<(), FetchError> {
        // A record that is written late would come back after its removal.
        self.keeper.wait();
        let (Some(transfer), Some(assembly)) = (
            self.transfers.remove(&number),
            self.host.session().take_content(number),
        ) else {
            return Ok(());
        };
        self.missing.in_a_row = 0;
        let length = assembly.confirmed_len().unwrap_or_default();
        let mut manner = transfer.manner.clone().unwrap_or_default();
        let (part, wanted) = match (transfer.sink, &self.wanted) {
            (Sink::Part(part), Some(wanted)) => (part, wanted.clone()),
            (Sink::Stream(mut stream), _) => {
                let flushed = stream.writer.flush();
                self.done = stream.path.clone();
                return flushed.map_err(|source| stream_failed(&stream, source));
            }
            (Sink::Part(_), None) => return Ok(()),
        };
        match transfer.purpose {
            Purpose::Whole if manner.is_folder => {
                let key = transfer.key.as_ref();
                self.begin_folder(part, key, &assembly, &mut manner, &wanted)?;
            }
            Purpose::Whole if self.unpacking.is_some() => {
                self.unpack(part, &assembly, &mut manner, &wanted, length)?;
            }
            Purpose::Whole => {
                let place = wanted.place_of_file(&name_for(&manner.file_name, transfer.content));
                self.progress.bytes = length;
                self.progress.length = Some(length);
                let published = part.finish(length, &place)?;
                self.loses_modes |= !published.keeps_mode;
                self.done = Some(published.path);
            }
            Purpose::Member(entries) => {
                // A folder has many small files: the fetch does not wait for the disk each time.
                let durable = length > ChunkSize::DEFAULT.bytes();
                let (file, from) = part.end(length, durable)?;
                let placed = match &mut self.plan {
                    Some(plan) => plan.place_file(length, file, from, &entries)?,
                    None => (0, 0),
                };
                part.discard();
                self.count(length, placed);
            }
            Purpose::Pack(entries) => {
                let pack = part.read_all(length)?;
                let placed = match &mut self.plan {
                    Some(plan) => plan.place_pack(&pack, &entries)?,
                    None => (0, 0),
                };
                part.discard();
                self.count(length, placed);
            }
        }
        Ok(())
    }

    /// Replaces the bytes of a content, which were counted as they came, by those of its files.
    fn count(&mut self, length: u64, (files, bytes): (usize, u64)) {
        let progress = &mut self.progress;
        progress.bytes = progress.bytes.saturating_sub(length) + bytes;
        if let Some((complete, _)) = &mut progress.files {
            *complete += files;
        }
    }

    /// Begins the files of a folder, whose list is complete.
    fn begin_folder(
        &mut self,
        part: PartFile,
        key: Option<&ContentKey>,
        assembly: &Assembly,
        manner: &mut Manner,
        wanted: &FileDestination,
    ) -> Result<(), FetchError> {
        let content = assembly.root();
        let length = assembly.confirmed_len().unwrap_or_default();
        let bytes = part.read_all(length)?;
        let (list, names) = match key {
            Some(_) => decode_list(&bytes).ok_or(FetchError::BadBundle)?,
            None => (&bytes[..], Vec::new()),
        };
        let listing = Folder::decode(list)?;
        let top = wanted.top_of_folder(
            &name_for(&manner.file_name, content),
            manner.top.as_deref(),
            |top| is_part_of(top, &listing.folder, content),
        );
        // A later run of the same command resumes in the same folder, whatever it contains by then.
        manner.top = top
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let kept = part.snapshot(assembly, manner)?.keep();
        if let Err(error) = kept {
            tracing::warn!(%error, "cannot keep the folder's list for a later run");
        }
        let staging = self
            .update
            .then(|| wanted.folder().join(format!(".{content}.new")));
        let goal = Goal {
            listing: content,
            staging: staging.filter(|_| top.is_dir()),
            top,
            limit: self.limit,
            listing_len: length,
        };
        let mut plan = FolderPlan::begin(&goal, listing)?;
        if let Some(key) = key {
            plan.encrypted(key, &names)?;
        }
        // From here on the files count, not the list.
        self.progress.length = Some(plan.length);
        let (files, bytes) = plan.present;
        (
            self.progress.bytes,
            self.progress.received,
            self.progress.resumed,
        ) = (bytes, 0, bytes);
        self.progress.files = Some((files, plan.files));
        self.done = Some(match wanted {
            FileDestination::Named(target) => target.named().to_owned(),
            FileDestination::Within(_) => goal.top,
        });
        self.plan = Some(plan);
        self.list = Some(part);
        Ok(())
    }

    /// Begins a file or a pack of a folder.
    fn start_job(&mut self, job: Job) -> Result<(), FetchError> {
        // Beside the folder, not in it: there a listing could plant a false record.
        let Some(folder) = self.wanted.as_ref().map(FileDestination::folder) else {
            return Ok(());
        };
        // More than the list says is of no use.
        let (part, assembly, manner) =
            PartFile::open(folder, job.content, job.length, job.key.is_some())?;
        // Some of its files may be private.
        self.loses_modes |= !part.keep_private()?;
        let bytes = assembly.verified_bytes();
        self.progress.bytes += bytes;
        self.progress.resumed += bytes;
        let transfer = Transfer {
            content: job.content,
            key: job.key,
            manner,
            purpose: if job.is_pack {
                Purpose::Pack(job.entries)
            } else {
                Purpose::Member(job.entries)
            },
            sink: Sink::Part(part),
            bytes,
            unrecorded: false,
        };
        self.start(transfer, assembly, None);
        Ok(())
    }
}

/// Returns the name that a content gets in a folder.
pub(super) fn name_for(suggested: &str, content: Guid) -> String {
    safe_name(suggested).unwrap_or_else(|| content.to_string())
}
