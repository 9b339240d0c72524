//! Hosts that connect to a host directly, one of them under another's name.

use core::time::Duration;

use whimbrel_core::{
    Deadline, Guid, Machine, OpenRefusal, PortEvent, PortId, PortInfo, PortOrigin, PortRequest,
    PortToken, SeededRng, Time, Transmit, WallClock,
};
use whimbrel_gnrs::KeyPair;
use whimbrel_lab::simulated::RepeatingContent;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::local::{Get, LocalEvent, LocalRequest, Publish};
use whimbrel_mobilityfirst::wire::{ContentKind, Reliability};
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::{Direction, DuplexLink, LinkId, NodeId, Simulator};

const ORIGIN: WallClock = WallClock::new(1_767_225_600_000);
const APP: u32 = 1;
const CHUNK_LOG2: u8 = 16;

/// A host. The host that others connect to sees inbound peers on its ports.
struct OneOf {
    host: Host,
    is_called: bool,
}

impl Machine for OneOf {
    type Event = HostEvent;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        let event = match event {
            PortEvent::Up(info) if self.is_called => PortEvent::Up(PortInfo {
                origin: PortOrigin::Accepted(0),
                ..info
            }),
            other => other,
        };
        self.host.handle_port(now, port, event);
    }
    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        self.host.handle_frames(now, port, frames);
    }
    fn handle_timeout(&mut self, now: Time) {
        self.host.handle_timeout(now);
    }
    fn poll_transmit(
        &mut self,
        now: Time,
        segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.host.poll_transmit(now, segments, buffer)
    }
    fn poll_event(&mut self) -> Option<HostEvent> {
        self.host.poll_event()
    }
    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.host.poll_port_request()
    }
    fn poll_timeout(&self) -> Option<Deadline> {
        self.host.poll_timeout()
    }
}

fn keys(of: u8) -> KeyPair {
    KeyPair::from_secret(&[of; 32])
}

/// Returns the host of key `of`, which gives the name `named` in its greetings.
fn host(of: u8, named: Guid, is_called: bool) -> OneOf {
    let mut config = HostConfig::new(keys(of), ORIGIN);
    config.hop.local = named;
    OneOf {
        host: Host::new(config, SeededRng::new(u64::from(of))),
        is_called,
    }
}

struct World {
    sim: Simulator<OneOf>,
    content: RepeatingContent,
    server: NodeId,
    client: NodeId,
    fetched: u64,
    finished: bool,
}

impl World {
    fn new() -> World {
        let mut sim = Simulator::new(1);
        let server = sim.add_node("server", host(1, keys(1).guid(), true));
        let client = sim.add_node("client", host(2, keys(2).guid(), false));
        World {
            sim,
            content: RepeatingContent::new(2_000_000, 1),
            server,
            client,
            fetched: 0,
            finished: false,
        }
    }

    fn connect(&mut self, caller: NodeId) -> LinkId {
        let link = DuplexLink::symmetric(LinkSpec::new(100_000_000, Duration::from_millis(1)));
        self.sim
            .connect(self.server, caller, &link)
            .expect("a link")
            .link
    }

    fn request(&mut self, node: NodeId, request: LocalRequest) {
        self.sim
            .with_node(node, |machine, now| machine.host.request(now, APP, request));
    }

    fn run_until(&mut self, end: Time) {
        self.sim.schedule(end, |_| {});
        while self.sim.now() < end && self.sim.step() {
            while let Some(occurrence) = self.sim.poll_event() {
                match occurrence.event.event {
                    LocalEvent::Read {
                        read,
                        index,
                        chunk_log2,
                        ..
                    } => {
                        let chunk = self.content.read(index, chunk_log2);
                        self.request(self.server, LocalRequest::ReadDone { read, chunk });
                    }
                    LocalEvent::Chunk(chunk) => {
                        self.fetched += chunk.data.len() as u64;
                        self.request(
                            self.client,
                            LocalRequest::Consumed {
                                request: chunk.request,
                            },
                        );
                    }
                    LocalEvent::Complete { .. } => self.finished = true,
                    _ => {}
                }
            }
        }
    }

    fn fetch(&mut self) {
        let content = self.content.name();
        self.request(
            self.server,
            LocalRequest::Publish(Publish {
                content,
                content_len: self.content.len(),
                kind: ContentKind::File,
                file_name: String::from("content"),
            }),
        );
        let get = Get {
            request: 7,
            content,
            chunk_log2: CHUNK_LOG2,
            in_order: false,
            reliability: Reliability::Nack,
            nack_timeout_ms: 0,
            credit: 8,
            resume: bytes::Bytes::new(),
        };
        self.request(self.client, LocalRequest::Get(get));
    }
}

#[test]
fn an_impostor_under_the_name_of_another_peer_gets_none_of_its_data() {
    for impostor_first in [true, false] {
        let mut world = World::new();
        let impostor = world
            .sim
            .add_node("impostor", host(3, keys(2).guid(), false));
        let (its_link, client) = (impostor, world.client);
        let link = if impostor_first {
            let link = world.connect(its_link);
            world.run_until(Time::from_secs(1));
            world.connect(client);
            link
        } else {
            world.connect(client);
            world.run_until(Time::from_secs(1));
            world.connect(its_link)
        };
        world.run_until(Time::from_secs(2));
        world.fetch();
        world.run_until(Time::from_secs(20));
        assert!(world.finished, "impostor first: {impostor_first}");
        assert_eq!(world.fetched, world.content.len());
        let leaked = world.sim.link_stats(link, Direction::AToB).delivered_bytes;
        assert!(
            leaked < 20_000,
            "{leaked} bytes went to the impostor, who asked for nothing"
        );
    }
}
