//! Naming conventions, revision 3: components whose type gives their meaning, and well-known
//! keywords.

use crate::name::{Component, ComponentRef, Name, NameRef};
use crate::tlv;
use crate::types;

/// Keyword of the metadata in which a producer names the newest version of an object (Realtime Data
/// Retrieval).
pub const METADATA: &str = "metadata";
/// Keyword of prefix announcements.
pub const PREFIX_ANNOUNCEMENT: &str = "PA";

impl Component {
    /// Returns a component that holds a number, encoded as in the naming conventions.
    pub fn number(typ: u64, number: u64) -> Component {
        let mut value = Vec::with_capacity(8);
        tlv::write_integer(&mut value, number);
        Component::new(typ as u16, value)
    }

    /// Returns a segment number, from 0 upwards.
    pub fn segment(number: u64) -> Component {
        Component::number(types::SEGMENT, number)
    }

    /// Returns a version, by convention microseconds since the Unix epoch.
    pub fn version(number: u64) -> Component {
        Component::number(types::VERSION, number)
    }

    /// Returns a timestamp in microseconds since the Unix epoch.
    pub fn timestamp(micros: u64) -> Component {
        Component::number(types::TIMESTAMP, micros)
    }

    /// Returns a sequence number.
    pub fn sequence_num(number: u64) -> Component {
        Component::number(types::SEQUENCE_NUM, number)
    }

    /// Returns a byte offset.
    pub fn byte_offset(number: u64) -> Component {
        Component::number(types::BYTE_OFFSET, number)
    }

    /// Returns a well-known keyword such as `metadata`.
    pub fn keyword(word: &str) -> Component {
        Component::new(types::KEYWORD as u16, word.as_bytes().to_vec())
    }

    /// Returns the implicit SHA-256 digest of a Data: the last component of its full name.
    pub fn implicit_digest(digest: &[u8; 32]) -> Component {
        Component::new(types::IMPLICIT_SHA256_DIGEST as u16, digest.to_vec())
    }

    /// Returns the SHA-256 digest of an Interest's parameters.
    pub fn parameters_digest(digest: &[u8; 32]) -> Component {
        Component::new(types::PARAMETERS_SHA256_DIGEST as u16, digest.to_vec())
    }
}

impl ComponentRef<'_> {
    /// Returns the number in a component of this type; `None` for another type or a value that is
    /// not a number.
    pub fn number_of(&self, typ: u64) -> Option<u64> {
        if u64::from(self.typ()) == typ {
            tlv::read_integer(self.value())
        } else {
            None
        }
    }

    /// Returns its segment number.
    pub fn as_segment(&self) -> Option<u64> {
        self.number_of(types::SEGMENT)
    }

    /// Returns its version.
    pub fn as_version(&self) -> Option<u64> {
        self.number_of(types::VERSION)
    }

    /// Returns its timestamp, in microseconds since the Unix epoch.
    pub fn as_timestamp(&self) -> Option<u64> {
        self.number_of(types::TIMESTAMP)
    }

    /// Returns its sequence number.
    pub fn as_sequence_num(&self) -> Option<u64> {
        self.number_of(types::SEQUENCE_NUM)
    }

    /// Returns its byte offset.
    pub fn as_byte_offset(&self) -> Option<u64> {
        self.number_of(types::BYTE_OFFSET)
    }

    /// Returns its version in revision 1 of the conventions: a generic component that begins with
    /// the octet 0xfd.
    pub fn marked_version(&self) -> Option<u64> {
        self.marked(0xfd)
    }

    /// Returns its segment number in revision 1 of the conventions: a generic component that begins
    /// with the octet 0.
    pub fn marked_segment(&self) -> Option<u64> {
        self.marked(0)
    }

    fn marked(&self, marker: u8) -> Option<u64> {
        let (first, number) = self.value().split_first()?;
        let is_marked = u64::from(self.typ()) == types::GENERIC_COMPONENT && *first == marker;
        if is_marked {
            tlv::read_integer(number)
        } else {
            None
        }
    }

    /// Returns true for a segment number.
    pub fn is_segment(&self) -> bool {
        self.as_segment().is_some()
    }

    /// Returns true for a version.
    pub fn is_version(&self) -> bool {
        self.as_version().is_some()
    }

    /// Returns true for this keyword.
    pub fn is_keyword(&self, word: &str) -> bool {
        u64::from(self.typ()) == types::KEYWORD && self.value() == word.as_bytes()
    }

    /// Returns true for an implicit SHA-256 digest.
    pub fn is_implicit_digest(&self) -> bool {
        u64::from(self.typ()) == types::IMPLICIT_SHA256_DIGEST
    }

    /// Returns true for the SHA-256 digest of an Interest's parameters.
    pub fn is_parameters_digest(&self) -> bool {
        u64::from(self.typ()) == types::PARAMETERS_SHA256_DIGEST
    }
}

impl<'a> NameRef<'a> {
    /// Returns the segment number at its end.
    pub fn segment(&self) -> Option<u64> {
        self.last()?.as_segment()
    }

    /// Returns the version at its end, or before the segment number at its end.
    pub fn version(&self) -> Option<u64> {
        let len = self.len();
        let last = self.get(len.checked_sub(1)?)?;
        if last.is_segment() {
            self.get(len.checked_sub(2)?)?.as_version()
        } else {
            last.as_version()
        }
    }

    /// Returns the name without the segment number at its end, if there is one.
    pub fn without_segment(&self) -> NameRef<'a> {
        if self.segment().is_some() {
            self.prefix(self.len() - 1)
        } else {
            *self
        }
    }

    /// Returns the name of the object whose metadata this name denotes: the part before
    /// `32=metadata`, after which a version and a segment number may follow.
    pub fn metadata_of(&self) -> Option<NameRef<'a>> {
        let mut object = self.without_segment();
        if object.last()?.is_version() {
            object = object.prefix(object.len() - 1);
        }
        object
            .last()?
            .is_keyword(METADATA)
            .then(|| object.prefix(object.len() - 1))
    }
}

impl Name {
    /// This name with a segment number.
    pub fn with_segment(&self, number: u64) -> Name {
        self.child(Component::segment(number).as_ref())
    }

    /// This name with a version.
    pub fn with_version(&self, number: u64) -> Name {
        self.child(Component::version(number).as_ref())
    }

    /// This name with a timestamp in microseconds since the Unix epoch.
    pub fn with_timestamp(&self, micros: u64) -> Name {
        self.child(Component::timestamp(micros).as_ref())
    }

    /// This name with a sequence number.
    pub fn with_sequence_num(&self, number: u64) -> Name {
        self.child(Component::sequence_num(number).as_ref())
    }

    /// This name with a byte offset.
    pub fn with_byte_offset(&self, number: u64) -> Name {
        self.child(Component::byte_offset(number).as_ref())
    }

    /// This name with a keyword.
    pub fn with_keyword(&self, word: &str) -> Name {
        self.child(Component::keyword(word).as_ref())
    }

    /// Returns the name of this object's metadata: this name with `32=metadata`.
    pub fn with_metadata(&self) -> Name {
        self.with_keyword(METADATA)
    }
}
