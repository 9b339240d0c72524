//! Divided flows over random pairs and triples of links with all troubles at once: jitter, loss in bursts, reordering,
//! duplication, short queues and steps of the rate. `cargo test -p whimbrel-mobilityfirst --test all random_links:: -- --ignored
//! --nocapture` prints the distribution.

use core::time::Duration;

use crate::multihoming::{Access, Make, Place, World};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use whimbrel_link::Pacing;
use whimbrel_mobilityfirst::host::LinkPolicy;

/// Round trips after which a transfer has found its rate.
const WARM: u32 = 20;
/// Round trips that count, and the least time.
const COUNTED: u32 = 60;
const LEAST: Duration = Duration::from_secs(5);

/// Returns the bytes per second that reach the client from the twentieth round trip of the longest link on.
fn steady(make: Make, links: &[Access], longest: Duration) -> f64 {
    let make = Make {
        // As divided flows have them; only whole chunks count.
        chunk_log2: 16,
        ..make
    };
    let mut world = World::new(make, links);
    let warm = longest * WARM + Duration::from_secs(1);
    let counted = (longest * COUNTED).max(LEAST);
    let rate: u64 = links.iter().map(|link| link.rate).sum();
    // More than fits.
    let len = rate as f64 / 8.0 * (warm + counted + LEAST).as_secs_f64();
    world.get(len as usize);
    world.run(warm);
    let before = world.bytes;
    world.run(counted);
    if std::env::var("ONLY").is_ok() {
        println!("{:?}: {:?}", world.by_link(), world.divided());
    }
    (world.bytes - before) as f64 / counted.as_secs_f64()
}

/// Together links bring at least this part of what they bring alone.
const LEAST_OF_SUM: f64 = 0.85;

/// What links bring together, as parts of their sum and of the best one's.
#[derive(Clone, Copy, Debug)]
struct Gain {
    of_sum: f64,
    of_best: f64,
}

fn gain(make: Make, links: &[Access]) -> Gain {
    let longest = |link: &Access| link.round_trip + link.jitter;
    let longest = links.iter().map(longest).max().unwrap_or_default();
    let alone = links.iter().map(|link| steady(make, &[*link], longest));
    let alone: Vec<f64> = alone.collect();
    let both = steady(make, links, longest);
    Gain {
        of_sum: both / alone.iter().sum::<f64>(),
        of_best: both / alone.iter().copied().fold(0.0, f64::max),
    }
}

fn link() -> impl Strategy<Value = Access> {
    let log = |low: f64, high: f64| (0.0f64..1.0).prop_map(move |at| low * (high / low).powf(at));
    let some = |values: BoxedStrategy<f64>| prop_oneof![Just(0.0), values];
    let ms = |value: f64| Duration::from_secs_f64(value / 1e3);
    (
        (log(2.0, 40.0), log(8.0, 120.0)),
        some((0.0f64..0.5).boxed()),
        some(log(0.001, 0.03).boxed()),
        log(1.0, 5.0),
        (some(log(0.001, 0.02).boxed()), 0.0f64..0.5),
        some(Just(0.01).boxed()),
        log(1.0, 4.0),
        prop_oneof![2 => Just(None), 1 => (0.4f64..0.9, 1u64..5).prop_map(Some)],
    )
        .prop_map(
            move |((mbit, rtt), jitter, loss, burst, (behind, extra), duplicate, queue, steps)| {
                Access {
                    rate: (mbit * 1e6) as u64,
                    round_trip: ms(rtt),
                    jitter: ms(jitter * rtt.min(40.0)),
                    loss,
                    burst,
                    reorder: (behind, ms(extra * rtt / 2.0)),
                    duplicate,
                    queue: Some(ms(queue * rtt)),
                    steps: steps.map(|(part, every)| (part, Duration::from_secs(every))),
                }
            },
        )
}

fn links() -> impl Strategy<Value = Vec<Access>> {
    prop::collection::vec(link(), 2..4)
}

fn place() -> impl Strategy<Value = Place> {
    prop::sample::select(vec![Place::Server, Place::OneRouter, Place::AccessRouters])
}

fn make(place: Place, pacing: Pacing) -> Make {
    Make {
        place,
        pacing,
        policy: match place {
            Place::AccessRouters => LinkPolicy::Everywhere,
            _ => LinkPolicy::All,
        },
        ..Make::default()
    }
}

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

/// Two links at one router that jitter and lose.
fn jittery_pair() -> [Access; 2] {
    let link = |mbit, trip, jitter, queue| Access {
        jitter: ms(jitter),
        loss: 0.005,
        queue: Some(ms(queue)),
        ..Access::new(mbit, trip)
    };
    [link(80, 40, 6, 100), link(30, 50, 8, 133)]
}

/// A satellite whose rate changes next to a mobile network with a deep queue, as Starlink next to 5G.
fn satellite_and_mobile() -> [Access; 2] {
    let satellite = Access {
        jitter: ms(7),
        loss: 0.01,
        burst: 4.0,
        queue: Some(ms(80)),
        steps: Some((0.6, ms(3_000))),
        ..Access::new(100, 45)
    };
    let mobile = Access {
        jitter: ms(8),
        loss: 0.001,
        queue: Some(ms(250)),
        steps: Some((0.5, ms(2_000))),
        ..Access::new(50, 50)
    };
    [satellite, mobile]
}

/// The pairs alone and together in the steady state, and a whole file with its start and its tail.
#[test]
fn named_pairs_bring_their_sum() {
    for (name, place, links) in [
        (
            "two links that jitter and lose",
            Place::OneRouter,
            jittery_pair(),
        ),
        // Each time that its rate falls, the mobile network's queue is long, and the branch gets no chunks for a while.
        (
            "a satellite and a mobile network",
            Place::Server,
            satellite_and_mobile(),
        ),
    ] {
        let make = make(place, Pacing::Bottleneck);
        let gain = gain(make, &links);
        let mut world = World::new(make, &links);
        let time = world.time_to_get(50_000_000, Duration::from_secs(60));
        let stall = world.longest_stall(world.arrivals[0]);
        println!("{name}: {gain:.3?}, {time:.2} s, at most {stall:?} without a chunk");
        assert!(gain.of_sum >= LEAST_OF_SUM, "{name}: {gain:?}");
        assert!(gain.of_best >= 1.0, "{name}: {gain:?}");
        // 3.6 s at the sum of the rates.
        assert!(time < 6.0, "{name}: {time:.2} s");
        assert!(stall < Duration::from_millis(250), "{name}: {stall:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 30, ..ProptestConfig::default() })]

    /// All troubles at once.
    #[test]
    fn random_links_bring_nearly_their_sum_and_never_less_than_the_best_one(
        links in links(),
        place in place(),
    ) {
        let gain = gain(make(place, Pacing::Bottleneck), &links);
        prop_assert!(gain.of_sum >= LEAST_OF_SUM && gain.of_best >= 1.0, "{gain:.3?}");
    }
}

/// Prints the distribution of the gain: CASES (60), SEED (1), LAW (bottleneck).
#[test]
#[ignore = "prints a distribution; takes minutes"]
fn distribution_of_the_gain() {
    let number = |name: &str, or: u64| std::env::var(name).map_or(or, |it| it.parse().unwrap());
    let pacing = match std::env::var("LAW").as_deref() {
        Ok("cubic") => Pacing::Cubic,
        _ => Pacing::Bottleneck,
    };
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number("SEED", 1).to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut all = Vec::new();
    for case in 0..number("CASES", 60) {
        let drawn = (links(), place()).new_tree(&mut runner).unwrap().current();
        let make = make(drawn.1, pacing);
        if number("ONLY", case) != case {
            continue;
        }
        let gain = gain(make, &drawn.0);
        println!("{case}: {gain:.3?} {:?}", drawn.1);
        all.push((gain, case, drawn));
    }
    all.sort_by(|one, other| one.0.of_sum.total_cmp(&other.0.of_sum));
    let count = all.len() as f64;
    println!(
        "{pacing:?}: {} of {count} below {LEAST_OF_SUM} of the sum, {} below the best; mean {:.3}",
        all.iter().filter(|it| it.0.of_sum < LEAST_OF_SUM).count(),
        all.iter().filter(|it| it.0.of_best < 1.0).count(),
        all.iter().map(|it| it.0.of_sum).sum::<f64>() / count,
    );
    for (gain, case, (links, place)) in all.iter().take(8) {
        println!("{case}: {gain:.3?} {place:?}");
        for link in links {
            println!("    {link:?}");
        }
    }
}
