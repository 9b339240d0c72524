//! `perf client`: begins a test with a server, measures it, and ends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use whimbrel_core::Guid;

use super::laps::Laps;
use super::receiving::Receiving;
use super::words::{Letter, VERSION, Word};
use super::{AGAIN, CHANNEL, LOOK, Plan};
use crate::fetch::{LinkBytes, link_bytes};
use crate::keys::random_bytes;
use crate::shelf::Blocks;
use crate::wait::{Subject, Wait, Watch};
use whimbrel_client::session::{Answer, Question};
use whimbrel_client::{AttachedSession, Attachment, LocalError, SessionStep};

/// How often the server is told that the test goes on.
const GOES_ON: Duration = Duration::from_secs(10);
/// A server that has begun and then says nothing for so long is given up.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the server's result is waited for.
const RESULT_PATIENCE: Duration = Duration::from_secs(10);

/// What to measure, and with whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's host.
    pub server: Guid,
    /// The streams.
    pub plan: Plan,
    /// For how long; with bytes in the plan, until they are there.
    pub time: Option<Duration>,
    /// The time between two [`ClientEvent::Interval`]s.
    pub interval: Duration,
    /// How long the server may take to answer at first.
    pub patience: Duration,
}

/// The bytes of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamBytes {
    /// Its number.
    pub stream: u16,
    /// True if this end sends it.
    pub up: bool,
    /// Bytes that its receiver has received.
    pub bytes: u64,
}

/// What came in an interval; of streams from here to the server, as far as the server has said.
#[derive(Clone, PartialEq, Debug)]
pub struct Interval {
    /// Its start and end, from the test's start.
    pub from: Duration,
    /// See `from`.
    pub to: Duration,
    /// Bytes by stream.
    pub streams: Vec<StreamBytes>,
    /// Bytes of chunks by link of this host, for whatever program; empty until the host has told.
    pub links: Vec<LinkBytes>,
}

/// An event of a test.
#[derive(Clone, PartialEq, Debug)]
pub enum ClientEvent {
    /// It waits for the server, and why; `None`: no longer.
    Waiting(Option<Wait>),
    /// The server has begun.
    Begun,
    /// An interval is over.
    Interval(Interval),
}

/// The result of a test.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// From the server's first word to the end; if the server has gone, to what came last from it.
    pub time: Duration,
    /// The server's own duration; `None` if it has gone.
    pub server_time: Option<Duration>,
    /// Bytes received by stream, as the receiving end says.
    pub received: Vec<StreamBytes>,
    /// Bytes that this host has sent, by stream from here.
    pub sent: Vec<StreamBytes>,
    /// Bytes of chunks by link of this host.
    pub links: Vec<LinkBytes>,
    /// The user has ended it early.
    pub interrupted: bool,
}

/// The reason why a test cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PerfError {
    /// The host cannot be used.
    #[error(transparent)]
    Host(#[from] LocalError),
    /// The system has no randomness.
    #[error("cannot begin: {0}")]
    System(#[from] std::io::Error),
    /// Nothing answers.
    #[error(
        "no answer from a `whimbrel perf server` at {0}; check that it runs, and with `whimbrel ping` that its host is reached"
    )]
    NoServer(Guid),
    /// The server does not want to.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server has gone.
    #[error("nothing has come from the server for {} s", .0.as_secs())]
    Lost(Duration),
    /// A stream has ended early.
    #[error("{0}")]
    Failed(String),
    /// Interrupted before the test had begun.
    #[error("interrupted")]
    Interrupted,
}

/// Makes a test.
pub fn measure(
    attachment: &mut Attachment,
    options: &Options,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ClientEvent),
) -> Result<Report, PerfError> {
    let test = random_bytes().map(u64::from_le_bytes)?;
    let mut session = Session::new(attachment, options, test);
    session.host.connect()?;
    session.host.session().listen(CHANNEL);
    session.begin(stop, observe)?;
    let interrupted = session.run(stop, observe)?;
    session.end()?;
    Ok(session.report(interrupted))
}

struct Session<'a> {
    host: AttachedSession<'a>,
    options: &'a Options,
    test: u64,
    laps: Laps,
    receiving: Receiving,
    heard: Instant,
    refusal: Option<String>,
    /// Why this end cannot go on.
    failure: Option<String>,
    is_ready: bool,
    begun: Instant,
    over: Option<Instant>,
    /// As the server says last.
    up: Vec<u64>,
    up_is_whole: bool,
    result: Option<Duration>,
    links: Links,
}

/// What the host's links have carried.
#[derive(Default)]
struct Links {
    /// The number of the question.
    asked: u32,
    first: Option<Vec<LinkBytes>>,
    last: Vec<LinkBytes>,
}

impl Links {
    fn note(&mut self, json: &str) {
        self.last = link_bytes(json);
        self.first.get_or_insert_with(|| self.last.clone());
    }

    fn since(&self, before: &[LinkBytes]) -> Vec<LinkBytes> {
        self.last.iter().map(|link| link.since(before)).collect()
    }

    fn total(&self) -> Vec<LinkBytes> {
        self.since(self.first.as_deref().unwrap_or_default())
    }
}

impl<'a> Session<'a> {
    fn new(attachment: &'a mut Attachment, options: &'a Options, test: u64) -> Session<'a> {
        let plan = &options.plan;
        let (up, down) = plan.streams();
        let laps = Laps::new(up.zip(plan.shares(plan.up)), Blocks::new(test));
        let now = Instant::now();
        Session {
            host: AttachedSession::new(attachment),
            options,
            test,
            laps,
            receiving: Receiving::new(down, plan.chunk_log2, options.server),
            heard: now,
            refusal: None,
            failure: None,
            is_ready: false,
            begun: now,
            over: None,
            up: vec![0; plan.up.into()],
            up_is_whole: plan.up == 0,
            result: None,
            links: Links::default(),
        }
    }

    fn say(&mut self, word: Word) {
        let letter = Letter {
            test: self.test,
            word,
        };
        letter.send(self.options.server, self.host.session());
    }

    fn say_start(&mut self) {
        self.say(Word::Start {
            version: VERSION,
            plan: self.options.plan,
        });
    }

    fn ask_for_links(&mut self) {
        let session = self.host.session();
        session.cancel(self.links.asked);
        self.links.asked = session.ask(Question::Status);
    }

    /// Waits for the server's first word.
    fn begin(
        &mut self,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(ClientEvent),
    ) -> Result<(), PerfError> {
        let since = Instant::now();
        let mut say_again = since;
        let mut pause = LOOK * 2;
        let mut watch = Watch::new(Subject::Answer);
        let mut told = None;
        self.ask_for_links();
        while !self.is_ready {
            if stop.load(Ordering::Relaxed) {
                return Err(PerfError::Interrupted);
            }
            if let Some(why) = self.refusal.take() {
                return Err(PerfError::Refused(why));
            }
            let now = Instant::now();
            if now.saturating_duration_since(since) >= self.options.patience {
                return Err(PerfError::NoServer(self.options.server));
            }
            // A host that has just been started takes some round trips to attach, before which its
            // messages go nowhere.
            if now >= say_again {
                self.say_start();
                say_again = now + pause;
                pause = (pause * 2).min(AGAIN);
            }
            self.host.ask_aside(watch.question());
            self.step(LOOK, Some(&mut watch))?;
            let wait = watch.wait().cloned();
            if wait != told {
                told.clone_from(&wait);
                observe(ClientEvent::Waiting(wait));
            }
        }
        if told.is_some() {
            observe(ClientEvent::Waiting(None));
        }
        self.begun = Instant::now();
        observe(ClientEvent::Begun);
        Ok(())
    }

    /// Returns true if the user has ended it.
    fn run(
        &mut self,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(ClientEvent),
    ) -> Result<bool, PerfError> {
        let interval = self.options.interval;
        let (mut from, mut go_on) = (Duration::ZERO, GOES_ON);
        let mut before = (self.bytes(), Vec::new());
        loop {
            let now = Instant::now();
            let at = now.saturating_duration_since(self.begun);
            let is_whole = self.receiving.is_whole() && self.up_is_whole;
            let is_over = self.options.time.is_some_and(|time| at >= time) || is_whole;
            let interrupted = stop.load(Ordering::Relaxed);
            let ends = is_over || interrupted;
            if at >= from + interval || ends && at > from {
                let (bytes, links) = &before;
                let event = self.interval((from, at), bytes, links);
                before = (self.bytes(), self.links.last.clone());
                from = at;
                observe(ClientEvent::Interval(event));
                self.ask_for_links();
            }
            if ends {
                self.over = Some(now);
                return Ok(interrupted && !is_over);
            }
            if at >= go_on {
                go_on = at + GOES_ON;
                self.say_start();
            }
            let silent = now.saturating_duration_since(self.heard);
            if silent >= SILENCE {
                return Err(PerfError::Lost(silent));
            }
            if let Some(why) = self.receiving.failure.take().or(self.failure.take()) {
                return Err(PerfError::Failed(why));
            }
            if let Some(why) = self.refusal.take() {
                return Err(PerfError::Refused(why));
            }
            for word in self.receiving.due(now, self.host.session()) {
                self.say(word);
            }
            let left = (from + interval).saturating_sub(at).min(LOOK);
            self.step(left.max(Duration::from_millis(1)), None)?;
        }
    }

    /// Ends the test at both ends.
    fn end(&mut self) -> Result<(), PerfError> {
        self.receiving.end(self.host.session());
        self.ask_for_links();
        let since = Instant::now();
        let mut say_again = since;
        while self.result.is_none() && since.elapsed() < RESULT_PATIENCE {
            if Instant::now() >= say_again {
                self.say(Word::End);
                say_again = Instant::now() + AGAIN;
            }
            self.step(LOOK, None)?;
        }
        self.laps.end(self.host.session());
        Ok(self.host.flush()?)
    }

    /// Handles what comes within `patience`. A host that goes ends the test.
    fn step(&mut self, patience: Duration, watch: Option<&mut Watch>) -> Result<(), LocalError> {
        match (self.host.step(patience)?, watch) {
            (SessionStep::Handled, _) => self.handle(),
            (SessionStep::Aside(event), Some(watch)) => _ = watch.note(&event, &|_| false),
            (SessionStep::HostGone, _) => return Err(LocalError::Closed),
            _ => {}
        }
        Ok(())
    }

    fn handle(&mut self) {
        let (now, is_running) = (Instant::now(), self.over.is_none());
        let session = self.host.session();
        while let Some(wanted) = session.poll_read() {
            let chunk = self.laps.read(&wanted);
            session.answer_read(wanted.read, chunk.flatten());
        }
        if let Some(Answer::Status(json)) = session.take_answer(self.links.asked) {
            self.links.note(&json);
        }
        while let Some(request) = session.poll_changed() {
            if is_running && self.receiving.note(now, request, session) {
                self.heard = now;
            }
        }
        while let Ok(Some(message)) = self.host.session().take_message(CHANNEL) {
            let letter = Letter::read(&message.payload);
            let letter = letter.filter(|letter| letter.test == self.test);
            if let Some(letter) = letter.filter(|_| message.from == self.options.server) {
                self.heard = now;
                self.word(letter.word);
            }
        }
    }

    fn word(&mut self, word: Word) {
        let session = self.host.session();
        match word {
            Word::Ready => self.is_ready = true,
            Word::Refused { why } => self.refusal = Some(why),
            Word::Want { stream, lap } => match self.laps.wanted(stream, lap, session) {
                Ok(Some(word)) => self.say(word),
                Ok(None) => {}
                Err(error) => self.failure = Some(error.to_string()),
            },
            Word::Lap {
                stream,
                lap,
                name,
                length,
                last,
            } if self.over.is_none() => {
                let about = (name, length, last);
                self.receiving.named((stream, lap), about, session);
            }
            Word::Received { bytes, whole } => self.note_up(bytes, whole),
            Word::Result { bytes, seconds } => {
                self.note_up(bytes, true);
                self.result = Duration::try_from_secs_f64(seconds).ok();
            }
            Word::Lap { .. } | Word::Start { .. } | Word::End => {}
        }
    }

    fn note_up(&mut self, bytes: Vec<u64>, whole: bool) {
        if bytes.len() == self.up.len() {
            // Messages may overtake each other.
            let newest = self.up.iter().zip(bytes).map(|(old, new)| new.max(*old));
            self.up = newest.collect();
            self.up_is_whole |= whole;
        }
    }

    /// Returns the bytes received so far, by stream.
    fn bytes(&self) -> Vec<StreamBytes> {
        let up = self.up.iter().copied().map(|bytes| (true, bytes));
        let down = self.receiving.bytes().into_iter();
        let all = up.chain(down.map(|bytes| (false, bytes)));
        let numbered = (0..).zip(all);
        numbered
            .map(|(stream, (up, bytes))| StreamBytes { stream, up, bytes })
            .collect()
    }

    fn interval(
        &self,
        (from, to): (Duration, Duration),
        bytes: &[StreamBytes],
        links: &[LinkBytes],
    ) -> Interval {
        let since = |(now, before): (StreamBytes, &StreamBytes)| StreamBytes {
            bytes: now.bytes.saturating_sub(before.bytes),
            ..now
        };
        Interval {
            from,
            to,
            streams: self.bytes().into_iter().zip(bytes).map(since).collect(),
            links: match links.is_empty() {
                true => self.links.total(),
                false => self.links.since(links),
            },
        }
    }

    fn report(&self, interrupted: bool) -> Report {
        // The time without a server would make its rate look lower than it was.
        let last = self
            .result
            .map_or(self.heard, |_| self.over.unwrap_or(self.begun));
        let sent = self.laps.sent().map(|(stream, bytes)| StreamBytes {
            stream,
            up: true,
            bytes,
        });
        Report {
            time: last.saturating_duration_since(self.begun),
            server_time: self.result,
            received: self.bytes(),
            sent: sent.collect(),
            links: self.links.total(),
            interrupted,
        }
    }
}
