//! Versioned, segmented content, served as by `ndnserve` (formerly `ndnputchunks`).
//!
//! Facts: ndn-tools `tools/serve`: segments of 8,000 bytes, fresh for 10 s; the name without
//! version is registered; metadata is fresh for 10 ms (ndn-cxx `metadata-object`); an Interest that
//! cannot be answered gets a Nack without a reason.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time, WallClock};
use whimbrel_ndn_packet::{Component, DataRef, InterestRef, NackReason, Name, types};

use super::source::{SegmentSource, SourceError};
use super::store::{Metadata, SegmentEncoder, Store};
use super::{Answer, Responder, Service, SharedSigner};
use crate::exchange::answers;
use crate::register::{RegisterOptions, Registrar, RouteParameters};

/// Options of a [`Producer`].
pub struct ProducerOptions {
    /// The version if the name does not end in one; by convention microseconds of Unix time.
    pub version: u64,
    /// FreshnessPeriod of segments.
    pub freshness: Duration,
    /// FreshnessPeriod of metadata.
    pub metadata_freshness: Duration,
    /// Bytes of cached encoded segments, for retransmissions and other consumers. Writing fresh
    /// memory costs more than a digest: a cache that is never hit slows down serving.
    pub cache_bytes: usize,
    /// Sign as many segments as the cache holds before the first Interest. Otherwise each is signed
    /// at its first Interest.
    pub sign_ahead: bool,
    /// Unix time, for the versions of metadata.
    pub clock: WallClock,
}

impl ProducerOptions {
    /// `ndnserve`'s defaults, 32 MiB of cache, signed on demand or slightly earlier; the version is
    /// the time of `now`.
    pub fn new(clock: WallClock, now: Time) -> ProducerOptions {
        ProducerOptions {
            version: clock.unix_millis(now).saturating_mul(1000),
            freshness: Duration::from_secs(10),
            metadata_freshness: Duration::from_millis(10),
            cache_bytes: 32 * 1024 * 1024,
            sign_ahead: false,
            clock,
        }
    }
}

/// An event of a producer of segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProducerEvent {
    /// A segment could not be read; Interests for it get a Nack until it can.
    Unreadable(SourceError),
    /// A segment's packet is larger than NDN's limit; use smaller segments.
    TooLarge {
        /// The segment.
        segment: u64,
        /// Bytes of the packet.
        size: usize,
    },
}

/// Answers Interests for the segments of one version, and for its metadata.
pub struct SegmentResponder<S> {
    source: S,
    signer: SharedSigner,
    name: Name,
    versioned: Name,
    encoder: SegmentEncoder,
    metadata: Metadata,
    store: Store,
    clock: WallClock,
    scratch: Vec<u8>,
    typical_size: usize,
    ahead: Ahead,
    events: VecDeque<ProducerEvent>,
}

/// Signs segments ahead of their Interests, while a consumer that requests them in order leaves
/// time for it.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    /// The next segment in order.
    expected: u64,
    /// The number of consecutive requests in order.
    run: u64,
    /// The next segment to sign, and the end.
    next: u64,
    until: u64,
}

/// Maximum of segments signed ahead: a consumer's usual window.
const MAX_AHEAD: u64 = 256;
/// Segments per step: some 20 microseconds of digests.
const AHEAD_AT_ONCE: usize = 4;

impl Ahead {
    /// Records the request for a segment. The run so far determines how far to sign ahead.
    fn asked(&mut self, segment: u64) {
        if segment != self.expected {
            (self.run, self.next) = (0, 0);
        }
        self.run += 1;
        self.expected = segment + 1;
        self.next = self.next.max(self.expected);
        self.until = self.expected.saturating_add(self.run.min(MAX_AHEAD));
    }
}

/// Serves one version of one object.
pub type Producer<S> = Service<SegmentResponder<S>>;

impl<S: SegmentSource> Producer<S> {
    /// Serves `source` under `name`, which may end in a version, and registers the name without it.
    pub fn segments(
        name: Name,
        source: S,
        signer: SharedSigner,
        options: ProducerOptions,
        register: RegisterOptions,
        rng: SeededRng,
    ) -> Producer<S> {
        let responder = SegmentResponder::new(name, source, signer, options);
        let routes = [RouteParameters::new(responder.name.clone())];
        Service::new(responder, Registrar::new(register, routes), rng)
    }
}

impl<S: SegmentSource> SegmentResponder<S> {
    /// Serves `source` under `name`, which may end in a version.
    pub fn new(
        name: Name,
        source: S,
        signer: SharedSigner,
        options: ProducerOptions,
    ) -> SegmentResponder<S> {
        let is_versioned = name
            .as_ref()
            .last()
            .is_some_and(|last| last.number_of(types::VERSION).is_some());
        let (name, versioned) = if is_versioned {
            (name.prefix(name.len() - 1), name)
        } else {
            let versioned = name.child(Component::version(options.version).as_ref());
            (name, versioned)
        };
        let last = source.segments().max(1) - 1;
        let mut responder = SegmentResponder {
            encoder: SegmentEncoder::new(versioned.clone(), options.freshness, last, &*signer),
            metadata: Metadata::new(&name, versioned.clone(), options.metadata_freshness),
            store: Store::new(options.cache_bytes),
            source,
            signer,
            name,
            versioned,
            clock: options.clock,
            scratch: Vec::new(),
            typical_size: 0,
            ahead: Ahead::default(),
            events: VecDeque::new(),
        };
        if options.sign_ahead {
            responder.sign_ahead(options.cache_bytes);
        }
        responder
    }

    /// Returns the name without version, for registration.
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the prefix of the segment numbers.
    pub const fn versioned_name(&self) -> &Name {
        &self.versioned
    }

    /// Returns the number of segments.
    pub fn segment_count(&self) -> u64 {
        self.source.segments().max(1)
    }

    fn sign_ahead(&mut self, room: usize) {
        for number in 0..self.segment_count() {
            if self.store.bytes() + self.typical_size > room || self.segment(number).is_none() {
                break;
            }
        }
    }

    /// The packet of a segment; `None` if it does not exist or cannot be read.
    fn segment(&mut self, number: u64) -> Option<Bytes> {
        if number >= self.segment_count() {
            return None;
        }
        if let Some(packet) = self.store.get(number) {
            return Some(packet);
        }
        let (source, scratch) = (&mut self.source, &mut self.scratch);
        let packet =
            self.encoder
                .encode(number, self.typical_size, &*self.signer, scratch, |out| {
                    source.read(number, out)
                });
        match packet {
            Ok(packet) if packet.len() <= whimbrel_ndn_packet::MAX_PACKET => {
                self.typical_size = self.typical_size.max(packet.len());
                self.store.put(number, packet.clone());
                Some(packet)
            }
            Ok(packet) => self.complain(ProducerEvent::TooLarge {
                segment: number,
                size: packet.len(),
            }),
            Err(error) => self.complain(ProducerEvent::Unreadable(error)),
        }
    }

    fn complain(&mut self, event: ProducerEvent) -> Option<Bytes> {
        // Repeated events of one failure carry no information.
        if self.events.back() != Some(&event) && self.events.len() < 1024 {
            self.events.push_back(event);
        }
        None
    }

    fn find(&mut self, now: Time, interest: &InterestRef<'_>) -> Option<Bytes> {
        let asked = interest.name;
        let about_metadata = self.metadata.prefix().as_ref().is_prefix_of(asked);
        if about_metadata {
            let micros = self.clock.unix_millis(now).saturating_mul(1000);
            let packet = self.metadata.packet(now, micros, &*self.signer);
            return packet_if_it_answers(interest, packet);
        }
        if let Some(rest) = asked.value().strip_prefix(self.versioned.as_ref().value()) {
            let suffix = whimbrel_ndn_packet::NameRef::from_value(rest).ok()?;
            if let Some(number) = suffix
                .get(0)
                .and_then(|first| first.number_of(types::SEGMENT))
            {
                let packet = self.segment(number)?;
                self.ahead.asked(number);
                return packet_if_it_answers(interest, packet);
            }
        }
        // Without version or segment number: the first segment, if its name is under the requested
        // one.
        let begins = asked.is_prefix_of(self.versioned.as_ref());
        if !begins || !interest.can_be_prefix {
            return None;
        }
        self.segment(0)
    }
}

fn packet_if_it_answers(interest: &InterestRef<'_>, packet: Bytes) -> Option<Bytes> {
    let data = DataRef::decode(&packet).ok()?;
    answers(interest.name, interest.can_be_prefix, &data).then_some(packet)
}

impl<S: SegmentSource> Responder for SegmentResponder<S> {
    type Event = ProducerEvent;

    fn respond(&mut self, now: Time, interest: &InterestRef<'_>) -> Answer {
        match self.find(now, interest) {
            Some(packet) => Answer::Data(packet),
            None => Answer::Nack(NackReason::None),
        }
    }

    fn prepare(&mut self) -> bool {
        // Segments signed ahead must not evict requested ones.
        let most = (self.store.limit() / self.typical_size.max(1) / 2) as u64;
        let until = self
            .ahead
            .until
            .min(self.segment_count())
            .min(self.ahead.expected + most);
        for _ in 0..AHEAD_AT_ONCE {
            if self.ahead.next >= until || self.segment(self.ahead.next).is_none() {
                return false;
            }
            self.ahead.next += 1;
        }
        self.ahead.next < until
    }

    fn handle_wall_clock(&mut self, wall: WallClock) {
        self.clock = wall;
    }

    fn poll_event(&mut self) -> Option<ProducerEvent> {
        self.events.pop_front()
    }
}
