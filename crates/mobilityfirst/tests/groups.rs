//! Groups in virtual time [MFTP §3.5]: a source behind a router, a router in the middle, and leaves with members.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_core::{SeededRng, Time, WallClock};
use whimbrel_gnrs::{GroupAdmission, KeyPair};
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::local::{
    AcceptOffer, ContentOffer, Delivery, LocalEvent, LocalRequest, MembershipChange, OfferVerdict,
    SendContent, SendState, Service, Storage, TransferOptions,
};
use whimbrel_mobilityfirst::router::store::StoreLimits;
use whimbrel_mobilityfirst::router::{NextHop, Route, Router, RouterConfig};
use whimbrel_mobilityfirst::wire::{EXACT_SIZE, OfferUse, Reliability};
use whimbrel_sim::link::{LinkSpec, Loss};
use whimbrel_sim::testbed::{Fault, Life, Net};
use whimbrel_sim::{AnyMachine, Direction, DuplexLink};

use crate::support::{APP, Content, WALL, get, name_server, no_records, router_config};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const GROUP: [u8; 32] = [77; 32];
/// The router in the middle.
pub(crate) const CORE: usize = 1;
/// The source, among the hosts.
pub(crate) const SOURCE: usize = 0;
pub(crate) const CHUNK: usize = 1 << 16;

/// What the program of a host has seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) serves: Vec<Content>,
    pub(crate) messages: usize,
    pub(crate) offers: usize,
    pub(crate) complete: usize,
    pub(crate) chunks: usize,
    pub(crate) sending: Option<SendState>,
    pub(crate) refuses: bool,
    pub(crate) joined: bool,
}

pub(crate) struct World {
    pub(crate) net: Net<AnyMachine<HostEvent>>,
    pub(crate) hosts: Vec<usize>,
    pub(crate) seen: Vec<Seen>,
    // The link of each router towards the middle, and of each host.
    pub(crate) trunks: Vec<usize>,
    pub(crate) access: Vec<usize>,
    pub(crate) routers: Vec<usize>,
    // What hosts have accepted.
    offers: Vec<(usize, ContentOffer)>,
}

fn router_keys(number: usize) -> KeyPair {
    KeyPair::from_secret(&[100 + number as u8; 32])
}

pub(crate) fn host_keys(number: usize) -> KeyPair {
    let mut secret = [9; 32];
    secret[..2].copy_from_slice(&(number as u16).to_be_bytes());
    KeyPair::from_secret(&secret)
}

/// A network.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) leaves: usize,
    /// Members at each leaf.
    pub(crate) each: usize,
    pub(crate) loss: f64,
    /// Memory of each router for copies.
    pub(crate) cache: u64,
    /// The host whose clock is an hour ahead.
    pub(crate) skewed: Option<usize>,
    /// The host behind a link of 1 Mbit/s.
    pub(crate) slow: Option<usize>,
}

/// A router, in whichever life of its.
fn router(number: usize, routers: usize, cache: u64, life: &Life) -> AnyMachine<HostEvent> {
    let name = |number| router_keys(number).guid();
    let others = (0..routers).filter(|other| *other != number);
    let towards = |other| if number == CORE { other } else { CORE };
    let routes =
        others.map(|other| Route::new(name(other), NextHop::Neighbour(name(towards(other)))));
    let seed = [(life.number * 16) as u8 + number as u8; 32];
    let hop = HopConfig::plain(&router_keys(number), seed, 1472);
    let config = RouterConfig {
        routes: routes.collect(),
        name_servers: vec![0],
        wall: life.wall(WALL.unix_millis(Time::ZERO)),
        ..router_config(name(number), hop)
    };
    let store = StoreLimits {
        cache,
        ..config.store
    };
    let config = RouterConfig { store, ..config };
    let router = Router::new(config, life.rng());
    AnyMachine::new(router, |never| match never {})
}

fn host(number: usize, wall: WallClock) -> AnyMachine<HostEvent> {
    let keys = host_keys(number);
    let host = Host::new(HostConfig::new(keys, wall), SeededRng::new(number as u64));
    AnyMachine::plain(host)
}

impl World {
    /// `leaves` routers with `each` members, behind links that lose frames with this probability.
    pub(crate) fn new(leaves: usize, each: usize, loss: f64) -> World {
        World::with(Setup {
            leaves,
            each,
            loss,
            ..Setup::default()
        })
    }

    pub(crate) fn with(setup: Setup) -> World {
        let Setup {
            leaves,
            each,
            loss,
            cache,
            skewed,
            slow,
        } = setup;
        let mut net = Net::new(7);
        let near = DuplexLink::symmetric(LinkSpec::new(1_000_000_000, Duration::from_micros(50)));
        let spec = LinkSpec::new(100_000_000, Duration::from_millis(2));
        let loss = if loss > 0.0 {
            Loss::Independent(loss)
        } else {
            Loss::None
        };
        let far = DuplexLink::symmetric(spec.with_loss(loss));
        let thin = DuplexLink::symmetric(LinkSpec::new(1_000_000, Duration::from_millis(2)));
        let names = net.add_mortal("names", name_server(no_records()));
        let all = CORE + 1 + leaves;
        let (mut links, mut routers, mut trunks) = (0, Vec::new(), Vec::new());
        for number in 0..all {
            let at = net.add(&format!("router {number}"), move |life, _| {
                router(number, all, cache, life)
            });
            net.connect(at, names, &near).unwrap();
            links += 1;
            routers.push(at);
        }
        for number in (0..all).filter(|number| *number != CORE) {
            net.connect(routers[number], routers[CORE], &far).unwrap();
            trunks.push(links);
            links += 1;
        }
        let (mut hosts, mut access) = (Vec::new(), Vec::new());
        for number in 0..=leaves * each {
            let at = match number.checked_sub(1) {
                None => 0,
                Some(member) => CORE + 1 + member % leaves,
            };
            let ahead = if Some(number) == skewed { 3_600_000 } else { 0 };
            let wall = WallClock::new(WALL.unix_millis(Time::ZERO) + ahead);
            hosts.push(net.add_mortal(&format!("host {number}"), host(number, wall)));
            let link = if Some(number) == slow { &thin } else { &far };
            net.connect(hosts[number], routers[at], link).unwrap();
            access.push(links);
            links += 1;
        }
        let seen = hosts.iter().map(|_| Seen::default()).collect();
        let mut world = World {
            net,
            hosts,
            seen,
            trunks,
            access,
            routers,
            offers: Vec::new(),
        };
        world.run(3 * SECOND);
        world
    }

    pub(crate) fn members(&self) -> core::ops::Range<usize> {
        1..self.hosts.len()
    }

    pub(crate) fn at_host<T>(&mut self, host: usize, act: impl FnOnce(&mut Host, Time) -> T) -> T {
        let node = self.hosts[host];
        self.net.with(node, |machine, now| {
            let host: &mut Host = machine.get_mut().unwrap();
            act(host, now)
        })
    }

    pub(crate) fn request(&mut self, host: usize, request: LocalRequest) {
        self.at_host(host, |host, now| host.request(now, APP, request));
    }

    pub(crate) fn join(&mut self, member: usize) {
        self.join_group(
            member,
            &KeyPair::from_secret(&GROUP),
            MembershipChange::Join,
        );
    }

    pub(crate) fn join_group(&mut self, member: usize, group: &KeyPair, change: MembershipChange) {
        let until = WALL.unix_millis(self.net.now()) + 86_400_000;
        let admission = GroupAdmission::sign(group, None, until);
        self.request(member, LocalRequest::Join { admission, change });
        self.request(member, LocalRequest::Listen { channel: 1 });
        self.request(member, LocalRequest::TakeOffers);
        self.seen[member].joined = true;
    }

    pub(crate) fn leave(&mut self, member: usize) {
        let admission = GroupAdmission::sign(&KeyPair::from_secret(&GROUP), None, u64::MAX);
        self.request(
            member,
            LocalRequest::Join {
                admission,
                change: MembershipChange::Leave,
            },
        );
        self.seen[member].joined = false;
    }

    pub(crate) fn join_all(&mut self) {
        for member in self.members() {
            self.join(member);
        }
        self.run(SECOND);
    }

    pub(crate) fn push(
        &mut self,
        content: &Content,
        delivery: Delivery,
        reliability: Option<Reliability>,
    ) {
        let options = TransferOptions {
            chunk_log2: 16 | EXACT_SIZE,
            reliability,
            delivery,
            ..TransferOptions::default()
        };
        self.push_with(content, options);
    }

    fn push_with(&mut self, content: &Content, options: TransferOptions) {
        self.seen[SOURCE].serves.push(content.clone());
        let send = SendContent {
            request: 1,
            destination: KeyPair::from_secret(&GROUP).guid(),
            options: TransferOptions {
                delivery: Delivery {
                    service: Service::Multicast,
                    ..options.delivery
                },
                ..options
            },
            proposed: OfferUse::File,
            content: content.publish(),
        };
        self.request(SOURCE, LocalRequest::Send(send));
    }

    fn message(&mut self) {
        let message = LocalRequest::Message {
            channel: 1,
            destination: KeyPair::from_secret(&GROUP).guid(),
            delivery: Delivery {
                service: Service::Multicast,
                ..Delivery::default()
            },
            payload: Bytes::from_static(b"21.5 C"),
        };
        self.request(SOURCE, message);
    }

    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.net.now() + span;
        while self.net.step(end) {
            self.answer();
        }
        self.answer();
    }

    /// Runs until the source's program is told this state. Returns false if it is not within the time.
    pub(crate) fn run_until(&mut self, state: SendState, most: Duration) -> bool {
        let end = self.net.now() + most;
        while self.net.now() < end {
            if self.seen[SOURCE].sending == Some(state) {
                return true;
            }
            self.run(Duration::from_millis(100));
        }
        self.seen[SOURCE].sending == Some(state)
    }

    fn answer(&mut self) {
        while let Some(occurrence) = self.net.sim_mut().poll_event() {
            let hosts = self.hosts.iter();
            let ids: Vec<_> = hosts.map(|host| self.net.id(*host)).collect();
            let Some(at) = ids.iter().position(|id| *id == occurrence.node) else {
                continue;
            };
            let seen = &mut self.seen[at];
            let mut answers = Vec::new();
            match occurrence.event.event {
                LocalEvent::Read {
                    read,
                    content,
                    index,
                    chunk_log2,
                } => {
                    let known = seen.serves.iter().find(|it| it.name() == content);
                    let chunk = known.and_then(|it| it.read(index, chunk_log2));
                    answers.push(LocalRequest::ReadDone { read, chunk });
                }
                LocalEvent::Chunk(chunk) => {
                    seen.chunks += 1;
                    let request = chunk.request;
                    answers.push(LocalRequest::Consumed { request });
                }
                LocalEvent::Message { .. } => seen.messages += 1,
                LocalEvent::Offered(offer) => {
                    seen.offers += 1;
                    let (id, content) = (offer.id, offer.content.content);
                    if seen.refuses {
                        let verdict = OfferVerdict::NotAccepted;
                        answers.push(LocalRequest::Settle {
                            id,
                            content,
                            verdict,
                        });
                    } else {
                        let get = get(9, content, 16);
                        answers.push(LocalRequest::Accept(AcceptOffer { id, get }));
                        self.offers.push((at, offer.clone()));
                    }
                }
                LocalEvent::Complete { .. } => {
                    seen.complete += 1;
                    let mut offers = self.offers.iter().rev();
                    let (_, offer) = offers.find(|(host, _)| *host == at).unwrap();
                    answers.push(LocalRequest::Settle {
                        id: offer.id,
                        content: offer.content.content,
                        verdict: OfferVerdict::Received,
                    });
                }
                LocalEvent::Sending { state, .. } => seen.sending = Some(state),
                _ => {}
            }
            for answer in answers {
                self.request(at, answer);
            }
        }
    }

    pub(crate) fn complete(&self) -> usize {
        self.seen[1..].iter().filter(|it| it.complete > 0).count()
    }

    /// Bytes on a link towards the members.
    pub(crate) fn bytes(&self, link: usize, direction: Direction) -> u64 {
        let stats = self.net.sim().link_stats(self.net.link(link), direction);
        stats.transmitted_bytes
    }

    /// Bytes that the source has sent.
    pub(crate) fn source_load(&self) -> u64 {
        self.bytes(self.access[SOURCE], Direction::AToB)
    }

    /// Bytes from the source's router to the middle, and from there to each leaf.
    pub(crate) fn tree_load(&self) -> Vec<u64> {
        let mut load = vec![self.bytes(self.trunks[0], Direction::AToB)];
        let leaves = self.trunks[1..].iter();
        load.extend(leaves.map(|trunk| self.bytes(*trunk, Direction::BToA)));
        load
    }

    pub(crate) fn status(&mut self) -> serde_json::Value {
        let status = self.at_host(SOURCE, |host, now| host.status(now));
        serde_json::to_value(status).unwrap()
    }
}

/// The source waits for the number of members, and chunks are as small as it and the content afford.
#[test]
fn the_number_of_members_decides_about_the_size_of_chunks() {
    for (length, size) in [(8 * CHUNK, 1 << 14), (32 * CHUNK, 1 << 15)] {
        let mut world = World::new(3, 3, 0.0);
        world.join_all();
        world.push_with(&Content::new(length, 5), TransferOptions::default());
        assert!(world.run_until(SendState::Delivered, 20 * SECOND));
        let chunks: Vec<usize> = world.seen[1..].iter().map(|it| it.chunks).collect();
        assert_eq!(chunks, [length / size; 9]);
    }
}

#[test]
fn a_push_to_a_group_reaches_each_member_and_crosses_each_link_once() {
    let mut world = World::new(3, 3, 0.0);
    world.join_all();
    let content = Content::new(20 * CHUNK, 5);
    let (before, tree) = (world.source_load(), world.tree_load());
    world.push(&content, Delivery::default(), None);
    assert!(world.run_until(SendState::Delivered, 20 * SECOND));
    assert_eq!(world.complete(), 9);
    let chunks: Vec<usize> = world.seen[1..].iter().map(|it| it.chunks).collect();
    assert_eq!(chunks, [20; 9]);
    let least = content.bytes.len() as u64;
    let most = least * 11 / 10;
    let sent = world.source_load() - before;
    assert!((least..most).contains(&sent), "{sent} of {least}");
    for (after, before) in world.tree_load().iter().zip(&tree) {
        let sent = after - before;
        assert!((least..most).contains(&sent), "{sent} of {least}");
    }
    // Nothing is left over.
    world.run(30 * SECOND);
    assert_eq!(world.status()["counters"]["group_nacks"], 0);
}

#[test]
fn the_source_sends_as_much_to_thirty_members_over_lossy_links_as_to_three() {
    let mut loads = Vec::new();
    for each in [1, 10] {
        let mut world = World::new(3, each, 0.01);
        world.join_all();
        let before = world.source_load();
        world.push(&Content::new(40 * CHUNK, 5), Delivery::default(), None);
        assert!(world.run_until(SendState::Delivered, 60 * SECOND));
        loads.push(world.source_load() - before);
    }
    assert!(loads[1] * 10 <= loads[0] * 11, "{loads:?}");
}

#[test]
fn a_message_to_a_group_reaches_each_member() {
    let mut world = World::new(2, 2, 0.0);
    world.join_all();
    world.message();
    world.run(2 * SECOND);
    let messages =
        |world: &World| -> Vec<usize> { world.seen[1..].iter().map(|it| it.messages).collect() };
    assert_eq!(messages(&world), [1; 4]);
    // One leaves.
    world.leave(3);
    world.run(5 * SECOND);
    world.message();
    world.run(2 * SECOND);
    assert_eq!(messages(&world), [2, 2, 1, 2]);
}

#[test]
fn a_member_that_is_away_gets_the_push_when_it_comes_back() {
    let mut world = World::new(2, 3, 0.0);
    world.join_all();
    let away = world.access[2] as u8;
    world.net.strike(&Fault::Outage {
        link: away,
        directions: 3,
        lasts: 30 * SECOND,
    });
    world.run(10 * SECOND);
    world.push(&Content::new(10 * CHUNK, 5), Delivery::default(), None);
    world.run(15 * SECOND);
    assert_eq!(world.complete(), 5);
    let status = world.status();
    let group = &status["sending"][0]["group"];
    assert_eq!(group["members"], 6, "{status}");
    assert_eq!(group["delivered"], 5);
    let away = host_keys(2).guid().to_string();
    assert_eq!(group["lacking"][0]["name"], away);
    assert_eq!(group["lacking"][0]["stored"], true);
    assert_eq!(status["sending"][0]["stored"], 10 * CHUNK, "{status}");
    assert!(world.run_until(SendState::Delivered, 60 * SECOND));
    assert_eq!(world.complete(), 6);
}

#[test]
fn a_member_that_joins_during_a_push_gets_all_of_it() {
    let mut world = World::new(2, 2, 0.0);
    world.join(1);
    world.join(2);
    world.run(SECOND);
    world.push(&Content::new(300 * CHUNK, 5), Delivery::default(), None);
    world.run(SECOND);
    world.join(3);
    world.run(30 * SECOND);
    assert_eq!(world.complete(), 3);
}

#[test]
fn a_member_that_refuses_does_not_stop_the_others() {
    let mut world = World::new(2, 2, 0.0);
    world.seen[1].refuses = true;
    world.join_all();
    world.push(&Content::new(10 * CHUNK, 5), Delivery::default(), None);
    assert!(world.run_until(SendState::DeliveredToSome, 20 * SECOND));
    assert_eq!(world.complete(), 3);
}

/// Its copies wait for it, at its router or, if it is alone there, above.
#[test]
fn a_slow_member_does_not_hold_back_the_others() {
    for (leaves, each) in [(2, 2), (3, 1)] {
        let slow = leaves * each;
        let mut world = World::with(Setup {
            leaves,
            each,
            slow: Some(slow),
            ..Setup::default()
        });
        world.join_all();
        let content = Content::new(160 * CHUNK, 5);
        let before = world.source_load();
        world.push(&content, Delivery::default(), None);
        world.run(5 * SECOND);
        let complete: Vec<usize> = world.seen.iter().map(|it| it.complete).collect();
        assert_eq!(complete.iter().sum::<usize>(), slow - 1, "{complete:?}");
        assert_eq!(complete[slow], 0);
        // 84 s at its rate.
        let is_over = world.run_until(SendState::Delivered, 110 * SECOND);
        assert!(is_over, "{}", world.status()["sending"]);
        let sent = world.source_load() - before;
        assert!(sent < content.bytes.len() as u64 * 11 / 10, "{sent}");
    }
}

#[test]
fn a_push_before_anybody_has_joined_waits_for_members() {
    let mut world = World::new(2, 1, 0.0);
    world.push(&Content::new(3 * CHUNK, 5), Delivery::default(), None);
    world.run(5 * SECOND);
    world.join_all();
    world.run(30 * SECOND);
    assert_eq!(world.complete(), 2);
}

/// Routers keep it for the first one. Those that join later ask the source, which is gone.
#[test]
fn a_push_to_a_group_without_members_is_stored_for_the_first_that_joins() {
    let mut world = World::new(2, 1, 0.0);
    world.push(&Content::new(3 * CHUNK, 5), Delivery::default(), None);
    assert!(world.run_until(SendState::Taken, 10 * SECOND));
    let source = world.access[SOURCE] as u8;
    world.net.strike(&Fault::Outage {
        link: source,
        directions: 3,
        lasts: 3600 * SECOND,
    });
    let complete = |world: &World| world.seen[1..].iter().map(|it| it.complete).collect();
    for (member, expected) in [(1, [1, 0]), (2, [1, 0])] {
        world.join(member);
        world.run(30 * SECOND);
        let complete: Vec<usize> = complete(&world);
        assert_eq!(complete, expected, "after {member} has joined");
    }
}

/// "In a scenario where reliability is not demanded, the source just uses the don't care option."
#[test]
fn nothing_is_repaired_that_nobody_cares_for() {
    let mut world = World::new(2, 2, 0.0);
    world.join_all();
    let delivery = Delivery {
        storage: Storage::Never,
        ..Delivery::default()
    };
    let away = world.access[1] as u8;
    world.net.strike(&Fault::Outage {
        link: away,
        directions: 3,
        lasts: 3600 * SECOND,
    });
    world.run(10 * SECOND);
    let content = Content::new(10 * CHUNK, 5);
    let before = world.source_load();
    world.push(&content, delivery, Some(Reliability::DontCare));
    world.run(30 * SECOND);
    assert_eq!(world.complete(), 3);
    let sent = world.source_load() - before;
    assert!(sent < content.bytes.len() as u64 * 11 / 10, "{sent}");
}

/// A router loses its memory: what it had accepted is asked for, by its members alone.
#[test]
fn a_router_that_restarts_costs_a_repair_and_no_second_push() {
    let mut world = World::new(2, 3, 0.0);
    world.join_all();
    let content = Content::new(300 * CHUNK, 5);
    let before = world.tree_load();
    world.push(&content, Delivery::default(), None);
    world.run(Duration::from_millis(500));
    let leaf = world.routers[CORE + 1];
    world.net.strike(&Fault::Crash {
        node: leaf as u8,
        down: Duration::from_millis(500),
        skew_s: 0,
    });
    assert!(world.run_until(SendState::Delivered, 120 * SECOND));
    assert_eq!(world.complete(), 6);
    // The other leaf gets nothing twice.
    let other = world.tree_load()[2] - before[2];
    let most = content.bytes.len() as u64 * 11 / 10;
    assert!(other < most, "{other} of {most}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Whatever happens to links and routers meanwhile, each member has it all once, soon after it is over.
    #[test]
    fn each_member_gets_all_of_it_whatever_happens(seed: u64, faults in 1usize..5) {
        let mut world = World::new(2, 2, 0.01);
        world.join_all();
        let mut rng = SeededRng::new(seed);
        world.push(&Content::new(60 * CHUNK, seed), Delivery::default(), None);
        for _ in 0..faults {
            world.run(Duration::from_millis(rng.below(800)));
            let all = world.trunks.len() + world.access.len() - 2;
            // Not that of the source, which would only wait.
            let links = world.trunks[1..].iter().chain(&world.access[1..]);
            let link = *links.clone().nth(rng.below(all as u64) as usize).unwrap();
            let leaf = world.routers[CORE + rng.below(3) as usize];
            let lasts = Duration::from_millis(rng.below(10_000));
            world.net.strike(&match rng.below(3) {
                0 => Fault::Crash { node: leaf as u8, down: lasts / 4, skew_s: 0 },
                1 => Fault::Outage { link: link as u8, directions: 3, lasts },
                _ => Fault::Impair { link: link as u8, percent: 20 },
            });
        }
        world.run(10 * SECOND);
        world.net.end_faults();
        let is_over = world.run_until(SendState::Delivered, 200 * SECOND);
        prop_assert!(is_over, "{} of 4 members, {}", world.complete(), world.status()["sending"]);
        let counts: Vec<usize> = world.seen[1..].iter().map(|it| it.complete).collect();
        prop_assert_eq!(counts, [1; 4]);
    }
}
