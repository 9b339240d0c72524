//! The node where the next hops of a multihomed destination part, and one at which its host is attached
//! that prefers another.

use whimbrel_core::{Guid, Time};
use whimbrel_gnrs::Lookup;

use super::Binding;
use crate::links::{ChunkToSend, Links};
use crate::next_hops::{Branch, NextHops};
use crate::router::Timer;
use crate::router::effects::{Action, Effects};
use crate::wire::MAX_CARRIED_ADDRESSES;

impl Binding {
    /// The next hops of a multihomed destination, if they part here. "As the data traverses the
    /// routers within the network, they perform GNRS lookup and append the various network addresses
    /// associated with the destination GUID as needed to the chunks" [MF-5G §III]: what is not known
    /// yet delays nothing.
    pub(super) fn parting(
        &mut self,
        now: Time,
        outgoing: &mut ChunkToSend,
        here: &NextHops,
        links: &Links,
        effects: &mut Effects,
    ) -> Option<NextHops> {
        let header = &outgoing.chunk.header;
        let carried = header.extensions.addresses.clone();
        let mut hops = match carried.len() {
            0 => {
                let name = header.destination;
                if !self.names.may_ask(now, &name, outgoing.from) {
                    return None;
                }
                let at = outgoing.from.map(|from| links.source_of(from));
                if let Some(idle_at) = self.names.follow(now, at, name) {
                    effects.push(Action::SetEarlier(Timer::Followed, idle_at));
                }
                match self.names.look_up(now, name) {
                    Lookup::Resolved(answer) => {
                        let hops = self.routes.towards_binding(&answer, links)?;
                        self.answered(now, name, hops, links, effects)
                    }
                    // What was known has expired: the next answer is on its way.
                    _ => links
                        .division
                        .divided_among(&outgoing.chunk.flow())?
                        .clone(),
                }
            }
            1 => return None,
            _ => self.routes.towards_all(&carried, links),
        };
        // The node that it comes from divides it too, if another way leads by there.
        hops.retain(|branch| branch.up && Some(branch.port) != outgoing.origin);
        // The host prefers another router to this one: the link from here takes no part.
        let is_reserve = !hops.is_empty()
            && self
                .attachments
                .better(&outgoing.chunk.header.destination)
                .is_some();
        let own = here.iter().filter(|_| !is_reserve);
        let all: NextHops = own.chain(hops.iter()).copied().collect();
        if all.ports().len() > 1 {
            return Some(all);
        }
        // They part further on, or there is one.
        // Those that the host keeps in reserve take no part there either.
        let best = hops.best().map(Branch::rank);
        let alike = hops.iter().filter(|it| Some(it.rank()) == best);
        let mut addresses: Vec<Guid> = alike.filter_map(|it| it.address).collect();
        addresses.dedup();
        addresses.truncate(MAX_CARRIED_ADDRESSES);
        let is_left_alone = carried.len() > 1 && addresses.len() == 1;
        if here.is_empty() && (addresses.len() > 1 || is_left_alone) {
            let header = &mut outgoing.chunk.header;
            header.destination_address = addresses[0];
            header.extensions.addresses = addresses;
        }
        None
    }

    /// Returns the way of a chunk for a host attached here that prefers another router, if that has
    /// answered. What has another address, or comes from there, is delivered here. An address is set once:
    /// records of one host may name each other's routers.
    pub(super) fn preferred_way(
        &mut self,
        now: Time,
        outgoing: &ChunkToSend,
        links: &Links,
        effects: &mut Effects,
    ) -> Option<NextHops> {
        let header = &outgoing.chunk.header;
        let (host, at) = (header.destination, header.destination_address);
        let better = self.attachments.better(&host)?;
        if !(at.is_none() || at == better) || !self.counts(now, host, better, links, effects) {
            return None;
        }
        let mut hops = self.routes.towards(&better, links);
        hops.retain(|branch| branch.up && Some(branch.port) != outgoing.origin);
        (!hops.is_empty()).then(|| hops.at_address(better))
    }
}
