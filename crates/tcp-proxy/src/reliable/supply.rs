//! The producer of reliable prefetching.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use whimbrel_core::{RttEstimator, Time};

use super::{FIRST_WINDOW, MAX_WINDOW, TIMEOUT};
use crate::message::Queue;

/// Bounds of the time between two advertisements.
const PERIOD: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// The producer's side: the "TCP data queue" and the "Interest queue" of [TCP/ICN §3.4.1].
pub struct Supply {
    /// The number of the next segment.
    pub(super) next: u64,
    /// The last segments, in the order of their numbers up to `next`.
    kept: VecDeque<Kept>,
    bytes: usize,
    /// Interests that came before their segments, with their expiry.
    waiting: BTreeMap<u64, Time>,
    /// All numbers below were sent at least once.
    sent: u64,
    /// The last advertisement, and how many were sent since an Interest came.
    advertised: Option<(Time, u32)>,
    acknowledged: u64,
    /// From a segment to its acknowledgement.
    rtt: RttEstimator,
    /// The end of a segment that is timed, and when it came; of one at a time.
    timed: Option<(u64, Time)>,
    /// The end of the highest segment so far.
    highest: u64,
}

impl Default for Supply {
    fn default() -> Supply {
        let (first, min, max) = TIMEOUT;
        Supply {
            next: 0,
            kept: VecDeque::new(),
            bytes: 0,
            waiting: BTreeMap::new(),
            sent: 0,
            advertised: None,
            acknowledged: 0,
            rtt: RttEstimator::new(first, min, max),
            timed: None,
            highest: 0,
        }
    }
}

struct Kept {
    end: u64,
    packet: Bytes,
}

/// The answer to an Interest for a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Supplied {
    /// This packet.
    Packet(Bytes),
    /// It was acknowledged, or is forgotten: the consumer need not wait for it.
    Nothing,
    /// Later.
    Wait,
}

impl Supply {
    /// Numbers a segment and keeps it; returns its number if an Interest waits for it. Forgets the
    /// oldest ones beyond `limit` bytes.
    pub fn push(&mut self, now: Time, end: u64, packet: Bytes, limit: usize) -> Option<u64> {
        let number = self.next;
        self.next += 1;
        if end > self.highest {
            self.highest = end;
            self.timed.get_or_insert((end, now));
        } else {
            // TCP sends again: the acknowledgement may be for either.
            self.timed = None;
        }
        self.bytes += packet.len();
        self.kept.push_back(Kept { end, packet });
        while self.bytes > limit && self.kept.len() > 1 {
            let oldest = self.kept.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.packet.len());
        }
        let until = self.waiting.remove(&number)?;
        (until > now).then_some(number)
    }

    /// Answers an Interest for a number, which expires at `until`.
    pub fn fetch(&mut self, number: u64, until: Time) -> Supplied {
        if number >= self.next {
            if number < self.next + MAX_WINDOW {
                self.waiting.insert(number, until);
            }
            return Supplied::Wait;
        }
        self.sent = self.sent.max(number + 1);
        self.advertised = self.advertised.map(|(at, _)| (at, 0));
        let oldest = self.next - self.kept.len() as u64;
        let kept = number
            .checked_sub(oldest)
            .and_then(|at| self.kept.get(at as usize));
        kept.map_or(Supplied::Nothing, |kept| {
            Supplied::Packet(kept.packet.clone())
        })
    }

    /// The other end has acknowledged everything before `number`.
    pub fn acknowledged(&mut self, now: Time, number: u64) {
        if let Some((_, at)) = self.timed.take_if(|(end, _)| number >= *end) {
            self.rtt.sample(now.since(at));
        }
        self.acknowledged = self.acknowledged.max(number);
        while self
            .kept
            .front()
            .is_some_and(|kept| kept.end <= self.acknowledged)
        {
            let oldest = self.kept.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.packet.len());
        }
        self.sent = self.sent.max(self.next - self.kept.len() as u64);
    }

    /// The peer has forgotten what it received: what was sent to it once is not sent again, and TCP
    /// recovers what was lost with it.
    pub fn peer_restarted(&mut self) {
        let oldest = self.next - self.kept.len() as u64;
        for _ in oldest..self.sent {
            let sent = self.kept.pop_front();
            self.bytes -= sent.map_or(0, |sent| sent.packet.len());
        }
    }

    /// What is advertised. The window of the TCP sender is at least what it has in flight, which the
    /// proxy sees; a quarter more leaves it room to grow ([TCP/ICN §3.4.1], step 2).
    pub fn queue(&self) -> Queue {
        let flight = self.kept.len();
        let window = flight + (flight / 4).max(2);
        Queue {
            next: self.next,
            window: u16::try_from(window).unwrap_or(u16::MAX).max(FIRST_WINDOW),
        }
    }

    /// Segments that no Interest has asked for yet.
    pub fn backlog(&self) -> u64 {
        self.next - self.sent
    }

    /// Returns the smoothed time from a segment to its acknowledgement.
    pub fn round_trip(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// When to advertise: while segments wait, once per round trip; ever more seldom while no Interest
    /// comes.
    pub fn advertise_at(&self, now: Time) -> Option<Time> {
        if self.backlog() == 0 {
            return None;
        }
        let round_trip = self.round_trip().unwrap_or(PERIOD.1);
        let period = round_trip.clamp(PERIOD.0, PERIOD.1);
        Some(self.advertised.map_or(now, |(at, vain)| {
            let factor = 1 << vain.saturating_sub(1).min(5);
            at + (period * factor).min(PERIOD.1)
        }))
    }

    /// An advertisement is sent.
    pub fn advertised(&mut self, now: Time) {
        let vain = self
            .advertised
            .map_or(1, |(_, vain)| vain.saturating_add(1));
        self.advertised = Some((now, vain));
    }

    /// Segments kept, Interests that wait, bytes kept.
    pub fn waiting(&self) -> (usize, usize, usize) {
        (self.kept.len(), self.waiting.len(), self.bytes)
    }
}
