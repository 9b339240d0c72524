//! Events, counters and errors of a fetch.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_packet::{NackReason, Name};

use crate::exchange::{ExchangeFailure, nack_text};
use crate::path::{PathId, PathStats, PathTag};

/// An event of a [`super::Fetcher`].
#[derive(Clone, Debug, PartialEq)]
pub enum FetchEvent {
    /// The name of the segments is known.
    Started {
        /// Without segment number.
        name: Name,
    },
    /// A segment's content. It counts against the bounds until this event is polled.
    Segment {
        /// Its number.
        number: u64,
        /// Offset of its content in the whole.
        offset: u64,
        /// Its content.
        content: Bytes,
    },
    /// A path is used from now on.
    PathUsed {
        /// The path.
        path: PathId,
        /// Its tag.
        tag: PathTag,
    },
    /// A path is not used any more.
    PathLeft {
        /// Its tag.
        tag: PathTag,
        /// Its counters.
        stats: PathStats,
        /// The reason.
        reason: PathLeft,
    },
    /// A path's window changed.
    Window {
        /// The path.
        path: PathId,
        /// When.
        at: Time,
        /// Segments.
        size: f64,
    },
    /// A round trip was measured.
    Rtt {
        /// The path.
        path: PathId,
        /// The segment.
        segment: u64,
        /// The round trip.
        rtt: Duration,
        /// Smoothed.
        smoothed: Duration,
        /// Variation.
        variation: Duration,
        /// The resulting timeout.
        timeout: Duration,
    },
    /// Progress so far.
    Progress(FetchStats),
    /// All segments have been delivered.
    Done(FetchStats),
    /// The fetch failed; segments delivered so far are valid.
    Failed {
        /// The reason.
        error: FetchError,
        /// Progress so far.
        stats: FetchStats,
    },
}

/// Why a path is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathLeft {
    /// It makes room for another one.
    Replaced,
    /// It did not answer, or a router refused an Interest on it.
    Failed,
}

impl PathLeft {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            PathLeft::Replaced => "replaced",
            PathLeft::Failed => "failed",
        }
    }
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
    /// Segments of the whole, if a FinalBlockId is known.
    pub total_segments: Option<u64>,
    /// Interests sent for segments, including retransmissions.
    pub interests: u64,
    /// Interests retransmitted.
    pub retransmissions: u64,
    /// Segments that arrived while they waited for retransmission.
    pub skipped_retransmissions: u64,
    /// Segments that timed out.
    pub timeouts: u64,
    /// Nacks for segments.
    pub nacks: u64,
    /// Data from caches and aggregated Interests, as far as routers say so (to Interests with a path tag).
    pub intermediate: u64,
    /// Data with a congestion mark.
    pub marks: u64,
    /// Decreases of the window because of marks.
    pub mark_decreases: u64,
    /// Decreases of the window because of losses.
    pub loss_decreases: u64,
    /// Of these, decreases that late Data have undone.
    pub undone_decreases: u64,
    /// Data that arrived before or was not requested.
    pub duplicates: u64,
    /// Data that verification refused.
    pub rejected: u64,
    /// Packets that are not a valid Interest or Data, and Data of other names.
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

/// Why a segment could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentFailure {
    /// No answer, although retransmitted as often as the options allow.
    #[error("no answer, after {0} retransmissions")]
    NoAnswer(u32),
    /// A Nack for which a retransmission is useless.
    #[error("the network answered with a Nack ({})", nack_text(*.0))]
    Nack(NackReason),
    /// No answer passed verification.
    #[error("its Data was refused: {0}")]
    Refused(String),
}

/// Why a fetch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Discovery failed.
    #[error(
        "cannot find the versions of {name}: {failure}; check that it is served and that a route leads to it"
    )]
    Discovery {
        /// The name.
        name: Name,
        /// The reason.
        failure: ExchangeFailure,
    },
    /// The answer to discovery is invalid.
    #[error("the answer to the discovery of {name} is invalid: {reason}")]
    Metadata {
        /// The name.
        name: Name,
        /// What is wrong with it.
        reason: String,
    },
    /// A segment of the content could not be fetched.
    #[error("cannot fetch segment {segment} of {name}: {failure}")]
    Segment {
        /// The name.
        name: Name,
        /// The segment.
        segment: u64,
        /// The reason.
        failure: SegmentFailure,
    },
    /// A segment could not be fetched, and no Data has named the last one.
    #[error("cannot fetch segment {segment} of {name}: {failure}; no Data named the last segment")]
    NoFinalBlock {
        /// The name.
        name: Name,
        /// The first segment that could not be fetched.
        segment: u64,
        /// The reason.
        failure: SegmentFailure,
    },
    /// The producer has switched to another version.
    #[error("{fetched} is no longer served, only {now}; fetch again")]
    OtherVersion {
        /// The version being fetched.
        fetched: Name,
        /// The current version.
        now: Name,
    },
    /// FinalBlockId is lower than a segment that exists.
    #[error(
        "{name} is inconsistent: segment {said_by} names {last} as the last segment, but segment {segment} exists"
    )]
    FinalBlock {
        /// The name.
        name: Name,
        /// The segment with the FinalBlockId.
        said_by: u64,
        /// Its value.
        last: u64,
        /// A segment beyond it.
        segment: u64,
    },
    /// Segments of different sizes cannot be delivered as they arrive.
    #[error(
        "segment {segment} of {name} has {size} bytes; expected {expected}: fetch it with delivery in order"
    )]
    UnevenSegments {
        /// The name.
        name: Name,
        /// The segment.
        segment: u64,
        /// Its size.
        size: usize,
        /// The size of the others.
        expected: usize,
    },
    /// The producer's own negative answer (ContentType Nack).
    #[error("the producer refuses segment {segment} of {name}")]
    Refused {
        /// The name.
        name: Name,
        /// The segment.
        segment: u64,
    },
}
