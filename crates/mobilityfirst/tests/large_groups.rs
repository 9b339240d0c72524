//! Groups at large scale in virtual time [MFTP §3.5]: copies in routers that answer NACKs, and groups of groups.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;

use whimbrel_gnrs::KeyPair;
use whimbrel_mobilityfirst::local::{Delivery, MembershipChange, SendState};
use whimbrel_mobilityfirst::router::Router;
use whimbrel_sim::Direction;
use whimbrel_sim::testbed::Fault;

use crate::groups::{CHUNK, CORE, GROUP, SECOND, SOURCE, Setup, World, host_keys};
use crate::support::Content;

const CACHE: u64 = 64 << 20;

/// Returns the load of the source, in bytes, until all members have a content. A leaf loses its memory meanwhile.
fn load(leaves: usize, each: usize, loss: f64) -> u64 {
    let mut world = World::with(Setup {
        leaves,
        each,
        loss,
        cache: CACHE,
        ..Setup::default()
    });
    world.join_all();
    let before = world.source_load();
    world.push(&Content::new(12 * CHUNK, 5), Delivery::default(), None);
    world.run(Duration::from_millis(60));
    world.net.strike(&Fault::Crash {
        node: world.routers[CORE + 1] as u8,
        down: Duration::from_millis(300),
        skew_s: 0,
    });
    let is_over = world.run_until(SendState::Delivered, 120 * SECOND);
    assert!(is_over, "{} of {}", world.complete(), leaves * each);
    assert_eq!(world.complete(), leaves * each);
    world.source_load() - before
}

/// "In order to limit potential explosion of unfulfilled requests reaching the original source".
#[test]
fn the_source_sends_as_much_to_a_hundred_members_as_to_one() {
    for loss in [0.01, 0.05] {
        let (one, hundred) = (load(1, 1, loss), load(4, 25, loss));
        assert!(hundred * 10 <= one * 11, "{loss}: {hundred} and {one}");
    }
}

/// What a router on the way has does not cross the links above it again.
#[test]
fn a_member_that_comes_late_is_served_by_a_router_on_the_way() {
    let mut world = World::with(Setup {
        leaves: 2,
        each: 2,
        cache: CACHE,
        ..Setup::default()
    });
    // The first three, so that the push is not over before the last one comes.
    (1..4).for_each(|member| world.join(member));
    world.run(SECOND);
    let content = Content::new(300 * CHUNK, 5);
    let before = (world.source_load(), world.tree_load());
    world.push(&content, Delivery::default(), None);
    world.run(SECOND);
    world.join(4);
    world.run(40 * SECOND);
    assert_eq!(world.complete(), 4);
    let most = content.bytes.len() as u64 * 11 / 10;
    let sent = world.source_load() - before.0;
    assert!(sent < most, "{sent} of {most}");
    // The leaf of the late one had a member before.
    let trunk = world.tree_load()[2] - before.1[2];
    assert!(trunk < most, "{trunk} of {most}");
}

impl World {
    /// Returns the counters of a router.
    fn counter(&mut self, router: usize, name: &str) -> u64 {
        let node = self.routers[router];
        self.net.with(node, |machine, now| {
            let router: &mut Router = machine.get_mut().unwrap();
            let status = serde_json::to_value(router.status(now)).unwrap();
            status["counters"][name].as_u64().unwrap()
        })
    }

    fn counters(&mut self, name: &str) -> u64 {
        (0..self.routers.len())
            .map(|router| self.counter(router, name))
            .sum()
    }

    /// A group, whose key is that of a host, joins another one.
    fn join_as_group(&mut self, group: usize, above: &KeyPair) {
        self.join_group(group, above, MembershipChange::JoinAsGroup);
    }

    fn join_below(&mut self, member: usize, group: usize) {
        self.join_group(member, &host_keys(group), MembershipChange::Join);
    }

    fn completed(&self) -> Vec<usize> {
        let all = self.seen.iter().enumerate();
        let complete = all.filter(|(_, seen)| seen.complete > 0);
        complete.map(|(host, _)| host).collect()
    }

    /// Cuts a host off for good.
    fn cut_off(&mut self, host: usize) {
        self.net.strike(&Fault::Outage {
            link: self.access[host] as u8,
            directions: 3,
            lasts: 3600 * SECOND,
        });
    }
}

/// A group is attached to the second leaf, which looks up its members; of those some are elsewhere.
#[test]
fn a_group_below_is_served_by_the_router_that_it_is_attached_to() {
    let mut world = World::new(3, 3, 0.0);
    // Members 1, 4 and 7 are at the first leaf, 2, 5 and 8 at the second one, and so on.
    let group = 2;
    world.join(1);
    world.join_as_group(group, &KeyPair::from_secret(&GROUP));
    [5, 8, 3]
        .into_iter()
        .for_each(|member| world.join_below(member, group));
    world.run(SECOND);
    let content = Content::new(20 * CHUNK, 5);
    let before = (world.source_load(), world.tree_load());
    world.push(&content, Delivery::default(), None);
    let is_over = world.run_until(SendState::Delivered, 20 * SECOND);
    assert!(is_over, "{}", world.status()["sending"]);
    assert_eq!(world.completed(), [1, 3, 5, 8]);
    let (least, most) = (
        content.bytes.len() as u64,
        content.bytes.len() as u64 * 11 / 10,
    );
    let loads = world.tree_load();
    for (leaf, (after, before)) in loads.iter().zip(&before.1).enumerate() {
        let sent = after - before;
        assert!((least..most).contains(&sent), "{leaf}: {sent} of {least}");
    }
    assert!(world.source_load() - before.0 < most);
    // The copy for the third leaf comes from the second one.
    let up = world.bytes(world.trunks[2], Direction::AToB);
    assert!(up > least, "{up}");
    assert!(world.counter(CORE + 2, "group_chunks") >= 20);
}

#[test]
fn a_group_below_that_is_attached_nowhere_is_looked_up_by_the_first_router() {
    let mut world = World::new(3, 2, 0.0);
    let group = 2;
    world.join(1);
    world.join_as_group(group, &KeyPair::from_secret(&GROUP));
    world.join_below(3, group);
    // Member 1 is in both, and gets it once.
    world.join_below(1, group);
    world.run(SECOND);
    world.cut_off(group);
    world.run(60 * SECOND);
    world.push(&Content::new(5 * CHUNK, 5), Delivery::default(), None);
    world.run(30 * SECOND);
    assert_eq!(world.completed(), [1, 3]);
    assert_eq!(world.seen[1].chunks, 5);
    assert_eq!(world.seen[SOURCE].sending, Some(SendState::Delivered));
}

/// Two groups that are members of each other, attached to different routers.
#[test]
fn a_group_that_contains_itself_gets_one_copy_and_is_counted() {
    let mut world = World::new(2, 3, 0.0);
    let (first, second) = (1, 2);
    world.join_as_group(first, &KeyPair::from_secret(&GROUP));
    world.join_as_group(second, &host_keys(first));
    world.join_as_group(first, &host_keys(second));
    // And one that is a member of itself.
    world.join_as_group(first, &host_keys(first));
    world.join_below(3, first);
    world.join_below(4, second);
    world.run(SECOND);
    world.push(&Content::new(5 * CHUNK, 5), Delivery::default(), None);
    let is_over = world.run_until(SendState::Delivered, 20 * SECOND);
    assert!(is_over, "{}", world.status()["sending"]);
    world.run(10 * SECOND);
    assert_eq!(world.completed(), [3, 4]);
    assert_eq!((world.seen[3].chunks, world.seen[4].chunks), (5, 5));
    assert!(world.counters("groups_in_themselves") >= 5);
    assert_eq!(world.counters("groups_too_deep"), 0);
    // Each of the five chunks was looked at once for each group.
    let looks = world.counters("group_chunks");
    assert!(looks <= 5 * 10, "{looks}");
}

/// Each group is a member of the one before; the last ones are too far below.
#[test]
fn groups_below_the_fourth_are_not_looked_up() {
    let mut world = World::new(2, 6, 0.0);
    world.join_as_group(1, &KeyPair::from_secret(&GROUP));
    for group in 1..5 {
        world.join_as_group(group + 1, &host_keys(group));
    }
    for group in 1..6 {
        world.join_below(6 + group, group);
    }
    world.run(SECOND);
    world.push(&Content::new(2 * CHUNK, 5), Delivery::default(), None);
    world.run(20 * SECOND);
    // The group itself is the first one.
    assert_eq!(world.completed(), [7, 8, 9]);
    assert!(world.counters("groups_too_deep") > 0);
}

/// A member takes the time from its router.
#[test]
fn a_member_whose_clock_is_an_hour_ahead_joins_and_receives() {
    let mut world = World::with(Setup {
        leaves: 1,
        each: 2,
        skewed: Some(2),
        ..Setup::default()
    });
    world.join_all();
    world.push(&Content::new(3 * CHUNK, 5), Delivery::default(), None);
    assert!(world.run_until(SendState::Delivered, 20 * SECOND));
    assert_eq!(world.completed(), [1, 2]);
}
