//! Members: hosts that are attached by the name of a key beside their own, such as those of a service.

use whimbrel_core::Guid;
use whimbrel_core::identity::KeyPair;

use super::{DecodeError, FIXED_LEN, Kind, Record, Statement, StatementError};

const MEMBERS_CONTEXT: &str = "whimbrel 2026 gnrs members of a name";
/// Bytes of the body: the member's name.
pub(super) const BODY_LEN: usize = Guid::LEN;

impl Record {
    /// Returns the name under which the members of a key's name are looked up, and by which the nearest of
    /// them is addressed.
    pub fn members_of(name: &Guid) -> Guid {
        Guid(blake3::derive_key(MEMBERS_CONTEXT, name.as_bytes()))
    }

    /// Signs that the host `member` is attached by the name of `keys`. A statement about it has no addresses:
    /// the binding of the member has them.
    pub fn member(
        keys: &KeyPair,
        member: Guid,
        statement: &Statement,
    ) -> Result<Record, StatementError> {
        if !statement.addresses.is_empty() {
            return Err(StatementError::Invalid(DecodeError::PointerWithAddresses));
        }
        let subject = Record::members_of(&keys.guid());
        Record::signed(Kind::Member, subject, keys, statement, member.as_bytes())
    }
}

impl<B: AsRef<[u8]>> Record<B> {
    /// Returns the host that a record of a member names; `None` of another kind.
    pub fn as_member(&self) -> Option<Guid> {
        if self.kind() != Kind::Member {
            return None;
        }
        let end = FIXED_LEN + BODY_LEN;
        Guid::from_slice(self.as_bytes().get(FIXED_LEN..end)?)
    }

    /// Returns the host that has what the record is about: the signer of a provider announcement and of a
    /// membership, the host that a record of a member names.
    pub fn holder(&self) -> Guid {
        self.as_member().unwrap_or_else(|| self.signer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordKey, RecordView, VerifyError};
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000_000;

    proptest! {
        #[test]
        fn a_member_round_trips_and_is_of_its_key_alone(secret: [u8; 32], host: [u8; 32], removed: bool) {
            prop_assume!(host != [0; 32]);
            let (keys, host) = (KeyPair::from_secret(&secret), Guid(host));
            let statement = Statement { removed, ..Statement::new(NOW, 60_000, Vec::new()) };
            let record = Record::member(&keys, host, &statement).unwrap();
            prop_assert_eq!(record.verify(NOW), Ok(()));
            let (again, rest) = RecordView::split(record.as_bytes()).unwrap();
            prop_assert!(rest.is_empty());
            let subject = Record::members_of(&keys.guid());
            prop_assert_eq!((again.kind(), again.subject(), again.holder()), (Kind::Member, subject, host));
            prop_assert_eq!(again.signer(), keys.guid());
            prop_assert_eq!(again.filed_under(), RecordKey { subject, provider: host });
            // Nobody else may say so.
            let mut forged = record.as_bytes().to_vec();
            forged[36..68].copy_from_slice(&KeyPair::from_secret(&[9; 32]).public().0);
            let forged = Record::parse(bytes::Bytes::from(forged)).unwrap();
            prop_assert_eq!(forged.verify(NOW), Err(VerifyError::WrongKey));
        }
    }

    #[test]
    fn a_member_has_a_name_and_a_short_life() {
        let keys = KeyPair::from_secret(&[1; 32]);
        let statement = Statement::new(NOW, 60_000, Vec::new());
        assert!(Record::member(&keys, Guid::NONE, &statement).is_err());
        let long = Statement::new(NOW, 2 * 3600 * 1000, Vec::new());
        let record = Record::member(&keys, Guid([7; 32]), &long).unwrap();
        assert_eq!(record.verify(NOW), Err(VerifyError::TooLong));
    }
}
