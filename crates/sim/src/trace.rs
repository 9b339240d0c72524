//! What happened in a run, event by event: hashed to prove that runs repeat, or written down to be
//! read.

use std::io::Write;

use whimbrel_core::{PortId, Time};

use crate::link::DropReason;
use crate::simulator::NodeId;

/// What happened to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// A node handed it to a port.
    Transmit,
    /// A node got it from a port.
    Deliver,
    /// The link gave up on it.
    Drop(DropReason),
    /// It was larger than the port's MTU.
    Oversize,
    /// Its port was closed at one end.
    PortClosed,
    /// The node that it arrived at was not running.
    NodeDown,
}

impl TraceKind {
    /// The name in a written trace.
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

/// One thing that happened to one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord<'a> {
    /// When.
    pub time: Time,
    /// The receiver for what was delivered or found the node down, else the sender.
    pub node: NodeId,
    /// That node's port.
    pub port: PortId,
    /// What.
    pub kind: TraceKind,
    /// The frame, without encapsulation.
    pub frame: &'a [u8],
}

/// Gets every record of a run, in order.
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
    /// The hash of all records so far.
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
/// The first error of the writer ends the writing and is kept for [`JsonLines::finish`].
#[derive(Debug)]
pub struct JsonLines<W: Write> {
    writer: W,
    result: std::io::Result<()>,
}

impl<W: Write> JsonLines<W> {
    /// Writes to `writer`, which had better be buffered.
    pub fn new(writer: W) -> JsonLines<W> {
        JsonLines {
            writer,
            result: Ok(()),
        }
    }

    /// Flushes, and tells whether everything was written.
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

/// A sink that its giver still holds, to read from it after or during the run.
impl<S: TraceSink> TraceSink for std::rc::Rc<std::cell::RefCell<S>> {
    fn record(&mut self, record: &TraceRecord<'_>) {
        self.borrow_mut().record(record);
    }
}
