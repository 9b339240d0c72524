//! Two hops that nobody disturbs, or somebody who can forge frames.

use super::*;
use crate::hop::secure::handshake::{encode_refusal, session_of_call};

#[test]
fn three_messages_prove_both_names_and_data_goes_with_the_third() {
    let mut wire = Wire::new();
    wire.send(0, 1, 500);
    wire.collect();
    assert_eq!(
        wire.on_the_way.each_ref().map(Vec::len),
        [0, 1],
        "who answers does not greet"
    );
    let call = wire.on_the_way[1].remove(0);
    wire.deliver(1, &call);
    let answer = wire.on_the_way[0].remove(0);
    assert!(answer.len() <= call.len());
    wire.deliver(0, &answer);
    assert!(wire.ends[0].hop.is_up() && !wire.ends[1].hop.is_up());
    let rest = core::mem::take(&mut wire.on_the_way[1]);
    assert_eq!(rest[0].len(), PROOF_LEN);
    for frame in &rest {
        wire.deliver(1, frame);
    }
    assert!(wire.is_up());
    assert_eq!(wire.ends[1].received.len(), 1);
    for (end, other) in [(0, 1), (1, 0)] {
        let up = wire.ends[end].events.iter().find_map(|event| match event {
            HopEvent::Up { neighbour, .. } => Some(*neighbour),
            _ => None,
        });
        assert_eq!(up, Some(keys(other).guid()));
    }
    for frame in wire.seen.iter().flatten() {
        for end in 0..2 {
            let holds = |secret: &[u8]| frame.windows(32).any(|part| part == secret);
            let keys = keys(end);
            assert!(!holds(keys.guid().as_bytes()) && !holds(keys.public().as_bytes()));
        }
    }
}

#[test]
fn a_sealed_frame_is_twelve_octets_longer_than_a_plain_one() {
    let sizes = |plain: bool| {
        let mode = |end| HopConfig {
            plain,
            ..config(end, 1)
        };
        let mut wire = Wire::of([mode(0), mode(1)]);
        wire.run(20);
        wire.seen = [Vec::new(), Vec::new()];
        wire.send(0, 1, 300);
        wire.run(20);
        assert_eq!(wire.ends[0].delivered, [1]);
        let sizes = |to: usize| wire.seen[to].iter().map(Vec::len).collect::<Vec<usize>>();
        (sizes(1), sizes(0))
    };
    let (plain, sealed) = (sizes(true), sizes(false));
    let longer = |sizes: &[usize]| sizes.iter().map(|size| size + 12).collect::<Vec<usize>>();
    assert_eq!((longer(&plain.0), longer(&plain.1)), sealed);
}

#[test]
fn both_call_at_once_and_agree_on_one_session() {
    let mut wire = Wire::of([config(0, 1), config(1, 1)]);
    wire.send(0, 1, 50_000);
    wire.send(1, 2, 50_000);
    wire.run(400);
    assert_eq!(
        wire.ends.each_ref().map(|end| end.hop.stats().sessions),
        [1, 1]
    );
    assert_eq!(wire.ends[0].delivered, [1]);
    assert_eq!(wire.ends[1].delivered, [2]);
}

/// Returns a caller of end 1 that expects this name there, and end 1 with the keys of `answering`.
fn wire_that_expects(expected: usize, answering: usize) -> Wire {
    let caller = HopConfig {
        neighbour: Some(keys(expected).guid()),
        ..config(0, 1)
    };
    let answerer = HopConfig {
        calls: false,
        ..config(answering, 1)
    };
    Wire::of([caller, answerer])
}

#[test]
fn a_call_ends_without_a_proof_if_another_name_answers() {
    let mut wire = wire_that_expects(1, 2);
    wire.send(0, 1, 500);
    wire.run(3_000);
    assert!(!wire.ends.iter().any(|end| end.hop.is_up()));
    assert!(wire.ends[1].received.is_empty());
    let why = Unwilling::OtherName {
        proven: keys(2).guid(),
        expected: keys(1).guid(),
    };
    assert_eq!(wire.ends[0].hop.unwilling(), Some(why));
    assert!(wire.ends[0].events.contains(&HopEvent::Unwilling(why)));
    let text = why.text();
    for name in [keys(1).guid(), keys(2).guid()] {
        assert!(text.contains(&name.to_string()), "{text}");
    }
    // The caller's own name is told to nobody but the neighbour that it expects.
    assert!(wire.seen[1].iter().all(|frame| frame.len() == CALL_LEN));

    let mut wire = wire_that_expects(1, 1);
    wire.run(100);
    assert!(wire.is_up());
}

#[test]
fn a_call_from_another_name_is_refused_where_one_is_expected() {
    // Both ends call; end 1 expects end 0 and is called by end 2.
    let other = config(2, 1);
    let expecting = HopConfig {
        neighbour: Some(keys(0).guid()),
        ..config(1, 1)
    };
    let mut wire = Wire::of([other, expecting]);
    wire.run(3_000);
    assert!(!wire.ends[1].hop.is_up());
}

#[test]
fn a_neighbour_with_a_new_key_is_refused_once_its_first_name_is_expected() {
    let mut wire = Wire::new();
    wire.run(50);
    assert!(wire.is_up());
    wire.ends[0].hop.expect_neighbour(keys(1).guid());
    wire.restart(1);
    wire.run(3_000);
    assert!(wire.is_up(), "the same key after a restart");
    let now = wire.now;
    let answerer = HopConfig {
        calls: false,
        ..config(2, 9)
    };
    wire.ends[1] = End::new(answerer, now);
    wire.send(0, 1, 500);
    wire.run(5_000);
    assert!(!wire.ends[0].hop.is_up() && wire.ends[1].received.is_empty());
}

#[test]
fn frames_of_who_has_sniffed_a_session_do_nothing() {
    let mut wire = Wire::new();
    wire.run(50);
    let sniffed = wire.seen[1].last().cloned().unwrap();
    for kind in 0..4u8 {
        for low in [0u32, 1, 5, 1 << 20, u32::MAX] {
            let mut forged = sniffed.clone();
            forged[0] = forged[0] & 0xfc | kind;
            forged[5..9].copy_from_slice(&low.to_be_bytes());
            wire.deliver(1, &forged);
        }
    }
    wire.send(0, 1, 400_000);
    wire.send(1, 2, 400_000);
    wire.run(2_000);
    assert_eq!(
        (&wire.ends[0].delivered[..], &wire.ends[1].delivered[..]),
        (&[1][..], &[2][..])
    );
    let drops = wire.ends[1].hop.stats().drops;
    assert_eq!(drops.forged + drops.replayed, 20, "{drops:?}");
}

#[test]
fn keys_are_renewed_and_transfers_go_on() {
    let mut wire = Wire::new();
    wire.run(50);
    for minute in 0..25u64 {
        wire.send(0, 1_000 + minute, 100_000);
        wire.run(200);
        let far = wire.now + Duration::from_secs(59);
        while wire.now < far {
            wire.pass(900);
            wire.run(3);
        }
    }
    let calls = wire.seen[1]
        .iter()
        .filter(|frame| frame.len() == CALL_LEN)
        .count();
    let proofs = wire.seen[1]
        .iter()
        .filter(|frame| frame.len() == PROOF_LEN && frame[0] == 0x32);
    assert!(proofs.count() >= 3 && (3..12).contains(&calls), "{calls}");
    assert_eq!(
        wire.ends.each_ref().map(|end| end.hop.stats().sessions),
        [1, 1]
    );
    assert_eq!(wire.ends[0].delivered.len(), 25);
}

#[test]
fn a_false_notice_of_a_lost_session_costs_no_transfer() {
    let mut wire = Wire::new();
    wire.run(50);
    wire.send(0, 1, 3_000_000);
    for _ in 0..40 {
        wire.run(1);
        let frame = wire.seen[1].last().cloned().unwrap();
        let mut lost = vec![0x34, 0, 1, 0];
        lost.extend_from_slice(&frame[1..9]);
        wire.deliver(0, &lost);
    }
    wire.run(3_000);
    assert_eq!(wire.ends[0].delivered, [1]);
    assert_eq!(
        wire.ends.each_ref().map(|end| end.hop.stats().sessions),
        [1, 1]
    );
}

#[test]
fn a_restart_of_either_end_is_noticed_at_once() {
    for end in 0..2 {
        let mut wire = Wire::new();
        wire.run(50);
        wire.restart(end);
        wire.send(1, 7, 100_000);
        wire.send(0, 8, 100_000);
        wire.run(1_000);
        assert!(wire.is_up());
        assert_eq!(wire.ends[0].delivered, [8], "{end}");
        assert_eq!(wire.ends[1].delivered, [7], "{end}");
    }
}

#[test]
fn ends_of_different_modes_say_so() {
    for plain in 0..2 {
        let mode = |end| HopConfig {
            plain: end == plain,
            ..config(end, 1)
        };
        let mut wire = Wire::of([mode(0), mode(1)]);
        wire.run(300);
        let told = |end: usize| wire.ends[end].events.clone();
        assert_eq!(told(plain), [HopEvent::Unwilling(Unwilling::Plain)]);
        assert_eq!(told(1 - plain), [HopEvent::Unwilling(Unwilling::Sealed)]);
        assert!(
            wire.ends
                .iter()
                .all(|end| end.hop.stats().drops.wrong_mode > 0)
        );
    }
}

/// A corrupted frame may look like one of the other mode, and draw a refusal of it.
#[test]
fn an_end_believes_no_refusal_of_a_mode_that_is_not_its_own() {
    for plain in [false, true] {
        let mode = |end| HopConfig {
            plain,
            ..config(end, 1)
        };
        let mut wire = Wire::of([mode(0), mode(1)]);
        let false_refusal = match plain {
            true => Unwilling::Sealed,
            false => Unwilling::Plain,
        };
        wire.collect();
        let mut frame = Vec::new();
        encode_refusal(false_refusal, session_of_call(&wire.seen[1][0]), &mut frame);
        let now = wire.now;
        wire.ends[0].handle(now, &frame);
        assert_eq!(wire.ends[0].hop.unwilling(), None, "plain: {plain}");
        wire.run(300);
        assert!(wire.is_up());
    }
}

#[test]
fn who_restarts_answers_a_call_among_the_frames_of_the_former_session() {
    let mut wire = Wire::new();
    wire.run(50);
    wire.send(0, 1, 50_000);
    wire.collect();
    let former = core::mem::take(&mut wire.on_the_way[1]);
    assert!(former.len() > 20);
    wire.restart(1);
    // As from a neighbour that has a full window of them to send.
    for _ in 0..100 {
        for frame in former.iter().cycle().take(50) {
            let now = wire.now;
            wire.ends[1].handle(now, frame);
        }
        wire.run(10);
    }
    assert_eq!(
        wire.ends[0].delivered,
        [1],
        "{:?}",
        wire.ends[1].hop.stats()
    );
}

#[test]
fn a_refusal_by_one_who_has_not_seen_the_call_is_no_reason() {
    for why in [Unwilling::Sealed, Unwilling::Classical, Unwilling::Plain] {
        let mut wire = Wire::of([0, 1].map(|end| HopConfig {
            plain: why == Unwilling::Plain,
            ..config(end, 1)
        }));
        wire.collect();
        let call = wire.on_the_way[1][0].clone();
        let mut forged = Vec::new();
        encode_refusal(why, [0; 8], &mut forged);
        wire.deliver(0, &forged);
        assert_ne!(wire.ends[0].hop.unwilling(), Some(why));
        let mut seen = Vec::new();
        encode_refusal(why, session_of_call(&call), &mut seen);
        wire.deliver(0, &seen);
        assert_eq!(wire.ends[0].hop.unwilling(), Some(why));
    }
}
