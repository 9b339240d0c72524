//! Decoding of the management protocol's containers.

use core::time::Duration;

use whimbrel_ndn_packet::{DecodeError, Name, tlv, types as ndn};

/// The elements of one container, found by type.
///
/// Clients do not agree on an order (python-ndn writes `Flags` after `Mtu`, ndn-cxx before), and
/// newer peers add elements: the first of each type is used, whatever its position, and unknown
/// types are skipped, as in ndn-cxx.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    value: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Checks that the elements within `value` are whole.
    pub(crate) fn new(value: &'a [u8]) -> Result<Fields<'a>, DecodeError> {
        let mut reader = tlv::Reader::new(value);
        while reader.element()?.is_some() {}
        Ok(Fields { value })
    }

    /// Returns the elements of `bytes`, which must be one container of type `typ`.
    pub(crate) fn of(bytes: &'a [u8], typ: u64) -> Result<Fields<'a>, DecodeError> {
        let outer = tlv::outermost(bytes)?;
        if outer.typ == typ {
            Fields::new(outer.value)
        } else {
            Err(DecodeError::WrongType(outer.typ))
        }
    }

    /// Returns all elements of a type.
    pub(crate) fn all(&self, typ: u64) -> impl Iterator<Item = tlv::Element<'a>> + use<'a> {
        let mut reader = tlv::Reader::new(self.value);
        core::iter::from_fn(move || reader.element().ok().flatten())
            .filter(move |element| element.typ == typ)
    }

    fn first(&self, typ: u64) -> Option<tlv::Element<'a>> {
        self.all(typ).next()
    }

    pub(crate) fn integer(&self, typ: u64) -> Result<Option<u64>, DecodeError> {
        self.first(typ).map(|element| element.integer()).transpose()
    }

    pub(crate) fn required_integer(&self, typ: u64) -> Result<u64, DecodeError> {
        self.integer(typ)?.ok_or(DecodeError::Missing(typ))
    }

    pub(crate) fn text(&self, typ: u64) -> Result<Option<String>, DecodeError> {
        let Some(element) = self.first(typ) else {
            return Ok(None);
        };
        let text = core::str::from_utf8(element.value).map_err(|_| DecodeError::Value(typ))?;
        Ok(Some(text.to_owned()))
    }

    pub(crate) fn required_text(&self, typ: u64) -> Result<String, DecodeError> {
        self.text(typ)?.ok_or(DecodeError::Missing(typ))
    }

    pub(crate) fn name(&self) -> Result<Option<Name>, DecodeError> {
        let Some(element) = self.first(ndn::NAME) else {
            return Ok(None);
        };
        whimbrel_ndn_packet::NameRef::from_value(element.value).map(|name| Some(name.to_name()))
    }

    pub(crate) fn required_name(&self) -> Result<Name, DecodeError> {
        self.name()?.ok_or(DecodeError::Missing(ndn::NAME))
    }

    /// Returns a name within an element of its own, as in `Strategy`.
    pub(crate) fn nested_name(&self, typ: u64) -> Result<Option<Name>, DecodeError> {
        let Some(element) = self.first(typ) else {
            return Ok(None);
        };
        Fields::new(element.value)?.required_name().map(Some)
    }

    /// Milliseconds.
    pub(crate) fn millis(&self, typ: u64) -> Result<Option<Duration>, DecodeError> {
        Ok(self.integer(typ)?.map(Duration::from_millis))
    }

    /// Nanoseconds.
    pub(crate) fn nanos(&self, typ: u64) -> Result<Option<Duration>, DecodeError> {
        Ok(self.integer(typ)?.map(Duration::from_nanos))
    }

    /// Returns an enumerated number.
    pub(crate) fn code<T>(
        &self,
        typ: u64,
        known: impl FnOnce(u64) -> Option<T>,
    ) -> Result<Option<T>, DecodeError> {
        let Some(number) = self.integer(typ)? else {
            return Ok(None);
        };
        known(number).map(Some).ok_or(DecodeError::Value(typ))
    }

    pub(crate) fn required_code<T>(
        &self,
        typ: u64,
        known: impl FnOnce(u64) -> Option<T>,
    ) -> Result<T, DecodeError> {
        self.code(typ, known)?.ok_or(DecodeError::Missing(typ))
    }
}

pub(crate) fn write_optional(out: &mut Vec<u8>, typ: u64, number: Option<u64>) {
    if let Some(number) = number {
        tlv::write_integer_element(out, typ, number);
    }
}

pub(crate) fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn whole_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
