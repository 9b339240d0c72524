//! One hop over a path that silently drops large frames.

use core::time::Duration;

use crate::pair::{Pair, chunk, path};
use whimbrel_core::Time;
use whimbrel_link::HopEvent;
use whimbrel_sim::Direction;
use whimbrel_sim::link::{LinkSpec, Loss};

const RTT: Duration = Duration::from_millis(50);

/// Returns a path for frames of up to `largest` bytes.
fn narrow(largest: usize, loss: f64) -> LinkSpec {
    let loss = if loss > 0.0 {
        Loss::Independent(loss)
    } else {
        Loss::None
    };
    LinkSpec {
        loss,
        largest_frame: Some(largest),
        ..path(25_000_000, RTT / 2)
    }
}

fn set(pair: &mut Pair, largest: usize) {
    for direction in Direction::BOTH {
        let wider = narrow(largest, 0.0);
        let set = pair.net.set_healthy(0, direction, &wider);
        assert!(set.is_ok(), "{set:?}");
    }
}

fn falls(pair: &Pair, end: usize) -> u64 {
    pair.ends()[end].hop.stats().mtu_falls
}

#[test]
fn data_of_any_size_passes_a_black_hole_within_three_seconds() {
    for size in [1_300, 3_000, 40_000, 1 << 20] {
        for (largest, loss) in [(1_400, 0.0), (1_250, 0.0), (1_400, 0.15), (900, 0.0)] {
            let mut pair = Pair::new(7, narrow(largest, loss));
            pair.drive(Time::from_secs(1));
            pair.send(0, 1, chunk(1, size));
            let sent = pair.now();
            let whole = pair.drive_until(Time::from_secs(60), |pair| {
                !pair.ends()[1].received.is_empty()
            });
            assert!(whole, "{size} bytes through {largest} with loss {loss}");
            assert_eq!(pair.ends()[1].received[0].chunk, chunk(1, size));
            let took = pair.now().since(sent);
            let least = Duration::from_secs_f64(size as f64 * 8.0 / 20e6);
            println!("{size} bytes through {largest} with loss {loss}: {took:?}");
            assert!(
                took < Duration::from_secs(3) + least,
                "{size} bytes through {largest} with loss {loss}: {took:?}"
            );
        }
    }
}

#[test]
fn a_black_hole_in_mid_transfer_is_left_and_the_path_s_size_is_found() {
    let mut pair = Pair::new(8, narrow(1_500, 0.0));
    for tag in 0..60 {
        pair.send(0, tag, chunk(tag, 256 << 10));
    }
    pair.drive(Time::from_secs(2));
    let before = pair.ends()[1].received.len();
    assert!(before > 5 && falls(&pair, 0) == 0);
    set(&mut pair, 1_400);
    let change = pair.now();
    assert!(pair.drive_until(Time::from_secs(30), |pair| {
        pair.ends()[1].received.len() > before + 1
    }));
    println!("the next chunks after {:?}", pair.now().since(change));
    assert!(pair.drive_until(Time::from_secs(60), |pair| {
        pair.ends()[1].received.len() == 60
    }));
    let stats = pair.ends()[0].hop.stats();
    assert_eq!(stats.mtu_falls, 1);
    assert!(
        (1_384..=1_400).contains(&stats.largest_frame),
        "{}",
        stats.largest_frame
    );
    let told = pair.ends()[0]
        .events
        .iter()
        .any(|(_, event)| matches!(event, HopEvent::PathMtu { size: 1_200 }));
    assert!(told, "the owner is told");
}

#[test]
fn full_frames_are_sent_again_when_the_path_is_repaired() {
    let mut pair = Pair::new(9, narrow(1_300, 0.0));
    pair.send(0, 1, chunk(1, 100_000));
    pair.drive(Time::from_secs(5));
    assert!(pair.ends()[0].hop.stats().largest_frame <= 1_300);
    set(&mut pair, 1_500);
    pair.drive(Time::from_secs(70));
    assert_eq!(pair.ends()[0].hop.stats().largest_frame, 1_452);
}

#[test]
fn loss_of_fifteen_percent_is_not_taken_for_a_black_hole() {
    for seed in 0..10 {
        let mut pair = Pair::new(seed, narrow(1_500, 0.15));
        // Large chunks, and small ones of a packet or two with pauses between them.
        for tag in 0..20 {
            pair.send(0, tag, chunk(tag, 200_000));
        }
        for tag in 20..120 {
            pair.send(1, tag, chunk(tag, 1_300 + tag as usize * 10));
            let until = pair.now() + Duration::from_millis(200);
            pair.drive(until);
        }
        pair.drive(Time::from_secs(60));
        assert_eq!(pair.ends()[1].received.len(), 20, "seed {seed}");
        assert_eq!(pair.ends()[0].received.len(), 100, "seed {seed}");
        assert_eq!((falls(&pair, 0), falls(&pair, 1)), (0, 0), "seed {seed}");
    }
}

#[test]
fn a_path_without_loss_is_not_probed() {
    let mut pair = Pair::new(10, narrow(1_500, 0.0));
    for tag in 0..20 {
        pair.send(0, tag, chunk(tag, 200_000));
    }
    pair.drive(Time::from_secs(100));
    assert_eq!(pair.ends()[0].hop.stats().mtu_probes, 0);
}

#[test]
fn a_neighbour_without_room_is_not_taken_for_a_black_hole() {
    let mut pair = Pair::new(11, narrow(1_500, 0.0));
    pair.drive(Time::from_secs(1));
    // Other neighbours use all the room, which this sender does not know yet: packets without a
    // grant are dropped, and each CSYN is refused.
    let (taken, mut held) = (pair.ends()[1].buffer.capacity(), Vec::new());
    pair.at(1, |end, _| {
        let rooms = (0..taken).map(|_| end.buffer.take(1, 0).expect("room"));
        held.extend(rooms);
    });
    pair.send(0, 1, chunk(1, 40_000));
    pair.drive(Time::from_secs(8));
    assert!(pair.ends()[1].received.is_empty());
    assert!(pair.ends()[0].hop.stats().refusals_received > 0);
    assert_eq!(
        (falls(&pair, 0), pair.ends()[0].hop.stats().mtu_probes),
        (0, 0)
    );
    pair.at(1, |end, now| {
        held.clear();
        end.hop.room_released(now, &mut end.buffer);
    });
    pair.drive(Time::from_secs(10));
    assert_eq!(pair.ends()[1].received.len(), 1);
}
