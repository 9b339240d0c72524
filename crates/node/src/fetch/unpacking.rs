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
use crate::bundle::{BundlePart, LIST_AT, parts_of};

/// Bytes that are copied at once.
const COPY: usize = 1 << 20;

/// How a folder that comes as one content is unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unpacking {
    /// The most that it may take on disk, in bytes; `None` for any that is believable.
    pub limit: Option<u64>,
}

impl Fetch {
    /// Writes the files of a complete bundle. A run that is killed meanwhile begins it again, in the same
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
        let mut head = [0; LIST_AT as usize];
        if length < LIST_AT {
            return Err(FetchError::BadBundle);
        }
        file.read_exact_at(&mut head, 0).map_err(failed)?;
        let listing_len = u64::from_be_bytes(head);
        if listing_len > (length - LIST_AT).min(MAX_LISTING_LEN as u64) {
            return Err(FetchError::BadBundle);
        }
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
            place(&mut plan, &job, file, part, wanted)?;
        }
        plan.finish()?;
        self.progress.files = Some((plan.files, plan.files));
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
