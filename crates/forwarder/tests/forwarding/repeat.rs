//! The strategy that sends lost Interests again.

use core::time::Duration;

use whimbrel_forwarder::FaceId;
use whimbrel_forwarder::strategy::{StrategyChoice, StrategyKinds};

use super::node::{Node, data, interest, name};

fn node(strategy: &str) -> Node {
    let mut node = Node::with_faces(2);
    node.route("/a", 257, 0);
    node.strategy(strategy);
    node
}

/// Asks for `/a/0` to `/a/9`, one each millisecond, and answers all but number 4 after 20 ms. Returns
/// the Interests that go out after those of the consumer: time in milliseconds, number, nonce.
fn lose_one(node: &mut Node) -> Vec<(u64, String, bool)> {
    let began = node.now;
    let mut again = Vec::new();
    for at in 0..400_u32 {
        if at < 10 {
            let mut asked = interest(&format!("/a/{at}"), 1000 + at);
            asked.lifetime = Some(Duration::from_millis(350));
            node.ask(256, &asked);
        }
        if let Some(number) = at.checked_sub(20).filter(|it| *it < 10 && *it != 4) {
            node.receive(257, &data(&format!("/a/{number}")));
        }
        for sent in node.wait(1) {
            let is_new = sent.interest().nonce != Some((1000_u32 + 4).to_be_bytes());
            let after = node.now.since(began).as_millis() as u64;
            assert_eq!(sent.face, FaceId(257));
            again.push((after, sent.interest().name.to_string(), is_new));
        }
    }
    again
}

#[test]
fn an_interest_that_later_ones_overtake_is_sent_again() {
    let mut node = node("/localhost/nfd/strategy/repeat");
    let again = lose_one(&mut node);
    // The first repetition is not overtaken: nothing is asked for after it.
    assert_eq!(again.len(), 1, "{again:?}");
    let (after, name, has_own_nonce) = &again[0];
    assert_eq!(name, "/a/4");
    assert!(has_own_nonce);
    // Sent at 4 ms, answered after 20: overtaken by three at 27 ms.
    assert!((27..60).contains(after), "{again:?}");
}

#[test]
fn best_route_sends_nothing_again() {
    let mut node = node("/localhost/nfd/strategy/best-route");
    assert_eq!(lose_one(&mut node), []);
}

#[test]
fn an_interest_that_waits_alone_is_not_lost() {
    let mut node = node("/localhost/nfd/strategy/repeat");
    let mut asked = interest("/a/0", 7);
    asked.lifetime = Some(Duration::from_secs(4));
    node.ask(256, &asked);
    assert_eq!(node.wait(3900), []);
}

#[test]
fn its_parameters_are_checked() {
    let mut node = node("/localhost/nfd/strategy/repeat/v=1/after~1/tries~0");
    assert_eq!(lose_one(&mut node), [], "no tries");
    for wrong in ["after~0", "after~17", "tries~256", "other~1"] {
        let strategy = name(&format!("/localhost/nfd/strategy/repeat/v=1/{wrong}"));
        let checked = StrategyChoice::check(
            StrategyKinds::default(),
            name("/a").as_ref(),
            strategy.as_ref(),
        );
        assert!(checked.is_err(), "{wrong}");
    }
}
