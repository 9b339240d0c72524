//! Where a content goes that is not written to a stream.

use std::fs;
use std::path::{Path, PathBuf};

use whimbrel_core::Guid;

use super::part;
use crate::output::{Place, Target, Within, namesake};

/// Names that are tried for a folder while something else has them.
const MAX_TOPS: u32 = 100;

/// A destination that is no stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    Named(Target),
    Within(PathBuf),
}

impl Wish {
    /// A folder that an earlier run of the same command has made, and not finished, is the one that
    /// the user has named, not one to put another folder into. So is the one to `update`.
    pub(super) fn within(within: &Within, content: Guid, update: bool) -> Wish {
        within
            .as_target()
            .filter(|target| update || part::is_under_way(target, content))
            .map_or_else(|| Wish::Within(within.folder().to_owned()), Wish::Named)
    }

    /// The folder for the hidden files: on the same file system as the output.
    pub(super) fn folder(&self) -> &Path {
        match self {
            Wish::Named(target) => target.folder(),
            Wish::Within(folder) => folder,
        }
    }

    pub(super) fn place_of_file(&self, name: &str) -> Place {
        match self {
            // It was named as the older version of a folder, and a file has come.
            Wish::Named(target) if target.path().is_dir() => {
                Place::Beside(target.path().join(name))
            }
            Wish::Named(target) => Place::Replacing(target.clone()),
            Wish::Within(folder) => Place::Beside(folder.join(name)),
        }
    }

    /// The folder that a folder called `name` becomes. In a folder it goes on in the one that an earlier
    /// run has `begun`, or in one that `is_part` of it; another one of that name stays as it is. A link
    /// of that name could lead anywhere.
    pub(super) fn top_of_folder(
        &self,
        name: &str,
        begun: Option<&str>,
        is_part: impl Fn(&Path) -> bool,
    ) -> PathBuf {
        let folder = match self {
            Wish::Named(target) => return target.path().to_owned(),
            Wish::Within(folder) => folder,
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
        let name = folder.join(name);
        let mut names = (1..MAX_TOPS).map(|number| namesake(&name, number));
        names.find(is_usable).unwrap_or(name)
    }
}
