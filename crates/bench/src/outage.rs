//! How soon a transfer resumes after its last hop was out.
//!
//! Two moments are measured, both from the link's return: when the first payload crosses the last
//! hop, and when the client's host has another whole chunk. The second one includes the time that
//! the link needs to carry the rest of the interrupted chunk: up to 0.3 s for a chunk of a mebibyte
//! over this WiFi. So the target applies to the first one, "the transfer resumes", and the second
//! one is information for users of whole chunks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use whimbrel_core::Time;
use whimbrel_lab::study::Backend;
use whimbrel_lab::{
    Fig7, Fig7Daemons, RepeatingContent, SimulatedFig7, SimulatedFig7Options, Topology,
    TransferObserver,
};
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};
use whimbrel_node::local_client::{LocalClient, LocalError};
use whimbrel_sim::Direction;
use whimbrel_sim::link::presets::preset;
use whimbrel_sim::link::{LinkSpec, Outage};

use crate::{Bench, BenchError, BenchOptions, Part, Quantity, Row, Target};

const RTTS_MS: [u64; 2] = [50, 100];
const OUTAGES_S: [u64; 2] = [1, 10];
/// The target's allowance beyond a round trip.
const ALLOWANCE: Duration = Duration::from_millis(100);
/// From the request to the outage: the transfer has found its rate by then.
const BEFORE: Duration = Duration::from_secs(3);
/// Each run's outage begins this much later than that of the run before, so that it hits chunks,
/// probes and rounds at different points: a prime number of milliseconds.
const SHIFT: Duration = Duration::from_millis(37);
/// Bytes of the file: more than the WiFi carries before the outage and for some seconds after it.
const FILE_BYTES: u64 = 24_000_000;
/// After this long without payload the transfer counts as stopped.
const PATIENCE: Duration = Duration::from_secs(60);
/// Frames of Hop that are larger than this carry payload: the others are at most a few hundred
/// bytes.
const PAYLOAD_FRAME: u64 = 1_000;
/// Interval of status requests to the client's host: the resolution of measurements in namespaces.
const LOOK_INTERVAL: Duration = Duration::from_millis(3);

/// Times from the link's return.
#[derive(Clone, Copy)]
struct Moves {
    first_payload: Duration,
    first_chunk: Duration,
}

pub(crate) fn run(bench: &mut Bench<'_>) {
    for backend in bench.options.backends.clone() {
        for outage_s in OUTAGES_S {
            for rtt_ms in RTTS_MS {
                if bench.options.quick && (outage_s, rtt_ms) != (OUTAGES_S[0], RTTS_MS[0]) {
                    continue;
                }
                let what = format!("out for {outage_s} s, RTT {rtt_ms} ms");
                bench.measure(&what, |options, tell| {
                    let runs = runs(options, backend, outage_s);
                    let mut moves = Vec::new();
                    for run in 0..runs {
                        tell(&format!(
                            "{what}, {}, run {} of {runs}",
                            backend.name(),
                            run + 1
                        ));
                        let scenario = Scenario::new(rtt_ms, outage_s, run);
                        moves.push(match backend {
                            Backend::Sim => scenario.simulate(options.seed)?,
                            Backend::Netns => scenario.measure(options)?,
                        });
                    }
                    Ok(rows(backend, &what, rtt_ms, &moves))
                });
            }
        }
    }
}

fn runs(options: &BenchOptions, backend: Backend, outage_s: u64) -> u32 {
    match (options.quick, backend) {
        (true, _) => 1,
        (false, Backend::Sim) => 20,
        (false, Backend::Netns) => {
            if outage_s > 1 {
                3
            } else {
                5
            }
        }
    }
}

/// The worst run is used: the target applies after each outage.
fn rows(backend: Backend, what: &str, rtt_ms: u64, moves: &[Moves]) -> Vec<Row> {
    let allowed = Duration::from_millis(rtt_ms) + ALLOWANCE;
    let row = |what: String, target: Option<Target>, times: Vec<Duration>| {
        let nanos = |time: &Duration| time.as_nanos() as f64;
        let mut sorted: Vec<f64> = times.iter().map(nanos).collect();
        sorted.sort_by(f64::total_cmp);
        Row {
            part: Part::Outage,
            backend: Some(backend),
            what,
            ours: Quantity::Ns(sorted.last().copied().unwrap_or(f64::NAN)),
            peer: Some((String::from("allowed"), Quantity::Ns(nanos(&allowed)))),
            target,
            note: None,
            details: details(&sorted),
        }
    };
    vec![
        row(
            format!("{what}: payload"),
            Some(Target::AtMost(1.0)),
            moves.iter().map(|run| run.first_payload).collect(),
        ),
        row(
            format!("{what}: a whole chunk"),
            None,
            moves.iter().map(|run| run.first_chunk).collect(),
        ),
    ]
}

fn details(sorted_ns: &[f64]) -> Value {
    json!({ "runs_ns": sorted_ns, "median_ns": sorted_ns.get(sorted_ns.len() / 2) })
}

/// One outage.
struct Scenario {
    rtt: Duration,
    /// Counted from the request.
    begins: Duration,
    lasts: Duration,
}

impl Scenario {
    fn new(rtt_ms: u64, outage_s: u64, run: u32) -> Scenario {
        Scenario {
            rtt: Duration::from_millis(rtt_ms),
            begins: BEFORE + SHIFT * run,
            lasts: Duration::from_secs(outage_s),
        }
    }

    /// The testbed with an outage whose schedule counts from `request_at`.
    fn testbed(&self, request_at: Duration) -> Fig7 {
        let wifi = preset("wifi-80211g-54")
            .map(|preset| preset.downlink)
            .unwrap_or_default();
        let outage = Outage::Once {
            start: request_at + self.begins,
            duration: self.lasts,
        };
        Fig7::new(
            self.rtt,
            LinkSpec {
                outages: vec![outage],
                ..wifi
            },
        )
    }

    fn simulate(&self, seed: u64) -> Result<Moves, BenchError> {
        // The hosts attach and the content is announced before this.
        let request_at = Duration::from_secs(2);
        let mut world = SimulatedFig7::new(
            &self.testbed(request_at),
            SimulatedFig7Options::default(),
            seed,
        );
        let content = RepeatingContent::new(FILE_BYTES, 1);
        let name = content.name();
        world.publish(content);
        world.run_until(Time::ZERO + request_at);
        let transfer = world.get(name);
        let returns = Time::ZERO + request_at + self.begins + self.lasts;
        world.run_until(returns);
        let before = world.received(transfer);
        if before == 0 || before >= FILE_BYTES {
            return Err(BenchError::Simulated(format!(
                "the outage met no transfer: {before} bytes had arrived"
            )));
        }
        let last_hop = world.links[2];
        let carried = |world: &SimulatedFig7| {
            world
                .sim
                .link_stats(last_hop, Direction::AToB)
                .delivered_bytes
        };
        let (mut bytes, mut first_payload) = (carried(&world), None);
        while world.received(transfer) == before && world.sim.now() < returns + PATIENCE {
            world.step();
            let now = carried(&world);
            if now - bytes > PAYLOAD_FRAME && first_payload.is_none() {
                first_payload = Some(world.sim.now().since(returns));
            }
            bytes = now;
        }
        match first_payload {
            Some(first_payload) if world.received(transfer) > before => Ok(Moves {
                first_payload,
                first_chunk: world.sim.now().since(returns),
            }),
            _ => Err(unmoved(before)),
        }
    }

    fn measure(&self, options: &BenchOptions) -> Result<Moves, BenchError> {
        let folder = tempfile::tempdir().map_err(BenchError::system("make a temporary folder"))?;
        let file = folder.path().join("file");
        whimbrel_lab::demo::make_file(&file, FILE_BYTES, options.seed)?;
        let topology = self.testbed(Duration::ZERO).build(options.seed)?;
        let mut daemons = Fig7Daemons::start(&options.program, &topology, folder.path())?;
        let name = daemons.serve(&file)?;
        let host = LocalClient::connect(&daemons.socket(4)).map_err(|error| BenchError::Side {
            what: String::from("the client's host did not report its status"),
            said: error.to_string(),
        })?;
        let (started, ended) = (OnceLock::new(), AtomicBool::new(false));
        let looks = std::thread::scope(|scope| {
            let watching = scope.spawn(|| watch(host, &ended));
            let mut schedule = Schedule {
                topology: &topology,
                started: &started,
            };
            let patience = self.begins + self.lasts + PATIENCE;
            let fetched = daemons.fetch(
                &name,
                &folder.path().join("arrived"),
                patience,
                &mut schedule,
            );
            ended.store(true, Ordering::Relaxed);
            let looks = watching.join().unwrap_or_default();
            fetched.map(|_| looks)
        })?;
        let returns = *started.get_or_init(Instant::now) + self.begins + self.lasts;
        evaluate(&looks, returns)
    }
}

fn unmoved(bytes: u64) -> BenchError {
    BenchError::Unfinished {
        side: String::from("Whimbrel"),
        bytes,
        patience_s: PATIENCE.as_secs(),
    }
}

/// Starts the outage's schedule with the request.
struct Schedule<'a> {
    topology: &'a Topology,
    started: &'a OnceLock<Instant>,
}

impl TransferObserver for Schedule<'_> {
    fn started(&mut self, at: Instant) {
        if let Err(fault) = self.topology.arm(at) {
            tracing::warn!(%fault, "the outage cannot be started");
        }
        let _ = self.started.set(at);
    }
}

/// Time limit of a status answer before it is requested again.
const ANSWER_PATIENCE: Duration = Duration::from_millis(200);

/// The progress of the client's host at a moment.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    /// DATA frames that it accepted from its router.
    frames: u64,
    /// Bytes of whole chunks that it received.
    bytes: u64,
}

/// Polls the host until the transfer has ended.
fn watch(mut host: LocalClient, ended: &AtomicBool) -> Vec<Look> {
    let mut looks = Vec::new();
    let mut request = 0;
    while !ended.load(Ordering::Relaxed) {
        request += 1;
        if host.send(&LocalRequest::Status { request }).is_err() {
            break;
        }
        match answer(&mut host, request) {
            Ok(Some(status)) => looks.extend(look(&status)),
            Ok(None) => tracing::warn!(request, "the client's host has not reported its status"),
            Err(error) => {
                tracing::warn!(%error, "the client's host is gone");
                break;
            }
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    looks
}

/// The answer to one request; `None` if it does not come in time.
fn answer(host: &mut LocalClient, asked: u32) -> Result<Option<String>, LocalError> {
    let until = Instant::now() + ANSWER_PATIENCE;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        match host.receive(left)? {
            Some(LocalEvent::Status { request, json }) if request == asked => {
                return Ok(Some(json));
            }
            Some(_) => {}
            None => break,
        }
    }
    Ok(None)
}

fn look(status: &str) -> Option<Look> {
    let at = Instant::now();
    let status: Value = serde_json::from_str(status).ok()?;
    let links = status["links"].as_array()?;
    let sum = |key: &str| {
        links
            .iter()
            .map(|link| link["hop"][key].as_u64())
            .sum::<Option<u64>>()
    };
    Some(Look {
        at,
        frames: sum("data_received")?,
        bytes: sum("chunk_bytes_received")?,
    })
}

fn evaluate(looks: &[Look], returns: Instant) -> Result<Moves, BenchError> {
    let split = looks.partition_point(|look| look.at < returns);
    let (before, after) = looks.split_at(split);
    let out = before.last().ok_or_else(|| unmoved(0))?;
    let moved = |grown: &dyn Fn(&Look) -> bool| {
        let look = after
            .iter()
            .find(|look| grown(look))
            .ok_or_else(|| unmoved(out.bytes))?;
        Ok::<_, BenchError>(look.at - returns)
    };
    Ok(Moves {
        first_payload: moved(&|look| look.frames > out.frames)?,
        first_chunk: moved(&|look| look.bytes > out.bytes)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_before_the_return_does_not_count() {
        let start = Instant::now();
        let look = |ms, frames, bytes| Look {
            at: start + Duration::from_millis(ms),
            frames,
            bytes,
        };
        let looks = [
            look(0, 1, 0),
            look(10, 5, 7),
            look(90, 5, 7),
            look(130, 6, 7),
            look(300, 9, 8),
        ];
        let moves = evaluate(&looks, start + Duration::from_millis(100)).unwrap();
        assert_eq!(moves.first_payload, Duration::from_millis(30));
        assert_eq!(moves.first_chunk, Duration::from_millis(200));
        assert!(evaluate(&looks[..3], start + Duration::from_millis(100)).is_err());
        assert!(
            evaluate(&looks, start).is_err(),
            "nothing is known of the time before"
        );
    }
}
