//! The sender of one direction: what is in flight, what is lost, how much may be in flight.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use whimbrel_core::{RttEstimator, Time};

use crate::packet::{MAX_DATA, StreamSegment};

/// Bound of the bytes that a program has written and that are not acknowledged.
pub(crate) const MAX_BUFFER: usize = 2 << 20;
/// Bound of the packets that are not acknowledged.
const MAX_FLIGHTS: usize = 1024;
/// Packets in flight at first: they are small next to what a hop queues.
const INITIAL_WINDOW: f64 = (8 * MAX_DATA) as f64;
/// A round trip is measured with one packet in flight.
const MIN_WINDOW: f64 = (2 * MAX_DATA) as f64;
/// Above it the receiver's limit rules.
const MAX_WINDOW: f64 = (64 << 20) as f64;
/// What is left of the window after a loss (RFC 9438 section 4.6).
const REDUCTION: f64 = 0.7;
/// The window stops growing at a queueing delay of the shortest round trip, or of this.
const QUEUE: Duration = Duration::from_millis(50);
/// Shortest time in which packets may overtake each other.
const MIN_REORDERING: Duration = Duration::from_millis(10);

/// Bytes that were sent and are not acknowledged in order.
#[derive(Debug)]
struct Flight {
    data: Bytes,
    ends: bool,
    sent: Time,
    /// It was sent more than once, so it measures no round trip (Karn).
    is_repeated: bool,
    state: FlightState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FlightState {
    UnderWay,
    Lost,
    /// It has arrived beyond a gap.
    Arrived,
}

/// Bytes that are to be sent, and those that were.
#[derive(Debug)]
pub(crate) struct SendingEnd {
    unsent: VecDeque<Bytes>,
    unsent_bytes: usize,
    /// Position of the first unsent byte.
    next: u64,
    acknowledged: u64,
    limit: u64,
    flights: BTreeMap<u64, Flight>,
    under_way: u64,
    /// The program has written its last byte.
    is_finished: bool,
    end_is_sent: bool,
    has_all: bool,
    window: f64,
    threshold: f64,
    /// A loss of a packet below this position belongs to a reduction that was made.
    recovery: u64,
    /// When the newest packet that has arrived was sent.
    newest_arrived: Time,
    pub(crate) rtt: RttEstimator,
    /// Since when an answer is due.
    waiting_since: Option<Time>,
    /// An opener without a token sends one packet, which is answered with one.
    has_introduction: bool,
    /// A timer has expired: one packet passes the window.
    probe: bool,
}

impl SendingEnd {
    pub(crate) fn new(limit: u64, rtt: RttEstimator) -> SendingEnd {
        SendingEnd {
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            next: 0,
            acknowledged: 0,
            limit,
            flights: BTreeMap::new(),
            under_way: 0,
            is_finished: false,
            end_is_sent: false,
            has_all: false,
            window: INITIAL_WINDOW,
            threshold: MAX_WINDOW,
            recovery: 0,
            newest_arrived: Time::ZERO,
            rtt,
            waiting_since: None,
            has_introduction: true,
            probe: false,
        }
    }

    /// Sends one packet until the other side answers.
    pub(crate) fn introduce(&mut self) {
        self.has_introduction = false;
    }

    /// Returns how many bytes may be written.
    pub(crate) fn room(&self) -> usize {
        let held = self.unsent_bytes as u64 + (self.next - self.acknowledged);
        match self.is_finished {
            true => 0,
            false => (MAX_BUFFER as u64).saturating_sub(held) as usize,
        }
    }

    /// Takes bytes, which must fit into the room.
    pub(crate) fn write(&mut self, data: Bytes) {
        self.unsent_bytes += data.len();
        if !data.is_empty() {
            self.unsent.push_back(data);
        }
    }

    pub(crate) fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Returns true once the program has written its last byte.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Returns true if the other end has everything that was written.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.unsent_bytes == 0 && self.acknowledged == self.next
    }

    /// Returns true once the other end has everything and knows that it ends.
    pub(crate) fn is_done(&self) -> bool {
        self.has_all
    }

    /// Returns true while an answer is due.
    pub(crate) fn waits(&self) -> bool {
        !self.flights.is_empty() || self.is_blocked()
    }

    /// Returns true if the receiver's limit alone stops it.
    fn is_blocked(&self) -> bool {
        self.flights.is_empty() && self.unsent_bytes > 0 && self.next >= self.limit
    }

    /// Sends everything that is in flight again, as if it had never left.
    pub(crate) fn restart(&mut self) {
        self.has_introduction = true;
        for flight in self.flights.values_mut() {
            flight.state = FlightState::Lost;
            flight.is_repeated = true;
        }
        self.under_way = 0;
        self.waiting_since = None;
    }

    /// Takes what a segment acknowledges. Returns true if something is new.
    pub(crate) fn handle(&mut self, now: Time, segment: &StreamSegment) -> bool {
        if segment.received > self.next || segment.has_all && !self.end_is_sent {
            return false;
        }
        self.has_introduction = true;
        let mut is_new = segment.limit > self.limit;
        self.limit = self.limit.max(segment.limit);
        let mut round_trip = None;
        let mut arrived_bytes = 0;
        let arrived: Vec<u64> = self
            .flights
            .iter()
            .filter(|(at, flight)| {
                let end = **at + flight.data.len() as u64;
                let in_order = end <= segment.received && (!flight.ends || segment.has_all);
                let beyond = |range: &core::ops::Range<u64>| {
                    range.start <= **at && end <= range.end && !flight.data.is_empty()
                };
                in_order
                    || flight.state != FlightState::Arrived && segment.ranges.iter().any(beyond)
            })
            .map(|(at, _)| *at)
            .collect();
        for at in arrived {
            let Some(flight) = self.flights.get_mut(&at) else {
                continue;
            };
            let length = flight.data.len() as u64;
            let end = at + length;
            if flight.state == FlightState::UnderWay {
                self.under_way -= length;
            }
            if flight.state != FlightState::Arrived {
                is_new = true;
                arrived_bytes += length;
                self.newest_arrived = self.newest_arrived.max(flight.sent);
                if !flight.is_repeated {
                    let sample = now.since(flight.sent);
                    round_trip =
                        Some(round_trip.map_or(sample, |least: Duration| least.min(sample)));
                }
            }
            flight.state = FlightState::Arrived;
            if end <= segment.received && (!flight.ends || segment.has_all) {
                self.flights.remove(&at);
            }
        }
        self.acknowledged = self.acknowledged.max(segment.received);
        self.has_all |= segment.has_all;
        if let Some(sample) = round_trip {
            self.rtt.sample(sample);
        }
        if is_new {
            self.rtt.end_back_off();
            self.waiting_since = self.waits().then_some(now);
            self.grow(arrived_bytes as f64);
        }
        self.lose_overtaken(now);
        is_new
    }

    /// Widens the window, unless a queue has formed.
    fn grow(&mut self, arrived: f64) {
        let is_queueing = match (self.rtt.least(), self.rtt.smoothed()) {
            (Some(least), Some(_)) => self.rtt.latest() > least + least.max(QUEUE),
            _ => false,
        };
        // A window that is not used says nothing about the path.
        let is_used = (self.under_way as f64 + arrived) * 2.0 >= self.window;
        if is_queueing || !is_used {
            return;
        }
        self.window += match self.window < self.threshold {
            true => arrived,
            false => MAX_DATA as f64 * arrived / self.window,
        };
        self.window = self.window.min(MAX_WINDOW);
    }

    fn reordering(&self) -> Option<Duration> {
        let smoothed = self.rtt.smoothed()?;
        Some(smoothed.max(self.rtt.latest()) + (smoothed / 4).max(MIN_REORDERING))
    }

    /// Declares lost what a later packet has overtaken for too long (RFC 8985 section 7.2).
    fn lose_overtaken(&mut self, now: Time) {
        let Some(patience) = self.reordering() else {
            return;
        };
        let (mut reduces, newest) = (false, self.newest_arrived);
        for (at, flight) in &mut self.flights {
            let is_overtaken = flight.state == FlightState::UnderWay
                && flight.sent < newest
                && now >= flight.sent + patience;
            if is_overtaken {
                flight.state = FlightState::Lost;
                self.under_way -= flight.data.len() as u64;
                reduces |= *at >= self.recovery;
            }
        }
        if reduces {
            self.recovery = self.next;
            self.window = (self.window * REDUCTION).max(MIN_WINDOW);
            self.threshold = self.window;
        }
    }

    /// Returns the next deadline, of an answer or of an overtaken packet.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let answer = self.waiting_since.map(|since| since + self.rtt.timeout());
        let overtaken = self.reordering().and_then(|patience| {
            let newest = self.newest_arrived;
            let flights = self.flights.values();
            let overtaken =
                flights.filter(|it| it.state == FlightState::UnderWay && it.sent < newest);
            Some(overtaken.map(|it| it.sent).min()? + patience)
        });
        match (answer, overtaken) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Handles a deadline. Returns true if the other end should be asked for an answer.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> bool {
        self.lose_overtaken(now);
        let is_due = self
            .waiting_since
            .is_some_and(|since| now >= since + self.rtt.timeout());
        if !is_due {
            return false;
        }
        if !self.waits() {
            self.waiting_since = None;
            return false;
        }
        self.rtt.back_off();
        self.waiting_since = Some(now);
        for flight in self.flights.values_mut() {
            if flight.state == FlightState::UnderWay {
                flight.state = FlightState::Lost;
            }
        }
        self.under_way = 0;
        self.threshold = (self.window * REDUCTION)
            .max(MIN_WINDOW)
            .min(self.threshold);
        self.window = MIN_WINDOW;
        self.recovery = self.next;
        // If everything has arrived beyond a gap or the limit stops it, an empty packet asks.
        let has_lost = self
            .flights
            .values()
            .any(|it| it.state == FlightState::Lost);
        self.probe = has_lost;
        !has_lost
    }

    /// Notes since when an answer is due.
    pub(crate) fn note_waiting(&mut self, now: Time) {
        match self.waits() {
            true => self.waiting_since = self.waiting_since.or(Some(now)),
            false => self.waiting_since = None,
        }
    }

    /// Returns true if there is something to send now.
    pub(crate) fn wants_to_send(&self) -> bool {
        let is_open = (self.under_way as f64) < self.window;
        let has_lost = || {
            self.flights
                .values()
                .any(|it| it.state == FlightState::Lost)
        };
        if self.probe {
            return true;
        }
        is_open && (self.has_new() || has_lost())
    }

    fn has_new(&self) -> bool {
        let has_bytes = self.unsent_bytes > 0 && self.next < self.limit;
        let has_end = self.unsent_bytes == 0 && self.is_finished && !self.end_is_sent;
        let most = if self.has_introduction {
            MAX_FLIGHTS
        } else {
            1
        };
        (has_bytes || has_end) && self.flights.len() < most
    }

    /// Fills in the next bytes, if any may be sent.
    pub(crate) fn fill(&mut self, now: Time, segment: &mut StreamSegment) {
        if !self.wants_to_send() {
            segment.position = self.next;
            return;
        }
        self.probe = false;
        let mut flights = self.flights.iter_mut();
        if let Some((at, flight)) = flights.find(|(_, it)| it.state == FlightState::Lost) {
            flight.state = FlightState::UnderWay;
            (flight.sent, flight.is_repeated) = (now, true);
            self.under_way += flight.data.len() as u64;
            segment.position = *at;
            (segment.ends, segment.data) = (flight.ends, flight.data.clone());
        } else {
            segment.position = self.next;
            if !self.has_new() {
                return;
            }
            let data = self.take_unsent();
            let length = data.len() as u64;
            let ends = self.is_finished && self.unsent_bytes == 0;
            self.end_is_sent |= ends;
            (segment.ends, segment.data) = (ends, data.clone());
            let flight = Flight {
                data,
                ends,
                sent: now,
                is_repeated: false,
                state: FlightState::UnderWay,
            };
            self.flights.insert(self.next, flight);
            self.next += length;
            self.under_way += length;
        }
        self.waiting_since.get_or_insert(now);
    }

    /// Takes the bytes of one packet.
    fn take_unsent(&mut self) -> Bytes {
        let max = (self.limit.saturating_sub(self.next)).min(MAX_DATA as u64) as usize;
        let mut packet = BytesMut::new();
        while let Some(first) = self.unsent.front_mut() {
            let room = max - packet.len();
            if room == 0 {
                break;
            }
            let part = match first.len() > room {
                true => first.split_to(room),
                false => self.unsent.pop_front().unwrap_or_default(),
            };
            self.unsent_bytes -= part.len();
            if packet.is_empty() && (part.len() == max || self.unsent.is_empty()) {
                return part;
            }
            packet.extend_from_slice(&part);
        }
        packet.freeze()
    }
}
