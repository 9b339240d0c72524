//! The protocol between a local program and the host stack.
//!
//! The same requests and events serve a program behind a Unix socket (as frames,
//! `docs/protocols/local.md`) and one in the same process (as values).

mod codec;
mod delivery;
mod options;
mod programs;
mod version;

use bytes::Bytes;
use whimbrel_content::Verified;
use whimbrel_core::{Guid, GuidPrefix};
use whimbrel_gnrs::GroupAdmission;

use crate::wire::{ContentKind, ControlCode, codes};
pub use delivery::{AcceptOffer, ContentOffer, OfferId, OfferVerdict, SendContent, SendState};
pub use options::{Delivery, MAX_MISSING, MissingParts, Service, Storage, TransferOptions};
pub use programs::{Frame, Programs};
pub use version::{LOCAL_VERSION, VersionMismatch, check_greeting, greeting};

/// Maximum of names in one [`LocalEvent::Names`].
pub const MAX_NAMES: usize = 32;

/// A change of the membership of a host in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// It ends.
    Leave = 0,
    /// The host is a member.
    Join = 1,
    /// The host's key is that of a group, whose members get what is sent to the other one.
    JoinAsGroup = 2,
}

/// From a program to its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalRequest {
    /// Fetch a content: `get(content_name)` of [MFTP §2].
    Get(Get),
    /// The same, of a node that has called this host, if one of this name has: nobody else is asked then.
    /// Without one, as [`Get`](LocalRequest::Get).
    GetFrom {
        /// Its proven name.
        caller: Guid,
        /// What to fetch.
        get: Get,
    },
    /// Stop fetching.
    Cancel {
        /// The request's number.
        request: u32,
    },
    /// A chunk has been used (for example written to disk); another one may follow.
    Consumed {
        /// The request's number.
        request: u32,
    },
    /// Offer a content to the network, to be sent with these options.
    Publish(Publish, TransferOptions),
    /// Ask the access router to keep copies of the chunks of a content that leave from now on, or no longer
    /// [MFTP §3.3].
    Delegate {
        /// The content's name.
        content: Guid,
        /// Whether they are to be kept.
        is_on: bool,
    },
    /// Stop offering it.
    Withdraw {
        /// The content's name.
        content: Guid,
    },
    /// The answer to [`LocalEvent::Read`].
    ReadDone {
        /// The number in the event.
        read: u64,
        /// The chunk, or `None` if it cannot be read.
        chunk: Option<ReadChunk>,
    },
    /// Send an echo request to a name.
    Ping {
        /// Chosen by the program, returned in the answer.
        request: u32,
        /// The destination.
        destination: Guid,
        /// Chosen by the program, returned in the answer.
        sequence: u32,
        /// Extra bytes to carry, at most 32 KiB.
        padding: u16,
    },
    /// Send a few bytes to a GUID, without a content name and without guarantees: they arrive at
    /// most once, and the sender is not told.
    Message {
        /// Selects one of the receiver's programs, by their agreement.
        channel: u32,
        /// The receiver.
        destination: Guid,
        /// How the network treats it.
        delivery: Delivery,
        /// At most [`MAX_MESSAGE`](crate::wire::MAX_MESSAGE) bytes.
        payload: Bytes,
    },
    /// Deliver the messages of a channel to this program.
    Listen {
        /// The channel.
        channel: u32,
    },
    /// Request the host's counters.
    Status {
        /// Chosen by the program, returned in the answer.
        request: u32,
    },
    /// Request the state of the host's links, after a change if there is one.
    Interfaces {
        /// Chosen by the program, returned in the answer, which is a [`LocalEvent::Status`].
        request: u32,
        /// An [`InterfaceChange`](crate::host::interfaces::InterfaceChange) as JSON, or empty.
        change: String,
    },
    /// Request who may call the node's listeners, and who did, after a change if there is one.
    Callers {
        /// Chosen by the program, returned in the answer, which is a [`LocalEvent::Status`].
        request: u32,
        /// A [`CallersChange`](crate::links::callers::CallersChange) as JSON, or empty.
        change: String,
    },
    /// Send a content to a receiver that has not requested it: `send(destination, content)` of
    /// [MFTP §2].
    Send(SendContent),
    /// Attach this host by the name of a key beside its own, for as long as this program is there: what others
    /// send to that name reaches the nearest host that is attached by it. [`LocalEvent::Published`] tells the
    /// outcome.
    Attach {
        /// The key.
        key: ServiceKey,
    },
    /// Join a group with this host, or leave it [MFTP §3.5]. A membership outlasts this program.
    /// [`LocalEvent::Published`] tells the outcome, with the group's name.
    Join {
        /// By which the group lets it in.
        admission: GroupAdmission,
        /// What changes.
        change: MembershipChange,
    },
    /// Request the members of a group. If the answer takes longer than a second, the program asks again.
    Members {
        /// Chosen by the program, returned in the answer, which is a [`LocalEvent::Status`].
        request: u32,
        /// The group's name.
        group: Guid,
    },
    /// Tell this program of the contents that others send to this host without a request.
    TakeOffers,
    /// Receive an offered content.
    Accept(AcceptOffer),
    /// An offered content is received, or refused.
    Settle {
        /// Which offer.
        id: OfferId,
        /// The content.
        content: Guid,
        /// The decision.
        verdict: OfferVerdict,
    },
    /// Request the contents with such names that the host's programs offer or fetch.
    Names {
        /// Chosen by the program, returned in the answer.
        request: u32,
        /// How their names begin.
        prefix: GuidPrefix,
    },
}

/// The secret of a key that a host is attached by beside its own.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceKey(pub [u8; 32]);

impl core::fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ServiceKey(..)")
    }
}

/// A request for a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get {
    /// Chosen by the program; identifies the request.
    pub request: u32,
    /// The content's name.
    pub content: Guid,
    /// What the program chooses.
    pub options: TransferOptions,
    /// Deliver the chunks in order; otherwise as they arrive.
    pub in_order: bool,
    /// Chunks that may be delivered before the first is reported as [`LocalRequest::Consumed`].
    pub credit: u16,
    /// The state of an earlier run: a resume record (`docs/protocols/content.md`), or empty.
    pub resume: Bytes,
}

/// An offered content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The content's name.
    pub content: Guid,
    /// Its length in bytes.
    pub content_len: u64,
    /// Its kind.
    pub kind: ContentKind,
    /// A name to store it under; may be empty.
    pub file_name: String,
}

/// A chunk that a program has read for its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadChunk {
    /// Its proof, encoded.
    pub proof: Bytes,
    /// Its bytes.
    pub data: Bytes,
}

/// From a host to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalEvent {
    /// A verified chunk.
    Chunk(LocalChunk),
    /// The state of a transfer has changed.
    State {
        /// The request's number.
        request: u32,
        /// The new state.
        state: TransferState,
    },
    /// All chunks have been delivered.
    Complete {
        /// The request's number.
        request: u32,
        /// The content's length in bytes, proven.
        content_len: u64,
    },
    /// The request is over: its source sends nothing again (`don't care`), and parts are missing.
    Incomplete {
        /// The request's number.
        request: u32,
        /// What is missing.
        missing: MissingParts,
    },
    /// The request has failed.
    Failed {
        /// The request's number.
        request: u32,
        /// The reason.
        reason: FailReason,
    },
    /// The outcome of a content's announcement.
    Published {
        /// The content's name.
        content: Guid,
        /// The answer of the name service or of the router on the path to it.
        code: ControlCode,
    },
    /// Read a chunk of a content that this program has published, and answer with
    /// [`LocalRequest::ReadDone`].
    Read {
        /// To be returned.
        read: u64,
        /// The content's name.
        content: Guid,
        /// The chunk's index.
        index: u32,
        /// Chunk size as a power of two.
        chunk_log2: u8,
    },
    /// An echo reply has arrived.
    Pong {
        /// The request's number.
        request: u32,
        /// The request's sequence number.
        sequence: u32,
        /// The sender of the reply.
        from: Guid,
    },
    /// A message has arrived.
    Message {
        /// Its channel.
        channel: u32,
        /// The sender's claim of its GUID, without proof.
        from: Guid,
        /// Its bytes.
        payload: Bytes,
    },
    /// The host's counters.
    Status {
        /// The request's number.
        request: u32,
        /// A JSON object.
        json: String,
    },
    /// How far a sent content is.
    Sending {
        /// The request's number.
        request: u32,
        /// Its state.
        state: SendState,
        /// Bytes that the first router has taken.
        taken: u64,
        /// Of these, the bytes that routers store because the receiver is away.
        stored: u64,
    },
    /// A content is offered.
    Offered(ContentOffer),
    /// The names that begin so.
    Names {
        /// The request's number.
        request: u32,
        /// In order; if there are [`MAX_NAMES`], there may be more.
        names: Vec<Guid>,
    },
}

/// A verified chunk for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalChunk {
    /// The request's number.
    pub request: u32,
    /// The chunk's index.
    pub index: u32,
    /// Chunk size as a power of two: it can change in the course of a transfer.
    pub chunk_log2: u8,
    /// The content's length in bytes.
    pub content_len: u64,
    /// True once the length is proven; before, it is the holder's claim.
    pub len_proven: bool,
    /// The kind of content, as its holder claims.
    pub kind: ContentKind,
    /// The name that its holder suggests; must not be used as a path.
    pub file_name: String,
    /// Its proof, encoded: the host has verified it, and a program may do so again.
    pub proof: Bytes,
    /// What the host has verified, for a program in its process: it need not hash the bytes again.
    /// Frames carry none of it, so that a program trusts no other process.
    pub verified: Option<Verified>,
    /// Its bytes.
    pub data: Bytes,
}

/// The state of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferState {
    /// Requested; no chunk has arrived yet.
    Requested,
    /// Chunks are arriving.
    Flowing,
    /// No chunk for a while; the missing ones have been requested again.
    Stalled,
    /// No router responds: paused until one does.
    Disconnected,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailReason {
    /// The name service has no record of a holder of this content.
    NoSuchName,
    /// Its holders do not serve it.
    NotServed,
    /// The chunks exceed the limit of a hop on their path.
    TooLarge,
    /// The host has reached its limit of requests.
    Busy,
    /// The request is invalid.
    Invalid,
    /// The router uses no name service, and none of its hosts has announced this content.
    NoNameService,
}

codes!(TransferState, "transfer state", {
    Requested = 0,
    Flowing = 1,
    Stalled = 2,
    Disconnected = 3,
});
codes!(FailReason, "reason", {
    NoSuchName = 0,
    NotServed = 1,
    TooLarge = 2,
    Busy = 3,
    Invalid = 4,
    NoNameService = 5,
});

impl LocalEvent {
    /// Returns true for an event that may be dropped for a program that does not read.
    pub fn is_report(&self) -> bool {
        matches!(
            self,
            LocalEvent::State { .. }
                | LocalEvent::Status { .. }
                | LocalEvent::Pong { .. }
                | LocalEvent::Message { .. }
                | LocalEvent::Names { .. }
        )
    }
}
