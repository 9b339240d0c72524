//! The ports of the hops: their life, and the neighbours behind them.

use std::collections::BTreeMap;

use whimbrel_core::{Guid, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time};
use whimbrel_link::{Hop, HopConfig};

use super::link::Link;
use super::names::NameRule;
use super::neighbours::Neighbours;

impl Neighbours {
    /// Handles a change of a neighbour's or inbound peer's port.
    pub(super) fn handle_port(&mut self, now: Time, port: PortId, event: &PortEvent) {
        match event {
            PortEvent::Up(info) => self.open(now, port, info),
            // The owner of the neighbours removes it.
            PortEvent::Down => {}
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
            self.touch(port);
        }
    }

    fn open(&mut self, now: Time, port: PortId, info: &PortInfo) {
        let number = match info.origin {
            PortOrigin::Configured(number) | PortOrigin::Accepted(number) => Some(number),
            PortOrigin::Opened(_) | PortOrigin::Local => None,
        };
        let terms = number.and_then(|number| self.terms.get(&number).copied());
        let terms = terms.unwrap_or_default();
        let is_configured = matches!(info.origin, PortOrigin::Configured(_));
        let config = HopConfig {
            mtu: info.mtu,
            plain: terms.plain || self.template.plain,
            neighbour: terms
                .name
                .filter(|_| is_configured)
                .and_then(NameRule::name),
            calls: !info.origin.is_caller(),
            remote: info.medium.caller_address(),
            pacing: terms.pacing.unwrap_or(self.template.pacing),
            ..self.template.clone()
        };
        let rng = SeededRng::new(self.rng.next_word());
        let own = self.own.as_ref().map(|(pool, _)| pool.part());
        let link = Link::new(
            now,
            Hop::new(config, rng, now),
            info.clone(),
            self.buffer.share(),
            own.unwrap_or_default(),
        );
        if let PortOrigin::Configured(number) = info.origin {
            self.by_link.insert(number, port);
        }
        self.unresolved.remove(&info.origin);
        self.links.insert(port, link);
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
            self.touch(port);
        }
    }

    /// Returns the GUID that the neighbour on `port` claims.
    pub(crate) fn neighbour(&self, port: PortId) -> Option<Guid> {
        self.links.get(&port)?.neighbour
    }

    /// Returns the ports whose neighbour claims `guid`, in the order of their numbers.
    pub(crate) fn ports_of(&self, guid: &Guid) -> impl Iterator<Item = PortId> {
        self.by_neighbour.get(guid).into_iter().flatten().copied()
    }

    /// Returns the run of a neighbour's process, if the neighbour responds on any port.
    pub(crate) fn run_of(&self, guid: &Guid) -> Option<u64> {
        let links = self.ports_of(guid).filter_map(|port| self.links.get(&port));
        let mut up = links.filter(|link| link.is_up());
        up.next().map(|link| link.incarnation)
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
    pub(crate) fn port_of(&self, guid: &Guid) -> Option<PortId> {
        self.ports_of(guid)
            .find(|port| self.is_up(*port))
            .or_else(|| self.ports_of(guid).next())
    }

    /// Returns the port of a configured link.
    pub(crate) fn port_of_link(&self, link: u32) -> Option<PortId> {
        self.by_link.get(&link).copied()
    }

    /// The neighbour on a port has proven a name, which is the only one from then on where the first one
    /// counts.
    pub(super) fn note_proven(&mut self, port: PortId, name: Guid) {
        let Some(link) = self.links.get_mut(&port) else {
            return;
        };
        let PortOrigin::Configured(number) = link.info.origin else {
            return;
        };
        if let Some(terms) = self.terms.get_mut(&number)
            && terms.name == Some(NameRule::FirstProven(None))
        {
            terms.name = Some(NameRule::FirstProven(Some(name)));
            link.hop.expect_neighbour(name);
        }
    }

    /// Returns the names that neighbours of configured links have proven, by the links' numbers.
    pub(crate) fn proven_names(&self) -> BTreeMap<u32, Guid> {
        let ports = self.by_link.iter();
        let proven = ports.filter_map(|(number, port)| {
            let link = self.links.get(port)?;
            Some((*number, link.neighbour?))
        });
        proven.collect()
    }
}
