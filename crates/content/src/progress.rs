//! A receiver's state of one content: verified ranges, possible lengths, what to request next.
//!
//! Sans-IO, in two steps, so that bytes are stored before they are recorded: [`Assembly::check`]
//! verifies an offered chunk, the caller writes its bytes, [`Assembly::commit`] takes them into
//! account. From a record ([`Assembly::encode`]) written now and then a download resumes after
//! `kill -9`: chunks committed after the last record are fetched again, and the record never counts
//! a chunk that was not written.
//!
//! Providers claim a length with each chunk. Claims only guide the planning of requests: the last
//! chunk alone confirms the length, and bytes verified under another claim are kept (see
//! [`crate::proof`]).

use core::ops::{Range, RangeInclusive};

use whimbrel_core::Guid;

use crate::{
    ChunkSize, MAX_CONTENT_LEN, Proof, RangeSet, VerifyError, proven_length, verify_chunk,
};

/// The maximum number of claimed and not yet refuted lengths.
pub const MAX_CLAIMS: usize = 8;

/// One chunk offered by a provider.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The unit of `index`.
    pub chunk_size: ChunkSize,
    /// Which chunk.
    pub index: u64,
    /// The provider's claim of the whole content's length.
    pub claimed_len: u64,
    /// The chunk's bytes.
    pub data: &'a [u8],
    /// Leads from the bytes to the content's name.
    pub proof: &'a Proof,
}

/// Why an offered chunk is refused. All but [`Refusal::Duplicate`] mean that the provider is at fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The content exceeds this receiver's limit.
    #[error("the offered content has {claimed} bytes; the limit is {limit}")]
    AboveLimit {
        /// The claimed length.
        claimed: u64,
        /// The receiver's limit.
        limit: u64,
    },
    /// Chunks verified before prove that the claimed length is false.
    #[error("the claimed length is {claimed} bytes; the proven length is {} to {}", proven.start(), proven.end())]
    FalseLength {
        /// The claimed length.
        claimed: u64,
        /// The lengths that are still possible.
        proven: RangeInclusive<u64>,
    },
    /// All of its bytes have been verified before. Nothing was hashed.
    #[error("the chunk is a duplicate")]
    Duplicate,
    /// The chunk does not belong to this content.
    #[error(transparent)]
    Unproven(#[from] VerifyError),
}

/// A chunk proven to belong to a content. Write its bytes, then [`Assembly::commit`] it.
#[must_use = "a verified chunk counts once it is committed"]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    root: Guid,
    range: Range<u64>,
    claimed_len: u64,
    proven_len: RangeInclusive<u64>,
}

impl Verified {
    /// Returns the chunk's byte range in the content.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }
}

/// A length that providers claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub(crate) len: u64,
    /// Committed bytes that came with it.
    pub(crate) weight: u64,
}

/// A receiver's state of one content. See the module's text.
///
/// Memory: one range for each run of verified bytes, hence at most one for each two chunks
/// received, and [`MAX_CLAIMS`] claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assembly {
    pub(crate) root: Guid,
    pub(crate) limit: u64,
    pub(crate) proven_len: RangeInclusive<u64>,
    pub(crate) verified: RangeSet,
    pub(crate) delivered: u64,
    pub(crate) claims: Vec<Claim>,
}

impl Assembly {
    /// Returns a download of the content `root` without any chunk yet, which accepts at most
    /// `limit` bytes (and [`MAX_CONTENT_LEN`]).
    pub fn new(root: Guid, limit: u64) -> Assembly {
        let limit = limit.min(MAX_CONTENT_LEN);
        let is_empty = root.0 == *blake3::hash(&[]).as_bytes();
        Assembly {
            root,
            limit,
            proven_len: if is_empty { 0..=0 } else { 1..=MAX_CONTENT_LEN },
            verified: RangeSet::new(),
            delivered: 0,
            claims: Vec::new(),
        }
    }

    /// Returns the content's name.
    pub fn root(&self) -> Guid {
        self.root
    }

    /// Verifies an offered chunk. Changes nothing: the caller stores the bytes first.
    ///
    /// Sizes and earlier proofs rule out a bad offer before anything is hashed.
    pub fn check(&self, offer: &Offer<'_>) -> Result<Verified, Refusal> {
        let Offer {
            chunk_size,
            index,
            claimed_len: claimed,
            data,
            proof,
        } = *offer;
        self.check_claim(claimed)?;
        let no_such_chunk = VerifyError::NoSuchChunk {
            index,
            count: chunk_size.count(claimed),
        };
        let range = chunk_size
            .range(index, claimed)
            .ok_or(no_such_chunk.clone())?;
        if self.verified.contains(&range) {
            return Err(Refusal::Duplicate);
        }
        verify_chunk(self.root, claimed, chunk_size, index, data, proof)?;
        let proven_len = proven_length(claimed, chunk_size, index).ok_or(no_such_chunk)?;
        Ok(Verified {
            root: self.root,
            range,
            claimed_len: claimed,
            proven_len,
        })
    }

    /// Checks a chunk that another state of the same content has verified: nothing is hashed again.
    /// The caller vouches that its bytes are those that were verified.
    pub fn check_again(&self, chunk: &Verified) -> Result<Verified, Refusal> {
        if chunk.root != self.root {
            return Err(VerifyError::RootMismatch.into());
        }
        self.check_claim(chunk.claimed_len)?;
        if self.verified.contains(&chunk.range) {
            return Err(Refusal::Duplicate);
        }
        Ok(chunk.clone())
    }

    fn check_claim(&self, claimed: u64) -> Result<(), Refusal> {
        if claimed > self.limit {
            return Err(Refusal::AboveLimit {
                claimed,
                limit: self.limit,
            });
        }
        if !self.proven_len.contains(&claimed) {
            return Err(Refusal::FalseLength {
                claimed,
                proven: self.proven_len.clone(),
            });
        }
        Ok(())
    }

    /// Records a verified chunk after its bytes were stored.
    ///
    /// Returns false if it added nothing: its bytes were known, or it belongs to another content.
    pub fn commit(&mut self, chunk: Verified) -> bool {
        if chunk.root != self.root || self.verified.contains(&chunk.range) {
            return false;
        }
        let weight = chunk.range.end - chunk.range.start;
        self.verified.insert(chunk.range);
        let (start, end) = (
            *self.proven_len.start().max(chunk.proven_len.start()),
            *self.proven_len.end().min(chunk.proven_len.end()),
        );
        // Two contradictory proofs would be a break of BLAKE3; the first one then stands.
        if start <= end {
            self.proven_len = start..=end;
        }
        self.note_claim(chunk.claimed_len, weight);
        true
    }

    /// Takes back committed bytes that were not stored after all: they are missing again. What they have proven of the
    /// length stays.
    pub fn forget(&mut self, range: Range<u64>) {
        self.verified.remove(range);
        self.delivered = self.delivered.min(self.verified.end_of_run(0));
    }

    fn note_claim(&mut self, len: u64, weight: u64) {
        let proven = self.proven_len.clone();
        self.claims.retain(|claim| proven.contains(&claim.len));
        if let Some(claim) = self.claims.iter_mut().find(|claim| claim.len == len) {
            claim.weight = claim.weight.saturating_add(weight);
            return;
        }
        if self.claims.len() == MAX_CLAIMS {
            let lightest = (0..MAX_CLAIMS).min_by_key(|&index| self.claims[index].weight);
            lightest.map(|index| self.claims.remove(index));
        }
        if proven.contains(&len) {
            self.claims.push(Claim { len, weight });
        }
    }

    /// Forgets a claimed length because its claimants cannot supply its last chunk.
    ///
    /// Verified bytes stay. A confirmed length stays too: it is not a claim.
    pub fn withdraw_claim(&mut self, len: u64) {
        self.claims.retain(|claim| claim.len != len);
    }

    /// Returns the length in bytes, once the last chunk has proven it.
    pub fn confirmed_len(&self) -> Option<u64> {
        (self.proven_len.start() == self.proven_len.end()).then_some(*self.proven_len.start())
    }

    /// Returns the lengths that the chunks so far permit.
    pub fn proven_len(&self) -> RangeInclusive<u64> {
        self.proven_len.clone()
    }

    /// Returns the length for planning and progress: the confirmed one, else the claim that came with the most bytes.
    pub fn expected_len(&self) -> Option<u64> {
        self.confirmed_len().or_else(|| {
            // Of equals the first one claimed: a liar gains nothing by claiming after another.
            self.claims
                .iter()
                .rev()
                .max_by_key(|claim| claim.weight)
                .map(|claim| claim.len)
        })
    }

    /// Every claimed length that is still possible. Requesting the last chunk of each confirms the true one.
    pub fn claimed_lens(&self) -> impl Iterator<Item = u64> {
        self.claims.iter().map(|claim| claim.len)
    }

    /// Returns the end of useful requests: the expected length, or the proven minimum if no length is claimed.
    fn horizon(&self) -> u64 {
        self.expected_len().unwrap_or(*self.proven_len.start())
    }

    /// Returns the missing byte ranges below the expected length, in order. Never empty before
    /// [`Assembly::is_complete`].
    pub fn missing(&self) -> impl Iterator<Item = Range<u64>> {
        self.verified.gaps(self.horizon())
    }

    /// Returns the chunks of `chunk_size` with missing bytes, in order. Never empty before [`Assembly::is_complete`].
    pub fn missing_chunks(&self, chunk_size: ChunkSize) -> impl Iterator<Item = u64> {
        self.missing_ranges(chunk_size).flatten()
    }

    /// Returns the same as ranges of chunk numbers, which may be adjacent but do not overlap, at most one for each
    /// gap. An unproven length may imply any number of chunks, so iterate over ranges instead of chunks.
    pub fn missing_ranges(&self, chunk_size: ChunkSize) -> impl Iterator<Item = Range<u64>> {
        let mut next = 0;
        let ranges = self.missing().map(move |gap| {
            let first = chunk_size.index_of(gap.start).max(next);
            next = chunk_size.index_of(gap.end - 1) + 1;
            first..next
        });
        ranges.filter(|range| !range.is_empty())
    }

    /// Returns the largest chunk size up to `most` in which the rest can be requested without many
    /// bytes that are there already, at most a sixteenth of the missing ones: chunks that came over
    /// a slow link are smaller than those requested first.
    pub fn chunk_size_of_rest(&self, most: ChunkSize) -> ChunkSize {
        let missing: u64 = self.missing().map(|gap| gap.end - gap.start).sum();
        let end = self.horizon();
        let requested = |size: ChunkSize| -> u64 {
            let ranges = self.missing_ranges(size);
            let bytes = |range: Range<u64>| {
                let end = range.end.saturating_mul(size.bytes()).min(end);
                end.saturating_sub(range.start.saturating_mul(size.bytes()))
            };
            ranges.map(bytes).sum()
        };
        let sizes = (ChunkSize::MIN.code()..=most.code()).rev();
        let mut sizes = sizes.filter_map(ChunkSize::from_code);
        let fits = |size: &ChunkSize| requested(*size).saturating_sub(missing) <= missing / 16;
        sizes.find(fits).unwrap_or(ChunkSize::MIN)
    }

    /// Returns the bytes verified and committed.
    pub fn verified_bytes(&self) -> u64 {
        self.verified.total()
    }

    /// Returns the verified and committed ranges.
    pub fn verified(&self) -> &RangeSet {
        &self.verified
    }

    /// Returns true once the length is confirmed and every byte below it is verified.
    pub fn is_complete(&self) -> bool {
        self.confirmed_len()
            .is_some_and(|len| self.verified.contains(&(0..len)))
    }

    /// Returns the bytes that can be delivered next in order; empty if the next byte is missing.
    pub fn deliverable(&self) -> Range<u64> {
        self.delivered..self.verified.end_of_run(self.delivered)
    }

    /// Records that everything below `offset` has been delivered in order. Never goes back, nor
    /// past the verified bytes.
    pub fn note_delivered(&mut self, offset: u64) {
        self.delivered = offset.clamp(self.delivered, self.deliverable().end);
    }

    /// Restarts delivery from the beginning: for a reader that did not survive.
    pub fn deliver_again(&mut self) {
        self.delivered = 0;
    }
}
