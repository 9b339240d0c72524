//! Strategies supplied by a program: one that decides by link states and by the headers of Data,
//! and one that attaches all header fields.

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_forwarder::strategy::{Context, IncomingData, Strategy};
use whimbrel_forwarder::{FaceId, LinkState};
use whimbrel_ndn_packet::{CachePolicy, LpHeader, NackReason, Name};

use super::node::{Node, data, interest, lines, name};

/// Sends to the next hop with the fastest link, whose rate counts half for each consecutive
/// congestion mark from there. Interests carry the number of such marks, and NonDiscovery if they
/// arrived with it. Data from a link of less than 10 kB/s must not be cached elsewhere.
#[derive(Debug, Default)]
pub(crate) struct ByRate {
    marks: BTreeMap<FaceId, u32>,
}

impl ByRate {
    fn worth(&self, context: &Context<'_>, face: FaceId) -> u64 {
        let rate = context
            .link_state(face)
            .and_then(|state| state.delivery_rate);
        let marks = self.marks.get(&face).copied().unwrap_or_default();
        rate.unwrap_or_default().checked_shr(marks).unwrap_or(0)
    }
}

impl Strategy for ByRate {
    fn after_receive_interest(&mut self, context: &mut Context<'_>) {
        if context.has_pending_out_records() {
            return context.suppress();
        }
        let hops = context.eligible();
        let best = hops
            .iter()
            .max_by_key(|hop| (self.worth(context, hop.face), core::cmp::Reverse(hop.cost)));
        match best.map(|hop| hop.face) {
            Some(face) => {
                let marks = self.marks.get(&face).filter(|marks| **marks > 0);
                let fields = LpHeader {
                    congestion_mark: marks.map(|marks| u64::from(*marks)),
                    non_discovery: context
                        .interest_header()
                        .is_some_and(|header| header.non_discovery),
                    ..LpHeader::default()
                };
                if fields.is_empty() {
                    context.send_interest(face);
                } else {
                    context.send_interest_with(face, fields);
                }
            }
            None => context.no_route(),
        }
    }

    fn after_receive_data(
        &mut self,
        context: &mut Context<'_>,
        data: &IncomingData<'_>,
    ) -> Option<Box<LpHeader>> {
        assert!(context.name().is_prefix_of(data.data.name));
        let marks = self.marks.entry(data.from).or_default();
        *marks = match data.header.congestion_mark {
            Some(_) => *marks + 1,
            None => 0,
        };
        let rate = context
            .link_state(data.from)
            .and_then(|state| state.delivery_rate)
            .unwrap_or(u64::MAX);
        // The entry is not satisfied yet, so its downstreams are still listed.
        (rate < 10_000 && !context.in_records().is_empty()).then(|| {
            Box::new(LpHeader {
                cache_policy: Some(CachePolicy::NoCache),
                ..LpHeader::default()
            })
        })
    }

    fn forget_face(&mut self, face: FaceId) {
        self.marks.remove(&face);
    }
}

/// Multicast that attaches all header fields to everything.
#[derive(Debug, Default)]
pub(crate) struct Meddler;

impl Meddler {
    fn fields() -> LpHeader {
        LpHeader {
            pit_token: Some(Bytes::from_static(b"meddler")),
            nack: Some(NackReason::Congestion),
            incoming_face_id: Some(7),
            next_hop_face_id: Some(8),
            cache_policy: Some(CachePolicy::NoCache),
            congestion_mark: Some(1),
            non_discovery: true,
            prefix_announcement: Some(data("/announced")),
            route_label: Some(9),
            path_tag: Some(Bytes::from_static(b"\x07")),
            path_discovery: true,
            intermediate: true,
        }
    }
}

impl Strategy for Meddler {
    fn after_receive_interest(&mut self, context: &mut Context<'_>) {
        let hops = context.eligible();
        if hops.is_empty() {
            return context.no_route();
        }
        for hop in hops {
            context.send_interest_with(hop.face, Meddler::fields());
        }
    }

    fn after_receive_data(
        &mut self,
        _context: &mut Context<'_>,
        _data: &IncomingData<'_>,
    ) -> Option<Box<LpHeader>> {
        Some(Box::new(Meddler::fields()))
    }
}

/// Returns the strategy for a name used in the property test.
pub(crate) fn own(strategy: &Name) -> Option<Box<dyn Strategy>> {
    match strategy.to_string().as_str() {
        "/own/by-rate" => Some(Box::<ByRate>::default()),
        "/own/meddler" => Some(Box::<Meddler>::default()),
        _ => None,
    }
}

fn with(strategy: &str) -> Node {
    let mut node = Node::with_faces(3);
    node.route("/a", 257, 0);
    node.route("/a", 258, 1);
    let strategy = name(strategy);
    node.forwarder
        .strategies_mut()
        .install(
            Name::root().as_ref(),
            strategy.clone(),
            own(&strategy).unwrap(),
        )
        .unwrap();
    assert_eq!(
        node.forwarder
            .strategies()
            .effective_name(name("/a").as_ref()),
        Some(strategy)
    );
    node
}

fn rate(node: &mut Node, face: u64, rate: u64) {
    let state = LinkState {
        delivery_rate: Some(rate),
        ..LinkState::default()
    };
    node.forwarder.set_link_state(node.now, FaceId(face), state);
}

fn marked() -> LpHeader {
    LpHeader {
        congestion_mark: Some(1),
        ..LpHeader::default()
    }
}

#[test]
fn a_strategy_decides_by_rates_of_faces_and_headers_of_data() {
    let mut node = with("/own/by-rate");
    assert_eq!(
        node.ask_lines(256, &interest("/a/0", 0)),
        ["257 interest /a/0"]
    );
    rate(&mut node, 257, 100_000);
    rate(&mut node, 258, 300_000);
    assert_eq!(
        node.ask_lines(256, &interest("/a/1", 1)),
        ["258 interest /a/1"]
    );
    // One mark halves the value of the link; after two, the other link is better.
    node.receive_with(258, &data("/a/1"), &marked());
    let sent = node.ask(256, &interest("/a/2", 2));
    assert_eq!(lines(&sent), ["258 interest /a/2"]);
    assert_eq!(sent[0].header, marked(), "attached by the strategy");
    node.receive_with(258, &data("/a/2"), &marked());
    let sent = node.ask(256, &interest("/a/3", 3));
    assert_eq!(lines(&sent), ["257 interest /a/3"]);
    assert_eq!(sent[0].header, LpHeader::default(), "nothing attached");
    node.receive(257, &data("/a/3"));
    // The link becomes slow, so its Data must not be cached.
    rate(&mut node, 257, 9_000);
    assert_eq!(
        node.ask_lines(256, &interest("/a/4", 4)),
        ["258 interest /a/4"]
    );
    let sent = node.receive(257, &data("/a/0"));
    assert_eq!(lines(&sent), ["256 data /a/0"]);
    assert_eq!(sent[0].header.cache_policy, Some(CachePolicy::NoCache));
    let sent = node.receive(258, &data("/a/4"));
    assert_eq!(sent[0].header, LpHeader::default());
    let non_discovery = LpHeader {
        non_discovery: true,
        ..LpHeader::default()
    };
    let sent = node.receive_with(256, &interest("/a/5", 5).encode(), &non_discovery);
    assert_eq!(sent[0].header, non_discovery);
}

#[test]
fn fields_of_a_strategy_do_not_replace_those_of_the_forwarder() {
    let mut node = with("/own/meddler");
    let token = LpHeader {
        pit_token: Some(Bytes::from_static(b"token")),
        congestion_mark: Some(3),
        ..LpHeader::default()
    };
    let sent = node.receive_with(256, &interest("/a", 1).encode(), &token);
    assert_eq!(lines(&sent), ["257 interest /a", "258 interest /a"]);
    let of_interests = LpHeader {
        congestion_mark: Some(3),
        non_discovery: true,
        ..LpHeader::default()
    };
    assert!(
        sent.iter().all(|sent| sent.header == of_interests),
        "{sent:?}"
    );
    let sent = node.receive(257, &data("/a"));
    assert_eq!(lines(&sent), ["256 data /a"]);
    let of_data = LpHeader {
        pit_token: token.pit_token,
        cache_policy: Some(CachePolicy::NoCache),
        congestion_mark: Some(1),
        prefix_announcement: Meddler::fields().prefix_announcement,
        route_label: Some(9),
        ..LpHeader::default()
    };
    assert_eq!(sent[0].header, of_data);
}

#[test]
fn the_state_of_a_link_that_goes_down_is_forgotten() {
    let mut node = Node::with_faces(1);
    let face = FaceId(256);
    let state = LinkState {
        delivery_rate: Some(1_000_000),
        queue_age: Some(Duration::from_millis(3)),
        rtt: Some(Duration::from_millis(40)),
        loss: Some(0.25),
        queue_bytes: 5_000,
        queue_packets: 4,
    };
    node.forwarder.set_link_state(node.now, face, state);
    let told = |node: &Node| *node.forwarder.face(face).unwrap().link_state();
    assert_eq!(told(&node), state);
    node.forwarder.set_face_up(node.now, face, false);
    assert_eq!(told(&node), LinkState::default());
    node.forwarder.set_link_state(node.now, FaceId(999), state);
}
