//! `faces/create`: the program that contains the forwarder opens the face, and the response waits
//! for it.

use core::time::Duration;

use whimbrel_core::Time;
use whimbrel_forwarder::mgmt::{FaceFailure, FaceRequest, RequestId};
use whimbrel_forwarder::{FaceId, FaceSpec, Persistency};
use whimbrel_ndn_mgmt::client;
use whimbrel_ndn_mgmt::{
    ControlParameters, ControlResponse, FLAG_LOCAL_FIELDS, FLAG_LP_RELIABILITY,
};

use super::router::{Router, parameters, udp};

fn of_uri(uri: &str) -> ControlParameters {
    ControlParameters {
        uri: Some(uri.to_owned()),
        ..parameters()
    }
}

/// Sends the command. Returns the resulting request for a face.
fn wish(router: &mut Router, from: FaceId, wanted: &ControlParameters) -> FaceRequest {
    let interest = router.interest("faces/create", wanted);
    assert_eq!(
        router.ask(from, &interest),
        None,
        "the answer waits for the face"
    );
    router.face_request().expect("a wish")
}

fn number(request: &FaceRequest) -> RequestId {
    match request {
        FaceRequest::Create { request, .. } => *request,
        other => panic!("not a creation: {other:?}"),
    }
}

fn finish(router: &mut Router, request: RequestId, outcome: Result<FaceId, FaceFailure>) {
    router.forwarder.face_created(router.now, request, &outcome);
    router.work();
}

fn answer(router: &mut Router, from: FaceId) -> ControlResponse {
    client::response(&router.receive(from).expect("an answer")).unwrap()
}

#[test]
fn a_face_is_created_as_requested_and_its_properties_are_returned() {
    let mut router = Router::new();
    let program = router.program();
    // The URI is written as by a person; the router brings it into canonical form.
    let wanted = ControlParameters {
        persistency: Some(Persistency::Permanent),
        mtu: Some(1_200),
        ..of_uri("udp://192.0.2.7")
    }
    .with_flag(FLAG_LP_RELIABILITY, true);
    let request = wish(&mut router, program, &wanted);
    let FaceRequest::Create {
        request,
        remote,
        local,
        settings,
    } = request
    else {
        panic!("not a creation")
    };
    assert_eq!((remote.to_string(), local), (udp(7), None));
    assert_eq!(
        (settings.persistency, settings.mtu),
        (Some(Persistency::Permanent), Some(1_200))
    );
    assert_eq!(
        (settings.reliability, settings.local_fields),
        (Some(true), None)
    );

    let spec = FaceSpec {
        mtu: Some(1_200),
        ..FaceSpec::new(udp(7), "udp4://192.0.2.254:6363")
    };
    let face = router.forwarder.add_face(router.now, spec);
    finish(&mut router, request, Ok(face));
    let response = answer(&mut router, program);
    assert!(response.is_success());
    let told = response.parameters().unwrap().unwrap();
    assert_eq!(
        (told.face_id, told.uri, told.mtu),
        (Some(face.0), Some(udp(7)), Some(1_200))
    );
    assert_eq!(told.local_uri.as_deref(), Some("udp4://192.0.2.254:6363"));
    assert_eq!((told.flags, told.mask), (Some(0), None));
    assert!(
        told.base_congestion_marking_interval.is_some()
            && told.default_congestion_threshold.is_some()
    );
}

#[test]
fn a_face_is_persistent_by_default() {
    let mut router = Router::new();
    let program = router.program();
    let FaceRequest::Create { settings, .. } =
        wish(&mut router, program, &of_uri("tcp4://192.0.2.7:6363"))
    else {
        panic!("not a creation")
    };
    assert_eq!(settings.persistency, Some(Persistency::Persistent));
}

#[test]
fn an_existing_face_is_reported_with_status_409() {
    let mut router = Router::new();
    let (program, neighbour) = (router.program(), router.neighbour(7));
    let response = router.command(program, "faces/create", &of_uri(&udp(7)));
    assert_eq!(response.status_code, 409);
    let told = response.parameters().unwrap().expect("its properties");
    assert_eq!((told.face_id, told.uri), (Some(neighbour.0), Some(udp(7))));
    assert_eq!(
        (told.mtu, told.base_congestion_marking_interval),
        (None, None),
        "these were not requested"
    );
    assert_eq!(router.face_request(), None);
}

#[test]
fn two_programs_that_want_the_same_face_at_once_get_one() {
    let mut router = Router::new();
    let (first, second) = (router.program(), router.program());
    let request = number(&wish(&mut router, first, &of_uri(&udp(7))));
    let interest = router.interest("faces/create", &of_uri(&udp(7)));
    assert_eq!(router.ask(second, &interest), None);
    assert_eq!(router.face_request(), None, "it is asked for once");
    let face = router.neighbour(7);
    finish(&mut router, request, Ok(face));
    assert!(answer(&mut router, first).is_success());
    let other = answer(&mut router, second);
    assert_eq!(
        (
            other.status_code,
            other.parameters().unwrap().unwrap().face_id
        ),
        (409, Some(face.0))
    );
}

#[test]
fn errors_while_opening_are_reported_in_words() {
    let mut router = Router::new();
    let program = router.program();
    let face = router.neighbour(9);
    for (failure, code, words) in [
        (
            FaceFailure::Unsupported("this system has no raw sockets".to_owned()),
            406,
            "raw sockets",
        ),
        (
            FaceFailure::Failed("connection refused".to_owned()),
            504,
            "connection refused",
        ),
        (
            FaceFailure::TooMany("1000 faces are open".to_owned()),
            503,
            "1000 faces",
        ),
        (FaceFailure::Exists(face), 409, "already"),
    ] {
        let request = number(&wish(&mut router, program, &of_uri(&udp(7))));
        finish(&mut router, request, Err(failure));
        let response = answer(&mut router, program);
        assert_eq!(response.status_code, code);
        assert!(response.status_text.contains(words), "{response}");
        let body = response
            .parameters()
            .unwrap()
            .expect("the requested face, or the existing one");
        assert!(body.uri.is_some());
    }
    let request = number(&wish(&mut router, program, &of_uri(&udp(7))));
    finish(&mut router, request, Ok(FaceId(9_999)));
    assert_eq!(
        answer(&mut router, program).status_code,
        504,
        "it failed before it could be reported"
    );
    finish(&mut router, request, Ok(face));
    assert_eq!(
        router.receive(program),
        None,
        "no response without an Interest"
    );
}

/// Invalid parameters, and the status code of the refusal.
fn invalid_creations() -> Vec<(ControlParameters, u64)> {
    vec![
        (of_uri("192.0.2.1"), 400),
        (of_uri("udp4://192.0.2.1:70000"), 400),
        (of_uri("udp6://192.0.2.1"), 400),
        (of_uri("quic://192.0.2.1"), 400),
        (of_uri("udp://router.example.net"), 400),
        (
            ControlParameters {
                local_uri: Some("nonsense".to_owned()),
                ..of_uri(&udp(7))
            },
            400,
        ),
        (of_uri("unix:///tmp/socket"), 406),
        (of_uri("fd://3"), 406),
        (of_uri("dev://eth0"), 406),
        (of_uri("internal://"), 406),
        (of_uri("wsclient://127.0.0.1:4"), 406),
        (of_uri("udp4://0.0.0.0:6363"), 406),
        (of_uri("tcp6://[::]:6363"), 406),
        (of_uri("udp4://192.0.2.1:0"), 406),
        (of_uri("udp4://224.0.23.170:56363"), 406),
        (of_uri("ether://[01:00:5e:00:17:aa]"), 406),
        (of_uri("ether://[02:00:00:00:00:01]"), 406),
        (
            ControlParameters {
                local_uri: Some("udp4://192.0.2.254:6363".to_owned()),
                ..of_uri(&udp(7))
            },
            406,
        ),
        (
            ControlParameters {
                persistency: Some(Persistency::OnDemand),
                ..of_uri(&udp(7))
            },
            406,
        ),
        (
            ControlParameters {
                mtu: Some(127),
                ..of_uri(&udp(7))
            },
            406,
        ),
        (
            ControlParameters {
                mtu: Some(1_400),
                ..of_uri("tcp4://192.0.2.1:6363")
            },
            406,
        ),
        (of_uri(&udp(7)).with_flag(FLAG_LOCAL_FIELDS, true), 406),
        (
            ControlParameters {
                flags: Some(2),
                ..of_uri(&udp(7))
            },
            400,
        ),
        (parameters(), 400),
        (
            ControlParameters {
                face_id: Some(300),
                ..of_uri(&udp(7))
            },
            400,
        ),
    ]
}

#[test]
fn invalid_creations_are_refused_before_a_face_is_requested() {
    let mut router = Router::new();
    let program = router.program();
    let refusals = invalid_creations();
    for (wanted, code) in refusals {
        assert_eq!(
            router.refused(program, "faces/create", &wanted),
            code,
            "{wanted:?}"
        );
    }
    assert_eq!(router.face_request(), None);
    let ether = ControlParameters {
        local_uri: Some("dev://eth0".to_owned()),
        ..of_uri("ether://[02:00:00:00:00:01]")
    };
    let FaceRequest::Create { local, .. } = wish(&mut router, program, &ether) else {
        panic!("not a creation")
    };
    assert_eq!(
        local.map(|local| local.to_string()).as_deref(),
        Some("dev://eth0")
    );
}

#[test]
fn creations_under_way_are_bounded_and_forgotten_in_the_end() {
    let mut router = Router::new();
    let program = router.program();
    let mut pending = 0;
    let mut refused = 0;
    for host in 0..300u16 {
        let uri = format!("udp4://198.51.{}.{}:6363", host / 250, host % 250);
        let interest = router.interest("faces/create", &of_uri(&uri));
        match router.ask(program, &interest) {
            None => pending += 1,
            Some(data) => {
                assert_eq!(client::response(&data).unwrap().status_code, 503);
                refused += 1;
            }
        }
    }
    assert_eq!((pending, refused), (256, 44));
    assert!(router.forwarder.poll_timeout().is_some());
    router.now += Duration::from_secs(120);
    router.forwarder.handle_timeout(router.now);
    while router.face_request().is_some() {}
    wish(&mut router, program, &of_uri(&udp(7)));
    assert!(router.now > Time::from_secs(120));
}
