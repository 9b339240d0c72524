//! The network header and its extension chain.

use core::time::Duration;

use whimbrel_core::Guid;

use super::{MemberList, Reader, SignedOffer, WireError};

/// The version that this program writes and reads.
pub const VERSION: u8 = 1;
/// Size of the header before the extension chain, in bytes.
pub const NETWORK_HEADER_LEN: usize = 140;
/// Hop limit of a new chunk.
pub const HOP_LIMIT: u8 = 32;
/// Set in the type of an extension: a router that does not know it must drop the chunk.
const CRITICAL: u16 = 0x8000;
const EXTENSION_VIA: u16 = 0x8002;
const EXTENSION_LIFETIME: u16 = 0x0003;
const EXTENSION_ADDRESSES: u16 = 0x0004;
const EXTENSION_REQUEST: u16 = 0x0005;
const EXTENSION_OFFER: u16 = 0x0006;
const EXTENSION_DELEGATE: u16 = 0x0007;
const EXTENSION_NACK_TIMEOUT: u16 = 0x0008;
const EXTENSION_GROUP: u16 = 0x0009;
const EXTENSION_MEMBERS: u16 = 0x800a;
const EXTENSION_GROUPS_ABOVE: u16 = 0x000b;
const EXTENSION_NACK_ROUTERS: u16 = 0x000c;
/// Maximum of addresses that a chunk carries; further ones are left out.
pub const MAX_CARRIED_ADDRESSES: usize = 8;
/// Maximum of groups of which each is a member of the one before.
pub const MAX_GROUPS_ABOVE: usize = 4;

/// The service identifier: the requested kind of delivery, as bit flags. The values up to 0x2000
/// are those of the MobilityFirst prototype that Rutgers released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ServiceId(pub u16);

impl ServiceId {
    /// To the one host that the destination names.
    pub const UNICAST: ServiceId = ServiceId(0);
    /// The destination is a group [MFTP §3.5]: each of its members, or of those that the chunk lists, gets it.
    /// With *via*, a copy for this member, which is attached to the router that sends it.
    pub const MULTICAST: ServiceId = ServiceId(0x0001);
    /// The destination is a name by which several hosts are attached; the nearest one gets it.
    pub const ANYCAST: ServiceId = ServiceId(0x0002);
    /// The flow may be divided among the next hops towards the destination.
    pub const MULTIHOMING: ServiceId = ServiceId(0x0004);
    /// The destination names a content; any holder of it may answer.
    pub const CONTENT_REQUEST: ServiceId = ServiceId(0x0200);
    /// Carries a part of a content.
    pub const CONTENT_RESPONSE: ServiceId = ServiceId(0x0400);
    /// Routers may store the chunk while its destination is away (the explicit delay-tolerant
    /// option).
    pub const DELAY_TOLERANT: ServiceId = ServiceId(0x0008);
    /// For the neighbour on the other end of the hop; never forwarded.
    pub const NEIGHBOUR: ServiceId = ServiceId(0x0800);
    const EXTENDED: u16 = 0x8000;

    /// Returns true if all flags of `other` are set.
    pub const fn has(self, other: ServiceId) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags but for those of `other`.
    pub const fn without(self, other: ServiceId) -> ServiceId {
        ServiceId(self.0 & !other.0)
    }

    /// Both sets of flags.
    pub const fn with(self, other: ServiceId) -> ServiceId {
        ServiceId(self.0 | other.0)
    }
}

/// The protocol after the network header and its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpperProtocol {
    /// A [`Transport`](super::Transport) message.
    Transport,
    /// An [`Echo`](super::Echo) message.
    Echo,
    /// A [`Control`](super::Control) message between neighbours.
    Control,
}

impl UpperProtocol {
    const fn code(self) -> u8 {
        match self {
            UpperProtocol::Transport => 0,
            UpperProtocol::Echo => 2,
            UpperProtocol::Control => 3,
        }
    }

    fn from_code(code: u8) -> Result<UpperProtocol, WireError> {
        match code {
            0 => Ok(UpperProtocol::Transport),
            2 => Ok(UpperProtocol::Echo),
            3 => Ok(UpperProtocol::Control),
            other => Err(WireError::UpperProtocol(other)),
        }
    }
}

/// Optional parts of the network header.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Extensions {
    /// The host behind the destination network address that serves the destination GUID: set when a
    /// router binds a content request to one of the content's holders.
    pub via: Option<Guid>,
    /// How long routers may store the chunk, in milliseconds from its arrival at each of them.
    pub lifetime_ms: Option<u32>,
    /// The network addresses of a multihomed destination, as the first router on the way that knew
    /// them appended them [MF-5G §III]. Where their next hops part, one of them is left.
    pub addresses: Vec<Guid>,
    /// The id of the request that this is, or that it answers or speaks of: drawn by the receiver, and
    /// known only to it and to the nodes on the way. What comes without it is not believed.
    pub request: Option<u64>,
    /// With a chunk that its receiver has not requested: what its sender offers.
    pub offer: Option<Box<SignedOffer>>,
    /// With a chunk of a content: how long further ones may be missing before the receiver tells the source,
    /// in milliseconds. A receiver that has a time of its own does not use it.
    pub nack_timeout_ms: Option<u32>,
    /// The source's access router should keep a copy, and answer for it [MFTP §3.3].
    pub delegate: bool,
    /// The group to which a chunk was sent that is for one member, or for a group below it.
    pub group: Option<Box<Guid>>,
    /// With a chunk for a group: the routers with copies that a request for it may pass [MFTP §3.5]. With that
    /// request: those that are left.
    pub nack_routers: Option<u8>,
    /// The groups between that one and the destination.
    pub above: Vec<Guid>,
    /// The members that a chunk for a group is still to reach; all of them if empty.
    pub members: MemberList,
    /// Unknown extensions, which are forwarded: type and value.
    unknown: Vec<(u16, Vec<u8>)>,
}

/// A flow: "identified by a (source GUID, destination GUID) pair" ([MFTP §3.1], footnote 2). What the destination
/// has not requested is a flow of its own: it may be held back without what was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The sender.
    pub source: Guid,
    /// The receiver.
    pub destination: Guid,
    /// True if its chunks carry the offer of their sender.
    pub is_offered: bool,
}

impl Flow {
    /// The first one in their order.
    pub(crate) const FIRST: Flow = Flow::requested(Guid([0; 32]), Guid([0; 32]));

    /// The flow of what the destination requests from the source.
    pub const fn requested(source: Guid, destination: Guid) -> Flow {
        Flow {
            source,
            destination,
            is_offered: false,
        }
    }

    /// The flow of what the source offers to the destination.
    pub const fn offered(source: Guid, destination: Guid) -> Flow {
        Flow {
            source,
            destination,
            is_offered: true,
        }
    }

    /// Both flows from a source to a destination.
    pub(crate) const fn both(source: Guid, destination: Guid) -> [Flow; 2] {
        [
            Flow::requested(source, destination),
            Flow::offered(source, destination),
        ]
    }
}

/// The header that routes a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkHeader {
    /// The remaining number of forwarding routers.
    pub hop_limit: u8,
    /// The requested delivery.
    pub service: ServiceId,
    /// The protocol of the payload.
    pub upper: UpperProtocol,
    /// The sender.
    pub source: Guid,
    /// The router where the sender is attached ([`Guid::NONE`] if the sender does not know it).
    pub source_address: Guid,
    /// The host or content addressed.
    pub destination: Guid,
    /// The router where the destination is attached; [`Guid::NONE`] until a router has bound it.
    pub destination_address: Guid,
    /// Optional parts.
    pub extensions: Extensions,
}

impl NetworkHeader {
    /// Returns a header of a new chunk that no router has bound yet.
    pub fn new(
        service: ServiceId,
        upper: UpperProtocol,
        source: Guid,
        destination: Guid,
    ) -> NetworkHeader {
        NetworkHeader {
            hop_limit: HOP_LIMIT,
            service,
            upper,
            source,
            source_address: Guid::NONE,
            destination,
            destination_address: Guid::NONE,
            extensions: Extensions::default(),
        }
    }

    /// Returns the number of links that its chunk has crossed when it arrives at a node.
    pub(crate) fn links_behind(&self) -> u8 {
        HOP_LIMIT.saturating_sub(self.hop_limit).saturating_add(1)
    }

    /// Appends the header and its extension chain for a payload of `payload_len` bytes.
    pub fn encode(&self, payload_len: usize, out: &mut Vec<u8>) {
        let start = out.len();
        let mut chain = Vec::new();
        let mut extend = |kind: u16, value: &[u8]| {
            chain.extend_from_slice(&kind.to_be_bytes());
            chain.extend_from_slice(&(value.len() as u16).to_be_bytes());
            chain.extend_from_slice(value);
        };
        if let Some(via) = &self.extensions.via {
            extend(EXTENSION_VIA, via.as_bytes());
        }
        if let Some(lifetime) = self.extensions.lifetime_ms {
            extend(EXTENSION_LIFETIME, &lifetime.to_be_bytes());
        }
        for (kind, names) in [
            (EXTENSION_ADDRESSES, &self.extensions.addresses),
            (EXTENSION_GROUPS_ABOVE, &self.extensions.above),
        ] {
            if !names.is_empty() {
                let names: Vec<[u8; 32]> = names.iter().map(|it| it.0).collect();
                extend(kind, &names.concat());
            }
        }
        if let Some(request) = self.extensions.request {
            extend(EXTENSION_REQUEST, &request.to_be_bytes());
        }
        if let Some(offer) = &self.extensions.offer {
            let mut value = Vec::with_capacity(SignedOffer::LEN);
            offer.encode(&mut value);
            extend(EXTENSION_OFFER, &value);
        }
        if let Some(timeout) = self.extensions.nack_timeout_ms {
            extend(EXTENSION_NACK_TIMEOUT, &timeout.to_be_bytes());
        }
        if let Some(routers) = self.extensions.nack_routers {
            extend(EXTENSION_NACK_ROUTERS, &[routers]);
        }
        if self.extensions.delegate {
            extend(EXTENSION_DELEGATE, &[]);
        }
        if let Some(group) = &self.extensions.group {
            extend(EXTENSION_GROUP, group.as_bytes());
        }
        if !self.extensions.members.is_empty() {
            let mut value = Vec::new();
            self.extensions.members.encode(&mut value);
            extend(EXTENSION_MEMBERS, &value);
        }
        for (kind, value) in &self.extensions.unknown {
            extend(*kind, value);
        }
        let flag = if chain.is_empty() {
            0
        } else {
            ServiceId::EXTENDED
        };
        out.push(VERSION);
        out.push(self.hop_limit);
        out.extend_from_slice(&(self.service.0 & !ServiceId::EXTENDED | flag).to_be_bytes());
        out.push(self.upper.code());
        out.push(0);
        out.extend_from_slice(&((NETWORK_HEADER_LEN + chain.len()) as u16).to_be_bytes());
        out.extend_from_slice(&(payload_len as u32).to_be_bytes());
        for guid in [
            self.source,
            self.source_address,
            self.destination,
            self.destination_address,
        ] {
            out.extend_from_slice(guid.as_bytes());
        }
        debug_assert_eq!(out.len() - start, NETWORK_HEADER_LEN);
        out.extend_from_slice(&chain);
    }

    /// Decodes the header of a whole chunk; returns it and the offset of the payload.
    pub fn decode(chunk: &[u8]) -> Result<(NetworkHeader, usize), WireError> {
        let mut reader = Reader(chunk);
        let version = reader.u8()?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let hop_limit = reader.u8()?;
        let service = reader.u16()?;
        let upper = UpperProtocol::from_code(reader.u8()?)?;
        let _reserved = reader.u8()?;
        let payload_offset = usize::from(reader.u16()?);
        let payload_len = reader.u32()? as usize;
        let source = reader.guid()?;
        let source_address = reader.guid()?;
        let destination = reader.guid()?;
        let destination_address = reader.guid()?;
        match chunk.len().checked_sub(payload_offset) {
            Some(rest) if rest == payload_len => {}
            Some(rest) if rest > payload_len => return Err(WireError::Trailing),
            _ => return Err(WireError::Truncated),
        }
        let chain_len = payload_offset
            .checked_sub(NETWORK_HEADER_LEN)
            .ok_or(WireError::Invalid("payload offset"))?;
        if (service & ServiceId::EXTENDED != 0) != (chain_len != 0) {
            return Err(WireError::Invalid("extension flag"));
        }
        let extensions = Extensions::decode(reader.take(chain_len)?)?;
        let header = NetworkHeader {
            hop_limit,
            service: ServiceId(service & !ServiceId::EXTENDED),
            upper,
            source,
            source_address,
            destination,
            destination_address,
            extensions,
        };
        Ok((header, payload_offset))
    }
}

impl Extensions {
    /// Returns how long routers may store the chunk, if its source says so.
    pub(crate) fn lifetime(&self) -> Option<Duration> {
        self.lifetime_ms.map(|ms| Duration::from_millis(ms.into()))
    }

    /// Subtracts the time for which a router has stored the chunk.
    pub(crate) fn spend_lifetime(&mut self, stored: Duration) {
        let spent = u32::try_from(stored.as_millis()).unwrap_or(u32::MAX);
        self.lifetime_ms = self.lifetime_ms.map(|ms| ms.saturating_sub(spent));
    }

    fn decode(chain: &[u8]) -> Result<Extensions, WireError> {
        let mut extensions = Extensions::default();
        let mut reader = Reader(chain);
        while !reader.0.is_empty() {
            let kind = reader.u16()?;
            let len = usize::from(reader.u16()?);
            let value = reader.take(len)?;
            match kind {
                EXTENSION_VIA => {
                    extensions.via =
                        Some(Guid::from_slice(value).ok_or(WireError::Invalid("via"))?);
                }
                EXTENSION_LIFETIME => {
                    extensions.lifetime_ms = Some(milliseconds(value, "lifetime")?);
                }
                EXTENSION_NACK_TIMEOUT => {
                    extensions.nack_timeout_ms = Some(milliseconds(value, "NACK timeout")?);
                }
                EXTENSION_ADDRESSES => {
                    extensions.addresses = names(value, MAX_CARRIED_ADDRESSES)
                        .ok_or(WireError::Invalid("addresses"))?;
                }
                EXTENSION_GROUPS_ABOVE => {
                    extensions.above =
                        names(value, MAX_GROUPS_ABOVE).ok_or(WireError::Invalid("groups"))?;
                }
                EXTENSION_REQUEST => {
                    let bytes = value
                        .try_into()
                        .map_err(|_| WireError::Invalid("request id"))?;
                    extensions.request = Some(u64::from_be_bytes(bytes));
                }
                EXTENSION_OFFER => extensions.offer = Some(SignedOffer::decode(value)?.into()),
                EXTENSION_GROUP => {
                    let group = Guid::from_slice(value).ok_or(WireError::Invalid("group"))?;
                    extensions.group = Some(Box::new(group));
                }
                EXTENSION_MEMBERS => extensions.members = MemberList::decode(value)?,
                EXTENSION_NACK_ROUTERS => match value {
                    [routers] => extensions.nack_routers = Some(*routers),
                    _ => return Err(WireError::Invalid("NACK routers")),
                },
                EXTENSION_DELEGATE if value.is_empty() => extensions.delegate = true,
                EXTENSION_DELEGATE => return Err(WireError::Invalid("delegation")),
                kind if kind & CRITICAL != 0 => return Err(WireError::CriticalExtension(kind)),
                kind => extensions.unknown.push((kind, value.to_vec())),
            }
        }
        Ok(extensions)
    }
}

/// Returns the names in an extension; `None` if they are more than `most`, or the last one is cut off.
fn names(value: &[u8], most: usize) -> Option<Vec<Guid>> {
    let whole = value.chunks_exact(32);
    let is_whole = whole.remainder().is_empty() && whole.len() <= most;
    is_whole.then(|| whole.filter_map(Guid::from_slice).collect())
}

fn milliseconds(value: &[u8], what: &'static str) -> Result<u32, WireError> {
    let bytes = value.try_into().map_err(|_| WireError::Invalid(what))?;
    Ok(u32::from_be_bytes(bytes))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::OfferUse;
    use super::super::members::tests::any_members;
    use super::*;
    use proptest::prelude::*;
    use whimbrel_core::identity::{PublicKey, Signature};

    pub(crate) fn any_guid() -> impl Strategy<Value = Guid> {
        any::<[u8; 32]>().prop_map(Guid)
    }

    fn any_offer() -> impl Strategy<Value = SignedOffer> {
        any::<u64>().prop_map(|issued_ms| SignedOffer {
            proposed: OfferUse::Bundle,
            issued_ms,
            key: PublicKey([7; 32]),
            signature: Signature([8; 64]),
        })
    }

    prop_compose! {
        fn any_header()(
            hop_limit: u8, service in 0u16..0x8000, upper in 0usize..3,
            guids in prop::collection::vec(any_guid(), 4),
            via in prop::option::of(any_guid()), lifetime_ms: Option<u32>, nack_timeout_ms: Option<u32>,
            addresses in prop::collection::vec(any_guid(), 0..=MAX_CARRIED_ADDRESSES),
            request: Option<u64>, delegate: bool, nack_routers: Option<u8>, offer in prop::option::of(any_offer()),
            group in prop::option::of(any_guid()), members in any_members(),
            above in prop::collection::vec(any_guid(), 0..=MAX_GROUPS_ABOVE),
            unknown in prop::collection::vec((13u16..0x8000, prop::collection::vec(any::<u8>(), 0..9)), 0..3),
        ) -> NetworkHeader {
            NetworkHeader {
                hop_limit, service: ServiceId(service),
                upper: [UpperProtocol::Transport, UpperProtocol::Echo, UpperProtocol::Control][upper],
                source: guids[0], source_address: guids[1], destination: guids[2], destination_address: guids[3],
                extensions: Extensions { via, lifetime_ms, addresses, request, offer: offer.map(Box::new), nack_timeout_ms, delegate, nack_routers, group: group.map(Box::new), above, members, unknown },
            }
        }
    }

    proptest! {
        #[test]
        fn a_header_round_trips(header in any_header(), payload in prop::collection::vec(any::<u8>(), 0..50)) {
            let mut chunk = Vec::new();
            header.encode(payload.len(), &mut chunk);
            let offset = chunk.len();
            chunk.extend_from_slice(&payload);
            prop_assert_eq!(NetworkHeader::decode(&chunk), Ok((header, offset)));
            prop_assert!(NetworkHeader::decode(&chunk[..chunk.len() - 1]).is_err());
            chunk.push(0);
            prop_assert_eq!(NetworkHeader::decode(&chunk), Err(WireError::Trailing));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = NetworkHeader::decode(&bytes);
        }
    }

    #[test]
    fn an_unknown_critical_extension_is_refused() {
        let mut header = NetworkHeader::new(
            ServiceId::UNICAST,
            UpperProtocol::Echo,
            Guid([1; 32]),
            Guid([2; 32]),
        );
        header.extensions.unknown.push((0xffff, vec![]));
        let mut chunk = Vec::new();
        header.encode(0, &mut chunk);
        assert_eq!(
            NetworkHeader::decode(&chunk),
            Err(WireError::CriticalExtension(0xffff))
        );
    }
}
