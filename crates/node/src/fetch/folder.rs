//! A folder under way: which of its files are still to be fetched, and where each goes.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use whimbrel_content::{Entry, Folder};
use whimbrel_core::Guid;

use super::FetchError;

/// A file to be fetched, with all places of the same content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub(super) content: Guid,
    pub(super) length: u64,
    /// Paths, and whether each may be run as a program; at least one.
    pub(super) places: Vec<(PathBuf, bool)>,
}

/// The files of a folder.
#[derive(Debug)]
pub(super) struct FolderPlan {
    pub(super) top: PathBuf,
    pub(super) queue: VecDeque<Wanted>,
    pub(super) files: usize,
    pub(super) length: u64,
}

impl FolderPlan {
    pub(super) fn new(top: PathBuf, folder: &Folder) -> FolderPlan {
        let mut entries: Vec<&Entry> = folder.entries().iter().collect();
        entries.sort_by(|a, b| (a.content, &a.path).cmp(&(b.content, &b.path)));
        let wanted = entries
            .chunk_by(|a, b| a.content == b.content)
            .map(|same| Wanted {
                content: same[0].content,
                length: same[0].length,
                places: same
                    .iter()
                    .map(|entry| (top.join(&entry.path), entry.executable))
                    .collect(),
            });
        let mut queue: Vec<Wanted> = wanted.collect();
        queue.sort_by(|a, b| a.places[0].0.cmp(&b.places[0].0));
        FolderPlan {
            files: folder.entries().len(),
            length: folder.total_len(),
            queue: queue.into(),
            top,
        }
    }
}

/// Makes the folder of `path` below `top`. Nothing on the way may be a link: it could lead out.
pub(super) fn make_parents(top: &Path, path: &Path) -> Result<PathBuf, FetchError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| FetchError::Disk { path, source }
    };
    fs::create_dir_all(top).map_err(failed(top))?;
    let parent = path.parent().unwrap_or(top);
    let mut folder = top.to_owned();
    for component in parent
        .strip_prefix(top)
        .unwrap_or(Path::new(""))
        .components()
    {
        folder.push(component);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                if !fs::symlink_metadata(&folder)
                    .map_err(failed(&folder))?
                    .is_dir()
                {
                    return Err(FetchError::InTheWay(folder));
                }
            }
            made => made.map_err(failed(&folder))?,
        }
    }
    Ok(folder)
}

/// Whether the file is there already, byte for byte: from an earlier run, or from long ago.
pub(super) fn is_there(path: &Path, content: Guid, length: u64) -> bool {
    let is_file =
        fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() == length);
    is_file
        && File::open(path).is_ok_and(|file| {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(file).is_ok() && *hasher.finalize().as_bytes() == content.0
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_content::RelativePath;

    #[test]
    fn a_link_on_the_way_is_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        fs::create_dir(&top).unwrap();
        std::os::unix::fs::symlink(outside.path(), top.join("a")).unwrap();
        let refused = make_parents(&top, &top.join("a/b/c"));
        assert!(matches!(refused, Err(FetchError::InTheWay(_))));
        assert_eq!(
            make_parents(&top, &top.join("x/y/z")).unwrap(),
            top.join("x/y")
        );
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_same_content_is_fetched_once() {
        let entry = |path: &str, byte| Entry {
            path: RelativePath::new(path).unwrap(),
            length: 5,
            content: Guid([byte; 32]),
            executable: path == "c",
        };
        let folder = Folder::new(vec![entry("a", 1), entry("b", 2), entry("c", 1)]).unwrap();
        let plan = FolderPlan::new("top".into(), &folder);
        assert_eq!((plan.files, plan.length, plan.queue.len()), (3, 15, 2));
        assert_eq!(
            plan.queue[0].places,
            [("top/a".into(), false), ("top/c".into(), true)]
        );
    }
}
