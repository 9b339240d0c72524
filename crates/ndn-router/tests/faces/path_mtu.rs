//! Faces over UDP whose path drops large frames.

use core::time::Duration;

use whimbrel_core::{PortId, PortOrigin};
use whimbrel_forwarder::{FaceId, Persistency};
use whimbrel_ndn_mgmt::ControlParameters;
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{Data, DigestSigner, LpHeader, LpPacket, types};

use crate::driver::{Driver, MTU, configured, name_of, udp, udp_medium};

/// Sends an Interest of `consumer`, which a program answers with a Data of about 1300 bytes.
fn large_exchange(driver: &mut Driver, consumer: PortId, producer: PortId, name: &str) {
    let interest = driver.interest(name);
    driver.frames(consumer, &[&interest]);
    let content = vec![7; 1_250];
    let data = Data::new(name_of(name), content).encode(&DigestSigner);
    driver.frames(producer, &[&data]);
}

/// Takes the questions (true) and probes (false) sent on a port, with their numbers.
fn questions(driver: &mut Driver, port: PortId) -> Vec<(bool, Vec<u8>)> {
    let mut found = Vec::new();
    driver.sent.retain(|(to, frame)| {
        let lp = LpPacket::decode(frame, false).unwrap();
        let probe = lp.link.path_probe.filter(|_| *to == port);
        found.extend(probe.map(|value| (value.len() == 4, value[..4].to_vec())));
        *to != port
    });
    found
}

fn frame(link: &LinkFields<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    lp::encode(&mut frame, link, &LpHeader::default(), None);
    frame
}

/// Answers a question: so many bytes have arrived.
fn answer(driver: &mut Driver, port: PortId, number: &[u8], bytes: u64) {
    let value = [number, &bytes.to_be_bytes()].concat();
    let answer = frame(&LinkFields {
        path_answer: Some(&value),
        ..LinkFields::default()
    });
    driver.frames(port, &[&answer]);
}

fn mtu_of(driver: &Driver, face: FaceId) -> Option<usize> {
    driver.router().forwarder().face(face).unwrap().spec.mtu
}

/// Returns a router with a program that produces `/far`, and a UDP face to a consumer whose path
/// has swallowed large frames.
fn fallen() -> (Driver, PortId, PortId) {
    let mut driver = Driver::new();
    driver.with_router(|it, _| it.route_to(name_of("/far"), udp(7), 5));
    driver.with_router(|it, _| it.ask(udp(7), configured(Persistency::Permanent)));
    driver.with_router(|it, _| it.ask(udp(8), configured(Persistency::Permanent)));
    driver.pass(Duration::ZERO);
    let (producer, consumer) = (driver.opened(), driver.opened());
    let face = driver.face(consumer);
    assert_eq!(mtu_of(&driver, face), Some(MTU));
    for round in 0..100 {
        large_exchange(&mut driver, consumer, producer, &format!("/far/{round}"));
        driver.pass(Duration::from_millis(100));
        for (is_question, number) in questions(&mut driver, consumer) {
            if is_question {
                answer(&mut driver, consumer, &number, 1_000);
            }
        }
        if mtu_of(&driver, face) != Some(MTU) {
            break;
        }
    }
    assert_eq!(mtu_of(&driver, face), Some(1_200));
    (driver, consumer, producer)
}

#[test]
fn the_size_of_the_path_is_the_mtu_of_the_face_and_a_command_bounds_it() {
    let (mut driver, consumer, _) = fallen();
    let face = driver.face(consumer);
    let program = driver.program();
    for (wanted, expected) in [(9_000, 1_200), (1_000, 1_000), (1_300, 1_300)] {
        let parameters = ControlParameters {
            face_id: Some(face.0),
            mtu: Some(wanted),
            ..ControlParameters::default()
        };
        let answer = driver.ask(program, "faces/update", &parameters);
        assert!(answer.unwrap().is_success());
        // A bound below the path's size is all that is known after it is lifted.
        assert_eq!(mtu_of(&driver, face), Some(expected), "{wanted} wanted");
    }
}

#[test]
fn the_size_of_the_path_outlives_the_port() {
    let (mut driver, consumer, _) = fallen();
    let face = driver.face(consumer);
    driver.down(consumer);
    driver.pass(Duration::from_secs(1));
    let again = driver.opened();
    assert_eq!(driver.face(again), face);
    assert_eq!(mtu_of(&driver, face), Some(1_200));
}

#[test]
fn an_inbound_program_gets_plain_packets_until_it_asks_itself() {
    let mut driver = Driver::new();
    driver.with_router(|it, _| it.route_to(name_of("/far"), udp(7), 5));
    driver.with_router(|it, _| it.ask(udp(7), configured(Persistency::Permanent)));
    driver.pass(Duration::ZERO);
    let producer = driver.opened();
    let caller = driver.up(PortOrigin::Accepted(0), udp_medium(9));
    for round in 0..20 {
        large_exchange(&mut driver, caller, producer, &format!("/far/{round}"));
        driver.pass(Duration::from_millis(700));
    }
    let is_plain = |frame: &[u8]| frame.first() == Some(&(types::DATA as u8));
    let to_caller: Vec<_> = driver.sent.iter().filter(|(to, _)| *to == caller).collect();
    assert_eq!(to_caller.len(), 20);
    assert!(to_caller.iter().all(|(_, frame)| is_plain(frame)));

    driver.sent.clear();
    let question = frame(&LinkFields {
        path_probe: Some(b"1234"),
        ..LinkFields::default()
    });
    driver.frames(caller, &[&question]);
    let (_, reply) = &driver.sent[0];
    let reply = LpPacket::decode(reply, false).unwrap();
    assert_eq!(
        reply.link.path_answer.map(|value| &value[..4]),
        Some(&b"1234"[..])
    );
    driver.sent.clear();
    large_exchange(&mut driver, caller, producer, "/far/last");
    assert_eq!(questions(&mut driver, caller).len(), 1);
}
