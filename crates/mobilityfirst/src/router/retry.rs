//! Retries of stored chunks: by the name service, by what is known, and by neighbours that come up.

use core::ops::Bound;
use core::time::Duration;

use whimbrel_core::{Guid, Time};
use whimbrel_gnrs::{Answer, Lookup};

use super::binding::Sought;
use super::{Router, Timer};
use crate::next_hops::Spread;

/// Destinations that are looked at together when a neighbour has come up, and the pause before the next
/// ones.
const REVIEWED: usize = 256;
const REVIEW_INTERVAL: Duration = Duration::from_millis(4);

/// A pass over all destinations of stored chunks.
#[derive(Debug, Default)]
pub(super) struct Review {
    // The last one that was looked at.
    after: Option<Guid>,
    // Another neighbour has come up meanwhile.
    again: bool,
}

impl Router {
    /// The storage timer of a destination has expired, or its state has changed: "a GNRS look-up to
    /// bind an updated NA" - or no lookup, if it is attached here.
    pub(super) fn retry_destination(&mut self, now: Time, destination: Guid) {
        if !self.proxy.begin_retry(now, destination, &mut self.effects) {
            return;
        }
        let here = self.binding.attachments.hops_to(&destination, &self.links);
        if !here.is_empty() {
            self.proxy.note_found(&destination);
            // What did not fit on the way to the router that the host prefers leaves by it.
            let better = self.binding.attachments.better(&destination);
            let leaves = |better| {
                self.proxy
                    .openings
                    .leaves_for(&destination, better, &self.links)
            };
            if !better.is_some_and(leaves) {
                self.proxy
                    .openings
                    .open(destination, here.at_address(self.config.guid));
            }
            return;
        }
        self.effects.counters.storage_lookups += 1;
        if let Lookup::Resolved(answer) = self.binding.names.look_up_anew(now, destination) {
            self.bind_stored(now, destination, &answer);
        }
    }

    /// A neighbour is responsive again, or ways have changed: stored chunks may have a next hop now. What
    /// is known of their destinations tells; the name service is not asked, or every neighbour that comes
    /// up would cause look-ups of all that are absent.
    pub(super) fn retry_waiting(&mut self, now: Time) {
        for outgoing in self.binding.routes.learning.take_held() {
            self.forward(now, outgoing);
        }
        match &mut self.review {
            Some(review) => review.again = true,
            None => {
                self.review = Some(Review::default());
                self.go_on_with_review(now);
            }
        }
    }

    /// Looks at a part of the destinations: anybody can have them be many, and have neighbours come up
    /// often.
    pub(super) fn go_on_with_review(&mut self, now: Time) {
        let Some(review) = self.review.take() else {
            return;
        };
        let after = review.after.map_or(Bound::Unbounded, Bound::Excluded);
        let left = self.proxy.waiting().range((after, Bound::Unbounded));
        let part: Vec<Guid> = left.take(REVIEWED).copied().collect();
        let is_last = part.len() < REVIEWED;
        let next = Review {
            after: part.last().copied().filter(|_| !is_last),
            again: review.again && !is_last,
        };
        if !is_last || review.again {
            self.review = Some(next);
            self.timers.set(Timer::Review, now + REVIEW_INTERVAL);
        }
        for destination in part {
            if self.binding.attachments.contains(&destination) {
                self.retry_destination(now, destination);
            } else if let Some(answer) = self.binding.names.known(now, &destination) {
                self.bind_stored(now, destination, &answer);
            }
        }
    }

    /// Handles the name service's answer or push for a destination of stored chunks.
    pub(super) fn bind_stored(&mut self, now: Time, destination: Guid, answer: &Answer) {
        if !self.proxy.may_retry(&destination) {
            return;
        }
        if self.binding.attachments.contains(&destination) {
            return self.retry_destination(now, destination);
        }
        let (links, effects) = (&self.links, &mut self.effects);
        let binding = &mut self.binding;
        if let Some(hops) = binding.routes.towards_binding(answer, links) {
            let spread = Spread::Divide;
            let hops = binding.answered_or_first(now, destination, hops, spread, links, effects);
            let stored = self.proxy.stored_since(&destination);
            let stored = stored.map(|since| now.since(since));
            if binding.routes.stays_for_usual(stored, &hops) {
                return self.proxy.keep_stored(now, destination, &mut self.effects);
            }
            if self.proxy.openings.open(destination, hops) {
                self.proxy.note_found(&destination);
                return;
            }
        }
        // A stored request for content with a holder: it is bound like a new one.
        let sought = Sought::any(destination);
        let provider = binding.pick_provider(now, sought, answer, links);
        if provider.is_some_and(|provider| binding.look_up_way(now, provider, links)) {
            self.proxy
                .release_to_forward(now, destination, &mut self.effects);
            self.carry_out(now);
        }
        self.proxy.keep_stored(now, destination, &mut self.effects);
    }
}

#[cfg(test)]
mod tests {
    use super::super::RouterConfig;
    use super::super::hostile::{control, name};
    use super::super::tests::{Net, SOURCE, config, data, join, port};
    use super::*;
    use crate::chunk::Chunk;
    use crate::wire::{Control, ServiceId};

    /// Returns the look-ups that stored chunks have caused.
    fn look_ups(net: &Net) -> u64 {
        net.router().effects.counters.storage_lookups
    }

    #[test]
    fn an_absent_destination_is_looked_up_ever_less_often() {
        let mut net = Net::new(&[*SOURCE]);
        net.send(1, data(ServiceId::UNICAST, Guid([9; 32]), 0, 1000));
        net.run(Duration::from_secs(50));
        // After 1, 3, 7, 15 and 31 s, each up to a quarter early.
        let first = look_ups(&net);
        assert!((5..=6).contains(&first), "{first}");
        assert_eq!(net.router().proxy.store().len(), 1);
    }

    #[test]
    fn a_neighbour_that_comes_up_causes_no_look_ups_of_what_is_absent() {
        let mut net = Net::new(&[*SOURCE, name(3)]);
        for index in 0..40 {
            let absent = Guid([100 + index; 32]);
            net.send(1, data(ServiceId::UNICAST, absent, 0, 1000));
        }
        net.run(Duration::from_secs(20));
        let before = look_ups(&net);
        net.with_router(|it, now| it.retry_waiting(now));
        assert_eq!(look_ups(&net), before);
    }

    #[test]
    fn a_destination_that_attaches_after_a_long_absence_has_its_chunks_at_once() {
        let host = Guid([9; 32]);
        let mut net = Net::new(&[*SOURCE, name(3)]);
        net.send(1, data(ServiceId::UNICAST, host, 0, 1000));
        net.run(Duration::from_secs(40));
        net.with_router(|it, now| {
            assert!(it.binding.attachments.insert(host, port(2), 1));
            it.retry_destination(now, host);
        });
        net.run(Duration::from_millis(100));
        assert_eq!(net.received(2).len(), 1);
        // Away again, it is looked up as soon as at first.
        let before = look_ups(&net);
        net.with_router(|it, _| it.binding.attachments.remove(&host, port(2)));
        net.send(1, data(ServiceId::UNICAST, host, 1, 1000));
        net.run(Duration::from_millis(1200));
        assert_eq!(look_ups(&net), before + 1);
    }

    /// Has the router store a chunk for each of so many hosts that nobody knows.
    fn with_absent(all: u16) -> Net {
        let mut net = Net::new(&[*SOURCE, name(3)]);
        for number in 0..all {
            let mut absent = [100; 32];
            absent[..2].copy_from_slice(&number.to_be_bytes());
            net.send(1, data(ServiceId::UNICAST, Guid(absent), 0, 10));
        }
        net
    }

    #[test]
    fn many_absent_destinations_cause_no_more_look_ups_than_some() {
        let mut net = with_absent(2_000);
        net.run(Duration::from_secs(2));
        assert_eq!(net.router().proxy.store().len(), 2_000);
        // 250 a second; each may be a quarter early.
        let made = look_ups(&net);
        assert!((300..700).contains(&made), "{made}");
    }

    #[test]
    fn a_neighbour_that_comes_up_has_many_destinations_looked_at_in_parts() {
        let mut net = with_absent(1_000);
        net.run(Duration::from_secs(5));
        let last = *net.router().proxy.waiting().last().expect("destinations");
        net.with_router(|it, now| {
            assert!(it.binding.attachments.insert(last, port(2), 1));
            it.retry_waiting(now);
            it.retry_waiting(now);
            assert!(it.review.is_some());
        });
        net.run(Duration::from_millis(100));
        assert_eq!(net.received(2).len(), 1);
        assert!(net.router().review.is_none());
    }

    /// Returns a chunk that may be stored for ten seconds.
    fn of_ten_seconds(service: ServiceId, destination: Guid) -> Chunk {
        let mut chunk = data(service, destination, 0, 1000);
        chunk.header.extensions.lifetime_ms = Some(10_000);
        chunk
    }

    #[test]
    fn a_router_subtracts_the_time_for_which_it_has_stored_a_chunk() {
        let host = Guid([9; 32]);
        let mut net = Net::new(&[*SOURCE, name(3)]);
        net.send(1, of_ten_seconds(ServiceId::UNICAST, host));
        net.run(Duration::from_secs(4));
        net.with_router(|it, now| {
            assert!(it.binding.attachments.insert(host, port(2), 1));
            it.retry_destination(now, host);
        });
        net.run(Duration::from_millis(100));
        let left = net.chunks(2)[0].header.extensions.lifetime_ms;
        assert!(
            left.is_some_and(|ms| (5_900..6_100).contains(&ms)),
            "{left:?}"
        );
    }

    /// A group without members gets one, which is away: its copy is stored instead.
    #[test]
    fn a_groups_chunk_that_is_stored_again_ends_when_its_sender_said() {
        let mut net = Net::new(&[*SOURCE, name(3)]);
        let group = whimbrel_gnrs::KeyPair::from_secret(&[70; 32]).guid();
        let group = whimbrel_gnrs::Record::group_of(&group);
        let stored = |net: &Net| net.router().proxy.store().len();
        net.send(1, of_ten_seconds(ServiceId::MULTICAST, group));
        net.run(Duration::from_secs(6));
        assert_eq!((stored(&net), join(&mut net, &[2])), (1, group));
        let member = whimbrel_gnrs::KeyPair::from_secret(&[72; 32]).guid();
        net.with_router(|it, now| {
            it.binding.attachments.remove(&member, port(2));
            it.proxy.release_to_forward(now, group, &mut it.effects);
            it.carry_out(now);
            assert!(it.proxy.waiting().contains(&member));
        });
        net.run(Duration::from_millis(3_900));
        assert_eq!(stored(&net), 1);
        net.run(Duration::from_millis(200));
        assert_eq!(stored(&net), 0);
    }

    /// Returns a chunk that is offered to a host.
    fn offered(service: ServiceId, host: Guid, index: u32, id: u64) -> Chunk {
        use crate::wire::{OfferTerms, OfferUse, SignedOffer};
        let mut chunk = data(service, host, index, 1000);
        chunk.header.extensions.request = Some(id);
        let data = chunk.data().expect("data");
        let terms = OfferTerms {
            destination: host,
            id,
            content: data.content,
            content_len: data.content_len,
            kind: data.kind,
            file_name: &data.file_name,
        };
        let keys = whimbrel_gnrs::KeyPair::from_secret(&[70; 32]);
        let offer = SignedOffer::sign(&keys, &terms, OfferUse::File, 1);
        chunk.header.extensions.offer = Some(offer.into());
        chunk
    }

    /// The receiver has two links, and no program that decides.
    #[test]
    fn a_divided_flow_of_offers_that_its_receiver_holds_back_is_stored() {
        use crate::wire::{Credit, Flow};
        const SECOND: Duration = Duration::from_secs(1);
        let host = name(3);
        let divides = RouterConfig {
            split: Default::default(),
            ..config()
        };
        let mut net = Net::with_config(&[*SOURCE, host, host], divides);
        let flow = Flow::offered(*SOURCE, host);
        let links = [2, 3];
        for link in links {
            net.with_router(|it, _| {
                assert!(it.binding.attachments.insert(host, port(link), 1));
                it.links.note_passed(port(link), flow);
            });
        }
        let tell = |net: &mut Net, lease| {
            let (octets, spare) = (0, false);
            let credit = Control::Credit(Credit {
                flow,
                octets,
                spare,
                lease,
            });
            for link in links {
                net.send(link, control(host, &credit));
            }
            net.run(SECOND / 10);
        };
        tell(&mut net, SECOND * 32);
        for index in 0..10 {
            net.send(1, offered(ServiceId::MULTIHOMING, host, index, 1));
        }
        net.run(SECOND);
        let stored = |net: &Net| net.router().proxy.store().len();
        assert_eq!(stored(&net), 0);
        assert!(net.router().links.division.divided_among(&flow).is_some());
        net.run(SECOND * 5);
        assert_eq!(stored(&net), 10);
        assert!(net.received(2).is_empty() && net.received(3).is_empty());
        tell(&mut net, Duration::ZERO);
        net.run(SECOND * 5);
        let mut got = net.received(2);
        got.extend(net.received(3));
        assert_eq!((got.len(), stored(&net)), (10, 0));
    }

    /// A receiver that has been sent a content without a request may take back a request of its own for it.
    #[test]
    fn a_request_that_is_taken_back_leaves_an_offer_of_the_same_content() {
        use crate::wire::{ChunkRanges, Reliability, Request, Transport};
        let host = Guid([9; 32]);
        let mut net = Net::new(&[*SOURCE, name(3)]);
        let content = |index, id, is_offered: bool| {
            let mut chunk = offered(ServiceId::UNICAST, host, index, id);
            if !is_offered {
                chunk.header.extensions.offer = None;
            }
            let content = chunk.data().expect("data").content;
            (chunk, content)
        };
        let mut named = Guid::NONE;
        for (index, id, is_offered) in [(0, 1, true), (1, 2, true), (2, 3, false)] {
            let (chunk, content) = content(index, id, is_offered);
            named = content;
            net.send(1, chunk);
        }
        net.run(Duration::from_millis(100));
        net.with_router(|it, _| assert!(it.binding.attachments.insert(host, port(2), 1)));
        let header = crate::wire::NetworkHeader::new(
            ServiceId::UNICAST,
            crate::wire::UpperProtocol::Transport,
            host,
            *SOURCE,
        );
        let mut left = Vec::new();
        for id in [3, 2] {
            let stop = Request::new(named, 20, Reliability::Nack, ChunkRanges::default());
            let stop = Transport::Request(stop);
            let mut stop = Chunk::of_transport(header.clone(), &stop);
            stop.header.extensions.request = Some(id);
            let stop = stop.stops().expect("a stop");
            net.with_router(|it, _| it.proxy.purge(&stop, &mut it.effects));
            left.push(net.router().proxy.store().len());
        }
        assert_eq!(left, [2, 1]);
    }
}
