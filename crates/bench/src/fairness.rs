//! Shares of one bottleneck: Whimbrel beside a TCP, and beside another Whimbrel.

use std::time::Duration;

use serde_json::json;
use whimbrel_lab::CongestionControl;
use whimbrel_lab::scenario::Plan;
use whimbrel_lab::study::Backend;

use crate::{Bench, BenchError, BenchOptions, Part, Quantity, Row, plans};

/// The bottleneck's rate in `fairness.toml`, bit/s.
const RATE: u64 = 20_000_000;
/// Drop-tail buffers in bandwidth-delay products.
const BUFFERS_BDP: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
const QUICK_MEASURED: Duration = Duration::from_secs(5);
/// The bytes of each contender: those of the link to its client's side.
const SHARES: [&str; 2] = ["links.far-R0.forward", "links.far-R1.forward"];
/// The network, its buffers and rivals.
const SCENARIO: &str = include_str!("fairness.toml");

/// The competitor of a Whimbrel transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rival {
    Itself,
    SimulatedCubic,
    Kernel(CongestionControl),
    /// The kernel's BBR, beside the kernel's CUBIC in the place of Whimbrel: what a TCP gets there.
    BbrBesideCubic,
}

impl Rival {
    fn name(self) -> String {
        match self {
            Rival::Itself => String::from("Whimbrel"),
            Rival::SimulatedCubic => String::from("smoltcp cubic"),
            Rival::Kernel(congestion) => format!("kernel {}", congestion.name()),
            Rival::BbrBesideCubic => String::from("kernel bbr"),
        }
    }

    /// Returns what a row calls the pair.
    fn pair(self) -> String {
        match self {
            Rival::BbrBesideCubic => format!("kernel cubic beside {}", self.name()),
            _ => format!("beside {}", self.name()),
        }
    }

    /// Returns the name in the scenario's sweep `beside`.
    fn key(self) -> &'static str {
        match self {
            Rival::Itself => "whimbrel",
            Rival::SimulatedCubic => "cubic",
            Rival::Kernel(congestion) => congestion.name(),
            Rival::BbrBesideCubic => "cubic-and-bbr",
        }
    }
}

pub(crate) fn run(bench: &mut Bench<'_>) {
    for backend in bench.options.backends.clone() {
        let rivals: &[Rival] = match backend {
            Backend::Sim => &[Rival::SimulatedCubic, Rival::Itself],
            Backend::Netns => &[
                Rival::Kernel(CongestionControl::Cubic),
                Rival::Kernel(CongestionControl::Bbr),
                Rival::Itself,
                Rival::BbrBesideCubic,
            ],
        };
        for rival in rivals {
            for buffer_bdp in BUFFERS_BDP {
                if bench.options.quick && buffer_bdp != 1.0 {
                    continue;
                }
                let what = format!("buffer {buffer_bdp} BDP, {}", rival.pair());
                bench.measure(&format!("{what}, {}", backend.name()), |options, _| {
                    let plan = plan(options, backend, *rival, buffer_bdp)?;
                    let run = plans::run(&plan, options, backend)?;
                    let share = |metric: &str| {
                        run.values.get(metric).copied().ok_or_else(|| {
                            BenchError::Simulated(format!("{metric} was not measured"))
                        })
                    };
                    let shares = [share(SHARES[0])?, share(SHARES[1])?];
                    let measured = plan.limit - plan.warm_up;
                    Ok(vec![row(
                        backend, what, *rival, buffer_bdp, measured, shares,
                    )])
                });
            }
        }
    }
}

/// `bytes` of both contenders, in IP packets.
fn row(
    backend: Backend,
    what: String,
    rival: Rival,
    buffer_bdp: f64,
    measured: Duration,
    bytes: [f64; 2],
) -> Row {
    let rates = bytes.map(|bytes| bytes * 8.0 / measured.as_secs_f64());
    let both = rates[0] + rates[1];
    Row {
        part: Part::Fairness,
        backend: Some(backend),
        what,
        ours: Quantity::BitPerS(rates[0]),
        peer: Some((rival.name(), Quantity::BitPerS(rates[1]))),
        target: None,
        note: (rival == Rival::BbrBesideCubic)
            .then(|| "for comparison: the first rate is kernel cubic's".into()),
        details: json!({
            "buffer_bdp": buffer_bdp,
            "measured_ns": measured.as_nanos() as u64,
            "ours_share": rates[0] / both,
            "used_share": both / RATE as f64,
        }),
    }
}

fn plan(
    options: &BenchOptions,
    backend: Backend,
    rival: Rival,
    buffer_bdp: f64,
) -> Result<Plan, BenchError> {
    let wanted = [
        ("buffer", buffer_bdp.to_string()),
        ("beside", rival.key().to_owned()),
    ];
    let mut plan = plans::plan("fairness.toml", SCENARIO, options, backend, &wanted)?;
    if options.quick {
        plan.limit = plan.warm_up + QUICK_MEASURED;
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_sim::link::{LinkSpec, QueueLimit};

    fn options() -> BenchOptions {
        BenchOptions {
            backends: Backend::ALL.to_vec(),
            quick: true,
            seed: 1,
            program: "whimbrel".into(),
            ndnd: None,
        }
    }

    #[test]
    fn every_row_has_its_setting() {
        let kernel = [CongestionControl::Cubic, CongestionControl::Bbr].map(Rival::Kernel);
        for backend in Backend::ALL {
            for rival in [Rival::Itself, Rival::SimulatedCubic, Rival::BbrBesideCubic]
                .into_iter()
                .chain(kernel)
            {
                for buffer_bdp in BUFFERS_BDP {
                    let plan = plan(&options(), backend, rival, buffer_bdp).unwrap();
                    let link = &plan.network.links[plan.network.link("bottleneck").unwrap()];
                    let rtt = Duration::from_millis(50);
                    let buffer = (RATE as f64 / 8.0 * rtt.as_secs_f64() * buffer_bdp) as u64;
                    let spec = LinkSpec::new(RATE, rtt / 2).with_queue(QueueLimit::Bytes(buffer));
                    assert_eq!((&link.forward, &link.backward), (&spec, &spec));
                }
            }
        }
    }

    #[test]
    fn a_bottleneck_is_used_and_every_pair_gets_something() {
        for rival in [Rival::SimulatedCubic, Rival::Itself] {
            // In the first seconds the simulated CUBIC may wait for a timeout.
            let options = BenchOptions {
                quick: false,
                ..options()
            };
            let plan = plan(&options, Backend::Sim, rival, 1.0).unwrap();
            let run = plans::run(&plan, &options, Backend::Sim).unwrap();
            let shares = SHARES.map(|metric| run.values[metric]);
            assert!(
                shares.iter().all(|bytes| *bytes > 0.0),
                "{}: {shares:?}",
                rival.pair()
            );
            let carried = RATE as f64 / 8.0 * (plan.limit - plan.warm_up).as_secs_f64();
            let used = shares.iter().sum::<f64>() / carried;
            // A little may have waited behind the bottleneck when the measurement began.
            assert!((0.5..=1.01).contains(&used), "{shares:?}");
        }
    }
}
