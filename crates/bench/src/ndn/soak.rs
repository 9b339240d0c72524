//! The soak: a router at half of its peak load for minutes. Its memory must not grow, and no packet
//! may be lost.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use whimbrel_lab::scratch;

use super::exchange::{FULL, Timing, finished, start_consumer, start_producer};
use super::process::RunningRouter;
use crate::BenchError;
use crate::usage::resident_bytes;

/// Octets of a whole Data packet.
const DATA_SIZE: usize = 1_000;
const WINDOW: usize = 512;
/// Maximum of pending Interests at half load: more than at full load, because a consumer that was
/// not scheduled for a while has to catch up.
const SOAK_WINDOW: usize = 2_048;
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Memory may grow in the first minute, or the first third of a short soak.
const WARM_UP: Duration = Duration::from_secs(60);
/// Growth that counts as noise: this fraction, and at least this many bytes.
const NOISE: f64 = 0.01;
const NOISE_BYTES: f64 = 1024.0 * 1024.0;

/// Options of the soak.
#[derive(Clone, Debug)]
pub struct SoakOptions {
    /// The whimbrel binary.
    pub program: PathBuf,
    /// Duration of the load.
    pub duration: Duration,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct SoakReport {
    /// The router's peak, exchanges per second.
    pub peak_exchanges_per_s: f64,
    /// The requested rate, half of the peak.
    pub rate_exchanges_per_s: f64,
    /// The reached rate.
    pub reached_exchanges_per_s: f64,
    /// Seconds of load.
    pub seconds: f64,
    /// Interests sent.
    pub sent: u64,
    /// Interests without an answer.
    pub lost: u64,
    /// Interests answered with a Nack.
    pub nacks: u64,
    /// The router's resident memory: the maximum in the warm-up.
    pub warm_up_bytes: u64,
    /// The maximum after it.
    pub max_bytes: u64,
    /// Samples per second, from the beginning of the load on.
    pub samples_bytes: Vec<u64>,
    /// True if memory did not grow beyond noise.
    pub memory_holds: bool,
    /// True if no packet was lost, and most of the rate was reached.
    pub complete: bool,
}

impl SoakReport {
    /// Returns whether the router has passed.
    pub fn passed(&self) -> bool {
        self.memory_holds && self.complete
    }

    /// For people.
    pub fn text(&self) -> String {
        let mebi = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let word = |good: bool| if good { "yes" } else { "NO" };
        format!(
            "peak     {:.0} exchanges/s of {DATA_SIZE} bytes\n\
             load     {:.0} exchanges/s requested, {:.0} reached, for {:.0} s\n\
             memory   {:.1} MiB at most in the warm-up, {:.1} MiB at most afterwards: holds: {}\n\
             loss     {} of {} lost, {} Nacks: complete: {}\n\
             verdict  {}\n",
            self.peak_exchanges_per_s,
            self.rate_exchanges_per_s,
            self.reached_exchanges_per_s,
            self.seconds,
            mebi(self.warm_up_bytes),
            mebi(self.max_bytes),
            word(self.memory_holds),
            self.lost,
            self.sent,
            self.nacks,
            word(self.complete),
            if self.passed() { "passed" } else { "FAILED" },
        )
    }
}

/// Finds the peak, then keeps the router at half of it. Reports each step to `progress`.
pub fn soak(
    options: &SoakOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<SoakReport, BenchError> {
    let folder = scratch::folder("whimbrel-bench-")?;
    let folder = folder.path();
    let router = RunningRouter::start(&options.program, folder, "router", None)?;
    let _producer = start_producer(&options.program, folder, &router.socket, DATA_SIZE, true)?;
    progress("measuring the peak");
    let peak = peak(&options.program, folder, &router.socket)?;
    let rate = peak / 2.0;
    let timing = Timing {
        warm_up: Duration::ZERO,
        duration: options.duration,
    };
    let consumer = start_consumer(
        &options.program,
        folder,
        &router.socket,
        SOAK_WINDOW,
        Some(rate as u32),
        timing,
    )?;
    consumer.ready("counting")?;
    let (start, mut samples) = (Instant::now(), Vec::new());
    loop {
        samples.push(resident_bytes(router.process.id())?);
        let next = start + SAMPLE_EVERY * samples.len() as u32;
        let line = consumer.line(next.saturating_duration_since(Instant::now()))?;
        if line.is_some_and(|line| line.text.contains("counted")) {
            break;
        }
        let at = start.elapsed();
        if at > options.duration + Duration::from_secs(60) {
            return Err(BenchError::Side {
                what: String::from("the consumer does not end"),
                said: String::new(),
            });
        }
        let mebibytes = samples.last().map_or(0, |bytes| bytes >> 20);
        progress(&format!(
            "{:.0} exchanges/s for {} s, {mebibytes} MiB",
            rate,
            at.as_secs()
        ));
    }
    let consumed = finished(&consumer)?;
    let warm_up = WARM_UP.min(options.duration / 3).as_secs() as usize + 1;
    let (early, rest) = samples.split_at(warm_up.min(samples.len().saturating_sub(1)));
    let most = |samples: &[u64]| samples.iter().max().copied().unwrap_or(0);
    let (warm_up_bytes, max_bytes) = (most(early), most(rest));
    let reached = consumed.rate();
    Ok(SoakReport {
        peak_exchanges_per_s: peak,
        rate_exchanges_per_s: rate,
        reached_exchanges_per_s: reached,
        seconds: consumed.seconds,
        sent: consumed.sent,
        lost: consumed.lost,
        nacks: consumed.nacks,
        warm_up_bytes,
        max_bytes,
        samples_bytes: samples,
        memory_holds: (max_bytes as f64)
            <= warm_up_bytes as f64 + (warm_up_bytes as f64 * NOISE).max(NOISE_BYTES),
        complete: consumed.lost + consumed.nacks == 0 && reached >= rate * 0.9,
    })
}

/// Returns the median of three runs at full speed, on the router to be soaked.
fn peak(program: &Path, folder: &Path, socket: &Path) -> Result<f64, BenchError> {
    let mut rates = Vec::new();
    for _ in 0..3 {
        let consumer = start_consumer(program, folder, socket, WINDOW, None, FULL)?;
        rates.push(finished(&consumer)?.rate());
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates.get(1).copied().unwrap_or(0.0))
}
