//! Contents that a next hop has stopped, and sources that do not mind it.

use core::time::Duration;
use std::sync::LazyLock;

use whimbrel_core::Guid;

use super::hostile::{control, name};
use super::tests::{Net, SOURCE, data, port};
use crate::chunk::{Chunk, Flow, Message};
use crate::wire::{
    Control, Data, HoldMode, ServiceId, Stop, Transport, TransportKind, UpperProtocol,
};

const SECOND: Duration = Duration::from_secs(1);
static CLIENT: LazyLock<Guid> = LazyLock::new(|| name(9));
/// A router on the way to the client.
static BEYOND: LazyLock<Guid> = LazyLock::new(|| name(3));

/// Returns a source, neighbour 1, and the next hop to the client, neighbour 2.
fn net() -> Net {
    let mut net = Net::new(&[*SOURCE, *BEYOND]);
    for (guid, neighbour) in [(*SOURCE, 1), (*CLIENT, 2)] {
        assert!(net.with_router(|it, _| it.attachments.insert(guid, port(neighbour), 1)));
    }
    net
}

fn chunk_of(content: Guid, index: u32, len: usize) -> Chunk {
    let mut chunk = data(ServiceId::CONTENT_RESPONSE, *CLIENT, index, len);
    let data = Data {
        content,
        payload: vec![0; len].into(),
        ..chunk.data().expect("data")
    };
    chunk.message = Message::of_transport(&Transport::Data(data));
    chunk
}

/// The next hop stops a content for this time.
fn stop(net: &mut Net, content: Guid, lease: Duration) {
    let stop = Control::Stop(Stop {
        source: *SOURCE,
        destination: *CLIENT,
        content,
        lease,
    });
    let flow = Flow {
        source: *SOURCE,
        destination: *CLIENT,
    };
    net.with_router(|it, _| it.links.note_passed(port(2), flow));
    net.send(2, control(*BEYOND, &stop));
    net.run(Duration::from_millis(100));
}

/// Returns what the source was told since the last call.
fn told(net: &mut Net) -> Vec<Control> {
    let received = net.neighbour(1, |it, _| core::mem::take(&mut it.received));
    let control = received
        .iter()
        .filter(|it| it.header.upper == UpperProtocol::Control);
    control
        .filter_map(|it| Control::decode(&it.message.head).ok())
        .collect()
}

/// Returns the contents whose chunks the next hop has received since the last call.
fn passed(net: &mut Net) -> Vec<Guid> {
    let received = net.neighbour(2, |it, _| core::mem::take(&mut it.received));
    let is_data = |it: &&Chunk| it.message.head.first() == Some(&(TransportKind::Data as u8));
    let data = received.iter().filter(is_data);
    data.filter_map(|it| Some(it.data()?.content)).collect()
}

#[test]
fn others_pass_a_content_that_the_next_hop_has_stopped_until_its_lease_ends() {
    let (film, letter) = (Guid([1; 32]), Guid([2; 32]));
    let mut net = net();
    stop(&mut net, film, SECOND * 10);
    (0..2).for_each(|index| net.send(1, chunk_of(film, index, 100_000)));
    net.run(SECOND);
    net.send(1, chunk_of(letter, 0, 10_000));
    net.run(SECOND);
    assert_eq!(passed(&mut net), [letter]);
    let of_film =
        |it: &Control| matches!(it, Control::Stop(it) if it.content == film && !it.lease.is_zero());
    assert!(told(&mut net).iter().any(of_film));
    // The next hop repeats nothing.
    net.run(SECOND * 10);
    assert_eq!(passed(&mut net), [film, film]);
    let goes_on =
        |it: &Control| matches!(it, Control::Stop(it) if it.content == film && it.lease.is_zero());
    assert!(told(&mut net).iter().any(goes_on));
}

/// A source of an earlier version, or an ill-willed one, gets no more room by it than without.
#[test]
fn a_source_that_goes_on_with_a_stopped_content_is_held_back() {
    let (film, letter) = (Guid([1; 32]), Guid([2; 32]));
    let mut net = net();
    stop(&mut net, film, SECOND * 30);
    for index in 0..40 {
        net.send(1, chunk_of(film, index, 1 << 20));
        net.run(SECOND / 4);
    }
    let last = told(&mut net).into_iter().rev().find_map(|it| match it {
        Control::Hold(hold) => Some(hold),
        _ => None,
    });
    let last = last.expect("a hold");
    assert_eq!((last.mode, last.credit), (Some(HoldMode::All), 0));
    // That is for the film. What is let in of others would pass.
    net.send(1, chunk_of(letter, 0, 10_000));
    net.run(SECOND);
    assert_eq!(passed(&mut net), [letter]);
}

/// A next hop that renews a stop keeps no more of the buffer than one that renews a hold, and what was
/// stored does not come back into it before the stop has ended.
#[test]
fn what_is_stopped_for_long_leaves_the_buffer_to_others() {
    let (film, letter) = (Guid([1; 32]), Guid([2; 32]));
    let mut net = net();
    stop(&mut net, film, SECOND * 20);
    for index in 0..5 {
        net.send(1, chunk_of(film, index, 1 << 20));
        net.run(SECOND);
    }
    net.run(SECOND * 5);
    let memory = net.router().memory();
    assert!(memory.stored_bytes > 0, "{memory:?}");
    let (used, capacity) = net.router().links.buffer();
    assert!(used * 2 <= capacity, "{used} of {capacity}");
    net.send(1, chunk_of(letter, 0, 10_000));
    net.run(SECOND);
    assert_eq!(passed(&mut net), [letter]);
    net.run(SECOND * 20);
    assert_eq!(passed(&mut net), [film; 5]);
    assert_eq!(net.router().memory().stored_bytes, 0);
}
