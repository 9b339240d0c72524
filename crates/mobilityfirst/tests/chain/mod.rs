//! A server and a client with a chain of links between them, in virtual time: the time that a file takes by
//! the size of its chunks.

#![allow(dead_code, reason = "each binary uses a part")]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;

use whimbrel_content::ChunkSize;
use whimbrel_core::{Guid, PortOrigin, SeededRng, Time};
use whimbrel_gnrs::KeyPair;
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::chunk_size;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest, TransferOptions};
use whimbrel_mobilityfirst::router::{NextHop, Route, Router, RouterConfig};
use whimbrel_sim::link::{LinkSpec, Loss, QueueLimit};
use whimbrel_sim::testbed::Net;
use whimbrel_sim::{AnyMachine, DuplexLink};

use crate::support::{APP, Content, OVERHEAD, WALL, get, name_server, no_records, router_config};

/// One link of the chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    /// Bits per second.
    pub(crate) rate: u64,
    /// One way.
    pub(crate) delay: Duration,
    /// Part of the packets that is lost, both ways.
    pub(crate) loss: f64,
}

impl Wire {
    pub(crate) fn new(mbit: u64, delay: Duration) -> Wire {
        Wire {
            rate: mbit * 1_000_000,
            delay,
            loss: 0.0,
        }
    }

    /// A queue of two bandwidth-delay products, 128 KiB at least.
    fn link(&self) -> DuplexLink {
        let product = (u128::from(self.rate) * self.delay.as_micros() / 4_000_000) as u64;
        DuplexLink::symmetric(LinkSpec {
            queue: QueueLimit::Bytes((2 * product).max(128 << 10)),
            overhead: OVERHEAD,
            loss: match self.loss {
                loss if loss > 0.0 => Loss::Independent(loss),
                _ => Loss::None,
            },
            ..LinkSpec::new(self.rate, self.delay)
        })
    }
}

/// The links between server and client, in this order: the nodes between them are routers.
pub(crate) type Path = Vec<Wire>;

struct File {
    content: Content,
    asked: Time,
    received: usize,
    complete: Option<Time>,
}

/// The network.
pub(crate) struct World {
    net: Net<AnyMachine<HostEvent>>,
    server: usize,
    client: usize,
    files: Vec<File>,
    /// Chunks that came, by the binary logarithm of their size.
    pub(crate) chunks: [u32; 23],
}

fn router_keys(router: usize) -> KeyPair {
    KeyPair::from_secret(&[100 + router as u8; 32])
}

fn name_of(router: usize) -> Guid {
    router_keys(router).guid()
}

fn host(secret: u8) -> AnyMachine<HostEvent> {
    let config = HostConfig::new(KeyPair::from_secret(&[secret; 32]), WALL);
    AnyMachine::plain(Host::new(config, SeededRng::new(secret.into())))
}

fn router(number: usize, count: usize) -> Router {
    let others = (0..count).filter(|other| *other != number);
    let routes = others.map(|other| {
        let next = match other < number {
            true => number - 1,
            false => number + 1,
        };
        Route::new(name_of(other), NextHop::Neighbour(name_of(next)))
    });
    let name = name_of(number);
    let config = RouterConfig {
        routes: routes.collect(),
        name_servers: vec![0],
        ..router_config(
            name,
            HopConfig::plain(&router_keys(number), [number as u8; 32], 1472),
        )
    };
    Router::new(config, SeededRng::new(number as u64))
}

impl World {
    pub(crate) fn new(path: &[Wire], seed: u64) -> World {
        let mut net = Net::new(seed);
        let fast = DuplexLink::symmetric(LinkSpec::new(1_000_000_000, Duration::from_micros(50)));
        let count = path.len() - 1;
        let names = (count > 0).then(|| net.add_mortal("names", name_server(no_records())));
        let mut chain = vec![net.add_mortal("server", host(1))];
        for number in 0..count {
            let machine = AnyMachine::new(router(number, count), |never| match never {});
            let node = net.add_mortal(&format!("router {number}"), machine);
            if let Some(names) = names {
                net.connect(node, names, &fast).unwrap();
            }
            chain.push(node);
        }
        chain.push(net.add_mortal("client", host(2)));
        for (ends, wire) in chain.windows(2).zip(path) {
            let mut link = wire.link();
            if count == 0 {
                link = link.with_origins(PortOrigin::Accepted(0), PortOrigin::Configured(0));
            }
            net.connect(ends[0], ends[1], &link).unwrap();
        }
        let mut world = World {
            net,
            server: chain[0],
            client: chain[count + 1],
            files: Vec::new(),
            chunks: [0; 23],
        };
        let delay: Duration = path.iter().map(|wire| wire.delay).sum();
        world.run(Duration::from_secs(2) + delay * 16);
        world
    }

    fn request(&mut self, node: usize, request: LocalRequest) {
        self.net.with(node, |machine, now| {
            let host: &mut Host = machine.get_mut().unwrap();
            host.request(now, APP, request);
        });
    }

    /// The server publishes a file, which is announced after a moment.
    pub(crate) fn publish(&mut self, len: usize) {
        let content = Content::new(len, self.files.len() as u64);
        let publish = LocalRequest::Publish(content.publish(), TransferOptions::default());
        self.request(self.server, publish);
        self.files.push(File {
            content,
            asked: Time::ZERO,
            received: 0,
            complete: None,
        });
    }

    /// The client asks for a published file, in chunks of this size if one is given.
    pub(crate) fn ask(&mut self, file: usize, chunk: Option<ChunkSize>) {
        self.files[file].asked = self.net.now();
        let name = self.files[file].content.name();
        let get = get(file as u32, name, chunk_size::asked(chunk));
        self.request(self.client, LocalRequest::Get(get));
    }

    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.net.now() + span;
        while self.step(end) {}
    }

    /// Runs until all files are complete. Returns how many seconds each of them took, infinity if it
    /// takes longer than `limit`.
    pub(crate) fn finish(&mut self, limit: Duration) -> Vec<f64> {
        let end = self.net.now() + limit;
        let waits = |world: &World| world.files.iter().any(|file| file.complete.is_none());
        while waits(self) && self.step(end) {}
        let took = |file: &File| {
            let complete = file.complete?;
            Some(complete.since(file.asked).as_secs_f64())
        };
        let files = self.files.iter();
        files
            .map(|file| took(file).unwrap_or(f64::INFINITY))
            .collect()
    }

    fn step(&mut self, end: Time) -> bool {
        let more = self.net.step(end);
        while let Some(occurrence) = self.net.sim_mut().poll_event() {
            let at_server = self.net.id(self.server) == occurrence.node;
            let node = if at_server { self.server } else { self.client };
            if let Some(answer) = self.answer(occurrence.event.event) {
                self.request(node, answer);
            }
        }
        more
    }

    fn answer(&mut self, event: LocalEvent) -> Option<LocalRequest> {
        match event {
            LocalEvent::Chunk(chunk) => {
                let file = &mut self.files[chunk.request as usize];
                (file.content).check(chunk.index, chunk.chunk_log2, &chunk.data);
                file.received += chunk.data.len();
                self.chunks[usize::from(chunk.chunk_log2)] += 1;
                let request = chunk.request;
                Some(LocalRequest::Consumed { request })
            }
            LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            } => {
                let mut files = self.files.iter();
                let file = files.find(|file| file.content.name() == content)?;
                let chunk = file.content.read(index, chunk_log2);
                Some(LocalRequest::ReadDone { read, chunk })
            }
            LocalEvent::Complete { request, .. } => {
                let file = &mut self.files[request as usize];
                assert_eq!(file.received, file.content.bytes.len(), "each byte once");
                file.complete = Some(self.net.now());
                None
            }
            LocalEvent::Failed { request, reason } => panic!("{request}: {reason:?}"),
            _ => None,
        }
    }
}

/// Seconds that files, asked for at once, take over a path in chunks of this size, or of the size that
/// the path affords; with the chunks that came, by the logarithm of their size.
pub(crate) fn times_of(
    path: &[Wire],
    lens: &[usize],
    chunk: Option<ChunkSize>,
) -> (Vec<f64>, [u32; 23]) {
    let mut world = World::new(path, 7);
    lens.iter().for_each(|len| world.publish(*len));
    world.run(Duration::from_secs(2));
    (0..lens.len()).for_each(|file| world.ask(file, chunk));
    let times = world.finish(Duration::from_secs(7200));
    (times, world.chunks)
}

/// The time of the last file by our sizes, and the best fixed size with its time.
pub(crate) struct Compared {
    pub(crate) ours: f64,
    pub(crate) size: ChunkSize,
    pub(crate) best: f64,
    pub(crate) best_size: ChunkSize,
}

impl Compared {
    /// Runs the same files with our chunks, and with those of each fixed size.
    pub(crate) fn new(path: &[Wire], lens: &[usize]) -> Compared {
        let last = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
        let (times, chunks) = times_of(path, lens, None);
        let most = (14..=22).max_by_key(|log2| chunks[usize::from(*log2)]);
        let longest = lens.iter().max().map_or(0, |len| *len as u64);
        // Larger chunks than the content are the content.
        let sizes = ChunkSize::all().take_while(|size| size.bytes() < 2 * longest);
        let fixed = sizes.map(|size| (last(&times_of(path, lens, Some(size)).0), size));
        let (best, best_size) = fixed.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        Compared {
            ours: last(&times),
            size: most.and_then(ChunkSize::from_code).unwrap(),
            best,
            best_size,
        }
    }

    pub(crate) fn ratio(&self) -> f64 {
        self.ours / self.best
    }
}
