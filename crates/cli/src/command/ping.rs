//! `ping`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Deserialize;
use serde_json::json;
use whimbrel_client::{Answer, AttachedSession, LocalError, Question, SessionStep};
use whimbrel_core::Guid;
use whimbrel_core::units::Span;
use whimbrel_node::wait::{Subject, Watch};

use super::access::reach;
use super::pointers::{NameServers, current_name};
use super::waiting::ToldWait;
use super::{Outcome, directory, json_line, out, stop_flag};
use crate::arguments::HostAccess;
use crate::exit::Exit;

/// Interval at which the stop flag is checked.
const LOOK: Duration = Duration::from_millis(100);

/// Pause between two looks at a host that is about to attach.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What tells that a host is attached, or has nothing to attach to.
#[derive(Default, Deserialize)]
struct Attachment {
    /// What its router last said of it.
    binding: Option<String>,
    links: Vec<LinkOfHost>,
}

#[derive(Deserialize)]
struct LinkOfHost {
    caller: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  whimbrel ping -c 3 6b1e...c2\n\nExit code 1: no answer.")]
pub(crate) struct Ping {
    /// The name of a host or a router, or its alias
    #[arg(value_parser = directory::name)]
    name: Guid,
    /// Stop after this many requests
    #[arg(short, long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true)]
    count: u32,
    /// Time between two requests; a number without a unit is seconds, as in ping(8)
    #[arg(short, long, value_name = "DURATION", default_value = "1 s")]
    interval: Span,
    /// Extra bytes to carry, at most 32768
    #[arg(short, long, value_name = "BYTES", default_value_t = 56, value_parser = clap::value_parser!(u16).range(..=32768))]
    size: u16,
    /// How long to wait for the answer to the last request; a number without a unit is seconds
    #[arg(short = 'W', long, value_name = "DURATION", default_value = "5 s")]
    wait: Span,
    #[command(flatten)]
    name_servers: NameServers,
    #[command(flatten)]
    access: HostAccess,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(mut arguments: Ping) -> Outcome {
    let stop = stop_flag()?;
    arguments.name = current_name(arguments.name, &arguments.name_servers, &stop)?;
    let mut access = reach(&arguments.access, Vec::new())?;
    let mut host = access.session()?;
    let mut session = Session {
        arguments,
        sent: 0,
        last: 0,
        waiting: BTreeMap::new(),
        times: Vec::new(),
        watch: Watch::new(Subject::Answer),
        told_wait: ToldWait::default(),
    };
    let started = Instant::now();
    session.run(&mut host, &stop)?;
    session.summarise(started.elapsed());
    Ok(if session.times.is_empty() {
        Exit::Other
    } else {
        Exit::Done
    })
}

struct Session {
    arguments: Ping,
    sent: u32,
    /// The number of the newest question to the host.
    last: u32,
    /// The sequence number and time of each request without an answer, by the question's number.
    waiting: BTreeMap<u32, (u32, Instant)>,
    times: Vec<Duration>,
    watch: Watch,
    told_wait: ToldWait,
}

impl Session {
    fn run(&mut self, host: &mut AttachedSession<'_>, stop: &AtomicBool) -> Result<(), LocalError> {
        self.await_attachment(host, stop)?;
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let all_sent = self.sent >= self.arguments.count;
            if all_sent && (self.waiting.is_empty() || now >= next) {
                return Ok(());
            }
            if !all_sent && now >= next {
                if !self.is_awaiting() {
                    self.watch.progressed();
                }
                let (destination, padding) = (self.arguments.name, self.arguments.size);
                let question = Question::Ping {
                    destination,
                    padding,
                };
                self.last = host.session().ask(question);
                // Before it is sent: afterwards this process may have to wait for a processor.
                let request = (self.sent, Instant::now());
                host.flush()?;
                self.waiting.insert(self.last, request);
                self.sent += 1;
                next = now
                    + match self.sent >= self.arguments.count {
                        true => self.arguments.wait.0,
                        false => self.arguments.interval.0,
                    };
            }
            if self.is_awaiting() {
                host.ask_aside(self.watch.question());
            }
            let patience = next.saturating_duration_since(Instant::now()).min(LOOK);
            if let SessionStep::Aside(event) = host.step(patience)? {
                self.watch.note(&event, &|_| false);
            }
            while let Some((number, answer)) = host.session().poll_answer() {
                if let Answer::Pong(from) = answer {
                    self.watch.progressed();
                    self.note(number, from);
                }
            }
            self.tell_wait();
        }
        Ok(())
    }

    fn tell_wait(&mut self) {
        let json: Option<&dyn Fn(&serde_json::Value)> =
            self.arguments.json.then_some(&|value| json_line(value));
        self.told_wait.tell(self.watch.wait(), json, false);
    }

    /// Returns true while the newest request has no answer: between its answer and the next request
    /// nothing is awaited, whatever was lost before.
    fn is_awaiting(&self) -> bool {
        self.waiting.contains_key(&self.last)
    }

    /// Waits until the host is attached: before that its requests go nowhere, and no answer finds
    /// it. A host that has just been started, as with `--router`, takes some round trips.
    fn await_attachment(
        &mut self,
        host: &mut AttachedSession<'_>,
        stop: &AtomicBool,
    ) -> Result<(), LocalError> {
        let started = Instant::now();
        let mut question = host.session().ask(Question::Status);
        while started.elapsed() < self.arguments.wait.0 && !stop.load(Ordering::Relaxed) {
            host.ask_aside(self.watch.question());
            if let SessionStep::Aside(event) = host.step(LOOK)? {
                self.watch.note(&event, &|_| false);
            }
            if let Some(Answer::Status(json)) = host.session().take_answer(question) {
                let report: Attachment = serde_json::from_str(&json).unwrap_or_default();
                let is_alone = self.arguments.access.router.is_empty()
                    && !report.links.iter().any(|link| !link.caller);
                if report.binding.is_some() || is_alone {
                    return Ok(());
                }
                std::thread::sleep(LOOK_AGAIN);
                question = host.session().ask(Question::Status);
            }
            self.tell_wait();
        }
        host.session().cancel(question);
        Ok(())
    }

    /// Notes the answer to a question.
    fn note(&mut self, number: u32, from: Guid) {
        let Some((sequence, at)) = self.waiting.remove(&number) else {
            return;
        };
        let time = at.elapsed();
        self.times.push(time);
        let milliseconds = time.as_secs_f64() * 1e3;
        if self.arguments.json {
            json_line(
                &json!({ "event": "pong", "from": from, "sequence": sequence, "ms": milliseconds }),
            );
        } else {
            let (size, from) = (self.arguments.size, directory::shown(&from));
            out(&format!(
                "{size} bytes from {from}: seq={sequence} time={milliseconds:.3} ms\n"
            ));
        }
    }

    fn summarise(&self, elapsed: Duration) {
        let (sent, received) = (self.sent as usize, self.times.len());
        let milliseconds: Vec<f64> = self
            .times
            .iter()
            .map(|time| time.as_secs_f64() * 1e3)
            .collect();
        let least = milliseconds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = milliseconds.iter().copied().fold(0.0, f64::max);
        let mean = milliseconds.iter().sum::<f64>() / received.max(1) as f64;
        if self.arguments.json {
            let times = (received > 0).then(|| json!({ "min": least, "mean": mean, "max": most }));
            return json_line(
                &json!({ "event": "summary", "sent": sent, "received": received, "ms": times }),
            );
        }
        let lost = 100.0 * (sent - received) as f64 / sent.max(1) as f64;
        let seconds = elapsed.as_secs_f64();
        out(&format!(
            "--- {} ---\n{sent} sent, {received} answered, {lost:.0} % lost, {seconds:.1} s\n",
            directory::shown(&self.arguments.name)
        ));
        if received > 0 {
            out(&format!(
                "round trip min/mean/max = {least:.3}/{mean:.3}/{most:.3} ms\n"
            ));
        }
    }
}
