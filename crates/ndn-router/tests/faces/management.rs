//! Faces that programs create, change and destroy by commands.

use core::time::Duration;

use whimbrel_core::PortId;
use whimbrel_forwarder::{FaceId, Persistency};
use whimbrel_ndn_mgmt::ControlParameters;

use crate::driver::{Driver, udp};

fn to(uri: &str) -> ControlParameters {
    ControlParameters {
        uri: Some(uri.to_owned()),
        ..ControlParameters::default()
    }
}

/// Makes a program create a face to host 7; the response waits for the port.
fn create(driver: &mut Driver, program: PortId) {
    let wanted = to("udp4://192.0.2.7:6363");
    assert_eq!(driver.ask(program, "faces/create", &wanted), None);
    driver.pass(Duration::from_secs(1));
    assert_eq!(driver.answer(program), None);
    assert_eq!(driver.opens.len(), 1);
    assert_eq!(driver.opens[0].1, udp(7));
}

#[test]
fn a_creation_opens_a_port_and_is_answered_when_it_is_up() {
    let mut driver = Driver::new();
    let program = driver.program();
    create(&mut driver, program);
    let port = driver.opened();
    let answer = driver.answer(program).expect("an answer");
    assert!(answer.is_success(), "{answer}");
    let told = answer.parameters().unwrap().expect("parameters");
    assert_eq!(told.face_id, Some(driver.face(port).0));
    assert_eq!(told.persistency, Some(Persistency::Persistent));
    driver.pass(Duration::from_secs(120));
    assert_eq!(driver.answer(program), None, "answered once");
}

#[test]
fn a_creation_is_answered_with_the_error_of_the_refusal_and_is_not_tried_again() {
    let mut driver = Driver::new();
    let program = driver.program();
    create(&mut driver, program);
    driver.refuse();
    let answer = driver.answer(program).expect("an answer");
    assert_eq!(answer.status_code, 504);
    assert!(answer.status_text.contains("no route to host"), "{answer}");
    driver.pass(Duration::from_secs(120));
    assert!(driver.opens.is_empty());
    assert_eq!(driver.answer(program), None, "answered once");
}

#[test]
fn a_destroyed_face_is_gone_at_once_and_its_port_is_closed() {
    let mut driver = Driver::new();
    let program = driver.program();
    create(&mut driver, program);
    let port = driver.opened();
    let face = driver.face(port);
    driver.answer(program).expect("an answer");
    assert!(driver.destroy(program, face).is_success());
    assert_eq!(driver.is_up(face), None);
    assert!(driver.is_closing(port));
    // Frames that still arrive on its port belong to no face.
    driver.frames(port, &[&[5, 0]]);
    driver.down(port);
    assert_eq!(driver.is_up(FaceId(face.0 + 1)), None);
}

#[test]
fn a_lost_face_that_is_no_longer_permanent_ends() {
    let mut driver = Driver::new();
    let program = driver.program();
    create(&mut driver, program);
    let port = driver.opened();
    let face = driver.face(port);
    driver.answer(program).expect("an answer");
    assert!(
        driver
            .update(program, face, Persistency::Permanent)
            .is_success()
    );
    driver.down(port);
    assert_eq!(driver.is_up(face), Some(false));
    assert!(
        driver
            .update(program, face, Persistency::Persistent)
            .is_success()
    );
    assert_eq!(driver.is_up(face), None);
    driver.pass(Duration::from_secs(120));
    assert!(driver.opens.is_empty());
}
