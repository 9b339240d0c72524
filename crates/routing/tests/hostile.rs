//! Neighbours that lie, repeat, forge and flood.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;

use whimbrel_core::{Guid, KeyPair, Time};
use whimbrel_routing::{Announcement, Cost, Distances, Link, MAX_ROUTERS, Message, Routing, State};

fn keys(number: u32) -> KeyPair {
    let mut secret = [3; 32];
    secret[..4].copy_from_slice(&number.to_be_bytes());
    KeyPair::from_secret(&secret)
}

fn name(number: u32) -> Guid {
    keys(number).guid()
}

/// The announcement of a router with links to these.
fn announcement(router: u32, sequence: u64, to: &[u32]) -> Announcement {
    priced(router, sequence, to, 1000)
}

/// The same with links of this cost.
fn priced(router: u32, sequence: u64, to: &[u32], cost: u32) -> Announcement {
    let link = |to: &u32| Link {
        to: name(*to),
        cost: Cost(cost),
        usual: Cost(cost),
    };
    let links = to.iter().map(link).collect();
    Announcement::sign(&keys(router), sequence, Duration::from_secs(600), links)
}

/// Router 0, with neighbours that are up.
struct Router {
    routing: Routing,
    now: Time,
}

impl Router {
    fn new(neighbours: &[u32]) -> Router {
        let now = Time::from_secs(1);
        let mut router = Router {
            routing: Routing::new(now, keys(0)),
            now,
        };
        for neighbour in neighbours {
            router.routing.handle_up(now, name(*neighbour), true);
            let state = State {
                applied: 0,
                digest: 0,
            };
            router.hear(*neighbour, Message::State(state)).unwrap();
        }
        router
    }

    fn hear(&mut self, from: u32, message: Message) -> Result<(), &'static str> {
        self.routing.handle_message(self.now, name(from), message)
    }

    fn announce(&mut self, from: u32, announcement: Announcement) -> Result<(), &'static str> {
        let left = Duration::from_secs(600);
        self.hear(from, Message::Announce { left, announcement })
    }

    fn distances(&mut self, from: u32, sequence: u32, all: &[(u32, u32)]) {
        let mut changed: Vec<(Guid, Cost)> = all
            .iter()
            .map(|(to, cost)| (name(*to), Cost(*cost)))
            .collect();
        changed.sort();
        let message = Message::Distances(Distances {
            sequence,
            base: 0,
            changed,
        });
        self.hear(from, message).unwrap();
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.routing.poll_timeout().at <= end {
            self.now = self.routing.poll_timeout().at;
            self.routing.handle_timeout(self.now);
        }
        while self.routing.poll_message().is_some() {}
        self.now = end;
    }
}

#[test]
fn a_link_counts_if_both_ends_announce_it() {
    let mut router = Router::new(&[1]);
    router.announce(1, announcement(1, 1, &[0])).unwrap();
    // Router 2 says that it is next to everybody, and router 1 has it near.
    router.announce(1, announcement(2, 1, &[0, 1])).unwrap();
    router.distances(1, 1, &[(0, 1000), (1, 0), (2, 1)]);
    router.run(Duration::from_secs(1));
    assert!(!router.routing.ways(&name(1)).is_empty());
    assert!(router.routing.ways(&name(2)).is_empty());
    router.announce(1, announcement(1, 2, &[0, 2])).unwrap();
    router.run(Duration::from_secs(1));
    assert_eq!(router.routing.ways(&name(2)).len(), 1);
}

#[test]
fn a_false_distance_makes_no_way_better() {
    let mut router = Router::new(&[1, 2]);
    router.announce(1, announcement(1, 1, &[0, 3])).unwrap();
    router.announce(2, announcement(2, 1, &[0, 4])).unwrap();
    router.announce(1, announcement(3, 1, &[1, 4])).unwrap();
    router.announce(1, announcement(4, 1, &[2, 3])).unwrap();
    // Router 3 is behind router 1, and far behind router 2, which says that it is next to it.
    router.distances(1, 1, &[(0, 1000), (1, 0), (3, 1000), (4, 2000)]);
    router.distances(2, 1, &[(0, 1), (1, 1), (2, 0), (3, 1), (4, 1)]);
    router.run(Duration::from_secs(1));
    assert_eq!(router.routing.ways(&name(3))[0].neighbour, name(1));
}

/// Router 1 says that all its links cost nearly nothing, and is next to nobody but router 3.
#[test]
fn a_forged_cost_counts_for_the_links_of_its_forger_only() {
    let mut router = Router::new(&[1, 2]);
    router.announce(1, priced(1, 1, &[0, 3, 4, 5], 1)).unwrap();
    router.announce(2, announcement(2, 1, &[0, 4])).unwrap();
    router.announce(1, announcement(3, 1, &[1])).unwrap();
    router.announce(2, announcement(4, 1, &[2, 5])).unwrap();
    router.announce(2, announcement(5, 1, &[4])).unwrap();
    router.distances(1, 1, &[(0, 1), (1, 0), (3, 1), (4, 1), (5, 1)]);
    router.distances(2, 1, &[(0, 1000), (2, 0), (4, 1000), (5, 2000)]);
    router.run(Duration::from_secs(1));
    let by = |to: u32| router.routing.ways(&name(to))[0].neighbour;
    assert_eq!([by(3), by(4), by(5)], [name(1), name(2), name(2)]);
}

#[test]
fn a_neighbour_that_announces_everything_leaves_room_to_others() {
    let mut router = Router::new(&[1, 2]);
    let mut refused = 0;
    for number in 0..MAX_ROUTERS as u32 + 100 {
        let invented = announcement(10_000 + number, 1, &[1]);
        refused += usize::from(router.announce(1, invented).is_err());
        router.run(Duration::from_millis(5));
    }
    assert!(refused >= 100, "{refused}");
    for number in 100..150 {
        router.announce(2, announcement(number, 1, &[2])).unwrap();
    }
    assert!((100..150).all(|number| router.routing.knows(&name(number))));
    assert_eq!(router.routing.status(router.now).len(), MAX_ROUTERS - 1);
}

#[test]
fn old_and_forged_announcements_change_nothing() {
    let mut router = Router::new(&[1]);
    router.announce(1, announcement(2, 5, &[1])).unwrap();
    router.announce(1, announcement(2, 4, &[1, 3])).unwrap();
    let known = |router: &Router| {
        let status = router.routing.status(router.now);
        let it = status.iter().find(|it| it.router == name(2)).unwrap();
        (it.sequence, it.links.len())
    };
    assert_eq!(known(&router), (5, 1));
    let mut bytes = Vec::new();
    let left = Duration::from_secs(600);
    let genuine = announcement(2, 6, &[1, 3]);
    Message::Announce {
        left,
        announcement: genuine,
    }
    .encode(&mut bytes);
    // The sequence number of the announcement: after type, time and key.
    bytes[1 + 4 + 32 + 7] = 7;
    let forged = Message::decode(&bytes).unwrap();
    let mut reasons: Vec<&str> = Vec::new();
    for _ in 0..100 {
        reasons.push(router.hear(1, forged.clone()).unwrap_err());
    }
    let checked = reasons
        .iter()
        .filter(|it| **it == "bad-routing-signature")
        .count();
    assert_eq!(checked, 32, "{reasons:?}");
    assert_eq!(known(&router), (5, 1));
}

#[test]
fn a_router_that_announces_too_often_is_heard_four_times_a_second() {
    let mut router = Router::new(&[1]);
    let mut taken = 0;
    for sequence in 1..1000 {
        taken += usize::from(router.announce(1, announcement(2, sequence, &[1])).is_ok());
        router.run(Duration::from_millis(10));
    }
    // Ten seconds, and what is taken at once.
    assert!((60..80).contains(&taken), "{taken}");
}

#[test]
fn announcements_end_with_their_lease() {
    let mut router = Router::new(&[1]);
    router.announce(1, announcement(2, 1, &[1])).unwrap();
    router.run(Duration::from_secs(599));
    assert!(router.routing.knows(&name(2)));
    router.run(Duration::from_secs(2));
    assert!(!router.routing.knows(&name(2)));
}
