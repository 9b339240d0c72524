//! The ports of the hops: their life, and the neighbours behind them.

use whimbrel_core::{Guid, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Source, Time};
use whimbrel_link::{Hop, HopConfig};

use super::{ChunkToSend, LOOK_UP_AGAIN, Link, LinkEvent, Links};
use crate::handed::Handovers;
use crate::outbox::Outbox;
use crate::room::Holder;

impl Links {
    /// Handles a change of a neighbour's or inbound peer's port.
    pub fn handle_port(&mut self, now: Time, port: PortId, event: &PortEvent) {
        match event {
            PortEvent::Up(info) => {
                let number = match info.origin {
                    PortOrigin::Configured(number) | PortOrigin::Accepted(number) => Some(number),
                    PortOrigin::Opened(_) | PortOrigin::Local => None,
                };
                let own = number.and_then(|number| self.pacing.get(&number).copied());
                let is_plain = number.is_some_and(|number| self.plain.contains(&number));
                let plain = is_plain || self.template.plain;
                let config = HopConfig {
                    mtu: info.mtu,
                    plain,
                    neighbour: self.expected_at(info.origin),
                    calls: !info.origin.is_caller(),
                    remote: info.medium.caller_address(),
                    pacing: own.unwrap_or(self.template.pacing),
                    ..self.template.clone()
                };
                let rng = SeededRng::new(self.rng.next_word());
                let link = Link {
                    hop: Hop::new(config, rng, now),
                    info: info.clone(),
                    held: Holder::default(),
                    own: self
                        .own
                        .as_ref()
                        .map(|(pool, _)| pool.part())
                        .unwrap_or_default(),
                    neighbour: None,
                    incarnation: 0,
                    handovers: Handovers::default(),
                    taken: Default::default(),
                    blocked: false,
                    last_frame: now,
                    refused: false,
                    shut: false,
                    carried: true,
                    talking_since: now,
                    moved_at: None,
                    outbox: Outbox::new(),
                    last_progress: now,
                    renew_at: now,
                    look_up_at: now + LOOK_UP_AGAIN,
                };
                if let PortOrigin::Configured(number) = info.origin {
                    self.by_link.insert(number, port);
                }
                self.unresolved.remove(&info.origin);
                self.links.insert(port, link);
            }
            PortEvent::Down => self.close(now, port),
            PortEvent::Mtu(mtu) => {
                if let Some(link) = self.links.get_mut(&port) {
                    link.hop.set_mtu(now, *mtu);
                }
            }
            PortEvent::Carrier(works) => {
                if let Some(link) = self.links.get_mut(&port) {
                    link.carried = *works;
                    link.log(match works {
                        true => "the link's interface works: its neighbour is called",
                        false => "the link's interface does not work",
                    });
                    if !link.shut {
                        link.hop.set_carrier(now, *works);
                    }
                }
            }
            PortEvent::Refused => {
                if let Some(link) = self.links.get_mut(&port) {
                    link.refused = true;
                }
            }
            PortEvent::Ecn { codepoint, frames } => {
                if let Some(link) = self.links.get_mut(&port) {
                    link.hop.handle_ecn(now, *codepoint, *frames);
                }
                return;
            }
            PortEvent::Blocked | PortEvent::Writable => {
                if let Some(link) = self.links.get_mut(&port) {
                    link.blocked = matches!(event, PortEvent::Blocked);
                }
            }
        }
        if self.links.contains_key(&port) {
            self.touched.insert(port);
        }
    }

    fn close(&mut self, now: Time, port: PortId) {
        let Some(mut link) = self.links.remove(&port) else {
            return;
        };
        if let PortOrigin::Configured(number) = link.info.origin
            && self.by_link.get(&number) == Some(&port)
        {
            self.by_link.remove(&number);
        }
        if link.neighbour.is_some() {
            link.log("neighbour is down: its port is closed");
        }
        if link.info.origin.is_caller() {
            self.departed.add_counters(&link.hop.stats());
        }
        self.note_neighbour(port, link.neighbour, None);
        self.forget_holds(port, &mut link);
        self.forget_paces(port);
        let hop = link.hop;
        self.buffer
            .with(&link.held, false, |budget| hop.close(now, budget));
        let returned = link.outbox.take_all();
        self.timers.cancel(&port);
        self.short_of_room.remove(&port);
        self.gained.remove(&port);
        self.touched.remove(&port);
        let returned = self.divide_returned(now, port, returned);
        self.events.push_back(LinkEvent::Down(port, returned));
        self.offer_room(now);
    }

    /// Nothing is sent on this port from now on, and what comes is dropped; or both go on.
    pub(crate) fn set_shut(&mut self, now: Time, port: PortId, shut: bool) {
        if let Some(link) = self.links.get_mut(&port)
            && link.shut != shut
        {
            link.shut = shut;
            link.log(match shut {
                true => "the link is shut",
                false => "the link is open again",
            });
            link.hop.set_carrier(now, !shut && link.carried);
            self.touched.insert(port);
        }
    }

    /// The port is not to be used any more, as long as there are others: divided flows go on without
    /// it. Returns the chunks that wait for it.
    pub(crate) fn retire(&mut self, now: Time, port: PortId) -> Vec<ChunkToSend> {
        self.leave_divided(now, port);
        self.take_waiting(port)
    }

    /// Returns false while the interface by which its frames leave is known not to work.
    pub(crate) fn has_carrier(&self, port: PortId) -> bool {
        self.links.get(&port).is_some_and(|link| link.carried)
    }

    /// Returns the frames that have crossed a port's link both ways, and their bytes.
    pub(crate) fn traffic(&self, port: PortId) -> (u64, u64) {
        let link = self.links.get(&port);
        link.map_or((0, 0), |link| link.hop.traffic())
    }

    /// Returns the round trip of a port's link without a queue, as far as it is known.
    pub(crate) fn min_rtt(&self, port: PortId) -> Option<core::time::Duration> {
        self.links.get(&port)?.hop.min_rtt()
    }

    /// Returns true while the ends of a port's new link find out whether it is slow.
    pub(crate) fn is_measuring(&self, port: PortId) -> bool {
        let link = self.links.get(&port);
        link.is_some_and(|link| link.hop.is_measuring())
    }

    /// Returns true if `port` has a hop here.
    pub fn has(&self, port: PortId) -> bool {
        self.links.contains_key(&port)
    }

    /// Returns the GUID that the neighbour on `port` claims.
    pub fn neighbour(&self, port: PortId) -> Option<Guid> {
        self.links.get(&port)?.neighbour
    }

    /// Returns the port's properties.
    pub fn info(&self, port: PortId) -> Option<&PortInfo> {
        self.links.get(&port).map(|link| &link.info)
    }

    /// Returns where the peer of a port is.
    pub(crate) fn source_of(&self, port: PortId) -> Source {
        let info = self.info(port);
        info.map_or(Source::Port(port), |info| Source::of(port, info))
    }

    /// Returns all ports, in the order of their numbers.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.links.keys().copied()
    }

    /// Returns the ports whose neighbour claims `guid`, in the order of their numbers.
    pub fn ports_of(&self, guid: &Guid) -> impl Iterator<Item = PortId> {
        self.by_neighbour.get(guid).into_iter().flatten().copied()
    }

    pub(super) fn note_neighbour(&mut self, port: PortId, was: Option<Guid>, is: Option<Guid>) {
        if let Some(was) = was
            && let Some(ports) = self.by_neighbour.get_mut(&was)
        {
            ports.remove(&port);
            if ports.is_empty() {
                self.by_neighbour.remove(&was);
            }
        }
        if let Some(is) = is {
            self.by_neighbour.entry(is).or_default().insert(port);
        }
    }

    /// The first port whose neighbour is `guid`; a responsive one is preferred.
    pub fn port_of(&self, guid: &Guid) -> Option<PortId> {
        self.ports_of(guid)
            .find(|port| self.is_up(*port))
            .or_else(|| self.ports_of(guid).next())
    }

    /// Returns the port of a configured link.
    pub fn port_of_link(&self, link: u32) -> Option<PortId> {
        self.by_link.get(&link).copied()
    }
}
