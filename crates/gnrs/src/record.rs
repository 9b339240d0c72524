//! Signed records: the owner of a key states where its name is.
//!
//! Six kinds share one layout (`docs/protocols/gnrs.md`): the **binding** of a name that is a key's
//! hash, a **provider announcement**, which says that a content is available from the signer's
//! addresses, a **pointer** from a word of the signer to a content, the **revocation** of a name, a
//! **member**, a host that is attached by the name of the signing key, and the **membership** of the signer
//! in a group.
//! The record is its canonical encoding: the signed bytes themselves are verified,
//! stored and forwarded.

mod member;
mod membership;
mod pointer;
mod revocation;

use core::fmt;

use bytes::Bytes;
use whimbrel_core::Guid;

use whimbrel_core::identity::{KeyPair, PublicKey, Signature, SignatureError};

pub use membership::{GroupAdmission, MAX_MEMBERS};
pub use pointer::Pointer;
pub use revocation::{MAX_REVOCATION_LIFETIME_MS, VERSION_BOUND, revocation_file};

/// Maximum of addresses in one record (the prototype [MF-PROTO, router] keeps 10 too).
pub const MAX_ADDRESSES: usize = 10;
/// Longest time from issue to expiry, in milliseconds: 30 days. It bounds how long a removed record
/// is remembered.
pub const MAX_LIFETIME_MS: u64 = 30 * 24 * 3600 * 1000;
/// Longest lifetime of a provider announcement, in milliseconds: one hour. Anyone may announce any
/// content; an announcement that its host does not renew is soon gone.
pub const MAX_PROVIDER_LIFETIME_MS: u64 = 3600 * 1000;
/// Maximum lead of the issuer's clock over ours, in milliseconds.
pub const MAX_CLOCK_SKEW_MS: u64 = 5 * 60 * 1000;

const CONTEXT: &str = "whimbrel 2026 gnrs record v1";
const FIXED_LEN: usize = 92;
const ADDRESS_LEN: usize = 35;
const FLAG_REMOVED: u8 = 1;

/// Shortest and longest encoding, in bytes.
pub const RECORD_LEN: (usize, usize) = (
    FIXED_LEN + Signature::LEN,
    FIXED_LEN + MAX_ADDRESSES * ADDRESS_LEN + Signature::LEN,
);

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
pub enum Kind {
    /// A host, router or service: the subject is the hash of the signing key.
    Binding,
    /// Content: the subject is its hash, and the signer claims to have it.
    Provider,
    /// A content that the signer calls by an alias: the subject is that of all pointers of the signer
    /// ([`Pointer::subject_of`]).
    Pointer,
    /// A name that is no longer its owner's: the subject is the hash of the signing key. It stands in the
    /// place of the binding.
    Revocation,
    /// A host that is attached by the name of the signing key: the subject is that of all members of the name
    /// ([`Record::members_of`]).
    Member,
    /// The signer is a member of a group: the subject is that of all memberships of the group
    /// ([`Record::group_of`]).
    Membership,
}

/// One network address: the GUID of an access router.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
pub struct Address {
    /// The access router.
    pub na: Guid,
    /// Lower is better.
    pub preference: u8,
    /// Share among addresses of the same preference.
    pub weight: u16,
}

impl Address {
    /// Returns an address of preference 0 and weight 1.
    pub const fn new(na: Guid) -> Address {
        Address {
            na,
            preference: 0,
            weight: 1,
        }
    }
}

/// An owner's statement before it is signed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Statement {
    /// Must grow with every record about the same subject; by convention Unix time in microseconds.
    pub version: u64,
    /// The time of issue, Unix time in milliseconds.
    pub issued_ms: u64,
    /// The expiry, Unix time in milliseconds; at most [`MAX_LIFETIME_MS`] after the issue.
    pub expires_ms: u64,
    /// At most [`MAX_ADDRESSES`]; an empty list means "disconnected".
    pub addresses: Vec<Address>,
    /// Removes the subject from the name service; such a statement has no addresses.
    pub removed: bool,
}

impl Statement {
    /// Returns a statement issued at `now_ms` (Unix time in milliseconds) for `lifetime_ms`, with
    /// the conventional version.
    pub fn new(now_ms: u64, lifetime_ms: u64, addresses: Vec<Address>) -> Statement {
        Statement {
            version: now_ms.saturating_mul(1000),
            issued_ms: now_ms,
            expires_ms: now_ms.saturating_add(lifetime_ms),
            addresses,
            removed: false,
        }
    }

    /// Returns a removal issued at `now_ms`. It should live as long as every record that it
    /// revokes.
    pub fn removal(now_ms: u64, lifetime_ms: u64) -> Statement {
        Statement {
            removed: true,
            ..Statement::new(now_ms, lifetime_ms, Vec::new())
        }
    }
}

/// The key of a store: one per owner for a binding, one per provider for content, one per alias for
/// pointers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordKey {
    /// The name of a lookup.
    pub subject: Guid,
    /// The provider, or the hash of a pointer's alias; [`Guid::NONE`] for a binding, which therefore sorts
    /// before every provider.
    pub provider: Guid,
}

impl RecordKey {
    /// Returns the key of `guid`'s binding.
    pub const fn binding(guid: Guid) -> RecordKey {
        RecordKey {
            subject: guid,
            provider: Guid::NONE,
        }
    }
}

/// A well-formed record in its canonical encoding. [`Record::verify`] checks whether it is *true*.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Record<B = Bytes>(B);

/// A record within a received frame.
pub type RecordView<'a> = Record<&'a [u8]>;

impl Record {
    /// Signs the binding of `keys`' own name.
    pub fn binding(keys: &KeyPair, statement: &Statement) -> Result<Record, StatementError> {
        Record::signed(Kind::Binding, keys.guid(), keys, statement, &[])
    }

    /// Signs the announcement that the holder of `keys` provides `content`.
    pub fn provider(
        keys: &KeyPair,
        content: Guid,
        statement: &Statement,
    ) -> Result<Record, StatementError> {
        Record::signed(Kind::Provider, content, keys, statement, &[])
    }

    fn signed(
        kind: Kind,
        subject: Guid,
        keys: &KeyPair,
        statement: &Statement,
        body: &[u8],
    ) -> Result<Record, StatementError> {
        let count = statement.addresses.len();
        if count > MAX_ADDRESSES {
            return Err(StatementError::Invalid(DecodeError::TooManyAddresses(
                count,
            )));
        }
        let mut flags = if statement.removed { FLAG_REMOVED } else { 0 };
        if kind == Kind::Revocation && !body.is_empty() {
            flags |= revocation::FLAG_SUCCEEDED;
        }
        let mut bytes = Vec::with_capacity(FIXED_LEN + count * ADDRESS_LEN + Signature::LEN);
        let (kind, alias_len) = match kind {
            Kind::Binding => (1, 0),
            Kind::Provider => (2, 0),
            Kind::Pointer => (3, body.len().saturating_sub(pointer::TARGET_LEN)),
            Kind::Revocation => (4, 0),
            Kind::Member => (5, 0),
            Kind::Membership => (6, 0),
        };
        bytes.extend([kind, flags, count as u8, alias_len as u8]);
        bytes.extend(subject.0);
        bytes.extend(keys.public().0);
        for number in [statement.version, statement.issued_ms, statement.expires_ms] {
            bytes.extend(number.to_be_bytes());
        }
        for address in &statement.addresses {
            bytes.extend(address.na.0);
            bytes.push(address.preference);
            bytes.extend(address.weight.to_be_bytes());
        }
        bytes.extend(body);
        let signature = keys.sign(CONTEXT, &bytes);
        bytes.extend(signature.0);
        Record::parse(Bytes::from(bytes)).map_err(StatementError::Invalid)
    }
}

impl<'a> RecordView<'a> {
    /// Splits one record off the front of `bytes`; returns it and the remaining bytes.
    pub fn split(bytes: &'a [u8]) -> Result<(RecordView<'a>, &'a [u8]), DecodeError> {
        let too_short = DecodeError::Length { len: bytes.len() };
        let head = bytes.first_chunk().ok_or(too_short)?;
        let length = FIXED_LEN + body_len(*head)? + Signature::LEN;
        let (record, rest) = bytes.split_at_checked(length).ok_or(too_short)?;
        Ok((Record::parse(record)?, rest))
    }
}

impl<B: AsRef<[u8]>> Record<B> {
    /// Parses the record in `bytes`, which must hold it exactly. Does not verify the signature.
    pub fn parse(bytes: B) -> Result<Record<B>, DecodeError> {
        let record = Record(bytes);
        let raw = record.as_bytes();
        if raw.len() < RECORD_LEN.0 {
            return Err(DecodeError::Length { len: raw.len() });
        }
        if raw.len() != FIXED_LEN + body_len([raw[0], raw[1], raw[2], raw[3]])? + Signature::LEN {
            return Err(DecodeError::Length { len: raw.len() });
        }
        let known = match record.kind() {
            Kind::Revocation => revocation::FLAG_SUCCEEDED,
            _ => FLAG_REMOVED,
        };
        if raw[1] & !known != 0 {
            return Err(DecodeError::UnknownFlags);
        }
        record.check_version()?;
        if record.kind() == Kind::Pointer {
            let pointer = record.as_pointer().ok_or(DecodeError::Alias)?;
            if pointer.content.is_none() != record.is_removal() {
                return Err(DecodeError::NoName);
            }
        } else if record.as_member().is_some_and(|member| member.is_none()) {
            return Err(DecodeError::NoName);
        } else if record.kind() == Kind::Membership && record.as_admission().is_none() {
            return Err(DecodeError::UnknownFlags);
        } else if record.is_removal() && raw[2] != 0 {
            return Err(DecodeError::RemovedWithAddresses);
        }
        if record.subject().is_none() || record.addresses().any(|address| address.na.is_none()) {
            return Err(DecodeError::NoName);
        }
        match record.expires_ms().checked_sub(record.issued_ms()) {
            Some(life) if (1..=record.max_lifetime_ms()).contains(&life) => Ok(record),
            _ => Err(DecodeError::Lifetime),
        }
    }

    /// Returns the canonical encoding.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Returns its kind.
    pub fn kind(&self) -> Kind {
        match self.array::<1>(0) {
            [1] => Kind::Binding,
            [2] => Kind::Provider,
            [3] => Kind::Pointer,
            [5] => Kind::Member,
            [6] => Kind::Membership,
            _ => Kind::Revocation,
        }
    }

    /// Returns true if it removes the subject from the name service.
    pub fn is_removal(&self) -> bool {
        self.array::<1>(1)[0] & FLAG_REMOVED != 0
    }

    /// Returns the name that it describes: the signer's own for a binding, the content's for a
    /// provider, [`Pointer::subject_of`] the signer's for a pointer, [`Record::members_of`] it for a member,
    /// [`Record::group_of`] the group for a membership.
    pub fn subject(&self) -> Guid {
        Guid(self.array(4))
    }

    /// Returns the key that signed it.
    pub fn key(&self) -> PublicKey {
        PublicKey(self.array(36))
    }

    /// Returns the name of the signer: the subject of a binding, the provider of content, the owner of a
    /// pointer.
    pub fn signer(&self) -> Guid {
        match self.kind() {
            Kind::Binding | Kind::Revocation => self.subject(),
            Kind::Provider | Kind::Pointer | Kind::Member | Kind::Membership => self.key().guid(),
        }
    }

    /// Returns its key in a store.
    pub fn filed_under(&self) -> RecordKey {
        match self.kind() {
            Kind::Binding | Kind::Revocation => RecordKey::binding(self.subject()),
            Kind::Provider | Kind::Member | Kind::Membership => RecordKey {
                subject: self.subject(),
                provider: self.holder(),
            },
            Kind::Pointer => match self.as_pointer() {
                Some(pointer) => Pointer::key_of(&self.key().guid(), &pointer.alias),
                // `parse` refuses it.
                None => RecordKey::binding(self.subject()),
            },
        }
    }

    /// The greatest version wins; by convention Unix time in microseconds.
    pub fn version(&self) -> u64 {
        u64::from_be_bytes(self.array(68))
    }

    /// Returns the time of issue, Unix time in milliseconds.
    pub fn issued_ms(&self) -> u64 {
        u64::from_be_bytes(self.array(76))
    }

    /// Returns the expiry, Unix time in milliseconds.
    pub fn expires_ms(&self) -> u64 {
        u64::from_be_bytes(self.array(84))
    }

    /// Returns true from its expiry on.
    pub fn is_expired(&self, now_unix_ms: u64) -> bool {
        now_unix_ms >= self.expires_ms()
    }

    /// Returns the addresses in the signer's order; an empty list means "disconnected" (or
    /// removed).
    pub fn addresses(&self) -> impl Iterator<Item = Address> + '_ {
        let end = FIXED_LEN + usize::from(self.array::<1>(2)[0]) * ADDRESS_LEN;
        let list = self.as_bytes().get(FIXED_LEN..end).unwrap_or_default();
        list.as_chunks::<ADDRESS_LEN>().0.iter().map(|entry| {
            let (na, rest) = entry.split_at(Guid::LEN);
            let na = Guid::from_slice(na).unwrap_or(Guid::NONE);
            Address {
                na,
                preference: rest[0],
                weight: u16::from_be_bytes([rest[1], rest[2]]),
            }
        })
    }

    /// Verifies the record at `now_unix_ms` (Unix time in milliseconds).
    pub fn verify(&self, now_unix_ms: u64) -> Result<(), VerifyError> {
        if self.is_expired(now_unix_ms) {
            return Err(VerifyError::Expired);
        }
        if self.issued_ms() > now_unix_ms.saturating_add(MAX_CLOCK_SKEW_MS) {
            return Err(VerifyError::FromTheFuture);
        }
        let lifetime = self.expires_ms() - self.issued_ms();
        let is_short = matches!(self.kind(), Kind::Provider | Kind::Member);
        if is_short && lifetime > MAX_PROVIDER_LIFETIME_MS {
            return Err(VerifyError::TooLong);
        }
        let key = self.key();
        let own = match self.kind() {
            Kind::Binding | Kind::Revocation => Some(key.guid()),
            Kind::Provider => None,
            Kind::Pointer => Some(Pointer::subject_of(&key.guid())),
            Kind::Member => Some(Record::members_of(&key.guid())),
            Kind::Membership => None,
        };
        if own.is_some_and(|own| own != self.subject()) {
            return Err(VerifyError::WrongKey);
        }
        self.check_admission()?;
        let raw = self.as_bytes();
        let (said, signature) = raw.split_at(raw.len().saturating_sub(Signature::LEN));
        let signature = Signature(
            signature
                .try_into()
                .map_err(|_| VerifyError::BadSignature)?,
        );
        key.verify(CONTEXT, said, &signature)
            .map_err(|fault| match fault {
                SignatureError::BadKey => VerifyError::BadKey,
                SignatureError::BadSignature => VerifyError::BadSignature,
            })
    }

    /// Returns a copy that owns its bytes.
    pub fn to_owned(&self) -> Record {
        Record(Bytes::copy_from_slice(self.as_bytes()))
    }

    fn max_lifetime_ms(&self) -> u64 {
        match self.kind() {
            Kind::Revocation => MAX_REVOCATION_LIFETIME_MS,
            _ => MAX_LIFETIME_MS,
        }
    }

    fn body_len(&self) -> usize {
        let length = self.as_bytes().len();
        length.saturating_sub(FIXED_LEN + Signature::LEN)
    }

    // `parse` has checked the length, so the zeros are never seen.
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.as_bytes()
            .get(at..at + N)
            .and_then(|field| field.try_into().ok())
            .unwrap_or([0; N])
    }
}

impl<B: AsRef<[u8]>> fmt::Debug for Record<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("kind", &self.kind())
            .field("subject", &self.subject())
            .field("signer", &self.signer())
            .field("version", &self.version())
            .field("expires_ms", &self.expires_ms())
            .field("removed", &self.is_removal())
            .field("addresses", &self.addresses().collect::<Vec<_>>())
            .finish()
    }
}

/// Returns the number of bytes between the header of a record, which begins so, and its signature.
fn body_len(head: [u8; 4]) -> Result<usize, DecodeError> {
    let [kind, flags, count, alias_len] = head;
    match (kind, usize::from(count), alias_len) {
        (1..=6, count, _) if count > MAX_ADDRESSES => Err(DecodeError::TooManyAddresses(count)),
        (1 | 2, count, 0) => Ok(count * ADDRESS_LEN),
        (1 | 2, ..) => Err(DecodeError::UnknownFlags),
        (3, 0, alias_len) => pointer::body_len(alias_len),
        (4, 0, 0) => Ok(match flags & revocation::FLAG_SUCCEEDED {
            0 => 0,
            _ => Guid::LEN,
        }),
        (5, 0, 0) => Ok(member::BODY_LEN),
        (6, 0, 0) => Ok(membership::BODY_LEN),
        (3..=6, ..) => Err(DecodeError::PointerWithAddresses),
        _ => Err(DecodeError::UnknownKind(kind)),
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Truncated, or bytes follow the record.
    #[error("{len} bytes do not match the length of this record")]
    Length {
        /// How many bytes there were.
        len: usize,
    },
    /// None of the kinds.
    #[error("record kind {0} is unknown")]
    UnknownKind(u8),
    /// A reserved bit is set.
    #[error("the record has unknown flags")]
    UnknownFlags,
    /// More than [`MAX_ADDRESSES`].
    #[error("a record has at most {MAX_ADDRESSES} addresses; this one has {0}")]
    TooManyAddresses(usize),
    /// A removal with addresses.
    #[error("a removal must not have addresses")]
    RemovedWithAddresses,
    /// A pointer, a revocation, a member or a membership with addresses.
    #[error("a pointer, a revocation, a member or a membership must not have addresses")]
    PointerWithAddresses,
    /// What a pointer is called is not an alias.
    #[error("the word of a pointer is not an alias")]
    Alias,
    /// The subject, an address or the content of a pointer is all zero.
    #[error("the subject, an address or the content is the all-zero name")]
    NoName,
    /// A version that only revocations have, or that they do not have.
    #[error("the greatest versions are for revocations")]
    Version,
    /// Expiry is not after the issue, or more than [`MAX_LIFETIME_MS`] after it.
    #[error("the lifetime of a record must be 1 ms to 30 days")]
    Lifetime,
}

/// Why a statement cannot be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// Every server would refuse the record.
    #[error("every server would refuse this record: {0}")]
    Invalid(DecodeError),
}

/// Why a well-formed record is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// It has expired.
    #[error("the record has expired")]
    Expired,
    /// Issued more than [`MAX_CLOCK_SKEW_MS`] from now.
    #[error("the record was issued in the future: check the clocks")]
    FromTheFuture,
    /// An announcement for more than [`MAX_PROVIDER_LIFETIME_MS`].
    #[error("the announcement lasts longer than an hour")]
    TooLong,
    /// The subject of a binding is not the hash of the key.
    #[error("the name is not the hash of the key that signed")]
    WrongKey,
    /// The key is not a point of the curve.
    #[error("the public key is not valid")]
    BadKey,
    /// The signature does not match.
    #[error("the signature does not match")]
    BadSignature,
    /// A membership without an admission that its group has signed, or that lasts longer than it.
    #[error("the group has not admitted this member, or not for so long")]
    NotAdmitted,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000_000;

    fn statement() -> impl Strategy<Value = Statement> {
        let address = (any::<[u8; 32]>(), any::<u8>(), any::<u16>())
            .prop_filter("a name", |(na, ..)| *na != [0; 32])
            .prop_map(|(na, preference, weight)| Address {
                na: Guid(na),
                preference,
                weight,
            });
        let addresses = prop::collection::vec(address, 0..=MAX_ADDRESSES);
        (any::<u64>(), 1..=MAX_LIFETIME_MS, addresses, any::<bool>()).prop_map(
            |(version, life, mut addresses, removed)| {
                if removed {
                    addresses.clear();
                }
                Statement {
                    version,
                    issued_ms: NOW,
                    expires_ms: NOW + life,
                    addresses,
                    removed,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_signed_is_what_is_read(secret: [u8; 32], said in statement(), content: [u8; 32], of_content: bool) {
            prop_assume!(content != [0; 32]);
            let keys = KeyPair::from_secret(&secret);
            let record = if of_content {
                Record::provider(&keys, Guid(content), &said)
            } else {
                Record::binding(&keys, &said)
            }.unwrap();
            let is_long = said.expires_ms - NOW > MAX_PROVIDER_LIFETIME_MS;
            let verdict = if of_content && is_long { Err(VerifyError::TooLong) } else { Ok(()) };
            prop_assert_eq!(record.verify(NOW), verdict);
            prop_assert_eq!(record.subject(), if of_content { Guid(content) } else { keys.guid() });
            prop_assert_eq!(record.signer(), keys.guid());
            let read = Statement {
                version: record.version(),
                issued_ms: record.issued_ms(),
                expires_ms: record.expires_ms(),
                addresses: record.addresses().collect(),
                removed: record.is_removal(),
            };
            prop_assert_eq!(read, said);
            let mut followed = record.as_bytes().to_vec();
            followed.extend(b"rest");
            let (view, rest) = RecordView::split(&followed).unwrap();
            prop_assert_eq!((view.as_bytes(), rest), (record.as_bytes(), &b"rest"[..]));
            prop_assert_eq!(Record::parse(&followed[..]), Err(DecodeError::Length { len: followed.len() }));
        }

        #[test]
        fn a_changed_byte_is_always_noticed(said in statement(), at: prop::sample::Index, with in 1u8..) {
            let record = Record::binding(&KeyPair::from_secret(&[1; 32]), &said).unwrap();
            let mut bytes = record.as_bytes().to_vec();
            *at.get_mut(&mut bytes[..]) ^= with;
            prop_assert!(Record::parse(&bytes[..]).ok().is_none_or(|forged| forged.verify(NOW).is_err()));
        }

        #[test]
        fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Ok((view, rest)) = RecordView::split(&bytes) {
                prop_assert_eq!(view.as_bytes().len() + rest.len(), bytes.len());
            }
            let _ = Record::parse(&bytes[..]);
        }
    }

    fn said(addresses: Vec<Address>) -> Statement {
        Statement::new(NOW, 60_000, addresses)
    }

    #[test]
    fn a_record_cannot_be_made_for_the_name_of_another_key() {
        let (mine, theirs) = (
            KeyPair::from_secret(&[1; 32]),
            KeyPair::from_secret(&[2; 32]),
        );
        let record =
            Record::signed(Kind::Binding, theirs.guid(), &mine, &said(vec![]), &[]).unwrap();
        assert_eq!(record.verify(NOW), Err(VerifyError::WrongKey));
    }

    #[test]
    fn a_record_is_believed_from_its_issue_to_its_expiry() {
        let record = Record::binding(&KeyPair::from_secret(&[1; 32]), &said(vec![])).unwrap();
        assert_eq!(record.verify(NOW + 59_999), Ok(()));
        assert_eq!(record.verify(NOW + 60_000), Err(VerifyError::Expired));
        assert_eq!(record.verify(NOW - MAX_CLOCK_SKEW_MS), Ok(()));
        assert_eq!(
            record.verify(NOW - MAX_CLOCK_SKEW_MS - 1),
            Err(VerifyError::FromTheFuture)
        );
    }

    #[test]
    fn what_nobody_would_take_is_not_signed() {
        let keys = KeyPair::from_secret(&[1; 32]);
        let refused = |statement| match Record::binding(&keys, &statement) {
            Err(StatementError::Invalid(why)) => why,
            Ok(record) => panic!("{record:?}"),
        };
        let address = Address::new(keys.guid());
        assert_eq!(
            refused(said(vec![address; 11])),
            DecodeError::TooManyAddresses(11)
        );
        assert_eq!(
            refused(said(vec![Address::new(Guid::NONE)])),
            DecodeError::NoName
        );
        assert_eq!(
            refused(Statement {
                removed: true,
                ..said(vec![address])
            }),
            DecodeError::RemovedWithAddresses
        );
        assert_eq!(
            refused(Statement {
                expires_ms: NOW,
                ..said(vec![])
            }),
            DecodeError::Lifetime
        );
        assert_eq!(
            refused(Statement {
                expires_ms: NOW + MAX_LIFETIME_MS + 1,
                ..said(vec![])
            }),
            DecodeError::Lifetime
        );
    }

    /// A record is parsed before its signature is looked at.
    #[test]
    fn whoever_wrote_them_more_addresses_than_fit_are_refused() {
        for count in [MAX_ADDRESSES + 1, 255] {
            let mut bytes = vec![0; FIXED_LEN + count * ADDRESS_LEN + Signature::LEN];
            (bytes[0], bytes[2]) = (1, count as u8);
            let refused = Some(DecodeError::TooManyAddresses(count));
            assert_eq!(RecordView::split(&bytes).err(), refused);
            assert_eq!(Record::parse(&bytes[..]).err(), refused);
        }
    }

    #[test]
    fn the_longest_record_leaves_room_for_a_second_in_a_datagram() {
        assert_eq!(RECORD_LEN, (156, 506));
    }
}
