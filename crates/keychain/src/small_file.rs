//! Reads files that are small by their nature, as keys and configurations: a device or a large file that
//! is named by mistake neither fills the memory nor takes for ever.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

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

#[cfg(test)]
mod tests {
    use super::*;

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
