//! Consumers and producers that the tests of several tools share.

use std::time::Duration;

use whimbrel_core::{SeededRng, Time};
use whimbrel_transport::{EchoProducer, Peek, PeekOptions};

use crate::support::{digest, name, register};

pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) fn rng() -> SeededRng {
    SeededRng::new(11)
}

pub(crate) fn echo(prefix: &str, payload: usize) -> EchoProducer {
    EchoProducer::echo(name(prefix), payload, MS, digest(), Some(register()), rng())
}

pub(crate) fn peek(text: &str, options: PeekOptions) -> Peek {
    Peek::new(name(text), options, rng(), Time::ZERO)
}

pub(crate) fn last<E: Clone>(events: &[(Time, E)]) -> E {
    events.last().expect("an event").1.clone()
}
