//! Revocations: the owner of a key takes its name back for good, and may name a successor.
//!
//! A revocation stands in the place of the name's binding, with a version above that of any: so every
//! store and cache that keeps the greatest version honours it. One that names no successor is above
//! one that does, as whoever has stolen a key could name one of their own; of two that name different
//! ones, a server keeps that which came first.

use whimbrel_core::Guid;
use whimbrel_core::identity::KeyPair;

use super::{DecodeError, FIXED_LEN, Kind, Record, Statement, StatementError};

/// Longest time from issue to expiry, in milliseconds: ten years. A revocation is signed in advance and
/// kept where the key is not.
pub const MAX_REVOCATION_LIFETIME_MS: u64 = 10 * 365 * 24 * 3600 * 1000;
/// The version of a revocation without a successor; one less with one. No other record has these.
const REVOKED: u64 = u64::MAX;
/// The flag of a revocation that names a successor.
pub(super) const FLAG_SUCCEEDED: u8 = 2;

/// The versions of other records are below.
pub const VERSION_BOUND: u64 = REVOKED - 1;

impl Record {
    /// Signs the revocation of `keys`' own name at `now_ms` (Unix time in milliseconds), which another
    /// name may succeed.
    pub fn revocation(
        keys: &KeyPair,
        successor: Option<Guid>,
        now_ms: u64,
    ) -> Result<Record, StatementError> {
        if successor.is_some_and(|it| it.is_none() || it == keys.guid()) {
            return Err(StatementError::Invalid(DecodeError::NoName));
        }
        let statement = Statement {
            version: version_of(successor.is_some()),
            ..Statement::new(now_ms, MAX_REVOCATION_LIFETIME_MS, Vec::new())
        };
        let body = successor.map_or(Vec::new(), |it| it.0.to_vec());
        Record::signed(Kind::Revocation, keys.guid(), keys, &statement, &body)
    }
}

impl<B: AsRef<[u8]>> Record<B> {
    /// Returns the name that takes the place of a revoked one; `None` if there is none, and of other
    /// records.
    pub fn successor(&self) -> Option<Guid> {
        let bytes = self.as_bytes().get(FIXED_LEN..FIXED_LEN + Guid::LEN)?;
        let names_one = self.kind() == Kind::Revocation && self.as_bytes()[1] & FLAG_SUCCEEDED != 0;
        Guid::from_slice(bytes).filter(|_| names_one)
    }

    /// Checks what only revocations have.
    pub(super) fn check_version(&self) -> Result<(), DecodeError> {
        if self.kind() != Kind::Revocation {
            return match self.version() < VERSION_BOUND {
                true => Ok(()),
                false => Err(DecodeError::Version),
            };
        }
        let successor = self.successor();
        if self.version() != version_of(successor.is_some()) {
            return Err(DecodeError::Version);
        }
        match successor {
            Some(name) if name.is_none() || name == self.subject() => Err(DecodeError::NoName),
            _ => Ok(()),
        }
    }
}

fn version_of(is_succeeded: bool) -> u64 {
    REVOKED - u64::from(is_succeeded)
}

/// The text in which a revocation is kept: a line of words and one of hexadecimal digits.
pub mod revocation_file {
    use std::fmt::Write;

    use super::{Kind, Record};

    const HEAD: &str = "whimbrel-revocation 1";

    /// Why a text is not a revocation.
    #[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
    pub enum RevocationError {
        /// It does not begin like one, or was changed or cut off.
        #[error("it is not a statement of `whimbrel id rotate` or `id revoke`, or was changed")]
        NotOne,
        /// It is not valid now.
        #[error("{0}")]
        Invalid(#[from] crate::record::VerifyError),
    }

    /// Returns the text of a revocation.
    pub fn encode(record: &Record) -> String {
        let mut text = format!("{HEAD}\n");
        for byte in record.as_bytes() {
            let _ = write!(text, "{byte:02x}");
        }
        text + "\n"
    }

    /// Reads the text of a revocation that is valid at `now_ms` (Unix time in milliseconds).
    pub fn decode(text: &str, now_ms: u64) -> Result<Record, RevocationError> {
        let body = text.strip_prefix(HEAD).ok_or(RevocationError::NotOne)?;
        let digits = body.trim().as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| {
            let value = |digit: u8| char::from(digit).to_digit(16);
            Some((value(pair[0])? << 4 | value(pair[1])?) as u8)
        };
        let bytes: Option<Vec<u8>> = digits.0.iter().map(byte).collect();
        let bytes = bytes.filter(|_| digits.1.is_empty());
        let record = bytes.and_then(|bytes| Record::parse(bytes.into()).ok());
        let record = record.filter(|it| it.kind() == Kind::Revocation);
        let record = record.ok_or(RevocationError::NotOne)?;
        record.verify(now_ms)?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordView, VerifyError};
    use crate::store::{MemoryStore, Refusal, StoreLimits};

    const NOW: u64 = 1_800_000_000_000;

    fn keys(seed: u8) -> KeyPair {
        KeyPair::from_secret(&[seed; 32])
    }

    #[test]
    fn a_revocation_is_believed_for_years_and_names_its_successor() {
        for successor in [None, Some(keys(2).guid())] {
            let record = Record::revocation(&keys(1), successor, NOW).unwrap();
            let year = 365 * 24 * 3600 * 1000;
            assert_eq!(record.verify(NOW + 9 * year), Ok(()));
            assert_eq!(record.verify(NOW + 10 * year), Err(VerifyError::Expired));
            assert_eq!(
                (record.successor(), record.subject()),
                (successor, keys(1).guid())
            );
            let (view, rest) = RecordView::split(record.as_bytes()).unwrap();
            assert_eq!((view.successor(), rest), (successor, &b""[..]));
            for at in 0..record.as_bytes().len() {
                let mut bytes = record.as_bytes().to_vec();
                bytes[at] ^= 2;
                let read = Record::parse(&bytes[..]).ok();
                assert!(read.is_none_or(|it| it.verify(NOW).is_err()), "{at}");
            }
        }
        assert!(Record::revocation(&keys(1), Some(keys(1).guid()), NOW).is_err());
    }

    #[test]
    fn a_revocation_replaces_every_binding_and_one_without_successor_every_other() {
        let mut store = MemoryStore::new(StoreLimits::default());
        let revoked = |successor| Record::revocation(&keys(1), successor, NOW).unwrap();
        let last = Statement {
            version: VERSION_BOUND - 1,
            ..Statement::new(NOW, 1000, vec![])
        };
        let binding = Record::binding(&keys(1), &last).unwrap();
        assert!(store.put(NOW, binding.clone()).is_ok());
        assert!(store.put(NOW, revoked(Some(keys(2).guid()))).is_ok());
        let conflict = store.put(NOW, revoked(Some(keys(3).guid())));
        assert!(matches!(conflict, Err(Refusal::Conflict { .. })));
        assert!(store.put(NOW, revoked(None)).is_ok());
        for late in [binding, revoked(Some(keys(2).guid()))] {
            assert!(matches!(store.put(NOW, late), Err(Refusal::Stale { .. })));
        }
        let too_new = Statement {
            version: VERSION_BOUND,
            ..last
        };
        let refused = Record::binding(&keys(1), &too_new);
        assert_eq!(refused, Err(StatementError::Invalid(DecodeError::Version)));
    }

    #[test]
    fn the_text_of_a_revocation_is_read_again_and_any_other_is_refused() {
        let record = Record::revocation(&keys(1), Some(keys(2).guid()), NOW).unwrap();
        let text = revocation_file::encode(&record);
        assert_eq!(revocation_file::decode(&text, NOW), Ok(record));
        for cut in 0..text.len() - 1 {
            assert!(revocation_file::decode(&text[..cut], NOW).is_err(), "{cut}");
        }
        let binding = Record::binding(&keys(1), &Statement::new(NOW, 1000, vec![])).unwrap();
        assert!(revocation_file::decode(&revocation_file::encode(&binding), NOW).is_err());
    }
}
