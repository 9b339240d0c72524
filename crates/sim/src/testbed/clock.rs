//! A machine with a clock that deviates from the network's time.

use core::ops::{Deref, DerefMut};
use core::time::Duration;

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};

/// The rate of a right clock.
const MILLION: u128 = 1_000_000;

/// A clock with a steady rate since some moment. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    since: Time,
    shown: Time,
    // Nanoseconds that it advances per millisecond.
    rate: u32,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            since: Time::ZERO,
            shown: Time::ZERO,
            rate: 1_000_000,
        }
    }
}

impl Clock {
    /// Returns the reading at `now`.
    pub fn read(&self, now: Time) -> Time {
        let passed = now.since(self.since).as_nanos();
        self.shown + nanos(passed * u128::from(self.rate) / MILLION)
    }

    /// Returns the first moment with the given reading, or with a later one.
    pub fn when(&self, reading: Time) -> Time {
        if reading == Time::MAX {
            return reading;
        }
        let ahead = reading.since(self.shown).as_nanos();
        self.since + nanos((ahead * MILLION).div_ceil(u128::from(self.rate.max(1))))
    }

    /// Makes the clock jump `ahead` at `now` and then gain `drift_ppm` microseconds per second.
    pub fn set(&mut self, now: Time, ahead: Duration, drift_ppm: i32) {
        *self = Clock {
            shown: self.read(now) + ahead,
            since: now,
            rate: 1_000_000u32.saturating_add_signed(drift_ppm).max(1),
        };
    }
}

fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// A machine that gets the time from its own [`Clock`].
#[derive(Debug)]
pub struct Clocked<M> {
    machine: M,
    clock: Clock,
}

impl<M> Clocked<M> {
    /// Wraps a machine with a right clock.
    pub fn new(machine: M) -> Clocked<M> {
        Clocked::with_clock(machine, Clock::default())
    }

    /// Wraps a machine with this clock.
    pub fn with_clock(machine: M, clock: Clock) -> Clocked<M> {
        Clocked { machine, clock }
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the clock for changes. The driver must read the machine's deadline again.
    pub fn clock_mut(&mut self) -> &mut Clock {
        &mut self.clock
    }
}

impl<M> Deref for Clocked<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.machine
    }
}

impl<M> DerefMut for Clocked<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.machine
    }
}

impl<M: Machine> Machine for Clocked<M> {
    type Event = M::Event;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        self.machine.handle_port(self.clock.read(now), port, event);
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        let now = self.clock.read(now);
        self.machine.handle_refusal(now, token, refusal);
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        self.machine
            .handle_frames(self.clock.read(now), port, frames);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.machine.handle_timeout(self.clock.read(now));
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let now = self.clock.read(now);
        self.machine.poll_transmit(now, max_segments, buffer)
    }

    fn poll_event(&mut self) -> Option<M::Event> {
        self.machine.poll_event()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.machine.poll_port_request()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let Deadline { at, reason } = self.machine.poll_timeout()?;
        Some(Deadline::new(self.clock.when(at), reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_right_clock_shows_the_time() {
        let clock = Clock::default();
        for at in [Time::ZERO, Time::from_nanos(1), Time::from_secs(1 << 30)] {
            assert_eq!((clock.read(at), clock.when(at)), (at, at));
        }
        assert_eq!(clock.when(Time::MAX), Time::MAX);
    }

    proptest! {
        /// A deadline is met when it is due, to the resolution of the clock.
        #[test]
        fn a_clock_shows_a_reading_at_the_first_moment_that_it_says(
            sets in prop::collection::vec((0u64..10_000_000, 0u64..5_000_000, -400_000i32..400_000), 0..5),
            reading in 0u64..100_000_000,
        ) {
            let (mut clock, mut now) = (Clock::default(), Time::ZERO);
            for (after, ahead, drift_ppm) in sets {
                let before = clock.read(now);
                now += Duration::from_nanos(after);
                clock.set(now, Duration::from_nanos(ahead), drift_ppm);
                prop_assert!(clock.read(now) >= before);
            }
            let reading = Time::from_nanos(reading).max(clock.read(now));
            let at = clock.when(reading);
            prop_assert!(clock.read(at) >= reading);
            prop_assert!(at <= now || clock.read(at - Duration::from_nanos(1)) < reading);
        }
    }
}
