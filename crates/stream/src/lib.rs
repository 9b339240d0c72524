//! Byte streams over messages that may be lost, repeated or overtaken.
//!
//! The one invariant: **a reader gets each of the writer's bytes once and in order, or is told that the stream was
//! cut off.** A stream is not bound to addresses or kernel connections: it waits through an outage and continues
//! where it stopped.
//!
//! | module | holds | text it follows |
//! |---|---|---|
//! | [`packet`] | [`StreamPacket`], the layout of a message | docs/protocols/stream.md |
//! | `receiving` | one direction's receiver: order, duplicates, window | RFC 9293 section 3.8.6 |
//! | `sending` | one direction's sender: what is in flight, loss, window | RFC 8985, RFC 5681 |
//! | `one` | both directions of one stream, its deadlines | docs/protocols/stream.md |
//! | [`endpoint`] | [`StreamEndpoint`], all streams of a program | docs/protocols/stream.md |
//!
//! [`core::RttEstimator`](whimbrel_core::RttEstimator) measures round trips. The congestion laws of
//! `transport` count segments of NDN consumers, so the window here is one of its own, in bytes.
#![forbid(unsafe_code)]

pub mod endpoint;
mod one;
pub mod packet;
mod receiving;
mod sending;

pub use endpoint::{
    OpenStreamError, StreamEndpoint, StreamEndpointOptions, StreamEvent, StreamKey,
};
pub use packet::{CutOff, StreamPacket};
