//! Faces whose ports are lost or cannot be opened.

use core::time::Duration;

use whimbrel_core::{PortId, PortOrigin};
use whimbrel_forwarder::{FaceId, Persistency};

use crate::driver::{Driver, configured, name_of, tcp_medium, udp};

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_nanos(1);

/// A router with a configured face that has a route, and a program.
struct Net {
    driver: Driver,
    program: PortId,
    port: PortId,
    face: FaceId,
}

fn with_face(persistency: Persistency) -> Net {
    let mut driver = Driver::new();
    let program = driver.program();
    driver.with_router(|it, _| it.route_to(name_of("/far"), udp(7), 5));
    driver.with_router(|it, _| it.ask(udp(7), configured(persistency)));
    driver.pass(Duration::ZERO);
    assert_eq!(driver.opens[0].1, udp(7));
    let port = driver.opened();
    let face = driver.face(port);
    assert!(driver.exchange(program, port, "/far/0"));
    driver.pass(10 * SECOND);
    Net {
        driver,
        program,
        port,
        face,
    }
}

/// Checks that the face's port is requested again after exactly this pause.
fn asked_after(driver: &mut Driver, pause: Duration) {
    driver.pass(pause - MOMENT);
    assert!(driver.opens.is_empty(), "requested before {pause:?}");
    driver.pass(MOMENT);
    assert_eq!(driver.opens.len(), 1, "not requested after {pause:?}");
    assert_eq!(driver.opens[0].1, udp(7));
}

#[test]
fn a_lost_permanent_face_is_asked_for_less_and_less_often_and_comes_back_as_the_same() {
    let Net {
        mut driver,
        program,
        port,
        face,
    } = with_face(Persistency::Permanent);
    driver.down(port);
    assert_eq!(driver.is_up(face), Some(false));
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        asked_after(&mut driver, seconds * SECOND);
        driver.refuse();
    }
    asked_after(&mut driver, 60 * SECOND);
    let again = driver.opened();
    assert_ne!(again, port);
    assert_eq!(driver.face(again), face);
    assert_eq!(driver.is_up(face), Some(true));
    assert!(driver.exchange(program, again, "/far/1"), "with its route");

    // After the next loss, the pauses start at the shortest again.
    driver.pass(10 * SECOND);
    driver.down(again);
    asked_after(&mut driver, SECOND);
}

#[test]
fn a_lost_face_carries_nothing_until_it_is_back_even_if_it_was_blocked() {
    let Net {
        mut driver,
        program,
        port,
        face,
    } = with_face(Persistency::Permanent);
    driver.block(port, true);
    assert!(!driver.exchange(program, port, "/far/1"));
    driver.down(port);
    assert!(!driver.exchange(program, port, "/far/2"));
    asked_after(&mut driver, SECOND);
    let again = driver.opened();
    assert_eq!(driver.face(again), face);
    assert!(driver.exchange(program, again, "/far/3"));
}

#[test]
fn a_permanent_face_that_is_destroyed_while_it_is_lost_does_not_come_back() {
    let Net {
        mut driver,
        program,
        port,
        face,
    } = with_face(Persistency::Permanent);
    driver.down(port);
    asked_after(&mut driver, SECOND);
    assert!(driver.destroy(program, face).is_success());
    // The request for its port is still open.
    let late = driver.opened();
    assert!(driver.is_closing(late));
    assert_eq!(driver.router().face_of(late), None);
    driver.down(late);
    driver.pass(200 * SECOND);
    assert!(driver.opens.is_empty());
    assert_eq!(driver.is_up(face), None);
}

#[test]
fn a_persistent_face_ends_with_its_port() {
    let Net {
        mut driver,
        program,
        port,
        face,
    } = with_face(Persistency::Persistent);
    driver.down(port);
    assert_eq!(driver.is_up(face), None);
    assert!(!driver.exchange(program, port, "/far/1"));
    driver.pass(200 * SECOND);
    assert!(driver.opens.is_empty());
}

#[test]
fn a_configured_face_that_cannot_be_opened_is_asked_for_every_ten_seconds() {
    let mut driver = Driver::new();
    let program = driver.program();
    driver.with_router(|it, _| it.route_to(name_of("/far"), udp(7), 5));
    driver.with_router(|it, _| it.ask(udp(7), configured(Persistency::Persistent)));
    driver.pass(Duration::ZERO);
    for _ in 0..3 {
        driver.refuse();
        asked_after(&mut driver, 10 * SECOND);
    }
    let port = driver.opened();
    assert!(driver.exchange(program, port, "/far/0"));
}

#[test]
fn a_permanent_face_without_a_way_back_ends_with_its_port() {
    let mut driver = Driver::new();
    let medium = whimbrel_core::Medium::UdpMulticast {
        interface: String::from("eth0"),
        local: crate::driver::address(254),
        group: ([224, 0, 23, 170], 56363).into(),
    };
    let port = driver.up(PortOrigin::Configured(0), medium);
    let face = driver.face(port);
    driver.down(port);
    assert_eq!(driver.is_up(face), None);
    driver.pass(200 * SECOND);
    assert!(driver.opens.is_empty());
}

#[test]
fn a_caller_made_permanent_is_reopened_at_its_address() {
    let mut driver = Driver::new();
    let program = driver.program();
    let port = driver.up(PortOrigin::Accepted(0), tcp_medium(9));
    let face = driver.face(port);
    assert!(
        driver
            .update(program, face, Persistency::Permanent)
            .is_success()
    );
    driver.down(port);
    assert_eq!(driver.is_up(face), Some(false));
    driver.pass(SECOND);
    assert_eq!(driver.opens[0].1.to_string(), "tcp://192.0.2.9:6363");
    let again = driver.opened();
    assert_eq!(driver.face(again), face);
}
