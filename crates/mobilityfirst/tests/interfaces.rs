//! "A policy-driven interface manager handles concurrency across available multiple interfaces. The
//! device-level policies allow the user to manage how data is multiplexed across one or more active
//! interfaces" [MF-5G §IV].

use core::time::Duration;

use crate::multihoming::{Access, Make, Place, World};
use proptest::prelude::*;
use whimbrel_mobilityfirst::host::LinkPolicy;
use whimbrel_mobilityfirst::host::interfaces::{Candidate, LinkTerms, Verdict, judge};

const MIB: usize = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);
/// What keeps an idle link up: its session, attachment and probes.
const IDLE: u64 = 60_000;

fn any_candidate() -> impl Strategy<Value = Candidate> {
    (any::<[bool; 4]>(), 0..3u32).prop_map(|([up, off, metered, used_up], cost)| Candidate {
        up,
        off: off && used_up,
        metered,
        cost,
        used_up: used_up && !off,
    })
}

proptest! {
    /// The rules, said of each pair of links.
    #[test]
    fn a_link_is_used_unless_a_cheaper_one_answers(links in prop::collection::vec(any_candidate(), 0..6)) {
        let verdicts = judge(&links);
        prop_assert_eq!(verdicts.len(), links.len());
        for (link, verdict) in links.iter().zip(verdicts) {
            let may = |other: &&Candidate| other.up && !other.off && !other.used_up;
            let is_cheaper = |other: &Candidate| match (other.metered, link.metered) {
                (false, true) => true,
                (true, false) => false,
                _ => other.cost < link.cost,
            };
            let expected = if link.off {
                Verdict::Off
            } else if link.used_up {
                Verdict::Quota
            } else if link.metered && links.iter().filter(may).any(|other| !other.metered) {
                Verdict::Metered
            } else if links.iter().filter(may).any(is_cheaper) {
                Verdict::Cost
            } else {
                Verdict::Used
            };
            prop_assert_eq!(verdict, expected);
        }
    }
}

/// A client with two links like these.
fn world(place: Place, policy: LinkPolicy, terms: [LinkTerms; 2]) -> World {
    let make = Make {
        place,
        policy,
        terms,
        chunk_log2: 16,
        inbound: true,
        ..Make::default()
    };
    World::new(make, &[Access::new(20, 10), Access::new(20, 20)])
}

fn finish(world: &mut World) {
    let end = world.net.now() + MINUTE;
    while world.complete.is_none() && world.step(end) {}
    assert!(world.complete.is_some(), "{} bytes", world.bytes);
}

fn verdicts(status: &serde_json::Value) -> Vec<&str> {
    let links = status["interfaces"].as_array().expect("links").iter();
    links
        .map(|link| link["verdict"].as_str().expect("a verdict"))
        .collect()
}

#[test]
fn a_metered_or_dearer_link_carries_nothing_until_the_other_is_silent_and_nothing_after() {
    let metered = LinkTerms {
        metered: true,
        ..LinkTerms::default()
    };
    let dear = LinkTerms {
        cost: 1,
        ..LinkTerms::default()
    };
    for place in [Place::OneRouter, Place::AccessRouters] {
        for terms in [metered, dear] {
            let policy = LinkPolicy::Everywhere;
            let mut world = world(place, policy, [LinkTerms::default(), terms]);
            world.get(24 * MIB);
            world.run(Duration::from_secs(2));
            let stands_by = if terms.metered { "metered" } else { "cost" };
            assert_eq!(verdicts(&world.manage("")), ["used", stands_by]);
            let before = world.by_link();
            assert!(before[0] > 2 << 20 && before[1] < IDLE, "{before:?}");
            world.cut(0, Duration::from_secs(3));
            world.set_carrier(0, false);
            world.run(Duration::from_secs(3));
            let during = world.by_link();
            assert!(during[1] > 2 << 20, "{place:?}: {during:?}");
            assert_eq!(verdicts(&world.manage("")), ["no-carrier", "used"]);
            world.set_carrier(0, true);
            // What waits for the link at its router still comes: about a second of it.
            world.run(Duration::from_millis(1_500));
            let back = world.by_link();
            finish(&mut world);
            let after = world.by_link();
            assert!(
                after[0] > back[0] + (1 << 20),
                "{place:?}: {back:?} {after:?}"
            );
            assert!(after[1] < back[1] + IDLE, "{place:?}: {back:?} {after:?}");
            assert_eq!(world.bytes, 24 * MIB);
        }
    }
}

/// "This link only for 4 MB": the quota counts both ways, with headers.
#[test]
fn a_link_whose_quota_is_used_up_is_shut_until_it_gets_more() {
    let quota = LinkTerms {
        quota: Some(4_000_000),
        ..LinkTerms::default()
    };
    let mut world = world(
        Place::OneRouter,
        LinkPolicy::All,
        [LinkTerms::default(), quota],
    );
    world.get(24 * MIB);
    finish(&mut world);
    let status = world.manage("");
    assert_eq!(verdicts(&status), ["used", "quota"]);
    let used = status["interfaces"][1]["bytes"].as_u64().expect("bytes");
    // A tenth of a second at 20 Mbit/s, and what was on its way.
    assert!((4_000_000..4_000_000 + 600_000).contains(&used), "{used}");
    assert_eq!(status["interfaces"][1]["quota_left"], 0);
    world.run(Duration::from_secs(5));
    let later = world.manage("")["interfaces"][1]["bytes"].as_u64();
    assert_eq!(later, Some(used), "a shut link carries nothing");
    world.manage(r#"{"link": {"label": "link-1", "quota": null}}"#);
    world.run(Duration::from_secs(1));
    assert_eq!(verdicts(&world.manage("")), ["used", "used"]);
}

#[test]
fn links_and_policies_change_while_a_transfer_runs() {
    let mut world = world(
        Place::AccessRouters,
        LinkPolicy::Everywhere,
        [LinkTerms::default(); 2],
    );
    world.get(32 * MIB);
    world.run(Duration::from_secs(2));
    assert_eq!(verdicts(&world.manage("")), ["used", "used"]);
    world.manage(r#"{"link": {"label": "link-0", "off": true}}"#);
    world.run(Duration::from_millis(500));
    let before = world.by_link();
    world.run(Duration::from_secs(1));
    let after = world.by_link();
    assert_eq!(after[0], before[0], "it is off");
    assert!(after[1] > before[1] + MIB as u64, "{before:?} {after:?}");
    assert_eq!(verdicts(&world.manage("")), ["off", "used"]);
    world.manage(r#"{"link": {"label": "link-0", "off": false}}"#);
    let order = world.manage(r#"{"policy": "order", "preference": ["link-1"]}"#);
    assert_eq!(order["policy"], "order");
    world.run(Duration::from_secs(1));
    assert_eq!(verdicts(&world.manage("")), ["policy", "used"]);
    finish(&mut world);
    assert_eq!(world.bytes, 32 * MIB);
}

#[test]
fn what_a_host_sends_is_divided_by_weights() {
    let weight = |weight| LinkTerms {
        weight,
        ..LinkTerms::default()
    };
    let mut world = world(Place::Server, LinkPolicy::Weights, [weight(3), weight(1)]);
    world.get(16 * MIB);
    finish(&mut world);
    let by_link = world.by_link();
    let share = by_link[0] as f64 / by_link.iter().sum::<u64>() as f64;
    assert!((0.70..0.80).contains(&share), "{by_link:?}");
}

#[test]
fn bad_changes_change_nothing_and_say_why() {
    let mut world = world(Place::OneRouter, LinkPolicy::All, [LinkTerms::default(); 2]);
    let before = verdicts(&world.manage("")).join(" ");
    for (bad, why) in [
        ("{", "makes no sense"),
        (r#"{"colour": 1}"#, "colour"),
        (r#"{"policy": "random"}"#, "random"),
        (r#"{"link": {"label": "nobody", "off": true}}"#, "nobody"),
        (r#"{"preference": ["nobody"]}"#, "nobody"),
    ] {
        let status = world.manage(bad);
        let error = status["error"].as_str().unwrap_or_default();
        assert!(error.contains(why), "{bad}: {error}");
        assert_eq!(status["policy"], "all");
        assert_eq!(verdicts(&status).join(" "), before);
    }
}
