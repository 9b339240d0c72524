//! `loss` and `lossless`: goodput over the testbed of [MFTP §5], Fig. 7, with its WiFi as the last
//! hop.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use whimbrel_lab::study::Backend;
use whimbrel_lab::{CongestionControl, Fig7, TransferRecord, fetches};
use whimbrel_sim::link::Loss;
use whimbrel_sim::link::presets::preset;

use crate::{Bench, BenchError, BenchOptions, Part, Quantity, Row, Target};

/// Round trips between the routers that the target names, in milliseconds.
const RTTS_MS: [u64; 3] = [10, 50, 100];
/// Loss on the last hop, each way.
const LOSS: f64 = 0.01;
/// Bytes of the file: long enough that the start is negligible. A transfer in namespaces takes real
/// time.
/// long as it takes.
const SIMULATED_BYTES: u64 = 400_000_000;
const NAMESPACE_BYTES: u64 = 40_000_000;
const QUICK_BYTES: u64 = 8_000_000;

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
        let record = transfer(options, backend, mover, &testbed(rtt_ms, lossy))?;
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

fn testbed(rtt_ms: u64, lossy: bool) -> Fig7 {
    let wifi = preset("wifi-80211g-54")
        .map(|preset| preset.downlink)
        .unwrap_or_default();
    // smoltcp needs a queue of at least its receive buffer of 2 MB (`whimbrel_sim::tcp`); as in the
    // study mftp-fig8.
    let wifi = wifi.with_queue(whimbrel_sim::link::QueueLimit::Packets(2_000));
    let loss = if lossy {
        Loss::Independent(LOSS)
    } else {
        Loss::None
    };
    Fig7::new(Duration::from_millis(rtt_ms), wifi.with_loss(loss))
}

fn transfer(
    options: &BenchOptions,
    backend: Backend,
    mover: Mover,
    fig7: &Fig7,
) -> Result<TransferRecord, BenchError> {
    let (simulated, namespaces) = if options.quick {
        (QUICK_BYTES, QUICK_BYTES)
    } else {
        (SIMULATED_BYTES, NAMESPACE_BYTES)
    };
    let seed = options.seed;
    if backend == Backend::Sim {
        return Ok(match mover {
            Mover::Whimbrel => fetches::whimbrel_in_simulator(fig7, simulated, seed)?,
            _ => fetches::tcp_in_simulator(fig7, simulated, seed),
        });
    }
    let folder = tempfile::tempdir().map_err(BenchError::system("make a temporary folder"))?;
    let file = folder.path().join("file");
    whimbrel_lab::demo::make_file(&file, namespaces, seed)?;
    let tcp = |congestion| fetches::tcp_in_namespaces(congestion, fig7, &file, seed);
    Ok(match mover {
        Mover::Whimbrel => fetches::whimbrel_in_namespaces(&options.program, fig7, &file, seed)?,
        Mover::Bbr => tcp(CongestionControl::Bbr)?,
        Mover::Cubic | Mover::SimulatedCubic => tcp(CongestionControl::Cubic)?,
    })
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
