//! Memberships: hosts that have joined a group, with the admission by which the group let them in.
//!
//! A group is the name of a key. Its owner signs admissions: of one host, or of anyone (an open group). A host
//! that joins signs its own record, which carries the admission, so that whoever reads the record can check
//! both without another look-up [MFTP §3.5]. A group joins another one in the same way, with its own key.

use core::fmt;
use core::str::FromStr;

use whimbrel_core::Guid;
use whimbrel_core::identity::{KeyPair, PublicKey, Signature};

use super::{DecodeError, FIXED_LEN, Kind, Record, Statement, StatementError, VerifyError};

const GROUP_CONTEXT: &str = "whimbrel 2026 gnrs memberships of a group";
const ADMISSION_CONTEXT: &str = "whimbrel 2026 admission to a group v1";
/// Bytes of the body: the admission without the member's name, which is that of the record's key.
pub(super) const BODY_LEN: usize = PublicKey::LEN + 1 + 8 + Signature::LEN;
const FOR_ANYONE: u8 = 0;
const FOR_MEMBER: u8 = 1;
/// Set if the member is a group: what is sent to the one is for the members of the other.
const AS_GROUP: u8 = 2;
/// Maximum of members of a group.
pub const MAX_MEMBERS: usize = 1024;

/// A group's statement that a host, or any host, may join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupAdmission {
    /// The group's key, whose hash is its name.
    pub group: PublicKey,
    /// The host; `None` for anyone.
    pub member: Option<Guid>,
    /// The last moment of a membership, Unix time in milliseconds.
    pub expires_ms: u64,
    /// By the group's key.
    pub signature: Signature,
}

impl GroupAdmission {
    /// Size of the encoding, in bytes.
    pub const LEN: usize = PublicKey::LEN + Guid::LEN + 8 + Signature::LEN;

    /// Signs an admission with a group's key.
    pub fn sign(keys: &KeyPair, member: Option<Guid>, expires_ms: u64) -> GroupAdmission {
        let said = statement(member, expires_ms);
        GroupAdmission {
            group: keys.public(),
            member,
            expires_ms,
            signature: keys.sign(ADMISSION_CONTEXT, &said),
        }
    }

    /// Returns the group's name.
    pub fn group_name(&self) -> Guid {
        self.group.guid()
    }

    /// Returns true if the group has signed it.
    pub fn is_signed(&self) -> bool {
        let said = statement(self.member, self.expires_ms);
        let verdict = self.group.verify(ADMISSION_CONTEXT, &said, &self.signature);
        verdict.is_ok()
    }

    /// Returns true if the host may join by it at this Unix time.
    pub fn admits(&self, host: &Guid, now_unix_ms: u64) -> bool {
        self.member.is_none_or(|member| member == *host)
            && now_unix_ms < self.expires_ms
            && self.is_signed()
    }

    /// Returns the encoding.
    pub fn to_bytes(&self) -> [u8; GroupAdmission::LEN] {
        let mut out = Vec::with_capacity(GroupAdmission::LEN);
        out.extend(self.group.0);
        out.extend(self.member.unwrap_or(Guid::NONE).0);
        out.extend(self.expires_ms.to_be_bytes());
        out.extend(self.signature.0);
        out.try_into().unwrap_or([0; GroupAdmission::LEN])
    }

    /// Decodes exactly these bytes. Does not verify the signature.
    pub fn from_bytes(bytes: &[u8]) -> Result<GroupAdmission, DecodeError> {
        let too_short = DecodeError::Length { len: bytes.len() };
        let whole: &[u8; GroupAdmission::LEN] = bytes.try_into().map_err(|_| too_short)?;
        let (group, rest) = whole.split_at(PublicKey::LEN);
        let (member, rest) = rest.split_at(Guid::LEN);
        let (expires, signature) = rest.split_at(8);
        let member = Guid::from_slice(member).ok_or(too_short)?;
        Ok(GroupAdmission {
            group: PublicKey(group.try_into().map_err(|_| too_short)?),
            member: Some(member).filter(|member| !member.is_none()),
            expires_ms: u64::from_be_bytes(expires.try_into().map_err(|_| too_short)?),
            signature: Signature(signature.try_into().map_err(|_| too_short)?),
        })
    }
}

/// As people pass it on: hexadecimal digits.
impl fmt::Display for GroupAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for GroupAdmission {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<GroupAdmission, DecodeError> {
        let fault = DecodeError::Length {
            len: text.len() / 2,
        };
        let digits = text.as_bytes();
        if digits.len() != 2 * GroupAdmission::LEN {
            return Err(fault);
        }
        let value = |digit: &u8| char::from(*digit).to_digit(16).ok_or(fault);
        let pairs = digits.chunks_exact(2);
        let bytes: Vec<u8> = pairs
            .map(|pair| Ok((value(&pair[0])? * 16 + value(&pair[1])?) as u8))
            .collect::<Result<_, DecodeError>>()?;
        GroupAdmission::from_bytes(&bytes)
    }
}

fn statement(member: Option<Guid>, expires_ms: u64) -> Vec<u8> {
    let mut said = Vec::with_capacity(Guid::LEN + 8);
    said.extend(member.unwrap_or(Guid::NONE).0);
    said.extend(expires_ms.to_be_bytes());
    said
}

impl Record {
    /// Returns the name under which the memberships of a group are looked up, and by which its members are
    /// addressed.
    pub fn group_of(name: &Guid) -> Guid {
        Guid(blake3::derive_key(GROUP_CONTEXT, name.as_bytes()))
    }

    /// Signs that the holder of `keys` is a member of the group that has admitted it. A statement about it has
    /// no addresses: the binding of the member has them.
    pub fn membership(
        keys: &KeyPair,
        admission: &GroupAdmission,
        statement: &Statement,
    ) -> Result<Record, StatementError> {
        Record::signed_membership(keys, admission, statement, 0)
    }

    /// Signs that the group of `keys` is a member of the group that has admitted it.
    pub fn membership_of_group(
        keys: &KeyPair,
        admission: &GroupAdmission,
        statement: &Statement,
    ) -> Result<Record, StatementError> {
        Record::signed_membership(keys, admission, statement, AS_GROUP)
    }

    fn signed_membership(
        keys: &KeyPair,
        admission: &GroupAdmission,
        statement: &Statement,
        flags: u8,
    ) -> Result<Record, StatementError> {
        if !statement.addresses.is_empty() {
            return Err(StatementError::Invalid(DecodeError::PointerWithAddresses));
        }
        let mut body = Vec::with_capacity(BODY_LEN);
        body.extend(admission.group.0);
        let admits = match admission.member {
            None => FOR_ANYONE,
            Some(_) => FOR_MEMBER,
        };
        body.push(admits | flags);
        body.extend(admission.expires_ms.to_be_bytes());
        body.extend(admission.signature.0);
        let subject = Record::group_of(&admission.group_name());
        Record::signed(Kind::Membership, subject, keys, statement, &body)
    }
}

impl<B: AsRef<[u8]>> Record<B> {
    /// Returns the admission that a membership carries; `None` of another kind.
    pub fn as_admission(&self) -> Option<GroupAdmission> {
        if self.kind() != Kind::Membership {
            return None;
        }
        let at = FIXED_LEN + PublicKey::LEN;
        let [admits] = self.array::<1>(at);
        let member = match admits & !AS_GROUP {
            FOR_ANYONE => None,
            FOR_MEMBER => Some(self.key().guid()),
            _ => return None,
        };
        Some(GroupAdmission {
            group: PublicKey(self.array(FIXED_LEN)),
            member,
            expires_ms: u64::from_be_bytes(self.array(at + 1)),
            signature: Signature(self.array(at + 9)),
        })
    }

    /// Returns true for a membership whose member is a group.
    pub fn joins_as_group(&self) -> bool {
        let at = FIXED_LEN + PublicKey::LEN;
        self.kind() == Kind::Membership && self.array::<1>(at)[0] & AS_GROUP != 0
    }

    /// Checks that a membership stands on an admission of its group that lasts as long.
    pub(super) fn check_admission(&self) -> Result<(), VerifyError> {
        let Some(admission) = self.as_admission() else {
            return Ok(());
        };
        let is_of_group = Record::group_of(&admission.group_name()) == self.subject();
        let lasts = admission.expires_ms >= self.expires_ms() || self.is_removal();
        match is_of_group && lasts && admission.is_signed() {
            true => Ok(()),
            false => Err(VerifyError::NotAdmitted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordKey, RecordView};
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000_000;
    const LATER: u64 = NOW + 3_600_000;

    fn keys(secret: u8) -> KeyPair {
        KeyPair::from_secret(&[secret; 32])
    }

    fn said() -> Statement {
        Statement::new(NOW, 60_000, Vec::new())
    }

    proptest! {
        #[test]
        fn a_membership_round_trips_with_its_admission(
            secret: [u8; 32], is_open: bool, removed: bool, as_group: bool,
        ) {
            let (group, host) = (keys(1), KeyPair::from_secret(&secret));
            let admission = GroupAdmission::sign(&group, (!is_open).then(|| host.guid()), LATER);
            prop_assert_eq!(GroupAdmission::from_bytes(&admission.to_bytes()), Ok(admission));
            prop_assert_eq!(admission.to_string().parse(), Ok(admission));
            prop_assert!(admission.admits(&host.guid(), NOW));
            prop_assert!(!admission.admits(&host.guid(), LATER));
            let statement = Statement { removed, ..said() };
            let record = match as_group {
                true => Record::membership_of_group(&host, &admission, &statement).unwrap(),
                false => Record::membership(&host, &admission, &statement).unwrap(),
            };
            prop_assert_eq!(record.joins_as_group(), as_group);
            prop_assert_eq!(record.verify(NOW), Ok(()));
            let (again, rest) = RecordView::split(record.as_bytes()).unwrap();
            prop_assert!(rest.is_empty());
            let subject = Record::group_of(&group.guid());
            prop_assert_eq!((again.kind(), again.subject(), again.holder()), (Kind::Membership, subject, host.guid()));
            prop_assert_eq!(again.as_admission(), Some(admission));
            prop_assert_eq!(again.filed_under(), RecordKey { subject, provider: host.guid() });
        }

        #[test]
        fn any_bytes_are_an_admission_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = GroupAdmission::from_bytes(&bytes);
        }
    }

    #[test]
    fn who_is_not_admitted_is_no_member() {
        let (group, host, other) = (keys(1), keys(2), keys(3));
        let refused = |keys: &KeyPair, admission: &GroupAdmission| {
            let record = Record::membership(keys, admission, &said()).unwrap();
            record.verify(NOW)
        };
        let own = GroupAdmission::sign(&group, Some(host.guid()), LATER);
        assert_eq!(refused(&host, &own), Ok(()));
        assert_eq!(refused(&other, &own), Err(VerifyError::NotAdmitted));
        // Another key signs for the group.
        let forged = GroupAdmission {
            group: group.public(),
            ..GroupAdmission::sign(&other, None, LATER)
        };
        assert_eq!(refused(&host, &forged), Err(VerifyError::NotAdmitted));
        // The record would outlast its admission.
        let short = GroupAdmission::sign(&group, None, NOW + 1_000);
        assert_eq!(refused(&host, &short), Err(VerifyError::NotAdmitted));
        // An admission is not for another group.
        let mut moved = Record::membership(&host, &own, &said())
            .unwrap()
            .as_bytes()
            .to_vec();
        moved[4..36].copy_from_slice(&Record::group_of(&other.guid()).0);
        let moved = Record::parse(bytes::Bytes::from(moved)).unwrap();
        assert!(moved.verify(NOW).is_err());
    }
}
