//! The header fields of NDNLPv2, one row each. Decoding, encoding, lengths, the text for people, the
//! property tests and the dissector in `interop/capture` follow from the rows.
//!
//! A new field is one row, at its place in the order of types:
//!
//! ```text
//! /// What the field says; the documentation of the member.
//! PathTag = types::LP_PATH_TAG, header path_tag: Option<B> as Octets<1, 64>, on Data;
//! ```
//!
//! | column | says |
//! |---|---|
//! | name | what NDNLPv2 calls it; the variant of [`Field`] |
//! | type | its TLV-TYPE, a constant of [`crate::types`] |
//! | `link` or `header` | the struct with the member: [`LinkFields`] concern one link, [`HeaderFields`] travel with the packet |
//! | member | its name and type; `B` are octets, borrowed or owned |
//! | `as` | the [`kind`](super::kind) of its value |
//! | `on` | the [`Carrier`] |
//!
//! What a receiver does that does not know the field follows from its type ([`is_ignorable`]). A
//! value that cannot be read makes the frame useless, unless the field is a `link` field that may be
//! ignored: then it is left out and named in [`LpPacket::skipped`], for
//! NDNLPv2 treats the fields of a feature that is disabled as unknown ones.

use core::fmt;

use bytes::Bytes;

use super::LpPacket;
use super::kind::{
    Flag, Integer, Kind, MapFrom, Nested, Number64, Numbers, Numbers64, Octets, Packet, Read,
    ValueKind, Write,
};
use super::value::{CachePolicy, NackReason};
use crate::tlv::{DecodeError, Element};
use crate::types;

/// The network-layer packet that a field belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Any packet, a fragment of one, or none.
    Any,
    /// An Interest.
    Interest,
    /// A Data.
    Data,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Which field.
    pub field: Field,
    /// Its TLV-TYPE.
    pub typ: u64,
    /// Its name in NDNLPv2.
    pub name: &'static str,
    /// The shape of its value.
    pub value: ValueKind,
    /// What it belongs to.
    pub carrier: Carrier,
    /// The member is one of [`LinkFields`].
    pub of_link: bool,
}

impl FieldInfo {
    /// True if receivers that do not know the field leave it alone.
    pub const fn is_ignorable(&self) -> bool {
        is_ignorable(self.typ)
    }

    /// True if a value that cannot be read is left out, and does not make the frame useless.
    pub const fn is_skippable(&self) -> bool {
        self.of_link && self.is_ignorable()
    }

    /// True if a packet may have the field several times.
    pub const fn repeats(&self) -> bool {
        matches!(self.value, ValueKind::Numbers64)
    }
}

/// True for header fields that a receiver that does not know them leaves alone (NDNLPv2: 800 to 959,
/// two lowest bits 0).
pub const fn is_ignorable(typ: u64) -> bool {
    typ >= 800 && typ <= 959 && typ & 3 == 0
}

/// A set of header fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(u64);

impl FieldSet {
    /// True without any field.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if `field` is in it.
    pub const fn contains(self, field: Field) -> bool {
        self.0 >> field as u32 & 1 == 1
    }

    /// Adds a field.
    pub const fn insert(&mut self, field: Field) {
        self.0 |= 1 << field as u32;
    }
}

/// Makes the structs, [`Field`], [`FIELDS`] and all that works on them from the rows.
macro_rules! header_fields {
    // Sorts the rows into those of the link and those of the packet.
    (@sort { $($link:tt)* } { $($header:tt)* }
        { $(#[$doc:meta])* link $member:ident: $ty:ty as $kind:ty } $($rows:tt)*) => {
        header_fields! {
            @sort { $($link)* { $(#[$doc])* $member: $ty as $kind } } { $($header)* } $($rows)*
        }
    };
    (@sort { $($link:tt)* } { $($header:tt)* }
        { $(#[$doc:meta])* header $member:ident: $ty:ty as $kind:ty } $($rows:tt)*) => {
        header_fields! {
            @sort { $($link)* } { $($header)* { $(#[$doc])* $member: $ty as $kind } } $($rows)*
        }
    };
    (@sort
        { $({ $(#[$link_doc:meta])* $link:ident: $link_ty:ty as $link_kind:ty })* }
        { $({ $(#[$doc:meta])* $member:ident: $ty:ty as $kind:ty })* }
    ) => {
        /// The header fields that concern one link: read from a frame, or to be written into one.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LinkFields<'a> {
            $($(#[$link_doc])* pub $link: $link_ty,)*
        }

        /// The header fields that concern the packet rather than the link, and travel with it
        /// through a forwarder. `B` is what octets are: see [`LpHeader`] and [`LpHeaderRef`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct HeaderFields<B> {
            $($(#[$doc])* pub $member: $ty,)*
        }

        impl<B> Default for HeaderFields<B> {
            fn default() -> Self {
                HeaderFields { $($member: Default::default(),)* }
            }
        }

        impl LinkFields<'_> {
            /// True without any field.
            pub fn is_empty(&self) -> bool {
                $(<$link_kind>::is_absent(&self.$link))&&*
            }
        }

        impl<B: AsRef<[u8]>> HeaderFields<B> {
            /// True if a packet with it may go without an NDNLPv2 header.
            pub fn is_empty(&self) -> bool {
                $(<$kind>::is_absent(&self.$member))&&*
            }
        }

        impl LpHeaderRef<'_> {
            /// The same with octets of its own.
            pub fn to_header(&self) -> LpHeader {
                LpHeader { $($member: MapFrom::map_from(&self.$member),)* }
            }
        }

        impl LpHeader {
            /// The same as a view.
            pub fn as_ref(&self) -> LpHeaderRef<'_> {
                LpHeaderRef { $($member: MapFrom::map_from(&self.$member),)* }
            }
        }
    };
    ($(
        $(#[$doc:meta])*
        $name:ident = $typ:path,
        $scope:ident $member:ident: $ty:ty as $kind:ty, on $carrier:ident;
    )*) => {
        header_fields! { @sort {} {} $({ $(#[$doc])* $scope $member: $ty as $kind })* }

        /// The header fields that are known.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Field {
            $($(#[$doc])* $name,)*
        }

        /// All header fields that are known, in the order in which they lie in a frame.
        pub const FIELDS: &[FieldInfo] = &[$(FieldInfo {
            field: Field::$name,
            typ: $typ,
            name: stringify!($name),
            value: <$kind>::VALUE,
            carrier: Carrier::$carrier,
            of_link: Of::$scope,
        },)*];

        /// True for the type of a field that may occur several times.
        pub(super) const fn repeats(typ: u64) -> bool {
            match typ {
                $($typ => Field::$name.info().repeats(),)*
                _ => false,
            }
        }

        impl<'a> LpPacket<'a> {
            /// Reads the field `element` into its member; `from` is the packet from it on.
            #[inline]
            pub(super) fn read(
                &mut self,
                element: &Element<'a>,
                from: &'a [u8],
            ) -> Result<(), DecodeError> {
                match element.typ {
                    $($typ => <$kind>::read(&mut self.$scope.$member, element, from)
                        .or_else(|error| self.skip(Field::$name, error)),)*
                    typ if is_ignorable(typ) => Ok(()),
                    typ => Err(DecodeError::HeaderField(typ)),
                }
            }

            /// Leaves a field out whose value cannot be read, where that is allowed.
            #[cold]
            fn skip(&mut self, field: Field, error: DecodeError) -> Result<(), DecodeError> {
                if !field.info().is_skippable() {
                    return Err(error);
                }
                self.skipped.insert(field);
                Ok(())
            }
        }

        impl<B: AsRef<[u8]>> Both<'_, B> {
            /// Octets of all fields.
            pub(super) fn len(&self) -> usize {
                0 $(+ <$kind>::len($typ, &self.$scope.$member))*
            }

            /// Appends all fields.
            pub(super) fn write(&self, out: &mut Vec<u8>) {
                $(<$kind>::write($typ, &self.$scope.$member, out);)*
            }

            /// Shows all fields that are there, each after a space.
            pub(super) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(<$kind>::show(stringify!($name), &self.$scope.$member, f)?;)*
                Ok(())
            }
        }
    };
}

impl Field {
    /// The field's row.
    pub const fn info(self) -> &'static FieldInfo {
        &FIELDS[self as usize]
    }
}

/// A packet's header to be kept or sent.
pub type LpHeader = HeaderFields<Bytes>;

/// A packet's header where it lies in a frame. Copying it allocates nothing.
pub type LpHeaderRef<'a> = HeaderFields<&'a [u8]>;

/// What is written into a frame's header.
pub(super) struct Both<'a, B> {
    pub(super) link: &'a LinkFields<'a>,
    pub(super) header: &'a HeaderFields<B>,
}

/// The structs' names in the rows, as the column [`FieldInfo::of_link`].
struct Of;

#[allow(non_upper_case_globals, reason = "the rows name structs in lower case")]
impl Of {
    const link: bool = true;
    const header: bool = false;
}

header_fields! {
    /// Numbers frames; a packet in fragments has consecutive ones.
    Sequence = types::LP_SEQUENCE, link sequence: Option<u64> as Number64, on Any;
    /// Which fragment of its packet the frame carries, from 0, which it may leave out.
    FragIndex = types::LP_FRAG_INDEX, link frag_index: Option<u64> as Integer, on Any;
    /// How many fragments the packet has; 1 may be left out.
    FragCount = types::LP_FRAG_COUNT, link frag_count: Option<u64> as Integer, on Any;
    /// PitToken: opaque octets of an Interest that come back with what answers it.
    PitToken = types::LP_PIT_TOKEN, header pit_token: Option<B> as Octets<1, 32>, on Any;
    /// The packet is an Interest that cannot be answered, and why.
    Nack = types::LP_NACK, header nack: Option<NackReason> as Nested<NackReason>, on Interest;
    /// IncomingFaceId: towards a local program only.
    IncomingFaceId = types::LP_INCOMING_FACE_ID, header incoming_face_id: Option<u64> as Integer, on Any;
    /// NextHopFaceId: from a local program only.
    NextHopFaceId = types::LP_NEXT_HOP_FACE_ID, header next_hop_face_id: Option<u64> as Integer, on Interest;
    /// CachePolicy: what a content store may do with the Data.
    CachePolicy = types::LP_CACHE_POLICY, header cache_policy: Option<CachePolicy> as Nested<CachePolicy>, on Data;
    /// CongestionMark; 1 from here.
    CongestionMark = types::LP_CONGESTION_MARK, header congestion_mark: Option<u64> as Integer, on Any;
    /// Ack: the TxSequence of each frame that is acknowledged.
    Ack = types::LP_ACK, link acks: Numbers<'a> as Numbers64, on Any;
    /// TxSequence: numbers transmissions, for the peer to acknowledge.
    TxSequence = types::LP_TX_SEQUENCE, link tx_sequence: Option<u64> as Number64, on Any;
    /// NonDiscovery.
    NonDiscovery = types::LP_NON_DISCOVERY, header non_discovery: bool as Flag, on Interest;
    /// PrefixAnnouncement: a whole Data packet.
    PrefixAnnouncement = types::LP_PREFIX_ANNOUNCEMENT, header prefix_announcement: Option<B> as Packet, on Data;
    /// The announcement of the adaptive profile of link reliability, which only Whimbrel knows.
    AdaptiveHello = types::LP_ADAPTIVE_HELLO, link adaptive_hello: Option<&'a [u8]> as Octets<0, 255>, on Any;
}

const _: () = {
    assert!(FIELDS.len() <= 64, "a FieldSet has 64 bits");
    let mut row = 1;
    while row < FIELDS.len() {
        assert!(
            FIELDS[row - 1].typ < FIELDS[row].typ,
            "rows are in the order of types"
        );
        row += 1;
    }
};
