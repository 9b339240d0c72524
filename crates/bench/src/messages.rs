//! Small messages through one router: the row "M2M" of [MFTP §2], Table 1, at full load.
//!
//! A real router daemon, and two hosts in this process, each with a thread of its own: one sends messages that
//! nobody confirms (`don't care`), the other one counts them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use whimbrel_client::LocalClient;
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{Delivery, LocalEvent, LocalRequest};
use whimbrel_node::config::{Config, Draft, LinkSection, NamedRemote};
use whimbrel_node::keys;
use whimbrel_node::known_peers::KnownPeers;
use whimbrel_node::run::EmbeddedHost;

use crate::processes::RunningRouter;
use crate::usage::{cpu_of_process, resident_bytes};
use crate::{Bench, BenchError, Part, Quantity, Row, Target};

/// Octets of a message.
const OCTETS: usize = 200;
/// Target, in messages delivered per second.
const WANTED: f64 = 100_000.0;
const DURATION: Duration = Duration::from_secs(10);
const QUICK_DURATION: Duration = Duration::from_secs(1);
/// Messages under way at most, and those of one request to the sending host.
const WINDOW: u64 = 8192;
const BATCH: u64 = 128;
const CHANNEL: u32 = 1;
/// Until the first message arrives.
const PATIENCE: Duration = Duration::from_secs(20);
/// Messages under way of which none arrives for this long are lost.
const LOST_AFTER: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn run(bench: &mut Bench<'_>) {
    let what = format!("messages of {OCTETS} octets");
    bench.measure(&what.clone(), |options, _| {
        let folder = whimbrel_lab::scratch::folder("whimbrel-bench-")?;
        let router = RunningRouter::start(options, folder.path(), "")?;
        let duration = match options.quick {
            true => QUICK_DURATION,
            false => DURATION,
        };
        let load = MessageRun::measure(&router, duration)?;
        let delivered = load.received as f64 / load.seconds;
        let per_message = |cpu: Duration| cpu.as_secs_f64() * 1e9 / load.received.max(1) as f64;
        Ok(vec![Row {
            part: Part::Messages,
            backend: None,
            what,
            ours: Quantity::MessagesPerS(delivered),
            peer: Some((String::from("wanted"), Quantity::MessagesPerS(WANTED))),
            target: Some(Target::AtLeast(1.0)),
            note: None,
            details: json!({
                "octets": OCTETS,
                "sent": load.sent,
                "received": load.received,
                "lost": load.sent - load.received.min(load.sent),
                "seconds": load.seconds,
                "router_cpu_ns_per_message": per_message(load.router_cpu),
                "hosts_cpu_ns_per_message": per_message(load.hosts_cpu),
                "router_resident_bytes": load.router_bytes,
            }),
        }])
    });
}

/// What one run has shown.
struct MessageRun {
    sent: u64,
    received: u64,
    seconds: f64,
    router_cpu: Duration,
    hosts_cpu: Duration,
    router_bytes: u64,
}

/// A host in this process, which ends when it is dropped.
struct OwnHost {
    host: EmbeddedHost,
    client: LocalClient,
}

/// The thread that counts, which ends when this is dropped.
struct MessageCounter {
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn failed<E: std::error::Error + Send + Sync + 'static>(
    action: &str,
) -> impl Fn(E) -> BenchError + '_ {
    move |error| BenchError::system(action)(std::io::Error::other(error))
}

impl OwnHost {
    fn start(router: SocketAddr) -> Result<OwnHost, BenchError> {
        let router: NamedRemote = router
            .to_string()
            .parse()
            .map_err(failed("read the router's address"))?;
        let config = Config {
            link: vec![LinkSection::towards("router", router)],
            ..Config::default()
        };
        let plan = Draft::from(config)
            .embedded_host()
            .map_err(failed("configure a host"))?;
        let keys = keys::ephemeral().map_err(failed("make a key"))?;
        let started = EmbeddedHost::start(plan, keys, KnownPeers::none());
        let (host, client) = started.map_err(failed("start a host"))?;
        Ok(OwnHost { host, client })
    }
}

impl MessageCounter {
    /// Counts the messages that arrive.
    fn start(mut client: LocalClient) -> Result<MessageCounter, BenchError> {
        let lost_host = failed("listen for messages");
        let listen = LocalRequest::Listen { channel: CHANNEL };
        client.send(&listen).map_err(lost_host)?;
        let (received, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, stopped) = (received.clone(), stop.clone());
        let run = move || {
            while !stopped.load(Ordering::Relaxed) {
                match client.receive(LOOK) {
                    Ok(Some(LocalEvent::Message { .. })) => {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("count messages".into())
            .spawn(run)
            .map_err(BenchError::system("start a thread"))?;
        Ok(MessageCounter {
            received,
            stop,
            thread: Some(thread),
        })
    }

    fn count(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for MessageCounter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends messages to a host, at most [`WINDOW`] ahead of its count.
struct MessageSender {
    client: LocalClient,
    destination: Guid,
    sent: u64,
    lost: u64,
}

impl MessageSender {
    fn send(&mut self, messages: u64) -> Result<(), BenchError> {
        let message = |number: u64| {
            let mut payload = vec![0; OCTETS];
            payload[..8].copy_from_slice(&number.to_be_bytes());
            LocalRequest::Message {
                channel: CHANNEL,
                destination: self.destination,
                delivery: Delivery::default(),
                payload: payload.into(),
            }
        };
        let batch = (self.sent..self.sent + messages).map(message).collect();
        self.client
            .send_all(batch)
            .map_err(failed("send messages"))?;
        self.sent += messages;
        Ok(())
    }

    /// Sends for some time.
    fn run(&mut self, counter: &MessageCounter, duration: Duration) -> Result<(), BenchError> {
        let begun = Instant::now();
        let (mut last, mut moved) = (counter.count(), begun);
        while begun.elapsed() < duration {
            let count = counter.count();
            if count != last {
                (last, moved) = (count, Instant::now());
            }
            let under_way = self.sent - (count + self.lost).min(self.sent);
            if under_way + BATCH <= WINDOW {
                self.send(BATCH)?;
            } else if moved.elapsed() >= LOST_AFTER {
                self.lost += under_way;
                moved = Instant::now();
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        Ok(())
    }
}

impl MessageRun {
    fn measure(router: &RunningRouter, duration: Duration) -> Result<MessageRun, BenchError> {
        let receiver = OwnHost::start(router.address)?;
        let destination = receiver.host.guid();
        let counter = MessageCounter::start(receiver.client)?;
        let sending = OwnHost::start(router.address)?;
        let mut sender = MessageSender {
            client: sending.client,
            destination,
            sent: 0,
            lost: 0,
        };
        let until = Instant::now() + PATIENCE;
        while counter.count() == 0 {
            if Instant::now() >= until {
                return Err(BenchError::Unfinished {
                    side: String::from("Whimbrel"),
                    bytes: 0,
                    patience_s: PATIENCE.as_secs(),
                });
            }
            sender.send(1)?;
            std::thread::sleep(LOOK);
        }
        let (router_id, own_id) = (router.process.id(), std::process::id());
        // The rate of the links is found out meanwhile.
        sender.run(&counter, duration / 5)?;
        let (sent, received) = (sender.sent, counter.count());
        let (router_cpu, own_cpu) = (cpu_of_process(router_id)?, cpu_of_process(own_id)?);
        let begun = Instant::now();
        sender.run(&counter, duration)?;
        let seconds = begun.elapsed().as_secs_f64();
        let counted = counter.count();
        let load = MessageRun {
            sent: sender.sent - sent,
            received: counted - received,
            seconds,
            router_cpu: cpu_of_process(router_id)?.saturating_sub(router_cpu),
            hosts_cpu: cpu_of_process(own_id)?.saturating_sub(own_cpu),
            router_bytes: resident_bytes(router_id)?,
        };
        Ok(load)
    }
}
