//! A producer that answers every Interest under its prefix with a payload of a given size.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::{Data, InterestRef, Name};

use super::{Answer, Responder, Service, SharedSigner};
use crate::register::{RegisterOptions, Registrar, RouteParameters};

/// Answers every Interest under a prefix.
pub struct Echo {
    prefix: Name,
    payload: Bytes,
    freshness: Duration,
    signer: SharedSigner,
    answered: u64,
}

/// A producer that answers every Interest under a prefix with the same payload.
pub type EchoProducer = Service<Echo>;

impl EchoProducer {
    /// Answers with `payload` octets. Without `register` the forwarder must already have the route.
    pub fn echo(
        prefix: Name,
        payload: usize,
        freshness: Duration,
        signer: SharedSigner,
        register: Option<RegisterOptions>,
        rng: SeededRng,
    ) -> EchoProducer {
        let route = register
            .is_some()
            .then(|| RouteParameters::new(prefix.clone()));
        let register =
            register.unwrap_or_else(|| RegisterOptions::new(whimbrel_core::WallClock::new(0)));
        let echo = Echo {
            prefix,
            payload: vec![0; payload].into(),
            freshness,
            signer,
            answered: 0,
        };
        Service::new(echo, Registrar::new(register, route), rng)
    }
}

impl Echo {
    /// Interests answered so far.
    pub const fn answered(&self) -> u64 {
        self.answered
    }
}

impl Responder for Echo {
    type Event = core::convert::Infallible;

    fn respond(&mut self, _now: Time, interest: &InterestRef<'_>) -> Answer {
        if !self.prefix.as_ref().is_prefix_of(interest.name) {
            return Answer::Silence;
        }
        self.answered += 1;
        let data = Data {
            freshness: self.freshness,
            ..Data::new(interest.name.to_name(), self.payload.clone())
        };
        Answer::Data(data.encode(&*self.signer).into())
    }

    fn poll_event(&mut self) -> Option<core::convert::Infallible> {
        None
    }
}
