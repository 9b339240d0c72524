//! `loss` and `lossless`: goodput over the testbed of [MFTP §5], Fig. 7, with its WiFi as the last
//! hop.

use std::collections::BTreeMap;

use serde_json::json;
use whimbrel_lab::TransferRecord;
use whimbrel_lab::scenario::Plan;
use whimbrel_lab::scenario::load::Kind;
use whimbrel_lab::study::Backend;

use crate::{Bench, BenchError, BenchOptions, Part, Quantity, Row, Target, plans};

/// Round trips between the routers that the target names, in milliseconds.
const RTTS_MS: [u64; 3] = [10, 50, 100];
/// Loss on the last hop, each way, in the lossy runs.
const LOSS: f64 = 0.01;
/// Bytes of the file in a quick run.
const QUICK_BYTES: u64 = 8_000_000;
/// The testbed, its round trips, losses and rivals.
const SCENARIO: &str = include_str!("goodput.toml");

/// The program that moves the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mover {
    Whimbrel,
    SimulatedCubic,
    Cubic,
    Bbr,
}

impl Mover {
    const fn name(self) -> &'static str {
        match self {
            Mover::Whimbrel => "Whimbrel",
            Mover::SimulatedCubic => "smoltcp cubic",
            Mover::Cubic => "kernel cubic",
            Mover::Bbr => "kernel bbr",
        }
    }

    /// Returns the name in the scenario's sweep `by`.
    const fn key(self) -> &'static str {
        match self {
            Mover::Whimbrel => "whimbrel",
            Mover::SimulatedCubic | Mover::Cubic => "cubic",
            Mover::Bbr => "bbr",
        }
    }
}

/// Goodputs of finished transfers, by back end, mover, round trip and loss: both parts use
/// Whimbrel's lossless one.
#[derive(Default)]
pub(crate) struct Goodputs {
    known: BTreeMap<(&'static str, Mover, u64, bool), f64>,
}

impl Goodputs {
    /// In bits per second.
    fn of(
        &mut self,
        options: &BenchOptions,
        backend: Backend,
        mover: Mover,
        rtt_ms: u64,
        lossy: bool,
    ) -> Result<f64, BenchError> {
        let key = (backend.name(), mover, rtt_ms, lossy);
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let plan = plan(options, backend, mover, rtt_ms, lossy)?;
        let record = transfer(options, backend, &plan)?;
        if !record.completed {
            let patience_s = record.finished as u64;
            return Err(BenchError::Unfinished {
                side: mover.name().to_owned(),
                bytes: record.bytes,
                patience_s,
            });
        }
        self.known.insert(key, record.goodput());
        Ok(record.goodput())
    }
}

fn plan(
    options: &BenchOptions,
    backend: Backend,
    mover: Mover,
    rtt_ms: u64,
    lossy: bool,
) -> Result<Plan, BenchError> {
    let wanted = [
        ("rtt", rtt_ms.to_string()),
        ("loss", String::from(if lossy { "some" } else { "none" })),
        ("by", mover.key().to_owned()),
    ];
    let mut plan = plans::plan("goodput.toml", SCENARIO, options, backend, &wanted)?;
    if options.quick {
        plan.loads[0].kind = Kind::File(QUICK_BYTES);
    }
    Ok(plan)
}

fn transfer(
    options: &BenchOptions,
    backend: Backend,
    plan: &Plan,
) -> Result<TransferRecord, BenchError> {
    let run = plans::run(plan, options, backend)?;
    let fetched = run.transfers.into_iter().next();
    fetched
        .map(|fetched| fetched.record)
        .ok_or_else(|| BenchError::Simulated(String::from("the file was not requested")))
}

/// The cost of loss.
pub(crate) fn loss(bench: &mut Bench<'_>, goodputs: &mut Goodputs) {
    for backend in bench.options.backends.clone() {
        for rtt_ms in RTTS_MS {
            let what = format!("RTT {rtt_ms} ms");
            bench.measure(&format!("{what}, {}", backend.name()), |options, _| {
                let lossless = goodputs.of(options, backend, Mover::Whimbrel, rtt_ms, false)?;
                let lossy = goodputs.of(options, backend, Mover::Whimbrel, rtt_ms, true)?;
                Ok(vec![Row {
                    part: Part::Loss,
                    backend: Some(backend),
                    what,
                    ours: Quantity::BitPerS(lossy),
                    peer: Some((String::from("lossless"), Quantity::BitPerS(lossless))),
                    target: Some(Target::AtLeast(0.95)),
                    note: None,
                    details: json!({ "rtt_ns": rtt_ms * 1_000_000, "loss": LOSS }),
                }])
            });
        }
    }
}

/// Comparison with TCP.
pub(crate) fn lossless(bench: &mut Bench<'_>, goodputs: &mut Goodputs) {
    for backend in bench.options.backends.clone() {
        let rivals: &[(Mover, Option<Target>)] = match backend {
            Backend::Sim => &[(Mover::SimulatedCubic, Some(Target::AtLeast(1.0)))],
            Backend::Netns => &[
                (Mover::Cubic, Some(Target::AtLeast(1.0))),
                (Mover::Bbr, None),
            ],
        };
        for rtt_ms in RTTS_MS {
            for (rival, target) in rivals.iter().copied() {
                let what = format!("RTT {rtt_ms} ms");
                bench.measure(&format!("{what}, {}", rival.name()), |options, _| {
                    let ours = goodputs.of(options, backend, Mover::Whimbrel, rtt_ms, false)?;
                    let theirs = goodputs.of(options, backend, rival, rtt_ms, false)?;
                    Ok(vec![Row {
                        part: Part::Lossless,
                        backend: Some(backend),
                        what,
                        ours: Quantity::BitPerS(ours),
                        peer: Some((rival.name().to_owned(), Quantity::BitPerS(theirs))),
                        target,
                        note: None,
                        details: json!({ "rtt_ns": rtt_ms * 1_000_000 }),
                    }])
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transfer_has_its_setting() {
        let options = BenchOptions {
            backends: Backend::ALL.to_vec(),
            quick: true,
            seed: 1,
            program: "whimbrel".into(),
            ndnd: None,
        };
        for backend in Backend::ALL {
            for mover in [Mover::Whimbrel, Mover::Cubic, Mover::Bbr] {
                for rtt_ms in RTTS_MS {
                    for lossy in [false, true] {
                        plan(&options, backend, mover, rtt_ms, lossy).unwrap();
                    }
                }
            }
        }
    }
}
