//! A content that a program fetches.

use core::ops::Range;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_content::{Assembly, ChunkSize, Offer, Proof, Refusal, Verified};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{
    AcceptOffer, Get, LocalChunk, LocalRequest, OfferId, TransferOptions, TransferState,
};
use whimbrel_mobilityfirst::wire::ContentKind;

use crate::error::ProgramError;

/// Chunks that a host may hand over before the program has taken the first one.
const CREDIT: u16 = 16;

/// How a content is fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetOptions {
    /// Deliver the bytes in order; otherwise as they arrive.
    pub in_order: bool,
    /// The longest accepted content in bytes; `None` for any.
    pub limit: Option<u64>,
    /// Chunk size, reliability, NACK timeout, storage and service.
    pub transfer: TransferOptions,
    /// The host that alone is asked, if it has called this one: no router knows where it is.
    pub caller: Option<Guid>,
}

impl Default for GetOptions {
    /// Returns the defaults: bytes in order, no limit of the length, a chunk size that the network chooses, NACKs.
    fn default() -> GetOptions {
        GetOptions {
            in_order: true,
            limit: None,
            transfer: TransferOptions::default(),
            caller: None,
        }
    }
}

/// The progress of a fetched content.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct FetchedSoFar {
    /// The content.
    pub content: Guid,
    /// Its state; `None` while the host is away.
    pub state: Option<TransferState>,
    /// Verified bytes that have arrived.
    pub bytes: u64,
    /// The content's length, once known.
    pub length: Option<u64>,
    /// The file name that the source suggests; empty until bytes have arrived. It must not be used as a path.
    pub file_name: String,
    /// True once all bytes have arrived.
    pub is_complete: bool,
}

/// Verified bytes of a content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContentPiece {
    /// The offset of the first byte in the content.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
}

/// The next step of a fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChunkStep {
    /// Bytes have arrived.
    Piece(ContentPiece),
    /// No bytes yet.
    Waiting,
    /// All bytes have been taken; the content's length.
    Complete(u64),
}

#[derive(Debug)]
struct QueuedPiece {
    piece: ContentPiece,
    /// The connection by which it came, which is told when it is taken.
    connection: u64,
}

impl ContentPiece {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.data.len() as u64
    }
}

/// A content that is fetched.
#[derive(Debug)]
pub struct RequestedContent {
    options: GetOptions,
    offer: Option<OfferId>,
    assembly: Assembly,
    queue: VecDeque<QueuedPiece>,
    /// Where the piece belongs that was taken last.
    last: Option<Range<u64>>,
    state: Option<TransferState>,
    file_name: String,
    kind: Option<ContentKind>,
    connection: u64,
    complete: Option<u64>,
    failure: Option<ProgramError>,
    is_over: bool,
}

impl RequestedContent {
    pub(super) fn new(content: Guid, options: GetOptions) -> RequestedContent {
        let limit = options.limit.unwrap_or(u64::MAX);
        RequestedContent::of_assembly(Assembly::new(content, limit), options)
    }

    /// Returns a content of which an earlier run of the program has received parts.
    pub(super) fn of_assembly(assembly: Assembly, options: GetOptions) -> RequestedContent {
        RequestedContent {
            options,
            offer: None,
            assembly,
            queue: VecDeque::new(),
            last: None,
            state: None,
            file_name: String::new(),
            kind: None,
            connection: 0,
            complete: None,
            failure: None,
            is_over: false,
        }
    }

    pub(super) fn of_offer(self, offer: Option<OfferId>) -> RequestedContent {
        RequestedContent { offer, ..self }
    }

    /// Returns the content's name.
    pub fn content(&self) -> Guid {
        self.assembly.root()
    }

    /// Returns what of it is verified, with the pieces that the program has not taken.
    pub fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    /// Returns the name that its source suggests; empty until something has arrived.
    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// Returns its kind, once something has arrived.
    pub fn kind(&self) -> Option<ContentKind> {
        self.kind
    }

    /// Returns its state; `None` while the host is away.
    pub fn state(&self) -> Option<TransferState> {
        self.state
    }

    /// Returns what the program has taken.
    pub(super) fn into_taken(mut self) -> Assembly {
        self.forget_waiting();
        self.assembly
    }

    fn forget_waiting(&mut self) {
        for queued in self.queue.drain(..) {
            self.assembly.forget(queued.piece.range());
        }
    }

    /// Forgets the piece that was taken last, and those that wait behind it.
    pub(super) fn forget_last(&mut self) {
        if let Some(last) = self.last.take() {
            self.assembly.forget(last);
            self.forget_waiting();
        }
    }

    /// Begins again after a failure.
    pub(super) fn revive(&mut self) {
        self.is_over = false;
        self.failure = None;
    }

    pub(super) fn offer(&self) -> Option<OfferId> {
        self.offer
    }

    /// Returns true while the host works on it.
    pub(super) fn is_open(&self) -> bool {
        !self.is_over && self.complete.is_none()
    }

    /// Returns true if it has failed here, and not at the host.
    pub(super) fn has_refused(&self) -> bool {
        matches!(self.failure, Some(ProgramError::TooLong { .. }))
    }

    /// Returns the request for the missing chunks on a new connection, if there are any.
    pub(super) fn request(&mut self, number: u32) -> Option<LocalRequest> {
        if !self.is_open() {
            return None;
        }
        self.connection += 1;
        let has_begun = self.assembly.verified_bytes() > 0;
        let get = Get {
            request: number,
            content: self.content(),
            options: self.options.transfer,
            in_order: self.options.in_order,
            credit: CREDIT,
            resume: match has_begun {
                true => self.assembly.encode().into(),
                false => Bytes::new(),
            },
        };
        Some(match (self.offer, self.options.caller) {
            (Some(id), _) => LocalRequest::Accept(AcceptOffer { id, get }),
            (None, Some(caller)) => LocalRequest::GetFrom { caller, get },
            (None, None) => LocalRequest::Get(get),
        })
    }

    pub(super) fn note_host_gone(&mut self) {
        self.state = None;
    }

    pub(super) fn note_state(&mut self, state: TransferState) {
        self.state = Some(state);
    }

    /// Takes in a chunk. Returns true if the program is not going to see it, so that its credit returns at once.
    pub(super) fn note_chunk(&mut self, chunk: LocalChunk) -> bool {
        if self.is_over {
            return false;
        }
        let verified = match self.check(&chunk) {
            Some(Ok(verified)) => verified,
            Some(Err(Refusal::AboveLimit { claimed, limit })) => {
                self.fail(ProgramError::TooLong {
                    length: claimed,
                    limit,
                });
                return false;
            }
            Some(Err(Refusal::Duplicate)) => return true,
            Some(Err(fault)) => {
                tracing::warn!(content = %self.content(), %fault, "the host handed over a false chunk");
                return true;
            }
            None => {
                tracing::warn!(content = %self.content(), "the host handed over a chunk without proof");
                return true;
            }
        };
        if self.file_name.is_empty() {
            self.file_name = chunk.file_name;
        }
        self.kind = self.kind.or(Some(chunk.kind));
        let range = verified.range();
        let mut piece = ContentPiece {
            offset: range.start,
            data: chunk.data,
        };
        if self.options.in_order {
            // The chunk size can change on the way, so that a chunk overlaps what was delivered.
            let delivered = self.assembly.deliverable().end;
            let Some(skip) = delivered.checked_sub(range.start) else {
                return true;
            };
            piece.offset = delivered;
            piece.data = piece.data.slice((skip as usize).min(piece.data.len())..);
        }
        self.state = Some(TransferState::Flowing);
        self.assembly.commit(verified);
        self.queue.push_back(QueuedPiece {
            piece,
            connection: self.connection,
        });
        false
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

    pub(super) fn note_complete(&mut self, length: u64) {
        // What the host has proven is proven here, too: an empty content by its name alone.
        if self.assembly.is_complete() {
            self.complete = Some(length);
        } else {
            tracing::warn!(content = %self.content(), "the host says that all has come, and it has not");
        }
    }

    pub(super) fn fail(&mut self, error: ProgramError) {
        if self.is_open() {
            self.is_over = true;
            self.failure = Some(error);
        }
    }

    /// Returns the next step, and whether the host is to be told that a chunk was taken. Its failure is returned
    /// once.
    pub(super) fn take_piece(&mut self) -> Result<(ChunkStep, bool), ProgramError> {
        if let Some(queued) = self.queue.pop_front() {
            let is_consumed = queued.connection == self.connection && self.is_open();
            self.last = Some(queued.piece.range());
            return Ok((ChunkStep::Piece(queued.piece), is_consumed));
        }
        if let Some(length) = self.complete {
            return Ok((ChunkStep::Complete(length), false));
        }
        match self.failure.take() {
            Some(error) => Err(error),
            None if self.is_over => Err(ProgramError::Over),
            None => Ok((ChunkStep::Waiting, false)),
        }
    }

    pub(super) fn progress(&self) -> FetchedSoFar {
        FetchedSoFar {
            content: self.content(),
            state: self.state,
            bytes: self.assembly.verified_bytes(),
            length: self.complete.or_else(|| self.assembly.expected_len()),
            file_name: self.file_name.clone(),
            is_complete: self.complete.is_some(),
        }
    }
}
