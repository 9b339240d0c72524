//! Each command, carried out and refused.

use core::time::Duration;

use whimbrel_core::Time;
use whimbrel_forwarder::mgmt::{FaceRequest, FaceSettings};
use whimbrel_forwarder::tables::MAX_DEPTH;
use whimbrel_forwarder::{FaceId, Persistency};
use whimbrel_ndn_mgmt::client::{self, Target};
use whimbrel_ndn_mgmt::{
    ControlParameters, CsInfo, FLAG_CONGESTION_MARKING, FLAG_CS_ADMIT, FLAG_CS_SERVE,
    FLAG_LOCAL_FIELDS, FLAG_LP_RELIABILITY, FibEntry, ROUTE_CAPTURE, RibEntry, RouteOrigin,
    StrategyChoice,
};
use whimbrel_ndn_packet::{DigestSigner, Interest, Name};

use super::router::{Router, name, of_name, parameters};
use super::signed::registrations;

fn at_face(prefix: &str, face: FaceId) -> ControlParameters {
    ControlParameters {
        face_id: Some(face.0),
        ..of_name(prefix)
    }
}

fn too_deep() -> ControlParameters {
    let deep = (0..=MAX_DEPTH).fold(Name::root(), |name, _| name.child_generic(b"x"));
    ControlParameters {
        name: Some(deep),
        ..parameters()
    }
}

#[test]
fn a_program_registers_its_prefix_with_nothing_but_the_name() {
    let mut router = Router::new();
    let program = router.program();
    let done = router.done(program, "rib/register", &of_name("/a/b"));
    let expected = ControlParameters {
        face_id: Some(program.0),
        origin: Some(RouteOrigin::APP.0),
        cost: Some(0),
        flags: Some(1),
        ..of_name("/a/b")
    };
    assert_eq!(done, expected);
    assert_eq!(router.next_hops("/a/b"), [(program.0, 0)]);
    router.done(program, "rib/unregister", &of_name("/a/b"));
    assert!(router.next_hops("/a/b").is_empty());
    let again = router.done(program, "rib/unregister", &of_name("/a/b"));
    assert_eq!(
        again.origin,
        Some(0),
        "unregistering a missing route is not an error"
    );
}

/// A default route is there before any program, and has a lower face number.
#[test]
fn a_program_comes_before_a_default_route_of_the_same_cost() {
    let mut router = Router::new();
    let upstream = router.neighbour(1);
    let program = router.program();
    router.done(program, "rib/register", &at_face("/", upstream));
    router.done(program, "rib/register", &of_name("/a/b"));
    let both = [(program.0, 0), (upstream.0, 0)];
    assert_eq!(router.next_hops("/a/b"), both);
    assert_eq!(router.next_hops("/"), [(upstream.0, 0)]);
    // An own route to the upstream is as good as the program's; then the number counts.
    router.done(program, "rib/register", &at_face("/a/b", upstream));
    assert_eq!(router.next_hops("/a/b"), [(upstream.0, 0), (program.0, 0)]);
    router.done(program, "rib/unregister", &at_face("/a/b", upstream));
    assert_eq!(router.next_hops("/a/b"), both);
}

#[test]
fn registrations_as_python_ndn_and_ndnts_send_them_are_carried_out() {
    for (client, interest) in registrations() {
        let mut router = Router::new();
        let program = router.program();
        let answer = router
            .ask(program, &interest)
            .unwrap_or_else(|| panic!("{client}: no answer"));
        assert!(client::response(&answer).unwrap().is_success(), "{client}");
        assert_eq!(router.next_hops("/a/b"), [(program.0, 0)], "{client}");
    }
}

#[test]
fn the_older_form_of_our_own_client_and_a_command_without_signature_are_carried_out() {
    let mut router = Router::new();
    let program = router.program();
    let stamp = router.stamp();
    let older = client::command_in_name(
        Target::Local,
        "rib",
        "register",
        &of_name("/a"),
        &DigestSigner,
        stamp,
    );
    assert!(
        client::response(&router.ask(program, &older).unwrap())
            .unwrap()
            .is_success()
    );
    let bare = Target::Local
        .name("rib", "register")
        .child_generic(&of_name("/b").encode());
    let bare = Interest {
        nonce: Some([1; 4]),
        ..Interest::new(bare)
    }
    .encode();
    assert!(
        client::response(&router.ask(program, &bare).unwrap())
            .unwrap()
            .is_success()
    );
    assert_eq!(
        (router.next_hops("/a").len(), router.next_hops("/b").len()),
        (1, 1)
    );
}

#[test]
fn a_route_for_another_face_with_all_its_fields_is_listed_as_given_and_ends_with_its_time() {
    let mut router = Router::new();
    let (program, neighbour) = (router.program(), router.neighbour(1));
    let wanted = ControlParameters {
        origin: Some(RouteOrigin::STATIC.0),
        cost: Some(30),
        flags: Some(ROUTE_CAPTURE),
        expiration_period: Some(Duration::from_secs(60)),
        ..at_face("/a", neighbour)
    };
    assert_eq!(router.done(program, "rib/register", &wanted), wanted);
    router.now = Time::from_secs(11);
    let listed: Vec<RibEntry> = router.items(program, "rib/list");
    assert_eq!(listed.len(), 1);
    let route = listed[0].routes[0];
    assert_eq!(
        (route.face_id, route.origin, route.cost, route.flags),
        (neighbour.0, 255, 30, 2)
    );
    assert_eq!(route.expiration_period, Some(Duration::from_secs(50)));
    assert!(
        router
            .forwarder
            .poll_timeout()
            .is_some_and(|deadline| deadline.at <= Time::from_secs(61))
    );
    router.now = Time::from_secs(61);
    router.forwarder.handle_timeout(router.now);
    assert!(router.next_hops("/a").is_empty());
    assert!(router.items::<RibEntry>(program, "rib/list").is_empty());
}

#[test]
fn invalid_registrations_are_refused() {
    let mut router = Router::new();
    let program = router.program();
    let nobody = FaceId(9_999);
    assert_eq!(
        router.refused(program, "rib/register", &parameters()),
        400,
        "no Name"
    );
    assert_eq!(
        router.refused(program, "rib/register", &at_face("/a", nobody)),
        410
    );
    assert_eq!(router.refused(program, "rib/register", &too_deep()), 414);
    let with_uri = ControlParameters {
        uri: Some("udp4://192.0.2.1:1".to_owned()),
        ..of_name("/a")
    };
    assert_eq!(
        router.refused(program, "rib/register", &with_uri),
        400,
        "a field that it does not take"
    );
    let response = router.command(program, "rib/register", &at_face("/a", nobody));
    let body = response.parameters().unwrap();
    assert_eq!(
        body,
        Some(at_face("/a", nobody)),
        "python-ndn fails on a refusal without a body"
    );
    let origin = ControlParameters {
        origin: Some(65_536),
        ..of_name("/a")
    };
    assert_eq!(router.refused(program, "rib/register", &origin), 400);
    let at_once = ControlParameters {
        expiration_period: Some(Duration::ZERO),
        ..of_name("/a")
    };
    assert_eq!(router.refused(program, "rib/register", &at_once), 400);
    assert_eq!(
        router.refused(program, "rib/unregister", &parameters()),
        400
    );
    assert!(router.forwarder.rib().is_empty());
}

#[test]
fn the_prefix_of_management_cannot_be_taken() {
    let mut router = Router::new();
    let program = router.program();
    for prefix in [
        "/localhost/nfd",
        "/localhost/nfd/rib",
        "/localhost/nfd/faces/events",
    ] {
        assert_eq!(
            router.refused(program, "rib/register", &of_name(prefix)),
            403
        );
        assert_eq!(
            router.refused(program, "fib/add-nexthop", &of_name(prefix)),
            403
        );
        assert_eq!(
            router.refused(
                program,
                "fib/remove-nexthop",
                &at_face(prefix, FaceId::INTERNAL)
            ),
            403
        );
    }
    router.done(program, "rib/register", &of_name("/localhost"));
    router.done(program, "rib/register", &of_name("/localhop/nfd"));
    assert_eq!(router.next_hops("/localhost/nfd"), [(1, 0)]);
}

#[test]
fn next_hops_are_added_changed_listed_and_removed() {
    let mut router = Router::new();
    let (program, neighbour) = (router.program(), router.neighbour(1));
    let added = router.done(program, "fib/add-nexthop", &of_name("/a"));
    let expected = ControlParameters {
        cost: Some(0),
        ..at_face("/a", program)
    };
    assert_eq!(
        added, expected,
        "without FaceId it is the program's own face"
    );
    let costly = ControlParameters {
        cost: Some(7),
        ..at_face("/a", neighbour)
    };
    assert_eq!(router.done(program, "fib/add-nexthop", &costly), costly);
    let listed: Vec<FibEntry> = router.items(program, "fib/list");
    let entry = listed
        .iter()
        .find(|entry| entry.name == name("/a"))
        .unwrap();
    let hops: Vec<_> = entry
        .next_hops
        .iter()
        .map(|hop| (hop.face_id, hop.cost))
        .collect();
    assert_eq!(hops, [(program.0, 0), (neighbour.0, 7)]);
    assert_eq!(
        router.done(program, "fib/remove-nexthop", &of_name("/a")),
        at_face("/a", program)
    );
    router.done(program, "fib/remove-nexthop", &of_name("/a"));
    assert_eq!(router.next_hops("/a"), [(neighbour.0, 7)]);
    assert_eq!(
        router.refused(program, "fib/add-nexthop", &at_face("/b", FaceId(9_999))),
        410
    );
    assert_eq!(router.refused(program, "fib/add-nexthop", &too_deep()), 414);
    assert_eq!(
        router.refused(program, "fib/add-nexthop", &parameters()),
        400
    );
}

#[test]
fn a_removed_face_loses_its_routes_and_next_hops() {
    let mut router = Router::new();
    let (program, leaving) = (router.program(), router.program());
    router.done(leaving, "rib/register", &of_name("/"));
    router.done(program, "rib/register", &of_name("/a"));
    router.done(leaving, "fib/add-nexthop", &of_name("/b"));
    assert_eq!(
        router.next_hops("/a"),
        [(program.0, 0), (leaving.0, 0)],
        "inherited from /"
    );
    router.forwarder.remove_face(router.now, leaving);
    assert_eq!(router.next_hops("/a"), [(program.0, 0)]);
    assert!(router.next_hops("/").is_empty() && router.next_hops("/b").is_empty());
    assert_eq!(router.forwarder.rib().len(), 1);
}

#[test]
fn strategies_are_set_listed_and_unset() {
    let mut router = Router::new();
    let program = router.program();
    let multicast = name("/localhost/nfd/strategy/multicast");
    let wanted = ControlParameters {
        strategy: Some(multicast.clone()),
        ..of_name("/a")
    };
    let done = router.done(program, "strategy-choice/set", &wanted);
    let full_name = done.strategy.expect("the full name with version");
    assert!(multicast.as_ref().is_prefix_of(full_name.as_ref()));
    let listed: Vec<StrategyChoice> = router.items(program, "strategy-choice/list");
    assert_eq!(listed.len(), 2, "/ has one too");
    assert_eq!(
        (&listed[1].name, &listed[1].strategy),
        (&name("/a"), &full_name)
    );
    router.done(program, "strategy-choice/unset", &of_name("/a"));
    assert_eq!(
        router
            .items::<StrategyChoice>(program, "strategy-choice/list")
            .len(),
        1
    );

    let unknown = ControlParameters {
        strategy: Some(name("/no/such")),
        ..of_name("/a")
    };
    assert_eq!(
        router.refused(program, "strategy-choice/set", &unknown),
        404
    );
    assert_eq!(
        router.refused(program, "strategy-choice/set", &of_name("/a")),
        400,
        "no Strategy"
    );
    assert_eq!(
        router.refused(program, "strategy-choice/unset", &of_name("/")),
        400
    );
    let deep = ControlParameters {
        strategy: Some(multicast),
        ..too_deep()
    };
    assert_eq!(router.refused(program, "strategy-choice/set", &deep), 414);
}

#[test]
fn the_content_store_is_configured_and_described() {
    let mut router = Router::new();
    let program = router.program();
    let flags = ControlParameters {
        capacity: Some(100),
        ..parameters()
    }
    .with_flag(FLAG_CS_ADMIT, false)
    .with_flag(FLAG_CS_SERVE, true);
    let done = router.done(program, "cs/config", &flags);
    assert_eq!(
        (done.capacity, done.flags),
        (Some(100), Some(FLAG_CS_SERVE))
    );
    let told: Vec<CsInfo> = router.items(program, "cs/info");
    assert_eq!(
        (told.len(), told[0].capacity, told[0].flags),
        (1, 100, FLAG_CS_SERVE)
    );
    let nothing = router.done(program, "cs/config", &parameters());
    assert_eq!(
        (nothing.capacity, nothing.flags),
        (Some(100), Some(FLAG_CS_SERVE))
    );
    let unmasked = ControlParameters {
        flags: Some(1),
        ..parameters()
    };
    assert_eq!(
        router.refused(program, "cs/config", &unmasked),
        400,
        "Flags without Mask"
    );

    let erased = router.done(program, "cs/erase", &of_name("/a"));
    assert_eq!((erased.count, erased.capacity), (Some(0), None));
    let none = ControlParameters {
        count: Some(0),
        ..of_name("/a")
    };
    assert_eq!(router.refused(program, "cs/erase", &none), 400);
    assert_eq!(router.refused(program, "cs/erase", &parameters()), 400);
}

#[test]
fn a_face_is_changed_and_its_link_is_told() {
    let mut router = Router::new();
    let (program, neighbour) = (router.program(), router.neighbour(1));
    let wanted = ControlParameters {
        face_id: Some(neighbour.0),
        persistency: Some(Persistency::Permanent),
        mtu: Some(1_200),
        base_congestion_marking_interval: Some(Duration::from_millis(50)),
        default_congestion_threshold: Some(9_000),
        ..parameters()
    }
    .with_flag(FLAG_LP_RELIABILITY, true)
    .with_flag(FLAG_CONGESTION_MARKING, true);
    let done = router.done(program, "faces/update", &wanted);
    let both = FLAG_LP_RELIABILITY | FLAG_CONGESTION_MARKING;
    assert_eq!((done.flags, done.mask), (Some(both), None));
    assert_eq!(
        ControlParameters {
            mask: wanted.mask,
            ..done
        },
        wanted
    );
    let Some(FaceRequest::Update { face, settings }) = router.face_request() else {
        panic!("the link was not told");
    };
    assert_eq!(
        (face, settings.reliability, settings.mtu),
        (neighbour, Some(true), Some(1_200))
    );
    assert_eq!(
        (settings.local_fields, settings.persistency),
        (None, Some(Persistency::Permanent))
    );
    let spec = &router.forwarder.face(neighbour).unwrap().spec;
    assert!(spec.flags.reliability && !spec.flags.local_fields);
    assert_eq!(spec.mtu, Some(1_200));
}

#[test]
fn a_program_turns_local_fields_on_for_itself_and_only_for_local_faces() {
    let mut router = Router::new();
    let (program, neighbour) = (router.program(), router.neighbour(1));
    let wanted = parameters().with_flag(FLAG_LOCAL_FIELDS, true);
    let done = router.done(program, "faces/update", &wanted);
    assert_eq!(
        (done.face_id, done.flags),
        (Some(program.0), Some(FLAG_LOCAL_FIELDS))
    );
    assert!(
        router
            .forwarder
            .face(program)
            .unwrap()
            .spec
            .flags
            .local_fields
    );
    let settings = FaceSettings {
        local_fields: Some(true),
        ..FaceSettings::default()
    };
    let expected = FaceRequest::Update {
        face: program,
        settings,
    };
    assert_eq!(router.face_request(), Some(expected));

    let of_neighbour = ControlParameters {
        face_id: Some(neighbour.0),
        ..wanted
    };
    let refused = router.command(program, "faces/update", &of_neighbour);
    assert_eq!(refused.status_code, 409);
    let body = refused
        .parameters()
        .unwrap()
        .expect("the refused parameters");
    assert_eq!(body.flag(FLAG_LOCAL_FIELDS), Some(true));
    assert_eq!(router.face_request(), None, "nothing is changed");
}

#[test]
fn one_invalid_change_of_a_face_refuses_all_changes() {
    let mut router = Router::new();
    let (program, neighbour) = (router.program(), router.neighbour(1));
    let of_face = |face: FaceId| ControlParameters {
        face_id: Some(face.0),
        ..parameters()
    };
    assert_eq!(
        router.refused(program, "faces/update", &of_face(FaceId(9_999))),
        404
    );
    assert_eq!(
        router.refused(program, "faces/update", &of_face(FaceId::INTERNAL)),
        403
    );
    let permanent = ControlParameters {
        persistency: Some(Persistency::Permanent),
        ..of_face(program)
    };
    assert_eq!(
        router.refused(program, "faces/update", &permanent),
        409,
        "a client cannot be reconnected"
    );
    let mtu = ControlParameters {
        mtu: Some(1_000),
        ..of_face(program)
    };
    assert_eq!(
        router.refused(program, "faces/update", &mtu),
        409,
        "a stream has no MTU"
    );
    let small = ControlParameters {
        mtu: Some(127),
        persistency: Some(Persistency::Permanent),
        ..of_face(neighbour)
    };
    let refused = router.command(program, "faces/update", &small);
    assert_eq!(refused.status_code, 409);
    let body = refused.parameters().unwrap().unwrap();
    assert_eq!((body.mtu, body.persistency), (Some(127), None));
    assert_eq!(
        router.forwarder.face(neighbour).unwrap().spec.persistency,
        Persistency::Persistent
    );
    let unmasked = ControlParameters {
        flags: Some(2),
        ..of_face(neighbour)
    };
    assert_eq!(router.refused(program, "faces/update", &unmasked), 400);
}

#[test]
fn a_face_is_destroyed_once_and_twice_but_never_the_routers_own() {
    let mut router = Router::new();
    let (program, neighbour) = (router.program(), router.neighbour(1));
    let of_face = |face: FaceId| ControlParameters {
        face_id: Some(face.0),
        ..parameters()
    };
    assert_eq!(
        router.done(program, "faces/destroy", &of_face(neighbour)),
        of_face(neighbour)
    );
    assert!(router.forwarder.face(neighbour).is_none());
    assert_eq!(router.face_request(), Some(FaceRequest::Destroy(neighbour)));
    router.done(program, "faces/destroy", &of_face(neighbour));
    assert_eq!(router.face_request(), None);
    assert_eq!(
        router.refused(program, "faces/destroy", &of_face(FaceId::INVALID)),
        400
    );
    assert_eq!(
        router.refused(program, "faces/destroy", &of_face(FaceId::INTERNAL)),
        403
    );
    assert_eq!(router.refused(program, "faces/destroy", &parameters()), 400);
}

#[test]
fn invalid_commands_are_answered_with_the_error() {
    let mut router = Router::new();
    let program = router.program();
    let ask = |router: &mut Router, name: Name| {
        let interest = Interest {
            nonce: Some([7; 4]),
            ..Interest::new(name)
        }
        .encode();
        let data = router.ask(program, &interest).expect("an answer");
        client::response(&data).unwrap().status_code
    };
    let base = Target::Local.name("rib", "register");
    assert_eq!(ask(&mut router, base.clone()), 400, "no parameters");
    assert_eq!(ask(&mut router, base.child_generic(b"not TLV")), 400);
    assert_eq!(
        ask(&mut router, base.child_generic(&[104, 2, 105, 0])),
        400,
        "a number without octets"
    );
    assert_eq!(ask(&mut router, Target::Local.name("rib", "repair")), 501);
    assert_eq!(ask(&mut router, Target::Local.name("bank", "rob")), 501);
}
