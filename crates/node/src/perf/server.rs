//! `perf server`: answers tests until it is stopped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

use super::laps::Laps;
use super::receiving::Receiving;
use super::words::{Letter, VERSION, Word};
use super::{AGAIN, CHANNEL, LOOK, Plan};
use crate::keys::random_bytes;
use crate::local_client::{Attachment, LocalClient, LocalError};

/// Bound of the tests at a time.
const MAX_TESTS: usize = 16;
/// A test whose client says nothing for so long is over. A client says every ten seconds that it
/// goes on.
const SILENCE: Duration = Duration::from_secs(60);

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

/// The number of the question about the host's name.
const NAME: u32 = 0x6e61_6d65;

/// What of a host's report is read here.
#[derive(Deserialize)]
struct HostReport {
    guid: Guid,
}

struct Test {
    client: Guid,
    begun: Instant,
    heard: Instant,
    plan: Plan,
    laps: Laps,
    receiving: Receiving,
    /// When its receiver's bytes are told next.
    tell: Instant,
    /// Its last word, once it is over.
    result: Option<Word>,
}

/// Serves until `stop` is set, or for one test.
pub fn serve(
    attachment: &mut Attachment,
    one_off: bool,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ServerEvent),
) -> Result<(), LocalError> {
    let mut client = attachment.connect()?;
    client.send(&LocalRequest::Listen { channel: CHANNEL })?;
    client.send(&LocalRequest::Status { request: NAME })?;
    let mut server = Server {
        tests: BTreeMap::new(),
        next_request: 1,
        over: 0,
    };
    while !stop.load(Ordering::Relaxed) {
        let event = client.receive(LOOK)?;
        let now = Instant::now();
        let mut requests = Vec::new();
        if let Some(event) = event {
            server.handle(now, event, &mut requests, observe);
        }
        server.look(now, &mut requests, observe);
        send_all(&mut client, &requests)?;
        // Its client may ask again for the result.
        let settled = server
            .tests
            .values()
            .all(|test| test.result.is_some() && silence(now, test) >= AGAIN * 3);
        if one_off && server.over > 0 && settled {
            break;
        }
    }
    let mut requests = Vec::new();
    for test in server.tests.values().filter(|test| test.result.is_none()) {
        requests.extend(test.laps.end());
        requests.extend(test.receiving.end());
    }
    send_all(&mut client, &requests)
}

fn silence(now: Instant, test: &Test) -> Duration {
    now.saturating_duration_since(test.heard)
}

fn send_all(client: &mut LocalClient, requests: &[LocalRequest]) -> Result<(), LocalError> {
    requests.iter().try_for_each(|request| client.send(request))
}

struct Server {
    tests: BTreeMap<(Guid, u64), Test>,
    next_request: u32,
    over: usize,
}

impl Server {
    fn handle(
        &mut self,
        now: Instant,
        event: LocalEvent,
        requests: &mut Vec<LocalRequest>,
        observe: &mut dyn FnMut(ServerEvent),
    ) {
        match event {
            LocalEvent::Message { from, payload, .. } => {
                if let Some(letter) = Letter::read(&payload) {
                    self.letter(now, from, letter, requests, observe);
                }
            }
            LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            } => {
                let mut tests = self.tests.values_mut();
                let chunk = tests.find_map(|test| test.laps.read(&content, index, chunk_log2));
                requests.push(LocalRequest::ReadDone {
                    read,
                    chunk: chunk.flatten(),
                });
            }
            LocalEvent::Status {
                request: NAME,
                json,
            } => {
                if let Ok(HostReport { guid }) = serde_json::from_str(&json) {
                    observe(ServerEvent::Listening { name: guid });
                }
            }
            event => {
                let mut tests = self.tests.values_mut();
                tests.any(|test| test.receiving.handle(now, &event, requests));
            }
        }
    }

    fn letter(
        &mut self,
        now: Instant,
        from: Guid,
        letter: Letter,
        requests: &mut Vec<LocalRequest>,
        observe: &mut dyn FnMut(ServerEvent),
    ) {
        let key = (from, letter.test);
        if let Word::Start { version, plan } = letter.word
            && !self.tests.contains_key(&key)
        {
            let word = self.begin(now, key, (version, plan));
            if word == Word::Ready {
                let client = from;
                observe(ServerEvent::Begun { client, plan });
            }
            let letter = Letter { word, ..letter };
            return requests.push(letter.to(from));
        }
        let request = self.next_request;
        let Some(test) = self.tests.get_mut(&key) else {
            return;
        };
        test.heard = now;
        let word = match letter.word {
            Word::Start { .. } => Some(Word::Ready),
            Word::Want { stream, lap } => test.laps.wanted(stream, lap, requests),
            Word::Lap {
                stream,
                lap,
                name,
                length,
                last,
            } => {
                self.next_request += 1;
                let about = (name, length, last);
                requests.extend(test.receiving.named(request, (stream, lap), about));
                None
            }
            Word::End => {
                if test.result.is_none() {
                    self.over += 1;
                    observe(close(now, test, false, requests));
                }
                test.result.clone()
            }
            Word::Ready | Word::Refused { .. } | Word::Received { .. } | Word::Result { .. } => {
                None
            }
        };
        requests.extend(word.map(|word| answer(key.1, test, word)));
    }

    fn begin(&mut self, now: Instant, key: (Guid, u64), (version, plan): (u8, Plan)) -> Word {
        let refused = |why: &str| Word::Refused { why: why.into() };
        if version != VERSION {
            return refused("the server is of another version");
        }
        if let Some(why) = plan.fault() {
            return refused(why);
        }
        let busy = self.tests.values().filter(|test| test.result.is_none());
        if busy.count() >= MAX_TESTS {
            return refused("the server is busy with other tests");
        }
        let (up, down) = plan.streams();
        let shares = plan.shares(plan.down);
        let seed = random_bytes().map(u64::from_le_bytes);
        let laps = seed.and_then(|seed| Laps::new(down.zip(shares), seed));
        let laps = match laps {
            Ok(laps) => laps,
            Err(error) => return refused(&error.to_string()),
        };
        let test = Test {
            client: key.0,
            begun: now,
            heard: now,
            plan,
            laps,
            receiving: Receiving::new(up, plan.chunk_log2),
            tell: now + Duration::from_millis(plan.interval_ms.into()),
            result: None,
        };
        self.tests.insert(key, test);
        Word::Ready
    }

    /// Does what is due.
    fn look(
        &mut self,
        now: Instant,
        requests: &mut Vec<LocalRequest>,
        observe: &mut dyn FnMut(ServerEvent),
    ) {
        self.tests.retain(|_, test| {
            let is_lost = silence(now, test) >= SILENCE;
            if is_lost && test.result.is_none() {
                self.over += 1;
                observe(close(now, test, true, requests));
            }
            !is_lost
        });
        let running = self.tests.iter_mut();
        for (key, test) in running.filter(|(_, test)| test.result.is_none()) {
            for word in test.receiving.due(now, requests) {
                requests.push(answer(key.1, test, word));
            }
            if test.plan.up > 0 && now >= test.tell {
                test.tell = now + Duration::from_millis(test.plan.interval_ms.into());
                let word = Word::Received {
                    bytes: test.receiving.bytes(),
                    whole: test.receiving.is_whole(),
                };
                requests.push(answer(key.1, test, word));
            }
        }
    }
}

fn answer(test: u64, about: &Test, word: Word) -> LocalRequest {
    let letter = Letter { test, word };
    letter.to(about.client)
}

/// Ends a test.
fn close(
    now: Instant,
    test: &mut Test,
    lost: bool,
    requests: &mut Vec<LocalRequest>,
) -> ServerEvent {
    requests.extend(test.laps.end());
    requests.extend(test.receiving.end());
    let time = now.saturating_duration_since(test.begun);
    let bytes = test.receiving.bytes();
    let received = bytes.iter().sum();
    let sent = test.laps.sent.values().sum();
    test.result = Some(Word::Result {
        bytes,
        seconds: time.as_secs_f64(),
    });
    ServerEvent::Over {
        client: test.client,
        received,
        sent,
        time,
        lost,
    }
}
