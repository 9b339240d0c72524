//! Folders for the files of a run.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::LabError;

/// Makes a folder in the system's folder for temporary files, which other users may write to: under
/// a name that they cannot guess, and for this user only. It is removed when it is dropped.
pub fn folder(prefix: &str) -> Result<TempDir, LabError> {
    folder_in(&std::env::temp_dir(), prefix)
}

/// Makes such a folder in `place`.
pub fn folder_in(place: &Path, prefix: &str) -> Result<TempDir, LabError> {
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(place)
        .map_err(LabError::system(format!(
            "make a folder in {}",
            place.display()
        )))
}

/// Copies the logs and configurations in the folder of a run to a new folder in `place`, which stays.
pub(crate) fn keep_logs(run: &Path, place: &Path) -> Result<PathBuf, LabError> {
    let kept = folder_in(place, "whimbrel-lab-")?;
    let copy = || -> std::io::Result<()> {
        for entry in std::fs::read_dir(run)? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|end| end == "log" || end == "toml")
                && let Some(name) = path.file_name()
            {
                std::fs::copy(&path, kept.path().join(name))?;
            }
        }
        Ok(())
    };
    copy().map_err(LabError::system(format!(
        "copy the logs to {}",
        kept.path().display()
    )))?;
    Ok(kept.keep())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn a_folder_of_a_run_is_private_and_has_a_name_of_its_own() {
        let [one, other] = [folder("whimbrel-test-"), folder("whimbrel-test-")].map(Result::unwrap);
        assert_ne!(one.path(), other.path());
        assert_eq!(one.path().metadata().unwrap().mode() & 0o7777, 0o700);
    }

    #[test]
    fn logs_of_a_failed_run_are_not_written_through_planted_links() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for name in ["run", "target"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("run/router.log"), "log").unwrap();
        std::fs::write(at("run/content"), "no log").unwrap();
        let guess = format!("whimbrel-lab-{}", std::process::id());
        symlink(at("target"), at(&guess)).unwrap();
        let kept = keep_logs(&at("run"), place.path()).unwrap();
        assert_eq!(kept.metadata().unwrap().mode() & 0o7777, 0o700);
        let names = std::fs::read_dir(&kept).unwrap().count();
        assert_eq!(
            (names, std::fs::read(kept.join("router.log")).unwrap()),
            (1, b"log".to_vec())
        );
        assert_eq!(std::fs::read_dir(at("target")).unwrap().count(), 0);
    }
}
