//! Records on the local disk: a kind, a version and a checksum around a body.
//!
//! The checksum detects torn writes and corruption, not malice: an attacker who can write the file
//! can write the checksum too.

/// Why bytes are not a record of the expected kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// Another kind of file.
    #[error("this is not a {0}")]
    WrongKind(&'static str),
    /// Written by a version with another layout.
    #[error("a record of version {0}, which this program does not support")]
    UnknownVersion(u8),
    /// Torn or corrupt.
    #[error("the record is damaged")]
    Damaged,
    /// The checksum is right, but the contents are inconsistent.
    #[error("the record contradicts itself: {0}")]
    Contradiction(&'static str),
}

/// Bytes of the checksum at a record's end: BLAKE3 over everything before it.
const CHECKSUM_LEN: usize = 32;

/// The first eight bytes of a record, and its name in messages.
pub(crate) struct Kind {
    pub(crate) magic: [u8; 7],
    pub(crate) version: u8,
    pub(crate) name: &'static str,
}

impl Kind {
    /// Seals a record with the body that `write` appends.
    pub(crate) fn seal(&self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut record = self.magic.to_vec();
        record.push(self.version);
        write(&mut record);
        let checksum = blake3::hash(&record);
        record.extend_from_slice(checksum.as_bytes());
        record
    }

    /// Checks `record` and returns its body.
    pub(crate) fn open<'a>(&self, record: &'a [u8]) -> Result<Body<'a>, RecordError> {
        let after_magic = record
            .strip_prefix(&self.magic)
            .ok_or(RecordError::WrongKind(self.name))?;
        match after_magic.first() {
            Some(version) if *version == self.version => {}
            Some(version) => return Err(RecordError::UnknownVersion(*version)),
            None => return Err(RecordError::Damaged),
        }
        let (covered, checksum) = record
            .split_last_chunk::<CHECKSUM_LEN>()
            .ok_or(RecordError::Damaged)?;
        if blake3::hash(covered) != *checksum {
            return Err(RecordError::Damaged);
        }
        covered
            .get(self.magic.len() + 1..)
            .map(Body)
            .ok_or(RecordError::Damaged)
    }
}

/// The unread part of a record's body.
pub(crate) struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (array, rest) = self
            .0
            .split_first_chunk()
            .ok_or(RecordError::Contradiction("it is too short"))?;
        self.0 = rest;
        Ok(*array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, RecordError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Returns the rest as whole arrays of `N` bytes.
    pub(crate) fn arrays<const N: usize>(self) -> Result<&'a [[u8; N]], RecordError> {
        match self.0.as_chunks() {
            (arrays, []) => Ok(arrays),
            _ => Err(RecordError::Contradiction("its list is truncated")),
        }
    }
}
