//! Names: sequences of typed components.

use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

use bytes::Bytes;

use crate::tlv::{self, DecodeError, Reader};
use crate::types;

/// One component, where it lies in a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ComponentRef<'a> {
    typ: u16,
    value: &'a [u8],
}

impl<'a> ComponentRef<'a> {
    /// A component of a type other than 0.
    pub const fn new(typ: u16, value: &'a [u8]) -> ComponentRef<'a> {
        ComponentRef { typ, value }
    }

    /// A component of the usual type, which has no meaning by itself.
    pub const fn generic(value: &'a [u8]) -> ComponentRef<'a> {
        ComponentRef { typ: types::GENERIC_COMPONENT as u16, value }
    }

    /// TLV-TYPE.
    pub const fn typ(&self) -> u16 {
        self.typ
    }

    /// TLV-VALUE.
    pub const fn value(&self) -> &'a [u8] {
        self.value
    }

    /// The number that a component of this type holds; `None` for another type or a value that is no number.
    pub fn number_of(&self, typ: u64) -> Option<u64> {
        if u64::from(self.typ) == typ { tlv::read_integer(self.value) } else { None }
    }

    /// An owned copy.
    pub fn to_owned(&self) -> Component {
        Component { typ: self.typ, value: Bytes::copy_from_slice(self.value) }
    }

    /// Appends the whole element.
    pub fn encode(&self, out: &mut Vec<u8>) {
        tlv::write_element(out, u64::from(self.typ), self.value);
    }
}

impl Ord for ComponentRef<'_> {
    /// Canonical order: by type, then by length, then octet by octet.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.typ, self.value.len(), self.value).cmp(&(other.typ, other.value.len(), other.value))
    }
}

impl PartialOrd for ComponentRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One component that owns its value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Component {
    typ: u16,
    value: Bytes,
}

impl Component {
    /// A component of a type other than 0.
    pub fn new(typ: u16, value: impl Into<Bytes>) -> Component {
        Component { typ, value: value.into() }
    }

    /// A component of the usual type.
    pub fn generic(value: impl Into<Bytes>) -> Component {
        Component::new(types::GENERIC_COMPONENT as u16, value)
    }

    /// A component that holds a number, as the naming conventions have them.
    pub fn number(typ: u64, number: u64) -> Component {
        let mut value = Vec::with_capacity(8);
        tlv::write_integer(&mut value, number);
        Component::new(typ as u16, value)
    }

    /// A segment number (naming conventions revision 3).
    pub fn segment(number: u64) -> Component {
        Component::number(types::SEGMENT, number)
    }

    /// A version, by convention microseconds since the Unix epoch.
    pub fn version(number: u64) -> Component {
        Component::number(types::VERSION, number)
    }

    /// A timestamp in microseconds since the Unix epoch.
    pub fn timestamp(micros: u64) -> Component {
        Component::number(types::TIMESTAMP, micros)
    }

    /// A sequence number.
    pub fn sequence_num(number: u64) -> Component {
        Component::number(types::SEQUENCE_NUM, number)
    }

    /// A byte offset.
    pub fn byte_offset(number: u64) -> Component {
        Component::number(types::BYTE_OFFSET, number)
    }

    /// A well-known keyword such as `metadata`.
    pub fn keyword(word: &str) -> Component {
        Component::new(types::KEYWORD as u16, word.as_bytes().to_vec())
    }

    /// Borrowed.
    pub fn as_ref(&self) -> ComponentRef<'_> {
        ComponentRef { typ: self.typ, value: &self.value }
    }
}

impl Ord for Component {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(&other.as_ref())
    }
}

impl PartialOrd for Component {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A name where it lies in a packet: components that have been checked to be whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NameRef<'a> {
    /// TLV-VALUE of the name: component after component.
    value: &'a [u8],
}

impl<'a> NameRef<'a> {
    /// From the TLV-VALUE of a Name element.
    pub fn from_value(value: &'a [u8]) -> Result<NameRef<'a>, DecodeError> {
        let mut reader = Reader::new(value);
        while let Some(component) = reader.element()? {
            let digest = component.typ <= types::PARAMETERS_SHA256_DIGEST;
            if !tlv::is_component_type(component.typ) || (digest && component.value.len() != 32) {
                return Err(DecodeError::Value(component.typ));
            }
        }
        Ok(NameRef { value })
    }

    /// From a whole Name element.
    pub fn decode(element: &'a [u8]) -> Result<NameRef<'a>, DecodeError> {
        let element = tlv::outermost(element)?;
        if element.typ == types::NAME {
            NameRef::from_value(element.value)
        } else {
            Err(DecodeError::WrongType(element.typ))
        }
    }

    /// The components as they lie in the packet.
    pub const fn value(&self) -> &'a [u8] {
        self.value
    }

    /// The components.
    pub fn components(&self) -> Components<'a> {
        Components { reader: Reader::new(self.value) }
    }

    /// How many components it has. Counts them.
    pub fn len(&self) -> usize {
        self.components().count()
    }

    /// True for the name `/`.
    pub const fn is_empty(&self) -> bool {
        self.value.is_empty()
    }

    /// The component at `index`.
    pub fn get(&self, index: usize) -> Option<ComponentRef<'a>> {
        self.components().nth(index)
    }

    /// The last component.
    pub fn last(&self) -> Option<ComponentRef<'a>> {
        self.components().last()
    }

    /// The first `count` components, or all of them if there are fewer.
    pub fn prefix(&self, count: usize) -> NameRef<'a> {
        let mut components = self.components();
        for _ in 0..count {
            if components.next().is_none() {
                break;
            }
        }
        let len = self.value.len() - components.reader.rest().len();
        NameRef { value: self.value.get(..len).unwrap_or_default() }
    }

    /// What follows after the first `count` components.
    pub fn suffix(&self, count: usize) -> NameRef<'a> {
        let len = self.prefix(count).value.len();
        NameRef { value: self.value.get(len..).unwrap_or_default() }
    }

    /// True if this name begins `other`, or is the same.
    pub fn is_prefix_of(&self, other: NameRef<'_>) -> bool {
        // Both consist of whole components, so that a match of octets ends where a component ends.
        other.value.starts_with(self.value)
    }

    /// An owned copy.
    pub fn to_name(&self) -> Name {
        Name { value: Bytes::copy_from_slice(self.value) }
    }

    /// Appends the whole element.
    pub fn encode(&self, out: &mut Vec<u8>) {
        tlv::write_element(out, types::NAME, self.value);
    }

    /// Octets of the whole element.
    pub const fn encoded_len(&self) -> usize {
        tlv::element_len(types::NAME, self.value.len())
    }
}

impl Ord for NameRef<'_> {
    /// Canonical order: component by component; a prefix comes before what it begins.
    fn cmp(&self, other: &Self) -> Ordering {
        self.components().cmp(other.components())
    }
}

impl PartialOrd for NameRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The components of a name, in order.
#[derive(Clone, Debug)]
pub struct Components<'a> {
    reader: Reader<'a>,
}

impl<'a> Components<'a> {
    /// What follows the components taken so far.
    pub const fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }
}

impl<'a> Iterator for Components<'a> {
    type Item = ComponentRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<ComponentRef<'a>> {
        let element = self.reader.element().ok()??;
        Some(ComponentRef { typ: element.typ as u16, value: element.value })
    }
}

/// A name that owns its octets; copying it is cheap.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Name {
    value: Bytes,
}

impl Name {
    /// The name `/`.
    pub const fn root() -> Name {
        Name { value: Bytes::new() }
    }

    /// From the TLV-VALUE of a Name element, without copying it.
    pub fn from_value(value: Bytes) -> Result<Name, DecodeError> {
        NameRef::from_value(&value)?;
        Ok(Name { value })
    }

    /// From components.
    pub fn of(components: impl IntoIterator<Item = Component>) -> Name {
        let mut value = Vec::new();
        for component in components {
            component.as_ref().encode(&mut value);
        }
        Name { value: value.into() }
    }

    /// Borrowed.
    pub fn as_ref(&self) -> NameRef<'_> {
        NameRef { value: &self.value }
    }

    /// This name with one more component.
    pub fn child(&self, component: ComponentRef<'_>) -> Name {
        let mut value = Vec::with_capacity(self.value.len() + component.value.len() + 4);
        value.extend_from_slice(&self.value);
        component.encode(&mut value);
        Name { value: value.into() }
    }

    /// This name with one more component of the usual type.
    pub fn child_generic(&self, value: &[u8]) -> Name {
        self.child(ComponentRef::generic(value))
    }

    /// This name, then all of `suffix`.
    pub fn join(&self, suffix: NameRef<'_>) -> Name {
        Name { value: [&*self.value, suffix.value()].concat().into() }
    }

    /// The first `count` components, sharing memory with this name.
    pub fn prefix(&self, count: usize) -> Name {
        let len = self.as_ref().prefix(count).value().len();
        Name { value: self.value.slice(..len) }
    }

    /// How many components it has.
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// True for the name `/`.
    pub fn is_empty(&self) -> bool {
        self.value.is_empty()
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(&other.as_ref())
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Types that have a name of their own in URIs, whose values are numbers.
const NUMBERS: [(u64, &str); 5] = [
    (types::SEGMENT, "seg"),
    (types::BYTE_OFFSET, "off"),
    (types::VERSION, "v"),
    (types::TIMESTAMP, "t"),
    (types::SEQUENCE_NUM, "seq"),
];
/// Types that have a name of their own in URIs, whose values are digests in hexadecimal.
const DIGESTS: [(u64, &str); 2] =
    [(types::IMPLICIT_SHA256_DIGEST, "sha256digest"), (types::PARAMETERS_SHA256_DIGEST, "params-sha256")];

impl fmt::Display for ComponentRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let typ = u64::from(self.typ);
        if let Some((_, label)) = DIGESTS.iter().find(|(digest, _)| *digest == typ)
            && self.value.len() == 32
        {
            write!(f, "{label}=")?;
            return self.value.iter().try_for_each(|octet| write!(f, "{octet:02x}"));
        }
        if let Some((_, label)) = NUMBERS.iter().find(|(number, _)| *number == typ)
            && let Some(number) = tlv::read_integer(self.value)
            // Another form of the same number would not survive being read again.
            && tlv::integer_len(number) == self.value.len()
        {
            return write!(f, "{label}={number}");
        }
        if typ != types::GENERIC_COMPONENT {
            write!(f, "{typ}=")?;
        }
        if self.value.iter().all(|octet| *octet == b'.') {
            f.write_str("...")?;
        }
        for octet in self.value {
            match octet {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    write!(f, "{}", char::from(*octet))?;
                }
                _ => write!(f, "%{octet:02X}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ComponentRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_ref(), f)
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NameRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("/");
        }
        self.components().try_for_each(|component| write!(f, "/{component}"))
    }
}

impl fmt::Debug for NameRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_ref(), f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseNameError {
    /// A component has nothing or only one or two dots in it.
    #[error("the component '{0}' is empty or has too few dots: three dots stand for an empty one")]
    Empty(String),
    /// `%` without two hexadecimal digits.
    #[error("'%' in '{0}' is not followed by two hexadecimal digits")]
    Escape(String),
    /// What stands before `=` is no component type.
    #[error(
        "'{0}' is no component type: a number from 1 to 65535, or one of seg, off, v, t, seq, sha256digest, params-sha256"
    )]
    Type(String),
    /// The number after `seg=` and its like.
    #[error("'{0}' is not a number from 0 to 18446744073709551615")]
    Number(String),
    /// A digest is not 64 hexadecimal digits.
    #[error("'{0}' is not a digest of 64 hexadecimal digits")]
    Digest(String),
}

impl FromStr for Component {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Component, ParseNameError> {
        let Some((label, rest)) = text.split_once('=') else {
            return Ok(Component::generic(unescape(text)?));
        };
        if let Some((typ, _)) = NUMBERS.iter().find(|(_, name)| *name == label) {
            let number = rest.parse().map_err(|_| ParseNameError::Number(rest.to_owned()))?;
            return Ok(Component::number(*typ, number));
        }
        if let Some((typ, _)) = DIGESTS.iter().find(|(_, name)| *name == label) {
            return Ok(Component::new(*typ as u16, digest(rest)?));
        }
        let typ: u16 = label.parse().map_err(|_| ParseNameError::Type(label.to_owned()))?;
        let value = unescape(rest)?;
        match u64::from(typ) {
            0 => Err(ParseNameError::Type(label.to_owned())),
            typ if typ <= types::PARAMETERS_SHA256_DIGEST && value.len() != 32 => {
                Err(ParseNameError::Digest(rest.to_owned()))
            }
            _ => Ok(Component::new(typ, value)),
        }
    }
}

impl FromStr for Name {
    type Err = ParseNameError;

    /// `/a/b`, `ndn:/a/b` and `a/b` are the same name.
    fn from_str(text: &str) -> Result<Name, ParseNameError> {
        let text = text.strip_prefix("ndn:").unwrap_or(text);
        let path = text.strip_prefix('/').unwrap_or(text);
        // "/a/" is "/a": a trailing slash is what people write of a prefix.
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.is_empty() {
            return Ok(Name::root());
        }
        let components: Result<Vec<Component>, _> = path.split('/').map(str::parse).collect();
        Ok(Name::of(components?))
    }
}

fn unescape(text: &str) -> Result<Vec<u8>, ParseNameError> {
    if text.bytes().all(|octet| octet == b'.') {
        let Some(dots) = text.len().checked_sub(3) else {
            return Err(ParseNameError::Empty(text.to_owned()));
        };
        return Ok(vec![b'.'; dots]);
    }
    let mut value = Vec::with_capacity(text.len());
    let mut octets = text.bytes();
    while let Some(octet) = octets.next() {
        if octet != b'%' {
            value.push(octet);
            continue;
        }
        let digits = octets.next().and_then(hex_digit).zip(octets.next().and_then(hex_digit));
        let (high, low) = digits.ok_or_else(|| ParseNameError::Escape(text.to_owned()))?;
        value.push(high << 4 | low);
    }
    Ok(value)
}

fn hex_digit(octet: u8) -> Option<u8> {
    char::from(octet).to_digit(16).map(|digit| digit as u8)
}

fn digest(text: &str) -> Result<Vec<u8>, ParseNameError> {
    let wrong = || ParseNameError::Digest(text.to_owned());
    if text.len() != 64 {
        return Err(wrong());
    }
    let digits: Option<Vec<u8>> = text.bytes().map(hex_digit).collect();
    Ok(digits
        .ok_or_else(wrong)?
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |octet, digit| octet << 4 | digit))
        .collect())
}
