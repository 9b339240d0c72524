//! The incoming and the outgoing Interest pipeline.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_forwarder::{FaceId, ForwarderConfig, LinkType};
use whimbrel_ndn_packet::{CachePolicy, LpHeader, NackReason};

use super::node::{Node, data, interest, lines, name};

#[test]
fn an_interest_goes_to_the_longest_prefix_and_the_data_comes_back() {
    let mut node = Node::with_faces(3);
    node.route("/a", 257, 0);
    node.route("/a/b", 258, 0);
    assert_eq!(
        node.ask_lines(256, &interest("/a/b/c", 1)),
        ["258 interest /a/b/c"]
    );
    assert_eq!(
        node.ask_lines(256, &interest("/a/c", 2)),
        ["257 interest /a/c"]
    );
    assert_eq!(
        lines(&node.receive(258, &data("/a/b/c"))),
        ["256 data /a/b/c"]
    );
    assert_eq!(lines(&node.receive(257, &data("/a/c"))), ["256 data /a/c"]);
    let counters = *node.forwarder.counters();
    assert_eq!(
        (
            counters.in_interests,
            counters.out_interests,
            counters.in_data,
            counters.out_data
        ),
        (2, 2, 2, 2)
    );
    assert_eq!((counters.satisfied, counters.unsatisfied), (2, 0));
    assert!(node.forwarder.pit().is_empty());
    let upstream = node.forwarder.face(FaceId(258)).unwrap().counters;
    assert_eq!(
        (
            upstream.out_interests,
            upstream.in_data,
            upstream.satisfied_interests
        ),
        (1, 1, 1)
    );
}

#[test]
fn interests_of_one_name_are_forwarded_once_and_all_answered() {
    let mut node = Node::with_faces(4);
    node.route("/a", 259, 0);
    assert_eq!(node.ask_lines(256, &interest("/a", 1)).len(), 1);
    assert_eq!(node.ask_lines(257, &interest("/a", 2)).len(), 0);
    assert_eq!(node.ask_lines(258, &interest("/a", 3)).len(), 0);
    assert_eq!(node.dropped("suppressed"), 2);
    assert_eq!(node.forwarder.pit().len(), 1);
    assert_eq!(
        lines(&node.receive(259, &data("/a"))),
        ["256 data /a", "257 data /a", "258 data /a"]
    );
}

#[test]
fn interests_with_different_selectors_have_separate_entries() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 0);
    let mut fresh = interest("/a", 2);
    fresh.must_be_fresh = true;
    let mut prefix = interest("/a", 3);
    prefix.can_be_prefix = true;
    for asked in [interest("/a", 1), fresh, prefix] {
        assert_eq!(node.ask_lines(256, &asked), ["257 interest /a"]);
    }
    assert_eq!(node.forwarder.pit().len(), 3);
    // A program with three Interests that one Data satisfies gets it once.
    assert_eq!(lines(&node.receive(257, &data("/a"))), ["256 data /a"]);
    assert!(node.forwarder.pit().is_empty());
}

#[test]
fn the_hop_limit_is_decremented_on_reception_and_an_interest_with_none_left_goes_to_local_faces_only()
 {
    let mut node = Node::with_faces(2);
    let program = node.add_local_face();
    node.route("/far", 257, 0);
    node.route("/here", program.0, 0);
    let with_limit = |text, nonce, limit| {
        let mut interest = interest(text, nonce);
        interest.hop_limit = Some(limit);
        interest
    };
    assert_eq!(
        node.ask(256, &with_limit("/far/1", 1, 2))[0]
            .interest()
            .hop_limit,
        Some(1)
    );
    assert_eq!(lines(&node.ask(256, &with_limit("/far/2", 2, 1))), [""; 0]);
    assert_eq!(node.dropped("out-hop-limit"), 1);
    assert_eq!(
        node.ask(256, &with_limit("/here/1", 3, 1))[0]
            .interest()
            .hop_limit,
        Some(0)
    );
    assert_eq!(lines(&node.ask(256, &with_limit("/here/2", 4, 0))), [""; 0]);
    assert_eq!(node.dropped("hop-limit"), 1);
    assert_eq!(
        node.forwarder
            .face(FaceId(256))
            .unwrap()
            .counters
            .in_hop_limit_zero,
        1
    );
    assert_eq!(
        node.forwarder
            .face(FaceId(257))
            .unwrap()
            .counters
            .out_hop_limit_zero,
        1
    );
}

#[test]
fn an_interest_without_nonce_or_hop_limit_gets_them() {
    let mut node = Node::new(ForwarderConfig {
        default_hop_limit: Some(32),
        ..ForwarderConfig::default()
    });
    let (program, peer) = (node.add_local_face(), node.add_face());
    node.route("/a", peer.0, 0);
    let mut asked = interest("/a", 0);
    asked.nonce = None;
    let sent = node.ask(program.0, &asked);
    assert!(sent[0].interest().nonce.is_some());
    assert_eq!(sent[0].interest().hop_limit, Some(32));
}

#[test]
fn localhost_does_not_cross_the_machine_in_either_direction() {
    let mut node = Node::with_faces(2);
    let program = node.add_local_face();
    node.route("/localhost/app", 257, 0);
    node.route("/localhost/app/here", program.0, 0);
    assert_eq!(
        node.ask_lines(256, &interest("/localhost/app/here", 1)),
        [""; 0]
    );
    assert_eq!(node.dropped("scope"), 1);
    let other = node.add_local_face();
    assert_eq!(
        node.ask_lines(other.0, &interest("/localhost/app/far", 2)),
        ["259 nack /localhost/app/far 150"]
    );
    let sent = node.ask_lines(other.0, &interest("/localhost/app/here/x", 3));
    assert_eq!(sent, [format!("{program} interest /localhost/app/here/x")]);
}

#[test]
fn localhop_makes_one_hop() {
    let mut node = Node::with_faces(2);
    let program = node.add_local_face();
    node.route("/localhop/discovery", 257, 0);
    assert_eq!(
        node.ask_lines(program.0, &interest("/localhop/discovery/1", 1)),
        ["257 interest /localhop/discovery/1"]
    );
    assert_eq!(
        node.ask_lines(256, &interest("/localhop/discovery/2", 2)),
        ["256 nack /localhop/discovery/2 150"]
    );
    node.route("/localhop/discovery", program.0, 1);
    assert_eq!(
        node.ask_lines(256, &interest("/localhop/discovery/3", 3)),
        [format!("{program} interest /localhop/discovery/3")]
    );
}

#[test]
fn the_same_nonce_by_another_way_is_a_loop_and_by_the_same_way_a_retransmission() {
    let mut node = Node::with_faces(3);
    node.route("/a", 258, 0);
    node.ask(256, &interest("/a", 7));
    assert_eq!(node.ask_lines(257, &interest("/a", 7)), ["257 nack /a 100"]);
    assert_eq!(
        node.ask_lines(258, &interest("/a", 7)),
        ["258 nack /a 100"],
        "this node's own Interest came back"
    );
    assert_eq!(node.dropped("loop"), 2);
    assert_eq!(node.ask_lines(256, &interest("/a", 7)), [""; 0]);
    assert_eq!(node.dropped("suppressed"), 1);
}

#[test]
fn on_a_link_with_several_peers_the_same_nonce_is_always_a_loop_and_never_answered_with_a_nack() {
    let mut node = Node::with_faces(1);
    let shared = node.add_shared_face(LinkType::MultiAccess);
    node.route("/a", 256, 0);
    assert_eq!(node.ask_lines(shared.0, &interest("/a", 7)).len(), 1);
    assert_eq!(node.ask_lines(shared.0, &interest("/a", 7)), [""; 0]);
    assert_eq!(node.dropped("loop"), 1);
}

#[test]
fn every_nack_has_the_token_of_its_interest() {
    let mut node = Node::with_faces(3);
    node.route("/a", 258, 0);
    let header = LpHeader {
        pit_token: Some(Bytes::from_static(b"token")),
        ..LpHeader::default()
    };
    node.ask(256, &interest("/a", 7));
    for (name, nonce, expected) in [
        ("/a", 7, "257 nack /a 100"),
        ("/nowhere", 8, "257 nack /nowhere 150"),
    ] {
        let sent = node.receive_with(257, &interest(name, nonce).encode(), &header);
        assert_eq!(lines(&sent), [expected]);
        assert_eq!(sent[0].header.pit_token, header.pit_token, "{expected}");
    }
}

#[test]
fn a_nonce_is_dead_for_a_while_after_its_interest_has_expired() {
    let mut node = Node::with_faces(3);
    node.route("/a", 258, 0);
    let mut asked = interest("/a", 7);
    asked.lifetime = Some(Duration::from_millis(100));
    node.ask(256, &asked);
    node.wait(200);
    assert!(node.forwarder.pit().is_empty());
    assert_eq!(node.forwarder.counters().unsatisfied, 1);
    assert_eq!(node.ask_lines(257, &asked), ["257 nack /a 100"]);
    node.wait(6100);
    assert_eq!(node.ask_lines(257, &asked), ["258 interest /a"]);
}

#[test]
fn the_nonce_is_not_remembered_after_data_with_a_long_freshness() {
    let mut node = Node::with_faces(3);
    node.route("/a", 258, 0);
    node.ask(256, &interest("/a", 7));
    node.receive(258, &data("/a"));
    assert_eq!(node.forwarder.dead_nonces_len(), 0);
    // The content store would answer a loop. Data with a short freshness does not satisfy
    // MustBeFresh.
    let mut fresh = interest("/b", 8);
    fresh.must_be_fresh = true;
    node.route("/b", 258, 0);
    node.ask(256, &fresh);
    node.receive(258, &super::node::fresh_data("/b", 100));
    assert_eq!(node.forwarder.dead_nonces_len(), 1);
}

#[test]
fn the_content_store_answers_with_the_token_of_the_interest() {
    let mut node = Node::with_faces(3);
    node.route("/a", 258, 0);
    node.ask(256, &interest("/a", 1));
    node.receive(258, &data("/a"));
    let token = Some(Bytes::from_static(b"token"));
    let header = LpHeader {
        pit_token: token.clone(),
        ..LpHeader::default()
    };
    let sent = node.receive_with(257, &interest("/a", 2).encode(), &header);
    assert_eq!(lines(&sent), ["257 data /a"]);
    assert_eq!(sent[0].header.pit_token, token);
    assert_eq!(
        (
            node.forwarder.counters().cs_hits,
            node.forwarder.counters().cs_misses
        ),
        (1, 1)
    );
    assert!(node.forwarder.pit().is_empty());
}

#[test]
fn a_forwarding_hint_leads_until_its_region_and_is_left_out_there() {
    let asked = {
        let mut interest = interest("/data/1", 1);
        interest.forwarding_hint = vec![name("/nowhere"), name("/isp/site")];
        interest
    };
    let mut transit = Node::with_faces(3);
    transit.route("/data", 257, 0);
    transit.route("/isp", 258, 0);
    let sent = transit.ask(256, &asked);
    assert_eq!(lines(&sent), ["258 interest /data/1"]);
    assert_eq!(sent[0].interest().delegations().count(), 2);

    let producer_regions = vec![name("/isp/site/rack7")];
    let mut producer = Node::new(ForwarderConfig {
        producer_regions,
        ..ForwarderConfig::default()
    });
    for _ in 0..3 {
        producer.add_face();
    }
    producer.route("/data", 257, 0);
    producer.route("/isp", 258, 0);
    let sent = producer.ask(256, &asked);
    assert_eq!(lines(&sent), ["257 interest /data/1"]);
    assert_eq!(sent[0].interest().delegations().count(), 0);
}

#[test]
fn next_hop_face_id_is_obeyed_where_local_fields_are_on_and_refused_elsewhere() {
    let mut node = Node::with_faces(2);
    let program = node.add_local_face();
    node.route("/a", 257, 0);
    let header = LpHeader {
        next_hop_face_id: Some(256),
        ..LpHeader::default()
    };
    let wire = interest("/a", 1).encode();
    assert_eq!(
        lines(&node.receive_with(program.0, &wire, &header)),
        [""; 0]
    );
    assert_eq!(node.dropped("header-field"), 1);
    node.forwarder
        .face_mut(program)
        .unwrap()
        .spec
        .flags
        .local_fields = true;
    assert_eq!(
        lines(&node.receive_with(program.0, &wire, &header)),
        ["256 interest /a"]
    );
    let nowhere = LpHeader {
        next_hop_face_id: Some(999),
        ..LpHeader::default()
    };
    assert_eq!(
        lines(&node.receive_with(program.0, &interest("/a", 2).encode(), &nowhere)),
        [""; 0]
    );
}

#[test]
fn incoming_face_id_is_told_to_faces_with_local_fields_and_a_congestion_mark_travels_on() {
    let mut node = Node::with_faces(1);
    let (consumer, producer) = (node.add_local_face(), node.add_local_face());
    for face in [consumer, producer] {
        node.forwarder
            .face_mut(face)
            .unwrap()
            .spec
            .flags
            .local_fields = true;
    }
    node.route("/a", producer.0, 0);
    let marked = LpHeader {
        congestion_mark: Some(1),
        ..LpHeader::default()
    };
    let sent = node.receive_with(consumer.0, &interest("/a", 1).encode(), &marked);
    assert_eq!(sent[0].header.incoming_face_id, Some(consumer.0));
    assert_eq!(sent[0].header.congestion_mark, Some(1));
    let sent = node.receive_with(producer.0, &data("/a"), &marked);
    assert_eq!(sent[0].header.incoming_face_id, Some(producer.0));
    assert_eq!(sent[0].header.congestion_mark, Some(1));
    let sent = node.ask(consumer.0, &interest("/a", 2));
    assert_eq!(
        sent[0].header.incoming_face_id,
        Some(FaceId::CONTENT_STORE.0)
    );
    assert_eq!(sent[0].header.congestion_mark, None);
    node.route("/b", 256, 0);
    assert_eq!(
        node.ask(consumer.0, &interest("/b", 3))[0].header,
        LpHeader::default()
    );
}

#[test]
fn fields_that_an_interest_may_not_have_are_refused() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 0);
    let cache_policy = LpHeader {
        cache_policy: Some(CachePolicy::NoCache),
        ..LpHeader::default()
    };
    let announcement = LpHeader {
        prefix_announcement: Some(data("/a")),
        ..LpHeader::default()
    };
    for header in [cache_policy, announcement] {
        assert_eq!(
            lines(&node.receive_with(256, &interest("/a", 1).encode(), &header)),
            [""; 0]
        );
    }
    assert_eq!(node.dropped("header-field"), 2);
}

#[test]
fn without_a_next_hop_a_nack_says_so_and_no_state_remains() {
    let mut node = Node::with_faces(2);
    assert_eq!(node.ask_lines(256, &interest("/a", 1)), ["256 nack /a 150"]);
    node.route("/a", 256, 0);
    assert_eq!(
        node.ask_lines(256, &interest("/a", 2)),
        ["256 nack /a 150"],
        "the only route leads back"
    );
    assert!(node.forwarder.pit().is_empty());
    assert_eq!(node.dropped("no-route"), 2);
    assert_eq!(
        node.forwarder.face(FaceId(256)).unwrap().counters.out_nacks,
        2
    );
}

#[test]
fn on_an_ad_hoc_link_an_interest_and_its_data_go_back_where_they_came_from() {
    let mut node = Node::with_faces(0);
    let air = node.add_shared_face(LinkType::AdHoc);
    node.route("/a", air.0, 0);
    assert_eq!(
        node.ask_lines(air.0, &interest("/a", 1)),
        [format!("{air} interest /a")]
    );
    assert_eq!(
        lines(&node.receive(air.0, &data("/a"))),
        [format!("{air} data /a")]
    );
}

#[test]
fn a_retransmission_tries_another_next_hop_but_not_at_once() {
    let mut node = Node::with_faces(3);
    node.route("/a", 257, 1);
    node.route("/a", 258, 2);
    assert_eq!(node.ask_lines(256, &interest("/a", 1)), ["257 interest /a"]);
    node.wait(5);
    assert_eq!(node.ask_lines(256, &interest("/a", 2)), [""; 0]);
    node.wait(6);
    let sent = node.ask(256, &interest("/a", 3));
    assert_eq!(lines(&sent), ["258 interest /a"]);
    assert_eq!(sent[0].nonce(), 3);
    node.wait(11);
    assert_eq!(
        node.ask_lines(256, &interest("/a", 4)),
        [""; 0],
        "now 20 ms"
    );
    node.wait(10);
    assert_eq!(
        node.ask_lines(256, &interest("/a", 5)),
        ["257 interest /a"],
        "the one used longest ago"
    );
}

#[test]
fn an_interest_for_management_is_handed_to_it_with_the_face_that_asks() {
    let mut node = Node::with_faces(1);
    let program = node.add_local_face();
    assert_eq!(
        node.ask_lines(program.0, &interest("/localhost/nfd/status/general", 1)),
        [""; 0]
    );
    assert!(node.forwarder.has_management_work());
    assert_eq!(
        lines(&node.receive(FaceId::INTERNAL.0, &data("/localhost/nfd/status/general"))),
        [format!("{program} data /localhost/nfd/status/general")]
    );
}

#[test]
fn a_lifetime_of_a_year_does_not_hold_the_pit_for_a_year() {
    let mut node = Node::new(ForwarderConfig {
        max_interest_lifetime: Duration::from_secs(60),
        ..ForwarderConfig::default()
    });
    for _ in 0..2 {
        node.add_face();
    }
    node.route("/a", 257, 0);
    let mut asked = interest("/a", 1);
    asked.lifetime = Some(Duration::from_millis(u64::MAX));
    node.ask(256, &asked);
    node.wait(59_000);
    assert_eq!(node.forwarder.pit().len(), 1);
    node.wait(1_100);
    assert!(node.forwarder.pit().is_empty());
    assert_eq!(node.forwarder.poll_timeout(), None);
}

#[test]
fn a_nack_without_reason_has_the_reason_none() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 0);
    let sent = node.ask(256, &interest("/a", 1));
    assert_eq!(
        lines(&node.nack(257, &sent[0].packet, NackReason::None)),
        ["256 nack /a 0"]
    );
}
