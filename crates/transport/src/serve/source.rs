//! Sources of a producer's content.

use bytes::Bytes;

/// Why a segment cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read segment {segment}: {reason}")]
pub struct SourceError {
    /// The segment.
    pub segment: u64,
    /// The reader's error.
    pub reason: String,
}

/// Content in segments.
pub trait SegmentSource {
    /// Returns the number of segments: at least one, an empty one if there is no content.
    fn segments(&self) -> u64;

    /// Appends the content of segment `number`, which is below [`SegmentSource::segments`], to
    /// `out`.
    fn read(&mut self, number: u64, out: &mut Vec<u8>) -> Result<(), SourceError>;
}

/// Content in memory.
#[derive(Clone, Debug)]
pub struct BytesSource {
    content: Bytes,
    segment_size: usize,
}

impl BytesSource {
    /// Returns a source with segments of `segment_size` bytes, at least 1.
    pub fn new(content: impl Into<Bytes>, segment_size: usize) -> BytesSource {
        BytesSource {
            content: content.into(),
            segment_size: segment_size.max(1),
        }
    }
}

impl SegmentSource for BytesSource {
    fn segments(&self) -> u64 {
        self.content.len().div_ceil(self.segment_size).max(1) as u64
    }

    fn read(&mut self, number: u64, out: &mut Vec<u8>) -> Result<(), SourceError> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let start = number
            .saturating_mul(self.segment_size)
            .min(self.content.len());
        let end = start
            .saturating_add(self.segment_size)
            .min(self.content.len());
        out.extend_from_slice(self.content.get(start..end).unwrap_or_default());
        Ok(())
    }
}

impl<S: SegmentSource + ?Sized> SegmentSource for Box<S> {
    fn segments(&self) -> u64 {
        (**self).segments()
    }

    fn read(&mut self, number: u64, out: &mut Vec<u8>) -> Result<(), SourceError> {
        (**self).read(number, out)
    }
}
