//! Lists of records in frames.

use core::fmt;

use super::MAX_RECORDS_LEN;
use crate::record::{Record, RecordView};

/// Some of the records of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page<'a> {
    /// Index of the first of them.
    pub first: u16,
    /// True if there are more; the next one has index `first + records.len()`.
    pub more: bool,
    /// The records.
    pub records: RecordList<'a>,
}

/// Well-formed records, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordList<'a> {
    pub(super) count: u8,
    pub(super) bytes: &'a [u8],
}

impl<'a> RecordList<'a> {
    /// Returns the number of records.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the records in order.
    pub fn iter(&self) -> impl Iterator<Item = RecordView<'a>> + use<'a> {
        let mut rest = self.bytes;
        core::iter::from_fn(move || {
            let (record, after) = RecordView::split(rest).ok()?;
            rest = after;
            Some(record)
        })
    }
}

impl fmt::Debug for RecordList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Collects the records of one answer.
#[derive(Clone, Debug, Default)]
pub struct RecordBuffer {
    count: u8,
    bytes: Vec<u8>,
}

impl RecordBuffer {
    /// Adds a record; returns false if it does not fit.
    pub fn push<B: AsRef<[u8]>>(&mut self, record: &Record<B>) -> bool {
        let fits =
            self.bytes.len() + record.as_bytes().len() <= MAX_RECORDS_LEN && self.count < u8::MAX;
        if fits {
            self.bytes.extend_from_slice(record.as_bytes());
            self.count += 1;
        }
        fits
    }

    /// Returns the collected records.
    pub fn list(&self) -> RecordList<'_> {
        RecordList {
            count: self.count,
            bytes: &self.bytes,
        }
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }
}

impl Page<'_> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.first.to_be_bytes());
        self.records.encode(out);
    }
}

impl RecordList<'_> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.count);
        out.extend_from_slice(self.bytes);
    }
}
