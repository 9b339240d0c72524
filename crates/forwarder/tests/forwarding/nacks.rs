//! The incoming and the outgoing Nack pipeline.

use whimbrel_forwarder::{FaceId, LinkType};
use whimbrel_ndn_packet::NackReason;

use super::node::{Node, data, interest, lines};

#[test]
fn downstreams_get_the_least_severe_nack_after_all_upstreams_have_nacked() {
    let mut node = Node::with_faces(4);
    node.route("/a", 258, 1);
    node.route("/a", 259, 2);
    node.strategy("/localhost/nfd/strategy/multicast");
    let sent = node.ask(256, &interest("/a", 1));
    assert_eq!(lines(&sent), ["258 interest /a", "259 interest /a"]);
    node.ask(257, &interest("/a", 2));
    assert_eq!(
        lines(&node.nack(258, &sent[0].packet, NackReason::NoRoute)),
        [""; 0]
    );
    let nacks = node.nack(259, &sent[1].packet, NackReason::Congestion);
    assert_eq!(lines(&nacks), ["256 nack /a 50", "257 nack /a 50"]);
    assert_eq!(
        [nacks[0].nonce(), nacks[1].nonce()],
        [1, 2],
        "each with the nonce that it sent"
    );
    assert!(node.forwarder.pit().is_empty());
}

#[test]
fn an_upstream_that_is_itself_a_downstream_gets_the_nack_of_the_others() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 1);
    node.route("/a", 256, 2);
    node.strategy("/localhost/nfd/strategy/multicast");
    let first = node.ask(256, &interest("/a", 1));
    assert_eq!(lines(&first), ["257 interest /a"]);
    assert_eq!(node.ask_lines(257, &interest("/a", 2)), ["256 interest /a"]);
    assert_eq!(
        lines(&node.nack(257, &first[0].packet, NackReason::NoRoute)),
        ["256 nack /a 150"]
    );
}

#[test]
fn an_unsolicited_nack_is_dropped() {
    let mut node = Node::with_faces(3);
    node.route("/a", 257, 0);
    let sent = node.ask(256, &interest("/a", 1));
    let old = interest("/a", 99).encode();
    assert_eq!(
        lines(&node.nack(258, &sent[0].packet, NackReason::NoRoute)),
        [""; 0],
        "another face"
    );
    assert_eq!(
        lines(&node.nack(257, &old, NackReason::NoRoute)),
        [""; 0],
        "another nonce"
    );
    assert_eq!(
        lines(&node.nack(257, &interest("/b", 1).encode(), NackReason::NoRoute)),
        [""; 0]
    );
    assert_eq!(node.dropped("nack"), 3);
    assert_eq!(lines(&node.receive(257, &data("/a"))), ["256 data /a"]);
}

#[test]
fn nacks_belong_to_links_with_one_peer() {
    let mut node = Node::with_faces(1);
    let shared = node.add_shared_face(LinkType::MultiAccess);
    node.route("/a", shared.0, 0);
    let sent = node.ask(256, &interest("/a", 1));
    assert_eq!(
        lines(&node.nack(shared.0, &sent[0].packet, NackReason::NoRoute)),
        [""; 0]
    );
    assert_eq!(node.dropped("nack"), 1);
    assert_eq!(node.ask_lines(shared.0, &interest("/nowhere", 2)), [""; 0]);
    assert_eq!(node.forwarder.face(shared).unwrap().counters.out_nacks, 0);
}

#[test]
fn a_nacked_interest_may_be_sent_again_at_once() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 0);
    let sent = node.ask(256, &interest("/a", 1));
    assert_eq!(
        lines(&node.nack(257, &sent[0].packet, NackReason::Congestion)),
        ["256 nack /a 50"]
    );
    assert_eq!(node.ask_lines(256, &interest("/a", 2)), ["257 interest /a"]);
    assert_eq!(
        node.forwarder.face(FaceId(257)).unwrap().counters.in_nacks,
        1
    );
}
