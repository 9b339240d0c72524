//! A record names addresses that are not its host's.

use core::time::Duration;

use crate::multihoming::{Access, Make, Place, World};
use whimbrel_mobilityfirst::host::LinkPolicy;

const MIB: usize = 1 << 20;

/// Anyone may write anything into the record of their own name: a client that lists the routers of others, and
/// another host, gets what it fetches over its own links, and nobody else gets anything of it.
#[test]
fn traffic_is_not_turned_on_who_does_not_have_the_host() {
    let make = Make {
        place: Place::AccessRouters,
        policy: LinkPolicy::Everywhere,
        strangers: 3,
        ..Make::default()
    };
    let mut world = World::new(make, &[Access::new(20, 10), Access::new(20, 20)]);
    let before = world.at_strangers();
    let time = world.time_to_get(16 * MIB, Duration::from_secs(60));
    let (by_link, after) = (world.by_link(), world.at_strangers());
    let got = after
        .iter()
        .zip(&before)
        .map(|(after, before)| after - before);
    let got: Vec<u64> = got.collect();
    println!("{time:.2} s, {by_link:?}, strangers {got:?}");
    assert_eq!(world.bytes, 16 * MIB);
    // Questions, and no chunk of the flow, which has 64 KiB.
    assert!(got.iter().all(|bytes| *bytes < 16 << 10), "{got:?}");
    assert!(by_link.iter().all(|bytes| *bytes > 5 << 20), "{by_link:?}");
}

/// Its router acknowledges each chunk and drops it: that is found out when the receiver asks again.
#[test]
fn a_branch_that_acknowledges_and_drops_is_left() {
    let make = Make {
        place: Place::AccessRouters,
        policy: LinkPolicy::Everywhere,
        swallows: true,
        ..Make::default()
    };
    let links = [Access::new(20, 10), Access::new(20, 20)];
    let mut world = World::new(make, &links);
    let time = world.time_to_get(16 * MIB, Duration::from_secs(120));
    println!("{time:.2} s");
    assert_eq!(world.bytes, 16 * MIB);
    // 16 MiB take 7 s over one link; the receiver asks again after 5 s in which nothing comes, and the
    // branch may be tried again once.
    assert!(time < 7.0 + 2.0 * 5.0 + 1.0, "{time:.2} s");
}
