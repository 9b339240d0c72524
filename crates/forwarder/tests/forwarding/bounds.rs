//! Floods and bad input are counted and bounded, and others are still served.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::SeededRng;
use whimbrel_forwarder::{CsConfig, FaceId, ForwarderConfig};
use whimbrel_ndn_packet::{Component, DataRef, LpHeader, LpPacket};

use super::node::{Node, data, interest, lines, name};

fn small() -> ForwarderConfig {
    ForwarderConfig {
        pit_capacity: 1000,
        content_store: CsConfig {
            capacity: 100_000,
            ..CsConfig::default()
        },
        dead_nonce_capacity: 500,
        queue_capacity: 100,
        ..ForwarderConfig::default()
    }
}

#[test]
fn a_flood_of_interests_evicts_only_interests_of_its_own_face() {
    let mut node = Node::new(small());
    let (honest, flooder, producer) = (node.add_face(), node.add_face(), node.add_face());
    node.route("/", producer.0, 0);
    for number in 0..100 {
        node.ask(honest.0, &interest(&format!("/honest/{number}"), number));
    }
    for number in 0..100_000u32 {
        node.ask(flooder.0, &interest(&format!("/flood/{number}"), number));
        assert!(node.forwarder.pit().len() <= 1000);
    }
    assert!(node.dropped("pit-evicted") >= 99_000);
    let answered = (0..100).filter(|number| {
        lines(&node.receive(producer.0, &data(&format!("/honest/{number}")))).len() == 1
    });
    assert!(answered.count() >= 95);
    assert!(node.forwarder.dead_nonces_len() <= 500);
    node.wait(20_000);
    assert!(node.forwarder.pit().is_empty());
    assert!(
        node.forwarder
            .faces()
            .all(|face| face.pending_interests() == 0)
    );
}

/// Interests may have 8,800 octets: their number alone does not bound the memory.
#[test]
fn a_flood_of_large_interests_is_bounded_in_octets_and_evicts_no_small_one() {
    let mut node = Node::new(small());
    let (honest, flooder, producer) = (node.add_face(), node.add_face(), node.add_face());
    node.route("/", producer.0, 0);
    for number in 0..100 {
        node.ask(honest.0, &interest(&format!("/honest/{number}"), number));
    }
    let long = "x".repeat(8_000);
    for number in 0..2_000u32 {
        node.ask(
            flooder.0,
            &interest(&format!("/flood/{number}/{long}"), number),
        );
        assert!(node.forwarder.pit().octets() <= 1 << 20);
    }
    assert!(node.forwarder.pit().octets() > 900_000);
    let answered = (0..100).filter(|number| {
        lines(&node.receive(producer.0, &data(&format!("/honest/{number}")))).len() == 1
    });
    assert_eq!(answered.count(), 100);
    node.wait(20_000);
    assert_eq!(node.forwarder.pit().octets(), 0);
}

#[test]
fn a_flood_of_unsolicited_data_leaves_nothing() {
    let mut node = Node::new(small());
    let flooder = node.add_face();
    for number in 0..10_000 {
        assert_eq!(
            node.receive(flooder.0, &data(&format!("/flood/{number}")))
                .len(),
            0
        );
    }
    assert_eq!(node.dropped("unsolicited"), 10_000);
    assert!(node.forwarder.cs().is_empty() && node.forwarder.pit().is_empty());
}

#[test]
fn the_content_store_stays_within_its_octets() {
    let mut node = Node::new(small());
    let (consumer, producer) = (node.add_face(), node.add_face());
    node.route("/", producer.0, 0);
    for number in 0..10_000u32 {
        let text = format!("/a/{number}");
        node.ask(consumer.0, &interest(&text, number));
        assert_eq!(node.receive(producer.0, &data(&text)).len(), 1);
        assert!(node.forwarder.cs().bytes() <= 100_000);
    }
    assert!(node.forwarder.cs().len() > 100);
}

#[test]
fn a_driver_that_does_not_poll_does_not_fill_the_memory() {
    let mut node = Node::new(small());
    let (consumer, producer) = (node.add_face(), node.add_face());
    node.route("/", producer.0, 0);
    for number in 0..200u32 {
        let wire = interest(&format!("/a/{number}"), number).encode();
        let lp = LpPacket::decode(&wire, false).unwrap();
        node.forwarder.handle_packet(node.now, consumer, &lp);
    }
    assert_eq!(node.dropped("queue-full"), 100);
    assert_eq!(node.sent().len(), 100);
}

#[test]
fn unpolled_management_commands_are_bounded() {
    let mut node = Node::new(ForwarderConfig::default());
    let program = node.add_local_face();
    for number in 0..10_000u32 {
        node.ask(
            program.0,
            &interest(&format!("/localhost/nfd/faces/list/{number}"), number),
        );
    }
    assert_eq!(node.dropped("management-busy"), 10_000 - 4096);
}

#[test]
fn a_name_of_thousands_of_components_is_forwarded_like_any_other() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 0);
    let text = "/a".repeat(2500);
    let asked = interest(&text, 1);
    assert_eq!(node.ask(256, &asked).len(), 1);
    assert_eq!(node.receive(257, &data(&text)).len(), 1);
    assert_eq!(
        node.ask(256, &interest(&text, 2))[0].face,
        FaceId(256),
        "from the content store"
    );
    // Beyond the maximum depth of prefixes only the exact name matches.
    let mut prefix = interest(&"/a".repeat(2000), 3);
    prefix.can_be_prefix = true;
    assert!(node.ask(256, &prefix)[0].is_interest());
}

#[test]
fn malformed_packets_are_counted() {
    let mut node = Node::with_faces(2);
    let mut rng = SeededRng::new(7);
    let good = interest("/a/b/c", 1).encode();
    for _ in 0..2_000 {
        let mut bad = good.clone();
        let at = rng.below(bad.len() as u64) as usize;
        bad[at] ^= 1 + rng.below(255) as u8;
        node.receive(256, &bad);
    }
    assert_eq!(node.receive(256, &[0x64, 0]).len(), 0);
    assert!(node.dropped("malformed") > 500);
    let mut huge = interest("/a", 1);
    huge.parameters = Some(Bytes::from(vec![0; 9000]));
    let before = node.dropped("malformed");
    node.receive(256, &huge.encode());
    assert_eq!(node.dropped("malformed"), before + 1);
    node.receive(999, &good);
    assert_eq!(node.dropped("unknown-face"), 1);
}

#[test]
fn a_removed_face_leaves_nothing_in_any_table() {
    let mut node = Node::with_faces(4);
    let own = node.forwarder.fib().len();
    for face in [257, 258] {
        node.route("/a", face, face);
        node.route("/only-there", 257, 0);
    }
    node.ask(256, &interest("/a/1", 1));
    node.ask(259, &interest("/a/1", 2));
    node.forwarder.remove_face(node.now, FaceId(257));
    node.forwarder.remove_face(node.now, FaceId(259));
    assert_eq!(
        node.forwarder.fib().len(),
        own + 1,
        "/a, and the prefixes of management"
    );
    assert!(node.forwarder.face(FaceId(257)).is_none());
    // A retransmission goes to the other next hop at once, and the remaining downstreams get the
    // Data.
    assert_eq!(
        node.ask_lines(256, &interest("/a/1", 3)),
        ["258 interest /a/1"]
    );
    let entry = node.forwarder.pit().entries().next().unwrap();
    assert_eq!(
        (entry.in_records().len(), entry.out_records().len()),
        (1, 1)
    );
    assert_eq!(lines(&node.receive(258, &data("/a/1"))), ["256 data /a/1"]);
    assert_eq!(node.add_face(), FaceId(260), "a number is not given twice");
    assert_eq!(node.receive(257, &data("/a/1")).len(), 0);
    assert_eq!(node.dropped("unknown-face"), 1);
}

#[test]
fn state_of_a_removed_face_ends_in_time_and_delays_no_other_face() {
    let mut node = Node::with_faces(4);
    node.route("/a", 258, 0);
    for number in 0..100u32 {
        node.ask(256, &interest(&format!("/a/{number}"), number));
        // The same nonce from another face would be a loop if the first face still existed.
        if number % 2 == 0 {
            node.ask(257, &interest(&format!("/a/{number}"), 1000 + number));
        }
    }
    node.forwarder.remove_face(node.now, FaceId(256));
    assert_eq!(
        node.ask_lines(259, &interest("/a/1", 1)),
        ["259 nack /a/1 100"],
        "258 has it"
    );
    assert_eq!(
        node.ask_lines(257, &interest("/a/0", 1000)),
        [""; 0],
        "suppressed"
    );
    for number in [0, 1] {
        let expected: &[&str] = if number == 0 { &["257 data /a/0"] } else { &[] };
        let packet = data(&format!("/a/{number}"));
        assert_eq!(lines(&node.receive(258, &packet)), expected);
    }
    node.forwarder.remove_face(node.now, FaceId(258));
    node.route("/a", 259, 0);
    // The upstream is gone as well, so the Interest is not suppressed.
    assert_eq!(
        node.ask_lines(257, &interest("/a/2", 2000)),
        ["259 interest /a/2"]
    );
    node.wait(4001);
    assert!(node.forwarder.pit().is_empty());
    let idle = |face: &whimbrel_forwarder::Face| face.pending_interests() == 0;
    assert!(node.forwarder.faces().all(idle));
}

#[test]
fn one_name_with_many_forwarding_hints_makes_no_long_chains() {
    let mut node = Node::with_faces(2);
    node.route("/", 257, 0);
    for number in 0..1000u32 {
        let mut asked = interest("/a", number);
        asked.forwarding_hint = vec![name(&format!("/hint/{number}"))];
        node.ask(256, &asked);
    }
    assert_eq!(node.forwarder.pit().len(), 16);
    assert_eq!(node.dropped("variants"), 1000 - 16);
}

/// 16 false digests, or 16 hints that lead elsewhere, silenced a name for an hour.
#[test]
fn variants_of_a_name_by_one_neighbour_keep_out_no_other() {
    let mut node = Node::with_faces(4);
    node.route("/", 257, 0);
    let hinted = |text: &str, number| {
        let mut asked = interest("/b", number);
        asked.forwarding_hint = vec![name(&format!("/{text}/{number}"))];
        asked
    };
    for number in 0..100u32 {
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&number.to_be_bytes());
        let falsely = name("/a").child(Component::implicit_digest(&digest).as_ref());
        node.ask(256, &interest(&falsely.to_string(), number));
        node.ask(256, &hinted("hint", number));
    }
    let packet = data("/a");
    let rightly = DataRef::decode(&packet).unwrap().full_name();
    node.ask(258, &interest(&rightly.to_string(), 1000));
    assert_eq!(lines(&node.receive(257, &packet)), ["258 data /a"]);
    // The second gets its share, and no more than that.
    for number in 0..16u32 {
        node.ask(259, &hinted("other", number));
    }
    let pending = |face| {
        let face = node.forwarder.face(FaceId(face));
        face.map(|face| face.pending_interests())
    };
    assert_eq!((pending(256), pending(259)), (Some(15 + 8), Some(8)));
}

#[test]
fn time_that_jumps_ends_everything_that_was_due() {
    let mut node = Node::with_faces(2);
    node.route("/", 257, 0);
    for number in 0..500u32 {
        let mut asked = interest(&format!("/a/{number}"), number);
        asked.lifetime = Some(Duration::from_millis(u64::from(number) * 100));
        node.ask(256, &asked);
    }
    node.now += Duration::from_secs(1 << 30);
    node.forwarder.handle_timeout(node.now);
    assert!(node.forwarder.pit().is_empty());
}

#[test]
fn tokens_of_any_length_come_back_as_they_were() {
    let mut node = Node::with_faces(2);
    node.route("/", 257, 0);
    for len in 1..=32usize {
        let text = format!("/a/{len}");
        let token = Some(Bytes::from(vec![7; len]));
        let header = LpHeader {
            pit_token: token.clone(),
            ..LpHeader::default()
        };
        node.receive_with(256, &interest(&text, len as u32).encode(), &header);
        assert_eq!(node.receive(257, &data(&text))[0].header.pit_token, token);
    }
}
