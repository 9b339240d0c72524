//! Interest-Data exchanges per second of the forwarder alone, on one core, without sockets.
//!
//! In an exchange, an Interest arrives from a consumer's face and leaves on a producer's, and a
//! Data of 1,000 octets returns and leaves to the consumer. The FIB has a million entries, names
//! have 4 to 6 components, and 100,000 Interests are always pending: each Data answers the Interest
//! that arrived 100,000 Interests earlier. With a hit rate, that share of the Interests names Data
//! in the content store, and ends there.
//!
//! Time is the thread's processor time. `cargo bench -p whimbrel-forwarder` prints one line for
//! each case; arguments select cases by a part of their names.

use std::hint::black_box;

use whimbrel_core::{SeededRng, Time, WallClock};
use whimbrel_forwarder::{CsConfig, CsPolicy, FaceId, FaceSpec, Forwarder, ForwarderConfig};
use whimbrel_ndn_packet::{Data, DigestSigner, Interest, LpPacket, Name};

const EXCHANGES: u64 = 3_000_000;
/// Exchanges before the measurement: they fill a content store of 128 MiB.
const WARM_UP: u64 = 300_000;
/// Packets that arrive together, as from one receive call of a busy socket.
const BATCH: usize = 64;

/// The sizes of the tables.
#[derive(Clone, Copy)]
struct Scale {
    prefixes: u64,
    pending: u64,
}

const FULL: Scale = Scale {
    prefixes: 1_000_000,
    pending: 100_000,
};
/// All tables fit in the processor's caches, so that only instructions take time.
const SMALL: Scale = Scale {
    prefixes: 1_000,
    pending: 100,
};
const DATA_SIZE: usize = 1000;

/// A packet with room for a number in its name, and for an Interest in its nonce: writing one costs
/// a few nanoseconds, as receiving it from a socket does.
#[derive(Clone)]
struct Template {
    wire: Vec<u8>,
    prefix_at: usize,
    object_at: usize,
    nonce_at: Option<usize>,
}

/// Names by their number of components: `/site/PREFIX[/x[/y]]/OBJECT/seg`. The prefix has two
/// components.
fn name(components: usize) -> Name {
    let mut name = Name::root()
        .child_generic(b"site")
        .child_generic(b"PPPPPPPP");
    for middle in [&b"video"[..], b"v1"].iter().take(components - 4) {
        name = name.child_generic(middle);
    }
    name.child_generic(b"OOOOOOOO").child_generic(b"s")
}

fn find(wire: &[u8], what: &[u8]) -> usize {
    wire.windows(what.len())
        .position(|window| window == what)
        .expect("the template has it")
}

impl Template {
    fn new(wire: Vec<u8>) -> Template {
        let (prefix_at, object_at) = (find(&wire, b"PPPPPPPP"), find(&wire, b"OOOOOOOO"));
        let nonce_at = (wire[0] == 5).then(|| find(&wire, b"\x0a\x04NNNN") + 2);
        Template {
            wire,
            prefix_at,
            object_at,
            nonce_at,
        }
    }

    fn interest(components: usize) -> Template {
        let mut interest = Interest::new(name(components));
        interest.nonce = Some(*b"NNNN");
        interest.hop_limit = Some(64);
        Template::new(interest.encode())
    }

    fn data(components: usize) -> Template {
        let mut content = DATA_SIZE;
        loop {
            let mut data = Data::new(name(components), vec![7; content]);
            data.freshness = std::time::Duration::from_secs(10);
            let wire = data.encode(&DigestSigner);
            if wire.len() <= DATA_SIZE {
                return Template::new(wire);
            }
            content -= wire.len() - DATA_SIZE;
        }
    }

    fn number(&mut self, number: u64, prefix: u64) {
        self.wire[self.prefix_at..self.prefix_at + 8].copy_from_slice(&prefix_component(prefix));
        self.wire[self.object_at..self.object_at + 8].copy_from_slice(&number.to_be_bytes());
        if let Some(at) = self.nonce_at {
            let nonce = (number as u32).wrapping_mul(0x9e37_79b1);
            self.wire[at..at + 4].copy_from_slice(&nonce.to_be_bytes());
        }
    }
}

/// Consecutive names have unrelated prefixes.
fn prefix_of(number: u64, scale: Scale) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % scale.prefixes
}

fn prefix_component(number: u64) -> [u8; 8] {
    (number << 20 | 0x5_0000).to_be_bytes()
}

struct Bench {
    scale: Scale,
    forwarder: Forwarder,
    /// Packets per batch.
    batch: usize,
    /// One template for each position in a batch and each length of names.
    interests: Vec<Vec<Template>>,
    data: Vec<Vec<Template>>,
    /// Face, whether it is an Interest, and the length of the name, of each packet in the batch.
    waiting: Vec<(FaceId, bool, usize)>,
    consumer: FaceId,
    producers: Vec<FaceId>,
}

impl Bench {
    fn new(scale: Scale, batch: usize, content_store: CsConfig, strategy: &str) -> Bench {
        let config = ForwarderConfig {
            content_store,
            strategies: vec![(Name::root(), strategy.parse().expect("a name"))],
            ..ForwarderConfig::default()
        };
        let mut forwarder = Forwarder::new(config, WallClock::default(), SeededRng::new(1));
        let face = |forwarder: &mut Forwarder, number: usize| {
            forwarder.add_face(
                Time::ZERO,
                FaceSpec::new(
                    format!("udp4://192.0.2.{number}:6363"),
                    "udp4://192.0.2.1:6363",
                ),
            )
        };
        let consumer = face(&mut forwarder, 2);
        let producers: Vec<FaceId> = (3..11).map(|number| face(&mut forwarder, number)).collect();
        let site = Name::root().child_generic(b"site");
        for prefix in 0..scale.prefixes {
            let name = site.child_generic(&prefix_component(prefix));
            let producer = producers[prefix as usize % producers.len()];
            forwarder
                .fib_mut()
                .add_next_hop(name.as_ref(), producer, 10)
                .expect("short prefixes");
        }
        Bench {
            scale,
            forwarder,
            batch,
            interests: vec![(4..=6).map(Template::interest).collect(); batch],
            data: vec![(4..=6).map(Template::data).collect(); batch],
            waiting: Vec::new(),
            consumer,
            producers,
        }
    }

    /// Puts an Interest into the batch.
    fn interest(&mut self, number: u64) {
        let template = &mut self.interests[self.waiting.len()][number as usize % 3];
        template.number(number, prefix_of(number, self.scale));
        self.waiting
            .push((self.consumer, true, number as usize % 3));
    }

    /// Puts a Data into the batch.
    fn data(&mut self, number: u64) {
        let prefix = prefix_of(number, self.scale);
        let template = &mut self.data[self.waiting.len()][number as usize % 3];
        template.number(number, prefix);
        let producer = self.producers[prefix as usize % self.producers.len()];
        self.waiting.push((producer, false, number as usize % 3));
    }

    /// Processes the batch if it is full, or in any case.
    fn flush(&mut self, now: Time, in_any_case: bool) {
        if !in_any_case && self.waiting.len() + 2 <= self.batch {
            return;
        }
        let packets: Vec<(FaceId, LpPacket<'_>)> = self
            .waiting
            .iter()
            .enumerate()
            .map(|(place, (face, is_interest, kind))| {
                let templates = if *is_interest {
                    &self.interests
                } else {
                    &self.data
                };
                let wire = &templates[place][*kind].wire;
                (*face, LpPacket::decode(wire, false).expect("a packet"))
            })
            .collect();
        match packets.as_slice() {
            packets if self.batch > 2 => self.forwarder.handle_packets(now, packets),
            packets => {
                packets
                    .iter()
                    .for_each(|(face, lp)| self.forwarder.handle_packet(now, *face, lp));
            }
        }
        self.waiting.clear();
        while let Some(sent) = self.forwarder.poll_send() {
            black_box(&sent);
        }
    }

    /// Fills the PIT, then runs exchanges of which `hit_percent` end in the content store, and
    /// returns the rate per second.
    fn run(&mut self, exchanges: u64, hit_percent: u64) -> f64 {
        let mut rng = SeededRng::new(2);
        let mut fresh = 0;
        // Interests follow the order of names; those of hits are among the last that were answered.
        for number in 0..self.scale.pending {
            self.interest(number);
            self.flush(Time::ZERO, true);
            fresh = number + 1;
        }
        let (mut start, mut counted) = (0.0, 0);
        for step in 0..WARM_UP + exchanges {
            if step == WARM_UP {
                counted = self.forwarder.counters().cs_hits;
                start = processor_time();
            }
            // A microsecond each: the target rate.
            let now = Time::from_nanos(step * 1000);
            let answered = fresh - self.scale.pending;
            if step % 64 == 0 {
                self.forwarder.handle_timeout(now);
            }
            if rng.below(100) < hit_percent && answered > BATCH as u64 + 5_000 {
                // Not of this batch: the Data is certainly in the store.
                let back = BATCH as u64 + rng.below(answered.min(5_000));
                self.interest(answered - back);
            } else {
                self.data(answered);
                self.interest(fresh);
                fresh += 1;
            }
            self.flush(now, step + 1 == WARM_UP + exchanges);
        }
        let hits = self.forwarder.counters().cs_hits - counted;
        let expected = exchanges * hit_percent / 100;
        assert!(hits.abs_diff(expected) <= exchanges / 200, "{hits} hits");
        exchanges as f64 / (processor_time() - start)
    }
}

/// Seconds of processor time of this thread: other programs on the machine do not count.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let cs = |capacity: usize, policy| CsConfig {
        capacity,
        policy,
        ..CsConfig::default()
    };
    const BEST_ROUTE: &str = "/localhost/nfd/strategy/best-route";
    let cases = [
        (
            "no content store",
            FULL,
            BATCH,
            cs(0, CsPolicy::Lru),
            0,
            BEST_ROUTE,
        ),
        (
            "hits 0 %, 128 MiB S3-FIFO",
            FULL,
            BATCH,
            cs(128 << 20, CsPolicy::S3Fifo),
            0,
            BEST_ROUTE,
        ),
        (
            "hits 50 %, 128 MiB S3-FIFO",
            FULL,
            BATCH,
            cs(128 << 20, CsPolicy::S3Fifo),
            50,
            BEST_ROUTE,
        ),
        (
            "hits 0 %, 128 MiB LRU",
            FULL,
            BATCH,
            cs(128 << 20, CsPolicy::Lru),
            0,
            BEST_ROUTE,
        ),
        (
            "hits 50 %, 128 MiB LRU",
            FULL,
            BATCH,
            cs(128 << 20, CsPolicy::Lru),
            50,
            BEST_ROUTE,
        ),
        (
            "hits 0 %, 2 GiB S3-FIFO",
            FULL,
            BATCH,
            cs(2 << 30, CsPolicy::S3Fifo),
            0,
            BEST_ROUTE,
        ),
        (
            "hits 0 %, 128 MiB S3-FIFO, asf",
            FULL,
            BATCH,
            cs(128 << 20, CsPolicy::S3Fifo),
            0,
            "/localhost/nfd/strategy/asf",
        ),
        (
            "one by one, no content store",
            FULL,
            2,
            cs(0, CsPolicy::Lru),
            0,
            BEST_ROUTE,
        ),
        (
            "one by one, 0 %, 128 MiB S3-FIFO",
            FULL,
            2,
            cs(128 << 20, CsPolicy::S3Fifo),
            0,
            BEST_ROUTE,
        ),
        (
            "small tables, no content store",
            SMALL,
            BATCH,
            cs(0, CsPolicy::Lru),
            0,
            BEST_ROUTE,
        ),
        (
            "small tables, 1 MiB LRU",
            SMALL,
            BATCH,
            cs(1 << 20, CsPolicy::Lru),
            0,
            BEST_ROUTE,
        ),
        (
            "small tables, 1 MiB S3-FIFO",
            SMALL,
            BATCH,
            cs(1 << 20, CsPolicy::S3Fifo),
            0,
            BEST_ROUTE,
        ),
    ];
    println!(
        "1,000,000 FIB entries, 100,000 pending, Data of {DATA_SIZE} octets, {EXCHANGES} exchanges, {BATCH} packets together"
    );
    for (label, scale, batch, content_store, hit_percent, strategy) in cases {
        if !wanted.is_empty() && !wanted.iter().any(|part| label.contains(part.as_str())) {
            continue;
        }
        let mut bench = Bench::new(scale, batch, content_store, strategy);
        let rate = bench.run(EXCHANGES, hit_percent);
        let counters = bench.forwarder.counters();
        assert_eq!(
            counters.out_data,
            WARM_UP + EXCHANGES,
            "every exchange ends with a Data"
        );
        assert_eq!(bench.forwarder.pit().len() as u64, scale.pending);
        println!(
            "{label:34} {:7.0} exchanges/s   {:5.0} ns each",
            rate,
            1e9 / rate
        );
    }
}
