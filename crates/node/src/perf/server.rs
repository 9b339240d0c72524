//! `perf server`: answers tests until it is stopped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;
use whimbrel_core::Guid;

use super::laps::Laps;
use super::receiving::Receiving;
use super::words::{Letter, VERSION, Word};
use super::{AGAIN, CHANNEL, LOOK, Plan};
use crate::keys::random_bytes;
use crate::shelf::Blocks;
use whimbrel_client::session::{Answer, ProgramSession, Question};
use whimbrel_client::{AttachedSession, Attachment, LocalError, SessionStep};

/// Bound of the tests at a time.
const MAX_TESTS: usize = 16;
/// Bound of the streams that it sends at a time: the hashes of two laps are some 260 kB.
const MAX_SENDING: usize = 128;
/// Bound of the results that are kept.
const MAX_OVER: usize = 64;
/// A test whose client says nothing for so long is over. A client says every ten seconds that it
/// goes on.
const SILENCE: Duration = Duration::from_secs(60);
/// Where there is no room for another test, one whose client has said nothing since its start for so
/// long gives way: whoever starts tests and goes keeps nobody out.
const FIRST_WORD: Duration = Duration::from_secs(3);

/// An event of a server.
#[derive(Debug)]
pub enum ServerEvent {
    /// It can be reached, by this name of its host.
    Listening {
        /// The host.
        name: Guid,
    },
    /// A test has begun.
    Begun {
        /// The client, as it calls itself.
        client: Guid,
        /// What it wants.
        plan: Plan,
    },
    /// A test is over.
    Over {
        /// The client, as it calls itself.
        client: Guid,
        /// Bytes that the server has received.
        received: u64,
        /// Bytes that the server's host has sent.
        sent: u64,
        /// Its duration.
        time: Duration,
        /// True if the client has gone without a word.
        lost: bool,
    },
}

/// What of a host's report is read here.
#[derive(Deserialize)]
struct HostReport {
    guid: Guid,
}

struct Test {
    begun: Instant,
    heard: Instant,
    plan: Plan,
    laps: Laps,
    receiving: Receiving,
    /// When its receiver's bytes are told next.
    tell: Instant,
    /// It was told that all is here.
    told_whole: bool,
    /// Its client has said something after its start.
    goes_on: bool,
}

/// A test that is over: its client may not have heard the result.
struct Over {
    key: Key,
    result: Word,
    heard: Instant,
}

/// The client, as it calls itself, and the number that it has drawn.
type Key = (Guid, u64);

/// Serves until `stop` is set, or for one test.
pub fn serve(
    attachment: &mut Attachment,
    one_off: bool,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ServerEvent),
) -> Result<(), LocalError> {
    let seed = random_bytes().map_err(LocalError::Io)?;
    let mut host = AttachedSession::new(attachment);
    host.session().listen(CHANNEL);
    let mut server = Server {
        tests: BTreeMap::new(),
        over: VecDeque::new(),
        blocks: Blocks::new(u64::from_le_bytes(seed)),
        name: host.session().ask(Question::Status),
    };
    host.connect()?;
    while !stop.load(Ordering::Relaxed) {
        let step = host.step(LOOK)?;
        let (now, session) = (Instant::now(), host.session());
        match step {
            SessionStep::Handled => server.handle(now, session, observe),
            SessionStep::HostGone => return Err(LocalError::Closed),
            _ => {}
        }
        server.look(now, session, observe);
        // Its client may ask again for the result.
        let is_told = |over: &Over| now.saturating_duration_since(over.heard) >= AGAIN * 3;
        let has_ended = !server.over.is_empty() && server.tests.is_empty();
        if one_off && has_ended && server.over.iter().all(is_told) {
            break;
        }
    }
    for test in server.tests.values() {
        test.laps.end(host.session());
        test.receiving.end(host.session());
    }
    host.flush()
}

struct Server {
    tests: BTreeMap<Key, Test>,
    /// The newest ones that are over.
    over: VecDeque<Over>,
    blocks: Blocks,
    /// The number of the question about the host's name.
    name: u32,
}

impl Server {
    fn handle(
        &mut self,
        now: Instant,
        session: &mut ProgramSession,
        observe: &mut dyn FnMut(ServerEvent),
    ) {
        while let Some(wanted) = session.poll_read() {
            let mut tests = self.tests.values_mut();
            let chunk = tests.find_map(|test| test.laps.read(&wanted));
            session.answer_read(wanted.read, chunk.flatten());
        }
        if let Some(Answer::Status(json)) = session.take_answer(self.name)
            && let Ok(HostReport { guid }) = serde_json::from_str(&json)
        {
            observe(ServerEvent::Listening { name: guid });
        }
        while let Some(request) = session.poll_changed() {
            let mut tests = self.tests.values_mut();
            tests.any(|test| test.receiving.note(now, request, session));
        }
        while let Ok(Some(message)) = session.take_message(CHANNEL) {
            if let Some(letter) = Letter::read(&message.payload) {
                self.letter(now, message.from, letter, session, observe);
            }
        }
    }

    fn letter(
        &mut self,
        now: Instant,
        from: Guid,
        letter: Letter,
        session: &mut ProgramSession,
        observe: &mut dyn FnMut(ServerEvent),
    ) {
        let key = (from, letter.test);
        if let Some(over) = self.over.iter_mut().find(|over| over.key == key) {
            // A late word of a test that is over begins no other one.
            if letter.word == Word::End {
                over.heard = now;
                say(session, key, over.result.clone());
            }
            return;
        }
        if let Word::Start { version, plan } = letter.word
            && !self.tests.contains_key(&key)
        {
            // Each round ends a test.
            while !self.has_room(plan) && self.make_room(now, session, observe) {}
            let word = self.begin(now, key, (version, plan));
            if word == Word::Ready {
                let client = from;
                observe(ServerEvent::Begun { client, plan });
            }
            return say(session, key, word);
        }
        let Some(test) = self.tests.get_mut(&key) else {
            return;
        };
        test.heard = now;
        test.goes_on |= !matches!(letter.word, Word::Start { .. });
        let word = match letter.word {
            Word::Start { .. } => Some(Word::Ready),
            Word::Want { stream, lap } => {
                let word = test.laps.wanted(stream, lap, session);
                word.unwrap_or_else(|error| Some(refused(&error.to_string())))
            }
            Word::Lap {
                stream,
                lap,
                name,
                length,
                last,
            } => {
                let about = (name, length, last);
                test.receiving.named((stream, lap), about, session);
                None
            }
            Word::End => {
                observe(self.close(now, key, false, session));
                self.over.back().map(|over| over.result.clone())
            }
            Word::Ready | Word::Refused { .. } | Word::Received { .. } | Word::Result { .. } => {
                None
            }
        };
        if let Some(word) = word {
            say(session, key, word);
        }
    }

    fn has_room(&self, plan: Plan) -> bool {
        let sending: usize = self.tests.values().map(|test| test.laps.len()).sum();
        self.tests.len() < MAX_TESTS && sending + usize::from(plan.down) <= MAX_SENDING
    }

    /// Ends the test that has waited for its client's first word for longest. False if there is none.
    fn make_room(
        &mut self,
        now: Instant,
        session: &mut ProgramSession,
        observe: &mut dyn FnMut(ServerEvent),
    ) -> bool {
        let waits = self.tests.iter().filter(|(_, test)| {
            !test.goes_on && now.saturating_duration_since(test.heard) >= FIRST_WORD
        });
        let longest = waits
            .min_by_key(|(_, test)| test.heard)
            .map(|(key, _)| *key);
        if let Some(key) = longest {
            observe(self.close(now, key, true, session));
        }
        longest.is_some()
    }

    fn begin(&mut self, now: Instant, key: Key, (version, plan): (u8, Plan)) -> Word {
        if version != VERSION {
            return refused("the server is of another version");
        }
        if let Some(why) = plan.fault() {
            return refused(why);
        }
        if !self.has_room(plan) {
            return refused("the server is busy with other tests");
        }
        let (up, down) = plan.streams();
        let shares = plan.shares(plan.down);
        let test = Test {
            begun: now,
            heard: now,
            plan,
            laps: Laps::new(down.zip(shares), self.blocks.clone()),
            receiving: Receiving::new(up, plan.chunk_log2, key.0),
            tell: now + Duration::from_millis(plan.interval_ms.into()),
            told_whole: false,
            goes_on: false,
        };
        self.tests.insert(key, test);
        Word::Ready
    }

    /// Does what is due.
    fn look(
        &mut self,
        now: Instant,
        session: &mut ProgramSession,
        observe: &mut dyn FnMut(ServerEvent),
    ) {
        let is_lost = |test: &Test| now.saturating_duration_since(test.heard) >= SILENCE;
        let lost = self.tests.iter().filter(|(_, test)| is_lost(test));
        for key in lost.map(|(key, _)| *key).collect::<Vec<_>>() {
            observe(self.close(now, key, true, session));
        }
        let failed = self.tests.iter_mut();
        let failed = failed.filter_map(|(key, test)| Some((*key, test.receiving.failure.take()?)));
        for (key, why) in failed.collect::<Vec<_>>() {
            say(session, key, refused(&why));
            observe(self.close(now, key, false, session));
        }
        for (key, test) in &mut self.tests {
            for word in test.receiving.due(now, session) {
                say(session, *key, word);
            }
            let whole = test.receiving.is_whole();
            let is_due = now >= test.tell || whole && !test.told_whole;
            if test.plan.up > 0 && is_due {
                test.told_whole = whole;
                test.tell = now + Duration::from_millis(test.plan.interval_ms.into());
                let bytes = test.receiving.bytes();
                say(session, *key, Word::Received { bytes, whole });
            }
        }
    }

    /// Ends a test, and keeps its result for a while.
    fn close(
        &mut self,
        now: Instant,
        key: Key,
        lost: bool,
        session: &mut ProgramSession,
    ) -> ServerEvent {
        let (mut bytes, mut sent, mut time) = (Vec::new(), 0, Duration::ZERO);
        if let Some(test) = self.tests.remove(&key) {
            test.laps.end(session);
            test.receiving.end(session);
            bytes = test.receiving.bytes();
            sent = test.laps.sent().map(|(_, bytes)| bytes).sum();
            time = now.saturating_duration_since(test.begun);
        }
        let received = bytes.iter().sum();
        if self.over.len() >= MAX_OVER {
            self.over.pop_front();
        }
        self.over.push_back(Over {
            key,
            result: Word::Result {
                bytes,
                seconds: time.as_secs_f64(),
            },
            heard: now,
        });
        ServerEvent::Over {
            client: key.0,
            received,
            sent,
            time,
            lost,
        }
    }
}

fn say(session: &mut ProgramSession, (client, test): Key, word: Word) {
    Letter { test, word }.send(client, session);
}

fn refused(why: &str) -> Word {
    Word::Refused { why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_mobilityfirst::local::LocalRequest;

    fn server() -> Server {
        Server {
            tests: BTreeMap::new(),
            over: VecDeque::new(),
            blocks: Blocks::new(1),
            name: 0,
        }
    }

    /// Returns the word that answers one of a client, if any.
    fn tell(server: &mut Server, now: Instant, test: u64, word: Word) -> Option<Word> {
        let letter = Letter { test, word };
        let (client, mut session) = (Guid([test as u8; 32]), ProgramSession::default());
        session.handle_connected();
        server.letter(now, client, letter, &mut session, &mut |_| {});
        std::iter::from_fn(|| session.poll_request()).find_map(|request| match request {
            LocalRequest::Message { payload, .. } => Some(Letter::read(&payload)?.word),
            _ => None,
        })
    }

    fn start(up: u16, down: u16) -> Word {
        let plan = Plan {
            up,
            down,
            bytes: None,
            chunk_log2: 20,
            interval_ms: 1000,
        };
        Word::Start {
            version: VERSION,
            plan,
        }
    }

    #[test]
    fn tests_and_what_is_left_of_them_are_bounded() {
        let (mut server, now) = (server(), Instant::now());
        for test in 0..MAX_TESTS as u64 {
            assert_eq!(tell(&mut server, now, test, start(1, 0)), Some(Word::Ready));
        }
        let answer = tell(&mut server, now, 99, start(1, 0));
        assert!(matches!(answer, Some(Word::Refused { .. })), "{answer:?}");
        // A stranger that begins and ends tests as fast as it can.
        tell(&mut server, now, 0, Word::End);
        for test in 100..10_000 {
            assert_eq!(tell(&mut server, now, test, start(0, 1)), Some(Word::Ready));
            let answer = tell(&mut server, now, test, Word::End);
            assert!(matches!(answer, Some(Word::Result { .. })));
        }
        assert_eq!(
            (server.tests.len(), server.over.len()),
            (MAX_TESTS - 1, MAX_OVER)
        );
        // The result is told again, and the test does not begin again.
        assert!(tell(&mut server, now, 9_999, Word::End).is_some());
        assert_eq!(tell(&mut server, now, 9_999, start(0, 1)), None);
    }

    #[test]
    fn a_start_that_nothing_follows_gives_way_and_a_test_at_work_does_not() {
        let (mut server, now) = (server(), Instant::now());
        for test in 0..MAX_TESTS as u64 {
            tell(&mut server, now, test, start(0, 1));
        }
        let want = Word::Want { stream: 0, lap: 0 };
        tell(&mut server, now, 0, want);
        let early = tell(&mut server, now, 100, start(0, 1));
        assert!(matches!(early, Some(Word::Refused { .. })), "{early:?}");
        let late = now + FIRST_WORD;
        for test in 200..200 + MAX_TESTS as u64 - 1 {
            assert_eq!(
                tell(&mut server, late, test, start(0, 1)),
                Some(Word::Ready)
            );
        }
        let full = tell(&mut server, late, 300, start(0, 1));
        assert!(matches!(full, Some(Word::Refused { .. })), "{full:?}");
        assert!(server.tests.contains_key(&(Guid([0; 32]), 0)));
    }

    #[test]
    fn the_streams_that_it_sends_are_bounded_and_a_silent_client_is_forgotten() {
        let (mut server, now) = (server(), Instant::now());
        for test in 0..2 {
            assert_eq!(
                tell(&mut server, now, test, start(0, 64)),
                Some(Word::Ready)
            );
        }
        let answer = tell(&mut server, now, 2, start(0, 1));
        assert!(matches!(answer, Some(Word::Refused { .. })), "{answer:?}");
        server.look(
            now + SILENCE,
            &mut ProgramSession::default(),
            &mut |event| {
                assert!(matches!(event, ServerEvent::Over { lost: true, .. }));
            },
        );
        assert_eq!(tell(&mut server, now, 2, start(0, 1)), Some(Word::Ready));
    }
}
