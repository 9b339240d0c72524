//! A running direction of a link.

use core::cmp::{Ordering, Reverse};
use core::time::Duration;
use std::collections::{BinaryHeap, VecDeque};

use whimbrel_core::{SeededRng, Time};

use super::codel::Codel;
use super::delivery_trace::TraceCursor;
use super::ecn::Markable;
use super::loss::LossProcess;
use super::{Change, DropReason, LinkSpec, LinkSpecError, LinkStats, Rate};

/// One direction of a link: frames enter at one end and leave at the other, later or not at all.
///
/// `now` never goes back from one call to the next. The outcome does not depend on how often the
/// link is polled: it catches up from event to event, each at its exact time. It allocates nothing
/// per frame once its queues have grown to their working size, except for the second copy of a
/// duplicated frame.
///
/// Memory: at most [`LinkSpec::queue`] frames wait, and rate x delay bounds the frames in flight.
/// With an unlimited rate, or while frames are held, only the senders bound them.
#[derive(Clone, Debug)]
pub struct LinkDirection<F> {
    spec: LinkSpec,
    // Future changes of `spec`, the next one last.
    changes: Vec<Change>,
    waiting: VecDeque<Waiting<F>>,
    transmitting: Option<Transmission<F>>,
    clock: TransmitClock,
    codel: Codel,
    in_order: VecDeque<InFlight<F>>,
    fallen_behind: BinaryHeap<Reverse<InFlight<F>>>,
    next_number: u64,
    latest_arrival: Time,
    newest_delivered: u64,
    down: bool,
    held: bool,
    random: Random,
    stats: LinkStats,
}

#[derive(Clone, Debug)]
struct Waiting<F> {
    frame: F,
    offered: Time,
}

#[derive(Clone, Debug)]
struct Transmission<F> {
    frame: F,
    start: Time,
    end: Time,
    // The link was set down at some time since the transmission started.
    doomed: bool,
}

/// The time that the transmissions so far take at the link's rate, to the fraction of a nanosecond.
#[derive(Clone, Debug, Default)]
struct TransmitClock {
    // The whole nanoseconds, and the fraction in units of 1/rate nanoseconds.
    end: Time,
    fraction: u64,
    cursor: TraceCursor,
}

#[derive(Clone, Debug)]
struct InFlight<F> {
    arrival: Time,
    // In order of transmission; copies of one frame have the same number.
    number: u64,
    frame: F,
}

impl<F> InFlight<F> {
    fn key(&self) -> (Time, u64) {
        (self.arrival, self.number)
    }
}

impl<F> PartialEq for InFlight<F> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<F> Eq for InFlight<F> {}

impl<F> PartialOrd for InFlight<F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> Ord for InFlight<F> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// A generator for each feature, so that the draws of one feature do not change those of the
/// others.
#[derive(Clone, Debug)]
struct Random {
    loss: LossProcess,
    jitter: SeededRng,
    reorder: SeededRng,
    duplicate: SeededRng,
    corrupt: SeededRng,
}

impl Random {
    fn new(mut rng: SeededRng) -> Random {
        let mut fork = || SeededRng::new(rng.next_word());
        Random {
            loss: LossProcess::new(fork()),
            jitter: fork(),
            reorder: fork(),
            duplicate: fork(),
            corrupt: fork(),
        }
    }
}

impl<F: AsRef<[u8]> + AsMut<[u8]> + Clone + Markable> LinkDirection<F> {
    /// Returns a link with the properties of `spec` and its own randomness.
    pub fn new(spec: &LinkSpec, rng: SeededRng) -> Result<LinkDirection<F>, LinkSpecError> {
        spec.validate()?;
        Ok(LinkDirection {
            spec: spec.clone(),
            changes: pending_changes(spec),
            waiting: VecDeque::new(),
            transmitting: None,
            clock: TransmitClock::default(),
            codel: Codel::default(),
            in_order: VecDeque::new(),
            fallen_behind: BinaryHeap::new(),
            next_number: 0,
            latest_arrival: Time::ZERO,
            newest_delivered: 0,
            down: false,
            held: false,
            random: Random::new(rng),
            stats: LinkStats::default(),
        })
    }

    /// Offers a frame to the link.
    pub fn enqueue(&mut self, now: Time, frame: F) {
        self.enqueue_reporting(now, frame, &mut |_, _, _| {});
    }

    /// Offers a frame to the link. Calls `dropped` with each frame that the link drops in this
    /// call, with the time and the reason.
    pub fn enqueue_reporting(
        &mut self,
        now: Time,
        frame: F,
        dropped: &mut impl FnMut(Time, DropReason, F),
    ) {
        self.advance(now, dropped);
        let length = frame.as_ref().len() as u64;
        self.stats.offered += 1;
        self.stats.offered_bytes += length;
        if self.down
            || self
                .spec
                .outages
                .iter()
                .any(|outage| outage.touches(now, now))
        {
            self.drop_frame(now, DropReason::Outage, frame, dropped);
        } else if self.transmitting.is_none() {
            self.transmit(now, now, frame, dropped);
        } else {
            let bytes = length + u64::from(self.spec.overhead);
            if !self
                .spec
                .queue
                .admits(self.waiting.len() as u64, self.stats.queue_bytes, bytes)
            {
                self.drop_frame(now, DropReason::Queue, frame, dropped);
                return;
            }
            self.waiting.push_back(Waiting {
                frame,
                offered: now,
            });
            self.stats.queue_frames += 1;
            self.stats.queue_bytes += bytes;
            self.stats.max_queue_frames = self.stats.max_queue_frames.max(self.stats.queue_frames);
            self.stats.max_queue_bytes = self.stats.max_queue_bytes.max(self.stats.queue_bytes);
        }
    }

    /// Returns the next frame that has arrived by `now`, in order of arrival.
    pub fn poll(&mut self, now: Time) -> Option<F> {
        self.poll_reporting(now, &mut |_, _, _| {})
    }

    /// Works as [`Self::poll`]. Calls `dropped` with each frame that the link drops in this call,
    /// with the time and the reason.
    pub fn poll_reporting(
        &mut self,
        now: Time,
        dropped: &mut impl FnMut(Time, DropReason, F),
    ) -> Option<F> {
        self.advance(now, dropped);
        if self.held || self.next_arrival()? > now {
            return None;
        }
        let behind_first = match (self.in_order.front(), self.fallen_behind.peek()) {
            (Some(in_order), Some(Reverse(behind))) => behind < in_order,
            (in_order, _) => in_order.is_none(),
        };
        let InFlight { number, frame, .. } = if behind_first {
            self.fallen_behind.pop()?.0
        } else {
            self.in_order.pop_front()?
        };
        self.stats.delivered += 1;
        self.stats.delivered_bytes += frame.as_ref().len() as u64;
        self.stats.reordered += u64::from(number < self.newest_delivered);
        self.newest_delivered = self.newest_delivered.max(number);
        Some(frame)
    }

    /// Returns the time of the next call to [`Self::poll`], or `None` if no frame is under way or
    /// frames are held. That call may deliver nothing and move the time instead.
    pub fn next_time(&self) -> Option<Time> {
        if self.held {
            return None;
        }
        let transmission = self
            .transmitting
            .as_ref()
            .map(|transmission| transmission.end);
        match (self.next_arrival(), transmission) {
            // Without reordering, nothing can arrive before the frames already in flight.
            (Some(arrival), _) if self.spec.reorder.is_none() => Some(arrival),
            (Some(arrival), Some(end)) => Some(arrival.min(end)),
            (arrival, end) => arrival.or(end),
        }
    }

    /// Returns the counters as of the last call to [`Self::enqueue`] or [`Self::poll`].
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    /// Returns the present properties, including changes so far.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Sets the link up or down independently of its schedule. A link that is down behaves as in an
    /// outage.
    pub fn set_up(&mut self, now: Time, up: bool) {
        self.advance(now, &mut |_, _, _| {});
        self.down = !up;
        if let (false, Some(transmission)) = (up, &mut self.transmitting) {
            transmission.doomed = true;
        }
    }

    /// Returns the last value given to [`Self::set_up`]; scheduled outages do not count.
    pub fn is_up(&self) -> bool {
        !self.down
    }

    /// Holds all arrivals until [`Self::release`]; everything else continues.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// Ends [`Self::hold`]. Frames whose time has passed arrive at the next [`Self::poll`].
    pub fn release(&mut self) {
        self.held = false;
    }

    /// Replaces the properties from now on. Waiting frames and frames in flight stay, and the
    /// present transmission ends when it would have. The change itself never reorders frames.
    pub fn set_spec(&mut self, now: Time, spec: &LinkSpec) -> Result<(), LinkSpecError> {
        spec.validate()?;
        self.advance(now, &mut |_, _, _| {});
        self.changes = pending_changes(spec);
        self.clock = TransmitClock {
            end: self.clock.end.min(now),
            ..TransmitClock::default()
        };
        self.spec = spec.clone();
        self.stats.queue_bytes = self
            .waiting
            .iter()
            .map(|waiting| self.wire_bytes(&waiting.frame))
            .sum();
        self.apply_changes(now);
        Ok(())
    }

    fn wire_bytes(&self, frame: &F) -> u64 {
        frame.as_ref().len() as u64 + u64::from(self.spec.overhead)
    }

    fn next_arrival(&self) -> Option<Time> {
        let in_order = self.in_order.front().map(|flight| flight.arrival);
        match self.fallen_behind.peek() {
            None => in_order,
            Some(Reverse(behind)) => {
                Some(in_order.map_or(behind.arrival, |at| at.min(behind.arrival)))
            }
        }
    }

    /// Advances transmissions to `now` without taking an arrival; `dropped` as in
    /// [`Self::poll_reporting`].
    pub fn catch_up(&mut self, now: Time, dropped: &mut impl FnMut(Time, DropReason, F)) {
        self.advance(now, dropped);
    }

    fn advance(&mut self, now: Time, dropped: &mut impl FnMut(Time, DropReason, F)) {
        while self
            .transmitting
            .as_ref()
            .is_some_and(|transmission| transmission.end <= now)
        {
            let Some(transmission) = self.transmitting.take() else {
                return;
            };
            let end = transmission.end;
            self.depart(transmission, dropped);
            while let Some(Waiting { mut frame, offered }) = self.waiting.pop_front() {
                self.stats.queue_frames -= 1;
                self.stats.queue_bytes -= self.wire_bytes(&frame);
                if self.shortens_queue(end, offered) {
                    if !frame.mark() {
                        self.drop_frame(end, DropReason::Queue, frame, dropped);
                        continue;
                    }
                    self.stats.marked += 1;
                }
                self.transmit(offered, end, frame, dropped);
                break;
            }
        }
    }

    /// Returns true if the frame that leaves the queue at `now` must be marked or dropped.
    #[inline]
    fn shortens_queue(&mut self, now: Time, offered: Time) -> bool {
        let Some(target) = self.spec.codel else {
            return false;
        };
        let is_last = self.waiting.is_empty();
        self.codel.acts(now, now.since(offered), target, is_last)
    }

    /// Starts to transmit `frame` at `start`. At an unlimited rate the transmission is complete on
    /// return.
    fn transmit(
        &mut self,
        offered: Time,
        start: Time,
        frame: F,
        dropped: &mut impl FnMut(Time, DropReason, F),
    ) {
        self.apply_changes(start);
        let bytes = self.wire_bytes(&frame);
        let rate = (&self.spec.rate, self.spec.burst);
        let end = self.clock.transmit(rate, offered, start, bytes);
        let waited = start.since(offered);
        self.stats.transmitted_bytes += bytes;
        self.stats.queueing_delay_total = self.stats.queueing_delay_total.saturating_add(waited);
        self.stats.queueing_delay_max = self.stats.queueing_delay_max.max(waited);
        let transmission = Transmission {
            frame,
            start,
            end,
            doomed: self.down,
        };
        if matches!(self.spec.rate, Rate::Unlimited) && self.waiting.is_empty() {
            self.depart(transmission, dropped);
        } else {
            self.transmitting = Some(transmission);
        }
    }

    /// Handles a frame whose last bit has left the transmitter.
    fn depart(
        &mut self,
        transmission: Transmission<F>,
        dropped: &mut impl FnMut(Time, DropReason, F),
    ) {
        let Transmission {
            frame,
            start,
            end,
            doomed,
        } = transmission;
        self.apply_changes(end);
        // A draw for every frame keeps an outage from changing the losses after it.
        let lost = self.random.loss.loses(&self.spec.loss);
        if doomed
            || self
                .spec
                .outages
                .iter()
                .any(|outage| outage.touches(start, end))
        {
            return self.drop_frame(end, DropReason::Outage, frame, dropped);
        }
        if lost {
            return self.drop_frame(end, DropReason::Loss, frame, dropped);
        }
        let largest = self.spec.largest_frame.unwrap_or(usize::MAX);
        if frame.as_ref().len() > largest {
            return self.drop_frame(end, DropReason::TooLarge, frame, dropped);
        }
        let (arrival, behind) = self.draw_arrival(end);
        self.next_number += 1;
        if self.spec.duplicate > 0.0 && self.random.duplicate.chance(self.spec.duplicate) {
            self.stats.duplicated += 1;
            self.launch(frame.clone(), arrival, behind);
        }
        self.launch(frame, arrival, behind);
    }

    /// Returns the arrival time of a frame that left at `end`, and whether later frames may
    /// overtake it.
    fn draw_arrival(&mut self, end: Time) -> (Time, bool) {
        let mut arrival = end + self.spec.delay;
        if !self.spec.jitter.is_zero() {
            let jitter = u64::try_from(self.spec.jitter.as_nanos())
                .unwrap_or(u64::MAX / 4)
                .min(u64::MAX / 4);
            let shift = Duration::from_nanos(self.random.jitter.below(2 * jitter + 1));
            arrival = ((arrival + shift) - self.spec.jitter).max(end);
        }
        match self.spec.reorder {
            Some(reorder) if self.random.reorder.chance(reorder.probability) => {
                (arrival + reorder.extra_delay, true)
            }
            _ => {
                self.latest_arrival = self.latest_arrival.max(arrival);
                (self.latest_arrival, false)
            }
        }
    }

    fn launch(&mut self, mut frame: F, arrival: Time, behind: bool) {
        if self.spec.corrupt > 0.0 && self.random.corrupt.chance(self.spec.corrupt) {
            let bytes = frame.as_mut();
            let bit = self.random.corrupt.below(bytes.len() as u64 * 8);
            if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
                self.stats.corrupted += 1;
            }
        }
        let flight = InFlight {
            arrival,
            number: self.next_number,
            frame,
        };
        if behind {
            self.fallen_behind.push(Reverse(flight));
        } else {
            self.in_order.push_back(flight);
        }
    }

    fn drop_frame(
        &mut self,
        at: Time,
        reason: DropReason,
        frame: F,
        dropped: &mut impl FnMut(Time, DropReason, F),
    ) {
        self.stats.count_drop(reason);
        dropped(at, reason, frame);
    }

    fn apply_changes(&mut self, now: Time) {
        while self
            .changes
            .last()
            .is_some_and(|change| Time::ZERO + change.at <= now)
        {
            let Some(change) = self.changes.pop() else {
                return;
            };
            if let Some(rate) = change.rate {
                self.spec.rate = rate;
                self.clock = TransmitClock {
                    end: self.clock.end.min(now),
                    ..TransmitClock::default()
                };
            }
            self.spec.delay = change.delay.unwrap_or(self.spec.delay);
            self.spec.loss = change.loss.unwrap_or(self.spec.loss);
        }
    }
}

/// Returns the changes of `spec`, the first one last.
fn pending_changes(spec: &LinkSpec) -> Vec<Change> {
    let mut changes = spec.changes.clone();
    changes.sort_by_key(|change| change.at);
    changes.reverse();
    changes
}

impl TransmitClock {
    /// Returns the departure time of a frame of `bytes` whose transmission starts at `start`: the
    /// end of the previous transmission, or later if the transmitter was idle. At a fixed rate a
    /// bucket of `burst` bytes fills while it is idle.
    fn transmit(
        &mut self,
        (rate, burst): (&Rate, u64),
        offered: Time,
        start: Time,
        bytes: u64,
    ) -> Time {
        self.end = match rate {
            Rate::Unlimited | Rate::TraceFile(_) => start,
            Rate::Trace(trace) => self.cursor.transmit(trace, offered, bytes).max(start),
            Rate::Fixed(bits_per_second) => {
                if start > self.end {
                    (self.end, self.fraction) = (start, 0);
                }
                let rate = (*bits_per_second).max(1);
                // This fits for frames below 2 GiB; beyond that the time saturates at 584 years.
                let work = bytes
                    .saturating_mul(8_000_000_000)
                    .saturating_add(self.fraction);
                self.fraction = work % rate;
                self.end += Duration::from_nanos(work / rate);
                let ahead = u128::from(burst) * 8_000_000_000 / u128::from(rate);
                let ahead = Duration::from_nanos(u64::try_from(ahead).unwrap_or(u64::MAX));
                return (self.end - ahead).max(start);
            }
        };
        self.end
    }
}
