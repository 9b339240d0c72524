//! Files that are small by their nature, as keys and configurations: a device or a large file that is
//! named by mistake neither fills the memory nor takes for ever, and a new file is there whole or not
//! at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bound of such a file, in bytes.
const MAX_LEN: u64 = 1024 * 1024;

/// Reads a file of at most 1 MiB; [`io::ErrorKind::FileTooLarge`] if it is longer.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?
        .take(MAX_LEN + 1)
        .read_to_end(&mut content)?;
    if content.len() as u64 > MAX_LEN {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is longer than 1 MiB",
        ));
    }
    Ok(content)
}

/// Reads a file of text as [`read`] does; [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text (UTF-8)"))
}

/// Replaces a file atomically: a reader, even after a crash, finds the old content or the new one.
/// Only its owner can read it. Nobody else may write it at the same time.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    // The parent of a bare file name is empty.
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // A crash may have left one.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_folder_in_its_name_is_written() {
        let name = format!("whimbrel-small-file-{}", std::process::id());
        let written = write(Path::new(&name), b"x");
        let _ = fs::remove_file(&name);
        written.unwrap();
    }

    #[test]
    fn what_has_no_end_is_refused() {
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_file_of_the_greatest_length_is_read_and_one_octet_more_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![b'x'; MAX_LEN as usize]).unwrap();
        assert_eq!(read_text(file.path()).unwrap().len() as u64, MAX_LEN);
        std::fs::write(file.path(), vec![b'x'; MAX_LEN as usize + 1]).unwrap();
        assert!(read(file.path()).is_err());
        std::fs::write(file.path(), [0xFF, 0xFE]).unwrap();
        let error = read_text(file.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
