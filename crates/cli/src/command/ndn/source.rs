//! Content to serve: read from a file on demand, so that its size does not matter.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use whimbrel_transport::SegmentSource;
use whimbrel_transport::serve::SourceError;

use crate::exit::{Exit, Failure};

/// Bytes that are read at a time.
const CHUNK: u64 = 1 << 20;

/// A file in segments.
pub(super) struct FileSource {
    file: File,
    name: PathBuf,
    length: u64,
    /// Modification time, to detect a change of the file.
    modified: (i64, i64),
    segment_size: u64,
    chunk: Vec<u8>,
    /// The offset of `chunk` in the file.
    chunk_at: u64,
}

impl FileSource {
    /// Opens the file at `path`.
    pub(super) fn open(path: &Path, segment_size: usize) -> Result<FileSource, Failure> {
        let cannot = |error: io::Error| {
            Failure::new(
                Exit::Usage,
                format!("cannot read {}: {error}", path.display()),
            )
        };
        let file = File::open(path).map_err(cannot)?;
        if file.metadata().map_err(cannot)?.is_dir() {
            let text = format!(
                "{} is a folder: serve a file, or an archive of the folder",
                path.display()
            );
            return Err(Failure::new(Exit::Usage, text));
        }
        FileSource::whole(file, path.to_owned(), segment_size).map_err(cannot)
    }

    /// Reads standard input: in place if it is a file, else through a temporary file.
    pub(super) fn stdin(segment_size: usize) -> Result<FileSource, Failure> {
        let cannot = |error: io::Error| {
            Failure::new(Exit::Other, format!("cannot read standard input: {error}"))
        };
        let stdin = io::stdin();
        let file = File::from(stdin.as_fd().try_clone_to_owned().map_err(cannot)?);
        FileSource::whole(file, PathBuf::from("standard input"), segment_size).map_err(cannot)
    }

    /// Uses a regular file in place; copies a pipe or the like to a temporary file.
    fn whole(mut file: File, name: PathBuf, segment_size: usize) -> io::Result<FileSource> {
        if !file.metadata()?.is_file() {
            let mut copy = tempfile::tempfile()?;
            io::copy(&mut file, &mut copy)?;
            file = copy;
        }
        FileSource::of(file, name, segment_size)
    }

    fn of(file: File, name: PathBuf, segment_size: usize) -> io::Result<FileSource> {
        let metadata = file.metadata()?;
        Ok(FileSource {
            length: metadata.len(),
            modified: modified(&metadata),
            file,
            name,
            segment_size: segment_size.max(1) as u64,
            chunk: Vec::new(),
            chunk_at: 0,
        })
    }

    /// Returns the length in bytes.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Fills `chunk` from offset `at`.
    fn load(&mut self, at: u64) -> io::Result<()> {
        let metadata = self.file.metadata()?;
        if metadata.len() != self.length || modified(&metadata) != self.modified {
            return Err(io::Error::other(
                "the file has changed since it was published: restart `whimbrel ndn serve`",
            ));
        }
        let start = at - at % CHUNK;
        let len = usize::try_from((self.length - start).min(CHUNK)).unwrap_or_default();
        self.chunk.resize(len, 0);
        self.chunk_at = start;
        self.file
            .read_exact_at(&mut self.chunk, start)
            .inspect_err(|_| self.chunk.clear())
    }
}

fn modified(metadata: &Metadata) -> (i64, i64) {
    (metadata.mtime(), metadata.mtime_nsec())
}

impl SegmentSource for FileSource {
    fn segments(&self) -> u64 {
        self.length.div_ceil(self.segment_size).max(1)
    }

    fn read(&mut self, number: u64, out: &mut Vec<u8>) -> Result<(), SourceError> {
        let mut at = number.saturating_mul(self.segment_size).min(self.length);
        let end = at.saturating_add(self.segment_size).min(self.length);
        while at < end {
            let chunk_end = self.chunk_at + self.chunk.len() as u64;
            if at < self.chunk_at || at >= chunk_end {
                self.load(at).map_err(|error| SourceError {
                    segment: number,
                    reason: format!("{}: {error}", self.name.display()),
                })?;
                continue;
            }
            let stop = end.min(chunk_end);
            let range = (at - self.chunk_at) as usize..(stop - self.chunk_at) as usize;
            out.extend_from_slice(self.chunk.get(range).unwrap_or_default());
            at = stop;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn segments_put_together_are_the_file_wherever_chunks_end() {
        let length = 2 * CHUNK as usize + 12_345;
        let content: Vec<u8> = (0..length).map(|at| (at / 251) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&content).unwrap();
        for segment_size in [8000, 1 << 20, 777_777, 4_000_000] {
            let mut source = FileSource::open(file.path(), segment_size).unwrap();
            assert_eq!(source.segments(), length.div_ceil(segment_size) as u64);
            let mut read = Vec::new();
            (0..source.segments()).for_each(|number| source.read(number, &mut read).unwrap());
            assert!(read == content, "segments of {segment_size} bytes");
            let mut last = Vec::new();
            source.read(source.segments() - 1, &mut last).unwrap();
            source.read(0, &mut last).unwrap();
            assert!(last.ends_with(&content[..segment_size.min(length)]));
        }
    }

    #[test]
    fn an_empty_file_is_one_empty_segment_and_a_changed_one_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut source = FileSource::open(file.path(), 10).unwrap();
        let mut out = Vec::new();
        source.read(0, &mut out).unwrap();
        assert_eq!((source.segments(), out.len()), (1, 0));
        file.write_all(b"content").unwrap();
        let mut source = FileSource::open(file.path(), 10).unwrap();
        file.write_all(b" and more").unwrap();
        assert!(
            source
                .read(0, &mut out)
                .unwrap_err()
                .to_string()
                .contains("has changed")
        );
        assert!(FileSource::open(Path::new("/"), 10).is_err());
    }
}
