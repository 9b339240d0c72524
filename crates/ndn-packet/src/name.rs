//! Names: sequences of typed components.

use core::cmp::Ordering;

use bytes::Bytes;

use crate::tlv::{self, DecodeError, Reader};
use crate::types;
pub use crate::uri::ParseNameError;

/// One component, borrowed from a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ComponentRef<'a> {
    typ: u16,
    value: &'a [u8],
}

impl<'a> ComponentRef<'a> {
    /// Returns a component of a type other than 0.
    pub const fn new(typ: u16, value: &'a [u8]) -> ComponentRef<'a> {
        ComponentRef { typ, value }
    }

    /// Returns a generic component.
    pub const fn generic(value: &'a [u8]) -> ComponentRef<'a> {
        ComponentRef {
            typ: types::GENERIC_COMPONENT as u16,
            value,
        }
    }

    /// TLV-TYPE.
    pub const fn typ(&self) -> u16 {
        self.typ
    }

    /// TLV-VALUE.
    pub const fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Returns an owned copy.
    pub fn to_owned(&self) -> Component {
        Component {
            typ: self.typ,
            value: Bytes::copy_from_slice(self.value),
        }
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
    /// Returns a component of a type other than 0.
    pub fn new(typ: u16, value: impl Into<Bytes>) -> Component {
        Component {
            typ,
            value: value.into(),
        }
    }

    /// Returns a generic component.
    pub fn generic(value: impl Into<Bytes>) -> Component {
        Component::new(types::GENERIC_COMPONENT as u16, value)
    }

    /// Returns a borrowed view.
    pub fn as_ref(&self) -> ComponentRef<'_> {
        ComponentRef {
            typ: self.typ,
            value: &self.value,
        }
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

/// A name borrowed from a packet: its components are checked to be whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NameRef<'a> {
    /// TLV-VALUE of the name: its components, one after the other.
    value: &'a [u8],
}

impl<'a> NameRef<'a> {
    /// Decodes the TLV-VALUE of a Name element.
    pub fn from_value(value: &'a [u8]) -> Result<NameRef<'a>, DecodeError> {
        NameRef::walk(value, |_| {})
    }

    /// Decodes the TLV-VALUE of a Name element; calls `each` with the end offset of each component
    /// on the way, also of those before an invalid one.
    #[inline]
    pub fn walk(value: &'a [u8], mut each: impl FnMut(usize)) -> Result<NameRef<'a>, DecodeError> {
        let mut reader = Reader::new(value);
        while let Some(component) = reader.element()? {
            let digest = component.typ <= types::PARAMETERS_SHA256_DIGEST;
            if !tlv::is_component_type(component.typ) || (digest && component.value.len() != 32) {
                return Err(DecodeError::Value(component.typ));
            }
            each(value.len() - reader.rest().len());
        }
        Ok(NameRef { value })
    }

    /// Decodes a whole Name element.
    pub fn decode(element: &'a [u8]) -> Result<NameRef<'a>, DecodeError> {
        let element = tlv::outermost(element)?;
        if element.typ == types::NAME {
            NameRef::from_value(element.value)
        } else {
            Err(DecodeError::WrongType(element.typ))
        }
    }

    /// Returns the encoded components.
    pub const fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Returns the components.
    pub fn components(&self) -> Components<'a> {
        Components {
            reader: Reader::new(self.value),
        }
    }

    /// Returns the number of components. Counts them.
    pub fn len(&self) -> usize {
        self.components().count()
    }

    /// Returns true for the name `/`.
    pub const fn is_empty(&self) -> bool {
        self.value.is_empty()
    }

    /// Returns the component at `index`.
    pub fn get(&self, index: usize) -> Option<ComponentRef<'a>> {
        self.components().nth(index)
    }

    /// Returns the last component.
    pub fn last(&self) -> Option<ComponentRef<'a>> {
        self.components().last()
    }

    /// Returns the first `count` components, or all of them if there are fewer.
    pub fn prefix(&self, count: usize) -> NameRef<'a> {
        let mut components = self.components();
        for _ in 0..count {
            if components.next().is_none() {
                break;
            }
        }
        let len = self.value.len() - components.reader.rest().len();
        NameRef {
            value: self.value.get(..len).unwrap_or_default(),
        }
    }

    /// Returns the components after the first `count`.
    pub fn suffix(&self, count: usize) -> NameRef<'a> {
        let len = self.prefix(count).value.len();
        NameRef {
            value: self.value.get(len..).unwrap_or_default(),
        }
    }

    /// Returns true if this name is a prefix of `other`, or equal to it.
    pub fn is_prefix_of(&self, other: NameRef<'_>) -> bool {
        // Both consist of whole components, so a match of octets ends at the end of a component.
        other.value.starts_with(self.value)
    }

    /// Returns an owned copy.
    pub fn to_name(&self) -> Name {
        Name {
            value: Bytes::copy_from_slice(self.value),
        }
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
    /// Canonical order: component by component; a prefix comes before longer names.
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
    /// Returns the encoded components not yet returned.
    pub const fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }
}

impl<'a> Iterator for Components<'a> {
    type Item = ComponentRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<ComponentRef<'a>> {
        let element = self.reader.element().ok()??;
        Some(ComponentRef {
            typ: element.typ as u16,
            value: element.value,
        })
    }
}

/// A name that owns its octets; cloning it is cheap.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Name {
    value: Bytes,
}

impl Name {
    /// Returns the name `/`.
    pub const fn root() -> Name {
        Name {
            value: Bytes::new(),
        }
    }

    /// Decodes the TLV-VALUE of a Name element, without copying it.
    pub fn from_value(value: Bytes) -> Result<Name, DecodeError> {
        NameRef::from_value(&value)?;
        Ok(Name { value })
    }

    /// Returns a name of these components.
    pub fn of(components: impl IntoIterator<Item = Component>) -> Name {
        let mut value = Vec::new();
        for component in components {
            component.as_ref().encode(&mut value);
        }
        Name {
            value: value.into(),
        }
    }

    /// Returns a borrowed view.
    pub fn as_ref(&self) -> NameRef<'_> {
        NameRef { value: &self.value }
    }

    /// This name with one more component.
    pub fn child(&self, component: ComponentRef<'_>) -> Name {
        let mut value = Vec::with_capacity(self.value.len() + component.value.len() + 4);
        value.extend_from_slice(&self.value);
        component.encode(&mut value);
        Name {
            value: value.into(),
        }
    }

    /// This name with one more generic component.
    pub fn child_generic(&self, value: &[u8]) -> Name {
        self.child(ComponentRef::generic(value))
    }

    /// This name followed by `suffix`.
    pub fn join(&self, suffix: NameRef<'_>) -> Name {
        Name {
            value: [&*self.value, suffix.value()].concat().into(),
        }
    }

    /// Returns the first `count` components, sharing memory with this name.
    pub fn prefix(&self, count: usize) -> Name {
        let len = self.as_ref().prefix(count).value().len();
        Name {
            value: self.value.slice(..len),
        }
    }

    /// Returns the number of components.
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Returns true for the name `/`.
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
