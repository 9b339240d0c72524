//! The outcome of a schedule.

use serde::Serialize;

/// The report of a schedule that kept the promises.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Requests for contents.
    pub requests: u64,
    /// Requests that completed with all bytes right.
    pub completed: u64,
    /// Requests that were refused and repeated.
    pub repeated: u64,
    /// Requests that ended with their host's crash or were cancelled by their program.
    pub abandoned: u64,
    /// Contents sent without a request.
    pub pushed: u64,
    /// Those of them that arrived whole.
    pub received: u64,
    /// Events of the simulation.
    pub events: u64,
    /// Longest time from the end of the faults to the end of a transfer, in seconds.
    pub slowest_s: f64,
}

impl Report {
    /// Adds another schedule's numbers.
    pub fn add(&mut self, other: &Report) {
        self.requests += other.requests;
        self.completed += other.completed;
        self.repeated += other.repeated;
        self.abandoned += other.abandoned;
        self.pushed += other.pushed;
        self.received += other.received;
        self.events += other.events;
        self.slowest_s = self.slowest_s.max(other.slowest_s);
    }
}

/// The breach of a promise.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Breach {
    /// A program was handed other bytes than the content has.
    #[error("host {host} was handed wrong bytes of content {content}")]
    WrongBytes {
        /// The host's number.
        host: usize,
        /// The content's number.
        content: usize,
    },
    /// A program was handed a part of a content twice within one request.
    #[error("host {host} was handed a part of content {content} twice")]
    Twice {
        /// The host's number.
        host: usize,
        /// The content's number.
        content: usize,
    },
    /// A request was reported complete although parts of it had not been handed over.
    #[error("host {host}: content {content} was called complete at {got} of {len} bytes")]
    Incomplete {
        /// The host's number.
        host: usize,
        /// The content's number.
        content: usize,
        /// Bytes handed over.
        got: u64,
        /// The content's length.
        len: u64,
    },
    /// A transfer did not end although the faults had.
    #[error(
        "host {host} has {got} of {len} bytes of content {content} {waited_s} s after the last \
         fault ({repeated} requests were refused)"
    )]
    Stuck {
        /// The host's number.
        host: usize,
        /// The content's number.
        content: usize,
        /// Bytes handed over.
        got: u64,
        /// The content's length.
        len: u64,
        /// Seconds since the end of the faults.
        waited_s: u64,
        /// Times that the request was refused and repeated.
        repeated: u64,
    },
    /// A content that was sent without a request is where it must not be.
    #[error("content {content} of host {from} for host {to} {what}")]
    Push {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// The content.
        content: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A content that was sent without a request did not arrive although the faults had ended.
    #[error(
        "content {content} of host {from} has not arrived at host {to} {waited_s} s after the last fault \
         (acknowledged: {acknowledged}, its sender is there: {sender})"
    )]
    Undelivered {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// The content.
        content: usize,
        /// The network had said that it has it.
        acknowledged: bool,
        /// The sender has not crashed since.
        sender: bool,
        /// Seconds since the end of the faults.
        waited_s: u64,
    },
    /// Chunks went around until their hops were used up.
    #[error("{node} dropped {chunks} chunks that had passed too many routers")]
    Loop {
        /// The node's name.
        node: String,
        /// The chunks.
        chunks: u64,
    },
    /// An idle node holds memory for chunks.
    #[error("{node} still holds {bytes} bytes of chunks when idle: {detail}")]
    Memory {
        /// The node's name.
        node: String,
        /// Bytes.
        bytes: u64,
        /// The holders.
        detail: String,
    },
    /// An idle router has something left.
    #[error("{node} has when idle: {what} ({count})")]
    Left {
        /// The node's name.
        node: String,
        /// What is left.
        what: &'static str,
        /// The count.
        count: usize,
    },
    /// One input caused more work than a round may do.
    #[error("{node} had work left over {times} times after one input")]
    LeftOver {
        /// The node's name.
        node: String,
        /// The number of times.
        times: u64,
    },
}
