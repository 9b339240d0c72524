//! The prefixes that a web page may register, and the peers that it yields to.

use core::time::Duration;

use proptest::prelude::*;
use whimbrel_forwarder::rib::{
    PAGE_ROUTE_COST, ROUTES_OF_PAGES, ROUTES_PER_PAGE, Rib, RibLimits, Route, RouteKey,
};
use whimbrel_forwarder::{FaceId, FaceSpec};
use whimbrel_ndn_mgmt::client::{self, Target};
use whimbrel_ndn_mgmt::{ControlParameters, ROUTE_CAPTURE, ROUTE_CHILD_INHERIT, RouteOrigin};
use whimbrel_ndn_packet::{DigestSigner, Name, PrefixAnnouncement, ValidityPeriod};

use super::router::{Router, START_MILLIS, name, of_name};

impl Router {
    /// Adds a page in a browser on this machine.
    fn page(&mut self) -> FaceId {
        let number = self.forwarder.faces().count();
        let spec = FaceSpec {
            web_origin: Some("https://app.example".into()),
            ..FaceSpec::new(
                format!("wsclient://127.0.0.1:{}", 5_000 + number),
                "ws://127.0.0.1:9696",
            )
        };
        self.forwarder.add_face(self.now, spec)
    }

    /// Returns the status of a page's command, and the parameters of a success.
    fn by_page(
        &mut self,
        page: FaceId,
        verb: &str,
        wanted: &ControlParameters,
    ) -> (u64, Option<ControlParameters>) {
        let stamp = self.stamp();
        let command = client::command(Target::Neighbour, "rib", verb, wanted, &DigestSigner, stamp);
        let data = self.ask(page, &command).expect("an answer");
        let response = client::response(&data).unwrap();
        assert!(
            response.is_success() || response.status_text.len() > 15,
            "{response}"
        );
        let carried_out = response
            .is_success()
            .then(|| response.parameters().unwrap());
        (response.status_code, carried_out.flatten())
    }

    fn page_registers(&mut self, page: FaceId, prefix: &str) -> u64 {
        self.by_page(page, "register", &of_name(prefix)).0
    }

    /// Returns the faces of the routes for exactly this prefix.
    fn route_faces(&self, prefix: &str) -> Vec<u64> {
        let entries = self.forwarder.rib().entries();
        entries
            .filter(|(prefix_of_entry, _)| **prefix_of_entry == name(prefix))
            .flat_map(|(_, routes)| routes.map(|(key, _)| key.face.0))
            .collect()
    }
}

#[test]
fn a_page_gets_only_prefixes_that_nobody_else_has() {
    let mut router = Router::new();
    let (program, page) = (router.program(), router.page());
    router.done(program, "rib/register", &of_name("/bank/accounts"));
    for (prefix, status) in [
        ("/", 403),
        ("/bank", 409),
        ("/bank/accounts", 409),
        ("/bank/accounts/7", 409),
        ("/bank/letters", 200),
        ("/bankers", 200),
        ("/app/room/1", 200),
        // The page's own prefixes do not prevent it.
        ("/app", 200),
        ("/app/room/1/seat", 200),
        ("/app", 200),
        // Prefixes of management belong to the router.
        ("/localhost", 409),
        ("/localhop/nfd", 409),
        ("/localhop/nfd/rib/register", 403),
        ("/localhop/group", 200),
    ] {
        assert_eq!(router.page_registers(page, prefix), status, "{prefix}");
    }
    assert_eq!(router.next_hops("/bank/accounts"), [(program.0, 0)]);
    assert_eq!(router.next_hops("/app"), [(page.0, PAGE_ROUTE_COST)]);
    let (_, unregistered) = router.by_page(page, "unregister", &of_name("/app/room/1"));
    assert!(unregistered.is_some());
    router.forwarder.remove_face(router.now, page);
    assert_eq!(router.forwarder.rib().len(), 1);
    assert_eq!(router.forwarder.rib().page_routes(), 0);
}

#[test]
fn a_page_captures_nothing_and_its_routes_cost_more_than_others() {
    let mut router = Router::new();
    let (program, page, uplink) = (router.program(), router.page(), router.neighbour(9));
    let default = ControlParameters {
        face_id: Some(uplink.0),
        ..of_name("/")
    };
    router.done(program, "rib/register", &default);
    for flags in [ROUTE_CAPTURE, ROUTE_CAPTURE | ROUTE_CHILD_INHERIT] {
        let wanted = ControlParameters {
            flags: Some(flags),
            ..of_name("/app")
        };
        let (_, got) = router.by_page(page, "register", &wanted);
        let given = got.unwrap().flags;
        assert_eq!(given, Some(flags & ROUTE_CHILD_INHERIT), "it is told so");
        let hops = [(uplink.0, 0), (page.0, PAGE_ROUTE_COST)];
        assert_eq!(router.next_hops("/app"), hops);
    }
    for (wished, given) in [
        (0, PAGE_ROUTE_COST),
        (PAGE_ROUTE_COST + 5, PAGE_ROUTE_COST + 5),
    ] {
        let wanted = ControlParameters {
            cost: Some(wished),
            ..of_name("/app")
        };
        let (_, got) = router.by_page(page, "register", &wanted);
        assert_eq!(got.unwrap().cost, Some(given));
    }
}

#[test]
fn the_default_route_stays_preferred_and_does_not_stop_a_page() {
    let mut router = Router::new();
    let (program, page, uplink) = (router.program(), router.page(), router.neighbour(9));
    let default = ControlParameters {
        face_id: Some(uplink.0),
        cost: Some(500),
        ..of_name("/")
    };
    router.done(program, "rib/register", &default);
    assert_eq!(router.page_registers(page, "/app"), 200);
    let expected = [(uplink.0, 500), (page.0, PAGE_ROUTE_COST)];
    assert_eq!(router.next_hops("/app"), expected);
    // Registering it again leaves the page its prefix.
    router.done(program, "rib/register", &default);
    assert_eq!(router.next_hops("/app"), expected);
    // A default route that longer prefixes do not inherit would lose these names to the page.
    let strict = ControlParameters {
        flags: Some(0),
        ..default.clone()
    };
    router.done(program, "rib/register", &strict);
    assert_eq!(router.next_hops("/app"), []);
    assert_eq!(router.page_registers(page, "/app"), 409);
}

#[test]
fn other_faces_take_a_prefix_from_a_page() {
    for wanted in ["/app", "/app/room", "/app/room/1", "/app/room/1/seat"] {
        let mut router = Router::new();
        let (program, page) = (router.program(), router.page());
        assert_eq!(router.page_registers(page, "/app/room"), 200);
        assert_eq!(router.page_registers(page, "/app/room/1"), 200);
        assert_eq!(router.page_registers(page, "/apple"), 200);
        router.done(program, "rib/register", &of_name(wanted));
        assert_eq!(router.route_faces(wanted), [program.0], "{wanted}");
        for prefix in ["/app/room", "/app/room/1"] {
            let kept = !related(&name(prefix), &name(wanted));
            let has = router.route_faces(prefix).contains(&page.0);
            assert_eq!(has, kept, "{wanted}: {prefix}");
        }
        assert_eq!(router.route_faces("/apple"), [page.0], "{wanted}");
        let given_up = router.forwarder.rib().displaced_page_routes();
        assert_eq!(given_up, 2, "{wanted}");
    }
}

fn related(a: &Name, b: &Name) -> bool {
    a.as_ref().is_prefix_of(b.as_ref()) || b.as_ref().is_prefix_of(a.as_ref())
}

#[test]
fn a_static_next_hop_is_not_taken_and_takes_a_prefix_from_a_page() {
    let mut router = Router::new();
    let (program, page) = (router.program(), router.page());
    router.done(program, "fib/add-nexthop", &of_name("/bank"));
    assert_eq!(router.page_registers(page, "/bank"), 409);
    assert_eq!(router.page_registers(page, "/bank/1"), 409);
    assert_eq!(router.page_registers(page, "/app"), 200);
    router.done(program, "fib/add-nexthop", &of_name("/app"));
    assert_eq!(router.next_hops("/app"), [(program.0, 0)]);
    assert_eq!(router.page_registers(page, "/app"), 409);
}

#[test]
fn pages_take_nothing_from_each_other() {
    let mut router = Router::new();
    let (first, second) = (router.page(), router.page());
    assert_eq!(router.page_registers(first, "/app"), 200);
    assert_eq!(router.page_registers(second, "/app"), 409);
    assert_eq!(router.page_registers(second, "/app/1"), 409);
    router.forwarder.remove_face(router.now, first);
    assert_eq!(router.page_registers(second, "/app"), 200);
}

#[test]
fn an_announcement_takes_a_prefix_for_a_program_but_not_for_a_page() {
    let mut router = Router::new();
    let (program, page) = (router.program(), router.page());
    let now = START_MILLIS / 1_000;
    let announcement = |prefix: &str| {
        PrefixAnnouncement {
            prefix: name(prefix),
            version: 1,
            expiration: Duration::from_secs(60),
            validity: Some(ValidityPeriod {
                not_before: now - 10,
                not_after: now + 100,
            }),
        }
        .encode(&DigestSigner)
    };
    let announce = |router: &mut Router, from: FaceId, target: Target, prefix: &str| {
        let stamp = router.stamp();
        let command = client::announce(target, &announcement(prefix), &DigestSigner, stamp);
        let data = router.ask(from, &command).expect("an answer");
        client::response(&data).unwrap().status_code
    };
    let neighbour = Target::Neighbour;
    assert_eq!(announce(&mut router, page, neighbour, "/app"), 200);
    assert_eq!(announce(&mut router, program, Target::Local, "/app"), 200);
    assert_eq!(router.route_faces("/app"), [program.0]);
    assert_eq!(announce(&mut router, page, neighbour, "/app/1"), 409);
    assert_eq!(announce(&mut router, page, neighbour, "/"), 403);
}

#[test]
fn pages_have_few_prefixes_each_and_few_together() {
    let mut router = Router::new();
    let mut taken = 0;
    let mut pages = Vec::new();
    for number in 0..=ROUTES_OF_PAGES / ROUTES_PER_PAGE {
        let page = router.page();
        pages.push(page);
        for prefix in 0..ROUTES_PER_PAGE + 3 {
            let status = router.page_registers(page, &format!("/{number}/{prefix}"));
            let room = prefix < ROUTES_PER_PAGE && taken < ROUTES_OF_PAGES;
            assert_eq!(status, if room { 200 } else { 503 }, "{number} {prefix}");
            taken += usize::from(room);
        }
    }
    assert_eq!(router.forwarder.rib().page_routes(), ROUTES_OF_PAGES);
    // A page may renew its prefixes, and register again those that it unregistered.
    assert_eq!(router.page_registers(pages[0], "/0/0"), 200);
    router.by_page(pages[0], "unregister", &of_name("/0/0"));
    assert_eq!(router.page_registers(pages[0], "/again"), 200);
    // Programs still have room.
    let program = router.program();
    router.done(program, "rib/register", &of_name("/program"));
}

#[test]
fn an_expired_route_of_a_page_is_forgotten() {
    let mut router = Router::new();
    let page = router.page();
    let wanted = ControlParameters {
        expiration_period: Some(Duration::from_secs(5)),
        ..of_name("/app")
    };
    assert_eq!(router.by_page(page, "register", &wanted).0, 200);
    router.now += Duration::from_secs(6);
    router.forwarder.handle_timeout(router.now);
    assert_eq!(router.forwarder.rib().page_routes(), 0);
    let other = router.page();
    assert_eq!(router.page_registers(other, "/app"), 200);
}

/// A step of the property below: registration or not, face, prefix, and flags.
type Step = (bool, u64, Vec<u8>, u64);

proptest! {
    /// Faces 1 and 2 are pages; 3 and 4 are not.
    #[test]
    fn no_page_is_ever_in_the_way(
        steps in prop::collection::vec(
            (prop::bool::weighted(0.8), 1u64..5, prop::collection::vec(0u8..2, 0..4), 0u64..4), 1..60),
    ) {
        let mut rib = Rib::new(RibLimits::default());
        rib.add_page(FaceId(1));
        rib.add_page(FaceId(2));
        for (add, face, components, flags) in steps as Vec<Step> {
            let prefix = components
                .iter()
                .fold(Name::root(), |name, octet| name.child_generic(&[*octet]));
            let key = RouteKey { face: FaceId(face), origin: RouteOrigin::APP };
            let route = Route { cost: 0, flags, expires: None };
            if add {
                let outcome = rib.register(prefix.clone(), key, route);
                prop_assert!(face < 3 || outcome.is_ok());
            } else {
                rib.unregister(&prefix, key);
            }
            let routes: Vec<(Name, RouteKey, Route)> = rib
                .entries()
                .flat_map(|(name, routes)| {
                    let name = name.clone();
                    routes.map(move |(key, route)| (name.clone(), key, route)).collect::<Vec<_>>()
                })
                .collect();
            let pages = routes.iter().filter(|(_, key, _)| key.face.0 < 3);
            prop_assert_eq!(rib.page_routes(), pages.clone().count());
            for (prefix, key, route) in pages {
                prop_assert!(!prefix.is_empty() && route.flags & ROUTE_CAPTURE == 0);
                for (other, its_key, its_route) in &routes {
                    let default = other.is_empty() && its_route.flags & ROUTE_CHILD_INHERIT != 0;
                    let own = its_key.face == key.face;
                    prop_assert!(own || default || !related(prefix, other), "{prefix} {other}");
                }
            }
        }
    }
}
