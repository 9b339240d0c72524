//! The incoming and the outgoing Data pipeline.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_forwarder::{FaceId, ForwarderConfig, LinkState, LinkType, UnsolicitedPolicy};
use whimbrel_ndn_packet::{CachePolicy, Component, DataRef, LpHeader, NackReason};

use super::node::{Node, data, fresh_data, interest, lines, name};

#[test]
fn unsolicited_data_is_dropped_or_cached_as_configured() {
    let kept_from = |policy| {
        let mut node = Node::new(ForwarderConfig {
            unsolicited: policy,
            ..ForwarderConfig::default()
        });
        let (peer, program) = (node.add_face(), node.add_local_face());
        assert_eq!(lines(&node.receive(peer.0, &data("/peer"))), [""; 0]);
        assert_eq!(lines(&node.receive(program.0, &data("/program"))), [""; 0]);
        assert_eq!(node.dropped("unsolicited"), 2);
        let mut has = |text| node.ask(peer.0, &interest(text, 1))[0].is_data();
        (has("/peer"), has("/program"))
    };
    assert_eq!(kept_from(UnsolicitedPolicy::Drop), (false, false));
    assert_eq!(kept_from(UnsolicitedPolicy::AdmitLocal), (false, true));
    assert_eq!(kept_from(UnsolicitedPolicy::AdmitNetwork), (true, false));
    assert_eq!(kept_from(UnsolicitedPolicy::AdmitAll), (true, true));
}

#[test]
fn a_data_satisfies_prefixes_its_name_and_its_digest_once_per_face() {
    let mut node = Node::with_faces(5);
    node.route("/a", 260, 0);
    let answer = data("/a/b/c");
    let digest = DataRef::decode(&answer).unwrap().implicit_digest();
    let full = name("/a/b/c").child(Component::new(1, digest.to_vec()).as_ref());
    let mut prefix = interest("/a", 1);
    prefix.can_be_prefix = true;
    let mut by_digest = interest("/a/b/c", 2);
    by_digest.name = full;
    let mut wrong_digest = by_digest.clone();
    wrong_digest.name = name("/a/b/c").child(Component::new(1, vec![0; 32]).as_ref());
    node.ask(256, &prefix);
    node.ask(256, &interest("/a/b/c", 3));
    node.ask(257, &by_digest);
    node.ask(258, &wrong_digest);
    node.ask(259, &interest("/a/b", 4));
    let mut sent = lines(&node.receive(260, &answer));
    sent.sort_unstable();
    assert_eq!(sent, ["256 data /a/b/c", "257 data /a/b/c"]);
    assert_eq!(
        node.forwarder.pit().len(),
        2,
        "the wrong digest, and the exact name /a/b"
    );
}

/// Who is not on the path, and only guesses names, answers nobody's Interest.
#[test]
fn data_counts_only_from_a_face_that_was_asked_a_program_or_after_a_group_was_asked() {
    let mut node = Node::with_faces(4);
    let program = node.add_local_face();
    node.route("/a", 257, 0);
    let answers = |node: &mut Node, text: &str, from: u64| {
        node.ask(256, &interest(text, from as u32));
        lines(&node.receive(from, &data(text)))
    };
    assert_eq!(answers(&mut node, "/a/1", 258), [""; 0]);
    assert_eq!(node.dropped("unsolicited"), 1);
    assert_eq!(
        node.forwarder.pit().len(),
        1,
        "its producer may still answer"
    );
    assert_eq!(lines(&node.receive(257, &data("/a/1"))), ["256 data /a/1"]);
    assert_eq!(answers(&mut node, "/a/2", 257), ["256 data /a/2"]);
    assert_eq!(answers(&mut node, "/a/3", program.0), ["256 data /a/3"]);
    // What answers one Interest from there answers all.
    let mut prefix = interest("/a/4", 40);
    prefix.can_be_prefix = true;
    node.ask(259, &prefix);
    assert_eq!(answers(&mut node, "/a/4/x", 257).len(), 2);
    let group = node.add_shared_face(LinkType::MultiAccess);
    node.route("/g", group.0, 0);
    assert_eq!(answers(&mut node, "/g/1", 258), ["256 data /g/1"]);
}

#[test]
fn each_token_is_returned() {
    let mut node = Node::with_faces(3);
    node.route("/a", 258, 0);
    let mut prefix = interest("/a", 1);
    prefix.can_be_prefix = true;
    for (asked, token) in [(prefix, &b"1"[..]), (interest("/a/b", 2), b"2")] {
        let header = LpHeader {
            pit_token: Some(Bytes::from_static(token)),
            ..LpHeader::default()
        };
        node.receive_with(256, &asked.encode(), &header);
    }
    let sent = node.receive(258, &data("/a/b"));
    let mut tokens: Vec<_> = sent
        .iter()
        .filter_map(|sent| sent.header.pit_token.clone())
        .collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [&b"1"[..], b"2"]);
}

#[test]
fn a_retransmission_may_change_its_token_and_the_last_one_counts() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 0);
    for token in [&b"old"[..], b"new"] {
        let header = LpHeader {
            pit_token: Some(Bytes::from_static(token)),
            ..LpHeader::default()
        };
        node.receive_with(256, &interest("/a", 1).encode(), &header);
    }
    let sent = node.receive(257, &data("/a"));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].header.pit_token.as_deref(), Some(&b"new"[..]));
}

#[test]
fn data_is_not_sent_to_expired_downstreams() {
    let mut node = Node::with_faces(3);
    node.route("/a", 258, 0);
    let with_lifetime = |nonce, millis| {
        let mut interest = interest("/a", nonce);
        interest.lifetime = Some(Duration::from_millis(millis));
        interest
    };
    node.ask(256, &with_lifetime(1, 100));
    node.ask(257, &with_lifetime(2, 1000));
    node.wait(500);
    assert_eq!(lines(&node.receive(258, &data("/a"))), ["257 data /a"]);
}

#[test]
fn a_program_can_keep_its_data_out_of_the_store() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 0);
    node.ask(256, &interest("/a", 1));
    let header = LpHeader {
        cache_policy: Some(CachePolicy::NoCache),
        ..LpHeader::default()
    };
    assert_eq!(
        lines(&node.receive_with(257, &data("/a"), &header)),
        ["256 data /a"]
    );
    assert!(node.forwarder.cs().is_empty());
    assert_eq!(node.ask_lines(256, &interest("/a", 2)), ["257 interest /a"]);
}

#[test]
fn stale_data_does_not_satisfy_must_be_fresh() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 0);
    node.ask(256, &interest("/a", 1));
    node.receive(257, &fresh_data("/a", 100));
    let mut fresh = interest("/a", 2);
    fresh.must_be_fresh = true;
    assert_eq!(node.ask_lines(256, &fresh), ["256 data /a"]);
    node.wait(100);
    fresh.nonce = Some([0, 0, 0, 3]);
    assert_eq!(node.ask_lines(256, &fresh), ["257 interest /a"]);
}

#[test]
fn localhost_data_from_another_machine_is_dropped() {
    let mut node = Node::with_faces(1);
    let program = node.add_local_face();
    node.route("/localhost", program.0, 0);
    let other = node.add_local_face();
    node.ask(other.0, &interest("/localhost/a", 1));
    assert_eq!(lines(&node.receive(256, &data("/localhost/a"))), [""; 0]);
    assert_eq!(node.dropped("scope"), 1);
    assert_eq!(
        lines(&node.receive(program.0, &data("/localhost/a"))),
        [format!("{other} data /localhost/a")]
    );
}

#[test]
fn fields_that_a_data_may_not_have_are_refused() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 0);
    node.ask(256, &interest("/a", 1));
    let nack = LpHeader {
        nack: Some(NackReason::NoRoute),
        ..LpHeader::default()
    };
    let next_hop = LpHeader {
        next_hop_face_id: Some(256),
        ..LpHeader::default()
    };
    for header in [nack, next_hop] {
        assert_eq!(
            lines(&node.receive_with(257, &data("/a"), &header)),
            [""; 0]
        );
    }
    assert_eq!(node.dropped("header-field"), 2);
    assert_eq!(node.forwarder.pit().len(), 1);
}

/// Sends a thousand Data, one per millisecond, to each of three faces while the first one's queue
/// has this delay. Returns the number of marked Data of each face.
fn marks(queue: LinkState, marking: bool) -> [u32; 3] {
    let mut node = Node::with_faces(4);
    node.route("/a", 259, 0);
    for face in 256..259 {
        let face = node.forwarder.face_mut(FaceId(face)).unwrap();
        face.spec.flags.congestion_marking = marking;
    }
    let mut marks = [0; 3];
    for step in 0..1000u32 {
        for face in 256..259 {
            node.ask(
                face,
                &interest(&format!("/a/{step}"), step * 4 + face as u32),
            );
        }
        let (now, idle) = (node.now, LinkState::default());
        node.forwarder.set_link_state(now, FaceId(256), queue);
        node.forwarder.set_link_state(now, FaceId(257), idle);
        for sent in node.receive(259, &data(&format!("/a/{step}"))) {
            marks[sent.face.0 as usize - 256] += u32::from(sent.header.congestion_mark == Some(1));
        }
        node.wait(1);
    }
    assert_eq!(
        node.forwarder.counters().marked,
        marks.iter().map(|marks| u64::from(*marks)).sum::<u64>()
    );
    marks
}

#[test]
fn only_data_for_a_face_with_a_slow_queue_is_marked() {
    let slow = LinkState {
        queue_age: Some(Duration::from_millis(20)),
        queue_packets: 30,
        ..LinkState::default()
    };
    let [first, others @ ..] = marks(slow, true);
    assert!((10..200).contains(&first), "{first}");
    assert_eq!(others, [0, 0]);
    assert_eq!(marks(slow, false), [0; 3], "marking is off");
    let fast = LinkState {
        queue_age: Some(Duration::from_millis(4)),
        ..slow
    };
    assert_eq!(marks(fast, true), [0; 3], "below the target");
    let lone = LinkState {
        queue_packets: 1,
        ..slow
    };
    assert_eq!(marks(lone, true), [0; 3], "it waits for no other packet");
}

#[test]
fn a_face_that_is_down_gets_nothing_and_gets_its_data_again_when_it_is_up() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 0);
    node.ask(256, &interest("/a", 1));
    node.forwarder.set_face_up(node.now, FaceId(256), false);
    assert_eq!(lines(&node.receive(257, &data("/a"))), [""; 0]);
    node.forwarder.set_face_up(node.now, FaceId(256), true);
    assert_eq!(node.ask_lines(256, &interest("/a", 2)), ["256 data /a"]);
}
