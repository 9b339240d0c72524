//! Exchanges per second of the forwarder alone: no sockets, one core, tables of a large router.
//!
//! Each Data answers the Interest that arrived 100,000 Interests earlier; consecutive names are
//! unrelated. An Interest for Data in the content store ends there. Packets arrive in batches as
//! from a busy socket: 64 at once. More cases, including single packets: `cargo bench -p
//! whimbrel-forwarder`.

use std::hint::black_box;
use std::ops::Range;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use smallvec::SmallVec;
use whimbrel_core::{SeededRng, Time, WallClock};
use whimbrel_forwarder::{CsConfig, CsPolicy, FaceId, FaceSpec, Forwarder, ForwarderConfig};
use whimbrel_ndn_packet::{Data, DigestSigner, Interest, LpPacket, Name};

use crate::{Bench, BenchError, Part, Quantity, Row, Target};

const WANTED: f64 = 1e6;
const DATA_SIZE: usize = 1_000;
const PRODUCERS: usize = 8;
/// Size of the content store in bytes.
const STORE: usize = 128 << 20;
/// Hits are among this many Data answered last.
const RECENT: u64 = 5_000;
const ROUNDS: usize = 3;
/// Packets per batch.
pub(super) const BATCH: usize = 64;

/// Sizes of the tables, and duration.
#[derive(Clone, Copy)]
struct Scale {
    prefixes: u64,
    pending: u64,
    exchanges: u64,
}

const FULL: Scale = Scale {
    prefixes: 1_000_000,
    pending: 100_000,
    exchanges: 2_000_000,
};
const QUICK: Scale = Scale {
    prefixes: 50_000,
    pending: 5_000,
    exchanges: 50_000,
};

pub(super) fn run(bench: &mut Bench<'_>) {
    for hit_percent in [0, 50] {
        bench.measure(&format!("pipeline, {hit_percent} % hits"), |options, _| {
            let (scale, rounds) = if options.quick {
                (QUICK, 1)
            } else {
                (FULL, ROUNDS)
            };
            let mut pipeline = Pipeline::new(scale, options.seed)?;
            let mut rates = Vec::new();
            for _ in 0..rounds {
                rates.push(pipeline.measure(hit_percent)?);
            }
            rates.sort_by(f64::total_cmp);
            let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
            Ok(vec![Row {
                part: Part::Ndn,
                backend: None,
                what: format!("pipeline alone, one core, {hit_percent} % hits"),
                ours: Quantity::ExchangesPerS(median),
                peer: Some((String::from("wanted"), Quantity::ExchangesPerS(WANTED))),
                target: Some(Target::AtLeast(1.0)),
                note: None,
                details: json!({
                    "fib_entries": scale.prefixes,
                    "pit_entries": scale.pending,
                    "data_bytes": DATA_SIZE,
                    "content_store_bytes": STORE,
                    "exchanges": scale.exchanges,
                    "packets_at_once": BATCH,
                    "rounds_exchanges_per_cpu_s": rates,
                }),
            }])
        });
    }
}

/// A packet with room for a prefix, for a number and, in an Interest, for a nonce.
pub(super) struct Template {
    wire: Vec<u8>,
    prefix_at: usize,
    number_at: usize,
    nonce_at: Option<usize>,
}

/// `/site/PREFIX[/x[/y]]/NUMBER/seg`, with a prefix of two components.
fn name(components: usize) -> Name {
    let mut name = Name::root()
        .child_generic(b"site")
        .child_generic(b"PPPPPPPP");
    for middle in [&b"video"[..], b"v1"]
        .iter()
        .take(components.saturating_sub(4))
    {
        name = name.child_generic(middle);
    }
    name.child_generic(b"OOOOOOOO").child_generic(b"s")
}

impl Template {
    pub(super) fn new(wire: Vec<u8>) -> Result<Template, BenchError> {
        let find = |what: &[u8]| wire.windows(what.len()).position(|window| window == what);
        let nonce_at = find(b"\x0a\x04NNNN").map(|at| at + 2);
        match (find(b"PPPPPPPP"), find(b"OOOOOOOO")) {
            (Some(prefix_at), Some(number_at)) => Ok(Template {
                wire,
                prefix_at,
                number_at,
                nonce_at,
            }),
            _ => Err(fault("a packet has lost its name")),
        }
    }

    fn interest(components: usize) -> Result<Template, BenchError> {
        let interest = Interest {
            nonce: Some(*b"NNNN"),
            hop_limit: Some(64),
            ..Interest::new(name(components))
        };
        Template::new(interest.encode())
    }

    fn data(components: usize) -> Result<Template, BenchError> {
        let wire = |content: usize| {
            let data = Data::new(name(components), vec![7; content]);
            Data {
                freshness: Duration::from_secs(10),
                ..data
            }
            .encode(&DigestSigner)
        };
        let overhead = wire(DATA_SIZE).len() - DATA_SIZE;
        Template::new(wire(DATA_SIZE - overhead))
    }

    pub(super) fn fill(&mut self, number: u64, prefix: u64) -> &[u8] {
        let nonce = (number as u32).wrapping_mul(0x9e37_79b1).to_be_bytes();
        patch(&mut self.wire, self.prefix_at, &prefix_component(prefix));
        patch(&mut self.wire, self.number_at, &number.to_be_bytes());
        if let Some(at) = self.nonce_at {
            patch(&mut self.wire, at, &nonce);
        }
        &self.wire
    }
}

fn patch(wire: &mut [u8], at: usize, octets: &[u8]) {
    if let Some(place) = wire.get_mut(at..at + octets.len()) {
        place.copy_from_slice(octets);
    }
}

pub(super) fn prefix_component(number: u64) -> [u8; 8] {
    (number << 20 | 0x5_0000).to_be_bytes()
}

struct Pipeline {
    scale: Scale,
    forwarder: Forwarder,
    interests: [Template; 3],
    data: [Template; 3],
    consumer: FaceId,
    producers: Vec<FaceId>,
    /// The current batch: octets, and the face of each packet in them.
    octets: Vec<u8>,
    waiting: Vec<(FaceId, Range<usize>)>,
    rng: SeededRng,
    /// The next unused number.
    fresh: u64,
    steps: u64,
}

impl Pipeline {
    fn new(scale: Scale, seed: u64) -> Result<Pipeline, BenchError> {
        let content_store = CsConfig {
            capacity: STORE,
            policy: CsPolicy::S3Fifo,
            ..CsConfig::default()
        };
        let config = ForwarderConfig {
            content_store,
            ..ForwarderConfig::default()
        };
        let mut forwarder = Forwarder::new(config, WallClock::default(), SeededRng::new(seed));
        let mut face = |number: usize| {
            let remote = format!("udp4://192.0.2.{number}:6363");
            forwarder.add_face(Time::ZERO, FaceSpec::new(remote, "udp4://192.0.2.1:6363"))
        };
        let consumer = face(2);
        let producers: Vec<FaceId> = (0..PRODUCERS).map(|number| face(3 + number)).collect();
        let site = Name::root().child_generic(b"site");
        for prefix in 0..scale.prefixes {
            let name = site.child_generic(&prefix_component(prefix));
            let producer = *producers
                .get(prefix as usize % PRODUCERS)
                .unwrap_or(&consumer);
            if forwarder
                .fib_mut()
                .add_next_hop(name.as_ref(), producer, 10)
                .is_err()
            {
                return Err(fault("the FIB refuses a prefix"));
            }
        }
        let mut pipeline = Pipeline {
            scale,
            forwarder,
            interests: [
                Template::interest(4)?,
                Template::interest(5)?,
                Template::interest(6)?,
            ],
            data: [Template::data(4)?, Template::data(5)?, Template::data(6)?],
            consumer,
            producers,
            octets: Vec::new(),
            waiting: Vec::new(),
            rng: SeededRng::stream(seed, "hits"),
            fresh: 0,
            steps: 0,
        };
        for number in 0..scale.pending {
            pipeline.interest(number);
            pipeline.fresh = number + 1;
            pipeline.hand_in(Time::ZERO, number + 1 == scale.pending);
        }
        Ok(pipeline)
    }

    /// Adds an Interest to the batch.
    fn interest(&mut self, number: u64) {
        let prefix = prefix_of(number, self.scale);
        if let Some(template) = self.interests.get_mut(number as usize % 3) {
            let start = self.octets.len();
            self.octets.extend_from_slice(template.fill(number, prefix));
            self.waiting.push((self.consumer, start..self.octets.len()));
        }
    }

    /// Adds a Data to the batch.
    fn data(&mut self, number: u64) {
        let prefix = prefix_of(number, self.scale);
        if let Some(template) = self.data.get_mut(number as usize % 3)
            && let Some(producer) = self.producers.get(prefix as usize % PRODUCERS)
        {
            let start = self.octets.len();
            self.octets.extend_from_slice(template.fill(number, prefix));
            self.waiting.push((*producer, start..self.octets.len()));
        }
    }

    /// Processes the batch if it is full, or in any case.
    fn hand_in(&mut self, now: Time, in_any_case: bool) {
        if !in_any_case && self.waiting.len() + 2 <= BATCH {
            return;
        }
        let decoded = self.waiting.iter().filter_map(|(face, place)| {
            Some((
                *face,
                LpPacket::decode(self.octets.get(place.clone())?, false).ok()?,
            ))
        });
        // Filled in its place, as in the router: a batch that is collected and then moved costs a
        // copy of 20 kB, whose time depends on where the two lie on the stack.
        let mut packets: SmallVec<[(FaceId, LpPacket<'_>); BATCH]> = SmallVec::new();
        packets.extend(decoded);
        self.forwarder.handle_packets(now, &packets);
        drop(packets);
        self.octets.clear();
        self.waiting.clear();
        while let Some(sent) = self.forwarder.poll_send() {
            black_box(&sent);
        }
    }

    /// Exchanges per second of this thread's processor time.
    fn measure(&mut self, hit_percent: u64) -> Result<f64, BenchError> {
        let before = (self.forwarder.counters().out_data, thread_time());
        for step in 0..self.scale.exchanges {
            self.steps += 1;
            // A microsecond each: the target rate.
            let now = Time::from_nanos(self.steps * 1000);
            if self.steps.is_multiple_of(64) {
                self.forwarder.handle_timeout(now);
            }
            let answered = self.fresh - self.scale.pending;
            if self.rng.below(100) < hit_percent && answered > BATCH as u64 {
                // Not of the current batch: the Data is certainly in the store.
                let back = BATCH as u64 + self.rng.below(answered.min(RECENT) - BATCH as u64);
                self.interest(answered - back);
            } else {
                self.data(answered);
                self.interest(self.fresh);
                self.fresh += 1;
            }
            self.hand_in(now, step + 1 == self.scale.exchanges);
        }
        let used = (thread_time() - before.1).as_secs_f64();
        let sent = self.forwarder.counters().out_data - before.0;
        if sent != self.scale.exchanges {
            let expected = self.scale.exchanges;
            return Err(fault(&format!(
                "{sent} Data were sent in {expected} exchanges"
            )));
        }
        Ok(sent as f64 / used)
    }
}

fn prefix_of(number: u64, scale: Scale) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % scale.prefixes
}

/// Processor time of this thread: other programs on the machine do not count.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

pub(super) fn fault(said: &str) -> BenchError {
    BenchError::Side {
        what: String::from("the pipeline failed"),
        said: said.to_owned(),
    }
}
