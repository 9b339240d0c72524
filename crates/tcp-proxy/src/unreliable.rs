//! Unreliable prefetching, [TCP/ICN §3.5]: "transmit an Interest only in the case when there is an
//! incoming ACK packet"; each Interest fetches one Data with as many segments as fit.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{RttEstimator, SeededRng, Time};

/// When a segment with payload, which carries an acknowledgement but no Interest, is accompanied by
/// one: the policies of [TCP/ICN §3.5.2], full duplex.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DuplexPolicy {
    /// For each segment that acknowledges more.
    EverySegment,
    /// For each segment that acknowledges more, with this probability.
    Probability(f64),
    /// After the acknowledgement number has advanced by so many bytes.
    Advance(u32),
}

impl Default for DuplexPolicy {
    /// After 2 segments of 1460 bytes: the rate at which a receiver that only receives acknowledges
    /// (RFC 9293 §3.8.6.3), so that both directions get what one direction would.
    fn default() -> DuplexPolicy {
        DuplexPolicy::Advance(2 * 1460)
    }
}

/// A text that is no [`DuplexPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("every, a probability such as 0.5, or a number of bytes such as 2920")]
pub struct NotAPolicy;

impl FromStr for DuplexPolicy {
    type Err = NotAPolicy;

    fn from_str(text: &str) -> Result<DuplexPolicy, NotAPolicy> {
        if text == "every" {
            return Ok(DuplexPolicy::EverySegment);
        }
        if let Ok(bytes) = text.parse::<u32>()
            && bytes > 0
        {
            return Ok(DuplexPolicy::Advance(bytes));
        }
        let probability = text.parse::<f64>().ok();
        let probability = probability.filter(|it| (0.0..=1.0).contains(it));
        probability.map(DuplexPolicy::Probability).ok_or(NotAPolicy)
    }
}

impl fmt::Display for DuplexPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DuplexPolicy::EverySegment => f.write_str("every"),
            // With its point, so that 1 is not read as a number of bytes.
            DuplexPolicy::Probability(probability) => write!(f, "{probability:?}"),
            DuplexPolicy::Advance(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// Wait before segments without an Interest are announced while acknowledgements are still to come,
/// before a round-trip time was measured.
const FIRST_PATIENCE: Duration = Duration::from_millis(50);
/// Bounds of that wait.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));

/// A segment alone waits for a second one while so many of its size are on their way: their
/// acknowledgements bring one within about this part of a round trip.
const COMPANY: u32 = 16;
/// The longest such wait: what a receiver's kernel waits for a second segment before it acknowledges
/// one (Linux's least; RFC 9293 §3.8.6.3 allows 500 ms).
const LONGEST_ALONE: Duration = Duration::from_millis(40);

/// Returns the Interests beyond the first for an acknowledgement of `advance` bytes, where the peer
/// holds `held` already. A kernel that merges segments before it handles them acknowledges up to 64 KiB
/// at once, for which TCP sends as much again, and twice that in slow start: one Data cannot carry it.
/// It is the other answer of [TCP/ICN §3.5] to a deficit of Interests, "artificially inflate the number
/// of transmitted Interests", for these acknowledgements only.
fn further_interests(advance: u32, room: usize, held: u8) -> u8 {
    let data = 2 * u64::from(advance) / (room.max(1) as u64);
    u8::try_from(data)
        .unwrap_or(u8::MAX)
        .saturating_sub(held)
        .min(crate::message::MAX_WAKE)
}

/// An Interest that waits for segments.
#[derive(Clone, Debug)]
struct Credit {
    /// Its name.
    name: Bytes,
    /// When it is not answered any more: the forwarders on the way will have forgotten it.
    until: Time,
}

/// The producer's side of one connection: the TCP queue and the Interest queue of
/// [TCP/ICN §3.5.1].
pub struct Unreliable {
    segments: VecDeque<Waiting>,
    bytes: usize,
    /// Until when a segment that is the only one here waits for a second one.
    alone_until: Option<Time>,
    credits: VecDeque<Credit>,
    /// From a segment to its acknowledgement; of one segment at a time.
    rtt: RttEstimator,
    timed: Option<(u64, Time)>,
    /// When the last Data was sent.
    sent_at: Option<Time>,
    /// The highest number sent in Data.
    sent: u64,
    /// The highest number that the other end has acknowledged.
    acknowledged: u64,
    /// When the last wake-up was sent, if no Interest has come since, and how many were.
    woken: Option<(Time, u32)>,
    /// The acknowledgement number at the last Interest, for [`DuplexPolicy`].
    duplex_mark: Option<u32>,
    /// The Interests that the peer held for this end when it sent its last Data.
    peer_holds: u8,
}

struct Waiting {
    sequence: u64,
    end: u64,
    packet: Bytes,
}

/// Bounds of a connection's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Bytes of segments.
    pub bytes: usize,
    /// Interests.
    pub credits: usize,
}

impl Default for Unreliable {
    fn default() -> Unreliable {
        let (min, max) = PATIENCE;
        Unreliable {
            segments: VecDeque::new(),
            bytes: 0,
            alone_until: None,
            credits: VecDeque::new(),
            rtt: RttEstimator::new(FIRST_PATIENCE, min, max),
            timed: None,
            sent_at: None,
            sent: 0,
            acknowledged: 0,
            woken: None,
            duplex_mark: None,
            peer_holds: 0,
        }
    }
}

impl Unreliable {
    /// Queues a segment. One that replaces a queued transmission of the same bytes takes its place.
    /// Returns false if the queue is full.
    pub fn push(&mut self, sequence: u64, end: u64, packet: Bytes, limits: &QueueLimits) -> bool {
        let same = |it: &&mut Waiting| it.sequence == sequence && it.end == end;
        if let Some(old) = self.segments.iter_mut().find(same) {
            self.bytes = self.bytes - old.packet.len() + packet.len();
            old.packet = packet;
            return true;
        }
        if self.bytes + packet.len() > limits.bytes {
            return false;
        }
        self.bytes += packet.len();
        self.segments.push_back(Waiting {
            sequence,
            end,
            packet,
        });
        true
    }

    /// The segment just queued need not leave at once. If it is alone and many others are on their way,
    /// it waits a little for a second one: a Data costs its name, an acknowledgement's, once for all its
    /// segments, and the proxy "determines how many TCP segments must be taken from the queue"
    /// ([TCP/ICN §3.5.1], step 4). A receiver that acknowledges every segment would otherwise get each
    /// in a Data of its own.
    pub fn await_company(&mut self, now: Time) {
        let (1, Some(segment)) = (self.segments.len(), self.segments.front()) else {
            return;
        };
        let on_the_way = self.sent.saturating_sub(self.acknowledged);
        let length = segment.end.saturating_sub(segment.sequence);
        let is_first_transmission = segment.sequence >= self.sent;
        if let Some(rtt) = self.rtt.smoothed()
            && is_first_transmission
            && on_the_way >= u64::from(COMPANY) * length
        {
            self.alone_until = Some(now + (rtt / COMPANY).min(LONGEST_ALONE));
        }
    }

    /// Returns when a segment that waits for a second one leaves alone.
    pub fn alone_until(&self) -> Option<Time> {
        self.alone_until.filter(|_| self.segments.len() == 1)
    }

    /// Queues an Interest: "Incoming Interests are stored in the Interest queue until their
    /// expiration" ([TCP/ICN §3.5.1], step 2).
    pub fn credit(&mut self, name: Bytes, until: Time, limits: &QueueLimits) {
        if self.credits.len() >= limits.credits {
            self.credits.pop_front();
        }
        self.credits.push_back(Credit { name, until });
        self.woken = None;
    }

    /// The path of the Interests held has failed: none of them is answered any more.
    pub fn renew(&mut self) {
        self.credits.clear();
    }

    /// The other end has acknowledged everything before `number`.
    pub fn acknowledged(&mut self, now: Time, number: u64) {
        self.acknowledged = self.acknowledged.max(number);
        if let Some((end, at)) = self.timed
            && number >= end
        {
            self.rtt.sample(now.since(at));
            self.timed = None;
        }
    }

    /// The name and the packets of the next Data, with at most `room` bytes of packets (one packet
    /// at least): the name "of the oldest non-expired Interest" ([TCP/ICN §3.5.1], step 5).
    pub fn next_data(&mut self, now: Time, room: usize, out: &mut Vec<Bytes>) -> Option<Bytes> {
        if !self.make_ready(now) {
            return None;
        }
        let credit = self.credits.pop_front()?;
        self.alone_until = None;
        let mut left = room;
        while let Some(first) = self.segments.front()
            && (out.is_empty() || first.packet.len() <= left)
            && let Some(segment) = self.segments.pop_front()
        {
            left = left.saturating_sub(segment.packet.len());
            self.bytes -= segment.packet.len();
            // A retransmission is not timed: its acknowledgement may be for the first one.
            if self.timed.is_none() && segment.sequence >= self.sent {
                self.timed = Some((segment.end, now));
            } else if segment.end <= self.sent {
                self.timed = None;
            }
            self.sent = self.sent.max(segment.end);
            out.push(segment.packet);
        }
        self.sent_at = Some(now);
        Some(credit.name)
    }

    fn forget_expired(&mut self, now: Time) {
        while self
            .credits
            .front()
            .is_some_and(|credit| credit.until <= now)
        {
            self.credits.pop_front();
        }
    }

    /// Returns how many Interests are held, for the peer to know: 255 if there are more.
    pub fn holds(&self) -> u8 {
        u8::try_from(self.credits.len()).unwrap_or(u8::MAX)
    }

    /// The peer has said how many Interests of this end it holds.
    pub fn peer_holds(&mut self, held: u8) {
        self.peer_holds = held;
    }

    /// Forgets what has expired; returns true if a Data can be made.
    pub fn make_ready(&mut self, now: Time) -> bool {
        self.forget_expired(now);
        if self.alone_until.is_some_and(|until| until <= now) {
            // Over for good: no deadline stays in the past.
            self.alone_until = None;
        }
        !self.segments.is_empty() && !self.credits.is_empty() && self.alone_until().is_none()
    }

    /// When to send a wake-up: at once if all is acknowledged, because no acknowledgement will bring
    /// an Interest (idle TCP sender, [TCP/ICN §3.5.2]). Otherwise after a round-trip time without
    /// one. Repeated at most every `repeat` while none comes.
    pub fn wake_at(&self, now: Time, repeat: Duration) -> Option<Time> {
        if self.segments.is_empty() || self.credits.iter().any(|credit| credit.until > now) {
            return None;
        }
        if let Some((at, count)) = self.woken {
            let first = self.rtt.timeout().min(repeat);
            return Some(at + first.saturating_mul(1 << count.min(10)).min(repeat));
        }
        match self.sent_at {
            Some(at) if self.sent > self.acknowledged => {
                let patience = self.rtt.smoothed().unwrap_or(FIRST_PATIENCE);
                Some(at + patience.clamp(PATIENCE.0, PATIENCE.1))
            }
            _ => Some(now),
        }
    }

    /// A wake-up is sent; returns the number of Interests to ask for, for Data of `room` bytes.
    pub fn wake(&mut self, now: Time, room: usize) -> u8 {
        let count = self.woken.map_or(0, |(_, count)| count + 1);
        self.woken = Some((now, count));
        let wanted = self.bytes.div_ceil(room.max(1)) + 1;
        u8::try_from(wanted)
            .unwrap_or(u8::MAX)
            .min(crate::message::MAX_WAKE)
    }

    /// A segment with this acknowledgement number leaves as an Interest. Returns how many others must
    /// go with it, where a Data has `room` bytes.
    pub fn note_interest(&mut self, acknowledgement: u32, room: usize) -> u8 {
        let advance = self.advance(acknowledgement);
        // One that was overtaken moves nothing back, or the next would seem to acknowledge more.
        if advance > 0 || self.duplex_mark.is_none() {
            self.duplex_mark = Some(acknowledgement);
        }
        further_interests(advance, room, self.peer_holds)
    }

    /// Returns by how many bytes this acknowledgement is beyond that of the last Interest.
    fn advance(&self, acknowledgement: u32) -> u32 {
        let advance = self
            .duplex_mark
            .map_or(0, |mark| acknowledgement.wrapping_sub(mark));
        // Older ones advance nothing.
        if advance > u32::MAX / 2 { 0 } else { advance }
    }

    /// A segment with payload and this acknowledgement number is queued: counts how many Interests
    /// must go with it, where a Data has `room` bytes.
    pub fn count_interests(
        &mut self,
        acknowledgement: u32,
        policy: DuplexPolicy,
        room: usize,
        rng: &mut SeededRng,
    ) -> u8 {
        self.duplex_mark.get_or_insert(acknowledgement);
        let advance = self.advance(acknowledgement);
        if advance == 0 {
            return 0;
        }
        let (advanced, wanted) = match policy {
            DuplexPolicy::EverySegment => (true, true),
            DuplexPolicy::Probability(probability) => (true, rng.chance(probability)),
            DuplexPolicy::Advance(bytes) => (advance >= bytes, advance >= bytes),
        };
        if advanced {
            self.duplex_mark = Some(acknowledgement);
        }
        match wanted {
            true => 1 + further_interests(advance, room, self.peer_holds),
            false => 0,
        }
    }

    /// Segments and Interests that wait, and bytes of the segments.
    pub fn waiting(&self) -> (usize, usize, usize) {
        (self.segments.len(), self.credits.len(), self.bytes)
    }

    /// Returns the smoothed time from a segment to its acknowledgement.
    pub fn round_trip(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits {
        bytes: 100,
        credits: 3,
    };

    fn packet(length: usize) -> Bytes {
        Bytes::from(vec![1; length])
    }

    fn name(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn the_oldest_interest_that_has_not_expired_names_the_data() {
        let mut queue = Unreliable::default();
        queue.credit(name("a"), Time::from_millis(10), &LIMITS);
        queue.credit(name("b"), Time::from_millis(20), &LIMITS);
        assert!(queue.push(0, 30, packet(30), &LIMITS));
        assert!(queue.push(30, 60, packet(30), &LIMITS));
        assert!(queue.push(60, 90, packet(30), &LIMITS));
        assert!(!queue.push(90, 120, packet(30), &LIMITS), "full");
        let mut packets = Vec::new();
        let data = queue.next_data(Time::from_millis(15), 70, &mut packets);
        assert_eq!((data, packets.len()), (Some(name("b")), 2));
        assert_eq!(queue.waiting(), (1, 0, 30));
    }

    #[test]
    fn a_segment_larger_than_the_room_goes_alone() {
        let mut queue = Unreliable::default();
        queue.credit(name("a"), Time::from_millis(10), &LIMITS);
        queue.push(0, 30, packet(30), &LIMITS);
        queue.push(30, 60, packet(30), &LIMITS);
        let mut packets = Vec::new();
        assert!(queue.next_data(Time::ZERO, 10, &mut packets).is_some());
        assert_eq!(packets.len(), 1);
    }

    #[test]
    fn an_idle_sender_wakes_the_peer_at_once_and_again() {
        let mut queue = Unreliable::default();
        let (now, repeat) = (Time::from_secs(9), Duration::from_millis(200));
        queue.credit(name("a"), Time::from_secs(4), &LIMITS);
        assert_eq!(queue.wake_at(now, repeat), None, "nothing to send");
        queue.push(0, 30, packet(30), &LIMITS);
        assert_eq!(queue.wake_at(now, repeat), Some(now));
        assert_eq!(queue.wake(now, 8000), 2);
        assert_eq!(queue.wake_at(now, repeat), Some(now + FIRST_PATIENCE));
        queue.wake(now, 8000);
        assert_eq!(queue.wake_at(now, repeat), Some(now + 2 * FIRST_PATIENCE));
        queue.credit(name("b"), now + repeat, &LIMITS);
        assert_eq!(queue.wake_at(now, repeat), None);
    }

    #[test]
    fn with_acknowledgements_to_come_it_waits_a_round_trip() {
        let mut queue = Unreliable::default();
        let repeat = Duration::from_millis(200);
        queue.credit(name("a"), Time::from_secs(4), &LIMITS);
        queue.push(0, 30, packet(30), &LIMITS);
        queue.next_data(Time::ZERO, 8000, &mut Vec::new());
        queue.acknowledged(Time::from_millis(80), 30);
        queue.credit(name("b"), Time::from_secs(4), &LIMITS);
        queue.push(30, 60, packet(30), &LIMITS);
        queue.next_data(Time::from_millis(100), 8000, &mut Vec::new());
        queue.push(60, 90, packet(30), &LIMITS);
        let at = queue.wake_at(Time::from_millis(101), repeat);
        assert_eq!(at, Some(Time::from_millis(180)));
    }

    /// A connection with a round trip of 160 ms, and `on_the_way` bytes unacknowledged.
    fn busy(on_the_way: u64) -> (Unreliable, Time) {
        let limits = QueueLimits {
            bytes: 1_000_000,
            credits: 10,
        };
        let mut queue = Unreliable::default();
        let mut packets = Vec::new();
        queue.credit(name("a"), Time::from_secs(4), &limits);
        queue.push(0, 30, packet(30), &limits);
        queue.next_data(Time::ZERO, 1_000_000, &mut packets);
        let now = Time::from_millis(160);
        queue.acknowledged(now, 30);
        queue.credit(name("b"), Time::from_secs(4), &limits);
        let end = 30 + on_the_way;
        queue.push(30, end, packet(on_the_way as usize), &limits);
        queue.next_data(now, 1_000_000, &mut packets);
        queue.credit(name("c"), Time::from_secs(4), &limits);
        queue.push(end, end + 30, packet(30), &limits);
        queue.await_company(now);
        (queue, now)
    }

    #[test]
    fn a_segment_alone_waits_for_a_second_one_while_many_are_on_their_way() {
        let (mut queue, now) = busy(16 * 30);
        let until = now + Duration::from_millis(10);
        assert_eq!(
            queue.alone_until(),
            Some(until),
            "a sixteenth of a round trip"
        );
        assert!(!queue.make_ready(now));
        let mut packets = Vec::new();
        assert_eq!(queue.next_data(now, 1000, &mut packets), None);
        assert!(queue.make_ready(until), "not longer");
        // The second one comes.
        let end = 30 + 17 * 30;
        queue.push(end, end + 30, packet(30), &LIMITS);
        assert!(queue.make_ready(now));
        assert!(queue.next_data(now, 1000, &mut packets).is_some());
        assert_eq!(packets.len(), 2);
        assert_eq!(queue.alone_until(), None);
    }

    #[test]
    fn a_segment_leaves_at_once_if_few_are_on_their_way_or_it_is_a_retransmission() {
        let (mut queue, now) = busy(15 * 30);
        assert!(queue.make_ready(now));
        let (mut queue, now) = busy(16 * 30);
        queue.next_data(now + LONGEST_ALONE, 1000, &mut Vec::new());
        queue.credit(name("d"), Time::from_secs(4), &LIMITS);
        queue.push(30, 60, packet(30), &LIMITS);
        queue.await_company(now);
        assert!(queue.make_ready(now));
    }

    #[test]
    fn a_retransmission_takes_the_place_of_the_same_bytes() {
        let mut queue = Unreliable::default();
        queue.push(0, 30, packet(30), &LIMITS);
        queue.push(0, 30, Bytes::from(vec![2; 30]), &LIMITS);
        assert_eq!(queue.waiting(), (1, 0, 30));
    }

    /// [TCP/ICN §3.5.2], full duplex connection.
    #[test]
    fn the_duplex_policies() {
        let run = |policy, acks: &[u32]| {
            let mut queue = Unreliable::default();
            queue.note_interest(1000, 100_000);
            let mut rng = SeededRng::new(1);
            let wants = |ack: &u32| {
                let wanted = queue.count_interests(*ack, policy, 100_000, &mut rng);
                usize::from(wanted)
            };
            acks.iter().map(wants).sum::<usize>()
        };
        let acks = [1000, 2000, 2000, 3000, 4000, 4000, 5000];
        assert_eq!(run(DuplexPolicy::EverySegment, &acks), 4);
        assert_eq!(run(DuplexPolicy::Advance(2000), &acks), 2);
        let many: Vec<u32> = (1..1000).map(|n| 1000 + n * 10).collect();
        let half = run(DuplexPolicy::Probability(0.5), &many);
        assert!((400..600).contains(&half), "{half}");
    }

    #[test]
    fn a_policy_is_read_as_it_is_written() {
        for (text, policy) in [
            ("every", DuplexPolicy::EverySegment),
            ("0.25", DuplexPolicy::Probability(0.25)),
            ("1.0", DuplexPolicy::Probability(1.0)),
            ("3000", DuplexPolicy::Advance(3000)),
        ] {
            assert_eq!(text.parse(), Ok(policy));
            assert_eq!(policy.to_string(), text);
        }
        for odd in ["", "2.5", "-1", "all", "nan"] {
            assert_eq!(odd.parse::<DuplexPolicy>(), Err(NotAPolicy), "{odd}");
        }
    }

    /// "In normal circumstances the number of TCP acknowledgements is usually smaller than the number
    /// of TCP data segments" ([TCP/ICN §3.5]); of a kernel that merges segments, much smaller.
    #[test]
    fn a_large_acknowledgement_brings_as_many_interests_as_what_follows_it_needs() {
        let mut queue = Unreliable::default();
        assert_eq!(queue.note_interest(u32::MAX - 100, 7600), 0, "the first");
        let next = |bytes: u32| (u32::MAX - 100).wrapping_add(bytes);
        assert_eq!(queue.note_interest(next(2 * 1460), 7600), 0, "two segments");
        assert_eq!(queue.note_interest(next(2 * 1460 + 65_536), 7600), 17);
        assert_eq!(queue.note_interest(next(100), 7600), 0, "an old one");
        queue.peer_holds(10);
        let interests = queue.note_interest(next(2 * 1460 + 2 * 65_536), 7600);
        assert_eq!(interests, 7, "the peer has ten of them");
    }
}
