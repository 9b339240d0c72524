//! NDNLPv2: the header of a packet or a fragment on a link.
//!
//! | module | holds |
//! |---|---|
//! | [`table`] | the header fields, one row each, and the code generated from them |
//! | [`kind`] | the kinds of field values |
//! | [`tag`] | the labels in a PathTag |
//! | `value` | [`NackReason`] and [`CachePolicy`] |

pub mod kind;
pub mod table;
pub mod tag;
mod value;

use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::tlv::{self, DecodeError, Reader};
use crate::types;

pub use kind::{Numbers, ValueKind};
pub use table::{
    Carrier, FIELDS, Field, FieldInfo, FieldSet, HeaderFields, LinkFields, LpHeader, LpHeaderRef,
    is_ignorable,
};
pub use tag::{Label, Tag};
pub use value::{CachePolicy, NackReason};

use table::{Both, repeats};

/// A checked view of an NDNLPv2 packet. A bare Interest or Data is one without header fields.
///
/// The fields of [`LpPacket::header`] are accessible without it: `packet.nack`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LpPacket<'a> {
    /// The fields of the link.
    pub link: LinkFields<'a>,
    /// The fields of the packet.
    pub header: LpHeaderRef<'a>,
    /// The packet or fragment; `None` if the frame is only a header (IDLE).
    pub fragment: Option<&'a [u8]>,
    /// Skipped link fields, whose values are invalid. A link that uses such a field should drop the
    /// frame.
    pub skipped: FieldSet,
    /// The encoded header fields, for [`LpPacket::fields`].
    octets: &'a [u8],
}

impl<'a> Deref for LpPacket<'a> {
    type Target = LpHeaderRef<'a>;

    fn deref(&self) -> &LpHeaderRef<'a> {
        &self.header
    }
}

impl DerefMut for LpPacket<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.header
    }
}

impl<'a> LpPacket<'a> {
    /// Returns a whole network-layer packet without header fields.
    #[inline]
    pub fn bare(packet: &'a [u8]) -> LpPacket<'a> {
        LpPacket {
            fragment: Some(packet),
            ..LpPacket::default()
        }
    }

    /// Decodes a received frame: an LpPacket, or a bare Interest or Data. Octets after the packet
    /// are an error, except zeros if `padding_allowed`: Ethernet pads short frames.
    pub fn decode(frame: &'a [u8], padding_allowed: bool) -> Result<LpPacket<'a>, DecodeError> {
        let mut reader = Reader::new(frame);
        let outer = reader.element()?.ok_or(DecodeError::Truncated(0))?;
        let is_padding = || padding_allowed && reader.rest().iter().all(|octet| *octet == 0);
        if !reader.is_empty() && !is_padding() {
            return Err(DecodeError::Trailing);
        }
        match outer.typ {
            types::INTEREST | types::DATA => Ok(LpPacket::bare(outer.whole)),
            types::LP_PACKET => {
                let mut packet = LpPacket::default();
                packet.read_fields(outer.value)?;
                Ok(packet)
            }
            typ => Err(DecodeError::WrongType(typ)),
        }
    }

    fn read_fields(&mut self, value: &'a [u8]) -> Result<(), DecodeError> {
        self.octets = value;
        let mut reader = Reader::new(value);
        let mut last = 0;
        loop {
            let from = reader.rest();
            let Some(element) = reader.element()? else {
                break;
            };
            if element.typ == types::LP_FRAGMENT {
                if !reader.is_empty() {
                    return Err(DecodeError::HeaderField(types::LP_FRAGMENT));
                }
                self.octets = value.get(..value.len() - from.len()).unwrap_or_default();
                // An empty fragment counts as none (NFD sends none).
                self.fragment = Some(element.value).filter(|fragment| !fragment.is_empty());
                break;
            }
            let in_order = element.typ > last || (element.typ == last && repeats(last));
            if !in_order {
                return Err(DecodeError::HeaderField(element.typ));
            }
            last = element.typ;
            self.read(&element, from)?;
        }
        match self.place() {
            (index, count) if index < count => Ok(()),
            _ => Err(DecodeError::Value(types::LP_FRAG_INDEX)),
        }
    }

    /// Returns the index and count of fragments: `(0, 1)` is a whole packet.
    pub fn place(&self) -> (u64, u64) {
        let LinkFields {
            frag_index,
            frag_count,
            ..
        } = self.link;
        (frag_index.unwrap_or(0), frag_count.unwrap_or(1))
    }

    /// Returns true if this is one of several fragments.
    pub fn is_fragment(&self) -> bool {
        self.place().1 > 1
    }

    /// Returns all header fields, known and unknown, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (u64, &'a [u8])> {
        let mut reader = Reader::new(self.octets);
        core::iter::from_fn(move || reader.element().ok()?.map(|field| (field.typ, field.value)))
    }
}

impl fmt::Display for LpPacket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LpPacket")?;
        let (link, header) = (&self.link, &self.header);
        Both { link, header }.show(f)?;
        match self.fragment {
            Some(fragment) => write!(f, " Fragment={} octets", fragment.len()),
            None => Ok(()),
        }
    }
}

/// Octets of the header fields.
pub fn fields_len<B: AsRef<[u8]>>(link: &LinkFields<'_>, header: &HeaderFields<B>) -> usize {
    Both { link, header }.len()
}

/// Appends an LpPacket; `payload` is a packet or a fragment, `None` makes an IDLE packet.
pub fn encode<B: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    link: &LinkFields<'_>,
    header: &HeaderFields<B>,
    payload: Option<&[u8]>,
) {
    let fields = Both { link, header };
    let payload_len = payload.map_or(0, |payload| {
        tlv::element_len(types::LP_FRAGMENT, payload.len())
    });
    tlv::write_header(out, types::LP_PACKET, fields.len() + payload_len);
    fields.write(out);
    if let Some(payload) = payload {
        tlv::write_element(out, types::LP_FRAGMENT, payload);
    }
}
