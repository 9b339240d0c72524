//! Type-length-value elements.

use crate::name::NameRef;
use crate::types;

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It ends within an element.
    #[error("the packet ends within the element of type {0:#x}")]
    Truncated(u64),
    /// Bytes follow after the end of the packet.
    #[error("bytes follow after the end of the packet")]
    Trailing,
    /// A TLV-TYPE or TLV-LENGTH that is not in its shortest form, or a type of 0 or beyond 2^32 -
    /// 1.
    #[error("a type or length is not in its shortest form or out of range")]
    VarNumber,
    /// Not the kind of packet that was expected.
    #[error("the outermost type is {0:#x}")]
    WrongType(u64),
    /// A required element is missing.
    #[error("the element of type {0:#x} is missing")]
    Missing(u64),
    /// A critical element that is unknown, repeated or out of order.
    #[error("the critical element of type {0:#x} is unknown, repeated or out of order")]
    Critical(u64),
    /// A value of an invalid size or content.
    #[error("the value of the element of type {0:#x} is invalid")]
    Value(u64),
    /// An NDNLPv2 header field that is neither known nor ignorable, is repeated or out of order.
    #[error("the link header field of type {0:#x} is unknown, repeated or out of order")]
    HeaderField(u64),
}

/// Returns true if a receiver without support for this type must refuse the packet (packet format
/// v0.3, "evolvability").
pub const fn is_critical(typ: u64) -> bool {
    typ < 32 || typ & 1 == 1
}

/// One element: its type, its value, and the whole of it within the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// TLV-TYPE, 1 to 2^32 - 1.
    pub typ: u64,
    /// TLV-VALUE.
    pub value: &'a [u8],
    /// Type, length and value.
    pub whole: &'a [u8],
}

/// Reads elements one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Returns the unread octets.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True at the end.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the type of the next element without reading it; `None` at the end.
    pub fn peek_type(&self) -> Result<Option<u64>, DecodeError> {
        if self.rest.is_empty() {
            Ok(None)
        } else {
            read_type(self.rest).map(|(typ, _)| Some(typ))
        }
    }

    /// The next element; `None` at the end.
    #[inline]
    pub fn element(&mut self) -> Result<Option<Element<'a>>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        // Nearly all elements have one octet of type and one of length.
        if let [typ @ 1..=0xfc, length @ 0..=0xfc, ..] = *self.rest {
            let end = 2 + length as usize;
            let whole = self
                .rest
                .get(..end)
                .ok_or(DecodeError::Truncated(u64::from(typ)))?;
            let value = whole.get(2..).unwrap_or_default();
            self.rest = self.rest.get(end..).unwrap_or_default();
            return Ok(Some(Element {
                typ: u64::from(typ),
                value,
                whole,
            }));
        }
        self.long_element().map(Some)
    }

    fn long_element(&mut self) -> Result<Element<'a>, DecodeError> {
        let (typ, type_len) = read_type(self.rest)?;
        let after_type = self.rest.get(type_len..).unwrap_or_default();
        let (length, length_len) = read_var(after_type)?.ok_or(DecodeError::Truncated(typ))?;
        let start = type_len + length_len;
        let end = usize::try_from(length)
            .ok()
            .and_then(|length| start.checked_add(length))
            .ok_or(DecodeError::Truncated(typ))?;
        let whole = self.rest.get(..end).ok_or(DecodeError::Truncated(typ))?;
        let value = whole.get(start..).unwrap_or_default();
        self.rest = self.rest.get(end..).unwrap_or_default();
        Ok(Element { typ, value, whole })
    }

    /// The next element, which must be of this type.
    #[inline]
    pub fn expect(&mut self, typ: u64) -> Result<Element<'a>, DecodeError> {
        // Most types have one octet.
        if typ < 0xfd && self.rest.first().map(|first| u64::from(*first)) == Some(typ) {
            return self.element()?.ok_or(DecodeError::Missing(typ));
        }
        match self.peek_type()? {
            Some(found) if found == typ => self.element()?.ok_or(DecodeError::Missing(typ)),
            _ => Err(DecodeError::Missing(typ)),
        }
    }

    /// Reads the next element if it is of this type. Only [`Reader::skip_unknown`] skips unknown
    /// ignorable elements before it.
    pub fn optional(&mut self, typ: u64) -> Result<Option<Element<'a>>, DecodeError> {
        match self.peek_type()? {
            Some(found) if found == typ => self.element(),
            _ => Ok(None),
        }
    }

    /// Skips the rest; a critical element in it is an error.
    pub fn skip_unknown(&mut self) -> Result<(), DecodeError> {
        while let Some(element) = self.element()? {
            if is_critical(element.typ) {
                return Err(DecodeError::Critical(element.typ));
            }
        }
        Ok(())
    }
}

/// Reads the name that an Interest or Data begins with; returns it and the rest. "Unrecognized
/// non-critical TLV elements may appear in the packet. However, they must not appear before the
/// Name element." `checked` is not decoded again if it is the one at this place in memory.
pub fn name_first<'a>(
    value: &'a [u8],
    checked: NameRef<'a>,
) -> Result<(NameRef<'a>, &'a [u8]), DecodeError> {
    let mut reader = Reader::new(value);
    let name = reader.expect(types::NAME)?.value;
    let name = if core::ptr::eq(name, checked.value()) {
        checked
    } else {
        NameRef::from_value(name)?
    };
    Ok((name, reader.rest()))
}

/// Reads the elements of a fixed grammar: each at most once, in the order of `order`; unknown and
/// misplaced elements are ignored if they are not critical. Calls `found` for each element in its
/// place.
pub fn read_ordered<'a>(
    value: &'a [u8],
    order: &[u64],
    mut found: impl FnMut(Element<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(value);
    let mut next = 0;
    while let Some(element) = reader.element()? {
        let ahead = order.get(next..).unwrap_or_default();
        match ahead.iter().position(|typ| *typ == element.typ) {
            Some(skipped) => {
                next += skipped + 1;
                found(element)?;
            }
            None if is_critical(element.typ) => return Err(DecodeError::Critical(element.typ)),
            None => {}
        }
    }
    Ok(())
}

/// Returns the single outermost element of a packet.
pub fn outermost(packet: &[u8]) -> Result<Element<'_>, DecodeError> {
    let mut reader = Reader::new(packet);
    let element = reader.element()?.ok_or(DecodeError::Truncated(0))?;
    if reader.is_empty() {
        Ok(element)
    } else {
        Err(DecodeError::Trailing)
    }
}

fn read_type(bytes: &[u8]) -> Result<(u64, usize), DecodeError> {
    let (typ, len) = read_var(bytes)?.ok_or(DecodeError::Truncated(0))?;
    if typ == 0 || typ > u64::from(u32::MAX) {
        Err(DecodeError::VarNumber)
    } else {
        Ok((typ, len))
    }
}

/// Reads a variable-size number; returns it and its length in octets, `None` if the bytes end
/// within it.
pub fn read_var(bytes: &[u8]) -> Result<Option<(u64, usize)>, DecodeError> {
    let (number, len, least) = match bytes {
        [] => return Ok(None),
        [0xfd, rest @ ..] => match rest.first_chunk::<2>() {
            Some(octets) => (u64::from(u16::from_be_bytes(*octets)), 3, 0xfd),
            None => return Ok(None),
        },
        [0xfe, rest @ ..] => match rest.first_chunk::<4>() {
            Some(octets) => (u64::from(u32::from_be_bytes(*octets)), 5, 1 << 16),
            None => return Ok(None),
        },
        [0xff, rest @ ..] => match rest.first_chunk::<8>() {
            Some(octets) => (u64::from_be_bytes(*octets), 9, 1 << 32),
            None => return Ok(None),
        },
        [small, ..] => (u64::from(*small), 1, 0),
    };
    if number < least {
        Err(DecodeError::VarNumber)
    } else {
        Ok(Some((number, len)))
    }
}

/// Octets of a variable-size number.
pub const fn var_len(number: u64) -> usize {
    match number {
        0..=0xfc => 1,
        0xfd..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

/// Octets of an element with a value of this length.
pub const fn element_len(typ: u64, value_len: usize) -> usize {
    var_len(typ) + var_len(value_len as u64) + value_len
}

/// Appends a variable-size number.
pub fn write_var(out: &mut Vec<u8>, number: u64) {
    match number {
        0..=0xfc => out.push(number as u8),
        0xfd..=0xffff => {
            out.push(0xfd);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xfe);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(0xff);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// Appends the type and length of an element whose value follows.
pub fn write_header(out: &mut Vec<u8>, typ: u64, value_len: usize) {
    write_var(out, typ);
    write_var(out, value_len as u64);
}

/// Appends an element.
pub fn write_element(out: &mut Vec<u8>, typ: u64, value: &[u8]) {
    write_header(out, typ, value.len());
    out.extend_from_slice(value);
}

/// Appends an element whose value `value` writes.
pub fn write_nested(out: &mut Vec<u8>, typ: u64, value: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    value(&mut inner);
    write_element(out, typ, &inner);
}

/// Octets of a non-negative integer.
pub const fn integer_len(number: u64) -> usize {
    match number {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// Appends the octets of a non-negative integer, as few as possible.
pub fn write_integer(out: &mut Vec<u8>, number: u64) {
    let octets = number.to_be_bytes();
    out.extend_from_slice(octets.get(8 - integer_len(number)..).unwrap_or_default());
}

/// Appends an element that holds a non-negative integer.
pub fn write_integer_element(out: &mut Vec<u8>, typ: u64, number: u64) {
    write_header(out, typ, integer_len(number));
    write_integer(out, number);
}

/// Reads a non-negative integer of 1, 2, 4 or 8 octets. Accepts longer forms than necessary: the
/// specification requires the shortest one only of the sender.
pub fn read_integer(value: &[u8]) -> Option<u64> {
    Some(match value.len() {
        1 => u64::from(*value.first()?),
        2 => u64::from(u16::from_be_bytes(value.try_into().ok()?)),
        4 => u64::from(u32::from_be_bytes(value.try_into().ok()?)),
        8 => u64::from_be_bytes(value.try_into().ok()?),
        _ => return None,
    })
}

impl Element<'_> {
    /// Returns the value as a non-negative integer.
    pub fn integer(&self) -> Result<u64, DecodeError> {
        read_integer(self.value).ok_or(DecodeError::Value(self.typ))
    }

    /// Fails unless the value is empty.
    pub fn flag(&self) -> Result<bool, DecodeError> {
        if self.value.is_empty() {
            Ok(true)
        } else {
            Err(DecodeError::Value(self.typ))
        }
    }
}

/// Octets of the type and length of a packet.
pub fn header_len(packet: &[u8]) -> Option<usize> {
    let (_, type_len) = read_var(packet).ok()??;
    let (_, length_len) = read_var(packet.get(type_len..)?).ok()??;
    Some(type_len + length_len)
}

/// Returns true if the type may be that of a name component: 1 to 65535.
pub const fn is_component_type(typ: u64) -> bool {
    typ >= types::IMPLICIT_SHA256_DIGEST && typ <= 0xffff
}
