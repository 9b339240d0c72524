//! One Data for one Interest.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{Deadline, SeededRng, Time, WallClock};
use whimbrel_ndn_packet::{Data, DataRef, LpHeader, LpPacket, Name};

use crate::application::{Application, Arrival, FaceNumber, Outgoing};
use crate::exchange::answers;
use crate::register::{RegisterOptions, Registrar, RegistrationEvent, RouteParameters};
use crate::serve::SharedSigner;

/// The Data of a [`Poke`] and how it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PokeOptions {
    /// FreshnessPeriod.
    pub freshness: Duration,
    /// FinalBlockId is the last component of the name.
    pub final_block: bool,
    /// Send it unsolicited.
    pub unsolicited: bool,
    /// Gives up after this time.
    pub timeout: Option<Duration>,
}

/// An event of a [`Poke`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PokeEvent {
    /// The state of the registration.
    Registration(RegistrationEvent),
    /// The Data was sent; this is the end.
    Sent,
    /// No Interest in time; this is the end.
    Timeout,
}

/// Answers the first matching Interest with one Data.
pub struct Poke {
    packet: Bytes,
    options: PokeOptions,
    registrar: Registrar,
    rng: SeededRng,
    created_at: Time,
    /// The header of the Data, once it is due.
    to_send: Option<Option<Box<LpHeader>>>,
    over: bool,
    events: VecDeque<PokeEvent>,
    up: bool,
}

impl Poke {
    /// Signs the Data now, and registers its name unless it is sent unsolicited.
    pub fn new(
        name: Name,
        content: Bytes,
        signer: &SharedSigner,
        options: PokeOptions,
        register: RegisterOptions,
        rng: SeededRng,
        now: Time,
    ) -> Poke {
        let last = name.as_ref().last().map(|last| last.to_owned());
        let data = Data {
            freshness: options.freshness,
            final_block_id: last.filter(|_| options.final_block),
            ..Data::new(name.clone(), content)
        };
        let route = (!options.unsolicited).then(|| RouteParameters::new(name));
        Poke {
            packet: data.encode(&**signer).into(),
            registrar: Registrar::new(register, route),
            rng,
            created_at: now,
            to_send: options.unsolicited.then_some(None),
            options,
            over: false,
            events: VecDeque::new(),
            up: false,
        }
    }

    fn handle_interest(
        &mut self,
        packet: &LpPacket<'_>,
        interest: &whimbrel_ndn_packet::InterestRef<'_>,
    ) {
        let Ok(data) = DataRef::decode(&self.packet) else {
            return;
        };
        if !self.over
            && self.to_send.is_none()
            && answers(interest.name, interest.can_be_prefix, &data)
        {
            let pit_token = packet.pit_token.map(Bytes::copy_from_slice);
            let header = LpHeader {
                pit_token,
                ..LpHeader::default()
            };
            self.to_send = Some((!header.is_empty()).then(|| Box::new(header)));
        }
    }
}

impl Application for Poke {
    type Event = PokeEvent;

    fn handle_face(&mut self, now: Time, _face: FaceNumber, up: bool) {
        self.up = up;
        if !up && !self.options.unsolicited {
            self.to_send = None;
        }
        if !self.over {
            self.registrar.handle_face(now, up);
        }
    }

    fn handle_packet(&mut self, now: Time, _face: FaceNumber, packet: &LpPacket<'_>) {
        match Arrival::decode(packet) {
            Ok(Arrival::Interest(interest)) => self.handle_interest(packet, &interest),
            Ok(Arrival::Data(data)) => {
                self.registrar.handle_data(now, &data);
            }
            Ok(Arrival::Nack(reason, interest)) => {
                self.registrar.handle_nack(now, reason, &interest);
            }
            Err(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.registrar.handle_timeout(now);
        let timeout = self.options.timeout.filter(|_| !self.over);
        if timeout.is_some_and(|timeout| self.created_at + timeout <= now) {
            self.over = true;
            self.registrar.withdraw();
            self.events.push_back(PokeEvent::Timeout);
        }
    }

    fn handle_wall_clock(&mut self, wall: WallClock) {
        self.registrar.set_wall_clock(wall);
    }

    fn poll_packet(&mut self, now: Time, _face: FaceNumber) -> Option<Outgoing> {
        if !self.up {
            return None;
        }
        if let Some(header) = self.to_send.take().filter(|_| !self.over) {
            self.over = true;
            self.registrar.withdraw();
            self.events.push_back(PokeEvent::Sent);
            return Some((self.packet.clone(), header));
        }
        self.registrar
            .poll(now, &mut self.rng)
            .map(|command| (command, None))
    }

    fn poll_event(&mut self) -> Option<PokeEvent> {
        self.registrar
            .poll_event()
            .map(PokeEvent::Registration)
            .or_else(|| self.events.pop_front())
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let timeout = self.options.timeout.filter(|_| !self.over);
        let end =
            timeout.map(|timeout| Deadline::new(self.created_at + timeout, "no Interest in time"));
        Deadline::earlier(self.registrar.poll_timeout(), end)
    }
}
