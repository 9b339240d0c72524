//! Name servers that are peers: copies, repair, questions to those that know more.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{EPOCH, HOUR_MS, binding, keys, router, up};
use whimbrel_core::{
    Guid, Machine, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time, WallClock,
};
use whimbrel_gnrs::{
    Lookup, MemoryStore, Placement, Record, RecordKey, Resolver, ResolverConfig, ResolverEvent,
    Server, ServerConfig, StoreLimits,
};

/// The port of a server to which its client comes.
const CLIENT: u32 = 1000;
/// That of peer `n` is this and `n`.
const INBOUND: u32 = 500;

/// Servers that are each other's peers, and a client at each.
struct World {
    now: Time,
    servers: Vec<Server<MemoryStore>>,
    clients: Vec<Resolver>,
    /// Servers that nothing reaches.
    down: BTreeSet<usize>,
    frames: usize,
}

fn name(server: usize) -> String {
    format!("server-{server}:4720")
}

fn configured(link: u32) -> PortEvent {
    let PortEvent::Up(info) = up() else {
        unreachable!()
    };
    let origin = PortOrigin::Configured(link);
    PortEvent::Up(PortInfo { origin, ..info })
}

fn resolver(seed: u64) -> Resolver {
    let clock = WallClock::new(EPOCH);
    Resolver::new(ResolverConfig::default(), clock, SeededRng::new(seed))
}

impl World {
    fn new(count: usize, copies: usize) -> World {
        let mut world = World {
            now: Time::ZERO,
            servers: Vec::new(),
            clients: Vec::new(),
            down: BTreeSet::new(),
            frames: 0,
        };
        for index in 0..count {
            world.servers.push(world.server(index, count, copies));
            let mut client = resolver(1000 + index as u64);
            client.add_server(PortId(0));
            client.handle_port(world.now, PortId(0), up());
            world.clients.push(client);
        }
        world.run(1);
        world
    }

    /// Returns a server without records.
    fn server(&self, own: usize, count: usize, copies: usize) -> Server<MemoryStore> {
        let store = MemoryStore::new(StoreLimits::default());
        let clock = WallClock::new(EPOCH);
        let secret = [own as u8 ^ self.now.as_nanos() as u8; 32];
        let mut server = Server::new(ServerConfig::default(), clock, secret, store);
        server.set_placement(Placement {
            own: Some(name(own)),
            copies,
        });
        for other in (0..count).filter(|it| *it != own) {
            let seed = (own * 100 + other) as u64;
            server.add_peer(name(other), other as u32, resolver(seed));
            server.handle_port(self.now, PortId(other as u32), configured(other as u32));
            server.handle_port(self.now, PortId(INBOUND + other as u32), up());
        }
        server.handle_port(self.now, PortId(CLIENT), up());
        server
    }

    fn restart(&mut self, index: usize, copies: usize) {
        self.servers[index] = self.server(index, self.servers.len(), copies);
    }

    /// Lets time pass: every frame arrives at once, unless its server is down.
    fn run(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while self.now < until {
            while self.deliver() {}
            let servers = self.servers.iter().filter_map(Machine::poll_timeout);
            let clients = self.clients.iter().filter_map(Resolver::poll_timeout);
            let next = servers.chain(clients).map(|it| it.at).min();
            let next = next.map_or(until, |at| at.max(self.now + Duration::from_millis(1)));
            self.now = next.min(until);
            for index in 0..self.servers.len() {
                if !self.down.contains(&index) {
                    self.servers[index].handle_timeout(self.now);
                }
                self.clients[index].handle_timeout(self.now);
            }
        }
        while self.deliver() {}
    }

    fn deliver(&mut self) -> bool {
        let mut any = false;
        for from in 0..self.servers.len() {
            let mut bytes = Vec::new();
            while let Some(sent) = self.servers[from].poll_transmit(self.now, 1, &mut bytes) {
                let frame = core::mem::take(&mut bytes);
                any = true;
                self.frames += 1;
                let port = sent.port.0;
                let (to, at) = match port {
                    CLIENT => {
                        self.clients[from].handle_frame(self.now, PortId(0), &frame);
                        continue;
                    }
                    INBOUND.. => (port - INBOUND, from as u32),
                    _ => (port, INBOUND + from as u32),
                };
                if !self.down.contains(&from) && !self.down.contains(&(to as usize)) {
                    let to = &mut self.servers[to as usize];
                    to.handle_frames(self.now, PortId(at), &[&frame]);
                }
            }
            while self.clients[from]
                .poll_transmit(self.now, &mut bytes)
                .is_some()
            {
                let frame = core::mem::take(&mut bytes);
                any = true;
                if !self.down.contains(&from) {
                    self.servers[from].handle_frames(self.now, PortId(CLIENT), &[&frame]);
                }
            }
        }
        any
    }

    fn insert(&mut self, at: usize, record: &Record) {
        self.clients[at].insert(self.now, record.clone());
        self.run(1);
        while self.clients[at].poll_event().is_some() {}
    }

    /// Returns the version of the binding that a client learns from its server.
    fn look_up(&mut self, at: usize, name: Guid) -> Option<u64> {
        self.clients[at].forget(&name);
        if self.clients[at].lookup(self.now, name) == Lookup::NotFound {
            return None;
        }
        for _ in 0..15 {
            self.run(1);
            while let Some(event) = self.clients[at].poll_event() {
                match event {
                    ResolverEvent::Resolved { guid, answer } if guid == name => {
                        return answer.binding.map(|it| it.version());
                    }
                    ResolverEvent::Unresolvable { guid, .. } if guid == name => return None,
                    _ => {}
                }
            }
        }
        panic!("no answer")
    }

    fn has(&self, server: usize, record: &Record) -> bool {
        let key = RecordKey::binding(record.subject());
        self.servers[server].store().get(&key).as_ref() == Some(record)
    }
}

fn host(seed: u8, version: u64) -> Record {
    binding(seed, version, HOUR_MS, vec![router(1)])
}

#[test]
fn what_one_server_is_told_the_other_knows_when_the_first_is_gone() {
    let mut world = World::new(2, 3);
    world.insert(0, &host(1, 1));
    assert!(world.has(1, &host(1, 1)));
    world.down.insert(0);
    assert_eq!(world.look_up(1, keys(1).guid()), Some(1));
    // The newest version counts, whoever was told of it.
    world.insert(1, &host(1, 2));
    world.down.clear();
    world.run(30);
    assert!(world.has(0, &host(1, 2)));
    assert_eq!(world.look_up(0, keys(1).guid()), Some(2));
}

#[test]
fn a_server_that_comes_back_without_records_gets_them_again() {
    let mut world = World::new(3, 3);
    for seed in 1..=200 {
        world.insert(usize::from(seed % 3), &host(seed, 1));
    }
    world.down.insert(2);
    for seed in 201..=210 {
        world.insert(0, &host(seed, 1));
    }
    world.restart(2, 3);
    world.down.clear();
    world.run(30);
    let missing = (1..=210).filter(|seed| !world.has(2, &host(*seed, 1)));
    assert_eq!(missing.count(), 0);
}

#[test]
fn each_server_answers_for_all_and_only_some_have_copies() {
    let mut world = World::new(5, 2);
    for seed in 1..=20 {
        world.insert(0, &host(seed, 1));
    }
    for seed in 1..=20 {
        let copies = (1..5).filter(|server| world.has(*server, &host(seed, 1)));
        assert!((1..=2).contains(&copies.count()), "{seed}");
    }
    // One of the holders is lost: the other answers.
    world.down.insert(4);
    for seed in 1..=20 {
        for at in 0..4 {
            assert_eq!(world.look_up(at, keys(seed).guid()), Some(1), "{seed} {at}");
        }
    }
    // A server that is no holder does not go on with what it was told once.
    world.insert(1, &host(1, 2));
    world.run(5);
    for at in 0..4 {
        assert_eq!(world.look_up(at, keys(1).guid()), Some(2), "{at}");
    }
}

#[test]
fn a_name_that_no_server_knows_is_not_found_and_ends_all_questions() {
    let mut world = World::new(3, 3);
    let before = world.frames;
    assert_eq!(world.look_up(0, Guid([9; 32])), None);
    assert!(world.frames - before < 20, "{}", world.frames - before);
    world.down.extend([1, 2]);
    assert_eq!(world.look_up(0, Guid([8; 32])), None);
    let before = world.frames;
    world.run(3600);
    assert!(
        world.frames - before < 3 * 3600,
        "{}",
        world.frames - before
    );
}

/// Returns a server that has no copy of a name, and the holders of it.
fn far_from(world: &World, record: &Record) -> (usize, Vec<usize>) {
    let (holders, others): (Vec<usize>, Vec<usize>) =
        (0..world.servers.len()).partition(|server| world.has(*server, record));
    (others[0], holders)
}

#[test]
fn a_name_that_is_often_asked_for_elsewhere_is_followed_there() {
    let mut world = World::new(6, 2);
    let name = keys(1).guid();
    world.clients[0].insert(world.now, host(1, 1));
    world.run(60);
    let (far, holders) = far_from(&world, &host(1, 1));
    let followed = |world: &World| -> usize {
        let status = world.servers[far].status(world.now);
        status.peers.iter().map(|it| it.followed).sum()
    };
    for _ in 0..2 {
        assert_eq!(world.look_up(far, name), Some(1));
        world.run(5);
    }
    assert_eq!(followed(&world), 0, "asked for twice");
    for _ in 0..2 {
        assert_eq!(world.look_up(far, name), Some(1));
        world.run(5);
    }
    assert_eq!(followed(&world), 1);
    // It is at hand, and news of it come by themselves.
    let at_hand = |world: &World| {
        let status = world.servers[far].status(world.now);
        status.of_peers.unwrap().lookups_at_hand
    };
    let before = at_hand(&world);
    world.insert(holders[0], &host(1, 2));
    assert_eq!(world.look_up(far, name), Some(2));
    assert_eq!(at_hand(&world), before + 1);
    // The holder that it is followed at is lost: the other one knows what is newer.
    let status = world.servers[far].status(world.now);
    let at = status.peers.iter().find(|it| it.followed == 1).unwrap();
    let lost = holders.iter().find(|it| self::name(**it) == at.peer);
    let lost = *lost.unwrap();
    let other = *holders.iter().find(|it| **it != lost).unwrap();
    world.down.insert(lost);
    world.insert(other, &host(1, 3));
    world.run(20);
    assert_eq!(world.look_up(far, name), Some(3));
    // Nobody asks any longer: it is given up.
    world.run(600);
    assert_eq!(followed(&world), 0);
    assert_eq!(world.look_up(far, name), Some(3));
}

#[test]
fn clients_of_a_server_without_a_copy_hear_what_it_follows() {
    let mut world = World::new(6, 2);
    let name = keys(1).guid();
    world.clients[0].insert(world.now, host(1, 1));
    world.run(60);
    let (far, holders) = far_from(&world, &host(1, 1));
    for _ in 0..4 {
        assert_eq!(world.look_up(far, name), Some(1));
        world.run(5);
    }
    let now = world.now;
    assert!(world.clients[far].watch(now, name));
    world.run(1);
    while world.clients[far].poll_event().is_some() {}
    world.insert(holders[0], &host(1, 2));
    let events = std::iter::from_fn(|| world.clients[far].poll_event());
    let versions = events.filter_map(|event| match event {
        ResolverEvent::Changed { answer, .. } => answer.binding.map(|it| it.version()),
        _ => None,
    });
    assert_eq!(versions.collect::<Vec<_>>(), [2]);
}
