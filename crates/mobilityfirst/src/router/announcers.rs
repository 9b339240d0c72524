//! Which hosts are asked for a content that many announce, and which of them keep their announcements.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_content::{ChunkSize, ChunkTree};
use whimbrel_core::{Guid, PortOrigin, Source};
use whimbrel_gnrs::KeyPair;

use super::hostile::{announcement, chunk_of, keys, request};
use super::tests::{Net, config, port};
use crate::wire::{ContentKind, ControlCode, Data, Reliability, Request, ServiceId, Transport};

const SECOND: Duration = Duration::from_secs(1);
const BYTES: &[u8] = b"what the true provider has";
/// Neighbours: a caller with many hosts, the true provider, and a client.
const LIAR: u8 = 1;
const TRUE: u8 = 2;
const CLIENT: u8 = 3;

fn content() -> Guid {
    let size = ChunkSize::from_bytes(1 << 20).expect("a chunk size");
    let tree = ChunkTree::from_reader(BYTES, size, &mut |_| {}).expect("a tree");
    tree.root()
}

fn net() -> Net {
    let names = [LIAR, TRUE, CLIENT].map(|number| keys(number).guid());
    let mut net = Net::with_origins(&names, &[PortOrigin::Accepted(0); 3], config());
    for number in [LIAR, TRUE, CLIENT] {
        let (guid, at) = (keys(number).guid(), port(number.into()));
        assert!(net.with_router(|it, _| it.binding.attachments.insert(guid, at, 1)));
    }
    net
}

/// Returns hosts of the liar, by their numbers.
fn guests() -> impl Iterator<Item = KeyPair> {
    (100..164).map(keys)
}

/// A host announces the content from this network, and all others that have did so from these.
fn announce(net: &mut Net, host: &KeyPair, networks: &dyn Fn(&Guid) -> u128) -> ControlCode {
    let record = announcement(host, content(), 600_000);
    net.with_router(|it, now| {
        let place = |host: &Guid| Some(Source::Network(networks(host)));
        let kept = it.binding.names.keep(now, port(1), record, place);
        kept.expect("no name service")
    })
}

/// All but the true provider are in one network.
fn apart(host: &Guid) -> u128 {
    u128::from(*host == keys(TRUE).guid())
}

fn announcers(net: &mut Net) -> Vec<Guid> {
    net.with_router(|it, now| {
        let known = it.binding.names.look_up_own(now, &content()).providers;
        known.iter().map(|record| record.signer()).collect()
    })
}

/// The client asks for the content, in its own name and with this id. Returns which neighbour is asked.
fn asked(net: &mut Net, id: u64) -> u8 {
    (1..=2).for_each(|number| net.neighbour(number, |it, _| it.received.clear()));
    let wanted = Request {
        content: content(),
        ..request()
    };
    let mut chunk = chunk_of(keys(CLIENT).guid(), content(), &Transport::Request(wanted));
    chunk.header.service = chunk.header.service.with(ServiceId::CONTENT_REQUEST);
    chunk.header.extensions.request = Some(id);
    net.send(CLIENT.into(), chunk);
    net.run(SECOND / 2);
    let got = [LIAR, TRUE].into_iter();
    let mut got = got.filter(|it| !net.chunks((*it).into()).is_empty());
    got.next().expect("somebody is asked")
}

/// A host sends a chunk of the content to the client.
fn serve(net: &mut Net, host: &KeyPair, by: u8, payload: &'static [u8]) {
    let data = Data {
        content: content(),
        index: 0,
        chunk_log2: 20,
        content_len: payload.len() as u64,
        kind: ContentKind::File,
        reliability: Reliability::Nack,
        file_name: String::new(),
        proof: Bytes::from_static(&[0]),
        payload: Bytes::from_static(payload),
    };
    let chunk = chunk_of(host.guid(), keys(CLIENT).guid(), &Transport::Data(data));
    net.send(by.into(), chunk);
    net.run(SECOND / 2);
}

#[test]
fn announcers_of_one_network_make_room_for_one_of_another() {
    let mut net = net();
    for guest in guests() {
        assert_eq!(announce(&mut net, &guest, &apart), ControlCode::Registered);
    }
    // One more of the same network is one too many.
    assert_eq!(announce(&mut net, &keys(99), &apart), ControlCode::Full);
    let registered = announce(&mut net, &keys(TRUE), &apart);
    assert_eq!(registered, ControlCode::Registered);
    let known = announcers(&mut net);
    assert!(known.contains(&keys(TRUE).guid()) && known.len() == 64);
}

#[test]
fn the_first_announcer_of_each_network_is_asked_before_the_second_of_any() {
    let mut net = net();
    for guest in guests().take(20) {
        net.with_router(|it, _| assert!(it.binding.attachments.insert(guest.guid(), port(1), 1)));
        announce(&mut net, &guest, &apart);
    }
    announce(&mut net, &keys(TRUE), &apart);
    let both: Vec<u8> = (0..2).map(|_| asked(&mut net, 1)).collect();
    assert!(both.contains(&TRUE), "{both:?}");
}

#[test]
fn a_host_that_served_a_true_chunk_is_asked_first_and_gets_back_in() {
    let mut net = net();
    for guest in guests().take(9) {
        net.with_router(|it, _| assert!(it.binding.attachments.insert(guest.guid(), port(1), 1)));
        announce(&mut net, &guest, &apart);
    }
    announce(&mut net, &keys(TRUE), &apart);
    // False chunks prove nothing.
    for guest in guests().take(9) {
        serve(&mut net, &guest, LIAR, b"something else of this length");
    }
    serve(&mut net, &keys(TRUE), TRUE, BYTES);
    let first: Vec<u8> = (10..20).map(|id| asked(&mut net, id)).collect();
    assert_eq!(first, [TRUE; 10]);
    // It has left, and comes back behind the liar's own address, to a content that is full.
    let without = |host: &Guid| (*host != keys(TRUE).guid()).then_some(Source::Network(0));
    net.with_router(|it, now| {
        for guest in guests() {
            let record = announcement(&guest, content(), 600_000);
            let _ = it.binding.names.keep(now, port(1), record, without);
        }
    });
    let known = announcers(&mut net);
    assert!(known.len() == 64 && !known.contains(&keys(TRUE).guid()));
    let registered = announce(&mut net, &keys(TRUE), &|_| 0);
    assert_eq!(registered, ControlCode::Registered);
}
