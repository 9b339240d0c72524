//! The record from which a download resumes after its program was killed.

use whimbrel_core::Guid;

use crate::progress::{Assembly, Claim};
use crate::record::Kind;
use crate::{ChunkSize, MAX_CONTENT_LEN, RangeSet, RecordError};

const RESUME: Kind = Kind {
    magic: *b"WHBPART",
    version: 1,
    name: "record of a download",
};

impl Assembly {
    /// Encodes the committed state (content.md section 4): 112 bytes and 16 for each run of
    /// verified bytes. Replace it as a whole: write it beside the old one, then rename.
    pub fn encode(&self) -> Vec<u8> {
        RESUME.seal(|body| {
            body.extend_from_slice(self.root.as_bytes());
            let (least, most) = (*self.proven_len.start(), *self.proven_len.end());
            // Every possible length is at least `least`, so 0 is free to mean "no claim" unless it
            // is confirmed.
            let expected = self.expected_len().unwrap_or(0);
            for number in [self.limit, least, most, expected, self.delivered] {
                body.extend_from_slice(&number.to_be_bytes());
            }
            for range in self.verified.iter() {
                body.extend_from_slice(&range.start.to_be_bytes());
                body.extend_from_slice(&range.end.to_be_bytes());
            }
        })
    }

    /// Decodes a record of [`Assembly::encode`]. Memory is at most proportional to `record`.
    ///
    /// The record is trusted: it vouches for bytes on the local disk, whose proofs are not kept. To
    /// rule out a disk error, hash the finished content again.
    pub fn decode(record: &[u8]) -> Result<Assembly, RecordError> {
        let mut body = RESUME.open(record)?;
        let root = Guid(body.array()?);
        let [limit, least, most, expected, delivered] = [
            body.u64()?,
            body.u64()?,
            body.u64()?,
            body.u64()?,
            body.u64()?,
        ];
        if limit > MAX_CONTENT_LEN || least > most {
            return Err(RecordError::Contradiction("contradictory lengths"));
        }
        let mut assembly = Assembly::new(root, limit);
        // A new assembly knows from the name alone whether the content is empty.
        if least < *assembly.proven_len.start() || most > *assembly.proven_len.end() {
            return Err(RecordError::Contradiction(
                "a length impossible for this name",
            ));
        }
        assembly.proven_len = least..=most;
        assembly.verified = read_runs(body.arrays()?, least, most)?;
        let claim = (least..=most).contains(&expected).then_some(Claim {
            len: expected,
            weight: 0,
        });
        assembly.claims = claim.filter(|_| least < most).into_iter().collect();
        if assembly.claims.is_empty() && expected != assembly.confirmed_len().unwrap_or(0) {
            return Err(RecordError::Contradiction("an impossible expected length"));
        }
        assembly.note_delivered(delivered);
        if assembly.delivered != delivered {
            return Err(RecordError::Contradiction(
                "more bytes delivered than verified",
            ));
        }
        Ok(assembly)
    }
}

/// Decodes runs in order, with gaps between them, on chunk boundaries except for the end of the content.
fn read_runs(runs: &[[u8; 16]], least: u64, most: u64) -> Result<RangeSet, RecordError> {
    let mut verified = RangeSet::new();
    let mut earliest = 0;
    for run in runs {
        let (start, end) = run.split_at(8);
        let [start, end] = [start, end].map(|bytes| {
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        });
        let aligned = |offset: u64| offset.is_multiple_of(ChunkSize::MIN.bytes());
        let ends_well = if least == most {
            end <= most && (aligned(end) || end == most)
        } else {
            end < least && aligned(end)
        };
        if start < earliest || end <= start || !aligned(start) || !ends_well {
            return Err(RecordError::Contradiction(
                "verified runs out of order or out of bounds",
            ));
        }
        verified.insert(start..end);
        earliest = end + 1;
    }
    Ok(verified)
}
