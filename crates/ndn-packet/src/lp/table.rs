//! The header fields of NDNLPv2, one row each. Decoding, encoding, lengths, the text for people,
//! the property tests and the dissector in `interop/capture` are generated from the rows.
//!
//! A new field is one row, at its place in the order of types:
//!
//! ```text
//! /// The meaning of the field; the documentation of the member.
//! PathTag = types::LP_PATH_TAG, header path_tag: Option<B> as Octets<1, 64>, on Data;
//! ```
//!
//! | column | meaning |
//! |---|---|
//! | name | its name in NDNLPv2; the variant of [`Field`] |
//! | type | its TLV-TYPE, a constant of [`crate::types`] |
//! | `link` or `header` | the struct with the member: [`LinkFields`] belong to one link, [`HeaderFields`] travel with the packet |
//! | member | its name and type; `B` are octets, borrowed or owned |
//! | `as` | the [`kind`](super::kind) of its value |
//! | `on` | the [`Carrier`] |
//!
//! The type says how a receiver treats an unknown field ([`is_ignorable`]). An invalid value makes
//! the frame useless, unless the field is a `link` field that may be ignored: then it is skipped
//! and named in [`LpPacket::skipped`], because NDNLPv2 treats the fields of a disabled feature as
//! unknown ones.

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
    /// The field.
    pub field: Field,
    /// Its TLV-TYPE.
    pub typ: u64,
    /// Its name in NDNLPv2.
    pub name: &'static str,
    /// The shape of its value.
    pub value: ValueKind,
    /// The packets that may carry it.
    pub carrier: Carrier,
    /// The member is one of [`LinkFields`].
    pub of_link: bool,
}

impl FieldInfo {
    /// Returns true if receivers without support for the field ignore it.
    pub const fn is_ignorable(&self) -> bool {
        is_ignorable(self.typ)
    }

    /// Returns true if an invalid value is skipped, and does not make the frame useless.
    pub const fn is_skippable(&self) -> bool {
        self.of_link && self.is_ignorable()
    }

    /// Returns true if a packet may have the field several times.
    pub const fn repeats(&self) -> bool {
        matches!(self.value, ValueKind::Numbers64)
    }
}

/// Returns true for header fields that receivers without support ignore (NDNLPv2: 800 to 959, two
/// lowest bits 0).
pub const fn is_ignorable(typ: u64) -> bool {
    typ >= 800 && typ <= 959 && typ & 3 == 0
}

/// A set of header fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(u64);

impl FieldSet {
    /// Returns true if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if the set has `field`.
    pub const fn contains(self, field: Field) -> bool {
        self.0 >> field as u32 & 1 == 1
    }

    /// Adds a field.
    pub const fn insert(&mut self, field: Field) {
        self.0 |= 1 << field as u32;
    }
}

/// Generates the structs, [`Field`], [`FIELDS`] and their code from the rows.
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
        /// The header fields that belong to one link: decoded from a frame, or to encode into one.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LinkFields<'a> {
            $($(#[$link_doc])* pub $link: $link_ty,)*
        }

        /// The header fields that belong to the packet rather than the link, and travel with it
        /// through a forwarder. `B` is the type of octets: see [`LpHeader`] and [`LpHeaderRef`].
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
            /// Returns true if the packet needs no NDNLPv2 header.
            pub fn is_empty(&self) -> bool {
                $(<$kind>::is_absent(&self.$member))&&*
            }
        }

        impl LpHeaderRef<'_> {
            /// Returns an owned copy.
            pub fn to_header(&self) -> LpHeader {
                LpHeader { $($member: MapFrom::map_from(&self.$member),)* }
            }
        }

        impl LpHeader {
            /// Returns a view.
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

        /// The known header fields.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Field {
            $($(#[$doc])* $name,)*
        }

        /// All known header fields, in their order within a frame.
        pub const FIELDS: &[FieldInfo] = &[$(FieldInfo {
            field: Field::$name,
            typ: $typ,
            name: stringify!($name),
            value: <$kind>::VALUE,
            carrier: Carrier::$carrier,
            of_link: Of::$scope,
        },)*];

        /// Returns true for the type of a field that may occur several times.
        pub(super) const fn repeats(typ: u64) -> bool {
            match typ {
                $($typ => Field::$name.info().repeats(),)*
                _ => false,
            }
        }

        impl<'a> LpPacket<'a> {
            /// Decodes the field `element` into its member; `from` is the packet from it on.
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

            /// Skips a field with an invalid value, if that is allowed.
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

            /// Shows all present fields, each after a space.
            pub(super) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(<$kind>::show(stringify!($name), &self.$scope.$member, f)?;)*
                Ok(())
            }
        }
    };
}

impl Field {
    /// Returns the field's row.
    pub const fn info(self) -> &'static FieldInfo {
        &FIELDS[self as usize]
    }
}

/// An owned header.
pub type LpHeader = HeaderFields<Bytes>;

/// A borrowed header. Copying it allocates nothing.
pub type LpHeaderRef<'a> = HeaderFields<&'a [u8]>;

/// The complete header of a frame to encode.
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
    /// Frame number; the fragments of a packet have consecutive ones.
    Sequence = types::LP_SEQUENCE, link sequence: Option<u64> as Number64, on Any;
    /// Index of the fragment, from 0, which may be omitted.
    FragIndex = types::LP_FRAG_INDEX, link frag_index: Option<u64> as Integer, on Any;
    /// Number of the packet's fragments; 1 may be omitted.
    FragCount = types::LP_FRAG_COUNT, link frag_count: Option<u64> as Integer, on Any;
    /// PitToken: opaque octets of an Interest, returned with its Data or Nack.
    PitToken = types::LP_PIT_TOKEN, header pit_token: Option<B> as Octets<1, 32>, on Any;
    /// The packet is an Interest that cannot be answered, with the reason.
    Nack = types::LP_NACK, header nack: Option<NackReason> as Nested<NackReason>, on Interest;
    /// IncomingFaceId: towards a local program only.
    IncomingFaceId = types::LP_INCOMING_FACE_ID, header incoming_face_id: Option<u64> as Integer, on Any;
    /// NextHopFaceId: from a local program only.
    NextHopFaceId = types::LP_NEXT_HOP_FACE_ID, header next_hop_face_id: Option<u64> as Integer, on Interest;
    /// CachePolicy: whether a content store may keep the Data.
    CachePolicy = types::LP_CACHE_POLICY, header cache_policy: Option<CachePolicy> as Nested<CachePolicy>, on Data;
    /// CongestionMark; Whimbrel sends 1.
    CongestionMark = types::LP_CONGESTION_MARK, header congestion_mark: Option<u64> as Integer, on Any;
    /// Ack: the TxSequence of each acknowledged frame.
    Ack = types::LP_ACK, link acks: Numbers<'a> as Numbers64, on Any;
    /// TxSequence: numbers transmissions, for the peer to acknowledge.
    TxSequence = types::LP_TX_SEQUENCE, link tx_sequence: Option<u64> as Number64, on Any;
    /// NonDiscovery.
    NonDiscovery = types::LP_NON_DISCOVERY, header non_discovery: bool as Flag, on Interest;
    /// PrefixAnnouncement: a whole Data packet.
    PrefixAnnouncement = types::LP_PREFIX_ANNOUNCEMENT, header prefix_announcement: Option<B> as Packet, on Data;
    /// The route of a Data, changed by each router whose strategy labels routes; specific to
    /// Whimbrel ("Data packets to record the routing information", [PTP §7-A]).
    RouteLabel = types::LP_ROUTE_LABEL, header route_label: Option<u64> as Integer, on Data;
    /// The labels of a path, the next router's first: on an Interest those left to follow, on a
    /// Data those recorded. Specific to Whimbrel ([PTP §4-A]).
    PathTag = types::LP_PATH_TAG, header path_tag: Option<B> as Octets<0, 252>, on Any;
    /// The Interest is to go past caches and bring back a PathTag, specific to Whimbrel ([PTP
    /// §4-A]).
    PathDiscovery = types::LP_PATH_DISCOVERY, header path_discovery: bool as Flag, on Interest;
    /// The Data comes from a cache, or from the Interest of another consumer, specific to Whimbrel
    /// ("the router labels the Data packet using a 1-bit flag", [PTP §5-D]).
    Intermediate = types::LP_INTERMEDIATE, header intermediate: bool as Flag, on Data;
    /// A question about what arrives on the link, padded to the size in question; specific to
    /// Whimbrel.
    PathProbe = types::LP_PATH_PROBE, link path_probe: Option<&'a [u8]> as Octets<4, 65_507>, on Any;
    /// The answer to a PathProbe, specific to Whimbrel.
    PathAnswer = types::LP_PATH_ANSWER, link path_answer: Option<&'a [u8]> as Octets<12, 255>, on Any;
    /// The announcement of the adaptive profile of link reliability, specific to Whimbrel.
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
