//! Look-ups of host names on separate threads, so that a slow or absent name server holds up
//! nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_core::{Family, Peer, PortId, Time, TimerQueue};

use crate::requests::OpenRequest;
use crate::{Interface, IoError, Neighbour, TransportId};

/// The pause before a failed lookup of a configured neighbour is repeated. It doubles up to
/// [`SLOWEST_RETRY`].
pub(crate) const FIRST_RETRY: Duration = Duration::from_secs(1);
pub(crate) const SLOWEST_RETRY: Duration = Duration::from_secs(60);

/// Bound of the threads that look up names: a program may ask for face after face.
const MAX_ASKING: usize = 16;
/// Bound of the lookups for a machine that run or wait; further ones are refused.
pub(crate) const MAX_REQUESTED: usize = 1024;

/// A peer named by its host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    port: u16,
    family: Option<Family>,
}

impl HostPort {
    pub(crate) fn of(peer: &Peer) -> Option<HostPort> {
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
pub(crate) enum Purpose {
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

/// Receives the answers of look-ups, on their threads.
pub(crate) type Answers = Arc<dyn Fn(u64, io::Result<SocketAddr>) + Send + Sync>;

/// Running lookups, and the host names of ports' peers.
pub(crate) struct Names {
    answers: Answers,
    next: u64,
    pub(crate) waiting: BTreeMap<u64, (HostPort, Purpose)>,
    pub(crate) again: TimerQueue<u64>,
    // Look-ups that have a thread, and those that wait for one.
    pub(crate) asking: usize,
    pub(crate) queued: VecDeque<u64>,
    pub(crate) by_port: BTreeMap<PortId, HostPort>,
    pub(crate) moving: BTreeSet<PortId>,
}

impl Names {
    pub(crate) fn new(answers: Answers) -> Names {
        Names {
            answers,
            next: 0,
            waiting: BTreeMap::new(),
            again: TimerQueue::new(),
            asking: 0,
            queued: VecDeque::new(),
            by_port: BTreeMap::new(),
            moving: BTreeSet::new(),
        }
    }

    /// Returns the time at which the next failed lookup is repeated.
    pub(crate) fn next_retry(&self) -> Option<Time> {
        self.again.next().map(|(at, _)| at)
    }

    /// Forgets a closed port.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.by_port.remove(&port);
    }

    pub(crate) fn look_up(&mut self, name: HostPort, purpose: Purpose) {
        let ticket = self.next;
        self.next += 1;
        self.waiting.insert(ticket, (name, purpose));
        self.start(ticket);
    }

    /// Starts a thread that looks up a name and posts the answer to the loop.
    pub(crate) fn start(&mut self, ticket: u64) {
        let Some((name, _)) = self.waiting.get(&ticket) else {
            return;
        };
        if self.asking >= MAX_ASKING {
            return self.queued.push_back(ticket);
        }
        self.asking += 1;
        let (name, answers) = (name.clone(), Arc::clone(&self.answers));
        let asking = std::thread::Builder::new().name("host-name".into());
        let spawned = asking.spawn(move || answers(ticket, name.addresses()));
        if let Err(error) = spawned {
            (self.answers)(ticket, Err(error));
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
