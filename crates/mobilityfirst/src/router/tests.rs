//! A router and the hops of its neighbours, without a driver.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_core::{
    Guid, Machine, Medium, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time, WallClock,
};
use whimbrel_gnrs::{Address, KeyPair, Record, Statement};
use whimbrel_link::{Hop, HopConfig, HopEvent, PacketBudget};

use super::store::StoreLimits;
use super::{Observer, Passing, ProxyPolicy, Router, RouterConfig, Verdict};
use crate::chunk::Chunk;
use crate::links::Outgoing;
use crate::wire::{
    ChunkRanges, ContentKind, Data, NetworkHeader, Reliability, Request, ServiceId, Transport,
    UpperProtocol,
};

const UNIX_MS: u64 = 1_767_225_600_000;
const ROUTER: Guid = Guid([1; 32]);
const SOURCE: Guid = Guid([2; 32]);
const STEP: Duration = Duration::from_millis(1);

/// The chunks that a neighbour has received whole.
struct Neighbour {
    hop: Hop,
    budget: PacketBudget,
    received: Vec<Chunk>,
}

struct Net {
    router: Router,
    neighbours: BTreeMap<PortId, Neighbour>,
    now: Time,
}

impl Net {
    /// A router with a neighbour of each of these names, on ports 1, 2 and so on.
    fn new(names: &[Guid]) -> Net {
        let config = RouterConfig {
            guid: ROUTER,
            wall: WallClock::new(UNIX_MS),
            hop: HopConfig::new(ROUTER, 1472),
            buffer_packets: 4096,
            store: StoreLimits {
                total: 64 << 20,
                per_flow: 64 << 20,
                lifetime: Duration::from_secs(60),
            },
            routes: Vec::new(),
            default_route: None,
            name_servers: Vec::new(),
            proxy: ProxyPolicy::default(),
        };
        let mut net = Net {
            router: Router::new(config, SeededRng::new(1)),
            neighbours: BTreeMap::new(),
            now: Time::ZERO,
        };
        for (number, name) in (1..).zip(names) {
            let info = PortInfo {
                label: String::new(),
                origin: PortOrigin::Configured(number),
                mtu: 1472,
                peer: String::new(),
                medium: Medium::Unaddressed,
            };
            let (port, rng) = (PortId(number), SeededRng::new(u64::from(number) + 10));
            net.router.handle_port(net.now, port, PortEvent::Up(info));
            let neighbour = Neighbour {
                hop: Hop::new(HopConfig::new(*name, 1472), rng, net.now),
                budget: PacketBudget::new(4096),
                received: Vec::new(),
            };
            net.neighbours.insert(port, neighbour);
        }
        net.run(Duration::from_secs(1));
        net.neighbours
            .values_mut()
            .for_each(|it| it.received.clear());
        net
    }

    /// Carries frames both ways for this time.
    fn run(&mut self, span: Duration) {
        let (end, mut buffer) = (self.now + span, Vec::new());
        while self.now < end {
            self.now += STEP;
            self.router.handle_timeout(self.now);
            for (port, neighbour) in &mut self.neighbours {
                neighbour
                    .hop
                    .handle_timeout(self.now, &mut neighbour.budget);
                while let Some((size, segment)) =
                    neighbour.hop.poll_transmit(self.now, 16, &mut buffer)
                {
                    for frame in buffer.chunks(segment.unwrap_or(size).max(1)) {
                        self.router.handle_frames(self.now, *port, &[frame]);
                    }
                    buffer.clear();
                }
            }
            while let Some(transmit) = self.router.poll_transmit(self.now, 16, &mut buffer) {
                let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
                if let Some(neighbour) = self.neighbours.get_mut(&transmit.port) {
                    for frame in buffer.chunks(segment) {
                        let budget = &mut neighbour.budget;
                        neighbour.hop.handle_frame(self.now, frame, budget);
                    }
                }
                buffer.clear();
            }
            for neighbour in self.neighbours.values_mut() {
                while let Some(event) = neighbour.hop.poll_event() {
                    if let HopEvent::Received { chunk, packets } = event {
                        neighbour.budget.release(packets);
                        let chunk = Chunk::decode(&chunk).expect("a chunk");
                        neighbour.received.push(chunk);
                    }
                }
            }
        }
    }

    /// A neighbour sends a chunk.
    fn send(&mut self, port: u32, chunk: Chunk) {
        let (head, body) = chunk.into_pieces();
        let neighbour = self.neighbours.get_mut(&PortId(port)).expect("a neighbour");
        neighbour.hop.send(self.now, 1, head, body);
    }

    /// The payloads of the data chunks that a neighbour has received, by chunk index.
    fn received(&self, port: u32) -> BTreeMap<u32, Bytes> {
        let received = self.neighbours[&PortId(port)].received.iter();
        let data = received.filter_map(Chunk::data);
        data.map(|data| (data.index, data.payload)).collect()
    }
}

/// A chunk of content for `destination`.
fn data(service: ServiceId, destination: Guid, index: u32, len: usize) -> Chunk {
    let service = service.with(ServiceId::DELAY_TOLERANT);
    let header = NetworkHeader::new(service, UpperProtocol::Transport, SOURCE, destination);
    let data = Data {
        content: Guid([7; 32]),
        index,
        chunk_log2: 20,
        content_len: 1 << 30,
        kind: ContentKind::File,
        reliability: Reliability::Nack,
        file_name: String::new(),
        proof: Bytes::new(),
        payload: Bytes::from(vec![index as u8; len]),
    };
    Chunk::of_transport(header, &Transport::Data(data))
}

#[test]
fn a_multicast_chunk_leaves_on_both_ports_of_its_destination_and_shares_memory_and_room() {
    let group = Guid([9; 32]);
    let mut net = Net::new(&[SOURCE, Guid([3; 32]), Guid([4; 32])]);
    for port in [2, 3] {
        assert!(net.router.attachments.insert(group, PortId(port), 1));
    }
    let (chunk, len) = (data(ServiceId::MULTICAST, group, 5, 100_000), 100_000);
    assert!(net.router.links.buffer().0 == 0);
    net.send(1, chunk);
    // Until the router has it and has passed it to two hops.
    let carried = |net: &Net, port| net.router.links.carried(PortId(port));
    while carried(&net, 2).is_empty() && net.received(2).is_empty() {
        net.run(STEP);
        if let ([(_, first)], [(_, second)]) = (&carried(&net, 2)[..], &carried(&net, 3)[..]) {
            let pointer = |outgoing: &Outgoing| outgoing.chunk.message.head.as_ptr();
            assert_eq!(pointer(first), pointer(second));
            assert!(first.room.is_held() && second.room.is_held());
            // Counted once.
            assert!(net.router.memory().buffered_bytes < 2 * len);
        }
    }
    net.run(Duration::from_secs(1));
    let payload = Bytes::from(vec![5; 100_000]);
    for port in [2, 3] {
        assert_eq!(net.received(port), BTreeMap::from([(5, payload.clone())]));
    }
    assert_eq!(
        (net.router.links.buffer().0, net.router.memory().total()),
        (0, 0)
    );
}

#[test]
fn a_unicast_chunk_leaves_on_one_port_and_on_the_other_when_that_is_silent() {
    let host = Guid([9; 32]);
    let mut net = Net::new(&[SOURCE, Guid([3; 32]), Guid([4; 32])]);
    // The newest record was attached on port 3.
    assert!(net.router.attachments.insert(host, PortId(2), 1));
    assert!(net.router.attachments.insert(host, PortId(3), 2));
    net.send(1, data(ServiceId::UNICAST, host, 0, 1000));
    net.run(Duration::from_secs(1));
    assert_eq!((net.received(2).len(), net.received(3).len()), (0, 1));
    net.router.handle_port(net.now, PortId(3), PortEvent::Down);
    net.send(1, data(ServiceId::UNICAST, host, 1, 1000));
    net.run(Duration::from_secs(1));
    assert_eq!((net.received(2).len(), net.received(3).len()), (1, 1));
}

/// The choice before any neighbour has acknowledged a packet: by weights alone.
#[test]
fn a_flow_is_divided_among_the_addresses_of_its_destination_by_weight() {
    let keys = KeyPair::from_secret(&[5; 32]);
    let addresses = [Guid([3; 32]), Guid([4; 32])];
    let mut net = Net::new(&addresses);
    let [first, second] = addresses;
    let addresses = [(first, 3), (second, 1)].map(|(na, weight)| Address {
        weight,
        ..Address::new(na)
    });
    let statement = Statement::new(UNIX_MS, 60_000, addresses.to_vec());
    let record = Record::binding(&keys, &statement).expect("a record");
    assert!(net.router.names.keep(net.now, record).is_ok());
    for index in 0..40 {
        let chunk = data(ServiceId::MULTIHOMING, keys.guid(), index, 1000);
        net.router.say(net.now, chunk);
    }
    let waiting = |port: u32| net.router.links.state(PortId(port)).queue_bytes;
    let rates = [1, 2].map(|port| net.router.links.state(PortId(port)).delivery_rate);
    assert!(rates.contains(&None), "{rates:?}");
    assert_eq!(waiting(1), 3 * waiting(2));
    net.run(Duration::from_secs(1));
    assert_eq!((net.received(1).len(), net.received(2).len()), (30, 10));
    let reached = |port: u32| {
        let received = &net.neighbours[&PortId(port)].received;
        received
            .iter()
            .map(|chunk| chunk.header.destination_address)
    };
    assert!(reached(1).all(|address| address == first));
    assert!(reached(2).all(|address| address == second));
}

/// Stores chunks in transit, and answers requests for one that it has.
#[derive(Default)]
struct Cache {
    kept: BTreeMap<(Guid, u32), Data>,
}

impl Observer for Cache {
    fn observe(&mut self, _: Time, chunk: &Chunk, passing: Passing) -> Verdict {
        let request = match passing {
            Passing::Data(data) => {
                self.kept.insert((data.content, data.index), data);
                return Verdict::Pass;
            }
            Passing::Request(request) | Passing::Nack(request) => request,
        };
        let wanted = request.chunks.iter().flatten();
        let kept: Option<Vec<Data>> = wanted
            .map(|index| self.kept.get(&(request.content, index)).cloned())
            .collect();
        let Some(kept) = kept else {
            return Verdict::Pass;
        };
        let answer = |data| {
            let service = ServiceId::CONTENT_RESPONSE.with(ServiceId::DELAY_TOLERANT);
            let (upper, to) = (UpperProtocol::Transport, chunk.header.source);
            let header = NetworkHeader::new(service, upper, ROUTER, to);
            Chunk::of_transport(header, &Transport::Data(data))
        };
        Verdict::Answer(kept.into_iter().map(answer).collect())
    }
}

#[test]
fn an_observer_answers_a_request_from_its_own_copy() {
    let (client, content) = (Guid([9; 32]), Guid([7; 32]));
    let mut net = Net::new(&[SOURCE, client]);
    for (guid, port) in [(client, 2), (content, 1)] {
        assert!(net.router.attachments.insert(guid, PortId(port), 1));
    }
    net.router.set_observer(Box::<Cache>::default());
    let request = |chunks: ChunkRanges| {
        let service = ServiceId::CONTENT_REQUEST.with(ServiceId::DELAY_TOLERANT);
        let header = NetworkHeader::new(service, UpperProtocol::Transport, client, content);
        let request = Request {
            content,
            chunk_log2: 20,
            reliability: Reliability::Nack,
            chunks,
        };
        Chunk::of_transport(header, &Transport::Request(request))
    };
    let requests = |net: &Net| net.neighbours[&PortId(1)].received.len();
    // A request for other chunks goes to the source, whose chunk is stored in transit.
    net.send(2, request(ChunkRanges::from(4..5)));
    net.run(Duration::from_secs(1));
    assert_eq!((requests(&net), net.received(2).len()), (1, 0));
    net.send(1, data(ServiceId::CONTENT_RESPONSE, client, 4, 50_000));
    net.run(Duration::from_secs(1));
    let expected = BTreeMap::from([(4, Bytes::from(vec![4; 50_000]))]);
    assert_eq!(net.received(2), expected);
    // Requested again, it comes from the router.
    let client_port = net.neighbours.get_mut(&PortId(2)).expect("the client");
    client_port.received.clear();
    net.send(2, request(ChunkRanges::from(4..5)));
    net.run(Duration::from_secs(1));
    assert_eq!(net.received(2), expected);
    assert_eq!(requests(&net), 1);
    // A request for chunks that it has only in part passes.
    net.send(2, request(ChunkRanges::from(4..6)));
    net.run(Duration::from_secs(1));
    assert_eq!(requests(&net), 2);
}
