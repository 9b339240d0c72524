//! The strategies that [PTP §7] compares with: by their own rules, and by the contract of all.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]

mod by_their_rules;
#[path = "../../../forwarder/tests/forwarding/contract.rs"]
mod contract;
#[allow(dead_code, reason = "the forwarder's tests use the rest")]
#[path = "../../../forwarder/tests/forwarding/node.rs"]
mod node;

use proptest::prelude::*;
use whimbrel_forwarder::ForwarderConfig;
use whimbrel_lab::rivals::STRATEGIES;

use contract::{keeps_its_contract, step};
use node::Node;

/// A node that knows the rivals, with faces numbered from 256.
fn with_faces(count: usize) -> Node {
    let mut node = Node::new(ForwarderConfig {
        strategy_kinds: STRATEGIES,
        ..ForwarderConfig::default()
    });
    (0..count).for_each(|_| {
        node.add_face();
    });
    node
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_rival_keeps_the_contract_of_strategies(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        for strategy in [
            "rfa",
            "paf",
            "chopcop",
            "chopcop/v=1/by~best-route/min~0/max~1/probability~1/weight~1/patience~1000",
        ] {
            let mut node = with_faces(2);
            node.strategy(&format!("/localhost/nfd/strategy/{strategy}"));
            keeps_its_contract(strategy, node, &steps)?;
        }
    }
}
