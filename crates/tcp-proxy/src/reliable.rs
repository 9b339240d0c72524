//! Reliable prefetching, [TCP/ICN §3.4]: segments are numbered on their own; the consumer keeps a
//! window of Interests for the next numbers, and retransmits those that are lost.

mod supply;

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_core::{RttEstimator, Time};
use whimbrel_transport::ledger::{DenseLedger, Entry, Sent, Status};
use whimbrel_transport::path::{PathId, ReorderingWindow};

use crate::message::Queue;
pub use supply::{Supplied, Supply};

/// Interests at the start, and the least while the sender is active: as many as TCP's initial window
/// has segments ([TCP/ICN §4.2]).
const FIRST_WINDOW: u16 = 10;
/// Most Interests of a connection, and most segments held for their order.
const MAX_WINDOW: u64 = 1024;
/// Interests for segments that the peer is known to have: first timeout, least, longest. "An
/// Interest retransmission timeout ought to be smaller than TCP RTO at all times" ([TCP/ICN
/// §3.4.2]): Linux has 200 ms at least.
const TIMEOUT: (Duration, Duration, Duration) = (
    Duration::from_millis(300),
    Duration::from_millis(150),
    Duration::from_millis(4000),
);
/// Transmissions of an Interest; then TCP must recover the segment.
const MAX_TRANSMISSIONS: u32 = 6;
/// Later segments that arrive before an Interest counts as lost, as with TCP.
const REORDERING: u64 = 3;
/// The sender counts as idle after so long without a segment ("more than a few RTTs", [TCP/ICN
/// §3.4.2]), and at least the second of these.
const IDLE: (u32, Duration) = (4, Duration::from_millis(500));

/// The consumer's side.
pub struct Demand {
    /// The window in use; 0 until the peer's label is known.
    window: u16,
    /// The next number to request.
    next: u64,
    /// All numbers that may be pending are below.
    asked: u64,
    /// When the last segment arrived.
    arrival: Time,
    /// All numbers below were delivered or given up.
    delivered: u64,
    /// All numbers below exist.
    produced: u64,
    /// Since when the peer is known to have the segment.
    pending: DenseLedger<Option<Time>>,
    held: BTreeMap<u64, Vec<Bytes>>,
    rtt: RttEstimator,
    /// How long an Interest waits that later ones have overtaken: a link may recover its segment.
    reordering: ReorderingWindow,
    /// All numbers below have been overtaken.
    overtaken: u64,
    active_until: Time,
    lifetime: Duration,
    given_up: u64,
    retransmitted: u64,
}

impl Demand {
    /// Returns a consumer whose Interests live for `lifetime`.
    pub fn new(lifetime: Duration) -> Demand {
        let (first, min, max) = TIMEOUT;
        Demand {
            window: 0,
            next: 0,
            asked: 0,
            arrival: Time::ZERO,
            delivered: 0,
            produced: 0,
            pending: DenseLedger::dense(MAX_WINDOW as usize),
            held: BTreeMap::new(),
            rtt: RttEstimator::new(first, min, max),
            reordering: ReorderingWindow::default(),
            overtaken: 0,
            active_until: Time::ZERO,
            lifetime,
            given_up: 0,
            retransmitted: 0,
        }
    }

    /// The connection opens: the first Interests go out before there are segments.
    pub fn open(&mut self, now: Time) {
        self.window = self.window.max(FIRST_WINDOW);
        self.active(now);
    }

    fn active(&mut self, now: Time) {
        let (round_trips, least) = IDLE;
        let round_trip = self.rtt.smoothed().unwrap_or_default();
        self.active_until = now + round_trip.saturating_mul(round_trips).max(least);
    }

    /// The peer tells the state of its queue.
    pub fn advertised(&mut self, now: Time, queue: &Queue) {
        self.window = queue.window.clamp(FIRST_WINDOW, MAX_WINDOW as u16);
        // A peer that restarted begins at 0 again; one that is far ahead has forgotten the rest.
        if queue.next > self.produced.saturating_add(MAX_WINDOW) {
            self.skip_to(queue.next.saturating_sub(u64::from(self.window)));
        }
        for number in self.produced..queue.next {
            if let Some(known) = self.pending.data_mut(&number) {
                *known = Some(now);
            }
        }
        self.produced = self.produced.max(queue.next);
        self.active(now);
    }

    fn skip_to(&mut self, number: u64) {
        for old in self.delivered..self.asked.min(number) {
            self.pending.take(&old);
        }
        self.held.retain(|held, _| *held >= number);
        self.given_up += number - self.delivered;
        self.delivered = number;
        self.produced = self.produced.max(number);
        self.next = self.next.max(number);
        self.asked = self.asked.max(number);
    }

    /// Segment `number` has arrived; appends what can be delivered in order to `out`.
    pub fn arrived(
        &mut self,
        now: Time,
        number: u64,
        queue: &Queue,
        packets: Vec<Bytes>,
        out: &mut Vec<Bytes>,
    ) {
        self.advertised(now, queue);
        self.produced = self.produced.max(number + 1);
        self.arrival = now;
        if let Some(entry) = self.pending.take(&number) {
            self.judge(now, number, &entry);
            // Only an Interest for what existed when it left measures the path.
            if entry.sent.transmissions == 1 && entry.data == Some(entry.sent.at) {
                self.rtt.sample(now.since(entry.sent.at));
            }
        }
        if number >= self.delivered {
            self.held.entry(number).or_insert(packets);
        }
        self.overtaken = self.overtaken.max(number.saturating_sub(REORDERING - 1));
        self.lose_overtaken(now);
        self.deliver(out);
    }

    /// What an answer says about losses: a link has recovered what was overtaken, or it was lost.
    fn judge(&mut self, now: Time, number: u64, entry: &Entry<Option<Time>>) {
        let (Some(known), Some(least)) = (entry.data, self.rtt.least()) else {
            return;
        };
        let took = now.since(entry.sent.at.max(known));
        if entry.sent.transmissions == 1 {
            if number < self.overtaken {
                let late = took.saturating_sub(self.rtt.smoothed().unwrap_or_default());
                self.reordering.disproved(late, least);
            }
        } else if took >= least {
            self.reordering.confirmed(number, self.asked);
        }
    }

    /// Declares Interests lost that later ones have overtaken, once a link would have recovered them.
    fn lose_overtaken(&mut self, now: Time) {
        for earlier in self.delivered..self.overtaken {
            let Some(entry) = self.pending.get(&earlier) else {
                continue;
            };
            if self
                .overtaken_due(earlier, entry)
                .is_some_and(|due| due <= now)
            {
                self.pending.lose(&earlier, true);
            }
        }
    }

    /// When an Interest that later ones have overtaken is lost. What was sent again is behind all of
    /// these, and left to its timeout.
    fn overtaken_due(&self, number: u64, entry: &Entry<Option<Time>>) -> Option<Time> {
        let is_first = number < self.overtaken && entry.sent.transmissions == 1;
        let known = entry.data.filter(|_| is_first)?;
        let smoothed = self.rtt.smoothed().unwrap_or_default();
        let patience = match self.reordering.size() {
            Some(Duration::ZERO) => Duration::ZERO,
            Some(window) => smoothed + window,
            None => smoothed * 2,
        };
        Some(entry.sent.at.max(known) + patience)
    }

    fn deliver(&mut self, out: &mut Vec<Bytes>) {
        // From `next` on, what is not pending has yet to be requested.
        while self.delivered < self.next {
            if let Some(packets) = self.held.remove(&self.delivered) {
                out.extend(packets);
            } else if self.pending.get(&self.delivered).is_some() || self.delivered >= self.produced
            {
                break;
            }
            self.delivered += 1;
        }
    }

    /// The next number to send an Interest for.
    pub fn poll(&mut self, now: Time) -> Option<u64> {
        if let Some(number) = self
            .pending
            .first_lost(PathId::FIRST)
            .map(|(number, _)| *number)
        {
            self.retransmitted += 1;
            self.pending
                .send_again(&number, now, PathId::FIRST, 0, None);
            return Some(number);
        }
        loop {
            let exists = self.next < self.produced;
            let wanted = self.window > 0 && (exists || now < self.active_until);
            if !wanted
                || self.pending.len() as u64 >= u64::from(self.window)
                || self.next >= self.delivered + MAX_WINDOW
            {
                return None;
            }
            let number = self.next;
            self.next += 1;
            self.asked = self.asked.max(self.next);
            let sent = Sent::first(now, PathId::FIRST, 0, None);
            if !self.held.contains_key(&number)
                && self.pending.send(number, sent, exists.then_some(now))
            {
                return Some(number);
            }
        }
    }

    /// Time passes: Interests time out or expire. Appends to `out` what can be delivered because an
    /// earlier segment was given up.
    pub fn handle_timeout(&mut self, now: Time, out: &mut Vec<Bytes>) {
        self.lose_overtaken(now);
        for number in self.delivered..self.asked {
            let Some(entry) = self.pending.get(&number) else {
                continue;
            };
            let (at, transmissions) = (self.due(entry), entry.sent.transmissions);
            match entry.data {
                _ if entry.status != Status::InFlight || at > now => {}
                Some(_) if transmissions >= MAX_TRANSMISSIONS => {
                    self.pending.take(&number);
                    self.given_up += 1;
                }
                Some(_) => {
                    self.pending.lose(&number, true);
                }
                None => {
                    self.pending.take(&number);
                    self.next = self.next.min(number);
                }
            }
        }
        self.deliver(out);
    }

    /// When an Interest counts as lost: a timeout after its last transmission. The first transmission
    /// waits for as long as others arrive, because the segment may be behind them in a queue. One for
    /// a segment that need not exist yet waits for its lifetime.
    fn due(&self, entry: &Entry<Option<Time>>) -> Time {
        let sent = entry.sent;
        match entry.data {
            None => sent.at + self.lifetime,
            Some(known) if sent.transmissions == 1 => {
                sent.at.max(known).max(self.arrival) + self.rtt.timeout()
            }
            Some(_) => sent.at + backed_off(self.rtt.timeout(), &sent),
        }
    }

    /// When to call [`Demand::handle_timeout`]: for the first segment that is missing, or the Interest
    /// that was sent first.
    pub fn deadline(&self) -> Option<Time> {
        let oldest = self
            .pending
            .oldest(PathId::FIRST)
            .map(|(number, _)| *number);
        let of = |number: u64| Some((number, self.pending.get(&number)?));
        let due = [Some(self.delivered), oldest]
            .into_iter()
            .flatten()
            .filter_map(of);
        due.filter(|(_, entry)| entry.status == Status::InFlight)
            .map(|(number, entry)| {
                let due = self.due(entry);
                let overtaken = self.overtaken_due(number, entry);
                overtaken.map_or(due, |at| at.min(due))
            })
            .min()
    }

    /// Returns the window, Interests in flight, segments given up, Interests retransmitted.
    pub fn state(&self) -> (u16, usize, u64, u64) {
        (
            self.window,
            self.pending.in_flight(),
            self.given_up,
            self.retransmitted,
        )
    }
}

fn backed_off(timeout: Duration, sent: &Sent) -> Duration {
    let factor = 1 << sent.transmissions.saturating_sub(1).min(6);
    timeout.saturating_mul(factor).min(TIMEOUT.2)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;
    use whimbrel_core::SeededRng;

    fn packet(octet: u8) -> Bytes {
        Bytes::from(vec![octet; 10])
    }

    const LATER: Time = Time::from_secs(100);

    fn asked(demand: &mut Demand, now: Time) -> Vec<u64> {
        core::iter::from_fn(|| demand.poll(now)).collect()
    }

    #[test]
    fn interests_wait_for_segments_and_segments_for_interests() {
        let mut supply = Supply::default();
        assert_eq!(supply.fetch(0, LATER), Supplied::Wait);
        assert_eq!(supply.push(Time::ZERO, 10, packet(0), 1000), Some(0));
        assert_eq!(supply.push(Time::ZERO, 20, packet(1), 1000), None);
        assert_eq!(supply.fetch(1, LATER), Supplied::Packet(packet(1)));
        assert_eq!(supply.fetch(1, LATER), Supplied::Packet(packet(1)), "again");
        supply.acknowledged(Time::ZERO, 20);
        assert_eq!(supply.fetch(1, LATER), Supplied::Nothing);
        assert_eq!(supply.fetch(2, Time::from_millis(1)), Supplied::Wait);
        let late = Time::from_millis(2);
        assert_eq!(
            supply.push(late, 30, packet(2), 1000),
            None,
            "it has expired"
        );
    }

    #[test]
    fn a_backlog_is_advertised_once_per_round_trip() {
        let mut supply = Supply::default();
        assert_eq!(supply.advertise_at(Time::ZERO), None);
        supply.push(Time::ZERO, 10, packet(0), 1000);
        assert_eq!(supply.advertise_at(Time::ZERO), Some(Time::ZERO));
        supply.advertised(Time::ZERO);
        let at = supply.advertise_at(Time::ZERO);
        assert_eq!(at, Some(Time::from_millis(200)), "none is measured");
        supply.fetch(0, LATER);
        assert_eq!(supply.advertise_at(Time::ZERO), None);
        let now = Time::from_millis(40);
        supply.acknowledged(now, 10);
        supply.push(now, 20, packet(1), 1000);
        supply.fetch(0, LATER);
        let mut at = now;
        for next in [80, 160, 320, 520] {
            assert_eq!(supply.advertise_at(at), Some(at));
            supply.advertised(at);
            at = Time::from_millis(next);
        }
    }

    #[test]
    fn an_idle_sender_gets_no_interests_until_it_advertises() {
        let mut demand = Demand::new(Duration::from_secs(2));
        assert_eq!(
            asked(&mut demand, Time::ZERO),
            Vec::<u64>::new(),
            "not open"
        );
        demand.open(Time::ZERO);
        assert_eq!(asked(&mut demand, Time::ZERO).len(), 10);
        let later = Time::from_secs(3);
        demand.handle_timeout(later, &mut Vec::new());
        assert_eq!(asked(&mut demand, later), Vec::<u64>::new());
        demand.advertised(later, &Queue { next: 2, window: 3 });
        let numbers = asked(&mut demand, later);
        assert_eq!(numbers.first(), Some(&0));
        assert_eq!(numbers.len(), 10);
    }

    /// What goes over the path between a consumer and a producer.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Air {
        Interest(u64),
        Data(u64, Vec<Bytes>, u64, u16),
        Advertisement(u64, u16),
    }

    proptest! {
        /// Both halves over a path that loses and reorders: segments are delivered once and in
        /// order, and without losses all of them; no timer is due for ever.
        #[test]
        fn segments_come_once_and_in_order(
            waits in prop::collection::vec(0u64..700, 1..120),
            loss in 0u64..40,
            jitter in 0u64..60,
            seed in any::<u64>(),
        ) {
            let mut rng = SeededRng::new(seed);
            let (mut supply, mut demand) = (Supply::default(), Demand::new(Duration::from_secs(2)));
            let (mut air, mut order) = (BTreeMap::new(), 0u64);
            let (mut now, mut out) = (Time::ZERO, Vec::new());
            let mut produced = VecDeque::new();
            let mut at = Time::ZERO;
            for wait in &waits {
                at += Duration::from_millis(if *wait > 600 { *wait * 10 } else { *wait / 20 });
                produced.push_back(at);
            }
            demand.open(now);
            let mut rounds = 0;
            loop {
                let mut sent = Vec::new();
                while produced.front().is_some_and(|at| *at <= now) {
                    produced.pop_front();
                    let number = supply.next;
                    let packet = Bytes::copy_from_slice(&number.to_be_bytes());
                    if supply.push(now, number + 1, packet.clone(), 1 << 20).is_some() {
                        supply.fetch(number, now);
                        let queue = supply.queue();
                        sent.push(Air::Data(number, vec![packet], queue.next, queue.window));
                    }
                }
                if supply.advertise_at(now).is_some_and(|at| at <= now) {
                    supply.advertised(now);
                    let queue = supply.queue();
                    sent.push(Air::Advertisement(queue.next, queue.window));
                }
                demand.handle_timeout(now, &mut out);
                while let Some(number) = demand.poll(now) {
                    sent.push(Air::Interest(number));
                }
                for what in sent {
                    if rng.below(100) >= loss {
                        order += 1;
                        let delay = Duration::from_millis(5 + rng.below(jitter + 1));
                        air.insert((now + delay, order), what);
                    }
                }
                let arrival = air.first_key_value().map(|((at, _), _)| *at);
                let next = [arrival, produced.front().copied(), demand.deadline(), supply.advertise_at(now)];
                let Some(next) = next.into_iter().flatten().min() else {
                    break;
                };
                prop_assert!(next > now || arrival == Some(next), "a timer is due for ever");
                now = now.max(next);
                // TCP acknowledges, at the latest after it has sent again what was given up.
                supply.acknowledged(now, demand.delivered);
                rounds += 1;
                prop_assert!(rounds < 20_000);
                if arrival == Some(now)
                    && let Some((_, what)) = air.pop_first()
                {
                    match what {
                        Air::Interest(number) => {
                            let packets = match supply.fetch(number, now + Duration::from_secs(2)) {
                                Supplied::Packet(packet) => vec![packet],
                                Supplied::Nothing => Vec::new(),
                                Supplied::Wait => continue,
                            };
                            let queue = supply.queue();
                            order += 1;
                            let data = Air::Data(number, packets, queue.next, queue.window);
                            air.insert((now + Duration::from_millis(5), order), data);
                        }
                        Air::Data(number, packets, next, window) => {
                            demand.arrived(now, number, &Queue { next, window }, packets, &mut out);
                        }
                        Air::Advertisement(next, window) => {
                            demand.advertised(now, &Queue { next, window });
                        }
                    }
                }
            }
            prop_assert!(out.windows(2).all(|pair| pair[0] < pair[1]), "out of order");
            // The last Data may be lost before the consumer knows that it exists: TCP sends it again.
            let settled = out.len() as u64 + demand.state().2;
            prop_assert!(settled <= waits.len() as u64);
            prop_assert!(loss > 0 || out.len() == waits.len());
        }
    }

    /// Interests expire one after the other, and none of them blocks the window for ever.
    #[test]
    fn a_sender_that_is_idle_again_and_again_always_goes_on() {
        let mut demand = Demand::new(Duration::from_secs(2));
        let (mut now, mut produced, mut out) = (Time::ZERO, 0, Vec::new());
        demand.open(now);
        for round in 0..50 {
            let numbers = asked(&mut demand, now);
            assert!(numbers.contains(&produced), "round {round}: {numbers:?}");
            let queue = Queue {
                next: produced + 1,
                window: 10,
            };
            demand.arrived(now, produced, &queue, vec![packet(1)], &mut out);
            produced += 1;
            asked(&mut demand, now + Duration::from_millis(300));
            let end = now + Duration::from_secs(30);
            while let Some(at) = demand.deadline().filter(|at| *at < end) {
                now = now.max(at);
                demand.handle_timeout(now, &mut out);
                asked(&mut demand, now);
            }
            now = end;
            let queue = Queue {
                next: produced + 1,
                window: 10,
            };
            demand.advertised(now, &queue);
        }
        assert_eq!(out.len() as u64, produced);
    }

    #[test]
    fn a_segment_behind_others_in_a_queue_is_not_lost() {
        let mut demand = Demand::new(Duration::from_secs(20));
        demand.advertised(
            Time::ZERO,
            &Queue {
                next: 10,
                window: 10,
            },
        );
        assert_eq!(asked(&mut demand, Time::ZERO).len(), 10);
        let mut out = Vec::new();
        for number in 0..10 {
            // The last of them comes 2 s after its Interest.
            let now = Time::from_millis(200 * (number + 1));
            demand.handle_timeout(now, &mut out);
            let queue = Queue {
                next: 10,
                window: 10,
            };
            demand.arrived(now, number, &queue, vec![packet(1)], &mut out);
        }
        assert_eq!((out.len(), demand.state().3), (10, 0));
    }

    #[test]
    fn a_lost_segment_is_asked_for_again_and_delivery_keeps_the_order() {
        let mut demand = Demand::new(Duration::from_secs(2));
        demand.open(Time::ZERO);
        assert_eq!(asked(&mut demand, Time::ZERO).len(), 10);
        let mut out = Vec::new();
        let queue = Queue {
            next: 5,
            window: 10,
        };
        let now = Time::from_millis(50);
        for number in [0, 2, 3] {
            demand.arrived(now, number, &queue, vec![packet(number as u8)], &mut out);
        }
        assert_eq!(out, [packet(0)]);
        assert!(!asked(&mut demand, now).contains(&1), "could be reordering");
        demand.arrived(now, 4, &queue, vec![packet(4)], &mut out);
        assert_eq!(asked(&mut demand, now).first(), Some(&1));
        demand.arrived(now, 1, &queue, vec![packet(1)], &mut out);
        assert_eq!(out, [0, 1, 2, 3, 4].map(packet));
    }

    #[test]
    fn a_segment_that_a_link_recovers_is_not_asked_for_twice() {
        let mut demand = Demand::new(Duration::from_secs(2));
        let queue = Queue {
            next: 40,
            window: 20,
        };
        demand.advertised(Time::ZERO, &queue);
        assert_eq!(asked(&mut demand, Time::ZERO).len(), 20);
        let mut out = Vec::new();
        let mut arrive = |demand: &mut Demand, at: u64, number: u64| {
            let now = Time::from_millis(at);
            demand.arrived(now, number, &queue, vec![packet(1)], &mut out);
            asked(demand, now)
        };
        arrive(&mut demand, 100, 0);
        for (at, number) in [(101, 2), (102, 3), (103, 4), (104, 5)] {
            assert!(!arrive(&mut demand, at, number).contains(&1));
        }
        arrive(&mut demand, 190, 1);
        assert_eq!(demand.state().3, 0, "none was repeated");
        // A segment that is lost is asked for again when a link would have recovered it.
        for number in 7..11 {
            assert!(!arrive(&mut demand, 191, number).contains(&6));
        }
        assert!(arrive(&mut demand, 300, 11).contains(&6));
    }

    #[test]
    fn a_segment_that_never_comes_is_given_up() {
        let mut demand = Demand::new(Duration::from_secs(2));
        demand.open(Time::ZERO);
        asked(&mut demand, Time::ZERO);
        let (mut out, mut now) = (Vec::new(), Time::ZERO);
        let queue = Queue {
            next: 2,
            window: 10,
        };
        demand.arrived(now, 1, &queue, vec![packet(1)], &mut out);
        let mut sent = 1;
        while let Some(at) = demand.deadline().filter(|_| out.is_empty()) {
            now = at;
            demand.handle_timeout(now, &mut out);
            sent += asked(&mut demand, now)
                .iter()
                .filter(|number| **number == 0)
                .count();
        }
        assert_eq!((out, sent), (vec![packet(1)], MAX_TRANSMISSIONS as usize));
    }
}
