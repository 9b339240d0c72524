//! The destination of a content that is not written to a stream.

use std::fs;
use std::path::{Path, PathBuf};

use whimbrel_core::Guid;

use super::part;
use crate::output::{Place, Target, Within, is_refused_name, namesake, with_plain_name};

/// Bound of the names that are tried for a folder while others are taken.
const MAX_TOPS: u32 = 100;

/// A destination that is not a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FileDestination {
    Named(Target),
    Within(PathBuf),
}

impl FileDestination {
    /// Returns the destination for a content and a folder. A folder that an earlier run of the same
    /// command has left unfinished is itself the destination, not a place to put another folder
    /// into. So is the one to `update`.
    pub(super) fn within(within: &Within, content: Guid, update: bool) -> FileDestination {
        within
            .as_target()
            .filter(|target| update || part::is_under_way(target, content))
            .map_or_else(
                || FileDestination::Within(within.folder().to_owned()),
                FileDestination::Named,
            )
    }

    /// Returns the folder for the hidden files, on the same file system as the output.
    pub(super) fn folder(&self) -> &Path {
        match self {
            FileDestination::Named(target) => target.folder(),
            FileDestination::Within(folder) => folder,
        }
    }

    pub(super) fn place_of_file(&self, name: &str) -> Place {
        match self {
            // It was named as the older version of a folder, but the content is a file.
            FileDestination::Named(target) if target.path().is_dir() => {
                Place::Beside(target.path().join(name))
            }
            FileDestination::Named(target) => Place::Replacing(target.clone()),
            FileDestination::Within(folder) => Place::Beside(folder.join(name)),
        }
    }

    /// Returns the path of a folder called `name`. Inside a folder, the fetch resumes in the one
    /// that an earlier run has `begun`, or in one that `is_part` of it; another one of that name
    /// stays as it is. A link of that name is not used, because it could lead anywhere.
    pub(super) fn top_of_folder(
        &self,
        name: &str,
        begun: Option<&str>,
        is_part: impl Fn(&Path) -> bool,
    ) -> PathBuf {
        let folder = match self {
            FileDestination::Named(target) => return target.path().to_owned(),
            FileDestination::Within(folder) => folder,
        };
        let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        if let Some(begun) = begun
            .map(|begun| folder.join(begun))
            .filter(|begun| begun.parent() == Some(folder) && is_folder(begun))
        {
            return begun;
        }
        let is_usable = |path: &PathBuf| {
            fs::symlink_metadata(path).is_err() || (is_folder(path) && is_part(path))
        };
        let name = taken_name(folder.join(name));
        let mut names = (1..MAX_TOPS).map(|number| namesake(&name, number));
        names.find(is_usable).unwrap_or(name)
    }
}

/// Returns the path of a folder that is to be made; one with a plain name if its file system does not
/// take the name. Only trying tells.
fn taken_name(path: PathBuf) -> PathBuf {
    match fs::create_dir(&path) {
        Ok(()) => {
            let _ = fs::remove_dir(&path);
            path
        }
        Err(error) if is_refused_name(&error) => with_plain_name(&path).unwrap_or(path),
        Err(_) => path,
    }
}
