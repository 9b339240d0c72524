//! Peek and poke: a single Interest, a single Data.

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{
    Data, DataRef, DigestSigner, Interest, InterestRef, LpHeader, NackReason,
};
use whimbrel_transport::{PeekEvent, PeekOptions, Poke, PokeEvent, PokeOptions};

use super::setup::{MS, echo, last, peek, rng};
use crate::support::{Pair, Path, Side, digest, name, register};

#[test]
fn peek_gets_the_whole_data() {
    let mut pair = Pair::new(
        peek("/a/b", PeekOptions::default()),
        echo("/a", 3),
        Path::clean(),
        1,
    );
    pair.run(Time::from_secs(10), |_| false);
    let PeekEvent::Data { packet, rtt } = last(&pair.consumer_events) else {
        panic!("no Data")
    };
    let data = DataRef::decode(&packet).unwrap();
    assert_eq!(
        (data.name.to_name(), data.content),
        (name("/a/b"), &[0, 0, 0][..])
    );
    assert_eq!(rtt, 10 * MS);
    assert_eq!(pair.consumer_events.len(), 1);
}

#[test]
fn peek_writes_every_option_into_its_interest() {
    let options = PeekOptions {
        can_be_prefix: true,
        must_be_fresh: true,
        lifetime: 700 * MS,
        hop_limit: Some(3),
        forwarding_hint: vec![name("/isp")],
        parameters: Some(Bytes::from_static(b"parameters")),
        timeout: None,
    };
    let mut pair = Pair::new(peek("/a", options), echo("/a", 3), Path::clean(), 1);
    pair.run(Time::from_secs(10), |_| false);
    let interest = InterestRef::decode(&pair.sent_by_consumer[0]).unwrap();
    assert!(
        interest.can_be_prefix && interest.must_be_fresh && interest.parameters_digest_is_valid()
    );
    assert_eq!((interest.lifetime, interest.hop_limit), (700 * MS, Some(3)));
    assert_eq!(
        interest
            .delegations()
            .map(|name| name.to_name())
            .collect::<Vec<_>>(),
        [name("/isp")]
    );
    // The echo answers to the whole name, digest of the parameters included.
    assert!(matches!(
        last(&pair.consumer_events),
        PeekEvent::Data { .. }
    ));
}

#[test]
fn peek_tells_silence_and_nacks_and_ignores_other_data() {
    let silent = Path {
        loss: 1.0,
        ..Path::clean()
    };
    let mut pair = Pair::new(peek("/a", PeekOptions::default()), echo("/a", 3), silent, 1);
    pair.run(Time::from_secs(10), |_| false);
    assert_eq!(
        pair.consumer_events,
        [(Time::from_secs(4), PeekEvent::Timeout)]
    );

    let options = PeekOptions {
        timeout: Some(50 * MS),
        ..PeekOptions::default()
    };
    let mut pair = Pair::new(peek("/a", options), echo("/a", 3), silent, 1);
    pair.run(Time::from_secs(10), |_| false);
    assert_eq!(
        pair.consumer_events,
        [(Time::from_millis(50), PeekEvent::Timeout)]
    );

    let mut pair = Pair::new(
        peek("/a", PeekOptions::default()),
        echo("/a", 3),
        Path::clean(),
        1,
    );
    pair.set_tamper(Box::new(|_, to, frame| {
        if to == Side::Producer {
            return vec![frame];
        }
        let mut nack = Vec::new();
        let header = LpHeader {
            nack: Some(NackReason::NoRoute),
            ..LpHeader::default()
        };
        let interest = Interest::new(name("/a")).encode();
        lp::encode(&mut nack, &LinkFields::default(), &header, Some(&interest));
        vec![
            Data::new(name("/a/b"), &b""[..]).encode(&DigestSigner),
            nack,
            frame,
        ]
    }));
    pair.run(Time::from_secs(10), |_| false);
    let nack = PeekEvent::Nack {
        reason: NackReason::NoRoute,
        rtt: 10 * MS,
    };
    assert_eq!(pair.consumer_events, [(Time::from_millis(10), nack)]);
}

fn poke(options: PokeOptions) -> Poke {
    let content = Bytes::from_static(b"content");
    Poke::new(
        name("/p/q"),
        content,
        &digest(),
        options,
        register(),
        rng(),
        Time::ZERO,
    )
}

#[test]
fn poke_answers_the_first_interest_that_asks_for_it() {
    let options = PokeOptions {
        freshness: 2000 * MS,
        final_block: true,
        ..PokeOptions::default()
    };
    let asked = PeekOptions {
        can_be_prefix: true,
        ..PeekOptions::default()
    };
    let mut pair = Pair::new(peek("/p", asked), poke(options), Path::clean(), 1);
    pair.run(Time::from_secs(10), |_| false);
    let PeekEvent::Data { packet, .. } = last(&pair.consumer_events) else {
        panic!("no Data")
    };
    let data = DataRef::decode(&packet).unwrap();
    assert_eq!((data.content, data.freshness), (&b"content"[..], 2000 * MS));
    assert_eq!(data.final_block_id, data.name.last());
    assert_eq!(last(&pair.producer_events), PokeEvent::Sent);
    let commands = pair.registered.lock().unwrap().clone();
    let verbs: Vec<_> = commands.iter().map(|(verb, _)| verb.as_str()).collect();
    assert_eq!(verbs, ["register", "unregister"]);
}

#[test]
fn poke_goes_unasked_or_gives_up() {
    let options = PokeOptions {
        unsolicited: true,
        ..PokeOptions::default()
    };
    let mut pair = Pair::new(
        peek("/x", PeekOptions::default()),
        poke(options),
        Path::clean(),
        1,
    );
    pair.run(Time::from_secs(10), |_| false);
    assert_eq!(pair.producer_events, [(Time::ZERO, PokeEvent::Sent)]);
    assert!(pair.registered.lock().unwrap().is_empty());

    let options = PokeOptions {
        timeout: Some(300 * MS),
        ..PokeOptions::default()
    };
    let mut pair = Pair::new(
        peek("/x", PeekOptions::default()),
        poke(options),
        Path::clean(),
        1,
    );
    pair.run(Time::from_secs(10), |_| false);
    assert_eq!(
        pair.producer_events.last(),
        Some(&(Time::from_millis(300), PokeEvent::Timeout))
    );
}
