//! Peers that do not read.

use whimbrel_core::PortId;
use whimbrel_ndn_mgmt::ControlParameters;
use whimbrel_ndn_packet::{Data, DigestSigner};

use crate::driver::{Driver, MAX_QUEUED, name_of};

const DATA: usize = 8_000;

/// A program that serves everything.
fn producer(driver: &mut Driver) -> PortId {
    let port = driver.program();
    let route = ControlParameters {
        name: Some(name_of("/")),
        ..ControlParameters::default()
    };
    let response = driver.ask(port, "rib/register", &route);
    assert!(response.expect("answered").is_success());
    port
}

/// A consumer asks for so many packets, and the producer answers.
fn ask(driver: &mut Driver, consumer: PortId, producer: PortId, count: usize) {
    for number in 0..count {
        let name = format!("/{}/{number}", consumer.0);
        let interest = driver.interest(&name);
        driver.frames(consumer, &[&interest]);
        let data = Data::new(name_of(&name), vec![0; DATA]).encode(&DigestSigner);
        driver.frames(producer, &[&data]);
    }
}

/// Each connection held 4 MiB of Data that its peer did not read, and 1,024 of them 4.9 GB.
#[test]
fn peers_that_do_not_read_hold_a_bounded_memory_together_and_leave_some_for_others() {
    let mut driver = Driver::new();
    let producer = producer(&mut driver);
    let slow: Vec<PortId> = (0..10).map(|_| driver.program()).collect();
    for port in &slow {
        driver.block(*port, true);
    }
    for (at, port) in slow.iter().enumerate() {
        let before = driver.router().queued_octets();
        ask(&mut driver, *port, producer, 200);
        let held = driver.router().queued_octets() - before;
        assert!(held >= MAX_QUEUED / (2 << at) / 2, "{held} of peer {at}");
    }
    let held = driver.router().queued_octets();
    assert!(held <= MAX_QUEUED + 10 * (DATA + 500), "{held}");
    // One that reads is not affected, and those that begin to read get what waited.
    let reader = driver.program();
    driver.sent.clear();
    ask(&mut driver, reader, producer, 100);
    assert_eq!(driver.packets(reader).len(), 100);
    for port in &slow {
        driver.block(*port, false);
        let got = driver.sent.iter().filter(|(to, _)| to == port);
        assert!(got.map(|(_, octets)| octets.len()).sum::<usize>() > DATA);
    }
    assert_eq!(driver.router().queued_octets(), 0);
}

#[test]
fn a_peer_that_leaves_gives_back_what_waited_for_it() {
    let mut driver = Driver::new();
    let producer = producer(&mut driver);
    let slow = driver.program();
    driver.block(slow, true);
    ask(&mut driver, slow, producer, 50);
    assert!(driver.router().queued_octets() >= 50 * DATA);
    driver.down(slow);
    assert_eq!(driver.router().queued_octets(), 0);
}
