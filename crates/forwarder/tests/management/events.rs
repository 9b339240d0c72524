//! Face events are reported to waiting Interests.

use core::time::Duration;

use whimbrel_forwarder::FaceId;
use whimbrel_ndn_mgmt::{FaceEventKind, FaceEventNotification};
use whimbrel_ndn_packet::{DataRef, Interest};

use super::router::{Router, name};

fn interest(text: &str, any: bool, nonce: u8) -> Vec<u8> {
    let mut interest = Interest::new(name(text));
    (interest.can_be_prefix, interest.must_be_fresh) = (any, any);
    interest.nonce = Some([nonce; 4]);
    interest.lifetime = Some(Duration::from_secs(60));
    interest.encode()
}

/// Returns a router in which nothing has happened for a while.
fn quiet() -> (Router, FaceId) {
    let mut router = Router::new();
    let program = router.program();
    router.work();
    router.now += Duration::from_secs(10);
    (router, program)
}

fn told(packet: &[u8]) -> (String, FaceEventNotification) {
    let data = DataRef::decode(packet).unwrap();
    (
        data.name.to_string(),
        FaceEventNotification::decode(data.content).unwrap(),
    )
}

#[test]
fn a_subscriber_gets_the_next_event_and_then_each_by_its_number() {
    let (mut router, program) = quiet();
    assert_eq!(
        router.ask(program, &interest("/localhost/nfd/faces/events", true, 1)),
        None
    );
    let neighbour = router.neighbour(1);
    router.work();
    let (name, event) = told(&router.receive(program).expect("the creation"));
    assert_eq!(
        name, "/localhost/nfd/faces/events/seq=1",
        "0 was the program's own face"
    );
    assert_eq!(
        (event.kind, event.face_id),
        (FaceEventKind::Created, neighbour.0)
    );

    assert_eq!(
        router.ask(
            program,
            &interest("/localhost/nfd/faces/events/seq=2", false, 2)
        ),
        None
    );
    router.forwarder.set_face_up(router.now, neighbour, false);
    router.work();
    let (_, event) = told(&router.receive(program).expect("it went down"));
    assert_eq!(event.kind, FaceEventKind::Down);

    // Two events between two Interests: neither is lost.
    router.forwarder.set_face_up(router.now, neighbour, true);
    router.forwarder.remove_face(router.now, neighbour);
    router.work();
    let third = router
        .ask(
            program,
            &interest("/localhost/nfd/faces/events/seq=3", false, 3),
        )
        .unwrap();
    let fourth = router
        .ask(
            program,
            &interest("/localhost/nfd/faces/events/seq=4", false, 4),
        )
        .unwrap();
    assert_eq!(told(&third).1.kind, FaceEventKind::Up);
    let destroyed = told(&fourth).1;
    assert_eq!(
        (destroyed.kind, destroyed.face_id),
        (FaceEventKind::Destroyed, neighbour.0)
    );
    assert_eq!(
        destroyed.uri,
        super::router::udp(1),
        "a face that is gone is still described"
    );
}

#[test]
fn an_event_has_the_kind_of_number_that_was_requested() {
    let (mut router, program) = quiet();
    assert_eq!(
        router.ask(
            program,
            &interest("/localhost/nfd/faces/events/seg=1", false, 1)
        ),
        None
    );
    router.neighbour(1);
    router.work();
    let (name, _) = told(&router.receive(program).expect("the event"));
    assert_eq!(name, "/localhost/nfd/faces/events/seg=1");
}

#[test]
fn must_be_fresh_gets_only_recent_events() {
    let (mut router, program) = quiet();
    router.neighbour(1);
    router.work();
    let fresh = router.ask(program, &interest("/localhost/nfd/faces/events", true, 1));
    assert!(fresh.is_some(), "it has just happened");
    router.now += Duration::from_secs(5);
    assert_eq!(
        router.ask(program, &interest("/localhost/nfd/faces/events", true, 2)),
        None
    );
}

#[test]
fn every_waiting_interest_gets_an_event_once() {
    let (mut router, first) = quiet();
    let second = router.program();
    router.work();
    router.now += Duration::from_secs(10);
    assert_eq!(
        router.ask(first, &interest("/localhost/nfd/faces/events", true, 1)),
        None
    );
    assert_eq!(
        router.ask(
            second,
            &interest("/localhost/nfd/faces/events/seq=2", false, 2)
        ),
        None
    );
    let face = router.neighbour(1);
    router.forwarder.remove_face(router.now, face);
    router.work();
    for program in [first, second] {
        assert_eq!(
            told(&router.receive(program).expect("the event")).1.kind,
            FaceEventKind::Created
        );
        assert_eq!(router.receive(program), None);
    }
}

#[test]
fn old_events_are_forgotten_and_only_so_many_interests_wait() {
    let (mut router, program) = quiet();
    for _ in 0..400 {
        let face = router.neighbour(1);
        router.forwarder.remove_face(router.now, face);
        router.work();
    }
    assert_eq!(
        router.ask(
            program,
            &interest("/localhost/nfd/faces/events/seq=5", false, 1)
        ),
        None
    );
    assert!(
        router
            .ask(
                program,
                &interest("/localhost/nfd/faces/events/seq=790", false, 2)
            )
            .is_some()
    );
    assert_eq!(router.forwarder.management_counters().events, 801);
}
