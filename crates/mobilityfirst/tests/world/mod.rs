//! Two hosts at one router in virtual time, and programs on their ports.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::{
    Guid, Machine, Medium, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time, WallClock,
};
use whimbrel_gnrs::{KeyPair, MemoryStore, Server, ServerConfig};
use whimbrel_link::{HopConfig, Pacing};
use whimbrel_mobilityfirst::host::{Host, HostConfig};
use whimbrel_mobilityfirst::local::{
    AcceptOffer, ContentOffer, Get, LocalEvent, LocalRequest, MissingParts, OfferVerdict, Publish,
    SendContent, SendState, TransferOptions, greeting,
};
use whimbrel_mobilityfirst::router::{Router, RouterConfig, store::StoreLimits};
use whimbrel_mobilityfirst::wire::{ContentKind, OfferUse};

use crate::support::relay::{Relay, Watch};
use crate::support::{self, no_records};

pub(crate) use crate::support::Content;

/// Later than the clock that machines take for never set, by years.
pub(crate) const WALL: WallClock = WallClock::new(1_800_000_000_000);
fn router_keys() -> KeyPair {
    KeyPair::from_secret(&[101; 32])
}
const UPLINK: PortId = PortId(100);
/// The port of the first program; the others follow.
const PROGRAMS: u32 = 500;
/// The router's link and port to its name server.
const NAME_SERVER: u32 = 900;
const STEP: Duration = Duration::from_millis(1);
/// The smallest chunk.
pub(crate) const CHUNK_LOG2: u8 = 16;

pub(crate) fn info(origin: PortOrigin) -> PortInfo {
    PortInfo {
        label: String::new(),
        origin,
        mtu: 1472,
        peer: String::new(),
        medium: Medium::Unaddressed,
    }
}

/// What a machine sends now, by port.
pub(crate) fn drain(machine: &mut impl Machine, now: Time) -> Vec<(PortId, Vec<u8>)> {
    let (mut frames, mut buffer) = (Vec::new(), Vec::new());
    while let Some(transmit) = machine.poll_transmit(now, 16, &mut buffer) {
        let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
        frames.extend(
            buffer
                .chunks(segment)
                .map(|it| (transmit.port, it.to_vec())),
        );
        buffer.clear();
    }
    frames
}

/// A program behind a socket that holds one frame.
pub(crate) struct Program {
    host: usize,
    port: PortId,
    // It neither reads nor answers.
    stopped: bool,
    unread: VecDeque<Vec<u8>>,
    serves: Vec<Content>,
    fetches: BTreeMap<u32, Content>,
    /// Bytes that came, by request.
    pub(crate) got: BTreeMap<u32, usize>,
    /// Requests that are complete, and when they became it.
    pub(crate) complete: BTreeMap<u32, Time>,
    /// What is missing of requests that ended without it.
    pub(crate) missing: BTreeMap<u32, MissingParts>,
    /// Requests that failed.
    pub(crate) failed: BTreeSet<u32>,
    /// Echoes that came back.
    pub(crate) pongs: usize,
    /// What others offer, in the order in which it was told.
    pub(crate) offers: Vec<ContentOffer>,
    /// The last state of each content that it sends.
    pub(crate) sending: BTreeMap<u32, SendState>,
}

impl Program {
    /// What it says to an event.
    fn answer(&mut self, now: Time, event: LocalEvent) -> Option<LocalRequest> {
        match event {
            LocalEvent::Chunk(chunk) => {
                let request = chunk.request;
                let content = self.fetches.get(&request)?;
                content.check(chunk.index, chunk.chunk_log2, &chunk.data);
                *self.got.entry(request).or_default() += chunk.data.len();
                Some(LocalRequest::Consumed { request })
            }
            LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            } => {
                let known = self.serves.iter().find(|known| known.name() == content);
                let chunk = known.and_then(|content| content.read(index, chunk_log2));
                Some(LocalRequest::ReadDone { read, chunk })
            }
            LocalEvent::Complete { request, .. } => {
                // An empty content has no chunk.
                let got = self.got.get(&request).copied().unwrap_or_default();
                assert_eq!(got, self.fetches[&request].bytes.len());
                self.complete.insert(request, now);
                None
            }
            LocalEvent::Incomplete { request, missing } => {
                self.missing.insert(request, missing);
                None
            }
            LocalEvent::Failed { request, .. } => {
                self.failed.insert(request);
                None
            }
            LocalEvent::Pong { .. } => {
                self.pongs += 1;
                None
            }
            LocalEvent::Offered(offer) => {
                self.offers.push(offer);
                None
            }
            LocalEvent::Sending { request, state, .. } => {
                self.sending.insert(request, state);
                None
            }
            _ => None,
        }
    }
}

/// Two hosts, on the router's ports 0 and 1.
pub(crate) struct World {
    // Its link to a name server, if it has one.
    name_servers: Vec<u32>,
    // The name server itself, if it is not out of reach.
    names: Option<Server<MemoryStore>>,
    pub(crate) router: Router,
    pacing: Pacing,
    // Between the router and the second host, if it is there.
    relay: Option<Relay>,
    pub(crate) hosts: [Host; 2],
    pub(crate) connected: [bool; 2],
    pub(crate) programs: Vec<Program>,
    pub(crate) now: Time,
    /// What programs choose from now on.
    pub(crate) options: TransferOptions,
    runs: u64,
}

fn new_router(run: u64, name_servers: Vec<u32>, pacing: Pacing) -> Router {
    let hop = HopConfig {
        pacing,
        incarnation: run,
        ..HopConfig::sealed(&router_keys(), [run as u8; 32], 1472)
    };
    let config = RouterConfig {
        buffer_packets: 4096,
        store: StoreLimits {
            cache: 0,
            total: 64 << 20,
            per_flow: 64 << 20,
            lifetime: Duration::from_secs(600),
        },
        name_servers,
        wall: WALL,
        ..support::router_config(router_keys().guid(), hop)
    };
    Router::new(config, SeededRng::new(9 + run))
}

impl World {
    pub(crate) fn new() -> World {
        World::with_buffers(32_768)
    }

    /// Each host has a back-pressure buffer of so many packets.
    pub(crate) fn with_buffers(buffer_packets: usize) -> World {
        World::with_clock(buffer_packets, WALL)
    }

    /// The router sends at this rate. Nothing takes time here but the turns of the loop, and without a rate it sends all in one
    /// of them.
    pub(crate) fn with_rate(buffer_packets: usize, bits_per_s: u64) -> World {
        let mut world = World::with_buffers(buffer_packets);
        world.pacing = Pacing::Fixed(bits_per_s);
        world.restart_router();
        world.run(Duration::from_secs(5));
        world
    }

    /// The first host has another clock than the router and the second host.
    pub(crate) fn with_clock(buffer_packets: usize, first: WallClock) -> World {
        World::build(buffer_packets, first, Vec::new())
    }

    /// The router is configured with a name server, which is out of reach.
    pub(crate) fn cut_off() -> World {
        World::build(32_768, WALL, vec![NAME_SERVER])
    }

    /// The router has a name server that keeps records in memory.
    pub(crate) fn with_names() -> World {
        let mut world = World::cut_off();
        world.restart_names();
        world
    }

    /// The name server ends, if there is one, and another one starts in its place.
    pub(crate) fn restart_names(&mut self) {
        self.runs += 1;
        let (secret, store) = ([self.runs as u8; 32], no_records());
        let mut server = Server::new(ServerConfig::default(), WALL, secret, store);
        let up = PortEvent::Up(info(PortOrigin::Accepted(0)));
        server.handle_port(self.now, PortId(0), up);
        self.names = Some(server);
    }

    /// The records of the name server.
    pub(crate) fn records(&self) -> &MemoryStore {
        self.names.as_ref().unwrap().store()
    }

    fn build(buffer_packets: usize, first: WallClock, name_servers: Vec<u32>) -> World {
        let host = |number: u8| {
            let wall = if number == 1 { first } else { WALL };
            let keys = KeyPair::from_secret(&[number; 32]);
            let config = HostConfig {
                buffer_packets,
                hop: HopConfig::sealed(&keys, [number; 32], 1472),
                ..HostConfig::new(keys, wall)
            };
            Host::new(config, SeededRng::new(number.into()))
        };
        let mut world = World {
            router: new_router(1, name_servers.clone(), Pacing::Bottleneck),
            pacing: Pacing::Bottleneck,
            name_servers,
            names: None,
            relay: None,
            hosts: [host(1), host(2)],
            connected: [true, true],
            programs: Vec::new(),
            now: Time::ZERO,
            options: TransferOptions {
                chunk_log2: CHUNK_LOG2,
                ..TransferOptions::default()
            },
            runs: 1,
        };
        for host in &mut world.hosts {
            let up = PortEvent::Up(info(PortOrigin::Configured(0)));
            host.handle_port(world.now, UPLINK, up);
        }
        world.connect_router();
        world.run(Duration::from_secs(1));
        world
    }

    /// A host's interface goes, and nothing reaches it.
    pub(crate) fn sleep(&mut self, host: usize) {
        self.connected[host] = false;
        self.hosts[host].handle_port(self.now, UPLINK, PortEvent::Down);
    }

    /// A host's interface comes again.
    pub(crate) fn wake(&mut self, host: usize) {
        self.connected[host] = true;
        let up = PortEvent::Up(info(PortOrigin::Configured(0)));
        self.hosts[host].handle_port(self.now, UPLINK, up);
    }

    fn connect_router(&mut self) {
        for number in &self.name_servers {
            let up = PortEvent::Up(info(PortOrigin::Configured(*number)));
            self.router.handle_port(self.now, PortId(*number), up);
        }
        for port in [PortId(0), PortId(1)] {
            let up = PortEvent::Up(info(PortOrigin::Configured(0)));
            self.router.handle_port(self.now, port, up);
        }
    }

    /// The router ends and starts again: all that it held is lost.
    pub(crate) fn restart_router(&mut self) {
        self.runs += 1;
        self.router = new_router(self.runs, self.name_servers.clone(), self.pacing);
        self.connect_router();
    }

    /// Lets time go on.
    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += STEP;
            self.step();
        }
    }

    /// Lets time go on until something is so, for at most `span`; true if it became so.
    pub(crate) fn run_until(&mut self, span: Duration, is_so: impl Fn(&World) -> bool) -> bool {
        let end = self.now + span;
        while self.now < end && !is_so(self) {
            self.now += STEP;
            self.step();
        }
        is_so(self)
    }

    fn step(&mut self) {
        let now = self.now;
        self.router.handle_timeout(now);
        for number in 0..self.hosts.len() {
            self.hosts[number].handle_timeout(now);
            loop {
                self.drain_host(number);
                if !self.let_programs_answer(number) {
                    break;
                }
            }
        }
        for (port, frame) in drain(&mut self.router, now) {
            let number = port.0 as usize;
            if let (1, Some(relay)) = (number, &mut self.relay) {
                relay.handle_frames(now, PortId(1), &[&frame]);
                continue;
            }
            if let (NAME_SERVER, Some(names)) = (port.0, &mut self.names) {
                names.handle_frames(now, PortId(0), &[&frame]);
            }
            if self.connected.get(number) == Some(&true) {
                self.hosts[number].handle_frames(now, UPLINK, &[&frame]);
            }
        }
        self.let_names_answer();
        self.let_relay_pass();
    }

    /// From now on a node between the router and the second host sees each chunk.
    pub(crate) fn watch(&mut self, watch: Watch) {
        let hops = [router_keys(), KeyPair::from_secret(&[2; 32])];
        let hops = hops.map(|keys| HopConfig::sealed(&keys, [77; 32], 1472));
        let mut relay = Relay::new(hops, watch);
        for port in [PortId(0), PortId(1)] {
            let up = PortEvent::Up(info(PortOrigin::Configured(0)));
            relay.handle_port(self.now, port, up);
        }
        self.relay = Some(relay);
        self.sleep(1);
        self.run(Duration::from_secs(1));
        self.wake(1);
        self.run(Duration::from_secs(5));
    }

    fn let_relay_pass(&mut self) {
        let Some(relay) = &mut self.relay else { return };
        relay.handle_timeout(self.now);
        for (port, frame) in drain(relay, self.now) {
            match port {
                PortId(0) if self.connected[1] => {
                    self.hosts[1].handle_frames(self.now, UPLINK, &[&frame]);
                }
                PortId(0) => {}
                _ => self.router.handle_frames(self.now, PortId(1), &[&frame]),
            }
        }
    }

    fn let_names_answer(&mut self) {
        let Some(names) = &mut self.names else { return };
        names.handle_timeout(self.now);
        while names.poll_event().is_some() {}
        for (_, frame) in drain(names, self.now) {
            let port = PortId(NAME_SERVER);
            self.router.handle_frames(self.now, port, &[&frame]);
        }
    }

    /// Takes what a host sends to the router and to its programs.
    fn drain_host(&mut self, number: usize) {
        let (now, mut buffer) = (self.now, Vec::new());
        let host = &mut self.hosts[number];
        while let Some(transmit) = host.poll_transmit(now, 16, &mut buffer) {
            let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
            let program = self.programs.iter_mut().find(|it| it.port == transmit.port);
            if let Some(program) = program {
                program.unread.push_back(buffer.clone());
                host.handle_port(now, program.port, PortEvent::Blocked);
            } else if self.connected[number] {
                let port = PortId(number as u32);
                for frame in buffer.chunks(segment) {
                    match &mut self.relay {
                        Some(relay) if number == 1 => {
                            relay.handle_frames(now, PortId(0), &[frame]);
                        }
                        _ => self.router.handle_frames(now, port, &[frame]),
                    }
                }
            }
            buffer.clear();
        }
    }

    /// Has programs read what is there; true if there was anything.
    fn let_programs_answer(&mut self, number: usize) -> bool {
        let (now, mut read) = (self.now, false);
        let host = &mut self.hosts[number];
        let programs = self.programs.iter_mut();
        for program in programs.filter(|it| it.host == number && !it.stopped) {
            while let Some(frame) = program.unread.pop_front() {
                read = true;
                host.handle_port(now, program.port, PortEvent::Writable);
                let answer = match LocalEvent::decode(&frame.into()) {
                    Ok(event) => program.answer(now, event),
                    Err(_) => None, // The greeting.
                };
                if let Some(request) = answer {
                    host.handle_frames(now, program.port, &[&encoded(&request)]);
                }
            }
        }
        read
    }

    /// Attaches a program to a host.
    pub(crate) fn attach(&mut self, host: usize) -> usize {
        let port = PortId(PROGRAMS + self.programs.len() as u32);
        let up = PortEvent::Up(info(PortOrigin::Local));
        self.hosts[host].handle_port(self.now, port, up);
        self.hosts[host].handle_frames(self.now, port, &[&greeting()]);
        self.programs.push(Program {
            host,
            port,
            stopped: false,
            unread: VecDeque::new(),
            serves: Vec::new(),
            fetches: BTreeMap::new(),
            got: BTreeMap::new(),
            complete: BTreeMap::new(),
            missing: BTreeMap::new(),
            failed: BTreeSet::new(),
            pongs: 0,
            offers: Vec::new(),
            sending: BTreeMap::new(),
        });
        self.programs.len() - 1
    }

    /// A program says something to its host.
    pub(crate) fn say(&mut self, program: usize, request: &LocalRequest) {
        let Program { host, port, .. } = self.programs[program];
        self.hosts[host].handle_frames(self.now, port, &[&encoded(request)]);
    }

    /// A program ends.
    pub(crate) fn leave(&mut self, program: usize) {
        let Program { host, port, .. } = self.programs[program];
        self.programs[program].stopped = true;
        self.hosts[host].handle_port(self.now, port, PortEvent::Down);
    }

    /// A program neither reads nor answers any more, or does again.
    pub(crate) fn stop(&mut self, program: usize, stopped: bool) {
        self.programs[program].stopped = stopped;
    }

    /// A program offers a content.
    pub(crate) fn serve(&mut self, program: usize, content: &Content) {
        self.serve_now(program, content);
        self.run(Duration::from_millis(50));
    }

    /// The same, without waiting for the announcement.
    pub(crate) fn serve_now(&mut self, program: usize, content: &Content) {
        self.programs[program].serves.push(content.clone());
        let publish = Publish {
            file_name: String::from("content"),
            ..content.publish()
        };
        self.say(program, &LocalRequest::Publish(publish, self.options));
    }

    /// A program asks for a content.
    pub(crate) fn get(&mut self, program: usize, request: u32, content: &Content, in_order: bool) {
        let fetches = &mut self.programs[program].fetches;
        fetches.insert(request, content.clone());
        let get = LocalRequest::Get(Get {
            options: self.options,
            ..get_request(request, content, in_order)
        });
        self.say(program, &get);
    }

    /// A program sends a content to a host.
    pub(crate) fn push(
        &mut self,
        program: usize,
        request: u32,
        content: &Content,
        destination: Guid,
    ) {
        self.programs[program].serves.push(content.clone());
        let send = LocalRequest::Send(SendContent {
            request,
            destination,
            options: self.options,
            proposed: OfferUse::File,
            content: Publish {
                content: content.name(),
                content_len: content.bytes.len() as u64,
                kind: ContentKind::File,
                file_name: String::from("content"),
            },
        });
        self.say(program, &send);
    }

    /// A program takes what is offered to its host.
    pub(crate) fn take_offers(&mut self, program: usize) {
        self.say(program, &LocalRequest::TakeOffers);
    }

    /// A program accepts an offer.
    pub(crate) fn accept(
        &mut self,
        program: usize,
        request: u32,
        offer: &ContentOffer,
        content: &Content,
    ) {
        let fetches = &mut self.programs[program].fetches;
        fetches.insert(request, content.clone());
        let get = Get {
            options: self.options,
            ..get_request(request, content, false)
        };
        let id = offer.id;
        self.say(program, &LocalRequest::Accept(AcceptOffer { id, get }));
    }

    /// A program decides about an offer.
    pub(crate) fn settle(&mut self, program: usize, offer: &ContentOffer, verdict: OfferVerdict) {
        let settled = LocalRequest::Settle {
            id: offer.id,
            content: offer.content.content,
            verdict,
        };
        self.say(program, &settled);
    }

    /// True if a program's request is complete.
    pub(crate) fn has(&self, program: usize, request: u32) -> bool {
        self.programs[program].complete.contains_key(&request)
    }
}

pub(crate) fn get_request(request: u32, content: &Content, in_order: bool) -> Get {
    Get {
        in_order,
        ..support::get(request, content.name(), CHUNK_LOG2)
    }
}

fn encoded(request: &LocalRequest) -> Vec<u8> {
    let mut frame = Vec::new();
    let tail = request.encode_head(&mut frame);
    frame.extend_from_slice(&tail);
    frame
}
