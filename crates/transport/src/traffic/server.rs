//! Answering generated traffic.

use core::convert::Infallible;
use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::{ContentType, Data, InterestRef, Name};

use crate::register::{RegisterOptions, Registrar, RouteParameters};
use crate::serve::{Answer, Responder, Service, SharedSigner};

/// The answer to Interests under one prefix.
#[derive(Clone)]
pub struct TrafficRule {
    /// `Name`: registered; all Interests under it are answered.
    pub name: Name,
    /// `ContentDelay`.
    pub delay: Duration,
    /// `FreshnessPeriod`.
    pub freshness: Duration,
    /// `ContentType`.
    pub content_type: ContentType,
    /// `Content`, or `ContentBytes` arbitrary bytes.
    pub content: Bytes,
    /// `SigningInfo`.
    pub signer: SharedSigner,
}

/// Answers by rules. The first rule whose name is a prefix of the Interest's applies.
pub struct TrafficResponder {
    rules: Vec<TrafficRule>,
    answered: Vec<u64>,
    count: Option<u64>,
}

/// Answers generated traffic.
pub type TrafficServer = Service<TrafficResponder>;

impl TrafficServer {
    /// Registers the rules' names and answers at most `count` Interests (`-c`), without limit if it
    /// is `None`.
    pub fn rules(
        rules: Vec<TrafficRule>,
        count: Option<u64>,
        register: RegisterOptions,
        rng: SeededRng,
    ) -> TrafficServer {
        let routes: Vec<_> = rules
            .iter()
            .map(|rule| RouteParameters::new(rule.name.clone()))
            .collect();
        let responder = TrafficResponder {
            answered: vec![0; rules.len()],
            rules,
            count,
        };
        Service::new(responder, Registrar::new(register, routes), rng)
    }
}

impl TrafficResponder {
    /// Interests answered by each rule.
    pub fn answered(&self) -> &[u64] {
        &self.answered
    }
}

impl Responder for TrafficResponder {
    type Event = Infallible;

    fn respond(&mut self, _now: Time, interest: &InterestRef<'_>) -> Answer {
        let applies = |rule: &TrafficRule| rule.name.as_ref().is_prefix_of(interest.name);
        let Some(index) = self.rules.iter().position(applies) else {
            return Answer::Silence;
        };
        if self
            .count
            .is_some_and(|count| self.answered.iter().sum::<u64>() >= count)
        {
            return Answer::Silence;
        }
        let Some(rule) = self.rules.get(index) else {
            return Answer::Silence;
        };
        if let Some(answered) = self.answered.get_mut(index) {
            *answered += 1;
        }
        let data = Data {
            freshness: rule.freshness,
            content_type: rule.content_type,
            ..Data::new(interest.name.to_name(), rule.content.clone())
        };
        let packet = Bytes::from(data.encode(&*rule.signer));
        if rule.delay.is_zero() {
            Answer::Data(packet)
        } else {
            Answer::Later(packet, rule.delay)
        }
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }
}
