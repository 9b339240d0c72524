//! Answering pings.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::{Data, DigestSigner, InterestRef, Name};

use crate::register::{RegisterOptions, Registrar, RouteParameters};
use crate::serve::{Answer, Responder, Service};

/// Options of a [`PingServer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingServerOptions {
    /// The prefix, without `ping`.
    pub prefix: Name,
    /// FreshnessPeriod.
    pub freshness: Duration,
    /// The number of pings to answer; `None` for no limit.
    pub count: Option<u64>,
    /// Bytes of payload.
    pub payload: usize,
    /// Report each ping.
    pub log: bool,
}

impl PingServerOptions {
    /// `ndnpingserver`'s defaults: fresh for 1 s, no payload, no limit.
    pub const fn new(prefix: Name) -> PingServerOptions {
        PingServerOptions {
            prefix,
            freshness: Duration::from_secs(1),
            count: None,
            payload: 0,
            log: false,
        }
    }
}

/// An event of a ping server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PingServerEvent {
    /// A ping of this name was answered; only with [`PingServerOptions::log`].
    Ping(Name),
    /// The limit of answers was reached.
    Finished,
}

/// Answers every Interest under `/prefix/ping`.
pub struct PingResponder {
    prefix: Name,
    options: PingServerOptions,
    payload: Bytes,
    answered: u64,
    events: VecDeque<PingServerEvent>,
}

/// Answers pings.
pub type PingServer = Service<PingResponder>;

impl PingServer {
    /// Registers `/prefix/ping` and answers there, signed with a digest.
    pub fn pings(
        options: PingServerOptions,
        register: RegisterOptions,
        rng: SeededRng,
    ) -> PingServer {
        let prefix = options.prefix.child_generic(b"ping");
        let responder = PingResponder {
            payload: vec![b'a'; options.payload].into(),
            prefix: prefix.clone(),
            options,
            answered: 0,
            events: VecDeque::new(),
        };
        Service::new(
            responder,
            Registrar::new(register, [RouteParameters::new(prefix)]),
            rng,
        )
    }
}

impl PingResponder {
    /// Pings answered so far.
    pub const fn answered(&self) -> u64 {
        self.answered
    }
}

impl Responder for PingResponder {
    type Event = PingServerEvent;

    fn respond(&mut self, _now: Time, interest: &InterestRef<'_>) -> Answer {
        let finished = self
            .options
            .count
            .is_some_and(|count| self.answered >= count);
        if finished || !self.prefix.as_ref().is_prefix_of(interest.name) {
            return Answer::Silence;
        }
        self.answered += 1;
        if self.options.log && self.events.len() < 65_536 {
            self.events
                .push_back(PingServerEvent::Ping(interest.name.to_name()));
        }
        if self.options.count == Some(self.answered) {
            self.events.push_back(PingServerEvent::Finished);
        }
        let data = Data {
            freshness: self.options.freshness,
            ..Data::new(interest.name.to_name(), self.payload.clone())
        };
        Answer::Data(data.encode(&DigestSigner).into())
    }

    fn poll_event(&mut self) -> Option<PingServerEvent> {
        self.events.pop_front()
    }
}
