//! Packet trains: what the path carries, known before start-up fills its queue.
//!
//! Start-up doubles its window each round, and sees the queue that it builds a round trip later: a
//! queue of less than a window's length overflows. So the head of each round is sent several times
//! faster than the rest. If it arrives more slowly than it was sent, by the neighbour's clock, the
//! path has spread it, and its rate on arrival is the path's (packet-train dispersion; paced
//! chirping does the same). It is known before the window exceeds that rate.

use core::time::Duration;

use whimbrel_core::Time;

/// Pace of a train, as a multiple of the pace of start-up. A train that is a quarter faster than
/// the path is spread visibly, so the path's rate is seen while the window is a third of what the
/// path holds.
const GAIN: f64 = 3.0;
/// Trains that arrive within a shorter time show the receiver's batches, or a path that is much
/// faster.
const SHORTEST_ARRIVAL: Duration = Duration::from_micros(300);
/// A train whose arrival takes longer than its sending, by more than this share allows, was spread
/// by the path.
const KEPT: f64 = 0.8;

/// The CSYN at one end of a train.
#[derive(Clone, Copy, Debug)]
struct End {
    number: u32,
    sent_at: Time,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    None,
    /// Begins with the next frame.
    Due {
        bytes: u64,
    },
    /// Awaits the CSYN of its first frame.
    First {
        left: u64,
    },
    Going {
        first: End,
        left: u64,
        sent: u64,
    },
    /// Awaits the CSYN of its last frame.
    Last {
        first: End,
        sent: u64,
    },
    Sent {
        first: End,
        last: End,
        sent: u64,
        // Bytes received and the neighbour's clock in the answer to `first`.
        arrived: Option<(u64, u64)>,
    },
}

/// The conclusion from a train that has arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shown {
    /// The path carries this many bytes per second.
    Rate(f64),
    /// The path carries at least the rate of the train, in bytes per second.
    More(f64),
    /// It arrived at once: too fast to measure.
    Fast,
    /// An end of the train is lost.
    Nothing,
}

#[derive(Debug, Default)]
pub(super) struct Train {
    state: State,
}

impl Train {
    /// Begins a train of this many bytes with the next frame.
    pub(super) fn begin(&mut self, bytes: u64) {
        self.state = State::Due { bytes };
    }

    pub(super) fn end(&mut self) {
        self.state = State::None;
    }

    pub(super) fn is_begun(&self) -> bool {
        !matches!(self.state, State::None)
    }

    /// Returns true until all of it has been sent.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::None | State::Sent { .. })
    }

    /// Returns the factor of the pace at which the next frame is sent.
    pub(super) fn gain(&self) -> f64 {
        match self.state {
            State::Due { .. } | State::First { .. } | State::Going { .. } => GAIN,
            State::None | State::Last { .. } | State::Sent { .. } => 1.0,
        }
    }

    /// Returns the bytes that may be in flight beyond the window, which are those of a train that
    /// is being sent: waiting for answers would stretch it.
    pub(super) fn room(&self) -> u64 {
        match self.state {
            State::Due { bytes } | State::First { left: bytes } => bytes,
            State::Going { left, sent, .. } => left + sent,
            State::None | State::Last { .. } | State::Sent { .. } => 0,
        }
    }

    /// Notes that a frame was sent. Returns true if a CSYN should go with it.
    pub(super) fn frame_sent(&mut self, len: u64) -> bool {
        match &mut self.state {
            State::Due { bytes } => {
                self.state = State::First { left: *bytes };
                true
            }
            State::First { .. } | State::Last { .. } => true,
            State::Going { first, left, sent } => {
                *sent += len;
                *left = left.saturating_sub(len);
                let is_last = *left == 0;
                if is_last {
                    self.state = State::Last {
                        first: *first,
                        sent: *sent,
                    };
                }
                is_last
            }
            State::None | State::Sent { .. } => false,
        }
    }

    /// Notes that CSYN `number` was sent, after all frames so far.
    pub(super) fn asked(&mut self, now: Time, number: u32) {
        let end = End {
            number,
            sent_at: now,
        };
        self.state = match self.state {
            State::First { left } => State::Going {
                first: end,
                left,
                sent: 0,
            },
            State::Last { first, sent } => State::Sent {
                first,
                last: end,
                sent,
                arrived: None,
            },
            state => state,
        };
    }

    /// Handles the answer to CSYN `number`: the neighbour had `received` bytes when it arrived, at
    /// `clock`. Returns what the train has shown if it has arrived or is lost.
    pub(super) fn answered(&mut self, number: u32, received: u64, clock: u64) -> Option<Shown> {
        let State::Sent {
            first,
            last,
            sent,
            arrived,
        } = &mut self.state
        else {
            return None;
        };
        if number == first.number {
            *arrived = Some((received, clock));
            return None;
        }
        if number != last.number {
            let is_lost = number.wrapping_sub(last.number) as i32 > 0;
            return is_lost.then_some(Shown::Nothing);
        }
        let Some((before, at)) = *arrived else {
            return Some(Shown::Nothing);
        };
        let arriving = Duration::from_nanos(clock.saturating_sub(at));
        if arriving < SHORTEST_ARRIVAL {
            return Some(Shown::Fast);
        }
        // No neighbour can have got it faster than it was sent.
        let got = received.saturating_sub(before).min(*sent) as f64;
        let (sending, arriving) = (
            last.sent_at.since(first.sent_at).as_secs_f64(),
            arriving.as_secs_f64(),
        );
        let rate = got / sending.max(arriving);
        match sending < KEPT * arriving {
            true => Some(Shown::Rate(rate)),
            false => Some(Shown::More(rate)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: u64 = 1_000;

    /// Sends a train of `frames` after its first, at one frame per `gap`; returns the numbers of
    /// its two CSYNs.
    fn send(train: &mut Train, frames: u64, gap: Duration) -> (u32, u32) {
        train.begin(frames * FRAME);
        assert!(train.gain() > 1.0 && train.room() >= frames * FRAME);
        assert!(train.frame_sent(FRAME));
        train.asked(Time::ZERO, 7);
        let mut now = Time::ZERO;
        for index in 1..=frames {
            now += gap;
            assert_eq!(train.frame_sent(FRAME), index == frames);
        }
        assert_eq!((train.gain(), train.room()), (1.0, 0));
        train.asked(now, 8);
        (7, 8)
    }

    #[test]
    fn a_train_that_is_spread_shows_the_rate_of_the_path() {
        let mut train = Train::default();
        let (first, last) = send(&mut train, 20, Duration::from_micros(100));
        assert_eq!(train.answered(first, 5_000, 1_000_000), None);
        let shown = train.answered(last, 25_000, 1_000_000 + 8_000_000);
        assert_eq!(shown, Some(Shown::Rate(2.5e6)));
    }

    #[test]
    fn a_train_that_arrives_as_it_was_sent_shows_no_limit() {
        let mut train = Train::default();
        let (first, last) = send(&mut train, 20, Duration::from_micros(400));
        train.answered(first, 5_000, 1_000_000);
        let shown = train.answered(last, 25_000, 1_000_000 + 8_000_000);
        assert_eq!(shown, Some(Shown::More(2.5e6)));
    }

    #[test]
    fn a_train_without_both_ends_or_too_short_to_measure_shows_nothing() {
        let mut train = Train::default();
        let (_, last) = send(&mut train, 20, Duration::ZERO);
        assert_eq!(
            train.answered(last, 25_000, 9_000_000),
            Some(Shown::Nothing)
        );
        let (first, last) = send(&mut train, 20, Duration::ZERO);
        train.answered(first, 5_000, 1_000_000);
        assert_eq!(
            train.answered(last + 1, 25_000, 9_000_000),
            Some(Shown::Nothing)
        );
        let (first, last) = send(&mut train, 20, Duration::ZERO);
        train.answered(first, 5_000, 1_000_000);
        assert_eq!(train.answered(last, 25_000, 1_200_000), Some(Shown::Fast));
    }

    proptest! {
        /// Whatever a neighbour answers: a rate is finite, and a train that was sent is over at the
        /// latest with the answer to a later CSYN.
        #[test]
        fn no_answers_hold_a_train_up(
            frames in 1u64..100,
            answers in proptest::collection::vec((0u32..12, any::<u64>(), any::<u64>()), 0..20),
        ) {
            let mut train = Train::default();
            send(&mut train, frames, Duration::from_micros(50));
            let later = [(100, 0, 0)];
            let mut shown = None;
            for (number, received, clock) in answers.into_iter().chain(later) {
                if let Some(Shown::Rate(rate) | Shown::More(rate)) = shown {
                    prop_assert!(rate.is_finite() && rate >= 0.0);
                }
                shown = shown.or(train.answered(number, received, clock));
            }
            prop_assert!(shown.is_some());
        }
    }
}
