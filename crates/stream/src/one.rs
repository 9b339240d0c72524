//! One stream: both directions and its deadlines.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::{RttEstimator, RttOptions, Time};

use crate::packet::{CutOff, StreamSegment};
use crate::receiving::{ReceivingEnd, SegmentArrival};
use crate::sending::SendingEnd;

/// Bytes that each side may send before it has heard of a limit.
pub(crate) const FIRST_LIMIT: u64 = 64 << 10;
/// After this time without a packet of the other side an answer is asked for.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// A message waits in routers for its next hop, so an early repetition only adds to what waits.
const RTT: RttOptions = RttOptions {
    granularity: Duration::from_millis(50),
    max_backoff: 64.0,
    ..RttOptions::rfc6298(
        Duration::from_secs(1),
        Duration::from_millis(300),
        Duration::from_secs(5),
    )
};

/// One end of a stream.
#[derive(Debug)]
pub(crate) struct StreamEnd {
    pub(crate) sending: SendingEnd,
    pub(crate) receiving: ReceivingEnd,
    /// The other side awaits a packet.
    answer_is_due: bool,
    /// This side wants an answer.
    asks: bool,
    heard: Time,
    ask_at: Time,
    patience: Duration,
    /// The program holds the stream no longer.
    pub(crate) is_released: bool,
    /// An opener's packets have carried a token.
    pub(crate) had_token: bool,
}

/// What a segment changed for the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct StreamChanges {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) is_false: bool,
}

impl StreamEnd {
    pub(crate) fn new(now: Time, patience: Duration) -> StreamEnd {
        StreamEnd {
            sending: SendingEnd::new(FIRST_LIMIT, RttEstimator::with_options(RTT)),
            receiving: ReceivingEnd::new(FIRST_LIMIT),
            answer_is_due: false,
            asks: false,
            heard: now,
            ask_at: now + KEEP_ALIVE,
            patience,
            is_released: false,
            had_token: false,
        }
    }

    /// Takes a segment of the other side.
    pub(crate) fn handle(&mut self, now: Time, segment: &StreamSegment) -> StreamChanges {
        self.heard = now;
        self.ask_at = now + KEEP_ALIVE;
        let arrival = self.receiving.handle(segment);
        if arrival == SegmentArrival::False {
            return StreamChanges {
                is_false: true,
                ..StreamChanges::default()
            };
        }
        let room = self.sending.room();
        self.sending.handle(now, segment);
        self.sending.note_waiting(now);
        self.answer_is_due |= segment.has_content() || segment.asks;
        if self.is_released {
            self.receiving.discard();
        }
        StreamChanges {
            readable: arrival == SegmentArrival::Readable,
            writable: self.sending.room() > room || self.sending.is_done(),
            is_false: false,
        }
    }

    /// Takes bytes to send, as many as there is room for. Returns their number.
    pub(crate) fn write(&mut self, now: Time, data: &Bytes) -> usize {
        let taken = data.len().min(self.sending.room());
        self.sending.write(data.slice(..taken));
        self.sending.note_waiting(now);
        taken
    }

    /// Grants the other side `window` bytes beyond what was read.
    pub(crate) fn grant(&mut self, window: u64) {
        self.answer_is_due |= self.receiving.grant(window);
    }

    /// Returns true if there is something to send.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.answer_is_due || self.asks || self.sending.wants_to_send()
    }

    /// Returns the next segment, if there is something to say.
    pub(crate) fn poll(&mut self, now: Time) -> Option<StreamSegment> {
        if !self.wants_to_send() {
            return None;
        }
        let mut segment = StreamSegment {
            asks: core::mem::take(&mut self.asks),
            ..StreamSegment::default()
        };
        self.receiving.tell(&mut segment);
        self.sending.fill(now, &mut segment);
        self.answer_is_due = false;
        Some(segment)
    }

    /// Returns the next deadline.
    pub(crate) fn deadline(&self) -> Time {
        let quiet = self.ask_at.min(self.heard + self.patience);
        self.sending.deadline().map_or(quiet, |at| at.min(quiet))
    }

    /// Handles a deadline. Returns the reason if the stream is over by it.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Option<CutOff> {
        if now >= self.heard + self.patience {
            return Some(CutOff::Silent);
        }
        self.asks |= self.sending.handle_timeout(now);
        if now >= self.ask_at {
            self.ask_at = now + KEEP_ALIVE;
            self.asks = true;
        }
        None
    }

    /// Returns true if neither side has anything left to say.
    pub(crate) fn is_over(&self) -> bool {
        let is_read = self.receiving.is_read();
        self.sending.is_done() && is_read && !self.answer_is_due
    }
}
