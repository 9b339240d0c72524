//! Pointers: what a key's owner calls by an alias now. The next version may be another content.

use whimbrel_core::Guid;
use whimbrel_core::identity::KeyPair;

use super::{DecodeError, FIXED_LEN, Kind, Record, RecordKey, Statement, StatementError};
use crate::alias::{Alias, MAX_ALIAS_LEN};

const OWNER_CONTEXT: &str = "whimbrel 2026 gnrs pointers of a name";
const ALIAS_CONTEXT: &str = "whimbrel 2026 gnrs alias of a pointer";
/// Bytes after the alias: the size, and the content's name.
pub(super) const TARGET_LEN: usize = 8 + Guid::LEN;

/// What a pointer says.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Pointer {
    /// What its owner calls it.
    pub alias: Alias,
    /// The content that it points to.
    pub content: Guid,
    /// The content's length, in bytes; of a folder, that of all its files.
    pub size: u64,
}

impl Pointer {
    /// Returns the name under which all pointers of `owner` are looked up.
    pub fn subject_of(owner: &Guid) -> Guid {
        Guid(blake3::derive_key(OWNER_CONTEXT, owner.as_bytes()))
    }

    /// Returns the key in a store of a pointer of `owner`.
    pub fn key_of(owner: &Guid, alias: &Alias) -> RecordKey {
        RecordKey {
            subject: Pointer::subject_of(owner),
            provider: alias.hash(ALIAS_CONTEXT),
        }
    }
}

/// Returns the bytes of a pointer between the header of a record and its signature.
pub(super) fn encode(pointer: &Pointer) -> Vec<u8> {
    let mut bytes = pointer.alias.as_str().as_bytes().to_vec();
    bytes.extend(pointer.size.to_be_bytes());
    bytes.extend(pointer.content.0);
    bytes
}

/// Returns the number of bytes between the header of a pointer, whose alias has this length, and its
/// signature.
pub(super) fn body_len(alias_len: u8) -> Result<usize, DecodeError> {
    match usize::from(alias_len) {
        length @ 1..=MAX_ALIAS_LEN => Ok(length + TARGET_LEN),
        _ => Err(DecodeError::Alias),
    }
}

impl Record {
    /// Signs the pointer that the holder of `keys` calls by an alias. A statement about it has no
    /// addresses; one that removes it points nowhere.
    pub fn pointer(
        keys: &KeyPair,
        pointer: &Pointer,
        statement: &Statement,
    ) -> Result<Record, StatementError> {
        if !statement.addresses.is_empty() {
            return Err(StatementError::Invalid(DecodeError::PointerWithAddresses));
        }
        let mut pointer = pointer.clone();
        if statement.removed {
            (pointer.content, pointer.size) = (Guid::NONE, 0);
        }
        let subject = Pointer::subject_of(&keys.guid());
        Record::signed(Kind::Pointer, subject, keys, statement, &encode(&pointer))
    }
}

impl<B: AsRef<[u8]>> Record<B> {
    /// Returns what a pointer says; `None` of another kind. A removed one points to
    /// [`Guid::NONE`].
    pub fn as_pointer(&self) -> Option<Pointer> {
        if self.kind() != Kind::Pointer {
            return None;
        }
        let (body, _) = self
            .as_bytes()
            .get(FIXED_LEN..)?
            .split_at_checked(self.body_len())?;
        let (alias, target) = body.split_at_checked(body.len().checked_sub(TARGET_LEN)?)?;
        let alias = core::str::from_utf8(alias).ok()?.parse().ok()?;
        let (size, content) = target.split_first_chunk()?;
        Some(Pointer {
            alias,
            content: Guid::from_slice(content)?,
            size: u64::from_be_bytes(*size),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordView, VerifyError};
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000_000;

    fn keys(seed: u8) -> KeyPair {
        KeyPair::from_secret(&[seed; 32])
    }

    fn films() -> Pointer {
        Pointer {
            alias: "films".parse().unwrap(),
            content: Guid([7; 32]),
            size: 1 << 40,
        }
    }

    proptest! {
        #[test]
        fn a_pointer_that_was_signed_is_read_and_a_changed_byte_is_noticed(
            text in "[g-z][a-z0-9._-]{0,31}", content: [u8; 32], size: u64, at: prop::sample::Index, with in 1u8..,
        ) {
            prop_assume!(content != [0; 32]);
            let pointer = Pointer { alias: text.parse().unwrap(), content: Guid(content), size };
            let record = Record::pointer(&keys(1), &pointer, &Statement::new(NOW, 1000, vec![])).unwrap();
            prop_assert_eq!(record.verify(NOW), Ok(()));
            prop_assert_eq!(record.as_pointer(), Some(pointer.clone()));
            prop_assert_eq!(record.signer(), keys(1).guid());
            prop_assert_eq!(record.filed_under(), Pointer::key_of(&keys(1).guid(), &pointer.alias));
            prop_assert_eq!(record.addresses().count(), 0);
            let mut bytes = record.as_bytes().to_vec();
            bytes.extend(b"rest");
            let (view, rest) = RecordView::split(&bytes).unwrap();
            prop_assert_eq!((view.as_bytes(), rest), (record.as_bytes(), &b"rest"[..]));
            bytes.truncate(record.as_bytes().len());
            *at.get_mut(&mut bytes[..]) ^= with;
            prop_assert!(Record::parse(&bytes[..]).ok().is_none_or(|it| it.verify(NOW).is_err()));
        }
    }

    #[test]
    fn a_pointer_of_another_key_is_not_believed() {
        let subject = Pointer::subject_of(&keys(2).guid());
        let statement = Statement::new(NOW, 1000, vec![]);
        let forged = Record::signed(
            Kind::Pointer,
            subject,
            &keys(1),
            &statement,
            &encode(&films()),
        );
        assert_eq!(forged.unwrap().verify(NOW), Err(VerifyError::WrongKey));
    }

    #[test]
    fn a_removed_pointer_points_nowhere_and_keeps_its_place() {
        let removal = Record::pointer(&keys(1), &films(), &Statement::removal(NOW, 1000)).unwrap();
        assert!(removal.is_removal());
        let place = Pointer::key_of(&keys(1).guid(), &films().alias);
        assert_eq!(removal.filed_under(), place);
        let nowhere = Pointer {
            content: Guid::NONE,
            size: 0,
            ..films()
        };
        assert_eq!(removal.as_pointer(), Some(nowhere.clone()));
        // One that is not removed points somewhere.
        let refused = Record::pointer(&keys(1), &nowhere, &Statement::new(NOW, 1000, vec![]));
        assert_eq!(refused, Err(StatementError::Invalid(DecodeError::NoName)));
    }

    #[test]
    fn a_pointer_whose_alias_is_not_one_is_refused() {
        let record =
            Record::pointer(&keys(1), &films(), &Statement::new(NOW, 1000, vec![])).unwrap();
        let mut bytes = record.as_bytes().to_vec();
        bytes[FIXED_LEN] = b'F';
        assert_eq!(Record::parse(&bytes[..]).err(), Some(DecodeError::Alias));
        for length in [0, 33, 255] {
            bytes[3] = length;
            assert_eq!(RecordView::split(&bytes).err(), Some(DecodeError::Alias));
        }
    }
}
