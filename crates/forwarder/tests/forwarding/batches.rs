//! Packets that arrive together are processed as if they had arrived one after the other.

use proptest::prelude::*;
use whimbrel_core::Time;
use whimbrel_forwarder::{CsConfig, FaceId, ForwarderConfig, OutPacket};
use whimbrel_ndn_packet::LpPacket;

use super::node::{Node, data, interest};

const NAMES: [&str; 6] = ["/a", "/a/b", "/a/b/c", "/x", "/x/y/z", "/localhost/w"];

#[derive(Clone, Debug)]
enum Arriving {
    Interest {
        name: usize,
        nonce: u32,
        can_be_prefix: bool,
    },
    Data {
        name: usize,
    },
    Octets(Vec<u8>),
}

impl Arriving {
    fn wire(&self) -> Vec<u8> {
        match self {
            Arriving::Interest {
                name,
                nonce,
                can_be_prefix,
            } => {
                let mut interest = interest(NAMES[*name], *nonce);
                interest.can_be_prefix = *can_be_prefix;
                interest.encode()
            }
            Arriving::Data { name } => data(NAMES[*name]).to_vec(),
            Arriving::Octets(octets) => octets.clone(),
        }
    }
}

fn arriving() -> impl Strategy<Value = (u64, Arriving)> {
    let packet = prop_oneof![
        5 => (0..NAMES.len(), 0u32..1000, any::<bool>())
            .prop_map(|(name, nonce, can_be_prefix)| Arriving::Interest { name, nonce, can_be_prefix }),
        4 => (0..NAMES.len()).prop_map(|name| Arriving::Data { name }),
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(|mut octets| {
            // The type is that of an Interest or a Data; the value is random.
            octets.insert(0, octets.len() as u8);
            octets.insert(0, 5 + octets.last().copied().unwrap_or_default() % 2);
            Arriving::Octets(octets)
        }),
    ];
    (256u64..259, packet)
}

fn node(capacity: usize, max_packets: usize) -> Node {
    let content_store = CsConfig {
        capacity,
        max_packets,
        ..CsConfig::default()
    };
    let mut node = Node::new(ForwarderConfig {
        content_store,
        ..ForwarderConfig::default()
    });
    for _ in 0..3 {
        node.add_face();
    }
    node.route("/", 258, 1);
    node.route("/a/b", 257, 1);
    node.strategy("/localhost/nfd/strategy/random");
    node
}

fn sent(node: &mut Node) -> Vec<(FaceId, OutPacket)> {
    core::iter::from_fn(|| node.forwarder.poll_send()).collect()
}

proptest! {
    #[test]
    fn a_batch_has_the_outcome_of_its_packets_one_by_one(
        packets in prop::collection::vec(arriving(), 1..120),
        capacity in prop_oneof![Just(0usize), Just(1 << 20)],
        max_packets in 1usize..5,
    ) {
        let frames: Vec<(FaceId, Vec<u8>)> =
            packets.iter().map(|(face, packet)| (FaceId(*face), packet.wire())).collect();
        let decoded: Vec<(FaceId, LpPacket<'_>)> =
            frames.iter().filter_map(|(face, wire)| Some((*face, LpPacket::decode(wire, false).ok()?))).collect();
        let (mut together, mut single) = (node(capacity, max_packets), node(capacity, max_packets));
        let now = Time::from_secs(2);
        together.forwarder.handle_packets(now, &decoded);
        decoded.iter().for_each(|(face, lp)| single.forwarder.handle_packet(now, *face, lp));
        prop_assert_eq!(sent(&mut together), sent(&mut single));
        prop_assert_eq!(together.forwarder.counters(), single.forwarder.counters());
        prop_assert_eq!(together.forwarder.pit().len(), single.forwarder.pit().len());
        prop_assert_eq!(together.forwarder.cs().bytes(), single.forwarder.cs().bytes());
    }
}
