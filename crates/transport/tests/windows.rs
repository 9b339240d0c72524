//! Windows against their formulas (ndn-tools `tools/get`, RFC 9438), and over simulated links.

use std::time::Duration;

use crate::support::{clock, digest, name, register};
use proptest::prelude::*;
use whimbrel_core::{Gains, SeededRng, Time};
use whimbrel_sim::link::{LinkSpec, Loss, QueueLimit};
use whimbrel_sim::{AnyMachine, DuplexLink, Simulator};
use whimbrel_transport::congestion::{Congestion, CongestionControl, Delivered, Siblings};
use whimbrel_transport::register::Registrar;
use whimbrel_transport::rtt::NDNGET;
use whimbrel_transport::serve::{SegmentResponder, ServiceEvent};
use whimbrel_transport::{
    AppFace, BytesSource, FetchEvent, FetchOptions, FetchStats, Fetcher, ProducerOptions, Service,
    WindowKind, WindowOptions,
};

const MS: Duration = Duration::from_millis(1);

/// A law whose window is used up: every Data may make it grow.
struct Window(Box<dyn CongestionControl>);

impl Window {
    fn new(options: WindowOptions) -> Window {
        Window(options.law(Time::ZERO))
    }

    fn size(&self) -> f64 {
        self.0.window()
    }

    fn threshold(&self) -> f64 {
        self.0.threshold()
    }

    fn delivered(&mut self, delivered: &Delivered) {
        self.0.on_delivered(delivered, &Siblings::NONE);
    }

    fn increase(&mut self, now: Time, smoothed: Option<Duration>, limit: f64) {
        self.delivered(&Delivered {
            now,
            bytes: 1000,
            rtt: None,
            smoothed,
            segment: 0,
            newest: 0,
            in_flight: usize::MAX,
            marked: false,
            route: None,
            intermediate: false,
            lost: 0,
            limit,
        });
    }

    /// A round trip while the window is hardly used.
    fn sample(&mut self, now: Time, rtt: Duration, segment: u64, newest: u64) {
        self.delivered(&Delivered {
            now,
            bytes: 1000,
            rtt: Some(rtt),
            smoothed: Some(rtt),
            segment,
            newest,
            in_flight: 0,
            marked: false,
            route: None,
            intermediate: false,
            lost: 0,
            limit: f64::INFINITY,
        });
    }

    fn decrease(&mut self, now: Time) {
        self.0.on_congestion(now, Congestion::Loss, &Siblings::NONE);
    }
}

fn window(kind: WindowKind) -> Window {
    Window::new(WindowOptions {
        kind,
        delay_exit: false,
        ..WindowOptions::default()
    })
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9 * a.abs().max(1.0)
}

#[test]
fn the_defaults_are_ndngets() {
    let options = FetchOptions::default();
    assert_eq!(
        options.window.kind,
        WindowKind::Cubic {
            beta: 0.7,
            fast_convergence: false
        }
    );
    assert_eq!(
        (options.window.initial, options.window.threshold),
        (2.0, f64::INFINITY)
    );
    assert_eq!((options.retries, options.lifetime), (Some(15), 4000 * MS));
    assert!(!options.ignore_marks && options.once_per_round_trip && !options.must_be_fresh);
    let rto = FetchOptions::default().rto;
    assert_eq!(rto, NDNGET);
    assert_eq!(
        (rto.initial, rto.min, rto.max),
        (1000 * MS, 200 * MS, 60_000 * MS)
    );
    let gains = Gains::Fractional {
        alpha: 0.125,
        beta: 0.25,
    };
    assert_eq!((rto.gains, rto.k, rto.backoff), (gains, 8.0, 2.0));
    assert_eq!(
        WindowKind::AIMD,
        WindowKind::Aimd {
            step: 1.0,
            decrease: 0.5,
            reset_to_initial: false
        }
    );
    assert_eq!(WindowKind::FIXED, WindowKind::Fixed(1));
}

#[test]
fn aimd_adds_one_for_each_data_then_one_for_each_window_and_halves() {
    let mut window = window(WindowKind::AIMD);
    for n in 1..=30 {
        window.increase(Time::ZERO, None, 1e9);
        assert!(close(window.size(), 2.0 + f64::from(n)));
    }
    window.decrease(Time::ZERO);
    assert!(close(window.size(), 16.0) && close(window.threshold(), 16.0));
    let mut expected = 16.0f64;
    for _ in 0..40 {
        expected += 1.0 / expected.floor();
        window.increase(Time::ZERO, None, 1e9);
        assert!(close(window.size(), expected));
    }
    (0..20).for_each(|_| window.decrease(Time::ZERO));
    assert!(close(window.size(), 2.0), "the threshold is at least 2");
}

#[test]
fn aimd_may_begin_anew_after_a_loss() {
    let mut window = window(WindowKind::Aimd {
        step: 1.0,
        decrease: 0.5,
        reset_to_initial: true,
    });
    (0..30).for_each(|_| window.increase(Time::ZERO, None, 1e9));
    window.decrease(Time::ZERO);
    assert!(close(window.size(), 2.0) && close(window.threshold(), 16.0));
}

#[test]
fn a_fixed_window_never_changes() {
    let mut window = window(WindowKind::Fixed(7));
    window.increase(Time::ZERO, None, 1e9);
    window.decrease(Time::ZERO);
    window.0.restart();
    assert!(close(window.size(), 7.0));
}

proptest! {
    #[test]
    fn cubic_follows_its_formula(
        slow_start in 1u32..300, fast_convergence: bool, beta in 0.5f64..0.9, rtt in 1u32..300,
        steps in prop::collection::vec((0u32..400, prop::bool::weighted(0.05)), 1..300),
    ) {
        let mut window = window(WindowKind::Cubic { beta, fast_convergence });
        (0..slow_start).for_each(|_| window.increase(Time::ZERO, None, 1e9));
        let mut cwnd = 2.0 + f64::from(slow_start);
        let (mut wmax, mut last_wmax) = (0.0f64, 0.0f64);
        let (mut now, mut last_decrease) = (Time::ZERO, Time::ZERO);
        let mut decreased = false;
        let srtt = f64::from(rtt) / 1e3;
        for (wait, loss) in steps {
            now += wait * MS;
            if loss || !decreased {
                if fast_convergence && cwnd < last_wmax {
                    last_wmax = cwnd;
                    wmax = cwnd * (1.0 + beta) / 2.0;
                } else {
                    last_wmax = cwnd;
                    wmax = cwnd;
                }
                cwnd = (cwnd * beta).max(2.0);
                (last_decrease, decreased) = (now, true);
                window.decrease(now);
            } else {
                if wmax < 2.0 {
                    wmax = cwnd;
                }
                let t = now.since(last_decrease).as_secs_f64();
                let k = (wmax * (1.0 - beta) / 0.4).cbrt();
                let w_cubic = 0.4 * (t - k).powi(3) + wmax;
                let w_est = wmax * beta + 3.0 * (1.0 - beta) / (1.0 + beta) * (t / srtt);
                // At most one segment for one Data; ndnget has no such bound.
                cwnd += ((w_cubic.max(w_est) - cwnd).max(0.0) / cwnd).min(1.0);
                window.increase(now, Some(rtt * MS), 1e9);
            }
            prop_assert!(close(window.size(), cwnd), "{} {}", window.size(), cwnd);
        }
    }

    #[test]
    fn no_window_leaves_its_bounds(
        kind in prop_oneof![Just(WindowKind::AIMD), Just(WindowKind::CUBIC)],
        initial in 0.0f64..50.0, limit in 1.0f64..500.0, delay_exit: bool,
        steps in prop::collection::vec((0u8..4, 0u64..10_000), 0..400),
    ) {
        let options = WindowOptions { kind, initial, delay_exit, ..WindowOptions::default() };
        let mut window = Window::new(options);
        let mut now = Time::ZERO;
        for (n, (step, micros)) in steps.into_iter().enumerate() {
            now += Duration::from_micros(micros);
            match step {
                0 => window.decrease(now),
                1 => window.sample(now, Duration::from_micros(micros), n as u64, n as u64 + 10),
                2 if micros > 9_900 => window.0.restart(),
                _ => {
                    window.increase(now, Some(Duration::from_micros(micros)), limit);
                    prop_assert!(window.size() <= limit.max(1.0));
                }
            }
            prop_assert!(window.size() >= 1.0 && window.size().is_finite());
        }
    }
}

#[derive(Debug)]
enum Told {
    Fetch(FetchEvent),
    Serve,
}

/// Fetches `size` bytes in segments of 8,000 over one simulated link.
fn fetch_over(spec: &LinkSpec, size: usize, options: FetchOptions) -> FetchStats {
    let mut sim: Simulator<AnyMachine<Told>> = Simulator::new(5);
    let content: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
    let source = BytesSource::new(content.clone(), 8000);
    let responder = SegmentResponder::new(
        name("/f/v=1"),
        source,
        digest(),
        ProducerOptions::new(clock(), Time::ZERO),
    );
    let producer = Service::new(responder, Registrar::new(register(), []), SeededRng::new(1));
    let fetcher = Fetcher::new(name("/f/v=1"), options, SeededRng::new(2), Time::ZERO);
    let consumer = sim.add_node(
        "consumer",
        AnyMachine::new(AppFace::new(fetcher), Told::Fetch),
    );
    let serve = |_: ServiceEvent<_>| Told::Serve;
    let producer = sim.add_node("producer", AnyMachine::new(AppFace::new(producer), serve));
    let link = DuplexLink {
        mtu: 9000,
        ..DuplexLink::symmetric(spec.clone())
    };
    sim.connect(consumer, producer, &link).expect("a link");
    sim.run_until_idle(Time::from_secs(300));
    let mut whole = Vec::new();
    while let Some(occurrence) = sim.poll_event() {
        match occurrence.event {
            Told::Fetch(FetchEvent::Segment { content, .. }) => whole.extend_from_slice(&content),
            Told::Fetch(FetchEvent::Done(stats)) => {
                assert!(whole == content, "other bytes");
                return stats;
            }
            Told::Fetch(FetchEvent::Failed { error, .. }) => panic!("{error}"),
            _ => {}
        }
    }
    panic!("not done");
}

fn bottleneck(queue_packets: u64) -> LinkSpec {
    LinkSpec {
        queue: QueueLimit::Packets(queue_packets),
        ..LinkSpec::new(100_000_000, 10 * MS)
    }
}

#[test]
fn slow_start_that_heeds_delay_fills_a_path_without_loss() {
    // 100 Mbit/s and 20 ms are 31 segments; the queue holds four times as many.
    let heeding = fetch_over(&bottleneck(128), 20_000_000, FetchOptions::default());
    assert_eq!(
        (heeding.timeouts, heeding.loss_decreases),
        (0, 0),
        "{heeding:?}"
    );
    assert!(heeding.goodput() > 85e6, "{}", heeding.goodput());
    let window = WindowOptions {
        delay_exit: false,
        ..WindowOptions::default()
    };
    let ndnget = FetchOptions {
        window,
        ..FetchOptions::default()
    };
    let overflowing = fetch_over(&bottleneck(128), 20_000_000, ndnget);
    assert!(
        overflowing.timeouts > 0,
        "without it slow start ends when the queue overflows"
    );
}

#[test]
fn windows_come_through_loss_on_a_simulated_link() {
    for kind in [WindowKind::AIMD, WindowKind::CUBIC] {
        let window = WindowOptions {
            kind,
            ..WindowOptions::default()
        };
        let spec = LinkSpec {
            loss: Loss::Independent(0.01),
            ..bottleneck(64)
        };
        let stats = fetch_over(
            &spec,
            4_000_000,
            FetchOptions {
                window,
                ..FetchOptions::default()
            },
        );
        assert!(
            stats.retransmissions >= 5 && stats.loss_decreases >= 1,
            "{kind:?} {stats:?}"
        );
    }
}
