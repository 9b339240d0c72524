//! Interfaces that vanish and come back: an adapter that is unplugged, a module that is loaded
//! again, a virtual wire that is laid anew. The ports of the link stay, and are silent meanwhile.

use whimbrel_core::{Machine, Time};

use super::endpoint::EthernetEndpoint;
use super::socket;
use crate::interface::{Interface, exists};
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
    /// kernel reports a change of its interfaces. Ends if the interface is gone and nothing can wait
    /// for it.
    pub(crate) fn recheck<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) -> Progress {
        if !self.config.outlives_interface {
            return Progress::Open;
        }
        if !self.is_away
            && !exists(self.config.interface.index)
            && self.lose_interface(poller) == Progress::Ended
        {
            return Progress::Ended;
        }
        let found = Interface::find(&self.config.interface.name).ok();
        let found = found.filter(|it| it.name == self.config.interface.name);
        let is_carried = found.as_ref().is_some_and(|it| it.is_up && it.is_running);
        if let Some(found) = found {
            match self.is_away {
                true => self.take_back(side, now, found),
                false => {
                    let before = std::mem::replace(&mut self.config.interface.mtu, found.mtu);
                    if found.mtu != before {
                        self.tell_mtu(side, now, before);
                    }
                }
            }
        }
        self.tell_carrier(side, now, is_carried && !self.is_away);
        Progress::Open
    }

    fn take_back<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time, found: Interface) {
        let Some(local) = found.ethernet else {
            return;
        };
        let former = std::mem::replace(&mut self.config.interface, found);
        let (label, name) = (&self.config.label, &self.config.interface.name);
        if let Err(error) = self.config.receive(&self.socket) {
            tracing::debug!(%label, interface = %name, %error, "cannot bind to the interface again");
            self.config.interface = former;
            return;
        }
        tracing::info!(%label, interface = %name, "the interface is back");
        self.local = local;
        self.is_away = false;
        // The way is another one, although the interface has its former name.
        self.tell_mtu(side, now, 0);
    }

    /// Tells the ports of neighbours that are chosen whether what carries their frames works.
    fn tell_carrier<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time, works: bool) {
        if std::mem::replace(&mut self.is_carried, works) == works {
            return;
        }
        for port in self.peers.keys() {
            let is_chosen = side
                .get(*port)
                .is_some_and(|port| port.info.origin.is_chosen());
            if is_chosen {
                side.note_carrier(now, *port, works);
            }
        }
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
