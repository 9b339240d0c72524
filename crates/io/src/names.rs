//! Look-ups of host names on separate threads, so that a slow or absent name server holds up
//! nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::time::Duration;

use whimbrel_core::{Family, LookUpFailure, Machine, OpenRefusal, Peer, PortId, Time, TimerQueue};

use crate::opening::{OpenRequest, remote_of};
use crate::sockets::Sockets;
use crate::transport::Transport;
use crate::{Interface, IoError, LoopHandle, Neighbour, TransportId};

/// The pause before a failed lookup of a configured neighbour is repeated. It doubles up to
/// [`SLOWEST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
const SLOWEST_RETRY: Duration = Duration::from_secs(60);

/// Bound of the threads that look up names: a program may ask for face after face.
const MAX_ASKING: usize = 16;
/// Bound of the lookups for a machine that run or wait; further ones are refused.
const MAX_REQUESTED: usize = 1024;

/// A peer named by its host name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPort {
    host: String,
    port: u16,
    family: Option<Family>,
}

impl HostPort {
    fn of(peer: &Peer) -> Option<HostPort> {
        match peer {
            Peer::Address(_) => None,
            Peer::Named { host, port, family } => Some(HostPort {
                host: host.clone(),
                port: *port,
                family: *family,
            }),
        }
    }

    /// Resolves the name through the system. Blocks.
    fn addresses(&self) -> io::Result<SocketAddr> {
        if let Some(local) = self.link_local() {
            return local;
        }
        let fits = |address: &SocketAddr| self.family.is_none_or(|it| it.has(&address.ip()));
        let found = (self.host.as_str(), self.port).to_socket_addrs()?;
        first_usable(found.filter(fits))
    }

    /// Returns the address if the host is a link-local one with its interface.
    fn link_local(&self) -> Option<io::Result<SocketAddr>> {
        let inside = self.host.strip_prefix('[')?.strip_suffix(']')?;
        let (address, zone) = inside.split_once('%')?;
        let address: Ipv6Addr = address.parse().ok()?;
        // By its name alone: an address finds an interface too, and peers would have two texts.
        let interface = Interface::find(zone)
            .and_then(|it| match it.name == zone {
                true => Ok(it),
                false => Err(IoError::NoSuchInterface { name: zone.into() }),
            })
            .map_err(io::Error::other);
        Some(interface.map(|it| SocketAddrV6::new(address, self.port, 0, it.index).into()))
    }
}

/// Returns the first address that a peer can have: filters of names answer 0.0.0.0, and a link-local
/// address needs an interface, which the name service does not know.
fn first_usable(found: impl Iterator<Item = SocketAddr>) -> io::Result<SocketAddr> {
    let mut useless = None;
    for address in found {
        let lacks_zone = matches!(&address, SocketAddr::V6(v6)
            if v6.ip().is_unicast_link_local() && v6.scope_id() == 0);
        if !address.ip().to_canonical().is_unspecified() && !lacks_zone {
            return Ok(address);
        }
        useless.get_or_insert(address.ip());
    }
    Err(io::Error::other(match useless {
        Some(ip) => format!("it has the address {ip}, at which no machine is reached"),
        None => String::from("it has no address of the family that is wanted"),
    }))
}

/// The reason for a lookup.
#[derive(Debug)]
enum Purpose {
    /// The machine asked for a port.
    Request(OpenRequest),
    /// A configured neighbour has no port yet.
    Neighbour {
        link: TransportId,
        neighbour: Neighbour,
        pause: Duration,
    },
    /// The peer on a port does not answer; it may have moved.
    Move(PortId),
}

/// Running lookups, and the host names of ports' peers.
#[derive(Debug, Default)]
pub(crate) struct Names {
    next: u64,
    waiting: BTreeMap<u64, (HostPort, Purpose)>,
    again: TimerQueue<u64>,
    // Look-ups that have a thread, and those that wait for one.
    asking: usize,
    queued: VecDeque<u64>,
    by_port: BTreeMap<PortId, HostPort>,
    moving: BTreeSet<PortId>,
}

impl Names {
    /// Returns the time at which the next failed lookup is repeated.
    pub(crate) fn next_retry(&self) -> Option<Time> {
        self.again.next().map(|(at, _)| at)
    }

    /// Forgets a closed port.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.by_port.remove(&port);
    }

    fn look_up<M: Machine + 'static>(
        &mut self,
        handle: &LoopHandle<M>,
        name: HostPort,
        purpose: Purpose,
    ) {
        let ticket = self.next;
        self.next += 1;
        self.waiting.insert(ticket, (name, purpose));
        self.start(handle, ticket);
    }

    /// Starts a thread that looks up a name and posts the answer to the loop.
    fn start<M: Machine + 'static>(&mut self, handle: &LoopHandle<M>, ticket: u64) {
        let Some((name, _)) = self.waiting.get(&ticket) else {
            return;
        };
        if self.asking >= MAX_ASKING {
            return self.queued.push_back(ticket);
        }
        self.asking += 1;
        let post = move |handle: &LoopHandle<M>, found| {
            // A post fails only after the loop has ended.
            let _ = handle
                .post_to_loop(move |event_loop| event_loop.sockets().name_answered(ticket, found));
        };
        let (name, answered) = (name.clone(), handle.clone());
        let asking = std::thread::Builder::new().name("host-name".into());
        let spawned = asking.spawn(move || post(&answered, name.addresses()));
        if let Err(error) = spawned {
            post(handle, Err(error));
        }
    }
}

impl<M: Machine + 'static> Sockets<M> {
    /// Looks up the name of a peer for a port that the machine asked for.
    pub(crate) fn look_up_request(&mut self, request: OpenRequest) {
        if self.names.waiting.len() >= MAX_REQUESTED {
            let why = String::from("too many host names are being looked up");
            return self.refuse(request.token, OpenRefusal::Failed(why));
        }
        if let Some(name) = remote_of(&request.endpoint).and_then(HostPort::of) {
            self.names
                .look_up(&self.handle, name, Purpose::Request(request));
        }
    }

    /// Looks up the name of a configured neighbour, repeatedly until that succeeds.
    pub(crate) fn look_up_neighbour(&mut self, link: TransportId, neighbour: Neighbour) {
        if let Some(name) = HostPort::of(&neighbour.address) {
            let pause = FIRST_RETRY;
            let purpose = Purpose::Neighbour {
                link,
                neighbour,
                pause,
            };
            self.names.look_up(&self.handle, name, purpose);
        }
    }

    /// Looks up the name of an unresponsive peer, if it is known by name.
    pub(crate) fn look_up_again(&mut self, port: PortId) {
        if let Some(name) = self.names.by_port.get(&port).cloned()
            && self.names.moving.insert(port)
        {
            self.names.look_up(&self.handle, name, Purpose::Move(port));
        }
    }

    /// Repeats lookups whose pause is over.
    pub(crate) fn retry_names(&mut self, now: Time) {
        let mut pass = self.names.again.pass(now);
        while let Some((_, ticket)) = pass.next(&mut self.names.again) {
            self.names.start(&self.handle, ticket);
        }
    }

    fn name_answered(&mut self, ticket: u64, found: io::Result<SocketAddr>) {
        self.names.asking = self.names.asking.saturating_sub(1);
        if let Some(next) = self.names.queued.pop_front() {
            self.names.start(&self.handle, next);
        }
        let Some((name, purpose)) = self.names.waiting.remove(&ticket) else {
            return;
        };
        match (purpose, found) {
            (Purpose::Request(request), Ok(address)) => {
                if let Some(port) = self.open_at(request, address) {
                    self.names.by_port.insert(port, name);
                }
            }
            (Purpose::Request(request), Err(error)) => {
                let refusal = OpenRefusal::Failed(format!("cannot look up {}: {error}", name.host));
                self.refuse(request.token, refusal);
            }
            (
                Purpose::Neighbour {
                    link, neighbour, ..
                },
                Ok(address),
            ) => self.found_neighbour(link, neighbour, name, address),
            (
                Purpose::Neighbour {
                    link,
                    neighbour,
                    pause,
                },
                Err(error),
            ) => {
                tracing::warn!(
                    label = %neighbour.label, host = %name.host, %error,
                    again_in_s = pause.as_secs(), "cannot look up a neighbour"
                );
                let now = self.clock.now();
                let at = now + pause;
                if let Some(on_failure) = &mut self.on_look_up_failure {
                    let failure = LookUpFailure {
                        origin: neighbour.origin,
                        host: name.host.clone(),
                        error: error.to_string(),
                        again_at: at,
                    };
                    on_failure(&mut self.side.machine, now, failure);
                }
                let pause = (pause * 2).min(SLOWEST_RETRY);
                let purpose = Purpose::Neighbour {
                    link,
                    neighbour,
                    pause,
                };
                self.names.waiting.insert(ticket, (name, purpose));
                self.names.again.set(ticket, at);
            }
            (Purpose::Move(port), found) => {
                self.names.moving.remove(&port);
                match found {
                    Ok(address) => self.move_neighbour(port, &name.host, address),
                    Err(error) => {
                        tracing::debug!(host = %name.host, %error, "cannot look up a silent peer");
                    }
                }
            }
        }
    }

    fn found_neighbour(
        &mut self,
        link: TransportId,
        neighbour: Neighbour,
        name: HostPort,
        address: SocketAddr,
    ) {
        let label = neighbour.label.clone();
        match self.add_neighbour_at(link, neighbour, address) {
            Ok(port) => {
                self.names.by_port.insert(port, name);
            }
            // The link was closed meanwhile.
            Err(IoError::NoSuchLink) => {}
            Err(error) => tracing::warn!(%label, %error, "a neighbour cannot be added"),
        }
    }

    fn move_neighbour(&mut self, port: PortId, host: &str, address: SocketAddr) {
        let now = self.clock.now();
        let Some(slot) = self.side.get(port).map(|port| port.transport) else {
            return;
        };
        let Some(Transport::Udp(endpoint)) = self.transports.get(slot) else {
            return;
        };
        if endpoint.address_of(port) == Some(crate::udp::canonical(address)) {
            return;
        }
        if endpoint.move_neighbour(now, port, address) {
            tracing::info!(%port, host, %address, "a silent peer has another address now");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_no_machine_has_is_no_answer() {
        let of = |texts: &[&str]| {
            let all: Vec<SocketAddr> = texts.iter().map(|it| it.parse().unwrap()).collect();
            first_usable(all.into_iter())
        };
        let good = "192.0.2.7:1".parse().unwrap();
        let found = of(&["0.0.0.0:1", "[fe80::1]:1", "192.0.2.7:1"]);
        assert_eq!(found.unwrap(), good);
        let error = of(&["[::]:1"]).unwrap_err().to_string();
        assert!(error.contains("address ::"), "{error}");
        assert!(of(&[]).unwrap_err().to_string().contains("family"));
    }
}
