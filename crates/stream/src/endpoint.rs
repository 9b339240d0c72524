//! All streams of a program.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_core::recent::{Recent, SharedRecent};
use whimbrel_core::timer::TimerQueue;
use whimbrel_core::{Guid, SeededRng, Time};

use crate::one::{FIRST_LIMIT, StreamEnd};
use crate::packet::{
    CutOff, NO_TOKEN, PacketBody, PacketFault, StreamPacket, StreamSegment, StreamSide, Token,
};

/// Bound of the streams that are remembered after their end.
const MAX_OVER: usize = 65_536;
/// Bound of the packets without a stream that wait to be sent.
const MAX_ANSWERS: usize = 1024;
/// Bound of the remembered tokens.
const MAX_TOKENS: usize = 1024;
/// Bytes that all streams together may hold for their programs, apart from [`FIRST_LIMIT`] of each.
const MAX_HELD: u64 = 64 << 20;
/// Largest window of one stream.
const MAX_WINDOW: u64 = 2 << 20;

/// One end of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamKey {
    /// The other side's name.
    pub peer: Guid,
    /// True at the side that has opened it.
    pub is_opener: bool,
    /// The number that the opener has drawn.
    pub stream: u64,
}

impl StreamKey {
    fn side(self) -> StreamSide {
        match self.is_opener {
            true => StreamSide::Opener,
            false => StreamSide::Acceptor,
        }
    }
}

/// The constants of an endpoint.
#[derive(Clone, Debug)]
pub struct StreamEndpointOptions {
    /// True if others may open streams.
    pub accepts: bool,
    /// Maximum number of streams at a time. One name may open as many as are left for others.
    pub max_streams: usize,
    /// A stream ends after this silence of its peer.
    pub patience: Duration,
    /// The key of this endpoint's tokens, drawn for each start of the program.
    pub secret: [u8; 32],
}

/// An event for the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamEvent {
    /// A caller has opened a stream. Its token has proven its name.
    Accepted(StreamKey),
    /// There may be bytes to read, or the end.
    Readable(StreamKey),
    /// There may be room to write.
    Writable(StreamKey),
    /// The stream is over.
    Cut(StreamKey, CutOff),
}

/// Why a stream cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenStreamError {
    /// The bound is reached.
    #[error("too many streams are open")]
    TooMany,
}

/// The outcome of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamRead {
    /// Bytes in order.
    Bytes(Bytes),
    /// Nothing yet.
    Later,
    /// All bytes have been read.
    End,
    /// There is no such stream: it was cut off.
    Gone,
}

/// Counters of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamEndpointStats {
    /// Messages that were no packet.
    pub faulty: u64,
    /// Packets that contradict their stream or exceed its limit.
    pub contradicting: u64,
    /// Packets of callers without a valid token.
    pub without_token: u64,
    /// Streams refused because of [`StreamEndpointOptions`]'s bound.
    pub refused: u64,
}

/// How a stream ended: what a late packet of it is answered with.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// Everything up to this position was received, and everything sent was too.
    Whole(u64),
    Cut(CutOff),
}

/// All streams of a program.
#[derive(Debug)]
pub struct StreamEndpoint {
    options: StreamEndpointOptions,
    streams: BTreeMap<StreamKey, StreamEnd>,
    of_peer: BTreeMap<Guid, usize>,
    over: SharedRecent<Guid, StreamKey, Ending>,
    /// Tokens that others have given.
    tokens: Recent<Guid, Token>,
    timers: TimerQueue<StreamKey>,
    /// Streams with something to send take turns.
    turns: VecDeque<StreamKey>,
    has_turn: BTreeSet<StreamKey>,
    answers: VecDeque<(Guid, StreamPacket)>,
    events: VecDeque<StreamEvent>,
    /// Bytes that streams may hold.
    claimed: u64,
    rng: SeededRng,
    stats: StreamEndpointStats,
}

impl StreamEndpoint {
    /// Returns an endpoint without streams.
    pub fn new(options: StreamEndpointOptions, mut rng: SeededRng) -> StreamEndpoint {
        StreamEndpoint {
            options,
            streams: BTreeMap::new(),
            of_peer: BTreeMap::new(),
            over: SharedRecent::new(MAX_OVER, &mut rng),
            tokens: Recent::new(MAX_TOKENS),
            timers: TimerQueue::new(),
            turns: VecDeque::new(),
            has_turn: BTreeSet::new(),
            answers: VecDeque::new(),
            events: VecDeque::new(),
            claimed: 0,
            rng,
            stats: StreamEndpointStats::default(),
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> StreamEndpointStats {
        self.stats
    }

    /// Returns the number of streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns true if there is no stream.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Opens a stream to a peer. Nothing is sent until the first write.
    pub fn open(&mut self, now: Time, peer: Guid) -> Result<StreamKey, OpenStreamError> {
        if self.streams.len() >= self.options.max_streams {
            return Err(OpenStreamError::TooMany);
        }
        let key = StreamKey {
            peer,
            is_opener: true,
            stream: self.rng.next_word(),
        };
        self.add(now, key);
        Ok(key)
    }

    fn add(&mut self, now: Time, key: StreamKey) {
        let mut stream = StreamEnd::new(now, self.options.patience);
        stream.had_token = key.is_opener && self.tokens.contains(&key.peer);
        if key.is_opener && !stream.had_token {
            stream.sending.introduce();
        }
        self.claimed += stream.receiving.claim();
        self.timers.set(key, stream.deadline());
        if self.streams.insert(key, stream).is_none() {
            *self.of_peer.entry(key.peer).or_default() += 1;
        }
    }

    /// Queues bytes to send and returns their number, which is limited by [`StreamEndpoint::room`] and 0 if the
    /// stream is over.
    pub fn write(&mut self, now: Time, key: StreamKey, data: &Bytes) -> usize {
        self.change(key, |stream| stream.write(now, data))
            .unwrap_or(0)
    }

    /// Returns the number of bytes that can be written; `None` if the stream is over.
    pub fn room(&self, key: StreamKey) -> Option<usize> {
        Some(self.streams.get(&key)?.sending.room())
    }

    /// Returns true if the peer has acknowledged everything written so far; `None` if the stream is over.
    pub fn is_acknowledged(&self, key: StreamKey) -> Option<bool> {
        Some(self.streams.get(&key)?.sending.is_acknowledged())
    }

    /// Returns true once the peer has acknowledged everything written, and the end.
    pub fn is_delivered(&self, key: StreamKey) -> bool {
        let stream = self.streams.get(&key);
        stream.is_none_or(|stream| stream.sending.is_done())
    }

    /// Closes the direction to the peer after the bytes already written.
    pub fn finish(&mut self, key: StreamKey) {
        self.change(key, |stream| stream.sending.finish());
    }

    /// Returns the next bytes in order, at most `max`.
    pub fn read(&mut self, key: StreamKey, max: usize) -> StreamRead {
        let read = self.change(key, |stream| match stream.receiving.read(max) {
            Some(bytes) => StreamRead::Bytes(bytes),
            None if stream.receiving.has_all() => StreamRead::End,
            None => StreamRead::Later,
        });
        read.unwrap_or(StreamRead::Gone)
    }

    /// Releases a stream that the program no longer needs. If both sides have finished, bytes in flight are still
    /// delivered; otherwise the stream is cut off.
    pub fn release(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(&key) else {
            return;
        };
        if !stream.receiving.has_all() || !stream.sending.is_finished() {
            return self.cut(key, CutOff::Ended);
        }
        self.change(key, |stream| {
            stream.is_released = true;
            stream.receiving.discard();
        });
    }

    /// Ends a stream at once and tells the peer the reason.
    pub fn cut(&mut self, key: StreamKey, why: CutOff) {
        if self.remove(key, Ending::Cut(why)) {
            let body = PacketBody::Cut(key.side(), why);
            self.answer(key.peer, key.stream, body);
        }
    }

    /// Handles a message from a peer.
    pub fn handle_message(&mut self, now: Time, from: Guid, message: &Bytes) {
        let packet = match StreamPacket::decode(message) {
            Ok(packet) => packet,
            Err(fault) => return self.count(fault),
        };
        let key = |is_opener| StreamKey {
            peer: from,
            is_opener,
            stream: packet.stream,
        };
        match packet.body {
            PacketBody::FromOpener(token, segment) => {
                self.handle_opener(now, key(false), token, &segment)
            }
            PacketBody::FromAcceptor(segment) => {
                if !self.segment(now, key(true), &segment) {
                    self.answer_late(key(true), &segment);
                }
            }
            PacketBody::Cut(side, why) => {
                let key = key(side == StreamSide::Acceptor);
                if self.remove(key, Ending::Cut(why)) {
                    self.events.push_back(StreamEvent::Cut(key, why));
                }
            }
            PacketBody::Token(token) => self.token_given(key(true), token),
        }
    }

    fn count(&mut self, _: PacketFault) {
        self.stats.faulty += 1;
    }

    fn token_of(&self, peer: &Guid) -> Token {
        let hash = blake3::keyed_hash(&self.options.secret, &peer.0);
        let mut token = NO_TOKEN;
        token.copy_from_slice(&hash.as_bytes()[..NO_TOKEN.len()]);
        token
    }

    fn handle_opener(&mut self, now: Time, key: StreamKey, token: Token, segment: &StreamSegment) {
        if !self.options.accepts {
            self.stats.refused += 1;
            let body = PacketBody::Cut(StreamSide::Acceptor, CutOff::NotPermitted);
            return self.answer(key.peer, key.stream, body);
        }
        // A name is a claim until its owner shows what was sent to that name.
        let valid = self.token_of(&key.peer);
        if token != valid {
            self.stats.without_token += 1;
            return self.answer(key.peer, key.stream, PacketBody::Token(valid));
        }
        if self.segment(now, key, segment) || self.answer_late(key, segment) {
            return;
        }
        // Of a stream that this program has never known, the first bytes come first or soon.
        let left = self.options.max_streams.saturating_sub(self.streams.len());
        if self.of_peer.get(&key.peer).copied().unwrap_or(0) >= left {
            self.stats.refused += 1;
            let body = PacketBody::Cut(StreamSide::Acceptor, CutOff::Full);
            return self.answer(key.peer, key.stream, body);
        }
        self.add(now, key);
        self.events.push_back(StreamEvent::Accepted(key));
        self.segment(now, key, segment);
    }

    /// Passes a segment to its stream. Returns false if there is none.
    fn segment(&mut self, now: Time, key: StreamKey, segment: &StreamSegment) -> bool {
        let Some(changes) = self.change(key, |stream| stream.handle(now, segment)) else {
            return false;
        };
        self.stats.contradicting += u64::from(changes.is_false);
        if changes.readable {
            self.events.push_back(StreamEvent::Readable(key));
        }
        if changes.writable {
            self.events.push_back(StreamEvent::Writable(key));
        }
        true
    }

    /// Answers a packet of a stream that is over. Returns false if no such stream is remembered.
    fn answer_late(&mut self, key: StreamKey, segment: &StreamSegment) -> bool {
        let ending = self.over.touch(&key).copied();
        let why = match ending {
            Some(Ending::Whole(received)) => {
                if segment.has_content() || segment.asks {
                    let last = StreamSegment {
                        received,
                        has_all: true,
                        limit: received,
                        position: segment.received,
                        ..StreamSegment::default()
                    };
                    let body = self.body(key, last);
                    self.answer(key.peer, key.stream, body);
                }
                return true;
            }
            Some(Ending::Cut(why)) => why,
            None if key.is_opener => CutOff::Unknown,
            None => return false,
        };
        if segment.has_content() || segment.asks {
            self.answer(key.peer, key.stream, PacketBody::Cut(key.side(), why));
        }
        true
    }

    /// An acceptor has given a token.
    fn token_given(&mut self, key: StreamKey, token: Token) {
        let Some(stream) = self.streams.get(&key) else {
            return;
        };
        let is_known = self.tokens.get(&key.peer) == Some(&token);
        if stream.had_token && is_known {
            // A copy.
            return;
        }
        self.tokens.insert(key.peer, token);
        if stream.had_token {
            // The acceptor was started again, and nobody knows what it had done.
            self.remove(key, Ending::Cut(CutOff::Unknown));
            self.events
                .push_back(StreamEvent::Cut(key, CutOff::Unknown));
            return;
        }
        self.change(key, |stream| {
            stream.had_token = true;
            stream.sending.restart();
        });
    }

    fn body(&self, key: StreamKey, segment: StreamSegment) -> PacketBody {
        match key.is_opener {
            true => {
                let token = self.tokens.get(&key.peer);
                PacketBody::FromOpener(token.copied().unwrap_or(NO_TOKEN), segment)
            }
            false => PacketBody::FromAcceptor(segment),
        }
    }

    fn answer(&mut self, to: Guid, stream: u64, body: PacketBody) {
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push_back((to, StreamPacket { stream, body }));
        }
    }

    /// Changes a stream, and does what follows from it: windows, turns, deadlines, its end.
    fn change<T>(&mut self, key: StreamKey, act: impl FnOnce(&mut StreamEnd) -> T) -> Option<T> {
        let stream = self.streams.get_mut(&key)?;
        let before = stream.receiving.claim();
        let outcome = act(stream);
        let left = MAX_HELD.saturating_sub(self.claimed) / 8;
        stream.grant(left.clamp(FIRST_LIMIT, MAX_WINDOW));
        self.claimed = self.claimed + stream.receiving.claim() - before;
        if stream.wants_to_send() && self.has_turn.insert(key) {
            self.turns.push_back(key);
        }
        let (deadline, is_released) = (stream.deadline(), stream.is_released);
        let is_over = is_released && stream.is_over();
        self.timers.set(key, deadline);
        if is_over {
            let received = stream.receiving.received();
            self.remove(key, Ending::Whole(received));
        }
        Some(outcome)
    }

    fn remove(&mut self, key: StreamKey, ending: Ending) -> bool {
        let Some(stream) = self.streams.remove(&key) else {
            return false;
        };
        self.claimed -= stream.receiving.claim();
        self.timers.cancel(&key);
        if let Some(count) = self.of_peer.get_mut(&key.peer) {
            *count -= 1;
            if *count == 0 {
                self.of_peer.remove(&key.peer);
            }
        }
        self.over.insert(key.peer, key, ending);
        true
    }

    /// Returns the next message and its destination.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Guid, Bytes)> {
        if let Some((to, packet)) = self.answers.pop_front() {
            return Some((to, packet.encode()));
        }
        while let Some(key) = self.turns.pop_front() {
            self.has_turn.remove(&key);
            let Some(Some(segment)) = self.change(key, |stream| stream.poll(now)) else {
                continue;
            };
            if key.is_opener
                && self.tokens.contains(&key.peer)
                && let Some(stream) = self.streams.get_mut(&key)
            {
                stream.had_token = true;
            }
            let body = self.body(key, segment);
            let packet = StreamPacket {
                stream: key.stream,
                body,
            };
            return Some((key.peer, packet.encode()));
        }
        None
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<StreamEvent> {
        self.events.pop_front()
    }

    /// Returns the next deadline.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next().map(|(at, _)| at)
    }

    /// Handles expired deadlines.
    pub fn handle_timeout(&mut self, now: Time) {
        let mut pass = self.timers.pass(now);
        while let Some((_, key)) = pass.next(&mut self.timers) {
            let outcome = self.change(key, |stream| stream.handle_timeout(now));
            if let Some(Some(why)) = outcome {
                self.cut(key, why);
                self.events.push_back(StreamEvent::Cut(key, why));
            }
        }
    }
}
