//! A chunk within a node: its header decoded, the rest as it arrived.

use bytes::Bytes;
use whimbrel_core::Guid;

use crate::wire::{
    Control, Data, DropReason, Echo, Flow, MAX_GROUPS_ABOVE, MemberList, NetworkHeader, ServiceId,
    Transport, TransportKind, UpperProtocol, WireError,
};

/// A chunk between arrival and departure. The payload shares the memory that Hop assembled it in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The header, which routers change.
    pub header: NetworkHeader,
    /// Everything after the header and its extensions, which routers do not change.
    pub message: Message,
}

/// A payload in one piece, as it arrives, or in two, as a source builds it without copying file
/// content.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Message {
    /// The fields, or the whole payload.
    pub head: Bytes,
    /// A data chunk's bytes, if they are separate from the fields.
    pub body: Bytes,
}

impl Message {
    /// Returns a transport message. A data chunk's bytes are not copied.
    pub fn of_transport(transport: &Transport) -> Message {
        let mut head = Vec::with_capacity(512);
        transport.encode_head(&mut head);
        let body = match transport {
            Transport::Data(data) => data.payload.clone(),
            _ => Bytes::new(),
        };
        let head = head.into();
        Message { head, body }
    }

    /// Size of both pieces, in bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Returns true if both pieces are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The chunks for which a receiver takes back its request.
#[derive(Clone, Copy, Debug)]
pub struct TakenBack {
    /// Their source.
    pub source: Guid,
    /// The receiver.
    pub destination: Guid,
    /// Their content.
    pub content: Guid,
    // The id of the request, or of the offer.
    request: Option<u64>,
}

impl TakenBack {
    /// Returns the flows that they are in.
    pub fn flows(&self) -> [Flow; 2] {
        Flow::both(self.source, self.destination)
    }

    /// Returns true if a chunk of these flows with this header, of this content, is meant. One that was sent without a
    /// request belongs to its offer: its receiver may take back a request of its own for the same content.
    pub fn is_about(&self, header: &NetworkHeader, content: Option<Guid>) -> bool {
        let is_of_other_offer =
            header.extensions.offer.is_some() && header.extensions.request != self.request;
        content == Some(self.content) && !is_of_other_offer
    }

    /// The same for a whole chunk.
    pub fn is_about_chunk(&self, chunk: &Chunk) -> bool {
        self.is_about(&chunk.header, chunk.data().map(|data| data.content))
    }
}

impl NetworkHeader {
    /// Returns the host that its chunk is for: of a group's chunk the member that this copy is for, if it is
    /// for one.
    pub(crate) fn receiver(&self) -> Guid {
        let via = self.extensions.via;
        let member = via.filter(|_| self.service.has(ServiceId::MULTICAST));
        member.unwrap_or(self.destination)
    }

    /// Returns true if its chunk is for several members of a group.
    pub(crate) fn is_for_group(&self) -> bool {
        self.service.has(ServiceId::MULTICAST) && self.extensions.via.is_none()
    }

    /// Returns true if its chunk was sent to a group: for several members, or a copy for one.
    pub(crate) fn is_of_group(&self) -> bool {
        self.service.has(ServiceId::MULTICAST) || self.extensions.group.is_some()
    }

    /// Returns the groups that its chunk, which is for a group, has come through.
    pub(crate) fn groups_above(&self) -> Vec<Guid> {
        let first = self.extensions.group.as_deref();
        let above = first.into_iter().chain(&self.extensions.above);
        above.copied().collect()
    }

    /// Returns true if its chunk is a copy for this member of a group.
    pub(crate) fn is_for_group_below(&self, name: &Guid) -> bool {
        self.extensions.group.is_some() && self.destination == *name
    }

    /// Returns true if its chunk is to reach this host.
    pub(crate) fn reaches(&self, host: &Guid) -> bool {
        if !self.is_for_group() {
            return self.receiver() == *host;
        }
        let listed = &self.extensions.members;
        listed.is_empty() || listed.members().any(|member| member == *host)
    }

    /// Returns the flow of its chunk.
    pub(crate) fn flow(&self) -> Flow {
        Flow {
            source: self.source,
            destination: self.destination,
            is_offered: self.extensions.offer.is_some(),
        }
    }
}

impl Chunk {
    /// Decodes a chunk that a hop has delivered.
    pub fn decode(bytes: &Bytes) -> Result<Chunk, WireError> {
        let (header, payload_offset) = NetworkHeader::decode(bytes)?;
        let message = Message {
            head: bytes.slice(payload_offset..),
            body: Bytes::new(),
        };
        Ok(Chunk { header, message })
    }

    /// Returns a chunk with a transport message. A data chunk's bytes are not copied.
    pub fn of_transport(header: NetworkHeader, transport: &Transport) -> Chunk {
        let message = Message::of_transport(transport);
        Chunk { header, message }
    }

    /// A chunk of a control message.
    pub fn of_control(header: NetworkHeader, control: &Control) -> Chunk {
        let mut head = Vec::new();
        control.encode(&mut head);
        Chunk::small(header, head)
    }

    /// A control message from a node to its neighbour.
    pub fn to_neighbour(from: Guid, to: Guid, control: &Control) -> Chunk {
        let (service, upper) = (ServiceId::NEIGHBOUR, UpperProtocol::Control);
        Chunk::of_control(NetworkHeader::new(service, upper, from, to), control)
    }

    /// A chunk of an echo.
    pub fn of_echo(header: NetworkHeader, echo: &Echo) -> Chunk {
        let mut head = Vec::new();
        echo.encode(&mut head);
        Chunk::small(header, head)
    }

    fn small(header: NetworkHeader, head: Vec<u8>) -> Chunk {
        let (head, body) = (head.into(), Bytes::new());
        let message = Message { head, body };
        Chunk { header, message }
    }

    /// Returns the two pieces for Hop: header and fields, then the uncopied bytes that follow them.
    pub fn into_pieces(self) -> (Bytes, Bytes) {
        let Message { head, body } = self.message;
        let mut front = Vec::with_capacity(256 + if body.is_empty() { 0 } else { head.len() });
        self.header.encode(head.len() + body.len(), &mut front);
        if body.is_empty() {
            return (front.into(), head);
        }
        front.extend_from_slice(&head);
        (front.into(), body)
    }

    /// Returns a chunk with the same header and the same fields, and without a payload: as much as a router
    /// needs to know of one that it has on the disk.
    pub fn without_payload(&self) -> Chunk {
        let message = match self.data() {
            Some(data) => Message::of_transport(&Transport::Data(Data {
                payload: Bytes::new(),
                ..data
            })),
            None => Message::default(),
        };
        Chunk {
            header: self.header.clone(),
            message,
        }
    }

    /// Returns the copy of a group's chunk for one member, which it reaches as any host.
    pub(crate) fn for_member(mut self, member: Guid) -> Chunk {
        let header = &mut self.header;
        if header.extensions.group.is_none() {
            header.extensions.group = Some(Box::new(header.destination));
        } else if header.extensions.above.len() < MAX_GROUPS_ABOVE {
            header.extensions.above.push(header.destination);
        }
        header.extensions.members = MemberList::default();
        header.extensions.via = None;
        header.service = header.service.without(ServiceId::MULTICAST);
        header.destination = member;
        header.destination_address = Guid::NONE;
        self
    }

    /// Returns the chunk as it is stored: without what is looked up again when it leaves.
    pub(crate) fn for_storage(self) -> Chunk {
        let via = self.header.extensions.via;
        let mut chunk = match via.filter(|_| self.header.service.has(ServiceId::MULTICAST)) {
            Some(member) => self.for_member(member),
            None => self,
        };
        let header = &mut chunk.header;
        header.destination_address = Guid::NONE;
        header.extensions.via = None;
        header.extensions.addresses.clear();
        header.extensions.members = MemberList::unplaced(header.extensions.members.members());
        chunk
    }

    /// Returns its flow.
    pub fn flow(&self) -> Flow {
        self.header.flow()
    }

    /// Size in bytes without the network header: the size for storage and quotas.
    pub fn size(&self) -> usize {
        self.message.len()
    }

    /// Returns its transport message, if it carries one. For a chunk built here in two pieces, the
    /// payload is omitted.
    pub fn transport(&self) -> Result<Transport, WireError> {
        match self.header.upper {
            UpperProtocol::Transport => Transport::decode(&self.message.head),
            _ => Err(WireError::Invalid("upper protocol")),
        }
    }

    /// If it takes back a request: what is no longer wanted.
    pub fn stops(&self) -> Option<TakenBack> {
        if self.header.upper != UpperProtocol::Transport
            || self.message.head.first() != Some(&(TransportKind::Request as u8))
        {
            return None;
        }
        match self.transport() {
            Ok(Transport::Request(request)) if request.is_stop() => Some(TakenBack {
                source: self.header.destination,
                destination: self.header.source,
                content: request.content,
                request: self.header.extensions.request,
            }),
            _ => None,
        }
    }

    /// If its source says that it does not serve a content, or that nobody does: the source and the
    /// content.
    pub fn not_served(&self) -> Option<(Guid, Guid)> {
        if self.header.upper != UpperProtocol::Transport
            || self.message.head.first() != Some(&(TransportKind::Drop as u8))
        {
            return None;
        }
        match self.transport() {
            Ok(Transport::Drop(
                notice,
                DropReason::NotServed | DropReason::NoSuchName | DropReason::NoNameService,
            )) => Some((self.header.source, notice.content)),
            _ => None,
        }
    }

    /// If it asks for chunks that may be on their way: what it asks for. A receiver that knows that
    /// they are lost says Resend, which is not meant.
    pub fn asks_again(&self) -> Option<Transport> {
        let kind = *self.message.head.first()?;
        let is_meant = [TransportKind::Request, TransportKind::Nack]
            .iter()
            .any(|meant| *meant as u8 == kind);
        if self.header.upper != UpperProtocol::Transport || !is_meant {
            return None;
        }
        self.transport().ok()
    }

    /// Returns the fields of its data message, if it carries one.
    pub fn data(&self) -> Option<Data> {
        if self.header.upper != UpperProtocol::Transport
            || self.message.head.first() != Some(&(TransportKind::Data as u8))
        {
            return None;
        }
        match self.transport() {
            Ok(Transport::Data(data)) => Some(data),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ContentKind, Reliability};

    #[test]
    fn a_chunk_survives_the_way_through_a_hop() {
        let header = NetworkHeader::new(
            ServiceId::DELAY_TOLERANT,
            UpperProtocol::Transport,
            Guid([1; 32]),
            Guid([2; 32]),
        );
        let data = Data {
            content: Guid([3; 32]),
            index: 7,
            chunk_log2: 20,
            content_len: 9 << 20,
            kind: ContentKind::File,
            reliability: Reliability::Nack,
            file_name: "map.tif".into(),
            proof: Bytes::from_static(b"proof"),
            payload: Bytes::from(vec![5; 1000]),
        };
        let chunk = Chunk::of_transport(header.clone(), &Transport::Data(data.clone()));
        let (head, body) = chunk.into_pieces();
        let received = Chunk::decode(&[head, body].concat().into()).expect("a chunk");
        assert_eq!(received.header, header);
        assert_eq!(received.data(), Some(data));
        // A forwarded payload stays in the memory that it arrived in.
        let (_, forwarded) = received.clone().into_pieces();
        assert_eq!(forwarded.as_ptr(), received.message.head.as_ptr());
    }
}
