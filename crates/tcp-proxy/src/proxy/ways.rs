//! Which path the Interests of a connection take, and what happens when it fails.

use whimbrel_core::Time;
use whimbrel_ndn_packet::{InterestRef, NameRef};

use super::Proxy;
use crate::connection::Carrier;
use crate::message::Stock;
use crate::table::Slot;

impl Proxy {
    /// Answers a probe: the routers on the way add the tag.
    pub(super) fn answer_probe(&mut self, now: Time, name: NameRef<'_>) {
        let data = self.sealed_data(now, name, Stock::Interests(0), &[]);
        self.push_data(data);
    }

    /// The peer's Interests take another path from now on. What was sent to the ones before may be
    /// lost: the newest segments go once more, so that the other end says what it lacks.
    pub(super) fn renew(&mut self, now: Time, slot: Option<Slot>, interest: &InterestRef<'_>) {
        let Some(slot) = slot else { return };
        if let Some(connection) = self.table.get_mut(slot)
            && let Carrier::Unreliable(queue) = &mut connection.carrier
        {
            queue.renew();
        }
        self.credit(now, Some(slot), interest);
        self.revive(now, slot, now);
    }
}
