//! The producer: a Data that is ready except for its name.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::path::PathBuf;

use bytes::BytesMut;
use whimbrel_core::Time;
use whimbrel_io::Clock;
use whimbrel_ndn_packet::{Data, InterestRef, Name, SignatureInfo, SignatureType, Signer};
use whimbrel_node::ndn::client::{Client, Told, Uplink, seeded};
use whimbrel_transport::register::{Registrar, RouteParameters};
use whimbrel_transport::{
    Answer, RegisterOptions, RegistrationEvent, Responder, Service, ServiceEvent,
};

use super::PREFIX;
use crate::BenchError;

/// Octets of Data carved from one allocation.
const SLAB: usize = 256 << 10;

/// Options of the producer.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// The socket of the router or the relay.
    pub socket: PathBuf,
    /// Octets of each whole Data packet; some lengths are impossible, and then a few less.
    pub data_size: usize,
    /// Register the prefix: required by a router, impossible with a relay.
    pub register: bool,
}

/// The space of a digest, empty: a fast producer signs ahead, and neither the router nor the
/// consumer verifies.
struct EmptyDigest;

impl Signer for EmptyDigest {
    fn info(&self) -> SignatureInfo {
        SignatureInfo::new(SignatureType::DigestSha256)
    }

    fn sign(&self, _portions: &[&[u8]]) -> Vec<u8> {
        vec![0; 32]
    }
}

/// Answers every Interest with the same Data under the requested name.
struct ReadyMade {
    size: usize,
    /// A Data for a name of `name_len` octets, and the offset of that name.
    wire: Vec<u8>,
    name_len: usize,
    name_at: usize,
    slab: BytesMut,
}

impl ReadyMade {
    fn new(size: usize) -> ReadyMade {
        ReadyMade {
            size,
            wire: Vec::new(),
            name_len: usize::MAX,
            name_at: 0,
            slab: BytesMut::new(),
        }
    }

    /// Builds the Data for names of this length.
    fn prepare(&mut self, name: &Name) {
        let mut content = self.size;
        loop {
            let data = Data::new(name.clone(), vec![7; content]).encode(&EmptyDigest);
            if data.len() > self.size && content > 0 {
                content = content.saturating_sub(data.len() - self.size);
                continue;
            }
            let value = name.as_ref().value();
            self.name_len = value.len();
            self.name_at = data
                .windows(value.len())
                .position(|window| window == value)
                .unwrap_or(0);
            self.wire = data;
            return;
        }
    }
}

impl Responder for ReadyMade {
    type Event = Infallible;

    fn respond(&mut self, _now: Time, interest: &InterestRef<'_>) -> Answer {
        let name = interest.name.value();
        if name.len() != self.name_len {
            self.prepare(&interest.name.to_name());
        }
        if self.slab.capacity() < self.wire.len() {
            self.slab = BytesMut::with_capacity(SLAB.max(self.wire.len()));
        }
        self.slab.extend_from_slice(&self.wire);
        if let Some(place) = self.slab.get_mut(self.name_at..self.name_at + name.len()) {
            place.copy_from_slice(name);
        }
        Answer::Data(self.slab.split().freeze())
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }
}

/// Answers until it is ended; calls `ready` once Interests reach it.
pub fn produce(options: &ProducerOptions, ready: impl FnOnce()) -> Result<(), BenchError> {
    let clock = Clock::start();
    let prefix: Name = PREFIX.parse().unwrap_or_default();
    let routes = options.register.then(|| RouteParameters::new(prefix));
    let registrar = Registrar::new(RegisterOptions::new(clock.wall_clock()), routes);
    let service = Service::new(ReadyMade::new(options.data_size), registrar, seeded()?);
    let mut client = Client::new(Uplink::Unix(options.socket.clone()), clock, service)?;
    let mut ready = Some(ready);
    let end = client.run(|_, _, told| {
        match told {
            Told::Connected if options.register => {}
            Told::Connected
            | Told::Event(ServiceEvent::Registration(RegistrationEvent::Registered(_))) => {
                if let Some(ready) = ready.take() {
                    ready();
                }
            }
            Told::Event(ServiceEvent::Registration(RegistrationEvent::Failed {
                reason, ..
            })) => {
                return ControlFlow::Break(Err(BenchError::Side {
                    what: String::from("the router does not register the producer's prefix"),
                    said: reason.to_string(),
                }));
            }
            Told::Event(ServiceEvent::Producer(never)) => match never {},
            Told::Unreachable(refusal) => {
                return ControlFlow::Break(Err(BenchError::Side {
                    what: String::from("the producer cannot reach its router"),
                    said: refusal.to_string(),
                }));
            }
            // The measurement is over.
            Told::Gone => return ControlFlow::Break(Ok(())),
        }
        ControlFlow::Continue(())
    })?;
    match end {
        whimbrel_node::ndn::client::End::Done(outcome) => outcome,
        whimbrel_node::ndn::client::End::Interrupted => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_ndn_packet::{DataRef, Interest};

    use super::*;

    #[test]
    fn each_data_has_the_name_that_was_asked_for_and_the_size_that_was_configured() {
        for size in [300, 1000, 8000] {
            let mut producer = ReadyMade::new(size);
            for name in [
                "/bench/seg=1",
                "/bench/a/longer/name",
                "/bench/seg=2",
                "/bench/seg=3",
            ] {
                let wire = Interest::new(name.parse().unwrap()).encode();
                let interest = InterestRef::decode(&wire).unwrap();
                let Answer::Data(data) = producer.respond(Time::ZERO, &interest) else {
                    panic!("{name}")
                };
                // A length encoded in one octet less can leave some over.
                assert!(
                    (size - 4..=size).contains(&data.len()),
                    "{name}: {}",
                    data.len()
                );
                assert_eq!(
                    DataRef::decode(&data).unwrap().name.to_name().to_string(),
                    name
                );
            }
        }
    }
}
