//! Folders for the files of a run.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_folder_of_a_run_is_private_and_has_a_name_of_its_own() {
        let [one, other] = [folder("whimbrel-test-"), folder("whimbrel-test-")].map(Result::unwrap);
        assert_ne!(one.path(), other.path());
        assert_eq!(one.path().metadata().unwrap().mode() & 0o7777, 0o700);
    }
}
