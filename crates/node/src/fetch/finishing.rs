//! What is complete gets its place; the files of a folder follow one after the other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use whimbrel_content::{ChunkSize, Folder};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::LocalRequest;

use super::FetchError;
use super::folder::{FolderPlan, Wanted, is_there, make_parents};
use super::part::{self, PartFile};
use super::session::Fetch;
use super::transfer::{Purpose, Sink, Transfer, stream_failed};
use super::wish::Wish;
use crate::output::{Place, safe_name};

/// Files of a folder that are under way at the same time.
const MAX_AT_ONCE: usize = 8;

impl Fetch {
    /// Finishes what is complete and starts what there is room for; answers with the new requests.
    pub(super) fn advance(&mut self) -> Result<Vec<LocalRequest>, FetchError> {
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

    pub(super) fn finish(&mut self, number: u32) -> Result<(), FetchError> {
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
    pub(super) fn copy(
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
        place.publish(temporary.as_file(), temporary.path())?;
        self.progress.bytes += length;
        self.progress.resumed += length;
        Ok(())
    }

    /// Begins with a file of a folder; `None` if nothing of it is missing.
    pub(super) fn start_member(&mut self, wanted: Wanted) -> Result<Option<Transfer>, FetchError> {
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
}

/// The name that a content gets in a folder.
pub(super) fn name_for(suggested: &str, content: Guid) -> String {
    safe_name(suggested).unwrap_or_else(|| content.to_string())
}
