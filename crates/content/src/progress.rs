//! A receiver's account of one content: what is verified, how long it is, what to ask for next.
//!
//! Sans-IO, in two steps, so that what is recorded was stored before: [`Assembly::check`] verifies
//! an offered chunk, the caller writes its bytes, [`Assembly::commit`] takes them into account. A
//! record ([`Assembly::encode`]) kept now and then is all that a download needs to go on after
//! `kill -9`: chunks committed after the last record are fetched again, none is believed that was
//! not written.
//!
//! Providers claim a length with each chunk. A claim is used to plan requests, never believed: the
//! length is confirmed by the last chunk alone, and what was verified under another claim stays
//! (see [`crate::proof`]).

use core::ops::{Range, RangeInclusive};

use whimbrel_core::Guid;

use crate::{
    ChunkSize, MAX_CONTENT_LEN, Proof, RangeSet, VerifyError, proven_length, verify_chunk,
};

/// The most lengths remembered as claimed and not yet refuted.
pub const MAX_CLAIMS: usize = 8;

/// One chunk as a provider offers it.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// The unit of `index`.
    pub chunk_size: ChunkSize,
    /// Which chunk.
    pub index: u64,
    /// The length of the whole content, as the provider says.
    pub claimed_len: u64,
    /// The chunk's bytes.
    pub data: &'a [u8],
    /// What leads from them to the content's name.
    pub proof: &'a Proof,
}

/// Why an offered chunk is not taken. All but [`Refusal::Duplicate`] say that the provider is at
/// fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It is longer than this receiver wants to take.
    #[error("a content of {claimed} bytes is offered, the limit is {limit}")]
    AboveLimit {
        /// The claimed length.
        claimed: u64,
        /// The receiver's limit.
        limit: u64,
    },
    /// Chunks verified before prove that the claimed length is false.
    #[error("a length of {claimed} bytes is claimed, proven are {} to {}", proven.start(), proven.end())]
    FalseLength {
        /// The claimed length.
        claimed: u64,
        /// The lengths that are still possible.
        proven: RangeInclusive<u64>,
    },
    /// All of its bytes are verified already. Nothing was hashed.
    #[error("the chunk is there already")]
    Duplicate,
    /// It does not belong to this content.
    #[error(transparent)]
    Unproven(#[from] VerifyError),
}

/// A chunk that was found to belong to a content. Write its bytes, then [`Assembly::commit`] it.
#[must_use = "a verified chunk counts once it is committed"]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    root: Guid,
    range: Range<u64>,
    claimed_len: u64,
    proven_len: RangeInclusive<u64>,
}

impl Verified {
    /// Where the chunk's bytes belong in the content.
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

/// What a receiver has of one content. See the module's text.
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
    /// Nothing yet of the content `root`, of which at most `limit` bytes are taken (and
    /// [`MAX_CONTENT_LEN`]).
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

    /// The content's name.
    pub fn root(&self) -> Guid {
        self.root
    }

    /// Verifies an offered chunk. Changes nothing: the caller stores the bytes first.
    ///
    /// What the sizes and earlier proofs rule out is refused before anything is hashed.
    pub fn check(&self, offer: &Offer<'_>) -> Result<Verified, Refusal> {
        let Offer {
            chunk_size,
            index,
            claimed_len: claimed,
            data,
            proof,
        } = *offer;
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

    /// Takes a verified chunk into account, now that its bytes are stored.
    ///
    /// False if it brought nothing: its bytes were there, or it belongs to another content.
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
        // Two proofs that exclude each other would be a break of BLAKE3; the first one then stands.
        if start <= end {
            self.proven_len = start..=end;
        }
        self.note_claim(chunk.claimed_len, weight);
        true
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

    /// Forgets a claimed length, because those who claim it cannot show its last chunk.
    ///
    /// Verified bytes stay. A confirmed length stays too: it is no claim any more.
    pub fn withdraw_claim(&mut self, len: u64) {
        self.claims.retain(|claim| claim.len != len);
    }

    /// The length in bytes, once the last chunk has proven it.
    pub fn confirmed_len(&self) -> Option<u64> {
        (self.proven_len.start() == self.proven_len.end()).then_some(*self.proven_len.start())
    }

    /// The lengths that the chunks so far leave possible.
    pub fn proven_len(&self) -> RangeInclusive<u64> {
        self.proven_len.clone()
    }

    /// The length to plan and show progress with: the confirmed one, else the claim that brought
    /// the most bytes.
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

    /// Every claimed length that is still possible. Asking for the last chunk of each confirms the
    /// true one.
    pub fn claimed_lens(&self) -> impl Iterator<Item = u64> {
        self.claims.iter().map(|claim| claim.len)
    }

    /// Up to where it makes sense to ask: the expected length, or what is proven to exist if none
    /// is claimed.
    fn horizon(&self) -> u64 {
        self.expected_len().unwrap_or(*self.proven_len.start())
    }

    /// The missing byte ranges below the expected length, in order. Never empty before
    /// [`Assembly::is_complete`].
    pub fn missing(&self) -> impl Iterator<Item = Range<u64>> {
        self.verified.gaps(self.horizon())
    }

    /// The chunks of `chunk_size` of which anything is missing, in order. Never empty before
    /// [`Assembly::is_complete`].
    pub fn missing_chunks(&self, chunk_size: ChunkSize) -> impl Iterator<Item = u64> {
        let mut next = 0;
        self.missing().flat_map(move |gap| {
            let first = chunk_size.index_of(gap.start).max(next);
            next = chunk_size.index_of(gap.end - 1) + 1;
            first..next
        })
    }

    /// Bytes verified and committed.
    pub fn verified_bytes(&self) -> u64 {
        self.verified.total()
    }

    /// What is verified and committed.
    pub fn verified(&self) -> &RangeSet {
        &self.verified
    }

    /// True once the length is confirmed and every byte below it is there.
    pub fn is_complete(&self) -> bool {
        self.confirmed_len()
            .is_some_and(|len| self.verified.contains(&(0..len)))
    }

    /// The bytes that a reader in order can be given next; empty if the next byte is missing.
    pub fn deliverable(&self) -> Range<u64> {
        self.delivered..self.verified.end_of_run(self.delivered)
    }

    /// The reader in order has been given everything below `offset`. Never goes back, nor past what
    /// is there.
    pub fn note_delivered(&mut self, offset: u64) {
        self.delivered = offset.clamp(self.delivered, self.deliverable().end);
    }

    /// Begins delivery from the start again: for a reader that did not survive.
    pub fn deliver_again(&mut self) {
        self.delivered = 0;
    }
}
