//! The receiving side: asks for one lap after the other, and counts what comes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use whimbrel_client::session::{ChunkStep, ProgramSession};
use whimbrel_client::{GetOptions, ProgramError};
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::TransferOptions;
use whimbrel_mobilityfirst::wire::EXACT_SIZE;

use super::AGAIN;
use super::words::Word;

/// First pause before a lap that could not be found is requested again: its name may be on its way to
/// the name service. It doubles up to [`AGAIN`].
const RETRY: Duration = Duration::from_millis(20);
/// Attempts for a lap before its stream is given up.
const MAX_ATTEMPTS: u32 = 30;

struct Lap {
    stream: u16,
    length: u64,
    got: u64,
    attempts: u32,
    /// When to request it again, after it could not be found.
    again: Option<Instant>,
}

struct Stream {
    bytes: u64,
    /// The next lap to ask for; `None` after the last one.
    next: Option<u32>,
    asked: Option<Instant>,
    /// Laps that are not whole.
    open: u32,
}

/// The streams that one end of a test receives.
pub(super) struct Receiving {
    streams: BTreeMap<u16, Stream>,
    laps: BTreeMap<u32, Lap>,
    chunk_log2: u8,
    /// The other end.
    sender: Guid,
    /// The reason why a stream has ended before its end.
    pub(super) failure: Option<String>,
}

impl Receiving {
    pub(super) fn new(
        streams: impl Iterator<Item = u16>,
        chunk_log2: u8,
        sender: Guid,
    ) -> Receiving {
        let stream = |number| {
            let stream = Stream {
                bytes: 0,
                next: Some(0),
                asked: None,
                open: 0,
            };
            (number, stream)
        };
        Receiving {
            streams: streams.map(stream).collect(),
            laps: BTreeMap::new(),
            chunk_log2,
            sender,
            failure: None,
        }
    }

    /// Returns the bytes that each stream has received, in the order of their numbers.
    pub(super) fn bytes(&self) -> Vec<u64> {
        self.streams.values().map(|stream| stream.bytes).collect()
    }

    /// Returns true if the last laps of all streams are whole.
    pub(super) fn is_whole(&self) -> bool {
        let mut streams = self.streams.values();
        streams.all(|stream| stream.next.is_none() && stream.open == 0)
    }

    /// Returns the questions to the sender that are due, and requests the laps that are.
    pub(super) fn due(&mut self, now: Instant, session: &mut ProgramSession) -> Vec<Word> {
        for (request, lap) in &mut self.laps {
            if lap.again.take_if(|at| *at <= now).is_some() {
                session.ask_again(*request);
            }
        }
        let mut words = Vec::new();
        for (number, stream) in &mut self.streams {
            let Some(next) = stream.next else { continue };
            let of_stream = |lap: &&Lap| lap.stream == *number;
            // The next one is asked for when half of the last is here.
            let half = |lap: &Lap| lap.got * 2 >= lap.length;
            let wants = stream.open == 0
                || stream.open == 1 && self.laps.values().find(of_stream).is_some_and(half);
            let is_due = stream.asked.is_none_or(|at| now >= at + AGAIN);
            if wants && is_due {
                stream.asked = Some(now);
                words.push(Word::Want {
                    stream: *number,
                    lap: next,
                });
            }
        }
        words
    }

    /// The sender has named a lap. Returns false for one that was not asked for, which counts for nothing.
    pub(super) fn named(
        &mut self,
        (number, lap): (u16, u32),
        (name, length, last): (Guid, u64, bool),
        session: &mut ProgramSession,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(&number) else {
            return false;
        };
        if stream.next != Some(lap) || stream.asked.is_none() || length == 0 {
            return false;
        }
        stream.next = (!last).then_some(lap.wrapping_add(1));
        stream.asked = None;
        stream.open += 1;
        let lap = Lap {
            stream: number,
            length,
            got: 0,
            attempts: 0,
            again: None,
        };
        let options = GetOptions {
            in_order: false,
            transfer: TransferOptions {
                chunk_log2: self.chunk_log2 | EXACT_SIZE,
                ..TransferOptions::default()
            },
            // No router knows where the sender is if it has called this host.
            caller: Some(self.sender),
            ..GetOptions::default()
        };
        self.laps.insert(session.get(name, options), lap);
        true
    }

    /// Takes what has come of a transfer. Returns false if it is none of these.
    pub(super) fn note(
        &mut self,
        now: Instant,
        request: u32,
        session: &mut ProgramSession,
    ) -> bool {
        let Some(lap) = self.laps.get_mut(&request) else {
            return false;
        };
        let Some(stream) = self.streams.get_mut(&lap.stream) else {
            return false;
        };
        loop {
            match session.take_piece(request) {
                Ok(ChunkStep::Piece(piece)) => {
                    let bytes = piece.data.len() as u64;
                    lap.got += bytes;
                    stream.bytes += bytes;
                }
                Ok(ChunkStep::Waiting) | Err(ProgramError::Over) => return true,
                Ok(ChunkStep::Complete(_)) => {
                    session.take_content(request);
                    stream.open -= 1;
                    self.laps.remove(&request);
                    return true;
                }
                // What is missing of it is requested again.
                Err(error) => {
                    let pause = RETRY * (1 << lap.attempts.min(6));
                    lap.attempts += 1;
                    lap.again = Some(now + pause.min(AGAIN));
                    if lap.attempts > MAX_ATTEMPTS {
                        lap.again = None;
                        let text = format!("a part of stream {}: {error}", lap.stream);
                        self.failure = Some(text);
                    }
                    return true;
                }
            }
        }
    }

    /// Takes everything back.
    pub(super) fn end(&self, session: &mut ProgramSession) {
        self.laps
            .keys()
            .for_each(|request| session.cancel(*request));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whimbrel_client::session::WantedChunk;
    use whimbrel_content::ChunkSize;
    use whimbrel_core::SeededRng;
    use whimbrel_mobilityfirst::local::{FailReason, LocalChunk, LocalEvent, LocalRequest};
    use whimbrel_mobilityfirst::wire::ContentKind;

    use super::super::LAP;
    use super::super::laps::Laps;
    use super::*;
    use crate::shelf::Blocks;

    const CHUNK_LOG2: u8 = 22;
    const SENDER: Guid = Guid([3; 32]);

    /// A host that gets what the sender's shelf has, a chunk of each request at a time.
    #[derive(Default)]
    struct Host {
        under_way: BTreeMap<u32, (Guid, u32)>,
        lengths: BTreeMap<Guid, u64>,
    }

    impl Host {
        fn ask(&mut self, session: &mut ProgramSession) {
            while let Some(request) = session.poll_request() {
                if let LocalRequest::GetFrom { get, .. } = request {
                    self.under_way.insert(get.request, (get.content, 0));
                }
            }
        }

        fn step(&mut self, laps: &mut Laps, fails: bool) -> Vec<LocalEvent> {
            let mut events = Vec::new();
            self.under_way.retain(|request, (content, index)| {
                let request = *request;
                let chunk = match fails && *index == 0 {
                    true => None,
                    false => laps.read(&wanted(*content, *index)),
                };
                let (reason, content_len) = (FailReason::NotServed, self.lengths[content]);
                let event = match chunk {
                    None => LocalEvent::Failed { request, reason },
                    Some(None) => LocalEvent::Complete {
                        request,
                        content_len,
                    },
                    Some(Some(chunk)) => LocalEvent::Chunk(LocalChunk {
                        request,
                        index: *index,
                        chunk_log2: CHUNK_LOG2,
                        content_len,
                        len_proven: false,
                        kind: ContentKind::File,
                        file_name: String::new(),
                        proof: chunk.proof,
                        verified: None,
                        data: chunk.data,
                    }),
                };
                *index += 1;
                let goes_on = matches!(event, LocalEvent::Chunk(_));
                events.push(event);
                goes_on
            });
            events
        }
    }

    fn wanted(content: Guid, index: u32) -> WantedChunk {
        WantedChunk {
            read: 0,
            content,
            index,
            chunk_size: ChunkSize::from_code(CHUNK_LOG2).unwrap(),
        }
    }

    fn connected() -> ProgramSession {
        let mut session = ProgramSession::default();
        session.handle_connected();
        session
    }

    #[test]
    fn what_was_not_asked_for_brings_nothing() {
        let mut receiving = Receiving::new(0..1, CHUNK_LOG2, SENDER);
        let (lap, mut session) = ((Guid([7; 32]), 1, false), connected());
        assert!(!receiving.named((0, 0), lap, &mut session), "not asked yet");
        assert_eq!(receiving.due(Instant::now(), &mut session).len(), 1);
        assert!(receiving.named((0, 0), lap, &mut session));
        let is_named = receiving.named((0, 1), lap, &mut session);
        assert!(!is_named, "the first is not half here");
        assert!(
            !receiving.named((1, 0), lap, &mut session),
            "no such stream"
        );
    }

    #[test]
    fn laps_are_named_to_a_receiver_that_has_half_of_the_one_before() {
        let mut laps = Laps::new([(0, None)].into_iter(), Blocks::new(1));
        let want = |laps: &mut Laps, lap| {
            let word = laps.wanted(0, lap, &mut connected()).unwrap();
            word.map(|word| match word {
                Word::Lap { name, .. } => name,
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(want(&mut laps, 1), None, "laps come in their order");
        let first = want(&mut laps, 0).unwrap();
        assert_eq!(want(&mut laps, 0), Some(first), "asked again");
        assert_eq!(want(&mut laps, 1), None);
        for index in 0..8 {
            laps.read(&wanted(first, index)).flatten().unwrap();
        }
        let second = want(&mut laps, 1).unwrap();
        assert_ne!(second, first);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

        /// Messages may be lost, come twice, and a lap may not be found at first.
        #[test]
        fn each_stream_brings_its_bytes_whatever_becomes_of_the_messages(
            seed: u64, lost in 0u64..60, failing in 0u64..30, sizes in prop::collection::vec(1..2 * LAP + 7, 1..3),
        ) {
            let mut rng = SeededRng::new(seed);
            let numbered = || (0u16..).zip(sizes.iter().copied().map(Some));
            let mut laps = Laps::new(numbered(), Blocks::new(seed));
            let mut receiving = Receiving::new(numbered().map(|(number, _)| number), CHUNK_LOG2, SENDER);
            let (mut host, mut session) = (Host::default(), connected());
            let start = Instant::now();
            for step in 0..4_000u64 {
                let now = start + Duration::from_millis(step * 100);
                for word in receiving.due(now, &mut session) {
                    let Word::Want { stream, lap } = word else { continue };
                    for _ in 0..2 {
                        let answer = laps.wanted(stream, lap, &mut connected()).unwrap();
                        if let Some(Word::Lap { name, length, last, .. }) = answer
                            && rng.below(100) >= lost
                        {
                            host.lengths.insert(name, length);
                            receiving.named((stream, lap), (name, length, last), &mut session);
                        }
                    }
                }
                host.ask(&mut session);
                for event in host.step(&mut laps, rng.below(100) < failing) {
                    session.handle_event(event);
                }
                while let Some(request) = session.poll_changed() {
                    receiving.note(now, request, &mut session);
                }
                if receiving.is_whole() {
                    break;
                }
            }
            prop_assert_eq!(receiving.bytes(), sizes);
            prop_assert_eq!(receiving.failure, None);
        }
    }
}
