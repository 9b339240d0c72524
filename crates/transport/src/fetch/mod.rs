//! Fetching segmented content, as `ndnget` (formerly `ndncatchunks`) does.
//!
//! After ndn-tools `tools/get` (options, defaults, pipelines) and ndn-cxx. Differences from
//! `ndnget`:
//!
//! * the timeout of a pending Interest is the *current* estimate, not the one at its transmission:
//!   the oldest Interest is always the next to time out, and checking costs nothing per segment;
//! * slow start also ends when the delay rises ([`crate::congestion`]), and an underused window
//!   does not grow;
//! * FinalBlockId may change: the one in the highest segment that has one is used;
//! * data that waits for the program is bounded, in segments and in bytes;
//! * a face that goes down and comes up again costs no retry;
//! * a Nack `NoRoute` need not end it ([`FetchOptions::no_route_patience`]);
//! * a fetch may have several paths ([`crate::path`]): each Interest is sent on the path with room
//!   in its window that has the shortest round trip; a lost Interest is retransmitted on its own
//!   path ([PTP §5.C.1]), or on another one if that is down or failing.

mod discovery;
mod event;
mod options;
mod pipeline;
mod segments;

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use whimbrel_core::{Deadline, SeededRng, Time};
use whimbrel_ndn_packet::{DataRef, LpPacket, NackReason, Name};

use crate::application::{Application, Arrival, FaceNumber, Outgoing};
use crate::exchange::Exchange;
use crate::path::{Path, Paths};
use discovery::Discovered;
pub use event::{FetchError, FetchEvent, FetchStats, PathLeft, SegmentFailure};
pub use options::{Delivery, Discovery, FetchOptions, Multipath, Selection, Verifier, Verify};
use pipeline::{Pipeline, Signs};

enum Phase {
    /// Discovery of the segments' name.
    Discovering(Exchange),
    Fetching,
    /// The fetch failed; checks whether the producer has switched to another version.
    Asking(Exchange, FetchError),
    Over,
}

/// Fetches one object: an [`Application`].
///
/// Memory: at most [`FetchOptions::max_segments`] segments and [`FetchOptions::max_bytes`] of
/// content until the program takes the events; `log_window` and `log_rtt` add at most two events
/// for each Data.
pub struct Fetcher {
    name: Name,
    options: FetchOptions,
    rng: SeededRng,
    phase: Phase,
    pipeline: Option<Pipeline>,
    events: VecDeque<FetchEvent>,
    /// Faces that are up.
    faces: BTreeSet<FaceNumber>,
    /// The face on which the current Interest of [`Phase`] was sent.
    asked_by: FaceNumber,
    paused: bool,
    /// Packets that could not be decoded before there was a pipeline to count them.
    unexpected: u64,
}

impl Fetcher {
    /// Returns a fetch of `name`, which starts as soon as the face is up.
    pub fn new(name: Name, options: FetchOptions, rng: SeededRng, now: Time) -> Fetcher {
        let mut fetcher = Fetcher {
            name,
            options,
            rng,
            phase: Phase::Over,
            pipeline: None,
            events: VecDeque::new(),
            faces: BTreeSet::new(),
            asked_by: FaceNumber::FIRST,
            paused: false,
            unexpected: 0,
        };
        match discovery::exchange(&fetcher.name, &fetcher.options, now) {
            Some(exchange) => fetcher.phase = Phase::Discovering(exchange),
            None => fetcher.start(fetcher.name.clone(), now),
        }
        fetcher
    }

    /// Returns the counters as of `now`.
    pub fn stats(&self) -> FetchStats {
        let stats = self
            .pipeline
            .as_ref()
            .map(Pipeline::stats)
            .unwrap_or_default();
        FetchStats {
            unexpected: stats.unexpected + self.unexpected,
            ..stats
        }
    }

    /// Returns the reason of the Nack that the last Interests were answered with, if nothing has come
    /// and nothing has timed out since.
    pub fn refusal(&self) -> Option<NackReason> {
        match &self.phase {
            Phase::Discovering(exchange) | Phase::Asking(exchange, _) => exchange.refusal(),
            Phase::Fetching => self.pipeline.as_ref().and_then(Pipeline::refusal),
            Phase::Over => None,
        }
    }

    /// Returns true once [`FetchEvent::Done`] or [`FetchEvent::Failed`] is queued or was polled.
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// While paused, no Interests for new segments are sent.
    pub const fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Returns the paths and their state, once the name of the segments is known.
    pub fn paths(&self) -> Option<&Paths> {
        self.pipeline.as_ref().map(Pipeline::paths)
    }

    fn start(&mut self, name: Name, now: Time) {
        let mut pipeline = Pipeline::new(name.clone(), &self.options, now);
        for face in &self.faces {
            pipeline.handle_face(*face, true);
        }
        self.pipeline = Some(pipeline);
        self.events.push_back(FetchEvent::Started { name });
        self.phase = Phase::Fetching;
    }

    fn fail(&mut self, error: FetchError, now: Time) {
        // Only timeouts and Nacks can have this cause.
        let other_version_possible = self.options.discovery == Discovery::Metadata
            && matches!(
                error,
                FetchError::Segment { .. } | FetchError::NoFinalBlock { .. }
            )
            && matches!(self.phase, Phase::Fetching);
        if other_version_possible
            && let Some(mut exchange) = discovery::exchange(&self.name, &self.options, now)
        {
            exchange.limit_retries(1);
            exchange.endure_no_route(Duration::ZERO);
            self.phase = Phase::Asking(exchange, error);
            return;
        }
        self.give_up(error);
    }

    fn give_up(&mut self, error: FetchError) {
        self.phase = Phase::Over;
        let stats = self.stats();
        self.events.push_back(FetchEvent::Failed { error, stats });
    }

    fn on_discovered(&mut self, now: Time, data: &DataRef<'_>) {
        if let Err(reason) = self.options.verify.check(data) {
            let name = self.name.clone();
            return self.give_up(FetchError::Metadata { name, reason });
        }
        match discovery::read(&self.name, self.options.discovery, data) {
            Err(error) => self.give_up(error),
            Ok(Discovered::Name(name)) => self.start(name, now),
            Ok(Discovered::Segment(name, number)) => {
                self.start(name, now);
                if let Some(pipeline) = self.pipeline.as_mut().filter(|_| number == 0) {
                    pipeline.adopt_first(now, data);
                }
                self.check_pipeline(now);
            }
            Ok(Discovered::Whole(name)) => {
                self.start(name, now);
                if let Some(pipeline) = &mut self.pipeline {
                    pipeline.adopt_whole(now, data);
                }
            }
        }
    }

    /// Handles the end of the discovery that followed a failure.
    fn on_asked(&mut self, data: Option<&DataRef<'_>>) {
        let Phase::Asking(_, error) = core::mem::replace(&mut self.phase, Phase::Over) else {
            return;
        };
        let fetched = self
            .pipeline
            .as_ref()
            .map(|pipeline| pipeline.name().clone());
        let now = data
            .filter(|data| self.options.verify.check(data).is_ok())
            .and_then(|data| discovery::read(&self.name, self.options.discovery, data).ok());
        match (now, fetched) {
            (Some(Discovered::Name(now)), Some(fetched)) if now != fetched => {
                self.give_up(FetchError::OtherVersion { fetched, now });
            }
            _ => self.give_up(error),
        }
    }

    fn on_data(&mut self, now: Time, data: &DataRef<'_>, signs: Signs<'_>) {
        match &mut self.phase {
            Phase::Discovering(exchange) => match exchange.handle_data(data) {
                crate::exchange::Progress::Answered => self.on_discovered(now, data),
                _ => self.unexpected += 1,
            },
            Phase::Asking(exchange, _) => {
                if exchange.handle_data(data) == crate::exchange::Progress::Answered {
                    self.on_asked(Some(data));
                }
            }
            Phase::Fetching => {
                if let Some(pipeline) = &mut self.pipeline {
                    pipeline.handle_data(
                        now,
                        data,
                        signs,
                        &mut self.options.verify,
                        &mut self.events,
                    );
                }
                self.check_pipeline(now);
            }
            Phase::Over => {}
        }
    }

    /// Ends the fetch if the last input made the pipeline fail.
    fn check_pipeline(&mut self, now: Time) {
        if let Phase::Fetching = self.phase
            && let Some(error) = self.pipeline.as_mut().and_then(Pipeline::take_failure)
        {
            self.fail(error, now);
        }
    }

    /// Ends discovery if its exchange has failed.
    fn check_exchange(&mut self) {
        match &self.phase {
            Phase::Discovering(exchange) => {
                if let Some(failure) = exchange.failure().cloned() {
                    self.give_up(FetchError::Discovery {
                        name: self.name.clone(),
                        failure,
                    });
                }
            }
            Phase::Asking(exchange, _) if exchange.failure().is_some() => self.on_asked(None),
            _ => {}
        }
    }
}

impl Application for Fetcher {
    type Event = FetchEvent;

    fn handle_face(&mut self, now: Time, face: FaceNumber, up: bool) {
        if up {
            self.faces.insert(face);
        } else {
            self.faces.remove(&face);
        }
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.handle_face(face, up);
        }
        // The Interest is retransmitted on its face, or on any other that is up.
        if face == self.asked_by
            && !self.faces.is_empty()
            && let Phase::Discovering(exchange) | Phase::Asking(exchange, _) = &mut self.phase
        {
            exchange.send_again(now);
        }
    }

    fn handle_packet(&mut self, now: Time, _face: FaceNumber, packet: &LpPacket<'_>) {
        match Arrival::decode(packet) {
            Ok(Arrival::Data(data)) => {
                let signs = Signs {
                    marked: packet.congestion_mark.unwrap_or(0) > 0,
                    route: packet.route_label,
                    intermediate: packet.intermediate,
                    tag: packet.path_tag,
                };
                self.on_data(now, &data, signs);
            }
            Ok(Arrival::Nack(reason, interest)) => {
                match &mut self.phase {
                    Phase::Discovering(exchange) | Phase::Asking(exchange, _) => {
                        exchange.handle_nack(now, reason, &interest);
                    }
                    Phase::Fetching => {
                        if let Some(pipeline) = &mut self.pipeline {
                            pipeline.handle_nack(now, reason, &interest, &mut self.events);
                        }
                        self.check_pipeline(now);
                    }
                    Phase::Over => {}
                }
                self.check_exchange();
            }
            Ok(Arrival::Interest(_)) | Err(_) => self.unexpected += 1,
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.faces.is_empty() {
            return;
        }
        match &mut self.phase {
            Phase::Discovering(exchange) | Phase::Asking(exchange, _) => {
                exchange.handle_timeout(now)
            }
            Phase::Fetching => {
                if let Some(pipeline) = &mut self.pipeline {
                    pipeline.handle_timeout(now, &mut self.events);
                }
                self.check_pipeline(now);
            }
            Phase::Over => {}
        }
        self.check_exchange();
    }

    fn poll_packet(&mut self, now: Time, face: FaceNumber) -> Option<Outgoing> {
        if !self.faces.contains(&face) {
            return None;
        }
        if let Phase::Fetching = self.phase {
            let (pipeline, rng) = (self.pipeline.as_mut()?, &mut self.rng);
            let interest = pipeline.poll_interest(now, rng, self.paused, face);
            if interest.is_some() {
                return interest;
            }
            // A failure may start a discovery.
            self.check_pipeline(now);
        }
        let (Phase::Discovering(exchange) | Phase::Asking(exchange, _)) = &mut self.phase else {
            return None;
        };
        let question = exchange.poll(now, &mut self.rng)?;
        self.asked_by = face;
        Some((question, None))
    }

    fn first_face(&self) -> FaceNumber {
        let best = |paths: &Paths| paths.best(|path| paths.has_room(path)).map(Path::face);
        self.paths().and_then(best).unwrap_or_default()
    }

    fn poll_event(&mut self) -> Option<FetchEvent> {
        // Failure comes last: segments received before it are delivered.
        let failed = matches!(self.events.front(), Some(FetchEvent::Failed { .. }));
        if !failed && let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        match self
            .pipeline
            .as_mut()
            .map_or(Ok(None), Pipeline::poll_segment)
        {
            Ok(Some((number, offset, content))) => {
                return Some(FetchEvent::Segment {
                    number,
                    offset,
                    content,
                });
            }
            Err(error) if matches!(self.phase, Phase::Fetching) => self.give_up(error),
            Ok(None) | Err(_) => {}
        }
        if matches!(self.phase, Phase::Fetching)
            && self.pipeline.as_ref().is_some_and(Pipeline::is_done)
        {
            self.phase = Phase::Over;
            return Some(FetchEvent::Done(self.stats()));
        }
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        if self.faces.is_empty() {
            return None;
        }
        match &self.phase {
            Phase::Discovering(exchange) | Phase::Asking(exchange, _) => exchange.poll_timeout(),
            Phase::Fetching => self.pipeline.as_ref()?.poll_timeout(),
            Phase::Over => None,
        }
    }
}
