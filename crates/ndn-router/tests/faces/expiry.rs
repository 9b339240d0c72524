//! Inbound peers that fall silent, and those beyond the bound.

use core::time::Duration;

use whimbrel_core::{PortId, PortOrigin};
use whimbrel_forwarder::{FaceId, Persistency};

use crate::driver::{Driver, IDLE_TIMEOUT, MAX_FACES, tcp_medium, udp_medium};

/// The interval at which a router checks for silent faces.
const CHECK: Duration = Duration::from_secs(5);

fn caller(driver: &mut Driver, host: u8) -> (PortId, FaceId) {
    let port = driver.up(PortOrigin::Accepted(0), udp_medium(host));
    (port, driver.face(port))
}

#[test]
fn a_caller_of_datagrams_ends_when_it_is_silent_for_too_long_and_one_of_a_stream_does_not() {
    let mut driver = Driver::new();
    let stream = driver.up(PortOrigin::Accepted(1), tcp_medium(8));
    let stream = driver.face(stream);
    let (port, face) = caller(&mut driver, 9);
    driver.pass(IDLE_TIMEOUT - CHECK);
    // Any frame is a sign of life, even an invalid one.
    driver.frames(port, &[&[0xff]]);
    driver.pass(IDLE_TIMEOUT - Duration::from_nanos(1));
    assert_eq!(driver.is_up(face), Some(true));
    driver.pass(CHECK);
    assert_eq!(driver.is_up(face), None);
    assert!(driver.is_closing(port));
    driver.down(port);
    driver.pass(10 * IDLE_TIMEOUT);
    assert_eq!(driver.is_up(stream), Some(true));
}

#[test]
fn a_caller_kept_by_management_does_not_expire_and_its_driver_is_told() {
    let mut driver = Driver::new();
    let program = driver.program();
    for persistency in [Persistency::Persistent, Persistency::Permanent] {
        let (port, face) = caller(&mut driver, 9);
        assert!(driver.update(program, face, persistency).is_success());
        assert_eq!(driver.kept.pop(), Some(port));
        driver.pass(10 * IDLE_TIMEOUT);
        assert_eq!(driver.is_up(face), Some(true));
        assert!(!driver.is_closing(port));
    }
}

#[test]
fn a_caller_that_is_no_longer_kept_expires_when_silent() {
    let mut driver = Driver::new();
    let program = driver.program();
    let (port, face) = caller(&mut driver, 9);
    for persistency in [Persistency::Permanent, Persistency::OnDemand] {
        assert!(driver.update(program, face, persistency).is_success());
        driver.pass(CHECK);
    }
    driver.pass(IDLE_TIMEOUT);
    assert_eq!(driver.is_up(face), None);
    assert!(driver.is_closing(port));
}

#[test]
fn callers_beyond_the_maximum_of_faces_are_refused_until_another_ends() {
    let mut driver = Driver::new();
    let ports: Vec<PortId> = (0..MAX_FACES)
        .map(|host| caller(&mut driver, host as u8).0)
        .collect();
    let refused = driver.up(PortOrigin::Accepted(0), udp_medium(99));
    assert_eq!(driver.router().face_of(refused), None);
    assert!(driver.is_closing(refused));
    assert_eq!(driver.router().refused_callers(), 1);
    driver.down(ports[0]);
    caller(&mut driver, 100);
    assert_eq!(driver.router().refused_callers(), 1);
}
