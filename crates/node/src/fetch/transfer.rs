//! One content under way.

use bytes::Bytes;
use whimbrel_content::{Assembly, ChunkSize, Offer, Proof, Refusal, Verified};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{
    AcceptOffer, Get, LocalChunk, LocalRequest, OfferId, TransferOptions,
};

use super::FetchError;
use super::part::{Manner, PartFile};
use crate::output::Stream;

/// Chunks that a host may hand over before the program confirms the first one.
const CREDIT: u16 = 16;

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
    pub(super) assembly: Assembly,
    pub(super) manner: Option<Manner>,
    pub(super) purpose: Purpose,
    pub(super) sink: Sink,
    /// The offer by which it comes, if it is not to be requested.
    pub(super) offered: Option<OfferId>,
    /// True if anything was committed since the last record.
    pub(super) unrecorded: bool,
}

impl Transfer {
    /// Returns the request for the missing chunks.
    pub(super) fn request(&self, request: u32, options: TransferOptions) -> LocalRequest {
        let begun = self.assembly.verified_bytes() > 0;
        let get = Get {
            request,
            content: self.content,
            in_order: matches!(self.sink, Sink::Stream(_)),
            options,
            credit: CREDIT,
            resume: if begun {
                self.assembly.encode().into()
            } else {
                Bytes::new()
            },
        };
        match self.offered {
            Some(id) => LocalRequest::Accept(AcceptOffer { id, get }),
            None => LocalRequest::Get(get),
        }
    }

    /// Verifies a chunk if necessary, and writes it. Returns the number of new bytes.
    pub(super) fn take(&mut self, chunk: &LocalChunk) -> Result<u64, FetchError> {
        let Some(checked) = self.check(chunk) else {
            tracing::warn!(content = %self.content, index = chunk.index, "the host handed over a chunk without proof");
            return Ok(0);
        };
        let verified = match checked {
            Ok(verified) => verified,
            Err(Refusal::Duplicate) => return Ok(0),
            Err(Refusal::AboveLimit { claimed, limit }) => {
                return Err(FetchError::TooLong {
                    length: claimed,
                    limit,
                });
            }
            Err(fault) => {
                tracing::warn!(content = %self.content, index = chunk.index, %fault, "the host handed over a false chunk");
                return Ok(0);
            }
        };
        if self.manner.is_none() {
            let manner = Manner::new(&chunk.file_name, chunk.kind);
            // The list of a private folder is private, too.
            if let (Sink::Part(part), true) = (&self.sink, manner.is_folder) {
                part.keep_private()?;
            }
            self.manner = Some(manner);
        }
        // A provider may know the content without a name, as a pack of a folder.
        if let Some(manner) = &mut self.manner
            && manner.file_name.is_empty()
        {
            manner.file_name.clone_from(&chunk.file_name);
        }
        let range = verified.range();
        let is_folder = self.manner.as_ref().is_some_and(|manner| manner.is_folder);
        match &mut self.sink {
            // Before any of its list is written.
            Sink::Stream(_) if is_folder => return Err(FetchError::FolderToStream),
            Sink::Part(part) => part.write(range.start, &chunk.data)?,
            Sink::Stream(stream) => {
                // The chunk size can change on the way, so that a chunk overlaps what was written.
                let written = self.assembly.deliverable().end;
                let Some(skip) = written.checked_sub(range.start) else {
                    return Ok(0);
                };
                let new = chunk.data.get(skip as usize..).unwrap_or_default();
                stream
                    .writer
                    .write_all(new)
                    .map_err(|source| stream_failed(stream, source))?;
            }
        }
        let before = self.assembly.verified_bytes();
        self.assembly.commit(verified);
        self.unrecorded = true;
        Ok(self.assembly.verified_bytes() - before)
    }

    /// Verifies a chunk by its bytes, unless the host in this process has done so. Returns `None`
    /// if it has no proof.
    fn check(&self, chunk: &LocalChunk) -> Option<Result<Verified, Refusal>> {
        if let Some(verified) = &chunk.verified {
            return Some(self.assembly.check_again(verified));
        }
        let chunk_size = ChunkSize::from_code(chunk.chunk_log2)?;
        let Ok((proof, [])) = Proof::decode(&chunk.proof) else {
            return None;
        };
        Some(self.assembly.check(&Offer {
            chunk_size,
            index: chunk.index.into(),
            claimed_len: chunk.content_len,
            data: &chunk.data,
            proof: &proof,
        }))
    }

    /// Claims room for the missing bytes, once the length is proven.
    pub(super) fn reserve(&mut self) -> Result<(), FetchError> {
        match (&mut self.sink, self.assembly.confirmed_len()) {
            (Sink::Part(part), Some(length)) => {
                let missing = self.assembly.missing().next();
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
