//! Prefix registration: tells the forwarder the program's prefixes, with NFD's RIB commands.
//!
//! Each prefix is registered whenever the face comes up: routes end with the face. A command
//! without an answer or with a temporary refusal is repeated after 0.5 s, 1 s, 2 s ... up to a
//! bound; a permanent refusal (bad command, no rights) is reported and not repeated on this face.

mod route;

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use whimbrel_core::{Deadline, SeededRng, Time, WallClock};
use whimbrel_ndn_mgmt::client::{Stamps, Target};
use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse};
use whimbrel_ndn_packet::{
    DataRef, Interest, InterestRef, NackReason, Name, NameRef, SignatureInfo, Signer,
};

pub use route::RouteParameters;

use crate::application::due;
use crate::exchange::nack_text;
use crate::ledger::{Ledger, OrderedLedger, Sent};
use crate::path::PathId;

/// Maximum of characters of a forwarder's text in an error.
const MAX_TEXT: usize = 200;

/// Options of registration.
#[derive(Clone)]
pub struct RegisterOptions {
    /// Signs commands. By default NFD accepts a plain digest from local programs.
    pub signer: Arc<dyn Signer + Send + Sync>,
    /// Unix time, which signed commands carry.
    pub clock: WallClock,
    /// How long to wait for an answer.
    pub patience: Duration,
    /// Wait before the first repetition; doubled each time.
    pub first_wait: Duration,
    /// Maximum wait before a repetition.
    pub longest_wait: Duration,
}

impl RegisterOptions {
    /// Signed with a digest, 4 s of patience, repeated after 0.5 s to 30 s.
    pub fn new(clock: WallClock) -> RegisterOptions {
        RegisterOptions {
            signer: Arc::new(whimbrel_ndn_packet::DigestSigner),
            clock,
            patience: Duration::from_secs(4),
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
        }
    }
}

/// Why a registration failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterFailure {
    /// The forwarder refused.
    #[error("the forwarder answered {code}: {text}")]
    Response {
        /// Status code, similar to HTTP's.
        code: u64,
        /// In words.
        text: String,
    },
    /// The forwarder did not answer.
    #[error(
        "the forwarder did not answer; check that its management is enabled for local programs"
    )]
    Timeout,
    /// The forwarder does not support the command.
    #[error("the forwarder answered with a Nack ({}); check that its management is enabled", nack_text(*.0))]
    Nack(NackReason),
    /// The answer is not that of a command.
    #[error("the forwarder's answer is not a ControlResponse")]
    Malformed,
}

/// The outcome of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationEvent {
    /// The forwarder sends Interests for the prefix from now on.
    Registered(Name),
    /// The registration failed.
    Failed {
        /// The prefix.
        prefix: Name,
        /// The reason.
        reason: RegisterFailure,
        /// When it is tried again; `None` if it must wait for a new face.
        retry_in: Option<Duration>,
    },
}

enum State {
    /// The face is down, or the forwarder refused permanently.
    Idle,
    /// A command is due from this time on.
    Due(Time),
    /// A command is pending.
    Waiting,
    Registered,
}

struct Route {
    parameters: RouteParameters,
    state: State,
    attempts: u32,
}

/// Registers a program's prefixes.
pub struct Registrar {
    options: RegisterOptions,
    routes: Vec<Route>,
    /// Commands by their names; with each, the index of its route.
    pending: OrderedLedger<Bytes, usize>,
    // To be withdrawn: one command each, without waiting for an answer.
    leaving: VecDeque<RouteParameters>,
    events: VecDeque<RegistrationEvent>,
    stamps: Stamps,
    seen: Time,
    up: bool,
}

impl Registrar {
    /// Registers `routes` as soon as the face is up.
    pub fn new(
        options: RegisterOptions,
        routes: impl IntoIterator<Item = RouteParameters>,
    ) -> Registrar {
        let routes = routes.into_iter();
        Registrar {
            options,
            routes: routes
                .map(|parameters| Route {
                    parameters,
                    state: State::Idle,
                    attempts: 0,
                })
                .collect(),
            pending: Ledger::ordered(usize::MAX),
            leaving: VecDeque::new(),
            events: VecDeque::new(),
            stamps: Stamps::default(),
            seen: Time::ZERO,
            up: false,
        }
    }

    /// Commands bear this clock's time from now on. A registration that was refused for good is
    /// tried again: it may have been for its time.
    pub fn set_wall_clock(&mut self, wall: WallClock) {
        self.options.clock = wall;
        // After a step back, stamps of the old time would be in the forwarder's future.
        self.stamps = Stamps::default();
        for route in self.routes.iter_mut().filter(|_| self.up) {
            if matches!(route.state, State::Idle) {
                (route.state, route.attempts) = (State::Due(self.seen), 0);
            }
        }
    }

    /// Adds one more prefix.
    pub fn add(&mut self, now: Time, parameters: RouteParameters) {
        let state = if self.up {
            State::Due(now)
        } else {
            State::Idle
        };
        self.routes.push(Route {
            parameters,
            state,
            attempts: 0,
        });
    }

    /// Withdraws all, for a program that ends: sends the commands once, without waiting for
    /// answers.
    pub fn withdraw(&mut self) {
        self.pending.clear();
        for route in self.routes.drain(..) {
            if matches!(route.state, State::Registered | State::Waiting) {
                self.leaving.push_back(RouteParameters {
                    expiration: None,
                    ..route.parameters
                });
            }
        }
    }

    /// Returns true once the forwarder has accepted all.
    pub fn is_registered(&self) -> bool {
        self.routes
            .iter()
            .all(|route| matches!(route.state, State::Registered))
    }

    /// Handles a face that came up or went down.
    pub fn handle_face(&mut self, now: Time, up: bool) {
        self.up = up;
        self.pending.clear();
        for route in &mut self.routes {
            route.attempts = 0;
            route.state = if up { State::Due(now) } else { State::Idle };
        }
    }

    /// The next command to send.
    pub fn poll(&mut self, now: Time, rng: &mut SeededRng) -> Option<Bytes> {
        if !self.up {
            return None;
        }
        if let Some(parameters) = self.leaving.pop_front() {
            return Some(self.command(now, rng, &parameters, "unregister").0);
        }
        let due = |route: &Route| matches!(route.state, State::Due(at) if at <= now);
        let index = self.routes.iter().position(due)?;
        let parameters = self.routes.get(index)?.parameters.clone();
        let (wire, sent) = self.command(now, rng, &parameters, "register");
        let name = InterestRef::decode(&wire).map(|signed| signed.name.value());
        let name = Bytes::copy_from_slice(name.unwrap_or_default());
        self.pending.send(name, sent, index);
        let route = self.routes.get_mut(index)?;
        route.state = State::Waiting;
        route.attempts += 1;
        Some(wire)
    }

    fn command(
        &mut self,
        now: Time,
        rng: &mut SeededRng,
        parameters: &RouteParameters,
        verb: &str,
    ) -> (Bytes, Sent) {
        let millis = self.options.clock.unix_millis(now);
        let stamp = self.stamps.next(millis, rng.next_word().to_be_bytes());
        let info = SignatureInfo {
            nonce: Some(Bytes::copy_from_slice(&stamp.nonce)),
            time: Some(stamp.time),
            ..self.options.signer.info()
        };
        let parameters = ControlParameters::from(parameters).encode();
        let name = Target::Local.name("rib", verb).child_generic(&parameters);
        let nonce = rng.next_word() as u32;
        let interest = Interest {
            must_be_fresh: true,
            nonce: Some(nonce.to_be_bytes()),
            lifetime: Some(self.options.patience),
            parameters: Some(Bytes::new()),
            ..Interest::new(name)
        };
        let wire = interest.encode_signed(&*self.options.signer, &info);
        let deadline = Some(now + self.options.patience);
        let sent = Sent::first(now, PathId::FIRST, nonce, deadline);
        (wire.into(), sent)
    }

    /// Handles a Data; returns true if it answered a command.
    pub fn handle_data(&mut self, now: Time, data: &DataRef<'_>) -> bool {
        let Some(index) = self.answered(data.name) else {
            return false;
        };
        match ControlResponse::decode(data.content) {
            Ok(response) if response.is_success() => {
                if let Some(route) = self.routes.get_mut(index) {
                    route.state = State::Registered;
                    self.events
                        .push_back(RegistrationEvent::Registered(route.parameters.name.clone()));
                }
            }
            Ok(ControlResponse {
                status_code: code,
                status_text: text,
                ..
            }) => {
                let text = text.chars().take(MAX_TEXT).collect();
                // As in HTTP: 4xx is an error of the command, 5xx one of the forwarder.
                self.failed(
                    now,
                    index,
                    RegisterFailure::Response { code, text },
                    code >= 500,
                );
            }
            Err(_) => self.failed(now, index, RegisterFailure::Malformed, true),
        }
        true
    }

    /// Handles a Nack; returns true if it was for a command.
    pub fn handle_nack(
        &mut self,
        now: Time,
        reason: NackReason,
        interest: &InterestRef<'_>,
    ) -> bool {
        let Some(index) = self.answered(interest.name) else {
            return false;
        };
        self.failed(now, index, RegisterFailure::Nack(reason), true);
        true
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.seen = now;
        while let Some(name) = self.pending.overdue(now).map(|(name, _)| name.clone()) {
            if let Some(command) = self.pending.take(&name) {
                self.failed(now, command.data, RegisterFailure::Timeout, true);
            }
        }
    }

    /// The index of the route whose pending command has this name.
    fn answered(&mut self, name: NameRef<'_>) -> Option<usize> {
        self.pending.take(name.value()).map(|command| command.data)
    }

    fn failed(&mut self, now: Time, index: usize, reason: RegisterFailure, temporary: bool) {
        let (first, longest) = (self.options.first_wait, self.options.longest_wait);
        let Some(route) = self.routes.get_mut(index) else {
            return;
        };
        let doublings = route.attempts.saturating_sub(1).min(16);
        let wait = temporary.then(|| first.saturating_mul(1 << doublings).min(longest));
        route.state = wait.map_or(State::Idle, |wait| State::Due(now + wait));
        let prefix = route.parameters.name.clone();
        // For a program that polls no events, only the latest are kept.
        if self.events.len() >= 1024 {
            self.events.pop_front();
        }
        self.events.push_back(RegistrationEvent::Failed {
            prefix,
            reason,
            retry_in: wait,
        });
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<RegistrationEvent> {
        self.events.pop_front()
    }

    /// When to call [`Registrar::handle_timeout`] and [`Registrar::poll`].
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let repeated = self.routes.iter().map(|route| match route.state {
            State::Due(at) => due(at, self.seen, "a registration is repeated"),
            State::Idle | State::Waiting | State::Registered => None,
        });
        let overdue = self.pending.next_deadline();
        let overdue = overdue.map(|at| Deadline::new(at, "a registration has timed out"));
        repeated.fold(overdue, Deadline::earlier)
    }
}
