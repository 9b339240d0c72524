//! The reasons for which host names are looked up, and what follows from the answers.

use std::io;
use std::net::SocketAddr;

use whimbrel_core::{LookUpFailure, Machine, OpenRefusal, PortId, Time};

use crate::names::{FIRST_RETRY, HostPort, MAX_REQUESTED, Purpose, SLOWEST_RETRY};
use crate::requests::{OpenRequest, remote_of};
use crate::sockets::Sockets;
use crate::transport::Transport;
use crate::{IoError, Neighbour, TransportId};

impl<M: Machine + 'static> Sockets<M> {
    /// Looks up the name of a peer for a port that the machine asked for.
    pub(crate) fn look_up_request(&mut self, request: OpenRequest) {
        if self.names.waiting.len() >= MAX_REQUESTED {
            let why = String::from("too many host names are being looked up");
            return self.refuse(request.token, OpenRefusal::Failed(why));
        }
        if let Some(name) = remote_of(&request.endpoint).and_then(HostPort::of) {
            self.names.look_up(name, Purpose::Request(request));
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
            self.names.look_up(name, purpose);
        }
    }

    /// Looks up the name of an unresponsive peer, if it is known by name.
    pub(crate) fn look_up_again(&mut self, port: PortId) {
        if let Some(name) = self.names.by_port.get(&port).cloned()
            && self.names.moving.insert(port)
        {
            self.names.look_up(name, Purpose::Move(port));
        }
    }

    /// Repeats lookups whose pause is over.
    pub(crate) fn retry_names(&mut self, now: Time) {
        let mut pass = self.names.again.pass(now);
        while let Some((_, ticket)) = pass.next(&mut self.names.again) {
            self.names.start(ticket);
        }
    }

    pub(crate) fn name_answered(&mut self, ticket: u64, found: io::Result<SocketAddr>) {
        self.names.asking = self.names.asking.saturating_sub(1);
        if let Some(next) = self.names.queued.pop_front() {
            self.names.start(next);
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
