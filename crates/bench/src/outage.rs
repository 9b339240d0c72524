//! How soon a transfer resumes after its last hop was out.
//!
//! Two moments are measured, both from the link's return: when the first payload crosses the last
//! hop, and when the client's host has another whole chunk. The second one includes the time that
//! the link needs to carry the rest of the interrupted chunk: up to 0.3 s for a chunk of a mebibyte
//! over this WiFi. So the target applies to the first one, "the transfer resumes", and the second
//! one is information for users of whole chunks.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use whimbrel_client::{LocalClient, LocalError};
use whimbrel_core::{PortId, Time};
use whimbrel_lab::LabError;
use whimbrel_lab::scenario::{Overrides, Plan, Scenario as Written, netns, sim};
use whimbrel_lab::study::Backend;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};
use whimbrel_sim::link::Outage;
use whimbrel_sim::trace::{TraceKind, TraceRecord, TraceSink};

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
/// The testbed and its file.
const SCENARIO: &str = include_str!("outage.toml");
/// The link where round-trip time is added, the link that goes out, and the client.
const ROUTER_LINK: &str = "N2-N3";
const LAST_HOP: &str = "N3-N4";
const CLIENT: &str = "N4";
/// After this long without payload the transfer counts as stopped.
const PATIENCE: Duration = Duration::from_secs(60);
/// Packets larger than this carry payload: Hop's other frames are at most a few hundred bytes.
const PAYLOAD_PACKET: usize = 1_000;
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

    /// Returns the testbed with the outage.
    fn plan(&self, seed: u64) -> Result<Plan, BenchError> {
        let overrides = Overrides {
            seed: Some(seed),
            ..Overrides::default()
        };
        let written = Written::parse(Path::new("outage.toml"), SCENARIO, overrides);
        let mut written = written.map_err(LabError::from)?;
        let mut plan = written.settings.swap_remove(0).plan;
        let outage = Outage::Once {
            start: self.begins,
            duration: self.lasts,
        };
        for link in &mut plan.network.links {
            for way in [&mut link.forward, &mut link.backward] {
                match link.name.as_str() {
                    ROUTER_LINK => way.delay = self.rtt / 2,
                    LAST_HOP => way.outages = vec![outage],
                    _ => {}
                }
            }
        }
        plan.limit = self.returns() + PATIENCE;
        Ok(plan)
    }

    /// From the request to the link's return.
    fn returns(&self) -> Duration {
        self.begins + self.lasts
    }

    fn simulate(&self, seed: u64) -> Result<Moves, BenchError> {
        let plan = self.plan(seed)?;
        let mut simulated = Simulated {
            last_hop: plan.network.link(LAST_HOP).unwrap_or_default(),
            returns: self.returns(),
            payload: Rc::default(),
            before: 0,
            first_chunk: None,
        };
        sim::observe(&plan, seed, &mut simulated)?;
        let first_payload = simulated.payload.borrow().first;
        match (simulated.before, first_payload, simulated.first_chunk) {
            (0, ..) => Err(BenchError::Simulated(String::from(
                "no chunk had arrived when the outage began",
            ))),
            (_, Some(first_payload), Some(first_chunk)) => Ok(Moves {
                first_payload,
                first_chunk,
            }),
            (before, ..) => Err(unmoved(before)),
        }
    }

    fn measure(&self, options: &BenchOptions) -> Result<Moves, BenchError> {
        let plan = self.plan(options.seed)?;
        let (sender, begun) = mpsc::channel();
        let begins = Begins {
            client: plan.network.node(CLIENT).unwrap_or_default(),
            sender: std::sync::Mutex::new(sender),
        };
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ended = &ended;
            let watching = scope.spawn(move || {
                // Fails if nothing begins.
                let (origin, socket) = begun.recv().ok()?;
                Some((
                    origin,
                    LocalClient::connect(&socket).map(|host| watch(host, ended)),
                ))
            });
            let observed = netns::observe(&plan, options.seed, &options.program, &begins);
            ended.store(true, Ordering::Relaxed);
            drop(begins);
            let watched = watching.join().ok().flatten();
            observed?;
            let (origin, looks) = watched.ok_or_else(|| unmoved(0))?;
            let looks = looks.map_err(|error| BenchError::Side {
                what: String::from("the client's host did not report its status"),
                said: error.to_string(),
            })?;
            evaluate(&looks, origin + self.returns())
        })
    }
}

fn unmoved(bytes: u64) -> BenchError {
    BenchError::Unfinished {
        side: String::from("Whimbrel"),
        bytes,
        patience_s: PATIENCE.as_secs(),
    }
}

/// Watches for payload after the link's return.
struct Simulated {
    last_hop: usize,
    /// From the run's origin, which is the request.
    returns: Duration,
    payload: Rc<RefCell<Payload>>,
    /// Bytes of chunks that had arrived by then.
    before: u64,
    first_chunk: Option<Duration>,
}

impl sim::observe::Observer for Simulated {
    fn trace(&mut self, origin: Time, links: &[(PortId, PortId)]) -> Option<Box<dyn TraceSink>> {
        let (_, client) = links.get(self.last_hop)?;
        *self.payload.borrow_mut() = Payload {
            port: Some(*client),
            returns: origin + self.returns,
            first: None,
        };
        Some(Box::new(self.payload.clone()))
    }

    fn arrived(&mut self, _load: usize, _receiver: usize, at: Duration, bytes: u64) {
        match at.checked_sub(self.returns) {
            None => self.before += bytes,
            Some(late) => {
                self.first_chunk.get_or_insert(late);
            }
        }
    }
}

/// Finds the first payload that crosses the last hop.
struct Payload {
    port: Option<PortId>,
    returns: Time,
    first: Option<Duration>,
}

impl Default for Payload {
    fn default() -> Payload {
        Payload {
            port: None,
            returns: Time::ZERO,
            first: None,
        }
    }
}

impl TraceSink for Payload {
    fn record(&mut self, record: &TraceRecord<'_>) {
        let comes = record.kind == TraceKind::Deliver && Some(record.port) == self.port;
        if comes && record.time >= self.returns && record.frame.len() > PAYLOAD_PACKET {
            self.first.get_or_insert(record.time.since(self.returns));
        }
    }
}

/// Tells when a run begins, and where its client's host listens.
struct Begins {
    client: usize,
    sender: std::sync::Mutex<mpsc::Sender<(Instant, PathBuf)>>,
}

impl netns::observe::Observer for Begins {
    fn begins(&self, origin: Instant, socket: &dyn Fn(usize) -> PathBuf) {
        if let Ok(sender) = self.sender.lock() {
            // The receiver is gone only if the run is over.
            let _ = sender.send((origin, socket(self.client)));
        }
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

/// Returns the answer to one request; `None` if it does not come in time.
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
    fn a_simulated_transfer_moves_again_when_its_link_returns() {
        let scenario = Scenario::new(50, 1, 0);
        let moves = scenario.simulate(1).unwrap();
        assert!(moves.first_payload <= Duration::from_millis(50) + ALLOWANCE);
        assert!(moves.first_payload < moves.first_chunk);
    }

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
