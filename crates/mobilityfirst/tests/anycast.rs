//! The nearest of several hosts, in virtual time: a content that three have, and a service that three are
//! attached by, at distances of 5, 40 and 80 ms from the router of the client.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::{Guid, SeededRng, Time};
use whimbrel_gnrs::KeyPair;
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::local::{
    AcceptOffer, ContentOffer, Delivery, Get, LocalEvent, LocalRequest, OfferVerdict, SendContent,
    SendState, Service, ServiceKey, TransferOptions,
};
use whimbrel_mobilityfirst::router::{NextHop, Route, Router, RouterConfig};
use whimbrel_mobilityfirst::wire::OfferUse;
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::testbed::Net;
use whimbrel_sim::{AnyMachine, DuplexLink};

use crate::support::{APP, Content, WALL, get, name_server, no_records, router_config};

const SECOND: Duration = Duration::from_secs(1);
const DELAYS_MS: [u64; 3] = [5, 40, 80];
/// The client, after the three.
const CLIENT: usize = 3;
const SERVICE: [u8; 32] = [77; 32];

/// What the program of a host has seen.
#[derive(Default)]
struct Seen {
    serves: Vec<Content>,
    /// It does not answer what its host asks for.
    is_silent: bool,
    messages: usize,
    offers: Vec<ContentOffer>,
    complete: Vec<u32>,
    sending: Option<SendState>,
}

struct World {
    net: Net<AnyMachine<HostEvent>>,
    hosts: Vec<usize>,
    seen: Vec<Seen>,
}

fn router_keys(number: usize) -> KeyPair {
    KeyPair::from_secret(&[100 + number as u8; 32])
}

/// The routers of the three are behind that of the client.
fn router(number: usize) -> AnyMachine<HostEvent> {
    let name = |number| router_keys(number).guid();
    let others = (0..=CLIENT).filter(|other| *other != number);
    let towards = |other| if number == CLIENT { other } else { CLIENT };
    let routes =
        others.map(|other| Route::new(name(other), NextHop::Neighbour(name(towards(other)))));
    let hop = HopConfig::plain(&router_keys(number), [number as u8; 32], 1472);
    let config = RouterConfig {
        routes: routes.collect(),
        name_servers: vec![0],
        ..router_config(name(number), hop)
    };
    let router = Router::new(config, SeededRng::new(number as u64));
    AnyMachine::new(router, |never| match never {})
}

fn host(number: usize) -> AnyMachine<HostEvent> {
    let keys = KeyPair::from_secret(&[1 + number as u8; 32]);
    let host = Host::new(HostConfig::new(keys, WALL), SeededRng::new(number as u64));
    AnyMachine::plain(host)
}

impl World {
    fn new() -> World {
        let mut net = Net::new(7);
        let fast = DuplexLink::symmetric(LinkSpec::new(1_000_000_000, Duration::from_micros(50)));
        let names = net.add_mortal("names", name_server(no_records()));
        let (mut hosts, mut routers) = (Vec::new(), Vec::new());
        for number in 0..=CLIENT {
            let at = net.add_mortal(&format!("router {number}"), router(number));
            net.connect(at, names, &fast).unwrap();
            routers.push(at);
            hosts.push(net.add_mortal(&format!("host {number}"), host(number)));
        }
        for number in 0..=CLIENT {
            net.connect(hosts[number], routers[number], &fast).unwrap();
        }
        for (number, delay) in DELAYS_MS.iter().enumerate() {
            let spec = LinkSpec::new(100_000_000, Duration::from_millis(*delay));
            let link = DuplexLink::symmetric(spec);
            net.connect(routers[number], routers[CLIENT], &link)
                .unwrap();
        }
        let mut world = World {
            net,
            hosts,
            seen: (0..=CLIENT).map(|_| Seen::default()).collect(),
        };
        world.run(3 * SECOND);
        world
    }

    fn with<T>(&mut self, host: usize, act: impl FnOnce(&mut Host, Time) -> T) -> T {
        let node = self.hosts[host];
        self.net.with(node, |machine, now| {
            let host: &mut Host = machine.get_mut().unwrap();
            act(host, now)
        })
    }

    fn request(&mut self, host: usize, request: LocalRequest) {
        self.with(host, |host, now| host.request(now, APP, request));
    }

    /// All three serve a content.
    fn publish(&mut self, len: usize, seed: u64) -> Content {
        let content = Content::new(len, seed);
        for host in 0..CLIENT {
            self.seen[host].serves.push(content.clone());
            let publish = content.publish();
            self.request(
                host,
                LocalRequest::Publish(publish, TransferOptions::default()),
            );
        }
        self.run(SECOND);
        content
    }

    fn get(&mut self, request: u32, content: &Content) {
        let get: Get = get(request, content.name(), 16);
        self.request(CLIENT, LocalRequest::Get(get));
    }

    /// All three are attached by the service. Returns its name.
    fn attach(&mut self) -> Guid {
        for host in 0..CLIENT {
            let key = ServiceKey(SERVICE);
            self.request(host, LocalRequest::Attach { key });
            self.request(host, LocalRequest::Listen { channel: 1 });
            self.request(host, LocalRequest::TakeOffers);
        }
        self.run(SECOND);
        KeyPair::from_secret(&SERVICE).guid()
    }

    fn message(&mut self, destination: Guid, service: Service) {
        let message = LocalRequest::Message {
            channel: 1,
            destination,
            delivery: Delivery {
                service,
                ..Delivery::default()
            },
            payload: Bytes::from_static(b"21.5 C"),
        };
        self.request(CLIENT, message);
        self.run(SECOND);
    }

    fn messages(&self) -> Vec<usize> {
        self.seen[..CLIENT].iter().map(|it| it.messages).collect()
    }

    fn run(&mut self, span: Duration) {
        let end = self.net.now() + span;
        while self.net.step(end) {
            self.answer();
        }
        self.answer();
    }

    fn answer(&mut self) {
        while let Some(occurrence) = self.net.sim_mut().poll_event() {
            let hosts = self.hosts.iter();
            let ids: Vec<_> = hosts.map(|host| self.net.id(*host)).collect();
            let Some(at) = ids.iter().position(|id| *id == occurrence.node) else {
                continue;
            };
            let seen = &mut self.seen[at];
            let answer = match occurrence.event.event {
                LocalEvent::Read {
                    read,
                    content,
                    index,
                    chunk_log2,
                } if !seen.is_silent => {
                    let known = seen.serves.iter().find(|it| it.name() == content);
                    let chunk = known.and_then(|it| it.read(index, chunk_log2));
                    Some(LocalRequest::ReadDone { read, chunk })
                }
                LocalEvent::Chunk(chunk) => Some(LocalRequest::Consumed {
                    request: chunk.request,
                }),
                LocalEvent::Complete { request, .. } => {
                    seen.complete.push(request);
                    None
                }
                LocalEvent::Message { .. } => {
                    seen.messages += 1;
                    None
                }
                LocalEvent::Offered(offer) => {
                    seen.offers.push(offer.clone());
                    let get = get(9, offer.content.content, 16);
                    Some(LocalRequest::Accept(AcceptOffer { id: offer.id, get }))
                }
                LocalEvent::Sending { state, .. } => {
                    seen.sending = Some(state);
                    None
                }
                _ => None,
            };
            if let Some(answer) = answer {
                self.request(at, answer);
            }
        }
    }

    /// Chunks that each of the three has sent, messages included.
    fn sent(&mut self) -> Vec<u64> {
        let sent = |host: &mut Host, now| host.status(now).counters.chunks_sent;
        (0..CLIENT).map(|host| self.with(host, sent)).collect()
    }
}

#[test]
fn get_reaches_the_nearest_copy() {
    let mut world = World::new();
    let before = world.sent();
    for request in 0..6 {
        let content = world.publish(200_000, request.into());
        world.get(request, &content);
        world.run(3 * SECOND);
        assert!(world.seen[CLIENT].complete.contains(&request));
    }
    let sent: Vec<u64> = (world.sent().iter().zip(&before))
        .map(|(sent, before)| sent - before)
        .collect();
    // Six contents in four chunks; announcements and renewals besides, of all three alike.
    assert!(
        sent[0] >= 24 && sent[0] >= sent[1].max(sent[2]) + 20,
        "{sent:?}"
    );
}

/// The nearest one's program does not read; the request goes to the next one.
#[test]
fn get_falls_to_the_next_copy_when_the_nearest_does_not_answer() {
    let mut world = World::new();
    world.seen[0].is_silent = true;
    let content = world.publish(200_000, 1);
    world.get(1, &content);
    world.run(5 * SECOND);
    assert!(world.seen[CLIENT].complete.contains(&1));
    let sent = world.sent();
    assert!(sent[1] > sent[2], "{sent:?}");
}

#[test]
fn a_message_to_a_service_reaches_the_nearest_of_its_hosts() {
    let mut world = World::new();
    let service = world.attach();
    for _ in 0..5 {
        world.message(service, Service::Anycast);
    }
    assert_eq!(world.messages(), [5, 0, 0]);
    // Without the option it is for a host of this name, and there is none.
    world.message(service, Service::Default);
    assert_eq!(world.messages(), [5, 0, 0]);
    // The nearest one's program ends.
    world.with(0, |host, _| host.leave(APP));
    world.run(2 * SECOND);
    for _ in 0..3 {
        world.message(service, Service::Anycast);
    }
    world.run(30 * SECOND);
    assert_eq!(world.messages(), [5, 3, 0]);
}

#[test]
fn a_push_to_a_service_comes_whole_to_one_of_its_hosts() {
    let mut world = World::new();
    let service = world.attach();
    let content = Content::new(900_000, 5);
    world.seen[CLIENT].serves.push(content.clone());
    let send = SendContent {
        request: 1,
        destination: service,
        options: TransferOptions {
            chunk_log2: 16,
            delivery: Delivery {
                service: Service::Anycast,
                ..Delivery::default()
            },
            ..TransferOptions::default()
        },
        proposed: OfferUse::File,
        content: content.publish(),
    };
    world.request(CLIENT, LocalRequest::Send(send));
    world.run(10 * SECOND);
    let offers: Vec<usize> = world.seen[..CLIENT]
        .iter()
        .map(|it| it.offers.len())
        .collect();
    assert_eq!(offers, [1, 0, 0]);
    assert_eq!(world.seen[0].complete, [9]);
    let offer = world.seen[0].offers[0].clone();
    let settle = LocalRequest::Settle {
        id: offer.id,
        content: offer.content.content,
        verdict: OfferVerdict::Received,
    };
    world.request(0, settle);
    world.run(2 * SECOND);
    assert_eq!(world.seen[CLIENT].sending, Some(SendState::Delivered));
}

/// Anybody may announce any name as a content's: that makes no member of a service.
#[test]
fn only_the_owner_of_the_key_says_who_is_a_member() {
    let mut world = World::new();
    let service = KeyPair::from_secret(&SERVICE).guid();
    let members = whimbrel_gnrs::Record::members_of(&service);
    for name in [service, members] {
        let bait = whimbrel_mobilityfirst::local::Publish {
            content: name,
            ..Content::new(10, 1).publish()
        };
        world.request(0, LocalRequest::Publish(bait, TransferOptions::default()));
    }
    world.request(0, LocalRequest::Listen { channel: 1 });
    world.run(SECOND);
    world.message(service, Service::Anycast);
    world.run(5 * SECOND);
    assert_eq!(world.messages(), [0, 0, 0]);
    // It waits for a member.
    world.request(2, LocalRequest::Listen { channel: 1 });
    let key = ServiceKey(SERVICE);
    world.request(2, LocalRequest::Attach { key });
    world.run(90 * SECOND);
    assert_eq!(world.messages(), [0, 0, 1]);
}
