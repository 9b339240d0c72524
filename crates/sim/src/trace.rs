//! The record of a run, event by event: hashed to prove that runs repeat, or written as text.

use std::io::Write;

use whimbrel_core::{PortId, Time};

use crate::link::DropReason;
use crate::simulator::NodeId;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// A node sent the frame to a port.
    Transmit,
    /// A node received the frame from a port.
    Deliver,
    /// The link dropped the frame.
    Drop(DropReason),
    /// The frame exceeded the port's MTU.
    Oversize,
    /// The frame's port was closed at one end.
    PortClosed,
    /// The receiving node was not running.
    NodeDown,
}

impl TraceKind {
    /// Returns the name in a written trace.
    pub fn name(self) -> &'static str {
        match self {
            TraceKind::Transmit => "transmit",
            TraceKind::Deliver => "deliver",
            TraceKind::Drop(DropReason::Queue) => "drop-queue",
            TraceKind::Drop(DropReason::Loss) => "drop-loss",
            TraceKind::Drop(DropReason::Outage) => "drop-outage",
            TraceKind::Drop(DropReason::TooLarge) => "drop-too-large",
            TraceKind::Oversize => "drop-oversize",
            TraceKind::PortClosed => "drop-port-closed",
            TraceKind::NodeDown => "drop-node-down",
        }
    }

    fn code(self) -> u8 {
        match self {
            TraceKind::Transmit => 0,
            TraceKind::Deliver => 1,
            TraceKind::Drop(DropReason::Queue) => 2,
            TraceKind::Drop(DropReason::Loss) => 3,
            TraceKind::Drop(DropReason::Outage) => 4,
            TraceKind::Oversize => 5,
            TraceKind::PortClosed => 6,
            TraceKind::NodeDown => 7,
            TraceKind::Drop(DropReason::TooLarge) => 8,
        }
    }
}

/// A record of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord<'a> {
    /// The time.
    pub time: Time,
    /// The receiver of a frame that was delivered or found the node down, else the sender.
    pub node: NodeId,
    /// That node's port.
    pub port: PortId,
    /// The kind.
    pub kind: TraceKind,
    /// The frame, without encapsulation.
    pub frame: &'a [u8],
}

/// Receives every record of a run, in order.
pub trait TraceSink {
    /// Takes one record.
    fn record(&mut self, record: &TraceRecord<'_>);
}

/// BLAKE3 over all records: time, node, port, kind, length and bytes, each number little-endian.
#[derive(Clone, Debug, Default)]
pub struct TraceHash {
    hasher: blake3::Hasher,
    // BLAKE3 is several times faster on large pieces.
    pending: Vec<u8>,
}

const HASH_PIECE: usize = 64 * 1024;

impl TraceHash {
    /// Returns the hash of all records so far.
    pub fn value(&self) -> [u8; 32] {
        let mut hasher = self.hasher.clone();
        hasher.update(&self.pending);
        *hasher.finalize().as_bytes()
    }
}

impl TraceSink for TraceHash {
    fn record(&mut self, record: &TraceRecord<'_>) {
        self.pending
            .extend_from_slice(&record.time.as_nanos().to_le_bytes());
        self.pending
            .extend_from_slice(&(record.node.index() as u32).to_le_bytes());
        self.pending.extend_from_slice(&record.port.0.to_le_bytes());
        self.pending.push(record.kind.code());
        self.pending
            .extend_from_slice(&(record.frame.len() as u64).to_le_bytes());
        self.pending.extend_from_slice(record.frame);
        if self.pending.len() >= HASH_PIECE {
            self.hasher.update(&self.pending);
            self.pending.clear();
        }
    }
}

/// Writes one JSON object per line: `{"time_ns":…,"node":…,"port":…,"kind":"…","bytes":…}`.
///
/// The writer's first error stops the output and is kept for [`JsonLines::finish`].
#[derive(Debug)]
pub struct JsonLines<W: Write> {
    writer: W,
    result: std::io::Result<()>,
}

impl<W: Write> JsonLines<W> {
    /// Writes to `writer`, which should be buffered.
    pub fn new(writer: W) -> JsonLines<W> {
        JsonLines {
            writer,
            result: Ok(()),
        }
    }

    /// Flushes, and returns the first error if there was one.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.result?;
        self.writer.flush()?;
        Ok(self.writer)
    }
}

impl<W: Write> TraceSink for JsonLines<W> {
    fn record(&mut self, record: &TraceRecord<'_>) {
        if self.result.is_ok() {
            self.result = writeln!(
                self.writer,
                r#"{{"time_ns":{},"node":{},"port":{},"kind":"{}","bytes":{}}}"#,
                record.time.as_nanos(),
                record.node.index(),
                record.port.0,
                record.kind.name(),
                record.frame.len(),
            );
        }
    }
}

/// A sink that its owner can read during or after the run.
impl<S: TraceSink> TraceSink for std::rc::Rc<std::cell::RefCell<S>> {
    fn record(&mut self, record: &TraceRecord<'_>) {
        self.borrow_mut().record(record);
    }
}
