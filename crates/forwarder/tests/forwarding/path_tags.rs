//! Path-specified forwarding ([PTP §3 to 5]): what one router does, and routers in a row.

use bytes::Bytes;
use whimbrel_forwarder::rib::Rank;
use whimbrel_forwarder::{FaceId, ForwarderConfig};
use whimbrel_ndn_packet::lp::{Label, Tag};
use whimbrel_ndn_packet::{LpHeader, NackReason};

use super::node::{Node, Sent, data, interest, lines};

/// The header of an Interest with this tag.
fn tagged(tag: impl Into<Bytes>) -> LpHeader {
    LpHeader {
        path_tag: Some(tag.into()),
        ..LpHeader::default()
    }
}

/// The header of an Interest that asks for a path.
fn probing() -> LpHeader {
    LpHeader {
        path_discovery: true,
        ..LpHeader::default()
    }
}

/// The header of a Data that has not come from the end of the path.
fn intermediate() -> LpHeader {
    LpHeader {
        intermediate: true,
        ..LpHeader::default()
    }
}

fn label(node: &Node, face: u64) -> Label {
    node.forwarder.face(FaceId(face)).unwrap().label()
}

/// A tag of these labels, the top one first.
fn tag(labels: &[Label]) -> Bytes {
    let on = |tag: Bytes, label: &Label| Tag::new(&tag).push(*label).unwrap();
    labels.iter().rev().fold(Bytes::new(), on)
}

/// A router whose faces 257 and 258 lead to `/a`, and 259 to `/b`; 257 is the cheapest.
fn router() -> Node {
    let mut node = Node::with_faces(4);
    node.route("/a", 257, 1);
    node.route("/a", 258, 2);
    node.route("/b", 259, 1);
    node
}

fn ask_with(node: &mut Node, face: u64, name: &str, nonce: u32, header: &LpHeader) -> Vec<Sent> {
    node.receive_with(face, &interest(name, nonce).encode(), header)
}

#[test]
fn the_identifier_of_the_receiving_interface_is_appended_to_a_probing_data() {
    let mut node = router();
    let sent = ask_with(&mut node, 256, "/a/f/0", 1, &probing());
    let upstream = sent[0].face.0;
    assert_eq!(
        sent[0].header,
        probing(),
        "during the forwarding the tag remains empty"
    );
    // The producer knows no tags: the router stands in for it.
    let sent = node.receive(upstream, &data("/a/f/0"));
    assert_eq!(sent[0].header, tagged(tag(&[label(&node, upstream)])));
    // Further up, routers have recorded two labels.
    let upper = tag(&[Label::new(9).unwrap(), Label::new(1 << 40).unwrap()]);
    let upstream = ask_with(&mut node, 256, "/a/f/1", 2, &probing())[0].face.0;
    let sent = node.receive_with(upstream, &data("/a/f/1"), &tagged(upper.clone()));
    let whole = Tag::new(&upper).push(label(&node, upstream)).unwrap();
    assert_eq!(Tag::new(&whole).hops(), Some(3));
    assert_eq!(sent[0].header, tagged(whole));
}

#[test]
fn the_popped_identifier_guides_the_router_to_the_specific_interface() {
    let mut node = router();
    let rest = tag(&[Label::new(77).unwrap()]);
    let whole = Tag::new(&rest).push(label(&node, 258)).unwrap();
    let sent = ask_with(&mut node, 256, "/a/f/0", 1, &tagged(whole));
    assert_eq!(lines(&sent), ["258 interest /a/f/0"]);
    assert_eq!(sent[0].header, tagged(rest));
    // "As Data packets are routed via PIT, there is no need to place tags in Data packets."
    let sent = node.receive(258, &data("/a/f/0"));
    assert_eq!(
        (lines(&sent), &sent[0].header),
        (vec!["256 data /a/f/0".into()], &LpHeader::default())
    );
    // The last label is popped: the producer's router gets an empty tag.
    let last = tagged(tag(&[label(&node, 257)]));
    let sent = ask_with(&mut node, 256, "/a/f/1", 2, &last);
    assert_eq!(
        (sent[0].face.0, &sent[0].header),
        (257, &tagged(Bytes::new()))
    );
    assert_eq!(node.forwarder.counters().path_followed, 2);
    assert_eq!(
        node.forwarder.flows(),
        (1, 1),
        "the second Interest of the flow needs no LPM"
    );
}

#[test]
fn an_invalid_interface_is_not_used_and_the_name_decides() {
    let mut node = router();
    let below = Label::new(5).unwrap();
    let forged = [
        ("no face has it", Label::new(0x1234_5678).unwrap()),
        (
            "the number of a face is not its label",
            Label::new(258).unwrap(),
        ),
        ("a next hop of another prefix", label(&node, 259)),
        ("the face of the consumer itself", label(&node, 256)),
        ("management", label(&node, FaceId::INTERNAL.0)),
    ];
    for (nonce, (what, first)) in (1..).zip(forged) {
        let name = format!("/a/f/{nonce}");
        let sent = ask_with(&mut node, 256, &name, nonce, &tagged(tag(&[first, below])));
        assert_eq!(lines(&sent), [format!("257 interest {name}")], "{what}");
        assert_eq!(
            sent[0].header,
            tagged(Bytes::new()),
            "the rest belongs to another path"
        );
    }
    // Cut off in the middle of a label, and empty.
    for (nonce, octets) in [(20, &b"\x80\x01"[..]), (21, b"")] {
        let name = format!("/a/f/{nonce}");
        let sent = ask_with(&mut node, 256, &name, nonce, &tagged(octets.to_vec()));
        assert_eq!(lines(&sent), [format!("257 interest {name}")]);
    }
    assert_eq!(node.forwarder.counters().path_by_name, 7);
    assert_eq!(node.forwarder.counters().path_followed, 0);
    // The producer behind 258 no longer provides the content.
    let to_258 = tagged(tag(&[label(&node, 258)]));
    assert_eq!(
        ask_with(&mut node, 256, "/a/g/0", 30, &to_258)[0].face.0,
        258
    );
    let prefix = super::node::name("/a");
    node.forwarder
        .fib_mut()
        .remove_next_hop(prefix.as_ref(), FaceId(258));
    assert_eq!(
        ask_with(&mut node, 256, "/a/g/1", 31, &to_258)[0].face.0,
        257
    );
}

#[test]
fn the_router_proactively_returns_a_nack_if_the_link_of_a_path_fails() {
    let mut node = router();
    let path = tagged(tag(&[label(&node, 258)]));
    node.forwarder.set_face_up(node.now, FaceId(258), false);
    let sent = ask_with(&mut node, 256, "/a/f/0", 1, &path);
    assert_eq!(lines(&sent), ["256 nack /a/f/0 150"]);
    node.forwarder.set_face_up(node.now, FaceId(258), true);
    assert_eq!(ask_with(&mut node, 256, "/a/f/1", 2, &path)[0].face.0, 258);
    node.forwarder.remove_face(node.now, FaceId(258));
    let sent = ask_with(&mut node, 256, "/a/f/2", 3, &path);
    assert_eq!(lines(&sent), ["256 nack /a/f/2 150"]);
    assert_eq!(node.dropped("path-gone"), 2);
    node.wait(10_000);
    assert!(node.forwarder.pit().is_empty());
    // Without the path the content is still there.
    assert_eq!(
        node.ask_lines(256, &interest("/a/f/3", 4)),
        ["257 interest /a/f/3"]
    );
}

#[test]
fn a_nack_of_a_path_goes_to_its_consumer_whatever_the_strategy() {
    for strategy in whimbrel_forwarder::strategy::StrategyKinds::default().names() {
        let mut node = router();
        node.strategy(&strategy.to_string());
        let path = tagged(tag(&[label(&node, 258)]));
        let sent = ask_with(&mut node, 256, "/a/f/0", 1, &path);
        assert_eq!(lines(&sent), ["258 interest /a/f/0"], "{strategy}");
        let sent = node.nack(258, &sent[0].packet, NackReason::NoRoute);
        assert_eq!(lines(&sent), ["256 nack /a/f/0 150"], "{strategy}");
    }
}

#[test]
fn the_probing_interest_is_always_forwarded_to_a_producer_while_the_cache_is_ignored() {
    let mut node = router();
    node.ask(256, &interest("/a/f/0", 1));
    node.receive(257, &data("/a/f/0"));
    let cached = node.ask(256, &interest("/a/f/0", 2));
    assert_eq!(
        (lines(&cached), &cached[0].header),
        (vec!["256 data /a/f/0".into()], &LpHeader::default())
    );
    assert!(ask_with(&mut node, 256, "/a/f/0", 3, &probing())[0].is_interest());
    // With a tag too, it measures that path up to the producer.
    let both = LpHeader {
        path_discovery: true,
        ..tagged(tag(&[label(&node, 258)]))
    };
    let mut node = router();
    let sent = ask_with(&mut node, 256, "/a/f/0", 4, &both);
    assert_eq!((sent[0].face.0, sent[0].header.path_discovery), (258, true));
}

#[test]
fn probing_packets_are_distributed_to_different_interfaces_evenly() {
    let mut node = Node::new(ForwarderConfig {
        path_probes_per_second: 1_000_000,
        ..ForwarderConfig::default()
    });
    (0..5).for_each(|_| {
        node.add_face();
    });
    // Costs do not matter.
    (1..5).for_each(|n| node.route("/a", 256 + n, n * 10));
    let mut counts = [0u32; 4];
    for nonce in 0..4000 {
        let sent = ask_with(&mut node, 256, &format!("/a/f/{nonce}"), nonce, &probing());
        counts[(sent[0].face.0 - 257) as usize] += 1;
    }
    // Four standard deviations.
    assert!(
        counts.iter().all(|count| (890..1110).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn probes_do_not_leave_the_producer_by_a_default_route() {
    let mut node = Node::with_faces(3);
    let rank = |inherited| Rank { cost: 0, inherited };
    let prefix = super::node::name("/a");
    let fib = node.forwarder.fib_mut();
    fib.add_ranked(prefix.as_ref(), FaceId(257), rank(true))
        .unwrap();
    fib.add_ranked(prefix.as_ref(), FaceId(258), rank(false))
        .unwrap();
    for nonce in 0..40 {
        let sent = ask_with(&mut node, 256, &format!("/a/f/{nonce}"), nonce, &probing());
        assert_eq!(sent[0].face.0, 258);
    }
    // Without the producer it is the only way.
    node.forwarder.remove_face(node.now, FaceId(258));
    assert_eq!(
        ask_with(&mut node, 256, "/a/f/50", 50, &probing())[0]
            .face
            .0,
        257
    );
}

#[test]
fn data_from_a_cache_or_an_aggregated_interest_is_labelled_for_consumers_with_paths() {
    let mut node = Node::with_faces(4);
    node.route("/a", 259, 1);
    let path = tagged(tag(&[label(&node, 259)]));
    assert_eq!(ask_with(&mut node, 256, "/a/f/0", 1, &path).len(), 1);
    assert!(
        ask_with(&mut node, 257, "/a/f/0", 2, &path).is_empty(),
        "aggregated"
    );
    node.ask(258, &interest("/a/f/0", 3));
    let sent = node.receive(259, &data("/a/f/0"));
    let of = |face: u64| &sent.iter().find(|sent| sent.face.0 == face).unwrap().header;
    assert_eq!(
        of(256),
        &LpHeader::default(),
        "its own Interest went all the way"
    );
    assert_eq!(of(257), &intermediate());
    assert_eq!(of(258), &LpHeader::default(), "it has no paths");
    // From the content store.
    assert_eq!(
        ask_with(&mut node, 256, "/a/f/0", 4, &path)[0].header,
        intermediate()
    );
    // From the store of a router further up.
    ask_with(&mut node, 256, "/a/f/1", 5, &path);
    let sent = node.receive_with(259, &data("/a/f/1"), &intermediate());
    assert_eq!(sent[0].header, intermediate());
}

#[test]
fn a_retransmission_follows_the_path_again_and_a_duplicate_does_not() {
    let mut node = router();
    let path = tagged(tag(&[label(&node, 258)]));
    assert_eq!(ask_with(&mut node, 256, "/a/f/0", 1, &path).len(), 1);
    assert!(ask_with(&mut node, 256, "/a/f/0", 1, &path).is_empty());
    let sent = ask_with(&mut node, 256, "/a/f/0", 2, &path);
    assert_eq!((sent[0].face.0, sent[0].nonce()), (258, 2));
    // On another path.
    let other = tagged(tag(&[label(&node, 257)]));
    assert_eq!(ask_with(&mut node, 256, "/a/f/0", 3, &other)[0].face.0, 257);
    assert_eq!(node.receive(257, &data("/a/f/0")).len(), 1);
}

#[test]
fn a_probe_that_joins_an_interest_without_one_records_no_path() {
    let mut node = Node::with_faces(3);
    node.route("/a", 258, 1);
    node.ask(256, &interest("/a/f/0", 1));
    assert!(ask_with(&mut node, 257, "/a/f/0", 2, &probing()).is_empty());
    // A second one replaces it upstream; but the Data may answer the first.
    assert_eq!(ask_with(&mut node, 257, "/a/f/0", 3, &probing()).len(), 1);
    let sent = node.receive(258, &data("/a/f/0"));
    assert!(
        sent.iter().all(|sent| sent.header.path_tag.is_none()),
        "{sent:?}"
    );
}

#[test]
fn wrong_tags_of_a_producer_reach_nobody() {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 1);
    let cut_off = Bytes::from_static(b"\x80\x01");
    let full = tag(&[Label::new((1 << 30) - 1).unwrap(); 63]);
    for (nonce, wrong) in (1..).zip([cut_off, full]) {
        let name = format!("/a/f/{nonce}");
        ask_with(&mut node, 256, &name, nonce, &probing());
        let sent = node.receive_with(257, &data(&name), &tagged(wrong));
        assert_eq!(sent[0].header, LpHeader::default(), "Data without a path");
    }
    // A tag in a Data that nobody asked for one.
    node.ask(256, &interest("/a/g", 9));
    let sent = node.receive_with(257, &data("/a/g"), &tagged(tag(&[Label::new(1).unwrap()])));
    assert_eq!(sent[0].header, LpHeader::default());
}

#[test]
fn a_thousand_probes_a_second_from_a_stranger_are_mostly_answered_by_the_cache() {
    let mut node = Node::with_faces(3);
    node.route("/a", 258, 1);
    node.ask(256, &interest("/a/f/0", 0));
    node.receive(258, &data("/a/f/0"));
    let (mut at_producer, mut answered) = (0, 0);
    for nonce in 1..=3000 {
        for sent in ask_with(&mut node, 256, "/a/f/0", nonce, &probing()) {
            if sent.is_interest() {
                at_producer += 1;
                node.receive(258, &data("/a/f/0"));
            } else {
                assert_eq!(sent.header, intermediate(), "no path: {sent:?}");
                answered += 1;
            }
        }
        node.wait(1);
    }
    // The burst, and 100 a second.
    assert!((390..=401).contains(&at_producer), "{at_producer}");
    assert_eq!(at_producer + answered, 3000);
    assert_eq!(node.forwarder.counters().path_probes_refused, answered);
    assert!(
        ask_with(&mut node, 257, "/a/f/0", 9999, &probing())[0].is_interest(),
        "others are not affected"
    );
    let counters = node.forwarder.counters();
    assert_eq!(counters.path_probes, at_producer + 1);
}

/// A row of routers from the consumer's on; face 256 of each leads back, the others forward. Those
/// in `legacy` ignore the path's fields, as a peer without them does.
struct Row {
    nodes: Vec<Node>,
    legacy: Vec<usize>,
}

impl Row {
    /// Each router but the last reaches the next one by 257 (cheapest) and 258; a producer is at
    /// faces 257 and 258 of the last one.
    fn new(len: usize, legacy: &[usize]) -> Row {
        let node = |seed| {
            let mut node = Node::seeded(ForwarderConfig::default(), seed);
            (0..3).for_each(|_| {
                node.add_face();
            });
            node.route("/a", 257, 1);
            node.route("/a", 258, 2);
            node
        };
        Row {
            nodes: (1..).take(len).map(node).collect(),
            legacy: legacy.to_vec(),
        }
    }

    /// Sends an Interest along the row. Returns its faces, and the header of the Data.
    fn fetch(&mut self, name: &str, nonce: u32, header: &LpHeader) -> (Vec<u64>, LpHeader) {
        let (mut header, mut faces) = (header.clone(), Vec::new());
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if self.legacy.contains(&at) {
                header = LpHeader::default();
            }
            let sent = ask_with(node, 256, name, nonce, &header);
            let sent = sent.into_iter().next().unwrap();
            if sent.is_data() {
                return self.back(at, sent, faces);
            }
            faces.push(sent.face.0);
            header = sent.header;
        }
        let produced = Sent {
            face: FaceId(256),
            packet: data(name),
            header: LpHeader::default(),
        };
        self.back(self.nodes.len(), produced, faces)
    }

    fn back(&mut self, from: usize, mut sent: Sent, faces: Vec<u64>) -> (Vec<u64>, LpHeader) {
        for at in (0..from).rev() {
            let node = &mut self.nodes[at];
            if self.legacy.contains(&at) {
                sent.header = LpHeader::default();
            }
            let answer = node.receive_with(faces[at], &sent.packet, &sent.header);
            sent = answer.into_iter().next().unwrap();
            assert!(sent.is_data());
        }
        (faces, sent.header)
    }
}

#[test]
fn an_interest_with_a_recorded_tag_takes_the_path_of_the_probe() {
    let mut row = Row::new(5, &[]);
    let mut found = std::collections::BTreeSet::new();
    for probe in 0..200 {
        row.nodes.iter_mut().for_each(|node| {
            node.wait(20);
        });
        let (faces, header) = row.fetch(&format!("/a/p/{probe}"), probe, &probing());
        let recorded = header.path_tag.unwrap();
        assert_eq!(Tag::new(&recorded).hops(), Some(5));
        let follow = row.fetch(&format!("/a/f/{probe}"), 1000 + probe, &tagged(recorded));
        assert_eq!(follow, (faces.clone(), LpHeader::default()));
        found.insert(faces);
    }
    // 32 paths; a given one is missed with a probability of (31/32)^200, 0.2 %.
    assert!(found.len() >= 30, "{} of 32", found.len());
}

#[test]
fn behind_a_router_without_tags_the_name_decides_and_before_it_the_tag() {
    // The third of five routers ignores the fields.
    let mut row = Row::new(5, &[2]);
    for probe in 0..50 {
        row.nodes.iter_mut().for_each(|node| {
            node.wait(20);
        });
        let (faces, header) = row.fetch(&format!("/a/p/{probe}"), probe, &probing());
        let recorded = header.path_tag.unwrap();
        assert_eq!(Tag::new(&recorded).hops(), Some(2), "the routers before it");
        let (followed, flags) =
            row.fetch(&format!("/a/f/{probe}"), 1000 + probe, &tagged(recorded));
        assert_eq!(
            (&followed[..2], &followed[2..]),
            (&faces[..2], &[257; 3][..])
        );
        assert_eq!(flags, LpHeader::default());
    }
    // What a cache behind it answers is not labelled, what one before it does, is.
    let path = tagged(tag(&[label(&row.nodes[0], 258), label(&row.nodes[1], 257)]));
    row.fetch("/a/c/0", 5000, &path);
    let at_second = |row: &mut Row, nonce| {
        ask_with(&mut row.nodes[1], 256, "/a/c/0", nonce, &path)[0]
            .header
            .clone()
    };
    assert_eq!(at_second(&mut row, 5001), intermediate());
    let at_third = ask_with(&mut row.nodes[2], 256, "/a/c/0", 5002, &LpHeader::default());
    assert!(at_third[0].is_data() && at_third[0].header == LpHeader::default());
}

#[test]
fn a_tag_that_leads_in_a_circle_ends_with_a_nack() {
    // Each leads to the next one, and the third back to the first.
    let mut row = Row::new(3, &[]).nodes.into_iter();
    let (mut left, mut right, mut third) = (
        row.next().unwrap(),
        row.next().unwrap(),
        row.next().unwrap(),
    );
    let circle = tag(&[
        label(&left, 257),
        label(&right, 257),
        label(&third, 257),
        label(&left, 257),
    ]);
    let one = ask_with(&mut left, 256, "/a/f", 1, &tagged(circle));
    let two = ask_with(&mut right, 256, "/a/f", 1, &one[0].header);
    let three = ask_with(&mut third, 256, "/a/f", 1, &two[0].header);
    assert_eq!(
        Tag::new(three[0].header.path_tag.as_ref().unwrap()).hops(),
        Some(1)
    );
    let back = left.add_face();
    let four = ask_with(&mut left, back.0, "/a/f", 1, &three[0].header);
    assert_eq!(lines(&four), [format!("{back} nack /a/f 100")]);
    assert_eq!(left.dropped("loop"), 1);
}
