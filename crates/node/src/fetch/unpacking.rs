//! A folder that has come as one content: its files are written from there.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use whimbrel_content::folder::MAX_LISTING_LEN;
use whimbrel_content::{Assembly, Folder};

use super::FetchError;
use super::file_destination::FileDestination;
use super::finishing::name_for;
use super::folder::{FolderPlan, Goal, Job, is_part_of};
use super::part::{Manner, PartFile};
use super::session::Fetch;
use super::transfer::{Purpose, Sink, Transfer};
use crate::bundle::{BundlePart, LIST_AT, parts_of};

/// Bytes that are copied at once.
const COPY: usize = 1 << 20;

/// How a folder that comes as one content is unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unpacking {
    /// The most that it may take on disk, in bytes; `None` for any that is believable.
    pub limit: Option<u64>,
}

/// Returns the length of a bundle's list, if it has come.
fn listing_len(part: &PartFile, assembly: &Assembly) -> Result<Option<u64>, FetchError> {
    let verified = assembly.verified();
    if !verified.contains(&(0..LIST_AT)) {
        return Ok(None);
    }
    let head = part.read_all(LIST_AT)?;
    let len = head.try_into().map_or(0, u64::from_be_bytes);
    let end = LIST_AT.saturating_add(len);
    Ok(verified.contains(&(0..end)).then_some(len))
}

impl Fetch<'_> {
    /// Writes the files of a bundle whose missing parts are not sent again, as far as they have come. Returns
    /// false if it is none, or the list is among what is missing.
    pub(super) fn unpack_incomplete(&mut self, request: u32) -> Result<bool, FetchError> {
        // A record that is written late would come back after its removal.
        self.keeper.wait();
        let is_whole = |it: &&Transfer| it.purpose == Purpose::Whole;
        let session = self.host.session();
        let (Some(transfer), Some(received), Some(wanted), Some(_)) = (
            self.transfers.get(&request).filter(is_whole),
            session.requested(request),
            self.wanted.clone(),
            self.unpacking,
        ) else {
            return Ok(false);
        };
        let (Sink::Part(part), Some(length)) =
            (&transfer.sink, received.assembly().confirmed_len())
        else {
            return Ok(false);
        };
        if listing_len(part, received.assembly())?.is_none() {
            return Ok(false);
        }
        let (Some(transfer), Some(assembly)) = (
            self.transfers.remove(&request),
            session.take_content(request),
        ) else {
            return Ok(false);
        };
        let mut manner = transfer.manner.unwrap_or_default();
        if let Sink::Part(part) = transfer.sink {
            self.unpack(part, &assembly, &mut manner, &wanted, length)?;
        }
        Ok(true)
    }

    /// Writes the files of a bundle that have come. A run that is killed meanwhile begins it again, in the same
    /// folder.
    pub(super) fn unpack(
        &mut self,
        part: PartFile,
        assembly: &Assembly,
        manner: &mut Manner,
        wanted: &FileDestination,
        length: u64,
    ) -> Result<(), FetchError> {
        let content = assembly.root();
        let (file, path) = part.end(length, false)?;
        let failed = |source| FetchError::Disk {
            path: path.to_owned(),
            source,
        };
        let listing_len = match listing_len(&part, assembly)? {
            Some(len) if len <= (length - LIST_AT).min(MAX_LISTING_LEN as u64) => len,
            _ => return Err(FetchError::BadBundle),
        };
        let mut listing = vec![0; listing_len as usize];
        file.read_exact_at(&mut listing, LIST_AT).map_err(failed)?;
        let listing = Folder::decode(&listing)?;
        let (parts, end) = parts_of(&listing.folder, listing_len).ok_or(FetchError::BadBundle)?;
        if end != length {
            return Err(FetchError::BadBundle);
        }
        let top = wanted.top_of_folder(
            &name_for(&manner.file_name, content),
            manner.top.as_deref(),
            |top| is_part_of(top, &listing.folder, content),
        );
        manner.top = top
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        part.snapshot(assembly, manner)?.keep().map_err(failed)?;
        let limit = self.unpacking.and_then(|unpacking| unpacking.limit);
        let goal = Goal {
            listing: content,
            staging: None,
            top,
            limit,
            listing_len: length,
        };
        let mut plan = FolderPlan::begin(&goal, listing)?;
        while let Some(job) = plan.queue.pop_front() {
            let part = parts.iter().find(|part| part.content == job.content);
            let part = part.ok_or(FetchError::BadBundle)?;
            let range = part.offset..part.offset + part.length;
            match assembly.verified().contains(&range) {
                true => place(&mut plan, &job, file, part, wanted)?,
                false => plan.refuse(&job.entries, &FetchError::NotSentAgain)?,
            }
        }
        plan.finish()?;
        let made = plan.files.saturating_sub(plan.refused.len());
        self.progress.files = Some((made, plan.files));
        self.done = Some(goal.top);
        self.plan = Some(plan);
        part.discard();
        Ok(())
    }
}

/// Writes the files of one content.
fn place(
    plan: &mut FolderPlan,
    job: &Job,
    bundle: &File,
    part: &BundlePart,
    wanted: &FileDestination,
) -> Result<(), FetchError> {
    if job.is_pack {
        let mut bytes = vec![0; part.length as usize];
        let read = bundle.read_exact_at(&mut bytes, part.offset);
        read.map_err(|source| FetchError::Disk {
            path: plan.top().to_owned(),
            source,
        })?;
        plan.place_pack(&bytes, &job.entries)?;
        return Ok(());
    }
    let temporary = wanted.place_of_file("folder").temporary()?;
    let copied = copy(bundle, part, temporary.as_file());
    match copied.map_err(|source| FetchError::Disk {
        path: plan.top().to_owned(),
        source,
    })? {
        true => {
            let (file, from) = (temporary.as_file(), temporary.path());
            plan.place_file(part.length, file, from, &job.entries)?;
        }
        false => plan.refuse(&job.entries, &FetchError::BadBundle)?,
    }
    Ok(())
}

/// Copies a content. Returns false if it is not the one that the list names.
fn copy(bundle: &File, part: &BundlePart, mut to: &File) -> io::Result<bool> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; COPY];
    let mut at = 0;
    while at < part.length {
        let count = (part.length - at).min(COPY as u64) as usize;
        bundle.read_exact_at(&mut buffer[..count], part.offset + at)?;
        hasher.update(&buffer[..count]);
        to.write_all(&buffer[..count])?;
        at += count as u64;
    }
    Ok(hasher.finalize() == part.content.0)
}
