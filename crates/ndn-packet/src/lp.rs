//! NDNLPv2: the header that a packet or a fragment of one has on a link.

use bytes::Bytes;

use crate::tlv::{self, DecodeError, Reader};
use crate::types;

/// Why an Interest cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NackReason {
    /// It does not say.
    None,
    /// The link is congested.
    Congestion,
    /// The same Interest came already, by another way.
    Duplicate,
    /// There is no next hop.
    NoRoute,
    /// Any other number.
    Other(u64),
}

impl NackReason {
    /// The number on the wire.
    pub const fn code(self) -> u64 {
        match self {
            NackReason::None => 0,
            NackReason::Congestion => 50,
            NackReason::Duplicate => 100,
            NackReason::NoRoute => 150,
            NackReason::Other(code) => code,
        }
    }

    /// From the number on the wire.
    pub const fn from_code(code: u64) -> NackReason {
        match code {
            0 => NackReason::None,
            50 => NackReason::Congestion,
            100 => NackReason::Duplicate,
            150 => NackReason::NoRoute,
            code => NackReason::Other(code),
        }
    }
}

/// What a content store may do with a Data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// Not keep it.
    NoCache,
    /// Any other number, without meaning here.
    Other(u64),
}

impl CachePolicy {
    const fn code(self) -> u64 {
        match self {
            CachePolicy::NoCache => 1,
            CachePolicy::Other(code) => code,
        }
    }
}

/// The header fields that concern the packet rather than the link, and travel with it through a
/// forwarder.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LpHeader {
    /// PitToken of 1 to 32 octets.
    pub pit_token: Option<Bytes>,
    /// The packet is an Interest that cannot be answered.
    pub nack: Option<NackReason>,
    /// IncomingFaceId: towards a local program only.
    pub incoming_face_id: Option<u64>,
    /// NextHopFaceId: from a local program only.
    pub next_hop_face_id: Option<u64>,
    /// CachePolicy.
    pub cache_policy: Option<CachePolicy>,
    /// CongestionMark; 1 from here.
    pub congestion_mark: Option<u64>,
    /// NonDiscovery.
    pub non_discovery: bool,
    /// PrefixAnnouncement: a whole Data packet.
    pub prefix_announcement: Option<Bytes>,
}

impl LpHeader {
    /// True if a packet with it may go without an NDNLPv2 header.
    pub fn is_empty(&self) -> bool {
        self.pit_token.is_none()
            && self.nack.is_none()
            && self.incoming_face_id.is_none()
            && self.next_hop_face_id.is_none()
            && self.cache_policy.is_none()
            && self.congestion_mark.is_none()
            && !self.non_discovery
            && self.prefix_announcement.is_none()
    }
}

/// An NDNLPv2 packet where it lies, checked. A bare Interest or Data is one without header fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct LpPacket<'a> {
    /// Sequence: of 8 octets.
    pub sequence: Option<u64>,
    /// FragIndex; 0 where it is missing.
    pub frag_index: u64,
    /// FragCount; 1 where it is missing.
    pub frag_count: u64,
    /// PitToken.
    pub pit_token: Option<&'a [u8]>,
    /// The packet is a Nack, and why.
    pub nack: Option<NackReason>,
    /// IncomingFaceId.
    pub incoming_face_id: Option<u64>,
    /// NextHopFaceId.
    pub next_hop_face_id: Option<u64>,
    /// CachePolicy.
    pub cache_policy: Option<CachePolicy>,
    /// CongestionMark.
    pub congestion_mark: Option<u64>,
    /// TxSequence: of 8 octets.
    pub tx_sequence: Option<u64>,
    /// NonDiscovery.
    pub non_discovery: bool,
    /// PrefixAnnouncement: a whole Data packet.
    pub prefix_announcement: Option<&'a [u8]>,
    /// The packet or fragment; `None` if it is only a header (IDLE).
    pub fragment: Option<&'a [u8]>,
    /// All header fields as they lie in the packet, for [`LpPacket::fields`].
    header: &'a [u8],
}

impl<'a> LpPacket<'a> {
    /// A frame as it came: an LpPacket, or a bare Interest or Data. Octets after the packet are an
    /// error, except zeros (`padding_allowed`): Ethernet pads short frames.
    pub fn decode(frame: &'a [u8], padding_allowed: bool) -> Result<LpPacket<'a>, DecodeError> {
        let mut reader = Reader::new(frame);
        let outer = reader.element()?.ok_or(DecodeError::Truncated(0))?;
        let is_padding = || padding_allowed && reader.rest().iter().all(|octet| *octet == 0);
        if !reader.is_empty() && !is_padding() {
            return Err(DecodeError::Trailing);
        }
        match outer.typ {
            types::INTEREST | types::DATA => Ok(LpPacket {
                frag_count: 1,
                fragment: Some(outer.whole),
                ..LpPacket::default()
            }),
            types::LP_PACKET => LpPacket::decode_fields(outer.value),
            typ => Err(DecodeError::WrongType(typ)),
        }
    }

    fn decode_fields(value: &'a [u8]) -> Result<LpPacket<'a>, DecodeError> {
        let mut packet = LpPacket {
            frag_count: 1,
            header: value,
            ..LpPacket::default()
        };
        let mut reader = Reader::new(value);
        let mut last = 0;
        loop {
            let before = reader.rest();
            let Some(field) = reader.element()? else {
                break;
            };
            if field.typ == types::LP_FRAGMENT {
                if !reader.is_empty() {
                    return Err(DecodeError::HeaderField(types::LP_FRAGMENT));
                }
                packet.header = value.get(..value.len() - before.len()).unwrap_or_default();
                // An empty fragment is no fragment (NFD sends none).
                packet.fragment = Some(field.value).filter(|fragment| !fragment.is_empty());
                break;
            }
            let repeatable = field.typ == types::LP_ACK;
            if field.typ < last || (field.typ == last && !repeatable) {
                return Err(DecodeError::HeaderField(field.typ));
            }
            last = field.typ;
            packet.take(&field)?;
        }
        if packet.frag_count == 0 || packet.frag_index >= packet.frag_count {
            return Err(DecodeError::Value(types::LP_FRAG_INDEX));
        }
        Ok(packet)
    }

    fn take(&mut self, field: &tlv::Element<'a>) -> Result<(), DecodeError> {
        let eight = |value: &[u8]| {
            value
                .try_into()
                .map(u64::from_be_bytes)
                .map_err(|_| DecodeError::Value(field.typ))
        };
        match field.typ {
            types::LP_SEQUENCE => self.sequence = Some(eight(field.value)?),
            types::LP_FRAG_INDEX => self.frag_index = field.integer()?,
            types::LP_FRAG_COUNT => self.frag_count = field.integer()?,
            types::LP_PIT_TOKEN => {
                if field.value.is_empty() || field.value.len() > 32 {
                    return Err(DecodeError::Value(types::LP_PIT_TOKEN));
                }
                self.pit_token = Some(field.value);
            }
            types::LP_NACK => self.nack = Some(nack_reason(field.value)?),
            types::LP_INCOMING_FACE_ID => self.incoming_face_id = Some(field.integer()?),
            types::LP_NEXT_HOP_FACE_ID => self.next_hop_face_id = Some(field.integer()?),
            types::LP_CACHE_POLICY => self.cache_policy = Some(cache_policy(field.value)?),
            types::LP_CONGESTION_MARK => self.congestion_mark = Some(field.integer()?),
            types::LP_ACK => {
                eight(field.value)?;
            }
            types::LP_TX_SEQUENCE => self.tx_sequence = Some(eight(field.value)?),
            types::LP_NON_DISCOVERY => self.non_discovery = field.flag()?,
            types::LP_PREFIX_ANNOUNCEMENT => self.prefix_announcement = Some(field.value),
            typ if is_ignorable(typ) => {}
            typ => return Err(DecodeError::HeaderField(typ)),
        }
        Ok(())
    }

    /// All header fields, known and unknown, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (u64, &'a [u8])> {
        let mut reader = Reader::new(self.header);
        core::iter::from_fn(move || reader.element().ok()?.map(|field| (field.typ, field.value)))
    }

    /// The numbers of its Ack fields.
    pub fn acks(&self) -> impl Iterator<Item = u64> {
        self.fields()
            .filter(|(typ, _)| *typ == types::LP_ACK)
            .filter_map(|(_, value)| value.try_into().ok().map(u64::from_be_bytes))
    }

    /// What travels with the packet through a forwarder.
    pub fn header(&self) -> LpHeader {
        LpHeader {
            pit_token: self.pit_token.map(Bytes::copy_from_slice),
            nack: self.nack,
            incoming_face_id: self.incoming_face_id,
            next_hop_face_id: self.next_hop_face_id,
            cache_policy: self.cache_policy,
            congestion_mark: self.congestion_mark,
            non_discovery: self.non_discovery,
            prefix_announcement: self.prefix_announcement.map(Bytes::copy_from_slice),
        }
    }
}

/// True for header fields that a receiver who does not know them leaves alone (NDNLPv2: 800 to 959,
/// two lowest bits 0).
pub const fn is_ignorable(typ: u64) -> bool {
    typ >= 800 && typ <= 959 && typ & 3 == 0
}

fn nack_reason(value: &[u8]) -> Result<NackReason, DecodeError> {
    let mut reason = NackReason::None;
    tlv::read_ordered(value, &[types::LP_NACK_REASON], |element| {
        reason = NackReason::from_code(element.integer()?);
        Ok(())
    })?;
    Ok(reason)
}

fn cache_policy(value: &[u8]) -> Result<CachePolicy, DecodeError> {
    let mut policy = None;
    tlv::read_ordered(value, &[types::LP_CACHE_POLICY_TYPE], |element| {
        policy = Some(match element.integer()? {
            1 => CachePolicy::NoCache,
            code => CachePolicy::Other(code),
        });
        Ok(())
    })?;
    policy.ok_or(DecodeError::Missing(types::LP_CACHE_POLICY_TYPE))
}

/// What concerns the link alone, to be written before the fields of an [`LpHeader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LinkFields<'a> {
    /// Sequence.
    pub sequence: Option<u64>,
    /// FragIndex and FragCount.
    pub fragment: Option<(u64, u64)>,
    /// TxSequence.
    pub tx_sequence: Option<u64>,
    /// Acks.
    pub acks: &'a [u64],
    /// A further field in the ignorable range, beyond those of [`LpHeader`]: its type and value.
    pub extension: Option<(u64, &'a [u8])>,
}

/// Octets of the header fields.
pub fn fields_len(link: &LinkFields<'_>, header: &LpHeader) -> usize {
    let integer = |typ: u64, number: u64| tlv::element_len(typ, tlv::integer_len(number));
    let mut len = 0;
    len += link.sequence.map_or(0, |_| 10);
    if let Some((index, count)) = link.fragment {
        len += integer(types::LP_FRAG_INDEX, index) + integer(types::LP_FRAG_COUNT, count);
    }
    len += header.pit_token.as_ref().map_or(0, |token| {
        tlv::element_len(types::LP_PIT_TOKEN, token.len())
    });
    len += header.nack.map_or(0, |reason| {
        tlv::element_len(types::LP_NACK, nack_value_len(reason))
    });
    len += header
        .incoming_face_id
        .map_or(0, |id| integer(types::LP_INCOMING_FACE_ID, id));
    len += header
        .next_hop_face_id
        .map_or(0, |id| integer(types::LP_NEXT_HOP_FACE_ID, id));
    len += header.cache_policy.map_or(0, |policy| {
        tlv::element_len(
            types::LP_CACHE_POLICY,
            integer(types::LP_CACHE_POLICY_TYPE, policy.code()),
        )
    });
    len += header
        .congestion_mark
        .map_or(0, |mark| integer(types::LP_CONGESTION_MARK, mark));
    len += link.acks.len() * 12;
    len += link.tx_sequence.map_or(0, |_| 12);
    len += if header.non_discovery { 4 } else { 0 };
    len += header
        .prefix_announcement
        .as_ref()
        .map_or(0, |announcement| {
            tlv::element_len(types::LP_PREFIX_ANNOUNCEMENT, announcement.len())
        });
    len + link
        .extension
        .map_or(0, |(typ, value)| tlv::element_len(typ, value.len()))
}

fn nack_value_len(reason: NackReason) -> usize {
    match reason {
        NackReason::None => 0,
        reason => tlv::element_len(types::LP_NACK_REASON, tlv::integer_len(reason.code())),
    }
}

/// Appends an LpPacket; `payload` is a packet or a fragment, `None` makes an IDLE packet.
pub fn encode(out: &mut Vec<u8>, link: &LinkFields<'_>, header: &LpHeader, payload: Option<&[u8]>) {
    let payload_len = payload.map_or(0, |payload| {
        tlv::element_len(types::LP_FRAGMENT, payload.len())
    });
    tlv::write_header(
        out,
        types::LP_PACKET,
        fields_len(link, header) + payload_len,
    );
    if let Some(sequence) = link.sequence {
        tlv::write_element(out, types::LP_SEQUENCE, &sequence.to_be_bytes());
    }
    if let Some((index, count)) = link.fragment {
        tlv::write_integer_element(out, types::LP_FRAG_INDEX, index);
        tlv::write_integer_element(out, types::LP_FRAG_COUNT, count);
    }
    if let Some(token) = &header.pit_token {
        tlv::write_element(out, types::LP_PIT_TOKEN, token);
    }
    if let Some(reason) = header.nack {
        tlv::write_header(out, types::LP_NACK, nack_value_len(reason));
        if reason != NackReason::None {
            tlv::write_integer_element(out, types::LP_NACK_REASON, reason.code());
        }
    }
    if let Some(id) = header.incoming_face_id {
        tlv::write_integer_element(out, types::LP_INCOMING_FACE_ID, id);
    }
    if let Some(id) = header.next_hop_face_id {
        tlv::write_integer_element(out, types::LP_NEXT_HOP_FACE_ID, id);
    }
    if let Some(policy) = header.cache_policy {
        let inner = tlv::element_len(types::LP_CACHE_POLICY_TYPE, tlv::integer_len(policy.code()));
        tlv::write_header(out, types::LP_CACHE_POLICY, inner);
        tlv::write_integer_element(out, types::LP_CACHE_POLICY_TYPE, policy.code());
    }
    if let Some(mark) = header.congestion_mark {
        tlv::write_integer_element(out, types::LP_CONGESTION_MARK, mark);
    }
    for ack in link.acks {
        tlv::write_element(out, types::LP_ACK, &ack.to_be_bytes());
    }
    if let Some(sequence) = link.tx_sequence {
        tlv::write_element(out, types::LP_TX_SEQUENCE, &sequence.to_be_bytes());
    }
    if header.non_discovery {
        tlv::write_header(out, types::LP_NON_DISCOVERY, 0);
    }
    if let Some(announcement) = &header.prefix_announcement {
        tlv::write_element(out, types::LP_PREFIX_ANNOUNCEMENT, announcement);
    }
    if let Some((typ, value)) = link.extension {
        tlv::write_element(out, typ, value);
    }
    if let Some(payload) = payload {
        tlv::write_element(out, types::LP_FRAGMENT, payload);
    }
}
