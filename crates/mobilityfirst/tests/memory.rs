//! A router's memory under hostile load stays within what its configuration allows
//! (`docs/protocols/mobilityfirst.md`, "Memory of a router").

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::identity::KeyPair;
use whimbrel_core::{
    Guid, Machine, Medium, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time, WallClock,
};
use whimbrel_link::{Buffer, Hop, HopConfig, HopEvent};
use whimbrel_mobilityfirst::chunk::{Chunk, Message};
use whimbrel_mobilityfirst::router::{ProxyPolicy, Router, RouterConfig, store::StoreLimits};
use whimbrel_mobilityfirst::wire::{
    ContentKind, Data, Echo, NetworkHeader, Reliability, ServiceId, Transport, UpperProtocol,
};

const MTU: usize = 1472;
const NEIGHBOURS: usize = 24;
const BUFFER_PACKETS: usize = 512;
/// The name server's port: nobody ever answers there.
const NAME_SERVER: PortId = PortId(1000);
const STEP: Duration = Duration::from_millis(5);
/// A DATA frame's first byte, and the place of its flag for the last packet of a chunk
/// (`docs/protocols/hop.md`).
const DATA: u8 = 0x21;
const FLAGS_AT: usize = 9;
const LAST: u8 = 1;
/// An address that no route leads to.
const NOWHERE: Guid = Guid([9; 32]);
/// What the tables take for one stored chunk, bytes, at the very least.
const ENTRY: u64 = 256;

fn guid(kind: u8, number: u32) -> Guid {
    let mut bytes = [kind; 32];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    Guid(bytes)
}

/// Returns the keys of the router, or of a neighbour from 1 on.
fn keys(number: usize) -> KeyPair {
    KeyPair::from_secret(&[number as u8 + 1; 32])
}

fn config() -> RouterConfig {
    let own = keys(0).guid();
    let hop = HopConfig {
        chunk_limit: 64 << 10,
        max_chunks_in_flight: 8,
        queue_target: 128 << 10,
        ..HopConfig::plain(&keys(0), [1; 32], MTU)
    };
    RouterConfig {
        guid: own,
        wall: WallClock::new(1_767_225_600_000),
        hop,
        buffer_packets: BUFFER_PACKETS,
        store: StoreLimits {
            cache: 0,
            total: 2 << 20,
            per_flow: 256 << 10,
            lifetime: Duration::from_secs(3600),
        },
        routes: Vec::new(),
        default_route: None,
        name_servers: vec![0],
        proxy: ProxyPolicy::default(),
        split: whimbrel_mobilityfirst::split::SplitConfig::default(),
    }
}

/// What the router has of a name service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// A server that never answers: chunks wait for it.
    Silent,
    /// None: chunks are stored at once.
    None,
}

/// What a neighbour does to the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mischief {
    /// Sends chunks to an address that no route leads to; they are stored.
    Flood,
    /// Sends chunks for names that nobody has: they wait for the name service.
    FloodUnbound,
    /// Sends chunks that can neither go on nor be stored.
    FloodUnstorable,
    /// Never sends the last packet of a chunk.
    HalfChunks,
    /// Sends chunks without content, of which only the tables' entries are left.
    EmptyChunks,
    /// Asks the router for large echoes to names that nobody has.
    Echoes,
}

struct Neighbour {
    hop: Hop,
    buffer: Buffer,
    mischief: Mischief,
    port: PortId,
    to_router: VecDeque<Vec<u8>>,
    sent: u32,
}

impl Neighbour {
    fn new(number: usize, mischief: Mischief) -> Neighbour {
        let config = HopConfig {
            mtu: MTU,
            ..HopConfig::plain(&keys(number + 1), [number as u8 + 2; 32], MTU)
        };
        Neighbour {
            hop: Hop::new(config, SeededRng::new(number as u64 + 7), Time::ZERO),
            buffer: Buffer::new(4096),
            mischief,
            port: PortId(number as u32),
            to_router: VecDeque::new(),
            sent: 0,
        }
    }

    fn chunk(&mut self) -> Chunk {
        self.sent += 1;
        let (source, destination) = (
            guid(3, self.port.0),
            guid(4, self.sent % 500 + self.port.0 * 1000),
        );
        let service = match self.mischief {
            Mischief::FloodUnstorable => ServiceId::UNICAST,
            _ => ServiceId::DELAY_TOLERANT,
        };
        match self.mischief {
            Mischief::EmptyChunks => {
                let mut header =
                    NetworkHeader::new(service, UpperProtocol::Echo, source, destination);
                header.destination_address = NOWHERE;
                Chunk {
                    header,
                    message: Message::default(),
                }
            }
            Mischief::Echoes => {
                let mut head = Vec::new();
                Echo {
                    reply: false,
                    id: 1,
                    sequence: self.sent,
                    padding: vec![0; 30 << 10],
                }
                .encode(&mut head);
                let header =
                    NetworkHeader::new(service, UpperProtocol::Echo, destination, keys(0).guid());
                Chunk {
                    header,
                    message: Message {
                        head: head.into(),
                        body: Bytes::new(),
                    },
                }
            }
            _ => {
                let mut header =
                    NetworkHeader::new(service, UpperProtocol::Transport, source, destination);
                if self.mischief != Mischief::FloodUnbound {
                    header.destination_address = NOWHERE;
                }
                let sizes = [100, 5_000, 40_000, 60_000];
                let payload = Bytes::from(vec![7; sizes[self.sent as usize % sizes.len()]]);
                Chunk::of_transport(header, &Transport::Data(self.data(payload)))
            }
        }
    }

    fn data(&self, payload: Bytes) -> Data {
        Data {
            content: guid(5, self.port.0),
            index: self.sent,
            chunk_log2: 20,
            content_len: u64::from(u32::MAX) << 20,
            kind: ContentKind::File,
            reliability: Reliability::Nack,
            file_name: String::new(),
            proof: Bytes::new(),
            payload,
        }
    }

    fn step(&mut self, now: Time) {
        while let Some(event) = self.hop.poll_event() {
            if let HopEvent::Received { room, .. } = event {
                drop(room);
                self.hop.room_released(now, &mut self.buffer);
            }
        }
        while self.hop.ready_for() > 0 {
            let (head, body) = self.chunk().into_pieces();
            self.hop.send(now, u64::from(self.sent), head, body);
        }
        let mut buffer = Vec::new();
        while self.to_router.len() < 256
            && let Some((size, segment)) = self.hop.poll_transmit(now, 16, &mut buffer)
        {
            let start = buffer.len() - size;
            for frame in buffer[start..].chunks(segment.unwrap_or(size).max(1)) {
                let ends_chunk = frame[0] == DATA && frame[FLAGS_AT] & LAST != 0;
                if self.mischief != Mischief::HalfChunks || !ends_chunk {
                    self.to_router.push_back(frame.to_vec());
                }
            }
            buffer.clear();
        }
        if self
            .hop
            .poll_timeout()
            .is_some_and(|deadline| deadline.at <= now)
        {
            self.hop.handle_timeout(now, &mut self.buffer);
        }
    }
}

/// Runs the router among these neighbours.
fn run(mischiefs: &[Mischief], names: Names, rounds: u32) -> Outcome {
    let mut router = Router::new(config(), SeededRng::new(1));
    let info = |link: u32| PortInfo {
        label: String::from("a link"),
        origin: PortOrigin::Configured(link),
        mtu: MTU,
        peer: String::new(),
        medium: Medium::Unaddressed,
    };
    if names == Names::Silent {
        router.handle_port(Time::ZERO, NAME_SERVER, PortEvent::Up(info(0)));
    }
    (1..=NEIGHBOURS).for_each(|number| router.believe(keys(number).guid()));
    let mut neighbours: Vec<Neighbour> = (0..NEIGHBOURS)
        .map(|number| Neighbour::new(number, mischiefs[number % mischiefs.len()]))
        .collect();
    for neighbour in &neighbours {
        router.handle_port(Time::ZERO, neighbour.port, PortEvent::Up(info(1)));
    }
    let (mut now, mut buffer) = (Time::ZERO, Vec::new());
    let (mut most, mut max_chunks) = (0, 0);
    for _ in 0..rounds {
        now += STEP;
        router.handle_timeout(now);
        for number in 0..neighbours.len() {
            neighbours[number].step(now);
            while let Some(frame) = neighbours[number].to_router.pop_front() {
                router.handle_frames(now, neighbours[number].port, &[&frame]);
            }
            while let Some(transmit) = router.poll_transmit(now, 16, &mut buffer) {
                let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
                if let Some(neighbour) = neighbours.get_mut(transmit.port.0 as usize) {
                    for frame in buffer.chunks(segment) {
                        neighbour
                            .hop
                            .handle_frame(now, frame, &mut neighbour.buffer);
                    }
                }
                buffer.clear();
            }
        }
        most = most.max(router.memory().total());
        max_chunks = max_chunks.max(router.status(now).stored_chunks as u64);
    }
    Outcome {
        router,
        max_bytes: most,
        max_stored_chunks: max_chunks,
        now,
    }
}

/// What a run came to.
struct Outcome {
    router: Router,
    /// The most memory that its chunks took at any moment.
    max_bytes: u64,
    max_stored_chunks: u64,
    now: Time,
}

fn bound() -> u64 {
    config().memory_bound(MTU)
}

#[test]
fn a_flood_for_absent_names_and_half_chunks_stay_within_the_formula() {
    use Mischief::{Flood, FloodUnbound, FloodUnstorable, HalfChunks};
    let alone = [[Flood], [FloodUnbound], [FloodUnstorable], [HalfChunks]];
    let all = [Flood, FloodUnbound, FloodUnstorable, HalfChunks];
    for kinds in alone.iter().map(|kind| &kind[..]).chain([&all[..]]) {
        for names in [Names::None, Names::Silent] {
            let outcome = run(kinds, names, 1_000);
            let case = format!("{kinds:?}, {names:?}");
            assert!(
                outcome.max_bytes <= bound(),
                "{case}: {} of {}",
                outcome.max_bytes,
                bound()
            );
            // It was a load: the neighbours sent more than the router may hold of their kind.
            let status = outcome.router.status(outcome.now);
            let offered: u64 = status
                .links
                .iter()
                .map(|link| link.hop.bytes_received)
                .sum();
            assert!(
                offered > 2 * (BUFFER_PACKETS * MTU) as u64,
                "{case}: {offered} bytes"
            );
            if kinds == [Flood] {
                assert!(
                    offered > 2 * config().store.total,
                    "{case}: {offered} bytes"
                );
                assert!(
                    status.counters.drops.contains_key("evicted"),
                    "{:?}",
                    status.counters.drops
                );
            }
        }
    }
}

#[test]
fn what_holds_room_is_within_the_buffer_and_what_is_stored_within_the_storage() {
    let outcome = run(&[Mischief::Flood, Mischief::HalfChunks], Names::None, 1_000);
    let memory = outcome.router.memory();
    assert!(
        memory.buffered_bytes <= (BUFFER_PACKETS * MTU) as u64,
        "{memory:?}"
    );
    assert!(memory.stored_bytes <= config().store.total, "{memory:?}");
}

#[test]
fn chunks_without_content_fill_no_storage_beyond_its_limit() {
    let outcome = run(&[Mischief::EmptyChunks], Names::None, 2_000);
    let tables = outcome.max_stored_chunks * ENTRY;
    assert!(
        tables <= config().store.total,
        "{} chunks are stored",
        outcome.max_stored_chunks
    );
}

#[test]
fn echoes_to_nobody_stay_within_the_formula() {
    let outcome = run(&[Mischief::Echoes], Names::Silent, 2_000);
    assert!(
        outcome.max_bytes <= bound(),
        "{} of {}",
        outcome.max_bytes,
        bound()
    );
}
