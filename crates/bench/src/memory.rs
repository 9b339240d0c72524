//! A router's resident memory while its neighbours send more than it can forward.
//!
//! A real daemon on this machine's loopback, and hostile neighbours in this process: some send
//! whole chunks to an address without a route, some never send the end of a chunk.
//! `crates/mobilityfirst/tests/memory.rs` compares the state machine's own count with the same
//! formula.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use whimbrel_core::KeyPair;
use whimbrel_core::units::ByteSize;
use whimbrel_core::{Guid, SeededRng, Time, WallClock};
use whimbrel_lab::scratch;
use whimbrel_link::{Buffer, Hop, HopConfig, HopEvent};
use whimbrel_mobilityfirst::chunk::{Chunk, Message};
use whimbrel_mobilityfirst::wire::{NetworkHeader, ServiceId, UpperProtocol};
use whimbrel_node::compose::{self, Start};
use whimbrel_node::config::{HopSection, MobilityFirstPlan, RouterSection, StorageSection};

use crate::processes::RunningRouter;
use crate::usage::peak_resident_bytes;
use crate::{Bench, BenchError, Part, Quantity, Row, Target};

/// The router's limits, for its configuration file and for the formula.
const BUFFER_PACKETS: usize = 4096;
const CHUNK_LIMIT: usize = 1 << 20;
const CHUNKS_IN_FLIGHT: u16 = 8;
const STORED_BYTES: u64 = 64 << 20;
const FLOW_BYTES: u64 = 16 << 20;

const NEIGHBOURS: usize = 16;
/// Frames on the loopback as on Ethernet, bytes.
const MTU: usize = 1472;
/// Bytes of a chunk: a little less than a mebibyte, with its header.
const CHUNK_BYTES: usize = 1_000_000;
const DURATION: Duration = Duration::from_secs(10);
const QUICK_DURATION: Duration = Duration::from_secs(2);
/// Frames that a neighbour sends before the next one's turn.
const TURN: usize = 64;
/// A DATA frame's first byte, and the flag of a chunk's last packet (docs/protocols/hop.md).
const DATA: u8 = 0x11;
const LAST: u8 = 1;

pub(crate) fn run(bench: &mut Bench<'_>) {
    bench.measure("a flood", |options, _| {
        let folder = scratch::folder("whimbrel-bench-")?;
        let text = format!(
            "[hop]\nbuffer_packets = {BUFFER_PACKETS}\nchunk_limit = \"{CHUNK_LIMIT} B\"\n\
             max_chunks_in_flight = {CHUNKS_IN_FLIGHT}\n\n[storage]\ntotal = \"{STORED_BYTES} B\"\n\
             per_flow = \"{FLOW_BYTES} B\"\n"
        );
        let router = RunningRouter::start(options, folder.path(), &text)?;
        let idle = peak_resident_bytes(router.process.id())?;
        let duration = if options.quick {
            QUICK_DURATION
        } else {
            DURATION
        };
        let offered = flood(router.address, duration, options.seed)?;
        let peak = peak_resident_bytes(router.process.id())?;
        let bound = bound();
        Ok(vec![Row {
            part: Part::Memory,
            backend: None,
            what: format!("{NEIGHBOURS} hostile neighbours, {} s", duration.as_secs()),
            ours: Quantity::Bytes(peak as f64),
            peer: Some((
                String::from("allowed"),
                Quantity::Bytes((idle + bound) as f64),
            )),
            target: Some(Target::AtMost(1.0)),
            note: None,
            details: json!({
                "idle_bytes": idle,
                "formula_bytes": bound,
                "offered_bytes": offered,
                "buffer_packets": BUFFER_PACKETS,
                "chunk_limit_bytes": CHUNK_LIMIT,
                "chunks_in_flight": CHUNKS_IN_FLIGHT,
                "stored_limit_bytes": STORED_BYTES,
                "neighbours": NEIGHBOURS,
            }),
        }])
    });
}

/// `docs/protocols/mobilityfirst.md`, "Memory of a router".
fn bound() -> u64 {
    let keys = KeyPair::from_secret(&[1; 32]);
    let hop = HopSection {
        buffer_packets: BUFFER_PACKETS,
        chunk_limit: ByteSize(CHUNK_LIMIT as u64),
        max_chunks_in_flight: CHUNKS_IN_FLIGHT,
        ..HopSection::default()
    };
    let storage = StorageSection {
        total: ByteSize(STORED_BYTES),
        per_flow: ByteSize(FLOW_BYTES),
        ..StorageSection::default()
    };
    let start = Start {
        hop: hop.hop_config(&keys, 1, [1; 32], true),
        keys,
        wall: WallClock::new(0),
        rng: SeededRng::new(1),
    };
    let plan = MobilityFirstPlan::new(hop, &storage, &RouterSection::default(), Vec::new());
    compose::router_config(&plan, &start).memory_bound(MTU)
}

/// A neighbour that sends undeliverable chunks.
struct Neighbour {
    socket: UdpSocket,
    hop: Hop,
    buffer: Buffer,
    number: u32,
    /// Whether it never sends the last packet of a chunk.
    half: bool,
    sent: u32,
    payload: Bytes,
}

/// Returns the number of bytes that the neighbours sent.
fn flood(router: SocketAddr, duration: Duration, seed: u64) -> Result<u64, BenchError> {
    let payload = Bytes::from(vec![7; CHUNK_BYTES]);
    let neighbours =
        (0..NEIGHBOURS).map(|number| Neighbour::new(number, router, seed, payload.clone()));
    let mut neighbours = neighbours.collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    while start.elapsed() < duration {
        let mut quiet = true;
        for neighbour in &mut neighbours {
            let now = Time::ZERO + start.elapsed();
            quiet &= !neighbour.turn(now);
        }
        if quiet {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(neighbours
        .iter()
        .map(|neighbour| neighbour.hop.stats().bytes_sent)
        .sum())
}

impl Neighbour {
    fn new(
        number: usize,
        router: SocketAddr,
        seed: u64,
        payload: Bytes,
    ) -> Result<Neighbour, BenchError> {
        let socket = UdpSocket::bind("127.0.0.1:0").and_then(|socket| {
            socket.connect(router)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let secret = [number as u8 + 2; 32];
        let hop = HopConfig::plain(&KeyPair::from_secret(&secret), secret, MTU);
        let rng = SeededRng::stream(seed, &format!("neighbour {number}"));
        Ok(Neighbour {
            socket: socket.map_err(BenchError::system("open a socket for a neighbour"))?,
            hop: Hop::new(hop, rng, Time::ZERO),
            buffer: Buffer::new(BUFFER_PACKETS),
            number: number as u32,
            half: number % 2 == 1,
            sent: 0,
            payload,
        })
    }

    /// Receives and sends frames; returns false if there were none.
    fn turn(&mut self, now: Time) -> bool {
        let mut busy = false;
        let mut frame = [0; MTU];
        while let Ok(size) = self.socket.recv(&mut frame) {
            busy = true;
            self.hop.handle_frame(now, &frame[..size], &mut self.buffer);
        }
        if self
            .hop
            .poll_timeout()
            .is_some_and(|deadline| deadline.at <= now)
        {
            self.hop.handle_timeout(now, &mut self.buffer);
        }
        while let Some(event) = self.hop.poll_event() {
            if let HopEvent::Received { room, .. } = event {
                drop(room);
            }
        }
        while self.hop.ready_for() > 0 {
            let (head, body) = self.chunk().into_pieces();
            self.hop.send(now, self.sent.into(), head, body);
        }
        let mut buffer = Vec::with_capacity(MTU);
        for _ in 0..TURN {
            buffer.clear();
            if self.hop.poll_transmit(now, 1, &mut buffer).is_none() {
                break;
            }
            busy = true;
            let ends_chunk = buffer[0] == DATA && buffer[1] & LAST != 0;
            if !(self.half && ends_chunk) {
                // Frames that a full socket refuses are lost, as on any link.
                let _ = self.socket.send(&buffer);
            }
        }
        busy
    }

    /// A chunk to an address without a route: it is stored until others evict it.
    fn chunk(&mut self) -> Chunk {
        self.sent += 1;
        let mut destination = [3; 32];
        destination[..4].copy_from_slice(&((self.number << 24) | (self.sent % 1000)).to_be_bytes());
        let mut header = NetworkHeader::new(
            ServiceId::DELAY_TOLERANT,
            UpperProtocol::Echo,
            Guid([self.number as u8 + 100; 32]),
            Guid(destination),
        );
        header.destination_address = Guid([200; 32]);
        Chunk {
            header,
            message: Message {
                head: Bytes::new(),
                body: self.payload.clone(),
            },
        }
    }
}
