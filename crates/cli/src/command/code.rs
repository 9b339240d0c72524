//! Codes that two people say aloud: how `send` and `receive` meet, and exchange a ticket
//! (docs/tickets.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rand::rngs::ChaCha20Rng;
use rand::{Rng, RngExt, SeedableRng};
use serde::Deserialize;
use serde_json::{Value, json};
use whimbrel_client::{
    Answer, AttachedSession, Attachment, LocalClient, LocalError, ProgramError, Question,
    SessionStep,
};
use whimbrel_core::Guid;
use whimbrel_gnrs::KeyPair;
use whimbrel_mobilityfirst::local::Delivery;
use whimbrel_node::config::{LinkSection, NamedRemote};
use whimbrel_node::keys::random_bytes;
use whimbrel_node::ticket::Ticket;
use whimbrel_node::wait::{Subject, Wait, Watch};
use whimbrel_spoken::{
    CHANNEL, Code, Given, Giver, Message, Refusal, Taker, TakerError, meeting_key,
};

use super::access::{Access, embed, reach};
use super::waiting::ToldWait;
use super::{tell, tell_json};
use crate::arguments::HostAccess;
use crate::exit::{Exit, Failure};
use crate::logging::note;

/// How often a flag that asks to stop is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Numbers are short while they suffice: each row is tried so often before the next one.
const NUMBERS: [u16; 3] = [99, 999, whimbrel_spoken::code::MAX_NUMBER];
const TRIES: usize = 3;
/// A number is free if nobody answers there, so long after the router has answered.
const SILENCE: Duration = Duration::from_secs(1);
/// How long to wait for a router's answer, or its word on a binding.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before a message of the exchange is repeated; it doubles up to the second.
const REPEAT: Duration = Duration::from_millis(500);
const MAX_REPEAT: Duration = Duration::from_secs(4);
/// Without `--timeout`, a receiver waits so long for a sender that nothing but itself can keep from
/// answering: a moment without a link passes, a mistyped number does not.
const NO_SENDER: Duration = Duration::from_secs(30);
/// How often a receiver begins an exchange anew that the sender has forgotten. An impostor of the sender
/// has one guess for each.
const MAX_ANEW: u32 = 3;

/// What this module reads of a host's report (`HostStatus` of `mobilityfirst`).
#[derive(Debug, Deserialize)]
struct Report {
    binding: Option<String>,
    links: Vec<Link>,
}

#[derive(Debug, Deserialize)]
struct Link {
    neighbour: Option<Guid>,
    caller: bool,
    up: bool,
}

impl Report {
    fn of(answer: &Answer) -> Option<Report> {
        match answer {
            Answer::Status(json) => serde_json::from_str(json).ok(),
            _ => None,
        }
    }

    /// Returns the router, or the host that is asked directly, once it responds.
    fn neighbour(&self) -> Option<Guid> {
        let mut up = self.links.iter().filter(|link| link.up && !link.caller);
        up.find_map(|link| link.neighbour)
    }
}

/// Returns the name under which the sender with this number is met through routers.
fn meeting_name(number: u16) -> Guid {
    KeyPair::from_secret(&meeting_key(number)).guid()
}

fn generator() -> Result<ChaCha20Rng, Failure> {
    Ok(ChaCha20Rng::from_seed(random_bytes()?))
}

/// Sends a message of an exchange.
fn tell_peer(
    host: &mut AttachedSession<'_>,
    peer: Guid,
    message: &Message,
) -> Result<(), ProgramError> {
    let payload = message.encode().into();
    (host.session()).message(peer, CHANNEL, Delivery::default(), payload)
}

/// Asks a host until its report says what is wanted; `None` if that does not come in time.
fn ask_until<T>(
    host: &mut AttachedSession<'_>,
    until: Option<Instant>,
    stop: &AtomicBool,
    mut wanted: impl FnMut(&Report) -> Option<T>,
) -> Result<Option<T>, LocalError> {
    while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
        let next = Instant::now() + LOOK;
        let answer = host.ask(Question::Status, LOOK)?;
        let report = answer.as_ref().and_then(Report::of);
        if let Some(found) = report.as_ref().and_then(&mut wanted) {
            return Ok(Some(found));
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(None)
}

/// The value that a sender gives to a receiver with the right code.
pub(super) struct Gift {
    pub(super) name: Guid,
    pub(super) ticket: String,
    /// How this host reaches its routers, if they are where the two sides meet.
    pub(super) routers: Option<HostAccess>,
    /// Where the two sides meet, as an argument of `receive`.
    pub(super) meet: String,
    pub(super) json: bool,
    /// The bar above which to print.
    pub(super) bar: ProgressBar,
}

/// A code at work, on a thread of its own. Dropping it ends it.
pub(super) struct Giving {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Giving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported by its thread.
            let _ = thread.join();
        }
    }
}

/// Makes a code and gives a ticket to who knows it. `client` is a program of the host that serves.
pub(super) fn give(gift: Gift, client: LocalClient) -> Result<Giving, Failure> {
    let (stop, rng) = (Arc::new(AtomicBool::new(false)), generator()?);
    let flag = stop.clone();
    let run = move || {
        let bar = gift.bar.clone();
        if let Err(failure) = gift.give(client, rng, &flag) {
            bar.suspend(|| note(&format!("there is no code any more: {failure}")));
        }
    };
    let thread = std::thread::Builder::new()
        .name("spoken-code".into())
        .spawn(run)?;
    Ok(Giving {
        stop,
        thread: Some(thread),
    })
}

impl Gift {
    fn give(
        &self,
        serving: LocalClient,
        mut rng: ChaCha20Rng,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        // The host of the meeting lives as long as the code.
        let mut meeting = None;
        let mut serving = Attachment::Once(Some(serving));
        let mut host = AttachedSession::attach(&mut serving)?;
        let number = match &self.routers {
            Some(routers) => {
                let Some((access, number)) = meet(&mut host, routers, &mut rng, stop)? else {
                    return Ok(());
                };
                host = meeting.insert(access).session()?;
                number
            }
            None => rng.random_range(1..=NUMBERS[0]),
        };
        let mut secret = [0; whimbrel_spoken::code::WORDS];
        rng.fill_bytes(&mut secret);
        let too_long = || Failure::new(Exit::Other, "the ticket is too long for a code");
        let code = Code::new(number, secret).ok_or_else(too_long)?;
        let ticket = self.ticket.clone().into_bytes();
        let mut giver = Giver::new(code, ticket).ok_or_else(too_long)?;
        host.session().listen(CHANNEL);
        host.flush()?;
        self.tell_code(&code);
        while !stop.load(Ordering::Relaxed) {
            host.step(LOOK)?;
            while let Some(message) = host.session().take_message(CHANNEL)? {
                let (answer, given) = giver.handle(message.from, &message.payload, &mut rng);
                if let Some(answer) = answer {
                    tell_peer(&mut host, message.from, &answer)?;
                }
                if let Some(given) = given {
                    self.tell(given);
                }
            }
        }
        Ok(())
    }

    fn tell_code(&self, code: &Code) {
        let command = format!("whimbrel receive {} {code}", self.meet);
        if self.json {
            let code = code.to_string();
            return tell_json(
                &json!({ "event": "code", "name": self.name, "code": code, "command": command }),
            );
        }
        self.bar.suspend(|| {
            note("or, with a code to say aloud:");
            tell(&format!("{command}\n"));
            if self.routers.is_some() {
                note("its --router may be another one that shares the name service");
            }
        });
    }

    fn tell(&self, given: Given) {
        if self.json {
            return tell_json(&match given {
                Given::Taken => json!({ "event": "guess", "right": true }),
                Given::Wrong { left } => json!({ "event": "guess", "right": false, "left": left }),
            });
        }
        let text = match given {
            Given::Taken => "somebody said the code and got the ticket".to_owned(),
            Given::Wrong { left: 0 } => {
                "a wrong code was tried again: the code is used up, send again for a new one; the ticket stays valid".to_owned()
            }
            Given::Wrong { left } => {
                format!("somebody tried a wrong code; after {left} more, the code is used up")
            }
        };
        self.bar.suspend(|| note(&text));
    }
}

/// Finds a number that nobody uses, and becomes the host that is met there. `None` if it is to stop.
fn meet(
    serving: &mut AttachedSession<'_>,
    routers: &HostAccess,
    rng: &mut ChaCha20Rng,
    stop: &AtomicBool,
) -> Result<Option<(Access, u16)>, Failure> {
    let rows = NUMBERS.iter().flat_map(|max| [*max; TRIES]);
    for max in rows {
        // An answer finds a host that its router knows.
        let attached = |report: &Report| report.neighbour().filter(|_| report.binding.is_some());
        let Some(router) = ask_until(serving, None, stop, attached)? else {
            return Ok(None);
        };
        let number = rng.random_range(1..=max);
        if is_taken(serving, router, number, stop)? {
            continue;
        }
        let mut access = embed(
            routers,
            Vec::new(),
            KeyPair::from_secret(&meeting_key(number)),
        )?;
        let mut host = access.session()?;
        let until = Some(Instant::now() + PATIENCE);
        let binding = ask_until(&mut host, until, stop, |report| {
            report
                .binding
                .clone()
                .filter(|_| report.neighbour().is_some())
        })?;
        // Somebody else holds the name, with a record that is newer than this one can be.
        if binding.as_deref() != Some("stale") {
            access.renew();
            return Ok(Some((access, number)));
        }
    }
    Err(Failure::new(
        Exit::Other,
        "all numbers that were tried are in use at this router",
    ))
}

/// Returns true if somebody answers where a number is met.
fn is_taken(
    host: &mut AttachedSession<'_>,
    router: Guid,
    number: u16,
    stop: &AtomicBool,
) -> Result<bool, LocalError> {
    let name = meeting_name(number);
    let mut until = Instant::now() + PATIENCE;
    let mut has_answered = false;
    while !stop.load(Ordering::Relaxed) && Instant::now() < until {
        for destination in [name, router] {
            host.session().ask(Question::Ping {
                destination,
                padding: 0,
            });
        }
        let next = Instant::now() + REPEAT;
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            host.step(left)?;
            while let Some((_, answer)) = host.session().poll_answer() {
                let Answer::Pong(from) = answer else {
                    continue;
                };
                if from == name {
                    return Ok(true);
                }
                if from == router && !has_answered {
                    has_answered = true;
                    until = until.min(Instant::now() + SILENCE);
                }
            }
        }
    }
    Ok(false)
}

/// What `receive` was told of how to meet the sender.
pub(super) struct Told<'a> {
    pub(super) code: Code,
    pub(super) access: &'a HostAccess,
    /// The sender itself.
    pub(super) from: Option<&'a NamedRemote>,
    pub(super) timeout: Option<Duration>,
}

/// Takes the ticket that belongs to a code. `json` prints a line, if lines are wanted.
pub(super) fn take(
    told: &Told<'_>,
    stop: &AtomicBool,
    json: Option<&dyn Fn(&Value)>,
) -> Result<Ticket, Failure> {
    let direct = (told.from).map(|host| LinkSection::towards("from", host.clone()));
    let mut access = reach(told.access, direct.into_iter().collect())?;
    let mut host = access.session()?;
    let mut rng = generator()?;
    let exchange = rng.random();
    let mut taking = Taking {
        taker: Taker::new(&told.code, exchange, &mut rng),
        to: None,
        next: Instant::now(),
        pause: REPEAT,
        anew: MAX_ANEW,
    };
    host.session().listen(CHANNEL);
    let subject = Subject::Sender(told.code.number());
    let (mut watch, mut told_wait) = (Watch::new(subject), ToldWait::default());
    let started = Instant::now();
    let mut asked = started;
    while !stop.load(Ordering::Relaxed) {
        if told
            .timeout
            .is_some_and(|timeout| started.elapsed() >= timeout)
        {
            let wait = watch
                .wait()
                .map_or(String::new(), |wait| format!(": {wait}"));
            let text = format!(
                "nobody answered who sends with number {}{wait}",
                told.code.number()
            );
            return Err(Failure::new(Exit::TimedOut, text));
        }
        if let (None, Some(wait @ Wait::NoSender { for_s, .. })) = (told.timeout, watch.wait())
            && *for_s >= NO_SENDER.as_secs()
        {
            let text = format!("{wait} (--timeout waits longer)");
            return Err(Failure::new(Exit::WrongCode, text));
        }
        if taking.to.is_none() && asked <= Instant::now() {
            host.session().ask(Question::Status);
            asked = Instant::now() + LOOK;
        }
        taking.send_if_due(&mut host)?;
        host.ask_aside(watch.question());
        if let SessionStep::Aside(event) = host.step(LOOK)? {
            watch.note(&event, &|_| false);
        }
        while let Some((_, answer)) = host.session().poll_answer() {
            if let Some(report) = Report::of(&answer) {
                taking.note(told, &report, started);
            }
        }
        while let Some(message) = host.session().take_message(CHANNEL)? {
            let before = taking.taker.message();
            if let Some(end) = taking.handle(&told.code, &message.payload, &mut rng) {
                told_wait.tell(None, json, false);
                return end;
            }
            if taking.taker.message() != before {
                (taking.next, taking.pause) = (Instant::now(), REPEAT);
                watch.progressed();
            }
        }
        told_wait.tell(watch.wait(), json, false);
    }
    Err(Failure::new(Exit::Interrupted, ""))
}

/// An exchange under way.
struct Taking {
    taker: Taker,
    /// The sender, once it can answer.
    to: Option<Guid>,
    next: Instant,
    pause: Duration,
    /// How often it may still begin anew.
    anew: u32,
}

impl Taking {
    /// The host has said how it is connected.
    fn note(&mut self, told: &Told<'_>, report: &Report, started: Instant) {
        let neighbour = report.neighbour();
        self.to = match told.from {
            Some(_) => neighbour,
            // An answer finds a host that its router knows; one that says nothing of it is asked anyway.
            None if report.binding.is_some() || started.elapsed() >= PATIENCE => {
                neighbour.map(|_| meeting_name(told.code.number()))
            }
            None => None,
        };
    }

    fn send_if_due(&mut self, host: &mut AttachedSession<'_>) -> Result<(), ProgramError> {
        let Some(destination) = self.to else {
            return Ok(());
        };
        if self.next > Instant::now() {
            return Ok(());
        }
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(MAX_REPEAT);
        tell_peer(host, destination, &self.taker.message())
    }

    fn handle(
        &mut self,
        code: &Code,
        payload: &[u8],
        rng: &mut ChaCha20Rng,
    ) -> Option<Result<Ticket, Failure>> {
        let end = self.taker.handle(payload);
        let wrong = |error: &dyn std::fmt::Display| Failure::new(Exit::WrongCode, error);
        Some(match end? {
            // Others have pushed the exchange out.
            Err(TakerError::Refused(Refusal::Forgotten)) if self.anew > 0 => {
                self.anew -= 1;
                self.taker = Taker::new(code, rng.random(), rng);
                return None;
            }
            Err(error) => Err(wrong(&error)),
            Ok(secret) => {
                let text = String::from_utf8_lossy(&secret);
                text.parse::<Ticket>()
                    .map_err(|error| Failure::new(Exit::Other, error))
            }
        })
    }
}
