//! What a fetch tells.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_packet::{NackReason, Name};

use crate::exchange::{ExchangeFailure, nack_text};
use crate::path::PathId;

/// What a [`super::Fetcher`] tells its program.
#[derive(Clone, Debug, PartialEq)]
pub enum FetchEvent {
    /// The name under which the segments are is known.
    Started {
        /// Without segment number.
        name: Name,
    },
    /// A segment's content. It counts against the bounds until this event is taken.
    Segment {
        /// Its number.
        number: u64,
        /// Where its content begins in the whole.
        offset: u64,
        /// Its content.
        content: Bytes,
    },
    /// A path's window changed.
    Window {
        /// Which path.
        path: PathId,
        /// When.
        at: Time,
        /// Segments.
        size: f64,
    },
    /// A round trip was measured.
    Rtt {
        /// Over which path.
        path: PathId,
        /// Of which segment.
        segment: u64,
        /// It.
        rtt: Duration,
        /// Smoothed.
        smoothed: Duration,
        /// Variation.
        variation: Duration,
        /// Time-out from now on.
        timeout: Duration,
    },
    /// How far it is.
    Progress(FetchStats),
    /// All segments were given to the program.
    Done(FetchStats),
    /// It came to an end before; segments given so far are good.
    Failed {
        /// Why.
        error: FetchError,
        /// How far it came.
        stats: FetchStats,
    },
}

/// Counters of a fetch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FetchStats {
    /// Since the first Interest for a segment.
    pub elapsed: Duration,
    /// Bytes of content received.
    pub bytes: u64,
    /// Segments received.
    pub segments: u64,
    /// Segments in the whole, as far as FinalBlockId has told.
    pub total_segments: Option<u64>,
    /// Interests for segments sent, first ones and repeated ones.
    pub interests: u64,
    /// Interests sent again.
    pub retransmissions: u64,
    /// Segments that came while they waited to be sent again.
    pub skipped_retransmissions: u64,
    /// Segments not answered in time.
    pub timeouts: u64,
    /// Nacks for segments.
    pub nacks: u64,
    /// Data with a congestion mark.
    pub marks: u64,
    /// Times that marks shrank the window.
    pub mark_decreases: u64,
    /// Times that losses shrank the window.
    pub loss_decreases: u64,
    /// Data that had come before or was not asked for.
    pub duplicates: u64,
    /// Data that verification refused.
    pub rejected: u64,
    /// Packets that are no valid Interest or Data, and Data of other names.
    pub unexpected: u64,
    /// Window in segments, of all paths together.
    pub window: f64,
    /// Smoothed round-trip time, of the path that has the shortest one.
    pub smoothed_rtt: Option<Duration>,
    /// Shortest, mean and longest round trip.
    pub rtt: Option<(Duration, Duration, Duration)>,
}

impl FetchStats {
    /// Content received in bits per second.
    pub fn goodput(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 {
            self.bytes as f64 * 8.0 / seconds
        } else {
            0.0
        }
    }
}

/// Why a segment could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentFailure {
    /// Not answered, asked for again as often as the options allow.
    #[error("it was not answered, asked for again {0} times")]
    NoAnswer(u32),
    /// A Nack that asking again does not help.
    #[error("the network answered with a Nack ({})", nack_text(*.0))]
    Nack(NackReason),
    /// No answer passed verification.
    #[error("its Data was refused: {0}")]
    Refused(String),
}

/// Why a fetch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Nobody told the versions of the content.
    #[error(
        "cannot find the versions of {name}: {failure}; is it served, and is there a route to it?"
    )]
    Discovery {
        /// Of what.
        name: Name,
        /// Why.
        failure: ExchangeFailure,
    },
    /// The answer to discovery is none.
    #[error("the answer to the search for versions of {name} is not valid: {reason}")]
    Metadata {
        /// Of what.
        name: Name,
        /// What is wrong with it.
        reason: String,
    },
    /// A segment that belongs to the content could not be had.
    #[error("cannot fetch segment {segment} of {name}: {failure}")]
    Segment {
        /// Of what.
        name: Name,
        /// Which.
        segment: u64,
        /// Why.
        failure: SegmentFailure,
    },
    /// A segment could not be had, and no Data told which one is the last.
    #[error(
        "cannot fetch segment {segment} of {name}: {failure}; no Data said which segment is the last"
    )]
    NoFinalBlock {
        /// Of what.
        name: Name,
        /// The first that could not be had.
        segment: u64,
        /// Why.
        failure: SegmentFailure,
    },
    /// The producer has gone over to another version.
    #[error("{fetched} is no longer served, {now} is; fetch it anew")]
    OtherVersion {
        /// What was fetched.
        fetched: Name,
        /// What there is now.
        now: Name,
    },
    /// FinalBlockId is lower than a segment that exists.
    #[error(
        "{name} contradicts itself: segment {said_by} says that {last} is the last segment, but there is {segment}"
    )]
    FinalBlock {
        /// Of what.
        name: Name,
        /// The segment with the FinalBlockId.
        said_by: u64,
        /// What it says.
        last: u64,
        /// A segment beyond it.
        segment: u64,
    },
    /// Segments of different sizes cannot be given to the program as they come.
    #[error(
        "segment {segment} of {name} has {size} bytes where {expected} were expected; fetch it with delivery in order"
    )]
    UnevenSegments {
        /// Of what.
        name: Name,
        /// Which.
        segment: u64,
        /// Its size.
        size: usize,
        /// The size of the others.
        expected: usize,
    },
    /// The producer's own negative answer (ContentType Nack).
    #[error("the producer refuses segment {segment} of {name}")]
    Refused {
        /// Of what.
        name: Name,
        /// Which.
        segment: u64,
    },
}
