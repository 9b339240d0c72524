//! The FIB that follows from routes, compared with the protocol's own example and with a model that
//! computes it anew.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use whimbrel_core::Time;
use whimbrel_forwarder::FaceId;
use whimbrel_forwarder::rib::{Rank, Rib, RibError, RibLimits, Route, RouteKey};
use whimbrel_ndn_mgmt::{ROUTE_CAPTURE, ROUTE_CHILD_INHERIT, RouteOrigin};
use whimbrel_ndn_packet::Name;

type Fib = BTreeMap<Name, BTreeMap<FaceId, Rank>>;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn key(face: u64) -> RouteKey {
    RouteKey {
        face: FaceId(face),
        origin: RouteOrigin::APP,
    }
}

fn route(cost: u64, flags: u64) -> Route {
    Route {
        cost,
        flags,
        expires: None,
    }
}

/// Returns the number of changes.
fn apply(rib: &mut Rib, fib: &mut Fib) -> usize {
    let updates = rib.take_updates();
    let count = updates.len();
    for update in updates {
        let hops = fib.entry(update.prefix.clone()).or_default();
        match update.rank {
            Some(rank) => {
                assert_ne!(
                    hops.insert(update.face, rank),
                    Some(rank),
                    "an update that changes nothing"
                )
            }
            None => assert!(
                hops.remove(&update.face).is_some(),
                "a removal of a missing route"
            ),
        };
        if hops.is_empty() {
            fib.remove(&update.prefix);
        }
    }
    count
}

fn faces(fib: &Fib, prefix: &str) -> Vec<u64> {
    fib.get(&name(prefix))
        .into_iter()
        .flat_map(BTreeMap::keys)
        .map(|face| face.0)
        .collect()
}

#[test]
fn the_example_of_the_protocol_gives_its_stated_result() {
    let (mut rib, mut fib) = (Rib::new(RibLimits::default()), Fib::new());
    let both = ROUTE_CHILD_INHERIT | ROUTE_CAPTURE;
    for (prefix, face, flags) in [
        ("/", 1, ROUTE_CHILD_INHERIT),
        ("/", 2, 0),
        ("/A", 3, ROUTE_CHILD_INHERIT),
        ("/A/B/C", 4, ROUTE_CHILD_INHERIT),
        ("/D", 5, both),
        ("/D", 6, ROUTE_CHILD_INHERIT),
    ] {
        rib.register(name(prefix), key(face), route(0, flags))
            .unwrap();
    }
    apply(&mut rib, &mut fib);
    assert_eq!(faces(&fib, "/"), [1, 2]);
    assert_eq!(
        faces(&fib, "/A"),
        [1, 3],
        "not face 2: its route is not inherited"
    );
    assert_eq!(faces(&fib, "/A/B/C"), [1, 3, 4]);
    assert_eq!(faces(&fib, "/D"), [5, 6], "not face 1: /D captures");
}

#[test]
fn of_several_routes_to_one_face_the_cheapest_counts_and_a_nearer_prefix_comes_first() {
    let (mut rib, mut fib) = (Rib::new(RibLimits::default()), Fib::new());
    let operator = RouteKey {
        face: FaceId(300),
        origin: RouteOrigin::STATIC,
    };
    rib.register(name("/a"), key(300), route(20, ROUTE_CHILD_INHERIT))
        .unwrap();
    rib.register(name("/a"), operator, route(10, ROUTE_CHILD_INHERIT))
        .unwrap();
    rib.register(name("/a/b"), key(300), route(50, ROUTE_CHILD_INHERIT))
        .unwrap();
    apply(&mut rib, &mut fib);
    assert_eq!(fib[&name("/a")][&FaceId(300)].cost, 10);
    assert_eq!(fib[&name("/a/b")][&FaceId(300)].cost, 50);
    assert!(rib.unregister(&name("/a"), operator));
    assert!(!rib.unregister(&name("/a"), operator));
    apply(&mut rib, &mut fib);
    assert_eq!(fib[&name("/a")][&FaceId(300)].cost, 20);
}

#[test]
fn routes_expire_and_a_new_registration_prolongs_them() {
    let (mut rib, mut fib) = (Rib::new(RibLimits::default()), Fib::new());
    let until = |seconds| Route {
        expires: Some(Time::from_secs(seconds)),
        ..route(0, ROUTE_CHILD_INHERIT)
    };
    rib.register(name("/a"), key(300), until(10)).unwrap();
    rib.register(name("/b"), key(300), until(10)).unwrap();
    rib.register(name("/b"), key(300), until(20)).unwrap();
    assert_eq!(rib.poll_timeout().unwrap().at, Time::from_secs(10));
    rib.handle_timeout(Time::from_secs(10));
    apply(&mut rib, &mut fib);
    assert_eq!((faces(&fib, "/a"), faces(&fib, "/b")), (vec![], vec![300]));
    rib.handle_timeout(Time::from_secs(20));
    apply(&mut rib, &mut fib);
    assert!(rib.is_empty() && fib.is_empty() && rib.poll_timeout().is_none());
}

#[test]
fn a_face_cannot_have_more_routes_than_allowed_but_others_still_can() {
    let mut rib = Rib::new(RibLimits {
        routes: 6,
        routes_per_face: 4,
        ..RibLimits::default()
    });
    for number in 0..4 {
        rib.register(name(&format!("/{number}")), key(300), route(0, 0))
            .unwrap();
    }
    assert_eq!(
        rib.register(name("/5"), key(300), route(0, 0)),
        Err(RibError::Face(FaceId(300), 4))
    );
    rib.register(name("/0"), key(300), route(7, 0))
        .expect("a change does not add a route");
    rib.register(name("/5"), key(301), route(0, 0)).unwrap();
    rib.register(name("/6"), key(301), route(0, 0)).unwrap();
    assert_eq!(
        rib.register(name("/7"), key(301), route(0, 0)),
        Err(RibError::Routes(6))
    );
    rib.remove_face(FaceId(300));
    assert_eq!(rib.len(), 2);
    rib.register(name("/7"), key(301), route(0, 0)).unwrap();
}

#[test]
fn long_names_of_one_face_leave_room_for_others() {
    let mut rib = Rib::new(RibLimits {
        octets: 100,
        octets_per_face: 60,
        ..RibLimits::default()
    });
    // Each has 22 octets: type and length of its one component, and 20.
    let long = |number: u32| name(&format!("/{number:020}"));
    for number in 0..2 {
        rib.register(long(number), key(300), route(0, 0)).unwrap();
    }
    let (of_face, of_all) = (
        RibError::OctetsOfFace(FaceId(300), 60),
        RibError::Octets(100),
    );
    assert_eq!(rib.register(long(2), key(300), route(0, 0)), Err(of_face));
    rib.register(long(1), key(300), route(7, 0))
        .expect("a change adds no name");
    for number in 2..4 {
        rib.register(long(number), key(301), route(0, 0)).unwrap();
    }
    assert_eq!(rib.register(long(4), key(302), route(0, 0)), Err(of_all));
    assert!(rib.unregister(&long(0), key(300)));
    rib.register(long(4), key(302), route(0, 0)).unwrap();
    rib.remove_face(FaceId(301));
    rib.register(long(5), key(300), route(0, 0)).unwrap();
}

/// Computes the FIB from all routes, in the words of the protocol.
fn worked_out_anew(routes: &BTreeMap<(Name, RouteKey), Route>) -> Fib {
    let prefixes: BTreeSet<&Name> = routes.keys().map(|(prefix, _)| prefix).collect();
    let of = |prefix: &Name| {
        routes
            .iter()
            .filter(|((of, _), _)| of == prefix)
            .map(|((_, key), route)| (key.face, *route))
            .collect::<Vec<_>>()
    };
    let captures = |prefix: &Name| {
        of(prefix)
            .iter()
            .any(|(_, route)| route.flags & ROUTE_CAPTURE != 0)
    };
    let mut fib = Fib::new();
    for prefix in prefixes {
        let mut hops: BTreeMap<FaceId, Rank> = BTreeMap::new();
        for depth in (0..=prefix.len()).rev() {
            let at = prefix.prefix(depth);
            let mut here: BTreeMap<FaceId, u64> = BTreeMap::new();
            for (face, route) in of(&at) {
                if depth == prefix.len() || route.flags & ROUTE_CHILD_INHERIT != 0 {
                    let cost = here.entry(face).or_insert(route.cost);
                    *cost = route.cost.min(*cost);
                }
            }
            for (face, cost) in here {
                let inherited = depth < prefix.len();
                hops.entry(face).or_insert(Rank { cost, inherited });
            }
            if captures(&at) {
                break;
            }
        }
        fib.insert(prefix.clone(), hops);
    }
    fib
}

#[derive(Clone, Debug)]
enum Step {
    Register(Name, RouteKey, Route),
    Unregister(Name, RouteKey),
    RemoveFace(FaceId),
    Wait(Time),
}

fn step() -> impl Strategy<Value = Step> {
    let prefix = prop::collection::vec(prop::sample::select(vec!["a", "b", "ab"]), 0..4)
        .prop_map(|parts| name(&format!("/{}", parts.join("/"))));
    let origin = prop::sample::select(vec![RouteOrigin::APP, RouteOrigin::STATIC]);
    let key = (300u64..304, origin).prop_map(|(face, origin)| RouteKey {
        face: FaceId(face),
        origin,
    });
    let route = (0u64..4, 0u64..4, prop::option::weighted(0.2, 0u64..40)).prop_map(
        |(cost, flags, expires)| Route {
            cost,
            flags,
            expires: expires.map(Time::from_secs),
        },
    );
    prop_oneof![
        6 => (prefix.clone(), key.clone(), route).prop_map(|(name, key, route)| Step::Register(name, key, route)),
        3 => (prefix, key).prop_map(|(name, key)| Step::Unregister(name, key)),
        1 => (300u64..304).prop_map(|face| Step::RemoveFace(FaceId(face))),
        1 => (0u64..40).prop_map(|at| Step::Wait(Time::from_secs(at))),
    ]
}

proptest! {
    #[test]
    fn the_fib_always_follows_from_the_routes(steps in prop::collection::vec(step(), 1..80)) {
        let (mut rib, mut fib) = (Rib::new(RibLimits::default()), Fib::new());
        let mut model: BTreeMap<(Name, RouteKey), Route> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Register(prefix, key, route) => {
                    rib.register(prefix.clone(), key, route).unwrap();
                    model.insert((prefix, key), route);
                }
                Step::Unregister(prefix, key) => {
                    prop_assert_eq!(rib.unregister(&prefix, key), model.remove(&(prefix, key)).is_some());
                }
                Step::RemoveFace(face) => {
                    rib.remove_face(face);
                    model.retain(|(_, key), _| key.face != face);
                }
                Step::Wait(now) => {
                    rib.handle_timeout(now);
                    model.retain(|_, route| route.expires.is_none_or(|at| at > now));
                }
            }
            apply(&mut rib, &mut fib);
            prop_assert_eq!(&fib, &worked_out_anew(&model));
            prop_assert_eq!(rib.len(), model.len());
            let listed: usize = rib.entries().map(|(_, routes)| routes.count()).sum();
            prop_assert_eq!(listed, model.len());
        }
    }
}

/// Goes on until nothing is left to do at this time. Returns how many times it had to.
fn rest(rib: &mut Rib, mut now: Time) -> usize {
    let end = now + Duration::from_millis(900);
    let mut times = 0;
    while let Some(due) = rib.poll_timeout().filter(|due| due.at < end) {
        now = due.at.max(now);
        rib.handle_timeout(now);
        let next = rib.poll_timeout();
        assert!(
            next.is_none_or(|next| next.at > now),
            "{next:?} does not move"
        );
        times += 1;
        assert!(times < 100_000, "it never ends");
    }
    times
}

proptest! {
    /// However little is done at a time, and whatever changes in between.
    #[test]
    fn next_hops_follow_in_the_end(
        work in 1usize..6,
        steps in prop::collection::vec((step(), any::<bool>()), 1..80),
    ) {
        let limits = RibLimits { work, ..RibLimits::default() };
        let (mut rib, mut fib) = (Rib::new(limits), Fib::new());
        let mut model: BTreeMap<(Name, RouteKey), Route> = BTreeMap::new();
        let (mut removed, mut now) = (BTreeSet::new(), Time::ZERO);
        for (step, rests) in steps {
            match step {
                // The number of a removed face is not given again.
                Step::Register(_, key, _) | Step::Unregister(_, key) if removed.contains(&key.face) => {}
                Step::Register(prefix, key, route) => {
                    rib.register(prefix.clone(), key, route).unwrap();
                    model.insert((prefix, key), route);
                }
                Step::Unregister(prefix, key) => {
                    rib.unregister(&prefix, key);
                    model.remove(&(prefix, key));
                }
                Step::RemoveFace(face) => {
                    rib.remove_face(face);
                    model.retain(|(_, key), _| key.face != face);
                    removed.insert(face);
                }
                Step::Wait(at) => {
                    now = now.max(at);
                    rib.handle_timeout(now);
                }
            }
            apply(&mut rib, &mut fib);
            if rests {
                rest(&mut rib, now);
                apply(&mut rib, &mut fib);
                model.retain(|_, route| route.expires.is_none_or(|at| at > now));
                prop_assert_eq!(&fib, &worked_out_anew(&model));
                prop_assert_eq!(rib.len(), model.len());
            }
        }
    }
}

#[test]
fn changes_of_a_route_above_many_others_are_done_in_parts() {
    let (mut rib, mut fib) = (Rib::new(RibLimits::default()), Fib::new());
    let work = RibLimits::default().work;
    for number in 0..10 * work {
        let prefix = name(&format!("/site/{number}"));
        rib.register(prefix, key(300), route(0, 0)).unwrap();
    }
    apply(&mut rib, &mut fib);
    for inherited in [true, false] {
        match inherited {
            true => rib
                .register(name("/"), key(301), route(7, ROUTE_CHILD_INHERIT))
                .unwrap(),
            false => assert!(rib.unregister(&name("/"), key(301))),
        }
        let at_once = apply(&mut rib, &mut fib);
        assert!(at_once <= work + 1, "those below, and its own");
        assert!((9..=11).contains(&rest(&mut rib, Time::ZERO)));
        apply(&mut rib, &mut fib);
        let has_it = |hops: &BTreeMap<FaceId, Rank>| hops.contains_key(&FaceId(301));
        assert!(fib.values().all(|hops| has_it(hops) == inherited));
    }
    rib.remove_face(FaceId(300));
    assert!(rib.len() > 8 * work);
    rest(&mut rib, Time::ZERO);
    apply(&mut rib, &mut fib);
    assert!(rib.is_empty() && fib.is_empty());
}
