//! The contract between a protocol and its driver: the simulator or the real event loop.
//!
//! A driver works in rounds:
//!
//! 1. pass in one or more inputs: [`Machine::handle_port`], [`Machine::handle_refusal`],
//!    [`Machine::handle_frames`], [`Machine::handle_timeout`];
//! 2. drain [`Machine::poll_transmit`], [`Machine::poll_event`] and [`Machine::poll_port_request`]
//!    until each returns `None`;
//! 3. read [`Machine::poll_timeout`] and wait until then or until the next input.
//!
//! Several frames may be passed in before one drain: batches make it fast.
//! `now` never goes back from one call to the next.

use core::time::Duration;

use crate::{OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time};

/// A protocol, or a whole node composed of protocols, as its driver sees it.
///
/// No method has a default: a machine that delegates to another cannot forget one.
pub trait Machine {
    /// An event for the program around the machine (never for the driver).
    type Event;

    /// A port came up, went down or changed.
    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent);

    /// The driver cannot open a port that [`PortRequest::Open`] requested. On success the port
    /// comes up with [`PortEvent::Up`] and its token instead.
    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal);

    /// Frames that arrived together on `port`, in order, none of them empty. Bad frames are counted
    /// and dropped inside; they are not errors to the driver. Frames have no other way in, not even
    /// in simulations: a machine that sees the whole batch first can prefetch for it.
    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]);

    /// A deadline returned by [`Machine::poll_timeout`] has passed. Calling it early or twice is
    /// harmless.
    fn handle_timeout(&mut self, now: Time);

    /// Appends the next frames to send to `buffer` and describes them; `None` if there is nothing
    /// to send. Appends at most `max_segments` frames, all to one port, all of `segment_size` bytes
    /// except the last: as many as the kernel's segmentation offload accepts in one call.
    ///
    /// A port reported as [`PortEvent::Blocked`] gets no frames until [`PortEvent::Writable`].
    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit>;

    /// The next event for the program around the machine.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// The next request about ports.
    fn poll_port_request(&mut self) -> Option<PortRequest>;

    /// When to call [`Machine::handle_timeout`], and why; `None` if only input can change the
    /// state. After that call it must lie after its `now`, even if work is left: a driver takes a
    /// deadline that does not move for a fault, and waits.
    fn poll_timeout(&self) -> Option<Deadline>;
}

/// A description of the frames that [`Machine::poll_transmit`] wrote to the driver's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The destination of all of them.
    pub port: PortId,
    /// Bytes appended to the buffer.
    pub size: usize,
    /// If set, the bytes are several frames of this size, the last one possibly shorter. If not,
    /// one frame; on a stream of self-delimiting packets, one or more of them, whole.
    pub segment_size: Option<usize>,
}

impl Transmit {
    /// Returns the frames within `written`, the bytes that this transmit appended.
    pub fn frames<'a>(&self, written: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        written.chunks(self.segment_size.unwrap_or(self.size).max(1))
    }
}

/// When to call [`Machine::handle_timeout`], and why: the reason goes to traces, never to logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The time to wait for.
    pub at: Time,
    /// A short description of what is due.
    pub reason: &'static str,
}

impl Deadline {
    /// Returns a deadline at `at` because of `reason`.
    pub const fn new(at: Time, reason: &'static str) -> Deadline {
        Deadline { at, reason }
    }

    /// Returns the earlier of two optional deadlines; the first one if they are equal.
    pub fn earlier(a: Option<Deadline>, b: Option<Deadline>) -> Option<Deadline> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.at < a.at { b } else { a }),
            (a, b) => a.or(b),
        }
    }

    /// How long from `now` until it is due; zero if it is.
    pub fn wait(&self, now: Time) -> Duration {
        self.at.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transmit_splits_into_its_frames() {
        let transmit = Transmit {
            port: PortId(1),
            size: 7,
            segment_size: Some(3),
        };
        let frames: Vec<&[u8]> = transmit.frames(b"abcdefg").collect();
        assert_eq!(frames, [&b"abc"[..], b"def", b"g"]);
        let whole = Transmit {
            port: PortId(1),
            size: 7,
            segment_size: None,
        };
        assert_eq!(whole.frames(b"abcdefg").count(), 1);
    }

    #[test]
    fn the_earlier_deadline_wins_and_ties_keep_the_first() {
        let early = Deadline::new(Time::from_millis(1), "a");
        let late = Deadline::new(Time::from_millis(2), "b");
        assert_eq!(Deadline::earlier(Some(late), Some(early)), Some(early));
        assert_eq!(Deadline::earlier(None, Some(late)), Some(late));
        let tie = Deadline::new(early.at, "c");
        assert_eq!(Deadline::earlier(Some(early), Some(tie)), Some(early));
    }
}
