//! Interfaces that vanish and come back: an adapter that is unplugged, a module that is loaded
//! again, a virtual wire that is laid anew. The ports of the link stay, and are silent meanwhile.

use whimbrel_core::{Machine, Time};

use super::endpoint::EthernetEndpoint;
use super::socket;
use crate::interface::{Interface, current_mtu, exists};
use crate::poller::Poller;
use crate::side::MachineSide;
use crate::transport::Progress;

impl EthernetEndpoint {
    /// Handles that the interface is gone. A link that outlives it gets a socket without one, which
    /// receives nothing; others end.
    pub(super) fn lose_interface(&mut self, poller: &mut Poller) -> Progress {
        let (label, interface) = (&self.config.label, &self.config.interface.name);
        if !self.config.outlives_interface {
            tracing::warn!(%label, interface, "the interface is gone");
            return Progress::Ended;
        }
        let Ok(unbound) = socket::open() else {
            tracing::warn!(%label, interface, "the interface is gone, and no socket can wait for it");
            return Progress::Ended;
        };
        if poller.add(&unbound, self.token).is_err() {
            return Progress::Ended;
        }
        tracing::warn!(%label, interface, "the interface is gone; the link waits for its return");
        poller.remove(&self.socket);
        self.socket = unbound;
        self.is_away = true;
        Progress::Open
    }

    /// Searches for the interface if it is gone; otherwise reads its MTU again. Called when the
    /// kernel reports a change of its interfaces.
    pub(crate) fn recheck<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) {
        if !self.config.outlives_interface {
            return;
        }
        if !self.is_away && !exists(self.config.interface.index) {
            self.lose_interface(poller);
        }
        if self.is_away {
            self.search(side, now);
            return;
        }
        let Some(mtu) = current_mtu(&self.config.interface.name) else {
            return;
        };
        let before = std::mem::replace(&mut self.config.interface.mtu, mtu);
        if mtu != before {
            self.tell_mtu(side, now, before);
        }
    }

    fn search<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) {
        let name = &self.config.interface.name;
        let Ok(interface) = Interface::find(name) else {
            return;
        };
        let Some(local) = interface.ethernet.filter(|_| interface.name == *name) else {
            return;
        };
        if let Err(error) = socket::bind(&self.socket, interface.index, self.config.ether_type) {
            tracing::debug!(label = %self.config.label, interface = %name, %error, "cannot bind to the interface again");
            return;
        }
        tracing::info!(label = %self.config.label, interface = %name, "the interface is back");
        self.local = local;
        self.is_away = false;
        self.config.interface = interface;
        // The way is another one, although the interface has its former name.
        self.tell_mtu(side, now, 0);
    }

    /// Tells all ports the MTU of the interface, which was `before`.
    fn tell_mtu<M: Machine>(&self, side: &mut MachineSide<M>, now: Time, before: usize) {
        let largest = self.config.largest_frame(self.config.interface.mtu);
        for port in self.peers.keys() {
            if self.config.interface.mtu > before {
                side.move_path(now, *port, largest);
            } else {
                side.lower_mtu(now, *port, largest);
            }
        }
    }
}
