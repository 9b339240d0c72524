//! Consumers over random paths: several hops, far, with jitter, loss in bursts, reordering, deep and
//! shallow queues, all at once. Links recover lost frames.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

mod line;

use std::time::Duration;

use line::{Hop, Line, efficiency};
use proptest::prelude::*;
use whimbrel_link::ndnlp::Reliability;
use whimbrel_sim::link::{GilbertElliott, Loss};
use whimbrel_transport::{
    FetchOptions, ModelOptions, MpccpOptions, Multipath, WindowKind, WindowOptions,
};

const MS: Duration = Duration::from_millis(1);

/// A path and a consumer.
#[derive(Clone, Debug)]
struct Case {
    hops: Vec<Hop>,
    segment: usize,
    law: Law,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Law {
    Cubic,
    Aimd,
    /// PTP's, over the path that a probe finds.
    Mpccp,
    Model,
}

impl Law {
    fn options(self) -> FetchOptions {
        let kind = match self {
            Law::Cubic => WindowKind::CUBIC,
            Law::Aimd => WindowKind::AIMD,
            Law::Mpccp => WindowKind::Mpccp(MpccpOptions::default()),
            Law::Model => WindowKind::Model(ModelOptions::default()),
        };
        let has_tags = self == Law::Mpccp;
        FetchOptions {
            window: WindowOptions {
                kind,
                ..WindowOptions::default()
            },
            multipath: has_tags.then(Multipath::default),
            lost_after: has_tags.then_some(1),
            retries: None,
            ..FetchOptions::default()
        }
    }
}

impl Case {
    fn round_trip(&self) -> Duration {
        self.hops.iter().map(|hop| hop.delay * 2).sum()
    }

    /// Bits of content per second that the path carries at most.
    fn capacity(&self) -> f64 {
        let carried = |hop: &Hop| {
            let loss = match hop.loss {
                Loss::None => 0.0,
                Loss::Independent(share) => share,
                Loss::GilbertElliott(channel) => channel.loss_rate(),
            };
            hop.rate as f64 * (1.0 - loss)
        };
        let narrowest = self.hops.iter().map(carried).fold(f64::INFINITY, f64::min);
        narrowest * efficiency(self.segment)
    }

    /// The goodput from the twentieth round trip on, as a share of the capacity.
    fn run(&self) -> f64 {
        self.run_for((self.round_trip() * 20).max(3000 * MS))
    }

    /// The same over this time.
    fn run_for(&self, measured: Duration) -> f64 {
        let options = self.law.options();
        let mut line = Line::new(
            &self.hops,
            Reliability::Adaptive,
            self.segment,
            options,
            self.seed,
        );
        let start = line.net.now();
        let warm = start + self.round_trip() * 20;
        line.net.run_until(warm);
        let before = line.stats();
        line.net.run_until(warm + measured);
        let after = line.stats();
        let goodput = (after.bytes - before.bytes) as f64 * 8.0 / measured.as_secs_f64();
        let share = goodput / self.capacity();
        println!("{share:.3} {after:?} {self:?}");
        share
    }
}

/// A number between two, each factor as likely.
fn log_uniform(least: f64, most: f64) -> impl Strategy<Value = f64> {
    (least.ln()..most.ln()).prop_map(f64::exp)
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        log_uniform(0.0005, 0.03).prop_map(Loss::Independent),
        (log_uniform(0.0005, 0.03), 1.0..8.0f64)
            .prop_map(|(share, burst)| Loss::GilbertElliott(GilbertElliott::bursts(share, burst))),
    ]
}

/// A hop's share of the path's round trip, its rate beyond the slowest, and its troubles: jitter and
/// reordering as shares of its delay, the queue as a multiple of the path's product.
fn hop() -> impl Strategy<Value = (f64, f64, f64, Option<(f64, f64)>, f64, Loss)> {
    (
        0.05..1.0f64,
        prop_oneof![Just(1.0), log_uniform(1.0, 20.0)],
        prop_oneof![Just(0.0), 0.0..0.1f64],
        prop_oneof![
            3 => Just(None),
            1 => (log_uniform(0.0005, 0.02), 0.01..0.1f64).prop_map(Some),
        ],
        log_uniform(0.5, 8.0),
        loss(),
    )
}

fn case(law: Law) -> impl Strategy<Value = Case> {
    (
        log_uniform(5.0, 600.0),
        log_uniform(8.0, 300.0),
        prop::collection::vec(hop(), 1..6),
        prop::sample::select(vec![1200usize, 4000, 8000]),
        any::<u64>(),
    )
        .prop_map(move |(rtt_ms, product, drawn, segment, seed)| {
            let rtt = rtt_ms / 1e3;
            // The slowest hop's, from segments in a round trip. Fewer than eight would show little but how
            // routers store and forward whole segments.
            let rate = (product * segment as f64 * 8.0 / rtt).min(2e8);
            let product = rate * rtt / 8.0;
            let whole: f64 = drawn.iter().map(|hop| hop.0).sum();
            let slowest = drawn.iter().map(|hop| hop.1).fold(f64::INFINITY, f64::min);
            let hops = drawn
                .iter()
                .map(|(share, factor, jitter, reorder, queue, loss)| {
                    let delay = Duration::from_secs_f64(rtt / 2.0 * share / whole);
                    Hop {
                        rate: (rate * factor / slowest) as u64,
                        delay,
                        jitter: delay.mul_f64(*jitter),
                        // Not beyond a second: Interests live for four.
                        queue: ((product * queue) as u64)
                            .min((rate / 8.0) as u64)
                            .max(20 * line::MTU as u64),
                        loss: *loss,
                        reorder: reorder.map(|(often, late)| (often, delay.mul_f64(late))),
                    }
                });
            Case {
                hops: hops.collect(),
                segment,
                law,
                seed,
            }
        })
}

fn check(case: &Case) -> Result<(), TestCaseError> {
    let share = case.run();
    prop_assert!(share >= 0.85, "{share:.3} of what the path carries");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn cubic_fills_random_paths(case in case(Law::Cubic)) {
        check(&case)?;
    }

    #[test]
    fn aimd_fills_random_paths(case in case(Law::Aimd)) {
        check(&case)?;
    }

    #[test]
    fn linked_increases_fill_random_paths(case in case(Law::Mpccp)) {
        check(&case)?;
    }

    #[test]
    fn a_model_fills_random_paths(case in case(Law::Model)) {
        check(&case)?;
    }
}

/// The links of a file that crosses a wire and then the sky, whose delay and queue are these.
fn far(rate: u64, delay: Duration, queue: u64, loss: f64) -> Vec<Hop> {
    let sky = Hop {
        rate,
        delay,
        jitter: Duration::ZERO,
        queue,
        loss: match loss {
            0.0 => Loss::None,
            loss => Loss::Independent(loss),
        },
        reorder: None,
    };
    let wire = Hop {
        rate: 1_000_000_000,
        delay: MS,
        loss: Loss::None,
        ..sky.clone()
    };
    vec![sky, wire]
}

#[test]
fn loss_on_a_far_link_costs_no_more_than_itself() {
    for (delay, loss) in [(20, 0.003), (50, 0.003), (50, 0.01), (150, 0.001)] {
        let case = Case {
            hops: far(80_000_000, MS * delay, 3_000_000, loss),
            segment: 8000,
            law: Law::Cubic,
            seed: 1,
        };
        let share = case.run();
        assert!(share >= 0.85, "{delay} ms, {loss}: {share:.3}");
    }
}

#[test]
fn a_deep_queue_that_fills_costs_no_rate() {
    // The queue is full after some twenty seconds: a round trip takes more than a second.
    for delay in [20, 50, 100, 200] {
        let case = Case {
            hops: far(20_000_000, MS * delay, 3_000_000, 0.0),
            segment: 8000,
            law: Law::Cubic,
            seed: 1,
        };
        let share = case.run_for(40_000 * MS);
        assert!(share >= 0.85, "{delay} ms: {share:.3}");
    }
}

/// Links recover what they lose, so that Data come late.
#[test]
fn a_fetch_counts_the_decreases_that_late_data_undo() {
    let hops = far(80_000_000, MS * 50, 3_000_000, 0.01);
    let (law, reliability) = (Law::Cubic.options(), Reliability::Adaptive);
    let mut line = Line::new(&hops, reliability, 8000, law, 1);
    line.net.run_for(20_000 * MS);
    let stats = line.stats();
    assert!(stats.undone_decreases > 0, "{stats:?}");
    assert!(stats.undone_decreases <= stats.loss_decreases, "{stats:?}");
}
