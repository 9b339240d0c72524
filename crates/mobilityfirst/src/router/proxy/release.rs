//! Stored chunks leave for their next hops, in the order in which they came.

use super::*;
use crate::router::store::StoredChunk;

impl Proxy {
    /// Sends stored chunks of open destinations, as far as their hops have room. Returns true if
    /// any was sent.
    pub(in crate::router) fn release_stored(
        &mut self,
        now: Time,
        gained: &BTreeSet<PortId>,
        links: &mut Links,
        divisions: &mut Divisions,
        effects: &mut Effects,
    ) -> bool {
        let mut released = false;
        for destination in self.openings.take_ready(gained) {
            if self.release_oldest(now, destination, links, divisions, effects) {
                released = true;
                self.openings.note_served(destination);
            }
        }
        released
    }

    /// Sends the oldest stored chunk of an open destination, if its hop has room: of those that it has requested and
    /// of those that it is offered, as either may be held back.
    fn release_oldest(
        &mut self,
        now: Time,
        destination: Guid,
        links: &mut Links,
        divisions: &mut Divisions,
        effects: &mut Effects,
    ) -> bool {
        let Some(hops) = self.openings.next_hops(&destination) else {
            return false;
        };
        if !hops.iter().any(|branch| links.is_up(branch.port)) {
            self.keep_stored(now, destination, effects);
            return false;
        }
        if !hops.iter().any(|branch| links.has_room(branch.port)) {
            return false;
        }
        let mut hops = hops.clone();
        hops.refresh(|port| links.branch(port));
        let oldest = self.store.first_for(&destination, 1);
        if oldest.is_empty() {
            self.stop_waiting(destination, effects);
        }
        for id in oldest {
            let Some(stored) = self.store.get(id) else {
                continue;
            };
            if !stored.is_in_memory {
                self.read_ahead(now, &destination);
                continue;
            }
            let branches = branches_with_room(&stored, &hops, links, divisions);
            if !branches.is_empty() {
                self.release_one(now, id, &branches, &hops, links, effects);
                return true;
            }
        }
        false
    }

    fn release_one(
        &mut self,
        now: Time,
        id: StoreId,
        branches: &[Branch],
        all: &NextHops,
        links: &mut Links,
        effects: &mut Effects,
    ) {
        if let Some(carried) = self.lingering.take_carried(id) {
            if let [branch] = branches
                && branch.port == carried.port
            {
                // The hop continues with the copy that it carries, which holds the same room.
                self.discard(id);
                return;
            }
            links.withdraw(now, carried);
        }
        let Some(outgoing) = self.take_to_send(now, id) else {
            return;
        };
        effects.counters.chunks_released += 1;
        self.read_ahead(now, &outgoing.chunk.header.destination);
        let flow = outgoing.chunk.flow();
        self.go_on(&flow, effects);
        let hops: NextHops = branches.iter().copied().collect();
        if Spread::of_chunk(&outgoing.chunk) == Spread::Divide
            && links.division.may_divide(&flow, &hops)
        {
            return links.divide(outgoing, &hops);
        }
        for branch in branches {
            if let Err(refused) = links.enqueue(branch.port, outgoing.clone().over(branch, all)) {
                self.store_chunk(now, refused, effects);
            }
        }
    }
}

/// Returns the branches of a stored chunk: empty while one of the required ones has no room. A
/// divided flow uses those with room.
fn branches_with_room(
    stored: &StoredChunk<'_>,
    hops: &NextHops,
    links: &Links,
    divisions: &mut Divisions,
) -> Vec<Branch> {
    let (spread, flow) = (stored.spread, stored.header.flow());
    if spread == Spread::Divide && links.division.may_divide(&flow, hops) {
        let has_room = links.has_room_to_divide(&flow, hops);
        return hops.iter().filter(|_| has_room).copied().collect();
    }
    let has_room = |branch: &Branch| {
        let link = links.at(branch.port);
        link.is_some_and(|link| link.has_room_for(&flow))
    };
    let chosen: Vec<Branch> = match spread {
        Spread::Divide => {
            let free: NextHops = hops.iter().filter(|it| has_room(it)).copied().collect();
            free.select(spread, flow, stored.size, divisions)
                .copied()
                .collect()
        }
        _ => hops
            .select(spread, flow, stored.size, divisions)
            .copied()
            .collect(),
    };
    if chosen.iter().all(has_room) {
        chosen
    } else {
        Vec::new()
    }
}
