//! The kinds of header field values: how each is decoded, measured, encoded and shown.
//!
//! A kind works on the member of [`LinkFields`](super::LinkFields) or
//! [`HeaderFields`](super::HeaderFields) that holds the field; a member can be absent.

use core::fmt;
use core::marker::PhantomData;

use bytes::Bytes;

use super::value::Code;
use crate::tlv::{self, DecodeError, Element, Reader};

/// The shape of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A non-negative integer of 1, 2, 4 or 8 octets.
    Integer,
    /// A number of exactly 8 octets.
    Number64,
    /// A number of exactly 8 octets; the field may occur several times.
    Numbers64,
    /// A bounded number of opaque octets.
    Octets {
        /// Minimum of octets.
        least: usize,
        /// Maximum of octets.
        most: usize,
    },
    /// One TLV element, opaque to the link.
    Packet,
    /// No value: the field's presence is its meaning.
    Flag,
    /// One element with a non-negative integer.
    Nested {
        /// The element's TLV-TYPE and name.
        inner: (u64, &'static str),
        /// The element must be present.
        required: bool,
    },
}

/// The description of a kind.
pub(super) trait Kind {
    const VALUE: ValueKind;
}

/// Decodes a field into its member. `from` is the packet from this field on.
pub(super) trait Read<'a, M>: Kind {
    fn read(member: &mut M, element: &Element<'a>, from: &'a [u8]) -> Result<(), DecodeError>;
}

/// Encodes a member as a field of the type `typ`; an absent one takes no octets.
pub(super) trait Write<M>: Kind {
    fn is_absent(member: &M) -> bool;

    /// Octets of the field with its type and length.
    fn len(typ: u64, member: &M) -> usize;

    fn write(typ: u64, member: &M, out: &mut Vec<u8>);

    /// Writes ` name=value` for people.
    fn show(name: &str, member: &M, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// See [`ValueKind::Integer`].
pub(super) struct Integer;

impl Kind for Integer {
    const VALUE: ValueKind = ValueKind::Integer;
}

impl<'a> Read<'a, Option<u64>> for Integer {
    fn read(
        member: &mut Option<u64>,
        element: &Element<'a>,
        _from: &'a [u8],
    ) -> Result<(), DecodeError> {
        *member = Some(element.integer()?);
        Ok(())
    }
}

impl Write<Option<u64>> for Integer {
    fn is_absent(member: &Option<u64>) -> bool {
        member.is_none()
    }

    fn len(typ: u64, member: &Option<u64>) -> usize {
        member.map_or(0, |number| tlv::element_len(typ, tlv::integer_len(number)))
    }

    fn write(typ: u64, member: &Option<u64>, out: &mut Vec<u8>) {
        if let Some(number) = member {
            tlv::write_integer_element(out, typ, *number);
        }
    }

    fn show(name: &str, member: &Option<u64>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        member.map_or(Ok(()), |number| write!(f, " {name}={number}"))
    }
}

/// See [`ValueKind::Number64`].
pub(super) struct Number64;

fn number64(element: &Element<'_>) -> Result<u64, DecodeError> {
    let octets = element.value.try_into();
    octets
        .map(u64::from_be_bytes)
        .map_err(|_| DecodeError::Value(element.typ))
}

impl Kind for Number64 {
    const VALUE: ValueKind = ValueKind::Number64;
}

impl<'a> Read<'a, Option<u64>> for Number64 {
    fn read(
        member: &mut Option<u64>,
        element: &Element<'a>,
        _from: &'a [u8],
    ) -> Result<(), DecodeError> {
        *member = Some(number64(element)?);
        Ok(())
    }
}

impl Write<Option<u64>> for Number64 {
    fn is_absent(member: &Option<u64>) -> bool {
        member.is_none()
    }

    fn len(typ: u64, member: &Option<u64>) -> usize {
        member.map_or(0, |_| tlv::element_len(typ, 8))
    }

    fn write(typ: u64, member: &Option<u64>, out: &mut Vec<u8>) {
        if let Some(number) = member {
            tlv::write_element(out, typ, &number.to_be_bytes());
        }
    }

    fn show(name: &str, member: &Option<u64>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        member.map_or(Ok(()), |number| write!(f, " {name}={number}"))
    }
}

/// The numbers of a field that may occur several times.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// In memory, to send.
    Listed(&'a [u64]),
    /// Elements within a frame. Other elements may follow them.
    Encoded(&'a [u8]),
}

impl<'a> Numbers<'a> {
    /// Returns the numbers in their order. Skips elements that are not 8 octets.
    pub fn iter(self) -> impl Iterator<Item = u64> + use<'a> {
        let (listed, encoded): (&[u64], &[u8]) = match self {
            Numbers::Listed(listed) => (listed, &[]),
            Numbers::Encoded(encoded) => (&[], encoded),
        };
        let mut reader = Reader::new(encoded);
        let mut typ = None;
        let of_frame = core::iter::from_fn(move || {
            let element = reader.element().ok()??;
            (*typ.get_or_insert(element.typ) == element.typ).then_some(element)
        });
        let of_frame = of_frame.filter_map(|element| number64(&element).ok());
        listed.iter().copied().chain(of_frame)
    }

    /// Returns true if there are no numbers.
    pub fn is_empty(self) -> bool {
        match self {
            Numbers::Listed(listed) => listed.is_empty(),
            Numbers::Encoded(_) => self.iter().next().is_none(),
        }
    }
}

impl Default for Numbers<'_> {
    fn default() -> Self {
        Numbers::Listed(&[])
    }
}

impl<'a> From<&'a [u64]> for Numbers<'a> {
    fn from(listed: &'a [u64]) -> Numbers<'a> {
        Numbers::Listed(listed)
    }
}

impl PartialEq for Numbers<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Numbers<'_> {}

/// See [`ValueKind::Numbers64`].
pub(super) struct Numbers64;

impl Kind for Numbers64 {
    const VALUE: ValueKind = ValueKind::Numbers64;
}

impl<'a> Read<'a, Numbers<'a>> for Numbers64 {
    fn read(
        member: &mut Numbers<'a>,
        element: &Element<'a>,
        from: &'a [u8],
    ) -> Result<(), DecodeError> {
        // Fields of one type are adjacent, so the first one leads to all others.
        if let Numbers::Listed(_) = member {
            *member = Numbers::Encoded(from);
        }
        number64(element).map(|_| ())
    }
}

impl Write<Numbers<'_>> for Numbers64 {
    fn is_absent(member: &Numbers<'_>) -> bool {
        member.is_empty()
    }

    fn len(typ: u64, member: &Numbers<'_>) -> usize {
        let count = match member {
            Numbers::Listed(listed) => listed.len(),
            Numbers::Encoded(_) => member.iter().count(),
        };
        count * tlv::element_len(typ, 8)
    }

    fn write(typ: u64, member: &Numbers<'_>, out: &mut Vec<u8>) {
        if !member.is_empty() {
            for number in member.iter() {
                tlv::write_element(out, typ, &number.to_be_bytes());
            }
        }
    }

    fn show(name: &str, member: &Numbers<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        member
            .iter()
            .try_for_each(|number| write!(f, " {name}={number}"))
    }
}

/// See [`ValueKind::Octets`].
pub(super) struct Octets<const LEAST: usize, const MOST: usize>;

impl<const LEAST: usize, const MOST: usize> Kind for Octets<LEAST, MOST> {
    const VALUE: ValueKind = ValueKind::Octets {
        least: LEAST,
        most: MOST,
    };
}

impl<'a, const LEAST: usize, const MOST: usize> Read<'a, Option<&'a [u8]>> for Octets<LEAST, MOST> {
    fn read(
        member: &mut Option<&'a [u8]>,
        element: &Element<'a>,
        _from: &'a [u8],
    ) -> Result<(), DecodeError> {
        if !(LEAST..=MOST).contains(&element.value.len()) {
            return Err(DecodeError::Value(element.typ));
        }
        *member = Some(element.value);
        Ok(())
    }
}

/// See [`ValueKind::Packet`].
pub(super) struct Packet;

impl Kind for Packet {
    const VALUE: ValueKind = ValueKind::Packet;
}

impl<'a> Read<'a, Option<&'a [u8]>> for Packet {
    fn read(
        member: &mut Option<&'a [u8]>,
        element: &Element<'a>,
        _from: &'a [u8],
    ) -> Result<(), DecodeError> {
        *member = Some(element.value);
        Ok(())
    }
}

macro_rules! octets_are_written {
    ($kind:ty $(, $size:ident)*) => {
        impl<B: AsRef<[u8]>, $(const $size: usize),*> Write<Option<B>> for $kind {
            fn is_absent(member: &Option<B>) -> bool {
                member.is_none()
            }

            fn len(typ: u64, member: &Option<B>) -> usize {
                let octets = member.as_ref();
                octets.map_or(0, |octets| tlv::element_len(typ, octets.as_ref().len()))
            }

            fn write(typ: u64, member: &Option<B>, out: &mut Vec<u8>) {
                if let Some(octets) = member {
                    tlv::write_element(out, typ, octets.as_ref());
                }
            }

            fn show(name: &str, member: &Option<B>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Some(octets) = member else { return Ok(()) };
                write!(f, " {name}=")?;
                let mut octets = octets.as_ref().iter();
                octets.try_for_each(|octet| write!(f, "{octet:02x}"))
            }
        }
    };
}

octets_are_written!(Octets<LEAST, MOST>, LEAST, MOST);
octets_are_written!(Packet);

/// See [`ValueKind::Flag`].
pub(super) struct Flag;

impl Kind for Flag {
    const VALUE: ValueKind = ValueKind::Flag;
}

impl<'a> Read<'a, bool> for Flag {
    fn read(member: &mut bool, element: &Element<'a>, _from: &'a [u8]) -> Result<(), DecodeError> {
        *member = element.flag()?;
        Ok(())
    }
}

impl Write<bool> for Flag {
    fn is_absent(member: &bool) -> bool {
        !member
    }

    fn len(typ: u64, member: &bool) -> usize {
        if *member { tlv::element_len(typ, 0) } else { 0 }
    }

    fn write(typ: u64, member: &bool, out: &mut Vec<u8>) {
        if *member {
            tlv::write_header(out, typ, 0);
        }
    }

    fn show(name: &str, member: &bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *member {
            write!(f, " {name}")
        } else {
            Ok(())
        }
    }
}

/// See [`ValueKind::Nested`].
pub(super) struct Nested<T>(PhantomData<T>);

impl<T: Code> Kind for Nested<T> {
    const VALUE: ValueKind = ValueKind::Nested {
        inner: T::INNER,
        required: T::WITHOUT.is_none(),
    };
}

impl<T: Code> Nested<T> {
    fn value_len(value: T) -> usize {
        if T::WITHOUT == Some(value) {
            0
        } else {
            tlv::element_len(T::INNER.0, tlv::integer_len(value.number()))
        }
    }
}

impl<'a, T: Code> Read<'a, Option<T>> for Nested<T> {
    fn read(
        member: &mut Option<T>,
        element: &Element<'a>,
        _from: &'a [u8],
    ) -> Result<(), DecodeError> {
        let mut value = T::WITHOUT;
        tlv::read_ordered(element.value, &[T::INNER.0], |inner| {
            value = Some(T::of(inner.integer()?));
            Ok(())
        })?;
        *member = Some(value.ok_or(DecodeError::Missing(T::INNER.0))?);
        Ok(())
    }
}

impl<T: Code> Write<Option<T>> for Nested<T> {
    fn is_absent(member: &Option<T>) -> bool {
        member.is_none()
    }

    fn len(typ: u64, member: &Option<T>) -> usize {
        member.map_or(0, |value| tlv::element_len(typ, Self::value_len(value)))
    }

    fn write(typ: u64, member: &Option<T>, out: &mut Vec<u8>) {
        let Some(value) = member else { return };
        tlv::write_header(out, typ, Self::value_len(*value));
        if T::WITHOUT != Some(*value) {
            tlv::write_integer_element(out, T::INNER.0, value.number());
        }
    }

    fn show(name: &str, member: &Option<T>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        member.map_or(Ok(()), |value| write!(f, " {name}={value}"))
    }
}

/// Converts members of a header that borrows from a frame to those of an owned one, and back.
pub(super) trait MapFrom<T> {
    fn map_from(member: T) -> Self;
}

impl<T: Copy> MapFrom<&T> for T {
    fn map_from(member: &T) -> T {
        *member
    }
}

impl MapFrom<&Option<&[u8]>> for Option<Bytes> {
    fn map_from(member: &Option<&[u8]>) -> Option<Bytes> {
        member.map(Bytes::copy_from_slice)
    }
}

impl<'a> MapFrom<&'a Option<Bytes>> for Option<&'a [u8]> {
    fn map_from(member: &'a Option<Bytes>) -> Option<&'a [u8]> {
        member.as_deref()
    }
}
