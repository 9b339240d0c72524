//! Faces that go, come again and block.

use std::time::Duration;

use whimbrel_core::Time;
use whimbrel_transport::FetchOptions;

use super::setup::{content, fetch, run, succeeded};
use crate::support::{Path, Side};

#[test]
fn a_face_that_goes_and_comes_again_costs_no_retry() {
    let content = content(300_000);
    let options = FetchOptions {
        retries: Some(0),
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &content, Path::clean(), 1);
    for after in [40, 200, 600] {
        pair.run(Time::from_secs(600), |pair| {
            pair.consumer_events.len() > after / 4
        });
        pair.face(Side::Consumer, false);
        pair.run(pair.now() + Duration::from_secs(20), |_| false);
        pair.face(Side::Consumer, true);
    }
    run(&mut pair);
    let stats = succeeded(&pair, &content);
    assert_eq!(stats.timeouts, 0);
}

#[test]
fn a_producer_registers_again_when_its_face_comes_again() {
    let content = content(5_000);
    let mut pair = fetch(FetchOptions::default(), &content, Path::clean(), 1);
    run(&mut pair);
    pair.face(Side::Producer, false);
    pair.face(Side::Producer, true);
    pair.run(pair.now() + Duration::from_secs(1), |_| false);
    assert_eq!(pair.registered.lock().unwrap().len(), 2);
    assert!(pair.producer().application().is_registered());
}

#[test]
fn nothing_is_sent_while_the_port_is_blocked() {
    let content = content(20_000);
    let mut pair = fetch(FetchOptions::default(), &content, Path::clean(), 1);
    pair.run(Time::from_secs(1), |pair| !pair.consumer_events.is_empty());
    pair.block(Side::Consumer, true);
    let sent = pair.consumer().counters().out_packets;
    pair.run(pair.now() + Duration::from_secs(5), |_| false);
    assert_eq!(pair.consumer().counters().out_packets, sent);
    pair.block(Side::Consumer, false);
    run(&mut pair);
    succeeded(&pair, &content);
}
