//! Inbound peers that fall silent, and those beyond the bound.

use core::time::Duration;

use whimbrel_core::{Medium, PortId, PortOrigin};
use whimbrel_forwarder::{FaceId, Persistency};

use crate::driver::{
    Driver, IDLE_TIMEOUT, MAX_DATAGRAMS, MAX_STREAMS, address, tcp_medium, udp_medium,
};

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
fn callers_beyond_their_share_of_faces_are_refused_until_another_ends() {
    let mut driver = Driver::new();
    let ports: Vec<PortId> = (0..MAX_DATAGRAMS)
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

/// Accepts a stream of a host, from some port of it.
fn stream(driver: &mut Driver, host: u8, number: u16) -> PortId {
    let mut remote = address(host);
    remote.set_port(number);
    let medium = Medium::Tcp {
        local: address(254),
        remote,
        interface: None,
    };
    driver.up(PortOrigin::Accepted(1), medium)
}

fn is_admitted(driver: &Driver, port: PortId) -> bool {
    driver.router().face_of(port).is_some()
}

/// 4,500 datagrams with forged sources locked out programs of this machine, and took a neighbour's
/// face and its routes.
#[test]
fn forged_datagrams_lock_out_no_program_and_no_neighbour_at_work() {
    let mut driver = Driver::new();
    let (neighbour, face) = caller(&mut driver, 1);
    driver.pass(Duration::from_secs(2));
    driver.frames(neighbour, &[&[0xff]]);
    for burst in 0..3 {
        for forged in 0..30 {
            driver.up(
                PortOrigin::Accepted(0),
                udp_medium(100 + burst * 30 + forged),
            );
        }
        let program = driver.program();
        assert!(is_admitted(&driver, program));
        let over_tcp = stream(&mut driver, 2, 4_000 + u16::from(burst));
        assert!(is_admitted(&driver, over_tcp));
        driver.down(over_tcp);
        driver.pass(Duration::from_millis(1_200));
    }
    assert_eq!(driver.is_up(face), Some(true));
    // A newcomer gets in within the second, in the place of a burst.
    let (newcomer, _) = caller(&mut driver, 3);
    assert!(is_admitted(&driver, newcomer));
    assert!(driver.router().evicted_callers() > 0);
    // It is silent, but not yet for a minute.
    driver.pass(Duration::from_secs(30));
    assert_eq!(driver.is_up(face), Some(true));
}

#[test]
fn connections_of_one_host_leave_room_for_those_of_others_and_idle_ones_give_way() {
    let mut driver = Driver::new();
    let hoard: Vec<PortId> = (0..20)
        .map(|number| stream(&mut driver, 1, number))
        .collect();
    let held = hoard.iter().filter(|port| is_admitted(&driver, **port));
    assert_eq!(held.count(), MAX_STREAMS / 2);
    for host in 2..4 {
        let other = stream(&mut driver, host, 1);
        assert!(is_admitted(&driver, other), "{host}");
    }
    let late = stream(&mut driver, 9, 1);
    assert!(!is_admitted(&driver, late));
    driver.pass(Duration::from_millis(1_100));
    let later = stream(&mut driver, 9, 2);
    assert!(is_admitted(&driver, later), "in the place of an idle one");
    let program = driver.program();
    assert!(is_admitted(&driver, program));
}
