//! One content under way.

use std::borrow::Cow;

use whimbrel_client::ContentPiece;
use whimbrel_client::session::RequestedContent;
use whimbrel_content::{Assembly, ContentKey};
use whimbrel_core::Guid;

use super::FetchError;
use super::part::{Manner, PartFile};
use crate::output::Stream;

/// The destination of the bytes.
pub(super) enum Sink {
    /// To a file, in any order.
    Part(PartFile),
    /// To a pipe or a device, in order.
    Stream(Stream),
}

/// The use of a content once it is complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// The user asked for it: a file, or a folder's list.
    Whole,
    /// It is a file of a folder, for these entries.
    Member(Vec<usize>),
    /// It holds small files of a folder, for these entries.
    Pack(Vec<usize>),
}

pub(super) struct Transfer {
    pub(super) content: Guid,
    pub(super) key: Option<ContentKey>,
    pub(super) manner: Option<Manner>,
    pub(super) purpose: Purpose,
    pub(super) sink: Sink,
    /// Bytes that are written.
    pub(super) bytes: u64,
    /// True if anything was written since the last record.
    pub(super) unrecorded: bool,
}

impl Transfer {
    /// Notes what the source states of the content, before any of it is written.
    pub(super) fn note_manner(&mut self, received: &RequestedContent) -> Result<(), FetchError> {
        let Some(kind) = received.kind() else {
            return Ok(());
        };
        if self.manner.is_none() {
            let manner = Manner {
                is_encrypted: self.key.is_some(),
                ..Manner::new(&self.file_name(received), kind)
            };
            // The list of a private folder is private, too.
            if let (Sink::Part(part), true) = (&self.sink, manner.is_folder) {
                part.keep_private()?;
            }
            self.manner = Some(manner);
        }
        // A provider may know the content without a name, as a pack of a folder.
        let is_nameless = |manner: &Manner| manner.file_name.is_empty();
        if self.manner.as_ref().is_some_and(is_nameless) {
            let file_name = self.file_name(received);
            self.manner
                .iter_mut()
                .for_each(|it| it.file_name.clone_from(&file_name));
        }
        let is_folder = self.manner.as_ref().is_some_and(|manner| manner.is_folder);
        match &self.sink {
            Sink::Stream(_) if is_folder => Err(FetchError::FolderToStream),
            _ => Ok(()),
        }
    }

    /// Returns the name that the source suggests, as far as it can be read.
    fn file_name(&self, received: &RequestedContent) -> String {
        match &self.key {
            Some(key) => key.name(received.file_name()).unwrap_or_default(),
            None => received.file_name().to_owned(),
        }
    }

    /// Writes verified bytes.
    pub(super) fn write(&mut self, piece: &ContentPiece) -> Result<(), FetchError> {
        let mut data = Cow::Borrowed(&piece.data[..]);
        if let Some(key) = &self.key {
            key.apply(piece.offset, data.to_mut());
        }
        match &mut self.sink {
            Sink::Part(part) => part.write(piece.offset, &data)?,
            Sink::Stream(stream) => {
                let written = stream.writer.write_all(&data);
                written.map_err(|source| stream_failed(stream, source))?;
            }
        }
        self.unrecorded = true;
        Ok(())
    }

    /// Claims room for the missing bytes, once the length is proven.
    pub(super) fn reserve(&mut self, assembly: &Assembly) -> Result<(), FetchError> {
        match (&mut self.sink, assembly.confirmed_len()) {
            (Sink::Part(part), Some(length)) => {
                let missing = assembly.missing().next();
                part.reserve(missing.map_or(length, |gap| gap.start)..length)
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn stream_failed(stream: &Stream, source: std::io::Error) -> FetchError {
    let path = stream.path.clone();
    FetchError::Stream { path, source }
}
