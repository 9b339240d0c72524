//! Which path the Interests of a connection take, and what happens when it fails.

use whimbrel_core::Time;
use whimbrel_ndn_packet::{InterestRef, NameRef};
use whimbrel_transport::PathTag;
use whimbrel_transport::ledger::Sent;
use whimbrel_transport::path::PathId;

use super::Proxy;
use super::uplink::{InterestTerms, Pending};
use crate::connection::Carrier;
use crate::message::{Message, Stock};
use crate::paths::{PeerIndex, Way};
use crate::table::Slot;

impl Proxy {
    /// Returns the path of a connection's Interests, which it gets once there are several.
    pub(super) fn way_of(&mut self, slot: Slot) -> Option<Way> {
        if !self.paths.are_wanted() {
            return None;
        }
        let connection = self.table.get_mut(slot)?;
        if connection.way.is_none() {
            connection.way = self.paths.choose(&connection.peer);
        }
        connection.way
    }

    /// Sends the probes and checks that are due.
    pub(super) fn probe_paths(&mut self, now: Time) {
        while let Some(probe) = self.paths.due(now) {
            if !self.uplink.claim_room(&mut self.counters) {
                return;
            }
            self.counters.probes += 1;
            let uplink = &mut self.uplink;
            let name = uplink.sealed_name(now, &probe.prefix, &Message::Probe);
            let sending = InterestTerms {
                path: probe.way.path,
                lifetime: probe.lifetime,
                header: Some(Box::new(probe.header)),
            };
            let pending = Pending::Probe(probe.way.peer);
            uplink.send(now, name, sending, pending, &mut self.counters);
        }
    }

    /// Answers a probe: the routers on the way add the tag.
    pub(super) fn answer_probe(&mut self, now: Time, name: NameRef<'_>) {
        let (stock, counters) = (Stock::Interests(0), &mut self.counters);
        let data = self.uplink.sealed_data(now, name, stock, &[], counters);
        self.uplink.push_data(data, counters);
    }

    pub(super) fn probe_answered(
        &mut self,
        now: Time,
        peer: PeerIndex,
        sent: &Sent,
        tag: Option<&[u8]>,
    ) {
        let path = sent.path;
        let tag = tag.map(<[u8]>::to_vec).and_then(PathTag::new);
        let way = Way { peer, path };
        if let Some(since) = self.paths.answered(now, way, sent.at, tag) {
            self.leave_path(now, way, since);
        }
    }

    pub(super) fn probe_expired(&mut self, now: Time, peer: PeerIndex, path: PathId) {
        let way = Way { peer, path };
        if let Some(since) = self.paths.expired(now, way) {
            self.leave_path(now, way, since);
        }
    }

    /// A router says that a path is gone.
    pub(super) fn path_fails(&mut self, now: Time, way: Way) {
        if let Some(since) = self.paths.fail(now, way) {
            self.leave_path(now, way, since);
        }
    }

    /// The connections of a path that has not worked since `since` take others, or the name.
    fn leave_path(&mut self, now: Time, way: Way, since: Time) {
        self.counters.failed_paths += 1;
        for slot in self.table.slots_on(way) {
            self.paths.release(way);
            if let Some(connection) = self.table.get_mut(slot) {
                connection.way = None;
                let fetches = matches!(connection.carrier, Carrier::Unreliable(_));
                let flow = connection.ends.outward();
                if fetches {
                    // What the peer holds came over the failed path, and its Data would go there.
                    self.send_message(now, slot, &Message::Renew { flow }, true);
                    let extra = self.options.extra_interests;
                    self.send_credits(now, slot, extra);
                }
            }
            self.revive(now, slot, since);
        }
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
